//! The development binary: measures a fardel beside its peers (`runc`, `podman`, `umoci`), under load, and its
//! scheduler on a synthetic cluster. What an administrator measures on a machine is `fardel bench`. Starts
//! servers of its own on temporary directories and takes them away.

mod bundle;
mod class;
mod cluster;
mod commits;
mod crowded;
mod egress;
mod exchange;
mod guest;
mod imports;
mod installed;
mod kept;
mod member;
mod mounted;
mod nginx;
mod open_pages;
mod peers;
mod placement;
mod process;
mod proxy;
mod server;
mod site;
mod ssh;
mod transfer;
mod unpacked;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use base::figures;
use fardel::doors::bench::{BenchRun, subject, tiny, wire};
use rules::units::Bytes;
use serde_json::{Map, Value, json};

const WORDS: [&str; 23] = [
    "start", "visit", "idle", "click", "open", "site", "submit", "place", "preview", "import",
    "class", "launch", "mounts", "burst20", "burst100", "upload", "download", "archive", "million",
    "proxy", "ssh", "egress", "commit",
];
/// Bytes of the files that are sent and taken, where none are named, in a quick run, and at most.
const SIZE: u64 = 2 << 30;
const QUICK_SIZE: u64 = 256 << 20;
const MAX_SIZE: u64 = 20 << 30;
const USAGE: &str = "\
usage: bench [--quick] [--program FILE] [--images DIRECTORY] [--size SIZE] [--disk] [-o json|table] [WHAT…]
  WHAT      start visit idle click open site submit place preview import class launch mounts burst20 burst100
            upload download archive million proxy ssh egress commit; all of them without it
  --quick   fewer samples, and 100 at once is left out
  --program the fardel that is measured; without it the one beside this program
  --images  image archives (*.tar) to import; without it one is made of this machine's files
  --size    of the streams of upload, download, ssh, egress and commit, up to 20GiB; without it 2GiB
  --disk    launch also measures sessions with a limit of their own on the disk
Peers that are not installed are looked for in the directory that FARDEL_PEERS names; where there is none, ours is
measured alone.";

#[derive(Default)]
struct BenchArguments {
    run: BenchRun,
    program: Option<PathBuf>,
    images: Option<PathBuf>,
    size: Option<u64>,
    with_disk: bool,
}

impl BenchArguments {
    fn size(&self) -> u64 {
        let usual = if self.run.quick { QUICK_SIZE } else { SIZE };
        self.size.unwrap_or(usual)
    }
}

/// Exit code 0 when all was measured, 1 when something could not be, 2 for wrong usage; missing a target is a
/// figure, not a failure.
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, rest @ ..] = arguments.as_slice()
        && first == guest::WORD
    {
        return inside(rest);
    }
    let wanted = match read(&arguments) {
        Ok(wanted) => wanted,
        Err(why) => {
            eprintln!("error: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let beside = || {
        let own = std::env::current_exe().ok()?;
        Some(own.parent()?.join("fardel")).filter(|file| file.is_file())
    };
    let Some(program) = wanted.program.clone().or_else(beside) else {
        eprintln!("error: There is no fardel beside this program; --program names it.\n{USAGE}");
        return ExitCode::from(2);
    };
    subject::measure(program);
    let boot = installed::boot();
    let facts = json!({
        "installed_bytes": installed::bytes(),
        "boot_to_serving": boot,
    });
    wanted
        .run
        .report(facts, &|word| measure(word, &wanted), &|figures| {
            targets(figures, boot.as_ref())
        })
}

/// What this program does in a session of a bench.
fn inside(words: &[String]) -> ExitCode {
    match guest::run(words) {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn read(arguments: &[String]) -> Result<BenchArguments, String> {
    let mut wanted = BenchArguments::default();
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--program" => {
                wanted.program = Some(words.next().ok_or("--program needs a file.")?.into());
            }
            "--images" => {
                wanted.images = Some(words.next().ok_or("--images needs a directory.")?.into());
            }
            "--size" => {
                let size = words.next().ok_or("--size needs a size.")?;
                let size = Bytes::parse(size).map_err(|refusal| refusal.text)?.0;
                if !(1..=MAX_SIZE).contains(&size) {
                    return Err("--size is between 1 byte and 20GiB.".into());
                }
                wanted.size = Some(size);
            }
            "--disk" => wanted.with_disk = true,
            other => wanted.run.take(other, &mut words, &WORDS)?,
        }
    }
    wanted.run.or_all(WORDS.into_iter());
    Ok(wanted)
}

fn measure(word: &str, wanted: &BenchArguments) -> io::Result<Value> {
    let seconds =
        |quick: u64, whole: u64| Duration::from_secs(if wanted.run.quick { quick } else { whole });
    let times = |quick: usize, whole: usize| if wanted.run.quick { quick } else { whole };
    match word {
        "start" => server::start_up(times(3, 10)),
        "visit" => server::first_visit(),
        "idle" => server::idle(seconds(5, 30)),
        "click" => server::clicking(seconds(10, 40)),
        "open" => open_pages::open_pages(seconds(8, 20)),
        "site" => site::large_site(seconds(10, 60)),
        "submit" => server::submits(seconds(2, 3)),
        "place" => placement::decisions(times(3, 15)),
        "preview" => placement::previews(times(200, 1500)),
        "import" => imports::imports(times(1, 5), wanted.images.as_deref()),
        "class" => class::class(times(20, 100)),
        "launch" => peers::beside_runc(times(10, 100), wanted.with_disk),
        "mounts" => mounted::mounted(times(10, 100)),
        "upload" => transfer::upload(wanted.size(), times(1, 3)),
        "download" => transfer::download(wanted.size(), times(1, 5)),
        "archive" => crowded::archives(wanted.run.quick),
        "million" => crowded::million(wanted.run.quick),
        "proxy" => proxy::proxied(times(1, 3), seconds(2, 10)),
        "ssh" => ssh::ssh(wanted.size(), times(1, 3)),
        "egress" => egress::egress(wanted.size(), times(1, 3)),
        "commit" => commits::commits(wanted.size()),
        "burst20" => peers::beside_podman(20),
        "burst100" => peers::beside_podman(100),
        _ => Err(io::Error::other("this cannot be measured")),
    }
}

/// The promises of the house against what was measured; what was not measured is not judged.
fn targets(figures: &Map<String, Value>, boot: Option<&Value>) -> Value {
    let figure = |word: &str| figures.get(word).map(|measured| &measured["figure"]);
    let number = |word: &str, at: &str| {
        figure(word)
            .and_then(|f| f.pointer(at))
            .and_then(Value::as_f64)
    };
    let mut rows = Vec::new();
    let mut row = |what: &str, target: &str, got: Option<f64>, met: &dyn Fn(f64) -> bool| {
        if let Some(got) = got {
            rows.push(json!({"what": what, "target": target, "measured": got, "met": met(got)}));
        }
    };
    row(
        "machine's start to serving, after the kernel, ms",
        "≤ 15000",
        boot.and_then(|boot| boot["since_first_process_ms"].as_f64()),
        &|v| v <= 15_000.0,
    );
    row(
        "start-up to first 200, ms, p50",
        "≤ 100",
        number("start", "/fresh_state/p50"),
        &|v| v <= 100.0,
    );
    row(
        "first visit, bytes",
        "≤ 133120",
        number("visit", "/bytes"),
        &|v| v <= 133_120.0,
    );
    row(
        "idle memory of the server, KiB",
        "≤ 61440",
        number("idle", "/with_sessions/server/memory/rss_kib"),
        &|v| v <= 61_440.0,
    );
    row(
        "idle processor, % of a core",
        "≤ 0.3",
        number("idle", "/empty/cpu_percent_of_a_core"),
        &|v| v <= 0.3,
    );
    row(
        "idle processor with sessions, % of a core",
        "≤ 0.3",
        number("idle", "/with_sessions/server/cpu_percent_of_a_core"),
        &|v| v <= 0.3,
    );
    let shims = figure("idle").and_then(|f| server::most(&f["with_sessions"]["shim_pss_kib"]));
    row(
        "supervisor's share of memory, KiB, largest",
        "≤ 1024",
        shims,
        &|v| v <= 1024.0,
    );
    row(
        "50 users clicking, % of a core",
        "< 5",
        number("click", "/server_cpu_percent_of_a_core"),
        &|v| v < 5.0,
    );
    row(
        "50 users clicking on a large site, page p50, × an empty one",
        "≤ 1.2",
        number("site", "/page_p50_ratio"),
        &|v| v <= 1.2,
    );
    row(
        "50 users clicking on a large site, % of a core",
        "≤ 2",
        number("site", "/large/server_cpu_percent_of_a_core"),
        &|v| v <= 2.0,
    );
    row(
        "50 users clicking on a large site, page p50, ms",
        "(harder than promised) ≤ 20",
        number("site", "/large/pages/p50"),
        &|v| v <= 20.0,
    );
    row(
        "50 users clicking on the lists of a large site, page p50, ms",
        "(harder than promised) ≤ 20",
        number("site", "/lists_of_the_large_one/pages/p50"),
        &|v| v <= 20.0,
    );
    row(
        "a class is started at once, all running, ms",
        "≤ 60000",
        number("class", "/all_running_ms"),
        &|v| v <= 60_000.0,
    );
    row(
        "the roster of that class is applied, ms",
        "≤ 10000",
        number("class", "/import_ms"),
        &|v| v <= 10_000.0,
    );
    row(
        "durable submits a second",
        "≥ 2000",
        number("submit", "/many/per_second"),
        &|v| v >= 2000.0,
    );
    row(
        "durable submits a second, one by one",
        "≥ 200",
        number("submit", "/one_by_one/per_second"),
        &|v| v >= 200.0,
    );
    row(
        "one decision, 2,000 machines of 8 GPUs, 10,000 sessions, ms, p99",
        "≤ 50",
        number("place", "/one_more/p99"),
        &|v| v <= 50.0,
    );
    row(
        "one decision by fair share, 2,000 machines of 8 GPUs, 10,000 sessions of 2,000 users, ms, p99",
        "≤ 50",
        number("place", "/fair_share/one_more/p99"),
        &|v| v <= 50.0,
    );
    row(
        "one decision with timed backfill, 2,000 machines of 8 GPUs, 10,000 sessions of 2,000 users, ms, p99",
        "≤ 50",
        number("place", "/timed/one_more/p99"),
        &|v| v <= 50.0,
    );
    row(
        "10,000 decisions in one pass, ms, p50",
        "(harder than promised) ≤ 50",
        number("place", "/pass/p50"),
        &|v| v <= 50.0,
    );
    row(
        "answer to a preview of a share, ms, p99",
        "< 5",
        number("preview", "/answer/p99"),
        &|v| v < 5.0,
    );
    row(
        "import, × umoci unpack",
        "≤ 1",
        number("import", "/0/p50_ratio_to_umoci"),
        &|v| v <= 1.0,
    );
    row(
        "launch p50, × runc run (whole)",
        "≤ 1",
        number("launch", "/p50_ratio_to_runc_whole"),
        &|v| v <= 1.0,
    );
    row(
        "launch p50, × runc run until its process runs",
        "(harder than promised)",
        number("launch", "/p50_ratio_to_runc_process"),
        &|v| v <= 1.0,
    );
    row(
        "launch p99, × own p50",
        "≤ 3",
        number("launch", "/p99_ratio_to_own_p50"),
        &|v| v <= 3.0,
    );
    row(
        "launch p50 with a limit on the disk, ms more than without",
        "≤ 10",
        number("launch", "/with_disk/p50_more_ms"),
        &|v| v <= 10.0,
    );
    row(
        "launch p50 with a limit on the disk, × runc run (whole)",
        "≤ 1",
        number("launch", "/with_disk/p50_ratio_to_runc_whole"),
        &|v| v <= 1.0,
    );
    row(
        "launch p50 with a network and three folders, × without",
        "≤ 1.3",
        number("mounts", "/p50_ratio"),
        &|v| v <= 1.3,
    );
    row(
        "20 at once, × faster than podman",
        "≥ 5",
        number("burst20", "/times_faster_than_podman"),
        &|v| v >= 5.0,
    );
    row(
        "100 at once, × faster than podman",
        "≥ 5",
        number("burst100", "/times_faster_than_podman"),
        &|v| v >= 5.0,
    );
    for (what, target, word, at, is_met) in CARRIED {
        row(what, target, number(word, at), &is_met);
    }
    rows.extend(figures.get("site").into_iter().flat_map(kept::held));
    Value::Array(rows)
}

/// A promise of what carries bytes: what, its target, the word and place of its figure, and whether a value meets it.
type CarriedTarget = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    fn(f64) -> bool,
);

const CARRIED: [CarriedTarget; 17] = [
    (
        "upload, × a plain write with the same syncs",
        "≥ 0.9",
        "upload",
        "/ratio_to_plain_write",
        |v| v >= 0.9,
    ),
    (
        "download, × nginx",
        "≥ 0.9",
        "download",
        "/plain/ratio_to_nginx",
        |v| v >= 0.9,
    ),
    (
        "download under TLS, × nginx",
        "≥ 0.8",
        "download",
        "/tls/ratio_to_nginx",
        |v| v >= 0.8,
    ),
    (
        "zip of 100,000 files, KiB of memory more",
        "≤ 32768",
        "archive",
        "/zip/grown_kib",
        |v| v <= 32_768.0,
    ),
    (
        "tar of 100,000 files, KiB of memory more",
        "≤ 32768",
        "archive",
        "/tar/grown_kib",
        |v| v <= 32_768.0,
    ),
    (
        "first page of a million files, cold, ms",
        "≤ 3000",
        "million",
        "/first_page_cold_ms",
        |v| v <= 3000.0,
    ),
    (
        "first page of a million files, warm, ms, p50",
        "≤ 50",
        "million",
        "/first_page_warm/p50",
        |v| v <= 50.0,
    ),
    (
        "removal of a million files answers, ms",
        "≤ 100",
        "million",
        "/removal_answered_ms",
        |v| v <= 100.0,
    ),
    (
        "a session's write while a million files go, ms, longest",
        "≤ 100",
        "million",
        "/writer_while_purged/write/most",
        |v| v <= 100.0,
    ),
    (
        "app proxy, requests a second, × nginx",
        "≥ 0.9",
        "proxy",
        "/requests_ratio_to_nginx",
        |v| v >= 0.9,
    ),
    (
        "app proxy, a request's p50 more than straight, ms",
        "≤ 0.3",
        "proxy",
        "/added_p50_ms",
        |v| v <= 0.3,
    ),
    (
        "app proxy, echo of a WebSocket, p50 more than by nginx, ms",
        "≤ 0.3",
        "proxy",
        "/echo_p50_ms_more_than_nginx",
        |v| v <= 0.3,
    ),
    (
        "SSH, bytes in, × OpenSSH's server",
        "≥ 0.9",
        "ssh",
        "/in_ratio_to_sshd",
        |v| v >= 0.9,
    ),
    (
        "SSH, bytes out, × OpenSSH's server",
        "≥ 0.9",
        "ssh",
        "/out_ratio_to_sshd",
        |v| v >= 0.9,
    ),
    (
        "200 open SSH connections, KiB of memory",
        "≤ 61440",
        "ssh",
        "/open/grown_kib",
        |v| v <= 61_440.0,
    ),
    (
        "200 SSH connections were asked for, open",
        "200",
        "ssh",
        "/open/open",
        |v| v >= 200.0,
    ),
    (
        "an image of a session with 2 GB written, while every core computes, s",
        "≤ 60",
        "commit",
        "/promised_seconds",
        |v| v <= 60.0,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_and_unknown_ones_named() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let wanted = read(&words("--quick -o json launch idle --program /x")).unwrap();
        assert!(wanted.run.quick && wanted.run.json && wanted.program == Some("/x".into()));
        assert_eq!(wanted.run.what, ["launch", "idle"]);
        let quick = read(&words("--quick")).unwrap().run.what;
        assert_eq!(quick.len(), WORDS.len() - 1);
        assert!(read(&words("lunch")).err().unwrap().contains("lunch"));
        let sized = read(&words("--size 3GiB --disk upload")).unwrap();
        assert_eq!((sized.size(), sized.with_disk), (3 << 30, true));
        assert_eq!(read(&words("--quick ssh")).unwrap().size(), QUICK_SIZE);
        assert_eq!(read(&words("upload")).unwrap().size(), SIZE);
        for wrong in ["--size 21GiB", "--size 0", "--size x", "--size"] {
            assert!(read(&words(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_start_that_the_machine_made_is_held_to_its_target() {
        let boot = json!({"since_first_process_ms": 8100});
        let rows = targets(&Map::new(), Some(&boot));
        assert_eq!(rows[0]["met"], json!(true));
    }

    #[test]
    fn a_missed_target_is_told_as_missed_and_an_unmeasured_one_not_at_all() {
        let mut figures = Map::new();
        figures.insert("visit".into(), json!({"figure": {"bytes": 999_999}}));
        let rows = targets(&figures, None);
        assert_eq!(rows.as_array().map(Vec::len), Some(1));
        assert_eq!(
            (&rows[0]["met"], &rows[0]["measured"]),
            (&json!(false), &json!(999_999.0))
        );
    }
}
