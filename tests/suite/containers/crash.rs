//! Deaths: of the server, of shims, of both; many at once; and that nothing is left of any of them.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use node::runtime::{RuntimeName, RuntimePhase};

use super::ground::Ground;

/// Every control group directory of a container, in every hierarchy.
fn groups(ground: &Ground, name: &RuntimeName) -> Vec<PathBuf> {
    let below = format!("{}/sessions/{name}", ground.runtime.instance_id());
    let hierarchies = fs::read_dir("/sys/fs/cgroup")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    hierarchies
        .chain([PathBuf::from("/sys/fs/cgroup")])
        .flat_map(|root| {
            ["fardel", "fardel.slice/fardel-sessions.service"].map(|ours| root.join(ours))
        })
        .map(|ours| ours.join(&below))
        .filter(|path| path.is_dir())
        .collect()
}

fn kill(pid: i32) {
    // SAFETY: no memory is involved; the number was read from a record of this very test.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// Whether a process still runs; one that only waits to be taken by its parent does not.
fn alive(pid: i32) -> bool {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    line.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Whether a killed process goes. It has left its control group a moment before it is dead to others.
fn goes(pid: i32) -> bool {
    let until = Instant::now() + Duration::from_secs(10);
    while alive(pid) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    !alive(pid)
}

#[test]
fn a_container_without_its_shim_is_lost_and_its_processes_are_killed() {
    let Some(ground) =
        Ground::lay("a_container_without_its_shim_is_lost_and_its_processes_are_killed")
    else {
        return;
    };
    let name = ground.start(&ground.shell("sleep 1000"));
    let pid = ground.running(&name);
    kill(ground.shim_of(&name));
    ground.wait(&name, |standing| {
        matches!(standing, RuntimePhase::Lost { .. }).then_some(())
    });
    assert!(goes(pid), "no orphan");
    assert!(
        groups(&ground, &name).is_empty(),
        "no group: {:?}",
        groups(&ground, &name)
    );
}

#[test]
fn when_server_and_shim_die_together_the_next_server_declares_it_lost() {
    let Some(mut ground) =
        Ground::lay("when_server_and_shim_die_together_the_next_server_declares_it_lost")
    else {
        return;
    };
    let lost = ground.start(&ground.shell("sleep 1000"));
    let kept = ground.start(&ground.shell("sleep 1000"));
    let (orphan, living) = (ground.running(&lost), ground.running(&kept));
    let shim = ground.shim_of(&lost);
    ground.crash();
    kill(shim);
    while alive(shim) {
        std::thread::sleep(Duration::from_millis(1));
    }
    ground.reopen();
    assert!(
        matches!(ground.standing(&lost), RuntimePhase::Lost { .. }),
        "{:?}",
        ground.standing(&lost)
    );
    assert!(goes(orphan));
    assert!(
        matches!(ground.standing(&kept), RuntimePhase::Running { pid, .. } if pid == living),
        "the neighbour goes on"
    );
}

#[test]
fn a_reused_number_another_boot_or_a_stale_socket_is_never_adopted_or_signalled() {
    let Some(mut ground) =
        Ground::lay("a_reused_number_another_boot_or_a_stale_socket_is_never_adopted_or_signalled")
    else {
        return;
    };
    let mut stranger = std::process::Command::new("sleep")
        .arg("1000")
        .spawn()
        .expect("a stranger");
    for (field, value) in [
        ("start_time", serde_json::json!(1)),
        ("boot_id", serde_json::json!("another")),
        ("pid", serde_json::json!(stranger.id())),
    ] {
        let name = ground.start(&ground.shell("sleep 1000"));
        ground.running(&name);
        let path = ground
            .directory
            .path()
            .join("run/c")
            .join(name.as_str())
            .join("run.json");
        let mut record: serde_json::Value =
            serde_json::from_slice(&fs::read(&path).expect("a record")).expect("json");
        let shim = ground.shim_of(&name);
        ground.crash();
        record["shim"][field] = value;
        fs::write(&path, record.to_string()).expect("written");
        ground.reopen();
        assert!(
            matches!(ground.standing(&name), RuntimePhase::Lost { .. }),
            "{field}: {:?}",
            ground.standing(&name)
        );
        let until = Instant::now() + Duration::from_secs(10);
        while alive(shim) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    assert!(
        stranger.try_wait().expect("asked").is_none(),
        "the stranger was left alone"
    );
    stranger.kill().expect("ended");
    stranger.wait().expect("waited for");
}

#[test]
fn twenty_at_once_start_run_end_and_leave_nothing() {
    let Some(ground) = Ground::lay("twenty_at_once_start_run_end_and_leave_nothing") else {
        return;
    };
    // Those of other tests come and go meanwhile.
    let own_mounts = || -> Vec<String> {
        let below = ground.directory.path().to_string_lossy().into_owned();
        let all = fs::read_to_string("/proc/self/mountinfo").expect("readable");
        let own = all.lines().filter(|line| line.contains(&below));
        own.map(str::to_owned).collect()
    };
    let mounts = own_mounts();
    let names: Vec<_> = (0..20)
        .map(|number| ground.start(&ground.shell(&format!("sleep 0.2; exit {number}"))))
        .collect();
    for (number, name) in names.iter().enumerate() {
        let record = ground.ended(name);
        assert_eq!(record.code, number as i32, "{record:?}");
    }
    for name in &names {
        let until = Instant::now() + Duration::from_secs(10);
        while ground.runtime.forget(name).is_err() && Instant::now() < until {
            ground.runtime.wait_for_change(Duration::from_millis(20));
        }
        assert!(groups(&ground, name).is_empty());
    }
    assert!(ground.runtime.sights().is_empty());
    for below in ["run/c", "data/containers"] {
        let left: Vec<_> = fs::read_dir(ground.directory.path().join(below))
            .expect("there")
            .flatten()
            .map(|entry| entry.path())
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
    assert_eq!(own_mounts(), mounts, "no mount is left on the machine");
}

/// Proves too: `a_new_server_learns_the_code_of_a_container_that_lived_on`
#[test]
fn a_new_server_adopts_twenty_within_a_second() {
    let Some(mut ground) = Ground::lay("a_new_server_adopts_twenty_within_a_second") else {
        return;
    };
    let names: Vec<_> = (0..20)
        .map(|_| ground.start(&ground.shell("sleep 1000")))
        .collect();
    for name in &names {
        ground.running(name);
    }
    ground.crash();
    let begin = Instant::now();
    ground.reopen();
    let took = begin.elapsed();
    assert!(
        names
            .iter()
            .all(|name| matches!(ground.standing(name), RuntimePhase::Running { .. }))
    );
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn a_shim_has_one_thread_an_empty_environment_and_stays_small() {
    let Some(ground) = Ground::lay("a_shim_has_one_thread_an_empty_environment_and_stays_small")
    else {
        return;
    };
    let name = ground.start(&ground.shell("sleep 1000"));
    ground.running(&name);
    let shim = ground.shim_of(&name);
    let read = |file: &str| fs::read_to_string(format!("/proc/{shim}/{file}")).expect("readable");
    assert!(read("status").contains("Threads:\t1\n"));
    assert_eq!(read("environ"), "");
    // As far as the machine lets it; never the container's own 200.
    assert!(matches!(read("oom_score_adj").trim(), "0" | "-999"));
    assert!(!groups(&ground, &name).iter().any(|path| {
        fs::read_to_string(path.join("cgroup.procs"))
            .is_ok_and(|text| text.lines().any(|line| line == shim.to_string()))
    }));
}

#[test]
fn what_cannot_be_made_ends_with_a_reason_and_leaves_nothing() {
    let Some(ground) = Ground::lay("what_cannot_be_made_ends_with_a_reason_and_leaves_nothing")
    else {
        return;
    };
    let mut no_user = ground.shell("true");
    no_user.user = node::runtime::UserOrder::Named("stranger".into());
    let mut bad_range = ground.shell("true");
    bad_range.ids.base = 0;
    let mut no_layer = ground.shell("true");
    no_layer.root.layers = vec!["/no/such/layer".into()];
    for (order, wanted) in [
        (no_user, "no user \"stranger\""),
        (bad_range, "id range"),
        (no_layer, "/no/such/layer"),
    ] {
        let name = ground.start(&order);
        let record = ground.ended(&name);
        assert_eq!((record.code, record.started_at), (125, None));
        let reason = record.reason.expect("a reason");
        assert!(reason.contains(wanted), "{reason}");
        assert!(groups(&ground, &name).is_empty());
    }
}

#[test]
fn what_libcontainer_refuses_is_told_in_the_reason_and_in_the_shims_log() {
    const NAME: &str = "what_libcontainer_refuses_is_told_in_the_reason_and_in_the_shims_log";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let folder = ground.directory.path().join("folder");
    fs::create_dir(&folder).expect("made");
    let mut order = ground.shell("true");
    order.mounts = vec![node::runtime::MountOrder {
        from: folder,
        subpath: String::new(),
        at: "/proc/no/such/place".into(),
        read_only: false,
        ..node::runtime::MountOrder::default()
    }];
    let name = ground.start(&order);
    let record = ground.ended(&name);
    let reason = record.reason.expect("a reason");
    assert!(reason.contains("could not be created: "), "{reason}");
    let log = ground
        .directory
        .path()
        .join("data/logs")
        .join(name.as_str())
        .join("shim.log");
    let told = fs::read_to_string(log).expect("a log");
    assert!(
        told.contains("libcontainer") && told.contains("/proc/no/such/place"),
        "{told}"
    );
}

#[test]
fn shims_stand_beside_the_sessions_and_no_process_above_either() {
    const NAME: &str = "shims_stand_beside_the_sessions_and_no_process_above_either";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let name = ground.start(&ground.shell("sleep 1000"));
    ground.running(&name);
    let instance_id = ground.runtime.instance_id();
    let shim = ground.shim_of(&name);
    let told = fs::read_to_string(format!("/proc/{shim}/cgroup")).expect("it lives");
    let mut looked_at = 0;
    for line in told.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (hierarchy, place) = (parts.next().expect("a name"), parts.next().expect("a path"));
        // A new group there has no processor and takes nobody.
        if hierarchy == "cpuset" {
            continue;
        }
        assert!(place.ends_with(&format!("/{instance_id}/shims")), "{line}");
        looked_at += 1;
    }
    assert!(looked_at > 0, "{told}");
    for group in groups(&ground, &name) {
        let above = group.ancestors().skip(1).take(3);
        for path in above {
            let inside = fs::read_to_string(path.join("cgroup.procs")).expect("readable");
            assert_eq!(inside, "", "{}", path.display());
        }
    }
}
