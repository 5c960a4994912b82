//! Lays the ground a container stands on: a mount namespace of the shim's own, id-mapped views of
//! shared layers, and an overlay above them.
//!
//! Everything is mounted in the shim's private namespace, so that nothing is left when shim and
//! container are gone, whatever killed them. Never changes the owner or content of a layer or of a
//! mounted folder; only the session's own upper directories belong to its ids.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use store::folders::open_mounted;

use super::mounts::{let_go, mount_points};
use super::order::{ContainerSpec, IdRange, MountOrder};
use crate::gpu::{DeviceOrder, FileUse};

/// A step of laying the ground that did not work.
#[derive(Debug, thiserror::Error)]
pub(super) enum GroundError {
    #[error("could not {what}")]
    Step {
        what: &'static str,
        source: io::Error,
    },
    #[error("could not {what} {path}")]
    Path {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error(
        "{path} lies on a file system without id-mapped mounts; move it to ext4, xfs, btrfs or tmpfs"
    )]
    NoIdMap { path: PathBuf, source: io::Error },
    #[error("the environment has no layers")]
    NoLayers,
    #[error("no place for the stage: none of {0} is a free directory")]
    NoStage(&'static str),
}

type Result<T> = std::result::Result<T, GroundError>;

fn step(what: &'static str) -> impl FnOnce(io::Error) -> GroundError {
    move |source| GroundError::Step { what, source }
}

fn at(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> GroundError {
    let path = path.to_owned();
    move |source| GroundError::Path { what, path, source }
}

/// Directories that exist on every machine and hold nothing a shim needs. One of them is covered,
/// in the shim's own namespace only, so that paths are short, the same everywhere, reachable for
/// the container's ids, and say nothing about this machine.
const STAGES: [&str; 4] = ["/mnt", "/media", "/srv", "/opt"];

/// The covered place where everything of one container is mounted.
#[derive(Clone, Debug)]
pub(super) struct RootStage {
    place: PathBuf,
}

impl RootStage {
    /// Enters a mount namespace of our own and covers one directory in it. `ours` are directories
    /// that must stay visible.
    pub(super) fn enter(ours: &[&Path]) -> Result<Self> {
        unshare(CloneFlags::CLONE_NEWNS)
            .map_err(io::Error::from)
            .map_err(step("make a mount namespace"))?;
        mount(
            None::<&str>,
            "/",
            None::<&str>,
            MsFlags::MS_REC | MsFlags::MS_PRIVATE,
            None::<&str>,
        )
        .map_err(io::Error::from)
        .map_err(step("keep mounts to ourselves"))?;
        let free = |place: &Path| {
            place.is_dir()
                && !place.is_symlink()
                && !ours.iter().any(|path| path.starts_with(place))
        };
        let mounted = mount_points().map_err(step("list what is mounted"))?;
        let on_it = |place: &Path| mounted.iter().any(|each| each.at == place);
        let places = || STAGES.iter().map(PathBuf::from).filter(|place| free(place));
        // A medium that the stage covers could be released by no process while the session lives.
        let place = places()
            .find(|place| !on_it(place))
            .or_else(|| places().next())
            .ok_or(GroundError::NoStage("/mnt, /media, /srv, /opt"))?;
        for below in mounted.iter().rev() {
            if below.at.starts_with(&place) && below.at != place {
                let_go(&below.at);
            }
        }
        mount(
            Some("stage"),
            &place,
            Some("tmpfs"),
            MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
            Some("mode=0755,size=16m"),
        )
        .map_err(io::Error::from)
        .map_err(at("cover", &place))?;
        Ok(Self { place })
    }

    /// Lets go of every mount of the machine that a shim does not need, once the container has its own:
    /// a medium that is unmounted outside is then free, and not held by us until the session ends.
    /// `ours` are what the shim goes on reading and writing. Costs a read and a call for each.
    pub(super) fn leave_mounts(&self, ours: &[&Path]) -> io::Result<()> {
        let mounted = mount_points()?;
        let proc = Path::new("/proc");
        let groups = mounted
            .iter()
            .filter(|each| each.kind.starts_with("cgroup"));
        let needed: Vec<&Path> = groups
            .map(|each| each.at.as_path())
            .chain(ours.iter().copied())
            .chain([proc, &self.place])
            .collect();
        let mut unneeded: Vec<&Path> = mounted
            .iter()
            .map(|each| each.at.as_path())
            .filter(|at| !needed.iter().any(|path| path.starts_with(at)))
            .filter(|at| !at.starts_with(&self.place))
            .collect();
        // Outermost first: what lies below a mount goes with it, and needs no call of its own.
        unneeded.sort();
        let mut gone: Option<&Path> = None;
        for at in unneeded {
            // Another mount at the same place was covered, and stands there by itself.
            let went_along = gone.is_some_and(|gone| at != gone && at.starts_with(gone));
            if !went_along && let_go(at) {
                gone = Some(at);
            }
        }
        Ok(())
    }

    /// The container's root file system once it is mounted.
    pub(super) fn root(&self) -> PathBuf {
        self.place.join("root")
    }

    /// A path on the stage.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.place.join(name)
    }

    fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.place.join(name);
        fs::create_dir_all(&path).map_err(at("create", &path))?;
        Ok(path)
    }

    /// A small file on the stage, readable by everybody.
    pub(super) fn write_file(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.place.join(name);
        if let Some(above) = path.parent() {
            fs::create_dir_all(above).map_err(at("create", above))?;
        }
        fs::write(&path, text).map_err(at("write", &path))?;
        Ok(path)
    }

    /// Shows a directory of the host on the stage with the session's ids: what root owns outside,
    /// the session's root owns inside.
    pub(super) fn show(
        &self,
        name: &str,
        from: &Path,
        ids: BorrowedFd<'_>,
        read_only: bool,
    ) -> Result<PathBuf> {
        self.show_changed(name, from, |tree| {
            map_ids(tree, ids, read_only).map_err(|source| GroundError::NoIdMap {
                path: from.to_owned(),
                source,
            })
        })
    }

    /// Shows what a mount of an order names on the stage, with the session's ids as `show` does. A path below it is resolved
    /// by the kernel from the directory that is open, so no link that another session makes meanwhile leads out of it.
    pub(super) fn show_mount(
        &self,
        name: &str,
        mount: &MountOrder,
        ids: BorrowedFd<'_>,
    ) -> Result<PathBuf> {
        let tree = mounted_tree(mount, ids)?;
        self.put(name, tree.as_fd())
    }

    /// Shows the same on a directory of the stage that is open.
    pub(super) fn cover(
        &self,
        mount: &MountOrder,
        ids: BorrowedFd<'_>,
        place: BorrowedFd<'_>,
    ) -> Result<()> {
        let tree = mounted_tree(mount, ids)?;
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(tree.as_fd(), "", place, "", flags)
            .map_err(io::Error::from)
            .map_err(at("mount on", Path::new(&mount.at)))
    }

    /// Whether a path of the finished root leads through a link: what is mounted there would cover another place than its
    /// order names. What is missing of the path is no link, and is made as directories.
    pub(super) fn leads_elsewhere(&self, at_path: &str) -> Result<bool> {
        let root = open_root(&self.root())?;
        let resolve =
            ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        // Without `NOFOLLOW`: with it the kernel would open a link at the end of the path itself.
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let name = at_path.trim_start_matches('/');
        let found = openat2(&root, name, flags, Mode::empty(), resolve);
        Ok(matches!(found, Err(Errno::LOOP)))
    }

    /// Whether a directory can be mounted at a path of the finished root: no link and no file is on the way, nor at its end.
    /// What is missing of it is made.
    pub(super) fn takes_directory(&self, at_path: &str) -> Result<bool> {
        let root = open_root(&self.root())?;
        let resolve =
            ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let name = at_path.trim_start_matches('/');
        let found = openat2(&root, name, flags, Mode::empty(), resolve);
        Ok(matches!(found, Ok(_) | Err(Errno::NOENT)))
    }

    /// Shows a directory of the host on the stage, read-only and with the ids of `nobody`: what belongs to the
    /// machine's own users belongs inside to `nobody`, and root inside may there what all users may.
    pub(super) fn show_as_nobodys(&self, name: &str, from: &Path) -> Result<PathBuf> {
        self.show_changed(name, from, |tree| {
            restrict(tree, FileUse::Run).map_err(at("protect", from))
        })
    }

    /// Mounts a copy of the tree at `from` on the stage once `change` has set what may be done with it.
    fn show_changed(
        &self,
        name: &str,
        from: &Path,
        change: impl FnOnce(BorrowedFd<'_>) -> Result<()>,
    ) -> Result<PathBuf> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = open_tree(CWD, from, flags)
            .map_err(io::Error::from)
            .map_err(at("open", from))?;
        change(tree.as_fd())?;
        self.put(name, tree.as_fd())
    }

    /// Mounts a tree that is open on the stage.
    fn put(&self, name: &str, tree: BorrowedFd<'_>) -> Result<PathBuf> {
        let place = self.directory(name)?;
        move_mount(
            tree,
            "",
            CWD,
            &place,
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
        )
        .map_err(io::Error::from)
        .map_err(at("mount", &place))?;
        Ok(place)
    }

    /// Makes nodes of devices that the container is granted, each for everybody in it, and gives their
    /// places on the stage. Whether they open is the fence's affair.
    pub(super) fn nodes(&self, devices: &[DeviceOrder]) -> Result<Vec<PathBuf>> {
        if devices.is_empty() {
            return Ok(Vec::new());
        }
        let folder = self.directory("dev")?;
        // A file system of its own: the stage takes no devices.
        mount(
            Some("dev"),
            &folder,
            Some("tmpfs"),
            MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC,
            Some("mode=0755,size=64k"),
        )
        .map_err(io::Error::from)
        .map_err(at("cover", &folder))?;
        let mut made = Vec::new();
        for (number, device) in devices.iter().enumerate() {
            let node = folder.join(number.to_string());
            let mode = Mode::from_raw_mode(0o666);
            let numbers = rustix::fs::makedev(device.major, device.minor);
            rustix::fs::mknodat(CWD, &node, FileType::CharacterDevice, mode, numbers)
                .and_then(|()| rustix::fs::chmod(&node, mode))
                .map_err(io::Error::from)
                .map_err(at("make the device", Path::new(&device.at)))?;
            made.push(node);
        }
        Ok(made)
    }

    /// Shows a file at a path of the finished root; an image that has no such file gets an empty one to
    /// mount it on. Links are followed inside only. Says whether it is shown: it is not where the
    /// image has something there that is no file.
    pub(super) fn show_file(&self, file: &Path, at_path: &str, for_what: FileUse) -> Result<bool> {
        let root = open_root(&self.root())?;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let name = at_path.trim_start_matches('/');
        make_directories(root.as_fd(), name);
        let make = OFlags::RDONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NONBLOCK;
        // Made where it is missing: most images bring no such file of their own.
        drop(openat2(
            &root,
            name,
            make,
            Mode::from_raw_mode(0o644),
            resolve,
        ));
        let Ok(target) = openat2(
            &root,
            name,
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
            resolve,
        ) else {
            return Ok(false);
        };
        let tree = open_tree(
            CWD,
            file,
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC,
        )
        .map_err(io::Error::from)
        .map_err(at("open", file))?;
        restrict(tree.as_fd(), for_what).map_err(at("protect", file))?;
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(tree.as_fd(), "", target.as_fd(), "", flags)
            .map_err(io::Error::from)
            .map_err(at("mount on", Path::new(at_path)))?;
        Ok(true)
    }

    /// Mounts an overlay: `lower` on the stage (topmost first), own `upper` and `work` below `own`.
    pub(super) fn overlay(
        &self,
        target: &Path,
        lower: &[PathBuf],
        own: &Path,
        prefix: &str,
    ) -> Result<()> {
        let names: Vec<String> = lower
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let own = own.display();
        // A session's own layer dies with it: no need to wait for the disk.
        let options = format!(
            "lowerdir={},upperdir={own}/{prefix}upper,workdir={own}/{prefix}work,volatile",
            names.join(":")
        );
        mount(
            Some("root"),
            target,
            Some("overlay"),
            MsFlags::empty(),
            Some(options.as_str()),
        )
        .map_err(io::Error::from)
        .map_err(at("mount the overlay on", target))
    }

    /// Shows the session's own directory on the stage, so that no path of this machine is in any mount option.
    pub(super) fn bind(&self, name: &str, from: &Path) -> Result<PathBuf> {
        let place = self.directory(name)?;
        mount(
            Some(from),
            &place,
            None::<&str>,
            MsFlags::MS_BIND,
            None::<&str>,
        )
        .map_err(io::Error::from)
        .map_err(at("bind", from))?;
        Ok(place)
    }
}

/// What a mount of an order names, with the session's ids, mounted nowhere yet.
fn mounted_tree(mount: &MountOrder, ids: BorrowedFd<'_>) -> Result<OwnedFd> {
    let from = &mount.from;
    let opened = open_mounted(from, &mount.subpath).map_err(at("open", from))?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(&opened, "", flags)
        .map_err(io::Error::from)
        .map_err(at("open", from))?;
    if mount.unmapped {
        keep_ids(tree.as_fd(), mount.read_only).map_err(at("protect", from))?;
        return Ok(tree);
    }
    map_ids(tree.as_fd(), ids, mount.read_only).map_err(|source| GroundError::NoIdMap {
        path: from.clone(),
        source,
    })?;
    Ok(tree)
}

fn open_root(root: &Path) -> Result<OwnedFd> {
    rustix::fs::open(
        root,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(io::Error::from)
    .map_err(at("open", root))
}

/// Makes the directories above a path that are missing below `root`; what cannot be made shows when the
/// path itself is opened.
fn make_directories(root: BorrowedFd<'_>, path: &str) {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |path: &str| openat2(root, path, folder, Mode::empty(), resolve);
    for (end, _) in path.match_indices('/') {
        let (path, above) = (&path[..end], path[..end].rfind('/'));
        if open(path).is_ok() {
            continue;
        }
        let (above, name) = above.map_or((".", path), |at| (&path[..at], &path[at + 1..]));
        if let Ok(above) = open(above) {
            let _ = rustix::fs::mkdirat(&above, name, Mode::from_raw_mode(0o755));
        }
    }
}

/// Mounts the whole root file system of an order; `own` is the session's directory on disk.
pub(super) fn mount_root(
    stage: &RootStage,
    order: &ContainerSpec,
    host: Option<&HostGround>,
    own: &Path,
    ids: BorrowedFd<'_>,
) -> Result<()> {
    let mut lower = Vec::new();
    if let Some(host) = host {
        lower.push(stage.show("l0", &host.skeleton, ids, true)?);
    }
    for (number, layer) in order.root.layers.iter().enumerate() {
        lower.push(stage.show(&format!("l{}", number + 1), layer, ids, true)?);
    }
    if lower.is_empty() {
        return Err(GroundError::NoLayers);
    }
    lower.reverse();
    prepare_own(own, "", order.ids)?;
    if host.is_some() {
        let home = own.join("upper/home");
        own_directory(&home, order.ids, 0, 0o755)?;
        own_directory(&home.join("work"), order.ids, HOST_USER_ID, 0o755)?;
    }
    let own_shown = stage.bind("own", own)?;
    let root = stage.directory("root")?;
    stage.overlay(&root, &lower, &own_shown, "")?;
    if let Some(host) = host {
        for name in &host.trees {
            let shown = stage.show_as_nobodys(&format!("h-{name}"), &Path::new("/").join(name))?;
            let prefix = format!("{name}-");
            prepare_own(own, &prefix, order.ids)?;
            stage.overlay(&root.join(name), &[shown], &own_shown, &prefix)?;
        }
        // Below the machine's own programs no process inside may make a directory, so a folder's place there
        // is made here.
        let inside = open_root(&root)?;
        for mount in &order.mounts {
            let place = mount.at.trim_matches('/');
            let first = place.split('/').next().unwrap_or_default();
            if host.trees.iter().any(|name| name == first) || root.join(first).is_symlink() {
                make_directories(inside.as_fd(), &format!("{place}/"));
            }
        }
    }
    Ok(())
}

/// The machine's own programs, as `host_environment` prepared them.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct HostGround {
    /// A small root directory with links, mount points and the harmless part of `/etc`.
    pub skeleton: PathBuf,
    /// Names of directories at the root of the machine that are shown whole: `usr`, and `lib` and
    /// its kin where they are not links into `usr`.
    pub trees: Vec<String>,
}

/// User and group number of `work`, who runs things in the host environment.
pub(super) const HOST_USER_ID: u32 = 1000;

fn prepare_own(own: &Path, prefix: &str, ids: IdRange) -> Result<()> {
    for name in ["upper", "work"] {
        own_directory(&own.join(format!("{prefix}{name}")), ids, 0, 0o755)?;
    }
    Ok(())
}

/// `owner`: user and group of the container.
fn own_directory(path: &Path, ids: IdRange, owner: u32, mode: u32) -> Result<()> {
    match fs::DirBuilder::new().mode(mode).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        Err(error) => return Err(at("create", path)(error)),
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(at("set the mode of", path))?;
    let (user, group) = (ids.user(owner), ids.group(owner));
    chown(path, Some(user), Some(group)).map_err(at("give to the session", path))
}

/// The kernel's `struct mount_attr`.
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

fn map_ids(tree: BorrowedFd<'_>, ids: BorrowedFd<'_>, read_only: bool) -> io::Result<()> {
    fence(tree, Some(ids), read_only)
}

/// What `map_ids` sets, with the ids that the file system has: those of the container's own have no rights there.
fn keep_ids(tree: BorrowedFd<'_>, read_only: bool) -> io::Result<()> {
    fence(tree, None, read_only)
}

fn fence(tree: BorrowedFd<'_>, ids: Option<BorrowedFd<'_>>, read_only: bool) -> io::Result<()> {
    let mut set = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    if ids.is_some() {
        set |= libc::MOUNT_ATTR_IDMAP;
    }
    if read_only {
        set |= libc::MOUNT_ATTR_RDONLY;
    }
    set_attributes(
        tree,
        MountAttributes {
            set,
            clear: 0,
            propagation: 0,
            user_namespace: ids.map_or(0, |ids| ids.as_raw_fd() as u64),
        },
    )
}

fn restrict(tree: BorrowedFd<'_>, for_what: FileUse) -> io::Result<()> {
    let set = libc::MOUNT_ATTR_NOSUID
        | libc::MOUNT_ATTR_NODEV
        | match for_what {
            FileUse::Read => libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOEXEC,
            FileUse::Run => libc::MOUNT_ATTR_RDONLY,
            FileUse::Write => libc::MOUNT_ATTR_NOEXEC,
        };
    set_attributes(
        tree,
        MountAttributes {
            set,
            clear: 0,
            propagation: 0,
            user_namespace: 0,
        },
    )
}

fn set_attributes(tree: BorrowedFd<'_>, attributes: MountAttributes) -> io::Result<()> {
    // SAFETY: the structure has the kernel's layout and its size is passed; the path is empty and terminated.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    };
    if answer == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Whether directories like `path` can be shown with other ids. Mounts nothing anywhere.
pub(super) fn probe_id_map(path: &Path, ids: BorrowedFd<'_>) -> io::Result<()> {
    let tree = open_tree(
        CWD,
        path,
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC,
    )?;
    map_ids(tree.as_fd(), ids, true)
}

/// Reads a small file of the container's root as the container would see it: links are followed
/// inside, never out. Nothing when it is absent or no plain file.
pub(super) fn read_inside(root: &Path, path: &str, limit: u64) -> Option<String> {
    let root = rustix::fs::open(
        root,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .ok()?;
    let name = CString::new(path.trim_start_matches('/')).ok()?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = openat2(
        root,
        name,
        flags,
        Mode::empty(),
        ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
    )
    .ok()?;
    let file = File::from(file);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    file.take(limit).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// Whether a directory exists inside, links followed inside.
pub(super) fn directory_inside(root: &Path, path: &str) -> bool {
    let Ok(root) = rustix::fs::open(
        root,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    ) else {
        return false;
    };
    let Ok(name) = CString::new(path.trim_start_matches('/')) else {
        return false;
    };
    let name = if name.is_empty() {
        CString::from(c".")
    } else {
        name
    };
    openat2(
        root,
        name,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
    )
    .is_ok()
}

/// Takes ownership of a raw descriptor returned by the kernel.
///
/// # Safety
/// No other user may own it.
pub(super) unsafe fn own(descriptor: i32) -> OwnedFd {
    // SAFETY: the caller's promise.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}
