//! The specification of a typical order, and what must never appear in any.

use std::path::PathBuf;

use super::super::order::{IdRange, RootOrder, RuntimeName, TerminalSize, UserOrder};
use super::*;

fn order() -> ContainerSpec {
    ContainerSpec {
        name: RuntimeName::parse("s-1.1").expect("plain"),
        root: RootOrder {
            layers: vec!["/layers/a".into()],
            host_environment: false,
        },
        command: vec!["sh".into(), "-c".into(), "exit 7".into()],
        environment: vec![],
        directory: None,
        user: UserOrder::Usual,
        hostname: "notebook".into(),
        terminal: None,
        cpu_hundredths: 50,
        memory_bytes: 268_435_456,
        shm_bytes: 67_108_864,
        disk_bytes: None,
        pids: 512,
        ids: IdRange {
            base: 200_000,
            size: 65_536,
            mapped: None,
        },
        stop_signal: 15,
        mounts: vec![],
        networks: vec![],
        egress: None,
        sudo: false,
        ulimits: rules::process_limits::ProcessLimits::USUAL,
        devices: vec![],
        files: vec![],
        start_up: rules::start_up::StartUp::default(),
    }
}

fn ground() -> PreparedRoot {
    PreparedRoot {
        root: PathBuf::from("/mnt/root"),
        cgroup_path: "/fardel/b0/sessions/s-1.1".into(),
        user_namespace: PathBuf::from("/proc/self/fd/7"),
        uid: 0,
        gid: 0,
        groups: vec![],
        home: "/root".into(),
        directory: "/".into(),
        environment: vec![
            ("PATH".into(), "/bin".into()),
            ("HOME".into(), "/root".into()),
        ],
        devices: vec![],
        binds: vec![(PathBuf::from("/mnt/files/hosts"), "/etc/hosts".into(), true)],
        disks: vec!["/sys/devices/pci0000:00/0000:00:05.0/virtio4/block".into()],
        time_namespace: Some(PathBuf::from("/proc/self/fd/8")),
        open_files_hard_limit: 20_000,
        limits: GrantedLimits::default(),
    }
}

#[test]
fn limits_of_the_order_stand_in_the_specification() {
    let spec = specification(&order(), &ground());
    assert_eq!(
        spec["linux"]["resources"]["memory"]["limit"],
        268_435_456u64
    );
    assert_eq!(spec["linux"]["resources"]["memory"]["swap"], 268_435_456u64);
    assert_eq!(spec["linux"]["resources"]["cpu"]["quota"], 50_000);
    assert_eq!(spec["linux"]["resources"]["pids"]["limit"], 512);
    assert_eq!(spec["process"]["noNewPrivileges"], true);
}

#[test]
fn open_files_are_clamped_to_what_this_process_may_give() {
    let spec = specification(&order(), &ground());
    assert_eq!(spec["process"]["rlimits"][0]["hard"], 20_000);
}

#[test]
fn limits_of_processes_are_those_that_are_granted() {
    let usual = specification(&order(), &ground());
    assert_eq!(
        usual["process"]["rlimits"].as_array().map(Vec::len),
        Some(2)
    );
    let raised = PreparedRoot {
        limits: GrantedLimits {
            memlock: Some(u64::MAX),
            stack: Some(64 << 20),
        },
        ..ground()
    };
    let spec = specification(&order(), &raised);
    let limits = &spec["process"]["rlimits"];
    assert_eq!(limits[2]["type"], "RLIMIT_MEMLOCK");
    assert_eq!(limits[2]["hard"], u64::MAX);
    assert_eq!(
        (&limits[3]["soft"], &limits[3]["hard"]),
        (&json!(64 << 20), &json!(64 << 20))
    );
}

#[test]
fn no_specification_has_hooks_a_cgroup_mount_or_a_relative_cgroup_path() {
    let mut terminal = order();
    terminal.terminal = Some(TerminalSize {
        columns: 132,
        rows: 50,
    });
    for order in [order(), terminal] {
        let spec = specification(&order, &ground());
        assert!(spec.get("hooks").is_none());
        assert!(
            spec["linux"]["cgroupsPath"]
                .as_str()
                .is_some_and(|path| path.starts_with('/'))
        );
        for mount in spec["mounts"].as_array().expect("a list") {
            assert!(
                !mount["type"]
                    .as_str()
                    .is_some_and(|kind| kind.starts_with("cgroup"))
            );
        }
    }
}

#[test]
fn everything_not_granted_is_denied_first() {
    let spec = specification(&order(), &ground());
    let rules = spec["linux"]["resources"]["devices"]
        .as_array()
        .expect("a list")
        .clone();
    assert_eq!(
        rules[0],
        serde_json::json!({ "allow": false, "access": "rwm" })
    );
    assert!(
        rules[1..].iter().all(|rule| rule["type"] == "c"),
        "no block device is ever granted"
    );
}

#[test]
fn at_most_ten_capabilities_and_none_inherited() {
    let spec = specification(&order(), &ground());
    let capabilities = &spec["process"]["capabilities"];
    assert!(
        capabilities["bounding"]
            .as_array()
            .is_some_and(|list| list.len() <= 10)
    );
    assert_eq!(capabilities["inheritable"], serde_json::json!([]));
    assert_eq!(capabilities["ambient"], serde_json::json!([]));
}

#[test]
fn any_session_name_becomes_a_host_name() {
    assert_eq!(plain_hostname("my_notebook.1"), "my-notebook-1");
    assert_eq!(plain_hostname("훈련"), "session");
    assert_eq!(plain_hostname(&"x".repeat(200)).len(), 63);
}

#[test]
fn what_tells_of_the_machine_is_masked() {
    let spec = specification(&order(), &ground());
    let masked = spec["linux"]["maskedPaths"]
        .as_array()
        .expect("a list")
        .clone();
    for path in [
        "/proc/sys/kernel/random/boot_id",
        "/proc/cmdline",
        "/proc/pressure",
        "/sys/block",
        "/sys/devices/pci0000:00/0000:00:05.0/virtio4/block",
    ] {
        assert!(masked.contains(&path.into()), "{path} in {masked:?}");
    }
}

#[test]
fn clocks_begin_at_zero_where_the_kernel_can() {
    let linux = specification(&order(), &ground())["linux"].clone();
    let time = serde_json::json!({ "type": "time", "path": "/proc/self/fd/8" });
    assert!(
        linux["namespaces"]
            .as_array()
            .is_some_and(|list| list.contains(&time))
    );
    let bare = PreparedRoot {
        time_namespace: None,
        ..ground()
    };
    let linux = specification(&order(), &bare)["linux"].clone();
    assert!(
        linux["namespaces"]
            .as_array()
            .is_some_and(|list| list.iter().all(|each| each["type"] != "time"))
    );
    assert!(linux.get("timeOffsets").is_none());
}
