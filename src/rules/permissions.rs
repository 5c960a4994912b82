//! May this caller do this, and which rows may a list give them? One table for pages, API and CLI;
//! `server::actions` asks it before every act. Never looks anything up: the caller brings the scope of the thing.

use serde::{Deserialize, Serialize};

use crate::grants::{Grant, GrantRole, GrantScope};
use crate::names::UserId;
use crate::refusal::Refusal;
use crate::refusals;
use crate::tenancy::{DomainId, ProjectId, Scope};

/// One thing a user may do. The word is also the scope of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Permission {
    SessionsRead,
    SessionsWrite,
    /// Enter a session: terminal, exec. That of another user only as `break_glass` says.
    SessionsEnter,
    ImagesRead,
    ImagesWrite,
    UsersRead,
    UsersWrite,
    /// Domains, projects and their members.
    ProjectsRead,
    ProjectsWrite,
    /// Own password, tokens, language.
    Me,
    /// What users did, as the audit log has it.
    AuditRead,
    /// Health in detail, metrics, settings, findings.
    SystemRead,
    /// Settings, backups, certificates, upgrades: what changes the box itself.
    SystemWrite,
}

impl Permission {
    pub const ALL: [Self; 13] = [
        Self::SessionsRead,
        Self::SessionsWrite,
        Self::SessionsEnter,
        Self::ImagesRead,
        Self::ImagesWrite,
        Self::UsersRead,
        Self::UsersWrite,
        Self::ProjectsRead,
        Self::ProjectsWrite,
        Self::Me,
        Self::AuditRead,
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
            Self::ProjectsRead => "projects:read",
            Self::ProjectsWrite => "projects:write",
            Self::Me => "me",
            Self::AuditRead => "audit:read",
            Self::SystemRead => "system:read",
            Self::SystemWrite => "system:write",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|v| v.word() == word)
    }
}

/// Who asks: a user, with the grants that they hold now and what their token may do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Subject {
    pub user: UserId,
    /// Roles on scopes, in no order; an empty list is an ordinary user of no project.
    pub grants: Vec<Grant>,
    /// The user's home domain.
    pub domain: DomainId,
    /// None: everything the grants give (a browser, root on the box). Some: only these permissions.
    pub scopes: Option<Vec<Permission>>,
}

impl Subject {
    /// The scope that a permission is asked about where no particular thing is named: the subject's own
    /// sessions, projects and account, their domain's images and users, the site's system.
    pub fn scope_of(&self, permission: Permission) -> Scope {
        match permission {
            Permission::SessionsRead
            | Permission::SessionsWrite
            | Permission::SessionsEnter
            | Permission::ProjectsRead
            | Permission::AuditRead
            | Permission::Me => Scope::user(self.user),
            Permission::ImagesRead
            | Permission::ImagesWrite
            | Permission::UsersRead
            | Permission::UsersWrite
            | Permission::ProjectsWrite => Scope::domain(self.domain),
            Permission::SystemRead | Permission::SystemWrite => Scope::SITE,
        }
    }

    /// True where `may` allows the permission on `scope_of` it; for what a page shows.
    pub fn can(&self, permission: Permission) -> bool {
        may(self, permission, &self.scope_of(permission)).is_ok()
    }

    /// True for an administrator of the whole site, whatever their token may.
    pub fn is_site_administrator(&self) -> bool {
        self.grants.contains(&Grant::SITE_ADMINISTRATOR)
    }

    /// True where the grants of now lack one of this subject's.
    pub fn exceeds(&self, now: &[Grant]) -> bool {
        self.grants.iter().any(|grant| !now.contains(grant))
    }

    /// True where the subject's grants reach things of a domain at all, whatever their token may.
    pub fn reaches(&self, domain: DomainId) -> bool {
        self.domain == domain || self.grants.iter().any(|g| reaches_domain(*g, domain))
    }

    /// True where the subject is administrator of every scope on which `others` are auditor or administrator: no user
    /// changes an account with wider rights than their own. A token without all scopes changes no such account at all:
    /// with a new password it would be more than it is.
    pub fn outranks(&self, others: &[Grant]) -> bool {
        others.iter().all(|grant| {
            let administers = Grant {
                role: GrantRole::Administrator,
                scope: grant.scope,
            };
            grant.role.is_of_project()
                || !self.is_narrowed()
                    && (self.is_site_administrator() || self.grants.contains(&administers))
        })
    }

    /// Asked before a subject is handed what opens the account of another user: a token needs each scope that the user of
    /// these grants needs for what they may do.
    ///
    /// Errors: `token.scope-missing` with the first that it lacks.
    pub fn may_open(&self, others: &[Grant]) -> Result<(), Refusal> {
        let lacking = Permission::ALL.into_iter().find(|permission| {
            let is_theirs = OF_ANY_USER.contains(permission)
                || others.iter().any(|grant| gives(*grant, *permission));
            is_theirs && !self.has_scope(*permission)
        });
        match lacking {
            Some(permission) => Err(refusals::token_scope_missing(permission.word())),
            None => Ok(()),
        }
    }

    fn is_narrowed(&self) -> bool {
        let lacks = |scopes: &Vec<Permission>| {
            let mut all = Permission::ALL.iter();
            all.any(|permission| !scopes.contains(permission))
        };
        self.scopes.as_ref().is_some_and(lacks)
    }

    /// Whether the subject's token may do this on what is the subject's own.
    ///
    /// Errors: `token.scope-missing`.
    pub fn token_allows(&self, permission: Permission) -> Result<(), Refusal> {
        match self.has_scope(permission) {
            true => Ok(()),
            false => Err(refusals::token_scope_missing(permission.word())),
        }
    }

    fn has_scope(&self, permission: Permission) -> bool {
        let scopes = self.scopes.as_ref();
        scopes.is_none_or(|scopes| scopes.contains(&permission))
    }

    fn holds(&self, permission: Permission, scope: &Scope) -> bool {
        self.grants
            .iter()
            .any(|grant| gives(*grant, permission) && grant.covers(scope))
    }

    /// True for what is the subject's own, at home: a user keeps nothing in another domain.
    fn owns(&self, scope: &Scope) -> bool {
        scope.owner == Some(self.user) && scope.domain.is_none_or(|domain| domain == self.domain)
    }
}

/// What a user without any grant may do with what is their own, and read at home: as `may` has it.
const OF_ANY_USER: [Permission; 7] = [
    Permission::SessionsRead,
    Permission::SessionsWrite,
    Permission::SessionsEnter,
    Permission::ImagesRead,
    Permission::ProjectsRead,
    Permission::Me,
    Permission::AuditRead,
];

/// True where a grant gives the permission on what its scope holds.
///
/// Rule: the table of roles in SECURITY.md.
fn gives(grant: Grant, permission: Permission) -> bool {
    let site = grant.scope == GrantScope::Site;
    match grant.role {
        GrantRole::Member => permission == Permission::ProjectsRead,
        GrantRole::Viewer => matches!(
            permission,
            Permission::SessionsRead | Permission::ProjectsRead
        ),
        GrantRole::Lead => matches!(
            permission,
            Permission::SessionsRead
                | Permission::SessionsWrite
                | Permission::ProjectsRead
                | Permission::ProjectsWrite
                | Permission::AuditRead
        ),
        GrantRole::Auditor => match permission {
            Permission::SessionsRead
            | Permission::ImagesRead
            | Permission::UsersRead
            | Permission::ProjectsRead
            | Permission::AuditRead => true,
            Permission::SystemRead => site,
            Permission::SessionsWrite
            | Permission::SessionsEnter
            | Permission::ImagesWrite
            | Permission::UsersWrite
            | Permission::ProjectsWrite
            | Permission::Me
            | Permission::SystemWrite => false,
        },
        GrantRole::Administrator => match permission {
            Permission::SessionsRead
            | Permission::SessionsWrite
            | Permission::ImagesRead
            | Permission::ImagesWrite
            | Permission::UsersRead
            | Permission::UsersWrite
            | Permission::ProjectsRead
            | Permission::ProjectsWrite
            | Permission::AuditRead => true,
            // By break-glass alone.
            Permission::SessionsEnter => false,
            Permission::Me | Permission::SystemRead | Permission::SystemWrite => site,
        },
    }
}

fn reaches_domain(grant: Grant, domain: DomainId) -> bool {
    !grant.role.is_of_project() && grant.covers(&Scope::domain(domain))
}

/// True for the role that gives every permission on the whole site.
pub fn is_administrator(role: crate::users::Role) -> bool {
    role == crate::users::Role::Administrator
}

/// May `subject` do `permission` on a thing of `scope`?
///
/// The rights of a subject are the union of their grants and of what is their own, narrowed by their token.
///
/// Errors: `Denied` with the missing capability; `NotFound` for a session, project or image that the subject may
/// not even read, whose existence is not theirs to know.
pub fn may(subject: &Subject, permission: Permission, scope: &Scope) -> Result<(), Refusal> {
    if !subject.has_scope(permission) {
        return Err(refusals::token_scope_missing(permission.word()));
    }
    if subject.holds(permission, scope) {
        return Ok(());
    }
    let own = subject.owns(scope);
    match permission {
        Permission::SessionsRead | Permission::SessionsWrite | Permission::SessionsEnter => {
            match () {
                () if own => Ok(()),
                () if subject.holds(Permission::SessionsRead, scope) => {
                    Err(refusals::role_permission_missing(permission.word()))
                }
                () => Err(refusals::session_not_found()),
            }
        }
        Permission::ImagesRead => match scope.domain.is_none_or(|d| subject.reaches(d)) {
            true => Ok(()),
            false => Err(refusals::image_not_found()),
        },
        Permission::ProjectsRead => match own {
            true => Ok(()),
            false => Err(refusals::project_not_found()),
        },
        Permission::ProjectsWrite if scope.project.is_some() => {
            match subject.holds(Permission::ProjectsRead, scope) {
                true => Err(refusals::role_permission_missing(permission.word())),
                false => Err(refusals::project_not_found()),
            }
        }
        Permission::AuditRead => match own {
            true => Ok(()),
            false => Err(refusals::role_permission_missing(permission.word())),
        },
        Permission::Me => Ok(()),
        Permission::ImagesWrite
        | Permission::UsersRead
        | Permission::UsersWrite
        | Permission::ProjectsWrite
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
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reach(Extent);

/// How far a reach goes, for the condition of a query.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extent {
    Nothing,
    /// The rows of any of these.
    Some {
        owner: Option<UserId>,
        /// Sorted, each once.
        projects: Vec<ProjectId>,
        /// Sorted, each once.
        domains: Vec<DomainId>,
    },
    Everything,
}

impl Reach {
    pub fn extent(&self) -> &Extent {
        &self.0
    }

    /// True where a list holds the rows of all users of all domains.
    pub fn is_everything(&self) -> bool {
        self.0 == Extent::Everything
    }

    /// True where a list may hold a thing of `scope`.
    pub fn covers(&self, scope: &Scope) -> bool {
        match &self.0 {
            Extent::Nothing => false,
            Extent::Some {
                owner,
                projects,
                domains,
            } => {
                (owner.is_some() && scope.owner == *owner)
                    || scope.project.is_some_and(|p| projects.contains(&p))
                    || scope.domain.is_some_and(|d| domains.contains(&d))
            }
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
    if permission == Permission::Me {
        return own(subject);
    }
    let (mut projects, mut domains) = (Vec::new(), Vec::new());
    for grant in subject
        .grants
        .iter()
        .filter(|grant| gives(**grant, permission))
    {
        match grant.scope {
            GrantScope::Site => return Reach(Extent::Everything),
            GrantScope::Domain(domain) => domains.push(domain),
            GrantScope::Project(project) => projects.push(project),
        }
    }
    let owner = match permission {
        Permission::SessionsRead
        | Permission::SessionsWrite
        | Permission::SessionsEnter
        | Permission::ProjectsRead
        | Permission::AuditRead => Some(subject.user),
        Permission::ImagesRead => {
            domains.push(subject.domain);
            None
        }
        Permission::ImagesWrite
        | Permission::UsersRead
        | Permission::UsersWrite
        | Permission::ProjectsWrite
        | Permission::Me
        | Permission::SystemRead
        | Permission::SystemWrite => None,
    };
    domains.sort_unstable();
    domains.dedup();
    projects.sort_unstable();
    projects.dedup();
    if owner.is_none() && projects.is_empty() && domains.is_empty() {
        return Reach(Extent::Nothing);
    }
    Reach(Extent::Some {
        owner,
        projects,
        domains,
    })
}

/// The events that a subject hears of: everything for who may see the whole system, else what happened to sessions
/// of their reach.
pub fn heard(subject: &Subject) -> Reach {
    let system = reach(subject, Permission::SystemRead);
    match system.is_everything() {
        true => system,
        false => reach(subject, Permission::SessionsRead).or_own(subject),
    }
}

/// The subject's own rows, whatever their token may.
pub fn own(subject: &Subject) -> Reach {
    Reach(Extent::Some {
        owner: Some(subject.user),
        projects: Vec::new(),
        domains: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::users::Role;

    fn subject(role: Role) -> Subject {
        Subject {
            user: UserId(uuid::Uuid::from_u128(1)),
            grants: role.grants(),
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
    fn a_user_sees_only_images_of_the_own_domain() {
        let abroad = DomainId(uuid::Uuid::from_u128(7));
        let user = subject(Role::User);
        let asked = |domain| may(&user, Permission::ImagesRead, &Scope::domain(domain));
        assert_eq!(asked(DomainId::DEFAULT), Ok(()));
        assert_eq!(
            asked(abroad).map_err(|r| r.code),
            Err("image.not-found".into())
        );
        assert!(!user.reaches(abroad));
        assert!(subject(Role::Administrator).reaches(abroad));
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
        assert_eq!(system.extent(), &Extent::Nothing);
        assert_eq!(system.or_own(&user), own(&user));
        let boss = subject(Role::Administrator);
        let system = reach(&boss, Permission::SystemRead);
        assert!(system.or_own(&boss).is_everything());
    }

    /// Two domains, the first with two projects; grants of every role on every scope it can be of.
    fn every_grant() -> Vec<Grant> {
        let (domains, projects) = (domains(), projects());
        let mut all = Vec::new();
        for role in GrantRole::ALL {
            if role.is_of_project() {
                let scopes = projects.map(GrantScope::Project);
                all.extend(scopes.map(|scope| Grant { role, scope }));
            } else {
                all.push(Grant {
                    role,
                    scope: GrantScope::Site,
                });
                let scopes = domains.map(GrantScope::Domain);
                all.extend(scopes.map(|scope| Grant { role, scope }));
            }
        }
        all
    }

    fn domains() -> [DomainId; 2] {
        [DomainId::DEFAULT, DomainId(uuid::Uuid::from_u128(9))]
    }

    fn projects() -> [ProjectId; 3] {
        [1, 2, 3].map(|number| ProjectId(uuid::Uuid::from_u128(number)))
    }

    /// Scopes of sessions as rows have them: a project lies in one domain, a user is at home in one.
    fn session_scopes() -> Vec<Scope> {
        let [first, second] = domains();
        let homes = [(0, first), (1, first), (2, second)];
        let owners = [1, 2].map(|number| UserId(uuid::Uuid::from_u128(number)));
        let mut scopes = Vec::new();
        for (project, domain) in homes {
            for owner in owners {
                // The subject of these tests is user 1, at home in the first domain.
                if owner.0.as_u128() == 1 && domain == second {
                    continue;
                }
                scopes.push(Scope {
                    domain: Some(domain),
                    project: Some(projects()[project]),
                    owner: Some(owner),
                });
            }
        }
        scopes
    }

    #[test]
    fn more_grants_never_take_a_right_away_and_their_order_is_no_matter() {
        for one in every_grant() {
            for other in every_grant() {
                let mut both = subject(Role::User);
                both.grants = vec![one, other];
                let mut turned = both.clone();
                turned.grants.reverse();
                let mut single = both.clone();
                single.grants.truncate(1);
                for permission in Permission::ALL {
                    assert_eq!(reach(&both, permission), reach(&turned, permission));
                    for scope in session_scopes() {
                        let by_one = may(&single, permission, &scope).is_ok();
                        let by_both = may(&both, permission, &scope).is_ok();
                        assert!(
                            by_both || !by_one,
                            "{one:?} {other:?} {permission:?} {scope:?}"
                        );
                        assert_eq!(by_both, may(&turned, permission, &scope).is_ok());
                    }
                }
            }
        }
    }

    #[test]
    fn a_list_reaches_what_each_grant_allows_one_by_one() {
        for grant in every_grant() {
            let mut subject = subject(Role::User);
            subject.grants = vec![grant];
            for permission in [
                Permission::SessionsRead,
                Permission::SessionsWrite,
                Permission::SessionsEnter,
            ] {
                for scope in session_scopes() {
                    assert_eq!(
                        reach(&subject, permission).covers(&scope),
                        may(&subject, permission, &scope).is_ok(),
                        "{grant:?} {permission:?} {scope:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn no_grant_of_one_domain_reaches_another() {
        let [_, second] = domains();
        let foreign = Scope {
            domain: Some(second),
            project: Some(projects()[2]),
            owner: Some(UserId(uuid::Uuid::from_u128(2))),
        };
        for grant in every_grant() {
            if grant.covers(&foreign) {
                continue;
            }
            let mut subject = subject(Role::User);
            subject.grants = vec![grant];
            for permission in Permission::ALL {
                if permission == Permission::Me {
                    continue;
                }
                assert!(
                    may(&subject, permission, &foreign).is_err(),
                    "{grant:?} {permission:?}"
                );
                assert!(!reach(&subject, permission).covers(&foreign));
            }
        }
    }

    #[test]
    fn who_may_see_but_not_change_is_told_so() {
        let [project, ..] = projects();
        let mut viewer = subject(Role::User);
        viewer.grants = vec![Grant {
            role: GrantRole::Viewer,
            scope: GrantScope::Project(project),
        }];
        let of_another = Scope {
            domain: Some(DomainId::DEFAULT),
            project: Some(project),
            owner: Some(UserId(uuid::Uuid::from_u128(2))),
        };
        assert!(may(&viewer, Permission::SessionsRead, &of_another).is_ok());
        let refused = |permission| {
            let refusal = may(&viewer, permission, &of_another).expect_err("refused");
            (refusal.kind, refusal.code)
        };
        assert_eq!(
            refused(Permission::SessionsWrite),
            (
                crate::refusal::RefusalKind::Denied,
                "role.permission-missing".into()
            )
        );
        assert_eq!(
            refused(Permission::ProjectsWrite),
            (
                crate::refusal::RefusalKind::Denied,
                "role.permission-missing".into()
            )
        );
    }

    #[test]
    fn nobody_changes_an_account_of_wider_rights() {
        let [first, second] = domains();
        let of = |role, scope| Grant { role, scope };
        let mut chief = subject(Role::User);
        chief.grants = vec![of(GrantRole::Administrator, GrantScope::Domain(first))];
        let lead = of(GrantRole::Lead, GrantScope::Project(projects()[0]));
        assert!(chief.outranks(&[]));
        assert!(chief.outranks(&[lead]));
        assert!(chief.outranks(&[of(GrantRole::Auditor, GrantScope::Domain(first))]));
        assert!(!chief.outranks(&[of(GrantRole::Auditor, GrantScope::Domain(second))]));
        assert!(!chief.outranks(&[Grant::SITE_ADMINISTRATOR]));
        assert!(!chief.outranks(&[of(GrantRole::Auditor, GrantScope::Site)]));
        let mut root = subject(Role::Administrator);
        assert!(root.outranks(&[Grant::SITE_ADMINISTRATOR]));
        root.scopes = Some(vec![Permission::UsersWrite]);
        assert!(root.outranks(&[lead]));
        assert!(!root.outranks(&[Grant::SITE_ADMINISTRATOR]));
        root.scopes = Some(Permission::ALL.to_vec());
        assert!(root.outranks(&[Grant::SITE_ADMINISTRATOR]));
    }

    #[test]
    fn a_token_opens_no_account_that_may_more_than_it() {
        let mut root = subject(Role::Administrator);
        assert!(root.may_open(&[Grant::SITE_ADMINISTRATOR]).is_ok());
        let plain = subject(Role::User);
        let own = |permission| may(&plain, permission, &plain.scope_of(permission)).is_ok();
        let of_users: Vec<Permission> = Permission::ALL.into_iter().filter(|p| own(*p)).collect();
        for without in Permission::ALL {
            let but_one = Permission::ALL.into_iter().filter(|one| *one != without);
            root.scopes = Some(but_one.collect());
            let refused = root.may_open(&[]).is_err();
            assert_eq!(refused, of_users.contains(&without), "{}", without.word());
        }
        root.scopes = Some([&of_users[..], &[Permission::UsersWrite]].concat());
        assert!(root.may_open(&[]).is_ok());
        let lead = Grant {
            role: GrantRole::Lead,
            scope: GrantScope::Project(projects()[0]),
        };
        let refused = root.may_open(&[lead]).unwrap_err();
        assert_eq!(refused.code, "token.scope-missing");
    }
}
