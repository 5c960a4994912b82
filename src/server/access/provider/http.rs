//! Asks a provider over HTTP/1.1: one connection a question, no redirect, answers up to a bound. Knows nothing of what is
//! asked, and no name service: a host is an address, or stands in /etc/hosts.

use std::sync::Arc;

use base::tls::client::server_name;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use rules::provider::WebAddress;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

/// Bytes of one answer. Lists of keys with whole certificates have some 20 KiB.
const MAX_ANSWER_BYTES: usize = 256 << 10;

/// Why a provider gave no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProviderFault {
    #[error("a file of the provider's settings cannot be used: {0}")]
    File(String),
    #[error("the name of the provider's machine is not in /etc/hosts")]
    Unknown,
    #[error("no answer in time")]
    Late,
    #[error("the answer is too long, or was broken off")]
    Body,
    #[error("the provider answered with status {0}")]
    Status(u16),
    #[error("the provider's answer says nothing: {0}")]
    Answer(&'static str),
    #[error(transparent)]
    Connection(#[from] std::io::Error),
    #[error(transparent)]
    Protocol(#[from] hyper::Error),
}

/// How to reach a provider.
pub(super) struct ProviderRoute {
    pub(super) tls: Arc<ClientConfig>,
    /// The text of /etc/hosts.
    pub(super) hosts: String,
}

/// What is posted.
pub(super) struct PostedForm {
    pub(super) body: String,
    /// The header `Authorization`.
    pub(super) authorization: Option<String>,
}

/// The body of an answer with status 200. Errors: `ProviderFault::Status` for any other.
pub(super) async fn ask(
    route: &ProviderRoute,
    address: &WebAddress,
    form: Option<PostedForm>,
) -> Result<Bytes, ProviderFault> {
    let mut request = Request::builder()
        .uri(address.path.as_str())
        .header(HOST, address.authority())
        .header(USER_AGENT, concat!("fardel/", env!("CARGO_PKG_VERSION")))
        .header(ACCEPT, "application/json");
    let mut body = String::new();
    if let Some(form) = form {
        request = request
            .method(Method::POST)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        if let Some(authorization) = form.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        body = form.body;
    }
    let request = request
        .body(Full::new(Bytes::from(body)))
        .map_err(|_| ProviderFault::Answer("its address cannot be asked"))?;
    let stream = connect(route, address).await?;
    if !address.encrypted {
        return speak(stream, request).await;
    }
    let name = server_name(&address.host).ok_or(ProviderFault::Unknown)?;
    let stream = TlsConnector::from(Arc::clone(&route.tls))
        .connect(name, stream)
        .await?;
    speak(stream, request).await
}

/// Opens the connection to the first address that answers.
async fn connect(route: &ProviderRoute, address: &WebAddress) -> Result<TcpStream, ProviderFault> {
    let mut last = ProviderFault::Unknown;
    for found in base::addresses::of_host(&address.host, &route.hosts) {
        match TcpStream::connect((found, address.port)).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}

async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<Bytes, ProviderFault> {
    let io = TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
    let mut driver = JoinSet::new();
    driver.spawn(async move {
        // A broken connection shows in the answer that was cut off.
        let _ = connection.await;
    });
    let response = sender.send_request(request).await?;
    let status = response.status();
    if status != hyper::StatusCode::OK {
        return Err(ProviderFault::Status(status.as_u16()));
    }
    let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES);
    let body = body.collect().await.map_err(|_| ProviderFault::Body)?;
    Ok(body.to_bytes())
}
