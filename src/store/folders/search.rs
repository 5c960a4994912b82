//! Finds files and directories below a directory of a folder by their names: each directory before what lies in it, names in
//! the order of their bytes. One search looks at a bounded number of names for a bounded time, says what ended it, and the next
//! one goes on behind it. Never follows a link, and never opens a file.

use std::time::{Duration, Instant};

use rules::folder_path::FolderPath;

use super::beneath::FolderTop;
use super::failure::FolderError;
use super::listing::{self, FolderEntry, contains};
use super::names::DirectoryNames;

/// Names that one search looks at. Higher: a search takes the disk for longer. Lower: large trees take more pages.
pub const MAX_SEARCHED: u64 = 1_000_000;
/// How long one search looks. Longer: who lost the right to the folder learns names for longer. Shorter: a cold disk takes
/// more pages.
pub const SEARCHED: Duration = Duration::from_millis(1500);
/// Bytes of memory that the names of the directories on the way take. Higher: more memory for each search. Lower: very large
/// directories are not looked through to their end.
const NAMES: usize = 32 << 20;
/// Bytes of the way from where the search begins to a directory that it enters. Higher: no cursor holds it.
const WAY: usize = 700;

/// What is looked for.
#[derive(Debug, Clone, Default)]
pub struct SearchQuery {
    /// What the names contain, in small or capital letters.
    pub words: String,
    /// Behind which path, as text from the directory on; None: from its begin on.
    pub after: Option<String>,
    /// Entries of the page.
    pub limit: usize,
}

/// What ended a search before the tree did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchEnd {
    /// As many were found as were asked for.
    Page,
    /// As many names were looked at as may be.
    Names,
    Time,
}

/// What one search found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchPage {
    pub found: Vec<(FolderPath, FolderEntry)>,
    /// Where the next search goes on; None: the tree ended.
    pub next: Option<String>,
    pub end: Option<SearchEnd>,
    /// Names that this search looked at.
    pub looked: u64,
    /// False where something was not looked at: a directory that cannot be read, or that is too large or too deep.
    pub whole: bool,
}

struct Level {
    path: FolderPath,
    names: DirectoryNames,
    at: usize,
}

/// A way through a tree. It holds names, and no directory open.
struct NameWalk<'a> {
    top: &'a FolderTop,
    /// Bytes of the path, as text, that the walk begins at.
    begin: usize,
    levels: Vec<Level>,
    taken: usize,
    whole: bool,
}

impl NameWalk<'_> {
    /// Errors: `folder.entry-not-found`, `folder.entry-link`.
    fn enter(&mut self, path: &FolderPath) -> Result<(), FolderError> {
        let room = NAMES.saturating_sub(self.taken);
        let names = DirectoryNames::read(self.top, path, room)?;
        self.whole &= names.whole;
        self.taken += names.memory();
        self.levels.push(Level {
            path: path.clone(),
            names,
            at: 0,
        });
        Ok(())
    }

    /// Goes into a directory that was met on the way; false where it cannot.
    fn descend(&mut self, path: &FolderPath) -> bool {
        let text = path.to_string();
        let way = text.get(self.begin..).unwrap_or_default();
        // A cursor writes a quote and a backslash with two letters.
        if way.len() + way.matches(['"', '\\']).count() > WAY {
            self.whole = false;
            return false;
        }
        match self.enter(path) {
            Ok(()) => true,
            Err(error) => {
                // What is gone, or became a link, since it was listed is no part of the tree any more.
                self.whole &= error.code().is_some();
                false
            }
        }
    }

    /// Leaves out what was looked at before: all up to `path`.
    fn go_behind(&mut self, base: &FolderPath, path: &FolderPath) {
        for name in path.parts().skip(base.parts().count()) {
            let Some(level) = self.levels.last_mut() else {
                return;
            };
            level.at = level.names.first_from(name);
            if level.at == level.names.count() || level.names.get(level.at).0 != name {
                return;
            }
            let (_, is_directory) = level.names.get(level.at);
            level.at += 1;
            let Some(below) = level.path.child(name) else {
                return;
            };
            if !is_directory || !self.descend(&below) {
                return;
            }
        }
    }

    fn has_more(&self) -> bool {
        let mut levels = self.levels.iter();
        levels.any(|level| level.at < level.names.count())
    }
}

impl Iterator for NameWalk<'_> {
    type Item = (FolderPath, bool);

    fn next(&mut self) -> Option<(FolderPath, bool)> {
        loop {
            let level = self.levels.last_mut()?;
            if level.at < level.names.count() {
                let (name, is_directory) = level.names.get(level.at);
                let path = level.path.child(name);
                level.at += 1;
                match path {
                    Some(path) => return Some((path, is_directory)),
                    // No path leads so far.
                    None => self.whole = false,
                }
                continue;
            }
            if let Some(done) = self.levels.pop() {
                self.taken = self.taken.saturating_sub(done.names.memory());
            }
        }
    }
}

/// Costs O(names up to the bound), and a sort of the names of each directory on the way.
pub(super) fn search(
    top: &FolderTop,
    base: &FolderPath,
    query: &SearchQuery,
) -> Result<SearchPage, FolderError> {
    let words = query.words.to_lowercase();
    let begin = base.to_string().len();
    let mut walk = NameWalk {
        top,
        begin,
        levels: Vec::new(),
        taken: 0,
        whole: true,
    };
    walk.enter(base)?;
    if let Some(after) = &query.after {
        walk.go_behind(base, &FolderPath::parse(&format!("{base}/{after}"))?);
    }
    // The way to where it goes on is bounded by the names. Were its time counted, too, a search behind a directory of very many
    // names would come one name farther.
    let begun = Instant::now();
    let mut page = SearchPage {
        found: Vec::new(),
        next: None,
        end: None,
        looked: 0,
        whole: true,
    };
    while let Some((path, is_directory)) = walk.next() {
        // At least one name is looked at, so that each search comes farther than the one before.
        page.looked += 1;
        if is_directory {
            walk.descend(&path);
        }
        let fits = words.is_empty() || contains(path.name(), &words);
        // What is gone meanwhile is left out.
        if fits && let Ok(entry) = listing::entry(top, &path) {
            page.found.push((path.clone(), entry));
        }
        let end = match () {
            () if page.found.len() >= query.limit => SearchEnd::Page,
            () if page.looked >= MAX_SEARCHED => SearchEnd::Names,
            () if begun.elapsed() >= SEARCHED => SearchEnd::Time,
            () => continue,
        };
        if walk.has_more() {
            let text = path.to_string();
            page.next = Some(text[begin..].trim_start_matches('/').to_owned());
            page.end = Some(end);
        }
        break;
    }
    page.whole = walk.whole;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::symlink;

    use rules::names::FolderId;
    use uuid::Uuid;

    use super::*;
    use crate::folders::{FolderStore, mounted_directory};

    const ID: FolderId = FolderId(Uuid::from_u128(0xab));

    #[test]
    fn a_tree_is_searched_page_by_page_and_no_link_is_followed() {
        let data = tempfile::tempdir().expect("a directory");
        let store = FolderStore::open(data.path()).expect("a store");
        store.create(ID, false, None).expect("made");
        let place = mounted_directory(data.path(), ID);
        let mut expected = Vec::new();
        for directory in ["", "a", "a/b", "c"] {
            fs::create_dir_all(place.join(directory)).expect("made");
            for number in 0..7 {
                let path = format!("{directory}/Hit{number}");
                fs::write(place.join(path.trim_start_matches('/')), "x").expect("written");
                expected.push(path.trim_start_matches('/').to_owned());
            }
            fs::write(place.join(directory).join("other"), "x").expect("written");
        }
        symlink("/", place.join("hit-out")).expect("a link");
        expected.push("hit-out".to_owned());
        let odd = OsStr::from_bytes(b"hit\xff");
        fs::write(place.join("c").join(odd), "x").expect("written");
        expected.push("c/hit%FF".to_owned());
        expected.sort();
        let (mut found, mut after) = (Vec::new(), None);
        for limit in [3, 1, 4].into_iter().cycle() {
            let query = SearchQuery {
                words: "HIT".to_owned(),
                after: after.take(),
                limit,
            };
            let page = store.search(ID, &FolderPath::default(), &query);
            let page = page.expect("a page");
            assert!(page.whole && page.found.len() <= limit);
            found.extend(page.found.into_iter().map(|(path, _)| path.to_string()));
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        let mut sorted = found.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), found.len(), "none came twice");
        assert_eq!(sorted, expected);
        let below = FolderPath::parse("a").expect("a path");
        let query = SearchQuery {
            words: "hit".to_owned(),
            after: None,
            limit: 100,
        };
        let page = store.search(ID, &below, &query).expect("a page");
        assert_eq!((page.found.len(), page.next, page.end), (14, None, None));
        let link = FolderPath::parse("hit-out").expect("a path");
        let refused = store.search(ID, &link, &query).expect_err("a link");
        assert!(refused.code().is_some(), "{refused}");
    }
}
