//! The rows that a list may give, as a condition of its query. Decides nothing: `rules::permissions` makes
//! the reach.

use rules::permissions::{Extent, Reach};

/// A condition with exactly one parameter, `place` (`?2`, or `?` for the next one), and the value to bind to it.
/// `owner` is the column that says whose a row is; where the table has no `domain`, a domain's reach is that
/// of the owners whose home it is, and of its projects.
pub(super) fn condition(
    reach: &Reach,
    table: ReachedTable,
    place: &str,
) -> (String, Option<[u8; 16]>) {
    let own = table.owner;
    match reach.extent() {
        Extent::Everything => (format!("{place} is null"), None),
        Extent::Nothing => (format!("{place} is not null"), None),
        // The usual reach keeps one text, and the index of the owner.
        Extent::Some {
            owner: Some(user),
            projects,
            domains,
        } if table.project.is_none_or(|_| projects.is_empty()) && domains.is_empty() => {
            (format!("{own} = {place}"), Some(*user.0.as_bytes()))
        }
        Extent::Some {
            owner,
            projects,
            domains,
        } => {
            let mut any = Vec::new();
            if let Some(user) = owner {
                any.push(format!("{own} = {}", literal(user.0)));
            }
            if let Some(column) = table.project
                && !projects.is_empty()
            {
                let ids = literals(projects.iter().map(|id| id.0));
                any.push(format!("{column} in ({ids})"));
            }
            if !domains.is_empty() {
                let ids = literals(domains.iter().map(|id| id.0));
                any.push(match table.has_domain {
                    true => format!("domain in ({ids})"),
                    false => format!("{own} in (select id from user where domain in ({ids}))"),
                });
                if let Some(column) = table.project.filter(|_| !table.has_domain) {
                    let of_domain = format!("select id from project where domain in ({ids})");
                    any.push(format!("{column} in ({of_domain})"));
                }
            }
            if any.is_empty() {
                return (format!("{place} is not null"), None);
            }
            (
                format!("({place} is null and ({}))", any.join(" or ")),
                None,
            )
        }
    }
}

fn literals(ids: impl Iterator<Item = uuid::Uuid>) -> String {
    ids.map(literal).collect::<Vec<_>>().join(", ")
}

/// Sixteen bytes as SQL writes them; holds nothing but hexadecimal digits.
fn literal(id: uuid::Uuid) -> String {
    format!("x'{}'", id.simple())
}

/// How rows of a table say whose they are.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReachedTable {
    /// The column of the owner; `null` where rows have none.
    pub(super) owner: &'static str,
    pub(super) has_domain: bool,
    /// The column of the project; None where rows have none.
    pub(super) project: Option<&'static str>,
}

pub(super) const SESSION: ReachedTable = ReachedTable {
    owner: "owner",
    has_domain: true,
    project: Some("project"),
};
pub(super) const EVENT: ReachedTable = SESSION;
/// The actor is whose an act is.
pub(super) const AUDIT: ReachedTable = ReachedTable {
    owner: "actor",
    has_domain: true,
    project: Some("project"),
};
pub(super) const OPERATION: ReachedTable = ReachedTable {
    owner: "user",
    has_domain: false,
    project: None,
};
pub(super) const IMAGE: ReachedTable = ReachedTable {
    owner: "null",
    has_domain: true,
    project: None,
};
pub(super) const USER: ReachedTable = ReachedTable {
    owner: "id",
    has_domain: true,
    project: None,
};

/// The members of a project reach it by their grants.
pub(super) const PROJECT: ReachedTable = ReachedTable {
    owner: "null",
    has_domain: true,
    project: Some("id"),
};

#[cfg(test)]
impl super::writer::Rows<'_> {
    /// Makes a domain and moves a user into it; no action does so yet.
    pub(crate) fn move_to_new_domain(
        &self,
        user: &str,
        domain: rules::tenancy::DomainId,
    ) -> Result<(), crate::Failure> {
        self.connection.execute(
            "insert into domain (id, name, title, state, generation)
             values (?1, 'another', '', 'active', 1)",
            [domain.0.as_bytes()],
        )?;
        self.connection.execute(
            "update user set domain = ?1 where name = ?2",
            (domain.0.as_bytes(), user),
        )?;
        Ok(())
    }
}
