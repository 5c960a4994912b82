//! When does each waiting session start? What runs ends at its time limit, and after each end the queue is walked
//! as the scheduler walks it. A session that is scheduled for later joins the queue at its time. Page, preview, API and
//! CLI read this one forecast. It never guesses: what has no limit never ends here. Likely starts are the same walk by what
//! ended sessions took; they are told beside it, as guesses.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::backfill::{RoomEnd, TimedBackfill, held_until};
use super::cluster_state::{ClusterState, FoundPlace};
use super::order::fair_share::FairTree;
use super::order::{self, NumberedQueue, WaitingByGroup};
use super::queue::{QueueStep, QueueWalk, RepeatedWait};
use super::reservations::MAX_SIZES;
use crate::fair_share::{FairLeaf, QueueOrder};
use crate::names::{ResourceGroupId, SessionId, SessionName, UserId};
use crate::policy::BackfillMode;
use crate::resources::Demand;
use crate::run_history::{RunGuess, RunHistory};
use crate::session::{Session, SessionEnvironment, SessionKind, SessionSpec, SessionState};
use crate::tenancy::DomainId;
use crate::units::Timestamp;
use crate::workload::precedence::Precedence;
use crate::world::ClusterSnapshot;

/// Searches for a place that one forecast may cost, times machines, those of all resource groups together; twice that where
/// it counts those in front alone. More: a page that asks while a user types answers later. Fewer: a long queue has no
/// forecast.
const MAX_SEARCHES: usize = 20_000;
/// What a search costs on one machine, counted in looks at a session that needs none because an equal one found no place.
const SEARCH: usize = 8;
/// What it costs to find the latest start of the first one that waits, counted in searches.
const LATEST_START: usize = 4;
/// The same of `likely_starts` for each of its two guesses, those of all domains together; it is made once a minute at most.
const MAX_LIKELY_SEARCHES: usize = 600_000;
/// Seconds from now within which users are expected again.
const ARRIVAL_SECONDS: u64 = 86_400;
/// Domains whose sessions are told likely starts, those with the most waiting ones. More: each costs two walks of the queue.
/// Fewer: those of small ones are told none.
const MAX_DOMAINS: usize = 16;
/// Sessions that are expected. More: a forecast takes longer. Fewer: those of a busy day end early.
const MAX_ARRIVALS: usize = 4_000;
/// Milliseconds after which what was used until then moves users in the order of fair share: between the hour of the server
/// and no time at all. Shorter: a forecast takes longer.
const SUMMED_AFTER: u64 = 1_800_000;
/// Sessions in front whose starts are counted alone where those of the whole queue take too long. More: they take too long
/// themselves where each wants another size. Fewer: users in front of a long queue are told nothing.
const IN_FRONT: usize = 10;

/// The queue of one moment with its numbers, and when sessions in it start.
#[derive(Debug, Clone, Default)]
pub struct QueueForecast {
    /// Sessions in order: first those that wait for room, numbered from 1, then those without a number.
    pub order: Vec<SessionId>,
    /// How many of them have a number.
    pub numbered: usize,
    /// Starts that are known. Of those without a number none is.
    pub starts: BTreeMap<SessionId, ExpectedStart>,
    /// Some session that runs, or starts now, has a time limit.
    pub(super) some_limit: bool,
    /// It was counted to the end: a start that is not among them depends on something without a limit.
    pub(super) complete: bool,
    /// Sessions of several priorities wait: starts of the highest one alone are counted.
    pub(super) by_priority: bool,
    /// The last three of each resource group, where there are several.
    pub(super) by_group: BTreeMap<ResourceGroupId, ForecastReach>,
    /// The queues as they were sorted and walked, for explanations of that moment: one resource group after the other.
    pub(super) walked: Vec<WalkedQueue>,
}

/// The queue of one resource group, sorted, and what its walk found. Some 40 bytes for each session.
#[derive(Debug, Clone)]
pub(super) struct WalkedQueue {
    pub(super) group: ResourceGroupId,
    /// Those that wait for room, in order.
    pub(super) numbered: Vec<WalkedPlace>,
    /// Places in `world.sessions` of those without a number, in order.
    pub(super) unnumbered: Vec<usize>,
    /// Users with a session that is numbered.
    pub(super) users: usize,
}

/// A session that waits for room.
#[derive(Debug, Clone, Copy)]
pub(super) struct WalkedPlace {
    /// Its place in `world.sessions`.
    pub(super) at: usize,
    /// As `QueuePlace` has it.
    pub(super) round: u32,
    /// Its step, where another walk may repeat it without a look.
    pub(super) again: Option<RepeatedWait>,
}

impl WalkedQueue {
    /// Costs a binary search for each session.
    fn new(
        world: &ClusterSnapshot,
        (group, queue): (ResourceGroupId, &NumberedQueue<'_>),
        steps: &[Option<RepeatedWait>],
    ) -> Self {
        let (numbered, unnumbered) = queue.places.split_at(queue.numbered);
        let numbered = numbered.iter().zip(steps).filter_map(|(place, again)| {
            Some(WalkedPlace {
                at: world.sessions.place(place.session.id)?,
                round: place.round,
                again: *again,
            })
        });
        let unnumbered = unnumbered.iter();
        Self {
            group,
            numbered: numbered.collect(),
            unnumbered: unnumbered
                .filter_map(|place| world.sessions.place(place.session.id))
                .collect(),
            users: queue.users,
        }
    }
}

/// How far the forecast of one queue goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct ForecastReach {
    pub(super) some_limit: bool,
    pub(super) complete: bool,
    pub(super) by_priority: bool,
}

impl QueueForecast {
    /// Places of the sessions in `world.sessions`, in the order of `order`.
    pub fn places(&self) -> Vec<usize> {
        let numbered = self.walked.iter().flat_map(|queue| &queue.numbered);
        let unnumbered = self.walked.iter().flat_map(|queue| &queue.unnumbered);
        let numbered = numbered.map(|place| place.at);
        numbered.chain(unnumbered.copied()).collect()
    }

    /// How far the forecast of that group's queue goes.
    pub(super) fn reach(&self, group: ResourceGroupId) -> ForecastReach {
        let known = self.by_group.get(&group).copied();
        known.unwrap_or(ForecastReach {
            some_limit: self.some_limit,
            complete: self.complete,
            by_priority: self.by_priority,
        })
    }

    /// Counts the first few alone where the whole queue of their group took too long.
    fn add_front<'w>(
        &mut self,
        world: &'w ClusterSnapshot,
        of: (ResourceGroupId, &NumberedQueue<'w>),
        entered: (&mut QueueWalk<'w>, usize),
        (now, lives): (Timestamp, RunLives<'w>),
    ) {
        if self.complete || matches!(lives, RunLives::Guessed(..)) {
            return;
        }
        let (front, _) = counted(world, of, ForecastRange::Front, entered, (now, lives));
        for (id, start) in front.starts {
            self.starts.entry(id).or_insert(start);
        }
    }
}

/// A start that time limits promise, if nothing ends earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedStart {
    pub at: Timestamp,
    /// The session whose end makes room; None: it starts with the next pass.
    pub after: Option<SessionId>,
    /// When it reaches its own limit then.
    pub until: Option<Timestamp>,
}

/// When a session starts by what users' last runs took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LikelyStart {
    /// As often before as after.
    pub at: Timestamp,
    /// Before that it mostly has started; None where that is not known.
    pub late: Option<Timestamp>,
}

/// The queue as it stands, with every start that is known. Costs one scheduling pass, and one for each moment that is
/// counted, together a bounded number of searches. A start that would take more is not among those that are known, but where
/// the order of the queue is settled the first few are.
/// A resource group after the other: those with a number of all groups come first, each numbered in its own group.
pub fn forecast(world: &ClusterSnapshot, now: Timestamp) -> QueueForecast {
    walked(world, (now, RunLives::Declared), MAX_SEARCHES)
}

/// When those of the queue likely start that wait for room, each where it is known. What runs and what gets a place is over
/// when runs of its user mostly are, users who came a day or a week before come again, and use counts in fair share as it
/// comes. A session is told by what ended in its own domain alone: of others time limits count, so that no user learns how
/// long sessions of a domain run that they may not see. It promises nothing: a start by time limits is `forecast`.
///
/// None where nothing that ended is known of the domain. Costs two forecasts for each of at most 16 domains, of at most
/// 600,000 searches in all for each guess.
pub fn likely_starts(
    world: &ClusterSnapshot,
    history: &RunHistory,
    now: Timestamp,
) -> BTreeMap<SessionId, LikelyStart> {
    let domains = likely_domains(world, history);
    let searches = MAX_LIKELY_SEARCHES / domains.len().max(1);
    let mut likely = BTreeMap::new();
    for domain in domains {
        let with = with_arrivals(world, (history, domain), now);
        let walk = |guess| {
            let lives = RunLives::Guessed(history, domain, guess);
            walked(&with, (now, lives), searches).starts
        };
        let mut mean = walk(RunGuess::Mean);
        // What waits in other domains was guessed with too little, and those who are expected do not exist.
        mean.retain(|id, start| {
            let session = world.session(*id);
            start.after.is_some() && session.is_some_and(|session| session.domain == domain)
        });
        if mean.is_empty() {
            continue;
        }
        let late = walk(RunGuess::Late);
        for (id, start) in mean {
            let late = late.get(&id).map(|late| late.at.max(start.at));
            likely.insert(id, LikelyStart { at: start.at, late });
        }
    }
    likely
}

/// Domains with sessions that wait and runs that ended, those with the most waiting ones first.
fn likely_domains(world: &ClusterSnapshot, history: &RunHistory) -> Vec<DomainId> {
    let mut waiting: BTreeMap<DomainId, usize> = BTreeMap::new();
    for session in world.sessions.iter().filter(|one| one.is_pending()) {
        *waiting.entry(session.domain).or_default() += 1;
    }
    let mut domains: Vec<(Reverse<usize>, DomainId)> = waiting
        .into_iter()
        .filter(|(domain, _)| history.knows(*domain))
        .map(|(domain, count)| (Reverse(count), domain))
        .collect();
    domains.sort_unstable();
    domains.truncate(MAX_DOMAINS);
    domains.into_iter().map(|(_, domain)| domain).collect()
}

/// The same world with those of that domain who are expected within a day, who wait for their time. Their ids are behind all
/// others.
fn with_arrivals(
    world: &ClusterSnapshot,
    (history, domain): (&RunHistory, DomainId),
    now: Timestamp,
) -> ClusterSnapshot {
    let mut with = world.clone();
    let until = now.plus_seconds(ARRIVAL_SECONDS);
    let arrivals = history.arrivals_after(now).iter();
    let arrivals = arrivals.take_while(|one| one.at < until);
    let arrivals = arrivals.filter(|one| one.domain == domain);
    let arrivals = arrivals.take(MAX_ARRIVALS);
    for (number, one) in (1_u128..).zip(arrivals) {
        let id = SessionId(uuid::Uuid::from_u128(
            u128::MAX - MAX_ARRIVALS as u128 + number,
        ));
        let spec = SessionSpec {
            kind: SessionKind::Batch,
            environment: one.environment.clone(),
            command: Vec::new(),
            env: BTreeMap::new(),
            demand: one.demand,
            timeout_seconds: None,
            max_runtime_seconds: Some(one.limit),
            start_at: Some(one.at),
            depends_on: Vec::new(),
            containers: 1,
        };
        let session = Session::launched(id, SessionName::drafted(), one.owner, spec, one.at);
        with.sessions.push(Session {
            domain: one.domain,
            project: one.project,
            precedence: Precedence {
                priority: one.priority,
                yields: false,
            },
            ..session
        });
        if one.group != ResourceGroupId::DEFAULT {
            with.groups.sessions.insert(id, one.group);
        }
    }
    with
}

fn walked<'w>(
    world: &'w ClusterSnapshot,
    (now, lives): (Timestamp, RunLives<'w>),
    searches: usize,
) -> QueueForecast {
    let waiting = WaitingByGroup::new(world, now);
    let mut line = QueueWalk::new(world, now);
    let mut all = QueueForecast {
        complete: true,
        ..QueueForecast::default()
    };
    let mut unnumbered = Vec::new();
    let looks = looks_of_each(&waiting, searches);
    for group in waiting.groups() {
        line.enter(group);
        let mut again = line.fork();
        let queue = waiting.numbered(group, &[], false);
        let of = (group, &queue);
        let (mut own, steps) = counted(
            world,
            of,
            ForecastRange::Whole,
            (&mut line, looks),
            (now, lives),
        );
        all.walked.push(WalkedQueue::new(world, of, &steps));
        own.add_front(world, of, (&mut again, looks), (now, lives));
        let reach = own.reach(group);
        all.by_group.insert(group, reach);
        all.some_limit |= reach.some_limit;
        all.complete &= reach.complete;
        all.by_priority |= reach.by_priority;
        unnumbered.extend(own.order.split_off(own.numbered));
        all.order.extend(own.order);
        all.numbered += own.numbered;
        all.starts.extend(own.starts);
    }
    all.order.extend(unnumbered);
    all
}

/// The forecast of a queue that is sorted already, with new sessions in it. Costs as `forecast` does.
pub(super) fn of_queue<'w>(
    waiting: &WaitingByGroup<'w>,
    world: &'w ClusterSnapshot,
    (group, queue): (ResourceGroupId, &NumberedQueue<'w>),
    now: Timestamp,
) -> QueueForecast {
    let lives = RunLives::Declared;
    let mut line = QueueWalk::new(world, now);
    line.enter_in_turn(waiting, group);
    let mut again = line.fork();
    let looks = looks_of_each(waiting, MAX_SEARCHES);
    let of = (group, queue);
    let (mut known, _) = counted(
        world,
        of,
        ForecastRange::Whole,
        (&mut line, looks),
        (now, lives),
    );
    known.add_front(world, of, (&mut again, looks), (now, lives));
    known
}

/// Looks that the queue of one resource group may cost: each has a part of the machines, and of the searches.
fn looks_of_each(waiting: &WaitingByGroup<'_>, searches: usize) -> usize {
    searches * SEARCH / waiting.groups().count().max(1)
}

/// How long sessions are taken to run.
#[derive(Debug, Clone, Copy)]
enum RunLives<'w> {
    /// For as long as they may.
    Declared,
    /// Those of one domain for as long as their users' last runs in it did, the others for as long as they may.
    Guessed(&'w RunHistory, DomainId, RunGuess),
}

impl RunLives<'_> {
    /// When a session is over that runs since then; None where nothing ends it.
    fn end(self, session: &Session, since: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let (limit, _) = session.spec.limit()?;
        let seconds = match self {
            Self::Guessed(history, domain, guess) if session.domain == domain => {
                let whose = (domain, session.owner);
                history.expected(whose, limit, now.seconds_since(since), guess)
            }
            Self::Declared | Self::Guessed(..) => limit,
        };
        Some(since.plus_seconds(seconds).max(now))
    }
}

/// Of whom starts are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ForecastRange {
    /// Of all that wait.
    Whole,
    /// Of those in front for whom the queue keeps room, as if no session waited behind them: none of those changes when
    /// they start. With timed backfill that is the latest start of the first one.
    Front,
}

/// The forecast of the queue of one group, which `line` has just entered, for so many looks; and which steps of those with a
/// number another walk may repeat. Where nothing is known to end it costs the walk alone.
fn counted<'w>(
    world: &'w ClusterSnapshot,
    (group, queue): (ResourceGroupId, &NumberedQueue<'w>),
    range: ForecastRange,
    (line, looks): (&mut QueueWalk<'w>, usize),
    (now, lives): (Timestamp, RunLives<'w>),
) -> (QueueForecast, Vec<Option<RepeatedWait>>) {
    let (order, backfill) = (world.order(group, now), world.backfill(group, now));
    let until = world.groups.next_change(group, now);
    let mut known = QueueForecast {
        order: queue.places.iter().map(|place| place.session.id).collect(),
        numbered: queue.numbered,
        ..QueueForecast::default()
    };
    let mut left = Vec::new();
    // Those for whom no room is kept: beyond a limit, or bound to a device. Few, so they are listed and not the others.
    let mut unkept = BTreeSet::new();
    let mut steps = Vec::with_capacity(queue.numbered);
    for place in &queue.places[..queue.numbered] {
        let (session, before) = (place.session, line.waiting.len());
        let (step, again) = line.step_noted(session);
        steps.push(again);
        match step {
            QueueStep::Place(_) => {
                let start = ExpectedStart {
                    at: now,
                    after: None,
                    until: lives.end(session, now, now),
                };
                known.starts.insert(session.id, start);
            }
            QueueStep::Waits => {
                left.push(session);
                if line.waiting.len() == before {
                    unkept.insert(session.id);
                }
            }
            QueueStep::End(..) => {}
        }
    }
    let later = queue.places[queue.numbered..].iter();
    let mut joining: Vec<(Timestamp, &Session)> = later
        .filter_map(|place| Some((order::joins_at(world, place.session, now)?, place.session)))
        .collect();
    // This walk goes on in turns or by time. Where priorities differ it looks at those of the highest one alone, whom none
    // of the others delays; one that waits for a limit of its own may be delayed by others under that limit. A guess looks at
    // the highest one of those that wait now: others who come with a higher one are too few to keep it from being made.
    let is_guess = matches!(lives, RunLives::Guessed(..));
    let joined = joining.iter().map(|(_, one)| one);
    let waiting = left.iter().chain(joined.filter(|_| !is_guess));
    let priorities: BTreeSet<u32> = waiting.map(|one| one.precedence.priority).collect();
    known.by_priority = priorities.len() > 1;
    if known.by_priority {
        let is_highest = |one: &Session| priorities.last() == Some(&one.precedence.priority);
        left.retain(|one| is_highest(one) && !unkept.contains(&one.id));
    }
    if known.by_priority || is_guess {
        let highest = priorities.last();
        joining.retain(|(_, one)| highest == Some(&one.precedence.priority));
    }
    // One that is about to start reaches its limit as if it started now.
    let end = |s: &Session, lives: RunLives<'_>| match s.state() {
        SessionState::Running => lives.end(s, s.started_at()?, now),
        SessionState::Scheduled | SessionState::Preparing => lives.end(s, now, now),
        SessionState::Pending | SessionState::Stopping | SessionState::Ended => None,
    };
    // What ends elsewhere makes no room here, but it may free a limit of one that waits here, and it counts in fair share.
    let is_apart = !world.groups.is_empty() && !order.goes_by_share();
    let here = queue.places.iter().map(|place| place.session);
    let limits = is_apart.then(|| line.ground.limits_of(here));
    let is_felt = |s: &&Session| match &limits {
        Some(limits) => line.ground.is_inside(s) || line.ground.counts_in(s, limits),
        None => true,
    };
    let running = world.sessions.iter().filter(|s| s.node().is_some());
    let running = running.filter(is_felt);
    let running = running.filter_map(|s| {
        let limit = end(s, RunLives::Declared)?;
        Some(((end(s, lives)?, s.id), Moment::Runs(s, limit)))
    });
    let started = line.placed.iter().filter_map(|(session, found)| {
        let until = known.starts.get(&session.id)?.until?;
        let limit = RunLives::Declared.end(session, now, now)?;
        let end = Moment::Ends(session, found.clone(), limit);
        Some(((until, session.id), end))
    });
    let mut coming: Moments<'_> = running.chain(started).collect();
    known.some_limit = !coming.is_empty();
    for (at, session) in joining {
        coming.insert((at, session.id), Moment::Joins(session));
    }
    if coming.is_empty() {
        known.complete = true;
        return (known, steps);
    }
    if range == ForecastRange::Front
        && !order.goes_by_share()
        && let Some((front, at, after)) = line.front()
        && left.iter().any(|one| one.id == front.id)
        && until.is_none_or(|until| at < until)
    {
        let start = ExpectedStart {
            at,
            after: Some(after),
            until: lives.end(front, at, at),
        };
        known.starts.insert(front.id, start);
    }
    let machines = line.ground.inside().count().max(1);
    let mut served = order::served(world);
    for (session, _) in &line.placed {
        served.insert(session.owner, now);
    }
    let mut fair = FairTree::of(world, order);
    if let Some(tree) = &mut fair {
        for (session, _) in &line.placed {
            tree.hold(session);
        }
    }
    // Not by time limits alone: who then holds much for long would come late in the order, though they seldom do.
    let counts_past = order == QueueOrder::Fair && matches!(lives, RunLives::Guessed(..));
    let past = counts_past.then(|| PastUse {
        used: world.fair.past.iter().copied().collect(),
        counted: now,
        summed: now,
    });
    let mut future = Future {
        order,
        backfill,
        until,
        fair,
        past,
        ground: line.ground.bare(),
        sizes: BTreeMap::new(),
        limited: BTreeMap::new(),
        left: BTreeMap::new(),
        joined: BTreeSet::new(),
        served,
        search: SEARCH * machines,
        looks,
        lives,
    };
    for session in left {
        future.join(session);
    }
    if range == ForecastRange::Front {
        let front = future.front(&unkept, &coming);
        future.left.clear();
        future.sizes.clear();
        future.limited.clear();
        for session in front {
            future.join(session);
        }
    }
    known.complete = future.count(&mut coming, &mut known.starts).is_some();
    (known, steps)
}

/// What is going to happen to a session.
enum Moment<'w> {
    /// It runs, and is over then; by its limit at that other time.
    Runs(&'w Session, Timestamp),
    /// It does not run yet, and is over then: this is the place it will have had; by its limit at that other time.
    Ends(&'w Session, FoundPlace, Timestamp),
    /// It was scheduled for this time, and joins the queue.
    Joins(&'w Session),
}

/// What users will have used by a moment, as fair share goes by it.
struct PastUse {
    /// In millionths of the cluster for an hour.
    used: BTreeMap<FairLeaf, u64>,
    /// Up to when it is counted.
    counted: Timestamp,
    /// When the order of the queue took it over.
    summed: Timestamp,
}

/// Moments to come, the next one first.
type Moments<'w> = BTreeMap<(Timestamp, SessionId), Moment<'w>>;

/// What is to come, end after end.
struct Future<'w> {
    order: QueueOrder,
    backfill: BackfillMode,
    /// When another window of the group holds: nothing is known from then on.
    until: Option<Timestamp>,
    /// The tree of shares, where the queue goes by it.
    fair: Option<FairTree>,
    /// What each user will have used, where that is counted.
    past: Option<PastUse>,
    ground: ClusterState<'w>,
    /// Those without a place, by their owner, each owner's in their order.
    left: BTreeMap<UserId, Vec<&'w Session>>,
    /// Those among them, or placed by now, that were scheduled for a later time.
    joined: BTreeSet<SessionId>,
    /// How many of each size they are.
    sizes: BTreeMap<(Demand, bool), u32>,
    /// The same of those with a time limit.
    limited: BTreeMap<(Demand, bool), u32>,
    /// When a session of each user last got a place.
    served: BTreeMap<UserId, Timestamp>,
    /// What a search costs here, in looks at a session.
    search: usize,
    /// How many more sessions may be looked at.
    looks: usize,
    /// How long sessions run.
    lives: RunLives<'w>,
}

impl<'w> Future<'w> {
    /// Counts to the last known moment, or until all that wait now have a place. None where that takes too long.
    fn count(
        &mut self,
        coming: &mut Moments<'w>,
        starts: &mut BTreeMap<SessionId, ExpectedStart>,
    ) -> Option<()> {
        while self
            .left
            .values()
            .flatten()
            .any(|s| !self.joined.contains(&s.id))
        {
            let Some(((at, first), moment)) = coming.pop_first() else {
                return Some(());
            };
            if self.until.is_some_and(|until| at >= until) {
                return None;
            }
            self.pass_time(at)?;
            let mut after = self.pass_moment(first, moment);
            // What ends at the same moment makes room together.
            while let Some(same) = coming.first_entry()
                && same.key().0 == at
            {
                let id = same.key().1;
                let ended = self.pass_moment(id, same.remove());
                after = after.or(ended);
            }
            // Where nothing ends it is the order that changed, because of one that joined.
            let after = after.unwrap_or(first);
            // Whoever gets a place is behind all others then, and a next walk goes in that order.
            loop {
                let placed = self.pass(coming, at)?;
                if placed.is_empty() {
                    break;
                }
                for (session, found) in placed {
                    self.served.insert(session.owner, at);
                    if let Some(fair) = &mut self.fair {
                        fair.hold(session);
                    }
                    let until = self.lives.end(session, at, at);
                    // What is scheduled has its own time, and no other is promised for it.
                    if !self.joined.contains(&session.id) {
                        let after = Some(after);
                        starts.insert(session.id, ExpectedStart { at, after, until });
                    }
                    let limit = RunLives::Declared.end(session, at, at);
                    if let Some((until, limit)) = until.zip(limit) {
                        let end = Moment::Ends(session, found, limit);
                        coming.insert((until, session.id), end);
                    }
                }
            }
        }
        Some(())
    }

    /// Counts what is held up to a moment as use of the past. None where that takes too long.
    fn pass_time(&mut self, at: Timestamp) -> Option<()> {
        if let (Some(fair), Some(past)) = (&mut self.fair, &mut self.past)
            && at > past.counted
        {
            self.looks = self.looks.checked_sub(fair.users())?;
            fair.count_use(&mut past.used, at.millis_since(past.counted));
            past.counted = at;
            if at.millis_since(past.summed) >= SUMMED_AFTER {
                fair.sum_past(&past.used);
                past.summed = at;
            }
        }
        Some(())
    }

    /// Takes in what happens to a session; its id where it ended.
    fn pass_moment(&mut self, id: SessionId, moment: Moment<'w>) -> Option<SessionId> {
        if let (Some(fair), Moment::Runs(session, _) | Moment::Ends(session, ..)) =
            (&mut self.fair, &moment)
        {
            fair.free(session);
        }
        match moment {
            Moment::Runs(session, _) => self.ground.give_back(session),
            Moment::Ends(session, found, _) => {
                self.ground.free(&found, session);
            }
            Moment::Joins(session) => {
                self.joined.insert(id);
                self.join(session);
                return None;
            }
        }
        Some(id)
    }

    /// Has a session wait for room, in its place among its owner's.
    fn join(&mut self, session: &'w Session) {
        *self.sizes.entry(size(session)).or_default() += 1;
        if session.spec.limit().is_some() {
            *self.limited.entry(size(session)).or_default() += 1;
        }
        let own = self.left.entry(session.owner).or_default();
        let key = (session.queued_at, session.id);
        let at = own.partition_point(|other| (other.queued_at, other.id) < key);
        own.insert(at, session);
    }

    /// The first ones of the queue for whom room is kept, as long as no session behind them may come before them: by
    /// shares, and with timed backfill, that is not known of any. In turns it holds for the first of each user.
    fn front(&mut self, unkept: &BTreeSet<SessionId>, coming: &Moments<'w>) -> Vec<&'w Session> {
        let mut front: Vec<&'w Session> = Vec::new();
        if self.order.goes_by_share() || self.backfill != BackfillMode::Strict {
            return front;
        }
        let joins: Vec<&Session> = coming
            .values()
            .filter_map(|moment| match moment {
                Moment::Joins(session) => Some(*session),
                Moment::Runs(..) | Moment::Ends(..) => None,
            })
            .collect();
        // A user with one that joins may have their turn later than it is now.
        let joining: BTreeSet<UserId> = joins.iter().map(|session| session.owner).collect();
        // No room is kept for one that joins later, so that where it finds some then is not known.
        let order = self.order;
        let place = |session: &Session| (session.queued_at, session.id);
        let is_behind_one = |session: &Session| match order {
            QueueOrder::Fifo => joins.iter().any(|other| place(other) < place(session)),
            QueueOrder::Lifo => joins.iter().any(|other| place(other) > place(session)),
            QueueOrder::Turns | QueueOrder::Drf | QueueOrder::Fair => false,
        };
        let is_alone = self.left.len() == 1 && joining.is_empty();
        let in_turns = self.order == QueueOrder::Turns && !is_alone;
        let Some(mut walk) = self.walk() else {
            return front;
        };
        while front.len() < IN_FRONT
            && let Some(session) = walk.next(self)
        {
            let has_turned = || front.iter().any(|one| one.owner == session.owner);
            let is_later = in_turns && (joining.contains(&session.owner) || has_turned());
            if is_later || is_behind_one(session) || unkept.contains(&session.id) {
                break;
            }
            front.push(session);
        }
        front
    }

    /// Users in the order of their turns in one round of the queue: those who have so many sessions.
    fn users(&self, round: usize) -> Vec<UserId> {
        let mut users: Vec<_> = self
            .left
            .iter()
            .filter_map(|(user, own)| {
                let (first, next) = (own.first()?, own.get(round)?);
                let start = first.spec.start_at.unwrap_or_default();
                let last = self.served.get(user).copied().unwrap_or_default();
                let since = first.queued_at.max(start).max(last);
                Some((since, next.queued_at, next.id, *user))
            })
            .collect();
        users.sort_unstable();
        users.into_iter().map(|(.., user)| user).collect()
    }

    /// The queue as it stands now. None where sorting it takes too long.
    fn walk(&mut self) -> Option<ForecastWalk<'w>> {
        if self.order == QueueOrder::Turns {
            return Some(ForecastWalk::Turns {
                round: 0,
                users: self.users(0).into_iter(),
            });
        }
        let mut all: Vec<&Session> = self.left.values().flatten().copied().collect();
        self.looks = self.looks.checked_sub(all.len())?;
        all.sort_by_key(|session| (session.queued_at, session.id));
        match (&self.fair, self.order) {
            (Some(fair), _) => all = fair.clone().sorted(all),
            (None, QueueOrder::Lifo) => all.reverse(),
            (None, _) => {}
        }
        Some(ForecastWalk::List(all.into_iter()))
    }

    /// Walks the queue once, as `QueueWalk` does; gives those that got a place. None where that takes too long.
    fn pass(
        &mut self,
        coming: &Moments<'w>,
        at: Timestamp,
    ) -> Option<Vec<(&'w Session, FoundPlace)>> {
        self.looks = self.looks.checked_sub(self.search)?;
        self.ground = self.ground.bare();
        let mut placed = Vec::new();
        let mut hopeful: BTreeSet<(Demand, bool)> = self.sizes.keys().copied().collect();
        let mut sizes = 0;
        let mut has_front = self.backfill == BackfillMode::Strict;
        let mut backfill: Option<TimedBackfill<'w>> = None;
        let mut hopeful_by_time: BTreeSet<(Demand, bool)> = BTreeSet::new();
        let mut walk = self.walk()?;
        while let Some(session) = walk.next(self) {
            let none_fits = hopeful.is_empty() || sizes >= MAX_SIZES;
            if none_fits && hopeful_by_time.is_empty() {
                break;
            }
            self.looks = self.looks.checked_sub(1)?;
            if self.ground.is_bounded(session) {
                continue;
            }
            let bound = session.device_affinity.is_some();
            let is_full = sizes >= MAX_SIZES;
            let mut found = None;
            if !is_full && (bound || hopeful.contains(&size(session))) {
                self.looks = self.looks.checked_sub(self.search)?;
                found = self.ground.place(session);
            }
            if let Some(timed) = &backfill
                && found.is_none()
                && timed.is_hopeful(session)
            {
                self.looks = self.looks.checked_sub(self.search)?;
                found = timed.place(session);
                if timed.finds_none(size(session)) {
                    hopeful_by_time.remove(&size(session));
                }
            }
            if let Some(found) = found {
                self.ground.take(&found, session);
                if let Some(timed) = &mut backfill {
                    timed.take(&found, session);
                }
                placed.push((session, found));
                continue;
            }
            if bound || is_full {
                continue;
            }
            let keeps_more = match &backfill {
                None => !has_front,
                Some(timed) => timed.keeps_more(),
            };
            if keeps_more && self.ground.is_awaited(session) {
                self.looks = self.looks.checked_sub(LATEST_START * self.search)?;
                match &mut backfill {
                    Some(timed) => timed.keep(session),
                    None => {
                        has_front = true;
                        let ends = self.ends(coming, &placed, at);
                        backfill = TimedBackfill::new(&self.ground, session, ends, at);
                        if backfill.is_some() {
                            hopeful_by_time = self.limited.keys().copied().collect();
                        }
                    }
                }
            }
            self.ground.keep(session);
            // No session of a size that found none finds a place further behind.
            if self.ground.kept().sizes.len() > sizes {
                sizes = self.ground.kept().sizes.len();
                self.looks = self.looks.checked_sub(hopeful.len())?;
                let kept = self.ground.kept();
                hopeful.retain(|(demand, host)| !kept.is_vain(demand, *host));
            }
        }
        for (session, _) in &placed {
            self.forget(session);
        }
        Some(placed)
    }

    /// Ends of all that holds room, as far as time limits tell them.
    fn ends(
        &self,
        coming: &Moments<'w>,
        placed: &[(&'w Session, FoundPlace)],
        now: Timestamp,
    ) -> Vec<RoomEnd<'w>> {
        let mut ends = Vec::new();
        for moment in coming.values() {
            match moment {
                // Backfill goes by declared limits, however long they run.
                Moment::Runs(session, limit) => {
                    let at = held_until(session, now).map_or(*limit, |held| held.min(*limit));
                    ends.extend(RoomEnd::of_containers(&self.ground, session, at));
                }
                Moment::Ends(session, found, limit) => {
                    ends.push(RoomEnd::new(*limit, session, found.clone()));
                }
                Moment::Joins(_) => {}
            }
        }
        let placed = placed.iter();
        ends.extend(placed.filter_map(|(session, found)| RoomEnd::of_placed(session, found, now)));
        ends
    }

    /// It has a place and waits no more.
    fn forget(&mut self, session: &Session) {
        if let Some(own) = self.left.get_mut(&session.owner) {
            own.retain(|other| other.id != session.id);
            if own.is_empty() {
                self.left.remove(&session.owner);
            }
        }
        let size = size(session);
        count_down(&mut self.sizes, size);
        if session.spec.limit().is_some() {
            count_down(&mut self.limited, size);
        }
    }
}

/// A way through the queue.
enum ForecastWalk<'w> {
    /// Sorted whole.
    List(std::vec::IntoIter<&'w Session>),
    /// Users in turns, round after round; a round is sorted once the one before is over.
    Turns {
        round: usize,
        users: std::vec::IntoIter<UserId>,
    },
}

impl<'w> ForecastWalk<'w> {
    fn next(&mut self, future: &Future<'w>) -> Option<&'w Session> {
        match self {
            Self::List(all) => all.next(),
            Self::Turns { round, users } => loop {
                if let Some(user) = users.next() {
                    return future.left.get(&user)?.get(*round).copied();
                }
                *round += 1;
                let next = future.users(*round);
                if next.is_empty() {
                    return None;
                }
                *users = next.into_iter();
            },
        }
    }
}

fn count_down(sizes: &mut BTreeMap<(Demand, bool), u32>, size: (Demand, bool)) {
    if let Some(count) = sizes.get_mut(&size) {
        *count -= 1;
        if *count == 0 {
            sizes.remove(&size);
        }
    }
}

fn size(session: &Session) -> (Demand, bool) {
    let host = session.spec.environment == SessionEnvironment::Host;
    (session.spec.demand, host)
}
