//! Removes what lay in the trash for long enough and uploads that no sender goes on with, counts what folders take of the
//! disk, and looks for directories without a row. A directory that holds files is never removed without its row: after a
//! restore of an older backup it is all that is left of a folder.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base::observe::chain;
use rules::folder::{FolderState, FolderUse, TRASH_DAYS};
use rules::names::FolderId;
use rules::units::Timestamp;
use rules::volume::VolumeState;
use store::folders::FolderStore;
use store::trees::Thrown;

use crate::actions::astray_folders;
use crate::actions::folders::note;
use crate::actions::storage::{MAX_COUNTED, tell_counted};
use crate::actions::volumes::on_volume;
use crate::appliance::lazy_stores::folder_failure;
use crate::catalog::Lane;
use crate::{Failure, Server, ServerFault};

/// Between two looks. Longer: what a page says of a folder's size is older. Shorter: large folders are read over and over.
const LOOK: Duration = Duration::from_secs(3600);
/// Before the first one, so that a server that is started often looks too, and one that just started serves first.
const FIRST_LOOK: Duration = Duration::from_secs(600);
/// How long a directory without a row may be that of a folder that is just being made.
const UNNAMED: Duration = Duration::from_secs(24 * 3600);
/// Who did it, in the journal.
const ACTOR: &str = "retention";

/// Looks, until it is dropped.
pub(crate) async fn keep(server: Server) {
    let mut mounted = BTreeSet::new();
    let mut wait = FIRST_LOOK;
    loop {
        let next = tokio::time::sleep(wait);
        tokio::pin!(next);
        loop {
            tokio::select! {
                () = &mut next => break,
                () = server.purge_asked() => {
                    if let Err(failure) = purge_now(&server).await {
                        tracing::error!(error = %chain(&failure), "folders that were to be purged wait for the next look");
                    }
                }
            }
        }
        if let Err(failure) = look(&server, &mut mounted).await {
            tracing::error!(error = %chain(&failure), "folders were not looked after");
        }
        wait = LOOK;
    }
}

/// Removes the folders whose owners wait for no date, and gives their room back. May take long; a look that is due waits for it.
async fn purge_now(server: &Server) -> Result<(), Failure> {
    purge(server).await?;
    let folders = server.folders()?;
    let store = Arc::clone(&folders);
    off_thread(move || store.empty(|| true).map_err(folder_failure)).await?;
    empty_volumes(&folders).await
}

/// One look. `mounted`: what was counted by the last one, since a session that is over by now may have written after it.
pub(crate) async fn look(server: &Server, mounted: &mut BTreeSet<FolderId>) -> Result<(), Failure> {
    purge(server).await?;
    sweep(server).await?;
    astray_folders::look(server).await?;
    count(server, mounted).await
}

/// Removes what was thrown away, and the empty directories of folders that were never made.
async fn sweep(server: &Server) -> Result<(), Failure> {
    let store = server.folders()?;
    let catalog = server.catalog().clone();
    let uploads_at = server.clock().now();
    let removed_since = trashed_before(uploads_at);
    let folders = Arc::clone(&store);
    let on_volumes = off_thread(move || {
        store.forget_listings();
        store.empty(|| true).map_err(folder_failure)?;
        let all = store.all().map_err(folder_failure)?;
        let now = SystemTime::now();
        let mut on_volumes = Vec::new();
        for (id, changed) in all {
            let is_old = now.duration_since(changed).is_ok_and(|age| age >= UNNAMED);
            let is_left =
                is_old && !catalog.read_now("look for a folder", |view| view.knows_folder(id))?;
            if let Some(volume) = store.volume_of(id) {
                on_volumes.push((volume, id, is_left));
                continue;
            }
            if store.is_near(id) || is_turn(id, uploads_at) {
                tidy(&store, id, removed_since, uploads_at);
            }
            if is_left {
                remove_left(&store, id);
            }
        }
        Ok(on_volumes)
    })
    .await?;
    empty_volumes(&folders).await?;
    let shelf = folders.volumes();
    for (volume, id, is_left) in on_volumes {
        let store = Arc::clone(&folders);
        if !store.is_near(id) {
            continue;
        }
        let swept = on_volume(shelf, volume, move || {
            tidy(&store, id, removed_since, uploads_at);
            if is_left {
                remove_left(&store, id);
            }
        });
        if let Err(failure) = swept.await {
            tracing::warn!(%volume, error = %chain(&failure), "folders of a volume wait for the next look");
        }
    }
    Ok(())
}

/// Removes what was thrown away on each volume that is ready.
async fn empty_volumes(folders: &Arc<FolderStore>) -> Result<(), Failure> {
    let shelf = folders.volumes();
    for volume in shelf.all().map_err(folder_failure)? {
        let state = shelf.sight(volume).map(|sight| sight.state);
        if state != Some(VolumeState::Ready) {
            continue;
        }
        let store = Arc::clone(folders);
        let emptied = on_volume(shelf, volume, move || store.empty_volume(volume));
        let emptied = emptied
            .await
            .and_then(|emptied| emptied.map_err(folder_failure));
        if let Err(failure) = emptied {
            tracing::warn!(%volume, error = %chain(&failure), "the trash of a volume cannot be emptied");
        }
    }
    Ok(())
}

fn remove_left(store: &FolderStore, id: FolderId) {
    if let Err(error) = store.remove_empty(id) {
        tracing::warn!(folder = %id, %error, "a directory stays that belongs to no folder");
    }
}

/// Whether it is the hour of a folder that has to be mounted to be looked into. Each has one of 23, so that it is another one
/// every day, and a machine that is off at night comes to all.
fn is_turn(id: FolderId, now: Timestamp) -> bool {
    let hours = u64::try_from(now.as_millis() / 3_600_000).unwrap_or(0);
    let [.., last] = id.0.into_bytes();
    (hours + u64::from(last)).is_multiple_of(23)
}

/// Removes what lay in the trash of one folder for long enough, and its uploads that no sender goes on with. What cannot be
/// removed keeps nothing of another folder's.
fn tidy(store: &FolderStore, id: FolderId, since: Timestamp, now: Timestamp) {
    if let Err(error) = store.expire_removed(id, since, now) {
        tracing::warn!(folder = %id, %error, "removed files stay in the trash of a folder");
    }
    if let Err(error) = store.empty_removed(id) {
        tracing::warn!(folder = %id, %error, "removed files stay on the disk");
    }
    if let Err(error) = store.expire_staged(id, now) {
        tracing::warn!(folder = %id, %error, "files that no sender goes on with stay on the disk");
    }
}

/// Removes the folders whose time in the trash is over: first nothing leads back, then the directory is taken away, then
/// the row. A loss of power between two of these is made good by the next look.
async fn purge(server: &Server) -> Result<(), Failure> {
    let since = trashed_before(server.clock().now());
    let gone = server
        .catalog()
        .read_now("look into the trash", |view| view.folders_to_purge(since))?;
    for found in gone {
        let id = found.folder.id;
        // One that cannot go keeps no other from going.
        if let Err(failure) = purge_one(server, id, since).await {
            tracing::error!(folder = %id, error = %chain(&failure), "a folder in the trash stays on the disk");
        }
    }
    Ok(())
}

/// What went to a trash by then has lain there for long enough.
fn trashed_before(now: Timestamp) -> Timestamp {
    let kept = i64::try_from(TRASH_DAYS * 86_400_000).unwrap_or(i64::MAX);
    Timestamp::from_millis(now.as_millis().saturating_sub(kept))
}

/// Removes one folder that lies in the trash since before `since`, or is being removed.
pub(super) async fn purge_one(
    server: &Server,
    id: FolderId,
    since: Timestamp,
) -> Result<(), Failure> {
    let began = server
        .catalog()
        .write_of_server(Lane::Loops, "begin to purge a folder", move |rows| {
            // It may have been restored meanwhile.
            let Some(mut folder) = rows.folder(id)?.map(|found| found.folder) else {
                return Ok(false);
            };
            let is_due = folder.trashed_at.is_some_and(|at| at <= since);
            match folder.state {
                FolderState::Ready | FolderState::Copying | FolderState::Transferring => {
                    return Ok(false);
                }
                FolderState::Purging => return Ok(true),
                FolderState::Trashed if !is_due => return Ok(false),
                FolderState::Trashed => {}
            }
            folder.state = FolderState::Purging;
            rows.put_folder(&folder)?;
            Ok(true)
        })
        .await?;
    if !began {
        return Ok(());
    }
    let store = server.folders()?;
    let folders = Arc::clone(&store);
    let thrown = beside(&folders, id, move || {
        store.throw(id).map_err(folder_failure)
    })
    .await?;
    if thrown == Thrown::Stays {
        // It is removed where it lies, which a loss of power may end: its row stays until the next look finds it gone.
        return Ok(());
    }
    server
        .catalog()
        .write_of_server(Lane::Loops, "forget a folder", move |rows| {
            let Some(found) = rows.folder(id)? else {
                return Ok(());
            };
            rows.forget_folder(id)?;
            rows.forget_storage()?;
            let was = found.folder.state.word();
            note(rows, ACTOR, &found.folder, "folder.purged", (was, ""))
        })
        .await
}

async fn count(server: &Server, mounted: &mut BTreeSet<FolderId>) -> Result<(), Failure> {
    let mut due = server
        .catalog()
        .read_now("look for folders to count", |view| view.folders_to_count())?;
    // Uploads that were called off are no change of files, and stand against the limit all the same.
    let written = server.folders()?.written();
    due.extend(&written);
    let before = std::mem::replace(mounted, due.clone());
    for id in due.union(&before).copied() {
        let store: Arc<FolderStore> = server.folders()?;
        let at = server.clock().now();
        let folders = Arc::clone(&store);
        let counted = beside(&folders, id, move || {
            if !store.has(id) {
                return Ok(None);
            }
            match store.measure(id, MAX_COUNTED) {
                Ok(size) => Ok(Some(size)),
                Err(error) => {
                    tracing::warn!(folder = %id, %error, "a folder cannot be counted");
                    Ok(None)
                }
            }
        });
        let counted = match counted.await {
            // What hangs is counted by a later look.
            Err(Failure::Refusal(_)) => continue,
            counted => counted?,
        };
        let Some(size) = counted else { continue };
        let counted = FolderUse {
            bytes: size.bytes,
            entries: size.entries,
            at,
        };
        server
            .catalog()
            .write_of_server(Lane::Loops, "keep the size of a folder", move |rows| {
                rows.note_folder_size(id, counted)
            })
            .await?;
        if !written.contains(&id) {
            continue;
        }
        // Else it would be counted by each look until more is written.
        let found = server
            .catalog()
            .read_now("look at a folder that was counted", |view| view.folder(id))?;
        if let Some(found) = found {
            tell_counted(server, &folders, &found.folder)?;
        }
    }
    Ok(())
}

/// Works on one folder: on a volume, on a thread that others do without where it hangs.
///
/// Errors: `volume.hung`; those of the work.
async fn beside<T: Send + 'static>(
    store: &FolderStore,
    id: FolderId,
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    match store.volume_of(id) {
        Some(volume) => on_volume(store.volumes(), volume, work).await?,
        None => off_thread(work).await,
    }
}

async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| ServerFault::new("look after folders", error))?
}

#[cfg(test)]
mod tests;
