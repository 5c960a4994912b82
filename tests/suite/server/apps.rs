//! Apps at router level: a real little HTTP server behind the fake machine's ports, the origin of its app in front, and a
//! browser that says what browsers say. Each attack stands beside what differs in the one thing that is checked.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request as Sent;
use axum::extract::ws::WebSocketUpgrade;
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use base::link::streams::AppFile;
use base::observe::Clock;
use fardel::doors::peer::{OwnPort, Peer};
use fardel::doors::proxy;
use futures_util::{SinkExt as _, StreamExt as _};
use http_body_util::BodyExt as _;
use rules::permissions::Permission;
use serde_json::{Value, json};
use server::access;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_tungstenite::tungstenite::Message;
use tower::ServiceExt as _;

use super::the_box::{Answer, As, PASSWORD, TheBox, open_socket};

/// The first of the ports of apps; nothing listens there.
const PORT: u16 = 18_443;
const HOST: &str = "box:18443";
const LISTEN: &[(&str, &str)] = &[("FARDEL_LISTEN_APPS", "127.0.0.1:18443")];
const OWN: &str = "http://box:18443";
/// What is promised of a right that ends.
const SOON: Duration = Duration::from_secs(2);

/// What a navigation of a tab says.
const TAB: [(&str, &str); 3] = [
    ("sec-fetch-site", "same-site"),
    ("sec-fetch-mode", "navigate"),
    ("sec-fetch-dest", "document"),
];
/// What a script of the app's own page says.
const OWN_SCRIPT: [(&str, &str); 2] = [
    ("sec-fetch-site", "same-origin"),
    ("sec-fetch-mode", "cors"),
];

const NOTHING: &[(&str, &str)] = &[];

/// An app that says what it heard, and is hostile where it is asked to be.
async fn app() -> SocketAddr {
    async fn echo(sent: Sent) -> Response {
        let (parts, body) = sent.into_parts();
        let body = body.collect().await.map_or(0, |body| body.to_bytes().len());
        let mut headers = serde_json::Map::new();
        for (name, value) in &parts.headers {
            let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
            headers.insert(name.to_string(), text.into());
        }
        json!({"headers": headers, "method": parts.method.as_str(), "path": parts.uri.to_string(), "bytes": body})
            .to_string()
            .into_response()
    }
    async fn hostile() -> Response {
        let mut response = "<script>".into_response();
        let headers = response.headers_mut();
        for (name, value) in [
            ("set-cookie", "sid=1; Domain=box; Path=/"),
            ("set-cookie", "fardel=planted; Path=/"),
            ("set-cookie", "__Host-fardel=planted; Path=/; Secure"),
            ("set-cookie", "fardel-app-18443=planted"),
            ("set-cookie", "=fardel=planted"),
            ("service-worker-allowed", "/"),
            ("clear-site-data", "\"cookies\""),
            ("strict-transport-security", "max-age=99999999"),
            ("alt-svc", "h3=\":443\""),
            ("access-control-allow-origin", "http://box:7860"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        response
    }
    async fn leads(sent: Sent) -> Response {
        let to = sent.uri().query().unwrap_or_default().to_owned();
        (StatusCode::FOUND, [("location", to)]).into_response()
    }
    async fn huge() -> Response {
        ([("x-huge", "x".repeat(200 << 10))], "").into_response()
    }
    async fn hang() -> Response {
        std::future::pending().await
    }
    /// A first piece, and then nothing for ever.
    async fn endless() -> Body {
        let pieces =
            futures_util::stream::once(async { Ok::<_, std::io::Error>(Bytes::from("on")) });
        Body::from_stream(pieces.chain(futures_util::stream::pending()))
    }
    async fn socket(upgrade: WebSocketUpgrade) -> Response {
        upgrade.on_upgrade(|mut socket| async move {
            while let Some(Ok(message)) = socket.recv().await {
                if socket.send(message).await.is_err() {
                    return;
                }
            }
        })
    }
    let router = Router::new()
        .route("/hostile", get(hostile))
        .route("/leads", get(leads))
        .route("/huge", get(huge))
        .route("/hang", get(hang))
        .route("/endless", get(endless))
        .route("/socket", any(socket))
        .fallback(echo);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// A box with an app of mina's session `work` at port 8888, and mina's browser.
struct Site {
    the_box: TheBox,
    origin: Router,
    mina: As,
}

impl Site {
    async fn open() -> Self {
        Self::with(LISTEN).await
    }

    async fn with(settings: &'static [(&'static str, &'static str)]) -> Self {
        Self::by_clock(Clock::system(), settings).await
    }

    async fn by_clock(clock: Clock, settings: &'static [(&'static str, &'static str)]) -> Self {
        let the_box = TheBox::by_clock(clock, settings, Vec::new()).await;
        let streams = Arc::new(the_box.streams.clone());
        let origin = proxy::router(the_box.server.clone(), streams);
        let listens = app().await;
        let apps = &the_box.streams.apps;
        apps.lock().expect("free").insert(8888, listens);
        let mina = browser(&the_box, "mina").await;
        the_box.launch(&the_box.mina, json!({"name": "work"})).await;
        the_box.until(&the_box.mina, "work", "running").await;
        Self {
            the_box,
            origin,
            mina,
        }
    }

    /// Opens the app as the console does; gives where a browser enters it.
    async fn ticket(&self, who: &As) -> String {
        let path = "/api/v1/sessions/work/apps/8888/open";
        let opened = self.the_box.post(who, path, json!({})).await;
        assert_eq!(opened.status, 200, "{}", opened.json());
        let opened = opened.json();
        assert_eq!(opened["app"]["state"], "ready", "{opened}");
        assert_eq!(opened["app"]["address_port"], PORT);
        let entry = opened["entry"].as_str().expect("an entry");
        entry
            .strip_prefix(OWN)
            .expect("of its own origin")
            .to_owned()
    }

    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.ask_at(PORT, method, path, headers).await
    }

    async fn ask_at(
        &self,
        port: u16,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Answer {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", format!("box:{port}"))
            .extension(OwnPort(port))
            .extension(Peer::Tcp(([192, 0, 2, 9], 4000).into()));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        answered(
            self.origin.clone(),
            request.body(Body::empty()).expect("a request"),
        )
        .await
    }

    /// Enters as mina's browser does; gives the cookie of the app.
    async fn entered(&self) -> String {
        let way = self.ticket(&self.mina).await;
        let console = console_cookie(&self.mina);
        let answer = self
            .ask("GET", &way, &with(&TAB, &[("cookie", console.as_str())]))
            .await;
        assert_eq!(answer.status, 303, "{}", answer.short());
        app_cookie(&answer.headers)
    }

    /// The origin of the app on a real socket.
    async fn serve(&self) -> SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let address = listener.local_addr().expect("bound");
        let peer = Peer::Tcp(([192, 0, 2, 9], 4000).into());
        let origin = self.origin.clone();
        let origin = origin
            .layer(axum::Extension(OwnPort(PORT)))
            .layer(axum::Extension(peer));
        tokio::spawn(async move { axum::serve(listener, origin).await });
        address
    }
}

async fn answered(router: Router, request: Request<Body>) -> Answer {
    let response = router.oneshot(request).await;
    let (parts, body) = response.expect("an answer").into_parts();
    let bytes = match body.collect().await {
        Ok(body) => body.to_bytes().to_vec(),
        Err(_) => b"broken off".to_vec(),
    };
    Answer {
        status: parts.status,
        headers: parts.headers,
        bytes,
    }
}

async fn browser(the_box: &TheBox, name: &str) -> As {
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let signed_in = access::sign_in(&the_box.server, name, PASSWORD, here).await;
    As::Cookie(signed_in.expect("the password is right").cookie)
}

fn console_cookie(who: &As) -> String {
    let As::Cookie(cookie) = who else {
        panic!("a browser has a cookie");
    };
    format!("fardel={cookie}")
}

/// The cookie that an answer sets for the app, as it is sent back.
fn app_cookie(headers: &HeaderMap) -> String {
    let mut set = headers.get_all("set-cookie").iter();
    let set = set.find_map(|value| {
        let text = value.to_str().ok()?;
        text.starts_with("fardel-app-18443=")
            .then(|| text.to_owned())
    });
    let set = set.expect("a cookie of the app");
    for part in ["Path=/", "HttpOnly", "SameSite=Lax"] {
        assert!(set.contains(part), "{set}");
    }
    set.split(';').next().unwrap_or_default().to_owned()
}

fn with<'a>(some: &[(&'a str, &'a str)], more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [some, more].concat()
}

fn heard(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.short());
    answer.json()
}

/// Proves too: `only_our_own_pages_and_programs_with_tokens_may_change_anything`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ticket_enters_once_beside_its_own_sign_in() {
    let site = Site::open().await;
    let console = console_cookie(&site.mina);
    let own = with(&TAB, &[("cookie", console.as_str())]);
    let way = site.ticket(&site.mina).await;
    let entered = site.ask("GET", &way, &own).await;
    assert_eq!(
        (entered.status.as_u16(), entered.header("location")),
        (303, "/")
    );
    app_cookie(&entered.headers);
    assert_eq!(
        site.ask("GET", &way, &own).await.short(),
        "403 app.ticket-invalid",
        "used"
    );

    let jae = console_cookie(&browser(&site.the_box, "jae").await);
    let again = console_cookie(&browser(&site.the_box, "mina").await);
    for (what, cookie) in [
        ("another user", jae.as_str()),
        ("another sign-in", again.as_str()),
        ("none", "a=b"),
    ] {
        let way = site.ticket(&site.mina).await;
        let answer = site
            .ask("GET", &way, &with(&TAB, &[("cookie", cookie)]))
            .await;
        assert_eq!(answer.short(), "403 app.ticket-invalid", "{what}");
        assert!(answer.header("set-cookie").is_empty());
        let answer = site.ask("GET", &way, &own).await;
        assert_eq!(
            answer.short(),
            "403 app.ticket-invalid",
            "a ticket that was tried is gone"
        );
    }
    // A page cannot enter by a script or a frame, and not at another port.
    let way = site.ticket(&site.mina).await;
    for said in [
        [
            ("sec-fetch-site", "same-site"),
            ("sec-fetch-mode", "no-cors"),
            ("sec-fetch-dest", "image"),
        ],
        [
            ("sec-fetch-site", "same-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "iframe"),
        ],
    ] {
        let answer = site
            .ask("GET", &way, &with(&said, &[("cookie", console.as_str())]))
            .await;
        assert_eq!(answer.short(), "403 app.origin-foreign");
    }
    let elsewhere = site.ask_at(PORT + 1, "GET", &way, &own).await;
    assert_eq!(elsewhere.short(), "403 app.ticket-invalid");
    // Where it leads on stays on its origin.
    for (to, expected) in [
        ("/lab%3Fa", "/lab?a"),
        ("//evil/", "/"),
        ("https://evil/", "/"),
        ("/%5Cevil", "/"),
    ] {
        let way = site.ticket(&site.mina).await;
        let way = way.split("&to=").next().expect("a ticket").to_owned();
        let answer = site.ask("GET", &format!("{way}&to={to}"), &own).await;
        assert_eq!(answer.header("location"), expected, "{to}");
    }
}

/// Proves too: `only_our_own_pages_and_programs_with_tokens_may_change_anything`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_hears_nothing_of_the_console() {
    let site = Site::open().await;
    let cookie = site.entered().await;
    let all = format!("{}; {cookie}; theme=dark", console_cookie(&site.mina));
    let asked = with(
        &OWN_SCRIPT,
        &[
            ("cookie", all.as_str()),
            ("origin", OWN),
            ("authorization", "Token of-the-app"),
            ("x-fardel-user", "root"),
            ("x-forwarded-for", "1.2.3.4"),
        ],
    );
    let said = heard(&site.ask("POST", "/a?b=c", &asked).await);
    let headers = &said["headers"];
    assert_eq!(headers["cookie"], "theme=dark");
    assert_eq!(headers["authorization"], "Token of-the-app");
    assert_eq!(headers["host"], "localhost:8888");
    assert_eq!(headers["origin"], "http://localhost:8888");
    assert_eq!(headers["x-fardel-user"], "mina");
    assert_eq!(headers["x-forwarded-for"], "192.0.2.9");
    assert_eq!(
        (&said["path"], &said["method"]),
        (&json!("/a?b=c"), &json!("POST"))
    );
    let As::Token(token) = &site.the_box.mina else {
        panic!("a token");
    };
    let bearer = format!("Bearer {token}");
    let said = heard(
        &site
            .ask("POST", "/x", &[("authorization", bearer.as_str())])
            .await,
    );
    assert!(said["headers"]["authorization"].is_null(), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_answer_reaches_no_further_than_its_app() {
    let site = Site::open().await;
    let cookie = site.entered().await;
    let own = with(&OWN_SCRIPT, &[("cookie", cookie.as_str())]);
    let answer = site.ask("GET", "/hostile", &own).await;
    assert_eq!(answer.status, 200);
    let set: Vec<_> = answer.headers.get_all("set-cookie").iter().collect();
    assert_eq!(set, ["sid=1; Path=/"]);
    for gone in [
        "service-worker-allowed",
        "clear-site-data",
        "strict-transport-security",
        "alt-svc",
    ] {
        assert_eq!(answer.header(gone), "", "{gone}");
    }
    assert_eq!(
        answer.header("content-security-policy"),
        "frame-ancestors 'self'"
    );
    for (to, expected) in [
        ("/leads?/lab", "302 /lab"),
        ("/leads?http://localhost:8888/lab", "302 /lab"),
        ("/leads?https://docs.example/", "302 https://docs.example/"),
        ("/leads?http://box:7860/logout", "403 app.leads-away"),
        ("/leads?//box:7860/", "403 app.leads-away"),
        (
            "/leads?http://box:18444/.fardel/enter",
            "403 app.leads-away",
        ),
    ] {
        let answer = site.ask("GET", to, &own).await;
        let said = match answer.status.as_u16() {
            302 => format!("302 {}", answer.header("location")),
            _ => answer.short(),
        };
        assert_eq!(said, expected, "{to}");
    }
    assert_eq!(
        site.ask("GET", "/huge", &own).await.short(),
        "502 app.answer-broken"
    );
    let worker = with(&own, &[("service-worker", "script")]);
    assert_eq!(
        site.ask("GET", "/sw.js", &worker).await.short(),
        "403 app.worker-at-root"
    );
    assert_eq!(site.ask("GET", "/static/sw.js", &worker).await.status, 200);
    // What is ours is never the app's.
    let ours = site.ask("GET", "/.fardel/x", &own).await;
    assert_eq!(ours.short(), "404 app.not-opened");
}

/// Proves too: `only_our_own_pages_and_programs_with_tokens_may_change_anything`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_other_origins_act_in_no_app() {
    let site = Site::open().await;
    let cookie = site.entered().await;
    let cookie = [("cookie", cookie.as_str())];
    // What another page sends, and the same of the app's own page.
    for (method, theirs, ours) in [
        (
            "POST",
            &[
                ("origin", "http://box:7860"),
                ("sec-fetch-site", "same-site"),
            ][..],
            &[("origin", OWN), ("sec-fetch-site", "same-origin")][..],
        ),
        ("POST", NOTHING, &[("origin", OWN)][..]),
        ("DELETE", &[("origin", "null")][..], &[("origin", OWN)][..]),
        (
            "GET",
            &[
                ("sec-fetch-site", "same-site"),
                ("sec-fetch-mode", "no-cors"),
                ("sec-fetch-dest", "script"),
            ][..],
            &[
                ("sec-fetch-site", "same-origin"),
                ("sec-fetch-mode", "no-cors"),
                ("sec-fetch-dest", "script"),
            ][..],
        ),
        (
            "GET",
            &[
                ("sec-fetch-site", "same-site"),
                ("sec-fetch-mode", "navigate"),
                ("sec-fetch-dest", "iframe"),
            ][..],
            &TAB[..],
        ),
        (
            "GET",
            &[("upgrade", "websocket")][..],
            &[("upgrade", "websocket"), ("origin", OWN)][..],
        ),
        (
            "GET",
            &[("referer", "http://box:18444/")][..],
            &[("referer", "http://box:18443/lab")][..],
        ),
    ] {
        let refused = site.ask(method, "/x", &with(&cookie, theirs)).await;
        assert_eq!(
            refused.short(),
            "403 app.origin-foreign",
            "{method} {theirs:?}"
        );
        let passed = site.ask(method, "/x", &with(&cookie, ours)).await;
        assert_eq!(passed.status, 200, "{method} {ours:?}");
    }
    // Another name or port of the machine is another origin.
    for host in ["box", "box:18444"] {
        let request = Request::get("/x")
            .header("host", host)
            .header("cookie", cookie[0].1)
            .extension(OwnPort(PORT))
            .body(Body::empty())
            .expect("a request");
        let answer = site
            .origin
            .clone()
            .oneshot(request)
            .await
            .expect("an answer");
        assert_eq!(answer.status(), StatusCode::MISDIRECTED_REQUEST, "{host}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_is_led_to_the_console_and_learns_nothing() {
    let site = Site::open().await;
    let cookie = site.entered().await;
    for port in [PORT, PORT + 7] {
        let led = site.ask_at(port, "GET", "/lab?x=1", &TAB).await;
        assert_eq!(led.status, 303, "an open port answers as one that is not");
        let to = led.header("location").to_owned();
        assert!(
            to.ends_with(&format!("/apps/{port}?to=/lab%3Fx%3D1")),
            "{to}"
        );
        let fetched = site.ask_at(port, "GET", "/x", &OWN_SCRIPT).await;
        assert_eq!(fetched.short(), "401 app.entry-needed");
    }
    let forged = format!("{cookie}x");
    let forged = site
        .ask(
            "GET",
            "/x",
            &with(&OWN_SCRIPT, &[("cookie", forged.as_str())]),
        )
        .await;
    assert_eq!(forged.short(), "401 app.entry-needed");
    // A cookie of one port is of no use at another.
    let moved = cookie.replace("18443", "18444");
    let moved = site
        .ask_at(
            PORT + 1,
            "GET",
            "/x",
            &with(&OWN_SCRIPT, &[("cookie", moved.as_str())]),
        )
        .await;
    assert_eq!(moved.short(), "401 app.entry-needed");
    let As::Token(jae) = &site.the_box.jae else {
        panic!("a token");
    };
    let bearer = format!("Bearer {jae}");
    let other = site
        .ask("GET", "/x", &[("authorization", bearer.as_str())])
        .await;
    assert_eq!(other.short(), "404 session.not-found");
    let invented = site
        .ask("GET", "/x", &[("authorization", "Bearer fardel_invented")])
        .await;
    assert_eq!(invented.short(), "401 token.invalid");
    let page = site
        .the_box
        .get(
            &browser(&site.the_box, "jae").await,
            "/api/v1/sessions/work/apps",
        )
        .await;
    assert_eq!(page.short(), "404 session.not-found");
    // A token without the permission enters nothing.
    let others = Permission::ALL
        .into_iter()
        .filter(|one| *one != Permission::SessionsEnter);
    let others: Vec<Permission> = others.collect();
    let narrow = site.the_box.token("mina", &others, None).await;
    let As::Token(narrow) = narrow else {
        panic!("a token");
    };
    let bearer = format!("Bearer {narrow}");
    let narrow = site
        .ask("GET", "/x", &[("authorization", bearer.as_str())])
        .await;
    assert_eq!(narrow.short(), "403 token.scope-missing");
}

/// Opens the socket of the app at a served origin.
async fn socket(
    address: SocketAddr,
    cookie: &str,
) -> tokio_tungstenite::WebSocketStream<tokio::net::TcpStream> {
    let stream = tokio::net::TcpStream::connect(address)
        .await
        .expect("served");
    let request = Request::builder()
        .uri(format!("ws://{HOST}/socket"))
        .header("host", HOST)
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header("origin", OWN)
        .header("cookie", cookie)
        .body(())
        .expect("a request");
    let opened = tokio_tungstenite::client_async(request, stream).await;
    opened.expect("opened").0
}

/// Proves too: `everything_that_a_token_opened_ends_when_it_is_revoked`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_open_in_an_app_ends_with_the_right_to_it() {
    for (way, reason) in [
        ("sign-out", Some("sign-in.ended")),
        // It ends all sign-ins.
        ("suspension", Some("sign-in.ended")),
        ("change of role", Some("role.changed")),
        // What ends a terminal is then the end of its container.
        ("end of the session", None),
    ] {
        let mut site = Site::open().await;
        if way == "change of role" {
            site.the_box.set_role("mina", "administrator").await;
            site.mina = browser(&site.the_box, "mina").await;
        }
        let cookie = site.entered().await;
        let (console, _) = site.the_box.serve().await;
        let path = "/api/v1/sessions/work/attach?cols=80&rows=24";
        let mut terminal = match reason {
            None => None,
            Some(_) => Some(open_socket(console, &site.mina, path, "v1.term").await),
        }
        .map(|opened| opened.expect("opened").0);
        let address = site.serve().await;
        let mut socket = socket(address, &cookie).await;
        socket
            .send(Message::Text("hello".into()))
            .await
            .expect("sent");
        let said = socket.next().await.expect("open").expect("whole");
        assert_eq!(said, Message::Text("hello".into()), "{way}");
        let request = Request::get("/endless")
            .header("host", HOST)
            .header("cookie", cookie.as_str())
            .header("sec-fetch-site", "same-origin")
            .extension(OwnPort(PORT))
            .extension(Peer::Tcp(([192, 0, 2, 9], 4000).into()))
            .body(Body::empty())
            .expect("a request");
        let endless = site
            .origin
            .clone()
            .oneshot(request)
            .await
            .expect("an answer");
        let mut endless = endless.into_body();
        endless.frame().await.expect("a piece").expect("whole");
        match way {
            "sign-out" => {
                let As::Cookie(console) = &site.mina else {
                    panic!("a browser");
                };
                let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
                let caller = access::by_cookie(&site.the_box.server, console, here).await;
                let caller = caller.expect("read").expect("signed in");
                access::sign_out(&site.the_box.server, &caller)
                    .await
                    .expect("signed out");
            }
            "suspension" => {
                let body = json!({"suspended": true});
                let done = site
                    .the_box
                    .post(&As::Root, "/api/v1/users/mina/suspend", body)
                    .await;
                assert!(done.status.is_success(), "{}", done.short());
            }
            "change of role" => site.the_box.set_role("mina", "user").await,
            _ => {
                let path = "/api/v1/sessions/work/kill";
                let done = site.the_box.post(&site.the_box.mina, path, json!({})).await;
                assert!(done.status.is_success(), "{}", done.short());
            }
        }
        let closed = async {
            while let Some(Ok(_)) = socket.next().await {}
            while let Some(Ok(_)) = endless.frame().await {}
            let mut why = None;
            if let Some(terminal) = &mut terminal {
                while let Some(Ok(message)) = terminal.next().await {
                    if let Message::Close(Some(frame)) = message {
                        why = Some(frame.reason.to_string());
                    }
                }
            }
            why
        };
        let why = tokio::time::timeout(SOON, closed).await;
        let why = why.unwrap_or_else(|_| panic!("it goes on after {way}"));
        assert_eq!(why.as_deref(), reason, "{way}");
        if way == "change of role" {
            // What is left to her she opens again.
            continue;
        }
        let own = with(&OWN_SCRIPT, &[("cookie", cookie.as_str())]);
        let refused = site.ask("GET", "/x", &own).await;
        assert!(
            refused.status.is_client_error(),
            "{way}: {}",
            refused.short()
        );
    }
}

/// An app is in use where its user goes to a page of it, sends a form, or types into a socket. A tab that was left open, whose
/// script goes on asking and whose socket rests, holds no session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_in_use_keeps_its_session_from_an_idle_rule() {
    for (way, keeps) in [
        ("page", true),
        ("form", true),
        ("socket", true),
        ("tab left open", false),
    ] {
        let clock = Clock::set_by_hand(Clock::system().now());
        let site = Site::by_clock(clock.clone(), LISTEN).await;
        let cookie = site.entered().await;
        let own = with(&OWN_SCRIPT, &[("cookie", cookie.as_str())]);
        let form = with(&own, &[("origin", OWN)]);
        let tab = with(&TAB, &[("cookie", cookie.as_str())]);
        let address = site.serve().await;
        let mut socket = socket(address, &cookie).await;
        for minute in 1..=40 {
            heard(&site.ask("GET", "/news", &own).await);
            if minute % 10 == 0 {
                match way {
                    "page" => _ = heard(&site.ask("GET", "/lab", &tab).await),
                    "form" => _ = heard(&site.ask("POST", "/save", &form).await),
                    "socket" => {
                        let typed = Message::Text("1 + 1".into());
                        socket.send(typed.clone()).await.expect("sent");
                        let said = socket.next().await.expect("open").expect("whole");
                        assert_eq!(said, typed);
                    }
                    _ => {}
                }
            }
            site.the_box.minute(&clock, "work").await;
        }
        let rule = json!({
            "below": {"cpu": 0.1, "keys": 1}, "window_seconds": 1_200, "grace_seconds": 0,
        });
        let path = "/api/v1/idle-rules/dry-run";
        let tried = site.the_box.post(&site.the_box.admin, path, rule).await;
        assert_eq!(tried.status, 200, "{}", tried.short());
        let tried = tried.json();
        assert_eq!(tried["sessions"], 1, "{way}");
        assert_eq!(tried["ended"], u64::from(!keeps), "{way}: {tried}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_has_so_many_requests_open() {
    let site = Arc::new(Site::open().await);
    let cookie = site.entered().await;
    let mut open = Vec::new();
    for _ in 0..256 {
        let (site, cookie) = (Arc::clone(&site), cookie.clone());
        open.push(tokio::spawn(async move {
            let own = with(&OWN_SCRIPT, &[("cookie", cookie.as_str())]);
            // The one that looks below may hold the last place for a moment.
            while site.ask("GET", "/hang", &own).await.status == 429 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }));
    }
    let own = with(&OWN_SCRIPT, &[("cookie", cookie.as_str())]);
    let mut answer = site.ask("GET", "/x", &own).await;
    for _ in 0..3_000 {
        if answer.status == 429 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        answer = site.ask("GET", "/x", &own).await;
    }
    assert_eq!(answer.short(), "429 app.connections-many");
    for request in open {
        request.abort();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_that_starts_says_how_far_it_is_and_why_it_failed() {
    let site = Site::open().await;
    let the_box = &site.the_box;
    let who = &the_box.mina;
    let list = the_box.get(who, "/api/v1/sessions/work/apps").await.json();
    let names: Vec<&str> = list["items"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|app| app["name"].as_str())
        .collect();
    assert!(names.contains(&"tensorboard"), "{names:?}");
    let open = "/api/v1/sessions/work/apps/tensorboard/open";
    let opened = the_box.post(who, open, json!({})).await.json();
    assert_eq!(opened["app"]["state"], "starting", "{opened}");
    assert!(opened["entry"].is_null(), "{opened}");
    let asked = the_box.streams.execs.lock().expect("free").last().cloned();
    let asked = asked.expect("it was started");
    assert_eq!(asked.background.as_deref(), Some("tensorboard"));
    assert!(asked.argv.contains(&"--port=6006".to_owned()), "{asked:?}");
    let begun = the_box.streams.execs.lock().expect("free").len();
    the_box.post(who, open, json!({})).await;
    let still = the_box.streams.execs.lock().expect("free").len();
    assert_eq!(begun, still, "one that starts is not started again");
    let listens = app().await;
    let apps = &the_box.streams.apps;
    apps.lock().expect("free").insert(6006, listens);
    let opened = the_box.post(who, open, json!({})).await.json();
    assert_eq!(opened["app"]["state"], "ready", "{opened}");
    assert!(opened["entry"].is_string(), "{opened}");

    *the_box.streams.ends.lock().expect("free") = Some(3);
    let failed = the_box
        .post(who, "/api/v1/sessions/work/apps/mlflow/open", json!({}))
        .await
        .json();
    assert_eq!(failed["app"]["state"], "failed", "{failed}");
    assert_eq!(failed["app"]["problem"]["code"], "app.ended");
    assert_eq!(failed["app"]["lines"], json!(["no such module"]));
    for (app, expected) in [
        ("9", "409 app.not-answering"),
        ("nothing", "404 app.not-found"),
        ("Not-A-Name", "422 app.name-invalid"),
        ("99999", "422 port.invalid"),
    ] {
        let path = format!("/api/v1/sessions/work/apps/{app}/open");
        assert_eq!(
            the_box.post(who, &path, json!({})).await.short(),
            expected,
            "{app}"
        );
    }
    // Root on the machine signs in at the console.
    let root = the_box
        .post(&As::Root, "/api/v1/sessions/work/apps/8888/open", json!({}))
        .await;
    assert!(root.json()["entry"].is_null(), "{}", root.json());
}

/// Apps of which one never listens and one takes each connection and closes it: both have failed when their time is over,
/// and what is sent to such a port has an answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_that_listens_never_or_closes_at_once_has_failed() {
    let site = Site::open().await;
    let who = &site.the_box.mina;
    let cookie = site.entered().await;
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let absent = free.expect("a port").local_addr().expect("bound");
    let closes = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let closes = closes.expect("a port");
    let closing = closes.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((stream, _)) = closes.accept().await {
            drop(stream);
        }
    });
    let apps = &site.the_box.streams.apps;
    let files = [("deaf", 9000, absent), ("closing", 9001, closing)];
    let files = files.map(|(name, port, address)| {
        apps.lock().expect("free").insert(port, address);
        let text = format!(
            "[[app]]\nname = \"{name}\"\ntitle = {{en = \"{name}\"}}\ncommand = [\"serve\"]\n\
             port = {port}\nready_seconds = 1\n"
        );
        let name = format!("{name}.toml");
        AppFile { name, text }
    });
    *site.the_box.streams.files.lock().expect("free") = files.to_vec();
    for name in ["deaf", "closing"] {
        let path = format!("/api/v1/sessions/work/apps/{name}");
        let open = format!("{path}/open");
        let opened = site.the_box.post(who, &open, json!({})).await;
        assert!(opened.status.is_success(), "{name}: {}", opened.short());
        let until = Instant::now() + Duration::from_secs(30);
        let failed = loop {
            let shown = site.the_box.get(who, &path).await.json();
            if shown["state"] != "starting" {
                break shown;
            }
            assert!(Instant::now() < until, "{name}: {shown}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        assert_eq!(failed["state"], "failed", "{name}: {failed}");
        assert_eq!(failed["problem"]["code"], "app.too-slow", "{name}");
    }
    // One that was open and does so from now on.
    let own = with(&OWN_SCRIPT, &[("cookie", cookie.as_str())]);
    for (address, expected) in [(closing, "app.answer-broken"), (absent, "app.unreachable")] {
        apps.lock().expect("free").insert(8888, address);
        let answer = site.ask("GET", "/x", &own).await.short();
        assert!(
            answer.starts_with("50") && answer.ends_with(expected),
            "{answer}"
        );
    }
}

/// Two requests, one of them with a body, go by one connection; the next one goes by another where the app has closed it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_to_an_app_is_used_again_until_the_app_closes_it() {
    let site = Site::open().await;
    let cookie = site.entered().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port");
    let address = listener.local_addr().expect("bound");
    let (close, mut closed) = tokio::sync::mpsc::channel(8);
    tokio::spawn(async move {
        let mut number = 0;
        while let Ok((mut stream, _)) = listener.accept().await {
            number += 1;
            for _ in 0..2 {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.expect("it goes on"));
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                if head.starts_with("POST") {
                    assert!(head.contains("\r\ncontent-length: 4\r\n"), "{head}");
                    let mut body = [0; 4];
                    stream.read_exact(&mut body).await.expect("whole");
                    assert_eq!(&body, b"form");
                }
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{number}");
                stream.write_all(answer.as_bytes()).await.expect("taken");
            }
            drop(stream);
            close.send(()).await.expect("it is waited for");
        }
    });
    let apps = &site.the_box.streams.apps;
    apps.lock().expect("free").insert(8888, address);
    for number in [b"1", b"2", b"3"] {
        for (method, body) in [("POST", "form"), ("GET", "")] {
            let mut request = Request::builder()
                .method(method)
                .uri("/")
                .header("host", HOST)
                .header("origin", OWN)
                .header("sec-fetch-site", "same-origin")
                .header("cookie", cookie.as_str())
                .extension(OwnPort(PORT))
                .extension(Peer::Tcp(([192, 0, 2, 9], 4000).into()));
            if !body.is_empty() {
                request = request.header("content-length", body.len());
            }
            let request = request.body(Body::from(body)).expect("a request");
            let answer = answered(site.origin.clone(), request);
            let answer = tokio::time::timeout(Duration::from_secs(20), answer).await;
            let answer = answer.expect("the app takes one connection at a time");
            assert_eq!(answer.status, 200, "{}", answer.short());
            assert_eq!(answer.bytes, number, "{method}");
            // The connection is free once its own task has heard so.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        closed.recv().await.expect("the app goes on");
        // The end is there; it is heard when next the system is asked.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// An answer of 10 GB is carried as its reader takes it: what stands between app and reader is what sockets hold, and
/// the app hears at once that its reader has gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_ten_gigabytes_waits_for_its_reader() {
    const PIECE: &[u8] = &[b'x'; 64 << 10];
    /// Above what the sockets of both ways to the app hold, far below what the app would send.
    const HELD: u64 = 64 << 20;
    /// Tells when its answer is dropped.
    struct Ends(Option<tokio::sync::oneshot::Sender<()>>);
    impl Drop for Ends {
        fn drop(&mut self) {
            // The test may be over.
            let _ = self.0.take().map(|end| end.send(()));
        }
    }
    let site = Site::open().await;
    let cookie = site.entered().await;
    let sent = Arc::new(AtomicU64::new(0));
    let (end, ended) = tokio::sync::oneshot::channel();
    let once = Arc::new(Mutex::new(Some(Ends(Some(end)))));
    let counted = Arc::clone(&sent);
    let much = move || {
        let (counted, ends) = (Arc::clone(&counted), once.lock().expect("free").take());
        async move {
            let pieces = futures_util::stream::repeat_with(move || {
                let _held = &ends;
                counted.fetch_add(PIECE.len() as u64, Ordering::Relaxed);
                Ok::<_, std::io::Error>(Bytes::from_static(PIECE))
            });
            let length = (10_u64 << 30).to_string();
            ([("content-length", length)], Body::from_stream(pieces)).into_response()
        }
    };
    let router = Router::new().route("/much", get(much));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move { axum::serve(listener, router).await });
    let apps = &site.the_box.streams.apps;
    apps.lock().expect("free").insert(8888, address);

    let request = Request::get("/much")
        .header("host", HOST)
        .header("cookie", cookie.as_str())
        .header("sec-fetch-site", "same-origin")
        .extension(OwnPort(PORT))
        .extension(Peer::Tcp(([192, 0, 2, 9], 4000).into()))
        .body(Body::empty())
        .expect("a request");
    let answer = site.origin.clone().oneshot(request).await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.headers()["content-length"], "10737418240");
    let mut body = answer.into_body();
    let mut read = 0;
    for _ in 0..2 {
        let to = read + (32 << 20);
        while read < to {
            let frame = body.frame().await.expect("it goes on").expect("whole");
            read += frame.into_data().map_or(0, |data| data.len() as u64);
        }
        // Nothing is read now, and after a while nothing is sent.
        let mut before = 0;
        let until = Instant::now() + Duration::from_secs(30);
        while before != sent.load(Ordering::Relaxed) {
            assert!(Instant::now() < until, "it sends to a reader that rests");
            before = sent.load(Ordering::Relaxed);
            assert!(
                before < read + HELD,
                "{before} bytes for {read} that were read"
            );
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }
    drop(body);
    let ended = tokio::time::timeout(SOON, ended).await;
    // The sender says so, or is dropped with the answer.
    let _ = ended.expect("the app goes on without a reader");
}

/// An app of a launch is started once, a port of one is opened, and both have their address without a click.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apps_of_a_launch_start_with_its_session() {
    let the_box = TheBox::with(&[("FARDEL_LISTEN_APPS", "127.0.0.1:18443")], Vec::new()).await;
    let begin = || {
        let streams = Arc::new(the_box.streams.clone());
        tokio::spawn(server::start_apps(&the_box.server, streams))
    };
    let starts = begin();
    let listens = app().await;
    let apps = &the_box.streams.apps;
    apps.lock().expect("free").insert(8501, listens);
    let who = &the_box.mina;
    let wrong = json!({"name": "work", "apps": "8501:1"});
    let refused = the_box.post(who, "/api/v1/sessions", wrong).await;
    assert_eq!(refused.short(), "422 app.launch-invalid");
    let asked = json!({"name": "work", "apps": "tensorboard:7007,8501,no-such-app"});
    let session = the_box.launch(who, asked).await;
    assert_eq!(session["apps"], "tensorboard:7007,8501,no-such-app");
    the_box.until(who, "work", "running").await;
    let opened = async |name: &str| {
        let path = format!("/api/v1/sessions/work/apps/{name}");
        for _ in 0..1_000 {
            let app = the_box.get(who, &path).await.json();
            if app["address_port"].is_u64() && app["state"] != "stopped" {
                return app;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{name} was not opened");
    };
    let board = opened("tensorboard").await;
    assert_eq!(
        (&board["state"], &board["port"]),
        (&json!("starting"), &json!(7007))
    );
    assert_eq!(opened("8501").await["state"], "ready");
    let begun = || {
        let execs = the_box.streams.execs.lock().expect("free");
        let boards = execs
            .iter()
            .filter(|one| one.background.as_deref() == Some("tensorboard"));
        assert!(
            boards
                .clone()
                .all(|one| one.argv.contains(&"--port=7007".to_owned()))
        );
        boards.count()
    };
    assert_eq!(begun(), 1);
    // Another server finds the address and starts nothing again.
    starts.abort();
    let starts = begin();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(begun(), 1);
    starts.abort();
    let path = "/api/v1/sessions/work/events";
    let told = the_box.get(who, path).await.json();
    assert!(told.to_string().contains("app.not-begun"), "{told}");
}

/// Ports of which the system gives none below a number.
struct Taken {
    below: u16,
}

impl server::routes::AppListeners for Taken {
    fn serve(&self, port: u16) -> std::io::Result<()> {
        match port < self.below {
            true => Err(std::io::ErrorKind::AddrInUse.into()),
            false => Ok(()),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ports_that_other_programs_have_are_passed_over() {
    let path = "/api/v1/sessions/work/apps/8888/open";
    for (taken, expected) in [(7, "200"), (8, "503 app.port-unusable")] {
        let site = Site::open().await;
        let below = PORT + taken;
        let listeners: Arc<dyn server::routes::AppListeners> = Arc::new(Taken { below });
        site.the_box.server.bring_app_listeners(&listeners);
        let answer = site.the_box.post(&site.the_box.mina, path, json!({})).await;
        assert_eq!(answer.short(), expected, "{taken}");
        if answer.status == 200 {
            assert_eq!(answer.json()["app"]["address_port"], below);
        }
    }
    let the_box = TheBox::open().await;
    the_box.launch(&the_box.mina, json!({"name": "work"})).await;
    the_box.until(&the_box.mina, "work", "running").await;
    let listens = app().await;
    let apps = &the_box.streams.apps;
    apps.lock().expect("free").insert(8888, listens);
    let none = the_box.post(&the_box.mina, path, json!({})).await;
    assert_eq!(none.short(), "503 app.no-address");
}

/// Proves too: `everything_that_a_token_opened_ends_when_it_is_revoked`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_is_shared_with_members_and_closes_when_it_is_taken_back() {
    let site = Site::open().await;
    let the_box = &site.the_box;
    site.ticket(&site.mina).await;
    let shares = "/api/v1/sessions/work/apps/8888/shares";
    let As::Token(jae) = &the_box.jae else {
        panic!("a token");
    };
    let bearer = format!("Bearer {jae}");
    let ask = async || {
        site.ask("GET", "/x", &[("authorization", bearer.as_str())])
            .await
    };
    assert_eq!(ask().await.short(), "404 session.not-found");
    for (body, expected) in [
        (json!({"user": "none"}), "422 app.share-unknown"),
        (
            json!({"until": "2020-01-01T00:00:00Z"}),
            "422 app.share-end",
        ),
        (json!({"users": "jae"}), "422 body.unknown-field"),
    ] {
        let refused = the_box.post(&the_box.mina, shares, body).await;
        if expected.starts_with("422 app") {
            assert_eq!(refused.short(), expected);
        } else {
            assert!(refused.status.is_client_error(), "{}", refused.short());
        }
    }
    let strange = the_box
        .post(&the_box.jae, shares, json!({"user": "jae"}))
        .await;
    assert_eq!(strange.short(), "404 session.not-found");
    for body in [json!({"user": "jae"}), json!({})] {
        let made = the_box.post(&the_box.mina, shares, body.clone()).await;
        assert_eq!(made.status, 201, "{}", made.json());
        let made = made.json();
        assert_eq!(made["user"], body["user"]);
        let heard = heard(&ask().await);
        assert_eq!(heard["headers"]["x-fardel-user"], "jae");
        // Nothing else of the session.
        let session = the_box.get(&the_box.jae, "/api/v1/sessions/work").await;
        assert_eq!(session.short(), "404 session.not-found");
        let other = the_box
            .get(&the_box.jae, "/api/v1/sessions/work/apps/8888")
            .await;
        assert_eq!(other.short(), "404 session.not-found");
        let address = site.serve().await;
        let stream = tokio::net::TcpStream::connect(address)
            .await
            .expect("served");
        let request = Request::builder()
            .uri(format!("ws://{HOST}/socket"))
            .header("host", HOST)
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
            .header("authorization", &bearer)
            .body(())
            .expect("a request");
        let opened = tokio_tungstenite::client_async(request, stream).await;
        let mut socket = opened.expect("opened").0;
        socket
            .send(Message::Text("hello".into()))
            .await
            .expect("sent");
        assert!(socket.next().await.expect("open").is_ok());
        let request = Request::get("/endless")
            .header("host", HOST)
            .header("authorization", &bearer)
            .extension(OwnPort(PORT))
            .extension(Peer::Tcp(([192, 0, 2, 9], 4000).into()))
            .body(Body::empty())
            .expect("a request");
        let endless = site.origin.clone().oneshot(request).await;
        let mut endless = endless.expect("an answer").into_body();
        endless.frame().await.expect("a piece").expect("whole");
        let id = made["id"].as_str().expect("an id");
        let path = format!("{shares}/{id}");
        let gone = the_box.with_body(&the_box.mina, "DELETE", &path, "").await;
        assert_eq!(gone.status, 204, "{}", gone.short());
        let closed = async {
            while let Some(Ok(_)) = socket.next().await {}
            while let Some(Ok(_)) = endless.frame().await {}
        };
        let closed = tokio::time::timeout(SOON, closed).await;
        closed.expect("it goes on without a share");
        assert_eq!(ask().await.short(), "404 session.not-found");
        let again = the_box.with_body(&the_box.mina, "DELETE", &path, "").await;
        assert_eq!(again.short(), "404 app.share-not-found");
    }
    let listed = the_box.get(&the_box.mina, shares).await.json();
    assert_eq!(listed["items"], json!([]));
    // One of the same user stands in the place of the one before, and there are so many of one app.
    for _ in 0..2 {
        the_box
            .post(&the_box.mina, shares, json!({"user": "jae"}))
            .await;
    }
    let listed = the_box.get(&the_box.mina, shares).await.json();
    assert_eq!(
        listed["items"].as_array().map(Vec::len),
        Some(1),
        "{listed}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_has_a_name_of_its_own_where_dns_allows() {
    const HOST: &str = "8888-10000.apps.box";
    let site = Site::with(&[("FARDEL_APPS_NAME", "apps.box")]).await;
    let names = proxy::ByName {
        server: site.the_box.server.clone(),
        apps: site.origin.clone(),
    };
    let console = Router::new()
        .fallback(|| async { "the console" })
        .layer(axum::middleware::from_fn_with_state(names, proxy::by_name));
    let ask = async |host: &str, method: &str, path: &str, headers: &[(&str, &str)]| {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", format!("{host}:7860"))
            .extension(OwnPort(7860))
            .extension(Peer::Tcp(([192, 0, 2, 9], 4000).into()));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).expect("a request");
        answered(console.clone(), request).await
    };
    let path = "/api/v1/sessions/work/apps/8888/open";
    let opened = site.the_box.post(&site.mina, path, json!({})).await;
    assert_eq!(opened.status, 200, "{}", opened.json());
    let opened = opened.json();
    assert_eq!(opened["app"]["address_name"], HOST);
    let entry = opened["entry"].as_str().expect("an entry");
    let way = entry.strip_prefix("http://8888-10000.apps.box:7860");
    let way = way.expect("at the console's port");

    // The name of the console and names of strangers are the console's.
    for host in [
        "box",
        "apps.box",
        "8888-10000.apps.box.evil",
        "evilapps.box",
    ] {
        let answer = ask(host, "GET", "/", &TAB).await;
        assert_eq!(answer.bytes, b"the console", "{host}");
    }
    let led = ask(HOST, "GET", "/lab", &TAB).await;
    assert_eq!(
        (led.status.as_u16(), led.header("location")),
        (303, "http://box:7860/apps/10000?to=/lab")
    );
    assert_eq!(ask("evil.apps.box", "GET", "/", &TAB).await.status, 421);

    // No cookie of the console's comes here.
    let entered = ask(HOST, "GET", way, &TAB).await;
    assert_eq!(entered.status, 303, "{}", entered.short());
    let cookie = entered.header("set-cookie").to_owned();
    assert!(cookie.starts_with("fardel-app-10000="), "{cookie}");
    assert!(!cookie.to_ascii_lowercase().contains("domain"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap_or_default().to_owned();
    let own = with(&OWN_SCRIPT, &[("cookie", cookie.as_str())]);
    heard(&ask(HOST, "GET", "/x", &own).await);
    let used = ask(HOST, "GET", way, &TAB).await;
    assert_eq!(used.short(), "403 app.ticket-invalid", "used");
    // The number alone is not the name.
    let other = ask("jupyter-10000.apps.box", "GET", "/x", &own).await;
    assert_eq!(other.short(), "401 app.entry-needed");

    // A page of a name beside it is as foreign as one at another port.
    for (site_word, expected) in [
        ("same-site", "403 app.origin-foreign"),
        ("same-origin", "200"),
    ] {
        let said = [
            ("sec-fetch-site", site_word),
            ("sec-fetch-mode", "cors"),
            ("cookie", cookie.as_str()),
        ];
        assert_eq!(ask(HOST, "GET", "/x", &said).await.short(), expected);
    }
    for (origin, expected) in [
        ("http://8889-10001.apps.box:7860", "403 app.origin-foreign"),
        ("http://box:7860", "403 app.origin-foreign"),
        ("http://8888-10000.apps.box:7860", "200"),
    ] {
        let said = with(&own, &[("origin", origin)]);
        assert_eq!(ask(HOST, "POST", "/x", &said).await.short(), expected);
    }
    for (to, expected) in [
        ("http://box:7860/logout", "403 app.leads-away"),
        ("http://127.0.0.1:8888/lab", "302 /lab"),
    ] {
        let answer = ask(HOST, "GET", &format!("/leads?{to}"), &own).await;
        let seen = match answer.status.as_u16() {
            302 => format!("302 {}", answer.header("location")),
            _ => answer.short(),
        };
        assert_eq!(seen, expected, "{to}");
    }
    // A name is one app's alone, so its script may have all of it.
    let worker = with(&own, &[("service-worker", "script")]);
    assert_eq!(ask(HOST, "GET", "/sw.js", &worker).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cookie_of_one_app_stays_its_own_when_the_server_has_started_again() {
    let mut site = Site::open().await;
    let first = site.entered().await;
    let own = with(&OWN_SCRIPT, &[("cookie", first.as_str())]);
    assert_eq!(site.ask("GET", "/hostile", &own).await.status, 200);

    let other = app().await;
    let apps = Arc::clone(&site.the_box.streams.apps);
    apps.lock().expect("free").insert(8889, other);
    let path = "/api/v1/sessions/work/apps/8889/open";
    let opened = site.the_box.post(&site.mina, path, json!({})).await;
    assert_eq!(opened.status, 200, "{}", opened.json());
    let opened = opened.json();
    let way = opened["entry"].as_str().expect("an entry");
    let way = way.strip_prefix("http://box:18444").expect("the next port");
    let console = console_cookie(&site.mina);
    let said = with(&TAB, &[("cookie", console.as_str())]);
    let entered = site.ask_at(PORT + 1, "GET", way, &said).await;
    assert_eq!(entered.status, 303, "{}", entered.short());
    let second = entered.header("set-cookie").to_owned();
    let second = second.split(';').next().unwrap_or_default();

    for has_started_again in [false, true] {
        if has_started_again {
            let streams = Arc::new(site.the_box.streams.clone());
            site.origin = proxy::router(site.the_box.server.clone(), streams);
        }
        for (port, entry, expected) in [
            (PORT, first.as_str(), "sid=1; theme=dark"),
            (PORT + 1, second, "theme=dark"),
        ] {
            let all = format!("sid=1; theme=dark; {entry}");
            let said = with(&OWN_SCRIPT, &[("cookie", all.as_str())]);
            let heard = heard(&site.ask_at(port, "GET", "/x", &said).await);
            assert_eq!(heard["headers"]["cookie"], expected, "{port}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_a_session_describe_its_apps() {
    let site = Site::open().await;
    let described = |text: &str| {
        let file = AppFile {
            name: "dash.toml".to_owned(),
            text: text.to_owned(),
        };
        *site.the_box.streams.files.lock().expect("free") = vec![file];
    };
    described(
        "[[app]]\nname = \"dash\"\ntitle = {en = \"Dash\"}\nport = 8888\nopen = \"/first\"\n",
    );
    let path = "/api/v1/sessions/work/apps/dash";
    let shown = site.the_box.get(&site.mina, path).await;
    assert_eq!(shown.status, 200, "{}", shown.json());
    let shown = shown.json();
    assert_eq!(
        (&shown["title"], &shown["port"], &shown["state"]),
        (&json!("Dash"), &json!(8888), &json!("ready"))
    );
    let open = format!("{path}/open");
    let opened = site.the_box.post(&site.mina, &open, json!({})).await.json();
    let entry = opened["entry"].as_str().expect("an entry");
    assert!(entry.ends_with("&to=/first"), "{entry}");
    // What is wrong is said, and hides no other session's apps.
    described("[[app]]\nname = \"dash\"\n");
    let wrong = site.the_box.get(&site.mina, path).await;
    assert_eq!(wrong.short(), "422 app.file-invalid");
    let by_port = "/api/v1/sessions/work/apps/8888";
    assert_eq!(site.the_box.get(&site.mina, by_port).await.status, 200);
}
