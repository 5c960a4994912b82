//! The audit log as its readers see it: acts of their reach page by page, an export that can be verified without this
//! server, and signed checkpoints. A user reads their own acts, a lead those of their projects, administrators and auditors
//! those of their domain or of the site.

use api::audit::{
    AuditCheckpointView, AuditEntryView, AuditExportCheckpoint, AuditExportHead, AuditExportQuery,
    AuditExportRow, AuditQuery, AuditSearchPage, AuditTargetView,
};
use api::events::EventView;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rules::audit::{AuditCheckpoint, AuditStatement, EXPORT_FORM, hex};
use rules::names::UserId;
use rules::permissions::{Extent, Permission, Reach, reach};
use rules::refusals;
use rules::session::{TextField, plain, text};
use rules::tenancy::Scope;
use serde::Serialize;

use super::query::MAX_QUERY_LENGTH;
use super::{allowed, cursor, journal};
use crate::access::{Caller, repeated};
use crate::catalog::audit::{
    ActingUser, AuditFilter, AuditPlace, AuditRow, ChainRow, CheckpointRow, FoundActs, NewAct,
};
use crate::catalog::{Lane, ReadTransaction};
use crate::hand_over::{self, TargetStanding};
use crate::{Failure, Server, ServerFault};

/// Acts on one page.
pub const PAGE: u32 = 50;
/// Acts on the largest page of a program.
const MAX_PAGE_ACTS: u32 = 500;
/// Acts in one download of a table.
const MAX_EXPORTED: u32 = 10_000;
/// Rows that an export reads at once. Higher: it holds a reader of the catalog for longer. Lower: more reads.
const EXPORT_PART: u32 = 1_000;
/// Checkpoints that are listed. Higher: the answer is longer. Lower: those of years ago are in exports alone.
const MAX_CHECKPOINTS: u32 = 1_000;

/// Which part of what is found a page shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AuditPart {
    /// Found acts before the page.
    pub offset: u64,
    /// Leaves out newer ones.
    pub before: Option<AuditPlace>,
}

/// Some acts for a page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundAudit {
    pub page: AuditSearchPage,
    /// Where older ones begin that were not counted.
    pub older: Option<AuditPlace>,
}

/// A page of the acts that the caller may read, with a cursor to older ones. Costs a visit to what the index of user, object
/// or time finds, at most 10,000 acts of it.
///
/// Errors: `limit.out-of-range`, `cursor.invalid`, `query.…` for a text that is too long or cannot be shown.
pub async fn list(
    server: &Server,
    caller: &Caller,
    wanted: &AuditQuery,
) -> Result<AuditSearchPage, Failure> {
    let limit = wanted.limit.unwrap_or(PAGE);
    if !(1..=MAX_PAGE_ACTS).contains(&limit) {
        let refusal = refusals::limit_out_of_range(MAX_PAGE_ACTS);
        return Err(refusal.at("/limit").into());
    }
    let AuditQuery {
        user,
        act,
        object,
        since,
        until,
        limit: _,
        cursor: asked,
    } = wanted;
    let bound = (caller.subject.user, user, act, object, since, until);
    let bound = format!("audit|{bound:?}");
    let signing = server.catalog().founding().cursor_key;
    let before = match asked.as_deref() {
        None | Some("") => None,
        Some(text) => Some(cursor::read(&signing, &bound, text)?),
    };
    let part = AuditPart { offset: 0, before };
    let found = found(server, caller, wanted, part, limit).await?.page;
    let more = found.estimated_total > found.items.len() as u64;
    let last = found.items.last().filter(|_| more);
    let place = last.map(|last| (last.at.as_millis(), last.sequence));
    Ok(AuditSearchPage {
        next_cursor: place.map(|place| cursor::write(&signing, &bound, &place)),
        ..found
    })
}

/// A page of acts for the console. Costs as `list`.
///
/// Errors: as `list`.
pub async fn page(
    server: &Server,
    caller: &Caller,
    wanted: &AuditQuery,
    part: AuditPart,
) -> Result<FoundAudit, Failure> {
    found(server, caller, wanted, part, PAGE).await
}

/// The newest acts for a table in a file, at most 10,000.
///
/// Errors: as `list`.
pub async fn table(
    server: &Server,
    caller: &Caller,
    wanted: &AuditQuery,
) -> Result<FoundAudit, Failure> {
    let found = found(server, caller, wanted, AuditPart::default(), MAX_EXPORTED).await?;
    note_export(server, caller, found.page.items.len().to_string()).await?;
    Ok(found)
}

/// The caller's own newest acts, at most `most`.
pub async fn own(
    server: &Server,
    caller: &Caller,
    most: u32,
) -> Result<Vec<AuditEntryView>, Failure> {
    allowed(caller, Permission::Me)?;
    let reach = rules::permissions::own(&caller.subject);
    let found = server
        .catalog()
        .read("list own acts", move |view| {
            let filter = AuditFilter::default();
            shown(view, view.search_acts(&reach, &filter, None, (0, most))?)
        })
        .await?;
    Ok(found.page.items)
}

/// True where the caller reads acts of others.
pub fn sees_others(caller: &Caller) -> bool {
    match reach(&caller.subject, Permission::AuditRead).extent() {
        Extent::Nothing => false,
        Extent::Some {
            projects, domains, ..
        } => !projects.is_empty() || !domains.is_empty(),
        Extent::Everything => true,
    }
}

async fn found(
    server: &Server,
    caller: &Caller,
    wanted: &AuditQuery,
    part: AuditPart,
    limit: u32,
) -> Result<FoundAudit, Failure> {
    allowed(caller, Permission::AuditRead)?;
    for (pointer, value) in [
        ("/user", &wanted.user),
        ("/act", &wanted.act),
        ("/object", &wanted.object),
    ] {
        text(TextField::Query, pointer, value, MAX_QUERY_LENGTH)?;
        plain(TextField::Query, pointer, value)?;
    }
    let reach = reach(&caller.subject, Permission::AuditRead);
    let (wanted, subject) = (wanted.clone(), caller.subject.clone());
    server
        .catalog()
        .read("search the audit log", move |view| {
            let user = wanted.user.trim();
            let actors = match user {
                "" => None,
                name => Some(view.accounts_named(name)?),
            };
            let object = wanted.object.trim();
            let objects = match object {
                "" => Vec::new(),
                object => {
                    let heard = rules::permissions::heard(&subject);
                    let called = view.sessions_called(&heard, object)?;
                    let sessions = called.iter().map(|session| session.id.to_string());
                    let accounts = view.accounts_named(object)?;
                    let accounts = accounts.iter().map(UserId::to_string);
                    let all = sessions.chain(accounts).chain([object.to_owned()]);
                    all.collect()
                }
            };
            let filter = AuditFilter {
                actors,
                act: wanted.act.trim().to_owned(),
                objects,
                since: wanted.since,
                until: wanted.until,
            };
            let part = view.search_acts(&reach, &filter, part.before, (part.offset, limit))?;
            shown(view, part)
        })
        .await
}

fn shown(view: &ReadTransaction<'_>, found: FoundActs) -> Result<FoundAudit, Failure> {
    let items = found
        .rows
        .iter()
        .map(|row| entry(view, row))
        .collect::<Result<Vec<_>, Failure>>()?;
    let things: Vec<EventView> = items.iter().map(as_event).collect();
    Ok(FoundAudit {
        page: AuditSearchPage {
            names: journal::names(view, &things)?,
            items,
            next_cursor: None,
            estimated_total: found.count,
        },
        older: found.older,
    })
}

/// The same as an event, for what is said of both.
pub fn as_event(entry: &AuditEntryView) -> EventView {
    EventView {
        sequence: entry.sequence,
        at: entry.at,
        actor: entry.actor.clone(),
        topic: entry.topic.clone(),
        object: entry.object.clone(),
        code: entry.act.clone(),
        before: entry.before.clone(),
        after: entry.after.clone(),
    }
}

fn entry(view: &ReadTransaction<'_>, row: &AuditRow) -> Result<AuditEntryView, Failure> {
    let told: AuditStatement = serde_json::from_str(&row.statement)
        .map_err(|error| ServerFault::new("read a row of the audit log", error))?;
    let domain = match told.domain {
        Some(id) => view.domain(id)?.map(|domain| domain.name.to_string()),
        None => None,
    };
    let project = match told.project {
        Some(id) => view.project(id)?.map(|project| project.name.to_string()),
        None => None,
    };
    Ok(AuditEntryView {
        sequence: told.sequence,
        at: told.at,
        actor: told.actor,
        actor_id: told.actor_id,
        via: told.via,
        credential: told.credential,
        address: told.address,
        act: told.act,
        topic: told.topic,
        object: told.object,
        domain,
        project,
        before: told.before,
        after: told.after,
        reason: told.reason,
        request: told.request,
    })
}

/// The newest checkpoints, newest first, at most 1,000.
///
/// Errors: `audit.export-own` for those who see their own acts alone.
pub async fn checkpoints(
    server: &Server,
    caller: &Caller,
) -> Result<Vec<AuditCheckpointView>, Failure> {
    of_others(caller)?;
    let rows = server
        .catalog()
        .read("list checkpoints", |view| {
            view.newest_checkpoints(MAX_CHECKPOINTS)
        })
        .await?;
    Ok(rows.iter().map(checkpoint_view).collect())
}

/// The newest checkpoint; None while nothing was signed.
///
/// Errors: as `checkpoints`.
pub async fn newest_checkpoint(
    server: &Server,
    caller: &Caller,
) -> Result<Option<AuditCheckpointView>, Failure> {
    of_others(caller)?;
    let kept = server
        .catalog()
        .read_now("look for the newest checkpoint", |view| {
            view.newest_checkpoints(1)
        })?;
    Ok(kept.first().map(checkpoint_view))
}

/// How far the log was handed over to each place outside that is set; empty where none is.
///
/// Errors: `denied` without `system:read`.
pub async fn targets(server: &Server, caller: &Caller) -> Result<Vec<AuditTargetView>, Failure> {
    allowed(caller, Permission::SystemRead)?;
    let standings = hand_over::standings(server)?;
    Ok(standings.into_iter().map(target_view).collect())
}

fn target_view(standing: TargetStanding) -> AuditTargetView {
    let problem_since = standing.trouble.as_ref().map(|trouble| trouble.since);
    AuditTargetView {
        target: standing.target.word().to_owned(),
        place: standing.place,
        delivered: standing.delivered,
        delivered_at: standing.delivered_at,
        waiting: standing.waiting,
        lost: standing.lost,
        problem: standing
            .trouble
            .map(|trouble| trouble.why)
            .unwrap_or_default(),
        problem_since,
    }
}

/// Signs the log up to its newest row, which says so.
///
/// Errors: `denied` without `system:write`; those of the certificates.
pub async fn sign(server: &Server, caller: &Caller) -> Result<AuditCheckpointView, Failure> {
    allowed(caller, Permission::SystemWrite)?;
    record(server, caller, "audit.signed", String::new()).await?;
    let made = checkpoint(server).await?;
    let made = made.ok_or_else(|| ServerFault::new("sign the audit log", "it has no row"))?;
    Ok(checkpoint_view(&made))
}

fn checkpoint_view(row: &CheckpointRow) -> AuditCheckpointView {
    AuditCheckpointView {
        sequence: row.sequence,
        at: row.at,
        hash: hex(&row.hash),
        checkpoint: row.statement.clone(),
        signature: STANDARD.encode(&row.signature),
    }
}

/// Signs the newest row and keeps the checkpoint; gives the one that is kept where nothing was done since. None while there
/// is no row.
pub(crate) async fn checkpoint(server: &Server) -> Result<Option<CheckpointRow>, Failure> {
    let (newest, hash, kept) = server.catalog().read_now("look at the audit log", |view| {
        let (newest, hash) = view.newest_act()?;
        Ok((newest, hash, view.newest_checkpoints(1)?))
    })?;
    if newest == 0 {
        return Ok(None);
    }
    if let Some(kept) = kept.into_iter().find(|kept| kept.sequence == newest) {
        return Ok(Some(kept));
    }
    let made = signed(server, newest, hash)?;
    let written = made.clone();
    server
        .catalog()
        .write(Lane::Loops, "keep a checkpoint", move |rows| {
            rows.mute_acts();
            rows.put_checkpoint(&written)
        })
        .await?;
    Ok(Some(made))
}

fn signed(
    server: &Server,
    sequence: u64,
    hash: rules::audit::AuditHash,
) -> Result<CheckpointRow, Failure> {
    let at = server.clock().now();
    let made = AuditCheckpoint::new(server.installation_id(), sequence, &hash, at);
    let statement = made.statement();
    let signature = server
        .certificates()?
        .sign(statement.as_bytes())
        .map_err(crate::appliance::lazy_stores::tls_failure)?;
    Ok(CheckpointRow {
        sequence,
        at,
        hash,
        statement,
        signature,
    })
}

fn of_others(caller: &Caller) -> Result<(), Failure> {
    allowed(caller, Permission::AuditRead)?;
    match sees_others(caller) {
        true => Ok(()),
        false => Err(refusals::audit_export_own().into()),
    }
}

async fn note_export(server: &Server, caller: &Caller, what: String) -> Result<(), Failure> {
    record(server, caller, "audit.exported", what).await
}

/// Records an act on the audit log itself.
async fn record(
    server: &Server,
    caller: &Caller,
    act: &'static str,
    after: String,
) -> Result<(), Failure> {
    let (name, user) = (caller.name.clone(), caller.subject.user);
    let domain = caller.subject.domain;
    server
        .catalog()
        .write(
            Lane::Requests,
            "note an act on the audit log",
            move |rows| {
                rows.record(NewAct {
                    actor: ActingUser::Known {
                        user,
                        name: name.as_str(),
                        domain,
                    },
                    act,
                    topic: "system",
                    object: "audit",
                    scope: Scope::user(user),
                    before: "",
                    after: &after,
                    reason: "",
                })
            },
        )
        .await
}

/// An export under way: JSON lines, read part by part.
pub struct AuditExport {
    server: Server,
    reach: Reach,
    /// Whose acts are told; None: of everybody in reach.
    actors: Option<Vec<UserId>>,
    next: u64,
    last: u64,
    /// What stands before the first row; taken with the first part.
    head: Option<String>,
    /// The signed end; taken with the last part.
    end: Option<String>,
}

/// Begins an export of all rows between two times: statements of what the caller may read, digests of the rest, the kept
/// checkpoints among them, and a signature over the last row. It begins and ends with rows of the log as it is now.
///
/// With a user, statements are of their acts alone, and digests stand for all others: the chain proves that no row was taken
/// out, not whose acts the digests are.
///
/// Errors: `audit.export-own` for those who see their own acts alone; `query.…`; those of the certificates.
pub async fn export(
    server: &Server,
    caller: &Caller,
    wanted: &AuditExportQuery,
) -> Result<AuditExport, Failure> {
    of_others(caller)?;
    text(TextField::Query, "/user", &wanted.user, MAX_QUERY_LENGTH)?;
    plain(TextField::Query, "/user", &wanted.user)?;
    repeated::flush(server, true).await?;
    let told = [wanted.since, wanted.until]
        .map(|at| at.map_or_else(String::new, |at| at.to_string()))
        .join("/");
    let user = wanted.user.trim().to_owned();
    let told = match user.is_empty() {
        true => told,
        false => format!("{told} {user}"),
    };
    note_export(server, caller, told).await?;
    let (since, until) = (wanted.since, wanted.until);
    let (first, last, previous, hash, anchor, actors) = server
        .catalog()
        .read("begin an export", move |view| {
            let (first, last) = match view.acts_between(since, until)? {
                Some(found) => found,
                // Nothing happened then: an empty export behind the newest row.
                None => {
                    let newest = view.newest_act()?.0;
                    (newest + 1, newest)
                }
            };
            let before = first.saturating_sub(1);
            let anchor = view.checkpoints_between(before, before)?;
            Ok((
                first,
                last,
                view.hash_before(first)?,
                view.hash_before(last + 1)?,
                anchor.into_iter().next(),
                match user.is_empty() {
                    true => None,
                    false => Some(view.accounts_named(&user)?),
                },
            ))
        })
        .await?;
    let mut head = String::new();
    line(
        &mut head,
        &AuditExportHead {
            audit: EXPORT_FORM,
            installation: server.installation_id(),
            first,
            previous: hex(&previous),
        },
    )?;
    if let Some(anchor) = anchor {
        checkpoint_line(&mut head, &anchor)?;
    }
    let mut end = String::new();
    checkpoint_line(&mut end, &signed(server, last, hash)?)?;
    Ok(AuditExport {
        server: server.clone(),
        reach: reach(&caller.subject, Permission::AuditRead),
        actors,
        next: first,
        last,
        head: Some(head),
        end: Some(end),
    })
}

impl AuditExport {
    /// The next lines; None after the last. A fault where rows were forgotten meanwhile: what was written so far has no
    /// signed end and is refused by `verify`.
    pub async fn part(&mut self) -> Result<Option<String>, Failure> {
        let mut text = self.head.take().unwrap_or_default();
        if self.next <= self.last {
            let (reach, from) = (self.reach.clone(), self.next);
            let actors = self.actors.clone();
            let (rows, checkpoints) = self
                .server
                .catalog()
                .read("read an export", move |view| {
                    let rows = view.chain(&reach, actors.as_deref(), from, EXPORT_PART)?;
                    let last = rows.last().map_or(from, |row| row.sequence);
                    Ok((rows, view.checkpoints_between(from, last)?))
                })
                .await?;
            let mut checkpoints = checkpoints.into_iter().peekable();
            for row in rows.iter().take_while(|row| row.sequence <= self.last) {
                if row.sequence != self.next {
                    let gap = format!("row {} is not there", self.next);
                    return Err(ServerFault::new("read an export", gap).into());
                }
                self.next += 1;
                row_line(&mut text, row)?;
                let at_row = |kept: &CheckpointRow| kept.sequence == row.sequence;
                if let Some(kept) = checkpoints.next_if(at_row) {
                    checkpoint_line(&mut text, &kept)?;
                }
            }
            if rows.is_empty() {
                return Err(ServerFault::new("read an export", "rows were forgotten").into());
            }
        }
        if self.next > self.last {
            text.push_str(&self.end.take().unwrap_or_default());
        }
        Ok(Some(text).filter(|text| !text.is_empty()))
    }
}

fn row_line(text: &mut String, row: &ChainRow) -> Result<(), Failure> {
    line(
        text,
        &AuditExportRow {
            sequence: row.sequence,
            statement: row.statement.as_deref(),
            digest: row.statement.is_none().then(|| hex(&row.digest)),
            hash: hex(&row.hash),
        },
    )
}

fn checkpoint_line(text: &mut String, row: &CheckpointRow) -> Result<(), Failure> {
    line(
        text,
        &AuditExportCheckpoint {
            checkpoint: &row.statement,
            signature: STANDARD.encode(&row.signature),
        },
    )
}

fn line(text: &mut String, value: &impl Serialize) -> Result<(), Failure> {
    let written = serde_json::to_string(value)
        .map_err(|error| ServerFault::new("write a line of an export", error))?;
    text.push_str(&written);
    text.push('\n');
    Ok(())
}

#[cfg(test)]
mod at_size;
#[cfg(test)]
mod tests;
