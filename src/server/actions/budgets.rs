//! What a user may do with budgets: administrators of the site or of a domain give its projects and users GPU-hours, members
//! see those that hold for them. A budget of the site is changed by the site's administrators alone. A hard budget refuses
//! launches that might use more than it has; a change ends nothing that runs.

use api::budgets::{BudgetPatchBody, BudgetView, NewBudgetBody};
use api::policies::EffectiveLimitView;
use rules::budget::{
    Budget, BudgetState, BudgetSubject, GpuHours, MAX_BUDGET_HUNDREDTHS, forecast, reserved,
};
use rules::names::{BudgetId, SessionId, UserId};
use rules::permissions::{Extent, Permission, Reach, may, reach};
use rules::placement::explain::PlacementCheck;
use rules::quota::PolicyLevel;
use rules::refusal::Refusal;
use rules::refusals;
use rules::session::{Session, SessionSpec};
use rules::tenancy::{ProjectId, Scope};
use rules::units::Timestamp;

use super::accounts::find as find_user;
use super::tenancy::find_project;
use super::usage::{UsageTime, window};
use super::{IdempotencyKey, Once, allowed, once, own_key};
use crate::access::Caller;
use crate::catalog::budgets::{BudgetAsk, BudgetRecord, LiveUse};
use crate::catalog::events::NewEvent;
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::{Failure, Server};

/// Budgets of one project or user, those that are over included. Higher: each launch sums up more of them. Lower: a project
/// of several years has to remove the first ones.
const MAX_BUDGETS: u64 = 100;
const DAY: u64 = 86_400_000;
/// Key of a budget among the limits of a user.
pub const GPU_HOURS: &str = "gpu_hours";

/// A budget, and whether the caller may change and remove it.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedBudget {
    pub budget: BudgetView,
    pub may_change: bool,
}

/// A budget that is nearly used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetWarning {
    pub id: BudgetId,
    /// `DOMAIN/PROJECT`, or the name of the user.
    pub whose: String,
    /// 80 or 95.
    pub percent: u64,
}

/// The budgets that the caller may see, those that end last first.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<BudgetView>, Failure> {
    let all = listed(server, caller).await?.into_iter();
    Ok(all.map(|one| one.budget).collect())
}

/// The same, each with what the caller may do. Costs a visit of each live session, and of the hours of each budget's
/// subject in the ledger.
pub async fn listed(server: &Server, caller: &Caller) -> Result<Vec<ListedBudget>, Failure> {
    allowed(caller, Permission::ProjectsRead)?;
    let (caller, now) = (caller.clone(), server.clock().now());
    server
        .catalog()
        .read("list budgets", move |view| {
            let rows = view.budgets(&seen(&caller))?;
            let live = view.live_use()?;
            let rows = rows.into_iter();
            rows.map(|row| {
                let may_change = may_give(&caller, &row.budget).is_ok();
                let budget = show(view, row, &live, now)?;
                Ok(ListedBudget { budget, may_change })
            })
            .collect()
        })
        .await
}

/// One of `list`. Errors: `budget.not-found`.
pub async fn get(server: &Server, caller: &Caller, id: &str) -> Result<BudgetView, Failure> {
    Ok(get_listed(server, caller, id).await?.budget)
}

/// One of `listed`. Errors: `budget.not-found`.
pub async fn get_listed(
    server: &Server,
    caller: &Caller,
    id: &str,
) -> Result<ListedBudget, Failure> {
    allowed(caller, Permission::ProjectsRead)?;
    let (caller, now) = (caller.clone(), server.clock().now());
    let id = id.parse::<BudgetId>().ok();
    server
        .catalog()
        .read("show a budget", move |view| {
            let row = find(view, &seen(&caller), id)?;
            let may_change = may_give(&caller, &row.budget).is_ok();
            let budget = show(view, row, &view.live_use()?, now)?;
            Ok(ListedBudget { budget, may_change })
        })
        .await
}

/// The budgets that the caller may see and that are used to 80 % or more. Nothing where they cannot be read: a banner is
/// no reason to refuse a page.
pub fn warnings(server: &Server, caller: &Caller) -> Vec<BudgetWarning> {
    if allowed(caller, Permission::ProjectsRead).is_err() {
        return Vec::new();
    }
    if !server.occasions().warned_budgets {
        return Vec::new();
    }
    let now = server.clock().now();
    let rows = server.catalog().read_now("look for used budgets", |view| {
        view.warned_budgets(&seen(caller), now)
    });
    let rows = rows.unwrap_or_default().into_iter();
    rows.map(|row| BudgetWarning {
        id: row.budget.id,
        whose: row.whose(),
        percent: row.budget.warned,
    })
    .collect()
}

/// The budgets that the caller may see.
pub(super) fn seen(caller: &Caller) -> Reach {
    reach(&caller.subject, Permission::ProjectsRead).or_own(&caller.subject)
}

fn find(
    view: &ReadTransaction<'_>,
    reach: &Reach,
    id: Option<BudgetId>,
) -> Result<BudgetRecord, Failure> {
    let row = match id {
        Some(id) => view.budget(id)?,
        None => None,
    };
    row.filter(|row| reach.covers(&row.budget.subject.scope()))
        .ok_or_else(|| refusals::budget_not_found().into())
}

/// True for those who may write budgets somewhere.
pub fn may_write(caller: &Caller) -> bool {
    writer(caller).is_ok()
}

/// Gives a project or a user GPU-hours for a time. One that an administrator of the site gives is changed by those alone.
///
/// Errors: `budget.subject`, `budget.amount`, `budget.period`, `budget.below-use`, `budget.limit-missing`,
/// `budget.too-many`, those of the times; `project.not-found`, `user.not-found`, `user.outranked` where an administrator of
/// a domain bounds one of more domains; `role.administrator-needed`,
/// `role.permission-missing`.
pub async fn create(
    server: &Server,
    caller: &Caller,
    asked: NewBudgetBody,
    key: Option<IdempotencyKey>,
) -> Result<Once<BudgetView>, Failure> {
    writer(caller)?;
    let key = own_key(caller, key)?;
    let amount = amount_of(&asked.gpu_hours)?;
    let now = server.clock().now();
    let (from, until) = period(&asked, &caller.time_zone, now)?;
    let caller = caller.clone();
    server
        .catalog()
        .write(Lane::Requests, "make a budget", move |rows| {
            once(rows, key.as_ref(), || {
                let subject = subject_of(rows, &caller, &asked)?;
                if rows.count_budgets(subject)? >= MAX_BUDGETS {
                    return Err(refusals::budget_too_many(MAX_BUDGETS).into());
                }
                let mut budget = Budget {
                    id: BudgetId::make(rows.now, base::observe::random()),
                    subject,
                    amount,
                    from,
                    until,
                    is_hard: asked.hard,
                    is_of_site: may(&caller.subject, Permission::ProjectsWrite, &Scope::SITE)
                        .is_ok(),
                    warned: 0,
                    generation: 1,
                };
                let live = rows.live_use()?;
                let state = rows.budget_state(&budget, &live, rows.now, None)?;
                budget.check(state, None)?;
                budget.warned = budget.warning(state.used);
                rows.insert_budget(&budget)?;
                note(rows, &caller, &budget, "budget.added", "", &told(&budget))?;
                again(rows, budget.id)
            })
        })
        .await
}

/// Changes the amount of a budget, or whether it is hard. Ends nothing that runs.
///
/// Errors: `budget.not-found`, `budget.amount`, `budget.below-use`, `budget.limit-missing`, `budget.stale`;
/// `role.administrator-needed`, `role.permission-missing`.
pub async fn change(
    server: &Server,
    caller: &Caller,
    id: &str,
    patch: BudgetPatchBody,
    if_match: Option<u64>,
) -> Result<BudgetView, Failure> {
    writer(caller)?;
    let amount = patch.gpu_hours.as_deref().map(amount_of).transpose()?;
    let (caller, id) = (caller.clone(), id.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "change a budget", move |rows| {
            let before = find_to_change(rows, &caller, &id)?.budget;
            if if_match.is_some_and(|seen| seen != before.generation) {
                return Err(refusals::budget_stale(before.generation).into());
            }
            let mut after = Budget {
                amount: amount.unwrap_or(before.amount),
                is_hard: patch.hard.unwrap_or(before.is_hard),
                ..before.clone()
            };
            if after == before {
                return again(rows, before.id);
            }
            let live = rows.live_use()?;
            let state = rows.budget_state(&after, &live, rows.now, None)?;
            after.check(state, Some(&before))?;
            after.warned = after.warning(state.used);
            rows.put_budget(&after)?;
            let (was, is) = (told(&before), told(&after));
            note(rows, &caller, &after, "budget.changed", &was, &is)?;
            again(rows, before.id)
        })
        .await
}

/// Removes a budget; what was used stays in the ledger. Errors: `budget.not-found`, `role.administrator-needed`,
/// `role.permission-missing`.
pub async fn remove(server: &Server, caller: &Caller, id: &str) -> Result<(), Failure> {
    writer(caller)?;
    let (caller, id) = (caller.clone(), id.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "remove a budget", move |rows| {
            let budget = find_to_change(rows, &caller, &id)?.budget;
            rows.forget_budget(budget.id)?;
            note(rows, &caller, &budget, "budget.removed", &told(&budget), "")
        })
        .await
}

/// Refuses a launch that does not fit what is left of a hard budget of its project or owner. Costs one look-up where there
/// is no budget; else a visit of each live session.
///
/// Errors: `budget.spent`, `budget.limit-needed`, `budget.too-long`; `budget.of-others` for one beyond `seen`.
pub(super) fn keep_within_budgets(
    view: &ReadTransaction<'_>,
    seen: &Reach,
    (project, owner): (ProjectId, UserId),
    (spec, replicas): (&SessionSpec, u32),
    now: Timestamp,
) -> Result<(), Failure> {
    view.ask_budgets(
        &BudgetAsk {
            project,
            owner,
            spec,
            replicas,
            session: None,
            seen: Some(seen),
        },
        now,
    )
}

/// The same for a session as it is to be: what it reserves now is free for it, and what it used is not asked for again.
pub(super) fn keep_session_within_budgets(
    view: &ReadTransaction<'_>,
    seen: &Reach,
    session: &Session,
    now: Timestamp,
) -> Result<(), Failure> {
    view.ask_budgets(&BudgetAsk::of(session, Some(seen)), now)
}

/// What a session takes of the budgets of its project and its owner that hold now and that the caller may see: what is
/// used or reserved without it, and with it. `id`: a session that is live; None for one that is not launched yet. Costs one
/// look-up where there is no budget; else a visit of each live session.
pub(super) fn checks(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    (project, owner): (ProjectId, UserId),
    (spec, replicas): (&SessionSpec, u32),
    id: Option<SessionId>,
    now: Timestamp,
) -> Result<Vec<PlacementCheck>, Failure> {
    let mut rows = view.budgets_of(project, owner, now)?;
    let reach = seen(caller);
    rows.retain(|row| row.budget.from <= now && reach.covers(&row.budget.subject.scope()));
    let gpu = match rows.is_empty() {
        true => 0,
        false => view.asked_gpu(spec, &mut None)? * u64::from(replicas),
    };
    if gpu == 0 {
        return Ok(Vec::new());
    }
    let live = view.live_use()?;
    let limit = spec.limit().map(|(seconds, _)| seconds);
    let checked = rows.into_iter().map(|row| {
        let budget = row.budget;
        let without = view.budget_state(&budget, &live, now, id)?;
        let taken = |state: BudgetState| state.used.saturating_add(state.reserved);
        let before = taken(without);
        let after = match id {
            Some(_) => taken(view.budget_state(&budget, &live, now, None)?),
            None => before.saturating_add(limit.map_or(0, |limit| reserved(gpu, limit))),
        };
        Ok(PlacementCheck {
            code: match budget.subject {
                BudgetSubject::Project { .. } => "budget-project".to_owned(),
                BudgetSubject::User { .. } => "budget-user".to_owned(),
            },
            device: None,
            before: GpuHours::used(before).to_string(),
            after: GpuHours::used(after).to_string(),
            limit: budget.amount.to_string(),
            ok: after <= budget.amount.in_ledger(),
        })
    });
    checked.collect()
}

/// The budgets that hold now for a user in a project, as limits, but for those beyond `seen`. Costs one look-up where there
/// is none.
pub(super) fn as_limits(
    view: &ReadTransaction<'_>,
    seen: &Reach,
    project: ProjectId,
    user: UserId,
    now: Timestamp,
) -> Result<Vec<EffectiveLimitView>, Failure> {
    let mut rows = view.budgets_of(project, user, now)?;
    rows.retain(|row| seen.covers(&row.budget.subject.scope()));
    limits(view, rows, now)
}

/// The same of a user's own budgets, in all projects.
pub(super) fn of_user(
    view: &ReadTransaction<'_>,
    user: UserId,
    now: Timestamp,
) -> Result<Vec<EffectiveLimitView>, Failure> {
    let mut rows = view.current_budgets(now)?;
    rows.retain(
        |row| matches!(row.budget.subject, BudgetSubject::User { user: of, .. } if of == user),
    );
    limits(view, rows, now)
}

fn limits(
    view: &ReadTransaction<'_>,
    mut rows: Vec<BudgetRecord>,
    now: Timestamp,
) -> Result<Vec<EffectiveLimitView>, Failure> {
    rows.retain(|row| row.budget.from <= now);
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let live = view.live_use()?;
    let told = |hours: GpuHours| format!("{hours} GPU-hours");
    let shown = rows.into_iter().map(|row| {
        let budget = row.budget;
        let state = view.budget_state(&budget, &live, now, None)?;
        let taken = GpuHours::used(state.used.saturating_add(state.reserved));
        Ok(EffectiveLimitView {
            key: GPU_HOURS.to_owned(),
            limit: budget.amount.0,
            used: taken.0,
            left: GpuHours::whole(budget.rest(state)).0,
            limit_text: told(budget.amount),
            used_text: told(taken),
            level: match budget.subject {
                BudgetSubject::Project { .. } => PolicyLevel::Project,
                BudgetSubject::User { .. } => PolicyLevel::User,
            },
            policy: String::new(),
            until: Some(budget.until),
            usual: None,
        })
    });
    shown.collect()
}

/// Only administrators of the site or of a domain write budgets: a lead would raise their own.
fn writer(caller: &Caller) -> Result<(), Failure> {
    let subject = &caller.subject;
    let own = reach(subject, Permission::ProjectsWrite);
    match own.extent() {
        Extent::Everything => Ok(()),
        Extent::Some { domains, .. } if !domains.is_empty() => Ok(()),
        Extent::Some { .. } | Extent::Nothing => {
            let home = Scope::domain(subject.domain);
            may(subject, Permission::ProjectsWrite, &home).map_err(Failure::from)
        }
    }
}

fn find_to_change(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    id: &str,
) -> Result<BudgetRecord, Failure> {
    let found = find(view, &seen(caller), id.parse::<BudgetId>().ok())?;
    may_give(caller, &found.budget)?;
    Ok(found)
}

/// Refuses those who do not administer the budget's domain, and of a budget of the site those who do not administer the
/// site.
fn may_give(caller: &Caller, budget: &Budget) -> Result<(), Refusal> {
    let scope = match budget.is_of_site {
        true => Scope::SITE,
        false => domain_of(budget.subject),
    };
    may(&caller.subject, Permission::ProjectsWrite, &scope)
}

fn domain_of(subject: BudgetSubject) -> Scope {
    let (BudgetSubject::Project { domain, .. } | BudgetSubject::User { domain, .. }) = subject;
    Scope::domain(domain)
}

/// The subject of a new budget, if the caller may write there. Nobody bounds a user with wider rights than their own.
fn subject_of(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    asked: &NewBudgetBody,
) -> Result<BudgetSubject, Failure> {
    let subject = match (
        named(asked.project.as_deref()),
        named(asked.user.as_deref()),
    ) {
        (Some(project), None) => {
            let found = find_project(view, &caller.subject, Permission::ProjectsRead, project);
            let found = found.map_err(|failure| failure.at("/project"))?;
            BudgetSubject::Project {
                domain: found.domain,
                project: found.id,
            }
        }
        (None, Some(user)) => {
            let found = find_user(view, &caller.subject, Permission::UsersWrite, user);
            let found = found.map_err(|failure| failure.at("/user"))?;
            BudgetSubject::User {
                domain: found.domain,
                user: found.id,
            }
        }
        _ => return Err(refusals::budget_subject().at("/project").into()),
    };
    may(
        &caller.subject,
        Permission::ProjectsWrite,
        &domain_of(subject),
    )?;
    Ok(subject)
}

fn named(typed: Option<&str>) -> Option<&str> {
    typed.map(str::trim).filter(|name| !name.is_empty())
}

fn amount_of(typed: &str) -> Result<GpuHours, Refusal> {
    let most = GpuHours(MAX_BUDGET_HUNDREDTHS);
    GpuHours::parse(typed.trim()).ok_or_else(|| refusals::budget_amount(most).at("/gpu_hours"))
}

fn period(
    asked: &NewBudgetBody,
    zone: &str,
    now: Timestamp,
) -> Result<(Timestamp, Timestamp), Refusal> {
    let month = named(asked.month.as_deref());
    let (from, until) = (named(asked.from.as_deref()), named(asked.until.as_deref()));
    let refused = || refusals::budget_period().at("/month");
    let time = match (month, from, until) {
        (Some(month), None, None) => UsageTime {
            month: month.to_owned(),
            ..UsageTime::default()
        },
        (None, Some(from), Some(until)) => UsageTime {
            from: from.to_owned(),
            until: until.to_owned(),
            ..UsageTime::default()
        },
        _ => return Err(refused()),
    };
    let (from, until) = window(&time, zone, now)?;
    match until > now {
        true => Ok((from, until)),
        false => Err(refused()),
    }
}

fn again(rows: &Rows<'_>, id: BudgetId) -> Result<BudgetView, Failure> {
    let row = rows.budget(id)?.ok_or_else(refusals::budget_not_found)?;
    show(rows, row, &rows.live_use()?, rows.now)
}

fn show(
    view: &ReadTransaction<'_>,
    row: BudgetRecord,
    live: &LiveUse,
    now: Timestamp,
) -> Result<BudgetView, Failure> {
    let budget = &row.budget;
    let state = view.budget_state(budget, live, now, None)?;
    let before = |days: u64| {
        let millis = i64::try_from(days * DAY).unwrap_or(i64::MAX);
        let from = Timestamp::from_millis(now.as_millis().saturating_sub(millis));
        view.gpu_used(budget, from, Some(now))
    };
    let over = budget.amount.in_ledger().saturating_sub(state.used);
    let ends = match now < budget.until {
        true => forecast(over, now, before(7)?, before(28)?),
        false => None,
    };
    let ends = ends.filter(|(earliest, _)| *earliest < budget.until);
    Ok(BudgetView {
        id: budget.id.0,
        gpu_hours: budget.amount.to_string(),
        used: GpuHours::used(state.used).to_string(),
        reserved: GpuHours::used(state.reserved).to_string(),
        left: GpuHours::whole(budget.rest(state)).to_string(),
        from: budget.from,
        until: budget.until,
        hard: budget.is_hard,
        of_site: budget.is_of_site,
        warned_percent: budget.warned,
        used_earliest: ends.map(|(earliest, _)| earliest),
        used_latest: ends.map(|(_, latest)| latest),
        generation: budget.generation,
        domain: row.domain_name,
        project: row.project_name,
        user: row.user_name,
    })
}

/// The amount and the kind, as events say them.
fn told(budget: &Budget) -> String {
    let kind = if budget.is_hard { "hard" } else { "soft" };
    format!("{} GPU-hours, {kind}", budget.amount)
}

fn note(
    rows: &Rows<'_>,
    caller: &Caller,
    budget: &Budget,
    code: &str,
    before: &str,
    after: &str,
) -> Result<(), Failure> {
    rows.note(NewEvent {
        actor: caller.name.as_str(),
        topic: "system",
        object: &budget.id.to_string(),
        scope: budget.subject.scope(),
        code,
        before,
        after,
    })
}

#[cfg(test)]
mod tests;
