//! What was removed from a folder by its owner: kept beside the folder's files, each with the path that it had, until it is
//! restored, or removed for good. Moving it there is one rename, however large it is.
//!
//! On disk, in `trash` of the folder: `<item>/meta.json` (what path it had, and since when it is there) and `<item>/what`. One
//! without `what` is what a crash left. `gone-<item>` waits for its room to be given back.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rules::folder_path::{FolderEntryKind, FolderPath};
use rules::refusals;
use rules::units::Timestamp;
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::beneath::{FolderTop, sync};
use super::failure::{FolderError, failed, fault};
use super::listing::described;

/// Removed files and directories that are told of. Higher: a page that takes long. Lower: older ones come back only after
/// newer ones are gone.
pub const MAX_REMOVED_LISTED: usize = 1000;
/// What was removed, in its directory, and what is known of it.
const WHAT: &str = "what";
const NOTE: &str = "meta.json";
const GONE: &str = "gone-";
/// How long one that is just being removed may lack its contents, in seconds.
const BEGUN: u64 = 3600;
/// How long the trash of one folder is emptied at a time. Longer: a session that fills what is removed keeps a thread from
/// other folders. Shorter: the room of millions of files comes back over hours.
const EMPTYING: Duration = Duration::from_secs(180);

/// A file, a directory or a link that was removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedEntry {
    pub id: Uuid,
    /// Where it was, as text.
    pub path: String,
    pub kind: FolderEntryKind,
    /// Bytes of a file's contents.
    pub size: u64,
    pub removed_at: Timestamp,
}

#[derive(Serialize, Deserialize)]
struct RemovedNote {
    path: String,
    removed_at: Timestamp,
}

/// Takes what is at `path` away. Where the disk has no room for one more name it is removed for good: then it is in the way of
/// its owner.
pub(super) fn take(
    top: &FolderTop,
    path: &FolderPath,
    trash: &Path,
    now: Timestamp,
) -> Result<(), FolderError> {
    let doing = "remove a file of a folder";
    let parent = top.directory(&path.parent())?;
    let item = trash.join(Uuid::now_v7().to_string());
    let note = RemovedNote {
        path: path.to_string(),
        removed_at: now,
    };
    let into = match begin(&item, &note) {
        Ok(into) => into,
        Err(error) => {
            let _ = fs::remove_file(item.join(NOTE));
            let _ = fs::remove_dir(&item);
            return match Errno::from_io_error(&error) {
                Some(Errno::NOSPC | Errno::DQUOT) => take_for_good(top, path, trash),
                _ => Err(fault(doing)(error)),
            };
        }
    };
    let taken = rustix::fs::renameat(&parent, path.name(), &into, WHAT);
    if let Err(error) = taken {
        let _ = fs::remove_file(item.join(NOTE));
        let _ = fs::remove_dir(&item);
        return Err(failed(doing, path)(error));
    }
    sync(into.as_fd()).map_err(fault(doing))?;
    sync(parent.as_fd()).map_err(fault(doing))
}

/// Takes what is at `path` away for good: one rename, after which `empty` gives its room back.
pub(super) fn take_for_good(
    top: &FolderTop,
    path: &FolderPath,
    trash: &Path,
) -> Result<(), FolderError> {
    let doing = "remove a file of a folder";
    let parent = top.directory(&path.parent())?;
    let into = opened(trash).map_err(fault(doing))?;
    let name = format!("{GONE}{}", Uuid::now_v7());
    match rustix::fs::renameat(&parent, path.name(), &into, name.as_str()) {
        // What is to go is what fills the disk.
        Err(Errno::NOSPC | Errno::DQUOT) => {
            let flags = AtFlags::empty();
            rustix::fs::unlinkat(&parent, path.name(), flags).map_err(failed(doing, path))?;
        }
        taken => taken.map_err(failed(doing, path))?,
    }
    sync(parent.as_fd()).map_err(fault(doing))
}

/// Puts a copy that is whole in the place of what is at `path`, whose last name lies in `into`: that goes to where the copy was
/// laid in the trash, by one exchange, so that something stands there at each moment. Where nothing stands there any more,
/// the copy takes the place alone. A crash before it leaves the copy in the trash. Never removes for good: without room for
/// one more name nothing is done.
pub(super) fn replace(
    (whole, copy): (BorrowedFd<'_>, &[u8]),
    (into, path): (BorrowedFd<'_>, &FolderPath),
    trash: &Path,
    now: Timestamp,
) -> Result<(), FolderError> {
    let doing = "replace a file of a folder";
    let item = trash.join(Uuid::now_v7().to_string());
    let note = RemovedNote {
        path: path.to_string(),
        removed_at: now,
    };
    let clear = || {
        let _ = fs::remove_file(item.join(NOTE));
        let _ = fs::remove_dir(&item);
    };
    let kept = match begin(&item, &note) {
        Ok(kept) => kept,
        Err(error) => {
            clear();
            return Err(fault(doing)(error));
        }
    };
    let alone = RenameFlags::NOREPLACE;
    if let Err(error) = rustix::fs::renameat_with(whole, copy, &kept, WHAT, alone) {
        clear();
        return Err(fault(doing)(error.into()));
    }
    let exchange = RenameFlags::EXCHANGE;
    match rustix::fs::renameat_with(&kept, WHAT, into, path.name(), exchange) {
        Ok(()) => {
            sync(kept.as_fd()).map_err(fault(doing))?;
            let names = opened(trash).and_then(|trash| sync(trash.as_fd()));
            return names.map_err(fault(doing));
        }
        Err(Errno::NOENT) => {}
        Err(error) => {
            // Who called removes it there.
            let _ = rustix::fs::renameat_with(&kept, WHAT, whole, copy, alone);
            clear();
            return Err(failed(doing, path)(error));
        }
    }
    let moved = rustix::fs::renameat_with(&kept, WHAT, into, path.name(), alone);
    if moved.is_err() {
        let _ = rustix::fs::renameat_with(&kept, WHAT, whole, copy, alone);
    }
    clear();
    moved.map_err(failed(doing, path))
}

/// Makes the place of one that is removed, with what is known of it.
fn begin(item: &Path, note: &RemovedNote) -> io::Result<OwnedFd> {
    DirBuilder::new().mode(0o700).create(item)?;
    let mut file = File::create_new(item.join(NOTE))?;
    file.write_all(&serde_json::to_vec(note)?)?;
    file.sync_all()?;
    opened(item)
}

fn opened(directory: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, directory, flags, Mode::empty())?)
}

/// What was removed, newest first, at most `MAX_REMOVED_LISTED`; nothing where there is no trash yet.
pub(super) fn list(trash: &Path) -> Result<Vec<RemovedEntry>, FolderError> {
    let mut ids = items(trash).map_err(fault("list removed files"))?;
    // Ids begin with their time.
    ids.sort_unstable_by(|one, other| other.cmp(one));
    let found = ids.into_iter().filter_map(|id| entry(trash, id));
    Ok(found.take(MAX_REMOVED_LISTED).collect())
}

/// What was removed, oldest first, at most so many; nothing where there is no trash yet.
pub(super) fn oldest(trash: &Path, most: usize) -> Result<Vec<RemovedEntry>, FolderError> {
    let mut ids = items(trash).map_err(fault("list removed files"))?;
    ids.sort_unstable();
    let found = ids.into_iter().filter_map(|id| entry(trash, id));
    Ok(found.take(most).collect())
}

/// What one item takes of the disk; nothing where there is none. Looks at no more than `most` names.
pub(super) fn size(trash: &Path, id: Uuid, most: u64) -> io::Result<u64> {
    Ok(crate::trees::measure(&trash.join(id.to_string()), most)?.bytes)
}

/// Whether nothing waits for its room to be given back.
pub(super) fn is_emptied(trash: &Path) -> io::Result<bool> {
    let all = match fs::read_dir(trash) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        all => all?,
    };
    for one in all {
        let name = one?.file_name();
        if name.to_str().is_some_and(|name| name.starts_with(GONE)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Holds one item: it is not purged while it is being restored. A file system without such locks goes without.
fn hold(item: &impl AsFd) {
    let _ = rustix::fs::flock(item, FlockOperation::LockExclusive);
}

/// The ids of all items; nothing where there is no trash yet.
fn items(trash: &Path) -> io::Result<Vec<Uuid>> {
    let all = match fs::read_dir(trash) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        all => all?,
    };
    let mut ids = Vec::new();
    for one in all {
        let name = one?.file_name();
        ids.extend(name.to_str().and_then(|name| Uuid::parse_str(name).ok()));
    }
    Ok(ids)
}

/// One item; None where it is none, or none any more.
fn entry(trash: &Path, id: Uuid) -> Option<RemovedEntry> {
    let item = trash.join(id.to_string());
    let note: RemovedNote = serde_json::from_slice(&fs::read(item.join(NOTE)).ok()?).ok()?;
    let stat = rustix::fs::statat(CWD, item.join(WHAT), AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let found = described(Vec::new(), &stat);
    Some(RemovedEntry {
        id,
        path: note.path,
        kind: found.kind,
        size: found.size,
        removed_at: note.removed_at,
    })
}

/// Puts one back where it was, with the directories above it; never over another one. Gives its path. `told`: as
/// `FolderTop::put_into`.
pub(super) fn restore(
    top: &FolderTop,
    trash: &Path,
    id: Uuid,
    told: &dyn Fn(FolderError) -> FolderError,
) -> Result<FolderPath, FolderError> {
    let doing = "restore a file of a folder";
    let found = entry(trash, id).ok_or_else(refusals::folder_removed_not_found)?;
    let path = FolderPath::parse(&found.path)?;
    let item = trash.join(id.to_string());
    let from = match opened(&item) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(refusals::folder_removed_not_found().into());
        }
        from => from.map_err(fault(doing))?,
    };
    hold(&from);
    // Asked once more: what has another name by now is being removed, and would come back in part.
    if !item.is_dir() {
        return Err(refusals::folder_removed_not_found().into());
    }
    top.put_into(&path.parent(), told, |parent| {
        let flags = RenameFlags::NOREPLACE;
        rustix::fs::renameat_with(&from, WHAT, parent, path.name(), flags)
            .map_err(failed(doing, &path))?;
        sync(parent).map_err(fault(doing))
    })?;
    let cleared = fs::remove_file(item.join(NOTE)).and_then(|()| fs::remove_dir(&item));
    // It is back; what is left of its item is removed by the next look.
    if let Err(error) = cleared {
        tracing::warn!(path = %item.display(), %error, "a note of a restored file stays on the disk");
    }
    Ok(path)
}

/// Takes one out of the trash for good; `empty` gives its room back.
pub(super) fn purge(trash: &Path, id: Uuid) -> Result<(), FolderError> {
    let item = trash.join(id.to_string());
    // Held over the rename. Where it is gone already that says so.
    let held = opened(&item).ok();
    if let Some(held) = &held {
        hold(held);
    }
    match fs::rename(&item, trash.join(format!("{GONE}{id}"))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(refusals::folder_removed_not_found().into())
        }
        purged => purged.map_err(fault("purge a removed file")),
    }
}

/// Takes all out of the trash for good that are there since before `since`, or all where that is None, and what a crash left.
pub(super) fn purge_before(
    trash: &Path,
    since: Option<Timestamp>,
    now: Timestamp,
) -> Result<(), FolderError> {
    for id in items(trash).map_err(fault("purge removed files"))? {
        let is_over = match entry(trash, id) {
            Some(found) => since.is_none_or(|since| found.removed_at <= since),
            // One that is just being removed is not whole yet.
            None => is_old(&trash.join(id.to_string()), now),
        };
        if is_over {
            match purge(trash, id) {
                // It was restored meanwhile.
                Err(error) if error.code().is_some() => {}
                purged => purged?,
            }
        }
    }
    Ok(())
}

fn is_old(item: &Path, now: Timestamp) -> bool {
    let changed = fs::metadata(item).and_then(|found| found.modified());
    let since = changed.ok().and_then(|at| {
        let since = at.duration_since(std::time::UNIX_EPOCH).ok()?;
        i64::try_from(since.as_millis()).ok()
    });
    since.is_some_and(|at| now.seconds_since(Timestamp::from_millis(at)) >= BEGUN)
}

/// Gives the room of everything back that is to be gone, and says of what stays why, in the log alone. What takes too long
/// is left to the next call.
pub(super) fn empty(trash: &Path) -> io::Result<()> {
    let all = match fs::read_dir(trash) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        all => all?,
    };
    let since = Instant::now();
    let in_time = || since.elapsed() < EMPTYING;
    let go_on = crate::trees::with_rests(&in_time);
    for one in all.flatten() {
        if !go_on() {
            break;
        }
        let is_gone = one
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(GONE));
        if !is_gone {
            continue;
        }
        let path = one.path();
        match crate::trees::remove_while(&path, &go_on) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), %error, "a removed file stays on the disk");
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use rules::names::FolderId;

    use super::*;
    use crate::folders::{FolderStore, mounted_directory};

    const ID: FolderId = FolderId(Uuid::from_u128(0xab));
    const NOW: Timestamp = Timestamp::from_millis(4_000_000_000_000);

    fn opened() -> (tempfile::TempDir, FolderStore, PathBuf) {
        let data = tempfile::tempdir().expect("a directory");
        let store = FolderStore::open(data.path()).expect("a store");
        store.create(ID, false, None).expect("made");
        let place = mounted_directory(data.path(), ID);
        (data, store, place)
    }

    fn path(text: &str) -> FolderPath {
        FolderPath::parse(text).expect(text)
    }

    fn code<T>(done: Result<T, FolderError>) -> String {
        match done {
            Ok(_) => "done".to_owned(),
            Err(error) => error.code().unwrap_or("fault").to_owned(),
        }
    }

    #[test]
    fn what_is_being_purged_does_not_come_back_in_part() {
        let (_data, store, place) = opened();
        fs::create_dir(place.join("a")).expect("made");
        store.remove_entry(ID, &path("a"), NOW).expect("removed");
        let item = store.removed(ID).expect("a list")[0].id;
        let trash = store.place_of(ID).expect("there").removed();
        let held = super::opened(&trash.join(item.to_string())).expect("there");
        hold(&held);
        std::thread::scope(|threads| {
            let restored = threads.spawn(|| store.restore_entry(ID, item));
            std::thread::sleep(Duration::from_millis(100));
            let gone = trash.join(format!("{GONE}{item}"));
            fs::rename(trash.join(item.to_string()), gone).expect("purged");
            drop(held);
            let restored = restored.join().expect("it ends");
            assert_eq!(code(restored), "folder.removed-not-found");
        });
        assert!(!place.join("a").exists());
        assert!(!store.is_emptied(ID).expect("looked at"));
        store.empty_removed(ID).expect("emptied");
        assert!(store.is_emptied(ID).expect("looked at"));
    }

    #[test]
    fn what_was_removed_comes_back_and_never_over_another_one() {
        let (_data, store, place) = opened();
        fs::create_dir_all(place.join("a/b")).expect("made");
        fs::write(place.join("a/b/file"), "text").expect("written");
        symlink("/etc", place.join("link")).expect("a link");
        store.remove_entry(ID, &path("link"), NOW).expect("removed");
        let later = NOW.plus_seconds(1);
        store.remove_entry(ID, &path("a"), later).expect("removed");
        assert!(!place.join("a").exists() && Path::new("/etc").is_dir());
        let removed = store.removed(ID).expect("a list");
        let told: Vec<_> = removed
            .iter()
            .map(|one| (one.path.as_str(), one.kind))
            .collect();
        assert_eq!(
            told,
            [
                ("a", FolderEntryKind::Directory),
                ("link", FolderEntryKind::Link)
            ]
        );
        fs::create_dir(place.join("a")).expect("made");
        let taken = code(store.restore_entry(ID, removed[0].id));
        assert_eq!(taken, "folder.entry-exists");
        fs::remove_dir(place.join("a")).expect("removed");
        let restored = store.restore_entry(ID, removed[0].id).expect("restored");
        assert_eq!(restored, path("a"));
        let text = fs::read_to_string(place.join("a/b/file"));
        assert_eq!(text.expect("there"), "text");
        let again = code(store.restore_entry(ID, removed[0].id));
        assert_eq!(again, "folder.removed-not-found");
        store
            .purge_removed(ID, Some(&[removed[1].id]), NOW)
            .expect("purged");
        assert_eq!(store.removed(ID).expect("a list"), []);
        store.empty_removed(ID).expect("emptied");
        let trash = place.with_file_name("trash");
        assert_eq!(fs::read_dir(trash).expect("a directory").count(), 0);
    }

    #[test]
    fn the_oldest_of_what_was_removed_is_told_first_with_its_size() {
        let (_data, store, place) = opened();
        for (number, name) in ["old", "new"].into_iter().enumerate() {
            fs::write(place.join(name), vec![1; 1 << 20]).expect("written");
            let now = NOW.plus_seconds(number as u64);
            store.remove_entry(ID, &path(name), now).expect("removed");
        }
        let oldest = store.oldest_removed(ID, 1).expect("a list");
        assert_eq!(oldest.len(), 1);
        assert_eq!(oldest[0].path, "old");
        let size = store.removed_size(ID, oldest[0].id, 100).expect("measured");
        assert!(size >= 1 << 20, "{size}");
        let none = store.removed_size(ID, Uuid::nil(), 100).expect("nothing");
        assert_eq!(none, 0);
    }

    #[test]
    fn a_copy_changes_places_with_what_stands_there_and_the_trash_keeps_that() {
        let (data, store, place) = opened();
        fs::create_dir(place.join("a")).expect("made");
        fs::write(place.join("a/old"), "old").expect("written");
        let trash = place.with_file_name("trash");
        fs::create_dir(&trash).expect("made");
        let beside = data.path().join("beside");
        fs::create_dir(&beside).expect("made");
        let whole = super::opened(&beside).expect("open");
        let into = super::opened(&place).expect("open");
        let replace = |trash: &Path| {
            let copy = (whole.as_fd(), b"copy".as_slice());
            code(replace(copy, (into.as_fd(), &path("a")), trash, NOW))
        };
        fs::write(beside.join("copy"), "new").expect("written");
        assert_eq!(replace(&place.join("none")), "fault", "no trash");
        assert!(place.join("a/old").is_file() && beside.join("copy").is_file());
        assert_eq!(replace(&trash), "done");
        assert_eq!(fs::read_to_string(place.join("a")).expect("there"), "new");
        let removed = store.removed(ID).expect("a list");
        assert_eq!(removed.len(), 1);
        assert_eq!(removed[0].path, "a");
        assert_eq!(removed[0].kind, FolderEntryKind::Directory);
        fs::remove_file(place.join("a")).expect("removed");
        fs::write(beside.join("copy"), "newer").expect("written");
        assert_eq!(replace(&trash), "done", "nothing stands there");
        assert_eq!(fs::read_to_string(place.join("a")).expect("there"), "newer");
        assert_eq!(store.removed(ID).expect("a list").len(), 1);
        assert_eq!(fs::read_dir(&trash).expect("a directory").count(), 1);
    }

    #[test]
    fn a_file_comes_back_into_a_directory_that_is_gone_too() {
        let (_data, store, place) = opened();
        fs::create_dir(place.join("a")).expect("made");
        fs::write(place.join("a/file"), "text").expect("written");
        store
            .remove_entry(ID, &path("a/file"), NOW)
            .expect("removed");
        let file = store.removed(ID).expect("a list")[0].id;
        fs::remove_dir(place.join("a")).expect("removed");
        store.restore_entry(ID, file).expect("restored");
        assert!(place.join("a/file").is_file());
    }

    #[test]
    fn what_lay_in_the_trash_for_long_enough_is_gone_and_what_a_crash_left_too() {
        let (_data, store, place) = opened();
        fs::write(place.join("old"), "text").expect("written");
        fs::write(place.join("new"), "text").expect("written");
        store.remove_entry(ID, &path("old"), NOW).expect("removed");
        let later = NOW.plus_seconds(1);
        store
            .remove_entry(ID, &path("new"), later)
            .expect("removed");
        let trash = place.with_file_name("trash");
        let left = trash.join(Uuid::from_u128(7).to_string());
        fs::create_dir(&left).expect("made");
        store.expire_removed(ID, NOW, NOW).expect("looked");
        let removed = store.removed(ID).expect("a list");
        assert_eq!(removed.len(), 1);
        assert_eq!(removed[0].path, "new");
        assert!(!left.exists(), "it was made before that time, long ago");
        store.purge_removed(ID, None, NOW).expect("purged");
        assert_eq!(store.removed(ID).expect("a list"), []);
    }
}
