//! What people and programs meet: pages, REST, the registry, command line, SSH, the ways into a session and out of it.
//! Never decides anything: a door parses, calls `server::actions`, and shows the answer.

pub mod admission;
pub mod api;
pub mod bench;
pub mod body;
pub mod cli;
pub mod console;
pub mod csv;
pub mod download;
pub mod host;
pub mod inner_door;
pub mod launch_texts;
pub mod listener;
pub mod origin;
pub mod pages;
pub mod peer;
pub mod problem;
pub mod proxy;
pub mod registry;
pub mod ssh;
pub mod text;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use base::link::streams::Streams;
use server::Server;
use tower::{ServiceExt as _, service_fn};

/// Every route of every door. The console's own fallback answers for addresses that no route has.
pub fn router(server: Server, streams: Arc<dyn Streams>) -> Router {
    let host = machine_name();
    let api = api::router(server.clone(), streams.clone());
    let console =
        registry::router(server.clone()).merge(pages::router(server, streams, &host, reference));
    Router::new().fallback_service(service_fn(move |request: Request| {
        let door = match api::serves(request.uri().path()) {
            true => api.clone(),
            false => console.clone(),
        };
        door.oneshot(request)
    }))
}

/// What the machine calls itself; `fardel` where it does not say.
fn machine_name() -> String {
    nix::unistd::gethostname()
        .ok()
        .and_then(|name| name.into_string().ok())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "fardel".to_owned())
}

/// What `fardel why` prints, for the test that compares it with the pages.
#[cfg(test)]
pub(crate) fn why_text(said: &rules::placement::Explanation) -> String {
    cli::why_text(said)
}

/// The REST API as its pages show it: operations by noun, in the order of the table, and schemas by name.
pub(crate) fn reference() -> pages::reference::ApiReference {
    let document = api::openapi::document();
    let mut groups: Vec<pages::reference::OperationGroup> = Vec::new();
    for route in api::openapi::ROUTES {
        let shown = shown(route, &document);
        match groups.iter_mut().find(|group| group.name == route.tag) {
            Some(group) => group.operations.push(shown),
            None => groups.push(pages::reference::OperationGroup {
                name: route.tag.to_owned(),
                operations: vec![shown],
            }),
        }
    }
    pages::reference::ApiReference {
        groups,
        schemas: pages::reference::schemas(&document),
    }
}

fn shown(
    route: &api::openapi::DocumentedRoute,
    document: &serde_json::Value,
) -> pages::reference::OperationEntry {
    use api::openapi::{Needs, SuccessReply};
    use pages::reference::AnswerKind;
    let other = |kind: &str| vec![AnswerKind::Other(kind.to_owned())];
    let schema = |name: &str| AnswerKind::Schema(name.to_owned());
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
            SuccessReply::Schema(name) => vec![schema(name)],
            SuccessReply::SchemaOrCsv(name) => {
                vec![schema(name), AnswerKind::Other("text/csv".to_owned())]
            }
            SuccessReply::Either(one, another) => vec![schema(one), schema(another)],
            SuccessReply::Json => other("JSON"),
            SuccessReply::File(kinds) => kinds.iter().copied().flat_map(other).collect(),
            SuccessReply::Text => other("text/plain"),
            SuccessReply::Figures => other("application/openmetrics-text"),
            SuccessReply::Events => other("text/event-stream"),
            SuccessReply::Socket(protocol) => other(&format!("WebSocket {protocol}")),
            SuccessReply::Nothing => Vec::new(),
        },
        statuses: std::iter::once(route.status.to_string())
            .chain(api::openapi::refusals(route).iter().map(u16::to_string))
            .collect::<Vec<_>>()
            .join(", "),
        curl: curl(route, document),
    }
}

/// A request that can be pasted into a shell: token and server come from variables, so do the parts of the path.
fn curl(route: &api::openapi::DocumentedRoute, document: &serde_json::Value) -> String {
    let mut lines = vec!["curl".to_owned()];
    if route.method != "GET" {
        lines[0].push_str(&format!(" -X {}", route.method));
    }
    if route.needs != api::openapi::Needs::Nothing {
        lines.push("-H \"Authorization: Bearer $FARDEL_TOKEN\"".to_owned());
    }
    if let Some(name) = route.body {
        let schema = &document["components"]["schemas"][name];
        lines.push("-H 'Content-Type: application/json'".to_owned());
        lines.push(format!("-d '{}'", example(name, schema, document)));
    }
    let path = route.path.split('/').map(|part| {
        let parameter = part.strip_prefix('{').and_then(|p| p.strip_suffix('}'));
        parameter.map_or_else(
            || part.to_owned(),
            |p| format!("${}", p.to_ascii_uppercase()),
        )
    });
    let path = path.collect::<Vec<_>>().join("/");
    lines.push(format!("\"$FARDEL_SERVER{path}\""));
    lines.join(" \\\n  ")
}

/// A body that shows what is usual: written here where a schema needs nothing, else the fields that it needs.
fn example(name: &str, schema: &serde_json::Value, document: &serde_json::Value) -> String {
    match name {
        "LaunchRequest" => r#"{"image":"host","kind":"batch","command":["python3","train.py"],"resources":{"cpu":2,"memory":8589934592}}"#.to_owned(),
        "SessionPatch" => r#"{"name":"train-2"}"#.to_owned(),
        "Preferences" => r#"{"time_zone":"Asia/Seoul"}"#.to_owned(),
        _ => {
            let required = schema["required"].as_array().into_iter().flatten();
            let fields = required.filter_map(serde_json::Value::as_str);
            let body: serde_json::Map<String, serde_json::Value> = fields
                .map(|field| (field.to_owned(), sample(&schema["properties"][field], document)))
                .collect();
            serde_json::Value::Object(body).to_string()
        }
    }
}

/// A value of that kind.
fn sample(schema: &serde_json::Value, document: &serde_json::Value) -> serde_json::Value {
    use serde_json::json;
    if let Some(place) = schema["$ref"].as_str() {
        let named = document.pointer(place.trim_start_matches('#'));
        return named.map_or(json!({}), |named| sample(named, document));
    }
    if let Some(first) = schema["enum"].as_array().and_then(|words| words.first()) {
        return first.clone();
    }
    let kind = match &schema["type"] {
        serde_json::Value::Array(kinds) => kinds.first().cloned().unwrap_or_default(),
        kind => kind.clone(),
    };
    match kind.as_str() {
        Some("integer" | "number") => schema["minimum"].clone().as_u64().unwrap_or(1).into(),
        Some("boolean") => true.into(),
        Some("array") => json!([sample(&schema["items"], document)]),
        Some("object") => json!({}),
        _ => "…".into(),
    }
}
