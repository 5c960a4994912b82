//! What the server knows of machines and writes in no row. Gone with the process; reads no row.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rules::egress::EgressReport;
use rules::messages::{DeviceUse, NodeReport, PartitionFailure};
use rules::names::{ContainerName, NodeId};
use rules::policy::SharePolicy;
use rules::units::Timestamp;

/// How often counts of connections are written; a new host and an end are written at once. Shorter: more commits while sessions
/// are connected. Longer: their pages are older.
const CONNECTIONS_EACH: Duration = Duration::from_secs(10);

/// Connections of each node's containers, as they were written last, and when.
type ReportedConnections = BTreeMap<NodeId, BTreeMap<ContainerName, (Instant, EgressReport)>>;

/// What belongs to a world and stands in no row. When each machine was last heard of: a machine that has
/// nothing new to say causes no write, and after a restart the rows' older times are right. What its
/// devices were doing then, and which could not be cut as ordered. And the administrator's rules for shares of devices, which come from the
/// settings.
#[derive(Clone, Default)]
pub(crate) struct NodeCache {
    times: Arc<Mutex<BTreeMap<NodeId, Timestamp>>>,
    policy: Arc<RwLock<SharePolicy>>,
    told: Arc<Mutex<BTreeMap<NodeId, NodeTelemetry>>>,
    connections: Arc<Mutex<ReportedConnections>>,
    version: Arc<AtomicU64>,
}

/// What a machine said last and no row keeps.
#[derive(Clone, Default, PartialEq)]
pub(super) struct NodeTelemetry {
    pub(super) uses: Vec<DeviceUse>,
    pub(super) partition_failures: Vec<PartitionFailure>,
}

impl NodeCache {
    pub(super) fn note(&self, node: NodeId, at: Timestamp) {
        self.times().insert(node, at);
        self.raise();
    }

    /// Rises with every change of what is cached here.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Called after the change: a reader that takes the version first can only be too old by the version, never by
    /// the content.
    pub(super) fn raise(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Keeps what a report says of devices; true where it differs from the report before.
    pub(super) fn note_devices(&self, report: &NodeReport) -> bool {
        let told = NodeTelemetry {
            uses: report.device_uses.clone(),
            partition_failures: report.partition_failures.clone(),
        };
        let before = self.told().insert(report.node, told.clone());
        let changed = before.as_ref() != Some(&told);
        if changed {
            self.raise();
        }
        changed
    }

    /// Keeps what a report counted of connections, and gives what is to be written now: a container with a new host or an end,
    /// each an event of its own, at once, another one every few seconds. O(containers × log).
    pub(super) fn note_connections(&self, report: &NodeReport) -> Vec<EgressReport> {
        let mut known = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let before = known.entry(report.node).or_default();
        let named: BTreeSet<ContainerName> =
            report.egress.iter().map(|one| one.container).collect();
        before.retain(|name, _| named.contains(name));
        let last = |one: &EgressReport| one.ends.last().map(|end| end.number);
        let mut new = Vec::new();
        for one in &report.egress {
            let is_due = match before.get(&one.container) {
                None => !one.rows.is_empty(),
                Some((_, written)) if written == one => false,
                Some((at, written)) => {
                    at.elapsed() >= CONNECTIONS_EACH
                        || written.rows.len() != one.rows.len()
                        || last(written) != last(one)
                }
            };
            if is_due {
                before.insert(one.container, (Instant::now(), one.clone()));
                new.push(one.clone());
            }
        }
        new
    }

    pub(super) fn told(&self) -> MutexGuard<'_, BTreeMap<NodeId, NodeTelemetry>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_policy(&self, policy: SharePolicy) {
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = policy;
        self.raise();
    }

    pub(super) fn policy(&self) -> SharePolicy {
        *self.policy.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn forget(&self) {
        self.times().clear();
        self.told().clear();
        self.raise();
    }

    pub(super) fn times(&self) -> MutexGuard<'_, BTreeMap<NodeId, Timestamp>> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
