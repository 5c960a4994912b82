//! Sessions that mount a folder on a volume: they read and write there, also when the volume goes while they run, and none
//! starts once it is gone.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::observe::Clock;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use node::images::ImageDirectory;
use node::runtime::{MountOrder, Runtime, RuntimePaths, UserOrder};
use node::{LocalNode, NodeOptions};
use rules::folder_path::FolderPath;
use rules::names::{FolderId, NodeId, VolumeId};
use rules::volume::MappedUser;
use store::folders::FolderStore;
use store::volumes::VolumeShelf;
use uuid::Uuid;

use super::disk::end_fork_server;
use super::folder_limits::{UnmountedBelow, assign, ended, session};
use super::ground::Ground;
use super::images::NoImages;

const NODE: NodeId = NodeId(Uuid::from_u128(1));

/// Waits until a session has written once more.
fn counted_on(place: &Path) {
    let count = || fs::read_to_string(place.join("count")).unwrap_or_default();
    let (before, until) = (count(), Instant::now() + super::folder_limits::TIMEOUT);
    while count() == before || count().is_empty() {
        assert!(Instant::now() < until, "nothing comes behind {before:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_writes_to_a_folder_on_a_volume_and_starts_not_without_it() {
    const NAME: &str = "a_session_writes_to_a_folder_on_a_volume_and_starts_not_without_it";
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().canonicalize().expect("there");
    let _mounts = UnmountedBelow(place.clone());
    let at = |name: &str| place.join(name);
    let volume = at("volume");
    fs::create_dir(&volume).expect("made");
    let (none, kind) = (None::<&str>, Some("tmpfs"));
    let size = Some("size=64m,mode=0755");
    if let Err(error) = mount(none, &volume, kind, MsFlags::empty(), size) {
        return skips::skip(NAME, &format!("nothing can be mounted: {error}"));
    }
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
        return skips::skip(NAME, &finding.what);
    }
    let folders = FolderStore::open(&places.data).expect("a store");
    let drafted = VolumeId(Uuid::from_u128(7));
    let id = VolumeShelf::adopt(&volume, drafted).expect("a volume");
    folders.volumes().keep(id, &volume).expect("kept");
    let folder = FolderId(Uuid::from_u128(9));
    folders.create_on(id, folder, None).expect("made");
    let (mut link, theirs) = base::link::local();
    let runs = tokio::spawn(machine.run(theirs));
    let writes = session(1, folder, "echo here > /data/a && exit 77");
    let stays = session(
        3,
        folder,
        "n=0
        while [ ! -e /data/stop ]; do n=$((n + 1)); echo $n > /data/count; sleep 0.05; done
        echo last > /data/last && exit 77",
    );
    link.send(assign(1, vec![writes.clone(), stays.clone()]));
    assert_eq!(ended(&mut link, writes.name).await, Ok(77));
    let name = folder.to_string();
    let shard = volume.join("folders").join(&name[name.len() - 2..]);
    let file = shard.join(&name).join("data/a");
    assert_eq!(fs::read_to_string(file).expect("there"), "here\n");
    // A way to the volume that stays when it is gone from its place.
    let open = fs::File::open(shard.join(&name).join("data")).expect("there");
    let held = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
    counted_on(&held);
    let path = |text: &str| FolderPath::parse(text).expect(text);
    let put = folders.make_directory(folder, &path("before"));
    put.expect("it is there");
    umount2(&volume, MntFlags::MNT_DETACH).expect("it was mounted");
    let refused = folders.make_directory(folder, &path("after"));
    let refused = refused.expect_err("it is gone");
    assert_eq!(refused.code(), Some("volume.absent"));
    // Who had it keeps it.
    counted_on(&held);
    let names = || {
        let all = fs::read_dir(&held).expect("a directory");
        all.map(|one| one.expect("an entry").file_name())
            .collect::<Vec<_>>()
    };
    assert!(!names().contains(&"after".into()), "{:?}", names());
    let late = session(2, folder, "echo there > /data/b && exit 77");
    link.send(assign(2, vec![writes.clone(), stays.clone(), late.clone()]));
    let refused = ended(&mut link, late.name).await.expect_err("it is gone");
    assert!(refused.contains("/data"), "{refused}");
    let below = fs::read_dir(&volume).expect("a directory").count();
    assert_eq!(below, 0, "nothing is written below");
    fs::write(held.join("stop"), "").expect("written");
    assert_eq!(ended(&mut link, stays.name).await, Ok(77));
    let last = fs::read_to_string(held.join("last"));
    assert_eq!(last.expect("there"), "last\n");
    link.send(assign(3, Vec::new()));
    loop {
        let report = tokio::time::timeout(super::folder_limits::TIMEOUT, link.report()).await;
        let report = report.expect("in time").expect("the machine is there");
        if report.containers.is_empty() {
            break;
        }
    }
    drop(link);
    runs.await.expect("no panic").expect("it ran");
    let runtime = Runtime::open(places).expect("it opens");
    end_fork_server(runtime.instance_id());
    runtime.retire();
}

/// What NFS asks for, on a file system of this machine: the folder is shown with the ids that it has, and the session's user is
/// the one of the site to whom it belongs.
#[test]
fn a_session_is_a_user_of_the_site_on_a_volume_without_id_mapped_mounts() {
    const NAME: &str = "a_session_is_a_user_of_the_site_on_a_volume_without_id_mapped_mounts";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let folder = ground.directory.path().join("site");
    fs::create_dir(&folder).expect("made");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("its mode");
    chown(&folder, Some(5000), Some(5001)).expect("its owner");
    let script = "id -u; stat -c '%u %g' /data; echo mine > /data/file; echo x > ~/note; \
        stat -c '%u %g' /data/file ~/note; cat /data/file";
    let mut order = ground.shell(script);
    order.user = UserOrder::Usual;
    order.ids.mapped = Some(MappedUser {
        uid: 5000,
        gid: 5001,
    });
    order.mounts = vec![MountOrder {
        from: folder.clone(),
        at: "/data".to_owned(),
        unmapped: true,
        ..MountOrder::default()
    }];
    let (record, said) = ground.run(&order);
    let told = "1000\n1000 1000\n1000 1000\n1000 1000\nmine";
    assert_eq!((record.code, said.trim()), (0, told));
    let made = fs::metadata(folder.join("file")).expect("there");
    assert_eq!((made.uid(), made.gid()), (5000, 5001));
    // The next session of another range finds the same owner.
    order.name = ground.shell("true").name;
    order.ids.base += 1 << 24;
    order.command = ["sh", "-c", "stat -c %u /data/file; cat /data/file"]
        .map(str::to_owned)
        .to_vec();
    let (record, said) = ground.run(&order);
    assert_eq!((record.code, said.trim()), (0, "1000\nmine"));
}
