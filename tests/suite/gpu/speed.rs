//! What the hook costs a launch, measured beside the bare fake driver in the same run. Run by itself,
//! because a figure from a busy machine says nothing: `cargo test --test suite speed -- --ignored`.

use std::path::Path;

use super::rig::{MIB, Rig, said};

/// Nanoseconds for one launch of an empty kernel, over half a million.
fn launch(rig: &Rig, library: &Path) -> f64 {
    let output = rig
        .program("launcher")
        .env("FARDEL_CUDA", library)
        .args(["plain", "500000", "spin0"])
        .output()
        .expect("the program was compiled");
    let said = said(&output);
    let figure = said.lines().find_map(|line| line.strip_prefix("done "));
    figure
        .and_then(|figure| figure.parse().ok())
        .unwrap_or_else(|| panic!("{said}"))
}

#[test]
#[ignore = "a timing; run by itself on a quiet machine"]
fn a_launch_costs_at_most_150_nanoseconds_more_than_without_the_hook() {
    let rig = Rig::new(64 * MIB);
    let bare = rig.place.join("libcuda.so.1");
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..9 {
        without.push(launch(&rig, &bare));
        with.push(launch(&rig, &rig.hook()));
    }
    without.sort_by(f64::total_cmp);
    with.sort_by(f64::total_cmp);
    println!("without the hook {without:.1?} ns");
    println!("with the hook    {with:.1?} ns");
    let more = with[4] - without[4];
    println!(
        "median +{more:.1} ns, least +{:.1} ns",
        with[0] - without[0]
    );
    assert!(more <= 150.0, "{more:.1} ns");
}
