//! How long one pass of the scheduler takes in a large house: 2,000 machines of 8 devices, 10,000 that
//! wait. The rules alone; writing the rows is measured elsewhere.

use std::collections::BTreeMap;
use std::time::Instant;

use rules::fair_share::FairLeaf;
use rules::placement;
use rules::quota::TenantLevel;
use uuid::Uuid;

#[path = "../../bench/cluster.rs"]
mod cluster;

use cluster::{AT, NODES, USERS, WAITING, by_fair_share, by_time, large, overrun};

#[test]
fn a_pass_over_ten_thousand_waiting_on_two_thousand_machines() {
    let world = large();
    let began = Instant::now();
    let decisions = placement::decide(&world, AT);
    let pass = began.elapsed();
    let each = pass.as_secs_f64() * 1e6 / decisions.len().max(1) as f64;
    let began = Instant::now();
    let why = placement::explain_session(&world, &world.sessions[9999], AT);
    let last = began.elapsed();
    println!(
        "{} of {WAITING} placed on {NODES} machines in {:.1} ms, {each:.1} us each; the last in the \
         queue is explained in {:.1} ms",
        decisions.len(),
        pass.as_secs_f64() * 1e3,
        last.as_secs_f64() * 1e3
    );
    assert!(decisions.len() > 5000, "{why:?}");
    // One decision; a debug build on a busy machine is ten times slower than what is served.
    assert!(each < 50_000.0, "{each} us each");
}

#[test]
fn a_pass_by_fair_share_places_as_many_and_those_who_used_less_first() {
    let turns = placement::decide(&large(), AT).len();
    let world = by_fair_share(large());
    let began = Instant::now();
    let decisions = placement::decide(&world, AT);
    let pass = began.elapsed();
    println!(
        "{} of {WAITING} of {USERS} users placed by fair share on {NODES} machines in {:.1} ms",
        decisions.len(),
        pass.as_secs_f64() * 1e3
    );
    // Another order packs a little differently.
    assert!(decisions.len().abs_diff(turns) < turns / 10, "{turns}");
    // The first is of the domain that used least for its weight, of its project, of its user.
    let weight = |level, id| {
        let own = |(of, subject, _): &&_| (*of, *subject) == (level, id);
        let found = world.fair.weights.iter().find(own);
        u128::from(found.map_or(1, |(_, _, weight)| *weight))
    };
    let least = |level, of: &dyn Fn(&FairLeaf) -> Option<Uuid>| {
        let mut used: BTreeMap<Uuid, u128> = BTreeMap::new();
        for (leaf, past) in &world.fair.past {
            if let Some(id) = of(leaf) {
                *used.entry(id).or_default() += u128::from(*past);
            }
        }
        let each = used.into_iter();
        let each = each.map(|(id, past)| (past * 1_000_000 / weight(level, id), id));
        each.min().expect("somebody").1
    };
    let domain = least(TenantLevel::Domain, &|leaf| Some(leaf.domain.0));
    let project = least(TenantLevel::Project, &|leaf| {
        (leaf.domain.0 == domain).then_some(leaf.project.0)
    });
    let user = least(TenantLevel::User, &|leaf| {
        (leaf.project.0 == project).then_some(leaf.user.0)
    });
    let first = decisions.first().and_then(|decision| match decision {
        placement::Decision::Place { session, .. } => {
            world.sessions.iter().find(|row| row.id == *session)
        }
        placement::Decision::End { .. } => None,
    });
    assert_eq!(first.map(|row| row.owner.0), Some(user));
    // A debug build on a busy machine is far slower than what is served; there one decision takes 50 ms at most.
    assert!(pass.as_secs_f64() < 10.0, "{pass:?}");
}

#[test]
fn one_who_may_pass_all_the_others_is_found_in_one_decision() {
    let world = overrun();
    let began = Instant::now();
    let decisions = placement::decide(&world, AT);
    let pass = began.elapsed();
    println!(
        "one of {WAITING} passes the others on {NODES} machines in {:.1} ms",
        pass.as_secs_f64() * 1e3
    );
    assert_eq!(decisions.len(), 1, "{:?}", decisions.first());
    // A debug build on a busy machine is far slower than what is served; there it is 50 ms at most.
    assert!(pass.as_secs_f64() < 5.0, "{pass:?}");
}

#[test]
fn sessions_with_time_limits_pass_one_that_waits_for_a_whole_machine() {
    let world = by_time(large());
    let began = Instant::now();
    let decisions = placement::decide(&world, AT);
    let pass = began.elapsed();
    println!(
        "{} of {WAITING} of {USERS} users pass by time limits on {NODES} machines in {:.1} ms",
        decisions.len(),
        pass.as_secs_f64() * 1e3
    );
    assert!(decisions.len() > 1_000, "{:?}", decisions.first());
    // A debug build on a busy machine is far slower than what is served; there one decision takes 50 ms at most.
    assert!(pass.as_secs_f64() < 10.0, "{pass:?}");
}
