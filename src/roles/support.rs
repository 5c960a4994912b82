//! `fardel support bundle`: everything that remote support needs to understand a box, in one file that
//! may be read before it is sent. Works while the server is down. What is secret is taken out of
//! every text; names of people and what sessions run are never put in.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use base::redact;
use base::settings::LoadedSettings;
use node::{host_network as network, program};
use rules::refusal::Refusal;
use rules::refusals;
use serde_json::{Value, json};

use super::doctor;
use crate::doors::cli::args::{Format, Global, Support};
use crate::doors::cli::refused::refused_with;
use crate::doors::cli::{self, Surroundings};

/// Newest lines of the log that go in.
const LOG_LINES: &str = "5000";
/// Logs of supervisors that go in, the newest, and how much of each.
const SHIM_LOGS: usize = 20;
const SHIM_LOG_BYTES: usize = 8 << 10;
/// Most bytes of one member; a log that grew wild must not make the bundle unreadable.
const MAX_BUNDLE_FILE_BYTES: usize = 4 << 20;

/// One file of the bundle, with what was taken out of it.
struct SupportFile {
    name: &'static str,
    text: String,
    redacted: usize,
}

/// Makes the bundle, or shows what it would hold.
pub fn main(
    global: &Global,
    reading: &LoadedSettings,
    around: &Surroundings,
    words: Support,
) -> ExitCode {
    let Support::Bundle { file, preview } = words;
    let members = collect(reading, around);
    let done = if preview {
        show(global, &members)
    } else {
        write(file, members)
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => refused_with(global, &refusal, 1),
    }
}

fn show(global: &Global, members: &[SupportFile]) -> Result<(), Refusal> {
    let text = if matches!(global.output, Format::Json | Format::Jsonl) {
        let items: Vec<Value> = members
            .iter()
            .map(|member| {
                json!({
                    "name": member.name, "bytes": member.text.len(), "redacted": member.redacted, "text": member.text,
                })
            })
            .collect();
        json!({"items": items}).to_string()
    } else {
        members
            .iter()
            .map(|member| {
                let taken = match member.redacted {
                    0 => String::new(),
                    n => format!(", {n} secrets removed"),
                };
                format!(
                    "==> {} ({} bytes{taken}) <==\n{}\n\n",
                    member.name,
                    member.text.len(),
                    member.text.trim_end()
                )
            })
            .collect()
    };
    print(text.as_bytes())
}

fn write(file: Option<PathBuf>, members: Vec<SupportFile>) -> Result<(), Refusal> {
    let now = jiff::Zoned::now();
    let seconds = u64::try_from(now.timestamp().as_second()).unwrap_or(0);
    let folder = format!("fardel-support-{}", now.strftime("%Y%m%d-%H%M"));
    let packed: Vec<(String, Vec<u8>)> = members
        .into_iter()
        .map(|member| {
            (
                format!("{folder}/{}", member.name),
                member.text.into_bytes(),
            )
        })
        .collect();
    let bytes = store::bundle::tar_gz(&packed, seconds)
        .map_err(|error| refusals::support_not_packed(&error))?;
    let file = file.unwrap_or_else(|| PathBuf::from(format!("{folder}.tar.gz")));
    if file == Path::new("-") {
        return print(&bytes);
    }
    private(&file, &bytes)
        .map_err(|error| refusals::support_not_written(file.display(), &error))?;
    print(format!("{} ({} bytes)\n", file.display(), bytes.len()).as_bytes())
}

/// Writes a file that only its owner may read, whole or not at all.
fn private(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut beside = file.as_os_str().to_owned();
    beside.push(".part");
    let beside = PathBuf::from(beside);
    let written = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)
        .and_then(|mut open| {
            open.write_all(bytes)?;
            open.sync_all()
        })
        .and_then(|()| std::fs::rename(&beside, file));
    if written.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    written
}

fn print(bytes: &[u8]) -> Result<(), Refusal> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)
        .and_then(|()| out.flush())
        .map_err(|error| refusals::support_output_unwritable(&error))
}

fn collect(reading: &LoadedSettings, around: &Surroundings) -> Vec<SupportFile> {
    let settings = &reading.settings;
    let names = names(around);
    let raw: Vec<(&'static str, String)> = vec![
        ("about.txt", about()),
        (
            "checks.json",
            format!("{:#}", json!({"items": doctor::every(settings)})),
        ),
        (
            "settings.json",
            format!("{:#}", json!({"items": reading.standings})),
        ),
        ("machine.txt", machine()),
        ("network.txt", network_text()),
        ("log.txt", log()),
        ("supervisors.txt", supervisors(&settings.data)),
        ("state.txt", state(&settings.data)),
        ("server/ready.json", ask(around, "/readyz")),
        ("server/findings.json", ask(around, "/api/v1/findings")),
        ("server/sessions.json", sessions(around)),
        ("server/operations.json", operations(around)),
    ];
    raw.into_iter()
        .map(|(name, text)| {
            let (text, secrets) = redact::secrets(&text);
            let (text, users) = redact::users(&text, &names);
            let redacted = secrets + users;
            SupportFile {
                name,
                text: bounded(text),
                redacted,
            }
        })
        .collect()
}

/// A text whose beginning is left out, and said so, where it is too long.
fn bounded(text: String) -> String {
    if text.len() <= MAX_BUNDLE_FILE_BYTES {
        return text;
    }
    let cut =
        (text.len() - MAX_BUNDLE_FILE_BYTES..text.len()).find(|at| text.is_char_boundary(*at));
    format!(
        "[the beginning is left out]\n{}",
        &text[cut.unwrap_or(text.len())..]
    )
}

fn about() -> String {
    format!(
        "fardel {} support bundle, {}\n\n\
         Holds: checks of the machine, settings with their sources, facts of the machine, the newest\n\
         lines of the log, states and reasons of sessions, findings.\n\
         Does not hold: names of users, commands, variables, output or files of sessions, passwords,\n\
         tokens, keys. What looked like a secret in a text stands as [taken out: ...].\n",
        env!("CARGO_PKG_VERSION"),
        jiff::Zoned::now().strftime("%Y-%m-%d %H:%M:%S %Z"),
    )
}

fn file(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| format!("cannot be read: {error}"))
}

fn section(title: &str, text: &str) -> String {
    format!("---- {title}\n{}\n\n", text.trim_end())
}

fn machine() -> String {
    let processor: String = file("/proc/cpuinfo")
        .lines()
        .take_while(|line| !line.is_empty())
        .filter(|line| {
            ["model name", "cpu cores", "siblings"]
                .iter()
                .any(|name| line.starts_with(name))
        })
        .map(|line| format!("{line}\n"))
        .collect();
    [
        ("system", file("/etc/os-release")),
        ("kernel", file("/proc/version")),
        ("started with", file("/proc/cmdline")),
        ("up (seconds)", file("/proc/uptime")),
        ("load", file("/proc/loadavg")),
        ("processor", processor),
        ("memory", file("/proc/meminfo")),
        ("pressure, processor", file("/proc/pressure/cpu")),
        ("pressure, memory", file("/proc/pressure/memory")),
        ("pressure, disk", file("/proc/pressure/io")),
        ("mounts", file("/proc/mounts")),
        ("disks", file("/proc/partitions")),
        ("own groups", file("/proc/self/cgroup")),
    ]
    .iter()
    .map(|(title, text)| section(title, text))
    .collect()
}

fn network_text() -> String {
    let cards: String = network::interfaces(Path::new("/"))
        .iter()
        .map(|card| {
            let link = if card.link { "link" } else { "no link" };
            format!(
                "{} {} {} {}\n",
                card.name,
                link,
                card.mac,
                card.addresses.join(" ")
            )
        })
        .collect();
    section("cards", &cards) + &section("routes", &file("/proc/net/route"))
}

fn log() -> String {
    program::journal(LOG_LINES).unwrap_or_else(|refusal| format!("no journal: {}", refusal.text))
}

/// The newest ends of the supervisors' own logs; what a session printed is not in them.
fn supervisors(data: &Path) -> String {
    let mut found: Vec<(std::time::SystemTime, PathBuf)> = std::fs::read_dir(data.join("logs"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("shim.log"))
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .collect();
    found.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
    found
        .iter()
        .take(SHIM_LOGS)
        .map(|(_, path)| {
            let bytes = std::fs::read(path).unwrap_or_default();
            let end = &bytes[bytes.len().saturating_sub(SHIM_LOG_BYTES)..];
            let name = path.parent().and_then(Path::file_name).unwrap_or_default();
            section(&name.to_string_lossy(), &String::from_utf8_lossy(end))
        })
        .collect()
}

/// Sizes of what lies in the state directory, one level deep.
fn state(data: &Path) -> String {
    let mut lines: Vec<String> = std::fs::read_dir(data)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            use std::os::unix::fs::MetadataExt;
            let meta = entry.metadata().ok()?;
            let name = entry.file_name().to_string_lossy().into_owned();
            Some(format!(
                "{:o} {}:{} {:>12} {name}\n",
                meta.mode(),
                meta.uid(),
                meta.gid(),
                meta.len()
            ))
        })
        .collect();
    lines.sort();
    lines.concat()
}

fn ask(around: &Surroundings, path: &str) -> String {
    match cli::ask_local(around, "GET", path, None, None) {
        Ok(answer) => format!("{answer:#}"),
        Err(refusal) => format!("{} ({})", refusal.text, refusal.code),
    }
}

/// The newest sessions without what they run and whose they are.
fn sessions(around: &Surroundings) -> String {
    const KEPT: [&str; 15] = [
        "id",
        "kind",
        "state",
        "desired",
        "image",
        "resources",
        "node",
        "paused",
        "incarnation",
        "outcome",
        "exit_code",
        "reason",
        "created_at",
        "started_at",
        "ended_at",
    ];
    listed(around, "/api/v1/sessions?limit=200", &KEPT)
}

fn operations(around: &Surroundings) -> String {
    const KEPT: [&str; 9] = [
        "id",
        "kind",
        "state",
        "step",
        "done",
        "total",
        "refusal",
        "created_at",
        "ended_at",
    ];
    listed(around, "/api/v1/operations", &KEPT)
}

fn listed(around: &Surroundings, path: &str, kept: &[&str]) -> String {
    match cli::ask_local(around, "GET", path, None, None) {
        Err(refusal) => format!("{} ({})", refusal.text, refusal.code),
        Ok(answer) => {
            let items: Vec<Value> = answer["items"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_object)
                .map(|item| {
                    item.iter()
                        .filter(|(key, _)| kept.contains(&key.as_str()))
                        .map(|(key, value)| (key.clone(), told(value)))
                        .collect()
                })
                .map(Value::Object)
                .collect();
            format!("{:#}", json!({"items": items}))
        }
    }
}

/// A reason or a refusal by its code alone: its sentence may name who stopped something, or a program.
fn told(value: &Value) -> Value {
    match value.get("code") {
        Some(code) => code.clone(),
        None => value.clone(),
    }
}

/// Everybody's names; empty while the server is down.
fn names(around: &Surroundings) -> Vec<String> {
    cli::ask_local(around, "GET", "/api/v1/users", None, None)
        .map(|users| {
            users["items"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|user| Some(user["name"].as_str()?.to_owned()))
                .collect()
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_is_too_long_loses_its_beginning_and_says_so() {
        let whole = "x".repeat(4 << 20);
        assert_eq!(bounded(whole.clone()), whole);
        let cut = bounded(format!("first{whole}"));
        assert_eq!(cut, format!("[the beginning is left out]\n{whole}"));
        // No letter is cut in the middle.
        let wide = bounded("물".repeat(2 << 20));
        assert!(wide.ends_with("물") && wide.len() <= (4 << 20) + 28);
    }
}
