//! The pages that the console serves, read from where its routers are built: one that is added is among them at once, and is
//! looked at crowded. Knows no page by heart but those that are left out for a reason, and asks for none.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

use super::reach::product;

/// Pages without a row of any user: texts and files of the build, and what is there before a sign-in.
pub(super) const UNASKED: [&str; 22] = [
    "/a/{build}/{*name}",
    "/about",
    "/api/docs",
    "/api/docs/{schema}",
    "/docs",
    "/docs/errors/{code}",
    "/docs/{name}",
    "/downloads/fardel",
    "/join",
    "/login",
    "/login/link",
    "/login/provider",
    "/login/return",
    "/login/saml",
    "/login/saml/finish",
    "/login/saml/metadata",
    "/setup",
    "/setup/{step}",
    "/sign-up",
    "/trust",
    "/trust/fardel.crt",
    "/trust/fardel.pem",
];
/// Other pages that the crowded look leaves out, by their ends, and why.
const UNCROWDED: [(&str, &str); 43] = [
    ("/live", "a stream of what a page shows"),
    (".csv", "a file"),
    ("/export", "a file"),
    ("/selection/zip", "a file"),
    ("/branding/logo", "a file"),
    ("/statements/signed", "a file"),
    ("/system/backups/{name}", "a file"),
    ("/menu", "a part of a page"),
    ("/announcements/current", "a part of each page"),
    ("/palette", "a part of each page"),
    ("/choices/domains", "a part of a form"),
    ("/choices/projects", "a part of a form"),
    ("/choices/users", "a part of a form"),
    ("/system", "leads to another page"),
    ("/try", "leads to another page"),
    ("/policies/{id}/preview", "leads to the policy"),
    ("/apps/{port}", "leads to an app"),
    ("/queue/{id}", "leads to the session where it does not wait"),
    (
        "/queue/{id}/{verb}",
        "leads to the session where it does not wait",
    ),
    (
        "/sessions/{id}/{verb}",
        "a question about one session, or leads to it",
    ),
    (
        "/queue/cancel",
        "a question about sessions that wait; none does",
    ),
    (
        "/sessions/{id}/terminal",
        "of a container; the box of the look has none",
    ),
    (
        "/environments/{which}",
        "of an environment; the box has none",
    ),
    ("/images/{id}", "of an image; the box has none"),
    ("/images/remove", "of an image; the box has none"),
    ("/storage/{id}/remove", "of a volume; the box has none"),
    ("/folders/{id}/edit", "of one file"),
    ("/folders/{id}/entry", "of one file"),
    ("/folders/{id}/remove", "of one file"),
    ("/folders/{id}/selection", "of one file"),
    ("/folders/{id}/snapshots/{number}", "of one snapshot"),
    (
        "/allowances/{id}/decline",
        "a question about one request; none waits",
    ),
    (
        "/me/keys/{id}/revoke",
        "a question about one thing of the reader",
    ),
    (
        "/me/ssh-keys/{id}/remove",
        "a question about one thing of the reader",
    ),
    (
        "/me/startup/remove",
        "a question about one thing of the reader",
    ),
    (
        "/me/tokens/{id}/revoke",
        "a question about one thing of the reader",
    ),
    (
        "/projects/{id}/invitations/{invitation}",
        "a question about one thing",
    ),
    (
        "/reservations/{id}/withdraw",
        "a question to who asked for it",
    ),
    ("/sessions/{id}/apps/{app}", "a question about one thing"),
    ("/system/branding/reset", "a question without a name"),
    ("/system/webhooks/{id}/remove", "a question about one thing"),
    (
        "/users/import/{id}/undo",
        "a question that the next import takes away",
    ),
    (
        "/users/{id}/second-factor",
        "a question about what the user has not",
    ),
];
/// The look of the browser suite at pages with one user and with five hundred.
const CROWDED: &str = "tests/browser/crowded.mjs";

/// Where paths stand that several rooms know by a constant.
const ELSEWHERE: &str = "src/server/access";

/// Every path that a router of a page answers to a GET, as the router spells it.
pub(super) fn pages() -> BTreeSet<String> {
    let console = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/doors/pages.rs");
    let mut texts = vec![std::fs::read_to_string(console).expect("the router")];
    texts.extend(product("src/doors/pages").into_iter().map(|(_, text)| text));
    let elsewhere: String = product(ELSEWHERE)
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    let found = texts.iter().flat_map(|text| read(text, &elsewhere));
    found.collect()
}

/// The paths in one source. A route that it does not understand is a failure: no page is left out unseen.
fn read(text: &str, elsewhere: &str) -> Vec<String> {
    static READS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\bget\(").expect("a pattern"));
    let mut found = Vec::new();
    for (at, word) in text.match_indices(".route(") {
        let inside = within(&text[at + word.len()..]);
        let (path, handlers) = inside.split_once(',').expect("a path and its handlers");
        if READS.is_match(handlers) {
            found.push(spelled(path.trim(), text, elsewhere));
        }
    }
    found
}

/// The text before the parenthesis that closes.
fn within(text: &str) -> &str {
    let mut depth = 1_usize;
    let end = text.find(|letter: char| {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    &text[..end.expect("a closing parenthesis")]
}

/// A path as it stands between quotation marks, or behind the name of a constant.
fn spelled(path: &str, text: &str, elsewhere: &str) -> String {
    if let Some(quoted) = path.strip_prefix('"') {
        return quoted.trim_end_matches('"').to_owned();
    }
    let name = path.rsplit("::").next().unwrap_or(path);
    let begins = format!("const {name}: &str = \"");
    let told = [text, elsewhere].into_iter().find_map(|source| {
        let (_, rest) = source.split_once(&begins)?;
        rest.split('"').next()
    });
    told.unwrap_or_else(|| panic!("no path behind {path}"))
        .to_owned()
}

#[test]
fn every_way_to_write_a_route_is_understood() {
    let text = r#"
        const FINISH: &str = "/login/finish";
        Router::new()
            .route("/budgets", get(list).post(create))
            .route(
                "/budgets/{id}",
                post(change).get(show).layer(DefaultBodyLimit::max(9)),
            )
            .route(FINISH, get(finish))
            .route(access::RETURN, get(take))
            .route("/budgets/{id}/target", post(target(9)))
    "#;
    let elsewhere = "pub const RETURN: &str = \"/login/return\";";
    let found = read(text, elsewhere);
    let all = [
        "/budgets",
        "/budgets/{id}",
        "/login/finish",
        "/login/return",
    ];
    assert_eq!(found, all);
    let served = pages();
    assert!(served.len() > 150, "only {} pages are found", served.len());
    for known in ["/", "/sessions/{id}", "/users/new", "/login/saml/finish"] {
        assert!(served.contains(known), "{known} is not found");
    }
}

/// The pages of the crowded look, without their queries.
fn crowded(text: &str) -> Vec<String> {
    let (_, rest) = text.split_once("const PAGES = [").expect("its pages");
    let (list, _) = rest.split_once("];").expect("the end of its pages");
    let quoted = list.split('"').skip(1).step_by(2);
    let paths = quoted.map(|page| page.split('?').next().unwrap_or(page).to_owned());
    paths.collect()
}

/// Of the served paths those that no page of `looked_at` is an instance of, and of these pages those that are not served.
fn unseen(served: &BTreeSet<String>, looked_at: &[String]) -> (BTreeSet<String>, Vec<String>) {
    let parameter = Regex::new(r"\{\*?\w+\}").expect("a pattern");
    let routes: Vec<(&String, Regex)> = served
        .iter()
        .map(|path| {
            let pattern = format!("^{}$", parameter.replace_all(path, "[^/]+"));
            (path, Regex::new(&pattern).expect("a path"))
        })
        .collect();
    let (mut left, mut unknown) = (served.clone(), Vec::new());
    for page in looked_at {
        let all = routes.iter().filter(|(_, pattern)| pattern.is_match(page));
        // A router prefers the path that is spelled out.
        match all.min_by_key(|(path, _)| path.matches('{').count()) {
            Some((path, _)) => {
                left.remove(*path);
            }
            None => unknown.push(page.clone()),
        }
    }
    (left, unknown)
}

#[test]
fn every_page_is_looked_at_crowded_or_left_out_for_a_reason() {
    let suite = Path::new(env!("CARGO_MANIFEST_DIR")).join(CROWDED);
    let text = std::fs::read_to_string(suite).expect("the look");
    let looked_at = crowded(&text);
    assert!(looked_at.len() > 90, "only {} pages", looked_at.len());
    let (left, unknown) = unseen(&pages(), &looked_at);
    assert!(
        unknown.is_empty(),
        "{CROWDED} asks for no page: {unknown:?}"
    );
    let mut left: Vec<&str> = left.iter().map(String::as_str).collect();
    left.retain(|path| !UNASKED.contains(path));
    for (end, why) in UNCROWDED {
        let before = left.len();
        left.retain(|path| !path.ends_with(end));
        assert!(
            left.len() < before,
            "{end} is looked at or is no page: {why}"
        );
    }
    assert!(left.is_empty(), "{CROWDED} leaves out {left:?}");
}

#[test]
fn a_page_that_the_crowded_look_forgot_is_found() {
    let served = ["/users", "/users/new", "/users/{id}", "/users/{id}/role"];
    let served = served.into_iter().map(str::to_owned).collect();
    let looked_at =
        crowded("const PAGES = [\n\"/users?q=a\", \"/users/new\",\n\"/user\",\n];\n\"/users/x\"");
    assert_eq!(looked_at, ["/users", "/users/new", "/user"]);
    let (left, unknown) = unseen(&served, &looked_at);
    assert_eq!(Vec::from_iter(left), ["/users/{id}", "/users/{id}/role"]);
    assert_eq!(unknown, ["/user"]);
}
