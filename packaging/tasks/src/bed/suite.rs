//! The runtime's tests on pure cgroup v2: the same test binaries as everywhere, inside a guest with a
//! systemd; then some of them again with the holder's unit. What is skipped there has its own list, and
//! no control group may be left.

use std::path::{Path, PathBuf};

use super::machine::{Hardware, Order};
use super::qemu::{self, Emulated};
use super::root::Root;
use super::{Folder, run_to_the_end};
use crate::program;
use crate::skips::{self, Who};
use crate::stage::Failure;
use crate::user;

const SCRIPT: &str = include_str!("suite.sh");

/// Test binaries by the beginning of their file's name, and which of their tests are about this
/// machine's containers. Devices are imitated by files that a compiler makes; the guest has none, and
/// its control groups have no part in it.
const ASKED: [(&str, &str); 2] = [("node-", "--skip gpu::"), ("suite-", "containers::")];

/// The guest's memory, in MiB: twenty sessions at once, and the binaries themselves.
const MEMORY: u64 = 2048;

/// Of the emulated guest.
const PROCESSORS: u32 = 2;

/// A stage of the gate: left out, with the reason, where no bed can be.
pub(crate) fn stage() -> Result<(), Failure> {
    match super::missing() {
        Some(reason) => crate::leave_out("the runtime on cgroup v2", &reason),
        None => run(false),
    }
}

/// The same under Debian's own kernel.
pub(crate) fn stage_emulated() -> Result<(), Failure> {
    match qemu::missing(false) {
        Some(reason) => crate::leave_out("the runtime under Debian's own kernel", &reason),
        None => run(true),
    }
}

/// Builds the tests where needed, runs them in a guest and compares what they skipped. Under Debian's
/// own kernel, where it is emulated, exactly the same must run.
pub(super) fn run(emulated: bool) -> Result<(), Failure> {
    let tests: Vec<PathBuf> = user::built_tests()?
        .into_iter()
        .map(|(executable, _)| executable)
        .collect();
    let mut asked = Vec::new();
    for (beginning, words) in ASKED {
        let file = tests
            .iter()
            .filter_map(|path| path.file_name()?.to_str())
            .find(|name| name.starts_with(beginning))
            .ok_or_else(|| Failure::new(format!("cargo built no test {beginning}…")))?;
        asked.push(format!("{file} {words}"));
    }
    let product = program::built("debug")?;
    let debug = product
        .parent()
        .map(Path::to_owned)
        .ok_or_else(|| Failure::new("the product lies in no folder"))?;
    let root = Root::ready()?;
    let mut order = Order::new(&root, SCRIPT);
    if emulated {
        order.hardware = Hardware::Emulated(Emulated::ready(PROCESSORS, false)?);
        order.patience = qemu::PATIENCE;
    }
    order.memory_mib = MEMORY;
    order.shares = vec![
        ("tests".to_owned(), debug),
        ("units".to_owned(), PathBuf::from("packaging/systemd")),
    ];
    order.arguments = vec![product.display().to_string()];
    order.arguments.extend(asked);
    let folder = Folder::make("suite", 1 << 20)?;
    let out = folder.path().join("out");
    let code = run_to_the_end(&order, Some(&out))?;
    if code != 0 {
        return Err(Failure::new(format!(
            "the tests in the guest ended with {code}"
        )));
    }
    let noted = std::fs::read_to_string(out.join("skips"))
        .map_err(|error| Failure::new(format!("the guest's list of skips: {error}")))?;
    skips::compare_noted(Who::Bed, &noted)
}
