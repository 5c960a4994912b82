//! How much of its shares of devices each container uses: sums up, look by look, what whoever gives turns
//! and the driver say, so that the load of any stretch of time is one difference divided by another. Never
//! asks anybody; whoever measures brings what was told.

use std::collections::BTreeMap;

use rules::messages;
use rules::names::ContainerName;
use rules::units::Timestamp;

use super::arbiter::Nanos;
use super::time_slicing::DeviceTime;

/// A container's share of one device: the device's index, and the partition.
pub type SliceKey = (ContainerName, u32, Option<u32>);

/// Who tells how long a device worked for a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BusyTimeSource {
    /// Whoever gives it its turns; exact.
    Turns(DeviceTime),
    /// The driver, for a container that has the card to itself: per cent of the time in which the card did
    /// something.
    Card { percent: u32 },
    /// Nobody, since the device does not exist: per cent of the share.
    MadeUp { percent: u32 },
    /// Nobody can say: a partition, or a driver that does not answer.
    Nothing,
}

/// What one look at a slice came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    pub worked: Option<messages::BusyTime>,
    pub idle_since: Option<Timestamp>,
}

/// The sums of every slice of this machine.
#[derive(Debug, Default)]
pub struct Meter {
    sums: BTreeMap<SliceKey, MeterTotals>,
}

#[derive(Debug)]
struct MeterTotals {
    looked: Nanos,
    /// What turns had come to at the last look.
    turns: Option<Nanos>,
    busy: Nanos,
    granted: Nanos,
    /// When the device last did something for it, or when it was first looked at.
    last: Nanos,
}

impl Meter {
    /// Takes in what was told of a slice since the last look. `now` is the clock of turns, `time` the same
    /// moment on the wall.
    pub fn read(
        &mut self,
        slice: SliceKey,
        share_milli: u32,
        told: BusyTimeSource,
        now: Nanos,
        time: Timestamp,
    ) -> Read {
        let sum = self.sums.entry(slice).or_insert(MeterTotals {
            looked: now,
            turns: None,
            busy: 0,
            granted: 0,
            last: now,
        });
        let gone = now.saturating_sub(sum.looked);
        let granted = part(gone, u64::from(share_milli), 1000);
        let busy = match told {
            BusyTimeSource::Turns(worked) => {
                worked.time.saturating_sub(sum.turns.unwrap_or(worked.time))
            }
            BusyTimeSource::Card { percent } => part(gone, u64::from(percent.min(100)), 100),
            BusyTimeSource::MadeUp { percent } => part(granted, u64::from(percent), 100),
            BusyTimeSource::Nothing => 0,
        };
        sum.turns = match told {
            BusyTimeSource::Turns(worked) => Some(worked.time),
            _ => None,
        };
        sum.looked = now;
        let is_known = told != BusyTimeSource::Nothing;
        if is_known {
            sum.busy += busy;
            sum.granted += granted;
        }
        match told {
            BusyTimeSource::Turns(worked) => sum.last = worked.last.min(now),
            _ if busy > 0 => sum.last = now,
            _ => {}
        }
        let idle = time.as_millis() - i64::try_from((now - sum.last) / 1_000_000).unwrap_or(0);
        Read {
            worked: is_known.then_some(messages::BusyTime {
                busy_microseconds: sum.busy / 1_000,
                granted_microseconds: sum.granted / 1_000,
            }),
            idle_since: (is_known && busy == 0).then_some(Timestamp::from_millis(idle)),
        }
    }

    /// Forgets the slices of containers that are gone.
    pub fn keep(&mut self, is_there: impl Fn(ContainerName) -> bool) {
        self.sums.retain(|(name, ..), _| is_there(*name));
    }
}

fn part(of: Nanos, share: u64, whole: u64) -> Nanos {
    u64::try_from(u128::from(of) * u128::from(share) / u128::from(whole)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rules::names::SessionId;

    const SECOND: Nanos = 1_000_000_000;
    const BEGAN: i64 = 1_800_000_000_000;

    fn slice() -> SliceKey {
        let name = ContainerName {
            session: SessionId(uuid::Uuid::from_u128(7)),
            incarnation: 1,
            index: 0,
        };
        (name, 0, None)
    }

    /// Reads once a second what is told for a slice of a quarter.
    fn read(meter: &mut Meter, second: u64, told: BusyTimeSource) -> Read {
        let time = Timestamp::from_millis(BEGAN + second as i64 * 1000);
        meter.read(slice(), 250, told, (100 + second) * SECOND, time)
    }

    fn turns(milliseconds: u64, last: u64) -> BusyTimeSource {
        BusyTimeSource::Turns(DeviceTime {
            time: milliseconds * 1_000_000,
            last: (100 + last) * SECOND,
        })
    }

    fn load(before: Read, after: Read) -> u64 {
        let (before, after) = (before.worked.expect("known"), after.worked.expect("known"));
        let busy = after.busy_microseconds - before.busy_microseconds;
        busy * 100 / (after.granted_microseconds - before.granted_microseconds)
    }

    #[test]
    fn load_is_what_the_device_did_of_what_the_share_is_worth() {
        let mut meter = Meter::default();
        let first = read(&mut meter, 0, turns(900, 0));
        // A quarter of a second is all of it; what was done before the first look is nobody's.
        let second = read(&mut meter, 1, turns(1150, 1));
        assert_eq!(load(first, second), 100);
        let third = read(&mut meter, 3, turns(1275, 2));
        assert_eq!(load(second, third), 25);
        assert_eq!(third.idle_since, None);
        let fourth = read(&mut meter, 5, turns(1275, 2));
        let since = Timestamp::from_millis(BEGAN + 2000);
        assert_eq!((load(third, fourth), fourth.idle_since), (0, Some(since)));
    }

    #[test]
    fn who_has_a_card_alone_is_as_busy_as_the_card_and_may_pass_its_share() {
        let mut meter = Meter::default();
        let first = read(&mut meter, 0, BusyTimeSource::Card { percent: 0 });
        assert_eq!(first.idle_since, Some(Timestamp::from_millis(BEGAN)));
        let second = read(&mut meter, 2, BusyTimeSource::Card { percent: 50 });
        assert_eq!((load(first, second), second.idle_since), (200, None));
    }

    #[test]
    fn what_nobody_can_say_is_not_said_and_counts_for_nothing() {
        let mut meter = Meter::default();
        let first = read(&mut meter, 0, BusyTimeSource::MadeUp { percent: 40 });
        let gap = read(&mut meter, 9, BusyTimeSource::Nothing);
        assert_eq!((gap.worked, gap.idle_since), (None, None));
        let second = read(&mut meter, 10, BusyTimeSource::MadeUp { percent: 40 });
        assert_eq!(load(first, second), 40);
        // A taker of turns who took none before begins where the turns are.
        read(&mut meter, 11, turns(5000, 11));
        let third = read(&mut meter, 12, turns(5100, 12));
        assert!(load(second, third) < 40, "{third:?}");
        meter.keep(|_| false);
        assert!(meter.sums.is_empty());
    }
}
