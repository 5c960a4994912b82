//! Who sits at one connection and which session they named; each channel asks again for both. Opens nothing.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rules::names::{ContainerName, SessionName};
use russh::server::ChannelOpenHandle;
use server::Failure;
use server::access::{self, Caller};
use server::actions::idle_rules::Inside;
use server::actions::sessions;
use tokio::sync::watch;
use uuid::Uuid;

use super::SshContext;
use super::ahead::AheadRoom;
use crate::doors::text::Text;

/// A connection as its channels see it.
#[derive(Clone)]
pub(super) struct ChannelSeat {
    pub(super) context: Arc<SshContext>,
    pub(super) caller: Caller,
    /// `SESSION`, or `OWNER+SESSION`.
    pub(super) session: String,
    pub(super) source: IpAddr,
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
    /// Counts who is inside, for rules of idle sessions.
    pub(super) inside: Inside,
}

impl ChannelSeat {
    /// Asks whether the caller may still enter the session. Costs four rows by key, and a row of the audit log an hour.
    pub(super) async fn enter(&self) -> Result<EnteredSession, Failure> {
        let request = Uuid::now_v7().to_string();
        let server = &self.context.server;
        let entered = async {
            let caller = access::prove_ssh_key_again(server, &self.caller).await?;
            sessions::enter_by_name(server, &caller, &self.session).await
        };
        let ticket = access::as_request(self.source, &request, entered).await?;
        Ok(EnteredSession {
            container: ticket.container,
            inside: Inside::of(server, ticket.container),
            name: ticket.name,
        })
    }

    /// Opens a channel.
    pub(super) async fn accept(&self, reply: ChannelOpenHandle) {
        self.kept.fetch_add(1, Ordering::Relaxed);
        reply.accept().await;
    }

    pub(super) fn text(&self) -> Text {
        super::text(&self.caller)
    }

    /// Waits until the connection ends.
    pub(super) async fn ended(&self) {
        let mut ending = self.ending.clone();
        let _ = ending.wait_for(|end| *end).await;
    }
}
