//! Scenario: two users at 1 GiB each, where the quota of the disk holds them, and in a pool. The test is that of the suite which
//! this machine itself runs with a file system for each user.

use std::path::{Path, PathBuf};

use super::order::Order;
use super::root::Root;
use super::{Folder, run_to_the_end};
use crate::failure::Failure;
use crate::program;
use crate::user;

const SCRIPT: &str = include_str!("folder_limits.sh");

/// The guest's memory, in MiB. Less: the test binary, and what it has written, do not lie in it together.
const MEMORY: u64 = 2048;

/// MiB that the guest writes: three GiB on each of both, and the pool itself.
const WRITTEN: u64 = 12 * 1024;

/// Builds the tests where needed and runs the one in a guest, with the debug build, which they are made with.
pub(super) fn run(root: &Root) -> Result<(), Failure> {
    let product = program::built("debug")?;
    let tests: Vec<PathBuf> = user::built_tests()?
        .into_iter()
        .map(|(executable, _)| executable)
        .collect();
    let name = |path: &&PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("suite-"))
    };
    let suite = tests.iter().find(name);
    let suite = suite.ok_or_else(|| Failure::new("cargo built no test suite-…"))?;
    let mut order = Order::new(root, SCRIPT);
    order.memory_mib = MEMORY;
    order.written_mib = WRITTEN;
    order.shares = vec![
        ("tests".to_owned(), folder_of(suite)),
        ("product".to_owned(), folder_of(&product)),
    ];
    let file = suite.file_name().unwrap_or_default();
    order.arguments = vec![
        product.display().to_string(),
        file.to_string_lossy().into_owned(),
    ];
    let folder = Folder::make("limits", 1 << 20)?;
    match run_to_the_end(&order, Some(&folder.path().join("out")))? {
        0 => Ok(()),
        code => Err(Failure::new(format!("the scenario ended with {code}"))),
    }
}

fn folder_of(file: &Path) -> PathBuf {
    file.parent().map(Path::to_owned).unwrap_or_default()
}
