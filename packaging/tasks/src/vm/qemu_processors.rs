//! Scenario: the packed product under Debian's own kernel with more than one processor. What User-Mode
//! Linux cannot show: sets of processors, a share of a core over several, pressure figures.

use super::order::{Emulated, Hardware, Order};
use super::qemu;
use super::root::Root;
use super::run_to_the_end;
use super::upgrade::Packages;
use crate::failure::Failure;

const PROCESSORS: u32 = 2;

/// Runs it; needs one package.
pub(super) fn run(root: &Root, packages: &Packages) -> Result<(), Failure> {
    let mut order = Order::new(root, include_str!("qemu-processors.sh"));
    order.hardware = Hardware::Emulated(Emulated::ready(PROCESSORS, false)?);
    order.patience = qemu::BOOT_TIMEOUT;
    packages.give(&mut order);
    match run_to_the_end(&order, None)? {
        0 => Ok(()),
        code => Err(Failure::new(format!("the scenario ended with {code}"))),
    }
}
