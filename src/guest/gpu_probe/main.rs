//! The helper that loads the vendor's management library, since the static server cannot: it is told the
//! library's path, answers one line of JSON to each line of JSON, and leaves when nobody asks any more.
//! It decides nothing, changes of a device its partitions alone, and of a control group its limit, and only
//! when told to, reads no variable of its environment and opens no file but that library. Whoever asks must
//! expect it to hang, to die, or to say nonsense.

mod cards;
mod figures;
mod library;
mod limit;
mod limit_call;
mod partition;

use std::io::{BufRead as _, Write as _};
use std::process::ExitCode;

use serde_json::{Value, json};

use library::NvmlLibrary;

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("gpu_probe: the path of the vendor's library is missing");
        return ExitCode::from(2);
    };
    let mut library = None;
    let mut answers = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let asked: Value = serde_json::from_str(&line).unwrap_or_default();
        // A library that could not be opened may be whole by the next question: drivers are replaced.
        if library.is_none() {
            library = match NvmlLibrary::open(&path) {
                Ok(open) => Some(open),
                Err(fault) => {
                    let told = json!({"number": asked["number"], "error": fault});
                    if writeln!(answers, "{told}")
                        .and_then(|()| answers.flush())
                        .is_err()
                    {
                        break;
                    }
                    continue;
                }
            };
        }
        let open = library.as_ref().expect("opened above");
        let told = match asked["ask"].as_str() {
            Some("cards") => cards::all(open),
            Some("figures") => figures::of_cards(open),
            Some("held") => figures::of_processes(open),
            Some("partition") => partition::partition(open, &asked),
            Some("limit") => limit::set(open, &asked),
            _ => Err("no such question".to_owned()),
        };
        let told = match told {
            Ok(told) => json!({"number": asked["number"], "told": told}),
            Err(fault) => json!({"number": asked["number"], "error": fault}),
        };
        if writeln!(answers, "{told}")
            .and_then(|()| answers.flush())
            .is_err()
        {
            break;
        }
    }
    ExitCode::SUCCESS
}
