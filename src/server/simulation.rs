//! The server without a process: a catalog in memory, passes run one at a given time, crashes and
//! full disks on demand, and fake nodes. For the simulation and for `fardel rehearse`;
//! never opens a file, and nothing of it can be reached from a running server.

pub mod fake_node;
pub mod rehearsal;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::observe::Clock;
use base::settings::{Settings, SettingsLayer};
use rules::idleness::{IdleRule, IdleStep, IdleTold, SessionQuiet};
use rules::messages::{Assignment, ContainerUsage, NodeReport};
use rules::names::{ContainerName, NodeId, SessionId, UserId};
use rules::placement::Decision;
use rules::policy::{BackfillMode, PreemptionMode, SharePolicy};
use rules::resource_group::ResourceGroup;
use rules::session::Session;
use rules::units::Timestamp;
use rules::world::ClusterSnapshot;

use crate::catalog::fair_share::QueueRule;
use crate::catalog::ledger::LedgerTotals;
use crate::catalog::request_key::RequestKey;
use crate::catalog::sessions::ConditionalWrite;
use crate::catalog::{AtCommit, Catalog, Lane, RowsCopy};
use crate::controller::idleness::IdleJudge;
use crate::controller::{Controller, ControllerPass};
use crate::simulation::fake_node::SimulatedMoment;
use crate::{Failure, Server, ServerFault};

/// What happens at one commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Live,
    /// The server dies before the commit: nothing is kept.
    DieBefore,
    /// The server dies right after: everything is kept, no answer is given.
    DieAfter,
}

/// A server that is played step by step.
pub struct Simulation {
    server: Server,
    controller: Controller,
    idle: IdleJudge,
    accepted: bool,
}

/// The catalog as it was at one moment.
pub struct CatalogCopy {
    rows: RowsCopy,
    told: BTreeMap<NodeId, u64>,
}

impl CatalogCopy {
    /// The newest assignment that it says it told a machine; 0 where none.
    pub fn told(&self, node: NodeId) -> u64 {
        self.told.get(&node).copied().unwrap_or(0)
    }
}

/// Looks at the directory now, as a running server does every 15 minutes; gives how many users were suspended. For tests of
/// real directories.
pub async fn look_at_directory(server: &Server) -> Result<usize, Failure> {
    crate::jobs::directory::look(server).await
}

/// A turn that is not written yet. Dropping it is what a crash before the commit does.
pub struct Prepared(ControllerPass);

impl Prepared {
    /// What the nodes will be told, were this turn written.
    pub fn assignments(&self) -> Vec<Assignment> {
        self.0.assigned.values().cloned().collect()
    }
}

impl Simulation {
    /// A server with an empty catalog in memory. Its backfill is strict; a new site's is timed.
    pub fn open(at: Timestamp) -> Result<Self, Failure> {
        let settings = Settings::read(SettingsLayer::default(), |_| None)?;
        let simulation = Self {
            server: Server::in_memory(settings, Clock::set_by_hand(at))?,
            controller: Controller::default(),
            idle: IdleJudge::default(),
            accepted: false,
        };
        simulation.set_backfill(BackfillMode::Strict)?;
        Ok(simulation)
    }

    /// For the actions of users. They end at once: everything runs on this thread.
    pub fn server(&self) -> &Server {
        &self.server
    }

    fn catalog(&self) -> &Catalog {
        self.server.catalog()
    }

    /// Sets who may start before a session that waits.
    pub fn set_backfill(&self, backfill: BackfillMode) -> Result<(), Failure> {
        self.catalog()
            .write_now(Lane::Requests, "set the backfill", move |rows| {
                let rule = rows.queue_rule()?;
                rows.put_queue_rule(QueueRule { backfill, ..rule })
                    .map(drop)
            })
    }

    /// Sets whether sessions of each resource group make way for others of it.
    pub fn set_preemption(&self, preemption: PreemptionMode) -> Result<(), Failure> {
        self.catalog()
            .write_now(Lane::Requests, "set preemption", move |rows| {
                for group in rows.resource_groups()? {
                    rows.put_resource_group(&ResourceGroup {
                        preemption,
                        ..group
                    })?;
                }
                Ok(())
            })
    }

    /// Sets the administrator's rules for shares.
    pub fn set_policy(&self, policy: SharePolicy) {
        self.catalog().set_policy(policy);
    }

    /// Moves the server's clocks.
    pub fn set_clock(&self, now: SimulatedMoment) {
        self.server.clock().set_both(now.wall, now.steady);
    }

    /// Reads, and runs every pass; writes nothing. `decide` chooses places.
    pub fn prepare(
        &mut self,
        now: SimulatedMoment,
        reports: &[NodeReport],
        decide: &dyn Fn(&ClusterSnapshot, Timestamp) -> Vec<Decision>,
    ) -> Result<Prepared, Failure> {
        for report in reports {
            self.catalog().heard(report.node, now.wall);
        }
        let uptime = self.catalog().clock().uptime();
        let mut sight = self
            .catalog()
            .read_now("look at the world", |view| view.sight(now.wall, uptime))?;
        sight.accepted = self.accepted;
        let reports: Vec<&NodeReport> = reports.iter().collect();
        let turn = self
            .controller
            .run_pass(sight, &reports, now.wall, steady(now), decide);
        Ok(Prepared(turn))
    }

    /// Writes the turn; then gives what goes onto the links. Empty where a row moved on meanwhile,
    /// for then nothing was written.
    pub fn commit(
        &mut self,
        prepared: Prepared,
        now: SimulatedMoment,
    ) -> Result<Vec<Assignment>, Failure> {
        let written = match prepared.0.writes() {
            Some(writes) => self.catalog().record_turn_now(writes)?,
            None => true,
        };
        Ok(if written {
            self.controller.due_assignments(&prepared.0, steady(now))
        } else {
            Vec::new()
        })
    }

    /// The server dies and starts again: everything but the rows is forgotten.
    pub fn crash(&mut self) {
        self.controller = Controller::default();
        self.idle = IdleJudge::default();
        self.catalog().forget_heard();
        self.catalog().samples().forget_presence();
    }

    /// Copies the catalog as it is.
    pub fn copy(&self) -> Result<CatalogCopy, Failure> {
        let rows = self.catalog().copy_rows()?.ok_or_else(|| {
            ServerFault::new("copy a catalog in memory", "this one lies in files")
        })?;
        let told = self.catalog().read_now("look at the lists", |view| {
            let nodes = view.nodes()?;
            let lists = nodes.iter().map(|node| view.assignment(node.id));
            let lists = lists.collect::<Result<Vec<_>, _>>()?;
            Ok(lists
                .iter()
                .flatten()
                .map(|list| (list.node, list.generation))
                .collect())
        })?;
        Ok(CatalogCopy { rows, told })
    }

    /// The server dies, and starts again with a catalog that was copied.
    pub fn put_back(&mut self, copy: &CatalogCopy) -> Result<(), Failure> {
        self.catalog().put_rows_back(&copy.rows)?;
        self.crash();
        Ok(())
    }

    /// Whether root has said that this catalog leads the machines, whatever they obeyed.
    pub fn accept(&mut self, accepted: bool) {
        self.accepted = accepted;
    }

    /// The machines that the server does not lead, because their last report does not continue its catalog.
    /// While there is one, the server starts and ends nothing.
    pub fn quarantined(&self) -> BTreeSet<NodeId> {
        self.controller.quarantined()
    }

    /// Asks for the fate of every commit from now on.
    pub fn before_commits(&self, mut ask: impl FnMut(&'static str) -> Fate + Send + 'static) {
        self.catalog().before_commits(move |what| match ask(what) {
            Fate::Live => AtCommit::Commit,
            Fate::DieBefore => AtCommit::DieBefore,
            Fate::DieAfter => AtCommit::DieAfter,
        });
    }

    /// Fills the disk, so that the catalog cannot grow; or frees it.
    pub fn fill_disk(&self, full: bool) {
        self.catalog().limit_growth(full.then_some(0));
    }

    /// Writes a user.
    pub fn user(&self, name: &str, at: Timestamp) -> Result<UserId, Failure> {
        let mut random = [7; 10];
        for (byte, letter) in random.iter_mut().zip(name.bytes()) {
            *byte = letter;
        }
        let id = UserId::make(at, random);
        let name = name.to_owned();
        self.catalog()
            .write_now(Lane::Requests, "a user", move |rows| {
                rows.stand_in_user(id, &name, at)?;
                Ok(id)
            })
    }

    /// Writes a new session, once for each `key`: a repeated key gives the first answer again.
    pub fn submit(&self, session: &Session, key: &str) -> Result<SessionId, Failure> {
        let session = session.clone();
        let key = RequestKey {
            principal: session.owner,
            route: "launch".into(),
            key: key.to_owned(),
            digest: [0; 32],
        };
        self.catalog()
            .write_now(Lane::Requests, "launch", move |rows| {
                if let Some(answer) = rows.answered(&key, rows.now)? {
                    return Ok(answer.parse()?);
                }
                rows.insert_session(&session, "user")?;
                rows.remember_answer(&key, &session.id.to_string())?;
                Ok(session.id)
            })
    }

    /// Changes a session as an action of a user would. False where it changed nothing.
    pub fn edit(
        &self,
        id: SessionId,
        change: impl FnOnce(&mut Session) -> bool + Send + 'static,
    ) -> Result<bool, Failure> {
        self.catalog()
            .write_now(Lane::Requests, "a user's change", move |rows| {
                Ok(rows.change_session(id, None, "user", None, change)? == ConditionalWrite::Yes)
            })
    }

    /// Counts what sessions hold into the sums of use, as the server does every few minutes.
    pub fn meter(&self) -> Result<(), Failure> {
        self.catalog()
            .write_now(Lane::Loops, "meter sessions", |rows| rows.meter().map(drop))
    }

    /// Sums up the use of the past for fair share where it is due, as the server does after it counted use.
    pub async fn refresh_standing(&self) -> Result<(), Failure> {
        self.catalog().refresh_standing().await
    }

    /// Keeps what containers of a node used, as a report tells it; those of paused sessions stand still.
    pub fn sample(&self, node: NodeId, at: Timestamp, used: &[(ContainerName, ContainerUsage)]) {
        let is_paused = |name: &ContainerName| {
            let row = self.session(name.session);
            matches!(row, Ok(Some(row)) if row.paused)
        };
        let paused = used.iter().map(|(name, _)| *name).filter(is_paused);
        self.catalog().samples().stand_still(paused);
        let uptime = self.server.clock().uptime();
        self.catalog().samples().record(node, (at, uptime), used);
    }

    /// Judges which sessions are idle, as the server does once a minute. `judge` says what is next for each.
    pub fn judge_idle(
        &mut self,
        now: Timestamp,
        judge: &(dyn Fn(&IdleRule, &IdleTold, SessionQuiet) -> IdleStep + Sync),
    ) -> Result<(), Failure> {
        self.idle.round_now(self.server.catalog(), now, judge)
    }

    /// What the usage ledger says up to now.
    pub fn ledger(&self) -> Result<LedgerTotals, Failure> {
        let uptime = self.server.clock().uptime();
        self.catalog()
            .read_now("sum up the ledger", move |view| view.ledger_totals(uptime))
    }

    /// Rises with every commit that changed anything.
    pub fn revision(&self) -> u64 {
        *self.catalog().revision().borrow()
    }

    /// The world as the rows have it.
    pub fn world(&self) -> Result<ClusterSnapshot, Failure> {
        self.catalog()
            .read_now("look at the world", |view| view.world())
    }

    /// One row, whatever its phase; None where there is none.
    pub fn session(&self, id: SessionId) -> Result<Option<Session>, Failure> {
        self.catalog()
            .read_now("look at a session", |view| view.session(id))
    }
}

fn steady(now: SimulatedMoment) -> Duration {
    Duration::from_millis(u64::try_from(now.steady.as_millis()).unwrap_or(0))
}

#[cfg(test)]
mod tests;
