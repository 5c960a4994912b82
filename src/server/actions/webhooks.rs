//! Webhooks of the site: administrators of the site name addresses that are told of events, and what each is told of. The
//! secret that signs is given this once. What is told, `hand_over::webhooks` sends.

use api::secret::SecretText;
use api::webhooks::{NewWebhookBody, WebhookPatchBody, WebhookTrial, WebhookView};
use base::addresses::is_own_host;
use rules::names::{TenantName, WebhookId};
use rules::permissions::Permission;
use rules::provider::WebAddress;
use rules::refusals;
use rules::tenancy::Scope;
use rules::webhook::{check_address, check_kinds};

use super::allowed;
use crate::access::{Caller, secret};
use crate::catalog::events::NewEvent;
use crate::catalog::webhooks::WebhookRow;
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::hand_over::webhooks;
use crate::{Failure, Server};

/// Webhooks of the site. Higher: each event goes out more often. Lower: a site with a few programs has to share one.
const MAX_WEBHOOKS: usize = 10;
/// What a secret begins with, so that a program that finds one knows it.
const PREFIX: &str = "fardel_hook_";

/// The webhooks of the site, by their names. Those who may not change them see no paths.
///
/// Errors: `denied` without `system:read`.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<WebhookView>, Failure> {
    allowed(caller, Permission::SystemRead)?;
    let rows = server
        .catalog()
        .read("list webhooks", |view| view.webhooks())
        .await?;
    let rows = rows.into_iter();
    Ok(rows.map(|row| shown(server, caller, row)).collect())
}

/// One of `list`, by name or id. Errors: as `list`; `webhook.not-found`.
pub async fn get(server: &Server, caller: &Caller, id: &str) -> Result<WebhookView, Failure> {
    let all = list(server, caller).await?;
    let found = all
        .into_iter()
        .find(|one| one.name == id || one.id.to_string() == id);
    found.ok_or_else(|| refusals::webhook_not_found().into())
}

/// Names an address; it is told of what happens from now on. Gives what signs its requests, this once.
///
/// Errors: `denied` without `system:write`; `webhook.name-invalid`, `webhook.name-taken`, `webhook.address`, `webhook.kinds`,
/// `webhook.too-many`.
pub async fn create(
    server: &Server,
    caller: &Caller,
    asked: NewWebhookBody,
) -> Result<(WebhookView, SecretText), Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let name = TenantName::parse(asked.name.trim())
        .map_err(|_| refusals::webhook_name_invalid().at("/name"))?;
    let address = check_address(&asked.address, is_own_host)?;
    let kinds = check_kinds(&asked.kinds)?;
    let made = secret::draw(PREFIX);
    let (kept, actor) = (made.clone(), caller.clone());
    let row = server
        .catalog()
        .write(Lane::Requests, "make a webhook", move |rows| {
            let known = rows.webhooks()?;
            if known.iter().any(|row| row.name == name.as_str()) {
                return Err(refusals::webhook_name_taken(&name).at("/name").into());
            }
            if known.len() >= MAX_WEBHOOKS {
                return Err(refusals::webhook_too_many(MAX_WEBHOOKS).into());
            }
            let row = WebhookRow {
                id: WebhookId::make(rows.now, base::observe::random()),
                name: name.as_str().to_owned(),
                address,
                kinds,
                active: true,
                created_at: rows.now,
                generation: 1,
                seen: rows.event_range()?.1,
                lost: 0,
                lost_at: None,
                delivered_at: None,
            };
            rows.insert_webhook(&row, &kept)?;
            note(rows, &actor, &row, "webhook.added", "", &told(&row))?;
            Ok(row)
        })
        .await?;
    Ok((shown(server, caller, row), made))
}

/// Changes a webhook; its name and its secret stay. One that is switched on again is told of what happens from then on.
///
/// Errors: as `create`; `webhook.not-found`, `webhook.stale`.
pub async fn change(
    server: &Server,
    caller: &Caller,
    id: &str,
    patch: WebhookPatchBody,
    if_match: Option<u64>,
) -> Result<WebhookView, Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let address = patch
        .address
        .map(|text| check_address(&text, is_own_host))
        .transpose()?;
    let kinds = patch.kinds.map(|kinds| check_kinds(&kinds)).transpose()?;
    let (actor, id) = (caller.clone(), id.to_owned());
    let row = server
        .catalog()
        .write(Lane::Requests, "change a webhook", move |rows| {
            let was = find(rows, &id)?;
            if if_match.is_some_and(|seen| seen != was.generation) {
                return Err(refusals::webhook_stale(was.generation).into());
            }
            let active = patch.active.unwrap_or(was.active);
            let is = WebhookRow {
                address: address.unwrap_or_else(|| was.address.clone()),
                kinds: kinds.unwrap_or_else(|| was.kinds.clone()),
                active,
                seen: match active && !was.active {
                    true => rows.event_range()?.1,
                    false => was.seen,
                },
                generation: was.generation + 1,
                ..was.clone()
            };
            rows.put_webhook(&is)?;
            note(
                rows,
                &actor,
                &is,
                "webhook.changed",
                &told(&was),
                &told(&is),
            )?;
            Ok(is)
        })
        .await?;
    server.webhooks().put_well(row.id);
    Ok(shown(server, caller, row))
}

/// Removes a webhook: it is told of nothing any more. Errors: `denied` without `system:write`; `webhook.not-found`.
pub async fn remove(server: &Server, caller: &Caller, id: &str) -> Result<(), Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let (actor, id) = (caller.clone(), id.to_owned());
    let row = server
        .catalog()
        .write(Lane::Requests, "remove a webhook", move |rows| {
            let row = find(rows, &id)?;
            rows.forget_webhook(row.id)?;
            note(rows, &actor, &row, "webhook.removed", &told(&row), "")?;
            Ok(row)
        })
        .await?;
    server.webhooks().put_well(row.id);
    Ok(())
}

/// Sends a webhook one signed request without events. That it does not take it is what comes of it, and no refusal.
///
/// Errors: `denied` without `system:write`; `webhook.not-found`.
pub async fn test(server: &Server, caller: &Caller, id: &str) -> Result<WebhookTrial, Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let wanted = id.to_owned();
    let row = server
        .catalog()
        .read("find a webhook", move |view| find(view, &wanted))
        .await?;
    let tried = webhooks::tried(server, &row).await;
    if tried.is_ok() {
        server.webhooks().put_well(row.id);
    }
    let trial = WebhookTrial {
        works: tried.is_ok(),
        answer: tried.clone().unwrap_or_default(),
        problem: tried.err().unwrap_or_default(),
    };
    let (actor, after) = (caller.clone(), trial.clone());
    server
        .catalog()
        .write(Lane::Requests, "note a trial of a webhook", move |rows| {
            let came = match after.works {
                true => &after.answer,
                false => &after.problem,
            };
            note(rows, &actor, &row, "webhook.tested", "", came)
        })
        .await?;
    Ok(trial)
}

fn find(view: &ReadTransaction<'_>, id: &str) -> Result<WebhookRow, Failure> {
    let mut rows = view.webhooks()?.into_iter();
    let found = rows.find(|row| row.name == id || row.id.to_string() == id);
    found.ok_or_else(|| refusals::webhook_not_found().into())
}

fn shown(server: &Server, caller: &Caller, row: WebhookRow) -> WebhookView {
    let trouble = server.webhooks().trouble(row.id);
    let may_change = caller.subject.can(Permission::SystemWrite);
    WebhookView {
        id: row.id.0,
        name: row.name,
        address: match may_change {
            true => row.address,
            false => place(&row.address),
        },
        kinds: row.kinds,
        active: row.active,
        created_at: row.created_at,
        delivered_at: row.delivered_at,
        lost: row.lost,
        lost_at: row.lost_at,
        problem_since: trouble.as_ref().map(|trouble| trouble.since),
        problem: trouble.map(|trouble| trouble.why).unwrap_or_default(),
        generation: row.generation,
    }
}

/// An address without its path, which may hold a secret of the receiver's.
fn place(address: &str) -> String {
    WebAddress::parse(address).map_or_else(String::new, |parsed| parsed.origin())
}

/// A webhook as an event keeps it.
fn told(row: &WebhookRow) -> String {
    let switch = if row.active { "on" } else { "off" };
    format!(
        "{switch}, {}: {}",
        place(&row.address),
        row.kinds.join(", ")
    )
}

fn note(
    rows: &Rows<'_>,
    caller: &Caller,
    row: &WebhookRow,
    code: &str,
    before: &str,
    after: &str,
) -> Result<(), Failure> {
    rows.note(NewEvent {
        actor: caller.name.as_str(),
        topic: "system",
        object: &row.name,
        scope: Scope::SITE,
        code,
        before,
        after,
    })
}

#[cfg(test)]
mod tests;
