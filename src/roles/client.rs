//! The process somebody starts by typing: reads the arguments once, then is a server, a check, an
//! engine or a client. Knows the environment and the settings so that doors need not.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use base::settings::{self, KEYS, Layer, Settings};
use rules::refusal::Refusal;

use crate::doors::cli::tree::{Command, Config, Format, Global, Place, Serve, Words};
use crate::doors::cli::{self, Surroundings};
use crate::roles::doctor;

/// What only other roles can do; `main` brings them.
pub struct Engines {
    pub serve: fn(Settings) -> ExitCode,
    pub rehearse: fn(Vec<String>) -> ExitCode,
    pub bench: fn(Vec<String>) -> ExitCode,
}

/// Wrong usage, as every command says it.
const USAGE: u8 = 2;

/// Does what the arguments (program name first) say and gives the exit code of the process.
pub fn main(arguments: Vec<OsString>, engines: &Engines) -> ExitCode {
    let words = match cli::parse(arguments, variable) {
        Ok(words) => words,
        Err(told) => {
            let _ = told.print();
            return ExitCode::from(u8::try_from(told.exit_code()).unwrap_or(USAGE));
        }
    };
    let Words { global, command } = words;
    match command {
        Command::Serve(flags) => match Settings::read(layer_of(&global, &flags), variable) {
            Ok(settings) => (engines.serve)(settings),
            Err(refusal) => refused(&global, &refusal),
        },
        Command::Doctor(place) => match Settings::read(layer_at(&global, &place), variable) {
            Ok(settings) => doctor::main(&settings, global.output, global.no_color),
            Err(refusal) => refused(&global, &refusal),
        },
        Command::Config(Config::Validate { file }) => validate(&global, file.as_deref()),
        Command::Config(Config::Show { place }) => show(&global, &place),
        Command::Rehearse(rest) => (engines.rehearse)(rest.arguments),
        Command::Bench(rest) => {
            let mut arguments = rest.arguments;
            // `-o json` in front of the engine's own words is read with the global flags.
            if matches!(global.output, Format::Json | Format::Jsonl) {
                arguments.push("--output=json".to_owned());
            }
            (engines.bench)(arguments)
        }
        command => {
            let layer = layer_at(&global, &Place::default());
            let socket = match Settings::read(layer, variable) {
                Ok(settings) => settings.socket(),
                Err(refusal) => return refused(&global, &refusal),
            };
            let around = Surroundings { variable, socket };
            ExitCode::from(cli::run(Words { global, command }, &around))
        }
    }
}

/// A variable of the environment; None where it is unset or not UTF-8.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn layer_at(global: &Global, place: &Place) -> Layer {
    Layer {
        data: place.data.clone(),
        run: global.run.clone(),
        listen: place.listen.clone(),
        ..Layer::default()
    }
}

fn layer_of(global: &Global, flags: &Serve) -> Layer {
    Layer {
        host_environment: flags.host_environment,
        cpu: flags.cpu.clone(),
        memory: flags.mem.clone(),
        keep_days: flags.keep_days,
        log_json: flags.log_json.then_some(true),
        ..layer_at(global, &flags.place)
    }
}

fn refused(global: &Global, refusal: &Refusal) -> ExitCode {
    let text = if matches!(global.output, Format::Json | Format::Jsonl) {
        let body = serde_json::json!({
            "code": refusal.code, "detail": refusal.text, "hint": refusal.hint,
        });
        format!("{body:#}\n")
    } else {
        format!(
            "error: {}\n  {}\n  (code {})\n",
            refusal.text, refusal.hint, refusal.code
        )
        .replace("\n  \n", "\n")
    };
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
    ExitCode::from(USAGE)
}

/// Reads one file, or everything a server would read, and says whether a server would start with it.
fn validate(global: &Global, file: Option<&std::path::Path>) -> ExitCode {
    let read = match file {
        Some(file) if !file.exists() => Err(Refusal::not_found(
            "setting.file-missing",
            format!("There is no file {}.", file.display()),
        )),
        Some(file) => {
            let wanted = file.display().to_string();
            Settings::read(Layer::default(), |name| match name {
                "FARDEL_CONFIG" => Some(wanted.clone()),
                other if other.starts_with("FARDEL_") => None,
                other => variable(other),
            })
        }
        None => Settings::read(Layer::default(), variable),
    };
    match read {
        Ok(_) => {
            if !global.quiet {
                let name =
                    file.map_or_else(|| settings::FILE.to_owned(), |f| f.display().to_string());
                say(&format!("{name} is good\n"));
            }
            ExitCode::SUCCESS
        }
        Err(refusal) => refused(global, &refusal),
    }
}

/// Prints what is in force, each setting with its variable.
fn show(global: &Global, place: &Place) -> ExitCode {
    let settings = match Settings::read(layer_at(global, place), variable) {
        Ok(settings) => settings,
        Err(refusal) => return refused(global, &refusal),
    };
    let body = match serde_json::to_value(&settings) {
        Ok(body) => body,
        Err(error) => {
            let refusal = Refusal::invalid(
                "setting.not-text",
                format!("A setting is not text: {error}."),
            );
            return refused(global, &refusal);
        }
    };
    let text = match global.output {
        Format::Json => format!("{body:#}\n"),
        Format::Jsonl => format!("{body}\n"),
        Format::Yaml => serde_yaml_ng::to_string(&body).unwrap_or_default(),
        Format::Name => KEYS.iter().map(|k| format!("{}\n", k.key)).collect(),
        Format::Table | Format::Wide | Format::Csv => KEYS
            .iter()
            .map(|key| {
                let value = match &body[key.key] {
                    serde_json::Value::Null => "-".to_owned(),
                    serde_json::Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                format!(
                    "{:<17} {value:<28} {:<24} {}\n",
                    key.key, key.variable, key.about
                )
            })
            .collect(),
    };
    say(&text);
    ExitCode::SUCCESS
}

fn say(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}
