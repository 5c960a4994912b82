//! Users: who may sign in, with which role. Passwords and tokens are `server::access`'s.

use serde::{Deserialize, Serialize};

use crate::names::{UserId, UserName};
use crate::tenancy::DomainId;
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
}

/// One user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub id: UserId,
    pub name: UserName,
    /// Home domain; no answer names it while a site has one.
    #[serde(skip)]
    pub domain: DomainId,
    pub role: Role,
    /// `en` or `ko`; empty means as the browser asks.
    pub language: String,
    /// `light`, `dark` or `system`.
    pub theme: String,
    /// IANA name such as `Asia/Seoul`; empty means UTC.
    pub time_zone: String,
    pub suspended: bool,
    pub created_at: Timestamp,
    pub generation: u64,
}
