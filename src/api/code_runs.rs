//! Code that is run in a session by an interpreter that stays: what is asked, and what a run has shown.

use rules::code_run::{CodeLanguage, ConsolePiece, ConsoleStream};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::values::{CodeLanguageShape, ConsoleStreamShape};

/// What is to be done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CodeMode {
    /// Run `code`; what it defines stays for the next run.
    #[default]
    Query,
    /// Run the commands of `batch` one after the other, as long as they go well.
    Batch,
    /// Give what the run has shown since; begin the next command of a batch.
    Continue,
    /// Give the run the line that it waits for, in `code`.
    Input,
    /// Say what could stand at the end of `code`.
    Complete,
    /// Send the run the signal of Ctrl-C.
    Interrupt,
    /// End the interpreter; what it knew is lost, and the next query starts another.
    Restart,
}

/// One step of running code.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CodeRunRequest {
    #[serde(default)]
    pub mode: CodeMode,
    /// Each language has an interpreter of its own; left out: `python`.
    #[serde(default)]
    #[schema(value_type = CodeLanguageShape)]
    pub language: CodeLanguage,
    /// At most 128 KiB.
    #[serde(default)]
    pub code: String,
    /// Which run is meant, at most 64 letters, digits, `.`, `_` and `-`; a query without one gets one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// The commands of a batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<CodeBatch>,
}

/// Commands for a shell, each in one of its own; at most 128 KiB together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CodeBatch {
    /// Removes what an earlier build left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clean: Option<String>,
    /// Makes the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// Runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<String>,
}

/// How a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CodeRunStatus {
    /// It goes on, or has shown more than one answer holds: ask with `continue`.
    Continued,
    /// It waits for a line: send it with `input`.
    WaitingInput,
    /// The first command of a batch went well, and another follows: begin it with `continue`.
    CleanFinished,
    /// The program is made, and a command follows: begin it with `continue`.
    BuildFinished,
    Finished,
}

/// Something that a run has shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CodeOutput {
    #[schema(value_type = ConsoleStreamShape)]
    pub stream: ConsoleStream,
    /// The media type of media; null for text.
    pub media_type: Option<String>,
    /// Text, or media in base64.
    pub text: String,
}

impl From<ConsolePiece> for CodeOutput {
    fn from(piece: ConsolePiece) -> Self {
        Self {
            stream: piece.stream,
            media_type: Some(piece.media_type).filter(|kind| !kind.is_empty()),
            text: piece.text,
        }
    }
}

/// What a run has shown since the answer before, at most 1 MiB of text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CodeRun {
    /// Null for completions and restarts.
    pub run_id: Option<String>,
    pub status: CodeRunStatus,
    /// 0 is well; null until it is finished.
    pub exit_code: Option<i32>,
    pub console: Vec<CodeOutput>,
    /// The line that it waits for is a password.
    pub is_password: bool,
    /// Why some of what it wrote is missing; null where nothing is.
    pub notice: Option<String>,
    /// The interpreter is over, and what it knew is lost.
    pub interpreter_ended: bool,
    /// What could stand at the end of the code.
    pub completions: Vec<String>,
}
