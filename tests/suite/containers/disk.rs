//! What sessions leave on the disk, and what they do to it: trees that nobody may walk down, clearing that
//! delays nobody, and a disk that is kept from being full.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::link::ServerEnd;
use base::observe::Clock;
use node::disk::DiskWatch;
use node::images::ImageDirectory;
use node::runtime::{Runtime, RuntimeName, RuntimePaths, RuntimePhase};
use node::{LocalNode, NodeOptions};
use rules::incident::EnforcementAction;
use rules::messages::{
    Assignment, ContainerOrder, NodeReport, ReportedState, RootFileSystem, Want,
};
use rules::names::NodeId;
use rules::resources::Demand;
use rules::session::SessionKind;

use super::ground::Ground;
use super::images::NoImages;

/// Longer than anything here takes on a loaded machine; only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The depth that ended the server of the landed release.
const DEEP: usize = 25_000;

fn until(what: &str, ready: impl Fn() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !ready() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn below(path: &Path) -> usize {
    fs::read_dir(path).map_or(0, Iterator::count)
}

/// Ends a container and has it forgotten.
fn end(ground: &Ground, name: &RuntimeName) {
    ground.runtime.kill(name).expect("it lives");
    ground.ended(name);
    until("its supervisor leaves", || {
        ground.runtime.forget(name).is_ok()
    });
}

/// As a session leaves it: a chain of directories, one in the other.
fn chain(root: &Path, depth: usize) {
    fs::create_dir(root).expect("made");
    let mut here = fs::File::open(root).expect("opened");
    for _ in 0..depth {
        let next = format!("/proc/self/fd/{}/d", here.as_raw_fd());
        fs::create_dir(&next).expect("made");
        here = fs::File::open(&next).expect("opened");
    }
}

#[test]
fn a_session_that_leaves_a_very_deep_tree_ends_nobody_but_itself() {
    let Some(mut ground) =
        Ground::lay("a_session_that_leaves_a_very_deep_tree_ends_nobody_but_itself")
    else {
        return;
    };
    let name = ground.start(&ground.shell("sleep 1000"));
    ground.running(&name);
    chain(&ground.runtime.own_files(&name).join("upper/deep"), DEEP);
    ground.runtime.kill(&name).expect("it lives");
    ground.ended(&name);
    // The next server finds it and forgets it too.
    ground.crash();
    ground.reopen();
    until("it is forgotten", || ground.runtime.forget(&name).is_ok());
    let data = ground.directory.path().join("data");
    assert_eq!(below(&data.join("containers")), 0);
    until("its tree is gone", || below(&data.join("trash")) == 0);
}

#[test]
fn clearing_after_a_session_delays_no_neighbour() {
    /// Enough that removing them takes far longer than all that is done meanwhile.
    const FILES: usize = 10_000;
    let Some(ground) = Ground::lay("clearing_after_a_session_delays_no_neighbour") else {
        return;
    };
    let wasteful = ground.start(&ground.shell("sleep 1000"));
    ground.running(&wasteful);
    let waste = ground.runtime.own_files(&wasteful).join("upper/waste");
    for folder in 0..FILES / 1000 {
        let folder = waste.join(folder.to_string());
        fs::create_dir_all(&folder).expect("made");
        for file in 0..1000 {
            fs::write(folder.join(file.to_string()), "x").expect("written");
        }
    }
    end(&ground, &wasteful);
    let trash = ground.directory.path().join("data/trash");
    assert_eq!(below(&trash), 1, "it is forgotten before it is removed");
    assert!(!ground.runtime.own_files(&wasteful).exists());
    until("it is removed", || below(&trash) == 0);
}

/// A small disk of its own, unmounted and removed at the end.
struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    /// A disk of so many MiB and names; nothing where none can be made, after saying so.
    fn make(test: &str, mib: u64, names: u64) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a directory");
        let image = folder.path().join("image");
        let file = fs::File::create(&image).expect("made");
        file.set_len(mib << 20).expect("room");
        let disk = Self { folder };
        fs::create_dir(disk.at()).expect("made");
        let mut format = Command::new("mkfs.ext4");
        format.args(["-q", "-F", "-m", "0", "-N", &names.to_string()]);
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop"]).arg(&image).arg(disk.at());
        for mut step in [(format, Some(&image)), (mount, None)] {
            let done = step.0.args(step.1.as_slice()).output();
            match done {
                Ok(done) if done.status.success() => {}
                Ok(done) => {
                    skips::skip(test, String::from_utf8_lossy(&done.stderr).trim());
                    return None;
                }
                Err(error) => {
                    skips::skip(test, &error.to_string());
                    return None;
                }
            }
        }
        Some(disk)
    }

    fn at(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    /// Free bytes and names.
    fn free(&self) -> (u64, u64) {
        let found = nix::sys::statvfs::statvfs(&self.at()).expect("mounted");
        (
            found.blocks_available() * found.fragment_size(),
            found.files_available(),
        )
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Not mounted where it was skipped.
        let _ = Command::new("umount").arg("-l").arg(self.at()).output();
    }
}

fn watch(ground: &Ground) -> DiskWatch {
    let record = ground.directory.path().join("disk.json");
    let runtime = Arc::clone(&ground.runtime);
    DiskWatch::begin(runtime, Clock::system(), &record, || {}).expect("a thread")
}

fn is_paused(ground: &Ground, name: &RuntimeName) -> bool {
    matches!(
        ground.standing(name),
        RuntimePhase::Running { paused: true, .. }
    )
}

/// A session with a name as the product gives them, which incidents need.
fn session(ground: &Ground, number: u32, script: &str) -> RuntimeName {
    let mut order = ground.shell(script);
    let name = format!("{number:032x}-1");
    order.name = RuntimeName::parse(&name).expect("a plain name");
    ground.start(&order)
}

fn answers(watch: &DiskWatch) -> Vec<EnforcementAction> {
    watch.incidents().iter().map(|each| each.answer).collect()
}

/// Promise (Disk, backup and upgrade): A session that fills the disk is paused before the node's disk reserve
/// is used, and continues when there is room. Space taken by one `fallocate` between two measurements is
/// noticed afterwards.
#[test]
fn a_session_that_fills_the_disk_is_paused_and_goes_on_when_there_is_room() {
    const NAME: &str = "a_session_that_fills_the_disk_is_paused_and_goes_on_when_there_is_room";
    let Some(disk) = SmallDisk::make(NAME, 320, 20_000) else {
        return;
    };
    let Some(ground) = Ground::lay_in(NAME, &disk.at()) else {
        return;
    };
    let ballast = ground.directory.path().join("ballast");
    fs::write(&ballast, vec![7; 80 << 20]).expect("written");
    let first_watch = watch(&ground);
    let quiet = session(
        &ground,
        1,
        "echo x > /home/work/mine; while :; do sleep 0.1; done",
    );
    let greedy = session(
        &ground,
        2,
        "trap '' TERM; cd /home/work; i=0; while :; do i=$((i+1)); head -c 2000000 /dev/zero > $i; sleep 0.05; done",
    );
    ground.running(&quiet);
    ground.running(&greedy);
    until("it is paused", || is_paused(&ground, &greedy));
    let record = ground.directory.path().join("disk.json");
    until("it is written down", || {
        fs::read_to_string(&record).is_ok_and(|text| text.contains("disk"))
    });
    assert!(first_watch.holds(&greedy) && !first_watch.holds(&quiet));
    assert!(!is_paused(&ground, &quiet), "it did not grow");
    let (left, _) = disk.free();
    assert!(left > 8 << 20, "{left} bytes are left for everybody else");
    let told = first_watch.incidents();
    assert_eq!(answers(&first_watch), [EnforcementAction::Paused]);
    assert_eq!(told[0].container.to_string(), greedy.as_str());
    assert_eq!(told[0].reason().code, "disk.paused");
    // The next server knows it too.
    drop(first_watch);
    let watch = watch(&ground);
    assert!(watch.holds(&greedy));
    assert_eq!(watch.incidents(), told);
    // Somebody makes room: then it may go on, and whoever lets it go on finds it where it stood.
    fs::remove_file(&ballast).expect("removed");
    until("it may go on", || !watch.holds(&greedy));
    assert_eq!(
        answers(&watch),
        [EnforcementAction::Paused, EnforcementAction::Resumed]
    );
    ground.runtime.resume(&greedy).expect("it goes on");
    until("it is paused again", || is_paused(&ground, &greedy));
    assert!(watch.holds(&greedy) && !is_paused(&ground, &quiet));
    // Told to end, it goes on, and must not fill the disk instead.
    ground
        .runtime
        .stop(&greedy, Duration::from_secs(600))
        .expect("asked");
    until("it stands still", || ground.runtime.stands_still(&greedy));
    assert!(disk.free().0 > 8 << 20, "{:?}", disk.free());
    // What stands still is ended all the same, and gives back what it wrote.
    ground.runtime.kill(&greedy).expect("asked");
    assert_eq!(ground.ended(&greedy).code, 137);
    until("it is forgotten", || ground.runtime.forget(&greedy).is_ok());
    watch.forget(&greedy);
    assert!(watch.incidents().is_empty() && !watch.holds(&greedy));
    until("there is room", || disk.free().0 > 200 << 20);
}

/// Proves too: `a_session_that_fills_the_disk_is_paused_and_goes_on_when_there_is_room`
#[test]
fn a_session_that_makes_files_without_end_is_paused() {
    const NAME: &str = "a_session_that_makes_files_without_end_is_paused";
    let Some(disk) = SmallDisk::make(NAME, 256, 8000) else {
        return;
    };
    let Some(ground) = Ground::lay_in(NAME, &disk.at()) else {
        return;
    };
    let watch = watch(&ground);
    let greedy = session(
        &ground,
        1,
        "cd /home/work; i=0; while :; do i=$((i+1)); : > $i; [ $((i%20)) = 0 ] && sleep 0.02; done",
    );
    ground.running(&greedy);
    until("it is paused", || is_paused(&ground, &greedy));
    until("it is told", || !watch.incidents().is_empty());
    assert!(watch.holds(&greedy));
    assert_eq!(watch.incidents()[0].reason().code, "disk.files-paused");
    let (bytes, names) = disk.free();
    assert!(
        names > 200 && bytes > 100 << 20,
        "{names} names, {bytes} bytes are left"
    );
    ground.runtime.kill(&greedy).expect("it lives");
    assert_eq!(ground.ended(&greedy).code, 137);
}

/// What lies in a folder is in none of a session's own layers, and reserved space is in no byte that was written.
///
/// Proves too: `a_session_that_fills_the_disk_is_paused_and_goes_on_when_there_is_room`
#[test]
fn a_session_that_fills_the_disk_by_a_folder_is_paused() {
    const NAME: &str = "a_session_that_fills_the_disk_by_a_folder_is_paused";
    for takes in [
        "i=0; while :; do i=$((i+1)); fallocate -l 2M /data/$i; sleep 0.1; done",
        "i=0; while :; do i=$((i+1)); : > /data/$i; [ $((i%20)) = 0 ] && sleep 0.02; done",
    ] {
        let Some(disk) = SmallDisk::make(NAME, 256, 8000) else {
            return;
        };
        let Some(ground) = Ground::lay_in(NAME, &disk.at()) else {
            return;
        };
        let folder = ground.directory.path().join("folder");
        fs::create_dir(&folder).expect("made");
        let watch = watch(&ground);
        let quiet = session(&ground, 1, "while :; do sleep 0.1; done");
        let mut order = ground.shell(takes);
        order.name = RuntimeName::parse(&format!("{:032x}-1", 2)).expect("a plain name");
        order.mounts = vec![node::runtime::MountOrder {
            from: folder,
            subpath: String::new(),
            at: "/data".into(),
            read_only: false,
            ..node::runtime::MountOrder::default()
        }];
        let greedy = ground.start(&order);
        ground.running(&quiet);
        ground.running(&greedy);
        until("it is paused", || is_paused(&ground, &greedy));
        until("it is told", || !watch.incidents().is_empty());
        assert!(watch.holds(&greedy) && !watch.holds(&quiet), "{takes}");
        ground.runtime.kill(&greedy).expect("it lives");
        assert_eq!(ground.ended(&greedy).code, 137);
    }
}

/// No name, no byte that is counted as written: space that is only reserved, and space that was written by
/// processes whose end was never asked for.
#[test]
fn a_session_that_fills_the_disk_by_a_file_without_a_name_is_paused() {
    const NAME: &str = "a_session_that_fills_the_disk_by_a_file_without_a_name_is_paused";
    const OPENED: &str = "cd /home/work; exec 3> f; rm f; i=0; ";
    for takes in [
        "while :; do i=$((i+2)); fallocate -l ${i}M /proc/self/fd/3; sleep 0.2; done",
        "while :; do (trap '' CHLD; head -c 4000000 /dev/zero >&3 & exec sleep 0.2); done",
    ] {
        let Some(disk) = SmallDisk::make(NAME, 256, 20_000) else {
            return;
        };
        let Some(ground) = Ground::lay_in(NAME, &disk.at()) else {
            return;
        };
        let ballast = ground.directory.path().join("ballast");
        fs::write(ballast, vec![7; 80 << 20]).expect("written");
        let watch = watch(&ground);
        let quiet = session(
            &ground,
            1,
            "echo x > /home/work/mine; while :; do sleep 0.1; done",
        );
        let greedy = session(&ground, 2, &format!("{OPENED}{takes}"));
        ground.running(&quiet);
        ground.running(&greedy);
        until("it is paused", || is_paused(&ground, &greedy));
        until("it is told", || !watch.incidents().is_empty());
        let told = watch.incidents();
        assert_eq!(told[0].container.to_string(), greedy.as_str(), "{takes}");
        assert!(told[0].held.0 > 32 << 20, "{takes}: {told:?}");
        assert!(!is_paused(&ground, &quiet), "it did not grow");
        let (left, _) = disk.free();
        assert!(left > 8 << 20, "{left} bytes are left for everybody else");
        ground.runtime.kill(&greedy).expect("it lives");
        assert_eq!(ground.ended(&greedy).code, 137);
    }
}

/// Waits for a report that shows it.
async fn heard(
    link: &mut ServerEnd,
    what: &str,
    shows: impl Fn(&NodeReport) -> bool,
) -> Arc<NodeReport> {
    let end = Instant::now() + TIMEOUT;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let report = tokio::time::timeout(left, link.report()).await;
        let report = report.unwrap_or_else(|_| panic!("never: {what}"));
        let report = report.expect("the machine is there");
        if shows(&report) {
            return report;
        }
    }
}

fn stands_still(report: &NodeReport) -> bool {
    report
        .containers
        .iter()
        .any(|each| matches!(each.state, ReportedState::Running { paused: true, .. }))
}

/// Proves too: `a_session_that_fills_the_disk_is_paused_and_goes_on_when_there_is_room`
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_tells_who_is_paused_for_the_disk_and_lets_it_go_on_by_itself() {
    const NAME: &str = "a_machine_tells_who_is_paused_for_the_disk_and_lets_it_go_on_by_itself";
    let Some(disk) = SmallDisk::make(NAME, 256, 20_000) else {
        return;
    };
    let at = |name: &str| disk.at().join(name);
    let places = RuntimePaths {
        data: at("data"),
        run: at("run"),
        shim_binary: env!("CARGO_BIN_EXE_fardel").into(),
    };
    let options = NodeOptions {
        id: NodeId(uuid::Uuid::from_u128(1)),
        places: places.clone(),
        images: ImageDirectory::Own(at("images")),
        host_environment: true,
        cpu: None,
        memory: None,
        devices: Vec::new(),
        driver_root: at("no-driver"),
        gpu_mode: node::gpu::arbiter::Mode::Hard,
        keep_days: 1,
    };
    let machine = LocalNode::open(options, Arc::new(NoImages), Clock::system()).expect("it opens");
    let mut findings = machine.findings().iter();
    if let Some(finding) = findings.find(|finding| finding.prevents_containers) {
        skips::skip(NAME, &finding.what);
        return;
    }
    let ballast = at("ballast");
    fs::write(&ballast, vec![7; 80 << 20]).expect("written");
    let (mut link, theirs) = base::link::local();
    let runs = tokio::spawn(machine.run(theirs));
    let script =
        "cd /home/work; while :; do i=$((i+1)); head -c 2000000 /dev/zero > $i; sleep 0.05; done";
    let order = ContainerOrder {
        name: format!("{:032x}-1", 7).parse().expect("a name"),
        hostname: "greedy".into(),
        kind: SessionKind::Batch,
        root: RootFileSystem::Host,
        command: ["sh", "-c", script].map(str::to_owned).to_vec(),
        env: Default::default(),
        demand: Demand::default(),
        devices: Vec::new(),
        mounts: Vec::new(),
        networks: Vec::new(),
        egress: None,
        sudo: false,
        ulimits: rules::process_limits::ProcessLimits::USUAL,
        want: Want::Run,
        stop_grace_seconds: None,
        start_up: rules::start_up::StartUp::default(),
    };
    let assign = |generation, containers| Assignment {
        node: NodeId(uuid::Uuid::from_u128(1)),
        generation,
        containers,
        partitions: Vec::new(),
        state: None,
        accepted: false,
    };
    link.send(assign(1, vec![order.clone()]));
    let told = heard(&mut link, "it is paused", |report| {
        stands_still(report) && !report.incidents.is_empty()
    });
    let told = told.await;
    assert_eq!(told.incidents[0].answer, EnforcementAction::Paused);
    assert_eq!(told.incidents[0].reason().code, "disk.paused");
    // It is wanted to run all the while: that does not let it go on.
    link.send(assign(2, vec![order]));
    let wanted = heard(&mut link, "it is wanted again", |r| r.generation == 2);
    assert!(stands_still(&*wanted.await));
    let later = heard(&mut link, "a later report", |_| true).await;
    assert!(stands_still(&later) && later.incidents.len() == 1);
    fs::remove_file(&ballast).expect("removed");
    heard(&mut link, "it goes on", |report| {
        let answers: Vec<EnforcementAction> =
            report.incidents.iter().map(|each| each.answer).collect();
        // It may have filled the disk once more before this was heard.
        answers.starts_with(&[EnforcementAction::Paused, EnforcementAction::Resumed])
            && (answers.len() > 2 || !stands_still(report))
    })
    .await;
    link.send(assign(3, Vec::new()));
    heard(&mut link, "it is gone", |report| {
        report.containers.is_empty()
    })
    .await;
    drop(link);
    runs.await.expect("no panic").expect("it ran");
    let runtime = Runtime::open(places).expect("it opens");
    end_fork_server(runtime.instance_id());
    runtime.retire();
}

/// Ends the fork server of a machine that is no more; it would leave with this process only.
pub(super) fn end_fork_server(instance_id: &str) {
    let group = format!("/fardel/{instance_id}/shims");
    let processes = fs::read_dir("/proc").expect("a list").flatten();
    for process in processes {
        let Ok(pid) = process.file_name().to_string_lossy().parse::<i32>() else {
            continue;
        };
        let groups = fs::read_to_string(process.path().join("cgroup")).unwrap_or_default();
        if groups.lines().any(|line| line.ends_with(&group)) {
            // SAFETY: seen a moment ago to be a fork server of this test's own machine.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }
}
