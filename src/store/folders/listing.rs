//! Pages of a directory of a folder: directories first, then all else, each in the order of the bytes of their names. Reads
//! the whole directory and keeps the page alone, so a directory of millions of files takes no more memory than one of ten;
//! the names of a large one are kept for a while besides, as far as there is room for them.

use std::collections::BinaryHeap;
use std::os::fd::OwnedFd;

use rules::folder_path::{FolderEntryKind, FolderPath};
use rules::units::Timestamp;
use rustix::fs::{AtFlags, Dir, FileType, Stat};

use super::beneath::FolderTop;
use super::failure::{FolderError, failed};
use super::position::EntryPosition;
use super::sorted_names::{DirectoryVersion, KeptListings, NameFilter};

/// Names that are looked at for one page. Higher: a directory takes the disk for longer. Lower: what is behind it is found by
/// sessions alone.
pub const MAX_LISTED: u64 = 2_000_000;

/// What has a name in a directory of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderEntry {
    pub name: Vec<u8>,
    pub kind: FolderEntryKind,
    /// Bytes of a file's contents; of anything else, what the file system says.
    pub size: u64,
    pub modified_at: Timestamp,
}

/// Which page of a directory.
#[derive(Debug, Clone, Default)]
pub struct EntryQuery {
    /// Behind which entry; None: from the first one on.
    pub after: Option<EntryPosition>,
    /// What the names contain, in small or capital letters; empty: anything.
    pub words: String,
    /// Entries of the page.
    pub limit: usize,
}

/// One page of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryPage {
    pub entries: Vec<FolderEntry>,
    /// Where the next page begins; None: nothing comes behind this one.
    pub next: Option<EntryPosition>,
    /// Entries of all pages.
    pub total: u64,
    /// False where the directory has more names than are looked at.
    pub whole: bool,
}

pub(super) fn list(
    top: &FolderTop,
    path: &FolderPath,
    query: &EntryQuery,
    kept: &KeptListings,
) -> Result<EntryPage, FolderError> {
    let directory = top.directory(path)?;
    let failed = || failed::<rustix::io::Errno>("list a directory of a folder", path);
    let words = query.words.to_lowercase();
    let version = DirectoryVersion::of(&rustix::fs::fstat(&directory).map_err(failed())?);
    if let Some(names) = kept.find(version) {
        let fits = |name: &[u8]| contains(name, &words);
        let fits: Option<NameFilter<'_>> = match words.is_empty() {
            true => None,
            false => Some(&fits),
        };
        let page = names.page(query.after.as_ref(), query.limit, fits);
        let next = page.names.last().filter(|_| page.has_more).cloned();
        let names = page.names.into_iter();
        return Ok(EntryPage {
            entries: names.filter_map(|one| look(&directory, one.name)).collect(),
            next,
            total: page.total,
            whole: true,
        });
    }
    let mut gathered = kept.gather(version);
    let mut names = Dir::read_from(&directory).map_err(failed())?;
    let mut page: BinaryHeap<EntryPosition> = BinaryHeap::with_capacity(query.limit + 2);
    let (mut seen, mut total, mut behind, mut whole) = (0, 0, 0_u64, true);
    while let Some(entry) = names.read() {
        let entry = entry.map_err(failed())?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        if seen == MAX_LISTED {
            whole = false;
            break;
        }
        seen += 1;
        let is_behind = !is_directory(&directory, entry.file_type(), name);
        if let Some(gathered) = &mut gathered {
            gathered.add(is_behind, name);
        }
        if !words.is_empty() && !contains(name, &words) {
            continue;
        }
        total += 1;
        let place = |position: &EntryPosition| {
            (is_behind, name).cmp(&(position.is_behind, position.name.as_slice()))
        };
        if query
            .after
            .as_ref()
            .is_some_and(|after| place(after).is_le())
        {
            continue;
        }
        behind += 1;
        let is_full = page.len() == query.limit;
        if is_full && page.peek().is_none_or(|last| place(last).is_gt()) {
            continue;
        }
        page.push(EntryPosition {
            is_behind,
            name: name.to_vec(),
        });
        if is_full {
            page.pop();
        }
    }
    if let Some(gathered) = gathered.filter(|_| whole) {
        kept.keep(gathered);
    }
    let next = page.peek().filter(|_| behind > page.len() as u64).cloned();
    let entries = page.into_sorted_vec().into_iter();
    // What is gone since it was listed is left out.
    let entries = entries
        .filter_map(|one| look(&directory, one.name))
        .collect();
    Ok(EntryPage {
        entries,
        next,
        total,
        whole,
    })
}

/// What `path` leads to, a link itself.
pub(super) fn entry(top: &FolderTop, path: &FolderPath) -> Result<FolderEntry, FolderError> {
    let failed = || failed::<rustix::io::Errno>("look at a file of a folder", path);
    let stat = match path.is_top() {
        true => rustix::fs::fstat(top.directory(path)?),
        false => {
            let directory = top.directory(&path.parent())?;
            rustix::fs::statat(&directory, path.name(), AtFlags::SYMLINK_NOFOLLOW)
        }
    };
    Ok(described(path.name().to_vec(), &stat.map_err(failed())?))
}

pub(super) fn contains(name: &[u8], words: &str) -> bool {
    let name = String::from_utf8_lossy(name).to_lowercase();
    name.contains(words)
}

pub(super) fn is_directory(directory: &OwnedFd, told: FileType, name: &[u8]) -> bool {
    match told {
        FileType::Unknown => rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory),
        told => told == FileType::Directory,
    }
}

pub(super) fn look(directory: &OwnedFd, name: Vec<u8>) -> Option<FolderEntry> {
    let stat = rustix::fs::statat(directory, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW);
    Some(described(name, &stat.ok()?))
}

pub(super) fn described(name: Vec<u8>, stat: &Stat) -> FolderEntry {
    FolderEntry {
        name,
        kind: match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => FolderEntryKind::Directory,
            FileType::RegularFile => FolderEntryKind::File,
            FileType::Symlink => FolderEntryKind::Link,
            _ => FolderEntryKind::Other,
        },
        size: u64::try_from(stat.st_size).unwrap_or(0),
        modified_at: changed_at(stat),
    }
}

/// When the contents were changed last.
pub(super) fn changed_at(stat: &Stat) -> Timestamp {
    let millis = i64::try_from(stat.st_mtime_nsec).unwrap_or(0) / 1_000_000;
    let seconds: i64 = stat.st_mtime;
    Timestamp::from_millis(seconds.saturating_mul(1000).saturating_add(millis))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rules::names::FolderId;
    use uuid::Uuid;

    use super::super::sorted_names::KEPT_FROM;
    use super::*;
    use crate::folders::{FolderStore, mounted_directory};

    const ID: FolderId = FolderId(Uuid::from_u128(0xab));

    fn page(store: &FolderStore, after: Option<EntryPosition>, words: &str) -> EntryPage {
        let query = EntryQuery {
            after,
            words: words.to_owned(),
            limit: 100,
        };
        let top = FolderPath::default();
        store.list(ID, &top, &query).expect("a page")
    }

    #[test]
    fn a_directory_comes_in_pages_however_many_names_it_has() {
        let data = tempfile::tempdir().expect("a directory");
        let store = FolderStore::open(data.path()).expect("a store");
        store.create(ID, false, None).expect("made");
        let place = mounted_directory(data.path(), ID);
        let mut expected = Vec::new();
        for number in 0..30 {
            std::fs::create_dir(place.join(format!("d{number:03}"))).expect("made");
            expected.push(format!("d{number:03}"));
        }
        for number in 0..320 {
            std::fs::write(place.join(format!("F{number:03}")), "x").expect("written");
            expected.push(format!("F{number:03}"));
        }
        let (mut found, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let one = page(&store, after, "");
            assert_eq!((one.total, one.whole), (350, true));
            assert!(one.entries.len() <= 100);
            found.extend(one.entries.into_iter().map(|entry| entry.name));
            pages += 1;
            match one.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        let found: Vec<String> = found
            .into_iter()
            .map(|name| String::from_utf8(name).expect("text"))
            .collect();
        assert_eq!(found, expected);
        assert_eq!(pages, 4);
        let some = page(&store, None, "f31");
        assert_eq!((some.entries.len(), some.total), (10, 10));
        assert_eq!(some.next, None);
    }

    #[test]
    fn a_large_directory_is_kept_and_read_again_once_it_was_changed() {
        let data = tempfile::tempdir().expect("a directory");
        let store = FolderStore::open(data.path()).expect("a store");
        store.create(ID, false, None).expect("made");
        let place = mounted_directory(data.path(), ID);
        for number in 0..20 {
            std::fs::create_dir(place.join(format!("d{number:04}"))).expect("made");
        }
        for number in 0..KEPT_FROM {
            std::fs::write(place.join(format!("f{number:04}")), "").expect("written");
        }
        let through = |words: &str| {
            let (mut all, mut after) = (Vec::new(), None);
            loop {
                let one = page(&store, after, words);
                let total = usize::try_from(one.total).expect("a number");
                all.extend(one.entries.into_iter().map(|entry| entry.name));
                match one.next {
                    Some(next) => after = Some(next),
                    None => {
                        assert_eq!(all.len(), total, "{words}");
                        return all;
                    }
                }
            }
        };
        // Changed a moment ago, it is read each time.
        let (read, some) = (through(""), through("f00"));
        assert_eq!((read.len(), some.len()), (KEPT_FROM + 20, 100));
        let past = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
        let open = std::fs::File::open(&place).expect("a directory");
        open.set_modified(past).expect("set back");
        assert_eq!(through(""), read);
        // From here on it is kept.
        assert_eq!(through(""), read);
        assert_eq!(through("F00"), some);
        std::fs::write(place.join("f0000a"), "").expect("written");
        assert_eq!(through("").len(), KEPT_FROM + 21);
    }

    #[test]
    fn a_link_is_listed_and_never_followed() {
        let data = tempfile::tempdir().expect("a directory");
        let store = FolderStore::open(data.path()).expect("a store");
        store.create(ID, false, None).expect("made");
        let place = mounted_directory(data.path(), ID);
        std::fs::create_dir(place.join("inside")).expect("made");
        symlink("/", place.join("out")).expect("a link");
        symlink("inside", place.join("in")).expect("a link");
        let all = page(&store, None, "").entries;
        let kinds: Vec<FolderEntryKind> = all.iter().map(|entry| entry.kind).collect();
        assert_eq!(
            kinds,
            [
                FolderEntryKind::Directory,
                FolderEntryKind::Link,
                FolderEntryKind::Link
            ]
        );
        for path in ["out", "in", "out/etc", "in/x"] {
            let path = FolderPath::parse(path).expect("a path");
            let refused = store.list(ID, &path, &EntryQuery::default());
            let error = refused.expect_err("a link");
            assert!(
                matches!(
                    error.code(),
                    Some("folder.entry-link" | "folder.entry-not-found")
                ),
                "{path}: {error}"
            );
        }
    }
}
