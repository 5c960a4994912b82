//! A course: a project with a term, and what a launch of its members begins with. Says which state follows which, what
//! the clock does to one, and what is refused. Never reads a clock, and never looks at a session.

use serde::{Deserialize, Serialize};

use crate::names::{CourseId, TenantName};
use crate::refusal::Refusal;
use crate::refusals;
use crate::reservation::moment;
use crate::session::hidden;
use crate::tenancy::{DomainId, ProjectId, Scope};
use crate::units::Timestamp;
use crate::workload::validate::check_run_seconds;

/// Characters of a title. Higher: the head of the teacher's page takes two lines of a phone.
pub const MAX_COURSE_TITLE: usize = 100;
/// Characters of the rules that members read when they launch. Higher: the launch link stands below the screen.
pub const MAX_COURSE_RULES: usize = 1_000;
/// Days of a term. Higher: a slip of the pen makes a course of a century.
pub const MAX_TERM_DAYS: u64 = 2 * 366;
/// Seconds before the end of a term at which members with sessions are told.
pub const COURSE_WARNING_SECONDS: u64 = 900;
/// Days after the close of a course until it is archived; up to then it can be opened again.
pub const ARCHIVED_AFTER_DAYS: u64 = 14;
/// Minutes by which one act extends sessions. Higher: a slip of the pen keeps GPUs for a month.
pub const MAX_EXTENSION_MINUTES: u64 = 1_440;
/// Characters of a message to the members.
pub const MAX_COURSE_MESSAGE: usize = 500;
/// Seconds between two messages in a course. Higher: a teacher who forgot a word waits to add it. Lower: a program of a
/// teacher's fills the notices of hundreds of members.
pub const MESSAGE_PAUSE_SECONDS: u64 = 60;

/// How far a course is. The clock begins and closes it; its teachers do the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CourseState {
    /// Its teachers alone see it, and it binds no one.
    Draft,
    /// Its members see it; the term has not begun.
    Open,
    /// The term has begun.
    Running,
    /// The term is over: members launch nothing, and what they had was stopped. It can be opened again.
    Closed,
    /// Kept for the records; the project is free for its next course.
    Archived,
}

impl CourseState {
    pub const ALL: [Self; 5] = [
        Self::Draft,
        Self::Open,
        Self::Running,
        Self::Closed,
        Self::Archived,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::Open => "open",
            Self::Running => "running",
            Self::Closed => "closed",
            Self::Archived => "archived",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }

    /// True while sessions can be started for its members.
    pub fn is_on(self) -> bool {
        matches!(self, Self::Open | Self::Running)
    }
}

/// What the clock does to a course.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CourseStep {
    /// The term begins.
    Begin,
    /// Members with sessions are told that it ends soon.
    Warn,
    /// The term ends: from now on members launch nothing.
    Close,
    /// Sessions of members are stopped, some at a time.
    StopSessions,
    Archive,
}

/// One course as its row has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Course {
    pub id: CourseId,
    pub domain: DomainId,
    /// Its members are the members of the course, its leads the teachers.
    pub project: ProjectId,
    /// No other course of the project has it.
    pub name: TenantName,
    /// What people read; empty: the name.
    pub title: String,
    pub state: CourseState,
    pub from: Timestamp,
    pub to: Timestamp,
    /// IANA name of the zone in which both were typed.
    pub time_zone: String,
    /// Image of its sessions, as a launch names it; empty: the usual one.
    pub image: String,
    /// Name of the preset of its sessions; empty: none.
    pub preset: String,
    /// Time limit of sessions that name none.
    pub max_runtime_seconds: Option<u64>,
    /// What members are told where they launch; may be empty.
    pub rules: String,
    /// When members were told that this term ends.
    pub warned_at: Option<Timestamp>,
    pub closed_at: Option<Timestamp>,
    /// When no session of a member was left to be stopped.
    pub stopped_at: Option<Timestamp>,
    pub generation: u64,
}

impl Course {
    /// Whose it is: the project's.
    pub fn scope(&self) -> Scope {
        Scope {
            domain: Some(self.domain),
            project: Some(self.project),
            owner: None,
        }
    }

    /// What people read.
    pub fn heading(&self) -> &str {
        match self.title.is_empty() {
            true => self.name.as_str(),
            false => &self.title,
        }
    }

    /// The moment of the next step of the clock; None where none waits for time.
    pub fn due_at(&self) -> Option<Timestamp> {
        match self.state {
            CourseState::Draft | CourseState::Archived => None,
            CourseState::Open => Some(self.from.min(self.to)),
            CourseState::Running => Some(match self.warned_at {
                None => self.warns_at(),
                Some(_) => self.to,
            }),
            CourseState::Closed => Some(match (self.stopped_at, self.closed_at) {
                (Some(_), Some(closed)) => closed.plus_seconds(ARCHIVED_AFTER_DAYS * 86_400),
                // At once, also by a clock that was set back behind the close.
                (_, _) => Timestamp::default(),
            }),
        }
    }

    /// What is due, one step at a time; None where nothing is. A clock that is set back takes nothing back.
    pub fn step(&self, now: Timestamp) -> Option<CourseStep> {
        if self.due_at().is_none_or(|due| now < due) {
            return None;
        }
        match self.state {
            CourseState::Draft | CourseState::Archived => None,
            CourseState::Open if now >= self.to => Some(CourseStep::Close),
            CourseState::Open => Some(CourseStep::Begin),
            CourseState::Running if now >= self.to => Some(CourseStep::Close),
            CourseState::Running => Some(CourseStep::Warn),
            CourseState::Closed if self.stopped_at.is_none() => Some(CourseStep::StopSessions),
            CourseState::Closed => Some(CourseStep::Archive),
        }
    }

    /// True where members launch nothing in it: it is closed, or its term is over and the clock's step is still due.
    pub fn refuses_launches(&self, now: Timestamp) -> bool {
        match self.state {
            CourseState::Draft | CourseState::Archived => false,
            CourseState::Open | CourseState::Running => now >= self.to,
            CourseState::Closed => true,
        }
    }

    /// Closes it: what is left is stopped by the clock's next steps.
    pub fn close(&mut self, now: Timestamp) {
        self.state = CourseState::Closed;
        self.closed_at = Some(now);
        self.stopped_at = None;
    }

    /// Takes it to the state that a teacher asks for. Opening one that is closed makes its term go on, up to its end,
    /// which has to lie ahead.
    ///
    /// Errors: `course.state` for a move that only the clock makes or that cannot be undone; `course.over` where the end
    /// of the term is past; `course.stopping` for an archive before sessions of members were stopped, which nothing would
    /// stop afterwards.
    pub fn ask_state(&mut self, wanted: CourseState, now: Timestamp) -> Result<(), Refusal> {
        use CourseState::{Archived, Closed, Draft, Open, Running};
        // One whose term has begun is as open as it gets.
        if self.state == wanted || (self.state, wanted) == (Running, Open) {
            return Ok(());
        }
        match (self.state, wanted) {
            (Draft | Closed, Open) => {
                if now >= self.to {
                    return Err(refusals::course_over().at("/to"));
                }
                self.state = match now < self.from {
                    true => Open,
                    false => Running,
                };
                (self.warned_at, self.closed_at, self.stopped_at) = (None, None, None);
            }
            (Open, Draft) => self.state = Draft,
            (Open | Running, Closed) => self.close(now),
            (Closed, Archived) if self.stopped_at.is_none() => {
                return Err(refusals::course_stopping().at("/state"));
            }
            (Draft | Closed, Archived) => self.state = Archived,
            (was, wanted) => {
                return Err(refusals::course_state(was.word(), wanted.word()).at("/state"));
            }
        }
        Ok(())
    }

    /// Gives it another term. The warning of the old end is taken back where the new one is later; a course that runs is
    /// open again where its begin is moved to a later time.
    pub fn set_term(&mut self, (from, to): (Timestamp, Timestamp), now: Timestamp) {
        if to > self.to {
            self.warned_at = None;
        }
        (self.from, self.to) = (from, to);
        if self.state == CourseState::Running && now < from {
            self.state = CourseState::Open;
        }
    }

    /// Refuses a time limit that no session may have, and one whose term would have ended at once.
    ///
    /// Errors: `seconds.out-of-range`, `course.over`.
    pub fn check(&self, now: Timestamp) -> Result<(), Refusal> {
        check_run_seconds(self.max_runtime_seconds)
            .map_err(|refusal| refusal.at("/max_runtime_seconds"))?;
        match self.state.is_on() && self.to <= now {
            true => Err(refusals::course_over().at("/to")),
            false => Ok(()),
        }
    }

    fn warns_at(&self) -> Timestamp {
        let millis = i64::try_from(COURSE_WARNING_SECONDS * 1000).unwrap_or(i64::MAX);
        Timestamp::from_millis(self.to.as_millis().saturating_sub(millis))
    }
}

/// The term that was typed, in local time of that zone or with an offset.
///
/// Errors: those of `reservation::moment`; `course.end-first`, `course.term-too-long`.
pub fn term(
    from: &str,
    to: &str,
    zone: &jiff::tz::TimeZone,
) -> Result<(Timestamp, Timestamp), Refusal> {
    let from = moment(from, zone, "/from")?;
    let to = moment(to, zone, "/to")?;
    if to <= from {
        return Err(refusals::course_end_first().at("/to"));
    }
    match to.seconds_since(from) > MAX_TERM_DAYS * 86_400 {
        true => Err(refusals::course_term_too_long(MAX_TERM_DAYS).at("/to")),
        false => Ok((from, to)),
    }
}

/// A title as it is kept: without blanks around it. Errors: `course.text-invalid`.
pub fn course_title(typed: &str) -> Result<String, Refusal> {
    one_line(typed, MAX_COURSE_TITLE, "/title")
}

/// The rules as they are kept. Errors: `course.text-invalid`.
pub fn course_rules(typed: &str) -> Result<String, Refusal> {
    one_line(typed, MAX_COURSE_RULES, "/rules")
}

/// A message as it is sent. Errors: `course.text-invalid`, `course.message-empty`.
pub fn course_message(typed: &str) -> Result<String, Refusal> {
    let text = one_line(typed, MAX_COURSE_MESSAGE, "/text")?;
    match text.is_empty() {
        true => Err(refusals::course_message_empty().at("/text")),
        false => Ok(text),
    }
}

/// Refuses a message soon after the last one. A last one that lies ahead, by a clock that was set back, refuses nothing.
///
/// Errors: `course.message-too-soon`.
pub fn pause_messages(told_at: Option<Timestamp>, now: Timestamp) -> Result<(), Refusal> {
    let Some(told) = told_at.filter(|told| *told <= now) else {
        return Ok(());
    };
    let since = now.seconds_since(told);
    match since < MESSAGE_PAUSE_SECONDS {
        true => {
            let left = MESSAGE_PAUSE_SECONDS - since;
            let refusal = refusals::course_message_too_soon(MESSAGE_PAUSE_SECONDS);
            Err(refusal.retry_after(left).at("/text"))
        }
        false => Ok(()),
    }
}

fn one_line(typed: &str, most: usize, pointer: &str) -> Result<String, Refusal> {
    let text = typed.trim();
    match text.chars().count() > most || text.chars().any(hidden) {
        true => Err(refusals::course_text_invalid(most).at(pointer)),
        false => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::default().plus_seconds(seconds)
    }

    /// A course of 1,000 seconds to 10,000 seconds.
    fn course(state: CourseState) -> Course {
        Course {
            id: CourseId(Uuid::nil()),
            domain: DomainId::DEFAULT,
            project: ProjectId::DEFAULT,
            name: TenantName::parse("vision").expect("a name"),
            title: String::new(),
            state,
            from: at(1_000),
            to: at(10_000),
            time_zone: "UTC".to_owned(),
            image: String::new(),
            preset: String::new(),
            max_runtime_seconds: None,
            rules: String::new(),
            warned_at: None,
            closed_at: None,
            stopped_at: None,
            generation: 1,
        }
    }

    /// Does what the clock does, as the catalog writes it.
    fn take(course: &mut Course, now: Timestamp) -> Option<CourseStep> {
        let step = course.step(now)?;
        match step {
            CourseStep::Begin => course.state = CourseState::Running,
            CourseStep::Warn => course.warned_at = Some(now),
            CourseStep::Close => course.close(now),
            CourseStep::StopSessions => course.stopped_at = Some(now),
            CourseStep::Archive => course.state = CourseState::Archived,
        }
        Some(step)
    }

    #[test]
    fn each_step_of_a_term_comes_once_and_in_order() {
        let mut one = course(CourseState::Open);
        let mut steps = Vec::new();
        for second in (0..2_000_000).step_by(100) {
            while let Some(step) = take(&mut one, at(second)) {
                steps.push((second, step));
            }
        }
        let archived = 10_000 + ARCHIVED_AFTER_DAYS * 86_400;
        let wanted = [
            (1_000, CourseStep::Begin),
            (9_100, CourseStep::Warn),
            (10_000, CourseStep::Close),
            (10_000, CourseStep::StopSessions),
            (archived, CourseStep::Archive),
        ];
        assert_eq!(steps, wanted);
        assert_eq!(one.due_at(), None, "nothing is left to be done");
    }

    #[test]
    fn a_server_that_was_off_for_the_whole_term_closes_it_without_beginning_it() {
        let mut one = course(CourseState::Open);
        assert_eq!(take(&mut one, at(20_000)), Some(CourseStep::Close));
        assert_eq!(one.closed_at, Some(at(20_000)));
    }

    #[test]
    fn sessions_are_stopped_also_where_the_clock_is_set_back_after_the_close() {
        let mut one = course(CourseState::Running);
        assert_eq!(take(&mut one, at(10_000)), Some(CourseStep::Close));
        assert_eq!(take(&mut one, at(2_000)), Some(CourseStep::StopSessions));
        assert_eq!(take(&mut one, at(2_000)), None);
    }

    #[test]
    fn members_launch_nothing_from_the_end_on_also_before_the_clock_took_its_step() {
        let refuses = |state, second| course(state).refuses_launches(at(second));
        assert!(!refuses(CourseState::Open, 0), "it refuses nothing before");
        assert!(!refuses(CourseState::Running, 9_999));
        assert!(refuses(CourseState::Running, 10_000));
        assert!(refuses(CourseState::Closed, 5_000));
        assert!(!refuses(CourseState::Draft, 20_000), "a draft binds nobody");
        assert!(!refuses(CourseState::Archived, 20_000));
    }

    #[test]
    fn a_closed_course_is_opened_again_until_it_is_archived() {
        use CourseState::{Archived, Closed, Draft, Open, Running};
        let moved = |from, to, second| {
            let mut one = course(from);
            let asked = one
                .ask_state(to, at(second))
                .map_err(|refusal| refusal.code);
            asked.map(|()| one.state)
        };
        assert_eq!(moved(Draft, Open, 0), Ok(Open));
        assert_eq!(moved(Draft, Open, 5_000), Ok(Running));
        assert_eq!(moved(Closed, Open, 5_000), Ok(Running));
        assert_eq!(moved(Running, Closed, 5_000), Ok(Closed));
        assert_eq!(moved(Open, Draft, 0), Ok(Draft));
        assert_eq!(moved(Draft, Archived, 5_000), Ok(Archived));
        assert_eq!(moved(Running, Open, 5_000), Ok(Running), "as it is");
        let state = Err("course.state".to_owned());
        assert_eq!(moved(Archived, Open, 5_000), state);
        assert_eq!(moved(Running, Draft, 5_000), state);
        assert_eq!(moved(Open, Running, 0), state, "the clock alone begins it");
        assert_eq!(moved(Running, Archived, 0), state);
        assert_eq!(moved(Closed, Open, 10_000), Err("course.over".to_owned()));
        let stopping = Err("course.stopping".to_owned());
        assert_eq!(moved(Closed, Archived, 5_000), stopping);
        let mut stopped = course(Closed);
        stopped.stopped_at = Some(at(4_000));
        stopped
            .ask_state(Archived, at(5_000))
            .expect("nothing is left to be stopped");
        let mut again = course(Closed);
        again.stopped_at = Some(at(1));
        again.warned_at = Some(at(1));
        again.ask_state(Open, at(5_000)).expect("opened again");
        assert_eq!((again.stopped_at, again.warned_at), (None, None));
    }

    #[test]
    fn a_later_end_is_warned_of_again() {
        let mut one = course(CourseState::Running);
        one.warned_at = Some(at(9_100));
        one.set_term((at(1_000), at(50_000)), at(9_500));
        assert_eq!(one.due_at(), Some(at(50_000 - COURSE_WARNING_SECONDS)));
        one.warned_at = Some(at(49_100));
        one.set_term((at(1_000), at(49_500)), at(49_200));
        assert_eq!(one.step(at(49_400)), None, "an earlier one is not");
    }

    #[test]
    fn a_begin_that_is_moved_ahead_makes_a_course_wait_for_it() {
        let mut one = course(CourseState::Running);
        one.set_term((at(3_000), at(10_000)), at(2_000));
        assert_eq!(one.state, CourseState::Open);
        assert_eq!(one.due_at(), Some(at(3_000)));
        assert_eq!(take(&mut one, at(3_000)), Some(CourseStep::Begin));
        one.set_term((at(2_500), at(10_000)), at(3_000));
        assert_eq!(one.state, CourseState::Running, "it has begun");
        let mut closed = course(CourseState::Closed);
        closed.set_term((at(3_000), at(20_000)), at(2_000));
        assert_eq!(closed.state, CourseState::Closed);
    }

    #[test]
    fn a_term_is_read_in_its_zone_and_ends_after_it_begins() {
        let zone = jiff::tz::TimeZone::get("Asia/Seoul").expect("a zone");
        let (from, to) = term("2027-03-02T09:00", "2027-06-18T18:00", &zone).expect("a term");
        assert_eq!(from.to_string(), "2027-03-02T00:00:00.000Z");
        assert_eq!(to.to_string(), "2027-06-18T09:00:00.000Z");
        let code = |from, to| term(from, to, &zone).map_err(|refusal| refusal.code);
        let day = "2027-03-02T09:00";
        assert_eq!(code(day, day), Err("course.end-first".to_owned()));
        assert_eq!(
            code(day, "2047-03-02T09:00"),
            Err("course.term-too-long".to_owned())
        );
        assert_eq!(
            code("0000-01-01", day),
            Err("reservation.time-invalid".to_owned())
        );
        assert_eq!(
            code("soon", day),
            Err("reservation.time-invalid".to_owned())
        );
    }

    #[test]
    fn messages_have_a_pause_between_them() {
        let asked = |told: Option<u64>, now| {
            let refused = pause_messages(told.map(at), at(now));
            refused.map_err(|refusal| (refusal.code, refusal.retry_after_seconds))
        };
        let soon = |left| Err(("course.message-too-soon".to_owned(), Some(left)));
        assert_eq!(asked(None, 0), Ok(()), "the first one");
        assert_eq!(asked(Some(100), 100), soon(60));
        assert_eq!(asked(Some(100), 159), soon(1));
        assert_eq!(asked(Some(100), 160), Ok(()));
        assert_eq!(asked(Some(1_000), 100), Ok(()), "the clock was set back");
    }

    #[test]
    fn a_message_is_one_line_that_says_something() {
        assert_eq!(
            course_message(" Save your work. "),
            Ok("Save your work.".to_owned())
        );
        let code = |text: &str| course_message(text).expect_err("refused").code;
        assert_eq!(code("  "), "course.message-empty");
        assert_eq!(code("a\nb"), "course.text-invalid");
        assert_eq!(
            code(&"x".repeat(MAX_COURSE_MESSAGE + 1)),
            "course.text-invalid"
        );
    }
}
