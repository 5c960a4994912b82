//! Sessions of several containers through the whole loop: rows, passes, links to two nodes, and back.

use base::link;
use rules::resources::DeviceShare;
use rules::units::GpuShare;
use rules::workload::container::SessionContainer;
use rules::workload::state::{Lifecycle, PlacedSession};

use super::*;
use crate::links::Links;

const OTHER: NodeId = NodeId(uuid::Uuid::from_u128(11));

/// A session with that many containers, on both nodes by turns.
fn spread(number: u128, environment: SessionEnvironment, count: u32) -> Session {
    let mut session = session(number, environment);
    let share = |index| DeviceShare {
        index,
        share: GpuShare(25),
        memory: Bytes::gib(1),
        part: None,
        simulated: false,
    };
    let containers = (0..count).map(|index| {
        let node = if index % 2 == 0 { NODE } else { OTHER };
        SessionContainer::scheduled(index, node, vec![share(index)])
    });
    session.lifecycle = Lifecycle::Placed(PlacedSession {
        scheduled_at: at(1),
        stopping_at: None,
        containers: containers.collect(),
    });
    session
}

fn report_of(node: NodeId, generation: u64, containers: Vec<ContainerStatus>) -> NodeReport {
    NodeReport {
        node,
        ..report(generation, containers)
    }
}

fn exit(code: i32) -> ReportedState {
    ReportedState::Ended(ExitRecord {
        exit_code: code,
        started_at: Some(at(2)),
        ended_at: at(8),
        out_of_memory: false,
        peak_memory: None,
    })
}

fn runs() -> ReportedState {
    ReportedState::Running {
        since: at(2),
        paused: false,
    }
}

/// The report of a node that did all of its assignment.
fn answer(assignment: &Assignment, state: impl Fn(u32) -> ReportedState) -> NodeReport {
    let statuses = assignment.containers.iter().map(|order| ContainerStatus {
        name: order.name,
        state: state(order.name.index),
        usage: None,
        devices: order.devices.clone(),
        ran: None,
    });
    report_of(assignment.node, assignment.generation, statuses.collect())
}

/// The same, written and read as it is between two machines.
fn across<T: serde::Serialize + serde::de::DeserializeOwned>(value: &T) -> T {
    let bytes = serde_json::to_vec(value).expect("it can be written");
    serde_json::from_slice(&bytes).expect("it is read")
}

#[tokio::test]
async fn twenty_containers_on_two_nodes_cross_the_links_and_come_back() {
    let catalog = catalog();
    let id = spread(1, SessionEnvironment::Host, 20).id;
    insert(&catalog, spread(1, SessionEnvironment::Host, 20));
    let ((one, one_node), (two, two_node)) = (link::local(), link::local());
    let mut links = Links::to(NODE, one);
    links.add(OTHER, two);
    let mut assigned = [one_node.assigned(), two_node.assigned()];
    let mut controller = Controller::default();
    let mut turn = |reports: &[NodeReport], links: &Links| {
        let reports: Vec<&NodeReport> = reports.iter().collect();
        let pass = take(&mut controller, look(&catalog), &reports);
        if let Some(writes) = pass.writes() {
            assert!(catalog.record_turn_now(writes).unwrap());
        }
        for assignment in controller.due_assignments(&pass, Duration::from_secs(10)) {
            links.send(assignment);
        }
        let found = catalog.read_now("look", |view| view.session(id));
        found.unwrap().expect("the session")
    };

    let both = [report_of(NODE, 0, vec![]), report_of(OTHER, 0, vec![])];
    assert_eq!(turn(&both, &links).state(), SessionState::Scheduled);
    let mut reports = Vec::new();
    for (at, node) in [(0, NODE), (1, OTHER)] {
        let assignment = assigned[at].next().await.expect("an assignment");
        assert_eq!((assignment.node, assignment.containers.len()), (node, 10));
        assert_eq!(across(&*assignment), *assignment);
        let own = assignment.containers.iter().all(|order| {
            let index = order.name.index;
            order.name.session == id && index as usize % 2 == at && order.devices[0].index == index
        });
        assert!(own, "{assignment:?}");
        let said = answer(&assignment, |_| runs());
        assert_eq!(across(&said), said);
        [&one_node, &two_node][at].send(said);
        let report = links.report().await.expect("a report");
        assert_eq!(report.node, node);
        reports.push((*report).clone());
    }
    let row = turn(&reports, &links);
    assert_eq!(row.state(), SessionState::Running);
    assert!(row.containers().iter().all(|c| c.state.word() == "running"));

    // One sub is done, then the main one is: the rest is stopped, on both nodes.
    let known = look(&catalog).assigned[&NODE].clone();
    let ends = |index| match index {
        0 => exit(0),
        4 => exit(0),
        _ => runs(),
    };
    let row = turn(&[answer(&known, ends)], &links);
    assert_eq!(row.state(), SessionState::Stopping);
    let mut reports = Vec::new();
    for (at, count) in [(0, 8), (1, 10)] {
        let assignment = assigned[at].next().await.expect("an assignment");
        assert_eq!(assignment.containers.len(), count);
        assert!(
            assignment
                .containers
                .iter()
                .all(|order| order.want == Want::Stop)
        );
        reports.push(answer(&assignment, |_| exit(143)));
    }
    let row = turn(&reports[..1], &links);
    assert_eq!(
        row.state(),
        SessionState::Stopping,
        "the other node has its part yet"
    );
    let row = turn(&reports[1..], &links);
    assert_eq!(row.outcome(), Some(Outcome::Succeeded));
    assert_eq!(row.exit_code(), Some(0));
    let reason = row.reason.as_ref().map(|reason| reason.code.as_str());
    assert_eq!(reason, Some("session.succeeded"));
    for next in &mut assigned {
        assert_eq!(next.next().await.expect("an assignment").containers, []);
    }
}

#[test]
fn a_container_stays_listed_though_its_image_and_the_main_container_are_gone() {
    let mut controller = Controller::default();
    let sight = sight_of(vec![spread(1, image(), 3)], &[(IMAGE, "sha256:1")]);
    let both = [report_of(NODE, 0, vec![]), report_of(OTHER, 0, vec![])];
    let pass = take(&mut controller, sight, &[&both[0], &both[1]]);
    let (one, two) = (&pass.assigned[&NODE], &pass.assigned[&OTHER]);
    let ends = |index| if index == 0 { exit(0) } else { runs() };
    let (one, two) = (answer(one, ends), answer(two, ends));
    let pass = take(&mut controller, written(&pass, &[]), &[&one, &two]);
    assert_eq!(pass.world.sessions[0].state(), SessionState::Stopping);
    let listed = |pass: &ControllerPass| {
        [NODE, OTHER].map(|node| {
            let orders = pass.assigned[&node].containers.iter();
            orders.map(|order| order.name.index).collect::<Vec<_>>()
        })
    };
    assert_eq!(listed(&pass), [vec![2], vec![1]]);
    // From the orders that are left.
    let pass = take(&mut controller, written(&pass, &[]), &[]);
    assert_eq!(listed(&pass), [vec![2], vec![1]]);
}

#[test]
fn an_accepted_machine_that_does_not_know_one_container_has_lost_its_session() {
    let lost = |known: &[u32]| {
        let session = spread(1, SessionEnvironment::Host, 3);
        let statuses = known.iter().map(|index| ContainerStatus {
            name: session.container_name(*index),
            state: runs(),
            usage: None,
            devices: Vec::new(),
            ran: None,
        });
        // It obeyed a newer list than this catalog wrote.
        let reports = report_of(NODE, 7, statuses.collect());
        let mut sight = sight_of(vec![session], &[]);
        sight.accepted = true;
        let pass = take(&mut Controller::default(), sight, &[&reports]);
        pass.world.sessions.is_empty()
    };
    // The sub in the middle is another machine's.
    assert!(!lost(&[0, 2]));
    assert!(lost(&[0]) && lost(&[2]) && lost(&[]));
}
