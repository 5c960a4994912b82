//! Failed sign-ins, counted by name and by address before anything is hashed. Ten failures of a name
//! lock it for twenty minutes, each further time for twice as long; addresses get more, since a
//! class may sit behind one.

use std::net::IpAddr;

use rules::refusal::Refusal;
use rules::units::Timestamp;

use super::secret::Secret;
use crate::catalog::events::Note;
use crate::catalog::{Lane, Rows};
use crate::{Failure, Server};

/// Failures of one name, or of the setup code, until it is locked.
const MOST_OF_NAME: u32 = 10;
/// Failures from one address until it is locked.
const MOST_OF_ADDRESS: u32 = 30;
const FIRST_LOCK_SECONDS: u64 = 20 * 60;
/// Longest lock. An attacker must not lock a person out for a week.
const LONGEST_LOCK_SECONDS: u64 = 24 * 3600;
/// Quiet seconds after which failures are no longer counted.
const FORGIVEN_AFTER_SECONDS: u64 = 3600;
/// Longest name that is counted as typed; no longer one exists.
const LONGEST_SUBJECT: usize = 80;

/// The subjects that one attempt counts against.
#[derive(Debug, Clone)]
pub(super) struct Attempts {
    /// As it was typed; None where no name was.
    name: Option<String>,
    subjects: Vec<(String, u32)>,
    what: String,
}

impl Attempts {
    pub(super) fn of(name: &str, source: IpAddr) -> Self {
        let short: String = name.chars().take(LONGEST_SUBJECT).collect();
        Self {
            what: format!("Sign-in for {}", short.escape_debug()),
            subjects: vec![
                (subject(&short), MOST_OF_NAME),
                (format!("address:{source}"), MOST_OF_ADDRESS),
            ],
            name: Some(short),
        }
    }

    /// Attempts by somebody who is signed in already: only the name counts.
    pub(super) fn of_name(name: &str) -> Self {
        Self {
            what: format!("Sign-in for {}", name.escape_debug()),
            subjects: vec![(subject(name), MOST_OF_NAME)],
            name: Some(name.to_owned()),
        }
    }

    pub(super) fn of_setup(source: IpAddr) -> Self {
        Self {
            what: "Setup".to_owned(),
            subjects: vec![
                ("setup".to_owned(), MOST_OF_NAME),
                (format!("address:{source}"), MOST_OF_ADDRESS),
            ],
            name: None,
        }
    }

    /// Refuses while a subject is locked, saying until when.
    pub(super) fn refuse_locked(&self, server: &Server) -> Result<(), Failure> {
        let until = server.catalog().read_now("look for a lock", |view| {
            let mut until = Timestamp::default();
            for (subject, _) in &self.subjects {
                until = until.max(view.failures(subject)?.locked_until);
            }
            Ok(until)
        })?;
        let now = server.clock().now();
        if until > now {
            return Err(self.locked(until, now).into());
        }
        Ok(())
    }

    fn locked(&self, until: Timestamp, now: Timestamp) -> Refusal {
        Refusal::too_often(
            "sign-in.locked",
            format!(
                "{} is locked until {until} after too many failures.",
                self.what
            ),
        )
        .with("until", until)
        .hint("Wait until then, or ask an administrator to set a new password.")
        .retry_after(until.millis_since(now).div_ceil(1000))
    }

    /// Counts one failure. Errors: `sign-in.locked` where this one was one too many.
    pub(super) async fn failed(&self, server: &Server) -> Result<(), Failure> {
        let attempts = self.clone();
        let locked = server
            .catalog()
            .write(Lane::People, "count a failed sign-in", move |rows| {
                attempts.count(rows)
            })
            .await?;
        match locked {
            Some(until) => Err(self.locked(until, server.clock().now()).into()),
            None => Ok(()),
        }
    }

    fn count(&self, rows: &Rows<'_>) -> Result<Option<Timestamp>, Failure> {
        let now = rows.now;
        let mut latest = None;
        let known = match &self.name {
            Some(name) => rows.person_named(name)?,
            None => None,
        };
        for (subject, most) in &self.subjects {
            let mut row = rows.failures(subject)?;
            let quiet = row.failed_at.max(row.locked_until);
            if now.seconds_since(quiet) >= FORGIVEN_AFTER_SECONDS {
                row.failures = 0;
            }
            if now.seconds_since(quiet) >= LONGEST_LOCK_SECONDS {
                row.locks = 0;
            }
            row.failed_at = now;
            row.failures += 1;
            if row.failures >= *most {
                let doubled = FIRST_LOCK_SECONDS << row.locks.min(16);
                row.locked_until = now.plus_seconds(doubled.min(LONGEST_LOCK_SECONDS));
                row.locks += 1;
                row.failures = 0;
                latest = latest.max(Some(row.locked_until));
                let object = known
                    .as_ref()
                    .map_or_else(|| subject.clone(), |person| person.id.to_string());
                rows.note(Note {
                    actor: "access",
                    topic: "people",
                    object: &object,
                    owner: None,
                    code: "sign-in.locked",
                    before: "",
                    after: &row.locked_until.to_string(),
                })?;
            }
            rows.put_failures(subject, row)?;
        }
        Ok(latest)
    }

    /// Forgets the failures of the name that proved itself. The address keeps its count: one good
    /// account must not buy more guesses at others.
    pub(super) fn forget(&self, rows: &Rows<'_>) -> Result<(), Failure> {
        rows.forget_failures(&self.subjects[0].0)
    }
}

/// How a name stands in the rows: hashed, because people type passwords into the wrong field.
fn subject(name: &str) -> String {
    let digest = Secret::from(name).hash();
    let hex: String = digest[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("name:{hex}")
}

/// Unlocks a name, when an administrator set its password anew.
pub(crate) fn unlock(rows: &Rows<'_>, name: &str) -> Result<(), Failure> {
    rows.forget_failures(&subject(name))
}
