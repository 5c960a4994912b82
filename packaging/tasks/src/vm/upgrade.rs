//! Scenario: the whole life of the package. Also packs the product for the other scenarios: as a
//! customer gets it, and once more under a higher number. Never builds the product.

use std::path::Path;

use super::order::Order;
use super::root::Root;
use super::{Folder, run_to_the_end};
use crate::deb::{self, DebOptions};
use crate::failure::Failure;

/// Above every version that the product has; dpkg must take it for an upgrade.
const NEWER: &str = "99.0.0";

/// The product as packages, the oldest first.
pub(super) struct Packages {
    folder: Folder,
    /// Where a guest sees them.
    paths: Vec<String>,
}

impl Packages {
    /// Packs the binary once.
    pub(super) fn one(binary: &Path) -> Result<Self, Failure> {
        Self::make(binary, &[None])
    }

    /// Packs the binary as an older and as a newer package; about 20 CPU seconds each for a release
    /// build.
    pub(super) fn two(binary: &Path) -> Result<Self, Failure> {
        Self::make(binary, &[None, Some(NEWER)])
    }

    fn make(binary: &Path, versions: &[Option<&str>]) -> Result<Self, Failure> {
        let folder = Folder::make("packages", 256 << 20)?;
        let mut paths = Vec::new();
        for version in versions {
            let options = DebOptions {
                version: version.map(str::to_owned),
                into: Some(folder.path().to_owned()),
                ..DebOptions::default()
            };
            let path = deb::make(binary, &options)?;
            let name = path.file_name().unwrap_or_default();
            paths.push(format!("/mnt/deb/{}", name.to_string_lossy()));
        }
        Ok(Self { folder, paths })
    }

    /// Shows them to a guest in `/mnt/deb`; their paths there become the script's next arguments.
    pub(super) fn give(&self, order: &mut Order<'_>) {
        let share = ("deb".to_owned(), self.folder.path().to_owned());
        order.shares.push(share);
        order.arguments.extend(self.paths.iter().cloned());
    }
}

/// Installs, uses, upgrades, breaks, downgrades and removes the product in one guest.
pub(super) fn run(root: &Root, packages: &Packages) -> Result<(), Failure> {
    let mut order = Order::new(root, include_str!("upgrade.sh"));
    packages.give(&mut order);
    match run_to_the_end(&order, None)? {
        0 => Ok(()),
        code => Err(Failure::new(format!("the scenario ended with {code}"))),
    }
}
