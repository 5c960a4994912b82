//! Who gets in and who does not, with a clock set by hand.

use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::task::Poll;

use super::*;
use crate::code;

pub(crate) const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
pub(crate) const GOOD: &str = "correct horse battery";

pub(crate) fn server() -> Server {
    Server::for_tests()
}

pub(crate) fn later(server: &Server, seconds: u64) {
    server
        .clock()
        .set(server.clock().now().plus_seconds(seconds));
}

/// Looks at what is to come once, so that a password is being hashed from then on; what was read before stays read.
pub(crate) async fn begun<F: Future>(mut work: Pin<&mut F>) -> Poll<F::Output> {
    std::future::poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await
}

pub(crate) async fn with_mina() -> (Server, NewSignIn) {
    let server = server();
    let code = setup_link(&server).unwrap();
    let signed_in = set_up(&server, &code, "mina", GOOD, HERE).await.unwrap();
    (server, signed_in)
}

/// A server that reads a settings file, with an administrator.
pub(crate) async fn with_settings(folder: &std::path::Path) -> (Server, Caller) {
    let config = folder.join("fardel.toml").display().to_string();
    let sources = base::settings::SettingsSources::new(Default::default(), move |name| {
        (name == "FARDEL_CONFIG").then(|| config.clone())
    });
    let clock = base::observe::Clock::set_by_hand(Timestamp::from_millis(1_800_000_000_000));
    let server = Server::in_memory(sources.read().unwrap(), clock).unwrap();
    let setup = setup_link(&server).unwrap();
    let signed_in = set_up(&server, &setup, "mina", GOOD, HERE).await;
    (server, signed_in.unwrap().caller)
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
    assert_eq!(
        code(set_up(&server, &fresh, "system", GOOD, HERE).await),
        "user.name-reserved"
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

/// Proves too: `a_stranger_shuts_nobody_out`
#[tokio::test]
async fn wrong_setup_codes_wait_and_the_right_one_never_does() {
    let server = server();
    let right = setup_link(&server).unwrap();
    let wrong = async || set_up(&server, "AAAA", "mina", GOOD, HERE).await;
    let mut codes = Vec::new();
    for _ in 0..40 {
        codes.push(code(wrong().await));
    }
    assert_eq!(codes.iter().filter(|c| *c == "setup.code-wrong").count(), 6);
    assert_eq!(codes.last().unwrap(), "sign-in.locked");
    let printed = setup_link(&server).unwrap();
    assert_ne!(printed, right);
    assert_eq!(
        code(set_up(&server, &printed, "mina", GOOD, HERE).await),
        "done"
    );
}

#[tokio::test]
async fn a_cookie_lives_while_it_is_used_and_a_week_at_most() {
    let (server, signed_in) = with_mina().await;
    let cookie = &signed_in.cookie;
    let known = async || by_cookie(&server, cookie, HERE).await.unwrap().is_some();
    assert!(known().await);
    assert!(by_cookie(&server, "nobody", HERE).await.unwrap().is_none());
    let mut forged = cookie.clone();
    forged.replace_range(0..1, if cookie.starts_with('A') { "B" } else { "A" });
    assert!(by_cookie(&server, &forged, HERE).await.unwrap().is_none());
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
    assert!(
        by_cookie(&server, &second.cookie, HERE)
            .await
            .unwrap()
            .is_none()
    );
    assert!(
        by_cookie(&server, &signed_in.cookie, HERE)
            .await
            .unwrap()
            .is_some()
    );
    later(&server, 12 * 3600);
    assert!(
        by_cookie(&server, &signed_in.cookie, HERE)
            .await
            .unwrap()
            .is_none()
    );
}

pub(crate) fn by(source: IpAddr, device: Option<&str>) -> SignInFrom<'_> {
    SignInFrom {
        device,
        ..source.into()
    }
}

/// Guesses until it has to wait; gives how many were looked at, and the seconds of the wait.
async fn guess(server: &Server, from: IpAddr, device: Option<&str>) -> (u32, u64) {
    let mut looked_at = 0;
    loop {
        let wrong = sign_in(server, "mina", "wrong wrong wrong", by(from, device)).await;
        match wrong {
            Err(Failure::Refusal(refusal)) if refusal.code == "sign-in.wrong" => looked_at += 1,
            Err(Failure::Refusal(refusal)) => {
                assert_eq!(refusal.code, "sign-in.locked");
                return (looked_at, refusal.retry_after_seconds.unwrap());
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn each_further_failure_waits_twice_as_long_up_to_half_a_minute() {
    let (server, _) = with_mina().await;
    let mut waits = Vec::new();
    assert_eq!(guess(&server, HERE, None).await, (6, 1));
    for _ in 0..7 {
        let (_, seconds) = guess(&server, HERE, None).await;
        later(&server, seconds);
        assert_eq!(guess(&server, HERE, None).await.0, 1);
        waits.push(guess(&server, HERE, None).await.1);
    }
    assert_eq!(waits, [2, 4, 8, 16, 30, 30, 30]);
    assert_eq!(
        code(sign_in(&server, "mina", GOOD, HERE).await),
        "sign-in.locked"
    );
    later(&server, 30);
    assert_eq!(code(sign_in(&server, "mina", GOOD, HERE).await), "done");
    // The right password forgets the wrong ones.
    assert_eq!(guess(&server, HERE, None).await, (6, 1));
    later(&server, 3601);
    assert_eq!(guess(&server, HERE, None).await, (6, 1));
}

/// Proves too: `a_stranger_shuts_nobody_out`
#[tokio::test]
async fn many_guesses_at_once_are_as_slow_as_one_after_the_other() {
    let (server, _) = with_mina().await;
    let all: Vec<_> = (0..30)
        .map(|_| {
            let server = server.clone();
            tokio::spawn(async move { code(sign_in(&server, "mina", "wrong wrong", HERE).await) })
        })
        .collect();
    let mut looked_at = 0;
    for one in all {
        looked_at += usize::from(one.await.unwrap() == "sign-in.wrong");
    }
    assert_eq!(looked_at, 6);
}

/// Promise (Isolation and access): Wrong passwords, setup codes and codes of a second factor cause delays and lock no
/// user out; a code works once. Root on the server never waits.
#[tokio::test]
async fn a_stranger_shuts_nobody_out() {
    let (server, signed_in) = with_mina().await;
    let there = |n: u8| IpAddr::V4(Ipv4Addr::new(198, 51, 100, n));
    // From many addresses, and from the one that mina's browser has too.
    for n in 0..3 {
        guess(&server, there(n), None).await;
    }
    guess(&server, HERE, None).await;
    let device = Some(signed_in.device.as_str());
    let known = sign_in(&server, "mina", GOOD, by(HERE, device)).await;
    assert_eq!(code(known), "done");
    // From a fresh address it is held for a moment and then let in.
    assert_eq!(
        code(sign_in(&server, "mina", GOOD, there(99)).await),
        "done"
    );
    assert_eq!(
        code(sign_in(&server, "mina", GOOD, HERE).await),
        "sign-in.locked"
    );
}

/// Proves too: `a_stranger_shuts_nobody_out`
#[tokio::test]
async fn a_known_browser_has_its_own_count_and_waits_longer() {
    let (server, signed_in) = with_mina().await;
    let device = Some(signed_in.device.as_str());
    for _ in 0..11 {
        let (_, seconds) = guess(&server, HERE, device).await;
        later(&server, seconds);
    }
    guess(&server, HERE, device).await;
    let (_, seconds) = guess(&server, HERE, device).await;
    assert_eq!(seconds, 900);
    // Nobody else waits for it.
    assert_eq!(code(sign_in(&server, "mina", GOOD, HERE).await), "done");
    // A cookie of somebody else, or one that was changed, is no known browser.
    let jae = UserId::make(server.clock().now(), base::observe::random());
    let theirs = KnownBrowser::draw(jae, None, "hash").cookie(&server);
    assert!(KnownBrowser::read(&server, &theirs, jae, None, "hash").is_some());
    let mina = signed_in.caller.subject.user;
    let other = KnownBrowser::read(&server, &theirs, mina, None, "hash");
    assert_eq!(other, None);
    let reset = KnownBrowser::read(&server, &theirs, jae, None, "another hash");
    assert_eq!(reset, None, "another password is known there");
    let mut forged = signed_in.device.clone();
    let flipped = if forged.starts_with('A') { "B" } else { "A" };
    forged.replace_range(0..1, flipped);
    let stored = server
        .catalog()
        .read_now("look", |view| view.password(mina))
        .unwrap()
        .unwrap();
    let read = |cookie: &str| KnownBrowser::read(&server, cookie, mina, None, &stored);
    assert_eq!(read(&forged), None);
    assert!(read(&signed_in.device).is_some());
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
async fn a_proxy_with_many_failures_behind_it_is_slowed_and_let_in() {
    let (server, _) = with_mina().await;
    let there = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));
    for n in 0..55 {
        let _ = sign_in(&server, &format!("guess{n}"), "wrong wrong", there).await;
    }
    let began = std::time::Instant::now();
    assert_eq!(code(sign_in(&server, "mina", GOOD, there).await), "done");
    assert!(began.elapsed() >= std::time::Duration::from_secs(1));
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
    assert_eq!(format!("{:?}", SecretText::from("hush")), "Secret");
}

#[tokio::test]
async fn the_oldest_of_a_hundred_sign_ins_of_a_user_ends() {
    let (server, first) = with_mina().await;
    let mut later_ones = Vec::new();
    for _ in 0..100 {
        later(&server, 1);
        later_ones.push(sign_in(&server, "mina", GOOD, HERE).await.unwrap().cookie);
        let known = by_cookie(&server, &first.cookie, HERE)
            .await
            .unwrap()
            .is_some();
        assert_eq!(known, later_ones.len() < 100, "{}", later_ones.len());
    }
    for cookie in &later_ones {
        assert!(by_cookie(&server, cookie, HERE).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn a_stranger_who_invents_names_leaves_nothing_in_the_journal() {
    let (server, _) = with_mina().await;
    let newest = || {
        let range = server.catalog().read_now("look", |view| view.event_range());
        range.unwrap().1
    };
    let before = newest();
    for name in ["kim", "lee"] {
        for _ in 0..6 {
            assert_eq!(
                code(sign_in(&server, name, "wrong", HERE).await),
                "sign-in.wrong"
            );
        }
        assert_eq!(
            code(sign_in(&server, name, "wrong", HERE).await),
            "sign-in.locked"
        );
    }
    assert_eq!(newest(), before);
    for _ in 0..6 {
        assert_eq!(
            code(sign_in(&server, "mina", "wrong", HERE).await),
            "sign-in.wrong"
        );
    }
    assert_eq!(newest(), before + 1, "of an existing user");
}
