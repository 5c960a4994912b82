//! Has this machine's cards cut as they were ordered: one at a time, in a thread of its own, and only where
//! nothing of ours runs. A helper of its own is asked, so that whoever looks at the cards meanwhile does
//! not wait. What fails is told and tried again after a pause that grows. Resets no card.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rules::devices::MigProfile;
use rules::messages::{PartitionFailure, PartitionSpec};
use rules::partitioning;
use rules::reason::Reason;
use rules::reasons;
use rules::resources::Device;

use super::monitor::DeviceMonitor;

/// How long a card is left alone after so many failures in a row; the last pause repeats. Shorter: a card
/// that waits for a reset is bothered for days. Longer: a card that a session has just released stays failed.
const PAUSES: [Duration; 4] = [
    Duration::from_secs(5),
    Duration::from_secs(20),
    Duration::from_secs(60),
    Duration::from_secs(300),
];

/// What came of the orders so far.
#[derive(Debug, Default)]
pub(crate) struct MigConfigurator {
    tried: Arc<Mutex<Tried>>,
}

#[derive(Debug, Default)]
struct Tried {
    busy: bool,
    failed: BTreeMap<String, Failed>,
}

#[derive(Debug)]
struct Failed {
    wanted: Vec<MigProfile>,
    times: usize,
    not_before: Instant,
    reason: Reason,
}

impl MigConfigurator {
    /// Begins with the first card that is not as ordered, that nobody holds, and that is due; `done` is
    /// called when it is over. Never waits. `held` are the numbers of cards that something of ours runs on
    /// or is to run on.
    pub(crate) fn look(
        &self,
        orders: &[PartitionSpec],
        monitor: &Arc<DeviceMonitor>,
        held: &BTreeSet<u32>,
        done: impl FnOnce() + Send + 'static,
    ) {
        let seen = monitor.seen();
        let mut tried = lock(&self.tried);
        let ordered = |device: &str| orders.iter().find(|order| order.device == device);
        tried.failed.retain(|device, failed| {
            ordered(device).is_some_and(|order| order.profiles == failed.wanted)
        });
        if tried.busy {
            return;
        }
        let now = Instant::now();
        let due = orders.iter().find(|order| {
            let device = seen.devices.iter().find(|d| d.uuid == order.device);
            let rests = tried.failed.get(&order.device);
            device.is_some_and(|device| {
                !is_so(device, &order.profiles, &seen.hollow) && !held.contains(&device.index)
            }) && rests.is_none_or(|failed| failed.not_before <= now)
        });
        let Some(order) = due.cloned() else {
            return;
        };
        tried.busy = true;
        drop(tried);
        let (kept, monitor) = (Arc::clone(&self.tried), Arc::clone(monitor));
        let begun = std::thread::Builder::new()
            .name("mig".to_owned())
            .spawn(move || {
                let tried = monitor.partition(&order.device, &order.profiles);
                lock(&kept).take(order, tried);
                done();
            });
        if let Err(error) = begun {
            lock(&self.tried).busy = false;
            tracing::error!(%error, "no GPU is partitioned: a thread cannot be started");
        }
    }

    /// The cards that could not be cut as ordered, by their numbers.
    pub(crate) fn partition_failures(&self) -> Vec<PartitionFailure> {
        let tried = lock(&self.tried);
        tried
            .failed
            .iter()
            .map(|(device, failed)| PartitionFailure {
                device: device.clone(),
                reason: failed.reason.clone(),
            })
            .collect()
    }
}

impl Tried {
    fn take(&mut self, order: PartitionSpec, came: Result<(), String>) {
        self.busy = false;
        let Err(why) = came else {
            tracing::info!(device = order.device, "the GPU is partitioned as ordered");
            self.failed.remove(&order.device);
            return;
        };
        let times = self.failed.get(&order.device).map_or(0, |f| f.times);
        tracing::warn!(
            device = order.device,
            why,
            "the GPU cannot be partitioned as ordered now"
        );
        let reason = reasons::gpu_partition_failed(&why);
        let failed = Failed {
            wanted: order.profiles,
            times: times + 1,
            not_before: Instant::now() + PAUSES[times.min(PAUSES.len() - 1)],
            reason,
        };
        self.failed.insert(order.device, failed);
    }
}

/// Whether a card is as ordered. One that is set to be cut and has no partition is not whole.
fn is_so(device: &Device, wanted: &[MigProfile], hollow: &BTreeSet<String>) -> bool {
    let now: Vec<MigProfile> = device.mig.iter().map(|part| part.profile).collect();
    partitioning::same(&now, wanted) && !hollow.contains(&device.uuid)
}

fn lock(tried: &Mutex<Tried>) -> MutexGuard<'_, Tried> {
    tried.lock().unwrap_or_else(PoisonError::into_inner)
}
