//! Counts the bodies of requests that lie in memory, and the time they take to come: of callers who are
//! not proven little and briefly, of everybody else by user. Never looks into a body.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::StatusCode;
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use rules::names::UserId;
use rules::refusals;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::doors::problem::ProblemResponse;

/// Most bytes of one body while nobody was proven: a sign-in has some hundred.
const MAX_UNPROVEN_BODY_BYTES: usize = 64 << 10;
/// Most bytes of all such bodies together. Higher: a flood takes memory. Lower: a flood keeps sign-ins out.
const MAX_UNPROVEN_BYTES: usize = 8 << 20;
/// Of these, most bytes from one address; loopback is not counted. Higher: fewer addresses keep sign-ins out.
/// Lower: a class behind one router waits to sign in.
const MAX_ADDRESS_BYTES: usize = 512 << 10;
/// A body up to here is short: a form, a launch. Short ones, and the beginnings of long ones, have room of
/// their own, which no upload takes.
const SHORT: usize = 1 << 20;
/// Most bytes of the short bodies of everybody who was proven.
const MAX_SHORT_BYTES: usize = 64 << 20;
/// Most bytes of one user's long bodies together beyond `SHORT`: some ten uploads at once.
const MAX_USER_BYTES: usize = 32 << 20;
/// Most bytes of the long bodies of everybody who was proven, beyond `SHORT` each.
const MAX_PROVEN_BYTES: usize = 96 << 20;
/// What one body is counted as at most: longer ones go to disk in pieces of this size.
const MAX_COUNTED_BYTES: usize = 4 << 20;
/// How long a body may take while nobody was proven.
const UNPROVEN_TAKES: Duration = Duration::from_secs(20);
/// A proven caller's body brings `PACE` bytes in each such time, or all of its rest. Longer: a body that
/// drips holds memory. Shorter: a bad line loses uploads.
const PACE_TIME: Duration = Duration::from_secs(30);
/// See `PACE_TIME`.
const PACE: usize = 4 << 10;
/// When somebody whose body found no room may come again.
const AGAIN_SECONDS: u64 = 5;

/// The bytes of all bodies that are being received or used.
#[derive(Default)]
pub(crate) struct Bodies {
    held: Mutex<HeldBytes>,
}

#[derive(Default)]
struct HeldBytes {
    unproven: usize,
    addresses: HashMap<IpAddr, usize>,
    short: usize,
    long: usize,
    users: HashMap<UserId, UserBytes>,
}

/// What the bodies of one user hold.
#[derive(Default, Clone, Copy)]
struct UserBytes {
    short: usize,
    long: usize,
}

/// Divides what a body holds into its short part and the rest.
fn parts(held: usize) -> (usize, usize) {
    let short = held.min(SHORT);
    (short, held - short)
}

impl HeldBytes {
    fn give_back(&mut self, entry: &BodyEntry) {
        let Some(user) = entry.owner else {
            self.unproven -= entry.held;
            if let Some(address) = entry.address
                && let Some(of_address) = self.addresses.get_mut(&address)
            {
                *of_address -= entry.held;
                if *of_address == 0 {
                    self.addresses.remove(&address);
                }
            }
            return;
        };
        let (short, long) = parts(entry.held);
        self.short -= short;
        self.long -= long;
        if let Some(own) = self.users.get_mut(&user) {
            own.short -= short;
            own.long -= long;
            if own.short + own.long == 0 {
                self.users.remove(&user);
            }
        }
    }

    fn add(&mut self, user: UserId, short: usize, long: usize) {
        if short + long == 0 {
            return;
        }
        self.short += short;
        self.long += long;
        let own = self.users.entry(user).or_default();
        own.short += short;
        own.long += long;
    }

    /// Counts what came of a user's body beyond what it held.
    fn take_proven(
        &mut self,
        user: UserId,
        before: usize,
        now: usize,
    ) -> Result<(), ProblemResponse> {
        let ((was_short, was_long), (short, long)) = (parts(before), parts(now));
        let (short, long) = (short - was_short, long - was_long);
        let own = self.users.get(&user).copied().unwrap_or_default();
        let own_is_full = own.short + short > MAX_USER_BYTES || own.long + long > MAX_USER_BYTES;
        if own_is_full && short + long > 0 {
            return Err(too_many());
        }
        if self.short + short > MAX_SHORT_BYTES || self.long + long > MAX_PROVEN_BYTES {
            return Err(full());
        }
        self.add(user, short, long);
        Ok(())
    }

    fn take_unproven(
        &mut self,
        address: Option<IpAddr>,
        bytes: usize,
    ) -> Result<(), ProblemResponse> {
        let of_address = address.and_then(|address| self.addresses.get(&address).copied());
        let crowded = of_address.unwrap_or_default() + bytes > MAX_ADDRESS_BYTES;
        if self.unproven + bytes > MAX_UNPROVEN_BYTES || address.is_some() && crowded {
            return Err(full());
        }
        self.unproven += bytes;
        if let Some(address) = address {
            *self.addresses.entry(address).or_default() += bytes;
        }
        Ok(())
    }
}

impl Bodies {
    /// The account of one request from an address, none on loopback. What it took is free again when the last
    /// holder drops it.
    pub(super) fn account(self: &Arc<Self>, address: Option<IpAddr>) -> Arc<BodyAccount> {
        Arc::new(BodyAccount {
            bodies: Arc::clone(self),
            entry: Mutex::new(BodyEntry {
                address,
                ..BodyEntry::default()
            }),
        })
    }

    fn held(&self) -> MutexGuard<'_, HeldBytes> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the body of one request took.
pub(super) struct BodyAccount {
    bodies: Arc<Bodies>,
    entry: Mutex<BodyEntry>,
}

#[derive(Default)]
struct BodyEntry {
    address: Option<IpAddr>,
    owner: Option<UserId>,
    received: usize,
    held: usize,
    refused: Option<ProblemResponse>,
}

impl BodyAccount {
    /// The request is this user's: what came of its body and what comes is theirs.
    pub(super) fn proven(&self, user: UserId) {
        let mut entry = self.entry();
        if entry.owner.is_some() {
            return;
        }
        let mut held = self.bodies.held();
        held.give_back(&entry);
        let (short, long) = parts(entry.held);
        held.add(user, short, long);
        drop(held);
        entry.owner = Some(user);
    }

    /// Why its body was not taken, where it was not.
    pub(super) fn refused(&self) -> Option<ProblemResponse> {
        self.entry().refused.clone()
    }

    fn is_proven(&self) -> bool {
        self.entry().owner.is_some()
    }

    /// Counts bytes that came, or says no and keeps the reason.
    fn take(&self, bytes: usize) -> Result<(), ()> {
        let mut entry = self.entry();
        let received = entry.received.saturating_add(bytes);
        let now = received.min(MAX_COUNTED_BYTES);
        let taken = match entry.owner {
            None if received > MAX_UNPROVEN_BODY_BYTES => Err(too_large()),
            None => self.bodies.held().take_unproven(entry.address, bytes),
            Some(user) => self.bodies.held().take_proven(user, entry.held, now),
        };
        if let Err(problem) = taken {
            entry.refused = Some(problem);
            return Err(());
        }
        entry.received = received;
        entry.held = now;
        Ok(())
    }

    fn refuse(&self, problem: ProblemResponse) {
        self.entry().refused = Some(problem);
    }

    fn entry(&self) -> MutexGuard<'_, BodyEntry> {
        self.entry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for BodyAccount {
    fn drop(&mut self) {
        let entry = self.entry();
        self.bodies.held().give_back(&entry);
    }
}

fn too_large() -> ProblemResponse {
    refusals::body_too_large_unproven().into()
}

fn too_many() -> ProblemResponse {
    refusals::body_too_many().retry_after(AGAIN_SECONDS).into()
}

fn full() -> ProblemResponse {
    refusals::body_no_room().retry_after(AGAIN_SECONDS).into()
}

fn too_slow() -> ProblemResponse {
    let refusal = refusals::body_too_slow();
    ProblemResponse::with_status(refusal, StatusCode::REQUEST_TIMEOUT)
}

/// A body that is counted while it comes.
pub(super) struct MeteredBody<B> {
    body: B,
    account: Arc<BodyAccount>,
    began: Instant,
    /// Bytes since the pace was measured last.
    lately: usize,
    late: Option<Pin<Box<Sleep>>>,
}

impl<B> MeteredBody<B> {
    pub(super) fn new(body: B, account: Arc<BodyAccount>) -> Self {
        Self {
            body,
            account,
            began: Instant::now(),
            lately: 0,
            late: None,
        }
    }

    /// When waiting for more is over.
    fn deadline(&self) -> Instant {
        match self.account.is_proven() {
            true => Instant::now() + PACE_TIME,
            false => self.began + UNPROVEN_TAKES,
        }
    }
}

impl<B> Body for MeteredBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<axum::BoxError>,
{
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let over = || Err(io::Error::from(io::ErrorKind::QuotaExceeded).into());
        // What will not be taken need not come.
        let least = usize::try_from(self.body.size_hint().lower()).unwrap_or(usize::MAX);
        if !self.account.is_proven() && least > MAX_UNPROVEN_BODY_BYTES {
            self.account.refuse(too_large());
            return Poll::Ready(Some(over()));
        }
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                if self.account.take(bytes).is_err() {
                    return Poll::Ready(Some(over()));
                }
                self.lately += bytes;
                if self.lately >= PACE {
                    self.lately = 0;
                    self.late = None;
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(other) => Poll::Ready(other.map(|end| end.map_err(Into::into))),
            Poll::Pending => {
                let deadline = self.deadline();
                let late = self
                    .late
                    .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
                if late.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                self.account.refuse(too_slow());
                Poll::Ready(Some(over()))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user() -> UserId {
        UserId(uuid::Uuid::now_v7())
    }

    fn code(account: &BodyAccount) -> (u16, String) {
        let problem = account.refused().expect("refused");
        (problem.status.as_u16(), problem.refusal.code)
    }

    #[test]
    fn strangers_bodies_are_small_and_few_and_take_nothing_from_users() {
        let bodies = Arc::new(Bodies::default());
        let large = bodies.account(None);
        assert!(large.take(MAX_UNPROVEN_BODY_BYTES).is_ok());
        assert!(large.take(1).is_err());
        assert_eq!(code(&large), (413, "body.too-large-unproven".to_owned()));
        let many: Vec<_> = (1..MAX_UNPROVEN_BYTES / MAX_UNPROVEN_BODY_BYTES)
            .map(|_| bodies.account(None))
            .collect();
        for account in &many {
            assert!(account.take(MAX_UNPROVEN_BODY_BYTES).is_ok());
        }
        let one_more = bodies.account(None);
        assert!(one_more.take(1).is_err());
        assert_eq!(code(&one_more), (503, "body.no-room".to_owned()));
        let account = bodies.account(None);
        account.proven(user());
        assert!(
            account.take(1 << 20).is_ok(),
            "users have room of their own"
        );
        drop(many);
        assert!(
            bodies.account(None).take(1).is_ok(),
            "what was held is free"
        );
    }

    #[test]
    fn one_user_fills_their_own_room_and_no_other() {
        let bodies = Arc::new(Bodies::default());
        let (kim, lee) = (user(), user());
        let of = |who: UserId| {
            let account = bodies.account(None);
            account.proven(who);
            account
        };
        let uploads: Vec<_> = (0..MAX_USER_BYTES / (MAX_COUNTED_BYTES - SHORT))
            .map(|_| of(kim))
            .collect();
        for upload in &uploads {
            // However long it is: what went to disk is not in memory.
            for _ in 0..20 {
                assert!(upload.take(1 << 20).is_ok());
            }
        }
        let one_more = of(kim);
        assert!(one_more.take(SHORT).is_ok(), "a form is sent beside them");
        assert!(one_more.take(MAX_COUNTED_BYTES).is_err());
        assert_eq!(code(&one_more), (429, "body.too-many".to_owned()));
        assert!(of(lee).take(1 << 20).is_ok());
        drop(uploads);
        assert!(of(kim).take(1).is_ok());
        drop(one_more);
        let held = bodies.held();
        assert_eq!((held.short, held.long), (0, 0));
        assert!(held.users.is_empty());
    }

    #[test]
    fn one_address_takes_no_others_room_and_uploads_take_none_of_short_requests() {
        let bodies = Arc::new(Bodies::default());
        let address = |last: u8| Some(IpAddr::from([192, 0, 2, last]));
        let many: Vec<_> = (0..MAX_ADDRESS_BYTES / MAX_UNPROVEN_BODY_BYTES)
            .map(|_| bodies.account(address(1)))
            .collect();
        for account in &many {
            assert!(account.take(MAX_UNPROVEN_BODY_BYTES).is_ok());
        }
        let one_more = bodies.account(address(1));
        assert!(one_more.take(1).is_err());
        assert!(bodies.account(address(2)).take(100).is_ok());
        drop(many);
        assert!(bodies.account(address(1)).take(100).is_ok());
        let uploads: Vec<_> = (0..MAX_PROVEN_BYTES / (MAX_COUNTED_BYTES - SHORT))
            .map(|_| {
                let upload = bodies.account(None);
                upload.proven(user());
                assert!(upload.take(MAX_COUNTED_BYTES).is_ok());
                upload
            })
            .collect();
        let account = || {
            let account = bodies.account(None);
            account.proven(user());
            account
        };
        assert!(
            account().take(MAX_COUNTED_BYTES).is_err(),
            "no room for one more upload"
        );
        assert!(account().take(SHORT).is_ok(), "a launch finds room");
        drop(uploads);
        drop(one_more);
        assert!(bodies.held().addresses.is_empty());
        assert!(bodies.held().users.is_empty());
    }
}
