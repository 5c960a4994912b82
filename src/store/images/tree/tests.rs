//! Small trees in temporary directories: what one layer lists, and that two builds give the same bytes.

use std::fs::{self, FileTimes};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use super::*;

const LATEST: u32 = 1_750_000_000;

fn tree() -> TempDir {
    let tree = tempfile::tempdir().unwrap();
    // What a directory for one user alone has would be another mode than that of a root.
    fs::set_permissions(tree.path(), fs::Permissions::from_mode(0o755)).unwrap();
    tree
}

fn put(tree: &TempDir, name: &str, content: &str) {
    let path = tree.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn opened_root(tree: &TempDir) -> OwnedFd {
    lower::open_directory(rustix::fs::CWD, tree.path().as_os_str().as_encoded_bytes()).unwrap()
}

fn snapshot(tree: &TempDir) -> TreeSnapshot {
    TreeSnapshot::of(opened_root(tree).as_fd()).unwrap()
}

fn layer(tree: &TempDir, before: &TreeSnapshot) -> Vec<u8> {
    let (mut bytes, root) = (Vec::new(), opened_root(tree));
    let after = snapshot(tree);
    let written = after.write_layer(before, root.as_fd(), LATEST, &mut bytes);
    let written = written.unwrap();
    assert_eq!(written.digest, Sha256Digest::of(&bytes));
    assert_eq!(written.bytes, bytes.len() as u64);
    bytes
}

fn names(layer: &[u8]) -> Vec<String> {
    let mut archive = tar::Archive::new(layer);
    let mut names = Vec::new();
    for member in archive.entries().unwrap() {
        let member = member.unwrap();
        assert!(member.header().mtime().unwrap() <= u64::from(LATEST));
        names.push(String::from_utf8_lossy(&member.path_bytes()).into_owned());
    }
    names
}

#[test]
fn two_builds_give_the_same_bytes() {
    let (one, other) = (tree(), tree());
    put(&one, "usr/bin/tool", "run");
    fs::hard_link(one.path().join("usr/bin/tool"), one.path().join("usr-tool")).unwrap();
    put(&one, "etc/motd", "hello");
    fs::hard_link(one.path().join("etc/motd"), one.path().join("etc/other")).unwrap();
    symlink("usr/bin", one.path().join("bin")).unwrap();
    // The other one is made in another order, later, and with what one run leaves.
    symlink("usr/bin", other.path().join("bin")).unwrap();
    put(&other, "etc/motd", "hello");
    fs::hard_link(
        other.path().join("etc/motd"),
        other.path().join("etc/other"),
    )
    .unwrap();
    put(&other, "usr-tool", "run");
    fs::create_dir_all(other.path().join("usr/bin")).unwrap();
    fs::hard_link(
        other.path().join("usr-tool"),
        other.path().join("usr/bin/tool"),
    )
    .unwrap();
    let later = SystemTime::now() + Duration::from_secs(86_400);
    let file = File::open(other.path().join("usr/bin/tool")).unwrap();
    file.set_times(FileTimes::new().set_modified(later))
        .unwrap();
    put(&other, "etc/machine-id", "1");
    let empty = TreeSnapshot::default();
    let bytes = layer(&one, &empty);
    assert_eq!(bytes, layer(&other, &empty));
    assert!(snapshot(&one).differences(&snapshot(&other)).is_empty());
    let listed = [
        "./",
        "bin",
        "etc",
        "etc/motd",
        "etc/other",
        "usr",
        "usr/bin",
        "usr/bin/tool",
        "usr-tool",
    ];
    assert_eq!(names(&bytes), listed, "a file before its further names");
    put(&other, "etc/motd", "bye");
    let differences = snapshot(&one).differences(&snapshot(&other));
    assert_eq!(differences, ["etc/motd", "etc/other"]);
    assert_ne!(bytes, layer(&other, &empty));
}

#[test]
fn a_layer_lists_what_its_step_changed() {
    let tree = tree();
    put(&tree, "etc/kept", "kept");
    put(&tree, "etc/old", "old");
    put(&tree, "usr/gone/deep/file", "1");
    put(&tree, "usr/twice", "same");
    fs::hard_link(
        tree.path().join("usr/twice"),
        tree.path().join("usr/another"),
    )
    .unwrap();
    let before = snapshot(&tree);
    fs::remove_file(tree.path().join("etc/old")).unwrap();
    fs::remove_dir_all(tree.path().join("usr/gone")).unwrap();
    put(&tree, "opt/new", "new");
    fs::hard_link(
        tree.path().join("usr/another"),
        tree.path().join("usr/third"),
    )
    .unwrap();
    let bytes = layer(&tree, &before);
    // A further name of a file brings the file along: a layer stands by itself.
    let listed = [
        "./",
        "etc/.wh.old",
        "usr/.wh.gone",
        "opt",
        "opt/new",
        "usr",
        "usr/another",
        "usr/third",
    ];
    assert_eq!(names(&bytes), listed);
    assert_eq!(names(&layer(&tree, &snapshot(&tree))), ["./"]);
}

#[test]
fn what_belongs_to_one_run_is_left_out() {
    let tree = tree();
    for name in [
        "var/log/dpkg.log",
        "var/cache/apt/pkgcache.bin",
        "root/.cache/pip/x",
        "tmp/build",
        "etc/hostname",
        "etc/ssh/ssh_host_rsa_key",
    ] {
        put(&tree, name, "x");
    }
    put(&tree, "var/lib/dpkg/status", "");
    let listed = names(&layer(&tree, &TreeSnapshot::default()));
    let files = [
        "./",
        "etc",
        "etc/ssh",
        "root",
        "root/.cache",
        "tmp",
        "var",
        "var/cache",
        "var/cache/apt",
        "var/lib",
        "var/lib/dpkg",
        "var/lib/dpkg/status",
        "var/log",
    ];
    assert_eq!(listed, files);
}

#[test]
fn a_text_of_a_tree_is_read_inside_it() {
    let tree = tree();
    put(&tree, "etc/passwd", "of the tree");
    symlink("/etc/passwd", tree.path().join("link")).unwrap();
    symlink("../../../../etc/passwd", tree.path().join("out")).unwrap();
    let root = opened_root(&tree);
    for name in ["link", "out"] {
        let text = text_in(root.as_fd(), Path::new(name), 100);
        assert_eq!(text.as_deref(), Some("of the tree"));
    }
    assert_eq!(text_in(root.as_fd(), Path::new("etc/passwd"), 3), None);
    assert_eq!(text_in(root.as_fd(), Path::new("etc"), 100), None);
}

#[test]
fn a_file_is_written_into_a_tree_and_never_beside_it() {
    let (tree, outside) = (self::tree(), self::tree());
    put(&tree, "real/old", "old");
    symlink("/real", tree.path().join("link")).unwrap();
    symlink(outside.path(), tree.path().join("out")).unwrap();
    symlink("/etc/passwd", tree.path().join("real/name")).unwrap();
    let root = opened_root(&tree);
    write_in(root.as_fd(), "/link/deep/tool", "run", true).unwrap();
    let tool = tree.path().join("real/deep/tool");
    assert_eq!(fs::read_to_string(&tool).unwrap(), "run");
    let mode = fs::metadata(&tool).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    write_in(root.as_fd(), "/link/old", "new", false).unwrap();
    write_in(root.as_fd(), "/link/name", "ours", false).unwrap();
    for (name, text) in [("real/old", "new"), ("real/name", "ours")] {
        let path = tree.path().join(name);
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(fs::read_to_string(path).unwrap(), text);
    }
    // The other directory's name leads nowhere inside this tree.
    write_in(root.as_fd(), "/out/file", "x", false).unwrap_err();
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}
