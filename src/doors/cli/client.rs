//! The HTTP client of the command line: one connection a call, over the local socket, TLS or TCP. Knows
//! nothing of what the calls mean.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;

use base::link::streams::{ByteStream, Duplex};
use base::tls::client::server_name;
use rustls::ClientConfig;
use tokio_rustls::TlsConnector;

use super::address::{ServerAddress, resolve};
use super::answer::Answer;
use super::error::{CliError, FAILED, TIMEOUT, UNREACHABLE};

/// How long a server may be away (restart, upgrade) before an attached `run` gives up.
pub(super) const MAX_RECONNECT: Duration = Duration::from_secs(60);

/// How long one TCP connection may take. Higher: a wrong address keeps users waiting. Lower: a
/// loaded box on a slow network looks dead.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long one answer may take from its request to its headers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// The code of trouble with a server whose certificate leads to no trusted authority.
pub(super) const UNTRUSTED: &str = "server.untrusted";

/// A server, and who we are to it.
#[derive(Debug, Clone)]
pub(super) struct HttpClient {
    pub address: ServerAddress,
    pub token: Option<String>,
    /// Whom to believe over TLS; None over anything else.
    pub tls: Option<Arc<ClientConfig>>,
    /// Print each call as a curl command on standard error.
    pub explain: bool,
    /// `en` or `ko`: in which language refusals come.
    pub language: String,
}

/// A whole answer.
#[derive(Debug)]
pub(super) struct HttpAnswer {
    pub status: u16,
    pub headers: hyper::HeaderMap,
    pub body: Bytes,
}

impl HttpAnswer {
    /// The body as JSON; null where it is empty.
    pub(super) fn json(&self) -> Result<Value, CliError> {
        if self.body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&self.body).map_err(|e| {
            CliError::new(
                FAILED,
                "answer.unreadable",
                format!("The server's answer is not JSON: {e}."),
            )
            .hint("Is this address a fardel server?")
        })
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|v| v.to_str().ok())
    }
}

/// An answer whose body is read piece by piece.
pub(super) struct Flow {
    response: Response<Incoming>,
    /// Drives the connection; ends with this value.
    _driver: JoinSet<()>,
}

impl Flow {
    /// The next piece; None at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, CliError> {
        loop {
            match self.response.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => return Ok(Some(bytes)),
                    Err(_) => continue,
                },
                Some(Err(error)) => {
                    return Err(CliError::new(
                        UNREACHABLE,
                        "server.connection-lost",
                        format!("The server closed the connection during its answer: {error}."),
                    ));
                }
            }
        }
    }

    pub(super) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let value = self.response.headers().get(name);
        value.and_then(|value| value.to_str().ok())
    }
}

/// What goes with a request besides method and path.
#[derive(Debug, Clone, Default)]
pub(super) struct Extra {
    pub body: Bytes,
    pub content_type: Option<&'static str>,
    pub headers: Vec<(String, String)>,
}

impl Extra {
    pub(super) fn json(body: &Value) -> Self {
        Self {
            body: body.to_string().into(),
            content_type: Some("application/json"),
            headers: Vec::new(),
        }
    }

    pub(super) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Whether a header of that name goes with it.
    fn names(&self, name: &str) -> bool {
        let mut headers = self.headers.iter();
        headers.any(|(known, _)| known.eq_ignore_ascii_case(name))
    }
}

impl HttpClient {
    /// Asks and takes the whole answer, with any status.
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        extra: Extra,
    ) -> Result<HttpAnswer, CliError> {
        let flow = self.open(method, path, extra).await?;
        let Flow { response, _driver } = flow;
        let (parts, body) = response.into_parts();
        let body = body
            .collect()
            .await
            .map_err(|error| {
                CliError::new(
                    UNREACHABLE,
                    "server.connection-lost",
                    format!("The server closed the connection during its answer: {error}."),
                )
            })?
            .to_bytes();
        Ok(HttpAnswer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body,
        })
    }

    /// Asks and takes the answer where it is a good one; any other becomes trouble.
    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        extra: Extra,
    ) -> Result<HttpAnswer, CliError> {
        let answer = self.ask(method, path, extra).await?;
        if answer.status < 400 {
            return Ok(answer);
        }
        let id = answer.header("x-request-id").unwrap_or_default().to_owned();
        Err(CliError::refused(answer.status, &answer.body, &id))
    }

    pub(super) async fn get(&self, path: &str) -> Result<Value, CliError> {
        self.call(Method::GET, path, Extra::default()).await?.json()
    }

    /// Asks for one thing and reads it as its type.
    pub(super) async fn read<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<Answer<T>, CliError> {
        Answer::of(self.get(path).await?)
    }

    /// Posts JSON as `post` does and reads the answer as its type.
    pub(super) async fn send<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<Answer<T>, CliError> {
        Answer::of(self.post(path, body).await?)
    }

    /// Posts JSON under a fresh idempotency key, so that nothing is done twice.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Value, CliError> {
        let extra = Extra::json(body).header("Idempotency-Key", fresh_key());
        self.call(Method::POST, path, extra).await?.json()
    }

    /// Asks and gives the body as it comes; a refusal becomes trouble.
    pub(super) async fn flow(
        &self,
        path: &str,
        headers: Vec<(String, String)>,
    ) -> Result<Flow, CliError> {
        let extra = Extra {
            headers,
            ..Extra::default()
        };
        let flow = self.open(Method::GET, path, extra).await?;
        if flow.status() < 400 {
            return Ok(flow);
        }
        let status = flow.status();
        let id = flow
            .response
            .headers()
            .get("x-request-id")
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default()
            .to_owned();
        let Flow { response, _driver } = flow;
        let body = response
            .into_body()
            .collect()
            .await
            .map(|b| b.to_bytes())
            .unwrap_or_default();
        Err(CliError::refused(status, &body, &id))
    }

    async fn open(&self, method: Method, path: &str, extra: Extra) -> Result<Flow, CliError> {
        self.say(&method, path, &extra);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("Host", self.address.authority())
            .header("User-Agent", concat!("fardel/", env!("CARGO_PKG_VERSION")))
            .header("Accept-Language", &self.language);
        if !extra.names("Accept") {
            request = request.header("Accept", "application/json");
        }
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        if let Some(kind) = extra.content_type {
            request = request.header("Content-Type", kind);
        }
        for (name, value) in &extra.headers {
            request = request.header(name.as_str(), value.as_str());
        }
        let request = request
            .body(Full::new(extra.body))
            .map_err(|e| CliError::usage(format!("This cannot be sent as a request: {e}.")))?;
        let lost = |error: hyper::Error| {
            CliError::new(
                UNREACHABLE,
                "server.no-answer",
                format!("{} does not answer like a server: {error}.", self.address),
            )
        };
        let stream = self.connect().await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(lost)?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // A broken connection shows in the answer that was cut off.
            let _ = connection.await;
        });
        match tokio::time::timeout(ANSWER_TIMEOUT, sender.send_request(request)).await {
            Ok(response) => {
                let response = response.map_err(lost)?;
                self.refuse_detour(&response)?;
                Ok(Flow {
                    response,
                    _driver: driver,
                })
            }
            Err(_) => Err(CliError::new(
                TIMEOUT,
                "server.slow",
                format!(
                    "{} accepted the connection and gave no answer for {} seconds.",
                    self.address,
                    ANSWER_TIMEOUT.as_secs()
                ),
            )),
        }
    }

    /// Opens a WebSocket that speaks `protocol`.
    pub(super) async fn socket(
        &self,
        path: &str,
        protocol: &str,
    ) -> Result<WebSocketStream<ByteStream>, CliError> {
        use tokio_tungstenite::tungstenite::Error;
        let mut request = Request::builder()
            .uri(format!(
                "{}://{}{path}",
                if self.address.is_secure() {
                    "wss"
                } else {
                    "ws"
                },
                self.address.authority()
            ))
            .header("Host", self.address.authority())
            .header("Connection", "Upgrade")
            .header("Upgrade", "websocket")
            .header("Sec-WebSocket-Version", "13")
            .header("Sec-WebSocket-Key", generate_key())
            .header("Sec-WebSocket-Protocol", protocol)
            .header("Accept-Language", &self.language);
        if self.explain {
            eprintln!("# WebSocket {path} ({protocol}) at {}", self.address);
        }
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let request = request
            .body(())
            .map_err(|e| CliError::usage(format!("This cannot be sent as a request: {e}.")))?;
        let stream = self.connect().await?;
        match tokio_tungstenite::client_async(request, stream).await {
            Ok((socket, _)) => Ok(socket),
            Err(Error::Http(response)) => {
                let id = response
                    .headers()
                    .get("x-request-id")
                    .and_then(|v| v.to_str().ok())
                    .unwrap_or_default()
                    .to_owned();
                let body = response.body().clone().unwrap_or_default();
                Err(CliError::refused(response.status().as_u16(), &body, &id))
            }
            Err(error) => Err(CliError::new(
                UNREACHABLE,
                "server.no-answer",
                format!("{} did not open the stream: {error}.", self.address),
            )),
        }
    }

    /// Connects and shakes hands, and says nothing.
    pub(super) async fn greet(&self) -> Result<(), CliError> {
        self.connect().await.map(drop)
    }

    /// A server that speaks HTTPS only sends plain HTTP elsewhere; a token is not sent after it.
    fn refuse_detour(&self, response: &Response<Incoming>) -> Result<(), CliError> {
        if !response.status().is_redirection() {
            return Ok(());
        }
        let place = response
            .headers()
            .get("location")
            .and_then(|v| v.to_str().ok());
        let place = place.unwrap_or("another address");
        let origin: String = place.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
        Err(CliError::new(
            UNREACHABLE,
            "server.elsewhere",
            format!("{} redirects to {origin}.", self.address),
        )
        .hint(format!(
            "--server {origin}, or `fardel login {origin}` once."
        )))
    }

    /// Shakes hands as this client's trust says.
    async fn encrypt(&self, stream: TcpStream, host: &str) -> Result<ByteStream, CliError> {
        let (Some(config), Some(name)) = (&self.tls, server_name(host)) else {
            return Err(CliError::usage(format!(
                "{host} cannot be the name of a server."
            )));
        };
        let shaken = TlsConnector::from(Arc::clone(config)).connect(name, stream);
        match tokio::time::timeout(CONNECT_TIMEOUT, shaken).await {
            Ok(Ok(stream)) => Ok(boxed(stream)),
            Ok(Err(error)) => Err(self.distrust(&error)),
            Err(_) => Err(CliError::new(
                TIMEOUT,
                "server.slow",
                format!("{} does not answer the WebSocket handshake.", self.address),
            )),
        }
    }

    /// Why a handshake came to nothing.
    fn distrust(&self, error: &std::io::Error) -> CliError {
        use rustls::CertificateError as Wrong;
        use rustls::Error;
        let place = &self.address;
        let inner = error.get_ref().and_then(|e| e.downcast_ref::<Error>());
        let (code, text, hint) = match inner {
            Some(Error::InvalidCertificate(Wrong::UnknownIssuer | Wrong::BadSignature)) => (
                UNTRUSTED,
                format!("{place} shows a certificate that this client does not trust."),
                format!("`fardel login {place}` shows its fingerprint to compare; --ca FILE trusts an authority. If it was trusted before, ask its administrator why that changed."),
            ),
            Some(Error::InvalidCertificate(
                Wrong::NotValidForName | Wrong::NotValidForNameContext { .. },
            )) => (
                "server.other-name",
                format!("The certificate of {place} is for another name."),
                "Use the name or the number that `fardel trust` on the server shows.".to_owned(),
            ),
            Some(Error::InvalidCertificate(
                Wrong::Expired
                | Wrong::ExpiredContext { .. }
                | Wrong::NotValidYet
                | Wrong::NotValidYetContext { .. },
            )) => (
                "server.certificate-expired",
                format!("The certificate of {place} is not valid at this time."),
                "Check the clocks of both machines; the server's pages say when its certificate ends.".to_owned(),
            ),
            Some(Error::InvalidMessage(_)) => (
                "server.plain",
                format!("{place} does not speak TLS."),
                "http:// in front of the address, if that is meant to be so.".to_owned(),
            ),
            _ => (
                "server.no-handshake",
                format!("{place} and this client cannot agree on TLS: {error}."),
                "Is this the address of a fardel server?".to_owned(),
            ),
        };
        CliError::new(UNREACHABLE, code, text).hint(hint)
    }

    async fn connect(&self) -> Result<ByteStream, CliError> {
        let unreachable = |what: String| {
            CliError::new(UNREACHABLE, "server.unreachable", what).hint(match &self.address {
                ServerAddress::Socket(_) => {
                    "Sign in to a server elsewhere with `fardel login ADDRESS`, or name one with --server. \
                     On the server's own machine, start it with `fardel serve`."
                }
                ServerAddress::Tcp { .. } => "Is the server running, and is this its address?",
            })
        };
        match &self.address {
            ServerAddress::Socket(path) => match UnixStream::connect(path).await {
                Ok(stream) => Ok(boxed(stream)),
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                    Err(unreachable(format!(
                        "{} is open to root and to the user that runs the server only.",
                        path.display()
                    )))
                }
                Err(error) => Err(unreachable(format!(
                    "No server answers at {} ({}).",
                    path.display(),
                    plain(&error)
                ))),
            },
            ServerAddress::Tcp { host, port, secure } => {
                let mut last = None;
                for address in resolve(host, *port, Path::new("/etc/hosts"))? {
                    match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
                        Ok(Ok(stream)) => {
                            // Keystrokes are small and must not wait for each other.
                            let _ = stream.set_nodelay(true);
                            if *secure {
                                return self.encrypt(stream, host).await;
                            }
                            return Ok(boxed(stream));
                        }
                        Ok(Err(error)) => last = Some(plain(&error)),
                        Err(_) => last = Some("no answer".to_owned()),
                    }
                }
                Err(unreachable(format!(
                    "No server answers at {} ({}).",
                    self.address,
                    last.unwrap_or_default()
                )))
            }
        }
    }

    /// Prints the call so that it can be repeated without this program. The token is not shown.
    fn say(&self, method: &Method, path: &str, extra: &Extra) {
        if !self.explain {
            return;
        }
        let mut line = String::from("curl");
        if *method != Method::GET {
            line.push_str(&format!(" -X {method}"));
        }
        if let ServerAddress::Socket(socket) = &self.address {
            line.push_str(&format!(
                " --unix-socket {}",
                quoted(&socket.display().to_string())
            ));
        }
        if self.address.is_secure() {
            line.push_str(" --cacert fardel.pem");
        }
        if self.token.is_some() {
            line.push_str(" -H \"Authorization: Bearer $FARDEL_TOKEN\"");
        }
        if let Some(kind) = extra.content_type {
            line.push_str(&format!(" -H {}", quoted(&format!("Content-Type: {kind}"))));
        }
        for (name, value) in &extra.headers {
            line.push_str(&format!(" -H {}", quoted(&format!("{name}: {value}"))));
        }
        if !extra.body.is_empty() {
            match std::str::from_utf8(&extra.body) {
                Ok(text) if !text.contains("\"password\"") && text.len() < 4096 => {
                    line.push_str(&format!(" -d {}", quoted(text)));
                }
                _ => line.push_str(" --data-binary @-"),
            }
        }
        line.push_str(&format!(
            " {}",
            quoted(&match &self.address {
                ServerAddress::Socket(_) => format!("http://localhost{path}"),
                place => format!("{place}{path}"),
            })
        ));
        eprintln!("{line}");
    }
}

/// A key under which the server does a thing once, however often it is asked.
pub(super) fn fresh_key() -> String {
    uuid::Uuid::now_v7().to_string()
}

fn boxed(stream: impl Duplex + 'static) -> ByteStream {
    Box::new(stream)
}

fn plain(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no socket".to_owned(),
        std::io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        _ => error.to_string(),
    }
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "/._-:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(harmless) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Writes a value into a path or a query.
pub(super) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_words_stay_one_word() {
        assert_eq!(quoted("it's $HOME"), "'it'\\''s $HOME'");
        assert_eq!(quoted("/a/b-1"), "/a/b-1");
        assert_eq!(encoded("a b/../c?d"), "a%20b%2F..%2Fc%3Fd");
    }
}
