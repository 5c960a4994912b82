//! How many bytes the folders of a user may take together, how that limit is held, and when its owner hears of it. Counts
//! nothing and holds nothing.

use serde::{Deserialize, Serialize};

use crate::quota::{AttachedPolicy, LimitKey, UsageByLevel, effective};
use crate::refusal::Refusal;
use crate::refusals;
use crate::units::{Bytes, Timestamp};

/// What the folders of a user may take where no policy says anything. Higher: one user fills an ordinary disk. Lower: a data
/// set of images does not fit.
pub const DEFAULT_FOLDER_BYTES: Bytes = Bytes::gib(50);
/// The lowest limit that is held as it is named: a file system for less is mostly its own tables.
pub const MIN_FOLDER_BYTES: Bytes = Bytes::mib(32);
/// The highest one. Higher: with its tables the file for it is longer than one of ext4 may be.
pub const MAX_FOLDER_BYTES: Bytes = Bytes::gib(15 * 1024);

/// Parts of a hundred of a limit from which its owner is told; from the second on it is urgent.
const NEAR_PERCENT: u64 = 80;
const CLOSE_PERCENT: u64 = 95;

/// How a limit of bytes is held on a machine, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StorageEnforcement {
    /// By the quota of the disk's own file system.
    Native,
    /// By that of a file system of the box's own, in one file for all.
    Pool,
    /// By a file system of its own for each limit, in a file.
    Image,
    /// By nothing: what is there is counted from time to time.
    Counted,
}

impl StorageEnforcement {
    pub const ALL: [Self; 4] = [Self::Native, Self::Pool, Self::Image, Self::Counted];

    pub fn word(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Pool => "pool",
            Self::Image => "image",
            Self::Counted => "counted",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.word() == word)
    }

    /// Whether a write beyond the limit is refused.
    pub fn is_enforced(self) -> bool {
        self != Self::Counted
    }
}

/// The least that a pool has. Lower: its own tables take a good part of it.
pub const MIN_POOL: Bytes = Bytes::mib(512);
/// The most that it has, as of one limit.
pub const MAX_POOL: Bytes = MAX_FOLDER_BYTES;
/// The least and the most that it has at first where no setting says a size: a quarter of what is free, between these. Higher:
/// it takes room that images and logs need. Lower: it grows within the first days.
const FIRST_POOL: [Bytes; 2] = [Bytes::gib(8), Bytes::gib(256)];
/// What a pool leaves of the disk below it: a tenth, and no less than this. Higher: a small disk has no pool. Lower: images and
/// logs fill the disk.
const POOL_RESERVE: Bytes = Bytes::gib(20);
/// Parts of a hundred of a pool below which what is free has it grow. Higher: it takes of the disk what is not needed yet. Lower:
/// sessions that write fast meet its end.
const POOL_FREE_PERCENT: u64 = 20;
/// Sizes of a pool are whole numbers of so many bytes.
const POOL_STEP: u64 = 1 << 20;

/// A pool, and the disk below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolUse {
    pub size: Bytes,
    /// Its own tables included.
    pub used: Bytes,
    /// The limits of all that lies in it, together: more than its size where not all of them are used.
    pub promised: Bytes,
    /// As large as its file system may grow.
    pub bound: Bytes,
    pub disk: DiskRoom,
}

/// A disk, and what of it is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskRoom {
    pub total: Bytes,
    pub free: Bytes,
}

impl DiskRoom {
    /// What a pool may still take of the disk.
    fn left(self) -> Bytes {
        let reserve = Bytes(self.total.0 / 10).max(POOL_RESERVE);
        self.free.saturating_sub(reserve)
    }
}

/// A size as a pool has it, no larger.
pub fn whole_pool(size: Bytes) -> Bytes {
    Bytes(size.0 / POOL_STEP * POOL_STEP)
}

/// How large a new pool is on such a disk; None where the disk has no room for one.
pub fn first_pool(disk: DiskRoom) -> Option<Bytes> {
    let [least, most] = FIRST_POOL;
    let size = whole_pool(Bytes(disk.free.0 / 4).clamp(least, most));
    (size <= disk.left()).then_some(size)
}

/// How large a new pool of a named size is on such a disk; None where it would leave less than a tenth of the disk free: the
/// server's own files need room, too.
pub fn named_pool(size: Bytes, disk: DiskRoom) -> Option<Bytes> {
    let room = disk.free.saturating_sub(Bytes(disk.total.0 / 10));
    (size <= room).then_some(size)
}

/// The largest that a pool can be made now; its size where nothing is left for it.
pub fn largest_pool(pool: &PoolUse) -> Bytes {
    let most = (pool.size + pool.disk.left()).min(pool.bound).min(MAX_POOL);
    whole_pool(most).max(pool.size)
}

/// What a pool that is short grows to by itself: a quarter more, or what the disk leaves; None where it stays.
pub fn grown_pool(pool: &PoolUse) -> Option<Bytes> {
    let free = pool.size.saturating_sub(pool.used);
    if percent(free, pool.size) >= POOL_FREE_PERCENT {
        return None;
    }
    let wanted = whole_pool(pool.size + Bytes(pool.size.0 / 4));
    let size = wanted.min(largest_pool(pool));
    // The last few blocks of a disk help no session, and each step costs a look.
    let is_worth = size.0 >= pool.size.0.saturating_add(pool.size.0 / 64);
    is_worth.then_some(size)
}

/// Refuses a size that a pool cannot be made: it never shrinks, and leaves the disk its reserve.
///
/// Errors: `pool.smaller`, `pool.too-large`.
pub fn refuse_pool_size(asked: Bytes, pool: &PoolUse) -> Result<(), Refusal> {
    let most = largest_pool(pool);
    if asked < pool.size {
        return Err(refusals::pool_smaller(pool.size, pool.used));
    }
    match asked > most {
        true => Err(refusals::pool_too_large(most, pool.disk.free)),
        false => Ok(()),
    }
}

/// Reads the setting of a pool's first size: a size, or `none` where there is to be no pool.
///
/// Errors: `setting.pool-size`.
pub fn pool_setting(text: &str) -> Result<PoolSetting, Refusal> {
    if text.trim().eq_ignore_ascii_case("none") {
        return Ok(PoolSetting::Never);
    }
    let size = Bytes::parse(text).map(whole_pool);
    match size {
        Ok(size) if (MIN_POOL..=MAX_POOL).contains(&size) => Ok(PoolSetting::Size(size)),
        _ => Err(refusals::setting_pool_size(MIN_POOL, MAX_POOL)),
    }
}

/// Whether a machine may have a pool, and how large it is at first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PoolSetting {
    /// As the disk is.
    #[default]
    ByDisk,
    Size(Bytes),
    Never,
}

/// What the folders of one user take together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageUse {
    pub used: Bytes,
    pub limit: Bytes,
    /// When it was so.
    pub at: Timestamp,
}

/// How near a limit is.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum StorageLevel {
    #[default]
    Free,
    /// From 80 % on.
    Near,
    /// From 95 % on.
    Close,
    /// Nothing more fits.
    Full,
}

impl StorageLevel {
    pub const ALL: [Self; 4] = [Self::Free, Self::Near, Self::Close, Self::Full];

    pub fn word(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Near => "near",
            Self::Close => "close",
            Self::Full => "full",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.word() == word)
    }
}

/// How near `used` is to `limit`. A file system keeps a few blocks for itself: what is within a two hundredth of a limit is
/// full.
pub fn level(used: Bytes, limit: Bytes) -> StorageLevel {
    let percent = percent(used, limit);
    let left = limit.0.saturating_sub(used.0);
    match percent {
        _ if left <= limit.0 / 200 => StorageLevel::Full,
        CLOSE_PERCENT.. => StorageLevel::Close,
        NEAR_PERCENT.. => StorageLevel::Near,
        _ => StorageLevel::Free,
    }
}

/// The most that a folder may have by itself as a part of what its owner's folders may take: `others` is set aside for other
/// folders already, and `rest` is what the owner's other files take. The least that a limit may be stays for those.
pub fn own_limit_room(whole: Bytes, others: Bytes, rest: Bytes) -> Bytes {
    let kept = rest.max(MIN_FOLDER_BYTES);
    Bytes(whole.0.saturating_sub(others.0).saturating_sub(kept.0))
}

/// Parts of a hundred of a limit above which the oldest of what lies in the trash gives way. Higher: a limit is met while removed
/// files fill it. Lower: what was removed is kept for a shorter time.
const TRASH_PERCENT: u64 = 90;

/// How much of the trash has to give way.
pub fn trash_to_go(used: Bytes, limit: Bytes) -> Bytes {
    let kept = u128::from(limit.0) * u128::from(TRASH_PERCENT) / 100;
    let kept = u64::try_from(kept).unwrap_or(u64::MAX);
    Bytes(used.0.saturating_sub(kept))
}

/// Parts of a hundred of a limit that use has to fall below a threshold to count as below it. Higher: who made room is told
/// for longer. Lower: one who works at a threshold is told again and again.
const SLACK_PERCENT: u64 = 5;

/// How near a limit counts as, where it counted as `before`: nearer at once, less near only a while below the threshold. So
/// an owner is told once for each time that a threshold is crossed.
pub fn settled(before: StorageLevel, used: Bytes, limit: Bytes) -> StorageLevel {
    let now = level(used, limit);
    if now >= before {
        return now;
    }
    let slack = limit.0 / 100 * SLACK_PERCENT;
    level(Bytes(used.0.saturating_add(slack)), limit).min(before)
}

/// Parts of a hundred of a limit that are used, rounded down; more than 100 where the limit was lowered below it.
pub fn percent(used: Bytes, limit: Bytes) -> u64 {
    let percent = u128::from(used.0) * 100 / u128::from(limit.0.max(1));
    u64::try_from(percent).unwrap_or(u64::MAX)
}

/// What the folders of a user to whom these policies are attached may take together: the lowest limit of them, within what
/// can be held.
pub fn limit_of(attached: &[AttachedPolicy]) -> Bytes {
    let all = effective(attached, &UsageByLevel::default());
    let found = all.iter().find(|one| one.key == LimitKey::FolderBytes);
    let limit = found.map_or(DEFAULT_FOLDER_BYTES, |one| Bytes(one.value));
    limit.clamp(MIN_FOLDER_BYTES, MAX_FOLDER_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::{PolicyLevel, PolicyLimits};

    #[test]
    fn a_limit_is_near_from_eighty_percent_on_and_close_from_ninety_five_on() {
        for (used, expected) in [
            (0, StorageLevel::Free),
            (799, StorageLevel::Free),
            (800, StorageLevel::Near),
            (949, StorageLevel::Near),
            (950, StorageLevel::Close),
            (994, StorageLevel::Close),
            (995, StorageLevel::Full),
            (1000, StorageLevel::Full),
            (2000, StorageLevel::Full),
        ] {
            assert_eq!(level(Bytes(used), Bytes(1000)), expected, "{used}");
        }
        assert_eq!(percent(Bytes(u64::MAX), Bytes(u64::MAX)), 100);
        assert_eq!(level(Bytes::ZERO, Bytes::ZERO), StorageLevel::Full);
    }

    #[test]
    fn a_folder_has_what_the_owners_other_files_leave() {
        let room = |others, rest| own_limit_room(Bytes::gib(10), others, rest);
        assert_eq!(room(Bytes::ZERO, Bytes::gib(4)), Bytes::gib(6));
        assert_eq!(room(Bytes::gib(3), Bytes::gib(4)), Bytes::gib(3));
        assert_eq!(room(Bytes::gib(7), Bytes::gib(4)), Bytes::ZERO);
        let empty = room(Bytes::ZERO, Bytes::ZERO);
        assert_eq!(empty.0, Bytes::gib(10).0 - MIN_FOLDER_BYTES.0);
    }

    #[test]
    fn trash_gives_way_above_nine_tenths_of_a_limit() {
        for (used, expected) in [(0, 0), (900, 0), (901, 1), (1500, 600)] {
            assert_eq!(trash_to_go(Bytes(used), Bytes(1000)), Bytes(expected));
        }
        let most = Bytes(u64::MAX);
        assert!(trash_to_go(most, most).0 > 0, "nothing overflows");
    }

    #[test]
    fn a_limit_is_left_only_a_while_below_its_threshold() {
        use StorageLevel::{Close, Free, Full, Near};
        for (before, used, expected) in [
            (Free, 799, Free),
            (Free, 800, Near),
            (Near, 790, Near),
            (Near, 750, Near),
            (Near, 749, Free),
            (Near, 950, Close),
            (Close, 901, Close),
            (Close, 899, Near),
            (Full, 990, Full),
            (Full, 900, Close),
            (Full, 10, Free),
            (Close, 1000, Full),
        ] {
            let now = settled(before, Bytes(used), Bytes(1000));
            assert_eq!(now, expected, "{before:?} {used}");
        }
        assert_eq!(settled(Near, Bytes(u64::MAX), Bytes(u64::MAX)), Full);
    }

    #[test]
    fn the_lowest_policy_holds_within_what_can_be_held() {
        let policy = |level, bytes: Option<Bytes>| AttachedPolicy {
            level,
            name: "x".to_owned(),
            limits: PolicyLimits {
                folder_bytes: bytes.map(|bytes| bytes.0),
                ..PolicyLimits::NONE
            },
            raised: Vec::new(),
        };
        assert_eq!(limit_of(&[]), DEFAULT_FOLDER_BYTES);
        let silent = policy(PolicyLevel::Site, None);
        assert_eq!(limit_of(&[silent]), DEFAULT_FOLDER_BYTES);
        let site = policy(PolicyLevel::Site, Some(Bytes::gib(10)));
        let user = policy(PolicyLevel::User, Some(Bytes::gib(2)));
        assert_eq!(limit_of(&[site.clone(), user]), Bytes::gib(2));
        let small = policy(PolicyLevel::User, Some(Bytes::mib(1)));
        assert_eq!(limit_of(&[site, small]), MIN_FOLDER_BYTES);
    }

    fn pool(size: u64, used: u64, total: u64, free: u64) -> PoolUse {
        PoolUse {
            size: Bytes::gib(size),
            used: Bytes::gib(used),
            promised: Bytes::gib(size * 2),
            bound: Bytes::gib(4096),
            disk: DiskRoom {
                total: Bytes::gib(total),
                free: Bytes::gib(free),
            },
        }
    }

    #[test]
    fn a_new_pool_takes_a_quarter_of_what_is_free_and_leaves_the_disk_its_reserve() {
        for (total, free, expected) in [
            (20, 18, None),
            (40, 27, None),
            (40, 28, Some(8)),
            (100, 80, Some(20)),
            (4000, 3600, Some(256)),
            (4000, 405, None),
        ] {
            let disk = DiskRoom {
                total: Bytes::gib(total),
                free: Bytes::gib(free),
            };
            let expected = expected.map(Bytes::gib);
            assert_eq!(first_pool(disk), expected, "{total} {free}");
        }
    }

    #[test]
    fn a_pool_of_a_named_size_leaves_a_tenth_of_the_disk() {
        let disk = DiskRoom {
            total: Bytes::gib(40),
            free: Bytes::gib(20),
        };
        assert_eq!(named_pool(Bytes::gib(16), disk), Some(Bytes::gib(16)));
        assert_eq!(named_pool(Bytes::gib(17), disk), None);
    }

    #[test]
    fn a_pool_grows_by_a_quarter_while_the_disk_has_room() {
        for (size, used, free, expected) in [
            (100, 79, 500, None),
            (100, 81, 500, Some(125)),
            (100, 81, 110, Some(110)),
            (100, 81, 101, None),
            (100, 100, 0, None),
            (4096, 4096, 9000, None),
        ] {
            let found = grown_pool(&pool(size, used, 1000, free));
            assert_eq!(found, expected.map(Bytes::gib), "{size} {used} {free}");
        }
    }

    #[test]
    fn a_pool_is_made_no_smaller_and_no_larger_than_the_disk_allows() {
        let pool = pool(100, 30, 1000, 300);
        let code = |size| {
            refuse_pool_size(Bytes::gib(size), &pool).map_err(|refusal| refusal.code.to_string())
        };
        assert_eq!(code(99), Err("pool.smaller".to_owned()));
        assert_eq!(code(100), Ok(()));
        assert_eq!(code(300), Ok(()));
        assert_eq!(code(301), Err("pool.too-large".to_owned()));
        let most = Bytes(u64::MAX);
        let all = PoolUse {
            size: most,
            used: most,
            promised: most,
            bound: most,
            disk: DiskRoom {
                total: most,
                free: most,
            },
        };
        assert_eq!(grown_pool(&all), None, "nothing overflows");
    }

    #[test]
    fn the_size_of_a_pool_is_set_or_switched_off() {
        for (text, expected) in [
            ("none", PoolSetting::Never),
            ("None", PoolSetting::Never),
            ("512m", PoolSetting::Size(Bytes::mib(512))),
            ("64g", PoolSetting::Size(Bytes::gib(64))),
        ] {
            assert_eq!(pool_setting(text), Ok(expected), "{text}");
        }
        for text in ["", "511m", "16t", "much", "-1"] {
            assert!(pool_setting(text).is_err(), "{text}");
        }
    }

    #[test]
    fn words_are_read_as_they_are_written() {
        for one in StorageEnforcement::ALL {
            assert_eq!(StorageEnforcement::parse(one.word()), Some(one));
        }
        for one in StorageLevel::ALL {
            assert_eq!(StorageLevel::parse(one.word()), Some(one));
        }
    }
}
