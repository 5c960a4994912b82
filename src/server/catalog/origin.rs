//! Whose request a task works for: who proved to be its caller, by what, and where it came from. Doors begin it, `access`
//! fills in who it is, and the catalog's writes take it along, so that no action has to hand it on; and whether a
//! write has its row of the audit log yet. Decides nothing.

use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError};

use rules::names::UserId;
use rules::tenancy::DomainId;
use uuid::Uuid;

tokio::task_local! {
    static ORIGIN: Arc<RequestOrigin>;
}

/// One request under way.
#[derive(Debug, Default)]
pub(crate) struct RequestOrigin {
    /// Address of the client.
    pub(crate) address: String,
    /// Id of the request.
    pub(crate) request: String,
    caller: Mutex<Option<ProvenCaller>>,
}

/// Who a request is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProvenCaller {
    pub(crate) user: UserId,
    pub(crate) name: String,
    pub(crate) domain: DomainId,
    /// `browser`, `token`, `ssh-key`, `session` or `socket`.
    pub(crate) via: &'static str,
    /// The sign-in, the token, the key or the session.
    pub(crate) credential: Option<Uuid>,
}

impl RequestOrigin {
    pub(crate) fn new(address: String, request: String) -> Self {
        Self {
            address,
            request,
            caller: Mutex::default(),
        }
    }

    pub(crate) fn caller(&self) -> Option<ProvenCaller> {
        self.caller
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// What the writer keeps about acts while one request runs.
pub(super) struct ActRecorder {
    pub(super) origin: Option<Arc<RequestOrigin>>,
    /// Whether the request has its row, or needs none.
    pub(super) settled: Cell<bool>,
    /// It follows from rows and is no act of anyone.
    pub(super) muted: Cell<bool>,
}

impl ActRecorder {
    pub(super) fn of(origin: Option<Arc<RequestOrigin>>) -> Self {
        Self {
            origin,
            settled: Cell::new(false),
            muted: Cell::new(false),
        }
    }

    /// True for a request of a door that has recorded no act.
    pub(super) fn needs_a_row(&self) -> bool {
        self.origin.is_some() && !self.settled.get()
    }
}

/// Runs `work` as part of a request.
pub(crate) async fn within<T>(origin: Arc<RequestOrigin>, work: impl Future<Output = T>) -> T {
    ORIGIN.scope(origin, work).await
}

/// The request that this task works for; None for what the server does by itself.
pub(crate) fn current() -> Option<Arc<RequestOrigin>> {
    ORIGIN.try_with(Arc::clone).ok()
}

/// Notes who the caller of the current request is.
pub(crate) fn proven(caller: ProvenCaller) {
    if let Some(origin) = current() {
        let mut known = origin.caller.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some(caller);
    }
}

/// Lets work that runs on a thread of its own stay part of the request that asks for it.
pub(crate) fn carried_along<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let origin = current();
    move || match origin {
        Some(origin) => ORIGIN.sync_scope(origin, work),
        None => work(),
    }
}

/// Lets work that runs in a task of its own stay part of the request that asks for it.
pub(crate) fn carried<T>(
    work: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = T> + Send + 'static
where
    T: Send + 'static,
{
    let origin = current();
    async move {
        match origin {
            Some(origin) => within(origin, work).await,
            None => work.await,
        }
    }
}
