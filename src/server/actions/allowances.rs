//! What a user may do with allowances: administrators of the site raise limits of a domain, a project or a user for a
//! while. Nothing that runs ends with an allowance; what is beyond the limit then gets no place.

use api::allowances::{AllowanceView, NewAllowanceBody};
use api::policies::{LimitsBody, PolicyUseBody};
use rules::folder::FolderOwner;
use rules::grants::GrantScope;
use rules::names::{AllowanceId, UserId};
use rules::permissions::{Permission, may};
use rules::quota::{Allowance, LimitKey, PolicyLevel, PolicyLimits, TenantLevel};
use rules::refusal::Refusal;
use rules::refusals;
use rules::tenancy::{ProjectId, Scope};
use rules::units::Timestamp;
use rules::workload::precedence::USUAL_PRIORITY;
use uuid::Uuid;

use super::policies::{limits_of, subject};
use super::sessions::USUAL_LIMITS;
use super::storage::unraised;
use crate::access::Caller;
use crate::catalog::allowances::AllowanceRecord;
use crate::catalog::{Lane, ReadTransaction};
use crate::{Failure, Server};

pub mod requests;

/// Allowances of a site. Higher: each pass reads more of them. Lower: an exam week of a large class names fewer users.
const MAX_ALLOWANCES: usize = 500;
/// Days until one ends at most. Higher: it is a policy that no list of policies shows. Lower: a project's last year needs several.
const MAX_ALLOWED_DAYS: u64 = 365;
/// Characters of a reason. Higher: the list is long. Lower: a ticket's title does not fit.
const MAX_REASON: usize = 200;

/// All allowances that hold, the one that ends first first; for administrators and auditors of the site. Never more than
/// 500.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<AllowanceView>, Failure> {
    may(&caller.subject, Permission::SystemRead, &Scope::SITE)?;
    server.catalog().read_now("list allowances", |view| {
        Ok(view.allowances()?.into_iter().map(show).collect())
    })
}

/// Why a site with so many allowances can have no other; None while there is room.
pub fn no_room(known: usize) -> Option<Refusal> {
    (known >= MAX_ALLOWANCES).then(|| refusals::allowance_too_many(MAX_ALLOWANCES))
}

/// One allowance. Errors: `allowance.not-found`.
pub async fn get(
    server: &Server,
    caller: &Caller,
    id: AllowanceId,
) -> Result<AllowanceView, Failure> {
    may(&caller.subject, Permission::SystemRead, &Scope::SITE)?;
    server.catalog().read_now("show an allowance", |view| {
        let found = view.allowance(id)?;
        found
            .map(show)
            .ok_or_else(|| refusals::allowance_not_found().into())
    })
}

/// Raises limits until a time. Holds at once, also for what waits.
///
/// Errors: `allowance.empty`, `allowance.end`, `allowance.no-limit`, `allowance.not-above`, `allowance.reason-too-long`,
/// `allowance.too-many`,
/// `policy.limit-too-large`, `domain.not-found`, `project.not-found`, `user.not-found`.
pub async fn create(
    server: &Server,
    caller: &Caller,
    asked: NewAllowanceBody,
) -> Result<AllowanceView, Failure> {
    may(&caller.subject, Permission::SystemWrite, &Scope::SITE)?;
    let limits = limits_of(asked.limits.0)?;
    if limits == PolicyLimits::NONE {
        return Err(refusals::allowance_empty().at("/limits").into());
    }
    let reason = said(&asked.reason)?;
    let caller = caller.clone();
    server
        .catalog()
        .write(Lane::Requests, "make an allowance", move |rows| {
            let last = rows.now.plus_seconds(MAX_ALLOWED_DAYS * 86_400);
            if asked.until <= rows.now || asked.until > last {
                return Err(refusals::allowance_end(MAX_ALLOWED_DAYS)
                    .at("/until")
                    .into());
            }
            let of = PolicyUseBody {
                level: asked.level.into(),
                subject: Some(asked.subject),
            };
            let (id, whose) = subject(rows, &caller, &of)?;
            let held = raisable(rows, asked.level, id.unwrap_or_default(), rows.now)?;
            check_above(limits, held, &whose)?;
            if let Some(full) = no_room(rows.allowances()?.len()) {
                return Err(full.into());
            }
            let made = AllowanceRecord {
                id: AllowanceId::make(rows.now, base::observe::random()),
                allowance: Allowance {
                    level: asked.level,
                    subject: id.unwrap_or_default(),
                    limits,
                    until: asked.until,
                },
                whose,
                reason,
                actor: caller.name.to_string(),
                created_at: rows.now,
            };
            rows.insert_allowance(&made)?;
            if asked.level == TenantLevel::User {
                requests::answer(rows, UserId(made.allowance.subject), limits)?;
            }
            let told = format!("{} until {}", limits.told(), asked.until);
            rows.note_allowance(caller.name.as_str(), &made, "allowance.added", "", &told)?;
            let made = rows.allowance(made.id)?.unwrap_or(made);
            Ok(show(made))
        })
        .await
}

/// A reason as it is kept. Errors: `allowance.reason-too-long`.
fn said(typed: &str) -> Result<String, Refusal> {
    let typed = typed.trim();
    match typed.chars().count() > MAX_REASON || typed.chars().any(char::is_control) {
        true => Err(refusals::allowance_reason_too_long(MAX_REASON).at("/reason")),
        false => Ok(typed.to_owned()),
    }
}

/// Refuses limits that raise nothing of what is held.
///
/// Errors: `allowance.no-limit`, `allowance.not-above`.
fn check_above(limits: PolicyLimits, held: PolicyLimits, whose: &str) -> Result<(), Refusal> {
    let mut keys = LimitKey::ALL.into_iter();
    let unlimited = |key: &LimitKey| limits.get(*key).is_some() && held.get(*key).is_none();
    if let Some(key) = keys.find(unlimited) {
        let place = format!("/limits/{}", key.word());
        return Err(refusals::allowance_no_limit(key.word(), whose).at(place));
    }
    let raises_nothing = LimitKey::ALL.into_iter().find_map(|key| {
        let (asked, held) = (limits.get(key)?, held.get(key)?);
        (asked <= held).then_some((key, held))
    });
    match raises_nothing {
        None => Ok(()),
        Some((key, held)) => {
            let place = format!("/limits/{}", key.word());
            Err(refusals::allowance_not_above(whose, key.told(held)).at(place))
        }
    }
}

/// Ends an allowance before its time. Errors: `allowance.not-found`.
pub async fn remove(server: &Server, caller: &Caller, id: AllowanceId) -> Result<(), Failure> {
    may(&caller.subject, Permission::SystemWrite, &Scope::SITE)?;
    let actor = caller.name.clone();
    server
        .catalog()
        .write(Lane::Requests, "end an allowance", move |rows| {
            let found = rows
                .allowance(id)?
                .ok_or_else(refusals::allowance_not_found)?;
            rows.forget_allowance(id)?;
            let told = found.allowance.limits.told();
            rows.note_allowance(actor.as_str(), &found, "allowance.removed", &told, "")
        })
        .await
}

/// The limits that an allowance of that subject can raise, without any allowance: those of policies that bound it, and those
/// that are built in where no policy says it. What it leaves out is not limited. Costs a visit of each policy and of each
/// place that one is attached to. Of several policies of that level, the strictest counts.
pub(crate) fn raisable(
    view: &ReadTransaction<'_>,
    level: TenantLevel,
    subject: Uuid,
    now: Timestamp,
) -> Result<PolicyLimits, Failure> {
    let mut held = PolicyLimits::NONE;
    let (mut projects, mut account) = (Vec::new(), None);
    match level {
        TenantLevel::User => {
            if let Some(user) = view.user(UserId(subject))? {
                let scopes = user.grants_at(now).into_iter().map(|grant| grant.scope);
                projects.extend(scopes.filter_map(|scope| match scope {
                    GrantScope::Project(project) => Some(project.0),
                    GrantScope::Domain(_) | GrantScope::Site => None,
                }));
                account = Some((FolderOwner::User(user.id), user.domain));
            }
        }
        TenantLevel::Project => {
            if let Some(project) = view.project(ProjectId(subject))? {
                account = Some((FolderOwner::Project(project.id), project.domain));
            }
        }
        TenantLevel::Domain => {}
    }
    let policies = view.policies()?;
    for (policy, used) in view.policy_uses()? {
        let is_of = |one: Option<Uuid>| match used.level {
            PolicyLevel::Site => true,
            PolicyLevel::Member => one.is_some_and(|project| projects.contains(&project)),
            PolicyLevel::Domain | PolicyLevel::Project | PolicyLevel::User => one == Some(subject),
        };
        if TenantLevel::that_raises(used.level) == level && is_of(used.subject) {
            let found = policies.iter().find(|one| one.id == policy);
            held = found.map_or(held, |found| strictest(held, found.limits));
        }
    }
    let Some((owner, domain)) = account else {
        return Ok(held);
    };
    let (attached, _) = unraised(view, owner, domain, now)?;
    if level == TenantLevel::User {
        held = held.or(USUAL_LIMITS);
        let names_priority = |limits: &PolicyLimits| limits.priority.is_some();
        if !attached.iter().any(|policy| names_priority(&policy.limits)) {
            held.priority = Some(u64::from(USUAL_PRIORITY));
        }
    }
    let of_account = attached
        .iter()
        .filter(|policy| TenantLevel::that_raises(policy.level) == level);
    Ok(of_account.fold(held, |held, policy| held.or(policy.limits)))
}

/// Of each limit the lower one; the one that is said where only one says it.
fn strictest(one: PolicyLimits, other: PolicyLimits) -> PolicyLimits {
    let mut both = one.or(other);
    for key in LimitKey::ALL {
        if let (Some(a), Some(b)) = (one.get(key), other.get(key)) {
            both.set(key, Some(a.min(b)));
        }
    }
    both
}

fn show(row: AllowanceRecord) -> AllowanceView {
    AllowanceView {
        id: row.id.0,
        level: row.allowance.level,
        subject: row.allowance.subject,
        name: row.whose,
        limits: LimitsBody::from(row.allowance.limits),
        until: row.allowance.until,
        reason: row.reason,
        actor: row.actor,
        created_at: row.created_at,
    }
}

#[cfg(test)]
mod tests;
