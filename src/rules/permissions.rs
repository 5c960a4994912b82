//! May this caller do this? One table for pages, API and CLI; `server::actions` asks it before
//! every act. Never looks anything up: the caller brings the owner of the thing.

use serde::{Deserialize, Serialize};

use crate::names::UserId;
use crate::people::Role;
use crate::refusal::Refusal;
use crate::refusals;

/// One thing a person may do. The word is also the scope of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Permission {
    SessionsRead,
    SessionsWrite,
    /// Enter a session: terminal, exec.
    SessionsEnter,
    ImagesRead,
    ImagesWrite,
    PeopleRead,
    PeopleWrite,
    /// Own password, tokens, language.
    Me,
    /// Health in detail, metrics, settings, findings.
    SystemRead,
    /// Settings, backups, certificates, upgrades: what changes the box itself.
    SystemWrite,
}

impl Permission {
    pub const ALL: [Self; 10] = [
        Self::SessionsRead,
        Self::SessionsWrite,
        Self::SessionsEnter,
        Self::ImagesRead,
        Self::ImagesWrite,
        Self::PeopleRead,
        Self::PeopleWrite,
        Self::Me,
        Self::SystemRead,
        Self::SystemWrite,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Self::SessionsRead => "sessions:read",
            Self::SessionsWrite => "sessions:write",
            Self::SessionsEnter => "sessions:enter",
            Self::ImagesRead => "images:read",
            Self::ImagesWrite => "images:write",
            Self::PeopleRead => "people:read",
            Self::PeopleWrite => "people:write",
            Self::Me => "me",
            Self::SystemRead => "system:read",
            Self::SystemWrite => "system:write",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|v| v.word() == word)
    }
}

/// Who asks: a person, with what their token may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    pub user: UserId,
    pub role: Role,
    /// None: everything the role may (a browser, root on the box). Some: only these verbs.
    pub scopes: Option<Vec<Permission>>,
}

/// May `subject` do `verb` on a thing of `owner` (None: a thing of the box)?
///
/// Errors: `Denied` with the missing capability; `NotFound` for a session of another user, whose
/// existence is not theirs to know.
pub fn may(subject: &Subject, verb: Permission, owner: Option<UserId>) -> Result<(), Refusal> {
    if let Some(scopes) = &subject.scopes
        && !scopes.contains(&verb)
    {
        let scope = verb.word();
        return Err(refusals::token_scope_missing(scope));
    }
    if subject.role == Role::Administrator {
        return Ok(());
    }
    match verb {
        Permission::SessionsRead | Permission::SessionsWrite | Permission::SessionsEnter => {
            match owner {
                Some(owner) if owner != subject.user => Err(refusals::session_not_found()),
                _ => Ok(()),
            }
        }
        Permission::ImagesRead | Permission::Me => Ok(()),
        Permission::ImagesWrite
        | Permission::PeopleRead
        | Permission::PeopleWrite
        | Permission::SystemRead
        | Permission::SystemWrite => Err(refusals::role_administrator_needed(verb.word())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(role: Role) -> Subject {
        Subject {
            user: UserId(uuid::Uuid::from_u128(1)),
            role,
            scopes: None,
        }
    }

    #[test]
    fn a_user_sees_only_own_sessions() {
        let other = Some(UserId(uuid::Uuid::from_u128(2)));
        let user = subject(Role::User);
        assert!(may(&user, Permission::SessionsRead, Some(user.user)).is_ok());
        assert_eq!(
            may(&user, Permission::SessionsRead, other).map_err(|r| r.code),
            Err("session.not-found".into())
        );
        assert!(
            may(
                &subject(Role::Administrator),
                Permission::SessionsRead,
                other
            )
            .is_ok()
        );
    }

    #[test]
    fn a_scope_narrows_even_an_administrator() {
        let mut robot = subject(Role::Administrator);
        robot.scopes = Some(vec![Permission::SessionsRead]);
        assert!(may(&robot, Permission::SessionsRead, None).is_ok());
        assert!(may(&robot, Permission::SessionsWrite, None).is_err());
    }
}
