//! What a user may do with budgets: administrators of a domain give its projects and users GPU-hours, members see those that
//! hold for them. A hard budget refuses launches that might use more than it has; a change ends nothing that runs.

use api::budgets::{BudgetPatchBody, BudgetView, NewBudgetBody};
use rules::budget::{Budget, BudgetSubject, GpuHours, MAX_BUDGET_HUNDREDTHS, forecast};
use rules::names::{BudgetId, SessionId, UserId};
use rules::permissions::{Extent, Permission, may, reach};
use rules::refusal::Refusal;
use rules::refusals;
use rules::session::SessionSpec;
use rules::tenancy::{ProjectId, Scope};
use rules::units::Timestamp;

use super::accounts::find as find_user;
use super::tenancy::find_project;
use super::usage::{UsageTime, window};
use super::{IdempotencyKey, Once, allowed, once, own_key};
use crate::access::Caller;
use crate::catalog::budgets::BudgetRecord;
use crate::catalog::events::NewEvent;
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::{Failure, Server};

/// Budgets of one project or user, those that are over included. Higher: each launch sums up more of them. Lower: a project
/// of several years has to remove the first ones.
const MAX_BUDGETS: u64 = 100;
const DAY: u64 = 86_400_000;

/// The budgets that the caller may see, those that end last first.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<BudgetView>, Failure> {
    allowed(caller, Permission::ProjectsRead)?;
    let reach = reach(&caller.subject, Permission::ProjectsRead).or_own(&caller.subject);
    let now = server.clock().now();
    server
        .catalog()
        .read("list budgets", move |view| {
            let rows = view.budgets(&reach)?.into_iter();
            rows.map(|row| show(view, row, now)).collect()
        })
        .await
}

/// One of `list`. Errors: `budget.not-found`.
pub async fn get(server: &Server, caller: &Caller, id: &str) -> Result<BudgetView, Failure> {
    let found = list(server, caller).await?.into_iter();
    let mut found = found.filter(|one| one.id.to_string() == id);
    found
        .next()
        .ok_or_else(|| refusals::budget_not_found().into())
}

/// True for those who may write budgets somewhere.
pub fn may_write(caller: &Caller) -> bool {
    writer(caller).is_ok()
}

/// Gives a project or a user GPU-hours for a time.
///
/// Errors: `budget.subject`, `budget.amount`, `budget.period`, `budget.below-use`, `budget.limit-missing`,
/// `budget.too-many`, those of the times; `project.not-found`, `user.not-found`, `role.administrator-needed`,
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
                    warned: 0,
                    generation: 1,
                };
                let state = rows.budget_state(&budget, rows.now, None)?;
                budget.check(state)?;
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
            let state = rows.budget_state(&after, rows.now, None)?;
            after.check(state)?;
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

/// Refuses sessions that do not fit what is left of a hard budget of their project or owner. `except`: the session that is
/// changed, whose own reservation is free for it. Costs one look-up where there is no budget; else a visit of each live
/// session.
///
/// Errors: `budget.spent`, `budget.limit-needed`, `budget.too-long`.
pub(super) fn keep_within_budgets(
    view: &ReadTransaction<'_>,
    (project, owner): (ProjectId, UserId),
    (spec, replicas): (&SessionSpec, u32),
    now: Timestamp,
    except: Option<SessionId>,
) -> Result<(), Failure> {
    let budgets = view.budgets_of(project, owner, now)?;
    if !budgets.iter().any(|row| row.budget.is_hard) {
        return Ok(());
    }
    let gpu = view.asked_gpu(spec, &mut None)? * u64::from(replicas);
    let limit = spec.limit().map(|(seconds, _)| seconds);
    for row in budgets.iter().filter(|row| row.budget.is_hard) {
        let state = view.budget_state(&row.budget, now, except)?;
        row.budget.admit(&row.whose(), state, gpu, limit)?;
    }
    Ok(())
}

/// Only administrators of the site or of a domain write budgets: whoever leads a project would raise their own.
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
    let id = id.parse::<BudgetId>().ok();
    let own = reach(&caller.subject, Permission::ProjectsRead);
    let mut found = view.budgets(&own)?.into_iter();
    let found = found
        .find(|row| Some(row.budget.id) == id)
        .ok_or_else(refusals::budget_not_found)?;
    may_give(caller, found.budget.subject)?;
    Ok(found)
}

fn may_give(caller: &Caller, subject: BudgetSubject) -> Result<(), Refusal> {
    let (BudgetSubject::Project { domain, .. } | BudgetSubject::User { domain, .. }) = subject;
    may(
        &caller.subject,
        Permission::ProjectsWrite,
        &Scope::domain(domain),
    )
}

/// Whom a new budget is for, if the caller may write there.
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
            let found = find_user(view, &caller.subject, Permission::UsersRead, user);
            let found = found.map_err(|failure| failure.at("/user"))?;
            BudgetSubject::User {
                domain: found.domain,
                user: found.id,
            }
        }
        _ => return Err(refusals::budget_subject().at("/project").into()),
    };
    may_give(caller, subject)?;
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
    show(rows, row, rows.now)
}

fn show(
    view: &ReadTransaction<'_>,
    row: BudgetRecord,
    now: Timestamp,
) -> Result<BudgetView, Failure> {
    let budget = &row.budget;
    let state = view.budget_state(budget, now, None)?;
    let before = |days: u64| {
        let millis = i64::try_from(days * DAY).unwrap_or(i64::MAX);
        let from = Timestamp::from_millis(now.as_millis().saturating_sub(millis));
        view.gpu_used(budget.subject, from, now)
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
