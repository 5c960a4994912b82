//! The commands on folders.

use api::folders::{FolderShareView, FolderTransferView, FolderView};
use api::operations::OperationView;
use hyper::Method;
use rules::units::Bytes;
use serde_json::{Map, Value, json};

use super::answer::Answer;
use super::args::FolderCommand;
use super::client::{Extra, HttpClient, encoded};
use super::error::CliError;
use super::folder_browsing::{self, WrittenOver};
use super::folder_files::{self, CopyMode};
use super::images::{ProgressLine, watched};
use super::output::OutputStyle;
use super::{columns, print, values};

const PATH: &str = "/api/v1/folders";
const INVITATIONS: &str = "/api/v1/folder-invitations";
const TRANSFERS: &str = "/api/v1/folder-transfers";
const STORAGE: &str = "/api/v1/storage";

pub(super) async fn folder(
    client: &HttpClient,
    view: &OutputStyle,
    request: FolderCommand,
) -> Result<u8, CliError> {
    match request {
        FolderCommand::Ls {
            place: None, owner, ..
        } => {
            let mut known = client.get(PATH).await?;
            if let (Some(owner), Some(items)) = (owner, known["items"].as_array_mut()) {
                items.retain(|item| item["owner"]["name"] == owner.as_str());
            }
            print(&view.list(&known, columns::FOLDERS)?);
        }
        FolderCommand::Ls {
            place: Some(place),
            sort,
            ..
        } => {
            return folder_files::list(client, view, &place, sort.as_deref()).await;
        }
        FolderCommand::Find { place, words } => {
            return folder_browsing::find(client, view, &place, &words).await;
        }
        FolderCommand::Du { place, fresh } => {
            return folder_browsing::usage(client, view, &place, fresh).await;
        }
        FolderCommand::Cat { place } => return folder_browsing::cat(client, &place).await,
        FolderCommand::Write {
            place,
            new,
            if_match,
        } => {
            let over = match (new, if_match) {
                (true, _) => WrittenOver::Nothing,
                (false, Some(tag)) => WrittenOver::Version(tag),
                (false, None) => WrittenOver::Any,
            };
            return folder_browsing::write(client, view, &place, over).await;
        }
        FolderCommand::Cp {
            from,
            to,
            recursive,
            overwrite,
        } => {
            let how = CopyMode {
                recursive,
                overwrite,
            };
            return folder_files::copy(client, view, &from, &to, how).await;
        }
        FolderCommand::Archive { place, format, to } => {
            return folder_files::archive(client, view, &place, &format, to).await;
        }
        FolderCommand::Mkdir { place } => {
            return folder_files::make_directory(client, view, &place).await;
        }
        FolderCommand::Mv { place, to } => {
            return folder_files::move_entry(client, view, &place, &to).await;
        }
        FolderCommand::Rm { places, for_good } => {
            return folder_files::remove(client, view, &places, for_good).await;
        }
        FolderCommand::Removed { folder } => {
            let path = format!("{}/removed", path(&folder));
            print(&view.list(&client.get(&path).await?, columns::REMOVED_ENTRIES)?);
        }
        FolderCommand::Undelete { folder, items } => {
            let path = format!("{}/removed/restore", path(&folder));
            client.post(&path, &json!({"items": items})).await?;
            let said = format!("{folder}  files restored: {}", items.len());
            print(&view.said(&json!({"name": folder, "items": items}), &said)?);
        }
        FolderCommand::Empty { folder, items, all } => {
            let path = format!("{}/removed", path(&folder));
            match all {
                true => {
                    client.call(Method::DELETE, &path, Extra::default()).await?;
                }
                false => {
                    let path = format!("{path}/purge");
                    client.post(&path, &json!({"items": items})).await?;
                }
            }
            let said = format!("{folder}  being removed for good");
            print(&view.said(&json!({"name": folder}), &said)?);
        }
        FolderCommand::Get { folder } => {
            let body = client.get(&path(&folder)).await?;
            print(&view.one(&body, columns::FOLDERS)?);
        }
        FolderCommand::Create {
            name,
            volume,
            project,
            members,
        } => {
            let mut body = json!({"name": name, "volume": volume, "project": project});
            if let Some(members) = members {
                body["members"] = members.into();
            }
            let made = client.send::<FolderView>(PATH, &body).await?;
            print(&view.said(&made.body, made.read.name.as_str())?);
        }
        FolderCommand::Rename { folder, name } => {
            change(client, view, &folder, &json!({"name": name})).await?;
        }
        FolderCommand::Members { folder, right } => {
            change(client, view, &folder, &json!({"members": right})).await?;
        }
        FolderCommand::Cloning { folder, who } => {
            let body = json!({"cloneable": who == "readers"});
            change(client, view, &folder, &body).await?;
        }
        FolderCommand::Limit { folder, size } => {
            let bytes = match size.as_str() {
                "none" => None,
                size => Some(Bytes::parse(size)?),
            };
            let path = format!("{}/limit", path(&folder));
            let extra = Extra::json(&json!({"bytes": bytes}));
            let changed = client.call(Method::PUT, &path, extra).await?;
            print(&view.one(&changed.json()?, columns::FOLDERS)?);
        }
        FolderCommand::Clone {
            folder,
            name,
            project,
            detach,
        } => {
            let body = json!({"name": name, "project": project});
            let path = format!("{}/clone", path(&folder));
            let begun: Answer<OperationView> = client.send(&path, &body).await?;
            return followed(client, view, begun, detach, "copied").await;
        }
        FolderCommand::Transfer {
            folder,
            user,
            project,
        } => {
            let body = json!({"user": user, "project": project});
            let path = format!("{}/transfer", path(&folder));
            let made = client.send::<FolderTransferView>(&path, &body).await?;
            let said = format!("{folder}  offered to {}", made.read.to.name);
            print(&view.said(&made.body, &said)?);
        }
        FolderCommand::Withdraw { folders } => {
            for folder in folders {
                let path = format!("{}/transfer", path(&folder));
                client.call(Method::DELETE, &path, Extra::default()).await?;
                let said = format!("{folder}  taken back");
                print(&view.said(&json!({"name": folder}), &said)?);
            }
        }
        FolderCommand::Transfers => {
            let offered = client.get(TRANSFERS).await?;
            print(&view.list(&offered, columns::FOLDER_TRANSFERS)?);
        }
        FolderCommand::Take { folder, detach } => {
            let path = format!("{TRANSFERS}/{}/accept", encoded(&folder));
            let begun = client.call(Method::POST, &path, Extra::default()).await?;
            let begun = Answer::<OperationView>::of(begun.json()?)?;
            return followed(client, view, begun, detach, "taken").await;
        }
        FolderCommand::Refuse { folders } => {
            for folder in folders {
                let path = format!("{TRANSFERS}/{}/decline", encoded(&folder));
                client.call(Method::POST, &path, Extra::default()).await?;
                let said = format!("{folder}  not taken");
                print(&view.said(&json!({"id": folder}), &said)?);
            }
        }
        FolderCommand::Trash { folders } => {
            for folder in folders {
                act(client, &folder, "trash").await?;
                print(&view.said(&json!({"name": folder}), &format!("{folder}  trashed"))?);
            }
        }
        FolderCommand::Adopt {
            id,
            owner,
            name,
            of_other_site,
        } => {
            let path = format!("{}/adopt", path(&id));
            let mut body = json!({"owner": owner, "name": name});
            if of_other_site {
                body["of_other_site"] = json!(true);
            }
            let adopted = client.post(&path, &body).await?;
            print(&view.one(&adopted, columns::FOLDERS)?);
        }
        FolderCommand::Share {
            folder,
            user,
            project,
            right,
            until,
        } => {
            let until = until.map(|until| values::ahead(&until, true, view.now));
            let mut body = Map::new();
            for (field, value) in [("user", user), ("project", project)] {
                if let Some(value) = value {
                    body.insert(field.to_owned(), value.into());
                }
            }
            body.insert("right".to_owned(), right.into());
            if let Some(until) = until.transpose()? {
                body.insert("until".to_owned(), json!(until));
            }
            let (path, body) = (format!("{}/shares", path(&folder)), Value::Object(body));
            let made = client.send::<FolderShareView>(&path, &body).await?;
            print(&view.said(&made.body, &made.read.id.to_string())?);
        }
        FolderCommand::Shares { folder } => {
            let path = format!("{}/shares", path(&folder));
            print(&view.list(&client.get(&path).await?, columns::FOLDER_SHARES)?);
        }
        FolderCommand::Unshare { folder, shares } => {
            for share in shares {
                let path = format!("{}/shares/{}", path(&folder), encoded(&share));
                client.call(Method::DELETE, &path, Extra::default()).await?;
                let said = format!("{share}  taken back");
                print(&view.said(&json!({"id": share}), &said)?);
            }
        }
        FolderCommand::Sessions { folder } => {
            let path = format!("{}/sessions", path(&folder));
            print(&view.list(&client.get(&path).await?, columns::FOLDER_SESSIONS)?);
        }
        FolderCommand::Invitations => {
            let offered = client.get(INVITATIONS).await?;
            print(&view.list(&offered, columns::FOLDER_INVITATIONS)?);
        }
        FolderCommand::Accept { invitations } => {
            for invitation in invitations {
                let path = format!("{INVITATIONS}/{}/accept", encoded(&invitation));
                let taken = client.call(Method::POST, &path, Extra::default()).await?;
                print(&view.one(&taken.json()?, columns::FOLDERS)?);
            }
        }
        FolderCommand::Decline { invitations } => {
            for invitation in invitations {
                let path = format!("{INVITATIONS}/{}/decline", encoded(&invitation));
                client.call(Method::POST, &path, Extra::default()).await?;
                let said = format!("{invitation}  declined");
                print(&view.said(&json!({"id": invitation}), &said)?);
            }
        }
        FolderCommand::Detach { folder, sessions } => {
            let path = format!("{}/detach", path(&folder));
            client.post(&path, &json!({"sessions": sessions})).await?;
            let said = format!("{folder}  detached from {}", sessions.join(", "));
            print(&view.said(&json!({"name": folder, "sessions": sessions}), &said)?);
        }
        FolderCommand::Leave { folders } => {
            for folder in folders {
                act(client, &folder, "leave").await?;
                print(&view.said(&json!({"name": folder}), &format!("{folder}  left"))?);
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
        FolderCommand::Purge { folders } => {
            for folder in folders {
                act(client, &folder, "purge").await?;
                let said = format!("{folder}  removed for good");
                print(&view.said(&json!({"name": folder}), &said)?);
            }
        }
    }
    Ok(0)
}

async fn change(
    client: &HttpClient,
    view: &OutputStyle,
    folder: &str,
    body: &Value,
) -> Result<(), CliError> {
    let path = path(folder);
    let now = client.call(Method::GET, &path, Extra::default()).await?;
    let tag = now.header("etag").unwrap_or("*").to_owned();
    let mut extra = Extra::json(body).header("If-Match", tag);
    extra.content_type = Some("application/merge-patch+json");
    let changed = client.call(Method::PATCH, &path, extra).await?;
    print(&view.one(&changed.json()?, columns::FOLDERS)?);
    Ok(())
}

/// Shows what comes of work on a folder, unless the user goes on with something else.
pub(super) async fn followed(
    client: &HttpClient,
    view: &OutputStyle,
    begun: Answer<OperationView>,
    detach: bool,
    done_word: &str,
) -> Result<u8, CliError> {
    if detach {
        print(&view.one(&begun.body, columns::JOBS)?);
        return Ok(0);
    }
    let progress = ProgressLine::new(view, "copying", true);
    let done = watched(client, &progress, begun).await?;
    let name = done.body["result"]["name"].as_str().unwrap_or_default();
    print(&view.said(&done.body, &format!("{name}  {done_word}"))?);
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
