//! Runs our conformance program and the list of attacks against somebody else's limiter, when somebody
//! supplies its library, and prints both columns of the table that the manual shows:
//!
//! `FARDEL_PEER=/path/libvgpu.so FARDEL_PEER_ENVIRONMENT='CUDA_DEVICE_MEMORY_LIMIT=64m' \
//!  cargo test --test suite peer -- --ignored --nocapture`
//!
//! The library is preloaded, as such limiters are, with that environment, over the same fake driver;
//! FARDEL_PEER_LIFTED is what somebody inside would set to be rid of it. What is printed is ours; nothing of
//! the peer's is ever committed.

use std::path::Path;
use std::process::Command;

use super::memory::PATHS;
use super::rig::{MIB, Rig, said};

const LIMIT: u64 = 64 * MIB;
const PIECE: u64 = 8 * MIB;

/// How programs reach the driver, and what becomes of the environment in which a limiter is preloaded.
const ATTACKS: [(&str, Environment); 9] = [
    ("dlopen", Environment::AsGiven),
    ("lazy", Environment::AsGiven),
    ("deepbind", Environment::AsGiven),
    ("own-space", Environment::AsGiven),
    ("looked-up", Environment::AsGiven),
    ("looked-up-per-thread", Environment::AsGiven),
    ("looked-up-async", Environment::AsGiven),
    ("emptied", Environment::Emptied),
    ("variables", Environment::Lifted),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Environment {
    AsGiven,
    /// Nothing is preloaded any more.
    Emptied,
    /// The limiter's own variables say something else.
    Lifted,
}

/// What limits the program.
enum Limiter<'a> {
    Ours,
    Preloaded {
        library: &'a str,
        settings: &'a [(String, String)],
        lifted: &'a [(String, String)],
    },
}

fn settings(variable: &str, usual: &str) -> Vec<(String, String)> {
    let text = std::env::var(variable).unwrap_or_else(|_| usual.to_owned());
    text.split_whitespace()
        .filter_map(|setting| setting.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// The program under that limiter, the library found by name as programs find it.
fn limited(rig: &Rig, program: &str, limiter: &Limiter<'_>, environment: Environment) -> Command {
    let mut command = rig.program(program);
    command.env("FARDEL_CUDA", "libcuda.so.1");
    let folder = |path: &Path| path.to_path_buf();
    match limiter {
        Limiter::Ours => {
            command.env("LD_LIBRARY_PATH", folder(&rig.place.join("lib")));
            // What others listen to means nothing to ours.
            if environment == Environment::Lifted {
                command.env("CUDA_DEVICE_MEMORY_LIMIT", "0");
            }
        }
        Limiter::Preloaded {
            library,
            settings,
            lifted,
        } => {
            command.env("LD_LIBRARY_PATH", folder(&rig.place));
            if environment != Environment::Emptied {
                command
                    .env("LD_PRELOAD", library)
                    .envs(settings.iter().cloned());
            }
            if environment == Environment::Lifted {
                command.envs(lifted.iter().cloned());
            }
        }
    }
    command
}

/// What a path of the conformance program comes to.
fn conformance(path: &str, limiter: &Limiter<'_>) -> String {
    let rig = Rig::new(LIMIT);
    let output = limited(&rig, "conformance", limiter, Environment::AsGiven)
        .args([path, "1", "kill"])
        .args([LIMIT.to_string(), PIECE.to_string()])
        .output();
    verdict(&said(&output.expect("the program was compiled")))
}

/// What an attack comes to: the bytes it got, and whether that is within the limit.
fn attack(way: &str, environment: Environment, limiter: &Limiter<'_>) -> String {
    let rig = Rig::new(LIMIT);
    let output = limited(&rig, "ways", limiter, environment)
        .args([way, "libcuda.so.1"])
        .args([PIECE.to_string(), "64".to_owned()])
        .output();
    got(&said(&output.expect("the program was compiled")))
}

fn got(said: &str) -> String {
    let line = said.lines().find_map(|line| line.strip_prefix("got "));
    let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
    match words[..] {
        [bytes, "code", code] => {
            let bytes: u64 = bytes.parse().unwrap_or(u64::MAX);
            let word = match bytes {
                bytes if bytes > LIMIT => "passed",
                _ if code == "2" => "held",
                _ => "held, with another code",
            };
            format!(
                "{word}: {} of {} MiB, code {code}",
                bytes / MIB,
                LIMIT / MIB
            )
        }
        _ => said.lines().last().unwrap_or("no answer").to_owned(),
    }
}

/// The first thing that was not as it must be, or that all was.
fn verdict(said: &str) -> String {
    let wrong = said
        .lines()
        .find(|line| line.starts_with("WRONG") || line.starts_with("refused with"));
    match wrong {
        Some(line) => line.to_owned(),
        None if said.starts_with("exit status: 0") => "exact, code 2, all given back".to_owned(),
        None => said.lines().last().unwrap_or("no answer").to_owned(),
    }
}

#[test]
#[ignore = "measures another product: FARDEL_PEER names its library"]
fn the_peer_is_measured_on_nine_paths_and_with_every_attack() {
    let library = std::env::var("FARDEL_PEER").expect("FARDEL_PEER names a library to preload");
    let settings_given = settings("FARDEL_PEER_ENVIRONMENT", "");
    let lifted = settings(
        "FARDEL_PEER_LIFTED",
        "CUDA_DEVICE_MEMORY_LIMIT=0 CUDA_DEVICE_MEMORY_SHARED_CACHE=/tmp/elsewhere \
         GPU_CORE_UTILIZATION_POLICY=DISABLE",
    );
    let peer = Limiter::Preloaded {
        library: &library,
        settings: &settings_given,
        lifted: &lifted,
    };
    println!("| what | ours | the peer |\n|---|---|---|");
    for path in PATHS {
        let (ours, theirs) = (conformance(path, &Limiter::Ours), conformance(path, &peer));
        println!("| {path} | {ours} | {theirs} |");
    }
    for (way, environment) in ATTACKS {
        let ours = attack(way, environment, &Limiter::Ours);
        let theirs = attack(way, environment, &peer);
        println!("| {way} | {ours} | {theirs} |");
    }
}

#[test]
fn our_column_of_the_table_holds_in_every_row() {
    for path in PATHS {
        let ours = conformance(path, &Limiter::Ours);
        assert_eq!(ours, "exact, code 2, all given back", "{path}");
    }
    for (way, environment) in ATTACKS {
        let ours = attack(way, environment, &Limiter::Ours);
        assert_eq!(ours, "held: 64 of 64 MiB, code 2", "{way}");
    }
}

#[test]
fn a_limiter_that_does_nothing_is_seen_to_do_nothing() {
    // Any library can be preloaded; this one limits nobody.
    let nothing = Limiter::Preloaded {
        library: "libc.so.6",
        settings: &[],
        lifted: &[],
    };
    let theirs = attack("deepbind", Environment::AsGiven, &nothing);
    assert_eq!(theirs, "passed: 512 of 64 MiB, code 0");
    assert!(conformance("plain", &nothing).starts_with("WRONG"));
}

#[test]
fn the_verdict_on_a_peer_is_the_first_thing_that_is_wrong() {
    assert_eq!(
        verdict("exit status: 0\nok taken together: 1, wanted 1\n"),
        "exact, code 2, all given back"
    );
    assert_eq!(
        verdict("exit status: 1\nok a\nWRONG taken together: 8, wanted 1\nok b\n"),
        "WRONG taken together: 8, wanted 1"
    );
    assert_eq!(
        verdict("exit status: 101\nrefused with -1, not with 2\n"),
        "refused with -1, not with 2"
    );
    assert_eq!(
        got("exit status: 0\ngot 67108864 code -1\n"),
        "held, with another code: 64 of 64 MiB, code -1"
    );
}
