//! The console with a real catalog in memory and no machine: sessions wait, everything else is as it ships.
//! Every page is asked for as a page and as a fragment, signed in and not, and refused forms keep what was typed.

mod announced;
mod courses;
mod many;
mod outward;
mod refused;
mod saml;
mod sizes;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use base::link::streams::{BoxFuture, ByteStream, ExecRequest, LogStream, Streams, TermStream};
use base::observe::Clock;
use base::settings::{Settings, SettingsLayer};
use http_body_util::BodyExt as _;
use rules::names::ContainerName;
use rules::refusal::Refusal;
use rules::units::Timestamp;
use server::Server;
use tower::ServiceExt as _;

use super::lint;

/// No machine: nothing can be entered.
struct NoNode;

fn nothing<T: Send + 'static>() -> BoxFuture<T> {
    Box::pin(async {
        Err(Refusal::from_parts(
            rules::refusal::RefusalKind::Conflict,
            "container.not-running".into(),
            "It does not run.".into(),
            String::new(),
        ))
    })
}

impl Streams for NoNode {
    fn attach(&self, _: ContainerName, _: Option<(u16, u16)>) -> BoxFuture<TermStream> {
        nothing()
    }
    fn exec(&self, _: ContainerName, _: ExecRequest) -> BoxFuture<TermStream> {
        nothing()
    }
    fn logs(&self, _: ContainerName, _: u64, _: bool) -> BoxFuture<LogStream> {
        nothing()
    }
    fn dial(&self, _: ContainerName, _: u16) -> BoxFuture<ByteStream> {
        nothing()
    }
}

/// The console and a folder that goes when it goes.
pub(super) struct PagesFixture {
    router: Router,
    server: Server,
    _folder: tempfile::TempDir,
}

/// What came back.
pub(super) struct PageAnswer {
    pub(super) status: StatusCode,
    location: String,
    pub(super) cookie: String,
    policy: String,
    pub(super) body: String,
}

impl PagesFixture {
    pub(super) fn open() -> PagesFixture {
        Self::with(SettingsLayer::default(), Clock::system())
    }

    /// With other settings than those that ship, and a clock.
    fn with(layer: SettingsLayer, clock: Clock) -> PagesFixture {
        let folder = tempfile::tempdir().expect("a folder");
        let layer = SettingsLayer {
            data: Some(folder.path().join("data")),
            run: Some(folder.path().join("run")),
            tls: Some("on".into()),
            ..layer
        };
        let settings = Settings::read(layer, |_| None).expect("settings");
        let server = Server::in_memory(settings, clock).expect("a server in memory");
        let router = super::super::router(
            server.clone(),
            Arc::new(NoNode),
            "box",
            crate::doors::reference,
        );
        PagesFixture {
            router,
            server,
            _folder: folder,
        }
    }

    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        form: &[(&str, &str)],
    ) -> PageAnswer {
        let body: String = form
            .iter()
            .map(|(name, value)| format!("{name}={}", super::super::responses::encoded(value)))
            .collect::<Vec<_>>()
            .join("&");
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "box:7860")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self
            .router
            .clone()
            .oneshot(request.body(Body::from(body)).expect("a request"))
            .await
            .expect("an answer");
        let text = |name: header::HeaderName| {
            response
                .headers()
                .get(name)
                .and_then(|v| v.to_str().ok())
                .unwrap_or_default()
                .to_owned()
        };
        let (status, location, cookie, policy) = (
            response.status(),
            text(header::LOCATION),
            text(header::SET_COOKIE),
            text(header::CONTENT_SECURITY_POLICY),
        );
        let bytes = response
            .into_body()
            .collect()
            .await
            .expect("a body")
            .to_bytes();
        PageAnswer {
            status,
            location,
            cookie,
            policy,
            body: String::from_utf8_lossy(&bytes).into_owned(),
        }
    }

    pub(super) async fn get(&self, cookie: &str, path: &str) -> PageAnswer {
        self.ask(Method::GET, path, &[("cookie", cookie)], &[])
            .await
    }

    pub(super) async fn post(&self, cookie: &str, path: &str, form: &[(&str, &str)]) -> PageAnswer {
        self.ask(
            Method::POST,
            path,
            &[("cookie", cookie), ("origin", "http://box:7860")],
            form,
        )
        .await
    }

    /// Sets the box up; gives the cookie of its administrator.
    pub(super) async fn set_up(&self) -> String {
        let code = server::access::setup_link(&self.server).expect("setup is open");
        let form = [
            ("code", code.as_str()),
            ("name", "mina"),
            ("password", PASSWORD),
            ("again", PASSWORD),
        ];
        let answer = self.post("", "/setup", &form).await;
        assert_eq!(
            (answer.status, answer.location.as_str()),
            (StatusCode::SEE_OTHER, "/setup/time"),
            "{}",
            answer.body
        );
        assert!(
            answer.cookie.contains("HttpOnly") && answer.cookie.contains("SameSite=Lax"),
            "{}",
            answer.cookie
        );
        answer
            .cookie
            .split(';')
            .next()
            .unwrap_or_default()
            .to_owned()
    }
}

const PASSWORD: &str = "a long walk by the river 7";
const PAGES: [&str; 42] = [
    "/holidays",
    "/sign-ups",
    "/me/keys",
    "/me/ssh-keys",
    "/me/startup",
    "/system/tls",
    "/api/docs",
    "/",
    "/sessions",
    "/sessions?q=nobody",
    "/sessions?q=state%3Awhat",
    "/sessions/new",
    "/queue",
    "/gpus",
    "/history?of=me&range=week",
    "/system/checks",
    "/system/settings",
    "/system/backups",
    "/system/support",
    "/images",
    "/environments",
    "/images/host",
    "/folders",
    "/projects",
    "/projects/new",
    "/projects/default",
    "/users",
    "/users/new",
    "/users/mina",
    "/users?q=state%3Asuspended",
    "/me",
    "/docs",
    "/docs/cli",
    "/about",
    "/events",
    "/events?q=object%3Afirst&kind=sessions&since=2026-01-01T00:00",
    "/notices",
    "/statements",
    "/statements/close?month=2026-10",
    "/system/settings?q=backup&changed=1",
    "/docs/errors/session-not-found",
    "/docs/errors/image-not-found",
];

#[tokio::test]
async fn strangers_are_led_to_the_door() {
    let house = PagesFixture::open();
    let answer = house.get("", "/sessions").await;
    assert_eq!(
        (answer.status, answer.location.as_str()),
        (StatusCode::SEE_OTHER, "/setup")
    );
    house.set_up().await;
    for path in PAGES {
        let answer = house.get("", path).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{path}");
        assert!(
            answer.location.starts_with("/login?next=%2F"),
            "{path} leads to {}",
            answer.location
        );
        let fragment = house
            .ask(Method::GET, path, &[("hx-request", "true")], &[])
            .await;
        assert_eq!(
            fragment.status,
            StatusCode::UNAUTHORIZED,
            "{path} as a fragment"
        );
        assert!(fragment.body.is_empty(), "{path} tells strangers nothing");
    }
    assert_eq!(house.get("", "/setup").await.status, StatusCode::GONE);
    assert_eq!(
        house.get("fardel=nonsense", "/me").await.status,
        StatusCode::SEE_OTHER
    );
}

#[tokio::test]
async fn the_first_close_shows_the_zone_that_it_settles_and_sends_it() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    let path = "/statements/close?month=2026-10&time_zone=Asia%2FSeoul";
    let asked = house.get(&cookie, path).await;
    assert_eq!(asked.status, StatusCode::OK);
    let sent = "name=\"time_zone\" value=\"Asia/Seoul\"";
    assert!(asked.body.contains(sent), "{}", asked.body);
    let said = asked.body.matches("Asia/Seoul").count();
    assert!(said > 1, "the question says it too: {}", asked.body);
    let form = [("month", "2026-10"), ("time_zone", "Asia/Nowhere")];
    let refused = house.post(&cookie, "/statements/close", &form).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn who_owes_a_password_and_a_second_factor_comes_to_one_form_after_the_other() {
    let layer = SettingsLayer {
        second_factor: Some("required".into()),
        password_days: Some(10),
        ..SettingsLayer::default()
    };
    let clock = Clock::set_by_hand(Timestamp::from_millis(1_800_000_000_000));
    let house = PagesFixture::with(layer, clock);
    let cookie = house.set_up().await;
    assert_eq!(house.get(&cookie, "/me").await.status, StatusCode::OK);
    // Written after what the first look noted in the background.
    house
        .post(&cookie, "/preferences", &[("theme", "dark")])
        .await;
    let clock = house.server.clock();
    clock.set(clock.now().plus_seconds(10 * 86_400));
    let form = [("name", "mina"), ("password", PASSWORD)];
    let cookie = house.post("", "/login", &form).await.cookie;
    let cookie = cookie.split(';').next().unwrap_or_default();
    for path in ["/", "/me/second-factor"] {
        assert_eq!(house.get(cookie, path).await.location, "/me", "{path}");
    }
    assert_eq!(house.get(cookie, "/me").await.status, StatusCode::OK);
    let other = "another long walk 8";
    let form = [("old", PASSWORD), ("new", other), ("again", other)];
    let changed = house.post(cookie, "/me/password", &form).await;
    assert_eq!(changed.location, "/me?notice=password");
    let led = house.get(cookie, "/me").await;
    assert_eq!(led.location, "/me/second-factor");
    let form = house.get(cookie, "/me/second-factor").await;
    assert_eq!(form.status, StatusCode::OK);
}

#[tokio::test]
async fn the_form_of_a_second_factor_does_what_it_says_and_nothing_by_mistake() {
    let layer = SettingsLayer {
        second_factor: Some("required".into()),
        ..SettingsLayer::default()
    };
    let house = PagesFixture::with(layer, Clock::system());
    let cookie = house.set_up().await;
    let path = "/me/second-factor";
    for word in ["", "on"] {
        let form = [("do", word), ("password", PASSWORD)];
        let answer = house.post(&cookie, path, &form).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{word}");
        assert!(!answer.body.contains("name=\"ticket\""), "{word}");
    }
    let form = [("do", "replace"), ("password", PASSWORD)];
    let offered = house.post(&cookie, path, &form).await;
    assert!(offered.body.contains("name=\"ticket\""), "{}", offered.body);
    // One's own is not reset, and the question is not asked.
    let own = house.get(&cookie, "/users/mina/second-factor").await;
    assert_eq!(own.status, StatusCode::CONFLICT);
}

#[tokio::test]
async fn a_sign_in_link_is_shown_once_and_its_button_alone_ends_it() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    let form = [
        ("name", "jae"),
        ("role", "user"),
        ("password", PASSWORD),
        ("again", PASSWORD),
    ];
    house.post(&cookie, "/users/new", &form).await;
    let page = house.get(&cookie, "/users/jae").await.body;
    assert!(page.contains("/sign-in-link\""), "{page}");
    let path = "/users/jae/sign-in-link";
    let wrong = house.post(&cookie, path, &[("minutes", "9")]).await;
    assert_eq!(wrong.status, StatusCode::UNPROCESSABLE_ENTITY);
    let made = house.post(&cookie, path, &[("minutes", "60")]).await;
    assert_eq!(made.status, StatusCode::SEE_OTHER, "{}", made.body);
    let shown = house.get(&cookie, &made.location).await.body;
    let (_, rest) = shown.split_once("/login/link?code=").expect("a link");
    let code = rest.get(..43).expect("a code").to_owned();
    let again = house.get(&cookie, &made.location).await.body;
    assert!(!again.contains(&code), "it is shown once");
    let link = format!("/login/link?code={code}");
    for _ in 0..2 {
        let door = house.get("", &link).await;
        assert_eq!(door.status, StatusCode::OK);
        assert!(door.cookie.is_empty(), "looking signs in");
        assert!(door.body.contains(&code) && door.body.contains("jae"));
        assert!(door.body.contains(" UTC</time>"), "{}", door.body);
        let faults = lint::page(&door.body);
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
    let known = house.get("fardel_zone=Asia/Seoul", &link).await.body;
    assert!(
        known.contains("</time>") && !known.contains("UTC"),
        "{known}"
    );
    let entered = house
        .post("", "/login/link", &[("code", code.as_str())])
        .await;
    assert_eq!(
        (entered.status, entered.location.as_str()),
        (StatusCode::SEE_OTHER, "/")
    );
    let own = entered.cookie.split(';').next().unwrap_or_default();
    assert!(house.get(own, "/me").await.body.contains("jae"));
    let spent = house
        .post("", "/login/link", &[("code", code.as_str())])
        .await;
    assert_eq!(spent.status, StatusCode::NOT_FOUND);
    assert!(!spent.body.contains("name=\"code\""));
    // One's own account has none.
    let own = house.get(&cookie, "/users/mina/sign-in-link").await;
    assert_eq!(own.status, StatusCode::CONFLICT);
}

#[tokio::test]
async fn an_old_form_of_a_user_widens_no_networks() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    let form = [
        ("name", "jae"),
        ("role", "user"),
        ("password", PASSWORD),
        ("again", PASSWORD),
    ];
    let made = house.post(&cookie, "/users/new", &form).await;
    assert_eq!(made.status, StatusCode::SEE_OTHER, "{}", made.body);
    let page = house.get(&cookie, "/users/jae").await.body;
    let (_, rest) = page
        .split_once("name=\"generation\" value=\"")
        .expect("a version");
    let seen = rest.split('"').next().unwrap_or_default();
    let path = "/users/jae/profile";
    let form = [("generation", seen), ("networks", "10.1.0.0/16")];
    let limited = house.post(&cookie, path, &form).await;
    assert_eq!(limited.status, StatusCode::SEE_OTHER, "{}", limited.body);
    let form = [("generation", seen), ("full_name", "Jae"), ("networks", "")];
    let stale = house.post(&cookie, path, &form).await;
    assert_eq!(stale.status, StatusCode::PRECONDITION_FAILED);
    assert!(
        stale.body.contains("value=\"10.1.0.0/16\""),
        "{}",
        stale.body
    );
    // A form from before there were networks.
    let form = [("full_name", "Jae"), ("email", "jae@lab.example")];
    let older = house.post(&cookie, path, &form).await;
    assert_eq!(older.status, StatusCode::SEE_OTHER, "{}", older.body);
    let page = house.get(&cookie, "/users/jae").await.body;
    assert!(page.contains("value=\"10.1.0.0/16\"") && page.contains("jae@lab.example"));
}

#[tokio::test]
async fn every_page_of_a_real_box_keeps_the_rules_in_both_languages() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    let launched = house
        .post(
            &cookie,
            "/sessions/new",
            &[("name", "first"), ("cpu", "1"), ("memory", "1")],
        )
        .await;
    assert_eq!(launched.status, StatusCode::SEE_OTHER, "{}", launched.body);
    let session = launched
        .location
        .split('?')
        .next()
        .unwrap_or_default()
        .to_owned();
    let mut paths: Vec<String> = PAGES.map(str::to_owned).into();
    paths.extend([
        session.clone(),
        format!("{session}/logs"),
        format!("{session}/metrics"),
    ]);
    for language in ["en", "ko"] {
        let cookie = format!("{cookie}; fardel_language={language}");
        for path in &paths {
            let answer = house.get(&cookie, path).await;
            assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.body);
            let faults = lint::page(&answer.body);
            assert!(
                faults.is_empty(),
                "{path} ({language}):\n{}",
                faults.join("\n")
            );
            assert!(
                answer.body.contains(&format!("<html lang=\"{language}\"")),
                "{path}"
            );
            assert!(
                answer
                    .policy
                    .starts_with("default-src 'none'; script-src 'self';"),
                "{path}: {}",
                answer.policy
            );
            assert!(
                !answer.policy.contains("unsafe"),
                "{path}: {}",
                answer.policy
            );
        }
    }
    // What waits says why, wherever it is shown.
    for path in ["/", "/sessions", "/queue", session.as_str()] {
        let page = house.get(&cookie, path).await.body;
        assert!(
            page.contains("No node has reported yet."),
            "{path} does not say why"
        );
    }
}

#[tokio::test]
async fn a_session_of_several_containers_leads_to_each_of_them() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    let launch = async |name: &str, containers: &str| {
        let form = [
            ("name", name),
            ("cpu", "1"),
            ("memory", "1"),
            ("containers", containers),
        ];
        let launched = house.post(&cookie, "/sessions/new", &form).await;
        assert_eq!(launched.status, StatusCode::SEE_OTHER, "{}", launched.body);
        let session = launched.location.split('?').next();
        session.unwrap_or_default().to_owned()
    };
    let pair = launch("pair", "2").await;
    for (asked, shown) in [
        ("", "main1"),
        ("?container=sub1", "sub1"),
        ("?container=sub2", "main1"),
    ] {
        let path = format!("{pair}/logs{asked}");
        let page = house.get(&cookie, &path).await.body;
        for name in ["main1", "sub1"] {
            let link = format!("href=\"{pair}/logs?container={name}\"");
            let here = if name == shown {
                " aria-current=\"true\""
            } else {
                ""
            };
            let link = format!("{link}{here}>{name}</a>");
            assert!(page.contains(&link), "{path}: no {link} in {page}");
        }
        let faults = lint::page(&page);
        assert!(faults.is_empty(), "{path}:\n{}", faults.join("\n"));
    }
    let again = house
        .get(&cookie, &pair.replace("/sessions/", "/sessions/new?from="))
        .await
        .body;
    assert!(again.contains("name=\"containers\" value=\"2\""), "{again}");
    let alone = launch("alone", "").await;
    let page = house.get(&cookie, &format!("{alone}/logs")).await.body;
    assert!(!page.contains("container="), "{page}");
}

#[tokio::test]
async fn a_fragment_is_the_block_of_the_page() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    for path in ["/sessions", "/sessions?q=nobody", "/sessions?state=ended"] {
        let page = house.get(&cookie, path).await.body;
        let fragment = house
            .ask(
                Method::GET,
                path,
                &[("cookie", &cookie), ("hx-request", "true")],
                &[],
            )
            .await;
        assert_eq!(fragment.status, StatusCode::OK);
        assert!(!fragment.body.contains("<html"), "{path} is no fragment");
        // What follows the list has its stream follow the filter.
        let (list, stream) = fragment.body.split_once("<hx-partial").expect("a stream");
        assert!(stream.contains("/sessions/live?"), "{path}");
        assert!(page.contains(list.trim()), "{path} differs from its page");
    }
}

#[tokio::test]
async fn a_refused_launch_keeps_everything_that_was_typed() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    let typed = [
        ("kind", "batch"),
        ("command", "echo \"<kept>\""),
        ("cpu", "0.351"),
        ("memory", "2"),
        ("name", "kept-name"),
        ("max_runtime", "4h"),
        ("replicas", "2"),
        ("env", "KEPT=1"),
        ("labels", "team=kept"),
    ];
    let answer = house.post(&cookie, "/sessions/new", &typed).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    for kept in [
        "&#60;kept&#62;",
        "value=\"0.351\"",
        "value=\"kept-name\"",
        "value=\"4h\"",
        "KEPT=1",
        "team=kept",
        "<input aria-invalid=\"true\" aria-describedby=\"fault-cpu\" autofocus",
    ] {
        assert!(answer.body.contains(kept), "{kept} is gone");
    }
    assert!(
        answer.body.contains("data-fault=\"cpu\""),
        "the message stands beside its field"
    );
    let list = house.get(&cookie, "/sessions").await.body;
    assert!(!list.contains("kept-name"), "nothing was launched");
}

#[tokio::test]
async fn what_is_not_ready_to_launch_has_an_inactive_button_with_its_reason() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    let button = |body: &str| {
        let (_, rest) = body.split_once("value=\"launch\"").expect("the button");
        rest.split_once('>').expect("a tag").0.to_owned()
    };
    let ready = house.get(&cookie, "/sessions/new").await.body;
    assert_eq!(button(&ready), "");
    for path in ["/sessions/new?kind=batch", "/sessions/new?cpu=banana"] {
        let body = house.get(&cookie, path).await.body;
        let inactive = r#" aria-disabled="true" aria-describedby="why-not""#;
        assert_eq!(button(&body), inactive, "{path}");
        let (_, why) = body.split_once(r#"id="why-not">"#).expect("its reason");
        let why = why.split_once('<').expect("a tag").0;
        assert!(
            why.len() > 12 && body.matches(why).count() > 1,
            "{path}: {why}"
        );
    }
    // Without script it is sent all the same, and the fault stands at its field.
    let form = [("kind", "batch"), ("cpu", "banana"), ("act", "launch")];
    let refused = house.post(&cookie, "/sessions/new", &form).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(refused.body.contains(r#"aria-invalid="true""#));
}

#[tokio::test]
async fn hostile_text_never_breaks_a_form() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    let long = "x".repeat(400_000);
    let table = [
        ("name", "a\0b"),
        ("name", "../../etc"),
        ("name", "\u{202e}txt"),
        ("name", long.as_str()),
        ("cpu", "-1"),
        ("cpu", "NaN"),
        ("memory", "1e12"),
        ("memory", "0"),
        ("replicas", "10000"),
        ("replicas", "many"),
        ("containers", "21"),
        ("containers", "many"),
        ("max_runtime", "-5"),
        ("start_at", "tomorrow"),
        ("after", "nobody-knows"),
        ("env", "no equals sign"),
        ("labels", "\u{200b}=1"),
        ("image", "no-such-image"),
    ];
    for (field, value) in table {
        let mut form = vec![("cpu", "1"), ("memory", "1"), ("name", "fine")];
        form.retain(|(name, _)| *name != field);
        form.push((field, value));
        let answer = house.post(&cookie, "/sessions/new", &form).await;
        let short: String = value.chars().take(20).collect();
        assert!(
            matches!(answer.status.as_u16(), 404 | 409 | 413 | 422),
            "{field}={short:?}: {} {}",
            answer.status,
            answer.body.chars().take(200).collect::<String>()
        );
        let preview = house.post(&cookie, "/sessions/new/preview", &form).await;
        assert!(
            matches!(preview.status.as_u16(), 200 | 413),
            "preview of {field}={short:?}: {}",
            preview.status
        );
    }
    let list = house.get(&cookie, "/sessions").await.body;
    assert!(!list.contains("href=\"/sessions/0"), "nothing was launched");
}

#[tokio::test]
async fn other_sites_change_nothing() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    for origin in ["http://evil", "http://box:8443", "null"] {
        let headers = [("cookie", cookie.as_str()), ("origin", origin)];
        let answer = house
            .ask(
                Method::POST,
                "/sessions/new",
                &headers,
                &[("cpu", "1"), ("memory", "1")],
            )
            .await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{origin}");
        assert!(answer.body.contains("origin.foreign"));
    }
    let bare = house
        .ask(Method::POST, "/logout", &[("cookie", &cookie)], &[])
        .await;
    assert_eq!(
        bare.status,
        StatusCode::FORBIDDEN,
        "an unsafe request without Origin"
    );
    assert_eq!(
        house.get(&cookie, "/me").await.status,
        StatusCode::OK,
        "and the sign-in stands"
    );
}

#[tokio::test]
async fn signing_out_and_in_again() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    let out = house.post(&cookie, "/logout", &[]).await;
    assert_eq!(
        (out.status, out.location.as_str()),
        (StatusCode::SEE_OTHER, "/login?notice=out")
    );
    assert_eq!(
        house.get(&cookie, "/").await.status,
        StatusCode::SEE_OTHER,
        "the old cookie is dead"
    );
    let wrong = house
        .post(
            "",
            "/login",
            &[("name", "mina"), ("password", "wrong"), ("next", "/queue")],
        )
        .await;
    assert_eq!(wrong.status, StatusCode::UNAUTHORIZED);
    assert!(
        wrong.body.contains("value=\"mina\"") && wrong.body.contains("value=\"/queue\""),
        "what was typed stays"
    );
    let right = house
        .post(
            "",
            "/login",
            &[("name", "mina"), ("password", PASSWORD), ("next", "/queue")],
        )
        .await;
    assert_eq!(
        (right.status, right.location.as_str()),
        (StatusCode::SEE_OTHER, "/queue")
    );
    let elsewhere = house
        .post(
            "",
            "/login",
            &[("name", "mina"), ("password", PASSWORD), ("next", "//evil")],
        )
        .await;
    assert_eq!(elsewhere.location, "/");
}

#[tokio::test]
async fn tokens_are_shown_once() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    let made = house
        .post(
            &cookie,
            "/me/tokens",
            &[("name", "nightly"), ("scope", "read"), ("days", "7")],
        )
        .await;
    assert_eq!(
        made.status,
        StatusCode::SEE_OTHER,
        "a reload makes no second one"
    );
    let shown = house.get(&cookie, &made.location).await.body;
    assert!(shown.contains(">fardel_"), "the secret is shown");
    let again = house.get(&cookie, &made.location).await.body;
    assert!(
        again.contains("nightly") && !again.contains(">fardel_"),
        "and never again"
    );
    assert_eq!(again.matches("/revoke\"").count(), 1);
    // Revoking asks first.
    let (_, rest) = again.split_once("href=\"/me/tokens/").expect("a link");
    let id = rest.split('/').next().unwrap_or_default();
    let question = house
        .get(&cookie, &format!("/me/tokens/{id}/revoke"))
        .await
        .body;
    assert!(question.contains("nightly") && question.contains("method=\"post\""));
    assert!(house.get(&cookie, "/me").await.body.contains(">nightly<"));
    house
        .post(&cookie, &format!("/me/tokens/{id}/revoke"), &[])
        .await;
    assert!(!house.get(&cookie, "/me").await.body.contains("/revoke\""));
}

#[tokio::test]
async fn a_folder_is_made_trashed_and_restored_by_forms_alone() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    let empty = house.get(&cookie, "/folders").await.body;
    assert!(empty.contains("No folders yet."), "{empty}");
    assert!(empty.contains("0 B of 50 GiB"), "{empty}");
    let refused = house.post(&cookie, "/folders", &[("name", "a/b")]).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(refused.body.contains("value=\"a/b\""), "{}", refused.body);
    let made = house.post(&cookie, "/folders", &[("name", "data")]).await;
    assert_eq!(made.status, StatusCode::SEE_OTHER, "{}", made.body);
    let shown = house.get(&cookie, "/folders").await.body;
    let after = shown.split("/folders/").nth(1).expect("a link");
    let id = after.split('/').next().unwrap_or_default();
    let place = format!("/folders/{id}/trash");
    let question = house.get(&cookie, &place).await.body;
    assert!(question.contains("Move data to the trash?"), "{question}");
    let trashed = house.post(&cookie, &place, &[]).await;
    assert_eq!(trashed.status, StatusCode::SEE_OTHER, "{}", trashed.body);
    let shown = house.get(&cookie, "/folders").await.body;
    let back = format!("/folders/{id}/restore");
    assert!(shown.contains(&back), "{shown}");
    let faults = lint::page(&shown);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let restored = house.post(&cookie, &back, &[]).await;
    assert_eq!(restored.status, StatusCode::SEE_OTHER, "{}", restored.body);
    let shown = house.get(&cookie, "/folders").await.body;
    assert!(shown.contains(&place) && !shown.contains(&back), "{shown}");
    house.post(&cookie, &place, &[]).await;
    let gone = format!("/folders/{id}/purge");
    let shown = house.get(&cookie, "/folders").await.body;
    assert!(shown.contains(&gone), "{shown}");
    let question = house.get(&cookie, &gone).await.body;
    assert!(question.contains("Delete data for good?"), "{question}");
    let purged = house.post(&cookie, &gone, &[]).await;
    assert_eq!(purged.status, StatusCode::SEE_OTHER, "{}", purged.body);
    let shown = house.get(&cookie, "/folders").await.body;
    assert!(!shown.contains(&back) && !shown.contains(&gone), "{shown}");
    assert!(shown.contains("being removed"), "{shown}");
}

#[tokio::test]
async fn files_of_a_folder_are_made_moved_and_removed_by_forms_alone() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    let made = house.post(&cookie, "/folders", &[("name", "data")]).await;
    assert_eq!(made.status, StatusCode::SEE_OTHER, "{}", made.body);
    let shown = house.get(&cookie, "/folders").await.body;
    let after = shown.split("href=\"/folders/").nth(1).expect("a link");
    let id = after.split('/').next().unwrap_or_default().to_owned();
    let place = format!("/folders/{id}/files");
    let empty = house.get(&cookie, &place).await.body;
    assert!(empty.contains("Nothing is in this directory."), "{empty}");
    let mkdir = format!("/folders/{id}/mkdir");
    for name in ["a/b", "", "..", "two\nlines"] {
        let refused = house
            .post(&cookie, &mkdir, &[("path", ""), ("name", name)])
            .await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{name:?}");
    }
    let made = house
        .post(&cookie, &mkdir, &[("path", ""), ("name", "train 100%")])
        .await;
    assert_eq!(made.status, StatusCode::SEE_OTHER, "{}", made.body);
    let shown = house.get(&cookie, &place).await.body;
    assert!(
        shown.contains("train 100%") && shown.contains("path=train%20100%2525"),
        "{shown}"
    );
    let faults = lint::page(&shown);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let entry = format!("/folders/{id}/entry");
    let details = format!("{entry}?path=train%20100%2525");
    let form = house.get(&cookie, &details).await.body;
    assert!(form.contains("value=\"train 100%25\""), "{form}");
    let faults = lint::page(&form);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let moved = house
        .post(
            &cookie,
            &entry,
            &[("path", "train 100%25"), ("to", "train")],
        )
        .await;
    assert_eq!(moved.status, StatusCode::SEE_OTHER, "{}", moved.body);
    let removal = format!("/folders/{id}/remove");
    let question = house
        .get(&cookie, &format!("{removal}?path=train"))
        .await
        .body;
    assert!(question.contains("Delete train?"), "{question}");
    let removed = house.post(&cookie, &removal, &[("path", "train")]).await;
    assert_eq!(removed.status, StatusCode::SEE_OTHER, "{}", removed.body);
    let shown = house.get(&cookie, &place).await.body;
    assert!(shown.contains("Nothing is in this directory."), "{shown}");
    let trash = format!("/folders/{id}/removed");
    let shown = house.get(&cookie, &trash).await.body;
    let item = shown
        .split("name=\"item\" value=\"")
        .nth(1)
        .expect("an item");
    let item = item.split('"').next().unwrap_or_default().to_owned();
    let faults = lint::page(&shown);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let back = format!("{trash}/restore");
    let restored = house.post(&cookie, &back, &[("item", &item)]).await;
    assert_eq!(restored.status, StatusCode::SEE_OTHER, "{}", restored.body);
    let again = house.post(&cookie, &back, &[("item", &item)]).await;
    assert_eq!(again.status, StatusCode::NOT_FOUND);
    let shown = house.get(&cookie, &place).await.body;
    assert!(shown.contains("?path=train\""), "{shown}");
    let form = [("path", "train"), ("force", "1")];
    let removed = house.post(&cookie, &removal, &form).await;
    assert_eq!(removed.status, StatusCode::SEE_OTHER, "{}", removed.body);
    let empty = format!("{trash}/empty");
    let question = house.get(&cookie, &empty).await.body;
    assert!(
        question.contains("Delete all that is in the trash of data?"),
        "{question}"
    );
    let emptied = house.post(&cookie, &empty, &[]).await;
    assert_eq!(emptied.status, StatusCode::SEE_OTHER, "{}", emptied.body);
    let shown = house.get(&cookie, &trash).await.body;
    assert!(
        shown.contains("Nothing is in the trash of this folder."),
        "{shown}"
    );
}

#[tokio::test]
async fn several_files_of_a_folder_go_and_come_back_by_forms_alone() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    let made = house.post(&cookie, "/folders", &[("name", "data")]).await;
    assert_eq!(made.status, StatusCode::SEE_OTHER, "{}", made.body);
    let shown = house.get(&cookie, "/folders").await.body;
    let after = shown.split("href=\"/folders/").nth(1).expect("a link");
    let id = after.split('/').next().unwrap_or_default().to_owned();
    for name in ["a", "b", "into"] {
        let form = [("path", ""), ("name", name)];
        let place = format!("/folders/{id}/mkdir");
        let made = house.post(&cookie, &place, &form).await;
        assert_eq!(made.status, StatusCode::SEE_OTHER, "{name}");
    }
    let place = format!("/folders/{id}/selection");
    let asked = format!("{place}?verb=move&path=&id=a&id=b");
    let question = house.get(&cookie, &asked).await.body;
    assert!(question.contains("Entries to move: 2"), "{question}");
    assert!(question.contains("name=\"id\" value=\"b\""), "{question}");
    let faults = lint::page(&question);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let asked = [("ask", "1"), ("verb", "move"), ("id", "a"), ("id", "b")];
    let question = house.post(&cookie, &place, &asked).await;
    assert_eq!(question.status, StatusCode::OK);
    assert!(question.body.contains("Entries to move: 2"));
    let form = |to| {
        let chosen = [("verb", "move"), ("path", ""), ("id", "a"), ("id", "b")];
        [&chosen[..], &[("to", to)]].concat()
    };
    let refused = house.post(&cookie, &place, &form("none")).await;
    assert_eq!(refused.status, StatusCode::NOT_FOUND, "{}", refused.body);
    assert!(refused.body.contains("id=\"fault-to\""), "{}", refused.body);
    let faults = lint::page(&refused.body);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let moved = house.post(&cookie, &place, &form("into")).await;
    assert_eq!(moved.status, StatusCode::SEE_OTHER, "{}", moved.body);
    let removal = [("path", "into"), ("id", "into/a"), ("id", "into/b")];
    let asked = format!("{place}?verb=remove&path=into&id=into/a&id=into/b");
    let question = house.get(&cookie, &asked).await.body;
    assert!(question.contains("Delete 2 entries?"), "{question}");
    let removed = house.post(&cookie, &place, &removal).await;
    assert_eq!(removed.status, StatusCode::SEE_OTHER, "{}", removed.body);
    let shown = house.get(&cookie, &removed.location).await.body;
    let at = shown
        .split("name=\"at\" value=\"")
        .nth(1)
        .expect("a way back");
    let at = at.split('"').next().unwrap_or_default().to_owned();
    let faults = lint::page(&shown);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let undo = format!("/folders/{id}/removed/undo");
    let form = [("path", "into"), ("at", at.as_str())];
    let back = house.post(&cookie, &undo, &form).await;
    assert_eq!(back.status, StatusCode::SEE_OTHER, "{}", back.body);
    let shown = house.get(&cookie, &back.location).await.body;
    assert!(shown.contains("value=\"into/b\""), "{shown}");
    let again = house.post(&cookie, &undo, &form).await;
    assert_eq!(again.status, StatusCode::NOT_FOUND);
    let asked = format!("{place}/zip?path=into&id=into/a&id=into/b");
    let zip = house.get(&cookie, &asked).await.location;
    assert_eq!(
        zip,
        format!("/api/v1/folders/{id}/archive?format=zip&path=into%2Fa&path=into%2Fb")
    );
}

#[tokio::test]
async fn apps_of_a_session_that_waits_are_said_to_need_one_that_runs() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    let form = [("name", "first"), ("cpu", "1"), ("memory", "1")];
    let launched = house.post(&cookie, "/sessions/new", &form).await;
    assert_eq!(launched.status, StatusCode::SEE_OTHER, "{}", launched.body);
    let shown = house.get(&cookie, "/sessions/first/apps").await;
    assert_eq!(shown.status, StatusCode::OK, "{}", shown.body);
    assert!(shown.body.contains("Apps are opened in sessions that run."));
    let faults = lint::page(&shown.body);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    for path in ["/sessions/first/apps/8000", "/sessions/first/apps/jupyter"] {
        let page = house.get(&cookie, path).await;
        assert_eq!(page.status, StatusCode::CONFLICT, "{path}");
        let opened = house.post(&cookie, path, &[("to", "/")]).await;
        assert_eq!(opened.status, StatusCode::CONFLICT, "{path}");
    }
    let nowhere = house.get(&cookie, "/apps/18443").await;
    assert_eq!(nowhere.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn an_image_is_made_of_a_session_by_a_form_that_says_why_not() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    let form = [("name", "first"), ("cpu", "1"), ("memory", "1")];
    let launched = house.post(&cookie, "/sessions/new", &form).await;
    assert_eq!(launched.status, StatusCode::SEE_OTHER, "{}", launched.body);
    let path = "/sessions/first/commit";
    let shown = house.get(&cookie, path).await;
    assert_eq!(shown.status, StatusCode::OK, "{}", shown.body);
    let faults = lint::page(&shown.body);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    // It runs the machine's own programs, so there is nothing to put a layer on.
    for form in [
        vec![("reference", "tools:1"), ("exclude", "/opt/data\n/srv")],
        vec![
            ("reference", "tools:1"),
            ("exclude", "/opt/data\n/srv"),
            ("make", "1"),
        ],
    ] {
        let refused = house.post(&cookie, path, &form).await;
        assert_eq!(refused.status, StatusCode::CONFLICT, "{}", refused.body);
        assert!(
            refused.body.contains("no image lies below it"),
            "{}",
            refused.body
        );
        assert!(
            refused.body.contains("/opt/data\n/srv"),
            "what was typed stays"
        );
        let faults = lint::page(&refused.body);
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
    for missing in [
        "/sessions/none/commit",
        "/sessions/first/commit?operation=x",
    ] {
        let nowhere = house.get(&cookie, missing).await;
        assert_eq!(nowhere.status, StatusCode::NOT_FOUND, "{missing}");
    }
}

#[tokio::test]
async fn who_has_as_many_keys_and_tokens_as_may_be_is_told_which_to_revoke() {
    let clock = Clock::set_by_hand(Timestamp::from_millis(1_800_000_000_000));
    let house = PagesFixture::with(SettingsLayer::default(), clock);
    let cookie = house.set_up().await;
    let clock = house.server.clock();
    for (path, count, other) in [("/me/keys", 10, 0), ("/me/tokens", 100, 10)] {
        let page = path.replace("/tokens", "");
        let form = format!("action=\"{path}\" method=\"post\"");
        for number in other..count {
            let shown = house.get(&cookie, &page).await.body;
            assert!(shown.contains(&form), "{number}: {shown}");
            clock.set(clock.now().plus_seconds(1));
            let name = format!("of-{count}-{number}-");
            let made = house.post(&cookie, path, &[("name", name.as_str())]).await;
            assert_eq!(made.status, StatusCode::SEE_OTHER, "{}", made.body);
        }
        let full = house.get(&cookie, &page).await.body;
        let oldest = format!("Least recently used: of-{count}-{other}-.");
        assert!(full.contains(&format!("You have {count} ")), "{full}");
        assert!(full.contains(&oldest) && !full.contains(&form), "{full}");
        // A form that was open before is told the same.
        let late = house.post(&cookie, path, &[("name", "late")]).await;
        assert_eq!(late.status, StatusCode::CONFLICT);
        assert!(late.body.contains(&oldest), "{}", late.body);
        let faults = lint::page(&late.body);
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}

#[tokio::test]
async fn a_site_with_as_many_policies_as_may_be_is_offered_no_form() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    let form = "action=\"/policies\" method=\"post\"";
    let empty = house.get(&cookie, "/policies").await.body;
    assert!(empty.contains(form), "{empty}");
    let mut made = 0;
    loop {
        let name = format!("course-{made}");
        let answer = house
            .post(&cookie, "/policies", &[("name", name.as_str())])
            .await;
        if answer.status == StatusCode::CONFLICT {
            break;
        }
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.body);
        made += 1;
        assert!(made <= 500, "there is no bound");
    }
    let full = house.get(&cookie, "/policies").await.body;
    assert!(full.contains("There are 500 policies already."), "{full}");
    assert!(!full.contains(form), "{full}");
    let faults = lint::page(&full);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Who asks for more reads first what holds, and which rule says it: of two policies the stricter one.
#[tokio::test]
async fn who_asks_for_a_higher_limit_sees_what_holds_and_which_rule_wins() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    for (name, sessions) in [("wide", "7"), ("narrow", "3")] {
        let made = house.post(&cookie, "/policies", &[("name", name)]).await;
        assert_eq!(made.status, StatusCode::SEE_OTHER, "{}", made.body);
        let (level, subject) = match name {
            "wide" => ("site", ""),
            _ => ("domain", "default"),
        };
        let form = [
            ("sessions", sessions),
            ("level", level),
            ("subject", subject),
        ];
        let path = format!("/policies/{name}/attach");
        let attached = house.post(&cookie, &path, &form).await;
        assert_eq!(attached.status, StatusCode::SEE_OTHER, "{}", attached.body);
    }
    let page = house.get(&cookie, "/me/limits?key=sessions").await.body;
    for told in [
        "<dd>0 of 3 · policy narrow</dd>",
        "Sessions that run or start, at once: 3</option>",
        "Now: 0 of 3 · policy narrow",
        " · built in</dd>",
        "<dt>GPUs</dt><dd>no limit</dd>",
    ] {
        assert!(page.contains(told), "{told}: {page}");
    }
    assert!(!page.contains("of 7 ·"), "{page}");
    let faults = lint::page(&page);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[tokio::test]
async fn tastes_are_kept_by_the_browser() {
    let house = PagesFixture::open();
    let form = [("language", "ko"), ("theme", "dark"), ("back", "/login")];
    let answer = house.post("", "/preferences", &form).await;
    assert_eq!(
        (answer.status, answer.location.as_str()),
        (StatusCode::SEE_OTHER, "/login")
    );
    assert_eq!(answer.cookie.split(';').next(), Some("fardel_language=ko"));
    let page = house
        .get("fardel_language=ko; fardel_theme=dark", "/setup")
        .await
        .body;
    assert!(page.contains("<html lang=\"ko\" data-theme=\"dark\">"));
}

#[tokio::test]
async fn whom_to_trust_is_shown_before_anybody_signs_in() {
    let house = PagesFixture::open();
    let authority = house.server.certificates().expect("made").authority();
    for (agent, open) in [
        ("Mozilla/5.0 (Windows NT 10.0; Win64; x64)", "Windows"),
        (
            "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X)",
            "iPhone",
        ),
        ("Mozilla/5.0 (Linux; Android 15)", "Android"),
        ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7)", "macOS"),
        ("Mozilla/5.0 (X11; Linux x86_64)", "Debian"),
    ] {
        for language in ["en", "ko"] {
            let headers = [("user-agent", agent), ("accept-language", language)];
            let page = house.ask(Method::GET, "/trust", &headers, &[]).await;
            assert_eq!(page.status, StatusCode::OK);
            assert!(
                page.body.contains(&authority.fingerprint),
                "the whole fingerprint"
            );
            let faults = lint::page(&page.body);
            assert!(faults.is_empty(), "{}", faults.join("\n"));
            let open_ones: Vec<&str> = page.body.split("<details").skip(1).collect();
            assert_eq!(open_ones.len(), 8, "eight sorts of computers in {language}");
            let shown: Vec<&&str> = open_ones
                .iter()
                .filter(|d| d.starts_with(" class=\"fold\" open"))
                .collect();
            assert_eq!(shown.len(), 1, "{agent}");
            assert!(shown[0].contains(&format!("<b>{open}")), "{agent}");
            assert!(
                page.body.contains("https://box:7860"),
                "the machine's own address stands in the commands"
            );
            assert!(!page.body.contains("THIS-MACHINE"));
        }
    }
    let pem = house.get("", "/trust/fardel.pem").await;
    assert_eq!((pem.status, pem.body), (StatusCode::OK, authority.pem));
    assert_eq!(
        house.get("", "/trust/fardel.crt").await.status,
        StatusCode::OK
    );
}

#[tokio::test]
async fn a_certificate_that_does_not_fit_is_refused_on_the_page_and_its_key_is_shown_nowhere() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    let asked = house
        .post(
            &cookie,
            "/system/tls/request",
            &[("names", "gpu.lab, 10.1.2.3"), ("organisation", "Lab")],
        )
        .await;
    assert_eq!(asked.status, StatusCode::OK);
    assert!(
        asked.body.contains("BEGIN CERTIFICATE REQUEST") && !asked.body.contains("PRIVATE KEY")
    );
    let bad = house
        .post(&cookie, "/system/tls/request", &[("names", "a_b")])
        .await;
    assert_eq!(bad.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(bad.body.contains("a_b"), "what was typed stays");
    let waiting = house.get(&cookie, "/system/tls").await;
    assert!(waiting.body.contains("gpu.lab, 10.1.2.3"));

    let before = house
        .server
        .certificates()
        .expect("made")
        .shown()
        .expect("shown");
    let form = "--x\r\nContent-Disposition: form-data; name=\"certificate\"\r\n\r\nnothing\r\n--x\r\nContent-Disposition: form-data; name=\"key-file\"; filename=\"k\"\r\n\r\n-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\r\n--x--\r\n";
    let request = Request::post("/system/tls/certificate")
        .header(header::HOST, "box:7860")
        .header(header::ORIGIN, "http://box:7860")
        .header(header::COOKIE, &cookie)
        .header(header::CONTENT_TYPE, "multipart/form-data; boundary=x")
        .body(Body::from(form))
        .expect("a request");
    let response = house
        .router
        .clone()
        .oneshot(request)
        .await
        .expect("an answer");
    assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let bytes = response
        .into_body()
        .collect()
        .await
        .expect("a body")
        .to_bytes();
    let body = String::from_utf8_lossy(&bytes);
    assert!(
        body.contains("BEGIN CERTIFICATE") && !body.contains("c2VjcmV0"),
        "{body}"
    );
    assert_eq!(
        house
            .server
            .certificates()
            .expect("made")
            .shown()
            .expect("shown"),
        before
    );
    let reset = house
        .post(&cookie, "/system/tls/reset", &[("to", "site")])
        .await;
    assert_eq!(reset.status, StatusCode::CONFLICT);
    let reset = house
        .post(&cookie, "/system/tls/reset", &[("to", "own")])
        .await;
    assert_eq!(
        (reset.status, reset.location.as_str()),
        (StatusCode::SEE_OTHER, "/system/tls?notice=certificate&of=")
    );
}

#[tokio::test]
async fn an_installation_that_was_left_goes_on_where_it_stands() {
    let house = PagesFixture::open();
    assert_eq!(
        house.get("", "/setup/time").await.location,
        "/setup",
        "nobody is there yet"
    );
    let cookie = house.set_up().await;
    for step in ["time", "certificate", "environment", "test", "report"] {
        for language in ["en", "ko"] {
            let headers = [("cookie", cookie.as_str()), ("accept-language", language)];
            let page = house
                .ask(Method::GET, &format!("/setup/{step}"), &headers, &[])
                .await;
            assert_eq!(page.status, StatusCode::OK, "{step}");
            let faults = lint::page(&page.body);
            assert!(
                faults.is_empty(),
                "{step} ({language}):\n{}",
                faults.join("\n")
            );
        }
        assert_eq!(
            house.get("", &format!("/setup/{step}")).await.status,
            StatusCode::SEE_OTHER
        );
    }
    assert_eq!(
        house.get(&cookie, "/setup/nothing").await.status,
        StatusCode::NOT_FOUND
    );
    for (step, next) in [
        ("time", "/setup/certificate"),
        ("certificate", "/setup/environment"),
    ] {
        let answer = house.post(&cookie, &format!("/setup/{step}"), &[]).await;
        assert_eq!(answer.location, next);
    }
    // Left, and taken up again from the link of the first step or from the overview.
    assert_eq!(
        house.get(&cookie, "/setup").await.location,
        "/setup/environment"
    );
    assert!(
        house
            .get(&cookie, "/")
            .await
            .body
            .contains("/setup/environment")
    );
    // No machine is here, so the test waits and says so; a wrong environment is refused.
    let wrong = house
        .post(&cookie, "/setup/test/run", &[("image", "nothing:1")])
        .await;
    assert!(wrong.status.is_client_error(), "{}", wrong.status);
    house.post(&cookie, "/setup/environment", &[]).await;
    house.post(&cookie, "/setup/test", &[]).await;
    assert_eq!(house.get(&cookie, "/setup").await.location, "/setup/report");
    let report = house.get(&cookie, "/setup/report").await;
    let print = house
        .server
        .certificates()
        .expect("made")
        .authority()
        .fingerprint;
    assert!(report.body.contains(&print) && report.body.contains("https://127.0.0.1:7860"));
    // Who has read it goes on by any of its links: nothing is left to continue.
    assert!(!house.get(&cookie, "/").await.body.contains("/setup/"));
    assert_eq!(
        house.post(&cookie, "/setup/report", &[]).await.location,
        "/"
    );
    assert_eq!(
        house.get(&cookie, "/setup").await.status,
        StatusCode::GONE,
        "it is over"
    );
    assert!(!house.get(&cookie, "/").await.body.contains("/setup/"));
}

#[tokio::test]
async fn a_form_has_its_largest() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    for (size, status) in [(1 << 20, 422), ((1 << 20) + 1, 413)] {
        let name = "x".repeat(size - "name=".len());
        let answer = house
            .post(&cookie, "/sessions/new", &[("name", name.as_str())])
            .await;
        assert_eq!(answer.status, status, "{size} bytes");
    }
}
