//! Where no limit is held by the kernel: what the folders of one owner take and may take, as it was counted last, and what was
//! written through this server since. Refuses what would lead beyond the limit. Counts nothing itself, and holds no session back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rules::folder::ScopeOwner;
use rules::names::FolderId;
use rules::refusals;
use rules::units::{Bytes, Timestamp};

use super::failure::FolderError;

/// What is known of all folders that count on one limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedScope {
    /// Whose limit it is.
    pub owner: ScopeOwner,
    pub limit: Bytes,
    /// The sum of what was counted of each folder last.
    pub used: Bytes,
    /// When each of the folders was counted; None for one that was not counted yet.
    pub counts: BTreeMap<FolderId, Option<Timestamp>>,
}

/// What one limit leaves.
#[derive(Debug)]
pub(super) struct CountedLimit {
    known: Mutex<KnownUse>,
}

#[derive(Debug)]
struct KnownUse {
    told: CountedScope,
    /// Bytes that were written into each folder since it was counted.
    written: BTreeMap<FolderId, u64>,
}

impl KnownUse {
    fn used(&self) -> u64 {
        let written: u64 = self.written.values().sum();
        self.told.used.0.saturating_add(written)
    }
}

impl CountedLimit {
    fn known(&self) -> MutexGuard<'_, KnownUse> {
        // Changed in one step each.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes news of the rows in. What was written into a folder that was counted since is part of its count.
    fn tell(&self, told: CountedScope) {
        let mut known = self.known();
        let before = std::mem::replace(&mut known.told, told);
        let KnownUse { told, written } = &mut *known;
        written.retain(|folder, _| {
            let now = told.counts.get(folder);
            now.is_some() && before.counts.get(folder) == now
        });
    }

    /// Errors: `quota.exceeded`.
    pub(super) fn refuse_beyond(&self, bytes: u64) -> Result<(), FolderError> {
        let known = self.known();
        let (used, limit) = (known.used(), known.told.limit);
        match used.saturating_add(bytes) > limit.0 {
            true => Err(refusals::quota_exceeded(Bytes(used), limit).into()),
            false => Ok(()),
        }
    }

    /// Keeps that bytes were written into a folder.
    pub(super) fn add(&self, folder: FolderId, bytes: u64) {
        let mut known = self.known();
        let written = known.written.entry(folder).or_default();
        *written = written.saturating_add(bytes);
    }
}

/// What one folder counts on.
#[derive(Debug, Clone)]
pub(super) struct FolderCount {
    pub(super) folder: FolderId,
    pub(super) limit: Arc<CountedLimit>,
}

/// All limits that were told of. Two entries for each folder of owners of whom something was written to since the start.
#[derive(Debug, Default)]
pub(super) struct CountedLimits(Mutex<CountedFolders>);

#[derive(Debug, Default)]
struct CountedFolders {
    limits: BTreeMap<ScopeOwner, Arc<CountedLimit>>,
    folders: BTreeMap<FolderId, ScopeOwner>,
}

impl CountedLimits {
    fn all(&self) -> MutexGuard<'_, CountedFolders> {
        // Changed in steps that each leave it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn tell(&self, told: CountedScope) {
        let mut all = self.all();
        let owner = told.owner;
        let ids: BTreeSet<FolderId> = told.counts.keys().copied().collect();
        // One that is gone, or counts on another limit by now.
        all.folders
            .retain(|id, of| *of != owner || ids.contains(id));
        all.folders.extend(ids.iter().map(|id| (*id, owner)));
        match all.limits.get(&owner) {
            Some(limit) => limit.tell(told),
            None => {
                let known = Mutex::new(KnownUse {
                    told,
                    written: BTreeMap::new(),
                });
                all.limits.insert(owner, Arc::new(CountedLimit { known }));
            }
        }
    }

    /// Holds a folder to nothing any more that it was held to by itself.
    pub(super) fn forget(&self, folder: FolderId) {
        let mut all = self.all();
        let own = ScopeOwner::Folder(folder);
        if all.folders.get(&folder) == Some(&own) {
            all.folders.remove(&folder);
            all.limits.remove(&own);
        }
    }

    /// Those into which something was written since they were counted.
    pub(super) fn written(&self) -> BTreeSet<FolderId> {
        let limits: Vec<Arc<CountedLimit>> = self.all().limits.values().cloned().collect();
        let mut written = BTreeSet::new();
        for limit in limits {
            written.extend(limit.known().written.keys().copied());
        }
        written
    }

    /// What a folder counts on; None where nothing was told of it.
    pub(super) fn of(&self, folder: FolderId) -> Option<FolderCount> {
        let all = self.all();
        let limit = all.limits.get(all.folders.get(&folder)?)?;
        Some(FolderCount {
            folder,
            limit: Arc::clone(limit),
        })
    }
}

#[cfg(test)]
mod tests {
    use rules::names::UserId;
    use uuid::Uuid;

    use super::*;

    const OWNER: ScopeOwner =
        ScopeOwner::Owner(rules::folder::FolderOwner::User(UserId(Uuid::from_u128(7))));
    const ONE: FolderId = FolderId(Uuid::from_u128(1));
    const OTHER: FolderId = FolderId(Uuid::from_u128(2));

    fn told(used: u64, counted: [Option<i64>; 2]) -> CountedScope {
        let counted = counted.map(|at| at.map(Timestamp::from_millis));
        CountedScope {
            owner: OWNER,
            limit: Bytes(100),
            used: Bytes(used),
            counts: [ONE, OTHER].into_iter().zip(counted).collect(),
        }
    }

    #[test]
    fn what_was_written_since_the_count_stands_against_the_limit_until_it_is_counted() {
        let limits = CountedLimits::default();
        assert!(limits.of(ONE).is_none(), "nothing was told");
        limits.tell(told(40, [Some(1), Some(1)]));
        let one = limits.of(ONE).expect("told");
        let other = limits.of(OTHER).expect("told");
        one.limit.refuse_beyond(60).expect("it fits");
        one.limit.add(ONE, 30);
        assert_eq!(limits.written(), [ONE].into());
        other.limit.add(OTHER, 20);
        other.limit.refuse_beyond(10).expect("it fits");
        let refused = other.limit.refuse_beyond(11).expect_err("too much");
        assert_eq!(refused.code(), Some("quota.exceeded"));
        limits.tell(told(70, [Some(2), Some(1)]));
        other
            .limit
            .refuse_beyond(10)
            .expect("the first one is counted");
        other.limit.refuse_beyond(11).expect_err("the other is not");
        limits.tell(told(50, [Some(2), Some(3)]));
        one.limit.refuse_beyond(50).expect("files were removed");
        one.limit.refuse_beyond(51).expect_err("no more");
    }

    #[test]
    fn a_folder_that_counts_on_another_limit_is_forgotten() {
        let limits = CountedLimits::default();
        limits.tell(told(100, [None, None]));
        limits
            .of(ONE)
            .expect("told")
            .limit
            .refuse_beyond(1)
            .expect_err("full");
        let own = CountedScope {
            owner: ScopeOwner::Folder(ONE),
            limit: Bytes(10),
            used: Bytes(0),
            counts: [(ONE, None)].into(),
        };
        limits.tell(own);
        let one = limits.of(ONE).expect("told");
        one.limit.refuse_beyond(10).expect("its own limit");
        let mut rest = told(100, [None, None]);
        rest.counts.remove(&ONE);
        limits.tell(rest);
        one.limit.refuse_beyond(11).expect_err("no more");
        let one = limits.of(ONE).expect("still told");
        one.limit.refuse_beyond(10).expect("its own limit");
        limits.forget(OTHER);
        limits.of(OTHER).expect("it counts on its owner's");
        limits.forget(ONE);
        assert!(limits.of(ONE).is_none(), "nothing holds it");
    }
}
