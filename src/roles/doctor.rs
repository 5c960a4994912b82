//! `fardel doctor`: looks at this machine and says in words what is missing for sessions and how to
//! get it. Works without a server, changes nothing that stays, and never guesses: a check that cannot
//! be made says so.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use base::settings::Settings;
use node::doctor::{self, host};
use rules::checks;
use rules::doctor::{CheckState, DoctorCheck};
use rules::refusal::Refusal;
use server::{Failure, offline_inspection};

use super::state;
use crate::doors::cli::args::Format;

/// Every check, made now; what is not well comes first.
pub(super) fn every(settings: &Settings) -> Vec<DoctorCheck> {
    let mut checks = doctor::checks::all(settings);
    let host = host::Host {
        root: Path::new("/"),
        data: &settings.data,
        now: jiff::Timestamp::now().as_second(),
    };
    checks.extend(host.all());
    let file = crate::roles::settings_file::settings_file();
    checks.extend(offline_inspection::checks::all(
        settings,
        &file,
        continuity(&settings.data),
        base::observe::Clock::system().now(),
    ));
    checks.sort_by_key(|check| std::cmp::Reverse(check.state));
    checks
}

/// Whether the catalog belongs to what the machine obeyed; nothing where there is no catalog yet, or none
/// that can be read, which another check says.
fn continuity(data: &Path) -> Option<DoctorCheck> {
    let refused = |refusal: Refusal| {
        DoctorCheck::from_parts("continuity", CheckState::Fail, refusal.text, refusal.hint)
    };
    match state::standing(data) {
        Ok(None) | Err(Failure::Fault(_)) => None,
        Err(Failure::Refusal(refusal)) if refusal.code == state::NOT_YOURS => None,
        Err(Failure::Refusal(refusal)) => Some(refused(refusal)),
        Ok(Some(standing)) => Some(match standing.refusal() {
            Some(refusal) => refused(refusal),
            None => checks::continuity_well(),
        }),
    }
}

/// Makes every check, prints them, and fails where one failed.
pub fn main(settings: &Settings, format: Format, no_color: bool) -> ExitCode {
    let checks = every(settings);
    let color = !no_color && std::io::stdout().is_terminal();
    let text = match format {
        Format::Json => serde_json::to_string_pretty(&serde_json::json!({"items": checks}))
            .map(|t| t + "\n")
            .unwrap_or_default(),
        Format::Jsonl => checks
            .iter()
            .filter_map(|c| serde_json::to_string(c).ok())
            .map(|line| line + "\n")
            .collect(),
        Format::Yaml => serde_yaml_ng::to_string(&checks).unwrap_or_default(),
        Format::Name => checks
            .iter()
            .filter(|c| c.state != CheckState::Ok)
            .map(|c| format!("{}\n", c.id))
            .collect(),
        Format::Table | Format::Wide | Format::Csv => written(&checks, color),
    };
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    let failed = checks.iter().any(|c| c.state == CheckState::Fail);
    ExitCode::from(u8::from(failed))
}

fn written(checks: &[DoctorCheck], color: bool) -> String {
    let mut text = String::new();
    for check in checks {
        let (word, shade) = match check.state {
            CheckState::Ok => ("ok  ", "\x1b[32m"),
            CheckState::Warn => ("warn", "\x1b[33m"),
            CheckState::Fail => ("FAIL", "\x1b[1;31m"),
        };
        let mark = if color {
            format!("{shade}{word}\x1b[0m")
        } else {
            word.to_owned()
        };
        text.push_str(&format!("{mark}  {:<18} {}\n", check.id, check.found));
        if !check.fix.is_empty() {
            text.push_str(&format!("{:25}to mend: {}\n", "", check.fix));
        }
    }
    let count = |state| checks.iter().filter(|c| c.state == state).count();
    text.push_str(&format!(
        "{} ok, {} warnings, {} failures\n",
        count(CheckState::Ok),
        count(CheckState::Warn),
        count(CheckState::Fail)
    ));
    text
}

#[cfg(test)]
mod tests {
    use crate::doors::text::{Language, Text, codes};
    use base::observe::Clock;
    use base::settings::SettingsLayer;
    use rules::doctor::IDS;
    use server::Server;
    use std::io::Read as _;
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn whatever_is_not_well_says_how_to_mend_it() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let data = folder.path().join("data").display().to_string();
        let settings = Settings::read(Default::default(), |name| match name {
            "FARDEL_DATA" => Some(data.clone()),
            "FARDEL_RUN" => Some(format!("{data}/run")),
            "FARDEL_LISTEN" => Some("127.0.0.1:0".into()),
            "FARDEL_CONFIG" => Some("/nonexistent".into()),
            _ => None,
        })
        .expect("valid settings");
        let checks = every(&settings);
        assert!(checks.len() >= 40, "only {} checks", checks.len());
        let korean = Text::new(Language::Korean);
        for check in &checks {
            assert!(check.found.ends_with('.'), "{}: {}", check.id, check.found);
            let (_, told) = codes::check(korean, check.id, &check.found).expect("a known id");
            assert!(!told.is_empty(), "no Korean: {}: {}", check.id, check.found);
            assert_eq!(
                check.state == CheckState::Ok,
                check.fix.is_empty(),
                "{} is {:?} and says {:?}",
                check.id,
                check.state,
                check.fix
            );
        }
        let mut ids: Vec<_> = checks.iter().map(|c| c.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), checks.len(), "an id stands twice");
        assert!(!Path::new(&data).exists(), "a check left something behind");
    }

    #[test]
    fn every_check_is_named_in_korean() {
        let korean = Text::new(Language::Korean);
        let untold: Vec<&str> = IDS
            .into_iter()
            .filter(|id| codes::check(korean, id, "").is_none())
            .collect();
        assert!(untold.is_empty(), "messages.toml lacks {untold:?}");
    }

    #[test]
    fn a_process_that_was_forked_beside_a_server_does_not_keep_its_state() {
        let folder = tempfile::tempdir().unwrap();
        let layer = SettingsLayer {
            data: Some(folder.path().join("data")),
            ..SettingsLayer::default()
        };
        let settings = Settings::read(layer, |name| {
            (name == "FARDEL_CONFIG").then(|| "/nonexistent".to_owned())
        })
        .unwrap();
        let first = Server::start(settings.clone(), Clock::system()).unwrap();
        let (mut there, says) = std::io::pipe().unwrap();
        let (waits, mut go) = std::io::pipe().unwrap();
        let child = std::thread::spawn(move || {
            node::doctor::kernel_probe::tried(|| {
                nix::unistd::write(&says, b"!")?;
                nix::unistd::read(waits.as_raw_fd(), &mut [0]).map(drop)
            })
        });
        // The child lives, with a copy of every file that is open here.
        there.read_exact(&mut [0]).unwrap();
        drop(first);
        let second = Server::start(settings, Clock::system());
        go.write_all(b"!").unwrap();
        assert_eq!(child.join().unwrap(), Ok(()));
        if let Err(failure) = second {
            panic!("{failure}");
        }
    }
}
