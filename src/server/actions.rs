//! One function per thing a person may do: check, decide, write, return. Doors have no other way in.
//! Every one asks `rules::permissions::may` first; what a page hides is refused here.

use rules::permissions::{Verb, may};
use rules::refusal::Refusal;

use crate::Failure;
use crate::access::Caller;

mod cursor;
pub mod images;
pub mod operations;
pub mod people;
mod query;
pub mod sessions;
pub mod system;

/// Names one POST of one caller, so that a repetition acts once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// As the client sent it; 1 to 200 visible characters.
    pub key: String,
    /// Method and path, such as `POST /api/v1/sessions`.
    pub route: String,
    /// SHA-256 of the body as it came.
    pub body_digest: [u8; 32],
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Asks for the page after this one; None at the end.
    pub next_cursor: Option<String>,
    /// Items on all pages together; 10,000 stands for that many or more.
    pub estimated_total: u64,
}

/// May the caller do this on things of the box, or of their own?
fn allowed(caller: &Caller, verb: Verb) -> Result<(), Failure> {
    may(&caller.subject, verb, None).map_err(Failure::from)
}

/// Checks a key that a client made up.
fn check_key(key: &IdempotencyKey) -> Result<(), Refusal> {
    let good = (1..=200).contains(&key.key.len()) && key.key.chars().all(|c| c.is_ascii_graphic());
    if good {
        return Ok(());
    }
    Err(Refusal::malformed(
        "idempotency.key-invalid",
        "An Idempotency-Key has 1 to 200 visible ASCII characters.",
    )
    .hint("A UUID would work."))
}

#[cfg(test)]
mod tests;
