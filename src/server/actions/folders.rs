//! What a user may do with folders: each makes and mounts their own; who may change all sessions of the owner may rename,
//! trash and restore them, too. Files are the owner's alone. A directory is made before its row, so that each row has one.

use std::io;

use api::folders::{FolderPatchBody, FolderView, NewFolderBody};
use api::sessions::Owner;
use rules::folder::{
    Folder, FolderAccess, FolderKind, FolderMount, FolderName, FolderState, HOME, RequestedMount,
    access, check_access, mount_plan,
};
use rules::names::{FolderId, UserId};
use rules::permissions::{Permission, Subject, reach};
use rules::refusal::Refusal;
use rules::refusals;
use rules::session::Session;
use rules::storage::{StorageLevel, level};
use store::folders::{FolderLimit, FolderStore, is_full};

use super::storage::folder_limit;
use super::{IdempotencyKey, Once, allowed, once, own_key, somewhere};
use crate::access::Caller;
use crate::appliance::lazy_stores::folder_failure;
use crate::catalog::events::NewEvent;
use crate::catalog::folders::FolderRecord;
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::{Failure, Server, ServerFault};

pub mod files;
mod turns;
pub mod uploads;

pub(crate) use turns::FolderTurns;

/// Folders of one user, those in the trash included. Higher: a list is read by pages that show it whole. Lower: a user with
/// many data sets has to put them together.
const MAX_FOLDERS: usize = 200;
/// Sessions that a refusal names. Higher: its sentence fills the page. Lower: the others are found by trying again.
const MAX_NAMED: usize = 5;

/// The folders that the caller may see, by owner and name, those in the trash last.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<FolderView>, Failure> {
    somewhere(caller, Permission::SessionsRead)?;
    let own = reach(&caller.subject, Permission::SessionsRead);
    server
        .catalog()
        .read("list folders", move |view| {
            Ok(view.folders(&own)?.into_iter().map(show).collect())
        })
        .await
}

/// The caller's own folders, by name, those in the trash last.
pub async fn own(server: &Server, caller: &Caller) -> Result<Vec<FolderView>, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let user = caller.subject.user;
    server.catalog().read_now("list own folders", |view| {
        Ok(view.folders_of(user)?.into_iter().map(show).collect())
    })
}

/// One of `list`: by id, or one of the caller's own by name.
///
/// Errors: `folder.not-found`.
pub async fn get(server: &Server, caller: &Caller, which: &str) -> Result<FolderView, Failure> {
    somewhere(caller, Permission::SessionsRead)?;
    server.catalog().read_now("show a folder", |view| {
        find(view, caller, which, FolderState::Ready).map(show)
    })
}

/// Makes a folder of the caller's own.
///
/// Errors: `folder.name-invalid`, `folder.home`, `folder.name-taken`, `folder.too-many`, `quota.exceeded`, `disk.full`.
pub async fn create(
    server: &Server,
    caller: &Caller,
    asked: NewFolderBody,
    key: Option<IdempotencyKey>,
) -> Result<Once<FolderView>, Failure> {
    allowed(caller, Permission::SessionsWrite)?;
    let key = own_key(caller, key)?;
    let name = name_of(&asked.name)?;
    let folder = drafted(server, &caller.subject, name, FolderKind::General);
    let id = folder.id;
    // Each directory that is made in vain costs the disk five writes that are waited for.
    if key.is_none() {
        server.catalog().read_now("look for a folder", |view| {
            refuse_taken(view, &folder)?;
            refuse_full(view, folder.owner)
        })?;
    }
    make_directory(server, &folder).await?;
    let caller = caller.clone();
    let made = server
        .catalog()
        .write(Lane::Requests, "make a folder", move |rows| {
            once(rows, key.as_ref(), || {
                insert(rows, &caller, &folder)?;
                again(rows, folder.id)
            })
        })
        .await;
    if !made.as_ref().is_ok_and(|made| made.value.id == id) {
        forget_unused(server, Some(id));
    }
    made
}

/// Gives a folder another name. Sessions that mount it go on.
///
/// Errors: `folder.not-found`, `folder.stale`, `role.permission-missing`; as `create`.
pub async fn change(
    server: &Server,
    caller: &Caller,
    which: &str,
    patch: FolderPatchBody,
    if_match: Option<u64>,
) -> Result<FolderView, Failure> {
    somewhere(caller, Permission::SessionsWrite)?;
    let name = patch.name.as_deref().map(name_of).transpose()?;
    edit(
        server,
        caller,
        which,
        FolderState::Ready,
        move |rows, folder| {
            if if_match.is_some_and(|seen| seen != folder.generation) {
                return Err(refusals::folder_stale(&folder.name, folder.generation).into());
            }
            let Some(name) = name.filter(|name| *name != folder.name) else {
                return Ok(None);
            };
            if folder.kind == FolderKind::Home {
                return Err(refusals::folder_home().at("/name").into());
            }
            folder.name = name;
            if folder.state == FolderState::Ready {
                refuse_taken(rows, folder)?;
            }
            Ok(Some("folder.renamed"))
        },
    )
    .await
}

/// Moves a folder into the trash; its files stay until it is purged.
///
/// Errors: `folder.not-found`, `folder.in-trash`, `folder.purging`, `folder.mounted`, `role.permission-missing`.
pub async fn trash(server: &Server, caller: &Caller, which: &str) -> Result<FolderView, Failure> {
    somewhere(caller, Permission::SessionsWrite)?;
    let state = FolderState::Ready;
    edit(server, caller, which, state, move |rows, folder| {
        match folder.state {
            FolderState::Ready => {}
            FolderState::Trashed => return Err(refusals::folder_in_trash(&folder.name).into()),
            FolderState::Purging => return Err(refusals::folder_purging(&folder.name).into()),
        }
        let sessions = rows.sessions_that_mount(folder.id)?;
        if !sessions.is_empty() {
            let named = sessions.iter().take(MAX_NAMED).map(ToString::to_string);
            let mut named: Vec<String> = named.collect();
            if sessions.len() > MAX_NAMED {
                named.push("…".to_owned());
            }
            return Err(refusals::folder_mounted(&folder.name, named.join(", ")).into());
        }
        folder.state = FolderState::Trashed;
        folder.trashed_at = Some(rows.now);
        Ok(Some("folder.trashed"))
    })
    .await
}

/// Takes a folder out of the trash, with all its files.
///
/// Errors: `folder.not-found`, `folder.not-trashed`, `folder.purging`, `folder.name-taken`, `role.permission-missing`.
pub async fn restore(server: &Server, caller: &Caller, which: &str) -> Result<FolderView, Failure> {
    somewhere(caller, Permission::SessionsWrite)?;
    let state = FolderState::Trashed;
    edit(server, caller, which, state, move |rows, folder| {
        match folder.state {
            FolderState::Trashed => {}
            FolderState::Ready => return Err(refusals::folder_not_trashed(&folder.name).into()),
            FolderState::Purging => return Err(refusals::folder_purging(&folder.name).into()),
        }
        refuse_taken(rows, folder)?;
        folder.state = FolderState::Ready;
        folder.trashed_at = None;
        Ok(Some("folder.restored"))
    })
    .await
}

/// Takes a folder through `change`, which gives the code of what it did; None where it did nothing.
async fn edit(
    server: &Server,
    caller: &Caller,
    which: &str,
    prefer: FolderState,
    change: impl FnOnce(&Rows<'_>, &mut Folder) -> Result<Option<&'static str>, Failure>
    + Send
    + 'static,
) -> Result<FolderView, Failure> {
    let (caller, which) = (caller.clone(), which.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "change a folder", move |rows| {
            let before = find(rows, &caller, &which, prefer)?.folder;
            check_access(&caller.subject, &before, FolderAccess::Manage)?;
            let mut after = before.clone();
            if let Some(code) = change(rows, &mut after)? {
                rows.put_folder(&after)?;
                let (was, is) = match before.name == after.name {
                    true => (
                        before.state.word().to_owned(),
                        after.state.word().to_owned(),
                    ),
                    false => (before.name.to_string(), after.name.to_string()),
                };
                note(
                    rows,
                    caller.name.as_str(),
                    &after,
                    code,
                    (was.as_str(), is.as_str()),
                )?;
            }
            again(rows, before.id)
        })
        .await
}

/// The home folder of a launch that mounts `home`, with its directory, where its owner has none yet. The launch writes its
/// row.
pub(super) async fn first_home(
    server: &Server,
    subject: &Subject,
    asked: &[RequestedMount],
) -> Result<Option<Folder>, Failure> {
    if !asked.iter().any(|mount| mount.folder.trim() == HOME) {
        return Ok(None);
    }
    let owner = subject.user;
    let known = server
        .catalog()
        .read_now("look for a home folder", |view| {
            view.ready_folder(owner, HOME)
        })?;
    if known.is_some() {
        return Ok(None);
    }
    let home = drafted(server, subject, FolderName::home(), FolderKind::Home);
    make_directory(server, &home).await?;
    Ok(Some(home))
}

/// What a launch of `subject` mounts. `home`: the id that a home folder has once this launch has made it.
///
/// Errors: `folder.unknown`, `mount.target`, `mount.subpath`, each at its field; `mount.target-twice`,
/// `mount.target-nested`, `mount.too-many`; `token.scope-missing`.
pub(super) fn resolve(
    view: &ReadTransaction<'_>,
    subject: &Subject,
    asked: &[RequestedMount],
    home: Option<FolderId>,
) -> Result<Vec<FolderMount>, Failure> {
    let mut mounts = Vec::with_capacity(asked.len());
    for (number, mount) in asked.iter().enumerate() {
        let typed = mount.folder.trim();
        let found = match typed.parse::<FolderId>() {
            Ok(id) => view.folder(id)?,
            Err(_) => view.ready_folder(subject.user, typed)?,
        };
        let mine = found
            .map(|found| found.folder)
            .filter(|folder| folder.state == FolderState::Ready && folder.owner == subject.user);
        if let Some(folder) = &mine {
            // A token may lack a scope.
            check_access(subject, folder, FolderAccess::Own)?;
        }
        let home = home.filter(|_| typed == HOME);
        let made = match (mine, home) {
            (Some(folder), _) => mount.of(folder.id, &folder.name),
            (None, Some(home)) => mount.of(home, &FolderName::home()),
            (None, None) => {
                let shown: String = typed
                    .chars()
                    .take(80)
                    .flat_map(char::escape_debug)
                    .collect();
                Err(refusals::folder_unknown(shown))
            }
        };
        mounts.push(made.map_err(|refusal| at_mount(refusal, number))?);
    }
    Ok(mount_plan(mounts).map_err(|refusal| refusal.at("/mounts"))?)
}

fn at_mount(refusal: Refusal, number: usize) -> Refusal {
    let field = match refusal.code.as_str() {
        rules::codes::MOUNT_SUBPATH => "subpath",
        rules::codes::MOUNT_TARGET => "at",
        _ => "folder",
    };
    refusal.at(format!("/mounts/{number}/{field}"))
}

/// Writes what a launch with these mounts does to folders: makes the home folder that it is the first to mount, and keeps
/// when each was used.
pub(super) fn note_mounts(
    rows: &Rows<'_>,
    caller: &Caller,
    mounts: &[FolderMount],
    home: Option<&Folder>,
) -> Result<(), Failure> {
    if let Some(home) = home.filter(|home| mounts.iter().any(|mount| mount.folder == home.id)) {
        insert(rows, caller, home)?;
    }
    for mount in mounts {
        rows.note_folder_use(mount.folder)?;
    }
    Ok(())
}

/// Throws away the directory of a folder whose row was never written.
pub(super) fn forget_unused(server: &Server, made: Option<FolderId>) {
    let Some(id) = made else { return };
    match server
        .catalog()
        .read_now("look for a folder", |view| view.knows_folder(id))
    {
        Ok(false) => discard(server, id),
        Ok(true) => {}
        Err(failure) => {
            let error = base::observe::chain(&failure);
            tracing::warn!(%error, "an unused folder stays on the disk for a day");
        }
    }
}

/// Refuses to start a session again whose folders are not all ready, and its owner's.
///
/// Errors: `folder.in-trash`, `folder.not-found`.
pub(super) fn refuse_gone(rows: &Rows<'_>, session: &Session) -> Result<(), Failure> {
    for mount in &session.mounts {
        match rows.folder(mount.folder)?.map(|found| found.folder) {
            Some(folder) if folder.owner != session.owner => {
                return Err(refusals::folder_not_found().into());
            }
            Some(folder) if folder.state == FolderState::Ready => {}
            Some(folder) => return Err(refusals::folder_in_trash(&folder.name).into()),
            None => return Err(refusals::folder_not_found().into()),
        }
    }
    Ok(())
}

/// The folder that is meant: by id where the caller may see it, else of the caller's own by name. Of several of one name the
/// one of state `prefer`, and of several of those the one that was trashed last.
fn find(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    which: &str,
    prefer: FolderState,
) -> Result<FolderRecord, Failure> {
    let found = match which.parse::<FolderId>() {
        Ok(id) => view.folder(id)?,
        Err(_) => {
            let own = view.folders_of(caller.subject.user)?.into_iter();
            own.filter(|one| one.folder.name.as_str() == which)
                .max_by_key(|one| (one.folder.state == prefer, one.folder.trashed_at))
        }
    };
    let found = found.ok_or_else(refusals::folder_not_found)?;
    access(&caller.subject, &found.folder)?;
    Ok(found)
}

fn name_of(typed: &str) -> Result<FolderName, Refusal> {
    let name = FolderName::parse(typed)?;
    match name.as_str() == HOME {
        true => Err(refusals::folder_home().at("/name")),
        false => Ok(name),
    }
}

fn drafted(server: &Server, subject: &Subject, name: FolderName, kind: FolderKind) -> Folder {
    let now = server.clock().now();
    Folder {
        id: FolderId::make(now, base::observe::random()),
        owner: subject.user,
        domain: subject.domain,
        name,
        kind,
        state: FolderState::Ready,
        created_at: now,
        used_at: None,
        trashed_at: None,
        counted: None,
        generation: 1,
    }
}

/// Writes the row of a new folder, whose directory is there.
fn insert(rows: &Rows<'_>, caller: &Caller, folder: &Folder) -> Result<(), Failure> {
    refuse_taken(rows, folder)?;
    refuse_full(rows, folder.owner)?;
    rows.insert_folder(folder)?;
    let told = folder.kind.word();
    note(
        rows,
        caller.name.as_str(),
        folder,
        "folder.added",
        ("", told),
    )
}

fn refuse_taken(view: &ReadTransaction<'_>, folder: &Folder) -> Result<(), Failure> {
    let other = view.ready_folder(folder.owner, folder.name.as_str())?;
    match other.is_some_and(|other| other.folder.id != folder.id) {
        true => Err(refusals::folder_name_taken(&folder.name).at("/name").into()),
        false => Ok(()),
    }
}

fn refuse_full(view: &ReadTransaction<'_>, owner: UserId) -> Result<(), Failure> {
    match view.folders_of(owner)?.len() >= MAX_FOLDERS {
        true => Err(refusals::folder_too_many(MAX_FOLDERS).into()),
        false => Ok(()),
    }
}

async fn make_directory(server: &Server, folder: &Folder) -> Result<(), Failure> {
    let now = server.clock().now();
    let bytes = server
        .catalog()
        .read_now("look for the limit of folders", |view| {
            folder_limit(view, folder.owner, folder.domain, now)
        })?;
    let (server, id) = (server.clone(), folder.id);
    let limit = FolderLimit {
        owner: folder.owner,
        bytes,
    };
    let is_home = folder.kind == FolderKind::Home;
    let made = tokio::task::spawn_blocking(move || {
        let folders = server.folders()?;
        let made = folders.create(id, is_home, Some(limit));
        made.map_err(|error| refused(&folders, limit, error))
    });
    made.await
        .map_err(|error| ServerFault::new("make a folder", error))?
}

/// Why a folder could not be made: where its owner's others leave no room, that is no fault of the disk.
fn refused(folders: &FolderStore, limit: FolderLimit, error: io::Error) -> Failure {
    if is_full(&error) {
        let scope = folders.scope(limit.owner);
        if let Ok(Some(taken)) = folders.keeper().measure(&scope)
            && level(taken.used, taken.limit) == StorageLevel::Full
        {
            return refusals::quota_exceeded(taken.used, taken.limit).into();
        }
    }
    folder_failure(error)
}

/// Removes the directory of a folder without a row, in which nothing lies yet. What stays is found by the sweep.
fn discard(server: &Server, id: FolderId) {
    let removed = server
        .folders()
        .and_then(|folders| folders.remove_empty(id).map_err(folder_failure));
    if let Err(failure) = removed {
        let error = base::observe::chain(&failure);
        tracing::warn!(%error, "an unused folder stays on the disk for a day");
    }
}

fn again(view: &ReadTransaction<'_>, id: FolderId) -> Result<FolderView, Failure> {
    let found = view.folder(id)?;
    found
        .map(show)
        .ok_or_else(|| refusals::folder_not_found().into())
}

fn show(row: FolderRecord) -> FolderView {
    let owner = Owner {
        id: row.folder.owner,
        name: row.owner_name,
    };
    FolderView::new(row.folder, owner)
}

pub(crate) fn note(
    rows: &Rows<'_>,
    actor: &str,
    folder: &Folder,
    code: &str,
    (before, after): (&str, &str),
) -> Result<(), Failure> {
    rows.note(NewEvent {
        actor,
        topic: "system",
        object: folder.name.as_str(),
        scope: folder.scope(),
        code,
        before,
        after,
    })
}

#[cfg(test)]
mod tests;
