//! Who may do what with a folder: its owner all, and of one that a project owns its leads; the project's members as much as
//! the folder says, the users whom it is shared with as much as the share says; administrators of the owner what keeps it in
//! order, and nothing with its files. Asked before every act on folders, their files and
//! mounts. Never looks anything up: who asks brings the shares and the time.

use serde::{Deserialize, Serialize};

use crate::app_share::is_member;
use crate::folder::{Folder, FolderOwner, MountAccess};
use crate::grants::{Grant, GrantRole, GrantScope};
use crate::names::{FolderId, FolderShareId, UserId};
use crate::permissions::{Permission, Subject, may};
use crate::refusal::Refusal;
use crate::refusals;
use crate::tenancy::{ProjectId, Scope};
use crate::units::Timestamp;

/// What a share of a folder gives; each right holds those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FolderRight {
    /// Read its files, and mount it read-only.
    Ro,
    /// Make, change and remove its files, too.
    Rw,
    /// Rename, trash, restore and share the folder, too.
    Rwd,
}

impl FolderRight {
    pub const ALL: [Self; 3] = [Self::Ro, Self::Rw, Self::Rwd];

    pub fn word(self) -> &'static str {
        match self {
            Self::Ro => "ro",
            Self::Rw => "rw",
            Self::Rwd => "rwd",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|right| right.word() == word)
    }
}

/// Whom a folder is shared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShareTarget {
    User(UserId),
    /// Every member, as long as they are one.
    Project(ProjectId),
}

/// One share of one folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderShare {
    pub id: FolderShareId,
    pub folder: FolderId,
    pub with: ShareTarget,
    pub right: FolderRight,
    /// None: a user was asked and did not answer yet. A share with a project is accepted from its beginning.
    pub accepted_at: Option<Timestamp>,
    pub created_at: Timestamp,
    /// None: until it is taken back.
    pub ends_at: Option<Timestamp>,
}

impl FolderShare {
    /// Whether its time is not over, accepted or not.
    pub fn holds_at(&self, now: Timestamp) -> bool {
        self.ends_at.is_none_or(|end| now < end)
    }

    /// Whether it is for a subject, alone or as a member of a project.
    pub fn is_for(&self, subject: &Subject) -> bool {
        match self.with {
            ShareTarget::User(user) => user == subject.user,
            ShareTarget::Project(project) => is_member(&subject.grants, project),
        }
    }
}

/// What a subject may do with a folder; a token may narrow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EffectiveRight {
    /// To its files; None: none of it.
    pub files: Option<FolderRight>,
    /// Rename, trash and restore it, see its shares and take them back.
    pub manages: bool,
    /// Give it to another owner, too: it is their own, or they lead the project that owns it.
    pub owns: bool,
}

/// Something that is done with a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FolderVerb {
    /// Learn that it is there, whose it is, and how large.
    See,
    /// List and read its files, take them as an archive, mount it read-only.
    Read,
    /// Make, change, remove and upload files, mount it to be written to.
    Write,
    /// Rename, trash and restore it, list its shares and take them back.
    Manage,
    /// Share it with others.
    Share,
    /// Make an own copy of it.
    Clone,
    /// Offer it to another owner, say what members of its project may do and who makes copies.
    Transfer,
}

impl FolderVerb {
    pub const ALL: [Self; 7] = [
        Self::See,
        Self::Read,
        Self::Write,
        Self::Manage,
        Self::Share,
        Self::Clone,
        Self::Transfer,
    ];

    /// What a token has to have for it.
    fn permission(self) -> Permission {
        match self {
            Self::See => Permission::SessionsRead,
            Self::Read
            | Self::Write
            | Self::Manage
            | Self::Share
            | Self::Clone
            | Self::Transfer => Permission::SessionsWrite,
        }
    }
}

/// Whether grants make a lead of a project: one who does with its folders what a user does with their own, and who takes
/// folders for it.
pub fn leads(grants: &[Grant], project: ProjectId) -> bool {
    grants.contains(&Grant {
        role: GrantRole::Lead,
        scope: GrantScope::Project(project),
    })
}

/// Whether a subject is the owner, or leads the project that is.
pub fn speaks_for(subject: &Subject, owner: FolderOwner) -> bool {
    match owner {
        FolderOwner::User(user) => user == subject.user,
        FolderOwner::Project(project) => leads(&subject.grants, project),
    }
}

/// What the project that owns a folder gives its members.
fn of_members(subject: &Subject, folder: &Folder) -> Option<FolderRight> {
    let project = folder.owner.project()?;
    is_member(&subject.grants, project).then_some(match folder.members {
        MountAccess::Ro => FolderRight::Ro,
        MountAccess::Rw => FolderRight::Rw,
    })
}

/// The right of a subject to a folder; None: they do not learn that it is there. `shares`: at least those of the folder that
/// are for the subject. A share with a user holds as long as both are of one domain. Of an archived project all but its leads
/// read alone.
///
/// Costs O(shares × grants).
pub fn effective_right(
    subject: &Subject,
    folder: &Folder,
    shares: &[FolderShare],
    now: Timestamp,
) -> Option<EffectiveRight> {
    let owns = speaks_for(subject, folder.owner);
    let shared = shares
        .iter()
        .filter(|share| share.folder == folder.id && share.accepted_at.is_some())
        .filter(|share| share.holds_at(now) && share.is_for(subject))
        .filter(|share| match share.with {
            ShareTarget::User(_) => subject.domain == folder.domain,
            ShareTarget::Project(_) => true,
        })
        .map(|share| share.right)
        .max();
    let files = match owns {
        true => Some(FolderRight::Rwd),
        false => {
            let most = match folder.is_closed {
                true => FolderRight::Ro,
                false => FolderRight::Rwd,
            };
            let held = shared.max(of_members(subject, folder));
            held.map(|right| right.min(most))
        }
    };
    let whole = Subject {
        scopes: None,
        ..subject.clone()
    };
    let of_owner = |permission| may(&whole, permission, &folder.scope()).is_ok();
    let right = EffectiveRight {
        files,
        manages: files == Some(FolderRight::Rwd) || of_owner(Permission::SessionsWrite),
        owns,
    };
    (files.is_some() || of_owner(Permission::SessionsRead)).then_some(right)
}

/// Refuses a subject who may not do `verb` with a folder, by `effective_right` and by their token; gives the right.
///
/// Errors: `folder.not-found` for one that the subject may not even see; `token.scope-missing`; `folder.files-own` for
/// administrators of the owner; `folder.right-missing` where a share gives less; `folder.owner-only`;
/// `folder.not-cloneable`; `role.permission-missing`.
pub fn check_right(
    subject: &Subject,
    folder: &Folder,
    shares: &[FolderShare],
    verb: FolderVerb,
    now: Timestamp,
) -> Result<EffectiveRight, Refusal> {
    let own = Scope::user(subject.user);
    may(subject, Permission::SessionsRead, &own)?;
    let right = effective_right(subject, folder, shares, now);
    let right = right.ok_or_else(refusals::folder_not_found)?;
    may(subject, verb.permission(), &own)?;
    let needed = match verb {
        FolderVerb::See => return Ok(right),
        FolderVerb::Manage if right.manages => return Ok(right),
        FolderVerb::Manage if right.files.is_none() => {
            let lacking = Permission::SessionsWrite.word();
            return Err(refusals::role_permission_missing(lacking));
        }
        FolderVerb::Transfer if right.owns => return Ok(right),
        FolderVerb::Transfer => return Err(refusals::folder_owner_only(&folder.name)),
        // Who may not read its files is told so first.
        FolderVerb::Clone if !folder.is_cloneable && !right.owns && right.files.is_some() => {
            return Err(refusals::folder_not_cloneable(&folder.name));
        }
        FolderVerb::Read | FolderVerb::Clone => FolderRight::Ro,
        FolderVerb::Write => FolderRight::Rw,
        FolderVerb::Manage | FolderVerb::Share => FolderRight::Rwd,
    };
    match right.files {
        None => Err(refusals::folder_files_own()),
        Some(held) if held >= needed => Ok(right),
        Some(_) => {
            let needed = needed.word();
            Err(refusals::folder_right_missing(&folder.name, needed))
        }
    }
}

#[cfg(test)]
mod tests;
