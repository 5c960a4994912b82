//! Invitations through the actions that doors call: what a link makes, how often, and when it is of no use any more.

use std::net::{IpAddr, Ipv4Addr};

use rules::grants::GrantRole;
use rules::tenancy::TenantState;
use rules::users::Role;

use super::super::{tenancy, users};
use super::*;
use crate::access::{NewMember, join, offer, set_up, setup_link, sign_in};
use crate::code;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const GOOD: &str = "correct horse battery";

/// A server with the administrator boss, the lead lea of the project vision, and mina, who is in none but the first.
async fn a_server() -> (Server, Caller, Caller, Caller) {
    let server = Server::for_tests();
    let setup = setup_link(&server).unwrap();
    let boss = set_up(&server, &setup, "boss", GOOD, HERE).await.unwrap();
    let boss = boss.caller;
    tenancy::create_project(&server, &boss, None, "vision", "Vision Lab", None)
        .await
        .unwrap();
    let mut signed_in = Vec::new();
    for name in ["lea", "mina"] {
        users::create(&server, &boss, name, Role::User, GOOD)
            .await
            .unwrap();
        if name == "lea" {
            tenancy::put_member(&server, &boss, "vision", "lea", GrantRole::Lead, None)
                .await
                .unwrap();
        }
        signed_in.push(sign_in(&server, name, GOOD, HERE).await.unwrap().caller);
    }
    let mina = signed_in.remove(1);
    (server, boss, signed_in.remove(0), mina)
}

fn wanted() -> NewInvitationBody {
    serde_json::from_str("{}").unwrap()
}

fn new(name: &str) -> NewMember {
    NewMember {
        name: name.to_owned(),
        full_name: "Kim Minji".to_owned(),
        password: GOOD.into(),
    }
}

async fn link(server: &Server, maker: &Caller, wanted: NewInvitationBody) -> MadeInvitation {
    let made = create(server, maker, "vision", wanted).await;
    made.unwrap_or_else(|failure| panic!("{failure}"))
}

#[tokio::test]
async fn a_link_makes_as_many_accounts_as_it_says_and_each_is_a_member() {
    let (server, boss, lea, _) = a_server().await;
    let two = NewInvitationBody {
        max_uses: Some(2),
        ..wanted()
    };
    let made = link(&server, &lea, two).await;
    assert!(made.links[0].ends_with(&format!("/join?code={}", made.code)));
    let offered = offer(&server, &made.code).unwrap();
    assert_eq!(
        (&*offered.project, &*offered.invited_by),
        ("Vision Lab", "lea")
    );
    let reserved = join(&server, &made.code, new("access"), HERE).await;
    assert_eq!(code(reserved), "user.name-reserved");
    let first = join(&server, &made.code, new("minji"), HERE).await.unwrap();
    assert_eq!(first.caller.name.as_str(), "minji");
    let open = list(&server, &lea, "vision").await.unwrap();
    assert_eq!((open[0].used, open[0].max_uses), (1, 2));
    join(&server, &made.code, new("sora"), HERE).await.unwrap();
    let third = join(&server, &made.code, new("third"), HERE).await;
    assert_eq!(code(third), "invitation.spent");
    assert!(list(&server, &lea, "vision").await.unwrap().is_empty());
    let user = users::get(&server, &boss, "minji").await.unwrap();
    assert_eq!((user.email, &*user.full_name), (None, "Kim Minji"));
    assert!(!user.must_change_password);
    let members = tenancy::members(&server, &boss, "vision").await.unwrap();
    let names: Vec<&str> = members.iter().map(|one| one.user.name.as_str()).collect();
    assert_eq!(names, ["lea", "minji", "sora"]);
    assert_eq!(
        code(users::get(&server, &boss, "third").await),
        "user.not-found"
    );
}

#[tokio::test]
async fn two_that_use_the_last_use_at_once_make_one_account() {
    let (server, boss, lea, _) = a_server().await;
    let made = link(&server, &lea, wanted()).await;
    let (one, other) = tokio::join!(
        join(&server, &made.code, new("minji"), HERE),
        join(&server, &made.code, new("sora"), HERE)
    );
    let mut codes = [code(one), code(other)];
    codes.sort();
    assert_eq!(codes, ["done", "invitation.spent"]);
    let all = users::list(&server, &boss).await.unwrap();
    assert_eq!(all.len(), 4);
}

#[tokio::test]
async fn a_link_is_of_no_use_once_it_or_its_maker_may_not_be() {
    let (server, boss, lea, mina) = a_server().await;
    let spent = |made: &MadeInvitation| code(offer(&server, &made.code).map(drop));

    let revoked = link(&server, &lea, wanted()).await;
    let id = revoked.invitation.id.to_string();
    assert_eq!(
        code(revoke(&server, &mina, "vision", &id).await),
        "project.not-found"
    );
    revoke(&server, &lea, "vision", &id).await.unwrap();
    assert_eq!(spent(&revoked), "invitation.spent");
    assert_eq!(
        code(revoke(&server, &lea, "vision", &id).await),
        "invitation.not-found"
    );

    let of_lea = link(&server, &lea, wanted()).await;
    let of_boss = link(&server, &boss, wanted()).await;
    tenancy::put_member(&server, &boss, "vision", "lea", GrantRole::Member, None)
        .await
        .unwrap();
    assert_eq!(spent(&of_lea), "invitation.spent");
    assert_eq!(spent(&of_boss), "done");
    tenancy::put_member(&server, &boss, "vision", "lea", GrantRole::Lead, None)
        .await
        .unwrap();
    assert_eq!(spent(&of_lea), "done");
    users::suspend(&server, &boss, "lea", true, None)
        .await
        .unwrap();
    assert_eq!(spent(&of_lea), "invitation.spent");
    users::suspend(&server, &boss, "lea", false, None)
        .await
        .unwrap();
    users::remove(&server, &boss, "lea", None).await.unwrap();
    assert_eq!(spent(&of_lea), "invitation.spent");

    let patch = api::tenancy::ProjectPatchBody {
        state: Some(TenantState::Archived),
        ..Default::default()
    };
    tenancy::change_project(&server, &boss, "vision", patch, None)
        .await
        .unwrap();
    assert_eq!(spent(&of_boss), "invitation.spent");
    assert_eq!(
        code(create(&server, &boss, "vision", wanted()).await),
        "project.archived"
    );
    for code_of in ["", "x", &"a".repeat(43), &"a".repeat(4_000)] {
        assert_eq!(code(offer(&server, code_of)), "invitation.spent");
    }
}

#[tokio::test]
async fn an_account_that_is_there_joins_once_and_only_where_it_belongs() {
    let (server, boss, lea, mina) = a_server().await;
    let made = link(&server, &lea, wanted()).await;
    assert_eq!(
        code(accept(&server, &lea, &made.code).await),
        "invitation.member-already"
    );
    tenancy::create_domain(&server, &boss, "biology", "", None)
        .await
        .unwrap();
    users::create_once(
        &server,
        &boss,
        "bora",
        Role::User,
        GOOD,
        Some("biology"),
        None,
    )
    .await
    .unwrap();
    let bora = sign_in(&server, "bora", GOOD, HERE).await.unwrap().caller;
    assert_eq!(
        code(accept(&server, &bora, &made.code).await),
        "member.other-domain"
    );
    let member = accept(&server, &mina, &made.code).await.unwrap();
    assert_eq!(member.role, GrantRole::Member);
    assert_eq!(
        code(accept(&server, &mina, &made.code).await),
        "invitation.spent"
    );
    // Long enough for its use only: no account without a project comes of a link.
    let short = NewInvitationBody {
        member_until: Some(server.clock().now().plus_seconds(60)),
        ..wanted()
    };
    let short = link(&server, &lea, short).await;
    assert_eq!(
        Some(short.invitation.expires_at),
        short.invitation.member_until
    );
    let addressed = NewInvitationBody {
        email: Some("Someone@Lab.Example".to_owned()),
        ..wanted()
    };
    let made = link(&server, &lea, addressed).await;
    // Of the same domain, and in no project yet.
    users::create(&server, &boss, "kim", Role::User, GOOD)
        .await
        .unwrap();
    let kim = sign_in(&server, "kim", GOOD, HERE).await.unwrap().caller;
    assert_eq!(
        code(accept(&server, &kim, &made.code).await),
        "invitation.other-address"
    );
    assert_eq!(
        code(accept(&server, &bora, &made.code).await),
        "member.other-domain"
    );
    let joined = join(&server, &made.code, new("minji"), HERE).await.unwrap();
    let user = users::get(&server, &boss, joined.caller.name.as_str()).await;
    assert_eq!(user.unwrap().email.unwrap().as_str(), "someone@lab.example");
}

#[tokio::test]
async fn what_is_no_invitation_is_refused_by_name() {
    let (server, _, lea, mina) = a_server().await;
    let now = server.clock().now();
    let of = |change: fn(&mut NewInvitationBody)| {
        let mut body = wanted();
        change(&mut body);
        body
    };
    let mut late = wanted();
    late.expires_at = Some(now.plus_seconds(91 * 86_400));
    let mut past = wanted();
    past.expires_at = Some(now);
    let mut over = wanted();
    over.member_until = Some(now);
    for (body, expected) in [
        (
            of(|body| body.role = GrantRole::Auditor),
            "grant.role-invalid",
        ),
        (of(|body| body.max_uses = Some(0)), "invitation.uses"),
        (of(|body| body.max_uses = Some(501)), "invitation.uses"),
        (
            of(|body| {
                body.email = Some("a@lab.example".to_owned());
                body.max_uses = Some(2);
            }),
            "invitation.uses",
        ),
        (
            of(|body| body.email = Some("nobody".to_owned())),
            "user.email-invalid",
        ),
        (late, "invitation.end"),
        (past, "invitation.end"),
        (over, "grant.ends-in-past"),
    ] {
        assert_eq!(code(create(&server, &lea, "vision", body).await), expected);
    }
    assert_eq!(
        code(create(&server, &mina, "vision", wanted()).await),
        "project.not-found"
    );
    assert_eq!(
        code(list(&server, &mina, "vision").await),
        "project.not-found"
    );
    let made = link(&server, &lea, wanted()).await;
    for (name, password, expected) in [
        ("mina", GOOD, "user.name-taken"),
        ("Bad Name", GOOD, "user.name-invalid"),
        ("minji", "short", "password.too-short"),
    ] {
        let member = NewMember {
            password: password.into(),
            ..new(name)
        };
        let joined = join(&server, &made.code, member, HERE).await;
        let said = code(joined);
        assert!(said.starts_with(expected), "{name}: {said}");
    }
    for _ in 1..MAX_OPEN {
        link(&server, &lea, wanted()).await;
    }
    assert_eq!(
        code(create(&server, &lea, "vision", wanted()).await),
        "invitation.too-many"
    );
}
