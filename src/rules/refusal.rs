//! A refusal: what a person asked for cannot be done, why, and what would work. Faults of ours are
//! not refusals; they keep their chain for the log and reach the person as a request id.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// What sort of no this is; each door turns it into its own status or exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalKind {
    /// The request cannot be read at all (broken JSON, wrong type).
    Malformed,
    /// The caller is not signed in, or the sign-in is over.
    Unauthenticated,
    /// Signed in, but not allowed.
    Denied,
    /// It does not exist, or may not be seen.
    NotFound,
    /// The state of the thing forbids it now.
    Conflict,
    /// It was changed since it was read.
    Stale,
    /// The request is readable but its meaning is not possible.
    Invalid,
    /// A limit or the capacity of the machine is in the way.
    Capacity,
    /// Too large to take in.
    TooLarge,
    /// Asked too often; `retry_after_seconds` says when to come back.
    TooOften,
    /// The box lacks something for it now (disk full, missing kernel feature).
    Unavailable,
    /// Another server on which it depends does not answer, or not as it should; `retry_after_seconds` says when to come
    /// back.
    FailedDependency,
}

/// One field that was wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldError {
    /// JSON pointer into the request body, such as `/resources/memory`.
    pub pointer: String,
    pub code: String,
    pub text: String,
}

/// The caller's error: a stable dotted code, what was wrong, and what would work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub kind: RefusalKind,
    /// Stable, dotted, `noun.what`; never translated.
    pub code: String,
    /// One English sentence: what was wrong.
    pub text: String,
    /// One English sentence: what would work. Empty where nothing would.
    pub hint: String,
    /// What both sentences name, for those who say the same in another language: `least → 0.1`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub values: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub fields: Vec<FieldError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u64>,
}

impl Refusal {
    /// A refusal whose code and sentences were made elsewhere: in another process, or kept in a row. What is
    /// said here is written into the catalogue (`messages.toml`) and made by `refusals`.
    pub fn from_parts(kind: RefusalKind, code: String, text: String, hint: String) -> Self {
        Self::new(kind, code, text).hint(hint)
    }

    pub(crate) fn new(kind: RefusalKind, code: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            kind,
            code: code.into(),
            text: text.into(),
            hint: String::new(),
            values: BTreeMap::new(),
            pointer: None,
            fields: Vec::new(),
            retry_after_seconds: None,
        }
    }

    /// Says what would work.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Brings a value that the sentences name, as text: a translation says it too.
    pub(crate) fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.values.insert(name.to_owned(), value.to_string());
        self
    }

    /// Says which field of the request it is about (JSON pointer).
    pub fn at(mut self, pointer: impl Into<String>) -> Self {
        self.pointer = Some(pointer.into());
        self
    }

    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_seconds = Some(seconds);
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.hint.is_empty() {
            write!(f, "{}", self.text)
        } else {
            write!(f, "{} {}", self.text, self.hint)
        }
    }
}

impl std::error::Error for Refusal {}
