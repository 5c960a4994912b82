//! Two programs in processes of their own, each behind its hook on the fake driver, and the product's own
//! thread giving them turns: the one with the larger share gets more. Says nothing of how exact that is;
//! the arbiter's model and `node::gpu::time_slicing` do, in virtual time.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use node::gpu::arbiter::Mode;
use node::gpu::inject::{InjectedSlice, Pages};
use node::gpu::region::{DeviceTerms, MODE_OFF, MODE_WINDOW};
use node::gpu::time_slicing::{Seat, TimeSlicer, now};
use rules::names::{ContainerName, SessionId};

use super::rig::{MIB, Rig, state};

/// Longer than anything here takes on a loaded machine; only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Device time that both together have to use before anybody compares.
const ENOUGH: u64 = 1_500_000_000;

struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn launcher(rig: &Rig, count: u32, kernel: &str) -> Program {
    let child = rig
        .program("launcher")
        .args(["plain", &count.to_string(), kernel])
        .stdout(Stdio::null())
        .spawn()
        .expect("the program was compiled");
    Program(child)
}

fn name(number: u128) -> ContainerName {
    ContainerName {
        session: SessionId(uuid::Uuid::from_u128(number)),
        incarnation: 1,
        index: 0,
    }
}

/// The host's side of a rig's pages.
fn seat(rig: &Rig, share_milli: u32) -> Seat {
    let slice = InjectedSlice {
        card: 0,
        terms: DeviceTerms {
            uuid: state::uuid(0),
            mem_limit: 64 * MIB,
            mem_overhead: 0,
            share_milli,
            mode: MODE_OFF,
        },
    };
    Seat {
        pages: Arc::new(Pages::make(&rig.place, &[slice]).expect("the rig has them")),
        at: 0,
        share_milli,
    }
}

/// Device time that a program was given so far.
fn used(rig: &Rig, program: &Program) -> u64 {
    rig.state
        .row
        .iter()
        .filter(|row| row.pid.load(SeqCst) == program.0.id())
        .map(|row| row.submitted_nanoseconds.load(SeqCst))
        .sum()
}

#[test]
fn of_two_programs_the_one_with_the_larger_share_gets_more() {
    let small = Rig::new(64 * MIB);
    let large = Rig::beside(&small, 64 * MIB);
    let mut turns = TimeSlicer::new(Mode::Hard);
    turns.take(name(1), seat(&small, 300)).expect("a thread");
    turns.take(name(2), seat(&large, 700)).expect("a thread");
    assert_eq!(small.control.device[0].mode.load(SeqCst), MODE_WINDOW);
    let programs = [
        launcher(&small, 1_000_000, "spin500"),
        launcher(&large, 1_000_000, "spin500"),
    ];
    let parts = parts_of_time([&small, &large], &programs);
    assert!(parts[0] < parts[1], "{parts:?}");
    assert!(parts[0] <= MAX_PART_OF_300, "{parts:?}");
}

/// What a share of 300 may get of the time at most. A gate that closes late, since the processor is busy, lets it
/// have more for a moment and gives it less afterwards: only a longer time shows the share.
const MAX_PART_OF_300: f64 = 0.4;

/// Parts of the time that two programs get of the device beside one another, from when both are there: over the
/// first [`ENOUGH`], or over so much more, within [`TIMEOUT`], as the first needs to come down to
/// [`MAX_PART_OF_300`] and below the second: a busy machine wakes either of them late for a while.
fn parts_of_time(rigs: [&Rig; 2], programs: &[Program; 2]) -> [f64; 2] {
    let now = || [0, 1].map(|at| used(rigs[at], &programs[at]));
    let begun = Instant::now();
    while now().contains(&0) {
        assert!(
            begun.elapsed() < TIMEOUT,
            "not both got a turn: {:?}",
            now()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    let first = now();
    let since = Instant::now();
    loop {
        std::thread::sleep(Duration::from_millis(20));
        let now = now();
        let got = [now[0] - first[0], now[1] - first[1]];
        let parts = got.map(|part| part as f64 / since.elapsed().as_nanos() as f64);
        let enough = got[0] + got[1] >= ENOUGH;
        let out_of_time = begun.elapsed() >= TIMEOUT;
        assert!(enough || !out_of_time, "only {got:?} ns within a minute");
        let fair = parts[0] <= MAX_PART_OF_300 && parts[0] < parts[1];
        if enough && (fair || out_of_time) {
            println!("{parts:.3?} of the time");
            return parts;
        }
    }
}

#[test]
fn a_program_with_64_streams_gets_no_more_than_its_share() {
    let small = Rig::new(64 * MIB);
    let large = Rig::beside(&small, 64 * MIB);
    let mut turns = TimeSlicer::new(Mode::Hard);
    turns.take(name(1), seat(&small, 300)).expect("a thread");
    turns.take(name(2), seat(&large, 700)).expect("a thread");
    let many = small
        .program("launches")
        .arg("many")
        .stdout(Stdio::null())
        .spawn();
    let programs = [
        Program(many.expect("the program was compiled")),
        launcher(&large, 1_000_000, "spin500"),
    ];
    let parts = parts_of_time([&small, &large], &programs);
    assert!(parts[0] <= MAX_PART_OF_300, "{parts:?}");
}

#[test]
fn a_program_alone_is_held_to_its_share_and_let_go_when_it_has_all() {
    let rig = Rig::new(64 * MIB);
    let mut turns = TimeSlicer::new(Mode::Hard);
    turns.take(name(1), seat(&rig, 200)).expect("a thread");
    // 400 ms of work: two seconds at a fifth of the time, less what it may take at once and what is
    // queued at the end.
    let begun = Instant::now();
    let mut program = launcher(&rig, 800, "spin500");
    assert!(program.0.wait().expect("it ends").success());
    let took = begun.elapsed();
    println!("{took:?} at a fifth");
    assert!(took > Duration::from_millis(1000), "{took:?} at a fifth");
    turns.take(name(1), seat(&rig, 1000)).expect("a thread");
    assert_eq!(rig.control.gated.load(SeqCst), 0);
    let begun = Instant::now();
    let mut program = launcher(&rig, 400, "spin500");
    assert!(program.0.wait().expect("it ends").success());
    println!("{:?} with all", begun.elapsed());
}

/// A launcher that has come to where it says `waited`.
fn waited(rig: &Rig, words: [&str; 4]) -> Program {
    come_to(rig, "launcher", &words, "waited")
}

/// A program that has come to where it says that.
fn come_to(rig: &Rig, name: &str, words: &[&str], wanted: &str) -> Program {
    let mut command = rig.program(name);
    command.args(words).stdout(Stdio::piped());
    let mut program = Program(command.spawn().expect("the program was compiled"));
    let out = program.0.stdout.take().expect("it is piped");
    let said = BufReader::new(out)
        .lines()
        .map_while(Result::ok)
        .find(|line| line == wanted);
    assert!(said.is_some(), "it ended before");
    program
}

/// A program of `launches` that is through with that case, on so many devices whose gates are open.
fn case(devices: usize, name: &str) -> (Rig, Program) {
    let rig = Rig::with(devices, 8192 * MIB, 64 * MIB);
    rig.control.heartbeat.store(now(), SeqCst);
    for at in 0..devices {
        rig.control.device[at].gate_open.store(1, SeqCst);
        rig.control.set_mode(at, MODE_WINDOW);
    }
    let program = come_to(&rig, "launches", &[name], "ready");
    (rig, program)
}

/// Launches that went to the device, and those that are known to be done.
fn told(rig: &Rig) -> [u64; 2] {
    told_of(rig, 0)
}

fn told_of(rig: &Rig, device: usize) -> [u64; 2] {
    let slot = &rig.account.slot[0].device[device];
    [&slot.submitted, &slot.finished].map(|word| word.load(SeqCst))
}

#[test]
fn whoever_waits_for_the_device_says_when_its_work_is_done() {
    let rig = Rig::new(64 * MIB);
    let mut turns = TimeSlicer::new(Mode::Hard);
    turns.take(name(1), seat(&rig, 500)).expect("a thread");
    let program = waited(&rig, ["plain", "40", "spin1000", "wait"]);
    // It launches nothing more, and is not at the gate.
    assert_eq!(told(&rig), [40, 40]);
    let slot = &rig.account.slot[0].device[0];
    assert_eq!(slot.watching.load(SeqCst), 0);
    drop(program);
}

#[test]
fn work_of_another_stream_is_not_done_because_one_was_waited_for() {
    let rig = Rig::new(64 * MIB);
    let mut turns = TimeSlicer::new(Mode::Hard);
    turns.take(name(1), seat(&rig, 500)).expect("a thread");
    let program = waited(&rig, ["two", "1", "spin20000000", "wait"]);
    let [sent, done] = told(&rig);
    assert_eq!(sent, 2);
    assert!(done < 2, "twenty seconds have not gone by");
    drop(program);
}

#[test]
fn a_launch_counts_for_the_device_of_the_context_that_it_goes_to() {
    let (rig, program) = case(2, "contexts");
    assert_eq!([told_of(&rig, 0)[0], told_of(&rig, 1)[0]], [6, 19]);
    drop(program);
}

#[test]
fn a_launch_into_a_stream_of_another_context_counts_where_the_stream_is() {
    let (rig, program) = case(2, "elsewhere");
    assert_eq!([told_of(&rig, 0), told_of(&rig, 1)], [[41, 41], [0, 0]]);
    drop(program);
}

#[test]
fn what_is_launched_beside_and_after_a_recording_counts_and_what_is_recorded_does_not() {
    let (rig, program) = case(1, "recording");
    assert_eq!(told(&rig)[0], 50);
    drop(program);
}

#[test]
fn work_of_another_threads_own_stream_is_not_done_because_one_was_waited_for() {
    let (rig, program) = case(1, "threads");
    let [sent, done] = told(&rig);
    assert_eq!(sent, 2);
    assert!(done < 2, "a minute has not gone by");
    drop(program);
}

#[test]
fn work_of_a_stream_that_ended_is_not_done_because_of_that() {
    let (rig, program) = case(1, "ended");
    let [sent, done] = told(&rig);
    assert_eq!(sent, 2);
    assert!(done < 2, "a minute has not gone by");
    drop(program);
}

#[test]
fn a_thousand_streams_are_all_counted_and_all_done() {
    let (rig, program) = case(1, "crowd");
    assert_eq!(told(&rig), [1000, 1000]);
    drop(program);
}
