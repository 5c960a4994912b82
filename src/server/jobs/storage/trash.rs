//! Lets the oldest of what lies in the trash give way where the folders that count on one limit come near it: what was removed
//! from folders, and whole folders. Never touches what is not in a trash, and nothing that was removed a moment ago.

use std::collections::BTreeMap;

use base::observe::chain;
use rules::folder::{Folder, FolderState, ScopeOwner};
use rules::names::FolderId;
use rules::storage::trash_to_go;
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

/// Takes the oldest of the trash away until what counts on the limit is near it no more, or nothing old enough is left. Costs a
/// look at each trash, and a visit of each file that goes; where the kernel holds no limit, one of each file that counts on it.
pub(super) async fn give_way(
    server: &Server,
    owner: ScopeOwner,
    limit: Bytes,
) -> Result<(), Failure> {
    let folders = counting(server, owner)?;
    let now = server.clock().now();
    let items = oldest(server, &folders, now).await?;
    if items.is_empty() {
        return Ok(());
    }
    let Some(used) = used(server, owner, &folders).await? else {
        return Ok(());
    };
    let mut left = trash_to_go(used, limit).0;
    let mut given: BTreeMap<FolderId, u64> = BTreeMap::new();
    let mut has_purged = false;
    for one in items {
        if left == 0 {
            break;
        }
        let store = server.folders()?;
        let Some(item) = one.item else {
            let size = off_thread(move || {
                store
                    .measure(one.folder, MAX_COUNTED)
                    .map_err(folder_failure)
            });
            let size = size.await?;
            // Not one that was restored and thrown away again meanwhile.
            purge_one(server, one.folder, one.since).await?;
            has_purged = true;
            left = left.saturating_sub(size.bytes);
            continue;
        };
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
    if has_purged {
        let store = server.folders()?;
        off_thread(move || store.empty_scope(owner).map_err(folder_failure)).await?;
    }
    for (id, count) in given {
        give_back(server, id, count).await?;
    }
    Ok(())
}

/// The folders that count on one limit.
fn counting(server: &Server, owner: ScopeOwner) -> Result<Vec<Folder>, Failure> {
    server
        .catalog()
        .read_now("look whose trash gives way", |view| {
            let all = match owner {
                ScopeOwner::Folder(id) => view.folder(id)?.into_iter().collect(),
                ScopeOwner::Owner(owner) => view.folders_of(owner)?,
            };
            let all = all.into_iter().map(|found| found.folder);
            let own = all.filter(|one| one.volume.is_none() && one.limited_by() == owner);
            Ok(own.collect::<Vec<Folder>>())
        })
}

/// What counts on one limit once the room of what went before is given back: it stands against the limit until then, and the
/// rows of folders whose files a session removed are up to an hour old. None where not all of it is given back yet.
async fn used(
    server: &Server,
    owner: ScopeOwner,
    folders: &[Folder],
) -> Result<Option<Bytes>, Failure> {
    let ids: Vec<FolderId> = ready(folders).collect();
    let (store, emptied) = (server.folders()?, ids.clone());
    let seen = off_thread(move || {
        store.empty_scope(owner).map_err(folder_failure)?;
        let mut is_emptied = true;
        for id in emptied {
            store.empty_removed(id).map_err(folder_failure)?;
            is_emptied &= store.is_emptied(id).map_err(folder_failure)?;
        }
        if !is_emptied {
            return Ok(None);
        }
        let scope = store.scope(owner);
        let is_held = store.keeper().enforcement().is_enforced() && scope.directory().is_dir();
        let taken = match is_held {
            true => store.keeper().measure(&scope).map_err(folder_failure)?,
            false => None,
        };
        Ok(Some((is_held, taken)))
    });
    match seen.await? {
        None => return Ok(None),
        Some((true, taken)) => return Ok(taken.map(|taken| taken.used)),
        Some((false, _)) => {}
    }
    for id in ids {
        count_again(server, id).await?;
    }
    let counted = counting(server, owner)?.into_iter();
    let counted = counted.filter_map(|one| one.counted);
    Ok(Some(Bytes(counted.map(|counted| counted.bytes).sum())))
}

/// Those in which users work.
fn ready(folders: &[Folder]) -> impl Iterator<Item = FolderId> {
    let ready = folders
        .iter()
        .filter(|folder| folder.state == FolderState::Ready);
    ready.map(|folder| folder.id)
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
    let ready: Vec<FolderId> = ready(folders).collect();
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
