//! `fardel bench`: measures launches, disk and GPU slices of this machine, and says what the targets are.
//! Starts a server of its own on temporary directories and takes it away; never touches one that runs.
//! Figures are JSON with every raw sample. `bench trace` measures the rules of the queue. What compares with other
//! programs, and what needs a synthetic cluster, is the development binary in `tests/bench`.

pub mod launches;
pub mod subject;
pub mod tiny;
mod trace;
pub mod wire;

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use base::figures::{milliseconds, ms};
use node::gpu::bench as card;
use node::gpu::bench::slices::{self, Slices};
use rules::units::Bytes;
use serde_json::{Map, Value, json};

use tiny::Tiny;

const WORDS: [&str; 7] = [
    "disk",
    "launch",
    "burst20",
    "burst100",
    "gpu-memory",
    "gpu-launch",
    "gpu-share",
];
const USAGE: &str = "\
usage: fardel bench [--quick] [--driver FILE] [-o json|table] [WHAT…]
       fardel bench --slices SHARE,… --slice-memory SIZE [--elastic] [--driver FILE] -- COMMAND…
       fardel bench trace [--seed N] [--order ORDER] [--backfill MODE] …
  WHAT      disk launch burst20 burst100 gpu-memory gpu-launch gpu-share; all of them without it, but of a
            GPU only where a driver of NVIDIA's is found
  --quick   fewer samples, and 100 at once is left out
  --driver  the driver's libcuda.so.1, where it lies in no usual place
  --slices  runs COMMAND in so many slices of the card at once, as in 0.35,0.30; 1 is the whole card. Each
            finds its number from 0 in FARDEL_SLICE; what it printed, its exit code and its time come as JSON
  --slice-memory  of each slice, as 2GiB
  --elastic  unused time is given away
  trace     plays the common trace, a day of 24 cards, under several rules of the queue: `bench trace --help`";

/// Small writes that are made durable for the figure of the disk.
const WRITES: usize = 50;

#[derive(Default)]
struct BenchArguments {
    run: BenchRun,
    driver: Option<PathBuf>,
    slices: Option<Slices>,
}

/// Measures what the arguments name. Exit code 0 when all was measured, 1 when something could not
/// be, 2 for wrong usage; missing a target is a figure, not a failure.
pub fn main(arguments: Vec<String>) -> ExitCode {
    if let [first, rest @ ..] = arguments.as_slice()
        && first == "trace"
    {
        return trace::main(rest);
    }
    let wanted = match read(&arguments) {
        Ok(wanted) => wanted,
        Err(why) => {
            eprintln!("error: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if let Some(slices) = &wanted.slices {
        return match slices::in_slices(wanted.driver.as_deref(), slices) {
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
    wanted
        .run
        .report(json!({}), &|word| measure(word, &wanted), &targets)
}

/// One run of a bench: what is measured, and how it is printed.
#[derive(Default)]
pub struct BenchRun {
    pub quick: bool,
    pub json: bool,
    pub what: Vec<&'static str>,
}

impl BenchRun {
    /// Takes in an option that every bench has, or one of the `known` words; `rest` gives an option's value.
    ///
    /// Errors: a sentence for a value or a word that is none of them.
    pub fn take(
        &mut self,
        word: &str,
        rest: &mut dyn Iterator<Item = &str>,
        known: &[&'static str],
    ) -> Result<(), String> {
        match word {
            "--quick" => self.quick = true,
            "-o" | "--output" => match rest.next() {
                Some("json") => self.json = true,
                Some("table") => self.json = false,
                _ => return Err("bench prints json or table.".into()),
            },
            "--output=json" | "-ojson" => self.json = true,
            "--output=table" | "-otable" => self.json = false,
            other => match known.iter().find(|known| **known == other) {
                Some(known) => self.what.push(known),
                None => return Err(format!("bench does not know {other:?}.")),
            },
        }
        Ok(())
    }

    /// Measures all of `known` where no word was named; a quick run leaves 100 at once out.
    pub fn or_all(&mut self, known: impl Iterator<Item = &'static str>) {
        if self.what.is_empty() {
            self.what
                .extend(known.filter(|word| !self.quick || *word != "burst100"));
        }
    }

    /// Measures each word and prints figures and targets. `program` has facts beside version and size.
    ///
    /// Gives exit code 1 when something could not be measured, else 0.
    pub fn report(
        &self,
        program: Value,
        measure: &dyn Fn(&str) -> io::Result<Value>,
        targets: &dyn Fn(&Map<String, Value>) -> Value,
    ) -> ExitCode {
        let mut figures = Map::new();
        let mut failed = Map::new();
        let machine = machine();
        for word in &self.what {
            eprintln!("measuring {word} …");
            let (before, began) = (load(), Instant::now());
            match measure(word) {
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
        let mut about = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "optimised": !cfg!(debug_assertions),
            "bytes": fs::metadata(subject::program()).map(|m| m.len()).unwrap_or(0),
        });
        for (name, value) in program.as_object().into_iter().flatten() {
            about[name] = value.clone();
        }
        let all = json!({
            "program": about,
            "quick": self.quick,
            "machine": machine,
            "targets": targets(&figures),
            "figures": figures,
            "not_measured": failed,
        });
        let text = if self.json {
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
}

fn read(arguments: &[String]) -> Result<BenchArguments, String> {
    let mut wanted = BenchArguments::default();
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--slices" => {
                let shares = words.next().ok_or("--slices needs shares.")?;
                wanted.slices.get_or_insert_default().shares = slices::read_shares(shares)?;
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
            other => wanted.run.take(other, &mut words, &WORDS)?,
        }
    }
    if let Some(slices) = &wanted.slices {
        slices.check()?;
    }
    let has_card = wanted.driver.is_some() || card::has_driver();
    let here = |word: &&'static str| has_card || !word.starts_with("gpu-");
    wanted.run.or_all(WORDS.into_iter().filter(here));
    Ok(wanted)
}

fn measure(word: &str, wanted: &BenchArguments) -> io::Result<Value> {
    let times = |quick: usize, whole: usize| if wanted.run.quick { quick } else { whole };
    let driver = wanted.driver.as_deref();
    let burst = |count| {
        Ok(launches::burst(
            count,
            &launches::at_once(count, &Tiny::make()?)?,
        ))
    };
    match word {
        "disk" => Ok(json!({"durable_write": durable_write()?})),
        "launch" => launches::sequential(&Tiny::make()?, times(10, 100), &mut |_| Ok(()))
            .map(|s| s.figure()),
        "burst20" => burst(20),
        "burst100" => burst(100),
        "gpu-memory" => card::memory(driver),
        "gpu-launch" => card::launches(driver, times(3, 7)),
        "gpu-share" => {
            let seconds = if wanted.run.quick { 3 } else { 6 };
            card::shares(driver, Duration::from_secs(seconds))
        }
        _ => Err(io::Error::other("this cannot be measured")),
    }
}

/// What was promised against what was measured; what was not measured is not judged.
fn targets(figures: &Map<String, Value>) -> Value {
    let figure = |word: &str| figures.get(word).map(|measured| &measured["figure"]);
    let mut rows = Vec::new();
    let mut row = |what: &str, target: &str, got: Option<f64>, met: &dyn Fn(f64) -> bool| {
        if let Some(got) = got {
            rows.push(json!({"what": what, "target": target, "measured": got, "met": met(got)}));
        }
    };
    row(
        "launch p99, × own p50",
        "≤ 3",
        figure("launch").and_then(|launch| launch["p99_ratio_to_own_p50"].as_f64()),
        &|v| v <= 3.0,
    );
    card::targets::targets(&figure, &mut row);
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
        "durable_write": durable_write().ok(),
    })
}

/// One, five and fifteen minutes' load and what runs now, as the kernel prints it.
fn load() -> String {
    fs::read_to_string("/proc/loadavg")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// What one small durable write costs here, in any program.
fn durable_write() -> io::Result<Value> {
    let place = subject::ScratchDirectory::new("sync")?;
    let mut file = fs::File::create(place.path().join("block"))?;
    let mut samples = Vec::new();
    for _ in 0..WRITES {
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
    // Of the figures without a target, the middle of each.
    for (word, measured) in all["figures"].as_object().into_iter().flatten() {
        for (name, value) in measured["figure"].as_object().into_iter().flatten() {
            if let Some(p50) = value.get("p50").and_then(Value::as_f64) {
                lines.push(format!(
                    "     {:<48} {p50:>12}   ms, p50",
                    format!("{word} {name}")
                ));
            }
        }
    }
    for (what, why) in all["not_measured"].as_object().into_iter().flatten() {
        lines.push(format!(
            "---- {what} could not be measured: {}",
            why.as_str().unwrap_or_default()
        ));
    }
    lines.push("Every sample: -o json".to_owned());
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_and_unknown_ones_named() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let wanted = read(&words("--quick -o json launch disk")).unwrap().run;
        assert!(wanted.quick && wanted.json);
        assert_eq!(wanted.what, ["launch", "disk"]);
        let all = |text: &str| read(&words(text)).unwrap().run.what;
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
    fn a_missed_target_is_told_as_missed_and_an_unmeasured_one_not_at_all() {
        let mut figures = Map::new();
        let launch = json!({"figure": {"p99_ratio_to_own_p50": 3.5}});
        figures.insert("launch".into(), launch);
        let rows = targets(&figures);
        assert_eq!(rows.as_array().map(Vec::len), Some(1));
        assert_eq!(
            (&rows[0]["met"], &rows[0]["measured"]),
            (&json!(false), &json!(3.5))
        );
    }

    #[test]
    fn a_durable_write_is_measured_where_a_file_can_be_made() {
        assert_eq!(durable_write().unwrap()["count"], json!(WRITES));
    }
}
