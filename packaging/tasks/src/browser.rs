//! Runs `tests/browser`: a real browser clicks through the real binary. Each file there starts a
//! server of its own; this one only brings browser, driver and the name of the binary together.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::program::{self, Program};

const FOLDER: &str = "tests/browser";

/// The driver's own requirement.
const OLDEST_NODE: u32 = 20;

/// What pages cost in time: a promise of the build that is shipped.
const COSTS: &str = "figures.mjs";

/// Pages of a site with many users and projects: making them takes minutes.
const CROWDED: &str = "crowded.mjs";

/// Apps of others, which are installed first: that takes minutes, and a network.
const REAL_APPS: &str = "real_apps.mjs";

/// Forty notebooks of one of those apps, which take most of a machine's memory.
const REAL_NOTEBOOKS: &str = "real_notebooks.mjs";

/// Very large files on their way into a folder: minutes, and as much room on the disk.
const LARGE_UPLOADS: &str = "large_uploads.mjs";

/// Pages of folders with few and many files.
const SIZES: &str = "folder_sizes.mjs";

/// What opens on pages: menus, folds, dialogs.
const OPENINGS: &str = "states.mjs";

/// Files that look at pages in pairs of language and colour scheme: `looks` of `lib/browser.mjs` says in which.
const IN_PAIRS: [&str; 6] = [
    SIZES,
    "pages.mjs",
    "gpus.mjs",
    "guide.mjs",
    "journeys.mjs",
    "words.mjs",
];

/// The longest files, the longest first: at the end nothing would run beside them.
const RUN_FIRST: [&str; 5] = [
    OPENINGS,
    "journeys.mjs",
    "pages.mjs",
    "gpus.mjs",
    "guide.mjs",
];

/// Starts the files in the order that it is given; node's own command line sorts them by name.
const RUNNER: &str = "tests/browser/lib/run.mjs";

/// Files that run at once, each with a server and a browser of its own: 0.8 GB, and on average half a processor. More:
/// two processors are shared by more pages, and waits of seconds run out. Fewer: processors idle while a page waits.
const FILES_AT_ONCE: u32 = 3;

/// Files that have stages of their own at night or before a release.
const APART: [&str; 5] = [COSTS, CROWDED, REAL_APPS, REAL_NOTEBOOKS, LARGE_UPLOADS];

/// Runs every `*.mjs` but those [`APART`] with node's own test runner, [`FILES_AT_ONCE`].
///
/// The files read `FARDEL_BINARY`, `FARDEL_PAGES` (every page in every state, as the renderer writes
/// it), `FARDEL_PAIRS` (`all` pairs of language and colour scheme, or `half`: each language and each scheme once),
/// `FARDEL_TURN` (which pairs those are), `FARDEL_CARD` (a driver with a card that is made of files) and `CHROMIUM`.
/// Packages for them (the driver, axe) are pinned in `tests/browser/package-lock.json` and never reach the product.
pub(crate) fn run(binary: &Path) -> Result<(), Failure> {
    println!("in stages of their own: {}", APART.join(", "));
    let wanted = |file: &Path| !APART.iter().any(|name| file.ends_with(name));
    suite(binary, wanted, "half", &[])
}

/// Runs [`COSTS`] alone.
pub(crate) fn costs(binary: &Path) -> Result<(), Failure> {
    suite(binary, |file| file.ends_with(COSTS), "half", &[])
}

/// Runs [`CROWDED`] alone, with each page in both languages and both colour schemes.
pub(crate) fn crowded(binary: &Path) -> Result<(), Failure> {
    suite(binary, |file| file.ends_with(CROWDED), "all", &[])
}

/// Runs [`SIZES`] alone, with a folder of so many files.
pub(crate) fn large_folders(binary: &Path, entries: &str) -> Result<(), Failure> {
    let more = [("FARDEL_ENTRIES", Path::new(entries))];
    suite(binary, |file| file.ends_with(SIZES), "all", &more)
}

/// Runs [`IN_PAIRS`] alone, with every page in both languages and both colour schemes; `run` shows each page in
/// both, but not in each pair of them.
pub(crate) fn every_page(binary: &Path) -> Result<(), Failure> {
    let wanted = |file: &Path| IN_PAIRS.iter().any(|name| file.ends_with(name));
    suite(binary, wanted, "all", &[])
}

/// Runs [`OPENINGS`] alone, with whatever opens in each pair of language and colour scheme; `run` opens it in one.
pub(crate) fn openings(binary: &Path) -> Result<(), Failure> {
    suite(binary, |file| file.ends_with(OPENINGS), "all", &[])
}

/// Runs [`REAL_APPS`] alone, with the apps of that folder.
pub(crate) fn real_apps(binary: &Path, folder: &Path) -> Result<(), Failure> {
    let more = [("FARDEL_REAL_APPS", folder)];
    suite(binary, |file| file.ends_with(REAL_APPS), "half", &more)
}

/// Runs [`REAL_NOTEBOOKS`] alone, with JupyterLab in that folder.
pub(crate) fn real_notebooks(binary: &Path, folder: &Path) -> Result<(), Failure> {
    let more = [("FARDEL_REAL_APPS", folder)];
    let wanted = |file: &Path| file.ends_with(REAL_NOTEBOOKS);
    suite(binary, wanted, "half", &more)
}

/// Runs [`LARGE_UPLOADS`] alone, with files of so many GB.
pub(crate) fn large_uploads(binary: &Path, gigabytes: &str) -> Result<(), Failure> {
    let more = [("FARDEL_UPLOAD_GB", Path::new(gigabytes))];
    suite(binary, |file| file.ends_with(LARGE_UPLOADS), "all", &more)
}

/// What chooses the pairs where not all of them are looked at: each commit has its own, so that over the runs all of
/// them come up, and the same commit is looked at in the same ones. 0 where the commit is not known.
fn turn_of(commit: &str) -> u16 {
    commit
        .get(..4)
        .and_then(|digits| u16::from_str_radix(digits, 16).ok())
        .unwrap_or_default()
}

/// Runs the files that are wanted, with `more` variables.
fn suite(
    binary: &Path,
    wanted: fn(&Path) -> bool,
    pairs: &str,
    more: &[(&str, &Path)],
) -> Result<(), Failure> {
    let what = "browser suite";
    let mut tests: Vec<_> = fs::read_dir(FOLDER)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "mjs"))
        .filter(|path| wanted(path))
        .collect();
    tests.sort_by_key(|file| {
        let place = RUN_FIRST.iter().position(|long| file.ends_with(long));
        (place.unwrap_or(RUN_FIRST.len()), file.clone())
    });
    if tests.is_empty() {
        return crate::leave_out(what, "tests/browser holds no test");
    }
    let Some(chromium) = ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| program::installed(name))
    else {
        return crate::leave_out(what, "no chromium is installed");
    };
    if !program::installed("node") || !program::installed("npm") {
        return crate::leave_out(what, "node and npm are not installed");
    }
    let version = Program::named("node").words("--version").output()?;
    if major(&version).is_none_or(|major| major < OLDEST_NODE) {
        let reason = format!("node {} is older than {OLDEST_NODE}", version.trim());
        return crate::leave_out(what, &reason);
    }
    let folder = Path::new(FOLDER);
    if folder.join("package-lock.json").exists() {
        Program::named("npm")
            .words("ci --ignore-scripts --no-audit --no-fund --loglevel=error")
            .inside(folder)
            .run()?;
    }
    let pages = Folder::make("pages")?;
    Program::cargo()
        .words("test --quiet --locked --package fardel --lib pages_are_written -- --ignored")
        .variable("FARDEL_PAGES_OUT", &pages.0)
        .run()?;
    let card = Card(Folder::make("card")?);
    Program::cargo()
        .words("test --quiet --locked --package fardel --test suite")
        .words("a_card_of_files_is_laid -- --ignored")
        .variable("FARDEL_CARD_OUT", &card.0.0)
        .run()?;
    let turn = std::env::var("FARDEL_TURN").unwrap_or_else(|_| {
        let commit = Program::named("git").words("rev-parse HEAD").output();
        turn_of(&commit.unwrap_or_default()).to_string()
    });
    println!(
        "{pairs} of the pairs of language and colour scheme; the same ones again: FARDEL_TURN={turn}"
    );
    let mut node = Program::named("node")
        .argument(RUNNER)
        .argument(FILES_AT_ONCE.to_string());
    for test in &tests {
        node = node.argument(test);
    }
    for (name, value) in more {
        node = node.variable(name, value);
    }
    node.variable("FARDEL_BINARY", binary)
        .variable("FARDEL_PAIRS", pairs)
        .variable("FARDEL_TURN", turn)
        .variable("FARDEL_PAGES", &pages.0)
        .variable("FARDEL_CARD", &card.0.0)
        .variable("CHROMIUM", chromium)
        .run()
}

/// A temporary folder, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn make(what: &str) -> Result<Self, Failure> {
        let name = format!("fardel-gate-{what}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path)
            .map_err(|error| Failure::new(format!("{} cannot be made: {error}", path.display())))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            println!("{} stays behind: {error}", self.0.display());
        }
    }
}

/// A driver with a card that is made of files; the card's state lies elsewhere, and goes with it.
struct Card(Folder);

impl Drop for Card {
    fn drop(&mut self) {
        let place = fs::read_to_string(self.0.0.join("place")).unwrap_or_default();
        if !place.is_empty()
            && let Err(error) = fs::remove_dir_all(&place)
        {
            println!("{place} stays behind: {error}");
        }
    }
}

/// The first number of `v20.1.2`.
fn major(version: &str) -> Option<u32> {
    version
        .trim()
        .trim_start_matches('v')
        .split('.')
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_is_named_is_there() {
        // The files are named from the root of the tree.
        crate::enter_root().unwrap();
        for name in RUN_FIRST.iter().chain(&IN_PAIRS).chain(&APART) {
            assert!(Path::new(FOLDER).join(name).is_file(), "{name}");
        }
        assert!(Path::new(RUNNER).is_file());
    }

    #[test]
    fn a_commit_has_a_turn_of_its_own_and_no_commit_the_first() {
        assert_eq!(turn_of("8abb06cb\n"), 0x8abb);
        assert_eq!(turn_of("0001ffff\n"), 1);
        for none in ["", "8ab", "fatal: not a git repository"] {
            assert_eq!(turn_of(none), 0, "{none}");
        }
    }
}
