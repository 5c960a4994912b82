//! Likely starts: by what ended sessions of the same domain took, and by nothing that stands in another.

use super::turns::{at, queued, user};
use super::*;
use crate::names::ResourceGroupId;
use crate::placement::likely_starts;
use crate::run_history::{ExpectedArrival, RunHistory};

const HOUR: u64 = 3_600;

fn other_domain() -> DomainId {
    DomainId(uuid::Uuid::from_u128(77))
}

/// One core, which a session of that domain holds for an hour at most; one of the first domain waits.
fn stage(holds: DomainId) -> ClusterSnapshot {
    let mut world = world("node a 1 64g 0");
    world.nodes[0].seen_at = at(1_000_000);
    let mut runs = queued(user(1), 1, at(0));
    runs.domain = holds;
    runs.spec.max_runtime_seconds = Some(HOUR);
    let because = Reason::new("test", "Placed.");
    runs.place(world.nodes[0].id, Vec::new(), because, at(0));
    let mut waits = queued(user(2), 2, at(0));
    waits.spec.max_runtime_seconds = Some(HOUR);
    world.sessions = vec![runs, waits].into();
    world
}

/// Runs of user 1 that took a tenth of their limits.
fn history(domain: DomainId) -> RunHistory {
    let mut history = RunHistory::default();
    for _ in 0..9 {
        history.note((domain, user(1)), HOUR, HOUR / 10);
    }
    history
}

fn arrival(domain: DomainId, seconds: u64, priority: u32) -> ExpectedArrival {
    let one = queued(user(3), 3, at(0));
    ExpectedArrival {
        at: at(seconds),
        owner: one.owner,
        domain,
        project: one.project,
        group: ResourceGroupId::DEFAULT,
        demand: one.spec.demand,
        environment: one.spec.environment,
        priority,
        limit: 7 * HOUR,
    }
}

fn told(world: &ClusterSnapshot, history: &RunHistory) -> Option<u64> {
    let waits = world.sessions[1].id;
    let start = likely_starts(world, history, at(0)).get(&waits).copied();
    start.map(|start| start.at.seconds_since(at(0)))
}

#[test]
fn a_start_is_likely_when_runs_of_who_holds_the_room_are_mostly_over() {
    let world = stage(DomainId::DEFAULT);
    assert_eq!(told(&world, &history(DomainId::DEFAULT)), Some(HOUR / 10));
    assert_eq!(told(&world, &RunHistory::default()), None);
}

/// Neither how long they ran nor when they came.
///
/// Proves too: `tests/suite/server/twin_worlds.rs`
#[test]
fn what_ended_in_another_domain_moves_no_likely_start() {
    let mut mine = history(DomainId::DEFAULT);
    let world = stage(other_domain());
    let alone = told(&world, &mine);
    assert_eq!(alone, Some(HOUR), "a whole limit");
    for _ in 0..9 {
        mine.note((other_domain(), user(1)), HOUR, HOUR / 10);
    }
    mine.expect((0..30).map(|n| arrival(other_domain(), n, 10)).collect());
    assert_eq!(told(&world, &mine), alone);
}

/// An expected session of a higher priority than all that wait does not keep the guess from being made.
#[test]
fn a_likely_start_is_told_beside_arrivals_of_any_priority() {
    let world = stage(DomainId::DEFAULT);
    for priority in [0, 10, 90] {
        let mut known = history(DomainId::DEFAULT);
        known.expect(vec![arrival(DomainId::DEFAULT, HOUR / 20, priority)]);
        assert!(told(&world, &known).is_some(), "{priority}");
    }
}
