//! `fardel backup create|verify|restore` and `fardel upgrade`: work on the files of the state itself, with
//! or without a server beside them, and say in sentences what was done. Decides nothing about backups;
//! that is `server::backup`.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use base::observe::{Clock, chain};
use base::settings::Settings;
use rules::refusals;
use serde::Serialize;
use server::backup::{self, BackupPaths, Passphrase};
use server::{Failure, upgrade};

use super::settings_file::settings_file;
use crate::doors::cli::args::{Format, Global};
use crate::doors::cli::login::passphrase;
use crate::doors::cli::refused::refused_with;

/// One of the verbs, with everything it needs but the settings.
pub(super) enum BackupCommand {
    Create {
        file: PathBuf,
    },
    Verify {
        file: PathBuf,
        scratch: Option<PathBuf>,
    },
    Restore {
        file: PathBuf,
        replace: bool,
    },
    Status,
    Rollback,
    ShowState,
    AcceptState,
}

/// Does one verb and gives its exit code: 0, or 1 with a sentence on standard error.
pub(super) fn main(
    verb: BackupCommand,
    settings: &Settings,
    passphrase_file: Option<&Path>,
    global: &Global,
) -> ExitCode {
    match done(verb, settings, passphrase_file, global) {
        Ok(text) => {
            let _ = std::io::stdout().lock().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(failure) => {
            let refusal = match failure {
                Failure::Refusal(refusal) => refusal,
                fault => refusals::backup_command_failed(chain(&fault)),
            };
            refused_with(global, &refusal, 1)
        }
    }
}

fn done(
    verb: BackupCommand,
    settings: &Settings,
    passphrase_file: Option<&Path>,
    global: &Global,
) -> Result<String, Failure> {
    let places = BackupPaths {
        data: settings.data.clone(),
        settings: settings_file(),
    };
    let now = Clock::system().now();
    let began = Instant::now();
    let secret = |twice: bool| -> Result<Passphrase, Failure> {
        let from = passphrase_file
            .map(Path::to_owned)
            .or_else(|| settings.backup_passphrase_file.clone());
        match from {
            Some(file) => Ok(Passphrase::read(&file)?),
            None if std::io::stdin().is_terminal() => Ok(Passphrase::new(&passphrase(twice)?)?),
            None => Err(refusals::backup_passphrase_missing().into()),
        }
    };
    match verb {
        BackupCommand::Create { file } => {
            let made = backup::create(&places, &secret(true)?, &file, now)?;
            let text = format!(
                "{} holds a backup of {}: {}, {:.1} s\n",
                made.path.display(),
                places.data.display(),
                made.size,
                began.elapsed().as_secs_f64()
            );
            Ok(shown(global, &made, text))
        }
        BackupCommand::Verify { file, scratch } => {
            let header = backup::look(&file)?;
            let scratch =
                scratch.unwrap_or_else(|| node::doctor::existing(&settings.data).to_owned());
            let verified = backup::verify(&file, &secret(false)?, &scratch)?;
            let mut text = format!(
                "made {} by fardel {} on box {}\n{}",
                header.made_at,
                header.program,
                header.installation_id,
                contents(&verified)
            );
            for damage in &verified.catalog.damage {
                text.push_str(&format!("! damaged: {damage}\n"));
            }
            for finding in &verified.catalog.findings {
                text.push_str(&format!("! {}\n", finding.text));
            }
            if !verified.catalog.is_sound() {
                let _ = std::io::stdout()
                    .lock()
                    .write_all(shown(global, &verified, text).as_bytes());
                return Err(refusals::backup_catalog_unsound().into());
            }
            text.push_str(&format!(
                "sound; the restore was rehearsed in {:.1} s\n",
                began.elapsed().as_secs_f64()
            ));
            Ok(shown(global, &verified, text))
        }
        BackupCommand::Restore { file, replace } => {
            // A problem of the place is reported before a passphrase is asked for.
            backup::look(&file)?;
            let restored = backup::restore(&file, &secret(false)?, &places, replace, now)?;
            let mut text = contents(&restored.verified);
            if let Some(aside) = &restored.aside {
                text.push_str(&format!(
                    "the state that was there lies in {}\n",
                    aside.display()
                ));
            }
            for path in &restored.settings_beside {
                text.push_str(&format!(
                    "{} holds settings of the backup that differ from those in force; compare, then merge\n",
                    path.display()
                ));
            }
            if restored.lost > 0 {
                text.push_str(&format!(
                    "{} session(s) ran elsewhere when the backup was made; here they ended as lost\n",
                    restored.lost
                ));
            }
            if restored.verified.catalog.images > 0 {
                text.push_str(
                    "images are not in a backup: import them again; the sessions name them\n",
                );
            }
            text.push_str(&format!(
                "restored to {} in {:.1} s; start the server: systemctl start fardel\n",
                places.data.display(),
                began.elapsed().as_secs_f64()
            ));
            Ok(shown(global, &restored, text))
        }
        BackupCommand::Status => {
            let standing = upgrade::standing(&settings.data)?;
            let mut text = match standing.version {
                Some(version) => format!(
                    "catalog version {version}; this program knows up to {}\n",
                    standing.known
                ),
                None => format!(
                    "no catalog yet; this program makes version {}\n",
                    standing.known
                ),
            };
            for kept in &standing.kept {
                text.push_str(&format!(
                    "kept: version {} of {}, {}, {}\n",
                    kept.version,
                    kept.made_at,
                    kept.size,
                    kept.path.display()
                ));
            }
            Ok(shown(global, &standing, text))
        }
        BackupCommand::ShowState => {
            super::state::show(&settings.data, |value, text| shown(global, value, text))
        }
        BackupCommand::AcceptState => {
            super::state::accept(&settings.data, |value, text| shown(global, value, text))
        }
        BackupCommand::Rollback => {
            let done = upgrade::rollback(&settings.data, now)?;
            let mut text = format!(
                "catalog version {} is in force again; version {} lies in {}\n",
                done.to,
                done.from,
                done.aside.display()
            );
            match &done.lost {
                None => text.push_str("what happened since cannot be told\n"),
                Some(lost) if lost.is_empty() => text.push_str("nothing had happened since\n"),
                Some(lost) => {
                    let since = done
                        .lost_since
                        .map_or_else(String::new, |at| format!(" since {at}"));
                    text.push_str(&format!(
                        "not in force any more, of what happened{since}:\n"
                    ));
                    for (code, count) in lost {
                        text.push_str(&format!("  {count:>6}  {code}\n"));
                    }
                }
            }
            if done.would_rise_again {
                text.push_str("this program would upgrade it again: install the earlier one before you start\n");
            }
            Ok(shown(global, &done, text))
        }
    }
}

fn contents(verified: &backup::Verified) -> String {
    let found = &verified.catalog;
    format!(
        "{} users, {} sessions, {} images, {} events; {} files\n",
        found.users,
        found.sessions,
        found.images,
        found.events,
        verified.files.len()
    )
}

fn shown(global: &Global, value: &impl Serialize, text: String) -> String {
    match global.output {
        Format::Json => serde_json::to_string_pretty(value)
            .map(|t| t + "\n")
            .unwrap_or(text),
        Format::Jsonl => serde_json::to_string(value)
            .map(|t| t + "\n")
            .unwrap_or(text),
        Format::Yaml => serde_yaml_ng::to_string(value).unwrap_or(text),
        Format::Table | Format::Wide | Format::Csv | Format::Name if global.quiet => String::new(),
        Format::Table | Format::Wide | Format::Csv | Format::Name => text,
    }
}
