//! `fardel code`: runs code in an interpreter of a session that stays, shows what it writes, and passes on what is typed
//! when it asks. Never runs anything on this machine.

use std::io::{BufRead as _, IsTerminal as _, Read as _};
use std::path::Path;

use api::code_runs::{CodeBatch, CodeMode, CodeOutput, CodeRun, CodeRunRequest, CodeRunStatus};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Method;
use rules::code_run::{CodeLanguage, ConsoleStream, MAX_CODE_BYTES};
use serde_json::json;

use super::answer::Answer;
use super::args::{CodeArguments, CodeLanguageArgument};
use super::client::{Extra, HttpClient, encoded, fresh_key};
use super::error::{CliError, FAILED};
use super::login::typed_unseen;
use super::output::OutputStyle;
use super::{complain, print, print_bytes};

pub(super) async fn code(
    client: &HttpClient,
    view: &OutputStyle,
    request: CodeArguments,
) -> Result<u8, CliError> {
    let path = format!(
        "/api/v1/sessions/{}/execute",
        encoded(&request.session.session)
    );
    let is_of_shell = request.build.is_some() || request.exec.is_some();
    let language = match request.language {
        _ if is_of_shell => CodeLanguage::Shell,
        CodeLanguageArgument::Python => CodeLanguage::Python,
        CodeLanguageArgument::R => CodeLanguage::R,
        CodeLanguageArgument::Shell => CodeLanguage::Shell,
    };
    let run_id = fresh_key();
    let of = |mode, code| CodeRunRequest {
        mode,
        language,
        code,
        run_id: Some(run_id.clone()),
        batch: None,
    };
    if request.restart {
        step(client, &path, &of(CodeMode::Restart, String::new())).await?;
    }
    let batch = CodeBatch {
        clean: None,
        build: request.build.clone(),
        exec: request.exec.clone(),
    };
    let is_batch = batch != CodeBatch::default();
    let code = match (&request.code, &request.file) {
        _ if is_batch => String::new(),
        (Some(code), _) => code.clone(),
        (None, Some(file)) => read(file)?,
        (None, None) if request.restart => return Ok(0),
        (None, None) => read(Path::new("-"))?,
    };
    let mut shows = CodePrinter {
        view,
        media: request.media.as_deref(),
        count: 0,
    };
    let mut next = match is_batch {
        true => CodeRunRequest {
            batch: Some(batch),
            ..of(CodeMode::Batch, String::new())
        },
        false => of(CodeMode::Query, code),
    };
    loop {
        let answer = tokio::select! {
            answer = step(client, &path, &next) => answer?,
            _ = tokio::signal::ctrl_c() => {
                step(client, &path, &of(CodeMode::Interrupt, String::new())).await?
            }
        };
        shows.show(&answer)?;
        next = match answer.read.status {
            CodeRunStatus::Continued
            | CodeRunStatus::CleanFinished
            | CodeRunStatus::BuildFinished => of(CodeMode::Continue, String::new()),
            CodeRunStatus::WaitingInput => match typed(answer.read.is_password).await? {
                Some(line) => of(CodeMode::Input, line),
                None => of(CodeMode::Interrupt, String::new()),
            },
            CodeRunStatus::Finished => {
                if let Some(notice) = &answer.read.notice {
                    complain(&format!("{notice}\n"));
                }
                let code = answer.read.exit_code.unwrap_or_default();
                return Ok(u8::try_from(code).unwrap_or(FAILED));
            }
        };
    }
}

/// One request; it takes no key, for its run has an id.
async fn step(
    client: &HttpClient,
    path: &str,
    request: &CodeRunRequest,
) -> Result<Answer<CodeRun>, CliError> {
    let answer = client
        .call(Method::POST, path, Extra::json(&json!(request)))
        .await?;
    Answer::of(answer.json()?)
}

/// Where output goes.
struct CodePrinter<'a> {
    view: &'a OutputStyle,
    /// The directory that keeps media.
    media: Option<&'a Path>,
    count: usize,
}

impl CodePrinter<'_> {
    fn show(&mut self, answer: &Answer<CodeRun>) -> Result<(), CliError> {
        if !self.view.for_humans() {
            print(&self.view.said(&answer.body, "")?);
            return Ok(());
        }
        for piece in &answer.read.console {
            match piece.stream {
                ConsoleStream::Stdout => print_bytes(piece.text.as_bytes()),
                ConsoleStream::Stderr => complain(&piece.text),
                ConsoleStream::Media => self.keep(piece)?,
            }
        }
        Ok(())
    }

    /// Writes media into the directory, or says that there is some.
    fn keep(&mut self, piece: &CodeOutput) -> Result<(), CliError> {
        let kind = piece.media_type.as_deref().unwrap_or_default();
        let Some(directory) = self.media else {
            complain(&format!("[{kind}; --media DIRECTORY keeps it]\n"));
            return Ok(());
        };
        self.count += 1;
        let name = format!("output-{}.{}", self.count, ending(kind));
        let file = directory.join(&name);
        let failed = |error: &dyn std::fmt::Display| {
            CliError::usage(format!("{} cannot be written: {error}.", file.display()))
        };
        let bytes = STANDARD
            .decode(&piece.text)
            .map_err(|error| failed(&error))?;
        std::fs::write(&file, bytes).map_err(|error| failed(&error))?;
        complain(&format!("[{kind}: {name}]\n"));
        Ok(())
    }
}

/// The ending of a file of that media type.
fn ending(kind: &str) -> &'static str {
    match kind {
        "image/png" => "png",
        "image/jpeg" => "jpg",
        "image/svg+xml" => "svg",
        "text/html" => "html",
        "application/json" => "json",
        _ => "bin",
    }
}

/// The line that a run waits for; none at the end of the input, and for Ctrl-C.
async fn typed(is_password: bool) -> Result<Option<String>, CliError> {
    if is_password && std::io::stdin().is_terminal() {
        return typed_unseen("").map(Some);
    }
    let reading = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        let count = std::io::stdin().lock().read_line(&mut line)?;
        Ok::<_, std::io::Error>((count > 0).then_some(line))
    });
    let failed = |error: &dyn std::fmt::Display| {
        CliError::usage(format!("Standard input cannot be read: {error}."))
    };
    tokio::select! {
        read = reading => {
            let line = read.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
            Ok(line.map(|line| line.trim_end_matches(['\n', '\r']).to_owned()))
        }
        _ = tokio::signal::ctrl_c() => Ok(None),
    }
}

/// A file, or standard input for `-`; one byte more than is taken, so that the server says so.
fn read(file: &Path) -> Result<String, CliError> {
    let failed = |error: std::io::Error| {
        CliError::usage(format!("{} cannot be read: {error}.", file.display()))
    };
    let most = MAX_CODE_BYTES as u64 + 1;
    let mut bytes = Vec::new();
    if file == Path::new("-") {
        let mut input = std::io::stdin().lock().take(most);
        input.read_to_end(&mut bytes).map_err(failed)?;
    } else {
        let mut input = std::fs::File::open(file).map_err(failed)?.take(most);
        input.read_to_end(&mut bytes).map_err(failed)?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
