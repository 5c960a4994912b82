//! Asks a provider over HTTP/1.1: one connection a question, no redirect, answers up to a bound. Knows nothing of what is
//! asked, and no name service: a host is an address, or stands in /etc/hosts.

use std::sync::Arc;

use base::connection_fault;
use base::observe::chain;
use base::tls::client::server_name;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use rules::provider::WebAddress;
use rules::reasons;
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
    #[error("{}", reasons::connection_file(.0).text)]
    File(String),
    #[error("{}", reasons::connection_name_unknown().text)]
    Unknown,
    #[error("{}", reasons::connection_timed_out().text)]
    Late,
    #[error("{}", reasons::connection_too_long().text)]
    Body,
    #[error("{}", reasons::connection_status(.0).text)]
    Status(u16),
    #[error("{}", reasons::connection_unreadable(.0).text)]
    Answer(&'static str),
    #[error("{}", connection_fault::told(.0).text)]
    Connection(std::io::Error),
    #[error("{}", reasons::connection_unreadable(chain(.0)).text)]
    Protocol(hyper::Error),
}

// No sources: the sentences have what stands behind them.
impl From<std::io::Error> for ProviderFault {
    fn from(error: std::io::Error) -> Self {
        Self::Connection(error)
    }
}

impl From<hyper::Error> for ProviderFault {
    fn from(error: hyper::Error) -> Self {
        Self::Protocol(error)
    }
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
