//! The browser of a folder through the actions that doors call: whose files it shows, and that texts are written over no version
//! that their writer has not seen.

use api::folders::FolderView;
use store::folders::mounted_directory;

use super::super::tests::TwoDomains;
use super::*;
use crate::code;

fn place(two: &TwoDomains, folder: &FolderView) -> std::path::PathBuf {
    mounted_directory(two.directory.path(), folder.id)
}

fn body(path: &str, text: &str) -> NewFolderTextBody {
    NewFolderTextBody {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}

/// Proves too: `every_act_asks_for_its_capability_first`
#[tokio::test]
async fn the_browser_of_a_folder_is_its_owners_alone() {
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
        let copied = FolderCopyBody {
            from: "a".to_owned(),
            to: "b".to_owned(),
        };
        let (asked, counted) = (FolderSearchQuery::default(), FolderUsageQuery::default());
        for answer in [
            code(search(server, caller, &id, &asked).await),
            code(usage(server, caller, &id, &counted).await),
            code(copy(server, caller, &id, copied).await),
            code(text(server, caller, &id, "a").await),
            code(create_text(server, caller, &id, body("b", "")).await),
            code(write_text(server, caller, &id, body("a", ""), None).await),
        ] {
            assert_eq!(answer, expected, "{}", caller.name);
        }
    }
    let left = std::fs::read_to_string(place(&two, &data).join("a"));
    assert_eq!(left.unwrap(), "text");
    assert!(!place(&two, &data).join("b").exists());
}

#[tokio::test]
async fn a_text_is_edited_and_a_version_that_came_between_is_kept() {
    let two = TwoDomains::open().await;
    let data = two.made(&two.abe, "data").await;
    let (server, id) = (&two.server, data.id.to_string());
    let made = create_text(server, &two.abe, &id, body("a", "one\n")).await;
    let made = made.unwrap();
    let tag = made.etag.trim_matches('"').to_owned();
    let (_, read) = text(server, &two.abe, &id, "a").await.unwrap();
    assert_eq!((read.text.as_str(), read.etag), ("one\n", made.etag));
    std::fs::write(place(&two, &data).join("a"), "of a session\n").unwrap();
    let stale = write_text(server, &two.abe, &id, body("a", "two\n"), Some(tag)).await;
    assert_eq!(code(stale), "folder.file-stale");
    let (_, now) = text(server, &two.abe, &id, "a").await.unwrap();
    assert_eq!(now.text, "of a session\n");
    let tag = Some(now.etag.trim_matches('"').to_owned());
    let written = write_text(server, &two.abe, &id, body("a", "two\n"), tag).await;
    let (_, read) = text(server, &two.abe, &id, "a").await.unwrap();
    assert_eq!(
        (read.text.as_str(), read.etag),
        ("two\n", written.unwrap().etag)
    );
    std::fs::write(place(&two, &data).join("binary"), b"a\0b").unwrap();
    let refused = text(server, &two.abe, &id, "binary").await;
    assert_eq!(code(refused), "folder.not-text");
    let refused = create_text(server, &two.abe, &id, body("c", "a\0b")).await;
    assert_eq!(code(refused), "folder.not-text");
    let large = std::fs::File::create(place(&two, &data).join("large")).unwrap();
    large.set_len(1 << 30).unwrap();
    let refused = text(server, &two.abe, &id, "large").await;
    assert_eq!(code(refused), "folder.text-too-large");
}

#[tokio::test]
async fn a_search_goes_on_behind_its_cursor_and_no_other_search_takes_it() {
    let two = TwoDomains::open().await;
    let data = two.made(&two.abe, "data").await;
    let (server, id) = (&two.server, data.id.to_string());
    for directory in ["a", "b"] {
        let below = place(&two, &data).join(directory);
        std::fs::create_dir(&below).unwrap();
        for number in 0..3 {
            std::fs::write(below.join(format!("model{number}")), "x").unwrap();
        }
    }
    let mut asked = FolderSearchQuery {
        q: "MODEL".to_owned(),
        limit: Some(2),
        ..FolderSearchQuery::default()
    };
    let mut found = Vec::new();
    loop {
        let (_, page) = search(server, &two.abe, &id, &asked).await.unwrap();
        assert!(page.whole);
        found.extend(page.items.into_iter().map(|one| one.path));
        match page.next_cursor {
            Some(next) => asked.cursor = Some(next),
            None => break,
        }
    }
    let expected: Vec<String> = ["a", "b"]
        .iter()
        .flat_map(|directory| (0..3).map(move |number| format!("{directory}/model{number}")))
        .collect();
    assert_eq!(found, expected);
    asked.q = "other".to_owned();
    let refused = search(server, &two.abe, &id, &asked).await;
    assert_eq!(code(refused), "cursor.invalid");
    asked.limit = Some(0);
    let refused = search(server, &two.abe, &id, &asked).await;
    assert_eq!(code(refused), "limit.out-of-range");
}
