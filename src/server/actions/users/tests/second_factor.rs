//! The second factor as its user and as an attacker meet it, with a clock set by hand.

use std::net::{IpAddr, Ipv4Addr};
use std::task::Poll;

use api::audit::AuditQuery;
use rules::units::Timestamp;

use crate::access::tests::*;
use crate::access::ticket::Ticket;
use crate::access::totp::shown_at;
use crate::access::*;
use crate::actions::audit;
use crate::actions::users::{self, second_factor as own};
use crate::catalog::Lane;
use crate::{Failure, Server, code};

/// A user with a second factor: what the app and the sheet of paper hold.
struct Mina {
    server: Server,
    caller: Caller,
    /// The cookie of a browser from before the second factor.
    device: String,
    secret: Vec<u8>,
    recovery: Vec<String>,
}

impl Mina {
    /// Set up by the code of the present step.
    async fn with_factor() -> Self {
        let (server, signed_in) = with_mina().await;
        let caller = signed_in.caller;
        let offer = own::begin(&server, &caller, GOOD, None).await.unwrap();
        let secret = Ticket::read(&offer.ticket).unwrap().body;
        let code = shown_at(&secret, server.clock().now());
        let made = own::confirm(&server, &caller, &offer.ticket, &code)
            .await
            .unwrap();
        let mina = Self {
            server,
            caller,
            device: signed_in.device,
            secret,
            recovery: made.codes,
        };
        later(&mina.server, 60);
        mina
    }

    fn code(&self) -> String {
        shown_at(&self.secret, self.server.clock().now())
    }

    async fn ticket(&self) -> String {
        match begin_sign_in(&self.server, "mina", GOOD, HERE).await {
            Ok(SignInStep::CodeNeeded(ticket)) => ticket,
            other => panic!("{other:?}"),
        }
    }

    async fn sign_in_with(&self, typed: &str) -> String {
        let ticket = self.ticket().await;
        code(finish_sign_in(&self.server, &ticket, typed, HERE).await)
    }
}

/// The secret of a new token.
async fn token(server: &Server, caller: &Caller) -> String {
    let made = users::tokens::create(server, caller, "t", &["me".into()], None, &[]).await;
    made.unwrap().1.reveal().to_owned()
}

/// Six digits that are none of the codes around now.
fn wrong(mina: &Mina) -> String {
    let now = mina.server.clock().now().as_millis();
    let around = [-30_000, 0, 30_000].map(|off| {
        let then = Timestamp::from_millis(now + off);
        shown_at(&mina.secret, then)
    });
    let mut tries = (0..).map(|n| format!("{n:06}"));
    tries.find(|code| !around.contains(code)).unwrap()
}

/// An account with a second factor is signed in by password and code; each code works once, also in two browsers at the
/// same moment and across a restart. The password alone opens nothing.
///
/// Proves too: `a_stranger_shuts_nobody_out`
#[tokio::test]
async fn a_code_signs_in_once_and_the_password_alone_does_not() {
    let mina = Mina::with_factor().await;
    let alone = sign_in(&mina.server, "mina", GOOD, HERE).await;
    assert_eq!(code(alone), "second-factor.needed");
    let shown = mina.code();
    assert_eq!(
        mina.sign_in_with(&wrong(&mina)).await,
        "second-factor.wrong"
    );
    assert_eq!(mina.sign_in_with("").await, "second-factor.wrong");
    assert_eq!(mina.sign_in_with(&shown).await, "done");
    assert_eq!(mina.sign_in_with(&shown).await, "second-factor.replayed");
    // One step back is within the window, and older than the one that was taken.
    let now = mina.server.clock().now().as_millis();
    let before = shown_at(&mina.secret, Timestamp::from_millis(now - 30_000));
    assert_eq!(mina.sign_in_with(&before).await, "second-factor.replayed");
    later(&mina.server, 30);
    assert_eq!(mina.sign_in_with(&mina.code()).await, "done");
}

/// Proves too: `a_stranger_shuts_nobody_out`
#[tokio::test]
async fn of_two_browsers_with_one_code_one_is_signed_in() {
    let mina = Mina::with_factor().await;
    for typed in [mina.code(), mina.recovery[0].clone()] {
        let mut tries = Vec::new();
        for _ in 0..8 {
            let (server, ticket, typed) = (mina.server.clone(), mina.ticket().await, typed.clone());
            tries.push(tokio::spawn(async move {
                code(finish_sign_in(&server, &ticket, &typed, HERE).await)
            }));
        }
        let mut came = Vec::new();
        for one in tries {
            came.push(one.await.unwrap());
        }
        let done = came.iter().filter(|code| *code == "done").count();
        assert_eq!(done, 1, "{came:?}");
        crate::access::unlock(&mina.server, "mina");
    }
}

/// Proves too: `a_stranger_shuts_nobody_out`
#[tokio::test]
async fn a_used_code_stays_used_after_a_restart_and_no_file_holds_its_secret() {
    let folder = tempfile::tempdir().unwrap();
    let layer = base::settings::SettingsLayer {
        data: Some(folder.path().to_owned()),
        ..Default::default()
    };
    let settings = base::settings::Settings::read(layer, |_| None).unwrap();
    let clock = base::observe::Clock::set_by_hand(Timestamp::from_millis(1_800_000_000_000));
    let open = || Server::start(settings.clone(), clock.clone()).unwrap();
    let server = open();
    let setup = setup_link(&server).unwrap();
    let caller = set_up(&server, &setup, "mina", GOOD, HERE)
        .await
        .unwrap()
        .caller;
    let offer = own::begin(&server, &caller, GOOD, None).await.unwrap();
    let secret = Ticket::read(&offer.ticket).unwrap().body;
    let shown = shown_at(&secret, server.clock().now());
    let made = own::confirm(&server, &caller, &offer.ticket, &shown).await;
    let recovery = made.unwrap().codes;
    later(&server, 60);
    let finish = async |server: &Server, typed: &str| match begin_sign_in(
        server, "mina", GOOD, HERE,
    )
    .await
    {
        Ok(SignInStep::CodeNeeded(ticket)) => {
            code(finish_sign_in(server, &ticket, typed, HERE).await)
        }
        other => panic!("{other:?}"),
    };
    let shown = shown_at(&secret, server.clock().now());
    assert_eq!(finish(&server, &shown).await, "done");
    assert_eq!(finish(&server, &recovery[0]).await, "done");
    drop(server);
    let server = open();
    assert_eq!(finish(&server, &shown).await, "second-factor.replayed");
    assert_eq!(finish(&server, &recovery[0]).await, "second-factor.wrong");
    assert_eq!(finish(&server, &recovery[1]).await, "done");
    drop(server);
    let plain = recovery[2].replace('-', "");
    let readable: [&[u8]; 4] = [
        &secret,
        offer.key.as_bytes(),
        plain.as_bytes(),
        recovery[2].as_bytes(),
    ];
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let path = file.unwrap().path();
        if !path.is_file() {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        for text in readable {
            let found = bytes.windows(text.len()).any(|window| window == text);
            assert!(!found, "{} holds a secret", path.display());
        }
    }
}

/// A sign-in and the token that it is traded for are one commit: a token that cannot be made spends no code.
#[tokio::test]
async fn a_token_that_cannot_be_made_spends_no_code() {
    let mina = Mina::with_factor().await;
    let server = &mina.server;
    for _ in 0..100 {
        token(server, &mina.caller).await;
    }
    for seconds in [0, 3_650 * 86_400 + 1, u64::MAX] {
        let refused = NewToken::by_sign_in(server, "client", Some(seconds)).unwrap_err();
        assert_eq!(refused.code, "expires-seconds.out-of-range");
    }
    let wanted = NewToken::by_sign_in(server, "client", Some(60)).unwrap();
    let from = SignInFrom {
        use_of: SignInUse::Token(&wanted),
        ..HERE.into()
    };
    let (ticket, typed) = (mina.ticket().await, mina.recovery[0].as_str());
    let full = finish_sign_in(server, &ticket, typed, from).await;
    assert_eq!(code(full), "token.too-many");
    let listed = users::tokens::list(server, &mina.caller).await.unwrap();
    users::tokens::revoke(server, &mina.caller, listed[0].id)
        .await
        .unwrap();
    let traded = finish_sign_in(server, &ticket, typed, from).await.unwrap();
    let (made, secret) = traded.token.unwrap();
    assert_eq!(made.name, "client");
    let known = by_token(server, secret.reveal(), HERE).await.unwrap();
    assert_eq!(known.unwrap().via, Via::Token { id: made.id });
}

/// Wrong codes of a user wait, wherever they come from, a quarter of an hour at most; a right recovery code never waits,
/// so that who knows a password shuts nobody out.
///
/// Proves too: `a_stranger_shuts_nobody_out`
#[tokio::test]
async fn wrong_codes_wait_wherever_they_come_from_and_a_recovery_code_never_does() {
    let mina = Mina::with_factor().await;
    let there = |n: u8| IpAddr::V4(Ipv4Addr::new(198, 51, 100, n));
    let mut came = Vec::new();
    let mut longest = 0;
    for n in 0..40 {
        let ticket = match begin_sign_in(&mina.server, "mina", GOOD, there(n)).await {
            Ok(SignInStep::CodeNeeded(ticket)) => ticket,
            other => panic!("{other:?}"),
        };
        let tried = finish_sign_in(&mina.server, &ticket, &wrong(&mina), there(n)).await;
        if let Err(Failure::Refusal(refusal)) = &tried
            && let Some(seconds) = refusal.retry_after_seconds
        {
            longest = longest.max(seconds);
            later(&mina.server, seconds);
        }
        came.push(code(tried));
    }
    let looked_at = came.iter().filter(|c| *c == "second-factor.wrong").count();
    // The first six, then one after each wait.
    assert!(looked_at < 25, "{looked_at} of {came:?}");
    assert_eq!(longest, 900);
    let waits = async |typed: &str| mina.sign_in_with(typed).await;
    let _ = waits(&wrong(&mina)).await;
    assert_eq!(waits(&mina.code()).await, "sign-in.locked");
    assert_eq!(waits(&mina.recovery[0].to_lowercase()).await, "done");
    assert_eq!(waits(&mina.recovery[0]).await, "sign-in.locked");
    // Her own open browser does not wait for who knows the password.
    let (server, code_now) = (&mina.server, mina.code());
    let made = own::renew_recovery_codes(server, &mina.caller, GOOD, Some(&code_now)).await;
    assert_eq!(code(made), "done");
    // An hour of rest gives no free guesses again; a day does.
    later(server, 3600 + 900);
    assert_eq!(waits(&wrong(&mina)).await, "second-factor.wrong");
    assert_eq!(waits(&wrong(&mina)).await, "sign-in.locked");
    later(server, 86_400 + 900);
    for _ in 0..6 {
        assert_eq!(waits(&wrong(&mina)).await, "second-factor.wrong");
    }
    assert_eq!(waits(&wrong(&mina)).await, "sign-in.locked");
    // An administrator lifts it, as for passwords.
    unlock(&mina.server, "mina");
    assert_eq!(waits(&mina.code()).await, "done");
}

/// Proves too: `a_stranger_shuts_nobody_out`
#[tokio::test]
async fn a_browser_that_gave_a_code_before_does_not_wait_for_others() {
    let mina = Mina::with_factor().await;
    let finish = async |typed: &str, device: Option<&str>| {
        let ticket = mina.ticket().await;
        finish_sign_in(&mina.server, &ticket, typed, by(HERE, device)).await
    };
    let known = finish(&mina.code(), None).await.unwrap().device;
    later(&mina.server, 30);
    for _ in 0..6 {
        assert_eq!(
            code(finish(&wrong(&mina), None).await),
            "second-factor.wrong"
        );
    }
    // One of before the second factor is as strange as any other.
    for device in [None, Some(mina.device.as_str())] {
        assert_eq!(code(finish(&mina.code(), device).await), "sign-in.locked");
    }
    let again = finish(&mina.code(), Some(&known)).await.unwrap();
    assert_eq!(again.device, known);
    // Its own wrong codes wait too.
    for _ in 0..6 {
        let tried = finish(&wrong(&mina), Some(&known)).await;
        assert_eq!(code(tried), "second-factor.wrong");
    }
    let tried = finish(&wrong(&mina), Some(&known)).await;
    assert_eq!(code(tried), "sign-in.locked");
}

#[tokio::test]
async fn codes_from_an_address_with_many_failures_behind_it_are_slowed() {
    let mina = Mina::with_factor().await;
    let there = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));
    for n in 0..52 {
        let _ = sign_in(&mina.server, &format!("guess{n}"), "wrong wrong", there).await;
    }
    let ticket = mina.ticket().await;
    let began = std::time::Instant::now();
    let done = finish_sign_in(&mina.server, &ticket, &mina.code(), there).await;
    assert_eq!(code(done), "done");
    assert!(began.elapsed() >= std::time::Duration::from_secs(1));
}

#[tokio::test]
async fn nobody_learns_of_a_second_factor_without_the_password() {
    let mina = Mina::with_factor().await;
    for name in ["mina", "nobody"] {
        let told = begin_sign_in(&mina.server, name, "wrong wrong wrong", HERE).await;
        assert_eq!(code(told), "sign-in.wrong");
    }
}

#[tokio::test]
async fn a_ticket_holds_five_minutes_for_its_user_its_purpose_and_its_password() {
    let mina = Mina::with_factor().await;
    let (server, caller) = (&mina.server, &mina.caller);
    let finish =
        async |ticket: &str| code(finish_sign_in(server, ticket, &mina.code(), HERE).await);
    let ticket = mina.ticket().await;
    for broken in ["", "x", &ticket[1..], &format!("{ticket}AAAA")] {
        assert_eq!(finish(broken).await, "second-factor.late", "{broken}");
    }
    let offer = own::begin(server, caller, GOOD, Some(&mina.recovery[1])).await;
    assert_eq!(finish(&offer.unwrap().ticket).await, "second-factor.late");
    later(server, 300);
    assert_eq!(finish(&ticket).await, "second-factor.late");
    let ticket = mina.ticket().await;
    users::change_password(server, caller, GOOD, "another good one 9")
        .await
        .unwrap();
    assert_eq!(finish(&ticket).await, "second-factor.late");
}

/// A second factor is set up, replaced and turned off by who proves the password and the present factor; a stolen
/// cookie changes nothing of it.
///
/// Proves too: `only_our_own_pages_and_programs_with_tokens_may_change_anything`
#[tokio::test]
async fn a_stolen_cookie_sets_nothing_up_and_turns_nothing_off() {
    let (server, signed_in) = with_mina().await;
    let caller = signed_in.caller;
    let refused = own::begin(&server, &caller, "wrong wrong wrong", None).await;
    assert_eq!(code(refused), "password.wrong");
    let offer = own::begin(&server, &caller, GOOD, None).await.unwrap();
    let secret = Ticket::read(&offer.ticket).unwrap().body;
    assert!(!own::show(&server, &caller).await.unwrap().enabled);
    let other = sign_in(&server, "mina", GOOD, HERE).await.unwrap();
    let stolen = token(&server, &other.caller).await;
    let shown = shown_at(&secret, server.clock().now());
    let wrong = own::confirm(&server, &caller, &offer.ticket, "000 00x").await;
    assert_eq!(code(wrong), "second-factor.wrong");
    let done = own::confirm(&server, &caller, &offer.ticket, &shown).await;
    assert_eq!(code(done), "done");
    let again = own::confirm(&server, &caller, &offer.ticket, &shown).await;
    assert_eq!(code(again), "second-factor.late", "a ticket confirms once");
    assert!(
        own::offered(&server, &caller, &offer.ticket)
            .unwrap()
            .is_none()
    );
    assert!(
        by_cookie(&server, &other.cookie, HERE)
            .await
            .unwrap()
            .is_none(),
        "a sign-in without the factor goes on"
    );
    assert!(
        by_token(&server, &stolen, HERE).await.unwrap().is_none(),
        "a token from before the factor goes on"
    );
    let known = own::show(&server, &caller).await.unwrap();
    assert!(known.enabled && known.recovery_codes == 10);

    later(&server, 60);
    let fresh = || shown_at(&secret, server.clock().now());
    let off = async |password: &str, typed: Option<&str>| {
        code(own::turn_off(&server, &caller, password, typed).await)
    };
    assert_eq!(off(GOOD, None).await, "second-factor.code-missing");
    assert_eq!(off(GOOD, Some(" ")).await, "second-factor.code-missing");
    assert_eq!(
        off("wrong wrong wrong", Some(&fresh())).await,
        "password.wrong"
    );
    let replace = own::begin(&server, &caller, GOOD, None).await;
    assert_eq!(code(replace), "second-factor.code-missing");
    let made = own::renew_recovery_codes(&server, &caller, GOOD, Some(&fresh())).await;
    assert_eq!(made.unwrap().codes.len(), 10);
    assert_eq!(off(GOOD, Some(&fresh())).await, "second-factor.replayed");
    later(&server, 30);
    assert_eq!(off(GOOD, Some(&fresh())).await, "done");
    assert_eq!(off(GOOD, Some(&fresh())).await, "second-factor.none");
    assert_eq!(code(sign_in(&server, "mina", GOOD, HERE).await), "done");
}

/// Proves too: `only_our_own_pages_and_programs_with_tokens_may_change_anything`
#[tokio::test]
async fn what_was_begun_before_a_set_up_replaces_nothing_after_it() {
    let (server, signed_in) = with_mina().await;
    let caller = signed_in.caller;
    let offer = own::begin(&server, &caller, GOOD, None).await.unwrap();
    let code_of = |ticket: &str| {
        let secret = Ticket::read(ticket).unwrap().body;
        shown_at(&secret, server.clock().now())
    };
    // Its password is looked at while the other one is confirmed.
    let mut second = std::pin::pin!(own::begin(&server, &caller, GOOD, None));
    let early = begun(second.as_mut()).await;
    let shown = code_of(&offer.ticket);
    let done = own::confirm(&server, &caller, &offer.ticket, &shown).await;
    assert_eq!(code(done), "done");
    let second = match early {
        Poll::Ready(done) => done,
        Poll::Pending => second.await,
    };
    let second = second.unwrap();
    let shown = code_of(&second.ticket);
    let replaced = own::confirm(&server, &caller, &second.ticket, &shown).await;
    assert_eq!(code(replaced), "second-factor.late");
}

#[tokio::test]
async fn a_token_that_sets_the_first_factor_up_goes_on() {
    let (server, signed_in) = with_mina().await;
    let (own_one, other) = (
        token(&server, &signed_in.caller).await,
        token(&server, &signed_in.caller).await,
    );
    let caller = by_token(&server, &own_one, HERE).await.unwrap().unwrap();
    let offer = own::begin(&server, &caller, GOOD, None).await.unwrap();
    let secret = Ticket::read(&offer.ticket).unwrap().body;
    let shown = shown_at(&secret, server.clock().now());
    let done = own::confirm(&server, &caller, &offer.ticket, &shown).await;
    assert_eq!(code(done), "done");
    assert!(by_token(&server, &own_one, HERE).await.unwrap().is_some());
    assert!(by_token(&server, &other, HERE).await.unwrap().is_none());
}

#[tokio::test]
async fn an_administrator_resets_the_factor_of_others_and_root_everybodys() {
    let mina = Mina::with_factor().await;
    let server = &mina.server;
    // Mina is the only administrator: nobody but root helps her.
    let own_one = own::reset(server, &mina.caller, "mina").await;
    assert_eq!(code(own_one), "user.self");
    let root = local_root(server);
    let lost = token(server, &mina.caller).await;
    // A replaced app ends no token; a lost one does.
    let offer = own::begin(server, &mina.caller, GOOD, Some(&mina.code())).await;
    let ticket = offer.unwrap().ticket;
    let secret = Ticket::read(&ticket).unwrap().body;
    let shown = shown_at(&secret, server.clock().now());
    let replaced = own::confirm(server, &mina.caller, &ticket, &shown).await;
    assert_eq!(code(replaced), "done");
    assert!(by_token(server, &lost, HERE).await.unwrap().is_some());
    assert_eq!(code(own::reset(server, &root, "mina").await), "done");
    assert!(by_token(server, &lost, HERE).await.unwrap().is_none());
    assert_eq!(
        code(own::reset(server, &root, "mina").await),
        "second-factor.none"
    );
    assert_eq!(code(sign_in(server, "mina", GOOD, HERE).await), "done");
    let begun = own::begin(server, &root, GOOD, None).await;
    assert_eq!(code(begun), "user.root");
    let whose = mina.caller.subject.user.to_string();
    let told = server
        .catalog()
        .write_now(Lane::Requests, "look at events", move |rows| {
            rows.events_of(&whose, 20)
        })
        .unwrap();
    let codes: Vec<String> = told.into_iter().map(|event| event.code).collect();
    for code in ["user.second-factor-set", "user.second-factor-reset"] {
        assert!(codes.iter().any(|known| known == code), "{codes:?}");
    }
}

/// Each sign-in has one act, and each refused try one, whichever step it ended at.
#[tokio::test]
async fn each_sign_in_and_each_refused_code_is_one_act() {
    let mina = Mina::with_factor().await;
    let server = &mina.server;
    assert_eq!(
        mina.sign_in_with(&wrong(&mina)).await,
        "second-factor.wrong"
    );
    assert_eq!(mina.sign_in_with(&mina.code()).await, "done");
    let ticket = mina.ticket().await;
    later(server, 300);
    let late = finish_sign_in(server, &ticket, &mina.code(), HERE).await;
    assert_eq!(code(late), "second-factor.late");
    assert_eq!(mina.sign_in_with(&mina.recovery[0]).await, "done");
    let wanted = AuditQuery {
        limit: Some(500),
        ..AuditQuery::default()
    };
    let found = audit::list(server, &local_root(server), &wanted).await;
    let acts = found.unwrap().items;
    let told: Vec<(&str, &str)> = acts
        .iter()
        .rev()
        .filter(|act| act.topic == "users" && act.act != "setup.done")
        .map(|act| (act.act.as_str(), act.reason.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            ("user.second-factor-begun", ""),
            ("user.second-factor-set", ""),
            ("sign-in.failed", "second-factor.wrong"),
            ("sign-in.succeeded", ""),
            ("sign-in.failed", "second-factor.late"),
            ("user.recovery-code-used", ""),
            ("sign-in.succeeded", ""),
        ]
    );
}

/// Ids of users are no secret: a ticket that somebody made up says nothing of the user whose id it has.
#[tokio::test]
async fn a_ticket_that_was_made_up_is_no_act_of_its_user() {
    let mina = Mina::with_factor().await;
    let mut ticket = mina.ticket().await;
    ticket.truncate(ticket.len() - 8);
    ticket.push_str("AAAAAAAA");
    let forged = finish_sign_in(&mina.server, &ticket, &mina.code(), HERE).await;
    assert_eq!(code(forged), "second-factor.late");
    // The row is written in the background, before what is written next.
    let wait = mina
        .server
        .catalog()
        .write(Lane::Requests, "wait", |_| Ok(()));
    wait.await.unwrap();
    let wanted = AuditQuery {
        limit: Some(1),
        ..AuditQuery::default()
    };
    let found = audit::list(&mina.server, &local_root(&mina.server), &wanted).await;
    let act = &found.unwrap().items[0];
    assert_eq!(
        (act.act.as_str(), act.reason.as_str()),
        ("sign-in.failed", "second-factor.late")
    );
    assert_eq!((act.actor.as_str(), act.object.as_str()), ("", ""));
}

/// Where a second factor is demanded of everybody, a user without one has three days and then sets one up before
/// anything else; nobody turns theirs off.
#[tokio::test]
async fn a_demanded_factor_is_due_after_three_days_and_is_not_turned_off() {
    let folder = tempfile::tempdir().unwrap();
    let (server, caller) = with_settings(folder.path()).await;
    let demand = |word: Option<&str>| server.in_force().change("second_factor", word).unwrap();
    let cookie = async || sign_in(&server, "mina", GOOD, HERE).await.unwrap().cookie;
    let due = async |cookie: &str| {
        let known = by_cookie(&server, cookie, HERE).await.unwrap().unwrap();
        // What this look notes is written in the background, before what is written next.
        let wait = server.catalog().write(Lane::Loops, "wait", |_| Ok(()));
        wait.await.unwrap();
        let now = server.clock().now();
        let left = known.second_factor_due.map(|due| due.seconds_since(now));
        (left, known.must_set_up_second_factor(now))
    };
    later(&server, 30 * 86_400);
    assert_eq!(due(&cookie().await).await, (None, false));
    demand(Some("\"required\""));
    let day = 86_400;
    assert_eq!(due(&cookie().await).await, (Some(3 * day), false));
    later(&server, 2 * day);
    assert_eq!(due(&cookie().await).await, (Some(day), false));
    let open = sign_in(&server, "mina", GOOD, HERE).await.unwrap();
    let stream = lease(&server, &open.caller);
    later(&server, day);
    assert_eq!(due(&cookie().await).await, (Some(0), true));
    assert_eq!(stream.await.code, "second-factor.set-up-needed");
    // Who is new has three days of their own.
    users::create(&server, &caller, "jae", rules::users::Role::User, GOOD)
        .await
        .unwrap();
    let jae = sign_in(&server, "jae", GOOD, HERE).await.unwrap().cookie;
    assert_eq!(due(&jae).await, (Some(3 * day), false));
    // Demanded no longer, and later again: the three days start over.
    demand(None);
    assert_eq!(due(&cookie().await).await, (None, false));
    demand(Some("\"required\""));
    assert_eq!(due(&cookie().await).await, (Some(3 * day), false));

    // A clock that was years ahead puts nothing off, neither for all nor for who is made then.
    let today = server.clock().now();
    demand(None);
    assert_eq!(due(&cookie().await).await, (None, false));
    later(&server, 3000 * day);
    demand(Some("\"required\""));
    assert_eq!(due(&cookie().await).await, (Some(3 * day), false));
    users::create(&server, &caller, "kim", rules::users::Role::User, GOOD)
        .await
        .unwrap();
    server.clock().set(today);
    let kim = sign_in(&server, "kim", GOOD, HERE).await.unwrap().cookie;
    assert_eq!(due(&kim).await, (Some(3 * day), false));
    later(&server, 3 * day);
    for name in ["mina", "kim"] {
        let cookie = sign_in(&server, name, GOOD, HERE).await.unwrap().cookie;
        assert_eq!(due(&cookie).await, (Some(0), true), "{name}");
    }

    let offer = own::begin(&server, &caller, GOOD, None).await.unwrap();
    let secret = Ticket::read(&offer.ticket).unwrap().body;
    let shown = || shown_at(&secret, server.clock().now());
    let confirmed = own::confirm(&server, &caller, &offer.ticket, &shown()).await;
    assert_eq!(code(confirmed), "done");
    later(&server, 4 * day);
    let off = own::turn_off(&server, &caller, GOOD, Some(&shown())).await;
    assert_eq!(code(off), "second-factor.required");
    let replaced = own::begin(&server, &caller, GOOD, Some(&shown())).await;
    assert_eq!(code(replaced), "done");
}
