//! What one request is called. Never decides anything.

/// The id of one request: for the log, the answer, and the user who reports trouble.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestId(pub String);
