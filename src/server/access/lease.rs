//! A stream's leave to go on. Who opens one proves themselves once; a lease proves it again whenever rows
//! were written and when the proof runs out by the clock. Never ends a stream: its carrier asks.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rules::names::UserId;
use rules::refusal::{Refusal, RefusalKind};
use rules::refusals;
use rules::session::SessionState;
use rules::units::Timestamp;
use rules::users::User;

use super::{
    Caller, TOUCH_SECONDS, Via, ages_at, from_own_network, second_factor, suspended, token_expired,
};
use crate::catalog::Lane;
use crate::{Failure, Server};

/// Ready once the caller may go on no longer, with why. Waits for ever for root on the machine. Not to be
/// asked again after it was ready.
pub type Lease = Pin<Box<dyn Future<Output = Refusal> + Send>>;

/// After a commit, the wait before a lease looks. Longer: a revoked token is heard of later, and two seconds
/// are promised. Shorter: on a busy box every stream reads rows all the time.
const GATHER: Duration = Duration::from_millis(700);
/// Longest wait between two looks: a clock that is set forward ends nothing by itself.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Streams that one user has open at once: pages, terminals, logs, journals. More: one user's pages are
/// rendered all the time. Fewer: a user with a tab for each of a hundred sessions is refused.
const MAX_PER_USER: usize = 200;

/// How many streams each user has open.
#[derive(Debug, Default)]
pub(crate) struct OpenStreams {
    users: Mutex<HashMap<UserId, usize>>,
}

/// One open stream; no longer counted once dropped.
struct StreamPermit {
    streams: Arc<OpenStreams>,
    user: UserId,
}

impl OpenStreams {
    /// A place for one more stream of this user; none where they have as many as one may have.
    fn enter(self: &Arc<Self>, user: UserId) -> Option<StreamPermit> {
        let mut users = self.users();
        let own = users.entry(user).or_default();
        if *own >= MAX_PER_USER {
            return None;
        }
        *own += 1;
        drop(users);
        Some(StreamPermit {
            streams: Arc::clone(self),
            user,
        })
    }

    fn users(&self) -> MutexGuard<'_, HashMap<UserId, usize>> {
        // A count is whole after every step.
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut users = self.streams.users();
        if let Some(own) = users.get_mut(&self.user) {
            *own -= 1;
            if *own == 0 {
                users.remove(&self.user);
            }
        }
    }
}

/// The lease of a stream that `caller` opens: one a stream, kept and asked for as long as it is open.
///
/// Ends with `token.revoked`, `token.expired`, `ssh-key.revoked`, `ssh-key.expired`, `sign-in.ended`, `user.suspended`,
/// `sign-in.address-refused`, `password.change-needed`, `second-factor.set-up-needed` or `role.changed`, at most a second
/// after the commit; at once with `stream.too-many` where the user has too many streams open. Costs three rows by key for
/// each commit, at most three times in two seconds.
pub fn lease(server: &Server, caller: &Caller) -> Lease {
    let (server, caller) = (server.clone(), caller.clone());
    if caller.via == Via::LocalRoot {
        return Box::pin(std::future::pending());
    }
    let place = server.open_streams().enter(caller.subject.user);
    Box::pin(async move {
        let Some(_place) = place else {
            return too_many();
        };
        let mut revision = server.catalog().revision();
        loop {
            revision.borrow_and_update();
            let wait = match proven(&server, &caller) {
                Ok(end) => {
                    let left = end.map(|end| end.millis_since(server.clock().now()));
                    left.map_or(MAX_WAIT, Duration::from_millis).min(MAX_WAIT)
                }
                Err(Failure::Refusal(refusal))
                    if matches!(
                        refusal.kind,
                        RefusalKind::Unauthenticated | RefusalKind::Denied
                    ) =>
                {
                    return refusal;
                }
                Err(failure) => {
                    // A disk that stutters closes no terminal; the next look tells.
                    tracing::warn!(error = %base::observe::chain(&failure), "the permission of a stream cannot be checked again");
                    GATHER
                }
            };
            match tokio::time::timeout(wait, revision.changed()).await {
                Ok(Ok(())) => tokio::time::sleep(GATHER).await,
                Ok(Err(_)) => {
                    return refusals::server_stopping();
                }
                Err(_) => {}
            }
        }
    })
}

/// When the proof runs out by itself; Err where the caller is not who they were.
fn proven(server: &Server, caller: &Caller) -> Result<Option<Timestamp>, Failure> {
    let now = server.clock().now();
    server
        .catalog()
        .read_now("check the permission of a stream", |view| {
            let since = view.second_factor_required_since()?;
            let due = |user: &User| second_factor::due(server, user, since);
            match caller.via {
                Via::LocalRoot => Ok(None),
                Via::Browser { session } => {
                    let Some((browser, user)) = view.browser_by_id(session.0)? else {
                        return Err(signed_out().into());
                    };
                    let end = same(server, caller, &user, due(&user), now)?;
                    if browser.ends_at <= now {
                        return Err(signed_out().into());
                    }
                    Ok(Some(end.unwrap_or(browser.ends_at).min(browser.ends_at)))
                }
                Via::Token { id } => {
                    let Some((token, user)) = view.token_by_id(id)? else {
                        return Err(refusals::token_revoked().into());
                    };
                    let user_end = same(server, caller, &user, due(&user), now)?;
                    match token.expires_at {
                        Some(end) if end <= now => Err(token_expired(end).into()),
                        end => Ok(end.into_iter().chain(user_end).min()),
                    }
                }
                Via::SshKey { id } => {
                    let Some((key, user)) = view.ssh_key_by_id(id)? else {
                        return Err(refusals::ssh_key_revoked().into());
                    };
                    let user_end = same(server, caller, &user, due(&user), now)?;
                    match key.expires_at {
                        Some(end) if end <= now => Err(refusals::ssh_key_expired(end).into()),
                        end => Ok(end.into_iter().chain(user_end).min()),
                    }
                }
                Via::Session { id } => {
                    let row = view.session(id)?;
                    let runs = row.filter(|row| row.state() == SessionState::Running);
                    let user = runs.map(|row| view.user(row.owner)).transpose()?;
                    let user = user.flatten().ok_or_else(refusals::inner_door_closed)?;
                    // No user signs in by it, so a second factor that is due is no matter.
                    Ok(same(server, caller, &user, None, now)?)
                }
            }
        })
}

/// When the next role of the user or their account ends, their password is too old, or a second factor is due. Errors: the
/// user may less than when the stream was opened.
fn same(
    server: &Server,
    caller: &Caller,
    user: &User,
    due: Option<Timestamp>,
    now: Timestamp,
) -> Result<Option<Timestamp>, Refusal> {
    if user.is_shut_out(now) {
        return Err(suspended());
    }
    if let Some(source) = caller.source {
        from_own_network(user, source)?;
    }
    if caller.subject.exceeds(&user.grants_at(now)) {
        return Err(refusals::role_changed());
    }
    let aged = match caller.via {
        Via::Browser { .. } => ages_at(server, user),
        Via::Token { .. } | Via::SshKey { .. } | Via::Session { .. } | Via::LocalRoot => None,
    };
    let must_change = user.must_change_password || aged.is_some_and(|end| end <= now);
    // What is open where the user sets another one stays open.
    if must_change && !caller.must_change_password {
        return Err(refusals::password_change_needed());
    }
    if due.is_some_and(|due| due <= now) {
        return Err(refusals::second_factor_set_up_needed());
    }
    let aged = aged.filter(|end| *end > now);
    let ends = user.next_grant_end(now).into_iter().chain(due).chain(aged);
    let ends = ends.chain(user.account_end());
    Ok(ends.min())
}

fn too_many() -> Refusal {
    refusals::stream_too_many(MAX_PER_USER)
}

fn signed_out() -> Refusal {
    refusals::sign_in_ended()
}

/// Keeps a browser's sign-in from ending by rest while its user types into a terminal of it.
pub struct InUse {
    server: Server,
    via: Via,
    noted: Timestamp,
}

impl InUse {
    pub fn of(server: &Server, caller: &Caller) -> Self {
        Self {
            server: server.clone(),
            via: caller.via,
            noted: server.clock().now(),
        }
    }

    /// The user typed. Writes at most once a minute, and waits for nothing.
    pub fn note(&mut self) {
        let Via::Browser { session } = self.via else {
            return;
        };
        let now = self.server.clock().now();
        if now.seconds_since(self.noted) < TOUCH_SECONDS {
            return;
        }
        self.noted = now;
        self.server
            .catalog()
            .write_later(Lane::Loops, "note a browser's last use", move |rows| {
                rows.touch_browser(session.0)
            });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_opens_so_many_streams_and_others_theirs() {
        let streams = Arc::new(OpenStreams::default());
        let (kim, lee) = (1, 2);
        let user = |number: u128| UserId(uuid::Uuid::from_u128(number));
        let mut open: Vec<StreamPermit> = (0..MAX_PER_USER)
            .map(|_| streams.enter(user(kim)).expect("there is room"))
            .collect();
        assert!(streams.enter(user(kim)).is_none());
        assert!(streams.enter(user(lee)).is_some());
        open.pop();
        let again = streams.enter(user(kim));
        assert!(again.is_some());
        drop((open, again));
        assert!(streams.users().is_empty());
    }
}
