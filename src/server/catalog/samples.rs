//! What sessions used, moment by moment: `samples.sqlite`, a file of its own that may lose its last
//! second and is made again when it is damaged. Nothing a user was promised is kept here alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use base::observe::Uptime;
use rules::messages::{BusyTime, ContainerUsage, SliceUse, Waited};
use rules::names::{ContainerName, NodeId, SessionId};
use rules::units::{Bytes, Timestamp};
use rules::workload::container::MAIN;
use rusqlite::Connection;

use super::value;
use super::{CatalogPlace, files};
use crate::{Failure, ServerFault};

pub(crate) mod history;
mod presence;

const FILE: &str = "samples.sqlite";
/// Raised when the tables change; an older file than `BEFORE` is thrown away, which is what it is for.
const VERSION: i32 = 4;
/// The version whose file is taken over. Its samples are of sessions, which had one container each.
const BEFORE: i32 = 3;
/// Least milliseconds between two samples that are kept. Shorter: more writes. Longer: live strips
/// jump.
const APART: u64 = 1_900;
/// Every sample is kept this long; of older ones the first of each minute.
const FINE_SECONDS: u64 = 15 * 60;
/// Minutes are kept this long.
const COARSE_SECONDS: u64 = 7 * 86_400;

/// Containers whose newest samples are kept in memory between two reports. Higher: more memory, some 10 KiB for each.
/// Lower: pages that are open at once read the same samples again.
const MAX_RECENT_CONTAINERS: usize = 128;

/// One sample of one container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UsageRow {
    pub(crate) at: Timestamp,
    pub(crate) incarnation: u32,
    /// Since its start, microseconds.
    pub(crate) cpu_microseconds: u64,
    pub(crate) memory: Bytes,
    pub(crate) processes: u64,
    pub(crate) waited: Option<Waited>,
    /// Of all its devices together; None where one of them does not say.
    pub(crate) worked: Option<BusyTime>,
    pub(crate) device_memory: Option<Bytes>,
}

/// What one container used between its two newest samples.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rate {
    /// Cores in use.
    pub(crate) cores: f64,
    pub(crate) memory: Bytes,
    /// One entry for each of its shares of devices.
    pub(crate) devices: Vec<DeviceRate>,
}

/// What one container did with its share of one device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DeviceRate {
    /// The device's index on its node, and the partition.
    pub(crate) device: u32,
    pub(crate) part: Option<u32>,
    /// Per cent of its share; above 100 where it was given what others left.
    pub(crate) load: Option<f64>,
    pub(crate) memory: Option<Bytes>,
    pub(crate) idle_since: Option<Timestamp>,
}

/// What was worked between two sums, as per cent of what was granted meanwhile. None where unknown:
/// nothing was granted, or the node began to count from zero.
pub(crate) fn load(before: Option<BusyTime>, after: Option<BusyTime>) -> Option<f64> {
    let (before, after) = before.zip(after)?;
    let busy = after
        .busy_microseconds
        .checked_sub(before.busy_microseconds)?;
    let granted = after
        .granted_microseconds
        .checked_sub(before.granted_microseconds)?;
    (granted > 0).then(|| busy as f64 / granted as f64 * 100.0)
}

/// The sum over all devices of a container; None where there are none, or one of them does not say.
fn worked(devices: &[SliceUse]) -> Option<BusyTime> {
    let none = BusyTime {
        busy_microseconds: 0,
        granted_microseconds: 0,
    };
    let sum = devices.iter().try_fold(none, |sum, slice| {
        let worked = slice.worked?;
        Some(BusyTime {
            busy_microseconds: sum.busy_microseconds + worked.busy_microseconds,
            granted_microseconds: sum.granted_microseconds + worked.granted_microseconds,
        })
    });
    sum.filter(|_| !devices.is_empty())
}

fn device_memory(devices: &[SliceUse]) -> Option<Bytes> {
    let sum = devices
        .iter()
        .try_fold(Bytes::ZERO, |sum, slice| Some(sum + slice.memory?));
    sum.filter(|_| !devices.is_empty())
}

impl DeviceRate {
    fn of(now: &SliceUse, before: Option<&ContainerUsage>, idle: Option<Timestamp>) -> Self {
        let known = before.and_then(|usage| {
            let mut slices = usage.devices.iter();
            slices.find(|slice| (slice.device, slice.part) == (now.device, now.part))
        });
        Self {
            device: now.device,
            part: now.part,
            load: load(known.and_then(|known| known.worked), now.worked),
            memory: now.memory,
            idle_since: now.idle_since.map(|since| idle.unwrap_or(since).min(since)),
        }
    }
}

pub(crate) struct Samples {
    connection: Mutex<Connection>,
    /// Of each node: their reports come apart from one another.
    latest: Mutex<BTreeMap<NodeId, Latest>>,
    /// Samples of the last minutes that were read since the newest were written, by container of a session.
    recent: Mutex<BTreeMap<(SessionId, u32), RecentSamples>>,
    history: Mutex<history::RecentHistory>,
    presence: Mutex<presence::Presence>,
}

/// Samples of one container of a session after a moment.
struct RecentSamples {
    since: Timestamp,
    rows: Vec<UsageRow>,
}

#[derive(Default)]
struct Latest {
    at: Timestamp,
    minute: i64,
    seen: BTreeMap<ContainerName, ContainerUsage>,
    rates: BTreeMap<ContainerName, Rate>,
    /// Since when containers were idle before this server first heard of them, until they work again. The node's own
    /// clock of idleness starts over with its process.
    idle: BTreeMap<ContainerName, Timestamp>,
}

impl Samples {
    pub(super) fn open(place: &CatalogPlace) -> Result<Self, Failure> {
        let connection = match place {
            CatalogPlace::Memory => Connection::open_in_memory()
                .map_err(|error| ServerFault::new("open samples in memory", error))?,
            CatalogPlace::Directory(directory) => {
                let path = directory.join(FILE);
                match connect(&path) {
                    Ok(connection) => connection,
                    Err(error) => {
                        tracing::warn!(%error, path = %path.display(), "the samples file is damaged; a new one is made");
                        for ending in ["", "-wal", "-shm"] {
                            // What is not there need not go; anything else shows in the next line.
                            let _ = std::fs::remove_file(directory.join(format!("{FILE}{ending}")));
                        }
                        connect(&path)?
                    }
                }
            }
        };
        connection
            .execute_batch(
                &[
                    made("usage"),
                    made("usage_minute"),
                    history::made(),
                    presence::made().to_owned(),
                ]
                .concat(),
            )
            .and_then(|()| history::complete(&connection))
            .map_err(|error| ServerFault::new("found the samples", error))?;
        Ok(Self {
            connection: Mutex::new(connection),
            latest: Mutex::default(),
            recent: Mutex::default(),
            history: Mutex::default(),
            presence: Mutex::default(),
        })
    }

    /// Empties the page cache.
    pub(super) fn give_back(&self) {
        files::shrink(&locked(&self.connection));
    }

    /// Keeps what a report of `node` says about usage. Samples that follow each other too closely are left
    /// out. Never fails: what cannot be written is logged and lost. True where it differs from the sample before.
    pub(crate) fn record(
        &self,
        node: NodeId,
        (at, uptime): (Timestamp, Uptime),
        used: &[(ContainerName, ContainerUsage)],
    ) -> bool {
        let mut nodes = locked(&self.latest);
        let latest = nodes.entry(node).or_default();
        let apart = at.millis_since(latest.at);
        if apart < APART && at >= latest.at {
            return false;
        }
        let new_minute = at.as_millis() / 60_000 != latest.minute;
        let names = used.iter().map(|(name, _)| *name);
        let first: BTreeSet<_> = names
            .filter(|name| !latest.seen.contains_key(name))
            .collect();
        for (name, usage) in used.iter().filter(|(name, _)| first.contains(name)) {
            if !usage.devices.is_empty()
                && let Some(since) = self.idle_before(*name)
            {
                latest.idle.insert(*name, since);
            }
        }
        let is_idle = |usage: &ContainerUsage| {
            let mut devices = usage.devices.iter();
            devices.all(|one| one.idle_since.is_some())
        };
        let idle = used.iter().filter(|(_, usage)| is_idle(usage));
        let idle: BTreeSet<ContainerName> = idle.map(|(name, _)| *name).collect();
        latest.idle.retain(|name, _| idle.contains(name));
        let rates: BTreeMap<ContainerName, Rate> = used
            .iter()
            .map(|(name, usage)| {
                let before = latest
                    .seen
                    .get(name)
                    .map_or(usage.cpu_microseconds, |u| u.cpu_microseconds);
                let spent = usage.cpu_microseconds.saturating_sub(before);
                let cores = spent as f64 / (apart.max(1) as f64 * 1000.0);
                let memory = usage.memory;
                let before = latest.seen.get(name);
                let devices = usage.devices.iter();
                let idle = latest.idle.get(name).copied();
                let devices = devices
                    .map(|now| DeviceRate::of(now, before, idle))
                    .collect();
                let rate = Rate {
                    cores,
                    memory,
                    devices,
                };
                (*name, rate)
            })
            .collect();
        // A sample of a running session is a new point of its charts, whatever it says.
        let changed = !rates.is_empty() || !latest.rates.is_empty();
        latest.rates = rates;
        latest.seen = used.iter().cloned().collect();
        latest.at = at;
        latest.minute = at.as_millis() / 60_000;
        drop(nodes);
        if used.is_empty() && !new_minute {
            return changed;
        }
        if let Err(error) = self.write((at, uptime), used, new_minute, &first) {
            tracing::warn!(%error, "samples were not written");
            self.lose_presence();
        }
        locked(&self.recent).clear();
        changed
    }

    fn write(
        &self,
        (at, uptime): (Timestamp, Uptime),
        used: &[(ContainerName, ContainerUsage)],
        new_minute: bool,
        first: &BTreeSet<ContainerName>,
    ) -> rusqlite::Result<()> {
        let names = used.iter().map(|(name, _)| *name);
        let names = names.filter(|name| new_minute || first.contains(name));
        let minutes = self.presence_minutes(names, uptime);
        let mut connection = locked(&self.connection);
        let transaction = connection.transaction()?;
        // Of each container the first sample is kept as long as its minutes: its charts begin there.
        for table in ["usage", "usage_minute"] {
            let mut insert = transaction.prepare_cached(&format!(
                "insert or replace into {table}
                     (session, container, at, incarnation, cpu_microseconds, memory, processes,
                      cpu_waited, memory_waited, gpu_busy, gpu_granted, gpu_memory)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)"
            ))?;
            let all = table == "usage" || new_minute;
            for (name, usage) in used.iter().filter(|(name, _)| all || first.contains(name)) {
                let worked = worked(&usage.devices);
                insert.execute((
                    name.session.0.as_bytes(),
                    name.index,
                    at.as_millis(),
                    name.incarnation,
                    value::signed(usage.cpu_microseconds),
                    value::signed(usage.memory.0),
                    value::signed(usage.processes),
                    usage
                        .waited
                        .map(|waited| value::signed(waited.cpu_microseconds)),
                    usage
                        .waited
                        .map(|waited| value::signed(waited.memory_microseconds)),
                    worked.map(|worked| value::signed(worked.busy_microseconds)),
                    worked.map(|worked| value::signed(worked.granted_microseconds)),
                    device_memory(&usage.devices).map(|memory| value::signed(memory.0)),
                ))?;
            }
        }
        presence::write(&transaction, at, &minutes)?;
        if new_minute {
            presence::forget(
                &transaction,
                at.as_millis() - (COARSE_SECONDS * 1000) as i64,
            )?;
            for (table, seconds) in [("usage", FINE_SECONDS), ("usage_minute", COARSE_SECONDS)] {
                let before = at.as_millis() - (seconds * 1000) as i64;
                transaction
                    .prepare_cached(&format!("delete from {table} where at < ?1"))?
                    .execute([before])?;
            }
        }
        transaction.commit()
    }

    /// As `of`, for a moment of a few minutes ago: read once for all who ask until the next sample.
    pub(crate) fn recent(
        &self,
        (session, container): (SessionId, u32),
        since: Timestamp,
    ) -> Result<Vec<UsageRow>, Failure> {
        let after = |known: &RecentSamples| {
            let rows = known.rows.iter().filter(|row| row.at > since);
            rows.copied().collect()
        };
        // Held while the rows are read, so that a sample that is written meanwhile is not missed.
        let mut recent = locked(&self.recent);
        let known = recent.get(&(session, container));
        if let Some(known) = known.filter(|known| known.since <= since) {
            return Ok(after(known));
        }
        let rows = self.of((session, container), since)?;
        if recent.len() < MAX_RECENT_CONTAINERS {
            let rows = rows.clone();
            recent.insert((session, container), RecentSamples { since, rows });
        }
        Ok(rows)
    }

    /// Samples of one container of a session, by its place there, after `since`, oldest first: each one of the last quarter of an hour,
    /// one a minute before. Empty where nothing was sampled.
    pub(crate) fn of(
        &self,
        (session, container): (SessionId, u32),
        since: Timestamp,
    ) -> Result<Vec<UsageRow>, Failure> {
        let connection = locked(&self.connection);
        let mut statement = connection.prepare_cached(
            "select at, incarnation, cpu_microseconds, memory, processes, cpu_waited, memory_waited,
                    gpu_busy, gpu_granted, gpu_memory
             from usage_minute
             where session = ?1 and container = ?4 and at > ?2
             and at < coalesce(
                 (select min(at) from usage where session = ?1 and container = ?4), ?3
             )
             union all
             select at, incarnation, cpu_microseconds, memory, processes, cpu_waited, memory_waited,
                    gpu_busy, gpu_granted, gpu_memory
             from usage
             where session = ?1 and container = ?4 and at > ?2
             order by at",
        )?;
        let rows = statement.query_map(
            (session.0.as_bytes(), since.as_millis(), i64::MAX, container),
            |row| {
                Ok(UsageRow {
                    at: value::time(row, "at")?,
                    incarnation: row.get("incarnation")?,
                    cpu_microseconds: value::unsigned(row, "cpu_microseconds")?,
                    memory: Bytes(value::unsigned(row, "memory")?),
                    processes: value::unsigned(row, "processes")?,
                    waited: value::unsigned_or_none(row, "cpu_waited")?
                        .zip(value::unsigned_or_none(row, "memory_waited")?)
                        .map(|(cpu_microseconds, memory_microseconds)| Waited {
                            cpu_microseconds,
                            memory_microseconds,
                        }),
                    worked: value::unsigned_or_none(row, "gpu_busy")?
                        .zip(value::unsigned_or_none(row, "gpu_granted")?)
                        .map(|(busy_microseconds, granted_microseconds)| BusyTime {
                            busy_microseconds,
                            granted_microseconds,
                        }),
                    device_memory: value::unsigned_or_none(row, "gpu_memory")?.map(Bytes),
                })
            },
        )?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Since when the devices of a container did nothing, by its samples: when they last worked, or the first sample.
    /// None where nothing was sampled. Reads all of its samples.
    fn idle_before(&self, name: ContainerName) -> Option<Timestamp> {
        let rows = match self.of((name.session, name.index), Timestamp::default()) {
            Ok(rows) => rows,
            Err(error) => {
                tracing::warn!(%error, "samples were not read");
                return None;
            }
        };
        let own = rows
            .iter()
            .filter(|row| row.incarnation == name.incarnation);
        let busy: Vec<(Timestamp, u64)> = own
            .filter_map(|row| Some((row.at, row.worked?.busy_microseconds)))
            .collect();
        // A sum that falls began again from zero with the node's process; that is no work.
        let mut steps = busy.windows(2).rev();
        let worked = steps
            .find(|step| step[1].1 > step[0].1)
            .map(|step| step[1].0);
        worked.or_else(|| busy.first().map(|(at, _)| *at))
    }

    /// What each running container uses now; absent where nothing was sampled yet.
    pub(crate) fn rates(&self) -> BTreeMap<ContainerName, Rate> {
        let nodes = locked(&self.latest);
        let rates = nodes.values().flat_map(|latest| &latest.rates);
        rates.map(|(name, rate)| (*name, rate.clone())).collect()
    }
}

fn connect(path: &Path) -> Result<Connection, Failure> {
    files::make_file(path)?;
    let connection =
        Connection::open(path).map_err(|error| ServerFault::new("open the samples", error))?;
    let version: i32 = connection.query_row("pragma user_version", [], |row| row.get(0))?;
    if ![0, BEFORE, VERSION].contains(&version) {
        return Err(ServerFault::new("open the samples", "they are of another version").into());
    }
    connection.execute_batch("pragma busy_timeout = 5000;")?;
    connection.query_row("pragma journal_mode = wal", [], |_| Ok(()))?;
    if version == BEFORE {
        take_over(&connection)?;
    }
    connection.execute_batch(&format!(
        "pragma synchronous = normal;
         pragma temp_store = memory;
         pragma cache_size = -2000;
         pragma trusted_schema = off;
         pragma user_version = {VERSION};"
    ))?;
    Ok(connection)
}

/// Gives the samples of the version before their container, the main one.
fn take_over(connection: &Connection) -> Result<(), Failure> {
    let tables = ["usage", "usage_minute"].map(|table| {
        format!(
            "alter table {table} rename to {table}_before;
             {}
             insert into {table}
             select session, {MAIN}, at, incarnation, cpu_microseconds, memory, processes,
                    cpu_waited, memory_waited, gpu_busy, gpu_granted, gpu_memory
             from {table}_before;
             drop table {table}_before;",
            made(table)
        )
    });
    connection.execute_batch(&format!(
        "begin; {} pragma user_version = {VERSION}; commit;",
        tables.concat()
    ))?;
    Ok(())
}

/// The statement that makes a table of samples where there is none.
fn made(table: &str) -> String {
    format!(
        "create table if not exists {table} (
             session blob not null,
             container integer not null,
             at integer not null,
             incarnation integer not null,
             cpu_microseconds integer not null,
             memory integer not null,
             processes integer not null,
             cpu_waited integer,
             memory_waited integer,
             gpu_busy integer,
             gpu_granted integer,
             gpu_memory integer,
             primary key (session, container, at)
         ) strict, without rowid;"
    )
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(uuid::Uuid::from_u128(100));

    fn name(n: u128) -> ContainerName {
        ContainerName {
            session: SessionId(uuid::Uuid::from_u128(n)),
            incarnation: 1,
            index: 0,
        }
    }

    /// A time of day, and a clock of the machine that runs with it.
    fn steady(at: Timestamp) -> (Timestamp, Uptime) {
        let uptime = Uptime {
            boot: uuid::Uuid::from_u128(1),
            millis: at.as_millis().unsigned_abs(),
        };
        (at, uptime)
    }

    fn usage(cpu_seconds: f64) -> ContainerUsage {
        ContainerUsage {
            cpu_microseconds: (cpu_seconds * 1e6) as u64,
            memory: Bytes::mib(100),
            processes: 2,
            waited: None,
            devices: Vec::new(),
        }
    }

    /// A second of a share of a quarter, of which a tenth was used.
    fn slice(second: u64) -> SliceUse {
        SliceUse {
            device: 3,
            part: None,
            memory: Some(Bytes::mib(700)),
            worked: Some(BusyTime {
                busy_microseconds: second * 25_000,
                granted_microseconds: second * 250_000,
            }),
            idle_since: None,
            simulated: false,
        }
    }

    #[test]
    fn recent_samples_are_those_of_the_file_for_more_containers_than_are_kept() {
        let samples = Samples::open(&CatalogPlace::Memory).unwrap();
        let at = |second: i64| Timestamp::from_millis(1_800_000_000_000 + second * 1000);
        let sessions = MAX_RECENT_CONTAINERS as u128 + 2;
        for second in [0, 2, 4, 6] {
            let used: Vec<_> = (0..sessions)
                .map(|n| (name(n), usage(second as f64)))
                .collect();
            assert!(
                samples.record(NODE, steady(at(second)), &used),
                "running sessions have new points"
            );
            for n in 0..sessions {
                for since in [at(1), at(3), at(0)] {
                    let session = (name(n).session, MAIN);
                    let recent = samples.recent(session, since).unwrap();
                    assert_eq!(recent, samples.of(session, since).unwrap());
                }
            }
            assert_eq!(locked(&samples.recent).len(), MAX_RECENT_CONTAINERS);
        }
        assert!(
            samples.record(NODE, steady(at(8)), &[]),
            "the last points are over"
        );
        assert!(!samples.record(NODE, steady(at(10)), &[]), "nothing runs");
    }

    #[test]
    fn the_clock_of_an_idle_container_goes_on_over_a_restart_until_it_works() {
        let folder = tempfile::tempdir().unwrap();
        let place = CatalogPlace::Directory(folder.path().to_owned());
        let at = |second: i64| Timestamp::from_millis(1_800_000_000_000 + second * 1000);
        let told = |samples: &Samples, second: i64, busy: u64, idle_since: Option<i64>| {
            let mut used = usage(0.0);
            used.devices = vec![SliceUse {
                worked: Some(BusyTime {
                    busy_microseconds: busy,
                    granted_microseconds: 1_000_000,
                }),
                idle_since: idle_since.map(at),
                ..slice(0)
            }];
            samples.record(NODE, steady(at(second)), &[(name(1), used)]);
            samples.rates()[&name(1)].devices[0].idle_since
        };
        let samples = Samples::open(&place).unwrap();
        assert_eq!(told(&samples, 0, 0, None), None);
        assert_eq!(told(&samples, 2, 500, None), None);
        assert_eq!(told(&samples, 4, 500, Some(2)), Some(at(2)));
        for restart in [60, 120] {
            // The node counts from zero again, and knows of no idleness before.
            let samples = Samples::open(&place).unwrap();
            let first = told(&samples, restart, 0, Some(restart));
            assert_eq!(first, Some(at(2)), "as before the restart at {restart} s");
            let next = told(&samples, restart + 2, 0, Some(restart));
            assert_eq!(next, Some(at(2)));
        }
        let samples = Samples::open(&place).unwrap();
        assert_eq!(told(&samples, 180, 0, Some(180)), Some(at(2)));
        assert_eq!(told(&samples, 182, 900, None), None, "it works again");
        assert_eq!(told(&samples, 184, 900, Some(182)), Some(at(182)));
    }

    #[test]
    fn what_devices_did_is_kept_as_sums_and_told_as_load_within_the_share() {
        let samples = Samples::open(&CatalogPlace::Memory).unwrap();
        let start = 1_800_000_000_000;
        let at = |second: i64| Timestamp::from_millis(start + second * 1000);
        let mut used = usage(0.0);
        for second in [0, 2, 4] {
            used.devices = vec![slice(second), slice(second)];
            samples.record(NODE, steady(at(second as i64)), &[(name(1), used.clone())]);
        }
        let rows = samples
            .of((name(1).session, MAIN), Timestamp::default())
            .unwrap();
        assert_eq!(load(rows[0].worked, rows[2].worked), Some(10.0));
        assert_eq!(rows[2].device_memory, Some(Bytes::mib(1400)));
        let rate = samples.rates()[&name(1)].devices[1];
        assert_eq!((rate.device, rate.load), (3, Some(10.0)));
        assert_eq!(rate.memory, Some(Bytes::mib(700)));

        // One that does not say: then it is unknown of both. A node that begins from zero: no load.
        used.devices[0].worked = None;
        samples.record(NODE, steady(at(6)), &[(name(1), used.clone())]);
        used.devices = vec![slice(1), slice(1)];
        samples.record(NODE, steady(at(8)), &[(name(1), used)]);
        let rows = samples
            .of((name(1).session, MAIN), Timestamp::default())
            .unwrap();
        assert_eq!(rows[3].worked, None);
        assert_eq!(load(rows[2].worked, rows[4].worked), None);
        assert_eq!(samples.rates()[&name(1)].devices[1].load, None);
    }

    #[test]
    fn samples_thin_out_with_age_and_rates_are_of_the_newest_two() {
        let samples = Samples::open(&CatalogPlace::Memory).unwrap();
        let start = 1_800_000_000_000;
        for tick in 0..3600_i64 {
            let at = Timestamp::from_millis(start + tick * 1000);
            samples.record(NODE, steady(at), &[(name(1), usage(tick as f64 * 0.5))]);
        }
        let all = samples
            .of((name(1).session, MAIN), Timestamp::default())
            .unwrap();
        assert!(
            all.is_sorted_by(|a, b| a.at < b.at),
            "out of order or doubled"
        );
        let recent = Timestamp::from_millis(start + 3_600_000 - 900_000);
        let fine = all.iter().filter(|row| row.at >= recent).count();
        let coarse = all.len() - fine;
        assert!((440..=470).contains(&fine), "{fine}");
        assert!((40..=80).contains(&coarse), "{coarse}");
        let rate = samples.rates()[&name(1)].clone();
        assert!((rate.cores - 0.5).abs() < 0.01, "{}", rate.cores);
        let later = samples.of((name(1).session, MAIN), recent).unwrap();
        assert!(later.len() < all.len() && later.iter().all(|row| row.at > recent));
        assert_eq!(samples.of((name(2).session, MAIN), recent).unwrap(), []);
    }

    #[test]
    fn a_damaged_file_is_begun_anew() {
        let directory = tempfile::tempdir().unwrap();
        let place = CatalogPlace::Directory(directory.path().to_path_buf());
        std::fs::write(directory.path().join(FILE), "no database".repeat(500)).unwrap();
        let samples = Samples::open(&place).unwrap();
        samples.record(
            NODE,
            steady(Timestamp::from_millis(5_000)),
            &[(name(1), usage(1.0))],
        );
        drop(samples);
        let again = Samples::open(&place).unwrap();
        let kept = again
            .of((name(1).session, MAIN), Timestamp::default())
            .unwrap();
        assert_eq!(kept.len(), 1);
    }

    #[test]
    fn samples_are_of_one_container_each_and_of_any_node() {
        let samples = Samples::open(&CatalogPlace::Memory).unwrap();
        let at = |second: i64| Timestamp::from_millis(1_800_000_000_000 + second * 1000);
        let of = |index: u32| ContainerName { index, ..name(1) };
        let other = NodeId(uuid::Uuid::from_u128(101));
        for second in [0, 2, 4] {
            let cores = |each: u32| (of(each), usage(second as f64 * f64::from(each + 1)));
            assert!(samples.record(NODE, steady(at(second)), &[cores(0), cores(1)]));
            // At the same moment, from another node.
            assert!(samples.record(other, steady(at(second)), &[cores(2)]));
        }
        let rates = samples.rates();
        assert_eq!(rates.len(), 3);
        for index in [0, 1, 2] {
            assert_eq!(rates[&of(index)].cores, f64::from(index + 1));
            let rows = samples.of((of(index).session, index), Timestamp::default());
            let cpu: Vec<u64> = rows
                .unwrap()
                .iter()
                .map(|row| row.cpu_microseconds)
                .collect();
            let each = u64::from(index + 1) * 2_000_000;
            assert_eq!(cpu, [0, each, 2 * each], "{index}");
        }
        // One node goes on, the other one is silent.
        samples.record(NODE, steady(at(6)), &[(of(0), usage(6.0))]);
        let names: Vec<ContainerName> = samples.rates().into_keys().collect();
        assert_eq!(names, [of(0), of(2)]);
    }

    #[test]
    fn the_first_minutes_of_a_session_stay_when_they_are_thinned() {
        let samples = Samples::open(&CatalogPlace::Memory).unwrap();
        let at = |second: i64| Timestamp::from_millis(second * 1_000);
        // Another one ran before, so the session begins within a minute.
        samples.record(NODE, steady(at(0)), &[(name(2), usage(1.0))]);
        for second in (5..5 + 24 * 60).step_by(2) {
            let used = [(name(2), usage(1.0)), (name(1), usage(second as f64))];
            samples.record(NODE, steady(at(second)), &used);
        }
        let rows = samples.of((name(1).session, MAIN), Timestamp::default());
        let seconds: Vec<i64> = rows
            .unwrap()
            .iter()
            .map(|row| row.at.as_millis() / 1_000)
            .collect();
        assert_eq!(seconds[0], 5, "its first sample");
        assert!(
            seconds.windows(2).all(|pair| pair[1] - pair[0] <= 62),
            "{seconds:?}"
        );
    }

    #[test]
    fn samples_of_the_version_before_are_those_of_main_containers() {
        let directory = tempfile::tempdir().unwrap();
        let older = Connection::open(directory.path().join(FILE)).unwrap();
        for table in ["usage", "usage_minute"] {
            let before = made(table)
                .replace("container integer not null,", "")
                .replace("session, container, at", "session, at");
            older.execute_batch(&before).unwrap();
            older
                .execute(
                    &format!(
                        "insert into {table} (session, at, incarnation, cpu_microseconds, memory, processes)
                         values (?1, ?2, 1, 3000000, 4, 5)"
                    ),
                    (name(1).session.0.as_bytes(), if table == "usage" { 5_000 } else { 1_000 }),
                )
                .unwrap();
        }
        older.pragma_update(None, "user_version", BEFORE).unwrap();
        drop(older);
        for _ in 0..2 {
            let place = CatalogPlace::Directory(directory.path().to_path_buf());
            let samples = Samples::open(&place).unwrap();
            let rows = samples.of((name(1).session, MAIN), Timestamp::default());
            let rows: Vec<_> = rows
                .unwrap()
                .iter()
                .map(|row| (row.at.as_millis(), row.cpu_microseconds))
                .collect();
            assert_eq!(rows, [(1_000, 3_000_000), (5_000, 3_000_000)]);
            assert_eq!(
                samples
                    .of((name(1).session, 1), Timestamp::default())
                    .unwrap(),
                []
            );
        }
    }
}
