//! Files of folders through the actions that doors call: whose they are, what a page shows of them, and how they come in.

use std::path::PathBuf;

use api::folders::FolderView;
use store::folders::mounted_directory;

use super::super::tests::TwoDomains;
use super::super::uploads::{self, NewFolderFile};
use super::*;
use crate::code;

fn place(two: &TwoDomains, folder: &FolderView) -> PathBuf {
    mounted_directory(two.directory.path(), folder.id)
}

fn file(name: &str, bytes: u64) -> NewFolderFile {
    NewFolderFile {
        name: name.to_owned(),
        bytes: Some(bytes),
        ..NewFolderFile::default()
    }
}

fn directory(path: &str) -> NewFolderDirectoryBody {
    NewFolderDirectoryBody {
        path: path.to_owned(),
    }
}

fn removal(paths: &[&str]) -> FolderRemovalBody {
    FolderRemovalBody {
        paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        for_good: false,
    }
}

fn items() -> RemovedEntriesBody {
    RemovedEntriesBody {
        items: vec![uuid::Uuid::from_u128(1)],
    }
}

/// Administrators manage a folder and do not read it.
///
/// Proves too: `every_act_asks_for_its_capability_first`
#[tokio::test]
async fn files_are_their_owners_alone_and_a_stranger_learns_of_no_folder() {
    let two = TwoDomains::open().await;
    let data = two.made(&two.abe, "data").await;
    std::fs::write(place(&two, &data).join("a"), "text").unwrap();
    let (server, id) = (&two.server, data.id.to_string());
    for (caller, expected) in [
        (&two.eve, "folder.not-found"),
        (&two.mina, "folder.not-found"),
        (&two.chief, "folder.files-own"),
        (&two.boss, "folder.files-own"),
    ] {
        let asked = FolderEntryQuery::default();
        let moved = FolderMoveBody {
            from: "a".to_owned(),
            to: "b".to_owned(),
        };
        let upload = rules::names::UploadId(uuid::Uuid::from_u128(1));
        for answer in [
            code(list(server, caller, &id, &asked).await),
            code(show(server, caller, &id, "a").await),
            code(open(server, caller, &id, "a").await),
            code(archive(server, caller, &id, Vec::new(), "zip").await),
            code(make_directory(server, caller, &id, directory("x")).await),
            code(move_entry(server, caller, &id, moved).await),
            code(remove(server, caller, &id, removal(&["a"])).await),
            code(removed(server, caller, &id).await),
            code(restore_removed(server, caller, &id, items()).await),
            code(purge_removed(server, caller, &id, items()).await),
            code(empty_trash(server, caller, &id).await),
            code(uploads::create(server, caller, &id, file("x", 1)).await),
            code(uploads::list(server, caller, &id).await),
            code(uploads::head(server, caller, &id, upload).await),
            code(uploads::append(server, caller, &id, upload, 0, None).await),
            code(uploads::abort(server, caller, &id, upload).await),
        ] {
            assert_eq!(answer, expected, "{}", caller.name);
        }
    }
    assert_eq!(
        code(list(server, &two.abe, &id, &FolderEntryQuery::default()).await),
        "done"
    );
    super::super::trash(server, &two.abe, "data").await.unwrap();
    let trashed = list(server, &two.abe, &id, &FolderEntryQuery::default()).await;
    assert_eq!(code(trashed), "folder.in-trash");
}

#[tokio::test]
async fn what_is_removed_is_looked_for_first() {
    let two = TwoDomains::open().await;
    let data = two.made(&two.abe, "data").await;
    let (server, id) = (&two.server, data.id.to_string());
    for name in ["a", "b", "c"] {
        std::fs::write(place(&two, &data).join(name), "text").unwrap();
    }
    let refused = remove(server, &two.abe, &id, removal(&["a", "none"])).await;
    assert_eq!(code(refused), "folder.entry-not-found");
    assert!(place(&two, &data).join("a").is_file());
    for paths in [vec![], vec!["x"; MAX_REMOVED_AT_ONCE + 1]] {
        let refused = remove(server, &two.abe, &id, removal(&paths)).await;
        assert_eq!(code(refused), "folder.paths");
    }
    remove(server, &two.abe, &id, removal(&["a", "b"]))
        .await
        .unwrap();
    let left = list(server, &two.abe, &id, &FolderEntryQuery::default()).await;
    let left = left.unwrap().page;
    assert_eq!((left.items.len(), left.estimated_total), (1, 1));
    let folder = super::super::get(server, &two.abe, "data").await.unwrap();
    assert!(folder.used_at.is_some(), "it is counted again");
}

#[tokio::test]
async fn what_was_removed_before_a_failure_is_written_down() {
    let two = TwoDomains::open().await;
    let data = two.made(&two.abe, "data").await;
    let (server, id) = (&two.server, data.id.to_string());
    std::fs::write(place(&two, &data).join("a"), "text").unwrap();
    let refused = remove(server, &two.abe, &id, removal(&["a", "a"])).await;
    assert_eq!(code(refused), "folder.entry-not-found");
    assert!(!place(&two, &data).join("a").exists());
    let folder = super::super::get(server, &two.abe, "data").await.unwrap();
    assert!(folder.used_at.is_some());
}

#[tokio::test]
async fn a_change_of_files_is_written_down_also_where_its_request_is_gone() {
    let two = TwoDomains::open().await;
    let data = two.made(&two.abe, "data").await;
    let (server, id) = (&two.server, data.id.to_string());
    let asked = make_directory(server, &two.abe, &id, directory("x"));
    // On a busy machine the disk may answer first: then nothing is given up.
    let _ = tokio::time::timeout(std::time::Duration::ZERO, asked).await;
    server.folder_turns().ended().await;
    assert!(place(&two, &data).join("x").is_dir());
    let folder = super::super::get(server, &two.abe, "data").await.unwrap();
    assert!(folder.used_at.is_some());
}

#[tokio::test]
async fn what_is_removed_comes_back_until_the_trash_is_emptied() {
    let two = TwoDomains::open().await;
    let data = two.made(&two.abe, "data").await;
    let (server, id) = (&two.server, data.id.to_string());
    for name in ["a", "b"] {
        std::fs::write(place(&two, &data).join(name), "text").unwrap();
        remove(server, &two.abe, &id, removal(&[name]))
            .await
            .unwrap();
    }
    let all = removed(server, &two.abe, &id).await.unwrap().1;
    let paths: Vec<&str> = all.iter().map(|one| one.path.as_str()).collect();
    assert_eq!(paths, ["b", "a"]);
    assert!(all[0].purge_at > all[0].removed_at);
    let back = RemovedEntriesBody {
        items: vec![all[1].id],
    };
    restore_removed(server, &two.abe, &id, back.clone())
        .await
        .unwrap();
    assert!(place(&two, &data).join("a").is_file());
    let again = restore_removed(server, &two.abe, &id, back.clone()).await;
    assert_eq!(code(again), "folder.removed-not-found");
    assert_eq!(
        code(purge_removed(server, &two.abe, &id, back).await),
        "folder.removed-not-found"
    );
    empty_trash(server, &two.abe, &id).await.unwrap();
    assert_eq!(removed(server, &two.abe, &id).await.unwrap().1, []);
    let for_good = FolderRemovalBody {
        for_good: true,
        ..removal(&["a"])
    };
    remove(server, &two.abe, &id, for_good).await.unwrap();
    assert_eq!(removed(server, &two.abe, &id).await.unwrap().1, []);
}

#[tokio::test]
async fn a_page_shows_the_begin_of_a_file() {
    let two = TwoDomains::open().await;
    let data = two.made(&two.abe, "data").await;
    let id = data.id.to_string();
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(place(&two, &data).join(name), bytes).unwrap();
    };
    write("a.txt", b"one line\n");
    write("long.txt", "\u{ac00}".repeat(100_000).as_bytes());
    write("binary", b"a\0b");
    write("broken.txt", b"a\xffb");
    write("a.PNG", b"\x89PNG\r\n\x1a\nrest");
    write("a.svg", b"<svg onload=\"x\"/>");
    write("a.csv", b"epoch,loss\n1,\"0,5\"\n2\n");
    write("long.csv", "1,2\n".repeat(MAX_PREVIEW_ROWS + 1).as_bytes());
    let shown = async |name: &str| {
        show(&two.server, &two.abe, &id, name)
            .await
            .unwrap()
            .preview
    };
    let text = |text: &str| FilePreview::Text {
        text: text.to_owned(),
        is_cut: false,
    };
    assert_eq!(shown("a.txt").await, text("one line\n"));
    assert_eq!(shown("a.svg").await, text("<svg onload=\"x\"/>"));
    assert_eq!(shown("binary").await, FilePreview::Nothing);
    assert_eq!(shown("broken.txt").await, FilePreview::Nothing);
    assert_eq!(shown("a.PNG").await, FilePreview::Image);
    let FilePreview::Text { text, is_cut } = shown("long.txt").await else {
        panic!("no text");
    };
    assert!(is_cut && text.len() <= MAX_PREVIEW_BYTES && text.chars().all(|c| c == '\u{ac00}'));
    let table = FilePreview::Table {
        rows: vec![
            vec!["epoch".to_owned(), "loss".to_owned()],
            vec!["1".to_owned(), "0,5".to_owned()],
            vec!["2".to_owned()],
        ],
        is_cut: false,
    };
    assert_eq!(shown("a.csv").await, table);
    write("half.ipynb", b"{\"nbformat\": 4, \"cells\": [");
    let half = shown("half.ipynb").await;
    assert!(matches!(half, FilePreview::Text { .. }), "{half:?}");
    let cell = serde_json::json!({
        "cell_type": "code", "source": "1 + 1", "outputs": [
            {"output_type": "display_data", "data": {"text/html": "<script>alert(1)</script>"}},
        ],
    });
    let notebook = serde_json::json!({"nbformat": 4, "cells": [cell]});
    write("a.IPYNB", notebook.to_string().as_bytes());
    let FilePreview::Notebook { cells, is_cut } = shown("a.IPYNB").await else {
        panic!("no notebook");
    };
    assert!(cells.len() == 1 && !is_cut);
    assert_eq!(cells[0].outputs, [notebook::CellOutput::Hidden]);
    let FilePreview::Table { rows, is_cut } = shown("long.csv").await else {
        panic!("no table");
    };
    assert_eq!((rows.len(), is_cut), (MAX_PREVIEW_ROWS, true));
}

#[tokio::test]
async fn a_cursor_is_of_one_directory_and_its_words() {
    let two = TwoDomains::open().await;
    let data = two.made(&two.abe, "data").await;
    let id = data.id.to_string();
    for name in ["a", "b", "c"] {
        std::fs::write(place(&two, &data).join(name), "").unwrap();
    }
    let mut asked = FolderEntryQuery {
        limit: Some(2),
        ..FolderEntryQuery::default()
    };
    let first = list(&two.server, &two.abe, &id, &asked).await.unwrap().page;
    assert_eq!(first.items.len(), 2);
    asked.cursor = first.next_cursor;
    let second = list(&two.server, &two.abe, &id, &asked).await.unwrap().page;
    assert_eq!(second.items[0].name, "c");
    assert_eq!(second.next_cursor, None);
    let other = FolderEntryQuery {
        q: "c".to_owned(),
        ..asked.clone()
    };
    let refused = list(&two.server, &two.abe, &id, &other).await;
    assert_eq!(code(refused), "cursor.invalid");
    for limit in [0, MAX_PAGE_ENTRIES + 1] {
        asked.limit = Some(limit);
        let refused = list(&two.server, &two.abe, &id, &asked).await;
        assert_eq!(code(refused), "limit.out-of-range");
    }
}

#[tokio::test]
async fn a_directory_is_sorted_as_it_is_asked_for() {
    let two = TwoDomains::open().await;
    let data = two.made(&two.abe, "data").await;
    let id = data.id.to_string();
    for (name, size) in [("a", 30), ("b", 10), ("c", 20)] {
        std::fs::write(place(&two, &data).join(name), vec![b'x'; size]).unwrap();
    }
    let mut asked = FolderEntryQuery {
        sort: "-size".to_owned(),
        limit: Some(2),
        ..FolderEntryQuery::default()
    };
    let names = |page: &ListPage<FolderEntryView>| {
        let names = page.items.iter().map(|one| one.name.as_str());
        names.collect::<Vec<_>>().join(" ")
    };
    let first = list(&two.server, &two.abe, &id, &asked).await.unwrap().page;
    assert_eq!((names(&first).as_str(), first.estimated_total), ("a c", 3));
    asked.cursor = first.next_cursor;
    let second = list(&two.server, &two.abe, &id, &asked).await.unwrap().page;
    assert_eq!((names(&second).as_str(), second.next_cursor), ("b", None));
    asked.sort = "size".to_owned();
    let refused = list(&two.server, &two.abe, &id, &asked).await;
    assert_eq!(code(refused), "cursor.invalid", "of another order");
    asked.sort = "colour".to_owned();
    let refused = list(&two.server, &two.abe, &id, &asked).await;
    assert_eq!(code(refused), "sort.unknown");
}

#[tokio::test]
async fn an_upload_ends_with_the_right_to_its_folder() {
    let two = TwoDomains::open().await;
    let data = two.made(&two.abe, "data").await;
    let (server, id) = (&two.server, data.id.to_string());
    let empty = uploads::create(server, &two.abe, &id, file("empty", 0)).await;
    empty.unwrap();
    assert!(
        place(&two, &data).join("empty").is_file(),
        "nothing of it is to come"
    );
    let taken = uploads::create(server, &two.abe, &id, file("empty", 1)).await;
    assert_eq!(code(taken), "folder.entry-exists");
    for name in ["", "a/b", "..", "two\nlines", &"x".repeat(256)] {
        let refused = uploads::create(server, &two.abe, &id, file(name, 1)).await;
        assert_eq!(code(refused), "folder.new-name-invalid", "{name:?}");
    }
    let made = uploads::create(server, &two.abe, &id, file("a", 6))
        .await
        .unwrap();
    let piece = uploads::append(server, &two.abe, &id, made.id, 0, None).await;
    let mut piece = piece.unwrap_or_else(|failure| panic!("{failure}"));
    piece.write("abc".into()).await.unwrap();
    super::super::trash(server, &two.abe, "data").await.unwrap();
    let refused = piece.write("def".into()).await;
    assert_eq!(code(refused), "folder.in-trash");
    assert_eq!(code(piece.finish(true).await), "folder.in-trash");
    super::super::restore(server, &two.abe, "data")
        .await
        .unwrap();
    let piece = uploads::append(server, &two.abe, &id, made.id, 3, None).await;
    let mut piece = piece.unwrap_or_else(|failure| panic!("{failure}"));
    piece.write("def".into()).await.unwrap();
    let done = piece.finish(true).await.unwrap();
    assert_eq!(done.offset, 6);
    let text = std::fs::read_to_string(place(&two, &data).join("a")).unwrap();
    assert_eq!(text, "abcdef");
}

#[tokio::test]
async fn a_file_that_was_whole_when_the_server_ended_is_put_in_its_place_later() {
    let two = TwoDomains::open().await;
    let data = two.made(&two.abe, "data").await;
    let (server, id) = (&two.server, data.id.to_string());
    let made = uploads::create(server, &two.abe, &id, file("a", 3)).await;
    let made = made.unwrap();
    let store = server.folders().unwrap();
    let mut writer = store.append(data.id, made.id.0, 0, None).unwrap();
    writer.write(b"abc").unwrap();
    writer.finish(true).unwrap();
    assert!(!place(&two, &data).join("a").exists());
    for _ in 0..2 {
        let told = uploads::head(server, &two.abe, &id, made.id).await.unwrap();
        assert_eq!(told.offset, 3);
        assert!(place(&two, &data).join("a").is_file());
    }
}
