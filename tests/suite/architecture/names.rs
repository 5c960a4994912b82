//! The language of the code: how many type names are shared by two types, and words that no identifier
//! may have any more. Reads tokens, not types; knows no scopes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::house;
use super::source::{Kind, Source, Tree};

/// What comes after one of these is the name of a type that is declared.
const DECLARES: [&str; 5] = ["struct", "enum", "trait", "union", "type"];
/// Words that no constant has any more, each with what to write. A word ends at an underscore.
const REFUSED_IN_CONSTANTS: [(&str, &str); 9] = [
    ("most", "MAX_"),
    ("longest", "MAX_"),
    ("largest", "MAX_"),
    ("least", "MIN_"),
    ("shortest", "MIN_"),
    ("fewest", "MIN_"),
    ("patience", "_TIMEOUT"),
    ("within", "_TIMEOUT"),
    ("every", "_INTERVAL"),
];
/// Words that no identifier has any more, each with what to write; src/GLOSSARY.md says what that means.
const REFUSED: [(&str, &str); 4] = [
    ("nursery", "fork_server"),
    ("lookout", "monitor"),
    ("conductor", "controller"),
    ("shelves", "lazy_stores"),
];
/// The line of `.ci/budgets.toml` that bounds the share.
const BUDGET: &str = "ambiguous_type_names_percent";

fn is_product(path: &str) -> bool {
    path.starts_with("src/") && !path.ends_with("tests.rs") && !path.contains("/tests/")
}

/// Where each type name is declared in the product, tests and associated types left out.
fn types(tree: &Tree) -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in tree.code().filter(|(path, _)| is_product(path)) {
        let source = Source::parse(text);
        let mut associated = None;
        let mut depth = 0_usize;
        for (at, token) in source.tokens.iter().enumerate() {
            match (token.kind == Kind::Word, token.text.as_str()) {
                (true, "impl" | "trait") if associated.is_none() => associated = Some(depth),
                (false, "{") => depth += 1,
                (false, "}") => {
                    depth = depth.saturating_sub(1);
                    associated = associated.filter(|outside| *outside < depth);
                }
                _ => {}
            }
            let declares = token.kind == Kind::Word && DECLARES.contains(&token.text.as_str());
            let inside = associated.is_some_and(|outside| depth > outside);
            if !declares || source.in_test(at) || (token.text == "type" && inside) {
                continue;
            }
            let Some(name) = source.tokens.get(at + 1) else {
                continue;
            };
            if name.kind == Kind::Word && name.text.starts_with(char::is_uppercase) {
                let place = format!("{path}:{}", name.line);
                all.entry(name.text.clone()).or_default().push(place);
            }
        }
    }
    all
}

/// Of all declarations, those whose name another type has too, in hundredths, rounded up; and those names.
fn share(types: &BTreeMap<String, Vec<String>>) -> (usize, Vec<String>) {
    let shared: Vec<_> = types.iter().filter(|(_, at)| at.len() > 1).collect();
    let ambiguous: usize = shared.iter().map(|(_, at)| at.len()).sum();
    let all: usize = types.values().map(Vec::len).sum();
    let lines = shared
        .iter()
        .map(|(name, at)| format!("{name}: {}", at.join(", ")));
    ((ambiguous * 100).div_ceil(all.max(1)), lines.collect())
}

/// The words of an identifier, in small letters.
fn words(identifier: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut small = false;
    for letter in identifier.chars() {
        if letter == '_' || (letter.is_uppercase() && small) {
            all.push(String::new());
        }
        small = letter.is_lowercase();
        if letter != '_' {
            all.last_mut()
                .expect("there is a word")
                .extend(letter.to_lowercase());
        }
    }
    all.retain(|word| !word.is_empty());
    all
}

/// Whether an identifier is spelled as a constant is.
fn is_constant(identifier: &str) -> bool {
    !identifier.contains(char::is_lowercase)
}

/// Each identifier of this form with a refused word, and what to write.
fn refused(tree: &Tree, form: fn(&str) -> bool, refused: &[(&str, &str)]) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in tree.code() {
        for token in Source::parse(text).tokens {
            if token.kind != Kind::Word || !form(&token.text) {
                continue;
            }
            for word in words(&token.text) {
                if let Some((old, new)) = refused.iter().find(|(old, _)| *old == word) {
                    found.push(format!(
                        "{path}:{}: `{}` says {old}: write {new}",
                        token.line, token.text
                    ));
                }
            }
        }
    }
    found
}

#[test]
fn no_more_types_share_a_name_than_the_budget_allows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let budgets = fs::read_to_string(root.join(".ci/budgets.toml")).expect("budgets");
    let budgets: toml::Table = budgets.parse().expect("a table");
    let most = budgets["limits"][BUDGET].as_integer().expect("a number");
    let most = usize::try_from(most).expect("a share");
    let types = types(&house());
    assert!(types.len() > 500, "{} types were read only", types.len());
    let (share, names) = share(&types);
    assert!(
        share <= most,
        "{share} % of type names are shared, {BUDGET} is {most}:\n{}",
        names.join("\n")
    );
}

#[test]
fn a_refused_word_stands_in_no_constant() {
    let found = refused(&house(), is_constant, &REFUSED_IN_CONSTANTS);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_refused_word_stands_in_no_identifier() {
    let found = refused(&house(), |_| true, &REFUSED);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_planted_name_is_counted_and_a_planted_word_is_found() {
    let mut tree = house().without_code();
    tree.plant(
        "src/rules/a.rs",
        "struct Kind;\nstruct Alone;\nimpl X for Y { type Out = u8; fn f() {} }\n\
         #[cfg(test)]\nmod tests { struct Kind; struct Alone; }\n",
    );
    tree.plant(
        "src/rules/b.rs",
        "enum Kind {}\nimpl X for Z { type Out = u8; }\ntype Other = u8;\n",
    );
    let (percent, names) = share(&types(&tree));
    assert_eq!(percent, 50);
    assert_eq!(names, ["Kind: src/rules/a.rs:1, src/rules/b.rs:1"]);
    tree.plant(
        "src/rules/c.rs",
        "const MOST_ROWS: u8 = 1;\nconst ALMOST: u8 = MAX_MOST;\nfn the_most() {}\n// MOST\n",
    );
    let found = refused(&tree, is_constant, &[("most", "MAX_")]);
    assert_eq!(
        found,
        [
            "src/rules/c.rs:1: `MOST_ROWS` says most: write MAX_",
            "src/rules/c.rs:2: `MAX_MOST` says most: write MAX_",
        ]
    );
    tree.plant(
        "src/rules/d.rs",
        "fn begin_the_lookout() {}\nstruct LookoutState;\n",
    );
    let found = refused(&tree, |_| true, &[("lookout", "monitor")]);
    assert_eq!(
        found,
        [
            "src/rules/d.rs:1: `begin_the_lookout` says lookout: write monitor",
            "src/rules/d.rs:2: `LookoutState` says lookout: write monitor",
        ]
    );
}
