//! `tests/SPECIFICATION.md`, which is generated from notes beside the tests: what users rely on, and which test
//! proves it. Reads comments alone, and judges no prose.
//!
//! A note is a paragraph of a comment: the word `Promise` with a section in brackets and a colon, then the sentence.
//! It stands above a test, or at the head of a scenario's file. `Proves too` above another test names the
//! first one. `Unproven` stands in place of `Promise` where no test is possible yet; its sentence ends with why.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::source::Tree;
use super::table::SPECIFICATION;
use super::{ROOT, house};

/// The sections, in their order.
const SECTIONS: [&str; 7] = [
    "Sessions survive failures",
    "Queue and scheduler",
    "GPUs",
    "Isolation and access",
    "Disk, backup and upgrade",
    "Images",
    "Installation and console",
];

/// A specification that users read has no more; each further detail is a test and no promise.
const MAX_PROMISES: usize = 73;

/// Files that hold notes, by their end, each with the marks of its comments.
const MARKS: [(&str, &[&str]); 4] = [
    (".rs", &["///", "//!"]),
    (".mjs", &["//"]),
    (".sh", &["#"]),
    (".py", &["#"]),
];

const REFRESH: &str = "FARDEL_REFRESH=1 cargo test --test suite the_specification_is";

/// One promise, with the tests or scenarios that prove it.
struct Promise {
    section: String,
    text: String,
    /// Empty where it is not proven.
    proofs: Vec<String>,
}

/// Every promise in the order of the files, or each note that cannot be read.
fn promises(tree: &Tree) -> Result<Vec<Promise>, Vec<String>> {
    let mut found = Vec::new();
    let mut too = BTreeMap::<String, Vec<String>>::new();
    let mut wrong = Vec::new();
    for (file, text) in tree.all() {
        let Some((_, marks)) = MARKS.iter().find(|(end, _)| file.ends_with(end)) else {
            continue;
        };
        let comment = |line: &str| {
            let line = line.trim();
            let mark = marks.iter().find(|mark| line.starts_with(**mark))?;
            Some((*mark, line[mark.len()..].trim().to_owned()))
        };
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let Some((mark, note)) = comment(line) else {
                continue;
            };
            let own = if mark == "///" {
                next_function(&lines[at..])
            } else {
                Some(file.to_owned())
            };
            let place = format!("{file}:{}", at + 1);
            if let Some(first) = note.strip_prefix("Proves too: ") {
                match own {
                    Some(own) => too
                        .entry(first.trim_matches('`').to_owned())
                        .or_default()
                        .push(own),
                    None => wrong.push(format!("{place}: no test follows")),
                }
                continue;
            }
            let is_proven = note.starts_with("Promise (");
            let begun = note
                .strip_prefix("Promise (")
                .or_else(|| note.strip_prefix("Unproven ("))
                .and_then(|rest| rest.split_once("): "));
            let Some((section, begun)) = begun else {
                continue;
            };
            let further = lines[at + 1..]
                .iter()
                .map_while(|line| comment(line))
                .take_while(|(_, text)| !text.is_empty())
                .map(|(_, text)| text);
            let text: Vec<String> = std::iter::once(begun.to_owned()).chain(further).collect();
            if !SECTIONS.contains(&section) {
                wrong.push(format!("{place}: there is no section {section}"));
            }
            match own {
                Some(own) => found.push(Promise {
                    section: section.to_owned(),
                    text: text.join(" "),
                    proofs: if is_proven { vec![own] } else { Vec::new() },
                }),
                None => wrong.push(format!("{place}: no test follows")),
            }
        }
    }
    for (first, more) in too {
        match found
            .iter_mut()
            .find(|promise| promise.proofs.first() == Some(&first))
        {
            Some(promise) => promise.proofs.extend(more),
            None => wrong.push(format!("{}: {first} has no promise", more.join(", "))),
        }
    }
    if wrong.is_empty() {
        Ok(found)
    } else {
        Err(wrong)
    }
}

/// The test that a comment stands above: the next function, with nothing but comments, attributes and their
/// arguments between; None where none follows.
fn next_function(lines: &[&str]) -> Option<String> {
    let mut is_test = false;
    for line in lines.iter().map(|line| line.trim()) {
        is_test |= line.starts_with("#[") && line.contains("test");
        let words = line.trim_start_matches("pub(super) ");
        let words = words.trim_start_matches("async ");
        if let Some(rest) = words.strip_prefix("fn ") {
            let name = rest.split(['(', '<']).next()?;
            return is_test.then(|| name.to_owned());
        }
        if line.is_empty() || line == "}" {
            return None;
        }
    }
    None
}

/// The document.
fn written(promises: &[Promise]) -> String {
    let mut text = format!(
        "# Specification\n\n\
         What users and administrators rely on, each with the tests that prove it. Generated from the notes beside\n\
         the tests, and compared in `cargo test`; `{REFRESH}` writes it.\n\
         Tests of real containers run as root in `cargo test`; all others run everywhere. `tests/browser` and\n\
         `packaging` run in `cargo ci full`, `cargo ci release` or `cargo ci nightly`. Terms: [the glossary](../src/GLOSSARY.md).\n"
    );
    for section in SECTIONS {
        let _ = write!(
            text,
            "\n## {section}\n\n| Promise | Proved by |\n|---|---|\n"
        );
        for promise in promises.iter().filter(|one| one.section == section) {
            let proofs = match promise.proofs.as_slice() {
                [] => "not proven yet".to_owned(),
                proofs => format!("`{}`", proofs.join("` `")),
            };
            let _ = writeln!(text, "| {} | {proofs} |", promise.text);
        }
    }
    text
}

#[test]
fn the_specification_is_what_the_notes_beside_the_tests_say() {
    let found = promises(&house()).unwrap_or_else(|wrong| panic!("{}", wrong.join("\n")));
    assert!(
        (30..=MAX_PROMISES).contains(&found.len()),
        "{} promises: some forty are read",
        found.len()
    );
    let text = written(&found);
    let file = Path::new(ROOT).join(SPECIFICATION);
    if std::env::var_os("FARDEL_REFRESH").is_some() {
        fs::write(&file, &text).expect("the specification can be written");
    }
    let there = fs::read_to_string(&file).expect("the specification");
    assert!(
        there == text,
        "{SPECIFICATION} is not what the notes say; write it: {REFRESH}"
    );
}

/// What a tree of one planted file says.
fn of(file: &str, text: &str) -> Result<Vec<Promise>, Vec<String>> {
    let mut tree = Tree::default();
    tree.plant(file, text);
    promises(&tree)
}

#[test]
fn a_note_is_read_whole_with_every_test_that_names_it() {
    let found = of(
        "src/store/planted.rs",
        "/// Promise (Images): One is\n/// kept.\n#[test]\nfn one() {}\n\n\
         /// A remark.\n///\n/// Proves too: `one`\n#[tokio::test]\nasync fn two() {}\n\n//! Unproven \
         (Images): Two are kept. Why: none is at hand.\n",
    );
    let found = found.unwrap_or_else(|wrong| panic!("{wrong:?}"));
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].text, "One is kept.");
    assert_eq!(found[0].proofs, ["one", "two"]);
    assert!(found[1].proofs.is_empty());
}

#[test]
fn a_note_without_a_test_a_section_or_a_promise_is_found() {
    let wrong = |text: &str| match of("src/store/planted.rs", text) {
        Ok(_) => panic!("nothing was found in {text}"),
        Err(wrong) => wrong.join("\n"),
    };
    let told = wrong("/// Promise (Images): One.\nfn no_test() {}\n");
    assert_eq!(told, "src/store/planted.rs:1: no test follows");
    let told = wrong("/// Promise (Weather): One.\n#[test]\nfn one() {}\n");
    assert_eq!(told, "src/store/planted.rs:1: there is no section Weather");
    let told = wrong("/// Proves too: `nothing`\n#[test]\nfn one() {}\n");
    assert_eq!(told, "one: nothing has no promise");
}
