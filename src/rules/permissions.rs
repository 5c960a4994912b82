//! May this caller do this, and which rows may a list give them? One table for pages, API and CLI;
//! `server::actions` asks it before every act. Never looks anything up: the caller brings the scope of the thing.

use serde::{Deserialize, Serialize};

use crate::names::UserId;
use crate::refusal::Refusal;
use crate::refusals;
use crate::tenancy::{DomainId, Scope};
use crate::users::Role;

/// One thing a user may do. The word is also the scope of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Permission {
    SessionsRead,
    SessionsWrite,
    /// Enter a session: terminal, exec.
    SessionsEnter,
    ImagesRead,
    ImagesWrite,
    UsersRead,
    UsersWrite,
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
        Self::UsersRead,
        Self::UsersWrite,
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
            Self::UsersRead => "users:read",
            Self::UsersWrite => "users:write",
            Self::Me => "me",
            Self::SystemRead => "system:read",
            Self::SystemWrite => "system:write",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|v| v.word() == word)
    }
}

/// Who asks: a user, with what their token may do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Subject {
    pub user: UserId,
    pub role: Role,
    /// The user's home domain.
    pub domain: DomainId,
    /// None: everything the role may (a browser, root on the box). Some: only these verbs.
    pub scopes: Option<Vec<Permission>>,
}

impl Subject {
    /// The scope that a permission is asked about where no particular thing is named: the subject's own
    /// sessions and account, their domain's images and users, the site's system.
    pub fn scope_of(&self, permission: Permission) -> Scope {
        match permission {
            Permission::SessionsRead
            | Permission::SessionsWrite
            | Permission::SessionsEnter
            | Permission::Me => Scope::user(self.user),
            Permission::ImagesRead
            | Permission::ImagesWrite
            | Permission::UsersRead
            | Permission::UsersWrite => Scope::domain(self.domain),
            Permission::SystemRead | Permission::SystemWrite => Scope::SITE,
        }
    }

    /// True where `may` allows the permission on `scope_of` it; for what a page shows.
    pub fn can(&self, permission: Permission) -> bool {
        may(self, permission, &self.scope_of(permission)).is_ok()
    }

    /// True where the role of now gives less than this subject's.
    pub fn exceeds(&self, now: Role) -> bool {
        is_administrator(self.role) && !is_administrator(now)
    }

    fn has_scope(&self, permission: Permission) -> bool {
        let scopes = self.scopes.as_ref();
        scopes.is_none_or(|scopes| scopes.contains(&permission))
    }
}

/// True for the role that gives every permission on the whole site.
pub fn is_administrator(role: Role) -> bool {
    role == Role::Administrator
}

/// May `subject` do `permission` on a thing of `scope`?
///
/// Errors: `Denied` with the missing capability; `NotFound` for a session of another user, whose
/// existence is not theirs to know.
pub fn may(subject: &Subject, permission: Permission, scope: &Scope) -> Result<(), Refusal> {
    if !subject.has_scope(permission) {
        return Err(refusals::token_scope_missing(permission.word()));
    }
    if is_administrator(subject.role) {
        return Ok(());
    }
    match permission {
        Permission::SessionsRead | Permission::SessionsWrite | Permission::SessionsEnter => {
            let others = scope.owner.is_some_and(|owner| owner != subject.user);
            let abroad = scope.domain.is_some_and(|domain| domain != subject.domain);
            if others || abroad {
                return Err(refusals::session_not_found());
            }
            Ok(())
        }
        Permission::ImagesRead | Permission::Me => Ok(()),
        Permission::ImagesWrite
        | Permission::UsersRead
        | Permission::UsersWrite
        | Permission::SystemRead
        | Permission::SystemWrite => Err(refusals::role_administrator_needed(permission.word())),
    }
}

/// Which rows a list may give. Every list of what has a scope demands one, and only this module makes it, so that
/// a list without its filter does not compile:
///
/// ```compile_fail,E0423
/// use rules::permissions::Reach;
/// let everything = Reach(rules::permissions::Extent::Everything);
/// ```
///
/// ```
/// use rules::permissions::{Permission, Reach, Subject, reach};
/// fn list(subject: &Subject, rows: impl Fn(&Reach)) {
///     rows(&reach(subject, Permission::SessionsRead));
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reach(Extent);

/// How far a reach goes, for the condition of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extent {
    Nothing,
    Owner(UserId),
    Domain(DomainId),
    Everything,
}

impl Reach {
    pub fn extent(&self) -> Extent {
        self.0
    }

    /// True where a list holds the rows of all users of all domains.
    pub fn is_everything(&self) -> bool {
        self.0 == Extent::Everything
    }

    /// True where a list may hold a thing of `scope`.
    pub fn covers(&self, scope: &Scope) -> bool {
        match self.0 {
            Extent::Nothing => false,
            Extent::Owner(user) => scope.owner == Some(user),
            Extent::Domain(domain) => scope.domain == Some(domain),
            Extent::Everything => true,
        }
    }

    /// The same, or the subject's own rows where it reaches nothing.
    #[must_use]
    pub fn or_own(self, subject: &Subject) -> Self {
        match self.0 {
            Extent::Nothing => own(subject),
            _ => self,
        }
    }
}

/// The rows on which `may` allows `subject` the permission; none where the token lacks it.
pub fn reach(subject: &Subject, permission: Permission) -> Reach {
    if !subject.has_scope(permission) {
        return Reach(Extent::Nothing);
    }
    match permission {
        Permission::Me => own(subject),
        _ if is_administrator(subject.role) => Reach(Extent::Everything),
        Permission::SessionsRead | Permission::SessionsWrite | Permission::SessionsEnter => {
            own(subject)
        }
        Permission::ImagesRead => Reach(Extent::Domain(subject.domain)),
        Permission::ImagesWrite
        | Permission::UsersRead
        | Permission::UsersWrite
        | Permission::SystemRead
        | Permission::SystemWrite => Reach(Extent::Nothing),
    }
}

/// The subject's own rows, whatever their token may.
pub fn own(subject: &Subject) -> Reach {
    Reach(Extent::Owner(subject.user))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(role: Role) -> Subject {
        Subject {
            user: UserId(uuid::Uuid::from_u128(1)),
            role,
            domain: DomainId::DEFAULT,
            scopes: None,
        }
    }

    #[test]
    fn a_user_sees_only_own_sessions() {
        let other = Scope::user(UserId(uuid::Uuid::from_u128(2)));
        let user = subject(Role::User);
        assert!(user.can(Permission::SessionsRead));
        assert_eq!(
            may(&user, Permission::SessionsRead, &other).map_err(|r| r.code),
            Err("session.not-found".into())
        );
        assert!(
            may(
                &subject(Role::Administrator),
                Permission::SessionsRead,
                &other
            )
            .is_ok()
        );
    }

    #[test]
    fn a_scope_narrows_even_an_administrator() {
        let mut robot = subject(Role::Administrator);
        robot.scopes = Some(vec![Permission::SessionsRead]);
        assert!(robot.can(Permission::SessionsRead));
        assert!(!robot.can(Permission::SessionsWrite));
    }

    #[test]
    fn a_list_reaches_what_may_be_seen_one_by_one() {
        let foreign = DomainId(uuid::Uuid::from_u128(9));
        let users = [
            UserId(uuid::Uuid::from_u128(1)),
            UserId(uuid::Uuid::from_u128(2)),
        ];
        let scopes = [DomainId::DEFAULT, foreign].map(|domain| {
            users.map(|user| Scope {
                domain: Some(domain),
                ..Scope::user(user)
            })
        });
        for role in Role::ALL {
            for held in [None, Some(vec![]), Some(vec![Permission::SessionsRead])] {
                let mut subject = subject(role);
                subject.scopes = held;
                for scope in scopes.concat().iter().filter(|scope| {
                    // A user has one home domain.
                    scope.owner != Some(subject.user) || scope.domain == Some(subject.domain)
                }) {
                    let permission = Permission::SessionsRead;
                    assert_eq!(
                        reach(&subject, permission).covers(scope),
                        may(&subject, permission, scope).is_ok(),
                        "{subject:?} {scope:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_list_of_one_domain_has_nothing_of_another() {
        let user = subject(Role::User);
        let images = reach(&user, Permission::ImagesRead);
        assert!(images.covers(&Scope::domain(user.domain)));
        assert!(!images.covers(&Scope::domain(DomainId(uuid::Uuid::from_u128(9)))));
        assert!(!images.covers(&Scope::SITE));
    }

    #[test]
    fn a_reach_of_nothing_falls_back_to_the_own_rows() {
        let user = subject(Role::User);
        let system = reach(&user, Permission::SystemRead);
        assert_eq!(system.extent(), Extent::Nothing);
        assert_eq!(system.or_own(&user), own(&user));
        let boss = subject(Role::Administrator);
        let system = reach(&boss, Permission::SystemRead);
        assert!(system.or_own(&boss).is_everything());
    }
}
