//! Puts layers on an image: the new one holds both, and what is refused leaves nothing.

use std::fs;
use std::io::Cursor;
use std::os::unix::fs::FileTypeExt;

use tempfile::TempDir;

use super::super::archive::Archive;
use super::super::limits::ImportLimits;
use super::super::samples::{Producer, SampleImage, Tar};
use super::super::{ArchiveImport, names};
use super::*;

struct Bench {
    directory: TempDir,
    store: ImageStore,
    base: ImageRecord,
}

/// A store with one image; None, with the reason told, where images cannot be unpacked.
fn bench(test: &str, limits: ImportLimits) -> Option<Bench> {
    bench_in(tempfile::tempdir().unwrap(), test, limits)
}

fn bench_in(directory: TempDir, test: &str, limits: ImportLimits) -> Option<Bench> {
    let store = ImageStore::open(&directory.path().join("images"), limits).unwrap();
    if let Err(error) = store.can_unpack() {
        skips::skip(test, &error.to_string());
        return None;
    }
    let layer = Tar::default()
        .directory("etc/", 0o755)
        .file("etc/old", b"old")
        .file("etc/kept", b"kept")
        .end();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&SampleImage::of(vec![layer]).pack(Producer::Docker25))
        .unwrap();
    let request = ArchiveImport {
        archive: Archive::File(file),
        name: Some("base"),
        now: Timestamp::default(),
        cancelled: None,
    };
    let mut images = store.import(request, &mut |_| {}).unwrap();
    let base = images.remove(0).record;
    Some(Bench {
        directory,
        store,
        base,
    })
}

fn limits() -> ImportLimits {
    ImportLimits {
        reserve_bytes: 0,
        ..ImportLimits::default()
    }
}

impl Bench {
    fn commit(&self, layer: Vec<u8>, is_cancelled: bool) -> Result<ImportedImage, ImageError> {
        let cancelled = AtomicBool::new(is_cancelled);
        self.store.commit(LayerCommit {
            base: &self.base.id,
            layer: Box::new(Cursor::new(layer)),
            bytes: 0,
            reference: "mina/tools:1",
            now: Timestamp::from_millis(1_800_000_000_000),
            label: ("fardel.committed-from", "a session"),
            cancelled: &cancelled,
        })
    }

    /// Only the image below is there.
    fn assert_untouched(&self) {
        let at = |part: &str| names(&self.directory.path().join("images").join(part)).unwrap();
        assert!(at("staging").is_empty(), "{:?}", at("staging"));
        assert_eq!((at("layers").len(), at("records").len()), (1, 1));
    }
}

fn layer() -> Vec<u8> {
    Tar::default()
        .directory("./", 0o755)
        .directory("etc/", 0o755)
        .file("etc/.wh.old", b"")
        .file("etc/new", b"new")
        .end()
}

#[test]
fn an_image_and_a_layer_are_an_image() {
    let Some(bench) = bench("an_image_and_a_layer_are_an_image", limits()) else {
        return;
    };
    let made = bench.commit(layer(), false).unwrap();
    assert_eq!(made.record.layers.len(), 2);
    assert_eq!(made.record.layers[0], bench.base.layers[0]);
    assert_eq!(made.record.settings.env, bench.base.settings.env);
    assert_eq!(
        made.record.settings.labels["fardel.committed-from"],
        "a session"
    );
    assert_eq!(bench.store.image(&made.record.id).unwrap(), made.record);
    let config = Sha256Digest::of(made.record.config.as_bytes());
    assert_eq!(config, made.record.id);
    let top = &bench.store.layers(&made.record.id).unwrap()[0];
    assert_eq!(fs::read(top.join("etc/new")).unwrap(), b"new");
    let gone = fs::symlink_metadata(top.join("etc/old")).unwrap();
    assert!(gone.file_type().is_char_device());
    assert!(!top.join("etc/kept").exists(), "only what was changed");
    // A store that opens later keeps it, and it can be sent on.
    bench.store.transfer_manifest(&made.record.id).unwrap();
    bench.store.remove(&made.record.id).unwrap();
    bench.assert_untouched();
}

#[test]
fn a_commit_that_is_refused_leaves_nothing() {
    let Some(bench) = bench("a_commit_that_is_refused_leaves_nothing", limits()) else {
        return;
    };
    let code =
        |made: Result<ImportedImage, ImageError>| made.unwrap_err().code().map(str::to_owned);
    assert_eq!(
        code(bench.commit(layer(), true)).as_deref(),
        Some("commit.cancelled")
    );
    bench.assert_untouched();
    let mut cut = layer();
    cut.truncate(1024 + 100);
    assert_eq!(
        code(bench.commit(cut, false)).as_deref(),
        Some("image.truncated")
    );
    bench.assert_untouched();
    let other = Sha256Digest::of(b"no image");
    let nowhere = Bench {
        base: ImageRecord {
            id: other,
            ..bench.base.clone()
        },
        ..bench
    };
    assert_eq!(
        code(nowhere.commit(layer(), false)).as_deref(),
        Some("image.not-found")
    );
    nowhere.assert_untouched();
}

#[test]
fn a_disk_without_room_is_told_before_anything_is_read() {
    let Some(bench) = bench(
        "a_disk_without_room_is_told_before_anything_is_read",
        limits(),
    ) else {
        return;
    };
    struct Unread;
    impl Read for Unread {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            panic!("it was read")
        }
    }
    let refused = bench.store.commit(LayerCommit {
        base: &bench.base.id,
        layer: Box::new(Unread),
        bytes: u64::MAX,
        reference: "mina/tools:1",
        now: Timestamp::default(),
        label: ("fardel.committed-from", "a session"),
        cancelled: &AtomicBool::new(false),
    });
    assert_eq!(refused.unwrap_err().code(), Some("image.disk-full"));
    bench.assert_untouched();
}

#[test]
fn a_layer_beyond_the_limit_of_bytes_leaves_nothing() {
    let small = ImportLimits {
        unpacked_bytes: 64 << 10,
        ..limits()
    };
    let Some(bench) = bench("a_layer_beyond_the_limit_of_bytes_leaves_nothing", small) else {
        return;
    };
    let large = Tar::default().file("large", &[b'x'; 128 << 10]).end();
    let refused = bench.commit(large, false).unwrap_err();
    assert_eq!(refused.code(), Some("image.too-large"));
    bench.assert_untouched();
}

/// A small file system of its own, gone with the value.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount(size: &std::ffi::CStr) -> Result<Self, rustix::io::Errno> {
        let directory = tempfile::tempdir().unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("none", directory.path(), "tmpfs", flags, Some(size))?;
        Ok(Self(directory))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn a_disk_that_fills_in_the_middle_of_a_layer_keeps_nothing_of_it() {
    const NAME: &str = "a_disk_that_fills_in_the_middle_of_a_layer_keeps_nothing_of_it";
    let disk = match SmallDisk::mount(c"size=8m") {
        Ok(disk) => disk,
        Err(error) => {
            let reason = format!("a file system cannot be mounted here: {error}");
            return skips::skip(NAME, &reason);
        }
    };
    let directory = tempfile::tempdir_in(disk.0.path()).unwrap();
    let Some(bench) = bench_in(directory, NAME, limits()) else {
        return;
    };
    let room = || free_bytes(bench.store.staging.as_fd()).unwrap();
    let before = room();
    // Fewer bytes than between two looks at the disk: the write itself finds it full, in the third file.
    let part = vec![b'x'; 3 << 20];
    let layer_of = |files: &[&str]| {
        let start = Tar::default().directory("./", 0o755);
        let all = files.iter().fold(start, |tar, file| tar.file(file, &part));
        all.end()
    };
    let refused = bench.commit(layer_of(&["one", "two", "three"]), false);
    assert_eq!(refused.unwrap_err().code(), Some("image.disk-full"));
    bench.assert_untouched();
    assert_eq!(room(), before, "bytes of it are still there");
    // As much as fits is an image in the same store.
    let made = bench.commit(layer_of(&["one", "two"]), false).unwrap();
    assert_eq!(made.record.layers.len(), 2);
}
