//! Runs our conformance program against somebody else's limiter, when somebody supplies its library:
//!
//! `FARDEL_PEER=/path/libvgpu.so FARDEL_PEER_ENVIRONMENT='CUDA_DEVICE_MEMORY_LIMIT=64m' \
//!  cargo test --test suite peer -- --ignored --nocapture`
//!
//! The library is preloaded, as such limiters are, with that environment, over the same fake driver. What
//! is printed is ours; nothing of the peer's is ever committed.

use super::memory::PATHS;
use super::rig::{MIB, Rig, said};

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
fn the_peer_is_measured_on_nine_paths_and_with_an_emptied_environment() {
    let library = std::env::var("FARDEL_PEER").expect("FARDEL_PEER names a library to preload");
    let environment = std::env::var("FARDEL_PEER_ENVIRONMENT").unwrap_or_default();
    let settings: Vec<(&str, &str)> = environment
        .split_whitespace()
        .filter_map(|setting| setting.split_once('='))
        .collect();
    let measure = |path: &str, preloaded: bool| {
        let rig = Rig::new(64 * MIB);
        let mut program = rig.program("conformance");
        program
            .env("FARDEL_CUDA", "libcuda.so.1")
            .env("LD_LIBRARY_PATH", &rig.place)
            .args([path, "1", "kill"])
            .args([(64 * MIB).to_string(), (8 * MIB).to_string()]);
        if preloaded {
            program.env("LD_PRELOAD", &library).envs(settings.clone());
        }
        verdict(&said(&program.output().expect("the program was compiled")))
    };
    for path in PATHS {
        println!("{path:14}{}", measure(path, true));
    }
    println!("{:14}{}", "emptied", measure("plain", false));
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
}
