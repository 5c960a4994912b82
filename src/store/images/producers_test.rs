//! Compares imports with what the producers' own tools say, file by file: type, mode, owner,
//! content, attributes, hard links, times. Needs root, overlayfs and the tools; says what is missing
//! and returns where they are not there.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rules::units::Timestamp;
use rustix::fs::{AtFlags, FileType, Mode, Timespec, Timestamps, XattrFlags};
use rustix::mount::{MountFlags, UnmountFlags};

use super::archive::Archive;
use super::digest::Sha256Digest;
use super::limits::ImportLimits;
use super::samples::{Producer, SampleEntry, SampleImage, Tar};
use super::{ArchiveImport, ImageStore, ImportedImage};

/// Mounts overlayfs read-only.
pub(super) fn mount_overlay(at: &Path, options: &str) {
    try_mount(at, options).expect("overlayfs mounts what the store says");
}

fn try_mount(at: &Path, options: &str) -> Result<(), rustix::io::Errno> {
    let options = std::ffi::CString::new(options).expect("paths without zero");
    rustix::mount::mount(
        "overlay",
        at,
        "overlay",
        MountFlags::RDONLY,
        options.as_c_str(),
    )
}

pub(super) fn unmount(at: &Path) {
    rustix::mount::unmount(at, UnmountFlags::DETACH).expect("what was mounted can be unmounted");
}

/// Whether overlayfs can be mounted here; says why a test is skipped when not.
pub(super) fn can_mount(test: &str) -> bool {
    let (at, one, two) = (
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let options = format!("lowerdir={}:{}", one.path().display(), two.path().display());
    match try_mount(at.path(), &options) {
        Ok(()) => {
            unmount(at.path());
            true
        }
        Err(error) => {
            skips::skip(test, &format!("overlayfs cannot be mounted: {error}"));
            false
        }
    }
}

/// Whether root and these tools are here; says what is missing when not.
fn can_run(test: &str, tools: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    for tool in tools {
        if !std::env::split_paths(&path).any(|directory| directory.join(tool).exists()) {
            skips::skip(test, &format!("{tool} is not installed"));
            return false;
        }
    }
    super::tests::can_unpack(test) && can_mount(test)
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Everything a root file system shows, one line for each path.
fn described(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut lines = BTreeMap::new();
    let mut linked: HashMap<(u64, u64), Vec<PathBuf>> = HashMap::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(root.join(&directory)).unwrap() {
            let name = directory.join(entry.unwrap().file_name());
            let path = root.join(&name);
            let meta = fs::symlink_metadata(&path).unwrap();
            let mut line = format!(
                "{:o} {}:{} {}.{:09}",
                meta.mode(),
                meta.uid(),
                meta.gid(),
                meta.mtime(),
                meta.mtime_nsec()
            );
            if meta.is_dir() {
                todo.push(name.clone());
            } else if meta.is_symlink() {
                line += &format!(" -> {}", fs::read_link(&path).unwrap().display());
            } else if meta.is_file() {
                line += &format!(
                    " {} {}",
                    meta.len(),
                    Sha256Digest::of(&fs::read(&path).unwrap())
                );
            }
            for attribute in attributes(&path) {
                line += &format!(" {attribute}");
            }
            if !meta.is_dir() && meta.nlink() > 1 {
                linked
                    .entry((meta.dev(), meta.ino()))
                    .or_default()
                    .push(name.clone());
            }
            lines.insert(name, line);
        }
    }
    for mut group in linked.into_values() {
        group.sort();
        for name in &group {
            *lines.get_mut(name).unwrap() += &format!(" linked {group:?}");
        }
    }
    lines
}

fn attributes(path: &Path) -> Vec<String> {
    let mut names = vec![0u8; 4096];
    let n = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let mut all = Vec::new();
    for name in names[..n]
        .split(|b| *b == 0)
        .filter(|name| !name.is_empty())
    {
        let mut value = vec![0u8; 4096];
        let n = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
        all.push(format!(
            "{}={:?}",
            String::from_utf8_lossy(name),
            &value[..n]
        ));
    }
    all.sort();
    all
}

/// What an import shows once overlayfs has put its layers together.
fn imported(archive: &Path) -> (ImportedImage, BTreeMap<PathBuf, String>) {
    let directory = tempfile::tempdir().unwrap();
    let limits = ImportLimits {
        reserve_bytes: 0,
        ..ImportLimits::default()
    };
    let store = ImageStore::open(directory.path(), limits).unwrap();
    let request = ArchiveImport {
        archive: Archive::at(archive).unwrap(),
        name: Some("tiny"),
        now: Timestamp::default(),
        cancelled: None,
    };
    let image = store.import(request, &mut |_| {}).unwrap().remove(0);
    assert_eq!(
        store.verify(&image.record.id).unwrap().damages,
        Vec::<String>::new()
    );
    let (at, empty) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut lowers = Vec::new();
    for layer in store.layers(&image.record.id).unwrap() {
        lowers.push(layer.display().to_string());
    }
    // Overlayfs wants two; an empty one below changes nothing.
    lowers.push(empty.path().display().to_string());
    mount_overlay(at.path(), &format!("lowerdir={}", lowers.join(":")));
    let seen = described(at.path());
    unmount(at.path());
    (image, seen)
}

fn assert_same(what: &str, ours: &BTreeMap<PathBuf, String>, theirs: &BTreeMap<PathBuf, String>) {
    let mut differences = Vec::new();
    for path in ours.keys().chain(theirs.keys()) {
        if ours.get(path) != theirs.get(path) {
            differences.push(format!(
                "{}\n  ours   {:?}\n  theirs {:?}",
                path.display(),
                ours.get(path),
                theirs.get(path)
            ));
        }
    }
    differences.dedup();
    assert!(
        differences.is_empty(),
        "{what}:\n{}",
        differences.join("\n")
    );
}

fn touch(path: &Path, seconds: i64, nanoseconds: i64) {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A root with everything that is easily lost on the way.
fn fill_first(root: &Path) {
    for directory in [
        "bin",
        "etc",
        "home/user",
        "usr/lib",
        "var/gone/deep",
        "var/emptied",
        "var/file",
        "var/link",
        "closed",
    ] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    fs::create_dir(root.join("tmp")).unwrap();
    mode(&root.join("tmp"), 0o1777);
    mode(&root.join("closed"), 0o000);
    symlink("usr/lib", root.join("lib")).unwrap();
    symlink("/proc/self/exe", root.join("absolute")).unwrap();
    symlink("dangling/../../..", root.join("dangling")).unwrap();
    fs::write(root.join("bin/setuid"), "#!").unwrap();
    std::os::unix::fs::chown(root.join("bin/setuid"), Some(7), Some(70_000)).unwrap();
    mode(&root.join("bin/setuid"), 0o6751);
    fs::write(root.join("bin/ping"), "ping").unwrap();
    let capability = b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    rustix::fs::setxattr(
        root.join("bin/ping"),
        "security.capability",
        capability,
        XattrFlags::empty(),
    )
    .unwrap();
    // On a directory that later layers leave alone: where one lists a directory again, the store takes
    // its attributes from there, as the specification says; umoci keeps the older ones beside them.
    rustix::fs::setxattr(
        root.join("bin"),
        "user.note",
        b"of a directory",
        XattrFlags::empty(),
    )
    .unwrap();
    fs::write(root.join("etc/old"), "old").unwrap();
    fs::write(root.join("etc/kept"), "kept").unwrap();
    mode(&root.join("etc/kept"), 0o000);
    for name in ["one", "two", "three"] {
        match name {
            "one" => fs::write(root.join("home/user/one"), "linked").unwrap(),
            _ => fs::hard_link(
                root.join("home/user/one"),
                root.join("home/user").join(name),
            )
            .unwrap(),
        }
    }
    std::os::unix::fs::chown(root.join("home/user"), Some(1000), Some(1000)).unwrap();
    fs::write(root.join("var/gone/deep/file"), "gone").unwrap();
    fs::write(root.join("var/emptied/file"), "gone").unwrap();
    fs::write(root.join("var/file/inside"), "directory becomes file").unwrap();
    fs::write(root.join("var/link/inside"), "directory becomes link").unwrap();
    let fifo = FileType::Fifo;
    rustix::fs::mknodat(
        rustix::fs::CWD,
        root.join("var/pipe"),
        fifo,
        Mode::from_raw_mode(0o640),
        0,
    )
    .unwrap();
    let sparse = File::create(root.join("var/sparse")).unwrap();
    sparse.set_len(3 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"middle", 1 << 20).unwrap();
    let long = format!("{}/{}", "d".repeat(130), "f".repeat(240));
    fs::create_dir(root.join("d".repeat(130))).unwrap();
    fs::write(root.join(long), "long").unwrap();
    fs::write(root.join("etc/한글 이름\nzweite Zeile"), "name").unwrap();
    fs::write(
        root.join(OsString::from_vec(b"etc/\xff\xfe".to_vec())),
        "not UTF-8",
    )
    .unwrap();
    fs::write(root.join("empty"), "").unwrap();
    fs::write(
        root.join("big"),
        (0..300_000u32)
            .flat_map(|n| n.to_le_bytes())
            .collect::<Vec<_>>(),
    )
    .unwrap();
    touch(&root.join("etc/old"), 1_600_000_000, 0);
    touch(&root.join("etc"), 1_500_000_000, 0);
    touch(&root.join("lib"), 1_400_000_000, 0);
}

/// A second layer with every kind of change.
fn change(root: &Path) {
    fs::remove_file(root.join("etc/old")).unwrap();
    fs::remove_dir_all(root.join("var/gone")).unwrap();
    fs::remove_dir_all(root.join("var/emptied")).unwrap();
    fs::create_dir(root.join("var/emptied")).unwrap();
    fs::write(root.join("var/emptied/new"), "new").unwrap();
    fs::remove_file(root.join("absolute")).unwrap();
    fs::create_dir(root.join("absolute")).unwrap();
    fs::write(root.join("absolute/inside"), "link becomes directory").unwrap();
    fs::write(root.join("home/user/one"), "changed through a hard link").unwrap();
    mode(&root.join("closed"), 0o700);
    fs::write(root.join("usr/lib/new"), "beside the link").unwrap();
}

/// A third layer that undoes part of the second.
fn change_again(root: &Path) {
    fs::remove_file(root.join("home/user/two")).unwrap();
    fs::create_dir_all(root.join("var/gone/deep")).unwrap();
    fs::write(root.join("var/gone/other"), "back, but different").unwrap();
    fs::remove_file(root.join("var/emptied/new")).unwrap();
    rustix::fs::setxattr(
        root.join("etc/kept"),
        "user.late",
        b"yes",
        XattrFlags::empty(),
    )
    .unwrap();
    mode(&root.join("etc/kept"), 0o400);
}

/// What umoci writes in a way that podman's storage cannot read back: whiteouts below a file.
fn change_beyond_podman(root: &Path) {
    fs::remove_dir_all(root.join("var/file")).unwrap();
    fs::write(root.join("var/file"), "now a file").unwrap();
    fs::remove_dir_all(root.join("var/link")).unwrap();
    symlink("emptied", root.join("var/link")).unwrap();
}

/// Promise (Images): Archives of docker 20.10, docker 25, podman, skopeo (zstd) and umoci give the same files
/// as `umoci unpack`: type, mode, owner, content, attributes, hard links, time.
#[test]
fn the_producers_own_archives_show_the_same_files_as_umoci() {
    let test = "the_producers_own_archives_show_the_same_files_as_umoci";
    if !can_run(test, &["umoci", "skopeo", "podman"]) {
        return;
    }
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name).display().to_string();
    let (layout, image) = (at("layout"), format!("{}:1", at("layout")));
    run("umoci", &["init", "--layout", &layout]);
    run("umoci", &["new", "--image", &image]);
    for (number, fill) in [fill_first, change, change_again].iter().enumerate() {
        let bundle = at(&format!("bundle-{number}"));
        run("umoci", &["unpack", "--image", &image, &bundle]);
        fill(&Path::new(&bundle).join("rootfs"));
        run("umoci", &["repack", "--image", &image, &bundle]);
    }
    run(
        "umoci",
        &[
            "config",
            "--image",
            &image,
            "--config.env",
            "A=b",
            "--config.cmd",
            "/bin/sh",
        ],
    );
    run("umoci", &["unpack", "--image", &image, &at("truth")]);
    let truth = described(&work.path().join("truth/rootfs"));
    assert!(truth.len() > 25, "the comparison would show nothing");

    let oci = format!("oci:{image}");
    let zstd = format!("oci:{}:1", at("zstd"));
    run(
        "skopeo",
        &["copy", "-q", "--dest-compress-format", "zstd", &oci, &zstd],
    );
    let storage = format!(
        "containers-storage:[vfs@{}+{}]localhost/lab:1",
        at("storage"),
        at("run")
    );
    run("skopeo", &["copy", "-q", &oci, &storage]);
    let (root, runroot) = (at("storage"), at("run"));
    for format in ["docker-archive", "oci-archive"] {
        let out = at(format);
        run(
            "podman",
            &[
                "--root",
                &root,
                "--runroot",
                &runroot,
                "--storage-driver",
                "vfs",
                "--runtime",
                "runc",
                "save",
                "-q",
                "--format",
                format,
                "-o",
                &out,
                "localhost/lab:1",
            ],
        );
    }
    run("tar", &["-C", &layout, "-cf", &at("umoci.tar"), "."]);
    run("tar", &["-C", &at("zstd"), "-cf", &at("zstd.tar"), "."]);

    // Both shapes of docker, from the very layers podman saved.
    let sample = sample_of(&fs::read(at("docker-archive")).unwrap());
    fs::write(at("docker-20"), sample.pack(Producer::Docker20)).unwrap();
    fs::write(at("docker-25"), sample.pack(Producer::Docker25)).unwrap();

    let mut ids = Vec::new();
    for shape in [
        "docker-20",
        "docker-25",
        "docker-archive",
        "oci-archive",
        "zstd.tar",
        "umoci.tar",
        "layout",
    ] {
        let (image, seen) = imported(&work.path().join(shape));
        assert_same(shape, &seen, &truth);
        ids.push(image.record.id);
    }
    ids.dedup();
    assert_eq!(ids.len(), 1, "the same configuration in every shape");

    run("umoci", &["unpack", "--image", &image, &at("last")]);
    change_beyond_podman(&work.path().join("last/rootfs"));
    run("umoci", &["repack", "--image", &image, &at("last")]);
    run("umoci", &["unpack", "--image", &image, &at("last-truth")]);
    let truth = described(&work.path().join("last-truth/rootfs"));
    assert_same(
        "a directory that became a file",
        &imported(Path::new(&layout)).1,
        &truth,
    );
}

/// Layers and configuration of a docker-archive.
fn sample_of(archive: &[u8]) -> SampleImage {
    let mut layers: HashMap<Sha256Digest, Vec<u8>> = HashMap::new();
    let mut config = Vec::new();
    for entry in tar::Archive::new(archive).entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path_bytes().into_owned();
        if entry.header().entry_type() != tar::EntryType::Regular {
            continue;
        }
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut bytes).unwrap();
        if name.ends_with(b".tar") {
            layers.insert(Sha256Digest::of(&bytes), bytes);
        } else if name.len() == 69 && name.ends_with(b".json") {
            config = bytes;
        }
    }
    let document: serde_json::Value = serde_json::from_slice(&config).unwrap();
    let diff_ids = document["rootfs"]["diff_ids"].as_array().unwrap();
    let ordered = diff_ids.iter().map(|id| {
        let id = Sha256Digest::parse(id.as_str().unwrap()).unwrap();
        layers[&id].clone()
    });
    SampleImage {
        layers: ordered.collect(),
        config,
    }
}

/// Proves too: `the_producers_own_archives_show_the_same_files_as_umoci`
#[test]
fn layers_no_engine_writes_show_the_same_files_as_umoci() {
    let test = "layers_no_engine_writes_show_the_same_files_as_umoci";
    if !can_run(test, &["umoci"]) {
        return;
    }
    // Unlisted parents, a file behind a lower link, a hard link to a lower file, a replaced type.
    let base = Tar::default()
        .directory("tmp/", 0o1777)
        .directory("usr/", 0o755)
        .directory("usr/lib/", 0o755)
        .symlink("lib", "usr/lib")
        .directory("bin/", 0o711)
        .add(&SampleEntry {
            name: "bin/sh",
            data: b"#!",
            mode: 0o4755,
            uid: 5,
            ..SampleEntry::default()
        })
        .directory("opt/", 0o755)
        .file("opt/thing", b"thing")
        .end();
    let upper = Tar::default()
        .hard_link("bin/again", "bin/sh")
        .directory("opt/", 0o700)
        .file("opt/.wh.thing", b"")
        .file("opt/.wh.never", b"")
        .end();
    let work = tempfile::tempdir().unwrap();
    let layout = work.path().join("layout");
    fs::create_dir(&layout).unwrap();
    let archive = SampleImage::of(vec![base, upper]).pack(Producer::Umoci);
    tar::Archive::new(&archive[..]).unpack(&layout).unwrap();
    let truth = work.path().join("truth");
    run(
        "umoci",
        &[
            "unpack",
            "--image",
            &format!("{}:1", layout.display()),
            &truth.display().to_string(),
        ],
    );
    let (_, seen) = imported(&layout);
    let mut truth = described(&truth.join("rootfs"));
    // umoci lets a new hard link change the time of the directory it lies in; the archive says
    // nothing about that directory, so it keeps the time it had.
    let time_of = |lines: &BTreeMap<PathBuf, String>| lines[Path::new("bin")].clone();
    assert!(time_of(&seen).starts_with("40711 0:0 1700000000."));
    truth.insert("bin".into(), time_of(&seen));
    assert_same("hand-made", &seen, &truth);
    assert_eq!(
        seen[Path::new("bin/again")].as_bytes(),
        seen[Path::new("bin/sh")].as_bytes()
    );
    assert!(
        !seen
            .keys()
            .any(|p| p.as_os_str().as_bytes().starts_with(b"opt/"))
    );
}
