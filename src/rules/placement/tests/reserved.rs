//! What reservations keep: for whom it goes before the queue, who waits in it, which devices are chosen, and who makes
//! way.

use super::*;
use crate::names::ReservationId;
use crate::policy::BackfillMode;
use crate::reservation::{
    BeforeReservation, ReservationAmount, ReservationHolder, ReservationState, ReservationTime,
    ReservedPart, UNUSED_SECONDS, WARNING_SECONDS,
};
use crate::resources::DeviceShare;

const MEMBER: UserId = UserId(uuid::Uuid::from_u128(5));
const NOW: Timestamp = Timestamp::from_millis(1_000);

/// So much of the first machine for the member, for an hour that began now.
fn kept(world: &ClusterSnapshot, cpu: &str, memory: &str, devices: &[usize]) -> ReservationTime {
    let node = &world.nodes[0];
    let amount = ReservationAmount {
        gpu: GpuShare(devices.len() as u32 * 100),
        cpu: CpuShare::parse(cpu).unwrap(),
        memory: Bytes::parse(memory).unwrap(),
    };
    let uuid = |at: &usize| node.capacity.devices[*at].uuid.clone();
    ReservationTime {
        id: ReservationId(uuid::Uuid::from_u128(9)),
        number: 1,
        holder: ReservationHolder::User(MEMBER),
        amount,
        from: NOW,
        to: NOW.plus_seconds(3_600),
        before: BeforeReservation::Drain,
        state: ReservationState::Active,
        parts: vec![ReservedPart {
            node: node.id,
            devices: devices.iter().map(uuid).collect(),
            cpu: amount.cpu,
            memory: amount.memory,
        }],
        warned_at: None,
        told: Vec::new(),
        unused_since: None,
    }
}

/// The session runs on the first machine, with these devices.
fn run(world: &mut ClusterSnapshot, at: usize, devices: &[u32]) {
    let node = world.nodes[0].id;
    let shares = devices.iter().map(|index| DeviceShare {
        index: *index,
        share: GpuShare(100),
        memory: Bytes::gib(80),
        part: None,
        simulated: false,
    });
    let shares = shares.collect();
    let room = crate::reason::Reason::from_parts("placement.room".into(), "Room.".into());
    let session = &mut world.sessions[at];
    session.owner = UserId(uuid::Uuid::from_u128(70));
    session.place(node, shares, room, NOW);
    session.run_since(Timestamp::from_millis(at as i64));
}

/// Who gets a place, by their numbers in the world.
fn placed(world: &ClusterSnapshot) -> Vec<usize> {
    let places = decide(world, NOW).into_iter().filter_map(|decision| {
        let Decision::Place { session, .. } = decision else {
            return None;
        };
        world.sessions.iter().position(|one| one.id == session)
    });
    let mut places: Vec<usize> = places.collect();
    places.sort_unstable();
    places
}

fn devices_of(time: &ReservationTime) -> Vec<&str> {
    let parts = time.parts.iter();
    let devices = parts.flat_map(|part| part.devices.iter().map(String::as_str));
    devices.collect()
}

/// Proves too: `reserved_devices_are_their_members_alone`
#[test]
fn members_pass_the_queue_with_no_more_than_is_reserved() {
    let mut world = world("node a 16 64g 0 | busy 8 8g 0 | big 12 1g 0 | greedy 4 1g 0");
    run(&mut world, 0, &[]);
    world.sessions[2].owner = MEMBER;
    world.reservations = vec![kept(&world, "0.01", "2g", &[])];
    assert_eq!(
        placed(&world),
        Vec::<usize>::new(),
        "a cent of a core is no pass"
    );
    world.sessions[2].spec.demand.cpu = CpuShare(1);
    assert_eq!(placed(&world), [2], "what is reserved is theirs");
    world.sessions[2].spec.demand.cpu = CpuShare(400);
    world.reservations = vec![kept(&world, "4", "2g", &[])];
    assert_eq!(placed(&world), [2]);
}

#[test]
fn a_reserved_device_comes_with_its_part_of_the_machine() {
    let mut world = world("node a 16 64g 4 | busy 8 8g 0 | big 12 1g 0 | member 4 16g 1");
    run(&mut world, 0, &[]);
    world.sessions[2].owner = MEMBER;
    world.reservations = vec![kept(&world, "0", "0", &[1])];
    assert_eq!(placed(&world), [2]);
    world.sessions[2].spec.demand.cpu = CpuShare(500);
    assert_eq!(placed(&world), Vec::<usize>::new());
}

#[test]
fn who_ends_in_time_waits_for_those_in_front_that_do_too() {
    let mut world = world("node a 64 64g 4 | busy 1 1g 1 | front 1 1g 4 | guest 1 1g 1");
    run(&mut world, 0, &[3]);
    let mut later = kept(&world, "0", "0", &[0, 1, 2]);
    later.from = NOW.plus_seconds(3_600);
    later.to = NOW.plus_seconds(7_200);
    later.before = BeforeReservation::Fit;
    later.state = ReservationState::Booked;
    world.reservations = vec![later];
    world.sessions[2].spec.max_runtime_seconds = Some(600);
    assert_eq!(
        placed(&world),
        [2],
        "the one in front may not have those devices"
    );
    world.sessions[1].spec.max_runtime_seconds = Some(600);
    assert_eq!(placed(&world), Vec::<usize>::new(), "it may, and is first");
}

#[test]
fn who_passes_leaves_those_in_front_their_room_beside_a_reservation() {
    let mut world = world("node a 16 64g 1 | busy 4 1g 1 | front 7 1g 1 | behind 2 1g 0");
    run(&mut world, 0, &[0]);
    world.reservations = vec![kept(&world, "8", "0", &[])];
    // Beside the reservation stand 8 cores, and front needs 7 of them once busy gives the device back.
    assert_eq!(placed(&world), Vec::<usize>::new());
    world.sessions[2].spec.demand.cpu = CpuShare(100);
    assert_eq!(placed(&world), [2]);
    // Front has no room beside the reservation: it waits for its end, and needs 12 of 16 cores then.
    world.sessions[1].spec.demand.cpu = CpuShare(1_200);
    world.sessions[2].spec.demand.cpu = CpuShare(400);
    assert_eq!(placed(&world), [2]);
    world.sessions[2].spec.demand.cpu = CpuShare(401);
    assert_eq!(placed(&world), Vec::<usize>::new());
}

#[test]
fn timed_backfill_leaves_the_first_one_what_stands_open_to_it_before_a_reservation() {
    let text = "node a 64 64g 2 | node b 64 64g 2 | busy 1 1g 1 | hog 1 1g 2 | front 1 1g 2 | behind 1 1g 1";
    let mut world = world(text);
    world.policy.backfill = BackfillMode::Timed;
    run(&mut world, 0, &[1]);
    run(&mut world, 1, &[0, 1]);
    let other = world.nodes[1].id;
    let hog = &mut world.sessions[1];
    let devices = hog.devices().to_vec();
    hog.place(other, devices, reasons::placement_kept("b"), NOW);
    hog.run_since(NOW);
    for (at, seconds) in [(0, 3_600), (1, 36_000), (2, 600), (3, 32_400)] {
        world.sessions[at].spec.max_runtime_seconds = Some(seconds);
    }
    let mut later = kept(&world, "0", "0", &[1]);
    later.from = NOW.plus_seconds(7_200);
    later.to = NOW.plus_seconds(10_800);
    later.before = BeforeReservation::Fit;
    later.state = ReservationState::Booked;
    world.reservations = vec![later];
    // Front is over before the reservation, and starts on both devices of the first machine when busy ends.
    assert_eq!(placed(&world), Vec::<usize>::new());
    world.sessions[2].spec.max_runtime_seconds = None;
    assert_eq!(placed(&world), [3], "front waits for the other machine");
}

#[test]
fn members_have_their_devices_until_the_next_reservation_begins() {
    let mut world = world("node a 16 64g 1 | member 4 4g 1");
    world.sessions[0].owner = MEMBER;
    let own = kept(&world, "4", "4g", &[0]);
    let mut next = kept(&world, "16", "64g", &[0]);
    next.id = ReservationId(uuid::Uuid::from_u128(10));
    next.holder = ReservationHolder::Maintenance;
    next.from = own.to;
    next.to = own.to.plus_seconds(3_600);
    next.before = BeforeReservation::Fit;
    next.state = ReservationState::Booked;
    world.reservations = vec![own, next];
    assert_eq!(placed(&world), [0]);
}

#[test]
fn a_member_who_waits_for_room_keeps_a_reservation() {
    let mut world = world("node a 16 64g 1 | member 32 4g 0");
    world.sessions[0].owner = MEMBER;
    let mut lasting = kept(&world, "8", "8g", &[]);
    lasting.unused_since = Some(NOW);
    world.reservations = vec![lasting];
    let later = NOW.plus_seconds(UNUSED_SECONDS);
    for node in &mut world.nodes {
        node.seen_at = later;
    }
    let step = reserve(&world, later).remove(0);
    assert_eq!((step.to, step.time.unused_since), (None, None));
    world.sessions.clear();
    let step = reserve(&world, later).remove(0);
    assert_eq!(step.to, Some(ReservationState::Released));
}

#[test]
fn one_reservation_after_another_keeps_the_same_cores() {
    let mut world = world("node a 16 64g 0 | stranger 8 8g 0");
    let first = kept(&world, "8", "8g", &[]);
    let mut second = kept(&world, "8", "8g", &[]);
    second.id = ReservationId(uuid::Uuid::from_u128(10));
    second.from = first.to;
    second.to = first.to.plus_seconds(3_600);
    second.state = ReservationState::Booked;
    world.reservations = vec![first.clone(), second.clone()];
    assert_eq!(placed(&world), [0]);
    second.from = first.from;
    world.reservations = vec![first, second];
    assert_eq!(placed(&world), Vec::<usize>::new());
}

#[test]
fn devices_that_can_no_longer_be_had_are_chosen_again() {
    let mut world = world("node a 16 64g 3 | node b 16 64g 1");
    let mut soon = kept(&world, "0", "0", &[0, 1]);
    soon.from = NOW.plus_seconds(WARNING_SECONDS);
    soon.state = ReservationState::Booked;
    world.reservations = vec![soon];
    let cordoned = world.nodes[0].capacity.devices[0].uuid.clone();
    world.nodes[0].cordoned.insert(cordoned);
    let step = reserve(&world, NOW).remove(0);
    assert_eq!(devices_of(&step.time), ["test-0-1", "test-0-2"]);
    assert_eq!(step.to, Some(ReservationState::Warned));
    // A machine that takes nothing new, after the warning: what is free elsewhere, and no more than there is.
    world.reservations = vec![step.time];
    world.nodes[0].schedulable = false;
    let step = reserve(&world, NOW).remove(0);
    assert!(devices_of(&step.time).contains(&"test-1-0"));
    assert_eq!(devices_of(&step.time).len(), 2);
}

#[test]
fn maintenance_stays_on_its_devices_while_they_are_off() {
    let mut world = world("node a 16 64g 2 | node b 16 64g 2");
    let mut repair = kept(&world, "0", "0", &[0, 1]);
    repair.holder = ReservationHolder::Maintenance;
    world.reservations = vec![repair];
    world.nodes[0].schedulable = false;
    let steps = reserve(&world, NOW);
    let moved = steps.iter().map(|step| devices_of(&step.time));
    assert!(
        moved
            .into_iter()
            .all(|devices| devices == ["test-0-0", "test-0-1"])
    );
}

#[test]
fn guests_take_what_is_not_reserved_first() {
    let mut world = world("node a 16 64g 2 | guest 1 1g 1");
    let mut later = kept(&world, "0", "0", &[0]);
    later.from = NOW.plus_seconds(7_200);
    later.to = NOW.plus_seconds(10_800);
    later.state = ReservationState::Booked;
    later.before = BeforeReservation::Fit;
    world.reservations = vec![later];
    world.sessions[0].spec.max_runtime_seconds = Some(3_600);
    let taken = decide(&world, NOW)
        .into_iter()
        .find_map(|decision| match decision {
            Decision::Place { devices, .. } => devices.first().map(|one| one.index),
            _ => None,
        });
    assert_eq!(taken, Some(1));
    world.sessions[0].owner = MEMBER;
    world.reservations[0].state = ReservationState::Active;
    world.reservations[0].from = NOW;
    assert_eq!(placed(&world), [0]);
}

#[test]
fn a_member_beside_what_is_reserved_grows_into_no_reserved_room() {
    let mut world = world("node a 16 64g 2 | member 4 4g 1 | stranger 4 4g 0");
    run(&mut world, 0, &[1]);
    run(&mut world, 1, &[]);
    world.sessions[0].owner = MEMBER;
    world.reservations = vec![kept(&world, "8", "0", &[0])];
    // 16 cores, of which 8 are kept, 4 are the member's and 4 the stranger's.
    let node = world.nodes[0].id;
    let cores =
        |world: &ClusterSnapshot| room_for(world, &world.sessions[0], node, NOW).map(|room| room.0);
    assert_eq!(cores(&world), Some(CpuShare(400)));
    run(&mut world, 0, &[0]);
    world.sessions[0].owner = MEMBER;
    assert_eq!(
        cores(&world),
        Some(CpuShare(1_200)),
        "in it, all that is kept is theirs"
    );
}

#[test]
fn a_reservation_gets_what_there_is() {
    let mut world = world("node a 16 64g 3");
    let mut soon = kept(&world, "0", "0", &[0, 1, 2]);
    soon.from = NOW.plus_seconds(WARNING_SECONDS);
    soon.state = ReservationState::Booked;
    soon.parts.clear();
    world.reservations = vec![soon];
    let cordoned = world.nodes[0].capacity.devices[0].uuid.clone();
    world.nodes[0].cordoned.insert(cordoned);
    let step = reserve(&world, NOW).remove(0);
    assert_eq!(devices_of(&step.time), ["test-0-1", "test-0-2"]);
}

#[test]
fn who_ends_in_time_is_not_warned_and_has_time_to_start() {
    let mut world = world("node a 16 64g 1 | short 1 1g 1 | guest 1 1g 1");
    run(&mut world, 0, &[0]);
    let mut soon = kept(&world, "0", "0", &[0]);
    soon.from = NOW.plus_seconds(WARNING_SECONDS);
    soon.state = ReservationState::Booked;
    world.reservations = vec![soon];
    world.sessions[0].spec.max_runtime_seconds = Some(WARNING_SECONDS);
    let step = reserve(&world, NOW).remove(0);
    assert_eq!(
        (step.to, step.displaced),
        (Some(ReservationState::Warned), Vec::new())
    );
    world.sessions[0].spec.max_runtime_seconds = Some(WARNING_SECONDS + 60);
    let step = reserve(&world, NOW).remove(0);
    assert_eq!(step.displaced.len(), 1);
    // A limit that ends just in time does not, once the session has started.
    world.sessions.remove(0);
    world.reservations = vec![step.time];
    world.sessions[0].spec.max_runtime_seconds = Some(WARNING_SECONDS);
    assert_eq!(placed(&world), Vec::<usize>::new());
    world.sessions[0].spec.max_runtime_seconds = Some(WARNING_SECONDS - 120);
    assert_eq!(placed(&world), [0]);
}

/// Proves too: `reserved_devices_are_their_members_alone`
#[test]
fn reserved_cores_are_free_when_a_reservation_begins() {
    let mut world = world("node a 16 64g 0 | one 4 4g 0 | two 4 4g 0 | three 4 4g 0");
    for at in 0..3 {
        run(&mut world, at, &[]);
    }
    let mut soon = kept(&world, "8", "8g", &[]);
    soon.from = NOW.plus_seconds(WARNING_SECONDS);
    soon.to = soon.from.plus_seconds(3_600);
    soon.state = ReservationState::Booked;
    world.reservations = vec![soon];
    let step = reserve(&world, NOW).remove(0);
    let youngest = world.sessions[2].id;
    let told: Vec<SessionId> = step.displaced.iter().map(|one| one.session).collect();
    assert_eq!(
        (step.to, told),
        (Some(ReservationState::Warned), vec![youngest])
    );
    // Meanwhile nobody grows into it.
    world.reservations = vec![step.time];
    let room = room_for(&world, &world.sessions[0], world.nodes[0].id, NOW);
    assert_eq!(room.map(|(cpu, _)| cpu), Some(CpuShare::ZERO));
    let begin = NOW.plus_seconds(WARNING_SECONDS);
    for node in &mut world.nodes {
        node.seen_at = begin;
    }
    let step = reserve(&world, begin).remove(0);
    let stopped: Vec<SessionId> = step.displaced.iter().map(|one| one.session).collect();
    assert_eq!(
        (step.to, stopped),
        (Some(ReservationState::Active), vec![youngest])
    );
    // Who was not told stays, whatever is short.
    world.reservations = vec![ReservationTime {
        told: Vec::new(),
        ..step.time
    }];
    assert!(
        reserve(&world, begin)
            .iter()
            .all(|step| step.displaced.is_empty())
    );
}

#[test]
fn machines_without_devices_add_nothing_to_what_comes_with_one() {
    let mut world = world("node a 16 64g 4 | node b 32 64g 2 | node c 512 1024g 0");
    let part = part_of_device(&world.nodes);
    assert_eq!(
        (part.gpu, part.cpu, part.memory),
        (GpuShare(100), CpuShare(400), Bytes::gib(16))
    );
    world.nodes[0].schedulable = false;
    let part = part_of_device(&world.nodes);
    assert_eq!((part.cpu, part.memory), (CpuShare(1_600), Bytes::gib(32)));
    world.nodes.truncate(1);
    assert_eq!(part_of_device(&world.nodes).cpu, CpuShare::ZERO);
}

#[test]
fn each_machine_of_a_reservation_gives_what_comes_with_its_devices() {
    let mut world = world("node a 64 512g 8 | node b 64 512g 8 | stranger 56 56g 0");
    run(&mut world, 0, &[]);
    let mut soon = kept(&world, "16", "128g", &[0]);
    soon.amount.gpu = GpuShare(200);
    soon.from = NOW.plus_seconds(WARNING_SECONDS);
    soon.state = ReservationState::Booked;
    soon.parts = [0, 1]
        .map(|at| ReservedPart {
            node: world.nodes[at].id,
            devices: vec![world.nodes[at].capacity.devices[0].uuid.clone()],
            cpu: CpuShare::ZERO,
            memory: Bytes::ZERO,
        })
        .to_vec();
    world.reservations = vec![soon];
    let rooms = |step: &ReservationStep| -> Vec<(u32, Bytes)> {
        let parts = step.time.parts.iter();
        parts.map(|part| (part.cpu.0, part.memory)).collect()
    };
    let step = reserve(&world, NOW).remove(0);
    assert_eq!(rooms(&step), [(800, Bytes::gib(64)), (800, Bytes::gib(64))]);
    assert!(
        step.displaced.is_empty(),
        "who has seven eighths of a machine stays"
    );
    // What one of them lacks, the other gives.
    world.nodes[1].capacity.cpu = CpuShare(400);
    let step = reserve(&world, NOW).remove(0);
    assert_eq!(
        rooms(&step),
        [(1_200, Bytes::gib(64)), (400, Bytes::gib(64))]
    );
}
