//! What the server knows of machines and writes in no row. Gone with the process; reads no row.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rules::egress::EgressReport;
use rules::messages::{DeviceUse, NodeReport, PartitionFailure};
use rules::names::{ContainerName, NodeId};
use rules::policy::SharePolicy;
use rules::units::Timestamp;

/// How often counts of connections are written, beside new hosts and ends. Shorter: more commits while sessions are connected. Longer: their pages are
/// older.
const CONNECTIONS_EACH: Duration = Duration::from_secs(10);

/// Connections of each node, as it reported them last.
type ReportedConnections = BTreeMap<NodeId, (Instant, Vec<EgressReport>)>;

/// What belongs to a world and stands in no row. When each machine was last heard of: a machine that has
/// nothing new to say causes no write, and after a restart the rows' older times are right. What its
/// devices were doing then, and which could not be cut as ordered. And the administrator's rules for shares of devices, which come from the
/// settings.
#[derive(Clone, Default)]
pub(crate) struct NodeCache {
    times: Arc<Mutex<BTreeMap<NodeId, Timestamp>>>,
    policy: Arc<RwLock<SharePolicy>>,
    told: Arc<Mutex<BTreeMap<NodeId, NodeTelemetry>>>,
    /// Of each machine the connections that were written last, and when.
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

    /// Keeps what a report counted of connections; true where it is to be written now.
    pub(super) fn note_connections(&self, report: &NodeReport) -> bool {
        let mut known = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let hosts = |reports: &[EgressReport]| -> Vec<(ContainerName, usize)> {
            let each = reports.iter();
            each.map(|one| (one.container, one.rows.len())).collect()
        };
        // Each is an event of its own.
        let lasts = |reports: &[EgressReport]| -> Vec<Option<u64>> {
            let each = reports.iter();
            each.map(|one| one.ends.last().map(|end| end.number))
                .collect()
        };
        let is_due = match known.get(&report.node) {
            None => !report.egress.is_empty(),
            Some((_, before)) if *before == report.egress => false,
            Some((at, before)) => {
                at.elapsed() >= CONNECTIONS_EACH
                    || hosts(before) != hosts(&report.egress)
                    || lasts(before) != lasts(&report.egress)
            }
        };
        if is_due {
            known.insert(report.node, (Instant::now(), report.egress.clone()));
        }
        is_due
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
