//! Why something is as it is: a code for programs, a sentence for people, and the values in it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Why something is as it is: a stable code for programs and translations, a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    pub code: String,
    /// One English sentence.
    pub text: String,
    /// What a translation needs to say the same, such as `limit → 256 MiB`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, String>,
}

impl Reason {
    /// A reason whose code and sentence were made elsewhere: kept in a row, or a finding with its own words.
    /// What is said here is written into the catalogue (`messages.toml`) and made by `reasons`.
    pub fn from_parts(code: String, text: String) -> Self {
        Self::new(code, text)
    }

    pub(crate) fn new(code: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            text: text.into(),
            params: BTreeMap::new(),
        }
    }

    pub(crate) fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.params.insert(name.to_owned(), value.to_string());
        self
    }
}
