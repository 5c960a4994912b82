//! Administrators look into what is another user's: they enter a session or read the files of a folder, for a while, after
//! they typed why. Its owner is told at once, and what is open ends with the time, or with the administrator's role.

use std::time::Duration;

use api::break_glass::{BreakGlassBody, BreakGlassKind, BreakGlassView};
use base::observe::chain;
use rules::break_glass::{break_glass_minutes, break_glass_reason, may_break_glass};
use rules::codes::FOLDER_FILES_OWN;
use rules::folder::FolderState;
use rules::folder_rights::FolderVerb;
use rules::grants::GrantRole;
use rules::names::{BreakGlassId, SessionId};
use rules::permissions::{Permission, reach};
use rules::refusals;
use rules::tenancy::Scope;
use rules::units::Timestamp;
use uuid::Uuid;

use super::folders;
use super::sessions::find;
use super::{allowed, somewhere};
use crate::access::{self, Caller, Lease};
use crate::catalog::break_glass::{BreakGlassRecord, FOLDER_OPENED, SESSION_OPENED};
use crate::catalog::events::NewEvent;
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::{Failure, Server};

/// Looks of one administrator that are open at once. Higher: a mass of them looks like ordinary work. Lower: who looks after
/// an incident ends one for each that they open.
const MAX_OPEN: u64 = 20;
/// Looks that a list shows, newest first.
const MAX_LISTED: usize = 200;
/// After a commit, the wait before a stream's right is looked at again; as for every stream, of whose two seconds it is a part.
const GATHER: Duration = Duration::from_millis(700);
/// Longest wait between two looks: a clock that is set forward ends nothing by itself.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Whether the caller may look into anything of others at all; for what a page offers.
pub fn may_open(caller: &Caller) -> bool {
    let grants = &caller.subject.grants;
    let administers = grants
        .iter()
        .any(|grant| grant.role == GrantRole::Administrator);
    administers && allowed(caller, Permission::SessionsEnter).is_ok()
}

/// Lets the caller into a session of another user.
///
/// Errors: `session.not-found`, `role.permission-missing`, `session.has-variables`, `break-glass.own`, `break-glass.reason`,
/// `break-glass.minutes`, `break-glass.open`, `break-glass.too-many`.
pub async fn enter_session(
    server: &Server,
    caller: &Caller,
    which: &str,
    asked: BreakGlassBody,
) -> Result<BreakGlassView, Failure> {
    allowed(caller, Permission::SessionsEnter)?;
    let (caller, which) = (caller.clone(), which.to_owned());
    server
        .catalog()
        .write(
            Lane::Requests,
            "enter a session with a reason",
            move |rows| {
                let session = find::find_to_open(rows, &caller, &which)?;
                if find::needs_no_reason(&caller, &session) {
                    return Err(refusals::break_glass_own(&session.name).into());
                }
                let owner = rows.user(session.owner)?;
                let look = Look {
                    kind: BreakGlassKind::Session,
                    object: session.id.0,
                    name: session.name.to_string(),
                    owner_name: owner.map_or_else(String::new, |owner| owner.name.to_string()),
                    scope: session.scope(),
                };
                open(rows, &caller, look, &asked)
            },
        )
        .await
}

/// Lets the caller read the files of a folder of another user.
///
/// Errors: `folder.not-found`, `folder.ambiguous`; as `enter_session`.
pub async fn read_folder(
    server: &Server,
    caller: &Caller,
    which: &str,
    asked: BreakGlassBody,
) -> Result<BreakGlassView, Failure> {
    allowed(caller, Permission::SessionsEnter)?;
    let (caller, which) = (caller.clone(), which.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "read a folder with a reason", move |rows| {
            let found = folders::find(rows, &caller, &which, FolderState::Ready, rows.now)?;
            let (folder, subject) = (&found.folder, &caller.subject);
            match folders::permitted(rows, subject, folder, FolderVerb::Read, rows.now) {
                Err(Failure::Refusal(refusal)) if refusal.code == FOLDER_FILES_OWN => {}
                Ok(_) if rows.open_break_glass(subject.user, folder.id.0)?.is_none() => {
                    return Err(refusals::break_glass_own(&folder.name).into());
                }
                // It is open already, which is said below.
                Ok(_) => {}
                Err(failure) => return Err(failure),
            }
            may_break_glass(subject, &folder.scope())?;
            let look = Look {
                kind: BreakGlassKind::Folder,
                object: folder.id.0,
                name: folder.name.to_string(),
                owner_name: found.owner_name.to_string(),
                scope: folder.scope(),
            };
            open(rows, &caller, look, &asked)
        })
        .await
}

/// What is looked into.
struct Look {
    kind: BreakGlassKind,
    object: Uuid,
    name: String,
    owner_name: String,
    scope: Scope,
}

fn open(
    rows: &Rows<'_>,
    caller: &Caller,
    look: Look,
    asked: &BreakGlassBody,
) -> Result<BreakGlassView, Failure> {
    let reason = break_glass_reason(&asked.reason)?;
    let minutes = break_glass_minutes(asked.minutes)?;
    let actor = caller.subject.user;
    if let Some(known) = rows.open_break_glass(actor, look.object)? {
        if rows.now < known.ends_at {
            return Err(refusals::break_glass_open(&look.name, known.ends_at).into());
        }
        // The next pass would end it.
        rows.end_break_glass(&known, "system")?;
    }
    if rows.open_break_glass_of(actor)? >= MAX_OPEN {
        return Err(refusals::break_glass_too_many(MAX_OPEN).into());
    }
    let row = BreakGlassRecord {
        id: BreakGlassId::make(rows.now, base::observe::random()),
        actor,
        actor_name: caller.name.to_string(),
        owner: look.scope.owner,
        owner_name: look.owner_name,
        kind: look.kind,
        object: look.object,
        name: look.name,
        domain: look.scope.domain.unwrap_or(caller.subject.domain),
        reason,
        began_at: rows.now,
        ends_at: rows.now.plus_seconds(u64::from(minutes) * 60),
        ended_at: None,
    };
    rows.insert_break_glass(&row)?;
    let (topic, code) = match row.kind {
        BreakGlassKind::Session => ("sessions", SESSION_OPENED),
        BreakGlassKind::Folder => ("system", FOLDER_OPENED),
    };
    let object = match row.kind {
        BreakGlassKind::Session => row.object.to_string(),
        BreakGlassKind::Folder => row.name.clone(),
    };
    rows.note(NewEvent {
        actor: caller.name.as_str(),
        topic,
        object: &object,
        scope: look.scope,
        code,
        before: "",
        after: &row.reason,
    })?;
    Ok(show(row))
}

/// Looks into what is the caller's own, those of the caller, and for administrators and auditors those of their domains or the
/// site; newest first, at most 200.
///
/// Errors: `token.scope-missing`.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<BreakGlassView>, Failure> {
    somewhere(caller, Permission::AuditRead)?;
    let (reach, user) = (
        reach(&caller.subject, Permission::AuditRead),
        caller.subject.user,
    );
    server.catalog().read_now("list break-glass", |view| {
        let rows = view.break_glass_within(&reach, user, MAX_LISTED)?;
        Ok(rows.into_iter().map(show).collect())
    })
}

/// Ends a look of the caller's before its time.
///
/// Errors: `break-glass.not-found`.
pub async fn end(server: &Server, caller: &Caller, which: &str) -> Result<(), Failure> {
    allowed(caller, Permission::SessionsEnter)?;
    let (caller, which) = (caller.clone(), which.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "end break-glass", move |rows| {
            let found = match which.parse::<BreakGlassId>() {
                Ok(id) => rows.break_glass(id)?,
                Err(_) => None,
            };
            let own = found
                .filter(|row| row.actor == caller.subject.user && row.ended_at.is_none())
                .ok_or_else(refusals::break_glass_not_found)?;
            rows.end_break_glass(&own, caller.name.as_str())
        })
        .await
}

/// Whether the caller gets into a session now, and where they do not, whether a reason would let them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEntry {
    Open,
    /// With a reason.
    BreakGlass,
    Closed,
}

/// How the caller stands to a session that they see, for its page.
///
/// Errors: `session.not-found`.
pub async fn entry(
    server: &Server,
    caller: &Caller,
    session: SessionId,
) -> Result<SessionEntry, Failure> {
    let now = server.clock().now();
    server.catalog().read_now("look who may enter", |view| {
        let found = view.session(session)?;
        let session = found.ok_or_else(refusals::session_unknown)?;
        match find::check_entry(view, caller, &session, now) {
            Ok(()) => Ok(SessionEntry::Open),
            Err(Failure::Refusal(_)) => {
                let is_own = session.owner == caller.subject.user;
                Ok(
                    match !is_own && find::check_glass(caller, &session).is_ok() {
                        true => SessionEntry::BreakGlass,
                        false => SessionEntry::Closed,
                    },
                )
            }
            Err(fault) => Err(fault),
        }
    })
}

/// The lease of a stream into a session: that of its caller, which ends too as `withdrawn` says.
pub fn lease_into(server: &Server, caller: &Caller, session: SessionId) -> Lease {
    let proof = access::lease(server, caller);
    let withdrawn = withdrawn(server, caller, session);
    Box::pin(async move {
        tokio::select! {
            refusal = proof => refusal,
            refusal = withdrawn => refusal,
        }
    })
}

/// Ready once the time is over that a caller has in the session of another, or they ended it; never for one of their own. The
/// sign-in is `access::lease`'s.
pub fn withdrawn(server: &Server, caller: &Caller, session: SessionId) -> Lease {
    let (server, caller) = (server.clone(), caller.clone());
    Box::pin(async move {
        let mut revision = server.catalog().revision();
        loop {
            revision.borrow_and_update();
            let now = server.clock().now();
            let looked = server
                .catalog()
                .read_now("look at a stream into a session", |view| {
                    until(view, &caller, session)
                });
            let wait = match looked {
                Ok(None) => std::future::pending().await,
                Ok(Some(end)) if end > now => Duration::from_millis(end.millis_since(now)),
                Ok(Some(_)) => return refusals::break_glass_over(),
                Err(Failure::Refusal(refusal)) => return refusal,
                Err(failure) => {
                    // A disk that stutters closes no terminal; the next look tells.
                    tracing::warn!(%session, error = %chain(&failure), "the right to a session cannot be checked again");
                    GATHER
                }
            };
            match tokio::time::timeout(wait.min(MAX_WAIT), revision.changed()).await {
                Ok(Ok(())) => tokio::time::sleep(GATHER).await,
                Ok(Err(_)) => return refusals::server_stopping(),
                Err(_) => {}
            }
        }
    })
}

/// Until when the caller may be in a session; None: as long as they may be in any of theirs.
fn until(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    session: SessionId,
) -> Result<Option<Timestamp>, Failure> {
    let user = caller.subject.user;
    let is_free = |one| find::needs_no_reason(caller, &one);
    if view.session(session)?.is_none_or(is_free) {
        return Ok(None);
    }
    match view.open_break_glass(user, session.0)? {
        Some(open) => Ok(Some(open.ends_at)),
        None => Err(refusals::break_glass_over().into()),
    }
}

fn show(row: BreakGlassRecord) -> BreakGlassView {
    BreakGlassView {
        id: row.id.0,
        kind: row.kind,
        object: row.object,
        name: row.name,
        owner: row.owner_name,
        actor: row.actor_name,
        reason: row.reason,
        began_at: row.began_at,
        ends_at: row.ends_at,
        ended_at: row.ended_at,
    }
}

#[cfg(test)]
mod tests;
