//! Several files at once through the actions that doors call: all are looked at before the first is touched, and what went
//! together comes back together.

use api::folders::{FolderRemovalBody, FolderView};
use store::folders::mounted_directory;

use super::super::files;
use super::super::tests::TwoDomains;
use super::*;
use crate::code;

fn place(two: &TwoDomains, folder: &FolderView) -> std::path::PathBuf {
    mounted_directory(two.directory.path(), folder.id)
}

fn named(paths: &[&str]) -> Vec<String> {
    paths.iter().map(|path| (*path).to_owned()).collect()
}

/// A folder of abe's with `a` and `b`, a directory `run` with `b` in it, and one `into`.
async fn filled(two: &TwoDomains) -> FolderView {
    let data = two.made(&two.abe, "data").await;
    let top = place(two, &data);
    for directory in ["run", "into"] {
        std::fs::create_dir(top.join(directory)).unwrap();
    }
    for file in ["a", "b", "run/b"] {
        std::fs::write(top.join(file), file).unwrap();
    }
    data
}

/// Proves too: `every_act_asks_for_its_capability_first`
#[tokio::test]
async fn a_selection_is_its_owners_alone() {
    let two = TwoDomains::open().await;
    let data = filled(&two).await;
    let (server, id) = (&two.server, data.id.to_string());
    let at = server.clock().now();
    for (caller, expected) in [
        (&two.eve, "folder.not-found"),
        (&two.mina, "folder.not-found"),
        (&two.chief, "folder.files-own"),
        (&two.boss, "folder.files-own"),
    ] {
        let into = || "into".to_owned();
        for answer in [
            code(move_into(server, caller, &id, named(&["a"]), into()).await),
            code(copy_into(server, caller, &id, named(&["a"]), into()).await),
            code(undo_removal(server, caller, &id, at).await),
        ] {
            assert_eq!(answer, expected, "{}", caller.name);
        }
    }
    assert!(place(&two, &data).join("a").exists());
}

#[tokio::test]
async fn several_are_moved_and_copied_all_or_none_of_them() {
    let two = TwoDomains::open().await;
    let data = filled(&two).await;
    let (server, id, top) = (&two.server, data.id.to_string(), place(&two, &data));
    for (paths, into, expected) in [
        (&["a", "none"][..], "into", "folder.entry-not-found"),
        (&["a", "b"], "none", "folder.entry-not-found"),
        (&["a", "b"], "run/b", "folder.entry-not-found"),
        // Two of one name, and one whose name is taken there.
        (&["a", "b", "run/b"], "into", "folder.entry-exists"),
        (&["a", "b"], "run", "folder.entry-exists"),
        (&["a", "b"], "", "folder.entry-exists"),
        (&["a", "run"], "run", "folder.move-inside"),
        (&["a", ""], "into", "folder.path-invalid"),
        (&["a"], "../x", "folder.path-invalid"),
        (&[], "into", "folder.paths"),
    ] {
        for answer in [
            code(move_into(server, &two.abe, &id, named(paths), into.to_owned()).await),
            code(copy_into(server, &two.abe, &id, named(paths), into.to_owned()).await),
        ] {
            assert_eq!(answer, expected, "{paths:?} into {into}");
        }
        assert!(top.join("a").exists() && !top.join("into/a").exists());
    }
    let chosen = || named(&["a", "run"]);
    let copied = copy_into(server, &two.abe, &id, chosen(), "into".to_owned()).await;
    copied.unwrap();
    assert_eq!(std::fs::read(top.join("into/run/b")).unwrap(), b"run/b");
    let moved = move_into(server, &two.abe, &id, named(&["into/a"]), "run".to_owned()).await;
    moved.unwrap();
    assert!(top.join("run/a").exists() && !top.join("into/a").exists());
}

#[tokio::test]
async fn what_one_request_removed_comes_back_at_once() {
    let two = TwoDomains::open().await;
    let data = filled(&two).await;
    let (server, id, top) = (&two.server, data.id.to_string(), place(&two, &data));
    let asked = |paths: &[&str]| FolderRemovalBody {
        paths: named(paths),
        for_good: false,
    };
    // A file, and then the directory that it lay in.
    let at = files::remove(server, &two.abe, &id, asked(&["run/b", "run", "a"])).await;
    let at = at.unwrap();
    assert!(!top.join("run").exists() && !top.join("a").exists());
    let other = Timestamp::from_millis(at.as_millis() + 1);
    let nothing = undo_removal(server, &two.abe, &id, other).await;
    assert_eq!(code(nothing), "folder.removed-not-found");
    undo_removal(server, &two.abe, &id, at).await.unwrap();
    assert!(top.join("run/b").exists() && top.join("a").exists());
    let again = undo_removal(server, &two.abe, &id, at).await;
    assert_eq!(code(again), "folder.removed-not-found");
}
