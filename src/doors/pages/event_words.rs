//! Who did what an event tells, and what it says of before and after, in the reader's language. In English as they are
//! kept: one word, or a sentence of the catalogue. Names, ids and values of settings stay as they are in any language.

use api::events::EventView;
use rules::course::CourseState;
use rules::idleness::{IdleAction, read_told};
use rules::reservation::ReservationState;
use rules::session::SessionState;
use rules::units::Timestamp;

use super::presenter;
use super::request_context::LocalClock;
use crate::doors::text::{Language, Text};

/// Who did it: a user by name, or the part of the server.
pub(super) fn actor(t: Text, event: &EventView) -> String {
    match event.actor.as_str() {
        "access" => t.event_actor_access(),
        rules::names::BUDGETS => t.event_actor_budgets(),
        "controller" => t.event_actor_controller(),
        "courses" => t.event_actor_courses(),
        "idle-rules" => t.event_actor_idle_rules(),
        "limits" => t.event_actor_limits(),
        "node" => t.event_actor_node(),
        "reservations" => t.event_actor_reservations(),
        "retention" => t.event_actor_retention(),
        "schedule" => t.event_actor_schedule(),
        "scheduler" => t.event_actor_scheduler(),
        "server" => t.event_actor_server(),
        name => return name.to_owned(),
    }
    .to_owned()
}

/// What changed, or why: before and after with an arrow between them where there are both. A reason is no state: the
/// state before stands apart from it.
pub(super) fn detail(t: Text, clock: &LocalClock, event: &EventView) -> String {
    let is_state = |words| SessionState::parse(words).is_some();
    let value = |kept: &str| value(t, clock, &event.code, kept);
    match (event.before.as_str(), event.after.as_str()) {
        ("", after) => value(after),
        (before, "") => value(before),
        (before, reason) if is_state(before) && !is_state(reason) => {
            format!("{} · {}", value(reason), t.event_before(value(before)))
        }
        (before, after) => format!("{} → {}", value(before), value(after)),
    }
}

fn value(t: Text, clock: &LocalClock, code: &str, kept: &str) -> String {
    if code == "session.idle-kept"
        && let Ok(until) = Timestamp::parse(kept)
    {
        return t.idle_told_kept(clock.date(until));
    }
    let timed = match code.split_once('.') {
        Some(("announcement", _)) => announced(t, clock, kept),
        Some(("allowance", _)) => allowed(t, clock, kept),
        Some(("reservation", _)) => booked(t, clock, kept),
        Some(("audit", "exported")) => exported(t, clock, kept),
        Some(("course", "added" | "changed" | "removed")) => term(clock, kept),
        Some((
            "user",
            "departed" | "end-set" | "account-ended" | "sign-in-link-made" | "sign-in-link-revoked",
        )) => {
            let until = Timestamp::parse(kept).ok();
            until.map(|until| t.idle_told_kept(clock.date(until)))
        }
        _ => None,
    };
    if let Some(told) = timed {
        return told;
    }
    if code == "session.reservation-warned"
        && let Ok(begins) = Timestamp::parse(kept)
    {
        return t.reservations_told_begins(clock.date(begins));
    }
    if code == "session.course-warned"
        && let Ok(ends) = Timestamp::parse(kept)
    {
        return t.courses_told_ends(clock.date(ends));
    }
    if t.language == Language::English {
        return presenter::state_told(t, kept).unwrap_or_else(|| kept.to_owned());
    }
    let told = match code {
        "gpu.cordoned" | "gpu.uncordoned" => cordon(t, kept),
        "gpu.partitioned" if kept == "whole" => Some(t.gpu_partitions_whole().to_owned()),
        "gpu.tested" => tested(t, kept),
        "session.idle-warned" => idle(t, kept),
        "user.password-set" | "user.password-changed" => tokens(t, kept),
        "reservation.moved" => ReservationState::parse(kept)
            .map(|state| presenter::reservation_word(t, state).to_owned()),
        "course.opened" | "course.closed" | "course.archived" | "course.began"
        | "course.warned" | "course.withdrawn" => {
            CourseState::parse(kept).map(|state| presenter::course_word(t, state).to_owned())
        }
        "user.added" | "user.removed" | "user.role-set" | "project.member-removed" => {
            role(t, kept).map(str::to_owned)
        }
        "user.role-granted" | "user.role-revoked" => granted(t, kept),
        "project.member-set" => member(t, kept),
        "project.invited" | "project.invitation-revoked" => invited(t, kept),
        "project.state-set" => state(t, kept),
        code if code.starts_with("operation.") => operation(t, kept),
        _ => None,
    };
    told.unwrap_or_else(|| presenter::told(t, kept))
}

/// `2026-11-28T03:00:00Z/2026-11-28T05:00:00Z No new sessions`: from when until when, and the beginning of the text.
fn announced(t: Text, clock: &LocalClock, kept: &str) -> Option<String> {
    let (times, text) = kept.split_once(' ')?;
    let (from, until) = times.split_once('/')?;
    let from = clock.date(Timestamp::parse(from).ok()?);
    let span = match until {
        "" => t.event_from(from),
        until => format!("{from} – {}", clock.date(Timestamp::parse(until).ok()?)),
    };
    Some(format!("{span} · {text}"))
}

/// `4 GPUs until 2026-11-28T03:00:00Z`: limits, and until when they hold.
fn allowed(t: Text, clock: &LocalClock, kept: &str) -> Option<String> {
    let (limits, until) = kept.rsplit_once(" until ")?;
    let until = clock.date(Timestamp::parse(until).ok()?);
    Some(format!("{limits} · {}", t.idle_told_kept(until)))
}

/// `gpu=2 cpu=4 memory=8 GiB from=2026-11-28T03:00:00Z to=2026-11-28T05:00:00Z weeks=3`
fn booked(t: Text, clock: &LocalClock, kept: &str) -> Option<String> {
    let (amount, times) = kept.split_once(" from=")?;
    let (from, times) = times.split_once(" to=")?;
    let (to, weeks) = times.split_once(" weeks=")?;
    let [from, to] = [from, to].map(|at| Timestamp::parse(at).ok());
    let told = format!("{amount} · {} – {}", clock.date(from?), clock.date(to?));
    Some(match weeks {
        "1" => told,
        weeks => format!("{told} · {}", t.reservations_weeks(weeks)),
    })
}

/// `2025-01-01T00:00:00Z/2026-01-01T00:00:00Z`: the times of the acts that were exported, either of them empty. They may
/// be years ago.
fn exported(t: Text, clock: &LocalClock, kept: &str) -> Option<String> {
    // A user whose acts alone were taken stands behind the times.
    let (times, user) = kept.split_once(' ').unwrap_or((kept, ""));
    let (since, until) = times.split_once('/')?;
    let read = |at: &str| with_year(clock, at);
    let told = match (since, until) {
        ("", "") => t.audit_view_all().to_owned(),
        (since, "") => t.event_from(read(since)?),
        ("", until) => t.idle_told_kept(read(until)?),
        (since, until) => format!("{} – {}", read(since)?, read(until)?),
    };
    Some(match user.is_empty() {
        true => told,
        false => format!("{told} · {user}"),
    })
}

/// `deep-2027 2026-11-28T03:00:00Z..2027-03-01T03:00:00Z`: the name of a course and its term.
fn term(clock: &LocalClock, kept: &str) -> Option<String> {
    let (name, times) = kept.rsplit_once(' ')?;
    let (from, to) = times.split_once("..")?;
    let [from, to] = [from, to].map(|at| with_year(clock, at));
    Some(format!("{name} · {} – {}", from?, to?))
}

/// A time that may be in another year. None for what is no time.
fn with_year(clock: &LocalClock, at: &str) -> Option<String> {
    let at = Timestamp::parse(at).ok()?;
    Some(format!("{} {}", clock.day(at), clock.minute(at)))
}

/// `stop in 15 min`
fn idle(t: Text, kept: &str) -> Option<String> {
    let (action, minutes) = read_told(kept)?;
    Some(match action {
        IdleAction::Notice => t.idle_told_notice(minutes),
        IdleAction::Stop => t.idle_told_stop(minutes),
        IdleAction::Pause => t.idle_told_pause(minutes),
        IdleAction::Requeue => t.idle_told_requeue(minutes),
    })
}

/// `cordoned: a fan is loud`
fn cordon(t: Text, kept: &str) -> Option<String> {
    let (word, note) = kept.split_once(": ").unwrap_or((kept, ""));
    let word = match word {
        "cordoned" => t.gpu_cordoned(),
        "open" => t.gpu_open(),
        _ => return None,
    };
    Some(match note {
        "" => word.to_owned(),
        note => format!("{word}: {note}"),
    })
}

/// `passed, driver 580.95.05`
fn tested(t: Text, kept: &str) -> Option<String> {
    let (word, driver) = kept.split_once(", driver ")?;
    match word {
        "passed" => Some(t.event_tested_passed(driver)),
        "failed" => Some(t.event_tested_failed(driver)),
        _ => None,
    }
}

fn tokens(t: Text, kept: &str) -> Option<String> {
    match kept {
        "tokens revoked" => Some(t.event_tokens_revoked().to_owned()),
        "tokens kept" => Some(t.event_tokens_kept().to_owned()),
        _ => None,
    }
}

fn role(t: Text, word: &str) -> Option<&'static str> {
    match word {
        "administrator" => Some(t.me_role_administrator()),
        "user" => Some(t.me_role_user()),
        "auditor" => Some(t.projects_role_auditor()),
        "lead" => Some(t.projects_role_lead()),
        "member" => Some(t.projects_role_member()),
        "viewer" => Some(t.projects_role_viewer()),
        _ => None,
    }
}

/// `auditor site`: a role and where it is held.
fn granted(t: Text, kept: &str) -> Option<String> {
    let (word, place) = kept.split_once(' ')?;
    let place = match place {
        "site" => t.event_site(),
        domain => domain,
    };
    Some(format!("{} ({place})", role(t, word)?))
}

/// `mina lead`: a member and the role; before it the role alone.
fn member(t: Text, kept: &str) -> Option<String> {
    match kept.rsplit_once(' ') {
        Some((name, word)) => Some(format!("{name} ({})", role(t, word)?)),
        None => role(t, kept).map(str::to_owned),
    }
}

/// `lead mina@lab.example`, `member 40`: the role, and for whom or how many.
fn invited(t: Text, kept: &str) -> Option<String> {
    let (word, whom) = kept.split_once(' ')?;
    Some(format!("{} ({whom})", role(t, word)?))
}

fn state(t: Text, kept: &str) -> Option<String> {
    match kept {
        "active" => Some(t.event_project_active().to_owned()),
        "archived" => Some(t.projects_archived().to_owned()),
        _ => None,
    }
}

/// What kind of work an operation was; why it failed is a sentence of the catalogue.
fn operation(t: Text, kept: &str) -> Option<String> {
    match kept {
        "image.import" => Some(t.event_import().to_owned()),
        "session.commit" => Some(t.event_commit().to_owned()),
        "gpu.test" => Some(t.self_test_title().to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(t: Text, code: &str, kept: &str) -> String {
        super::value(t, &LocalClock::of(t, "UTC"), code, kept)
    }

    #[test]
    fn a_time_that_an_event_keeps_is_told_by_the_clock_of_the_reader() {
        let kept = "2026-11-28T03:56:02.123Z";
        let told = |language| {
            let t = Text::new(language);
            let clock = LocalClock::of(t, "Asia/Seoul");
            super::value(t, &clock, "session.idle-kept", kept)
        };
        assert_eq!(told(Language::English), "until 28 Nov 12:56");
        assert_eq!(told(Language::Korean), "11월 28일 12:56까지");
    }

    #[test]
    fn no_time_that_an_event_keeps_is_told_as_it_is_kept() {
        let told = |language, code, kept| {
            let t = Text::new(language);
            super::value(t, &LocalClock::of(t, "Asia/Seoul"), code, kept)
        };
        for (code, kept, english, korean) in [
            (
                "announcement.added",
                "2026-11-28T03:00:00Z/2026-11-28T05:00:00Z Down at noon.",
                "28 Nov 12:00 – 28 Nov 14:00 · Down at noon.",
                "11월 28일 12:00 – 11월 28일 14:00 · Down at noon.",
            ),
            (
                "announcement.changed",
                "2026-11-28T03:00:00.5Z/ New disks.",
                "from 28 Nov 12:00 · New disks.",
                "11월 28일 12:00부터 · New disks.",
            ),
            (
                "announcement.removed",
                "no time/ New disks.",
                "no time/ New disks.",
                "no time/ New disks.",
            ),
            (
                "allowance.added",
                "gpu 2 until 2026-11-28T03:00:00Z",
                "gpu 2 · until 28 Nov 12:00",
                "gpu 2 · 11월 28일 12:00까지",
            ),
            (
                "reservation.booked",
                "gpu=2 cpu=4 memory=8 GiB from=2026-11-28T03:00:00.000Z to=2026-11-28T05:00:00.000Z weeks=1",
                "gpu=2 cpu=4 memory=8 GiB · 28 Nov 12:00 – 28 Nov 14:00",
                "gpu=2 cpu=4 memory=8 GiB · 11월 28일 12:00 – 11월 28일 14:00",
            ),
            ("reservation.changed", "lecture", "lecture", "lecture"),
            (
                "user.departed",
                "2026-11-28T03:00:00.000Z",
                "until 28 Nov 12:00",
                "11월 28일 12:00까지",
            ),
            (
                "user.sign-in-link-made",
                "2026-11-28T03:00:00.000Z",
                "until 28 Nov 12:00",
                "11월 28일 12:00까지",
            ),
            (
                "audit.exported",
                "2025-11-28T03:00:00.000Z/",
                "from 28 Nov 2025 12:00",
                "2025년 11월 28일 12:00부터",
            ),
            (
                "audit.exported",
                "2025-11-28T03:00:00.000Z/2026-11-28T03:00:00.000Z",
                "28 Nov 2025 12:00 – 28 Nov 2026 12:00",
                "2025년 11월 28일 12:00 – 2026년 11월 28일 12:00",
            ),
            ("audit.exported", "/", "All acts", "모든 행위"),
            (
                "course.changed",
                "deep-2027 2026-11-28T03:00:00.000Z..2027-03-01T03:00:00.000Z",
                "deep-2027 · 28 Nov 2026 12:00 – 1 Mar 2027 12:00",
                "deep-2027 · 2026년 11월 28일 12:00 – 2027년 3월 1일 12:00",
            ),
            ("course.removed", "deep", "deep", "deep"),
        ] {
            assert_eq!(told(Language::English, code, kept), english);
            assert_eq!(told(Language::Korean, code, kept), korean);
        }
    }

    #[test]
    fn what_an_event_keeps_in_words_is_told_in_korean() {
        let korean = Text::new(Language::Korean);
        for (code, kept) in [
            ("gpu.cordoned", "open"),
            ("gpu.cordoned", "cordoned"),
            ("gpu.partitioned", "whole"),
            ("user.password-set", "tokens revoked"),
            ("user.password-set", "tokens kept"),
            ("user.password-changed", "tokens revoked"),
            ("user.role-set", "administrator"),
            ("user.added", "user"),
            ("user.role-granted", "auditor site"),
            ("project.member-set", "viewer"),
            ("project.state-set", "active"),
            ("project.state-set", "archived"),
            ("operation.succeeded", "image.import"),
            ("operation.accepted", "gpu.test"),
            ("session.running", "running"),
            ("session.preempted", "pending"),
        ] {
            let told = value(korean, code, kept);
            let latin = told.chars().filter(char::is_ascii_alphabetic).count();
            assert!(latin <= "GPU".len(), "{code} says {told:?} of {kept:?}");
            let english = value(Text::default(), code, kept);
            match kept {
                "running" => assert_eq!(english, "Running"),
                "pending" => assert_eq!(english, "Waiting"),
                _ => assert_eq!(english, kept),
            }
        }
    }

    #[test]
    fn an_arrow_stands_between_two_states_or_values_and_never_before_a_reason() {
        for (code, before, after, english, korean) in [
            (
                "session.ended",
                "stopping",
                "It was stopped by its user.",
                "It was stopped by its user. · before: Stopping",
                "이전 상태: 중지하는 중",
            ),
            (
                "session.running",
                "preparing",
                "running",
                "Preparing → Running",
                "준비 중 → 실행 중",
            ),
            ("settings.changed", "7", "9", "7 → 9", "7 → 9"),
            ("gpu.cordoned", "", "cordoned", "cordoned", ""),
        ] {
            let event = EventView {
                sequence: 1,
                at: Timestamp::default(),
                actor: "mina".into(),
                topic: "sessions".into(),
                object: "x".into(),
                code: code.into(),
                before: before.into(),
                after: after.into(),
            };
            let told = |t| detail(t, &LocalClock::of(t, "UTC"), &event);
            assert_eq!(told(Text::default()), english);
            let told = told(Text::new(Language::Korean));
            assert!(told.contains(korean), "{told}");
        }
    }

    #[test]
    fn names_notes_and_drivers_stay_as_they_are() {
        let korean = Text::new(Language::Korean);
        for (code, kept, stays) in [
            ("gpu.cordoned", "cordoned: a fan is loud", "a fan is loud"),
            ("gpu.tested", "passed, driver 580.95.05", "580.95.05"),
            ("project.member-set", "mina lead", "mina"),
            ("user.role-granted", "auditor physics", "physics"),
            ("token.made", "laptop", "laptop"),
            ("user.role-set", "emperor", "emperor"),
        ] {
            let told = value(korean, code, kept);
            assert!(told.contains(stays), "{code}: {told}");
        }
    }
}
