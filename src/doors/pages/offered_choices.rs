//! `/choices/domains`, `/choices/projects` and `/choices/users`: what a form offers while one of very many is typed, as
//! options. Changes nothing; the form takes any value and is complete without it.

use api::tenancy::DomainView;
use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use rules::users::User;
use serde::Deserialize;
use server::actions::{tenancy, users};

use super::authentication::PageCaller;
use super::choice_field::found;
use super::components::Choice;
use super::request_context::RequestContext;
use super::{PagesContext, launch, responses};

/// What stands in the field that asks.
#[derive(Deserialize, Default)]
#[serde(default)]
struct TypedSoFar {
    domain: String,
    project: String,
    user: String,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/choices/domains", get(domains))
        .route("/choices/projects", get(projects))
        .route("/choices/users", get(names))
}

/// `GET /choices/domains?domain=`: the domains that the reader reaches.
async fn domains(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<TypedSoFar>,
) -> Response {
    // Who may list none is offered none.
    let known = tenancy::domains(&console.server, &caller).await;
    let known = known.unwrap_or_default();
    let choice = |one: DomainView| Choice::new(one.name.clone(), one.name, false);
    let all: Vec<Choice> = known.into_iter().map(choice).collect();
    responses::html(&visit, StatusCode::OK, found(&all, &asked.domain))
}

/// `GET /choices/projects?project=`: the projects in which the reader may launch.
async fn projects(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<TypedSoFar>,
) -> Response {
    let all = launch::open_projects(&console, &caller, "").await;
    let all = all.unwrap_or_default();
    responses::html(&visit, StatusCode::OK, found(&all, &asked.project))
}

/// `GET /choices/users?user=`: the users whom the reader may list.
async fn names(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<TypedSoFar>,
) -> Response {
    let known = users::list(&console.server, &caller).await;
    let known = known.unwrap_or_default();
    let choice = |one: &User| Choice::new(one.name.to_string(), one.name.to_string(), false);
    let all: Vec<Choice> = known.iter().map(choice).collect();
    responses::html(&visit, StatusCode::OK, found(&all, &asked.user))
}
