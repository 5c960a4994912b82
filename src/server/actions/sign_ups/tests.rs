//! Strangers who ask for an account, and administrators who decide.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::{tenancy, users};
use super::*;
use crate::access::{NewSignUp, ask_for_account, set_up, setup_link, sign_in};
use crate::code;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const GOOD: &str = "correct horse battery";

fn request(name: &str, email: &str) -> NewSignUp {
    NewSignUp {
        domain: String::new(),
        name: name.to_owned(),
        full_name: "Mina Han".to_owned(),
        email: email.to_owned(),
        password: GOOD.to_owned().into(),
        note: "I am in the lab.".to_owned(),
    }
}

fn rule(domain: Option<&str>, addresses: &str) -> SignUpRuleBody {
    SignUpRuleBody {
        domain: domain.map(str::to_owned),
        addresses: Some(addresses.to_owned()),
    }
}

async fn opened() -> (Server, Caller) {
    let server = Server::for_tests();
    let setup = setup_link(&server).unwrap();
    let boss = set_up(&server, &setup, "boss", GOOD, HERE).await.unwrap();
    (server, boss.caller)
}

/// Promise (Isolation and access): A stranger asks for an account only where a domain says so, learns of no name or address
/// that is taken, and has no account before an administrator of that domain approves the request.
#[tokio::test]
async fn no_stranger_asks_until_a_domain_lets_them() {
    let (server, boss) = opened().await;
    let ask =
        async |name: &str, email: &str| ask_for_account(&server, request(name, email), HERE).await;
    assert_eq!(
        code(ask("mina", "mina@lab.example").await),
        "sign-up.closed"
    );
    let set = set_rule(&server, &boss, rule(None, "@lab.example")).await;
    assert_eq!(set.unwrap().addresses.as_deref(), Some("@lab.example"));
    let other = ask("mina", "mina@elsewhere.example").await;
    assert_eq!(code(other), "sign-up.address");
    ask("mina", "mina@lab.example").await.unwrap();
    // The same answer, and nothing more is kept.
    ask("mina", "mina@lab.example").await.unwrap();
    // One for a name that is taken is answered alike.
    ask("boss", "boss@lab.example").await.unwrap();
    let all = list(&server, &boss).await.unwrap();
    let mut seen: Vec<(&str, bool)> = all
        .iter()
        .map(|one| (one.name.as_str(), one.is_taken))
        .collect();
    // Both may have come in one millisecond.
    seen.sort_unstable();
    assert_eq!(seen, [("boss", true), ("mina", false)]);
    assert_eq!(waiting(&server, &boss), 2);
    let told = super::super::notices::list(&server, &boss).await.unwrap();
    let kinds = told.into_iter().map(|one| one.about).collect::<Vec<_>>();
    assert_eq!(kinds, [super::super::notices::NoticeKind::SignUpsWait(2)]);
    // The name that was typed has done nothing.
    let whole = reach(&boss.subject, Permission::UsersRead);
    let events = server
        .catalog()
        .read_now("look", |view| view.events_after(&whole, 0, 100));
    let (events, _) = events.unwrap();
    let asked = events.iter().filter(|one| one.code == "user.asked");
    let actors: Vec<&str> = asked.map(|one| one.actor.as_str()).collect();
    assert_eq!(actors, ["access", "access"]);
    set_rule(&server, &boss, rule(None, "")).await.unwrap();
    assert_eq!(code(ask("lee", "lee@lab.example").await), "sign-up.closed");
}

#[tokio::test]
async fn who_is_approved_signs_in_and_who_is_declined_can_be_taken_up_again() {
    let (server, boss) = opened().await;
    set_rule(&server, &boss, rule(None, "*")).await.unwrap();
    for (name, email) in [("mina", "mina@lab.example"), ("boss", "lee@lab.example")] {
        ask_for_account(&server, request(name, email), HERE)
            .await
            .unwrap();
    }
    let all = list(&server, &boss).await.unwrap();
    // They came in one millisecond, in no order.
    let of = |name: &str| {
        all.iter()
            .find(|one| one.name == name)
            .unwrap()
            .id
            .to_string()
    };
    let ids = [of("mina"), of("boss")];
    assert!(
        sign_in(&server, "mina", GOOD, HERE).await.is_err(),
        "not before"
    );
    decline(&server, &boss, &ids[0]).await.unwrap();
    let body = SignUpApprovalBody::default;
    let declined = approve(&server, &boss, &ids[0], body()).await;
    assert_eq!(code(declined), "sign-up.declined");
    reopen(&server, &boss, &ids[0]).await.unwrap();
    approve(&server, &boss, &ids[0], body()).await.unwrap();
    let mina = sign_in(&server, "mina", GOOD, HERE).await.unwrap().caller;
    // The password is the one that was typed with the request.
    assert_eq!(users::assigned_password(&server, &mina), None);
    let user = users::get(&server, &boss, "mina").await.unwrap();
    assert_eq!(user.email.unwrap().to_string(), "mina@lab.example");
    let taken = approve(&server, &boss, &ids[1], body()).await;
    assert_eq!(code(taken), "user.name-taken");
    let named = SignUpApprovalBody {
        name: Some("lee".to_owned()),
        expires_at: Some(server.clock().now()),
    };
    let past = approve(&server, &boss, &ids[1], named.clone()).await;
    assert_eq!(code(past), "grant.ends-in-past");
    let end = server.clock().now().plus_seconds(86_400);
    let guest = SignUpApprovalBody {
        expires_at: Some(end),
        ..named
    };
    approve(&server, &boss, &ids[1], guest).await.unwrap();
    sign_in(&server, "lee", GOOD, HERE).await.unwrap();
    let lee = users::get(&server, &boss, "lee").await.unwrap();
    assert_eq!(lee.expires_at, Some(end));
    assert!(list(&server, &boss).await.unwrap().is_empty());
    assert_eq!(
        code(list(&server, &mina).await),
        "role.administrator-needed"
    );
    assert_eq!(waiting(&server, &mina), 0);
}

#[tokio::test]
async fn requests_of_another_domain_do_not_exist_for_its_neighbours() {
    let (server, boss) = opened().await;
    tenancy::create_domain(&server, &boss, "biology", "", None)
        .await
        .unwrap();
    set_rule(&server, &boss, rule(Some("biology"), "*"))
        .await
        .unwrap();
    ask_for_account(&server, request("mina", "mina@lab.example"), HERE)
        .await
        .unwrap();
    let id = list(&server, &boss).await.unwrap()[0].id.to_string();
    let mut neighbour = boss.clone();
    neighbour.subject.grants = vec![rules::grants::Grant {
        role: rules::grants::GrantRole::Administrator,
        scope: rules::grants::GrantScope::Domain(neighbour.subject.domain),
    }];
    assert!(list(&server, &neighbour).await.unwrap().is_empty());
    for answer in [
        approve(&server, &neighbour, &id, SignUpApprovalBody::default()).await,
        decline(&server, &neighbour, &id).await,
    ] {
        assert_eq!(code(answer), "sign-up.not-found");
    }
    let foreign = set_rule(&server, &neighbour, rule(Some("biology"), "*")).await;
    assert_eq!(code(foreign), "domain.not-found");
}

#[tokio::test]
async fn one_network_fills_no_list_and_learns_of_no_address() {
    let (server, boss) = opened().await;
    set_rule(&server, &boss, rule(None, "*")).await.unwrap();
    let begin = server.clock().now();
    let ask = async |minute: u16, name: &str, from: IpAddr| {
        server
            .clock()
            .set(begin.plus_seconds(60 * u64::from(minute)));
        let email = format!("{name}@lab.example");
        ask_for_account(&server, request(name, &email), from).await
    };
    let of = |network, host| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, network, 0, 0, 0, host));
    for n in 1..=20 {
        ask(n, &format!("u{n}"), of(1, n)).await.unwrap();
    }
    assert_eq!(code(ask(21, "lee", of(1, 21)).await), "sign-up.full");
    let known = ask(22, "u1", of(1, 22)).await;
    assert_eq!(code(known), "sign-up.full", "as for one that waits");
    ask(23, "lee", of(2, 1)).await.unwrap();
    assert_eq!(waiting(&server, &boss), 21);
}
