//! A disk that fills up while the server works in a folder on it: each verb is done whole, or refused by name with everything as
//! it was, and goes on once there is room. The disk is memory that each test mounts for itself.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;

use rules::codes;
use rules::folder_path::FolderPath;
use rules::names::FolderId;
use rules::units::Timestamp;
use uuid::Uuid;

use super::failure::FolderError;
use super::staging::DeclaredFile;
use super::versions::TextVersion;
use super::{FolderStore, mounted_directory};

const ID: FolderId = FolderId(Uuid::from_u128(0xab));
const NOW: Timestamp = Timestamp::from_millis(4_000_000_000_000);
const FULL: &str = codes::DISK_FULL;
const MIB: usize = 1 << 20;

/// A disk of 64 MiB and 400 names with a folder on it. A quarter of both stays free of uploads and copies.
struct SmallDisk {
    store: FolderStore,
    /// What sessions see of the folder.
    place: PathBuf,
    mounted: PathBuf,
    _directory: tempfile::TempDir,
}

impl SmallDisk {
    /// Nothing where this machine cannot, after saying so.
    fn lay(test: &str) -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory");
        let mounted = directory.path().join("mounted");
        fs::create_dir(&mounted).expect("made");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64m,nr_inodes=400", "none"]);
        let refused = match mount.arg(&mounted).output() {
            Ok(done) if done.status.success() => None,
            Ok(done) => Some(String::from_utf8_lossy(&done.stderr).into_owned()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(refused) = refused {
            skips::skip(test, &format!("nothing can be mounted: {refused}"));
            return None;
        }
        let disk = Self {
            store: FolderStore::open(&mounted).expect("a store"),
            place: mounted_directory(&mounted, ID),
            mounted,
            _directory: directory,
        };
        disk.store.create(ID, false, None).expect("made");
        Some(disk)
    }

    /// Bytes and names that are left.
    fn room(&self) -> (u64, u64) {
        let room = rustix::fs::statvfs(&self.place).expect("mounted");
        (room.f_bavail * room.f_frsize, room.f_favail)
    }

    /// A session writes until so many bytes are left.
    fn leave_bytes(&self, left: usize) {
        let free = usize::try_from(self.room().0).expect("small");
        let bytes = vec![3; free.checked_sub(left).expect("there is more")];
        fs::write(self.place.join("session"), bytes).expect("there is room");
    }

    /// A session makes files until so many more fit.
    fn leave_names(&self, left: u64) {
        let below = self.place.join("names");
        fs::create_dir(&below).expect("made");
        let mut number = 0;
        while self.room().1 > left {
            File::create(below.join(number.to_string())).expect("there is room");
            number += 1;
        }
    }

    fn begin(&self, at: &str, bytes: usize) -> Uuid {
        let declared = DeclaredFile {
            path: at.to_owned(),
            bytes: Some(bytes as u64),
            overwrite: false,
            modified_at: None,
            version: None,
            by: None,
        };
        let staged = self.store.stage(ID, &path(at), declared, NOW);
        staged.expect("begun").id
    }

    fn names(&self) -> Vec<String> {
        let all = fs::read_dir(&self.place).expect("a directory");
        let names = all.map(|one| one.expect("an entry").file_name());
        let mut names: Vec<_> = names
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    fn staged(&self) -> usize {
        let staging = self.place.with_file_name("staging");
        fs::read_dir(staging).expect("a directory").count()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.mounted).status();
    }
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
fn an_upload_and_a_copy_that_meet_a_full_disk_leave_nothing_half_done() {
    const NAME: &str = "an_upload_and_a_copy_that_meet_a_full_disk_leave_nothing_half_done";
    let Some(disk) = SmallDisk::lay(NAME) else {
        return;
    };
    let store = &disk.store;
    let upload = disk.begin("new", 8 * MIB);
    let mut writer = store.append(ID, upload, 0, None).expect("begun");
    let piece = vec![9; MIB];
    for _ in 0..3 {
        writer.write(&piece).expect("there is room");
    }
    disk.leave_bytes(MIB / 2);
    assert_eq!(code(writer.write(&piece)), FULL);
    drop(writer);
    let told = store.staged(ID, upload).expect("it stays").offset;
    assert_eq!(told, 3 * MIB as u64);
    assert_eq!(disk.names(), ["session"]);
    fs::remove_file(disk.place.join("session")).expect("it was written");
    let mut writer = store.append(ID, upload, told, None).expect("begun");
    let rest = vec![9; 5 * MIB];
    writer.write(&rest).expect("there is room again");
    writer.finish(true).expect("kept");
    assert!(store.place(ID, upload).expect("whole"));
    let read = fs::read(disk.place.join("new")).expect("there");
    assert!(read.len() == 8 * MIB && read.iter().all(|byte| *byte == 9));

    fs::create_dir(disk.place.join("tree")).expect("made");
    for name in ["tree/a", "tree/b", "tree/c", "tree/d"] {
        fs::write(disk.place.join(name), vec![3; 5 * MIB]).expect("written");
    }
    // For two of the four, and what stays free.
    disk.leave_bytes(29 * MIB);
    let before = disk.room();
    let copied = || store.copy_entry(ID, &path("tree"), &path("copy"), &|| Ok(()));
    assert_eq!(code(copied()), FULL);
    assert_eq!(disk.names(), ["new", "session", "tree"]);
    assert_eq!((disk.staged(), disk.room()), (0, before));
    fs::remove_file(disk.place.join("session")).expect("it was written");
    fs::remove_file(disk.place.join("new")).expect("removed");
    copied().expect("there is room");
    assert!(disk.place.join("copy/d").is_file());
}

#[test]
fn where_no_name_fits_what_is_refused_leaves_everything_as_it_was() {
    const NAME: &str = "where_no_name_fits_what_is_refused_leaves_everything_as_it_was";
    let Some(disk) = SmallDisk::lay(NAME) else {
        return;
    };
    let store = &disk.store;
    let thrown = "a/b/c/thrown";
    fs::create_dir_all(disk.place.join("a/b/c")).expect("made");
    fs::write(disk.place.join(thrown), "thrown").expect("written");
    fs::write(disk.place.join("text"), "old").expect("written");
    store.remove_entry(ID, &path(thrown), NOW).expect("removed");
    fs::remove_dir_all(disk.place.join("a")).expect("removed");
    let item = store.removed(ID).expect("a list")[0].id;
    let sent = "x/y/z/sent";
    let upload = disk.begin(sent, 4);
    let mut writer = store.append(ID, upload, 0, None).expect("begun");
    writer.write(b"text").expect("there is room");
    writer.finish(true).expect("kept");
    // The first of the directories fits, and no other.
    disk.leave_names(1);
    let as_it_was = ["names", "text"];

    assert_eq!(code(store.restore_entry(ID, item)), FULL);
    assert_eq!(disk.names(), as_it_was);
    assert_eq!(store.removed(ID).expect("a list")[0].id, item);
    assert_eq!(code(store.place(ID, upload)), FULL);
    assert_eq!(disk.names(), as_it_was);
    assert_eq!(store.staged(ID, upload).expect("it stays").offset, 4);
    for (at, version) in [("text", TextVersion::Any), ("other", TextVersion::New)] {
        let written = store.write_text(ID, &path(at), "new", &version);
        assert_eq!(code(written), FULL, "{at}");
    }
    assert_eq!(code(store.make_directory(ID, &path("made"))), FULL);
    assert_eq!(disk.names(), as_it_was);
    let text = || fs::read_to_string(disk.place.join("text")).expect("there");
    assert_eq!(text(), "old");
    // What needs no more room is done; what is removed finds none in the trash, and goes for good.
    let moved = store.move_entry(ID, &path("text"), &path("names/text"));
    moved.expect("done");
    let gone = store.remove_entry(ID, &path("names/text"), NOW);
    gone.expect("done");
    assert!(!disk.place.join("names/text").exists());
    assert_eq!(store.removed(ID).expect("a list").len(), 1);

    fs::remove_dir_all(disk.place.join("names")).expect("removed");
    store.restore_entry(ID, item).expect("there is room");
    assert!(store.place(ID, upload).expect("there is room"));
    let read = |at: &str| fs::read_to_string(disk.place.join(at)).expect("there");
    assert_eq!(read(thrown), "thrown");
    assert_eq!(read(sent), "text");
}
