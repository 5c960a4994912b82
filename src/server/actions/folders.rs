//! What a user may do with folders: each makes and mounts their own, does with those of projects what their role there gives,
//! and with those of others what shares give; who may change all sessions of the owner may rename, trash and restore them,
//! too. `rules::folder_rights` is asked before each act. A directory is made before its row, so that each row has one.

use std::collections::BTreeSet;
use std::io;

use api::folders::{FolderPatchBody, FolderView, NewFolderBody};
use api::mounts::NewMountBody;
use rules::app_share::is_member;
use rules::break_glass::may_break_glass;
use rules::codes::{FOLDER_FILES_OWN, FOLDER_NOT_FOUND};
use rules::folder::{
    Folder, FolderKind, FolderMount, FolderName, FolderOwner, FolderState, HOME, MountAccess,
    RequestedMount, mount_plan,
};
use rules::folder_rights::{
    EffectiveRight, FolderRight, FolderShare, FolderVerb, check_right, effective_right, leads,
};
use rules::grants::GrantScope;
use rules::names::{FolderId, SessionName};
use rules::permissions::{Permission, Subject, reach};
use rules::refusal::Refusal;
use rules::refusals;
use rules::session::Session;
use rules::storage::{StorageEnforcement, StorageLevel, level};
use rules::tenancy::{ProjectId, TenantState};
use rules::units::Timestamp;
use rules::volume::MappedUser;
use store::folders::{FolderLimit, FolderStore, is_full};
use store::volumes::{VolumeShelf, refusal_of};

use super::storage::{enforcement, folder_limit, is_over};
use super::volumes::{chosen, limit_of_new, on_volume, still_admits};
use super::{IdempotencyKey, Once, allowed, once, own_key, somewhere};
use crate::access::Caller;
use crate::appliance::lazy_stores::folder_failure;
use crate::catalog::events::NewEvent;
use crate::catalog::folders::FolderRecord;
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::{Failure, Server, ServerFault};

pub mod adoption;
pub mod browsing;
pub mod copies;
pub mod files;
pub(in crate::actions) mod homes;
pub mod limits;
pub mod notebook;
pub mod selection;
pub mod sharing;
pub mod snapshots;
pub mod transfers;
mod turns;
pub mod uploads;

pub(crate) use turns::FolderTurns;

/// Folders of one owner, those in the trash included. Higher: a list is read by pages that show it whole. Lower: a user with
/// many data sets has to put them together.
const MAX_FOLDERS: usize = 200;
/// Sessions that a refusal names. Higher: its sentence fills the page. Lower: the others are found by trying again.
const MAX_NAMED: usize = 5;

/// The folders that the caller may see, those of their projects and those that are shared with them included, by owner and
/// name, those in the trash last.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<FolderView>, Failure> {
    somewhere(caller, Permission::SessionsRead)?;
    let own = reach(&caller.subject, Permission::SessionsRead);
    let (subject, now) = (caller.subject.clone(), server.clock().now());
    server
        .catalog()
        .read("list folders", move |view| {
            let shares = view.folder_shares_for(&subject)?;
            let mut all = view.folders(&own)?;
            let known: BTreeSet<FolderId> = all.iter().map(|one| one.folder.id).collect();
            let shared = shared_with(view, &subject, &shares, now)?.into_iter();
            all.extend(shared.filter(|one| !known.contains(&one.folder.id)));
            all.sort_by(|a, b| place_of(a).cmp(&place_of(b)));
            let shown = all.into_iter().map(|one| show(one, &subject, &shares, now));
            Ok(shown.collect())
        })
        .await
}

/// Where a folder stands in a list.
fn place_of(record: &FolderRecord) -> (&str, bool, &str, FolderId) {
    let folder = &record.folder;
    let (owner, name) = (record.owner_name.as_str(), folder.name.as_str());
    (owner, folder.trashed_at.is_some(), name, folder.id)
}

/// The folders of the caller's projects, and those of others that are shared with them, by owner and name, those in the trash
/// last.
pub async fn shared(server: &Server, caller: &Caller) -> Result<Vec<FolderView>, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let (subject, now) = (&caller.subject, server.clock().now());
    server.catalog().read_now("list shared folders", |view| {
        let shares = view.folder_shares_for(subject)?;
        let mut all = shared_with(view, subject, &shares, now)?;
        all.sort_by(|a, b| place_of(a).cmp(&place_of(b)));
        let shown = all.into_iter().map(|one| show(one, subject, &shares, now));
        Ok(shown.collect())
    })
}

/// The caller's own folders, by name, those in the trash last.
pub async fn own(server: &Server, caller: &Caller) -> Result<Vec<FolderView>, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let (subject, now) = (&caller.subject, server.clock().now());
    server.catalog().read_now("list own folders", |view| {
        let own = view.folders_of(subject.user)?.into_iter();
        Ok(own.map(|one| show(one, subject, &[], now)).collect())
    })
}

/// One of `list`: by id, one of the caller's own by name, or another one by name or as OWNER/NAME.
///
/// Errors: `folder.not-found`, `folder.ambiguous`.
pub async fn get(server: &Server, caller: &Caller, which: &str) -> Result<FolderView, Failure> {
    somewhere(caller, Permission::SessionsRead)?;
    let now = server.clock().now();
    server.catalog().read_now("show a folder", |view| {
        let found = find(view, caller, which, FolderState::Ready, now)?;
        let shares = shares_of(view, found.folder.id)?;
        Ok(show(found, &caller.subject, &shares, now))
    })
}

/// Makes a folder of the caller's own, or of a project that they lead.
///
/// Errors: `folder.project-unknown`, `folder.lead-needed`, `project.archived`, `folder.not-of-project`; `folder.name-invalid`,
/// `folder.home`, `folder.name-taken`, `folder.too-many`, `quota.exceeded`, `disk.full`;
/// `volume.not-found`, `volume.absent`, `volume.hung`, `volume.read-only`, `volume.busy`.
pub async fn create(
    server: &Server,
    caller: &Caller,
    asked: NewFolderBody,
    key: Option<IdempotencyKey>,
) -> Result<Once<FolderView>, Failure> {
    allowed(caller, Permission::SessionsWrite)?;
    let key = own_key(caller, key)?;
    let name = name_of(&asked.name)?;
    let mut folder = drafted(server, &caller.subject, name, FolderKind::General);
    let id = folder.id;
    let store = server.folders()?;
    server
        .catalog()
        .read_now("look where a folder is to be", |view| {
            let typed = asked.volume.as_deref();
            folder.owner = new_owner(view, &caller.subject, asked.project.as_deref())?;
            folder.volume = chosen(view, &caller.subject, typed, store.volumes())?;
            Ok(())
        })?;
    if let Some(members) = asked.members {
        match folder.owner {
            FolderOwner::Project(_) => folder.members = members,
            FolderOwner::User(_) => {
                return Err(refusals::folder_not_of_project().at("/members").into());
            }
        }
    }
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
                if let Some(volume) = folder.volume {
                    still_admits(rows, &caller.subject, volume)?;
                }
                let folder = Folder {
                    own_limit: limit_of_new(rows, folder.volume)?,
                    ..folder
                };
                insert(rows, &caller, &folder)?;
                again(rows, &caller, folder.id, rows.now)
            })
        })
        .await;
    if !made.as_ref().is_ok_and(|made| made.value.id == id) {
        forget_unused(server, Some(id));
    }
    made
}

/// Gives a folder another name, the members of its project another right, or says who makes own copies of it. Sessions that
/// mount it go on; those that did not start are held to the right.
///
/// Errors: `folder.not-found`, `folder.stale`, `folder.owner-only`, `folder.not-of-project`, `role.permission-missing`,
/// `folder.right-missing`; as `create`.
pub async fn change(
    server: &Server,
    caller: &Caller,
    which: &str,
    patch: FolderPatchBody,
    if_match: Option<u64>,
) -> Result<FolderView, Failure> {
    somewhere(caller, Permission::SessionsWrite)?;
    let name = patch.name.as_deref().map(name_of).transpose()?;
    let asking = caller.clone();
    edit(
        server,
        caller,
        which,
        FolderState::Ready,
        move |rows, folder| {
            if if_match.is_some_and(|seen| seen != folder.generation) {
                return Err(refusals::folder_stale(&folder.name, folder.generation).into());
            }
            let members = patch.members.filter(|members| *members != folder.members);
            if patch.members.is_some() || patch.cloneable.is_some() {
                let (subject, verb) = (&asking.subject, FolderVerb::Transfer);
                permitted(rows, subject, folder, verb, rows.now)?;
            }
            if let Some(members) = patch.members {
                if folder.owner.project().is_none() {
                    return Err(refusals::folder_not_of_project().at("/members").into());
                }
                folder.members = members;
            }
            let code = members.map(|_| "folder.members-set");
            let name = name.filter(|name| *name != folder.name);
            let cloneable = patch.cloneable.filter(|one| *one != folder.is_cloneable);
            let cloning = cloneable.map(|_| "folder.cloning-set");
            folder.is_cloneable = cloneable.unwrap_or(folder.is_cloneable);
            // Of several changes `edit` notes the last one.
            if let Some(cloning) = cloning.filter(|_| code.is_some() || name.is_some()) {
                let is = cloning_word(folder);
                note(rows, asking.name.as_str(), folder, cloning, ("", is))?;
            }
            let Some(name) = name else {
                return Ok(code.or(cloning));
            };
            if let (Some(code), Some(members)) = (code, members) {
                note(
                    rows,
                    asking.name.as_str(),
                    folder,
                    code,
                    ("", members.word()),
                )?;
            }
            if folder.kind == FolderKind::Home {
                return Err(refusals::folder_home().at("/name").into());
            }
            folder.name = name;
            if folder.state != FolderState::Trashed {
                refuse_unready(folder)?;
                refuse_taken(rows, folder)?;
            }
            Ok(Some("folder.renamed"))
        },
    )
    .await
}

/// Moves a folder into the trash; its files stay until it is purged.
///
/// Errors: `folder.not-found`, `folder.in-trash`, `folder.purging`, `folder.mounted`, `role.permission-missing`,
/// `folder.right-missing`.
pub async fn trash(server: &Server, caller: &Caller, which: &str) -> Result<FolderView, Failure> {
    somewhere(caller, Permission::SessionsWrite)?;
    let state = FolderState::Ready;
    edit(server, caller, which, state, move |rows, folder| {
        refuse_unready(folder)?;
        let sessions = sharing::sessions_with_right(rows, folder, rows.now)?;
        refuse_mounted(folder, &sessions)?;
        rows.forget_folder_transfer(folder.id)?;
        folder.state = FolderState::Trashed;
        folder.trashed_at = Some(rows.now);
        Ok(Some("folder.trashed"))
    })
    .await
}

/// Takes a folder out of the trash, with all its files.
///
/// Errors: `folder.not-found`, `folder.not-trashed`, `folder.purging`, `folder.name-taken`,
/// `role.permission-missing`, `folder.right-missing`.
pub async fn restore(server: &Server, caller: &Caller, which: &str) -> Result<FolderView, Failure> {
    somewhere(caller, Permission::SessionsWrite)?;
    let state = FolderState::Trashed;
    edit(server, caller, which, state, move |rows, folder| {
        match folder.state {
            FolderState::Trashed => {}
            FolderState::Ready | FolderState::Copying | FolderState::Transferring => {
                return Err(refusals::folder_not_trashed(&folder.name).into());
            }
            FolderState::Purging => return Err(refusals::folder_purging(&folder.name).into()),
        }
        refuse_taken(rows, folder)?;
        folder.state = FolderState::Ready;
        folder.trashed_at = None;
        Ok(Some("folder.restored"))
    })
    .await
}

/// Has a folder in the trash removed for good now, and not when its time there is over. `jobs::folders` removes it; it is gone for
/// the caller's lists once that is done.
///
/// Errors: `folder.not-found`, `folder.not-trashed`, `role.permission-missing`, `folder.right-missing`.
pub async fn purge(server: &Server, caller: &Caller, which: &str) -> Result<FolderView, Failure> {
    somewhere(caller, Permission::SessionsWrite)?;
    // Of several of that name: who asks once more, since no answer came, means the one that is on its way.
    let state = FolderState::Purging;
    let asked = edit(server, caller, which, state, move |_, folder| {
        match folder.state {
            FolderState::Trashed => {}
            // It is on its way already.
            FolderState::Purging => return Ok(None),
            FolderState::Ready | FolderState::Copying | FolderState::Transferring => {
                return Err(refusals::folder_not_trashed(&folder.name).into());
            }
        }
        folder.state = FolderState::Purging;
        Ok(Some("folder.purge-asked"))
    })
    .await?;
    server.ask_for_purge();
    Ok(asked)
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
            let before = find(rows, &caller, &which, prefer, rows.now)?.folder;
            permitted(rows, &caller.subject, &before, FolderVerb::Manage, rows.now)?;
            let mut after = before.clone();
            if let Some(code) = change(rows, &mut after)? {
                rows.put_folder(&after)?;
                if before.members != after.members {
                    sharing::settle(rows, caller.name.as_str(), &after)?;
                }
                let (was, is) = match code {
                    "folder.renamed" => (before.name.to_string(), after.name.to_string()),
                    "folder.members-set" => {
                        let [was, is] = [&before, &after].map(|one| one.members.word());
                        (was.to_owned(), is.to_owned())
                    }
                    "folder.cloning-set" => {
                        let [was, is] = [&before, &after].map(cloning_word);
                        (was.to_owned(), is.to_owned())
                    }
                    _ => {
                        let [was, is] = [&before, &after].map(|one| one.state.word());
                        (was.to_owned(), is.to_owned())
                    }
                };
                note(
                    rows,
                    caller.name.as_str(),
                    &after,
                    code,
                    (was.as_str(), is.as_str()),
                )?;
            }
            again(rows, &caller, before.id, rows.now)
        })
        .await
}

/// Who makes own copies of a folder, as events say it.
fn cloning_word(folder: &Folder) -> &'static str {
    match folder.is_cloneable {
        true => "readers",
        false => "owner",
    }
}

/// Refuses a launch that mounts a folder whose volume is gone or does not answer, as it was looked at last. Costs no look at
/// one.
///
/// Errors: `volume.absent`, `volume.hung`, each at its field.
pub(super) fn refuse_unmounted(
    volumes: &VolumeShelf,
    view: &ReadTransaction<'_>,
    mounts: &[FolderMount],
) -> Result<(), Failure> {
    for (number, mount) in mounts.iter().enumerate() {
        let found = view.folder(mount.folder)?;
        let Some(volume) = found.and_then(|found| found.folder.volume) else {
            continue;
        };
        if let Some(sight) = volumes.sight(volume) {
            let refused = sight.state.refuse_reading();
            refused.map_err(|refusal| refusal.at(format!("/mounts/{number}/folder")))?;
        }
    }
    Ok(())
}

/// The home folder of a launch that mounts `home`, or has it by itself, with its directory, where its owner has none yet. The
/// launch writes its row. None, too, where none can be made and the launch did not ask for it.
pub(super) async fn first_home(
    server: &Server,
    subject: &Subject,
    asked: &[RequestedMount],
    by_itself: bool,
) -> Result<Option<Folder>, Failure> {
    if !homes::are_needed(asked, by_itself) {
        return Ok(None);
    }
    let owner = subject.user;
    let known = server
        .catalog()
        .read_now("look for a home folder", |view| {
            view.kept_folder(owner, HOME)
        })?;
    if known.is_some() {
        return Ok(None);
    }
    let home = drafted(server, subject, FolderName::home(), FolderKind::Home);
    let is_asked = asked.iter().any(|mount| mount.folder.trim() == HOME);
    match make_directory(server, &home).await {
        Ok(()) => Ok(Some(home)),
        Err(failure) if is_asked => Err(failure),
        Err(failure) => {
            let error = base::observe::chain(&failure);
            tracing::warn!(user = %owner, %error, "no home folder could be made");
            discard(server, home.id);
            Ok(None)
        }
    }
}

/// Has a session that begins mount read-only what is over its limit, on a machine that holds no limit and on volumes. Costs a
/// visit of each folder of the owners.
pub(super) fn hold_back(
    view: &ReadTransaction<'_>,
    mounts: &mut [FolderMount],
    enforcement: StorageEnforcement,
    now: Timestamp,
) -> Result<(), Failure> {
    for mount in mounts {
        let found = view.folder(mount.folder)?;
        mount.over_limit = match found {
            Some(found) if !enforcement.is_enforced() || found.folder.volume.is_some() => {
                is_over(view, &found.folder, now)?
            }
            _ => false,
        };
    }
    Ok(())
}

/// How limits of a session are held; nothing is tried out for one that has none, as if all were held.
pub(super) async fn enforcement_for(
    server: &Server,
    is_limited: bool,
) -> Result<StorageEnforcement, Failure> {
    match is_limited {
        true => enforcement(server).await,
        false => Ok(StorageEnforcement::Native),
    }
}

/// What a launch of `subject` mounts; read-only where a share gives no more. `home`: the id that a home folder has once this
/// launch has made it.
///
/// Errors: `folder.unknown`, `folder.ambiguous`, `mount.target`, `mount.subpath`, each at its field; `mount.target-twice`,
/// `mount.target-nested`, `mount.too-many`, `mount.mapped-users`; `token.scope-missing`.
pub(super) fn resolve(
    view: &ReadTransaction<'_>,
    subject: &Subject,
    asked: &[RequestedMount],
    home: Option<FolderId>,
    now: Timestamp,
) -> Result<Vec<FolderMount>, Failure> {
    let mut mounts = Vec::with_capacity(asked.len());
    for (number, mount) in asked.iter().enumerate() {
        let typed = mount.folder.trim();
        let found = match typed.parse::<FolderId>() {
            Ok(id) => view.folder(id)?,
            Err(_) => {
                let found = named(view, subject, typed, FolderState::Ready, now);
                found.map_err(|failure| match failure {
                    Failure::Refusal(refusal) => at_mount(refusal, number).into(),
                    fault => fault,
                })?
            }
        };
        let ready = found
            .map(|found| found.folder)
            .filter(|folder| folder.state == FolderState::Ready);
        let held = match ready {
            Some(folder) => mountable(view, subject, &folder, now)?.map(|right| (folder, right)),
            None => None,
        };
        let home = home.filter(|_| typed == HOME);
        let made = match (held, home) {
            (Some((folder, right)), _) => {
                let mapped = mapped_user(view, &folder)?;
                mount.of(folder.id, &folder.name).map(|made| FolderMount {
                    read_only: made.read_only || right == FolderRight::Ro,
                    mapped,
                    ..made
                })
            }
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

/// The user of the volume that a folder lies on, where that has no id-mapped mounts.
fn mapped_user(view: &ReadTransaction<'_>, folder: &Folder) -> Result<Option<MappedUser>, Failure> {
    let Some(volume) = folder.volume else {
        return Ok(None);
    };
    let found = view.volume(volume)?;
    Ok(found.and_then(|found| found.volume.mapped))
}

/// What asks for a mount once more: by the name of the subject's own folder, else by id.
pub(super) fn asked_again(
    view: &ReadTransaction<'_>,
    subject: &Subject,
    mount: &FolderMount,
) -> Result<NewMountBody, Failure> {
    let asked = NewMountBody::from(mount);
    let own = view.kept_folder(subject.user, mount.name.as_str())?;
    if own.is_some_and(|own| own.folder.id == mount.folder) {
        return Ok(asked);
    }
    let found = view.folder(mount.folder)?.map(|found| found.folder);
    match found {
        // By name one of another user would be another folder of the subject's own.
        Some(folder)
            if folder.owner != subject.user.into() || folder.state == FolderState::Ready =>
        {
            Ok(NewMountBody {
                folder: folder.id.to_string(),
                ..asked
            })
        }
        // The launch says by its name that it is gone.
        _ => Ok(asked),
    }
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

/// Refuses to start a session again whose folders are not all ready, and its owner's or shared with them. Those that are
/// shared read-only by now it mounts read-only from now on, and those over their limit for this start. What it has by itself
/// it starts without where that is gone.
///
/// Errors: `folder.in-trash`, `folder.transferring`, `folder.not-found`.
pub(super) fn refuse_gone(
    rows: &Rows<'_>,
    session: &mut Session,
    enforcement: StorageEnforcement,
) -> Result<(), Failure> {
    homes::drop_gone(rows, session)?;
    for mount in session.mounts.iter_mut().filter(|mount| !mount.detached) {
        let found = rows.folder(mount.folder)?.map(|found| found.folder);
        let folder = found.ok_or_else(refusals::folder_not_found)?;
        let right = rows.right_to_files(session.owner, &folder, rows.now)?;
        let right = right.ok_or_else(refusals::folder_not_found)?;
        refuse_unready(&folder)?;
        mount.read_only |= right == FolderRight::Ro;
    }
    hold_back(rows, &mut session.mounts, enforcement, rows.now)
}

/// The right of a subject to the files of a folder; None where they have none, and where they do not see it.
///
/// Errors: `token.scope-missing`.
fn mountable(
    view: &ReadTransaction<'_>,
    subject: &Subject,
    folder: &Folder,
    now: Timestamp,
) -> Result<Option<FolderRight>, Failure> {
    // Who looks into it with a reason reads it for a while, and mounts it in no session, which would outlast that.
    let shares = shares_beside_owner(view, subject, folder)?;
    match check_right(subject, folder, &shares, FolderVerb::Read, now) {
        Ok(right) => Ok(right.files),
        Err(refusal) if [FOLDER_NOT_FOUND, FOLDER_FILES_OWN].contains(&refusal.code.as_str()) => {
            Ok(None)
        }
        Err(refusal) => Err(refusal.into()),
    }
}

/// Refuses a subject who may not do `verb` with a folder. Costs one range of an index.
///
/// Errors: those of `check_right`.
pub(super) fn permitted(
    view: &ReadTransaction<'_>,
    subject: &Subject,
    folder: &Folder,
    verb: FolderVerb,
    now: Timestamp,
) -> Result<EffectiveRight, Failure> {
    let shares = shares_beside_owner(view, subject, folder)?;
    let refusal = match check_right(subject, folder, &shares, verb, now) {
        Ok(right) => return Ok(right),
        Err(refusal) => refusal,
    };
    // An administrator who typed why reads, for a while.
    let may_look = verb == FolderVerb::Read
        && refusal.code == FOLDER_FILES_OWN
        && may_break_glass(subject, &folder.scope()).is_ok();
    let open = match may_look {
        true => view.open_break_glass(subject.user, folder.id.0)?,
        false => None,
    };
    if open.is_some_and(|open| now < open.ends_at) {
        let right = effective_right(subject, folder, &shares, now);
        let read = |right: EffectiveRight| EffectiveRight {
            files: Some(FolderRight::Ro),
            ..right
        };
        return right.map(read).ok_or_else(|| refusal.into());
    }
    Err(refusal.into())
}

/// What a folder is shared as, which is no matter to its owner.
fn shares_beside_owner(
    view: &ReadTransaction<'_>,
    subject: &Subject,
    folder: &Folder,
) -> Result<Vec<FolderShare>, Failure> {
    match folder.owner == subject.user.into() {
        true => Ok(Vec::new()),
        false => shares_of(view, folder.id),
    }
}

fn shares_of(view: &ReadTransaction<'_>, folder: FolderId) -> Result<Vec<FolderShare>, Failure> {
    let known = view.folder_shares(folder)?.into_iter();
    Ok(known.map(|record| record.share).collect())
}

/// The folders of others whose files a subject may read, those of their projects included, in no order. `shares`: those that
/// are for the subject. Costs one range of an index for each project, and one row by key for each share.
fn shared_with(
    view: &ReadTransaction<'_>,
    subject: &Subject,
    shares: &[FolderShare],
    now: Timestamp,
) -> Result<Vec<FolderRecord>, Failure> {
    let mut all = Vec::new();
    for project in projects_of(subject) {
        all.extend(view.folders_of(project)?);
    }
    let known: BTreeSet<FolderId> = all.iter().map(|one| one.folder.id).collect();
    let ids: BTreeSet<FolderId> = shares.iter().map(|share| share.folder).collect();
    for id in ids.difference(&known) {
        all.extend(view.folder(*id)?);
    }
    all.retain(|found| {
        let right = effective_right(subject, &found.folder, shares, now);
        // A copy is shown to others once it is whole.
        let is_whole = found.folder.state != FolderState::Copying;
        found.folder.owner != subject.user.into()
            && right.is_some_and(|right| right.files.is_some() && (is_whole || right.owns))
    });
    Ok(all)
}

/// The projects of which a subject is a member, each once.
fn projects_of(subject: &Subject) -> BTreeSet<ProjectId> {
    let projects = subject.grants.iter().filter_map(|grant| match grant.scope {
        GrantScope::Project(project) => Some(project),
        GrantScope::Site | GrantScope::Domain(_) => None,
    });
    projects
        .filter(|project| is_member(&subject.grants, *project))
        .collect()
}

/// Whose a new folder of a subject is: their own, or that of the project with this name.
///
/// Errors: `folder.project-unknown`, `folder.lead-needed`, `project.archived`, all at `/project`.
fn new_owner(
    view: &ReadTransaction<'_>,
    subject: &Subject,
    typed: Option<&str>,
) -> Result<FolderOwner, Failure> {
    let Some(name) = typed.map(str::trim).filter(|name| !name.is_empty()) else {
        return Ok(subject.user.into());
    };
    let project = known_project(view, subject, name)?;
    if !leads(&subject.grants, project) {
        return Err(refusals::folder_lead_needed(name).at("/project").into());
    }
    Ok(project.into())
}

/// The project of that name, for its members, where it is not archived.
///
/// Errors: `folder.project-unknown`, `project.archived`, both at `/project`.
fn known_project(
    view: &ReadTransaction<'_>,
    subject: &Subject,
    name: &str,
) -> Result<ProjectId, Failure> {
    let found = view.project_called(subject.domain, name)?;
    let found = found.filter(|project| is_member(&subject.grants, *project));
    let unknown = || refusals::folder_project_unknown().at("/project");
    let project = found.ok_or_else(unknown)?;
    let state = view.project(project)?.map(|project| project.state);
    match state == Some(TenantState::Active) {
        true => Ok(project),
        false => Err(refusals::project_archived(name).at("/project").into()),
    }
}

/// The projects that the caller leads and that folders may belong to, by name.
pub async fn led_projects(server: &Server, caller: &Caller) -> Result<Vec<String>, Failure> {
    allowed(caller, Permission::SessionsWrite)?;
    let subject = &caller.subject;
    server.catalog().read_now("list led projects", |view| {
        let mut names = Vec::new();
        for project in projects_of(subject) {
            let found = view.project(project)?;
            let found = found.filter(|one| one.state == TenantState::Active);
            let found = found.filter(|one| one.domain == subject.domain);
            if let Some(found) = found.filter(|_| leads(&subject.grants, project)) {
                names.push(found.name.to_string());
            }
        }
        names.sort();
        Ok(names)
    })
}

/// Refuses to work on a folder whose files are not there to be worked on.
///
/// Errors: `folder.copying`, `folder.transferring`, `folder.in-trash`, `folder.purging`.
fn refuse_unready(folder: &Folder) -> Result<(), Refusal> {
    match folder.state {
        FolderState::Ready => Ok(()),
        FolderState::Copying => Err(refusals::folder_copying(&folder.name)),
        FolderState::Transferring => Err(refusals::folder_transferring(&folder.name)),
        FolderState::Trashed => Err(refusals::folder_in_trash(&folder.name)),
        FolderState::Purging => Err(refusals::folder_purging(&folder.name)),
    }
}

/// Errors: `folder.mounted`, which names some of the sessions.
fn refuse_mounted(folder: &Folder, sessions: &[SessionName]) -> Result<(), Refusal> {
    if sessions.is_empty() {
        return Ok(());
    }
    let named = sessions.iter().take(MAX_NAMED).map(ToString::to_string);
    let mut named: Vec<String> = named.collect();
    if sessions.len() > MAX_NAMED {
        named.push("…".to_owned());
    }
    Err(refusals::folder_mounted(&folder.name, named.join(", ")))
}

/// The folder that is meant: by id where the caller may see it, else as `named` finds it.
///
/// Errors: `folder.not-found`, `folder.ambiguous`.
pub(super) fn find(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    which: &str,
    prefer: FolderState,
    now: Timestamp,
) -> Result<FolderRecord, Failure> {
    let found = match which.parse::<FolderId>() {
        Ok(id) => view.folder(id)?,
        Err(_) => named(view, &caller.subject, which, prefer, now)?,
    };
    let found = found.ok_or_else(refusals::folder_not_found)?;
    permitted(view, &caller.subject, &found.folder, FolderVerb::See, now)?;
    Ok(found)
}

/// The folder of that name: one of the subject's own, else one of a project or one that is shared with them, which OWNER/NAME
/// names exactly. Of several of one owner and name the one of state `prefer`, and of several of those the one that was trashed last.
///
/// Errors: `folder.ambiguous` where several owners have one of that name for the subject.
fn named(
    view: &ReadTransaction<'_>,
    subject: &Subject,
    which: &str,
    prefer: FolderState,
    now: Timestamp,
) -> Result<Option<FolderRecord>, Failure> {
    let is_meant = |one: &FolderRecord| {
        let name = one.folder.name.as_str();
        // No name of a folder has a slash.
        match which.split_once('/') {
            Some((owner, of_owner)) => owner == one.owner_name.as_str() && of_owner == name,
            None => which == name,
        }
    };
    let rank = |one: &FolderRecord| (one.folder.state == prefer, one.folder.trashed_at);
    let own = view.folders_of(subject.user)?.into_iter();
    if let Some(own) = own.filter(is_meant).max_by_key(rank) {
        return Ok(Some(own));
    }
    let shares = view.folder_shares_for(subject)?;
    let mut shared = shared_with(view, subject, &shares, now)?;
    shared.retain(is_meant);
    let owners: BTreeSet<FolderOwner> = shared.iter().map(|one| one.folder.owner).collect();
    match owners.len() {
        0 | 1 => Ok(shared.into_iter().max_by_key(rank)),
        _ => Err(refusals::folder_ambiguous(which).into()),
    }
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
        owner: subject.user.into(),
        domain: subject.domain,
        members: MountAccess::Ro,
        is_closed: false,
        is_cloneable: true,
        name,
        kind,
        state: FolderState::Ready,
        volume: None,
        created_at: now,
        used_at: None,
        trashed_at: None,
        counted: None,
        own_limit: None,
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
    let taken = || Err(refusals::folder_name_taken(&folder.name).at("/name").into());
    let other = view.kept_folder(folder.owner, folder.name.as_str())?;
    if other.is_some_and(|other| other.folder.id != folder.id) {
        return taken();
    }
    // One that is on its way to the owner has its name there from the moment that it was taken.
    for offer in view.folder_transfers_to(folder.owner)? {
        let coming = view.folder(offer.folder)?.map(|found| found.folder);
        let is_taken = coming.is_some_and(|coming| {
            coming.state == FolderState::Transferring
                && coming.id != folder.id
                && coming.name == folder.name
        });
        if is_taken {
            return taken();
        }
    }
    Ok(())
}

fn refuse_full(view: &ReadTransaction<'_>, owner: FolderOwner) -> Result<(), Failure> {
    match view.folders_of(owner)?.len() >= MAX_FOLDERS {
        true => Err(refusals::folder_too_many(MAX_FOLDERS).into()),
        false => Ok(()),
    }
}

async fn make_directory(server: &Server, folder: &Folder) -> Result<(), Failure> {
    if let Some(volume) = folder.volume {
        let (store, id) = (server.folders()?, folder.id);
        let mapped = server
            .catalog()
            .read_now("look for a volume", |view| mapped_user(view, folder))?;
        let permit = server.folder_turns().enter_volume(volume)?;
        let shelf = store.volumes().clone();
        let made = on_volume(&shelf, volume, move || {
            let _permit = permit;
            store.create_on(volume, id, mapped)
        });
        return made.await?.map_err(|error| match refusal_of(&error) {
            Some(refusal) => refusal.at("/volume").into(),
            None => folder_failure(error),
        });
    }
    let now = server.clock().now();
    let bytes = server
        .catalog()
        .read_now("look for the limit of folders", |view| {
            folder_limit(view, folder.owner, folder.domain, now)
        })?;
    let (server, id) = (server.clone(), folder.id);
    let limit = FolderLimit {
        owner: folder.owner.into(),
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
        .and_then(|folders| match folders.volume_of(id) {
            // No request waits for a volume.
            Some(_) => Ok(()),
            None => folders.remove_empty(id).map_err(folder_failure),
        });
    if let Err(failure) = removed {
        let error = base::observe::chain(&failure);
        tracing::warn!(%error, "an unused folder stays on the disk for a day");
    }
}

fn again(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    id: FolderId,
    now: Timestamp,
) -> Result<FolderView, Failure> {
    let found = view.folder(id)?.ok_or_else(refusals::folder_not_found)?;
    let shares = shares_of(view, id)?;
    Ok(show(found, &caller.subject, &shares, now))
}

/// `shares`: at least those of the folder that are for the subject.
fn show(
    row: FolderRecord,
    subject: &Subject,
    shares: &[FolderShare],
    now: Timestamp,
) -> FolderView {
    let right = effective_right(subject, &row.folder, shares, now);
    FolderView::new(row.folder, row.owner_name, row.volume_name, right)
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
