//! Rows of machines and of what each was last told to have. A node row is written when it says
//! something new; an assignment row when its list changed, under the next generation.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rules::messages::Assignment;
use rules::names::{BootId, NodeId};
use rules::units::Timestamp;
use rules::world::Node;
use rusqlite::{OptionalExtension as _, Row};

use super::reader::View;
use super::value;
use super::writer::Rows;
use crate::Failure;

fn from_row(row: &Row<'_>) -> rusqlite::Result<Node> {
    Ok(Node {
        id: NodeId(value::id(row, "id")?),
        name: row.get("name")?,
        boot: BootId(value::id(row, "boot")?),
        capacity: value::json(row, "capacity")?,
        host_environment: row.get("host_environment")?,
        seen_at: value::time(row, "seen_at")?,
        generation: value::unsigned(row, "generation")?,
        schedulable: row.get("schedulable")?,
        problems: value::json(row, "problems")?,
    })
}

/// When each machine was last heard of. In memory alone: a machine that has nothing new to say
/// causes no write, and after a restart the rows' older times are right.
#[derive(Clone, Default)]
pub(crate) struct Heard(Arc<Mutex<BTreeMap<NodeId, Timestamp>>>);

impl Heard {
    pub(super) fn note(&self, node: NodeId, at: Timestamp) {
        self.times().insert(node, at);
    }

    pub(super) fn forget(&self) {
        self.times().clear();
    }

    fn times(&self) -> MutexGuard<'_, BTreeMap<NodeId, Timestamp>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl View<'_> {
    /// Every machine, oldest first, with the time it was last heard of.
    pub(crate) fn nodes(&self) -> Result<Vec<Node>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select id, name, boot, capacity, host_environment, seen_at, generation, schedulable,
                    problems
             from node
             order by id",
        )?;
        let rows = statement.query_map([], from_row)?;
        let mut nodes: Vec<Node> = rows.collect::<Result<_, _>>()?;
        let heard = self.heard.times();
        for node in &mut nodes {
            if let Some(at) = heard.get(&node.id) {
                node.seen_at = *at;
            }
        }
        Ok(nodes)
    }

    /// What this node was last told to have; None where it was never told anything.
    pub(crate) fn assignment(&self, node: NodeId) -> Result<Option<Assignment>, Failure> {
        Ok(self
            .connection
            .prepare_cached("select generation, containers from assignment where node = ?1")?
            .query_row([node.0.as_bytes()], |row| {
                Ok(Assignment {
                    node,
                    generation: value::unsigned(row, "generation")?,
                    containers: value::json(row, "containers")?,
                })
            })
            .optional()?)
    }
}

impl Rows<'_> {
    /// Writes what is known of a machine, all of it.
    pub(crate) fn put_node(&self, node: &Node) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into node
                     (id, name, boot, capacity, host_environment, seen_at, generation, schedulable,
                      problems)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
                 on conflict (id) do update
                 set name = ?2, boot = ?3, capacity = ?4, host_environment = ?5, seen_at = ?6,
                     generation = ?7, schedulable = ?8, problems = ?9",
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
