//! The queue, one after the other, as the scheduler and every answer about it walk it: who starts, and for
//! whom what is kept who cannot start yet.

use super::backfill::{RoomEnd, TimedBackfill, held_until};
use super::cluster_state::{ClusterState, FoundPlace};
use super::fit::{self, FitPlace};
use super::order::{self, QueueGate, WaitingByGroup};
use super::reservations::MAX_SIZES;
use crate::names::{ResourceGroupId, SessionId, UserId};
use crate::policy::BackfillMode;
use crate::reason::Reason;
use crate::reasons;
use crate::session::{DesiredState, Outcome, Session, SessionEnvironment};
use crate::units::Timestamp;
use crate::world::ClusterSnapshot;

/// The queue up to a session.
pub(super) struct QueueWalk<'w> {
    world: &'w ClusterSnapshot,
    now: Timestamp,
    pub(super) ground: ClusterState<'w>,
    /// Those who wait for room, in order.
    pub(super) waiting: Vec<&'w Session>,
    /// Those who got a place, in order.
    pub(super) placed: Vec<(&'w Session, FoundPlace)>,
    /// Too many sizes wait: no session behind them is looked at but for timed backfill.
    full: bool,
    /// The first one that waits for room is known, or is not asked for.
    has_front: bool,
    /// What may start before that one and the next ones; None where only strict backfill holds.
    backfill: Option<TimedBackfill<'w>>,
}

/// What the queue means for one session.
pub(super) enum QueueStep {
    Place(FitPlace),
    End(Outcome, Reason),
    /// It has no place now.
    Waits,
}

/// The step of a session that waits for room as others of its size do already: all that it changes. Another walk of the
/// same queue takes it without a look at the session.
#[derive(Debug, Clone, Copy)]
pub(super) struct RepeatedWait {
    owner: UserId,
    /// Which of the sizes that wait it has; None where so many wait that it is not counted.
    size: Option<usize>,
}

impl<'w> QueueWalk<'w> {
    /// No session was looked at yet.
    pub(super) fn new(world: &'w ClusterSnapshot, now: Timestamp) -> Self {
        Self {
            world,
            now,
            ground: ClusterState::new(world, now),
            waiting: Vec::new(),
            placed: Vec::new(),
            full: false,
            has_front: world.policy.backfill == BackfillMode::Strict,
            backfill: None,
        }
    }

    /// Another walk that stands where this one does, in a group in which no session was looked at yet.
    pub(super) fn fork(&self) -> Self {
        Self {
            world: self.world,
            now: self.now,
            ground: self.ground.bare(),
            waiting: Vec::new(),
            placed: self.placed.clone(),
            full: false,
            has_front: self.has_front,
            backfill: None,
        }
    }

    /// Goes on with the queue of that resource group, in which no session was looked at yet.
    pub(super) fn enter(&mut self, group: ResourceGroupId) {
        if self.world.groups.is_empty() {
            return;
        }
        self.ground.enter(group);
        self.waiting.clear();
        self.full = false;
        self.has_front = self.world.backfill(group, self.now) == BackfillMode::Strict;
        self.backfill = None;
    }

    /// Goes on with that group once those before it had their turn: a limit of a user, a project or a domain is one for
    /// all groups.
    pub(super) fn enter_in_turn(&mut self, waiting: &WaitingByGroup<'w>, group: ResourceGroupId) {
        for before in waiting.groups().filter(|before| *before < group) {
            self.enter(before);
            for session in waiting.sorted(before) {
                self.step(session);
            }
        }
        self.enter(group);
    }

    /// Looks at the next one.
    pub(super) fn step(&mut self, session: &'w Session) -> QueueStep {
        if session.desired != DesiredState::Run {
            let because = reasons::session_stopped_before_start();
            return QueueStep::End(Outcome::Stopped, because);
        }
        match order::gate(self.world, session, self.now) {
            QueueGate::Open => {}
            QueueGate::Held(_) => return QueueStep::Waits,
            QueueGate::Never(because) => return QueueStep::End(Outcome::Refused, because),
        }
        // Who holds all they may, or will once those of theirs in front have started, waits for themselves
        // alone.
        if self.ground.is_bounded(session) {
            return QueueStep::Waits;
        }
        if let Some(place) = self.look(session) {
            self.ground.take(&place.found, session);
            if let Some(backfill) = &mut self.backfill {
                backfill.take(&place.found, session);
            }
            self.placed.push((session, place.found.clone()));
            return QueueStep::Place(place);
        }
        // A session bound to a device holds no other back.
        if session.device_affinity.is_none() {
            self.wait(session);
        }
        QueueStep::Waits
    }

    /// The same, and how another walk of the same queue may repeat it; None where that has to look again. In a long queue of
    /// few sizes nearly all steps are repeated.
    pub(super) fn step_noted(&mut self, session: &'w Session) -> (QueueStep, Option<RepeatedWait>) {
        match self.repeated(session) {
            Some(wait) => {
                self.repeat(session, wait);
                (QueueStep::Waits, Some(wait))
            }
            None => (self.step(session), None),
        }
    }

    /// Repeats a step that another walk noted here.
    pub(super) fn repeat(&mut self, session: &'w Session, wait: RepeatedWait) {
        self.waiting.push(session);
        if let Some(size) = wait.size {
            self.ground.keep_again(wait.owner, size);
        }
    }

    /// What `step` would do with a session where it needs no search: none of its size found a place.
    fn repeated(&self, session: &Session) -> Option<RepeatedWait> {
        let host = session.spec.environment == SessionEnvironment::Host;
        let kept = self.ground.kept();
        let size = match self.full {
            true => None,
            false => Some(kept.size_of(&session.spec.demand, host)?),
        };
        let timed = self.backfill.as_ref();
        let is_repeated = session.device_affinity.is_none()
            && session.desired == DesiredState::Run
            && self.ground.keeps_by_count()
            && !self.ground.is_bounded(session)
            && timed.is_none_or(|timed| !timed.is_hopeful(session))
            && matches!(order::gate(self.world, session, self.now), QueueGate::Open);
        is_repeated.then_some(RepeatedWait {
            owner: session.owner,
            size,
        })
    }

    /// The place that a session would have were it next; None where it has none.
    pub(super) fn look(&self, session: &Session) -> Option<FitPlace> {
        let place = match self.full {
            true => fit::reserved(&self.ground, session),
            false => fit::place(&self.ground, session),
        };
        place.or_else(|| fit::backfilled(&self.ground, self.backfill.as_ref()?, session))
    }

    /// The longest time limit in seconds with which timed backfill would start a session now that waits; None where none
    /// would.
    pub(super) fn limit_to_start(&self, session: &Session) -> Option<u64> {
        self.backfill.as_ref()?.limit_to_start(session)
    }

    /// Whether timed backfill lets a session that runs on that machine hold what `grown` of it has.
    pub(super) fn lets_grow(&self, session: &Session, grown: &Session, spot: usize) -> bool {
        let backfill = self.backfill.as_ref();
        backfill.is_some_and(|timed| timed.lets_grow(session, grown, spot))
    }

    /// With timed backfill the first one that waits for room, when it starts at the latest, and one whose end makes room for
    /// it then; None where that is not known.
    pub(super) fn front(&self) -> Option<(&'w Session, Timestamp, SessionId)> {
        self.backfill.as_ref().map(TimedBackfill::front)
    }

    /// Whether so many sizes wait in front that no session behind them is looked at.
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    fn wait(&mut self, session: &'w Session) {
        self.waiting.push(session);
        let keeps_more = match &self.backfill {
            None => !self.has_front,
            Some(timed) => timed.keeps_more(),
        };
        if keeps_more && !self.full && self.ground.is_awaited(session) {
            match &mut self.backfill {
                Some(timed) => timed.keep(session),
                None => {
                    self.has_front = true;
                    let ends = self.ends();
                    self.backfill = TimedBackfill::new(&self.ground, session, ends, self.now);
                }
            }
        }
        if !self.full {
            self.ground.keep(session);
            self.full = self.ground.kept().sizes.len() >= MAX_SIZES;
        }
    }

    /// Ends of all that runs, or gets a place in this walk, as far as time limits tell them.
    fn ends(&self) -> Vec<RoomEnd<'w>> {
        let (world, now) = (self.world, self.now);
        let running = world.sessions.iter();
        let running = running.filter_map(|session| Some((session, held_until(session, now)?)));
        let running =
            running.flat_map(|(session, at)| RoomEnd::of_containers(&self.ground, session, at));
        let placed = self.placed.iter();
        let placed = placed.filter_map(|(session, found)| RoomEnd::of_placed(session, found, now));
        running.chain(placed).collect()
    }
}
