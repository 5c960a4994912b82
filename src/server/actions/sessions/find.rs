//! Which session a user means by what they typed: its name, its id, or the beginning of its id.

use rules::break_glass::may_break_glass;
use rules::codes::BREAK_GLASS_NEEDED;
use rules::names::{SessionId, UserId};
use rules::permissions::{Permission, Subject, may, own, reach};
use rules::refusal::{Refusal, RefusalKind};
use rules::refusals;
use rules::session::{Session, SessionState};
use rules::start_up::StartUpChoice;
use rules::units::Timestamp;
use uuid::Uuid;

use crate::Failure;
use crate::access::{Caller, Via};
use crate::actions::allowed;
use crate::catalog::ReadTransaction;
use crate::catalog::users::ROOT;

/// Shorter beginnings of ids are not looked up: they say when, not which.
const MIN_PREFIX: usize = 4;

/// The session that `text` means to the caller, who may do `verb` to it.
pub(in crate::actions) fn find(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    verb: Permission,
    text: &str,
) -> Result<Session, Failure> {
    // The capability itself first, so that a token without it learns nothing of what exists.
    allowed(caller, verb)?;
    let session = looked_up(view, caller, text)?;
    check_verb(caller, verb, &session).map_err(hidden)?;
    Ok(session)
}

/// The session that `text` means to a caller who gets into it at `now`.
///
/// Errors: as `check_entry`.
pub(in crate::actions) fn find_to_enter(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    text: &str,
    now: Timestamp,
) -> Result<Session, Failure> {
    allowed(caller, Permission::SessionsEnter)?;
    let session = looked_up(view, caller, text)?;
    check_entry(view, caller, &session, now).map_err(hidden)?;
    Ok(session)
}

fn looked_up(view: &ReadTransaction<'_>, caller: &Caller, text: &str) -> Result<Session, Failure> {
    let found = match text.parse::<SessionId>() {
        Ok(id) => view.session(id)?,
        Err(_) => named(view, caller, text)?,
    };
    let session = found.ok_or_else(refusals::session_unknown)?;
    // For a session there is no other one.
    if let Via::Session { id } = caller.via
        && session.id != id
    {
        return Err(refusals::session_unknown().into());
    }
    Ok(session)
}

/// The session that `text` means to a caller who is in it by right, or may open it with a reason.
///
/// Errors: as `check_entry`, but for `break-glass.needed`.
pub(in crate::actions) fn find_to_open(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    text: &str,
) -> Result<Session, Failure> {
    allowed(caller, Permission::SessionsEnter)?;
    let session = looked_up(view, caller, text)?;
    if session.owner != caller.subject.user {
        check_glass(caller, &session).map_err(|refusal| hidden(refusal.into()))?;
    }
    Ok(session)
}

/// What is hidden is said as of every session that is not there.
fn hidden(failure: Failure) -> Failure {
    match failure {
        Failure::Refusal(refusal) if refusal.kind == RefusalKind::NotFound => {
            refusals::session_unknown().into()
        }
        failure => failure,
    }
}

/// Whether the caller may do `verb` to a session that was looked up; into one of another user a reason lets them only as
/// `check_entry` has it.
///
/// Errors: `session.not-found`, `role.permission-missing`; `session.has-variables`, `break-glass.needed`.
fn check_verb(caller: &Caller, verb: Permission, session: &Session) -> Result<(), Failure> {
    if verb != Permission::SessionsEnter || session.owner == caller.subject.user {
        return Ok(may(&caller.subject, verb, &session.scope())?);
    }
    check_glass(caller, session)?;
    match needs_no_reason(caller, session) {
        true => Ok(()),
        false => Err(refusals::break_glass_needed(&session.name).into()),
    }
}

/// Whether the caller gets into a session at `now`: one that `needs_no_reason`, or one of another user with a reason that they
/// typed (`break_glass`), until its time is over. One that was given variables of its user is that user's alone: who is
/// inside reads them.
///
/// Errors: `session.not-found`, `role.permission-missing`, `session.has-variables`, `break-glass.needed`.
pub(in crate::actions) fn check_entry(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    session: &Session,
    now: Timestamp,
) -> Result<(), Failure> {
    let refusal = match check_verb(caller, Permission::SessionsEnter, session) {
        Err(Failure::Refusal(refusal)) if refusal.code == BREAK_GLASS_NEEDED => refusal,
        checked => return checked,
    };
    let open = view.open_break_glass(caller.subject.user, session.id.0)?;
    match open.is_some_and(|open| now < open.ends_at) {
        true => Ok(()),
        false => Err(refusal.into()),
    }
}

/// Whether no user is to be told why the caller is in a session: it is their own; they are root on the machine, who has its
/// memory and its disk; or it is the machine's own, whose root made it, and they administer the site.
pub(in crate::actions) fn needs_no_reason(caller: &Caller, session: &Session) -> bool {
    session.owner == caller.subject.user
        || caller.via == Via::LocalRoot
        || session.owner == ROOT && caller.subject.is_site_administrator()
}

/// Whether the caller may open a session of another user with a reason.
///
/// Errors: as `check_entry`, but for `break-glass.needed`.
pub(in crate::actions) fn check_glass(caller: &Caller, session: &Session) -> Result<(), Refusal> {
    may_break_glass(&caller.subject, &session.scope())?;
    match session.start_up.choice == StartUpChoice::Variables {
        true => Err(refusals::session_has_variables()),
        false => Ok(()),
    }
}

/// The session of that name of that owner, for a caller who gets into it at `now`: of several the one that has not ended,
/// else the newest.
pub(in crate::actions) fn find_of_owner(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    (owner, name): (&str, &str),
    now: Timestamp,
) -> Result<Session, Failure> {
    allowed(caller, Permission::SessionsEnter)?;
    let missing = || refusals::session_unknown();
    // A name that no user has costs the same look: how long an answer takes tells no more than its words.
    let user = view.user_named(owner)?.map(|owner| owner.id);
    let owner = Subject {
        user: user.unwrap_or(UserId(Uuid::max())),
        grants: Vec::new(),
        domain: caller.subject.domain,
        scopes: None,
    };
    let called = view.sessions_called(&own(&owner), name)?;
    let session = called.into_iter().next().ok_or_else(missing)?;
    check_entry(view, caller, &session, now).map_err(hidden)?;
    Ok(session)
}

fn named(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    text: &str,
) -> Result<Option<Session>, Failure> {
    if let Some(mine) = view
        .sessions_called(&own(&caller.subject), text)?
        .into_iter()
        .next()
        && mine.state() != SessionState::Ended
    {
        return Ok(Some(mine));
    }
    let within = reach(&caller.subject, Permission::SessionsRead).or_own(&caller.subject);
    let called = view.sessions_called(&within, text)?;
    let live = called
        .iter()
        .filter(|s| s.state() != SessionState::Ended)
        .count();
    if live > 1 {
        return Err(refusals::session_name_ambiguous().into());
    }
    let mut called = called;
    if live == 0 {
        // Of ended ones the caller's own comes first.
        called.sort_by_key(|s| s.owner != caller.subject.user);
    }
    if let Some(first) = called.into_iter().next() {
        return Ok(Some(first));
    }
    let Some((low, high)) = range(text) else {
        return Ok(None);
    };
    let mut found = view.sessions_between(&within, low, high)?;
    if found.len() > 1 {
        return Err(refusals::session_id_ambiguous().into());
    }
    Ok(found.pop())
}

/// The lowest and the highest id that begin with these digits; None where it is no beginning.
fn range(text: &str) -> Option<([u8; 16], [u8; 16])> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| *c != '-')
        .map(|c| c.to_digit(16).map(|digit| digit as u8))
        .collect::<Option<_>>()?;
    if !(MIN_PREFIX..=32).contains(&digits.len()) {
        return None;
    }
    let fill = |with: u8| {
        let mut bytes = [0; 16];
        for (at, byte) in bytes.iter_mut().enumerate() {
            let high = digits.get(at * 2).copied().unwrap_or(with);
            let low = digits.get(at * 2 + 1).copied().unwrap_or(with);
            *byte = high << 4 | low;
        }
        bytes
    };
    Some((fill(0), fill(15)))
}

#[cfg(test)]
mod tests {
    use super::range;

    #[test]
    fn a_prefix_is_a_range_of_ids() {
        let (low, high) = range("019a0-c").unwrap();
        assert_eq!(low[..4], [0x01, 0x9a, 0x0c, 0x00]);
        assert_eq!(high[..4], [0x01, 0x9a, 0x0c, 0xff]);
        for text in ["", "019", "019x", "../..", &"0".repeat(33)] {
            assert!(range(text).is_none(), "{text}");
        }
    }
}
