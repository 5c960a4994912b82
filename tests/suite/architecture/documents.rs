//! The documents of the repository: how long two of them, and the code of `roles`, may be, and that each link between them leads to a
//! file and a heading that exist. Reads no web address, and judges no prose.

use std::fs;
use std::path::Path;

use super::house;
use super::source::Tree;
use super::table::ARCHITECTURE;

/// A number of `.ci/budgets.toml`, from its limits.
fn limit(name: &str) -> usize {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let budgets = fs::read_to_string(root.join(".ci/budgets.toml")).expect("budgets");
    let budgets: toml::Table = budgets.parse().expect("a table");
    let number = budgets["limits"][name].as_integer().expect("a number");
    usize::try_from(number).expect("no negative limit")
}

/// The anchor that a heading has: small letters, spaces as hyphens, no punctuation.
fn anchor(heading: &str) -> String {
    let kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
    let name: String = heading.trim().to_lowercase().chars().filter(kept).collect();
    name.replace(' ', "-")
}

/// A path from a document's folder, with each `..` resolved.
fn resolved(document: &str, path: &str) -> String {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            ".." => {
                parts.pop();
            }
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Each link from one document to another file or heading that does not exist, by file and line. The manual
/// below `web` links pages of the console and is left out.
fn dead_links(tree: &Tree) -> Vec<String> {
    let mut dead = Vec::new();
    for (file, text) in tree
        .documents()
        .filter(|(file, _)| !file.starts_with("web/"))
    {
        for (at, line) in text.lines().enumerate() {
            let targets = line.split("](").skip(1);
            for target in targets.filter_map(|rest| rest.split(')').next()) {
                if target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                let (path, heading) = target.split_once('#').unwrap_or((target, ""));
                let to = match path {
                    "" => file.to_owned(),
                    path => resolved(file, path),
                };
                let mut headings = tree.text(&to).unwrap_or_default().lines();
                let is_there = tree.holds(&to)
                    && (heading.is_empty()
                        || headings.any(|line| {
                            line.starts_with('#') && anchor(line.trim_start_matches('#')) == heading
                        }));
                if !is_there {
                    dead.push(format!("{file}:{}: {target} leads nowhere", at + 1));
                }
            }
        }
    }
    dead
}

#[test]
fn the_documents_stay_within_their_lengths() {
    let house = house();
    let architecture = house.text(ARCHITECTURE).expect("it was read").len();
    let most = limit("architecture_bytes");
    assert!(
        architecture <= most,
        "{ARCHITECTURE} has {architecture} bytes, at most {most}: move a chapter to its room's README.md"
    );
    let readme = house.text("README.md").expect("it was read");
    let (lines, most) = (readme.lines().count(), limit("readme_lines"));
    assert!(lines <= most, "README.md has {lines} lines, at most {most}");
}

#[test]
fn roles_wire_rooms_together_and_do_nothing_else() {
    let house = house();
    let of_roles = |file: &str| file == "src/roles.rs" || file.starts_with("src/roles/");
    let lines: usize = house
        .code()
        .filter(|(file, _)| of_roles(file))
        .map(|(_, text)| text.lines().count())
        .sum();
    let most = limit("roles_lines");
    assert!(lines > 0, "src/roles was not read");
    assert!(
        lines <= most,
        "src/roles has {lines} lines, at most {most}: move what a command does to its subject's room"
    );
}

#[test]
fn every_link_between_documents_leads_to_a_file_and_a_heading() {
    let house = house();
    let links: usize = house
        .documents()
        .filter(|(file, _)| !file.starts_with("web/"))
        .map(|(_, text)| text.matches("](").count())
        .sum();
    assert!(links >= 15, "{links} links were read only");
    let dead = dead_links(&house);
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}

#[test]
fn a_planted_dead_link_is_found() {
    let mut tree = house();
    tree.plant(
        "src/base/PLANTED.md",
        "# Here\n[a](../../README.md) [b](../../NONE.md) [c](#here)\n\
         [d](#there) [e](../../ARCHITECTURE.md#the-walk)\n\
         [f](../../ARCHITECTURE.md#the-flight) [g](https://example.org/x)\n",
    );
    assert_eq!(
        dead_links(&tree),
        [
            "src/base/PLANTED.md:2: ../../NONE.md leads nowhere",
            "src/base/PLANTED.md:3: #there leads nowhere",
            "src/base/PLANTED.md:4: ../../ARCHITECTURE.md#the-flight leads nowhere",
        ]
    );
}
