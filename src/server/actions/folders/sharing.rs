//! Sharing a folder: who may share it gives its files to a user, who is asked first, or to the members of a project, until a
//! time or until it is taken back. A share that ends, ends transfers; sessions that run keep what they mount until they are
//! over, and do not start with it again.

use api::folders::{
    FolderDetachmentBody, FolderInvitationView, FolderOwnerView, FolderSessionView,
    FolderShareView, FolderView, NewFolderShareBody,
};
use api::sessions::Owner;
use rules::app_share::is_member;
use rules::folder::{Folder, FolderKind, FolderMount, FolderState, MountAccess};
use rules::folder_rights::{FolderRight, FolderShare, FolderVerb, ShareTarget, speaks_for};
use rules::names::{FolderId, FolderShareId, SessionName};
use rules::permissions::Permission;
use rules::reasons;
use rules::refusals;
use rules::session::{DesiredState, Session, SessionState};
use rules::units::Timestamp;

use super::{again, find, note, permitted, refuse_unready};
use crate::access::Caller;
use crate::actions::{IdempotencyKey, Once, once, own_key, somewhere};
use crate::catalog::events::NewEvent;
use crate::catalog::folder_shares::FolderShareRecord;
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::{Failure, Server};

/// Shares of one folder. Higher: an owner knows no more who reads it. Lower: a group of users needs a project.
const MAX_FOLDER_SHARES: usize = 200;
/// Shares with one user or one project, offered ones included. Higher: every list of folders reads them all. Lower: users of
/// many data sets cannot be given another one.
const MAX_SHARES_WITH: usize = 500;
/// Shares that one look ends. Higher: other writes wait behind it. Lower: many that end together take several looks.
const MAX_ENDED_AT_ONCE: usize = 100;
/// Sessions that one request takes a folder from. Higher: other writes wait behind it. Lower: a class takes several requests.
const MAX_DETACHED_AT_ONCE: usize = 100;
/// Who ends what no user ended, in the journal.
const ACTOR: &str = "retention";

/// The shares of a folder whose time is not over, oldest first; for those who manage it.
///
/// Errors: `folder.not-found`, `folder.ambiguous`, `folder.right-missing`, `role.permission-missing`.
pub async fn list(
    server: &Server,
    caller: &Caller,
    which: &str,
) -> Result<Vec<FolderShareView>, Failure> {
    somewhere(caller, Permission::SessionsWrite)?;
    let now = server.clock().now();
    server
        .catalog()
        .read_now("list shares of a folder", |view| {
            let folder = managed(view, caller, which, FolderVerb::Manage, now)?;
            let known = view.folder_shares(folder.id)?.into_iter();
            let holding = known.filter(|known| known.share.holds_at(now));
            Ok(holding.map(show_share).collect())
        })
}

/// The sessions that are not over and mount a folder, by owner and name; for those who manage it. O(live sessions).
///
/// Errors: as `list`.
pub async fn sessions(
    server: &Server,
    caller: &Caller,
    which: &str,
) -> Result<Vec<FolderSessionView>, Failure> {
    somewhere(caller, Permission::SessionsWrite)?;
    let now = server.clock().now();
    server
        .catalog()
        .read_now("list sessions of a folder", |view| {
            let folder = managed(view, caller, which, FolderVerb::Manage, now)?;
            let mut all = Vec::new();
            for session in view.live_sessions()?.iter() {
                let Some(access) = access_of(session, folder.id) else {
                    continue;
                };
                let right = right_of(view, session, &folder, now)?;
                let owner = view.user(session.owner)?.map(|owner| Owner {
                    id: owner.id,
                    name: owner.name,
                });
                let Some(owner) = owner else { continue };
                all.push(FolderSessionView {
                    name: session.name.clone(),
                    owner,
                    access,
                    allowed: is_enough(right, access),
                    stuck: of_folder(session, folder.id).any(|mount| !mount.stuck.is_empty()),
                });
            }
            all.sort_by(|a, b| (&a.owner.name, &a.name).cmp(&(&b.owner.name, &b.name)));
            Ok(all)
        })
}

/// Takes a folder out of sessions that mount it, all of them or none: those that run lose it within a look of their machine, and
/// no start of them mounts it again. What a program has open stays open to it. O(live sessions × those named).
///
/// Errors: as `list`; `folder.detach-owner`, `folder.sessions-many`, `folder.session-unknown`.
pub async fn detach(
    server: &Server,
    caller: &Caller,
    which: &str,
    asked: FolderDetachmentBody,
) -> Result<FolderView, Failure> {
    somewhere(caller, Permission::SessionsWrite)?;
    let (caller, which) = (caller.clone(), which.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "detach a folder", move |rows| {
            let folder = managed(rows, &caller, &which, FolderVerb::Manage, rows.now)?;
            let owns = permitted(
                rows,
                &caller.subject,
                &folder,
                FolderVerb::Transfer,
                rows.now,
            );
            if owns.is_err() {
                return Err(refusals::folder_detach_owner(&folder.name).into());
            }
            if asked.sessions.len() > MAX_DETACHED_AT_ONCE {
                let refusal = refusals::folder_sessions_many(MAX_DETACHED_AT_ONCE);
                return Err(refusal.at("/sessions").into());
            }
            let live = rows.live_sessions()?;
            let mut meant = Vec::new();
            for typed in &asked.sessions {
                let (owner, name) = match typed.trim().split_once('/') {
                    Some((owner, name)) => (owner, name),
                    None => (caller.name.as_str(), typed.trim()),
                };
                let mut found = None;
                for session in live.iter() {
                    if session.name.as_str() != name || access_of(session, folder.id).is_none() {
                        continue;
                    }
                    if rows
                        .user_name(session.owner)?
                        .is_some_and(|one| one.as_str() == owner)
                    {
                        found = Some(session.id);
                    }
                }
                let unknown = || {
                    let shown = typed.chars().take(80).flat_map(char::escape_debug);
                    refusals::folder_session_unknown(shown.collect::<String>()).at("/sessions")
                };
                meant.push(found.ok_or_else(unknown)?);
            }
            let actor = caller.name.as_str();
            for id in meant {
                let code = Some("session.folder-detached");
                rows.change_session(id, None, actor, code, |session| {
                    let of_it = session.mounts.iter_mut();
                    for mount in of_it.filter(|mount| mount.folder == folder.id) {
                        mount.detached = true;
                    }
                    true
                })?;
            }
            again(rows, &caller, folder.id, rows.now)
        })
        .await
}

/// The names of sessions that are not over and mount the folder, in order. O(live sessions).
pub(super) fn sessions_of(
    view: &ReadTransaction<'_>,
    folder: FolderId,
) -> Result<Vec<SessionName>, Failure> {
    let live = view.live_sessions()?;
    let mounting = live.iter().filter(|one| access_of(one, folder).is_some());
    let mut names: Vec<SessionName> = mounting.map(|one| one.name.clone()).collect();
    names.sort();
    Ok(names)
}

/// The names of sessions that are not over and mount the folder by a right that holds, in order. One whose right ended keeps no
/// owner from their folder. O(live sessions).
pub(super) fn sessions_with_right(
    view: &ReadTransaction<'_>,
    folder: &Folder,
    now: Timestamp,
) -> Result<Vec<SessionName>, Failure> {
    let mut names = Vec::new();
    for session in view.live_sessions()?.iter() {
        if access_of(session, folder.id).is_some()
            && right_of(view, session, folder, now)?.is_some()
        {
            names.push(session.name.clone());
        }
    }
    names.sort();
    Ok(names)
}

/// Shares a folder; a share with the same user or project gets the new right and end, and stays accepted.
///
/// Errors: as `list`; `folder.home-shared`, `folder.in-trash`, `folder.share-target`, `folder.share-unknown`, `folder.share-end`,
/// `folder.shares-many`.
pub async fn create(
    server: &Server,
    caller: &Caller,
    which: &str,
    asked: NewFolderShareBody,
    key: Option<IdempotencyKey>,
) -> Result<Once<FolderShareView>, Failure> {
    somewhere(caller, Permission::SessionsWrite)?;
    let key = own_key(caller, key)?;
    let (caller, which) = (caller.clone(), which.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "share a folder", move |rows| {
            once(rows, key.as_ref(), || {
                let folder = managed(rows, &caller, &which, FolderVerb::Share, rows.now)?;
                if folder.kind == FolderKind::Home {
                    return Err(refusals::folder_home_shared().into());
                }
                refuse_unready(&folder)?;
                let ends_at = asked.until;
                if ends_at.is_some_and(|end| end <= rows.now) {
                    return Err(refusals::folder_share_end().at("/until").into());
                }
                let asked = NewFolderShareBody {
                    until: bounded_end(rows, &caller, &folder, ends_at)?,
                    ..asked.clone()
                };
                let with = target(rows, &caller, &folder, &asked)?;
                let made = put(rows, &caller, &folder, with, &asked)?;
                settle(rows, caller.name.as_str(), &folder)?;
                Ok(made)
            })
        })
        .await
}

/// When a share ends that the caller makes: who has the folder by a share gives it for no longer than they have it.
fn bounded_end(
    rows: &Rows<'_>,
    caller: &Caller,
    folder: &Folder,
    asked: Option<Timestamp>,
) -> Result<Option<Timestamp>, Failure> {
    if speaks_for(&caller.subject, folder.owner) {
        return Ok(asked);
    }
    let mut last = rows.now;
    for known in rows.folder_shares(folder.id)? {
        let share = known.share;
        let gives = share.right == FolderRight::Rwd && share.accepted_at.is_some();
        if !gives || !share.holds_at(rows.now) || !share.is_for(&caller.subject) {
            continue;
        }
        match share.ends_at {
            Some(end) => last = last.max(end),
            None => return Ok(asked),
        }
    }
    Ok(Some(asked.map_or(last, |asked| asked.min(last))))
}

/// Whom a new share is with.
fn target(
    rows: &Rows<'_>,
    caller: &Caller,
    folder: &Folder,
    asked: &NewFolderShareBody,
) -> Result<ShareTarget, Failure> {
    let typed = |text: &Option<String>| {
        let text = text.as_deref().map(str::trim);
        text.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    match (typed(&asked.user), typed(&asked.project)) {
        (Some(name), None) => {
            let user = rows.user_named(&name)?.filter(|user| {
                user.domain == folder.domain
                    && !user.suspended
                    && folder.owner != user.id.into()
                    && user.id != caller.subject.user
            });
            let unknown = || refusals::folder_share_unknown().at("/user");
            Ok(ShareTarget::User(user.ok_or_else(unknown)?.id))
        }
        (None, Some(name)) => {
            let project = rows
                .project_called(folder.domain, &name)?
                .filter(|project| is_member(&caller.subject.grants, *project))
                .filter(|project| folder.owner != (*project).into());
            let unknown = || refusals::folder_share_unknown().at("/project");
            Ok(ShareTarget::Project(project.ok_or_else(unknown)?))
        }
        (None, None) | (Some(_), Some(_)) => {
            Err(refusals::folder_share_target().at("/user").into())
        }
    }
}

/// Writes a share, in the place of the one with the same user or project.
fn put(
    rows: &Rows<'_>,
    caller: &Caller,
    folder: &Folder,
    with: ShareTarget,
    asked: &NewFolderShareBody,
) -> Result<FolderShareView, Failure> {
    let known = rows.folder_shares(folder.id)?;
    for ended in known.iter().filter(|known| !known.share.holds_at(rows.now)) {
        rows.forget_folder_share(ended.share.id)?;
        let told = told(ended);
        note(rows, ACTOR, folder, "folder.share-ended", (&told, ""))?;
    }
    let known: Vec<&FolderShare> = known.iter().map(|known| &known.share).collect();
    let holding = known.iter().filter(|share| share.holds_at(rows.now));
    let of_folder = holding.count();
    let before = known
        .iter()
        .copied()
        .find(|share| share.holds_at(rows.now) && share.with == with);
    let others = match with {
        ShareTarget::User(user) => rows.folder_shares_with(user)?,
        ShareTarget::Project(project) => rows.folder_shares_with_project(project)?,
    };
    let holding = others.iter().filter(|other| other.share.holds_at(rows.now));
    let of_target = holding.count();
    let is_full = of_folder >= MAX_FOLDER_SHARES || of_target >= MAX_SHARES_WITH;
    if before.is_none() && is_full {
        return Err(refusals::folder_shares_many().into());
    }
    let is_at_once = matches!(with, ShareTarget::Project(_));
    let share = FolderShare {
        id: before.map_or_else(
            || FolderShareId::make(rows.now, base::observe::random()),
            |before| before.id,
        ),
        folder: folder.id,
        with,
        right: asked.right.unwrap_or(FolderRight::Ro),
        accepted_at: match before {
            Some(before) => before.accepted_at,
            None => is_at_once.then_some(rows.now),
        },
        created_at: before.map_or(rows.now, |before| before.created_at),
        ends_at: asked.until,
    };
    rows.put_folder_share(&share, caller.name.as_str())?;
    let made = rows.folder_share(share.id)?;
    let made = made.ok_or_else(refusals::folder_share_not_found)?;
    let was = before.map_or("", |before| before.right.word());
    note(
        rows,
        caller.name.as_str(),
        folder,
        "folder.shared",
        (was, &told(&made)),
    )?;
    Ok(show_share(made))
}

/// Takes a share back: transfers end within two seconds, sessions that have not started do not start.
///
/// Errors: as `list`; `folder.share-id-invalid`, `folder.share-not-found`.
pub async fn remove(
    server: &Server,
    caller: &Caller,
    which: &str,
    share: &str,
) -> Result<(), Failure> {
    somewhere(caller, Permission::SessionsWrite)?;
    let (caller, which, share) = (caller.clone(), which.to_owned(), share.to_owned());
    server
        .catalog()
        .write(
            Lane::Requests,
            "take a share of a folder back",
            move |rows| {
                let folder = managed(rows, &caller, &which, FolderVerb::Manage, rows.now)?;
                let known = rows.folder_share(share.parse::<FolderShareId>()?)?;
                let known = known.filter(|known| known.share.folder == folder.id);
                let known = known.ok_or_else(refusals::folder_share_not_found)?;
                end(
                    rows,
                    caller.name.as_str(),
                    &folder,
                    &known,
                    "folder.unshared",
                )
            },
        )
        .await
}

/// The folders that are offered to the caller, oldest first.
pub async fn invitations(
    server: &Server,
    caller: &Caller,
) -> Result<Vec<FolderInvitationView>, Failure> {
    somewhere(caller, Permission::SessionsRead)?;
    let now = server.clock().now();
    server
        .catalog()
        .read_now("list offered folders", |view| offers(view, caller, now))
}

/// How many folders are offered to the caller; 0 for callers who may not know.
pub fn count_offers(server: &Server, caller: &Caller) -> u64 {
    if somewhere(caller, Permission::SessionsRead).is_err() {
        return 0;
    }
    if !server.occasions().shared_folders {
        return 0;
    }
    let now = server.clock().now();
    let counted = server
        .catalog()
        .read_now("count offered folders", |view| offers(view, caller, now));
    // A count is no reason to refuse a page; the fault shows where it matters.
    counted.map_or(0, |all| all.len() as u64)
}

/// The folders that are offered to the caller and not answered, oldest first. Costs their shares, at most 500.
pub(crate) fn offers(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    now: Timestamp,
) -> Result<Vec<FolderInvitationView>, Failure> {
    let mut all = Vec::new();
    for known in view.folder_shares_with(caller.subject.user)? {
        if known.share.accepted_at.is_some() {
            continue;
        }
        if let Some((folder, owner)) = offered(view, caller, &known, now)? {
            all.push(FolderInvitationView {
                id: known.share.id,
                name: folder.name,
                owner,
                right: known.share.right,
                created_at: known.share.created_at,
                created_by: known.created_by,
                ends_at: known.share.ends_at,
            });
        }
    }
    Ok(all)
}

/// The folder of an offer to the caller, and its owner; None where the offer holds no more.
fn offered(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    known: &FolderShareRecord,
    now: Timestamp,
) -> Result<Option<(Folder, FolderOwnerView)>, Failure> {
    let found = view.folder(known.share.folder)?;
    Ok(found
        .filter(|found| {
            known.share.with == ShareTarget::User(caller.subject.user)
                && known.share.holds_at(now)
                && found.folder.state == FolderState::Ready
                && found.folder.domain == caller.subject.domain
        })
        .map(|found| {
            let owner = FolderOwnerView::new(found.folder.owner, found.owner_name);
            (found.folder, owner)
        }))
}

/// Takes an offered folder. Does nothing where it was taken before.
///
/// Errors: `folder.share-id-invalid`, `folder.invitation-not-found`.
pub async fn accept(server: &Server, caller: &Caller, id: &str) -> Result<FolderView, Failure> {
    somewhere(caller, Permission::SessionsWrite)?;
    let id = id.parse::<FolderShareId>()?;
    let caller = caller.clone();
    server
        .catalog()
        .write(Lane::Requests, "take an offered folder", move |rows| {
            let missing = || Failure::from(refusals::folder_invitation_not_found());
            let known = rows.folder_share(id)?.ok_or_else(missing)?;
            let (folder, _) = offered(rows, &caller, &known, rows.now)?.ok_or_else(missing)?;
            if known.share.accepted_at.is_none() {
                let share = FolderShare {
                    accepted_at: Some(rows.now),
                    ..known.share.clone()
                };
                rows.put_folder_share(&share, &known.created_by)?;
                let (code, told) = ("folder.share-accepted", told(&known));
                note(rows, caller.name.as_str(), &folder, code, ("", &told))?;
            }
            again(rows, &caller, folder.id, rows.now)
        })
        .await
}

/// Refuses an offered folder, and forgets the offer.
///
/// Errors: as `accept`, also for an offer that was taken: that one is left.
pub async fn decline(server: &Server, caller: &Caller, id: &str) -> Result<(), Failure> {
    somewhere(caller, Permission::SessionsWrite)?;
    let id = id.parse::<FolderShareId>()?;
    let caller = caller.clone();
    server
        .catalog()
        .write(Lane::Requests, "refuse an offered folder", move |rows| {
            let missing = || Failure::from(refusals::folder_invitation_not_found());
            let known = rows.folder_share(id)?.ok_or_else(missing)?;
            let (folder, _) = offered(rows, &caller, &known, rows.now)?.ok_or_else(missing)?;
            match known.share.accepted_at {
                Some(_) => Err(missing()),
                None => end(
                    rows,
                    caller.name.as_str(),
                    &folder,
                    &known,
                    "folder.share-declined",
                ),
            }
        })
        .await
}

/// Gives a folder back that is shared with the caller alone.
///
/// Errors: `folder.not-found`, `folder.ambiguous`, `folder.not-left` for one of their own and one that a project is given.
pub async fn leave(server: &Server, caller: &Caller, which: &str) -> Result<(), Failure> {
    somewhere(caller, Permission::SessionsWrite)?;
    let (caller, which) = (caller.clone(), which.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "leave a shared folder", move |rows| {
            let folder = find(rows, &caller, &which, FolderState::Ready, rows.now)?.folder;
            let user = ShareTarget::User(caller.subject.user);
            let known = rows.folder_shares(folder.id)?.into_iter();
            let mut known =
                known.filter(|known| known.share.with == user && known.share.accepted_at.is_some());
            let known = known.next();
            let known = known.ok_or_else(|| refusals::folder_not_left(&folder.name))?;
            end(rows, caller.name.as_str(), &folder, &known, "folder.left")
        })
        .await
}

/// Forgets a share, and what it gave.
fn end(
    rows: &Rows<'_>,
    actor: &str,
    folder: &Folder,
    known: &FolderShareRecord,
    code: &str,
) -> Result<(), Failure> {
    rows.forget_folder_share(known.share.id)?;
    let told = told(known);
    note(rows, actor, folder, code, (&told, ""))?;
    settle(rows, actor, folder)
}

/// Holds sessions that are not over to what their owners may do with a folder now: one that has not started ends, or mounts
/// it read-only; of one that runs its owner is told that it does not start again with the folder. O(live sessions).
pub(super) fn settle(rows: &Rows<'_>, actor: &str, folder: &Folder) -> Result<(), Failure> {
    for session in rows.live_sessions()?.iter() {
        let Some(access) = access_of(session, folder.id) else {
            continue;
        };
        let right = right_of(rows, session, folder, rows.now)?;
        if is_enough(right, access) {
            continue;
        }
        if hold(rows, actor, session, folder, right)? {
            continue;
        }
        rows.note(NewEvent {
            actor,
            topic: "sessions",
            object: &session.id.to_string(),
            scope: session.scope(),
            code: rules::codes::SESSION_FOLDER_RIGHT_ENDED,
            before: "",
            after: folder.name.as_str(),
        })?;
    }
    Ok(())
}

/// Ends a session that has not started, or has it mount a folder read-only; one that stops to start again, from then on. False
/// for one that runs: it is as it was, and `Rows::hold_restart` holds it once it is to start again.
fn hold(
    rows: &Rows<'_>,
    actor: &str,
    session: &Session,
    folder: &Folder,
    right: Option<FolderRight>,
) -> Result<bool, Failure> {
    let now = rows.now;
    let is_under_way = match session.state() {
        SessionState::Pending => false,
        SessionState::Stopping if session.restart => false,
        SessionState::Scheduled | SessionState::Preparing => true,
        SessionState::Running | SessionState::Stopping | SessionState::Ended => return Ok(false),
    };
    rows.change_session(session.id, None, actor, None, |session| {
        let because = reasons::session_folder_right_ended(&folder.name);
        if right.is_none() {
            let was_to_start_again = std::mem::replace(&mut session.restart, false);
            return session.stop(DesiredState::Stop, because, now) || was_to_start_again;
        }
        let of_it = session.mounts.iter_mut();
        for mount in of_it.filter(|mount| mount.folder == folder.id) {
            mount.read_only = true;
        }
        // Its node may have begun to mount it as it was.
        if is_under_way {
            session.stop(DesiredState::Stop, because, now);
            session.restart = true;
        }
        true
    })?;
    Ok(true)
}

/// Forgets shares whose time is over, and ends what they gave as if they had been taken back. Costs a look into an index.
pub(crate) async fn end_due(server: &Server) -> Result<(), Failure> {
    let now = server.clock().now();
    let due = server
        .catalog()
        .read_now("look for shares that ended", |view| {
            view.ended_folder_shares(now, MAX_ENDED_AT_ONCE)
        })?;
    if due.is_empty() {
        return Ok(());
    }
    server
        .catalog()
        .write_of_server(Lane::Loops, "end shares of folders", move |rows| {
            for known in due {
                let still = rows.folder_share(known.share.id)?;
                // It may have been given more time meanwhile.
                let still = still.filter(|still| !still.share.holds_at(rows.now));
                let (Some(known), Some(found)) = (still, rows.folder(known.share.folder)?) else {
                    continue;
                };
                end(rows, ACTOR, &found.folder, &known, "folder.share-ended")?;
            }
            Ok(())
        })
        .await
}

/// Holds sessions that have not started to the rights of now: shares end by time, and members leave projects. Costs a row by
/// key for each mount of a session that waits; writes where there is something to change.
pub(crate) async fn hold_waiting(server: &Server) -> Result<(), Failure> {
    let now = server.clock().now();
    let due = server
        .catalog()
        .read("look for folders of waiting sessions", move |view| {
            let mut due = Vec::new();
            for session in view.live_sessions()?.iter() {
                if has_started(session) {
                    continue;
                }
                for mount in session.mounts.iter().filter(|mount| !mount.detached) {
                    let Some(found) = view.folder(mount.folder)? else {
                        continue;
                    };
                    let access = MountAccess::of(mount.read_only);
                    let right = right_of(view, session, &found.folder, now)?;
                    if !is_enough(right, access) {
                        due.push(found.folder.id);
                    }
                }
            }
            Ok(due)
        })
        .await?;
    if due.is_empty() {
        return Ok(());
    }
    server
        .catalog()
        .write_of_server(Lane::Loops, "hold sessions to shares", move |rows| {
            for folder in due {
                let Some(found) = rows.folder(folder)? else {
                    continue;
                };
                for session in rows.live_sessions()?.iter() {
                    let Some(access) = access_of(session, folder) else {
                        continue;
                    };
                    let right = right_of(rows, session, &found.folder, rows.now)?;
                    if !is_enough(right, access) {
                        hold(rows, ACTOR, session, &found.folder, right)?;
                    }
                }
            }
            Ok(())
        })
        .await
}

fn has_started(session: &Session) -> bool {
    match session.state() {
        SessionState::Pending | SessionState::Scheduled | SessionState::Preparing => false,
        // One that stops to start again waits for that.
        SessionState::Stopping => !session.restart,
        SessionState::Running | SessionState::Ended => true,
    }
}

/// The right of a session's owner to the files of a folder.
fn right_of(
    view: &ReadTransaction<'_>,
    session: &Session,
    folder: &Folder,
    now: Timestamp,
) -> Result<Option<FolderRight>, Failure> {
    view.right_to_files(session.owner, folder, now)
}

/// How a session mounts a folder; None where it does not. Of several mounts of it the strongest.
fn access_of(session: &Session, folder: FolderId) -> Option<MountAccess> {
    let mut of_it = of_folder(session, folder).peekable();
    of_it.peek()?;
    Some(MountAccess::of(of_it.all(|mount| mount.read_only)))
}

/// The mounts by which a session has a folder now, those that its machine could not take out of it among them.
fn of_folder(session: &Session, folder: FolderId) -> impl Iterator<Item = &FolderMount> {
    let mounts = session.mounts.iter();
    mounts.filter(move |mount| mount.folder == folder && mount.is_there())
}

fn is_enough(right: Option<FolderRight>, access: MountAccess) -> bool {
    let needed = match access {
        MountAccess::Ro => FolderRight::Ro,
        MountAccess::Rw => FolderRight::Rw,
    };
    right >= Some(needed)
}

/// The folder that is meant, for a caller who may do `verb` with it.
fn managed(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    which: &str,
    verb: FolderVerb,
    now: Timestamp,
) -> Result<Folder, Failure> {
    let folder = find(view, caller, which, FolderState::Ready, now)?.folder;
    permitted(view, &caller.subject, &folder, verb, now)?;
    Ok(folder)
}

fn show_share(record: FolderShareRecord) -> FolderShareView {
    FolderShareView {
        id: record.share.id,
        user: record.user_name.map(|name| name.to_string()),
        project: record.project_name.map(|name| name.to_string()),
        right: record.share.right,
        created_at: record.share.created_at,
        created_by: record.created_by,
        accepted_at: record.share.accepted_at,
        ends_at: record.share.ends_at,
    }
}

/// What the journal says of a share: whom it is with, and what it gives.
fn told(record: &FolderShareRecord) -> String {
    let user = record.user_name.as_ref().map(ToString::to_string);
    let project = record.project_name.as_ref().map(ToString::to_string);
    let with = user.or(project).unwrap_or_default();
    format!("{with} · {}", record.share.right.word())
}

#[cfg(test)]
mod tests;
