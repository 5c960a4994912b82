//! Disks of single sessions: what a session writes outside its folders, in a file system that is as large as its limit. To
//! make one takes longer than a launch may wait, so a thread keeps some ready of the sizes that were asked for last. Decides
//! no limit.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rules::units::Bytes;
use store::quota::ScopePlace;
use store::trees;

use crate::scopes::{self, NodeScopes};

/// Disks of one size that are kept ready. More: files lie about that no session may want. Fewer: of sessions that begin
/// together the later ones wait.
const READY: usize = 4;
/// Sizes of which some are kept ready.
const SIZES: usize = 2;
/// How much lower than the server's own the thread's claim to a processor is.
const NICER: i32 = 10;
/// How the place of one that is ready begins; no container has such a name.
const READY_NAME: &str = ".ready-";

/// The disks of the sessions of one data directory.
pub(super) struct Scratches {
    data: PathBuf,
    /// Where they are directories of a pool, what makes them. None until it is brought.
    pool: OnceLock<Arc<NodeScopes>>,
    ready: Arc<Mutex<ReadyScratches>>,
    /// None until the first one is asked for: most machines need no thread for this.
    bell: Mutex<Option<Sender<Bytes>>>,
}

/// What lies ready, by size.
#[derive(Default)]
struct ReadyScratches {
    all: BTreeMap<Bytes, Vec<ScopePlace>>,
    /// Sizes, the one that was asked for last at the end.
    sizes: Vec<Bytes>,
}

impl Scratches {
    /// Keeps none ready before one was asked for; what an earlier server kept is removed.
    pub(super) fn of(data: &Path) -> Self {
        for left in leftovers(data) {
            remove(&left);
        }
        Self {
            data: data.to_owned(),
            pool: OnceLock::new(),
            ready: Arc::default(),
            bell: Mutex::default(),
        }
    }

    /// Where the disk of a container is, whether it has one or not.
    pub(super) fn place(&self, name: &str) -> ScopePlace {
        ScopePlace::of_session(&self.data, name)
    }

    /// Has disks lie in the pool of these scopes from now on, where they have one.
    pub(super) fn bring_pool(&self, scopes: Arc<NodeScopes>) {
        // A second one would be a second start of the same machine, which does not happen.
        let _ = self.pool.set(scopes);
    }

    /// Takes what a container wrote out of the pool, where it lies there; a thread removes it. A pool that cannot be reached keeps
    /// no session from its end: the next server takes out what is left there.
    pub(super) fn throw(&self, scratch: &ScopePlace) {
        let Some(scopes) = self.pool.get() else {
            return;
        };
        match scopes.throw_scratch(scratch) {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                tracing::warn!(%error, "what a session wrote stays in the pool until the next start");
                return;
            }
        }
        let scopes = Arc::clone(scopes);
        let begun = std::thread::Builder::new()
            .name("pool-clear".to_owned())
            .spawn(move || {
                let _ = rustix::process::nice(NICER);
                if let Err(error) = scopes.empty_removed() {
                    tracing::debug!(%error, "what a session wrote stays in the pool until the next one ends");
                }
            });
        if let Err(error) = begun {
            tracing::debug!(%error, "what a session wrote stays in the pool until the next one ends");
        }
    }

    /// Mounts a disk of that size on the directory of a container, which is there and empty.
    pub(super) fn open(&self, scratch: &ScopePlace, limit: Bytes) -> io::Result<()> {
        if let Some(scopes) = self.pool.get() {
            match scopes.open_scratch(scratch, limit) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%error, "the disk of a session lies in a file and not in the pool");
                    scopes::close_scratch(scratch)?;
                    self.throw(scratch);
                    trees::remove(scratch.directory())?;
                }
            }
        }
        let kept = locked(&self.ready).take(limit);
        self.ring(limit);
        let moved = kept.is_some_and(|kept| {
            let moved = fs::rename(kept.directory(), scratch.directory());
            moved.is_ok()
        });
        if !moved {
            scopes::make_scratch(scratch, limit)?;
        }
        scopes::mount_scratch(scratch, limit)
    }

    /// Has the thread make what is missing of a size, and begins it. It ends with this value.
    fn ring(&self, limit: Bytes) {
        let mut bell = self.bell.lock().unwrap_or_else(PoisonError::into_inner);
        if bell.is_none() {
            let (new, rung) = channel();
            let (ready, data) = (Arc::clone(&self.ready), self.data.clone());
            let begun = std::thread::Builder::new()
                .name("scratch".to_owned())
                .spawn(move || keep_ready(&data, &ready, &rung));
            match begun {
                Ok(_) => *bell = Some(new),
                Err(error) => tracing::warn!(%error, "no disk of a session is kept ready"),
            }
        }
        if let Some(bell) = &*bell {
            // A thread that is gone left word in the log; then each is made when it is asked for.
            let _ = bell.send(limit);
        }
    }
}

impl ReadyScratches {
    fn take(&mut self, limit: Bytes) -> Option<ScopePlace> {
        self.all.get_mut(&limit)?.pop()
    }

    /// Keeps that a size is asked for; gives those that no session is left for.
    fn note(&mut self, limit: Bytes) -> Vec<ScopePlace> {
        self.sizes.retain(|size| *size != limit);
        self.sizes.push(limit);
        let beyond = self.sizes.len().saturating_sub(SIZES);
        let old: Vec<Bytes> = self.sizes.drain(..beyond).collect();
        let unwanted = old.iter().filter_map(|size| self.all.remove(size));
        unwanted.flatten().collect()
    }

    fn lacks(&self, limit: Bytes) -> bool {
        self.all.get(&limit).map_or(0, Vec::len) < READY
    }
}

fn locked(ready: &Mutex<ReadyScratches>) -> MutexGuard<'_, ReadyScratches> {
    // Changed in one step each; a panic elsewhere leaves nothing half done.
    ready.lock().unwrap_or_else(PoisonError::into_inner)
}

fn keep_ready(data: &Path, ready: &Arc<Mutex<ReadyScratches>>, rung: &Receiver<Bytes>) {
    // Only slower where that is refused.
    let _ = rustix::process::nice(NICER);
    let mut number = 0_u64;
    while let Ok(limit) = rung.recv() {
        let unwanted = locked(ready).note(limit);
        for one in unwanted {
            remove(one.directory());
        }
        let is_wanted = || Arc::strong_count(ready) > 1;
        while is_wanted() && locked(ready).lacks(limit) {
            number += 1;
            let made = ScopePlace::of_session(data, &format!("{READY_NAME}{number}"));
            if let Err(error) = scopes::make_scratch(&made, limit) {
                tracing::warn!(%limit, %error, "no disk of a session is kept ready");
                remove(made.directory());
                break;
            }
            locked(ready).all.entry(limit).or_default().push(made);
        }
    }
}

/// What an earlier server kept ready.
fn leftovers(data: &Path) -> Vec<PathBuf> {
    let beside = ScopePlace::of_session(data, READY_NAME);
    let all = beside.directory().parent().map(fs::read_dir);
    let entries = all.into_iter().flatten().flatten().flatten();
    let kept = entries.filter(|entry| {
        let name = entry.file_name();
        name.as_encoded_bytes().starts_with(READY_NAME.as_bytes())
    });
    kept.map(|entry| entry.path()).collect()
}

fn remove(path: &Path) {
    if let Err(error) = trees::remove(path) {
        tracing::warn!(path = %path.display(), %error, "a disk that no session has stays");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_kept_ready_of_the_sizes_that_were_asked_for_last() {
        let mut ready = ReadyScratches::default();
        let place = |name: &str| ScopePlace::of_session(Path::new("/data"), name);
        let (small, large, other) = (Bytes::mib(64), Bytes::gib(20), Bytes::gib(1));
        for (number, size) in [small, large].into_iter().enumerate() {
            assert!(ready.note(size).is_empty());
            assert!(ready.lacks(size) && ready.take(size).is_none());
            for one in 0..READY {
                let name = format!("{number}-{one}");
                ready.all.entry(size).or_default().push(place(&name));
            }
            assert!(!ready.lacks(size));
        }
        assert_eq!(ready.take(small), Some(place("0-3")));
        assert!(ready.note(small).is_empty() && ready.lacks(small));
        // The large one was asked for before it.
        assert_eq!(ready.note(other).len(), READY);
        assert!(ready.take(large).is_none());
        assert_eq!(ready.take(small), Some(place("0-2")));
    }

    #[test]
    fn what_an_earlier_server_kept_ready_is_found() {
        let data = tempfile::tempdir().expect("a directory");
        assert!(leftovers(data.path()).is_empty());
        let left = ScopePlace::of_session(data.path(), ".ready-7");
        fs::create_dir_all(left.directory()).expect("made");
        let session = ScopePlace::of_session(data.path(), "s-1");
        fs::create_dir_all(session.directory()).expect("made");
        assert_eq!(leftovers(data.path()), [left.directory()]);
    }
}
