//! Holds the code to the catalogue of messages: outside `rules` no code is written as text, no refusal,
//! reason, blocker, notice, check or finding is put together from a sentence, and every entry of the catalogue
//! is used. That each entry has Korean and that its values stand in both languages, the build of `rules` checks.

use std::collections::BTreeSet;

use rules::translations::TRANSLATIONS;

use super::house;
use super::source::{Kind, Source, Tree};

/// Files below `src` that hold tests alone under a name of their own.
const TESTS: [&str; 1] = ["src/server/actions/backups/rollback.rs"];
/// What the catalogue's constructors make, and what is made of those alone.
const MADE: [&str; 7] = [
    "DiagnosticCheck",
    "DoctorCheck",
    "InvariantFinding",
    "Notice",
    "PlacementBlocker",
    "Reason",
    "Refusal",
];
/// Places that hand on what was said elsewhere, each with where its words come from.
const HANDED_ON: [(&str, &str); 15] = [
    ("src/base/settings.rs", "a refusal, with its place in front"),
    ("src/doors/cli.rs", "the server's own answer"),
    (
        "src/server/actions/courses.rs",
        "refusals of members, one by one",
    ),
    (
        "src/doors/pages/system.rs",
        "the failure of the last backup, kept in a row",
    ),
    ("src/doors/pages/trust.rs", "a refusal under another kind"),
    ("src/node/doctor/checks.rs", "the runtime's findings"),
    ("src/node/lib.rs", "the runtime's findings"),
    ("src/node/reconciler.rs", "the runtime's findings"),
    (
        "src/rules/placement/explain.rs",
        "the refusal of what can never be placed",
    ),
    ("src/rules/placement/feasibility.rs", "the node's report"),
    ("src/rules/placement/fit.rs", "the node's report"),
    (
        "src/roles/doctor.rs",
        "the refusal of a catalog that is not this machine's",
    ),
    (
        "src/server/appliance/lazy_stores.rs",
        "a refusal under another code",
    ),
    (
        "src/server/simulation/rehearsal.rs",
        "a refusal, with its line in front",
    ),
    (
        "src/server/offline_inspection/checks.rs",
        "the refusal of a passphrase",
    ),
];

fn is_product(path: &str) -> bool {
    path.starts_with("src/")
        && !path.ends_with("tests.rs")
        && !path.contains("/tests/")
        && !TESTS.contains(&path)
}

/// Whether what the catalogue makes is put together at this token: `Refusal::from_parts`, `Reason::new`, or
/// the opening brace of `Notice { … }`.
fn makes(source: &Source, at: usize) -> bool {
    let text = |back: usize| {
        let token = at
            .checked_sub(back)
            .map(|at| source.tokens[at].text.as_str());
        token.unwrap_or_default()
    };
    let is_made = |name: &str| MADE.contains(&name);
    match (source.tokens[at].kind, text(0)) {
        (Kind::Word, "from_parts" | "new") => text(1) == "::" && is_made(text(2)),
        (Kind::Symbol, "{") => {
            // Back to the beginning of the path, such as `rules::refusal::Refusal`.
            let mut back = 1;
            while text(back + 1) == "::" {
                back += 2;
            }
            let is_type = ["struct", "impl", "for", "of", "let"].contains(&text(back + 1))
                || (text(back + 1), text(back + 2)) == (">", "-");
            is_made(text(1)) && !is_type
        }
        _ => false,
    }
}

/// Texts that are codes of the catalogue, and refusals or reasons made of their parts, in the product.
fn breaches(tree: &Tree) -> Vec<String> {
    let codes: BTreeSet<&str> = TRANSLATIONS.iter().map(|entry| entry.code).collect();
    let mut found = Vec::new();
    for (path, text) in tree.code().filter(|(path, _)| is_product(path)) {
        let source = Source::parse(text);
        for (at, token) in source.tokens.iter().enumerate() {
            if source.in_test(at) {
                continue;
            }
            let is_code = token.kind == Kind::Text && codes.contains(token.text.trim_matches('"'));
            // `rules` itself may write one.
            if is_code && !path.starts_with("src/rules/") {
                found.push(format!(
                    "{path}:{}: {} is a code; write rules::codes::…",
                    token.line, token.text
                ));
            }
            if makes(&source, at) && !HANDED_ON.iter().any(|(file, _)| *file == path) {
                found.push(format!(
                    "{path}:{}: a sentence belongs into src/rules/messages.toml",
                    token.line
                ));
            }
        }
    }
    found
}

#[test]
fn no_code_and_no_sentence_of_a_refusal_stands_outside_the_catalogue() {
    let found = breaches(&house());
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_code_as_text_and_a_sentence_outside_the_catalogue_are_found() {
    for planted in [
        "fn f(code: &str) -> bool { code == \"session.not-found\" }\n",
        "fn f() { Refusal::from_parts(kind, code, text, hint); }\n",
        "fn f() { Reason::from_parts(code, text); }\n",
        "fn f() { Reason::new(code, text); }\n",
        "fn f() -> Notice { Notice { code, text, hint } }\n",
        "fn f() { Some(PlacementBlocker { code, ..other }) }\n",
        "fn f() { found.push(InvariantFinding { code, text }); }\n",
        "fn f(n: u8) { match n { _ => DiagnosticCheck { code, ..other } } }\n",
    ] {
        let mut tree = house().without_code();
        tree.plant("src/doors/planted.rs", planted);
        assert_eq!(breaches(&tree).len(), 1, "{planted}");
    }
    let mut tree = house().without_code();
    let allowed = "impl From<A> for Notice { fn f() -> Notice { let Notice { code, .. } = a; a } }\n\
        fn g() -> rules::refusal::Refusal { refusals::rate_limited() }\n";
    tree.plant("src/doors/planted.rs", allowed);
    assert_eq!(breaches(&tree), Vec::<String>::new());
}

#[test]
fn every_place_that_hands_words_on_still_does() {
    let tree = house();
    for (path, _) in HANDED_ON {
        let source = Source::parse(tree.text(path).unwrap_or_default());
        let mut tokens = 0..source.tokens.len();
        assert!(
            tokens.any(|at| !source.in_test(at) && makes(&source, at)),
            "{path} needs no exception"
        );
    }
}

#[test]
fn every_entry_of_the_catalogue_is_used() {
    let tree = house();
    let mut words = BTreeSet::new();
    for (path, text) in tree.code() {
        if path.starts_with("src/") && !path.contains("/tests/") && !path.ends_with("tests.rs") {
            words.extend(text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')));
        }
    }
    let catalogue = include_str!("../../../src/rules/messages.toml");
    let entries: toml::Table = catalogue.parse().expect("the build reads it too");
    assert!(entries.len() > 400, "only {} entries", entries.len());
    let unused: Vec<&String> = entries
        .iter()
        .filter(|(_, entry)| entry.get("kind").and_then(|kind| kind.as_str()) != Some("note"))
        .map(|(name, _)| name)
        .filter(|name| {
            let check = name.strip_prefix("check_");
            ![Some(name.as_str()), check]
                .into_iter()
                .flatten()
                .any(|name| words.contains(name))
        })
        .collect();
    assert!(unused.is_empty(), "no code uses {unused:?}");
}
