//! What only a machine with control groups version 2 alone can show. On others each test says so.

use std::fs;
use std::path::{Path, PathBuf};

use super::ground::Ground;

/// The one hierarchy, or nothing after saying that this machine has another kind.
fn unified(test: &str) -> Option<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    if root.join("cgroup.controllers").exists() {
        return Some(root.to_owned());
    }
    skips::skip(
        test,
        "needs cgroup v2 mounted at /sys/fs/cgroup; this machine mounts v1 there",
    );
    None
}

/// What is ours of the hierarchy: the holder's part where one holds it, as on an installed machine.
fn ours(root: &Path) -> PathBuf {
    let held = root.join("fardel.slice/fardel-sessions.service");
    if held.is_dir() {
        held
    } else {
        root.join("fardel")
    }
}

fn processes(group: &Path) -> String {
    fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default()
}

#[test]
fn on_version_two_no_process_stands_above_a_container() {
    const NAME: &str = "on_version_two_no_process_stands_above_a_container";
    let Some(root) = unified(NAME) else { return };
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let name = ground.start(&ground.shell("sleep 1000"));
    let pid = ground.running(&name);
    let whole = ours(&root).join(ground.runtime.instance_id());
    let group = whole.join("sessions").join(name.as_str());
    assert!(
        processes(&group)
            .lines()
            .any(|line| line == pid.to_string())
    );
    for above in group.ancestors().skip(1).take_while(|path| *path != root) {
        assert_eq!(processes(above), "", "{}", above.display());
    }
    assert!(
        !processes(&whole.join("shims")).is_empty(),
        "shims sit in a leaf of their own"
    );
}

#[test]
fn on_version_two_only_granted_devices_open() {
    const NAME: &str = "on_version_two_only_granted_devices_open";
    let Some(root) = unified(NAME) else { return };
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let name = ground.start(&ground.shell("sleep 1000"));
    ground.running(&name);
    let group = ours(&root)
        .join(ground.runtime.instance_id())
        .join("sessions")
        .join(name.as_str());
    let script = format!(
        "echo $$ > {}/cgroup.procs; (: < /dev/null) && echo null; (: < /dev/kmsg) && echo kmsg; (: < /dev/mem) && echo mem",
        group.display()
    );
    let said = std::process::Command::new("sh")
        .args(["-c", &script])
        .output()
        .expect("a shell");
    assert_eq!(String::from_utf8_lossy(&said.stdout), "null\n");
}

#[test]
fn on_version_two_root_inside_cannot_raise_its_limits() {
    const NAME: &str = "on_version_two_root_inside_cannot_raise_its_limits";
    if unified(NAME).is_none() {
        return;
    }
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let said = ground.answer(
        "for f in memory.max cpu.max pids.max; do for p in $(find / -name $f 2>/dev/null); do (echo max > $p) 2>/dev/null && echo raised $p; done; done; echo done",
    );
    assert_eq!(said, "done");
}

/// The kernel's call for programs, with attributes as plain numbers.
fn bpf(command: libc::c_long, attributes: &[u64]) -> libc::c_long {
    // SAFETY: the attributes outlive the call, and what they point to does too.
    unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            attributes.as_ptr(),
            size_of_val(attributes),
        )
    }
}

/// Attaches a fence of its own to a group, of the kind that suffers none below it.
fn forbid_fences_below(group: &Path) {
    const LOAD: libc::c_long = 5;
    const ATTACH: libc::c_long = 8;
    const CGROUP_DEVICE: u64 = 15;
    const TO_CGROUP_DEVICE: u64 = 6;
    // r0 = 1; leave: everything may be opened.
    let allow: [u64; 2] = [0x0000_0001_0000_00b7, 0x0000_0000_0000_0095];
    let license = c"Apache-2.0";
    let program = bpf(
        LOAD,
        &[
            CGROUP_DEVICE | 2 << 32,
            allow.as_ptr() as u64,
            license.as_ptr() as u64,
            0,
            0,
            0,
        ],
    );
    assert!(program > 0, "{}", std::io::Error::last_os_error());
    let group = fs::File::open(group).expect("the group");
    let target = std::os::fd::AsRawFd::as_raw_fd(&group) as u64;
    let attached = bpf(ATTACH, &[target | (program as u64) << 32, TO_CGROUP_DEVICE]);
    assert_eq!(attached, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the descriptor is this function's own.
    unsafe { libc::close(program as i32) };
}

#[test]
fn on_version_two_a_container_without_its_fence_does_not_start() {
    const NAME: &str = "on_version_two_a_container_without_its_fence_does_not_start";
    let Some(root) = unified(NAME) else { return };
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let sessions = ours(&root)
        .join(ground.runtime.instance_id())
        .join("sessions");
    fs::create_dir_all(&sessions).expect("made");
    forbid_fences_below(&sessions);
    let mark = ground.directory.path().join("mark");
    fs::create_dir(&mark).expect("made");
    let mut order = ground.shell("touch /mark/ran");
    order.mounts = vec![node::runtime::MountOrder {
        from: mark.clone(),
        subpath: String::new(),
        at: "/mark".into(),
        read_only: false,
        ..node::runtime::MountOrder::default()
    }];
    let name = ground.start(&order);
    let record = ground.ended(&name);
    assert_eq!((record.code, record.started_at), (125, None));
    let reason = record.reason.expect("a reason");
    assert!(reason.contains("device fence"), "{reason}");
    assert!(!mark.join("ran").exists(), "its command never ran");
    // Its end is told before its group is cleared away.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while ground.runtime.forget(&name).is_err() && std::time::Instant::now() < until {
        ground
            .runtime
            .wait_for_change(std::time::Duration::from_millis(20));
    }
    assert!(!sessions.join(name.as_str()).exists(), "nothing is left");
}
