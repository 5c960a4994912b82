//! Takes a machine over that obeyed another list than this catalog's, once root has said so: ends the
//! sessions whose containers the machine does not know, so that none begins a second time. Never decides
//! whether it may be taken over; `rules::continuity` does.

use std::collections::BTreeSet;

use rules::continuity::Continuity;
use rules::messages::NodeReport;
use rules::names::{ContainerName, SessionId};
use rules::reasons;
use rules::session::Outcome;

use crate::controller::pass::ControllerPass;

/// Ends, as lost, what has a place and is not there; then the machine is led by its next list. Those that
/// may start again by themselves do. Under a foreign state every place counts: it names a machine that is
/// not on this link.
pub(crate) fn accept(pass: &mut ControllerPass, report: &NodeReport, found: Continuity) {
    let here: BTreeSet<ContainerName> = report.containers.iter().map(|c| c.name).collect();
    let foreign = matches!(found, Continuity::Foreign { .. });
    let gone: Vec<SessionId> = pass
        .world
        .sessions
        .iter()
        .filter(|s| {
            let mut live = s.live_containers();
            live.any(|container| {
                let asked = foreign || container.node == report.node;
                asked && !here.contains(&s.container_name(container.index))
            })
        })
        .map(|s| s.id)
        .collect();
    tracing::warn!(node = %report.node, ended = gone.len(), ?found, "root accepted this catalog");
    let now = pass.now;
    for id in gone {
        pass.change(id, "node", |session| {
            session.reason = Some(reasons::session_elsewhere());
            session.end(Outcome::Lost, None, now);
            true
        });
    }
    pass.accepting.insert(report.node);
}
