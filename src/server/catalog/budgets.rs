//! Rows of budgets, and what the ledger has of their use. Decides nothing; `rules::budget` does.

use std::collections::BTreeMap;

use rules::budget::{self, Budget, BudgetState, BudgetSubject, GpuHours};
use rules::metering::{self, Allocated};
use rules::names::{BudgetId, SessionId, UserId};
use rules::permissions::Reach;
use rules::placement;
use rules::session::SessionSpec;
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

/// What the live sessions use and may still use, read once for several budgets.
#[derive(Debug, Default)]
pub(crate) struct LiveUse {
    sessions: Vec<LiveSession>,
}

#[derive(Debug)]
struct LiveSession {
    id: SessionId,
    project: ProjectId,
    owner: UserId,
    /// What it used that is no part of the ledger's sums yet.
    uncounted: u64,
    /// None: it has no maximum runtime.
    reserved: Option<u64>,
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
            is_of_site: row.get("is_of_site")?,
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
    /// Costs one look-up where there is none at all.
    pub(crate) fn budgets_of(
        &self,
        project: ProjectId,
        owner: UserId,
        now: Timestamp,
    ) -> Result<Vec<BudgetRecord>, Failure> {
        let any: bool = self
            .connection
            .prepare_cached("select exists (select 1 from budget)")?
            .query_row([], |row| row.get(0))?;
        if !any {
            return Ok(Vec::new());
        }
        self.budgets_where(
            "(project = ?1 or account = ?2) and ends > ?3",
            (project.0.as_bytes(), owner.0.as_bytes(), now.as_millis()),
        )
    }

    /// The budgets of the reach that hold now and of which was warned. Costs one look-up where there is none.
    pub(crate) fn warned_budgets(
        &self,
        reach: &Reach,
        now: Timestamp,
    ) -> Result<Vec<BudgetRecord>, Failure> {
        let (reached, value) = condition(reach, BUDGET, "?1");
        let wanted = format!("{reached} and warned > 0 and began <= ?2 and ends > ?2");
        self.budgets_where(&wanted, (value, now.as_millis()))
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

    /// What live sessions use and may still use, for `budget_state`. Costs a visit of each live session.
    pub(crate) fn live_use(&self, now: Timestamp) -> Result<LiveUse, Failure> {
        let held = self.held_now()?;
        let mut machines = None;
        let mut sessions = Vec::new();
        for session in &self.live_sessions()? {
            let (uncounted, since) = held.get(&session.id).copied().unwrap_or_default();
            let asked = self.asked_gpu(&session.spec, &mut machines)?;
            let gpu = asked.max(Allocated::of(session).map_or(0, |holds| holds.gpu));
            sessions.push(LiveSession {
                id: session.id,
                project: session.project,
                owner: session.owner,
                uncounted,
                reserved: budget::still_reserved(session, gpu, since, now),
            });
        }
        Ok(LiveUse { sessions })
    }

    /// What of a budget is used and reserved, as of the last look at the ledger's clock: what a session with a maximum
    /// runtime used since then is reserved instead, so that their sum is exact. `except`: a session that is left out of
    /// what is reserved. Costs a visit of the subject's hours in the ledger.
    pub(crate) fn budget_state(
        &self,
        of: &Budget,
        live: &LiveUse,
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
        let counted = live.sessions.iter();
        for session in counted.filter(|one| of.subject.counts(one.project, one.owner)) {
            if now >= of.from {
                state.used = state.used.saturating_add(session.uncounted);
            }
            match session.reserved {
                _ if except == Some(session.id) => {}
                Some(reserved) => state.reserved = state.reserved.saturating_add(reserved),
                None => state.is_unlimited = true,
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

impl Rows<'_> {
    pub(crate) fn insert_budget(&self, budget: &Budget) -> Result<(), Failure> {
        let (domain, project, account) = match budget.subject {
            BudgetSubject::Project { domain, project } => (domain, Some(project), None),
            BudgetSubject::User { domain, user } => (domain, None, Some(user)),
        };
        self.connection
            .prepare_cached(
                "insert into budget
                     (id, domain, project, account, amount, began, ends, is_hard, is_of_site, warned,
                      generation)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
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
                budget.is_of_site,
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
    /// where there is no budget; else a visit of each live session, and of the hours of each subject in the ledger.
    pub(super) fn warn_of_budgets(&self) -> Result<(), Failure> {
        let current = self.current_budgets(self.now)?;
        if current.is_empty() {
            return Ok(());
        }
        let live = self.live_use(self.now)?;
        for row in current {
            let budget = row.budget;
            let state = self.budget_state(&budget, &live, self.now, None)?;
            let reached = budget.warning(state.used);
            if reached <= budget.warned {
                continue;
            }
            self.put_warning(budget.id, reached)?;
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

    /// Notes a warning. The generation stays: nothing changed that a user wrote.
    fn put_warning(&self, id: BudgetId, percent: u64) -> Result<(), Failure> {
        self.connection
            .prepare_cached("update budget set warned = ?2 where id = ?1")?
            .execute((id.0.as_bytes(), value::signed(percent)))?;
        Ok(())
    }

    pub(crate) fn forget_budget(&self, id: BudgetId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from budget where id = ?1")?
            .execute([id.0.as_bytes()])?;
        Ok(())
    }
}
