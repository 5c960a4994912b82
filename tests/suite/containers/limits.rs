//! Limits hold, are told inside in the container's own measure, and follow when they change.

use std::time::{Duration, Instant};

use node::runtime::{ExecOrder, RuntimePhase};

use super::ground::{Ground, hear};

const MIB: u64 = 1 << 20;

#[test]
fn beyond_its_memory_a_session_is_killed_alone_and_the_record_says_so() {
    let Some(ground) =
        Ground::lay("beyond_its_memory_a_session_is_killed_alone_and_the_record_says_so")
    else {
        return;
    };
    let mut order = ground.shell("head -c 1000000000 /dev/zero | tail -c 900000000 > /dev/null");
    order.memory_bytes = 64 * MIB;
    let (record, text) = ground.run(&order);
    assert_eq!(
        (record.code, record.signal, record.oom_killed),
        (137, Some(9), true),
        "{text}"
    );
    assert_eq!(
        record.reason.as_deref(),
        Some("memory limit 64 MiB reached")
    );
    assert!(
        record
            .peak_memory
            .is_some_and(|peak| peak > 32 * MIB && peak <= 64 * MIB),
        "{record:?}"
    );
}

#[test]
fn a_killed_command_below_its_memory_is_not_called_out_of_memory() {
    let Some(ground) = Ground::lay("a_killed_command_below_its_memory_is_not_called_out_of_memory")
    else {
        return;
    };
    let (record, _) = ground.run(&ground.shell("kill -9 $$"));
    assert_eq!(
        (record.code, record.oom_killed, record.reason),
        (137, false, None)
    );
}

#[test]
fn a_tenth_of_a_core_is_a_tenth_of_a_core() {
    let Some(ground) = Ground::lay("a_tenth_of_a_core_is_a_tenth_of_a_core") else {
        return;
    };
    let mut order = ground.shell("while :; do :; done");
    order.cpu_hundredths = 10;
    let name = ground.start(&order);
    ground.running(&name);
    let before = ground
        .runtime
        .usage(&name)
        .expect("readable")
        .cpu_microseconds;
    let begin = Instant::now();
    std::thread::sleep(Duration::from_secs(3));
    let used = ground
        .runtime
        .usage(&name)
        .expect("readable")
        .cpu_microseconds
        - before;
    let share = used as f64 / begin.elapsed().as_micros() as f64;
    assert!(share < 0.15, "used {share:.3} of a core");
    assert!(share > 0.01, "it did run: {share:.3}");
}

#[test]
fn a_fork_bomb_meets_the_process_limit() {
    let Some(ground) = Ground::lay("a_fork_bomb_meets_the_process_limit") else {
        return;
    };
    let mut order =
        ground.shell("i=0; while [ $i -lt 100 ]; do sleep 5 & i=$((i+1)); done; echo all");
    order.pids = 20;
    let (record, text) = ground.run(&order);
    assert!(record.code != 0 && !text.contains("all"), "{text}");
}

#[test]
fn limits_are_told_inside() {
    let Some(ground) = Ground::lay("limits_are_told_inside") else {
        return;
    };
    for (hundredths, processors) in [(50, "1"), (100, "1"), (10, "1")] {
        let mut order = ground.shell(
            "nproc; free -m | awk '/Mem/{print $2}'; grep MemTotal /proc/meminfo | tr -s ' '; grep -c ^processor /proc/cpuinfo; \
             cat /sys/devices/system/cpu/online; grep -c '^cpu[0-9]' /proc/stat; cut -d. -f1 /proc/uptime; df -m --output=size /dev/shm | tail -1 | tr -d ' '; \
             getconf _NPROCESSORS_ONLN",
        );
        order.cpu_hundredths = hundredths;
        order.shm_bytes = 32 * MIB;
        let (record, said) = ground.run(&order);
        assert_eq!(record.code, 0, "{said}");
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(
            lines[..6],
            [
                processors,
                "256",
                "MemTotal: 262144 kB",
                processors,
                "0",
                processors
            ],
            "at {hundredths}"
        );
        // A kernel without time namespaces is named by a finding; there clocks are the machine's.
        let own_clocks = std::path::Path::new("/proc/self/ns/time").exists();
        assert!(
            lines[6]
                .parse::<u64>()
                .is_ok_and(|seconds| seconds < 60 || !own_clocks),
            "clocks begin at zero: {}",
            lines[6]
        );
        assert_eq!(lines[7..], ["32", processors]);
    }
    let mut python = ground.order(&["python3", "-c", "import os; print(os.cpu_count(), len(os.sched_getaffinity(0)), os.sysconf('SC_PHYS_PAGES') * 4096)"]);
    python.cpu_hundredths = 50;
    let (record, said) = ground.run(&python);
    if record.code != 127 {
        assert_eq!(said, format!("1 1 {}\n", 256 * MIB), "as Python sees it");
    }
}

#[test]
fn an_exec_is_told_the_same_limits() {
    let Some(ground) = Ground::lay("an_exec_is_told_the_same_limits") else {
        return;
    };
    let mut order = ground.shell("sleep 1000");
    order.cpu_hundredths = 50;
    let name = ground.start(&order);
    ground.running(&name);
    let exec = ExecOrder {
        command: vec![
            "sh".into(),
            "-c".into(),
            "nproc; free -m | awk '/Mem/{print $2}'".into(),
        ],
        environment: vec![],
        directory: None,
        user: None,
        terminal: None,
        guest: None,
        background: None,
    };
    let (said, errors, code) = hear(&mut ground.runtime.exec(&name, &exec).expect("accepted"));
    assert_eq!(
        (said.as_str(), errors.as_str(), code),
        ("1\n256\n", "", Some(0))
    );
}

#[test]
fn limits_change_while_it_runs_and_never_below_what_is_in_use() {
    let Some(ground) = Ground::lay("limits_change_while_it_runs_and_never_below_what_is_in_use")
    else {
        return;
    };
    let name = ground.start(
        &ground
            .shell("sleep 0.2; head -c 60000000 /dev/zero | tail -c 50000000 | (sleep 1000; cat)"),
    );
    ground.running(&name);
    let until = Instant::now() + Duration::from_secs(20);
    while ground.runtime.usage(&name).expect("readable").memory_bytes < 40 * MIB
        && Instant::now() < until
    {
        std::thread::sleep(Duration::from_millis(20));
    }
    ground
        .runtime
        .set_memory(&name, 128 * MIB)
        .expect("lowered");
    assert_eq!(
        ground.runtime.usage(&name).expect("readable").memory_limit,
        128 * MIB
    );
    ground.runtime.set_memory(&name, 512 * MIB).expect("raised");
    assert_eq!(
        ground.runtime.usage(&name).expect("readable").memory_limit,
        512 * MIB
    );
    let refused = ground
        .runtime
        .set_memory(&name, 16 * MIB)
        .expect_err("in use")
        .to_string();
    assert!(refused.contains("less than"), "{refused}");
    assert_eq!(
        ground.runtime.usage(&name).expect("readable").memory_limit,
        512 * MIB,
        "unchanged"
    );
    ground.runtime.set_cpu(&name, 150).expect("changed");
    std::thread::sleep(Duration::from_millis(2500));
    let exec = ExecOrder {
        command: vec![
            "sh".into(),
            "-c".into(),
            "nproc; free -m | awk '/Mem/{print $2}'".into(),
        ],
        environment: vec![],
        directory: None,
        user: None,
        terminal: None,
        guest: None,
        background: None,
    };
    let (said, _, _) = hear(&mut ground.runtime.exec(&name, &exec).expect("accepted"));
    let processors = std::thread::available_parallelism().map_or(1, |all| all.get().min(2));
    assert_eq!(
        said,
        format!("{processors}\n512\n"),
        "told inside within the next look"
    );
}

#[test]
fn a_pause_stops_the_clock_and_refuses_exec() {
    let Some(mut ground) = Ground::lay("a_pause_stops_the_clock_and_refuses_exec") else {
        return;
    };
    let name = ground.start(&ground.shell("while :; do :; done"));
    ground.running(&name);
    ground.runtime.pause(&name).expect("paused");
    assert!(matches!(
        ground.standing(&name),
        RuntimePhase::Running { paused: true, .. }
    ));
    let before = ground
        .runtime
        .usage(&name)
        .expect("readable")
        .cpu_microseconds;
    std::thread::sleep(Duration::from_millis(300));
    let used = ground
        .runtime
        .usage(&name)
        .expect("readable")
        .cpu_microseconds
        - before;
    assert!(used < 20_000, "{used} microseconds in a pause of 300,000");
    let exec = ExecOrder {
        command: vec!["true".into()],
        environment: vec![],
        directory: None,
        user: None,
        terminal: None,
        guest: None,
        background: None,
    };
    ground.crash();
    ground.reopen();
    assert!(
        matches!(
            ground.standing(&name),
            RuntimePhase::Running { paused: true, .. }
        ),
        "a new server sees the pause"
    );
    assert!(
        ground
            .runtime
            .exec(&name, &exec)
            .expect_err("paused")
            .to_string()
            .contains("paused")
    );
    ground.runtime.resume(&name).expect("resumed");
    std::thread::sleep(Duration::from_millis(300));
    assert!(
        ground
            .runtime
            .usage(&name)
            .expect("readable")
            .cpu_microseconds
            > before
    );
    ground.runtime.pause(&name).expect("paused again");
    ground.runtime.kill(&name).expect("killed");
    assert_eq!(
        ground.ended(&name).code,
        137,
        "a paused session can still be ended"
    );
}

/// What is removed is free again.
#[test]
fn a_session_writes_to_its_disk_up_to_its_limit() {
    const NAME: &str = "a_session_writes_to_its_disk_up_to_its_limit";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    if !std::path::Path::new("/dev/loop-control").exists() {
        return skips::skip(NAME, "there are no loop devices");
    }
    let mut order = ground.shell(
        "cd /root || cd /
        head -c 200000000 /dev/zero > big && exit 3
        [ \"$(stat -c %s big)\" -le 67108864 ] || exit 4
        [ \"$(df -B1 --output=size / | tail -n 1)\" -le 67108864 ] || exit 5
        rm big && sync && echo x > next || exit 6
        exit 7",
    );
    order.disk_bytes = Some(64 * MIB);
    let (record, text) = ground.run(&order);
    assert_eq!(record.code, 7, "{text}");
    let image = ground.runtime.scratch_image(&order.name);
    let image = image.expect("it has a disk of its own");
    let mounted = || {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("readable");
        mounts.contains(&format!("/{} ", order.name))
    };
    assert!(mounted(), "until it is forgotten");
    let until = Instant::now() + Duration::from_secs(60);
    while ground.runtime.forget(&order.name).is_err() {
        assert!(Instant::now() < until, "it cannot be forgotten");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!mounted() && !image.exists());
    assert!(!ground.runtime.own_files(&order.name).exists());
}

/// A file of the environment that is changed is copied whole: it counts as one that is new.
#[test]
fn what_a_session_changes_of_its_environment_counts_against_its_disk() {
    const NAME: &str = "what_a_session_changes_of_its_environment_counts_against_its_disk";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    if !std::path::Path::new("/dev/loop-control").exists() {
        return skips::skip(NAME, "there are no loop devices");
    }
    let layer = ground.directory.path().join("layer");
    std::fs::create_dir_all(layer.join("opt")).expect("made");
    // Bytes, and no holes: those would be copied as holes.
    for (name, size) in [("large", 80 * MIB), ("half", 40 * MIB)] {
        let bytes = vec![7; usize::try_from(size).expect("small")];
        std::fs::write(layer.join("opt").join(name), bytes).expect("written");
    }
    let mut order = ground.shell(
        "cd /opt || exit 2
        echo x >> large && exit 3
        [ \"$(stat -c %s large)\" -eq 83886080 ] || exit 4
        echo x >> half || exit 5
        [ \"$(df -B1 --output=used / | tail -n 1)\" -ge 41943040 ] || exit 6
        head -c 30000000 /dev/zero > more && exit 7
        rm more half && sync || exit 8
        head -c 50000000 /dev/zero > more || exit 9
        exit 77",
    );
    order.root.layers = vec![layer];
    order.disk_bytes = Some(64 * MIB);
    let (record, text) = ground.run(&order);
    assert_eq!(record.code, 77, "{text}");
}
