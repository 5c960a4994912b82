//! Holds our compiler of filters to libseccomp's: the same rules, told to it in its own words, and
//! both programs run on one interpreter over every call, architecture and argument that the rules
//! mention. A tool of development: nothing of libseccomp is ever part of the product.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use super::*;

/// Where a call's number ends for this comparison: well past the newest call there is.
const LAST_COMPARED: u32 = 600;

const ARCHITECTURE_I386: u32 = 0x4000_0003;

/// What the kernel would answer, for any program that it takes.
fn run(program: &[SockFilter], architecture: u32, call: u32, arguments: [u64; 2]) -> u32 {
    const JUMP: u16 = 0x05;
    const AND: u16 = 0x54;
    let mut data = [0u8; 64];
    data[0..4].copy_from_slice(&call.to_le_bytes());
    data[4..8].copy_from_slice(&architecture.to_le_bytes());
    data[16..24].copy_from_slice(&arguments[0].to_le_bytes());
    data[24..32].copy_from_slice(&arguments[1].to_le_bytes());
    let (mut held, mut at) = (0u32, 0usize);
    loop {
        let step = program[at];
        at += 1;
        let taken = match step.code {
            LOAD_WORD => {
                let from = step.value as usize;
                held = u32::from_le_bytes(data[from..from + 4].try_into().expect("four bytes"));
                continue;
            }
            AND => {
                held &= step.value;
                continue;
            }
            JUMP => {
                at += step.value as usize;
                continue;
            }
            RETURN => return step.value,
            JUMP_EQUAL => held == step.value,
            JUMP_GREATER => held > step.value,
            JUMP_GREATER_OR_EQUAL => held >= step.value,
            JUMP_ANY_BIT => held & step.value != 0,
            other => panic!("an instruction that neither compiler writes: {other:#x}"),
        };
        at += usize::from(if taken { step.on_true } else { step.on_false });
    }
}

/// Rules in libseccomp's words. It refuses the default action, here "allow", in a rule and compares
/// an argument once in each, so that "all but these" becomes many rules about single bits.
#[derive(Default)]
struct Rules(String);

impl Rules {
    fn always(&mut self, call: libc::c_long, action: u32) {
        writeln!(self.0, "{action} {call}").expect("text grows");
    }

    /// Where all bits of `mask` in the argument are those of `value`.
    fn when(&mut self, call: libc::c_long, argument: u32, mask: u32, value: u32, action: u32) {
        writeln!(self.0, "{action} {call} {argument} {mask} {value}").expect("text grows");
    }

    /// Where the argument is none of `allowed`, which lie below 32.
    fn unless_small(&mut self, call: libc::c_long, allowed: &[u32], action: u32) {
        for value in (0..32).filter(|value| !allowed.contains(value)) {
            self.when(call, 0, u32::MAX, value, action);
        }
        for bit in 5..32 {
            self.when(call, 0, 1 << bit, 1 << bit, action);
        }
    }

    /// Where the argument has a bit beyond `plain` and is not all ones.
    fn unless_plain(&mut self, call: libc::c_long, plain: u32, action: u32) {
        let beyond: Vec<u32> = (0..32).filter(|bit| plain & (1 << bit) == 0).collect();
        // Going around the other bits there is one that is set before one that is not, unless all
        // are set or none; and when all are set, a plain one is not.
        for (at, bit) in beyond.iter().enumerate() {
            let next = beyond[(at + 1) % beyond.len()];
            self.when(call, 0, 1 << bit | 1 << next, 1 << bit, action);
        }
        let set = 1 << beyond[0];
        for bit in (0..32).filter(|bit| plain & (1 << bit) != 0) {
            self.when(call, 0, set | 1 << bit, set, action);
        }
    }
}

fn rules(revealing: Revealing) -> Rules {
    let mut rules = Rules::default();
    for call in REFUSED {
        rules.always(*call, refuse(libc::EPERM));
    }
    rules.always(libc::SYS_clone3, refuse(libc::ENOSYS));
    if revealing == Revealing::ToShim {
        for call in ANSWERED {
            rules.always(call, NOTIFY);
        }
    }
    for call in LAST_REVIEWED_CALL + 1..=LAST_COMPARED {
        rules.always(call.into(), refuse(libc::ENOSYS));
    }
    for bit in (0..32).filter(|bit| NEW_NAMESPACES & (1 << bit) != 0) {
        rules.when(libc::SYS_clone, 0, 1 << bit, 1 << bit, refuse(libc::EPERM));
    }
    for call in [libc::SYS_socket, libc::SYS_socketpair] {
        rules.unless_small(call, &SOCKET_FAMILIES, refuse(libc::EAFNOSUPPORT));
    }
    assert_eq!(PERSONALITIES, [0, 0x8, 0x2_0000, 0x2_0008, u32::MAX]);
    rules.unless_plain(libc::SYS_personality, 0x2_0008, refuse(libc::EPERM));
    for request in TERMINAL_INJECTION {
        rules.when(libc::SYS_ioctl, 1, u32::MAX, request, refuse(libc::EPERM));
    }
    rules
}

/// The program libseccomp makes of the rules; nothing after saying what is missing here.
fn theirs(test: &str, rules: &Rules) -> Option<Vec<SockFilter>> {
    if !std::path::Path::new("/usr/include/seccomp.h").exists() {
        skips::skip(test, "needs libseccomp's headers (package libseccomp-dev)");
        return None;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let (source, program) = (
        directory.path().join("oracle.c"),
        directory.path().join("oracle"),
    );
    std::fs::write(&source, include_str!("oracle.c")).expect("written");
    let compiled = Command::new("cc")
        .args(["-O1", "-Wall", "-o"])
        .args([&program, &source])
        .arg("-lseccomp")
        .output();
    let Ok(compiled) = compiled else {
        skips::skip(test, "needs a C compiler (package build-essential)");
        return None;
    };
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let mut oracle = Command::new(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    // It reads everything before it writes anything.
    let mut input = oracle.stdin.take().expect("piped");
    input.write_all(rules.0.as_bytes()).expect("told");
    drop(input);
    let said = oracle.wait_with_output().expect("ended");
    assert!(
        said.status.success(),
        "{}",
        String::from_utf8_lossy(&said.stderr)
    );
    assert!(!said.stdout.is_empty() && said.stdout.len().is_multiple_of(8));
    let instructions = said.stdout.chunks_exact(8).map(|bytes| SockFilter {
        code: u16::from_le_bytes([bytes[0], bytes[1]]),
        on_true: bytes[2],
        on_false: bytes[3],
        value: u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes")),
    });
    Some(instructions.collect())
}

/// Arguments that the rules mention, their neighbours, every single bit, and each with high bits
/// that the kernel does not look at.
fn arguments() -> BTreeSet<u64> {
    let mentioned = SOCKET_FAMILIES
        .into_iter()
        .chain(PERSONALITIES)
        .chain(TERMINAL_INJECTION)
        .chain([NEW_NAMESPACES, !NEW_NAMESPACES, 0x7fff_ffff])
        .chain((0..32).map(|bit| 1 << bit))
        .chain((0..32).map(|bit| NEW_NAMESPACES & (1 << bit) | libc::SIGCHLD as u32));
    mentioned
        .flat_map(|value| [value.wrapping_sub(1), value, value.wrapping_add(1), !value])
        .flat_map(|value| [u64::from(value), u64::from(value) | 0xdead_beef_0000_0000])
        .collect()
}

/// Where ours and libseccomp's may differ: what both answer, and why that is meant.
fn meant(architecture: u32, call: u32, ours: u32, theirs: u32) -> bool {
    // Libseccomp takes an x32 call for one of a foreign architecture and kills. A program that
    // merely tries is told that there is no such call, as by a kernel without x32.
    let x32 = architecture == ARCHITECTURE_X86_64 && call & X32_BIT != 0;
    x32 && ours == refuse(libc::ENOSYS) && theirs == KILL_PROCESS
}

#[test]
fn the_filter_answers_as_libseccomps_does() {
    const NAME: &str = "the_filter_answers_as_libseccomps_does";
    let arguments = arguments();
    for revealing in [Revealing::ToShim, Revealing::Allowed] {
        let Some(theirs) = theirs(NAME, &rules(revealing)) else {
            return;
        };
        let ours = SeccompFilter::compile(revealing).program;
        let (mut compared, mut different, mut answers) = (0u32, 0u32, BTreeSet::new());
        for (architecture, bit) in [
            (ARCHITECTURE_X86_64, 0),
            (ARCHITECTURE_X86_64, X32_BIT),
            (ARCHITECTURE_I386, 0),
        ] {
            for call in (0..=LAST_COMPARED).map(|number| number | bit) {
                for given in arguments
                    .iter()
                    .flat_map(|value| [[*value, 0], [0, *value]])
                {
                    let (own, other) = (
                        run(&ours, architecture, call, given),
                        run(&theirs, architecture, call, given),
                    );
                    compared += 1;
                    answers.insert(own);
                    if own != other {
                        different += 1;
                        assert!(
                            meant(architecture, call, own, other),
                            "call {call:#x} of {architecture:#x} with {given:#x?}: ours {own:#x}, libseccomp's {other:#x}"
                        );
                    }
                }
            }
        }
        // Every x32 call differs as meant, and nothing else.
        assert_eq!(different, compared / 3);
        let asked = usize::from(revealing == Revealing::ToShim);
        assert_eq!(
            answers.len(),
            5 + asked,
            "allow, kill and three refusals at least: {answers:#x?}"
        );
    }
}

#[test]
fn compiling_a_filter_costs_nothing_to_speak_of() {
    // Libseccomp's compiler costs about 17 milliseconds for a profile of this kind, twice what
    // everything else of a start costs. The bound is a twentieth of that, on a busy machine.
    const TIMES: u32 = 200;
    let used = || {
        // SAFETY: an all-zero structure is valid, and the call fills it.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the structure outlives the call.
        unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
        let micros = |time: libc::timeval| time.tv_sec * 1_000_000 + time.tv_usec;
        micros(usage.ru_utime) + micros(usage.ru_stime)
    };
    let before = used();
    for _ in 0..TIMES {
        std::hint::black_box(SeccompFilter::compile(Revealing::ToShim));
    }
    let each = (used() - before) / i64::from(TIMES);
    assert!(each < 850, "{each} microseconds of processor time each");
}
