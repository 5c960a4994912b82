//! Figures of a large site that were kept, by machine: the table of `README.md` has them, and what is measured on the same
//! machine is held to the newest. Measures nothing, and judges nothing on a machine of which nothing is kept.

use std::fs;

use base::figures::ratio;
use serde_json::{Value, json};

const README: &str = include_str!("README.md");
/// So many times what was kept is allowed.
const MAX_TIMES: f64 = 1.2;
/// What is kept, where the figure of `site` has it, and whether it is time that passes: on a busy machine that says nothing of
/// this program, where the time of a processor still does.
const KEPT: [(&str, &str, bool); 4] = [
    (
        "50 users clicking on a large site, page p50, ms",
        "/large/pages/p50",
        true,
    ),
    (
        "50 users clicking on a large site, processor of a click, ms",
        "/large/cpu_ms_each",
        false,
    ),
    (
        "50 users clicking on the lists of a large site, page p50, ms",
        "/lists_of_the_large_one/pages/p50",
        true,
    ),
    (
        "50 users clicking on the lists of a large site, processor of a click, ms",
        "/lists_of_the_large_one/cpu_ms_each",
        false,
    ),
];

/// A machine as the table names it.
struct BenchMachine {
    name: String,
    cores: f64,
}

fn this_machine() -> BenchMachine {
    let about = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut models = about.lines().filter(|line| line.starts_with("model name"));
    let model = models.next().and_then(|line| line.split(':').nth(1));
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    BenchMachine {
        name: format!("{}, {cores} cores", model.unwrap_or("?").trim()),
        cores: cores as f64,
    }
}

/// What was measured by the word `site` on this machine, each times what was kept of it.
pub(super) fn held(measured: &Value) -> Vec<Value> {
    held_to(README, &this_machine(), measured)
}

/// The rows of the table that keep this figure of `site` for later runs on this machine.
pub(super) fn rows(figure: &Value) -> Vec<String> {
    let today = jiff::Timestamp::now().strftime("%Y-%m-%d").to_string();
    rows_of(&this_machine(), &today, figure)
}

fn held_to(table: &str, machine: &BenchMachine, measured: &Value) -> Vec<Value> {
    let load = measured["load_before"].as_str();
    let load = load.and_then(|load| load.split(' ').next()?.parse::<f64>().ok());
    let is_busy = load.is_none_or(|load| load >= machine.cores);
    let rows = KEPT.iter().filter_map(|(what, at, passes)| {
        if *passes && is_busy {
            return None;
        }
        let now = measured["figure"].pointer(at)?.as_f64();
        let (kept, date) = newest(table, what, &machine.name)?;
        let times = ratio(now, Some(kept))?;
        Some(json!({
            "what": format!("{what}, × what was kept on {date}"),
            "target": format!("≤ {MAX_TIMES}"),
            "measured": times,
            "met": times <= MAX_TIMES,
        }))
    });
    rows.collect()
}

/// The last row of the table for that figure on that machine: its value and date.
fn newest<'t>(table: &'t str, what: &str, machine: &str) -> Option<(f64, &'t str)> {
    let mut rows = table.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        match cells.as_slice() {
            ["", found, value, _, date, on, ""] if (*found, *on) == (what, machine) => {
                Some((value.parse().ok()?, *date))
            }
            _ => None,
        }
    });
    rows.next_back()
}

fn rows_of(machine: &BenchMachine, date: &str, figure: &Value) -> Vec<String> {
    let rows = KEPT.iter().filter_map(|(what, at, _)| {
        let value = figure.pointer(at)?.as_f64()?;
        let on = &machine.name;
        Some(format!(
            "| {what} | {value} | (kept: later ones ≤ {MAX_TIMES} ×) | {date} | {on} |"
        ))
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(load: &str, page: f64, click: f64) -> Value {
        let one = json!({"pages": {"p50": page}, "cpu_ms_each": click});
        json!({
            "load_before": load,
            "figure": {"large": one, "lists_of_the_large_one": one},
        })
    }

    fn machine(name: &str) -> BenchMachine {
        BenchMachine {
            name: name.to_owned(),
            cores: 2.0,
        }
    }

    #[test]
    fn what_is_measured_is_held_to_what_was_kept_on_the_same_machine() {
        let first = rows_of(
            &machine("A, 2 cores"),
            "2026-11-29",
            &measured("", 9.0, 9.0)["figure"],
        );
        let second = rows_of(
            &machine("A, 2 cores"),
            "2026-11-30",
            &measured("", 4.0, 2.0)["figure"],
        );
        let table = [first, second].concat().join("\n");
        let met = |name: &str, measured: &Value| -> Vec<bool> {
            let rows = held_to(&table, &machine(name), measured);
            rows.iter().map(|row| row["met"] == true).collect()
        };
        let idle = "0.40 0.50 0.60 1/200 999";
        assert_eq!(met("A, 2 cores", &measured(idle, 4.0, 2.4)), [true; 4]);
        let slower = [false, true, false, true];
        assert_eq!(met("A, 2 cores", &measured(idle, 4.9, 2.4)), slower);
        assert_eq!(
            met("A, 2 cores", &measured(idle, 4.0, 2.5)),
            slower.map(|met| !met)
        );
        // Time that passed on a busy machine, and that of another machine, says nothing.
        let busy = "2.00 1.50 1.00 3/200 999";
        assert_eq!(met("A, 2 cores", &measured(busy, 99.0, 2.5)), [false; 2]);
        assert!(met("B, 2 cores", &measured(idle, 99.0, 99.0)).is_empty());
        let rows = held_to(&table, &machine("A, 2 cores"), &measured(idle, 4.0, 2.0));
        assert_eq!(rows[0]["measured"], 1.0);
        assert!(rows[0]["what"].as_str().unwrap().ends_with("2026-11-30"));
    }

    #[test]
    fn every_kept_figure_is_one_that_the_site_has() {
        let measured = measured("", 1.5, 2.5);
        let figure = &measured["figure"];
        assert_eq!(
            rows_of(&machine("A, 2 cores"), "2026-11-30", figure).len(),
            KEPT.len()
        );
        assert!(rows_of(&machine("A, 2 cores"), "2026-11-30", &json!({})).is_empty());
    }
}
