//! Reads the sources of the catalog and of the doors: no list of rows that people own without a `Reach`, and
//! no comparison of roles outside `rules::permissions`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Rows that belong to a user, a project or a domain.
const OWNED: [&str; 16] = [
    "Session",
    "EventRow",
    "OperationRow",
    "CatalogImage",
    "User",
    "AuditRow",
    "ChainRow",
    "ProjectRow",
    "FolderRecord",
    "ReservationRecord",
    "BudgetRecord",
    "CourseRecord",
    "PresetRecord",
    "BreakGlassRecord",
    "LedgerSum",
    "DeviceHolder",
];

/// Lists that no caller gets as they are, and why.
const NOT_FOR_CALLERS: [(&str, &str); 13] = [
    ("live_sessions", "a pass decides for all"),
    ("open_operations", "a worker does all"),
    ("events_of", "of one thing, which was found within a reach"),
    (
        "acts_after",
        "places outside that the machine's own file names get all",
    ),
    (
        "events_behind",
        "webhooks, which administrators of the site add, tell of all",
    ),
    ("folders_of", "of one owner, who was found within a reach"),
    ("folders_to_purge", "a worker removes all"),
    (
        "reservations_of_project",
        "of one project, which was found within a reach",
    ),
    (
        "open_reservations_of",
        "of one user who leaves, who was found within a reach",
    ),
    (
        "budgets_of",
        "of one project and owner, whose session they hold",
    ),
    ("current_budgets", "a pass decides for all"),
    (
        "presets_for",
        "of the project that a session is launched in",
    ),
    ("presets_of", "of one scope, which was found within a reach"),
];

fn sources(below: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(below).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "tests") {
                sources(&path, found);
            }
        } else if path.extension().is_some_and(|kind| kind == "rs")
            && path.file_name().is_some_and(|name| name != "tests.rs")
        {
            found.push(path);
        }
    }
}

/// The part of a file that is no test, of all files below `folder`.
pub(super) fn product(folder: &str) -> Vec<(PathBuf, String)> {
    let mut paths = Vec::new();
    sources(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join(folder),
        &mut paths,
    );
    paths
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(&path).expect("a source");
            let product = text.split("#[cfg(test)]\nmod tests {").next();
            (path, product.unwrap_or_default().to_owned())
        })
        .collect()
}

/// Names of functions that give several owned rows and take no reach.
fn unfiltered(text: &str) -> Vec<String> {
    text.split("pub(crate) fn ")
        .skip(1)
        .filter_map(|rest| {
            let signature = rest.split('{').next()?;
            let name = signature.split(['(', '<']).next()?;
            let (_, answer) = signature.rsplit_once("->")?;
            let owned = OWNED
                .iter()
                .any(|row| answer.contains(&format!("Vec<{row}>")))
                || answer.contains("SharedSessions");
            (owned && !signature.contains("&Reach")).then(|| name.to_owned())
        })
        .collect()
}

#[test]
fn every_list_of_owned_rows_demands_a_reach() {
    let (mut lists, mut known) = (0, BTreeSet::new());
    for (path, text) in product("src/server/catalog") {
        lists += text.matches("&Reach").count();
        for name in unfiltered(&text) {
            assert!(
                NOT_FOR_CALLERS.iter().any(|(known, _)| *known == name),
                "{name} in {} lists rows of all users: let it take &Reach",
                path.display()
            );
            known.insert(name);
        }
    }
    for (name, why) in NOT_FOR_CALLERS {
        assert!(known.contains(name), "{name} is no such list: {why}");
    }
    assert!(lists >= 38, "the catalog is not where it was read");
}

#[test]
fn a_planted_list_without_its_reach_is_found() {
    let text = "pub(crate) fn good(&self, reach: &Reach) -> Result<Vec<Session>, Failure> {\n\
                pub(crate) fn leak(\n    &self,\n    most: u32,\n) -> Result<Vec<Session>, Failure> {\n\
                pub(crate) fn one(&self) -> Result<Option<Session>, Failure> {";
    assert_eq!(unfiltered(text), ["leak"]);
}

#[test]
fn roles_are_compared_by_the_rules_only() {
    let rooms = ["src/server", "src/doors", "src/roles"];
    for (path, text) in rooms.into_iter().flat_map(product) {
        for (number, line) in text.lines().enumerate() {
            let compares = ["==", "!="].iter().any(|sign| {
                line.contains(&format!("{sign} Role::"))
                    || line.contains(&format!("{sign} rules::users::Role::"))
            });
            assert!(
                !compares,
                "{}:{}: ask rules::permissions: {line}",
                path.display(),
                number + 1
            );
        }
    }
}
