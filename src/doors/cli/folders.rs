//! The commands on folders.

use api::folders::FolderView;
use hyper::Method;
use serde_json::json;

use super::args::FolderCommand;
use super::client::{Extra, HttpClient, encoded};
use super::error::CliError;
use super::output::OutputStyle;
use super::{columns, print};

const PATH: &str = "/api/v1/folders";
const STORAGE: &str = "/api/v1/storage";

pub(super) async fn folder(
    client: &HttpClient,
    view: &OutputStyle,
    request: FolderCommand,
) -> Result<u8, CliError> {
    match request {
        FolderCommand::Ls => {
            print(&view.list(&client.get(PATH).await?, columns::FOLDERS)?);
        }
        FolderCommand::Get { folder } => {
            let body = client.get(&path(&folder)).await?;
            print(&view.one(&body, columns::FOLDERS)?);
        }
        FolderCommand::Create { name } => {
            let body = json!({"name": name});
            let made = client.send::<FolderView>(PATH, &body).await?;
            print(&view.said(&made.body, made.read.name.as_str())?);
        }
        FolderCommand::Rename { folder, name } => {
            let path = path(&folder);
            let now = client.call(Method::GET, &path, Extra::default()).await?;
            let tag = now.header("etag").unwrap_or("*").to_owned();
            let body = json!({"name": name});
            let mut extra = Extra::json(&body).header("If-Match", tag);
            extra.content_type = Some("application/merge-patch+json");
            let changed = client.call(Method::PATCH, &path, extra).await?;
            print(&view.one(&changed.json()?, columns::FOLDERS)?);
        }
        FolderCommand::Trash { folders } => {
            for folder in folders {
                act(client, &folder, "trash").await?;
                print(&view.said(&json!({"name": folder}), &format!("{folder}  trashed"))?);
            }
        }
        FolderCommand::Usage => {
            print(&view.list(&client.get(STORAGE).await?, columns::STORAGE)?);
        }
        FolderCommand::Restore { folders } => {
            for folder in folders {
                act(client, &folder, "restore").await?;
                print(&view.said(&json!({"name": folder}), &format!("{folder}  restored"))?);
            }
        }
    }
    Ok(0)
}

async fn act(client: &HttpClient, folder: &str, verb: &str) -> Result<(), CliError> {
    let path = format!("{}/{verb}", path(folder));
    client.call(Method::POST, &path, Extra::default()).await?;
    Ok(())
}

fn path(folder: &str) -> String {
    format!("{PATH}/{}", encoded(folder))
}
