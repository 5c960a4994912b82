//! A page's stream of changes: each part again when it differs from what was sent, as partials that the page
//! morphs into place. State, not differences: a client that comes back after a gap gets the current state, so
//! nothing can be lost or doubled. Never renders; pages bring their parts.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use axum::http::{HeaderValue, header};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use server::Server;
use server::access::{Caller, Lease, lease};

use crate::doors::text::visible::visible;

/// One part of a page: the element it fills, and its markup.
pub type LiveFragment = (&'static str, String);

/// Between two looks while nothing was written: loads change without rows. Lower costs a rendering a page.
const TICK: Duration = Duration::from_secs(2);
/// After a commit, the wait for the next ones: a launch is four commits within milliseconds.
const GATHER: Duration = Duration::from_millis(60);
/// Silence after which the page is told that the stream lives.
const BEAT: Duration = Duration::from_secs(15);

struct LiveStream<F> {
    parts: F,
    revision: tokio::sync::watch::Receiver<u64>,
    sent: BTreeMap<&'static str, u64>,
    silent_since: tokio::time::Instant,
    first: bool,
    /// None once the reader was told that they may see no more.
    lease: Option<Lease>,
}

/// Streams what `parts` gives, whenever it differs. Ends when `parts` gives none: the thing is gone, or the
/// reader's leave to see it. The last event of a reader whose sign-in ended is `end`.
pub fn stream<F, L>(server: &Server, caller: &Caller, parts: F) -> Response
where
    F: Fn() -> L + Send + Sync + 'static,
    L: Future<Output = Option<Vec<LiveFragment>>> + Send,
{
    let state = LiveStream {
        parts,
        revision: server::events::revision(server),
        sent: BTreeMap::new(),
        silent_since: tokio::time::Instant::now(),
        first: true,
        lease: Some(lease(server, caller)),
    };
    let events = stream::unfold(state, |mut state| async move {
        loop {
            let wait = if state.first { Duration::ZERO } else { TICK };
            let changed = tokio::select! {
                biased;
                refusal = state.lease.as_mut()? => {
                    state.lease = None;
                    let end = Event::default().event("end").data(refusal.code);
                    return Some((Ok::<_, Infallible>(end), state));
                }
                changed = tokio::time::timeout(wait, state.revision.changed()) => changed,
            };
            if !state.first {
                match changed {
                    Ok(Ok(())) => tokio::time::sleep(GATHER).await,
                    Ok(Err(_)) => return None,
                    Err(_) => {}
                }
            }
            state.first = false;
            let revision = *state.revision.borrow_and_update();
            let parts = (state.parts)().await?;
            let mut markup = String::new();
            for (target, html) in parts {
                let html = visible(html);
                let mut hasher = DefaultHasher::new();
                html.hash(&mut hasher);
                let mark = hasher.finish();
                if state.sent.insert(target, mark) != Some(mark) {
                    markup.push_str(&format!(
                        "<hx-partial hx-target=\"#{target}\" hx-swap=\"innerMorph\">{html}</hx-partial>"
                    ));
                }
            }
            if !markup.is_empty() {
                state.silent_since = tokio::time::Instant::now();
                let event = Event::default().id(revision.to_string()).data(markup);
                return Some((Ok::<_, Infallible>(event), state));
            }
            if state.silent_since.elapsed() >= BEAT {
                state.silent_since = tokio::time::Instant::now();
                return Some((Ok(Event::default().event("beat").data("1")), state));
            }
        }
    });
    let mut response = Sse::new(events).into_response();
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Proxies that gather answers would hold the stream back.
    response
        .headers_mut()
        .insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
