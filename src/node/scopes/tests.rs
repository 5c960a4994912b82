//! Scopes on real loop devices, in directories of their own. What is mounted is let go of at the end, however a test ends.

use std::fs::{self, File};
use std::io::Write as _;

use rules::folder_path::FolderPath;
use rules::names::{FolderId, UserId};
use rules::units::Timestamp;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{OpenTreeFlags, open_tree};
use store::folders::staging::DeclaredFile;
use store::folders::{FolderLimit, FolderStore, mounted_directory};
use store::trees::Thrown;
use uuid::Uuid;

use super::*;

mod full;
mod pool;

const KIM: UserId = UserId(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001));
const LEE: UserId = UserId(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0002));
const LIMIT: Bytes = Bytes::mib(64);

/// A machine that can hold limits; everything is unmounted when this goes.
struct Ground {
    scopes: Arc<NodeScopes>,
    directory: tempfile::TempDir,
}

impl Ground {
    /// Nothing where this machine cannot, after saying so.
    fn lay(test: &str) -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory");
        let scopes = server(directory.path());
        if let Err(error) = scopes.try_out(StorageEnforcement::Image) {
            skips::skip(test, &error.to_string());
            return None;
        }
        Some(Self { scopes, directory })
    }

    fn scope(&self, owner: UserId) -> ScopePlace {
        ScopePlace::of(self.directory.path(), owner)
    }

    /// Lets go of everything that no lease holds, and forgets all of it, as the end of a server does.
    fn restart(&mut self) {
        self.scopes.close(&BTreeSet::new());
        self.scopes = server(self.directory.path());
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        self.scopes.close(&BTreeSet::new());
    }
}

fn server(data: &std::path::Path) -> Arc<NodeScopes> {
    let clock = Clock::set_by_hand(Timestamp::from_millis(1_000));
    let scopes = NodeScopes::of(data.to_owned(), clock);
    // Whatever the disk of this machine can itself.
    let _ = scopes.enforcement.set(StorageEnforcement::Image);
    Arc::new(scopes)
}

/// Writes into a new file until nothing more fits, in pieces that get smaller; gives what was written.
fn fill(path: &std::path::Path) -> u64 {
    let mut file = File::create(path).expect("there is room for a name");
    let mut written = 0;
    for piece in [1 << 20, 64 << 10, 4 << 10] {
        let bytes = vec![7; piece];
        loop {
            match file.write(&bytes) {
                Ok(0) => break,
                Ok(count) => written += count as u64,
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
                    break;
                }
            }
        }
    }
    file.sync_all().expect("what was written has a place");
    written
}

/// The size that `df` shows, in bytes.
fn shown_size(scope: &ScopePlace) -> u64 {
    let room = rustix::fs::statvfs(scope.files()).expect("mounted");
    room.f_blocks * room.f_frsize
}

/// On an ordinary disk without any preparation.
#[test]
fn a_scope_takes_its_limit_and_no_more_and_its_neighbour_goes_on() {
    const NAME: &str = "a_scope_takes_its_limit_and_no_more_and_its_neighbour_goes_on";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let (kim, lee) = (ground.scope(KIM), ground.scope(LEE));
    let _kim = ground.scopes.enter(&kim, Some(LIMIT)).expect("made");
    let _lee = ground.scopes.enter(&lee, Some(LIMIT)).expect("made");
    for scope in [&kim, &lee] {
        let size = shown_size(scope);
        assert!(size <= LIMIT.0, "{size}");
        assert!(size >= LIMIT.0 - (1 << 20), "{size}");
    }
    let written = fill(&kim.files().join("all"));
    assert!(written <= LIMIT.0, "{written}");
    assert!(written >= LIMIT.0 - LIMIT.0 / 100, "{written}");
    let taken = ground
        .scopes
        .measure(&kim)
        .expect("mounted")
        .expect("known");
    assert_eq!(taken.limit, LIMIT);
    assert!(taken.used <= LIMIT && taken.used.0 >= written, "{taken:?}");
    assert_eq!(
        rules::storage::level(taken.used, LIMIT),
        rules::storage::StorageLevel::Full
    );
    fs::write(lee.files().join("mine"), vec![1; 8 << 20]).expect("the neighbour has room");
    // Who is at the limit can still make room.
    fs::rename(kim.files().join("all"), kim.files().join("other")).expect("renamed");
    fs::remove_file(kim.files().join("other")).expect("removed");
    fs::write(kim.files().join("next"), "text").expect("there is room again");
}

/// A limit holds over a restart of the server, and what was written stays.
#[test]
fn the_next_server_finds_each_scope_as_it_was() {
    const NAME: &str = "the_next_server_finds_each_scope_as_it_was";
    let Some(mut ground) = Ground::lay(NAME) else {
        return;
    };
    let kim = ground.scope(KIM);
    let lease = ground.scopes.enter(&kim, Some(LIMIT)).expect("made");
    fs::write(kim.files().join("kept"), vec![3; 5 << 20]).expect("written");
    // A lease stands for a session that is just being made: it is not let go of.
    ground.scopes.release_idle(&BTreeSet::new(), Duration::ZERO);
    assert!(kim.is_mounted());
    drop(lease);
    let used = BTreeSet::from([kim.clone()]);
    ground.scopes.release_idle(&used, Duration::ZERO);
    assert!(kim.is_mounted(), "a session mounts it");
    ground.scopes.release_idle(&BTreeSet::new(), IDLE);
    assert!(kim.is_mounted(), "it was needed a moment ago");
    ground.restart();
    assert!(!kim.is_mounted(), "nothing is left behind");
    let taken = ground.scopes.measure(&kim).expect("kept").expect("known");
    assert!(taken.used.0 >= 5 << 20, "{taken:?}");
    assert_eq!((taken.limit, taken.at), (LIMIT, 1_000));
    let _lease = ground.scopes.enter(&kim, None).expect("it is there");
    let read = fs::read(kim.files().join("kept")).expect("kept");
    assert_eq!(read, vec![3; 5 << 20]);
    // One that was left mounted by a server that was killed is used as it stands.
    let next = server(ground.directory.path());
    let _other = next.enter(&kim, None).expect("it is mounted");
    assert!(kim.files().join("kept").is_file());
    let missing = next
        .enter(&ground.scope(LEE), None)
        .expect_err("never made");
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    next.close(&BTreeSet::new());
    let closed = next.enter(&kim, None).expect_err("it stops");
    assert_eq!(closed.kind(), io::ErrorKind::Other);
}

#[test]
fn a_file_has_one_device_however_often_it_is_mounted() {
    const NAME: &str = "a_file_has_one_device_however_often_it_is_mounted";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let kim = ground.scope(KIM);
    drop(ground.scopes.enter(&kim, Some(LIMIT)).expect("made"));
    let device = loop_device::attach(&kim.image()).expect("it has one").path;
    // What a session that still runs holds of it, when the server has let go.
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let session = open_tree(rustix::fs::CWD, kim.files(), flags).expect("a mount");
    ground.scopes.release_idle(&BTreeSet::new(), Duration::ZERO);
    assert!(!kim.is_mounted());
    assert!(loop_device::is_attached(&kim.image()).expect("seen"));
    let flags = OFlags::CREATE | OFlags::WRONLY;
    let made = rustix::fs::openat(&session, "later", flags, Mode::from_raw_mode(0o600));
    made.expect("the session goes on");
    let _lease = ground.scopes.enter(&kim, None).expect("mounted again");
    let again = loop_device::attach(&kim.image()).expect("it has one");
    assert_eq!(again.path, device);
    assert!(kim.files().join("later").is_file(), "it is one file system");
    drop(session);
}

#[test]
fn a_limit_goes_up_and_down_and_loses_nothing() {
    const NAME: &str = "a_limit_goes_up_and_down_and_loses_nothing";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let kim = ground.scope(KIM);
    let lease = ground.scopes.enter(&kim, Some(LIMIT)).expect("made");
    let kept = kim.files().join("kept");
    fs::write(&kept, vec![5; 40 << 20]).expect("written");
    let free = || {
        let room = rustix::fs::statvfs(kim.files()).expect("mounted");
        room.f_bavail * room.f_frsize
    };
    ground.scopes.hold_to(&kim, Bytes::mib(48)).expect("lower");
    assert!(free() <= 8 << 20, "{}", free());
    assert!(fill(&kim.files().join("more")) <= 8 << 20);
    fs::remove_file(kim.files().join("more")).expect("removed");
    ground
        .scopes
        .hold_to(&kim, Bytes::mib(32))
        .expect("below what is used");
    let refused = fs::write(kim.files().join("more"), vec![1; 1 << 20]);
    assert_eq!(
        refused.expect_err("full").kind(),
        io::ErrorKind::StorageFull
    );
    let wide = Bytes::mib(160);
    ground.scopes.hold_to(&kim, wide).expect("higher");
    let is_wide = || shown_size(&kim) >= wide.0 - (1 << 20);
    if !is_wide() {
        // This process may not grow what is mounted: it grows while nothing needs it.
        drop(lease);
        ground.scopes.release_idle(&BTreeSet::new(), Duration::ZERO);
        drop(ground.scopes.enter(&kim, None).expect("mounted"));
    }
    assert!(is_wide(), "{}", shown_size(&kim));
    fs::write(kim.files().join("more"), vec![1; 80 << 20]).expect("there is room");
    assert_eq!(fs::read(&kept).expect("kept"), vec![5; 40 << 20]);
    let taken = ground
        .scopes
        .measure(&kim)
        .expect("mounted")
        .expect("known");
    assert_eq!(taken.limit, wide);
}

/// A user at the limit gets a home folder all the same, and throws away what takes the room.
#[test]
fn a_full_scope_takes_one_more_folder_and_throws_one_away() {
    const NAME: &str = "a_full_scope_takes_one_more_folder_and_throws_one_away";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let keeper: Arc<dyn ScopeKeeper> = Arc::clone(&ground.scopes) as _;
    let folders = FolderStore::limited(ground.directory.path(), keeper).expect("a store");
    let limit = Some(FolderLimit {
        owner: KIM.into(),
        bytes: LIMIT,
    });
    let [large, home, more] = [1, 2, 3].map(|number| FolderId(Uuid::from_u128(number)));
    folders.create(large, false, limit).expect("made");
    let file = mounted_directory(ground.directory.path(), large).join("all");
    fill(&file);
    folders.create(home, true, limit).expect("the spare one");
    assert!(folders.has(home));
    let refused = folders.create(more, false, limit).expect_err("no room");
    assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
    assert_eq!(folders.throw(large).expect("thrown"), Thrown::Away);
    folders.empty(|| true).expect("emptied");
    folders.create(more, false, limit).expect("there is room");
    assert!(folders.has(more) && folders.has(home) && !folders.has(large));
}

/// From outside of sessions, too: what is not written is refused by name, and what fills the scope is removed.
#[test]
fn a_full_scope_refuses_uploads_by_name_and_its_files_are_removed() {
    const NAME: &str = "a_full_scope_refuses_uploads_by_name_and_its_files_are_removed";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let keeper: Arc<dyn ScopeKeeper> = Arc::clone(&ground.scopes) as _;
    let folders = FolderStore::limited(ground.directory.path(), keeper).expect("a store");
    let limit = FolderLimit {
        owner: KIM.into(),
        bytes: LIMIT,
    };
    let id = FolderId(Uuid::from_u128(1));
    folders.create(id, false, Some(limit)).expect("made");
    let path = |text: &str| FolderPath::parse(text).expect("a path");
    let now = Timestamp::from_millis(1_000);
    let upload = |bytes: u64| {
        let declared = DeclaredFile {
            path: "new".to_owned(),
            bytes: Some(bytes),
            overwrite: false,
            version: None,
            modified_at: None,
            by: None,
        };
        let staged = folders.stage(id, &path("new"), declared, now);
        staged
            .err()
            .and_then(|error| error.code().map(str::to_owned))
    };
    assert_eq!(upload(LIMIT.0).as_deref(), Some("quota.exceeded"));
    fill(&mounted_directory(ground.directory.path(), id).join("all"));
    let mut made = (0..64).map(|number| folders.make_directory(id, &path(&format!("d{number}"))));
    let refused = made.find_map(Result::err).expect("it is full");
    assert_eq!(refused.code(), Some("quota.exceeded"));
    assert_eq!(upload(1).as_deref(), Some("quota.exceeded"));
    folders.remove_for_good(id, &path("all")).expect("removed");
    folders.empty_removed(id).expect("emptied");
    assert_eq!(upload(1), None, "there is room");
}

/// `df` on a folder with a limit of its own shows that one, and a full one leaves the owner's other folders their room.
#[test]
fn a_folder_with_a_limit_of_its_own_fills_that_alone() {
    const NAME: &str = "a_folder_with_a_limit_of_its_own_fills_that_alone";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let keeper: Arc<dyn ScopeKeeper> = Arc::clone(&ground.scopes) as _;
    let folders = FolderStore::limited(ground.directory.path(), keeper).expect("a store");
    let of_owner = FolderLimit {
        owner: KIM.into(),
        bytes: LIMIT,
    };
    let [bounded, other] = [1, 2].map(|number| FolderId(Uuid::from_u128(number)));
    for id in [bounded, other] {
        folders.create(id, false, Some(of_owner)).expect("made");
    }
    let own = FolderLimit {
        owner: bounded.into(),
        bytes: MIN_FOLDER_BYTES,
    };
    let place = |id| mounted_directory(ground.directory.path(), id);
    fs::write(place(bounded).join("first"), vec![1; 8 << 20]).expect("written");
    folders
        .rehome(bounded, of_owner.owner, own, &mut |_| Ok(()))
        .expect("moved");
    assert!(place(bounded).join("first").is_file());
    let scope = ScopePlace::of(ground.directory.path(), bounded);
    let size = shown_size(&scope);
    assert!(size <= MIN_FOLDER_BYTES.0, "{size}");
    let written = fill(&place(bounded).join("all"));
    assert!(written < MIN_FOLDER_BYTES.0 - (8 << 20), "{written}");
    fs::write(place(other).join("mine"), vec![1; 32 << 20]).expect("there is room");
    let larger = Bytes(MIN_FOLDER_BYTES.0 * 2);
    ground.scopes.hold_to(&scope, larger).expect("it grows");
    if shown_size(&scope) < larger.0 - (1 << 20) {
        // This process may not grow what is mounted: it grows while nothing needs it.
        ground.scopes.release_idle(&BTreeSet::new(), Duration::ZERO);
        drop(ground.scopes.enter(&scope, None).expect("mounted"));
    }
    fs::write(place(bounded).join("more"), vec![1; 16 << 20]).expect("there is room again");
    let back = folders.rehome(bounded, own.owner, of_owner, &mut |_| Ok(()));
    let refused = back.expect_err("it does not fit any more");
    assert_eq!(refused.code(), Some("quota.exceeded"));
    folders
        .give_up_rehome(bounded, own.owner, of_owner.owner)
        .expect("nothing half-made stays");
    assert!(place(bounded).join("more").is_file());
}

/// What a session removes is given back to the disk: a scope takes what lies in it.
#[test]
fn what_is_removed_from_a_scope_is_given_back_to_the_disk() {
    use std::os::unix::fs::MetadataExt as _;
    const NAME: &str = "what_is_removed_from_a_scope_is_given_back_to_the_disk";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let kim = ground.scope(KIM);
    drop(ground.scopes.enter(&kim, Some(LIMIT)).expect("made"));
    let on_disk = || kim.image().metadata().expect("there").blocks() * 512;
    assert!(on_disk() < 4 << 20, "an empty scope takes {}", on_disk());
    let file = kim.files().join("large");
    fs::write(&file, vec![9; 32 << 20]).expect("written");
    File::open(&file)
        .expect("there")
        .sync_all()
        .expect("written out");
    assert!(on_disk() >= 32 << 20);
    fs::remove_file(&file).expect("removed");
    // It is given back with the journal; the last word is said when it is unmounted.
    ground.scopes.release_idle(&BTreeSet::new(), Duration::ZERO);
    assert!(on_disk() < 8 << 20, "{} stay", on_disk());
    drop(ground.scopes.enter(&kim, None).expect("mounted"));
    let folder = kim.files().join("folder");
    fs::create_dir(&folder).expect("made");
    ground.scopes.remove_empty(&kim).expect("it stays");
    assert!(folder.is_dir());
    fs::remove_dir(folder).expect("removed");
    ground
        .scopes
        .remove_empty(&kim)
        .expect("nothing lies in it");
    assert!(!kim.directory().exists());
}

/// A disk of its own that counts by projects, unmounted and removed at the end.
struct NumberedDisk {
    folder: tempfile::TempDir,
}

impl NumberedDisk {
    /// Nothing where this kernel has no project quota, after saying so.
    fn make(test: &str) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a directory");
        let image = folder.path().join("image");
        let file = File::create(&image).expect("made");
        file.set_len(256 << 20).expect("room");
        let disk = Self { folder };
        fs::create_dir(disk.at()).expect("made");
        let mut format = std::process::Command::new("mkfs.ext4");
        format.args([
            "-q",
            "-F",
            "-O",
            "quota,project",
            "-E",
            "quotatype=prjquota",
        ]);
        let mut mount = std::process::Command::new("mount");
        mount
            .args(["-o", "loop,prjquota"])
            .arg(&image)
            .arg(disk.at());
        for (mut step, last) in [(format, Some(&image)), (mount, None)] {
            let done = step.args(last).output();
            let said = match done {
                Ok(done) if done.status.success() => continue,
                Ok(done) => String::from_utf8_lossy(&done.stderr).trim().to_owned(),
                Err(error) => error.to_string(),
            };
            skips::skip(test, &said);
            return None;
        }
        Some(disk)
    }

    fn at(&self) -> PathBuf {
        self.folder.path().join("disk")
    }
}

impl Drop for NumberedDisk {
    fn drop(&mut self) {
        // Not mounted where it was skipped.
        let mut unmount = std::process::Command::new("umount");
        let _ = unmount.arg("-l").arg(self.at()).output();
    }
}

/// Writes without the right to pass a limit, which root has; gives whether all of it was written.
fn write_as_others(file: &std::path::Path, mib: u64) -> bool {
    let mut write = std::process::Command::new("setpriv");
    let into = format!("of={}", file.display());
    let count = format!("count={mib}");
    write.args([
        "--bounding-set",
        "-sys_resource",
        "dd",
        "if=/dev/zero",
        "bs=1M",
    ]);
    let done = write
        .args([&into, &count])
        .output()
        .expect("setpriv is here");
    done.status.success()
}

#[test]
fn the_quota_of_the_disk_itself_holds_scopes_where_it_is_switched_on() {
    use std::os::unix::fs::MetadataExt as _;
    const NAME: &str = "the_quota_of_the_disk_itself_holds_scopes_where_it_is_switched_on";
    if !rustix::process::geteuid().is_root() {
        return skips::skip(NAME, "needs root to mount a file system");
    }
    let Some(disk) = NumberedDisk::make(NAME) else {
        return;
    };
    let scopes = NodeScopes::of(disk.at(), Clock::system());
    assert_eq!(scopes.enforcement(), StorageEnforcement::Native);
    let scope = |owner: UserId| ScopePlace::of(&disk.at(), owner);
    let (kim, lee) = (scope(KIM), scope(LEE));
    for one in [&kim, &lee] {
        drop(scopes.enter(one, Some(LIMIT)).expect("made"));
        assert!(!one.is_mounted() && !one.image().exists());
    }
    let numbers = [&kim, &lee].map(|one| one.project().expect("kept"));
    assert_eq!(numbers, [Some(project::FIRST), Some(project::FIRST + 1)]);
    let file = kim.files().join("all");
    assert!(!write_as_others(&file, 100));
    assert!(file.metadata().expect("made").blocks() * 512 <= LIMIT.0);
    let taken = scopes.measure(&kim).expect("seen").expect("known");
    assert!(
        taken.used <= LIMIT && taken.used.0 >= LIMIT.0 - (1 << 20),
        "{taken:?}"
    );
    assert!(shown_size(&kim) <= LIMIT.0);
    assert!(
        write_as_others(&lee.files().join("mine"), 32),
        "the neighbour has room"
    );
    scopes.hold_to(&kim, Bytes::mib(96)).expect("higher");
    assert!(write_as_others(&kim.files().join("more"), 16));
    // The next server gives the next number.
    let next = NodeScopes::of(disk.at(), Clock::system());
    let third = scope(UserId(Uuid::from_u128(3)));
    drop(next.enter(&third, Some(LIMIT)).expect("made"));
    assert_eq!(third.project().expect("kept"), Some(project::FIRST + 2));
    next.remove_empty(&third).expect("nothing lies in it");
    assert!(!third.directory().exists());
}

#[test]
fn no_scope_is_larger_than_the_disk_below_it() {
    let data = tempfile::tempdir().expect("a directory");
    let scope = ScopePlace::of(data.path(), KIM);
    scope.make().expect("made");
    let size = |limit| image::within_disk(&scope, limit).expect("a disk");
    assert_eq!(size(Bytes::mib(1)), Bytes::mib(1));
    let disk = rustix::fs::statvfs(data.path()).expect("a disk");
    if disk.f_blocks > 0 {
        assert_eq!(size(Bytes(u64::MAX)), Bytes(disk.f_blocks * disk.f_frsize));
    }
}

/// As a full disk of the machine leaves one, or a broken one.
#[test]
fn a_fault_in_a_scope_is_mended_before_it_is_mounted() {
    const NAME: &str = "a_fault_in_a_scope_is_mended_before_it_is_mounted";
    let Some(mut ground) = Ground::lay(NAME) else {
        return;
    };
    let kim = ground.scope(KIM);
    drop(ground.scopes.enter(&kim, Some(LIMIT)).expect("made"));
    assert!(!image::has_fault(&kim).expect("mounted"));
    fs::write(kim.files().join("kept"), "text").expect("written");
    let over = image::make(&kim, LIMIT, ImageLife::Long).expect_err("one is there");
    assert_eq!(over.kind(), io::ErrorKind::AlreadyExists);
    ground.restart();
    let until = Instant::now() + Duration::from_secs(60);
    while loop_device::is_attached(&kim.image()).expect("seen") {
        assert!(Instant::now() < until, "something else has it mounted");
        std::thread::sleep(Duration::from_millis(5));
    }
    let tool = image::tool("debugfs").expect("it comes with mkfs.ext4");
    let mut note = std::process::Command::new(tool);
    note.args(["-w", "-R", "set_super_value state 2"]);
    let noted = note.arg(kim.image()).output().expect("it runs");
    assert!(noted.status.success(), "{noted:?}");
    drop(ground.scopes.enter(&kim, None).expect("mended and mounted"));
    assert!(!image::has_fault(&kim).expect("mounted"));
    let kept = fs::read_to_string(kim.files().join("kept"));
    assert_eq!(kept.expect("kept"), "text");
}

/// What a loss of power leaves of a scope that was just being made, and of one that was just being grown.
#[test]
fn a_scope_that_was_half_made_or_half_grown_is_made_good() {
    const NAME: &str = "a_scope_that_was_half_made_or_half_grown_is_made_good";
    let Some(mut ground) = Ground::lay(NAME) else {
        return;
    };
    let kim = ground.scope(KIM);
    kim.make().expect("made");
    kim.keep_limit(LIMIT).expect("kept");
    fs::write(kim.directory().join("image.new"), "half of it").expect("written");
    drop(ground.scopes.enter(&kim, Some(LIMIT)).expect("made good"));
    fs::write(kim.files().join("kept"), "text").expect("written");
    ground.restart();
    let image = File::options().write(true).open(kim.image());
    let image = image.expect("it has a file");
    let length = image.metadata().expect("there").len();
    image
        .set_len(length + (32 << 20))
        .expect("longer than its file system");
    drop(ground.scopes.enter(&kim, None).expect("it is mounted"));
    let size = shown_size(&kim);
    assert!(size >= LIMIT.0 - (1 << 20), "{size}");
    let kept = fs::read_to_string(kim.files().join("kept"));
    assert_eq!(kept.expect("kept"), "text");
    let before = fill(&kim.files().join("more"));
    assert!(before <= LIMIT.0, "{before}");
}
