//! The commands on snapshots of folders.

use api::folder_snapshots::FolderSnapshotScheduleView;
use api::operations::OperationView;
use hyper::Method;
use serde_json::json;

use super::answer::Answer;
use super::args::SnapshotCommand;
use super::client::{Extra, HttpClient, encoded};
use super::error::CliError;
use super::folder_files::whole_list;
use super::folders::followed;
use super::output::OutputStyle;
use super::{columns, print};

pub(super) async fn snapshot(
    client: &HttpClient,
    view: &OutputStyle,
    request: SnapshotCommand,
) -> Result<u8, CliError> {
    match request {
        SnapshotCommand::Ls { folder } => {
            let known = client.get(&path(&folder)).await?;
            print(&view.list(&known, columns::SNAPSHOTS)?);
            if known["offered"] == false {
                eprintln!(
                    "No snapshot can be made of this folder: its file system shares no blocks between files."
                );
            }
        }
        SnapshotCommand::Create { folder, detach } => {
            let begun: Answer<OperationView> = client.send(&path(&folder), &json!({})).await?;
            return followed(client, view, begun, detach, "kept").await;
        }
        SnapshotCommand::Schedule {
            folder,
            hourly,
            daily,
            weekly,
        } => {
            let known = client.get(&path(&folder)).await?;
            let before = |field: &str| known["schedule"][field].as_u64();
            let count = |given: Option<u32>, field: &str| match given {
                Some(count) => u64::from(count),
                None => before(field).unwrap_or(0),
            };
            let body = json!({
                "hourly": count(hourly, "hourly"),
                "daily": count(daily, "daily"),
                "weekly": count(weekly, "weekly"),
            });
            let path = format!("{}/schedule", path(&folder));
            let set = client.call(Method::PUT, &path, Extra::json(&body)).await?;
            let set = Answer::<FolderSnapshotScheduleView>::of(set.json()?)?;
            let FolderSnapshotScheduleView {
                hourly,
                daily,
                weekly,
            } = set.read;
            let said = format!("{folder}  hourly {hourly}, daily {daily}, weekly {weekly}");
            print(&view.said(&set.body, &said)?);
        }
        SnapshotCommand::Rm { folder, numbers } => {
            for number in numbers {
                let path = format!("{}/{number}", path(&folder));
                client.call(Method::DELETE, &path, Extra::default()).await?;
                let said = format!("{folder} #{number}  removed");
                print(&view.said(&json!({"name": folder, "number": number}), &said)?);
            }
        }
        SnapshotCommand::Files {
            folder,
            number,
            path: inside,
        } => {
            let listed = format!(
                "{}/{number}/entries?path={}&limit=500",
                path(&folder),
                encoded(inside.trim_matches('/'))
            );
            let whole = whole_list(client, &listed, |_, _| ()).await?;
            print(&view.list(&whole, columns::FOLDER_ENTRIES)?);
        }
        SnapshotCommand::Clone {
            folder,
            number,
            name,
            path: inside,
            project,
            detach,
        } => {
            let inside = inside.unwrap_or_default();
            let body = json!({
                "name": name,
                "project": project,
                "path": inside.trim_matches('/'),
            });
            let path = format!("{}/{number}/clone", path(&folder));
            let begun: Answer<OperationView> = client.send(&path, &body).await?;
            return followed(client, view, begun, detach, "copied").await;
        }
        SnapshotCommand::Restore {
            folder,
            number,
            path: inside,
            to,
            replace,
        } => {
            let mut body = json!({"path": inside.trim_matches('/'), "replace": replace});
            if let Some(to) = to {
                body["to"] = to.trim_matches('/').into();
            }
            let path = format!("{}/{number}/restore", path(&folder));
            let back = client.post(&path, &body).await?;
            let place = back["path"].as_str().unwrap_or_default();
            print(&view.said(&back, &format!("{folder}:/{place}  restored"))?);
        }
    }
    Ok(0)
}

fn path(folder: &str) -> String {
    format!("/api/v1/folders/{}/snapshots", encoded(folder))
}
