//! Where apps are: which container answers for a running session, and which port of this machine leads to which app.
//! Derived from rows; stores only which cookies an app sets.

use std::collections::BTreeMap;
use std::time::Duration;

use rules::app_port::{AppPort, AppPortCookie, app_ports};
use rules::names::{ContainerName, NodeId, SessionId, SessionName, UserId};
use rules::session::{Session, SessionState};

use crate::catalog::Lane;
use crate::{Failure, Server};

/// How long commits are gathered before a tunnel that is half open looks at its session again. Longer: what leads nowhere
/// stays open. Shorter: each commit costs a look for each of them.
const GATHER: Duration = Duration::from_millis(250);

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

/// The containers of all running sessions of several, with the names of their sessions. Costs one visit of each container with a
/// place on a node.
pub fn joined(server: &Server) -> Result<BTreeMap<ContainerName, SessionName>, Failure> {
    let what = "list sessions of several containers";
    server.catalog().read_now(what, |view| {
        let running = view.running_containers()?.into_iter();
        let of_several = running.filter(|container| container.of > 1);
        Ok(of_several
            .map(|container| (container.name, container.session))
            .collect())
    })
}

/// Whether that is one of them still. Costs one row by key.
pub fn is_joined(server: &Server, container: ContainerName) -> Result<bool, Failure> {
    let what = "find a container of a session";
    let row = server
        .catalog()
        .read_now(what, |view| view.session(container.session))?;
    let row = row.filter(|row| is_of_several(row) && row.incarnation == container.incarnation);
    Ok(row.is_some_and(|row| {
        let mut live = row.live_containers();
        live.any(|one| one.index == container.index)
    }))
}

/// Ready once the container runs no more: its session has ended, or began again in another one. Costs one row by key for each
/// look, four a second at most.
pub async fn has_ended(server: &Server, container: ContainerName) {
    let lives = |row: &Session| {
        let mut live = row.live_containers();
        row.incarnation == container.incarnation && live.any(|one| one.index == container.index)
    };
    let mut revision = server.catalog().revision();
    loop {
        revision.borrow_and_update();
        let row = server
            .catalog()
            .read_now("look at the session of a tunnel", |view| {
                view.session(container.session)
            });
        match row {
            Ok(Some(row)) if lives(&row) => {}
            Ok(_) => return,
            // A disk that stutters closes no tunnel; the next look tells.
            Err(_) => {}
        }
        if revision.changed().await.is_err() {
            return;
        }
        tokio::time::sleep(GATHER).await;
    }
}

fn is_of_several(session: &Session) -> bool {
    session.spec.containers > 1 && session.state() == SessionState::Running
}

/// Serves the ports that apps are opened at.
pub trait AppListeners: Send + Sync {
    /// Serves a port from now on; does nothing for one that is served.
    ///
    /// Errors: what the system says, such as that another program has it.
    fn serve(&self, port: u16) -> std::io::Result<()>;
}

/// Where a port leads; None for one that leads nowhere. Costs one row by key.
pub fn app_at(server: &Server, port: u16) -> Result<Option<AppPort>, Failure> {
    let found = server
        .catalog()
        .read_now("find the app at a port", |view| view.app_port(port))?;
    Ok(found.filter(|port| port.session.is_some()))
}

/// The ports that lead into sessions which have not ended, by number: pages of them may be open in browsers.
pub fn open_app_ports(server: &Server) -> Result<Vec<u16>, Failure> {
    let Some(first) = server.settings().listen_apps.map(|address| address.port()) else {
        return Ok(Vec::new());
    };
    server.catalog().read_now("list ports of apps", |view| {
        let mut open = Vec::new();
        for port in view.app_ports()? {
            let session = match port.session {
                Some(session) if app_ports(first).contains(&port.port) => view.session(session)?,
                _ => None,
            };
            if session.is_some_and(|session| session.state() != SessionState::Ended) {
                open.push(port.port);
            }
        }
        Ok(open)
    })
}

/// The cookies that apps at ports set.
pub fn app_cookies(server: &Server) -> Result<Vec<AppPortCookie>, Failure> {
    server
        .catalog()
        .read_now("list cookies of apps", |view| view.app_cookies())
}

/// Keeps cookies that the app at a port sets, for when this server has started again.
pub async fn keep_app_cookies(
    server: &Server,
    port: u16,
    names: Vec<String>,
) -> Result<(), Failure> {
    server
        .catalog()
        .write(Lane::Requests, "keep cookies of an app", move |rows| {
            rows.add_app_cookies(port, &names)
        })
        .await
}
