//! Counts who follows logs: so many for one user, so many in all. Never reads a log.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Body;
use futures_util::StreamExt as _;
use rules::names::UserId;
use rules::refusal::Refusal;
use rules::refusals;

/// Logs that one user follows at once. Lower: a page for each session of a class of thirty is refused.
const MAX_PER_USER: usize = 32;
/// Logs that are followed at once by everybody. Higher: each costs half a megabyte where it is not read.
const MAX_FOLLOWERS: usize = 256;

/// Everybody who follows a log now.
#[derive(Default)]
pub(super) struct LogFollowers {
    users: Mutex<HashMap<UserId, usize>>,
}

/// One follower; leaves when dropped.
pub(super) struct FollowerPermit {
    followers: Arc<LogFollowers>,
    user: UserId,
}

impl LogFollowers {
    /// Takes a place until it is dropped.
    ///
    /// Errors: `log.too-many-followers` (429) at one user's limit, `log.no-room` (503) at everybody's.
    pub(super) fn enter(self: &Arc<Self>, user: UserId) -> Result<FollowerPermit, Refusal> {
        let mut users = self.users();
        if users.get(&user).copied().unwrap_or_default() >= MAX_PER_USER {
            return Err(refusals::log_too_many_followers(MAX_PER_USER).retry_after(5));
        }
        if users.values().sum::<usize>() >= MAX_FOLLOWERS {
            return Err(refusals::log_no_room().retry_after(5));
        }
        *users.entry(user).or_default() += 1;
        Ok(FollowerPermit {
            followers: Arc::clone(self),
            user,
        })
    }

    fn users(&self) -> MutexGuard<'_, HashMap<UserId, usize>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The same body; the place is kept until its end, or until its reader is gone.
pub(super) fn held(body: Body, place: Option<FollowerPermit>) -> Body {
    let Some(place) = place else {
        return body;
    };
    Body::from_stream(body.into_data_stream().map(move |piece| {
        let _kept = &place;
        piece
    }))
}

impl Drop for FollowerPermit {
    fn drop(&mut self) {
        let mut users = self.followers.users();
        if let Some(count) = users.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                users.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_follows_so_many_logs_and_everybody_so_many_more() {
        let followers = Arc::new(LogFollowers::default());
        let enter = |user: u128| {
            followers
                .enter(UserId(uuid::Uuid::from_u128(user)))
                .map_err(|refusal| refusal.code)
        };
        let mut places: Vec<FollowerPermit> =
            (0..MAX_PER_USER).map(|_| enter(1).expect("room")).collect();
        assert_eq!(enter(1).err().as_deref(), Some("log.too-many-followers"));
        places.pop();
        places.push(enter(1).expect("one has left"));
        for user in 2.. {
            match enter(user) {
                Ok(place) => places.push(place),
                Err(code) => {
                    assert_eq!(code, "log.no-room");
                    break;
                }
            }
        }
        assert_eq!(places.len(), MAX_FOLLOWERS);
        drop(places);
        assert!(followers.users().is_empty());
    }

    #[tokio::test]
    async fn a_place_is_kept_while_the_log_is_read() {
        let followers = Arc::new(LogFollowers::default());
        let place = followers.enter(UserId(uuid::Uuid::from_u128(1)));
        let body = held(Body::from("a line"), place.ok());
        let mut pieces = body.into_data_stream();
        let piece = pieces.next().await.expect("a piece").expect("whole");
        assert_eq!(piece, "a line");
        assert_eq!(followers.users().len(), 1);
        drop(pieces);
        assert!(followers.users().is_empty());
    }
}
