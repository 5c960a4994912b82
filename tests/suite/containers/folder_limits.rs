//! Folders of two users on one machine, each held to its limit by the kernel: a session writes up to it, its neighbour goes on,
//! and who is at the limit starts a session and makes room.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::link::ServerEnd;
use base::observe::Clock;
use node::images::ImageDirectory;
use node::runtime::{Runtime, RuntimePaths};
use node::{LocalNode, NodeOptions};
use rules::messages::{Assignment, ContainerOrder, MountSpec, ReportedState, RootFileSystem, Want};
use rules::names::{ContainerName, FolderId, NodeId, UserId};
use rules::resources::Demand;
use rules::session::SessionKind;
use rules::storage::{MIN_POOL, PoolSetting, StorageEnforcement};
use rules::units::Bytes;
use store::folders::{FolderLimit, FolderStore};
use uuid::Uuid;

use super::disk::end_fork_server;
use super::images::NoImages;

/// Longer than anything here takes on a loaded machine; only a hang reaches it.
pub(super) const TIMEOUT: Duration = Duration::from_secs(120);
const NODE: NodeId = NodeId(Uuid::from_u128(1));
const LIMIT: Bytes = Bytes::mib(64);
/// How each script ends that found everything as it should be: no failure of a program gives it.
const WELL: i32 = 77;

/// Lets go of everything that is mounted below a directory, however the test ends.
pub(super) struct UnmountedBelow(pub(super) PathBuf);

impl Drop for UnmountedBelow {
    fn drop(&mut self) {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let all = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        for at in all.map(Path::new).filter(|at| at.starts_with(&self.0)) {
            let _ = nix::mount::umount2(at, nix::mount::MntFlags::MNT_DETACH);
        }
    }
}

pub(super) fn session(number: u128, folder: FolderId, script: &str) -> ContainerOrder {
    ContainerOrder {
        name: format!("{number:032x}-1").parse().expect("a name"),
        hostname: "box".into(),
        kind: SessionKind::Batch,
        root: RootFileSystem::Host,
        command: ["sh", "-c", script].map(str::to_owned).to_vec(),
        env: Default::default(),
        demand: Demand::default(),
        devices: Vec::new(),
        mounts: vec![MountSpec {
            folder,
            subpath: String::new(),
            at: "/data".to_owned(),
            read_only: false,
            by_itself: false,
            mapped: None,
            detached: false,
        }],
        networks: Vec::new(),
        egress: None,
        sudo: false,
        ulimits: rules::process_limits::ProcessLimits::USUAL,
        want: Want::Run,
        stop_grace_seconds: None,
        start_up: rules::start_up::StartUp::default(),
    }
}

pub(super) fn assign(generation: u64, containers: Vec<ContainerOrder>) -> Assignment {
    Assignment {
        node: NODE,
        generation,
        containers,
        partitions: Vec::new(),
        state: None,
        accepted: false,
    }
}

/// How a container ended, once it has; a sentence where it never ran.
pub(super) async fn ended(link: &mut ServerEnd, name: ContainerName) -> Result<i32, String> {
    let end = Instant::now() + TIMEOUT;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let report = tokio::time::timeout(left, link.report()).await;
        let report = report.unwrap_or_else(|_| panic!("{name} never ended"));
        let report = report.expect("the machine is there");
        let mut all = report.containers.iter();
        match all.find(|each| each.name == name).map(|each| &each.state) {
            Some(ReportedState::Ended(record)) => return Ok(record.exit_code),
            Some(ReportedState::Refused { reason } | ReportedState::Lost { reason }) => {
                return Err(reason.text.clone());
            }
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_two_users_write_up_to_the_limit_of_their_own_folders() {
    const NAME: &str = "sessions_of_two_users_write_up_to_the_limit_of_their_own_folders";
    two_users_write(NAME, PoolSetting::Never).await;
}

/// The same where all folders lie in one file system.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_two_users_write_up_to_their_limit_in_a_pool() {
    const NAME: &str = "sessions_of_two_users_write_up_to_their_limit_in_a_pool";
    two_users_write(NAME, PoolSetting::Size(MIN_POOL)).await;
}

async fn two_users_write(test: &str, pool: PoolSetting) {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().canonicalize().expect("there");
    let _mounts = UnmountedBelow(place);
    let at = |name: &str| directory.path().join(name);
    let places = RuntimePaths {
        data: at("data"),
        run: at("run"),
        shim_binary: env!("CARGO_BIN_EXE_fardel").into(),
    };
    let options = NodeOptions {
        id: NODE,
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
        return skips::skip(test, &finding.what);
    }
    machine.set_pool(pool);
    let keeper = machine.scopes();
    match (keeper.enforcement(), pool) {
        (StorageEnforcement::Counted, _) => {
            return skips::skip(test, "this machine holds no limit of folders");
        }
        (StorageEnforcement::Pool, _) | (_, PoolSetting::Never) => {}
        _ => return skips::skip(test, "no pool can be held here"),
    }
    let folders = FolderStore::limited(&places.data, keeper).expect("a store");
    let [kim, lee] = [1, 2].map(|number| {
        let folder = FolderId(Uuid::from_u128(number));
        let limit = FolderLimit {
            owner: UserId(Uuid::from_u128(100 + number)).into(),
            bytes: LIMIT,
        };
        folders.create(folder, false, Some(limit)).expect("made");
        folder
    });
    let (mut link, theirs) = base::link::local();
    let runs = tokio::spawn(machine.run(theirs));
    let fills = session(
        1,
        kim,
        "head -c 200000000 /dev/zero > /data/big && exit 3
        size=$(stat -c %s /data/big)
        [ $size -le 67108864 ] && [ $size -ge 66000000 ] || exit 4
        [ $(df -B1 --output=size /data | tail -n 1) -le 67108864 ] || exit 5
        exit 77",
    );
    let neighbour = session(2, lee, "head -c 30000000 /dev/zero > /data/mine && exit 77");
    link.send(assign(1, vec![fills.clone(), neighbour.clone()]));
    assert_eq!(ended(&mut link, fills.name).await, Ok(WELL));
    // Both were told; a report that says so comes again.
    let makes_room = session(
        3,
        kim,
        "[ -s /data/big ] && rm /data/big && echo x > /data/next && exit 77",
    );
    let orders = vec![neighbour.clone(), makes_room.clone()];
    link.send(assign(2, orders));
    assert_eq!(ended(&mut link, neighbour.name).await, Ok(WELL));
    assert_eq!(ended(&mut link, makes_room.name).await, Ok(WELL));
    if pool != PoolSetting::Never {
        // What a session writes outside its folders has a limit there, too.
        let mut bounded = session(
            4,
            lee,
            "cd \"$HOME\" || exit 2
            head -c 200000000 /dev/zero > big && exit 3
            size=$(stat -c %s big)
            [ $size -le 67108864 ] && [ $size -ge 60000000 ] || exit 4
            [ $(df -B1 --output=size / | tail -n 1) -le 67108864 ] || exit 5
            rm big && sync && echo x > next || exit 6
            exit 77",
        );
        bounded.demand.disk = Some(LIMIT);
        link.send(assign(3, vec![bounded.clone()]));
        assert_eq!(ended(&mut link, bounded.name).await, Ok(WELL));
    }
    link.send(assign(4, Vec::new()));
    let end = Instant::now() + TIMEOUT;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let report = tokio::time::timeout(left, link.report()).await;
        let report = report.expect("in time").expect("the machine is there");
        if report.containers.is_empty() {
            break;
        }
    }
    drop(link);
    runs.await.expect("no panic").expect("it ran");
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("readable");
    let own = places.data.canonicalize().expect("there");
    assert!(!mounts.contains(&*own.to_string_lossy()), "{mounts}");
    let runtime = Runtime::open(places).expect("it opens");
    end_fork_server(runtime.instance_id());
    runtime.retire();
}
