//! What the controller reads at once and writes at once: everything a pass looks at as of one moment,
//! and everything it changed, or nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base::observe::Uptime;
use rules::codes;
use rules::messages::{Assignment, NodeReport, PartitionSpec};
use rules::names::{ImageId, NodeId, SessionId, UserId};
use rules::reasons;
use rules::refusals;
use rules::session::Session;
use rules::units::Timestamp;
use rules::world::{ClusterSnapshot, NodeRecord};
use uuid::Uuid;

use super::Catalog;
use super::budgets::BeyondBudgets;
use super::events::NewEvent;
use super::nodes;
use super::reader::ReadTransaction;
use super::reservations::ReservationChange;
use super::sessions::ConditionalWrite;
use super::value;
use super::writer::{Lane, Rows};
use crate::Failure;

/// All that a pass looks at, as of one moment.
#[derive(Debug, Clone)]
pub(crate) struct PassSnapshot {
    pub(crate) world: ClusterSnapshot,
    /// What each node was told last; absent for a node that was never told anything.
    pub(crate) assigned: BTreeMap<NodeId, Assignment>,
    /// Configuration digests of the images there are.
    pub(crate) digests: BTreeMap<ImageId, String>,
    /// Partitions of simulated devices that were cut here.
    pub(crate) simulated_partitions: BTreeMap<String, Vec<rules::devices::MigPart>>,
    /// How real devices are to be cut; absent for a machine without an order.
    pub(crate) partition_specs: BTreeMap<NodeId, Vec<PartitionSpec>>,
    /// Drawn when this catalog was founded.
    pub(crate) state: Uuid,
    pub(crate) beyond_budgets: BeyondBudgets,
    /// Root said that it leads the machine, whatever that obeyed; see `acceptance`.
    pub(crate) accepted: bool,
}

/// All that a pass changed.
#[derive(Debug, Clone)]
pub(crate) struct PassChanges {
    /// As they should be, each with the generation it was read with; writing raises it.
    pub(crate) sessions: Vec<Session>,
    pub(crate) nodes: Vec<NodeRecord>,
    pub(crate) assignments: Vec<Assignment>,
    /// In the order it happened.
    pub(crate) happened: Vec<Happening>,
    /// Times of reservations that a step was taken with.
    pub(crate) reservations: Vec<ReservationChange>,
}

/// One thing a pass did to one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Happening {
    pub(crate) session: SessionId,
    /// Which step it was: `node`, `limits`, `scheduler`.
    pub(crate) actor: &'static str,
    pub(crate) code: String,
    pub(crate) before: String,
    pub(crate) after: String,
}

impl ReadTransaction<'_> {
    /// Everything a pass looks at. Costs one visit a live session, a node and an image.
    pub(crate) fn sight(&self, now: Timestamp, uptime: Uptime) -> Result<PassSnapshot, Failure> {
        let world = self.world()?;
        let said = self.devices()?;
        let mut assigned = BTreeMap::new();
        for node in &world.nodes {
            if let Some(assignment) = self.assignment(node.id)? {
                assigned.insert(node.id, assignment);
            }
        }
        let mut statement = self
            .connection
            .prepare_cached("select id, digest from image")?;
        let state = self.connection.query_row(
            "select installation_id from installation where id = 1",
            [],
            |row| Ok(Uuid::from_bytes(row.get(0)?)),
        )?;
        let rows = statement.query_map([], |row| {
            Ok((ImageId(value::id(row, "id")?), row.get("digest")?))
        })?;
        Ok(PassSnapshot {
            simulated_partitions: nodes::simulated_partitions(&said, &world.nodes),
            partition_specs: nodes::partition_specs(&said, &world.nodes),
            beyond_budgets: self.beyond_budgets(&world, now, uptime)?,
            world,
            assigned,
            digests: rows.collect::<Result<_, _>>()?,
            state,
            accepted: false,
        })
    }
}

impl Rows<'_> {
    /// Writes a whole pass.
    ///
    /// Errors: `controller.moved-on` where a row of it was written since it was read; then the pass must be taken
    /// again from the rows as they are.
    pub(crate) fn record_turn(&self, writes: &PassChanges) -> Result<(), Failure> {
        self.mute_acts();
        for change in &writes.reservations {
            self.record_reservation(change)?;
        }
        for session in &writes.sessions {
            let session = self.within_budgets(session)?;
            let of_it = || writes.happened.iter().filter(|h| h.session == session.id);
            let last = of_it().next_back();
            for happening in of_it().take(of_it().count().saturating_sub(1)) {
                self.note(NewEvent {
                    actor: happening.actor,
                    topic: "sessions",
                    object: &session.id.to_string(),
                    scope: session.scope(),
                    code: &happening.code,
                    before: &happening.before,
                    after: &happening.after,
                })?;
            }
            let written = self.change_session(
                session.id,
                Some(session.generation),
                last.map_or("controller", |h| h.actor),
                last.map(|h| h.code.as_str()),
                |row| {
                    row.clone_from(&session);
                    true
                },
            )?;
            if written == ConditionalWrite::No {
                return Err(refusals::controller_moved_on().into());
            }
        }
        for node in &writes.nodes {
            self.put_node(node)?;
        }
        for assignment in &writes.assignments {
            self.put_assignment(assignment)?;
        }
        Ok(())
    }

    /// A session as a step left it; one that it queues again ends where a hard budget has no room for its whole run. One that
    /// is preempted was asked about before (`beyond_requeue`): it never ends because of a budget that was nearly used since.
    fn within_budgets<'s>(&self, session: &'s Session) -> Result<Cow<'s, Session>, Failure> {
        let begins_again = session.restart
            && !session.is_preempted()
            && self
                .session(session.id)?
                .is_some_and(|before| !before.restart);
        if !begins_again || self.may_begin_again(session)? {
            return Ok(Cow::Borrowed(session));
        }
        let mut ends = session.clone();
        ends.restart = false;
        ends.reason = Some(reasons::session_budget_spent());
        Ok(Cow::Owned(ends))
    }

    /// Writes an assignment, unless a newer one stands there.
    fn put_assignment(&self, assignment: &Assignment) -> Result<(), Failure> {
        let written = self
            .connection
            .prepare_cached(
                "insert into assignment (node, generation, containers, partitions)
                 values (?1, ?2, ?3, ?4)
                 on conflict (node) do update
                 set generation = ?2, containers = ?3, partitions = ?4
                 where generation < ?2",
            )?
            .execute((
                assignment.node.0.as_bytes(),
                value::signed(assignment.generation),
                self.seal.orders(assignment),
                value::text(&assignment.partitions),
            ))?;
        if written == 0 {
            return Err(refusals::controller_moved_on().into());
        }
        Ok(())
    }
}

impl Catalog {
    /// Reads everything a pass looks at, on a thread for blocking work.
    pub(crate) async fn sight(&self) -> Result<PassSnapshot, Failure> {
        let (now, uptime) = (self.clock().now(), self.clock().uptime());
        let mut sight = self
            .read("look at the world", move |view| view.sight(now, uptime))
            .await?;
        sight.accepted = self.is_accepted();
        self.note_live(sight.world.sessions.len());
        Ok(sight)
    }

    /// Writes a pass in one commit. False where another writer changed one of its rows since they were
    /// read: nothing was written, and the pass must be taken again.
    pub(crate) async fn record_turn(&self, writes: PassChanges) -> Result<bool, Failure> {
        let result = self
            .write(Lane::Loops, "a pass of the controller", move |rows| {
                rows.record_turn(&writes)
            })
            .await;
        recorded(result)
    }

    /// As `record_turn`, but waits on this thread. For rehearsals.
    pub(crate) fn record_turn_now(&self, writes: PassChanges) -> Result<bool, Failure> {
        let result = self.write_now(Lane::Loops, "a pass of the controller", move |rows| {
            rows.record_turn(&writes)
        });
        recorded(result)
    }

    /// Notes that a node was heard of. No row is written.
    pub(crate) fn heard(&self, node: NodeId, at: Timestamp) {
        self.0.heard.note(node, at);
    }

    /// Notes what a node's devices are doing, and which cannot be cut as ordered. No row is written.
    pub(crate) fn heard_devices(&self, report: &NodeReport) {
        if self.0.heard.note_devices(report) {
            self.0.measured.send_modify(|version| *version += 1);
        }
    }

    /// Forgets when nodes were heard of, as a restart does.
    pub(crate) fn forget_heard(&self) {
        self.0.heard.forget();
    }

    /// Removes what is kept for a while only: ended sessions that nothing live depends on, events,
    /// and answers to repeat. At most `most` sessions and events a call; gives how many rows went.
    pub(crate) async fn forget(&self, before: Timestamp, most: u32) -> Result<usize, Failure> {
        self.write(Lane::Loops, "forget old rows", move |rows| {
            rows.forget_ended(before, most)
        })
        .await
    }
}

impl Catalog {
    /// Suspends accounts of guests that ended. Costs one read where none did.
    pub(crate) async fn end_accounts(&self, now: Timestamp) -> Result<(), Failure> {
        let due = self.read_now("look for accounts that ended", |view| {
            view.has_ended_account(now)
        })?;
        if due {
            self.write(Lane::Loops, "end accounts", move |rows| {
                rows.end_accounts(now).map(drop)
            })
            .await?;
        }
        Ok(())
    }

    /// Drops roles that ended: a clock that is set back later revives none. Costs two looks into an index where none did.
    pub(crate) async fn end_grants(&self, now: Timestamp) -> Result<(), Failure> {
        let due = self.read_now("look for roles that ended", |view| {
            view.has_ended_grant(now)
        })?;
        if due {
            self.write(Lane::Loops, "drop roles that ended", |rows| {
                rows.forget_ended_grants().map(drop)
            })
            .await?;
        }
        Ok(())
    }

    /// Takes out the users who leave and whose last session is over. Costs one read where no user does.
    pub(crate) async fn finish_departures(&self) -> Result<(), Failure> {
        let due = self.read_now("look for departures", |view| view.has_departed())?;
        if due {
            self.write(Lane::Loops, "finish departures", |rows| {
                rows.finish_departures().map(drop)
            })
            .await?;
        }
        Ok(())
    }
}

impl Rows<'_> {
    /// A user without a password, for rehearsals: sessions need an owner.
    pub(crate) fn stand_in_user(
        &self,
        id: UserId,
        name: &str,
        at: Timestamp,
    ) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into user
                     (id, name, language, theme, time_zone, suspended, password, created_at,
                      generation)
                 values (?1, ?2, '', 'system', '', 0, '', ?3, 1)",
            )?
            .execute((id.0.as_bytes(), name, at.as_millis()))?;
        self.join_default(id)
    }

    fn forget_ended(&self, before: Timestamp, most: u32) -> Result<usize, Failure> {
        let mut gone = self.forget_answers()? + self.forget_old_sign_ins()?;
        gone += self.forget_ended_grants()?;
        gone += self.forget_ended_invitations()?;
        gone += self.forget_ended_sign_in_links()?;
        gone += self.forget_old_announcements()?;
        gone += self.forget_old_sign_ups()?;
        gone += self.forget_old_reservations(before)?;
        gone += self.forget_allocations(before, most)?;
        gone += self
            .connection
            .prepare_cached(
                "delete from session
                 where id in (
                     select old.id
                     from session as old
                     where old.state = 'ended'
                     and old.ended_at < ?1
                     and not exists (
                         select 1
                         from session as live, json_each(live.depends_on) as needed
                         where live.state <> 'ended'
                         and replace(needed.value, '-', '') = lower(hex(old.id))
                     )
                     limit ?2
                 )",
            )?
            .execute((before.as_millis(), most))?;
        gone += self
            .connection
            .prepare_cached(
                "delete from event
                 where sequence in (
                     select sequence
                     from event
                     where at < ?1
                     and topic <> 'users'
                     order by sequence
                     limit ?2
                 )",
            )?
            .execute((before.as_millis(), most))?;
        Ok(gone)
    }
}

fn recorded(result: Result<(), Failure>) -> Result<bool, Failure> {
    match result {
        Ok(()) => Ok(true),
        Err(Failure::Refusal(refusal)) if refusal.code == codes::CONTROLLER_MOVED_ON => Ok(false),
        Err(failure) => Err(failure),
    }
}
