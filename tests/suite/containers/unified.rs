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
    let whole = root.join("fardel").join(ground.runtime.box_id());
    let group = whole.join("sessions").join(name.as_str());
    assert!(
        processes(&group)
            .lines()
            .any(|line| line == pid.to_string())
    );
    for above in [root.join("fardel"), whole.clone(), whole.join("sessions")] {
        assert_eq!(processes(&above), "", "{}", above.display());
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
    let group = root
        .join("fardel")
        .join(ground.runtime.box_id())
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
