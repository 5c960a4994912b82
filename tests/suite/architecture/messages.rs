//! Holds the code to the catalogue of messages: outside `rules` no code is written as text, no refusal and no
//! reason is put together from a sentence, and every entry of the catalogue is used. That each entry has
//! Korean and that its values stand in both languages, the build of `rules` checks.

use std::collections::BTreeSet;

use rules::message::MESSAGES;

use super::house;
use super::source::{Kind, Source, Tree};

/// Files below `src` that hold tests alone under a name of their own.
const TESTS: [&str; 1] = ["src/server/actions/backups/rollback.rs"];
/// Places that hand on what was said elsewhere, each with where its words come from.
const HANDED_ON: [(&str, &str); 4] = [
    ("src/doors/cli.rs", "the server's own answer"),
    (
        "src/doors/pages/system.rs",
        "the failure of the last backup, kept in a row",
    ),
    ("src/node/lib.rs", "the runtime's findings"),
    ("src/node/reconciler.rs", "the runtime's findings"),
];

fn is_product(path: &str) -> bool {
    path.starts_with("src/")
        && !path.starts_with("src/rules/")
        && !path.ends_with("tests.rs")
        && !path.contains("/tests/")
        && !TESTS.contains(&path)
}

/// Texts that are codes of the catalogue, and refusals or reasons made of their parts, in the product.
fn breaches(tree: &Tree) -> Vec<String> {
    let codes: BTreeSet<&str> = MESSAGES.iter().map(|message| message.code).collect();
    let mut found = Vec::new();
    for (path, text) in tree.code().filter(|(path, _)| is_product(path)) {
        let source = Source::parse(text);
        for (at, token) in source.tokens.iter().enumerate() {
            if source.in_test(at) {
                continue;
            }
            if token.kind == Kind::Text && codes.contains(token.text.trim_matches('"')) {
                found.push(format!(
                    "{path}:{}: {} is a code; write rules::codes::…",
                    token.line, token.text
                ));
            }
            let parts = token.kind == Kind::Word && token.text == "from_parts";
            let of = at.checked_sub(3).map(|of| source.tokens[of].text.as_str());
            // Of `Refusal::from_parts`: a name, two colons.
            let near = of
                .into_iter()
                .chain(at.checked_sub(2).map(|of| source.tokens[of].text.as_str()));
            if parts
                && near
                    .into_iter()
                    .any(|name| name == "Refusal" || name == "Reason")
                && !HANDED_ON.iter().any(|(file, _)| *file == path)
            {
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
    ] {
        let mut tree = house().without_code();
        tree.plant("src/doors/planted.rs", planted);
        assert_eq!(breaches(&tree).len(), 1, "{planted}");
    }
}

#[test]
fn every_place_that_hands_words_on_still_does() {
    let tree = house();
    for (path, _) in HANDED_ON {
        let text = tree.text(path).unwrap_or_default();
        assert!(text.contains("::from_parts("), "{path} needs no exception");
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
        .filter(|name| !words.contains(name.as_str()))
        .collect();
    assert!(unused.is_empty(), "no code uses {unused:?}");
}
