//! Who is inside a container, minute by minute, beside what it used: terminals that are open, keys that are typed,
//! and how long the minute was on a clock that cannot be set. Keeps no text and no name of anybody.

use std::collections::{BTreeMap, BTreeSet};

use base::observe::Uptime;
use rules::idleness::{IdleSample, SteadyMoment};
use rules::messages::BusyTime;
use rules::names::{ContainerName, SessionId};
use rules::units::Timestamp;
use rusqlite::{OptionalExtension as _, Transaction};

use super::{Samples, locked};
use crate::Failure;
use crate::catalog::value;

/// Milliseconds after which a container that is no longer sampled is forgotten.
const FORGOTTEN_AFTER: u64 = 3_600_000;

/// What was counted since the minute's last sample.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    open: u32,
    most: u32,
    keys: u32,
}

/// Counts of this process; nothing of them is known of the process before.
#[derive(Debug, Default)]
pub(super) struct Presence {
    counted: BTreeMap<ContainerName, Counted>,
    sampled: BTreeMap<ContainerName, Uptime>,
    /// Containers that were paused at some time since their last minute.
    paused: BTreeSet<ContainerName>,
}

/// One minute of one container.
pub(super) struct PresenceMinute {
    at: Uptime,
    /// The most that were open at once, and times that somebody typed; None for the first minute of this process, which
    /// does not know what came before.
    counted: Option<(u32, u32)>,
}

impl Presence {
    /// What was counted since the last sample of a container; counting starts over. None where it was paused meanwhile:
    /// without its row the minute has no length, and the idle time starts over after it.
    fn minute(&mut self, name: ContainerName, now: Uptime) -> Option<PresenceMinute> {
        let before = self.sampled.insert(name, now);
        let counted = self.counted.entry(name).or_default();
        let minute = PresenceMinute {
            at: now,
            counted: before.map(|_| (counted.most, counted.keys)),
        };
        counted.most = counted.open;
        counted.keys = 0;
        (!self.paused.remove(&name)).then_some(minute)
    }

    fn prune(&mut self, now: Uptime) {
        self.sampled
            .retain(|_, at| now.since(*at) < FORGOTTEN_AFTER);
        let sampled: BTreeSet<_> = self.sampled.keys().copied().collect();
        self.counted
            .retain(|name, counted| counted.open > 0 || sampled.contains(name));
        self.paused.retain(|name| sampled.contains(name));
    }
}

/// The statement that makes the table where there is none.
pub(super) fn made() -> &'static str {
    "create table if not exists presence_minute (
         session blob not null,
         container integer not null,
         at integer not null,
         boot blob not null,
         uptime integer not null,
         terminals integer,
         keys integer,
         primary key (session, container, at)
     ) strict, without rowid;"
}

/// Writes the minute of these containers, beside the rows of what they used.
pub(super) fn write(
    transaction: &Transaction<'_>,
    at: Timestamp,
    minutes: &[(ContainerName, PresenceMinute)],
) -> rusqlite::Result<()> {
    let mut insert = transaction.prepare_cached(
        "insert or replace into presence_minute
             (session, container, at, boot, uptime, terminals, keys)
         values (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    for (name, minute) in minutes {
        insert.execute((
            name.session.0.as_bytes(),
            name.index,
            at.as_millis(),
            minute.at.boot.as_bytes(),
            value::signed(minute.at.millis),
            minute.counted.map(|(terminals, _)| terminals),
            minute.counted.map(|(_, keys)| keys),
        ))?;
    }
    Ok(())
}

/// Drops minutes from before a moment.
pub(super) fn forget(transaction: &Transaction<'_>, before: i64) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("delete from presence_minute where at < ?1")?
        .execute([before])?;
    Ok(())
}

impl Samples {
    /// What was counted of these containers until now, each once.
    pub(super) fn presence_minutes(
        &self,
        names: impl Iterator<Item = ContainerName>,
        now: Uptime,
    ) -> Vec<(ContainerName, PresenceMinute)> {
        let mut presence = locked(&self.presence);
        let minutes = names.filter_map(|name| Some((name, presence.minute(name, now)?)));
        let minutes = minutes.collect();
        presence.prune(now);
        minutes
    }

    /// Somebody opened a terminal, a command or a port.
    pub(crate) fn entered(&self, name: ContainerName) {
        let mut presence = locked(&self.presence);
        let counted = presence.counted.entry(name).or_default();
        counted.open += 1;
        counted.most = counted.most.max(counted.open);
    }

    /// They closed it.
    pub(crate) fn left(&self, name: ContainerName) {
        if let Some(counted) = locked(&self.presence).counted.get_mut(&name) {
            counted.open = counted.open.saturating_sub(1);
        }
    }

    /// Somebody typed into a terminal.
    pub(crate) fn typed(&self, name: ContainerName) {
        let mut presence = locked(&self.presence);
        let counted = presence.counted.entry(name).or_default();
        counted.keys = counted.keys.saturating_add(1);
    }

    /// These containers stand still at this moment.
    pub(crate) fn stand_still(&self, names: impl Iterator<Item = ContainerName>) {
        locked(&self.presence).paused.extend(names);
    }

    /// What was counted for a minute is lost: of the next one nothing is known either.
    pub(super) fn lose_presence(&self) {
        locked(&self.presence).sampled.clear();
    }

    /// Forgets what was counted, as a restart does.
    pub(crate) fn forget_presence(&self) {
        *locked(&self.presence) = Presence::default();
    }

    /// The minutes of one container of a session after `since`, oldest first, at most a week of them. Minutes from
    /// before presence was counted have none.
    pub(crate) fn minutes_of(
        &self,
        (session, container): (SessionId, u32),
        since: Timestamp,
    ) -> Result<Vec<IdleSample>, Failure> {
        let connection = locked(&self.connection);
        let mut statement = connection.prepare_cached(
            "select usage_minute.at, incarnation, cpu_microseconds, gpu_busy, gpu_granted, boot, uptime,
                    terminals, keys
             from usage_minute
             left join presence_minute
                 on presence_minute.session = usage_minute.session
                 and presence_minute.container = usage_minute.container
                 and presence_minute.at = usage_minute.at
             where usage_minute.session = ?1
             and usage_minute.container = ?2
             and usage_minute.at > ?3
             order by usage_minute.at",
        )?;
        let rows = statement.query_map(
            (session.0.as_bytes(), container, since.as_millis()),
            |row| {
                Ok(IdleSample {
                    at: value::time(row, "at")?,
                    incarnation: row.get("incarnation")?,
                    steady: value::id_or_none(row, "boot")?
                        .zip(value::unsigned_or_none(row, "uptime")?)
                        .map(|(boot, millis)| SteadyMoment { boot, millis }),
                    cpu_microseconds: value::unsigned(row, "cpu_microseconds")?,
                    worked: value::unsigned_or_none(row, "gpu_busy")?
                        .zip(value::unsigned_or_none(row, "gpu_granted")?)
                        .map(|(busy_microseconds, granted_microseconds)| BusyTime {
                            busy_microseconds,
                            granted_microseconds,
                        }),
                    terminals: row.get("terminals")?,
                    keys: row.get("keys")?,
                })
            },
        )?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The containers that have minutes. Visits one row of each: the key leads from one to the next.
    pub(crate) fn sampled_containers(&self) -> Result<Vec<(SessionId, u32)>, Failure> {
        let connection = locked(&self.connection);
        let mut statement = connection.prepare_cached(
            "select session, container
             from usage_minute
             where (session, container) > (?1, ?2)
             order by session, container
             limit 1",
        )?;
        let mut all = Vec::new();
        let mut last: (Vec<u8>, i64) = (Vec::new(), -1);
        while let Some((session, container)) = statement
            .query_row((&last.0, last.1), |row| {
                Ok((value::id(row, 0)?, row.get::<_, u32>(1)?))
            })
            .optional()?
        {
            last = (session.as_bytes().to_vec(), i64::from(container));
            all.push((SessionId(session), container));
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use rules::messages::ContainerUsage;
    use rules::names::NodeId;
    use rules::units::Bytes;
    use uuid::Uuid;

    use super::*;
    use crate::catalog::CatalogPlace;

    #[test]
    fn who_is_inside_is_counted_by_the_minute_and_a_pause_leaves_a_hole() {
        let samples = Samples::open(&CatalogPlace::Memory).unwrap();
        let node = NodeId(Uuid::from_u128(7));
        let of = |session: u128, index: u32| ContainerName {
            session: SessionId(Uuid::from_u128(session)),
            incarnation: 1,
            index,
        };
        let (name, replica, other) = (of(1, 0), of(1, 1), of(2, 0));
        let usage = ContainerUsage {
            cpu_microseconds: 0,
            memory: Bytes::ZERO,
            processes: 1,
            waited: None,
            devices: Vec::new(),
        };
        let minute = |number: u64| {
            let millis = number * 60_000;
            let at = Timestamp::from_millis(millis as i64);
            let boot = Uuid::from_u128(9);
            let used = [name, replica, other].map(|name| (name, usage.clone()));
            samples.record(node, (at, Uptime { boot, millis }), &used);
        };
        minute(1);
        samples.entered(name);
        samples.entered(name);
        samples.left(name);
        samples.typed(name);
        minute(2);
        minute(3);
        samples.stand_still([name].into_iter());
        minute(4);
        minute(5);
        samples.forget_presence();
        minute(6);
        let told = |name: ContainerName| -> Vec<(bool, Option<u32>, Option<u32>)> {
            let rows = samples.minutes_of((name.session, name.index), Timestamp::default());
            let rows = rows.unwrap().into_iter();
            rows.map(|row| (row.steady.is_some(), row.terminals, row.keys))
                .collect()
        };
        let wanted = [
            (true, None, None),
            (true, Some(2), Some(1)),
            (true, Some(1), Some(0)),
            (false, None, None),
            (true, Some(1), Some(0)),
            (true, None, None),
        ];
        assert_eq!(told(name), wanted);
        assert!(told(other).iter().all(|(is_steady, ..)| *is_steady));
        assert_eq!(
            samples.sampled_containers().unwrap(),
            [name, replica, other].map(|name| (name.session, name.index))
        );
    }
}
