//! What the layers below a layer show, read the way overlayfs reads them. Asked only where a layer
//! cannot be unpacked by itself: a directory it never lists, a whiteout, a hard link to a file of a
//! lower layer. Follows no link and writes nothing.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::failure::{Doing, ImageError};

/// Overlayfs takes a directory with this attribute as hiding everything below.
pub(super) const OPAQUE: &str = "trusted.overlay.opaque";

/// The stack of unpacked layers below, top-most first.
pub(super) struct Lower<'a> {
    layers: Vec<BorrowedFd<'a>>,
    /// The parent looked at last, with the directories that make it up: neighbours in an archive
    /// mostly share it, and each look-up otherwise costs depth × layers calls.
    last: Option<(Vec<Vec<u8>>, Vec<OwnedFd>)>,
}

/// What stands at a path of the lower layers.
pub(super) enum LowerEntry {
    Nothing,
    /// The top-most of the directories that are merged here.
    Directory(OwnedFd),
    Symlink(Vec<u8>),
    /// Any other thing, with the directory that holds it.
    Other {
        parent: OwnedFd,
        stat: Stat,
    },
}

impl<'a> Lower<'a> {
    pub(super) fn new(layers: Vec<BorrowedFd<'a>>) -> Self {
        Self { layers, last: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// Looks a path up, part by part, without following links.
    pub(super) fn look(&mut self, path: &[Vec<u8>]) -> Result<LowerEntry, ImageError> {
        let Some((name, parents)) = path.split_last() else {
            return match self.layers.first() {
                None => Ok(LowerEntry::Nothing),
                Some(top) => Ok(LowerEntry::Directory(reopen(*top)?)),
            };
        };
        if self.last.as_ref().is_none_or(|(known, _)| known != parents) {
            let mut merged = Vec::new();
            for layer in &self.layers {
                merged.push(reopen(*layer)?);
            }
            for part in parents {
                merged = step(&merged, part)?;
            }
            self.last = Some((parents.to_vec(), merged));
        }
        let (_, merged) = self.last.as_ref().expect("set above when it was not right");
        for directory in merged {
            let Some(stat) = stat(directory.as_fd(), name)? else {
                continue;
            };
            return Ok(match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => {
                    LowerEntry::Directory(open_directory(directory.as_fd(), name)?)
                }
                FileType::Symlink => {
                    let target = rustix::fs::readlinkat(directory, name.as_slice(), Vec::new())
                        .doing(|| "read a link of a lower layer".into())?;
                    LowerEntry::Symlink(target.into_bytes())
                }
                FileType::CharacterDevice if stat.st_rdev == 0 => LowerEntry::Nothing,
                _ => LowerEntry::Other {
                    parent: reopen(directory.as_fd())?,
                    stat,
                },
            });
        }
        Ok(LowerEntry::Nothing)
    }
}

/// The directories called `name` that overlayfs merges below these, top-most first.
fn step(merged: &[OwnedFd], name: &[u8]) -> Result<Vec<OwnedFd>, ImageError> {
    let mut next = Vec::new();
    for directory in merged {
        let Some(stat) = stat(directory.as_fd(), name)? else {
            continue;
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            // A file, a link or a whiteout ends the merge.
            break;
        }
        let opened = open_directory(directory.as_fd(), name)?;
        let opaque = is_opaque(opened.as_fd());
        next.push(opened);
        if opaque {
            break;
        }
    }
    Ok(next)
}

pub(super) fn is_opaque(directory: BorrowedFd<'_>) -> bool {
    let mut value = [0u8; 1];
    rustix::fs::fgetxattr(directory, OPAQUE, &mut value).is_ok_and(|n| n == 1 && value[0] == b'y')
}

/// What stands in a directory under a single name, the name's own link not followed.
pub(super) fn stat(parent: BorrowedFd<'_>, name: &[u8]) -> Result<Option<Stat>, ImageError> {
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error).doing(|| "look at a file of a layer".into()),
    }
}

pub(super) fn open_directory(parent: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, ImageError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
        .doing(|| "open a directory of a layer".into())
}

fn reopen(directory: BorrowedFd<'_>) -> Result<OwnedFd, ImageError> {
    rustix::io::fcntl_dupfd_cloexec(directory, 3).doing(|| "keep a directory open".into())
}
