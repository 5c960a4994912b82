//! Sessions over REST: launch, list, show, change, explain. Streams into them are in `streams`.

use std::collections::BTreeMap;
use std::time::Duration;

use api::commits::CommitRequest;
use api::page::ListPage;
use api::sessions::{LaunchRequest, ListQuery, SessionPatchBody, SessionView, StopBody};
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use rules::names::SessionName;
use rules::object::Object;
use rules::refusal::RefusalKind;
use rules::refusals;
use rules::session::SessionState;
use rules::units::Timestamp;
use rules::workload::remarks::check_labels;
use serde::Deserialize;
use server::Failure;
use server::actions::{check_key, sessions};

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::{JsonBody, QueryParameters};
use super::responses::{self, ApiResult};
use crate::doors::problem::ProblemResponse;

/// Longest time one `?wait=` holds a request. Higher: proxies in between give up first. Lower: waiting
/// clients ask more often.
const MAX_WAIT: u64 = 60;
/// How often a merge of labels is tried again when another writer changes the same session.
const MERGES: usize = 5;

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
    RawQuery(raw): RawQuery,
    QueryParameters(query): QueryParameters<ListQuery>,
) -> ApiResult {
    let page = sessions::list(&api.server, &caller, &query).await?;
    responses::page(
        &headers,
        "/api/v1/sessions",
        &raw.unwrap_or_default(),
        &page,
    )
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LaunchOptions {
    dry_run: bool,
}

pub(super) async fn launch(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    QueryParameters(options): QueryParameters<LaunchOptions>,
    sent: JsonBody<LaunchRequest>,
) -> ApiResult {
    if options.dry_run {
        sent.key.as_ref().map(check_key).transpose()?;
        let explained = sessions::preview(&api.server, &caller, sent.value).await?;
        return responses::plain(StatusCode::OK, &explained);
    }
    let launched = sessions::launch(&api.server, &caller, sent.value, sent.key).await?;
    let replayed = launched.replayed;
    let response = match launched.sessions.as_slice() {
        [one] => {
            let location = format!("/api/v1/sessions/{}", one.id);
            responses::made_version(one, &location, one.generation)?
        }
        several => {
            let body = ListPage {
                items: several.to_vec(),
                next_cursor: None,
                estimated_total: several.len() as u64,
            };
            responses::made(&body, "/api/v1/sessions")?
        }
    };
    Ok(responses::replayed(response, replayed))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WaitQuery {
    /// `running` or `ended`.
    wait: Option<String>,
    /// Seconds.
    patience: Option<u64>,
}

pub(super) async fn get(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    QueryParameters(waiting): QueryParameters<WaitQuery>,
) -> ApiResult {
    let mut session = sessions::get(&api.server, &caller, &id).await?;
    if let Some(word) = waiting.wait {
        let until = match word.as_str() {
            "running" => SessionState::Running,
            "ended" => SessionState::Ended,
            _ => {
                return Err(refusals::wait_unknown().at("/wait").into());
            }
        };
        let patience = patience(waiting.patience);
        // Past its patience it answers with the state as it is.
        let reached = tokio::select! {
            refusal = server::access::lease(&api.server, &caller) => return Err(refusal.into()),
            reached = tokio::time::timeout(patience, reach(&api, &caller, &session, until)) => reached,
        };
        if let Ok(reached) = reached {
            session = reached?;
        } else {
            session = sessions::get(&api.server, &caller, &session.id.to_string()).await?;
        }
    }
    responses::one(&headers, &session, session.generation)
}

/// How long a request waits that asked for so many seconds.
fn patience(asked: Option<u64>) -> Duration {
    Duration::from_secs(asked.unwrap_or(20).min(MAX_WAIT))
}

/// The session once it is in that phase or past it.
async fn reach(
    api: &ApiContext,
    caller: &server::access::Caller,
    session: &SessionView,
    until: SessionState,
) -> Result<SessionView, Failure> {
    let mut revision = server::events::revision(&api.server);
    let id = session.id.to_string();
    loop {
        revision.borrow_and_update();
        let now = sessions::get(&api.server, caller, &id).await?;
        if now.state >= until {
            return Ok(now);
        }
        if revision.changed().await.is_err() {
            return Ok(now);
        }
    }
}

pub(super) async fn patch(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    sent: JsonBody<SessionPatchBody>,
) -> ApiResult {
    let mut seen = responses::if_match(&headers)?;
    let SessionPatchBody {
        name,
        labels,
        resources,
        max_runtime_seconds,
        priority,
    } = sent.value;
    let limits = [
        resources.is_some(),
        max_runtime_seconds.is_some(),
        priority.is_some(),
    ];
    let limits = limits.into_iter().filter(|said| *said).count();
    if limits > 1 || limits == 1 && (name.is_some() || labels.is_some()) {
        return Err(refusals::patch_too_much().into());
    }
    // Everything that can be wrong with a label is found before the name is written.
    if let Some(labels) = &labels {
        let given = labels
            .iter()
            .filter_map(|(k, v)| Some((k.clone(), v.clone()?)))
            .collect();
        check_labels(&given)?;
    }
    if let Some(name) = &name {
        SessionName::parse(name.trim())?;
    }
    let mut session = sessions::get(&api.server, &caller, &id).await?;
    let id = session.id.to_string();
    if let Some(Object(resources)) = resources {
        session = sessions::resize(&api.server, &caller, &id, resources, seen).await?;
    }
    if let Some(limit) = max_runtime_seconds {
        session = sessions::set_time_limit(&api.server, &caller, &id, limit, seen).await?;
    }
    if let Some(priority) = priority {
        session = sessions::set_priority(&api.server, &caller, &id, priority, seen).await?;
    }
    if let Some(name) = name {
        session = sessions::rename(&api.server, &caller, &id, &name, seen).await?;
        seen = Some(session.generation);
    }
    if let Some(labels) = labels {
        session = merge_labels(&api, &caller, &id, &labels, seen).await?;
    }
    responses::changed(&session, session.generation)
}

/// Merges labels into those that are there. Without a version from the client, a write by someone
/// else in between is merged again.
async fn merge_labels(
    api: &ApiContext,
    caller: &server::access::Caller,
    id: &str,
    change: &BTreeMap<String, Option<String>>,
    seen: Option<u64>,
) -> Result<SessionView, ProblemResponse> {
    let mut tries = 0;
    loop {
        tries += 1;
        let now = sessions::get(&api.server, caller, id).await?;
        let mut labels = now.labels.clone();
        for (name, value) in change {
            match value {
                Some(value) => labels.insert(name.clone(), value.clone()),
                None => labels.remove(name),
            };
        }
        let version = seen.unwrap_or(now.generation);
        match sessions::set_labels(&api.server, caller, id, labels, Some(version)).await {
            Err(Failure::Refusal(refusal))
                if refusal.kind == RefusalKind::Stale && seen.is_none() && tries < MERGES => {}
            done => return Ok(done?),
        }
    }
}

pub(super) async fn delete(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    sessions::delete(&api.server, &caller, &id).await?;
    responses::nothing()
}

pub(super) async fn stop(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<StopBody>,
) -> ApiResult {
    let session = sessions::stop(&api.server, &caller, &id, sent.value.force).await?;
    responses::changed(&session, session.generation)
}

pub(super) async fn kill(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    let session = sessions::stop(&api.server, &caller, &id, true).await?;
    responses::changed(&session, session.generation)
}

pub(super) async fn restart(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    let session = sessions::restart(&api.server, &caller, &id).await?;
    responses::changed(&session, session.generation)
}

pub(super) async fn pause(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    let session = sessions::pause(&api.server, &caller, &id).await?;
    responses::changed(&session, session.generation)
}

pub(super) async fn hold(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    let session = sessions::hold(&api.server, &caller, &id).await?;
    responses::changed(&session, session.generation)
}

pub(super) async fn release(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    let session = sessions::release(&api.server, &caller, &id).await?;
    responses::changed(&session, session.generation)
}

pub(super) async fn resume(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    let session = sessions::resume(&api.server, &caller, &id).await?;
    responses::changed(&session, session.generation)
}

/// Begins to make an image of it, or says what that would hold.
pub(super) async fn commit(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    QueryParameters(options): QueryParameters<LaunchOptions>,
    sent: JsonBody<CommitRequest>,
) -> ApiResult {
    if options.dry_run {
        sent.key.as_ref().map(check_key).transpose()?;
        let preview = sessions::preview_commit(&api.server, &caller, &id, sent.value).await?;
        return responses::plain(StatusCode::OK, &preview);
    }
    let begun = sessions::commit(&api.server, &caller, &id, sent.value, sent.key).await?;
    let operation = begun.value;
    let response =
        responses::accepted(&operation, &format!("/api/v1/operations/{}", operation.id))?;
    Ok(responses::replayed(response, begun.replayed))
}

/// The request that would make another one like it; nothing is made.
pub(super) async fn duplicate(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    let request = sessions::duplicate(&api.server, &caller, &id).await?;
    responses::plain(StatusCode::OK, &request)
}

pub(super) async fn why(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let explained = sessions::why(&api.server, &caller, &id).await?;
    responses::whole(&headers, &explained)
}

pub(super) async fn events(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let events = sessions::events(&api.server, &caller, &id).await?;
    responses::all(&headers, events)
}

pub(super) async fn connections(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let connections = sessions::connections(&api.server, &caller, &id).await?;
    responses::all(&headers, connections)
}

pub(super) async fn queue(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
    QueryParameters(query): QueryParameters<QueueQuery>,
) -> ApiResult {
    let page = sessions::queue(&api.server, &caller, query.cursor.as_deref()).await?;
    responses::page(&headers, "/api/v1/queue", "", &page)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct QueueQuery {
    cursor: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SampleQuery {
    since: Option<Timestamp>,
}

pub(super) async fn metrics(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    QueryParameters(query): QueryParameters<SampleQuery>,
) -> ApiResult {
    let samples = sessions::samples(&api.server, &caller, &id, query.since).await?;
    responses::all(&headers, samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_lasts_a_minute_at_most() {
        for (asked, seconds) in [
            (None, 20),
            (Some(0), 0),
            (Some(60), 60),
            (Some(61), 60),
            (Some(u64::MAX), 60),
        ] {
            assert_eq!(patience(asked), Duration::from_secs(seconds), "{asked:?}");
        }
    }
}
