//! Memory of a slice, on all nine paths: exact to the byte whoever races, forks, becomes another program
//! or is killed, while the limit moves.

use std::sync::atomic::Ordering::SeqCst;

use super::rig::{MIB, Rig, said};

pub(super) use rules::self_test::PATHS;

fn conforms(path: &str, processes: usize, way: &str) -> Result<(), String> {
    let limit = 64 * MIB;
    let rig = Rig::new(limit);
    let output = rig
        .program("conformance")
        .env("FARDEL_CONTROL", rig.place.join("control"))
        .args([path, &processes.to_string(), way])
        .args([limit.to_string(), (8 * MIB).to_string()])
        .output()
        .expect("the program was compiled");
    let case = format!("{path}, {processes} processes, {way}");
    if !output.status.success() {
        return Err(format!("{case}: {}", said(&output)));
    }
    let (charged, truth) = (rig.charged(0), rig.truth(0));
    if (charged, truth) != (0, 0) {
        return Err(format!(
            "{case}: {charged} bytes are still charged, {truth} still held"
        ));
    }
    Ok(())
}

fn all_conform(processes: usize) {
    let cases = PATHS
        .iter()
        .flat_map(|path| ["fork", "exec", "kill"].map(|way| (*path, way)));
    let faults: Vec<String> = cases
        .filter_map(|(path, way)| conforms(path, processes, way).err())
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Proves too: `nine_paths_are_exact_to_the_byte_for_one_process`
#[test]
fn the_program_notices_when_nothing_holds_the_limit() {
    let rig = Rig::new(64 * MIB);
    let output = rig
        .program("conformance")
        .env("FARDEL_CUDA", rig.place.join("libcuda.so.1"))
        .args(["plain", "1", "kill", "67108864", "8388608"])
        .output()
        .expect("the program was compiled");
    assert!(!output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("WRONG taken together: 8589934592"));
}

/// Promise (GPUs): The memory limit of a slice is exact to the byte on nine allocation paths with one, four and
/// eight processes, across fork, exec and kill, and while the limit is raised and lowered. A refused allocation
/// returns code 2 and changes no output; 0 bytes stay charged (fake driver).
#[test]
fn nine_paths_are_exact_to_the_byte_for_one_process() {
    all_conform(1);
}

/// Proves too: `nine_paths_are_exact_to_the_byte_for_one_process`
#[test]
fn nine_paths_are_exact_to_the_byte_for_four_processes() {
    all_conform(4);
}

/// Proves too: `nine_paths_are_exact_to_the_byte_for_one_process`
#[test]
fn nine_paths_are_exact_to_the_byte_for_eight_processes() {
    all_conform(8);
}

#[test]
fn a_tenant_that_wipes_or_garbles_its_own_page_gains_nothing_lasting_and_harms_no_neighbour() {
    for way in ["wiped", "garbled"] {
        let rig = Rig::new(64 * MIB);
        let neighbour = Rig::beside(&rig, 64 * MIB);
        let run = |rig: &Rig, name: &str| {
            let output = rig
                .program("cases")
                .arg(name)
                .env("FARDEL_ACCOUNT", rig.place.join("account"))
                .output()
                .expect("the program was compiled");
            assert!(output.status.success(), "{name}: {}", said(&output));
        };
        run(&rig, way);
        run(&neighbour, "nonsense");
        // The page is no longer one: whoever comes next is told so and gets nothing.
        let output = rig.program("cases").arg("nonsense").output();
        let said = said(&output.expect("the program was compiled"));
        assert!(said.contains("802"), "{way}: {said}");
        assert_eq!(rig.truth(0), 0);
    }
}

/// Runs one case of `cases.rs` on a slice of 64 MiB; nothing is left of it.
fn case(name: &str, plant: impl FnOnce(&Rig)) {
    let rig = Rig::new(64 * MIB);
    plant(&rig);
    let output = rig
        .program("cases")
        .arg(name)
        .output()
        .expect("the program was compiled");
    let said = said(&output);
    assert!(output.status.success(), "{name}: {said}");
    assert!(said.contains("fine"), "{name}: {said}");
    assert_eq!((rig.charged(0), rig.truth(0)), (0, 0), "{name}");
}

#[test]
fn physical_memory_is_charged_as_long_as_a_handle_or_a_mapping_lives() {
    case("mapped", |_| {});
}

#[test]
fn what_ends_with_a_context_is_given_back() {
    case("context", |_| {});
    case("primary", |_| {});
}

#[test]
fn a_graphs_own_memory_is_asked_for_when_it_is_launched() {
    case("graph", |_| {});
    case("captured", |_| {});
}

#[test]
fn a_failure_of_the_drivers_own_is_told_as_it_is_and_charges_nothing() {
    case("driver-fails", |rig| {
        rig.state.fail_allocation_in.store(1, SeqCst);
    });
    case("nonsense", |_| {});
}

#[test]
fn a_pitch_and_a_pool_that_take_more_than_was_asked_stay_within_the_limit() {
    case("pitch", |rig| rig.state.pitch.store(4096, SeqCst));
    case("pool-blocks", |rig| {
        rig.state.pool_chunk.store(32 * MIB, SeqCst);
    });
}

#[test]
fn the_heap_of_a_context_counts_and_memory_that_nobody_could_count_is_refused() {
    case("heap", |_| {});
    case("uncounted", |_| {});
}
