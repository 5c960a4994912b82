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

/// Every route of every door.
pub fn router(server: Server, streams: Arc<dyn Streams>) -> Router {
    api::router(server, streams)
}
