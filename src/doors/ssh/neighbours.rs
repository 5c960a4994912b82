//! SSH between the containers of one session: a port at each of their addresses in the network that joins them, and behind
//! it the same programs as for a user from outside. Who comes over that network is in the session already, so no proof is
//! asked for. Opens no port of this machine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::link::streams::{ByteStream, Streams};
use rules::names::{ContainerName, SessionName};
use russh::MethodKind;
use server::{Server, events, routes};
use tokio::io::{copy_bidirectional, duplex};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::greeting::{self, SshConfigs};
use super::handler::SshHandler;
use super::{AUTHENTICATION_TIMEOUT, SshContext, configs, refused};

/// Connections to one container. Higher: programs of one session take more of this machine's memory. Lower: a container
/// that all others of a large session open several connections to refuses some.
const MAX_NEIGHBOURS: usize = 64;

/// Rest between two looks at which sessions run. Longer: a session that has begun waits for its ports. Shorter: rows are
/// read more often while many change.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// Rest after a port that could not be opened. Longer: a program of the image that had it is missed for longer. Shorter:
/// one that keeps it costs more.
const OPEN_PAUSE: Duration = Duration::from_secs(2);

/// Rest after each connection to a container. Longer: a program that starts many there begins later. Shorter: one session
/// makes this machine agree on more keys, which no limit of the session counts.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Bytes on their way between a connection and its protocol. More: a slow reader takes more memory. Less: large files take
/// longer.
const CARRIED: usize = 64 << 10;

/// How long the last words of a connection may take to be heard.
const CLOSING: Duration = Duration::from_secs(2);

/// Serves the containers of all running sessions of several until `leaving`. The host key is new with each server: nothing
/// stands between two containers that could pass itself off as one.
pub async fn serve_neighbours(
    server: Server,
    streams: Arc<dyn Streams>,
    seed: [u8; 32],
    mut leaving: watch::Receiver<bool>,
) {
    let configs = Arc::new(configs(&seed, MethodKind::None));
    let mut revision = events::revision(&server);
    let context = Arc::new(SshContext { server, streams });
    let mut served = ServedContainers(BTreeMap::new());
    loop {
        revision.borrow_and_update();
        match routes::joined(&context.server) {
            Ok(joined) => served.keep_to(joined, &context, &configs),
            Err(failure) => {
                let code = refused(failure).code;
                tracing::info!(code, "sessions of several containers were not looked for");
            }
        }
        tokio::select! {
            changed = revision.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            _ = leaving.wait_for(|leave| *leave) => return,
        }
        tokio::select! {
            () = sleep(LOOK_PAUSE) => {}
            _ = leaving.wait_for(|leave| *leave) => return,
        }
    }
}

/// The task of each container that has a port.
struct ServedContainers(BTreeMap<ContainerName, JoinHandle<()>>);

impl ServedContainers {
    /// Opens the ports of these containers, and closes those of others with all connections.
    fn keep_to(
        &mut self,
        joined: BTreeMap<ContainerName, SessionName>,
        context: &Arc<SshContext>,
        configs: &Arc<SshConfigs>,
    ) {
        self.0.retain(|container, task| {
            let stays = joined.contains_key(container) && !task.is_finished();
            if !stays {
                task.abort();
            }
            stays
        });
        for (container, name) in joined {
            self.0.entry(container).or_insert_with(|| {
                let (context, configs) = (Arc::clone(context), Arc::clone(configs));
                tokio::spawn(serve_container(context, configs, (container, name)))
            });
        }
    }
}

impl Drop for ServedContainers {
    fn drop(&mut self) {
        for task in self.0.values() {
            task.abort();
        }
    }
}

/// Serves one container until its port is closed. What it carries ends with this.
async fn serve_container(
    context: Arc<SshContext>,
    configs: Arc<SshConfigs>,
    to: (ContainerName, SessionName),
) {
    let mut incoming = loop {
        match context.streams.neighbours(to.0).await {
            Ok(incoming) => break incoming,
            Err(refusal) => {
                // A program inside may have the port: then it is the one that answers.
                tracing::debug!(container = %to.0, code = refusal.code, "it has no SSH port for its neighbours");
                sleep(OPEN_PAUSE).await;
            }
        }
    };
    let room = Arc::new(Semaphore::new(MAX_NEIGHBOURS));
    let mut carried = JoinSet::new();
    while let Some(stream) = incoming.recv().await {
        while carried.try_join_next().is_some() {}
        // Where all places are taken, it is closed at once.
        let Ok(place) = Arc::clone(&room).try_acquire_owned() else {
            continue;
        };
        let (context, configs, to) = (Arc::clone(&context), Arc::clone(&configs), to.clone());
        carried.spawn(async move {
            connection(context, configs, to, stream).await;
            drop(place);
        });
        sleep(ACCEPT_PAUSE).await;
    }
}

/// Carries one connection until either side ends it, or this is dropped: what it reads from is here, so the protocol, which
/// runs on its own, ends with it.
async fn connection(
    context: Arc<SshContext>,
    configs: Arc<SshConfigs>,
    to: (ContainerName, SessionName),
    mut stream: ByteStream,
) {
    let (near, mut far) = duplex(CARRIED);
    // Its channels end with it, and with the task that this one belongs to.
    let (_end, ending) = watch::channel(false);
    let handler = SshHandler::of_neighbour(context, to, ending);
    let spoken = async {
        let begun = timeout(
            AUTHENTICATION_TIMEOUT,
            greeting::begin(&configs, near, handler),
        )
        .await;
        if let Ok(Ok(running)) = begun
            && let Err(error) = running.await
        {
            tracing::debug!(%error, "a connection between containers broke");
        }
    };
    let carried = copy_bidirectional(&mut stream, &mut far);
    tokio::pin!(carried);
    tokio::select! {
        () = spoken => {
            let _ = timeout(CLOSING, &mut carried).await;
        }
        _ = &mut carried => {}
    }
}
