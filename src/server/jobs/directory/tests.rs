//! Looks at a directory from which users vanish.

use rules::grants::GrantRole;

use super::look;
use crate::access::directory::tests::{
    TestEntries, TestEntry, asking, broken, by, directory, entry_of, role,
};
use crate::access::tests::later;
use crate::catalog::Lane;
use crate::catalog::sign_in_links::SignInLinkRecord;
use crate::code;

/// Who vanished from the directory is suspended at the next look, and their sign-ins end; a
/// directory that misses too many or does not answer suspends nobody.
#[tokio::test]
async fn who_vanished_is_suspended_at_the_next_look() {
    let names = ["kim", "lee", "park", "choi", "jung"];
    let all: Vec<TestEntry> = names.map(|name| entry_of(name, "good", &[])).into();
    let entries = TestEntries::default();
    entries.lock().unwrap().clone_from(&all);
    let folder = tempfile::tempdir().unwrap();
    let server = asking(folder.path(), directory(&entries).await).await;
    for name in names {
        by(&server, name, "good").await.unwrap();
    }
    later(&server, 1);
    let looked = async || look(&server).await.unwrap();
    assert_eq!(looked().await, 0);
    entries.lock().unwrap().clear();
    assert_eq!(looked().await, 0, "too many at once");
    let crowd = vec!["cn=g,dc=x"; rules::directory::MAX_GROUPS + 1];
    *entries.lock().unwrap() = names.map(|name| entry_of(name, "good", &crowd)).into();
    assert_eq!(looked().await, 0, "who has too many groups is there");
    let long = "x".repeat(5 << 20);
    *entries.lock().unwrap() = names
        .map(|name| entry_of(name, "good", &[long.as_str()]))
        .into();
    assert_eq!(looked().await, 0, "whose entry is too long is there");
    let made = server
        .catalog()
        .write(Lane::Requests, "make a link", |rows| {
            let kim = rows.user_named("kim")?.expect("kim signed in");
            let mina = rows.user_named("mina")?.expect("mina set it up");
            let link = SignInLinkRecord {
                user: mina.id,
                maker: kim.id,
                actor: "kim".into(),
                created_at: rows.now,
                expires_at: rows.now.plus_seconds(86_400),
            };
            rows.put_sign_in_link(&link, &[7; 32])
        });
    made.await.unwrap();
    *entries.lock().unwrap() = all[1..].to_vec();
    assert_eq!(looked().await, 1);
    assert_eq!(looked().await, 0);
    let kim = server
        .catalog()
        .read_now("look at a user", |view| {
            let user = view.user_named("kim")?.expect("the row stays");
            let link = view.sign_in_link_by_hash(&[7; 32])?;
            Ok((user.suspended, view.browsers(user.id)?.len(), link))
        })
        .unwrap();
    assert_eq!(kim, (true, 0, None));
    entries.lock().unwrap().clone_from(&all);
    assert_eq!(code(by(&server, "kim", "good").await), "user.suspended");
}

/// Who left a group loses its role at the next look, though they never sign in again.
#[tokio::test]
async fn who_left_a_group_loses_its_role_at_the_next_look() {
    let entries = TestEntries::default();
    let folder = tempfile::tempdir().unwrap();
    *entries.lock().unwrap() = vec![entry_of("kim", "good", &["heads"])];
    let server = asking(folder.path(), directory(&entries).await).await;
    by(&server, "kim", "good").await.unwrap();
    assert_eq!(role(&server, "kim"), Some(GrantRole::Lead));
    later(&server, 1);
    for (groups, then) in [
        (vec!["staff"], Some(GrantRole::Member)),
        (Vec::new(), None),
        (vec!["heads"], Some(GrantRole::Lead)),
    ] {
        *entries.lock().unwrap() = vec![entry_of("kim", "good", &groups)];
        assert_eq!(look(&server).await.unwrap(), 0);
        assert_eq!(role(&server, "kim"), then);
    }
}

/// Roles follow the groups also while too many are gone to suspend anybody, and where the directory
/// cannot read one entry; several of those in a row are a directory that does not answer.
#[tokio::test]
async fn roles_follow_the_groups_past_what_a_look_does_not_believe() {
    let names = ["kim", "lee", "park", "choi", "jung"];
    let entries = TestEntries::default();
    *entries.lock().unwrap() = names.map(|name| entry_of(name, "good", &["heads"])).into();
    let folder = tempfile::tempdir().unwrap();
    let server = asking(folder.path(), directory(&entries).await).await;
    for name in names {
        by(&server, name, "good").await.unwrap();
        // The next one comes after it in a look.
        later(&server, 1);
    }
    let suspended = |name: &str| {
        let user = server
            .catalog()
            .read_now("look at a user", |view| view.user_named(name));
        user.unwrap().unwrap().suspended
    };
    *entries.lock().unwrap() = vec![entry_of("kim", "good", &["staff"])];
    assert_eq!(look(&server).await.unwrap(), 0, "too many at once");
    assert_eq!(role(&server, "kim"), Some(GrantRole::Member));
    let unread = |name| broken(entry_of(name, "good", &[]));
    *entries.lock().unwrap() = vec![
        unread("kim"),
        entry_of("lee", "good", &["staff"]),
        unread("park"),
        entry_of("choi", "good", &[]),
    ];
    assert_eq!(look(&server).await.unwrap(), 1);
    assert!(suspended("jung") && !suspended("kim") && !suspended("park"));
    assert_eq!(role(&server, "kim"), Some(GrantRole::Member));
    assert_eq!(role(&server, "lee"), Some(GrantRole::Member));
    assert_eq!(role(&server, "choi"), None);
    let all = ["kim", "lee", "park"].map(unread);
    *entries.lock().unwrap() = all.into();
    assert_eq!(look(&server).await.unwrap(), 0, "it does not answer");
    assert!(!suspended("choi"));
}

/// Whoever signs in while a look is under way keeps what the sign-in gave them: the look may have asked before.
#[tokio::test]
async fn a_look_undoes_no_sign_in_that_came_after_it_began() {
    let entries = TestEntries::default();
    let folder = tempfile::tempdir().unwrap();
    let all = ["kim", "lee"].map(|name| entry_of(name, "good", &["heads"]));
    *entries.lock().unwrap() = all.into();
    let server = asking(folder.path(), directory(&entries).await).await;
    for name in ["kim", "lee"] {
        by(&server, name, "good").await.unwrap();
    }
    *entries.lock().unwrap() = vec![entry_of("kim", "good", &["staff"])];
    // The clock stands: they signed in at the moment at which the look begins.
    assert_eq!(look(&server).await.unwrap(), 0);
    assert_eq!(role(&server, "kim"), Some(GrantRole::Lead));
    later(&server, 1);
    assert_eq!(look(&server).await.unwrap(), 1);
    assert_eq!(role(&server, "kim"), Some(GrantRole::Member));
}
