//! Giving folders away through the actions that doors call: what is refused before a byte moves, and who learns of an offer.

use api::folders::NewFolderCopyBody;
use api::mounts::NewMountBody;
use api::sessions::LaunchRequest;
use rules::folder::{FolderUse, RequestedMount};

use super::super::copies;
use super::super::tests::TwoDomains;
use super::*;
use crate::actions::{sessions as launches, users};
use crate::code;

fn to(user: &str) -> NewFolderTransferBody {
    NewFolderTransferBody {
        user: Some(user.to_owned()),
        ..NewFolderTransferBody::default()
    }
}

fn mounting(name: &str, mount: &str) -> LaunchRequest {
    let asked = RequestedMount::parse(mount).expect("a mount");
    LaunchRequest {
        name: Some(name.to_owned()),
        mounts: vec![NewMountBody::from(asked)],
        ..LaunchRequest::default()
    }
}

#[tokio::test]
async fn a_folder_that_a_session_mounts_is_not_taken_over() {
    let two = TwoDomains::open().await;
    let data = two.made(&two.abe, "data").await.id.to_string();
    let server = &two.server;
    let refused = offer(server, &two.abe, "data", to("mina")).await;
    assert_eq!(code(refused), "folder.share-unknown", "of another domain");
    offer(server, &two.abe, "data", to("eve")).await.unwrap();
    for other in [&two.abe, &two.mina, &two.chief, &two.boss] {
        assert!(list(server, other).await.unwrap().is_empty());
        let refused = accept(server, other, &data).await;
        assert_eq!(code(refused), "folder.transfer-not-found");
    }
    assert_eq!(list(server, &two.eve).await.unwrap().len(), 1);
    let launched = launches::launch(server, &two.abe, mounting("one", "data"), None).await;
    assert!(launched.is_ok(), "{launched:?}");
    let refused = accept(server, &two.eve, &data).await;
    assert_eq!(code(refused), "folder.mounted");
    decline(server, &two.eve, &data).await.unwrap();
    assert!(list(server, &two.eve).await.unwrap().is_empty());
    let none = withdraw(server, &two.abe, "data").await;
    assert_eq!(code(none), "folder.transfer-not-found");
}

#[tokio::test]
async fn a_folder_that_does_not_fit_the_limit_is_neither_taken_over_nor_copied() {
    let two = TwoDomains::open().await;
    let id = two.made(&two.abe, "data").await.id;
    let server = &two.server;
    let counted = FolderUse {
        bytes: 60 << 30,
        entries: 1,
        at: server.clock().now(),
    };
    server
        .catalog()
        .write(Lane::Requests, "count a folder", move |rows| {
            rows.note_folder_size(id, counted)
        })
        .await
        .unwrap();
    offer(server, &two.abe, "data", to("eve")).await.unwrap();
    let refused = accept(server, &two.eve, &id.to_string()).await;
    assert_eq!(code(refused), "quota.exceeded");
    let asked = NewFolderCopyBody {
        name: "copy".to_owned(),
        ..NewFolderCopyBody::default()
    };
    let refused = copies::create(server, &two.abe, "data", asked, None).await;
    assert_eq!(code(refused), "quota.exceeded");
    assert!(
        copies::under_way(server, &two.abe)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn a_user_has_so_many_offers_and_works_on_folders() {
    let two = TwoDomains::open().await;
    let server = &two.server;
    let id = two.made(&two.abe, "data").await.id;
    let (eve, abe) = (two.eve.subject.user, two.abe.clone());
    server
        .catalog()
        .write(Lane::Requests, "offer many folders", move |rows| {
            let data = rows.folder(id)?.expect("a folder").folder;
            for number in 1..=MAX_OFFERS as u128 {
                let other = Folder {
                    id: FolderId(uuid::Uuid::from_u128(number)),
                    name: rules::folder::FolderName::parse(&format!("f{number}"))?,
                    ..data.clone()
                };
                rows.insert_folder(&other)?;
                rows.put_folder_transfer(other.id, eve.into(), "abe")?;
            }
            let input = serde_json::json!({"folder": id});
            for _ in 0..8 {
                begin(rows, &abe, FOLDER_TRANSFER, &input)?;
            }
            Ok(())
        })
        .await
        .unwrap();
    let refused = offer(server, &two.abe, "data", to("eve")).await;
    assert_eq!(code(refused), "folder.offers-many");
    // One that is there already is offered to her again.
    offer(server, &two.abe, "f1", to("eve")).await.unwrap();
    let abe = two.abe.clone();
    let more = server
        .catalog()
        .write(Lane::Requests, "begin one more", move |rows| {
            begin(rows, &abe, FOLDER_TRANSFER, &serde_json::json!({}))
        })
        .await;
    assert_eq!(code(more), "operation.too-many");
}

#[tokio::test]
async fn an_administrator_of_a_domain_offers_folders_of_its_users_to_its_users_alone() {
    let two = TwoDomains::open().await;
    let server = &two.server;
    let id = two.made(&two.mina, "data").await.id;
    two.made(&two.abe, "data").await;
    let offer_all = async |who: &str, to: &str| {
        let offered = users::departure::offer_folders(server, &two.chief, who, to).await;
        code(offered)
    };
    assert_eq!(offer_all("mina", "eve").await, "user.not-found");
    let mina = two.mina.subject.user.to_string();
    assert_eq!(offer_all(&mina, "eve").await, "user.not-found");
    assert_eq!(offer_all("abe", "mina").await, "folder.share-unknown");
    assert_eq!(offer_all("abe", "eve").await, "done");
    // Nor one by one: a folder of another user is not theirs to give away.
    let refused = offer(server, &two.chief, &id.to_string(), to("eve")).await;
    assert_eq!(code(refused), "folder.not-found");
    let refused = offer(server, &two.chief, "abe/data", to("eve")).await;
    assert_eq!(code(refused), "folder.not-found");
    let own = offered(server, &two.mina, "data").await.unwrap();
    assert!(own.is_none(), "nothing of hers was offered");
}

#[tokio::test]
async fn a_home_keeps_its_owner() {
    let two = TwoDomains::open().await;
    let launched = launches::launch(&two.server, &two.abe, mounting("one", "home"), None).await;
    assert!(launched.is_ok(), "{launched:?}");
    let refused = offer(&two.server, &two.abe, "home", to("eve")).await;
    assert_eq!(code(refused), "folder.home-shared");
}
