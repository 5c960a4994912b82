//! How much work on files of folders runs at once: of one user a little, so that one who lists large directories keeps no
//! other user waiting; of all users as much as leaves threads for the rest of the server.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::acts::Acts;
use rules::names::{FolderId, UserId, VolumeId};
use rules::refusal::Refusal;
use rules::refusals;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Works of one user that run or wait. Higher: one user's directories keep the disk from others. Lower: a page that sends
/// several files is refused.
const MAX_USER_TURNS: usize = 16;
/// Works of all users that run at once, pieces of files among them; the others wait. Higher: threads for the rest of the
/// server run out. Lower: a slow directory keeps more users waiting.
const MAX_TURNS: usize = 64;
/// Archives that one user takes at once. Higher: each has many directories open, and a zip its list in memory. Lower: a user
/// takes several directories one after the other.
const MAX_USER_ARCHIVES: usize = 4;
/// Searches and counts that one user, and all users, have at once; those of other users wait. Higher: each takes 32 MiB of
/// memory and the disk. Lower: users wait for each other.
const MAX_USER_SEARCHES: usize = 2;
const MAX_SEARCHES: usize = 4;
/// Copies inside folders that one user, and all users, have at once; those of other users wait. Higher: copies take the threads
/// of all other works, and the disk. Lower: users wait for each other.
const MAX_USER_COPIES: usize = 2;
const MAX_COPIES: usize = 8;
/// Works on one volume that run at once. Higher: more threads hang with it. Lower: its users wait for each other.
const MAX_VOLUME_TURNS: usize = 8;
/// Folders whose removed files are given back at once. Higher: the disk is slow for sessions. Lower: the room of small
/// removals comes back behind large ones.
const MAX_EMPTYING: usize = 4;

/// The works that run or wait.
#[derive(Debug)]
pub(crate) struct FolderTurns {
    all: Arc<Semaphore>,
    searches: Arc<Semaphore>,
    copies: Arc<Semaphore>,
    users: Mutex<HashMap<(UserId, FolderWork), usize>>,
    /// One for each volume that was ever worked on.
    volumes: Mutex<HashMap<VolumeId, Arc<Semaphore>>>,
    emptying: Mutex<EmptyingQueue>,
    /// Changes that are written down to their end, also where their request is gone.
    acts: Acts,
}

/// What is counted apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum FolderWork {
    Request,
    Archive,
    Search,
    Copy,
}

/// Folders whose removed files wait for a thread that gives their room back.
#[derive(Debug, Default)]
struct EmptyingQueue {
    waiting: BTreeSet<FolderId>,
    threads: usize,
}

impl Default for FolderTurns {
    fn default() -> Self {
        Self {
            all: Arc::new(Semaphore::new(MAX_TURNS)),
            searches: Arc::new(Semaphore::new(MAX_SEARCHES)),
            copies: Arc::new(Semaphore::new(MAX_COPIES)),
            users: Mutex::default(),
            volumes: Mutex::default(),
            emptying: Mutex::default(),
            acts: Acts::default(),
        }
    }
}

/// One work of a user; no longer counted once dropped.
#[derive(Debug)]
pub(super) struct FolderTurn {
    turns: Arc<FolderTurns>,
    counted: (UserId, FolderWork),
    /// None while it waits, and where the server ends.
    _permit: Option<OwnedSemaphorePermit>,
}

impl FolderTurns {
    /// Waits until there is room for one more work.
    ///
    /// Errors: `folder.too-many-at-once` where the user has as much under way as one may have.
    pub(super) async fn enter(self: &Arc<Self>, user: UserId) -> Result<FolderTurn, Refusal> {
        let mut turn = self.count((user, FolderWork::Request), MAX_USER_TURNS)?;
        turn._permit = self.wait().await;
        Ok(turn)
    }

    /// Counts one more work of a user on a volume, which waits for no work elsewhere.
    ///
    /// Errors: as `enter`; `volume.busy`.
    pub(super) fn enter_on_volume(
        self: &Arc<Self>,
        user: UserId,
        volume: VolumeId,
    ) -> Result<FolderTurn, Refusal> {
        let mut turn = self.count((user, FolderWork::Request), MAX_USER_TURNS)?;
        turn._permit = Some(self.enter_volume(volume)?);
        Ok(turn)
    }

    /// Errors: `volume.busy` where as much runs there as may. Work that hangs counts until it comes back.
    pub(crate) fn enter_volume(&self, volume: VolumeId) -> Result<OwnedSemaphorePermit, Refusal> {
        let permit = self.places(volume).try_acquire_owned();
        permit.map_err(|_| refusals::volume_busy().retry_after(1))
    }

    /// As `wait`, for a piece of a file on a volume: it waits for other work there, and for none elsewhere.
    pub(crate) async fn wait_for(&self, volume: Option<VolumeId>) -> Option<OwnedSemaphorePermit> {
        match volume {
            Some(volume) => self.places(volume).acquire_owned().await.ok(),
            None => self.wait().await,
        }
    }

    fn places(&self, volume: VolumeId) -> Arc<Semaphore> {
        // A map is whole after every step.
        let mut volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        let places = volumes
            .entry(volume)
            .or_insert_with(|| Arc::new(Semaphore::new(MAX_VOLUME_TURNS)));
        Arc::clone(places)
    }

    /// Counts an archive for as long as it is taken.
    ///
    /// Errors: as `enter`.
    pub(super) fn enter_archive(self: &Arc<Self>, user: UserId) -> Result<FolderTurn, Refusal> {
        self.count((user, FolderWork::Archive), MAX_USER_ARCHIVES)
    }

    /// Waits until there is room for one more search or count. One on a volume waits for none elsewhere, and keeps none waiting:
    /// the works of the volume bound it.
    ///
    /// Errors: as `enter`.
    pub(super) async fn enter_search(
        self: &Arc<Self>,
        user: UserId,
        volume: Option<VolumeId>,
    ) -> Result<FolderTurn, Refusal> {
        let mut turn = self.count((user, FolderWork::Search), MAX_USER_SEARCHES)?;
        if volume.is_none() {
            turn._permit = Arc::clone(&self.searches).acquire_owned().await.ok();
        }
        Ok(turn)
    }

    /// As `enter_search`, for a copy inside a folder.
    ///
    /// Errors: as `enter`.
    pub(super) async fn enter_copy(
        self: &Arc<Self>,
        user: UserId,
        volume: Option<VolumeId>,
    ) -> Result<FolderTurn, Refusal> {
        let mut turn = self.count((user, FolderWork::Copy), MAX_USER_COPIES)?;
        if volume.is_none() {
            turn._permit = Arc::clone(&self.copies).acquire_owned().await.ok();
        }
        Ok(turn)
    }

    /// Waits until there is room for one more piece of a file, which no user is refused.
    pub(super) async fn wait(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.all).acquire_owned().await.ok()
    }

    /// Changes under way.
    pub(super) fn acts(&self) -> &Acts {
        &self.acts
    }

    /// Waits until every change that was begun is written down.
    pub(crate) async fn ended(&self) {
        self.acts.ended().await;
    }

    /// Keeps that the removed files of a folder are to be given back. True where a thread more has to ask for them.
    pub(super) fn note_emptying(&self, id: FolderId) -> bool {
        let mut queue = self.emptying();
        queue.waiting.insert(id);
        let begins = queue.threads < MAX_EMPTYING;
        queue.threads += usize::from(begins);
        begins
    }

    /// The folder whose removed files are given back next; None ends the thread that asks.
    pub(super) fn next_emptying(&self) -> Option<FolderId> {
        let mut queue = self.emptying();
        let next = queue.waiting.pop_first();
        queue.threads -= usize::from(next.is_none());
        next
    }

    fn count(
        self: &Arc<Self>,
        counted: (UserId, FolderWork),
        most: usize,
    ) -> Result<FolderTurn, Refusal> {
        let mut users = self.users();
        let own = users.get(&counted).copied().unwrap_or_default();
        if own >= most {
            return Err(refusals::folder_too_many_at_once(most).retry_after(1));
        }
        users.insert(counted, own + 1);
        drop(users);
        Ok(FolderTurn {
            turns: Arc::clone(self),
            counted,
            _permit: None,
        })
    }

    fn users(&self) -> MutexGuard<'_, HashMap<(UserId, FolderWork), usize>> {
        // A count is whole after every step.
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn emptying(&self) -> MutexGuard<'_, EmptyingQueue> {
        // Changed in one step each.
        self.emptying.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FolderTurn {
    fn drop(&mut self) {
        let mut users = self.turns.users();
        if let Some(own) = users.get_mut(&self.counted) {
            *own -= 1;
            if *own == 0 {
                users.remove(&self.counted);
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
        let mut archives = Vec::new();
        for _ in 0..MAX_USER_ARCHIVES {
            archives.push(turns.enter_archive(user(1)).expect("counted apart"));
        }
        let refused = turns.enter_archive(user(1)).expect_err("too many");
        assert_eq!(refused.code, "folder.too-many-at-once");
        let other = turns.enter(user(2)).await.expect("another user");
        own.pop();
        let again = turns.enter(user(1)).await.expect("there is room");
        drop((own, other, again, archives));
        assert!(turns.users().is_empty());
        assert_eq!(turns.all.available_permits(), MAX_TURNS);
    }

    #[tokio::test]
    async fn one_user_has_so_many_searches_at_once() {
        let turns = Arc::new(FolderTurns::default());
        let user = |number: u128| UserId(uuid::Uuid::from_u128(number));
        let mut held = Vec::new();
        for number in 0..MAX_SEARCHES as u128 {
            let own = turns.enter_search(user(number / MAX_USER_SEARCHES as u128), None);
            held.push(own.await.expect("there is room"));
        }
        let refused = turns
            .enter_search(user(0), None)
            .await
            .expect_err("too many");
        assert_eq!(refused.code, "folder.too-many-at-once");
        let waiting = tokio::spawn({
            let turns = Arc::clone(&turns);
            async move { turns.enter_search(user(9), None).await.map(|_| ()) }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "others wait");
        let volume = Some(VolumeId(uuid::Uuid::from_u128(1)));
        let elsewhere = turns.enter_search(user(8), volume).await;
        drop(elsewhere.expect("a volume keeps to itself"));
        held.pop();
        waiting.await.expect("it ends").expect("there is room");
    }

    #[tokio::test]
    async fn one_user_has_so_many_copies_at_once() {
        let turns = Arc::new(FolderTurns::default());
        let user = |number: u128| UserId(uuid::Uuid::from_u128(number));
        let mut held = Vec::new();
        for _ in 0..MAX_USER_COPIES {
            let own = turns.enter_copy(user(1), None);
            held.push(own.await.expect("there is room"));
        }
        let refused = turns.enter_copy(user(1), None).await.expect_err("too many");
        assert_eq!(refused.code, "folder.too-many-at-once");
        let other = turns.enter_copy(user(2), None).await;
        held.push(other.expect("others have theirs"));
        assert_eq!(turns.copies.available_permits(), MAX_COPIES - held.len());
        drop(held);
        assert_eq!(turns.copies.available_permits(), MAX_COPIES);
    }

    #[tokio::test]
    async fn a_volume_has_so_many_works_at_once_and_others_theirs() {
        let turns = Arc::new(FolderTurns::default());
        let volume = |number: u128| VolumeId(uuid::Uuid::from_u128(number));
        let mut held = Vec::new();
        for _ in 0..MAX_VOLUME_TURNS {
            held.push(turns.enter_volume(volume(1)).expect("there is room"));
        }
        let refused = turns.enter_volume(volume(1)).expect_err("too many");
        assert_eq!(refused.code, "volume.busy");
        let _other = turns.enter_volume(volume(2)).expect("another volume");
        assert!(turns.wait_for(None).await.is_some(), "nor the own disk");
        held.pop();
        assert!(turns.wait_for(Some(volume(1))).await.is_some());
    }

    #[test]
    fn however_often_files_are_removed_a_few_threads_give_their_room_back() {
        let turns = FolderTurns::default();
        let folder = |number: usize| FolderId(uuid::Uuid::from_u128(number as u128));
        let begun = (0..100).filter(|number| turns.note_emptying(folder(number % 10)));
        assert_eq!(begun.count(), MAX_EMPTYING);
        let mut seen = BTreeSet::new();
        while let Some(next) = turns.next_emptying() {
            seen.insert(next);
        }
        assert_eq!(seen.len(), 10, "each once");
        for _ in 1..MAX_EMPTYING {
            assert_eq!(turns.next_emptying(), None);
        }
        assert!(turns.note_emptying(folder(0)), "no thread is left");
    }
}
