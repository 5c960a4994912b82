//! What a user may know about the box itself: whether it is well, its figures, its settings.

use std::collections::BTreeMap;
use std::path::Path;

use base::observe::chain;
use rules::findings::{InvariantFinding, findings};
use rules::messages::DeviceUse;
use rules::names::{ContainerName, FolderId, NodeId, SessionId};
use rules::notice::Notice;
use rules::notices;
use rules::permissions::Permission;
use rules::refusals;
use rules::session::SessionState;
use rules::storage::{StorageLevel, percent};
use rules::units::{Bytes, CpuShare, GpuShare, Timestamp};
use rules::volume::{DEFAULT_VOLUME, VolumeState};
use rules::world::ClusterSnapshot;
use serde::{Deserialize, Serialize};

use super::diagnostic_check::DiagnosticCheck;
use super::{allowed, astray_folders, certificates, pool};
use crate::access::{self, Caller};
pub use crate::appliance::settings::Reloaded;
use crate::catalog::Lane;
use crate::catalog::events::NewEvent;
use crate::catalog::samples::Rate;
use crate::catalog::storage::OwnedFolders;
use crate::diagnostics::DiagnosticsRequest;
use crate::{Failure, Server, hand_over};

/// Free bytes below which new work is refused, so that what runs can still be stopped and recorded.
pub(crate) const RESERVE: Bytes = Bytes::mib(64);
/// Free bytes below which users are warned.
const WARNED: Bytes = Bytes::gib(1);

/// Whether the server is ready, in parts. Needs no sign-in: it names nothing of any user's.
///
/// Costs one empty turn of the writer, so that a stuck disk is seen.
pub async fn health(server: &Server) -> Vec<DiagnosticCheck> {
    server.catalog().try_disk(&server.settings().data).await;
    let mut checks = Vec::new();
    let mut say = |ok: bool, minor: bool, notice: Notice| {
        checks.push(DiagnosticCheck::of(notice, ok, minor));
    };
    let wrote = server
        .catalog()
        .write(Lane::Requests, "look whether writes work", |rows| {
            rows.revision()
        })
        .await;
    match wrote {
        Ok(_) => say(true, false, notices::catalog_writes()),
        Err(failure) => {
            tracing::error!(error = %base::observe::chain(&failure), "the catalog is not well");
            say(false, false, notices::catalog_writes_not());
        }
    }
    match free(&server.settings().data) {
        Some(free) if free >= RESERVE => say(true, false, notices::disk_room(free)),
        Some(free) => say(false, false, notices::disk_room_short(free)),
        None => say(true, true, notices::disk_room_unknown()),
    }
    let now = server.clock().now();
    let answers = server
        .catalog()
        .read_now("look at machines", |view| view.nodes())
        .unwrap_or_default()
        .iter()
        .any(|node| !node.is_silent(now));
    match answers {
        true => say(true, true, notices::machine_answers()),
        false => say(false, true, notices::machine_silent()),
    }
    match access::setup_open(server) {
        false => say(true, true, notices::setup_is_done()),
        true => say(false, true, notices::setup_administrator_missing()),
    }
    checks.extend(certificates::worries(server));
    checks.extend(troubles(server));
    checks
}

/// What is wrong with the state, as it was met.
fn troubles(server: &Server) -> Vec<DiagnosticCheck> {
    let troubles = server.catalog().health().troubles();
    troubles.into_iter().map(DiagnosticCheck::from).collect()
}

/// Refuses new work while the disk is so full that running work could not be recorded, and while the state
/// is in a trouble that no write ends: damaged pages, a machine that is not led or cannot write its record, a
/// key that is still not there.
pub(crate) fn refuse_unwell(server: &Server) -> Result<(), Failure> {
    let settings = server.settings();
    server.catalog().look_again_for_key(&settings.data);
    if let Some(trouble) = server.catalog().health().standing_in_the_way() {
        return Err(trouble.into());
    }
    match free(&settings.data) {
        Some(free) if free < RESERVE => Err(crate::catalog::disk_full().into()),
        _ => Ok(()),
    }
}

fn free(directory: &Path) -> Option<Bytes> {
    let found = rustix::fs::statvfs(directory).ok()?;
    Some(Bytes(found.f_bavail.saturating_mul(found.f_frsize)))
}

/// What is wrong with the rows and with the backups; empty for a sound box.
pub async fn findings_of(
    server: &Server,
    caller: &Caller,
) -> Result<Vec<InvariantFinding>, Failure> {
    allowed(caller, Permission::SystemRead)?;
    let (mut found, newest) = server
        .catalog()
        .read("look for findings", |view| {
            Ok((findings(&view.world()?), view.latest_event_at()?))
        })
        .await?;
    found.extend(clock_behind(server.clock().now(), newest));
    found.extend(troubles(server).into_iter().map(InvariantFinding::from));
    if let Some(failure) = super::backups::standing(server, caller).await?.failure {
        found.push(notices::backup_failed(failure.text).into());
    }
    let outside = hand_over_troubles(server)?.into_iter();
    let outside = outside
        .chain(mail_troubles(server)?)
        .chain(webhook_troubles(server)?)
        .chain(astray(server).await);
    found.extend(outside.map(InvariantFinding::from));
    Ok(found)
}

/// Folders and directories that have no other half, as they are now, or as they were seen last where the disk does not say.
async fn astray(server: &Server) -> Vec<Notice> {
    match astray_folders::look(server).await {
        Ok(found) => found,
        Err(failure) => {
            tracing::warn!(error = %chain(&failure), "directories of folders were not looked at");
            server.astray_folders().newest()
        }
    }
}

/// What is wrong with the places that the audit log is handed over to.
fn hand_over_troubles(server: &Server) -> Result<Vec<Notice>, Failure> {
    let mut troubles = Vec::new();
    for standing in hand_over::standings(server)? {
        let (place, waiting, lost) = (&standing.place, standing.waiting, standing.lost);
        if let Some(trouble) = &standing.trouble {
            let (since, why) = (trouble.since, &trouble.why);
            troubles.push(notices::audit_target_down(place, since, why, waiting));
        }
        if standing.has_lost_lately {
            troubles.push(notices::audit_target_lost(place, lost));
        }
    }
    Ok(troubles)
}

/// Seconds for which lost notices are told after the last of them. Longer: what cannot be mended any more is told. Shorter: it
/// is over before an administrator looks.
const LOST_TOLD_SECONDS: u64 = 7 * 86_400;

/// What is wrong with notices by mail.
fn mail_troubles(server: &Server) -> Result<Vec<Notice>, Failure> {
    let mut troubles = Vec::new();
    let standing = super::mail::standing(server)?;
    if let (Some(place), Some(since)) = (&standing.server, standing.problem_since) {
        let (why, waiting) = (&standing.problem, standing.waiting);
        troubles.push(notices::mail_down(place, since, why, waiting));
    }
    if standing.failed > 0 {
        troubles.push(notices::mail_failed(standing.failed, &standing.failure));
    }
    let is_told = |at: &Timestamp| at.plus_seconds(LOST_TOLD_SECONDS) > server.clock().now();
    if let Some(at) = standing.lost_at.filter(is_told) {
        troubles.push(notices::mail_lost(at, standing.lost));
    }
    Ok(troubles)
}

/// What is wrong with webhooks.
fn webhook_troubles(server: &Server) -> Result<Vec<Notice>, Failure> {
    let mut troubles = Vec::new();
    let is_told = |at: &Timestamp| at.plus_seconds(LOST_TOLD_SECONDS) > server.clock().now();
    for (row, trouble) in hand_over::webhooks::troubled(server)? {
        if let Some(trouble) = trouble {
            troubles.push(notices::webhook_down(
                &row.name,
                trouble.since,
                &trouble.why,
            ));
        }
        if let Some(at) = row.lost_at.filter(is_told) {
            troubles.push(notices::webhook_lost(&row.name, at, row.lost));
        }
    }
    Ok(troubles)
}

/// Seconds that the journal may be ahead of the clock: time servers move clocks by less.
const CLOCK_MAY_LAG: u64 = 300;

/// What is wrong with a clock that is behind what was already noted.
pub(crate) fn clock_behind(now: Timestamp, newest: Option<Timestamp>) -> Option<InvariantFinding> {
    let newest = newest.filter(|newest| *newest > now.plus_seconds(CLOCK_MAY_LAG))?;
    Some(notices::clock_set_back(now, newest).into())
}

/// Figures of one moment, for `/metrics`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// Live sessions by state, all six words present but `ended`.
    pub sessions: Vec<(SessionState, u64)>,
    pub machines: Vec<MachineMetrics>,
    /// Commits since the box was founded.
    pub revision: u64,
    /// Events written since the box was founded.
    pub events: u64,
    pub images: u64,
    pub disk_free: Option<Bytes>,
    /// Images that are being imported or wait for it.
    pub operations_open: u64,
    /// The places that the audit log is handed over to.
    pub audit_targets: Vec<AuditTargetMetrics>,
    /// What the folders of owners take: of those who are nearest to their limit.
    pub folders: Vec<OwnerMetrics>,
    /// How many owners count as how near to their limit, all words present.
    pub folder_levels: Vec<(StorageLevel, u64)>,
    /// The biggest folders and their bytes. Without names, as of slices.
    pub biggest_folders: Vec<(FolderId, u64)>,
    pub volumes: Vec<VolumeMetrics>,
}

/// One volume in figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VolumeMetrics {
    pub name: String,
    pub is_ready: bool,
    /// None where it could not be asked.
    pub used: Option<u64>,
    /// What users may still write.
    pub free: Option<u64>,
    pub total: Option<u64>,
}

/// Owners whose folders have figures of their own. Higher: a monitor keeps a series for each owner who ever had a folder. Lower:
/// who is about to meet a limit is not seen.
const MAX_OWNER_METRICS: usize = 100;
/// Folders that have figures of their own.
const MAX_FOLDER_METRICS: u32 = 20;

/// What all folders of one owner take together. Without names, as of slices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OwnerMetrics {
    /// The id of a user; `project-` and the id of a project.
    pub owner: String,
    pub used: Bytes,
    pub limit: Bytes,
}

/// One place that the audit log is handed over to, in figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AuditTargetMetrics {
    /// `file`, `syslog` or `http`.
    pub target: String,
    /// Whether it took rows when it was last tried.
    pub takes: bool,
    pub waiting: u64,
    pub lost: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineMetrics {
    pub name: String,
    pub seen_at: Timestamp,
    pub silent: bool,
    pub cpu: CpuShare,
    pub cpu_used: CpuShare,
    pub memory: Bytes,
    pub memory_used: Bytes,
    pub gpus: Vec<GpuMetrics>,
}

/// One device in figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuMetrics {
    pub uuid: String,
    pub model: String,
    pub simulated: bool,
    pub cordoned: bool,
    pub share_used: GpuShare,
    pub memory: Bytes,
    pub memory_used: Bytes,
    /// What it is doing, for all processes, also those of no session; None where unknown.
    pub doing: Option<DeviceUse>,
    /// One for each session that has a share of it.
    pub slices: Vec<SliceMetrics>,
}

/// One session's share of a device in figures. Without names: its reader may not be signed in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SliceMetrics {
    pub session: SessionId,
    pub share: GpuShare,
    pub memory: Bytes,
    /// 1 is all of the share; above where it was given what others left.
    pub load: Option<f64>,
    pub memory_in_use: Option<Bytes>,
    /// 0 while it works.
    pub idle_seconds: Option<u64>,
}

/// Figures for monitoring from outside.
pub async fn metrics(server: &Server, caller: &Caller) -> Result<Metrics, Failure> {
    allowed(caller, Permission::SystemRead)?;
    let now = server.clock().now();
    let disk_free = free(&server.settings().data);
    let rates = server.catalog().samples().rates();
    let standings = hand_over::standings(server)?.into_iter();
    let audit_targets = standings.map(|standing| AuditTargetMetrics {
        target: standing.target.word().to_owned(),
        takes: standing.trouble.is_none(),
        waiting: standing.waiting,
        lost: standing.lost,
    });
    let audit_targets: Vec<AuditTargetMetrics> = audit_targets.collect();
    // A store that cannot be opened takes no figure of anything else away.
    let shelf = server.folders().ok().map(|store| store.volumes().clone());
    let pool = pool::look(server).await.ok().flatten();
    // It is the box's own disk to those who have folders there.
    let pool = pool.map(|pool| VolumeMetrics {
        name: DEFAULT_VOLUME.to_owned(),
        is_ready: true,
        used: Some(pool.used.0),
        free: Some(pool.size.saturating_sub(pool.used).0),
        total: Some(pool.size.0),
    });
    server
        .catalog()
        .read("take figures", move |view| {
            let world = view.world()?;
            let owners = view.folder_owners()?;
            let used = world.used();
            let live = SessionState::ALL
                .into_iter()
                .filter(|phase| *phase != SessionState::Ended);
            let count =
                |phase: SessionState| world.sessions.iter().filter(|s| s.state() == phase).count();
            Ok(Metrics {
                sessions: live.map(|phase| (phase, count(phase) as u64)).collect(),
                machines: world
                    .nodes
                    .iter()
                    .map(|node| {
                        let held = used.get(&node.id).cloned().unwrap_or_default();
                        let uses = view.device_uses(node.id);
                        let silent = node.is_silent(now);
                        MachineMetrics {
                            name: node.name.clone(),
                            seen_at: node.seen_at,
                            silent,
                            cpu: world.cpu_room(node),
                            cpu_used: held.cpu,
                            memory: node.capacity.memory,
                            memory_used: held.memory,
                            gpus: node
                                .capacity
                                .devices
                                .iter()
                                .map(|device| {
                                    let given = held.devices.get(&device.index);
                                    GpuMetrics {
                                        uuid: device.uuid.clone(),
                                        model: device.model.clone(),
                                        simulated: device.simulated,
                                        cordoned: node.cordoned.contains(&device.uuid),
                                        share_used: given.map(|g| g.share).unwrap_or_default(),
                                        memory: device.memory,
                                        memory_used: given.map(|g| g.memory).unwrap_or_default(),
                                        doing: uses
                                            .iter()
                                            .find(|doing| doing.device == device.index)
                                            .filter(|_| !silent)
                                            .copied(),
                                        slices: match silent {
                                            true => Vec::new(),
                                            false => {
                                                slices(&world, node.id, device.index, &rates, now)
                                            }
                                        },
                                    }
                                })
                                .collect(),
                        }
                    })
                    .collect(),
                revision: world.revision,
                events: view.event_range()?.1,
                images: view.image_digests()?.len() as u64,
                disk_free,
                operations_open: view.open_operations()?.len() as u64,
                audit_targets,
                folders: nearest(&owners),
                folder_levels: StorageLevel::ALL
                    .into_iter()
                    .map(|level| {
                        let known = owners.iter().filter_map(|one| one.before);
                        let there = known.filter(|before| before.level == level);
                        (level, there.count() as u64)
                    })
                    .collect(),
                biggest_folders: view.biggest_folders(MAX_FOLDER_METRICS)?,
                volumes: view
                    .volumes()?
                    .into_iter()
                    .map(|record| {
                        let id = record.volume.id;
                        let sight = shelf.as_ref().and_then(|shelf| shelf.sight(id));
                        let seen = sight.as_ref().filter(|sight| sight.total > 0);
                        VolumeMetrics {
                            name: record.volume.name.to_string(),
                            // Until the first look nothing is known against it.
                            is_ready: sight
                                .as_ref()
                                .is_none_or(|sight| sight.state == VolumeState::Ready),
                            used: seen.map(|sight| sight.total.saturating_sub(sight.free)),
                            free: seen.map(|sight| sight.free),
                            total: seen.map(|sight| sight.total),
                        }
                    })
                    .chain(pool)
                    .collect(),
            })
        })
        .await
}

/// What the folders of those take who are nearest to their limit.
fn nearest(owners: &[OwnedFolders]) -> Vec<OwnerMetrics> {
    let known = owners.iter().filter_map(|one| {
        let taken = one.before?.taken;
        Some(OwnerMetrics {
            owner: one.owner.to_string(),
            used: taken.used,
            limit: taken.limit,
        })
    });
    let mut known: Vec<OwnerMetrics> = known.collect();
    known.sort_by_key(|one| std::cmp::Reverse((percent(one.used, one.limit), one.used)));
    known.truncate(MAX_OWNER_METRICS);
    known
}

/// What each container does with its share of a device, as far as it was heard.
fn slices(
    world: &ClusterSnapshot,
    node: NodeId,
    device: u32,
    rates: &BTreeMap<ContainerName, Rate>,
    now: Timestamp,
) -> Vec<SliceMetrics> {
    let mut slices = Vec::new();
    let live = world.sessions.holding();
    let here = live.flat_map(|s| s.live_on(node).map(move |container| (s, container)));
    for (session, container) in here {
        let Some(rate) = rates.get(&session.container_name(container.index)) else {
            continue;
        };
        let held = container.holds();
        let mut parts = held.iter().filter(|part| part.index == device);
        let Some((part, doing)) = parts.find_map(|part| {
            let mut devices = rate.devices.iter();
            let id = (part.index, part.part);
            Some((part, devices.find(|d| (d.device, d.part) == id)?))
        }) else {
            continue;
        };
        slices.push(SliceMetrics {
            session: session.id,
            share: part.share,
            memory: part.memory,
            load: doing.load.map(|percent| percent / 100.0),
            memory_in_use: doing.memory,
            idle_seconds: match doing.idle_since {
                Some(since) => Some(now.seconds_since(since)),
                None => doing.load.map(|_| 0),
            },
        });
    }
    slices
}

/// One check of the machine, as `fardel doctor` makes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic {
    /// A stable word such as `disk` or `time-sync`.
    pub id: String,
    /// `ok`, `warn` or `fail`.
    pub state: String,
    /// What is there, one English sentence.
    pub found: String,
    /// What would mend it; empty where nothing needs to be.
    pub fix: String,
}

/// One file of a support bundle, before it is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleMember {
    pub name: String,
    pub bytes: u64,
    /// Places where something secret was taken out.
    pub redacted: u64,
    pub text: String,
}

#[derive(Deserialize)]
struct Items<T> {
    items: Vec<T>,
}

/// Every check of the machine, the unwell ones first. Costs seconds: programs run, files are read.
///
/// Errors: `diagnostics.unavailable` where this server cannot look at its machine.
pub async fn diagnose(server: &Server, caller: &Caller) -> Result<Vec<Diagnostic>, Failure> {
    allowed(caller, Permission::SystemRead)?;
    let bytes = run_diagnostics(server, DiagnosticsRequest::Checks).await?;
    read_checks(&bytes)
}

/// Makes every check of the machine where they were made longer than `within` milliseconds ago, or never. Costs nothing
/// where they are newer.
///
/// Errors: as `diagnose`.
pub async fn diagnose_within(server: &Server, caller: &Caller, within: u64) -> Result<(), Failure> {
    allowed(caller, Permission::SystemRead)?;
    let now = server.clock().now();
    let newest = server.diagnostics().newest();
    match newest.is_some_and(|(at, _)| at <= now && now.millis_since(at) < within) {
        true => Ok(()),
        false => diagnose(server, caller).await.map(drop),
    }
}

/// The checks in what a diagnosis gave.
pub(super) fn read_checks(bytes: &[u8]) -> Result<Vec<Diagnostic>, Failure> {
    let read: Items<Diagnostic> = serde_json::from_slice(bytes)
        .map_err(|error| crate::ServerFault::new("read a diagnosis", error))?;
    Ok(read.items)
}

/// What a support bundle would hold, to be read before it is given away.
///
/// Errors: as `diagnose`.
pub async fn preview_bundle(
    server: &Server,
    caller: &Caller,
) -> Result<Vec<BundleMember>, Failure> {
    allowed(caller, Permission::SystemWrite)?;
    diagnosed(server, DiagnosticsRequest::BundlePreview).await
}

/// A support bundle: a tar archive, compressed with gzip. Who made it is noted.
///
/// Errors: as `diagnose`.
pub async fn support_bundle(server: &Server, caller: &Caller) -> Result<Vec<u8>, Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let bytes = run_diagnostics(server, DiagnosticsRequest::Bundle).await?;
    let (actor, size) = (
        caller.name.to_string(),
        Bytes(bytes.len() as u64).to_string(),
    );
    let work = move |rows: &crate::catalog::Rows<'_>| {
        rows.note(NewEvent {
            actor: &actor,
            topic: "system",
            object: "support-bundle",
            scope: rules::tenancy::Scope::SITE,
            code: "support.bundle-made",
            before: "",
            after: &size,
        })
    };
    server
        .catalog()
        .write(Lane::Requests, "note a support bundle", work)
        .await?;
    Ok(bytes)
}

async fn diagnosed<T: serde::de::DeserializeOwned>(
    server: &Server,
    what: DiagnosticsRequest,
) -> Result<Vec<T>, Failure> {
    let bytes = run_diagnostics(server, what).await?;
    let read: Items<T> = serde_json::from_slice(&bytes)
        .map_err(|error| crate::ServerFault::new("read a diagnosis", error))?;
    Ok(read.items)
}

async fn run_diagnostics(server: &Server, what: DiagnosticsRequest) -> Result<Vec<u8>, Failure> {
    match server.diagnostics().ask(what, server.clock().now()).await {
        None => Err(refusals::diagnostics_no_machine().into()),
        Some(Err(why)) => Err(refusals::diagnostics_unavailable(why).into()),
        Some(Ok(bytes)) => Ok(bytes),
    }
}

/// Reads the settings again and goes by what they say.
///
/// Errors: `setting.*` with file and line; then everything stays as it was.
pub async fn reload_settings(server: &Server, caller: &Caller) -> Result<Reloaded, Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let again = server.clone();
    let done = tokio::task::spawn_blocking(move || again.in_force().read_again())
        .await
        .map_err(|ended| crate::ServerFault::new("read the settings again", ended))??;
    access::second_factor::note_demand(server);
    if !done.changed.is_empty() {
        let (actor, changed) = (caller.name.to_string(), done.changed.join(", "));
        let work = move |rows: &crate::catalog::Rows<'_>| {
            rows.note(NewEvent {
                actor: &actor,
                topic: "system",
                object: "settings",
                scope: rules::tenancy::Scope::SITE,
                code: "settings.read-again",
                before: "",
                after: &changed,
            })
        };
        server
            .catalog()
            .write(Lane::Requests, "note new settings", work)
            .await?;
    }
    Ok(done)
}

/// What users are warned about on the overview: a disk that fills up, certificates that end, a clock that
/// is wrong, an audit log that does not reach where it is handed over to.
pub async fn warnings(server: &Server, caller: &Caller) -> Result<Vec<DiagnosticCheck>, Failure> {
    allowed(caller, Permission::SystemRead)?;
    let disk = free(&server.settings().data)
        .filter(|free| *free < WARNED)
        .map(|free| DiagnosticCheck::of(notices::disk_low(free), false, true));
    let hand_over = hand_over_troubles(server)?.into_iter();
    let hand_over = hand_over.map(|notice| DiagnosticCheck::of(notice, false, true));
    Ok(troubles(server)
        .into_iter()
        .chain(disk)
        .chain(hand_over)
        .chain(certificates::worries(server))
        .collect())
}

#[cfg(test)]
mod tests {
    use rules::names::UserId;
    use rules::storage::StorageUse;
    use rules::tenancy::DomainId;
    use uuid::Uuid;

    use super::*;
    use crate::catalog::storage::StorageWarning;

    #[test]
    fn so_many_users_have_figures_and_those_nearest_to_their_limit() {
        let owners = (0..150_u64).map(|number| OwnedFolders {
            owner: UserId(Uuid::from_u128(u128::from(number))).into(),
            domain: DomainId::DEFAULT,
            counted: Bytes::ZERO,
            before: Some(StorageWarning {
                taken: StorageUse {
                    used: Bytes(number),
                    limit: Bytes(150),
                    at: Timestamp::default(),
                },
                level: StorageLevel::Free,
                since: Timestamp::default(),
            }),
        });
        let owners: Vec<OwnedFolders> = owners.collect();
        let told = nearest(&owners);
        assert_eq!(told.len(), MAX_OWNER_METRICS);
        assert_eq!(told[0].used, Bytes(149));
        assert_eq!(told[99].used, Bytes(50));
    }
}
