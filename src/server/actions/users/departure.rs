//! A user leaves: what that ends is told first, then ended as one. Sessions stop, or run until a time; the account goes
//! once the last of them is over. History keeps the name.

use api::sessions::Owner;
use api::users::{DepartingSessions, DepartureBody, DepartureView};
use rules::folder::FolderState;
use rules::grants::{GrantRole, GrantScope};
use rules::session::Session;

use super::super::folders::transfers;
use super::super::reservations;
use super::*;

/// Days that sessions of a user who left may go on. Higher: a forgotten session holds its GPU for longer.
const MAX_DAYS: u64 = 90;

/// What a departure would end. Changes nothing.
///
/// Errors: as `depart`.
pub async fn plan(
    server: &Server,
    caller: &Caller,
    who: &str,
    asked: DepartureBody,
) -> Result<DepartureView, Failure> {
    somewhere(caller, Permission::UsersWrite)?;
    let now = server.clock().now();
    let (caller, who) = (caller.clone(), who.to_owned());
    server
        .catalog()
        .read("plan a departure", move |view| {
            let departs_at = departs_at(&asked, now)?;
            let user = leaving(view, &caller, &who)?;
            keep_an_administrator(view, &user)?;
            let (ends, _) = ends(view, &user, departs_at)?;
            Ok(ends)
        })
        .await
}

/// Lets a user leave: waiting sessions are cancelled, running ones stop or get an end, sign-ins, tokens and invitations
/// are gone at once. The account is suspended, and removed once its last session is over: at once where none lives.
///
/// Errors: `user.not-found`, `user.self`, `user.last-administrator`, `departure.until`.
pub async fn depart(
    server: &Server,
    caller: &Caller,
    who: &str,
    asked: DepartureBody,
) -> Result<DepartureView, Failure> {
    somewhere(caller, Permission::UsersWrite)?;
    let (caller, who) = (caller.clone(), who.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "let a user leave", move |rows| {
            let departs_at = departs_at(&asked, rows.now)?;
            let user = leaving(rows, &caller, &who)?;
            keep_an_administrator(rows, &user)?;
            let (ends, live) = ends(rows, &user, departs_at)?;
            for session in live {
                let by = caller.name.clone();
                rows.edit_session(session.id, by.as_str(), None, |session| {
                    Ok(ended_or_limited(session, &asked, departs_at, &by, rows.now))
                })?;
            }
            if live_of(rows, user.id)?.is_empty() {
                rows.remove_user(user.id)?;
                let role = user.role.word();
                note(rows, &caller.name, &user, "user.removed", role, "")?;
                return Ok(ends);
            }
            rows.forget_proofs(user.id)?;
            let changed = User {
                suspended: true,
                departs_at: Some(departs_at),
                ..user.clone()
            };
            put(rows, &changed)?;
            let told = departs_at.to_string();
            note(rows, &caller.name, &user, "user.departed", "", &told)?;
            Ok(ends)
        })
        .await
}

/// Offers each folder of a user who is to leave to another user of the domain, who takes what they want: files move then, and
/// who leaves keeps what is not taken until the account is removed. Home folders stay.
///
/// Errors: `user.not-found`, `user.self`, `folder.share-unknown`, `folder.offers-many`; `token.scope-missing` for a token that
/// may less than the user.
pub async fn offer_folders(
    server: &Server,
    caller: &Caller,
    who: &str,
    to: &str,
) -> Result<DepartureView, Failure> {
    somewhere(caller, Permission::UsersWrite)?;
    let (caller, who, to) = (caller.clone(), who.to_owned(), to.trim().to_owned());
    server
        .catalog()
        .write(Lane::Requests, "offer folders of a user", move |rows| {
            let unknown = refusals::folder_share_unknown;
            let (user, receiver) = parting(rows, &caller, (&who, &to), unknown)?;
            transfers::offer_all(rows, &caller, user.id, &receiver)?;
            Ok(ends(rows, &user, rows.now)?.0)
        })
        .await
}

/// Gives each reservation of a user who is to leave, of which something is left, to another user of the domain: it keeps its
/// machines and times. All of them, or none.
///
/// Errors: `user.not-found`, `user.self`, `reservation.receiver-unknown`, `reservation.name-taken`, `reservation.sessions-run`;
/// `token.scope-missing` for a token that may less than the user.
pub async fn hand_over_reservations(
    server: &Server,
    caller: &Caller,
    who: &str,
    to: &str,
) -> Result<DepartureView, Failure> {
    somewhere(caller, Permission::UsersWrite)?;
    let (caller, who, to) = (caller.clone(), who.to_owned(), to.trim().to_owned());
    server
        .catalog()
        .write(
            Lane::Requests,
            "hand reservations of a user over",
            move |rows| {
                let unknown = refusals::reservation_receiver_unknown;
                let (user, receiver) = parting(rows, &caller, (&who, &to), unknown)?;
                reservations::hand_over(rows, &caller, &user, &receiver)?;
                Ok(ends(rows, &user, rows.now)?.0)
            },
        )
        .await
}

/// Who is to leave, and who takes what they leave; `unknown` refuses the name of no such user, at `/to`.
fn parting(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    (who, to): (&str, &str),
    unknown: impl FnOnce() -> Refusal,
) -> Result<(User, User), Failure> {
    let user = leaving(view, caller, who)?;
    may_open(caller, &user)?;
    let receiver = receiver(view, caller, &user, to)?.ok_or_else(|| unknown().at("/to"))?;
    Ok((user, receiver))
}

/// Who takes what a user leaves; None for a name of no such user. Not the caller: who leaves is not asked, and what is of
/// others is had with a reason. Nor who is suspended.
fn receiver(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    user: &User,
    to: &str,
) -> Result<Option<User>, Failure> {
    let found = view.user_named(to)?.filter(|one| {
        let is_other = one.id != user.id && one.id != caller.subject.user;
        is_other && one.domain == user.domain && !one.suspended
    });
    Ok(found)
}

fn departs_at(asked: &DepartureBody, now: Timestamp) -> Result<Timestamp, Refusal> {
    match (asked.sessions, asked.until) {
        (DepartingSessions::Stop, _) => Ok(now),
        (DepartingSessions::Finish, Some(until))
            if until > now && until <= now.plus_seconds(MAX_DAYS * 86_400) =>
        {
            Ok(until)
        }
        (DepartingSessions::Finish, _) => Err(refusals::departure_until(MAX_DAYS).at("/until")),
    }
}

fn leaving(view: &ReadTransaction<'_>, caller: &Caller, who: &str) -> Result<User, Failure> {
    let user = find(view, &caller.subject, Permission::UsersWrite, who)?;
    match user.id == caller.subject.user {
        true => Err(oneself("remove").into()),
        false => Ok(user),
    }
}

/// What ends, and the live sessions of the user.
fn ends(
    view: &ReadTransaction<'_>,
    user: &User,
    departs_at: Timestamp,
) -> Result<(DepartureView, Vec<Session>), Failure> {
    let live = live_of(view, user.id)?;
    let waits = |session: &&Session| session.state() == SessionState::Pending;
    let waiting = live.iter().filter(waits).count();
    let mut folders = view.folders_of(user.id)?;
    folders.retain(|one| one.folder.state == FolderState::Ready);
    let mut offered = 0;
    for one in &folders {
        offered += u64::from(view.folder_transfer(one.folder.id)?.is_some());
    }
    let mut leads = Vec::new();
    for held in &user.grants {
        if let (GrantRole::Lead, GrantScope::Project(id)) = (held.grant.role, held.grant.scope)
            && let Some(project) = view.project(id)?
        {
            leads.push(project.name.to_string());
        }
    }
    let ends = DepartureView {
        user: Owner {
            id: user.id,
            name: user.name.clone(),
        },
        running: (live.len() - waiting) as u64,
        waiting: waiting as u64,
        sign_ins: view.browsers(user.id)?.len() as u64,
        tokens: view.tokens(user.id)?.len() as u64,
        invitations: view.invitations_of(user.id)?,
        roles: view.grants_of(user.id)?.len() as u64,
        keys: (view.ssh_keys(user.id)?.len() + view.access_key_names(user.id)?.len()) as u64,
        folders: folders.len() as u64,
        offered,
        reservations: view.reservations_of(user.id)?,
        images: view.images_of(user.id)?,
        leads,
        departs_at,
    };
    Ok((ends, live))
}

fn ended_or_limited(
    session: &mut Session,
    asked: &DepartureBody,
    until: Timestamp,
    by: &UserName,
    now: Timestamp,
) -> bool {
    let goes_on = asked.sessions == DepartingSessions::Finish
        && !matches!(
            session.state(),
            SessionState::Pending | SessionState::Stopping | SessionState::Ended
        );
    if !goes_on {
        let because = rules::reasons::session_owner_departed(by);
        return stop_for_good(session, because, now);
    }
    let seconds = until.seconds_since(session.started_at().unwrap_or(now));
    let limit = &mut session.spec.max_runtime_seconds;
    let shorter = limit.is_none_or(|limit| seconds < limit);
    if shorter {
        *limit = Some(seconds.max(1));
    }
    shorter
}
