//! The OpenAPI 3.1 document, made from one table of routes. The same table is what the tests of roles
//! and of the three doors go through, so that no route exists that they do not know.

mod limits;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use axum::http::{HeaderMap, Method};
use bytes::Bytes;
use rules::permissions::Permission;
use serde_json::{Value, json};

use super::replay;
use super::responses::{self, ApiResult};

/// Who may call a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Needs no sign-in.
    Nothing,
    /// Any signed-in user.
    SignIn,
    /// Callers with this permission: by role, and by a token with this scope.
    Verb(Permission),
}

/// One route.
#[derive(Debug, Clone, Copy)]
pub struct DocumentedRoute {
    pub method: &'static str,
    /// Below the host, parameters in braces.
    pub path: &'static str,
    /// Name of the operation in generated clients.
    pub operation: &'static str,
    pub tag: &'static str,
    pub summary: &'static str,
    pub needs: Needs,
    /// `name: what it is` of each word of the query.
    pub query: &'static [(&'static str, &'static str)],
    pub body: Option<&'static str>,
    /// Status of success.
    pub status: u16,
    pub answer: SuccessReply,
    /// What `?dry_run=true` answers with status 200, where the route has it.
    pub dry_run: Option<SuccessReply>,
    /// Statuses of the refusals that belong to this route besides 401, 403 and 503.
    pub refusals: &'static [u16],
}

/// What a success says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuccessReply {
    Schema(&'static str),
    /// A schema, or comma-separated values where `Accept` asks for them.
    SchemaOrCsv(&'static str),
    /// One of two schemas.
    Either(&'static str, &'static str),
    /// JSON of no fixed shape.
    Json,
    Text,
    /// Metrics in the format of OpenMetrics.
    Figures,
    /// A file of one of these media types.
    File(&'static [&'static str]),
    /// A stream of server-sent events.
    Events,
    /// The connection becomes a WebSocket with this subprotocol.
    Socket(&'static str),
    Nothing,
}

pub mod routes;

pub use routes::ROUTES;

/// The document, as it is served and committed.
pub fn document() -> Value {
    let mut paths = serde_json::Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_ascii_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "fardel",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "A private AI cloud for one machine.",
            "description": "Ids are UUIDv7, times RFC 3339 in UTC, sizes bytes, shares of cores and \
                devices numbers with at most two decimals. Refusals are RFC 9457 problem documents \
                with a stable `code`. A session may be named by its id, a unique beginning of it, or \
                its name. POST takes an `Idempotency-Key`: the same key and body act once.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}, {"cookie": []}],
        "tags": [
            {"name": "sessions", "description": "Launch, watch and change sessions."},
            {"name": "streams", "description": "Terminals, commands, logs and ports of sessions."},
            {"name": "gpus", "description": "Devices, and who has which share of them."},
            {"name": "images", "description": "Environments and how they come in."},
            {"name": "users", "description": "Accounts, sign-in and tokens."},
            {"name": "apps", "description": "Programs in a session that are opened in a browser."},
            {"name": "folders", "description": "Directories that outlive sessions, and that sessions mount."},
            {"name": "tenancy", "description": "Domains, projects, members, roles, rosters, invitations and policies."},
            {"name": "system", "description": "The machine as a whole, and probes."},
        ],
        "paths": paths,
        "components": {
            "schemas": components(),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "__Host-Http-fardel"},
            },
        },
    })
}

fn components() -> Value {
    let mut components = Value::Object(api::schema::all());
    limits::add(&mut components);
    components
}

fn operation(route: &DocumentedRoute) -> Value {
    let parameter = |kind: &str, name: &str, required: bool| {
        json!({
            "name": name, "in": kind, "required": required,
            "schema": limits::parameter(route.path, name),
        })
    };
    let mut parameters: Vec<Value> = route
        .path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| parameter("path", name, true))
        .collect();
    parameters.extend(route.query.iter().map(|(name, about)| {
        let required = matches!(
            (route.operation, *name),
            ("revokeGrant", "role")
                | ("detachPolicy", "level")
                | (
                    "readFolderFile"
                        | "readFolderSnapshotFile"
                        | "readFolderText"
                        | "writeFolderFile",
                    "path"
                )
        );
        let mut parameter = parameter("query", name, required);
        parameter["description"] = (*about).into();
        parameter
    }));
    if keyed(route) {
        parameters.push(parameter("header", "Idempotency-Key", false));
    }
    if route.refusals.contains(&428) {
        // A file is written as a new one, too.
        let is_file = route.operation == "writeFolderFile";
        let mut version = parameter("header", "If-Match", !is_file);
        version["description"] = "the ETag of a GET, or * to overwrite".into();
        parameters.push(version);
        if is_file {
            let mut fresh = parameter("header", "If-None-Match", false);
            fresh["description"] = "*: nothing has this name yet".into();
            parameters.push(fresh);
            let mut digest = parameter("header", "Content-Digest", false);
            digest["description"] = "sha-256=:BASE64: of the body (RFC 9530)".into();
            parameters.push(digest);
        }
    }
    let of_an_upload = route.path.contains("/uploads");
    if route.refusals.contains(&412)
        && !route.refusals.contains(&428)
        && !of_an_upload
        && !route.query.iter().any(|(name, _)| *name == "digest")
    {
        let mut version = parameter("header", "If-Match", false);
        version["description"] = "the ETag of a GET: refuse where it changed since".into();
        parameters.push(version);
    }
    if route.refusals.contains(&412) && of_an_upload {
        parameters.push(parameter("header", "Tus-Resumable", true));
    }
    match route.operation {
        "createUpload" => parameters.push(parameter("header", "Upload-Length", true)),
        "createFolderUpload" => {
            parameters.push(parameter("header", "Upload-Length", true));
            let mut words = parameter("header", "Upload-Metadata", true);
            words["description"] = "filename, path (the directory), overwrite and mtime (in \
                milliseconds), each with its value in base64"
                .into();
            parameters.push(words);
        }
        "appendUpload" | "appendFolderUpload" => {
            parameters.push(parameter("header", "Upload-Offset", true));
        }
        _ => {}
    }
    let mut responses = serde_json::Map::new();
    responses.insert(route.status.to_string(), success(route.answer));
    if let Some(dry) = route.dry_run {
        let mut answer = success(dry);
        if route.status == 200
            && let (Some(real), Some(all)) = (
                success(route.answer)["content"].as_object(),
                answer["content"].as_object_mut(),
            )
        {
            all.extend(real.clone());
        }
        responses.insert("200".to_owned(), answer);
    }
    if route.operation == "readFolderFile" {
        let checksum = json!({"schema": reference("FolderChecksum")});
        responses["200"]["content"]["application/json"] = checksum;
    }
    if route.operation == "writeFolderFile" {
        responses.insert("201".to_owned(), success(route.answer));
    }
    for status in refusals(route) {
        responses.insert(
            status.to_string(),
            json!({
                "description": "Refused; `code` says why and `hint` what would work.",
                "content": {"application/problem+json": {"schema": reference("Problem")}},
            }),
        );
    }
    let mut operation = json!({
        "operationId": route.operation,
        "tags": [route.tag],
        "summary": route.summary,
        "parameters": parameters,
        "responses": responses,
    });
    if let Some(body) = route.body {
        let kind = if route.method == "PATCH" {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let required = match route.method {
            // Others change nothing without a body; a domain is given a title.
            "PATCH" => body == "DomainPatch",
            _ => !matches!(
                body,
                "StopRequest"
                    | "CordonRequest"
                    | "DrainRequest"
                    | "TestRequest"
                    | "Preferences"
                    | "LaunchRequest"
                    | "NewInvitation"
                    | "NewSignInLink"
                    | "DepartureRequest"
                    | "CertificateRequest"
                    | "CertificateReset"
            ),
        };
        let schema = match route.operation {
            // A dry run of the same body needs no name.
            "createIdleRule" => json!({"allOf": [reference(body), {"required": ["name"]}]}),
            _ => reference(body),
        };
        operation["requestBody"] = json!({
            "required": required,
            "content": {kind: {"schema": schema}},
        });
    }
    if route.operation == "applyRoster" {
        operation["requestBody"] = json!({
            "required": true,
            "content": {"text/csv": {"schema": {"type": "string", "format": "binary"}}},
        });
    }
    if route.operation == "writeFolderFile" {
        operation["requestBody"] = json!({
            "required": true,
            "content": {
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            },
        });
    }
    if ["appendUpload", "appendFolderUpload", "createFolderUpload"].contains(&route.operation) {
        operation["requestBody"] = json!({
            "required": route.method == "PATCH",
            "content": {
                "application/offset+octet-stream": {"schema": {"type": "string", "format": "binary"}},
            },
        });
    }
    match route.needs {
        Needs::Nothing => operation["security"] = json!([]),
        Needs::SignIn => {}
        Needs::Verb(verb) => operation["x-scope"] = verb.word().into(),
    }
    operation
}

fn keyed(route: &DocumentedRoute) -> bool {
    route.method == "POST" && replay::takes_a_key(route.path)
}

/// Every status below 500 that a refusal of this route may have, and 503 where the route has it.
pub fn refusals(route: &DocumentedRoute) -> BTreeSet<u16> {
    let mut refusals: BTreeSet<u16> = route.refusals.iter().copied().collect();
    // A Host header that is none.
    refusals.insert(400);
    if route.needs != Needs::Nothing {
        refusals.extend([401, 403]);
    }
    if keyed(route) {
        // The key is malformed, is in use by a request under way, or was used with another body.
        refusals.extend([409, 422]);
    }
    if route.body.is_some() {
        refusals.extend([413, 415, 422]);
    }
    refusals
}

fn success(answer: SuccessReply) -> Value {
    let content = match answer {
        SuccessReply::Schema(name) => json!({"application/json": {"schema": reference(name)}}),
        SuccessReply::SchemaOrCsv(name) => json!({
            "application/json": {"schema": reference(name)},
            "text/csv": {"schema": {"type": "string"}},
        }),
        SuccessReply::Either(one, other) => json!({
            "application/json": {"schema": {"oneOf": [reference(one), reference(other)]}},
        }),
        SuccessReply::Json => json!({"application/json": {"schema": {}}}),
        SuccessReply::File(kinds) => kinds
            .iter()
            .map(|kind| {
                let file = json!({"schema": {"type": "string", "format": "binary"}});
                ((*kind).to_owned(), file)
            })
            .collect(),
        SuccessReply::Figures => {
            json!({"application/openmetrics-text": {"schema": {"type": "string"}}})
        }
        SuccessReply::Text => json!({"text/plain": {"schema": {"type": "string"}}}),
        SuccessReply::Events => json!({"text/event-stream": {"schema": {"type": "string"}}}),
        SuccessReply::Socket(protocol) => {
            return json!({"description": format!("A WebSocket with the subprotocol {protocol}.")});
        }
        SuccessReply::Nothing => return json!({"description": "Done."}),
    };
    json!({"description": "Done.", "content": content})
}

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

/// The method of a row, for those who call it.
pub fn method(route: &DocumentedRoute) -> Method {
    route
        .method
        .parse()
        .expect("the methods of the table are methods of HTTP")
}

/// The document as it is sent, and its entity tag: made once, and one copy for every answer under way.
static WRITTEN: LazyLock<(Bytes, String)> = LazyLock::new(|| {
    let text = document().to_string();
    let tag = responses::digest(&text);
    (text.into(), tag)
});

pub(super) async fn serve(headers: HeaderMap) -> ApiResult {
    let (text, tag) = &*WRITTEN;
    responses::finished(&headers, text.clone(), tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_that_is_made_needs_a_name_and_one_that_is_tried_does_not() {
        let document = document();
        let names = |path: &str| {
            let body = &document["paths"][path]["post"]["requestBody"];
            let schema = body["content"]["application/json"]["schema"].to_string();
            schema.contains("\"name\"")
        };
        assert!(names("/api/v1/idle-rules"));
        assert!(!names("/api/v1/idle-rules/dry-run"));
    }

    #[test]
    fn an_answer_without_content_has_no_shape() {
        for route in ROUTES.iter().filter(|route| route.status == 204) {
            assert_eq!(route.answer, SuccessReply::Nothing, "{}", route.operation);
        }
    }

    /// Where no body is sent, an empty object is read.
    #[test]
    fn a_body_is_needed_where_a_field_of_it_is() {
        let document = document();
        let mut tried = 0;
        for route in ROUTES {
            let Some(body) = route.body else { continue };
            let method = route.method.to_ascii_lowercase();
            let required = &document["components"]["schemas"][body]["required"];
            if required.as_array().is_some_and(|names| !names.is_empty()) {
                let sent = &document["paths"][route.path][method]["requestBody"];
                assert_eq!(sent["required"], true, "{}", route.operation);
                tried += 1;
            }
        }
        assert!(tried > 20, "only {tried} bodies need a field");
    }
}
