//! `fardel bench`: measures this very program on this machine, each figure beside the bare tool where
//! there is one, and says what the targets are. Starts servers of its own on temporary directories and
//! takes them away; never touches one that runs. Figures are JSON with every raw sample.

mod bundle;
mod card;
mod figures;
mod house;
mod imports;
mod launches;
mod open_pages;
mod placement;
mod process;
mod server;
mod subject;
mod tiny;
mod wire;

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use rules::units::Bytes;
use serde_json::{Map, Value, json};

use super::program;
use figures::{milliseconds, ms};
use process::load;

const WORDS: [&str; 15] = [
    "start",
    "visit",
    "idle",
    "click",
    "open",
    "submit",
    "place",
    "preview",
    "import",
    "launch",
    "burst20",
    "burst100",
    "gpu-memory",
    "gpu-launch",
    "gpu-share",
];
const USAGE: &str = "\
usage: fardel bench [--quick] [--images DIRECTORY] [--driver FILE] [-o json|table] [WHAT…]
       fardel bench --slices SHARE,… --slice-memory SIZE [--elastic] [--driver FILE] -- COMMAND…
  WHAT      start visit idle click open submit place preview import launch burst20 burst100 gpu-memory gpu-launch
            gpu-share; all of them without it, but of a GPU only where a driver of NVIDIA's is found
  --quick   fewer samples, and 100 at once is left out
  --images  image archives (*.tar) to import; without it one is made of this machine's files
  --driver  the driver's libcuda.so.1, where it lies in no usual place
  --slices  runs COMMAND in so many slices of the card at once, as in 0.35,0.30; 1 is the whole card. Each
            finds its number from 0 in FARDEL_SLICE; what it printed, its exit code and its time come as JSON
  --slice-memory  of each slice, as 2GiB
  --elastic  unused time is given away";

struct BenchArguments {
    quick: bool,
    json: bool,
    images: Option<PathBuf>,
    driver: Option<PathBuf>,
    slices: Option<card::Slices>,
    what: Vec<&'static str>,
}

/// Measures what the arguments name. Exit code 0 when all was measured, 1 when something could not
/// be, 2 for wrong usage; missing a target is a figure, not a failure.
pub fn main(arguments: Vec<String>) -> ExitCode {
    let wanted = match read(&arguments) {
        Ok(wanted) => wanted,
        Err(why) => {
            eprintln!("error: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if let Some(slices) = &wanted.slices {
        return match card::in_slices(wanted.driver.as_deref(), slices) {
            Ok(figure) => {
                let _ = writeln!(io::stdout().lock(), "{figure:#}");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let mut figures = Map::new();
    let mut failed = Map::new();
    let machine = machine();
    for word in &wanted.what {
        eprintln!("measuring {word} …");
        let (before, began) = (load(), Instant::now());
        match measure(word, &wanted) {
            Ok(figure) => {
                let figure = json!({
                    "load_before": before,
                    "load_after": load(),
                    "took_seconds": began.elapsed().as_secs(),
                    "figure": figure,
                });
                figures.insert((*word).to_owned(), figure);
            }
            Err(error) => {
                eprintln!("{word} could not be measured: {error}");
                failed.insert((*word).to_owned(), json!(error.to_string()));
            }
        }
    }
    let boot = boot();
    let targets = targets(&figures, boot.as_ref());
    let all = json!({
        "program": {
            "version": env!("CARGO_PKG_VERSION"),
            "optimised": !cfg!(debug_assertions),
            "bytes": fs::metadata("/proc/self/exe").map(|m| m.len()).unwrap_or(0),
            "installed_bytes": installed_bytes(),
            "boot_to_serving": boot,
        },
        "quick": wanted.quick,
        "machine": machine,
        "targets": targets,
        "figures": figures,
        "not_measured": failed,
    });
    let text = if wanted.json {
        format!("{all:#}\n")
    } else {
        table(&all)
    };
    let _ = io::stdout().lock().write_all(text.as_bytes());
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Bytes of all files of the installed Debian package; None where this machine has none installed.
fn installed_bytes() -> Option<u64> {
    // The packager's own program is asked: where it keeps its lists is its own affair.
    let told = Command::new("dpkg-query")
        .args(["--listfiles", "fardel"])
        .output()
        .ok()?;
    if !told.status.success() {
        return None;
    }
    let list = String::from_utf8_lossy(&told.stdout);
    let sizes = list.lines().filter_map(|path| {
        let file = fs::symlink_metadata(path).ok()?;
        file.is_file().then_some(file.len())
    });
    Some(sizes.sum())
}

/// How long this machine took at its last start until the installed server was ready, as systemd noted it;
/// None where it is not installed, or was not started by that start alone.
fn boot() -> Option<Value> {
    let of = |words: &[&str], name: &str| -> Option<u64> {
        let property = format!("--property={name}");
        let told = program::run(&[&["systemctl", "show", "--value", &property], words].concat());
        told.ok()?.trim().parse().ok()
    };
    since_boot(
        of(&[program::UNITS[0]], "ActiveEnterTimestampMonotonic")?,
        of(&[], "UserspaceTimestampMonotonic")?,
        of(&[], "FinishTimestampMonotonic")?,
    )
}

/// From microseconds after the kernel began: the server ready, the first process, the start-up done (0:
/// not yet).
fn since_boot(ready: u64, userspace: u64, finished: u64) -> Option<Value> {
    let with_the_machine = ready > 0 && (finished == 0 || ready <= finished);
    with_the_machine.then(|| {
        json!({
            "since_kernel_ms": ready / 1000,
            "since_first_process_ms": ready.saturating_sub(userspace) / 1000,
        })
    })
}

fn read(arguments: &[String]) -> Result<BenchArguments, String> {
    let mut wanted = BenchArguments {
        quick: false,
        json: false,
        images: None,
        driver: None,
        slices: None,
        what: Vec::new(),
    };
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--quick" => wanted.quick = true,
            "-o" | "--output" => match words.next() {
                Some("json") => wanted.json = true,
                Some("table") => wanted.json = false,
                _ => return Err("bench prints json or table.".into()),
            },
            "--output=json" | "-ojson" => wanted.json = true,
            "--output=table" | "-otable" => wanted.json = false,
            "--images" => {
                let folder = words.next().ok_or("--images needs a directory.")?;
                wanted.images = Some(folder.into());
            }
            "--slices" => {
                let shares = words.next().ok_or("--slices needs shares.")?;
                wanted.slices.get_or_insert_default().shares = card::read_shares(shares)?;
            }
            "--slice-memory" => {
                let size = words.next().ok_or("--slice-memory needs a size.")?;
                let size = Bytes::parse(size).map_err(|refusal| refusal.text)?;
                wanted.slices.get_or_insert_default().memory = size.0;
            }
            "--elastic" => wanted.slices.get_or_insert_default().elastic = true,
            "--" => {
                let command = words.by_ref().map(str::to_owned).collect();
                wanted.slices.get_or_insert_default().command = command;
            }
            "--driver" => {
                let file = words.next().ok_or("--driver needs a file.")?;
                wanted.driver = Some(file.into());
            }
            other => match WORDS.iter().find(|known| **known == other) {
                Some(known) => wanted.what.push(known),
                None => return Err(format!("bench does not know {other:?}.")),
            },
        }
    }
    if let Some(slices) = &wanted.slices {
        slices.check()?;
    }
    if wanted.what.is_empty() {
        wanted.what = WORDS.to_vec();
        let has_card = wanted.driver.is_some() || card::has_driver();
        wanted
            .what
            .retain(|word| has_card || !word.starts_with("gpu-"));
        if wanted.quick {
            wanted.what.retain(|word| *word != "burst100");
        }
    }
    Ok(wanted)
}

fn measure(word: &str, wanted: &BenchArguments) -> io::Result<Value> {
    let seconds =
        |quick: u64, whole: u64| Duration::from_secs(if wanted.quick { quick } else { whole });
    let times = |quick: usize, whole: usize| if wanted.quick { quick } else { whole };
    match word {
        "start" => server::start_up(times(3, 10)),
        "visit" => server::first_visit(),
        "idle" => server::idle(seconds(5, 30)),
        "click" => server::clicking(seconds(10, 40)),
        "open" => open_pages::open_pages(seconds(8, 20)),
        "submit" => server::submits(seconds(2, 3)),
        "place" => placement::decisions(times(3, 15)),
        "preview" => placement::previews(times(200, 1500)),
        "import" => imports::imports(times(1, 5), wanted.images.as_deref()),
        "launch" => launches::sequential(times(10, 100)),
        "burst20" => launches::at_once(20, true),
        "burst100" => launches::at_once(100, true),
        "gpu-memory" => card::memory(wanted.driver.as_deref()),
        "gpu-launch" => card::launches(wanted.driver.as_deref(), times(3, 7)),
        "gpu-share" => card::shares(wanted.driver.as_deref(), seconds(3, 6)),
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
        "50 people clicking, % of a core",
        "< 5",
        number("click", "/server_cpu_percent_of_a_core"),
        &|v| v < 5.0,
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
    card::targets(&figure, &mut row);
    Value::Array(rows)
}

/// What the figures were taken on.
fn machine() -> Value {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |file: &str, key: &str| {
        text(file)
            .lines()
            .find(|line| line.starts_with(key))
            .and_then(|line| line.split(':').nth(1))
            .map(|value| value.trim().to_owned())
    };
    json!({
        "processor": field("/proc/cpuinfo", "model name"),
        "cores": std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        "memory": field("/proc/meminfo", "MemTotal"),
        "kernel": text("/proc/sys/kernel/osrelease").trim(),
        "load": load(),
        "durable_write": sync_cost().ok(),
    })
}

/// What one small durable write costs here, in any program.
fn sync_cost() -> io::Result<Value> {
    let place = subject::ScratchDirectory::new("sync")?;
    let mut file = fs::File::create(place.path().join("block"))?;
    let mut samples = Vec::new();
    for _ in 0..50 {
        let began = Instant::now();
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        samples.push(ms(began.elapsed()));
    }
    Ok(milliseconds(&samples))
}

fn table(all: &Value) -> String {
    let mut lines = vec![format!(
        "{} cores, kernel {}, load {}{}",
        all["machine"]["cores"],
        all["machine"]["kernel"].as_str().unwrap_or("?"),
        all["machine"]["load"].as_str().unwrap_or("?"),
        if all["program"]["optimised"] == true {
            ""
        } else {
            "; NOT an optimised build"
        },
    )];
    for row in all["targets"].as_array().into_iter().flatten() {
        lines.push(format!(
            "{:<4} {:<48} {:>12}   target {}",
            if row["met"] == true { "met" } else { "miss" },
            row["what"].as_str().unwrap_or_default(),
            row["measured"],
            row["target"].as_str().unwrap_or_default(),
        ));
    }
    for (what, why) in all["not_measured"].as_object().into_iter().flatten() {
        lines.push(format!(
            "---- {what} could not be measured: {}",
            why.as_str().unwrap_or_default()
        ));
    }
    lines.push("Every sample: fardel bench -o json".to_owned());
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_and_unknown_ones_named() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let wanted = read(&words("--quick -o json launch idle")).unwrap();
        assert!(wanted.quick && wanted.json);
        assert_eq!(wanted.what, ["launch", "idle"]);
        let all = |text: &str| read(&words(text)).unwrap().what;
        // With a card; which this machine need not have.
        let with = "--driver /nonexistent/libcuda.so.1";
        assert_eq!(all(with), WORDS);
        let quick = all(&format!("--quick --output=json {with}"));
        assert_eq!(quick.len(), WORDS.len() - 1);
        let slices = "--slices 0.5 --slice-memory 1GiB --elastic -- python3 train.py --quick";
        let slices = read(&words(slices)).unwrap().slices.unwrap();
        assert_eq!(slices.command, ["python3", "train.py", "--quick"]);
        assert!(slices.elastic && slices.shares == [500]);
        assert!(read(&words("--slices 0.5 -- true")).is_err());
        assert!(read(&words("lunch")).err().unwrap().contains("lunch"));
    }

    #[test]
    fn a_start_counts_only_where_the_machine_made_it() {
        let boot = since_boot(9_500_000, 1_400_000, 9_900_000).expect("with the machine");
        assert_eq!(
            (&boot["since_kernel_ms"], &boot["since_first_process_ms"]),
            (&json!(9500), &json!(8100))
        );
        assert!(since_boot(9_500_000, 1_400_000, 0).is_some());
        // Started again by hand later; never started.
        assert_eq!(since_boot(70_000_000, 1_400_000, 9_900_000), None);
        assert_eq!(since_boot(0, 1_400_000, 9_900_000), None);
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
