//! The commands on what folders take: of each user, and the biggest of them.

use std::cmp::Reverse;

use serde_json::Value;

use super::args::StorageCommand;
use super::client::HttpClient;
use super::error::CliError;
use super::output::OutputStyle;
use super::{columns, print};

pub(super) async fn storage(
    client: &HttpClient,
    view: &OutputStyle,
    request: StorageCommand,
) -> Result<u8, CliError> {
    match request {
        StorageCommand::Ls => {
            let body = client.get("/api/v1/storage").await?;
            print(&view.list(&body, columns::STORAGE)?);
        }
        StorageCommand::Folders { limit } => {
            let mut body = client.get("/api/v1/folders").await?;
            keep_biggest(&mut body, limit);
            print(&view.list(&body, columns::BIGGEST)?);
        }
    }
    Ok(0)
}

/// Leaves the biggest folders of a list, the biggest first; those that were never counted come last.
fn keep_biggest(body: &mut Value, most: usize) {
    if let Some(items) = body.get_mut("items").and_then(Value::as_array_mut) {
        items.sort_by_key(|one| Reverse(one["bytes"].as_u64()));
        items.truncate(most);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_biggest_folders_come_first_and_so_many_stay() {
        let folder = |name: &str, bytes: Option<u64>| json!({"name": name, "bytes": bytes});
        let all = [
            folder("a", Some(1)),
            folder("b", None),
            folder("c", Some(3)),
            folder("d", Some(2)),
        ];
        let mut body = json!({"items": all, "estimated_total": 4});
        keep_biggest(&mut body, 3);
        let names: Vec<&str> = body["items"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|one| one["name"].as_str())
            .collect();
        assert_eq!(names, ["c", "d", "a"]);
    }
}
