//! The machine at a glance, and one session's use of it over time. Other users' work is shown as
//! taken room without names, unless the caller may see everybody's.

use api::events::EventView;
use api::sessions::{GpuSample, Owner, UsageSample};
use rules::container_network::is_several;
use rules::findings::InvariantFinding;
use rules::messages::Waited;
use rules::names::{NodeId, SessionId};
use rules::permissions::{Permission, heard, reach};
use rules::policy::SharePolicy;
use rules::reason::Reason;
use rules::resources::{Device, DeviceShare};
use rules::session::{Session, SessionContainer, SessionState};
use rules::units::{Bytes, CpuShare, Timestamp};
use rules::workload::container::MAIN;
use serde::{Deserialize, Serialize};

use super::find::find;
use super::view::event;
use crate::access::Caller;
use crate::actions::allowed;
use crate::catalog::ReadTransaction;
use crate::catalog::samples::{UsageRow, load};
use crate::snapshot::Snapshot;
use crate::{Failure, Server};

/// Events shown on an overview.
const RECENT: u32 = 20;

/// Everything of one moment that a user needs to judge the box.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Overview {
    pub machines: Vec<NodeOverview>,
    /// Sessions the caller may see, by state.
    pub counts: StateCounts,
    /// Sessions of all users that hold room on the machines.
    #[serde(default)]
    pub holding: u64,
    /// Newest first, as the caller may hear.
    pub recent: Vec<EventView>,
    /// Broken invariants; empty for a sound box, and for users who may not look at it.
    pub findings: Vec<InvariantFinding>,
    pub own: OwnUsage,
    /// The administrator's rules for shares of devices.
    pub policy: SharePolicy,
    /// Devices here do not exist: sessions get none.
    pub simulated: bool,
}

/// One machine with everything that holds room on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeOverview {
    pub id: NodeId,
    pub name: String,
    pub seen_at: Timestamp,
    /// It has not answered for so long that it gets no new sessions.
    pub silent: bool,
    pub schedulable: bool,
    pub host_environment: bool,
    pub problems: Vec<Reason>,
    pub cpu: CpuShare,
    /// What sessions together may have: more than there is where its resource group says so.
    pub cpu_room: CpuShare,
    /// Given to sessions.
    pub cpu_used: CpuShare,
    /// Cores that sessions use at this moment: 0 where there is no session; None while none was measured yet, and of a
    /// node that is not heard from.
    pub cpu_busy: Option<f64>,
    pub memory: Bytes,
    pub memory_used: Bytes,
    pub memory_busy: Option<Bytes>,
    pub devices: Vec<Device>,
    /// Names of devices that take nothing new.
    pub cordoned: std::collections::BTreeSet<String>,
    /// What holds room, oldest first.
    pub slices: Vec<HeldSlice>,
}

/// The room that one container of a session holds. Without id, name and owner where it is another user's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeldSlice {
    pub id: Option<SessionId>,
    pub name: Option<String>,
    pub owner: Option<Owner>,
    /// `main1`, `sub1`: which one of the session's containers it is; None where the session has one, or is not shown.
    pub container: Option<String>,
    pub mine: bool,
    pub state: SessionState,
    pub paused: bool,
    pub cpu: CpuShare,
    pub memory: Bytes,
    pub devices: Vec<DeviceShare>,
    /// Cores and bytes it uses at this moment; None where nothing was measured or it is not shown.
    pub cpu_busy: Option<f64>,
    pub memory_busy: Option<Bytes>,
    /// When it reaches its time limit, where it has one and the caller may see it.
    pub until: Option<Timestamp>,
}

/// How many sessions stand where. Ended ones are those of the last day.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateCounts {
    pub pending: u64,
    pub scheduled: u64,
    pub preparing: u64,
    pub running: u64,
    pub stopping: u64,
    pub ended: u64,
    /// Of the ended ones, those that did not end well.
    pub failed: u64,
}

/// What the caller has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnUsage {
    pub live: u64,
    pub waiting: u64,
    pub running: u64,
    /// Held by sessions of the caller.
    pub cpu: CpuShare,
    pub memory: Bytes,
    /// Of devices.
    pub gpu: rules::units::GpuShare,
}

/// The box as the caller may see it.
pub async fn overview(server: &Server, caller: &Caller) -> Result<Overview, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let (caller, now) = (caller.clone(), server.clock().now());
    let snapshot = server.snapshot().await?;
    let shared = server.clone();
    server
        .catalog()
        .read("show the overview", move |view| {
            summary(&shared, view, &snapshot, &caller, now)
        })
        .await
}

/// The box in a snapshot, with what `view` has of the past.
pub(in crate::actions) fn summary(
    server: &Server,
    view: &ReadTransaction<'_>,
    snapshot: &Snapshot,
    caller: &Caller,
    now: Timestamp,
) -> Result<Overview, Failure> {
    let rates = server.catalog().samples().rates();
    let (world, owners) = (&snapshot.world, &snapshot.names);
    let subject = &caller.subject;
    let visible = reach(subject, Permission::SessionsRead).or_own(subject);
    let heard = heard(subject);
    let used = world.used();
    let machines = world
        .nodes
        .iter()
        .map(|node| {
            let held = used.get(&node.id).cloned().unwrap_or_default();
            let here = || {
                let live = world.sessions.holding();
                live.flat_map(|s| s.live_on(node.id).map(move |each| (s, each)))
            };
            let rate_of = |(s, container): (&Session, &SessionContainer)| {
                rates.get(&s.container_name(container.index))
            };
            let measured: Vec<_> = here().filter_map(rate_of).collect();
            let silent = node.is_silent(now);
            let known = !measured.is_empty() || (!silent && here().next().is_none());
            let slices = here()
                .map(|(s, container)| {
                    let mine = s.owner == caller.subject.user;
                    let shown = visible.covers(&s.scope());
                    let rate = rate_of((s, container)).filter(|_| shown);
                    HeldSlice {
                        id: shown.then_some(s.id),
                        name: shown.then(|| s.name.to_string()),
                        owner: owners.get(&s.owner).filter(|_| shown).map(|name| Owner {
                            id: s.owner,
                            name: name.clone(),
                        }),
                        container: (shown && is_several(s)).then(|| container.role()),
                        mine,
                        state: s.state(),
                        paused: s.paused,
                        cpu: s.spec.of_each().cpu,
                        memory: s.spec.of_each().memory,
                        devices: container.holds().into_owned(),
                        cpu_busy: rate.map(|r| r.cores),
                        memory_busy: rate.map(|r| r.memory),
                        until: s.deadline().map(|(at, _)| at).filter(|_| shown),
                    }
                })
                .collect();
            NodeOverview {
                id: node.id,
                name: node.name.clone(),
                seen_at: node.seen_at,
                silent,
                schedulable: node.schedulable,
                host_environment: node.host_environment,
                problems: node.problems.clone(),
                cpu: node.capacity.cpu,
                cpu_room: world.cpu_room(node),
                cpu_used: held.cpu,
                cpu_busy: known.then(|| measured.iter().fold(0.0, |all, rate| all + rate.cores)),
                memory: node.capacity.memory,
                memory_used: held.memory,
                memory_busy: known.then(|| measured.iter().map(|r| r.memory).sum()),
                devices: node.capacity.devices.clone(),
                cordoned: node.cordoned.clone(),
                slices,
            }
        })
        .collect();
    let mut counts = StateCounts::default();
    let mut own = OwnUsage::default();
    for (scope, there) in snapshot.counts() {
        if scope.owner == Some(subject.user) {
            own.live += there.live();
            own.waiting += there.pending;
            own.running += there.running;
        }
        if visible.covers(scope) {
            counts.pending += there.pending;
            counts.scheduled += there.scheduled;
            counts.preparing += there.preparing;
            counts.running += there.running;
            counts.stopping += there.stopping;
        }
    }
    for session in world.sessions.holding() {
        if session.owner == subject.user {
            for container in session.live_containers() {
                own.cpu = own.cpu + session.spec.of_each().cpu;
                own.memory = own.memory + session.spec.of_each().memory;
                own.gpu = own.gpu + container.holds().iter().map(|d| d.share).sum();
            }
        }
    }
    (counts.ended, counts.failed) = snapshot.ended_lately(view, &visible, now)?;
    let recent = server
        .snapshots()
        .recent_events(view, heard.clone(), None, RECENT)?;
    Ok(Overview {
        machines,
        counts,
        holding: world.sessions.holding().count() as u64,
        recent: recent.into_iter().map(event).collect(),
        findings: if heard.is_everything() {
            snapshot.findings().to_vec()
        } else {
            Vec::new()
        },
        own,
        policy: world.policy,
        simulated: world
            .nodes
            .iter()
            .flat_map(|node| &node.capacity.devices)
            .any(|device| device.simulated),
    })
}

/// Numbers of the menu.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MenuCounts {
    pub live: u64,
    pub waiting: u64,
}

/// How many live and how many waiting sessions the caller may see. Costs one look at each user's share of the shared
/// snapshot.
pub async fn menu_counts(server: &Server, caller: &Caller) -> Result<MenuCounts, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let snapshot = server.snapshot().await?;
    let visible = reach(&caller.subject, Permission::SessionsRead).or_own(&caller.subject);
    let mut counts = MenuCounts::default();
    for (_, there) in snapshot
        .counts()
        .iter()
        .filter(|(scope, _)| visible.covers(scope))
    {
        counts.live += there.live();
        counts.waiting += there.pending;
    }
    Ok(counts)
}

/// What the main container of a session used after `since`, oldest first: every two seconds of the last quarter of an hour,
/// once a minute before that, for a week.
pub async fn samples(
    server: &Server,
    caller: &Caller,
    id: &str,
    since: Option<Timestamp>,
) -> Result<Vec<UsageSample>, Failure> {
    let row = server.catalog().read_now("show samples", |view| {
        find(view, caller, Permission::SessionsRead, id)
    })?;
    let main = (row.id, MAIN);
    let rows = match since {
        Some(since) => server.catalog().recent_samples_of(main, since).await?,
        None => {
            server
                .catalog()
                .samples_of(main, Timestamp::default())
                .await?
        }
    };
    let demand = row.spec.of_each();
    let held = row.holds();
    let granted: Bytes = held.iter().map(|part| part.memory).sum();
    let simulated = held.iter().any(|part| part.simulated);
    let percent = |part: f64, whole: f64| {
        if whole > 0.0 {
            part / whole * 100.0
        } else {
            0.0
        }
    };
    Ok(rows
        .windows(2)
        .filter(|pair| pair[0].incarnation == pair[1].incarnation)
        .map(|pair| {
            let (before, after) = (&pair[0], &pair[1]);
            let spent = after
                .cpu_microseconds
                .saturating_sub(before.cpu_microseconds);
            let elapsed = after.at.millis_since(before.at).max(1) * 1000;
            let cpu = spent as f64 / elapsed as f64;
            let waiting = |of: fn(Waited) -> u64| {
                let (since, until) = (before.waited.map(of)?, after.waited.map(of)?);
                Some(percent(until.saturating_sub(since) as f64, elapsed as f64).min(100.0))
            };
            UsageSample {
                at: after.at,
                cpu,
                cpu_percent_of_limit: percent(cpu, demand.cpu.as_f64()),
                memory: after.memory,
                memory_percent_of_limit: percent(after.memory.0 as f64, demand.memory.0 as f64),
                processes: after.processes,
                cpu_waiting_percent: waiting(|waited| waited.cpu_microseconds),
                memory_waiting_percent: waiting(|waited| waited.memory_microseconds),
                gpu: gpu(before, after, granted, simulated),
            }
        })
        .collect())
}

fn gpu(before: &UsageRow, after: &UsageRow, granted: Bytes, simulated: bool) -> Option<GpuSample> {
    let load_percent = load(before.worked, after.worked);
    if load_percent.is_none() && after.device_memory.is_none() {
        return None;
    }
    let of_limit = |memory: Bytes| memory.0 as f64 / granted.0 as f64 * 100.0;
    Some(GpuSample {
        load_percent,
        memory: after.device_memory,
        memory_percent_of_limit: after
            .device_memory
            .filter(|_| granted != Bytes::ZERO)
            .map(of_limit),
        simulated,
    })
}
