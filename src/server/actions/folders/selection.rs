//! What is done with several files and directories of a folder at once: they are moved or copied into one directory, and what
//! was removed together comes back. All of them are looked at before the first is touched.

use std::cell::Cell;
use std::collections::BTreeSet;

use rules::folder::Folder;
use rules::folder_path::{FolderEntryKind, FolderPath, MAX_FOLDER_PATH};
use rules::folder_rights::FolderVerb;
use rules::refusals;
use rules::units::Timestamp;
use store::folders::FolderStore;
use store::folders::copies::CopyRoom;
use store::folders::failure::FolderError;
use uuid::Uuid;

use super::files::{Partly, change_files, each, folder_for, may_still, refuse_many};
use crate::access::Caller;
use crate::{Failure, Server};

/// Moves files, links and directories of a folder into one of its directories, each under its own name; never over another
/// one. What the disk refuses ends it: those before are moved.
///
/// Errors: as `files::move_entry`; `folder.paths`.
pub async fn move_into(
    server: &Server,
    caller: &Caller,
    which: &str,
    paths: Vec<String>,
    into: String,
) -> Result<(), Failure> {
    let how = |done: &Partly| done.some("move");
    let done = change_files(server, caller, which, how, move |store, folder| {
        let all = targets(store, folder, &paths, &into)?;
        Ok(each(&all, |(from, to)| {
            store.move_entry(folder.id, from, to)
        }))
    });
    done.await?.1.end()
}

/// Copies them instead, all together no more than one copy. It ends at most a second after the right to the folder does; the
/// copies before stay.
///
/// Errors: as `browsing::copy`; `folder.paths`.
pub async fn copy_into(
    server: &Server,
    caller: &Caller,
    which: &str,
    paths: Vec<String>,
    into: String,
) -> Result<(), Failure> {
    let volume = folder_for(server, caller, which, FolderVerb::Write)?.volume;
    let turns = server.folder_turns();
    let place = turns.enter_copy(caller.subject.user, volume).await?;
    let (asked_of, whose) = (server.clone(), caller.clone());
    let how = |done: &Partly| done.some("copy");
    let done = change_files(server, caller, which, how, move |store, folder| {
        let _place = place;
        let all = targets(store, folder, &paths, &into)?;
        for (from, _) in &all {
            // A pipe, a socket or a device.
            if store.entry(folder.id, from)?.kind == FolderEntryKind::Other {
                return Err(refusals::folder_entry_not_file(from.shown_name()).into());
            }
        }
        // A disk that stutters ends no copy; the next look tells.
        let may = || match may_still(&asked_of, &whose, folder.id, FolderVerb::Write) {
            Err(Failure::Refusal(refusal)) => Err(FolderError::from(refusal)),
            Err(Failure::Fault(_)) | Ok(()) => Ok(()),
        };
        // All of them together are no more than one copy.
        let room = Cell::new(CopyRoom::default());
        Ok(each(&all, |(from, to)| {
            let mut left = room.get();
            let done = store.copy_one_of(folder.id, (from, to), &may, &mut left);
            room.set(left);
            done
        }))
    });
    done.await?.1.end()
}

/// Puts back what one request removed, by the time that `files::remove` gave.
///
/// Errors: as `files::restore_removed`.
pub async fn undo_removal(
    server: &Server,
    caller: &Caller,
    which: &str,
    at: Timestamp,
) -> Result<(), Failure> {
    let how = |done: &Partly| done.some("restore");
    let done = change_files(server, caller, which, how, move |store, folder| {
        let all = store.removed(folder.id)?.into_iter();
        let items: Vec<Uuid> = all
            .filter(|one| one.removed_at == at)
            .map(|one| one.id)
            .collect();
        if items.is_empty() {
            return Err(refusals::folder_removed_not_found().into());
        }
        // The newest first: a directory comes back before what was removed from it.
        Ok(each(&items, |item| {
            store.restore_entry(folder.id, *item).map(|_| ())
        }))
    });
    done.await?.1.end()
}

/// Where each of several goes, with where it is. Each is there, and nothing has its new place.
fn targets(
    store: &FolderStore,
    folder: &Folder,
    paths: &[String],
    into: &str,
) -> Result<Vec<(FolderPath, FolderPath)>, FolderError> {
    refuse_many(paths.len(), "/paths")?;
    let into = FolderPath::parse(into).map_err(|refusal| refusal.at("/to"))?;
    if !into.is_top() && store.entry(folder.id, &into)?.kind != FolderEntryKind::Directory {
        return Err(refusals::folder_entry_not_found(into.shown_name()).into());
    }
    let mut taken = BTreeSet::new();
    let mut all = Vec::with_capacity(paths.len());
    for (number, text) in paths.iter().enumerate() {
        let field = format!("/paths/{number}");
        let from = FolderPath::parse(text).map_err(|refusal| refusal.at(field))?;
        store.entry(folder.id, &from)?;
        let to = into.child(from.name());
        let to = to.ok_or_else(|| refusals::folder_path_invalid(MAX_FOLDER_PATH))?;
        if into.is_at_or_below(&from) {
            return Err(refusals::folder_move_inside().into());
        }
        to.check_new()?;
        if !taken.insert(to.clone()) || store.entry(folder.id, &to).is_ok() {
            return Err(refusals::folder_entry_exists(to.shown_name()).into());
        }
        all.push((from, to));
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
