//! The table of bounds in SECURITY.md against the code: each constant stands there with that value, each
//! test exists, and no constant that bounds something is missing. Knows Rust's spelling, not its meaning.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Beginnings and ends of names that bound something.
const BEGINNINGS: [&str; 1] = ["MAX_"];
const ENDS: [&str; 4] = ["_LIMIT", "_PLACES", "AT_ONCE", "_AT_MOST"];
/// Where nobody but the machine's owner asks: measuring, examining, the command line, programs of sessions.
const SPARED: [&str; 6] = [
    "src/guest/",
    "src/doors/bench",
    "src/node/doctor",
    "src/server/simulation/rehearsal",
    "src/doors/cli",
    "src/doors/console",
];
const UNPROVEN: &str = "unproven at its edge";
/// In front of why a bound cannot be passed at all: what is made has that size from the start.
const CONSTRUCTED: &str = "by construction: ";

/// A constant as `path NAME`.
type Constants = BTreeMap<String, String>;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources(folder: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).expect("a folder") {
            let entry = entry.expect("an entry");
            let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                folders.push(path);
            } else if path.ends_with(".rs") {
                all.push((path, fs::read_to_string(entry.path()).expect("a source")));
            }
        }
    }
    all.sort();
    all
}

/// Every constant of a number with its value, of the product and not of its tests.
fn constants(sources: &[(String, String)]) -> Constants {
    let mut all = Constants::new();
    for (path, source) in sources {
        let tests = path.ends_with("tests.rs") || path.contains("/tests/");
        if tests {
            continue;
        }
        let product = source
            .split("#[cfg(test)]\nmod tests {")
            .next()
            .unwrap_or_default();
        for (at, _) in product.match_indices("const ") {
            let rest = &product[at + "const ".len()..];
            let Some((name, rest)) = rest.split_once(':') else {
                continue;
            };
            let upper = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
            if name.is_empty() || !name.chars().all(upper) {
                continue;
            }
            let Some((kind, rest)) = rest.split_once('=') else {
                continue;
            };
            let number = [
                "usize", "u8", "u16", "u32", "u64", "i64", "Bytes", "Duration",
            ];
            if !number.contains(&kind.trim()) {
                continue;
            }
            let value = rest.split(';').next().unwrap_or_default();
            let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
            all.insert(format!("{path} {name}"), value);
        }
    }
    all
}

fn bounds(key: &str) -> bool {
    let (path, name) = key.split_once(' ').expect("a path and a name");
    let named = BEGINNINGS.iter().any(|begin| name.starts_with(begin))
        || ENDS.iter().any(|end| name.ends_with(end));
    named && !SPARED.iter().any(|spared| path.starts_with(spared))
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Names of everything that is a test, in the product and in the suite.
fn tests(sources: &[(String, String)]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (_, source) in sources {
        for part in source
            .split("#[test]")
            .skip(1)
            .chain(source.split("::test").skip(1))
        {
            let name = part
                .split("fn ")
                .nth(1)
                .and_then(|rest| rest.split('(').next());
            all.extend(name.map(|name| name.trim().to_owned()));
        }
    }
    all
}

/// What is wrong with a book of bounds, one line each.
fn faults(book: &str, code: &Constants, tests: &BTreeSet<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut known = BTreeSet::new();
    let (_, bounds_on) = book.split_once("\n## Bounds\n").unwrap_or(("", ""));
    for line in bounds_on.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").collect();
        let row = line.starts_with("| ") && !line.starts_with("| What ");
        if !row && !line.starts_with("- `") {
            continue;
        }
        let said = if row {
            cells.get(2).copied().unwrap_or_default()
        } else {
            line
        };
        for constant in quoted(said) {
            let Some((key, value)) = constant.split_once(" = ") else {
                wrong.push(format!("{constant:?} is no `file NAME = value`"));
                continue;
            };
            known.insert(key.to_owned());
            match code.get(key) {
                None => wrong.push(format!("the code has no {key}")),
                Some(now) if now != value => {
                    wrong.push(format!("{key} is {now} in the code, not {value}"));
                }
                Some(_) => {}
            }
        }
        if !row {
            continue;
        }
        let shown = cells.get(4).copied().unwrap_or_default().trim();
        let mut named = quoted(shown).peekable();
        // Why it is unproven may stand behind that; what a construction is has to.
        let reasoned = shown
            .strip_prefix(CONSTRUCTED)
            .is_some_and(|why| !why.is_empty());
        let unproven = shown.strip_prefix(UNPROVEN);
        let unproven = unproven.is_some_and(|why| why.is_empty() || why.starts_with(": "));
        if cells.len() != 5 || (named.peek().is_none() && !reasoned && !unproven) {
            wrong.push(format!(
                "no row of five cells with a test at the end: {line}"
            ));
        }
        for test in named.filter(|test| !tests.contains(*test)) {
            wrong.push(format!("there is no test {test}"));
        }
    }
    for (key, value) in code.iter().filter(|(key, _)| bounds(key)) {
        if !known.contains(key) {
            wrong.push(format!(
                "a row is missing, such as:\n| WHAT | PER WHOM | HOW MANY: `{key} = {value}` | WHAT HAPPENS | {UNPROVEN} |"
            ));
        }
    }
    wrong
}

#[test]
fn the_book_of_bounds_is_complete_and_true() {
    let book = fs::read_to_string(root().join("SECURITY.md")).expect("SECURITY.md");
    let product = sources("src");
    let code = constants(&product);
    assert!(code.len() > 150, "{} constants were read only", code.len());
    let mut written = product;
    written.extend(sources("tests"));
    let wrong = faults(&book, &code, &tests(&written));
    assert!(wrong.is_empty(), "SECURITY.md:\n{}", wrong.join("\n"));
}

#[test]
fn a_book_that_lies_is_found_out() {
    let code: Constants = [
        ("src/a.rs MAX_CLIENTS".to_owned(), "64".to_owned()),
        ("src/a.rs PACE".to_owned(), "5".to_owned()),
        ("src/b.rs QUEUE_PLACES".to_owned(), "1 << 4".to_owned()),
    ]
    .into();
    let tests: BTreeSet<String> = ["it_holds".to_owned()].into();
    let check = |rows: &str| faults(&format!("# S\n\n## Bounds\n\n{rows}\n"), &code, &tests);
    let good = "| A | b | 64: `src/a.rs MAX_CLIENTS = 64` | c | `it_holds` |\n\
                | A | b | 16: `src/b.rs QUEUE_PLACES = 1 << 4` | c | unproven at its edge |";
    assert_eq!(check(good), Vec::<String>::new());
    for reasoned in [
        "by construction: the queue has that many places",
        "unproven at its edge: it takes a year",
    ] {
        let row = good.replace("unproven at its edge", reasoned);
        assert_eq!(check(&row), Vec::<String>::new());
    }
    for (from, to, said) in [
        ("= 64`", "= 65`", "is 64 in the code, not 65"),
        ("MAX_CLIENTS", "MAX_GUESTS", "the code has no"),
        ("`it_holds`", "`it_breaks`", "there is no test it_breaks"),
        (
            "unproven at its edge",
            "somebody saw it",
            "with a test at the end",
        ),
        (
            "unproven at its edge",
            "unproven at its edges",
            "with a test at the end",
        ),
        (
            "unproven at its edge",
            "by construction: ",
            "with a test at the end",
        ),
        (
            "| A | b | 16: `src/b.rs QUEUE_PLACES = 1 << 4` | c | unproven at its edge |",
            "",
            "a row is missing",
        ),
    ] {
        let wrong = check(&good.replace(from, to));
        assert!(
            wrong.iter().any(|line| line.contains(said)),
            "{said}: {wrong:?}"
        );
    }
}
