//! Days off of a site or a domain: reads lists of them, and says which days are off. Never reads a clock or a table of time
//! zones: a day is a day of the calendar, wherever the reader is.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;
use crate::refusals;
use crate::session::hidden;
use crate::units::quoted;

/// Days off of one calendar. Higher: pages list more than people read, and each world carries them. Lower: ten years of a
/// country with many do not go in.
pub const MAX_HOLIDAYS: usize = 500;
/// Bytes of a list. Higher: one request holds more memory. Lower: a calendar file with long descriptions does not go in.
pub const MAX_HOLIDAY_LIST: usize = 256 << 10;
/// Characters of the name of a day.
pub const MAX_HOLIDAY_NAME: usize = 80;
/// Days that one entry of a calendar file may last.
const MAX_DAYS_IN_A_ROW: i64 = 31;
const YEARS: std::ops::RangeInclusive<i16> = 1970..=2199;

/// A day of the calendar, as days since 1 January 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CalendarDay(pub i64);

impl CalendarDay {
    /// Reads `2026-12-25`; None for what is no day of these two centuries.
    pub fn parse(text: &str) -> Option<Self> {
        let is_plain = text.len() == 10 && text.is_ascii();
        Self::of(text.parse().ok().filter(|_| is_plain)?)
    }

    /// Reads `20261225`.
    fn parse_compact(text: &str) -> Option<Self> {
        let digits = text.get(..8)?;
        if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        let (year, rest) = digits.split_at(4);
        let (month, day) = rest.split_at(2);
        Self::parse(&format!("{year}-{month}-{day}"))
    }

    /// None for what is no day of these two centuries.
    pub fn of(date: jiff::civil::Date) -> Option<Self> {
        let epoch = jiff::civil::date(1970, 1, 1);
        let days = date.since((jiff::Unit::Day, epoch)).ok()?.get_days();
        YEARS
            .contains(&date.year())
            .then_some(Self(i64::from(days)))
    }
}

/// As `parse` reads it.
impl fmt::Display for CalendarDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let epoch = jiff::civil::date(1970, 1, 1);
        let days = jiff::Span::new().try_days(self.0).unwrap_or_default();
        let date = epoch.checked_add(days).unwrap_or(epoch);
        write!(f, "{date}")
    }
}

/// Days off by day, each with its name, which may be empty.
pub type Holidays = BTreeMap<CalendarDay, String>;

/// Reads a list: a calendar file (`BEGIN:VCALENDAR`), or one day a line with its name behind a comma, a semicolon, a tab or
/// a space. Empty lines, lines with `#` and a line of headings are passed over; of a day that comes twice the last
/// name counts.
///
/// Errors: `holiday.list-too-large`, `holiday.row-invalid` with the number of the line, `holiday.too-many`; at `/list`.
pub fn read_list(text: &str) -> Result<Holidays, Refusal> {
    if text.len() > MAX_HOLIDAY_LIST {
        return Err(refusals::holiday_list_too_large(MAX_HOLIDAY_LIST >> 10).at("/list"));
    }
    let text = text.trim_start_matches('\u{feff}');
    let found = match text.trim_start().starts_with("BEGIN:VCALENDAR") {
        true => read_calendar(text)?,
        false => read_lines(text)?,
    };
    refuse_many(&found)?;
    Ok(found)
}

/// Errors: `holiday.too-many`.
pub fn refuse_many(days: &Holidays) -> Result<(), Refusal> {
    match days.len() > MAX_HOLIDAYS {
        true => Err(refusals::holiday_too_many(MAX_HOLIDAYS).at("/list")),
        false => Ok(()),
    }
}

/// One day a line, as `read_list` reads it.
pub fn told(days: &Holidays) -> String {
    let lines = days.iter().map(|(day, name)| format!("{day} {name}"));
    lines.map(|line| format!("{}\n", line.trim_end())).collect()
}

fn wrong(number: usize, line: &str) -> Refusal {
    let line: String = line.chars().take(MAX_HOLIDAY_NAME).collect();
    refusals::holiday_row_invalid(number, quoted(&line)).at("/list")
}

fn name_of(text: &str) -> Option<String> {
    let name = text.trim().trim_matches('"').trim();
    let fits = name.chars().count() <= MAX_HOLIDAY_NAME && !name.chars().any(hidden);
    fits.then(|| name.to_owned())
}

fn read_lines(text: &str) -> Result<Holidays, Refusal> {
    let mut days = Holidays::new();
    let mut is_first = true;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let end = line.find([',', ';', '\t', ' ']).unwrap_or(line.len());
        let (day, name) = line.split_at(end);
        let is_heading = is_first && !line.contains(|c: char| c.is_ascii_digit());
        is_first = false;
        if is_heading {
            continue;
        }
        let name = name.trim_start_matches([',', ';', '\t', ' ']);
        let day = CalendarDay::parse(day.trim_matches('"'));
        let (Some(day), Some(name)) = (day, name_of(name)) else {
            return Err(wrong(number, line));
        };
        days.insert(day, name);
    }
    Ok(days)
}

/// One entry of a calendar file under way.
#[derive(Default)]
struct CalendarEntry {
    begins: Option<CalendarDay>,
    /// The first day after it.
    ends: Option<CalendarDay>,
    name: String,
}

/// Reads the entries of RFC 5545 that are given by days. One that repeats is refused: a list says each day.
fn read_calendar(text: &str) -> Result<Holidays, Refusal> {
    let mut days = Holidays::new();
    let mut entry: Option<CalendarEntry> = None;
    for (number, line) in unfolded(text) {
        let (key, value) = line.split_once(':').unwrap_or((&line, ""));
        let key = key.split(';').next().unwrap_or_default();
        let day = || CalendarDay::parse_compact(value).ok_or_else(|| wrong(number, &line));
        match key {
            "BEGIN" if value == "VEVENT" => entry = Some(CalendarEntry::default()),
            "END" if value == "VEVENT" => {
                let Some(whole) = entry.take() else {
                    return Err(wrong(number, &line));
                };
                let begin = whole.begins.ok_or_else(|| wrong(number, &line))?;
                let end = whole.ends.map_or(begin.0 + 1, |end| end.0.max(begin.0 + 1));
                if end - begin.0 > MAX_DAYS_IN_A_ROW {
                    return Err(wrong(number, &line));
                }
                for day in begin.0..end {
                    days.insert(CalendarDay(day), whole.name.clone());
                }
                refuse_many(&days)?;
            }
            key => {
                let Some(entry) = &mut entry else { continue };
                match key {
                    "DTSTART" => entry.begins = Some(day()?),
                    "DTEND" => entry.ends = Some(day()?),
                    "SUMMARY" => {
                        let plain = value.replace("\\,", ",").replace("\\;", ";");
                        let plain = plain.replace("\\n", " ").replace("\\N", " ");
                        entry.name = name_of(&plain).ok_or_else(|| wrong(number, &line))?;
                    }
                    "RRULE" | "RDATE" => return Err(wrong(number, &line)),
                    _ => {}
                }
            }
        }
    }
    Ok(days)
}

/// Lines with what is continued on the next ones, each with the number of its first. O(text).
fn unfolded(text: &str) -> Vec<(usize, String)> {
    let mut all: Vec<(usize, String)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_end_matches('\r');
        match (line.strip_prefix([' ', '\t']), all.last_mut()) {
            (Some(more), Some((_, last))) => last.push_str(more),
            (Some(_) | None, _) => all.push((number, line.to_owned())),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(text: &str) -> CalendarDay {
        CalendarDay::parse(text).expect("a day")
    }

    #[test]
    fn days_are_counted_from_1970_and_told_as_they_are_read() {
        for (text, number) in [
            ("1970-01-01", 0),
            ("1970-02-01", 31),
            ("2026-12-25", 20_812),
        ] {
            assert_eq!(day(text), CalendarDay(number), "{text}");
            assert_eq!(day(text).to_string(), text);
        }
        for text in [
            "",
            "2026-2-30",
            "2026-02-30",
            "1969-12-31",
            "2200-01-01",
            "9999-01-01",
            "２026-01-01",
        ] {
            assert_eq!(CalendarDay::parse(text), None, "{text}");
        }
    }

    #[test]
    fn lines_of_each_kind_are_one_list() {
        let wanted = Holidays::from([
            (day("2026-12-25"), "Christmas".to_owned()),
            (day("2027-01-01"), String::new()),
        ]);
        for text in [
            "2026-12-25 Christmas\n2027-01-01\n",
            "\u{feff}date,name\r\n2026-12-25,Christmas\r\n2027-01-01,\r\n",
            "# off\n\n2027-01-01\n2026-12-25;\"Christmas\"",
            "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nDTSTART;VALUE=DATE:20261225\r\nSUMMARY:Christ\r\n mas\r\n\
             END:VEVENT\r\nBEGIN:VEVENT\r\nDTSTART:20270101\r\nDTEND:20270102\r\nEND:VEVENT\r\nEND:VCALENDAR",
        ] {
            assert_eq!(read_list(text), Ok(wanted.clone()), "{text}");
        }
        assert_eq!(read_list(&told(&wanted)), Ok(wanted));
    }

    #[test]
    fn what_is_no_list_of_days_is_refused_at_its_line() {
        let code = |text: &str| read_list(text).map_err(|refusal| refusal.code);
        let invalid = Err("holiday.row-invalid".to_owned());
        for text in [
            "2026-12-25\n25.12.2027 Christmas",
            "2026-13-01",
            "2026-12-25 a\u{202e}b",
            "BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART:20261225\nRRULE:FREQ=YEARLY\nEND:VEVENT",
            "BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:none\nEND:VEVENT",
            "BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART:20260101\nDTEND:20270101\nEND:VEVENT",
        ] {
            assert_eq!(code(text), invalid, "{text}");
        }
        let many: String = (0..=MAX_HOLIDAYS as i64)
            .map(|number| format!("{}\n", CalendarDay(number)))
            .collect();
        assert_eq!(code(&many), Err("holiday.too-many".to_owned()));
        let large = "#".repeat(MAX_HOLIDAY_LIST + 1);
        assert_eq!(code(&large), Err("holiday.list-too-large".to_owned()));
        assert_eq!(code(""), Ok(Holidays::new()));
    }
}
