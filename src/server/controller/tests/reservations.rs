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

/// The session runs on that device; what its machine says of it.
fn run_on(session: &mut Session, index: u32) -> ContainerStatus {
    let room = rules::reason::Reason::from_parts("placement.room".into(), "Room.".into());
    let share = DeviceShare {
        index,
        share: GpuShare(100),
        memory: Bytes::gib(80),
        part: None,
        simulated: false,
    };
    session.place(NODE, vec![share], room, at(1));
    session.run_since(at(2));
    ContainerStatus {
        name: session.container(),
        state: ReportedState::Running {
            since: at(2),
            paused: false,
        },
        usage: None,
        devices: vec![],
        ran: None,
    }
}

/// What the next pass reads, were this one written.
fn after(pass: &ControllerPass) -> PassSnapshot {
    let mut sight = written(pass, &[]);
    sight
        .world
        .reservations
        .clone_from(&pass.world.reservations);
    sight
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
    let heard = heard(vec![run_on(&mut running, 0)]);
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

/// A lecture takes a whole machine: what the classroom sees of it.
///
/// Proves too: `reserved_devices_are_their_members_alone`
#[test]
fn twelve_devices_are_warned_of_drained_and_given_back_each_in_one_pass() {
    let lecture = || ReservationTime {
        amount: ReservationAmount {
            gpu: GpuShare(1_200),
            ..ReservationAmount::default()
        },
        from: at(1_000),
        to: at(4_600),
        ..lecture()
    };
    let mut sessions = Vec::new();
    let mut containers = Vec::new();
    for index in 0..12 {
        let mut session = wants_gpu(u128::from(index), KIM);
        session.spec.demand.cpu = CpuShare(10);
        session.spec.demand.memory = Bytes::mib(64);
        containers.push(run_on(&mut session, index));
        sessions.push(session);
    }
    let mut full = heard(containers);
    full.capacity.devices = (0..12)
        .map(|index| Device {
            memory: Bytes::gib(80),
            uuid: format!("GPU-{index}"),
            ..Device::new(index, "device")
        })
        .collect();
    let steps = |pass: &ControllerPass| {
        let writes = pass.writes();
        writes.map_or_else(Vec::new, |writes| writes.reservations)
    };
    let mut controller = Controller::default();
    let mut sight = sight_of(sessions, &[]);
    sight.world.reservations = vec![lecture()];
    let early = pass_at(&mut controller, sight, &full, 99);
    assert_eq!(steps(&early).len(), 0, "15 minutes and a second before");
    let warned = pass_at(&mut controller, after(&early), &full, 100);
    let steps = steps(&warned);
    assert_eq!(steps.len(), 1);
    assert_eq!(steps[0].time.state, ReservationState::Warned);
    assert_eq!(steps[0].warned.len(), 12, "each owner, 15 minutes before");
    let wanted = |pass: &ControllerPass, desired: DesiredState| {
        let all = pass.world.sessions.iter();
        all.filter(|one| one.desired == desired).count()
    };
    let late = pass_at(&mut controller, after(&warned), &full, 999);
    assert_eq!(wanted(&late, DesiredState::Run), 12, "a second before");
    let drained = pass_at(&mut controller, after(&late), &full, 1_000);
    assert_eq!(wanted(&drained, DesiredState::Stop), 12, "when it begins");

    // Free devices that it keeps are all a stranger's in the pass after it was cancelled.
    let empty = NodeReport {
        containers: Vec::new(),
        ..full
    };
    let mut stranger = wants_gpu(20, KIM);
    stranger.spec.demand.gpu = GpuShare(1_200);
    let mut controller = Controller::default();
    let mut sight = sight_of(vec![stranger], &[]);
    sight.world.reservations = vec![lecture()];
    let kept = pass_at(&mut controller, sight, &empty, 100);
    assert_eq!(kept.world.sessions[0].state(), SessionState::Pending);
    let freed = pass_at(&mut controller, written(&kept, &[]), &empty, 101);
    assert_eq!(freed.world.sessions[0].state(), SessionState::Scheduled);
    assert_eq!(freed.world.sessions[0].held_on(NODE).len(), 12);
}
