//! Holds the code to the tables of ARCHITECTURE.md and of CONTRIBUTING.md, and the specification to its notes: which room, module or door may use which, where
//! each package and each dangerous word lives, and that every file says what it is for.
//!
//! Never looks inside function bodies for anything but names: it reads tokens, not types, so a
//! breach has to be spelled to be seen. What a manifest forbids, the compiler has refused already;
//! here it gets a sentence.

mod breach;
mod circles;
mod documents;
mod messages;
mod names;
mod source;
mod specification;
mod table;

use std::path::Path;
use std::sync::OnceLock;

use breach::{Breach, check, check_document};
use source::Tree;
use table::{ARCHITECTURE, CONTRIBUTING, Tables};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn house() -> Tree {
    static HOUSE: OnceLock<Tree> = OnceLock::new();
    let read = || Tree::read(Path::new(ROOT)).expect("the checkout that built this can be read");
    HOUSE.get_or_init(read).clone()
}

fn lines(breaches: &[Breach]) -> String {
    breaches
        .iter()
        .map(|breach| format!("{breach}\n"))
        .collect()
}

#[test]
fn the_code_keeps_to_the_tables() {
    let breaches = check(&house());
    assert!(
        breaches.is_empty(),
        "the house has {} breaches:\n{}",
        breaches.len(),
        lines(&breaches)
    );
}

#[test]
fn the_document_names_only_files_and_functions_that_exist() {
    let breaches = check_document(&house());
    assert!(
        breaches.is_empty(),
        "{} lines are not true:\n{}",
        breaches.len(),
        lines(&breaches)
    );
}

#[test]
fn a_file_and_a_function_that_the_document_invents_are_found() {
    let mut tree = bare();
    let document = tree.text(ARCHITECTURE).expect("it was read").to_owned();
    let (head, _) = document
        .split_once("<!-- walk begin -->")
        .expect("the walk is there");
    tree.plant(
        ARCHITECTURE,
        &format!(
            "{head}<!-- walk begin -->\n\n| # | Where | Gives |\n|---|---|---|\n\
             | 1 | `server/real.rs` `act` | |\n\
             | 2 | `server/real.rs` `acts` | |\n\
             | 3 | `server/unreal.rs` | |\n\n<!-- walk end -->\n\n\
             <!-- places begin -->\n\n| To add | Change |\n|---|---|\n\
             | a | `server/real.rs` `act`, `server/surreal.rs` |\n\n<!-- places end -->\n"
        ),
    );
    tree.plant("src/server/real.rs", "//! R.\npub fn act() {}\n");
    let told: Vec<String> = check_document(&tree)
        .iter()
        .map(ToString::to_string)
        .collect();
    let sentences: Vec<&str> = told
        .iter()
        .filter_map(|line| line.splitn(3, ':').nth(2))
        .map(str::trim)
        .collect();
    assert_eq!(
        sentences,
        [
            "acts is not in its file (ARCHITECTURE.md, \"The walk\")",
            "server/unreal.rs does not exist (ARCHITECTURE.md, \"The walk\")",
            "server/surreal.rs does not exist (ARCHITECTURE.md, \"Where to change what\")",
        ]
    );
}

/// A tree with the real documents and manifests, and no code but what the test plants.
fn bare() -> Tree {
    static BARE: OnceLock<Tree> = OnceLock::new();
    BARE.get_or_init(|| house().without_code()).clone()
}

/// Asserts that exactly the planted lines are found, each as `file:line: sentence`.
///
/// A package without its sentence is the business of one test; in the others it is no surprise, or
/// each slip would fail them all.
fn assert_finds(tree: &Tree, expected: &[String]) {
    let found: Vec<String> = check(tree).iter().map(ToString::to_string).collect();
    let about_packages = |sentence: &String| sentence.contains("\"Dependencies\"");
    for sentence in expected {
        assert!(
            found.contains(sentence),
            "not found: {sentence}\nfound:\n{}",
            found.join("\n")
        );
    }
    for sentence in found.iter().filter(|sentence| !about_packages(sentence)) {
        assert!(
            expected.contains(sentence),
            "found, but not planted: {sentence}"
        );
    }
}

#[test]
fn a_planted_use_of_every_forbidden_neighbour_is_found_in_every_row() {
    let tables = Tables::read(&bare()).expect("ARCHITECTURE.md has its tables");
    assert!(tables.modules.len() >= 20, "the module table lost rows");
    let mut planted = 0;
    for row in &tables.modules {
        let forbidden: Vec<&str> = tables
            .modules
            .iter()
            .filter(|other| other.room == row.room && other.module != row.module)
            .map(|other| other.module.as_str())
            .filter(|other| !row.allows(other))
            .collect();
        if row.allows_everything() {
            assert!(forbidden.is_empty());
            continue;
        }
        assert!(
            !forbidden.is_empty(),
            "{}/{} forbids nothing",
            row.room,
            row.module
        );
        let file = format!("{}/{}/planted.rs", table::folder(&row.room), row.module);
        let mut code = String::from("//! Planted.\n");
        let mut expected = Vec::new();
        for (at, target) in forbidden.iter().enumerate() {
            let path = target.replace('/', "::");
            // Three spellings of the same breach, in turn.
            let up = "super::".repeat(row.module.split('/').count() + 1);
            code.push_str(&match at % 3 {
                0 => format!("use crate::{path}::Planted;\n"),
                1 => format!("fn planted{at}() {{ {up}{path}::planted(); }}\n"),
                _ => format!("use crate::{{{path}::{{Planted, Other as Another}}}};\n"),
            });
            expected.push(format!(
                "{file}:{}: {} may not use {target} (ARCHITECTURE.md, \"Inside rooms\")",
                at + 2,
                row.module,
            ));
        }
        planted += expected.len();
        let mut tree = bare();
        for module in &tables.modules {
            tree.plant(
                &format!("{}/{}.rs", table::folder(&module.room), module.module),
                "//! M.\n",
            );
        }
        tree.plant(&file, &code);
        assert_finds(&tree, &expected);
    }
    assert!(planted >= 100, "only {planted} breaches were planted");
}

#[test]
fn a_permitted_neighbour_is_no_breach() {
    let mut tree = bare();
    tree.plant("src/server/catalog.rs", "//! M.\n");
    tree.plant(
        "src/server/controller/planted.rs",
        "//! Planted. crate::actions in a comment is none.\n\
         use crate::catalog::{self, ClusterSnapshot};\n\
         use super::driver;\n\
         /// `crate::actions` in prose is none.\n\
         const WORDS: &str = \"crate::actions::run\";\n\
         pub(in crate::controller) fn f<'a>(x: &'a str) -> char { let _ = x; '\"' }\n",
    );
    assert_finds(&tree, &[]);
}

#[test]
fn a_planted_use_of_every_room_out_of_a_doors_sight_is_found() {
    let behind = [
        ("store::images::open", "store::images"),
        ("node::runtime::start", "node::runtime"),
        ("server::catalog::open", "server::catalog"),
        ("server::controller::run", "server::controller"),
        ("server::appliance::backup", "server::appliance"),
        ("server::simulation::open", "server::simulation"),
        ("base::observe::random", "base::observe"),
        ("base::settings::read", "base::settings"),
    ];
    for door in ["pages", "api", "proxy", "cli"] {
        let file = format!("src/doors/{door}/planted.rs");
        let mut tree = bare();
        let mut code = String::from("//! Planted.\n");
        let mut expected = Vec::new();
        for (at, (path, shown)) in behind.iter().enumerate() {
            code.push_str(&format!("fn f{at}() {{ {path}(); }}\n"));
            // The command line finds its server by the server's own settings.
            if (door, *shown) != ("cli", "base::settings") {
                expected.push(format!(
                    "{file}:{}: doors/{door} may not use {shown} \
                     (ARCHITECTURE.md, \"Inside rooms\")",
                    at + 2,
                ));
            }
        }
        tree.plant(&file, &code);
        assert_finds(&tree, &expected);
    }
}

#[test]
fn a_planted_manifest_line_is_found_for_every_forbidden_room_and_every_homed_package() {
    let tables = Tables::read(&bare()).expect("ARCHITECTURE.md has its tables");
    let mut planted = 0;
    for room in &tables.rooms {
        let manifest = table::manifest(&room.name);
        for other in tables.rooms.iter().filter(|other| other.name != room.name) {
            if other.name != "root" && !room.may_use.contains(&other.name) {
                let mut tree = bare();
                let line = tree.plant_dependency(&manifest, &other.name);
                assert_finds(
                    &tree,
                    &[format!(
                        "{manifest}:{line}: room {} may not use room {} \
                         (ARCHITECTURE.md, \"Between rooms\")",
                        room.name, other.name,
                    )],
                );
                planted += 1;
            }
            for package in &other.homed {
                let mut tree = bare();
                let line = tree.plant_dependency(&manifest, package);
                let mut expected = vec![format!(
                    "{manifest}:{line}: package {package} lives only in room {}, not in {} \
                     (ARCHITECTURE.md, \"Between rooms\")",
                    other.name, room.name,
                )];
                if room.nothing_but.is_some() {
                    expected.push(format!(
                        "{manifest}:{line}: room {} has no other packages than its row lists, \
                         and {package} is not among them (ARCHITECTURE.md, \"Between rooms\")",
                        room.name,
                    ));
                }
                assert_finds(&tree, &expected);
                planted += 1;
            }
        }
    }
    assert!(planted >= 60, "only {planted} breaches were planted");
}

#[test]
fn rules_takes_no_package_that_its_row_does_not_list() {
    let mut tree = bare();
    let line = tree.plant_dependency("src/rules/Cargo.toml", "tokio");
    assert_finds(
        &tree,
        &[format!(
            "src/rules/Cargo.toml:{line}: room rules has no other packages than its row lists, and \
             tokio is not among them (ARCHITECTURE.md, \"Between rooms\")"
        )],
    );
}

#[test]
fn a_planted_word_is_found_away_from_each_home() {
    for word in breach::WORDS {
        let mut tree = bare();
        let file = "src/store/planted.rs";
        tree.plant(file, &format!("//! Planted.\n{}\n", word.planted));
        let home = match word.homes {
            [] => "has no place in the product".to_owned(),
            homes => format!("lives only in {}", homes.join(", ")),
        };
        assert_finds(
            &tree,
            &[format!(
                "{file}:2: `{}` {home}: {} (tests/suite/architecture/breach.rs, WORDS)",
                word.shown, word.reason,
            )],
        );
        for home in word.homes {
            let mut tree = bare();
            // A folder whose module has no row yet would be reported for that; here only words count.
            let file = match home.strip_suffix('/') {
                Some(folder) => format!("{folder}/planted.rs"),
                None => (*home).to_owned(),
            };
            tree.plant(&file, &format!("//! Planted.\n{}\n", word.planted));
            let found = lines(&check(&tree));
            assert!(!found.contains("WORDS"), "found at home: {found}");
        }
    }
}

#[test]
fn a_planted_clock_file_setting_or_die_in_rules_is_found() {
    for part in breach::IMPURE {
        let path = part.join("::");
        let mut tree = bare();
        let tests = format!("#[cfg(test)]\nmod tests {{ use {path}; }}\n");
        tree.plant(
            "src/rules/planted.rs",
            &format!("//! Planted.\nuse {path};\n{tests}"),
        );
        tree.plant(
            "src/store/planted.rs",
            &format!("//! Planted.\nuse {path};\n"),
        );
        assert_finds(
            &tree,
            &[format!(
                "src/rules/planted.rs:2: rules may not use {path}: time, random numbers, files and settings \
                 are arguments (ARCHITECTURE.md, \"Between rooms\")"
            )],
        );
    }
}

#[test]
fn planted_slips_of_form_are_found() {
    let mut tree = bare();
    tree.plant("src/store/mute.rs", "\nuse std::fmt;\n");
    tree.plant("src/store/helpers.rs", "//! Planted.\n");
    tree.plant(
        "src/server/lib.rs",
        "//! Planted.\npub use actions::Everything;\n",
    );
    tree.plant("src/server/novelty.rs", "//! Planted.\n");
    tree.plant(
        "src/server/access.rs",
        "//! Planted.\nuse crate::*;\nuse crate as house;\n",
    );
    assert_finds(
        &tree,
        &[
            "src/store/mute.rs:1: opens without `//!`: say what the file is for and what it never \
             does (ARCHITECTURE.md, \"Form\")"
                .to_owned(),
            "src/store/helpers.rs:1: `helpers` names no noun and no verb: give the file the name of \
             what it holds (ARCHITECTURE.md, \"Form\")"
                .to_owned(),
            "src/server/lib.rs:2: a room re-exports nothing: its users name the module \
             (ARCHITECTURE.md, \"Form\")"
                .to_owned(),
            "src/server/novelty.rs:1: module server/novelty has no row: say whom it may use \
             (ARCHITECTURE.md, \"Inside rooms\")"
                .to_owned(),
            "src/server/access.rs:2: access takes the whole room in: name the module \
             (ARCHITECTURE.md, \"Inside rooms\")"
                .to_owned(),
            "src/server/access.rs:3: access takes the whole room in: name the module \
             (ARCHITECTURE.md, \"Inside rooms\")"
                .to_owned(),
        ],
    );
}

#[test]
fn a_package_without_its_sentence_and_a_sentence_without_its_package_are_found() {
    let mut tree = bare();
    let line = tree.plant_dependency("src/node/Cargo.toml", "left-pad");
    let document = tree.text(CONTRIBUTING).expect("it was read").to_owned();
    let begin = document
        .find("<!-- packages begin -->")
        .expect("the table is there");
    let (before, after) = document.split_at(begin);
    let after = after.replace("| `zstd` |", "| `right-pad` |");
    let row = before.lines().count()
        + after
            .lines()
            .position(|line| line.contains("`right-pad`"))
            .expect("just written")
        + 1;
    let zstd = tree
        .dependency_line("src/store/Cargo.toml", "zstd")
        .expect("store reads zstd layers");
    tree.plant(CONTRIBUTING, &format!("{before}{after}"));
    assert_finds(
        &tree,
        &[
            format!(
                "src/node/Cargo.toml:{line}: left-pad has no sentence \
                 (CONTRIBUTING.md, \"Dependencies\")"
            ),
            format!(
                "src/store/Cargo.toml:{zstd}: zstd has no sentence \
                 (CONTRIBUTING.md, \"Dependencies\")"
            ),
            format!(
                "CONTRIBUTING.md:{row}: no manifest names right-pad \
                 (CONTRIBUTING.md, \"Dependencies\")"
            ),
        ],
    );
}

#[test]
fn a_breach_planted_on_disk_is_found_there_too() {
    let copy = tempfile::tempdir().expect("a temporary directory can be made");
    house().write(copy.path()).expect("the copy can be written");
    let file = copy.path().join("src/server/controller.rs");
    let code = std::fs::read_to_string(&file).unwrap_or_else(|_| "//! Planted.\n".to_owned());
    let line = code.lines().count() + 1;
    std::fs::create_dir_all(file.parent().expect("it lies in src/server")).expect("can be made");
    std::fs::write(
        &file,
        format!(
            "{}\nuse crate::actions::Planted;\n",
            code.trim_end_matches('\n')
        ),
    )
    .expect("the copy can be changed");
    let tree = Tree::read(copy.path()).expect("the copy can be read");
    let found = lines(&check(&tree));
    let expected = format!(
        "src/server/controller.rs:{line}: controller may not use actions \
         (ARCHITECTURE.md, \"Inside rooms\")\n"
    );
    assert!(
        found.contains(&expected),
        "expected {expected}found:\n{found}"
    );
}
