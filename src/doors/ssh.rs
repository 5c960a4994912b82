//! SSH into sessions: a public key says who it is, the user name of the connection which session, and what is opened runs
//! inside that session or leads to its own ports. Never takes a password, and carries nothing to this machine itself.

mod ahead;
mod both_ways;
mod greeting;
mod handler;
mod neighbours;
mod places;
mod program;
mod seat;
mod tunnel;

use std::borrow::Cow;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use base::link::streams::Streams;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::TcpUserTimeout;
use rules::refusal::Refusal;
use rules::refusals;
use russh::keys::PrivateKey;
use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::server::{Config, RunningSession};
use russh::{Disconnect, MethodKind, MethodSet, Preferred, SshId, cipher, compression, kex};
use server::access::{Caller, SshHostKey, lease};
use server::{Failure, Server};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use greeting::SshConfigs;
use handler::SshHandler;
pub use neighbours::serve_neighbours;
use places::{SshPlace, SshPlaces};

use crate::doors::text::{Language, Text, codes};

/// How long a connection may take until a key is proven. Longer: strangers hold places. Shorter: a user who types the
/// passphrase of a key is cut off.
const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(30);
/// Keys and other proofs that one connection may try in vain: as many as OpenSSH lets.
const MAX_AUTH_TRIES: usize = 6;
/// How long the answer to one of them takes.
const REJECTION: Duration = Duration::from_millis(100);
/// Bytes that a client may send ahead on one channel before it is told that it may send more.
const WINDOW: u32 = 2 << 20;
/// The largest packet of a channel.
const PACKET: u32 = 32 << 10;
/// Messages of a connection between its channels and its line.
const QUEUE: usize = 32;
/// Messages of one channel, each of at most one packet, that were heard and are not put behind what waits. Higher: a
/// client that opens every channel takes more memory.
const CHANNEL_QUEUE: usize = 8;
/// How often a silent client is asked whether it is there, and how often in vain.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// See `KEEPALIVE`.
const KEEPALIVES: usize = 3;
/// How long a client may take nothing of what is sent to it.
const UNREAD: Duration = Duration::from_secs(120);
/// How long a client may take to hear why its connection ends. Longer: a user whose key was removed keeps the
/// connection, though nothing flows on it any more.
const DISMISSAL: Duration = Duration::from_millis(700);
/// The one subsystem there is.
const SFTP: &str = "sftp";
/// Rest after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(50);

/// What every connection needs.
struct SshContext {
    server: Server,
    streams: Arc<dyn Streams>,
}

/// Serves one port until `leaving`.
pub async fn serve(
    listener: TcpListener,
    server: Server,
    streams: Arc<dyn Streams>,
    key: SshHostKey,
    mut leaving: watch::Receiver<bool>,
) {
    let configs = Arc::new(configs(key.seed(), MethodKind::PublicKey));
    let context = Arc::new(SshContext { server, streams });
    let places = SshPlaces::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = leaving.wait_for(|leave| *leave) => return,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, or the other side has gone: neither is over sooner by haste.
                tracing::debug!(%error, "an SSH connection could not be accepted");
                sleep(PAUSE).await;
                continue;
            }
        };
        // Where its address has as many as it may have, it is closed at once.
        let Some(place) = places.enter(peer.ip()) else {
            continue;
        };
        let (configs, context) = (Arc::clone(&configs), Arc::clone(&context));
        let leaving = leaving.clone();
        tokio::spawn(async move {
            if let Err(error) = connection(configs, context, stream, peer, place, leaving).await {
                tracing::debug!(%error, %peer, "an SSH connection broke");
            }
        });
    }
}

/// With every cipher, and with the one that this processor computes itself for clients that offer it.
fn configs(seed: &[u8; 32], proof: MethodKind) -> SshConfigs {
    const QUICK: &[cipher::Name] = &[cipher::AES_256_GCM];
    let quick = || Arc::new(config(seed, proof, Cow::Borrowed(QUICK)));
    SshConfigs {
        whole: Arc::new(config(seed, proof, Preferred::DEFAULT.cipher)),
        quick: greeting::computes_aes().then(quick),
    }
}

/// One way to prove who it is, one host key, no compression, and only such exchanges of keys as cost this machine little
/// before it knows whom it speaks with.
fn config(seed: &[u8; 32], proof: MethodKind, ciphers: Cow<'static, [cipher::Name]>) -> Config {
    const EXCHANGES: &[kex::Name] = &[
        kex::MLKEM768X25519_SHA256,
        kex::CURVE25519,
        kex::CURVE25519_PRE_RFC_8731,
        kex::ECDH_SHA2_NISTP256,
        kex::EXTENSION_SUPPORT_AS_CLIENT,
        kex::EXTENSION_SUPPORT_AS_SERVER,
        kex::EXTENSION_OPENSSH_STRICT_KEX_AS_CLIENT,
        kex::EXTENSION_OPENSSH_STRICT_KEX_AS_SERVER,
    ];
    const COMPRESSIONS: &[compression::Name] = &[compression::NONE];
    Config {
        server_id: SshId::Standard(Cow::Borrowed(greeting::IDENTIFICATION)),
        methods: MethodSet::from(&[proof][..]),
        auth_rejection_time: REJECTION,
        // Every client asks once without a proof, to be told which are taken.
        auth_rejection_time_initial: Some(Duration::ZERO),
        keys: vec![PrivateKey::from(Ed25519Keypair::from_seed(seed))],
        window_size: WINDOW,
        maximum_packet_size: PACKET,
        channel_buffer_size: CHANNEL_QUEUE,
        event_buffer_size: QUEUE,
        preferred: Preferred {
            kex: Cow::Borrowed(EXCHANGES),
            cipher: ciphers,
            compression: Cow::Borrowed(COMPRESSIONS),
            ..Preferred::DEFAULT
        },
        max_auth_attempts: MAX_AUTH_TRIES,
        inactivity_timeout: None,
        keepalive_interval: Some(KEEPALIVE),
        keepalive_max: KEEPALIVES,
        nodelay: true,
        ..Config::default()
    }
}

/// Carries one connection until its client ends it, its key is proven too late, or its caller may go on no longer.
async fn connection(
    configs: Arc<SshConfigs>,
    context: Arc<SshContext>,
    stream: TcpStream,
    peer: SocketAddr,
    mut place: SshPlace,
    mut leaving: watch::Receiver<bool>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let unread = u32::try_from(UNREAD.as_millis()).unwrap_or(u32::MAX);
    // A kernel without it finds a dead client later.
    let _ = setsockopt(&stream, TcpUserTimeout, &unread);
    let stream = stream.into_std()?;
    // What the connection is closed by, whatever the protocol waits for.
    let line = stream.try_clone()?;
    let stream = TcpStream::from_std(stream)?;
    let deadline = Instant::now() + AUTHENTICATION_TIMEOUT;
    let (prove, mut proven) = watch::channel(None::<Caller>);
    let (end, ending) = watch::channel(false);
    let handler = SshHandler::new(
        Arc::clone(&context),
        peer.ip().to_canonical(),
        prove,
        ending,
    );
    let begun = tokio::select! {
        begun = timeout_at(deadline, greeting::begin(&configs, stream, handler)) => begun,
        () = place.evicted() => return Ok(()),
        _ = leaving.wait_for(|leave| *leave) => return Ok(()),
    };
    // Who says nothing, or something else than SSH, hears no more.
    let Ok(Ok(mut running)) = begun else {
        return Ok(());
    };
    let caller = tokio::select! {
        _ = &mut running => return Ok(()),
        caller = signed_in(&mut proven) => caller,
        () = sleep_until(deadline) => None,
        () = place.evicted() => None,
        _ = leaving.wait_for(|leave| *leave) => None,
    };
    let why = match caller {
        None => None,
        Some(caller) => {
            let refusal = match place.known(caller.subject.user) {
                Err(full) => full,
                Ok(()) => {
                    let lease = lease(&context.server, &caller);
                    tokio::select! {
                        _ = &mut running => return Ok(()),
                        refusal = lease => refusal,
                        _ = leaving.wait_for(|leave| *leave) => refusals::server_stopping(),
                    }
                }
            };
            Some((caller, refusal))
        }
    };
    end.send_replace(true);
    if let Some((caller, refusal)) = why {
        let words = told(&caller, &refusal);
        let _ = timeout(DISMISSAL, farewell(&mut running, words)).await;
    }
    line.shutdown(Shutdown::Both)
}

/// The caller once a key was proven; None where the handler is gone.
async fn signed_in(proven: &mut watch::Receiver<Option<Caller>>) -> Option<Caller> {
    let caller = proven.wait_for(Option::is_some).await.ok()?;
    caller.clone()
}

/// Says why the connection ends and waits until the client has closed it.
async fn farewell(running: &mut RunningSession<SshHandler>, words: String) {
    let handle = running.handle();
    let said = handle
        .disconnect(Disconnect::ByApplication, words, "en".to_owned())
        .await;
    if said.is_ok() {
        let _ = running.await;
    }
}

/// What a client is told of a failure; a fault goes to the log with its whole chain.
fn refused(failure: Failure) -> Refusal {
    match failure {
        Failure::Refusal(refusal) => refusal,
        Failure::Fault(fault) => {
            tracing::error!(
                error = &fault as &dyn std::error::Error,
                "a request over SSH failed"
            );
            refusals::server_fault_nothing_changed()
        }
    }
}

/// A refusal in the caller's language.
fn told(caller: &Caller, refusal: &Refusal) -> String {
    codes::refusal(text(caller), refusal)
}

fn text(caller: &Caller) -> Text {
    Text::new(Language::from_code(&caller.language).unwrap_or_default())
}
