//! The REST API below /api/v1 and the probes: parses JSON, calls `server::actions`, answers JSON. One
//! handler a route, one call a handler; every rule about who may do what is behind that call.

mod answer;
mod body;
mod dress;
mod sessions;
mod streams;
mod who;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use base::link::streams::Streams;
use server::Server;
use tower_http::catch_panic::CatchPanicLayer;

/// Most bytes of a JSON body. A launch has at most 256 KiB of text; the rest is room for quoting.
const LARGEST_JSON: usize = 1 << 20;

/// What every handler has.
#[derive(Clone)]
pub(super) struct Api {
    server: Server,
    streams: Arc<dyn Streams>,
}

impl Api {
    /// Comes back when rows may have changed. Whoever waits looks again, and may look in vain.
    async fn something_changed(&self) {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Between two looks of a request that waits. Higher: a short command feels slow. Lower: waiting costs
/// processor time.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_millis(20);

/// Every route of the API and the probes.
pub fn router(server: Server, streams: Arc<dyn Streams>) -> Router {
    let api = Api { server, streams };
    let v1 = Router::new()
        .route("/sessions", get(sessions::list).post(sessions::launch))
        .route(
            "/sessions/{id}",
            get(sessions::get)
                .patch(sessions::patch)
                .delete(sessions::delete),
        )
        .route("/sessions/{id}/stop", post(sessions::stop))
        .route("/sessions/{id}/kill", post(sessions::kill))
        .route("/sessions/{id}/restart", post(sessions::restart))
        .route("/sessions/{id}/pause", post(sessions::pause))
        .route("/sessions/{id}/resume", post(sessions::resume))
        .route("/sessions/{id}/duplicate", post(sessions::duplicate))
        .route("/sessions/{id}/why", get(sessions::why))
        .route("/sessions/{id}/events", get(sessions::events))
        .route("/sessions/{id}/logs", get(streams::logs))
        .route("/sessions/{id}/attach", get(streams::attach))
        .route("/sessions/{id}/exec", get(streams::exec))
        .route("/sessions/{id}/ports/{port}", get(streams::port))
        .route("/queue", get(sessions::queue))
        .fallback(nothing_here);
    Router::new()
        .nest("/api/v1", v1)
        .layer(DefaultBodyLimit::max(LARGEST_JSON))
        .layer(CatchPanicLayer::new())
        .layer(axum::middleware::from_fn(dress::dress))
        .with_state(api)
}

async fn nothing_here() -> axum::http::StatusCode {
    axum::http::StatusCode::NOT_FOUND
}
