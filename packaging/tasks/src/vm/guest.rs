//! What runs inside a guest: this very program, started there by a scenario's script. Speaks with the
//! product over its socket and with the host over standard input and output. Knows nothing of the host.

use std::fs;
use std::io::{self, BufRead, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::pool;
use super::power_cut::{Deed, LEAVE, LOOK_AGAIN, WORK_ON, WRITTEN, Word};
use super::random::Random;
use crate::failure::Failure;
use crate::program::Program;

const SOCKET: &str = "/run/fardel/fardel.sock";
const DATA: &str = "/var/lib/fardel";
const RUN: &str = "/run/fardel";

/// The folder that the client writes files into.
const FOLDER: &str = "/api/v1/folders/kept";
/// Where limits of folders are held, and the pool that they lie in.
const SCOPES: &str = "/var/lib/fardel/folders/.scopes";
const POOL: &str = "/var/lib/fardel/folders/.pool/pool.xfs";
/// Files of it. More: the host waits for each of them to be read after each cut.
const MAX_FILES: usize = 60;
/// How often a file holds its own name.
const REPEATS: usize = 4096;
/// What the kernel counts of a scope and what lies in it may differ by so many bytes: what is being removed meanwhile.
const COUNT_SLACK: u64 = 64 << 10;

/// Where the watcher notes when the box answered, in seconds of the guest's uptime.
const ANSWERED: &str = "/run/bed-answered";

/// Longer than anything takes in a guest on a loaded host; only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Sessions of the client that live at the same time. More: the guest's one processor is full of them.
const MAX_LIVING: usize = 4;

/// Does what a scenario's script asks for.
pub(super) fn main(words: &[&str]) -> Result<(), Failure> {
    match words {
        ["watch"] => watch(),
        ["power-cut", seed] => {
            let seed = seed
                .parse()
                .map_err(|error| Failure::new(format!("the seed: {error}")))?;
            work(Random::new(seed))
        }
        ["pool", native, pooled] => pool::measure(Path::new(native), Path::new(pooled)),
        _ => Err(Failure::new("the guest is asked for nothing it knows")),
    }
}

fn fault(what: &str) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::new(format!("{what}: {error}"))
}

/// Notes when the box answers for the first time after a boot. Started early by a unit of its own,
/// because the client itself starts when everything else is up.
fn watch() -> Result<(), Failure> {
    let until = Instant::now() + TIMEOUT;
    while !ask("GET", "/healthz", None).is_ok_and(|answer| answer.is_good()) {
        if Instant::now() > until {
            return Err(Failure::new("the box does not answer"));
        }
        sleep(Duration::from_millis(50));
    }
    let uptime = fs::read_to_string("/proc/uptime").map_err(fault("/proc/uptime"))?;
    let seconds = uptime.split_whitespace().next().unwrap_or_default();
    fs::write(ANSWERED, seconds).map_err(fault(ANSWERED))
}

/// Tells when the box served, lists what there is as often as the host wants, then works until the
/// power goes.
fn work(mut random: Random) -> Result<(), Failure> {
    let until = Instant::now() + TIMEOUT;
    while !ask("GET", "/api/v1/sessions?limit=1", None).is_ok_and(|answer| answer.is_good()) {
        if Instant::now() > until {
            let log = journal()?;
            return Err(Failure::new(format!("the box does not serve:\n{log}")));
        }
        sleep(Duration::from_millis(100));
    }
    if let Ok(answered) = fs::read_to_string(ANSWERED) {
        let answered: f64 = answered.trim().parse().unwrap_or(f64::INFINITY);
        let seconds = answered - handed_over()?;
        say(&Word::Served { seconds })?;
    }
    // Below the size of the pool: only then does the kernel tell what its owner has.
    Program::named("fardel")
        .words("policy set default --folder-bytes 256m")
        .output()?;
    let made = ask("POST", "/api/v1/folders", Some(&json!({"name": "kept"})));
    let made = made.map_err(fault("the folder"))?;
    // It was made before an earlier cut.
    if !made.is_good() && made.status != 409 {
        return Err(Failure::new(format!("no folder: {}", made.json())));
    }
    let mut host = io::stdin().lock();
    loop {
        list()?;
        match heard(&mut host)?.as_str() {
            LOOK_AGAIN => sleep(Duration::from_millis(500)),
            WORK_ON => break,
            LEAVE => return Ok(()),
            other => return Err(Failure::new(format!("the host says {other:?}"))),
        }
    }
    loop {
        let deed = next_deed(&mut random)?;
        say(&Word::Try(deed.clone()))?;
        match heard(&mut host)?.as_str() {
            WRITTEN => {}
            LEAVE => return Ok(()),
            other => return Err(Failure::new(format!("the host says {other:?}"))),
        }
        match carry_out(&deed)? {
            Some(id) => say(&Word::Did { id })?,
            None => say(&Word::Refused)?,
        }
    }
}

/// When the kernel started the first program, in seconds of uptime.
fn handed_over() -> Result<f64, Failure> {
    let text = Program::named("systemctl")
        .words("show --property=UserspaceTimestampMonotonic --value")
        .output()?;
    let microseconds: f64 = text
        .trim()
        .parse()
        .map_err(|error| Failure::new(format!("systemd's clock {text:?}: {error}")))?;
    Ok(microseconds / 1e6)
}

fn journal() -> Result<String, Failure> {
    Program::named("journalctl")
        .words("--boot --no-pager --output=cat --lines=40 --unit=fardel.service")
        .output()
}

/// Everything that the host compares.
fn list() -> Result<(), Failure> {
    for row in sessions()? {
        say(&Word::Row(row))?;
    }
    for token in tokens()? {
        say(&Word::Token(token))?;
    }
    for name in files()? {
        let path = format!("{FOLDER}/files?path={name}");
        let read = ask("GET", &path, None).map_err(fault(&path))?;
        let is_whole = read.is_good() && read.body == content(&name).to_string().into_bytes();
        say(&Word::File { name, is_whole })?;
    }
    if let Some(sentence) = miscounted()? {
        say(&Word::Wrong(sentence))?;
    }
    for place in [format!("{DATA}/containers"), format!("{RUN}/c")] {
        for container in names_in(Path::new(&place)) {
            let place = place.clone();
            say(&Word::Trace { place, container })?;
        }
    }
    for group in groups() {
        let place = "a control group".to_owned();
        let container = group;
        say(&Word::Trace { place, container })?;
    }
    let failed = Program::named("systemctl")
        .words("list-units --failed --no-legend --plain")
        .output()?;
    if !failed.trim().is_empty() {
        say(&Word::Wrong(format!("failed units: {}", failed.trim())))?;
    }
    let log = journal()?;
    if log.contains("panicked") {
        say(&Word::Wrong(log))?;
    }
    say(&Word::Listed)
}

/// Names of the files in the client's folder.
fn files() -> Result<Vec<String>, Failure> {
    let all = listed(&format!("{FOLDER}/entries?limit=500"), "items")?;
    let names = all.iter().filter_map(|entry| entry["name"].as_str());
    Ok(names.map(str::to_owned).collect())
}

/// What is in a file of that name.
fn content(name: &str) -> Value {
    Value::String(name.repeat(REPEATS))
}

/// What is wrong where the kernel counts other bytes than lie in a scope of the pool; none where all is well.
fn miscounted() -> Result<Option<String>, Failure> {
    if !Path::new(POOL).exists() {
        return Ok(Some("folders lie in no pool".to_owned()));
    }
    for owner in names_in(Path::new(SCOPES)) {
        let scope = Path::new(SCOPES).join(owner);
        let files = scope.join("files");
        if !scope.join("pooled.json").exists() {
            return Ok(Some(format!("{} lies in no pool", scope.display())));
        }
        let number = |program: Program| -> Result<u64, Failure> {
            let text = program.argument(&files).output()?;
            let word = text
                .split_whitespace()
                .find(|word| word.parse::<u64>().is_ok());
            word.and_then(|word| word.parse().ok())
                .ok_or_else(|| Failure::new(format!("no number: {text:?}")))
        };
        let counted = number(Program::named("df").words("--block-size=1 --output=used"))?;
        let there = number(Program::named("du").words("--summarize --block-size=1"))?;
        if counted.abs_diff(there) > COUNT_SLACK {
            return Ok(Some(format!(
                "the kernel counts {counted} bytes in {}, and {there} lie there",
                files.display()
            )));
        }
    }
    Ok(None)
}

fn names_in(folder: &Path) -> Vec<String> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// Control groups that carry a container's name, wherever below the root they stand.
fn groups() -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![std::path::PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            if is_container(&name) {
                found.push(name);
            } else {
                waiting.push(entry.path());
            }
        }
    }
    found
}

/// An id without hyphens, a hyphen and a number.
fn is_container(name: &str) -> bool {
    name.split_once('-').is_some_and(|(id, number)| {
        id.len() == 32
            && id.chars().all(|letter| letter.is_ascii_hexdigit())
            && number.parse::<u32>().is_ok()
    })
}

/// What to do now: mostly launches, and enough of the rest to keep few sessions alive.
fn next_deed(random: &mut Random) -> Result<Deed, Failure> {
    let rows = sessions()?;
    let ids = |wanted: &dyn Fn(&Value) -> bool| -> Vec<String> {
        rows.iter()
            .filter(|row| wanted(row))
            .filter_map(|row| row["id"].as_str().map(str::to_owned))
            .collect()
    };
    let living = ids(&|row| row["state"] != "ended");
    let ended = ids(&|row| row["state"] == "ended");
    let all = ids(&|_| true);
    let word = format!("{:08x}", random.next() >> 32);
    let deed = match random.below(10) {
        0..=2 if living.len() < MAX_LIVING => {
            let code =
                (random.below(2) == 0).then(|| i64::try_from(random.below(100)).unwrap_or(0));
            Some(Deed::Launch {
                name: format!("s-{word}"),
                code,
            })
        }
        0..=3 => random.pick(&living).map(|id| Deed::Stop { id: id.clone() }),
        4 => random.pick(&all).map(|id| Deed::Rename {
            id: id.clone(),
            name: format!("r-{word}"),
        }),
        5 => random
            .pick(&ended)
            .map(|id| Deed::Delete { id: id.clone() }),
        6 => random
            .pick(&tokens()?)
            .map(|id| Deed::Revoke { id: id.clone() }),
        7..=8 if files()?.len() < MAX_FILES => Some(Deed::Write {
            name: format!("f-{word}"),
        }),
        _ => None,
    };
    Ok(deed.unwrap_or(Deed::Token {
        name: format!("t-{word}"),
    }))
}

/// Gives the id of what was made (nothing for the rest), or none where it was refused as it may be.
fn carry_out(deed: &Deed) -> Result<Option<String>, Failure> {
    let (method, path, body) = match deed {
        Deed::Launch { name, code } => {
            let script = match code {
                Some(code) => format!("sleep 1; exit {code}"),
                None => "sleep 5000".to_owned(),
            };
            let body = json!({
                "name": name, "kind": "batch", "image": "host",
                "command": ["sh", "-c", script],
                "resources": {"cpu": 0.1, "memory": 32 << 20, "shm": 1 << 20},
            });
            ("POST", "/api/v1/sessions".to_owned(), Some(body))
        }
        Deed::Stop { id } => ("POST", format!("/api/v1/sessions/{id}/stop"), None),
        Deed::Rename { id, name } => (
            "PATCH",
            format!("/api/v1/sessions/{id}"),
            Some(json!({"name": name})),
        ),
        Deed::Delete { id } => ("DELETE", format!("/api/v1/sessions/{id}"), None),
        Deed::Token { name } => (
            "POST",
            "/api/v1/me/tokens".to_owned(),
            Some(json!({"name": name, "scopes": ["sessions:read"]})),
        ),
        Deed::Revoke { id } => ("DELETE", format!("/api/v1/me/tokens/{id}"), None),
        Deed::Write { name } => (
            "PUT",
            format!("{FOLDER}/files?path={name}"),
            Some(content(name)),
        ),
    };
    let answer = ask(method, &path, body.as_ref()).map_err(fault(&path))?;
    if answer.is_good() {
        let body = answer.json();
        let id = match deed {
            Deed::Launch { .. } => body["id"].as_str(),
            Deed::Token { .. } => body["token"]["id"].as_str(),
            _ => Some(""),
        };
        return match id {
            Some(id) => Ok(Some(id.to_owned())),
            None => Err(Failure::new(format!("{method} {path} gives no id: {body}"))),
        };
    }
    // Too late: it ended meanwhile, or has not ended yet.
    if answer.status == 409 {
        return Ok(None);
    }
    Err(Failure::new(format!(
        "{method} {path}: {} {}",
        answer.status,
        answer.json()
    )))
}

fn sessions() -> Result<Vec<Value>, Failure> {
    listed("/api/v1/sessions?limit=500", "items")
}

fn tokens() -> Result<Vec<String>, Failure> {
    Ok(listed("/api/v1/me/tokens", "items")?
        .iter()
        .filter_map(|token| token["id"].as_str().map(str::to_owned))
        .collect())
}

/// All pages of a list.
fn listed(path: &str, key: &str) -> Result<Vec<Value>, Failure> {
    let mut all = Vec::new();
    let mut cursor = String::new();
    loop {
        let mark = if path.contains('?') { '&' } else { '?' };
        let page =
            ask("GET", &format!("{path}{mark}cursor={cursor}"), None).map_err(fault(path))?;
        let body = page.json();
        let Some(items) = body[key].as_array() else {
            return Err(Failure::new(format!("{path}: {} {body}", page.status)));
        };
        all.extend(items.iter().cloned());
        match body["next_cursor"].as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => return Ok(all),
        }
    }
}

fn say(word: &Word) -> Result<(), Failure> {
    let line = serde_json::to_string(word)
        .map_err(|error| Failure::new(format!("{word:?} is no JSON: {error}")))?;
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(fault("the host cannot be told"))
}

fn heard(host: &mut impl BufRead) -> Result<String, Failure> {
    let mut line = String::new();
    host.read_line(&mut line)
        .map_err(fault("the host cannot be heard"))?;
    Ok(line.trim().to_owned())
}

/// An answer that arrived whole.
struct Answer {
    status: u16,
    body: Vec<u8>,
}

impl Answer {
    fn is_good(&self) -> bool {
        (200..300).contains(&self.status)
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}

/// One request on a connection of its own. HTTP/1.0, so that the body ends with the connection.
fn ask(method: &str, path: &str, body: Option<&Value>) -> io::Result<Answer> {
    let mut stream = UnixStream::connect(SOCKET)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let body = body.map(Value::to_string).unwrap_or_default();
    // A file that is written is a new one.
    let only_new = match method {
        "PUT" => "if-none-match: *\r\n",
        _ => "",
    };
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nhost: box\r\ncontent-type: application/json\r\n{only_new}\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut whole = Vec::new();
    stream.read_to_end(&mut whole)?;
    understood(&whole).ok_or_else(|| io::Error::other("the answer was cut off"))
}

/// None where the answer did not arrive whole.
fn understood(whole: &[u8]) -> Option<Answer> {
    let end = whole.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&whole[..end]).to_ascii_lowercase();
    let body = whole[end + 4..].to_vec();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    if length.is_some_and(|length: usize| length != body.len()) {
        return None;
    }
    let status = head.split_whitespace().nth(1)?.parse().ok()?;
    Some(Answer { status, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_was_cut_off_is_none() {
        let whole = b"HTTP/1.0 201 Created\r\nContent-Length: 2\r\n\r\n{}";
        let answer = understood(whole).expect("it is whole");
        assert_eq!((answer.status, answer.json()), (201, json!({})));
        assert!(understood(&whole[..whole.len() - 1]).is_none());
        assert!(understood(b"HTTP/1.0 2").is_none());
    }

    #[test]
    fn a_containers_name_is_told_from_other_groups() {
        assert!(is_container("01a1fecdb93f7857bdb4510a6bf1d437-1"));
        assert!(!is_container("user-1000"));
        assert!(!is_container("01a1fecdb93f7857bdb4510a6bf1d437"));
    }
}
