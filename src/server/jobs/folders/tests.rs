//! What becomes of folders that lie in the trash, and what is counted of the others.

use api::folders::NewFolderBody;
use base::settings::SettingsLayer;
use store::folders::mounted_directory;

use super::*;
use crate::access::{set_up, setup_link};
use crate::actions::attention::{self, AttentionItem};
use crate::actions::{folders, system};

const DAY_MILLIS: i64 = 86_400_000;

#[test]
fn each_folder_out_of_reach_has_its_turn_once_in_23_hours() {
    let begun = 4_000_000_000_000;
    for number in [0, 7, 255] {
        let id = FolderId(uuid::Uuid::from_u128(number));
        let turns = (0..46).filter(|hour| {
            let now = Timestamp::from_millis(begun + hour * 3_600_000);
            is_turn(id, now)
        });
        assert_eq!(turns.count(), 2, "{number}");
    }
}

/// Proves too: `a_folder_comes_back_from_the_trash_with_its_files`
#[tokio::test]
async fn a_folder_is_removed_when_its_time_in_the_trash_is_over_and_counted_before() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::for_tests_with(SettingsLayer {
        data: Some(directory.path().to_owned()),
        ..SettingsLayer::default()
    });
    let setup = setup_link(&server).unwrap();
    let here = std::net::IpAddr::from(std::net::Ipv4Addr::LOCALHOST);
    let boss = set_up(&server, &setup, "boss", "correct horse battery", here).await;
    let boss = boss.unwrap().caller;
    let asked = NewFolderBody {
        name: "data".to_owned(),
        ..NewFolderBody::default()
    };
    let made = folders::create(&server, &boss, asked, None).await.unwrap();
    let place = mounted_directory(directory.path(), made.value.id);
    std::fs::write(place.join("a"), vec![1; 100_000]).unwrap();
    let stray = FolderId::make(server.clock().now(), base::observe::random());
    let store = server.folders().unwrap();
    store.create(stray, false, None).unwrap();
    let mut mounted = BTreeSet::new();
    look(&server, &mut mounted).await.unwrap();
    let seen = folders::get(&server, &boss, "data").await.unwrap();
    assert!(seen.bytes.is_some_and(|bytes| bytes >= 100_000), "{seen:?}");
    assert_eq!(seen.entries, Some(1));
    assert!(store.has(stray), "it may be that of a folder being made");
    folders::trash(&server, &boss, "data").await.unwrap();
    let begun = server.clock().now().as_millis();
    let days = |days: i64| Timestamp::from_millis(begun + days * DAY_MILLIS);
    server.clock().set(days(29));
    look(&server, &mut mounted).await.unwrap();
    assert!(place.is_dir());
    server.clock().set(days(30));
    look(&server, &mut mounted).await.unwrap();
    assert!(!place.exists());
    let gone = folders::restore(&server, &boss, "data").await;
    assert_eq!(crate::code(gone), "folder.not-found");
}

#[tokio::test]
async fn a_folder_in_the_trash_is_removed_at_once_where_that_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::for_tests_with(SettingsLayer {
        data: Some(directory.path().to_owned()),
        ..SettingsLayer::default()
    });
    let setup = setup_link(&server).unwrap();
    let here = std::net::IpAddr::from(std::net::Ipv4Addr::LOCALHOST);
    let boss = set_up(&server, &setup, "boss", "correct horse battery", here).await;
    let boss = boss.unwrap().caller;
    let mut places = Vec::new();
    for name in ["gone", "kept"] {
        let asked = NewFolderBody {
            name: name.to_owned(),
            ..NewFolderBody::default()
        };
        let made = folders::create(&server, &boss, asked, None).await.unwrap();
        let place = mounted_directory(directory.path(), made.value.id);
        std::fs::write(place.join("a"), "text").unwrap();
        places.push(place);
    }
    let early = folders::purge(&server, &boss, "gone").await;
    assert_eq!(crate::code(early), "folder.not-trashed");
    for name in ["gone", "kept"] {
        folders::trash(&server, &boss, name).await.unwrap();
    }
    let purged = folders::purge(&server, &boss, "gone").await.unwrap();
    assert_eq!(purged.state, FolderState::Purging);
    let back = folders::restore(&server, &boss, "gone").await;
    assert_eq!(crate::code(back), "folder.purging");
    let again = folders::purge(&server, &boss, "gone").await.unwrap();
    assert_eq!(again.state, FolderState::Purging, "it goes on");
    let waits = tokio::time::timeout(Duration::from_secs(60), server.purge_asked());
    waits.await.expect("it is asked for");
    purge_now(&server).await.unwrap();
    assert!(!places[0].exists() && places[1].is_dir());
    let gone = folders::get(&server, &boss, "gone").await;
    assert_eq!(crate::code(gone), "folder.not-found");
    folders::restore(&server, &boss, "kept").await.unwrap();
}

#[tokio::test]
async fn what_is_a_row_or_a_directory_alone_is_named_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::for_tests_with(SettingsLayer {
        data: Some(directory.path().to_owned()),
        ..SettingsLayer::default()
    });
    let setup = setup_link(&server).unwrap();
    let here = std::net::IpAddr::from(std::net::Ipv4Addr::LOCALHOST);
    let boss = set_up(&server, &setup, "boss", "correct horse battery", here).await;
    let boss = boss.unwrap().caller;
    let mut made = Vec::new();
    for name in ["kept", "gone"] {
        let asked = NewFolderBody {
            name: name.to_owned(),
            ..NewFolderBody::default()
        };
        let one = folders::create(&server, &boss, asked, None).await.unwrap();
        made.push(one.value.id);
    }
    let found = async || {
        let found = system::findings_of(&server, &boss).await.unwrap();
        let own = found
            .into_iter()
            .filter(|one| one.code.starts_with("folder."));
        own.collect::<Vec<_>>()
    };
    assert_eq!(found().await, []);
    let own = |id| {
        let data = mounted_directory(directory.path(), id);
        data.parent().unwrap().to_owned()
    };
    std::fs::remove_dir_all(own(made[1])).unwrap();
    let before = server.clock().now().as_millis() - DAY_MILLIS;
    let stray = FolderId::make(Timestamp::from_millis(before), base::observe::random());
    let young = FolderId::make(server.clock().now(), base::observe::random());
    server
        .folders()
        .unwrap()
        .create(young, false, None)
        .unwrap();
    server
        .folders()
        .unwrap()
        .create(stray, false, None)
        .unwrap();
    let file = mounted_directory(directory.path(), stray).join("file");
    std::fs::write(&file, "all that is left").unwrap();
    look(&server, &mut BTreeSet::new()).await.unwrap();
    assert!(file.is_file(), "nothing removes it");
    let shown = attention::attention(&server, &boss).await.unwrap();
    let codes: Vec<&str> = shown
        .items
        .iter()
        .filter_map(|item| match item {
            AttentionItem::Server(check) => Some(check.code.as_str()),
            _ => None,
        })
        .filter(|code| code.starts_with("folder."))
        .collect();
    assert_eq!(
        codes,
        ["folder.without-directory", "folder.directory-unknown"]
    );
    let told = found().await;
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].text.contains("boss/gone"), "{told:?}");
    assert!(told[1].text.contains(&stray.to_string()), "{told:?}");
    assert!(!told[1].text.contains(&young.to_string()), "{told:?}");
}
