//! Scenario: behind an air gap. A firewall in the guest counts what tries to leave while the package is
//! installed, set up through its pages, and replaced under forty sessions and ten open terminals.

use super::order::Order;
use super::root::Root;
use super::run_to_the_end;
use super::upgrade::Packages;
use crate::failure::Failure;

/// Sessions that live through the upgrade.
const SESSIONS: &str = "40";

/// Terminals that are open meanwhile.
const TERMINALS: &str = "10";

/// Sessions, their supervisors, and a browser.
const MEMORY_MIB: u64 = 2048;

/// Runs it; needs both packages.
pub(super) fn run(root: &Root, packages: &Packages) -> Result<(), Failure> {
    let mut order = Order::new(root, include_str!("airgap.sh"));
    order.memory_mib = MEMORY_MIB;
    order.files = vec![("browser.py", include_str!("browser.py"))];
    order.arguments = vec![SESSIONS.to_owned(), TERMINALS.to_owned()];
    packages.give(&mut order);
    match run_to_the_end(&order, None)? {
        0 => Ok(()),
        code => Err(Failure::new(format!("the scenario ended with {code}"))),
    }
}
