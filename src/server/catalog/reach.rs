//! The rows that a list may give, as a condition of its query. Decides nothing: `rules::permissions` makes
//! the reach.

use rules::permissions::{Extent, Reach};

/// A condition with exactly one parameter, `place` (`?2`, or `?` for the next one), and the value to bind to it.
/// `owner` is the column that says whose a row is; where the table has no `domain`, a domain's reach is that
/// of the owners whose home it is.
pub(super) fn condition(
    reach: &Reach,
    table: ReachedTable,
    place: &str,
) -> (String, Option<[u8; 16]>) {
    let owner = table.owner;
    match reach.extent() {
        Extent::Everything => (format!("{place} is null"), None),
        Extent::Nothing => (format!("{place} is not null"), None),
        Extent::Owner(user) => (format!("{owner} = {place}"), Some(*user.0.as_bytes())),
        Extent::Domain(domain) if table.has_domain => {
            (format!("domain = {place}"), Some(*domain.0.as_bytes()))
        }
        Extent::Domain(domain) => (
            format!("{owner} in (select id from user where domain = {place})"),
            Some(*domain.0.as_bytes()),
        ),
    }
}

/// How rows of a table say whose they are.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReachedTable {
    /// The column of the owner; `null` where rows have none.
    pub(super) owner: &'static str,
    pub(super) has_domain: bool,
}

pub(super) const SESSION: ReachedTable = ReachedTable {
    owner: "owner",
    has_domain: true,
};
pub(super) const EVENT: ReachedTable = SESSION;
pub(super) const OPERATION: ReachedTable = ReachedTable {
    owner: "user",
    has_domain: false,
};
pub(super) const IMAGE: ReachedTable = ReachedTable {
    owner: "null",
    has_domain: true,
};
pub(super) const USER: ReachedTable = ReachedTable {
    owner: "id",
    has_domain: true,
};
