//! Devices over REST: the list with everybody's slices, one device, cordon, drain, cut, self-test. A session's share
//! is changed where its other limits are: `PATCH /sessions/{id}`.

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use server::actions::gpus::prove::{self, TestRequest};
use server::actions::gpus::{self, CordonRequest, CutRequest, DrainRequest};

use super::Api;
use super::answer::{self, Answer};
use super::body::Sent;
use super::who::Who;

pub(super) async fn list(State(api): State<Api>, Who(caller): Who, headers: HeaderMap) -> Answer {
    let all = gpus::list(&api.server, &caller).await?;
    answer::whole(&headers, &all)
}

pub(super) async fn get(
    State(api): State<Api>,
    Who(caller): Who,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Answer {
    let gpu = gpus::get(&api.server, &caller, &id).await?;
    answer::whole(&headers, &gpu)
}

pub(super) async fn cordon(
    State(api): State<Api>,
    Who(caller): Who,
    Path(id): Path<String>,
    sent: Sent<CordonRequest>,
) -> Answer {
    let gpu = gpus::cordon(&api.server, &caller, &id, sent.value).await?;
    answer::plain(StatusCode::OK, &gpu)
}

pub(super) async fn uncordon(
    State(api): State<Api>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Answer {
    let gpu = gpus::uncordon(&api.server, &caller, &id).await?;
    answer::plain(StatusCode::OK, &gpu)
}

pub(super) async fn drain(
    State(api): State<Api>,
    Who(caller): Who,
    Path(id): Path<String>,
    sent: Sent<DrainRequest>,
) -> Answer {
    let drained = gpus::drain(&api.server, &caller, &id, sent.value).await?;
    answer::plain(StatusCode::OK, &drained)
}

pub(super) async fn cut(
    State(api): State<Api>,
    Who(caller): Who,
    Path(id): Path<String>,
    sent: Sent<CutRequest>,
) -> Answer {
    let cut = gpus::cut(&api.server, &caller, &id, sent.value).await?;
    answer::plain(StatusCode::OK, &cut)
}

pub(super) async fn test(
    State(api): State<Api>,
    Who(caller): Who,
    Path(id): Path<String>,
    sent: Sent<TestRequest>,
) -> Answer {
    let operation = prove::test(&api.server, &caller, &id, sent.value).await?;
    answer::accepted(&operation, &format!("/api/v1/operations/{}", operation.id))
}

pub(super) async fn proof(
    State(api): State<Api>,
    Who(caller): Who,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Answer {
    let proof = prove::proof(&api.server, &caller, &id).await?;
    answer::whole(&headers, &proof)
}
