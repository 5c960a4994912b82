//! How much work on files of folders runs at once: of one user a little, so that one who lists large directories keeps no
//! other user waiting; of all users as much as leaves threads for the rest of the server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rules::names::UserId;
use rules::refusal::Refusal;
use rules::refusals;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Works of one user that run or wait. Higher: one user's directories keep the disk from others. Lower: a page that sends
/// several files is refused.
const MAX_USER_TURNS: usize = 16;
/// Works of all users that run at once; the others wait. Higher: threads for the rest of the server run out. Lower: a slow
/// directory keeps more users waiting.
const MAX_TURNS: usize = 64;

/// The works that run or wait.
#[derive(Debug)]
pub(crate) struct FolderTurns {
    all: Arc<Semaphore>,
    users: Mutex<HashMap<UserId, usize>>,
}

impl Default for FolderTurns {
    fn default() -> Self {
        Self {
            all: Arc::new(Semaphore::new(MAX_TURNS)),
            users: Mutex::default(),
        }
    }
}

/// One work of a user; no longer counted once dropped.
#[derive(Debug)]
pub(super) struct FolderTurn {
    turns: Arc<FolderTurns>,
    user: UserId,
    /// None while it waits, and where the server ends.
    _permit: Option<OwnedSemaphorePermit>,
}

impl FolderTurns {
    /// Waits until there is room for one more work.
    ///
    /// Errors: `folder.too-many-at-once` where the user has as much under way as one may have.
    pub(super) async fn enter(self: &Arc<Self>, user: UserId) -> Result<FolderTurn, Refusal> {
        let mut turn = self.count(user)?;
        turn._permit = Arc::clone(&self.all).acquire_owned().await.ok();
        Ok(turn)
    }

    fn count(self: &Arc<Self>, user: UserId) -> Result<FolderTurn, Refusal> {
        let mut users = self.users();
        let own = users.entry(user).or_default();
        if *own >= MAX_USER_TURNS {
            return Err(refusals::folder_too_many_at_once(MAX_USER_TURNS).retry_after(1));
        }
        *own += 1;
        drop(users);
        Ok(FolderTurn {
            turns: Arc::clone(self),
            user,
            _permit: None,
        })
    }

    fn users(&self) -> MutexGuard<'_, HashMap<UserId, usize>> {
        // A count is whole after every step.
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FolderTurn {
    fn drop(&mut self) {
        let mut users = self.turns.users();
        if let Some(own) = users.get_mut(&self.user) {
            *own -= 1;
            if *own == 0 {
                users.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_user_has_so_many_works_at_once_and_others_theirs() {
        let turns = Arc::new(FolderTurns::default());
        let user = |number: u128| UserId(uuid::Uuid::from_u128(number));
        let mut own = Vec::new();
        for _ in 0..MAX_USER_TURNS {
            own.push(turns.enter(user(1)).await.expect("there is room"));
        }
        let refused = turns.enter(user(1)).await.expect_err("too many");
        assert_eq!(refused.code, "folder.too-many-at-once");
        let other = turns.enter(user(2)).await.expect("another user");
        own.pop();
        let again = turns.enter(user(1)).await.expect("there is room");
        drop((own, other, again));
        assert!(turns.users().is_empty());
        assert_eq!(turns.all.available_permits(), MAX_TURNS);
    }
}
