//! What needs an administrator's attention now: one list with one count, for the overview, the menu, the checks and the
//! report of the installation, so that they cannot disagree. Mends nothing, and tells plain users nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rules::findings::InvariantFinding;
use rules::names::NodeId;
use rules::notices;
use rules::permissions::Permission;
use rules::reason::Reason;
use rules::units::Timestamp;

use super::backups::BackupStanding;
use super::diagnostic_check::DiagnosticCheck;
use super::system::{self, Diagnostic};
use super::{allowed, backups};
use crate::access::Caller;
use crate::snapshot::Snapshot;
use crate::{Failure, Server};

/// The list is made again after this many milliseconds, or when a row changed. Longer: a disk that fills up is told
/// later. Shorter: each page of an administrator asks the file system again.
const KEPT_MILLISECONDS: u64 = 5_000;
/// The machine is looked at again after this long. Shorter: programs run for nothing. Longer: a fault of the machine
/// that no administrator asks for is told later.
const DIAGNOSED_MILLISECONDS: u64 = 3_600_000;
/// A page waits this long for a diagnosis, once; a disk that hangs must not hold it.
const DIAGNOSIS_WAIT: Duration = Duration::from_secs(2);

/// One thing that is not well.
#[derive(Debug, Clone, PartialEq)]
pub enum AttentionItem {
    /// Of the server: its disk, its state, its certificates.
    Server(DiagnosticCheck),
    /// What a node says of itself.
    Node { name: String, problem: Reason },
    /// A node takes no new sessions; `note` is why, in an administrator's words.
    Maintenance { name: String, note: String },
    /// A GPU takes nothing new.
    Cordoned {
        id: String,
        index: u32,
        node: String,
        note: String,
    },
    /// A rule of the catalog is broken.
    Finding(InvariantFinding),
    /// A check of the machine.
    Check(Diagnostic),
}

impl AttentionItem {
    /// True where something does not work; false for a warning.
    pub fn has_failed(&self) -> bool {
        match self {
            // The server works on without a backup; the backup does not.
            Self::Server(check) => !check.minor || check.code == rules::codes::BACKUP_FAILED,
            Self::Node { problem, .. } => {
                problem.code.starts_with(rules::codes::family::NODE_REFUSES)
            }
            Self::Finding(_) => true,
            Self::Check(check) => check.state == "fail",
            Self::Maintenance { .. } | Self::Cordoned { .. } => false,
        }
    }
}

/// Everything that is not well, what has failed first; and the checks of the machine that passed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AttentionList {
    pub items: Vec<AttentionItem>,
    pub passed: Vec<Diagnostic>,
    /// When the machine was looked at; None where it never was.
    pub diagnosed_at: Option<Timestamp>,
}

impl AttentionList {
    pub fn failed(&self) -> u64 {
        self.items.iter().filter(|item| item.has_failed()).count() as u64
    }

    pub fn warnings(&self) -> u64 {
        self.items.len() as u64 - self.failed()
    }
}

/// When a list was made: the version of the rows, the time, and the time of the diagnosis in it.
type Made = ((u64, u64), Timestamp, Option<Timestamp>);

/// The newest list of a server.
#[derive(Default)]
pub(crate) struct NewestAttention(Mutex<Option<(Made, Arc<AttentionList>)>>);

impl NewestAttention {
    fn held(&self) -> MutexGuard<'_, Option<(Made, Arc<AttentionList>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many things are not well, as of the newest `attention`; 0 before the first, and for callers who may not
/// know. Reads nothing.
pub fn count(server: &Server, caller: &Caller) -> u64 {
    if allowed(caller, Permission::SystemRead).is_err() {
        return 0;
    }
    let held = server.newest_attention().held();
    held.as_ref().map_or(0, |(_, all)| all.items.len() as u64)
}

/// What needs attention, kept for five seconds while no row changes. The machine itself is looked at once an hour, and
/// when the checks are opened; for that a caller waits two seconds at most.
///
/// Errors: `denied` without `system:read`; those of the catalog.
pub async fn attention(server: &Server, caller: &Caller) -> Result<Arc<AttentionList>, Failure> {
    allowed(caller, Permission::SystemRead)?;
    look_if_due(server, caller).await;
    newest(server, caller).await
}

/// Counts again what needs attention where something changed. Looks at the machine only where what it said may be mended,
/// as after a backup: else the checks, which look then, would count otherwise. Does nothing for callers who may not know.
///
/// Errors: those of the catalog.
pub async fn recount(server: &Server, caller: &Caller) -> Result<(), Failure> {
    if allowed(caller, Permission::SystemRead).is_ok() {
        if server.diagnostics().is_outdated() {
            look_if_due(server, caller).await;
        }
        newest(server, caller).await?;
    }
    Ok(())
}

async fn look_if_due(server: &Server, caller: &Caller) {
    let now = server.clock().now();
    if server.diagnostics().is_due(now, DIAGNOSED_MILLISECONDS) {
        // What it finds is kept also when it takes longer.
        let look = system::diagnose(server, caller);
        let _ = tokio::time::timeout(DIAGNOSIS_WAIT, look).await;
    }
}

async fn newest(server: &Server, caller: &Caller) -> Result<Arc<AttentionList>, Failure> {
    let now = server.clock().now();
    let snapshot = server.snapshot().await?;
    // Taken before the look: what changes meanwhile makes another look necessary.
    let diagnosed = server.diagnostics().newest();
    let version = server.catalog().state_version();
    let at = diagnosed.as_ref().map(|(at, _)| *at);
    if let Some(((of, made, then), all)) = &*server.newest_attention().held()
        && *of == version
        && *then == at
        && *made <= now
        && now.millis_since(*made) < KEPT_MILLISECONDS
    {
        return Ok(Arc::clone(all));
    }
    let checks = match &diagnosed {
        Some((_, bytes)) => system::read_checks(bytes).unwrap_or_default(),
        None => Vec::new(),
    };
    let all = Arc::new(AttentionList {
        diagnosed_at: at,
        ..gathered(server, caller, &snapshot, checks, at).await?
    });
    *server.newest_attention().held() = Some(((version, now, at), Arc::clone(&all)));
    Ok(all)
}

async fn gathered(
    server: &Server,
    caller: &Caller,
    snapshot: &Snapshot,
    mut checks: Vec<Diagnostic>,
    looked: Option<Timestamp>,
) -> Result<AttentionList, Failure> {
    let now = server.clock().now();
    let mut items: Vec<AttentionItem> = Vec::new();
    let warnings = system::warnings(server, caller).await?;
    items.extend(warnings.into_iter().map(AttentionItem::Server));
    let standing = backups::standing(server, caller).await?;
    checks.retain(|check| !is_mended(check, &standing, looked));
    if let Some(failure) = standing.failure {
        let notice = notices::backup_failed(failure.text);
        items.push(AttentionItem::Server(DiagnosticCheck::of(
            notice, false, true,
        )));
    }
    let astray = server.astray_folders().newest().into_iter();
    items.extend(
        astray.map(|notice| AttentionItem::Server(DiagnosticCheck::of(notice, false, true))),
    );
    let newest = server
        .catalog()
        .read_now("look at the clock", |view| view.latest_event_at())?;
    let clock = system::clock_behind(now, newest);
    let broken = snapshot.findings().iter().cloned();
    items.extend(broken.chain(clock).map(AttentionItem::Finding));
    let nodes = &snapshot.world.nodes;
    if nodes.iter().all(|node| node.is_silent(now)) {
        let silent = DiagnosticCheck::of(notices::machine_silent(), false, false);
        items.push(AttentionItem::Server(silent));
    }
    for node in nodes {
        let name = node.name.clone();
        items.extend(node.problems.iter().map(|problem| AttentionItem::Node {
            name: name.clone(),
            problem: problem.clone(),
        }));
        if !node.schedulable {
            items.push(AttentionItem::Maintenance {
                name: name.clone(),
                note: node.note.clone(),
            });
        }
        items.extend(cordoned(snapshot, node.id));
    }
    let told: Vec<String> = items.iter().filter_map(told_also_by).collect();
    let (passed, unwell): (Vec<Diagnostic>, Vec<Diagnostic>) =
        checks.into_iter().partition(|check| check.state == "ok");
    let unwell = unwell.into_iter().filter(|check| !told.contains(&check.id));
    let unwell: Vec<Diagnostic> = unwell.collect();
    items.retain(|item| !is_told_by(item, &unwell));
    items.extend(unwell.into_iter().map(AttentionItem::Check));
    items.sort_by_key(|item| !item.has_failed());
    Ok(AttentionList {
        items,
        passed,
        diagnosed_at: None,
    })
}

/// Whether the check is of backups, was not well, and a good backup was made since: the machine is looked at once an hour.
fn is_mended(check: &Diagnostic, standing: &BackupStanding, looked: Option<Timestamp>) -> bool {
    let newest = standing.files.iter().map(|file| file.made_at).max();
    let made_since = newest > looked && looked.is_some();
    check.id == "backups" && check.state != "ok" && standing.failure.is_none() && made_since
}

/// The check of the machine that says the same as an item of the server, so that nothing counts twice.
fn told_also_by(item: &AttentionItem) -> Option<String> {
    let code = match item {
        AttentionItem::Server(check) => check.code.as_str(),
        AttentionItem::Finding(finding) => finding.code.as_str(),
        _ => return None,
    };
    Some(match (item, code.split('.').next().unwrap_or_default()) {
        (_, "disk") => "disk".to_owned(),
        (_, "backup") => "backups".to_owned(),
        (_, "clock") => "clock-and-state".to_owned(),
        (AttentionItem::Finding(_), _) => "findings".to_owned(),
        _ => return None,
    })
}

/// What a node lacks, each with the check of the machine that says the same with a remedy.
const LACKS: [(&str, &str); 2] = [
    ("few-open-files", "limits"),
    ("no-time-namespace", "time-namespaces"),
];

/// Whether a check that is not well says the same as what a node says of itself.
fn is_told_by(item: &AttentionItem, unwell: &[Diagnostic]) -> bool {
    let AttentionItem::Node { problem, .. } = item else {
        return false;
    };
    let lack = problem.code.strip_prefix(rules::codes::family::NODE_LACKS);
    let check = LACKS.iter().find(|(name, _)| Some(*name) == lack);
    check.is_some_and(|(_, id)| unwell.iter().any(|check| check.id == *id))
}

/// GPUs of a node that an administrator cordoned.
fn cordoned(snapshot: &Snapshot, node: NodeId) -> Vec<AttentionItem> {
    let Some(node) = snapshot.world.node(node) else {
        return Vec::new();
    };
    let marks = &snapshot.devices.marks;
    let devices = node.capacity.devices.iter();
    devices
        .filter_map(|device| {
            let mark = marks.iter().find(|mark| mark.uuid == device.uuid)?;
            mark.cordoned.then(|| AttentionItem::Cordoned {
                id: device.uuid.clone(),
                index: device.index,
                node: node.name.clone(),
                note: mark.note.clone(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use base::observe::Clock;
    use rules::users::Role;

    use super::*;
    use crate::actions::backups::BackupFile;
    use crate::actions::tests::caller_of;

    #[tokio::test]
    async fn a_diagnosis_is_made_again_only_when_it_is_old_and_says_when_it_was_made() {
        let settings = base::settings::Settings::read(Default::default(), |_| None).unwrap();
        let began = Timestamp::parse("2026-11-21T02:00:00Z").unwrap();
        let clock = Clock::set_by_hand(began);
        let server = Server::in_memory(settings, clock.clone()).unwrap();
        let looks = Arc::new(Mutex::new(0));
        let looked = Arc::clone(&looks);
        server.bring_diagnostics(Arc::new(move |_| {
            *looked.lock().unwrap() += 1;
            Ok(br#"{"items":[]}"#.to_vec())
        }));
        let boss = caller_of(&server, "boss", Role::Administrator);
        for (seconds, expected, made) in [(0, 1, 0), (59, 1, 0), (60, 2, 60), (61, 2, 60)] {
            clock.set(began.plus_seconds(seconds));
            system::diagnose_within(&server, &boss, 60_000)
                .await
                .unwrap();
            assert_eq!(*looks.lock().unwrap(), expected, "after {seconds} s");
            let all = attention(&server, &boss).await.unwrap();
            assert_eq!(all.diagnosed_at, Some(began.plus_seconds(made)));
        }
        // The menu's number looks again where something was mended, as the checks do, and once.
        for (mended, expected) in [(false, 2), (true, 3), (false, 3)] {
            if mended {
                server.diagnostics().look_again();
            }
            recount(&server, &boss).await.unwrap();
            assert_eq!(*looks.lock().unwrap(), expected);
        }
        let user = caller_of(&server, "mina", Role::User);
        let refused = system::diagnose_within(&server, &user, 60_000).await;
        assert!(refused.is_err());
    }

    #[test]
    fn a_good_backup_ends_what_the_check_of_backups_said_before_it() {
        let at = Timestamp::from_millis;
        let check = |id: &str, state: &str| Diagnostic {
            id: id.into(),
            state: state.into(),
            found: String::new(),
            fix: String::new(),
        };
        let standing = |made_at| BackupStanding {
            directory: None,
            usual_directory: Default::default(),
            has_passphrase: true,
            every_hours: 24,
            keep: 7,
            files: vec![BackupFile {
                name: "one".into(),
                size: Default::default(),
                made_at,
            }],
            failure: None,
            due_at: None,
            passphrase_fault: None,
        };
        let failed = check("backups", "fail");
        assert!(is_mended(&failed, &standing(at(2_000)), Some(at(1_000))));
        assert!(!is_mended(&failed, &standing(at(500)), Some(at(1_000))));
        assert!(!is_mended(&failed, &standing(at(500)), None));
        let other = check("disk", "fail");
        assert!(!is_mended(&other, &standing(at(2_000)), Some(at(1_000))));
        let told = DiagnosticCheck::of(notices::backup_failed("no room"), false, true);
        assert!(AttentionItem::Server(told).has_failed());
    }

    #[test]
    fn what_a_node_lacks_counts_once_where_a_check_says_the_same() {
        let lacks = |code: &str| AttentionItem::Node {
            name: "alpha".into(),
            problem: Reason::from_parts(code.into(), "It lacks something.".into()),
        };
        let limits = Diagnostic {
            id: "limits".into(),
            state: "warn".into(),
            found: String::new(),
            fix: String::new(),
        };
        let files = lacks("node.lacks.few-open-files");
        assert!(is_told_by(&files, std::slice::from_ref(&limits)));
        assert!(!is_told_by(&files, &[]), "no check says it");
        assert!(!is_told_by(&lacks("node.lacks.wings"), &[limits]));
    }
}
