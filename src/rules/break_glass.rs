//! An administrator looks into what is another user's: only after they typed why, for a while, and its owner is told.
//! Decides who may and what they have to say; never looks anything up.

use crate::grants::GrantRole;
use crate::permissions::{Permission, Subject, may};
use crate::refusal::Refusal;
use crate::refusals;
use crate::session::hidden;
use crate::tenancy::Scope;

/// Characters of a reason. Lower: `x` would be one.
pub const MIN_BREAK_GLASS_REASON: usize = 10;
/// Higher: the notice of the owner is long. Lower: two sentences do not fit.
pub const MAX_BREAK_GLASS_REASON: usize = 200;
/// Minutes for which it holds where none are named.
pub const USUAL_BREAK_GLASS_MINUTES: u32 = 60;
/// Fewer: it is over before something was found.
pub const MIN_BREAK_GLASS_MINUTES: u32 = 5;
/// More: what one reason was given for is long past.
pub const MAX_BREAK_GLASS_MINUTES: u32 = 240;

/// Whether a subject may look into something of `scope` that is another user's: administrators of its domain and of the
/// site. A token needs `sessions:enter`.
///
/// Errors: `token.scope-missing`; `session.not-found` for who may not even see it; `role.permission-missing`.
pub fn may_break_glass(subject: &Subject, scope: &Scope) -> Result<(), Refusal> {
    subject.token_allows(Permission::SessionsEnter)?;
    // What a token may read is no matter: that a thing exists must not show by another refusal.
    let whole = Subject {
        scopes: None,
        ..subject.clone()
    };
    may(&whole, Permission::SessionsRead, scope)?;
    let administers = subject
        .grants
        .iter()
        .any(|grant| grant.role == GrantRole::Administrator && grant.covers(scope));
    match administers {
        true => Ok(()),
        false => {
            let lacking = Permission::SessionsEnter.word();
            Err(refusals::role_permission_missing(lacking))
        }
    }
}

/// A reason as it is kept. Errors: `break-glass.reason`.
pub fn break_glass_reason(typed: &str) -> Result<String, Refusal> {
    let typed = typed.trim();
    let length = typed.chars().count();
    let fits = (MIN_BREAK_GLASS_REASON..=MAX_BREAK_GLASS_REASON).contains(&length);
    match fits && !typed.chars().any(hidden) {
        true => Ok(typed.to_owned()),
        false => {
            let (least, most) = (MIN_BREAK_GLASS_REASON, MAX_BREAK_GLASS_REASON);
            Err(refusals::break_glass_reason(least, most).at("/reason"))
        }
    }
}

/// For how many minutes it holds. Errors: `break-glass.minutes`.
pub fn break_glass_minutes(asked: Option<u32>) -> Result<u32, Refusal> {
    let minutes = asked.unwrap_or(USUAL_BREAK_GLASS_MINUTES);
    let (least, most) = (MIN_BREAK_GLASS_MINUTES, MAX_BREAK_GLASS_MINUTES);
    match (least..=most).contains(&minutes) {
        true => Ok(minutes),
        false => Err(refusals::break_glass_minutes(least, most).at("/minutes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grants::{Grant, GrantScope};
    use crate::names::UserId;
    use crate::tenancy::{DomainId, ProjectId};

    fn subject(grants: Vec<Grant>) -> Subject {
        Subject {
            user: UserId(uuid::Uuid::from_u128(1)),
            grants,
            domain: DomainId::DEFAULT,
            scopes: None,
        }
    }

    #[test]
    fn administrators_of_the_domain_and_the_site_break_glass_and_no_others_do() {
        let project = ProjectId(uuid::Uuid::from_u128(7));
        let scope = Scope {
            domain: Some(DomainId::DEFAULT),
            project: Some(project),
            owner: Some(UserId(uuid::Uuid::from_u128(2))),
        };
        let abroad = DomainId(uuid::Uuid::from_u128(9));
        let of = |role, scope| Grant { role, scope };
        let missing = Some("role.permission-missing");
        for (grant, refused) in [
            (of(GrantRole::Administrator, GrantScope::Site), None),
            (
                of(
                    GrantRole::Administrator,
                    GrantScope::Domain(DomainId::DEFAULT),
                ),
                None,
            ),
            (of(GrantRole::Auditor, GrantScope::Site), missing),
            (of(GrantRole::Lead, GrantScope::Project(project)), missing),
            (of(GrantRole::Viewer, GrantScope::Project(project)), missing),
            (
                of(GrantRole::Member, GrantScope::Project(project)),
                Some("session.not-found"),
            ),
            (
                of(GrantRole::Administrator, GrantScope::Domain(abroad)),
                Some("session.not-found"),
            ),
        ] {
            let asked = may_break_glass(&subject(vec![grant]), &scope);
            let code = asked.err().map(|refusal| refusal.code);
            assert_eq!(code.as_deref(), refused, "{grant:?}");
        }
        let mut narrow = subject(vec![Grant::SITE_ADMINISTRATOR]);
        narrow.scopes = Some(vec![Permission::SessionsRead]);
        let refused = may_break_glass(&narrow, &scope).unwrap_err();
        assert_eq!(refused.code, "token.scope-missing");
    }

    #[test]
    fn a_reason_says_something_and_holds_for_a_while() {
        let kept = break_glass_reason("  The job writes to a full disk.  ");
        assert_eq!(kept.as_deref(), Ok("The job writes to a full disk."));
        let long = "x".repeat(MAX_BREAK_GLASS_REASON + 1);
        for typed in ["", "why not", "looks\u{202e}other than it is", &long] {
            let refused = break_glass_reason(typed).unwrap_err();
            assert_eq!(refused.code, "break-glass.reason", "{typed}");
        }
        assert_eq!(break_glass_minutes(None), Ok(USUAL_BREAK_GLASS_MINUTES));
        assert_eq!(break_glass_minutes(Some(5)), Ok(5));
        for minutes in [0, 4, 241, u32::MAX] {
            let refused = break_glass_minutes(Some(minutes)).unwrap_err();
            assert_eq!(refused.code, "break-glass.minutes", "{minutes}");
        }
    }
}
