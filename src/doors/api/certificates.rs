//! Certificates over REST: whom to trust, for everybody; what is served and what should be, for
//! administrators. Private keys come in and never go out.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::json;
use server::actions::certificates::{self, Import, Kind, Request};

use super::Api;
use super::answer::{self, Answer};
use super::body::Sent;
use super::who::Who;

/// Needs no sign-in: users compare before they trust.
pub(super) async fn trust(State(api): State<Api>) -> Answer {
    let authority = certificates::trust(&api.server).await?;
    answer::plain(StatusCode::OK, &authority)
}

pub(super) async fn show(State(api): State<Api>, Who(caller): Who, headers: HeaderMap) -> Answer {
    let shown = certificates::show(&api.server, &caller).await?;
    answer::whole(&headers, &shown)
}

pub(super) async fn request(
    State(api): State<Api>,
    Who(caller): Who,
    sent: Sent<Request>,
) -> Answer {
    let pem = certificates::request(&api.server, &caller, sent.value).await?;
    answer::plain(StatusCode::OK, &json!({"request": pem}))
}

pub(super) async fn import(State(api): State<Api>, Who(caller): Who, sent: Sent<Import>) -> Answer {
    let shown = certificates::import(&api.server, &caller, sent.value).await?;
    answer::plain(StatusCode::OK, &shown)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResetRequest {
    #[serde(default = "own")]
    to: Kind,
}

fn own() -> Kind {
    Kind::Own
}

pub(super) async fn reset(
    State(api): State<Api>,
    Who(caller): Who,
    sent: Sent<ResetRequest>,
) -> Answer {
    let shown = certificates::reset(&api.server, &caller, sent.value.to).await?;
    answer::plain(StatusCode::OK, &shown)
}
