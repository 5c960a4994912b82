//! Scenario: what goes wrong on real machines, under the real units. Each trouble ends with a clear
//! sentence and a way out, nothing is half-applied, and the session that runs meanwhile lives.

use super::order::Order;
use super::root::Root;
use super::run_to_the_end;
use super::upgrade::Packages;
use crate::failure::Failure;

/// Runs it; needs both packages.
pub(super) fn run(root: &Root, packages: &Packages) -> Result<(), Failure> {
    let mut order = Order::new(root, include_str!("trouble.sh"));
    order.files = vec![("nfs.sh", include_str!("nfs.sh"))];
    packages.give(&mut order);
    match run_to_the_end(&order, None)? {
        0 => Ok(()),
        code => Err(Failure::new(format!("the scenario ended with {code}"))),
    }
}
