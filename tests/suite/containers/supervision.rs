//! Supervisors that are stopped, crowded, killed in the middle of a birth or mistaken for another: every
//! session can be ended, none is lost that never began, and nobody else waits for it.

use std::fs;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use node::runtime::{
    ContainerStream, ExecOrder, Runtime, RuntimeFault, RuntimeName, RuntimePaths, RuntimePhase,
};

use super::ground::Ground;
use crate::programs::install;

/// What nobody has to wait for on a loaded machine, and less than the old way took.
const SOON: Duration = Duration::from_secs(20);

fn signal(pid: i32, number: i32) {
    // SAFETY: no memory is involved; the number was read from a record of this very test.
    unsafe { libc::kill(pid, number) };
}

/// The state letter, the parent and the kernel's session of a process.
fn stat(pid: i32) -> Option<(String, i32, i32)> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = line.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?.to_owned();
    let parent = fields.next()?.parse().ok()?;
    Some((state, parent, fields.nth(1)?.parse().ok()?))
}

fn alive(pid: i32) -> bool {
    stat(pid).is_some_and(|(state, _, _)| state != "Z" && state != "X")
}

fn wait_until(mut true_now: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + SOON;
    while Instant::now() < until {
        if true_now() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

fn processes() -> Vec<i32> {
    let entries = fs::read_dir("/proc").expect("readable").flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// What a shim has forked and not yet let go.
fn forks_of(shim: i32) -> Vec<i32> {
    let forked = |pid: &i32| stat(*pid).is_some_and(|(_, _, session)| session == shim);
    let others = processes().into_iter().filter(|pid| *pid != shim);
    others.filter(forked).collect()
}

/// The process that forks this installation's shims.
fn fork_server(ground: &Ground) -> i32 {
    let mark = format!("/{}/shims", ground.runtime.instance_id());
    let shims: Vec<i32> = ground
        .runtime
        .sights()
        .iter()
        .filter_map(|sight| record(ground, &sight.name))
        .map(|(shim, _)| shim)
        .collect();
    let found = processes().into_iter().find(|pid| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains(&mark) && !shims.contains(pid)
    });
    found.expect("a process that forks shims")
}

/// The shim that a record names, and whether the container has a first process.
fn record(ground: &Ground, name: &RuntimeName) -> Option<(i32, bool)> {
    let path = ground.directory.path().join("run/c").join(name.as_str());
    let text = fs::read(path.join("run.json")).ok()?;
    let record: serde_json::Value = serde_json::from_slice(&text).ok()?;
    Some((
        record["shim"]["pid"].as_i64()? as i32,
        !record["first"].is_null(),
    ))
}

fn program(ground: &Ground, name: &RuntimeName) -> Result<ContainerStream, RuntimeFault> {
    let order = ExecOrder {
        command: vec!["sleep".into(), "1000".into()],
        environment: vec![],
        directory: None,
        user: None,
        terminal: None,
        guest: None,
        background: None,
    };
    ground.runtime.exec(name, &order)
}

/// What forks supervisors here never comes to be: it waits until it is told to give up.
#[test]
fn a_start_that_waits_for_its_fork_server_holds_up_nobody_else() {
    const NAME: &str = "a_start_that_waits_for_its_fork_server_holds_up_nobody_else";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let at = |name: &str| ground.directory.path().join(name);
    let (asked, go) = (at("asked"), at("go"));
    let script = format!(
        "#!/bin/sh\n: > {}\nwhile [ ! -e {} ]; do sleep 0.05; done\nexit 1\n",
        asked.display(),
        go.display()
    );
    install(&at("slow"), script.as_bytes());
    let runtime = Runtime::open(RuntimePaths {
        data: at("other/data"),
        run: at("other/run"),
        shim_binary: at("slow"),
    });
    let runtime = runtime.expect("it opens");
    let order = ground.shell("true");
    std::thread::scope(|scope| {
        let start = scope.spawn(|| runtime.start(&order));
        assert!(wait_until(|| asked.exists()), "it is asked to fork");
        assert!(runtime.sights().is_empty());
        let unknown = runtime.kill(&order.name);
        let waits = !start.is_finished();
        fs::write(&go, "").expect("written");
        assert!(waits, "only the start waits");
        assert!(
            matches!(unknown, Err(RuntimeFault::Unknown(_))),
            "{unknown:?}"
        );
        let refused = start.join().expect("no panic");
        assert!(matches!(refused, Err(RuntimeFault::File { .. })));
    });
    // Nothing of it stays: it may be tried again under the same name.
    assert!(!at("other/run/c").join(order.name.as_str()).exists());
    runtime.retire();
}

#[test]
fn programs_held_open_keep_no_stop_and_no_kill_waiting() {
    let Some(ground) = Ground::lay("programs_held_open_keep_no_stop_and_no_kill_waiting") else {
        return;
    };
    for end in ["stop", "kill"] {
        let name = ground.start(&ground.shell("exec sleep 1000"));
        ground.running(&name);
        let mut held = Vec::new();
        let mut refused = 0;
        for _ in 0..80 {
            match program(&ground, &name) {
                Ok(stream) => held.push(stream),
                Err(RuntimeFault::Busy(_)) => refused += 1,
                Err(other) => panic!("neither a program nor busy: {other:?}"),
            }
        }
        assert_eq!((held.len(), refused), (32, 48), "a bound for all together");
        let begin = Instant::now();
        match end {
            "stop" => ground.runtime.stop(&name, Duration::from_millis(200)),
            _ => ground.runtime.kill(&name),
        }
        .expect("asked");
        let code = ground.ended(&name).code;
        assert!(matches!(code, 137 | 143), "{end}: {code}");
        assert!(begin.elapsed() < SOON, "{end}: {:?}", begin.elapsed());
        drop(held);
    }
}

#[test]
fn whoever_connects_and_says_nothing_is_let_go_and_keeps_no_kill_waiting() {
    const NAME: &str = "whoever_connects_and_says_nothing_is_let_go_and_keeps_no_kill_waiting";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let name = ground.start(&ground.shell("exec sleep 1000"));
    ground.running(&name);
    let place = ground.directory.path().join("run/c").join(name.as_str());
    let connect = || UnixStream::connect(place.join("shim.sock")).expect("it listens");
    let silent: Vec<UnixStream> = (0..100).map(|_| connect()).collect();
    for mut stream in silent {
        stream.set_read_timeout(Some(SOON)).expect("set");
        let heard = stream.read(&mut [0u8; 1]).expect("it is let go in time");
        assert_eq!(heard, 0, "nothing is said to it");
    }
    let silent: Vec<UnixStream> = (0..100).map(|_| connect()).collect();
    ground.runtime.kill(&name).expect("asked");
    assert_eq!(ground.ended(&name).code, 137);
    drop(silent);
}

#[test]
fn whose_supervisor_is_stopped_is_stopped_and_killed_all_the_same() {
    let Some(ground) =
        Ground::lay("whose_supervisor_is_stopped_is_stopped_and_killed_all_the_same")
    else {
        return;
    };
    let quiet = "trap 'exit 3' TERM; echo up; while :; do sleep 0.05; done";
    let deaf = "trap '' TERM; echo up; while :; do sleep 0.05; done";
    for (script, kill) in [(quiet, false), (deaf, false), (deaf, true)] {
        let name = ground.start(&ground.shell(script));
        let pid = ground.running(&name);
        assert!(wait_until(|| ground.log(&name).contains("up")));
        let shim = ground.shim_of(&name);
        signal(shim, libc::SIGSTOP);
        if kill {
            ground.runtime.kill(&name).expect("asked");
        } else {
            ground
                .runtime
                .stop(&name, Duration::from_millis(300))
                .expect("asked");
        }
        let record = ground.ended(&name);
        assert_eq!(record.code, 137, "its supervisor cannot tell the true code");
        assert!(record.started_at.is_some() && record.reason.is_some());
        assert!(
            wait_until(|| !alive(pid) && !alive(shim)),
            "nothing is left"
        );
        assert!(
            wait_until(|| ground.runtime.forget(&name).is_ok()),
            "what it held is given back"
        );
    }
}

#[test]
fn what_a_supervisor_leaves_that_dies_in_a_birth_is_ended_and_the_session_begun_again() {
    const NAME: &str =
        "what_a_supervisor_leaves_that_dies_in_a_birth_is_ended_and_the_session_begun_again";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let mut caught = 0;
    for _ in 0..60 {
        let order = ground.shell("exec sleep 1000");
        let name = ground.start(&order);
        let until = Instant::now() + Duration::from_secs(10);
        // Somewhere between the first fork and the first process.
        let orphans = loop {
            match record(&ground, &name) {
                Some((shim, false)) => {
                    let forks = forks_of(shim);
                    if !forks.is_empty() {
                        for pid in &forks {
                            signal(*pid, libc::SIGSTOP);
                        }
                        signal(shim, libc::SIGKILL);
                        break forks;
                    }
                }
                Some((_, true)) => break Vec::new(),
                None => {}
            }
            assert!(Instant::now() < until, "no birth");
        };
        let unbegun = record(&ground, &name).is_none_or(|(_, first)| !first);
        if orphans.is_empty() || !unbegun {
            continue;
        }
        caught += 1;
        // Nobody waits for it.
        let begin = Instant::now();
        let other = ground.start(&ground.shell("exec sleep 1000"));
        ground.running(&other);
        assert!(
            begin.elapsed() < Duration::from_secs(5),
            "{:?}",
            begin.elapsed()
        );
        assert!(
            wait_until(|| ground.runtime.sight(&name).is_none()),
            "it never began: {:?}",
            ground.runtime.sight(&name)
        );
        assert!(
            wait_until(|| !orphans.iter().any(|pid| alive(*pid))),
            "{orphans:?}"
        );
        ground.start(&order);
        ground.running(&name);
        for name in [&name, &other] {
            ground.runtime.kill(name).expect("asked");
            ground.ended(name);
        }
        if caught == 3 {
            return;
        }
    }
    assert!(caught > 0, "no birth was met in its middle");
}

#[test]
fn twenty_stopped_supervisors_hold_up_no_new_server_and_lose_nothing() {
    const NAME: &str = "twenty_stopped_supervisors_hold_up_no_new_server_and_lose_nothing";
    let Some(mut ground) = Ground::lay(NAME) else {
        return;
    };
    // One after the other: on a loaded machine a start of twenty at once may be given up and would be begun again.
    let (names, pids): (Vec<_>, Vec<i32>) = (0..20)
        .map(|_| {
            let name = ground.start(&ground.shell("exec sleep 1000"));
            let pid = ground.running(&name);
            (name, pid)
        })
        .unzip();
    let shims: Vec<i32> = names.iter().map(|name| ground.shim_of(name)).collect();
    ground.crash();
    for shim in &shims {
        signal(*shim, libc::SIGSTOP);
    }
    let begin = Instant::now();
    ground.reopen();
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(10), "one wait for all: {took:?}");
    for (name, pid) in names.iter().zip(&pids) {
        assert!(
            matches!(ground.standing(name), RuntimePhase::Running { pid: now, .. } if now == *pid),
            "{:?}",
            ground.standing(name)
        );
    }
    assert_eq!(ground.runtime.silent().len(), names.len());
    for shim in &shims {
        signal(*shim, libc::SIGCONT);
    }
    assert!(
        wait_until(|| ground.runtime.silent().is_empty()),
        "they are heard when they go on: {:?}",
        ground.runtime.silent()
    );
    for (name, pid) in names.iter().zip(&pids) {
        assert!(
            matches!(ground.standing(name), RuntimePhase::Running { pid: now, .. } if now == *pid),
            "no container was killed by the restart: {:?}",
            ground.standing(name)
        );
    }
}

#[test]
fn a_launch_that_no_supervisor_took_up_is_begun_again() {
    let Some(ground) = Ground::lay("a_launch_that_no_supervisor_took_up_is_begun_again") else {
        return;
    };
    let first = ground.start(&ground.shell("exec sleep 1000"));
    ground.running(&first);
    for killed in [true, false] {
        let fork_server = fork_server(&ground);
        signal(fork_server, libc::SIGSTOP);
        let order = ground.shell("exit 7");
        let name = ground.start(&order);
        if killed {
            signal(fork_server, libc::SIGKILL);
        }
        assert!(
            wait_until(|| ground.runtime.sight(&name).is_none()),
            "killed {killed}: {:?}",
            ground.runtime.sight(&name)
        );
        assert!(wait_until(|| !alive(fork_server)), "it is not left behind");
        ground.start(&order);
        assert_eq!(ground.ended(&name).code, 7);
    }
}

#[test]
fn directories_that_somebody_swapped_are_adopted_under_their_own_names() {
    const NAME: &str = "directories_that_somebody_swapped_are_adopted_under_their_own_names";
    let Some(mut ground) = Ground::lay(NAME) else {
        return;
    };
    let [one, two] = [(); 2].map(|()| ground.start(&ground.shell("exec sleep 1000")));
    let pids = [ground.running(&one), ground.running(&two)];
    ground.crash();
    let at = |name: &str| ground.directory.path().join("run/c").join(name);
    fs::rename(at(one.as_str()), at("aside")).expect("moved");
    fs::rename(at(two.as_str()), at(one.as_str())).expect("moved");
    fs::rename(at("aside"), at(two.as_str())).expect("moved");
    ground.reopen();
    for (name, pid) in [&one, &two].into_iter().zip(pids) {
        assert!(
            matches!(ground.standing(name), RuntimePhase::Running { pid: now, .. } if now == pid),
            "{name}: {:?}",
            ground.standing(name)
        );
    }
    ground.runtime.kill(&one).expect("asked");
    assert_eq!(ground.ended(&one).code, 137);
    assert!(matches!(
        ground.standing(&two),
        RuntimePhase::Running { .. }
    ));
}
