//! What people and programs meet: pages, REST, command line, the way into a session.
//! Never decides anything: a door parses, calls `server::actions`, and shows the answer.

pub mod api;
pub mod cli;
pub mod origin;
pub mod pages;
pub mod peer;
pub mod problem;
pub mod text;

use std::sync::Arc;

use axum::Router;
use base::link::streams::Streams;
use server::Server;

/// Every route of every door. The console's own fallback answers for addresses that nobody has.
pub fn router(server: Server, streams: Arc<dyn Streams>) -> Router {
    let host = machine_name();
    api::router(server.clone(), streams.clone()).merge(pages::router(server, streams, &host))
}

/// What the machine calls itself; `fardel` where it does not say.
fn machine_name() -> String {
    nix::unistd::gethostname()
        .ok()
        .and_then(|name| name.into_string().ok())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "fardel".to_owned())
}
