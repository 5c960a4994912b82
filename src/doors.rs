//! What people and programs meet: pages, REST, command line, the way into a session.
//! Never decides anything: a door parses, calls `server::actions`, and shows the answer.

pub mod admission;
pub mod api;
pub mod bench;
pub mod cli;
pub mod console;
pub mod download;
pub mod host;
pub mod listener;
pub mod origin;
pub mod pages;
pub mod peer;
pub mod problem;
pub mod text;

use std::sync::Arc;

use axum::Router;
use base::link::streams::Streams;
use server::Server;

/// Every route of every door. The console's own fallback answers for addresses that no route has.
pub fn router(server: Server, streams: Arc<dyn Streams>) -> Router {
    let host = machine_name();
    api::router(server.clone(), streams.clone()).merge(pages::router(
        server,
        streams,
        &host,
        reference(),
    ))
}

/// What the machine calls itself; `fardel` where it does not say.
fn machine_name() -> String {
    nix::unistd::gethostname()
        .ok()
        .and_then(|name| name.into_string().ok())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "fardel".to_owned())
}

/// The table of the REST API as its page shows it: by noun, in the order of the table.
pub(crate) fn reference() -> Vec<pages::reference::OperationGroup> {
    let mut groups: Vec<pages::reference::OperationGroup> = Vec::new();
    for route in api::openapi::ROUTES {
        let shown = shown(route);
        match groups.iter_mut().find(|group| group.name == route.tag) {
            Some(group) => group.operations.push(shown),
            None => groups.push(pages::reference::OperationGroup {
                name: route.tag.to_owned(),
                operations: vec![shown],
            }),
        }
    }
    groups
}

fn shown(route: &api::openapi::DocumentedRoute) -> pages::reference::OperationEntry {
    use api::openapi::{Needs, SuccessReply};
    let mut curl = String::from("curl");
    if route.method != "GET" {
        curl.push_str(&format!(" -X {}", route.method));
    }
    if route.needs != Needs::Nothing {
        curl.push_str(" -H \"Authorization: Bearer $FARDEL_TOKEN\"");
    }
    if route.body.is_some() {
        curl.push_str(" -H 'Content-Type: application/json' -d @body.json");
    }
    curl.push_str(&format!(" $FARDEL_SERVER{}", route.path));
    pages::reference::OperationEntry {
        name: route.operation,
        method: route.method,
        path: route.path,
        summary: route.summary,
        scope: match route.needs {
            Needs::Nothing | Needs::SignIn => String::new(),
            Needs::Verb(verb) => verb.word().to_owned(),
        },
        query: route.query.to_vec(),
        body: route.body.unwrap_or_default(),
        answer: match route.answer {
            SuccessReply::Schema(name) => name.to_owned(),
            SuccessReply::Either(one, other) => format!("{one}, {other}"),
            SuccessReply::Json => "JSON".to_owned(),
            SuccessReply::File(kind) => kind.to_owned(),
            SuccessReply::Text => "text/plain".to_owned(),
            SuccessReply::Figures => "application/openmetrics-text".to_owned(),
            SuccessReply::Events => "text/event-stream".to_owned(),
            SuccessReply::Socket(protocol) => format!("WebSocket {protocol}"),
            SuccessReply::Nothing => String::new(),
        },
        statuses: std::iter::once(route.status.to_string())
            .chain(api::openapi::refusals(route).iter().map(u16::to_string))
            .collect::<Vec<_>>()
            .join(", "),
        curl,
    }
}
