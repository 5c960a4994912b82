//! Finds where a tree departs from its own tables. Same tree in, same breaches out; reads no file.

use std::collections::BTreeSet;
use std::fmt;

use super::source::{Kind, Reference, Source, Tree, dependencies};
use super::table::{ARCHITECTURE, CONTRIBUTING, Module, Tables, folder, manifest};

const BETWEEN: &str = "ARCHITECTURE.md, \"Between rooms\"";
const INSIDE: &str = "ARCHITECTURE.md, \"Inside rooms\"";
const FORM: &str = "ARCHITECTURE.md, \"Form\"";
const DEPENDENCIES: &str = "CONTRIBUTING.md, \"Dependencies\"";
const WALK: &str = "ARCHITECTURE.md, \"The walk\"";
const PLACES: &str = "ARCHITECTURE.md, \"Where to change what\"";
const WORD_LIST: &str = "tests/suite/architecture/breach.rs, WORDS";

/// One departure: `file:line: sentence (where the rule stands)`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Breach {
    file: String,
    line: usize,
    sentence: String,
    rule: &'static str,
}

impl fmt::Display for Breach {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            to,
            "{}:{}: {} ({})",
            self.file, self.line, self.sentence, self.rule
        )
    }
}

/// What a word is spelled like in tokens.
pub(super) enum Spelling {
    /// A path that ends in these words, in a `use` or in an expression.
    PathEnd(&'static [&'static str]),
    /// A path that starts with this package.
    Package(&'static str),
    /// A single word anywhere outside comments and strings.
    Word(&'static str),
    /// A macro call.
    Macro(&'static str),
    /// A string literal that is a statement of SQL.
    Statement,
    /// A string literal that starts like this.
    TextStart(&'static str),
}

/// A word with one home, or with none.
pub(super) struct Homed {
    pub(super) shown: &'static str,
    pub(super) spelling: Spelling,
    /// Files, or folders with a slash at the end; empty: nowhere in the product.
    pub(super) homes: &'static [&'static str],
    pub(super) reason: &'static str,
    /// A line of code that breaks the rule; the test plants it.
    pub(super) planted: &'static str,
    /// Unit tests may use the word anywhere.
    pub(super) free_in_tests: bool,
}

/// Words that may be written in few places, each with its reason.
pub(super) const WORDS: &[Homed] = &[
    Homed {
        shown: "libcontainer",
        spelling: Spelling::Package("libcontainer"),
        homes: &[
            "src/node/runtime/container.rs",
            "src/node/runtime/container/defects.rs",
        ],
        reason: "it forks and changes its caller, so only the single-threaded shim may call it, \
                 through one file that is reviewed whole when its version moves",
        planted: "use libcontainer::container::builder::ContainerBuilder;",
        free_in_tests: false,
    },
    Homed {
        shown: "libcgroups",
        spelling: Spelling::Package("libcgroups"),
        homes: &[
            "src/node/runtime/container.rs",
            "src/node/runtime/cgroup.rs",
        ],
        reason: "limits and statistics are read and written in one file",
        planted: "fn planted() { libcgroups::common::get_cgroup_setup(); }",
        free_in_tests: false,
    },
    Homed {
        shown: "cgroups_rs",
        spelling: Spelling::Package("cgroups_rs"),
        homes: &["src/node/runtime/cgroup.rs"],
        reason: "limits and statistics are read and written in one file",
        planted: "use cgroups_rs::Cgroup;",
        free_in_tests: false,
    },
    Homed {
        shown: "rusqlite",
        spelling: Spelling::Package("rusqlite"),
        homes: &["src/server/catalog.rs", "src/server/catalog/"],
        reason: "one place keeps rows true across crashes",
        planted: "use rusqlite::Connection;",
        free_in_tests: false,
    },
    Homed {
        shown: "SQL",
        spelling: Spelling::Statement,
        homes: &["src/server/catalog.rs", "src/server/catalog/"],
        reason: "one place keeps rows true across crashes",
        planted: "const PLANTED: &str = \"select id from session where phase = ?1\";",
        free_in_tests: false,
    },
    Homed {
        shown: "process::Command",
        spelling: Spelling::PathEnd(&["process", "Command"]),
        homes: &[
            "src/node/runtime/",
            "src/node/network/",
            "src/node/gpu/",
            "src/guest/gpu_test/",
            "src/node/program.rs",
            "src/store/images/build.rs",
            "src/doors/bench/",
            "src/doors/console/",
            "src/roles/",
        ],
        reason: "a program we start is our child to watch, to end and to reap",
        planted: "fn planted() { std::process::Command::new(\"true\"); }",
        free_in_tests: true,
    },
    Homed {
        shown: "tokio::spawn",
        spelling: Spelling::PathEnd(&["tokio", "spawn"]),
        homes: &[
            "src/roles/",
            "src/base/",
            "src/node/dial.rs",
            "src/doors/listener.rs",
            "src/doors/proxy/",
            "src/doors/ssh.rs",
            "src/doors/ssh/",
            "src/server/app_starts.rs",
            "src/server/code_runs.rs",
        ],
        reason: "every task has an owner who ends it: a role spawns, the rooms give it futures; \
                 dial's, the listener's, the proxy's, an app's, an interpreter's and those of SSH end \
                 with what they carry",
        planted: "fn planted() { tokio::spawn(async {}); }",
        free_in_tests: true,
    },
    Homed {
        shown: "env::var",
        spelling: Spelling::PathEnd(&["env", "var"]),
        homes: &[
            "src/base/settings.rs",
            "src/base/settings/",
            "src/guest/gpu_test/",
            "src/roles/",
        ],
        reason: "one value is checked once and carried, or two parts will read it differently",
        planted: "fn planted() { std::env::var(\"HOME\").ok(); }",
        free_in_tests: true,
    },
    Homed {
        shown: "process::exit",
        spelling: Spelling::PathEnd(&["process", "exit"]),
        homes: &["src/main.rs", "src/guest/gpu_test/", "src/roles/"],
        reason: "leaving from the middle skips what others still have to put away",
        planted: "fn planted() { std::process::exit(1); }",
        free_in_tests: false,
    },
    Homed {
        shown: "unsafe",
        spelling: Spelling::Word("unsafe"),
        homes: &["src/node/", "src/guest/", "src/roles/"],
        reason: "only code that talks to the kernel has cause for it",
        planted: "fn planted() { unsafe { std::hint::unreachable_unchecked() } }",
        free_in_tests: true,
    },
    Homed {
        shown: "todo!",
        spelling: Spelling::Macro("todo"),
        homes: &[],
        reason: "finish it, or refuse with a reason",
        planted: "fn planted() { todo!() }",
        free_in_tests: false,
    },
    Homed {
        shown: "unimplemented!",
        spelling: Spelling::Macro("unimplemented"),
        homes: &[],
        reason: "finish it, or refuse with a reason",
        planted: "fn planted() { unimplemented!() }",
        free_in_tests: false,
    },
    Homed {
        shown: "\"skipped: …\"",
        spelling: Spelling::TextStart("skipped: "),
        homes: &[],
        reason: "a test says it through skips::skip, or the gate does not hear of it",
        planted: "fn planted() { println!(\"skipped: planted: it rains\"); }",
        free_in_tests: false,
    },
    Homed {
        shown: "vfolder",
        spelling: Spelling::Word("vfolder"),
        homes: &["src/doors/api/backend_ai.rs", "src/doors/api/backend_ai/"],
        reason: "the vocabulary of the compatible API is spoken at its door only",
        planted: "struct Planted { vfolder: u32 }",
        free_in_tests: false,
    },
    Homed {
        shown: "keypair",
        spelling: Spelling::Word("keypair"),
        homes: &["src/doors/api/backend_ai.rs", "src/doors/api/backend_ai/"],
        reason: "the vocabulary of the compatible API is spoken at its door only",
        planted: "struct Planted { keypair: u32 }",
        free_in_tests: false,
    },
    Homed {
        shown: "scaling_group",
        spelling: Spelling::Word("scaling_group"),
        homes: &["src/doors/api/backend_ai.rs", "src/doors/api/backend_ai/"],
        reason: "the vocabulary of the compatible API is spoken at its door only",
        planted: "struct Planted { scaling_group: u32 }",
        free_in_tests: false,
    },
];

/// Paths that no code in `rules` may name, tests aside: same world in, same answer out. Clippy knows
/// single methods (`src/rules/.clippy.toml`); this catches the whole module, and in `cargo test`.
pub(super) const IMPURE: &[&[&str]] = &[
    &["std", "fs"],
    &["std", "env"],
    &["std", "net"],
    &["std", "os"],
    &["std", "process"],
    &["std", "thread"],
    &["std", "io"],
    &["std", "time", "SystemTime"],
    &["std", "time", "Instant"],
    &["std", "collections", "HashMap"],
    &["std", "collections", "HashSet"],
    &["SystemTime", "now"],
    &["Instant", "now"],
    &["Timestamp", "now"],
    &["Zoned", "now"],
    &["Uuid", "now_v7"],
    &["Uuid", "new_v4"],
];

/// File names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 7] = [
    "utils", "util", "helpers", "helper", "common", "misc", "manager",
];

/// Lists every breach in the tree, by file and line; empty when the code keeps to the tables.
///
/// Costs one pass over the text: about 40 ms per 30,000 lines without optimisation.
pub(super) fn check(tree: &Tree) -> Vec<Breach> {
    let mut found = Vec::new();
    let tables = match Tables::read(tree) {
        Ok(tables) => tables,
        Err(sentence) => {
            let file = ARCHITECTURE.to_owned();
            return vec![Breach {
                file,
                line: 1,
                sentence,
                rule: INSIDE,
            }];
        }
    };
    check_manifests(tree, &tables, &mut found);
    check_sentences(tree, &tables, &mut found);
    let modules = Modules::of(tree, &tables);
    for (file, text) in tree.code() {
        check_form(file, text, &mut found);
        if !file.starts_with("src/") {
            continue;
        }
        let source = Source::parse(text);
        let references = source.references(&modules.place(file).1);
        check_words(file, &source, &references, &mut found);
        if file.starts_with("src/rules/") {
            check_purity(file, &source, &references, &mut found);
        }
        // A guest is a package of its own that names nothing of the house.
        if !file.starts_with("src/guest/") {
            check_neighbours(file, &source, &references, &tables, &modules, &mut found);
        }
    }
    found.sort();
    found.dedup();
    found
}

/// Lists where ARCHITECTURE.md speaks of files and functions that are not there.
pub(super) fn check_document(tree: &Tree) -> Vec<Breach> {
    let mut found = Vec::new();
    let mut report = |file: &str, line, sentence, rule| {
        found.push(Breach {
            file: file.to_owned(),
            line,
            sentence,
            rule,
        });
    };
    let tables = match Tables::read(tree) {
        Ok(tables) => tables,
        Err(sentence) => {
            report(ARCHITECTURE, 1, sentence, WALK);
            return found;
        }
    };
    let walk = tables.walk.iter().map(|row| (row, WALK));
    let places = tables.places.iter().map(|row| (row, PLACES));
    for ((line, names), rule) in walk.chain(places) {
        let mut code = None;
        for name in names {
            if name.contains('/') {
                let below_src = format!("src/{name}");
                if !tree.holds(&below_src) && !tree.holds(name) {
                    report(ARCHITECTURE, *line, format!("{name} does not exist"), rule);
                }
                code = tree.text(&below_src).or_else(|| tree.text(name));
            } else if !code.is_some_and(|code| defines(code, name)) {
                report(
                    ARCHITECTURE,
                    *line,
                    format!("{name} is not in its file"),
                    rule,
                );
            }
        }
    }
    found
}

/// Whether code defines a function, type or constant of this name.
fn defines(code: &str, name: &str) -> bool {
    let bare = |letter: char| !(letter == '_' || letter.is_alphanumeric());
    ["fn", "struct", "enum", "trait", "const", "type"]
        .iter()
        .any(|kind| {
            let wanted = format!("{kind} {name}");
            code.match_indices(&wanted)
                .any(|(at, _)| code[at + wanted.len()..].starts_with(bare))
        })
}

fn check_manifests(tree: &Tree, tables: &Tables, found: &mut Vec<Breach>) {
    for room in &tables.rooms {
        let file = manifest(&room.name);
        for dependency in tree.text(&file).map(dependencies).unwrap_or_default() {
            let package = &dependency.package;
            let mut report = |sentence| {
                let file = file.clone();
                found.push(Breach {
                    file,
                    line: dependency.line,
                    sentence,
                    rule: BETWEEN,
                });
            };
            if tables.rooms.iter().any(|other| other.name == *package) {
                if !room.may_use.contains(package) {
                    report(format!("room {} may not use room {package}", room.name));
                }
                continue;
            }
            for home in tables.rooms.iter().filter(|home| home.name != room.name) {
                if home.homed.contains(package) {
                    report(format!(
                        "package {package} lives only in room {}, not in {}",
                        home.name, room.name,
                    ));
                }
            }
            if let Some(listed) = &room.nothing_but
                && !listed.contains(package)
                && !dependency.only_tests
            {
                report(format!(
                    "room {} has no other packages than its row lists, and {package} is not among \
                     them",
                    room.name,
                ));
            }
        }
    }
}

fn check_sentences(tree: &Tree, tables: &Tables, found: &mut Vec<Breach>) {
    let mut named = BTreeSet::new();
    for (file, text) in tree.manifests() {
        for dependency in dependencies(text) {
            if !tables
                .packages
                .iter()
                .any(|(package, _)| *package == dependency.package)
            {
                found.push(Breach {
                    file: file.to_owned(),
                    line: dependency.line,
                    sentence: format!("{} has no sentence", dependency.package),
                    rule: DEPENDENCIES,
                });
            }
            named.insert(dependency.package);
        }
    }
    for (package, line) in &tables.packages {
        if !named.contains(package) {
            found.push(Breach {
                file: CONTRIBUTING.to_owned(),
                line: *line,
                sentence: format!("no manifest names {package}"),
                rule: DEPENDENCIES,
            });
        }
    }
}

fn check_form(file: &str, text: &str, found: &mut Vec<Breach>) {
    let mut report = |line, sentence: String| {
        found.push(Breach {
            file: file.to_owned(),
            line,
            sentence,
            rule: FORM,
        });
    };
    if !text.starts_with("//!") {
        report(
            1,
            "opens without `//!`: say what the file is for and what it never does".to_owned(),
        );
    }
    let name = file
        .rsplit('/')
        .next()
        .unwrap_or(file)
        .trim_end_matches(".rs");
    if EMPTY_NAMES.contains(&name) {
        report(
            1,
            format!("`{name}` names no noun and no verb: give the file the name of what it holds"),
        );
    }
    let blanket = text.lines().position(|line| {
        let line = line.trim_start();
        line.starts_with("#![allow(") || line.starts_with("#![expect(")
    });
    if let Some(at) = blanket {
        report(
            at + 1,
            "allows a lint for a whole file: put it on the one item".to_owned(),
        );
    }
    if file.starts_with("src/") && file.ends_with("/lib.rs") && file.matches('/').count() == 2 {
        for (at, line) in text.lines().enumerate() {
            if line.starts_with("pub use ") {
                report(
                    at + 1,
                    "a room re-exports nothing: its users name the module".to_owned(),
                );
            }
        }
    }
}

fn check_words(
    file: &str,
    source: &Source,
    references: &[(Reference, usize)],
    found: &mut Vec<Breach>,
) {
    let whole_file_is_test = is_test_file(file);
    for word in WORDS {
        let at_home = word
            .homes
            .iter()
            .any(|home| file == *home || (home.ends_with('/') && file.starts_with(home)));
        if at_home || (word.free_in_tests && whole_file_is_test) {
            continue;
        }
        let mut report = |token: usize, line: usize| {
            if word.free_in_tests && source.in_test(token) {
                return;
            }
            let home = match word.homes {
                [] => "has no place in the product".to_owned(),
                homes => format!("lives only in {}", homes.join(", ")),
            };
            let sentence = format!("`{}` {home}: {}", word.shown, word.reason);
            found.push(Breach {
                file: file.to_owned(),
                line,
                sentence,
                rule: WORD_LIST,
            });
        };
        match word.spelling {
            Spelling::PathEnd(end) => {
                for (reference, token) in references {
                    if let Reference::Outer { path, line } = reference
                        && path.windows(end.len()).any(|part| part == end)
                    {
                        report(*token, *line);
                    }
                }
            }
            Spelling::Package(package) => {
                for (reference, token) in references {
                    if let Reference::Outer { path, line } = reference
                        && path.first().is_some_and(|first| first == package)
                    {
                        report(*token, *line);
                    }
                }
            }
            Spelling::Word(wanted) => {
                for (at, token) in source.tokens.iter().enumerate() {
                    if token.kind == Kind::Word && token.text == wanted {
                        report(at, token.line);
                    }
                }
            }
            Spelling::Macro(wanted) => {
                for (at, pair) in source.tokens.windows(2).enumerate() {
                    if pair[0].text == wanted && pair[1].text == "!" {
                        report(at, pair[0].line);
                    }
                }
            }
            Spelling::TextStart(start) => {
                for (at, token) in source.tokens.iter().enumerate() {
                    if token.kind == Kind::Text && token.text.starts_with(start) {
                        report(at, token.line);
                    }
                }
            }
            Spelling::Statement => {
                for (at, token) in source.tokens.iter().enumerate() {
                    if token.kind == Kind::Text && is_statement(&token.text) {
                        report(at, token.line);
                    }
                }
            }
        }
    }
}

/// Whether a file holds nothing but tests, by its name.
fn is_test_file(file: &str) -> bool {
    file.ends_with("/tests.rs") || file.ends_with("_test.rs") || file.contains("/tests/")
}

fn check_purity(
    file: &str,
    source: &Source,
    references: &[(Reference, usize)],
    found: &mut Vec<Breach>,
) {
    for (reference, token) in references {
        let Reference::Outer { path, line } = reference else {
            continue;
        };
        let impure = IMPURE
            .iter()
            .find(|part| path.windows(part.len()).any(|at| at == **part));
        if let Some(part) = impure
            && !source.in_test(*token)
            && !is_test_file(file)
        {
            found.push(Breach {
                file: file.to_owned(),
                line: *line,
                sentence: format!(
                    "rules may not use {}: time, random numbers, files and settings are arguments",
                    part.join("::"),
                ),
                rule: BETWEEN,
            });
        }
    }
}

/// Whether a string reads as SQL in the house's spelling (lower case) or in capitals. A sentence
/// that begins with a capital letter ("Select an image from …") is none.
fn is_statement(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    let has = |word: &str| words.contains(&word);
    match words.as_slice() {
        ["select", ..] => has("from"),
        ["SELECT", ..] => has("FROM"),
        ["update", ..] => has("set"),
        ["UPDATE", ..] => has("SET"),
        ["insert", "into" | "or", ..] | ["INSERT", "INTO" | "OR", ..] => true,
        ["delete", "from", ..] | ["DELETE", "FROM", ..] => true,
        [
            "create" | "drop" | "alter",
            "table" | "index" | "trigger" | "view",
            ..,
        ] => true,
        [
            "CREATE" | "DROP" | "ALTER",
            "TABLE" | "INDEX" | "TRIGGER" | "VIEW",
            ..,
        ] => true,
        ["pragma" | "PRAGMA", _, ..] => true,
        _ => false,
    }
}

fn check_neighbours(
    file: &str,
    source: &Source,
    references: &[(Reference, usize)],
    tables: &Tables,
    modules: &Modules,
    found: &mut Vec<Breach>,
) {
    let (room, here) = modules.place(file);
    let Some(from) = modules.unit(&room, &here) else {
        return;
    };
    let mut report = |line, sentence| {
        found.push(Breach {
            file: file.to_owned(),
            line,
            sentence,
            rule: INSIDE,
        });
    };
    let Some(row) = tables.module(&room, &from) else {
        // `doors.rs` joins the doors and has its row in the third table.
        if room == "root" && from == "doors" {
            check_sight(
                file,
                source,
                references,
                tables,
                modules,
                &from,
                &mut report,
            );
        } else {
            report(
                1,
                format!("module {room}/{from} has no row: say whom it may use"),
            );
        }
        return;
    };
    if row.allows_everything() {
        return;
    }
    for (reference, token) in references {
        let Reference::Inner { path, line } = reference else {
            continue;
        };
        match path.as_slice() {
            [] => report(
                *line,
                format!("{from} takes the whole room in: name the module"),
            ),
            [only] if only == "*" && !source.in_test(*token) => {
                report(
                    *line,
                    format!("{from} takes the whole room in: name the module"),
                );
            }
            path => {
                if let Some(to) = modules.unit(&room, path)
                    && !row.allows(&to)
                    && !from.starts_with(&format!("{to}/"))
                {
                    report(*line, format!("{from} may not use {to}"));
                }
            }
        }
    }
    if room == "root" && from.starts_with("doors/") {
        check_sight(
            file,
            source,
            references,
            tables,
            modules,
            &from,
            &mut report,
        );
    }
}

/// Checks which rooms a door names, and which modules of theirs. A door's tests may build the house
/// around it.
fn check_sight(
    file: &str,
    source: &Source,
    references: &[(Reference, usize)],
    tables: &Tables,
    modules: &Modules,
    door: &str,
    report: &mut impl FnMut(usize, String),
) {
    let seen: Vec<&str> = tables
        .doors
        .iter()
        .filter(|row| row.module == "doors" || row.module == door)
        .flat_map(|row| row.may_use.iter().map(String::as_str))
        .collect();
    for (reference, token) in references {
        if is_test_file(file) || source.in_test(*token) {
            continue;
        }
        let Reference::Outer { path, line } = reference else {
            continue;
        };
        let Some(room) = path.first().filter(|name| modules.rooms.contains(*name)) else {
            continue;
        };
        let whole = seen.contains(&room.as_str());
        let shown = path
            .iter()
            .take(2)
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("::");
        if !whole && !seen.contains(&shown.as_str()) {
            report(*line, format!("{door} may not use {shown}"));
        }
    }
}

/// Which modules exist, and where a file stands among them.
struct Modules {
    rooms: BTreeSet<String>,
    /// Rooms whose modules have rows, each with its known units.
    units: BTreeSet<(String, String)>,
}

impl Modules {
    fn of(tree: &Tree, tables: &Tables) -> Self {
        let mut modules = Self {
            rooms: tables.rooms.iter().map(|room| room.name.clone()).collect(),
            units: BTreeSet::new(),
        };
        for Module { room, module, .. } in &tables.modules {
            modules.units.insert((room.clone(), module.clone()));
        }
        let ruled: BTreeSet<&str> = tables.modules.iter().map(|row| row.room.as_str()).collect();
        for (file, _) in tree.code().filter(|(file, _)| file.starts_with("src/")) {
            let (room, path) = modules.place(file);
            if !ruled.contains(room.as_str()) {
                continue;
            }
            match path.as_slice() {
                [first, second, ..] if room == "root" && first == "doors" => {
                    modules.units.insert((room, format!("doors/{second}")));
                }
                [first, ..] => {
                    modules.units.insert((room, first.clone()));
                }
                [] => {}
            }
        }
        modules
    }

    /// The room of a file and its module path there: `src/node/gpu/probe.rs` is `node`, `gpu probe`.
    fn place(&self, file: &str) -> (String, Vec<String>) {
        let room = self
            .rooms
            .iter()
            .find(|room| *room != "root" && file.starts_with(&format!("{}/", folder(room))))
            .map_or("root", String::as_str);
        let inside = file
            .strip_prefix(&format!("{}/", folder(room)))
            .unwrap_or(file);
        let mut path: Vec<String> = inside
            .trim_end_matches(".rs")
            .split('/')
            .map(str::to_owned)
            .collect();
        if matches!(
            path.last().map(String::as_str),
            Some("lib" | "main" | "mod")
        ) {
            path.pop();
        }
        (room.to_owned(), path)
    }

    /// The row that a module path falls under; nothing for the room's own root and its items.
    fn unit(&self, room: &str, path: &[String]) -> Option<String> {
        let known = |unit: &str| self.units.contains(&(room.to_owned(), unit.to_owned()));
        let first = path.first()?;
        if room == "root" && first == "doors" {
            let door = path.get(1).map(|second| format!("doors/{second}"));
            return Some(
                door.filter(|door| known(door))
                    .unwrap_or_else(|| "doors".to_owned()),
            );
        }
        known(first).then(|| first.clone())
    }
}
