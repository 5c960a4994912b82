//! The pages that the console serves, read from where its routers are built: one that is added is among them at once. Knows
//! no page by heart, and asks for none.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

use super::reach::product;

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
