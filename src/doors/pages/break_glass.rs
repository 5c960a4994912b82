//! `/break-glass`: administrators open a session or a folder of another user with a reason; each user sees here who looked into
//! what is theirs, and why.

use api::break_glass::{BreakGlassBody, BreakGlassKind, BreakGlassView};
use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use rules::break_glass::{MAX_BREAK_GLASS_REASON, USUAL_BREAK_GLASS_MINUTES};
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::break_glass;

use super::authentication::PageCaller;
use super::components;
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::sessions::failed;
use super::{PagesContext, layout, responses};
use crate::doors::text::Text;

const PATH: &str = "/break-glass";

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/break_glass.html")]
pub struct BreakGlassPage {
    pub t: Text,
    pub f: PageLayout,
    /// None for who may open nothing.
    pub form: Option<BreakGlassForm>,
    pub looks: Vec<BreakGlassLine>,
}

/// The form, as it was typed.
pub struct BreakGlassForm {
    pub is_folder: bool,
    /// Name or id of what is meant.
    pub of: String,
    pub reason: String,
    pub minutes: String,
    pub longest: usize,
}

/// One look.
pub struct BreakGlassLine {
    pub id: String,
    pub name: String,
    pub href: String,
    /// Who, whose it is, and when.
    pub facts: String,
    pub reason: String,
    pub is_open: bool,
    /// The reader opened it and may end it.
    pub is_theirs: bool,
}

/// What the form or an address says.
#[derive(Deserialize, Default, Clone)]
#[serde(default)]
struct SentBreakGlass {
    kind: String,
    of: String,
    reason: String,
    minutes: String,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/break-glass", get(show).post(open))
        .route("/break-glass/{id}/end", post(end))
}

/// `GET /break-glass`: the form for what an address names.
async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<SentBreakGlass>,
) -> Response {
    answer(&console, &visit, &caller, StatusCode::OK, asked).await
}

async fn answer(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    status: StatusCode,
    typed: SentBreakGlass,
) -> Response {
    let looks = match break_glass::list(&console.server, caller).await {
        Ok(looks) => looks,
        Err(failure) => return failed(console, visit, caller, &failure),
    };
    let page = BreakGlassPage {
        t: visit.text,
        f: layout(console, visit, caller, Nav::Sessions),
        form: break_glass::may_open(caller).then(|| BreakGlassForm {
            is_folder: typed.kind == BreakGlassKind::Folder.word(),
            of: typed.of,
            reason: typed.reason,
            minutes: match typed.minutes.is_empty() {
                true => USUAL_BREAK_GLASS_MINUTES.to_string(),
                false => typed.minutes,
            },
            longest: MAX_BREAK_GLASS_REASON,
        }),
        looks: looks
            .into_iter()
            .map(|look| line(visit, caller, look))
            .collect(),
    };
    responses::page(console, visit, status, &page)
}

fn line(visit: &RequestContext, caller: &Caller, look: BreakGlassView) -> BreakGlassLine {
    let t = visit.text;
    let (began, is_open) = (visit.clock.date(look.began_at), look.ended_at.is_none());
    let until = visit.clock.date(look.ended_at.unwrap_or(look.ends_at));
    let (actor, owner) = (look.actor.as_str(), look.owner.as_str());
    BreakGlassLine {
        id: look.id.to_string(),
        href: place(look.kind, &look.object.to_string()),
        facts: match is_open {
            true => t.break_glass_open(actor, owner, began, until),
            false => t.break_glass_over(actor, owner, began, until),
        },
        is_theirs: look.actor == caller.name.as_str(),
        name: look.name,
        reason: look.reason,
        is_open,
    }
}

/// Where what was opened is.
fn place(kind: BreakGlassKind, id: &str) -> String {
    match kind {
        BreakGlassKind::Session => format!("/sessions/{id}"),
        BreakGlassKind::Folder => format!("/folders/{id}/files"),
    }
}

/// `POST /break-glass`: opens what is meant and leads there.
async fn open(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(typed): Form<SentBreakGlass>,
) -> Response {
    let (server, of) = (&console.server, typed.of.trim());
    let asked = BreakGlassBody {
        reason: typed.reason.clone(),
        minutes: match typed.minutes.trim() {
            "" => None,
            // What is no number is no number of minutes that it may hold.
            text => Some(text.parse().unwrap_or(0)),
        },
    };
    let opened = match BreakGlassKind::parse(&typed.kind) {
        Some(BreakGlassKind::Folder) => break_glass::read_folder(server, &caller, of, asked).await,
        Some(BreakGlassKind::Session) | None => {
            break_glass::enter_session(server, &caller, of, asked).await
        }
    };
    match opened {
        Ok(look) => {
            let place = place(look.kind, &look.object.to_string());
            responses::see_with(&place, "break-glass", &look.name)
        }
        Err(Failure::Refusal(refusal)) if break_glass::may_open(&caller) => {
            let status = responses::status(&refusal);
            let form = RefusedForm::new(visit.text, PATH, &refusal).otherwise_at("of");
            let visit = visit.refusing(form);
            answer(&console, &visit, &caller, status, typed).await
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `POST /break-glass/{id}/end`
async fn end(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match break_glass::end(&console.server, &caller, &id).await {
        Ok(()) => responses::see_with(PATH, "break-glass-ended", ""),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}
