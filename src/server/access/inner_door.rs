//! A session as a caller. Who speaks from inside a container is known by the socket that its node opened there, so no secret
//! is asked for. What it may is what its owner may with this one session: no role of the owner's comes along.

use std::collections::BTreeSet;

use rules::inner_door::permissions;
use rules::names::ContainerName;
use rules::permissions::Subject;
use rules::refusals;
use rules::session::{Session, SessionState};

use super::{Caller, Via, suspended, told};
use crate::catalog::policies::PolicySubjects;
use crate::{Failure, Server};

/// The containers whose inner door is open: all of the sessions that run where no policy closes it. Costs one visit of each
/// container with a place on a node, and where any policy closes doors a look at the policies of each that runs.
pub fn inner_doors(server: &Server) -> Result<BTreeSet<ContainerName>, Failure> {
    server.catalog().read_now("list inner doors", |view| {
        let mut all = BTreeSet::new();
        let asks_policies = view.has_closed_inner_doors()?;
        for container in view.running_containers()? {
            if !(asks_policies && view.closes_inner_door(&container.subjects)?) {
                all.insert(container.name);
            }
        }
        Ok(all)
    })
}

/// The session of a container whose inner door is open; to be proven for each request. Costs two rows by key, and a visit of
/// each policy that closes doors.
///
/// Errors: `container.not-running`, `inner-door.closed`, `user.suspended`.
pub async fn by_inner_door(server: &Server, container: ContainerName) -> Result<Caller, Failure> {
    let found = server
        .catalog()
        .read_now("find the session of an inner door", |view| {
            let row = view.session(container.session)?;
            let Some(row) = row.filter(|row| lives(row, container)) else {
                return Ok(None);
            };
            let subjects = PolicySubjects {
                domain: row.domain,
                project: row.project,
                user: row.owner,
            };
            if view.closes_inner_door(&subjects)? {
                return Err(refusals::inner_door_closed().into());
            }
            view.user(row.owner)
        })?;
    let user = found.ok_or_else(refusals::container_not_running)?;
    if user.is_shut_out(server.clock().now()) {
        return Err(suspended().into());
    }
    Ok(told(Caller {
        subject: Subject {
            user: user.id,
            grants: Vec::new(),
            domain: user.domain,
            scopes: Some(permissions()),
        },
        name: user.name,
        language: user.language,
        theme: user.theme,
        time_zone: user.time_zone,
        via: Via::Session {
            id: container.session,
        },
        source: None,
        must_change_password: user.must_change_password,
        second_factor_due: None,
        request: String::new(),
    }))
}

/// Whether that is one of the containers with which a session runs now.
fn lives(row: &Session, container: ContainerName) -> bool {
    let mut live = row.live_containers();
    row.state() == SessionState::Running
        && row.incarnation == container.incarnation
        && live.any(|one| one.index == container.index)
}
