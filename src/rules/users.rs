//! Users: who may sign in, with which role on the site. Passwords and tokens are `server::access`'s.

use serde::{Deserialize, Serialize};

use crate::grants::{Grant, GrantRole, GrantScope, HeldGrant};
use crate::names::{EmailAddress, UserId, UserName};
use crate::refusal::Refusal;
use crate::refusals;
use crate::session::hidden;
use crate::tenancy::{DomainId, ProjectId};
use crate::units::Timestamp;

/// What a user is to the box.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    User,
    Administrator,
}

impl Role {
    pub const ALL: [Self; 2] = [Self::User, Self::Administrator];

    pub fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Administrator => "administrator",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|r| r.word() == word)
    }

    /// The grants that make this role of the site: one for an administrator, none for a user.
    pub fn grants(self) -> Vec<Grant> {
        match self {
            Self::Administrator => vec![Grant::SITE_ADMINISTRATOR],
            Self::User => Vec::new(),
        }
    }
}

/// The membership that a user of the domain `default` begins with.
pub const DEFAULT_MEMBER: HeldGrant = HeldGrant {
    grant: Grant {
        role: GrantRole::Member,
        scope: GrantScope::Project(ProjectId::DEFAULT),
    },
    expires_at: None,
};

/// Who proves a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UserSource {
    /// This site, by a password of its own.
    #[default]
    Local,
    /// A directory checks the password; here there is none.
    Directory,
    /// A provider of OpenID Connect; here there is no password.
    Provider,
    /// A provider by SAML 2.0; here there is no password.
    Saml,
}

impl UserSource {
    /// The word in rows.
    pub fn word(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Directory => "ldap",
            Self::Provider => "oidc",
            Self::Saml => "saml",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        [Self::Local, Self::Directory, Self::Provider, Self::Saml]
            .into_iter()
            .find(|source| source.word() == word)
    }

    /// Whether the password is this site's.
    pub fn is_local(self) -> bool {
        self == Self::Local
    }
}

/// One user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub id: UserId,
    pub name: UserName,
    /// What people call them; empty: nobody said.
    #[serde(default)]
    pub full_name: String,
    /// Signs in as the name does.
    #[serde(default)]
    pub email: Option<EmailAddress>,
    /// The password is an initial one: the user sets their own before anything else.
    #[serde(default)]
    pub must_change_password: bool,
    /// Signs in with a code beside the password.
    #[serde(default)]
    pub second_factor: bool,
    /// Who proves that they are it.
    #[serde(skip)]
    pub source: UserSource,
    /// None: as long ago as the account was made.
    #[serde(skip)]
    pub password_set_at: Option<Timestamp>,
    /// Home domain; no answer names it while a site has one.
    #[serde(skip)]
    pub domain: DomainId,
    /// Administrator where a grant on the site says so; the word for lists.
    pub role: Role,
    /// Every role on a scope that a row gives, also one that ended.
    #[serde(skip)]
    pub grants: Vec<HeldGrant>,
    /// `en` or `ko`; empty means as the browser asks.
    pub language: String,
    /// `light`, `dark` or `system`.
    pub theme: String,
    /// IANA name such as `Asia/Seoul`; empty means UTC.
    pub time_zone: String,
    pub suspended: bool,
    /// Networks that they may come from, such as `10.1.0.0/16`; none: everywhere.
    #[serde(default)]
    pub networks: Vec<String>,
    /// The account is removed from then on, once its last session is over; None: it stays.
    pub departs_at: Option<Timestamp>,
    /// The account of a guest ends then: it is suspended, and its sessions are stopped. None: it has no end.
    #[serde(default)]
    pub expires_at: Option<Timestamp>,
    /// When they last signed in; None: never, or before it was kept. It makes no version.
    #[serde(default)]
    pub signed_in_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub generation: u64,
}

/// Seconds before its end from which on the user of an account is told of it.
pub const ACCOUNT_WARNING_SECONDS: u64 = 7 * 86_400;

impl User {
    /// When the account ends; None for an administrator of the site, whose never does.
    pub fn account_end(&self) -> Option<Timestamp> {
        self.expires_at.filter(|_| self.role != Role::Administrator)
    }

    /// Whether they may do nothing: suspended, or an account that ended, before the controller writes that down.
    pub fn is_shut_out(&self, now: Timestamp) -> bool {
        self.suspended || self.account_end().is_some_and(|end| end <= now)
    }

    /// The grants that hold at `now`, in the order of the rows.
    pub fn grants_at(&self, now: Timestamp) -> Vec<Grant> {
        let held = self.grants.iter().filter(|held| held.holds_at(now));
        held.map(|held| held.grant).collect()
    }

    /// When the next of the grants that hold at `now` ends; None where none does.
    pub fn next_grant_end(&self, now: Timestamp) -> Option<Timestamp> {
        let held = self.grants.iter().filter(|held| held.holds_at(now));
        held.filter_map(|held| held.expires_at).min()
    }
}

/// Letters of a full name.
const MAX_FULL_NAME_LENGTH: usize = 254;

/// A full name as it is kept: trimmed; empty for none. Errors: `user.full-name-invalid`.
pub fn full_name(typed: &str) -> Result<String, Refusal> {
    let typed = typed.trim();
    let good = typed.chars().count() <= MAX_FULL_NAME_LENGTH && !typed.chars().any(hidden);
    match good {
        true => Ok(typed.to_owned()),
        false => Err(refusals::user_full_name_invalid(MAX_FULL_NAME_LENGTH).at("/full_name")),
    }
}
