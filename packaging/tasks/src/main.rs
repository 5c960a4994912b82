//! `cargo ci quick | full | release | nightly`: the stages of the gate, one after the other, each timed.
//! Knows what is run and in which order; every stage's own file knows how. Never changes the tree.

mod audit;
mod browser;
mod budgets;
mod contents;
mod copyright;
mod deb;
mod debian;
mod environments;
mod failure;
mod figures;
mod first_visit;
mod lint;
mod package;
mod packages;
mod program;
mod real_apps;
mod requests;
mod rpm;
mod sbom;
mod skips;
mod slowest;
mod slurm;
mod stage;
mod start;
mod trace_day;
mod twice;
mod user;
mod vendored;
mod vm;

use std::panic::resume_unwind;
use std::path::Path;
use std::process::ExitCode;
use std::thread;

use failure::Failure;
use program::Program;
use stage::{Budget, Gate};

const USAGE: &str = "\
usage: cargo ci quick | full | release | nightly [--tested [--linted]]
       cargo ci beside
       cargo ci package
       cargo ci twice
       cargo ci environments
       cargo ci requests
       cargo ci apps
       cargo ci shows [STAGE…]
       cargo ci slurm [fifo|fair]
       cargo ci vm …
       cargo ci rpm [--check FILE]
       cargo ci deb [--version X] [--binary FILE] [--into FOLDER]
  quick     fmt, clippy with warnings denied, tests, template lint, packages
  full      quick + list of skips, static check, bytes of a first visit, browser suite beside the tests as an
            ordinary user, all on the build that the tests made; CPU seconds over their budgets are told
  beside    what compiles while tests run: clippy, and the tests of packages that `cargo test` leaves out
  release   release build, static check, Debian roots, bytes, the runtime's tests of control groups on cgroup v2
            (in the vm), the package and its life in the roots and in the vm, an air gap, a power cut, and what
            pages cost
  nightly   full + release + every page and whatever opens in every language and colour scheme, all of the runtime's tests under
            Debian's own kernel, several processors, a cluster of three, the air gap in the next Debian, a lost machine
            of full size, all kinds of trouble in the vm, long simulation, a crowd held to its times, half an hour
            of generated requests, memory over an hour, the release and the environments built twice, what `shows` and
            `apps` do; CPU seconds are held to their budgets
  vm        a Debian with systemd in a virtual machine; alone, it says how
  package   the stages of the package alone, on the release build
  twice     the release and its package built again from a clone elsewhere: the same bytes
  environments  Python, R, C++ and a desktop built of their recipes, twice each, and a line run in a session of each; needs
            a network
  requests  generated requests alone, on the release build; FARDEL_REQUESTS_SECONDS and FARDEL_SEED say how long and
            from which seed
  apps      JupyterLab and five other apps as their makers ship them, and a desktop of its recipe, installed, opened and used
            in a browser, and forty JupyterLabs while the server is killed; on the release build, some fifty minutes
  shows     what is promised of a large site: ten thousand seeds, ten thousand races for a path of a folder, folders of
            1 GiB, ten million rows of the audit log, classes of 80 and 100, pages of 500 users, files of 20 GB by a
            browser, the starts that seven days tell, a catalog of 2,000 users while 50 click, an image of 2 GB of a
            session; on the release build, some two hours; with STAGE only
            those in whose name one of the words stands
  slurm     a day of 2,000 jobs under Debian's own Slurm and under the release build's scheduler, with the same figures
            of both, of which none may be behind; some 25 minutes for each order
  deb       the Debian package of the release build; its path is the last line
  rpm       the same as an .rpm, by nfpm; its path is the last line; with --check it is made of a binary
            that was built already, looked at, installed into a root and removed
  --tested  `cargo test` has just run with the same FARDEL_SKIPS: do not run it again
  --linted  `beside` has just run: no clippy again";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["vm", "guest", rest @ ..] = words.as_slice() {
        return match vm::guest(rest) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                println!("{failure}");
                ExitCode::FAILURE
            }
        };
    }
    let came_from = match std::env::current_dir().and_then(|folder| enter_root().map(|()| folder)) {
        Ok(folder) => folder,
        Err(error) => {
            eprintln!("cannot enter the root of the tree: {error}");
            return ExitCode::FAILURE;
        }
    };
    if let ["vm", rest @ ..] = words.as_slice() {
        return match vm::command(rest, &came_from) {
            Ok(code) => ExitCode::from(code),
            Err(failure) => {
                eprintln!("vm: {failure}");
                ExitCode::FAILURE
            }
        };
    }
    if let ["deb", rest @ ..] = words.as_slice() {
        return match deb::command(rest, &came_from) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                eprintln!("deb: {failure}");
                ExitCode::FAILURE
            }
        };
    }
    if let ["slurm", rest @ ..] = words.as_slice() {
        return match slurm::command(rest) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                eprintln!("slurm: {failure}");
                ExitCode::FAILURE
            }
        };
    }
    if let ["rpm", rest @ ..] = words.as_slice() {
        let done = match rest {
            [] => rpm::command(),
            ["--check", binary] => rpm::check(&came_from.join(binary)),
            _ => Err(Failure::new(USAGE)),
        };
        return match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                eprintln!("rpm: {failure}");
                ExitCode::FAILURE
            }
        };
    }
    if let ["shows", wanted @ ..] = words.as_slice() {
        let mut gate = Gate::of(wanted);
        release(&mut gate, shows);
        return gate.close(Budget::Told);
    }
    let (level, tested, linted) = match words.as_slice() {
        [level] => (*level, false, false),
        [level, "--tested"] => (*level, true, false),
        [level, "--tested", "--linted"] => (*level, true, true),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    let depth = match level {
        "quick" => 0,
        "beside" => {
            let mut gate = Gate::new();
            beside(&mut gate);
            return gate.close(Budget::Told);
        }
        "package" => {
            let mut gate = Gate::new();
            release(&mut gate, package_stages);
            return gate.close(Budget::Told);
        }
        "environments" => {
            let mut gate = Gate::new();
            release(&mut gate, environment_stage);
            return gate.close(Budget::Told);
        }
        "requests" => {
            let mut gate = Gate::new();
            release(&mut gate, |gate, binary| {
                gate.stage("generated requests", || requests::generated(binary));
            });
            return gate.close(Budget::Told);
        }
        "apps" => {
            let mut gate = Gate::new();
            release(&mut gate, apps_stage);
            return gate.close(Budget::Told);
        }
        "twice" => {
            let mut gate = Gate::new();
            release(&mut gate, twice_stage);
            return gate.close(Budget::Told);
        }
        "release" => {
            let mut gate = Gate::new();
            release(&mut gate, shipped);
            return gate.close(Budget::Told);
        }
        "full" => 1,
        "nightly" => 2,
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    let mut gate = Gate::new();
    quick(&mut gate, tested, linted);
    if depth >= 1 {
        full(&mut gate);
    }
    if depth < 2 {
        return gate.close(Budget::Told);
    }
    nightly(&mut gate);
    gate.close(Budget::Held)
}

/// Every stage names files from the root of the tree.
fn enter_root() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("this package lies two folders below the root");
    std::env::set_current_dir(root)
}

/// With `linted`, clippy has passed already: [`beside`] ran it.
fn quick(gate: &mut Gate, tested: bool, linted: bool) {
    gate.stage("fmt", || Program::cargo().words("fmt --all --check").run());
    gate.stage("template lint", lint::templates);
    gate.stage("packages", packages::check);
    if !linted {
        clippy(gate);
    }
    if !tested {
        gate.stage("cargo test", || {
            Program::cargo().words("test --workspace --locked").run()
        });
    }
}

fn clippy(gate: &mut Gate) {
    gate.stage("clippy", || {
        Program::cargo()
            .words("clippy --workspace --all-targets --locked -- -D warnings")
            .run()
    });
}

/// What compiles while `cargo test` runs what it has built: tests wait for seconds, and this goes between.
fn beside(gate: &mut Gate) {
    clippy(gate);
    gate.stage("tests of all packages", || user::built_tests().map(drop));
}

/// Every failure of two, the first one first.
fn both(first: Result<(), Failure>, second: Result<(), Failure>) -> Result<(), Failure> {
    match (first, second) {
        (Err(first), Err(second)) => Err(Failure::new(format!("{first}\n{second}"))),
        (first, second) => first.and(second),
    }
}

/// Neither compiles anything again nor starts a machine: the gate has an hour on two slow processors.
fn full(gate: &mut Gate) {
    gate.stage("list of skips", || skips::compare(skips::Who::Root));
    match program::built("debug") {
        Ok(binary) => {
            gate.stage("static binary", || debian::is_static(&binary));
            gate.stage("first visit", || first_visit::check_visit(&binary));
            // Both wait for seconds: what one computes goes between.
            gate.stage("browser and ordinary user", || {
                thread::scope(|scope| {
                    let user = scope
                        .spawn(|| user::built_tests().and_then(|tests| user::run_tests(&tests)));
                    let browsed = browser::run(&binary);
                    let ran = user.join().unwrap_or_else(|panic| resume_unwind(panic));
                    both(browsed, ran)
                })
            });
        }
        Err(failure) => gate.stage("find the binary", || Err(failure)),
    }
}

/// What is promised of the build that is shipped.
fn shipped(gate: &mut Gate, binary: &Path) {
    of_the_binary(gate, binary);
    gate.stage("runtime on cgroup v2", || vm::suite::stage(binary));
    package_stages(gate, binary);
    vm::stages(gate, binary);
    gate.stage("browser suite, costs", || browser::costs(binary));
}

/// Builds the product as it is shipped and goes on with what needs it.
fn release(gate: &mut Gate, with: impl FnOnce(&mut Gate, &Path)) {
    gate.stage(stage::BUILD, || {
        Program::cargo().words("build --release --locked").run()
    });
    match program::built("release") {
        Ok(binary) => with(gate, &binary),
        Err(failure) => gate.stage("find the binary", || Err(failure)),
    }
}

fn of_the_binary(gate: &mut Gate, binary: &Path) {
    gate.stage("static binary", || debian::is_static(binary));
    gate.stage("Debian roots", || debian::starts_in_each_root(binary));
    gate.stage("first answer", || start::answers(binary));
    gate.stage("bytes", || first_visit::check_bytes(binary));
}

fn package_stages(gate: &mut Gate, binary: &Path) {
    gate.stage("package", || package::check_deb(binary));
    gate.stage("rpm", || rpm::check(binary));
    gate.stage("package in Debian roots", || {
        package::lives_in_each_root(binary)
    });
}

/// How long the nightly simulation plays seeds; it says how many. Longer: the night ends before the nightly does.
/// Shorter: a fault of one seed in thousands stays for another night.
const LONG_SIMULATION_MINUTES: &str = "30";

/// Seeds by which the promises of the queue are held, by the rules alone; rounds in which a session races the server for a
/// path of a folder; and shares of one folder that are asked for. Fewer: a fault of one in thousands stays.
const TEN_THOUSAND: &str = "10000";

/// Files of one archive, and of one folder whose pages are looked at. Fewer: the promise is of a million.
const A_MILLION: &str = "1000000";

/// MiB that the folders of each of two users may take. Lower: what a file system keeps for itself is more of it.
const ONE_GIB: &str = "1024";

/// GB of each file that a browser uploads. Fewer: the promise is of twenty.
const TWENTY: &str = "20";

/// Students of the class that comes in by CSV. Fewer: the promise is of eighty.
const EIGHTY: &str = "80";

/// What is promised of a large site; each stage says its figures.
fn shows(gate: &mut Gate, binary: &Path) {
    gate.stage("ten thousand seeds", || {
        Program::cargo()
            .words("test --release --locked --test suite -- --nocapture")
            .words("no_stranger_no_sum_no_circle reserved_devices who_is_preempted_said_so")
            .variable("FARDEL_RULE_SEEDS", TEN_THOUSAND)
            .run()
    });
    gate.stage("ten thousand races", || {
        Program::cargo()
            .words("test --release --locked -p store no_operation_follows -- --nocapture")
            .variable("FARDEL_RACES", TEN_THOUSAND)
            .run()
    });
    gate.stage("ten thousand shares", || {
        Program::cargo()
            .words("test --release --locked -p server more_shares_than_a_folder -- --nocapture")
            .variable("FARDEL_SHARES", TEN_THOUSAND)
            .run()
    });
    gate.stage("an archive of a million files", || {
        Program::cargo()
            .words("test --release --locked -p store an_archive_of_very_many -- --nocapture")
            .variable("FARDEL_ARCHIVED", A_MILLION)
            .run()
    });
    gate.stage("folders of 1 GiB each", || {
        Program::cargo()
            .words(
                "test --release --locked --test suite a_session_and_an_upload_stop -- --nocapture",
            )
            .variable("FARDEL_FOLDER_MIB", ONE_GIB)
            .run()
    });
    gate.stage("folders of 1 GiB in the vm", vm::folder_limits);
    gate.stage("audit log at its size", || audit::at_size(binary));
    gate.stage("a class of eighty", || {
        Program::cargo()
            .words("test --release --locked --test suite j3_a_class -- --nocapture")
            .variable("FARDEL_STUDENTS", EIGHTY)
            .run()
    });
    gate.stage("browser suite, crowded", || browser::crowded(binary));
    gate.stage("browser suite, a folder of a million files", || {
        browser::large_folders(binary, A_MILLION)
    });
    gate.stage("browser suite, files of 20 GB", || {
        browser::large_uploads(binary, TWENTY)
    });
    gate.stage("starts that are told", || trace_day::forecasts(binary));
    gate.stage("figures of a large site", || {
        figures::held(binary, "place site class commit")
    });
}

fn twice_stage(gate: &mut Gate, binary: &Path) {
    gate.stage("built twice", || twice::compare(binary));
}

fn environment_stage(gate: &mut Gate, binary: &Path) {
    gate.stage("environments", || environments::build(binary));
}

fn apps_stage(gate: &mut Gate, binary: &Path) {
    gate.stage("real apps", || real_apps::opened(binary));
}

fn nightly(gate: &mut Gate) {
    release(gate, shipped);
    match program::built("release") {
        Ok(binary) => {
            twice_stage(gate, &binary);
            environment_stage(gate, &binary);
            gate.stage("generated requests", || requests::generated(&binary));
            shows(gate, &binary);
            gate.stage("browser suite, every page", || browser::every_page(&binary));
            gate.stage("browser suite, openings", || browser::openings(&binary));
            apps_stage(gate, &binary);
        }
        Err(failure) => gate.stage("find the binary", || Err(failure)),
    }
    gate.stage("runtime on Debian's kernel", vm::suite::stage_emulated);
    gate.stage("long simulation", || {
        Program::cargo()
            .words("test --release --locked --test suite simulation -- --include-ignored")
            .variable("FARDEL_SEEDS", "100000")
            .variable("FARDEL_SEED_MINUTES", LONG_SIMULATION_MINUTES)
            .run()
    });
    gate.stage("supervisors killed and stopped", || {
        Program::cargo()
            .words("test --release --locked --test suite who_keeps_sessions_alive")
            .variable("FARDEL_EVENTS", "300")
            .run()
    });
    gate.stage("a session of twenty containers", || {
        Program::cargo()
            .words(
                "test --release --locked --test suite -- --ignored twenty_containers mpirun_starts",
            )
            .run()
    });
    gate.stage("an hour of steady work", || {
        Program::cargo()
            .words("test --release --locked --test suite steady_work -- --ignored --nocapture")
            .run()
    });
    gate.stage("crowd", || {
        Program::cargo()
            .words("test --release --locked --test suite nobody_stops_the_box -- --nocapture")
            .variable("FARDEL_CROWD_ROUNDS", "300")
            .variable("FARDEL_CROWD_STRICT", "1")
            .run()
    });
    vm::nightly(gate);
}

/// Prints why something is left out here; the stage passes, and a person reading the log sees it.
fn leave_out(what: &str, reason: &str) -> Result<(), Failure> {
    println!("left out: {what}: {reason}");
    Ok(())
}
