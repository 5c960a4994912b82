//! The process that a user starts by typing: reads the arguments once, then is a server, a check, an
//! engine or a client. Knows the environment and the settings so that doors need not.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use base::settings::{self, KEYS, LoadedSettings, Settings, SettingsLayer, SettingsSources};
use rules::refusal::Refusal;
use rules::refusals;

use crate::doors::cli::args::{
    Backup, Command, CommandLine, Config, EnvironmentCommand, Format, Global, PassphraseArguments,
    PlaceArguments, RehearseArguments, RehearseCommand, Serve, State, UpgradeCommand,
};
use crate::doors::cli::refused::refused_with;
use crate::doors::cli::{self, Surroundings};
use crate::doors::console::screen as console;
use crate::roles::{backup, doctor, environments, rehearsal, support};

/// What only other roles can do; `main` brings them.
pub struct Engines {
    pub serve: fn(LoadedSettings) -> ExitCode,
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
    let CommandLine { global, command } = words;
    match command {
        Command::Serve(flags) => {
            let named = flags.config.clone();
            if let Some(file) = named.as_deref().filter(|file| !file.exists()) {
                return refused(&global, &refusals::setting_file_missing(file.display()));
            }
            let sources = SettingsSources::new(layer_of(&global, &flags), move |name| {
                let named = named.as_ref().filter(|_| name == "FARDEL_CONFIG");
                named.map_or_else(|| variable(name), |file| Some(file.display().to_string()))
            });
            match sources.read() {
                Ok(reading) => (engines.serve)(reading),
                Err(refusal) => refused(&global, &refusal),
            }
        }
        Command::Doctor(place) => match Settings::read(layer_at(&global, &place), variable) {
            Ok(settings) => doctor::main(&settings, global.output, global.no_color),
            Err(refusal) => refused(&global, &refusal),
        },
        Command::Console(words) => {
            match Settings::read(layer_at(&global, &PlaceArguments::default()), variable) {
                Ok(settings) => {
                    let socket = settings.socket();
                    let around = Surroundings { variable, socket };
                    console::main(&global, &settings, &around, words.verb)
                }
                Err(refusal) => refused(&global, &refusal),
            }
        }
        Command::Support(words) => {
            match SettingsSources::new(layer_at(&global, &PlaceArguments::default()), variable)
                .read()
            {
                Ok(reading) => {
                    let socket = reading.settings.socket();
                    let around = Surroundings { variable, socket };
                    support::main(&global, &reading, &around, words)
                }
                Err(refusal) => refused(&global, &refusal),
            }
        }
        Command::Environment(EnvironmentCommand::Pack(words)) => {
            match Settings::read(layer_at(&global, &words.place), variable) {
                Ok(settings) => environments::pack(&global, &settings, &words),
                Err(refusal) => refused(&global, &refusal),
            }
        }
        Command::Environment(EnvironmentCommand::Build(words)) => {
            environments::build(&global, &words)
        }
        Command::Environment(EnvironmentCommand::Key { file }) => environments::key(&global, &file),
        Command::Config(Config::Validate { file }) => validate(&global, file.as_deref()),
        Command::Config(Config::Show { place }) => show(&global, &place),
        Command::Config(Config::Sample) => {
            say(&settings::sample());
            ExitCode::SUCCESS
        }
        Command::Backup(Backup::Create {
            file,
            secret,
            place,
        }) => on_files(
            backup::BackupCommand::Create { file },
            &global,
            &place,
            Some(&secret),
        ),
        Command::Backup(Backup::Verify {
            file,
            secret,
            scratch,
            place,
        }) => on_files(
            backup::BackupCommand::Verify { file, scratch },
            &global,
            &place,
            Some(&secret),
        ),
        Command::Backup(Backup::Restore {
            file,
            secret,
            replace,
            place,
        }) => on_files(
            backup::BackupCommand::Restore { file, replace },
            &global,
            &place,
            Some(&secret),
        ),
        Command::Upgrade(UpgradeCommand::Status { place }) => {
            on_files(backup::BackupCommand::Status, &global, &place, None)
        }
        Command::Upgrade(UpgradeCommand::Rollback { place }) => {
            on_files(backup::BackupCommand::Rollback, &global, &place, None)
        }
        Command::State(State::Show { place }) => {
            on_files(backup::BackupCommand::ShowState, &global, &place, None)
        }
        Command::State(State::Accept { place }) => {
            on_files(backup::BackupCommand::AcceptState, &global, &place, None)
        }
        Command::Rehearse(RehearseArguments { verb: None, files }) => (engines.rehearse)(files),
        Command::Rehearse(RehearseArguments {
            verb: Some(RehearseCommand::Decision(words)),
            ..
        }) => match Settings::read(layer_at(&global, &words.place), variable) {
            Ok(settings) => rehearsal::decision(&settings.data, words.number, &global),
            Err(refusal) => refused(&global, &refusal),
        },
        Command::Bench(rest) => {
            let mut arguments = rest.arguments;
            // `-o json` in front of the engine's own words is read with the global flags.
            if matches!(global.output, Format::Json | Format::Jsonl) {
                arguments.push("--output=json".to_owned());
            }
            (engines.bench)(arguments)
        }
        command => {
            let layer = layer_at(&global, &PlaceArguments::default());
            let alone = matches!(command, Command::Completion { .. } | Command::Man(_));
            let socket = match Settings::read(layer.clone(), variable) {
                Ok(settings) => settings.socket(),
                // A broken file must not hide the page that says how a good one looks.
                Err(_) if alone => Default::default(),
                // Nor keep a client from a server that goes on with what it read before.
                Err(refusal) => match Settings::read(layer, without_files) {
                    Ok(settings) => {
                        eprintln!("warning: {} Its values do not count here.", refusal.text);
                        settings.socket()
                    }
                    Err(_) => return refused(&global, &refusal),
                },
            };
            let around = Surroundings { variable, socket };
            ExitCode::from(cli::run(CommandLine { global, command }, &around))
        }
    }
}

/// A variable of the environment; None where it is unset or not UTF-8.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// As `variable`, for settings that are made without their files.
fn without_files(name: &str) -> Option<String> {
    match name {
        "FARDEL_CONFIG" => Some("/dev/null".to_owned()),
        name => variable(name),
    }
}

fn layer_at(global: &Global, place: &PlaceArguments) -> SettingsLayer {
    SettingsLayer {
        data: place.data.clone(),
        run: global.run.clone(),
        listen: place.listen.clone(),
        ..SettingsLayer::default()
    }
}

fn layer_of(global: &Global, flags: &Serve) -> SettingsLayer {
    SettingsLayer {
        host_environment: flags.host_environment,
        cpu: flags.cpu.clone(),
        memory: flags.mem.clone(),
        simulate_gpus: flags.simulate_gpus.clone(),
        driver_root: flags.driver_root.clone(),
        keep_days: flags.keep_days,
        log_json: flags.log_json.then_some(true),
        ..layer_at(global, &flags.place)
    }
}

/// Runs a verb that works on the files of the state.
fn on_files(
    verb: backup::BackupCommand,
    global: &Global,
    place: &PlaceArguments,
    secret: Option<&PassphraseArguments>,
) -> ExitCode {
    match Settings::read(layer_at(global, place), variable) {
        Ok(settings) => {
            let file = secret.and_then(|secret| secret.passphrase_file.as_deref());
            backup::main(verb, &settings, file, global)
        }
        Err(refusal) => refused(global, &refusal),
    }
}

fn refused(global: &Global, refusal: &Refusal) -> ExitCode {
    refused_with(global, refusal, USAGE)
}

/// Reads one file, or everything a server would read, and says whether a server would start with it.
fn validate(global: &Global, file: Option<&std::path::Path>) -> ExitCode {
    let read = match file {
        Some(file) if !file.exists() => Err(refusals::setting_file_missing(file.display())),
        Some(file) => {
            let wanted = file.display().to_string();
            Settings::read(SettingsLayer::default(), move |name| match name {
                "FARDEL_CONFIG" => Some(wanted.clone()),
                other if other.starts_with("FARDEL_") => None,
                other => variable(other),
            })
        }
        None => Settings::read(SettingsLayer::default(), variable),
    };
    match read {
        Ok(_) => {
            if !global.quiet {
                let name = file.map_or_else(
                    || variable("FARDEL_CONFIG").unwrap_or_else(|| settings::FILE.to_owned()),
                    |file| file.display().to_string(),
                );
                say(&format!("{name} is good\n"));
            }
            ExitCode::SUCCESS
        }
        Err(refusal) => refused(global, &refusal),
    }
}

/// Prints what a server started now would go by: each setting with its value, default and source.
fn show(global: &Global, place: &PlaceArguments) -> ExitCode {
    let standings = match SettingsSources::new(layer_at(global, place), variable).read() {
        Ok(reading) => reading.standings,
        Err(refusal) => return refused(global, &refusal),
    };
    let body = serde_json::json!({ "items": standings });
    let word = |value: &Option<toml::Value>| match value {
        None => "-".to_owned(),
        Some(toml::Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let rows = standings.iter().map(|standing| {
        [
            standing.key.to_owned(),
            word(&standing.value),
            word(&standing.default),
            standing.source.to_string(),
        ]
    });
    let text = match global.output {
        Format::Json => format!("{body:#}\n"),
        Format::Jsonl => standings
            .iter()
            .filter_map(|standing| serde_json::to_string(standing).ok())
            .map(|line| line + "\n")
            .collect(),
        Format::Yaml => serde_yaml_ng::to_string(&body).unwrap_or_default(),
        Format::Name => KEYS.iter().map(|k| format!("{}\n", k.key)).collect(),
        Format::Table | Format::Wide => {
            let titles = ["KEY", "VALUE", "DEFAULT", "SOURCE"].map(str::to_owned);
            let rows: Vec<[String; 4]> = std::iter::once(titles).chain(rows).collect();
            let width = |at: usize| rows.iter().map(|row| row[at].len()).max().unwrap_or(0);
            let [key, value, default] = [width(0), width(1), width(2)];
            rows.iter()
                .map(|[k, v, d, source]| format!("{k:key$}  {v:value$}  {d:default$}  {source}\n"))
                .collect()
        }
        Format::Csv => {
            let mut lines = csv::Writer::from_writer(Vec::new());
            let written = lines
                .write_record(["key", "value", "default", "source"])
                .and_then(|()| rows.into_iter().try_for_each(|row| lines.write_record(row)));
            written
                .ok()
                .and_then(|()| lines.into_inner().ok())
                .and_then(|bytes| String::from_utf8(bytes).ok())
                .unwrap_or_default()
        }
    };
    say(&text);
    ExitCode::SUCCESS
}

fn say(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}
