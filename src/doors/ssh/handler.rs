//! Answers what a client asks on one connection: proofs, channels and the requests on them. Decides at once and starts
//! tasks that carry; never waits for a session, for behind one answer the whole connection waits.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rules::container_network;
use rules::names::{ContainerName, SessionName};
use russh::keys::{Algorithm, PublicKey};
use russh::server::{
    Auth, ChannelOpenHandle, Handler, Msg, PublicKeyOffer, Session, VerifiedPublicKey,
};
use russh::{Channel, ChannelId, ChannelOpenFailure, Error, Pty};
use server::access::{self, Caller};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use uuid::Uuid;

use super::ahead::AheadRoom;
use super::program::{self, is_variable};
use super::seat::{ChannelSeat, SshOrigin};
use super::{SFTP, SshContext, refused, tunnel};

/// Programs and tunnels of one connection. Higher: one user takes more of the places in sessions. Lower: an editor with
/// many tunnels opens another connection.
const MAX_CHANNELS: usize = 64;
/// Channels of one connection that its client did not close first, open or over: `russh` keeps some kilobytes of each
/// until the connection ends. Higher: they take more memory. Lower: a connection that many commands share takes no more of
/// them sooner.
const MAX_KEPT_CHANNELS: usize = 4096;
/// Public keys that are looked up on one connection: one that a user has is no vain try, and any stranger may offer it.
const MAX_OFFERS: usize = 16;
/// Bytes of the name of a user, which here is a session's.
const MAX_NAME_LENGTH: usize = 200;

/// One connection's answers.
pub(super) struct SshHandler {
    context: Arc<SshContext>,
    source: IpAddr,
    proven: watch::Sender<Option<Caller>>,
    ending: watch::Receiver<bool>,
    /// None until a key was proven.
    seat: Option<ChannelSeat>,
    offers: usize,
    room: Arc<Semaphore>,
    ahead: AheadRoom,
    kept: Arc<AtomicUsize>,
    /// Channels on which something was started.
    started: BTreeSet<ChannelId>,
}

impl SshHandler {
    pub(super) fn new(
        context: Arc<SshContext>,
        source: IpAddr,
        proven: watch::Sender<Option<Caller>>,
        ending: watch::Receiver<bool>,
    ) -> Self {
        Self {
            context,
            source,
            proven,
            ending,
            seat: None,
            offers: 0,
            room: Arc::new(Semaphore::new(MAX_CHANNELS)),
            ahead: AheadRoom::new(),
            kept: Arc::default(),
            started: BTreeSet::new(),
        }
    }

    /// The seat and room for one more channel; None where there is none.
    fn admit(&self) -> Option<(ChannelSeat, OwnedSemaphorePermit)> {
        let permit = Arc::clone(&self.room).try_acquire_owned().ok()?;
        if self.kept.load(Ordering::Relaxed) >= MAX_KEPT_CHANNELS {
            return None;
        }
        Some((self.seat.clone()?, permit))
    }

    /// The answers to a container of the same session, which proves by where it comes from who it is.
    pub(super) fn of_neighbour(
        context: Arc<SshContext>,
        (container, name): (ContainerName, SessionName),
        ending: watch::Receiver<bool>,
    ) -> Self {
        let (proven, _) = watch::channel(None);
        let source = IpAddr::V4(container_network::address(container.index));
        let mut handler = Self::new(Arc::clone(&context), source, proven, ending.clone());
        handler.seat = Some(ChannelSeat {
            context,
            origin: SshOrigin::Neighbour { container, name },
            ending,
            ahead: handler.ahead.clone(),
            kept: Arc::clone(&handler.kept),
        });
        handler
    }

    /// Whether its seat is given already. `russh` asks about keys whichever methods are offered: a container must not leave its
    /// session by the key of a user, past the network of its launch and the lease of that user.
    fn is_settled(&self) -> bool {
        self.seat.is_some()
    }

    /// Answers a request to start something: one thing a channel.
    fn start(&mut self, channel: ChannelId, session: &mut Session) -> Result<(), Error> {
        match self.started.insert(channel) {
            true => session.channel_success(channel),
            false => session.channel_failure(channel),
        }
    }

    async fn prove(&self, key: &PublicKey) -> Option<Caller> {
        let blob = key.to_bytes().ok()?;
        let request = Uuid::now_v7().to_string();
        let by_key = access::by_ssh_key(&self.context.server, &blob, self.source);
        match access::as_request(self.source, &request, by_key).await {
            Ok(caller) => caller,
            Err(failure) => {
                let code = refused(failure).code;
                tracing::info!(code, source = %self.source, "an SSH key was refused");
                None
            }
        }
    }
}

/// A signature over SHA-1, which can be forged.
fn is_weak(algorithm: &Algorithm) -> bool {
    matches!(algorithm, Algorithm::Rsa { hash: None } | Algorithm::Dsa)
}

impl Handler for SshHandler {
    type Error = Error;

    /// Who needs no proof has a seat before.
    async fn auth_none(&mut self, _user: &str) -> Result<Auth, Error> {
        match self.is_settled() {
            true => Ok(Auth::Accept),
            false => Ok(Auth::reject()),
        }
    }

    async fn auth_publickey_offered(
        &mut self,
        _user: &str,
        offer: PublicKeyOffer<'_>,
    ) -> Result<Auth, Error> {
        self.offers += 1;
        if self.is_settled() || self.offers > MAX_OFFERS || is_weak(offer.algorithm) {
            return Ok(Auth::reject());
        }
        let Ok(blob) = offer.public_key.to_bytes() else {
            return Ok(Auth::reject());
        };
        match access::is_ssh_key_known(&self.context.server, &blob).await {
            Ok(true) => Ok(Auth::Accept),
            Ok(false) => Ok(Auth::reject()),
            Err(failure) => {
                let code = refused(failure).code;
                tracing::info!(code, source = %self.source, "an SSH key was not looked up");
                Ok(Auth::reject())
            }
        }
    }

    async fn auth_publickey(
        &mut self,
        user: &str,
        key: VerifiedPublicKey<'_>,
    ) -> Result<Auth, Error> {
        if self.is_settled() || is_weak(key.algorithm) || user.len() > MAX_NAME_LENGTH {
            return Ok(Auth::reject());
        }
        let Some(caller) = self.prove(key.public_key).await else {
            return Ok(Auth::reject());
        };
        self.seat = Some(ChannelSeat {
            context: Arc::clone(&self.context),
            origin: SshOrigin::Outside {
                caller: Box::new(caller.clone()),
                session: user.to_owned(),
                source: self.source,
            },
            ending: self.ending.clone(),
            ahead: self.ahead.clone(),
            kept: Arc::clone(&self.kept),
        });
        self.proven.send_replace(Some(caller));
        Ok(Auth::Accept)
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), Error> {
        let Some((seat, permit)) = self.admit() else {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        };
        seat.accept(reply).await;
        tokio::spawn(async move {
            program::serve(seat, channel).await;
            drop(permit);
        });
        Ok(())
    }

    async fn channel_open_direct_tcpip(
        &mut self,
        channel: Channel<Msg>,
        host_to_connect: &str,
        port_to_connect: u32,
        _originator_address: &str,
        _originator_port: u32,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), Error> {
        let Some((seat, permit)) = self.admit() else {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        };
        let host = host_to_connect.to_owned();
        tokio::spawn(async move {
            tunnel::serve(seat, channel, reply, &host, port_to_connect).await;
            drop(permit);
        });
        Ok(())
    }

    async fn channel_close(
        &mut self,
        channel: ChannelId,
        _session: &mut Session,
    ) -> Result<(), Error> {
        // Said of those alone that this side did not close before.
        self.kept.fetch_sub(1, Ordering::Relaxed);
        self.started.remove(&channel);
        Ok(())
    }

    async fn pty_request(
        &mut self,
        channel: ChannelId,
        _term: &str,
        _col_width: u32,
        _row_height: u32,
        _pix_width: u32,
        _pix_height: u32,
        _modes: &[(Pty, u32)],
        session: &mut Session,
    ) -> Result<(), Error> {
        match self.started.contains(&channel) {
            true => session.channel_failure(channel),
            false => session.channel_success(channel),
        }
    }

    async fn env_request(
        &mut self,
        channel: ChannelId,
        variable_name: &str,
        variable_value: &str,
        session: &mut Session,
    ) -> Result<(), Error> {
        match is_variable(variable_name, variable_value) {
            true => session.channel_success(channel),
            false => session.channel_failure(channel),
        }
    }

    async fn shell_request(
        &mut self,
        channel: ChannelId,
        session: &mut Session,
    ) -> Result<(), Error> {
        self.start(channel, session)
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        _data: &[u8],
        session: &mut Session,
    ) -> Result<(), Error> {
        self.start(channel, session)
    }

    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        name: &str,
        session: &mut Session,
    ) -> Result<(), Error> {
        match name {
            SFTP => self.start(channel, session),
            _ => session.channel_failure(channel),
        }
    }

    /// Refused: it would show this user's screen to the session.
    async fn x11_request(
        &mut self,
        channel: ChannelId,
        _single_connection: bool,
        _x11_auth_protocol: &str,
        _x11_auth_cookie: &str,
        _x11_screen_number: u32,
        session: &mut Session,
    ) -> Result<(), Error> {
        session.channel_failure(channel)
    }
}

#[cfg(test)]
mod tests {
    use russh::keys::HashAlg;

    use super::*;

    #[test]
    fn signatures_over_sha1_are_weak() {
        let rsa = |hash| Algorithm::Rsa { hash };
        assert!(is_weak(&rsa(None)));
        assert!(!is_weak(&rsa(Some(HashAlg::Sha256))));
        assert!(!is_weak(&rsa(Some(HashAlg::Sha512))));
        assert!(!is_weak(&Algorithm::Ed25519));
    }
}
