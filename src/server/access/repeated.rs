//! Acts that a client can repeat as fast as it likes and that change nothing: failed sign-ins, refused requests, ways into
//! a session. The first of each kind has its row of the audit log at once, the others of the next minute, or hour, have one
//! together. What is counted is kept in memory; a crash loses those counts.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rules::names::UserId;
use rules::tenancy::{DomainId, Scope};
use rules::units::Timestamp;
use rules::users::User;

use super::Caller;
use crate::catalog::audit::{ActingUser, NewAct};
use crate::catalog::{Lane, Rows, origin};
use crate::{Failure, Server};

/// Seconds for which acts of one kind are counted together. Higher: a row comes later. Lower: a flood writes more rows.
pub(crate) const SUMMED_SECONDS: u64 = 60;
/// The same of ways into a session: a browser opens a port of one hundreds of times a day, and that is ordinary use.
const ENTRY_SECONDS: u64 = 3_600;
/// A user went into a session.
const ENTERED: &str = "session.entered";
/// A user read the log of a session of another.
const LOG_READ: &str = "session.log-read";
/// Kinds that are counted at once, some 200 bytes each, of failed sign-ins and of all else; more are counted as one of each
/// actor and act. Higher: a flood of kinds writes more rows.
const MAX_KINDS: usize = 1_000;
/// The same of one actor and one act, so that no user fills the room of others. Higher: one user writes more rows. Lower: the
/// log keeps fewer of the objects of a busy program.
const MAX_KINDS_OF_ACTOR: usize = 50;
/// A sign-in failed.
const FAILED: &str = "sign-in.failed";
/// Letters of an object that a client chose.
const MAX_OBJECT_LENGTH: usize = 200;
/// What kinds beyond the bound are counted as.
const OTHERS: &str = "others";

/// An act that may be repeated; two that are equal are one kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct RepeatedAct {
    actor: Option<(UserId, String, DomainId)>,
    act: &'static str,
    topic: &'static str,
    object: String,
    scope: Scope,
    reason: String,
}

#[derive(Debug, Clone, Copy)]
struct KindCount {
    since: Timestamp,
    /// Without the one that has its row.
    more: u64,
}

/// What was counted and has no row yet.
#[derive(Debug, Default)]
pub(crate) struct RepeatedActs(Mutex<HashMap<RepeatedAct, KindCount>>);

impl RepeatedActs {
    fn locked(&self) -> MutexGuard<'_, HashMap<RepeatedAct, KindCount>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The act that is to be written now: this one, or none where it was counted.
    fn count(&self, act: RepeatedAct, now: Timestamp) -> Option<RepeatedAct> {
        let mut kinds = self.locked();
        // What anybody can make without signing in takes no room of what users do.
        let beside = |kind: &&RepeatedAct| (kind.act == FAILED) == (act.act == FAILED);
        let own = |kind: &&RepeatedAct| kind.act == act.act && kind.actor == act.actor;
        let full = !kinds.contains_key(&act)
            && (kinds.keys().filter(beside).count() >= MAX_KINDS
                || kinds.keys().filter(own).count() >= MAX_KINDS_OF_ACTOR);
        let act = match full {
            true => act.among_others(),
            false => act,
        };
        if let Some(count) = kinds.get_mut(&act) {
            count.more += 1;
            return None;
        }
        let begun = KindCount {
            since: now,
            more: 0,
        };
        kinds.insert(act.clone(), begun);
        Some(act)
    }

    /// Takes out what is counted for long enough; `all`: everything.
    fn due(&self, now: Timestamp, all: bool) -> Vec<(RepeatedAct, u64)> {
        let mut kinds = self.locked();
        // Also where the clock was set back meanwhile.
        let over = |act: &RepeatedAct, count: &KindCount| {
            let apart = now
                .seconds_since(count.since)
                .max(count.since.seconds_since(now));
            apart >= act.summed_seconds()
        };
        let gone = kinds.extract_if(|act, count| all || over(act, count));
        gone.map(|(act, count)| (act, count.more))
            .filter(|(_, more)| *more > 0)
            .collect()
    }
}

impl RepeatedAct {
    /// For how long acts of this kind are counted together.
    fn summed_seconds(&self) -> u64 {
        match self.act {
            ENTERED | LOG_READ => ENTRY_SECONDS,
            _ => SUMMED_SECONDS,
        }
    }

    /// What it is counted as beyond the bounds: of whom it is and what was done is still said.
    fn among_others(self) -> Self {
        let scope = match &self.actor {
            Some((user, _, _)) => Scope::user(*user),
            None => Scope::SITE,
        };
        Self {
            object: OTHERS.to_owned(),
            scope,
            reason: OTHERS.to_owned(),
            ..self
        }
    }

    fn write(&self, rows: &Rows<'_>, times: &str) -> Result<(), Failure> {
        rows.record(NewAct {
            actor: match &self.actor {
                Some((user, name, domain)) => ActingUser::Known {
                    user: *user,
                    name,
                    domain: *domain,
                },
                None => ActingUser::Unauthenticated,
            },
            act: self.act,
            topic: self.topic,
            object: &self.object,
            scope: self.scope,
            before: "",
            after: times,
            reason: &self.reason,
        })
    }
}

fn happened(server: &Server, act: RepeatedAct) {
    let now = server.clock().now();
    if let Some(act) = server.repeated_acts().count(act, now) {
        server
            .catalog()
            .record_later("note an act", move |rows| act.write(rows, ""));
    }
}

/// Writes the rows of what was counted for long enough; `all`: of everything.
///
/// Errors: those of the catalog; then the counts are lost.
pub(crate) async fn flush(server: &Server, all: bool) -> Result<(), Failure> {
    let due = server.repeated_acts().due(server.clock().now(), all);
    if due.is_empty() {
        return Ok(());
    }
    // Not of the request that makes it be written now, such as an export.
    server
        .catalog()
        .write_of_server(Lane::Loops, "note repeated acts", move |rows| {
            due.iter()
                .try_for_each(|(act, more)| act.write(rows, &more.to_string()))
        })
        .await
}

/// A sign-in failed. Of names that no account has nothing is kept: users type passwords into the wrong field.
pub(super) fn sign_in_failed(server: &Server, known: Option<&User>, failure: &Failure) {
    let Failure::Refusal(refusal) = failure else {
        return;
    };
    happened(
        server,
        RepeatedAct {
            actor: known.map(|user| (user.id, user.name.to_string(), user.domain)),
            act: FAILED,
            topic: "users",
            object: known.map_or_else(String::new, |user| user.id.to_string()),
            scope: known.map_or(Scope::SITE, |user| Scope::user(user.id)),
            reason: refusal.code.clone(),
        },
    );
}

/// The caller of the current request entered a session: its terminal, a command in it, or a port.
pub(crate) fn entered(server: &Server, caller: &Caller, session: String, scope: Scope) {
    looked(server, caller, ENTERED, session, scope);
}

/// The caller read the log of a session that is not theirs.
pub(crate) fn read_log(server: &Server, caller: &Caller, session: String, scope: Scope) {
    looked(server, caller, LOG_READ, session, scope);
}

fn looked(server: &Server, caller: &Caller, act: &'static str, session: String, scope: Scope) {
    happened(
        server,
        RepeatedAct {
            actor: Some((
                caller.subject.user,
                caller.name.to_string(),
                caller.subject.domain,
            )),
            act,
            topic: "sessions",
            object: session,
            scope,
            reason: String::new(),
        },
    );
}

/// The current request was to change something and was refused; `request` is its method and its path. Nothing of a request
/// without a proven caller.
pub fn refused(server: &Server, request: &str, code: &str) {
    let Some(caller) = origin::current().and_then(|origin| origin.caller()) else {
        return;
    };
    happened(
        server,
        RepeatedAct {
            scope: Scope::user(caller.user),
            actor: Some((caller.user, caller.name, caller.domain)),
            act: "request.refused",
            topic: "system",
            object: request.chars().take(MAX_OBJECT_LENGTH).collect(),
            reason: code.to_owned(),
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000).plus_seconds(seconds)
    }

    fn refusal(object: &str) -> RepeatedAct {
        RepeatedAct {
            actor: None,
            act: "request.refused",
            topic: "system",
            object: object.to_owned(),
            scope: Scope::SITE,
            reason: String::new(),
        }
    }

    #[test]
    fn a_flood_is_one_row_at_once_and_one_for_each_minute() {
        let acts = RepeatedActs::default();
        let mut written = 0;
        for second in 0..180 {
            for _ in 0..10 {
                written += u64::from(acts.count(refusal("a"), at(second)).is_some());
            }
            let due = acts.due(at(second + 1), false);
            for (_, more) in due {
                assert_eq!(more, 599);
                written += 1;
            }
        }
        assert_eq!(written, 6);
        assert!(acts.locked().is_empty());
    }

    #[test]
    fn ways_into_a_session_are_counted_for_an_hour() {
        let acts = RepeatedActs::default();
        let entered = || RepeatedAct {
            act: ENTERED,
            ..refusal("a")
        };
        let mut written = 0;
        for minute in 0..8 * 60 {
            written += u64::from(acts.count(entered(), at(minute * 60)).is_some());
            written += acts.due(at(minute * 60 + 1), false).len() as u64;
        }
        // Eight begin, seven of them are over.
        assert_eq!(written, 8 + 7);
    }

    #[test]
    fn a_clock_that_is_set_back_keeps_no_count_for_ever() {
        let acts = RepeatedActs::default();
        for _ in 0..2 {
            acts.count(refusal("a"), at(1_000_000));
        }
        assert!(acts.due(at(999_999), false).is_empty());
        assert_eq!(acts.due(at(0), false).len(), 1);
    }

    /// A user by number.
    fn actor(number: u64) -> Option<(UserId, String, DomainId)> {
        let id = UserId(uuid::Uuid::from_u128(u128::from(number)));
        Some((id, format!("user{number}"), DomainId::DEFAULT))
    }

    #[test]
    fn kinds_beyond_the_bound_are_counted_together_and_none_is_lost() {
        let acts = RepeatedActs::default();
        let (most, each) = (MAX_KINDS as u64, MAX_KINDS_OF_ACTOR as u64);
        // Of one user the bound is reached first, and the others have their room yet.
        let mut written = 0;
        for number in 0..2 * most {
            let act = RepeatedAct {
                actor: actor(0),
                ..refusal(&number.to_string())
            };
            written += u64::from(acts.count(act, at(0)).is_some());
        }
        assert_eq!(written, each + 1);
        for number in 1..=most {
            let act = RepeatedAct {
                actor: actor(number),
                ..refusal("a")
            };
            let kind = acts.count(act, at(0)).expect("the first of its actor");
            assert_eq!(kind.actor, actor(number));
            let whole = number < most - each;
            assert_eq!(kind.object == "a", whole, "{number}");
        }
        // Failed sign-ins have a place of their own.
        let failed = RepeatedAct {
            actor: actor(7),
            act: FAILED,
            ..refusal("a")
        };
        assert_eq!(acts.count(failed.clone(), at(0)), Some(failed));
        let due = acts.due(at(0), true);
        let [(others, more)] = due.as_slice() else {
            panic!("{due:?}");
        };
        assert_eq!(
            (others.actor.clone(), others.object.as_str()),
            (actor(0), OTHERS)
        );
        assert_eq!(written + more, 2 * most);
    }
}
