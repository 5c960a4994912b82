//! What the leads of a project may book of machines at once: GPU-hours in any 30 days. What is beyond, an administrator
//! grants. Pure; whole numbers only. Never reads a clock.

use crate::budget::GpuHours;
use crate::refusal::Refusal;
use crate::refusals;
use crate::reservation::{BeforeReservation, ReservationAmount};
use crate::session::hidden;
use crate::units::{GpuShare, Timestamp};

/// Days in which a quota holds, whenever they begin.
pub const QUOTA_DAYS: u64 = 30;
/// The same in seconds.
pub const QUOTA_SECONDS: u64 = QUOTA_DAYS * 86_400;
/// Seconds for which a time counts at least. Higher: a short demonstration uses a day's worth. Lower: a minute stops what
/// runs on every GPU as an hour does, and a small quota has hundreds of minutes.
const MIN_COUNTED_SECONDS: u64 = 3_600;
/// Letters of the sentence in which an administrator says why. Higher: pages and notices carry essays. Lower: a reason
/// does not fit.
pub const MAX_REASON_LENGTH: usize = 300;

/// One time of a reservation as a quota counts it: with the 30 days in which it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReservedUse {
    pub from: Timestamp,
    pub to: Timestamp,
    pub gpu: GpuShare,
}

impl ReservedUse {
    /// As the ledger counts: hundredths of a GPU × milliseconds; of an hour at least.
    fn cost(self) -> u64 {
        let millis = self.to.millis_since(self.from);
        u64::from(self.gpu.0).saturating_mul(millis.max(MIN_COUNTED_SECONDS * 1000))
    }
}

/// The most that begins in any 30 days in which one of `asked` begins, both together, as the ledger counts; 0 where
/// nothing is asked. Costs sorting both.
pub fn most(booked: &[ReservedUse], asked: &[ReservedUse]) -> u64 {
    let of = |all: &[ReservedUse], is_asked: bool| -> Vec<(Timestamp, u64, bool)> {
        let all = all.iter();
        all.map(|one| (one.from, one.cost(), is_asked)).collect()
    };
    let mut all = of(booked, false);
    all.extend(of(asked, true));
    all.sort_by_key(|(from, _, _)| *from);
    // Of all spans of 30 days one with the most begins when a time of it does.
    let (mut most, mut sum) = (0_u64, 0_u64);
    let (mut asks, mut end) = (0_usize, 0_usize);
    for (from, cost, is_asked) in &all {
        while let Some((later, more, also)) = all.get(end) {
            if *later >= from.plus_seconds(QUOTA_SECONDS) {
                break;
            }
            sum = sum.saturating_add(*more);
            asks += usize::from(*also);
            end += 1;
        }
        if asks > 0 {
            most = most.max(sum);
        }
        sum = sum.saturating_sub(*cost);
        asks = asks.saturating_sub(usize::from(*is_asked));
    }
    most
}

/// What a quota has left, as a lead reads it: what is used is the most of any 30 days that hold `now`, rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaRest {
    pub used: GpuHours,
    pub left: GpuHours,
}

/// The rest of a quota for what begins at `now`.
pub fn rest(quota: GpuHours, booked: &[ReservedUse], now: Timestamp) -> QuotaRest {
    let here = ReservedUse {
        from: now,
        to: now,
        gpu: GpuShare::ZERO,
    };
    let used = most(booked, &[here]);
    QuotaRest {
        used: GpuHours::used(used),
        left: GpuHours::whole(quota.in_ledger().saturating_sub(used)),
    }
}

/// Whether a lead may book so much at these times without being granted it: the GPU-hours fit the quota in all 30 days,
/// cores and memory are no more than come with so many GPUs, and nothing is kept before the warning. `part`: one GPU, and
/// the cores and memory that come with it.
pub fn is_within(
    quota: GpuHours,
    booked: &[ReservedUse],
    amount: ReservationAmount,
    before: BeforeReservation,
    times: &[(Timestamp, Timestamp)],
    part: ReservationAmount,
) -> bool {
    let asked: Vec<ReservedUse> = times
        .iter()
        .map(|(from, to)| ReservedUse {
            from: *from,
            to: *to,
            gpu: amount.gpu,
        })
        .collect();
    // A quota in GPU-hours bounds nothing without them, and not the day for which one that fits in keeps others away: who
    // cancels before the warning uses none of it.
    amount.gpu > GpuShare::ZERO
        && before == BeforeReservation::Drain
        && is_part(amount, part)
        && most(booked, &asked) <= quota.in_ledger()
}

/// Whether the first of these times is so far ahead that a lead books it without asking: who runs there then has learnt of
/// it early. `hours`: what the site sets; with 0 any is.
pub fn gives_notice(times: &[(Timestamp, Timestamp)], hours: u32, now: Timestamp) -> bool {
    let earliest = now.plus_seconds(u64::from(hours) * 3_600);
    times.iter().all(|(from, _)| *from >= earliest)
}

fn is_part(amount: ReservationAmount, part: ReservationAmount) -> bool {
    let fits = |wanted: u64, one: u64| {
        u128::from(wanted) * u128::from(part.gpu.0) <= u128::from(one) * u128::from(amount.gpu.0)
    };
    fits(amount.cpu.0.into(), part.cpu.0.into()) && fits(amount.memory.0, part.memory.0)
}

/// What an administrator said of a request, without blanks around it; it may be empty.
///
/// Errors: `reservation.reason-invalid` at `/reason` for more than 300 letters and for hidden ones.
pub fn reason(typed: &str) -> Result<String, Refusal> {
    let text = typed.trim();
    let is_good = text.chars().count() <= MAX_REASON_LENGTH && !text.chars().any(hidden);
    match is_good {
        true => Ok(text.to_owned()),
        false => Err(refusals::reservation_reason_invalid(MAX_REASON_LENGTH).at("/reason")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes;
    use crate::units::{Bytes, CpuShare};

    const DAY: u64 = 24;

    fn at(hours: u64) -> Timestamp {
        Timestamp::from_millis(0).plus_seconds(hours * 3_600)
    }

    fn gpus(count: u32, from: u64, to: u64) -> ReservedUse {
        ReservedUse {
            from: at(from),
            to: at(to),
            gpu: GpuShare(count * 100),
        }
    }

    fn hours(most: u64) -> u64 {
        GpuHours::used(most).0 / 100
    }

    #[test]
    fn any_thirty_days_that_hold_a_new_time_count() {
        let booked = [gpus(4, 0, 10), gpus(1, 20 * DAY, 20 * DAY + 5)];
        assert_eq!(most(&booked, &[]), 0, "nothing is asked");
        // Both, and the new one.
        let asked = [gpus(2, 10 * DAY, 10 * DAY + 3)];
        assert_eq!(hours(most(&booked, &asked)), 40 + 5 + 6);
        // On the 35th day the first is more than 30 days away; the second is not.
        let asked = [gpus(2, 35 * DAY, 35 * DAY + 3)];
        assert_eq!(hours(most(&booked, &asked)), 5 + 6);
        // Exactly 30 days after it is another span.
        let asked = [gpus(1, 30 * DAY, 30 * DAY + 1)];
        assert_eq!(hours(most(&booked[..1], &asked)), 1);
        // Weeks of one booking count together, as far as they lie in the same 30 days.
        let weeks: Vec<_> = (0..10)
            .map(|week| gpus(1, week * 7 * DAY, week * 7 * DAY + 2))
            .collect();
        assert_eq!(hours(most(&[], &weeks)), 5 * 2);
    }

    #[test]
    fn a_booking_is_within_where_gpu_hours_cores_and_memory_fit() {
        let amount = ReservationAmount {
            gpu: GpuShare(100),
            cpu: CpuShare(800),
            memory: Bytes::gib(32),
        };
        let part = amount;
        let drain = BeforeReservation::Drain;
        let times = [(at(10), at(20))];
        let quota = |hours: u64| GpuHours(hours * 100);
        let is = |quota: GpuHours, amount: ReservationAmount| {
            is_within(quota, &[], amount, drain, &times, part)
        };
        assert!(is(quota(10), amount));
        assert!(!is(quota(9), amount), "ten hours of one GPU");
        assert!(!is(quota(0), amount), "everything is asked for");
        let cores = ReservationAmount {
            cpu: CpuShare(801),
            ..amount
        };
        assert!(!is(quota(10), cores), "more cores than come with the GPU");
        let none = ReservationAmount {
            gpu: GpuShare::ZERO,
            ..amount
        };
        assert!(!is(quota(10), none), "no GPU-hours bound cores alone");
        let booked = [gpus(1, 30, 31)];
        let with = |quota: GpuHours, before: BeforeReservation| {
            is_within(quota, &booked, amount, before, &times, part)
        };
        assert!(!with(quota(10), drain));
        assert!(with(quota(11), drain));
        assert!(
            !with(quota(1_000), BeforeReservation::Fit),
            "no GPU-hours bound the day before"
        );
    }

    #[test]
    fn what_begins_soon_is_asked_for() {
        let now = at(100);
        let gives = |hours: u32, from: u64| gives_notice(&[(at(from), at(from + 1))], hours, now);
        assert!(gives(24, 124));
        assert!(!gives(24, 123));
        assert!(gives(0, 100), "the site asks for no notice");
        let weeks = [(at(123), at(124)), (at(291), at(292))];
        assert!(!gives_notice(&weeks, 24, now), "the first week is soon");
    }

    #[test]
    fn a_short_time_counts_as_an_hour() {
        let minute = |from: u64| ReservedUse {
            from: at(from),
            to: at(from).plus_seconds(60),
            gpu: GpuShare(800),
        };
        let minutes: Vec<_> = (0..5).map(minute).collect();
        assert_eq!(hours(most(&minutes, &[minute(6)])), 6 * 8);
    }

    #[test]
    fn what_is_left_is_never_more_than_can_be_booked_now() {
        let booked = [gpus(1, 0, 5), gpus(2, 29 * DAY, 29 * DAY + 2)];
        let left = |hours: u64, now: u64| {
            let rest = rest(GpuHours(hours * 100), &booked, at(now));
            (rest.used.0 / 100, rest.left.0 / 100)
        };
        assert_eq!(left(20, 10 * DAY), (9, 11));
        assert_eq!(left(20, 31 * DAY), (4, 16));
        assert_eq!(left(20, 70 * DAY), (0, 20));
        assert_eq!(left(3, 10 * DAY), (9, 0));
    }

    #[test]
    fn a_reason_is_one_short_sentence() {
        assert_eq!(reason("  full that day ").expect("good"), "full that day");
        assert_eq!(reason("").expect("it may be empty"), "");
        let long = "x".repeat(MAX_REASON_LENGTH + 1);
        for wrong in [long.as_str(), "two\nlines"] {
            let refusal = reason(wrong).expect_err("it is refused");
            assert_eq!(refusal.code, codes::RESERVATION_REASON_INVALID);
        }
    }
}
