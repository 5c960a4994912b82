//! Sessions of several containers on several nodes: what each node is told, what is held, and what the end of
//! one container means for its session.

use std::collections::BTreeMap;

use super::container::{ContainerProgress, MAIN, SessionContainer};
use super::mount::{FolderMount, FolderName, RequestedMount};
use super::outcome::Outcome;
use super::session::{Session, SessionChange, Transition};
use super::spec::{SessionEnvironment, SessionKind, SessionSpec};
use super::state::{DesiredState, Lifecycle, PlacedSession, SessionState};
use crate::assignment;
use crate::incident::{EnforcementAction, MemoryIncident, StuckMount};
use crate::messages::{Assignment, ContainerStatus, ExitRecord, NodeReport, ReportedState, Want};
use crate::names::{
    BootId, FolderId, IncidentId, NodeId, SessionId, SessionName, UserId, UserName,
};
use crate::placement;
use crate::progress;
use crate::reason::Reason;
use crate::reasons;
use crate::resources::{Capacity, Demand, DeviceShare};
use crate::start_up::StartUpFailure;
use crate::units::{Bytes, CpuShare, GpuShare, Timestamp};
use crate::world::{ClusterSnapshot, NodeRecord};

const ONE: NodeId = NodeId(uuid::Uuid::from_u128(1));
const TWO: NodeId = NodeId(uuid::Uuid::from_u128(2));

fn at(second: i64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000 + second * 1000)
}

fn share(hundredths: u32) -> DeviceShare {
    DeviceShare {
        index: 0,
        share: GpuShare(hundredths),
        memory: Bytes::gib(1),
        part: None,
        simulated: false,
    }
}

/// A session of a core and a quarter of a device for each of its containers: the main one and the first sub on
/// one node, the second sub on another. All run since second 2.
fn session() -> Session {
    let mut session = Session::launched(
        SessionId(uuid::Uuid::from_u128(7)),
        SessionName::parse("three").expect("a name"),
        UserId(uuid::Uuid::from_u128(3)),
        SessionSpec {
            kind: SessionKind::Batch,
            environment: SessionEnvironment::Host,
            command: vec!["train".into()],
            env: BTreeMap::new(),
            demand: Demand {
                cpu: CpuShare(100),
                ..Demand::default()
            },
            timeout_seconds: None,
            max_runtime_seconds: None,
            start_at: None,
            depends_on: Vec::new(),
            containers: 1,
        },
        at(0),
    );
    let places = [(0, ONE), (1, ONE), (2, TWO)];
    session.lifecycle = Lifecycle::Placed(PlacedSession {
        scheduled_at: at(1),
        stopping_at: None,
        containers: places
            .map(|(index, node)| SessionContainer::scheduled(index, node, vec![share(25)]))
            .to_vec(),
    });
    session.run_since(at(2));
    session.reason = Some(started());
    session
}

#[test]
fn the_time_in_the_queue_is_counted_from_the_launch_and_without_the_time_on_hold() {
    let kim = UserName::parse("kim").expect("a name");
    let mut session = session();
    let placed = session.lifecycle.clone();
    assert_eq!(session.waited_millis(), Some(1_000));
    session.lifecycle = Lifecycle::Pending;
    let place = |session: &mut Session, second| {
        session.lifecycle = placed.clone();
        if let Lifecycle::Placed(placed) = &mut session.lifecycle {
            placed.scheduled_at = at(second);
        }
    };
    assert!(session.hold(kim.clone(), at(10)) && session.release(at(85)));
    assert!(session.hold(kim, at(90)) && session.release(at(190)));
    assert_eq!(session.waited_millis(), None, "it has no place yet");
    place(&mut session, 195);
    assert_eq!(session.waited_millis(), Some(20_000));
    session.begin_again(at(300));
    place(&mut session, 302);
    assert_eq!(session.waited_millis(), Some(2_000), "of its latest start");
}

#[test]
fn who_makes_way_for_a_reservation_keeps_the_time_that_it_waited() {
    let mut session = session();
    session.queued_at = at(-100);
    let mut other = session.clone();
    for (session, because) in [
        (&mut session, reasons::session_reserved()),
        (&mut other, reasons::session_max_runtime()),
    ] {
        session.restart = true;
        assert!(session.stop(DesiredState::Stop, because, at(50)));
        session.end(Outcome::Stopped, None, at(60));
    }
    assert_eq!(session.queued_at, at(60 - 101));
    assert_eq!(other.queued_at, at(60));
}

#[test]
fn who_was_idle_waits_again_behind_all_others_and_gives_its_place_up() {
    let by = UserName::parse("kim").expect("a name");
    let mut session = session();
    session.queued_at = at(-100);
    assert!(session.requeue_idle(reasons::session_idle("gpus"), at(50)));
    assert!(session.is_idle_requeued() && session.gives_up_place());
    let mut ends = session.clone();
    assert!(!session.requeue_idle(reasons::session_idle("gpus"), at(51)));
    session.end(Outcome::Stopped, None, at(60));
    assert!(session.is_pending() && session.reason.is_none());
    assert_eq!((session.queued_at, session.incarnation), (at(60), 2));
    // Stopped meanwhile, it ends for good.
    ends.restart = false;
    assert!(!ends.stop(DesiredState::Stop, reasons::session_stopped_by(&by), at(52)));
    assert!(!ends.is_idle_requeued());
    ends.end(Outcome::Stopped, None, at(60));
    assert!(!ends.requeue_idle(reasons::session_idle("gpus"), at(61)));
    assert_eq!(ends.state(), SessionState::Ended);
}

#[test]
fn who_is_stopped_while_it_makes_way_ends_for_good_and_says_why() {
    let by = UserName::parse("kim").expect("a name");
    let mut session = session();
    assert!(session.preempt(at(50)));
    let again = session.clone();
    let mut twice = again.clone();
    assert!(!twice.stop(DesiredState::Stop, reasons::session_reserved(), at(51)));
    assert_eq!(twice, again, "it is queued again");
    session.restart = false;
    assert!(session.stop(DesiredState::Stop, reasons::session_stopped_by(&by), at(52)));
    assert_eq!(session.reason, Some(reasons::session_stopped_by(&by)));
    assert!(!session.is_preempted() && session.gives_up_place());
    session.end(Outcome::Stopped, None, at(60));
    assert_eq!(session.state(), SessionState::Ended);
}

fn started() -> Reason {
    Reason::from_parts("placement.room".into(), "Room.".into())
}

fn node(id: NodeId) -> NodeRecord {
    NodeRecord {
        id,
        name: format!("node-{}", id.0.as_u128()),
        boot: BootId(uuid::Uuid::nil()),
        capacity: Capacity {
            cpu: CpuShare(400),
            memory: Bytes::gib(8),
            devices: Vec::new(),
            others: Vec::new(),
        },
        host_environment: true,
        seen_at: at(0),
        generation: 0,
        schedulable: true,
        note: String::new(),
        cordoned: Default::default(),
        problems: Vec::new(),
    }
}

fn world(session: Session) -> ClusterSnapshot {
    ClusterSnapshot {
        sessions: vec![session].into(),
        nodes: vec![node(ONE), node(TWO)],
        ..ClusterSnapshot::default()
    }
}

/// What a node is told: each container by its index, and what it should be doing.
fn orders_of(session: &Session) -> [Vec<(u32, Want)>; 2] {
    let lists = assignment::for_nodes(&world(session.clone()), |_| None);
    [ONE, TWO].map(|node| {
        let orders = lists[&node].iter();
        orders.map(|order| (order.name.index, order.want)).collect()
    })
}

/// What is held on each node: hundredths of processors and of the device.
fn used(session: &Session) -> [(u32, u32); 2] {
    let used = world(session.clone()).used();
    [ONE, TWO].map(|node| {
        let here = &used[&node];
        let device = here.devices.get(&0).map_or(0, |device| device.share.0);
        (here.cpu.0, device)
    })
}

fn report(node: NodeId, generation: u64, containers: Vec<ContainerStatus>) -> NodeReport {
    NodeReport {
        node,
        name: "n".into(),
        boot: BootId(uuid::Uuid::nil()),
        generation,
        state: None,
        at: at(9),
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
        incidents: Vec::new(),
        partition_failures: Vec::new(),
        egress: Vec::new(),
        start_up_failures: Vec::new(),
        stuck_mounts: Vec::new(),
    }
}

fn status(session: &Session, index: u32, state: ReportedState) -> ContainerStatus {
    let container = session.containers().iter().find(|c| c.index == index);
    ContainerStatus {
        name: session.container_name(index),
        state,
        usage: None,
        devices: container.expect("it is there").devices.clone(),
        ran: None,
    }
}

fn exit(code: i32, second: i64) -> ReportedState {
    ReportedState::Ended(ExitRecord {
        exit_code: code,
        started_at: Some(at(2)),
        ended_at: at(second),
        out_of_memory: false,
        peak_memory: None,
    })
}

/// Applies what a node reports; the row is written as often.
fn apply_report(session: &mut Session, node: NodeId, states: Vec<(u32, ReportedState)>) -> usize {
    let containers = states
        .into_iter()
        .map(|(index, state)| status(session, index, state))
        .collect();
    let changes = progress::advance(session, &report(node, 1, containers), None, at(9));
    let taken = changes
        .iter()
        .filter(|change| session.apply(change))
        .count();
    session.generation += 1;
    taken
}

fn code(session: &Session) -> &str {
    session.reason.as_ref().map_or("", |reason| &reason.code)
}

#[test]
fn each_node_has_its_own_containers_and_what_they_hold() {
    let session = session();
    assert_eq!(session.state(), SessionState::Running);
    assert_eq!(
        orders_of(&session),
        [vec![(0, Want::Run), (1, Want::Run)], vec![(2, Want::Run)]]
    );
    assert_eq!(used(&session), [(200, 50), (100, 25)]);
    assert_eq!(session.held_on(ONE).len(), 2);
    assert_eq!(session.held_on(TWO), [share(25)]);
}

#[test]
fn a_sub_container_that_ends_well_leaves_its_session_and_its_node() {
    let mut session = session();
    assert_eq!(apply_report(&mut session, TWO, vec![(2, exit(0, 5))]), 1);
    assert_eq!(session.state(), SessionState::Running);
    assert_eq!(
        code(&session),
        "placement.room",
        "it says nothing of the session"
    );
    assert_eq!(
        orders_of(&session),
        [vec![(0, Want::Run), (1, Want::Run)], vec![]]
    );
    assert_eq!(used(&session), [(200, 50), (0, 0)]);
    // It is said again until the node forgot it, and changes nothing.
    assert_eq!(apply_report(&mut session, TWO, vec![(2, exit(0, 5))]), 0);
    let both = vec![(0, exit(3, 8)), (1, exit(0, 7))];
    assert_eq!(apply_report(&mut session, ONE, both), 2);
    assert_eq!(session.outcome(), Some(Outcome::Failed));
    assert_eq!(
        (session.exit_code(), code(&session)),
        (Some(3), "session.exit-code")
    );
}

#[test]
fn a_start_up_script_that_fails_is_noted_once_a_start_and_explains_the_end_that_it_makes() {
    for (ends_session, noted, ended) in [
        (false, "session.start-up-failed", "session.exit-code"),
        (true, "session.start-up-ended", "session.start-up-ended"),
    ] {
        let mut session = session();
        let failure = StartUpFailure {
            container: session.container(),
            exit_code: Some(3),
            ends_session,
        };
        assert!(session.note_start_up(&failure));
        assert!(!session.note_start_up(&failure), "it is said again");
        assert_eq!(code(&session), noted);
        apply_report(&mut session, ONE, vec![(0, exit(3, 5))]);
        assert_eq!(code(&session), ended);
        session.incarnation += 1;
        assert!(!session.note_start_up(&failure), "of an earlier start");
    }
}

#[test]
fn each_machine_says_of_its_own_containers_which_folders_they_still_have() {
    let mut session = session();
    let folder = FolderId(uuid::Uuid::from_u128(9));
    session.mounts = vec![FolderMount {
        detached: true,
        ..FolderMount::of_home(folder)
    }];
    let [first, third] = [0, 2].map(|index| StuckMount {
        container: session.container_name(index),
        folder,
    });
    assert!(session.note_stuck_mounts(ONE, &[first]));
    assert!(
        !session.note_stuck_mounts(ONE, &[first]),
        "it is said again"
    );
    assert!(session.note_stuck_mounts(TWO, &[third]));
    assert_eq!(session.mounts[0].stuck, [0, 2]);
    assert_eq!(code(&session), "session.folder-stuck");
    assert!(session.note_stuck_mounts(ONE, &[]));
    assert_eq!(session.mounts[0].stuck, [2]);
    assert!(session.mounts[0].is_there());
    session.end(Outcome::Lost, None, at(9));
    assert!(!session.mounts[0].is_there(), "it is gone with its end");
}

#[test]
fn the_end_of_the_main_container_stops_the_others_and_is_the_sessions() {
    for (main, outcome, reason) in [
        (0, Outcome::Succeeded, "session.succeeded"),
        (3, Outcome::Failed, "session.exit-code"),
    ] {
        let mut session = session();
        apply_report(&mut session, ONE, vec![(0, exit(main, 5))]);
        assert_eq!(session.state(), SessionState::Stopping);
        assert_eq!(code(&session), reason);
        assert_eq!(
            orders_of(&session),
            [vec![(1, Want::Stop)], vec![(2, Want::Stop)]]
        );
        // What still lives holds what it has.
        assert_eq!(used(&session), [(100, 25), (100, 25)]);
        apply_report(&mut session, TWO, vec![(2, exit(143, 6))]);
        assert_eq!(used(&session), [(100, 25), (0, 0)]);
        assert!(session.stop(DesiredState::Kill, reasons::session_stopped(), at(7)));
        assert_eq!(orders_of(&session)[0], [(1, Want::Kill)]);
        apply_report(
            &mut session,
            ONE,
            vec![(0, exit(main, 5)), (1, exit(137, 8))],
        );
        assert_eq!(session.state(), SessionState::Ended);
        assert_eq!(
            (session.outcome(), session.exit_code(), session.ended_at()),
            (Some(outcome), Some(main), Some(at(8)))
        );
        assert_eq!(
            code(&session),
            reason,
            "the others were stopped because of it"
        );
        assert_eq!(used(&session), [(0, 0), (0, 0)]);
    }
}

#[test]
fn all_containers_of_a_session_get_their_places_together_on_one_node() {
    let mut session = session();
    session.lifecycle = Lifecycle::Pending;
    session.spec.containers = 3;
    session.spec.demand = session.spec.demand.times(3);
    session.place(ONE, vec![share(75)], started(), at(3));
    let roles: Vec<String> = session
        .containers()
        .iter()
        .map(SessionContainer::role)
        .collect();
    assert_eq!(roles, ["main1", "sub1", "sub2"]);
    for container in session.containers() {
        let shares: Vec<u32> = container.devices.iter().map(|one| one.share.0).collect();
        assert_eq!((container.node, shares), (ONE, vec![25]));
    }
    // Together they hold what was asked, not three times that.
    let held = crate::metering::Allocated::of(&session).expect("it has a place");
    assert_eq!((held.cpu, held.gpu), (300, 75));
    assert_eq!(session.spec.of_each().cpu, CpuShare(100));
}

#[test]
fn a_sub_container_that_fails_fails_its_session() {
    let lost = || ReportedState::Lost {
        reason: reasons::session_container_gone(),
    };
    let refused = || ReportedState::Refused {
        reason: Reason::from_parts("image.unreadable".into(), "Broken.".into()),
    };
    for (state, outcome, reason, exit_code) in [
        (
            exit(1, 5),
            Outcome::Failed,
            "session.container-ended",
            Some(1),
        ),
        (lost(), Outcome::Lost, "session.container-gone", None),
        (refused(), Outcome::Refused, "image.unreadable", None),
    ] {
        let mut session = session();
        apply_report(&mut session, TWO, vec![(2, state)]);
        assert_eq!(session.state(), SessionState::Stopping);
        assert_eq!(code(&session), reason);
        assert_eq!(
            orders_of(&session),
            [vec![(0, Want::Stop), (1, Want::Stop)], vec![]]
        );
        // The main one may end well when it is told to stop: it did not do its work.
        apply_report(&mut session, ONE, vec![(0, exit(0, 6)), (1, lost())]);
        assert_eq!(session.state(), SessionState::Ended);
        assert_eq!(
            (session.outcome(), session.exit_code()),
            (Some(outcome), exit_code)
        );
        assert_eq!(code(&session), reason);
    }
}

#[test]
fn a_session_that_is_stopped_ends_with_its_last_container_and_keeps_its_reason() {
    let mut session = session();
    let by = reasons::session_stopped_by("mina");
    assert!(session.stop(DesiredState::Stop, by.clone(), at(4)));
    apply_report(&mut session, TWO, vec![(2, exit(0, 5))]);
    apply_report(&mut session, ONE, vec![(0, exit(143, 5))]);
    assert_eq!(session.state(), SessionState::Stopping);
    apply_report(&mut session, ONE, vec![(1, exit(143, 6))]);
    assert_eq!(session.outcome(), Some(Outcome::Stopped));
    assert_eq!((session.exit_code(), session.reason), (Some(143), Some(by)));
}

#[test]
fn a_watchdog_ends_one_container_and_the_others_are_not_blamed() {
    let mut session = session();
    let incident = MemoryIncident {
        id: IncidentId(uuid::Uuid::from_u128(50)),
        at: at(4),
        container: session.container_name(1),
        device: "GPU-1".into(),
        answer: EnforcementAction::Stopped,
        held: Bytes::gib(2),
        limit: Bytes::gib(1),
    };
    assert!(session.note(&incident));
    let reason = code(&session).to_owned();
    apply_report(&mut session, TWO, vec![(2, exit(0, 5))]);
    assert_eq!(
        session.state(),
        SessionState::Running,
        "it ended well, and another was stopped"
    );
    apply_report(&mut session, ONE, vec![(1, exit(137, 6))]);
    assert_eq!(session.state(), SessionState::Stopping);
    assert_eq!(code(&session), reason);
}

#[test]
fn a_session_runs_once_all_its_containers_have_started_wherever_they_are() {
    let mut session = session();
    let Lifecycle::Placed(placed) = &mut session.lifecycle else {
        panic!("it has a place");
    };
    for container in &mut placed.containers {
        container.state = ContainerProgress::Scheduled;
    }
    let preparing = || ReportedState::Preparing {
        step: "a".into(),
        fetching: false,
    };
    let running = || ReportedState::Running {
        since: at(3),
        paused: false,
    };
    assert_eq!(session.state(), SessionState::Scheduled);
    assert_eq!(apply_report(&mut session, TWO, vec![(2, preparing())]), 1);
    assert_eq!(
        apply_report(&mut session, ONE, vec![(0, preparing()), (1, running())]),
        2
    );
    assert_eq!(session.state(), SessionState::Preparing);
    assert_eq!(apply_report(&mut session, TWO, vec![(2, running())]), 1);
    assert_eq!(session.state(), SessionState::Preparing);
    assert_eq!(
        apply_report(&mut session, ONE, vec![(0, running()), (1, running())]),
        1
    );
    assert_eq!(session.state(), SessionState::Running);
    // What was decided from an older row is not taken.
    let change = SessionChange {
        session: session.id,
        container: MAIN,
        seen: session.generation - 1,
        to: Transition::Ended {
            outcome: Outcome::Lost,
            exit_code: None,
            started_at: None,
            ended_at: at(5),
        },
        reason: None,
    };
    assert!(!session.apply(&change));
}

#[test]
fn nodes_confirm_the_grants_of_their_own_containers_at_their_own_time() {
    let mut session = session();
    let Lifecycle::Placed(placed) = &mut session.lifecycle else {
        panic!("it has a place");
    };
    for container in &mut placed.containers {
        container.regrant(vec![share(50)]);
    }
    let orders = assignment::for_nodes(&world(session.clone()), |_| None);
    let running = || ReportedState::Running {
        since: at(2),
        paused: false,
    };
    for (node, indexes, all) in [(TWO, &[2][..], false), (ONE, &[0, 1], true)] {
        let assignment = Assignment {
            node,
            generation: 4,
            containers: orders[&node].clone(),
            partitions: Vec::new(),
            state: None,
            accepted: false,
        };
        let statuses = indexes
            .iter()
            .map(|index| status(&session, *index, running()));
        let report = report(node, 4, statuses.collect());
        let confirmed = progress::confirmed(&session, &report, Some(&assignment));
        assert_eq!(confirmed, indexes);
        for index in confirmed {
            session.confirm_container(index);
        }
        assert_eq!(session.is_confirmed(), all);
    }
}

#[test]
fn what_an_ended_container_held_is_given_away() {
    let mut first = session();
    first.spec.demand.cpu = CpuShare(200);
    let mut waits = session();
    waits.id = SessionId(uuid::Uuid::from_u128(8));
    waits.name = SessionName::parse("waits").expect("a name");
    waits.lifecycle = Lifecycle::Pending;
    waits.spec.demand.cpu = CpuShare(300);
    let decide = |first: &Session| {
        let mut world = world(first.clone());
        world.sessions.push(waits.clone());
        placement::decide(&world, at(0))
    };
    assert_eq!(decide(&first), []);
    apply_report(&mut first, TWO, vec![(2, exit(0, 5))]);
    let placed = decide(&first);
    let on_two = |decision: &placement::Decision| matches!(decision, placement::Decision::Place { node, .. } if *node == TWO);
    assert!(matches!(&placed[..], [one] if on_two(one)), "{placed:?}");
}

#[test]
fn each_container_of_a_session_mounts_its_folders() {
    let mut session = session();
    let asked = RequestedMount::parse("data:/train:/data:ro").expect("a mount");
    let name = FolderName::parse("data").expect("a name");
    let id = FolderId(uuid::Uuid::from_u128(9));
    session.mounts = vec![asked.of(id, &name).expect("a place")];
    let lists = assignment::for_nodes(&world(session), |_| None);
    let mut orders = lists.values().flatten().peekable();
    assert!(orders.peek().is_some());
    for order in orders {
        let told: Vec<_> = order
            .mounts
            .iter()
            .map(|mount| {
                let paths = (mount.subpath.as_str(), mount.at.as_str());
                (mount.folder, paths, mount.read_only)
            })
            .collect();
        assert_eq!(told, [(id, ("train", "/data"), true)]);
    }
}

#[test]
fn containers_of_a_session_are_told_who_they_are_and_one_alone_is_told_nothing() {
    let told = |containers: u32| {
        let mut session = session();
        session.spec.containers = containers;
        session.spec.demand = session.spec.demand.times(containers);
        session.spec.env = [("BACKENDAI_CLUSTER_ROLE".to_owned(), "mine".to_owned())].into();
        session.place(ONE, Vec::new(), started(), at(3));
        let mut lists = assignment::for_nodes(&world(session), |_| None);
        lists.remove(&ONE).expect("its node has a list")
    };
    let alone = &told(1)[0];
    assert_eq!((alone.hostname.as_str(), alone.env.len()), ("three", 1));
    assert!(alone.networks.is_empty());
    let pair = told(2);
    let names: Vec<&str> = pair.iter().map(|order| order.hostname.as_str()).collect();
    assert_eq!(names, ["main1", "sub1"]);
    for (rank, order) in pair.iter().enumerate() {
        assert_eq!(order.demand.cpu, CpuShare(100));
        assert_eq!(order.networks.len(), 1);
        assert_eq!(order.networks, pair[0].networks);
        let value = |name: &str| order.env.get(name).map(String::as_str);
        let own = (order.hostname.as_str(), rank.to_string());
        assert_eq!(value("FARDEL_CLUSTER_RANK"), Some(own.1.as_str()));
        assert_eq!(value("BACKENDAI_CLUSTER_LOCAL_RANK"), Some(own.1.as_str()));
        assert_eq!(value("BACKENDAI_CLUSTER_HOST"), Some(own.0));
        assert_eq!(value("BACKENDAI_CLUSTER_HOSTS"), Some("main1,sub1"));
        assert_eq!(value("BACKENDAI_CLUSTER_SIZE"), Some("2"));
        assert_eq!(value("BACKENDAI_CLUSTER_IDX"), Some("1"));
        assert_eq!(value("BACKENDAI_CLUSTER_REPLICAS"), Some("main:1,sub:1"));
        // What its launch says stands above.
        assert_eq!(value("BACKENDAI_CLUSTER_ROLE"), Some("mine"));
        assert!(value("FARDEL_CLUSTER_ROLE").is_some());
    }
}
