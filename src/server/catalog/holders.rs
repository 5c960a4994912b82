//! Who held a device in a time: of the rows of sessions and of their containers, which stay written when they end. A row
//! knows the last start of its session. Decides nothing; the reach says whose rows are given.

use std::collections::BTreeMap;

use rules::names::{NodeId, SessionId};
use rules::permissions::Reach;
use rules::resources::DeviceShare;
use rules::units::Timestamp;

use super::reach;
use super::reader::ReadTransaction;
use super::value;
use crate::Failure;

/// Sessions of a time that are looked at, those that ended last. More: reading them takes longer. Fewer: the first of a
/// busy week are left out.
const MAX_ROWS: i64 = 20_000;

/// A session that held a share of the device.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DeviceHolder {
    pub(crate) session: SessionId,
    pub(crate) name: String,
    pub(crate) user: String,
    /// The sum of what its containers have of the device: 1.5 is one device and a half.
    pub(crate) share: f64,
    pub(crate) from: Timestamp,
    /// None while it holds it.
    pub(crate) until: Option<Timestamp>,
}

/// A device by its node and its index there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeldDevice {
    pub(crate) node: NodeId,
    pub(crate) index: u32,
}

impl ReadTransaction<'_> {
    /// Sessions of the reach that held the device between the two moments, in no order. Costs a look at each of the
    /// reach that lives or ended since, at no more than 20,000 of those.
    pub(crate) fn holders(
        &self,
        reach: &Reach,
        device: HeldDevice,
        (from, until): (Timestamp, Timestamp),
    ) -> Result<Vec<DeviceHolder>, Failure> {
        let (condition, bound) = reach::condition(reach, reach::SESSION, "?4");
        let mut statement = self.connection.prepare_cached(&format!(
            "with held as (
                 select id, name, owner, scheduled_at, ended_at
                 from session
                 where state <> 'ended' and scheduled_at < ?2 and {condition}
                 union all
                 select id, name, owner, scheduled_at, ended_at
                 from (
                     select *
                     from session
                     where state = 'ended' and ended_at > ?1 and scheduled_at < ?2 and {condition}
                     order by ended_at desc
                     limit ?5
                 )
             )
             select held.id as session, held.name as name, \"user\".name as user_name, held.scheduled_at as began,
                    held.ended_at as ended, container.devices as devices
             from held
             join container on container.session = held.id and container.node = ?3
             join \"user\" on \"user\".id = held.owner"
        ))?;
        let node = device.node.0;
        let bounds = (
            from.as_millis(),
            until.as_millis(),
            node.as_bytes(),
            bound,
            MAX_ROWS,
        );
        let mut rows = statement.query(bounds)?;
        let mut all: BTreeMap<SessionId, DeviceHolder> = BTreeMap::new();
        while let Some(row) = rows.next()? {
            let parts: Vec<DeviceShare> = value::json(row, "devices")?;
            let meant = parts.iter().filter(|part| part.index == device.index);
            let share: f64 = meant.map(|part| part.share.as_f64()).sum();
            if share <= 0.0 {
                continue;
            }
            let session = SessionId(value::id(row, "session")?);
            let holder = DeviceHolder {
                session,
                name: row.get("name")?,
                user: row.get("user_name")?,
                share: 0.0,
                from: value::time(row, "began")?,
                until: value::time_or_none(row, "ended")?,
            };
            all.entry(session).or_insert(holder).share += share;
        }
        Ok(all.into_values().collect())
    }
}
