//! What users ask for: that limits of theirs are raised for a while. An administrator of the site raises them by
//! allowances, which end the request once they have raised all of it, or declines it. Raises nothing itself.

use api::allowances::{LimitRequestDeclineBody, LimitRequestView, NewLimitRequestBody};

use super::super::allowed;
use super::*;
use crate::catalog::Rows;
use crate::catalog::allowances::{LIMIT_DECLINED, LimitAsker, LimitRequestRecord};
use crate::catalog::events::NewEvent;
use crate::catalog::users::ROOT;

/// Requests of a site that wait. Higher: administrators read a longer list. Lower: a class before its exam asks in vain.
const MAX_LIMIT_REQUESTS: usize = 500;

/// Asks for higher limits of the caller's; it takes the place of what they asked for before.
///
/// Errors: `allowance.empty`, `allowance.no-limit`, `allowance.not-above`, `policy.limit-too-large`, `limit-request.days`,
/// `limit-request.reason`, `limit-request.too-many`; `user.root`.
pub async fn ask(
    server: &Server,
    caller: &Caller,
    asked: NewLimitRequestBody,
) -> Result<LimitRequestView, Failure> {
    allowed(caller, Permission::Me)?;
    if caller.subject.user == ROOT {
        return Err(refusals::user_root().into());
    }
    let limits = limits_of(asked.limits.0)?;
    if limits == PolicyLimits::NONE {
        return Err(refusals::allowance_empty().at("/limits").into());
    }
    let reason = said(&asked.reason)?;
    if reason.is_empty() {
        return Err(refusals::limit_request_reason(MAX_REASON)
            .at("/reason")
            .into());
    }
    if !(1..=MAX_ALLOWED_DAYS).contains(&u64::from(asked.days)) {
        return Err(refusals::limit_request_days(MAX_ALLOWED_DAYS)
            .at("/days")
            .into());
    }
    let caller = caller.clone();
    server
        .catalog()
        .write(Lane::Requests, "ask for higher limits", move |rows| {
            let user = caller.subject.user;
            let held = raisable(rows, TenantLevel::User, user.0, rows.now)?;
            check_above(limits, held, caller.name.as_str())?;
            let is_new = rows.limit_request(user)?.is_none();
            if is_new && rows.limit_requests()?.len() >= MAX_LIMIT_REQUESTS {
                return Err(refusals::limit_request_too_many(MAX_LIMIT_REQUESTS).into());
            }
            let request = LimitRequestRecord {
                limits,
                days: asked.days,
                reason,
                asked_at: rows.now,
            };
            rows.put_limit_request(user, Some(&request))?;
            let told = format!("{} for {} d", limits.told(), asked.days);
            note(rows, &caller, user, ("user.limit-asked", "", told.as_str()))?;
            Ok(show(asker(&caller, request)))
        })
        .await
}

/// What the caller asks for. Errors: `limit-request.not-found`.
pub async fn own(server: &Server, caller: &Caller) -> Result<LimitRequestView, Failure> {
    allowed(caller, Permission::Me)?;
    let user = caller.subject.user;
    let found = server
        .catalog()
        .read_now("show a request for limits", |view| view.limit_request(user))?;
    let found = found.ok_or_else(refusals::limit_request_not_found)?;
    Ok(show(asker(caller, found)))
}

/// Takes back what the caller asks for. Errors: `limit-request.not-found`.
pub async fn withdraw(server: &Server, caller: &Caller) -> Result<(), Failure> {
    allowed(caller, Permission::Me)?;
    let caller = caller.clone();
    server
        .catalog()
        .write(Lane::Requests, "take a request back", move |rows| {
            let user = caller.subject.user;
            let told = forget(rows, user)?;
            note(
                rows,
                &caller,
                user,
                ("user.limit-withdrawn", told.as_str(), ""),
            )
        })
        .await
}

/// All that wait, who asked first first, also those of suspended users, which can be answered like the others; for
/// administrators and auditors of the site. Never more than 500.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<LimitRequestView>, Failure> {
    may(&caller.subject, Permission::SystemRead, &Scope::SITE)?;
    server
        .catalog()
        .read_now("list requests for limits", |view| {
            let all = view.limit_requests()?.into_iter();
            Ok(all.map(show).collect())
        })
}

/// Declines what a user asks for, who is told.
///
/// Errors: `user.not-found`, `limit-request.not-found`, `allowance.reason-too-long`.
pub async fn decline(
    server: &Server,
    caller: &Caller,
    who: &str,
    asked: LimitRequestDeclineBody,
) -> Result<(), Failure> {
    may(&caller.subject, Permission::SystemWrite, &Scope::SITE)?;
    let reason = said(&asked.reason)?;
    let (caller, who) = (caller.clone(), who.to_owned());
    server
        .catalog()
        .write(
            Lane::Requests,
            "decline a request for limits",
            move |rows| {
                let user = match who.parse::<UserId>() {
                    Ok(id) => rows.user(id)?,
                    Err(_) => rows.user_named(&who)?,
                };
                let user = user.ok_or_else(refusals::user_not_found)?;
                forget(rows, user.id)?;
                note(
                    rows,
                    &caller,
                    user.id,
                    (LIMIT_DECLINED, "", reason.as_str()),
                )
            },
        )
        .await
}

/// Takes out of what a user asks for the limits that an allowance of theirs raises. What it does not raise waits on.
pub(super) fn answer(rows: &Rows<'_>, user: UserId, raised: PolicyLimits) -> Result<(), Failure> {
    let Some(mut request) = rows.limit_request(user)? else {
        return Ok(());
    };
    for key in LimitKey::ALL {
        if raised.get(key).is_some() {
            request.limits.set(key, None);
        }
    }
    let rest = (request.limits != PolicyLimits::NONE).then_some(&request);
    rows.put_limit_request(user, rest)
}

/// Takes out what a user asks for, and gives it as an event tells it.
fn forget(rows: &Rows<'_>, user: UserId) -> Result<String, Failure> {
    let found = rows.limit_request(user)?;
    let found = found.ok_or_else(refusals::limit_request_not_found)?;
    rows.put_limit_request(user, None)?;
    Ok(found.limits.told())
}

fn note(
    rows: &Rows<'_>,
    caller: &Caller,
    user: UserId,
    (code, before, after): (&str, &str, &str),
) -> Result<(), Failure> {
    rows.note(NewEvent {
        actor: caller.name.as_str(),
        topic: "users",
        object: &user.to_string(),
        scope: Scope::user(user),
        code,
        before,
        after,
    })
}

/// The caller with what they ask for: who calls is not suspended.
fn asker(caller: &Caller, request: LimitRequestRecord) -> LimitAsker {
    LimitAsker {
        name: caller.name.to_string(),
        suspended: false,
        request,
    }
}

fn show(asker: LimitAsker) -> LimitRequestView {
    let request = asker.request;
    LimitRequestView {
        user: asker.name,
        suspended: asker.suspended,
        limits: LimitsBody::from(request.limits),
        days: request.days,
        reason: request.reason,
        asked_at: request.asked_at,
    }
}
