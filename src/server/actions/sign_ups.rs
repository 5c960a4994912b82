//! What administrators do with strangers who ask for an account of their domain: approve, decline, take up again, and say who
//! may ask at all.

use api::sign_ups::{SignUpApprovalBody, SignUpRuleBody, SignUpRuleView, SignUpView};
use rules::names::{SignUpId, UserName};
use rules::permissions::{Permission, Subject, may, reach};
use rules::refusals;
use rules::sign_up::SignUpRule;
use rules::tenancy::{Domain, Scope};
use rules::units::Timestamp;
use rules::users::{Role, User};

use super::somewhere;
use super::tenancy::{ends_later, find_domain, home_of_account};
use crate::access::tokens::refuse_bound;
use crate::access::{self, Caller};
use crate::catalog::events::NewEvent;
use crate::catalog::sign_ups::SignUpRow;
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::{Failure, Server};

/// Requests of the domains whose users the caller sees: those that wait, then those that were declined, the oldest first.
///
/// Errors: `role.administrator-needed`.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<SignUpView>, Failure> {
    somewhere(caller, Permission::UsersRead)?;
    server
        .catalog()
        .read_now("list requests for accounts", |view| {
            let mut all = Vec::new();
            for domain in managed(view, &caller.subject)? {
                for row in view.sign_ups(domain.id)? {
                    all.push(show(view, &domain, row)?);
                }
            }
            all.sort_by_key(|one| (one.declined_at.is_some(), one.asked_at, one.id));
            Ok(all)
        })
}

/// How many wait for the caller's decision; 0 for who decides on none.
pub fn waiting(server: &Server, caller: &Caller) -> u64 {
    let count = server
        .catalog()
        .read_now("count requests", |view| waiting_requests(view, caller));
    // A number in a heading is no reason to refuse a page.
    count.ok().flatten().map_or(0, |(count, _)| count)
}

/// How many requests wait for the caller's decision, and when the newest was made; None where none does. Nothing is read for
/// who decides on none.
pub(super) fn waiting_requests(
    view: &ReadTransaction<'_>,
    caller: &Caller,
) -> Result<Option<(u64, Timestamp)>, Failure> {
    if somewhere(caller, Permission::UsersWrite).is_err() {
        return Ok(None);
    }
    let mut newest: Option<Timestamp> = None;
    let mut count = 0;
    for domain in managed(view, &caller.subject)? {
        let (more, at) = view.waiting_sign_ups(domain.id)?;
        count += more;
        newest = newest.max(at);
    }
    Ok(newest.map(|newest| (count, newest)))
}

/// Makes the account that a request asks for, with the password that was typed there; that of a guest with an end.
///
/// Errors: `sign-up.not-found`, `sign-up.declined`, `user.name-taken`, `user.name-invalid`, `user.email-taken`,
/// `grant.ends-in-past`; `role.administrator-needed`; `network.bound`.
pub async fn approve(
    server: &Server,
    caller: &Caller,
    which: &str,
    asked: SignUpApprovalBody,
) -> Result<(), Failure> {
    somewhere(caller, Permission::UsersWrite)?;
    let name = asked.name.as_deref().map(str::trim);
    let name = name.filter(|name| !name.is_empty());
    let name = name.map(UserName::of_new_user).transpose()?;
    let (caller, which, now) = (caller.clone(), which.to_owned(), server.clock().now());
    server
        .catalog()
        .write(
            Lane::Requests,
            "approve a request for an account",
            move |rows| {
                let row = find(rows, &caller.subject, &which)?;
                refuse_bound(rows, &caller)?;
                if row.declined_at.is_some() {
                    return Err(refusals::sign_up_declined().into());
                }
                if rows.user_by_email(&row.email)?.is_some() {
                    return Err(refusals::user_email_taken(&row.email).at("/email").into());
                }
                ends_later(rows, asked.expires_at)?;
                let id = row.domain.0.to_string();
                let (domain, member) = home_of_account(rows, &caller.subject, Some(id.as_str()))?;
                let name = name.unwrap_or_else(|| row.name.clone());
                let user = User {
                    full_name: row.full_name.clone(),
                    email: Some(row.email.clone()),
                    domain,
                    grants: member.into_iter().collect(),
                    expires_at: asked.expires_at,
                    ..access::new_user(name, Role::User, now)
                };
                rows.insert_user(&user, &row.password)?;
                rows.date_password(user.id)?;
                rows.forget_sign_up(row.id)?;
                let (object, role) = (user.id.to_string(), user.role.word());
                note(rows, &caller, (&row, object.as_str()), "user.added", role)?;
                let Some(end) = asked.expires_at else {
                    return Ok(());
                };
                let (about, end) = ((&row, object.as_str()), end.to_string());
                note(rows, &caller, about, "user.end-set", &end)
            },
        )
        .await
}

/// Declines a request. It stays for 30 days and can be taken up again; who asked learns nothing.
///
/// Errors: `sign-up.not-found`, `role.administrator-needed`.
pub async fn decline(server: &Server, caller: &Caller, which: &str) -> Result<(), Failure> {
    decide(server, caller, which, true).await
}

/// Lets a request wait again that was declined. Errors: as `decline`.
pub async fn reopen(server: &Server, caller: &Caller, which: &str) -> Result<(), Failure> {
    decide(server, caller, which, false).await
}

async fn decide(
    server: &Server,
    caller: &Caller,
    which: &str,
    declines: bool,
) -> Result<(), Failure> {
    somewhere(caller, Permission::UsersWrite)?;
    let (caller, which) = (caller.clone(), which.to_owned());
    server
        .catalog()
        .write(
            Lane::Requests,
            "decide on a request for an account",
            move |rows| {
                let row = find(rows, &caller.subject, &which)?;
                if row.declined_at.is_some() == declines {
                    return Ok(());
                }
                let by = declines.then(|| caller.name.as_str());
                rows.decline_sign_up(row.id, by)?;
                let code = match declines {
                    true => "user.request-declined",
                    false => "user.request-reopened",
                };
                let object = row.id.to_string();
                note(
                    rows,
                    &caller,
                    (&row, object.as_str()),
                    code,
                    row.email.as_str(),
                )
            },
        )
        .await
}

/// Who may ask for an account of each domain whose users the caller sees, by name.
///
/// Errors: `role.administrator-needed`.
pub async fn rules(server: &Server, caller: &Caller) -> Result<Vec<SignUpRuleView>, Failure> {
    somewhere(caller, Permission::UsersRead)?;
    server.catalog().read_now("list who may sign up", |view| {
        let mut all = Vec::new();
        for domain in managed(view, &caller.subject)? {
            let rule = view.sign_up_rule(domain.id)?;
            all.push(SignUpRuleView {
                domain: domain.name.to_string(),
                addresses: rule.map(|rule| rule.told()),
            });
        }
        Ok(all)
    })
}

/// Says who may ask for an account of a domain. What waits stays.
///
/// Errors: `sign-up.rule-invalid`, `domain.not-found`, `role.administrator-needed`.
pub async fn set_rule(
    server: &Server,
    caller: &Caller,
    asked: SignUpRuleBody,
) -> Result<SignUpRuleView, Failure> {
    somewhere(caller, Permission::UsersWrite)?;
    let typed = asked.addresses.as_deref().map(str::trim);
    let typed = typed.filter(|text| !text.is_empty());
    let rule = typed.map(SignUpRule::parse).transpose()?;
    let named = asked.domain.as_deref().map(str::trim);
    let named = named.filter(|name| !name.is_empty()).map(str::to_owned);
    let caller = caller.clone();
    server
        .catalog()
        .write(Lane::Requests, "say who may sign up", move |rows| {
            let subject = &caller.subject;
            let which = named.unwrap_or_else(|| subject.domain.0.to_string());
            let domain = find_domain(rows, subject, &which);
            let domain = domain.map_err(|failure| failure.at("/domain"))?;
            may(subject, Permission::UsersWrite, &Scope::domain(domain.id))?;
            let before = rows.sign_up_rule(domain.id)?;
            if before != rule {
                rows.put_sign_up_rule(domain.id, rule.as_ref())?;
                let told = |rule: &Option<SignUpRule>| {
                    rule.as_ref().map_or_else(String::new, SignUpRule::told)
                };
                rows.note(NewEvent {
                    actor: caller.name.as_str(),
                    topic: "users",
                    object: domain.name.as_str(),
                    scope: Scope::domain(domain.id),
                    code: "user.sign-up-set",
                    before: &told(&before),
                    after: &told(&rule),
                })?;
            }
            Ok(SignUpRuleView {
                domain: domain.name.to_string(),
                addresses: rule.map(|rule| rule.told()),
            })
        })
        .await
}

/// Domains whose users the subject sees, by name.
fn managed(view: &ReadTransaction<'_>, subject: &Subject) -> Result<Vec<Domain>, Failure> {
    let reach = reach(subject, Permission::UsersRead);
    let mut domains = view.domains()?;
    domains.retain(|domain| reach.covers(&Scope::domain(domain.id)));
    Ok(domains)
}

/// The request that is meant, where the subject decides on it. One of another domain is not theirs to know.
fn find(view: &ReadTransaction<'_>, subject: &Subject, which: &str) -> Result<SignUpRow, Failure> {
    let found = match which.parse::<SignUpId>() {
        Ok(id) => view.sign_up(id)?,
        Err(_) => None,
    };
    let found = found.ok_or_else(refusals::sign_up_not_found)?;
    let scope = Scope::domain(found.domain);
    if !reach(subject, Permission::UsersRead).covers(&scope) {
        return Err(refusals::sign_up_not_found().into());
    }
    may(subject, Permission::UsersWrite, &scope)?;
    Ok(found)
}

fn show(
    view: &ReadTransaction<'_>,
    domain: &Domain,
    row: SignUpRow,
) -> Result<SignUpView, Failure> {
    let is_taken =
        view.user_named(row.name.as_str())?.is_some() || view.user_by_email(&row.email)?.is_some();
    Ok(SignUpView {
        id: row.id.0,
        domain: domain.name.to_string(),
        name: row.name.to_string(),
        full_name: row.full_name,
        email: row.email.to_string(),
        note: row.note,
        source: row.source,
        is_taken,
        asked_at: row.asked_at,
        declined_at: row.declined_at,
        declined_by: row.declined_by,
    })
}

fn note(
    rows: &Rows<'_>,
    caller: &Caller,
    (row, object): (&SignUpRow, &str),
    code: &str,
    after: &str,
) -> Result<(), Failure> {
    rows.note(NewEvent {
        actor: caller.name.as_str(),
        topic: "users",
        object,
        scope: Scope::domain(row.domain),
        code,
        before: "",
        after,
    })
}

#[cfg(test)]
mod tests;
