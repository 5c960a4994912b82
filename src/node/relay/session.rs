//! The sessions that a relay serves: their listeners, and the end of all their connections when their first process ends.
//! Chooses nothing; what may be opened is `rules::egress`'s.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::{SocketAddrV4, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rules::egress::{EgressOutcome, EgressTarget, NetworkMode, PROXY, SessionEgress};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};

use super::served::ServedSession;
use super::{RelaySight, carry, http, socks};
use crate::network;

/// Connections of all sessions at once, at most 32 KiB each.
const MAX_ALL: usize = 2_048;

/// Sessions that have ended and whose counts no server has taken yet.
const MAX_ENDED: usize = 256;

/// All sessions of this relay.
#[derive(Debug)]
pub(super) struct Sessions {
    runtime: Handle,
    known: Mutex<BTreeMap<String, KnownSession>>,
    /// Places of connections of all of them.
    places: Arc<Semaphore>,
}

#[derive(Debug)]
struct KnownSession {
    served: Arc<ServedSession>,
    task: AbortHandle,
}

/// Where one listener leads.
#[derive(Debug, Clone)]
enum Leads {
    To { name: String, target: EgressTarget },
    Proxy,
}

impl Sessions {
    pub(super) fn new(runtime: Handle) -> Self {
        Self {
            runtime,
            known: Mutex::default(),
            places: Arc::new(Semaphore::new(MAX_ALL)),
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, KnownSession>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves a session until its first process ends. One that is served already keeps its listeners; what it may open from
    /// now on is given, and connections that it may not have any more are closed. Errors: a listener cannot be made; then none
    /// of them is.
    pub(super) fn open(
        &self,
        name: String,
        egress: SessionEgress,
        namespace: &File,
        process: OwnedFd,
    ) -> io::Result<()> {
        let mut known = self.known();
        let serves = |one: &KnownSession| one.served.lives.load(Ordering::Acquire);
        if let Some(one) = known.get(&name).filter(|one| serves(one)) {
            one.served.judge_by(egress);
            return Ok(());
        }
        let points: Vec<(SocketAddrV4, Leads)> = match egress.mode {
            NetworkMode::None => Vec::new(),
            NetworkMode::Proxy => vec![(PROXY, Leads::Proxy)],
            NetworkMode::List => egress
                .points()
                .into_iter()
                .map(|point| {
                    let (name, target) = (point.name, point.target);
                    (point.at, Leads::To { name, target })
                })
                .collect(),
        };
        let addresses: Vec<SocketAddrV4> = points.iter().map(|(at, _)| *at).collect();
        let listeners = network::listen(namespace, &addresses)?;
        for listener in &listeners {
            listener.set_nonblocking(true)?;
        }
        let leads = points.into_iter().map(|(_, leads)| leads);
        let served = Arc::new(ServedSession::of(egress, Arc::clone(&self.places)));
        let all: Vec<(TcpListener, Leads)> = listeners.into_iter().zip(leads).collect();
        let serving = serve(Arc::clone(&served), all, process);
        let task = self.runtime.spawn(serving).abort_handle();
        known.insert(name, KnownSession { served, task });
        forget_ended(&mut known);
        Ok(())
    }

    /// Closes what a session has open, and forgets it.
    pub(super) fn close(&self, name: &str) {
        if let Some(one) = self.known().remove(name) {
            one.task.abort();
        }
    }

    pub(super) fn look(&self) -> Vec<RelaySight> {
        let known = self.known();
        let told = known.iter().map(|(name, one)| RelaySight {
            name: name.clone(),
            lives: one.served.lives.load(Ordering::Acquire),
            rows: one.served.counts.rows(),
            ends: one.served.counts.ends(),
        });
        told.collect()
    }

    pub(super) fn has_living(&self) -> bool {
        let known = self.known();
        known
            .values()
            .any(|one| one.served.lives.load(Ordering::Acquire))
    }
}

/// Forgets ended sessions that no server asked to forget, where there are too many.
fn forget_ended(known: &mut BTreeMap<String, KnownSession>) {
    let ended: Vec<String> = known
        .iter()
        .filter(|(_, one)| !one.served.lives.load(Ordering::Acquire))
        .map(|(name, _)| name.clone())
        .collect();
    for name in ended.iter().skip(MAX_ENDED) {
        known.remove(name);
    }
}

/// Serves one session until its first process ends. Dropped, or at its end, it takes every connection along.
async fn serve(served: Arc<ServedSession>, listeners: Vec<(TcpListener, Leads)>, process: OwnedFd) {
    let mut accepting = JoinSet::new();
    for (listener, leads) in listeners {
        match tokio::net::TcpListener::from_std(listener) {
            Ok(listener) => {
                accepting.spawn(accept(Arc::clone(&served), listener, leads));
            }
            Err(error) => eprintln!("fardel relay: a listener is lost: {error}"),
        }
    }
    // SAFETY: the descriptor belongs to the value that is given and is closed with it alone.
    match unsafe { AsyncFd::register_with_interest(process, Interest::READABLE) } {
        // Readable once the process has ended.
        Ok(process) => drop(process.readable().await),
        Err(error) => eprintln!("fardel relay: the end of a session cannot be seen: {error}"),
    }
    served.lives.store(false, Ordering::Release);
}

/// Takes connections of one listener, one task each, for ever.
async fn accept(served: Arc<ServedSession>, listener: tokio::net::TcpListener, leads: Leads) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            taken = listener.accept() => match taken {
                Ok((client, _)) => {
                    served.pace.turn().await;
                    connections.spawn(take(Arc::clone(&served), client, leads.clone()));
                }
                Err(error) => {
                    eprintln!("fardel relay: a connection is not taken: {error}");
                    // Out of descriptors, for one: it passes, and must not fill the journal.
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn take(served: Arc<ServedSession>, client: TcpStream, leads: Leads) {
    let takes_too_much = served.takes_too_much();
    let (own, all) = (served.places.try_acquire(), served.all.try_acquire());
    let is_full = takes_too_much || own.is_err() || all.is_err();
    match leads {
        Leads::To { name, target } if is_full => {
            served.count(&name, target.port, EgressOutcome::TooMany);
        }
        Leads::Proxy if is_full => {
            served.count("", PROXY.port(), EgressOutcome::TooMany);
        }
        Leads::To { name, target } => {
            let host = match target.host {
                rules::egress::TargetHost::Network { address, .. } => address.to_string(),
                _ => name.clone(),
            };
            let egress = served.egress();
            if !egress.opens(&target) {
                served.count(&name, target.port, EgressOutcome::NotListed);
                return;
            }
            match carry::open(&egress, &target, &host).await {
                Ok(server) => {
                    let connection = served.begin(&name, target.port);
                    let address = carry::address_of(&server);
                    let is_admitted = |now: &SessionEgress| {
                        now.opens(&target) && carry::admits(now, &target, address)
                    };
                    tokio::select! {
                        () = carry::both(&served, &connection, client, server) => {}
                        () = served.refuses(is_admitted) => {}
                    }
                }
                Err(outcome) => drop(served.count(&name, target.port, outcome)),
            }
        }
        Leads::Proxy => match first_byte(&client).await {
            Some(socks::VERSION) => socks::serve(&served, client).await,
            Some(_) => http::serve(&served, client).await,
            None => {}
        },
    }
}

/// What a client of the proxy begins with, which stays to be read; None where it says nothing in time.
async fn first_byte(client: &TcpStream) -> Option<u8> {
    let mut first = [0];
    let looked = tokio::time::timeout(http::HEAD_TIMEOUT, client.peek(&mut first)).await;
    matches!(looked, Ok(Ok(1))).then_some(first[0])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn listener() -> tokio::net::TcpListener {
        let bound = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        bound.expect("a port")
    }

    fn target_of(listener: &tokio::net::TcpListener) -> EgressTarget {
        let at = listener.local_addr().expect("bound");
        EgressTarget::parse(&at.to_string()).expect("a target")
    }

    /// Both ends of a connection that the relay carries to a target.
    async fn carried(
        served: &Arc<ServedSession>,
        outside: &tokio::net::TcpListener,
    ) -> (TcpStream, TcpStream) {
        let (client, taken) = begun(served, outside).await;
        drop(taken);
        let (far, _) = outside.accept().await.expect("connected");
        (client, far)
    }

    async fn begun(
        served: &Arc<ServedSession>,
        outside: &tokio::net::TcpListener,
    ) -> (TcpStream, tokio::task::JoinHandle<()>) {
        let inside = listener().await;
        let at = inside.local_addr().expect("bound");
        let client = TcpStream::connect(at).await.expect("connected");
        let (taken, _) = inside.accept().await.expect("taken");
        let target = target_of(outside);
        let leads = Leads::To {
            name: target.name().expect("one address"),
            target,
        };
        let task = tokio::spawn(take(Arc::clone(served), taken, leads));
        (client, task)
    }

    #[tokio::test]
    async fn a_narrowed_policy_closes_what_it_refuses_and_nothing_else() {
        let (gone, kept) = (listener().await, listener().await);
        let egress = SessionEgress {
            mode: NetworkMode::List,
            targets: vec![target_of(&gone), target_of(&kept)],
            refused: Vec::new(),
        };
        let places = Arc::new(Semaphore::new(MAX_ALL));
        let served = Arc::new(ServedSession::of(egress.clone(), places));
        let (mut closed, mut far_closed) = carried(&served, &gone).await;
        let (mut open, mut far_open) = carried(&served, &kept).await;
        served.judge_by(SessionEgress {
            refused: vec![target_of(&gone)],
            ..egress.clone()
        });
        let mut byte = [0];
        for end in [&mut closed, &mut far_closed] {
            let read = tokio::time::timeout(Duration::from_secs(2), end.read(&mut byte)).await;
            assert!(read.expect("in time").is_ok_and(|count| count == 0));
        }
        let ended: Vec<u16> = served.counts.ends().iter().map(|end| end.port).collect();
        assert_eq!(ended, [target_of(&gone).port]);
        open.write_all(b"x").await.expect("it goes on");
        far_open.read_exact(&mut byte).await.expect("it comes");
        assert_eq!(byte, *b"x");
        let (_client, task) = begun(&served, &gone).await;
        task.await.expect("no panic");
        let refused = served.counts.rows().into_iter();
        let refused: Vec<EgressOutcome> = refused
            .filter(|row| row.port == target_of(&gone).port)
            .map(|row| row.outcome)
            .collect();
        assert!(refused.contains(&EgressOutcome::NotListed), "{refused:?}");
        // The policy comes back.
        served.judge_by(egress);
        carried(&served, &gone).await;
    }
}
