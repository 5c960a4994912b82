//! Tells webhooks of events: each behind a cursor of its own, in order and at least once, in requests that are signed. A dead
//! one delays no other and no commit; what it was not told within three days it is never told, and that is counted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::events::EventView;
use base::observe::chain;
use ring::hmac;
use rules::audit::hex;
use rules::names::WebhookId;
use rules::provider::WebAddress;
use rules::units::Timestamp;
use rules::webhook::{signed_text, tells_of};
use serde::Serialize;
use tokio::task::JoinSet;

use super::post::{self, PostedRequest};
use super::receiver::{Protection, ReceiverPlan};
use super::{HandOverFault, HandOverTrouble, Handed, MAX_HANDING_OVER, pause};
use crate::catalog::Lane;
use crate::catalog::events::EventRow;
use crate::catalog::webhooks::WebhookRow;
use crate::{Failure, Server};

/// Events of one look, of all kinds.
const MAX_LOOKED: u32 = 500;
/// Events of one request. Higher: more arrive twice after a crash. Lower: a burst takes more requests.
const MAX_TOLD: usize = 100;
/// Hours after which an event is told no more. Longer: a program that is back is told what is past. Shorter: a weekend
/// without it loses events.
pub(crate) const TOLD_HOURS: u64 = 72;
/// Events of other kinds for which the cursor is not written. Higher: more is looked through again after a restart. Lower:
/// each of them costs a commit.
const UNWRITTEN: u64 = 1_000;
/// Between a commit and the look for its events: what happens together goes in one request.
const GATHERED: Duration = Duration::from_secs(1);
/// Between two full requests.
const BETWEEN: Duration = Duration::from_millis(50);
/// Between two looks while no commit comes.
const LOOK: Duration = Duration::from_secs(60);
/// Longest time of a trial, for which an administrator waits.
const MAX_WEBHOOK_TRIAL: Duration = Duration::from_secs(5);
/// What is said with a request: when it was signed, the signature, and which one it is.
const TIMESTAMP: &str = "x-fardel-timestamp";
const SIGNATURE: &str = "x-fardel-signature";
pub(crate) const DELIVERY: &str = "x-fardel-delivery";

/// Why webhooks take nothing at the moment, by their ids.
#[derive(Default)]
pub(crate) struct WebhookState(Mutex<BTreeMap<WebhookId, HandOverTrouble>>);

impl WebhookState {
    fn locked(&self) -> MutexGuard<'_, BTreeMap<WebhookId, HandOverTrouble>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the trouble of a webhook; true where there was one.
    pub(crate) fn put_well(&self, id: WebhookId) -> bool {
        self.locked().remove(&id).is_some()
    }

    /// Notes why a webhook takes nothing; true where it did before.
    fn put_trouble(&self, id: WebhookId, now: Timestamp, why: String) -> bool {
        let mut troubles = self.locked();
        let known = troubles.get(&id).map(|trouble| trouble.since);
        let since = known.unwrap_or(now);
        troubles.insert(id, HandOverTrouble { since, why });
        known.is_none()
    }

    pub(crate) fn trouble(&self, id: WebhookId) -> Option<HandOverTrouble> {
        self.locked().get(&id).cloned()
    }
}

/// What a request says. Field by field, so that the body has one form.
#[derive(Serialize)]
struct ToldEvents<'a> {
    /// Name of the webhook.
    webhook: &'a str,
    /// Empty in a trial.
    events: Vec<EventView>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    test: bool,
}

/// Tells every webhook what there is and what comes, until it is dropped or the catalog's writer has ended.
pub(crate) async fn keep(server: Server) {
    let mut revision = server.catalog().revision();
    let mut running = JoinSet::new();
    let mut known = BTreeSet::new();
    loop {
        // Before the look: a commit during it is looked at too.
        revision.mark_unchanged();
        let found = server
            .catalog()
            .read_now("look for webhooks", |view| view.webhooks());
        for row in found.unwrap_or_default() {
            if row.active && known.insert(row.id) {
                running.spawn(keep_one(server.clone(), row.id));
            }
        }
        tokio::select! {
            Some(ended) = running.join_next() => {
                // One that ended by a fault of ours is begun again at the next start of the server.
                if let Ok(id) = ended {
                    known.remove(&id);
                }
            }
            changed = tokio::time::timeout(LOOK, revision.changed()) => {
                if let Ok(Err(_)) = changed {
                    return;
                }
            }
        }
        tokio::time::sleep(GATHERED).await;
    }
}

/// Tells one webhook until it is switched off or removed.
async fn keep_one(server: Server, id: WebhookId) -> WebhookId {
    let mut revision = server.catalog().revision();
    let (mut failures, mut seen) = (0_u32, 0);
    loop {
        revision.mark_unchanged();
        match tell_next(&server, id, &mut seen).await {
            Ok(None) => {
                server.webhooks().put_well(id);
                return id;
            }
            Ok(Some(Handed::Part)) => {
                failures = 0;
                tokio::time::sleep(BETWEEN).await;
            }
            Ok(Some(Handed::All)) => {
                failures = 0;
                if let Ok(Err(_)) = tokio::time::timeout(LOOK, revision.changed()).await {
                    return id;
                }
                tokio::time::sleep(GATHERED).await;
            }
            Err(fault) => {
                failures = failures.saturating_add(1);
                note(&server, id, &fault);
                tokio::time::sleep(pause(failures)).await;
            }
        }
    }
}

/// Notes why a webhook takes nothing, and logs the first time.
pub(crate) fn note(server: &Server, id: WebhookId, fault: &HandOverFault) {
    let why = chain(fault);
    let now = server.clock().now();
    if server.webhooks().put_trouble(id, now, why.clone()) {
        tracing::warn!(webhook = %id, error = %why, "a webhook is not told of events");
    }
}

/// One step: the next events for a webhook. `seen` is how far this server looked, which a row may not say yet. None where the
/// webhook is gone or switched off.
pub(crate) async fn tell_next(
    server: &Server,
    id: WebhookId,
    seen: &mut u64,
) -> Result<Option<Handed>, HandOverFault> {
    let looked = *seen;
    let read = server
        .catalog()
        .read("read what a webhook is told", move |view| {
            let Some(row) = view.webhook(id)?.filter(|row| row.active) else {
                return Ok(None);
            };
            let events = view.events_behind(row.seen.max(looked), MAX_LOOKED)?;
            Ok(Some((row, events)))
        })
        .await?;
    let Some((row, events)) = read else {
        return Ok(None);
    };
    let is_full = events.len() == MAX_LOOKED as usize;
    let now = server.clock().now();
    let Some(step) = next_of(&row, events, now) else {
        return Ok(Some(Handed::All));
    };
    let NextTold {
        told,
        last,
        lost,
        is_cut,
    } = step;
    let delivered = !told.is_empty();
    if delivered {
        send(server, &row, told, now).await?;
    }
    if delivered || lost > 0 || last - row.seen > UNWRITTEN {
        server
            .catalog()
            .write_of_server(Lane::Loops, "note what a webhook was told", move |rows| {
                rows.record_webhook(id, last)?;
                rows.count_lost_of_webhook(id, lost)?;
                match delivered {
                    true => rows.note_webhook_delivered(id),
                    false => Ok(()),
                }
            })
            .await?;
    }
    *seen = last;
    if lost > 0 {
        tracing::error!(webhook = %row.name, lost, "a webhook was not told of events in time");
    }
    if delivered && server.webhooks().put_well(id) {
        tracing::info!(webhook = %row.name, "a webhook is told of events again");
    }
    Ok(Some(match is_full || is_cut {
        true => Handed::Part,
        false => Handed::All,
    }))
}

/// What a webhook is told next.
struct NextTold {
    told: Vec<EventView>,
    /// The newest event that was looked at.
    last: u64,
    /// Events of its kinds that are too old.
    lost: u64,
    /// There are more behind it.
    is_cut: bool,
}

/// The events of its kinds, within the bounds of a request; None where there are none of any kind.
fn next_of(row: &WebhookRow, events: Vec<EventRow>, now: Timestamp) -> Option<NextTold> {
    let mut next = NextTold {
        told: Vec::new(),
        last: events.first()?.sequence,
        lost: 0,
        is_cut: false,
    };
    for event in events {
        if next.told.len() == MAX_TOLD {
            next.is_cut = true;
            break;
        }
        next.last = event.sequence;
        if !tells_of(&row.kinds, &event.topic, &event.code) {
            continue;
        }
        match event.at.plus_seconds(TOLD_HOURS * 3_600) < now {
            true => next.lost += 1,
            false => next.told.push(shown(event)),
        }
    }
    Some(next)
}

fn shown(event: EventRow) -> EventView {
    EventView {
        sequence: event.sequence,
        at: event.at,
        actor: event.actor,
        topic: event.topic,
        object: event.object,
        code: event.code,
        before: event.before,
        after: event.after,
    }
}

async fn send(
    server: &Server,
    row: &WebhookRow,
    told: Vec<EventView>,
    now: Timestamp,
) -> Result<u16, HandOverFault> {
    let (first, last) = (told.first(), told.last());
    let number = |event: Option<&EventView>| event.map_or(0, |event| event.sequence);
    let delivery = format!("{}-{}-{}", row.id, number(first), number(last));
    let body = ToldEvents {
        webhook: &row.name,
        events: told,
        test: false,
    };
    post_to(server, row, &body, delivery, now, MAX_HANDING_OVER).await
}

/// Sends a request that is a trial; says what came back, or what is wrong.
pub(crate) async fn tried(server: &Server, row: &WebhookRow) -> Result<String, String> {
    let now = server.clock().now();
    let body = ToldEvents {
        webhook: &row.name,
        events: Vec::new(),
        test: true,
    };
    let delivery = format!("{}-test-{}", row.id, now.as_millis());
    let sent = post_to(server, row, &body, delivery, now, MAX_WEBHOOK_TRIAL).await;
    let said = sent.map(|status| format!("status {status}"));
    said.map_err(|fault| chain(&fault))
}

/// Posts one signed body to a webhook. Follows no redirect, and believes the receiver by the authorities that this machine
/// trusts, or by the one that is set for the audit log.
async fn post_to(
    server: &Server,
    row: &WebhookRow,
    body: &ToldEvents<'_>,
    delivery: String,
    now: Timestamp,
    limit: Duration,
) -> Result<u16, HandOverFault> {
    let id = row.id;
    let secret = server
        .catalog()
        .read_now("read the secret of a webhook", |view| {
            view.webhook_secret(id)
        })?;
    let secret = secret.ok_or(HandOverFault::Address)?;
    let address = WebAddress::parse(&row.address).ok_or(HandOverFault::Address)?;
    let protection = match address.encrypted {
        true => Protection::Tls,
        false => Protection::None,
    };
    let body = serde_json::to_string(body).map_err(std::io::Error::from)?;
    let seconds = now.as_millis() / 1000;
    let request = PostedRequest {
        address: &address,
        media_type: "application/json",
        headers: vec![
            (TIMESTAMP, seconds.to_string()),
            (SIGNATURE, signature(secret.reveal(), seconds, &body)),
            (DELIVERY, delivery),
        ],
        body,
    };
    let ca_file = server.settings().webhook_ca_file.clone();
    let sending = async {
        let plan = ReceiverPlan::read(protection, ca_file, None, limit).await?;
        post::posted(&plan, request).await
    };
    match tokio::time::timeout(limit, sending).await {
        Ok(sent) => sent,
        Err(_) => Err(HandOverFault::Late),
    }
}

/// HMAC-SHA-256 over the time and the body, as the header has it.
fn signature(secret: &str, seconds: i64, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, signed_text(seconds, body).as_bytes());
    format!("v1={}", hex(tag.as_ref()))
}

/// How webhooks stand that take nothing or lost events: name, trouble, lost, and when the last was lost.
pub(crate) fn troubled(
    server: &Server,
) -> Result<Vec<(WebhookRow, Option<HandOverTrouble>)>, Failure> {
    let rows = server
        .catalog()
        .read_now("look how webhooks stand", |view| view.webhooks())?;
    let rows = rows.into_iter().map(|row| {
        let trouble = server.webhooks().trouble(row.id);
        (row, trouble)
    });
    Ok(rows
        .filter(|(row, trouble)| trouble.is_some() || row.lost > 0)
        .collect())
}
