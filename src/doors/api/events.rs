//! The journal as pages and files that a search finds, and as server-sent events: what changed, resumed by number. Bounded by what one reader
//! takes; a reader that is slow is not waited for, it catches up from the journal.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use api::events::EventSearchQuery;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream;
use rules::refusal::Refusal;
use rules::refusals;
use serde::Deserialize;
use server::access::{Lease, lease};
use server::actions::journal;
use server::events::{Next, Subscription, subscribe};

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::QueryParameters;
use super::responses::{self, ApiResult};
use crate::doors::csv;

/// Keeps the connection alive through proxies, and finds readers that are gone.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// What a reader may choose among.
const TOPICS: [&str; 8] = [
    "sessions",
    "images",
    "users",
    "projects",
    "nodes",
    "gpus",
    "operations",
    "system",
];

/// A page of JSON, or where the client asks for it a file of all that the search finds, at most 10,000 events.
pub(super) async fn search(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
    RawQuery(raw): RawQuery,
    QueryParameters(query): QueryParameters<EventSearchQuery>,
) -> ApiResult {
    if responses::wants_csv(&headers) {
        let found = journal::search_all(&api.server, &caller, &query).await?;
        return responses::table("events.csv", csv::events(&found));
    }
    let page = journal::search(&api.server, &caller, &query).await?;
    let response = responses::whole(&headers, &page)?;
    Ok(responses::linked(
        response,
        "/api/v1/events/search",
        &raw.unwrap_or_default(),
        page.next_cursor.as_deref(),
    ))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct EventQuery {
    /// Comma separated; all when empty.
    topics: String,
    since: Option<u64>,
}

pub(super) async fn follow(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
    QueryParameters(query): QueryParameters<EventQuery>,
) -> ApiResult {
    let topics = topics(&query.topics)?;
    let resumed = headers
        .get("last-event-id")
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.trim().parse().ok());
    let since = resumed.or(query.since);
    let subscription = subscribe(&api.server, &caller.subject, since).await?;
    let reader = Reader {
        subscription,
        topics,
        lease: Some(lease(&api.server, &caller)),
    };
    let events = stream::unfold(reader, next_event);
    Ok(Sse::new(events)
        .keep_alive(KeepAlive::new().interval(HEARTBEAT).text("still here"))
        .into_response())
}

fn topics(words: &str) -> Result<BTreeSet<String>, Refusal> {
    let mut chosen = BTreeSet::new();
    for word in words.split(',').map(str::trim).filter(|w| !w.is_empty()) {
        // `session` and `sessions` mean the same.
        let many = match word {
            known if TOPICS.contains(&known) => known.to_owned(),
            one => format!("{one}s"),
        };
        if !TOPICS.contains(&many.as_str()) {
            return Err(refusals::topic_unknown(TOPICS.join(", ")).at("/topics"));
        }
        chosen.insert(many);
    }
    Ok(chosen)
}

struct Reader {
    subscription: Subscription,
    topics: BTreeSet<String>,
    /// None once the reader was told that they may hear no more.
    lease: Option<Lease>,
}

async fn next_event(mut reader: Reader) -> Option<(Result<Event, Infallible>, Reader)> {
    loop {
        let next = tokio::select! {
            biased;
            refusal = reader.lease.as_mut()? => {
                reader.lease = None;
                return Some((Ok(last(&refusal)), reader));
            }
            next = reader.subscription.next() => next,
        };
        let event = match next {
            Ok(Some(Next::Reset(after))) => Event::default()
                .event("reset")
                .id(after.to_string())
                .data(format!("{{\"after\":{after}}}")),
            Ok(Some(Next::Change(change))) => {
                if !reader.topics.is_empty() && !reader.topics.contains(&change.topic) {
                    continue;
                }
                let id = change.sequence.to_string();
                match Event::default().event("change").id(id).json_data(&change) {
                    Ok(event) => event,
                    Err(error) => {
                        tracing::error!(%error, "a change cannot be written");
                        return None;
                    }
                }
            }
            Ok(None) => return None,
            Err(failure) => {
                tracing::error!(
                    error = &failure as &dyn std::error::Error,
                    "the journal cannot be read"
                );
                return None;
            }
        };
        return Some((Ok(event), reader));
    }
}

/// The last event of a reader who may hear no more: why.
fn last(refusal: &Refusal) -> Event {
    let why = serde_json::json!({"code": refusal.code, "text": refusal.text});
    Event::default().event("end").data(why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_taken_in_both_numbers_and_unknown_ones_refused() {
        let chosen = topics("session, images,user").expect("known");
        assert_eq!(
            chosen.into_iter().collect::<Vec<_>>(),
            ["images", "sessions", "users"]
        );
        for topic in TOPICS {
            assert!(topics(topic).expect("known").contains(topic));
        }
        assert!(topics("").expect("all").is_empty());
        assert_eq!(topics("card").expect_err("unknown").code, "topic.unknown");
    }
}
