//! Scripts of machines and people with the text they must lead to, played by the same function as
//! `fardel rehearse`. After a wanted change `FARDEL_REFRESH=1 cargo test --test suite scenarios`
//! writes the expected files anew; read the difference before it is committed.

use std::path::Path;

#[test]
fn every_script_leads_to_its_expected_text() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/scenarios");
    let refresh = std::env::var_os("FARDEL_REFRESH").is_some();
    let mut scripts: Vec<_> = std::fs::read_dir(&folder)
        .expect("the scenarios lie beside the tests")
        .map(|entry| entry.expect("a folder of ours can be listed").path())
        .filter(|path| path.extension().is_some_and(|e| e == "txt"))
        .collect();
    scripts.sort();
    assert!(scripts.len() >= 6, "scenarios are missing: {scripts:?}");
    let mut different = Vec::new();
    for script in scripts {
        let name = script
            .file_name()
            .expect("a file")
            .to_string_lossy()
            .into_owned();
        let text = std::fs::read_to_string(&script).expect("a script can be read");
        let told = server::simulation::rehearsal::play(&text)
            .unwrap_or_else(|failure| panic!("{name}: {failure}"));
        assert!(!told.contains("BROKEN"), "{name}:\n{told}");
        let expected = script.with_extension("out");
        if refresh {
            std::fs::write(&expected, &told).expect("the checkout can be written");
            continue;
        }
        let wanted = std::fs::read_to_string(&expected).unwrap_or_default();
        if told != wanted {
            let line = told
                .lines()
                .zip(wanted.lines())
                .position(|(a, b)| a != b)
                .unwrap_or_else(|| told.lines().count().min(wanted.lines().count()));
            different.push(format!(
                "{name}, line {}:\n  told:   {}\n  wanted: {}",
                line + 1,
                told.lines().nth(line).unwrap_or("(nothing)"),
                wanted.lines().nth(line).unwrap_or("(nothing)")
            ));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn the_command_prints_the_same_text() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/scenarios");
    let played = std::process::Command::new(env!("CARGO_BIN_EXE_fardel"))
        .arg("rehearse")
        .arg(folder.join("restart.txt"))
        .arg(folder.join("oversubscription.txt"))
        .output()
        .expect("the binary of this build can be started");
    let wanted: String = ["restart.out", "oversubscription.out"]
        .map(|name| std::fs::read_to_string(folder.join(name)).expect("it is committed"))
        .concat();
    assert_eq!(String::from_utf8_lossy(&played.stderr), "");
    assert_eq!(String::from_utf8_lossy(&played.stdout), wanted);
    assert!(played.status.success());
}

#[test]
fn a_script_that_cannot_be_read_names_its_line() {
    for (script, said) in [
        (
            "node a cpu 1 mem 1g\nfly kim",
            "Line 2: there is no command fly",
        ),
        ("node a cpu 1", "Line 1: node needs mem."),
        ("stop kim", "Line 1: there is no session kim."),
        (
            "node a cpu 1 mem 1g\nsubmit kim colour red",
            "Line 2: submit knows no colour.",
        ),
        (
            "node a cpu x mem 1g",
            "Line 1: \"x\" is not a number of cores.",
        ),
    ] {
        let failure = server::simulation::rehearsal::play(script).expect_err(script);
        assert!(failure.to_string().contains(said), "{failure}");
    }
}
