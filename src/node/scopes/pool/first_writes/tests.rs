//! First writes on a real XFS in a real file: needs root, loop devices and a kernel with XFS, which need not have its quota.

use rules::storage::MIN_POOL;
use rules::units::Bytes;
use rustix::fs::{Advice, fadvise};

use super::super::{FolderPool, mount_at};
use super::*;

/// A mounted pool that counts nothing; it is unmounted when this goes.
struct Ground {
    pool: FolderPool,
    image: File,
    files: PathBuf,
    _directory: tempfile::TempDir,
}

impl Ground {
    /// Nothing where this machine cannot, after saying so.
    fn lay(test: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skips::skip(test, "needs root to mount a file system");
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let pool = FolderPool::of(directory.path());
        match pool.place.write(MIN_POOL, true) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                skips::skip(test, &error.to_string());
                return None;
            }
            written => written.expect("there is room"),
        }
        if let Err(error) = mount_at(&pool.place, "nouuid") {
            skips::skip(test, &error.to_string());
            return None;
        }
        Some(Self {
            image: File::open(pool.place.image()).expect("there"),
            files: pool.place.files(),
            pool,
            _directory: directory,
        })
    }

    fn unwritten(&self) -> u64 {
        unwritten(&self.image).expect("told")
    }

    fn write(&self) -> (FirstWritesEnd, Bytes) {
        self.pool.write_first(false).expect("written")
    }

    fn free(&self) -> u64 {
        let found = rustix::fs::statvfs(&self.files).expect("told");
        found.f_bfree * found.f_frsize
    }

    /// The kernel gives the room of removed files back a moment later.
    fn wait_for_free(&self, least: u64) {
        let until = Instant::now() + Duration::from_secs(30);
        while self.free() < least {
            assert!(Instant::now() < until, "{} of {least}", self.free());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = self.pool.close();
    }
}

#[test]
fn what_is_free_is_written_once_and_files_are_as_they_were() {
    const NAME: &str = "what_is_free_is_written_once_and_files_are_as_they_were";
    const FILES: u8 = 20;
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let at_first = ground.unwritten();
    assert!(at_first > MIN_POOL.0 / 2, "{at_first}");
    let kept = ground.files.join("kept");
    fs::write(&kept, vec![201; 20 << 20]).expect("written");
    let sync = |path: &Path| {
        let file = File::open(path).expect("there");
        file.sync_all().expect("on the disk");
        // What is read of it later comes from the disk.
        fadvise(&file, 0, None, Advice::DontNeed).expect("taken");
    };
    sync(&kept);
    // What a loss of power left.
    fs::create_dir(ground.files.join(PLACE)).expect("made");
    let path = |number: u8| ground.files.join(number.to_string());
    let (end, written) = std::thread::scope(|threads| {
        let writes = threads.spawn(|| ground.write());
        for number in 0..FILES {
            fs::write(path(number), vec![number + 1; 3 << 20]).expect("there is room");
            sync(&path(number));
        }
        writes.join().expect("no panic")
    });
    assert_eq!(end, FirstWritesEnd::Done);
    assert!(written <= MIN_POOL, "{written}");
    let left = ground.unwritten();
    assert!(left < MIN_POOL.0 / 32, "{left}");
    assert!(!ground.files.join(PLACE).exists());
    let is_all = |path: &Path, byte: u8, length: usize| {
        let found = fs::read(path).expect("there");
        found.len() == length && found.iter().all(|one| *one == byte)
    };
    assert!(is_all(&kept, 201, 20 << 20));
    for number in 0..FILES {
        assert!(is_all(&path(number), number + 1, 3 << 20), "{number}");
    }
    // The next server finds nothing to do.
    let (end, written) = ground.write();
    assert_eq!(end, FirstWritesEnd::Done);
    assert!(written < Bytes::mib(16), "{written}");
}

#[test]
fn the_part_by_which_a_pool_grew_is_written_and_nothing_twice() {
    const NAME: &str = "the_part_by_which_a_pool_grew_is_written_and_nothing_twice";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    assert_eq!(ground.write().0, FirstWritesEnd::Done);
    let larger = Bytes::mib(640);
    ground.pool.grow(larger).expect("the disk has room");
    let set_aside = ground.unwritten();
    assert!(set_aside >= 120 << 20, "{set_aside}");
    let (end, written) = ground.write();
    assert_eq!(end, FirstWritesEnd::Done);
    let left = ground.unwritten();
    assert!(left < larger.0 / 32, "{left}");
    assert!((100 << 20..160 << 20).contains(&written.0), "{written}");
}

#[test]
fn first_writes_leave_room_to_users_and_end_with_the_server() {
    const NAME: &str = "first_writes_leave_room_to_users_and_end_with_the_server";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let at_first = ground.free();
    let large = ground.files.join("large");
    let file = File::create(&large).expect("made");
    fallocate(&file, FallocateFlags::empty(), 0, at_first * 4 / 5).expect("there is room");
    let free = ground.free();
    assert_eq!(ground.write(), (FirstWritesEnd::Short, Bytes::ZERO));
    ground.wait_for_free(free - (1 << 20));
    drop(file);
    fs::remove_file(large).expect("removed");
    ground.wait_for_free(at_first * 9 / 10);
    // What a server that is killed in the middle has taken goes with it.
    let root = ground.pool.open().expect("mounted");
    let taken = nameless(&root).expect("made");
    let length = 64 << 20;
    fallocate(&taken, FallocateFlags::empty(), 0, length).expect("there is room");
    let free = ground.free();
    drop(taken);
    ground.wait_for_free(free + length - (1 << 20));
    ground.pool.is_leaving.store(true, Ordering::Release);
    assert_eq!(ground.write(), (FirstWritesEnd::Leaving, Bytes::ZERO));
    ground.pool.is_leaving.store(false, Ordering::Release);
    assert_eq!(ground.write().0, FirstWritesEnd::Done);
}

#[test]
fn others_who_move_a_mib_a_second_use_the_disk() {
    let counts = "  100 2 4096 7 50 3 2048 9 0 10 11 0 0 0 0\n";
    assert_eq!(moved(counts), Some(6144 * 512));
    for broken in ["", "1 2 3 4 5 6", "1 2 x 4 5 6 7"] {
        assert_eq!(moved(broken), None, "{broken}");
    }
    let second = Duration::from_secs(1);
    for (moved, own, expected) in [
        (0, 0, false),
        (1 << 20, 0, false),
        (2 << 20, 0, true),
        // What is written here makes no disk busy, nor what the file systems write for it.
        (100 << 20, 100 << 20, false),
        (106 << 20, 100 << 20, false),
        (110 << 20, 100 << 20, true),
        (0, 100 << 20, false),
    ] {
        assert_eq!(is_busy(moved, own, second), expected, "{moved} {own}");
    }
    assert!(is_busy(2 << 20, 0, second));
    assert!(!is_busy(2 << 20, 0, second * 3));
    // A disk of which the kernel tells nothing is quiet.
    let mut untold = DiskUse {
        counts: PathBuf::from("/sys/dev/block/none/stat"),
        looked: Instant::now() - second,
        moved: None,
        own: 0,
    };
    assert!(!untold.is_busy());
}
