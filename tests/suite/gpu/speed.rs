//! What the hook costs a launch, measured beside the bare fake driver in the same run. Run by itself,
//! because a figure from a busy machine says nothing: `cargo test --test suite speed -- --ignored`.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use cuda_hook::kernel;
use cuda_hook::region::{DeviceTerms, MODE_WINDOW};

use super::rig::{MIB, Rig, said, terms};

/// Nanoseconds that the hook may add to a launch.
const MAX_NANOS: f64 = 150.0;

/// Nanoseconds for one launch of an empty kernel, over half a million.
fn launch(rig: &Rig, library: &Path, way: &str) -> f64 {
    let output = rig
        .program("launcher")
        .env("FARDEL_CUDA", library)
        .args([way, "500000", "spin0"])
        .output()
        .expect("the program was compiled");
    let said = said(&output);
    let figure = said.lines().find_map(|line| line.strip_prefix("done "));
    figure
        .and_then(|figure| figure.parse().ok())
        .unwrap_or_else(|| panic!("{said}"))
}

/// What the hook adds to a launch of that way, at the median of nine runs beside nine without it.
fn added(rig: &Rig, way: &str, what: &str) -> f64 {
    let bare = rig.place.join("libcuda.so.1");
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..9 {
        without.push(launch(rig, &bare, way));
        with.push(launch(rig, &rig.hook(), way));
    }
    without.sort_by(f64::total_cmp);
    with.sort_by(f64::total_cmp);
    let more = with[4] - without[4];
    println!(
        "{what} {way}: {:.1} ns without the hook, {:.1} ns with it, median +{more:.1} ns, least +{:.1} ns",
        without[4],
        with[4],
        with[0] - without[0]
    );
    more
}

#[test]
#[ignore = "a timing; run by itself on a quiet machine"]
fn a_launch_costs_at_most_150_nanoseconds_more_than_without_the_hook() {
    let rig = Rig::new(64 * MIB);
    let more = added(&rig, "plain", "no turns,");
    assert!(more <= MAX_NANOS, "{more:.1} ns");
}

#[test]
#[ignore = "a timing; run by itself on a quiet machine"]
fn a_launch_through_an_open_gate_costs_at_most_150_nanoseconds_more() {
    let rig = Rig::new(64 * MIB);
    let gated = DeviceTerms {
        mode: MODE_WINDOW,
        ..terms(0, 64 * MIB)
    };
    rig.control.heartbeat.store(kernel::now(), SeqCst);
    rig.control.device[0].gate_open.store(1, SeqCst);
    rig.control.set(0, &gated);
    let over = AtomicBool::new(false);
    let costs = std::thread::scope(|scope| {
        // As the host does: a sign of life, and a new window every few milliseconds.
        scope.spawn(|| {
            while !over.load(SeqCst) {
                let now = kernel::now();
                rig.control.heartbeat.store(now, SeqCst);
                rig.control.device[0]
                    .window_end
                    .store(now + 4_000_000, SeqCst);
                std::thread::sleep(Duration::from_millis(4));
            }
        });
        let costs = ["plain", "default", "per-thread", "graph", "many"]
            .map(|way| (way, added(&rig, way, "open gate,")));
        over.store(true, SeqCst);
        costs
    });
    for (way, more) in costs {
        assert!(more <= MAX_NANOS, "{way}: {more:.1} ns");
    }
}
