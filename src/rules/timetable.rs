//! A weekly slot of a course as the times of a reservation: from the first such day of the term that is left, each week until
//! the term ends. Pure; books nothing.

use jiff::civil::{Date, Time, Weekday};
use jiff::tz::TimeZone;

use crate::refusal::Refusal;
use crate::refusals;
use crate::reservation::MAX_REPEATS;
use crate::units::Timestamp;

/// Days as a slot names them, in the order of the week.
pub const SLOT_DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const WEEKDAYS: [Weekday; 7] = [
    Weekday::Monday,
    Weekday::Tuesday,
    Weekday::Wednesday,
    Weekday::Thursday,
    Weekday::Friday,
    Weekday::Saturday,
    Weekday::Sunday,
];

/// The times of a slot, as a reservation takes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotTimes {
    /// Local times of the first week.
    pub from: String,
    pub to: String,
    /// Weeks in a row.
    pub repeats: u32,
}

/// The weeks of a slot in a term that are left at `now`; times of day such as `09:00`, in the zone of the course.
///
/// Errors: `course.slot-day`, `course.slot-time`, `course.slot-outside` where the term has no such time left.
pub fn slot_times(
    day: &str,
    from: &str,
    to: &str,
    (begins, ends): (Timestamp, Timestamp),
    zone: &TimeZone,
    now: Timestamp,
) -> Result<SlotTimes, Refusal> {
    let day = day.trim().to_lowercase();
    let at = SLOT_DAYS.iter().position(|one| *one == day);
    let weekday = at.and_then(|at| WEEKDAYS.get(at).copied());
    let weekday = weekday.ok_or_else(|| refusals::course_slot_day().at("/day"))?;
    let (from, to) = (time_of_day(from, "/from")?, time_of_day(to, "/to")?);
    if to <= from {
        return Err(refusals::course_slot_time().at("/to"));
    }
    let outside = || refusals::course_slot_outside().at("/day");
    let start = begins.max(now);
    let first = date(start, zone).ok_or_else(outside)?;
    let days = (0..=7).filter_map(|after| first.checked_add(jiff::Span::new().days(after)).ok());
    let mut days = days.filter(|day| day.weekday() == weekday);
    let day = days
        .find(|day| instant(*day, from, zone).is_some_and(|at| at >= start))
        .ok_or_else(outside)?;
    let weeks = (0..MAX_REPEATS).take_while(|week| {
        let later = jiff::Span::new().days(i64::from(*week) * 7);
        let day = day.checked_add(later).ok();
        let over = day.and_then(|day| instant(day, to, zone));
        over.is_some_and(|over| over <= ends)
    });
    match weeks.count() as u32 {
        0 => Err(outside()),
        repeats => Ok(SlotTimes {
            from: local(day, from),
            to: local(day, to),
            repeats,
        }),
    }
}

/// `09:00`; seconds are none of a timetable's.
fn time_of_day(text: &str, pointer: &str) -> Result<Time, Refusal> {
    let wrong = || refusals::course_slot_time().at(pointer);
    let (hour, minute) = text.trim().split_once(':').ok_or_else(wrong)?;
    let number = |text: &str| match text.len() {
        1 | 2 => text.parse::<i8>().ok(),
        _ => None,
    };
    let (hour, minute) = (number(hour), number(minute));
    let (Some(hour), Some(minute)) = (hour, minute) else {
        return Err(wrong());
    };
    Time::new(hour, minute, 0, 0).map_err(|_| wrong())
}

fn date(at: Timestamp, zone: &TimeZone) -> Option<Date> {
    let at = jiff::Timestamp::from_millisecond(at.as_millis()).ok()?;
    Some(at.to_zoned(zone.clone()).date())
}

/// The moment; of a time that comes twice the first, and of one that the clocks leap over the next.
fn instant(day: Date, time: Time, zone: &TimeZone) -> Option<Timestamp> {
    let moment = day.to_datetime(time).to_zoned(zone.clone()).ok()?;
    Some(Timestamp::from_millis(moment.timestamp().as_millisecond()))
}

fn local(day: Date, time: Time) -> String {
    format!("{day}T{:02}:{:02}", time.hour(), time.minute())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::parse(text).expect("a time")
    }

    #[test]
    fn a_slot_has_each_such_day_of_the_term_that_is_left() {
        let seoul = TimeZone::get("Asia/Seoul").expect("a zone");
        // Tuesday 09:00 to Friday 18:00, two weeks and a half.
        let term = (at("2027-03-02T00:00:00Z"), at("2027-03-19T09:00:00Z"));
        let early = at("2027-02-01T00:00:00Z");
        for (day, now, from, weeks) in [
            ("tue", early, "2027-03-02T09:00", 3),
            // The Monday of the first week is before the term.
            ("Mon", early, "2027-03-08T09:00", 2),
            ("fri", early, "2027-03-05T09:00", 3),
            // In the midst of the term: that of today is past by a minute.
            ("tue", at("2027-03-09T00:01:00Z"), "2027-03-16T09:00", 1),
            ("tue", at("2027-03-09T00:00:00Z"), "2027-03-09T09:00", 2),
        ] {
            let slot = slot_times(day, "09:00", "12:30", term, &seoul, now).expect("times");
            let to = from.replace("09:00", "12:30");
            let wanted = SlotTimes {
                from: from.to_owned(),
                to,
                repeats: weeks,
            };
            assert_eq!(slot, wanted, "{day} at {now}");
        }
        // The last Friday is over before the slot would be.
        let slot = slot_times("fri", "17:00", "19:00", term, &seoul, early).expect("times");
        assert_eq!(slot.repeats, 2);
    }

    #[test]
    fn what_is_no_slot_is_refused_at_its_field() {
        let term = (at("2027-03-02T00:00:00Z"), at("2027-03-05T00:00:00Z"));
        let now = at("2027-02-01T00:00:00Z");
        let said = |day, from, to| {
            let refusal =
                slot_times(day, from, to, term, &TimeZone::UTC, now).expect_err("no slot");
            (refusal.code, refusal.pointer.unwrap_or_default())
        };
        for (day, from, to, code, field) in [
            ("someday", "09:00", "10:00", "course.slot-day", "/day"),
            ("tue", "9", "10:00", "course.slot-time", "/from"),
            ("tue", "24:00", "10:00", "course.slot-time", "/from"),
            ("tue", "09:00", "10:00:30", "course.slot-time", "/to"),
            ("tue", "10:00", "10:00", "course.slot-time", "/to"),
            ("sun", "09:00", "10:00", "course.slot-outside", "/day"),
        ] {
            assert_eq!(
                said(day, from, to),
                (code.to_owned(), field.to_owned()),
                "{day} {from} {to}"
            );
        }
    }
}
