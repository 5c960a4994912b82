//! Takes one complete report of one node into the pass: what the node is, and what became of the
//! sessions on it. A silent node is no input at all.

use rules::messages::{NodeReport, ReportedState};
use rules::progress;
use rules::world::NodeRecord;

use crate::controller::pass::ControllerPass;

/// Moves the node's row and its sessions to what the report shows. Costs one visit a session.
pub(crate) fn apply_report(pass: &mut ControllerPass, report: &NodeReport) {
    pass.heard(NodeRecord {
        id: report.node,
        name: report.name.clone(),
        boot: report.boot,
        capacity: report.capacity.clone(),
        host_environment: report.host_environment,
        seen_at: pass.now,
        generation: report.generation,
        schedulable: true,
        note: String::new(),
        cordoned: std::collections::BTreeSet::new(),
        problems: report.problems.clone(),
    });
    let now = pass.now;
    // Before what became of them: an answer says why a session ended.
    for incident in &report.incidents {
        pass.change(incident.container.session, "node", |session| {
            session.is_on(report.node) && session.note(incident)
        });
    }
    for failure in &report.start_up_failures {
        pass.change(failure.container.session, "node", |session| {
            session.is_on(report.node) && session.note_start_up(failure)
        });
    }
    let lessened = pass.world.sessions.iter().filter(|session| {
        session.is_on(report.node) && session.mounts.iter().any(|mount| mount.detached)
    });
    let lessened: Vec<_> = lessened.map(|session| session.id).collect();
    for id in lessened {
        pass.change(id, "node", |session| {
            session.note_stuck_mounts(report.node, &report.stuck_mounts)
        });
    }
    let current = pass.assigned.get(&report.node);
    let changes: Vec<_> = pass
        .world
        .sessions
        .iter()
        .flat_map(|session| progress::advance(session, report, current, now))
        .collect();
    let confirmed: Vec<_> = pass
        .world
        .sessions
        .iter()
        .map(|session| (session.id, progress::confirmed(session, report, current)))
        .collect();
    for (id, containers) in confirmed {
        pass.change(id, "node", |session| {
            for container in &containers {
                session.confirm_container(*container);
            }
            !containers.is_empty()
        });
    }
    for change in changes {
        pass.change(change.session, "node", |session| session.apply(&change));
    }
}

/// True where both reports say the same about everything a row depends on: the time and the
/// usage figures do not count.
pub(crate) fn same(a: &NodeReport, b: &NodeReport) -> bool {
    type ReportedContainer = (
        rules::names::ContainerName,
        ReportedState,
        Vec<rules::resources::DeviceShare>,
    );
    let state = |r: &NodeReport| -> Vec<ReportedContainer> {
        r.containers
            .iter()
            .map(|c| (c.name, c.state.clone(), c.devices.clone()))
            .collect()
    };
    a.node == b.node
        && a.boot == b.boot
        && a.generation == b.generation
        && a.name == b.name
        && a.capacity == b.capacity
        && a.host_environment == b.host_environment
        && a.problems == b.problems
        && a.incidents == b.incidents
        && a.start_up_failures == b.start_up_failures
        && a.stuck_mounts == b.stuck_mounts
        && state(a) == state(b)
}
