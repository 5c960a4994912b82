//! Rows of policies: which limits hold at the levels that a session belongs to, and what is in use of them.
//! Decides nothing; `rules::quota` does.

use rules::egress::EgressPolicy;
use rules::names::{PolicyId, UserId};
use rules::quota::{
    AttachedPolicy, LimitKind, LimitUsage, PolicyLevel, PolicyLimits, ScopedPolicy,
};
use rules::refusals;
use rules::tenancy::{DomainId, ProjectId};
use rusqlite::{OptionalExtension as _, Params, Row};
use uuid::Uuid;

use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// One policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PolicyRecord {
    pub(crate) id: PolicyId,
    pub(crate) name: String,
    pub(crate) limits: PolicyLimits,
    /// What it says of networks.
    pub(crate) egress: Option<EgressPolicy>,
    /// It lets launches ask for sudo.
    pub(crate) sudo: bool,
    /// Sessions under it have no inner door.
    pub(crate) no_inner_door: bool,
    /// Sessions under it have no home by themselves.
    pub(crate) no_home: bool,
    /// Launches under it name a time limit.
    pub(crate) require_limit: bool,
    pub(crate) generation: u64,
}

/// What a policy is attached to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PolicyUse {
    pub(crate) level: PolicyLevel,
    /// None for the site.
    pub(crate) subject: Option<Uuid>,
    /// Name of the domain or the user, `DOMAIN/PROJECT` for a project and its members; empty for the site.
    pub(crate) whose: String,
}

/// The subject as rows keep it.
fn kept(subject: Option<Uuid>) -> Vec<u8> {
    subject.map_or_else(Vec::new, |id| id.as_bytes().to_vec())
}

fn subject(row: &Row<'_>) -> rusqlite::Result<Option<Uuid>> {
    let bytes: Vec<u8> = row.get("subject")?;
    match bytes.is_empty() {
        true => Ok(None),
        false => value::id(row, "subject").map(Some),
    }
}

fn policy_row(row: &Row<'_>) -> rusqlite::Result<PolicyRecord> {
    Ok(PolicyRecord {
        id: PolicyId(value::id(row, "id")?),
        name: row.get("name")?,
        limits: value::json(row, "limits")?,
        egress: value::json_or_none(row, "egress")?,
        sudo: row.get("sudo")?,
        no_inner_door: row.get("no_inner_door")?,
        no_home: row.get("no_home")?,
        require_limit: row.get("require_limit")?,
        generation: value::unsigned(row, "generation")?,
    })
}

/// Columns and joins that name what a policy is attached to.
const NAMED: &str = "coalesce(
                        domain.name,
                        home.name || '/' || project.name,
                        \"user\".name,
                        ''
                    ) as whose
             from policy_use
             join policy on policy.id = policy_use.policy
             left join domain on subject_kind = 'domain' and domain.id = subject
             left join project on subject_kind in ('project', 'member') and project.id = subject
             left join domain as home on home.id = project.domain
             left join \"user\" on subject_kind = 'user' and \"user\".id = subject";

/// The levels that something of one user in one project belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PolicySubjects {
    pub(crate) domain: DomainId,
    pub(crate) project: ProjectId,
    pub(crate) user: UserId,
}

impl ReadTransaction<'_> {
    /// The policies that are attached to the site and to these subjects, at most one of each level, in no order.
    /// Costs five steps of an index.
    pub(crate) fn policies_of(
        &self,
        subjects: &PolicySubjects,
    ) -> Result<Vec<AttachedPolicy>, Failure> {
        // One look by the key for each: `in (values …)` builds a table first, which costs more than they do.
        let of = |kind: &str, subject: &str| {
            format!(
                "select policy_use.subject_kind, policy.name, policy.limits
                 from policy_use
                 join policy on policy.id = policy_use.policy
                 where policy_use.subject_kind = '{kind}'
                 and policy_use.subject = {subject}"
            )
        };
        let attached = |row: &Row<'_>| {
            Ok(AttachedPolicy {
                level: value::word(row, "subject_kind", PolicyLevel::parse)?,
                name: row.get("name")?,
                limits: value::json(row, "limits")?,
                raised: Vec::new(),
            })
        };
        let site = of("site", "x''");
        // Most catalogs have no other, and each launch asks.
        if !self.has_policies_below_site()? {
            let mut statement = self.connection.prepare_cached(&site)?;
            let rows = statement.query_map([], attached)?;
            return Ok(rows.collect::<Result<_, _>>()?);
        }
        let query = [
            site,
            of("domain", "?1"),
            of("project", "?2"),
            of("member", "?2"),
            of("user", "?3"),
        ];
        let mut statement = self.connection.prepare_cached(&query.join(" union all "))?;
        let rows = statement.query_map(
            [
                subjects.domain.0.as_bytes(),
                subjects.project.0.as_bytes(),
                subjects.user.0.as_bytes(),
            ],
            attached,
        )?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// What holds for networks of these subjects: of their policies the narrowest that says something. Costs a visit of each
    /// policy that does.
    pub(crate) fn egress_policy(
        &self,
        subjects: &PolicySubjects,
    ) -> Result<Option<EgressPolicy>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select policy_use.subject_kind, policy.egress
             from policy_use
             join policy on policy.id = policy_use.policy
             where policy.egress is not null
             and (
                 policy_use.subject_kind = 'site'
                 or (policy_use.subject_kind = 'domain' and policy_use.subject = ?1)
                 or (policy_use.subject_kind in ('project', 'member') and policy_use.subject = ?2)
                 or (policy_use.subject_kind = 'user' and policy_use.subject = ?3)
             )",
        )?;
        let rows = statement.query_map(
            [
                subjects.domain.0.as_bytes(),
                subjects.project.0.as_bytes(),
                subjects.user.0.as_bytes(),
            ],
            |row| {
                let level = value::word(row, "subject_kind", PolicyLevel::parse)?;
                Ok((level, value::json::<EgressPolicy>(row, "egress")?))
            },
        )?;
        let all: Vec<(PolicyLevel, EgressPolicy)> = rows.collect::<Result<_, _>>()?;
        let narrowest = all.into_iter().max_by_key(|(level, _)| *level);
        Ok(narrowest.map(|(_, policy)| policy))
    }

    /// Whether a policy of these subjects lets launches ask for sudo. Costs a visit of each policy that does.
    pub(crate) fn allows_sudo(&self, subjects: &PolicySubjects) -> Result<bool, Failure> {
        self.has_flagged(subjects, "sudo")
    }

    /// Whether a policy of these subjects closes the inner doors of their sessions. Costs a visit of each policy that does.
    pub(crate) fn closes_inner_door(&self, subjects: &PolicySubjects) -> Result<bool, Failure> {
        self.has_flagged(subjects, "no_inner_door")
    }

    /// Whether a policy of these subjects leaves sessions without a home. Costs a visit of each policy that does.
    pub(crate) fn forbids_home(&self, subjects: &PolicySubjects) -> Result<bool, Failure> {
        self.has_flagged(subjects, "no_home")
    }

    /// Whether a policy of these subjects asks each session for a time limit. Costs a visit of each policy that does.
    pub(crate) fn requires_limit(&self, subjects: &PolicySubjects) -> Result<bool, Failure> {
        self.has_flagged(subjects, "require_limit")
    }

    /// Whether a policy of these subjects has that column set.
    fn has_flagged(&self, subjects: &PolicySubjects, column: &str) -> Result<bool, Failure> {
        Ok(self
            .connection
            .prepare_cached(&format!(
                "select exists (
                     select 1
                     from policy_use
                     join policy on policy.id = policy_use.policy
                     where policy.{column}
                     and (
                         policy_use.subject_kind = 'site'
                         or (policy_use.subject_kind = 'domain' and policy_use.subject = ?1)
                         or (policy_use.subject_kind in ('project', 'member') and policy_use.subject = ?2)
                         or (policy_use.subject_kind = 'user' and policy_use.subject = ?3)
                     )
                 )"
            ))?
            .query_row(
                [
                    subjects.domain.0.as_bytes(),
                    subjects.project.0.as_bytes(),
                    subjects.user.0.as_bytes(),
                ],
                |row| row.get(0),
            )?)
    }

    /// Whether any policy closes inner doors. Costs a visit of each policy.
    pub(crate) fn has_closed_inner_doors(&self) -> Result<bool, Failure> {
        Ok(self
            .connection
            .prepare_cached("select exists (select 1 from policy where no_inner_door)")?
            .query_row([], |row| row.get(0))?)
    }

    /// Whether any policy says something of networks. Costs a visit of each policy.
    pub(crate) fn has_egress_policies(&self) -> Result<bool, Failure> {
        Ok(self
            .connection
            .prepare_cached("select exists (select 1 from policy where egress is not null)")?
            .query_row([], |row| row.get(0))?)
    }

    /// Whether any policy allows sudo. Costs a visit of each policy.
    pub(crate) fn has_sudo_policies(&self) -> Result<bool, Failure> {
        Ok(self
            .connection
            .prepare_cached("select exists (select 1 from policy where sudo)")?
            .query_row([], |row| row.get(0))?)
    }

    fn has_policies_below_site(&self) -> Result<bool, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select exists (select 1 from policy_use where subject_kind < 'site')
                     or exists (select 1 from policy_use where subject_kind > 'site')",
            )?
            .query_row([], |row| row.get(0))?)
    }

    /// How many sessions of a user wait, and of their bytes what they are at most: all as the largest. Costs a
    /// quarter of `waiting_of`.
    pub(crate) fn waiting_bound_of(&self, owner: UserId) -> Result<LimitUsage, Failure> {
        let (waiting, largest) = self
            .connection
            .prepare_cached(
                "select (
                     select count(*)
                     from session
                     where owner = ?1 and state = 'pending'
                 ) as waiting,
                 (
                     select octet_length(command) + octet_length(env)
                     from session
                     where owner = ?1 and state = 'pending'
                     order by octet_length(command) + octet_length(env) desc
                     limit 1
                 ) as largest",
            )?
            .query_row([owner.0.as_bytes()], |row| {
                let largest: Option<i64> = row.get("largest")?;
                let largest = largest.and_then(|bytes| u64::try_from(bytes).ok());
                Ok((value::unsigned(row, "waiting")?, largest.unwrap_or(0)))
            })?;
        Ok(LimitUsage {
            waiting,
            waiting_bytes: waiting.saturating_mul(largest),
            ..LimitUsage::default()
        })
    }

    /// What the waiting sessions of a user use of the limits. Costs one visit of each, without reading their
    /// commands.
    pub(crate) fn waiting_of(&self, owner: UserId) -> Result<LimitUsage, Failure> {
        self.waiting_where("owner = ?1", [owner.0.as_bytes()])
    }

    /// The same of one member in one project.
    pub(crate) fn waiting_of_member(
        &self,
        owner: UserId,
        project: ProjectId,
    ) -> Result<LimitUsage, Failure> {
        self.waiting_where(
            "owner = ?1 and project = ?2",
            [owner.0.as_bytes(), project.0.as_bytes()],
        )
    }

    /// The same of all members of a project. Costs one visit of each session that waits.
    pub(crate) fn waiting_in_project(&self, project: ProjectId) -> Result<LimitUsage, Failure> {
        self.waiting_where("project = ?1", [project.0.as_bytes()])
    }

    /// The same of all members of a domain. Costs one visit of each session that waits.
    pub(crate) fn waiting_in_domain(&self, domain: DomainId) -> Result<LimitUsage, Failure> {
        self.waiting_where("domain = ?1", [domain.0.as_bytes()])
    }

    /// All policies, by name.
    pub(crate) fn policies(&self) -> Result<Vec<PolicyRecord>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select id, name, limits, egress, sudo, no_inner_door, no_home, require_limit, generation
             from policy order by name",
        )?;
        let rows = statement.query_map([], policy_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The policy with this id or name.
    pub(crate) fn policy_called(&self, which: &str) -> Result<Option<PolicyRecord>, Failure> {
        let id = which.parse::<PolicyId>().ok();
        Ok(self
            .connection
            .prepare_cached(
                "select id, name, limits, egress, sudo, no_inner_door, no_home, require_limit,
                        generation
                 from policy
                 where id = ?1 or (?1 is null and name = ?2)",
            )?
            .query_row((id.map(|id| *id.0.as_bytes()), which), policy_row)
            .optional()?)
    }

    /// The policy that is attached there. Costs a step of an index.
    pub(crate) fn policy_at(
        &self,
        level: PolicyLevel,
        subject: Option<Uuid>,
    ) -> Result<Option<PolicyId>, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select policy from policy_use where subject_kind = ?1 and subject = ?2",
            )?
            .query_row((level.word(), kept(subject)), |row| {
                value::id(row, "policy").map(PolicyId)
            })
            .optional()?)
    }

    /// What each policy is attached to, the widest first, by name.
    pub(crate) fn policy_uses(&self) -> Result<Vec<(PolicyId, PolicyUse)>, Failure> {
        let mut statement = self.connection.prepare_cached(&format!(
            "select policy_use.policy, subject_kind, subject, {NAMED}
             order by whose"
        ))?;
        let rows = statement.query_map([], |row| {
            let policy = PolicyId(value::id(row, "policy")?);
            let attached = PolicyUse {
                level: value::word(row, "subject_kind", PolicyLevel::parse)?,
                subject: subject(row)?,
                whose: row.get("whose")?,
            };
            Ok((policy, attached))
        })?;
        let mut all: Vec<(PolicyId, PolicyUse)> = rows.collect::<Result<_, _>>()?;
        all.sort_by_key(|(_, one)| one.level);
        Ok(all)
    }

    /// The policies that bound sums of what has a place, for the scheduler. Costs one visit of each use.
    pub(crate) fn scoped_policies(&self) -> Result<Vec<ScopedPolicy>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select subject_kind, subject, policy.name, policy.limits,
                    coalesce(domain.name, project.name, '') as whose
             from policy_use
             join policy on policy.id = policy_use.policy
             left join domain on subject_kind = 'domain' and domain.id = subject
             left join project on subject_kind in ('project', 'member') and project.id = subject",
        )?;
        let rows = statement.query_map([], |row| {
            Ok(ScopedPolicy {
                level: value::word(row, "subject_kind", PolicyLevel::parse)?,
                subject: subject(row)?,
                whose: row.get("whose")?,
                name: row.get("name")?,
                limits: value::json(row, "limits")?,
            })
        })?;
        let mut all: Vec<ScopedPolicy> = rows.collect::<Result<_, _>>()?;
        all.retain(|policy| policy.limits.says(LimitKind::Held));
        Ok(all)
    }

    /// What sessions that have a place hold, of one user. Costs one visit of each of their live sessions.
    pub(crate) fn held_by_user(&self, owner: UserId) -> Result<LimitUsage, Failure> {
        self.held_where(
            "session indexed by session_live_name where owner = ?1",
            [owner.0.as_bytes()],
        )
    }

    /// The same of one member in one project.
    pub(crate) fn held_by_member(
        &self,
        owner: UserId,
        project: ProjectId,
    ) -> Result<LimitUsage, Failure> {
        self.held_where(
            "session indexed by session_live_name where owner = ?1 and project = ?2",
            [owner.0.as_bytes(), project.0.as_bytes()],
        )
    }

    /// The same of all members of a project. Costs one visit of each live session.
    pub(crate) fn held_in_project(&self, project: ProjectId) -> Result<LimitUsage, Failure> {
        self.held_where("session where project = ?1", [project.0.as_bytes()])
    }

    /// The same of all members of a domain.
    pub(crate) fn held_in_domain(&self, domain: DomainId) -> Result<LimitUsage, Failure> {
        self.held_where("session where domain = ?1", [domain.0.as_bytes()])
    }

    /// What each user has in each project. Costs one visit of each live session.
    pub(crate) fn live_usage(&self) -> Result<Vec<(PolicySubjects, LimitUsage)>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select domain, project, owner, sum(state = 'pending') as waiting,
                    sum(iif(state = 'pending', octet_length(command) + octet_length(env), 0)) as bytes,
                    sum(state <> 'pending') as sessions,
                    sum(iif(state <> 'pending', gpu, 0)) as gpu,
                    sum(iif(state <> 'pending', cpu, 0)) as cpu,
                    sum(iif(state <> 'pending', memory, 0)) as memory
             from session
             where state <> 'ended'
             group by domain, project, owner",
        )?;
        let rows = statement.query_map([], |row| {
            let subjects = PolicySubjects {
                domain: DomainId(value::id(row, "domain")?),
                project: ProjectId(value::id(row, "project")?),
                user: UserId(value::id(row, "owner")?),
            };
            let usage = LimitUsage {
                waiting: value::unsigned(row, "waiting")?,
                waiting_bytes: value::unsigned(row, "bytes")?,
                sessions: value::unsigned(row, "sessions")?,
                gpu: value::unsigned(row, "gpu")?,
                cpu: value::unsigned(row, "cpu")?,
                memory: value::unsigned(row, "memory")?,
            };
            Ok((subjects, usage))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn held_where(&self, whose: &str, subjects: impl Params) -> Result<LimitUsage, Failure> {
        Ok(self
            .connection
            .prepare_cached(&format!(
                "select count(*) as sessions, coalesce(sum(gpu), 0) as gpu,
                        coalesce(sum(cpu), 0) as cpu, coalesce(sum(memory), 0) as memory
                 from {whose} and state <> 'ended' and state <> 'pending'"
            ))?
            .query_row(subjects, |row| {
                Ok(LimitUsage {
                    sessions: value::unsigned(row, "sessions")?,
                    gpu: value::unsigned(row, "gpu")?,
                    cpu: value::unsigned(row, "cpu")?,
                    memory: value::unsigned(row, "memory")?,
                    ..LimitUsage::default()
                })
            })?)
    }

    fn waiting_where(&self, whose: &str, subjects: impl Params) -> Result<LimitUsage, Failure> {
        Ok(self
            .connection
            .prepare_cached(&format!(
                "select count(*) as waiting,
                        coalesce(sum(octet_length(command) + octet_length(env)), 0) as bytes
                 from session
                 where {whose} and state = 'pending'"
            ))?
            .query_row(subjects, |row| {
                Ok(LimitUsage {
                    waiting: value::unsigned(row, "waiting")?,
                    waiting_bytes: value::unsigned(row, "bytes")?,
                    ..LimitUsage::default()
                })
            })?)
    }
}

impl Rows<'_> {
    /// Errors: `policy.name-taken`.
    pub(crate) fn insert_policy(&self, policy: &PolicyRecord) -> Result<(), Failure> {
        self.refuse_taken_name(policy)?;
        self.connection
            .prepare_cached(
                "insert into policy
                     (id, name, limits, egress, sudo, no_inner_door, generation, no_home,
                      require_limit)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute((
                policy.id.0.as_bytes(),
                &policy.name,
                value::text(&policy.limits),
                policy.egress.as_ref().map(value::text),
                policy.sudo,
                policy.no_inner_door,
                value::signed(policy.generation),
                policy.no_home,
                policy.require_limit,
            ))?;
        Ok(())
    }

    /// Writes a policy's name and limits; raises its generation. Errors: `policy.name-taken`.
    pub(crate) fn put_policy(&self, policy: &PolicyRecord) -> Result<(), Failure> {
        self.refuse_taken_name(policy)?;
        self.connection
            .prepare_cached(
                "update policy
                 set name = ?2, limits = ?3, egress = ?4, sudo = ?5, no_inner_door = ?6, no_home = ?7,
                     require_limit = ?8, generation = generation + 1
                 where id = ?1",
            )?
            .execute((
                policy.id.0.as_bytes(),
                &policy.name,
                value::text(&policy.limits),
                policy.egress.as_ref().map(value::text),
                policy.sudo,
                policy.no_inner_door,
                policy.no_home,
                policy.require_limit,
            ))?;
        Ok(())
    }

    fn refuse_taken_name(&self, policy: &PolicyRecord) -> Result<(), Failure> {
        let taken = self
            .connection
            .prepare_cached("select 1 from policy where name = ?1 and id <> ?2")?
            .exists((&policy.name, policy.id.0.as_bytes()))?;
        match taken {
            true => Err(refusals::policy_name_taken(&policy.name).at("/name").into()),
            false => Ok(()),
        }
    }

    pub(crate) fn forget_policy(&self, id: PolicyId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from policy where id = ?1")?
            .execute([id.0.as_bytes()])?;
        Ok(())
    }

    /// Attaches a policy in the place of what the subject had.
    pub(crate) fn put_policy_use(
        &self,
        level: PolicyLevel,
        subject: Option<Uuid>,
        policy: PolicyId,
    ) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into policy_use (subject_kind, subject, policy)
                 values (?1, ?2, ?3)
                 on conflict (subject_kind, subject) do update set policy = excluded.policy",
            )?
            .execute((level.word(), kept(subject), policy.0.as_bytes()))?;
        Ok(())
    }

    /// False where no policy was attached.
    pub(crate) fn forget_policy_use(
        &self,
        level: PolicyLevel,
        subject: Option<Uuid>,
    ) -> Result<bool, Failure> {
        let gone = self
            .connection
            .prepare_cached("delete from policy_use where subject_kind = ?1 and subject = ?2")?
            .execute((level.word(), kept(subject)))?;
        Ok(gone == 1)
    }
}

#[cfg(test)]
impl Rows<'_> {
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
