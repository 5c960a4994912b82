//! `fardel bench` on a card: what it says of the fake driver, whose slices are known to be exact.

use std::process::Command;

use serde_json::Value;

use super::rig::{MIB, Rig};

#[test]
fn the_bench_measures_a_cards_slices_without_any_container() {
    // Only its devices and its driver are used: the bench makes slices of its own.
    let rig = Rig::new(MIB);
    let said = Command::new(env!("CARGO_BIN_EXE_fardel"))
        .args(["bench", "--quick", "-o", "json", "gpu-memory", "gpu-launch"])
        .arg("--driver")
        .arg(rig.place.join("libcuda.so.1"))
        .output()
        .expect("the binary of this build starts");
    let all: Value = serde_json::from_slice(&said.stdout).expect("JSON");
    assert_eq!(said.status.code(), Some(0), "{}", all["not_measured"]);
    let rows = all["figures"]["gpu-memory"]["figure"]["rows"].clone();
    let rows = rows.as_array().expect("rows");
    assert_eq!(rows.len(), 9, "one limit fits, on nine paths");
    for row in rows {
        assert_eq!(row["above_limit"], 0, "{row}");
        assert_eq!(row["code"], 2, "{row}");
        assert_eq!(row["told"], 1024 * MIB, "{row}");
        assert_eq!(row["charged_after"], 0, "{row}");
        assert!(row["below_limit"].as_u64() <= Some(2 * MIB), "{row}");
    }
    let launch = &all["figures"]["gpu-launch"]["figure"];
    assert!(launch["native"]["p50"].as_f64() > Some(0.0), "{launch}");
    let target = |what: &str| {
        let rows = all["targets"].as_array().expect("rows").iter();
        rows.filter(|row| row["what"].as_str().is_some_and(|text| text.contains(what)))
            .count()
    };
    assert_eq!(target("memory of a slice"), 2);
    assert_eq!(target("a launch with our library"), 1);
    assert_eq!(target("share"), 0, "nobody measured any");
}

#[test]
fn any_command_runs_in_slices_that_it_sees() {
    let rig = Rig::new(MIB);
    let said = Command::new(env!("CARGO_BIN_EXE_fardel"))
        .args([
            "bench",
            "--slices",
            "0.5,0.25",
            "--slice-memory",
            "1GiB",
            "--driver",
        ])
        .arg(rig.place.join("libcuda.so.1"))
        .arg("--")
        .arg(super::rig::works().folder.join("gpu_test"))
        .args(["measure", "plain", "1"])
        .output()
        .expect("the binary of this build starts");
    let all: Value = serde_json::from_slice(&said.stdout).expect("JSON");
    let slices = all["slices"].as_array().expect("slices");
    assert_eq!(slices.len(), 2);
    for slice in slices {
        assert_eq!(slice["exit_code"], 0, "{slice}");
        let printed = slice["printed"].as_str().expect("text");
        assert!(
            printed.starts_with(&format!("memory {} ", 1024 * MIB)),
            "{printed}"
        );
    }
    assert_eq!(
        (&slices[0]["share"], &slices[1]["share"]),
        (&0.5.into(), &0.25.into())
    );
}

#[test]
fn a_machine_without_a_driver_says_so_and_how_to_name_one() {
    let said = Command::new(env!("CARGO_BIN_EXE_fardel"))
        .args([
            "bench",
            "-o",
            "json",
            "gpu-memory",
            "--driver",
            "/nonexistent",
        ])
        .output()
        .expect("the binary of this build starts");
    let all: Value = serde_json::from_slice(&said.stdout).expect("JSON");
    assert_eq!(said.status.code(), Some(1));
    assert!(all["not_measured"]["gpu-memory"].is_string(), "{all}");
}

#[test]
#[ignore = "a timing of a minute; run by itself on a quiet machine"]
fn the_bench_measures_shares_of_a_card() {
    let rig = Rig::new(MIB);
    let said = Command::new(env!("CARGO_BIN_EXE_fardel"))
        .args(["bench", "--quick", "-o", "json", "gpu-share", "--driver"])
        .arg(rig.place.join("libcuda.so.1"))
        .output()
        .expect("the binary of this build starts");
    let all: Value = serde_json::from_slice(&said.stdout).expect("JSON");
    assert_eq!(said.status.code(), Some(0), "{}", all["not_measured"]);
    println!(
        "{:#}\n{:#}",
        all["targets"], all["figures"]["gpu-share"]["figure"]
    );
    let rows = all["figures"]["gpu-share"]["figure"]["rows"]
        .as_array()
        .map(Vec::len);
    assert_eq!(rows, Some(10), "four alone, two mixes in three ways");
}
