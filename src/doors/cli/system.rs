//! The machine as a whole: how full it is, its backups, the raw API, versions.

use std::io::{ErrorKind, Read, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use hyper::Method;
use rules::refusals;
use serde_json::{Value, json};

use super::args::{ApiArguments, Format};
use super::client::{Extra, HttpClient, encoded, fresh_key};
use super::error::CliError;
use super::output::{OutputStyle, size, text};
use super::print;

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
