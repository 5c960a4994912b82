//! `fardel bench trace`: the common trace, played through the scheduler in virtual time under several rules, and the same
//! figures of another scheduler's starts. Measures no machine but for the speed of decisions, starts no server and reads no
//! catalog.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rules::fair_share::QueueOrder;
use rules::placement;
use rules::policy::BackfillMode;
use rules::trace::common_day::{
    COMMON_CARDS, COMMON_SEED, TraceClass, WORKING_HOURS, class, common_cluster, common_trace,
};
use rules::trace::figures::{card_seconds, forecasts, slowdowns, waits};
use rules::trace::play::{JobStart, PlayForecasts, PlayOptions, PlayedJob, play};
use rules::trace::{TraceJob, WorkloadTrace};
use rules::units::Timestamp;
use serde_json::{Value, json};

const USAGE: &str = "\
usage: fardel bench trace [--seed N] [--order ORDER] [--backfill MODE] [--write-jobs FILE]
                          [--starts FILE] [-o json|table]
  --seed        of the trace; 20261122 without it
  --order       turns, fifo, lifo or fair; fifo and fair without it
  --backfill    strict or timed; both without it
  --write-jobs  writes the jobs as a table and plays nothing: number, second of arrival, user, hundredths of a
                card, time limit and run time in seconds
  --starts      reads where another scheduler started them, a number and a second in each line, and prints the
                same figures of that";
/// Hundredths of cards from which a job is a large one.
const LARGE: u32 = 400;
/// A half-life of fair share as new sites have it.
const HALF_LIFE_HOURS: u64 = 168;
/// 25 November 2025, 00:00 UTC; any midnight would do.
const MIDNIGHT: Timestamp = Timestamp::from_millis(1_764_028_800_000);

#[derive(Debug, PartialEq, Eq)]
struct TraceArguments {
    seed: u64,
    orders: Vec<QueueOrder>,
    backfills: Vec<BackfillMode>,
    write_jobs: Option<PathBuf>,
    starts: Option<PathBuf>,
    json: bool,
}

/// Plays the trace as the words after `bench trace` say and prints what came of it. Exit code 0; 1 where a file cannot be
/// read or written; 2 for wrong usage.
pub(super) fn main(words: &[String]) -> ExitCode {
    if words.iter().any(|word| word == "--help" || word == "-h") {
        let _ = writeln!(io::stdout().lock(), "{USAGE}");
        return ExitCode::SUCCESS;
    }
    let wanted = match read(words) {
        Ok(wanted) => wanted,
        Err(why) => {
            eprintln!("error: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match measured(&wanted) {
        Ok(text) => {
            let _ = io::stdout().lock().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

fn read(words: &[String]) -> Result<TraceArguments, String> {
    let mut wanted = TraceArguments {
        seed: COMMON_SEED,
        orders: vec![QueueOrder::Fifo, QueueOrder::Fair],
        backfills: BackfillMode::ALL.to_vec(),
        write_jobs: None,
        starts: None,
        json: false,
    };
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value."));
        match word {
            "--seed" => {
                let number = value()?;
                let seed = number.parse::<u64>();
                wanted.seed = seed.map_err(|_| format!("{number:?} is no whole number."))?;
            }
            "--order" => {
                let order = value()?;
                let known = QueueOrder::parse(order);
                let known = known.ok_or(format!("{order:?} is no order of the queue."))?;
                wanted.orders = vec![known];
            }
            "--backfill" => {
                let mode = value()?;
                let known = BackfillMode::parse(mode);
                let known = known.ok_or(format!("{mode:?} is no backfill."))?;
                wanted.backfills = vec![known];
            }
            "--write-jobs" => wanted.write_jobs = Some(value()?.into()),
            "--starts" => wanted.starts = Some(value()?.into()),
            "-o" | "--output" => match value()? {
                "json" => wanted.json = true,
                "table" => wanted.json = false,
                _ => return Err("bench prints json or table.".to_owned()),
            },
            "--output=json" | "-ojson" => wanted.json = true,
            "--output=table" | "-otable" => wanted.json = false,
            other => return Err(format!("bench trace does not know {other:?}.")),
        }
    }
    Ok(wanted)
}

fn measured(wanted: &TraceArguments) -> Result<String, String> {
    let trace = common_trace(wanted.seed);
    if let Some(file) = &wanted.write_jobs {
        let written = fs::write(file, jobs_table(&trace));
        written.map_err(|error| format!("{} cannot be written: {error}.", file.display()))?;
        return Ok(format!(
            "{} jobs are in {}\n",
            trace.jobs.len(),
            file.display()
        ));
    }
    let mut runs = Vec::new();
    if let Some(file) = &wanted.starts {
        let text = fs::read_to_string(file);
        let text = text.map_err(|error| format!("{} cannot be read: {error}.", file.display()))?;
        let played = read_starts(&trace, &text, file)?;
        runs.push(figures("other", &trace, &played));
    } else {
        // What a site knows in the morning of the day: another day like it.
        let day_before = common_trace(wanted.seed.wrapping_add(1));
        for order in &wanted.orders {
            for backfill in &wanted.backfills {
                eprintln!("playing {} {} …", order.word(), backfill.word());
                runs.push(run(&trace, &day_before, *order, *backfill));
            }
        }
    }
    let all = json!({
        "program": {
            "version": env!("CARGO_PKG_VERSION"),
            "optimised": !cfg!(debug_assertions),
        },
        "seed": wanted.seed,
        "jobs": trace.jobs.len(),
        "cards": COMMON_CARDS / 100,
        "card_hours": card_hours(&trace),
        "runs": runs,
    });
    Ok(match wanted.json {
        true => format!("{all:#}\n"),
        false => table(&all),
    })
}

fn card_hours(trace: &WorkloadTrace) -> f64 {
    let jobs = trace.jobs.iter();
    let held: u64 = jobs
        .map(|job| u64::from(job.demand.gpu.0) * job.held())
        .sum();
    held as f64 / 360_000.0
}

/// Plays the trace once; each decision is timed.
fn run(
    trace: &WorkloadTrace,
    day_before: &WorkloadTrace,
    order: QueueOrder,
    backfill: BackfillMode,
) -> Value {
    let options = PlayOptions {
        start: MIDNIGHT,
        half_life_hours: HALF_LIFE_HOURS,
        forecasts: PlayForecasts::Likely(day_before),
    };
    let (mut decisions, mut took, mut slowest) = (0_u64, Duration::ZERO, Duration::ZERO);
    let mut scheduler = |world: &rules::world::ClusterSnapshot, now| {
        let began = Instant::now();
        let decided = placement::decide(world, now);
        let passed = began.elapsed();
        decisions += 1;
        took += passed;
        slowest = slowest.max(passed);
        Some(decided)
    };
    let world = common_cluster(order, backfill);
    let played = play(world, trace, options, &mut scheduler);
    let name = format!("{} {}", order.word(), backfill.word());
    let mut told = figures(&name, trace, &played);
    let record = forecasts(&played);
    told["forecasts"] = json!({
        "count": record.count,
        "error_p50_percent": record.error_p50,
        "kept_percent": record.kept,
        "early_percent": record.early,
    });
    told["decisions"] = json!({
        "count": decisions,
        "per_second": (decisions as f64 / took.as_secs_f64().max(1e-9)).round(),
        "slowest_ms": (slowest.as_secs_f64() * 1e5).round() / 100.0,
    });
    told
}

/// What came of the trace, for a scheduler of that name.
fn figures(name: &str, trace: &WorkloadTrace, played: &[PlayedJob]) -> Value {
    let minutes = |wanted: &dyn Fn(&TraceJob) -> bool| {
        let spread = waits(trace, played, wanted);
        let minutes = |seconds: u64| (seconds + 30) / 60;
        json!({
            "count": spread.count,
            "p50": minutes(spread.p50),
            "p95": minutes(spread.p95),
            "max": minutes(spread.max),
        })
    };
    let of = |wanted: TraceClass| move |job: &TraceJob| class(job.user) == wanted;
    let slow = slowdowns(trace, played, |_| true);
    let (from, to) = WORKING_HOURS;
    let busy = card_seconds(trace, played, WORKING_HOURS, |_| true);
    let started = played.iter().filter(|one| one.start.is_some()).count();
    json!({
        "rules": name,
        "started": started,
        "wait_minutes": {
            "students": minutes(&of(TraceClass::Student)),
            "sweep": minutes(&of(TraceClass::Sweep)),
            "others": minutes(&of(TraceClass::Lab)),
            "large": minutes(&|job: &TraceJob| job.demand.gpu.0 >= LARGE),
        },
        "slowdown": {
            "mean": slow.mean as f64 / 100.0,
            "p95": slow.p95 as f64 / 100.0,
        },
        "busy_percent": (busy as f64 * 1_000.0 / (COMMON_CARDS * (to - from)) as f64).round() / 10.0,
    })
}

fn table(all: &Value) -> String {
    let mut lines = vec![
        format!(
            "{} cards, {} jobs of {:.0} card-hours, seed {}{}",
            all["cards"],
            all["jobs"],
            all["card_hours"].as_f64().unwrap_or_default(),
            all["seed"],
            match all["program"]["optimised"] == true {
                true => "",
                false => "; NOT an optimised build",
            },
        ),
        format!(
            "{:<15} {:>13} {:>15} {:>15} {:>13} {:>7} {:>13} {:>12}",
            "minutes of wait",
            "students",
            "others",
            "4 cards and up",
            "slowdown",
            "busy",
            "forecast",
            "decisions"
        ),
        format!(
            "{:<15} {:>13} {:>15} {:>15} {:>13} {:>7} {:>13} {:>12}",
            "",
            "p50 / max",
            "p50 / p95",
            "p50 / max",
            "mean / p95",
            "09–19",
            "error / kept",
            "a second"
        ),
    ];
    for run in all["runs"].as_array().into_iter().flatten() {
        let wait = |of: &str, one: &str, other: &str| {
            let known = &run["wait_minutes"][of];
            format!("{} / {}", known[one], known[other])
        };
        let whole = |value: &Value| {
            let value = value.as_f64();
            value.map_or("-".to_owned(), |value| format!("{value:.0}"))
        };
        let forecast = match run.get("forecasts") {
            Some(record) => format!(
                "{} / {} %",
                record["error_p50_percent"], record["kept_percent"]
            ),
            None => "-".to_owned(),
        };
        lines.push(format!(
            "{:<15} {:>13} {:>15} {:>15} {:>13} {:>7} {:>13} {:>12}",
            run["rules"].as_str().unwrap_or_default(),
            wait("students", "p50", "max"),
            wait("others", "p50", "p95"),
            wait("large", "p50", "max"),
            format!(
                "{} / {}",
                whole(&run["slowdown"]["mean"]),
                whole(&run["slowdown"]["p95"])
            ),
            format!("{} %", whole(&run["busy_percent"])),
            forecast,
            whole(&run["decisions"]["per_second"]),
        ));
        let started = run["started"].as_u64();
        if started != all["jobs"].as_u64() {
            lines.push(format!("{:<15} only {} jobs started", "", run["started"]));
        }
    }
    lines.join("\n") + "\n"
}

/// The jobs for another scheduler, as a table with tabs.
fn jobs_table(trace: &WorkloadTrace) -> String {
    let mut lines = vec!["job\tsubmit\tuser\tcards\tlimit\trun".to_owned()];
    for (number, job) in (1..).zip(&trace.jobs) {
        let user = &trace.users[job.user].name;
        let limit = job.limit.unwrap_or(0);
        lines.push(format!(
            "{number}\t{}\t{user}\t{}\t{limit}\t{}",
            job.submit, job.demand.gpu.0, job.run
        ));
    }
    lines.join("\n") + "\n"
}

/// Starts of another scheduler: the number of the job and the second after midnight in each line; what follows is not read.
fn read_starts(trace: &WorkloadTrace, text: &str, file: &Path) -> Result<Vec<PlayedJob>, String> {
    let mut played = vec![PlayedJob::default(); trace.jobs.len()];
    for (number, line) in (1..).zip(text.lines()) {
        if line.is_empty() || line.starts_with("job") {
            continue;
        }
        let wrong = || format!("Line {number} of {} is no start: {line:?}.", file.display());
        let mut fields = line.split_whitespace();
        let mut field = || fields.next()?.parse::<u64>().ok();
        let (job, at) = field().zip(field()).ok_or_else(wrong)?;
        let job = usize::try_from(job).unwrap_or(usize::MAX);
        let one = played.get_mut(job.wrapping_sub(1)).ok_or_else(wrong)?;
        one.start = Some(JobStart {
            at,
            node: None,
            devices: Vec::new(),
        });
    }
    Ok(played)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn arguments_are_read_and_unknown_ones_named() {
        let plain = read(&[]).unwrap();
        assert_eq!((plain.seed, plain.orders.len()), (COMMON_SEED, 2));
        assert_eq!((plain.backfills.len(), plain.json), (2, false));
        let one = read(&words("--seed 7 --order fair --backfill timed -o json")).unwrap();
        assert_eq!((one.seed, one.json), (7, true));
        assert_eq!(one.orders, [QueueOrder::Fair]);
        assert_eq!(one.backfills, [BackfillMode::Timed]);
        for wrong in [
            "--seed",
            "--seed x",
            "--order best",
            "--backfill lent",
            "lunch",
        ] {
            let why = read(&words(wrong)).unwrap_err();
            assert!(why.ends_with('.'), "{wrong}: {why}");
        }
    }

    #[test]
    fn starts_of_another_scheduler_have_the_same_figures() {
        let trace = common_trace(3);
        let table = jobs_table(&trace);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 1 + trace.jobs.len());
        // Each job starts a minute after it came.
        let starts: String = (1..)
            .zip(&trace.jobs)
            .map(|(number, job)| format!("{number}\t{}\n", job.submit + 60))
            .collect();
        let played = read_starts(&trace, &starts, Path::new("starts")).unwrap();
        let told = figures("other", &trace, &played);
        assert_eq!(told["started"], 2_000);
        for of in ["students", "sweep", "others", "large"] {
            assert_eq!(told["wait_minutes"][of]["max"], 1, "{of}");
        }
        for wrong in ["0\t5\n", "2001\t5\n", "1\n", "1\tnoon\n"] {
            let why = read_starts(&trace, wrong, Path::new("starts")).unwrap_err();
            assert!(why.contains("Line 1 of starts"), "{why}");
        }
        let all = json!({
            "cards": 24, "jobs": 2_000, "card_hours": 531.8, "seed": 3,
            "program": {"optimised": true}, "runs": [told],
        });
        let text = super::table(&all);
        assert!(text.contains("1 / 1"), "{text}");
    }
}
