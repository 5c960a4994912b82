//! What is given and used at this moment, of the site, of each device and of each user; kept every ten seconds. The
//! store thins it with age. Decides nothing, and nothing depends on it.

use std::collections::BTreeMap;
use std::time::Duration;

use rules::messages::DeviceUse;
use rules::names::ContainerName;
use rules::names::UserId;
use rules::session::{Session, SessionContainer};

use crate::catalog::samples::Rate;
use crate::catalog::samples::history::{HistoryRow, HistorySubject, STEPS};
use crate::snapshot::Snapshot;
use crate::{Failure, Server, ServerFault};

/// Keeps a moment for each of the finest steps. Runs until it is dropped. What cannot be kept is logged and lost.
pub(crate) async fn keep(server: Server) {
    let step = Duration::from_secs(STEPS[0].0.unsigned_abs());
    loop {
        let now = server.clock().now().as_millis().unsigned_abs();
        let passed = Duration::from_millis(now).as_millis() as u64 % step.as_millis() as u64;
        tokio::time::sleep(step - Duration::from_millis(passed)).await;
        if let Err(failure) = keep_one(&server).await {
            let error = base::observe::chain(&failure);
            tracing::warn!(%error, "a moment of the history was not kept");
        }
    }
}

/// Keeps what holds at this moment.
///
/// Errors: those of the catalog and of the samples.
pub(crate) async fn keep_one(server: &Server) -> Result<(), Failure> {
    let snapshot = server.snapshot().await?;
    let (catalog, now) = (server.catalog().clone(), server.clock().now());
    let kept = tokio::task::spawn_blocking(move || {
        let samples = catalog.samples();
        samples.record_history(now, &moment(&snapshot, &samples.rates()))
    });
    kept.await
        .map_err(|ended| ServerFault::new("keep the history", ended))?
}

/// What is given and used: the site, then devices, then users, those who hold most first.
fn moment(
    snapshot: &Snapshot,
    rates: &BTreeMap<ContainerName, Rate>,
) -> Vec<(HistorySubject, HistoryRow)> {
    let mut site = HistoryRow::default();
    let mut devices: BTreeMap<&str, HistoryRow> = BTreeMap::new();
    let mut users: BTreeMap<UserId, HistoryRow> = BTreeMap::new();
    for node in &snapshot.world.nodes {
        let mut given: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
        for session in &snapshot.world.sessions {
            for container in session.live_on(node.id) {
                let rate = rates.get(&session.container_name(container.index));
                let row = held(session, container, rate);
                add(&mut site, &row);
                add(users.entry(session.owner).or_default(), &row);
                for part in container.holds().iter() {
                    let sum = given.entry(part.index).or_default();
                    sum.0 += part.share.as_f64();
                    sum.1 += part.memory.0 as f64;
                }
            }
        }
        let uses: &[DeviceUse] = snapshot
            .devices
            .uses
            .get(&node.id)
            .map_or(&[], |uses| uses.as_slice());
        for device in &node.capacity.devices {
            let row = devices.entry(&device.uuid).or_default();
            let (share, memory) = given.get(&device.index).copied().unwrap_or_default();
            row.gpu += share;
            row.gpu_memory += memory;
            if let Some(now) = uses.iter().find(|now| now.device == device.index) {
                row.gpu_busy = now.busy_percent.map(|percent| f64::from(percent) / 100.0);
                row.gpu_memory_busy = now.memory.map(|memory| memory.0 as f64);
                row.celsius = now.celsius.map(f64::from);
                row.watts = now
                    .milliwatts
                    .map(|milliwatts| f64::from(milliwatts) / 1000.0);
            }
        }
    }
    // What a whole device does is known of the device, also where its slices do not say.
    site.gpu_busy = None;
    site.gpu_memory_busy = None;
    for row in devices.values() {
        site.gpu_busy = plus(site.gpu_busy, row.gpu_busy);
        site.gpu_memory_busy = plus(site.gpu_memory_busy, row.gpu_memory_busy);
        site.watts = plus(site.watts, row.watts);
    }
    let mut users: Vec<_> = users.into_iter().collect();
    users.sort_by(|(_, a), (_, b)| {
        (b.gpu, b.cpu)
            .partial_cmp(&(a.gpu, a.cpu))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    let devices = devices.into_iter().filter(|(uuid, _)| !uuid.is_empty());
    [(HistorySubject::Site, site)]
        .into_iter()
        .chain(devices.map(|(uuid, row)| (HistorySubject::Device(uuid.to_owned()), row)))
        .chain(
            users
                .into_iter()
                .map(|(id, row)| (HistorySubject::User(id), row)),
        )
        .collect()
}

/// What one container holds and uses.
fn held(session: &Session, container: &SessionContainer, rate: Option<&Rate>) -> HistoryRow {
    let demand = session.spec.of_each();
    let mut row = HistoryRow {
        cpu: demand.cpu.as_f64(),
        memory: demand.memory.0 as f64,
        cpu_busy: rate.map_or(0.0, |rate| rate.cores),
        memory_busy: rate.map_or(0.0, |rate| rate.memory.0 as f64),
        ..HistoryRow::default()
    };
    for part in container.holds().iter() {
        row.gpu += part.share.as_f64();
        row.gpu_memory += part.memory.0 as f64;
        let of = |now: &&crate::catalog::samples::DeviceRate| {
            (now.device, now.part) == (part.index, part.part)
        };
        let now = rate.and_then(|rate| rate.devices.iter().find(of));
        let busy = now
            .and_then(|now| now.load)
            .map(|load| load / 100.0 * part.share.as_f64());
        row.gpu_busy = plus(row.gpu_busy, busy);
        let memory = now.and_then(|now| now.memory).map(|memory| memory.0 as f64);
        row.gpu_memory_busy = plus(row.gpu_memory_busy, memory);
    }
    row
}

fn add(sum: &mut HistoryRow, row: &HistoryRow) {
    sum.cpu += row.cpu;
    sum.cpu_busy += row.cpu_busy;
    sum.memory += row.memory;
    sum.memory_busy += row.memory_busy;
    sum.gpu += row.gpu;
    sum.gpu_memory += row.gpu_memory;
    sum.gpu_busy = plus(sum.gpu_busy, row.gpu_busy);
    sum.gpu_memory_busy = plus(sum.gpu_memory_busy, row.gpu_memory_busy);
}

/// The sum of what is known; None where neither is.
fn plus(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one + other),
        (known, None) | (None, known) => known,
    }
}
