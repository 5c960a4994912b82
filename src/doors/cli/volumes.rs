//! The commands on volumes.

use api::volumes::VolumeView;
use hyper::Method;
use rules::units::Bytes;
use serde_json::{Map, Value, json};

use super::args::VolumeCommand;
use super::client::{Extra, HttpClient, encoded};
use super::error::CliError;
use super::output::OutputStyle;
use super::{columns, print};

const PATH: &str = "/api/v1/volumes";
const POOL: &str = "/api/v1/storage/pool";

pub(super) async fn volume(
    client: &HttpClient,
    view: &OutputStyle,
    request: VolumeCommand,
) -> Result<u8, CliError> {
    match request {
        VolumeCommand::Ls => print(&view.list(&client.get(PATH).await?, columns::VOLUMES)?),
        VolumeCommand::Get { volume } => {
            let body = client.get(&path(&volume)).await?;
            print(&view.one(&body, columns::VOLUMES)?);
        }
        VolumeCommand::Add {
            name,
            path,
            mapped_user,
            folder_limit,
            domain,
            project,
        } => {
            let mut body =
                json!({"name": name, "path": path, "domains": domain, "projects": project});
            if let Some(user) = mapped_user {
                body["mapped_user"] = user.into();
            }
            if let Some(limit) = folder_limit {
                body["folder_limit"] = limit_of(&limit)?.into();
            }
            let made = client.send::<VolumeView>(PATH, &body).await?;
            print(&view.said(&made.body, &made.read.name)?);
        }
        VolumeCommand::Set {
            volume,
            name,
            path: directory,
            folder_limit,
            domain,
            project,
            everyone,
        } => {
            let path = path(&volume);
            let now = client.call(Method::GET, &path, Extra::default()).await?;
            let tag = now.header("etag").unwrap_or("*").to_owned();
            let mut patch = Map::new();
            for (field, value) in [("name", name), ("path", directory)] {
                if let Some(value) = value {
                    patch.insert(field.to_owned(), value.into());
                }
            }
            if let Some(limit) = folder_limit {
                patch.insert("folder_limit".to_owned(), limit_of(&limit)?.into());
            }
            for (field, names) in [("domains", domain), ("projects", project)] {
                if everyone || !names.is_empty() {
                    patch.insert(field.to_owned(), names.into());
                }
            }
            let body = Value::Object(patch);
            let mut extra = Extra::json(&body).header("If-Match", tag);
            extra.content_type = Some("application/merge-patch+json");
            let changed = client.call(Method::PATCH, &path, extra).await?;
            print(&view.one(&changed.json()?, columns::VOLUMES)?);
        }
        VolumeCommand::Pool => print(&view.one(&client.get(POOL).await?, columns::POOL)?),
        VolumeCommand::Grow { size } => {
            let extra = Extra::json(&json!({"bytes": Bytes::parse(&size)?}));
            let grown = client.call(Method::PUT, POOL, extra).await?;
            print(&view.one(&grown.json()?, columns::POOL)?);
        }
        VolumeCommand::Rm { volumes } => {
            for volume in volumes {
                client
                    .call(Method::DELETE, &path(&volume), Extra::default())
                    .await?;
                print(&view.said(&json!({"name": volume}), &format!("{volume}  removed"))?);
            }
        }
    }
    Ok(0)
}

/// Bytes of a limit as it was typed; 0 for `none`.
fn limit_of(typed: &str) -> Result<u64, CliError> {
    match typed.eq_ignore_ascii_case("none") {
        true => Ok(0),
        false => Ok(Bytes::parse(typed)?.0),
    }
}

fn path(volume: &str) -> String {
    format!("{PATH}/{}", encoded(volume))
}
