//! Checks every package that is linked into the product: its licence is on the list of `.deny.toml`,
//! it comes from the registry or from this tree, and no package for tests or of a forbidden kind got
//! in. Where cargo-deny is installed, it checks advisories as well.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

use crate::budgets;
use crate::failure::Failure;
use crate::program::{self, Program};

/// Packages that must never reach the product, and why.
const NEVER: [(&str, &str); 12] = [
    ("openssl-sys", "one TLS stack: rustls with ring"),
    ("native-tls", "one TLS stack: rustls with ring"),
    ("aws-lc-sys", "one TLS stack: rustls with ring"),
    (
        "libseccomp-sys",
        "needs a C library; our filters are precompiled",
    ),
    (
        "libbpf-sys",
        "needs C libraries; our device filter is our own",
    ),
    ("rustables", "GPL"),
    ("proptest", "for tests only"),
    ("turmoil", "for tests only"),
    ("insta", "for tests only"),
    ("criterion", "for tests only"),
    ("skips", "for tests only"),
    ("tasks", "for the gate only"),
];

/// Packages that name a file instead of a licence, read by a person: package, terms.
const READ_BY_HAND: [(&str, &str); 1] = [("rust-criu", "MIT")];

#[derive(Deserialize)]
struct DenyFile {
    licenses: Licences,
}

#[derive(Deserialize)]
struct Licences {
    allow: BTreeSet<String>,
}

/// Checks all of it; names every package that is at fault.
pub(crate) fn check() -> Result<(), Failure> {
    let text = fs::read_to_string(".deny.toml")
        .map_err(|error| Failure::new(format!(".deny.toml cannot be read: {error}")))?;
    let file: DenyFile = toml::from_str(&text)
        .map_err(|error| Failure::new(format!(".deny.toml cannot be read: {error}")))?;
    let linked = linked()?;
    let metadata = program::metadata()?;
    let packages = metadata["packages"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let mut told = Vec::new();
    let mut licences: BTreeMap<&str, usize> = BTreeMap::new();
    for package in packages {
        let field = |name: &str| package[name].as_str().unwrap_or_default();
        let (name, version) = (field("name"), field("version"));
        if !linked.contains(&format!("{name} v{version}")) {
            continue;
        }
        let licence = READ_BY_HAND
            .iter()
            .find(|(read, _)| *read == name && field("license").is_empty())
            .map_or(field("license"), |(_, terms)| terms);
        *licences.entry(licence).or_default() += 1;
        if !permitted(licence, &file.licenses.allow) {
            told.push(format!(
                "{name} {version}: its licence `{licence}` is not on the list"
            ));
        }
        match &package["source"] {
            Value::Null => {}
            Value::String(source) if source.starts_with("registry+") => {}
            source => told.push(format!(
                "{name} {version}: comes from {source}, not a registry"
            )),
        }
        if let Some((_, reason)) = NEVER.iter().find(|(never, _)| *never == name) {
            told.push(format!(
                "{name} {version}: must not be in the product: {reason}"
            ));
        }
    }
    println!(
        "{} packages are linked, under {} licence terms",
        linked.len(),
        licences.len()
    );
    told.extend(told_of_duplicates(
        &duplicates(&linked),
        &budgets::accepted_duplicates()?,
    ));
    if !told.is_empty() {
        return Err(Failure::new(format!("\n{}", told.join("\n"))));
    }
    check_list()?;
    if program::installed("cargo-deny") {
        Program::cargo()
            .words("deny --config .deny.toml check")
            .run()
    } else {
        crate::leave_out(
            "advisories",
            "cargo-deny is not installed; licences, sources and forbidden packages were checked \
             without it",
        )
    }
}

/// The list that the console shows under About.
const LIST: &str = "assets/packages.tsv";

/// Linked without being packages of cargo's; their versions are those of the machine that builds.
const BESIDE: [(&str, &str); 4] = [
    ("glibc", "LGPL-2.1-or-later"),
    ("libgcc", "GPL-3.0-or-later WITH GCC-exception-3.1"),
    ("rust-std", "MIT OR Apache-2.0"),
    ("sqlite", "blessing"),
];

/// Holds the list of the About page to what is linked; writes it with `FARDEL_REFRESH=1`.
fn check_list() -> Result<(), Failure> {
    let mut list = String::new();
    for package in all_linked()?.iter().filter(|package| !package.ours) {
        // `A/B` and `A / B` are the old spellings of `A OR B`.
        let words = package.licence.replace('/', " OR ");
        let licence = words.split_whitespace().collect::<Vec<_>>().join(" ");
        list.push_str(&format!(
            "{}\t{}\t{licence}\n",
            package.name, package.version
        ));
    }
    for (name, licence) in BESIDE {
        list.push_str(&format!("{name}\t–\t{licence}\n"));
    }
    if std::env::var_os("FARDEL_REFRESH").is_some() {
        return fs::write(LIST, list)
            .map_err(|error| Failure::new(format!("{LIST} cannot be written: {error}")));
    }
    let kept = fs::read_to_string(LIST)
        .map_err(|error| Failure::new(format!("{LIST} cannot be read: {error}")))?;
    if kept == list {
        Ok(())
    } else {
        Err(Failure::new(format!(
            "{LIST} is not what is linked; FARDEL_REFRESH=1 cargo ci quick writes it"
        )))
    }
}

/// Names that are linked in more than one version.
fn duplicates(linked: &BTreeSet<String>) -> BTreeSet<String> {
    let mut versions: BTreeMap<&str, usize> = BTreeMap::new();
    for package in linked {
        let name = package.split_whitespace().next().unwrap_or_default();
        *versions.entry(name).or_default() += 1;
    }
    versions
        .into_iter()
        .filter(|(_, count)| *count > 1)
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// The list may shrink freely and grow only with a reason, so both ways are told.
fn told_of_duplicates(found: &BTreeSet<String>, accepted: &BTreeSet<String>) -> Vec<String> {
    let more = found.difference(accepted).map(|name| {
        format!("{name}: linked in two versions; unite them, or accept it with a reason")
    });
    let fewer = accepted
        .difference(found)
        .map(|name| format!("{name}: no longer linked twice; take it off the list"));
    more.chain(fewer)
        .map(|sentence| format!("{sentence} (.ci/budgets.toml, duplicates)"))
        .collect()
}

/// One package that is linked into the product.
pub(crate) struct Linked {
    pub(crate) name: String,
    pub(crate) version: String,
    /// SPDX expression, also where the package names a file instead and a person read it.
    pub(crate) licence: String,
    pub(crate) authors: Vec<String>,
    /// Where its sources lie.
    pub(crate) folder: PathBuf,
    /// It comes from this tree.
    pub(crate) ours: bool,
}

/// Every package that is linked into the product, by name and version.
pub(crate) fn all_linked() -> Result<Vec<Linked>, Failure> {
    let linked = linked()?;
    let metadata = program::metadata()?;
    let mut found = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let field = |name: &str| package[name].as_str().unwrap_or_default().to_owned();
        let (name, version) = (field("name"), field("version"));
        if !linked.contains(&format!("{name} v{version}")) {
            continue;
        }
        let licence = match field("license") {
            licence if !licence.is_empty() => licence,
            _ => READ_BY_HAND
                .iter()
                .find(|(read, _)| *read == name)
                .map_or("unknown", |(_, terms)| terms)
                .to_owned(),
        };
        let authors = package["authors"].as_array().into_iter().flatten();
        found.push(Linked {
            licence,
            authors: authors
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            folder: PathBuf::from(field("manifest_path"))
                .parent()
                .map(PathBuf::from)
                .unwrap_or_default(),
            ours: package["source"].is_null(),
            name,
            version,
        });
    }
    found.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(found)
}

/// `name vVERSION` of everything that is linked into the binary and into the helper that it carries.
fn linked() -> Result<BTreeSet<String>, Failure> {
    let tree = Program::cargo()
        .words("tree --package fardel --package gpu_probe --edges normal --prefix none --locked --format {p}")
        .output()?;
    Ok(tree
        .lines()
        .map(|line| {
            line.split_whitespace()
                .take(2)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .filter(|line| !line.is_empty())
        .collect())
}

/// Whether an SPDX expression can be fulfilled with the allowed licences alone.
fn permitted(expression: &str, allowed: &BTreeSet<String>) -> bool {
    // `A/B` is the old spelling of `A OR B`.
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let verdict = any(&words, &mut at, allowed);
    verdict && at == words.len()
}

fn any(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let mut verdict = all(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        let other = all(words, at, allowed);
        verdict = verdict || other;
    }
    verdict
}

fn all(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let mut verdict = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        let other = one(words, at, allowed);
        verdict = verdict && other;
    }
    verdict
}

fn one(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let Some(word) = words.get(*at) else {
        return false;
    };
    *at += 1;
    if *word == "(" {
        let verdict = any(words, at, allowed);
        *at += 1;
        return verdict;
    }
    let mut licence = (*word).to_owned();
    if words.get(*at) == Some(&"WITH") {
        licence = format!("{licence} WITH {}", words.get(*at + 1).unwrap_or(&""));
        *at += 2;
    }
    allowed.contains(&licence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_second_copy_and_a_vanished_one_are_both_told() {
        let linked = ["a v1.0.0", "a v2.0.0", "b v1.0.0", "c v1.0.0", "c v1.1.0"];
        let found = duplicates(&linked.map(str::to_owned).into());
        let told = told_of_duplicates(&found, &["c", "d"].map(str::to_owned).into());
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("a: linked in two versions"));
        assert!(told[1].starts_with("d: no longer linked twice"));
    }

    #[test]
    fn an_expression_is_permitted_when_the_list_can_fulfil_it() {
        let allowed: BTreeSet<String> = [
            "MIT",
            "Apache-2.0",
            "Apache-2.0 WITH LLVM-exception",
            "Unicode-3.0",
        ]
        .map(str::to_owned)
        .into();
        for (expression, expected) in [
            ("MIT", true),
            ("MIT OR GPL-3.0", true),
            ("GPL-3.0 OR MIT", true),
            ("MIT AND GPL-3.0", false),
            ("MIT/Apache-2.0", true),
            ("(MIT OR GPL-3.0) AND Unicode-3.0", true),
            ("(MIT OR Apache-2.0) AND GPL-3.0", false),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("GPL-2.0 WITH Classpath-exception-2.0", false),
            ("GPL-3.0", false),
            ("", false),
            ("MIT MIT", false),
        ] {
            assert_eq!(permitted(expression, &allowed), expected, "{expression}");
        }
    }
}
