//! Times, conflicts and refusals of reservations.

use super::*;
use crate::codes;

const HOUR: u64 = 3_600;

fn at(hours: u64) -> Timestamp {
    Timestamp::from_millis(0).plus_seconds(hours * HOUR)
}

fn gpus(count: u32) -> ReservationAmount {
    ReservationAmount {
        gpu: GpuShare(count * 100),
        ..ReservationAmount::default()
    }
}

fn booked(count: u32, from: u64, to: u64) -> ReservationTime {
    ReservationTime {
        id: ReservationId(uuid::Uuid::from_u128(1)),
        number: 1,
        holder: ReservationHolder::User(UserId(uuid::Uuid::from_u128(1))),
        amount: gpus(count),
        from: at(from),
        to: at(to),
        before: BeforeReservation::Drain,
        state: ReservationState::Booked,
        parts: Vec::new(),
        warned_at: None,
        told: Vec::new(),
        unused_since: None,
    }
}

fn zone(name: &str) -> jiff::tz::TimeZone {
    jiff::tz::TimeZone::get(name).expect("a zone of the data base")
}

fn refused<T: std::fmt::Debug>(result: Result<T, Refusal>) -> Refusal {
    result.expect_err("it is refused")
}

/// Proves too: `reserved_devices_are_their_members_alone`
#[test]
fn a_conflict_names_the_nearest_free_time() {
    let calendar = [booked(3, 10, 12), booked(2, 12, 14), booked(1, 14, 20)];
    let check = |count, from, to| {
        check(
            gpus(count),
            &[(at(from), at(to))],
            &calendar,
            gpus(4),
            at(0),
        )
    };
    assert_eq!(check(1, 10, 14), Ok(()));
    assert_eq!(check(4, 8, 10), Ok(()), "ends where the other begins");
    let refusal = refused(check(2, 10, 12));
    assert_eq!(refusal.code, codes::RESERVATION_CONFLICT);
    assert_eq!(refusal, refusals::reservation_conflict(at(12)).at("/from"));
    let refusal = refused(check(3, 11, 13));
    assert_eq!(refusal, refusals::reservation_conflict(at(14)).at("/from"));
    assert_eq!(refused(check(5, 30, 31)).code, codes::RESERVATION_TOO_LARGE);
}

#[test]
fn a_calendar_sums_what_is_booked_at_each_hour() {
    let mut seed = 1_u64;
    let mut below = move |most: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % most
    };
    for _ in 0..50 {
        let all: Vec<ReservationTime> = (0..8)
            .map(|_| {
                let from = below(20);
                booked(1 + below(3) as u32, from, from + 1 + below(6))
            })
            .collect();
        let calendar = Calendar::new(&all);
        let (from, length) = (below(24), 1 + below(6));
        let at_hour = |hour: u64| {
            let here = all
                .iter()
                .filter(|one| one.from <= at(hour) && at(hour) < one.to);
            here.map(|one| one.amount.gpu.0).sum::<u32>()
        };
        let most = (from..from + length).map(at_hour).max();
        assert_eq!(Some(calendar.most(at(from), at(from + length)).gpu.0), most);
    }
}

#[test]
fn a_full_calendar_refuses_at_once() {
    let all: Vec<ReservationTime> = (0..2_000).map(|at| booked(4, 10 + at, 11 + at)).collect();
    let weeks: Vec<(Timestamp, Timestamp)> = (0..12)
        .map(|week| (at(12 + week * 168), at(13 + week * 168)))
        .collect();
    let refusal = refused(check(gpus(1), &weeks, &all, gpus(4), at(0)));
    assert_eq!(refusal, refusals::reservation_conflict_always().at("/from"));
}

#[test]
fn what_cannot_be_booked_is_refused_by_name() {
    let room = gpus(4);
    let code = |amount, times: &[(Timestamp, Timestamp)]| {
        refused(check(amount, times, &[], room, at(5))).code
    };
    let one = [(at(6), at(7))];
    assert_eq!(
        code(ReservationAmount::default(), &one),
        codes::RESERVATION_EMPTY
    );
    let half = ReservationAmount {
        gpu: GpuShare(50),
        ..ReservationAmount::default()
    };
    assert_eq!(code(half, &one), codes::RESERVATION_WHOLE_GPUS);
    assert_eq!(code(gpus(1), &[(at(4), at(7))]), codes::RESERVATION_PAST);
    let far = 3 * 366 * 24;
    assert_eq!(
        code(gpus(1), &[(at(far), at(far + 1))]),
        codes::RESERVATION_AHEAD
    );
    let twice = [(at(6), at(9)), (at(8), at(11))];
    assert_eq!(code(gpus(1), &twice), codes::RESERVATION_OVER_ITSELF);
}

/// Proves too: `reserved_devices_are_their_members_alone`
#[test]
fn weeks_keep_their_time_of_day() {
    let berlin = zone("Europe/Berlin");
    let week = times("2026-03-23T09:00", "2026-03-23T11:00", &berlin, 2).unwrap();
    // Summer time begins on the 29th: the week has an hour less.
    assert_eq!(week[1].0.seconds_since(week[0].0), 7 * 86_400 - HOUR);
    assert_eq!(week[1].1.seconds_since(week[1].0), 2 * HOUR);
    let gap = times("2026-03-29T02:30", "2026-03-29T05:00", &berlin, 1);
    assert_eq!(refused(gap).code, codes::RESERVATION_NO_SUCH_TIME);
    let fold = times("2026-10-25T02:30", "2026-10-25T05:00", &berlin, 1).unwrap();
    assert_eq!(fold[0].1.seconds_since(fold[0].0), 3 * HOUR + HOUR / 2);
    let turned = times("2026-03-23T11:00", "2026-03-23T09:00", &berlin, 1);
    assert_eq!(refused(turned).code, codes::RESERVATION_END_FIRST);
    let never = times("tomorrow", "2026-03-23T09:00", &berlin, 1);
    assert_eq!(refused(never).code, codes::RESERVATION_TIME_INVALID);
    let long = times("2026-03-01T09:00", "2026-03-23T09:00", &berlin, 1);
    assert_eq!(refused(long).code, codes::RESERVATION_TOO_LONG);
    for repeats in [0, MAX_REPEATS + 1] {
        let all = times("2026-03-23T09:00", "2026-03-23T11:00", &berlin, repeats);
        assert_eq!(refused(all).code, codes::RESERVATION_REPEATS);
    }
}

#[test]
fn a_time_with_an_offset_is_that_moment() {
    let berlin = zone("Europe/Berlin");
    let local = times("2026-03-23T09:00", "2026-03-23T11:00", &berlin, 2).unwrap();
    for (from, to) in [
        ("2026-03-23T08:00:00Z", "2026-03-23T10:00:00Z"),
        ("2026-03-23T17:00:00+09:00", "2026-03-23T11:00"),
    ] {
        assert_eq!(times(from, to, &berlin, 2).unwrap(), local, "{from}");
    }
    // The second of the two half past two.
    let second = times("2026-10-25T02:30:00+01:00", "2026-10-25T05:00", &berlin, 1).unwrap();
    assert_eq!(second[0].1.seconds_since(second[0].0), 2 * HOUR + HOUR / 2);
}

#[test]
fn the_clock_takes_each_step_once() {
    let mut one = booked(1, 10, 12);
    assert_eq!(
        one.clone().advance(false, at(10)),
        None,
        "nothing is chosen"
    );
    one.parts.push(ReservedPart {
        node: crate::names::NodeId(uuid::Uuid::from_u128(1)),
        devices: vec!["device".into()],
        cpu: CpuShare::ZERO,
        memory: Bytes::ZERO,
    });
    assert_eq!(one.advance(false, at(9)), None);
    // Away since nine: the warning still comes first.
    assert_eq!(one.advance(false, at(11)), Some(ReservationState::Warned));
    assert_eq!(one.advance(false, at(8)), None, "a clock that was set back");
    assert_eq!(one.advance(false, at(11)), None, "warned just now");
    let begun = at(11).plus_seconds(WARNING_SECONDS);
    assert_eq!(one.advance(false, begun), Some(ReservationState::Active));
    assert_eq!(one.advance(false, begun), None);
    let later = begun.plus_seconds(UNUSED_SECONDS);
    assert_eq!(one.clone().advance(true, later), None);
    assert_eq!(
        one.clone().advance(false, at(12)),
        Some(ReservationState::Over)
    );
    assert_eq!(one.advance(false, later), Some(ReservationState::Released));
    assert_eq!(one.advance(false, at(13)), None);
}

#[test]
fn a_request_keeps_nothing_and_expires_at_its_begin() {
    let mut one = booked(2, 10, 12);
    one.state = ReservationState::Asked;
    assert!(one.state.is_open() && !one.state.counts());
    assert!(!one.chooses(at(10)), "no device is chosen for it");
    let beside = check(
        gpus(4),
        &[(at(10), at(12))],
        std::slice::from_ref(&one),
        gpus(4),
        at(0),
    );
    assert_eq!(beside, Ok(()), "it blocks no reservation");
    assert_eq!(one.advance(false, at(9)), None);
    assert_eq!(one.advance(false, at(10)), Some(ReservationState::Expired));
    assert!(!one.state.is_open());
    for state in ReservationState::ALL {
        assert_eq!(ReservationState::parse(state.word()), Some(state));
    }
}
