//! Rows of resource groups, and which node and which session is in which. Decides nothing; who may use a group and which
//! one a launch gets, `rules::resource_group` says.

use std::collections::BTreeMap;

use rules::calendar::ZoneOffsets;
use rules::fair_share::QueueOrder;
use rules::holiday::Holidays;
use rules::names::{NodeId, ResourceGroupId, SessionId, TenantName};
use rules::policy::{BackfillMode, PreemptionMode, Spreading};
use rules::resource_group::{CpuOvercommit, GroupKinds, GroupPlan, ResourceGroup};
use rules::world::NodeRecord;
use rusqlite::{OptionalExtension as _, Row};

use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// Live sessions of other groups than the founding one, from an index alone: every pass asks, and ended ones stay in the table.
pub(super) const LIVE: &str = "select id, resource_group
     from session
     where resource_group is not null and state <> 'ended'";
pub(super) const LIVE_IN_GROUP: &str = "select count(*) as live
     from session
     where resource_group = ?1 and state <> 'ended'";

fn group_row(row: &Row<'_>) -> rusqlite::Result<ResourceGroup> {
    Ok(ResourceGroup {
        id: ResourceGroupId(value::id(row, "id")?),
        name: value::word(row, "name", |text| TenantName::parse(text).ok())?,
        title: row.get("title")?,
        access: value::json_or_none(row, "access")?,
        kinds: GroupKinds {
            interactive: row.get("interactive")?,
            batch: row.get("batch")?,
        },
        spreading: value::word_or_none(row, "spreading", Spreading::parse)?,
        order: value::word_or_none(row, "ordering", QueueOrder::parse)?,
        backfill: value::word_or_none(row, "backfill", BackfillMode::parse)?,
        cpu_overcommit: CpuOvercommit::clamped(row.get("cpu_overcommit")?),
        calendar: value::json_or_none(row, "calendar")?.unwrap_or_default(),
        preemption: value::word(row, "preemption", PreemptionMode::parse)?,
        generation: value::unsigned(row, "generation")?,
    })
}

/// As rows of nodes and sessions have it: null is the founding group.
fn column(group: ResourceGroupId) -> Option<[u8; 16]> {
    (group != ResourceGroupId::DEFAULT).then(|| *group.0.as_bytes())
}

/// Null where it has no window.
fn calendar_text(group: &ResourceGroup) -> Option<String> {
    let calendar = &group.calendar;
    (!calendar.windows.is_empty()).then(|| value::text(calendar))
}

/// UTC for a zone that this version no longer knows. `off`: days off of the site.
fn offsets_of(zone: &str, off: &Holidays) -> ZoneOffsets {
    let known = jiff::tz::TimeZone::get(zone);
    ZoneOffsets {
        holidays: off.keys().copied().collect(),
        ..known.map_or_else(|_| ZoneOffsets::default(), |zone| ZoneOffsets::of(&zone))
    }
}

impl ReadTransaction<'_> {
    /// All groups, the founding one first, then by name. O(groups).
    pub(crate) fn resource_groups(&self) -> Result<Vec<ResourceGroup>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select *
             from resource_group
             order by id <> ?1, name",
        )?;
        let rows = statement.query_map([ResourceGroupId::DEFAULT.0.as_bytes()], group_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Groups and nodes, without sessions: enough to choose the group of a launch. O(groups + nodes of other groups).
    pub(crate) fn nodes_by_group(&self) -> Result<GroupPlan, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select id, resource_group
             from node
             where resource_group is not null",
        )?;
        let rows = statement.query_map([], |row| {
            Ok((
                NodeId(value::id(row, 0)?),
                ResourceGroupId(value::id(row, 1)?),
            ))
        })?;
        let groups = self.resource_groups()?;
        let has_windows = |one: &&ResourceGroup| !one.calendar.windows.is_empty();
        let off = match groups.iter().any(|one| has_windows(&one)) {
            true => self.holidays(None)?.days,
            false => Holidays::new(),
        };
        let with_windows = groups.iter().filter(has_windows);
        Ok(GroupPlan {
            offsets: with_windows
                .map(|one| (one.id, offsets_of(&one.calendar.zone, &off)))
                .collect(),
            groups,
            nodes: rows.collect::<Result<_, _>>()?,
            sessions: BTreeMap::new(),
        })
    }

    /// The plan of a world: empty where there is only the founding group and it says nothing of its own. Costs a visit to
    /// each live session of another group.
    pub(crate) fn group_plan(&self) -> Result<GroupPlan, Failure> {
        let mut plan = self.nodes_by_group()?;
        if let [only] = &plan.groups[..]
            && only.is_plain()
        {
            return Ok(GroupPlan::default());
        }
        let mut statement = self.connection.prepare_cached(LIVE)?;
        let rows = statement.query_map([], |row| {
            Ok((
                SessionId(value::id(row, 0)?),
                ResourceGroupId(value::id(row, 1)?),
            ))
        })?;
        plan.sessions = rows.collect::<Result<_, _>>()?;
        Ok(plan)
    }

    /// Ids and names of all machines, by name.
    pub(crate) fn node_names(&self) -> Result<Vec<(NodeId, String)>, Failure> {
        let mut statement = self
            .connection
            .prepare_cached("select id, name from node order by name")?;
        let rows = statement.query_map([], |row| {
            Ok((NodeId(value::id(row, "id")?), row.get("name")?))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Machines of the founding group: reservations keep nothing of others.
    pub(crate) fn founding_nodes(&self) -> Result<Vec<NodeRecord>, Failure> {
        let (plan, mut nodes) = (self.nodes_by_group()?, self.nodes()?);
        nodes.retain(|node| plan.of_node(node.id) == ResourceGroupId::DEFAULT);
        Ok(nodes)
    }

    /// The group of a session, ended or not; the founding one for an unknown session.
    pub(crate) fn group_of_session(&self, id: SessionId) -> Result<ResourceGroupId, Failure> {
        let found = self
            .connection
            .prepare_cached("select resource_group from session where id = ?1")?
            .query_row([id.0.as_bytes()], |row| value::id_or_none(row, 0))
            .optional()?;
        let known = found.flatten().map(ResourceGroupId);
        Ok(known.unwrap_or(ResourceGroupId::DEFAULT))
    }

    /// Live sessions of a group other than the founding one. O(those).
    pub(crate) fn live_in_group(&self, id: ResourceGroupId) -> Result<u64, Failure> {
        Ok(self
            .connection
            .prepare_cached(LIVE_IN_GROUP)?
            .query_row([id.0.as_bytes()], |row| value::unsigned(row, "live"))?)
    }
}

impl Rows<'_> {
    pub(crate) fn insert_resource_group(&self, group: &ResourceGroup) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into resource_group
                     (id, name, title, access, interactive, batch, spreading, ordering, backfill,
                      cpu_overcommit, calendar, preemption, generation)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
            )?
            .execute((
                group.id.0.as_bytes(),
                group.name.as_str(),
                &group.title,
                group.access.as_ref().map(value::text),
                group.kinds.interactive,
                group.kinds.batch,
                group.spreading.map(Spreading::word),
                group.order.map(QueueOrder::word),
                group.backfill.map(BackfillMode::word),
                group.cpu_overcommit.hundredths(),
                calendar_text(group),
                group.preemption.word(),
                value::signed(group.generation),
            ))?;
        Ok(())
    }

    /// Writes all but the nodes; raises the generation.
    pub(crate) fn put_resource_group(&self, group: &ResourceGroup) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "update resource_group
                 set name = ?2, title = ?3, access = ?4, interactive = ?5, batch = ?6,
                     spreading = ?7, ordering = ?8, backfill = ?9, cpu_overcommit = ?10,
                     calendar = ?11, preemption = ?12, generation = generation + 1
                 where id = ?1",
            )?
            .execute((
                group.id.0.as_bytes(),
                group.name.as_str(),
                &group.title,
                group.access.as_ref().map(value::text),
                group.kinds.interactive,
                group.kinds.batch,
                group.spreading.map(Spreading::word),
                group.order.map(QueueOrder::word),
                group.backfill.map(BackfillMode::word),
                group.cpu_overcommit.hundredths(),
                calendar_text(group),
                group.preemption.word(),
            ))?;
        Ok(())
    }

    /// Makes sessions of a group ones of the founding one, at most `most`, and says how many. O(those).
    pub(crate) fn leave_resource_group(
        &self,
        id: ResourceGroupId,
        most: usize,
    ) -> Result<usize, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "update session
                 set resource_group = null
                 where id in (
                     select id
                     from session
                     where resource_group = ?1
                     limit ?2)",
            )?
            .execute((id.0.as_bytes(), i64::try_from(most).unwrap_or(i64::MAX)))?)
    }

    /// Removes a group without nodes and sessions.
    pub(crate) fn forget_resource_group(&self, id: ResourceGroupId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from resource_group where id = ?1")?
            .execute([id.0.as_bytes()])?;
        Ok(())
    }

    /// Puts a node into a group, out of the one that it was in.
    pub(crate) fn put_node_group(
        &self,
        node: NodeId,
        group: ResourceGroupId,
    ) -> Result<(), Failure> {
        self.connection
            .prepare_cached("update node set resource_group = ?2 where id = ?1")?
            .execute((node.0.as_bytes(), column(group)))?;
        Ok(())
    }

    /// Puts a new session into a group.
    pub(crate) fn put_session_group(
        &self,
        session: SessionId,
        group: ResourceGroupId,
    ) -> Result<(), Failure> {
        if group == ResourceGroupId::DEFAULT {
            return Ok(());
        }
        self.connection
            .prepare_cached("update session set resource_group = ?2 where id = ?1")?
            .execute((session.0.as_bytes(), column(group)))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::writer::Lane;
    use super::*;
    use crate::Server;

    #[test]
    fn ended_sessions_leave_a_group_some_at_a_time() {
        let server = Server::for_tests();
        let catalog = server.catalog();
        let id = ResourceGroupId(Uuid::from_u128(9));
        let group = ResourceGroup::new(id, TenantName::parse("lab").unwrap());
        catalog
            .write_now(Lane::Requests, "a group", move |rows| {
                rows.insert_resource_group(&group)?;
                rows.connection.execute(
                    "insert into user (id, name, language, theme, time_zone, suspended, password, created_at,
                                       generation)
                     values (unhex(format('%032d', 7)), 'abe', '', '', '', 0, '', 0, 1)",
                    [],
                )?;
                rows.connection.execute(
                    "insert into session (id, name, owner, labels, kind, image_reference, command, env, cpu, memory,
                                          shm, gpu, depends_on, state, desired, paused, restart, incarnation,
                                          generation, created_at, queued_at, ended_at, outcome, resource_group)
                     select unhex(format('%032d', column1)), 's', unhex(format('%032d', 7)), '{}', 'batch', 'host',
                            '[]', '{}', 0, 0, 0, 0, '[]', 'ended', 'run', 0, 0, 1, 1, 10, 10, 20, 'stopped', ?1
                     from (values (1), (2), (3))",
                    [id.0.as_bytes()],
                )?;
                Ok(())
            })
            .unwrap();
        let leaving = || {
            let left = catalog.write_now(Lane::Requests, "leave", move |rows| {
                rows.leave_resource_group(id, 2)
            });
            left.unwrap()
        };
        assert_eq!([leaving(), leaving(), leaving()], [2, 1, 0]);
        let gone = catalog.write_now(Lane::Requests, "forget", move |rows| {
            rows.forget_resource_group(id)
        });
        gone.unwrap();
        let of = catalog.read_now("look", |view| {
            view.group_of_session(SessionId(Uuid::from_u128(1)))
        });
        assert_eq!(of.unwrap(), ResourceGroupId::DEFAULT);
    }
}
