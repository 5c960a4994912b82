//! Idempotency keys on every POST that acts: the first answer is kept and given again, and the act goes on to
//! its end when the client goes away. Never decides what a request means; launches, accounts and imports keep
//! theirs inside their own commit instead.

use axum::body::{Body, to_bytes};
use axum::extract::{FromRequestParts as _, MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use rules::refusals;
use server::actions::replay::{self, KeyPermit, KeyUse, RecordedAnswer};

use super::authentication::ApiCaller;
use super::middleware::too_large;
use super::{ApiContext, MAX_JSON_BYTES, MAX_ROSTER_BYTES, MAX_TEXT_BODY_BYTES, body, responses};
use crate::doors::problem::ProblemResponse;

/// Routes that keep their answer in the commit that acts.
const IN_THEIR_COMMIT: [&str; 5] = [
    "/sessions",
    "/users",
    "/environments/import",
    "/images/import",
    "/images/pull",
];
/// Routes without a sign-in, one that changes nothing and answers a file, and one whose acts have ids of their own.
const NEVER: [&str; 4] = [
    "/sign-in",
    "/setup",
    "/support-bundles",
    "/sessions/{id}/execute",
];
/// Routes whose answer is a secret: it is shown once, and the key tells only that it was.
const SECRET: [&str; 10] = [
    "/me/second-factor",
    "/me/second-factor/confirm",
    "/me/second-factor/recovery-codes",
    "/me/tokens",
    "/me/keys",
    "/rosters",
    "/setup/link",
    "/projects/{id}/invitations",
    "/users/{id}/sign-in-link",
    "/webhooks",
];
/// Routes whose body holds a password or a code.
const PASSWORDS: [&str; 8] = [
    "/users/{id}/password",
    "/rosters",
    "/me/password",
    "/me/second-factor",
    "/me/second-factor/confirm",
    "/me/second-factor/recovery-codes",
    "/me/second-factor/remove",
    "/invitations/accept",
];
/// Headers that say what a request means, as its body does: an upload is all in its headers.
const MEANT: [&str; 5] = [
    "if-match",
    "tus-resumable",
    "upload-checksum",
    "upload-length",
    "upload-metadata",
];
/// Headers that belong to an answer.
const KEPT: [&str; 6] = [
    "content-type",
    "location",
    "etag",
    "tus-resumable",
    "upload-expires",
    "upload-offset",
];

/// Whether a POST to this path takes an Idempotency-Key.
pub(super) fn takes_a_key(path: &str) -> bool {
    !NEVER.contains(&path.strip_prefix("/api/v1").unwrap_or(path))
}

/// Middleware: acts once for each key.
pub(super) async fn once(State(api): State<ApiContext>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>();
    let route = path.map_or("", |path| {
        let path = path.as_str();
        path.strip_prefix("/api/v1").unwrap_or(path)
    });
    let plain = *request.method() != Method::POST
        || !request.headers().contains_key("idempotency-key")
        || IN_THEIR_COMMIT.contains(&route)
        || NEVER.contains(&route);
    if plain {
        return next.run(request).await;
    }
    let sort = Sort {
        secret: SECRET.contains(&route),
        password: PASSWORDS.contains(&route),
    };
    match act(api, request, next, sort).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

/// What a route has to do with secrets.
struct Sort {
    /// Its answer is one.
    secret: bool,
    /// Its body holds one.
    password: bool,
}

async fn act(
    api: ApiContext,
    request: Request,
    next: Next,
    sort: Sort,
) -> Result<Response, ProblemResponse> {
    let (mut parts, sent) = request.into_parts();
    let ApiCaller(caller) = ApiCaller::from_request_parts(&mut parts, &api).await?;
    let most = match parts.uri.path() {
        "/rosters" | "/api/v1/rosters" => MAX_ROSTER_BYTES,
        path if path.ends_with("/text") && path.contains("/folders/") => MAX_TEXT_BODY_BYTES,
        _ => MAX_JSON_BYTES,
    };
    let sent = to_bytes(sent, most).await.map_err(|_| too_large())?;
    // What is asked in the address belongs to the request as its body does.
    let mut meant = sent.to_vec();
    if let Some(query) = parts.uri.query() {
        meant.push(b'?');
        meant.extend(query.as_bytes());
    }
    for name in MEANT {
        for value in parts.headers.get_all(name) {
            meant.extend([b"\n", name.as_bytes(), b": ", value.as_bytes()].concat());
        }
    }
    let Some(key) = body::key(&parts.method, &parts.uri, &parts.headers, &meant) else {
        return Ok(next.run(Request::from_parts(parts, Body::from(sent))).await);
    };
    let key = if sort.password {
        key.blinded(&api.server)
    } else {
        key
    };
    let request = Request::from_parts(parts, Body::from(sent));
    let (server, of) = (api.server.clone(), caller.clone());
    replay::complete(&server, &of, async move {
        match replay::first(&api.server, &caller, key)? {
            KeyUse::Act(turn) => kept(turn, request, next, sort).await,
            KeyUse::Again(first) => again(first, sort.secret),
        }
    })
    .await
}

/// Acts, and keeps the answer.
async fn kept(
    turn: KeyPermit,
    request: Request,
    next: Next,
    sort: Sort,
) -> Result<Response, ProblemResponse> {
    let response = next.run(request).await;
    if !response.status().is_success() {
        // A refusal leaves the key free.
        return Ok(response);
    }
    let (parts, answered) = response.into_parts();
    let answered = to_bytes(answered, usize::MAX).await.unwrap_or_default();
    let text = |name: &str| parts.headers.get(name)?.to_str().ok().map(str::to_owned);
    let kept = RecordedAnswer {
        status: parts.status.as_u16(),
        headers: KEPT
            .iter()
            .filter_map(|name| Some((name.to_string(), text(name)?)))
            .collect(),
        body: String::from_utf8(answered.to_vec())
            .ok()
            .filter(|_| !sort.secret),
    };
    turn.keep(kept).await?;
    Ok(Response::from_parts(parts, Body::from(answered)))
}

fn again(first: RecordedAnswer, secret: bool) -> Result<Response, ProblemResponse> {
    let Some(body) = first.body else {
        return Err(if secret {
            refusals::idempotency_secret_shown()
        } else {
            refusals::idempotency_answer_gone()
        }
        .into());
    };
    let status = StatusCode::from_u16(first.status).unwrap_or(StatusCode::OK);
    let mut response = (status, body).into_response();
    response.headers_mut().remove(header::CONTENT_TYPE);
    for (name, value) in first.headers {
        if let (Ok(name), Ok(value)) = (
            HeaderName::try_from(name.as_str()),
            HeaderValue::try_from(value),
        ) {
            response.headers_mut().insert(name, value);
        }
    }
    Ok(responses::replayed(response, true))
}
