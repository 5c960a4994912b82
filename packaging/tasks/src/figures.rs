//! Figures that are promised of a large site: the development binary measures them, and a missed target fails here. Measures
//! nothing itself.

use std::path::Path;

use crate::failure::Failure;
use crate::program::Program;

/// Measures these words of the bench with that program, and prints each target with what was measured.
pub(crate) fn held(binary: &Path, words: &str) -> Result<(), Failure> {
    let said = Program::cargo()
        .words("run --release --locked -p bench -- -o json --program")
        .argument(binary)
        .words(words)
        .output()?;
    let said: serde_json::Value = serde_json::from_str(&said)
        .map_err(|error| Failure::new(format!("the bench says no JSON: {error}")))?;
    judged(&said)
}

/// Prints each row of targets with what was measured.
///
/// Errors: a row that is missed, or none at all.
pub(crate) fn judged(said: &serde_json::Value) -> Result<(), Failure> {
    let rows = said["targets"].as_array().cloned().unwrap_or_default();
    let mut missed = Vec::new();
    for row in &rows {
        let what = row["what"].as_str().unwrap_or_default();
        let target = row["target"].as_str().unwrap_or_default();
        let line = format!("{what}: {}, promised {target}", row["measured"]);
        println!("{line}");
        // What is harder than promised is a goal of our own.
        if row["met"] == false && !target.starts_with("(harder than promised)") {
            missed.push(line);
        }
    }
    match (rows.is_empty(), missed.is_empty()) {
        (true, _) => Err(Failure::new("no target was measured")),
        (false, true) => Ok(()),
        (false, false) => Err(Failure::new(missed.join("; "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_target_fails_and_one_of_our_own_does_not() {
        let row = |target: &str, met: bool| serde_json::json!({"what": "a page", "target": target, "measured": 3, "met": met});
        let judge = |rows: &[serde_json::Value]| judged(&serde_json::json!({"targets": rows}));
        assert!(judge(&[row("≤ 3", true)]).is_ok());
        assert!(judge(&[row("(harder than promised) ≤ 2", false), row("≤ 3", true)]).is_ok());
        let missed = judge(&[row("≤ 2", false)]).unwrap_err();
        assert_eq!(missed.0, "a page: 3, promised ≤ 2");
        assert!(judge(&[]).is_err());
    }
}
