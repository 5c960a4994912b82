//! `/queue/cancel`: cancels the launches that were marked in the queue, after a question. What started meanwhile is not
//! ended by a click that said cancel.

use std::collections::BTreeSet;

use api::sessions::SessionView;
use axum::extract::{Form, Query, State};
use axum::response::Response;
use futures_util::{StreamExt as _, stream};
use rules::refusal::Refusal;
use rules::session::SessionState;
use server::Failure;
use server::access::Caller;
use server::actions::sessions::{self, table};

use super::super::authentication::PageCaller;
use super::super::dialog::{self, DialogForm, DialogPage, MAX_NAMED};
use super::super::layout::Nav;
use super::super::request_context::RequestContext;
use super::super::{PagesContext, layout, responses};
use super::{PATH, failed};

/// Sessions that one form cancels. Higher: one request keeps the catalog's writer busy for longer. Lower: a large launch
/// has to be cancelled in parts.
const MAX_CANCELLED: usize = 500;
/// Changes that are under way at once; commits gather them.
const CANCELS_AT_ONCE: usize = 32;

type Said = Vec<(String, String)>;

/// The waiting sessions that a form or an address names: `id=ID`, or `id=all:ID` for all that wait of its launch.
async fn named(
    console: &PagesContext,
    caller: &Caller,
    said: &Said,
) -> Result<Vec<SessionView>, Failure> {
    let mut known = BTreeSet::new();
    let mut found = Vec::new();
    for (_, id) in said.iter().filter(|(name, _)| name == "id") {
        let (id, all) = match id.strip_prefix("all:") {
            Some(id) => (id, true),
            None => (id.as_str(), false),
        };
        for session in table::members(&console.server, caller, id, all).await? {
            let waits = session.state == SessionState::Pending;
            if waits && found.len() < MAX_CANCELLED && known.insert(session.id) {
                found.push(session);
            }
        }
    }
    Ok(found)
}

/// `GET /queue/cancel?id=…`: what would leave the queue, by name, and the button that cancels it.
pub(super) async fn ask(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(said): Query<Said>,
) -> Response {
    let t = visit.text;
    let waiting = match named(&console, &caller, &said).await {
        Ok(waiting) => waiting,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let count = waiting.len() as u64;
    let (title, lead) = match waiting.as_slice() {
        [] => (t.stop_none().to_owned(), t.queue_cancel_none()),
        [one] => (t.stop_cancel_title(one.name.as_str()), t.stop_cancel_lead()),
        _ => (t.stop_cancel_n_title(count), t.stop_cancel_lead()),
    };
    let page = DialogPage {
        t,
        f: layout(&console, &visit, &caller, Nav::Queue),
        title,
        lead: lead.to_owned(),
        items: match waiting.len() {
            0 | 1 => Vec::new(),
            _ => waiting
                .iter()
                .take(MAX_NAMED)
                .map(|session| format!("{} · {}", session.name, session.owner.name))
                .collect(),
        },
        more: match waiting.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => t.stop_more(more as u64),
        },
        links: Vec::new(),
        form: (!waiting.is_empty()).then(|| DialogForm {
            action: "/queue/cancel".to_owned(),
            fields: waiting
                .iter()
                .map(|session| ("id", session.id.to_string()))
                .collect(),
            icon: "x",
            go: t.verb_cancel_session().to_owned(),
            ends: true,
            force: None,
        }),
        why: "",
        back: PATH.to_owned(),
    };
    dialog::answer(&console, &visit, Nav::Queue, page)
}

/// `POST /queue/cancel`: cancels every named session that still waits. Each is a change of its own.
pub(super) async fn cancel(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(said): Form<Said>,
) -> Response {
    let waiting = match named(&console, &caller, &said).await {
        Ok(waiting) => waiting,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    // Owned, for a stream that borrows cannot be sent to another thread.
    let ids: Vec<String> = waiting.iter().map(|one| one.id.to_string()).collect();
    let ends = stream::iter(ids.into_iter().map(|id| {
        let (console, caller) = (console.clone(), caller.clone());
        async move { cancel_waiting(&console, &caller, &id).await }
    }));
    let ended: Vec<Result<SessionView, Failure>> =
        ends.buffer_unordered(CANCELS_AT_ONCE).collect().await;
    let mut cancelled = 0_u64;
    let mut refused: Option<Refusal> = None;
    for end in ended {
        match end {
            Ok(_) => cancelled += 1,
            Err(Failure::Refusal(refusal)) => refused = Some(refusal),
            Err(fault) => return failed(&console, &visit, &caller, &fault),
        }
    }
    match (cancelled, refused, waiting.as_slice()) {
        (0, Some(refusal), _) => failed(&console, &visit, &caller, &Failure::Refusal(refusal)),
        (0, None, _) => responses::see(PATH),
        (_, _, [one]) => responses::see_with(PATH, "cancel", one.name.as_str()),
        (_, Some(_), _) => responses::see_with(PATH, "stop-some", &cancelled.to_string()),
        (_, None, _) => responses::see_with(PATH, "cancel-n", &cancelled.to_string()),
    }
}

/// Cancels one that still waits: one that started meanwhile is not ended by a click that said cancel.
pub(in super::super) async fn cancel_waiting(
    console: &PagesContext,
    caller: &Caller,
    id: &str,
) -> Result<SessionView, Failure> {
    let session = sessions::get(&console.server, caller, id).await?;
    if session.state != SessionState::Pending {
        return Err(rules::refusals::session_not_waiting(session.state.word()).into());
    }
    sessions::stop(&console.server, caller, id, false).await
}
