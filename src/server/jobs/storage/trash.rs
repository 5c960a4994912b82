//! Lets the oldest of what lies in the trash give way where the folders that count on one limit come near it: what was removed
//! from folders, and whole folders. Never touches what is not in a trash, and nothing that was removed a moment ago.

use std::collections::BTreeMap;

use base::observe::chain;
use rules::folder::{Folder, FolderState, ScopeOwner};
use rules::names::FolderId;
use rules::units::{Bytes, Timestamp};
use uuid::Uuid;

use super::off_thread;
use crate::actions::folders::note;
use crate::actions::storage::{MAX_COUNTED, count_again};
use crate::appliance::lazy_stores::{folder_error, folder_failure};
use crate::catalog::Lane;
use crate::jobs::folders::purge_one;
use crate::{Failure, Server};

/// How long what was removed stays in any case, in seconds. Longer: a full limit stays full. Shorter: who removed something by
/// mistake has no time to say so.
const KEPT_SECONDS: u64 = 300;
/// Things that give way in one look at one limit. Higher: a look takes long. Lower: a trash of small files makes room slowly.
const MAX_GIVEN: usize = 1000;
/// Who did it, in the journal.
const ACTOR: &str = "retention";

/// Something in a trash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct TrashItem {
    since: Timestamp,
    folder: FolderId,
    /// What was removed from the folder; None for the folder itself.
    item: Option<Uuid>,
}

/// Takes the oldest of the trash away until so many bytes are given back, or nothing old enough is left. Costs a look at each
/// trash, and a visit of each file that goes.
pub(super) async fn give_way(
    server: &Server,
    owner: ScopeOwner,
    bytes: Bytes,
) -> Result<(), Failure> {
    let folders = server
        .catalog()
        .read_now("look whose trash gives way", |view| {
            let all = match owner {
                ScopeOwner::Folder(id) => view.folder(id)?.into_iter().collect(),
                ScopeOwner::Owner(owner) => view.folders_of(owner)?,
            };
            let all = all.into_iter().map(|found| found.folder);
            let own = all.filter(|one| one.volume.is_none() && one.limited_by() == owner);
            Ok(own.collect::<Vec<Folder>>())
        })?;
    let now = server.clock().now();
    let mut left = bytes.0;
    let mut given: BTreeMap<FolderId, u64> = BTreeMap::new();
    for one in oldest(server, &folders, now).await? {
        if left == 0 {
            break;
        }
        let Some(item) = one.item else {
            let whole = folders.iter().find(|folder| folder.id == one.folder);
            let counted = whole.and_then(|folder| folder.counted);
            purge_one(server, one.folder, now).await?;
            left = left.saturating_sub(counted.map_or(0, |counted| counted.bytes));
            continue;
        };
        let store = server.folders()?;
        let freed = off_thread(move || {
            let size = store.removed_size(one.folder, item, MAX_COUNTED);
            let size = size.map_err(folder_error)?;
            store
                .purge_removed(one.folder, Some(&[item]), now)
                .map_err(folder_error)?;
            Ok(size)
        });
        match freed.await {
            Ok(freed) => {
                left = left.saturating_sub(freed);
                *given.entry(one.folder).or_default() += 1;
            }
            // It was restored meanwhile.
            Err(Failure::Refusal(_)) => {}
            Err(fault) => return Err(fault),
        }
    }
    for (id, count) in given {
        give_back(server, id, count).await?;
    }
    Ok(())
}

/// What lies in the trash of these folders for long enough, oldest first.
async fn oldest(
    server: &Server,
    folders: &[Folder],
    now: Timestamp,
) -> Result<Vec<TrashItem>, Failure> {
    let mut all: Vec<TrashItem> = folders
        .iter()
        .filter(|folder| folder.state == FolderState::Trashed)
        .filter_map(|folder| {
            Some(TrashItem {
                since: folder.trashed_at?,
                folder: folder.id,
                item: None,
            })
        })
        .collect();
    let ready = folders
        .iter()
        .filter(|folder| folder.state == FolderState::Ready);
    let ready: Vec<FolderId> = ready.map(|folder| folder.id).collect();
    let store = server.folders()?;
    let items = off_thread(move || {
        let mut items = Vec::new();
        for folder in ready {
            match store.oldest_removed(folder, MAX_GIVEN) {
                Ok(removed) => items.extend(removed.into_iter().map(|one| TrashItem {
                    since: one.removed_at,
                    folder,
                    item: Some(one.id),
                })),
                Err(error) => {
                    tracing::warn!(%folder, %error, "the trash of a folder gives no way");
                }
            }
        }
        Ok(items)
    });
    all.extend(items.await?);
    all.retain(|one| now.seconds_since(one.since) >= KEPT_SECONDS);
    all.sort_unstable();
    all.truncate(MAX_GIVEN);
    Ok(all)
}

/// Gives the room of what gave way in one folder back, and says so.
async fn give_back(server: &Server, id: FolderId, count: u64) -> Result<(), Failure> {
    let store = server.folders()?;
    off_thread(move || store.empty_removed(id).map_err(folder_failure)).await?;
    if let Err(failure) = count_again(server, id).await {
        tracing::warn!(folder = %id, error = %chain(&failure), "a folder is not counted again");
    }
    server
        .catalog()
        .write_of_server(Lane::Loops, "note that trash gave way", move |rows| {
            let Some(found) = rows.folder(id)? else {
                return Ok(());
            };
            let told = count.to_string();
            let code = "folder.trash-gave-way";
            note(rows, ACTOR, &found.folder, code, ("", &told))
        })
        .await
}
