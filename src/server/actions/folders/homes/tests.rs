//! What launches mount that did not ask for it: homes and dot-folders, through the actions that doors call.

use api::mounts::{MountView, NewMountBody};
use api::sessions::{LaunchRequest, SessionView};
use rules::folder::RequestedMount;

use super::super::tests::TwoDomains;
use super::super::{get, trash};
use crate::access::Caller;
use crate::actions::{policies, sessions};
use crate::code;

fn asking(name: &str, mounts: &[&str]) -> LaunchRequest {
    let read = |text: &&str| NewMountBody::from(RequestedMount::parse(text).expect("a mount"));
    LaunchRequest {
        name: Some(name.to_owned()),
        mounts: mounts.iter().map(read).collect(),
        ..LaunchRequest::default()
    }
}

async fn open() -> TwoDomains {
    let two = TwoDomains::open().await;
    two.server.give_homes();
    two
}

async fn launched(two: &TwoDomains, caller: &Caller, request: LaunchRequest) -> SessionView {
    let launched = sessions::launch(&two.server, caller, request, None).await;
    launched.expect("it is launched").sessions.remove(0)
}

fn places(session: &SessionView) -> Vec<&str> {
    let mounts = session.mounts.iter();
    mounts.map(|mount: &MountView| mount.at.as_str()).collect()
}

#[tokio::test]
async fn each_session_has_the_home_of_its_owner_and_their_dot_folders() {
    let two = open().await;
    let first = launched(&two, &two.abe, asking("one", &[])).await;
    assert_eq!(places(&first), ["/home/work"]);
    assert!(first.mounts[0].by_itself);
    two.made(&two.abe, ".local").await;
    two.made(&two.abe, "data").await;
    let second = launched(&two, &two.abe, asking("two", &["data"])).await;
    let all = ["/folders/data", "/home/work", "/home/work/.local"];
    assert_eq!(places(&second), all);
    assert_eq!(second.mounts[1].folder, first.mounts[0].folder);
    let theirs = launched(&two, &two.eve, asking("one", &[])).await;
    assert_ne!(theirs.mounts[0].folder, first.mounts[0].folder);
    let without = LaunchRequest {
        without_home: true,
        ..asking("bare", &[])
    };
    assert!(launched(&two, &two.abe, without).await.mounts.is_empty());
    // What is by itself is no part of a request that asks for the same again.
    let copy = sessions::duplicate(&two.server, &two.abe, &second.id.to_string()).await;
    let copy = copy.unwrap();
    assert_eq!((copy.mounts.len(), copy.without_home), (1, false));
    let bare = sessions::duplicate(&two.server, &two.abe, "bare").await;
    assert!(bare.unwrap().without_home);
    let mounted = trash(&two.server, &two.abe, ".local").await;
    assert_eq!(code(mounted), "folder.mounted");
}

#[tokio::test]
async fn a_session_that_another_user_launches_has_none() {
    let two = open().await;
    let own = launched(&two, &two.abe, asking("own", &[])).await;
    let for_abe = LaunchRequest {
        owner: Some("abe".to_owned()),
        ..asking("lesson", &[])
    };
    let lesson = launched(&two, &two.chief, for_abe).await;
    assert_eq!(lesson.owner.name.as_str(), "abe");
    assert!(lesson.mounts.is_empty());
    // Nor does the command of another user get the home of who copies the session.
    let copy = sessions::duplicate(&two.server, &two.chief, &own.id.to_string()).await;
    assert!(copy.unwrap().without_home);
}

#[tokio::test]
async fn a_policy_leaves_sessions_without_a_home() {
    let two = open().await;
    let set = async |no_home| {
        let patch = api::policies::PolicyPatchBody {
            no_home: Some(no_home),
            ..Default::default()
        };
        let changed = policies::change(&two.server, &two.boss, "default", patch, None).await;
        assert_eq!(changed.unwrap().no_home, no_home);
    };
    set(true).await;
    let bare = launched(&two, &two.abe, asking("bare", &[])).await;
    assert!(bare.mounts.is_empty());
    let asked = launched(&two, &two.abe, asking("asked", &["home"])).await;
    assert_eq!(places(&asked), ["/home/work"], "who asks for it has it");
    set(false).await;
    let whole = launched(&two, &two.abe, asking("whole", &[])).await;
    assert_eq!(places(&whole), ["/home/work"]);
}

#[tokio::test]
async fn a_home_gives_way_to_what_the_launch_mounts_and_the_session_says_so() {
    let two = open().await;
    two.made(&two.abe, "data").await;
    let asked = asking("one", &["data:/home/work/data"]);
    let session = launched(&two, &two.abe, asked).await;
    assert_eq!(places(&session), ["/home/work/data"]);
    assert!(get(&two.server, &two.abe, "home").await.is_err());
    let whole = launched(&two, &two.abe, asking("two", &["data:/home/work"])).await;
    assert_eq!(places(&whole), ["/home/work"]);
    let elsewhere = launched(&two, &two.abe, asking("three", &["home:/mine"])).await;
    assert_eq!(places(&elsewhere), ["/mine"]);
    // From now on there is a home that is left out.
    launched(&two, &two.abe, asking("four", &["data:/home/work/data"])).await;
    let events = sessions::events(&two.server, &two.abe, "four").await;
    let events = events.unwrap();
    let told = events
        .iter()
        .find(|event| event.code == rules::codes::SESSION_FOLDER_LEFT_OUT);
    let told = &told.expect("an event").after;
    assert!(told.contains("/home/work/data"), "{told}");
}

#[tokio::test]
async fn a_home_in_the_trash_keeps_no_session_from_starting_again() {
    let two = open().await;
    let first = launched(&two, &two.abe, asking("one", &[])).await;
    let home = first.mounts[0].folder;
    sessions::stop(&two.server, &two.abe, "one", true)
        .await
        .unwrap();
    trash(&two.server, &two.abe, "home").await.unwrap();
    let again = sessions::restart(&two.server, &two.abe, &first.id.to_string()).await;
    assert!(again.unwrap().mounts.is_empty());
    let second = launched(&two, &two.abe, asking("two", &[])).await;
    assert_ne!(second.mounts[0].folder, home, "a new home was made");
}
