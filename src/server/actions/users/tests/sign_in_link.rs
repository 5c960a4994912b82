//! Sign-in links as their makers, their users and their finders meet them, with a clock set by hand.

use api::audit::AuditQuery;
use api::users::UserPatchBody;
use rules::grants::GrantRole;
use rules::permissions::Permission;
use rules::users::Role;

use crate::access::tests::*;
use crate::access::ticket::Ticket;
use crate::access::totp::shown_at;
use crate::access::*;
use crate::actions::users::sign_in_link::{self as links, revoke};
use crate::actions::users::{self, TokensAfterReset, second_factor};
use crate::actions::{audit, rosters, tenancy};
use crate::catalog::Lane;
use crate::{Server, code};

const NEW: &str = "another long walk 8";

/// A server with the administrator mina and the users jae and kim.
async fn with_users() -> (Server, Caller) {
    let (server, mina) = with_mina().await;
    for name in ["jae", "kim"] {
        users::create(&server, &mina.caller, name, Role::User, GOOD)
            .await
            .unwrap();
    }
    (server, mina.caller)
}

/// The code of a new link.
async fn link(server: &Server, by: &Caller, who: &str) -> String {
    links::make(server, by, who, None).await.unwrap().code
}

/// One who asks by a token of this caller that lacks these permissions.
async fn narrowed(server: &Server, by: &Caller, without: &[Permission]) -> Caller {
    let kept = Permission::ALL
        .into_iter()
        .filter(|one| !without.contains(one));
    let scopes: Vec<String> = kept.map(|one| one.word().to_owned()).collect();
    let name = without[0].word();
    let (_, token) = users::tokens::create(server, by, name, &scopes, None, &[])
        .await
        .unwrap();
    let caller = by_token(server, token.reveal(), HERE).await.unwrap();
    caller.unwrap()
}

async fn enter(server: &Server, code_of_link: &str) -> String {
    code(begin_by_link(server, code_of_link, HERE).await)
}

#[tokio::test]
async fn a_link_signs_its_user_in_once_and_looking_at_it_ends_nothing() {
    let (server, mina) = with_users().await;
    let made = links::make(&server, &mina, "jae", None).await.unwrap();
    assert!(made.links.iter().all(|link| link.ends_with(&made.code)));
    for _ in 0..3 {
        assert_eq!(linked_user(&server, &made.code).unwrap().name, "jae");
    }
    assert_eq!(enter(&server, "nobody").await, "sign-in-link.spent");
    let entered = begin_by_link(&server, &made.code, HERE).await.unwrap();
    let SignInStep::Done(signed_in) = entered else {
        panic!("no second factor is there");
    };
    let caller = by_cookie(&server, &signed_in.cookie, HERE).await.unwrap();
    assert_eq!(caller.unwrap().name.as_str(), "jae");
    assert_eq!(enter(&server, &made.code).await, "sign-in-link.spent");
    assert_eq!(code(linked_user(&server, &made.code)), "sign-in-link.spent");
    assert_eq!(
        code(links::show(&server, &mina, "jae").await),
        "sign-in-link.not-found"
    );
    // Each of it is an act, and what was refused too.
    let link = link(&server, &mina, "kim").await;
    later(&server, 24 * 3600);
    assert_eq!(enter(&server, &link).await, "sign-in-link.spent");
    let wait = server.catalog().write(Lane::Requests, "wait", |_| Ok(()));
    wait.await.unwrap();
    let wanted = AuditQuery {
        limit: Some(500),
        ..AuditQuery::default()
    };
    let found = audit::list(&server, &local_root(&server), &wanted).await;
    let acts = found.unwrap().items;
    let told: Vec<(&str, &str, &str)> = acts
        .iter()
        .rev()
        .filter(|act| act.act.contains("sign-in"))
        .map(|act| (act.actor.as_str(), act.act.as_str(), act.reason.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            ("mina", "user.sign-in-link-made", ""),
            ("", "sign-in.failed", "sign-in-link.spent"),
            ("jae", "user.sign-in-link-used", ""),
            ("jae", "sign-in.succeeded", ""),
            ("mina", "user.sign-in-link-made", ""),
            ("kim", "sign-in.failed", "sign-in-link.spent"),
        ]
    );
}

#[tokio::test]
async fn of_many_that_press_the_button_one_is_signed_in() {
    let (server, mina) = with_users().await;
    let link = link(&server, &mina, "jae").await;
    let mut tries = Vec::new();
    for _ in 0..8 {
        let (server, link) = (server.clone(), link.clone());
        tries.push(tokio::spawn(async move { enter(&server, &link).await }));
    }
    let mut done = 0;
    for one in tries {
        match one.await.unwrap().as_str() {
            "done" => done += 1,
            other => assert_eq!(other, "sign-in-link.spent"),
        }
    }
    assert_eq!(done, 1);
}

#[tokio::test]
async fn a_link_ends_by_time_another_link_revoking_a_password_and_a_suspension() {
    let (server, mina) = with_users().await;
    let spent = async |link: &str| {
        assert_eq!(enter(&server, link).await, "sign-in-link.spent");
    };
    let short = links::make(&server, &mina, "jae", Some(10)).await.unwrap();
    later(&server, 600);
    spent(&short.code).await;

    let first = link(&server, &mina, "jae").await;
    let second = link(&server, &mina, "jae").await;
    spent(&first).await;
    assert_eq!(code(revoke(&server, &mina, "jae").await), "done");
    spent(&second).await;
    assert_eq!(
        code(revoke(&server, &mina, "jae").await),
        "sign-in-link.not-found"
    );

    let before = link(&server, &mina, "jae").await;
    users::set_password(&server, &mina, "jae", NEW, TokensAfterReset::Kept)
        .await
        .unwrap();
    spent(&before).await;
    let before = link(&server, &mina, "jae").await;
    let jae = sign_in(&server, "jae", NEW, HERE).await.unwrap().caller;
    users::change_password(&server, &jae, NEW, GOOD)
        .await
        .unwrap();
    spent(&before).await;

    let before = link(&server, &mina, "jae").await;
    users::suspend(&server, &mina, "jae", true, None)
        .await
        .unwrap();
    assert_eq!(
        code(links::make(&server, &mina, "jae", None).await),
        "sign-in-link.suspended"
    );
    users::suspend(&server, &mina, "jae", false, None)
        .await
        .unwrap();
    spent(&before).await;
    assert_eq!(
        enter(&server, &link(&server, &mina, "jae").await).await,
        "done"
    );
}

#[tokio::test]
async fn a_link_holds_while_its_maker_may_change_the_account() {
    let (server, mina) = with_users().await;
    let chief = GrantRole::Administrator;
    tenancy::grant(&server, &mina, "jae", chief, Some("default"), None)
        .await
        .unwrap();
    let jae = sign_in(&server, "jae", GOOD, HERE).await.unwrap().caller;
    let held = link(&server, &jae, "kim").await;
    assert_eq!(linked_user(&server, &held).unwrap().name, "kim");
    // The account is given more than its maker has.
    users::set_role(&server, &mina, "kim", Role::Administrator, None)
        .await
        .unwrap();
    assert_eq!(enter(&server, &held).await, "sign-in-link.spent");
    users::set_role(&server, &mina, "kim", Role::User, None)
        .await
        .unwrap();
    let held = link(&server, &jae, "kim").await;
    assert_eq!(linked_user(&server, &held).unwrap().name, "kim");
    users::suspend(&server, &mina, "jae", true, None)
        .await
        .unwrap();
    assert_eq!(enter(&server, &held).await, "sign-in-link.spent");
    // Of root on the machine, who has no account.
    let root = local_root(&server);
    let held = link(&server, &root, "kim").await;
    assert_eq!(enter(&server, &held).await, "done");
}

#[tokio::test]
async fn nobody_makes_a_link_beyond_their_own_rights() {
    let (server, mina) = with_users().await;
    let chief = GrantRole::Administrator;
    tenancy::grant(&server, &mina, "jae", chief, Some("default"), None)
        .await
        .unwrap();
    let jae = sign_in(&server, "jae", GOOD, HERE).await.unwrap().caller;
    let kim = sign_in(&server, "kim", GOOD, HERE).await.unwrap().caller;
    let make = async |by: &Caller, who: &str| code(links::make(&server, by, who, None).await);
    assert_eq!(make(&jae, "kim").await, "done");
    assert_eq!(make(&jae, "mina").await, "user.outranked");
    assert_eq!(make(&jae, "jae").await, "user.self");
    assert_eq!(make(&mina, "mina").await, "user.self");
    assert_eq!(make(&kim, "jae").await, "role.administrator-needed");
    // A token that may change users may not become one of those who administer.
    let token = narrowed(&server, &mina, &[Permission::SystemWrite]).await;
    assert_eq!(make(&token, "jae").await, "user.outranked");
    assert_eq!(make(&token, "kim").await, "done");
    // Nor may one become a user who may more than it: its link would open what it is refused.
    for lacking in [Permission::SessionsEnter, Permission::Me] {
        let token = narrowed(&server, &mina, &[lacking]).await;
        assert_eq!(make(&token, "jae").await, "user.outranked");
        assert_eq!(make(&token, "kim").await, "token.scope-missing");
        assert_eq!(
            code(links::linkable(&server, &token, "kim").await),
            "token.scope-missing"
        );
        // Nor by a password that it chooses.
        let kept = TokensAfterReset::Kept;
        let set = users::set_password(&server, &token, "kim", NEW, kept).await;
        assert_eq!(code(set), "token.scope-missing");
    }
    assert!(sign_in(&server, "kim", GOOD, HERE).await.is_ok());
    for minutes in [0, 9, 7 * 24 * 60 + 1, u32::MAX] {
        let made = links::make(&server, &mina, "kim", Some(minutes)).await;
        assert_eq!(code(made), "sign-in-link.minutes", "{minutes}");
    }
    for minutes in [10, 7 * 24 * 60] {
        let made = links::make(&server, &mina, "kim", Some(minutes)).await;
        assert_eq!(code(made), "done", "{minutes}");
    }
}

/// Who reads mail at the address of an account, or comes from a provider with it, may become its user.
#[tokio::test]
async fn a_token_that_may_less_than_a_user_sets_no_address_of_theirs() {
    let (server, mina) = with_users().await;
    let readdress = async |by: &Caller, email: &str| {
        let patch = UserPatchBody {
            email: Some(email.to_owned()),
            ..UserPatchBody::default()
        };
        code(users::patch(&server, by, "kim", patch, None).await)
    };
    let roster = async |by: &Caller, email: &str| {
        let text = format!("name,email\nkim,{email}\n");
        let plan = rosters::plan(&server, by, text.as_bytes(), None).await;
        let faults = plan.unwrap().rows.remove(0).faults;
        let codes: Vec<String> = faults.into_iter().map(|one| one.refusal.code).collect();
        codes.join(" ")
    };
    let token = narrowed(&server, &mina, &[Permission::SessionsEnter]).await;
    for email in ["kim@lab.example", ""] {
        assert_eq!(readdress(&mina, "kim@office.example").await, "done");
        assert_eq!(readdress(&token, email).await, "token.scope-missing");
    }
    let refused = roster(&token, "kim@lab.example").await;
    assert_eq!(refused, "token.scope-missing");
    // What the token says of the address that they have, and of their name, opens nothing.
    assert_eq!(readdress(&token, "kim@office.example").await, "done");
    assert_eq!(roster(&token, "kim@office.example").await, "");
    let named = UserPatchBody {
        full_name: Some("Kim Lee".to_owned()),
        ..UserPatchBody::default()
    };
    let named = users::patch(&server, &token, "kim", named, None).await;
    assert_eq!(code(named), "done");
    let wide = narrowed(&server, &mina, &[Permission::SystemWrite]).await;
    assert_eq!(readdress(&wide, "kim@lab.example").await, "done");
    assert_eq!(roster(&mina, "kim@office.example").await, "");
}

#[tokio::test]
async fn the_second_factor_is_asked_for_and_the_link_goes_with_its_code() {
    let (server, mina) = with_users().await;
    let jae = sign_in(&server, "jae", GOOD, HERE).await.unwrap().caller;
    let offer = second_factor::begin(&server, &jae, GOOD, None).await;
    let offer = offer.unwrap();
    let secret = Ticket::read(&offer.ticket).unwrap().body;
    let shown = || shown_at(&secret, server.clock().now());
    second_factor::confirm(&server, &jae, &offer.ticket, &shown())
        .await
        .unwrap();
    let link = link(&server, &mina, "jae").await;
    let ticket = async || match begin_by_link(&server, &link, HERE).await.unwrap() {
        SignInStep::CodeNeeded(ticket) => ticket,
        SignInStep::Done(_) => panic!("a link alone signed in"),
    };
    let (one, other) = (ticket().await, ticket().await);
    later(&server, 60);
    let wrong = finish_sign_in(&server, &one, "ABCD", HERE).await;
    assert_eq!(code(wrong), "second-factor.wrong");
    let done = finish_sign_in(&server, &one, &shown(), HERE).await;
    assert_eq!(code(done), "done");
    later(&server, 60);
    let again = finish_sign_in(&server, &other, &shown(), HERE).await;
    assert_eq!(code(again), "sign-in-link.spent");
    assert_eq!(enter(&server, &link).await, "sign-in-link.spent");
}

#[tokio::test]
async fn a_link_does_not_open_the_rights_that_its_user_is_given_later() {
    let (server, mina) = with_users().await;
    let token = narrowed(&server, &mina, &[Permission::SystemWrite]).await;
    // The token may make none for who governs, so one that it made before is of no use either.
    let (first, second) = (
        link(&server, &token, "jae").await,
        link(&server, &token, "kim").await,
    );
    users::set_role(&server, &mina, "jae", Role::Administrator, None)
        .await
        .unwrap();
    let chief = GrantRole::Administrator;
    tenancy::grant(&server, &mina, "kim", chief, Some("default"), None)
        .await
        .unwrap();
    for link in [first, second] {
        assert_eq!(enter(&server, &link).await, "sign-in-link.spent");
    }
}
