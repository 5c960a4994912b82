//! Fair share: who used least for their weight comes first; over a day everybody gets what their weight says.

use crate::quota::TenantLevel;
use std::collections::BTreeMap;

use super::turns::{at, queued, user};
use super::*;
use crate::fair_share::{self, FairLeaf, QueueOrder, WholeCluster};
use crate::metering::{Allocated, UsageSum};

const CORES: usize = 24;
const HALF_LIFE: u64 = 168;

fn cluster() -> ClusterSnapshot {
    let mut world = world(&format!("node a {CORES} 640g 0"));
    world.nodes[0].seen_at = at(1_000_000);
    world.policy.order = QueueOrder::Fair;
    world
}

fn leaf(owner: UserId) -> FairLeaf {
    let session = queued(owner, 1, at(0));
    FairLeaf {
        domain: session.domain,
        project: session.project,
        user: owner,
    }
}

/// A day of users who always have sessions waiting.
struct FairDay {
    world: ClusterSnapshot,
    numbers: Numbers,
    next: u32,
    ends: BTreeMap<u64, Vec<SessionId>>,
    /// Core minutes by hour and user.
    used: BTreeMap<(i64, UserId), u64>,
    got: BTreeMap<UserId, u64>,
}

impl FairDay {
    fn new(seed: u64, weights: &[(u128, u32)]) -> Self {
        let mut world = cluster();
        world.fair.weights = weights
            .iter()
            .map(|(id, weight)| (TenantLevel::User, user(*id).0, *weight))
            .collect();
        Self {
            world,
            numbers: Numbers(seed),
            next: 0,
            ends: BTreeMap::new(),
            used: BTreeMap::new(),
            got: BTreeMap::new(),
        }
    }

    fn queue(&mut self, owner: UserId, minute: u64, wanted: usize) {
        let waits = |session: &&Session| session.owner == owner && session.is_pending();
        for _ in self.world.sessions.iter().filter(waits).count()..wanted {
            self.next += 1;
            let session = queued(owner, self.next, at(minute * 60));
            self.world.sessions.push(session);
        }
    }

    /// Gives places and counts a minute; who got a place.
    fn pass(&mut self, minute: u64) -> Vec<UserId> {
        if let Some(over) = self.ends.remove(&minute) {
            self.world
                .sessions
                .retain(|session| !over.contains(&session.id));
        }
        if minute.is_multiple_of(60) {
            self.world.fair.past = self.past(i64::try_from(minute / 60).expect("hours"));
        }
        let now = at(minute * 60);
        let mut started = Vec::new();
        for decision in decide(&self.world, now) {
            let Decision::Place { session, node, .. } = decision else {
                panic!("{decision:?}");
            };
            let length = 10 + u64::from(self.numbers.below(50));
            self.ends.entry(minute + length).or_default().push(session);
            let place = self.world.sessions.iter_mut().find(|s| s.id == session);
            let session = place.expect("it waits");
            session.place(node, Vec::new(), Reason::new("test", "Placed."), now);
            started.push(session.owner);
        }
        let hour = i64::try_from(minute / 60).expect("hours");
        for session in self.world.sessions.iter().filter(|s| !s.is_pending()) {
            *self.used.entry((hour, session.owner)).or_default() += 1;
            *self.got.entry(session.owner).or_default() += 1;
        }
        started
    }

    fn past(&self, hour: i64) -> Vec<(FairLeaf, u64)> {
        let whole = WholeCluster {
            gpu: 0,
            cpu: 100 * CORES as u64,
            memory: 640 << 10,
        };
        let core = Allocated {
            gpu: 0,
            cpu: 100,
            memory: 1 << 10,
        };
        let used = self.used.iter().map(|((at, owner), minutes)| {
            let sum = UsageSum::held(core, minutes * 60_000);
            (leaf(*owner), *at, sum)
        });
        fair_share::standing(whole, used, hour, HALF_LIFE)
    }

    /// What a user got of all, in hundredths of a per cent.
    fn share(&self, owner: UserId) -> u64 {
        let all: u64 = self.got.values().sum();
        self.got.get(&owner).copied().unwrap_or(0) * 10_000 / all
    }
}

/// Promise (Queue and scheduler): Under fair share, users who always wait get what their weights say, within a point over a
/// day, and a newcomer's first session takes the next free place.
#[test]
fn weights_hold_over_a_day_and_a_newcomer_is_next() {
    for seed in 1..4 {
        let mut day = FairDay::new(seed, &[(2, 2), (3, 3)]);
        for minute in 0..24 * 60 {
            for id in 1..=3 {
                day.queue(user(id), minute, 30);
            }
            day.pass(minute);
        }
        for (id, expected) in [(1, 1_667), (2, 3_333), (3, 5_000)] {
            let share = day.share(user(id));
            assert!(
                share.abs_diff(expected) <= 100,
                "seed {seed}: user {id} got {share}"
            );
        }
        // Somebody comes who used nothing yet.
        day.queue(user(9), 24 * 60, 20);
        let mut minute = 24 * 60;
        let started = loop {
            let started = day.pass(minute);
            if !started.is_empty() {
                break started;
            }
            minute += 1;
        };
        assert_eq!(started[0], user(9), "seed {seed}: {started:?}");
    }
}

/// Who started in each minute of a day of three users who want all of it, and the day: a fourth one comes at ten o'clock with
/// one session.
fn greedy_day(seed: u64) -> (Vec<Vec<UserId>>, FairDay) {
    let mut day = FairDay::new(seed, &[(2, 2), (3, 3)]);
    let mut started = Vec::new();
    for minute in 0..24 * 60 {
        for id in 1..=3 {
            day.queue(user(id), minute, 30);
        }
        if minute == NEWCOMER {
            day.queue(user(9), minute, 1);
        }
        if minute.is_multiple_of(60) {
            // The same decisions, asked twice of the same world.
            let now = at(minute * 60);
            assert_eq!(decide(&day.world, now), decide(&day.world, now), "{minute}");
        }
        started.push(day.pass(minute));
    }
    (started, day)
}

/// The minute in which the newcomer comes.
const NEWCOMER: u64 = 600;

/// J5, fairness under pressure: a newcomer's first session starts with the next free place, greedy users get what their
/// weights say within a twentieth, and the day comes to the same when it is decided again. That a server's own log decides
/// again to the same bytes is tested where the log is.
///
/// Proves too: `weights_hold_over_a_day_and_a_newcomer_is_next`
#[test]
fn j5_greedy_users_leave_a_newcomer_the_next_place_and_the_day_replays() {
    let (started, day) = greedy_day(7);
    let mut from_then = started[NEWCOMER as usize..].iter().flatten();
    assert_eq!(from_then.next(), Some(&user(9)));
    assert_eq!(from_then.filter(|one| **one == user(9)).count(), 0);
    let of_three: u64 = (1..=3).map(|id| day.share(user(id))).sum();
    for id in 1..=3 {
        let expected = of_three * u64::try_from(id).expect("a weight") / 6;
        let share = day.share(user(id));
        assert!(
            share.abs_diff(expected) * 20 <= expected,
            "user {id} got {share} of {expected}"
        );
    }
    let (again, _) = greedy_day(7);
    assert_eq!(started, again);
}

#[test]
fn more_use_never_moves_a_user_forward() {
    let mut numbers = Numbers(5);
    for round in 0..200 {
        let mut world = cluster();
        for n in 0..60 {
            let owner = user(u128::from(1 + numbers.below(5)));
            world.sessions.push(queued(owner, n, at(u64::from(n))));
        }
        world.fair.past = (1..=5)
            .map(|id| (leaf(user(id)), u64::from(numbers.below(1_000))))
            .collect();
        let place = |world: &ClusterSnapshot| {
            let order = order::waiting(world, at(100));
            order.iter().position(|session| session.owner == user(1))
        };
        let before = place(&world);
        world.fair.past[0].1 += u64::from(1 + numbers.below(1_000));
        assert!(place(&world) >= before, "round {round}");
    }
}

#[test]
fn the_order_is_a_permutation_and_keeps_each_users_own() {
    let mut numbers = Numbers(11);
    for order in QueueOrder::ALL {
        let mut world = cluster();
        world.policy.order = order;
        for n in 0..300 {
            let owner = user(u128::from(numbers.below(9)));
            world.sessions.push(queued(owner, n, at(u64::from(n))));
        }
        let sorted: Vec<SessionId> = order::waiting(&world, at(400))
            .iter()
            .map(|s| s.id)
            .collect();
        world.sessions.reverse();
        let again: Vec<SessionId> = order::waiting(&world, at(400))
            .iter()
            .map(|s| s.id)
            .collect();
        assert_eq!(sorted, again, "{order:?}");
        let mut all = sorted.clone();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 300, "{order:?}");
        let mut last: BTreeMap<UserId, Timestamp> = BTreeMap::new();
        for session in order::waiting(&world, at(400)) {
            let before = last.insert(session.owner, session.queued_at);
            let follows = match order {
                QueueOrder::Lifo => before.is_none_or(|at| at > session.queued_at),
                _ => before.is_none_or(|at| at < session.queued_at),
            };
            assert!(follows, "{order:?}");
        }
        let waiting = order::WaitingByGroup::new(&world, at(400));
        let numbered = waiting.numbered(crate::names::ResourceGroupId::DEFAULT, &[], false);
        let told: Vec<SessionId> = numbered
            .places
            .iter()
            .map(|place| place.session.id)
            .collect();
        assert_eq!(told, sorted, "{order:?}");
    }
}

/// By dominant shares only what is held now counts, for its weight.
#[test]
fn by_dominant_shares_the_past_is_forgotten() {
    let mut world = cluster();
    for n in 0..6 {
        let owner = user(u128::from(1 + n % 2));
        world.sessions.push(queued(owner, n, at(u64::from(n))));
    }
    // The first one used much, and is the first by time.
    world.fair.past = vec![(leaf(user(1)), 1_000_000), (leaf(user(2)), 1)];
    let first = |world: &ClusterSnapshot| order::waiting(world, at(10))[0].owner;
    assert_eq!(first(&world), user(2));
    world.policy.order = QueueOrder::Drf;
    assert_eq!(first(&world), user(1));
    // Who holds more for the same weight comes later.
    let node = world.nodes[0].id;
    let because = Reason::new("test", "Placed.");
    world.sessions[0].place(node, Vec::new(), because, at(9));
    assert_eq!(first(&world), user(2));
    world.fair.weights = vec![
        (TenantLevel::User, user(1).0, 3),
        (TenantLevel::User, user(2).0, 1),
    ];
    let order = order::waiting(&world, at(10));
    let owners: Vec<UserId> = order.iter().map(|session| session.owner).collect();
    assert_eq!(owners, [2, 1, 1, 2, 2].map(user));
}

/// A domain's ten users get no more than another domain's one.
#[test]
fn domains_share_before_their_users_do() {
    let mut world = cluster();
    let other = DomainId(uuid::Uuid::from_u128(77));
    for n in 0..40 {
        world
            .sessions
            .push(queued(user(u128::from(n % 10)), n, at(0)));
    }
    for n in 40..80 {
        let mut session = queued(user(99), n, at(1));
        session.domain = other;
        world.sessions.push(session);
    }
    let order = order::waiting(&world, at(2));
    let first: usize = order[..20].iter().filter(|s| s.domain == other).count();
    assert_eq!(first, 10);
}

/// Whoever has a place by the forecast has it by the passes, in every order.
#[test]
fn the_forecast_walks_the_queue_as_the_passes_do() {
    for order in QueueOrder::ALL {
        let mut numbers = Numbers(3);
        let mut world = cluster();
        world.policy.order = order;
        for n in 0..120 {
            let owner = user(u128::from(numbers.below(7)));
            let mut session = queued(owner, n, at(u64::from(n)));
            session.spec.max_runtime_seconds = Some(600 + 60 * u64::from(numbers.below(50)));
            world.sessions.push(session);
        }
        world.fair.past = (0..7)
            .map(|id| (leaf(user(id)), u64::from(numbers.below(1_000))))
            .collect();
        let told = forecast(&world, at(200));
        let mut ends: BTreeMap<u64, Vec<SessionId>> = BTreeMap::new();
        let mut starts: BTreeMap<SessionId, u64> = BTreeMap::new();
        for second in 200..20_000 {
            if let Some(over) = ends.remove(&second) {
                world.sessions.retain(|session| !over.contains(&session.id));
            } else if second > 200 {
                continue;
            }
            world.nodes[0].seen_at = at(second);
            loop {
                let decisions = decide(&world, at(second));
                if decisions.is_empty() {
                    break;
                }
                for decision in decisions {
                    let Decision::Place { session, node, .. } = decision else {
                        panic!("{decision:?}");
                    };
                    let row = world.sessions.iter_mut().find(|s| s.id == session);
                    let row = row.expect("it waits");
                    let length = row.spec.max_runtime_seconds.expect("a limit");
                    row.place(node, Vec::new(), Reason::new("test", "Placed."), at(second));
                    world.served.insert(row.owner, at(second));
                    ends.entry(second + length).or_default().push(session);
                    starts.insert(session, second);
                }
            }
        }
        assert_eq!(starts.len(), 120, "{order:?}");
        for (session, second) in starts {
            let expected = told.starts.get(&session).map(|start| start.at);
            assert_eq!(expected, Some(at(second)), "{order:?}");
        }
    }
}

/// Where one user always asks for half a machine.
///
/// Proves too: `weights_hold_over_a_day_and_a_newcomer_is_next`
#[test]
fn weights_hold_where_some_sessions_are_large() {
    for seed in 1..4 {
        let mut days = GpuDays::new(seed, &[(1, 1, 400), (2, 2, 100), (3, 3, 100)]);
        days.run();
        for (id, expected) in [(1, 1_667), (2, 3_333), (3, 5_000)] {
            let share = days.share(user(id));
            assert!(
                share.abs_diff(expected) <= 100,
                "seed {seed}: user {id} got {share}"
            );
        }
    }
}

/// Two users who always ask for half of the only machine keep no other user away, however long they wait. One such session
/// more or less is half the machine, so shares are coarse.
#[test]
fn large_sessions_of_two_users_leave_small_ones_their_share() {
    for seed in 1..4 {
        let mut days = GpuDays::new(seed, &[(1, 1, 400), (2, 1, 400), (3, 1, 100), (4, 1, 100)]);
        days.world.nodes.truncate(1);
        days.run();
        for id in 1..=4 {
            let share = days.share(user(id));
            assert!(
                share.abs_diff(2_500) <= 300,
                "seed {seed}: user {id} got {share}"
            );
        }
    }
}

/// Three days of users who always have sessions of one size waiting, on machines of eight GPUs.
struct GpuDays {
    world: ClusterSnapshot,
    numbers: Numbers,
    users: Vec<(UserId, u32)>,
    next: u32,
    ends: BTreeMap<u64, Vec<SessionId>>,
    /// Minutes of hundredths of a GPU, by hour and user.
    used: BTreeMap<(i64, UserId), u64>,
}

impl GpuDays {
    /// Users by number, with their weight and the hundredths of a GPU that each of their sessions asks for.
    fn new(seed: u64, users: &[(u128, u32, u32)]) -> Self {
        let mut world = world("node a 640 6400g 8|node b 640 6400g 8|node c 640 6400g 8");
        world.policy.order = QueueOrder::Fair;
        for node in &mut world.nodes {
            node.seen_at = at(1_000_000);
        }
        let weights = users.iter();
        world.fair.weights = weights
            .map(|(id, weight, _)| (TenantLevel::User, user(*id).0, *weight))
            .collect();
        Self {
            world,
            numbers: Numbers(seed),
            users: users.iter().map(|(id, _, gpu)| (user(*id), *gpu)).collect(),
            next: 0,
            ends: BTreeMap::new(),
            used: BTreeMap::new(),
        }
    }

    fn run(&mut self) {
        for minute in 0..3 * 24 * 60 {
            for (owner, gpu) in self.users.clone() {
                let waits = |one: &&Session| one.owner == owner && one.is_pending();
                for _ in self.world.sessions.iter().filter(waits).count()..30 {
                    self.next += 1;
                    let mut session = queued(owner, self.next, at(minute * 60));
                    session.spec.demand.gpu = crate::units::GpuShare(gpu);
                    self.world.sessions.push(session);
                }
            }
            self.pass(minute);
        }
    }

    fn pass(&mut self, minute: u64) {
        if let Some(over) = self.ends.remove(&minute) {
            self.world.sessions.retain(|one| !over.contains(&one.id));
        }
        let (now, hour) = (at(minute * 60), i64::try_from(minute / 60).expect("hours"));
        if minute.is_multiple_of(60) {
            let whole = crate::world::whole_cluster(&self.world.nodes);
            let used = self.used.iter().map(|((hour, owner), minutes)| {
                let held = Allocated {
                    gpu: *minutes,
                    cpu: 0,
                    memory: 0,
                };
                (leaf(*owner), *hour, UsageSum::held(held, 60_000))
            });
            self.world.fair.past = fair_share::standing(whole, used, hour, HALF_LIFE);
        }
        for decision in decide(&self.world, now) {
            let Decision::Place {
                session,
                node,
                devices,
                ..
            } = decision
            else {
                panic!("{decision:?}");
            };
            let length = 10 + u64::from(self.numbers.below(50));
            self.ends.entry(minute + length).or_default().push(session);
            let place = self.world.sessions.iter_mut().find(|s| s.id == session);
            let because = Reason::new("test", "Placed.");
            let session = place.expect("it waits");
            session.place(node, devices, because, now);
        }
        for session in self.world.sessions.iter().filter(|s| !s.is_pending()) {
            let gpu = u64::from(session.spec.demand.gpu.0);
            *self.used.entry((hour, session.owner)).or_default() += gpu;
        }
    }

    /// What a user got of all, in hundredths of a per cent.
    fn share(&self, owner: UserId) -> u64 {
        let all: u64 = self.used.values().sum();
        let own = self.used.iter().filter(|((_, of), _)| *of == owner);
        own.map(|(_, minutes)| minutes).sum::<u64>() * 10_000 / all
    }
}
