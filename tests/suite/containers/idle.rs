//! What a shim costs while nothing happens: no processor time, no descriptor and no mount more than
//! before, whatever came and went.

use std::fs;
use std::time::{Duration, Instant};

use node::runtime::wire::FrameKind;
use node::runtime::{ExecOrder, TerminalSize};

use super::ground::{Ground, hear};

const SIZE: TerminalSize = TerminalSize {
    columns: 80,
    rows: 24,
};

/// How long a shim is watched. In this time one that spins uses a hundred ticks.
const WATCHED: Duration = Duration::from_millis(1500);

/// Ticks (hundredths of a second) that an idle shim may use meanwhile; it looks at its container
/// every two seconds, which costs less than one.
const FEW_TICKS: u64 = 5;

/// Processor time of a process so far, in ticks.
fn ticks(pid: i32) -> u64 {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let (_, fields) = line.rsplit_once(") ").expect("a name in parentheses");
    let number = |at: usize| -> u64 {
        let field = fields.split(' ').nth(at).expect("a field");
        field.parse().expect("a number")
    };
    number(11) + number(12)
}

/// Asserts that the shim rests. What came before may still be on its way, so it has a moment.
fn assert_rests(shim: i32, after: &str) {
    std::thread::sleep(Duration::from_millis(300));
    let before = ticks(shim);
    std::thread::sleep(WATCHED);
    let used = ticks(shim) - before;
    assert!(used <= FEW_TICKS, "{after}: {used} ticks in {WATCHED:?}");
}

fn exec(command: &[&str], terminal: bool) -> ExecOrder {
    ExecOrder {
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        environment: vec![],
        directory: None,
        user: None,
        terminal: terminal.then_some(SIZE),
        guest: None,
        background: None,
    }
}

#[test]
fn a_shim_rests_after_everything_that_came_and_went() {
    let Some(ground) = Ground::lay("a_shim_rests_after_everything_that_came_and_went") else {
        return;
    };
    let mut order = ground.order(&["sh"]);
    order.terminal = Some(SIZE);
    let name = ground.start(&order);
    ground.running(&name);
    let shim = ground.shim_of(&name);
    assert_rests(shim, "started");

    let run = |order: &ExecOrder| hear(&mut ground.runtime.exec(&name, order).expect("accepted"));
    assert_eq!(run(&exec(&["nproc"], false)).2, Some(0));
    assert_rests(shim, "after an exec that asked for the size of the machine");
    assert_eq!(run(&exec(&["nproc"], true)).2, Some(0));
    assert_rests(shim, "after an exec with a terminal");

    let stream = ground
        .runtime
        .exec(&name, &exec(&["cat"], true))
        .expect("accepted");
    drop(stream);
    assert_rests(shim, "after a program's terminal went away");
    // It outlives its terminal, and so does what it inherited.
    let orphan = exec(
        &["sh", "-c", "(trap '' HUP; nproc; sleep 1000) & exit 0"],
        false,
    );
    let stream = ground.runtime.exec(&name, &orphan).expect("accepted");
    drop(stream);
    assert_rests(shim, "after a client left a program behind");

    let mut attached = ground.runtime.attach(&name, Some(SIZE)).expect("attached");
    attached
        .send(FrameKind::Input, b"echo here-$((1+1))\n")
        .expect("typed");
    let mut seen = String::new();
    while !seen.contains("here-2") {
        let frame = attached.next().expect("whole").expect("still open");
        seen.push_str(&String::from_utf8_lossy(&frame.payload));
    }
    assert_rests(shim, "with somebody attached");
    drop(attached);
    assert_rests(shim, "after an attached terminal went away");
}

#[test]
fn execs_leave_no_descriptor_and_no_mount_behind() {
    let Some(ground) = Ground::lay("execs_leave_no_descriptor_and_no_mount_behind") else {
        return;
    };
    let name = ground.start(&ground.shell("sleep 1000"));
    let pid = ground.running(&name);
    let shim = ground.shim_of(&name);
    let mounts = |pid: i32| {
        let text = fs::read_to_string(format!("/proc/{pid}/mountinfo")).expect("it lives");
        text.lines().count()
    };
    let open = || {
        let all = fs::read_dir(format!("/proc/{shim}/fd")).expect("it lives");
        all.count()
    };
    let run = |terminal: bool| {
        let order = exec(&["true"], terminal);
        hear(&mut ground.runtime.exec(&name, &order).expect("accepted")).2
    };
    // The first takes over what every container has once.
    assert_eq!(run(false), Some(0));
    let settle = |wanted: usize| {
        let until = Instant::now() + Duration::from_secs(10);
        while open() > wanted && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        open()
    };
    std::thread::sleep(Duration::from_millis(300));
    let before = (mounts(shim), mounts(pid), open());
    std::thread::scope(|scope| {
        for number in 0..4 {
            scope.spawn(move || {
                for _ in 0..5 {
                    assert_eq!(run(number % 2 == 1), Some(0));
                }
            });
        }
    });
    assert_eq!((mounts(shim), mounts(pid), settle(before.2)), before);
}
