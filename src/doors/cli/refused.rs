//! How a command of this program says that it was refused, for users and for programs. Refuses nothing itself.

use std::io::Write as _;
use std::process::ExitCode;

use rules::refusal::Refusal;

use super::args::{Format, Global};

/// Prints a refusal to standard error and gives `exit` back.
pub(crate) fn refused_with(global: &Global, refusal: &Refusal, exit: u8) -> ExitCode {
    let text = if matches!(global.output, Format::Json | Format::Jsonl) {
        let body = serde_json::json!({
            "code": refusal.code, "detail": refusal.text, "hint": refusal.hint,
        });
        format!("{body:#}\n")
    } else {
        format!(
            "error: {}\n  {}\n  (code {})\n",
            refusal.text, refusal.hint, refusal.code
        )
        .replace("\n  \n", "\n")
    };
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
    ExitCode::from(exit)
}
