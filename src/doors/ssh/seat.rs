//! Who sits at one connection and which session they named; each channel asks again for both. Opens nothing.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rules::names::{ContainerName, SessionName};
use rules::refusals;
use russh::server::ChannelOpenHandle;
use server::Failure;
use server::access::{self, Caller, Lease};
use server::actions::break_glass::withdrawn;
use server::actions::idle_rules::Inside;
use server::actions::sessions;
use server::routes;
use tokio::sync::watch;
use uuid::Uuid;

use super::SshContext;
use super::ahead::AheadRoom;
use crate::doors::text::Text;

/// Where a connection comes from, which says where it leads.
#[derive(Clone)]
pub(super) enum SshOrigin {
    /// From outside, by a key.
    Outside {
        caller: Box<Caller>,
        /// `SESSION`, or `OWNER+SESSION`.
        session: String,
        source: IpAddr,
    },
    /// From a container of the same session, over the network that joins them and nothing else.
    Neighbour {
        container: ContainerName,
        name: SessionName,
    },
}

/// A connection as its channels see it.
#[derive(Clone)]
pub(super) struct ChannelSeat {
    pub(super) context: Arc<SshContext>,
    pub(super) origin: SshOrigin,
    /// True once the connection ends.
    pub(super) ending: watch::Receiver<bool>,
    /// Of what is sent ahead on all channels of the connection.
    pub(super) ahead: AheadRoom,
    /// How many channels were opened that the client did not close first.
    pub(super) kept: Arc<AtomicUsize>,
}

/// A session that was entered.
pub(super) struct EnteredSession {
    pub(super) container: ContainerName,
    pub(super) name: SessionName,
    /// Counts who is inside, for rules of idle sessions; None for a container, which is not its user.
    pub(super) inside: Option<Inside>,
    /// Ready once the caller may be there no longer.
    pub(super) over: Lease,
}

impl ChannelSeat {
    /// Asks whether the caller may still enter the session, or whether the container still runs. Costs four rows by key, and
    /// a row of the audit log an hour.
    pub(super) async fn enter(&self) -> Result<EnteredSession, Failure> {
        let request = Uuid::now_v7().to_string();
        let server = &self.context.server;
        let (caller, session, source) = match &self.origin {
            SshOrigin::Outside {
                caller,
                session,
                source,
            } => (caller, session, *source),
            SshOrigin::Neighbour { container, name } => {
                if !routes::is_joined(server, *container)? {
                    return Err(refusals::container_not_running().into());
                }
                return Ok(EnteredSession {
                    container: *container,
                    inside: None,
                    name: name.clone(),
                    over: Box::pin(std::future::pending()),
                });
            }
        };
        let entered = async {
            let caller = access::prove_ssh_key_again(server, caller).await?;
            sessions::enter_by_name(server, &caller, session).await
        };
        let ticket = access::as_request(source, &request, entered).await?;
        Ok(EnteredSession {
            container: ticket.container,
            inside: Some(Inside::of(server, ticket.container)),
            over: withdrawn(server, caller, ticket.session),
            name: ticket.name,
        })
    }

    /// Opens a channel.
    pub(super) async fn accept(&self, reply: ChannelOpenHandle) {
        self.kept.fetch_add(1, Ordering::Relaxed);
        reply.accept().await;
    }

    pub(super) fn text(&self) -> Text {
        match &self.origin {
            SshOrigin::Outside { caller, .. } => super::text(caller),
            SshOrigin::Neighbour { .. } => Text::default(),
        }
    }

    /// Waits until the connection ends.
    pub(super) async fn ended(&self) {
        let mut ending = self.ending.clone();
        let _ = ending.wait_for(|end| *end).await;
    }
}
