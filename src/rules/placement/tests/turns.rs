//! People take turns: whoever queues much waits for themselves, and nobody else waits long for them.

use crate::session::{SessionChange, Transition};
use crate::workload::container::MAIN;

use super::*;
const NOW: Timestamp = Timestamp::from_millis(1_000_000);

pub(super) fn user(number: u128) -> UserId {
    UserId(uuid::Uuid::from_u128(number))
}

/// A session of one core that somebody queued at a time.
pub(super) fn queued(owner: UserId, number: u32, at: Timestamp) -> Session {
    let mut session = world(&format!("s{number} 1 1g 0")).sessions.remove(0);
    session.id = SessionId(uuid::Uuid::from_u128(u128::from(10_000 + number)));
    session.owner = owner;
    session.queued_at = at;
    session
}

pub(super) fn at(second: u64) -> Timestamp {
    NOW.plus_seconds(second)
}

/// Places who may start and ends them at once; gives whose they were, in order.
fn serve(world: &mut ClusterSnapshot, now: Timestamp) -> Vec<UserId> {
    let mut served = Vec::new();
    for decision in decide(world, now) {
        let Decision::Place { session, .. } = decision else {
            panic!("{decision:?}");
        };
        let at = world.sessions.iter().position(|s| s.id == session);
        let session = world.sessions.remove(at.expect("it waits"));
        // Rows of those that are over are not in the world; what their owner got is.
        world.served.insert(session.owner, now);
        served.push(session.owner);
    }
    served
}

fn one_core() -> ClusterSnapshot {
    let mut world = world("node a 1 64g 0");
    world.nodes[0].seen_at = at(1_000_000);
    world
}

/// Promise (Queue and scheduler): Users take turns in the queue. A session waits for at most one session of
/// each other user, however many that user queued, and the head of the queue stays the head.
#[test]
fn one_session_waits_for_one_of_each_other_however_many_they_queued() {
    let (kim, lee, jo) = (user(1), user(2), user(3));
    let mut world = one_core();
    for n in 0..2_500 {
        world.sessions.push(queued(kim, n, at(0)));
    }
    for n in 2_500..2_600 {
        world.sessions.push(queued(jo, n, at(1)));
    }
    world.sessions.push(queued(lee, 5_000, at(2)));
    let mut order = Vec::new();
    for second in 3..8 {
        order.extend(serve(&mut world, at(second)));
    }
    assert_eq!(order, [kim, jo, lee, kim, jo]);
}

#[test]
fn what_a_user_queues_at_a_low_priority_costs_none_of_their_other_turns() {
    let (kim, lee) = (user(1), user(2));
    let mut world = one_core();
    for n in 0..20 {
        let mut low = queued(kim, n, at(0));
        low.precedence.priority = 0;
        world.sessions.push(low);
    }
    for n in 20..23 {
        world.sessions.push(queued(lee, n, at(1)));
    }
    world.sessions.push(queued(kim, 30, at(2)));
    let owners: Vec<UserId> = queue(&world, at(3)).iter().map(|s| s.owner).collect();
    assert_eq!(owners[..5], [lee, kim, lee, lee, kim]);
}

/// Seed 2014 of the simulation: another user's second session got the place.
///
/// Proves too: `one_session_waits_for_one_of_each_other_however_many_they_queued`
#[test]
fn a_session_that_is_about_to_end_takes_no_turn() {
    let (kim, lee) = (user(1), user(2));
    let mut world = one_core();
    let failed = SessionId(uuid::Uuid::from_u128(1));
    world.ended.insert(failed, Some(Outcome::Failed));
    let mut hopeless = queued(kim, 1, at(0));
    hopeless.spec.depends_on = vec![failed];
    world.sessions.push(hopeless);
    world.sessions.push(queued(kim, 2, at(1)));
    world.sessions.push(queued(lee, 3, at(2)));
    let order = order::waiting(&world, at(3));
    let owners: Vec<UserId> = order
        .iter()
        .filter(|session| session.spec.depends_on.is_empty())
        .map(|session| session.owner)
        .collect();
    assert_eq!(owners, [kim, lee]);
}

/// Proves too: `one_session_waits_for_one_of_each_other_however_many_they_queued`
#[test]
fn the_first_in_the_queue_stays_the_first_until_it_starts() {
    let mut numbers = Numbers(7);
    let mut world = one_core();
    // Somebody holds the core.
    let mut holder = queued(user(9), 1, at(0));
    holder.place(
        world.nodes[0].id,
        Vec::new(),
        Reason::new("test", "Placed."),
        at(0),
    );
    world.sessions.push(holder);
    world.sessions.push(queued(user(1), 2, at(1)));
    let first = world.sessions[1].id;
    for n in 3..400 {
        let owner = user(u128::from(numbers.below(6)));
        world.sessions.push(queued(owner, n, at(u64::from(n))));
        let now = at(u64::from(n));
        assert_eq!(order::waiting(&world, now)[0].id, first, "after {n}");
    }
}

/// Short sessions that are queued again as soon as they are over leave no rows behind, and still somebody's
/// long queue gets its turns.
///
/// Proves too: `one_session_waits_for_one_of_each_other_however_many_they_queued`
#[test]
fn nobody_starves_behind_users_who_queue_one_at_a_time() {
    for seed in 0..50 {
        let mut numbers = Numbers(seed);
        let others = 2 + u128::from(numbers.below(6));
        let mut world = one_core();
        for n in 0..100 {
            world.sessions.push(queued(user(0), n, at(0)));
        }
        let mut number = 100;
        let mut since: u128 = 0;
        for second in 1..200 {
            for other in 1..=others {
                let waits = world.sessions.iter().any(|s| s.owner == user(other));
                if !waits && numbers.below(4) > 0 {
                    number += 1;
                    let own = queued(user(other), number, at(second));
                    world.sessions.push(own);
                }
            }
            since += 1;
            if serve(&mut world, at(second)).contains(&user(0)) {
                since = 0;
            }
            assert!(
                since <= others + 1,
                "seed {seed}: {since} turns of {others} others went by"
            );
        }
    }
}

#[test]
fn everybodys_own_come_in_their_order_and_what_waits_for_a_time_takes_no_turn() {
    let (kim, lee) = (user(1), user(2));
    let mut world = one_core();
    for n in 0..3 {
        let mut later = queued(kim, n, at(0));
        later.spec.start_at = Some(at(500));
        world.sessions.push(later);
    }
    for n in 3..6 {
        world.sessions.push(queued(kim, n, at(u64::from(n))));
        world.sessions.push(queued(lee, n + 10, at(u64::from(n))));
    }
    let order = |now| -> Vec<u128> {
        let waiting = order::waiting(&world, now);
        let held = |s: &&&Session| s.spec.start_at.is_none_or(|start| start <= now);
        let open = waiting.iter().filter(held);
        open.map(|s| s.id.0.as_u128() - 10_000).collect()
    };
    assert_eq!(order(at(9)), [3, 13, 4, 14, 5, 15]);
    // From then on they are kim's oldest.
    assert_eq!(order(at(500)), [13, 0, 14, 1, 15, 2, 3, 4, 5]);
}

#[test]
fn why_and_preview_count_turns() {
    let (kim, lee) = (user(1), user(2));
    let mut world = one_core();
    for n in 0..5 {
        world.sessions.push(queued(kim, n, at(u64::from(n))));
    }
    let last = world.sessions[4].clone();
    let told = explain_session(&world, &last, at(9));
    let codes = |told: &Explanation| -> Vec<String> {
        told.blockers.iter().map(|b| b.code.clone()).collect()
    };
    assert!(!codes(&told).contains(&"queue.turn".to_owned()), "{told:?}");
    let new = RequestDraft {
        owner: Some(lee),
        ..draft("1")
    };
    assert_eq!(explain_draft(&world, &new, at(9)).queue_position, Some(2));
    world.sessions.push(queued(lee, 7, at(9)));
    let told = explain_session(&world, &last, at(9));
    let turn = told.blockers.iter().find(|b| b.code == "queue.turn");
    assert_eq!(turn.expect("it says so").params["count"], "4");
    assert_eq!(told.queue_position, Some(6));
    let own = explain_session(&world, &world.sessions[5].clone(), at(9));
    assert_eq!(own.queue_position, Some(2));
    assert!(!codes(&own).contains(&"queue.turn".to_owned()), "{own:?}");
}

#[test]
fn a_node_starts_one_session_of_each_owner_before_the_second_of_any() {
    let (kim, lee) = (user(1), user(2));
    let mut world = world("node a 64 64g 0");
    let node = world.nodes[0].id;
    for (owner, number) in [(kim, 1), (kim, 2), (kim, 3), (lee, 4), (kim, 5)] {
        let mut session = queued(owner, number, at(0));
        session.place(node, Vec::new(), Reason::new("test", "Placed."), at(1));
        world.sessions.push(session);
    }
    world.sessions[2].run_since(at(2));
    let told = |world: &ClusterSnapshot| -> Vec<String> {
        let mut lists = crate::assignment::for_nodes(world, |_| None);
        let list = lists.remove(&node).expect("its list");
        list.into_iter().map(|order| order.hostname).collect()
    };
    assert_eq!(told(&world), ["s3", "s1", "s4", "s2", "s5"]);
    // What is being made already is the turn of its owner.
    let preparing = SessionChange {
        session: world.sessions[0].id,
        container: MAIN,
        seen: world.sessions[0].generation,
        to: Transition::Preparing,
        reason: None,
    };
    assert!(world.sessions[0].apply(&preparing));
    assert_eq!(told(&world), ["s3", "s1", "s4", "s2", "s5"]);
    world.sessions[0].run_since(at(2));
    // What got its place later waits for what got it before, however old it is.
    world.sessions[1].place(node, Vec::new(), Reason::new("test", "Placed."), at(2));
    assert_eq!(told(&world), ["s1", "s3", "s4", "s5", "s2"]);
}
