//! Windows of a week in zones with and without summer time: what holds, until when, and what is refused.

use std::collections::BTreeMap;

use super::*;
use crate::names::{SessionId, SessionName, UserId};
use crate::resources::Demand;
use crate::session::{SessionEnvironment, SessionSpec};

/// Moments that are looked at.
const ROUNDS: u64 = 1_000;

fn at_utc(text: &str) -> Timestamp {
    Timestamp::parse(text).expect("a moment")
}

fn zone(name: &str) -> ZoneOffsets {
    ZoneOffsets::of(&jiff::tz::TimeZone::get(name).expect("a zone of the data base"))
}

fn calendar(lines: &[&str]) -> GroupCalendar {
    let windows = lines
        .iter()
        .map(|line| GroupWindow::parse(line).expect("a window"));
    GroupCalendar::checked("UTC".to_owned(), windows.collect()).expect("a calendar")
}

fn session(kind: SessionKind, limit: Option<u64>) -> Session {
    let spec = SessionSpec {
        kind,
        environment: SessionEnvironment::Host,
        command: vec!["true".into()],
        env: BTreeMap::new(),
        demand: Demand::default(),
        timeout_seconds: None,
        max_runtime_seconds: limit,
        start_at: None,
        depends_on: Vec::new(),
        containers: 1,
    };
    let (id, owner) = (SessionId(uuid::Uuid::nil()), UserId(uuid::Uuid::nil()));
    Session::launched(
        id,
        SessionName::drafted(),
        owner,
        spec,
        Timestamp::default(),
    )
}

#[test]
fn a_window_holds_on_its_days_and_over_midnight() {
    let night = calendar(&["fri 18:00-08:00 order=fifo"]);
    let seoul = zone("Asia/Seoul");
    // 27 November 2026 is a Friday; Seoul is nine hours ahead.
    for (moment, holds) in [
        ("2026-11-27T08:59:59Z", false),
        ("2026-11-27T09:00:00Z", true),
        ("2026-11-27T22:59:59Z", true),
        ("2026-11-27T23:00:00Z", false),
        ("2026-11-28T09:00:00Z", false),
        ("2026-12-04T10:00:00Z", true),
    ] {
        let found = at(&night, &seoul, at_utc(moment));
        assert_eq!(found.is_some(), holds, "{moment}");
    }
    let opens = next_change(&night, &seoul, at_utc("2026-11-28T00:00:00Z"));
    assert_eq!(opens, Some(at_utc("2026-12-04T09:00:00Z")));
    let ends = next_change(&night, &seoul, at_utc("2026-12-04T09:00:00Z"));
    assert_eq!(ends, Some(at_utc("2026-12-04T23:00:00Z")));
}

#[test]
fn a_window_keeps_its_time_of_day_when_clocks_change() {
    let day = calendar(&["daily 09:00-18:00 kinds=interactive"]);
    let berlin = zone("Europe/Berlin");
    // Clocks are put back on 25 October 2026, and forward on 28 March 2027.
    for (before, opens) in [
        ("2026-10-24T20:00:00Z", "2026-10-25T08:00:00Z"),
        ("2026-10-23T20:00:00Z", "2026-10-24T07:00:00Z"),
        ("2027-03-27T20:00:00Z", "2027-03-28T07:00:00Z"),
        ("2027-03-26T20:00:00Z", "2027-03-27T08:00:00Z"),
    ] {
        let found = next_change(&day, &berlin, at_utc(before));
        assert_eq!(found, Some(at_utc(opens)), "{before}");
    }
}

#[test]
fn what_is_shut_opens_where_kind_and_limit_are_taken() {
    let week = calendar(&[
        "mon-fri 09:00-18:00 kinds=interactive limit=4h",
        "sat,sun 00:00-24:00 kinds=none",
    ]);
    let utc = ZoneOffsets::default();
    let friday = at_utc("2026-11-27T10:00:00Z");
    for (kind, limit, expected) in [
        (SessionKind::Interactive, Some(14_400), friday),
        (
            SessionKind::Interactive,
            Some(14_401),
            at_utc("2026-11-27T18:00:00Z"),
        ),
        (
            SessionKind::Interactive,
            None,
            at_utc("2026-11-27T18:00:00Z"),
        ),
        (SessionKind::Batch, Some(60), at_utc("2026-11-27T18:00:00Z")),
    ] {
        let session = session(kind, limit);
        let found = match takes(&week, &utc, &session, friday) {
            true => Some(friday),
            false => opens(&week, &utc, &session, friday),
        };
        assert_eq!(found, Some(expected), "{kind:?} {limit:?}");
    }
    // From Saturday on it is shut until Monday, first at midnight.
    let saturday = at_utc("2026-11-28T03:00:00Z");
    let found = opens(&week, &utc, &session(SessionKind::Batch, None), saturday);
    assert_eq!(found, Some(at_utc("2026-11-30T00:00:00Z")));
    let shut = calendar(&["daily 00:00-24:00 kinds=batch"]);
    let never = session(SessionKind::Interactive, None);
    assert_eq!(opens(&shut, &utc, &never, friday), None);
    assert_eq!(next_change(&shut, &utc, friday), None);
}

/// The change that is told is the next one: minute by minute nothing else holds before it.
#[test]
fn the_next_change_is_the_first_minute_at_which_something_else_holds() {
    let week = calendar(&[
        "mon-thu 18:00-02:30 kinds=batch",
        "tue 03:00-04:00 order=lifo",
        "sat-sun 00:00-24:00 backfill=strict",
    ]);
    for name in ["UTC", "Asia/Seoul", "Europe/Berlin", "Australia/Lord_Howe"] {
        let zone = zone(name);
        for round in 0..ROUNDS {
            // About every day for more than three years.
            let minute = 29_600_000 + (round * 1_748) as i64;
            let now = Timestamp::from_millis(minute * MINUTE_MILLIS);
            let change = next_change(&week, &zone, now).expect("within a week");
            let holds = at(&week, &zone, now);
            assert_ne!(at(&week, &zone, change), holds, "{name}, round {round}");
            let mut before = now;
            while before < change {
                assert_eq!(at(&week, &zone, before), holds, "{name}, round {round}");
                before = before.plus_seconds(900);
            }
            let last = Timestamp::from_millis(change.as_millis() - 1);
            assert_eq!(at(&week, &zone, last), holds, "{name}, round {round}");
        }
    }
}

#[test]
fn a_window_is_read_as_it_is_written() {
    for line in [
        "mon-fri 18:00-08:00 kinds=batch order=fifo backfill=timed limit=8h",
        "daily 00:00-24:00 kinds=none",
        "mon,wed,fri-sun 09:30-10:00 limit=90m",
        "sat 12:00-12:00 kinds=interactive,batch limit=61s",
    ] {
        let window = GroupWindow::parse(line).expect(line);
        assert_eq!(window.to_string(), line);
    }
    let over = GroupWindow::parse("sat-mon 01:00-02:00").expect("over the end of the week");
    assert_eq!(over.to_string(), "mon,sat-sun 01:00-02:00");
    for wrong in [
        "",
        "mon",
        "mon 9:00-10:00",
        "mon 09:00",
        "mon 24:00-10:00",
        "mon 09:60-10:00",
        "mon 09:00-24:01",
        "someday 09:00-10:00",
        "mon 09:00-10:00 kinds=",
        "mon 09:00-10:00 order=best",
        "mon 09:00-10:00 limit=0h",
        "mon 09:00-10:00 limit=99999999999999999999h",
        "mon 09:00-10:00 limit=9223372036854775808s",
        "mon 09:00-10:00 colour=red",
        "월 09:00-10:00",
        "mon 09:00-10:00 limit=8시",
    ] {
        let refused = GroupWindow::parse(wrong).expect_err(wrong);
        assert_eq!(refused.code, "group.window-invalid", "{wrong}");
    }
}

#[test]
fn a_window_keeps_to_days_off_by_the_day_on_which_it_begins() {
    let week = calendar(&[
        "mon-fri 18:00-08:00 kinds=batch holidays=no",
        "mon-fri 09:00-18:00 kinds=interactive holidays=no",
        "daily 09:00-08:00 kinds=batch order=fifo holidays=only",
    ]);
    // Friday, 25 December 2026.
    let off = CalendarDay::parse("2026-12-25").expect("a day");
    let seoul = ZoneOffsets {
        holidays: [off].into(),
        ..zone("Asia/Seoul")
    };
    for (local, holds) in [
        ("2026-12-24T20:00:00+09:00", Some(0)),
        ("2026-12-25T07:59:00+09:00", Some(0)),
        ("2026-12-25T08:30:00+09:00", None),
        ("2026-12-25T10:00:00+09:00", Some(2)),
        ("2026-12-25T19:00:00+09:00", Some(2)),
        ("2026-12-26T07:00:00+09:00", Some(2)),
        ("2026-12-26T09:00:00+09:00", None),
        ("2026-12-28T10:00:00+09:00", Some(1)),
    ] {
        let found = at(&week, &seoul, at_utc(local));
        assert_eq!(
            found,
            holds.map(|window: usize| &week.windows[window]),
            "{local}"
        );
    }
    let next = next_change(&week, &seoul, at_utc("2026-12-25T10:00:00+09:00"));
    assert_eq!(next, Some(at_utc("2026-12-26T08:00:00+09:00")));
    for window in &week.windows {
        assert_eq!(GroupWindow::parse(&window.to_string()).as_ref(), Ok(window));
    }
}

#[test]
fn a_calendar_has_so_many_windows_and_one_at_a_time() {
    let checked = |lines: &[String]| {
        let windows = lines
            .iter()
            .map(|line| GroupWindow::parse(line).expect("a window"));
        GroupCalendar::checked("UTC".to_owned(), windows.collect()).map_err(|refusal| refusal.code)
    };
    let each: Vec<String> = (0..=MAX_GROUP_WINDOWS)
        .map(|hour| format!("mon {hour:02}:00-{:02}:00", hour + 1))
        .collect();
    assert!(checked(&each[..MAX_GROUP_WINDOWS]).is_ok());
    assert_eq!(checked(&each), Err("group.windows-too-many".to_owned()));
    for (one, other) in [
        ("mon 09:00-10:00", "mon-tue 09:59-11:00"),
        ("mon 22:00-02:00", "tue 01:00-03:00"),
        ("sun 22:00-02:00", "mon 01:00-03:00"),
        ("daily 00:00-24:00", "wed 12:00-13:00"),
        ("daily 00:00-24:00", "wed 12:00-13:00 holidays=only"),
        (
            "mon 22:00-02:00 holidays=no",
            "tue 01:00-03:00 holidays=only",
        ),
    ] {
        let both = [one.to_owned(), other.to_owned()];
        assert_eq!(
            checked(&both),
            Err("group.window-overlap".to_owned()),
            "{one}"
        );
    }
    let beside = ["mon 09:00-10:00", "mon 10:00-09:00"].map(str::to_owned);
    assert!(checked(&beside).is_ok());
    let long = format!("mon 09:00-10:00{}", " ".repeat(MAX_WINDOW_LENGTH));
    assert!(GroupWindow::parse(&long).is_err());
}
