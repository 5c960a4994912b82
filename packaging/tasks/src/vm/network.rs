//! Scenario: the machine gets another address from its own console, and the old one back unless somebody
//! keeps the change.

use super::order::Order;
use super::root::Root;
use super::run_to_the_end;
use super::upgrade::Packages;
use crate::failure::Failure;

/// Runs it; the first package is enough.
pub(super) fn run(root: &Root, packages: &Packages) -> Result<(), Failure> {
    let mut order = Order::new(root, include_str!("network.sh"));
    packages.give(&mut order);
    match run_to_the_end(&order, None)? {
        0 => Ok(()),
        code => Err(Failure::new(format!("the scenario ended with {code}"))),
    }
}
