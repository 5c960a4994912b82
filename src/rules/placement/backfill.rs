//! Timed backfill: who may start before the first sessions that wait for room, because of time limits. The first one starts
//! at the latest once enough of what runs has reached its limit; the next ones likewise, each on another machine. Another
//! may start before them that is over by then, or that leaves their room free then. Strict backfill, which looks at no time
//! limit, is in `reservations`.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::cluster_state::{ClusterState, FoundPlace};
use crate::names::SessionId;
use crate::reservation::START_SECONDS;
use crate::resources::Demand;
use crate::session::{Session, SessionEnvironment, SessionState};
use crate::units::Timestamp;

/// Sizes of which timed backfill looks for places in one pass; one is counted again where some of its sessions are over in
/// time and some are not. More: a pass over a queue in which every request differs takes longer. Fewer: fewer of such a queue pass.
const MAX_TIMED_SIZES: usize = 64;
/// Sessions that wait for room and have a machine kept for them, each of another size: the reservations of a backfill
/// scheduler. More: a pass over many machines takes longer. Fewer: large sessions wait longer, as smaller ones behind them
/// take what ends each time that a user of less use comes before them.
const MAX_FRONTS: usize = 4;

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

/// A bit for each front: whether a session is over before it starts.
type FrontBits = u8;
/// Over before each front, those to come too.
const BEFORE_ALL: FrontBits = FrontBits::MAX;

/// A size, and before which fronts a session of it is over.
type TimedSize = (Demand, bool, FrontBits);

/// One that waits for room and has a machine kept for it.
struct TimedFront<'w> {
    session: &'w Session,
    /// When it starts at the latest, unless its machine fails.
    at: Timestamp,
    /// One of those whose end makes room for it then.
    after: SessionId,
    /// The machine on which it has room then; of no other front.
    spot: usize,
    /// That machine as it is at that time; other machines say nothing here.
    then: RefCell<ClusterState<'w>>,
}

/// The latest starts of the first sessions that wait for room, and what others may have before.
pub(super) struct TimedBackfill<'w> {
    /// In the order of the queue.
    fronts: Vec<TimedFront<'w>>,
    /// How many were to be fronts, with those whose start is not known.
    asked: usize,
    /// All ends that are known.
    ends: Vec<RoomEnd<'w>>,
    now: Timestamp,
    /// All machines now, with nothing kept for those who wait, and those of the fronts shut.
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
        ends: Vec<RoomEnd<'w>>,
        now: Timestamp,
    ) -> Option<Self> {
        let mut timed = Self {
            fronts: Vec::new(),
            asked: 0,
            ends,
            now,
            elsewhere: ground.bare(),
            sizes: RefCell::default(),
        };
        timed.keep(front);
        (!timed.fronts.is_empty()).then_some(timed)
    }

    /// Whether a machine is kept for the next one that waits, too.
    pub(super) fn keeps_more(&self) -> bool {
        self.asked < MAX_FRONTS
    }

    /// Keeps for one more that waits the machine on which it starts first, of those that are kept for no other; nothing
    /// where that is not known. Costs as `new`, with one copy.
    pub(super) fn keep(&mut self, front: &'w Session) {
        self.asked += 1;
        if self.elsewhere.is_let_in_somewhere(front) {
            return;
        }
        let demand = &front.spec.demand;
        let host = front.spec.environment == SessionEnvironment::Host;
        let ends = &mut self.ends;
        ends.sort_by_key(|end| (end.found.spot, end.at, end.session.id));
        let mut then = self.elsewhere.bare();
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
        let Some((at, spot, after)) = latest else {
            return;
        };
        self.elsewhere.close(spot);
        self.fronts.push(TimedFront {
            session: front,
            at,
            after,
            spot,
            then: RefCell::new(then),
        });
    }

    /// When the first one starts at the latest.
    pub(super) fn latest(&self) -> Timestamp {
        self.fronts[0].at
    }

    /// The first one, when it starts at the latest, and one whose end makes room for it then.
    pub(super) fn front(&self) -> (&'w Session, Timestamp, SessionId) {
        let front = &self.fronts[0];
        (front.session, front.at, front.after)
    }

    /// A place of a session that may start before the fronts; None where it would delay one, or finds no room. Costs about
    /// the logarithm of the machines.
    pub(super) fn place(&self, session: &Session) -> Option<FoundPlace> {
        if !self.is_hopeful(session) {
            return None;
        }
        let key = self.size(session)?;
        let found = self.best(session, key.2);
        let (demand, host, _) = key;
        let has_room = |front: &TimedFront<'_>| {
            let place = self.elsewhere.place_on(front.spot, &demand, host);
            place.is_some()
        };
        // Where none has room now, one that were over in time would find none either.
        let key = match found.is_some() || self.fronts.iter().any(has_room) {
            true => key,
            false => (demand, host, BEFORE_ALL),
        };
        self.sizes.borrow_mut().insert(key, found.is_some());
        found
    }

    /// Whether no session of that size finds a place any more, with any time limit.
    pub(super) fn finds_none(&self, (demand, host): (Demand, bool)) -> bool {
        self.sizes.borrow().get(&(demand, host, BEFORE_ALL)) == Some(&false)
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
    pub(super) fn take(&mut self, found: &FoundPlace, session: &'w Session) {
        self.elsewhere.take(found, session);
        let over = self.over_before(session);
        for (front, bit) in self.fronts.iter_mut().zip(bits()) {
            if found.spot == front.spot && over & bit == 0 {
                front.then.get_mut().take(found, session);
            }
        }
        let end = RoomEnd::of_placed(session, found, self.now);
        self.ends.extend(end);
    }

    /// The longest time limit in seconds with which a session would start now that does not; None where no limit would
    /// do, or its own does.
    pub(super) fn limit_to_start(&self, session: &Session) -> Option<u64> {
        let host = session.spec.environment == SessionEnvironment::Host;
        if session.device_affinity.is_some() || self.finds_none((session.spec.demand, host)) {
            return None;
        }
        let own = self.over_before(session);
        let mut latest: Vec<Timestamp> = self.fronts.iter().map(|front| front.at).collect();
        latest.sort_unstable();
        latest.into_iter().rev().find_map(|at| {
            let over = self.over_by_then(at);
            let seconds = at.seconds_since(over_by(self.now, 0));
            // With its own limit it was looked for.
            let is_asked = over & !own != 0
                && seconds > 0
                && self.is_looked_for(&(session.spec.demand, host, over));
            (is_asked && self.best(session, over).is_some()).then_some(seconds)
        })
    }

    /// Whether a session that runs on that machine may hold what `grown` of it has: it has a time limit, and is over before the
    /// front starts that waits for this machine, or leaves its room free then. Costs two copies of what is given of each machine.
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
        let front = self.fronts.iter().find(|front| front.spot == spot);
        let Some(front) = front.filter(|front| until > front.at) else {
            return true;
        };
        let mut then = front.then.borrow().bare();
        then.give_back(session);
        let devices = grown.devices().to_vec();
        then.take(&FoundPlace { spot, devices }, grown);
        let waits = &front.session.spec;
        let host = waits.environment == SessionEnvironment::Host;
        then.fits(spot, &waits.demand, host)
    }

    fn size(&self, session: &Session) -> Option<TimedSize> {
        // One that is bound to a device takes no other place.
        if session.device_affinity.is_some() || session.spec.limit().is_none() {
            return None;
        }
        let host = session.spec.environment == SessionEnvironment::Host;
        Some((session.spec.demand, host, self.over_before(session)))
    }

    /// Before which fronts a session is over that starts now.
    fn over_before(&self, session: &Session) -> FrontBits {
        match session.spec.limit() {
            Some((seconds, _)) => self.over_by_then(over_by(self.now, seconds)),
            None => 0,
        }
    }

    /// Fronts that start no earlier than that.
    fn over_by_then(&self, end: Timestamp) -> FrontBits {
        let fronts = self.fronts.iter().zip(bits());
        let later = fronts.filter(|(front, _)| end <= front.at);
        later.map(|(_, bit)| bit).sum()
    }

    /// The best of the places on a machine that is kept for no front, and of those beside a front.
    fn best(&self, session: &Session, over: FrontBits) -> Option<FoundPlace> {
        let spec = &session.spec;
        let room = self.elsewhere.best(&spec.demand, &spec.environment);
        let beside = self.fronts.iter().zip(bits());
        let beside = beside.filter_map(|(front, bit)| self.beside(front, session, over & bit != 0));
        let all = room.into_iter().chain(beside);
        all.min_by_key(|found| self.elsewhere.score(found.spot, &spec.demand))
    }

    /// A place on a front's machine, where the front still has room there in time.
    fn beside(
        &self,
        front: &TimedFront<'w>,
        session: &Session,
        is_over_in_time: bool,
    ) -> Option<FoundPlace> {
        let host = session.spec.environment == SessionEnvironment::Host;
        let found = self
            .elsewhere
            .place_on(front.spot, &session.spec.demand, host)?;
        if is_over_in_time {
            return Some(found);
        }
        let waits = &front.session.spec;
        let host = waits.environment == SessionEnvironment::Host;
        let mut then = front.then.borrow_mut();
        then.take(&found, session);
        let fits = then.fits(front.spot, &waits.demand, host);
        then.free(&found, session);
        fits.then_some(found)
    }
}

/// The bit of each front.
fn bits() -> impl Iterator<Item = FrontBits> {
    (0..MAX_FRONTS).map(|at| 1 << at)
}
