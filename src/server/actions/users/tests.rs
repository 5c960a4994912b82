//! What users may do with accounts, on a catalog in memory.

use std::net::{IpAddr, Ipv4Addr};

use super::*;
use crate::access::{by_cookie, by_token, local_root, set_up, setup_link, sign_in};
use crate::code;

mod access_keys;
mod second_factor;
mod sign_in_link;
mod site_rules;
mod ssh_keys;
mod start_up;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const GOOD: &str = "correct horse battery";

/// A server with an administrator (boss) and a user (mina), both signed in.
async fn with_two() -> (Server, Caller, Caller) {
    let server = Server::for_tests();
    let setup = setup_link(&server).unwrap();
    let boss = set_up(&server, &setup, "boss", GOOD, HERE)
        .await
        .unwrap()
        .caller;
    create(&server, &boss, "mina", Role::User, GOOD)
        .await
        .unwrap();
    let mina = sign_in(&server, "mina", GOOD, HERE).await.unwrap().caller;
    (server, boss, mina)
}

#[tokio::test]
async fn a_password_that_an_administrator_chose_is_known_until_it_is_changed() {
    let (server, boss, mina) = with_two().await;
    assert_eq!(assigned_password(&server, &boss), None, "of the setup");
    assert!(assigned_password(&server, &mina).is_some());
    let own = "another good phrase";
    change_password(&server, &mina, GOOD, own).await.unwrap();
    assert_eq!(assigned_password(&server, &mina), None);
    let (given, kept) = ("a third long phrase", TokensAfterReset::Kept);
    set_password(&server, &boss, "mina", given, kept)
        .await
        .unwrap();
    let mina = sign_in(&server, "mina", given, HERE).await.unwrap().caller;
    assert!(assigned_password(&server, &mina).is_some());
}

#[tokio::test]
async fn accounts_are_for_administrators_and_ones_own_for_everybody() {
    let (server, boss, mina) = with_two().await;
    for result in [
        code(list(&server, &mina).await),
        code(get(&server, &mina, "boss").await),
        code(create(&server, &mina, "x", Role::User, GOOD).await),
        code(set_password(&server, &mina, "boss", GOOD, TokensAfterReset::Revoked).await),
        code(set_role(&server, &mina, "mina", Role::Administrator, None).await),
        code(suspend(&server, &mina, "boss", true, None).await),
        code(remove(&server, &mina, "boss", None).await),
    ] {
        assert_eq!(result, "role.administrator-needed");
    }
    assert_eq!(me(&server, &mina).await.unwrap().name.as_str(), "mina");
    let names: Vec<String> = list(&server, &boss)
        .await
        .unwrap()
        .iter()
        .map(|user| user.name.to_string())
        .collect();
    assert_eq!(names, ["boss", "mina"], "root is nobody's account");
    assert_eq!(code(get(&server, &boss, "root").await), "user.not-found");
    assert_eq!(
        code(create(&server, &boss, "mina", Role::User, GOOD).await),
        "user.name-taken"
    );
    assert_eq!(
        code(create(&server, &boss, "root", Role::User, GOOD).await),
        "user.name-taken"
    );
    assert_eq!(
        code(create(&server, &boss, "../x", Role::User, GOOD).await),
        "user.name-invalid"
    );
    assert_eq!(
        code(create(&server, &boss, "controller", Role::User, GOOD).await),
        "user.name-reserved"
    );
    assert_eq!(
        code(create(&server, &boss, "jae", Role::User, "1234567890").await),
        "password.too-common"
    );
}

#[tokio::test]
async fn the_same_key_makes_one_account() {
    let (server, boss, _) = with_two().await;
    let key = |digest: u8| {
        Some(IdempotencyKey {
            key: "k1".into(),
            route: "POST /api/v1/users".into(),
            body_digest: [digest; 32],
        })
    };
    let make = async |digest: u8| {
        create_once(&server, &boss, "jae", Role::User, GOOD, None, key(digest)).await
    };
    let first = make(1).await.unwrap();
    let again = make(1).await.unwrap();
    assert_eq!((first.replayed, again.replayed), (false, true));
    let told = |user: &User| serde_json::to_value(user).unwrap();
    assert_eq!(told(&first.value), told(&again.value));
    assert_eq!(code(make(2).await), "idempotency.key-reused");
}

#[tokio::test]
async fn the_last_administrator_stays() {
    let (server, boss, mina) = with_two().await;
    let root = local_root(&server);
    for result in [
        code(suspend(&server, &root, "boss", true, None).await),
        code(remove(&server, &root, "boss", None).await),
        code(set_role(&server, &root, "boss", Role::User, None).await),
    ] {
        assert_eq!(result, "user.last-administrator");
    }
    set_role(&server, &boss, "mina", Role::Administrator, None)
        .await
        .unwrap();
    assert_eq!(
        code(suspend(&server, &boss, "boss", true, None).await),
        "user.self"
    );
    assert_eq!(
        code(remove(&server, &boss, "boss", None).await),
        "user.self"
    );
    suspend(&server, &boss, "mina", true, None).await.unwrap();
    assert_eq!(
        code(set_role(&server, &boss, "boss", Role::User, None).await),
        "user.last-administrator",
        "a suspended administrator does not count"
    );
    suspend(&server, &boss, "mina", false, None).await.unwrap();
    remove(&server, &root, "boss", None).await.unwrap();
    assert_eq!(
        code(get(&server, &mina, "boss").await),
        "role.administrator-needed"
    );
}

#[tokio::test]
async fn suspension_and_removal_end_every_way_in() {
    let (server, boss, mina) = with_two().await;
    let cookie = sign_in(&server, "mina", GOOD, HERE).await.unwrap().cookie;
    let (_, secret) = tokens::create(&server, &mina, "robot", &["me".into()], None, &[])
        .await
        .unwrap();
    let known = async || by_cookie(&server, &cookie, HERE).await.unwrap().is_some();
    assert!(known().await);
    suspend(&server, &boss, "mina", true, None).await.unwrap();
    assert!(!known().await);
    assert_eq!(
        code(by_token(&server, secret.reveal(), HERE).await),
        "user.suspended"
    );
    assert_eq!(
        code(sign_in(&server, "mina", GOOD, HERE).await),
        "user.suspended"
    );
    suspend(&server, &boss, "mina", false, None).await.unwrap();
    assert!(!known().await, "a sign-in that ended stays ended");
    assert!(
        by_token(&server, secret.reveal(), HERE)
            .await
            .unwrap()
            .is_some()
    );
    remove(&server, &boss, "mina", None).await.unwrap();
    assert!(
        by_token(&server, secret.reveal(), HERE)
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(
        code(sign_in(&server, "mina", GOOD, HERE).await),
        "sign-in.wrong"
    );
    create(&server, &boss, "mina", Role::User, GOOD)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_new_password_ends_other_sign_ins_and_lifts_a_lock() {
    let (server, boss, mina) = with_two().await;
    let other = sign_in(&server, "mina", GOOD, HERE).await.unwrap();
    assert_eq!(
        code(change_password(&server, &mina, "wrong", "another good phrase").await),
        "password.wrong"
    );
    assert_eq!(
        code(change_password(&server, &mina, GOOD, "short").await),
        "password.too-short"
    );
    change_password(&server, &mina, GOOD, "another good phrase")
        .await
        .unwrap();
    assert!(
        by_cookie(&server, &other.cookie, HERE)
            .await
            .unwrap()
            .is_none()
    );
    let left = sign_ins(&server, &mina).await.unwrap();
    assert_eq!((left.len(), left[0].current), (1, true));
    for _ in 0..10 {
        let _ = sign_in(&server, "mina", "no no no no", HERE).await;
    }
    assert_eq!(
        code(sign_in(&server, "mina", GOOD, HERE).await),
        "sign-in.locked"
    );
    set_password(&server, &boss, "mina", GOOD, TokensAfterReset::Revoked)
        .await
        .unwrap();
    assert_eq!(code(sign_in(&server, "mina", GOOD, HERE).await), "done");
    assert!(
        sign_ins(&server, &mina)
            .await
            .unwrap()
            .iter()
            .all(|s| !s.current)
    );
}

/// Who knew the old password may have made tokens and signed in: all of it ends but what asks, whichever that is.
#[tokio::test]
async fn a_changed_password_ends_every_token_and_browser_but_the_one_that_asks() {
    let (server, boss, mina) = with_two().await;
    let make = async |name: &str, caller: &Caller| {
        let made = tokens::create(&server, caller, name, &["me".into()], None, &[]).await;
        made.unwrap().1
    };
    let known = async |secret: &SecretText| by_token(&server, secret.reveal(), HERE).await.unwrap();
    let (first, second) = (make("first", &mina).await, make("second", &mina).await);
    let another = make("another", &boss).await;
    let (two, three) = ("another good phrase", "a third good phrase");
    let robot = known(&first).await.unwrap();
    change_password(&server, &robot, GOOD, two).await.unwrap();
    assert!(known(&first).await.is_some(), "the one that asked ended");
    assert!(known(&second).await.is_none());
    assert!(known(&another).await.is_some(), "of another user");
    assert!(sign_ins(&server, &mina).await.unwrap().is_empty());
    let mina = sign_in(&server, "mina", two, HERE).await.unwrap().caller;
    change_password(&server, &mina, two, three).await.unwrap();
    assert!(known(&first).await.is_none());
    assert_eq!(sign_ins(&server, &mina).await.unwrap().len(), 1);
    let whose = mina.subject.user.to_string();
    let told = server
        .catalog()
        .read_now("look at events", |view| view.events_of(&whose, 1))
        .unwrap();
    assert_eq!(
        (told[0].code.as_str(), told[0].after.as_str()),
        ("user.password-changed", "tokens revoked")
    );
}

#[tokio::test]
async fn a_password_that_an_administrator_sets_ends_sign_ins_and_tokens_unless_kept() {
    let (server, boss, mina) = with_two().await;
    let cookie = sign_in(&server, "mina", GOOD, HERE).await.unwrap().cookie;
    let (_, secret) = tokens::create(&server, &mina, "robot", &["me".into()], None, &[])
        .await
        .unwrap();
    let (_, other) = tokens::create(&server, &boss, "other", &["me".into()], None, &[])
        .await
        .unwrap();
    let valid = async |secret: &SecretText| {
        let known = by_token(&server, secret.reveal(), HERE).await;
        known.unwrap().is_some()
    };
    set_password(&server, &boss, "mina", GOOD, TokensAfterReset::Kept)
        .await
        .unwrap();
    assert!(by_cookie(&server, &cookie, HERE).await.unwrap().is_none());
    assert!(valid(&secret).await, "it was to be kept");
    set_password(&server, &boss, "mina", GOOD, TokensAfterReset::Revoked)
        .await
        .unwrap();
    assert!(!valid(&secret).await);
    assert!(valid(&other).await, "another's token is not hers");
}

#[tokio::test]
async fn an_administrator_changes_their_own_password_with_the_old_one_alone() {
    let (server, boss, _) = with_two().await;
    let (_, secret) = tokens::create(&server, &boss, "t", &["users:write".into()], None, &[])
        .await
        .unwrap();
    let robot = by_token(&server, secret.reveal(), HERE).await.unwrap();
    for caller in [&boss, &robot.unwrap()] {
        let kept = TokensAfterReset::Kept;
        let set = set_password(&server, caller, "boss", "another good phrase", kept).await;
        assert_eq!(code(set), "user.self");
    }
    assert_eq!(code(sign_in(&server, "boss", GOOD, HERE).await), "done");
    let root = local_root(&server);
    let kept = TokensAfterReset::Kept;
    let set = set_password(&server, &root, "boss", "another good phrase", kept).await;
    assert_eq!(code(set), "done");
}

/// With the new password one signs in with all that its user may, and not with what the token may.
#[tokio::test]
async fn a_token_sets_no_password_of_a_user_who_may_more_than_it() {
    let (server, boss, _) = with_two().await;
    for (without, told) in [
        (Some(Permission::SessionsEnter), "token.scope-missing"),
        (Some(Permission::Me), "token.scope-missing"),
        (Some(Permission::SystemWrite), "done"),
        (None, "done"),
    ] {
        let kept = Permission::ALL.into_iter();
        let kept = kept.filter(|one| Some(*one) != without);
        let scopes: Vec<String> = kept.map(|one| one.word().to_owned()).collect();
        let name = without.map_or("all", Permission::word);
        let (_, secret) = tokens::create(&server, &boss, name, &scopes, None, &[])
            .await
            .unwrap();
        let robot = by_token(&server, secret.reveal(), HERE).await.unwrap();
        let robot = robot.unwrap();
        let tokens = TokensAfterReset::Kept;
        let set = set_password(&server, &robot, "mina", "another good phrase", tokens).await;
        assert_eq!(code(set), told, "{name}");
    }
}

#[tokio::test]
async fn guessing_the_old_password_from_inside_locks_too() {
    let (server, _, mina) = with_two().await;
    for _ in 0..6 {
        assert_eq!(
            code(change_password(&server, &mina, "no no no no", GOOD).await),
            "password.wrong"
        );
    }
    for _ in 0..2 {
        assert_eq!(
            code(change_password(&server, &mina, "no no no no", GOOD).await),
            "sign-in.locked"
        );
    }
    // Whoever has the password signs in all the same.
    assert_eq!(code(sign_in(&server, "mina", GOOD, HERE).await), "done");
}

#[tokio::test]
async fn a_new_token_buys_no_more_guesses_of_the_password() {
    let (server, _, mina) = with_two().await;
    let mut came = Vec::new();
    for n in 0..8 {
        let (_, secret) =
            tokens::create(&server, &mina, &format!("t{n}"), &["me".into()], None, &[])
                .await
                .unwrap();
        let robot = by_token(&server, secret.reveal(), HERE).await.unwrap();
        let tried = change_password(&server, &robot.unwrap(), "no no no no", GOOD).await;
        came.push(code(tried));
    }
    assert_eq!(came.iter().filter(|c| *c == "password.wrong").count(), 6);
    assert_eq!(came.last().unwrap(), "sign-in.locked");
    // The browser, and whoever has the password, do not wait for it.
    let own = change_password(&server, &mina, "no no no no", GOOD).await;
    assert_eq!(code(own), "password.wrong");
    assert_eq!(code(sign_in(&server, "mina", GOOD, HERE).await), "done");
}

/// What proved a caller at the beginning of a request may be ended before the token that it asks for is written.
#[tokio::test]
async fn nothing_that_has_ended_makes_a_token() {
    let (server, boss, mina) = with_two().await;
    let make = async |caller: &Caller| {
        code(tokens::create(&server, caller, "late", &["me".into()], None, &[]).await)
    };
    let (token, secret) = tokens::create(&server, &mina, "t", &["me".into()], None, &[])
        .await
        .unwrap();
    let by_secret = by_token(&server, secret.reveal(), HERE).await.unwrap();
    let robot = by_secret.unwrap();
    assert_eq!(make(&robot).await, "done");
    suspend(&server, &boss, "mina", true, None).await.unwrap();
    assert_eq!(make(&robot).await, "user.suspended");
    assert_eq!(make(&mina).await, "sign-in.ended");
    suspend(&server, &boss, "mina", false, None).await.unwrap();
    let again = sign_in(&server, "mina", GOOD, HERE).await.unwrap().caller;
    tokens::revoke(&server, &again, token.id).await.unwrap();
    assert_eq!(make(&robot).await, "token.revoked");
    access::sign_out(&server, &again).await.unwrap();
    assert_eq!(make(&again).await, "sign-in.ended");
}

#[tokio::test]
async fn a_token_is_shown_once_expires_and_can_be_revoked() {
    let (server, _, mina) = with_two().await;
    let end = server.clock().now().plus_seconds(60);
    let (token, secret) = tokens::create(
        &server,
        &mina,
        "nightly",
        &["sessions:read".into(), "me".into()],
        Some(end),
        &[],
    )
    .await
    .unwrap();
    let text = secret.reveal();
    assert!(
        text.starts_with("fardel_") && text.len() == 50,
        "{}",
        text.len()
    );
    let robot = by_token(&server, text, HERE).await.unwrap().unwrap();
    assert_eq!(
        robot.subject.scopes,
        Some(vec![Permission::SessionsRead, Permission::Me])
    );
    let listed = tokens::list(&server, &robot).await.unwrap();
    assert_eq!(listed[0].used_from.as_deref(), Some("192.0.2.7"));
    let wider = ["sessions:write".to_owned()];
    assert_eq!(
        code(tokens::create(&server, &robot, "more", &wider, None, &[]).await),
        "scope.wider"
    );
    for (name, scopes, wanted) in [
        ("", vec!["me"], "token.name-missing"),
        ("a\0", vec!["me"], "token.nul"),
        ("\u{202e}", vec!["me"], "token.hidden-characters"),
        (&"x".repeat(65), vec!["me"], "token.too-long"),
        ("a", vec![], "scope.missing"),
        ("a", vec!["everything"], "scope.unknown"),
    ] {
        let scopes: Vec<String> = scopes.into_iter().map(str::to_owned).collect();
        assert_eq!(
            code(tokens::create(&server, &mina, name, &scopes, None, &[]).await),
            wanted
        );
    }
    let past = Some(server.clock().now());
    assert_eq!(
        code(tokens::create(&server, &mina, "a", &["me".into()], past, &[]).await),
        "expires-at.past"
    );
    let mut forged = text.to_owned();
    forged.pop();
    forged.push(if text.ends_with('A') { 'B' } else { 'A' });
    assert!(by_token(&server, &forged, HERE).await.unwrap().is_none());
    server.clock().set(end);
    assert_eq!(code(by_token(&server, text, HERE).await), "token.expired");
    tokens::revoke(&server, &mina, token.id).await.unwrap();
    assert!(by_token(&server, text, HERE).await.unwrap().is_none());
    assert_eq!(
        code(tokens::revoke(&server, &mina, token.id).await),
        "token.not-found"
    );
}

#[tokio::test]
async fn preferences_are_checked_and_kept() {
    let (server, _, mina) = with_two().await;
    let set = async |language: &str, theme: &str, zone: &str| {
        set_me(
            &server,
            &mina,
            UserPreferences {
                language: Some(language.into()),
                theme: Some(theme.into()),
                time_zone: Some(zone.into()),
            },
        )
        .await
    };
    let kept = set("ko", "dark", "Asia/Seoul").await.unwrap();
    assert_eq!(
        (kept.language.as_str(), kept.theme.as_str()),
        ("ko", "dark")
    );
    assert_eq!(code(set("xx", "dark", "").await), "language.unknown");
    assert_eq!(code(set("en", "pink", "").await), "theme.unknown");
    assert_eq!(
        code(set("en", "dark", "../etc/passwd").await),
        "time-zone.unknown"
    );
    let unchanged = set_me(&server, &mina, UserPreferences::default())
        .await
        .unwrap();
    assert_eq!(unchanged.time_zone, "Asia/Seoul");
}

#[tokio::test]
async fn the_setup_link_is_for_root_on_the_machine_and_its_code_works() {
    let (done, boss, mina) = with_two().await;
    let refused = setup_links(&done, &mina).await;
    assert_eq!(code(refused), "role.administrator-needed");
    let after = setup_links(&done, &boss).await.unwrap();
    assert!(!after.open);
    assert_eq!(after.links, ["http://127.0.0.1:7860/login"]);

    let server = Server::for_tests();
    let root = local_root(&server);
    // Whoever is no root on the machine, whatever else they may.
    let mut elsewhere = root.clone();
    elsewhere.via = boss.via;
    assert_eq!(
        code(setup_links(&server, &elsewhere).await),
        "setup.root-needed"
    );
    let first = setup_links(&server, &root).await.unwrap();
    let second = setup_links(&server, &root).await.unwrap();
    assert!(first.open && second.open);
    let drawn = |links: &SetupLinks| {
        let (address, code) = links.links[0].split_once("?code=").unwrap();
        assert_eq!(address, "http://127.0.0.1:7860/setup");
        code.to_owned()
    };
    assert_eq!(
        code(set_up(&server, &drawn(&first), "boss", GOOD, HERE).await),
        "setup.code-wrong",
        "a new code voids the one before it"
    );
    set_up(&server, &drawn(&second), "boss", GOOD, HERE)
        .await
        .unwrap();
}

#[tokio::test]
async fn making_an_administrator_as_root_closes_setup() {
    let server = Server::for_tests();
    let setup = setup_link(&server).unwrap();
    create(
        &server,
        &local_root(&server),
        "boss",
        Role::Administrator,
        GOOD,
    )
    .await
    .unwrap();
    assert_eq!(
        code(set_up(&server, &setup, "mallory", GOOD, HERE).await),
        "setup.done"
    );
    let root = local_root(&server);
    assert_eq!(
        code(tokens::create(&server, &root, "a", &["me".into()], None, &[]).await),
        "user.root"
    );
    assert_eq!(me(&server, &root).await.unwrap().name.as_str(), "root");
}

#[tokio::test]
async fn nothing_that_is_kept_shows_a_secret() {
    let directory = tempfile::tempdir().unwrap();
    let settings = base::settings::Settings {
        data: directory.path().to_path_buf(),
        ..(*Server::for_tests().settings()).clone()
    };
    let server = Server::start(settings, base::observe::Clock::system()).unwrap();
    let setup = setup_link(&server).unwrap();
    let boss = set_up(&server, &setup, "boss", GOOD, HERE).await.unwrap();
    let (_, secret) = tokens::create(&server, &boss.caller, "a", &["me".into()], None, &[])
        .await
        .unwrap();
    drop(server);
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let path = entry.unwrap().path();
        let Ok(bytes) = std::fs::read(&path) else {
            continue;
        };
        let plain_setup = setup.replace('-', "");
        for planted in [GOOD, secret.reveal(), &boss.cookie, &setup, &plain_setup] {
            let found = bytes
                .windows(planted.len())
                .any(|part| part == planted.as_bytes());
            assert!(!found, "{} holds a secret", path.display());
        }
    }
}

/// Proves too: `everything_that_a_token_opened_ends_when_it_is_revoked`
#[tokio::test]
async fn the_account_of_a_guest_is_told_of_its_end_and_suspended_then() {
    let (server, boss, mina) = with_two().await;
    let ends = |end: Option<Timestamp>| UserPatchBody {
        expires_at: Some(end),
        ..UserPatchBody::default()
    };
    let now = server.clock().now();
    let end = now.plus_seconds(8 * 86_400);
    let past = patch(&server, &boss, "mina", ends(Some(now)), None).await;
    assert_eq!(code(past), "grant.ends-in-past");
    let chief = patch(&server, &boss, "boss", ends(Some(end)), None).await;
    assert_eq!(code(chief), "user.end-of-administrator");
    patch(&server, &boss, "mina", ends(Some(end)), None)
        .await
        .unwrap();
    let chief = set_role(&server, &boss, "mina", Role::Administrator, None).await;
    assert_eq!(code(chief), "user.end-of-administrator");
    let told = async || {
        super::super::notices::list(&server, &mina)
            .await
            .unwrap()
            .len()
    };
    assert_eq!(told().await, 0, "more than a week before");
    server.clock().set(now.plus_seconds(2 * 86_400));
    assert_eq!(told().await, 1);
    let sweep = async || {
        server
            .catalog()
            .end_accounts(server.clock().now())
            .await
            .unwrap()
    };
    sweep().await;
    assert!(!get(&server, &boss, "mina").await.unwrap().suspended);
    server.clock().set(end);
    // Also before it is written down.
    assert_eq!(
        code(sign_in(&server, "mina", GOOD, HERE).await),
        "user.suspended"
    );
    sweep().await;
    assert!(get(&server, &boss, "mina").await.unwrap().suspended);
    assert_eq!(
        code(sign_in(&server, "mina", GOOD, HERE).await),
        "user.suspended"
    );
    // A clock that is set back does not admit them.
    server.clock().set(now);
    sweep().await;
    assert!(get(&server, &boss, "mina").await.unwrap().suspended);
    server.clock().set(end);
    let back = suspend(&server, &boss, "mina", false, None).await.unwrap();
    assert_eq!((back.suspended, back.expires_at), (false, None));
    sweep().await;
    assert!(!get(&server, &boss, "mina").await.unwrap().suspended);
}

#[tokio::test]
async fn folders_of_who_leaves_are_offered_within_the_domain_alone() {
    let (server, boss, mina) = with_two().await;
    create(&server, &boss, "lee", Role::User, GOOD)
        .await
        .unwrap();
    let offer = async |by: &Caller, who: &str, to: &str| {
        departure::offer_folders(&server, by, who, to).await
    };
    assert_eq!(
        code(offer(&mina, "lee", "mina").await),
        "role.administrator-needed"
    );
    assert_eq!(code(offer(&boss, "boss", "lee").await), "user.self");
    for to in ["", "none", "mina", "boss"] {
        assert_eq!(
            code(offer(&boss, "mina", to).await),
            "folder.share-unknown",
            "{to}"
        );
    }
    suspend(&server, &boss, "lee", true, None).await.unwrap();
    assert_eq!(
        code(offer(&boss, "mina", "lee").await),
        "folder.share-unknown"
    );
    suspend(&server, &boss, "lee", false, None).await.unwrap();
    let plan = offer(&boss, "mina", "lee").await.unwrap();
    assert_eq!((plan.folders, plan.offered, plan.reservations), (0, 0, 0));
    assert_eq!(plan.user.name.as_str(), "mina");
}
