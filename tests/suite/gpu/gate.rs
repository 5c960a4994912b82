//! The gate of launches in a process of its own: closed it holds every kind of launch, open it lets
//! them pass, and neither a dead host nor a stream that only records is held.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use cuda_hook::kernel;
use cuda_hook::region::{DeviceTerms, MODE_WINDOW};

use super::rig::{MIB, Rig, terms};

/// A launcher that runs, and what it says.
struct Launcher {
    child: Child,
    lines: Receiver<String>,
}

impl Launcher {
    fn begin(rig: &Rig, way: &str, count: u32, kernel: &str) -> Self {
        let mut child = rig
            .program("launcher")
            .args([way, &count.to_string(), kernel])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program was compiled");
        let (send, lines) = channel();
        let out = BufReader::new(child.stdout.take().expect("it is piped"));
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        let launcher = Launcher { child, lines };
        assert_eq!(
            launcher.says(Duration::from_secs(20)).as_deref(),
            Some("begun")
        );
        launcher
    }

    fn says(&self, within: Duration) -> Option<String> {
        self.lines.recv_timeout(within).ok()
    }

    fn is_through(&self, within: Duration) -> bool {
        self.says(within)
            .is_some_and(|line| line.starts_with("done"))
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lets the host live while `work` runs.
fn with_heartbeat(rig: &Rig, work: impl FnOnce()) {
    /// Ends the heartbeat also when `work` fails: a failed test must not wait for ever.
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, SeqCst);
        }
    }
    let over = AtomicBool::new(false);
    let control = rig.control;
    std::thread::scope(|scope| {
        let _over = Over(&over);
        scope.spawn(|| {
            while !over.load(SeqCst) {
                control.heartbeat.store(kernel::now(), SeqCst);
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        work();
    });
}

fn gated() -> Rig {
    let rig = Rig::new(64 * MIB);
    rig.control.heartbeat.store(kernel::now(), SeqCst);
    rig.control.set(
        0,
        &DeviceTerms {
            mode: MODE_WINDOW,
            ..terms(0, 64 * MIB)
        },
    );
    rig
}

const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_closed_gate_holds_every_kind_of_launch_and_an_open_one_lets_it_pass() {
    for way in ["plain", "per-thread", "described", "cooperative", "graph"] {
        let rig = gated();
        with_heartbeat(&rig, || {
            let launcher = Launcher::begin(&rig, way, 3, "spin0");
            let slot = &rig.account.slot[0].device[0];
            let begun = std::time::Instant::now();
            while slot.waiting.load(SeqCst) == 0 && begun.elapsed() < LONG {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(slot.waiting.load(SeqCst), 1, "{way}");
            let early = launcher.says(Duration::from_millis(100));
            assert_eq!(early, None, "{way} passed a closed gate");
            assert_eq!(slot.submitted.load(SeqCst), 0, "{way}");
            rig.control.device[0].gate_open.store(1, SeqCst);
            assert!(launcher.is_through(LONG), "{way} stayed at an open gate");
            assert_eq!(slot.waiting.load(SeqCst), 0, "{way}");
            assert_eq!(slot.submitted.load(SeqCst), 3, "{way}");
        });
    }
}

#[test]
fn a_stream_that_only_records_is_neither_delayed_nor_marked() {
    let rig = gated();
    with_heartbeat(&rig, || {
        let launcher = Launcher::begin(&rig, "captured", 100, "spin100");
        assert!(launcher.is_through(LONG));
        assert_eq!(rig.account.slot[0].device[0].submitted.load(SeqCst), 0);
    });
}

#[test]
fn a_host_without_a_heartbeat_holds_nobody_and_the_memory_limit_stays() {
    let rig = gated();
    rig.control
        .heartbeat
        .store(kernel::now() - 3_000_000_000, SeqCst);
    let launcher = Launcher::begin(&rig, "plain", 3, "spin0");
    assert!(launcher.is_through(LONG));
    let output = rig.program("ways").arg("opened").arg(rig.hook()).output();
    let said = super::rig::said(&output.expect("the program was compiled"));
    assert!(said.contains("got 67108864 code 2"), "{said}");
}

#[test]
fn a_gate_that_is_no_longer_in_use_lets_go_of_whoever_waits() {
    let rig = gated();
    with_heartbeat(&rig, || {
        let launcher = Launcher::begin(&rig, "plain", 3, "spin0");
        assert_eq!(launcher.says(Duration::from_millis(100)), None);
        rig.control.set(0, &terms(0, 64 * MIB));
        assert!(launcher.is_through(LONG));
    });
}

#[test]
fn no_more_than_a_little_is_queued_behind_an_open_gate() {
    let rig = gated();
    rig.control.device[0].gate_open.store(1, SeqCst);
    with_heartbeat(&rig, || {
        // 1,000 launches of 200 µs: unbounded, they would be queued within a few milliseconds.
        let launcher = Launcher::begin(&rig, "plain", 1000, "spin200");
        let slot = &rig.account.slot[0].device[0];
        let begun = std::time::Instant::now();
        let mut seen_done = 0;
        while seen_done < 20 && begun.elapsed() < LONG {
            let queued = rig.state.device[0]
                .busy_until
                .load(SeqCst)
                .saturating_sub(kernel::now());
            assert!(queued < 20_000_000, "{queued} ns are queued");
            seen_done = slot.finished.load(SeqCst);
            assert!(seen_done <= slot.submitted.load(SeqCst));
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(seen_done >= 20, "only {seen_done} were seen done");
        drop(launcher);
    });
}
