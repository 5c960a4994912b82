//! The names of a large directory in their order, kept for a while: the next page of it then costs no look at the whole
//! directory. One that was changed since is read again. Never opens a file.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::Stat;

use super::position::EntryPosition;

/// Names from which on a directory is kept: smaller ones are read as quickly.
pub(super) const KEPT_FROM: usize = 2_000;
/// Bytes of all names that are kept. Higher: more memory. Lower: fewer users look through large directories at once.
const MAX_KEPT_BYTES: usize = 64 << 20;
/// How long a directory is kept that no page is asked of.
const KEPT: Duration = Duration::from_secs(60);
/// A directory that was changed this lately may be changed again in the same tick of the kernel's clock, which its version
/// would not tell.
const SETTLED: Duration = Duration::from_secs(2);

/// Whether a name is asked for.
pub(super) type NameFilter<'f> = &'f dyn Fn(&[u8]) -> bool;

/// One version of one directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DirectoryVersion {
    device: u64,
    inode: u64,
    modified: (i64, u64),
    changed: (i64, u64),
}

impl DirectoryVersion {
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// Whether a further change would make another version.
    fn is_settled(&self) -> bool {
        let seconds = u64::try_from(self.modified.0).unwrap_or(0);
        let at = UNIX_EPOCH + Duration::from_secs(seconds);
        SystemTime::now()
            .duration_since(at)
            .is_ok_and(|age| age > SETTLED)
    }
}

/// The names of one directory: directories first, then all else, each in the order of their bytes.
#[derive(Debug, Default)]
pub(super) struct SortedNames {
    bytes: Vec<u8>,
    /// Begin and length of each name.
    places: Vec<(u32, u32)>,
    /// How many of the first are directories.
    directories: usize,
}

/// What a page is made of.
pub(super) struct SortedPage {
    pub(super) names: Vec<EntryPosition>,
    pub(super) has_more: bool,
    pub(super) total: u64,
}

impl SortedNames {
    fn name(&self, at: usize) -> &[u8] {
        let (begin, length) = self.places[at];
        &self.bytes[begin as usize..begin as usize + length as usize]
    }

    fn position(&self, at: usize) -> EntryPosition {
        EntryPosition {
            is_behind: at >= self.directories,
            name: self.name(at).to_vec(),
        }
    }

    /// The number of the first name behind a position.
    fn behind(&self, after: Option<&EntryPosition>) -> usize {
        let Some(after) = after else {
            return 0;
        };
        let (begin, end) = match after.is_behind {
            true => (self.directories, self.places.len()),
            false => (0, self.directories),
        };
        let group = &self.places[begin..end];
        let is_before = |(at, length): &(u32, u32)| {
            let name = &self.bytes[*at as usize..*at as usize + *length as usize];
            name <= after.name.as_slice()
        };
        begin + group.partition_point(is_before)
    }

    /// The names behind `after` for which `fits` holds, at most `limit`, and how many there are on all pages.
    pub(super) fn page(
        &self,
        after: Option<&EntryPosition>,
        limit: usize,
        fits: Option<NameFilter<'_>>,
    ) -> SortedPage {
        let begin = self.behind(after);
        let all = self.places.len();
        let Some(fits) = fits else {
            let end = all.min(begin.saturating_add(limit));
            return SortedPage {
                names: (begin..end).map(|at| self.position(at)).collect(),
                has_more: end < all,
                total: all as u64,
            };
        };
        let (mut names, mut total, mut has_more) = (Vec::new(), 0, false);
        for at in (0..all).filter(|at| fits(self.name(*at))) {
            total += 1;
            if at < begin {
                continue;
            }
            match names.len() < limit {
                true => names.push(self.position(at)),
                false => has_more = true,
            }
        }
        SortedPage {
            names,
            has_more,
            total,
        }
    }
}

/// The directories that are kept, the one that was asked for last at the end.
#[derive(Debug, Default)]
pub(super) struct KeptListings {
    kept: Mutex<Vec<KeptListing>>,
    /// Held while one is gathered: two at once would take twice the memory.
    gathering: Mutex<()>,
}

#[derive(Debug)]
struct KeptListing {
    version: DirectoryVersion,
    names: Arc<SortedNames>,
    used: Instant,
}

/// The names of a directory while it is read.
pub(super) struct GatheredNames<'a> {
    _alone: MutexGuard<'a, ()>,
    version: DirectoryVersion,
    bytes: Vec<u8>,
    /// Whether it is no directory, begin and length of each name.
    places: Vec<(bool, u32, u32)>,
    /// False once there are more than are kept.
    fits: bool,
}

impl KeptListings {
    /// The names of this version of a directory, where they are kept.
    pub(super) fn find(&self, version: DirectoryVersion) -> Option<Arc<SortedNames>> {
        let mut kept = self.kept();
        drop_old(&mut kept);
        let at = kept.iter().position(|one| one.version == version)?;
        let mut found = kept.remove(at);
        found.used = Instant::now();
        let names = Arc::clone(&found.names);
        kept.push(found);
        Some(names)
    }

    /// Begins to gather the names of a directory that is being read; None where others are being gathered, or where it was
    /// changed too lately to be kept.
    pub(super) fn gather(&self, version: DirectoryVersion) -> Option<GatheredNames<'_>> {
        let alone = match self.gathering.try_lock() {
            Ok(alone) => alone,
            // It guards nothing that a panic could leave half done.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        version.is_settled().then(|| GatheredNames {
            _alone: alone,
            version,
            bytes: Vec::new(),
            places: Vec::new(),
            fits: true,
        })
    }

    /// Keeps what was gathered, where it is worth it.
    pub(super) fn keep(&self, gathered: GatheredNames<'_>) {
        let GatheredNames {
            version,
            bytes,
            mut places,
            fits,
            ..
        } = gathered;
        if !fits || places.len() < KEPT_FROM {
            return;
        }
        let name = |at: u32, length: u32| &bytes[at as usize..at as usize + length as usize];
        places.sort_unstable_by(|one, other| {
            (one.0, name(one.1, one.2)).cmp(&(other.0, name(other.1, other.2)))
        });
        let directories = places.partition_point(|(is_behind, _, _)| !is_behind);
        let places = places.into_iter().map(|(_, at, length)| (at, length));
        let names = SortedNames {
            places: places.collect(),
            bytes,
            directories,
        };
        let mut kept = self.kept();
        drop_old(&mut kept);
        kept.push(KeptListing {
            version,
            names: Arc::new(names),
            used: Instant::now(),
        });
        let size = |one: &KeptListing| memory(one.names.bytes.len(), one.names.places.len());
        while kept.iter().map(size).sum::<usize>() > MAX_KEPT_BYTES && kept.len() > 1 {
            kept.remove(0);
        }
    }

    /// Forgets those that no page is asked of.
    pub(super) fn forget_old(&self) {
        drop_old(&mut self.kept());
    }

    fn kept(&self) -> MutexGuard<'_, Vec<KeptListing>> {
        // Whole after every step.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GatheredNames<'_> {
    pub(super) fn add(&mut self, is_behind: bool, name: &[u8]) {
        if !self.fits {
            return;
        }
        let more = memory(self.bytes.len() + name.len(), self.places.len() + 1);
        let place = (u32::try_from(self.bytes.len()), u32::try_from(name.len()));
        match place {
            (Ok(at), Ok(length)) if more <= MAX_KEPT_BYTES => {
                self.bytes.extend_from_slice(name);
                self.places.push((is_behind, at, length));
            }
            _ => {
                self.fits = false;
                self.bytes = Vec::new();
                self.places = Vec::new();
            }
        }
    }
}

fn drop_old(kept: &mut Vec<KeptListing>) {
    kept.retain(|one| one.used.elapsed() < KEPT);
}

/// Bytes that so many names take, of so many bytes together.
fn memory(bytes: usize, names: usize) -> usize {
    bytes.saturating_add(names.saturating_mul(size_of::<(u32, u32)>()))
}
