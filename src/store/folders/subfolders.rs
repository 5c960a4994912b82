//! What each directory in a directory of a folder takes of the disk with all below it: counted when it is asked for, within a
//! bound of names and of time, and kept for a while with the time of the count. Never follows a link.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rules::folder_path::FolderPath;
use rules::names::FolderId;
use rules::units::Timestamp;
use rustix::fs::{AtFlags, Dir, FileType, Stat};

use super::beneath::FolderTop;
use super::failure::{FolderError, failed};
use super::names::DirectoryNames;

/// Names that one count looks at. Higher: a count takes the disk for longer. Lower: large trees are not counted to their end.
pub const MAX_COUNTED: u64 = 1_000_000;
/// How long one count takes at most, as `MAX_COUNTED`.
const COUNTING: Duration = Duration::from_secs(5);
/// Directories that are told of by name, the largest ones.
pub const MAX_SUBFOLDERS: usize = 200;
/// Bytes of memory that names and paths of a count take.
const NAMES: usize = 32 << 20;
/// How long a count is kept, in seconds. Longer: it says less of what there is now. Shorter: the disk is asked more often.
const KEPT_SECONDS: u64 = 600;
/// Counts that are kept. Higher: more memory. Lower: users who look through their folders count again.
const MAX_KEPT: usize = 64;

/// What is taken of the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskTaken {
    pub bytes: u64,
    /// Files, directories and links.
    pub entries: u64,
}

impl DiskTaken {
    fn add(&mut self, more: Self) {
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.entries = self.entries.saturating_add(more.entries);
    }
}

/// One directory of those in the directory that was counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subfolder {
    pub path: FolderPath,
    pub taken: DiskTaken,
}

/// One count of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubfolderCount {
    /// The largest ones, largest first.
    pub largest: Vec<Subfolder>,
    /// How many others there are, and what they take together.
    pub others: (u64, DiskTaken),
    /// What lies in the directory itself, its files and links.
    pub here: DiskTaken,
    /// False where the count ended before the tree did: then it is less than what is taken.
    pub whole: bool,
    pub at: Timestamp,
}

/// The counts that were made last, oldest first.
#[derive(Debug, Default)]
pub(super) struct KeptCounts(Mutex<VecDeque<KeptCount>>);

#[derive(Debug)]
struct KeptCount {
    folder: FolderId,
    path: FolderPath,
    count: Arc<SubfolderCount>,
}

impl KeptCounts {
    /// A count that is young enough.
    pub(super) fn find(
        &self,
        folder: FolderId,
        path: &FolderPath,
        now: Timestamp,
    ) -> Option<Arc<SubfolderCount>> {
        let all = self.all();
        let mut latest = all.iter().rev();
        let found = latest.find(|one| one.folder == folder && one.path == *path)?;
        let is_young = now.seconds_since(found.count.at) < KEPT_SECONDS;
        is_young.then(|| Arc::clone(&found.count))
    }

    pub(super) fn keep(&self, folder: FolderId, path: &FolderPath, count: Arc<SubfolderCount>) {
        let mut all = self.all();
        all.retain(|one| one.folder != folder || one.path != *path);
        if all.len() >= MAX_KEPT {
            all.pop_front();
        }
        all.push_back(KeptCount {
            folder,
            path: path.clone(),
            count,
        });
    }

    fn all(&self) -> MutexGuard<'_, VecDeque<KeptCount>> {
        // Whole after every step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is left of the bounds of one count.
struct Counting<'a> {
    top: &'a FolderTop,
    begun: Instant,
    looked: u64,
    whole: bool,
}

impl Counting<'_> {
    fn is_over(&mut self) -> bool {
        let is_over = self.looked >= MAX_COUNTED || self.begun.elapsed() >= COUNTING;
        self.whole &= !is_over;
        is_over
    }

    /// Adds up one directory, itself included, and gives the paths of those in it.
    fn directory(&mut self, path: &FolderPath, taken: &mut DiskTaken) -> Vec<FolderPath> {
        let mut below = Vec::new();
        let directory = match self.top.directory(path) {
            Ok(directory) => directory,
            Err(error) => {
                // What is gone meanwhile is no part of the tree any more.
                self.whole &= error.code().is_some();
                return below;
            }
        };
        if let Ok(stat) = rustix::fs::fstat(&directory) {
            taken.add(of(&stat));
        }
        let Ok(mut names) = Dir::read_from(&directory) else {
            self.whole = false;
            return below;
        };
        let mut memory = 0;
        while let Some(entry) = names.read() {
            let Ok(entry) = entry else {
                self.whole = false;
                break;
            };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            if self.is_over() {
                break;
            }
            self.looked += 1;
            let Ok(stat) = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
                taken.add(of(&stat));
                continue;
            }
            match path.child(name) {
                Some(path) if memory < NAMES => {
                    memory += path.as_bytes().len() + size_of::<FolderPath>();
                    below.push(path);
                }
                _ => self.whole = false,
            }
        }
        below
    }

    /// Adds up a directory with all below it.
    fn tree(&mut self, path: &FolderPath) -> DiskTaken {
        let mut taken = DiskTaken::default();
        let mut waiting = vec![path.clone()];
        let mut memory = 0;
        while let Some(path) = waiting.pop() {
            if self.is_over() {
                break;
            }
            memory -= path.as_bytes().len().min(memory);
            for below in self.directory(&path, &mut taken) {
                match memory < NAMES {
                    true => {
                        memory += below.as_bytes().len();
                        waiting.push(below);
                    }
                    false => self.whole = false,
                }
            }
        }
        taken
    }
}

/// Costs a look at each name below, up to the bound.
pub(super) fn count(
    top: &FolderTop,
    base: &FolderPath,
    now: Timestamp,
) -> Result<SubfolderCount, FolderError> {
    let names = DirectoryNames::read(top, base, NAMES)?;
    let directory = top.directory(base)?;
    let mut counting = Counting {
        top,
        begun: Instant::now(),
        looked: 0,
        whole: names.whole,
    };
    let mut count = SubfolderCount {
        largest: Vec::new(),
        others: (0, DiskTaken::default()),
        here: DiskTaken::default(),
        whole: true,
        at: now,
    };
    let stat = rustix::fs::fstat(&directory);
    let own = stat.map_err(failed("count a directory of a folder", base))?;
    count.here.bytes = of(&own).bytes;
    for number in 0..names.count() {
        if counting.is_over() {
            break;
        }
        let (name, is_directory) = names.get(number);
        let Some(path) = base.child(name) else {
            counting.whole = false;
            continue;
        };
        if !is_directory {
            counting.looked += 1;
            let stat = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW);
            if let Ok(stat) = stat {
                count.here.add(of(&stat));
            }
            continue;
        }
        let taken = counting.tree(&path);
        count.largest.push(Subfolder { path, taken });
        if count.largest.len() >= 2 * MAX_SUBFOLDERS {
            keep_largest(&mut count);
        }
    }
    keep_largest(&mut count);
    count.whole = counting.whole;
    Ok(count)
}

fn keep_largest(count: &mut SubfolderCount) {
    let all = &mut count.largest;
    all.sort_unstable_by(|one, other| {
        let sizes = other.taken.bytes.cmp(&one.taken.bytes);
        sizes.then_with(|| one.path.cmp(&other.path))
    });
    for one in all.drain(MAX_SUBFOLDERS.min(all.len())..) {
        count.others.0 += 1;
        count.others.1.add(one.taken);
    }
}

fn of(stat: &Stat) -> DiskTaken {
    let blocks = u64::try_from(stat.st_blocks).unwrap_or(0);
    DiskTaken {
        bytes: blocks.saturating_mul(512),
        entries: 1,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use uuid::Uuid;

    use super::*;
    use crate::folders::{FolderStore, mounted_directory};

    const ID: FolderId = FolderId(Uuid::from_u128(0xab));

    #[test]
    fn each_directory_is_counted_with_all_below_it_and_no_link_is_followed() {
        let data = tempfile::tempdir().expect("a directory");
        let store = FolderStore::open(data.path()).expect("a store");
        store.create(ID, false, None).expect("made");
        let place = mounted_directory(data.path(), ID);
        fs::create_dir_all(place.join("large/deep/er")).expect("made");
        fs::create_dir(place.join("small")).expect("made");
        fs::write(place.join("large/deep/er/a"), vec![1; 300_000]).expect("written");
        fs::write(place.join("small/b"), vec![1; 5000]).expect("written");
        fs::write(place.join("c"), vec![1; 5000]).expect("written");
        symlink("/", place.join("small/out")).expect("a link");
        let now = Timestamp::from_millis(4_000_000_000_000);
        let top = FolderPath::default();
        let first = store.subfolders(ID, &top, now, false).expect("counted");
        let names: Vec<String> = first
            .largest
            .iter()
            .map(|one| one.path.to_string())
            .collect();
        assert_eq!(names, ["large", "small"]);
        assert!(first.whole && first.largest[0].taken.bytes >= 300_000);
        assert_eq!(first.largest[0].taken.entries, 4);
        assert_eq!(first.largest[1].taken.entries, 3);
        assert_eq!((first.here.entries, first.others.0), (1, 0));
        fs::write(place.join("d"), vec![1; 5000]).expect("written");
        let soon = now.plus_seconds(60);
        let kept = store.subfolders(ID, &top, soon, false).expect("kept");
        assert_eq!((kept.at, kept.here.entries), (now, 1));
        let fresh = store.subfolders(ID, &top, soon, true).expect("counted");
        assert_eq!((fresh.at, fresh.here.entries), (soon, 2));
        let later = soon.plus_seconds(KEPT_SECONDS);
        let again = store.subfolders(ID, &top, later, false).expect("counted");
        assert_eq!(again.at, later);
        let small = FolderPath::parse("small").expect("a path");
        store.subfolders(ID, &small, later, false).expect("counted");
        fs::remove_dir_all(place.join("small")).expect("removed");
        let gone = store.subfolders(ID, &small, later, false);
        let gone = gone.expect_err("no count of what is gone");
        assert_eq!(gone.code(), Some("folder.entry-not-found"));
    }
}
