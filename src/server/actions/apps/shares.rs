//! Sharing an app: who may enter its session opens it to a member of the session's project, or to all of them, for a time. A
//! visitor comes by the address of the app, and sees nothing else of the session.

use api::apps::{AppShareView, NewAppShareBody, SharedAppView};
use base::link::streams::Streams;
use rules::app::{AppChoice, is_path};
use rules::app_share::{AppShare, is_member, share_end};
use rules::names::AppShareId;
use rules::refusals;
use rules::session::{Session, SessionState};

use super::{AppWay, definition_of, entered, session_to_enter, state_of, way};
use crate::access::{Caller, new_app_ticket};
use crate::actions::sessions::find::needs_no_reason;
use crate::app_starts::answers;
use crate::catalog::app_shares::AppShareRecord;
use crate::catalog::events::NewEvent;
use crate::catalog::{Lane, Rows};
use crate::{Failure, Server};

/// Shares of one app. Higher: an owner knows no more who gets in. Lower: a group of a project needs all of the project.
const MAX_SHARES: usize = 50;

/// The shares of an app that hold, oldest first; for those who may enter its session.
///
/// Errors: those of `sessions::enter`; `app.name-invalid`, `port.invalid`.
pub async fn list(
    server: &Server,
    caller: &Caller,
    id: &str,
    app: &str,
) -> Result<Vec<AppShareView>, Failure> {
    let session = session_to_enter(server, caller, id)?;
    let app = AppChoice::parse(app)?;
    let now = server.clock().now();
    server.catalog().read_now("list shares of an app", |view| {
        let known = view.app_shares(session.id, &app)?.into_iter();
        let holding = known.filter(|known| now < known.share.ends_at);
        Ok(holding.map(show).collect())
    })
}

/// Shares an app.
///
/// Errors: those of `list`; `app.session-not-running`, `app.share-owner-only`, `app.share-unknown`, `app.share-end`,
/// `app.shares-many`.
pub async fn create(
    server: &Server,
    caller: &Caller,
    id: &str,
    app: &str,
    asked: NewAppShareBody,
) -> Result<AppShareView, Failure> {
    let session = shareable(server, caller, id)?;
    // Who looks into it with a reason hands that to no others.
    if !needs_no_reason(caller, &session) {
        return Err(refusals::app_share_owner_only().into());
    }
    let app = AppChoice::parse(app)?;
    let caller = caller.clone();
    server
        .catalog()
        .write(Lane::Requests, "share an app", move |rows| {
            let ends_at = share_end(asked.until, rows.now)?;
            let named = asked.user.as_deref().map(str::trim);
            let user = match named.filter(|name| !name.is_empty()) {
                None => None,
                Some(name) => {
                    let user = rows.user_named(name)?.filter(|user| {
                        !user.suspended && is_member(&user.grants_at(rows.now), session.project)
                    });
                    let unknown = || refusals::app_share_unknown().at("/user");
                    Some(user.ok_or_else(unknown)?.id)
                }
            };
            let known = rows.app_shares(session.id, &app)?;
            // One of the same is put in its place.
            for known in known
                .iter()
                .filter(|known| known.share.user == user || known.share.ends_at <= rows.now)
            {
                rows.forget_app_share(known.share.id)?;
            }
            let known = rows.app_shares(session.id, &app)?;
            if known.len() >= MAX_SHARES {
                return Err(refusals::app_shares_many(MAX_SHARES).into());
            }
            let share = AppShare {
                id: AppShareId::make(rows.now, base::observe::random()),
                session: session.id,
                app: app.clone(),
                user,
                created_at: rows.now,
                ends_at,
            };
            rows.insert_app_share(&share)?;
            let made = rows.app_shares(session.id, &app)?.into_iter();
            let mut made = made.filter(|made| made.share.id == share.id);
            let made = made.next().ok_or_else(refusals::app_share_not_found)?;
            note(rows, &caller, &session, &made, "app.share-added")?;
            Ok(show(made))
        })
        .await
}

/// Takes a share back: what its visitors have open is closed within two seconds.
///
/// Errors: those of `list`; `app.session-not-running`, `app.share-not-found`.
pub async fn remove(
    server: &Server,
    caller: &Caller,
    id: &str,
    app: &str,
    share: &str,
) -> Result<(), Failure> {
    let session = shareable(server, caller, id)?;
    let app = AppChoice::parse(app)?;
    let share = share.parse::<AppShareId>()?;
    let caller = caller.clone();
    server
        .catalog()
        .write(Lane::Requests, "take a share of an app back", move |rows| {
            let known = rows.app_shares(session.id, &app)?.into_iter();
            let mut known = known.filter(|known| known.share.id == share);
            let known = known.next().ok_or_else(refusals::app_share_not_found)?;
            rows.forget_app_share(share)?;
            note(rows, &caller, &session, &known, "app.share-removed")
        })
        .await
}

/// The app at a port of this machine as a visitor sees it, and where their browser enters it; None until it answers, and for
/// root on the machine. `to`: the path that it then shows.
///
/// Errors: `app.not-opened`, also for those who may not open it; `app.session-not-running`.
pub async fn visit(
    server: &Server,
    streams: &dyn Streams,
    caller: &Caller,
    port: u16,
    to: Option<&str>,
) -> Result<(SharedAppView, Option<AppWay>), Failure> {
    let now = server.clock().now();
    let found = server.catalog().read_now("visit an app", |view| {
        let Some(at) = view.app_port(port)? else {
            return Err(refusals::app_not_opened().into());
        };
        let session = entered(view, caller, &at, now)?;
        let owner = view.user(session.owner)?;
        Ok((at, session, owner.map(|owner| owner.name)))
    });
    let (at, session, owner) = found.map_err(|failure| match failure {
        // That there is a session is no matter of a stranger.
        Failure::Refusal(refusal) if refusal.code == rules::codes::SESSION_NOT_FOUND => {
            refusals::app_not_opened().into()
        }
        failure => failure,
    })?;
    let container = session.container();
    let definition = definition_of(server, streams, &session, at.app).await?;
    let is_ready = answers(streams, container, &definition).await;
    let view = SharedAppView {
        name: definition.choice.to_string(),
        title: definition.title.clone(),
        title_ko: definition.title_ko.clone(),
        owner: owner.map_or_else(String::new, |owner| owner.to_string()),
        state: state_of(server, container, &definition.choice, is_ready),
    };
    if !is_ready {
        return Ok((view, None));
    }
    let to = to.filter(|to| is_path(to)).unwrap_or(&definition.open);
    let ticket = new_app_ticket(server, caller, session.id, port);
    let way = ticket.map(|ticket| way(server, &definition.choice, port, &ticket, to));
    Ok((view, way))
}

/// The session, for those who may enter it, while it has not ended.
fn shareable(server: &Server, caller: &Caller, id: &str) -> Result<Session, Failure> {
    let session = session_to_enter(server, caller, id)?;
    match session.state() {
        SessionState::Ended => Err(refusals::app_session_not_running().into()),
        _ => Ok(session),
    }
}

fn show(record: AppShareRecord) -> AppShareView {
    AppShareView {
        id: record.share.id,
        user: record.user_name.map(|name| name.to_string()),
        created_at: record.share.created_at,
        ends_at: record.share.ends_at,
    }
}

fn note(
    rows: &Rows<'_>,
    caller: &Caller,
    session: &Session,
    record: &AppShareRecord,
    code: &str,
) -> Result<(), Failure> {
    let user = record.user_name.as_ref();
    let with = user.map_or_else(|| "project".to_owned(), ToString::to_string);
    rows.note(NewEvent {
        actor: caller.name.as_str(),
        topic: "sessions",
        object: &session.id.to_string(),
        scope: session.scope(),
        code,
        before: "",
        after: &format!("{} · {with}", record.share.app),
    })
}
