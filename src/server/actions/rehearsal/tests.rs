//! Rehearsals of the queue through the action that doors call.

use std::net::{IpAddr, Ipv4Addr};

use rules::names::{ResourceGroupId, UserId};
use rules::resources::Demand;
use rules::tenancy::{DomainId, ProjectId};
use rules::trace::common_day::common_cluster;
use rules::units::GpuShare;
use rules::users::Role;

use super::super::users;
use super::*;
use crate::access::{set_up, setup_link, sign_in};
use crate::code;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const GOOD: &str = "correct horse battery";

#[tokio::test]
async fn a_time_without_sessions_has_figures_too_and_users_have_none() {
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
    let time = UsageTime::default();
    let tried = TriedRules {
        order: Some(QueueOrder::Fair),
        backfill: None,
    };
    let told = rehearse(&server, &boss, &time, tried).await.unwrap();
    assert_eq!((told.sessions, told.complete), (0, true));
    assert_eq!(told.tried.order, QueueOrder::Fair);
    assert_eq!(told.tried.backfill, told.present.backfill);
    assert!(told.items.is_empty() && told.from < told.until);
    assert!(rehearse(&server, &mina, &time, tried).await.is_err());
    let wrong = UsageTime {
        month: "2026".to_owned(),
        ..UsageTime::default()
    };
    let refused = rehearse(&server, &boss, &wrong, tried).await;
    assert_eq!(code(refused), "usage.month-invalid");
}

fn user(number: u128) -> FairLeaf {
    FairLeaf {
        domain: DomainId::DEFAULT,
        project: ProjectId::DEFAULT,
        user: UserId(Uuid::from_u128(number)),
    }
}

/// A session that was queued at that second, had a card at once and held it for so many.
fn recorded(leaf: FairLeaf, queued: u64, run: u64) -> RecordedSession {
    let at = Timestamp::from_millis(1_764_028_800_000).plus_seconds(queued);
    RecordedSession {
        leaf,
        demand: Demand {
            gpu: GpuShare(100),
            ..Demand::default()
        },
        group: ResourceGroupId::DEFAULT,
        limit: Some(run),
        queued_at: at,
        queued_before: 0,
        scheduled_at: at,
        ended_at: at.plus_seconds(run),
    }
}

#[test]
fn it_says_whom_other_rules_help_and_whom_they_harm() {
    let mut world = common_cluster(QueueOrder::Fifo, BackfillMode::Strict);
    world.nodes.truncate(1);
    let (greedy, late) = (user(1), user(2));
    // Forty sessions of one user for eight cards, and one of another a second later.
    let mut rows: Vec<RecordedSession> = (0..40).map(|_| recorded(greedy, 0, 600)).collect();
    rows.push(recorded(late, 1, 600));
    let names = BTreeMap::from([
        (greedy.user.0, "greedy".to_owned()),
        (late.user.0, "late".to_owned()),
    ]);
    let stage = RehearsedTime::new(emptied(world), 168, &rows, &names);
    let tried = TriedRules {
        order: Some(QueueOrder::Fair),
        backfill: None,
    };
    let told = stage.compared(tried).expect("it takes no 20 s");
    assert_eq!(told.sessions, 41);
    assert_eq!(told.recorded.waited_max_seconds, 0, "as it was recorded");
    assert_eq!(told.present.figures.not_started, 0);
    // The last of 41 on eight cards starts after five times ten minutes.
    assert_eq!(told.present.figures.waited_max_seconds, 5 * 600 - 1);
    let named: Vec<&str> = told.items.iter().map(|item| item.user.as_str()).collect();
    assert_eq!(named, ["greedy", "late"], "the harmed ones first");
    let (harmed, helped) = (&told.items[0], &told.items[1]);
    assert!(harmed.change_seconds > 0, "{harmed:?}");
    assert_eq!(helped.present_waited_seconds, 5 * 600 - 1);
    assert_eq!(helped.tried_waited_seconds, 600 - 1);
    assert_eq!(helped.change_seconds, -(4 * 600));
}

#[test]
fn the_same_rules_change_nothing_for_any_user() {
    let world = common_cluster(QueueOrder::Fair, BackfillMode::Timed);
    let rows: Vec<RecordedSession> = (0..60)
        .map(|number| recorded(user(1 + u128::from(number % 3)), number, 900))
        .collect();
    let names = BTreeMap::new();
    let stage = RehearsedTime::new(emptied(world), 168, &rows, &names);
    let told = stage.compared(TriedRules::default()).unwrap();
    assert_eq!(told.present, told.tried);
    assert!(told.items.iter().all(|item| item.change_seconds == 0));
    assert_eq!(told.items.len(), 3);
}
