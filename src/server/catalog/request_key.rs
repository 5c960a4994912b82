//! What names one request of one principal, so that its answer can be found again. Keeps nothing.

use rules::names::UserId;

/// What names one request of one principal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestKey {
    pub(crate) principal: UserId,
    pub(crate) route: String,
    pub(crate) key: String,
    pub(crate) digest: [u8; 32],
}
