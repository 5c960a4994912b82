//! Two administrators through the actions that doors call: what waits for the second one, what they see of it, and what gets
//! around them.

use std::net::{IpAddr, Ipv4Addr};

use api::policies::{EgressBody, LimitsBody, NewPolicyBody, PolicyPatchBody, PolicyUseBody};
use api::users::UserPatchBody;
use rules::grants::GrantRole;
use rules::object::Object;
use rules::quota::PolicyLevel;
use rules::users::Role;

use super::super::notices::{self, NoticeKind};
use super::super::rosters;
use super::super::users::TokensAfterReset;
use super::*;
use crate::access::{local_root, set_up, setup_link, sign_in};
use crate::code;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const GOOD: &str = "correct horse battery";
const OTHER: &str = "staple battery horse 9";

/// Ada and grace administer the site, mina is a user.
struct Site {
    server: Server,
    ada: Caller,
    grace: Caller,
    mina: Caller,
}

async fn site() -> Site {
    let server = Server::for_tests();
    let setup = setup_link(&server).unwrap();
    let ada = set_up(&server, &setup, "ada", GOOD, HERE).await.unwrap();
    let ada = ada.caller;
    for (name, role) in [("grace", Role::Administrator), ("mina", Role::User)] {
        users::create(&server, &ada, name, role, GOOD)
            .await
            .unwrap();
    }
    let grace = sign_in(&server, "grace", GOOD, HERE).await.unwrap().caller;
    let mina = sign_in(&server, "mina", GOOD, HERE).await.unwrap().caller;
    Site {
        server,
        ada,
        grace,
        mina,
    }
}

async fn turned_on(site: &Site) {
    let on = FourEyesBody { on: true };
    let set = set_four_eyes(&site.server, &site.ada, on).await.unwrap();
    assert!(set.on);
}

fn small() -> NewPolicyBody {
    NewPolicyBody {
        name: "small".to_owned(),
        limits: LimitsBody {
            gpu: Some(rules::units::GpuShare(50)),
            sessions: Some(3),
            ..LimitsBody::default()
        },
        egress: EgressBody::default(),
        sudo: false,
        no_inner_door: false,
        no_home: false,
        require_limit: false,
    }
}

/// The ids of what waits.
async fn waiting(site: &Site) -> Vec<String> {
    let all = list(&site.server, &site.grace).await.unwrap();
    let waiting = all
        .into_iter()
        .filter(|one| one.state == ApprovalState::Waiting);
    waiting.map(|one| one.id.to_string()).collect()
}

/// Grace approves the one act that waits.
async fn approved(site: &Site) {
    let ids = waiting(site).await;
    let [id] = ids.as_slice() else {
        panic!("{ids:?}");
    };
    let done = release(&site.server, &site.grace, id).await;
    done.unwrap_or_else(|failure| panic!("{failure}"));
}

/// Proves too: `every_act_asks_for_its_capability_first`
#[tokio::test]
async fn an_act_waits_until_a_second_administrator_approves_it() {
    let site = site().await;
    let (server, ada, grace, mina) = (&site.server, &site.ada, &site.grace, &site.mina);
    turned_on(&site).await;
    let before = crate::catalog::tests::dump::rows(server.catalog());
    let made = policies::create(server, ada, small()).await;
    let Err(Failure::Refusal(refusal)) = made else {
        panic!("done at once");
    };
    assert_eq!(refusal.code, "approval.needed");
    let after = crate::catalog::tests::dump::rows(server.catalog());
    assert_eq!(before["policy"], after["policy"], "something was kept");
    // The same again is the same act.
    let again = policies::create(server, ada, small()).await;
    assert_eq!(code(again), "approval.needed");
    let ids = waiting(&site).await;
    assert_eq!(ids.len(), 1);
    assert!(refusal.hint.contains(&ids[0]), "{}", refusal.hint);

    // The other administrator is told, and neither the one who asked nor a user.
    for (reader, told) in [(grace, 1), (ada, 0), (mina, 0)] {
        let notices = notices::list(server, reader).await.unwrap();
        let acts = notices
            .iter()
            .filter(|one| one.about == NoticeKind::ApprovalsWait(1));
        assert_eq!(acts.count(), told, "{}", reader.name);
    }
    let id = ids[0].as_str();
    assert_eq!(
        code(release(server, mina, id).await),
        "role.administrator-needed"
    );
    assert_eq!(code(release(server, ada, id).await), "approval.own");
    release(server, grace, id).await.unwrap();
    let policy = policies::get(server, ada, "small").await.unwrap();
    assert_eq!(policy.limits.sessions, Some(3));
    assert_eq!(code(release(server, grace, id).await), "approval.over");
    let all = list(server, grace).await.unwrap();
    assert_eq!(
        (all[0].state, all[0].decided_by.as_deref()),
        (ApprovalState::Done, Some("grace"))
    );
    // What is wrong is said at once, and waits for no one.
    let taken = policies::create(server, ada, small()).await;
    assert_eq!(code(taken), "policy.name-taken");
    assert!(waiting(&site).await.is_empty());
    // An approval is for one act, and for one time.
    policies::remove(server, &local_root(server), "small")
        .await
        .unwrap();
    let again = policies::create(server, ada, small()).await;
    assert_eq!(code(again), "approval.needed");
}

#[tokio::test]
async fn each_act_on_policies_roles_and_settings_is_done_as_it_was_asked() {
    let site = site().await;
    let (server, ada) = (&site.server, &site.ada);
    policies::create(server, ada, small()).await.unwrap();
    turned_on(&site).await;
    let to = PolicyUseBody {
        level: PolicyLevel::User,
        subject: Some("mina".to_owned()),
    };
    let patch = PolicyPatchBody {
        limits: Some(Object(LimitsBody {
            sessions: Some(5),
            ..LimitsBody::default()
        })),
        ..PolicyPatchBody::default()
    };

    let asked = policies::change(server, ada, "small", patch.clone(), None).await;
    assert_eq!(code(asked), "approval.needed");
    approved(&site).await;
    let asked = policies::attach(server, ada, "small", to.clone()).await;
    assert_eq!(code(asked), "approval.needed");
    approved(&site).await;
    let policy = policies::get(server, ada, "small").await.unwrap();
    assert_eq!((policy.limits.sessions, policy.uses.len()), (Some(5), 1));

    let subject = Some("mina".to_owned());
    let level = Some(PolicyLevel::User);
    let asked = policies::detach(server, ada, "small", level, subject).await;
    assert_eq!(code(asked), "approval.needed");
    approved(&site).await;
    let patch = PolicyPatchBody {
        sudo: Some(true),
        ..PolicyPatchBody::default()
    };
    let asked = policies::change_and_attach(server, ada, "small", patch, None, to).await;
    assert_eq!(code(asked), "approval.needed");
    approved(&site).await;
    let policy = policies::get(server, ada, "small").await.unwrap();
    assert_eq!((policy.sudo, policy.uses.len()), (true, 1));

    let auditor = GrantRole::Auditor;
    let asked = tenancy::grant(server, ada, "mina", auditor, None, None).await;
    assert_eq!(code(asked), "approval.needed");
    approved(&site).await;
    let held = tenancy::grants(server, ada, "mina").await.unwrap();
    assert!(held.iter().any(|one| one.role == auditor), "{held:?}");
    let asked = tenancy::revoke(server, ada, "mina", Some(auditor), None).await;
    assert_eq!(code(asked), "approval.needed");
    approved(&site).await;

    let asked = users::set_role(server, ada, "mina", Role::Administrator, None).await;
    assert_eq!(code(asked), "approval.needed");
    approved(&site).await;
    let mina = users::get(server, ada, "mina").await.unwrap();
    assert_eq!(mina.role, Role::Administrator);
    // An account is changed as always where its role stays.
    let renamed = UserPatchBody {
        full_name: Some("Mina Han".to_owned()),
        ..UserPatchBody::default()
    };
    let done = users::patch(server, ada, "mina", renamed, None).await;
    assert_eq!(code(done), "done");

    let off = FourEyesBody { on: false };
    assert_eq!(
        code(set_four_eyes(server, ada, off).await),
        "approval.needed"
    );
    approved(&site).await;
    assert!(!four_eyes(server, ada).await.unwrap().on);
    let done = policies::create(
        server,
        ada,
        NewPolicyBody {
            name: "other".to_owned(),
            ..small()
        },
    );
    assert_eq!(code(done.await), "done");
}

#[tokio::test]
async fn no_administrator_becomes_the_second_one() {
    let site = site().await;
    let (server, ada) = (&site.server, &site.ada);
    turned_on(&site).await;
    let kept = TokensAfterReset::Kept;
    for refused in [
        code(users::set_password(server, ada, "grace", OTHER, kept).await),
        code(users::create(server, ada, "kim", Role::Administrator, GOOD).await),
        code(users::sign_in_link::make(server, ada, "grace", None).await),
        code(users::second_factor::reset(server, ada, "grace").await),
        code(
            users::patch(
                server,
                ada,
                "grace",
                UserPatchBody {
                    email: Some("ada@lab.example".to_owned()),
                    ..UserPatchBody::default()
                },
                None,
            )
            .await,
        ),
    ] {
        assert_eq!(refused, "approval.account");
    }
    // Nor by a roster, which attaches no policy either.
    let text = "name,email,policy,gpu\ngrace,ada@lab.example,,\nmina,,,1\n";
    let plan = rosters::plan(server, ada, text.as_bytes(), None).await;
    let rows = plan.unwrap().rows;
    let faults = rows.iter().flat_map(|row| &row.faults);
    let codes: Vec<&str> = faults.map(|one| one.refusal.code.as_str()).collect();
    assert_eq!(codes, ["approval.account", "approval.roster"]);
    // An ordinary account is as always.
    let done = users::set_password(server, ada, "mina", OTHER, kept).await;
    assert_eq!(code(done), "done");
    // Root on the machine waits for no one.
    let root = local_root(server);
    let done = users::set_password(server, &root, "grace", OTHER, kept).await;
    assert_eq!(code(done), "done");
    let off = FourEyesBody { on: false };
    assert_eq!(code(set_four_eyes(server, &root, off).await), "done");
    // Alone there is no second one.
    let user = users::set_role(server, ada, "grace", Role::User, None).await;
    assert_eq!(code(user), "done");
    let on = FourEyesBody { on: true };
    assert_eq!(code(set_four_eyes(server, ada, on).await), "approval.alone");
}

#[tokio::test]
async fn an_act_is_about_the_account_that_was_meant_and_is_done_once() {
    let site = site().await;
    let (server, ada, grace) = (&site.server, &site.ada, &site.grace);
    turned_on(&site).await;
    let chief = Role::Administrator;
    let asked = users::set_role(server, ada, "mina", chief, None).await;
    assert_eq!(code(asked), "approval.needed");
    users::remove(server, ada, "mina", None).await.unwrap();
    users::create(server, ada, "mina", Role::User, OTHER)
        .await
        .unwrap();
    let ids = waiting(&site).await;
    let refused = release(server, grace, &ids[0]).await;
    assert_eq!(code(refused), "user.not-found");
    let mina = users::get(server, ada, "mina").await.unwrap();
    assert_eq!(mina.role, Role::User);
    decline(server, grace, &ids[0]).await.unwrap();

    // Two approvals at once: one does it, and what is done does not wait again.
    let asked = policies::create(server, ada, small()).await;
    assert_eq!(code(asked), "approval.needed");
    let ids = waiting(&site).await;
    let root = local_root(server);
    let (one, other) = tokio::join!(
        release(server, grace, &ids[0]),
        release(server, &root, &ids[0])
    );
    let mut codes = [code(one), code(other)];
    codes.sort();
    assert_eq!(codes, ["approval.over", "done"]);
    assert!(waiting(&site).await.is_empty());
    let all = list(server, grace).await.unwrap();
    let done = all.iter().filter(|one| one.state == ApprovalState::Done);
    assert_eq!(done.count(), 1);
}

#[tokio::test]
async fn one_administrator_has_so_many_acts_wait() {
    let site = site().await;
    let (server, ada, grace) = (&site.server, &site.ada, &site.grace);
    turned_on(&site).await;
    for number in 0..=20 {
        let asked = NewPolicyBody {
            name: format!("small-{number}"),
            ..small()
        };
        let expected = match number < 20 {
            true => "approval.needed",
            false => "approval.too-many",
        };
        let refused = code(policies::create(server, ada, asked).await);
        assert_eq!(refused, expected, "{number}");
    }
    // Those of another administrator wait beside them.
    let asked = policies::create(server, grace, small()).await;
    assert_eq!(code(asked), "approval.needed");
}

#[tokio::test]
async fn what_is_declined_or_over_is_not_done() {
    let site = site().await;
    let (server, ada, grace) = (&site.server, &site.ada, &site.grace);
    turned_on(&site).await;
    let asked = policies::create(server, ada, small()).await;
    assert_eq!(code(asked), "approval.needed");
    let ids = waiting(&site).await;
    decline(server, grace, &ids[0]).await.unwrap();
    let over = release(server, grace, &ids[0]).await;
    assert_eq!(code(over), "approval.over");
    let missing = policies::get(server, ada, "small").await;
    assert_eq!(code(missing), "policy.not-found");
    // What can no longer be done when it is approved waits on, and says why.
    let asked = policies::create(server, ada, small()).await;
    assert_eq!(code(asked), "approval.needed");
    policies::create(server, &local_root(server), small())
        .await
        .unwrap();
    let ids = waiting(&site).await;
    let refused = release(server, grace, &ids[0]).await;
    assert_eq!(code(refused), "policy.name-taken");
    assert_eq!(waiting(&site).await, ids);
    // Who asked is suspended: nothing is done in their name.
    users::suspend(server, grace, "ada", true, None)
        .await
        .unwrap();
    let refused = release(server, grace, &ids[0]).await;
    assert_eq!(code(refused), "approval.asker-gone");
}
