//! Snapshots of folders: which one a schedule is due for, and which of them give way to newer ones. Same rows in, same answer
//! out. Never looks at a clock or a disk, and removes nothing: who asks does.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::names::FolderId;
use crate::refusal::Refusal;
use crate::refusals;
use crate::units::{Bytes, Timestamp};

/// Snapshots of one folder that users made by hand. Higher: a list of them is long. Lower: they have to remove some sooner.
pub const MAX_HAND_SNAPSHOTS: usize = 32;
/// What a schedule keeps at most: two days of hours, a month of days, a year of weeks. Higher: more names of the disk for one
/// folder. Lower: what was lost long ago is found by no user.
pub const MAX_HOURLY: u32 = 48;
pub const MAX_DAILY: u32 = 31;
pub const MAX_WEEKLY: u32 = 52;

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;
const WEEK: i64 = 7 * DAY;
/// The first day of the clock was a Thursday; weeks begin on Monday.
const THURSDAY: i64 = 3 * DAY;

/// What asked for a snapshot; of scheduled ones each holds for those before it, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SnapshotOrigin {
    /// A user did. It stays until a user removes it.
    Hand,
    Hourly,
    Daily,
    Weekly,
}

impl SnapshotOrigin {
    pub const ALL: [Self; 4] = [Self::Hand, Self::Hourly, Self::Daily, Self::Weekly];
    /// Those of a schedule, the longest first.
    const SCHEDULED: [Self; 3] = [Self::Weekly, Self::Daily, Self::Hourly];

    pub fn word(self) -> &'static str {
        match self {
            Self::Hand => "hand",
            Self::Hourly => "hourly",
            Self::Daily => "daily",
            Self::Weekly => "weekly",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.word() == word)
    }

    /// Which hour, day or week a time lies in.
    fn period(self, at: Timestamp) -> i64 {
        let millis = at.as_millis();
        match self {
            Self::Hand => millis,
            Self::Hourly => millis.div_euclid(HOUR),
            Self::Daily => millis.div_euclid(DAY),
            Self::Weekly => (millis + THURSDAY).div_euclid(WEEK),
        }
    }
}

/// How far a snapshot is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SnapshotState {
    /// Its files are not all there.
    Making,
    Ready,
    /// Its files go.
    Removing,
}

impl SnapshotState {
    pub const ALL: [Self; 3] = [Self::Making, Self::Ready, Self::Removing];

    pub fn word(self) -> &'static str {
        match self {
            Self::Making => "making",
            Self::Ready => "ready",
            Self::Removing => "removing",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.word() == word)
    }
}

/// One snapshot of one folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderSnapshot {
    pub folder: FolderId,
    /// Counts up from 1 in each folder.
    pub number: u32,
    pub origin: SnapshotOrigin,
    pub state: SnapshotState,
    /// No session could write meanwhile, and no file was changed from outside: it is the folder of one moment. Else each file is
    /// whole, and the tree is of several.
    pub is_frozen: bool,
    pub created_at: Timestamp,
    /// Who made it, or the schedule.
    pub created_by: String,
    /// What its files take by themselves; None until it is ready. Blocks that the folder still has lie on the disk once.
    pub bytes: Option<u64>,
    /// Files, directories and links; None until it is ready.
    pub entries: Option<u64>,
}

/// How many scheduled snapshots of a folder are kept; 0: none is made, and those that are there stay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SnapshotSchedule {
    pub hourly: u32,
    pub daily: u32,
    pub weekly: u32,
}

impl SnapshotSchedule {
    /// Errors: `folder.snapshot-schedule`, at its field.
    pub fn check(self) -> Result<(), Refusal> {
        for (count, most, field) in [
            (self.hourly, MAX_HOURLY, "/hourly"),
            (self.daily, MAX_DAILY, "/daily"),
            (self.weekly, MAX_WEEKLY, "/weekly"),
        ] {
            if count > most {
                return Err(refusals::folder_snapshot_schedule(most).at(field));
            }
        }
        Ok(())
    }

    pub fn is_off(self) -> bool {
        self == Self::default()
    }

    fn count(self, origin: SnapshotOrigin) -> u32 {
        match origin {
            SnapshotOrigin::Hand => 0,
            SnapshotOrigin::Hourly => self.hourly,
            SnapshotOrigin::Daily => self.daily,
            SnapshotOrigin::Weekly => self.weekly,
        }
    }

    /// Which snapshot of a folder is due; None for none. One of a longer time holds for the shorter ones, so that no two are
    /// made at once. `tried_at`: when one was begun last, also where nothing came of it: that is tried once an hour.
    ///
    /// Costs O(snapshots).
    pub fn due(
        self,
        all: &[FolderSnapshot],
        tried_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<SnapshotOrigin> {
        let hour = |at: Timestamp| SnapshotOrigin::Hourly.period(at);
        if tried_at.is_some_and(|tried| hour(tried) == hour(now)) {
            return None;
        }
        let is_due = |origin: &SnapshotOrigin| {
            let is_there = all.iter().any(|one| {
                one.origin >= *origin && origin.period(one.created_at) == origin.period(now)
            });
            self.count(*origin) > 0 && !is_there
        };
        SnapshotOrigin::SCHEDULED.into_iter().find(is_due)
    }

    /// The numbers of scheduled snapshots of one folder that are more than are kept, oldest first.
    ///
    /// Costs O(snapshots × log).
    pub fn beyond(self, all: &[FolderSnapshot]) -> Vec<u32> {
        let mut gone = Vec::new();
        for origin in SnapshotOrigin::SCHEDULED {
            let kept = usize::try_from(self.count(origin)).unwrap_or(usize::MAX);
            if kept == 0 {
                continue;
            }
            let ready = all
                .iter()
                .filter(|one| one.origin == origin && one.state == SnapshotState::Ready);
            let mut numbers: Vec<u32> = ready.map(|one| one.number).collect();
            numbers.sort_unstable();
            numbers.truncate(numbers.len().saturating_sub(kept));
            gone.extend(numbers);
        }
        gone.sort_unstable();
        gone
    }
}

/// What all snapshots of an owner may take: half of what their folders may.
pub fn history_limit(folder_bytes: u64) -> u64 {
    folder_bytes / 2
}

/// Refuses a snapshot of so many bytes for which there is no room, also once each scheduled one gave way. `all`: those of
/// the owner's folders.
///
/// Errors: `folder.snapshot-no-room`.
pub fn refuse_no_room(all: &[FolderSnapshot], bytes: u64, limit: u64) -> Result<(), Refusal> {
    let by_hand = all
        .iter()
        .filter(|one| one.origin == SnapshotOrigin::Hand && one.state == SnapshotState::Ready);
    let held: u64 = by_hand.filter_map(|one| one.bytes).sum();
    match held.saturating_add(bytes) > limit {
        true => Err(refusals::folder_snapshot_no_room(
            Bytes(held.saturating_add(bytes)),
            Bytes(limit),
        )),
        false => Ok(()),
    }
}

/// The scheduled snapshots of an owner's folders that give way, oldest first, so that all of them take `limit` at most. The
/// newest of each folder goes last.
///
/// Costs O(snapshots × log).
pub fn giving_way(all: &[FolderSnapshot], limit: u64) -> Vec<(FolderId, u32)> {
    let ready: Vec<&FolderSnapshot> = all
        .iter()
        .filter(|one| one.state == SnapshotState::Ready)
        .collect();
    let mut taken: u64 = ready.iter().filter_map(|one| one.bytes).sum();
    let mut newest: BTreeMap<FolderId, u32> = BTreeMap::new();
    for one in &ready {
        let known = newest.entry(one.folder).or_default();
        *known = (*known).max(one.number);
    }
    let mut scheduled: Vec<&FolderSnapshot> = ready
        .into_iter()
        .filter(|one| one.origin != SnapshotOrigin::Hand)
        .collect();
    scheduled.sort_by_key(|one| {
        let is_newest = newest.get(&one.folder) == Some(&one.number);
        (is_newest, one.created_at, one.folder, one.number)
    });
    let mut gone = Vec::new();
    for one in scheduled {
        if taken <= limit {
            break;
        }
        taken = taken.saturating_sub(one.bytes.unwrap_or(0));
        gone.push((one.folder, one.number));
    }
    gone
}

/// The scheduled snapshot of one folder that goes where the disk has no room for a new one: the oldest. The newest hourly, daily
/// and weekly one stay, also where files of others fill the disk. O(snapshots).
pub fn first_to_go(all: &[FolderSnapshot]) -> Option<u32> {
    let of = |origin: SnapshotOrigin| {
        all.iter()
            .filter(move |one| one.origin == origin && one.state == SnapshotState::Ready)
            .map(|one| one.number)
    };
    let more = SnapshotOrigin::SCHEDULED
        .into_iter()
        .filter(|origin| of(*origin).count() > 1);
    more.filter_map(|origin| of(origin).min()).min()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn at(hours: i64) -> Timestamp {
        Timestamp::from_millis(hours * HOUR)
    }

    fn one(number: u32, origin: SnapshotOrigin, hours: i64, bytes: u64) -> FolderSnapshot {
        FolderSnapshot {
            folder: FolderId(Uuid::from_u128(7)),
            number,
            origin,
            state: SnapshotState::Ready,
            is_frozen: true,
            created_at: at(hours),
            created_by: "kim".to_owned(),
            bytes: Some(bytes),
            entries: Some(1),
        }
    }

    #[test]
    fn a_schedule_is_due_once_in_each_of_its_times_and_the_longest_holds_for_all() {
        let schedule = SnapshotSchedule {
            hourly: 2,
            daily: 2,
            weekly: 1,
        };
        // 4 January 1970 was a Sunday, and the fifth a Monday.
        let sunday = 3 * 24 + 10;
        assert_eq!(
            schedule.due(&[], None, at(sunday)),
            Some(SnapshotOrigin::Weekly)
        );
        let mut all = vec![one(1, SnapshotOrigin::Weekly, sunday, 0)];
        assert_eq!(schedule.due(&all, None, at(sunday)), None);
        let next = schedule.due(&all, None, at(sunday + 1));
        assert_eq!(next, Some(SnapshotOrigin::Hourly));
        all.push(one(2, SnapshotOrigin::Hourly, sunday + 1, 0));
        assert_eq!(schedule.due(&all, None, at(sunday + 1)), None);
        let monday = schedule.due(&all, None, at(4 * 24));
        assert_eq!(monday, Some(SnapshotOrigin::Weekly));
        assert_eq!(
            schedule.due(&all, Some(at(4 * 24)), at(4 * 24)),
            None,
            "tried"
        );
        let daily = SnapshotSchedule {
            daily: 1,
            ..SnapshotSchedule::default()
        };
        assert_eq!(
            daily.due(&all, None, at(sunday + 2)),
            None,
            "the weekly one"
        );
        let by_hand = [one(1, SnapshotOrigin::Hand, sunday, 0)];
        let due = daily.due(&by_hand, None, at(sunday));
        assert_eq!(due, Some(SnapshotOrigin::Daily), "it is none of a schedule");
        let off = SnapshotSchedule::default();
        assert!(off.is_off());
        assert_eq!(off.due(&[], None, at(sunday)), None);
    }

    #[test]
    fn more_than_a_schedule_keeps_goes_and_what_is_off_stays() {
        let mut all: Vec<FolderSnapshot> = (1..=5)
            .map(|number| one(number, SnapshotOrigin::Hourly, i64::from(number), 0))
            .collect();
        all.push(one(6, SnapshotOrigin::Daily, 6, 0));
        all.push(one(7, SnapshotOrigin::Hand, 7, 0));
        let schedule = SnapshotSchedule {
            hourly: 3,
            ..SnapshotSchedule::default()
        };
        assert_eq!(schedule.beyond(&all), [1, 2]);
        assert!(SnapshotSchedule::default().beyond(&all).is_empty());
    }

    #[test]
    fn the_oldest_scheduled_ones_give_way_and_those_by_hand_never() {
        let all = [
            one(1, SnapshotOrigin::Hand, 1, 40),
            one(2, SnapshotOrigin::Hourly, 2, 30),
            one(3, SnapshotOrigin::Daily, 3, 30),
            one(4, SnapshotOrigin::Hourly, 4, 30),
        ];
        let numbers = |limit: u64| -> Vec<u32> {
            let gone = giving_way(&all, limit);
            gone.into_iter().map(|(_, number)| number).collect()
        };
        assert!(numbers(130).is_empty());
        assert_eq!(numbers(129), [2]);
        assert_eq!(numbers(70), [2, 3]);
        assert_eq!(numbers(0), [2, 3, 4], "the one by hand stays");
        assert_eq!(refuse_no_room(&all, 60, 100), Ok(()));
        let refused = refuse_no_room(&all, 61, 100).expect_err("no room");
        assert_eq!(refused.code, "folder.snapshot-no-room");
    }

    #[test]
    fn where_the_disk_is_full_the_oldest_scheduled_one_goes_and_the_newest_of_each_sort_stays() {
        let mut all = vec![
            one(1, SnapshotOrigin::Hand, 1, 40),
            one(2, SnapshotOrigin::Weekly, 2, 30),
            one(3, SnapshotOrigin::Hourly, 3, 30),
        ];
        assert_eq!(first_to_go(&all), None);
        all.push(one(4, SnapshotOrigin::Hourly, 4, 30));
        assert_eq!(first_to_go(&all), Some(3));
        all[2].state = SnapshotState::Removing;
        assert_eq!(first_to_go(&all), None, "it goes already");
        all.push(one(5, SnapshotOrigin::Weekly, 5, 30));
        assert_eq!(first_to_go(&all), Some(2));
    }

    #[test]
    fn a_schedule_has_bounds() {
        let schedule = SnapshotSchedule {
            daily: MAX_DAILY + 1,
            ..SnapshotSchedule::default()
        };
        let refused = schedule.check().expect_err("too many");
        assert_eq!(refused.code, "folder.snapshot-schedule");
        assert_eq!(SnapshotSchedule::default().check(), Ok(()));
        assert_eq!(history_limit(101), 50);
    }
}
