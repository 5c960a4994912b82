//! An announcement: a short text of an administrator that the readers of the console see from a time to a time. Says
//! what is refused, and who reads which. Never reads a clock: the caller brings the time.

use serde::{Deserialize, Serialize};

use crate::names::AnnouncementId;
use crate::refusal::Refusal;
use crate::refusals;
use crate::session::hidden;
use crate::tenancy::DomainId;
use crate::units::Timestamp;

/// Characters of a text. Higher: the banner fills a phone. Lower: a maintenance cannot be explained.
pub const MAX_ANNOUNCEMENT_LENGTH: usize = 500;
/// Days between beginning and end, and until the beginning: a year, also a leap year. Higher: a forgotten text comes
/// up when nobody knows of it.
pub const MAX_ANNOUNCED_DAYS: u64 = 366;

/// How much it matters to the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AnnouncementLevel {
    Info,
    Warning,
}

impl AnnouncementLevel {
    pub const ALL: [Self; 2] = [Self::Info, Self::Warning];

    pub fn word(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.word() == word)
    }
}

/// One announcement as its row has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    pub id: AnnouncementId,
    /// Whose users read it; None: those of the whole site.
    pub domain: Option<DomainId>,
    pub level: AnnouncementLevel,
    pub text: String,
    /// For readers in Korean; empty: they read `text`.
    pub text_ko: String,
    pub from: Timestamp,
    /// None: until it is removed.
    pub until: Option<Timestamp>,
    /// Shown on the sign-in page as well.
    pub before_sign_in: bool,
    pub generation: u64,
}

impl Announcement {
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    pub fn holds_at(&self, now: Timestamp) -> bool {
        self.from <= now && !self.is_over(now)
    }

    /// True where a user of that home domain reads it; None: who did not sign in yet.
    pub fn is_for(&self, reader: Option<DomainId>) -> bool {
        match (self.domain, reader) {
            (None, None) => self.before_sign_in,
            (None, Some(_)) => true,
            (Some(domain), reader) => reader == Some(domain),
        }
    }

    /// Refuses what belongs to the whole site where it is of one domain: before the sign-in nobody has a domain.
    pub fn check_place(&self) -> Result<(), Refusal> {
        match self.before_sign_in && self.domain.is_some() {
            true => Err(refusals::announcement_before_sign_in().at("/before_sign_in")),
            false => Ok(()),
        }
    }

    /// Refuses times at which nobody would read it, and those too far away.
    ///
    /// Errors: `announcement.start`, `announcement.end`.
    pub fn check_times(&self, now: Timestamp) -> Result<(), Refusal> {
        let longest = MAX_ANNOUNCED_DAYS * 86_400;
        if self.from > now.plus_seconds(longest) {
            return Err(refusals::announcement_start(MAX_ANNOUNCED_DAYS).at("/from"));
        }
        let good = |until| until > self.from.max(now) && until <= self.from.plus_seconds(longest);
        match self.until.is_none_or(good) {
            true => Ok(()),
            false => Err(refusals::announcement_end(MAX_ANNOUNCED_DAYS).at("/until")),
        }
    }
}

/// A text as it is kept: without blanks around it.
///
/// Errors: `announcement.text-too-long`, `announcement.hidden-characters`, each at `pointer`.
pub fn announced(typed: &str, pointer: &str) -> Result<String, Refusal> {
    let text = typed.trim();
    let length = text.chars().count();
    if length > MAX_ANNOUNCEMENT_LENGTH {
        let refusal = refusals::announcement_too_long(length, MAX_ANNOUNCEMENT_LENGTH);
        return Err(refusal.at(pointer));
    }
    if text.chars().any(hidden) {
        return Err(refusals::announcement_hidden_characters().at(pointer));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600;

    fn at(hours: u64) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000).plus_seconds(hours * HOUR)
    }

    fn announcement(from: u64, until: Option<u64>) -> Announcement {
        Announcement {
            id: AnnouncementId(uuid::Uuid::from_u128(1)),
            domain: None,
            level: AnnouncementLevel::Info,
            text: "The cluster is down on Saturday.".to_owned(),
            text_ko: String::new(),
            from: at(from),
            until: until.map(at),
            before_sign_in: false,
            generation: 1,
        }
    }

    #[test]
    fn it_holds_from_its_first_moment_until_before_its_last() {
        let one = announcement(2, Some(4));
        let holds: Vec<bool> = (1..=4).map(|hour| one.holds_at(at(hour))).collect();
        assert_eq!(holds, [false, true, true, false]);
        assert!(one.is_over(at(4)) && !one.is_over(at(3)));
        assert!(announcement(2, None).holds_at(at(100_000)));
    }

    #[test]
    fn times_lie_ahead_and_within_a_year() {
        let days = |n: u64| n * 24;
        let checked = |from, until| {
            let refused = announcement(from, until).check_times(at(10)).err();
            refused.map_or_else(String::new, |refusal| refusal.code)
        };
        for (from, until, code) in [
            (10, None, ""),
            (0, Some(11), ""),
            (10, Some(10 + days(366)), ""),
            (10 + days(366), None, ""),
            (11 + days(366), None, "announcement.start"),
            (10, Some(10), "announcement.end"),
            (20, Some(20), "announcement.end"),
            (20, Some(15), "announcement.end"),
            (0, Some(10), "announcement.end"),
            (10, Some(11 + days(366)), "announcement.end"),
        ] {
            assert_eq!(checked(from, until), code, "{from} {until:?}");
        }
    }

    #[test]
    fn readers_are_the_users_of_its_domain_or_everybody() {
        let (own, other) = (DomainId::DEFAULT, DomainId(uuid::Uuid::from_u128(7)));
        let of_site = announcement(0, None);
        let of_domain = Announcement {
            domain: Some(own),
            ..of_site.clone()
        };
        let at_the_door = Announcement {
            before_sign_in: true,
            ..of_site.clone()
        };
        for (one, readers) in [
            (&of_site, [true, true, false]),
            (&of_domain, [true, false, false]),
            (&at_the_door, [true, true, true]),
        ] {
            let read = [Some(own), Some(other), None].map(|reader| one.is_for(reader));
            assert_eq!(read, readers);
        }
        let odd = Announcement {
            before_sign_in: true,
            ..of_domain
        };
        assert!(odd.check_place().is_err() && at_the_door.check_place().is_ok());
    }

    #[test]
    fn a_text_is_plain_and_short() {
        assert_eq!(announced("  a <b>  ", "/text").as_deref(), Ok("a <b>"));
        assert!(announced(&"가".repeat(MAX_ANNOUNCEMENT_LENGTH), "/text").is_ok());
        let long = announced(&"가".repeat(MAX_ANNOUNCEMENT_LENGTH + 1), "/text_ko");
        let long = long.expect_err("it is too long");
        assert_eq!(long.code, "announcement.text-too-long");
        assert_eq!(long.pointer.as_deref(), Some("/text_ko"));
        for text in ["a\nb", "a\u{202e}b", "a\u{200b}b", "a\0b"] {
            let refused = announced(text, "/text").expect_err("it hides something");
            assert_eq!(refused.code, "announcement.hidden-characters", "{text:?}");
        }
    }
}
