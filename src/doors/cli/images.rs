//! Images and the long work behind them: list, import with a resumable upload, remove, jobs.
//! Never looks into an archive; the server does.

use std::io::{IsTerminal, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use api::commits::{CommitPreview, CommitRequest};
use api::operations::{OperationState, OperationView};
use hyper::Method;
use rules::units::{Bytes, CpuShare, GpuShare};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use super::answer::Answer;
use super::args::{ImageCommand, ImageLimitFlags, JobCommand};
use super::client::{Extra, HttpClient, encoded, fresh_key};
use super::error::{CliError, FAILED, UNREACHABLE};
use super::output::{OutputStyle, text};
use super::{columns, complain, print};

/// One piece of an upload. Higher: a broken network repeats more. Lower: the round trips show.
const PIECE: usize = 8 << 20;
/// Between two looks at a running import.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

pub(super) async fn image(
    client: &HttpClient,
    view: &OutputStyle,
    request: ImageCommand,
) -> Result<u8, CliError> {
    match request {
        ImageCommand::Ls => {
            let body = client.get("/api/v1/images").await?;
            print(&view.list(&body, columns::IMAGES)?);
        }
        ImageCommand::Get { image } => {
            let body = client
                .get(&format!("/api/v1/images/{}", encoded(&image)))
                .await?;
            let wide = OutputStyle {
                format: match view.format {
                    super::Format::Table => super::Format::Wide,
                    other => other,
                },
                ..view.clone()
            };
            print(&wide.one(&body, columns::IMAGES)?);
        }
        ImageCommand::Import {
            archive,
            name,
            detach,
        } => return import(client, view, &archive, name, detach).await,
        ImageCommand::Share { image } => shared(client, view, &image, "share", "shared").await?,
        ImageCommand::Unshare { image } => {
            shared(client, view, &image, "unshare", "private").await?;
        }
        ImageCommand::Limit { image, flags } => {
            let path = format!("/api/v1/images/{}", encoded(&image));
            let body = match flags.of_labels {
                true => json!({"of_labels": true}),
                false => limited(&flags, &client.get(&path).await?["limits"])?,
            };
            let put = Extra::json(&body);
            let path = format!("{path}/limits");
            let changed = client.call(Method::PUT, &path, put).await?.json()?;
            print(&view.one(&changed, columns::IMAGES)?);
        }
        ImageCommand::Pull {
            image,
            name,
            detach,
        } => {
            let mut body = json!({"image": image});
            if let Some(name) = name {
                body["reference"] = name.into();
            }
            let operation = client.send("/api/v1/images/pull", &body).await?;
            return followed(client, view, operation, detach, "pulled").await;
        }
        ImageCommand::Rm { images } => {
            for image in images {
                let path = format!("/api/v1/images/{}", encoded(&image));
                client.call(Method::DELETE, &path, Extra::default()).await?;
                print(&view.said(&json!({"reference": image}), &format!("{image}  removed"))?);
            }
        }
    }
    Ok(0)
}

/// The limits with those that the flags name; `none` takes one out. `before`: those that the image has now, since they are
/// replaced as a whole.
fn limited(flags: &ImageLimitFlags, before: &Value) -> Result<Value, CliError> {
    let bytes = |text: &str| serde_json::to_value(Bytes::parse(text).ok()?).ok();
    let cpu = |text: &str| serde_json::to_value(CpuShare::parse(text).ok()?).ok();
    let gpu = |text: &str| serde_json::to_value(GpuShare::parse(text).ok()?).ok();
    type Reading<'a> = &'a dyn Fn(&str) -> Option<Value>;
    let all: [(&str, &Option<String>, Reading<'_>); 7] = [
        ("min_cpu", &flags.min_cpu, &cpu),
        ("max_cpu", &flags.max_cpu, &cpu),
        ("min_memory", &flags.min_mem, &bytes),
        ("max_memory", &flags.max_mem, &bytes),
        ("min_gpu", &flags.min_gpu, &gpu),
        ("max_gpu", &flags.max_gpu, &gpu),
        ("shm", &flags.shm, &bytes),
    ];
    let mut limits = before.as_object().cloned().unwrap_or_default();
    for (name, text, read) in all {
        let value = match text.as_deref() {
            None => continue,
            Some("none") => Value::Null,
            Some(text) => read(text)
                .ok_or_else(|| CliError::usage(format!("{text} is no amount for {name}.")))?,
        };
        limits.insert(name.to_owned(), value);
    }
    if let Some(text) = &flags.ulimits {
        let text = match text.as_str() {
            "none" => "",
            text => text,
        };
        limits.insert("ulimits".to_owned(), text.into());
    }
    Ok(Value::Object(limits))
}

async fn shared(
    client: &HttpClient,
    view: &OutputStyle,
    image: &str,
    verb: &str,
    word: &str,
) -> Result<(), CliError> {
    let path = format!("/api/v1/images/{}/{verb}", encoded(image));
    let body = client.post(&path, &json!({})).await?;
    let reference = text(&body, "reference");
    print(&view.said(&body, &format!("{reference}  {word}"))?);
    Ok(())
}

/// Makes an image of a session, or says what it would hold.
pub(super) async fn commit(
    client: &HttpClient,
    view: &OutputStyle,
    session: &str,
    request: &CommitRequest,
    (dry_run, detach): (bool, bool),
) -> Result<u8, CliError> {
    let path = format!("{}/commit", super::values::path(session));
    let body = json!(request);
    if dry_run {
        let preview: Answer<CommitPreview> =
            client.send(&format!("{path}?dry_run=true"), &body).await?;
        print(&view.said(&preview.body, &previewed(&preview.read))?);
        return Ok(0);
    }
    let operation: Answer<OperationView> = client.send(&path, &body).await?;
    if detach {
        print(&view.one(&operation.body, columns::JOBS)?);
        return Ok(0);
    }
    let progress = ProgressLine::new(view, "committing", true);
    let done = watched(client, &progress, operation).await?;
    let references: Vec<String> = done.body["result"]["images"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|image| {
            format!(
                "{}  committed; it is yours alone\n",
                text(image, "reference")
            )
        })
        .collect();
    print(&view.said(&done.body, &references.concat())?);
    Ok(0)
}

/// What an image of a session would hold, in words.
fn previewed(preview: &CommitPreview) -> String {
    let mut lines = vec![format!(
        "{}  {} in {} files on top of {}; {} files removed from it, {} that cannot be kept",
        preview.reference,
        rules::units::Bytes(preview.bytes),
        preview.entries,
        preview.base,
        preview.removed,
        preview.skipped,
    )];
    let secrets = preview.secrets.iter();
    lines.extend(secrets.map(|secret| format!("{}  {}", secret.kind.word(), secret.path)));
    if preview.more_secrets > 0 {
        lines.push(format!("and {} more like these", preview.more_secrets));
    }
    lines.push(String::new());
    lines.join("\n")
}

async fn import(
    client: &HttpClient,
    view: &OutputStyle,
    archive: &Path,
    name: Option<String>,
    detach: bool,
) -> Result<u8, CliError> {
    let mut body = json!({"upload": sent(client, view, archive).await?});
    if let Some(name) = name {
        body["reference"] = name.into();
    }
    let operation: Answer<OperationView> = client.send("/api/v1/images/import", &body).await?;
    followed(client, view, operation, detach, "imported").await
}

/// Uploads an archive, or standard input for `-`, and gives the upload's id.
pub(super) async fn sent(
    client: &HttpClient,
    view: &OutputStyle,
    archive: &Path,
) -> Result<String, CliError> {
    let mut spool = None;
    let file = if archive == Path::new("-") {
        // The size must be said first, and a broken transfer must be able to go back.
        let mut kept = tempfile_for_stdin()?;
        std::io::copy(&mut std::io::stdin().lock(), &mut kept).map_err(|e| {
            CliError::new(
                FAILED,
                "archive.unreadable",
                format!("Standard input: {e}."),
            )
        })?;
        spool.insert(kept).try_clone()
    } else {
        std::fs::File::open(archive)
    }
    .map_err(|e| {
        CliError::usage(format!("{} cannot be read: {e}.", archive.display()))
            .hint("Use an archive made by docker save, podman save or skopeo copy.")
    })?;
    let size = file.metadata().map(|m| m.len()).unwrap_or(0);
    if file.metadata().is_ok_and(|m| m.is_dir()) {
        return Err(
            CliError::usage(format!("{} is a directory.", archive.display())).hint(format!(
                "tar -C {} -cf image.tar . makes an archive of it.",
                archive.display()
            )),
        );
    }
    let shown = archive.file_name().map_or_else(
        || "archive".to_owned(),
        |n| n.to_string_lossy().into_owned(),
    );
    upload(client, view, file, size, &shown).await
}

/// Shows what comes of an import, unless the user goes on with something else.
pub(super) async fn followed(
    client: &HttpClient,
    view: &OutputStyle,
    operation: Answer<OperationView>,
    detach: bool,
    done_word: &str,
) -> Result<u8, CliError> {
    if detach {
        print(&view.one(&operation.body, columns::JOBS)?);
        return Ok(0);
    }
    let progress = ProgressLine::new(view, "importing", true);
    let done = watched(client, &progress, operation).await?;
    let references: Vec<String> = done.body["result"]["images"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|image| format!("{}  {done_word}\n", text(image, "reference")))
        .collect();
    print(&view.said(&done.body, &references.concat())?);
    Ok(0)
}

fn tempfile_for_stdin() -> Result<std::fs::File, CliError> {
    use std::os::unix::fs::OpenOptionsExt;
    // Without a name from the start: it goes away with this process.
    std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(nix::libc::O_TMPFILE)
        .open(std::env::temp_dir())
        .map_err(|e| {
            CliError::new(
                FAILED,
                "spool.failed",
                format!("No temporary file can be made: {e}."),
            )
        })
}

/// Sends a file in pieces; after a broken connection it asks where to go on. Gives the upload's id.
async fn upload(
    client: &HttpClient,
    view: &OutputStyle,
    mut file: std::fs::File,
    size: u64,
    name: &str,
) -> Result<String, CliError> {
    let metadata = format!("filename {}", base64(name.as_bytes()));
    let extra = Extra::default()
        .header("Tus-Resumable", "1.0.0")
        .header("Upload-Length", size.to_string())
        .header("Upload-Metadata", metadata)
        .header("Idempotency-Key", fresh_key());
    let made = client.call(Method::POST, "/api/v1/uploads", extra).await?;
    let location = made.header("location").unwrap_or_default().to_owned();
    let id = location.rsplit('/').next().unwrap_or_default().to_owned();
    if id.is_empty() {
        return Err(CliError::new(
            FAILED,
            "upload.no-place",
            "The server gave no address for the upload.",
        ));
    }
    let path = format!("/api/v1/uploads/{}", encoded(&id));
    send(client, view, &path, &mut file, (0, size), name).await?;
    Ok(id)
}

/// Sends the bytes of a file from an offset to its end to an upload at `path`; after a broken connection it asks where to go
/// on.
pub(super) async fn send(
    client: &HttpClient,
    view: &OutputStyle,
    path: &str,
    file: &mut std::fs::File,
    (mut offset, size): (u64, u64),
    name: &str,
) -> Result<(), CliError> {
    let progress = ProgressLine::new(view, "sending", true);
    let mut away: Option<std::time::Instant> = None;
    while offset < size {
        let piece = read_piece(file, offset).await?;
        if piece.is_empty() {
            return Err(CliError::new(
                FAILED,
                "archive.shrank",
                format!("{name} became shorter while it was sent."),
            ));
        }
        let extra = Extra {
            body: piece.into(),
            content_type: Some("application/offset+octet-stream"),
            headers: Vec::new(),
        }
        .header("Tus-Resumable", "1.0.0")
        .header("Upload-Offset", offset.to_string());
        let answer = client.call(Method::PATCH, path, extra).await;
        match answer {
            Ok(answer) => {
                away = None;
                offset = number(&answer, "upload-offset")?;
                progress.show(offset, size);
            }
            Err(trouble)
                if trouble.exit == UNREACHABLE
                    // The server may not have noticed yet that the connection before this one broke.
                    || [rules::codes::UPLOAD_WRONG_OFFSET, rules::codes::UPLOAD_BUSY]
                        .contains(&trouble.code.as_str()) =>
            {
                let since = *away.get_or_insert_with(std::time::Instant::now);
                if since.elapsed() > super::client::MAX_RECONNECT {
                    return Err(trouble);
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
                let head = Extra::default().header("Tus-Resumable", "1.0.0");
                if let Ok(answer) = client.call(Method::HEAD, path, head).await {
                    offset = number(&answer, "upload-offset")?;
                }
            }
            Err(trouble) => return Err(trouble),
        }
    }
    progress.end();
    Ok(())
}

async fn read_piece(file: &mut std::fs::File, offset: u64) -> Result<Vec<u8>, CliError> {
    let failed = |e: std::io::Error| {
        CliError::new(FAILED, "archive.unreadable", format!("The archive: {e}."))
    };
    file.seek(SeekFrom::Start(offset)).map_err(failed)?;
    let mut piece = Vec::with_capacity(PIECE);
    let open = tokio::fs::File::from_std(file.try_clone().map_err(failed)?);
    open.take(PIECE as u64)
        .read_to_end(&mut piece)
        .await
        .map_err(failed)?;
    Ok(piece)
}

fn number(answer: &super::client::HttpAnswer, header: &str) -> Result<u64, CliError> {
    answer
        .header(header)
        .and_then(|v| v.parse().ok())
        .ok_or_else(|| {
            CliError::new(
                FAILED,
                "answer.unreadable",
                format!("The server's answer has no {header}."),
            )
        })
}

pub(super) fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

pub(super) async fn job(
    client: &HttpClient,
    view: &OutputStyle,
    request: JobCommand,
) -> Result<u8, CliError> {
    match request {
        JobCommand::Ls => {
            let body = client.get("/api/v1/operations").await?;
            print(&view.list(&body, columns::JOBS)?);
        }
        JobCommand::Get { job } => {
            let body = client
                .get(&format!("/api/v1/operations/{}", encoded(&job)))
                .await?;
            print(&view.one(&body, columns::JOBS)?);
        }
        JobCommand::Cancel { job } => {
            let path = format!("/api/v1/operations/{}/cancel", encoded(&job));
            let body = client.post(&path, &json!({})).await?;
            print(&view.one(&body, columns::JOBS)?);
        }
    }
    Ok(0)
}

/// Shows an operation until it is over; its refusal becomes trouble.
pub(super) async fn watched(
    client: &HttpClient,
    progress: &ProgressLine,
    operation: Answer<OperationView>,
) -> Result<Answer<OperationView>, CliError> {
    let path = format!("/api/v1/operations/{}", operation.read.id);
    let mut latest = operation;
    loop {
        match latest.read.state {
            OperationState::Succeeded => {
                progress.end();
                return Ok(latest);
            }
            state @ (OperationState::Failed | OperationState::Cancelled) => {
                progress.end();
                return Err(match latest.read.refusal {
                    Some(refusal) => {
                        CliError::new(FAILED, &refusal.code, refusal.text).hint(refusal.hint)
                    }
                    None => {
                        let said = format!("It is {}.", state.word());
                        CliError::new(FAILED, "operation.failed", said)
                    }
                });
            }
            OperationState::Pending | OperationState::Running => {
                progress.show(latest.read.done, latest.read.total);
            }
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        match client.read(&path).await {
            Ok(next) => latest = next,
            Err(trouble) if trouble.exit == UNREACHABLE => {}
            Err(trouble) => return Err(trouble),
        }
    }
}

/// A line of progress on standard error, where a user watches.
pub(super) struct ProgressLine {
    shown: bool,
    what: &'static str,
    /// Else steps.
    bytes: bool,
}

impl ProgressLine {
    pub(super) fn new(view: &OutputStyle, what: &'static str, bytes: bool) -> Self {
        Self {
            shown: view.for_humans() && std::io::stderr().is_terminal(),
            what,
            bytes,
        }
    }

    pub(super) fn show(&self, done: u64, total: u64) {
        if self.shown && total > 0 {
            let percent = done.saturating_mul(100) / total;
            let amount = |n: u64| match self.bytes {
                true => rules::units::Bytes(n).to_string(),
                false => n.to_string(),
            };
            let (done, total) = (amount(done), amount(total));
            complain(&format!(
                "\r\x1b[K{} {done} of {total}, {percent} %",
                self.what
            ));
        }
    }

    pub(super) fn end(&self) {
        if self.shown {
            complain("\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_become_the_limits_of_an_image() {
        let nothing = || ImageLimitFlags {
            min_cpu: None,
            max_cpu: None,
            min_mem: None,
            max_mem: None,
            min_gpu: None,
            max_gpu: None,
            shm: None,
            ulimits: None,
            of_labels: false,
        };
        let before = json!({"min_cpu": 1, "max_cpu": 4, "ulimits": "stack=64m"});
        let flags = ImageLimitFlags {
            min_cpu: Some("2".to_owned()),
            max_cpu: Some("none".to_owned()),
            min_mem: Some("1g".to_owned()),
            ulimits: Some("none".to_owned()),
            ..nothing()
        };
        let limits = limited(&flags, &before).expect("limits");
        let wanted = json!({
            "min_cpu": 2, "max_cpu": null, "min_memory": 1 << 30, "ulimits": "",
        });
        assert_eq!(limits, wanted);
        let wrong = ImageLimitFlags {
            max_gpu: Some("many".to_owned()),
            ..nothing()
        };
        assert!(limited(&wrong, &before).is_err());
    }
}
