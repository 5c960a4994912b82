//! Sharing through the actions that doors call: who is asked, who is given what, what a share that ends takes with it.
//! `FARDEL_SHARES=10000` says how many shares of one folder are asked for; the nightly does.

use std::collections::BTreeSet;

use api::folders::FolderEntryQuery;
use api::mounts::NewMountBody;
use api::sessions::LaunchRequest;
use rules::folder::{FolderName, RequestedMount};
use rules::folder_rights::FolderRight;

use super::super::files;
use super::super::tests::TwoDomains;
use super::super::{FolderPatchBody, change, drafted, list as folders, restore, shared, trash};
use super::*;
use crate::actions::notices::{self, NoticeKind};
use crate::actions::sessions as launches;
use crate::code;

/// Shares of one folder that are asked for in every run.
const SHARES: usize = 300;

fn with(user: &str, right: FolderRight) -> NewFolderShareBody {
    NewFolderShareBody {
        user: Some(user.to_owned()),
        right: Some(right),
        ..NewFolderShareBody::default()
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

async fn given(two: &TwoDomains, folder: &str, right: FolderRight) -> FolderShareView {
    let made = create(&two.server, &two.abe, folder, with("eve", right), None).await;
    let made = made.unwrap().value;
    accept(&two.server, &two.eve, &made.id.to_string())
        .await
        .unwrap();
    made
}

async fn reads(two: &TwoDomains, who: &Caller, which: &str) -> String {
    let asked = FolderEntryQuery::default();
    code(files::list(&two.server, who, which, &asked).await)
}

#[tokio::test]
async fn a_folder_is_offered_accepted_and_taken_back() {
    let two = TwoDomains::open().await;
    let id = two.made(&two.abe, "data").await.id.to_string();
    let server = &two.server;
    let made = create(server, &two.abe, "data", with("eve", FolderRight::Ro), None).await;
    let made = made.unwrap().value;
    assert_eq!(made.user.as_deref(), Some("eve"));
    assert_eq!(made.accepted_at, None);
    // Until it is accepted it is an offer and nothing more.
    assert_eq!(reads(&two, &two.eve, &id).await, "folder.not-found");
    let offered = invitations(server, &two.eve).await.unwrap();
    assert_eq!(offered.len(), 1);
    assert_eq!(offered[0].owner.name.as_str(), "abe");
    assert!(invitations(server, &two.mina).await.unwrap().is_empty());
    let told = async |who: &Caller| {
        let all = notices::list(server, who).await.unwrap();
        let about = NoticeKind::FolderOffered("abe".to_owned());
        all.iter().any(|notice| notice.about == about)
    };
    assert!(told(&two.eve).await, "who is asked has a notice");
    assert!(!told(&two.mina).await);
    assert_eq!(count_offers(server, &two.eve), 1);
    let offer = made.id.to_string();
    let others = accept(server, &two.mina, &offer).await;
    assert_eq!(code(others), "folder.invitation-not-found");
    let taken = accept(server, &two.eve, &offer).await.unwrap();
    assert_eq!(taken.right, Some(FolderRight::Ro));
    assert!(accept(server, &two.eve, &offer).await.is_ok(), "once more");
    assert!(!told(&two.eve).await, "it is answered");
    assert_eq!(count_offers(server, &two.eve), 0);
    for which in [id.as_str(), "abe/data", "data"] {
        assert_eq!(reads(&two, &two.eve, which).await, "done", "{which}");
    }
    assert_eq!(reads(&two, &two.mina, &id).await, "folder.not-found");
    let seen = shared(server, &two.eve).await.unwrap();
    assert_eq!(seen.len(), 1);
    assert_eq!(folders(server, &two.eve).await.unwrap().len(), 1);
    let known = list(server, &two.abe, "data").await.unwrap();
    assert!(known[0].accepted_at.is_some());
    remove(server, &two.abe, "data", &offer).await.unwrap();
    assert_eq!(reads(&two, &two.eve, &id).await, "folder.not-found");
    assert!(shared(server, &two.eve).await.unwrap().is_empty());
    let again = remove(server, &two.abe, "data", &offer).await;
    assert_eq!(code(again), "folder.share-not-found");
}

#[tokio::test]
async fn a_right_gives_what_it_says_and_no_more() {
    let two = TwoDomains::open().await;
    two.made(&two.abe, "data").await;
    let server = &two.server;
    let renamed = |name: &str| FolderPatchBody {
        name: Some(name.to_owned()),
        ..FolderPatchBody::default()
    };
    let directory = |path: &str| api::folders::NewFolderDirectoryBody {
        path: path.to_owned(),
    };
    let less = "folder.right-missing";
    for (right, writes, manages) in [
        (FolderRight::Ro, less, less),
        (FolderRight::Rw, "done", less),
        (FolderRight::Rwd, "done", "done"),
    ] {
        given(&two, "data", right).await;
        let eve = &two.eve;
        let which = "abe/data";
        let made = files::make_directory(server, eve, which, directory(right.word())).await;
        assert_eq!(code(made), writes, "{right:?}");
        assert_eq!(code(list(server, eve, which).await), manages, "{right:?}");
        assert_eq!(
            code(sessions(server, eve, which).await),
            manages,
            "{right:?}"
        );
        let more = create(server, eve, which, with("chief", FolderRight::Ro), None).await;
        assert_eq!(code(more), manages, "{right:?}");
        let changed = change(server, eve, which, renamed("data"), None).await;
        assert_eq!(code(changed), manages, "{right:?}");
        assert_eq!(code(trash(server, eve, which).await), manages, "{right:?}");
        if right == FolderRight::Rwd {
            restore(server, eve, which).await.unwrap();
        }
    }
}

#[tokio::test]
async fn who_is_given_a_folder_leaves_room_for_uploads_of_its_owner() {
    use crate::actions::folders::uploads::{self, NewFolderFile};

    let two = TwoDomains::open().await;
    two.made(&two.abe, "data").await;
    given(&two, "data", FolderRight::Rw).await;
    let server = &two.server;
    let file = |name: String| NewFolderFile {
        name,
        bytes: Some(1),
        ..NewFolderFile::default()
    };
    for number in 0..64 {
        let begun = uploads::create(server, &two.eve, "abe/data", file(format!("e{number}"))).await;
        begun.unwrap();
    }
    let more = uploads::create(server, &two.eve, "abe/data", file("more".into())).await;
    assert_eq!(code(more), "upload.too-many");
    // Nothing of it is the owner's.
    let own = uploads::create(server, &two.abe, "data", file("own".into())).await;
    own.unwrap();
    // A folder of their own takes more.
    two.made(&two.eve, "mine").await;
    let elsewhere = uploads::create(server, &two.eve, "mine", file("e".into())).await;
    elsewhere.unwrap();
}

#[tokio::test]
async fn a_folder_is_shared_within_its_domain_and_never_a_home() {
    let two = TwoDomains::open().await;
    two.made(&two.abe, "data").await;
    let server = &two.server;
    for user in ["mina", "abe", "no.such.user", ""] {
        let refused = create(server, &two.abe, "data", with(user, FolderRight::Ro), None).await;
        let expected = match user {
            "" => "folder.share-target",
            _ => "folder.share-unknown",
        };
        assert_eq!(code(refused), expected, "{user:?}");
    }
    let both = NewFolderShareBody {
        project: Some("default".to_owned()),
        ..with("eve", FolderRight::Ro)
    };
    let refused = create(server, &two.abe, "data", both, None).await;
    assert_eq!(code(refused), "folder.share-target");
    let past = NewFolderShareBody {
        until: Some(server.clock().now()),
        ..with("eve", FolderRight::Ro)
    };
    let refused = create(server, &two.abe, "data", past, None).await;
    assert_eq!(code(refused), "folder.share-end");
    let launched = launches::launch(server, &two.abe, mounting("one", "home"), None).await;
    assert!(launched.is_ok(), "{launched:?}");
    let refused = create(server, &two.abe, "home", with("eve", FolderRight::Ro), None).await;
    assert_eq!(code(refused), "folder.home-shared");
    // Administrators see whom it is shared with, and give it to no user.
    assert_eq!(
        code(list(server, &two.chief, "no").await),
        "folder.not-found"
    );
    let id = folders(server, &two.abe).await.unwrap();
    let id = id
        .iter()
        .find(|one| one.name.as_str() == "data")
        .unwrap()
        .id;
    let id = id.to_string();
    assert!(list(server, &two.chief, &id).await.unwrap().is_empty());
    let refused = create(server, &two.chief, &id, with("eve", FolderRight::Ro), None).await;
    assert_eq!(code(refused), "folder.files-own");
}

#[tokio::test]
async fn a_folder_shared_to_be_read_is_mounted_read_only_and_not_at_all_after_that() {
    let two = TwoDomains::open().await;
    two.made(&two.abe, "data").await;
    let server = &two.server;
    let unknown = launches::launch(server, &two.eve, mounting("x", "abe/data:/data"), None).await;
    assert_eq!(code(unknown), "folder.unknown");
    let share = given(&two, "data", FolderRight::Ro).await;
    let asked = mounting("one", "abe/data:/data");
    let launched = launches::launch(server, &two.eve, asked, None)
        .await
        .unwrap();
    let session = &launched.sessions[0];
    assert_eq!(session.mounts[0].access, MountAccess::Ro);
    let known = sessions(server, &two.abe, "data").await.unwrap();
    assert_eq!(known.len(), 1);
    assert!(known[0].allowed);
    // It waits for its place: it ends with the right.
    remove(server, &two.abe, "data", &share.id.to_string())
        .await
        .unwrap();
    let ended = launches::get(server, &two.eve, &session.id.to_string()).await;
    let ended = ended.unwrap();
    assert_eq!(ended.state, SessionState::Ended);
    let again = launches::restart(server, &two.eve, &session.id.to_string()).await;
    assert_eq!(code(again), "folder.not-found");
    given(&two, "data", FolderRight::Ro).await;
    let again = launches::restart(server, &two.eve, &session.id.to_string()).await;
    assert!(again.is_ok(), "{again:?}");
}

#[tokio::test]
async fn a_waiting_session_mounts_read_only_what_is_shared_read_only_by_then() {
    let two = TwoDomains::open().await;
    two.made(&two.abe, "data").await;
    let server = &two.server;
    given(&two, "data", FolderRight::Rw).await;
    let asked = mounting("one", "abe/data:/data");
    let launched = launches::launch(server, &two.eve, asked, None)
        .await
        .unwrap();
    let id = launched.sessions[0].id.to_string();
    assert_eq!(launched.sessions[0].mounts[0].access, MountAccess::Rw);
    create(server, &two.abe, "data", with("eve", FolderRight::Ro), None)
        .await
        .unwrap();
    let held = launches::get(server, &two.eve, &id).await.unwrap();
    assert_eq!(held.mounts[0].access, MountAccess::Ro);
    assert_eq!(held.state, SessionState::Pending);
}

#[tokio::test]
async fn who_is_given_a_folder_gives_it_back_and_refuses_offers() {
    let two = TwoDomains::open().await;
    two.made(&two.abe, "data").await;
    let server = &two.server;
    given(&two, "data", FolderRight::Rw).await;
    let own = leave(server, &two.abe, "data").await;
    assert_eq!(code(own), "folder.not-left");
    leave(server, &two.eve, "abe/data").await.unwrap();
    assert_eq!(reads(&two, &two.eve, "abe/data").await, "folder.not-found");
    let made = create(server, &two.abe, "data", with("eve", FolderRight::Ro), None).await;
    let offer = made.unwrap().value.id.to_string();
    let others = decline(server, &two.mina, &offer).await;
    assert_eq!(code(others), "folder.invitation-not-found");
    decline(server, &two.eve, &offer).await.unwrap();
    assert!(list(server, &two.abe, "data").await.unwrap().is_empty());
    let late = accept(server, &two.eve, &offer).await;
    assert_eq!(code(late), "folder.invitation-not-found");
}

#[tokio::test]
async fn one_name_of_two_owners_needs_the_owner() {
    let two = TwoDomains::open().await;
    let server = &two.server;
    for owner in [&two.abe, &two.chief] {
        two.made(owner, "data").await;
        let asked = with("eve", FolderRight::Ro);
        let made = create(server, owner, "data", asked, None).await.unwrap();
        let offer = made.value.id.to_string();
        accept(server, &two.eve, &offer).await.unwrap();
    }
    assert_eq!(reads(&two, &two.eve, "data").await, "folder.ambiguous");
    assert_eq!(reads(&two, &two.eve, "abe/data").await, "done");
    assert_eq!(reads(&two, &two.eve, "chief/data").await, "done");
    two.made(&two.eve, "data").await;
    let own = super::super::get(server, &two.eve, "data").await.unwrap();
    assert_eq!(own.owner.name.as_str(), "eve");
}

#[tokio::test]
async fn a_folder_has_so_many_shares() {
    let two = TwoDomains::open().await;
    let folder = two.made(&two.abe, "data").await;
    let server = &two.server;
    let other = two.made(&two.chief, "other").await;
    let eve = two.eve.subject.user;
    server
        .catalog()
        .write(Lane::Requests, "fill the shares", move |rows| {
            let eve = rows.user(eve)?.expect("a user");
            for number in 0..MAX_FOLDER_SHARES {
                let user = rules::users::User {
                    id: rules::names::UserId::make(rows.now, base::observe::random()),
                    name: rules::names::UserName::parse(&format!("user.{number}")).unwrap(),
                    ..eve.clone()
                };
                rows.insert_user(&user, "none")?;
                let user = user.id;
                let share = FolderShare {
                    id: FolderShareId::make(rows.now, base::observe::random()),
                    folder: folder.id,
                    with: ShareTarget::User(user),
                    right: FolderRight::Ro,
                    accepted_at: None,
                    created_at: rows.now,
                    ends_at: None,
                };
                rows.put_folder_share(&share, "abe")?;
            }
            Ok(())
        })
        .await
        .unwrap();
    let refused = create(server, &two.abe, "data", with("eve", FolderRight::Ro), None).await;
    assert_eq!(code(refused), "folder.shares-many");
    let of_other = other.id.to_string();
    let made = create(
        server,
        &two.chief,
        &of_other,
        with("eve", FolderRight::Ro),
        None,
    )
    .await;
    assert!(made.is_ok(), "{made:?}");
}

/// One after the other, as a script asks: those beyond the bound are refused, and none of those before it is lost.
#[tokio::test]
async fn more_shares_than_a_folder_may_have_change_none_of_those_it_has() {
    let all = std::env::var("FARDEL_SHARES").ok();
    let all = all.map_or(SHARES, |text| text.parse().expect("a number"));
    let two = TwoDomains::open().await;
    two.made(&two.abe, "data").await;
    let (server, eve) = (&two.server, two.eve.subject.user);
    server
        .catalog()
        .write(Lane::Requests, "add many users", move |rows| {
            let eve = rows.user(eve)?.expect("a user");
            for number in 0..all {
                let user = rules::users::User {
                    id: rules::names::UserId::make(rows.now, base::observe::random()),
                    name: rules::names::UserName::parse(&format!("user.{number}")).unwrap(),
                    ..eve.clone()
                };
                rows.insert_user(&user, "none")?;
            }
            Ok(())
        })
        .await
        .unwrap();
    let (mut made, mut refused) = (Vec::new(), 0);
    for number in 0..all {
        let asked = with(&format!("user.{number}"), FolderRight::Ro);
        let shared = create(server, &two.abe, "data", asked, None).await;
        match shared {
            Ok(shared) => made.push(shared.value.id),
            shared => {
                assert_eq!(code(shared), "folder.shares-many", "user.{number}");
                refused += 1;
            }
        }
    }
    assert_eq!(
        (made.len(), refused),
        (MAX_FOLDER_SHARES, all - MAX_FOLDER_SHARES)
    );
    let listed = list(server, &two.abe, "data").await.unwrap();
    let ids: BTreeSet<_> = listed.iter().map(|share| share.id).collect();
    assert_eq!(ids, made.iter().copied().collect());
    // One that is there gets another right, and one that ends makes room.
    let known = with("user.0", FolderRight::Rw);
    let known = create(server, &two.abe, "data", known, None).await;
    assert_eq!(known.unwrap().value.id, made[0]);
    let last = || with(&format!("user.{}", all - 1), FolderRight::Ro);
    let full = create(server, &two.abe, "data", last(), None).await;
    assert_eq!(code(full), "folder.shares-many");
    remove(server, &two.abe, "data", &made[0].to_string())
        .await
        .unwrap();
    let made = create(server, &two.abe, "data", last(), None).await;
    assert!(made.is_ok(), "{made:?}");
}

#[tokio::test]
async fn a_user_is_given_so_many_folders() {
    let two = TwoDomains::open().await;
    let (server, eve) = (&two.server, two.eve.subject.user);
    two.made(&two.abe, "data").await;
    let draft = |number: usize| {
        let name = FolderName::parse(&format!("folder-{number}")).expect("a name");
        drafted(server, &two.chief.subject, name, FolderKind::General)
    };
    let others: Vec<Folder> = (0..MAX_SHARES_WITH).map(draft).collect();
    server
        .catalog()
        .write(Lane::Requests, "offer many folders", move |rows| {
            for folder in others {
                rows.insert_folder(&folder)?;
                let share = FolderShare {
                    id: FolderShareId::make(rows.now, base::observe::random()),
                    folder: folder.id,
                    with: ShareTarget::User(eve),
                    right: FolderRight::Ro,
                    accepted_at: None,
                    created_at: rows.now,
                    ends_at: None,
                };
                rows.put_folder_share(&share, "chief")?;
            }
            Ok(())
        })
        .await
        .unwrap();
    let asked = || with("eve", FolderRight::Ro);
    let full = create(server, &two.abe, "data", asked(), None).await;
    assert_eq!(code(full), "folder.shares-many");
    let offered = invitations(server, &two.eve).await.unwrap();
    assert_eq!(offered.len(), MAX_SHARES_WITH);
    // What she refuses makes room.
    let first = offered[0].id.to_string();
    decline(server, &two.eve, &first).await.unwrap();
    let made = create(server, &two.abe, "data", asked(), None).await;
    assert!(made.is_ok(), "{made:?}");
}

#[tokio::test]
async fn a_share_ends_by_its_time_and_takes_waiting_sessions_with_it() {
    let two = TwoDomains::open().await;
    let id = two.made(&two.abe, "data").await.id;
    let server = &two.server;
    let made = given(&two, "data", FolderRight::Ro).await;
    let asked = mounting("one", "abe/data:/data");
    let launched = launches::launch(server, &two.eve, asked, None).await;
    let session = launched.unwrap().sessions[0].id.to_string();
    end_due(server).await.unwrap();
    hold_waiting(server).await.unwrap();
    let waits = launches::get(server, &two.eve, &session).await.unwrap();
    assert_eq!(waits.state, SessionState::Pending);
    server
        .catalog()
        .write(Lane::Requests, "let a share end", move |rows| {
            let known = rows.folder_share(made.id)?.expect("a share");
            let share = FolderShare {
                ends_at: Some(rows.now),
                ..known.share
            };
            rows.put_folder_share(&share, "abe")
        })
        .await
        .unwrap();
    let which = id.to_string();
    assert_eq!(reads(&two, &two.eve, &which).await, "folder.not-found");
    end_due(server).await.unwrap();
    assert!(list(server, &two.abe, "data").await.unwrap().is_empty());
    let ended = launches::get(server, &two.eve, &session).await.unwrap();
    assert_eq!(ended.state, SessionState::Ended);
}

#[tokio::test]
async fn a_session_does_not_start_again_with_a_folder_that_is_shared_no_more() {
    let two = TwoDomains::open().await;
    two.made(&two.abe, "data").await;
    let server = &two.server;
    let share = given(&two, "data", FolderRight::Rw).await;
    let asked = mounting("one", "abe/data:/data");
    let launched = launches::launch(server, &two.eve, asked, None).await;
    let id = launched.unwrap().sessions[0].id;
    for (right, restarts, read_only) in [
        (Some(FolderRight::Rw), true, false),
        (Some(FolderRight::Ro), true, true),
        (None, false, true),
    ] {
        let share = share.id;
        let held = server
            .catalog()
            .write(Lane::Requests, "set a restart", move |rows| {
                let known = rows.folder_share(share)?.expect("a share").share;
                match right {
                    Some(right) => rows.put_folder_share(&FolderShare { right, ..known }, "abe")?,
                    None => rows.forget_folder_share(share)?,
                }
                for restart in [false, true] {
                    rows.change_session(id, None, "eve", None, |session| {
                        session.restart = restart;
                        true
                    })?;
                }
                Ok(rows.session(id)?.expect("a session"))
            })
            .await
            .unwrap();
        assert_eq!(held.restart, restarts, "{right:?}");
        assert_eq!(held.mounts[0].read_only, read_only, "{right:?}");
    }
}

#[tokio::test]
async fn who_is_given_a_folder_gives_it_for_no_longer() {
    let two = TwoDomains::open().await;
    two.made(&two.abe, "data").await;
    let server = &two.server;
    let end = server.clock().now().plus_seconds(3_600);
    let until = |user: &str, right, until| NewFolderShareBody {
        until,
        ..with(user, right)
    };
    let asked = until("eve", FolderRight::Rwd, Some(end));
    let made = create(server, &two.abe, "data", asked, None).await;
    let offer = made.unwrap().value.id.to_string();
    accept(server, &two.eve, &offer).await.unwrap();
    let soon = server.clock().now().plus_seconds(60);
    for (asked, given) in [
        (None, end),
        (Some(end.plus_seconds(1)), end),
        (Some(soon), soon),
    ] {
        let asked = until("chief", FolderRight::Ro, asked);
        let made = create(server, &two.eve, "abe/data", asked, None).await;
        assert_eq!(made.unwrap().value.ends_at, Some(given));
    }
}

#[tokio::test]
async fn an_owner_takes_a_folder_out_of_sessions_and_then_throws_it_away() {
    let two = TwoDomains::open().await;
    two.made(&two.abe, "data").await;
    let server = &two.server;
    given(&two, "data", FolderRight::Rwd).await;
    let asked = mounting("one", "abe/data:/data");
    let launched = launches::launch(server, &two.eve, asked, None).await;
    let id = launched.unwrap().sessions[0].id.to_string();
    let asked = |all: &[&str]| FolderDetachmentBody {
        sessions: all.iter().map(|one| (*one).to_owned()).collect(),
    };
    let stranger = detach(server, &two.mina, "abe/data", asked(&["eve/one"])).await;
    assert_eq!(code(stranger), "folder.not-found");
    let keeper = detach(server, &two.eve, "abe/data", asked(&["one"])).await;
    assert_eq!(code(keeper), "folder.detach-owner");
    for unknown in [&["one"][..], &["eve/two"], &["eve/one", "eve/two"], &[""]] {
        let refused = detach(server, &two.abe, "data", asked(unknown)).await;
        assert_eq!(code(refused), "folder.session-unknown", "{unknown:?}");
    }
    let many = vec!["eve/one"; MAX_DETACHED_AT_ONCE + 1];
    let refused = detach(server, &two.abe, "data", asked(&many)).await;
    assert_eq!(code(refused), "folder.sessions-many");
    let held = launches::get(server, &two.eve, &id).await.unwrap();
    assert!(!held.mounts[0].detached, "nothing is done in part");
    assert_eq!(
        code(trash(server, &two.abe, "data").await),
        "folder.mounted"
    );
    detach(server, &two.abe, "data", asked(&["eve/one"]))
        .await
        .unwrap();
    let held = launches::get(server, &two.eve, &id).await.unwrap();
    assert!(held.mounts[0].detached);
    assert_eq!(held.state, SessionState::Pending, "it goes on");
    let left = sessions(server, &two.abe, "data").await.unwrap();
    assert!(left.is_empty(), "{left:?}");
    let again = detach(server, &two.abe, "data", asked(&["eve/one"])).await;
    assert_eq!(code(again), "folder.session-unknown");
    trash(server, &two.abe, "data").await.unwrap();
    let copy = launches::duplicate(server, &two.eve, &id).await.unwrap();
    assert!(copy.mounts.is_empty(), "{:?}", copy.mounts);
    hold_waiting(server).await.unwrap();
    let held = launches::get(server, &two.eve, &id).await.unwrap();
    assert_eq!(
        held.state,
        SessionState::Pending,
        "the right to it matters no more"
    );
}
