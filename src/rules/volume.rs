//! A volume: a mounted file system that folders lie on. Says what one is, which users may make folders there, and what its
//! state lets be done. Looks at no disk. The box's own disk is none: it is there without a row.

use serde::{Deserialize, Serialize};

use crate::grants::GrantScope;
use crate::names::{TenantName, VolumeId};
use crate::permissions::Subject;
use crate::refusal::Refusal;
use crate::refusals;
use crate::storage::{MAX_FOLDER_BYTES, MIN_FOLDER_BYTES};
use crate::tenancy::{DomainId, ProjectId};
use crate::units::{Bytes, Timestamp};
pub use crate::workload::mount::MappedUser;

/// What the box's own disk is called where volumes are named.
pub const DEFAULT_VOLUME: &str = "default";
/// Bytes of a volume's path. Higher: more than most file systems take. Lower: deep mount points have no place.
pub const MAX_VOLUME_PATH: usize = 1024;
/// Volumes of one box. Higher: each is looked at twice a minute. Lower: a site's shares have no place.
pub const MAX_VOLUMES: usize = 32;
/// Domains and projects that one volume names. Higher: its row grows, which each list reads. Lower: a site opens it to all.
pub const MAX_VOLUME_TENANTS: usize = 100;

/// What a look at a volume found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VolumeState {
    Ready,
    /// Nothing is mounted there, or something else is.
    Absent,
    /// It does not answer.
    Hung,
    ReadOnly,
}

impl VolumeState {
    pub const ALL: [Self; 4] = [Self::Ready, Self::Absent, Self::Hung, Self::ReadOnly];

    pub fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Absent => "absent",
            Self::Hung => "hung",
            Self::ReadOnly => "readonly",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.word() == word)
    }

    /// Refuses to open a folder there.
    ///
    /// Errors: `volume.absent`, `volume.hung`.
    pub fn refuse_reading(self) -> Result<(), Refusal> {
        match self {
            Self::Ready | Self::ReadOnly => Ok(()),
            Self::Absent => Err(refusals::volume_absent()),
            Self::Hung => Err(refusals::volume_hung()),
        }
    }

    /// Refuses to make a folder there.
    ///
    /// Errors: as `refuse_reading`; `volume.read-only`.
    pub fn refuse_writing(self) -> Result<(), Refusal> {
        self.refuse_reading()?;
        match self {
            Self::ReadOnly => Err(refusals::volume_read_only()),
            _ => Ok(()),
        }
    }
}

/// Whose folders may be made on a volume. With no domain and no project: those of all users.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeAccess {
    pub domains: Vec<DomainId>,
    pub projects: Vec<ProjectId>,
}

impl VolumeAccess {
    /// Whether a subject may make folders there: all may, or their home domain, or a project of theirs is named.
    pub fn admits(&self, subject: &Subject) -> bool {
        let is_open = self.domains.is_empty() && self.projects.is_empty();
        let is_member = |project: &ProjectId| {
            let scope = GrantScope::Project(*project);
            subject.grants.iter().any(|grant| grant.scope == scope)
        };
        is_open || self.domains.contains(&subject.domain) || self.projects.iter().any(is_member)
    }
}

/// One volume as its row has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its marker holds it, too.
    pub id: VolumeId,
    /// No other volume has it.
    pub name: TenantName,
    /// The directory that it is mounted on.
    pub path: String,
    pub access: VolumeAccess,
    /// None: sessions mount its folders with their ids mapped.
    pub mapped: Option<MappedUser>,
    /// What each folder that is made there may take by itself; None: no limit until an administrator gives it one.
    pub folder_limit: Option<Bytes>,
    pub created_at: Timestamp,
    pub generation: u64,
}

/// The name of a new volume.
///
/// Errors: `tenant.name-invalid`; `volume.name-taken` for that of the box's own disk.
pub fn volume_name(typed: &str) -> Result<TenantName, Refusal> {
    let name = TenantName::parse(typed)?;
    match name.as_str() == DEFAULT_VOLUME {
        true => Err(refusals::volume_name_taken(name).at("/name")),
        false => Ok(name),
    }
}

/// The limit of new folders on a volume, as it was asked for; 0 is none.
///
/// Errors: `folder.limit-size`.
pub fn usual_folder_limit(bytes: u64) -> Result<Option<Bytes>, Refusal> {
    let (least, most) = (MIN_FOLDER_BYTES, MAX_FOLDER_BYTES);
    match bytes {
        0 => Ok(None),
        bytes if (least.0..=most.0).contains(&bytes) => Ok(Some(Bytes(bytes))),
        _ => Err(refusals::folder_limit_size(least, most).at("/folder_limit")),
    }
}

/// The directory of a volume, as it was typed: absolute, with no `.` and no `..` in it and nothing hidden, and none of the
/// kernel's own.
///
/// Errors: `volume.path-invalid`.
pub fn volume_path(typed: &str) -> Result<String, Refusal> {
    let path = typed.trim_end_matches('/');
    let parts = path.split('/').skip(1);
    let is_plain = |part: &str| !matches!(part, "" | "." | "..");
    let is_kernels = matches!(path.split('/').nth(1), Some("proc" | "sys" | "dev" | "run"));
    let good = path.starts_with('/')
        && path.len() <= MAX_VOLUME_PATH
        && parts.into_iter().all(is_plain)
        && !is_kernels
        && !path.chars().any(char::is_control);
    match good {
        true => Ok(path.to_owned()),
        false => Err(refusals::volume_path_invalid().at("/path")),
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::grants::{Grant, GrantRole};
    use crate::names::UserId;

    fn subject(grants: Vec<Grant>) -> Subject {
        Subject {
            user: UserId(Uuid::from_u128(1)),
            grants,
            domain: DomainId(Uuid::from_u128(2)),
            scopes: None,
        }
    }

    #[test]
    fn a_volume_admits_all_or_whom_it_names() {
        let plain = subject(Vec::new());
        assert!(VolumeAccess::default().admits(&plain));
        let of_domain = |id| VolumeAccess {
            domains: vec![DomainId(Uuid::from_u128(id))],
            projects: Vec::new(),
        };
        assert!(of_domain(2).admits(&plain));
        assert!(!of_domain(3).admits(&plain));
        let project = ProjectId(Uuid::from_u128(4));
        let of_project = VolumeAccess {
            domains: Vec::new(),
            projects: vec![project],
        };
        assert!(!of_project.admits(&plain));
        let member = subject(vec![Grant {
            role: GrantRole::Member,
            scope: GrantScope::Project(project),
        }]);
        assert!(of_project.admits(&member));
    }

    #[test]
    fn a_path_is_absolute_and_plain() {
        assert_eq!(volume_path("/mnt/big/").expect("good"), "/mnt/big");
        let long = format!("/{}", "a".repeat(MAX_VOLUME_PATH));
        for bad in [
            "",
            "/",
            "mnt",
            "/mnt/../etc",
            "/mnt//a",
            "/mnt/.",
            "/proc/1",
            "/dev/shm",
            "/a\nb",
            &long,
        ] {
            let refused = volume_path(bad).expect_err(bad);
            assert_eq!(refused.code, "volume.path-invalid");
        }
    }

    #[test]
    fn the_name_of_the_own_disk_is_taken() {
        assert_eq!(volume_name("big").expect("good").as_str(), "big");
        let refused = volume_name(DEFAULT_VOLUME).expect_err("taken");
        assert_eq!(refused.code, "volume.name-taken");
    }

    #[test]
    fn a_state_refuses_what_it_cannot_give() {
        let told = |done: Result<(), Refusal>| done.err().map(|refusal| refusal.code);
        for (state, reading, writing) in [
            (VolumeState::Ready, None, None),
            (
                VolumeState::Absent,
                Some("volume.absent"),
                Some("volume.absent"),
            ),
            (VolumeState::Hung, Some("volume.hung"), Some("volume.hung")),
            (VolumeState::ReadOnly, None, Some("volume.read-only")),
        ] {
            assert_eq!(told(state.refuse_reading()).as_deref(), reading);
            assert_eq!(told(state.refuse_writing()).as_deref(), writing);
            assert_eq!(VolumeState::parse(state.word()), Some(state));
        }
    }

    #[test]
    fn the_limit_of_new_folders_is_one_that_a_folder_may_have_or_none() {
        assert_eq!(usual_folder_limit(0), Ok(None));
        for bytes in [MIN_FOLDER_BYTES, MAX_FOLDER_BYTES] {
            assert_eq!(usual_folder_limit(bytes.0), Ok(Some(bytes)));
        }
        for bytes in [1, MIN_FOLDER_BYTES.0 - 1, MAX_FOLDER_BYTES.0 + 1] {
            let refused = usual_folder_limit(bytes).expect_err("no such limit");
            assert_eq!(refused.code, "folder.limit-size", "{bytes}");
            assert_eq!(refused.pointer.as_deref(), Some("/folder_limit"));
        }
    }
}
