//! `/approvals`: acts of administrators that wait for a second one, who approves or declines them there; and whether acts wait
//! at all. Decides nothing.

use api::approvals::{ApprovalState, ApprovalView, FourEyesBody};
use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use rules::permissions::Permission;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::approvals;

use super::authentication::PageCaller;
use super::components::{self, Alert};
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::{PagesContext, layout, responses};
use crate::doors::text::{Text, codes};

const PATH: &str = "/approvals";

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/approvals.html")]
pub struct ApprovalsPage {
    pub t: Text,
    pub f: PageLayout,
    pub alert: Option<Alert>,
    pub is_on: bool,
    pub may_change: bool,
    pub waiting: Vec<ApprovalLine>,
    pub past: Vec<ApprovalLine>,
}

/// One act.
pub struct ApprovalLine {
    pub id: String,
    pub act: &'static str,
    pub object: String,
    /// Who asked and when, and what came of it.
    pub facts: String,
    /// All that was asked for.
    pub detail: String,
    pub is_decidable: bool,
    /// The reader may decline it.
    pub is_declinable: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SentDecision {
    decision: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SentSwitch {
    on: String,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/approvals", get(show))
        .route("/approvals/four-eyes", post(switch))
        .route("/approvals/{id}/decide", post(decide))
}

async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    answer(&console, &visit, &caller, StatusCode::OK, None).await
}

async fn answer(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    status: StatusCode,
    alert: Option<Alert>,
) -> Response {
    let server = &console.server;
    let read = async {
        let all = approvals::list(server, caller).await?;
        let set = approvals::four_eyes(server, caller).await?;
        Ok::<_, Failure>((all, set))
    };
    let (all, set) = match read.await {
        Ok(read) => read,
        Err(failure) => return failed(console, visit, caller, &failure),
    };
    let may_change = caller.subject.can(Permission::SystemWrite);
    let (waiting, past): (Vec<ApprovalView>, Vec<ApprovalView>) = all
        .into_iter()
        .partition(|one| one.state == ApprovalState::Waiting);
    let lines = |all: Vec<ApprovalView>| -> Vec<ApprovalLine> {
        all.into_iter()
            .map(|one| line(visit, one, may_change))
            .collect()
    };
    let page = ApprovalsPage {
        t: visit.text,
        f: layout(console, visit, caller, Nav::System),
        alert,
        is_on: set.on,
        may_change,
        waiting: lines(waiting),
        past: lines(past),
    };
    responses::page(console, visit, status, &page)
}

fn line(visit: &RequestContext, one: ApprovalView, may_change: bool) -> ApprovalLine {
    let t = visit.text;
    let asked = visit.clock.date(one.asked_at);
    let by = one.decided_by.unwrap_or_default();
    let facts = match one.state {
        ApprovalState::Waiting => {
            t.approvals_waits(one.asker, asked, visit.clock.date(one.expires_at))
        }
        ApprovalState::Done => t.approvals_done(one.asker, asked, by),
        ApprovalState::Declined => t.approvals_was_declined(one.asker, asked, by),
        ApprovalState::Expired => t.approvals_expired(one.asker, asked),
    };
    ApprovalLine {
        id: one.id.to_string(),
        act: act(t, &one.act),
        object: one.object,
        facts,
        detail: one.detail,
        is_decidable: one.decidable,
        is_declinable: may_change && one.state == ApprovalState::Waiting,
    }
}

/// What an act does, in the reader's words.
fn act(t: Text, word: &str) -> &'static str {
    match word {
        "policy-create" => t.approvals_policy_create(),
        "policy-change" => t.approvals_policy_change(),
        "policy-remove" => t.approvals_policy_remove(),
        "policy-attach" => t.approvals_policy_attach(),
        "policy-detach" => t.approvals_policy_detach(),
        "role-grant" => t.approvals_role_grant(),
        "role-revoke" => t.approvals_role_revoke(),
        "user-role" => t.approvals_user_role(),
        "setting-change" => t.approvals_setting_change(),
        "setting-undo" => t.approvals_setting_undo(),
        "four-eyes-off" => t.approvals_off(),
        _ => t.approvals_other(),
    }
}

/// `POST /approvals/{id}/decide`
async fn decide(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<SentDecision>,
) -> Response {
    let server = &console.server;
    let (decided, told) = match sent.decision.as_str() {
        "release" => (
            approvals::release(server, &caller, &id).await,
            "approval-done",
        ),
        _ => (
            approvals::decline(server, &caller, &id).await,
            "approval-declined",
        ),
    };
    came(&console, &visit, &caller, decided, told).await
}

/// `POST /approvals/four-eyes`
async fn switch(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(sent): Form<SentSwitch>,
) -> Response {
    let asked = FourEyesBody {
        on: !sent.on.is_empty(),
    };
    let set = approvals::set_four_eyes(&console.server, &caller, asked).await;
    came(&console, &visit, &caller, set.map(drop), "approval-set").await
}

/// The page again: with a word on what was done, or with what was refused above it.
async fn came(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    done: Result<(), Failure>,
    told: &str,
) -> Response {
    match done {
        Ok(()) => responses::see_with(PATH, told, ""),
        Err(Failure::Refusal(refusal)) => {
            let alert = Alert::bad(codes::refusal(visit.text, &refusal));
            let alert = alert.code(refusal.code.clone());
            let status = responses::status(&refusal);
            answer(console, visit, caller, status, Some(alert)).await
        }
        Err(fault) => failed(console, visit, caller, &fault),
    }
}

fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::System);
    responses::failure(console, visit, Some(frame), failure)
}
