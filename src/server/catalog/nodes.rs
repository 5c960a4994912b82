//! Rows of machines and of what each was last told to have. A node row is written when it says
//! something new; an assignment row when its list changed, under the next generation.

use std::collections::{BTreeMap, BTreeSet};

use rules::devices::{MigPart, MigProfile};
use rules::messages::{Assignment, DeviceUse, PartitionFailure, PartitionSpec};
use rules::names::{BootId, NodeId};
use rules::partitioning;
use rules::policy::SharePolicy;
use rules::resources::{Device, DeviceShare};
use rules::units::Timestamp;
use rules::world::NodeRecord;
use rusqlite::{OptionalExtension as _, Row};
use uuid::Uuid;

use super::reader::ReadTransaction;
use super::sealing::SealedRow;
use super::value;
use super::writer::Rows;
use crate::Failure;

fn from_row(row: &Row<'_>) -> rusqlite::Result<NodeRecord> {
    Ok(NodeRecord {
        id: NodeId(value::id(row, "id")?),
        name: row.get("name")?,
        boot: BootId(value::id(row, "boot")?),
        capacity: value::json(row, "capacity")?,
        host_environment: row.get("host_environment")?,
        seen_at: value::time(row, "seen_at")?,
        generation: value::unsigned(row, "generation")?,
        schedulable: row.get("schedulable")?,
        note: row.get("note")?,
        cordoned: BTreeSet::new(),
        problems: value::json(row, "problems")?,
    })
}

/// What an administrator said of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeviceRow {
    pub(crate) uuid: String,
    pub(crate) cordoned: bool,
    /// Why, in the administrator's words; empty where nothing was said.
    pub(crate) note: String,
    pub(crate) changed_at: Timestamp,
    pub(crate) changed_by: String,
    /// How it is to be cut, once that was said.
    pub(crate) partitions: Option<DesiredPartitions>,
}

/// How an administrator wants a device cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DesiredPartitions {
    /// Empty: whole.
    pub(crate) profiles: Vec<MigProfile>,
    pub(crate) before: Vec<MigProfile>,
    pub(crate) at: Timestamp,
}

/// The profiles that a device is cut into.
pub(crate) fn profiles_of(device: &Device) -> Vec<MigProfile> {
    device.mig.iter().map(|part| part.profile).collect()
}

/// The partitions of simulated devices that were cut here, not as their machines report them; `said` is
/// what administrators said of devices.
pub(crate) fn simulated_partitions(
    said: &[DeviceRow],
    nodes: &[NodeRecord],
) -> BTreeMap<String, Vec<MigPart>> {
    wanted(said, nodes)
        .filter(|(_, device, _)| device.simulated)
        .map(|(_, device, _)| (device.uuid.clone(), device.mig.clone()))
        .collect()
}

/// How the real devices of each machine are to be cut, by the devices' numbers; without those of which nobody
/// said anything.
pub(crate) fn partition_specs(
    said: &[DeviceRow],
    nodes: &[NodeRecord],
) -> BTreeMap<NodeId, Vec<PartitionSpec>> {
    let mut orders: BTreeMap<NodeId, Vec<PartitionSpec>> = BTreeMap::new();
    for (node, device, desired) in wanted(said, nodes).filter(|(_, device, _)| !device.simulated) {
        orders.entry(node.id).or_default().push(PartitionSpec {
            device: device.uuid.clone(),
            profiles: desired.profiles.clone(),
        });
    }
    for orders in orders.values_mut() {
        orders.sort_by(|a, b| a.device.cmp(&b.device));
    }
    orders
}

/// Every device that is to be cut in a certain way, with its machine. Costs one look-up a device.
fn wanted<'a>(
    said: &'a [DeviceRow],
    nodes: &'a [NodeRecord],
) -> impl Iterator<Item = (&'a NodeRecord, &'a Device, &'a DesiredPartitions)> {
    let desired: BTreeMap<&str, &DesiredPartitions> = said
        .iter()
        .filter_map(|said| Some((said.uuid.as_str(), said.partitions.as_ref()?)))
        .collect();
    nodes
        .iter()
        .flat_map(|node| {
            node.capacity
                .devices
                .iter()
                .map(move |device| (node, device))
        })
        .filter_map(move |(node, device)| Some((node, device, *desired.get(device.uuid.as_str())?)))
}

impl ReadTransaction<'_> {
    /// Every machine, oldest first, with the time it was last heard of.
    pub(crate) fn nodes(&self) -> Result<Vec<NodeRecord>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select id, name, boot, capacity, host_environment, seen_at, generation, schedulable,
                    note, problems
             from node
             order by id",
        )?;
        let rows = statement.query_map([], from_row)?;
        let mut nodes: Vec<NodeRecord> = rows.collect::<Result<_, _>>()?;
        let said: BTreeMap<String, DeviceRow> = self
            .devices()?
            .into_iter()
            .map(|device| (device.uuid.clone(), device))
            .collect();
        let heard = self.heard.times();
        for node in &mut nodes {
            for device in &mut node.capacity.devices {
                let Some(said) = said.get(&device.uuid) else {
                    continue;
                };
                let waits = match &said.partitions {
                    Some(wanted) => self.awaits_partitions(node.id, device, wanted)?,
                    None => false,
                };
                if said.cordoned || waits {
                    node.cordoned.insert(device.uuid.clone());
                }
            }
            if let Some(at) = heard.get(&node.id) {
                node.seen_at = *at;
            }
        }
        Ok(nodes)
    }

    /// When each node last got a session, as a number that rises with each; absent where none ever did.
    pub(crate) fn node_turns(&self) -> Result<BTreeMap<NodeId, u64>, Failure> {
        let mut statement = self
            .connection
            .prepare_cached("select id, turn from node where turn > 0")?;
        let rows = statement.query_map([], |row| {
            Ok((NodeId(value::id(row, "id")?), value::unsigned(row, "turn")?))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Names of the machines that take no new sessions, each with why.
    pub(crate) fn closed_nodes(&self) -> Result<Vec<(String, String)>, Failure> {
        let mut statement = self
            .connection
            .prepare_cached("select name, note from node where schedulable = 0 order by id")?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// What the devices of a machine were doing when it was last heard of; empty since a restart, and for
    /// devices that say nothing.
    pub(crate) fn device_uses(&self, node: NodeId) -> Vec<DeviceUse> {
        let told = self.heard.told();
        told.get(&node)
            .map_or_else(Vec::new, |told| told.uses.clone())
    }

    /// Why devices of a machine could not be cut as ordered, when it was last heard of.
    pub(crate) fn partition_failures(&self, node: NodeId) -> Vec<PartitionFailure> {
        let told = self.heard.told();
        told.get(&node)
            .map_or_else(Vec::new, |told| told.partition_failures.clone())
    }

    /// Whether a device is not yet cut as it is to be. A simulated one is, as soon as nothing holds it that
    /// was placed before: it exists nowhere but here. A real one is cut by its machine, which then reports it.
    fn awaits_partitions(
        &self,
        node: NodeId,
        device: &mut Device,
        wanted: &DesiredPartitions,
    ) -> Result<bool, Failure> {
        if !device.simulated {
            return Ok(!partitioning::same(&profiles_of(device), &wanted.profiles));
        }
        let held = self.held_since(node, device.index, wanted.at)?;
        let profiles = if held {
            &wanted.before
        } else {
            &wanted.profiles
        };
        device.mig = partitioning::parts(device, profiles);
        Ok(held)
    }

    /// Whether a session that was placed then, or earlier, has a part of a device.
    fn held_since(&self, node: NodeId, index: u32, then: Timestamp) -> Result<bool, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select devices, pending_devices
             from container
             join session on session.id = container.session
             where container.node = ?1 and container.state <> 'ended' and scheduled_at <= ?2",
        )?;
        let rows = statement.query_map((node.0.as_bytes(), then.as_millis()), |row| {
            let held: Vec<DeviceShare> = value::json(row, "devices")?;
            let older: Vec<DeviceShare> = value::json(row, "pending_devices")?;
            Ok(held.iter().chain(&older).any(|part| part.index == index))
        })?;
        for row in rows {
            if row? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The administrator's rules for shares of devices.
    pub(crate) fn policy(&self) -> SharePolicy {
        self.heard.policy()
    }

    /// What administrators said of devices, those of machines that are gone too.
    pub(crate) fn devices(&self) -> Result<Vec<DeviceRow>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select uuid, cordoned, note, changed_at, changed_by, desired_partitions,
                    previous_partitions, partitions_desired_at
             from device",
        )?;
        let rows = statement.query_map([], |row| {
            Ok(DeviceRow {
                uuid: row.get("uuid")?,
                cordoned: row.get("cordoned")?,
                note: row.get("note")?,
                changed_at: value::time(row, "changed_at")?,
                changed_by: row.get("changed_by")?,
                partitions: match (
                    value::json_or_none(row, "desired_partitions")?,
                    value::json_or_none(row, "previous_partitions")?,
                    value::time_or_none(row, "partitions_desired_at")?,
                ) {
                    (Some(profiles), Some(before), Some(at)) => Some(DesiredPartitions {
                        profiles,
                        before,
                        at,
                    }),
                    _ => None,
                },
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// What this node was last told to have; None where it was never told anything.
    pub(crate) fn assignment(&self, node: NodeId) -> Result<Option<Assignment>, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select generation, containers, partitions,
                        (select installation_id from installation where id = 1) as state
                 from assignment
                 where node = ?1",
            )?
            .query_row([node.0.as_bytes()], |row| {
                Ok(Assignment {
                    node,
                    generation: value::unsigned(row, "generation")?,
                    containers: {
                        let text = row.get_ref("containers")?.as_str()?;
                        self.seal
                            .json(&SealedRow::Node(node.0.as_bytes()), 1, text)?
                    },
                    partitions: value::json(row, "partitions")?,
                    state: Some(Uuid::from_bytes(row.get("state")?)),
                    accepted: false,
                })
            })
            .optional()?)
    }
}

impl Rows<'_> {
    /// Writes what an administrator says of a device.
    pub(crate) fn put_device(&self, device: &DeviceRow) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into device
                     (uuid, cordoned, note, changed_at, changed_by, desired_partitions,
                      previous_partitions, partitions_desired_at)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
                 on conflict (uuid) do update
                 set cordoned = ?2, note = ?3, changed_at = ?4, changed_by = ?5,
                     desired_partitions = ?6, previous_partitions = ?7, partitions_desired_at = ?8",
            )?
            .execute((
                &device.uuid,
                device.cordoned,
                &device.note,
                device.changed_at.as_millis(),
                &device.changed_by,
                device
                    .partitions
                    .as_ref()
                    .map(|desired| value::text(&desired.profiles)),
                device
                    .partitions
                    .as_ref()
                    .map(|desired| value::text(&desired.before)),
                device
                    .partitions
                    .as_ref()
                    .map(|desired| desired.at.as_millis()),
            ))?;
        Ok(())
    }

    /// Says whether a machine takes new sessions, and why not. False where there is no such machine.
    pub(crate) fn close_node(&self, id: NodeId, closed: bool, note: &str) -> Result<bool, Failure> {
        let changed = self
            .connection
            .prepare_cached("update node set schedulable = ?2, note = ?3 where id = ?1")?
            .execute((id.0.as_bytes(), !closed, note))?;
        Ok(changed > 0)
    }

    /// Notes that a node got a session: it is the others' turn. O(nodes).
    pub(crate) fn put_turn(&self, node: NodeId) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "update node set turn = (select max(turn) + 1 from node) where id = ?1",
            )?
            .execute([node.0.as_bytes()])?;
        Ok(())
    }

    /// Writes what is known of a machine, but for whether it takes new sessions: administrators say that, with
    /// `close_node`.
    pub(crate) fn put_node(&self, node: &NodeRecord) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into node
                     (id, name, boot, capacity, host_environment, seen_at, generation, schedulable,
                      problems)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
                 on conflict (id) do update
                 set name = ?2, boot = ?3, capacity = ?4, host_environment = ?5, seen_at = ?6,
                     generation = ?7, problems = ?9",
            )?
            .execute((
                node.id.0.as_bytes(),
                &node.name,
                node.boot.0.as_bytes(),
                value::text(&node.capacity),
                node.host_environment,
                node.seen_at.as_millis(),
                value::signed(node.generation),
                node.schedulable,
                value::text(&node.problems),
            ))?;
        Ok(())
    }
}
