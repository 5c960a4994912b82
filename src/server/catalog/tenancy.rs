//! Rows of domains, projects, members and grants. Decides nothing; `rules::permissions` does.

use rules::grants::{Grant, GrantRole, GrantScope, HeldGrant};
use rules::names::{TenantName, UserId, UserName};
use rules::permissions::Reach;
use rules::refusals;
use rules::tenancy::{Domain, DomainId, Project, ProjectId, TenantState};
use rules::units::Timestamp;
use rusqlite::{OptionalExtension as _, Row};

use super::reach::{PROJECT, condition};
use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// One member of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberRow {
    pub(crate) user: UserId,
    pub(crate) name: UserName,
    pub(crate) role: GrantRole,
    pub(crate) expires_at: Option<Timestamp>,
}

/// A project with what lists show of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProjectRow {
    pub(crate) project: Project,
    pub(crate) domain_name: TenantName,
    pub(crate) members: u64,
    /// Sessions that are not over.
    pub(crate) live_sessions: u64,
}

const DOMAIN: &str = "domain.id, domain.name, domain.title, domain.generation";
const PROJECT_COLUMNS: &str = "project.id, project.domain, project.name, project.title, project.state, \
     project.generation";

fn tenant_name(row: &Row<'_>, column: &str) -> rusqlite::Result<TenantName> {
    value::word(row, column, |text| TenantName::parse(text).ok())
}

fn domain_row(row: &Row<'_>) -> rusqlite::Result<Domain> {
    Ok(Domain {
        id: DomainId(value::id(row, "id")?),
        name: tenant_name(row, "name")?,
        title: row.get("title")?,
        generation: value::unsigned(row, "generation")?,
    })
}

fn project_row(row: &Row<'_>) -> rusqlite::Result<Project> {
    Ok(Project {
        id: ProjectId(value::id(row, "id")?),
        domain: DomainId(value::id(row, "domain")?),
        name: tenant_name(row, "name")?,
        title: row.get("title")?,
        state: value::word(row, "state", TenantState::parse)?,
        generation: value::unsigned(row, "generation")?,
    })
}

fn held_row(row: &Row<'_>) -> rusqlite::Result<HeldGrant> {
    let role = value::word(row, "role", GrantRole::parse)?;
    let scope = match row.get_ref("scope")?.as_blob()?.is_empty() {
        true => GrantScope::Site,
        false if role.is_of_project() => GrantScope::Project(ProjectId(value::id(row, "scope")?)),
        false => GrantScope::Domain(DomainId(value::id(row, "scope")?)),
    };
    Ok(HeldGrant {
        grant: Grant { role, scope },
        expires_at: value::time_or_none(row, "expires_at")?,
    })
}

impl ReadTransaction<'_> {
    /// All grants of a user, also those that ended, the widest first. Costs two steps of an index and one for each.
    pub(crate) fn grants_of(&self, user: UserId) -> Result<Vec<HeldGrant>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select role, domain as scope, expires_at
             from role_grant
             where user = ?1
             union all
             select role, project as scope, expires_at
             from membership
             where user = ?1",
        )?;
        let rows = statement.query_map([user.0.as_bytes()], held_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Whether a role ended that is not dropped yet. Two index look-ups.
    pub(crate) fn has_ended_grant(&self, now: Timestamp) -> Result<bool, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select exists (select 1 from membership where expires_at <= ?1)
                     or exists (select 1 from role_grant where expires_at <= ?1) as is_there",
            )?
            .query_row([now.as_millis()], |row| row.get("is_there"))?)
    }

    pub(crate) fn domain(&self, id: DomainId) -> Result<Option<Domain>, Failure> {
        Ok(self
            .connection
            .prepare_cached(&format!("select {DOMAIN} from domain where id = ?1"))?
            .query_row([id.0.as_bytes()], domain_row)
            .optional()?)
    }

    pub(crate) fn domain_named(&self, name: &str) -> Result<Option<Domain>, Failure> {
        Ok(self
            .connection
            .prepare_cached(&format!("select {DOMAIN} from domain where name = ?1"))?
            .query_row([name], domain_row)
            .optional()?)
    }

    /// All domains, by name. A site has few; who may see which is the caller's question.
    pub(crate) fn domains(&self) -> Result<Vec<Domain>, Failure> {
        let mut statement = self
            .connection
            .prepare_cached(&format!("select {DOMAIN} from domain order by name"))?;
        let rows = statement.query_map([], domain_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// How many users are at home in a domain. Root on the machine does not count.
    pub(crate) fn users_of_domain(&self, domain: DomainId) -> Result<u64, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select count(*) as n
                 from user
                 where domain = ?1 and removed_at is null and id <> ?2",
            )?
            .query_row(
                (domain.0.as_bytes(), super::users::ROOT.0.as_bytes()),
                |row| value::unsigned(row, "n"),
            )?)
    }

    pub(crate) fn project(&self, id: ProjectId) -> Result<Option<Project>, Failure> {
        Ok(self
            .connection
            .prepare_cached(&format!(
                "select {PROJECT_COLUMNS} from project where id = ?1"
            ))?
            .query_row([id.0.as_bytes()], project_row)
            .optional()?)
    }

    /// The project of a domain with this name.
    pub(crate) fn project_called(
        &self,
        domain: DomainId,
        name: &str,
    ) -> Result<Option<ProjectId>, Failure> {
        Ok(self
            .connection
            .prepare_cached("select id from project where domain = ?1 and name = ?2")?
            .query_row((domain.0.as_bytes(), name), |row| {
                Ok(ProjectId(value::id(row, "id")?))
            })
            .optional()?)
    }

    /// Projects in reach with this name, of any domain or of `domain`; at most two.
    pub(crate) fn projects_named(
        &self,
        reach: &Reach,
        name: &str,
        domain: Option<DomainId>,
    ) -> Result<Vec<Project>, Failure> {
        let (reached, value) = condition(reach, PROJECT, "?3");
        let mut statement = self.connection.prepare_cached(&format!(
            "select {PROJECT_COLUMNS}
             from project
             where name = ?1 and (?2 is null or domain = ?2) and {reached}
             order by domain
             limit 2"
        ))?;
        let domain = domain.map(|id| *id.0.as_bytes());
        let rows = statement.query_map((name, domain, value), project_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// All projects in reach with their domain, by domain and name. O(projects + members + live sessions).
    pub(crate) fn projects(&self, reach: &Reach) -> Result<Vec<ProjectRow>, Failure> {
        let (reached, value) = condition(reach, PROJECT, "?1");
        let mut statement = self.connection.prepare_cached(&format!(
            "select {PROJECT_COLUMNS}, domain.name as domain_name,
                    (select count(*) from membership where project = project.id
                     and user <> x'00000000000070008000000000000000') as members,
                    coalesce(live.n, 0) as live
             from (select * from project where {reached}) as project
             join domain on domain.id = project.domain
             left join (
                 select project as of, count(*) as n
                 from session
                 where state <> 'ended'
                 group by project
             ) as live on live.of = project.id
             order by domain.name, project.name"
        ))?;
        let rows = statement.query_map([value], |row| {
            Ok(ProjectRow {
                project: project_row(row)?,
                domain_name: tenant_name(row, "domain_name")?,
                members: value::unsigned(row, "members")?,
                live_sessions: value::unsigned(row, "live")?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Members of a project who have an account, by name. O(members).
    pub(crate) fn members(&self, project: ProjectId) -> Result<Vec<MemberRow>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select user.id, user.name, membership.role, membership.expires_at
             from membership
             join user on user.id = membership.user
             where membership.project = ?1 and user.removed_at is null and user.id <> ?2
             order by user.name",
        )?;
        let rows = statement.query_map(
            [project.0.as_bytes(), super::users::ROOT.0.as_bytes()],
            |row| {
                Ok(MemberRow {
                    user: UserId(value::id(row, "id")?),
                    name: value::word(row, "name", |text| UserName::parse(text).ok())?,
                    role: value::word(row, "role", GrantRole::parse)?,
                    expires_at: value::time_or_none(row, "expires_at")?,
                })
            },
        )?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Sessions of a project that are not over: all, and those that wait for a place. Of one owner, or of everyone.
    pub(crate) fn live_in_project(
        &self,
        project: ProjectId,
        owner: Option<UserId>,
    ) -> Result<(u64, u64), Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select count(*) as n, coalesce(sum(state = 'pending'), 0) as waiting
                 from session
                 where project = ?1 and (?2 is null or owner = ?2) and state <> 'ended'",
            )?
            .query_row(
                (project.0.as_bytes(), owner.map(|id| *id.0.as_bytes())),
                |row| Ok((value::unsigned(row, "n")?, value::unsigned(row, "waiting")?)),
            )?)
    }
}

impl Rows<'_> {
    /// Writes a new domain. Errors: `domain.name-taken`.
    pub(crate) fn insert_domain(&self, domain: &Domain) -> Result<(), Failure> {
        if self.domain_named(domain.name.as_str())?.is_some() {
            return Err(refusals::domain_name_taken(&domain.name).at("/name").into());
        }
        self.connection
            .prepare_cached(
                "insert into domain (id, name, title, state, generation)
                 values (?1, ?2, ?3, 'active', ?4)",
            )?
            .execute((
                domain.id.0.as_bytes(),
                domain.name.as_str(),
                &domain.title,
                value::signed(domain.generation),
            ))?;
        Ok(())
    }

    /// Writes a domain's title; raises its generation.
    pub(crate) fn put_domain(&self, domain: &Domain) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "update domain
                 set title = ?2, generation = generation + 1
                 where id = ?1",
            )?
            .execute((domain.id.0.as_bytes(), &domain.title))?;
        Ok(())
    }

    /// Writes a new project. Errors: `project.name-taken`.
    pub(crate) fn insert_project(&self, project: &Project) -> Result<(), Failure> {
        let taken = self
            .connection
            .prepare_cached("select 1 from project where domain = ?1 and name = ?2")?
            .exists((project.domain.0.as_bytes(), project.name.as_str()))?;
        if taken {
            return Err(refusals::project_name_taken(&project.name)
                .at("/name")
                .into());
        }
        self.connection
            .prepare_cached(
                "insert into project (id, domain, name, title, state, generation)
                 values (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute((
                project.id.0.as_bytes(),
                project.domain.0.as_bytes(),
                project.name.as_str(),
                &project.title,
                project.state.word(),
                value::signed(project.generation),
            ))?;
        Ok(())
    }

    /// Writes a project's title and state; raises its generation.
    pub(crate) fn put_project(&self, project: &Project) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "update project
                 set title = ?2, state = ?3, generation = generation + 1
                 where id = ?1",
            )?
            .execute((
                project.id.0.as_bytes(),
                &project.title,
                project.state.word(),
            ))?;
        Ok(())
    }

    /// Gives a user a grant in the place of the one they had on the same project, or of the same role on the same
    /// domain or the site. A role of a domain or the site ends the sign-in link of its user: who made it may have been
    /// allowed to open only the lesser account of before.
    pub(crate) fn put_grant(&self, user: UserId, held: &HeldGrant) -> Result<(), Failure> {
        if !held.grant.role.is_of_project() {
            self.forget_sign_in_link(user)?;
        }
        let (_, _, scope) = place(&held.grant);
        let query = match held.grant.scope {
            GrantScope::Project(_) => {
                "insert into membership (user, project, role, expires_at)
                 values (?1, ?2, ?3, ?4)
                 on conflict (user, project)
                 do update set role = excluded.role, expires_at = excluded.expires_at"
            }
            GrantScope::Site | GrantScope::Domain(_) => {
                "insert into role_grant (user, domain, role, expires_at)
                 values (?1, ?2, ?3, ?4)
                 on conflict (user, domain, role)
                 do update set expires_at = excluded.expires_at"
            }
        };
        self.connection.prepare_cached(query)?.execute((
            user.0.as_bytes(),
            scope,
            held.grant.role.word(),
            held.expires_at.map(Timestamp::as_millis),
        ))?;
        Ok(())
    }

    /// Takes a grant away; false where the user did not have it.
    pub(crate) fn forget_grant(&self, user: UserId, grant: &Grant) -> Result<bool, Failure> {
        let (table, column, scope) = place(grant);
        let gone = self
            .connection
            .prepare_cached(&format!(
                "delete from {table} where user = ?1 and {column} = ?2 and role = ?3"
            ))?
            .execute((user.0.as_bytes(), scope, grant.role.word()))?;
        Ok(gone == 1)
    }

    /// Takes all grants of a user away.
    pub(super) fn forget_grants(&self, user: UserId) -> Result<(), Failure> {
        for table in ["membership", "role_grant"] {
            self.connection
                .prepare_cached(&format!("delete from {table} where user = ?1"))?
                .execute([user.0.as_bytes()])?;
        }
        Ok(())
    }

    /// Drops grants that ended: a clock set back later revives none. Gives how many rows went.
    pub(super) fn forget_ended_grants(&self) -> Result<usize, Failure> {
        let mut gone = 0;
        for table in ["membership", "role_grant"] {
            gone += self
                .connection
                .prepare_cached(&format!("delete from {table} where expires_at <= ?1"))?
                .execute([self.now.as_millis()])?;
        }
        Ok(gone)
    }
}

/// Table, column of the scope and its value; the site is the empty domain.
fn place(grant: &Grant) -> (&'static str, &'static str, Vec<u8>) {
    match grant.scope {
        GrantScope::Site => ("role_grant", "domain", Vec::new()),
        GrantScope::Domain(domain) => ("role_grant", "domain", domain.0.as_bytes().to_vec()),
        GrantScope::Project(project) => ("membership", "project", project.0.as_bytes().to_vec()),
    }
}
