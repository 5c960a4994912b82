//! Pages of a directory of a folder by size, by time or backwards: directories first, then all else. Such an order needs a look
//! at each entry, so it is for directories of a bounded number of names alone.

use std::cmp::Ordering;

use rules::folder_path::{FolderEntryKind, FolderPath};
use rules::refusals;
use rustix::fs::Dir;

use super::beneath::FolderTop;
use super::failure::{FolderError, failed};
use super::listing::{FolderEntry, contains, look};

/// Entries of a directory that are put in such an order. Higher: each page looks at more entries. Lower: larger directories
/// are listed by name alone.
pub const MAX_SORTED: usize = 50_000;

/// What entries are put in order by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntrySortKey {
    Name,
    Size,
    Modified,
}

/// Which page of a directory.
#[derive(Debug, Clone)]
pub struct SortedQuery {
    pub key: EntrySortKey,
    pub descending: bool,
    pub after: Option<SortedPosition>,
    /// What the names contain, in small or capital letters; empty: anything.
    pub words: String,
    pub limit: usize,
}

/// A place in such an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortedPosition {
    /// False for a directory.
    pub is_behind: bool,
    /// Bytes or milliseconds; zero where names alone decide.
    pub value: i64,
    pub name: Vec<u8>,
}

/// One page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderedPage {
    pub entries: Vec<FolderEntry>,
    pub next: Option<SortedPosition>,
    /// Entries of all pages.
    pub total: u64,
}

/// Costs a look at each entry that fits the words, and memory for two pages.
pub(super) fn list(
    top: &FolderTop,
    path: &FolderPath,
    query: &SortedQuery,
) -> Result<OrderedPage, FolderError> {
    let failed = || failed::<rustix::io::Errno>("list a directory of a folder", path);
    let directory = top.directory(path)?;
    let words = query.words.to_lowercase();
    let mut names = Dir::read_from(&directory).map_err(failed())?;
    let mut all: Vec<(SortedPosition, FolderEntry)> = Vec::new();
    let (mut seen, mut total) = (0_usize, 0_u64);
    // One more than the page tells that more come behind.
    let kept = query.limit.saturating_add(1);
    let order = |one: &SortedPosition, other: &SortedPosition| compared(query, one, other);
    while let Some(entry) = names.read() {
        let entry = entry.map_err(failed())?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        seen += 1;
        if seen > MAX_SORTED {
            return Err(refusals::folder_sort_too_many(MAX_SORTED)
                .at("/sort")
                .into());
        }
        if !words.is_empty() && !contains(name, &words) {
            continue;
        }
        // What is gone since it was listed is left out.
        let Some(entry) = look(&directory, name.to_vec()) else {
            continue;
        };
        total += 1;
        let place = position(query.key, &entry);
        let after = query.after.as_ref();
        if after.is_some_and(|after| order(&place, after).is_le()) {
            continue;
        }
        all.push((place, entry));
        if all.len() >= kept.saturating_mul(2) {
            all.sort_unstable_by(|one, other| order(&one.0, &other.0));
            all.truncate(kept);
        }
    }
    all.sort_unstable_by(|one, other| order(&one.0, &other.0));
    let has_more = all.len() > query.limit;
    all.truncate(query.limit);
    let last = all.last().filter(|_| has_more);
    let next = last.map(|last| last.0.clone());
    let entries = all.into_iter().map(|(_, entry)| entry);
    Ok(OrderedPage {
        entries: entries.collect(),
        next,
        total,
    })
}

fn position(key: EntrySortKey, entry: &FolderEntry) -> SortedPosition {
    let is_directory = entry.kind == FolderEntryKind::Directory;
    let value = match key {
        EntrySortKey::Name => 0,
        // What the file system says of a directory is not what lies in it.
        EntrySortKey::Size if is_directory => 0,
        EntrySortKey::Size => i64::try_from(entry.size).unwrap_or(i64::MAX),
        EntrySortKey::Modified => entry.modified_at.as_millis(),
    };
    SortedPosition {
        is_behind: !is_directory,
        value,
        name: entry.name.clone(),
    }
}

/// Directories stay first whichever way the rest is turned; of equal values the names decide.
fn compared(query: &SortedQuery, one: &SortedPosition, other: &SortedPosition) -> Ordering {
    let rest = match query.key {
        EntrySortKey::Name => one.name.cmp(&other.name),
        EntrySortKey::Size | EntrySortKey::Modified => one.value.cmp(&other.value),
    };
    let rest = match query.descending {
        true => rest.reverse(),
        false => rest,
    };
    let groups = one.is_behind.cmp(&other.is_behind);
    groups.then(rest).then_with(|| one.name.cmp(&other.name))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rules::names::FolderId;
    use uuid::Uuid;

    use super::*;
    use crate::folders::{FolderStore, mounted_directory};

    const ID: FolderId = FolderId(Uuid::from_u128(0xab));

    #[test]
    fn a_directory_comes_by_size_in_pages_both_ways() {
        let data = tempfile::tempdir().expect("a directory");
        let store = FolderStore::open(data.path()).expect("a store");
        store.create(ID, false, None).expect("made");
        let place = mounted_directory(data.path(), ID);
        fs::create_dir(place.join("z-directory")).expect("made");
        for (name, size) in [("a", 30), ("b", 10), ("c", 20), ("d", 10)] {
            fs::write(place.join(name), vec![b'x'; size]).expect("written");
        }
        let through = |key, descending| {
            let (mut all, mut after) = (Vec::new(), None);
            loop {
                let query = SortedQuery {
                    key,
                    descending,
                    after: after.take(),
                    words: String::new(),
                    limit: 2,
                };
                let page = store.list_sorted(ID, &FolderPath::default(), &query);
                let page = page.expect("a page");
                assert_eq!(page.total, 5);
                let names = page.entries.into_iter().map(|entry| entry.name);
                all.extend(names.map(|name| String::from_utf8_lossy(&name).into_owned()));
                match page.next {
                    Some(next) => after = Some(next),
                    None => return all.join(" "),
                }
            }
        };
        assert_eq!(through(EntrySortKey::Size, false), "z-directory b d c a");
        assert_eq!(through(EntrySortKey::Size, true), "z-directory a c b d");
        assert_eq!(through(EntrySortKey::Name, true), "z-directory d c b a");
    }

    #[test]
    fn a_directory_of_too_many_entries_is_listed_by_name_alone() {
        let data = tempfile::tempdir().expect("a directory");
        let store = FolderStore::open(data.path()).expect("a store");
        store.create(ID, false, None).expect("made");
        let place = mounted_directory(data.path(), ID);
        for number in 0..MAX_SORTED {
            fs::write(place.join(format!("f{number}")), "").expect("written");
        }
        let query = SortedQuery {
            key: EntrySortKey::Modified,
            descending: true,
            after: None,
            words: "f7".to_owned(),
            limit: 10,
        };
        let top = FolderPath::default();
        let page = store.list_sorted(ID, &top, &query).expect("a page");
        assert_eq!(page.entries.len(), 10);
        // f7, f70 to f79, f700 to f799 and f7000 to f7999.
        assert_eq!((page.total, page.next.is_some()), (1111, true));
        fs::write(place.join("one more"), "").expect("written");
        let refused = store.list_sorted(ID, &top, &query).expect_err("too many");
        assert_eq!(refused.code(), Some("folder.sort-too-many"));
    }
}
