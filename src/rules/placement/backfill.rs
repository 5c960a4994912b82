//! Timed backfill: who may start before the first sessions that wait for room, because of time limits. The first one starts
//! at the latest once enough of what runs has reached its limit; the next ones likewise, on another machine or beside or
//! after those before them on the same one. Another may start before them that is over by then, or that leaves their room
//! free then. Beside them, a fraction goes to the device on which least of it is lost to others. Strict backfill, which
//! looks at no time limit, is in `reservations`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::choice;
use super::cluster_state::{ClusterState, FoundPlace, Score, place_of};
use crate::devices::WHOLE;
use crate::names::SessionId;
use crate::policy::Spreading;
use crate::reservation::START_SECONDS;
use crate::resources::{Demand, DeviceShare};
use crate::session::{Session, SessionEnvironment, SessionState};
use crate::units::Timestamp;

/// Sizes of which timed backfill looks for places in one pass; one is counted again where some of its sessions are over in
/// time and some are not. More: a pass over a queue in which every request differs takes longer. Fewer: fewer of such a queue pass.
const MAX_TIMED_SIZES: usize = 64;
/// Sessions that wait for room and have it kept for them, each of another size: the reservations of a backfill
/// scheduler. More: a pass over many machines takes longer. Fewer: large sessions wait longer, as smaller ones behind them
/// take what ends each time that a user of less use comes before them.
const MAX_FRONTS: usize = 5;

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

/// One that waits for room and has it kept.
struct TimedFront<'w> {
    session: &'w Session,
    /// When it starts at the latest, unless its machine fails.
    at: Timestamp,
    /// When its time limit ends it if it starts then; None without a limit.
    until: Option<Timestamp>,
    /// One of those whose end makes room for it then.
    after: SessionId,
    /// Where it has room then.
    place: FoundPlace,
    /// That machine as it is at that time, with the fronts before this one that have it then; other machines say nothing
    /// here.
    then: RefCell<ClusterState<'w>>,
}

impl TimedFront<'_> {
    /// Whether it has its place at some time between these two; None: for ever.
    fn runs_within(&self, from: Timestamp, to: Option<Timestamp>) -> bool {
        let is_over = self.until.is_some_and(|until| until <= from);
        !is_over && to.is_none_or(|to| self.at < to)
    }
}

/// When the last that has something of a device reaches its time limit, for each device of each machine.
struct DeviceEnds {
    /// Where the devices of each machine begin.
    begins: Vec<usize>,
    ends: Vec<Timestamp>,
}

impl DeviceEnds {
    /// Costs one visit a device and an end.
    fn new(ground: &ClusterState<'_>, ends: &[RoomEnd<'_>], now: Timestamp) -> Self {
        let mut begins = Vec::with_capacity(ground.spots.len());
        let mut devices = 0;
        for spot in &ground.spots {
            begins.push(devices);
            devices += spot.devices.len();
        }
        let mut all = Self {
            begins,
            ends: vec![now; devices],
        };
        for end in ends {
            all.note(ground, end);
        }
        all
    }

    fn note(&mut self, ground: &ClusterState<'_>, end: &RoomEnd<'_>) {
        let spot = end.found.spot;
        for part in &end.found.devices {
            if let Some(device) = place_of(ground.spots[spot].node, part.index) {
                let known = &mut self.ends[self.begins[spot] + device];
                *known = end.at.max(*known);
            }
        }
    }

    fn of(&self, spot: usize, device: usize) -> Timestamp {
        self.ends[self.begins[spot] + device]
    }
}

/// The latest starts of the first sessions that wait for room, and what others may have before.
pub(super) struct TimedBackfill<'w> {
    /// In the order of the queue.
    fronts: Vec<TimedFront<'w>>,
    /// How many were to be fronts, with those whose start is not known.
    asked: usize,
    /// All ends that are known.
    ends: Vec<RoomEnd<'w>>,
    device_ends: DeviceEnds,
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
            device_ends: DeviceEnds::new(ground, &ends, now),
            ends,
            now,
            elsewhere: ground.bare(),
            sizes: RefCell::default(),
        };
        timed.keep(front);
        (!timed.fronts.is_empty()).then_some(timed)
    }

    /// Whether room is kept for the next one that waits, too.
    pub(super) fn keeps_more(&self) -> bool {
        self.asked < MAX_FRONTS
    }

    /// Keeps for one more that waits the room that it has first, beside or after what is kept for those before it; nothing
    /// where that is not known. Costs as `new`, with one copy, and a look at the fronts of a machine for each of its ends.
    pub(super) fn keep(&mut self, front: &'w Session) {
        self.asked += 1;
        if self.elsewhere.is_let_in_somewhere(front) {
            return;
        }
        let demand = &front.spec.demand;
        let host = front.spec.environment == SessionEnvironment::Host;
        let over_from = |at: Timestamp| Some(over_by(at, front.spec.limit()?.0));
        let ends = &mut self.ends;
        ends.sort_by_key(|end| (end.found.spot, end.at, end.session.id));
        let mut then = self.elsewhere.bare();
        for before in &self.fronts {
            then.open(before.place.spot);
        }
        let mut latest: Option<(Timestamp, SessionId, FoundPlace)> = None;
        for here in ends.chunk_by(|one, next| one.found.spot == next.found.spot) {
            let spot = here[0].found.spot;
            if !then.could_hold(spot, demand, host) {
                continue;
            }
            let before = self.fronts.iter().filter(|one| one.place.spot == spot);
            let before: Vec<&TimedFront<'w>> = before.collect();
            // When room may come: with an end of what runs, or with one of a front.
            let own = here.iter().map(|end| (end.at, end.session.id));
            let of_fronts = before
                .iter()
                .filter_map(|one| Some((one.until?, one.session.id)));
            let mut moments: Vec<(Timestamp, SessionId)> = own.chain(of_fronts).collect();
            moments.sort_by_key(|(at, _)| *at);
            moments.dedup_by_key(|(at, _)| *at);
            let mut coming = here.iter().peekable();
            for (at, after) in moments {
                if latest.as_ref().is_some_and(|(known, ..)| *known <= at) {
                    break;
                }
                while let Some(end) = coming.next_if(|end| end.at <= at) {
                    then.release(&end.found, end.session, &end.demand);
                }
                let over = over_from(at);
                let beside = before.iter().filter(|one| one.runs_within(at, over));
                for one in beside.clone() {
                    then.take(&one.place, one.session);
                }
                if let Some(place) = then.place_on(spot, demand, host) {
                    latest = Some((at, after, place));
                    break;
                }
                for one in beside {
                    then.free(&one.place, one.session);
                }
            }
        }
        let Some((at, after, place)) = latest else {
            return;
        };
        self.elsewhere.close(place.spot);
        self.fronts.push(TimedFront {
            session: front,
            at,
            until: over_from(at),
            after,
            place,
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
            let spot = front.place.spot;
            self.elsewhere.place_on(spot, &demand, host).is_some()
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
            if found.spot == front.place.spot && over & bit == 0 {
                front.then.get_mut().take(found, session);
            }
        }
        if let Some(end) = RoomEnd::of_placed(session, found, self.now) {
            self.device_ends.note(&self.elsewhere, &end);
            self.ends.push(end);
        }
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

    /// Whether a session that runs on that machine may hold what `grown` of it has: it has a time limit, and is over before each
    /// front starts that waits for this machine, or leaves its room free then. Costs a copy of what is given of each machine, and
    /// one for each such front.
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
        let here = self.fronts.iter();
        let mut here = here.filter(|front| front.place.spot == spot && until > front.at);
        here.all(|front| {
            let mut then = front.then.borrow().bare();
            then.give_back(session);
            let devices = grown.devices().to_vec();
            then.take(&FoundPlace { spot, devices }, grown);
            let waits = &front.session.spec;
            let host = waits.environment == SessionEnvironment::Host;
            then.fits(spot, &waits.demand, host)
        })
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

    /// The best of the places on a machine that is kept for no front, and of those beside fronts.
    fn best(&self, session: &Session, over: FrontBits) -> Option<FoundPlace> {
        let spec = &session.spec;
        let room = self.elsewhere.best(&spec.demand, &spec.environment);
        let spots = self.fronts.iter().map(|front| front.place.spot);
        let spots: BTreeSet<usize> = spots.collect();
        let beside = spots
            .into_iter()
            .filter_map(|spot| self.beside(spot, session, over));
        let all = room.into_iter().chain(beside);
        all.min_by_key(|found| self.score(session, found))
    }

    /// How good a place is, the least is best: as without backfill, but of a fraction by what is lost.
    fn score(&self, session: &Session, found: &FoundPlace) -> Option<Score> {
        let (rank, left, node) = self.elsewhere.score(found.spot, &session.spec.demand)?;
        let lost = match found.devices[..] {
            [part] => self.lost(session, found.spot, &part),
            _ => None,
        };
        Some((lost.unwrap_or(rank), left, node))
    }

    /// What others lose of a device that gives a session this fraction, in hundredths times seconds: what is left of it, while
    /// the session runs, and the rest of it while nothing but this session keeps it from being whole. What has no time limit
    /// is not looked at. None for what is no fraction, and where fractions are not packed.
    fn lost(&self, session: &Session, at: usize, part: &DeviceShare) -> Option<u64> {
        let spot = &self.elsewhere.spots[at];
        let is_packed = self.elsewhere.world().spreading(spot.node.id) == Spreading::Pack;
        if part.part.is_some() || part.share >= WHOLE || !is_packed {
            return None;
        }
        let (seconds, _) = session.spec.limit()?;
        let device = place_of(spot.node, part.index)?;
        let over = over_by(self.now, seconds);
        let alone = over.seconds_since(self.device_ends.of(at, device));
        let rest = choice::left(spot, device).0.saturating_sub(part.share);
        let beside = u64::from(WHOLE.saturating_sub(part.share).0);
        let left = u64::from(rest.0).saturating_mul(over.seconds_since(self.now));
        Some(alone.saturating_mul(beside).saturating_add(left))
    }

    /// A place on a machine on which room is kept, where each front still has its own in time. Of a fraction it is the
    /// device on which least is lost of those that leave them theirs. Costs a look at each device and front.
    fn beside(&self, spot: usize, session: &Session, over: FrontBits) -> Option<FoundPlace> {
        let demand = &session.spec.demand;
        let host = session.spec.environment == SessionEnvironment::Host;
        let found = self.elsewhere.place_on(spot, demand, host)?;
        let is_by_loss = match found.devices[..] {
            [part] => self.lost(session, spot, &part).is_some(),
            _ => false,
        };
        if !is_by_loss {
            return self.leaves_fronts(&found, session, over).then_some(found);
        }
        let mut parts = choice::fractions(&self.elsewhere.spots[spot], demand);
        parts.sort_by_key(|part| self.lost(session, spot, part));
        let mut places = parts.into_iter().map(|part| FoundPlace {
            spot,
            devices: vec![part],
        });
        places.find(|place| self.leaves_fronts(place, session, over))
    }

    /// Whether each front of that machine before which a session is not over still has room there then.
    fn leaves_fronts(&self, found: &FoundPlace, session: &Session, over: FrontBits) -> bool {
        let fronts = self.fronts.iter().zip(bits());
        let mut late =
            fronts.filter(|(front, bit)| front.place.spot == found.spot && over & bit == 0);
        late.all(|(front, _)| {
            let waits = &front.session.spec;
            let host = waits.environment == SessionEnvironment::Host;
            let mut then = front.then.borrow_mut();
            then.take(found, session);
            let fits = then.fits(found.spot, &waits.demand, host);
            then.free(found, session);
            fits
        })
    }
}

/// The bit of each front.
fn bits() -> impl Iterator<Item = FrontBits> {
    (0..MAX_FRONTS).map(|at| 1 << at)
}
