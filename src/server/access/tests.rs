//! Who gets in and who does not, with a clock set by hand.

use std::net::{IpAddr, Ipv4Addr};

use super::*;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const GOOD: &str = "correct horse battery";

fn server() -> Server {
    Server::for_tests()
}

fn later(server: &Server, seconds: u64) {
    server
        .clock()
        .set(server.clock().now().plus_seconds(seconds));
}

async fn with_mina() -> (Server, SignedIn) {
    let server = server();
    let code = setup_link(&server).unwrap();
    let signed_in = set_up(&server, &code, "mina", GOOD, HERE).await.unwrap();
    (server, signed_in)
}

fn code<T>(result: Result<T, Failure>) -> String {
    match result {
        Ok(_) => "done".to_owned(),
        Err(Failure::Refusal(refusal)) => refusal.code,
        Err(Failure::Fault(fault)) => format!("fault: {}", base::observe::chain(&fault)),
    }
}

#[tokio::test]
async fn the_setup_code_works_once_and_for_one_hour() {
    let server = server();
    let old = setup_link(&server).unwrap();
    let code_now = setup_link(&server).unwrap();
    let try_with = async |text: &str| code(set_up(&server, text, "mina", GOOD, HERE).await);
    assert_eq!(try_with(&old).await, "setup.code-wrong");
    later(&server, 3600);
    assert_eq!(try_with(&code_now).await, "setup.code-expired");
    let fresh = setup_link(&server).unwrap();
    assert_eq!(
        code(set_up(&server, &fresh, "mina", "short", HERE).await),
        "password.too-short"
    );
    assert!(setup_open(&server));
    assert_eq!(
        try_with(&fresh.to_lowercase().replace('-', " ")).await,
        "done"
    );
    assert_eq!(try_with(&fresh).await, "setup.done");
    assert!(!setup_open(&server));
    assert_eq!(setup_link(&server), None);
}

#[tokio::test]
async fn setup_locks_after_ten_wrong_codes() {
    let server = server();
    let right = setup_link(&server).unwrap();
    for _ in 0..9 {
        assert_eq!(
            code(set_up(&server, "AAAA", "mina", GOOD, HERE).await),
            "setup.code-wrong"
        );
    }
    assert_eq!(
        code(set_up(&server, "AAAA", "mina", GOOD, HERE).await),
        "sign-in.locked"
    );
    assert_eq!(
        code(set_up(&server, &right, "mina", GOOD, HERE).await),
        "sign-in.locked"
    );
}

#[tokio::test]
async fn a_cookie_lives_while_it_is_used_and_a_week_at_most() {
    let (server, signed_in) = with_mina().await;
    let cookie = &signed_in.cookie;
    let known = async || by_cookie(&server, cookie).await.unwrap().is_some();
    assert!(known().await);
    assert!(by_cookie(&server, "nobody").await.unwrap().is_none());
    let mut forged = cookie.clone();
    forged.replace_range(0..1, if cookie.starts_with('A') { "B" } else { "A" });
    assert!(by_cookie(&server, &forged).await.unwrap().is_none());
    for _ in 0..15 {
        later(&server, 11 * 3600);
        assert!(known().await);
    }
    later(&server, 11 * 3600);
    assert!(!known().await, "a week is the most");
}

#[tokio::test]
async fn a_cookie_that_rests_twelve_hours_is_void_and_signing_out_ends_it_at_once() {
    let (server, signed_in) = with_mina().await;
    let second = sign_in(&server, "mina", GOOD, HERE).await.unwrap();
    sign_out(&server, &second.caller).await.unwrap();
    assert!(by_cookie(&server, &second.cookie).await.unwrap().is_none());
    assert!(
        by_cookie(&server, &signed_in.cookie)
            .await
            .unwrap()
            .is_some()
    );
    later(&server, 12 * 3600);
    assert!(
        by_cookie(&server, &signed_in.cookie)
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test]
async fn ten_failures_lock_a_name_for_twenty_minutes_and_then_for_forty() {
    let (server, _) = with_mina().await;
    let guess = async |password: &str| sign_in(&server, "mina", password, HERE).await;
    for _ in 0..9 {
        assert_eq!(code(guess("wrong wrong wrong").await), "sign-in.wrong");
    }
    let Err(Failure::Refusal(locked)) = guess("wrong wrong wrong").await else {
        panic!("the tenth failure does not lock");
    };
    assert_eq!(
        (locked.code.as_str(), locked.retry_after_seconds),
        ("sign-in.locked", Some(1200))
    );
    let until = server.clock().now().plus_seconds(1200).to_string();
    assert!(locked.text.contains(&until), "{locked}");
    assert_eq!(code(guess(GOOD).await), "sign-in.locked");
    later(&server, 1199);
    assert_eq!(code(guess(GOOD).await), "sign-in.locked");
    later(&server, 1);
    for _ in 0..9 {
        assert_eq!(code(guess("wrong wrong wrong").await), "sign-in.wrong");
    }
    let Err(Failure::Refusal(longer)) = guess("wrong wrong wrong").await else {
        panic!("it does not lock again");
    };
    assert_eq!(longer.retry_after_seconds, Some(2400));
    later(&server, 2400);
    assert_eq!(code(guess(GOOD).await), "done");
}

#[tokio::test]
async fn an_unknown_name_is_answered_and_locked_like_a_known_one() {
    let (server, _) = with_mina().await;
    let mut known = Vec::new();
    let mut unknown = Vec::new();
    for _ in 0..11 {
        known.push(code(sign_in(&server, "mina", "wrong wrong", HERE).await));
        unknown.push(code(sign_in(&server, "nobody", "wrong wrong", HERE).await));
    }
    assert_eq!(known, unknown);
}

#[tokio::test]
async fn thirty_failures_from_one_address_lock_the_address_only() {
    let (server, _) = with_mina().await;
    let there = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));
    for n in 0..30 {
        let _ = sign_in(&server, &format!("guess{n}"), "wrong wrong", there).await;
    }
    assert_eq!(
        code(sign_in(&server, "mina", GOOD, there).await),
        "sign-in.locked"
    );
    assert_eq!(code(sign_in(&server, "mina", GOOD, HERE).await), "done");
}

#[tokio::test]
async fn root_on_the_machine_has_no_password_that_works() {
    let (server, _) = with_mina().await;
    for password in ["", "!", "root"] {
        assert_eq!(
            code(sign_in(&server, "root", password, HERE).await),
            "sign-in.wrong"
        );
    }
    assert_eq!(local_root(&server).via, Via::LocalRoot);
}

#[test]
fn a_secret_shows_nothing() {
    assert_eq!(format!("{:?}", Secret::from("hush")), "Secret");
}
