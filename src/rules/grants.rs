//! Roles that users hold on scopes: a role is a grant, never a property of the user. Pure; `permissions` says
//! what a grant allows.

use serde::{Deserialize, Serialize};

use crate::tenancy::{DomainId, ProjectId, Scope};
use crate::units::Timestamp;

/// What a grant makes of a user on its scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GrantRole {
    /// Of a project: launches in it, sees own sessions.
    Member,
    /// Of a project: sees all of it, launches nothing.
    Viewer,
    /// Of a project: sees and ends its sessions, chooses its members.
    Lead,
    /// Of a domain or the site: sees everything there, changes nothing.
    Auditor,
    /// Of a domain or the site: changes everything there.
    Administrator,
}

impl GrantRole {
    pub const ALL: [Self; 5] = [
        Self::Member,
        Self::Viewer,
        Self::Lead,
        Self::Auditor,
        Self::Administrator,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Viewer => "viewer",
            Self::Lead => "lead",
            Self::Auditor => "auditor",
            Self::Administrator => "administrator",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.word() == word)
    }

    /// True for the roles of a project; the others are of a domain or the site.
    pub fn is_of_project(self) -> bool {
        match self {
            Self::Member | Self::Viewer | Self::Lead => true,
            Self::Auditor | Self::Administrator => false,
        }
    }

    /// True where its holder may launch sessions in the project.
    pub fn launches(self) -> bool {
        matches!(self, Self::Member | Self::Lead)
    }
}

/// Where a grant holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum GrantScope {
    Site,
    Domain(DomainId),
    Project(ProjectId),
}

/// One role on one scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Grant {
    pub role: GrantRole,
    pub scope: GrantScope,
}

/// A grant as a row keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HeldGrant {
    pub grant: Grant,
    /// None: until it is taken away.
    pub expires_at: Option<Timestamp>,
}

impl Grant {
    /// Administrator of the whole site.
    pub const SITE_ADMINISTRATOR: Self = Self {
        role: GrantRole::Administrator,
        scope: GrantScope::Site,
    };

    /// True where its scope holds things of `scope`.
    pub fn covers(self, scope: &Scope) -> bool {
        match self.scope {
            GrantScope::Site => true,
            GrantScope::Domain(domain) => scope.domain == Some(domain),
            GrantScope::Project(project) => scope.project == Some(project),
        }
    }
}

impl HeldGrant {
    /// True while the grant holds; its last instant is not in it.
    pub fn holds_at(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|end| now < end)
    }
}
