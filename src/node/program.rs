//! Other programs of the machine, run for their output: systemd's and this one's own. Never takes a
//! word of a command from a session.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rules::refusal::Refusal;
use rules::refusals;

/// The units of an installed box.
pub const UNITS: [&str; 3] = [
    "fardel.service",
    "fardel-sessions.service",
    "fardel-relay.service",
];

/// Runs a command to its end; what it printed where it went well, else a sentence with the first line
/// of what it complained about.
pub fn run(words: &[&str]) -> Result<String, String> {
    run_ending(words, &[0])
}

/// The same for a program that ends with one of these codes where it went well.
pub fn run_ending(words: &[&str], well: &[i32]) -> Result<String, String> {
    let Some((program, arguments)) = words.split_first() else {
        return Err("there is nothing to run".into());
    };
    let output = Command::new(program)
        .args(arguments)
        .env("SYSTEMD_PAGER", "")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{program} cannot be started: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if output
        .status
        .code()
        .is_some_and(|code| well.contains(&code))
    {
        return Ok(text(&output.stdout));
    }
    let said = match text(&output.stderr) {
        nothing if nothing.is_empty() => text(&output.stdout),
        said => said,
    };
    Err(format!(
        "{program} says: {}",
        said.lines().next().unwrap_or_default()
    ))
}

/// Starts this one's own file, or another, in a role that outlives this process; it hears and says nothing here. The handle is
/// for taking its end alone.
pub(crate) fn outliving(binary: &Path, role: &str, argument: &Path) -> io::Result<Child> {
    Command::new(binary)
        .arg(role)
        .arg(argument)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

/// The newest lines of the box's log.
///
/// Errors: `log.no-journal` where there is none.
pub fn journal(lines: &str) -> Result<String, Refusal> {
    run(&[
        "journalctl",
        "--no-pager",
        "--output=short-iso",
        "--lines",
        lines,
        "--unit",
        UNITS[0],
        "--unit",
        UNITS[1],
        "--unit",
        UNITS[2],
    ])
    .map_err(refusals::log_no_journal)
}
