//! How programs find the hook: every ordinary way leads to it, every documented name is there, and it
//! asks the loader for one symbol only.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::atomic::Ordering::SeqCst;

use super::rig::{MIB, Rig, said, source, works};

/// What a program got of 16 MiB in one way.
fn got(rig: &Rig, way: &str) -> String {
    let output = rig
        .program("ways")
        .arg(way)
        .arg(rig.hook())
        .output()
        .expect("the program was compiled");
    said(&output)
}

const HELD: &str = "got 16777216 code 2";

/// Every ordinary way from a program to the driver.
pub(super) const WAYS: [&str; 10] = [
    "opened",
    "deepbind",
    "own-space",
    "lazy",
    "looked-up",
    "looked-up-per-thread",
    "looked-up-async",
    "looked-up-async-per-thread",
    "looked-up-lookup",
    "looked-up-as-of-cuda-11",
];

#[test]
fn every_ordinary_way_to_the_driver_leads_through_the_hook() {
    let faults: Vec<String> = WAYS
        .iter()
        .filter_map(|way| {
            let rig = Rig::new(16 * MIB);
            let said = got(&rig, way);
            (!said.contains(HELD)).then(|| format!("{way}: {said}"))
        })
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_program_linked_with_the_library_runs_on_the_hook() {
    let rig = Rig::new(16 * MIB);
    let output = rig
        .program("linked")
        .env("LD_LIBRARY_PATH", rig.place.join("lib"))
        .output()
        .expect("the program was compiled");
    assert!(said(&output).contains(HELD), "{}", said(&output));
}

#[test]
fn a_driver_that_answers_with_other_pointers_than_its_exports_is_held_all_the_same() {
    for way in ["looked-up", "looked-up-async"] {
        let rig = Rig::new(16 * MIB);
        rig.state.wrapped.store(1, SeqCst);
        let said = got(&rig, way);
        assert!(said.contains(HELD), "{way}: {said}");
    }
}

#[test]
fn a_driver_without_the_newer_names_loads_and_holds() {
    let rig = Rig::new(16 * MIB);
    // An older driver: these names are nowhere in it.
    rig.without(&["cuLaunchKernelEx", "cuMemPoolCreate", "cuDeviceGetUuid_v2"]);
    let said = got(&rig, "opened");
    assert!(said.contains(HELD), "{said}");
}

#[test]
fn the_real_driver_by_its_path_is_the_way_that_a_hook_cannot_hold() {
    // Written down, not wished away: the watchdog and the kernel answer this one.
    let rig = Rig::new(16 * MIB);
    let output = rig
        .program("ways")
        .arg("opened")
        .arg(rig.place.join("libcuda.so.1"))
        .output()
        .expect("the program was compiled");
    assert!(said(&output).contains("got 268435456"), "{}", said(&output));
}

fn symbols(library: &str, which: &str) -> BTreeSet<String> {
    let output = Command::new("nm")
        .args(["-D", which, "--format=just-symbols"])
        .arg(works().folder.join(library))
        .output()
        .expect("nm comes with the C compiler");
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(str::to_owned)
        .collect()
}

#[test]
fn both_hooks_have_every_documented_name_and_ask_for_dlsym_only() {
    for (hook, most) in [("cuda_hook", 160 << 10), ("nvml_hook", 96 << 10)] {
        let file = format!("{hook}.so");
        let names = source("src/guest").join(hook).join("names.txt");
        let names = std::fs::read_to_string(names).expect("it is committed");
        let documented: BTreeSet<String> = names.lines().map(str::to_owned).collect();
        assert_eq!(symbols(&file, "--defined-only"), documented, "{hook}");
        assert_eq!(
            symbols(&file, "--undefined-only"),
            BTreeSet::from(["dlsym".to_owned()]),
            "{hook}"
        );
        let size = std::fs::metadata(works().folder.join(&file)).expect("it was compiled");
        assert!(size.len() <= most, "{hook} has {} bytes", size.len());
    }
}

#[test]
fn the_real_driver_is_needed_by_an_absolute_path_and_the_hook_has_its_name() {
    for (file, soname) in [
        ("cuda_hook.so", "libcuda.so.1"),
        ("nvml_hook.so", "libnvidia-ml.so.1"),
    ] {
        let output = Command::new("readelf")
            .arg("-d")
            .arg(works().folder.join(file))
            .output()
            .expect("readelf comes with the C compiler");
        let told = said(&output);
        let named = |tag: &str| -> Vec<&str> {
            told.lines()
                .filter(|line| line.contains(tag))
                .filter_map(|line| line.split(['[', ']']).nth(1))
                .collect()
        };
        assert_eq!(named("(SONAME)"), [soname]);
        let real = format!("{}/{soname}", super::rig::PLACE);
        assert_eq!(named("(NEEDED)"), [real.as_str(), "libdl.so.2"]);
        assert!(named("(RUNPATH)").is_empty() && named("(RPATH)").is_empty());
    }
}
