//! Holds sizes and times to `.ci/budgets.toml`. A ratchet: what shrinks may be lowered freely, what
//! grows needs an edit there with a reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde::Deserialize;

use crate::failure::Failure;

const FILE: &str = ".ci/budgets.toml";

#[derive(Deserialize)]
struct Budgets {
    /// Single numbers, by name.
    limits: BTreeMap<String, u128>,
    /// CPU seconds per stage of the gate; a stage that is not listed has no budget.
    cpu_seconds: BTreeMap<String, f64>,
    /// Packages that are linked in more than one version.
    duplicates: BTreeSet<String>,
}

fn read() -> Result<Budgets, Failure> {
    let text = fs::read_to_string(FILE)
        .map_err(|error| Failure::new(format!("{FILE} cannot be read: {error}")))?;
    toml::from_str(&text).map_err(|error| Failure::new(format!("{FILE} cannot be read: {error}")))
}

/// Packages that may be linked in more than one version.
pub(crate) fn accepted_duplicates() -> Result<BTreeSet<String>, Failure> {
    Ok(read()?.duplicates)
}

/// Compares one number with its limit.
pub(crate) fn check_number(name: &str, number: u128) -> Result<(), Failure> {
    let limit = *read()?
        .limits
        .get(name)
        .ok_or_else(|| Failure::new(format!("{FILE} has no limit {name}")))?;
    println!("{name}: {number} of {limit}");
    if number <= limit {
        Ok(())
    } else {
        Err(Failure::new(format!(
            "{name} is {number}, and {FILE} allows {limit}"
        )))
    }
}

/// One sentence per stage that took more CPU seconds than its budget, a cold build included; empty when none did.
///
/// Fails when the file cannot be read.
pub(crate) fn over(spent: &[(&str, f64)]) -> Result<Vec<String>, Failure> {
    let budgets = read()?;
    Ok(spent
        .iter()
        .filter_map(|(name, seconds)| {
            let budget = budgets.cpu_seconds.get(*name)?;
            (seconds > budget)
                .then(|| format!("{name} took {seconds:.0} CPU seconds, {FILE} allows {budget:.0}"))
        })
        .collect())
}
