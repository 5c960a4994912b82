//! The registry below /v2: what docker, podman and skopeo push and pull, as the OCI distribution specification 1.1 and Docker's
//! HTTP API V2 have it. Callers prove themselves by user name and token, never by a cookie. Decides nothing about who may have
//! an image.

mod path;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use rules::codes as known;
use rules::names::UploadId;
use rules::refusal::{Refusal, RefusalKind};
use rules::refusals;
use rules::registry::{ImageTag, range_begin};
use serde::Deserialize;
use server::Server;
use server::access::{self, Caller, lease};
use server::actions::images::registry;
use tower_http::catch_panic::CatchPanicLayer;

use super::admission;
use super::body::BodyPieces;
use super::download;
use super::origin;
use super::peer::Peer;
use super::problem::{self, ProblemResponse};
use super::text::{Language, Text, codes};
use path::RegistryPath;

/// Most bytes of a manifest.
const MAX_MANIFEST_BYTES: usize = 4 << 20;
/// One piece of a blob on its way to disk. Higher: more memory an upload. Lower: more turns of a thread.
const PIECE: usize = 4 << 20;
/// Names on one page of a list, where the client asks for no fewer.
const MAX_NAMES: usize = 1000;

/// What every request has.
#[derive(Clone)]
struct RegistryDoor {
    server: Server,
}

/// What stands behind the question mark.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RegistryQuery {
    digest: Option<String>,
    mount: Option<String>,
    from: Option<String>,
    n: Option<usize>,
    last: Option<String>,
}

type RegistryResult = Result<Response, ProblemResponse>;

/// Every route of the registry.
pub fn router(server: Server) -> Router {
    Router::new()
        .route("/v2", any(serve))
        .route("/v2/", any(serve))
        .route("/v2/{*path}", any(serve))
        .layer(CatchPanicLayer::new())
        .with_state(RegistryDoor { server })
}

/// Answers one request, as part of which what it does is written down.
async fn serve(State(door): State<RegistryDoor>, request: Request) -> Response {
    let id = uuid::Uuid::now_v7().to_string();
    let source = peer(request.extensions()).address();
    let act = problem::act(&request);
    let language = request
        .headers()
        .get(header::ACCEPT_LANGUAGE)
        .and_then(|value| value.to_str().ok())
        .map_or(Language::English, Language::accepted);
    let answered = async {
        match handle(&door, request, &id).await {
            Ok(response) => response,
            Err(problem) => {
                if let Some(act) = &act
                    && problem.status.is_client_error()
                {
                    access::refused(&door.server, act, &problem.refusal.code);
                }
                refused(&problem, language)
            }
        }
    };
    let response = access::as_request(source, &id, answered).await;
    let response = with_header(response, "docker-distribution-api-version", "registry/2.0");
    let response = with_header(response, "cache-control", "private, no-cache");
    let response = with_header(response, "x-content-type-options", "nosniff");
    with_header(response, "x-request-id", &id)
}

async fn handle(door: &RegistryDoor, request: Request, id: &str) -> RegistryResult {
    let (parts, body) = request.into_parts();
    let mut caller = prove(door, &parts).await?;
    id.clone_into(&mut caller.request);
    // A browser that was asked for a name and a token sends them by itself, wherever a page leads it.
    origin::check(&parts.method, &parts.headers)?;
    registry::enter(&caller)?;
    let path = RegistryPath::parse(parts.uri.path()).ok_or_else(refusals::path_unknown)?;
    let query: RegistryQuery = Query::try_from_uri(&parts.uri)
        .map(|query| query.0)
        .map_err(|_| refusals::request_malformed())?;
    let visit = RegistryVisit {
        server: &door.server,
        caller,
        headers: &parts.headers,
        is_head: parts.method == Method::HEAD,
        query,
    };
    let method = match parts.method == Method::HEAD {
        true => Method::GET,
        false => parts.method.clone(),
    };
    match (path, method) {
        (RegistryPath::Ping, Method::GET) => Ok(json(StatusCode::OK, "{}".to_owned())),
        (RegistryPath::Catalog, Method::GET) => visit.catalog().await,
        (RegistryPath::Tags(name), Method::GET) => visit.tags(name).await,
        (RegistryPath::Manifest(name, tag), Method::GET) => visit.manifest(name, tag).await,
        (RegistryPath::Manifest(name, tag), Method::PUT) => visit.push(name, tag, body).await,
        (RegistryPath::Manifest(name, tag), Method::DELETE) => visit.remove(name, tag).await,
        (RegistryPath::Blob(name, digest), Method::GET) => visit.blob(name, digest).await,
        (RegistryPath::Uploads(name), Method::POST) => visit.begin(name, body).await,
        (RegistryPath::Upload(name, upload), method) => match method {
            Method::GET => visit.offset(name, upload).await,
            Method::PATCH => visit.append(name, upload, body).await,
            Method::PUT => visit.finish(name, upload, body).await,
            Method::DELETE => visit.cancel(name, upload).await,
            _ => Err(unsupported()),
        },
        _ => Err(unsupported()),
    }
}

/// One request of a proven caller.
struct RegistryVisit<'a> {
    server: &'a Server,
    caller: Caller,
    headers: &'a HeaderMap,
    is_head: bool,
    query: RegistryQuery,
}

impl RegistryVisit<'_> {
    async fn catalog(&self) -> RegistryResult {
        let names = registry::repositories(self.server, &self.caller).await?;
        let (names, next) = self.page(names);
        let body = serde_json::json!({ "repositories": names }).to_string();
        Ok(self.linked(json(StatusCode::OK, body), "/v2/_catalog", next))
    }

    async fn tags(&self, name: &str) -> RegistryResult {
        let tags = registry::tags(self.server, &self.caller, name).await?;
        let (tags, next) = self.page(tags);
        let body = serde_json::json!({ "name": name, "tags": tags }).to_string();
        let path = format!("/v2/{name}/tags/list");
        Ok(self.linked(json(StatusCode::OK, body), &path, next))
    }

    /// The names behind the last one that the client has, and whether more follow.
    fn page(&self, mut names: Vec<String>) -> (Vec<String>, Option<String>) {
        if let Some(last) = &self.query.last {
            names.retain(|name| name > last);
        }
        let most = self.query.n.unwrap_or(MAX_NAMES).min(MAX_NAMES);
        let has_more = names.len() > most;
        names.truncate(most);
        let next = names.last().filter(|_| has_more).cloned();
        (names, next)
    }

    fn linked(&self, response: Response, path: &str, next: Option<String>) -> Response {
        let Some(next) = next else {
            return response;
        };
        let count = self.query.n.unwrap_or(MAX_NAMES).min(MAX_NAMES);
        let link = format!("<{path}?n={count}&last={next}>; rel=\"next\"");
        with_header(response, "link", &link)
    }

    async fn manifest(&self, name: &str, tag: &str) -> RegistryResult {
        let which = ImageTag::parse(tag)?;
        let found = registry::manifest(self.server, &self.caller, name, &which).await?;
        let length = found.body.len();
        let body = match self.is_head {
            true => Body::empty(),
            false => Body::from(found.body),
        };
        let response = (StatusCode::OK, body).into_response();
        let response = with_header(response, "content-type", &found.media_type);
        let response = with_header(response, "content-length", &length.to_string());
        let response = with_header(response, "etag", &format!("\"{}\"", found.digest));
        Ok(with_header(
            response,
            "docker-content-digest",
            &found.digest,
        ))
    }

    async fn blob(&self, name: &str, digest: &str) -> RegistryResult {
        let found = registry::blob(self.server, &self.caller, name, digest).await?;
        let asked = self
            .headers
            .get(header::RANGE)
            .and_then(|value| value.to_str().ok());
        let range = asked.and_then(|asked| download::parsed_range(asked, found.bytes));
        let (status, from, length) = match range {
            None => (StatusCode::OK, 0, found.bytes),
            Some(Some((from, length))) => (StatusCode::PARTIAL_CONTENT, from, length),
            Some(None) => {
                let refusal = refusals::folder_range(found.bytes);
                let status = StatusCode::RANGE_NOT_SATISFIABLE;
                return Err(ProblemResponse::with_status(refusal, status));
            }
        };
        let body = match self.is_head {
            true => Body::empty(),
            false => {
                let lease = lease(self.server, &self.caller);
                download::part(found.file, from, length, lease)
            }
        };
        let response = (status, body).into_response();
        let response = with_header(response, "content-type", "application/octet-stream");
        let response = with_header(response, "content-length", &length.to_string());
        let response = with_header(response, "accept-ranges", "bytes");
        let response = with_header(response, "docker-content-digest", digest);
        Ok(match status {
            StatusCode::PARTIAL_CONTENT => {
                let part = format!("bytes {from}-{}/{}", from + length - 1, found.bytes);
                with_header(response, "content-range", &part)
            }
            _ => response,
        })
    }

    async fn push(&self, name: &str, tag: &str, body: Body) -> RegistryResult {
        let which = ImageTag::parse(tag)?;
        let kind = self.headers.get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let mut lease = lease(self.server, &self.caller);
        let body = tokio::select! {
            biased;
            refusal = &mut lease => return Err(refusal.into()),
            body = to_bytes(body, MAX_MANIFEST_BYTES) => body,
        };
        let body = body
            .map_err(|_| refusals::registry_manifest_invalid("it is too long, or was cut off"))?;
        let pushed =
            registry::push_manifest(self.server, &self.caller, name, &which, kind, body).await?;
        let location = format!("/v2/{name}/manifests/{pushed}");
        let response = with_header(empty(StatusCode::CREATED), "location", &location);
        Ok(with_header(response, "docker-content-digest", &pushed))
    }

    /// Blobs go by themselves, so none is removed by the protocol.
    async fn remove(&self, name: &str, tag: &str) -> RegistryResult {
        let which = ImageTag::parse(tag)?;
        registry::remove_manifest(self.server, &self.caller, name, &which).await?;
        Ok(empty(StatusCode::ACCEPTED))
    }

    /// Begins an upload, or takes a blob of another repository, or a whole blob at once.
    async fn begin(&self, name: &str, body: Body) -> RegistryResult {
        if let (Some(digest), Some(from)) = (&self.query.mount, &self.query.from)
            && registry::mount(self.server, &self.caller, name, from, digest).await?
        {
            return Ok(kept(name, digest));
        }
        let id = registry::begin_upload(self.server, &self.caller, name).await?;
        match &self.query.digest {
            None => Ok(under_way(StatusCode::ACCEPTED, name, id, 0)),
            Some(digest) => {
                self.take(name, id, Some(0), body).await?;
                self.finished(name, id, digest).await
            }
        }
    }

    async fn offset(&self, name: &str, upload: &str) -> RegistryResult {
        let id = upload_id(upload)?;
        let at = registry::upload_offset(self.server, &self.caller, name, id).await?;
        Ok(under_way(StatusCode::NO_CONTENT, name, id, at))
    }

    async fn append(&self, name: &str, upload: &str, body: Body) -> RegistryResult {
        let id = upload_id(upload)?;
        let offset = self.begin_of_piece()?;
        let at = self.take(name, id, offset, body).await?;
        Ok(under_way(StatusCode::ACCEPTED, name, id, at))
    }

    async fn finish(&self, name: &str, upload: &str, body: Body) -> RegistryResult {
        let id = upload_id(upload)?;
        let digest = self.query.digest.as_deref().unwrap_or_default();
        let offset = self.begin_of_piece()?;
        self.take(name, id, offset, body).await?;
        self.finished(name, id, digest).await
    }

    async fn finished(&self, name: &str, id: UploadId, digest: &str) -> RegistryResult {
        registry::finish_upload(self.server, &self.caller, name, id, digest).await?;
        Ok(kept(name, digest))
    }

    async fn cancel(&self, name: &str, upload: &str) -> RegistryResult {
        let id = upload_id(upload)?;
        registry::cancel_upload(self.server, &self.caller, name, id).await?;
        Ok(empty(StatusCode::NO_CONTENT))
    }

    /// Where the client says that its piece begins; None where it says nothing.
    fn begin_of_piece(&self) -> Result<Option<u64>, ProblemResponse> {
        let Some(given) = self.headers.get(header::CONTENT_RANGE) else {
            return Ok(None);
        };
        let begin = given.to_str().ok().and_then(range_begin);
        let begin = begin.ok_or_else(refusals::request_malformed)?;
        Ok(Some(begin))
    }

    /// Takes a body in pieces; gives how far the upload then is. What came before is on disk when it breaks off, too.
    async fn take(
        &self,
        name: &str,
        id: UploadId,
        offset: Option<u64>,
        body: Body,
    ) -> Result<u64, ProblemResponse> {
        let lease = lease(self.server, &self.caller);
        let mut pieces = BodyPieces::of(body, lease, PIECE);
        let (mut offset, mut has_come) = (offset, false);
        while let Some(piece) = pieces.piece().await? {
            offset = Some(self.keep(name, id, offset, piece).await?);
            has_come = true;
        }
        // An acknowledged offset survives a power cut: to be told of it waits for the disk.
        let at = registry::upload_offset(self.server, &self.caller, name, id).await?;
        match has_come && !pieces.is_broken() {
            true => Ok(at),
            false => Err(refusals::upload_cut_off().into()),
        }
    }

    async fn keep(
        &self,
        name: &str,
        id: UploadId,
        offset: Option<u64>,
        piece: Bytes,
    ) -> Result<u64, ProblemResponse> {
        let kept = registry::append(self.server, &self.caller, name, id, offset, piece).await;
        Ok(kept?)
    }
}

/// Who calls: the token is the password, and the user name is its owner's.
async fn prove(door: &RegistryDoor, parts: &Parts) -> Result<Caller, ProblemResponse> {
    let given = parts.headers.get(header::AUTHORIZATION);
    let given = given.and_then(|value| value.to_str().ok());
    let (name, token) = given
        .and_then(credentials)
        .ok_or_else(refusals::registry_sign_in_needed)?;
    let address = peer(&parts.extensions).address();
    let caller = access::by_token(&door.server, &token, address).await?;
    let is_owner = |caller: &Caller| match &name {
        Some(name) => *name == caller.name.to_string(),
        None => true,
    };
    let caller = caller
        .filter(is_owner)
        .ok_or_else(refusals::registry_sign_in_needed)?;
    admission::proven(&parts.extensions, caller.subject.user);
    if caller.must_change_password {
        return Err(refusals::password_change_needed().into());
    }
    if caller.must_set_up_second_factor(door.server.clock().now()) {
        return Err(refusals::second_factor_set_up_needed().into());
    }
    Ok(caller)
}

/// The user name, where there is one, and the token of `Authorization`.
fn credentials(header: &str) -> Option<(Option<String>, String)> {
    let (scheme, value) = header.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some((None, value.trim().to_owned()));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(value.trim()).ok()?).ok()?;
    let (name, token) = text.split_once(':')?;
    Some((Some(name.to_owned()), token.to_owned()))
}

fn peer(extensions: &axum::http::Extensions) -> Peer {
    let nowhere = std::net::SocketAddr::from(([0, 0, 0, 0], 0));
    let peer = extensions.get::<Peer>().copied();
    peer.unwrap_or(Peer::Tcp(nowhere))
}

/// What is no id names nothing.
fn upload_id(text: &str) -> Result<UploadId, Refusal> {
    text.parse()
        .map_err(|_| refusals::registry_upload_unknown())
}

fn unsupported() -> ProblemResponse {
    let refusal = refusals::registry_unsupported();
    ProblemResponse::with_status(refusal, StatusCode::METHOD_NOT_ALLOWED)
}

/// How far an upload is, and where it goes on.
fn under_way(status: StatusCode, name: &str, id: UploadId, at: u64) -> Response {
    let location = format!("/v2/{name}/blobs/uploads/{id}");
    // The protocol has no way to say that nothing came; clients take 0-0 for it.
    let range = format!("0-{}", at.saturating_sub(1));
    let response = with_header(empty(status), "location", &location);
    let response = with_header(response, "range", &range);
    with_header(response, "docker-upload-uuid", &id.to_string())
}

/// A blob is here.
fn kept(name: &str, digest: &str) -> Response {
    let location = format!("/v2/{name}/blobs/{digest}");
    let response = with_header(empty(StatusCode::CREATED), "location", &location);
    with_header(response, "docker-content-digest", digest)
}

fn empty(status: StatusCode) -> Response {
    status.into_response()
}

fn json(status: StatusCode, body: String) -> Response {
    with_header(
        (status, body).into_response(),
        "content-type",
        "application/json",
    )
}

/// A refusal as clients of the protocol read it.
fn refused(problem: &ProblemResponse, language: Language) -> Response {
    let status = match problem.refusal.code.as_str() {
        known::REGISTRY_UPLOAD_RANGE => StatusCode::RANGE_NOT_SATISFIABLE,
        _ => problem.status,
    };
    let body = serde_json::json!({
        "errors": [{
            "code": word(&problem.refusal),
            "message": codes::refusal(Text::new(language), &problem.refusal),
            "detail": { "code": problem.refusal.code },
        }],
    });
    let response = json(status, body.to_string());
    let response = match problem.refusal.retry_after_seconds {
        Some(seconds) => with_header(response, "retry-after", &seconds.to_string()),
        None => response,
    };
    match status {
        StatusCode::UNAUTHORIZED => {
            with_header(response, "www-authenticate", "Basic realm=\"fardel\"")
        }
        _ => response,
    }
}

/// The word of the protocol for a refusal. Rule: OCI distribution 1.1, "Error Codes".
fn word(refusal: &Refusal) -> &'static str {
    match refusal.code.as_str() {
        known::REGISTRY_BLOB_UNKNOWN => "BLOB_UNKNOWN",
        known::REGISTRY_MANIFEST_UNKNOWN => "MANIFEST_UNKNOWN",
        known::REGISTRY_MANIFEST_BLOB => "MANIFEST_BLOB_UNKNOWN",
        known::REGISTRY_MANIFEST_INVALID => "MANIFEST_INVALID",
        known::REGISTRY_DIGEST_MISMATCH => "DIGEST_INVALID",
        known::REGISTRY_NAME_INVALID => "NAME_INVALID",
        known::REGISTRY_UPLOAD_UNKNOWN => "BLOB_UPLOAD_UNKNOWN",
        known::REGISTRY_UPLOAD_RANGE | known::REGISTRY_BLOB_TOO_LARGE => "BLOB_UPLOAD_INVALID",
        known::REGISTRY_UNSUPPORTED => "UNSUPPORTED",
        _ => match refusal.kind {
            RefusalKind::Unauthenticated => "UNAUTHORIZED",
            RefusalKind::Denied => "DENIED",
            RefusalKind::NotFound => "NAME_UNKNOWN",
            RefusalKind::TooOften => "TOOMANYREQUESTS",
            RefusalKind::Invalid | RefusalKind::TooLarge => "MANIFEST_INVALID",
            RefusalKind::Malformed
            | RefusalKind::Conflict
            | RefusalKind::Stale
            | RefusalKind::Capacity
            | RefusalKind::Unavailable
            | RefusalKind::FailedDependency => "UNSUPPORTED",
        },
    }
}

fn with_header(mut response: Response, name: &'static str, value: &str) -> Response {
    if let Ok(value) = HeaderValue::from_str(value) {
        let name = HeaderName::from_static(name);
        response.headers_mut().insert(name, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_name_and_a_token_come_in_one_header() {
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        assert_eq!(
            credentials(&basic("kim:fardel_x")),
            Some((Some("kim".to_owned()), "fardel_x".to_owned()))
        );
        assert_eq!(
            credentials("bearer fardel_x"),
            Some((None, "fardel_x".to_owned()))
        );
        for bad in ["Basic", "Basic ???", "Digest x", &basic("kim")] {
            assert_eq!(credentials(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_upload_says_how_far_it_is() {
        let id = UploadId(uuid::Uuid::from_u128(7));
        let response = under_way(StatusCode::ACCEPTED, "lab/tiny", id, 100);
        let header = |name: &str| response.headers()[name].to_str().unwrap_or_default();
        assert_eq!(header("range"), "0-99");
        assert_eq!(
            header("location"),
            format!("/v2/lab/tiny/blobs/uploads/{id}")
        );
    }

    #[test]
    fn refusals_have_the_words_of_the_protocol() {
        for (refusal, expected, status) in [
            (refusals::registry_sign_in_needed(), "UNAUTHORIZED", 401),
            (refusals::registry_blob_unknown(), "BLOB_UNKNOWN", 404),
            (
                refusals::registry_upload_range(5),
                "BLOB_UPLOAD_INVALID",
                416,
            ),
            (
                refusals::registry_manifest_invalid("x"),
                "MANIFEST_INVALID",
                400,
            ),
            (refusals::registry_unsupported(), "UNSUPPORTED", 422),
            (
                refusals::image_too_many_layers(128, 127),
                "MANIFEST_INVALID",
                422,
            ),
        ] {
            assert_eq!(word(&refusal), expected);
            let response = refused(&refusal.into(), Language::English);
            assert_eq!(response.status().as_u16(), status, "{expected}");
        }
    }
}
