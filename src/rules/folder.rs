//! A folder: a directory that outlives sessions. Says what is a name, who may do what with a folder, and where a session may
//! mount one. Never looks anything up.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::names::{FolderId, UserId};
use crate::permissions::{Permission, Subject, may};
use crate::refusal::Refusal;
use crate::refusals;
use crate::session::hidden;
use crate::tenancy::{DomainId, Scope};
use crate::units::Timestamp;

/// Characters of a folder's name. Higher: a path inside is long. Lower: names of data sets do not fit.
pub const MAX_FOLDER_NAME: usize = 64;
/// Folders that one session mounts. Higher: rows of sessions grow, which every pass reads. Lower: a session that works on
/// several data sets has too few.
pub const MAX_MOUNTS: usize = 8;
/// Bytes of a path inside a session, or below a folder. Higher: as `MAX_MOUNTS`. Lower: nested trees cannot be named.
pub const MAX_MOUNT_PATH: usize = 255;
/// Days that a folder lies in the trash. Higher: it takes disk for longer. Lower: a mistake is noticed too late.
pub const TRASH_DAYS: u64 = 30;
/// What every user's home folder is called.
pub const HOME: &str = "home";
/// Where a home folder appears inside; in the environment `host` it is the user's home.
const HOME_TARGET: &str = "/home/work";
/// Where the others appear when no place is named.
const FOLDERS_TARGET: &str = "/folders";
/// Directories at the root of a session's file system that no folder covers: the system's own programs and settings, what
/// the kernel shows, and what holds a session to its share of a GPU.
const KEPT_DIRECTORIES: [&str; 14] = [
    "bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "opt", "proc", "run", "sbin",
    "sys", "usr",
];

/// What a folder is called: 1 to 64 characters, no `/`, no `:`, none hidden, and no dot or blank at its begin.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct FolderName(String);

impl FolderName {
    /// Errors: `folder.name-invalid`.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let good = (1..=MAX_FOLDER_NAME).contains(&text.chars().count())
            && !text.starts_with('.')
            && text.trim() == text
            && !text.chars().any(|c| hidden(c) || matches!(c, '/' | ':'));
        match good {
            true => Ok(Self(text.to_owned())),
            false => Err(refusals::folder_name_invalid(MAX_FOLDER_NAME).at("/name")),
        }
    }

    /// What every user's home folder is called.
    pub fn home() -> Self {
        Self(HOME.to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FolderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for FolderName {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

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
    /// When a session was launched that mounts it, last.
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

/// A mount as a launch asks for it; nothing of it is checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestedMount {
    /// Name or id of the folder.
    pub folder: String,
    /// What of the folder, as a path that begins with `/`; empty: all of it.
    pub subpath: String,
    /// Where inside; None: `/home/work` for the home folder, `/folders/NAME` for others.
    pub at: Option<String>,
    pub read_only: bool,
}

impl RequestedMount {
    /// Reads `FOLDER[:/SUBPATH][:/PLACE][:ro]`: of two paths the first is below the folder, one alone is the place inside.
    ///
    /// Errors: `mount.syntax`.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let wrong = || refusals::mount_syntax();
        let mut parts = text.trim().split(':').map(str::trim);
        let folder = parts.next().filter(|name| !name.is_empty());
        let mut mount = Self {
            folder: folder.ok_or_else(wrong)?.to_owned(),
            ..Self::default()
        };
        let mut rest: Vec<&str> = parts.collect();
        match rest.last() {
            Some(&"ro") => {
                mount.read_only = true;
                rest.pop();
            }
            Some(&"rw") => {
                rest.pop();
            }
            _ => {}
        }
        if !rest.iter().all(|path| path.starts_with('/')) {
            return Err(wrong());
        }
        match rest[..] {
            [] => {}
            [at] => mount.at = Some(at.to_owned()),
            [subpath, at] => {
                subpath.clone_into(&mut mount.subpath);
                mount.at = Some(at.to_owned());
            }
            _ => return Err(wrong()),
        }
        Ok(mount)
    }

    /// The same with its paths checked, of the folder that was found for it.
    ///
    /// Errors: `mount.subpath`, `mount.target`.
    pub fn of(&self, folder: FolderId, name: &FolderName) -> Result<FolderMount, Refusal> {
        let at = match self.at.as_deref().map(str::trim) {
            Some(at) if !at.is_empty() => at.to_owned(),
            _ if name.as_str() == HOME => HOME_TARGET.to_owned(),
            _ => format!("{FOLDERS_TARGET}/{name}"),
        };
        check_target(&at)?;
        let typed = self.subpath.trim();
        let subpath = typed.strip_prefix('/').unwrap_or(typed);
        if !subpath.is_empty() && !is_plain_path(subpath) {
            return Err(refusals::mount_subpath(MAX_MOUNT_PATH));
        }
        Ok(FolderMount {
            folder,
            name: name.clone(),
            subpath: subpath.to_owned(),
            at,
            read_only: self.read_only,
        })
    }
}

/// What a session may do with the files of a folder that it mounts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MountAccess {
    Ro,
    #[default]
    Rw,
}

impl MountAccess {
    pub fn of(read_only: bool) -> Self {
        match read_only {
            true => Self::Ro,
            false => Self::Rw,
        }
    }

    pub fn is_read_only(self) -> bool {
        self == Self::Ro
    }
}

/// A folder at a place inside a session, as the session's row keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderMount {
    pub folder: FolderId,
    /// What the folder was called at the launch.
    pub name: FolderName,
    /// What of the folder, without a leading slash; empty: all of it.
    pub subpath: String,
    /// Absolute.
    pub at: String,
    pub read_only: bool,
}

impl fmt::Display for FolderMount {
    /// As `RequestedMount::parse` reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        if !self.subpath.is_empty() {
            write!(f, ":/{}", self.subpath)?;
        }
        write!(f, ":{}", self.at)?;
        match self.read_only {
            true => write!(f, ":ro"),
            false => Ok(()),
        }
    }
}

/// The mounts in the order in which they are made: what lies below another comes after it.
///
/// Errors: `mount.too-many`; `mount.target-twice`.
pub fn mount_plan(mut mounts: Vec<FolderMount>) -> Result<Vec<FolderMount>, Refusal> {
    if mounts.len() > MAX_MOUNTS {
        return Err(refusals::mount_too_many(MAX_MOUNTS));
    }
    mounts.sort_by(|a, b| a.at.cmp(&b.at));
    let mut pairs = mounts.windows(2);
    if let Some(pair) = pairs.find(|pair| pair[0].at == pair[1].at) {
        return Err(refusals::mount_target_twice(&pair[0].at));
    }
    Ok(mounts)
}

/// Refuses a place inside that is no plain absolute path, or that the system needs.
fn check_target(at: &str) -> Result<(), Refusal> {
    let inside = at.strip_prefix('/').filter(|path| is_plain_path(path));
    let first = inside.and_then(|path| path.split('/').next());
    match first {
        Some(first) if !KEPT_DIRECTORIES.contains(&first) => Ok(()),
        _ => Err(refusals::mount_target(MAX_MOUNT_PATH)),
    }
}

/// Whether a relative path names one place alone: no empty part, no `.` and `..`, nothing hidden.
fn is_plain_path(path: &str) -> bool {
    let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    path.len() < MAX_MOUNT_PATH && !path.chars().any(hidden) && path.split('/').all(plain)
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

    fn mount(text: &str) -> Result<FolderMount, Refusal> {
        let asked = RequestedMount::parse(text)?;
        let name = FolderName::parse(&asked.folder)?;
        asked.of(FolderId(Uuid::from_u128(7)), &name)
    }

    #[test]
    fn what_is_no_name_of_a_folder_is_refused() {
        for good in ["data", "ImageNet 2012", "자료", "a.b", &"x".repeat(64)] {
            assert_eq!(FolderName::parse(good).expect(good).as_str(), good);
        }
        let long = "x".repeat(65);
        for bad in [
            "",
            ".",
            "..",
            ".local",
            "a/b",
            "a:b",
            "a\nb",
            " a",
            "a ",
            "a\u{202e}b",
            &long,
        ] {
            let refusal = FolderName::parse(bad).expect_err(bad);
            assert_eq!(refusal.code, "folder.name-invalid", "{bad:?}");
        }
    }

    #[test]
    fn a_mount_is_read_as_it_is_shown() {
        for (typed, shown) in [
            ("home", "home:/home/work"),
            ("data", "data:/folders/data"),
            ("data:/mnt", "data:/mnt"),
            ("data:/mnt:ro", "data:/mnt:ro"),
            ("data:/a/b:/mnt:rw", "data:/a/b:/mnt"),
            ("data:/a/b:/mnt:ro", "data:/a/b:/mnt:ro"),
        ] {
            let read = mount(typed).expect(typed);
            assert_eq!(read.to_string(), shown);
            assert_eq!(mount(shown).expect(shown), read);
        }
        for bad in ["", ":/mnt", "data:mnt", "data:/a:/b:/c", "data:/mnt:rx"] {
            assert_eq!(mount(bad).expect_err(bad).code, "mount.syntax", "{bad:?}");
        }
    }

    #[test]
    fn no_folder_covers_what_the_system_needs() {
        let long = format!("/{}", "x".repeat(255));
        for bad in [
            "/",
            "/etc",
            "/etc/ssl",
            "/proc",
            "/sys/fs",
            "/dev/shm",
            "/run/fardel",
            "/usr/lib/fardel",
            "/a/../etc",
            "/a//b",
            "/a/",
            "/./a",
            "/a\u{0}b",
            &long,
        ] {
            let asked = RequestedMount {
                at: Some(bad.to_owned()),
                ..RequestedMount::default()
            };
            let refusal = asked.of(folder().id, &folder().name).expect_err(bad);
            assert_eq!(refusal.code, "mount.target", "{bad:?}");
        }
        for bad in ["/..", "/a/../..", "/a//b", "/a/"] {
            let asked = RequestedMount {
                subpath: bad.to_owned(),
                ..RequestedMount::default()
            };
            let refusal = asked.of(folder().id, &folder().name).expect_err(bad);
            assert_eq!(refusal.code, "mount.subpath", "{bad:?}");
        }
    }

    #[test]
    fn a_place_holds_one_folder_and_outer_ones_come_first() {
        let all = |texts: &[&str]| texts.iter().map(|text| mount(text).expect(text)).collect();
        let plan = mount_plan(all(&["data:/home/work/data", "home"])).expect("a plan");
        let places: Vec<&str> = plan.iter().map(|mount| mount.at.as_str()).collect();
        assert_eq!(places, ["/home/work", "/home/work/data"]);
        let twice = mount_plan(all(&["data:/mnt", "other:/mnt"])).expect_err("one place");
        assert_eq!(twice.code, "mount.target-twice");
        let names: Vec<String> = (0..=MAX_MOUNTS)
            .map(|number| format!("f{number}"))
            .collect();
        let many: Vec<&str> = names.iter().map(String::as_str).collect();
        let refusal = mount_plan(all(&many)).expect_err("too many");
        assert_eq!(refusal.code, "mount.too-many");
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
    }
}
