//! Rows of idle rules, and what sessions were told under them. Decides nothing; `rules::idleness` does.

use rules::codes;
use rules::idleness::{
    self, IdleAction, IdleLevel, IdleStep, IdleTold, IdleWarning, ScopedIdleRule, seconds_left,
};
use rules::names::{IdleRuleId, SessionId};
use rules::reasons;
use rules::refusals;
use rules::session::{DesiredState, Session, SessionKind, SessionState};
use rules::units::Timestamp;
use rusqlite::{OptionalExtension as _, Row};

use super::events::NewEvent;
use super::reader::ReadTransaction;
use super::sessions::{ConditionalWrite, kind_word};
use super::value;
use super::writer::Rows;
use crate::Failure;

/// Who acts, in events.
const ACTOR: &str = "idle-rules";
/// The code of a warning; after: `stop in 15 min`.
pub(crate) const WARNED: &str = "session.idle-warned";

/// One rule, and what people call it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IdleRuleRecord {
    pub(crate) scoped: ScopedIdleRule,
    pub(crate) name: String,
    /// Name of the domain, `DOMAIN/PROJECT` for a project; empty for the site.
    pub(crate) whose: String,
}

/// What a session was told under which rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdleWatch {
    pub(crate) rule: IdleRuleId,
    pub(crate) rule_generation: u64,
    pub(crate) incarnation: u32,
    pub(crate) told: IdleTold,
    /// When the rule acts, by the time of day; None where it acted.
    pub(crate) due_at: Option<Timestamp>,
}

impl IdleWatch {
    /// What still holds: nothing of another version of the rule or another start of the session.
    pub(crate) fn told_under(
        watch: Option<&Self>,
        rule: &ScopedIdleRule,
        of: &Session,
    ) -> IdleTold {
        let holds = |watch: &&Self| {
            watch.rule == rule.id
                && watch.rule_generation == rule.generation
                && watch.incarnation == of.incarnation
        };
        watch
            .filter(holds)
            .map_or_else(IdleTold::default, |watch| watch.told)
    }
}

/// One thing that a round of judging decided.
#[derive(Debug, Clone)]
pub(crate) struct IdleDecision {
    pub(crate) session: SessionId,
    /// The version of the session that it was decided from.
    pub(crate) generation: u64,
    pub(crate) rule: ScopedIdleRule,
    /// What had been told.
    pub(crate) told: IdleTold,
    pub(crate) step: IdleStep,
    /// Quiet milliseconds, and the time of the newest sample.
    pub(crate) quiet: u64,
    pub(crate) sampled_at: Timestamp,
}

const RULE: &str = "idle_rule.id, idle_rule.name, level, subject, kind, exempt, rule,
                    idle_rule.generation,
                    coalesce(domain.name, home.name || '/' || project.name, '') as whose
             from idle_rule
             left join domain on level = 'domain' and domain.id = subject
             left join project on level = 'project' and project.id = subject
             left join domain as home on home.id = project.domain";

fn rule_row(row: &Row<'_>) -> rusqlite::Result<IdleRuleRecord> {
    Ok(IdleRuleRecord {
        scoped: ScopedIdleRule {
            id: IdleRuleId(value::id(row, "id")?),
            level: value::word(row, "level", IdleLevel::parse)?,
            subject: value::id_or_none(row, "subject")?,
            kind: value::word_or_none(row, "kind", kind_of)?,
            exempt: row.get("exempt")?,
            rule: value::json(row, "rule")?,
            generation: value::unsigned(row, "generation")?,
        },
        name: row.get("name")?,
        whose: row.get("whose")?,
    })
}

fn kind_of(word: &str) -> Option<SessionKind> {
    let kinds = [SessionKind::Interactive, SessionKind::Batch];
    kinds.into_iter().find(|kind| kind_word(*kind) == word)
}

const WATCH: &str = "session, rule, rule_generation, incarnation, first_at, first_quiet, second_at,
                     second_quiet, kept, kept_at, put_off, acted, due_at";

fn watch_row(row: &Row<'_>) -> rusqlite::Result<(SessionId, IdleWatch)> {
    let warning = |at: &str, quiet: &str| {
        let at = value::time_or_none(row, at)?;
        let quiet = value::unsigned_or_none(row, quiet)?;
        Ok::<_, rusqlite::Error>(at.zip(quiet).map(|(at, quiet)| IdleWarning { at, quiet }))
    };
    let watch = IdleWatch {
        rule: IdleRuleId(value::id(row, "rule")?),
        rule_generation: value::unsigned(row, "rule_generation")?,
        incarnation: row.get("incarnation")?,
        told: IdleTold {
            warnings: [
                warning("first_at", "first_quiet")?,
                warning("second_at", "second_quiet")?,
            ],
            kept: row.get("kept")?,
            kept_at: value::time_or_none(row, "kept_at")?,
            put_off: value::unsigned(row, "put_off")?,
            acted: row.get("acted")?,
        },
        due_at: value::time_or_none(row, "due_at")?,
    };
    Ok((SessionId(value::id(row, "session")?), watch))
}

impl ReadTransaction<'_> {
    /// All rules, by name.
    pub(crate) fn idle_rules(&self) -> Result<Vec<IdleRuleRecord>, Failure> {
        let mut statement = self
            .connection
            .prepare_cached(&format!("select {RULE} order by idle_rule.name"))?;
        let rows = statement.query_map([], rule_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The rule with this id or name.
    pub(crate) fn idle_rule_called(&self, which: &str) -> Result<Option<IdleRuleRecord>, Failure> {
        let id = which.parse::<IdleRuleId>().ok();
        Ok(self
            .connection
            .prepare_cached(&format!(
                "select {RULE}
                 where idle_rule.id = ?1 or (?1 is null and idle_rule.name = ?2)"
            ))?
            .query_row((id.map(|id| *id.0.as_bytes()), which), rule_row)
            .optional()?)
    }

    /// What each session was told.
    pub(crate) fn idle_watches(&self) -> Result<Vec<(SessionId, IdleWatch)>, Failure> {
        let mut statement = self
            .connection
            .prepare_cached(&format!("select {WATCH} from idle_watch"))?;
        let rows = statement.query_map([], watch_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// What one session was told.
    pub(crate) fn idle_watch(&self, id: SessionId) -> Result<Option<IdleWatch>, Failure> {
        Ok(self
            .connection
            .prepare_cached(&format!(
                "select {WATCH} from idle_watch where session = ?1"
            ))?
            .query_row([id.0.as_bytes()], watch_row)
            .optional()?
            .map(|(_, watch)| watch))
    }

    /// The rule that judges a session now; None where none does.
    fn idle_rule_of(&self, session: &Session) -> Result<Option<IdleRuleRecord>, Failure> {
        let all = self.idle_rules()?;
        let scoped: Vec<ScopedIdleRule> = all.iter().map(|row| row.scoped.clone()).collect();
        let id = idleness::closest(&scoped, session).map(|rule| rule.id);
        Ok(all.into_iter().find(|row| Some(row.scoped.id) == id))
    }

    /// What holds of a session's warnings now, with the rule they are of. None where nothing was told, or by a rule
    /// that was changed meanwhile or does not judge it any more.
    pub(crate) fn idle_state(
        &self,
        session: &Session,
    ) -> Result<Option<(IdleRuleRecord, IdleWatch)>, Failure> {
        let Some(watch) = self.idle_watch(session.id)? else {
            return Ok(None);
        };
        let rule = self.idle_rule_of(session)?;
        Ok(rule
            .filter(|rule| {
                IdleWatch::told_under(Some(&watch), &rule.scoped, session) != IdleTold::default()
            })
            .map(|rule| (rule, watch)))
    }
}

impl Rows<'_> {
    /// Errors: `idle-rule.name-taken`.
    pub(crate) fn insert_idle_rule(&self, row: &IdleRuleRecord) -> Result<(), Failure> {
        let scoped = &row.scoped;
        let written = self
            .connection
            .prepare_cached(
                "insert into idle_rule (id, name, level, subject, kind, exempt, rule, generation)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?
            .execute((
                scoped.id.0.as_bytes(),
                &row.name,
                scoped.level.word(),
                scoped.subject.map(|id| *id.as_bytes()),
                scoped.kind.map(kind_word),
                &scoped.exempt,
                value::text(&scoped.rule),
                value::signed(scoped.generation),
            ));
        known_or_taken(written, &row.name)
    }

    /// Writes all of it; raises the generation, so that warnings start over. Errors: `idle-rule.name-taken`.
    pub(crate) fn put_idle_rule(&self, row: &IdleRuleRecord) -> Result<(), Failure> {
        let scoped = &row.scoped;
        let written = self
            .connection
            .prepare_cached(
                "update idle_rule
                 set name = ?2, level = ?3, subject = ?4, kind = ?5, exempt = ?6, rule = ?7,
                     generation = generation + 1
                 where id = ?1",
            )?
            .execute((
                scoped.id.0.as_bytes(),
                &row.name,
                scoped.level.word(),
                scoped.subject.map(|id| *id.as_bytes()),
                scoped.kind.map(kind_word),
                &scoped.exempt,
                value::text(&scoped.rule),
            ));
        known_or_taken(written, &row.name)
    }

    pub(crate) fn forget_idle_rule(&self, id: IdleRuleId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from idle_rule where id = ?1")?
            .execute([id.0.as_bytes()])?;
        Ok(())
    }

    /// Writes what a session was told.
    pub(crate) fn put_idle_watch(
        &self,
        session: SessionId,
        watch: &IdleWatch,
    ) -> Result<(), Failure> {
        let [first, second] = watch.told.warnings;
        let at = |warning: Option<IdleWarning>| warning.map(|one| one.at.as_millis());
        let quiet = |warning: Option<IdleWarning>| warning.map(|one| value::signed(one.quiet));
        self.connection
            .prepare_cached(&format!(
                "insert or replace into idle_watch ({WATCH})
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)"
            ))?
            .execute((
                session.0.as_bytes(),
                watch.rule.0.as_bytes(),
                value::signed(watch.rule_generation),
                watch.incarnation,
                at(first),
                quiet(first),
                at(second),
                quiet(second),
                watch.told.kept,
                watch.told.kept_at.map(Timestamp::as_millis),
                value::signed(watch.told.put_off),
                watch.told.acted,
                watch.due_at.map(Timestamp::as_millis),
            ))?;
        Ok(())
    }

    pub(crate) fn forget_idle_watch(&self, session: SessionId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from idle_watch where session = ?1")?
            .execute([session.0.as_bytes()])?;
        Ok(())
    }

    /// Does what was decided, where the session, its rule and what it was told are as they were then. False, and
    /// nothing is written, where one of them moved on: the next round decides again.
    pub(crate) fn carry_out_idle(&self, decided: &IdleDecision) -> Result<bool, Failure> {
        let rule = &decided.rule;
        let Some(session) = self.session(decided.session)? else {
            return Ok(false);
        };
        let Some(record) = self.idle_rule_of(&session)? else {
            return Ok(false);
        };
        let watch = self.idle_watch(session.id)?;
        let told = IdleWatch::told_under(watch.as_ref(), rule, &session);
        let fresh = record.scoped == *rule
            && told == decided.told
            && session.generation == decided.generation
            && session.state() == SessionState::Running
            && session.desired == DesiredState::Run
            && !session.paused;
        if !fresh {
            return Ok(false);
        }
        let mut told = told;
        match decided.step {
            IdleStep::Wait => return Ok(false),
            IdleStep::Forget => {
                self.forget_idle_watch(session.id)?;
                return Ok(true);
            }
            IdleStep::Warn(number) => {
                told.warnings[number] = Some(IdleWarning {
                    at: decided.sampled_at,
                    quiet: decided.quiet,
                });
            }
            IdleStep::Act => told.acted = true,
        }
        let left = seconds_left(&rule.rule, &told, decided.quiet);
        let watch = IdleWatch {
            rule: rule.id,
            rule_generation: rule.generation,
            incarnation: session.incarnation,
            told,
            due_at: (!told.acted).then(|| self.now.plus_seconds(left)),
        };
        self.put_idle_watch(session.id, &watch)?;
        match decided.step {
            IdleStep::Act => self.act_on_idle(&record, &session),
            _ => {
                let words = idleness::told(rule.rule.action, left.div_ceil(60));
                self.note_idle(&session, WARNED, &words)?;
                Ok(true)
            }
        }
    }

    fn act_on_idle(&self, rule: &IdleRuleRecord, session: &Session) -> Result<bool, Failure> {
        let because = reasons::session_idle(&rule.name);
        let now = self.now;
        let written = match rule.scoped.rule.action {
            IdleAction::Notice => {
                self.note_idle(session, codes::SESSION_IDLE, &rule.name)?;
                ConditionalWrite::Yes
            }
            IdleAction::Stop => self.change_session(
                session.id,
                Some(session.generation),
                ACTOR,
                None,
                |session| session.stop(DesiredState::Stop, because, now),
            )?,
            IdleAction::Pause => {
                let paused = self.change_session(
                    session.id,
                    Some(session.generation),
                    ACTOR,
                    Some("session.paused"),
                    |session| !std::mem::replace(&mut session.paused, true),
                )?;
                self.note_idle(session, codes::SESSION_IDLE, &rule.name)?;
                paused
            }
            IdleAction::Requeue => {
                // One that could not begin again ends.
                let owner = self.user(session.owner)?;
                let stays = owner
                    .is_some_and(|owner| !owner.is_shut_out(now) && owner.departs_at.is_none());
                let again = stays && self.may_begin_again(session)?;
                let stopped = self.change_session(
                    session.id,
                    Some(session.generation),
                    ACTOR,
                    None,
                    |session| match again {
                        true => session.requeue_idle(because, now),
                        false => session.stop(DesiredState::Stop, because, now),
                    },
                )?;
                // The owner of one that ends is told of the end.
                if again {
                    self.note_idle(session, codes::SESSION_IDLE, &rule.name)?;
                }
                stopped
            }
        };
        match written {
            ConditionalWrite::Yes => Ok(true),
            // The whole step is undone with it.
            ConditionalWrite::No => Err(refusals::controller_moved_on().into()),
        }
    }

    fn note_idle(&self, session: &Session, code: &str, after: &str) -> Result<(), Failure> {
        self.note(NewEvent {
            actor: ACTOR,
            topic: "sessions",
            object: &session.id.to_string(),
            scope: session.scope(),
            code,
            before: "",
            after,
        })
    }
}

fn known_or_taken(written: rusqlite::Result<usize>, name: &str) -> Result<(), Failure> {
    match written {
        Ok(_) => Ok(()),
        Err(rusqlite::Error::SqliteFailure(error, _))
            if error.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE =>
        {
            Err(refusals::idle_rule_name_taken(name).into())
        }
        Err(error) => Err(error.into()),
    }
}
