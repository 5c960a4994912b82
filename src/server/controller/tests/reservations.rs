//! Reservations through passes: who is warned and drained, and when devices come back.

use rules::names::ReservationId;
use rules::reservation::{
    BeforeReservation, ReservationAmount, ReservationHolder, ReservationState, ReservationTime,
};
use rules::resources::{Device, DeviceShare};
use rules::units::GpuShare;

use super::*;

const LEE: UserId = UserId(uuid::Uuid::from_u128(4));

/// The report of a machine with one GPU.
fn heard(containers: Vec<ContainerStatus>) -> NodeReport {
    let mut report = report(0, containers);
    report.capacity.devices = vec![Device {
        memory: Bytes::gib(80),
        uuid: "GPU-1".into(),
        ..Device::new(0, "device")
    }];
    report
}

/// All of the machine's GPU for lee, an hour long, from the warning after `at(10)` on.
fn lecture() -> ReservationTime {
    ReservationTime {
        id: ReservationId(uuid::Uuid::from_u128(5)),
        number: 1,
        holder: ReservationHolder::User(LEE),
        amount: ReservationAmount {
            gpu: GpuShare(100),
            ..ReservationAmount::default()
        },
        from: at(900),
        to: at(4_500),
        before: BeforeReservation::Drain,
        state: ReservationState::Booked,
        parts: Vec::new(),
        warned_at: None,
        told: Vec::new(),
        unused_since: None,
    }
}

fn wants_gpu(number: u128, owner: UserId) -> Session {
    let mut session = session(number, SessionEnvironment::Host);
    session.owner = owner;
    session.spec.demand.gpu = GpuShare(100);
    session
}

fn pass_at(
    controller: &mut Controller,
    sight: PassSnapshot,
    heard: &NodeReport,
    second: i64,
) -> ControllerPass {
    let steady = Duration::from_secs(u64::try_from(second).unwrap());
    controller.run_pass(sight, &[heard], at(second), steady, &placement::decide)
}

/// Proves too: `reserved_devices_are_their_members_alone`
#[test]
fn sessions_on_reserved_devices_are_warned_once_and_drained_at_the_begin() {
    let mut running = wants_gpu(1, KIM);
    let room = rules::reason::Reason::from_parts("placement.room".into(), "Room.".into());
    let share = DeviceShare {
        index: 0,
        share: GpuShare(100),
        memory: Bytes::gib(80),
        part: None,
        simulated: false,
    };
    running.place(NODE, vec![share], room, at(1));
    running.run_since(at(2));
    let heard = heard(vec![ContainerStatus {
        name: running.container(),
        state: ReportedState::Running {
            since: at(2),
            paused: false,
        },
        usage: None,
        devices: vec![],
        ran: None,
    }]);
    let mut controller = Controller::default();
    let mut sight = sight_of(vec![running.clone()], &[]);
    sight.world.reservations = vec![lecture()];
    let first = pass_at(&mut controller, sight, &heard, 10);
    let writes = first.writes().expect("it is warned of");
    let [change] = &writes.reservations[..] else {
        panic!("one step, not {:?}", writes.reservations);
    };
    assert_eq!(change.was, ReservationState::Booked);
    assert_eq!(change.time.state, ReservationState::Warned);
    assert_eq!(change.warned, [(running.id, running.scope())]);
    assert_eq!(change.time.parts[0].devices, ["GPU-1"]);
    // A restart in between warns of nothing again.
    let mut controller = Controller::default();
    let mut sight = written(&first, &[]);
    sight
        .world
        .reservations
        .clone_from(&first.world.reservations);
    let second = pass_at(&mut controller, sight, &heard, 20);
    let again = second
        .writes()
        .map_or(0, |writes| writes.reservations.len());
    assert_eq!(again, 0);
    let due = controller.until_due(&second).expect("its begin is due");
    assert!(due <= Duration::from_secs(890), "{due:?}");
    let mut sight = written(&second, &[]);
    sight
        .world
        .reservations
        .clone_from(&second.world.reservations);
    // Warned at 10, so not stopped before 910.
    let third = pass_at(&mut controller, sight, &heard, 910);
    let drained = &third.world.sessions[0];
    assert_eq!(drained.desired, DesiredState::Stop);
    assert!(drained.restart, "a batch session waits again");
    let reason = drained.reason.as_ref().map(|reason| reason.code.as_str());
    assert_eq!(reason, Some(rules::codes::SESSION_RESERVED));
    assert_eq!(third.world.reservations[0].state, ReservationState::Active);
}

/// Proves too: `reserved_devices_are_their_members_alone`
#[test]
fn a_stranger_gets_a_reserved_device_in_the_pass_after_it_was_cancelled() {
    let heard = heard(Vec::new());
    let mut controller = Controller::default();
    let mut sight = sight_of(vec![wants_gpu(1, KIM)], &[]);
    sight.world.reservations = vec![lecture()];
    let kept = pass_at(&mut controller, sight, &heard, 10);
    assert_eq!(kept.world.sessions[0].state(), SessionState::Pending);
    // A member has it at once.
    let mut sight = written(&kept, &[]);
    sight
        .world
        .reservations
        .clone_from(&kept.world.reservations);
    sight.world.sessions.push(wants_gpu(2, LEE));
    let used = pass_at(&mut controller, sight, &heard, 11);
    let of = |pass: &ControllerPass, owner: UserId| {
        let mut all = pass.world.sessions.iter();
        all.find(|one| one.owner == owner).map(Session::state)
    };
    assert_eq!(of(&used, LEE), Some(SessionState::Scheduled));
    assert_eq!(of(&used, KIM), Some(SessionState::Pending));
    // Cancelled: its row is in the world no more.
    let freed = pass_at(&mut controller, written(&kept, &[]), &heard, 12);
    assert_eq!(of(&freed, KIM), Some(SessionState::Scheduled));
}
