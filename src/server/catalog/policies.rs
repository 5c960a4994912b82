//! Rows of policies: which limits hold at the levels that a session belongs to, and what is in use of them.
//! Decides nothing; `rules::quota` does.

use rules::names::UserId;
use rules::quota::{AttachedPolicy, LimitUsage, PolicyLevel};
use rules::tenancy::{DomainId, ProjectId};
use rusqlite::ToSql;

use super::reader::ReadTransaction;
use super::value;
use crate::Failure;

/// The levels that something of one user in one project belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PolicySubjects {
    pub(crate) domain: DomainId,
    pub(crate) project: ProjectId,
    pub(crate) user: UserId,
}

impl ReadTransaction<'_> {
    /// The policies that are attached to the site and to these subjects, at most one of each level, in no order.
    /// Costs four steps of an index.
    pub(crate) fn policies_of(
        &self,
        subjects: &PolicySubjects,
    ) -> Result<Vec<AttachedPolicy>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select policy_use.subject_kind, policy.name, policy.limits
             from policy_use
             join policy on policy.id = policy_use.policy
             where (policy_use.subject_kind, policy_use.subject)
                 in (values ('site', x''), ('domain', ?1), ('project', ?2), ('user', ?3))",
        )?;
        let rows = statement.query_map(
            [
                subjects.domain.0.as_bytes(),
                subjects.project.0.as_bytes(),
                subjects.user.0.as_bytes(),
            ],
            |row| {
                Ok(AttachedPolicy {
                    level: value::word(row, "subject_kind", level)?,
                    name: row.get("name")?,
                    limits: value::json(row, "limits")?,
                })
            },
        )?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// What the waiting sessions of a user use of the limits. Costs one visit of each, without reading their
    /// commands.
    pub(crate) fn waiting_of(&self, owner: UserId) -> Result<LimitUsage, Failure> {
        self.waiting_where("owner = ?1", owner.0.as_bytes())
    }

    /// The same of all members of a project. Costs one visit of each session that waits.
    pub(crate) fn waiting_in_project(&self, project: ProjectId) -> Result<LimitUsage, Failure> {
        self.waiting_where("project = ?1", project.0.as_bytes())
    }

    /// The same of all members of a domain. Costs one visit of each session that waits.
    pub(crate) fn waiting_in_domain(&self, domain: DomainId) -> Result<LimitUsage, Failure> {
        self.waiting_where("domain = ?1", domain.0.as_bytes())
    }

    fn waiting_where(&self, whose: &str, subject: impl ToSql) -> Result<LimitUsage, Failure> {
        Ok(self
            .connection
            .prepare_cached(&format!(
                "select count(*) as waiting,
                        coalesce(sum(octet_length(command) + octet_length(env)), 0) as bytes
                 from session
                 where {whose} and state = 'pending'"
            ))?
            .query_row([subject], |row| {
                Ok(LimitUsage {
                    waiting: value::unsigned(row, "waiting")?,
                    waiting_bytes: value::unsigned(row, "bytes")?,
                })
            })?)
    }
}

#[cfg(test)]
impl super::writer::Rows<'_> {
    /// Makes a policy with these limits and attaches it in the place of what the subject had.
    pub(crate) fn attach_policy(
        &self,
        level: &str,
        subject: &[u8],
        limits: &str,
    ) -> Result<(), Failure> {
        let id: [u8; 16] = base::observe::random();
        let name = uuid::Uuid::from_bytes(id).to_string();
        self.connection
            .prepare_cached(
                "insert into policy (id, name, limits, generation) values (?1, ?2, ?3, 1)",
            )?
            .execute((id, name, limits))?;
        self.connection
            .prepare_cached(
                "insert or replace into policy_use (subject_kind, subject, policy)
                 values (?1, ?2, ?3)",
            )?
            .execute((level, subject, id))?;
        Ok(())
    }
}

fn level(word: &str) -> Option<PolicyLevel> {
    match word {
        "site" => Some(PolicyLevel::Site),
        "domain" => Some(PolicyLevel::Domain),
        "project" => Some(PolicyLevel::Project),
        "user" => Some(PolicyLevel::User),
        _ => None,
    }
}
