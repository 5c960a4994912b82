//! Opens what lies below a folder by a path of names: from a directory that is open, never through a link, never to what is
//! above, never to another file system. Sessions change the tree meanwhile as they please.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, fchown};
use std::path::Path;

use rules::folder_path::FolderPath;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use super::failure::{FolderError, failed, fault};

/// User and group inside sessions to whom what the server makes belongs: `work` of the environment `host`.
pub(super) const FIRST_OWNER: u32 = 1000;
/// How often a path is walked again that was changed under our feet; then it counts as one that leads elsewhere.
const WALKS: usize = 8;
/// That no link is followed is said to the walk; said here, the kernel would tell of no link at the end of a path.
const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);
/// A pipe without a writer makes no thread wait, and a terminal does not become the server's.
const FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// The directory that sessions mount of a folder, open.
#[derive(Debug)]
pub(super) struct FolderTop {
    open: OwnedFd,
    owner: TopOwner,
}

/// Whose the directory is that sessions mount: what the server makes in it is theirs. `FIRST_OWNER` from its beginning, and on a
/// volume without id-mapped mounts the user of the site that it maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TopOwner {
    pub(super) user: u32,
    pub(super) group: u32,
}

impl FolderTop {
    /// Errors: `folder.entry-not-found` where the folder has no directory.
    pub(super) fn open(data: &Path) -> Result<Self, FolderError> {
        let path = FolderPath::default();
        let flags = DIRECTORY | OFlags::NOFOLLOW;
        let opened = rustix::fs::openat(CWD, data, flags, Mode::empty());
        let open = opened.map_err(failed("open a folder", &path))?;
        let seen = rustix::fs::fstat(&open).map_err(failed("look at a folder", &path))?;
        let owner = TopOwner {
            user: seen.st_uid,
            group: seen.st_gid,
        };
        Ok(Self { open, owner })
    }

    pub(super) fn owner(&self) -> TopOwner {
        self.owner
    }

    /// Opens a directory to be listed.
    ///
    /// Errors: `folder.entry-not-found`, `folder.entry-link`.
    pub(super) fn directory(&self, path: &FolderPath) -> Result<OwnedFd, FolderError> {
        let opened = walk(self.open.as_fd(), whole(path), DIRECTORY);
        opened.map_err(failed("open a directory of a folder", path))
    }

    /// Opens a file to be read; it may be anything but a link.
    ///
    /// Errors: as `directory`; `folder.entry-not-file`.
    pub(super) fn file(&self, path: &FolderPath) -> Result<OwnedFd, FolderError> {
        let opened = walk(self.open.as_fd(), whole(path), FILE);
        opened.map_err(failed("open a file of a folder", path))
    }

    /// Puts something into a directory, which is made where it is missing, with those above it; what `put` refuses leaves none of
    /// them. `put` is asked again where the directory is removed under its feet, as by another request that takes back what it
    /// made: it leaves nothing behind where it fails. `told` tells a full disk from a full scope, while what was made still
    /// takes its room.
    pub(super) fn put_into<T>(
        &self,
        path: &FolderPath,
        told: &dyn Fn(FolderError) -> FolderError,
        mut put: impl FnMut(BorrowedFd<'_>) -> Result<T, FolderError>,
    ) -> Result<T, FolderError> {
        let mut walks = 1;
        loop {
            let mut into = self.made(path, told)?;
            match put(into.open.as_fd()) {
                Ok(done) => {
                    into.keep();
                    return Ok(done);
                }
                Err(_) if walks < WALKS && into.is_gone() => walks += 1,
                Err(error) => return Err(told(error)),
            }
        }
    }

    /// Opens a directory for what is put into it, and makes it where it is missing, with those above it.
    fn made(
        &self,
        path: &FolderPath,
        told: &dyn Fn(FolderError) -> FolderError,
    ) -> Result<MadeDirectory, FolderError> {
        let doing = "make a directory in a folder";
        let mut walks = 1;
        'walk: loop {
            let mut here = MadeDirectory {
                open: self.directory(&FolderPath::default())?,
                new: None,
            };
            for name in path.parts() {
                let is_new = match rustix::fs::mkdirat(&here.open, name, Mode::RWXU) {
                    Ok(()) => true,
                    Err(Errno::EXIST) => false,
                    // The one that is open was removed meanwhile.
                    Err(Errno::NOENT) if walks < WALKS => {
                        walks += 1;
                        continue 'walk;
                    }
                    Err(error) => return Err(told(failed(doing, path)(error))),
                };
                match is_new {
                    true => here.note(name).map_err(fault(doing))?,
                    // A session is in those above it already.
                    false => here.keep(),
                }
                let below = match directory_in(here.open.as_fd(), name) {
                    // It was removed before it was open.
                    Err(Errno::NOENT) if walks < WALKS => {
                        walks += 1;
                        continue 'walk;
                    }
                    below => below.map_err(failed(doing, path))?,
                };
                if is_new {
                    give(here.open.as_fd(), below.as_fd(), true, self.owner)
                        .map_err(|error| told(fault(doing)(error)))?;
                    sync(here.open.as_fd()).map_err(|error| told(fault(doing)(error)))?;
                }
                here.open = below;
            }
            return Ok(here);
        }
    }
}

/// A directory that is open for what is put into it. Those that were made on the way to it go again when this is dropped, unless
/// `keep` was said: what is refused leaves no directory behind.
#[derive(Debug)]
struct MadeDirectory {
    open: OwnedFd,
    /// What holds the first one that was made, and the path of the last one below that.
    new: Option<(OwnedFd, Vec<u8>)>,
}

impl MadeDirectory {
    /// What it was opened for is in it.
    fn keep(&mut self) {
        self.new = None;
    }

    /// Whether it has no name any more: nothing can be put into it.
    fn is_gone(&self) -> bool {
        match rustix::fs::fstat(&self.open) {
            Ok(seen) => seen.st_nlink == 0,
            // As a file server tells of it.
            Err(error) => error == Errno::STALE,
        }
    }

    /// Writes down that one was made in the one that is open.
    fn note(&mut self, name: &[u8]) -> io::Result<()> {
        match &mut self.new {
            Some((_, path)) => {
                path.push(b'/');
                path.extend_from_slice(name);
            }
            None => self.new = Some((self.open.try_clone()?, name.to_vec())),
        }
        Ok(())
    }
}

impl Drop for MadeDirectory {
    /// Removes no directory that holds something: a session may be in it by now. O(the square of the names that were made).
    fn drop(&mut self) {
        let Some((above, path)) = &self.new else {
            return;
        };
        let mut path = path.as_slice();
        while !path.is_empty() {
            let (parent, name) = match path.iter().rposition(|byte| *byte == b'/') {
                Some(at) => (&path[..at], &path[at + 1..]),
                None => (&path[..0], path),
            };
            let holder = match parent.is_empty() {
                true => walk(above.as_fd(), b".", DIRECTORY),
                false => walk(above.as_fd(), parent, DIRECTORY),
            };
            let removed =
                holder.and_then(|holder| rustix::fs::unlinkat(&holder, name, AtFlags::REMOVEDIR));
            match removed {
                // Another removed it: those above it are still ours.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(_) => return,
            }
            path = parent;
        }
        let _ = sync(above.as_fd());
    }
}

/// Opens a directory by its name in one that is open, however the path to that one reads by now.
pub(super) fn directory_in(parent: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    walk(parent, name, DIRECTORY)
}

/// A path as the kernel walks it; the top has a name there.
fn whole(path: &FolderPath) -> &[u8] {
    match path.is_top() {
        true => b".",
        false => path.as_bytes(),
    }
}

fn walk(from: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    for _ in 0..WALKS {
        match openat2(from, path, flags, Mode::empty(), resolve) {
            // A directory on the way was moved meanwhile.
            Err(Errno::AGAIN) => {}
            opened => return opened,
        }
    }
    Err(Errno::XDEV)
}

/// Gives what was made in a directory to the owner of the folder's top, with the modes that what sessions make there has: all
/// users inside write to each other's files, but in a home.
pub(super) fn give(
    parent: BorrowedFd<'_>,
    made: BorrowedFd<'_>,
    is_directory: bool,
    owner: TopOwner,
) -> io::Result<()> {
    let is_open_to_all = rustix::fs::fstat(parent)?.st_mode & 0o002 != 0;
    let mode = match (is_open_to_all, is_directory) {
        (true, true) => 0o777,
        (true, false) => 0o666,
        (false, true) => 0o755,
        (false, false) => 0o644,
    };
    if rustix::process::geteuid().is_root() {
        fchown(made, Some(owner.user), Some(owner.group))?;
    }
    let open = fs::File::from(made.try_clone_to_owned()?);
    open.set_permissions(Permissions::from_mode(mode))
}

/// Keeps the names in a directory over a loss of power.
pub(super) fn sync(directory: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::fs::fsync(directory)?)
}
