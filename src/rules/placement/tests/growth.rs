//! Running sessions that grow: never into what one that waits could get, as no start by backfill is.

use super::groups::group;
use super::passing::{NOW, crowded, fits_on, pass};
use super::*;
use crate::policy::BackfillMode;
use crate::resource_group::GroupPlan;
use crate::resources::DeviceShare;

/// Seconds after which the session that runs reaches its limit.
const HOUR: u64 = 3_600;

/// The session of that number runs since now on the first machine, with its share of the first device.
fn run(world: &mut ClusterSnapshot, at: usize) {
    let node = world.nodes[0].id;
    let session = &mut world.sessions[at];
    let share = session.spec.demand.gpu;
    let part = DeviceShare {
        index: 0,
        share,
        memory: Bytes::gib(u64::from(share.0) * 80 / 100),
        part: None,
        simulated: false,
    };
    let devices = if share > GpuShare::ZERO {
        vec![part]
    } else {
        Vec::new()
    };
    let because = crate::reason::Reason::from_parts("placement.room".into(), "Room.".into());
    session.place(node, devices, because, NOW);
    session.run_since(NOW);
}

/// The world of a text in which so many of its first sessions run.
fn running(text: &str, count: usize, backfill: BackfillMode) -> ClusterSnapshot {
    let mut world = world(text);
    world.policy.backfill = backfill;
    for at in 0..count {
        run(&mut world, at);
    }
    world
}

/// The same session with that demand, and the shares that it has then; None where its machine has no room for it.
fn grown(world: &ClusterSnapshot, session: &Session, demand: Demand) -> Option<Session> {
    let (cpu, memory) = room_for(world, session, session.node()?, NOW)?;
    let had = &session.spec.demand;
    if demand.check().is_err()
        || demand.cpu > cpu.max(had.cpu)
        || demand.memory > memory.max(had.memory)
    {
        return None;
    }
    let devices = regrant(world, session, &demand).ok()?;
    let mut grown = session.clone();
    grown.spec.demand = demand;
    grown.regrant(devices);
    Some(grown)
}

/// What is said to the first session, which wants so much of the processor, the memory and the device.
fn asked(world: &ClusterSnapshot, cpu: &str, memory: &str, gpu: &str) -> GrowthAnswer {
    let session = &world.sessions[0];
    let wanted = demand(cpu, memory, gpu);
    let wanting = grown(world, session, wanted).expect("its machine has room");
    growth(world, session, &wanting, NOW)
}

fn kept(cpu: u32, memory: u64) -> GrowthAnswer {
    GrowthAnswer::Kept {
        cpu: CpuShare(cpu),
        memory: Bytes::gib(memory),
        device: None,
        latest: None,
    }
}

/// Whether another needs the first device.
fn keeps_device(told: GrowthAnswer) -> bool {
    matches!(
        told,
        GrowthAnswer::Kept {
            device: Some(0),
            ..
        }
    )
}

#[test]
fn what_is_kept_for_the_first_in_the_queue_is_no_room_to_grow() {
    // 0.75 of a core is free, and the front needs what x has beside it.
    let text = "node a 4 64g 0 | small 0.25 1g 0 | busy 2.75 1g 0 | x 0.25 1g 0 | front 1 1g 0";
    let mut world = running(text, 3, BackfillMode::Strict);
    assert_eq!(
        asked(&world, "0.5", "1g", "0"),
        kept(25, 61),
        "no more than it has"
    );
    assert_eq!(asked(&world, "0.25", "61g", "0"), GrowthAnswer::Open);
    // Its own one is kept for, too.
    let owner = world.sessions[0].owner;
    assert_eq!(world.sessions[3].owner, owner);
    world.sessions[3].owner = UserId(uuid::Uuid::from_u128(9));
    assert_eq!(asked(&world, "0.5", "1g", "0"), kept(25, 61));
    world.sessions.pop();
    assert_eq!(asked(&world, "0.5", "1g", "0"), GrowthAnswer::Open);
}

#[test]
fn a_queue_of_another_group_keeps_nothing() {
    let text = "node a 4 64g 0 | small 0.25 1g 0 | busy 3 1g 0 | front 1 1g 0";
    let mut world = running(text, 2, BackfillMode::Strict);
    assert_eq!(asked(&world, "0.5", "1g", "0"), kept(25, 62));
    let lab = ResourceGroupId(uuid::Uuid::from_u128(u128::MAX));
    let front = world.sessions[2].id;
    world.groups = GroupPlan {
        groups: vec![
            group(ResourceGroupId::DEFAULT, "default"),
            group(lab, "lab"),
        ],
        sessions: [(front, lab)].into_iter().collect(),
        ..GroupPlan::default()
    };
    assert_eq!(asked(&world, "0.5", "1g", "0"), GrowthAnswer::Open);
}

#[test]
fn what_the_first_one_cannot_have_beside_it_is_room_to_grow() {
    // It waits for memory: 1.5 cores are kept for none.
    let text = "node a 4 64g 0 | small 0.5 1g 0 | busy 1 4g 0 | front 1 60g 0";
    let world = running(text, 2, BackfillMode::Strict);
    assert_eq!(asked(&world, "2", "1g", "0"), GrowthAnswer::Open);
    assert_eq!(
        asked(&world, "2.01", "1g", "0"),
        kept(200, 1),
        "one hundredth more"
    );
    assert_eq!(asked(&world, "1", "2g", "0"), kept(200, 1));
    // It waits for the end of this very session.
    let text = "node a 4 64g 0 | small 0.5 1g 0 | front 4 1g 0";
    let world = running(text, 1, BackfillMode::Strict);
    assert_eq!(asked(&world, "3", "9g", "0"), GrowthAnswer::Open);
}

#[test]
fn a_share_grows_into_no_device_that_the_first_one_could_share_with_it() {
    let text = "node a 16 64g 1 | small 1 1g 0.25 | busy 1 1g 0.5 | front 1 1g 0.5";
    let world = running(text, 2, BackfillMode::Strict);
    let told = asked(&world, "1", "1g", "0.3");
    assert!(keeps_device(told), "{told:?}");
    assert_eq!(asked(&world, "2", "1g", "0.25"), GrowthAnswer::Open);
    // Who needs all of it waits for its end.
    let text = "node a 16 64g 1 | small 1 1g 0.25 | busy 1 1g 0.5 | front 1 1g 1";
    let world = running(text, 2, BackfillMode::Strict);
    assert_eq!(asked(&world, "1", "1g", "0.5"), GrowthAnswer::Open);
}

#[test]
fn a_session_that_starts_with_the_next_pass_has_its_room_already() {
    let text = "node a 4 64g 1 | small 1 1g 0.25 | front 2 1g 0.5";
    let world = running(text, 1, BackfillMode::Strict);
    assert_eq!(asked(&world, "2", "1g", "0.5"), GrowthAnswer::Open);
    let told = asked(&world, "2.5", "1g", "0.25");
    assert_eq!(told, kept(200, 63));
    let told = asked(&world, "1", "1g", "0.75");
    assert!(keeps_device(told), "{told:?}");
}

#[test]
fn a_limit_that_one_in_front_needs_is_no_room_to_grow() {
    let text = "node a 8 64g 0 | small 1 1g 0 | hog 6 1g 0 | front 2 1g 0";
    let mut world = running(text, 2, BackfillMode::Strict);
    let (kim, lee) = (
        UserId(uuid::Uuid::from_u128(1)),
        UserId(uuid::Uuid::from_u128(2)),
    );
    for (session, owner) in world.sessions.iter_mut().zip([kim, lee, kim]) {
        session.owner = owner;
    }
    let mut limits = PolicyLimits::default();
    limits.set(LimitKey::Memory, Some(Bytes::gib(3).0));
    world.limits = vec![ScopedPolicy {
        level: PolicyLevel::Site,
        subject: None,
        whose: String::new(),
        name: "small".into(),
        limits,
    }];
    assert_eq!(asked(&world, "1", "2g", "0"), GrowthAnswer::Open);
    assert_eq!(asked(&world, "1", "3g", "0"), GrowthAnswer::Owed);
    world.sessions[2].owner = lee;
    assert_eq!(asked(&world, "1", "3g", "0"), GrowthAnswer::Open);
}

/// Proves too: `never_over_a_card_never_over_the_quota_and_everybody_gets_their_turn`
#[test]
fn a_share_grows_no_further_than_one_user_may_hold() {
    let text = "node a 16 64g 1 | small 1 1g 0.25 | other 1 1g 0.25";
    let mut world = running(text, 2, BackfillMode::Strict);
    world.policy.each = Some(GpuShare(60));
    let within = |world: &ClusterSnapshot, share: &str| {
        within_limits(world, &world.sessions[0], &demand("1", "1g", share))
    };
    assert!(within(&world, "0.35").is_ok());
    let refused = within(&world, "0.36").unwrap_err();
    assert_eq!(refused.code, "gpu.over-quota");
    assert!(refused.text.contains("hold 0.25"), "{refused}");
    // What is beyond a limit that was lowered meanwhile shrinks, and grows otherwise.
    world.policy.each = Some(GpuShare(30));
    assert!(within(&world, "0.2").is_ok() && within(&world, "0.25").is_ok());
}

#[test]
fn with_timed_backfill_a_session_that_is_over_in_time_grows() {
    // Once busy is over the front has its room, and 14 leaves a core beside it.
    for (front, seconds, expected) in [
        (15, None, None),
        (15, Some(HOUR), Some(GrowthAnswer::InTime)),
        (15, Some(HOUR + 1), None),
        (14, Some(HOUR + 1), Some(GrowthAnswer::InTime)),
    ] {
        let text = format!("node a 16 64g 0 | small 1 1g 0 | busy 8 1g 0 | front {front} 1g 0");
        let mut world = running(&text, 2, BackfillMode::Timed);
        world.sessions[1].spec.max_runtime_seconds = Some(HOUR);
        world.sessions[0].spec.max_runtime_seconds = seconds;
        let expected = expected.unwrap_or(GrowthAnswer::Kept {
            cpu: CpuShare(100),
            memory: Bytes::gib(62),
            device: None,
            latest: Some(NOW.plus_seconds(HOUR)),
        });
        let told = asked(&world, "2", "1g", "0");
        assert_eq!(told, expected, "{front}, {seconds:?}");
        world.policy.backfill = BackfillMode::Strict;
        let strict = asked(&world, "2", "1g", "0");
        assert_eq!(strict, kept(100, 62), "{front}, {seconds:?}");
    }
}

/// Proves too: `whoever_passes_takes_nothing_that_anybody_in_front_could_get`
#[test]
fn who_grows_takes_nothing_that_one_who_waits_could_get() {
    let (mut open, mut kept, mut compared) = (0, 0, 0);
    for seed in 0..400 {
        let mut numbers = Numbers(seed);
        let mut world = crowded(&mut numbers);
        world.policy.backfill = BackfillMode::Strict;
        pass(&mut world);
        // Few wait, and some room is free.
        world.sessions.retain(|s| match s.state() {
            SessionState::Pending => numbers.below(12) == 0,
            _ => numbers.below(3) > 0,
        });
        while !pass(&mut world).is_empty() {}
        let fronts: Vec<Session> = order::waiting(&world, NOW).into_iter().cloned().collect();
        let holds = |s: &&Session| s.state() == SessionState::Running;
        let running: Vec<Session> = world.sessions.iter().filter(holds).cloned().collect();
        if fronts.is_empty() {
            continue;
        }
        for session in running {
            let had = session.spec.demand;
            let more = match had.gpu > GpuShare::ZERO && had.gpu < crate::devices::WHOLE {
                true => numbers.below(40),
                false => 0,
            };
            let wanted = Demand {
                cpu: had.cpu + CpuShare(numbers.below(60)),
                memory: had.memory + Bytes::mib(u64::from(numbers.below(400))),
                gpu: had.gpu + GpuShare(more),
                ..had
            };
            let Some(wanting) = grown(&world, &session, wanted) else {
                continue;
            };
            match growth(&world, &session, &wanting, NOW) {
                GrowthAnswer::Open => open += 1,
                GrowthAnswer::Kept { cpu, memory, .. } => {
                    kept += 1;
                    // What is offered instead is given.
                    let less = Demand {
                        cpu: wanted.cpu.min(cpu),
                        memory: wanted.memory.min(memory),
                        ..had
                    };
                    let less = grown(&world, &session, less).expect("it is less");
                    assert_eq!(
                        growth(&world, &session, &less, NOW),
                        GrowthAnswer::Open,
                        "seed {seed}: {:?}",
                        less.spec.demand
                    );
                    continue;
                }
                other => panic!("seed {seed}: {other:?}"),
            }
            let node = session.node().unwrap();
            for front in &fronts {
                for _ in 0..3 {
                    // Any of the others who run may end.
                    let mut without = world.clone();
                    without
                        .sessions
                        .retain(|s| s.id == session.id || numbers.below(2) == 0);
                    let mut with = without.clone();
                    let row = with.sessions.iter_mut().find(|s| s.id == session.id);
                    *row.unwrap() = wanting.clone();
                    compared += 1;
                    assert_eq!(
                        fits_on(&with, node, front),
                        fits_on(&without, node, front),
                        "seed {seed}: {:?} is delayed by {:?}",
                        front.spec.demand,
                        wanting.spec.demand,
                    );
                }
            }
        }
    }
    // There was something to see.
    assert!(
        open > 40 && kept > 40 && compared > 120,
        "{open}, {kept}, {compared}"
    );
}
