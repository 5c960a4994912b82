//! Looks at a directory from which users vanish.

use rules::grants::GrantRole;

use super::look;
use crate::access::directory::tests::{
    TestEntries, TestEntry, asking, by, directory, entry_of, role,
};
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
    *entries.lock().unwrap() = all[1..].to_vec();
    assert_eq!(looked().await, 1);
    assert_eq!(looked().await, 0);
    let kim = server
        .catalog()
        .read_now("look at a user", |view| {
            let user = view.user_named("kim")?.expect("the row stays");
            Ok((user.suspended, view.browsers(user.id)?.len()))
        })
        .unwrap();
    assert_eq!(kim, (true, 0));
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
