//! What the console knows and does: asks the server over its own socket and the machine through its
//! own programs. Draws nothing.

use std::path::Path;

use node::host_network::{self as network, Interface};
use node::program::{self, UNITS};
use rules::refusal::Refusal;
use rules::refusals;
use serde_json::{Value, json};

use super::ConsoleRole;
use crate::doors::cli;
use crate::doors::console::{ConsoleStatus, HealthFact};

/// Everything for the first screen; costs four calls of the local server.
pub(super) fn seen(own: &ConsoleRole<'_>, setup: Option<String>) -> ConsoleStatus {
    let now = jiff::Zoned::now();
    let overview = own.call("GET", "/api/v1/overview", None);
    let settings = own.call("GET", "/api/v1/settings", None);
    let mut seen = ConsoleStatus {
        host: nix::unistd::gethostname().map_or_else(
            |_| "fardel".to_owned(),
            |name| name.to_string_lossy().into_owned(),
        ),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        clock: now.strftime("%H:%M:%S %Z").to_string(),
        setup,
        ..ConsoleStatus::default()
    };
    match (&overview, &settings) {
        (Ok(overview), Ok(settings)) => {
            let trust = own.call("GET", "/api/v1/trust", None).ok();
            seen.fingerprint = trust.and_then(|t| t["fingerprint"].as_str().map(str::to_owned));
            let ssh = own.call("GET", "/api/v1/ssh", None).ok();
            seen.ssh = ssh.and_then(|ssh| ssh["fingerprint"].as_str().map(str::to_owned));
            seen.addresses = addresses(settings, &network::interfaces(Path::new("/")));
            seen.health = health(overview, setup_open(own));
        }
        (Err(refusal), _) | (_, Err(refusal)) => seen.silent = Some(refusal.text.clone()),
    }
    seen
}

/// Where pages answer: the address that was set, or every own one where it is all of them.
fn addresses(settings: &Value, found: &[Interface]) -> Vec<(String, String)> {
    let value = |key: &'static str| {
        settings["items"]
            .as_array()
            .into_iter()
            .flatten()
            .chain(std::iter::once(settings))
            .find_map(|item| match item["key"].as_str() {
                Some(named) if named == key => item["value"].as_str(),
                _ => item[key].as_str(),
            })
            .unwrap_or_default()
    };
    let Ok(socket) = value("listen").parse::<std::net::SocketAddr>() else {
        return Vec::new();
    };
    let encrypted = match value("tls") {
        "on" => true,
        "off" => false,
        _ => !socket.ip().is_loopback(),
    };
    let (scheme, usual) = if encrypted {
        ("https", 443)
    } else {
        ("http", 80)
    };
    let port = socket.port();
    let url = |host: &str| {
        if port == usual {
            format!("{scheme}://{host}")
        } else {
            format!("{scheme}://{host}:{port}")
        }
    };
    if !socket.ip().is_unspecified() {
        let note = if socket.ip().is_loopback() {
            "(this machine only)"
        } else {
            ""
        };
        return vec![(url(&socket.ip().to_string()), note.to_owned())];
    }
    found
        .iter()
        .flat_map(|card| card.addresses.iter().map(move |address| (card, address)))
        .map(|(card, address)| {
            let ip = address.split('/').next().unwrap_or_default();
            let host = if ip.contains(':') {
                format!("[{ip}]")
            } else {
                ip.to_owned()
            };
            (url(&host), format!("({})", card.name))
        })
        .collect()
}

fn health(overview: &Value, setup_open: bool) -> Vec<HealthFact> {
    let mut facts = Vec::new();
    let mut say = |text: String, well: bool| facts.push(HealthFact { text, well });
    if setup_open {
        say("not set up yet: press 8".to_owned(), false);
    }
    let many = |n: usize, one: &str, more: &str| format!("{n} {}", if n == 1 { one } else { more });
    let count = |value: &Value| value.as_array().map_or(0, Vec::len);
    let machines = overview["machines"].as_array().cloned().unwrap_or_default();
    let problems = count(&overview["findings"])
        + machines
            .iter()
            .map(|m| count(&m["problems"]))
            .sum::<usize>();
    if machines.iter().any(|machine| machine["silent"] == true) {
        say("a machine does not answer".to_owned(), false);
    }
    if problems > 0 {
        say(many(problems, "warning", "warnings"), false);
    }
    let devices: usize = machines
        .iter()
        .map(|machine| count(&machine["devices"]))
        .sum();
    if devices > 0 {
        say(many(devices, "GPU", "GPUs"), true);
    }
    let counts = &overview["counts"];
    say(
        format!(
            "sessions {} running, {} waiting",
            counts["running"], counts["pending"]
        ),
        true,
    );
    facts
}

pub(super) fn setup_open(own: &ConsoleRole<'_>) -> bool {
    own.call("GET", "/api/v1/users", None).is_ok_and(|users| {
        !users["items"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|user| user["role"] == "administrator")
    })
}

/// Signs a user in to see that they are an administrator, and out again.
///
/// Errors: as signing in; `role.administrator-needed`.
pub(super) fn prove(own: &ConsoleRole<'_>, name: &str, password: &str) -> Result<(), Refusal> {
    let body = json!({
        "name": name, "password": password, "token_name": "console of the machine", "expires_seconds": 60,
    });
    let answer = own.call("POST", "/api/v1/sign-in", Some(&body))?;
    let secret = answer["secret"].as_str().unwrap_or_default();
    let me = cli::ask_local(own.around, "GET", "/api/v1/me", None, Some(secret));
    if let Some(id) = answer["token"]["id"].as_str() {
        // The token ends by itself within the minute in any case.
        let _ = cli::ask_local(
            own.around,
            "DELETE",
            &format!("/api/v1/me/tokens/{id}"),
            None,
            Some(secret),
        );
    }
    let me = me?;
    let role = me["role"].as_str().or(me["user"]["role"].as_str());
    if role == Some("administrator") {
        return Ok(());
    }
    Err(refusals::role_not_administrator(name))
}

pub(super) fn network_lines(found: &[Interface]) -> Vec<String> {
    if found.is_empty() {
        return vec!["This machine has no network card.".to_owned()];
    }
    found
        .iter()
        .map(|card| {
            let link = if card.link { "link" } else { "no link" };
            let addresses = if card.addresses.is_empty() {
                "no address".to_owned()
            } else {
                card.addresses.join("  ")
            };
            format!("{:<14} {:<9} {:<19} {addresses}", card.name, link, card.mac)
        })
        .collect()
}

pub(super) fn as_lines(seen: &ConsoleStatus) -> Vec<String> {
    let mut lines = vec![format!("{} {} {}", seen.host, seen.version, seen.clock)];
    lines.extend(seen.silent.iter().cloned());
    lines.extend(
        seen.addresses
            .iter()
            .map(|(address, note)| format!("{address} {note}").trim_end().to_owned()),
    );
    lines.extend(
        seen.fingerprint
            .iter()
            .map(|print| format!("certificate SHA-256 {print}")),
    );
    lines.extend(seen.ssh.iter().map(|print| format!("ssh {print}")));
    lines.extend(
        seen.health
            .iter()
            .map(|fact| format!("{}{}", if fact.well { "" } else { "! " }, fact.text)),
    );
    lines
}

pub(super) fn as_json(seen: &ConsoleStatus) -> Value {
    json!({
        "host": seen.host, "version": seen.version, "clock": seen.clock,
        "addresses": seen.addresses.iter().map(|(address, note)| json!({"address": address, "note": note})).collect::<Vec<_>>(),
        "fingerprint": seen.fingerprint,
        "ssh": seen.ssh,
        "health": seen.health.iter().map(|fact| json!({"text": fact.text, "well": fact.well})).collect::<Vec<_>>(),
        "silent": seen.silent,
    })
}

/// One line a unit; says so where there is no systemd.
pub(super) fn services() -> Vec<String> {
    UNITS
        .iter()
        .map(|unit| {
            let shown = program::run(&[
                "systemctl",
                "show",
                "--property=ActiveState,SubState,NRestarts,ActiveEnterTimestamp",
                "--value",
                unit,
            ]);
            match shown {
                Ok(text) => format!("{unit:<26} {}", text.lines().collect::<Vec<_>>().join("  ")),
                Err(said) => format!("{unit:<26} {said}"),
            }
        })
        .collect()
}

pub(super) fn restart() -> Result<(), Refusal> {
    program::run(&["systemctl", "restart", UNITS[0]])
        .map(|_| ())
        .map_err(|said| {
            not_done(
                &said,
                "systemctl status fardel, or start fardel serve by hand.",
            )
        })
}

pub(super) fn power(again: bool) -> Result<(), Refusal> {
    program::run(&["systemctl", if again { "reboot" } else { "poweroff" }])
        .map(|_| ())
        .map_err(|said| {
            not_done(
                &said,
                "The button of the machine works too; nothing acknowledged is lost.",
            )
        })
}

fn not_done(said: &str, hint: &str) -> Refusal {
    refusals::console_not_done(said, hint)
}

/// The newest lines of both units, without tabs.
pub(super) fn logs(lines: &str) -> Result<Vec<String>, Refusal> {
    let said = program::journal(lines)?;
    Ok(said
        .lines()
        .map(|line| line.replace('\t', "    "))
        .collect())
}

/// Where a bundle goes by default: a stick that is mounted, else beside the state.
pub(super) fn bundle_place(data: &Path) -> String {
    let name = format!(
        "fardel-support-{}.tar.gz",
        jiff::Zoned::now().strftime("%Y%m%d-%H%M")
    );
    let stick = std::fs::read_to_string("/proc/mounts")
        .unwrap_or_default()
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let device = words.next()?.strip_prefix("/dev/")?.to_owned();
            Some((device, words.next()?.to_owned()))
        })
        .find(|(device, _)| {
            let disk = device.trim_end_matches(|c: char| c.is_ascii_digit());
            std::fs::read_to_string(format!("/sys/block/{disk}/removable"))
                .is_ok_and(|text| text.trim() == "1")
        });
    match stick {
        Some((_, mount)) => format!("{mount}/{name}"),
        None => data.join(name).display().to_string(),
    }
}

pub(super) fn bundle_note() -> Vec<String> {
    vec![
        "Logs, settings and checks in one file, without passwords, tokens or users' data."
            .to_owned(),
        "Mount a stick first (7 Shell) and give its path, or copy the file later.".to_owned(),
    ]
}

pub(super) fn bundle(file: &str) -> Result<Vec<String>, Refusal> {
    let own = std::env::current_exe().map_or_else(
        |_| "/usr/bin/fardel".to_owned(),
        |path| path.display().to_string(),
    );
    program::run(&[&own, "support", "bundle", file])
        .map(|said| {
            said.lines()
                .map(str::to_owned)
                .chain([format!("Written to {file}.")])
                .collect()
        })
        .map_err(|said| not_done(&said, "Is there room, and may this folder be written?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cards() -> Vec<Interface> {
        vec![Interface {
            name: "eno1".into(),
            mac: "02:00:00:00:00:01".into(),
            link: true,
            addresses: vec!["10.1.4.20/24".into(), "fd00::1/64".into()],
        }]
    }

    #[test]
    fn a_box_for_all_addresses_names_each_of_them() {
        let shown = addresses(
            &json!({"items": [{"key": "listen", "value": "0.0.0.0:7860"}]}),
            &cards(),
        );
        assert_eq!(
            shown,
            [
                ("https://10.1.4.20:7860".to_owned(), "(eno1)".to_owned()),
                ("https://[fd00::1]:7860".to_owned(), "(eno1)".to_owned()),
            ]
        );
        let own = addresses(
            &json!({"items": [{"key": "listen", "value": "127.0.0.1:7860"}]}),
            &cards(),
        );
        assert_eq!(
            own,
            [(
                "http://127.0.0.1:7860".to_owned(),
                "(this machine only)".to_owned()
            )]
        );
        assert!(addresses(&json!({"items": []}), &cards()).is_empty());
    }

    #[test]
    fn the_worst_comes_first() {
        let overview = json!({
            "machines": [{"silent": true, "problems": [{"code": "x"}], "devices": []}],
            "findings": [{"code": "y"}],
            "counts": {"running": 3, "pending": 1},
        });
        let told: Vec<(String, bool)> = health(&overview, true)
            .into_iter()
            .map(|f| (f.text, f.well))
            .collect();
        assert_eq!(told[0], ("not set up yet: press 8".to_owned(), false));
        assert_eq!(told[2], ("2 warnings".to_owned(), false));
        assert_eq!(told[3], ("sessions 3 running, 1 waiting".to_owned(), true));
    }
}
