//! Scenario: behind an air gap. A firewall in the guest counts what tries to leave while the package is installed, set up
//! through its pages, given an environment from a stick, and replaced under forty open notebooks and ten open terminals.

use std::path::PathBuf;

use super::order::Order;
use super::root::Root;
use super::run_to_the_end;
use super::upgrade::Packages;
use crate::failure::Failure;

/// Sessions that live through the upgrade, the one with JupyterLab not counted.
const SESSIONS: &str = "40";

/// Terminals that are open meanwhile.
const TERMINALS: &str = "10";

/// Sessions, their supervisors, JupyterLab, and a browser.
const MEMORY_MIB: u64 = 4096;

/// The bundle, its layers and what they unpack to.
const WRITTEN_MIB: u64 = 3072;

/// Runs it; needs both packages and the stick.
pub(super) fn run(root: &Root, packages: &Packages, stick: PathBuf) -> Result<(), Failure> {
    let mut order = Order::new(root, include_str!("airgap.sh"));
    order.memory_mib = MEMORY_MIB;
    order.written_mib = WRITTEN_MIB;
    order.stick = Some(stick);
    order.files = vec![
        ("browser.py", include_str!("browser.py")),
        ("notebooks.py", include_str!("notebooks.py")),
    ];
    order.arguments = vec![SESSIONS.to_owned(), TERMINALS.to_owned()];
    packages.give(&mut order);
    match run_to_the_end(&order, None)? {
        0 => Ok(()),
        code => Err(Failure::new(format!("the scenario ended with {code}"))),
    }
}
