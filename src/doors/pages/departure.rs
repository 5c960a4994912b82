//! `/users/{id}/remove`: what removing a user ends, and what becomes of their running sessions.

use api::users::{DepartingSessions, DepartureBody, DepartureView};
use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use rules::refusal::Refusal;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::rosters;
use server::actions::users::departure;

use super::authentication::PageCaller;
use super::components;
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::responses::encoded;
use super::users::{PATH, failed};
use super::{PagesContext, layout, responses};
use crate::doors::text::Text;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/departure.html")]
pub struct DeparturePage {
    pub t: Text,
    pub f: PageLayout,
    pub name: String,
    /// The user's page.
    pub back: String,
    /// Where the form goes.
    pub action: String,
    /// What ends, one line each.
    pub ends: Vec<String>,
    /// What stays, or needs another hand, one line each.
    pub stays: Vec<String>,
    /// Folders that could be offered to another user, and reservations that could be handed over.
    pub folders: u64,
    pub reservations: u64,
    /// Where that form goes, for folders and for reservations.
    pub offer: String,
    pub hand_over: String,
    /// Running sessions: there is something to choose.
    pub running: u64,
    pub finish: bool,
    pub until: String,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/users/{id}/remove", get(show).post(depart))
        .route("/users/{id}/folders/offer", post(offer_folders))
        .route("/users/{id}/reservations/hand-over", post(hand_over))
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct DepartureForm {
    sessions: String,
    until: String,
}

impl DepartureForm {
    fn finish(&self) -> bool {
        self.sessions == "finish"
    }
}

async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let form = DepartureForm::default();
    answer(&console, &visit, &caller, &id, form, StatusCode::OK).await
}

async fn answer(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    form: DepartureForm,
    status: StatusCode,
) -> Response {
    let asked = DepartureBody::default();
    let plan = match departure::plan(&console.server, caller, id, asked).await {
        Ok(plan) => plan,
        Err(failure) => return failed(console, visit, caller, &failure),
    };
    let name = plan.user.name.as_str();
    let page = DeparturePage {
        t: visit.text,
        f: layout(console, visit, caller, Nav::Users),
        back: format!("{PATH}/{}", encoded(name)),
        action: format!("{PATH}/{id}/remove"),
        ends: ends(visit.text, &plan),
        stays: stays(visit.text, &plan),
        folders: plan.folders,
        reservations: plan.reservations,
        offer: offer_action(id),
        hand_over: format!("{PATH}/{id}/reservations/hand-over"),
        running: plan.running,
        finish: form.finish(),
        name: name.to_owned(),
        until: form.until,
    };
    responses::page(console, visit, status, &page)
}

/// What ends, without what there is none of.
fn ends(t: Text, plan: &DepartureView) -> Vec<String> {
    [
        (plan.running, t.departure_running(plan.running)),
        (plan.waiting, t.departure_waiting(plan.waiting)),
        (plan.sign_ins, t.departure_sign_ins(plan.sign_ins)),
        (plan.tokens, t.departure_tokens(plan.tokens)),
        (plan.invitations, t.departure_invitations(plan.invitations)),
        (plan.roles, t.departure_roles(plan.roles)),
        (plan.keys, t.departure_keys(plan.keys)),
        (
            plan.reservations,
            t.departure_reservations(plan.reservations),
        ),
        (plan.folders, t.departure_folders(plan.folders)),
    ]
    .into_iter()
    .filter_map(|(number, line)| (number > 0).then_some(line))
    .collect()
}

/// What stays, or needs another hand.
fn stays(t: Text, plan: &DepartureView) -> Vec<String> {
    let mut lines = Vec::new();
    if plan.offered > 0 {
        lines.push(t.departure_offered(plan.offered));
    }
    if plan.images > 0 {
        lines.push(t.departure_images(plan.images));
    }
    if !plan.leads.is_empty() {
        lines.push(t.departure_leads(plan.leads.join(", ")));
    }
    lines
}

fn offer_action(id: &str) -> String {
    format!("{PATH}/{id}/folders/offer")
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct OfferForm {
    to: String,
}

/// `POST /users/{id}/folders/offer`
async fn offer_folders(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(form): Form<OfferForm>,
) -> Response {
    let given = departure::offer_folders(&console.server, &caller, &id, &form.to).await;
    given_away(
        &console,
        &visit,
        &caller,
        (&id, &form.to),
        given,
        "folders-offered",
    )
    .await
}

/// `POST /users/{id}/reservations/hand-over`
async fn hand_over(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(form): Form<OfferForm>,
) -> Response {
    let given = departure::hand_over_reservations(&console.server, &caller, &id, &form.to).await;
    let told = "reservations-handed-over";
    given_away(&console, &visit, &caller, (&id, &form.to), given, told).await
}

/// The page again: what was given to whom is told, a refusal stands at the form, which both share.
async fn given_away(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    (id, to): (&str, &str),
    given: Result<DepartureView, Failure>,
    told: &str,
) -> Response {
    match given {
        Ok(_) => {
            let back = format!("{PATH}/{}/remove", encoded(id));
            responses::see_with(&back, told, to.trim())
        }
        Err(Failure::Refusal(refusal)) => {
            let refused = RefusedForm::new(visit.text, &offer_action(id), &refusal);
            let refused = refused.otherwise_at("to").with([("to", to)]);
            let visit = visit.refusing(refused);
            let status = responses::status(&refusal);
            let form = DepartureForm::default();
            answer(console, &visit, caller, id, form, status).await
        }
        Err(failure) => failed(console, visit, caller, &failure),
    }
}

async fn depart(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(form): Form<DepartureForm>,
) -> Response {
    let left = async {
        let asked = wanted(&console, &caller, &form)?;
        departure::depart(&console.server, &caller, &id, asked).await
    };
    match left.await {
        Ok(plan) => responses::see_with(PATH, "user-departed", plan.user.name.as_str()),
        Err(Failure::Refusal(refusal)) => {
            let action = format!("{PATH}/{id}/remove");
            let refused = RefusedForm::new(visit.text, &action, &refusal);
            let visit = visit.refusing(refused);
            let status = responses::status(&refusal);
            answer(&console, &visit, &caller, &id, form, status).await
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

fn wanted(
    console: &PagesContext,
    caller: &Caller,
    form: &DepartureForm,
) -> Result<DepartureBody, Refusal> {
    if !form.finish() {
        return Ok(DepartureBody::default());
    }
    let now = console.server.clock().now();
    let until = match form.until.trim() {
        "" => None,
        text => Some(
            rosters::last_instant(text, &caller.time_zone, now)
                .map_err(|refusal| refusal.at("/until"))?,
        ),
    };
    Ok(DepartureBody {
        sessions: DepartingSessions::Finish,
        until,
    })
}
