//! Which folders a session mounts, and where: what is a name of a folder, what is a place inside, and which places go
//! together. Never knows who may mount which.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::spec::hidden;
use crate::names::FolderId;
use crate::refusal::Refusal;
use crate::refusals;

/// Characters of a folder's name. Higher: a path inside is long. Lower: names of data sets do not fit.
pub const MAX_FOLDER_NAME: usize = 64;
/// Folders that a launch mounts. Higher: rows of sessions grow, which every pass reads. Lower: a session that works on
/// several data sets has too few.
pub const MAX_MOUNTS: usize = 8;
/// Folders whose names begin with a dot that a session mounts by itself, the first by name. Higher: each start of a user's
/// sessions takes longer. Lower: a user with a place for each of several tools finds some missing.
pub const MAX_DOT_FOLDERS: usize = 8;
/// Bytes of a path inside a session, or below a folder. Higher: as `MAX_MOUNTS`. Lower: nested trees cannot be named.
pub const MAX_MOUNT_PATH: usize = 255;
/// What every user's home folder is called.
pub const HOME: &str = "home";
/// Where a home folder appears inside; in the environment `host` it is the user's home.
pub const HOME_TARGET: &str = "/home/work";
/// Where the others appear when no place is named.
pub const FOLDERS_TARGET: &str = "/folders";
/// Directories at the root of a session's file system that no folder covers: the system's own programs and settings, what
/// the kernel shows, and what holds a session to its share of a GPU.
const KEPT_DIRECTORIES: [&str; 14] = [
    "bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "opt", "proc", "run", "sbin",
    "sys", "usr",
];

/// The first id of the machine that a volume may map user 1000 to. Lower: ids of the machine's own services.
pub const FIRST_MAPPED_ID: u32 = 1000;
/// The last one. Much higher: ids that sessions have by themselves.
pub const LAST_MAPPED_ID: u32 = 999_999_999;

/// The user and the group that user 1000 and group 1000 of a session are on a volume whose file system has no id-mapped
/// mounts, such as NFS. All others of the session have no rights there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappedUser {
    pub uid: u32,
    pub gid: u32,
}

impl MappedUser {
    /// Reads `UID` or `UID:GID`; a group that is left out has the number of the user.
    ///
    /// Errors: `volume.mapped-user`.
    pub fn parse(typed: &str) -> Result<Self, Refusal> {
        let number = |text: &str| {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
            let number = text.parse::<u32>().ok().filter(|_| is_plain);
            number.filter(|id| (FIRST_MAPPED_ID..=LAST_MAPPED_ID).contains(id))
        };
        let (user, group) = typed.split_once(':').unwrap_or((typed, typed));
        match (number(user), number(group)) {
            (Some(uid), Some(gid)) => Ok(Self { uid, gid }),
            _ => {
                let refusal = refusals::volume_mapped_user(FIRST_MAPPED_ID, LAST_MAPPED_ID);
                Err(refusal.at("/mapped_user"))
            }
        }
    }
}

impl fmt::Display for MappedUser {
    /// As `parse` reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

/// What a folder is called: 1 to 64 characters, no `/`, no `:`, none hidden and no blank at its ends. One with a dot at its
/// begin is mounted by itself, in the home of each session of its owner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct FolderName(String);

impl FolderName {
    /// Errors: `folder.name-invalid`.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let good = (1..=MAX_FOLDER_NAME).contains(&text.chars().count())
            && !matches!(text, "." | "..")
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

    /// Whether its owner's sessions mount it by themselves.
    pub fn begins_with_dot(&self) -> bool {
        self.0.starts_with('.')
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
            over_limit: false,
            by_itself: false,
            mapped: None,
            detached: false,
            stuck: Vec::new(),
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

    pub fn word(self) -> &'static str {
        match self {
            Self::Ro => "ro",
            Self::Rw => "rw",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        [Self::Ro, Self::Rw]
            .into_iter()
            .find(|access| access.word() == word)
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
    /// Read-only at this start, since what counts on the folder's limit took more than that: on a machine that holds no limit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub over_limit: bool,
    /// No launch asked for it: the home of the session's owner, or one of the dot-folders below it. Its place is below
    /// `/home/work`; the node takes the home of the container's own user instead.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_itself: bool,
    /// The user of its volume, where that has no id-mapped mounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapped: Option<MappedUser>,
    /// The folder's owner took it out of the session, which goes on, and starts again, without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub detached: bool,
    /// The containers, by index, that still have it though it was taken out; in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stuck: Vec<u32>,
}

impl FolderMount {
    /// Whether the session has the folder: it was not taken out, or its machine could not do so yet.
    pub fn is_there(&self) -> bool {
        !self.detached || !self.stuck.is_empty()
    }

    /// The home of a session's owner.
    pub fn of_home(folder: FolderId) -> Self {
        Self::own(folder, FolderName::home(), HOME_TARGET.to_owned())
    }

    /// A folder of the owner's whose name begins with a dot, at that name in the home.
    pub fn of_dot_folder(folder: FolderId, name: &FolderName) -> Self {
        Self::own(folder, name.clone(), format!("{HOME_TARGET}/{name}"))
    }

    fn own(folder: FolderId, name: FolderName, at: String) -> Self {
        Self {
            folder,
            name,
            subpath: String::new(),
            at,
            read_only: false,
            over_limit: false,
            by_itself: true,
            mapped: None,
            detached: false,
            stuck: Vec::new(),
        }
    }

    /// Whether the session only reads it.
    pub fn is_read_only(&self) -> bool {
        self.read_only || self.over_limit
    }
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

/// The mounts by place. None lies below another: what is in a folder, other sessions change at any moment, and a link
/// that one of them leaves at the inner place would lead the inner folder over a directory that no folder covers.
///
/// Errors: `mount.too-many`; `mount.target-twice`; `mount.target-nested`; `mount.mapped-users`.
pub fn mount_plan(mut mounts: Vec<FolderMount>) -> Result<Vec<FolderMount>, Refusal> {
    if mounts.len() > MAX_MOUNTS {
        return Err(refusals::mount_too_many(MAX_MOUNTS));
    }
    mounts.sort_by(|a, b| a.at.cmp(&b.at));
    let mut mapped = mounts.iter().filter(|mount| mount.mapped.is_some());
    if let Some(first) = mapped.next()
        && let Some(other) = mapped.find(|mount| mount.mapped != first.mapped)
    {
        return Err(refusals::mount_mapped_users(&first.at, &other.at));
    }
    for (number, outer) in mounts.iter().enumerate() {
        // A place sorts before all that begin with it.
        for inner in &mounts[number + 1..] {
            match inner.at.strip_prefix(&outer.at) {
                Some("") => return Err(refusals::mount_target_twice(&outer.at)),
                Some(rest) if rest.starts_with('/') => {
                    return Err(refusals::mount_target_nested(&inner.at, &outer.at));
                }
                _ => {}
            }
        }
    }
    Ok(mounts)
}

/// The mounts by place, with those of `own` beside what a launch asked for, and each of `own` that gives way with the mount
/// that it gives way to: one that the launch has at its place, above it or below it, one of the same folder, and one of a
/// volume that maps another user. Dot-folders lie below the home: the node makes their places there, and follows no link on
/// the way.
pub fn with_own(
    asked: Vec<FolderMount>,
    own: Vec<FolderMount>,
) -> (Vec<FolderMount>, Vec<(FolderMount, FolderMount)>) {
    let mut all = asked;
    let mut gone = Vec::new();
    let number = all.len();
    for mount in own {
        let covers = |other: &FolderMount| {
            other.folder == mount.folder
                || is_at_or_below(&other.at, &mount.at)
                || is_at_or_below(&mount.at, &other.at)
        };
        let maps = |other: &FolderMount| {
            let both = other.mapped.zip(mount.mapped);
            both.is_some_and(|(one, other)| one != other)
        };
        let mut asked = all.iter().take(number);
        let other = asked.find(|other| covers(other));
        match other.or_else(|| all.iter().find(|other| maps(other))) {
            Some(other) => gone.push((mount, other.clone())),
            None => all.push(mount),
        }
    }
    all.sort_by(|a, b| a.at.cmp(&b.at));
    (all, gone)
}

/// Whether one absolute path is another one, or lies below it.
pub fn is_at_or_below(path: &str, above: &str) -> bool {
    let rest = path.strip_prefix(above.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Where the home of a session's owner is mounted: at that of the container's user, and at `/home/work` where that user has
/// none, or one that no folder covers.
pub fn home_of(user_home: &str) -> &str {
    let home = user_home.trim_end_matches('/');
    match check_target(home) {
        Ok(()) => home,
        Err(_) => HOME_TARGET,
    }
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

    const ID: FolderId = FolderId(Uuid::from_u128(7));

    fn mount(text: &str) -> Result<FolderMount, Refusal> {
        let asked = RequestedMount::parse(text)?;
        let name = FolderName::parse(&asked.folder)?;
        asked.of(ID, &name)
    }

    #[test]
    fn what_is_no_name_of_a_folder_is_refused() {
        for good in [
            "data",
            "ImageNet 2012",
            "자료",
            "a.b",
            ".local",
            "...",
            &"x".repeat(64),
        ] {
            let name = FolderName::parse(good).expect(good);
            assert_eq!(name.as_str(), good);
            assert_eq!(name.begins_with_dot(), good.starts_with('.'));
        }
        let long = "x".repeat(65);
        for bad in [
            "",
            ".",
            "..",
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
            let refusal = asked.of(ID, &FolderName::home()).expect_err(bad);
            assert_eq!(refusal.code, "mount.target", "{bad:?}");
        }
        for bad in ["/..", "/a/../..", "/a//b", "/a/"] {
            let asked = RequestedMount {
                subpath: bad.to_owned(),
                ..RequestedMount::default()
            };
            let refusal = asked.of(ID, &FolderName::home()).expect_err(bad);
            assert_eq!(refusal.code, "mount.subpath", "{bad:?}");
        }
    }

    #[test]
    fn the_home_and_dot_folders_give_way_to_what_a_launch_asks_for() {
        let dotted = FolderName::parse(".local").expect("a name");
        let id = |number| FolderId(Uuid::from_u128(number));
        let own = || {
            vec![
                FolderMount::of_dot_folder(id(2), &dotted),
                FolderMount::of_home(id(1)),
            ]
        };
        let places = |asked: &[&str]| {
            let asked = asked.iter().map(|text| mount(text).expect(text)).collect();
            let all = with_own(asked, own()).0.into_iter();
            all.map(|mount| (mount.at, mount.by_itself))
                .collect::<Vec<_>>()
        };
        let told = |at: &str, by_itself| (at.to_owned(), by_itself);
        let (home, local) = (told("/home/work", true), told("/home/work/.local", true));
        assert_eq!(places(&[]), [home.clone(), local.clone()]);
        assert_eq!(
            places(&["data:/folders/data"]),
            [told("/folders/data", false), home, local.clone()]
        );
        // Beside the dot-folder, and below the home.
        let below = told("/home/work/data", false);
        assert_eq!(places(&["data:/home/work/data"]), [local, below]);
        assert_eq!(places(&["data:/home"]), [told("/home", false)]);
        let again = vec![FolderMount::of_home(ID)];
        let asked = vec![mount("home:/elsewhere").expect("a mount")];
        let (kept, gone) = with_own(asked, again);
        assert_eq!(
            (kept.len(), gone.len()),
            (1, 1),
            "the same folder stands once"
        );
        // A session is one user on volumes that map one.
        let mapped = |number, uid| FolderMount {
            mapped: Some(MappedUser { uid, gid: uid }),
            ..FolderMount::of_dot_folder(id(number), &dotted)
        };
        let elsewhere = |number, uid, at: &str| FolderMount {
            at: at.to_owned(),
            ..mapped(number, uid)
        };
        let (kept, gone) = with_own(vec![elsewhere(3, 5000, "/a")], vec![mapped(2, 5001)]);
        assert_eq!((kept.len(), gone.len()), (1, 1));
        let (kept, gone) = with_own(vec![elsewhere(3, 5000, "/a")], vec![mapped(2, 5000)]);
        assert_eq!((kept.len(), gone.len()), (2, 0));
        let two = vec![elsewhere(3, 5000, "/a"), elsewhere(4, 5001, "/b")];
        let refused = mount_plan(two).expect_err("two users");
        assert_eq!(refused.code, "mount.mapped-users");
    }

    #[test]
    fn a_mapped_user_is_none_of_the_machines_own_and_none_of_a_session() {
        let read = |text: &str| MappedUser::parse(text).map(|user| (user.uid, user.gid));
        assert_eq!(read("5000").ok(), Some((5000, 5000)));
        assert_eq!(read("5000:100000").ok(), Some((5000, 100_000)));
        let user = MappedUser::parse("1000:1001").expect("good");
        assert_eq!(MappedUser::parse(&user.to_string()).ok(), Some(user));
        for bad in [
            "",
            "0",
            "999",
            "5000:0",
            "5000:",
            "-1",
            "+5000",
            "05000",
            "1000000000",
            "a",
            "5000:5000:5000",
        ] {
            let refused = MappedUser::parse(bad).expect_err(bad);
            assert_eq!(refused.code, "volume.mapped-user", "{bad}");
        }
    }

    #[test]
    fn a_home_is_where_the_user_of_the_container_has_it() {
        for (user, home) in [
            ("/root", "/root"),
            ("/home/jovyan/", "/home/jovyan"),
            ("/", "/home/work"),
            ("", "/home/work"),
            ("/etc/x", "/home/work"),
            ("/a/../etc", "/home/work"),
            ("home", "/home/work"),
        ] {
            assert_eq!(home_of(user), home, "{user}");
        }
        assert!(is_at_or_below("/a/b", "/a") && is_at_or_below("/a", "/a/"));
        assert!(!is_at_or_below("/ab", "/a") && !is_at_or_below("/a", "/a/b"));
    }

    #[test]
    fn a_place_holds_one_folder_and_none_below_it() {
        let all = |texts: &[&str]| texts.iter().map(|text| mount(text).expect(text)).collect();
        let beside = ["other:/data/b", "data:/data-2", "home", "data:/data/a"];
        let plan = mount_plan(all(&beside)).expect("a plan");
        let places: Vec<&str> = plan.iter().map(|mount| mount.at.as_str()).collect();
        assert_eq!(places, ["/data-2", "/data/a", "/data/b", "/home/work"]);
        for (texts, code) in [
            (["data:/mnt", "other:/mnt"], "mount.target-twice"),
            (["data:/home/work/data", "home"], "mount.target-nested"),
            (["data:/a", "other:/a/b/c"], "mount.target-nested"),
        ] {
            assert_eq!(mount_plan(all(&texts)).expect_err(code).code, code);
        }
        // What sorts between two places does not part them.
        let between = mount_plan(all(&["data:/a", "home:/a-b", "other:/a/b"])).expect_err("nested");
        assert_eq!(between.code, "mount.target-nested");
        let names: Vec<String> = (0..=MAX_MOUNTS)
            .map(|number| format!("f{number}"))
            .collect();
        let many: Vec<&str> = names.iter().map(String::as_str).collect();
        let refusal = mount_plan(all(&many)).expect_err("too many");
        assert_eq!(refusal.code, "mount.too-many");
    }
}
