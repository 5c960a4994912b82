//! Access keys as their users and thieves of requests meet them, with a clock set by hand.

use std::net::{IpAddr, Ipv4Addr};

use api::secret::SecretText;
use api::users::{AccessKeyView, UserPatchBody};
use rules::permissions::Permission;
use rules::users::Role;

use crate::access::tests::*;
use crate::access::*;
use crate::actions::users::access_keys::{create, list, revoke};
use crate::actions::users::{self, tokens};
use crate::{Failure, Server, code};

/// A key with its secret.
struct Key {
    view: AccessKeyView,
    secret: SecretText,
}

async fn key(server: &Server, caller: &Caller, scopes: &[Permission]) -> Key {
    let words: Vec<String> = scopes.iter().map(|one| one.word().to_owned()).collect();
    let made = create(server, caller, "nightly", &words, None, &[]).await;
    let (view, secret) = made.unwrap();
    Key { view, secret }
}

/// What a client with this key asks now.
fn signed(server: &Server, key: &Key) -> SignedRequest {
    let mut signed = SignedRequest {
        key: key.view.key.clone(),
        at: server.clock().now(),
        day: "20270115".into(),
        host: "box:7860".into(),
        text: "GET\n/api/v1/me".into(),
        signature: Vec::new(),
    };
    signed.sign(&key.secret);
    signed
}

async fn ask(server: &Server, key: &Key) -> String {
    code(by_signature(server, &signed(server, key), HERE).await)
}

async fn with_jae() -> (Server, Caller, Caller) {
    let (server, mina) = with_mina().await;
    users::create(&server, &mina.caller, "jae", Role::User, GOOD)
        .await
        .unwrap();
    let jae = sign_in(&server, "jae", GOOD, HERE).await.unwrap();
    (server, mina.caller, jae.caller)
}

#[tokio::test]
async fn a_signed_request_is_its_users_and_another_byte_is_nobodys() {
    let (server, _, jae) = with_jae().await;
    let own = key(&server, &jae, &[Permission::Me]).await;
    let asked = signed(&server, &own);
    let caller = by_signature(&server, &asked, HERE).await.unwrap();
    assert_eq!(caller.name.as_str(), "jae");
    assert_eq!(caller.subject.scopes, Some(vec![Permission::Me]));
    let wrong = async |change: fn(&mut SignedRequest)| {
        let mut other = asked.clone();
        change(&mut other);
        code(by_signature(&server, &other, HERE).await)
    };
    for refused in [
        wrong(|asked| asked.text.push(' ')).await,
        wrong(|asked| asked.host = "other:7860".into()).await,
        wrong(|asked| asked.day = "20270116".into()).await,
        wrong(|asked| asked.signature[31] ^= 1).await,
        wrong(|asked| asked.signature.clear()).await,
        wrong(|asked| asked.key.push('A')).await,
        wrong(|asked| asked.key = "A".repeat(10_000)).await,
        wrong(|asked| asked.key.clear()).await,
    ] {
        assert_eq!(refused, "key.signature-wrong");
    }
    // The secret is no token, and the key is listed among keys alone.
    let secret = own.secret.reveal();
    assert!(by_token(&server, secret, HERE).await.unwrap().is_none());
    let bearer = format!("{TOKEN_PREFIX}{secret}");
    assert!(by_token(&server, &bearer, HERE).await.unwrap().is_none());
    assert!(tokens::list(&server, &jae).await.unwrap().is_empty());
    let listed = list(&server, &jae).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].key, own.view.key);
    assert_eq!(
        code(tokens::revoke(&server, &jae, own.view.id).await),
        "token.not-found"
    );
}

#[tokio::test]
async fn a_request_that_was_seen_on_its_way_is_of_no_use_a_quarter_of_an_hour_later() {
    let (server, _, jae) = with_jae().await;
    let own = key(&server, &jae, &[Permission::Me]).await;
    let asked = signed(&server, &own);
    later(&server, 15 * 60);
    let again = by_signature(&server, &asked, HERE).await;
    assert_eq!(code(again), "done");
    later(&server, 1);
    let again = by_signature(&server, &asked, HERE).await;
    assert_eq!(code(again), "key.clock-skew");
    // A clock that is ahead is refused as well.
    let mut ahead = signed(&server, &own);
    ahead.at = server.clock().now().plus_seconds(15 * 60 + 1);
    let ahead = by_signature(&server, &ahead, HERE).await;
    assert_eq!(code(ahead), "key.clock-skew");
}

#[tokio::test]
async fn a_key_ends_as_tokens_do_and_what_it_opened_ends_with_it() {
    let (server, mina, jae) = with_jae().await;
    let own = key(&server, &jae, &[Permission::Me]).await;
    let caller = by_signature(&server, &signed(&server, &own), HERE).await;
    let stream = lease(&server, &caller.unwrap());
    let stolen = revoke(&server, &mina, own.view.id).await;
    assert_eq!(code(stolen), "key.not-found");
    assert_eq!(ask(&server, &own).await, "done");
    assert_eq!(code(revoke(&server, &jae, own.view.id).await), "done");
    assert_eq!(ask(&server, &own).await, "key.signature-wrong");
    assert_eq!(stream.await.code, "token.revoked");

    let own = key(&server, &jae, &[Permission::Me]).await;
    users::suspend(&server, &mina, "jae", true, None)
        .await
        .unwrap();
    assert_eq!(ask(&server, &own).await, "user.suspended");
    users::suspend(&server, &mina, "jae", false, None)
        .await
        .unwrap();
    assert_eq!(ask(&server, &own).await, "done");
    let patch = UserPatchBody {
        networks: Some(vec!["198.51.100.0/24".to_owned()]),
        ..UserPatchBody::default()
    };
    users::patch(&server, &mina, "jae", patch, None)
        .await
        .unwrap();
    assert_eq!(ask(&server, &own).await, "sign-in.address-refused");
    let there = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 9));
    let asked = by_signature(&server, &signed(&server, &own), there).await;
    assert_eq!(code(asked), "done");
    // Who knew the old password may have made it.
    let jae = sign_in(&server, "jae", GOOD, there).await.unwrap().caller;
    let new = "another long walk 8";
    users::change_password(&server, &jae, GOOD, new)
        .await
        .unwrap();
    let asked = by_signature(&server, &signed(&server, &own), there).await;
    assert_eq!(code(asked), "key.signature-wrong");
}

#[tokio::test]
async fn keys_are_few_end_in_time_and_give_no_more_than_their_maker_has() {
    let (server, _, jae) = with_jae().await;
    let me = [Permission::Me.word().to_owned()];
    let now = server.clock().now();
    let past = create(&server, &jae, "x", &me, Some(now), &[]).await;
    assert_eq!(code(past), "expires-at.past");
    let soon = Some(now.plus_seconds(60));
    let (view, secret) = create(&server, &jae, "x", &me, soon, &[]).await.unwrap();
    let short = Key { view, secret };
    assert_eq!(ask(&server, &short).await, "done");
    later(&server, 60);
    assert_eq!(ask(&server, &short).await, "key.expired");
    let narrow = key(&server, &jae, &[Permission::Me]).await;
    let caller = by_signature(&server, &signed(&server, &narrow), HERE).await;
    let wider = [Permission::SessionsWrite.word().to_owned()];
    let made = create(&server, &caller.unwrap(), "x", &wider, None, &[]).await;
    assert_eq!(code(made), "scope.wider");
    for _ in 0..8 {
        key(&server, &jae, &[Permission::Me]).await;
    }
    let one_more = create(&server, &jae, "x", &me, None, &[]).await;
    assert_eq!(code(one_more), "key.too-many");
}

#[tokio::test]
async fn what_ends_makes_nothing_that_ends_later() {
    let (server, _, jae) = with_jae().await;
    let me = [Permission::Me.word().to_owned()];
    let end = server.clock().now().plus_seconds(60);
    let (view, secret) = create(&server, &jae, "k", &me, Some(end), &[])
        .await
        .unwrap();
    let short = Key { view, secret };
    let by_key = by_signature(&server, &signed(&server, &short), HERE).await;
    let by_key = by_key.unwrap();
    let (_, secret) = tokens::create(&server, &jae, "t", &me, Some(end), &[])
        .await
        .unwrap();
    let by_token = by_token(&server, secret.reveal(), HERE).await.unwrap();
    let after = Some(end.plus_seconds(1));
    for caller in [&by_key, &by_token.unwrap()] {
        for refused in [
            create(&server, caller, "x", &me, after, &[])
                .await
                .map(|_| ()),
            tokens::create(&server, caller, "x", &me, after, &[])
                .await
                .map(|_| ()),
        ] {
            let Err(Failure::Refusal(refusal)) = refused else {
                panic!("it outlives its maker");
            };
            assert_eq!(refusal.code, "expires-at.after-maker");
            assert_eq!(refusal.pointer.as_deref(), Some("/expires_at"));
        }
        // Without an end of its own it ends with its maker, and the answer says so.
        let (key, _) = create(&server, caller, "x", &me, None, &[]).await.unwrap();
        assert_eq!(key.expires_at, Some(end));
        let (token, _) = tokens::create(&server, caller, "x", &me, Some(end), &[])
            .await
            .unwrap();
        assert_eq!(token.expires_at, Some(end));
    }
    // What does not end, and a browser, make what they like.
    let lasting = key(&server, &jae, &[Permission::Me]).await;
    let caller = by_signature(&server, &signed(&server, &lasting), HERE).await;
    for caller in [&jae, &caller.unwrap()] {
        let (token, _) = tokens::create(&server, caller, "x", &me, None, &[])
            .await
            .unwrap();
        assert_eq!(token.expires_at, None);
        let (key, _) = create(&server, caller, "x", &me, after, &[]).await.unwrap();
        assert_eq!(key.expires_at, after);
    }
}
