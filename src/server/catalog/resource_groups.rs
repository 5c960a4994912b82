//! Rows of resource groups, and which node and which session is in which. Decides nothing; who may use a group and which
//! one a launch gets, `rules::resource_group` says.

use std::collections::BTreeMap;

use rules::names::{NodeId, ResourceGroupId, SessionId, TenantName};
use rules::policy::{PreemptionMode, Spreading};
use rules::resource_group::{GroupKinds, GroupPlan, ResourceGroup};
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
        preemption: value::word(row, "preemption", PreemptionMode::parse)?,
        generation: value::unsigned(row, "generation")?,
    })
}

/// As rows of nodes and sessions have it: null is the founding group.
fn column(group: ResourceGroupId) -> Option<[u8; 16]> {
    (group != ResourceGroupId::DEFAULT).then(|| *group.0.as_bytes())
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
        Ok(GroupPlan {
            groups: self.resource_groups()?,
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
                     (id, name, title, access, interactive, batch, spreading, preemption, generation)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute((
                group.id.0.as_bytes(),
                group.name.as_str(),
                &group.title,
                group.access.as_ref().map(value::text),
                group.kinds.interactive,
                group.kinds.batch,
                group.spreading.map(Spreading::word),
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
                     spreading = ?7, preemption = ?8, generation = generation + 1
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
                group.preemption.word(),
            ))?;
        Ok(())
    }

    /// Removes a group without nodes and live sessions; its ended sessions are of the founding one from then on.
    pub(crate) fn forget_resource_group(&self, id: ResourceGroupId) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "update session
                 set resource_group = null
                 where resource_group = ?1",
            )?
            .execute([id.0.as_bytes()])?;
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
