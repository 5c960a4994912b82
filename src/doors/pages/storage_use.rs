//! What `/storage` says of use to administrators: owners of folders by how near their limit is, the biggest folders, and when
//! those were used last. Decides nothing.

use api::folders::FolderView;
use api::storage::StorageView;
use rules::permissions::Permission;
use server::Failure;
use server::access::Caller;
use server::actions::{folders, storage};

use super::PagesContext;
use super::components;
use super::folder_owners::owner_words;
use super::request_context::RequestContext;

/// Rows of each list. Higher: the page is long. Lower: who is next is found by the command line alone.
const MAX_ROWS: usize = 20;
/// Folders that their owner is told are the biggest.
const MAX_NAMED: usize = 3;

/// Both lists; empty where nothing is known yet.
#[derive(Default)]
pub struct StorageUseRows {
    pub owners: Vec<OwnerUseRow>,
    pub folders: Vec<BigFolderRow>,
}

/// A user or a project, and what their folders take together.
pub struct OwnerUseRow {
    pub owner: String,
    pub text: String,
    pub percent: u8,
    /// When it was seen, in words; empty where nothing was counted yet.
    pub seen: String,
}

/// One folder.
pub struct BigFolderRow {
    pub name: String,
    /// Where it lies; empty for the box's own disk.
    pub volume: String,
    pub size: String,
    pub counted: String,
    /// When it was used last, in words.
    pub used: String,
}

/// What those see who look after the site; None for others. Costs one visit of each folder.
pub(super) async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
) -> Result<Option<StorageUseRows>, Failure> {
    if !caller.subject.can(Permission::SystemRead) {
        return Ok(None);
    }
    let mut owners = storage::list(&console.server, caller).await?;
    owners.sort_by_key(|one| std::cmp::Reverse((one.percent, one.used)));
    let mut all = folders::list(&console.server, caller).await?;
    biggest_first(&mut all);
    let owners = owners.iter().take(MAX_ROWS);
    let counted = all.iter().filter(|one| one.bytes.is_some());
    Ok(Some(StorageUseRows {
        owners: owners.map(|one| owner_row(visit, console, one)).collect(),
        folders: counted
            .take(MAX_ROWS)
            .map(|one| folder_row(visit, console, one))
            .collect(),
    }))
}

fn biggest_first(all: &mut [FolderView]) {
    all.sort_by_key(|one| std::cmp::Reverse(one.bytes));
}

fn owner_row(visit: &RequestContext, console: &PagesContext, one: &StorageView) -> OwnerUseRow {
    let now = console.server.clock().now();
    let (used, limit) = (components::size(one.used.0), components::size(one.limit.0));
    OwnerUseRow {
        owner: owner_words(visit.text, one.owner.kind, &one.owner.name),
        text: visit.text.folders_space_of(used, limit),
        percent: components::percent(one.used.0 as f64, one.limit.0 as f64),
        seen: one
            .at
            .map_or_else(String::new, |at| visit.clock.ago(at, now)),
    }
}

fn folder_row(visit: &RequestContext, console: &PagesContext, one: &FolderView) -> BigFolderRow {
    let now = console.server.clock().now();
    BigFolderRow {
        name: format!("{}/{}", one.owner.name, one.name),
        volume: one.volume.clone().unwrap_or_default(),
        size: one.bytes.map_or_else(String::new, components::size),
        counted: one
            .counted_at
            .map_or_else(String::new, |at| visit.clock.ago(at, now)),
        used: one.used_at.map_or_else(
            || visit.text.common_never().to_owned(),
            |at| visit.clock.ago(at, now),
        ),
    }
}

/// The biggest of a user's folders in one line; empty where fewer than two were counted.
pub(super) fn biggest(all: &[FolderView]) -> String {
    let mut all: Vec<FolderView> = all.to_vec();
    all.retain(|one| one.bytes.is_some_and(|bytes| bytes > 0));
    if all.len() < 2 {
        return String::new();
    }
    biggest_first(&mut all);
    let named = all.iter().take(MAX_NAMED).map(|one| {
        let size = components::size(one.bytes.unwrap_or_default());
        format!("{} {size}", one.name)
    });
    named.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn folder(name: &str, bytes: Option<u64>) -> FolderView {
        let id = "0199f0a3-6c1e-7d40-8000-000000000000";
        let view = json!({
            "id": id, "name": name, "owner": {"kind": "user", "id": id, "name": "kim"},
            "members": null, "owned": true, "kind": "general",
            "state": "ready", "volume": null, "right": null, "created_at": "2026-01-01T00:00:00Z",
            "used_at": null, "trashed_at": null, "purge_at": null, "bytes": bytes, "entries": null,
            "counted_at": null, "generation": 1,
        });
        serde_json::from_value(view).expect("a folder")
    }

    #[test]
    fn an_owner_is_told_the_biggest_folders_first() {
        let gib = |count: u64| Some(count << 30);
        let all = [
            folder("a", gib(1)),
            folder("b", None),
            folder("c", gib(3)),
            folder("d", gib(2)),
            folder("e", gib(4)),
        ];
        assert_eq!(biggest(&all), "e 4 GiB, c 3 GiB, d 2 GiB");
        assert_eq!(biggest(&all[..2]), "", "one says nothing");
    }
}
