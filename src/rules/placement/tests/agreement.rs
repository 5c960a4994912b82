//! Scheduler, preview, why, queue and forecast over generated worlds: one answer, whichever door asks, and no two
//! sentences that contradict each other.

use std::collections::BTreeSet;

use super::*;
use crate::codes;
use crate::fair_share::QueueOrder;
use crate::placement::{explain_queue, forecast};
use crate::policy::BackfillMode;

pub(super) const NOW: Timestamp = Timestamp::from_millis(1_000_000);
/// Worlds that are generated.
const WORLDS: u32 = 1_000;

/// Machines, and sessions of three users: some wait for a time, for another session, or are on hold; half of them
/// have a time limit.
pub(super) fn generated(numbers: &mut Numbers) -> ClusterSnapshot {
    let mut world = machines(numbers);
    for node in &mut world.nodes {
        node.seen_at = NOW;
        node.schedulable = numbers.below(12) > 0;
    }
    for number in 0..2 + numbers.below(14) {
        let id = SessionId(uuid::Uuid::from_u128(1000 + u128::from(number)));
        let spec = SessionSpec {
            kind: SessionKind::Batch,
            environment: SessionEnvironment::Host,
            command: vec!["true".into()],
            env: BTreeMap::new(),
            demand: wanted(numbers),
            timeout_seconds: (numbers.below(2) == 0).then(|| u64::from(60 + numbers.below(5) * 60)),
            max_runtime_seconds: None,
            start_at: (numbers.below(10) == 0).then(|| NOW.plus_seconds(600)),
            depends_on: match numbers.below(10) {
                0 if number > 0 => vec![SessionId(uuid::Uuid::from_u128(1000))],
                _ => Vec::new(),
            },
            containers: 1,
        };
        let owner = UserId(uuid::Uuid::from_u128(1 + u128::from(numbers.below(3))));
        let name = SessionName::parse(&format!("s{number}")).unwrap();
        let at = Timestamp::from_millis(i64::from(number));
        let mut session = Session::launched(id, name, owner, spec, at);
        belonging(numbers, &mut session);
        if numbers.below(12) == 0 {
            assert!(session.hold(crate::names::UserName::parse("kim").unwrap(), NOW));
        }
        world.sessions.push(session);
    }
    world.limits = limits(numbers);
    world.allowances = allowances(numbers);
    world
}

/// Every other world has timed backfill.
fn backfill(round: u32) -> BackfillMode {
    match round % 2 {
        0 => BackfillMode::Timed,
        _ => BackfillMode::Strict,
    }
}

/// A share of devices, or none, beside some or most cores of a machine.
fn wanted(numbers: &mut Numbers) -> Demand {
    let demand = request(numbers);
    let devices = numbers.below(3) > 0;
    Demand {
        cpu: CpuShare(100 * (1 + numbers.below(40))),
        gpu: if devices { demand.gpu } else { GpuShare::ZERO },
        gpu_memory: demand.gpu_memory.filter(|_| devices),
        mig: demand.mig.filter(|_| devices),
        ..demand
    }
}

/// One pass of the scheduler, with the starts that follow; who got a place.
pub(super) fn pass(world: &mut ClusterSnapshot, now: Timestamp) -> Vec<SessionId> {
    let mut placed = Vec::new();
    for decision in decide(world, now) {
        match decision {
            Decision::Place {
                session,
                node,
                devices,
                because,
                ..
            } => {
                let row = world.sessions.iter_mut().find(|s| s.id == session).unwrap();
                row.place(node, devices, because, now);
                row.run_since(now);
                world.served.insert(row.owner, now);
                placed.push(session);
            }
            Decision::End { session, .. } => world.sessions.retain(|s| s.id != session),
        }
    }
    placed
}

fn waiting(world: &ClusterSnapshot) -> Vec<&Session> {
    let pending = |s: &&Session| s.state() == SessionState::Pending;
    world.sessions.iter().filter(pending).collect()
}

/// What one explanation says must be true by the world, and consistent in itself.
fn consistent(world: &ClusterSnapshot, session: &Session, told: &Explanation, context: &str) {
    let said = told.outlook.as_ref().map(|o| o.code.as_str());
    let some_limit = world
        .sessions
        .iter()
        .any(|s| s.state() == SessionState::Running && s.deadline().is_some());
    assert_eq!(
        told.verdict == Verdict::Wait,
        !told.blockers.is_empty(),
        "{context}"
    );
    assert_eq!(told.verdict == Verdict::Wait, said.is_some(), "{context}");
    let timed = [
        codes::START_EXPECTED,
        codes::START_EXPECTED_OTHER,
        codes::START_EXPECTED_AGAIN,
        codes::START_EXPECTED_AGAIN_OTHER,
        codes::START_SCHEDULED,
    ];
    assert_eq!(
        said.is_some_and(|code| timed.contains(&code)),
        told.eta.is_some(),
        "{context}"
    );
    if let Some(eta) = &told.eta {
        assert_eq!(NOW.plus_seconds(eta.p50_seconds), eta.at, "{context}");
        let text = &told.outlook.as_ref().unwrap().params["at"];
        assert_eq!(*text, eta.at.to_string(), "{context}");
    }
    match said {
        // Not one of those in front that start now either.
        Some(codes::START_NO_LIMITS) => assert!(!some_limit, "{context}"),
        Some(codes::START_SCHEDULED) => {
            assert_eq!(told.eta.as_ref().map(|e| e.at), session.spec.start_at);
        }
        Some(codes::START_ON_RELEASE) => assert!(session.held_by.is_some(), "{context}"),
        Some(codes::START_AFTER_DEPENDENCY) => assert!(!session.spec.depends_on.is_empty()),
        _ => {}
    }
}

/// Promise (Queue and scheduler): Preview, queue, "why is it waiting" and the scheduler give the same numbers and
/// times for the same queue.
#[test]
fn every_answer_about_the_queue_is_the_same_answer() {
    let mut numbers = Numbers(0x5eed_0911);
    let (mut now, mut later, mut never, mut previews) = (0, 0, 0, 0);
    for round in 0..WORLDS {
        let mut world = generated(&mut numbers);
        world.policy.backfill = backfill(round);
        for _ in 0..numbers.below(3) {
            pass(&mut world, NOW);
        }
        let known = forecast(&world, NOW);
        let rows = waiting(&world);
        let queue = explain_queue(&world, &known, &rows, NOW);
        let mut after = world.clone();
        let placed = pass(&mut after, NOW);
        let mut positions = Vec::new();
        let mut causes = QueueCauses::new(&world, NOW);
        for (session, told) in rows.iter().zip(&queue) {
            let context = format!("world {round}, {}: {told:?}", session.name);
            let cause = causes.of(session);
            let is_never = cause == WaitCause::Never;
            assert_eq!(is_never, told.verdict == Verdict::Never, "{context}");
            if let WaitCause::Held(blocker) = &cause {
                assert_eq!(told.blockers.first(), Some(blocker), "{context}");
            }
            let asks_for_room = cause == WaitCause::Room;
            assert_eq!(asks_for_room, told.queue_position.is_some(), "{context}");
            let why = explain_session(&world, session, NOW);
            assert_eq!(&why, told, "why and queue: {context}");
            let starts = placed.contains(&session.id);
            assert_eq!(starts, told.verdict == Verdict::Now, "{context}");
            let start = known.starts.get(&session.id);
            assert_eq!(
                starts,
                start.is_some_and(|start| start.after.is_none()),
                "{context}"
            );
            if told.verdict == Verdict::Wait && told.queue_position.is_some() {
                let at = start.map(|start| start.at);
                assert_eq!(told.eta.as_ref().map(|eta| eta.at), at, "{context}");
            }
            consistent(&world, session, told, &context);
            positions.extend(told.queue_position);
            now += u32::from(starts);
            later += u32::from(told.eta.is_some());
            never += u32::from(told.verdict == Verdict::Never);
        }
        // Each number once, none for those that wait for no room.
        positions.sort_unstable();
        let impossible = |id: &SessionId| {
            let session = world.session(*id).unwrap();
            possible(&world, &session.spec.demand, &session.spec.environment).is_err()
        };
        let numbered = (1..).zip(&known.order[..known.numbered]);
        let expected: Vec<u32> = numbered
            .filter(|(_, id)| !impossible(id))
            .map(|(number, _)| number)
            .collect();
        assert_eq!(positions, expected, "world {round}");
        previews += u32::from(preview_agrees(&world, &mut numbers, round));
    }
    assert!(
        now > 500 && later > 500 && never > 20 && previews > 200,
        "too tame: {now} start, {later} have a time, {never} never, {previews} in part"
    );
}

/// The answers of a walk that repeats steps of the forecast, those of one that looks at each session, and how many steps were
/// repeated.
pub(super) fn walked_twice(
    world: &ClusterSnapshot,
    now: Timestamp,
) -> (Vec<Explanation>, Vec<Explanation>, usize) {
    let in_queue = order::WaitingByGroup::new(world, now);
    let known = forecast(world, now);
    let mut looking = known.clone();
    let mut repeated = 0;
    for queue in &mut looking.walked {
        let sorted = in_queue.numbered(queue.group, &[], false);
        let places = queue.numbered.iter().map(|place| place.at);
        let places = places.chain(queue.unnumbered.iter().copied());
        let ids: Vec<SessionId> = places.map(|at| world.sessions[at].id).collect();
        let sorted_ids: Vec<SessionId> = sorted.places.iter().map(|one| one.session.id).collect();
        assert_eq!((ids, queue.users), (sorted_ids, sorted.users));
        for place in &mut queue.numbered {
            repeated += usize::from(place.again.take().is_some());
        }
    }
    let rows = waiting(world);
    let told = explain_queue(world, &known, &rows, now);
    (told, explain_queue(world, &looking, &rows, now), repeated)
}

/// What the forecast notes of its walk changes no answer: one that looks for room for every session says the same.
#[test]
fn a_walk_that_repeats_steps_says_what_one_says_that_looks_at_each_session() {
    let mut numbers = Numbers(0x5eed_0914);
    let mut all = 0;
    for round in 0..WORLDS / 8 {
        let mut world = generated(&mut numbers);
        world.policy.backfill = backfill(round);
        world.policy.order = match round % 3 {
            0 => QueueOrder::Turns,
            1 => QueueOrder::Fifo,
            _ => QueueOrder::Lifo,
        };
        // Many of few sizes.
        let some: Vec<Session> = world.sessions.iter().cloned().collect();
        for copy in 1..6 {
            world.sessions.extend(some.iter().cloned().map(|mut one| {
                one.id = SessionId(uuid::Uuid::from_u128(one.id.0.as_u128() + copy * 1000));
                one
            }));
        }
        for _ in 0..numbers.below(3) {
            pass(&mut world, NOW);
        }
        let (told, expected, repeated) = walked_twice(&world, NOW);
        for (told, expected) in told.iter().zip(&expected) {
            assert_eq!(told, expected, "world {round}");
        }
        all += repeated;
    }
    assert!(all > 500, "too tame: {all} steps were repeated");
}

/// The preview of some replicas says what the scheduler does with them once they are launched. True where some
/// start and some wait.
fn preview_agrees(world: &ClusterSnapshot, numbers: &mut Numbers, round: u32) -> bool {
    let owner = UserId(uuid::Uuid::from_u128(1 + u128::from(numbers.below(4))));
    let all = 2 + numbers.below(5);
    let draft = RequestDraft {
        kind: SessionKind::Batch,
        environment: SessionEnvironment::Host,
        demand: wanted(numbers),
        start_at: None,
        depends_on: Vec::new(),
        precedence: crate::workload::precedence::Precedence::default(),
        replicas: all,
        max_runtime_seconds: (numbers.below(2) == 0).then_some(90),
        owner: Some(owner),
        domain: DomainId::DEFAULT,
        project: ProjectId::DEFAULT,
        group: ResourceGroupId::DEFAULT,
    };
    let told = explain_draft(world, &draft, NOW);
    let mut launched = world.clone();
    for number in 0..all {
        let id = SessionId(uuid::Uuid::from_u128(u128::MAX - u128::from(all - number)));
        let spec = SessionSpec {
            kind: SessionKind::Batch,
            environment: SessionEnvironment::Host,
            command: Vec::new(),
            env: BTreeMap::new(),
            demand: draft.demand,
            timeout_seconds: None,
            max_runtime_seconds: draft.max_runtime_seconds,
            start_at: None,
            depends_on: Vec::new(),
            containers: 1,
        };
        let name = SessionName::drafted();
        let session = Session::launched(id, name, owner, spec, NOW);
        launched.sessions.push(session);
    }
    let new = |s: &&Session| s.id.0.as_u128() > u128::MAX - 10;
    let context = format!("world {round}: {told:?}");
    let mut after = launched.clone();
    let placed = pass(&mut after, NOW).into_iter();
    let placed = placed.filter(|id| id.0.as_u128() > u128::MAX - 10).count() as u32;
    if told.verdict == Verdict::Never {
        assert_eq!(placed, 0, "{context}");
        return false;
    }
    let replicas = told.replicas.expect("several are asked for");
    assert_eq!(
        (replicas.now, replicas.wait),
        (placed, all - placed),
        "{context}"
    );
    assert_eq!(told.verdict == Verdict::Now, placed == all, "{context}");
    let answers: Vec<Explanation> = launched
        .sessions
        .iter()
        .filter(new)
        .map(|session| explain_session(&launched, session, NOW))
        .collect();
    let first = answers
        .iter()
        .find(|answer| answer.verdict == Verdict::Wait);
    if let Some(first) = first {
        assert_eq!(told.blockers, first.blockers, "{context}");
        assert_eq!(told.queue_position, first.queue_position, "{context}");
        let at = |answer: &Explanation| answer.eta.as_ref().map(|eta| eta.at);
        assert_eq!(at(&told), at(first), "{context}");
    }
    if let Some(starts) = answers.iter().find(|answer| answer.verdict == Verdict::Now) {
        assert_eq!((&told.node, &told.devices), (&starts.node, &starts.devices));
        assert_eq!(told.rooms, starts.rooms, "{context}");
    }
    placed > 0 && placed < all
}

/// Promise (Queue and scheduler): A start that is promised comes at that moment when every session runs to its time
/// limit.
#[test]
fn starts_come_when_they_are_expected() {
    let mut numbers = Numbers(0x5eed_0912);
    let (mut met, mut beside) = (0, 0);
    for round in 0..WORLDS {
        let mut world = generated(&mut numbers);
        world.policy.backfill = backfill(round);
        let later = |s: &&Session| s.spec.start_at.is_some();
        let scheduled: BTreeSet<SessionId> =
            world.sessions.iter().filter(later).map(|s| s.id).collect();
        while !pass(&mut world, NOW).is_empty() {}
        let known = forecast(&world, NOW);
        assert!(known.complete, "world {round}");
        let mut starts = BTreeMap::new();
        // A time limit, or the time that a session is scheduled for.
        let next = |world: &ClusterSnapshot, last: Timestamp| {
            let all = world.sessions.iter();
            let moments = all.filter_map(|s| match s.deadline() {
                Some((end, _)) => Some(end),
                None => s.spec.start_at.filter(|at| s.is_pending() && *at > last),
            });
            moments.min()
        };
        let mut last = NOW;
        while let Some(at) = next(&world, last) {
            last = at;
            world
                .sessions
                .retain(|s| s.deadline().is_none_or(|(end, _)| end != at));
            for node in &mut world.nodes {
                node.seen_at = at;
            }
            loop {
                let placed = pass(&mut world, at);
                if placed.is_empty() {
                    break;
                }
                let of_now = placed.into_iter().filter(|id| !scheduled.contains(id));
                starts.extend(of_now.map(|id| (id, at)));
            }
        }
        let expected: BTreeMap<SessionId, Timestamp> = known
            .starts
            .iter()
            .map(|(id, start)| (*id, start.at))
            .collect();
        assert_eq!(expected, starts, "world {round}");
        met += starts.len();
        beside += match scheduled.is_empty() {
            true => 0,
            false => starts.len(),
        };
    }
    assert!(
        met > 700 && beside > 200,
        "only {met} starts were expected, {beside} of them beside scheduled sessions"
    );
}

/// One that is scheduled for later takes its room then: who does not end before gets it after that one.
#[test]
fn a_session_scheduled_for_later_counts_in_the_forecast() {
    let mut world = world("node a 8 64g 4 | kim 1 1g 4 | later 1 1g 2 | big 1 1g 4");
    world.nodes[0].seen_at = NOW;
    for (at, seconds) in [(0, 600), (1, 300), (2, 60)] {
        world.sessions[at].spec.max_runtime_seconds = Some(seconds);
    }
    world.sessions[1].spec.start_at = Some(NOW.plus_seconds(600));
    pass(&mut world, NOW);
    let told = explain_session(&world, &world.sessions[2], NOW);
    let end = NOW.plus_seconds(900);
    assert_eq!(told.eta.map(|eta| eta.at), Some(end));
    let said = told.outlook.unwrap();
    assert_eq!(said.code, codes::START_EXPECTED);
    assert_eq!(said.params["session"], "later");
    // Without a limit it never gives its room back.
    world.sessions[1].spec.max_runtime_seconds = None;
    let told = explain_session(&world, &world.sessions[2], NOW);
    assert_eq!(told.eta, None);
}

/// Each reason why no time is known has a sentence of its own.
#[test]
fn an_unknown_start_is_explained_by_its_cause() {
    let told = |world: &ClusterSnapshot, at: usize| {
        let told = explain_session(world, &world.sessions[at], NOW);
        (told.outlook.unwrap().code, told.eta.map(|eta| eta.at))
    };
    let mut world = world("node a 8 64g 4 | kim 1 1g 1 | lee 1 1g 3 | big 1 1g 4");
    world.nodes[0].seen_at = NOW;
    pass(&mut world, NOW);
    assert_eq!(told(&world, 2), (codes::START_NO_LIMITS.to_owned(), None));
    // Ends are known, but not enough of them.
    world.sessions[0].spec.max_runtime_seconds = Some(60);
    let few = (codes::START_TOO_FEW_LIMITS.to_owned(), None);
    assert_eq!(told(&world, 2), few);
    world.sessions[1].spec.max_runtime_seconds = Some(90);
    let end = NOW.plus_seconds(90);
    let expected = (codes::START_EXPECTED.to_owned(), Some(end));
    assert_eq!(told(&world, 2), expected);
    let start = NOW.plus_seconds(500);
    world.sessions[2].spec.start_at = Some(start);
    let scheduled = (codes::START_SCHEDULED.to_owned(), Some(start));
    assert_eq!(told(&world, 2), scheduled);
    world.sessions[2].spec.start_at = None;
    world.sessions[2].spec.depends_on = vec![world.sessions[0].id];
    let after = (codes::START_AFTER_DEPENDENCY.to_owned(), None);
    assert_eq!(told(&world, 2), after);
    world.sessions[2].spec.depends_on = Vec::new();
    let kim = crate::names::UserName::parse("kim").unwrap();
    let third = &mut world.sessions[2];
    assert!(third.hold(kim.clone(), NOW) && !third.hold(kim, NOW));
    let held = (codes::START_ON_RELEASE.to_owned(), None);
    assert_eq!(told(&world, 2), held);
    let why = explain_session(&world, &world.sessions[2], NOW);
    assert_eq!(
        (why.queue_position, why.blockers[0].code.as_str()),
        (None, "session.held")
    );
    assert!(world.sessions[2].release(NOW) && !world.sessions[2].release(NOW));
    world.nodes[0].schedulable = false;
    let closed = (codes::START_NO_NODE.to_owned(), None);
    assert_eq!(told(&world, 2), closed);
}
