//! Room 5, the truth: what is wanted, who may want it, and what should happen next. Keeps rows, takes
//! decisions by `rules`, and speaks to machines only through `base::link`; never touches a container.

use rules::refusal::Refusal;

mod catalog;
mod conductor;
pub mod rehearsal;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The caller's: what was wrong and what would work.
    #[error(transparent)]
    Refusal(#[from] Refusal),
    /// Ours: logged with its whole chain, shown as a request id.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// An error of ours. Names the work that failed; the cause is its source.
#[derive(Debug, thiserror::Error)]
#[error("{what} failed")]
pub struct Fault {
    /// The work in words, such as `place sessions`.
    pub what: String,
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

impl Fault {
    pub fn new(
        what: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self {
            what: what.into(),
            source: source.into(),
        }
    }
}
