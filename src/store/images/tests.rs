//! Imports hand-made archives: every shape, every refusal, every meaning of a whiteout.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use rules::units::Timestamp;
use tar::EntryType;
use tempfile::TempDir;

use super::archive::Archive;
use super::config::own_architecture;
use super::digest::Sha256Digest;
use super::failure::ImageError;
use super::limits::ImportLimits;
use super::samples::{PRODUCERS, Producer, SampleEntry, SampleImage, Tar, gzip, zstd};
use super::{ArchiveImport, ImageStore, ImportedImage};

/// A store in a directory of its own, with a neighbour that no import may touch.
struct StoreFixture {
    directory: TempDir,
    store: ImageStore,
}

impl StoreFixture {
    fn new() -> Self {
        Self::with(ImportLimits {
            reserve_bytes: 0,
            ..ImportLimits::default()
        })
    }

    fn with(limits: ImportLimits) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("neighbour"), "untouched").unwrap();
        let store = ImageStore::open(&directory.path().join("images"), limits).unwrap();
        Self { directory, store }
    }

    fn import(&self, archive: &[u8]) -> Result<Vec<ImportedImage>, ImageError> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(archive).unwrap();
        self.import_from(Archive::File(file))
    }

    fn import_from(&self, archive: Archive) -> Result<Vec<ImportedImage>, ImageError> {
        let request = ArchiveImport {
            archive,
            name: Some("tiny"),
            now: Timestamp::default(),
            cancelled: None,
        };
        self.store.import(request, &mut |_| {})
    }

    fn import_layers(&self, layers: Vec<Vec<u8>>) -> Result<ImportedImage, ImageError> {
        let archive = SampleImage::of(layers).pack(Producer::Docker25);
        self.import(&archive).map(|mut images| images.remove(0))
    }

    fn fs_of(&self, image: &ImportedImage, layer: usize) -> PathBuf {
        self.store
            .layer_path(&image.record.layers[layer].key)
            .join("fs")
    }

    /// Nothing kept, nothing left behind, nothing outside changed.
    fn assert_untouched(&self) {
        for part in ["layers", "records", "staging"] {
            let left = super::names(&self.directory.path().join("images").join(part)).unwrap();
            assert!(left.is_empty(), "{part} holds {left:?}");
        }
        self.assert_neighbourhood();
    }

    fn assert_neighbourhood(&self) {
        let names = super::names(self.directory.path()).unwrap();
        assert_eq!(names, ["images", "neighbour"]);
        let neighbour = fs::read_to_string(self.directory.path().join("neighbour")).unwrap();
        assert_eq!(neighbour, "untouched");
    }
}

/// Whether unpacking can work here; says why the test is skipped when not.
pub(super) fn can_unpack(test: &str) -> bool {
    let bench = StoreFixture::new();
    match bench.store.can_unpack() {
        Ok(()) => true,
        Err(error) => {
            skips::skip(test, &error.to_string());
            false
        }
    }
}

fn code(result: Result<Vec<ImportedImage>, ImageError>) -> String {
    match result {
        Ok(_) => "imported".into(),
        Err(ImageError::Refused(refusal)) => {
            assert!(refusal.text.ends_with('.'), "no sentence: {}", refusal.text);
            refusal.code.clone()
        }
        Err(ImageError::Fault(fault)) => panic!("a fault: {fault:?}"),
    }
}

fn base_layer() -> Vec<u8> {
    Tar::default()
        .directory("./", 0o755)
        .directory("bin/", 0o755)
        .add(&SampleEntry {
            name: "bin/sh",
            data: b"#!",
            mode: 0o4755,
            uid: 3,
            gid: 7,
            ..SampleEntry::default()
        })
        .hard_link("bin/ash", "bin/sh")
        .symlink("bin/link", "/etc/passwd")
        .directory("tmp/", 0o1777)
        .directory("etc/", 0o755)
        .file("etc/passwd", b"root:x:0:0::/root:/bin/sh\n")
        .file("etc/old", b"old")
        .directory("usr/lib/", 0o755)
        .symlink("lib", "usr/lib")
        .add(&SampleEntry {
            name: "run/pipe",
            kind: EntryType::Fifo,
            mode: 0o622,
            ..SampleEntry::default()
        })
        .add(&SampleEntry {
            name: "bin/ping",
            data: b"ping",
            mode: 0o755,
            pax: &[
                ("SCHILY.xattr.user.note", b"hello"),
                (
                    "SCHILY.xattr.security.capability",
                    b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
                ),
                ("mtime", b"1600000000.123456789"),
            ],
            ..SampleEntry::default()
        })
        .end()
}

fn top_layer() -> Vec<u8> {
    Tar::default()
        .directory("etc/", 0o755)
        .file("etc/.wh.old", b"")
        .file("etc/new", b"new")
        .directory("tmp/", 0o1777)
        .file("tmp/.wh..wh..opq", b"")
        .end()
}

/// Proves too: `the_producers_own_archives_show_the_same_files_as_umoci`
#[test]
fn every_producer_gives_the_same_image() {
    if !can_unpack("every_producer_gives_the_same_image") {
        return;
    }
    let sample = SampleImage::of(vec![base_layer(), top_layer()]);
    let mut first: Option<ImportedImage> = None;
    for producer in PRODUCERS {
        let bench = StoreFixture::new();
        let images = bench
            .import(&sample.pack(producer))
            .unwrap_or_else(|e| panic!("{producer:?}: {e}"));
        assert_eq!(images.len(), 1, "{producer:?}");
        let image = &images[0];
        let record = &image.record;
        assert_eq!(record.id, sample.id());
        let name = match producer {
            Producer::SkopeoZstd | Producer::Umoci => "tiny:1",
            _ => "lab/tiny:1",
        };
        assert_eq!(
            record.references.iter().collect::<Vec<_>>(),
            [name],
            "{producer:?}"
        );
        assert_eq!(record.settings.env, ["PATH=/bin", "A=b=c"]);
        assert_eq!(record.settings.cmd, ["/bin/sh"]);
        assert_eq!(record.settings.user, "1000:100");
        assert_eq!(record.settings.working_directory, "/work");
        assert_eq!(record.settings.exposed_ports, ["8888/tcp"]);
        assert_eq!(record.settings.stop_signal.as_deref(), Some("SIGINT"));
        assert_eq!(record.settings.labels["one"], "1");
        assert_eq!(record.created.as_deref(), Some("2026-01-02T03:04:05Z"));
        assert!(image.new_bytes > 0 && !image.known);
        let sh = fs::metadata(bench.fs_of(image, 0).join("bin/sh")).unwrap();
        assert_eq!(
            (sh.mode() & 0o7777, sh.uid(), sh.gid(), sh.nlink()),
            (0o4755, 3, 7, 2)
        );
        if let Some(first) = &first {
            let keys = |i: &ImportedImage| {
                i.record
                    .layers
                    .iter()
                    .map(|l| (l.key.clone(), l.bytes, l.entries))
                    .collect::<Vec<_>>()
            };
            assert_eq!(keys(image), keys(first), "{producer:?}");
        }
        assert_eq!(bench.store.verify(&record.id).unwrap().damage_count, 0);
        first = Some(images[0].clone());
    }
}

#[test]
fn the_same_layers_are_kept_once() {
    if !can_unpack("the_same_layers_are_kept_once") {
        return;
    }
    let bench = StoreFixture::new();
    let sample = SampleImage::of(vec![base_layer(), top_layer()]);
    let first = bench.import(&sample.pack(Producer::PodmanOci)).unwrap();
    let again = bench.import(&sample.pack(Producer::Docker20)).unwrap();
    assert!(again[0].known && again[0].new_bytes == 0);
    assert_eq!(
        again[0].record.layers[0].packed_bytes,
        base_layer().len() as u64
    );
    assert_eq!(
        again[0].record.references.iter().collect::<Vec<_>>(),
        ["lab/tiny:1"]
    );
    let other = SampleImage::with_run(
        vec![base_layer(), Tar::default().file("x", b"12345").end()],
        "{}",
    );
    let second = bench.import(&other.pack(Producer::SkopeoZstd)).unwrap();
    assert_eq!(second[0].new_bytes, 5);
    assert_eq!(
        super::names(&bench.directory.path().join("images/layers"))
            .unwrap()
            .len(),
        3
    );

    let usage = bench.store.usage().unwrap();
    assert_eq!(usage.images.len(), 2);
    let base_bytes = first[0].record.layers[0].bytes;
    assert!(
        usage
            .images
            .iter()
            .all(|image| image.shared_bytes == base_bytes)
    );

    let removed = bench.store.remove(&first[0].record.id).unwrap();
    assert_eq!(removed.layers, 1, "the shared layer must stay");
    assert_eq!(
        bench.store.verify(&second[0].record.id).unwrap().damages,
        Vec::<String>::new()
    );
    assert_eq!(bench.store.remove(&second[0].record.id).unwrap().layers, 2);
    assert_eq!(
        bench.store.remove(&second[0].record.id).unwrap_err().code(),
        Some("image.not-found")
    );
    bench.assert_untouched();
}

#[test]
fn a_layer_somebody_else_has_is_not_had_by_naming_it() {
    if !can_unpack("a_layer_somebody_else_has_is_not_had_by_naming_it") {
        return;
    }
    let bench = StoreFixture::new();
    bench.import_layers(vec![base_layer()]).unwrap();
    let mut thief = SampleImage::of(vec![base_layer()]);
    thief.layers[0] = Tar::default().file("other", b"bytes").end();
    assert_eq!(
        code(bench.import(&thief.pack(Producer::Docker20))),
        "image.digest-mismatch"
    );
}

#[test]
fn whiteouts_become_what_overlayfs_reads() {
    if !can_unpack("whiteouts_become_what_overlayfs_reads") {
        return;
    }
    let bench = StoreFixture::new();
    let image = bench
        .import_layers(vec![base_layer(), top_layer()])
        .unwrap();
    let top = bench.fs_of(&image, 1);
    let gone = fs::symlink_metadata(top.join("etc/old")).unwrap();
    assert!(gone.file_type().is_char_device() && gone.rdev() == 0);
    assert!(super::lower::is_opaque(std::os::fd::AsFd::as_fd(
        &File::open(top.join("tmp")).unwrap()
    )));
    assert_eq!(image.record.layers[1].key, image.record.layers[1].diff_id);
    let lowers = bench.store.layers(&image.record.id).unwrap();
    assert_eq!(lowers, [top, bench.fs_of(&image, 0)], "top-most first");
}

#[test]
fn a_directory_listed_after_its_contents_is_counted_once() {
    if !can_unpack("a_directory_listed_after_its_contents_is_counted_once") {
        return;
    }
    let bench = StoreFixture::new();
    let late = Tar::default()
        .file("srv/one", b"1")
        .directory("srv/", 0o750)
        .directory("srv/", 0o755)
        .end();
    let later = Tar::default()
        .file("tmp/.wh..wh..opq", b"")
        .directory("tmp/", 0o1777)
        .end();
    let image = bench
        .import_layers(vec![base_layer(), late, later])
        .unwrap();
    let check = bench.store.verify(&image.record.id).unwrap();
    assert_eq!(check.damages, Vec::<String>::new());
    let entries = |layer: usize| image.record.layers[layer].entries;
    assert_eq!((entries(1), entries(2)), (2, 1));
}

/// What a file system shows: path to a line about it.
fn shown(root: &Path) -> BTreeMap<String, String> {
    let mut seen = BTreeMap::new();
    let mut todo = vec![root.to_owned()];
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let name = path
                .strip_prefix(root)
                .unwrap()
                .to_string_lossy()
                .into_owned();
            let what = if meta.is_dir() {
                todo.push(path.clone());
                format!("dir {:o}", meta.mode() & 0o7777)
            } else if meta.is_symlink() {
                format!("link {}", fs::read_link(&path).unwrap().display())
            } else if meta.is_file() {
                format!(
                    "file {}",
                    String::from_utf8_lossy(&fs::read(&path).unwrap())
                )
            } else {
                format!("other {:o}", meta.mode())
            };
            seen.insert(name, what);
        }
    }
    seen
}

/// Mounts an image by overlayfs and gives what is seen through it.
fn mounted(bench: &StoreFixture, image: &ImportedImage) -> BTreeMap<String, String> {
    let at = tempfile::tempdir().unwrap();
    let mut lowers: Vec<String> = bench
        .store
        .layers(&image.record.id)
        .unwrap()
        .iter()
        .map(|p| p.display().to_string())
        .collect();
    // Overlayfs wants two; an empty one below changes nothing.
    let empty = tempfile::tempdir().unwrap();
    lowers.push(empty.path().display().to_string());
    let options = format!("lowerdir={}", lowers.join(":"));
    super::producers_test::mount_overlay(at.path(), &options);
    let seen = shown(at.path());
    super::producers_test::unmount(at.path());
    seen
}

fn can_mount(test: &str) -> bool {
    can_unpack(test) && super::producers_test::can_mount(test)
}

#[test]
fn a_layer_hides_and_shows_as_the_specification_says() {
    if !can_mount("a_layer_hides_and_shows_as_the_specification_says") {
        return;
    }
    let base = || {
        Tar::default()
            .directory("d/", 0o750)
            .file("d/one", b"1")
            .file("d/two", b"2")
            .file("f", b"f")
            .end()
    };
    // Upper layer, then what must be seen.
    type SeenFiles = &'static [(&'static str, &'static str)];
    let cases: Vec<(&str, Tar, SeenFiles)> = vec![
        (
            "file removed",
            Tar::default().file(".wh.f", b""),
            &[("d", "dir 750"), ("d/one", "file 1"), ("d/two", "file 2")],
        ),
        (
            "directory removed",
            Tar::default().file(".wh.d", b""),
            &[("f", "file f")],
        ),
        (
            "whiteout before its replacement",
            Tar::default()
                .file(".wh.d", b"")
                .directory("d/", 0o700)
                .file("d/new", b"n"),
            &[("d", "dir 700"), ("d/new", "file n"), ("f", "file f")],
        ),
        (
            "whiteout after its replacement",
            Tar::default()
                .directory("d/", 0o700)
                .file("d/new", b"n")
                .file(".wh.d", b""),
            &[("d", "dir 700"), ("d/new", "file n"), ("f", "file f")],
        ),
        (
            "file beside its own whiteout stays",
            Tar::default().file("f", b"mine").file(".wh.f", b""),
            &[
                ("d", "dir 750"),
                ("d/one", "file 1"),
                ("d/two", "file 2"),
                ("f", "file mine"),
            ],
        ),
        (
            "whiteout then the same file",
            Tar::default().file(".wh.f", b"").file("f", b"mine"),
            &[
                ("d", "dir 750"),
                ("d/one", "file 1"),
                ("d/two", "file 2"),
                ("f", "file mine"),
            ],
        ),
        (
            "opaque keeps its own",
            Tar::default()
                .directory("d/", 0o755)
                .file("d/new", b"n")
                .file("d/.wh..wh..opq", b""),
            &[("d", "dir 755"), ("d/new", "file n"), ("f", "file f")],
        ),
        (
            "opaque with a whiteout lists no device",
            Tar::default()
                .directory("d/", 0o755)
                .file("d/.wh.one", b"")
                .file("d/.wh..wh..opq", b""),
            &[("d", "dir 755"), ("f", "file f")],
        ),
        (
            "directory not listed keeps its description",
            Tar::default().file("d/new", b"n"),
            &[
                ("d", "dir 750"),
                ("d/new", "file n"),
                ("d/one", "file 1"),
                ("d/two", "file 2"),
                ("f", "file f"),
            ],
        ),
        (
            "whiteout of nothing lists no device",
            Tar::default()
                .directory("e/", 0o755)
                .file("e/.wh.nothing", b""),
            &[
                ("d", "dir 750"),
                ("d/one", "file 1"),
                ("d/two", "file 2"),
                ("e", "dir 755"),
                ("f", "file f"),
            ],
        ),
        (
            "file becomes directory",
            Tar::default().directory("f/", 0o711),
            &[
                ("d", "dir 750"),
                ("d/one", "file 1"),
                ("d/two", "file 2"),
                ("f", "dir 711"),
            ],
        ),
        (
            "directory becomes link",
            Tar::default().symlink("d", "f"),
            &[("d", "link f"), ("f", "file f")],
        ),
        (
            "opaque root",
            Tar::default().file("n", b"n").file(".wh..wh..opq", b""),
            &[("n", "file n")],
        ),
    ];
    for (name, upper, expected) in cases {
        let bench = StoreFixture::new();
        let image = bench
            .import_layers(vec![base(), upper.end()])
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        let expected: BTreeMap<String, String> = expected
            .iter()
            .map(|(p, w)| ((*p).to_owned(), (*w).to_owned()))
            .collect();
        assert_eq!(mounted(&bench, &image), expected, "{name}");
        let check = bench.store.verify(&image.record.id).unwrap();
        assert_eq!(check.damages, Vec::<String>::new(), "{name}");
    }
}

#[test]
fn a_layer_that_leans_on_the_ones_below_is_kept_for_that_stack_alone() {
    if !can_mount("a_layer_that_leans_on_the_ones_below_is_kept_for_that_stack_alone") {
        return;
    }
    let bench = StoreFixture::new();
    // The upper layer links to a file of the lower one, writes behind the lower one's link and
    // leaves a directory out.
    let upper = || {
        Tar::default()
            .hard_link("bin/again", "bin/sh")
            .file("lib/x", b"x")
            .file("tmp/y", b"y")
            .end()
    };
    let image = bench.import_layers(vec![base_layer(), upper()]).unwrap();
    let layer = &image.record.layers[1];
    assert_ne!(layer.key, layer.diff_id);
    let seen = mounted(&bench, &image);
    assert_eq!(seen["usr/lib/x"], "file x");
    assert_eq!(seen["lib"], "link usr/lib");
    assert_eq!(seen["tmp"], "dir 1777");
    assert_eq!(seen["bin/again"], "file #!");
    let top = bench.fs_of(&image, 1);
    let (again, sh) = (
        fs::metadata(top.join("bin/again")).unwrap(),
        fs::metadata(top.join("bin/sh")).unwrap(),
    );
    assert_eq!(
        (again.ino(), again.mode(), again.uid()),
        (sh.ino(), 0o104755, 3)
    );

    // The same layer over another base must not show the first base's directories.
    let other_base = Tar::default()
        .directory("tmp/", 0o700)
        .directory("bin/", 0o755)
        .file("bin/sh", b"other")
        .end();
    let other = bench
        .import(&SampleImage::with_run(vec![other_base, upper()], "{}").pack(Producer::Umoci))
        .unwrap();
    let seen = mounted(&bench, &other[0]);
    assert_eq!(seen["tmp"], "dir 700");
    assert_eq!(seen["bin/again"], "file other");
    assert_eq!(seen["lib/x"], "file x");
    let back = bench.import_layers(vec![base_layer(), upper()]).unwrap();
    assert_eq!((back.known, back.new_bytes), (true, 0));
}

#[test]
fn metadata_survives() {
    if !can_unpack("metadata_survives") {
        return;
    }
    let bench = StoreFixture::new();
    let image = bench.import_layers(vec![base_layer()]).unwrap();
    let root = bench.fs_of(&image, 0);
    let ping = fs::metadata(root.join("bin/ping")).unwrap();
    assert_eq!(
        (ping.mtime(), ping.mtime_nsec()),
        (1_600_000_000, 123_456_789)
    );
    let mut value = [0u8; 64];
    let n = rustix::fs::getxattr(root.join("bin/ping"), "user.note", &mut value[..]).unwrap();
    assert_eq!(&value[..n], b"hello");
    let n =
        rustix::fs::getxattr(root.join("bin/ping"), "security.capability", &mut value[..]).unwrap();
    assert_eq!(n, 20);
    let tmp = fs::metadata(root.join("tmp")).unwrap();
    assert_eq!((tmp.mode() & 0o7777, tmp.mtime()), (0o1777, 1_700_000_000));
    assert_eq!(
        fs::metadata(root.join("bin")).unwrap().mtime(),
        1_700_000_000,
        "after its files"
    );
    assert_eq!(
        fs::read_link(root.join("bin/link")).unwrap(),
        Path::new("/etc/passwd")
    );
    let link = fs::symlink_metadata(root.join("bin/link")).unwrap();
    assert_eq!(link.mtime(), 1_700_000_000);
    let pipe = fs::symlink_metadata(root.join("run/pipe")).unwrap();
    assert!(pipe.file_type().is_fifo());
    assert_eq!(pipe.permissions().mode() & 0o7777, 0o622);
}

#[test]
fn long_names_and_holes_are_understood() {
    if !can_unpack("long_names_and_holes_are_understood") {
        return;
    }
    let long = format!("{}/{}", "d".repeat(120), "f".repeat(200));
    let pax_name = format!("p/{}", "q".repeat(150));
    let mut map = b"2\n0\n4\n1048576\n4\n".to_vec();
    map.resize(512, 0);
    map.extend_from_slice(b"headtail");
    let layer = Tar::default()
        .file(&long, b"long")
        .add(&SampleEntry {
            name: "cut",
            data: b"pax",
            pax: &[("path", pax_name.as_bytes())],
            ..SampleEntry::default()
        })
        .symlink("s", &"t".repeat(300))
        .add(&SampleEntry {
            name: "GNUSparseFile.0/holes",
            data: &map,
            pax: &[
                ("GNU.sparse.major", b"1"),
                ("GNU.sparse.minor", b"0"),
                ("GNU.sparse.name", b"holes"),
                ("GNU.sparse.realsize", b"2097152"),
            ],
            ..SampleEntry::default()
        })
        .end();
    let bench = StoreFixture::new();
    let image = bench.import_layers(vec![layer]).unwrap();
    let root = bench.fs_of(&image, 0);
    assert_eq!(fs::read(root.join(&long)).unwrap(), b"long");
    assert_eq!(fs::read(root.join(&pax_name)).unwrap(), b"pax");
    assert_eq!(
        fs::read_link(root.join("s"))
            .unwrap()
            .as_os_str()
            .as_bytes(),
        "t".repeat(300).as_bytes()
    );
    let holes = fs::read(root.join("holes")).unwrap();
    assert_eq!(holes.len(), 2 << 20);
    assert_eq!(
        (&holes[..4], &holes[1 << 20..(1 << 20) + 4], holes[5]),
        (&b"head"[..], &b"tail"[..], 0)
    );
    assert!(
        fs::metadata(root.join("holes")).unwrap().blocks() * 512 < 1 << 20,
        "holes were filled"
    );
}

#[test]
fn a_directory_layout_is_taken_too() {
    if !can_unpack("a_directory_layout_is_taken_too") {
        return;
    }
    let bench = StoreFixture::new();
    let sample = SampleImage::of(vec![base_layer()]);
    let layout = tempfile::tempdir().unwrap();
    tar::Archive::new(&sample.pack(Producer::Umoci)[..])
        .unpack(layout.path())
        .unwrap();
    let images = bench
        .import_from(Archive::at(layout.path()).unwrap())
        .unwrap();
    assert_eq!(images[0].record.id, sample.id());

    // A blob that is a link out of the layout is not followed.
    let blob = layout.path().join("blobs/sha256").join(sample.id().hex());
    fs::remove_file(&blob).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", &blob).unwrap();
    assert_eq!(
        code(bench.import_from(Archive::at(layout.path()).unwrap())),
        "image.bad-link"
    );
}

#[test]
fn an_archive_compressed_as_a_whole_is_taken() {
    if !can_unpack("an_archive_compressed_as_a_whole_is_taken") {
        return;
    }
    for compress in [gzip, zstd] {
        let bench = StoreFixture::new();
        let sample = SampleImage::of(vec![base_layer()]);
        let images = bench
            .import(&compress(&sample.pack(Producer::PodmanDocker)))
            .unwrap();
        assert_eq!(images[0].record.id, sample.id());
        assert_eq!(
            super::names(&bench.directory.path().join("images/staging")).unwrap(),
            Vec::<String>::new()
        );
    }
}

#[test]
fn a_layer_listed_twice_is_mounted_once() {
    if !can_mount("a_layer_listed_twice_is_mounted_once") {
        return;
    }
    let bench = StoreFixture::new();
    let empty = || Tar::default().end();
    let image = bench
        .import_layers(vec![base_layer(), empty(), top_layer(), empty()])
        .unwrap();
    assert_eq!(image.record.layers.len(), 4);
    assert_eq!(bench.store.layers(&image.record.id).unwrap().len(), 3);
    assert_eq!(mounted(&bench, &image)["etc/new"], "file new");
}

/// Promise (Images): A hostile archive is refused with a stable code. Nothing outside the image store changes,
/// and nothing is left behind.
#[test]
fn hostile_layers_are_refused_by_name() {
    if !can_unpack("hostile_layers_are_refused_by_name") {
        return;
    }
    let entry = |name: &'static str, kind: EntryType| SampleEntry {
        name,
        kind,
        ..SampleEntry::default()
    };
    let deep = "d/".repeat(300);
    let long_part = "x".repeat(300);
    let cases: Vec<(&str, Tar)> = vec![
        (
            "image.path-escape",
            Tar::default().file("../neighbour", b"x"),
        ),
        (
            "image.path-escape",
            Tar::default().file("a/../../neighbour", b"x"),
        ),
        (
            "image.path-escape",
            Tar::default().file("/etc/passwd", b"x"),
        ),
        ("image.path-escape", Tar::default().directory("..", 0o777)),
        ("image.path-escape", Tar::default().symlink("./", "/")),
        ("image.path-escape", Tar::default().file(".", b"x")),
        (
            "image.path-escape",
            Tar::default().hard_link("a", "../../../../etc/passwd"),
        ),
        (
            "image.path-escape",
            Tar::default().hard_link("a", "/etc/passwd"),
        ),
        ("image.path-escape", Tar::default().file("a/../.wh.b", b"")),
        (
            "image.through-link",
            Tar::default().symlink("l", "/tmp").file("l/x", b"x"),
        ),
        (
            "image.through-link",
            Tar::default().symlink("l", "..").file("l/x", b"x"),
        ),
        (
            "image.through-link",
            Tar::default()
                .symlink("a", "b")
                .symlink("b", "a")
                .file("a/x", b"x"),
        ),
        (
            "image.through-link",
            Tar::default().symlink("l", ".").directory("l/x/", 0o755),
        ),
        (
            "image.through-link",
            Tar::default().symlink("l", "/").file("l/.wh..wh..opq", b""),
        ),
        (
            "image.bad-link",
            Tar::default()
                .symlink("l", "/etc")
                .hard_link("a", "l/passwd"),
        ),
        ("image.bad-link", Tar::default().hard_link("a", "missing")),
        (
            "image.bad-link",
            Tar::default().directory("d/", 0o755).hard_link("a", "d"),
        ),
        ("image.bad-link", Tar::default().hard_link("a", "./")),
        ("image.bad-link", Tar::default().symlink("l", "")),
        (
            "image.duplicate-member",
            Tar::default().symlink("f", "/etc/passwd").file("f", b"x"),
        ),
        (
            "image.duplicate-member",
            Tar::default().file("f", b"1").file("./f", b"2"),
        ),
        (
            "image.duplicate-member",
            Tar::default().file("f", b"1").directory("f/", 0o755),
        ),
        (
            "image.duplicate-member",
            Tar::default().directory("f/", 0o755).file("f", b"1"),
        ),
        (
            "image.duplicate-member",
            Tar::default().directory("d/", 0o755).symlink("d", "/"),
        ),
        (
            "image.duplicate-member",
            Tar::default().file("f", b"1").file("f/x", b"2"),
        ),
        (
            "image.duplicate-member",
            Tar::default().symlink("l", "/etc").directory("l/", 0o777),
        ),
        (
            "image.device-node",
            Tar::default().add(&SampleEntry {
                device: (8, 0),
                ..entry("dev/sda", EntryType::Block)
            }),
        ),
        (
            "image.device-node",
            Tar::default().add(&SampleEntry {
                device: (1, 1),
                ..entry("dev/mem", EntryType::Char)
            }),
        ),
        (
            "image.device-node",
            Tar::default().add(&SampleEntry {
                device: (1, 1),
                ..entry("dev/null", EntryType::Char)
            }),
        ),
        (
            "image.device-node",
            Tar::default().add(&SampleEntry {
                device: (1, 3),
                ..entry("home/null", EntryType::Char)
            }),
        ),
        (
            "image.device-node",
            Tar::default().add(&entry("w", EntryType::Char)),
        ),
        ("image.bad-whiteout", Tar::default().file(".wh.", b"")),
        ("image.bad-whiteout", Tar::default().file(".wh..", b"")),
        ("image.bad-whiteout", Tar::default().file(".wh...", b"")),
        ("image.bad-whiteout", Tar::default().file("d/.wh.x/y", b"")),
        (
            "image.bad-whiteout",
            Tar::default().file(".wh..wh.plnk", b""),
        ),
        (
            "image.bad-owner",
            Tar::default().add(&SampleEntry {
                uid: 4_294_967_295,
                ..entry("f", EntryType::Regular)
            }),
        ),
        (
            "image.bad-owner",
            Tar::default().add(&SampleEntry {
                gid: 4_294_967_295,
                ..entry("f", EntryType::Regular)
            }),
        ),
        (
            "image.bad-owner",
            Tar::default().add(&SampleEntry {
                pax: &[("uid", b"4294967296")],
                ..entry("f", EntryType::Regular)
            }),
        ),
        (
            "image.bad-owner",
            Tar::default().add(&SampleEntry {
                uid: 4_294_967_295,
                ..entry("./", EntryType::Directory)
            }),
        ),
        (
            "image.bad-attribute",
            Tar::default().add(&SampleEntry {
                pax: &[("SCHILY.xattr.trusted.overlay.redirect", b"/etc")],
                ..entry("d/", EntryType::Directory)
            }),
        ),
        (
            "image.bad-attribute",
            Tar::default().add(&SampleEntry {
                pax: &[("SCHILY.xattr.trusted.overlay.opaque", b"y")],
                ..entry("d/", EntryType::Directory)
            }),
        ),
        (
            "image.bad-attribute",
            Tar::default().add(&SampleEntry {
                pax: &[("SCHILY.xattr.user.overlay.metacopy", b"")],
                ..entry("f", EntryType::Regular)
            }),
        ),
        (
            "image.bad-attribute",
            Tar::default().add(&SampleEntry {
                pax: &[("SCHILY.xattr.security.capability", b"no")],
                ..entry("f", EntryType::Regular)
            }),
        ),
        ("image.path-too-long", Tar::default().file(&deep, b"")),
        ("image.path-too-long", Tar::default().file(&long_part, b"")),
        (
            "image.bad-member",
            Tar::default().add(&SampleEntry {
                data: b"smuggled",
                ..entry("d/", EntryType::Directory)
            }),
        ),
        (
            "image.bad-member",
            Tar::default().add(&SampleEntry {
                size: Some(512),
                link: "f",
                ..entry("l", EntryType::Link)
            }),
        ),
        (
            "image.bad-member",
            Tar::default().add(&entry("m", EntryType::new(b'M'))),
        ),
        (
            "image.bad-member",
            Tar::default().add(&SampleEntry {
                pax: &[("path", b"a\0b")],
                ..entry("f", EntryType::Regular)
            }),
        ),
        (
            "image.bad-member",
            Tar::default().add(&SampleEntry {
                pax: &[("size", b"-1")],
                ..entry("f", EntryType::Regular)
            }),
        ),
        (
            "image.bad-member",
            Tar::default().add(&SampleEntry {
                size: Some(u64::MAX / 4),
                ..entry("f", EntryType::XHeader)
            }),
        ),
        (
            "image.bad-member",
            Tar::default().add(&SampleEntry {
                size: Some(1 << 33),
                ..entry("f", EntryType::GNULongName)
            }),
        ),
        ("image.bad-member", Tar::default().raw(&[b'x'; 512])),
        (
            "image.bad-member",
            Tar::default().add(&SampleEntry {
                pax: &[("GNU.sparse.map", b"0,9,5,9"), ("GNU.sparse.size", b"20")],
                data: b"123456789123456789",
                ..entry("s", EntryType::Regular)
            }),
        ),
        (
            "image.bad-member",
            Tar::default().add(&SampleEntry {
                pax: &[("GNU.sparse.map", b"0,4"), ("GNU.sparse.size", b"20")],
                data: b"12345678",
                ..entry("s", EntryType::Regular)
            }),
        ),
        (
            "image.too-large",
            Tar::default().add(&SampleEntry {
                pax: &[
                    ("GNU.sparse.map", b"0,4"),
                    ("GNU.sparse.size", b"9000000000000000000"),
                ],
                data: b"1234",
                ..entry("s", EntryType::Regular)
            }),
        ),
        (
            "image.truncated",
            Tar::default().add(&SampleEntry {
                size: Some(1 << 20),
                data: b"short",
                ..entry("f", EntryType::Regular)
            }),
        ),
        (
            "image.truncated",
            Tar::default().file("a", b"1").raw(&[1; 100]),
        ),
    ];
    for (number, (expected, layer)) in cases.into_iter().enumerate() {
        let bench = StoreFixture::new();
        let layer = if expected == "image.truncated" {
            layer.bytes_only()
        } else {
            layer.end()
        };
        let archive = SampleImage::of(vec![layer]).pack(Producer::Docker25);
        assert_eq!(code(bench.import(&archive)), expected, "case {number}");
        bench.assert_untouched();
    }
}

/// Proves too: `hostile_layers_are_refused_by_name`
#[test]
fn a_link_of_one_layer_is_never_followed_out_by_the_next() {
    if !can_unpack("a_link_of_one_layer_is_never_followed_out_by_the_next") {
        return;
    }
    let bench = StoreFixture::new();
    let outside = bench.directory.path().display().to_string();
    // `out` leads to the directory of the store's neighbour; `up` climbs.
    let base = Tar::default()
        .symlink("out", &outside)
        .symlink("up", "../../../../..")
        .symlink("round", "round")
        .end();
    let upper = Tar::default()
        .file("out/neighbour", b"x")
        .file("up/etc/evil", b"x")
        .end();
    let image = bench.import_layers(vec![base.clone(), upper]).unwrap();
    bench.assert_neighbourhood();
    let top = bench.fs_of(&image, 1);
    let inside = top.join(outside.trim_start_matches('/')).join("neighbour");
    assert_eq!(fs::read(inside).unwrap(), b"x");
    assert_eq!(fs::read(top.join("etc/evil")).unwrap(), b"x");

    let looping = Tar::default().file("round/x", b"x").end();
    let archive = SampleImage::with_run(vec![base, looping], "{}").pack(Producer::Umoci);
    assert_eq!(code(bench.import(&archive)), "image.through-link");
}

/// Proves too: `hostile_layers_are_refused_by_name`
#[test]
fn a_link_is_not_followed_to_directories_that_exist_outside() {
    if !can_unpack("a_link_is_not_followed_to_directories_that_exist_outside") {
        return;
    }
    // Only the middle of the path is a link, and all of it exists: an unpacker that guards the last
    // part alone, or looks before it opens, ends up outside.
    let attempts: [fn(Tar) -> Tar; 6] = [
        |tar| tar.file("l/images/records/evil", b"x"),
        |tar| tar.directory("l/images/records/evil/", 0o777),
        |tar| tar.directory("l/images/records/", 0o777),
        |tar| tar.symlink("l/images/records/evil", "/"),
        |tar| tar.file("l/images/records/.wh..wh..opq", b""),
        |tar| tar.file("f", b"x").hard_link("l/images/records/evil", "f"),
    ];
    for (number, attempt) in attempts.into_iter().enumerate() {
        for target in ["outside", "climbing"] {
            let bench = StoreFixture::new();
            let outside = bench.directory.path();
            let before = fs::metadata(outside.join("images/records")).unwrap();
            let link = match target {
                "outside" => outside.display().to_string(),
                // fs, layer, import, staging, images
                _ => "../../../../..".to_owned(),
            };
            let layer = attempt(Tar::default().symlink("l", &link)).end();
            let archive = SampleImage::of(vec![layer]).pack(Producer::Docker20);
            assert_eq!(
                code(bench.import(&archive)),
                "image.through-link",
                "{number} {target}"
            );
            bench.assert_untouched();
            let after = fs::metadata(outside.join("images/records")).unwrap();
            assert_eq!(
                (after.mode(), after.mtime()),
                (before.mode(), before.mtime())
            );

            let link = Tar::default()
                .symlink("l", &link)
                .hard_link("stolen", "l/neighbour")
                .end();
            let archive = SampleImage::of(vec![link]).pack(Producer::Docker20);
            assert_eq!(code(bench.import(&archive)), "image.bad-link");
            bench.assert_untouched();
        }
    }
}

#[test]
fn layers_that_are_not_what_was_declared_are_refused() {
    if !can_unpack("layers_that_are_not_what_was_declared_are_refused") {
        return;
    }
    let mut wrong_layer = SampleImage::of(vec![base_layer()]);
    let layer = &mut wrong_layer.layers[0];
    let data = layer.windows(6).position(|w| w == b"root:x").unwrap();
    layer[data] ^= 1;
    for producer in PRODUCERS {
        let bench = StoreFixture::new();
        let refused = code(bench.import(&wrong_layer.pack(producer)));
        assert_eq!(refused, "image.digest-mismatch", "{producer:?}");
        bench.assert_untouched();
    }
}

/// Proves too: `hostile_layers_are_refused_by_name`
#[test]
fn hostile_archives_are_refused_by_name() {
    let sample = || SampleImage::of(vec![base_layer()]);
    let good = sample().pack(Producer::PodmanOci);
    let docker = |manifest: &str| Tar::default().file("manifest.json", manifest.as_bytes());
    let index = |manifests: &str| {
        Tar::default().file("oci-layout", b"{}").file(
            "index.json",
            format!(r#"{{"manifests":[{manifests}]}}"#).as_bytes(),
        )
    };
    let cut = good[..good.len() * 2 / 3].to_vec();
    let zeros = "0".repeat(64);
    let bytes_with = |needle: &[u8], replacement: &[u8]| {
        assert_eq!(needle.len(), replacement.len());
        let mut bytes = good.clone();
        let at = bytes
            .windows(needle.len())
            .position(|w| w == needle)
            .unwrap();
        bytes[at..at + needle.len()].copy_from_slice(replacement);
        bytes
    };
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("image.unreadable", b"not an archive at all".repeat(100)),
        ("image.unreadable", vec![0x7f; 4096]),
        ("image.no-manifest", Vec::new()),
        ("image.no-manifest", Tar::default().file("etc/passwd", b"root").end()),
        ("image.no-manifest", Tar::default().file("repositories", b"{}").end()),
        ("image.no-manifest", index("").end()),
        ("image.bad-manifest", docker("{").end()),
        ("image.bad-manifest", docker("[]").end()),
        ("image.bad-manifest", docker(r#"[{"Layers":[]}]"#).end()),
        ("image.bad-manifest", index(r#"{"digest":"md5:1","size":1}"#).end()),
        ("image.bad-manifest", index(r#"{"digest":"sha256:../../../etc/passwd","size":1}"#).end()),
        ("image.missing-blob", docker(r#"[{"Config":"x.json","Layers":["y"]}]"#).end()),
        ("image.missing-blob", docker(r#"[{"Config":"../../etc/passwd","Layers":["y"]}]"#).end()),
        ("image.missing-blob", index(&format!(r#"{{"digest":"sha256:{zeros}","size":1}}"#)).end()),
        ("image.digest-mismatch", index(&format!(r#"{{"digest":"sha256:{zeros}","size":1}}"#)).file(&format!("blobs/sha256/{zeros}"), b"x").end()),
        ("image.size-mismatch", index(&format!(r#"{{"digest":"sha256:{zeros}","size":2}}"#)).file(&format!("blobs/sha256/{zeros}"), b"x").end()),
        ("image.digest-mismatch", bytes_with(b"\"A=b=c\"", b"\"A=b=d\"")),
        ("image.truncated", cut),
        ("image.duplicate-member", docker("[]").file("./manifest.json", b"[]").end()),
        ("image.path-escape", docker("[]").file("../x", b"").end()),
        ("image.path-escape", docker("[]").symlink("a/l", "../../x").end()),
        ("image.path-escape", docker("[]").symlink("l", "/etc/passwd").end()),
        ("image.bad-link", docker(r#"[{"Config":"a","Layers":["y"]}]"#).symlink("a", "b").symlink("b", "a").end()),
        ("image.device-node", docker("[]").add(&SampleEntry { name: "d", kind: EntryType::Char, ..SampleEntry::default() }).end()),
        ("image.compression", b"\xfd7zXZ\0whatever".repeat(100)),
        ("image.damaged", [&gzip(b"x")[..10], &[0xff; 600]].concat()),
        ("image.document-too-large", Tar::default().file("manifest.json", &vec![b' '; 9 << 20]).end()),
        ("image.architecture", index(r#"{"digest":"sha256:1","size":1,"platform":{"architecture":"s390x","os":"linux"}}"#).end()),
        ("image.architecture", index(r#"{"digest":"sha256:1","size":1,"platform":{"architecture":"amd64","os":"windows"}}"#).end()),
        ("image.empty", SampleImage::of(vec![]).pack(Producer::Docker20)),
        ("image.too-many-layers", SampleImage::of(vec![Tar::default().end(); 128]).pack(Producer::Umoci)),
    ];
    for (number, (expected, archive)) in cases.into_iter().enumerate() {
        let bench = StoreFixture::new();
        assert_eq!(code(bench.import(&archive)), expected, "case {number}");
        bench.assert_untouched();
    }
    let mut lying = sample();
    lying.config = String::from_utf8(lying.config)
        .unwrap()
        .replace(own_architecture(), "riscv64")
        .into_bytes();
    assert_eq!(
        code(StoreFixture::new().import(&lying.pack(Producer::PodmanDocker))),
        "image.architecture"
    );
    let mut more = sample();
    more.config = SampleImage::of(vec![base_layer(), top_layer()]).config;
    assert_eq!(
        code(StoreFixture::new().import(&more.pack(Producer::PodmanDocker))),
        "image.bad-config"
    );
}

/// Proves too: `hostile_layers_are_refused_by_name`
#[test]
fn configurations_nothing_could_run_are_refused() {
    let big = "x".repeat(1 << 20);
    let many: Vec<String> = (0..10_001).map(|n| format!("\"V{n}=\"")).collect();
    let cases = [
        ("image.config-too-large", format!(r#"{{"User":"{big}"}}"#)),
        (
            "image.config-too-large",
            format!(r#"{{"Env":["A={big}"]}}"#),
        ),
        (
            "image.config-too-large",
            format!(r#"{{"Entrypoint":["{big}"]}}"#),
        ),
        (
            "image.config-too-large",
            format!(r#"{{"Env":[{}]}}"#, many.join(",")),
        ),
        (
            "image.config-too-large",
            format!(r#"{{"Labels":{{"a":"{big}"}}}}"#),
        ),
        ("image.bad-config", r#"{"User":"4294967295"}"#.into()),
        ("image.bad-config", r#"{"User":"0:99999999999"}"#.into()),
        ("image.bad-config", r#"{"User":"a\u0000b"}"#.into()),
        ("image.bad-config", r#"{"Env":["A=\u0000"]}"#.into()),
        ("image.bad-config", r#"{"Env":["no equals"]}"#.into()),
        ("image.bad-config", r#"{"Env":["=x"]}"#.into()),
        ("image.bad-config", r#"{"Cmd":["a\u0000"]}"#.into()),
        ("image.bad-config", r#"{"Cmd":"not a list"}"#.into()),
        ("image.bad-config", r#"{"WorkingDir":"relative"}"#.into()),
    ];
    for (expected, run) in cases {
        let bench = StoreFixture::new();
        let archive = SampleImage::with_run(vec![base_layer()], &run).pack(Producer::PodmanDocker);
        assert_eq!(
            code(bench.import(&archive)),
            expected,
            "{}",
            &run[..run.len().min(60)]
        );
        bench.assert_untouched();
    }
}

/// Proves too: `hostile_layers_are_refused_by_name`
#[test]
fn bombs_and_full_disks_are_refused_early() {
    if !can_unpack("bombs_and_full_disks_are_refused_early") {
        return;
    }
    let zeros = Tar::default().file("zeros", &vec![0u8; 8 << 20]).end();
    for producer in [Producer::PodmanOci, Producer::SkopeoZstd] {
        let archive = SampleImage::of(vec![zeros.clone()]).pack(producer);
        let ratio = ImportLimits {
            ratio: 100,
            ratio_grace_bytes: 1 << 20,
            reserve_bytes: 0,
            ..ImportLimits::default()
        };
        let bench = StoreFixture::with(ratio);
        assert_eq!(code(bench.import(&archive)), "image.bomb", "{producer:?}");
        bench.assert_untouched();
    }
    let archive = SampleImage::of(vec![zeros.clone()]).pack(Producer::Docker20);
    let bench = StoreFixture::with(ImportLimits {
        unpacked_bytes: 4 << 20,
        reserve_bytes: 0,
        ..ImportLimits::default()
    });
    assert_eq!(code(bench.import(&archive)), "image.too-large");
    bench.assert_untouched();
    let bench = StoreFixture::with(ImportLimits {
        unpacked_bytes: 4 << 20,
        reserve_bytes: 0,
        ..ImportLimits::default()
    });
    assert_eq!(code(bench.import(&gzip(&archive))), "image.bomb");
    bench.assert_untouched();
    let bench = StoreFixture::with(ImportLimits {
        reserve_bytes: 1 << 60,
        ..ImportLimits::default()
    });
    assert_eq!(code(bench.import(&archive)), "image.disk-full");
    bench.assert_untouched();
    let bench = StoreFixture::with(ImportLimits {
        members: 3,
        reserve_bytes: 0,
        ..ImportLimits::default()
    });
    assert_eq!(
        code(bench.import(&SampleImage::of(vec![base_layer()]).pack(Producer::Umoci))),
        "image.too-many-members"
    );
    bench.assert_untouched();
    let bench = StoreFixture::with(ImportLimits {
        directory_name_bytes: 200,
        reserve_bytes: 0,
        ..ImportLimits::default()
    });
    assert_eq!(
        code(bench.import(&SampleImage::of(vec![base_layer()]).pack(Producer::Umoci))),
        "image.too-many-members"
    );
    bench.assert_untouched();
}

#[test]
fn the_extended_headers_of_one_member_are_bounded_together() {
    let attributes = |bytes: usize| b"19 SCHILY.xattr.a=\n".repeat(bytes / 19);
    let header = |tar: Tar, kind, data: &[u8]| {
        tar.add(&SampleEntry {
            name: "extended",
            kind,
            data,
            ..SampleEntry::default()
        })
    };
    let records = |tar, bytes| header(tar, EntryType::XHeader, &attributes(bytes));
    let name = |tar| header(tar, EntryType::GNULongName, b"manifest.json\0");
    let comment = |tar| header(tar, EntryType::XGlobalHeader, b"12 comment=\n");
    let few = |tar| name(records(comment(tar), 700 << 10));
    let told = |tar: Tar| code(StoreFixture::new().import(&tar.file("manifest.json", b"").end()));
    let ordinary = told(few(Tar::default()));
    assert_ne!(
        ordinary, "image.bad-member",
        "one long name and many attributes"
    );
    // Each member has a measure of its own.
    let two = few(records(Tar::default(), 700 << 10).file("other", b""));
    assert_eq!(told(two), ordinary);
    for (what, tar) in [
        (
            "bytes",
            records(records(Tar::default(), 700 << 10), 700 << 10),
        ),
        ("names", (0..17).fold(Tar::default(), |tar, _| name(tar))),
        (
            "comments",
            (0..17).fold(Tar::default(), |tar, _| comment(tar)),
        ),
        (
            "records",
            (0..17).fold(Tar::default(), |tar, _| records(tar, 100)),
        ),
    ] {
        assert_eq!(told(tar), "image.bad-member", "{what}");
    }
}

#[test]
fn the_usual_devices_are_left_out_with_a_warning() {
    if !can_unpack("the_usual_devices_are_left_out_with_a_warning") {
        return;
    }
    let bench = StoreFixture::new();
    let null = SampleEntry {
        name: "./dev/null",
        kind: EntryType::Char,
        device: (1, 3),
        ..SampleEntry::default()
    };
    let image = bench
        .import_layers(vec![
            Tar::default().directory("./dev/", 0o755).add(&null).end(),
        ])
        .unwrap();
    assert_eq!(image.record.warnings.len(), 1);
    assert!(!bench.fs_of(&image, 0).join("dev/null").exists());
}

#[test]
fn a_cancelled_import_leaves_nothing() {
    if !can_unpack("a_cancelled_import_leaves_nothing") {
        return;
    }
    let bench = StoreFixture::new();
    let flag = AtomicBool::new(false);
    let layer = Tar::default()
        .file(
            "big",
            &(0..4u32 << 20)
                .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
                .collect::<Vec<_>>(),
        )
        .end();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&SampleImage::of(vec![layer]).pack(Producer::Docker20))
        .unwrap();
    let request = ArchiveImport {
        archive: Archive::File(file),
        name: None,
        now: Timestamp::default(),
        cancelled: Some(&flag),
    };
    let mut told = Vec::new();
    let result = bench.store.import(request, &mut |progress| {
        told.push(progress.done_bytes);
        flag.store(
            progress.done_bytes > 0,
            std::sync::atomic::Ordering::Relaxed,
        );
    });
    assert_eq!(result.unwrap_err().code(), Some("image.cancelled"));
    assert!(told.len() >= 3, "{told:?}");
    bench.assert_untouched();
}

#[test]
fn opening_clears_what_a_crash_left() {
    if !can_unpack("opening_clears_what_a_crash_left") {
        return;
    }
    let bench = StoreFixture::new();
    let image = bench.import_layers(vec![base_layer()]).unwrap();
    let root = bench.directory.path().join("images");
    let orphan = Sha256Digest::of(b"a layer renamed into place before the crash");
    fs::create_dir_all(root.join("layers").join(orphan.hex()).join("fs/etc")).unwrap();
    fs::create_dir_all(root.join("staging/import-1/layer-0/fs")).unwrap();
    std::os::unix::fs::symlink(
        bench.directory.path(),
        root.join("staging/import-1/layer-0/fs/out"),
    )
    .unwrap();
    // Not while it is open: then it is an import under way.
    let beside = ImageStore::open(&root, ImportLimits::default()).unwrap();
    assert!(
        root.join("staging/import-1").exists() && root.join("layers").join(orphan.hex()).exists()
    );
    drop(beside);
    let StoreFixture { directory, store } = bench;
    drop(store);

    let again = ImageStore::open(&root, ImportLimits::default()).unwrap();
    assert_eq!(
        super::names(&root.join("staging")).unwrap(),
        Vec::<String>::new()
    );
    assert_eq!(
        super::names(&root.join("layers")).unwrap(),
        [image.record.layers[0].key.hex()]
    );
    assert_eq!(
        again.list().unwrap().as_slice(),
        std::slice::from_ref(&image.record)
    );
    assert_eq!(
        fs::read_to_string(directory.path().join("neighbour")).unwrap(),
        "untouched"
    );
    drop(again);

    // A record that cannot be read may need any layer: nothing is removed then.
    fs::write(
        root.join("records")
            .join(format!("{}.json", image.record.id.hex())),
        "{",
    )
    .unwrap();
    let again = ImageStore::open(&root, ImportLimits::default()).unwrap();
    assert_eq!(again.list().unwrap(), []);
    assert_eq!(super::names(&root.join("layers")).unwrap().len(), 1);
}

#[test]
fn damage_is_found_and_named() {
    if !can_unpack("damage_is_found_and_named") {
        return;
    }
    let bench = StoreFixture::new();
    let image = bench.import_layers(vec![base_layer()]).unwrap();
    let root = bench.fs_of(&image, 0);
    fs::write(root.join("etc/passwd"), "root:x:0:0::/root:/bin/ba\n").unwrap();
    fs::remove_file(root.join("etc/old")).unwrap();
    let check = bench.store.verify(&image.record.id).unwrap();
    assert_eq!(
        check.damages,
        [
            "etc/passwd has other contents.".to_owned(),
            "etc/old is missing.".to_owned(),
            format!(
                "Layer {} holds 13 entries instead of 14.",
                image.record.layers[0].key.short()
            ),
        ]
    );
}

#[test]
fn two_imports_at_once_share_their_layers() {
    if !can_unpack("two_imports_at_once_share_their_layers") {
        return;
    }
    let bench = StoreFixture::new();
    let archive = SampleImage::of(vec![base_layer(), top_layer()]).pack(Producer::Docker25);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| bench.import(&archive).unwrap());
        }
    });
    assert_eq!(
        super::names(&bench.directory.path().join("images/layers"))
            .unwrap()
            .len(),
        2
    );
    assert_eq!(
        super::names(&bench.directory.path().join("images/staging")).unwrap(),
        Vec::<String>::new()
    );
    let id = &bench.store.list().unwrap()[0].id;
    assert_eq!(bench.store.verify(id).unwrap().damage_count, 0);
}

/// A small generator (xorshift64*), so that a seed names a whole run.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % most.max(1)
    }

    fn one_of<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// Twelve bytes that mean something in a header.
const LIES: [&[u8]; 6] = [
    b"777777777777",
    b"000000000000",
    b"../../../../",
    b"/etc/passwd\0",
    b"\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    b".wh..wh..opq",
];

/// Damages bytes as disks, cables and attackers do.
fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        match random.below(6) {
            0 | 1 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
            2 => bytes.truncate(at),
            3 => {
                let block = at / 512 * 512;
                let to = random.below(bytes.len()) / 512 * 512;
                let copy = bytes[block..bytes.len().min(block + 512)].to_vec();
                bytes.splice(to..to, copy);
            }
            4 => {
                let block = at / 512 * 512;
                bytes.drain(block..bytes.len().min(block + 512));
            }
            _ => {
                let end = bytes.len().min(at + 12);
                let digits = random.one_of(&LIES);
                bytes[at..end].copy_from_slice(&digits[..end - at]);
            }
        }
    }
}

/// Makes the checksum of every header right again, so that damage gets past it.
fn mend_checksums(bytes: &mut [u8]) {
    let mut at = 0;
    while at + 512 <= bytes.len() {
        let mut header = tar::Header::new_old();
        header.as_mut_bytes().copy_from_slice(&bytes[at..at + 512]);
        if header.as_bytes().iter().all(|b| *b == 0) {
            return;
        }
        header.set_cksum();
        bytes[at..at + 512].copy_from_slice(header.as_bytes());
        let size = header.entry_size().unwrap_or(0).min(bytes.len() as u64);
        at += 512 + usize::try_from(size.div_ceil(512) * 512).unwrap();
    }
}

/// One damaged import: whatever it says, nothing outside changes and nothing is left behind.
fn survive(seed: u64) -> bool {
    let bench = StoreFixture::new();
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let outside = bench.directory.path().display().to_string();
    let links = Tar::default()
        .symlink("out", &outside)
        .symlink("up", "../../../../../..")
        .file("out/images/records/evil", b"x")
        .end();
    let long = Tar::default()
        .file(&"l".repeat(180), b"long")
        .hard_link("h", &"l".repeat(180))
        .end();
    let mut layers = vec![base_layer(), top_layer(), long];
    if random.below(2) == 0 {
        // The link of this layer would be followed: refused unless damage gets in the way.
        layers.push(links);
    }
    let deep = random.below(4) > 0;
    if deep {
        let layer = random.below(layers.len());
        damage(&mut layers[layer], &mut random);
        if random.below(4) > 0 {
            mend_checksums(&mut layers[layer]);
        }
    }
    let mut archive = SampleImage::of(layers).pack(*random.one_of(&PRODUCERS));
    if !deep {
        damage(&mut archive, &mut random);
        if random.below(2) == 0 {
            mend_checksums(&mut archive);
        }
    }
    let imported = match bench.import(&archive) {
        Ok(images) => {
            for image in &images {
                let check = bench.store.verify(&image.record.id).unwrap();
                assert_eq!(check.damages, Vec::<String>::new());
                bench.store.remove(&image.record.id).unwrap();
            }
            true
        }
        Err(ImageError::Refused(refusal)) => {
            assert!(refusal.code.starts_with("image."), "{}", refusal.code);
            false
        }
        Err(ImageError::Fault(fault)) => panic!("a damaged archive is no fault of ours: {fault:?}"),
    };
    bench.assert_untouched();
    imported
}

/// Proves too: `hostile_layers_are_refused_by_name`
#[test]
fn damaged_archives_never_escape_panic_or_leave_anything() {
    if !can_unpack("damaged_archives_never_escape_panic_or_leave_anything") {
        return;
    }
    if let Ok(seed) = std::env::var("FARDEL_SEED") {
        survive(seed.parse().unwrap());
        return;
    }
    let seeds = std::env::var("FARDEL_SEEDS").map_or(20, |n| n.parse().unwrap());
    let fresh = u64::from(std::process::id()) << 20;
    let mut imported = 0;
    for seed in (0..80).chain(fresh..fresh + seeds) {
        let survived = std::panic::catch_unwind(|| survive(seed));
        match survived {
            Ok(was_imported) => imported += u64::from(was_imported),
            Err(_) => panic!("FARDEL_SEED={seed} fails"),
        }
    }
    let all = seeds + 80;
    assert!(
        (all / 20..all * 4 / 5).contains(&imported),
        "{imported} of {all} imported: the damage shows nothing"
    );
}

/// Tells a copy of this test binary to be the process that is killed: store, then archive.
const VICTIM: &str = "FARDEL_TEST_VICTIM";

#[test]
fn a_killed_import_leaves_whole_images_or_nothing() {
    if let Some(places) = std::env::var_os(VICTIM) {
        let places = places.into_string().unwrap();
        let (root, archive) = places.split_once('\n').unwrap();
        let store = ImageStore::open(Path::new(root), ImportLimits::default()).unwrap();
        let request = ArchiveImport {
            archive: Archive::at(Path::new(archive)).unwrap(),
            name: None,
            now: Timestamp::default(),
            cancelled: None,
        };
        println!("importing");
        store.import(request, &mut |_| {}).unwrap();
        return;
    }
    if !can_unpack("a_killed_import_leaves_whole_images_or_nothing") {
        return;
    }
    let mut many = Tar::default().directory("d/", 0o755);
    for number in 0..3000 {
        many = many.file(&format!("d/{number}"), &[7; 100]);
    }
    let sample = SampleImage::of(vec![base_layer(), many.end(), top_layer()]);
    let directory = tempfile::tempdir().unwrap();
    let archive = directory.path().join("archive.tar");
    fs::write(&archive, sample.pack(Producer::PodmanOci)).unwrap();
    let seed = u64::from(std::process::id());
    let mut random = Random(seed | 1);
    let mut cut = 0;
    for round in 0..8 {
        let root = directory.path().join("images");
        let mut victim = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "images::tests::a_killed_import_leaves_whole_images_or_nothing",
                "--nocapture",
            ])
            .env(VICTIM, format!("{}\n{}", root.display(), archive.display()))
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // Wait until it has begun, so that the kill falls into the work and not before it.
        let mut said = std::io::BufReader::new(victim.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("importing")
            && std::io::BufRead::read_line(&mut said, &mut line).unwrap() > 0
        {}
        // The first at once, so that at least one import is surely cut.
        let most = if round == 0 { 1 } else { 150 };
        std::thread::sleep(std::time::Duration::from_millis(random.below(most) as u64));
        victim.kill().unwrap();
        victim.wait().unwrap();

        let store = ImageStore::open(&root, ImportLimits::default()).unwrap();
        let staging = super::names(&root.join("staging")).unwrap();
        assert!(staging.is_empty(), "seed {seed} round {round}: {staging:?}");
        let images = store.list().unwrap();
        let layers = super::names(&root.join("layers")).unwrap();
        match images.as_slice() {
            [] => {
                cut += 1;
                assert!(layers.is_empty(), "seed {seed} round {round}: {layers:?}");
            }
            [image] => {
                let check = store.verify(&image.id).unwrap();
                assert_eq!(
                    check.damages,
                    Vec::<String>::new(),
                    "seed {seed} round {round}"
                );
                assert_eq!(layers.len(), 3);
                store.remove(&image.id).unwrap();
            }
            more => panic!("{} images of one", more.len()),
        }
    }
    assert!(
        cut > 0,
        "seed {seed}: every import was over before its kill"
    );
}
