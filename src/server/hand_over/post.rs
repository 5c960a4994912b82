//! Posts rows over HTTP/1.1: one connection a batch, no redirect, a status of success for an answer. A body is one line of
//! JSON for each row.

use std::sync::Arc;
use std::time::Duration;

use base::settings::Settings;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use rules::hand_over::posted_trial;
use rules::provider::WebAddress;
use tokio::task::JoinSet;

use super::receiver::{Protection, ReceiverPlan};
use super::{HandOverFault, MAX_HANDING_OVER, MAX_TRIAL};
use crate::catalog::audit::AuditRow;

/// The media type of JSON lines, as most receivers know it.
const KIND: &str = "application/x-ndjson";

/// Posts rows, and ends when the receiver says that it has them.
pub(super) async fn send(settings: &Arc<Settings>, rows: &[AuditRow]) -> Result<(), HandOverFault> {
    let mut body = String::new();
    for row in rows {
        body.push_str(&row.statement);
        body.push('\n');
    }
    post(settings, body, MAX_HANDING_OVER).await?;
    Ok(())
}

/// Posts one line that is a trial; says what came back.
pub(super) async fn tried(settings: &Arc<Settings>) -> Result<String, HandOverFault> {
    let body = format!("{}\n", posted_trial());
    let status = post(settings, body, MAX_TRIAL).await?;
    Ok(format!("status {status}"))
}

/// The status of success. Errors: `HandOverFault::Status` for any other.
async fn post(
    settings: &Arc<Settings>,
    body: String,
    time: Duration,
) -> Result<u16, HandOverFault> {
    let text = settings.audit_to_http.as_deref().unwrap_or_default();
    let address = WebAddress::parse(text.trim()).ok_or(HandOverFault::Address)?;
    let protection = match address.encrypted {
        true => Protection::Tls,
        false => Protection::None,
    };
    let token_file = settings.audit_token_file.clone();
    let ca_file = settings.audit_ca_file.clone();
    let plan = ReceiverPlan::read(protection, ca_file, token_file, time).await?;
    let mut headers = Vec::new();
    if let Some(token) = &plan.token {
        let bearer = format!("Bearer {}", token.reveal());
        headers.push(("authorization", bearer));
    }
    let request = PostedRequest {
        address: &address,
        media_type: KIND,
        headers,
        body,
    };
    posted(&plan, request).await
}

/// A request that is posted to a receiver.
pub(super) struct PostedRequest<'a> {
    pub(super) address: &'a WebAddress,
    pub(super) media_type: &'static str,
    /// Headers besides the usual ones, by their names in small letters.
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: String,
}

/// Posts a request over a connection of its own; gives the status of success. Follows no redirect.
///
/// Errors: `HandOverFault::Status` for any other status.
pub(super) async fn posted(
    plan: &ReceiverPlan,
    asked: PostedRequest<'_>,
) -> Result<u16, HandOverFault> {
    let address = asked.address;
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(address.path.as_str())
        .header(HOST, address.authority())
        .header(USER_AGENT, concat!("fardel/", env!("CARGO_PKG_VERSION")))
        .header(CONTENT_TYPE, asked.media_type);
    for (name, value) in asked.headers {
        request = request.header(name, value);
    }
    // Only a token may hold letters that no header has, and it is not to be said.
    let request = request
        .body(Full::new(Bytes::from(asked.body)))
        .map_err(|_| HandOverFault::File("the token is none".to_owned()))?;
    let stream = plan.open(&address.host, address.port).await?;
    let io = TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
    let mut driver = JoinSet::new();
    driver.spawn(async move {
        // A broken connection shows in the answer that does not come.
        let _ = connection.await;
    });
    let response = sender.send_request(request).await?;
    let status = response.status();
    match status.is_success() {
        true => Ok(status.as_u16()),
        false => Err(HandOverFault::Status(status.as_u16())),
    }
}
