//! Snapshots on a Btrfs that each test mounts for itself: what they share, keep, and give back; and what a disk that shares no
//! blocks is told.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use rules::names::FolderId;
use rules::units::Timestamp;
use uuid::Uuid;

use super::super::mounted_directory;
use super::*;

const FOLDER: FolderId = FolderId(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_00ab));
const OTHER: FolderId = FolderId(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_00cd));

/// A Btrfs of its own, mounted; it is let go of at the end.
struct Ground {
    place: PathBuf,
    _directory: tempfile::TempDir,
}

impl Ground {
    /// Nothing where this machine cannot, after saying so.
    fn lay(test: &str) -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory");
        let image = directory.path().join("image");
        let place = directory.path().join("mounted");
        fs::create_dir(&place).expect("made");
        let packed = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/fixtures/reflink.btrfs.gz.gz"
        );
        let unpack = format!("gzip -dc {packed} | gzip -dc | cp --sparse=always /dev/stdin \"$0\"");
        let mut shell = Command::new("sh");
        let unpacked = shell.arg("-c").arg(unpack).arg(&image).status();
        let unpacked = unpacked.expect("a shell");
        assert!(unpacked.success());
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-o", "loop"]).arg(&image).arg(&place).output();
        match mounted {
            Ok(done) if done.status.success() => {}
            Ok(done) => {
                let error = String::from_utf8_lossy(&done.stderr);
                skips::skip(test, &format!("no Btrfs can be mounted: {error}"));
                return None;
            }
            Err(error) => {
                skips::skip(test, &format!("nothing can be mounted: {error}"));
                return None;
            }
        }
        Some(Self {
            place,
            _directory: directory,
        })
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.place).status();
    }
}

fn path(text: &str) -> FolderPath {
    FolderPath::parse(text).expect(text)
}

fn names(page: &EntryPage) -> Vec<String> {
    let names = page.entries.iter();
    names
        .map(|one| String::from_utf8_lossy(&one.name).into_owned())
        .collect()
}

fn all() -> EntryQuery {
    EntryQuery {
        after: None,
        words: String::new(),
        limit: 100,
    }
}

#[test]
fn a_snapshot_keeps_what_is_changed_and_removed_and_gives_it_back() {
    let test = "a_snapshot_keeps_what_is_changed_and_removed_and_gives_it_back";
    let Some(ground) = Ground::lay(test) else {
        return;
    };
    let store = FolderStore::open(&ground.place).expect("a store");
    assert!(store.shares_blocks_here().expect("tried"));
    for id in [FOLDER, OTHER] {
        store.create(id, false, None).expect("made");
    }
    assert!(store.shares_blocks(FOLDER).expect("tried"));
    let data = mounted_directory(&ground.place, FOLDER);
    fs::create_dir(data.join("train")).expect("made");
    fs::write(data.join("train/a.csv"), vec![b'a'; 32 << 20]).expect("written");
    symlink("/etc/passwd", data.join("out")).expect("a link");
    rustix::fs::syncfs(File::open(&data).expect("open")).expect("written");
    let free = || {
        let stat = rustix::fs::statvfs(&ground.place).expect("a file system");
        stat.f_bavail * stat.f_frsize
    };
    let before = free();
    let taken = store.take_snapshot(FOLDER, 1, &mut |_| Ok(()));
    let taken = taken.expect("made");
    assert_eq!((taken.bytes, taken.entries), ((32 << 20) + 3 * NAME, 3));
    let more = before.saturating_sub(free());
    assert!(more < 4 << 20, "its blocks are shared: {more} more");

    fs::write(data.join("train/a.csv"), "changed").expect("written");
    fs::remove_file(data.join("out")).expect("removed");
    let top = store.list_snapshot(FOLDER, 1, &path(""), &all());
    assert_eq!(names(&top.expect("listed")), ["train", "out"]);
    let held = store.snapshot_file(FOLDER, 1, &path("train/a.csv"));
    assert_eq!(held.expect("there").size, 32 << 20);
    let out = store.snapshot_file(FOLDER, 1, &path("out"));
    assert_eq!(out.expect_err("a link").code(), Some("folder.entry-link"));

    let now = Timestamp::from_millis(4_000_000_000_000);
    let file = path("train/a.csv");
    let may = || -> Result<(), FolderError> { Ok(()) };
    let taken = store.restore_from_snapshot((FOLDER, 1), (&file, &file), None, &may);
    assert_eq!(
        taken.expect_err("it is there").code(),
        Some("folder.entry-exists")
    );
    assert_eq!(
        fs::read(data.join("train/a.csv")).expect("there"),
        b"changed"
    );
    let elsewhere = path("back/deep/a.csv");
    store
        .restore_from_snapshot((FOLDER, 1), (&file, &elsewhere), None, &may)
        .expect("put there");
    assert_eq!(
        data.join("back/deep/a.csv")
            .metadata()
            .expect("there")
            .len(),
        32 << 20
    );
    // Whose right ended meanwhile leaves nothing of it, no directory either.
    let may_not = || -> Result<(), FolderError> { Err(refusals::folder_copy_cancelled().into()) };
    let late = path("late/deep/a.csv");
    let ended = store.restore_from_snapshot((FOLDER, 1), (&file, &late), None, &may_not);
    let ended = ended.expect_err("refused");
    assert_eq!(ended.code(), Some("folder.copy-cancelled"));
    assert!(!data.join("late").exists());
    store
        .restore_from_snapshot((FOLDER, 1), (&file, &file), Some(now), &may)
        .expect("put back");
    let back = data.join("train/a.csv").metadata().expect("there");
    assert_eq!(back.len(), 32 << 20);
    let removed = store.removed(FOLDER).expect("a list");
    assert_eq!(removed.len(), 1, "what stood there is in the trash");
    let none = path("none");
    let missing = store.restore_from_snapshot((FOLDER, 1), (&none, &none), None, &may);
    let missing = missing.expect_err("not held");
    assert_eq!(missing.code(), Some("folder.entry-not-found"));

    let mut watch = |_: u64| -> Result<(), FolderError> { Ok(()) };
    for (part, inside) in [("train", "a.csv"), ("train/a.csv", "a.csv"), ("", "train")] {
        store
            .copy_snapshot((FOLDER, 1), &path(part), OTHER, &mut watch)
            .expect(part);
        let other = mounted_directory(&ground.place, OTHER);
        assert!(other.join(inside).exists(), "{part}");
    }
    store.remove_snapshot(FOLDER, 1).expect("removed");
    store.remove_snapshot(FOLDER, 1).expect("nothing is there");
    let gone = store.list_snapshot(FOLDER, 1, &path(""), &all());
    assert_eq!(
        gone.expect_err("gone").code(),
        Some("folder.entry-not-found")
    );
}

#[test]
fn a_snapshot_that_was_broken_off_is_made_from_its_beginning() {
    let test = "a_snapshot_that_was_broken_off_is_made_from_its_beginning";
    let Some(ground) = Ground::lay(test) else {
        return;
    };
    let store = FolderStore::open(&ground.place).expect("a store");
    store.create(FOLDER, false, None).expect("made");
    let data = mounted_directory(&ground.place, FOLDER);
    for number in 0..10 {
        fs::write(data.join(format!("file-{number}")), "text").expect("written");
    }
    let mut looks = 0;
    let mut watch = |_: u64| -> Result<(), FolderError> {
        looks += 1;
        match looks > 3 {
            true => Err(refusals::folder_copy_cancelled().into()),
            false => Ok(()),
        }
    };
    let ended = store.take_snapshot(FOLDER, 1, &mut watch);
    let ended = ended.expect_err("cancelled");
    assert_eq!(ended.code(), Some("folder.copy-cancelled"));
    fs::remove_file(data.join("file-0")).expect("removed");
    let whole = store.take_snapshot(FOLDER, 1, &mut |_| Ok(()));
    assert_eq!(whole.expect("made").entries, 9);
}

#[test]
fn a_disk_that_shares_no_blocks_takes_no_snapshot() {
    let data = tempfile::tempdir().expect("a directory");
    let store = FolderStore::open(data.path()).expect("a store");
    store.create(FOLDER, false, None).expect("made");
    let file = mounted_directory(data.path(), FOLDER).join("file");
    fs::write(file, "text").expect("written");
    let shares = store.shares_blocks(FOLDER).expect("tried");
    assert_eq!(shares, store.shares_blocks_here().expect("tried"));
    let taken = store.take_snapshot(FOLDER, 1, &mut |_| Ok(()));
    match taken {
        Ok(size) => assert!(shares && size.entries == 1),
        Err(refused) => {
            assert!(!shares);
            assert_eq!(refused.code(), Some("folder.snapshot-unavailable"));
            let listed = store.list_snapshot(FOLDER, 1, &path(""), &all());
            listed.expect_err("nothing of it is there");
        }
    }
}
