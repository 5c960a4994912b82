//! The runtime's tests on pure cgroup v2: the same test binaries as everywhere, inside a guest with a
//! systemd; then some of them again with the holder's unit. What is skipped there has its own list, and
//! no control group may be left.

use std::path::{Path, PathBuf};

use super::order::{Emulated, Hardware, Order};
use super::qemu;
use super::root::Root;
use super::{Folder, run_to_the_end};
use crate::failure::Failure;
use crate::program;
use crate::skips::{self, Who};
use crate::user;

const SCRIPT: &str = include_str!("suite.sh");

/// Test binaries by the beginning of their file's name, and which of their tests are about this
/// machine's containers. Devices are imitated by files that a compiler makes; the guest has none, and
/// its control groups have no part in it.
const ASKED: [(&str, &str); 2] = [("node-", "--skip gpu::"), ("suite-", "containers::")];

/// Tests that the gate leaves out, by the beginning of their names: what they show is the same on every
/// hierarchy, and `cargo test` has shown it; or they run again with the holder. Every other one is run,
/// a new one too: who makes, limits, pauses, adopts and kills, does so by control groups. The night runs
/// all of them.
const SAME_EVERYWHERE: [(&str, &str); 20] = [
    (
        "containers::idle::",
        "a shim's own processor time, descriptors, mounts",
    ),
    ("containers::life::", "run with the holder"),
    ("containers::crash::shims_stand", "run with the holder"),
    ("containers::crash::twenty", "run with the holder"),
    (
        "containers::disk::a_session_that",
        "what is counted on a disk; one pause for it is left in",
    ),
    ("containers::disk::clearing", "removing files"),
    ("containers::inside::exec_gives", "streams"),
    ("containers::inside::a_terminal", "streams"),
    ("containers::inside::stop_ends", "signals"),
    (
        "containers::inside::a_session_has_only_loopback",
        "network namespaces",
    ),
    ("containers::inside::two_sessions_share", "overlay mounts"),
    ("containers::inside::the_host_environment", "files"),
    ("containers::inside::our_own_programs", "files"),
    ("containers::inside::files_of_the_host", "bind mounts"),
    (
        "containers::neighbours::a_session_takes",
        "counts of a user namespace",
    ),
    (
        "containers::neighbours::a_session_has",
        "terminals of a mount",
    ),
    ("containers::neighbours::a_medium", "mount propagation"),
    ("containers::neighbours::what_only", "rights of files"),
    (
        "containers::supervision::programs_held_open",
        "clients of a socket",
    ),
    (
        "containers::supervision::whoever_connects",
        "clients of a socket",
    ),
];

/// Which of the tests are run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// All but those of [`SAME_EVERYWHERE`].
    Groups,
    Whole,
}

/// The guest's memory, in MiB: twenty sessions at once, and the binaries themselves.
const MEMORY: u64 = 2048;

/// Of the emulated guest.
const PROCESSORS: u32 = 2;

/// A stage of the gate: left out, with the reason, where no machine can be. The containers are those of the
/// release build, which the guest starts sooner: twenty of them took 7 s there, and 12 s of the debug build.
pub(crate) fn stage(product: &Path) -> Result<(), Failure> {
    match super::missing() {
        Some(reason) => crate::leave_out("the runtime on cgroup v2", &reason),
        None => run(product, false, Extent::Groups),
    }
}

/// All of it under Debian's own kernel.
pub(crate) fn stage_emulated() -> Result<(), Failure> {
    match qemu::missing(false) {
        Some(reason) => crate::leave_out("the runtime under Debian's own kernel", &reason),
        None => run(&program::built("debug")?, true, Extent::Whole),
    }
}

/// Builds the tests where needed, runs them in a guest with this product and compares what they skipped.
/// Under Debian's own kernel, where it is emulated, no other skips are accepted.
pub(super) fn run(product: &Path, emulated: bool, extent: Extent) -> Result<(), Failure> {
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
        let left_out = match extent {
            Extent::Groups => skipping(),
            Extent::Whole => String::new(),
        };
        asked.push(format!("{file} {words}{left_out}"));
    }
    // Where the tests look for it, whichever it is.
    let expected = program::built("debug")?;
    let root = Root::ready()?;
    let mut order = Order::new(&root, SCRIPT);
    if emulated {
        order.hardware = Hardware::Emulated(Emulated::ready(PROCESSORS, false)?);
        order.patience = qemu::BOOT_TIMEOUT;
    }
    order.memory_mib = MEMORY;
    order.shares = vec![
        ("tests".to_owned(), folder_of(&tests[0])?),
        ("product".to_owned(), folder_of(product)?),
        ("units".to_owned(), PathBuf::from("packaging/systemd")),
    ];
    order.arguments = vec![expected.display().to_string()];
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
    skips::compare_noted(Who::Vm, &noted)
}

/// ` --skip NAME` for each of [`SAME_EVERYWHERE`].
fn skipping() -> String {
    SAME_EVERYWHERE
        .iter()
        .map(|(name, _)| format!(" --skip {name}"))
        .collect()
}

fn folder_of(file: &Path) -> Result<PathBuf, Failure> {
    file.parent()
        .map(Path::to_owned)
        .ok_or_else(|| Failure::new(format!("{} lies in no folder", file.display())))
}
