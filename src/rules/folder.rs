//! A folder: a directory that outlives sessions. Says what becomes of one, and who may do what with it. Never looks anything
//! up.

use serde::{Deserialize, Serialize};

use crate::names::{FolderId, UserId};
use crate::permissions::{Permission, Subject, may};
use crate::refusal::Refusal;
use crate::refusals;
use crate::tenancy::{DomainId, Scope};
use crate::units::Timestamp;
pub use crate::workload::mount::{
    FolderMount, FolderName, HOME, MAX_FOLDER_NAME, MAX_MOUNTS, MountAccess, RequestedMount,
    mount_plan,
};

/// Days that a folder lies in the trash. Higher: it takes disk for longer. Lower: a mistake is noticed too late.
pub const TRASH_DAYS: u64 = 30;

/// What a folder is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FolderKind {
    General,
    /// Made by itself, one for each user.
    Home,
}

impl FolderKind {
    pub fn word(self) -> &'static str {
        match self {
            Self::General => "general",
            Self::Home => "home",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        let all = [Self::General, Self::Home];
        all.into_iter().find(|kind| kind.word() == word)
    }
}

/// How far a folder is from being gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FolderState {
    Ready,
    /// Nothing of it is removed yet.
    Trashed,
    /// Its files are being removed; there is no way back.
    Purging,
}

impl FolderState {
    pub fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Trashed => "trashed",
            Self::Purging => "purging",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        let all = [Self::Ready, Self::Trashed, Self::Purging];
        all.into_iter().find(|state| state.word() == word)
    }
}

/// What a folder took of the disk when it was counted last. No limit stands behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FolderUse {
    pub bytes: u64,
    /// Files, directories and links.
    pub entries: u64,
    pub at: Timestamp,
}

/// One folder as its row has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    pub id: FolderId,
    pub owner: UserId,
    /// The home domain of its owner.
    pub domain: DomainId,
    /// No other folder of the owner that is ready has it.
    pub name: FolderName,
    pub kind: FolderKind,
    pub state: FolderState,
    pub created_at: Timestamp,
    /// When a session was launched that mounts it, or its files were changed from outside, last.
    pub used_at: Option<Timestamp>,
    pub trashed_at: Option<Timestamp>,
    /// None: it was not counted yet.
    pub counted: Option<FolderUse>,
    pub generation: u64,
}

impl Folder {
    /// Whose it is.
    pub fn scope(&self) -> Scope {
        Scope {
            domain: Some(self.domain),
            project: None,
            owner: Some(self.owner),
        }
    }

    /// When its files are removed, while it lies in the trash.
    pub fn purge_at(&self) -> Option<Timestamp> {
        let since = self.trashed_at?;
        Some(since.plus_seconds(TRASH_DAYS * 86_400))
    }
}

/// What a subject may do with a folder; each right holds those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FolderAccess {
    /// See that it is there, and how large it is.
    See,
    /// Rename, trash and restore it.
    Manage,
    /// Read and write its files, by mounting it.
    Own,
}

/// The strongest right of a subject to a folder. Who may change all sessions of the owner may manage the owner's folders;
/// files are the owner's alone.
///
/// Errors: `folder.not-found` for one that the subject may not even see; `token.scope-missing`.
pub fn access(subject: &Subject, folder: &Folder) -> Result<FolderAccess, Refusal> {
    let scope = folder.scope();
    may(subject, Permission::SessionsRead, &scope).map_err(|refusal| {
        match refusal.code.as_str() {
            crate::codes::SESSION_NOT_FOUND => refusals::folder_not_found(),
            _ => refusal,
        }
    })?;
    Ok(match may(subject, Permission::SessionsWrite, &scope) {
        Err(_) => FolderAccess::See,
        Ok(()) if folder.owner == subject.user => FolderAccess::Own,
        Ok(()) => FolderAccess::Manage,
    })
}

/// Refuses a subject whose right to a folder is weaker than `needed`.
///
/// Errors: as `access`; `role.permission-missing`.
pub fn check_access(
    subject: &Subject,
    folder: &Folder,
    needed: FolderAccess,
) -> Result<(), Refusal> {
    match access(subject, folder)? >= needed {
        true => Ok(()),
        false => {
            let lacking = Permission::SessionsWrite.word();
            Err(refusals::role_permission_missing(lacking))
        }
    }
}

/// Refuses a subject that may not read and write the files of a folder: they are its owner's alone.
///
/// Errors: as `access`; `token.scope-missing`, `role.permission-missing`, `folder.files-own`.
pub fn check_files(subject: &Subject, folder: &Folder) -> Result<(), Refusal> {
    access(subject, folder)?;
    may(subject, Permission::SessionsWrite, &folder.scope())?;
    match folder.owner == subject.user {
        true => Ok(()),
        false => Err(refusals::folder_files_own()),
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::grants::{Grant, GrantRole, GrantScope};

    const OWNER: UserId = UserId(Uuid::from_u128(1));
    const OTHER: UserId = UserId(Uuid::from_u128(2));

    fn folder() -> Folder {
        Folder {
            id: FolderId(Uuid::from_u128(7)),
            owner: OWNER,
            domain: DomainId::DEFAULT,
            name: FolderName::parse("data").expect("a name"),
            kind: FolderKind::General,
            state: FolderState::Ready,
            created_at: Timestamp::from_millis(0),
            used_at: None,
            trashed_at: None,
            counted: None,
            generation: 1,
        }
    }

    fn subject(user: UserId, grants: Vec<Grant>) -> Subject {
        Subject {
            user,
            grants,
            domain: DomainId::DEFAULT,
            scopes: None,
        }
    }

    #[test]
    fn files_are_the_owners_and_strangers_learn_nothing() {
        let folder = folder();
        let on_domain = |role| Grant {
            role,
            scope: GrantScope::Domain(DomainId::DEFAULT),
        };
        let rights = |user, grants| access(&subject(user, grants), &folder);
        assert_eq!(rights(OWNER, vec![]), Ok(FolderAccess::Own));
        let administrator = vec![on_domain(GrantRole::Administrator)];
        assert_eq!(rights(OTHER, administrator), Ok(FolderAccess::Manage));
        let auditor = vec![on_domain(GrantRole::Auditor)];
        assert_eq!(rights(OTHER, auditor.clone()), Ok(FolderAccess::See));
        let hidden = rights(OTHER, vec![]).expect_err("no right");
        assert_eq!(hidden.code, "folder.not-found");
        let needed = FolderAccess::Manage;
        let refusal = check_access(&subject(OTHER, auditor), &folder, needed).expect_err("sees");
        assert_eq!(refusal.code, "role.permission-missing");
        let reads = Subject {
            scopes: Some(vec![Permission::SessionsRead]),
            ..subject(OWNER, vec![])
        };
        assert_eq!(access(&reads, &folder), Ok(FolderAccess::See));
        let refused = check_files(&reads, &folder).expect_err("reads rows alone");
        assert_eq!(refused.code, "token.scope-missing");
        let administrator = subject(OTHER, vec![on_domain(GrantRole::Administrator)]);
        let refused = check_files(&administrator, &folder).expect_err("no owner");
        assert_eq!(refused.code, "folder.files-own");
        assert_eq!(check_files(&subject(OWNER, vec![]), &folder), Ok(()));
    }
}
