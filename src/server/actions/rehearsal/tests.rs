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
        half_life_hours: None,
    };
    let told = rehearse(&server, &boss, &time, tried).await.unwrap();
    assert_eq!((told.sessions, told.complete), (0, true));
    assert_eq!(told.tried.order, QueueOrder::Fair);
    assert_eq!(told.tried.backfill, told.present.backfill);
    assert!(told.items.is_empty() && told.from < told.until);
    assert!(rehearse(&server, &mina, &time, tried).await.is_err());
    let never = TriedRules {
        half_life_hours: Some(0),
        ..tried
    };
    let refused = rehearse(&server, &boss, &time, never).await;
    assert_eq!(code(refused), "fair-share.half-life-out-of-range");
    let wrong = UsageTime {
        month: "2026".to_owned(),
        ..UsageTime::default()
    };
    let refused = rehearse(&server, &boss, &wrong, tried).await;
    assert_eq!(code(refused), "usage.month-invalid");
}

#[tokio::test]
async fn one_rehearsal_runs_three_wait_and_a_fifth_is_refused() {
    static TURNS: RehearsalTurns = RehearsalTurns::new();
    let first = TURNS.turn().await.unwrap();
    let waiting: Vec<_> = (1..MAX_REHEARSALS)
        .map(|_| tokio::spawn(TURNS.turn()))
        .collect();
    while TURNS.places.available_permits() > 0 {
        tokio::task::yield_now().await;
    }
    let Err(Failure::Refusal(refused)) = TURNS.turn().await else {
        panic!("a fifth one was taken");
    };
    assert_eq!(refused.code, "rehearsal.too-many");
    assert!(refused.retry_after_seconds.is_some());
    assert!(waiting.iter().all(|one| !one.is_finished()));
    // Each runs when the one before it is over.
    drop(first);
    for one in waiting {
        drop(one.await.unwrap().unwrap());
    }
    assert!(TURNS.turn().await.is_ok());
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
        ready_at: None,
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
    let stage = RehearsedTime::new(emptied(world), 168, &rows, Timestamp::default(), &names);
    let tried = TriedRules {
        order: Some(QueueOrder::Fair),
        backfill: None,
        half_life_hours: None,
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
fn a_half_life_is_tried_too() {
    let mut world = common_cluster(QueueOrder::Fair, BackfillMode::Strict);
    world.nodes.truncate(1);
    // One user had the whole machine a day ago, the other has one card since; then both queue for it.
    let day = 86_400;
    let whole = (0..8).map(|_| recorded(user(1), 0, 20_000));
    let since = (0..2).map(|_| recorded(user(2), day, day));
    let both = (0..40).map(|number| recorded(user(1 + number % 2), 2 * day - 3_600, 7_200));
    let rows: Vec<RecordedSession> = whole.chain(since).chain(both).collect();
    let names = BTreeMap::new();
    let stage = RehearsedTime::new(emptied(world), 8_760, &rows, Timestamp::default(), &names);
    let tried = TriedRules {
        half_life_hours: Some(1),
        ..TriedRules::default()
    };
    let told = stage.compared(tried).unwrap();
    assert_eq!(
        (told.present.half_life_hours, told.tried.half_life_hours),
        (8_760, 1)
    );
    assert_eq!(told.present.order, told.tried.order);
    assert!(
        told.items.iter().any(|item| item.change_seconds != 0),
        "{told:?}"
    );
}

#[test]
fn what_waited_for_its_time_or_for_another_session_waited_for_no_place() {
    let begins = Timestamp::from_millis(1_764_028_800_000);
    let mut later = recorded(user(1), 0, 600);
    later.scheduled_at = begins.plus_seconds(7_203);
    later.ended_at = begins.plus_seconds(7_803);
    assert_eq!(later.waited_since(), begins);
    later.ready_at = Some(begins.plus_seconds(7_200));
    assert_eq!(later.waited_since(), begins.plus_seconds(7_200));
    // The clock was set back after it was queued.
    later.queued_at = begins.plus_seconds(90_000);
    assert_eq!(later.waited_since(), later.scheduled_at);
    later.queued_at = begins;
    let rows = [recorded(user(2), 0, 600), later];
    let world = common_cluster(QueueOrder::Fifo, BackfillMode::Strict);
    let names = BTreeMap::new();
    let stage = RehearsedTime::new(emptied(world), 168, &rows, begins, &names);
    let told = stage.compared(TriedRules::default()).unwrap();
    assert_eq!(told.recorded.waited_max_seconds, 3);
    assert_eq!(told.present.figures.waited_max_seconds, 0);
}

#[test]
fn use_is_counted_from_where_the_time_begins() {
    let mut world = common_cluster(QueueOrder::Fifo, BackfillMode::Strict);
    world.nodes.truncate(1);
    // One of eight cards for ten days, and a session a day after the time that is asked for begins.
    let rows = [
        recorded(user(1), 0, 10 * 86_400),
        recorded(user(2), 9 * 86_400, 60),
    ];
    let from = rows[0].queued_at.plus_seconds(8 * 86_400);
    let names = BTreeMap::new();
    let busy = |from: Timestamp, rows: &[RecordedSession]| {
        let stage = RehearsedTime::new(emptied(world.clone()), 168, rows, from, &names);
        let told = stage.compared(TriedRules::default()).unwrap();
        told.present.figures.busy
    };
    assert_eq!(busy(from, &rows), 0.125);
    let short = [recorded(user(1), 0, 5 * 86_400), rows[1].clone()];
    assert_eq!(busy(from, &short), 0.0, "it was over before");
    assert_eq!(
        busy(rows[0].queued_at.plus_seconds(86_400 * 20), &rows),
        0.125
    );
}

#[test]
fn the_same_rules_change_nothing_for_any_user() {
    let world = common_cluster(QueueOrder::Fair, BackfillMode::Timed);
    let rows: Vec<RecordedSession> = (0..60)
        .map(|number| recorded(user(1 + u128::from(number % 3)), number, 900))
        .collect();
    let names = BTreeMap::new();
    let stage = RehearsedTime::new(emptied(world), 168, &rows, Timestamp::default(), &names);
    let told = stage.compared(TriedRules::default()).unwrap();
    assert_eq!(told.present, told.tried);
    assert!(told.items.iter().all(|item| item.change_seconds == 0));
    assert_eq!(told.items.len(), 3);
}
