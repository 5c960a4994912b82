//! One box for a test: server in memory or on disk, controller, fake machine, and the router, reached directly or
//! over real sockets. Holds people to call as.

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use base::observe::Clock;
use base::settings::{LoadedSettings, SettingsLayer, SettingsSources};
use fardel::doors;
use fardel::doors::peer::Peer;
use http_body_util::BodyExt;
use rules::permissions::Permission;
use rules::units::Timestamp;
use serde_json::{Value, json};
use server::access;
use server::actions::users::tokens;
use server::{Failure, Server};
use tokio::sync::Notify;
use tower::ServiceExt;

use super::fake_machine::{FakeMachine, FakeStreams, StartUps};

/// A password that no list of common ones has.
pub(crate) const PASSWORD: &str = "correct-horse-battery-7";

/// Who calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum As {
    Nobody,
    Root,
    Token(String),
    Cookie(String),
}

pub(crate) struct TheBox {
    pub(crate) server: Server,
    pub(crate) router: Router,
    pub(crate) streams: FakeStreams,
    pub(crate) folder: tempfile::TempDir,
    /// What its machine was told that sessions start with.
    pub(crate) start_ups: StartUps,
    /// Asks its machine what sessions use.
    asked: Arc<Notify>,
    /// An administrator, two users, by token.
    pub(crate) admin: As,
    pub(crate) mina: As,
    pub(crate) jae: As,
    /// A cookie of the administrator's browser.
    pub(crate) browser: As,
}

/// An answer, read whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: axum::http::HeaderMap,
    pub(crate) bytes: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes)
            .unwrap_or_else(|e| panic!("not JSON ({e}): {}", String::from_utf8_lossy(&self.bytes)))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default()
    }

    /// Status and code of a refusal, status alone of a success: `422 cpu.too-small`, `200`.
    pub(crate) fn short(&self) -> String {
        let status = self.status.as_u16();
        match serde_json::from_slice::<Value>(&self.bytes) {
            Ok(body) if status >= 400 => {
                format!(
                    "{status} {}",
                    body["code"].as_str().unwrap_or("without a code")
                )
            }
            _ => status.to_string(),
        }
    }
}

/// What opens a WebSocket at `address` gave: the socket and the server's answer, or what was refused.
pub(crate) type Opened = Result<
    (
        tokio_tungstenite::WebSocketStream<tokio::net::TcpStream>,
        tokio_tungstenite::tungstenite::handshake::client::Response,
    ),
    tokio_tungstenite::tungstenite::Error,
>;

/// Opens a WebSocket with a token, or as a page of the console does with its cookie.
pub(crate) async fn open_socket(
    address: std::net::SocketAddr,
    who: &As,
    path: &str,
    protocol: &str,
) -> Opened {
    let stream = tokio::net::TcpStream::connect(address)
        .await
        .expect("served");
    let request = Request::builder();
    let request = match who {
        As::Token(token) => request.header("authorization", format!("Bearer {token}")),
        As::Cookie(cookie) => request
            .header("cookie", format!("fardel={cookie}"))
            .header("origin", format!("http://{address}")),
        As::Nobody | As::Root => panic!("a token or a cookie opens it"),
    };
    let request = request
        .uri(format!("ws://{address}{path}"))
        .header("host", address.to_string())
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header("sec-websocket-protocol", protocol)
        .body(())
        .expect("a request");
    tokio_tungstenite::client_async(request, stream).await
}

impl TheBox {
    /// A box that has been set up, with its machine there.
    pub(crate) async fn open() -> Self {
        Self::with(&[], Vec::new()).await
    }

    /// The same with these settings, by the names of their variables, and a machine with these devices.
    pub(crate) async fn with(
        more: &'static [(&'static str, &'static str)],
        devices: Vec<rules::resources::Device>,
    ) -> Self {
        Self::by_clock(Clock::system(), more, devices).await
    }

    /// The same by this clock.
    pub(crate) async fn by_clock(
        clock: Clock,
        more: &'static [(&'static str, &'static str)],
        devices: Vec<rules::resources::Device>,
    ) -> Self {
        Self::around(Server::in_memory, clock, more, devices).await
    }

    /// A box whose rows are in files, which several readers read at once.
    pub(crate) async fn on_disk() -> Self {
        Self::around(Server::start, Clock::system(), &[], Vec::new()).await
    }

    async fn around(
        start: fn(LoadedSettings, Clock) -> Result<Server, Failure>,
        clock: Clock,
        more: &'static [(&'static str, &'static str)],
        devices: Vec<rules::resources::Device>,
    ) -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let data = folder.path().join("data").display().to_string();
        let file = folder.path().join("fardel.toml").display().to_string();
        let sources = SettingsSources::new(SettingsLayer::default(), move |name| match name {
            "FARDEL_DATA" => Some(data.clone()),
            "FARDEL_RUN" => Some(format!("{data}/run")),
            // It is not there before a test writes it.
            "FARDEL_CONFIG" => Some(file.clone()),
            // No listener stands here; certificates are asked for over the routes.
            "FARDEL_TLS" => Some("on".into()),
            name => more
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).to_owned()),
        });
        let reading = sources.read().expect("valid settings");
        std::fs::create_dir_all(reading.settings.data.join("run")).expect("a directory");
        let server = start(reading, clock.clone()).expect("a server");
        let streams = FakeStreams::default();
        let router = doors::router(server.clone(), Arc::new(streams.clone()));

        let (server_end, node_end) = base::link::local();
        tokio::spawn(server::conduct(
            &server,
            server::links::Links::to(server.node(), server_end),
        ));
        let mut machine = FakeMachine::new(server.node(), devices);
        if !server.settings().host_environment {
            machine = machine.without_programs();
        }
        let start_ups = machine.start_ups();
        let asked = machine.asked();
        tokio::spawn(machine.run(node_end, clock));

        let here: std::net::IpAddr = std::net::Ipv4Addr::LOCALHOST.into();
        let link = access::setup_link(&server).expect("nobody has set it up");
        let code = link.rsplit(['=', '/']).next().expect("a code").to_owned();
        let signed_in = access::set_up(&server, &code, "ada", PASSWORD, here)
            .await
            .expect("the code is right");
        let root = access::local_root(&server);
        for name in ["mina", "jae"] {
            server::actions::users::create(
                &server,
                &root,
                name,
                rules::users::Role::User,
                PASSWORD,
            )
            .await
            .expect("a new name");
        }
        let mut opened = Self {
            admin: As::Nobody,
            mina: As::Nobody,
            jae: As::Nobody,
            browser: As::Cookie(signed_in.cookie),
            server,
            router,
            streams,
            folder,
            start_ups,
            asked,
        };
        opened.admin = opened.token("ada", &Permission::ALL, None).await;
        opened.mina = opened.token("mina", &Permission::ALL, None).await;
        opened.jae = opened.token("jae", &Permission::ALL, None).await;
        opened.wait_for_the_machine().await;
        opened
    }

    async fn wait_for_the_machine(&self) {
        for _ in 0..200 {
            let answer = self
                .post(&self.admin, "/api/v1/sessions?dry_run=true", json!({}))
                .await;
            let ready = answer.status == 200 && answer.json()["verdict"] == "now";
            if ready || answer.short() == "422 environment.host-off" {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("the machine did not report");
    }

    /// Signs a person in and makes a token for them.
    pub(crate) async fn token(
        &self,
        name: &str,
        scopes: &[Permission],
        expires_at: Option<Timestamp>,
    ) -> As {
        let here: std::net::IpAddr = std::net::Ipv4Addr::LOCALHOST.into();
        let signed_in = access::sign_in(&self.server, name, PASSWORD, here)
            .await
            .expect("the password is right");
        let words: Vec<String> = scopes.iter().map(|v| v.word().to_owned()).collect();
        let (_, secret) = tokens::create(
            &self.server,
            &signed_in.caller,
            "test",
            &words,
            expires_at,
            &[],
        )
        .await
        .expect("a valid token");
        As::Token(secret.reveal().to_owned())
    }

    pub(crate) fn request(who: &As, method: &str, path: &str) -> axum::http::request::Builder {
        let mut builder = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "box:7860");
        let peer = match who {
            As::Root => Peer::Local { trusted: true },
            _ => Peer::Tcp(([192, 0, 2, 9], 4000).into()),
        };
        builder = builder.extension(peer);
        match who {
            As::Token(token) => builder.header("authorization", format!("Bearer {token}")),
            As::Cookie(cookie) => builder
                .header("cookie", format!("fardel={cookie}"))
                .header("origin", "http://box:7860"),
            As::Nobody | As::Root => builder,
        }
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let response = self
            .router
            .clone()
            .oneshot(request)
            .await
            .expect("the router answers");
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.expect("a whole body").to_bytes();
        Answer {
            status: parts.status,
            headers: parts.headers,
            bytes: bytes.to_vec(),
        }
    }

    /// Gives a user this role, as root on the machine does.
    pub(crate) async fn set_role(&self, user: &str, role: &str) {
        let request = Self::request(&As::Root, "PATCH", &format!("/api/v1/users/{user}"))
            .header("content-type", "application/merge-patch+json")
            .header("if-match", "*")
            .body(Body::from(json!({"role": role}).to_string()))
            .expect("a request");
        let answer = self.send(request).await;
        assert_eq!(answer.status, 200, "{}", answer.short());
    }

    pub(crate) async fn get(&self, who: &As, path: &str) -> Answer {
        let request = Self::request(who, "GET", path)
            .body(Body::empty())
            .expect("a request");
        self.send(request).await
    }

    pub(crate) async fn post(&self, who: &As, path: &str, body: Value) -> Answer {
        self.with_body(who, "POST", path, body.to_string()).await
    }

    pub(crate) async fn with_body(
        &self,
        who: &As,
        method: &str,
        path: &str,
        body: impl Into<Body>,
    ) -> Answer {
        let request = Self::request(who, method, path)
            .header("content-type", "application/json")
            .body(body.into())
            .expect("a request");
        self.send(request).await
    }

    /// Launches one session and gives its body.
    pub(crate) async fn launch(&self, who: &As, body: Value) -> Value {
        let answer = self.post(who, "/api/v1/sessions", body).await;
        assert_eq!(answer.status, 201, "{}", answer.json());
        answer.json()
    }

    /// Waits until a session is in a state.
    pub(crate) async fn until(&self, who: &As, id: &str, state: &str) -> Value {
        let path = format!("/api/v1/sessions/{id}?wait={state}&patience=10");
        let session = self.get(who, &path).await.json();
        assert_eq!(session["state"], state, "{session}");
        session
    }

    /// Lets a minute pass by the clock of the box, or some seconds more, until what a session of mina's used by then is kept:
    /// memory, and no time of a processor.
    pub(crate) async fn minute(&self, clock: &Clock, session: &str) {
        let path = format!("/api/v1/sessions/{session}/metrics");
        clock.set(clock.now().plus_seconds(60));
        for _ in 0..20 {
            self.asked.notify_one();
            for _ in 0..30 {
                let told = self.get(&self.mina, &path).await.json();
                let samples = told["items"].as_array().expect("a list");
                let newest = samples.last().and_then(|sample| sample["at"].as_str());
                if newest == Some(clock.now().to_string().as_str()) {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            // What was used is told from one sample to the next: the first alone is not.
            clock.set(clock.now().plus_seconds(2));
        }
        panic!("the machine did not tell what {session} used");
    }

    /// Serves the same router on a port and on a socket of its own; gives both.
    pub(crate) async fn serve(&self) -> (std::net::SocketAddr, PathBuf) {
        let tcp = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let address = tcp.local_addr().expect("bound");
        let outside = self
            .router
            .clone()
            .layer(axum::Extension(Peer::Tcp(address)));
        tokio::spawn(async move { axum::serve(tcp, outside).await });
        let path = self.folder.path().join("fardel.sock");
        let unix = tokio::net::UnixListener::bind(&path).expect("a socket");
        let root = axum::Extension(Peer::Local { trusted: true });
        let inside = self.router.clone().layer(root);
        tokio::spawn(async move { axum::serve(unix, inside).await });
        (address, path)
    }
}
