//! A session that mounts a folder on a volume: it reads and writes there, and starts no more once the volume is gone.

use std::fs;
use std::sync::Arc;

use base::observe::Clock;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use node::images::ImageDirectory;
use node::runtime::{Runtime, RuntimePaths};
use node::{LocalNode, NodeOptions};
use rules::names::{FolderId, NodeId, VolumeId};
use store::folders::FolderStore;
use store::volumes::VolumeShelf;
use uuid::Uuid;

use super::disk::end_fork_server;
use super::folder_limits::{UnmountedBelow, assign, ended, session};
use super::images::NoImages;

const NODE: NodeId = NodeId(Uuid::from_u128(1));

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
    folders.create_on(id, folder).expect("made");
    let (mut link, theirs) = base::link::local();
    let runs = tokio::spawn(machine.run(theirs));
    let writes = session(1, folder, "echo here > /data/a && exit 77");
    link.send(assign(1, vec![writes.clone()]));
    assert_eq!(ended(&mut link, writes.name).await, Ok(77));
    let name = folder.to_string();
    let shard = volume.join("folders").join(&name[name.len() - 2..]);
    let file = shard.join(&name).join("data/a");
    assert_eq!(fs::read_to_string(file).expect("there"), "here\n");
    umount2(&volume, MntFlags::MNT_DETACH).expect("it was mounted");
    let late = session(2, folder, "echo there > /data/b && exit 77");
    link.send(assign(2, vec![writes.clone(), late.clone()]));
    let refused = ended(&mut link, late.name).await.expect_err("it is gone");
    assert!(refused.contains("/data"), "{refused}");
    let below = fs::read_dir(&volume).expect("a directory").count();
    assert_eq!(below, 0, "nothing is written below");
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
