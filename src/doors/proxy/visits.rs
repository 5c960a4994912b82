//! Who is in which app. A visit is the leave of one sign-in to use one app from one address: it is proven once, looked at
//! again after each commit, and everything that goes on under it ends with it. A route is the way to one app, with the
//! connections to it that wait for the next request.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::http::upstream::AppUpstream;
use rules::app_port::AppPort;
use rules::names::{ContainerName, SessionId};
use rules::refusal::Refusal;
use rules::refusals;
use server::Server;
use server::access::{AppPass, Caller, InUse, Via, lease};
use server::actions::apps;
use server::actions::idle_rules::Inside;
use tokio::sync::{Semaphore, watch};
use uuid::Uuid;

/// Requests and sockets of one app that are open at once. Higher: one app takes the connections of the whole machine. Lower:
/// a class that shares a page of an app waits.
pub(super) const MAX_OPEN: usize = 256;
/// Connections to one app that wait for a request. More: sockets of the machine. Fewer: a page with many parts reconnects.
const MAX_WAITING: usize = 32;
/// How often those that wait are looked at. Longer: one that the app has closed stays open here, and its session's network
/// with it. Shorter: a box with open apps never rests.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// Looks in which one may wait: a minute. More: sockets of the machine. Fewer: a page that asks now and then reconnects.
const MAX_LOOKS: u32 = 12;
/// How long a visit rests without a request before it is forgotten; the next one proves it again.
const REST: Duration = Duration::from_secs(60);
/// Milliseconds between two notes of activity: what counts is whether there was one in a minute.
const NOTE_MILLIS: i64 = 1_000;

/// Whose leave it is, for which session, at which port and from where.
type VisitKey = (u8, Uuid, SessionId, u16, IpAddr);

fn key(pass: &AppPass, source: IpAddr) -> VisitKey {
    let (kind, proof) = match pass.via {
        Via::Browser { session } => (0, session.0),
        Via::Token { id } => (1, id.0),
        // None of these has passes.
        Via::SshKey { .. } | Via::Session { .. } | Via::LocalRoot => (2, Uuid::nil()),
    };
    (kind, proof, pass.session, pass.port, source)
}

/// The leave of one sign-in to use one app.
pub(super) struct AppVisit {
    pub(super) caller: Caller,
    pub(super) route: Arc<AppRoute>,
    pub(super) at: AppPort,
    over: watch::Receiver<Option<Refusal>>,
    touched: AtomicBool,
    noted: AtomicI64,
    in_use: Mutex<InUse>,
}

impl AppVisit {
    /// Ready once nothing may go on under it, with why.
    pub(super) async fn over(&self) -> Refusal {
        let mut over = self.over.clone();
        let found = over.wait_for(Option::is_some).await;
        let refusal = found.ok().and_then(|found| found.clone());
        refusal.unwrap_or_else(refusals::server_stopping)
    }

    fn is_over(&self) -> bool {
        self.over.borrow().is_some()
    }

    /// Its user did something: neither the sign-in nor the session rests.
    pub(super) fn note_activity(&self, server: &Server) {
        let now = server.clock().now().as_millis();
        let before = self.noted.load(Ordering::Acquire);
        if (now - before).abs() < NOTE_MILLIS {
            return;
        }
        self.noted.store(now, Ordering::Release);
        Inside::of(server, self.route.container).typed();
        locked(&self.in_use).note();
    }
}

/// The way to one app.
pub(super) struct AppRoute {
    pub(super) container: ContainerName,
    pub(super) inner_port: u16,
    pub(super) places: Arc<Semaphore>,
    waiting: Mutex<WaitingUpstreams>,
}

/// Connections that wait for the next request.
#[derive(Default)]
struct WaitingUpstreams {
    /// The one that was used last stands last; each with the looks that it has waited for.
    open: Vec<(AppUpstream, u32)>,
    /// Whether a task looks at them.
    is_watched: bool,
}

impl AppRoute {
    fn new(container: ContainerName, inner_port: u16) -> Self {
        Self {
            container,
            inner_port,
            places: Arc::new(Semaphore::new(MAX_OPEN)),
            waiting: Mutex::default(),
        }
    }

    /// The connection that was used last of those that can take a request. The app may have closed it.
    pub(super) fn waiting(&self) -> Option<AppUpstream> {
        let (upstream, _) = locked(&self.waiting).open.pop()?;
        Some(upstream)
    }

    /// Keeps a connection for the next request.
    pub(super) fn keep(self: &Arc<Self>, upstream: AppUpstream) {
        let mut waiting = locked(&self.waiting);
        if waiting.open.len() >= MAX_WAITING {
            return;
        }
        waiting.open.push((upstream, 0));
        if !std::mem::replace(&mut waiting.is_watched, true) {
            // Owned by those that wait: it ends when none does.
            tokio::spawn(Arc::clone(self).watch());
        }
    }

    /// Looks at those that wait for as long as any does.
    async fn watch(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            if !self.look() {
                return;
            }
        }
    }

    /// Closes those that the app has closed, and those that wait for long; false where none waits any more.
    fn look(&self) -> bool {
        let mut waiting = locked(&self.waiting);
        waiting.open.retain_mut(|(upstream, looks)| {
            *looks += 1;
            *looks < MAX_LOOKS && upstream.rests()
        });
        waiting.is_watched = !waiting.open.is_empty();
        waiting.is_watched
    }
}

/// Everything that is open.
#[derive(Default)]
pub(super) struct AppVisits {
    open: Mutex<HashMap<VisitKey, Arc<AppVisit>>>,
    routes: Mutex<HashMap<u16, Arc<AppRoute>>>,
}

impl AppVisits {
    /// The visit that a pass belongs to, where it goes on.
    pub(super) fn known(&self, pass: &AppPass, source: IpAddr) -> Option<Arc<AppVisit>> {
        let open = locked(&self.open);
        let visit = open
            .get(&key(pass, source))
            .filter(|visit| !visit.is_over())?;
        visit.touched.store(true, Ordering::Release);
        Some(Arc::clone(visit))
    }

    /// Begins the visit of a caller who may enter; gives the one that began meanwhile.
    pub(super) fn begin(
        self: &Arc<Self>,
        server: &Server,
        pass: &AppPass,
        caller: Caller,
        at: AppPort,
        container: ContainerName,
    ) -> Arc<AppVisit> {
        let source = caller
            .source
            .unwrap_or(std::net::Ipv4Addr::UNSPECIFIED.into());
        let key = key(pass, source);
        let mut open = locked(&self.open);
        if let Some(known) = open.get(&key).filter(|known| !known.is_over()) {
            return Arc::clone(known);
        }
        let (tell, over) = watch::channel(None);
        let visit = Arc::new(AppVisit {
            route: self.route(at.port, container, at.inner_port),
            in_use: Mutex::new(InUse::of(server, &caller)),
            caller,
            at,
            over,
            touched: AtomicBool::new(true),
            noted: AtomicI64::new(0),
        });
        open.insert(key, Arc::clone(&visit));
        drop(open);
        // Owned by the visit: it ends with it.
        tokio::spawn(Arc::clone(self).look_after(server.clone(), key, Arc::clone(&visit), tell));
        visit
    }

    /// Ends a visit when its leave has ended, and forgets one that rests.
    async fn look_after(
        self: Arc<Self>,
        server: Server,
        key: VisitKey,
        visit: Arc<AppVisit>,
        tell: watch::Sender<Option<Refusal>>,
    ) {
        let container = visit.route.container;
        let ended = tokio::select! {
            refusal = lease(&server, &visit.caller) => Some(refusal),
            refusal = apps::withdrawn(&server, &visit.caller, &visit.at, container) => Some(refusal),
            () = self.rests(key, &visit) => None,
        };
        // From now on its port rests.
        apps::left(&server, &visit.at);
        let Some(refusal) = ended else {
            return;
        };
        tracing::debug!(code = refusal.code, port = visit.at.port, "a visit ended");
        let mut open = locked(&self.open);
        if open
            .get(&key)
            .is_some_and(|known| Arc::ptr_eq(known, &visit))
        {
            open.remove(&key);
        }
        drop(open);
        tell.send_replace(Some(refusal));
    }

    /// Ready once nothing was asked for some time and nothing goes on; the visit is then forgotten.
    async fn rests(&self, key: VisitKey, visit: &Arc<AppVisit>) {
        loop {
            tokio::time::sleep(REST).await;
            let mut open = locked(&self.open);
            // The table's and ours: all others are taken from the table, under its lock.
            if !visit.touched.swap(false, Ordering::AcqRel) && Arc::strong_count(visit) <= 2 {
                open.remove(&key);
                return;
            }
        }
    }

    fn route(&self, port: u16, container: ContainerName, inner_port: u16) -> Arc<AppRoute> {
        let mut routes = locked(&self.routes);
        if let Some(known) = routes.get(&port)
            && known.container == container
            && known.inner_port == inner_port
        {
            return Arc::clone(known);
        }
        let route = Arc::new(AppRoute::new(container, inner_port));
        routes.insert(port, Arc::clone(&route));
        route
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each value is whole after every step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(number: u128) -> ContainerName {
        ContainerName {
            session: SessionId(Uuid::from_u128(number)),
            incarnation: 1,
            index: 0,
        }
    }

    #[test]
    fn a_route_leads_to_one_container() {
        let visits = AppVisits::default();
        let one = visits.route(1, container(1), 8888);
        assert!(Arc::ptr_eq(&one, &visits.route(1, container(1), 8888)));
        assert!(!Arc::ptr_eq(&one, &visits.route(1, container(3), 8888)));
        assert!(!Arc::ptr_eq(&one, &visits.route(2, container(1), 8888)));
    }

    #[tokio::test]
    async fn connections_wait_for_a_minute_and_until_the_app_closes_them() {
        let route = Arc::new(AppRoute::new(container(1), 8888));
        let keep_one = async || {
            let (ours, app) = tokio::io::duplex(64);
            let upstream = AppUpstream::over(Box::new(ours)).await;
            route.keep(upstream.expect("it speaks"));
            app
        };
        let app = keep_one().await;
        assert!(route.look(), "the app holds it");
        drop(app);
        assert!(!route.look(), "the app closed it");
        assert!(route.waiting().is_none());
        let _app = keep_one().await;
        let looks = (0..=MAX_LOOKS).take_while(|_| route.look()).count();
        assert_eq!(looks + 1, MAX_LOOKS as usize);
        let mut apps = Vec::new();
        for _ in 0..=MAX_WAITING {
            apps.push(keep_one().await);
        }
        let waiting = std::iter::from_fn(|| route.waiting());
        assert_eq!(waiting.count(), MAX_WAITING);
    }
}
