//! The order of the queue and weights through the actions that doors call.

use rules::quota::TenantLevel;
use std::net::{IpAddr, Ipv4Addr};

use rules::fair_share::QueueOrder;
use rules::policy::BackfillMode;
use rules::users::Role;

use super::super::users;
use super::*;
use crate::access::{set_up, setup_link, sign_in};
use crate::code;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const GOOD: &str = "correct horse battery";

#[tokio::test]
async fn an_administrator_sets_order_and_weights_and_users_do_not() {
    let server = Server::for_tests();
    let setup = setup_link(&server).unwrap();
    let boss = set_up(&server, &setup, "boss", GOOD, HERE)
        .await
        .unwrap()
        .caller;
    users::create(&server, &boss, "mina", Role::User, GOOD)
        .await
        .unwrap();
    let mina = sign_in(&server, "mina", GOOD, HERE).await.unwrap().caller;
    let first = show(&server, &boss).await.unwrap();
    assert_eq!(
        (first.order, first.half_life_hours),
        (QueueOrder::Turns, 168)
    );
    let fair = |hours| FairSharePatchBody {
        order: Some(QueueOrder::Fair),
        half_life_hours: Some(hours),
        ..FairSharePatchBody::default()
    };
    for hours in [0, 8_761] {
        let refused = change(&server, &boss, fair(hours), None).await;
        assert_eq!(code(refused), "fair-share.half-life-out-of-range");
    }
    let changed = change(&server, &boss, fair(24), Some(first.generation)).await;
    assert_eq!(changed.unwrap().order, QueueOrder::Fair);
    let stale = change(&server, &boss, fair(48), Some(first.generation)).await;
    assert_eq!(code(stale), "fair-share.stale");
    let world = server
        .catalog()
        .read_now("look", |view| view.world())
        .unwrap();
    assert_eq!(world.policy.order, QueueOrder::Fair);
    // A new site has timed backfill, and an administrator may have the strict one.
    assert_eq!(world.policy.backfill, BackfillMode::Timed);
    let strict = FairSharePatchBody {
        backfill: Some(BackfillMode::Strict),
        ..FairSharePatchBody::default()
    };
    let changed = change(&server, &boss, strict.clone(), None).await.unwrap();
    assert_eq!(
        (changed.backfill, changed.order, changed.half_life_hours),
        (BackfillMode::Strict, QueueOrder::Fair, 24)
    );
    assert!(change(&server, &mina, strict, None).await.is_err());
    let world = server
        .catalog()
        .read_now("look", |view| view.world())
        .unwrap();
    assert_eq!(world.policy.backfill, BackfillMode::Strict);

    let weight = |level, subject: &str, weight| FairWeightBody {
        level,
        subject: subject.to_owned(),
        weight,
    };
    for (asked, expected) in [
        (
            weight(TenantLevel::User, "mina", 0),
            "fair-share.weight-out-of-range",
        ),
        (
            weight(TenantLevel::User, "mina", 1_001),
            "fair-share.weight-out-of-range",
        ),
        (weight(TenantLevel::User, "nobody", 2), "user.not-found"),
        (
            weight(TenantLevel::Project, "nowhere", 2),
            "project.not-found",
        ),
    ] {
        assert_eq!(code(weigh(&server, &boss, asked).await), expected);
    }
    // Both are told at once, each at its field.
    let refused = weigh(&server, &boss, weight(TenantLevel::User, "nobody", 0)).await;
    let Err(Failure::Refusal(refusal)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(refusal.pointer.as_deref(), Some("/weight"));
    let field = &refusal.fields[0];
    assert_eq!(
        (field.pointer.as_str(), field.code.as_str()),
        ("/subject", "user.not-found")
    );
    weigh(&server, &boss, weight(TenantLevel::Domain, "default", 3))
        .await
        .unwrap();
    weigh(&server, &boss, weight(TenantLevel::User, "mina", 2))
        .await
        .unwrap();
    let world = server
        .catalog()
        .read_now("look", |view| view.world())
        .unwrap();
    assert_eq!(world.fair.weights.len(), 2);
    weigh(&server, &boss, weight(TenantLevel::User, "mina", 1))
        .await
        .unwrap();
    let world = server
        .catalog()
        .read_now("look", |view| view.world())
        .unwrap();
    assert_eq!(world.fair.weights.len(), 1, "1 is no row");

    assert_eq!(
        code(show(&server, &mina).await),
        "role.administrator-needed"
    );
    let refused = change(&server, &mina, fair(24), None).await;
    assert_eq!(code(refused), "role.administrator-needed");
    let own = weight(TenantLevel::User, "mina", 9);
    assert_eq!(
        code(weigh(&server, &mina, own).await),
        "role.administrator-needed"
    );
}
