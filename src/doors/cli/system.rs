//! The machine as a whole: how full it is, what happens, the raw API, versions.

use std::io::{ErrorKind, Read, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use api::events::EventView;
use hyper::Method;
use rules::refusals;
use serde_json::{Value, json};

use super::answer::Answer;
use super::args::{ApiArguments, EventCommand, Format};
use super::client::{Extra, HttpClient, encoded, fresh_key};
use super::error::{CliError, INTERRUPTED};
use super::output::{self, OutputStyle, size, text};
use super::{columns, complain, print, terminal, values};

pub(super) async fn top(client: &HttpClient, view: &OutputStyle) -> Result<u8, CliError> {
    let body = client.get("/api/v1/overview").await?;
    let mut lines = String::new();
    for machine in body["machines"].as_array().into_iter().flatten() {
        let silent = if machine["silent"] == true {
            "  does not answer"
        } else {
            ""
        };
        lines.push_str(&format!(
            "{}  cpu {} of {}  memory {} of {}{silent}\n",
            text(machine, "name"),
            text(machine, "cpu_used"),
            text(machine, "cpu"),
            size(&machine["memory_used"]),
            size(&machine["memory"]),
        ));
    }
    let counts: Vec<String> = body["counts"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, count)| **count != 0)
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    if !counts.is_empty() {
        lines.push_str(&format!("sessions: {}\n", counts.join(", ")));
    }
    for finding in body["findings"].as_array().into_iter().flatten() {
        lines.push_str(&format!("! {}\n", text(finding, "text")));
    }
    print(&view.said(&body, &lines)?);
    Ok(0)
}

/// Has the server read its settings again and says what came of it.
pub(super) async fn reload(client: &HttpClient, view: &OutputStyle) -> Result<u8, CliError> {
    let body = client.post("/api/v1/settings/reload", &json!({})).await?;
    let names = |key: &str| {
        let keys = body[key].as_array().into_iter().flatten();
        keys.filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let lines = match (names("changed"), names("needs_restart")) {
        (changed, waiting) if changed.is_empty() && waiting.is_empty() => {
            "Nothing differs from what is in force.\n".to_owned()
        }
        (changed, waiting) => {
            let mut lines = String::new();
            if !changed.is_empty() {
                lines.push_str(&format!("now in force: {changed}\n"));
            }
            if !waiting.is_empty() {
                lines.push_str(&format!("after a restart of the server: {waiting}\n"));
            }
            lines
        }
    };
    print(&view.said(&body, &lines)?);
    Ok(0)
}

/// Lists the backups of the server.
pub(super) async fn backups(client: &HttpClient, view: &OutputStyle) -> Result<u8, CliError> {
    let body = client.get("/api/v1/backups").await?;
    let mut lines = String::new();
    for file in body["files"].as_array().into_iter().flatten() {
        lines.push_str(&format!(
            "{}  {:>9}  {}\n",
            text(file, "made_at"),
            size(&file["size"]),
            text(file, "name"),
        ));
    }
    match (body["directory"].as_str(), body["due_at"].as_str()) {
        (None, _) => lines
            .push_str("This server makes no backups: set backup_dir and backup_passphrase_file.\n"),
        (Some(directory), None) => {
            lines.push_str(&format!("in {directory}; no backup is scheduled\n"));
        }
        (Some(directory), Some(due)) => {
            lines.push_str(&format!("in {directory}; the next is due {due}\n"));
        }
    }
    if let Some(failure) = body["failure"].as_object() {
        let word = |key: &str| failure.get(key).and_then(Value::as_str).unwrap_or_default();
        lines.push_str(&format!("! {} {}\n", word("text"), word("hint")));
    }
    print(&view.said(&body, &lines)?);
    Ok(0)
}

/// Has the server make a backup and waits for it.
pub(super) async fn back_up(client: &HttpClient, view: &OutputStyle) -> Result<u8, CliError> {
    let body = client.post("/api/v1/backups", &json!({})).await?;
    let said = format!(
        "{} was made and verified, {}",
        text(&body, "name"),
        size(&body["size"])
    );
    print(&view.said(&body, &said)?);
    Ok(0)
}

/// Copies one backup of the server's into a new file, whole or not at all.
pub(super) async fn download_backup(
    client: &HttpClient,
    view: &OutputStyle,
    name: &str,
    file: Option<PathBuf>,
) -> Result<u8, CliError> {
    let to = file.unwrap_or_else(|| PathBuf::from(name));
    let trouble = |error: std::io::Error| match error.kind() {
        ErrorKind::AlreadyExists => refusals::backup_exists(to.display()),
        _ => refusals::backup_unwritable(to.display(), &error),
    };
    let path = format!("/api/v1/backups/{}", encoded(name));
    let mut flow = client.flow(&path, Vec::new()).await?;
    let mut writing = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&to)
        .map_err(trouble)?;
    let mut written = 0;
    let done = loop {
        match flow.next().await {
            Ok(None) => break writing.sync_all().map_err(|error| trouble(error).into()),
            Ok(Some(bytes)) => {
                written += bytes.len() as u64;
                if let Err(error) = writing.write_all(&bytes) {
                    break Err(trouble(error).into());
                }
            }
            Err(broken) => break Err(broken),
        }
    };
    if let Err(trouble) = done {
        // Half a backup would look like one until the day it is needed.
        let _ = std::fs::remove_file(&to);
        return Err(trouble);
    }
    let body = json!({"path": to, "size": written});
    let said = format!("{} holds {name}, {}", to.display(), size(&body["size"]));
    print(&view.said(&body, &said)?);
    Ok(0)
}

/// Follows the journal. Tables print one line a change, everything else one JSON object a line.
pub(super) async fn events(
    client: &HttpClient,
    view: &OutputStyle,
    request: EventCommand,
) -> Result<u8, CliError> {
    let EventCommand::Watch {
        since,
        topics,
        limit,
    } = request;
    let query = values::query(&[("topics", topics.join(","))]);
    let mut position = since;
    let mut seen = 0;
    loop {
        let headers = position
            .map(|p| vec![("Last-Event-ID".to_owned(), p.to_string())])
            .unwrap_or_default();
        let mut flow = client
            .flow(&format!("/api/v1/events{query}"), headers)
            .await?;
        let mut pending = String::new();
        loop {
            let piece = tokio::select! {
                piece = flow.next() => piece,
                signal = terminal::interrupted() => return signal.map(|()| INTERRUPTED),
            };
            let Ok(Some(bytes)) = piece else { break };
            pending.push_str(&String::from_utf8_lossy(&bytes));
            while let Some(end) = pending.find("\n\n") {
                let block: String = pending.drain(..end + 2).collect();
                let Some((name, data)) = event(&block) else {
                    continue;
                };
                if name == "reset" {
                    complain("some changes are no longer kept; going on from here\n");
                    continue;
                }
                // The leave to listen has ended; asking again says why.
                if name == "end" {
                    continue;
                }
                let Ok(body) = serde_json::from_str::<Value>(&data) else {
                    continue;
                };
                let change = Answer::<EventView>::of(body)?;
                position = Some(change.read.sequence);
                if matches!(view.format, Format::Table | Format::Wide) {
                    let line = format!(
                        "{}  {:<20}  {:<12}  {}",
                        change.read.at,
                        change.read.code,
                        change.read.actor,
                        columns::what(&change.read),
                    );
                    print(&format!("{}\n", output::shown(&line)));
                } else {
                    print(&format!("{}\n", change.body));
                }
                seen += 1;
                if limit.is_some_and(|l| seen >= l) {
                    return Ok(0);
                }
            }
        }
        // The server went away; it is asked again from the last number on.
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
}

/// The name and the data of one event block; None for a comment such as the heartbeat.
fn event(block: &str) -> Option<(String, String)> {
    let mut name = "message".to_owned();
    let mut data = Vec::new();
    for line in block.lines() {
        let Some((field, value)) = line.split_once(':') else {
            continue;
        };
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut name),
            "data" => data.push(value),
            _ => {}
        }
    }
    (!data.is_empty() || name == "reset").then(|| (name, data.join("\n")))
}

pub(super) async fn api(client: &HttpClient, request: ApiArguments) -> Result<u8, CliError> {
    let method: Method = request
        .method
        .to_ascii_uppercase()
        .parse()
        .map_err(|_| CliError::usage(format!("{:?} is not a method.", request.method)))?;
    let path = match request.path.trim_start_matches('/') {
        path if path.starts_with("api/") => format!("/{path}"),
        path => format!("/api/v1/{path}"),
    };
    let body = match request.body.as_deref() {
        None => Vec::new(),
        Some("-") => {
            let mut all = Vec::new();
            std::io::stdin()
                .read_to_end(&mut all)
                .map_err(|e| CliError::usage(format!("Standard input cannot be read: {e}.")))?;
            all
        }
        Some(file) if file.starts_with('@') => std::fs::read(&file[1..])
            .map_err(|e| CliError::usage(format!("{} cannot be read: {e}.", &file[1..])))?,
        Some(text) => text.as_bytes().to_vec(),
    };
    let mut extra = Extra {
        content_type: match method {
            _ if body.is_empty() => None,
            Method::PATCH => Some("application/merge-patch+json"),
            _ => Some("application/json"),
        },
        body: body.into(),
        headers: Vec::new(),
    };
    for header in &request.header {
        let (name, value) = header.split_once(':').ok_or_else(|| {
            CliError::usage(format!("{header:?} is not a header."))
                .hint("For example: \"If-Match: \\\"3\\\"\".")
        })?;
        if name.eq_ignore_ascii_case("content-type") {
            extra.content_type = None;
        }
        extra = extra.header(name.trim(), value.trim());
    }
    let keyed = extra
        .headers
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("idempotency-key"));
    if method == Method::POST && !keyed {
        extra = extra.header("Idempotency-Key", fresh_key());
    }
    let answer = client.ask(method, &path, extra).await?;
    if request.include {
        let mut lines = format!("{}\n", answer.status);
        for (name, value) in &answer.headers {
            lines.push_str(&format!("{name}: {}\n", value.to_str().unwrap_or_default()));
        }
        print(&format!("{lines}\n"));
    }
    if answer.status >= 400 && !request.include {
        let id = answer.header("x-request-id").unwrap_or_default();
        return Err(CliError::refused(answer.status, &answer.body, id));
    }
    match serde_json::from_slice::<Value>(&answer.body) {
        Ok(body) => print(&format!("{body:#}\n")),
        Err(_) => super::print_bytes(&answer.body),
    }
    if answer.status >= 400 {
        return Ok(CliError::refused(answer.status, &answer.body, "").exit);
    }
    Ok(0)
}

pub(super) async fn version(client: &HttpClient, view: &OutputStyle) -> Result<u8, CliError> {
    let own = env!("CARGO_PKG_VERSION");
    if view.format == Format::Table {
        print(&format!("fardel {own}\n"));
        return Ok(0);
    }
    // A client without a server has a version too.
    let server = client.get("/version").await.unwrap_or(Value::Null);
    let body = json!({"client": own, "server": server["version"]});
    let at = text(&body, "server");
    print(&view.said(&body, &format!("fardel {own}\nserver {at}"))?);
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_and_heartbeats_are_not_events() {
        assert_eq!(event(": beat\n\n"), None);
        assert_eq!(
            event("id: 4\nevent: change\ndata: {\"a\":\ndata: 1}\n\n"),
            Some(("change".into(), "{\"a\":\n1}".into()))
        );
    }
}
