//! The gate between host and container in every order of events: the code of whoever waits is the hook's
//! own, the host's steps are those of `node::gpu::time_slicing` in their order, and a sleep is the kernel's: it
//! looks at the word and goes to sleep in one step, or is woken. No time passes but where a model says so.
//! Faults are planted to see that they are found.

use std::sync::atomic::{AtomicBool, Ordering};

use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use crate::region::{Gate, MODE_OFF, MODE_WINDOW, STALE_HEARTBEAT, wait_at};

/// How somebody sleeps.
#[derive(Clone, Copy, PartialEq)]
enum Sleep {
    /// Until somebody wakes it: what is lost is lost for good.
    Woken,
    /// Not at all, as if each sleep ended by itself at once.
    Timed,
    /// Planted: looks at the word first, and goes to sleep afterwards.
    LooksTooEarly,
}

struct GateModel {
    open: AtomicU32,
    mode: AtomicU32,
    heartbeat: AtomicU64,
    clock: AtomicU64,
    /// The kernel's queue of sleepers, and the lock it takes to look at the word.
    queue: Mutex<FutexQueue>,
    bell: Condvar,
    sleep: Sleep,
    /// Somebody slept on. Not one of the words whose orders are tried.
    stuck: AtomicBool,
}

#[derive(Default)]
struct FutexQueue {
    wakes: u32,
    /// The host is through with everything, so whoever sleeps on would sleep for ever.
    over: bool,
}

impl GateModel {
    fn wake(&self) {
        self.queue.lock().expect("nobody dies holding it").wakes += 1;
        self.bell.notify_all();
    }

    /// The host opens a gate.
    fn open(&self) {
        self.open.store(1, SeqCst);
        self.wake();
    }

    fn close(&self) {
        self.open.store(0, SeqCst);
    }

    fn doze(&self, first: impl FnOnce() -> bool) {
        let mut queue = self.queue.lock().expect("nobody dies holding it");
        if !first() {
            return;
        }
        let before = queue.wakes;
        while queue.wakes == before && !queue.over {
            queue = self.bell.wait(queue).expect("nobody dies holding it");
        }
        if queue.wakes == before {
            self.stuck.store(true, Ordering::SeqCst);
        }
    }
}

impl Gate for GateModel {
    fn is_open(&self) -> bool {
        self.open.load(SeqCst) != 0
    }

    fn is_in_use(&self) -> bool {
        !self.stuck.load(Ordering::SeqCst) && self.mode.load(SeqCst) == MODE_WINDOW
    }

    fn silence(&self) -> u64 {
        let clock = self.clock.load(SeqCst);
        clock.saturating_sub(self.heartbeat.load(SeqCst))
    }

    fn sleep(&self) {
        match self.sleep {
            Sleep::Woken => self.doze(|| !self.is_open()),
            Sleep::LooksTooEarly => {
                if !self.is_open() {
                    self.doze(|| true);
                }
            }
            Sleep::Timed => thread::yield_now(),
        }
    }
}

/// Whether, in any order of events, one of so many who wait sleeps for ever though the host has done all of
/// `host`. A waiter that neither sleeps nor passes makes the model itself fail.
fn stuck(sleep: Sleep, waiters: usize, host: impl Fn(&GateModel) + Send + Sync + 'static) -> bool {
    static FOUND: AtomicBool = AtomicBool::new(false);
    static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _alone = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(|broken| broken.into_inner());
    FOUND.store(false, Ordering::SeqCst);
    let mut orders = loom::model::Builder::new();
    // Every order with up to so many changes of thread where none had to be: what is wrong here shows
    // with one or two.
    orders.preemption_bound = Some(3);
    orders.check(move || {
        let model = Arc::new(GateModel {
            open: AtomicU32::new(0),
            mode: AtomicU32::new(MODE_WINDOW),
            heartbeat: AtomicU64::new(1),
            clock: AtomicU64::new(1),
            queue: Mutex::default(),
            bell: Condvar::new(),
            sleep,
            stuck: AtomicBool::new(false),
        });
        let there: Vec<_> = (0..waiters)
            .map(|_| {
                let model = Arc::clone(&model);
                thread::spawn(move || wait_at(&*model))
            })
            .collect();
        host(&model);
        model.queue.lock().expect("nobody dies holding it").over = true;
        model.bell.notify_all();
        for waiter in there {
            waiter.join().expect("through");
        }
        if model.stuck.load(Ordering::SeqCst) {
            FOUND.store(true, Ordering::SeqCst);
        }
    });
    FOUND.load(Ordering::SeqCst)
}

#[test]
fn no_wake_up_is_lost_between_the_look_and_the_sleep() {
    assert!(!stuck(Sleep::Woken, 2, GateModel::open));
}

#[test]
fn whoever_missed_a_short_turn_is_let_through_by_the_next() {
    let twice = |model: &GateModel| {
        model.open();
        model.close();
        model.open();
    };
    assert!(!stuck(Sleep::Woken, 1, twice));
}

#[test]
fn a_gate_that_goes_out_of_use_keeps_nobody() {
    // As turns end for a container: first the mode, then the gate, then whoever sleeps there.
    let over = |model: &GateModel| {
        model.mode.store(MODE_OFF, SeqCst);
        model.open();
    };
    assert!(!stuck(Sleep::Woken, 2, over));
}

#[test]
fn a_host_that_dies_with_the_gate_closed_keeps_nobody() {
    // Nobody is stuck who does not sleep; the model fails where somebody goes round for ever.
    let dies = |model: &GateModel| {
        model.heartbeat.store(2, SeqCst);
        model.close();
        model.clock.store(2 + STALE_HEARTBEAT, SeqCst);
    };
    assert!(!stuck(Sleep::Timed, 1, dies));
}

#[test]
fn the_next_host_lets_through_whoever_the_last_one_left_behind() {
    // Killed between the word and the wake-up; its successor sets the word anew and wakes again.
    let successor = |model: &GateModel| {
        model.open.store(1, SeqCst);
        model.close();
        model.heartbeat.store(3, SeqCst);
        model.open();
    };
    assert!(!stuck(Sleep::Woken, 1, successor));
}

#[test]
fn planted_faults_of_the_gate_are_found() {
    let woken_before_the_word = |model: &GateModel| {
        model.wake();
        model.open.store(1, SeqCst);
    };
    assert!(stuck(Sleep::Woken, 1, woken_before_the_word));
    // The look and the sleep are two steps.
    assert!(stuck(Sleep::LooksTooEarly, 1, GateModel::open));
    let nobody_told = |model: &GateModel| model.mode.store(MODE_OFF, SeqCst);
    assert!(stuck(Sleep::Woken, 1, nobody_told));
    let closed_again = |model: &GateModel| {
        model.open();
        model.close();
    };
    assert!(stuck(Sleep::Woken, 1, closed_again));
}
