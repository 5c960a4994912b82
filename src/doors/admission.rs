//! Tells the listener that a request's caller was proven, so that connection and body are counted as
//! theirs from then on. Never authenticates and never counts; that is `access` and the listener.

use std::sync::Arc;

use axum::http::Extensions;
use rules::names::UserId;

/// What a listener does when a caller is authenticated.
pub trait Admits: Send + Sync {
    /// The caller of this request is this user. May be called more than once.
    fn proven(&self, user: UserId);
}

/// The listener's ear in a request. Absent where nothing is counted: the local socket.
#[derive(Clone)]
pub struct Admission(pub Arc<dyn Admits>);

/// Says that the request with these extensions is this user's.
pub fn proven(extensions: &Extensions, user: UserId) {
    if let Some(Admission(listener)) = extensions.get() {
        listener.proven(user);
    }
}
