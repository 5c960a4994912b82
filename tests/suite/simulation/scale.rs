//! How long one pass of the scheduler takes in a large house: 2,000 machines of 8 devices, 10,000 that
//! wait. The rules alone; writing the rows is measured elsewhere.

use std::time::Instant;

use rules::placement;

#[path = "../../bench/cluster.rs"]
mod cluster;

use cluster::{AT, NODES, WAITING, large, overrun};

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
