//! Hands the audit log over to places outside: a file, a syslog receiver, an address of HTTP. A cursor in the catalog moves
//! once a place has the rows: each row arrives at least once and in order, also where the server or the place dies. Reads
//! behind the commits and delays none of them; what was forgotten before a place had it is counted.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::connection_fault;
use base::observe::chain;
use base::settings::Settings;
use rules::hand_over::AuditTarget;
use rules::provider::WebAddress;
use rules::reasons;
use rules::units::Timestamp;

use crate::catalog::Lane;
use crate::catalog::audit::AuditRow;
use crate::{Failure, Server};

mod append;
mod post;
pub(crate) mod receiver;
mod syslog;
pub(crate) mod webhooks;

/// Rows that are read and handed over together; no more of them are in memory for one place. Higher: more arrive twice after
/// a crash. Lower: a long log takes more round trips and commits.
const MAX_BATCH_ROWS: u32 = 200;
/// Bytes of their texts, but for the first row, which goes however long it is.
const MAX_BATCH_BYTES: usize = 1 << 20;
/// Rows by which batches grow again after one that came too late halved them. More: a slow receiver gets more rows twice.
/// Fewer: one that was slow once takes longer.
const GROWN: u32 = 10;
/// Longest time from the first step towards a receiver to its answer. Longer: a dead one is noticed later. Shorter: one behind
/// a slow line gets more rows twice.
const MAX_HANDING_OVER: Duration = Duration::from_secs(10);
/// The same of a trial, for which an administrator waits.
const MAX_TRIAL: Duration = Duration::from_secs(2);
/// Between a commit and the look for its rows: acts that come together go together.
const GATHERED: Duration = Duration::from_secs(1);
/// Between two full batches. Longer: a long log takes longer. Shorter: open pages follow one commit after the other.
const BETWEEN_BATCHES: Duration = Duration::from_millis(50);
/// Between two looks while no commit comes: a setting may be another.
const LOOK: Duration = Duration::from_secs(60);
/// Longest pause after a failure. Longer: rows wait for a place that is back. Shorter: a dead one is asked for nothing.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// How long it is told that rows were lost, after the last ones. Longer: a warning of what cannot be mended hides others.
/// Shorter: an administrator who was away for a weekend does not see it.
const LOSS_TOLD_SECONDS: u64 = 7 * 86_400;

/// Why rows did not get to a place.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandOverFault {
    #[error("{}", reasons::connection_no_address().text)]
    Address,
    #[error("{}", reasons::connection_file(.0).text)]
    File(String),
    #[error("{}", reasons::connection_name_unknown().text)]
    Unknown,
    #[error("{}", reasons::connection_timed_out().text)]
    Late,
    #[error("{}", reasons::connection_status(.0).text)]
    Status(u16),
    #[error("row {0} of the audit log cannot be read")]
    Row(u64),
    #[error("{}", connection_fault::told(.0).text)]
    Connection(std::io::Error),
    #[error("{}", reasons::connection_unreadable(chain(.0)).text)]
    Protocol(hyper::Error),
    #[error(transparent)]
    Catalog(#[from] Failure),
}

// No sources: the sentences have what stands behind them.
impl From<std::io::Error> for HandOverFault {
    fn from(error: std::io::Error) -> Self {
        Self::Connection(error)
    }
}

impl From<hyper::Error> for HandOverFault {
    fn from(error: hyper::Error) -> Self {
        Self::Protocol(error)
    }
}

/// Why a place does not take rows at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HandOverTrouble {
    pub(crate) since: Timestamp,
    pub(crate) why: String,
}

/// What is remembered of the places between two looks.
#[derive(Default)]
pub(crate) struct HandOverState {
    troubles: Mutex<BTreeMap<AuditTarget, HandOverTrouble>>,
}

impl HandOverState {
    fn locked(&self) -> MutexGuard<'_, BTreeMap<AuditTarget, HandOverTrouble>> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a place takes rows; true where it did not before.
    fn put_well(&self, target: AuditTarget) -> bool {
        self.locked().remove(&target).is_some()
    }

    /// Notes why a place takes no rows; true where it did before.
    pub(crate) fn put_trouble(&self, target: AuditTarget, now: Timestamp, why: String) -> bool {
        let mut troubles = self.locked();
        let known = troubles.get(&target).map(|trouble| trouble.since);
        let since = known.unwrap_or(now);
        troubles.insert(target, HandOverTrouble { since, why });
        known.is_none()
    }

    fn trouble(&self, target: AuditTarget) -> Option<HandOverTrouble> {
        self.locked().get(&target).cloned()
    }
}

/// How one place stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TargetStanding {
    pub(crate) target: AuditTarget,
    /// Where it is, without what an address may hold beside.
    pub(crate) place: String,
    /// The newest row that it has; 0 before the first.
    pub(crate) delivered: u64,
    pub(crate) delivered_at: Option<Timestamp>,
    /// Rows that are kept and that it does not have.
    pub(crate) waiting: u64,
    /// Rows that were forgotten before it had them.
    pub(crate) lost: u64,
    /// Some of them in the last week, or just now.
    pub(crate) has_lost_lately: bool,
    pub(crate) trouble: Option<HandOverTrouble>,
}

/// How each place stands that is set. Costs a few looks by key.
pub(crate) fn standings(server: &Server) -> Result<Vec<TargetStanding>, Failure> {
    let settings = server.settings();
    let now = server.clock().now();
    let set: Vec<(AuditTarget, String)> = AuditTarget::ALL
        .into_iter()
        .filter_map(|target| Some((target, place(&settings, target)?)))
        .collect();
    if set.is_empty() {
        return Ok(Vec::new());
    }
    server
        .catalog()
        .read_now("look how the audit log is handed over", |view| {
            let (newest, _) = view.newest_act()?;
            let before_oldest = view.oldest_kept_act()?.saturating_sub(1);
            set.into_iter()
                .map(|(target, place)| {
                    let known = view.delivery(target)?;
                    let row = known.unwrap_or_default();
                    let counted = row.lost;
                    // Those that are gone since it took the last ones.
                    let gone = known.map_or(0, |row| before_oldest.saturating_sub(row.delivered));
                    let noticed = match counted {
                        0 => None,
                        _ => view.rows_lost_at(target)?,
                    };
                    let is_recent = |at: Timestamp| now.seconds_since(at) < LOSS_TOLD_SECONDS;
                    Ok(TargetStanding {
                        target,
                        place,
                        delivered: row.delivered,
                        delivered_at: row.at,
                        waiting: newest.saturating_sub(row.delivered.max(before_oldest)),
                        lost: counted + gone,
                        has_lost_lately: gone > 0 || noticed.is_some_and(is_recent),
                        trouble: server.hand_over().trouble(target),
                    })
                })
                .collect::<Result<Vec<TargetStanding>, Failure>>()
        })
}

/// Where a place is, as people are told; None where it is not set.
fn place(settings: &Settings, target: AuditTarget) -> Option<String> {
    match target {
        AuditTarget::File => {
            let path = settings.audit_to_file.as_ref()?;
            Some(path.display().to_string())
        }
        AuditTarget::Syslog => Some(settings.audit_to_syslog.as_deref()?.trim().to_owned()),
        AuditTarget::Http => {
            let address = WebAddress::parse(settings.audit_to_http.as_deref()?.trim())?;
            Some(address.origin())
        }
    }
}

/// Hands over what there is and what comes, until it is dropped. A dead place delays no other.
pub(crate) async fn keep(server: Server) {
    let each = |target| keep_one(server.clone(), target);
    tokio::join!(
        each(AuditTarget::File),
        each(AuditTarget::Syslog),
        each(AuditTarget::Http),
    );
}

/// Ends when the catalog's writer has.
async fn keep_one(server: Server, target: AuditTarget) {
    let mut revision = server.catalog().revision();
    let mut failures = 0_u32;
    let mut most = MAX_BATCH_ROWS;
    loop {
        // Before the look: a commit during it is looked at too.
        revision.mark_unchanged();
        let handed = hand_over(&server, target, most).await;
        most = rows_after(most, &handed);
        match handed {
            Ok(Handed::Part) => {
                failures = 0;
                tokio::time::sleep(BETWEEN_BATCHES).await;
            }
            Ok(Handed::All) => {
                failures = 0;
                if let Ok(Err(_)) = tokio::time::timeout(LOOK, revision.changed()).await {
                    return;
                }
                tokio::time::sleep(GATHERED).await;
            }
            Err(fault) => {
                failures = failures.saturating_add(1);
                note(&server, target, &fault);
                tokio::time::sleep(pause(failures)).await;
            }
        }
    }
}

/// Notes why a place takes no rows, and logs the first time.
fn note(server: &Server, target: AuditTarget, fault: &HandOverFault) {
    let why = chain(fault);
    let now = server.clock().now();
    if server.hand_over().put_trouble(target, now, why.clone()) {
        tracing::warn!(place = target.word(), error = %why, "the audit log is not handed over");
    }
}

/// Rows of the next batch: fewer behind one for which there was too little time, so that a slow receiver gets on.
fn rows_after(most: u32, handed: &Result<Handed, HandOverFault>) -> u32 {
    match handed {
        Ok(_) => (most + GROWN).min(MAX_BATCH_ROWS),
        Err(HandOverFault::Late) => (most / 2).max(1),
        Err(_) => most,
    }
}

/// How long to wait after so many failures in a row, at least one.
fn pause(failures: u32) -> Duration {
    let doubled = failures.saturating_sub(1).min(6);
    Duration::from_secs(1 << doubled).min(MAX_PAUSE)
}

/// What one step handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handed {
    /// There may be more.
    Part,
    All,
}

/// One step: the next rows for one place, at most `most`. Moves the cursor only after the place has them.
async fn hand_over(
    server: &Server,
    target: AuditTarget,
    most: u32,
) -> Result<Handed, HandOverFault> {
    let settings = server.settings();
    if place(&settings, target).is_none() {
        server.hand_over().put_well(target);
        return Ok(Handed::All);
    }
    let delivered = cursor(server, target).await?;
    let (rows, handed) = next(server, delivered, most).await?;
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
        return Ok(handed);
    };
    let lost = first.sequence.saturating_sub(delivered + 1);
    let last = last.sequence;
    send(server, settings, target, rows).await?;
    server
        .catalog()
        .write_of_server(Lane::Loops, "note what was handed over", move |rows| {
            rows.record_delivery(target, last, lost)
        })
        .await?;
    if lost > 0 {
        tracing::error!(
            place = target.word(),
            lost,
            "rows of the audit log were forgotten before they were handed over"
        );
    }
    if server.hand_over().put_well(target) {
        tracing::info!(place = target.word(), "the audit log is handed over again");
    }
    Ok(handed)
}

/// The newest row that a place has. A place that is new is to have every row that is kept.
async fn cursor(server: &Server, target: AuditTarget) -> Result<u64, Failure> {
    let known = server
        .catalog()
        .read_now("look what was handed over", |view| view.delivery(target))?;
    if let Some(known) = known {
        return Ok(known.delivered);
    }
    server
        .catalog()
        .write_of_server(Lane::Loops, "begin to hand over", move |rows| {
            let before_oldest = rows.oldest_kept_act()?.saturating_sub(1);
            rows.begin_delivery(target, before_oldest)?;
            Ok(before_oldest)
        })
        .await
}

/// The next rows behind one, within the bounds of a batch.
async fn next(
    server: &Server,
    delivered: u64,
    most: u32,
) -> Result<(Vec<AuditRow>, Handed), Failure> {
    let mut rows = server
        .catalog()
        .read("read what is to be handed over", move |view| {
            view.acts_after(delivered, most)
        })
        .await?;
    let is_full = rows.len() == most as usize;
    let mut bytes = 0;
    let mut fitting = 0;
    for row in &rows {
        bytes += row.statement.len();
        if fitting > 0 && bytes > MAX_BATCH_BYTES {
            break;
        }
        fitting += 1;
    }
    let is_cut = fitting < rows.len();
    rows.truncate(fitting);
    Ok(match is_full || is_cut {
        true => (rows, Handed::Part),
        false => (rows, Handed::All),
    })
}

/// Brings rows to a place, and ends when it has them. Writing a file has no end before its disk's: two of them at once could
/// take lines from each other; meanwhile it is told that it takes none.
async fn send(
    server: &Server,
    settings: Arc<Settings>,
    target: AuditTarget,
    rows: Vec<AuditRow>,
) -> Result<(), HandOverFault> {
    let sending = async {
        match target {
            AuditTarget::File => append::send(&settings, rows).await,
            AuditTarget::Syslog => syslog::send(&settings, &rows).await,
            AuditTarget::Http => post::send(&settings, &rows).await,
        }
    };
    let mut sending = pin!(sending);
    match tokio::time::timeout(MAX_HANDING_OVER, &mut sending).await {
        Ok(sent) => sent,
        Err(_) if target == AuditTarget::File => {
            note(server, target, &HandOverFault::Late);
            sending.await
        }
        Err(_) => Err(HandOverFault::Late),
    }
}

/// What came of trying each place that is set: what came back, or what is wrong. A file is opened and not written; receivers
/// get one message that says that it is a trial.
pub(crate) async fn tried(server: &Server) -> Vec<(AuditTarget, Result<String, String>)> {
    let settings = server.settings();
    let now = server.clock().now();
    let (file, syslog, http) = tokio::join!(
        within(append::tried(&settings)),
        within(syslog::tried(&settings, now)),
        within(post::tried(&settings)),
    );
    [
        (AuditTarget::File, file),
        (AuditTarget::Syslog, syslog),
        (AuditTarget::Http, http),
    ]
    .into_iter()
    .filter(|(target, _)| place(&settings, *target).is_some())
    .map(|(target, tried)| (target, tried.map_err(|fault| chain(&fault))))
    .collect()
}

async fn within(
    trial: impl Future<Output = Result<String, HandOverFault>>,
) -> Result<String, HandOverFault> {
    match tokio::time::timeout(MAX_TRIAL, trial).await {
        Ok(tried) => tried,
        Err(_) => Err(HandOverFault::Late),
    }
}

#[cfg(test)]
pub(crate) mod tests;
