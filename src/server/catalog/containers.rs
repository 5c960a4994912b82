//! Container rows: read with the row of their session, written where they changed. What a move means is
//! `rules::workload`'s.

use rules::names::{ContainerName, NodeId, SessionId, SessionName, UserId};
use rules::resources::DeviceShare;
use rules::tenancy::{DomainId, ProjectId};
use rules::units::Timestamp;
use rules::workload::container::{ContainerProgress, SessionContainer};
use rules::workload::outcome::Outcome;
use rusqlite::Row;
use rusqlite::types::Type;
use serde::Deserialize;
use uuid::Uuid;

use super::policies::PolicySubjects;
use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// A container that may live, of a session that runs.
#[derive(Debug, Clone)]
pub(crate) struct RunningContainer {
    pub(crate) name: ContainerName,
    pub(crate) session: SessionName,
    /// Whose policies hold for it.
    pub(crate) subjects: PolicySubjects,
    /// How many containers its session has.
    pub(crate) of: u32,
}

impl ReadTransaction<'_> {
    /// The containers of all sessions that run, but for those that ended: as `Session::live_containers` has them. Costs one visit
    /// of each that has a place on a node, none of what waits.
    pub(crate) fn running_containers(&self) -> Result<Vec<RunningContainer>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select session.id, incarnation, position, name, domain, project, owner, containers
             from container
             join session on session.id = container.session
             where container.state <> 'ended'
                 and session.state = 'running'
             order by session.id, position",
        )?;
        let rows = statement.query_map([], |row| {
            Ok(RunningContainer {
                name: ContainerName {
                    session: SessionId(value::id(row, 0)?),
                    incarnation: row.get(1)?,
                    index: row.get(2)?,
                },
                session: value::word(row, "name", |name| SessionName::parse(name).ok())?,
                subjects: PolicySubjects {
                    domain: DomainId(value::id(row, 4)?),
                    project: ProjectId(value::id(row, 5)?),
                    user: UserId(value::id(row, 6)?),
                },
                of: row.get(7)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

/// The containers of a row of `session`, as a list in JSON; `[]` where there are none.
pub(super) const COLUMN: &str = "(
    select json_group_array(json_object(
        'position', position, 'node', lower(hex(node)),
        'devices', json(devices), 'pending_devices', json(pending_devices),
        'state', state, 'started_at', started_at, 'exit_code', exit_code,
        'outcome', outcome))
    from container
    where container.session = session.id)";

/// One container as `COLUMN` gives it.
#[derive(Debug, Deserialize)]
struct ContainerRow {
    position: u32,
    node: Uuid,
    devices: Vec<DeviceShare>,
    pending_devices: Vec<DeviceShare>,
    state: String,
    started_at: Option<i64>,
    exit_code: Option<i32>,
    outcome: Option<String>,
}

/// A container's state and its times say different things.
#[derive(Debug, thiserror::Error)]
#[error("a container is {0:?}, and its times contradict that")]
struct BadContainer(String);

/// The containers in a column that `COLUMN` gave, the main one first.
pub(super) fn read(row: &Row<'_>, column: usize) -> rusqlite::Result<Vec<SessionContainer>> {
    let mut rows: Vec<ContainerRow> = value::json(row, column)?;
    rows.sort_unstable_by_key(|row| row.position);
    rows.into_iter()
        .map(|row| {
            let started_at = row.started_at.map(Timestamp::from_millis);
            let outcome = row.outcome.as_deref().and_then(Outcome::parse);
            let state = ContainerProgress::parse(&row.state, started_at, row.exit_code, outcome);
            let bad = BadContainer(row.state);
            Ok(SessionContainer {
                index: row.position,
                node: NodeId(row.node),
                devices: row.devices,
                pending_devices: row.pending_devices,
                state: state.ok_or_else(|| {
                    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, bad.into())
                })?,
            })
        })
        .collect()
}

impl Rows<'_> {
    /// Writes the containers of a session that are not as they were `before`, and removes those that are no
    /// more. Costs a statement for each of these, none where nothing changed.
    pub(super) fn store_containers(
        &self,
        session: SessionId,
        before: &[SessionContainer],
        after: &[SessionContainer],
    ) -> Result<(), Failure> {
        for gone in before {
            if !after.iter().any(|kept| kept.index == gone.index) {
                self.connection
                    .prepare_cached("delete from container where session = ?1 and position = ?2")?
                    .execute((session.0.as_bytes(), gone.index))?;
            }
        }
        for container in after.iter().filter(|each| !before.contains(each)) {
            let (outcome, exit_code) = match container.ended_with() {
                Some((outcome, exit_code)) => (Some(outcome.word()), exit_code),
                None => (None, None),
            };
            self.connection
                .prepare_cached(
                    "insert or replace into container
                         (session, position, node, devices, pending_devices, state, started_at, exit_code,
                          outcome)
                     values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                )?
                .execute((
                    session.0.as_bytes(),
                    container.index,
                    container.node.0.as_bytes(),
                    value::text(&container.devices),
                    value::text(&container.pending_devices),
                    container.state.word(),
                    container.state.started_at().map(Timestamp::as_millis),
                    exit_code,
                    outcome,
                ))?;
        }
        Ok(())
    }
}
