//! Where apps are: which container answers for a running session. Derived from rows, never stored.

use rules::names::{ContainerName, NodeId, SessionId, UserId};
use rules::session::SessionState;

use crate::{Failure, Server};

/// Where a running session can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionRoute {
    pub container: ContainerName,
    pub node: NodeId,
    pub owner: UserId,
}

/// The way to a session; None unless it runs. The caller has asked `actions::sessions::enter`.
pub fn find(server: &Server, session: SessionId) -> Result<Option<SessionRoute>, Failure> {
    let row = server
        .catalog()
        .read_now("find the way to a session", |view| view.session(session))?;
    Ok(row
        .filter(|row| row.state() == SessionState::Running)
        .and_then(|row| {
            row.node().map(|node| SessionRoute {
                container: row.container(),
                node,
                owner: row.owner,
            })
        }))
}
