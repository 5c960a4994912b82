//! The language of the code: how many type names are shared by two types, and words that no identifier
//! may have any more. Reads tokens, not types; knows no scopes.

use std::collections::{BTreeMap, BTreeSet};
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
/// Terms of the glossary. Higher: it is not read whole any more. Lower: words that mean something else elsewhere are left out.
const MAX_TERMS: usize = 80;
/// Words that no identifier has any more, each with what to write; src/GLOSSARY.md says what that means.
const REFUSED: [(&str, &str); 9] = [
    ("nursery", "fork_server"),
    ("lookout", "monitor"),
    ("conductor", "controller"),
    ("shelves", "lazy_stores"),
    ("person", "user"),
    ("people", "users"),
    ("wish", "desired"),
    ("examiner", "diagnostics"),
    ("conducting", "controller_pass"),
];
/// Words that no table, column or index of the catalog and no field, schema, path, tag or operation of the API
/// has any more, each with what to write.
const REFUSED_OUTSIDE: [(&str, &str); 13] = [
    ("person", "user"),
    ("people", "users"),
    ("wish", "desired"),
    ("phase", "state"),
    ("longest", "max_"),
    ("shortest", "min_"),
    ("copies", "replicas"),
    ("unconfirmed", "pending"),
    ("only", "affinity"),
    ("box", "installation"),
    ("proof", "self_test"),
    ("cut", "partitions"),
    ("cuts", "partitions"),
];
/// The schema of the catalog, as its test refreshes it.
const SCHEMA: &str = "src/server/catalog/schema.sql";
/// The document of the API, as its test refreshes it.
const DOCUMENT: &str = "assets/openapi.json";
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

/// The identifiers of SQL text: every word that stands neither in a comment nor in a text.
fn sql_identifiers(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    for line in text.lines() {
        let line = line.split("--").next().unwrap_or_default();
        for piece in line.split('\'').step_by(2) {
            let words =
                piece.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            all.extend(words.filter(|word| !word.is_empty()).map(str::to_owned));
        }
    }
    all
}

/// The names that a document of the API gives: properties, schemas, parameters, paths, tags, operations.
fn api_identifiers(document: &serde_json::Value) -> Vec<String> {
    let mut all = Vec::new();
    match document {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                if ["properties", "schemas", "paths"].contains(&name.as_str()) {
                    all.extend(
                        value
                            .as_object()
                            .into_iter()
                            .flatten()
                            .map(|(name, _)| name.clone()),
                    );
                }
                if ["name", "operationId", "tags"].contains(&name.as_str()) {
                    let many = value.as_array().into_iter().flatten().chain([value]);
                    all.extend(many.filter_map(|name| Some(name.as_str()?.to_owned())));
                }
                all.extend(api_identifiers(value));
            }
        }
        serde_json::Value::Array(items) => all.extend(items.iter().flat_map(api_identifiers)),
        _ => {}
    }
    all
}

/// Each of these names with a refused word, and what to write.
fn refused_outside(place: &str, names: Vec<String>) -> Vec<String> {
    let names: BTreeSet<String> = names.into_iter().collect();
    let mut found = Vec::new();
    for name in names {
        let parts = name.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        for word in parts.flat_map(words) {
            if let Some((old, new)) = REFUSED_OUTSIDE.iter().find(|(old, _)| *old == word) {
                found.push(format!("{place}: `{name}` says {old}: write {new}"));
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

/// The terms of each row of the glossary: of its table, what stands in the first column.
fn terms(glossary: &str) -> Vec<&str> {
    let rows = glossary.lines().filter(|line| line.starts_with("| "));
    let first = rows.filter_map(|row| row.split('|').nth(1));
    first.map(str::trim).skip(1).collect()
}

#[test]
fn the_glossary_has_eighty_terms_at_most_and_each_once() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let glossary = fs::read_to_string(root.join("src/GLOSSARY.md")).expect("the glossary");
    let terms = terms(&glossary);
    assert!(terms.len() > 50, "{} terms were read only", terms.len());
    assert!(terms.len() <= MAX_TERMS, "{} terms", terms.len());
    let once: BTreeSet<&str> = terms.iter().copied().collect();
    assert_eq!(once.len(), terms.len(), "{terms:?}");
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
fn a_refused_word_stands_in_no_name_of_the_catalog_or_the_api() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let schema = fs::read_to_string(root.join(SCHEMA)).expect("the schema");
    let columns = sql_identifiers(&schema);
    assert!(
        columns.len() > 300,
        "{} names were read only",
        columns.len()
    );
    let mut found = refused_outside(SCHEMA, columns);
    let document = fs::read_to_string(root.join(DOCUMENT)).expect("the document");
    let document = serde_json::from_str(&document).expect("JSON");
    let names = api_identifiers(&document);
    assert!(names.len() > 500, "{} names were read only", names.len());
    found.extend(refused_outside(DOCUMENT, names));
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_planted_column_and_a_planted_field_are_found() {
    let schema = "create table session (\n    -- The person.\n    wish text check (wish in ('person')), cut_at integer\n);";
    let found = refused_outside("schema", sql_identifiers(schema));
    assert_eq!(
        found,
        [
            "schema: `cut_at` says cut: write partitions",
            "schema: `wish` says wish: write desired",
        ]
    );
    let document = serde_json::json!({
        "paths": {"/gpus/{id}/proof": {"get": {"operationId": "cutGpu", "tags": ["people"], "summary": "A person"}}},
        "components": {"schemas": {"Session": {"properties": {"longest_run": {"type": "string"}}}}},
    });
    let found = refused_outside("document", api_identifiers(&document));
    assert_eq!(
        found,
        [
            "document: `/gpus/{id}/proof` says proof: write self_test",
            "document: `cutGpu` says cut: write partitions",
            "document: `longest_run` says longest: write max_",
            "document: `people` says people: write users",
        ]
    );
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
