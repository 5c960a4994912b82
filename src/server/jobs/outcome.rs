//! What comes of a job: how far it is, its result, or why there is none. Runs nothing.

use serde_json::Value;

use crate::Failure;
use crate::catalog::Rows;

/// What a job writes in the commit that ends it as succeeded; gives the result of its row.
pub(crate) type JobResult = Box<dyn FnOnce(&Rows<'_>) -> Result<Value, Failure> + Send>;

/// How far a job is; lives in memory only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobProgress {
    /// One English word or two.
    pub(crate) step: String,
    /// Bytes or steps, of `total`.
    pub(crate) done: u64,
    pub(crate) total: u64,
}

/// Why a run gave no result.
#[derive(Debug)]
pub(crate) enum JobFailure {
    /// The server stops: the row stays open.
    Interrupted,
    Failed(Failure),
}

impl<F: Into<Failure>> From<F> for JobFailure {
    fn from(failure: F) -> Self {
        Self::Failed(failure.into())
    }
}

/// Why work gave nothing that panicked.
pub(crate) const PANICKED: &str = "it panicked; the log above has the place";
