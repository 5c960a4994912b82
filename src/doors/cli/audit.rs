//! The commands on the audit log. `verify` works without a server.

use std::io::{BufReader, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use api::audit::{AuditCheckpointView, AuditSearchPage};
use base::tls::signature::SigningAuthority;
use rules::refusals;
use serde_json::{Value, json};

use super::answer::Answer;
use super::args::{AuditCommand, AuditLs, Format};
use super::audit_verify;
use super::client::HttpClient;
use super::error::{CliError, FAILED};
use super::output::OutputStyle;
use super::{columns, complain, print, values};

const PATH: &str = "/api/v1/audit";
/// Acts asked for at once while a search is read to its end.
const PAGE: u32 = 500;

pub(super) async fn audit(
    client: &HttpClient,
    view: &OutputStyle,
    request: AuditCommand,
) -> Result<u8, CliError> {
    match request {
        AuditCommand::Ls(wanted) => search(client, view, &wanted).await,
        AuditCommand::Export {
            file,
            since,
            until,
            user,
        } => {
            let time = |typed: &Option<String>, end| time(view, typed, end);
            let asked = [
                ("since", time(&since, false)?),
                ("until", time(&until, true)?),
                ("user", user.unwrap_or_default()),
            ];
            let path = format!("{PATH}/export{}", values::query(&asked));
            export(client, view, &path, &file).await
        }
        AuditCommand::Checkpoints => {
            let body = client.get(&format!("{PATH}/checkpoints")).await?;
            print(&view.list(&body, columns::AUDIT_CHECKPOINTS)?);
            Ok(0)
        }
        AuditCommand::Targets => {
            let body = client.get(&format!("{PATH}/targets")).await?;
            print(&view.list(&body, columns::AUDIT_TARGETS)?);
            Ok(0)
        }
        AuditCommand::Sign => {
            let path = format!("{PATH}/checkpoints");
            let made = client
                .send::<AuditCheckpointView>(&path, &json!({}))
                .await?;
            let said = format!("signed up to row {}", made.read.sequence);
            print(&view.said(&made.body, &said)?);
            Ok(0)
        }
        AuditCommand::Verify { file, key } => verify(view, &file, &key),
    }
}

fn time(view: &OutputStyle, typed: &Option<String>, end: bool) -> Result<String, CliError> {
    match typed {
        Some(typed) => values::moment(typed, end, view.now).map(|at| at.to_string()),
        None => Ok(String::new()),
    }
}

/// Prints what a search finds, newest first, page after page up to the wanted number.
async fn search(client: &HttpClient, view: &OutputStyle, wanted: &AuditLs) -> Result<u8, CliError> {
    if wanted.limit == 0 {
        return Err(CliError::usage("-n 0 shows no act.").hint("For example: -n 100."));
    }
    let asked = [
        ("user", wanted.user.clone()),
        ("act", wanted.act.clone()),
        ("object", wanted.object.clone()),
        ("since", time(view, &wanted.since, false)?),
        ("until", time(view, &wanted.until, true)?),
    ];
    let mut left = wanted.limit;
    let mut cursor = String::new();
    let mut all: Option<Value> = None;
    let mut body = loop {
        let mut parts = asked.to_vec();
        parts.push(("limit", left.min(PAGE).to_string()));
        parts.push(("cursor", cursor));
        let path = format!("{PATH}{}", values::query(&parts));
        let Answer { body, read } = client.read::<AuditSearchPage>(&path).await?;
        left = left.saturating_sub(u32::try_from(read.items.len()).unwrap_or(u32::MAX));
        let joined = match all.take() {
            None => body,
            Some(before) => values::joined(before, body),
        };
        match read.next_cursor {
            Some(next) if left > 0 => cursor = next,
            _ => break joined,
        }
        all = Some(joined);
    };
    if view.for_humans() && body["items"].as_array().is_none_or(Vec::is_empty) {
        complain("No acts match.\n");
        return Ok(0);
    }
    let for_tables = matches!(view.format, Format::Table | Format::Wide | Format::Csv);
    if for_tables && !view.quiet {
        values::named(&mut body);
    }
    print(&view.list(&body, columns::FOUND_ACTS)?);
    Ok(0)
}

async fn export(
    client: &HttpClient,
    view: &OutputStyle,
    path: &str,
    to: &Path,
) -> Result<u8, CliError> {
    let trouble = |error: std::io::Error| match error.kind() {
        ErrorKind::AlreadyExists => refusals::audit_export_exists(to.display()),
        _ => refusals::audit_export_unwritable(to.display(), &error),
    };
    // Before the server is asked: an export that is not kept would be an act all the same.
    let mut writing = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(to)
        .map_err(trouble)?;
    let kept = async {
        let mut flow = client.flow(path, Vec::new()).await?;
        let mut written = 0;
        while let Some(bytes) = flow.next().await? {
            written += bytes.len() as u64;
            writing.write_all(&bytes).map_err(trouble)?;
        }
        writing.sync_all().map_err(trouble)?;
        Ok::<u64, CliError>(written)
    };
    let written = match kept.await {
        Ok(written) => written,
        Err(broken) => {
            // Half an export is none.
            let _ = std::fs::remove_file(to);
            return Err(broken);
        }
    };
    let body = json!({"path": to, "size": written});
    let said = format!("{} holds the audit log", to.display());
    print(&view.said(&body, &said)?);
    Ok(0)
}

/// Checks an export with nothing but its file and the certificate of the authority.
pub(super) fn verify(view: &OutputStyle, file: &Path, key: &Path) -> Result<u8, CliError> {
    let unreadable = |path: &Path, error: &std::io::Error| {
        CliError::from(refusals::audit_file_unreadable(path.display(), error))
    };
    let pem = std::fs::read_to_string(key).map_err(|error| unreadable(key, &error))?;
    let authority = SigningAuthority::read(&pem)?;
    let opened = std::fs::File::open(file).map_err(|error| unreadable(file, &error))?;
    let found = audit_verify::verify(BufReader::with_capacity(1 << 20, opened), &authority)
        .map_err(|refusal| CliError {
            exit: FAILED,
            ..CliError::from(refusal)
        })?;
    let said = match found.rows {
        0 => format!(
            "the export is whole: no rows, signed at {}",
            found.signed_at
        ),
        _ => format!(
            "the export is whole: rows {} to {}, {} of them as statements, signed at {}",
            found.first, found.last, found.statements, found.signed_at
        ),
    };
    let body = serde_json::to_value(&found)
        .map_err(|error| CliError::new(FAILED, "answer.unwritable", error.to_string()))?;
    print(&view.said(&body, &said)?);
    Ok(0)
}
