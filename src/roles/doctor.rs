//! `fardel doctor`: looks at this machine and says in words what is missing for sessions and how to
//! get it. Works without a server, changes nothing that stays, and never guesses: a check that cannot
//! be made says so.

pub(super) mod checks;
mod data_checks;
mod host;
mod kernel_probe;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use base::settings::Settings;
use serde::Serialize;

use crate::doors::cli::args::Format;

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckState {
    Ok,
    /// Sessions run, with less: the finding says what is lost.
    Warn,
    /// The server or its sessions cannot do their work.
    Fail,
}

/// The ids of all checks there are; each is named in Korean.
const IDS: [&str; 51] = [
    "accelerators",
    "address",
    "architecture",
    "backup-disk",
    "backups",
    "catalog",
    "catalog-log",
    "catalog-sound",
    "cgroup",
    "cgroup-write",
    "clock",
    "clock-and-state",
    "continuity",
    "controllers",
    "disk",
    "disk-faults",
    "file-watches",
    "findings",
    "gpu",
    "holder",
    "host-name",
    "id-mapped-mounts",
    "inodes",
    "kernel",
    "killed-for-memory",
    "limits",
    "machine",
    "memory-pressure",
    "namespace-count",
    "open-files",
    "overcommit",
    "overlay",
    "port",
    "port-apps",
    "port-http",
    "process-numbers",
    "randomness",
    "restart-wanted",
    "root",
    "run-directory",
    "schema",
    "seccomp",
    "session-ids",
    "settings-file",
    "state",
    "state-disk",
    "state-mount",
    "state-owner",
    "swap",
    "time-sync",
    "user-namespaces",
];

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DoctorCheck {
    pub id: &'static str,
    pub state: CheckState,
    /// What is there, one sentence.
    pub found: String,
    /// What would mend it; empty where nothing needs to be.
    pub fix: String,
}

impl DoctorCheck {
    fn ok(id: &'static str, found: impl Into<String>) -> Self {
        Self::new(id, CheckState::Ok, found, "")
    }

    fn warn(id: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(id, CheckState::Warn, found, fix)
    }

    fn fail(id: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(id, CheckState::Fail, found, fix)
    }

    fn new(
        id: &'static str,
        state: CheckState,
        found: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        debug_assert!(IDS.contains(&id), "{id} does not stand among the ids");
        Self {
            id,
            state,
            found: found.into(),
            fix: fix.into(),
        }
    }
}

/// Every check, made now; what is not well comes first.
pub(super) fn every(settings: &Settings) -> Vec<DoctorCheck> {
    let mut checks = checks::all(settings);
    let host = host::Host {
        root: std::path::Path::new("/"),
        data: &settings.data,
        now: jiff::Timestamp::now().as_second(),
    };
    checks.extend(host.all());
    let file = crate::roles::settings_file::settings_file();
    checks.extend(data_checks::all(
        settings,
        &file,
        base::observe::Clock::system().now(),
    ));
    checks.sort_by_key(|check| std::cmp::Reverse(check.state));
    checks
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
        for check in &checks {
            assert!(check.found.ends_with('.'), "{}: {}", check.id, check.found);
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
        assert!(
            !std::path::Path::new(&data).exists(),
            "a check left something behind"
        );
    }

    #[test]
    fn every_check_is_named_in_korean() {
        use crate::doors::text::{Language, Text, codes};
        let korean = Text::new(Language::Korean);
        let untold: Vec<&str> = IDS
            .into_iter()
            .filter(|id| codes::check(korean, id).is_none())
            .collect();
        assert!(untold.is_empty(), "messages.toml lacks {untold:?}");
    }

    #[test]
    fn a_taken_port_is_found_and_another_is_named() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = taken.local_addr().expect("bound").port();
        let data = folder.path().display().to_string();
        let settings = Settings::read(Default::default(), |name| match name {
            "FARDEL_DATA" | "FARDEL_RUN" => Some(data.clone()),
            "FARDEL_LISTEN" => Some(format!("127.0.0.1:{port}")),
            "FARDEL_TLS" => Some("on".into()),
            "FARDEL_LISTEN_HTTP" => Some(format!("127.0.0.1:{port}")),
            "FARDEL_LISTEN_APPS" => Some("127.0.0.1:0".into()),
            "FARDEL_CONFIG" => Some("/nonexistent".into()),
            _ => None,
        })
        .expect("valid settings");
        let checks = checks::all(&settings);
        let check = |id| checks.iter().find(|c| c.id == id).expect("a check");
        assert_eq!(check("port").state, CheckState::Fail);
        assert!(check("port").fix.contains("FARDEL_LISTEN"));
        // The console serves without this one, and says what is missing.
        let http = check("port-http");
        assert_eq!(http.state, CheckState::Warn);
        let own = format!("(process {})", std::process::id());
        assert!(http.found.contains(&own), "{}", http.found);
        assert!(http.fix.contains("listen_http"), "{}", http.fix);
        assert_eq!(check("port-apps").state, CheckState::Ok);
    }
}
