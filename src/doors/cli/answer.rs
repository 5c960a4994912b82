//! What a server answered, as it came and as its type. Never asks for anything.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::{CliError, FAILED};

/// An answer: as it came, for programs, and as its type, for users.
#[derive(Debug, Clone)]
pub(super) struct Answer<T> {
    pub body: Value,
    pub read: T,
}

impl<T: DeserializeOwned> Answer<T> {
    pub(super) fn of(body: Value) -> Result<Self, CliError> {
        let read = read(&body)?;
        Ok(Self { body, read })
    }
}

/// Reads an answer as its type.
///
/// Errors: `answer.unreadable` where a field is missing or says what this client does not know.
pub(super) fn read<T: DeserializeOwned>(body: &Value) -> Result<T, CliError> {
    T::deserialize(body).map_err(|e| {
        CliError::new(
            FAILED,
            "answer.unreadable",
            format!("The server's answer does not have the expected form: {e}."),
        )
        .hint("-o json prints it as it came; `fardel version -o wide` compares both versions.")
    })
}
