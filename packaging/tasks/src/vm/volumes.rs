//! Scenario: a file server that stops answering while sessions mount its share. The console answers as before, only the
//! sessions that mount it wait, the volume is named, and it comes back by itself.

use std::time::Duration;

use super::order::Order;
use super::root::Root;
use super::run_with_figures;
use super::upgrade::Packages;
use crate::failure::Failure;
use crate::figures;

/// As long as the promise says that it may be gone.
pub(super) const PROMISED: Duration = Duration::from_secs(600);
/// What shows the same each night.
pub(super) const SHORT: Duration = Duration::from_secs(60);

/// Runs it with a server that is gone for so long; takes the last of the packages. As long as promised it also holds the console
/// to its figure, which a shorter one has too few answers for.
pub(super) fn run(root: &Root, packages: &Packages, gone: Duration) -> Result<(), Failure> {
    let mut order = Order::new(root, include_str!("volumes.sh"));
    order.files = vec![
        ("nfs.sh", include_str!("nfs.sh")),
        ("browser.py", include_str!("browser.py")),
        ("pages.py", include_str!("pages.py")),
    ];
    // Half as long before and after it together, and the rest for a machine that does other work.
    order.limit = gone * 3 + Duration::from_secs(15 * 60);
    order.arguments = vec![gone.as_secs().to_string()];
    packages.give(&mut order);
    match run_with_figures(&order, None)? {
        (0, measured) if gone >= PROMISED => figures::judged(&measured),
        (0, _) => Ok(()),
        (code, _) => Err(Failure::new(format!("the scenario ended with {code}"))),
    }
}
