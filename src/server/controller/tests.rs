//! Passes by hand: what a pass writes, what it never does, and what is sent after it.

mod containers;
mod preemption;
mod reservations;

use std::collections::BTreeMap;

use rules::calendar::GroupWindow;
use rules::folder::FolderMount;
use rules::incident::{EnforcementAction, MemoryIncident, StuckMount};
use rules::messages::{ContainerStatus, ExitRecord, ReportedState, RootFileSystem, Want};
use rules::names::{
    BootId, FolderId, ImageId, IncidentId, NodeId, ResourceGroupId, SessionId, SessionName,
    TenantName, UserId,
};
use rules::placement;
use rules::resource_group::ResourceGroup;
use rules::resources::{Capacity, Demand};
use rules::session::{
    DesiredState, Outcome, Session, SessionEnvironment, SessionKind, SessionSpec, SessionState,
};
use rules::start_up::StartUpChoice;
use rules::units::{Bytes, CpuShare};

use super::start_up::CarriedStartUps;
use super::*;
use crate::catalog::budgets::BeyondBudgets;
use crate::catalog::{Catalog, CatalogPlace, Lane};

const NODE: NodeId = NodeId(uuid::Uuid::from_u128(1));
const IMAGE: ImageId = ImageId(uuid::Uuid::from_u128(2));
const KIM: UserId = UserId(uuid::Uuid::from_u128(3));

fn at(second: i64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000 + second * 1000)
}

fn session(number: u128, environment: SessionEnvironment) -> Session {
    Session::launched(
        SessionId(uuid::Uuid::from_u128(100 + number)),
        SessionName::parse(&format!("s{number}")).unwrap(),
        KIM,
        SessionSpec {
            kind: SessionKind::Batch,
            environment,
            command: vec!["true".into()],
            env: BTreeMap::new(),
            demand: Demand::default(),
            timeout_seconds: None,
            max_runtime_seconds: None,
            start_at: None,
            depends_on: Vec::new(),
            containers: 1,
        },
        at(number as i64),
    )
}

/// A container of it runs since second 2.
fn run(session: &mut Session) {
    let room = rules::reason::Reason::from_parts("placement.room".into(), "Room.".into());
    session.place(NODE, Vec::new(), room, at(1));
    session.run_since(at(2));
}

fn image() -> SessionEnvironment {
    SessionEnvironment::Image {
        id: IMAGE,
        reference: "lab:1".into(),
    }
}

fn report(generation: u64, containers: Vec<ContainerStatus>) -> NodeReport {
    NodeReport {
        node: NODE,
        name: "box".into(),
        boot: BootId(uuid::Uuid::nil()),
        generation,
        state: None,
        at: at(0),
        capacity: Capacity {
            cpu: CpuShare(400),
            memory: Bytes::gib(8),
            devices: Vec::new(),
            others: Vec::new(),
        },
        host_environment: true,
        containers,
        problems: Vec::new(),
        device_uses: Vec::new(),
        partition_failures: Vec::new(),
        egress: Vec::new(),
        start_up_failures: Vec::new(),
        stuck_mounts: Vec::new(),
        incidents: Vec::new(),
    }
}

fn sight_of(
    sessions: impl Into<rules::world::SharedSessions>,
    digests: &[(ImageId, &str)],
) -> PassSnapshot {
    PassSnapshot {
        world: ClusterSnapshot {
            sessions: sessions.into(),
            ..ClusterSnapshot::default()
        },
        assigned: BTreeMap::new(),
        digests: digests
            .iter()
            .map(|(id, digest)| (*id, (*digest).to_owned()))
            .collect(),
        state: uuid::Uuid::from_u128(9),
        beyond_budgets: BeyondBudgets::default(),
        accepted: false,
        partition_specs: BTreeMap::new(),
        simulated_partitions: BTreeMap::new(),
    }
}

/// The sight that the next pass would have, were this one written.
fn written(pass: &ControllerPass, digests: &[(ImageId, &str)]) -> PassSnapshot {
    let mut sight = sight_of(pass.world.sessions.clone(), digests);
    sight.world.nodes.clone_from(&pass.world.nodes);
    sight.assigned.clone_from(&pass.assigned);
    sight
}

fn take(
    controller: &mut Controller,
    sight: PassSnapshot,
    reports: &[&NodeReport],
) -> ControllerPass {
    let steady = Duration::from_secs(10);
    controller.run_pass(sight, reports, at(10), steady, &placement::decide)
}

#[test]
fn a_pass_is_due_when_a_window_of_a_group_ends() {
    let name = TenantName::parse("default").unwrap();
    let mut founding = ResourceGroup::new(ResourceGroupId::DEFAULT, name);
    // Second 0 is 08:00 on 15 January 2027.
    let window = GroupWindow::parse("daily 07:00-08:01 kinds=none").unwrap();
    founding.calendar.windows = vec![window];
    let mut sight = sight_of(Vec::<Session>::new(), &[]);
    sight.world.groups.groups = vec![founding];
    let mut controller = Controller::default();
    let pass = take(&mut controller, sight, &[&report(0, Vec::new())]);
    assert_eq!(
        controller.until_due(&pass),
        Some(Duration::from_secs(50)),
        "a pass is at second 10"
    );
}

#[test]
fn one_owner_starts_a_few_sessions_at_a_time() {
    let of = |number, owner| {
        let mut session = session(number, SessionEnvironment::Host);
        session.owner = owner;
        session.spec.demand.cpu = CpuShare(10);
        session.spec.demand.memory = Bytes(64 << 20);
        session
    };
    let lee = UserId(uuid::Uuid::from_u128(4));
    let mut controller = Controller::default();
    // Four processors, and room for all of them.
    let mut waiting: Vec<Session> = (1..=20).map(|number| of(number, KIM)).collect();
    let scheduled = |pass: &ControllerPass| -> Vec<UserId> {
        let all = pass.world.sessions.iter();
        let placed = all.filter(|s| s.state() == SessionState::Scheduled);
        placed.map(|s| s.owner).collect()
    };
    let pass = take(
        &mut controller,
        sight_of(waiting.clone(), &[]),
        &[&report(0, Vec::new())],
    );
    assert_eq!(scheduled(&pass), [KIM; 2]);
    let due = controller.until_due(&pass).expect("the next place is due");
    assert!(due <= Duration::from_millis(500), "{due:?}");
    // Another owner finds room, though all twenty came first.
    let mut sight = written(&pass, &[]);
    sight.world.sessions.push(of(21, lee));
    let pass = take(&mut controller, sight, &[&report(0, Vec::new())]);
    assert_eq!(scheduled(&pass), [[KIM; 2].as_slice(), &[lee]].concat());
    // Starts that hang keep the others waiting for a moment only.
    waiting = pass.world.sessions.to_vec();
    for session in waiting
        .iter_mut()
        .filter(|s| s.state() == SessionState::Scheduled)
    {
        let again = rules::reason::Reason::from_parts("placement.room".into(), "Room.".into());
        session.place(NODE, Vec::new(), again, at(0));
    }
    let mut sight = written(&pass, &[]);
    sight.world.sessions = waiting.into();
    let pass = take(&mut controller, sight, &[&report(0, Vec::new())]);
    assert_eq!(scheduled(&pass).len(), 5);
}

#[test]
fn a_launch_is_placed_and_listed_in_one_turn() {
    let waiting = session(1, SessionEnvironment::Host);
    let mut controller = Controller::default();
    let pass = take(
        &mut controller,
        sight_of(vec![waiting.clone()], &[]),
        &[&report(0, Vec::new())],
    );
    let writes = pass.writes().unwrap();
    assert_eq!(writes.sessions[0].state(), SessionState::Scheduled);
    let [list] = &writes.assignments[..] else {
        panic!("one list, not {:?}", writes.assignments);
    };
    assert_eq!((list.node, list.generation), (NODE, 1));
    assert_eq!(list.containers[0].name, waiting.container());
    assert_eq!(
        controller.due_assignments(&pass, Duration::ZERO),
        writes.assignments
    );
}

#[test]
fn a_second_turn_over_the_same_rows_writes_nothing() {
    let mut controller = Controller::default();
    let heard = report(0, Vec::new());
    let sessions = vec![session(1, SessionEnvironment::Host)];
    let first = take(&mut controller, sight_of(sessions, &[]), &[&heard]);
    assert!(first.writes().is_some());
    let second = take(&mut controller, written(&first, &[]), &[]);
    assert!(second.writes().is_none(), "{:?}", second.writes());
}

#[test]
fn each_answer_of_the_watchdog_is_written_once_and_says_why_a_session_ended() {
    let mut running = session(1, SessionEnvironment::Host);
    run(&mut running);
    let name = running.container();
    let sight = |state| ContainerStatus {
        name,
        state,
        usage: None,
        devices: Vec::new(),
        ran: None,
    };
    let runs = |paused| ReportedState::Running {
        since: at(2),
        paused,
    };
    let incident = |number: u128, answer| MemoryIncident {
        id: IncidentId(uuid::Uuid::from_u128(number)),
        at: at(3),
        container: name,
        device: "GPU-1".into(),
        answer,
        held: Bytes::gib(2),
        limit: Bytes::gib(1),
    };
    let told = [
        incident(1, EnforcementAction::Warned),
        incident(2, EnforcementAction::Frozen),
        incident(3, EnforcementAction::Stopped),
    ];
    let codes = |pass: &ControllerPass| -> Vec<String> {
        let writes = pass.writes();
        writes
            .iter()
            .flat_map(|writes| writes.happened.iter().map(|each| each.code.clone()))
            .filter(|code| code != "session.preparing")
            .collect()
    };
    let mut controller = Controller::default();
    let mut warned = report(0, vec![sight(runs(false))]);
    warned.incidents = told[..1].to_vec();
    let first = take(
        &mut controller,
        sight_of(vec![running.clone()], &[]),
        &[&warned, &warned],
    );
    assert_eq!(codes(&first), ["session.gpu-warned"]);
    let reason = first.world.sessions[0].reason.clone().unwrap();
    assert_eq!(reason.code, "gpu.over-limit-warned");
    assert!(reason.text.contains("2 GiB") && reason.text.contains("1 GiB"));
    // Said again in every report: nothing new. Of another start of it: not about this one.
    let mut other = warned.clone();
    other.incidents[0].id = IncidentId(uuid::Uuid::from_u128(9));
    other.incidents[0].container.incarnation += 1;
    let second = take(&mut controller, written(&first, &[]), &[&warned, &other]);
    assert!(codes(&second).is_empty(), "{:?}", codes(&second));
    // Two at once, and its end in the same report.
    let mut ended = report(
        0,
        vec![sight(ReportedState::Ended(ExitRecord {
            exit_code: 137,
            started_at: Some(at(2)),
            ended_at: at(9),
            out_of_memory: false,
            peak_memory: None,
        }))],
    );
    ended.incidents = told.to_vec();
    let third = take(&mut controller, written(&second, &[]), &[&ended]);
    assert_eq!(
        codes(&third),
        ["session.gpu-frozen", "session.gpu-stopped", "session.ended"]
    );
    let writes = third.writes().unwrap();
    let row = &writes.sessions[0];
    assert_eq!(
        (row.outcome(), row.exit_code()),
        (Some(Outcome::Failed), Some(137))
    );
    assert_eq!(row.reason.as_ref().unwrap().code, "gpu.over-limit-stopped");
    assert_eq!(row.incidents.len(), 3);
}

/// That a folder stays though its owner took it out is told where its mounts stand, once, until it is out.
#[test]
fn a_folder_that_cannot_be_taken_out_is_told_until_it_is_gone() {
    let mut running = session(1, SessionEnvironment::Host);
    run(&mut running);
    let folder = FolderId(uuid::Uuid::from_u128(5));
    running.mounts = vec![FolderMount {
        detached: true,
        ..FolderMount::of_home(folder)
    }];
    let codes = |pass: &ControllerPass| -> Vec<String> {
        let writes = pass.writes();
        writes
            .iter()
            .flat_map(|writes| writes.happened.iter().map(|each| each.code.clone()))
            .filter(|code| code != "session.preparing")
            .collect()
    };
    let mut stuck = report(
        0,
        vec![ContainerStatus {
            name: running.container(),
            state: ReportedState::Running {
                since: at(2),
                paused: false,
            },
            usage: None,
            devices: Vec::new(),
            ran: None,
        }],
    );
    let gone = stuck.clone();
    let mut controller = Controller::default();
    let before = take(
        &mut controller,
        sight_of(vec![running.clone()], &[]),
        &[&gone],
    );
    assert!(codes(&before).is_empty(), "{:?}", codes(&before));
    stuck.stuck_mounts = vec![StuckMount {
        container: running.container(),
        folder,
    }];
    let kept = take(&mut controller, written(&before, &[]), &[&stuck, &stuck]);
    assert_eq!(codes(&kept), ["session.folder-stuck"]);
    let row = &kept.world.sessions[0];
    assert!(row.mounts[0].is_there());
    assert_eq!(row.reason.as_ref().unwrap().code, "session.folder-stuck");
    let again = take(&mut controller, written(&kept, &[]), &[&stuck]);
    assert!(codes(&again).is_empty(), "{:?}", codes(&again));
    let out = take(&mut controller, written(&again, &[]), &[&gone]);
    assert_eq!(codes(&out), ["session.folder-detached"]);
    let row = &out.world.sessions[0];
    assert!(!row.mounts[0].is_there());
    assert_eq!(row.reason, None);
}

#[test]
fn a_pause_for_the_disk_is_an_event_and_the_sessions_reason_until_it_goes_on() {
    let mut running = session(1, SessionEnvironment::Host);
    run(&mut running);
    let incident = |number: u128, device: &str, answer| MemoryIncident {
        id: IncidentId(uuid::Uuid::from_u128(number)),
        at: at(3),
        container: running.container(),
        device: device.into(),
        answer,
        held: Bytes::gib(2),
        limit: Bytes::mib(500),
    };
    let mut controller = Controller::default();
    let mut heard = report(
        0,
        vec![ContainerStatus {
            name: running.container(),
            state: ReportedState::Running {
                since: at(2),
                paused: true,
            },
            usage: None,
            devices: Vec::new(),
            ran: None,
        }],
    );
    let mut sight = sight_of(vec![running.clone()], &[]);
    let mut told = Vec::new();
    // More often than is remembered: each is news once, whatever else is said again.
    for number in 0..20 {
        for (step, device, answer, event, code) in [
            (
                0,
                "disk",
                EnforcementAction::Paused,
                "session.disk-paused",
                "disk.paused",
            ),
            (
                1,
                "disk",
                EnforcementAction::Resumed,
                "session.disk-resumed",
                "disk.resumed",
            ),
            (
                2,
                "files",
                EnforcementAction::Paused,
                "session.disk-paused",
                "disk.files-paused",
            ),
        ] {
            told.push(incident(10 + number * 3 + step, device, answer));
            let frozen = incident(1, "GPU-1", EnforcementAction::Warned);
            heard.incidents = told.iter().rev().take(8).rev().cloned().collect();
            heard.incidents.insert(0, frozen);
            let pass = take(&mut controller, sight, &[&heard, &heard]);
            let writes = pass.writes().unwrap();
            let codes: Vec<&str> = writes.happened.iter().map(|each| &*each.code).collect();
            let news = codes.iter().filter(|code| **code == event).count();
            assert_eq!(news, 1, "{codes:?}");
            let first = number == 0 && step == 0;
            assert_eq!(codes.contains(&"session.gpu-warned"), first, "{codes:?}");
            let session = &pass.world.sessions[0];
            let reason = session.reason.clone().unwrap();
            assert_eq!(reason.code, code);
            assert_eq!(
                reason.text.contains("500 MiB"),
                device == "disk",
                "{}",
                reason.text
            );
            assert!(session.incidents.len() <= 17);
            sight = written(&pass, &[]);
        }
    }
}

#[test]
fn what_a_session_starts_with_is_carried_until_its_node_has_it() {
    let mut waiting = session(1, SessionEnvironment::Host);
    waiting.start_up.choice = StartUpChoice::Files;
    let mut controller = Controller::default();
    let mut carried = CarriedStartUps::default();
    let mut counts = |carried: &mut CarriedStartUps, sight, report: &NodeReport| {
        let pass = take(&mut controller, sight, &[report]);
        let list = pass.assigned[&NODE].clone();
        (carried.starting(&pass, &list).len(), pass)
    };
    let sight = sight_of(vec![waiting], &[]);
    let (first, pass) = counts(&mut carried, sight, &report(0, Vec::new()));
    assert_eq!(first, 1);
    // The list may be lost, or another may overtake it.
    let (again, pass) = counts(&mut carried, written(&pass, &[]), &report(0, Vec::new()));
    assert_eq!(again, 1);
    // It has it, and is still being started.
    let name = pass.assigned[&NODE].containers[0].name;
    let status = |state| ContainerStatus {
        name,
        state,
        usage: None,
        devices: Vec::new(),
        ran: None,
    };
    let preparing = ReportedState::Preparing {
        step: "layers".into(),
        fetching: true,
    };
    let had = report(1, vec![status(preparing)]);
    let (had, pass) = counts(&mut carried, written(&pass, &[]), &had);
    assert_eq!(had, 0);
    // Another server does not know.
    let mut fresh = CarriedStartUps::default();
    assert_eq!(fresh.starting(&pass, &pass.assigned[&NODE]).len(), 1);
    let mut runs = written(&pass, &[]);
    let mut running = runs.world.sessions[0].clone();
    running.run_since(at(2));
    runs.world.sessions = vec![running].into();
    let there = ReportedState::Running {
        since: at(2),
        paused: false,
    };
    let there = report(1, vec![status(there)]);
    let (runs, pass) = counts(&mut fresh, runs, &there);
    assert_eq!(pass.assigned[&NODE].containers.len(), 1, "it is not lost");
    assert_eq!(runs, 0, "it runs");
}

#[test]
fn a_list_is_sent_again_until_the_node_has_it() {
    let mut controller = Controller::default();
    let pass = take(
        &mut controller,
        sight_of(Vec::new(), &[]),
        &[&report(0, Vec::new())],
    );
    let seconds = Duration::from_secs;
    assert_eq!(controller.due_assignments(&pass, seconds(1)).len(), 1);
    assert_eq!(controller.due_assignments(&pass, seconds(2)).len(), 0);
    assert_eq!(controller.due_assignments(&pass, seconds(7)).len(), 1);
    let taken = take(
        &mut controller,
        written(&pass, &[]),
        &[&report(1, Vec::new())],
    );
    assert_eq!(controller.due_assignments(&taken, seconds(60)), []);
    // A server that was just started says nothing to a node that has what it should.
    assert_eq!(
        Controller::default().due_assignments(&taken, seconds(0)),
        []
    );
}

fn told_list(generation: u64) -> Assignment {
    Assignment {
        node: NODE,
        generation,
        containers: Vec::new(),
        partitions: Vec::new(),
        state: None,
        accepted: false,
    }
}

#[test]
fn an_older_catalog_leads_nobody_until_root_accepts_it() {
    let mut ran = session(1, SessionEnvironment::Host);
    run(&mut ran);
    let waits = session(2, SessionEnvironment::Host);
    let old = |accepted| {
        let mut sight = sight_of(vec![ran.clone(), waits.clone()], &[]);
        sight.assigned.insert(NODE, told_list(5));
        sight.accepted = accepted;
        sight
    };
    let ahead = report(41, Vec::new());
    let mut controller = Controller::default();
    for reports in [&[&ahead][..], &[], &[&ahead]] {
        let pass = take(&mut controller, old(false), reports);
        assert!(pass.writes().is_none(), "{:?}", pass.writes());
        assert_eq!(controller.due_assignments(&pass, Duration::ZERO), []);
        assert_eq!(controller.quarantine().unwrap().code, "state.quarantined");
    }
    let pass = take(&mut controller, old(true), &[&ahead]);
    assert_eq!(controller.quarantine(), None);
    let writes = pass.writes().unwrap();
    let lost = writes.sessions.iter().find(|s| s.id == ran.id).unwrap();
    assert_eq!(lost.outcome(), Some(Outcome::Lost));
    assert_eq!(lost.reason.as_ref().unwrap().code, "session.elsewhere");
    let sent = controller.due_assignments(&pass, Duration::ZERO);
    assert_eq!((sent[0].generation, sent[0].accepted), (42, true));
    let names: Vec<_> = sent[0].containers.iter().map(|o| o.name).collect();
    assert_eq!(names, [waits.container()]);
}

#[test]
fn a_catalog_carried_to_another_machine_starts_nothing_there() {
    let mut controller = Controller::default();
    let sight = sight_of(vec![session(1, SessionEnvironment::Host)], &[]);
    let placed = take(&mut controller, sight, &[&report(0, Vec::new())]);
    let confirmed = take(
        &mut controller,
        written(&placed, &[]),
        &[&report(1, Vec::new())],
    );
    // The new machine has no record: it says nothing was ever told.
    let mut there = Controller::default();
    let pass = take(
        &mut there,
        written(&confirmed, &[]),
        &[&report(0, Vec::new())],
    );
    assert!(pass.writes().is_none(), "{:?}", pass.writes());
    assert_eq!(there.due_assignments(&pass, Duration::ZERO), []);
    assert_eq!(there.quarantine().unwrap().code, "state.quarantined");
}

#[test]
fn nothing_is_placed_before_the_machine_was_heard() {
    let mut controller = Controller::default();
    let first = take(
        &mut controller,
        sight_of(Vec::new(), &[]),
        &[&report(0, Vec::new())],
    );
    let mut later = written(&first, &[]);
    later.world.sessions = vec![session(1, SessionEnvironment::Host)].into();
    let pass = take(&mut Controller::default(), later, &[]);
    assert!(pass.writes().is_none(), "{:?}", pass.writes());
}

#[test]
fn an_image_that_is_gone_before_the_start_ends_the_session_with_a_reason() {
    let pass = take(
        &mut Controller::default(),
        sight_of(vec![session(1, image())], &[]),
        &[&report(0, Vec::new())],
    );
    let ended = &pass.writes().unwrap().sessions[0];
    assert_eq!(ended.outcome(), Some(Outcome::Refused));
    assert_eq!(ended.reason.as_ref().unwrap().code, "image.gone");
    assert!(pass.assigned[&NODE].containers.is_empty());
}

#[test]
fn a_container_stays_listed_though_its_image_row_is_gone() {
    let mut controller = Controller::default();
    let digest = [(IMAGE, "sha256:1")];
    let sight = sight_of(vec![session(1, image())], &digest);
    let placed = take(&mut controller, sight, &[&report(0, Vec::new())]);
    let name = placed.world.sessions[0].container();
    let running = report(
        1,
        vec![ContainerStatus {
            name,
            devices: Vec::new(),
            ran: None,
            state: ReportedState::Running {
                since: at(5),
                paused: false,
            },
            usage: None,
        }],
    );
    let pass = take(&mut controller, written(&placed, &[]), &[&running]);
    assert_eq!(pass.world.sessions[0].state(), SessionState::Running);
    let order = &pass.assigned[&NODE].containers[0];
    assert_eq!((order.name, order.want), (name, Want::Run));
    let root = RootFileSystem::Image {
        digest: "sha256:1".into(),
    };
    assert_eq!(order.root, root);
}

#[test]
fn a_place_that_ends_is_given_away_in_the_same_turn() {
    let mut controller = Controller::default();
    let mut large = session(1, SessionEnvironment::Host);
    large.spec.demand.cpu = CpuShare(400);
    let next = session(2, SessionEnvironment::Host);
    let sight = sight_of(vec![large, next], &[]);
    let placed = take(&mut controller, sight, &[&report(0, Vec::new())]);
    assert_eq!(placed.world.sessions[1].state(), SessionState::Pending);
    let lost = report(
        1,
        vec![ContainerStatus {
            name: placed.world.sessions[0].container(),
            devices: Vec::new(),
            ran: None,
            state: ReportedState::Lost {
                reason: rules::reason::Reason::from_parts("node.rebooted".into(), "Gone.".into()),
            },
            usage: None,
        }],
    );
    let pass = take(&mut controller, written(&placed, &[]), &[&lost]);
    assert_eq!(pass.world.sessions.len(), 1);
    assert_eq!(pass.world.sessions[0].state(), SessionState::Scheduled);
}

/// The first of two sessions for a whole node runs, the second one waits; the first is restarted, and ends.
fn restart_of_the_first(schedulable: bool) -> ControllerPass {
    let mut controller = Controller::default();
    let whole = |number| {
        let mut session = session(number, SessionEnvironment::Host);
        session.spec.demand.cpu = CpuShare(400);
        session
    };
    let sight = sight_of(vec![whole(1), whole(2)], &[]);
    let mut placed = take(&mut controller, sight, &[&report(0, Vec::new())]);
    assert_eq!(placed.world.sessions[1].state(), SessionState::Pending);
    placed.world.nodes[0].schedulable = schedulable;
    let first = &mut placed.world.sessions[0];
    let container = first.container();
    first.run_since(at(2));
    first.restart = true;
    let because = rules::reasons::session_restarted();
    assert!(first.stop(DesiredState::Stop, because, at(3)));
    let ended = report(
        1,
        vec![ContainerStatus {
            name: container,
            devices: Vec::new(),
            ran: None,
            state: ReportedState::Ended(ExitRecord {
                exit_code: 143,
                out_of_memory: false,
                started_at: Some(at(2)),
                ended_at: at(4),
                peak_memory: None,
            }),
            usage: None,
        }],
    );
    take(&mut controller, written(&placed, &[]), &[&ended])
}

#[test]
fn a_restart_keeps_its_place_though_another_session_waits_for_it() {
    let pass = restart_of_the_first(true);
    let [first, second] = &pass.world.sessions[..] else {
        panic!("both live");
    };
    assert_eq!(
        (first.state(), first.incarnation, first.node()),
        (SessionState::Scheduled, 2, Some(NODE))
    );
    assert_eq!(second.state(), SessionState::Pending);
    let told = pass.assigned[&NODE].containers.iter();
    let told: Vec<_> = told.map(|order| order.name).collect();
    assert_eq!(told, [first.container()], "the node hears of it at once");
    // The journal has each step, though they are one commit.
    let happened = pass.writes().unwrap().happened;
    let of_first = happened.iter().filter(|one| one.session == first.id);
    let steps: Vec<_> = of_first
        .map(|one| (one.code.as_str(), one.before.as_str()))
        .collect();
    assert_eq!(
        steps,
        [
            ("session.restarted", "stopping"),
            ("session.scheduled", "pending")
        ]
    );
}

#[test]
fn a_restart_on_a_node_in_maintenance_waits_in_the_queue() {
    let pass = restart_of_the_first(false);
    let states: Vec<_> = pass.world.sessions.iter().map(Session::state).collect();
    assert_eq!(states, [SessionState::Pending, SessionState::Pending]);
    assert_eq!(pass.world.sessions[0].incarnation, 2);
}

#[test]
fn a_clock_that_is_set_moves_no_limit_and_wakes_nobody_early() {
    let mut controller = Controller::default();
    let mut limited = session(1, SessionEnvironment::Host);
    limited.spec.timeout_seconds = Some(60);
    run(&mut limited);
    let sight = || {
        let mut sight = sight_of(vec![limited.clone()], &[]);
        sight.assigned.insert(NODE, told_list(1));
        sight
    };
    let told = |ran: Option<u64>| {
        let state = ReportedState::Running {
            since: at(2),
            paused: false,
        };
        let sight = ContainerStatus {
            name: limited.container(),
            state,
            usage: None,
            devices: Vec::new(),
            ran: ran.map(|seconds| seconds * 1000),
        };
        report(1, vec![sight])
    };
    let pass = |controller: &mut Controller, wall: i64, steady: u64, said: Option<NodeReport>| {
        let steady = Duration::from_secs(steady);
        let said: Vec<&NodeReport> = said.iter().collect();
        let pass = controller.run_pass(sight(), &said, at(wall), steady, &placement::decide);
        let phase = pass.world.sessions[0].state();
        (phase, controller.until_due(&pass).map(|due| due.as_secs()))
    };
    let running = |left| (SessionState::Running, Some(left));
    assert_eq!(
        pass(&mut controller, 12, 100, Some(told(Some(10)))),
        running(50)
    );
    // An hour forward, an hour back: ten seconds passed in truth, and then fifty.
    assert_eq!(pass(&mut controller, 3622, 110, None), running(40));
    assert_eq!(pass(&mut controller, -3500, 149, None), running(1));
    assert_eq!(
        pass(&mut controller, -3499, 150, None).0,
        SessionState::Stopping
    );
    // A server that is started anew an hour later by the wall waits for the machine's own word, and what
    // comes late makes nobody younger.
    let mut controller = Controller::default();
    assert_eq!(
        pass(&mut controller, 3632, 7, None),
        (SessionState::Running, None)
    );
    assert_eq!(
        pass(&mut controller, 3633, 8, Some(told(Some(31)))),
        running(29)
    );
    assert_eq!(
        pass(&mut controller, 3634, 9, Some(told(Some(20)))),
        running(28)
    );
    assert_eq!(
        pass(&mut controller, 3660, 37, None).0,
        SessionState::Stopping
    );
    // A machine of an older version says nothing of it: then there is only the row.
    let mut controller = Controller::default();
    assert_eq!(pass(&mut controller, 32, 1, Some(told(None))), running(30));
}

fn catalog() -> Catalog {
    let clock = base::observe::Clock::set_by_hand(at(0));
    let catalog = Catalog::open(&CatalogPlace::Memory, clock).unwrap();
    catalog
        .write_now(Lane::Requests, "kim", |rows| {
            rows.stand_in_user(KIM, "kim", at(0))
        })
        .unwrap();
    catalog
}

#[test]
fn what_a_budget_has_no_room_for_is_held_before_it_starts() {
    let mut waiting = session(1, SessionEnvironment::Host);
    waiting.queued_at = at(1);
    let id = waiting.id;
    let mut sight = sight_of(vec![waiting], &[]);
    sight.beyond_budgets.waiting = vec![id];
    let pass = take(&mut Controller::default(), sight, &[]);
    let held = &pass.world.sessions[0];
    let by = held.held_by.as_ref().map(ToString::to_string);
    assert_eq!(by.as_deref(), Some("budgets"));
    let writes = pass.writes().expect("it is written");
    assert_eq!(writes.happened[0].code, rules::codes::SESSION_HELD);
}

fn insert(catalog: &Catalog, session: Session) {
    catalog
        .write_now(Lane::Requests, "launch", move |rows| {
            rows.insert_session(&session, "kim")
        })
        .unwrap();
}

fn look(catalog: &Catalog) -> PassSnapshot {
    let (now, uptime) = (catalog.clock().now(), catalog.clock().uptime());
    catalog
        .read_now("look", |view| view.sight(now, uptime))
        .unwrap()
}

#[test]
fn a_turn_whose_row_was_written_meanwhile_writes_nothing_at_all() {
    let catalog = catalog();
    insert(&catalog, session(1, SessionEnvironment::Host));
    insert(&catalog, session(2, SessionEnvironment::Host));
    let heard = report(0, Vec::new());
    let pass = take(&mut Controller::default(), look(&catalog), &[&heard]);
    catalog
        .write_now(Lane::Requests, "stop", |rows| {
            rows.change_session(
                session(2, SessionEnvironment::Host).id,
                None,
                "kim",
                None,
                |s| {
                    let because = rules::reason::Reason::from_parts(
                        "session.stopped".into(),
                        "Kim stopped it.".into(),
                    );
                    s.stop(rules::session::DesiredState::Stop, because, at(9))
                },
            )
        })
        .unwrap();
    assert!(!catalog.record_turn_now(pass.writes().unwrap()).unwrap());
    let sight = look(&catalog);
    assert_eq!(sight.world.sessions[0].state(), SessionState::Pending);
    assert!(sight.world.nodes.is_empty() && sight.assigned.is_empty());
    // From the rows as they are, the pass goes through.
    let pass = take(&mut Controller::default(), sight, &[&heard]);
    assert!(catalog.record_turn_now(pass.writes().unwrap()).unwrap());
    assert_eq!(
        look(&catalog).world.sessions[0].state(),
        SessionState::Scheduled
    );
}

#[tokio::test]
async fn old_rows_go_but_for_what_a_live_session_waits_for() {
    let catalog = catalog();
    let mut ended = Vec::new();
    for number in [1, 2] {
        let mut old = session(number, SessionEnvironment::Host);
        old.end(Outcome::Succeeded, Some(0), at(0));
        ended.push(old.id);
        insert(&catalog, old);
    }
    let mut waiting = session(3, SessionEnvironment::Host);
    waiting.spec.depends_on = vec![ended[1]];
    insert(&catalog, waiting);
    retention::retention(&catalog, at(30 * 86_400), 31)
        .await
        .unwrap();
    let row = |id| catalog.read_now("look", |view| view.session(id)).unwrap();
    assert!(row(ended[0]).is_some(), "younger than it is kept");
    retention::retention(&catalog, at(32 * 86_400), 31)
        .await
        .unwrap();
    assert!(row(ended[0]).is_none());
    assert!(row(ended[1]).is_some(), "a live session waits for it");
}

#[tokio::test]
async fn old_rows_go_two_hundred_a_commit_until_none_is_left() {
    let catalog = catalog();
    let mut ended = Vec::new();
    for number in 1..=401 {
        let mut old = session(number, SessionEnvironment::Host);
        old.end(Outcome::Succeeded, Some(0), at(0));
        ended.push(old.id);
        insert(&catalog, old);
    }
    let before = *catalog.revision().borrow();
    retention::retention(&catalog, at(32 * 86_400), 31)
        .await
        .unwrap();
    let row = |id: &SessionId| catalog.read_now("look", |view| view.session(*id)).unwrap();
    assert!(ended.iter().all(|id| row(id).is_none()));
    assert_eq!(*catalog.revision().borrow() - before, 3);
}
