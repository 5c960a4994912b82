//! Removes and measures trees that strangers wrote: as deep, as wide and as hostile as they please. Never
//! recurses, never follows a link, never leaves the file system, and keeps few directories open however deep
//! a tree is. A caller that must not wait throws a tree away first, which is one rename, and has it removed by a
//! thread that no caller waits for.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsStr};
use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Dir, DirEntry, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use uuid::Uuid;

/// Directories of one tree that are open at once while it is removed. What lies deeper is first moved up to
/// the tree's own root. More: a deep tree takes descriptors from the whole server. Fewer: an ordinary tree is
/// moved about before it goes.
pub const MAX_OPEN_DIRECTORIES: usize = 16;
/// How long trees that no caller waits for are removed at a stretch, and how long the disk is then left to others. A longer
/// stretch or a shorter rest: a session that writes waits behind the removal of a million names. A shorter stretch or a longer
/// rest: room comes back later.
const STRETCH: Duration = Duration::from_millis(20);
const REST: Duration = Duration::from_millis(10);

/// Removes whatever is at `path`: a file, a link (never what it leads to), or a directory with everything
/// below it, whatever its depth and its permissions. Fine where there is nothing.
///
/// Opens at most `MAX_OPEN_DIRECTORIES` directories and needs no stack that grows. Errors: what the kernel says of the
/// first thing that cannot be removed, such as a mount; the rest is removed all the same.
pub fn remove(path: &Path) -> io::Result<()> {
    remove_while(path, &|| true)
}

/// The same for as long as `go_on` says so, which is asked at each name: a program that still stands in a tree may fill it
/// faster than it is emptied.
///
/// Errors: as `remove`; `TimedOut` where it was given up.
pub fn remove_while(path: &Path, go_on: &dyn Fn() -> bool) -> io::Result<()> {
    let (above, name) = match place(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    match rustix::fs::unlinkat(&above, &name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    let root = match open(above.as_fd(), &name) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    let device = rustix::fs::fstat(&root)?.st_dev;
    loop {
        let mut pass = Pass {
            root: root.as_fd(),
            device,
            gone: 0,
            failure: None,
            go_on,
        };
        pass.empty()?;
        match rustix::fs::unlinkat(&above, &name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(_) if !go_on() => return Err(io::ErrorKind::TimedOut.into()),
            // What was moved up waits there; what appeared meanwhile is seen by the next pass too.
            Err(Errno::NOTEMPTY | Errno::EXIST) if pass.gone > 0 => {}
            Err(error) => return Err(pass.failure.unwrap_or(error).into()),
        }
    }
}

/// For `remove_while` of what no caller waits for: the same answers as `go_on`, with a rest after each stretch, so that others
/// come to the disk. A removal takes three parts of the time instead of two.
pub fn with_rests<'a>(go_on: &'a dyn Fn() -> bool) -> impl Fn() -> bool + 'a {
    let begun = Cell::new(Instant::now());
    move || {
        if begun.get().elapsed() >= STRETCH {
            std::thread::sleep(REST);
            begun.set(Instant::now());
        }
        go_on()
    }
}

/// One way down through a tree, taking everything that lies no deeper than `MAX_OPEN_DIRECTORIES`.
struct Pass<'a> {
    root: BorrowedFd<'a>,
    device: u64,
    /// Names that were removed or moved up.
    gone: u64,
    /// What the kernel said of the first one that stays.
    failure: Option<Errno>,
    go_on: &'a dyn Fn() -> bool,
}

impl Pass<'_> {
    fn empty(&mut self) -> io::Result<()> {
        let mut levels: Vec<(Dir, CString)> =
            vec![(Dir::read_from(self.root)?, CString::default())];
        while (self.go_on)() {
            let depth = levels.len();
            let Some((directory, _)) = levels.last_mut() else {
                break;
            };
            match next(directory)? {
                Some(entry) => {
                    let here = directory.fd()?;
                    if let Some(below) = self.take(here, &entry, depth) {
                        levels.push((Dir::new(below)?, entry.file_name().to_owned()));
                    }
                }
                None => {
                    let emptied = levels.pop();
                    if let (Some((_, name)), Some((above, _))) = (emptied, levels.last()) {
                        let gone = rustix::fs::unlinkat(above.fd()?, &name, AtFlags::REMOVEDIR);
                        self.count(gone);
                    }
                }
            }
        }
        Ok(())
    }

    /// Removes one name; gives it opened where it is a directory that has to be emptied first.
    fn take(&mut self, here: BorrowedFd<'_>, entry: &DirEntry, depth: usize) -> Option<OwnedFd> {
        let name = entry.file_name();
        let is_directory = match entry.file_type() {
            FileType::Directory => true,
            FileType::Unknown => rustix::fs::statat(here, name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory),
            _ => false,
        };
        if !is_directory {
            self.count(rustix::fs::unlinkat(here, name, AtFlags::empty()));
            return None;
        }
        match rustix::fs::unlinkat(here, name, AtFlags::REMOVEDIR) {
            // Its owner may have forbidden himself to look into it; then opening says so.
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            done => {
                self.count(done);
                return None;
            }
        }
        let below = match open(here, name) {
            Ok(below) => below,
            Err(error) => {
                self.count(Err(error));
                return None;
            }
        };
        match rustix::fs::fstat(&below) {
            Ok(stat) if stat.st_dev == self.device => {}
            _ => {
                self.count(Err(Errno::XDEV));
                return None;
            }
        }
        if depth < MAX_OPEN_DIRECTORIES {
            return Some(below);
        }
        // A name that cannot have been used before.
        let up = format!(".{}", Uuid::now_v7().simple());
        let moved = rustix::fs::renameat_with(here, name, self.root, &up, RenameFlags::NOREPLACE);
        self.count(moved);
        None
    }

    fn count(&mut self, done: Result<(), Errno>) {
        match done {
            Ok(()) => self.gone += 1,
            Err(Errno::NOENT) => {}
            Err(error) => {
                self.failure.get_or_insert(error);
            }
        }
    }
}

/// Where trees lie that are needed no more, until a thread removes them.
#[derive(Debug)]
pub struct Trash {
    place: PathBuf,
    in_place: Mutex<InPlace>,
}

/// What could not be moved into the trash.
#[derive(Debug, Default)]
struct InPlace {
    waiting: BTreeSet<PathBuf>,
    /// Being removed at this moment: its name is not free.
    removing: Option<PathBuf>,
}

/// What became of a tree that was thrown away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thrown {
    /// There was none.
    Nothing,
    /// Its name is free; it lies in the trash.
    Away,
    /// It has its name until `empty` has removed it where it lies.
    Stays,
}

impl Trash {
    /// The trash at `place`, made where it is missing. It has to be on the file system of what will be thrown
    /// into it.
    pub fn open(place: &Path) -> io::Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(place)?;
        Ok(Self {
            place: place.to_owned(),
            in_place: Mutex::default(),
        })
    }

    /// Takes the entry at `path` away from there. Costs one rename, however much lies below. On another file
    /// system than the trash, or where the disk has no room for one more name, it stays until `empty` has
    /// removed it: to be thrown again by then. Errors: what the kernel says of the rename otherwise.
    pub fn throw(&self, path: &Path) -> io::Result<Thrown> {
        let into = self.place.join(Uuid::now_v7().simple().to_string());
        // Held over the rename: once a name is said to be free, nothing below it is removed any more.
        let mut in_place = self.in_place();
        if in_place.removing.as_deref() == Some(path) {
            return Ok(Thrown::Stays);
        }
        let thrown = match std::fs::rename(path, into) {
            Ok(()) => Thrown::Away,
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound => Thrown::Nothing,
                io::ErrorKind::CrossesDevices
                | io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded => {
                    // The kernel finds out that file systems differ before it looks for the name.
                    match path.symlink_metadata() {
                        Err(error) if error.kind() == io::ErrorKind::NotFound => Thrown::Nothing,
                        _ => Thrown::Stays,
                    }
                }
                _ => return Err(error),
            },
        };
        match thrown {
            Thrown::Stays => in_place.waiting.insert(path.to_owned()),
            Thrown::Nothing | Thrown::Away => in_place.waiting.remove(path),
        };
        Ok(thrown)
    }

    /// The next tree to be removed where it lies; None when there is none.
    fn next_in_place(&self) -> Option<PathBuf> {
        let mut in_place = self.in_place();
        in_place.removing = in_place.waiting.pop_first();
        in_place.removing.clone()
    }

    fn in_place(&self) -> MutexGuard<'_, InPlace> {
        // Changed in one step each; a panic elsewhere leaves nothing half done.
        self.in_place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes everything that was thrown away until now, what lies in the trash first and oldest first, and
    /// gives what could not be removed with the reason; `go_on` is asked between two trees. One thread at a
    /// time. Takes about 30 µs for a file, of which a third is rest.
    pub fn empty(&self, go_on: impl Fn() -> bool) -> io::Result<BTreeMap<PathBuf, io::Error>> {
        let mut kept = BTreeMap::new();
        let mut names: Vec<_> = std::fs::read_dir(&self.place)?
            .flatten()
            .map(|entry| entry.path())
            .collect();
        names.sort();
        let mut names = names.into_iter();
        while go_on() {
            let Some(path) = names.next().or_else(|| self.next_in_place()) else {
                break;
            };
            if let Err(error) = remove_while(&path, &with_rests(&|| true))
                // Another process empties the same trash.
                && error.kind() != io::ErrorKind::NotFound
            {
                kept.insert(path, error);
            }
        }
        self.in_place().removing = None;
        Ok(kept)
    }
}

/// What a tree takes of its disk.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Bytes of the blocks that are given to it; a file with two names counts twice.
    pub bytes: u64,
    /// Names in it.
    pub entries: u64,
    /// False where something was not looked at: there was more than allowed, or directories were moved
    /// about under our feet. What was counted is there nevertheless.
    pub whole: bool,
}

/// Measures the tree at `path`, looking at no more than `most` names; nothing where there is none.
///
/// Keeps one directory open however deep it goes, and the names of directories still to be seen, at most
/// `most` of them. Costs about a microsecond a name that is in memory.
pub fn measure(path: &Path, most: u64) -> io::Result<Size> {
    let mut size = Size {
        whole: true,
        ..Size::default()
    };
    let (above, name) = place(path)?;
    let mut here = match rustix::fs::openat(&above, &name, DIRECTORY, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(size),
        opened => opened?,
    };
    let root = rustix::fs::fstat(&here)?;
    let same = |one: &Stat, other: &Stat| (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino);
    // For each level above: which directory it is, and what is still to be seen in it.
    let mut levels: Vec<(Stat, Vec<CString>)> = Vec::new();
    let mut current = root;
    let mut below = list(&here, &current, most, &mut size)?;
    loop {
        if size.entries >= most {
            size.whole = false;
            return Ok(size);
        }
        if let Some(name) = below.pop() {
            let opened = rustix::fs::openat(&here, &name, DIRECTORY, Mode::empty());
            match opened.and_then(|opened| Ok((rustix::fs::fstat(&opened)?, opened))) {
                Ok((stat, opened)) if stat.st_dev == root.st_dev => {
                    let names = list(&opened, &stat, most, &mut size)?;
                    levels.push((current, std::mem::replace(&mut below, names)));
                    (here, current) = (opened, stat);
                }
                // Another file system is not this tree's.
                Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(_) => size.whole = false,
            }
            continue;
        }
        let Some((above, names)) = levels.pop() else {
            return Ok(size);
        };
        here = rustix::fs::openat(&here, "..", DIRECTORY, Mode::empty())?;
        if !same(&rustix::fs::fstat(&here)?, &above) {
            size.whole = false;
            return Ok(size);
        }
        (current, below) = (above, names);
    }
}

/// Adds up what is in one directory, itself included; gives the names of those in it.
fn list(directory: &OwnedFd, own: &Stat, most: u64, size: &mut Size) -> io::Result<Vec<CString>> {
    let mut below = Vec::new();
    size.bytes += blocks(own);
    let mut names = Dir::read_from(directory)?;
    while let Some(entry) = next(&mut names)? {
        if size.entries >= most {
            size.whole = false;
            break;
        }
        size.entries += 1;
        let name = entry.file_name();
        if entry.file_type() == FileType::Directory {
            below.push(name.to_owned());
            continue;
        }
        let Ok(stat) = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => below.push(name.to_owned()),
            _ => size.bytes += blocks(&stat),
        }
    }
    Ok(below)
}

fn blocks(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks)
        .unwrap_or(0)
        .saturating_mul(512)
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// A directory that is to go, also one whose owner forbade everybody to look into it.
fn open(above: BorrowedFd<'_>, name: &std::ffi::CStr) -> Result<OwnedFd, Errno> {
    match rustix::fs::openat(above, name, DIRECTORY, Mode::empty()) {
        Err(Errno::ACCESS) => {
            rustix::fs::chmodat(above, name, Mode::RWXU, AtFlags::empty())?;
            rustix::fs::openat(above, name, DIRECTORY, Mode::empty())
        }
        opened => opened,
    }
}

/// The directory that a path lies in, opened, and its name there.
fn place(path: &Path) -> io::Result<(OwnedFd, CString)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let above = match path.parent() {
        Some(above) if above != Path::new("") => above,
        _ => Path::new("."),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = rustix::fs::openat(CWD, above, flags, Mode::empty())?;
    Ok((above, CString::new(OsStr::as_bytes(name))?))
}

/// The next entry but `.` and `..`; nothing at the end.
fn next(directory: &mut Dir) -> io::Result<Option<DirEntry>> {
    loop {
        match directory.read().transpose()? {
            Some(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
            entry => return Ok(entry),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Deeper than any stack that recursion may have: the session that found the fault made 25,000.
    const DEEP: usize = 30_000;

    /// In memory where that is offered: some disks take their time for each block that is freed.
    fn bench() -> tempfile::TempDir {
        tempfile::tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .unwrap()
    }

    /// A chain of directories, one in the other, with a file in each.
    fn chain(root: &Path, depth: usize) {
        fs::create_dir(root).unwrap();
        let mut here = rustix::fs::open(root, DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..depth {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
            rustix::fs::openat(&here, "f", flags, Mode::RUSR).unwrap();
            rustix::fs::mkdirat(&here, "d", Mode::RWXU).unwrap();
            here = rustix::fs::openat(&here, "d", DIRECTORY, Mode::empty()).unwrap();
        }
    }

    /// On a stack and with descriptors that no recursion would do with.
    fn small(work: impl FnOnce() + Send) {
        std::thread::scope(|scope| {
            std::thread::Builder::new()
                .stack_size(128 << 10)
                .spawn_scoped(scope, work)
                .unwrap()
                .join()
                .unwrap();
        });
    }

    #[test]
    fn nothing_is_removed_where_there_is_nothing() {
        let bench = bench();
        remove(&bench.path().join("missing")).unwrap();
        remove(&bench.path().join("missing/too")).unwrap();
    }

    #[test]
    fn a_tree_of_thirty_thousand_levels_is_measured_and_removed_on_a_small_stack() {
        let bench = bench();
        let root = bench.path().join("deep");
        chain(&root, DEEP);
        small(|| {
            let size = measure(&root, u64::MAX).unwrap();
            assert_eq!((size.entries, size.whole), (2 * DEEP as u64, true));
            let size = measure(&root, 1000).unwrap();
            assert_eq!((size.entries, size.whole), (1000, false));
            remove(&root).unwrap();
        });
        assert!(!root.exists());
    }

    #[test]
    fn no_more_than_a_few_directories_are_open_at_any_depth() {
        let bench = bench();
        let root = bench.path().join("deep");
        chain(&root, 400);
        let open = |root: &Path| {
            let folder = fs::read_dir("/proc/self/fd").unwrap();
            let mut paths = folder
                .flatten()
                .filter_map(|fd| fs::read_link(fd.path()).ok());
            paths.by_ref().filter(|path| path.starts_with(root)).count()
        };
        let done = std::sync::atomic::AtomicBool::new(false);
        let mut most = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..20 {
                    measure(&root, u64::MAX).unwrap();
                }
                remove(&root).unwrap();
                done.store(true, std::sync::atomic::Ordering::SeqCst);
            });
            while !done.load(std::sync::atomic::Ordering::SeqCst) {
                most = most.max(open(&root));
            }
        });
        assert!(most <= MAX_OPEN_DIRECTORIES + 4, "{most} open");
    }

    #[test]
    fn a_removal_is_given_up_in_the_middle_and_gone_on_with() {
        let bench = bench();
        let root = bench.path().join("tree");
        chain(&root, 50);
        let asked = std::cell::Cell::new(0);
        let go_on = || {
            asked.set(asked.get() + 1);
            asked.get() < 10
        };
        let given_up = remove_while(&root, &go_on).unwrap_err();
        assert_eq!(given_up.kind(), io::ErrorKind::TimedOut);
        assert!(root.exists() && asked.get() < 20);
        remove(&root).unwrap();
        assert!(!root.exists());
    }

    #[test]
    fn a_removal_that_no_caller_waits_for_rests_between_stretches() {
        let asked = Cell::new(0);
        let own = || {
            asked.set(asked.get() + 1);
            asked.get() < 1_000_000_000
        };
        let go_on = with_rests(&own);
        let (since, mut rests) = (Instant::now(), 0);
        while since.elapsed() < 4 * (STRETCH + REST) {
            let before = Instant::now();
            assert!(go_on());
            rests += usize::from(before.elapsed() >= REST);
        }
        assert!(
            rests > 0 && asked.get() > rests,
            "{rests} of {}",
            asked.get()
        );
        let no_more = || false;
        assert!(!with_rests(&no_more)(), "what is asked is answered");
    }

    #[test]
    fn links_are_removed_and_never_followed() {
        let bench = bench();
        let (root, kept) = (bench.path().join("tree"), bench.path().join("kept"));
        fs::create_dir_all(root.join("in")).unwrap();
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "here").unwrap();
        std::os::unix::fs::symlink(&kept, root.join("in/link")).unwrap();
        std::os::unix::fs::symlink("/no/such/place", root.join("dangling")).unwrap();
        let size = measure(&root, 100).unwrap();
        assert_eq!((size.entries, size.whole), (3, true));
        remove(&root).unwrap();
        assert!(!root.exists());
        assert_eq!(fs::read_to_string(kept.join("file")).unwrap(), "here");
        let link = bench.path().join("outer");
        std::os::unix::fs::symlink(&kept, &link).unwrap();
        remove(&link).unwrap();
        assert!(link.symlink_metadata().is_err() && kept.exists());
        remove(&link).expect("nothing is there any more");
    }

    #[test]
    fn a_directory_that_its_owner_closed_is_removed_with_what_is_in_it() {
        use std::os::unix::fs::PermissionsExt;
        let bench = bench();
        let root = bench.path().join("tree");
        fs::create_dir_all(root.join("closed/in")).unwrap();
        fs::set_permissions(root.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
        remove(&root).unwrap();
        assert!(!root.exists());
    }

    #[test]
    fn a_wide_and_deep_tree_goes_whole_also_where_names_look_like_ours() {
        let bench = bench();
        let root = bench.path().join("tree");
        fs::create_dir(&root).unwrap();
        for number in 0..40 {
            chain(&root.join(format!(".{number}")), 40);
            fs::write(root.join(format!("file-{number}")), "x").unwrap();
        }
        remove(&root).unwrap();
        assert!(!root.exists());
    }

    #[test]
    fn what_is_thrown_away_is_gone_at_once_and_removed_later() {
        let bench = bench();
        let trash = Trash::open(&bench.path().join("trash")).unwrap();
        let tree = bench.path().join("tree");
        chain(&tree, 50);
        assert_eq!(trash.throw(&tree).unwrap(), Thrown::Away);
        assert!(!tree.exists());
        assert_eq!(trash.throw(&tree).unwrap(), Thrown::Nothing);
        fs::write(&tree, "of the same name").unwrap();
        assert_eq!(trash.throw(&tree).unwrap(), Thrown::Away);
        let lie = || fs::read_dir(bench.path().join("trash")).unwrap().count();
        assert_eq!(lie(), 2);
        assert!(trash.empty(|| false).unwrap().is_empty());
        assert_eq!(lie(), 2, "nobody had time");
        assert!(trash.empty(|| true).unwrap().is_empty());
        assert_eq!(lie(), 0);
    }
    #[test]
    fn a_tree_on_another_file_system_stays_until_the_trash_is_emptied() {
        const NAME: &str = "a_tree_on_another_file_system_stays_until_the_trash_is_emptied";
        use std::os::unix::fs::MetadataExt;
        let here = tempfile::tempdir().unwrap();
        let Ok(there) = tempfile::tempdir_in("/dev/shm") else {
            return skips::skip(NAME, "there is no /dev/shm");
        };
        let device = |folder: &tempfile::TempDir| fs::metadata(folder.path()).unwrap().dev();
        if device(&here) == device(&there) {
            return skips::skip(NAME, "/dev/shm is no file system of its own");
        }
        let trash = Trash::open(&here.path().join("trash")).unwrap();
        let tree = there.path().join("tree");
        chain(&tree, 50);
        assert_eq!(trash.throw(&tree).unwrap(), Thrown::Stays);
        assert!(tree.join("d/d/f").exists(), "nothing of it is removed yet");
        assert_eq!(trash.throw(&tree).unwrap(), Thrown::Stays, "asked again");
        assert!(trash.empty(|| true).unwrap().is_empty());
        assert_eq!(trash.throw(&tree).unwrap(), Thrown::Nothing);
        // Of the same name, and not thrown.
        fs::create_dir(&tree).unwrap();
        assert!(trash.empty(|| true).unwrap().is_empty());
        assert!(tree.exists());
    }
}
