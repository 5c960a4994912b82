//! The test machine: a Debian with a real systemd and cgroup v2 in a virtual machine that needs no
//! hardware help. `cargo ci vm run SCRIPT` starts it, runs the script inside as root, prints what the
//! script says and ends with its code. Never a measure of speed: the guest has one slow processor, and
//! neither cpuset nor pressure figures. With `--in qemu` the same root runs under Debian's
//! own kernel on a computed machine that has several processors and the other two, and is slower still.
//!
//! The script finds its arguments in `$@`, `/mnt/bed` to write to (what it leaves in `/mnt/bed/out`
//! comes back with `--out`), and every `--share NAME=FOLDER` read-only in `/mnt/NAME`. Its disk is an
//! ext4 of its own, 16 GB wide; with `--disk NAME` it is kept for the next run of the same name. The
//! guest has no network but loopback. To run the test binaries of a debug build inside:
//!
//! ```text
//! cargo ci vm run --memory 2048 --share tests=target/x86_64-unknown-linux-gnu/debug/deps SCRIPT
//! ```

mod airgap;
mod folder_limits;
mod guest;
mod machine;
mod network;
mod order;
mod pool;
mod power_cut;
mod qemu;
mod qemu_kernel;
mod qemu_processors;
mod random;
mod restore;
mod root;
mod stick;
pub(crate) mod suite;
mod trouble;
mod upgrade;
mod vm_cluster;
mod vm_cluster_network;
mod volumes;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use machine::{Machine, Said};
use order::{Emulated, Hardware, Order};
use root::Root;
use upgrade::Packages;

use crate::failure::Failure;
use crate::program::{self, Program};
use crate::stage::{self, Gate};

pub(crate) const USAGE: &str = "\
usage: cargo ci vm root [--suite NAME]
       cargo ci vm suite [--in qemu]
       cargo ci vm run [--in qemu [--cpus NUMBER] [--uefi]] [--disk NAME] [--memory MIB]
                        [--limit SECONDS] [--share NAME=FOLDER]... [--out FOLDER]
                        [--suite NAME] SCRIPT [ARGUMENT]...
       cargo ci vm upgrade [--binary FILE]
       cargo ci vm airgap [--suite NAME] [--binary FILE]
       cargo ci vm restore [--binary FILE]
       cargo ci vm trouble [--binary FILE]
       cargo ci vm volumes [--binary FILE]
       cargo ci vm pool [--binary FILE]
       cargo ci vm folder-limits
       cargo ci vm network [--binary FILE]
       cargo ci vm processors [--binary FILE]
       cargo ci vm cluster [--nodes NUMBER] [--memory MIB] [--limit SECONDS] [--share NAME=FOLDER]...
                         [SCRIPT [ARGUMENT]...]
       cargo ci vm power-cut [--cuts NUMBER] [--seed NUMBER] [--binary FILE]
  root      make the guest's root file system, or say where it is
  suite     the runtime's tests on cgroup v2; with --in qemu under Debian's own kernel
  upgrade   the package's whole life; a session lives through it until the removal
  airgap    set up by a browser, an environment from a stick, upgraded under forty open notebooks; nothing tries
            to leave the machine
  processors  shares, sets of processors and pressure under Debian's own kernel (in QEMU)
  restore   one guest is lost, another takes its place; 10,000 users and a million events
  trouble   full disk, broken settings, taken port, foreign state, NFS, wrong clock, under the real units
  volumes   a file server is gone for ten minutes: only the sessions on its share wait; p99 of its pages
            beside that before and after
  pool      writes into a folder in the pool beside the same on the disk below it: figures on one line
  folder-limits  two users at 1 GiB each, held by the quota of the disk and then in a pool; the debug build
  network   another address by the console, taken back by itself unless it is kept
  power-cut the power goes, again and again; nothing acknowledged may be lost
  run       boot, run SCRIPT inside as root, and end with its code
  cluster   boot three machines on one wire and run SCRIPT in each; without one, a trial in which a
            cable is cut and the power goes
  --in qemu under Debian's own kernel, on a computed machine: twenty times slower, with two
            processors or as many as --cpus says, and with --uefi begun by firmware
  --disk    keep what is written under this name, and begin where the last run of it ended
  --memory  of the guest, in MiB; 1024 unless given
  --limit   kill the guest after so many seconds, however busy; 1800 unless given
  --share   show a folder of this machine read-only in /mnt/NAME
  --out     where to copy what the script left in /mnt/bed/out
  --suite   bookworm (Debian 12), or trixie (Debian 13); bookworm unless given
  --binary  the product to pack; the release build unless given";

/// Exit code when this machine cannot run the vm; the reason is printed. (EX_UNAVAILABLE.)
const LEFT_OUT: u8 = 69;

/// What `cargo ci vm run` was asked.
#[derive(Debug, Default, PartialEq)]
struct Request {
    /// None: User-Mode Linux.
    emulated: Option<Wanted>,
    suite: Option<&'static str>,
    disk: Option<String>,
    memory_mib: Option<u64>,
    limit: Option<Duration>,
    shares: Vec<(String, PathBuf)>,
    out: Option<PathBuf>,
    script: PathBuf,
    arguments: Vec<String>,
}

/// The computed machine that was asked for.
#[derive(Debug, PartialEq)]
struct Wanted {
    processors: u32,
    firmware: bool,
}

/// Does what `cargo ci vm …` asks and gives the exit code. `came_from` is where relative paths begin.
pub(crate) fn command(words: &[&str], came_from: &Path) -> Result<u8, Failure> {
    let Some(verb) = verb(words, came_from) else {
        eprintln!("{USAGE}");
        return Ok(2);
    };
    let reason = match &verb {
        Verb::Run(Request {
            emulated: Some(wanted),
            ..
        }) => qemu::missing(wanted.firmware),
        Verb::Trial(Trial {
            kind: Kind::Processors,
            ..
        }) => qemu::missing(false),
        Verb::Suite { emulated: true } => qemu::missing(false),
        Verb::Cluster(_) => vm_cluster::missing(),
        _ => missing(),
    };
    if let Some(reason) = reason {
        crate::leave_out("vm", &reason)?;
        return Ok(LEFT_OUT);
    }
    sweep();
    match verb {
        Verb::Root(suite) => {
            println!("{}", Root::of(suite)?.image.display());
            Ok(0)
        }
        Verb::Suite { emulated } => {
            suite::run(&program::built("debug")?, emulated, suite::Extent::Whole).map(|()| 0)
        }
        Verb::FolderLimits => folder_limits::run(&Root::ready()?).map(|()| 0),
        Verb::Run(request) => run(&request),
        Verb::Cluster(options) => vm_cluster::run(&Root::ready()?, &options)
            .map(|code| u8::try_from(code).unwrap_or(u8::MAX)),
        Verb::Trial(trial) => {
            let binary = match &trial.binary {
                Some(binary) => binary.clone(),
                None => program::built("release")?,
            };
            let root = Root::of(trial.suite)?;
            match trial.kind {
                Kind::Upgrade => upgrade::run(&root, &Packages::two(&binary)?)?,
                Kind::Airgap => {
                    let stick = stick::ready(&binary)?;
                    airgap::run(&root, &Packages::two(&binary)?, stick)?;
                }
                Kind::Processors => qemu_processors::run(&root, &Packages::one(&binary)?)?,
                Kind::Restore => {
                    restore::run(&root, &Packages::one(&binary)?, &restore::PROMISED)?;
                }
                Kind::Network => network::run(&root, &Packages::one(&binary)?)?,
                Kind::Trouble => trouble::run(&root, &Packages::two(&binary)?)?,
                Kind::Volumes => {
                    volumes::run(&root, &Packages::one(&binary)?, volumes::PROMISED)?;
                }
                Kind::Pool => pool::run(&root, &Packages::one(&binary)?)?,
                Kind::PowerCut => {
                    power_cut::run(&root, &Packages::one(&binary)?, trial.cuts, trial.seed)?;
                }
            }
            Ok(0)
        }
    }
}

/// The stages of the gate that try the packed product in a guest.
pub(crate) fn stages(gate: &mut Gate, binary: &Path) {
    if let Some(reason) = missing() {
        return gate.stage("vm", || crate::leave_out("the package in the vm", &reason));
    }
    sweep();
    let mut made = None;
    gate.stage("vm: root and packages", || {
        made = Some((Root::ready()?, Packages::two(binary)?));
        Ok(())
    });
    let Some((root, packages)) = made else {
        return;
    };
    let mut stick = None;
    gate.stage("vm: stick", || {
        stick = Some(stick::ready(binary)?);
        Ok(())
    });
    gate.stage("vm: upgrade", || upgrade::run(&root, &packages));
    if let Some(stick) = stick {
        gate.stage("vm: air gap", || airgap::run(&root, &packages, stick));
    }
    let seed = u64::from(std::process::id());
    gate.stage("vm: power cut", || {
        power_cut::run(&root, &packages, 1, seed)
    });
}

/// What the gate of the night adds: the air gap in the newer Debian under its own systemd, all that a lost
/// machine is promised to hold, and all kinds of trouble.
pub(crate) fn nightly(gate: &mut Gate) {
    if let Some(reason) = missing() {
        return gate.stage("vm: the night", || {
            crate::leave_out("the package in the vm", &reason)
        });
    }
    let mut made = None;
    gate.stage("vm: packages of the night", || {
        made = Some(Packages::two(&program::built("release")?)?);
        Ok(())
    });
    let Some(packages) = made else {
        return;
    };
    gate.stage("vm: processors", || match qemu::missing(false) {
        Some(reason) => crate::leave_out("several processors", &reason),
        None => qemu_processors::run(&Root::ready()?, &packages),
    });
    gate.stage("vm: cluster", || match vm_cluster::missing() {
        Some(reason) => crate::leave_out("the cluster", &reason),
        None => vm_cluster::trial(&Root::ready()?),
    });
    gate.stage("vm: air gap in trixie", || {
        let stick = stick::ready(&program::built("release")?)?;
        airgap::run(&Root::of("trixie")?, &packages, stick)
    });
    gate.stage("vm: restore, full size", || {
        restore::run(&Root::ready()?, &packages, &restore::PROMISED)
    });
    gate.stage("vm: network", || network::run(&Root::ready()?, &packages));
    gate.stage("vm: trouble", || trouble::run(&Root::ready()?, &packages));
    gate.stage("vm: volumes", || {
        volumes::run(&Root::ready()?, &packages, volumes::SHORT)
    });
}

/// Two users at 1 GiB each in a guest: as `vm folder-limits`.
pub(crate) fn folder_limits() -> Result<(), Failure> {
    match missing() {
        Some(reason) => crate::leave_out("folders of 1 GiB in the vm", &reason),
        None => folder_limits::run(&Root::ready()?),
    }
}

/// What runs inside a guest; asked for by scripts of scenarios only.
pub(crate) fn guest(words: &[&str]) -> Result<(), Failure> {
    guest::main(words)
}

/// Why this machine cannot run the vm, if so.
pub(crate) fn missing() -> Option<String> {
    root::missing()
}

/// What `cargo ci vm` can do.
#[derive(Debug, PartialEq)]
enum Verb {
    Root(&'static str),
    Suite { emulated: bool },
    FolderLimits,
    Run(Request),
    Cluster(vm_cluster::ClusterOptions),
    Trial(Trial),
}

/// A scenario to be run with the packed product.
#[derive(Debug, PartialEq)]
struct Trial {
    kind: Kind,
    suite: &'static str,
    cuts: u64,
    seed: u64,
    /// The release build unless given.
    binary: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Upgrade,
    Airgap,
    Processors,
    Restore,
    Trouble,
    Volumes,
    Pool,
    Network,
    PowerCut,
}

/// None when the words make no sense.
fn verb(words: &[&str], came_from: &Path) -> Option<Verb> {
    match words {
        ["root"] => Some(Verb::Root(root::SUITE)),
        ["root", "--suite", name] => suite_of(name).map(Verb::Root),
        ["suite"] => Some(Verb::Suite { emulated: false }),
        ["folder-limits"] => Some(Verb::FolderLimits),
        ["suite", "--in", "qemu"] => Some(Verb::Suite { emulated: true }),
        ["run", rest @ ..] => Some(Verb::Run(parsed(rest, came_from)?)),
        ["cluster", rest @ ..] => clustered(rest, came_from).map(Verb::Cluster),
        ["upgrade", rest @ ..] => trial(Kind::Upgrade, rest, came_from).map(Verb::Trial),
        ["airgap", rest @ ..] => trial(Kind::Airgap, rest, came_from).map(Verb::Trial),
        ["processors", rest @ ..] => trial(Kind::Processors, rest, came_from).map(Verb::Trial),
        ["restore", rest @ ..] => trial(Kind::Restore, rest, came_from).map(Verb::Trial),
        ["network", rest @ ..] => trial(Kind::Network, rest, came_from).map(Verb::Trial),
        ["trouble", rest @ ..] => trial(Kind::Trouble, rest, came_from).map(Verb::Trial),
        ["volumes", rest @ ..] => trial(Kind::Volumes, rest, came_from).map(Verb::Trial),
        ["pool", rest @ ..] => trial(Kind::Pool, rest, came_from).map(Verb::Trial),
        ["power-cut", rest @ ..] => trial(Kind::PowerCut, rest, came_from).map(Verb::Trial),
        _ => None,
    }
}

fn trial(kind: Kind, words: &[&str], came_from: &Path) -> Option<Trial> {
    let mut trial = Trial {
        kind,
        suite: root::SUITE,
        cuts: 1,
        seed: u64::from(std::process::id()),
        binary: None,
    };
    for pair in words.chunks(2) {
        match pair {
            ["--cuts", number] if kind == Kind::PowerCut => trial.cuts = number.parse().ok()?,
            ["--seed", number] if kind == Kind::PowerCut => trial.seed = number.parse().ok()?,
            ["--suite", name] => trial.suite = suite_of(name)?,
            ["--binary", file] => trial.binary = Some(came_from.join(file)),
            _ => return None,
        }
    }
    Some(trial)
}

fn clustered(words: &[&str], came_from: &Path) -> Option<vm_cluster::ClusterOptions> {
    let mut options = vm_cluster::ClusterOptions::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            // Addresses have one byte for it, and three is what the cluster was made for.
            "--nodes" => {
                options.nodes = words
                    .next()?
                    .parse()
                    .ok()
                    .filter(|n| (1..=16).contains(n))?;
            }
            "--memory" => options.memory_mib = words.next()?.parse().ok()?,
            "--limit" => options.limit = Some(Duration::from_secs(words.next()?.parse().ok()?)),
            "--share" => options.shares.push(share(words.next()?, came_from)?),
            flag if flag.starts_with('-') => return None,
            script => {
                options.script = Some(came_from.join(script));
                options.arguments = words.by_ref().map(|word| (*word).to_owned()).collect();
            }
        }
    }
    Some(options)
}

/// `NAME=FOLDER`.
fn share(word: &str, came_from: &Path) -> Option<(String, PathBuf)> {
    let (name, path) = word.split_once('=')?;
    Some((name.to_owned(), came_from.join(path)))
}

/// One of those that a root can be made of.
fn suite_of(name: &str) -> Option<&'static str> {
    root::SUITES.into_iter().find(|suite| *suite == name)
}

fn parsed(words: &[&str], came_from: &Path) -> Option<Request> {
    let mut request = Request::default();
    let mut words = words.iter();
    loop {
        match *words.next()? {
            "--in" => match *words.next()? {
                "qemu" if request.emulated.is_none() => {
                    request.emulated = Some(Wanted {
                        processors: 2,
                        firmware: false,
                    });
                }
                _ => return None,
            },
            "--cpus" => request.emulated.as_mut()?.processors = words.next()?.parse().ok()?,
            "--uefi" => request.emulated.as_mut()?.firmware = true,
            "--disk" => request.disk = Some((*words.next()?).to_owned()),
            "--memory" => request.memory_mib = Some(words.next()?.parse().ok()?),
            "--limit" => {
                request.limit = Some(Duration::from_secs(words.next()?.parse().ok()?));
            }
            "--share" => request.shares.push(share(words.next()?, came_from)?),
            "--suite" => request.suite = Some(suite_of(words.next()?)?),
            "--out" => request.out = Some(came_from.join(words.next()?)),
            flag if flag.starts_with('-') => return None,
            script => {
                request.script = came_from.join(script);
                request.arguments = words.map(|word| (*word).to_owned()).collect();
                return Some(request);
            }
        }
    }
}

fn run(request: &Request) -> Result<u8, Failure> {
    let script = fs::read_to_string(&request.script)
        .map_err(|error| Failure::new(format!("{}: {error}", request.script.display())))?;
    let root = Root::of(request.suite.unwrap_or(root::SUITE))?;
    let mut order = Order::new(&root, &script);
    if let Some(wanted) = &request.emulated {
        order.hardware = Hardware::Emulated(Emulated::ready(wanted.processors, wanted.firmware)?);
        order.patience = qemu::BOOT_TIMEOUT;
    }
    if let Some(name) = &request.disk {
        // The two beds keep disks of different kinds.
        let own = match request.emulated {
            Some(_) => format!("{name}-qemu"),
            None => name.clone(),
        };
        order.disk = Some(root.disk(&own)?);
    }
    order.memory_mib = request.memory_mib.unwrap_or(order.memory_mib);
    order.limit = request.limit.unwrap_or(order.limit);
    order.shares.clone_from(&request.shares);
    order.arguments.clone_from(&request.arguments);
    let code = run_to_the_end(&order, request.out.as_deref())?;
    Ok(u8::try_from(code).unwrap_or(u8::MAX))
}

/// Boots, prints what the script says, waits for its end and gives its code.
fn run_to_the_end(order: &Order<'_>, out: Option<&Path>) -> Result<i32, Failure> {
    run_with_figures(order, out).map(|(code, _)| code)
}

/// The same; gives the last line that was an object of JSON besides, which is null where there was none.
fn run_with_figures(order: &Order<'_>, out: Option<&Path>) -> Result<(i32, Value), Failure> {
    let begun = Instant::now();
    let before = stage::children_cpu_seconds();
    let mut machine = Machine::boot(order)?;
    let mut booted = 0.0;
    let mut figures = Value::Null;
    let code = loop {
        match machine.hear()? {
            Said::Booted(seconds) => booted = seconds,
            Said::Line(line) => {
                println!("{line}");
                if let Ok(object @ Value::Object(_)) = serde_json::from_str(&line) {
                    figures = object;
                }
            }
            Said::Ended(code) => break code,
        }
    };
    if let Some(out) = out {
        let left = machine.shared().join("out");
        Program::named("cp")
            .words("-a")
            .argument(&left)
            .argument(out)
            .run()?;
    }
    machine.wait()?;
    println!(
        "vm: up after {booted:.1} s of guest time; {:.1} s and {:.1} CPU seconds in all; code {code}",
        begun.elapsed().as_secs_f64(),
        stage::children_cpu_seconds() - before,
    );
    Ok((code, figures))
}

/// The folder of this program, as a share of a guest: scenarios run it there.
fn own_program() -> Result<(String, PathBuf), Failure> {
    let own = std::env::current_exe()
        .map_err(|error| Failure::new(format!("this program's own file: {error}")))?;
    let folder = own.parent().map(Path::to_owned).unwrap_or_default();
    Ok(("tasks".to_owned(), folder))
}

/// A folder for one run, removed at the end; where memory serves as disk when it has the room.
struct Folder(PathBuf);

/// Begins the name of every folder of the bed; the number behind it is the process that made it.
const PREFIX: &str = "fardel-bed-";

/// The fastest place for what nobody keeps.
const MEMORY: &str = "/dev/shm";

impl Folder {
    fn make(kind: &str, bytes: u64) -> Result<Self, Failure> {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let place = match free_bytes(Path::new(MEMORY)) {
            Some(free) if free >= bytes => PathBuf::from(MEMORY),
            _ => {
                let place = std::env::temp_dir();
                crate::leave_out(
                    "the bed's work in memory",
                    &format!(
                        "{MEMORY} has no {} MiB to spare; {} is slower",
                        bytes >> 20,
                        place.display()
                    ),
                )?;
                place
            }
        };
        let path = place.join(format!("{PREFIX}{}-{kind}-{number}", std::process::id()));
        fs::create_dir_all(&path)
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
        Ok(Self(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }

    /// Removes it and says so when it cannot.
    fn remove(&self) -> Result<(), Failure> {
        let mounts = mounts_in(&self.0);
        if !mounts.is_empty() {
            return Err(Failure::new(format!("mounts are left: {mounts:?}")));
        }
        fs::remove_dir_all(&self.0)
            .map_err(|error| Failure::new(format!("{} stays: {error}", self.0.display())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.0.exists()
            && let Err(failure) = self.remove()
        {
            println!("{failure}");
        }
    }
}

fn free_bytes(path: &Path) -> Option<u64> {
    let room = rustix::fs::statvfs(path).ok()?;
    Some(room.f_bavail * room.f_frsize)
}

/// Processes whose working directory lies in this folder: a guest's kernel starts there, and what it
/// forks stays there.
fn processes_in(folder: &Path) -> Vec<u32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(folder))
        })
        .collect()
}

fn mounts_in(folder: &Path) -> Vec<PathBuf> {
    mounts_listed_in(
        &fs::read_to_string("/proc/self/mountinfo").unwrap_or_default(),
        folder,
    )
}

fn mounts_listed_in(mountinfo: &str, folder: &Path) -> Vec<PathBuf> {
    mountinfo
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(PathBuf::from)
        .filter(|point| point.starts_with(folder))
        .collect()
}

/// Ends and removes what runs of the bed left that were killed themselves.
fn sweep() {
    for place in [PathBuf::from(MEMORY), std::env::temp_dir()] {
        for entry in fs::read_dir(&place).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(maker) = maker(&name.to_string_lossy()) else {
                continue;
            };
            // One that is dead and not yet waited for has no program any more.
            if fs::read_link(format!("/proc/{maker}/exe")).is_ok() {
                continue;
            }
            let folder = entry.path();
            println!("{} was left by a run that was killed", folder.display());
            for pid in processes_in(&folder) {
                if let Some(pid) = i32::try_from(pid)
                    .ok()
                    .and_then(rustix::process::Pid::from_raw)
                {
                    // One that just ended is as good.
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
            }
            drop(Folder(folder));
        }
    }
}

/// The process that made a folder of this name; none for a folder that is not ours.
fn maker(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_and_paths_begin_where_the_caller_stood() {
        let words = [
            "--disk", "box", "--share", "deb=out", "--memory", "2048", "go.sh", "--disk", "x",
        ];
        let request = parsed(&words, Path::new("/here")).expect("it is well formed");
        assert_eq!(request.disk.as_deref(), Some("box"));
        assert_eq!(request.memory_mib, Some(2048));
        assert_eq!(
            request.shares,
            [("deb".to_owned(), PathBuf::from("/here/out"))]
        );
        assert_eq!(request.script, Path::new("/here/go.sh"));
        assert_eq!(request.arguments, ["--disk", "x"]);
    }

    #[test]
    fn a_computed_machine_is_asked_for_before_anything_is_said_of_it() {
        let read = |words: &[&str]| parsed(words, Path::new("/")).map(|request| request.emulated);
        assert_eq!(read(&["go.sh"]), Some(None));
        let wanted = |processors, firmware| {
            Some(Some(Wanted {
                processors,
                firmware,
            }))
        };
        assert_eq!(read(&["--in", "qemu", "go.sh"]), wanted(2, false));
        let all = ["--in", "qemu", "--cpus", "4", "--uefi", "go.sh"];
        assert_eq!(read(&all), wanted(4, true));
        assert_eq!(read(&["--cpus", "4", "--in", "qemu", "go.sh"]), None);
        assert_eq!(read(&["--uefi", "go.sh"]), None);
        assert_eq!(read(&["--in", "kvm", "go.sh"]), None);
    }

    #[test]
    fn a_rack_has_three_nodes_unless_said_and_a_trial_of_its_own() {
        let read = |words: &[&str]| clustered(words, Path::new("/here"));
        assert_eq!(read(&[]), Some(vm_cluster::ClusterOptions::default()));
        let options = read(&["--nodes", "2", "go.sh", "--memory"]).expect("it is well formed");
        assert_eq!((options.nodes, options.memory_mib), (2, 512));
        assert_eq!(options.script, Some(PathBuf::from("/here/go.sh")));
        assert_eq!(options.arguments, ["--memory"]);
        assert_eq!(read(&["--nodes", "0"]), None);
        assert_eq!(read(&["--nodes"]), None);
        assert_eq!(read(&["--uefi"]), None);
    }

    #[test]
    fn a_request_without_script_or_with_an_unknown_flag_is_none() {
        for words in [
            &["--disk", "box"][..],
            &["--shear", "a=b", "go.sh"],
            &["--share", "a", "go.sh"],
            &["--memory", "much", "go.sh"],
            &[],
        ] {
            assert_eq!(parsed(words, Path::new("/")), None, "{words:?}");
        }
    }

    #[test]
    fn the_number_of_cuts_and_their_seed_are_read() {
        let read = |words: &[&str]| verb(words, Path::new("/"));
        assert_eq!(
            read(&["power-cut", "--cuts", "60", "--seed", "7"]),
            Some(Verb::Trial(Trial {
                kind: Kind::PowerCut,
                suite: "bookworm",
                cuts: 60,
                seed: 7,
                binary: None
            }))
        );
        assert_eq!(read(&["power-cut", "--cuts"]), None);
        assert_eq!(read(&["power-cut", "--cats", "1"]), None);
        assert_eq!(read(&["upgrade", "--cuts", "1"]), None);
        assert_eq!(read(&["power"]), None);
        assert_eq!(
            read(&["root", "--suite", "trixie"]),
            Some(Verb::Root("trixie"))
        );
        assert_eq!(read(&["airgap", "--suite", "sid"]), None);
    }

    #[test]
    fn only_folders_of_the_bed_are_swept() {
        assert_eq!(maker("fardel-bed-123-guest-0"), Some(123));
        assert_eq!(maker("fardel-bed-try"), None);
        assert_eq!(maker("fardel-gate-123"), None);
    }

    #[test]
    fn mounts_in_a_folder_are_found() {
        let mountinfo = "\
22 1 254:0 / / rw - ext4 /dev/vda rw
30 22 0:5 / /dev/shm/fardel-bed-1-root-0/tree/proc rw - proc proc rw
31 22 0:5 / /dev/shm/fardel-bed-11 rw - tmpfs tmpfs rw
";
        assert_eq!(
            mounts_listed_in(mountinfo, Path::new("/dev/shm/fardel-bed-1-root-0")),
            [PathBuf::from("/dev/shm/fardel-bed-1-root-0/tree/proc")]
        );
    }
}
