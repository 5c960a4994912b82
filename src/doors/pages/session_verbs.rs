//! The verbs of rows in the table of sessions: the menu of one, and stopping one or many after a question. Nothing that
//! ends work happens on one click.

use std::collections::BTreeSet;

use api::sessions::SessionView;
use axum::Router;
use axum::extract::{Form, Path, Query, State};
use axum::response::Response;
use axum::routing::get;
use futures_util::{StreamExt as _, stream};
use rules::permissions::{Permission, may};
use rules::refusal::Refusal;
use rules::session::SessionState;
use server::Failure;
use server::access::Caller;
use server::actions::sessions::{self, table};

use super::authentication::PageCaller;
use super::dialog::{self, DialogForm, DialogLink, DialogPage, MAX_NAMED};
use super::layout::Nav;
use super::request_context::RequestContext;
use super::sessions::{export, failed};
use super::{PagesContext, layout, responses};

/// Sessions that one form stops. Higher: one request keeps the catalog's writer busy for longer. Lower: a large launch
/// has to be stopped in parts.
const MAX_STOPPED: usize = 500;
/// Stops that are under way at once; commits gather them.
const STOPS_AT_ONCE: usize = 32;

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/sessions.csv", get(export))
        .route("/sessions/stop", get(ask).post(stop))
        .route("/sessions/{id}/menu", get(menu))
}

/// The sessions that a form or an address names: `id=ID`, or `id=all:ID` for all replicas that stand as that one does.
async fn named(
    console: &PagesContext,
    caller: &Caller,
    said: &[(String, String)],
) -> Result<Vec<SessionView>, Failure> {
    let mut known = BTreeSet::new();
    let mut found = Vec::new();
    for (_, id) in said.iter().filter(|(name, _)| name == "id") {
        let (id, all) = match id.strip_prefix("all:") {
            Some(id) => (id, true),
            None => (id.as_str(), false),
        };
        for session in table::members(&console.server, caller, id, all).await? {
            if found.len() < MAX_STOPPED && known.insert(session.id) {
                found.push(session);
            }
        }
    }
    Ok(found)
}

fn back(said: &[(String, String)]) -> &str {
    let place = said.iter().find(|(name, _)| name == "back");
    place.map_or("/sessions", |(_, place)| responses::own_place(place))
}

/// `GET /sessions/stop?id=…`: what would end, by name, and the button that ends it.
async fn ask(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(said): Query<Vec<(String, String)>>,
) -> Response {
    let t = visit.text;
    let sessions = match named(&console, &caller, &said).await {
        Ok(sessions) => sessions,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let live: Vec<&SessionView> = sessions
        .iter()
        .filter(|session| session.state < SessionState::Stopping)
        .collect();
    let waiting = live
        .iter()
        .all(|session| session.state == SessionState::Pending);
    let count = live.len() as u64;
    let (title, lead, go) = match (live.as_slice(), waiting) {
        ([], _) => (t.stop_none().to_owned(), t.stop_none_lead(), ""),
        ([one], true) => (
            t.stop_cancel_title(one.name.as_str()),
            t.stop_cancel_lead(),
            t.verb_cancel_session(),
        ),
        ([one], false) => (
            t.stop_title(one.name.as_str()),
            t.stop_lead(),
            t.stop_graceful(),
        ),
        (_, true) => (
            t.stop_cancel_n_title(count),
            t.stop_cancel_lead(),
            t.verb_cancel_session(),
        ),
        (_, false) => (t.stop_n_title(count), t.stop_n_lead(), t.stop_graceful()),
    };
    let mut fields: Vec<(&'static str, String)> = live
        .iter()
        .map(|session| ("id", session.id.to_string()))
        .collect();
    fields.push(("back", back(&said).to_owned()));
    let user = caller.subject.user;
    let of_others = live.iter().any(|session| session.owner.id != user);
    let names_owners = live.len() > 1 || of_others;
    let mut lead = lead.to_owned();
    if of_others && !waiting {
        // Who looks after the queue is told who comes next; a question is asked also where that cannot be told.
        let ending = live.iter().map(|session| session.id).collect();
        let next = sessions::next_in_place(&console.server, &caller, ending).await;
        lead.push(' ');
        lead.push_str(&match next {
            Ok(Some((name, owner))) => t.stop_next(name, owner),
            Ok(None) | Err(_) => t.stop_next_any().to_owned(),
        });
    }
    let page = DialogPage {
        t,
        f: layout(&console, &visit, &caller, Nav::Sessions),
        title,
        lead,
        items: match names_owners {
            true => live
                .iter()
                .take(MAX_NAMED)
                .map(|session| format!("{} · {}", session.name, session.owner.name))
                .collect(),
            false => Vec::new(),
        },
        more: match live.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => t.stop_more(more as u64),
        },
        links: Vec::new(),
        form: (!live.is_empty()).then(|| DialogForm {
            action: "/sessions/stop".to_owned(),
            fields,
            icon: if waiting { "x" } else { "power" },
            go: go.to_owned(),
            ends: true,
            force: (!waiting).then(|| t.stop_force().to_owned()),
        }),
        why: match of_others {
            true => t.stop_why(),
            false => "",
        },
        back: back(&said).to_owned(),
    };
    dialog::answer(&console, &visit, Nav::Sessions, page)
}

/// `POST /sessions/stop`: stops every named session that the caller may stop. Each is a change of its own: one that
/// cannot be stopped keeps none of the others.
async fn stop(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(said): Form<Vec<(String, String)>>,
) -> Response {
    let place = back(&said);
    let force = said
        .iter()
        .any(|(name, value)| name == "force" && !value.is_empty());
    let why = said.iter().find(|(name, _)| name == "why");
    let why = why.map_or_else(String::new, |(_, typed)| typed.clone());
    let sessions = match named(&console, &caller, &said).await {
        Ok(sessions) => sessions,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    // Owned, for a stream that borrows cannot be sent to another thread.
    let ids: Vec<String> = sessions.iter().map(|one| one.id.to_string()).collect();
    let ends = stream::iter(ids.into_iter().map(|id| {
        let (server, caller, why) = (console.server.clone(), caller.clone(), why.clone());
        async move { sessions::stop_saying(&server, &caller, &id, force, &why).await }
    }));
    let ended: Vec<Result<SessionView, Failure>> =
        ends.buffer_unordered(STOPS_AT_ONCE).collect().await;
    let mut stopped = 0_u64;
    let mut refused: Option<Refusal> = None;
    for end in ended {
        match end {
            Ok(_) => stopped += 1,
            Err(Failure::Refusal(refusal)) => refused = Some(refusal),
            Err(fault) => return failed(&console, &visit, &caller, &fault),
        }
    }
    let word = match (sessions.as_slice(), force) {
        ([one], _) if one.state == SessionState::Pending => "cancel",
        ([_], true) => "force",
        _ => "stop",
    };
    match (stopped, refused, sessions.as_slice()) {
        (0, Some(refusal), _) => failed(&console, &visit, &caller, &Failure::Refusal(refusal)),
        (0, None, _) => responses::see(place),
        (_, _, [one]) => responses::see_with(place, word, one.name.as_str()),
        (_, Some(_), _) => responses::see_with(place, "stop-some", &stopped.to_string()),
        (_, None, _) => responses::see_with(place, "stop-n", &stopped.to_string()),
    }
}

/// `GET /sessions/{id}/menu`: what can be done with one session.
async fn menu(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let t = visit.text;
    let session = match sessions::get(&console.server, &caller, &id).await {
        Ok(session) => session,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let own = format!("/sessions/{}", session.id);
    let link = |href: String, icon, words: &str, ends| DialogLink {
        href,
        icon,
        words: words.to_owned(),
        asks: ends,
        ends,
    };
    let mut links = vec![
        link(own.clone(), "square-terminal", t.common_open(), false),
        link(format!("{own}/logs"), "scroll-text", t.tab_logs(), false),
        link(format!("{own}/metrics"), "activity", t.tab_metrics(), false),
    ];
    if session.document_kept {
        links.push(link(
            format!("/sessions/new?from={}", session.id),
            "copy",
            t.verb_duplicate(),
            false,
        ));
    }
    let ends = format!("/sessions/stop?id={}", session.id);
    let writable = may(&caller.subject, Permission::SessionsWrite, &session.scope());
    match session.state {
        _ if writable.is_err() => {}
        SessionState::Pending => {
            let change = format!("/queue/{}", session.id);
            links.push(link(change, "sliders-horizontal", t.queue_change(), false));
            links.push(link(ends, "x", t.verb_cancel_ask(), true));
        }
        state if state < SessionState::Stopping => {
            links.push(link(ends, "power", t.verb_stop_ask(), true));
        }
        _ => {}
    }
    let page = DialogPage {
        t,
        f: layout(&console, &visit, &caller, Nav::Sessions),
        title: session.name.to_string(),
        lead: String::new(),
        items: Vec::new(),
        more: String::new(),
        links,
        form: None,
        why: "",
        back: "/sessions".to_owned(),
    };
    dialog::answer(&console, &visit, Nav::Sessions, page)
}
