//! Tables of requests, cookies and addresses. Each row that is refused stands beside one that differs in what is checked.

use super::*;

const OWN: &str = "https://box:8444";

/// One request in a line: method, path, then what it says.
fn verdict(line: &str) -> String {
    let mut parts = line.split(" | ");
    let (method, path) = parts
        .next()
        .and_then(|first| first.split_once(' '))
        .expect("both");
    let mut request = AppRequest {
        method,
        path,
        ..AppRequest::default()
    };
    for part in parts {
        let (name, value) = part.split_once(": ").unwrap_or((part, ""));
        match name {
            "origin" => request.origin = Some(value),
            "referer" => request.referer = Some(value),
            "site" => request.site = Some(value),
            "mode" => request.mode = Some(value),
            "dest" => request.destination = Some(value),
            "upgrade" => request.is_upgrade = true,
            "token" => request.has_token = true,
            "worker" => request.is_worker_script = true,
            other => panic!("{other}"),
        }
    }
    request
        .check(OWN)
        .map_or_else(|refusal| refusal.code, |()| "passes".to_owned())
}

/// Proves too: `only_our_own_pages_and_programs_with_tokens_may_change_anything`
#[test]
fn only_an_apps_own_pages_and_programs_with_tokens_reach_it() {
    for (line, expected) in [
        (
            "GET / | site: same-origin | mode: cors | dest: empty",
            "passes",
        ),
        (
            "GET / | site: none | mode: navigate | dest: document",
            "passes",
        ),
        // A link of the console, and of any other page: a new tab and nothing else.
        (
            "GET / | site: same-site | mode: navigate | dest: document",
            "passes",
        ),
        (
            "GET / | site: cross-site | mode: navigate | dest: document",
            "passes",
        ),
        (
            "GET / | site: same-site | mode: navigate | dest: iframe",
            "app.origin-foreign",
        ),
        (
            "GET / | site: same-site | mode: no-cors | dest: image",
            "app.origin-foreign",
        ),
        (
            "GET / | site: same-site | mode: no-cors | dest: script",
            "app.origin-foreign",
        ),
        (
            "GET / | site: same-site | mode: cors | dest: empty | origin: https://box:7860",
            "app.origin-foreign",
        ),
        (
            "GET / | site: same-origin | origin: https://box:8444",
            "passes",
        ),
        (
            "OPTIONS / | site: same-site | mode: cors | dest: empty | origin: https://box:7860",
            "app.origin-foreign",
        ),
        (
            "POST / | site: same-origin | origin: https://box:8444",
            "passes",
        ),
        (
            "POST / | site: same-origin | origin: https://BOX:8444",
            "passes",
        ),
        (
            "POST / | site: same-site | origin: https://box:7860",
            "app.origin-foreign",
        ),
        (
            "POST / | site: same-site | origin: https://box:8445",
            "app.origin-foreign",
        ),
        (
            "POST / | site: same-site | origin: https://box:8444",
            "app.origin-foreign",
        ),
        ("POST / | origin: http://box:8444", "app.origin-foreign"),
        (
            "POST / | origin: https://box:8444.evil",
            "app.origin-foreign",
        ),
        ("POST / | origin: null", "app.origin-foreign"),
        ("POST / | site: same-origin", "app.origin-foreign"),
        ("POST /", "app.origin-foreign"),
        ("POST / | token", "passes"),
        ("CONNECT / | token", "app.origin-foreign"),
        ("TRACE / | token", "app.origin-foreign"),
        (
            "POST / | token | origin: https://evil",
            "app.origin-foreign",
        ),
        // Browsers send no `Sec-Fetch-*` with a WebSocket.
        ("GET /ws | upgrade | origin: https://box:8444", "passes"),
        (
            "GET /ws | upgrade | origin: https://box:7860",
            "app.origin-foreign",
        ),
        ("GET /ws | upgrade", "app.origin-foreign"),
        ("GET /ws | upgrade | token", "passes"),
        // Where browsers do not say the site.
        ("GET /a.js | referer: https://box:8444/lab?x", "passes"),
        (
            "GET /a.js | mode: no-cors | dest: script | referer: https://box:8445/",
            "app.origin-foreign",
        ),
        ("GET / | referer: https://box:8445/", "app.origin-foreign"),
        (
            "GET /sw.js | worker | site: same-origin",
            "app.worker-at-root",
        ),
        ("GET /x/sw.js?v=/ | worker | site: same-origin", "passes"),
        (
            "GET /sw.js?x=/y/ | worker | site: same-origin",
            "app.worker-at-root",
        ),
    ] {
        assert_eq!(verdict(line), expected, "{line}");
    }
}

#[test]
fn only_a_tab_is_a_navigation() {
    let request = |mode, destination| AppRequest {
        method: "GET",
        path: "/",
        site: Some("same-site"),
        mode: Some(mode),
        destination: Some(destination),
        ..AppRequest::default()
    };
    assert!(request("navigate", "document").is_navigation());
    assert!(!request("navigate", "iframe").is_navigation());
    assert!(!request("no-cors", "empty").is_navigation());
    let post = AppRequest {
        method: "POST",
        ..request("navigate", "document")
    };
    assert!(!post.is_navigation());
}

/// Proves too: `only_our_own_pages_and_programs_with_tokens_may_change_anything`
#[test]
fn cookies_of_ours_never_pass() {
    for (name, is_ours) in [
        ("fardel", true),
        ("Fardel", true),
        ("__Host-fardel", true),
        ("__host-fardel-device", true),
        ("__Host-Http-fardel-app-8444", true),
        ("__Secure-fardel_x", true),
        ("fardel-app-8444", true),
        ("fardels", false),
        ("_xsrf", false),
        ("__Host-x", false),
    ] {
        assert_eq!(is_own_cookie(name), is_ours, "{name}");
        let set = passed_set_cookie(&format!("{name}=planted; Path=/"), true);
        assert_eq!(set.is_none(), is_ours, "{name}");
    }
    let of_none = |_: &str| false;
    let sent = "_xsrf=a=b; __Host-fardel=secret; nameless; =fardel=x; theme=dark";
    assert_eq!(
        passed_cookies(sent, of_none).as_deref(),
        Some("_xsrf=a=b; theme=dark")
    );
    let others = |name: &str| name == "theme";
    assert_eq!(passed_cookies(sent, others).as_deref(), Some("_xsrf=a=b"));
    assert_eq!(passed_cookies("__Host-fardel=secret", of_none), None);
    assert_eq!(cookie_value("a=1; b=2=3", "b"), Some("2=3"));
    assert_eq!(cookie_value("xb=1", "b"), None);
}

#[test]
fn no_request_says_by_itself_who_asks_and_none_carries_others() {
    for (name, is_withheld) in [
        ("x-fardel-user", true),
        ("x_fardel_user", true),
        ("x-fardel_user", true),
        ("x-forwarded-user", true),
        ("x_forwarded-for", true),
        ("x_real_ip", true),
        ("te", true),
        ("x-xsrftoken", false),
        ("sec-websocket-key", false),
    ] {
        assert_eq!(is_withheld_of_request(name), is_withheld, "{name}");
    }
    for (protocol, may) in [
        ("websocket", true),
        ("WebSocket", true),
        ("h2c", false),
        ("H2C", false),
        ("HTTP/2.0", false),
        ("TLS/1.0", false),
        ("SPDY/3.1", false),
        ("websocket, h2c", false),
        ("", false),
    ] {
        assert_eq!(may_change_to(protocol), may, "{protocol}");
    }
}

#[test]
fn a_cookie_of_an_app_stays_on_its_host() {
    let set = |text: &str, encrypted| passed_set_cookie(text, encrypted).map(|(_, text)| text);
    let given = "sid=a b; Domain=box; path=/; SECURE; SameSite=None; HttpOnly";
    let passed = "sid=a b; path=/; SameSite=None; HttpOnly; Secure";
    assert_eq!(set(given, true).as_deref(), Some(passed));
    assert_eq!(set("sid=1; domain = .box", false).as_deref(), Some("sid=1"));
    for nameless in ["=fardel=x", "fardel", " =x", ""] {
        assert_eq!(set(nameless, true), None, "{nameless:?}");
    }
    assert_eq!(entry_cookie(8444, true), "__Host-Http-fardel-app-8444");
    assert!(is_own_cookie(&entry_cookie(8444, false)));
}

#[test]
fn an_app_leads_to_itself_and_outside_and_nowhere_else_on_this_host() {
    let own = |path: &str| AppLocation::Own(path.to_owned());
    for (address, expected) in [
        ("/lab", AppLocation::Passed),
        ("lab?x=https://box:7860/", AppLocation::Passed),
        ("?x", AppLocation::Passed),
        ("https://box:8444/lab", AppLocation::Passed),
        ("//box:8444/lab", AppLocation::Passed),
        ("https://docs.example/x", AppLocation::Passed),
        ("mailto:a@box:7860", AppLocation::Passed),
        ("http://localhost:8888/lab?a=b", own("/lab?a=b")),
        ("http://127.0.0.1:8888", own("/")),
        ("HTTP://LOCALHOST:8888?a", own("/?a")),
        ("http://localhost:9/x", AppLocation::Passed),
        ("https://box:7860/logout", AppLocation::Refused),
        ("https://BOX.:7860/", AppLocation::Refused),
        ("//box:7860/", AppLocation::Refused),
        ("/\\box:7860/", AppLocation::Refused),
        ("\\\\box/", AppLocation::Refused),
        ("https:/\\box:7860/", AppLocation::Refused),
        ("ht\ttps://box:7860/", AppLocation::Refused),
        ("https://me@box:7860/", AppLocation::Refused),
        ("https://box:7860@evil/", AppLocation::Passed),
        (
            "https://box:8445/.fardel/enter?ticket=x",
            AppLocation::Refused,
        ),
        ("http://box:8444/", AppLocation::Refused),
        ("https://box/", AppLocation::Refused),
    ] {
        assert_eq!(
            location(address, OWN, "https://box:7860", 8888),
            expected,
            "{address:?}"
        );
    }
    // Where the console itself is called by such a name.
    const CONSOLE: &str = "http://127.0.0.1:7860";
    let here = "http://127.0.0.1:8444";
    assert_eq!(
        location("http://127.0.0.1:7860/", here, CONSOLE, 8888),
        AppLocation::Refused
    );
    assert_eq!(
        location("http://127.0.0.1:8444/x", here, CONSOLE, 8888),
        AppLocation::Passed
    );
    assert_eq!(
        location("http://127.0.0.1:8888/x", here, CONSOLE, 8888),
        own("/x")
    );
}

#[test]
fn addresses_of_our_origin_are_told_as_the_app_knows_itself() {
    let inner = |address: &str| inner_address(address, OWN, 8888);
    assert_eq!(
        inner("https://box:8444").as_deref(),
        Some("http://localhost:8888")
    );
    assert_eq!(
        inner("https://box:8444/a?b").as_deref(),
        Some("http://localhost:8888/a?b")
    );
    assert_eq!(inner("https://box:7860/sessions/x"), None);
    assert_eq!(inner("https://box:8444.evil/"), None);
}

#[test]
fn an_app_has_a_name_below_that_of_all() {
    for (name, is_good) in [
        ("apps.box.lab", true),
        ("apps.box", true),
        ("box", false),
        ("*.box.lab", false),
        ("apps..lab", false),
        ("-a.lab", false),
        ("a-.lab", false),
        ("Apps.lab", false),
        ("192.168.1.5", false),
        ("", false),
    ] {
        assert_eq!(is_apps_name(name), is_good, "{name:?}");
    }
    let below = "apps.box.lab";
    assert_eq!(
        app_host("jupyter", 8444, below),
        "jupyter-8444.apps.box.lab"
    );
    assert_eq!(console_host(below), "box.lab");
    for (host, expected) in [
        ("jupyter-8444.apps.box.lab", Some(("jupyter", 8444))),
        ("r-2-8444.apps.box.lab", Some(("r-2", 8444))),
        ("8000-8444.apps.box.lab", Some(("8000", 8444))),
        ("jupyter-08444.apps.box.lab", None),
        ("jupyter-99999.apps.box.lab", None),
        ("-8444.apps.box.lab", None),
        ("x.jupyter-8444.apps.box.lab", None),
        ("jupyter-8444.evilapps.box.lab", None),
        ("apps.box.lab", None),
        ("box.lab", None),
    ] {
        assert_eq!(app_of_host(host, below), expected, "{host}");
    }
    let own = "https://jupyter-8444.apps.box.lab";
    let to = |address: &str| location(address, own, "https://box.lab", 8888);
    assert_eq!(to("https://box.lab/logout"), AppLocation::Refused);
    assert_eq!(to("https://code-8445.apps.box.lab/"), AppLocation::Passed);
    assert_eq!(
        to("https://jupyter-8444.apps.box.lab/lab"),
        AppLocation::Passed
    );
}
