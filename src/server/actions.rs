//! One function per thing a user may do: check, decide, write, return. Doors have no other way in.
//! Every one asks `rules::permissions::may` first; what a page hides is refused here.

use rules::permissions::{Extent, Permission, may, reach};
use rules::refusal::Refusal;
use rules::refusals;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::access::Caller;
use crate::catalog::Rows;
use crate::catalog::request_key::RequestKey;
use crate::{Failure, ServerFault};

mod accounts;
pub mod allowances;
pub mod announcements;
pub mod approvals;
pub mod apps;
pub(crate) mod astray_folders;
pub mod attention;
pub mod audit;
pub mod backups;
pub mod branding;
pub mod break_glass;
pub mod budgets;
pub mod certificates;
pub mod code_runs;
pub mod courses;
mod cursor;
pub mod diagnostic_check;
pub mod fair_share;
pub mod folders;
mod four_eyes;
pub mod gpus;
pub mod history;
pub mod holidays;
pub mod idle_rules;
pub mod images;
pub mod inner_door;
pub mod installation;
pub mod invitations;
pub mod journal;
pub mod mail;
pub mod nodes;
pub mod notices;
pub mod operations;
pub mod policies;
pub mod pool;
pub mod presets;
mod query;
pub mod rehearsal;
pub mod replay;
pub mod reservations;
pub mod resource_groups;
pub mod rosters;
pub mod session_detail;
pub mod sessions;
pub mod settings;
pub mod sign_ups;
pub mod statements;
pub mod storage;
pub mod system;
pub mod tenancy;
pub mod usage;
pub mod users;
pub mod volumes;
pub mod webhooks;

/// Names one POST of one caller, so that a repetition acts once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// As the client sent it; 1 to 200 visible characters.
    pub key: String,
    /// Method and path, such as `POST /api/v1/sessions`.
    pub route: String,
    /// SHA-256 of the body as it came.
    pub body_digest: [u8; 32],
}

/// May the caller do this on things of the box, or of their own?
fn allowed(caller: &Caller, verb: Permission) -> Result<(), Failure> {
    let subject = &caller.subject;
    may(subject, verb, &subject.scope_of(verb)).map_err(Failure::from)
}

/// May the caller do this on anything at all? Which things, `find` and the reach of a list say.
fn somewhere(caller: &Caller, permission: Permission) -> Result<(), Failure> {
    let subject = &caller.subject;
    match reach(subject, permission).extent() {
        Extent::Nothing => allowed(caller, permission),
        Extent::Some { .. } | Extent::Everything => Ok(()),
    }
}

/// What an act gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Once<T> {
    pub value: T,
    /// This is the first answer to the same Idempotency-Key again; nothing was done now.
    pub replayed: bool,
}

/// Runs `act` inside a write, unless this key was answered before: then gives that answer again.
///
/// Errors: `act`'s own, which leave the key free; `idempotency.key-reused`.
fn once<T: Serialize + DeserializeOwned>(
    rows: &Rows<'_>,
    key: Option<&RequestKey>,
    act: impl FnOnce() -> Result<T, Failure>,
) -> Result<Once<T>, Failure> {
    if let Some(key) = key
        && let Some(first) = rows.answered(key, rows.now)?
    {
        let value = serde_json::from_str(&first)
            .map_err(|error| ServerFault::new("read the first answer", error))?;
        return Ok(Once {
            value,
            replayed: true,
        });
    }
    let value = act()?;
    if let Some(key) = key {
        let answer = serde_json::to_string(&value)
            .map_err(|error| ServerFault::new("keep the first answer", error))?;
        rows.remember_answer(key, &answer)?;
    }
    Ok(Once {
        value,
        replayed: false,
    })
}

/// Refuses a key that is no key, with `idempotency.key-invalid`; also where nothing is kept under it.
pub fn check_key(key: &IdempotencyKey) -> Result<(), Refusal> {
    let good = (1..=200).contains(&key.key.len()) && key.key.chars().all(|c| c.is_ascii_graphic());
    if good {
        return Ok(());
    }
    Err(refusals::idempotency_key_invalid())
}

/// A key as the catalog keeps it: checked, and the caller's own.
fn own_key(caller: &Caller, key: Option<IdempotencyKey>) -> Result<Option<RequestKey>, Refusal> {
    let Some(key) = key else {
        return Ok(None);
    };
    check_key(&key)?;
    Ok(Some(RequestKey {
        principal: caller.subject.user,
        route: key.route,
        key: key.key,
        digest: key.body_digest,
    }))
}

#[cfg(test)]
mod tests;
