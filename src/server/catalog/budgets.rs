//! Rows of budgets, and what the ledger has of their use. Decides nothing; `rules::budget` does.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use base::observe::Uptime;
use rules::budget::{self, BUDGET_WARNINGS, Budget, BudgetState, BudgetSubject, GpuHours};
use rules::metering::{self, Allocated};
use rules::names::{BudgetId, SessionId, UserId};
use rules::permissions::Reach;
use rules::placement;
use rules::policy::PreemptionMode;
use rules::refusals;
use rules::session::{Session, SessionSpec, SessionState};
use rules::tenancy::{DomainId, ProjectId};
use rules::units::Timestamp;
use rules::world::ClusterSnapshot;
use rusqlite::{Params, Row};

use super::events::NewEvent;
use super::reach::{ReachedTable, condition};
use super::reader::ReadTransaction;
use super::sessions::{columns_read, from_row};
use super::value;
use super::writer::Rows;
use crate::Failure;

/// Code of the event that tells of a budget that is nearly used.
pub(crate) const WARNED: &str = "budget.warned";

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

/// What is asked of hard budgets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BudgetAsk<'a> {
    pub(crate) project: ProjectId,
    pub(crate) owner: UserId,
    pub(crate) spec: &'a SessionSpec,
    pub(crate) replicas: u32,
    /// The session as it is to be; None for a launch.
    pub(crate) session: Option<&'a Session>,
    /// Of which budgets a refusal may tell; None: of all.
    pub(crate) seen: Option<&'a Reach>,
}

impl<'a> BudgetAsk<'a> {
    /// What a session asks for as it is to be.
    pub(crate) fn of(session: &'a Session, seen: Option<&'a Reach>) -> Self {
        Self {
            project: session.project,
            owner: session.owner,
            spec: &session.spec,
            replicas: 1,
            session: Some(session),
            seen,
        }
    }
}

/// Sessions for which a hard budget has no room any more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BeyondBudgets {
    /// They wait.
    pub(crate) waiting: Vec<SessionId>,
    /// They have a place, and take longer to start than was set aside.
    pub(crate) starting: Vec<SessionId>,
    /// They run and yield, and could not be queued again: there is no room for their whole run once more.
    pub(crate) requeued: BTreeSet<SessionId>,
}

/// What the live sessions use and may still use, read once for several budgets.
#[derive(Debug, Default)]
pub(crate) struct LiveUse {
    sessions: Vec<LiveSession>,
}

#[derive(Debug)]
struct LiveSession {
    id: SessionId,
    domain: DomainId,
    project: ProjectId,
    owner: UserId,
    /// What it used that is no part of the ledger's sums yet.
    uncounted: u64,
    /// Milliseconds of its present start that the ledger knows.
    held: u64,
    /// Hundredths of GPUs; none while it is on hold.
    gpu: u64,
    /// Milliseconds for which it may still hold them; None: it has no time limit.
    left: Option<u64>,
    /// It begins no earlier.
    start_at: Timestamp,
}

impl LiveSession {
    /// What it may still use of a budget; None without a time limit.
    fn reserves(&self, of: &Budget, now: Timestamp) -> Option<u64> {
        match of.part(self.start_at.max(now), self.left.unwrap_or(0)) {
            Some(part) if self.gpu > 0 => self.left.map(|_| self.gpu.saturating_mul(part)),
            Some(_) | None => Some(0),
        }
    }
}

impl LiveUse {
    /// Milliseconds of a session's present start that the ledger knows; 0 without a place.
    pub(crate) fn held(&self, id: SessionId) -> u64 {
        let mut all = self.sessions.iter();
        all.find(|one| one.id == id).map_or(0, |one| one.held)
    }
}

const BUDGET: ReachedTable = ReachedTable {
    owner: "account",
    has_domain: true,
    project: Some("project"),
};

/// Sums what a project or an owner, by the name of its column, used from one hour to another, in one domain or in all.
pub(super) fn gpu_sum(column: &str) -> String {
    format!(
        "select coalesce(sum(gpu), 0)
         from usage
         where hour >= ?1 and hour < ?2 and {column} = ?3 and (?4 is null or domain = ?4)"
    )
}

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
            "(project = ?1
              or account = ?2 and (is_of_site or domain = (select domain from project where id = ?1)))
             and ends > ?3",
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

    /// The budgets that hold now and of which not all was warned of.
    fn budgets_to_warn_of(&self, now: Timestamp) -> Result<Vec<BudgetRecord>, Failure> {
        let last = BUDGET_WARNINGS.iter().max().copied().unwrap_or(0);
        self.budgets_where(
            "began <= ?1 and ends > ?1 and warned < ?2",
            (now.as_millis(), value::signed(last)),
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

    /// What the subject of a budget used between two times, as the ledger counts: hours that begin before the end. Without an
    /// end, what is booked into hours to come counts, too: the clock was ahead when it was used.
    pub(crate) fn gpu_used(
        &self,
        of: &Budget,
        from: Timestamp,
        until: Option<Timestamp>,
    ) -> Result<u64, Failure> {
        let (column, id) = match of.subject {
            BudgetSubject::Project { project, .. } => ("project", project.0),
            BudgetSubject::User { user, .. } => ("owner", user.0),
        };
        let only_in = of.only_in().map(|domain| *domain.0.as_bytes());
        let first = metering::hour_of(from);
        let end = until.map_or(i64::MAX, |until| {
            metering::hour_of(Timestamp::from_millis(until.as_millis() - 1)) + 1
        });
        Ok(self
            .connection
            .prepare_cached(&gpu_sum(column))?
            .query_row((first, end, id.as_bytes(), only_in), |row| {
                value::unsigned(row, 0)
            })?)
    }

    /// What live sessions use and may still use, for `budget_state`. Costs a visit of each live session.
    pub(crate) fn live_use(&self) -> Result<LiveUse, Failure> {
        self.use_of(&self.live_sessions()?, 0)
    }

    /// The same of the sessions of one project or owner alone, for their budgets. Reads the rows of those that have GPUs.
    fn live_use_of(&self, project: ProjectId, owner: UserId) -> Result<LiveUse, Failure> {
        let mut statement = self.connection.prepare_cached(&format!(
            "select {}
             from session
             where state <> 'ended'
                 and (gpu > 0 or mig is not null)
                 and (project = ?1 or owner = ?2)",
            columns_read()
        ))?;
        let of = (project.0.as_bytes(), owner.0.as_bytes());
        let rows = statement.query_map(of, |row| from_row(row, self.seal))?;
        let sessions: Vec<Session> = rows.collect::<Result<_, _>>()?;
        self.use_of(&sessions, 0)
    }

    /// What these sessions use and may still use, so many milliseconds after the last look at the ledger's clock.
    fn use_of(&self, live: &[Session], passed: u64) -> Result<LiveUse, Failure> {
        let held = self.held_now(passed)?;
        let mut machines = None;
        let mut sessions = Vec::new();
        for session in live {
            let (uncounted, held) = held.get(&session.id).copied().unwrap_or_default();
            let asked = self.asked_gpu(&session.spec, &mut machines)?;
            let gpu = match session.held_by {
                Some(_) => 0,
                None => asked.max(Allocated::of(session).map_or(0, |holds| holds.gpu)),
            };
            let start_at = session.spec.start_at.filter(|_| session.is_pending());
            sessions.push(LiveSession {
                id: session.id,
                domain: session.domain,
                project: session.project,
                owner: session.owner,
                uncounted,
                held,
                gpu,
                left: budget::still_holds(session, held),
                start_at: start_at.unwrap_or_default(),
            });
        }
        Ok(LiveUse { sessions })
    }

    /// What of a budget is used and reserved, both as of the last look at the ledger's clock: what a session with a maximum
    /// runtime used since then is reserved still, so that their sum is exact. Of a budget that begins later, what sessions
    /// hold before it is left out, and so is what is on hold. `except`: a session that is left out of
    /// what is reserved. Costs a visit of the subject's hours in the ledger: index entries, no rows.
    pub(crate) fn budget_state(
        &self,
        of: &Budget,
        live: &LiveUse,
        now: Timestamp,
        except: Option<SessionId>,
    ) -> Result<BudgetState, Failure> {
        let mut state = BudgetState {
            used: self.gpu_used(of, of.from, Some(of.until).filter(|until| now >= *until))?,
            ..BudgetState::default()
        };
        if now >= of.until {
            return Ok(state);
        }
        let counted = live.sessions.iter();
        for session in counted.filter(|one| of.counts(one.domain, one.project, one.owner)) {
            if now >= of.from {
                // The ledger's last count may be of before the budget began.
                let since = session.gpu.saturating_mul(now.millis_since(of.from));
                let uncounted = session.uncounted.min(since);
                state.used = state.used.saturating_add(uncounted);
            }
            match session.reserves(of, now) {
                _ if except == Some(session.id) => {}
                Some(reserved) => state.reserved = state.reserved.saturating_add(reserved),
                None => state.is_unlimited = true,
            }
        }
        Ok(state)
    }

    /// Refuses what does not fit the rest of a hard budget of its project or owner. Costs one look-up where there is no
    /// budget; else a visit of each live session, of which those of the project and the owner are read.
    ///
    /// Errors: `budget.spent`, `budget.limit-needed`, `budget.too-long`; `budget.of-others`, without a name or a number.
    pub(crate) fn ask_budgets(&self, ask: &BudgetAsk<'_>, now: Timestamp) -> Result<(), Failure> {
        let budgets = self.budgets_of(ask.project, ask.owner, now)?;
        if !budgets.iter().any(|row| row.budget.is_hard) {
            return Ok(());
        }
        let gpu = self.asked_gpu(ask.spec, &mut None)? * u64::from(ask.replicas);
        if gpu == 0 {
            return Ok(());
        }
        let limit = ask.spec.limit().map(|(seconds, _)| seconds);
        let live = self.live_use_of(ask.project, ask.owner)?;
        let beyond = match ask.session {
            Some(session) => budget::beyond_limit(session, live.held(session.id)),
            None => budget::beyond_launch(),
        };
        let except = ask.session.map(|session| session.id);
        let placed = ask
            .session
            .is_some_and(|session| !session.is_pending() && session.is_live());
        let start_at = ask.spec.start_at.filter(|_| !placed).unwrap_or_default();
        let beyond = (beyond, start_at.max(now));
        for row in budgets.iter().filter(|row| row.budget.is_hard) {
            let state = self.budget_state(&row.budget, &live, now, except)?;
            let admitted = row.budget.admit(&row.whose(), state, gpu, limit, beyond);
            let scope = row.budget.subject.scope();
            let is_seen = ask.seen.is_none_or(|seen| seen.covers(&scope));
            admitted.map_err(|refusal| match is_seen {
                true => refusal,
                false => refusals::budget_of_others().at("/max_runtime_seconds"),
            })?;
        }
        Ok(())
    }

    /// Sessions for which a hard budget has no room: of those that wait since before it began the last ones, and of those
    /// that start slowly the last ones, until the others fit. Costs one look-up where there is no such session.
    pub(super) fn beyond_budgets(
        &self,
        world: &ClusterSnapshot,
        now: Timestamp,
        uptime: Uptime,
    ) -> Result<BeyondBudgets, Failure> {
        let sessions: &[Session] = &world.sessions;
        let mut rows =
            self.budgets_where("is_hard and began <= ?1 and ends > ?1", [now.as_millis()])?;
        let may_leave = |budget: &Budget, one: &Session| {
            let waits = one.is_pending() && one.held_by.is_none() && one.queued_at < budget.from;
            (waits || budget::starts_slowly(one, now))
                && one.spec.demand.wants_device()
                && budget.counts(one.domain, one.project, one.owner)
        };
        rows.retain(|row| sessions.iter().any(|one| may_leave(&row.budget, one)));
        let mut found = BeyondBudgets {
            requeued: self.beyond_requeue(world, now, uptime)?,
            ..BeyondBudgets::default()
        };
        if rows.is_empty() {
            return Ok(found);
        }
        let (last, _) = self.ledger_clock()?;
        let mut live = self.use_of(sessions, uptime.since(last))?;
        for row in rows {
            let budget = row.budget;
            let leave = sessions.iter().filter(|one| may_leave(&budget, one));
            // What waits leaves before what starts.
            let mut leave: Vec<(bool, Timestamp, SessionId)> = leave
                .map(|one| (one.is_pending(), one.queued_at, one.id))
                .collect();
            leave.sort_unstable();
            let mut state = self.budget_state(&budget, &live, now, None)?;
            while state.used.saturating_add(state.reserved) > budget.amount.in_ledger() {
                let Some((is_pending, _, id)) = leave.pop() else {
                    break;
                };
                let mut all = live.sessions.iter_mut();
                let Some(one) = all.find(|one| one.id == id && one.gpu > 0) else {
                    continue;
                };
                let reserves = one.reserves(&budget, now).unwrap_or(0);
                if is_pending && reserves == 0 {
                    continue;
                }
                state.reserved = state.reserved.saturating_sub(reserves);
                one.gpu = 0;
                match is_pending {
                    true => found.waiting.push(id),
                    false => found.starting.push(id),
                }
            }
        }
        Ok(found)
    }

    /// Of the sessions that may be preempted, those for which a hard budget has no room for their whole run once more. Those
    /// that would be preempted first are asked about first, and reserve it for those behind them: several may make way in
    /// one pass. Costs one visit a session where none yields; else what `live_use` costs, and a look at each hard budget.
    fn beyond_requeue(
        &self,
        world: &ClusterSnapshot,
        now: Timestamp,
        uptime: Uptime,
    ) -> Result<BTreeSet<SessionId>, Failure> {
        let may_yield = |one: &&Session| {
            one.precedence.yields
                && one.state() == SessionState::Running
                && one.spec.demand.wants_device()
                && world.groups.preemption(world.groups.of_session(one.id))
                    == PreemptionMode::Priority
        };
        let mut yielding: Vec<&Session> = world.sessions.iter().filter(may_yield).collect();
        let mut found = BTreeSet::new();
        if yielding.is_empty() {
            return Ok(found);
        }
        let rows = self.budgets_where("is_hard and ends > ?1", [now.as_millis()])?;
        if rows.is_empty() {
            return Ok(found);
        }
        yielding.sort_by_key(|one| (one.precedence.priority, Reverse(one.started_at()), one.id));
        let (last, _) = self.ledger_clock()?;
        let live = self.use_of(&world.sessions, uptime.since(last))?;
        let live_of: BTreeMap<SessionId, &LiveSession> =
            live.sessions.iter().map(|one| (one.id, one)).collect();
        let mut states = Vec::new();
        for row in rows {
            let state = self.budget_state(&row.budget, &live, now, None)?;
            states.push((row.budget, state));
        }
        let beyond = budget::beyond_preemption();
        let mut machines = None;
        for session in yielding {
            let gpu = self.asked_gpu(&session.spec, &mut machines)?;
            let limit = session.spec.limit().map(|(seconds, _)| seconds);
            let holds = limit.unwrap_or(0).saturating_mul(1_000);
            let holds = holds.saturating_add(beyond.unsigned_abs());
            let mut after = Vec::new();
            let mut fits = true;
            for (at, (budget, state)) in states.iter().enumerate() {
                if !budget.counts(session.domain, session.project, session.owner) {
                    continue;
                }
                let own = live_of.get(&session.id);
                let own = own.and_then(|one| one.reserves(budget, now));
                let without = BudgetState {
                    reserved: state.reserved.saturating_sub(own.unwrap_or(0)),
                    ..*state
                };
                let admitted = budget.admit("", without, gpu, limit, (beyond, now));
                fits = fits && admitted.is_ok();
                let again = gpu.saturating_mul(budget.part(now, holds).unwrap_or(0));
                after.push((at, without.reserved.saturating_add(again)));
            }
            if !fits {
                found.insert(session.id);
                continue;
            }
            for (at, reserved) in after {
                states[at].1.reserved = reserved;
            }
        }
        Ok(found)
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

    /// Of each session with a place: what it used that is no part of the sums yet, and the milliseconds for which it has had
    /// that place; both up to so many milliseconds after the last look at the ledger's clock.
    fn held_now(&self, passed: u64) -> Result<BTreeMap<SessionId, (u64, u64)>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select session, gpu * (ledger + ?1 - counted) as uncounted, ledger + ?1 - placed as held
             from allocation, ledger_clock
             where is_open",
        )?;
        let rows = statement.query_map([value::signed(passed)], |row| {
            let uncounted = value::unsigned(row, "uncounted")?;
            let held = value::unsigned(row, "held")?;
            Ok((SessionId(value::id(row, "session")?), (uncounted, held)))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

impl Rows<'_> {
    /// Whether hard budgets have room for the whole run of a session once more. Costs as `ask_budgets`, and
    /// a write of the ledger's clock.
    pub(crate) fn may_begin_again(&self, session: &Session) -> Result<bool, Failure> {
        // What it has held up to now is used; what it reserves is for another run.
        self.ledger_time()?;
        let again = Session {
            restart: true,
            ..session.clone()
        };
        match self.ask_budgets(&BudgetAsk::of(&again, None), self.now) {
            Ok(()) => Ok(true),
            Err(Failure::Refusal(_)) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

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
        let current = self.budgets_to_warn_of(self.now)?;
        if current.is_empty() {
            return Ok(());
        }
        let live = self.live_use()?;
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
                code: WARNED,
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

    /// Removes the budgets of a user who is taken out.
    pub(super) fn forget_budgets_of(&self, user: UserId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from budget where account = ?1")?
            .execute([user.0.as_bytes()])?;
        Ok(())
    }

    pub(crate) fn forget_budget(&self, id: BudgetId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from budget where id = ?1")?
            .execute([id.0.as_bytes()])?;
        Ok(())
    }
}
