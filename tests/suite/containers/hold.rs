//! The holder as a process: where it stands, what it tells the service manager, and that it leaves
//! when told. Its unit under a real systemd is tried in the vm (`packaging/tasks/src/vm/suite.sh`).

use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Longer than it takes on a loaded machine; only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(60);

fn groups_of(pid: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("it lives")
}

#[test]
fn the_holder_takes_its_place_says_so_and_sleeps_until_it_is_told() {
    const NAME: &str = "the_holder_takes_its_place_says_so_and_sleeps_until_it_is_told";
    let unified = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    if unified && !nix::unistd::geteuid().is_root() {
        return skips::skip(NAME, "needs root to make control groups");
    }
    let data = tempfile::tempdir().expect("a directory");
    // An abstract name, as systemd may give one.
    let name = format!("fardel-hold-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a short name");
    let manager = UnixDatagram::bind_addr(&address).expect("a socket");
    manager.set_read_timeout(Some(TIMEOUT)).expect("a bound");
    let mut holder = Command::new(env!("CARGO_BIN_EXE_fardel"))
        .arg("hold")
        .arg(data.path())
        .env_clear()
        .env("NOTIFY_SOCKET", format!("@{name}"))
        .stdin(Stdio::null())
        .spawn()
        .expect("started");
    let mut buffer = [0; 64];
    let count = manager.recv(&mut buffer).expect("it says that it is ready");
    let groups = groups_of(&holder.id().to_string());
    let alive = holder.try_wait().expect("asked").is_none();
    holder.kill().expect("ended");
    holder.wait().expect("waited for");
    assert_eq!(&buffer[..count], b"READY=1");
    assert!(alive, "it stays");
    if !unified {
        assert_eq!(
            groups,
            groups_of("self"),
            "on version 1 it stays where it was started"
        );
        return;
    }
    let place = groups.trim().strip_prefix("0::").expect("one hierarchy");
    assert!(
        place.starts_with("/fardel/") && place.ends_with("/hold"),
        "{place}"
    );
    let leaf = Path::new("/sys/fs/cgroup").join(place.trim_start_matches('/'));
    let part = leaf.parent().expect("a leaf has a parent");
    let passed_on = fs::read_to_string(part.join("cgroup.subtree_control")).expect("readable");
    let had = fs::read_to_string(part.join("cgroup.controllers")).expect("readable");
    for path in [&leaf, part] {
        fs::remove_dir(path).expect("nobody is left in it");
    }
    assert_eq!(passed_on, had, "what it has, the sessions get");
}
