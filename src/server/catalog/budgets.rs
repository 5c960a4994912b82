//! Rows of budgets, and what the ledger has of their use. Decides nothing; `rules::budget` does.

use std::collections::BTreeMap;

use rules::budget::{self, Budget, BudgetState, BudgetSubject, GpuHours};
use rules::metering::{self, Allocated};
use rules::names::{BudgetId, SessionId, UserId};
use rules::permissions::Reach;
use rules::placement;
use rules::session::{Session, SessionSpec};
use rules::tenancy::{DomainId, ProjectId};
use rules::units::Timestamp;
use rules::world::ClusterSnapshot;
use rusqlite::{Params, Row};

use super::events::NewEvent;
use super::reach::{ReachedTable, condition};
use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// One budget, and the names of its subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BudgetRecord {
    pub(crate) budget: Budget,
    pub(crate) domain_name: String,
    /// None for one of a user.
    pub(crate) project_name: Option<String>,
    /// None for one of a project.
    pub(crate) user_name: Option<String>,
}

impl BudgetRecord {
    /// `DOMAIN/PROJECT`, or the name of the user.
    pub(crate) fn whose(&self) -> String {
        match (&self.project_name, &self.user_name) {
            (Some(project), _) => format!("{}/{project}", self.domain_name),
            (None, user) => user.clone().unwrap_or_default(),
        }
    }
}

const BUDGET: ReachedTable = ReachedTable {
    owner: "account",
    has_domain: true,
    project: Some("project"),
};

fn budget_row(row: &Row<'_>) -> rusqlite::Result<BudgetRecord> {
    let domain = DomainId(value::id(row, "domain")?);
    let subject = match value::id_or_none(row, "project")? {
        Some(project) => BudgetSubject::Project {
            domain,
            project: ProjectId(project),
        },
        None => BudgetSubject::User {
            domain,
            user: UserId(value::id(row, "account")?),
        },
    };
    Ok(BudgetRecord {
        budget: Budget {
            id: BudgetId(value::id(row, "id")?),
            subject,
            amount: GpuHours(value::unsigned(row, "amount")?),
            from: value::time(row, "began")?,
            until: value::time(row, "ends")?,
            is_hard: row.get("is_hard")?,
            warned: value::unsigned(row, "warned")?,
            generation: value::unsigned(row, "generation")?,
        },
        domain_name: row.get("domain_name")?,
        project_name: row.get("project_name")?,
        user_name: row.get("user_name")?,
    })
}

impl ReadTransaction<'_> {
    fn budgets_where(
        &self,
        condition: &str,
        values: impl Params,
    ) -> Result<Vec<BudgetRecord>, Failure> {
        let mut statement = self.connection.prepare_cached(&format!(
            "select budget.*, domain.name as domain_name, project.name as project_name,
                    \"user\".name as user_name
             from (select * from budget where {condition}) as budget
             join domain on domain.id = budget.domain
             left join project on project.id = budget.project
             left join \"user\" on \"user\".id = budget.account
             order by budget.ends desc, domain.name, project.name, \"user\".name, budget.id"
        ))?;
        let rows = statement.query_map(values, budget_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The budgets that the reach allows, those that end last first. O(budgets).
    pub(crate) fn budgets(&self, reach: &Reach) -> Result<Vec<BudgetRecord>, Failure> {
        let (reached, value) = condition(reach, BUDGET, "?1");
        self.budgets_where(&reached, [value])
    }

    /// The budgets that a session of that project and owner is counted in, but for those that were over by then.
    pub(crate) fn budgets_of(
        &self,
        project: ProjectId,
        owner: UserId,
        now: Timestamp,
    ) -> Result<Vec<BudgetRecord>, Failure> {
        self.budgets_where(
            "(project = ?1 or account = ?2) and ends > ?3",
            (project.0.as_bytes(), owner.0.as_bytes(), now.as_millis()),
        )
    }

    /// All budgets that are not over.
    pub(crate) fn current_budgets(&self, now: Timestamp) -> Result<Vec<BudgetRecord>, Failure> {
        self.budgets_where("ends > ?1", [now.as_millis()])
    }

    pub(crate) fn budget(&self, id: BudgetId) -> Result<Option<BudgetRecord>, Failure> {
        let found = self.budgets_where("id = ?1", [id.0.as_bytes()])?;
        Ok(found.into_iter().next())
    }

    /// How many budgets the subject has, those that are over included.
    pub(crate) fn count_budgets(&self, subject: BudgetSubject) -> Result<u64, Failure> {
        let (column, id) = match subject {
            BudgetSubject::Project { project, .. } => ("project", project.0),
            BudgetSubject::User { user, .. } => ("account", user.0),
        };
        Ok(self
            .connection
            .prepare_cached(&format!("select count(*) from budget where {column} = ?1"))?
            .query_row([id.as_bytes()], |row| value::unsigned(row, 0))?)
    }

    /// What the subject used between two times, as the ledger counts: hours that begin before the end.
    pub(crate) fn gpu_used(
        &self,
        subject: BudgetSubject,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<u64, Failure> {
        let (column, id) = match subject {
            BudgetSubject::Project { project, .. } => ("project", project.0),
            BudgetSubject::User { user, .. } => ("owner", user.0),
        };
        let first = metering::hour_of(from);
        let end = metering::hour_of(Timestamp::from_millis(until.as_millis() - 1)) + 1;
        Ok(self
            .connection
            .prepare_cached(&format!(
                "select coalesce(sum(gpu), 0)
                 from usage
                 where hour >= ?1 and hour < ?2 and {column} = ?3"
            ))?
            .query_row((first, end, id.as_bytes()), |row| value::unsigned(row, 0))?)
    }

    /// What of a budget is used and reserved, as of the last look at the ledger's clock: what a session with a maximum
    /// runtime used since then is reserved instead, so that their sum is exact. `except`: a session that is left out of
    /// what is reserved. Costs a visit of the subject's hours in the ledger, and of each live session.
    pub(crate) fn budget_state(
        &self,
        of: &Budget,
        now: Timestamp,
        except: Option<SessionId>,
    ) -> Result<BudgetState, Failure> {
        let mut state = BudgetState {
            used: self.gpu_used(of.subject, of.from, of.until)?,
            ..BudgetState::default()
        };
        if now >= of.until {
            return Ok(state);
        }
        let held = self.held_now()?;
        let live = self.live_sessions()?;
        let mut machines = None;
        for session in &live {
            if !of.subject.counts(session.project, session.owner) {
                continue;
            }
            let (uncounted, since) = held.get(&session.id).copied().unwrap_or_default();
            if now >= of.from {
                state.used = state.used.saturating_add(uncounted);
            }
            if except == Some(session.id) {
                continue;
            }
            let asked = match session.spec.demand.mig {
                None => u64::from(session.spec.demand.gpu.0),
                Some(_) => self.asked_gpu(&session.spec, &mut machines)?,
            };
            let gpu = asked.max(Allocated::of(session).map_or(0, |holds| holds.gpu));
            match (gpu, limit_of(session)) {
                (0, _) => {}
                (_, None) => state.is_unlimited = true,
                (gpu, Some(seconds)) => {
                    let rest = budget::reserved(gpu, seconds).saturating_sub(since);
                    state.reserved = state.reserved.saturating_add(rest);
                }
            }
        }
        Ok(state)
    }

    /// Hundredths of GPUs that one session of the specification asks for. `machines`: the nodes, where they were read.
    pub(crate) fn asked_gpu(
        &self,
        spec: &SessionSpec,
        machines: &mut Option<ClusterSnapshot>,
    ) -> Result<u64, Failure> {
        if spec.demand.mig.is_none() {
            return Ok(u64::from(spec.demand.gpu.0));
        }
        let machines = match machines {
            Some(machines) => machines,
            None => machines.insert(ClusterSnapshot {
                nodes: self.nodes()?,
                ..ClusterSnapshot::default()
            }),
        };
        Ok(u64::from(placement::asked(machines, &spec.demand).0))
    }

    /// Of each session with a place: what it used that is no part of the sums yet, and what it used since its amounts last
    /// changed; both up to the last look at the ledger's clock.
    fn held_now(&self) -> Result<BTreeMap<SessionId, (u64, u64)>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select session, gpu * (ledger - counted) as uncounted, gpu * (ledger - began) as since
             from allocation, ledger_clock
             where is_open",
        )?;
        let rows = statement.query_map([], |row| {
            let uncounted = value::unsigned(row, "uncounted")?;
            let since = value::unsigned(row, "since")?;
            Ok((SessionId(value::id(row, "session")?), (uncounted, since)))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

/// The limit that the session is held to.
fn limit_of(session: &Session) -> Option<u64> {
    session.spec.limit().map(|(seconds, _)| seconds)
}

impl Rows<'_> {
    pub(crate) fn insert_budget(&self, budget: &Budget) -> Result<(), Failure> {
        let (domain, project, account) = match budget.subject {
            BudgetSubject::Project { domain, project } => (domain, Some(project), None),
            BudgetSubject::User { domain, user } => (domain, None, Some(user)),
        };
        self.connection
            .prepare_cached(
                "insert into budget
                     (id, domain, project, account, amount, began, ends, is_hard, warned, generation)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            )?
            .execute((
                budget.id.0.as_bytes(),
                domain.0.as_bytes(),
                project.map(|id| *id.0.as_bytes()),
                account.map(|id| *id.0.as_bytes()),
                value::signed(budget.amount.0),
                budget.from.as_millis(),
                budget.until.as_millis(),
                budget.is_hard,
                value::signed(budget.warned),
                value::signed(budget.generation),
            ))?;
        Ok(())
    }

    /// Writes the amount, the kind and the last warning; raises the generation.
    pub(crate) fn put_budget(&self, budget: &Budget) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "update budget
                 set amount = ?2, is_hard = ?3, warned = ?4, generation = generation + 1
                 where id = ?1",
            )?
            .execute((
                budget.id.0.as_bytes(),
                value::signed(budget.amount.0),
                budget.is_hard,
                value::signed(budget.warned),
            ))?;
        Ok(())
    }

    /// Warns of the budgets whose use reached 80 or 95 %, once each: an event that their readers see. Costs one look-up
    /// where there is no budget.
    pub(super) fn warn_of_budgets(&self) -> Result<(), Failure> {
        for row in self.current_budgets(self.now)? {
            let mut budget = row.budget;
            let state = self.budget_state(&budget, self.now, None)?;
            let reached = budget.warning(state.used);
            if reached <= budget.warned {
                continue;
            }
            budget.warned = reached;
            self.put_budget(&budget)?;
            let used = GpuHours::used(state.used);
            self.note(NewEvent {
                actor: "system",
                topic: "system",
                object: &budget.id.to_string(),
                scope: budget.subject.scope(),
                code: "budget.warned",
                before: "",
                after: &format!("{reached} %: {used} of {} GPU-hours", budget.amount),
            })?;
        }
        Ok(())
    }

    pub(crate) fn forget_budget(&self, id: BudgetId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from budget where id = ?1")?
            .execute([id.0.as_bytes()])?;
        Ok(())
    }
}
