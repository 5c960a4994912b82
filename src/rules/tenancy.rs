//! Whose a thing is: its domain, its project and its owner. Pure; decides nothing, `permissions` does.
//!
//! A site has domains, a domain has projects, a project has users as members. What is scoped how:
//!
//! | Thing | Domain | Project | Owner |
//! |---|---|---|---|
//! | session, and what happened to it | yes | yes | yes |
//! | operation, upload, token, sign-in | its user's | none | yes |
//! | folder | its owner's | where a project owns it: yes | where a user owns it: yes |
//! | image, user | yes | none | none |
//! | announcement | of a domain: yes; of the site: none | none | none |
//! | budget | yes | of a project: yes | of a user: yes |
//! | course | yes | yes | none |
//! | preset | of a domain or a project: yes | of a project: yes | none |
//! | resource group | none: the site's; who may use it is listed | none | none |
//! | node, device, backup, setting, certificate | none: the site's | none | none |

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::names::{TenantName, UserId};
use crate::units::Timestamp;

/// One domain: an organisation with users and projects of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DomainId(pub Uuid);

/// One project of a domain. It never changes its domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProjectId(pub Uuid);

impl DomainId {
    /// The domain `default`, which every site is initialised with; migration 0010 has the same bytes.
    pub const DEFAULT: Self = Self(Uuid::from_u128(0x0000_0000_0000_7000_8000_0000_0000_0001));
}

impl ProjectId {
    /// The project `default` of the domain `default`; migration 0010 has the same bytes.
    pub const DEFAULT: Self = Self(Uuid::from_u128(0x0000_0000_0000_7000_8000_0000_0000_0002));
}

/// What may be done in a domain or a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TenantState {
    Active,
    /// No new session; what runs goes on, and history stays.
    Archived,
}

impl TenantState {
    pub const ALL: [Self; 2] = [Self::Active, Self::Archived];

    pub fn word(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Archived => "archived",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }
}

/// One domain as its row has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    pub id: DomainId,
    pub name: TenantName,
    /// What people read; empty: the name.
    pub title: String,
    pub generation: u64,
}

/// One project as its row has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    pub id: ProjectId,
    pub domain: DomainId,
    /// No other project of the domain has it.
    pub name: TenantName,
    /// What people read; empty: the name.
    pub title: String,
    pub state: TenantState,
    pub generation: u64,
}

impl Project {
    /// The project as a whole.
    pub fn scope(&self) -> Scope {
        Scope {
            domain: Some(self.domain),
            project: Some(self.id),
            owner: None,
        }
    }
}

impl DomainId {
    /// As `SessionId::make`.
    pub fn make(now: Timestamp, random: [u8; 10]) -> Self {
        Self(UserId::make(now, random).0)
    }
}

impl ProjectId {
    /// As `SessionId::make`.
    pub fn make(now: Timestamp, random: [u8; 10]) -> Self {
        Self(UserId::make(now, random).0)
    }
}

impl fmt::Display for DomainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ProjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Default for DomainId {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Default for ProjectId {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Where a thing belongs. None at a level: it belongs to all of that level, as the table above says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scope {
    pub domain: Option<DomainId>,
    pub project: Option<ProjectId>,
    pub owner: Option<UserId>,
}

impl Scope {
    /// Of the whole site: nodes, devices, backups, settings, certificates.
    pub const SITE: Self = Self {
        domain: None,
        project: None,
        owner: None,
    };

    /// Of a domain as a whole: its images and users.
    pub fn domain(domain: DomainId) -> Self {
        Self {
            domain: Some(domain),
            ..Self::SITE
        }
    }

    /// Of one user, in their domain and apart from any project: operations, tokens.
    pub fn user(owner: UserId) -> Self {
        Self {
            owner: Some(owner),
            ..Self::SITE
        }
    }
}
