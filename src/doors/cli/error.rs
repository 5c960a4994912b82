//! Errors of the command line: the exit code and the text of each.
//! Never decides what to do about it.

use serde_json::{Value, json};

/// Exit codes of commands; `run` and `exec` return the code of what they ran instead.
pub(super) const FAILED: u8 = 1;
pub(super) const USAGE: u8 = 2;
pub(super) const NOT_FOUND: u8 = 3;
pub(super) const DENIED: u8 = 4;
pub(super) const CONFLICT: u8 = 5;
pub(super) const CAPACITY: u8 = 6;
pub(super) const TIMEOUT: u8 = 7;
pub(super) const UNREACHABLE: u8 = 8;
pub(super) const PARTLY: u8 = 9;
pub(super) const INTERRUPTED: u8 = 130;
/// `run`: the session was taken in, but it never ran, or its end is unknown.
pub(super) const NEVER_RAN: u8 = 125;

/// Why a command could not do what it was asked.
#[derive(Debug)]
pub(super) struct CliError {
    pub exit: u8,
    pub code: String,
    pub text: String,
    pub hint: String,
    pub request_id: String,
    /// The server's own problem document, where it sent one.
    pub problem: Option<Value>,
}

impl CliError {
    pub(super) fn new(exit: u8, code: &str, text: impl Into<String>) -> Self {
        Self {
            exit,
            code: code.to_owned(),
            text: text.into(),
            hint: String::new(),
            request_id: String::new(),
            problem: None,
        }
    }

    pub(super) fn usage(text: impl Into<String>) -> Self {
        Self::new(USAGE, "usage", text)
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Reads a refusal from the server. `kind` decides the exit code; without one, the status does.
    pub(super) fn refused(status: u16, body: &[u8], request_id: &str) -> Self {
        let problem: Option<Value> = serde_json::from_slice(body)
            .ok()
            .filter(|v: &Value| v.get("code").is_some());
        let word = |name: &str| {
            problem
                .as_ref()
                .and_then(|p| p.get(name))
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let exit = match (word("kind").as_str(), status) {
            // A launch names things that must exist; not finding one is what a script wants to know.
            ("invalid", _) if word("code").ends_with(".not-found") => NOT_FOUND,
            ("malformed" | "invalid" | "too-large", _) => USAGE,
            ("capacity" | "too-often", _) => CAPACITY,
            ("not-found", _) | (_, 404) => NOT_FOUND,
            ("unauthenticated" | "denied", _) | (_, 401 | 403) => DENIED,
            ("conflict" | "stale", _) | (_, 409 | 412 | 428) => CONFLICT,
            (_, 400 | 405 | 413 | 415 | 422) => USAGE,
            (_, 429) => CAPACITY,
            _ => FAILED,
        };
        let mut text = word("detail");
        if text.is_empty() {
            text = format!("The server answered with status {status}.");
        }
        for field in problem
            .as_ref()
            .and_then(|p| p.get("errors"))
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let pointer = field["pointer"].as_str().unwrap_or_default();
            let detail = field["text"].as_str().unwrap_or_default();
            if !detail.is_empty() && !text.contains(detail) {
                text.push_str(&format!("\n  {pointer}: {detail}"));
            }
        }
        let mut hint = word("hint");
        if status == 401 && hint.is_empty() {
            "Sign in with `fardel login`.".clone_into(&mut hint);
        }
        let code = match word("code") {
            code if code.is_empty() => format!("http.{status}"),
            code => code,
        };
        let mut id = word("request_id");
        if id.is_empty() {
            request_id.clone_into(&mut id);
        }
        Self {
            exit,
            code,
            text,
            hint,
            request_id: id,
            problem,
        }
    }

    /// The trouble as the lines, or the JSON, that go to standard error.
    pub(super) fn written(&self, as_json: bool, color: bool) -> String {
        if as_json {
            let body = self.problem.clone().unwrap_or_else(|| {
                json!({
                    "type": format!("/docs/errors/{}", self.code.replace('.', "-")),
                    "title": "The command could not be done",
                    "code": self.code,
                    "detail": self.text,
                    "hint": self.hint,
                    "request_id": self.request_id,
                    "exit": self.exit,
                })
            });
            return format!("{body:#}\n");
        }
        let (red, dim, plain) = if color {
            ("\x1b[1;31m", "\x1b[2m", "\x1b[0m")
        } else {
            ("", "", "")
        };
        let mut lines = format!("{red}error:{plain} {}\n", self.text);
        if !self.hint.is_empty() {
            lines.push_str(&format!("  {}\n", self.hint));
        }
        let mut marks = format!("code {}", self.code);
        if !self.request_id.is_empty() {
            marks.push_str(&format!(", request {}", self.request_id));
        }
        lines.push_str(&format!("{dim}  ({marks}){plain}\n"));
        lines
    }
}

impl From<rules::refusal::Refusal> for CliError {
    /// A refusal that the rules gave here, before anything was sent.
    fn from(refusal: rules::refusal::Refusal) -> Self {
        Self::new(USAGE, &refusal.code, refusal.text).hint(refusal.hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sort_of_refusal_has_its_exit_code() {
        for (status, kind, exit) in [
            (400, "malformed", 2),
            (401, "unauthenticated", 4),
            (403, "denied", 4),
            (404, "not-found", 3),
            (409, "conflict", 5),
            (412, "stale", 5),
            (413, "too-large", 2),
            (422, "invalid", 2),
            (422, "capacity", 6),
            (429, "too-often", 6),
            (503, "unavailable", 1),
            (424, "failed-dependency", 1),
        ] {
            let body = json!({"code": "x.y", "detail": "D.", "kind": kind}).to_string();
            let trouble = CliError::refused(status, body.as_bytes(), "r");
            assert_eq!(trouble.exit, exit, "{status} {kind}");
        }
        assert_eq!(CliError::refused(404, b"<html>", "r").exit, 3);
        assert_eq!(CliError::refused(502, b"", "r").exit, 1);
    }

    #[test]
    fn trouble_names_code_and_request() {
        let mut trouble = CliError::usage("No.").hint("Use yes.");
        trouble.request_id = "abc".into();
        assert_eq!(
            trouble.written(false, false),
            "error: No.\n  Use yes.\n  (code usage, request abc)\n"
        );
        assert!(trouble.written(true, false).contains("\"code\": \"usage\""));
    }
}
