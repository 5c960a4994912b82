//! Import circles: files or folders that lie side by side and need each other, directly or around a corner.
//! Such modules can only be read and moved together. Tests and their modules do not count; what packages
//! may use of each other is the manifests' business.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::house;
use super::source::{Reference, Source, Tree};

/// The list of `.ci/budgets.toml` that names the circles which stand.
const BUDGET: &str = "import_circles";

/// For each folder of modules: which of its modules names which other one.
type Edges = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// The folder that `crate` means in this file; nothing for code that is no part of the product or its tasks.
fn root(tree: &Tree, file: &str) -> Option<String> {
    if file.starts_with("packaging/tasks/src/") {
        return Some("packaging/tasks/src".to_owned());
    }
    let inside = file.strip_prefix("src/")?;
    let mut folders = inside.split('/');
    let first = folders.next()?;
    if first == "guest" {
        return Some(format!("src/guest/{}", folders.next()?));
    }
    let room = format!("src/{first}");
    let has_manifest = tree.holds(&format!("{room}/Cargo.toml"));
    Some(if has_manifest { room } else { "src".to_owned() })
}

/// The module path of a file below its root; empty for the root's own file.
fn module(root: &str, file: &str) -> Vec<String> {
    let inside = file[root.len() + 1..].trim_end_matches(".rs");
    let mut path: Vec<String> = inside.split('/').map(str::to_owned).collect();
    path.pop_if(|last| matches!(last.as_str(), "lib" | "main" | "mod"));
    path
}

/// Which sibling names which, over all packages. A reference from deep inside one folder to a file deep inside
/// another counts for the two folders where their paths part.
fn edges(tree: &Tree) -> Edges {
    let mut files = Vec::new();
    let mut modules = BTreeSet::new();
    let mut tests = BTreeSet::new();
    for (file, text) in tree.code() {
        let Some(root) = root(tree, file) else {
            continue;
        };
        let path = module(&root, file);
        let source = Source::parse(text);
        for child in source.test_modules() {
            tests.insert((root.clone(), [path.as_slice(), &[child]].concat()));
        }
        for end in 1..=path.len() {
            modules.insert((root.clone(), path[..end].to_vec()));
        }
        files.push((root, path, source));
    }
    let mut edges = Edges::new();
    for (root, path, source) in &files {
        if (1..=path.len()).any(|end| tests.contains(&(root.clone(), path[..end].to_vec()))) {
            continue;
        }
        for (reference, token) in source.references(path) {
            let Reference::Inner { path: named, .. } = reference else {
                continue;
            };
            let together = path.iter().zip(&named).take_while(|(a, b)| a == b).count();
            let (Some(from), Some(to)) = (path.get(together), named.get(together)) else {
                continue;
            };
            let target = (root.clone(), named[..=together].to_vec());
            if source.in_test(token) || !modules.contains(&target) || tests.contains(&target) {
                continue;
            }
            let folder = [std::slice::from_ref(root), &path[..together]]
                .concat()
                .join("/");
            let uses = edges.entry(folder).or_default();
            uses.entry(from.clone()).or_default().insert(to.clone());
        }
    }
    edges
}

/// Everything that can be reached from a module, itself only around a circle.
fn reachable<'a>(
    uses: &'a BTreeMap<String, BTreeSet<String>>,
    from: &'a str,
) -> BTreeSet<&'a String> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![from];
    while let Some(module) = waiting.pop() {
        for next in uses.get(module).into_iter().flatten() {
            if found.insert(next) {
                waiting.push(next);
            }
        }
    }
    found
}

/// Each circle as `folder: module module …`, by folder, the largest possible ones.
fn circles(edges: &Edges) -> Vec<String> {
    let mut found = Vec::new();
    for (folder, uses) in edges {
        let mut done: BTreeSet<&String> = BTreeSet::new();
        for from in uses.keys() {
            if done.contains(from) {
                continue;
            }
            let mut circle = reachable(uses, from);
            circle.retain(|module| reachable(uses, module).contains(from));
            if circle.len() > 1 {
                let names: Vec<&str> = circle.iter().map(|name| name.as_str()).collect();
                found.push(format!("{folder}: {}", names.join(" ")));
            }
            done.extend(circle);
        }
    }
    found
}

/// Who names whom inside a circle, one line each.
fn ties(edges: &Edges, circle: &str) -> String {
    let (folder, names) = circle.split_once(": ").unwrap_or_default();
    let members: BTreeSet<&str> = names.split(' ').collect();
    let inside = |module: &&String| members.contains(module.as_str());
    let mut lines = format!("{circle}\n");
    for (from, to) in edges.get(folder).into_iter().flatten() {
        let to: Vec<&str> = to.iter().filter(inside).map(String::as_str).collect();
        if inside(&from) && !to.is_empty() {
            lines.push_str(&format!("    {from} names {}\n", to.join(", ")));
        }
    }
    lines
}

/// Whether all modules of a circle stand together in one that the budget lists.
fn is_listed(circle: &str, listed: &[String]) -> bool {
    let parts = |text: &str| -> Option<(String, BTreeSet<String>)> {
        let (folder, names) = text.split_once(": ")?;
        Some((
            folder.to_owned(),
            names.split(' ').map(str::to_owned).collect(),
        ))
    };
    let (folder, names) = parts(circle).unwrap_or_default();
    let mut known = listed.iter().filter_map(|text| parts(text));
    known.any(|(place, known)| place == folder && names.is_subset(&known))
}

#[test]
fn no_siblings_import_each_other_in_a_circle_that_is_not_listed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let budgets = fs::read_to_string(root.join(".ci/budgets.toml")).expect("budgets");
    let budgets: toml::Table = budgets.parse().expect("a table");
    let listed: Vec<String> = budgets[BUDGET]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|circle| circle.as_str().map(str::to_owned))
        .collect();
    let edges = edges(&house());
    let folders = edges.len();
    assert!(folders > 20, "{folders} folders with ties were read only");
    let mut found = circles(&edges);
    found.retain(|circle| !is_listed(circle, &listed));
    let told: String = found.iter().map(|circle| ties(&edges, circle)).collect();
    assert!(
        found.is_empty(),
        "modules import each other in a circle; move what both need into a file of its own \
         (.ci/budgets.toml, {BUDGET}):\n{told}"
    );
}

#[test]
fn a_planted_circle_is_found_and_tests_close_none() {
    let mut tree = house().without_code();
    tree.plant("src/rules/lib.rs", "mod a; mod b; mod c; mod d; mod e;");
    // A circle of three, one of its ties from inside a folder to a file inside another.
    tree.plant("src/rules/a.rs", "use crate::b::inner::Thing;");
    tree.plant("src/rules/b.rs", "mod inner; use self::inner::Thing;");
    tree.plant("src/rules/b/inner.rs", "fn f() { crate::c::g(); }");
    tree.plant("src/rules/c.rs", "use super::{a, e};");
    // A child may name its parent, and a parent its child.
    tree.plant("src/rules/d.rs", "mod part; use part::f; use crate::e::x;");
    tree.plant("src/rules/d/part.rs", "use super::Item; pub fn f() {}");
    // Unit tests and test modules tie nothing.
    tree.plant(
        "src/rules/e.rs",
        "#[cfg(test)] mod tests { use crate::d; } #[cfg(test)] mod samples;",
    );
    tree.plant("src/rules/e/samples.rs", "use crate::d;");
    // Other packages of the tree, each with a root of its own.
    tree.plant("src/guest/hook/lib.rs", "mod x; mod y;");
    tree.plant("src/guest/hook/x.rs", "use crate::y::Y;");
    tree.plant("src/guest/hook/y.rs", "fn f() { super::x::g(); }");
    tree.plant("src/doors/pages/a.rs", "use super::b;");
    tree.plant("src/doors/pages/b.rs", "use fardel::doors::pages::a;");
    let edges = edges(&tree);
    let found = circles(&edges);
    assert_eq!(
        found,
        [
            "src/doors/pages: a b",
            "src/guest/hook: x y",
            "src/rules: a b c",
        ]
    );
    assert_eq!(
        ties(&edges, "src/rules: a b c"),
        "src/rules: a b c\n    a names b\n    b names c\n    c names a\n"
    );
}

#[test]
fn a_circle_may_shrink_but_not_grow_or_appear() {
    let listed = ["src/rules: a b c".to_owned()];
    for (circle, stands) in [
        ("src/rules: a b c", true),
        ("src/rules: a c", true),
        ("src/rules: a b c d", false),
        ("src/rules: a d", false),
        ("src/base: a b", false),
    ] {
        assert_eq!(is_listed(circle, &listed), stands, "{circle}");
    }
}
