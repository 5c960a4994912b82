//! Timed backfill: who may start before the first session that waits for room, because of time limits. That one starts at
//! the latest once enough of what runs has reached its limit. Another may start before it that is over by then, or that
//! leaves its room free then. Strict backfill, which looks at no time limit, is in `reservations`.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::cluster_state::{ClusterState, FoundPlace};
use crate::names::SessionId;
use crate::reservation::START_SECONDS;
use crate::resources::Demand;
use crate::session::{Session, SessionEnvironment, SessionState};
use crate::units::Timestamp;

/// Sizes of which timed backfill looks for places in one pass; one is counted twice where some of its sessions are over in
/// time and some are not. More: a pass over a queue in which every request differs takes longer. Fewer: fewer of such a queue pass.
const MAX_TIMED_SIZES: usize = 64;

/// What a session holds of one machine, and when its time limit ends that.
pub(super) struct RoomEnd<'w> {
    at: Timestamp,
    session: &'w Session,
    /// Of what ends there: all of the session, or one of its containers.
    demand: Demand,
    found: FoundPlace,
}

impl<'w> RoomEnd<'w> {
    /// Of a place that a session has or gets, and is to have until then.
    pub(super) fn new(at: Timestamp, session: &'w Session, found: FoundPlace) -> Self {
        Self {
            at,
            session,
            demand: session.spec.demand,
            found,
        }
    }

    /// Of a session that gets its place now; None where it has no time limit.
    pub(super) fn of_placed(
        session: &'w Session,
        found: &FoundPlace,
        now: Timestamp,
    ) -> Option<Self> {
        let (seconds, _) = session.spec.limit()?;
        Some(Self::new(over_by(now, seconds), session, found.clone()))
    }

    /// Everything that a session has and is to have until then, on each of its machines.
    pub(super) fn of_containers(
        ground: &ClusterState<'w>,
        session: &'w Session,
        at: Timestamp,
    ) -> Vec<Self> {
        let containers = session.live_containers().filter_map(|container| {
            let spot = ground.spot(container.node)?;
            let devices = container.holds().into_owned();
            Some(Self {
                demand: session.spec.of_each(),
                ..Self::new(at, session, FoundPlace { spot, devices })
            })
        });
        containers.collect()
    }
}

/// When the room of a session that has a place is counted as free; None where it has no limit. A start that takes longer
/// than its two minutes moves that time no further: else slow starts, one after the other, would put the front off for ever.
/// One that is being stopped holds nothing that others may wait behind, unless it starts again in its place.
pub(super) fn held_until(session: &Session, now: Timestamp) -> Option<Timestamp> {
    let by_limit = |since: Timestamp| Some(over_by(since, session.spec.limit()?.0));
    let promised = || by_limit(session.scheduled_at()?);
    match session.state() {
        SessionState::Running => Some(session.deadline()?.0.min(promised()?).max(now)),
        SessionState::Scheduled | SessionState::Preparing => Some(promised()?.max(now)),
        SessionState::Stopping if !session.gives_up_place() => by_limit(now),
        SessionState::Stopping => Some(now),
        SessionState::Pending | SessionState::Ended => None,
    }
}

/// When a session with that limit is over if it gets its place then. Its limit counts from its first process on.
fn over_by(placed: Timestamp, seconds: u64) -> Timestamp {
    placed.plus_seconds(seconds.saturating_add(START_SECONDS))
}

/// A size, and whether a session of it is over before the front starts.
type TimedSize = (Demand, bool, bool);

/// The latest start of the first session that waits for room, and what others may have before.
pub(super) struct TimedBackfill<'w> {
    front: &'w Session,
    /// When it starts at the latest, unless its machine fails.
    at: Timestamp,
    /// One of those whose end makes room for it then.
    after: SessionId,
    /// The machine on which it has room then.
    spot: usize,
    now: Timestamp,
    /// That machine as it is at that time; other machines say nothing here.
    then: RefCell<ClusterState<'w>>,
    /// All machines now, with nothing kept for those who wait, and that one shut.
    elsewhere: ClusterState<'w>,
    /// Whether sizes that were looked for may find a place still: room becomes only less.
    sizes: RefCell<BTreeMap<TimedSize, bool>>,
}

impl<'w> TimedBackfill<'w> {
    /// For the first session that waits, with all ends that are known. None where its start is not known: something that
    /// it needs has no time limit. None too where a reservation lets it in, as what it keeps is not everybody's. Costs sorting
    /// the ends, one look at a machine for each of them at most, and two copies of what is given of each machine.
    pub(super) fn new(
        ground: &ClusterState<'w>,
        front: &'w Session,
        mut ends: Vec<RoomEnd<'w>>,
        now: Timestamp,
    ) -> Option<Self> {
        if ground.is_let_in_somewhere(front) {
            return None;
        }
        let demand = &front.spec.demand;
        let host = front.spec.environment == SessionEnvironment::Host;
        ends.sort_by_key(|end| (end.found.spot, end.at, end.session.id));
        let mut then = ground.bare();
        let mut latest: Option<(Timestamp, usize, SessionId)> = None;
        for here in ends.chunk_by(|one, next| one.found.spot == next.found.spot) {
            let spot = here[0].found.spot;
            if !then.could_hold(spot, demand, host) {
                continue;
            }
            for together in here.chunk_by(|one, next| one.at == next.at) {
                let at = together[0].at;
                if latest.is_some_and(|(known, ..)| known <= at) {
                    break;
                }
                for end in together {
                    then.release(&end.found, end.session, &end.demand);
                }
                if then.fits(spot, demand, host) {
                    latest = Some((at, spot, together[0].session.id));
                    break;
                }
            }
        }
        let (at, spot, after) = latest?;
        let mut elsewhere = ground.bare();
        elsewhere.close(spot);
        Some(Self {
            front,
            at,
            after,
            spot,
            now,
            then: RefCell::new(then),
            elsewhere,
            sizes: RefCell::default(),
        })
    }

    /// When the front starts at the latest.
    pub(super) fn latest(&self) -> Timestamp {
        self.at
    }

    /// The front, when it starts at the latest, and one whose end makes room for it then.
    pub(super) fn front(&self) -> (&'w Session, Timestamp, SessionId) {
        (self.front, self.at, self.after)
    }

    /// A place of a session that may start before the front; None where it would delay it, or finds no room. Costs about
    /// the logarithm of the machines.
    pub(super) fn place(&self, session: &Session) -> Option<FoundPlace> {
        if !self.is_hopeful(session) {
            return None;
        }
        let key = self.size(session)?;
        let found = self.room(session).or_else(|| self.beside(session, key.2));
        let mut sizes = self.sizes.borrow_mut();
        sizes.insert(key, found.is_some());
        // One that were over in time would find none either.
        let (demand, host, _) = key;
        if found.is_none() && self.elsewhere.place_on(self.spot, &demand, host).is_none() {
            sizes.insert((demand, host, true), false);
        }
        found
    }

    /// Whether no session of that size finds a place any more, with any time limit.
    pub(super) fn finds_none(&self, (demand, host): (Demand, bool)) -> bool {
        self.sizes.borrow().get(&(demand, host, true)) == Some(&false)
    }

    /// Whether a place has to be looked for: it has a time limit, and no session like it found none.
    pub(super) fn is_hopeful(&self, session: &Session) -> bool {
        let Some(size) = self.size(session) else {
            return false;
        };
        if self.finds_none((size.0, size.1)) {
            return false;
        }
        self.is_looked_for(&size)
    }

    /// Whether places are looked for still for that size.
    fn is_looked_for(&self, size: &TimedSize) -> bool {
        let sizes = self.sizes.borrow();
        let known = sizes.get(size).copied();
        known.unwrap_or(sizes.len() < MAX_TIMED_SIZES)
    }

    /// Notes that a session has a place.
    pub(super) fn take(&mut self, found: &FoundPlace, session: &Session) {
        self.elsewhere.take(found, session);
        if found.spot == self.spot && !self.is_over_in_time(session) {
            self.then.get_mut().take(found, session);
        }
    }

    /// The longest time limit in seconds with which a session would start now that does not; None where no limit would
    /// do, or its own does.
    pub(super) fn limit_to_start(&self, session: &Session) -> Option<u64> {
        if session.device_affinity.is_some() || self.is_over_in_time(session) {
            return None;
        }
        let host = session.spec.environment == SessionEnvironment::Host;
        if !self.is_looked_for(&(session.spec.demand, host, true)) {
            return None;
        }
        let seconds = self.at.seconds_since(over_by(self.now, 0));
        let has_room = || self.room(session).or_else(|| self.beside(session, true));
        (seconds > 0 && has_room().is_some()).then_some(seconds)
    }

    /// Whether a session that runs on that machine may hold what `grown` of it has: it has a time limit, and is over before the
    /// front starts or leaves its room free then. Costs two copies of what is given of each machine.
    pub(super) fn lets_grow(&self, session: &Session, grown: &Session, spot: usize) -> bool {
        let Some(until) = held_until(session, self.now) else {
            return false;
        };
        if session.device_affinity.is_some() {
            return false;
        }
        let mut elsewhere = self.elsewhere.bare();
        elsewhere.give_back(session);
        if !elsewhere.has_room_to_grow(session, grown, spot) {
            return false;
        }
        if spot != self.spot || until <= self.at {
            return true;
        }
        let mut then = self.then.borrow().bare();
        then.give_back(session);
        let devices = grown.devices().to_vec();
        then.take(&FoundPlace { spot, devices }, grown);
        let front = &self.front.spec;
        let host = front.environment == SessionEnvironment::Host;
        then.fits(spot, &front.demand, host)
    }

    fn size(&self, session: &Session) -> Option<TimedSize> {
        // One that is bound to a device takes no other place.
        if session.device_affinity.is_some() || session.spec.limit().is_none() {
            return None;
        }
        let host = session.spec.environment == SessionEnvironment::Host;
        Some((session.spec.demand, host, self.is_over_in_time(session)))
    }

    fn is_over_in_time(&self, session: &Session) -> bool {
        let limit = session.spec.limit();
        limit.is_some_and(|(seconds, _)| over_by(self.now, seconds) <= self.at)
    }

    /// The best place on the other machines.
    fn room(&self, session: &Session) -> Option<FoundPlace> {
        let spec = &session.spec;
        self.elsewhere.best(&spec.demand, &spec.environment)
    }

    /// A place on the front's machine, where the front still has room there in time.
    fn beside(&self, session: &Session, is_over_in_time: bool) -> Option<FoundPlace> {
        let host = session.spec.environment == SessionEnvironment::Host;
        let found = self
            .elsewhere
            .place_on(self.spot, &session.spec.demand, host)?;
        if is_over_in_time {
            return Some(found);
        }
        let front = &self.front.spec;
        let host = front.environment == SessionEnvironment::Host;
        let mut then = self.then.borrow_mut();
        then.take(&found, session);
        let fits = then.fits(self.spot, &front.demand, host);
        then.free(&found, session);
        fits.then_some(found)
    }
}
