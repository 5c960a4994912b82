//! Copies a file, a link, or a directory with all below it to another place of the same folder. The copy is made beside the
//! folder's files, where no session reaches, and one rename puts it in its place once it is whole. Pipes, sockets and devices
//! are left out. Never follows a link.

use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use rules::folder_path::FolderPath;
use rules::names::FolderId;
use rules::refusals;
use rules::units::Timestamp;
use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, RenameFlags, Uid, XattrFlags};
use uuid::Uuid;

use super::beneath::{FolderTop, TopOwner, give, sync};
use super::failure::{FolderError, failed, fault, named, unlinked};
use super::found::FoundFolder;
use super::staging::{COPY_ENDING, refuse_full_disk};
use super::{DEFAULT_ACCESS, FolderStore, made_trash, make, refuse_top, removed};
use crate::trees;

/// Names and bytes of what one request copies. Higher: a request takes the disk for longer. Lower: larger trees are copied
/// inside sessions alone.
const MAX_COPIED: u64 = 10_000;
const MAX_COPIED_BYTES: u64 = 1 << 30;
/// Bytes of the paths of all directories of what one request copies, old and new. Higher: more memory for each.
const MAX_COPIED_PATHS: usize = 16 << 20;
/// Bytes between two looks at the room there is.
const PIECE: u64 = 16 << 20;
/// Between two looks whether its caller may still copy. Longer: a copy outlives the right to it.
const LOOK: Duration = Duration::from_secs(1);

/// Refuses to go on where the caller may not copy any more.
type MayCopy<'a> = &'a dyn Fn() -> Result<(), FolderError>;

/// Where what a copy takes the place of goes.
#[derive(Clone, Copy)]
struct CopyReplaces<'a> {
    trash: &'a Path,
    now: Timestamp,
}

/// What is left of that which one request may copy.
#[derive(Debug, Clone, Copy)]
pub struct CopyRoom {
    names: u64,
    bytes: u64,
    paths: usize,
}

impl Default for CopyRoom {
    fn default() -> Self {
        Self {
            names: MAX_COPIED,
            bytes: MAX_COPIED_BYTES,
            paths: MAX_COPIED_PATHS,
        }
    }
}

impl FolderStore {
    /// Copies to a place where nothing is yet. `may` is asked every second, and right before the copy is in its place.
    ///
    /// Errors: `folder.entry-not-found`, `folder.entry-exists`, `folder.entry-link`, `folder.entry-not-file`,
    /// `folder.new-name-invalid`, `folder.copy-too-large`, `quota.exceeded`, `disk.full`; those of `may`: then
    /// nothing of it stays.
    pub fn copy_entry(
        &self,
        id: FolderId,
        from: &FolderPath,
        to: &FolderPath,
        may: MayCopy<'_>,
    ) -> Result<(), FolderError> {
        self.copy_one_of(id, (from, to), may, &mut CopyRoom::default())
    }

    /// As `copy_entry`, of one of several that share what one request may copy.
    ///
    /// Errors: as `copy_entry`.
    pub fn copy_one_of(
        &self,
        id: FolderId,
        (from, to): (&FolderPath, &FolderPath),
        may: MayCopy<'_>,
        room: &mut CopyRoom,
    ) -> Result<(), FolderError> {
        let doing = "copy a file of a folder";
        refuse_top(from)?;
        to.check_new()?;
        let found = self.place_of(id)?;
        let top = found.top()?;
        let into = top.directory(&to.parent())?;
        if rustix::fs::statat(&into, to.name(), AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Err(failed(doing, to)(rustix::io::Errno::EXIST));
        }
        let told = |error| found.told(fault(doing)(error));
        make(&found.staging()).map_err(told)?;
        let place = found
            .staging()
            .join(format!("{}{COPY_ENDING}", Uuid::now_v7()));
        DirBuilder::new().mode(0o700).create(&place).map_err(told)?;
        let made = self.copy_into(
            &found,
            &top,
            (from, to),
            (into.as_fd(), place.as_path()),
            (may, None),
            room,
        );
        // Empty where the copy is in its place.
        let cleared = trees::remove(&place);
        made.map_err(|error| found.told(error))?;
        cleared.map_err(fault(doing))
    }

    /// Puts a file, a link or a directory of a snapshot back into its folder, at `to`, with the directories above it. What
    /// stands there is refused, or goes into the folder's trash where `replaces` says when: it stays until the copy is whole,
    /// and then both change places at once. Without room for its place in the trash nothing is done.
    ///
    /// Errors: as `copy_entry`.
    pub fn restore_from_snapshot(
        &self,
        (id, number): (FolderId, u32),
        (from, to): (&FolderPath, &FolderPath),
        replaces: Option<Timestamp>,
        may: MayCopy<'_>,
    ) -> Result<(), FolderError> {
        let doing = "restore a file of a snapshot";
        refuse_top(from)?;
        to.check_new()?;
        let found = self.place_of(id)?;
        let snapshot = FolderTop::open(&found.snapshots().join(number.to_string()))?;
        // Of what the snapshot does not hold no directory is made.
        let above = snapshot.directory(&from.parent())?;
        let held = rustix::fs::statat(&above, from.name(), AtFlags::SYMLINK_NOFOLLOW);
        held.map_err(failed(doing, from))?;
        let top = found.top()?;
        let put = |into: BorrowedFd<'_>| -> Result<(), FolderError> {
            let taken = rustix::fs::statat(into, to.name(), AtFlags::SYMLINK_NOFOLLOW);
            if replaces.is_none() && taken.is_ok() {
                return Err(failed(doing, to)(rustix::io::Errno::EXIST));
            }
            let trash = made_trash(&found)?;
            let replaces = replaces.map(|now| CopyReplaces { trash: &trash, now });
            make(&found.staging()).map_err(fault(doing))?;
            let place = found
                .staging()
                .join(format!("{}{COPY_ENDING}", Uuid::now_v7()));
            DirBuilder::new()
                .mode(0o700)
                .create(&place)
                .map_err(fault(doing))?;
            let made = self.copy_into(
                &found,
                &snapshot,
                (from, to),
                (into, place.as_path()),
                (may, replaces),
                &mut CopyRoom::default(),
            );
            let cleared = trees::remove(&place);
            made?;
            cleared.map_err(fault(doing))
        };
        top.put_into(&to.parent(), &|error| found.told(error), put)
    }

    fn copy_into(
        &self,
        found: &FoundFolder,
        top: &FolderTop,
        (from, to): (&FolderPath, &FolderPath),
        (into, place): (BorrowedFd<'_>, &Path),
        (may, replaces): (MayCopy<'_>, Option<CopyReplaces<'_>>),
        room: &mut CopyRoom,
    ) -> Result<(), FolderError> {
        let doing = "copy a file of a folder";
        let begun = FolderTop::open(place)?;
        let name = FolderPath::default().child(to.name());
        let name = name.ok_or_else(refusals::folder_new_name_invalid)?;
        let mut copy = TreeCopy {
            found,
            disk: found.disk(&self.folders),
            top,
            begun: &begun,
            into,
            owner: found.top()?.owner(),
            access: access_of(into),
            room,
            may,
            looked: Instant::now(),
        };
        let mut waiting = Vec::new();
        if !copy.entry(from, &name, &mut waiting)? {
            return Err(refusals::folder_entry_not_file(named(from)).into());
        }
        while let Some((from, to)) = waiting.pop() {
            copy.directory(&from, &to, &mut waiting)?;
        }
        let whole = begun.directory(&FolderPath::default())?;
        may()?;
        match replaces {
            Some(CopyReplaces { trash, now }) => {
                let copy = (whole.as_fd(), name.name());
                removed::replace(copy, (into, to), trash, now)?;
            }
            None => {
                let flags = RenameFlags::NOREPLACE;
                let moved = rustix::fs::renameat_with(&whole, name.name(), into, to.name(), flags);
                moved.map_err(failed(doing, to))?;
            }
        }
        sync(into).map_err(fault(doing))
    }
}

/// The default access list of a directory; None where it has none.
fn access_of(directory: BorrowedFd<'_>) -> Option<Vec<u8>> {
    let mut value = [0_u8; 256];
    let length = rustix::fs::fgetxattr(directory, DEFAULT_ACCESS, &mut value[..]).ok()?;
    value.get(..length).map(<[u8]>::to_vec)
}

/// One copy on its way.
struct TreeCopy<'a> {
    found: &'a FoundFolder,
    disk: &'a Path,
    /// What is copied lies below it.
    top: &'a FolderTop,
    /// The copy lies below it until it is whole.
    begun: &'a FolderTop,
    /// The directory that it is for.
    into: BorrowedFd<'a>,
    /// Whose the copy is.
    owner: TopOwner,
    /// What that directory gives to what is made in it.
    access: Option<Vec<u8>>,
    room: &'a mut CopyRoom,
    may: MayCopy<'a>,
    /// When that was asked last.
    looked: Instant,
}

impl TreeCopy<'_> {
    fn refuse_ended(&mut self) -> Result<(), FolderError> {
        if self.looked.elapsed() >= LOOK {
            (self.may)()?;
            self.looked = Instant::now();
        }
        Ok(())
    }

    /// Copies what lies in a directory; those in it wait.
    fn directory(
        &mut self,
        from: &FolderPath,
        to: &FolderPath,
        waiting: &mut Vec<(FolderPath, FolderPath)>,
    ) -> Result<(), FolderError> {
        let failed = || failed::<rustix::io::Errno>("copy a directory of a folder", from);
        let directory = self.top.directory(from)?;
        let mut names = Dir::read_from(&directory).map_err(failed())?;
        while let Some(entry) = names.read() {
            let entry = entry.map_err(failed())?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let (Some(from), Some(to)) = (from.child(name), to.child(name)) else {
                return Err(too_large());
            };
            self.entry(&from, &to, waiting)?;
        }
        Ok(())
    }

    /// Copies one name; of a directory itself alone, and what lies in it waits. False for a pipe, a socket or a device.
    fn entry(
        &mut self,
        from: &FolderPath,
        to: &FolderPath,
        waiting: &mut Vec<(FolderPath, FolderPath)>,
    ) -> Result<bool, FolderError> {
        let doing = "copy a file of a folder";
        self.room.names = self.room.names.checked_sub(1).ok_or_else(too_large)?;
        self.refuse_ended()?;
        let parent = self.top.directory(&from.parent())?;
        let stat = rustix::fs::statat(&parent, from.name(), AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.map_err(failed(doing, from))?;
        let above = self.begun.directory(&to.parent())?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                self.found.refuse_beyond_limit(1)?;
                let made = rustix::fs::mkdirat(&above, to.name(), Mode::RWXU);
                made.map_err(failed(doing, to))?;
                let made = self.begun.directory(to)?;
                give(self.into, made.as_fd(), true, self.owner).map_err(fault(doing))?;
                if is_private(stat.st_mode) {
                    rustix::fs::fchmod(&made, Mode::RWXU).map_err(failed(doing, to))?;
                }
                if let Some(access) = &self.access {
                    let set =
                        rustix::fs::fsetxattr(&made, DEFAULT_ACCESS, access, XattrFlags::empty());
                    set.map_err(|error| fault(doing)(error.into()))?;
                }
                let paths = from.as_bytes().len() + to.as_bytes().len();
                let left = self.room.paths.checked_sub(paths);
                self.room.paths = left.ok_or_else(too_large)?;
                waiting.push((from.clone(), to.clone()));
            }
            FileType::Symlink => {
                let leads = rustix::fs::readlinkat(&parent, from.name(), Vec::<u8>::new());
                let leads = leads.map_err(unlinked).map_err(failed(doing, from))?;
                self.found.refuse_beyond_limit(1)?;
                let made = rustix::fs::symlinkat(&leads, &above, to.name());
                made.map_err(failed(doing, to))?;
                if rustix::process::geteuid().is_root() {
                    let user = Some(Uid::from_raw(self.owner.user));
                    let group = Some(Gid::from_raw(self.owner.group));
                    let flags = AtFlags::SYMLINK_NOFOLLOW;
                    let given = rustix::fs::chownat(&above, to.name(), user, group, flags);
                    given.map_err(failed(doing, to))?;
                }
            }
            FileType::RegularFile => {
                let opened = super::files::open(self.top, from)?;
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let made = rustix::fs::openat(&above, to.name(), flags, Mode::RUSR | Mode::WUSR);
                let made = File::from(made.map_err(failed(doing, to))?);
                self.file(&opened.file, &made)?;
                give(self.into, made.as_fd(), false, self.owner).map_err(fault(doing))?;
                let seen = made.metadata().map_err(fault(doing))?;
                let mut mode = seen.permissions().mode() & 0o777;
                if stat.st_mode & 0o111 != 0 {
                    // Who reads it may run it.
                    mode |= (mode & 0o444) >> 2;
                }
                if is_private(stat.st_mode) {
                    mode &= 0o700;
                }
                let mode = Permissions::from_mode(mode);
                made.set_permissions(mode).map_err(fault(doing))?;
                made.sync_all().map_err(fault(doing))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn file(&mut self, from: &File, to: &File) -> Result<(), FolderError> {
        let doing = "copy a file of a folder";
        let size = from.metadata().map_err(fault(doing))?.len();
        if size > self.room.bytes {
            return Err(too_large());
        }
        let mut done = 0;
        loop {
            self.refuse_ended()?;
            let piece = PIECE.min(self.room.bytes);
            let expected = piece.min(size.saturating_sub(done));
            self.found.refuse_beyond_limit(expected.max(1))?;
            refuse_full_disk(self.disk, expected)?;
            let (mut part, mut into) = (from.take(piece), to);
            let copied = io::copy(&mut part, &mut into).map_err(fault(doing))?;
            self.room.bytes -= copied.min(self.room.bytes);
            self.found.note_written(copied);
            done += copied;
            if copied < PIECE {
                // One that grows meanwhile ends where the bound does.
                return Ok(());
            }
        }
    }
}

/// What its owner alone reads stays so.
fn is_private(mode: u32) -> bool {
    mode & 0o077 == 0
}

fn too_large() -> FolderError {
    refusals::folder_copy_too_large(MAX_COPIED, MAX_COPIED_BYTES >> 20).into()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use rustix::fs::CWD;

    use super::*;
    use crate::folders::mounted_directory;

    const ID: FolderId = FolderId(Uuid::from_u128(0xab));

    #[test]
    fn a_tree_is_copied_whole_or_not_at_all() {
        let data = tempfile::tempdir().expect("a directory");
        let store = FolderStore::open(data.path()).expect("a store");
        store.create(ID, false, None).expect("made");
        let place = mounted_directory(data.path(), ID);
        let path = |text: &str| FolderPath::parse(text).expect(text);
        fs::create_dir_all(place.join("a/b")).expect("made");
        fs::write(place.join("a/b/text"), "text").expect("written");
        fs::write(place.join("a/run"), "#!/bin/sh\n").expect("written");
        fs::create_dir(place.join("a/keys")).expect("made");
        fs::write(place.join("a/keys/id"), "own").expect("written");
        for (name, mode) in [("a/keys", 0o700), ("a/keys/id", 0o600)] {
            fs::set_permissions(place.join(name), Permissions::from_mode(mode)).expect("set");
        }
        let program = Permissions::from_mode(0o755);
        fs::set_permissions(place.join("a/run"), program).expect("set");
        symlink("/etc", place.join("a/out")).expect("a link");
        let pipe = place.join("a/pipe");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
        let copy =
            |from: &str, to: &str| match store.copy_entry(ID, &path(from), &path(to), &|| Ok(())) {
                Ok(()) => "done".to_owned(),
                Err(error) => error.code().unwrap_or("fault").to_owned(),
            };
        assert_eq!(copy("a", "c"), "done");
        let text = fs::read_to_string(place.join("c/b/text"));
        assert_eq!(text.expect("there"), "text");
        let link = fs::read_link(place.join("c/out")).expect("a link");
        assert_eq!(link, Path::new("/etc"));
        assert!(!place.join("c/pipe").exists());
        let mode = |name: &str| place.join(name).metadata().expect(name).mode() & 0o777;
        assert_eq!(mode("c/run") & 0o111, 0o111);
        assert_eq!(mode("c/b"), 0o777);
        assert_eq!((mode("c/keys"), mode("c/keys/id")), (0o700, 0o600));
        assert_eq!(copy("a", "a/inside"), "done", "as it was before");
        assert!(!place.join("a/inside/inside").exists());
        assert_eq!(copy("a/b/text", "d"), "done");
        assert_eq!(copy("a/b/text", "d"), "folder.entry-exists");
        assert_eq!(copy("a/pipe", "e"), "folder.entry-not-file");
        assert_eq!(copy("a/out/passwd", "e"), "folder.entry-link");
        assert_eq!(copy("", "e"), "folder.path-invalid");
        assert_eq!(copy("none", "e"), "folder.entry-not-found");
        let large = File::create(place.join("large")).expect("made");
        large.set_len(MAX_COPIED_BYTES + 1).expect("sparse");
        assert_eq!(copy("large", "e"), "folder.copy-too-large");
        let ended = || -> Result<(), FolderError> { Err(refusals::folder_not_found().into()) };
        let ended = store.copy_entry(ID, &path("a"), &path("e"), &ended);
        let ended = ended.expect_err("the right ended meanwhile");
        assert_eq!(ended.code(), Some("folder.not-found"));
        assert!(!place.join("e").exists());
        let staging = place.with_file_name("staging");
        assert_eq!(fs::read_dir(staging).expect("there").count(), 0);
    }

    #[test]
    fn several_share_what_one_request_may_copy() {
        let data = tempfile::tempdir().expect("a directory");
        let store = FolderStore::open(data.path()).expect("a store");
        store.create(ID, false, None).expect("made");
        let place = mounted_directory(data.path(), ID);
        let path = |text: &str| FolderPath::parse(text).expect(text);
        fs::write(place.join("a"), "four").expect("written");
        let mut room = CopyRoom {
            names: 3,
            bytes: 9,
            paths: 0,
        };
        let mut copy = |to: &str| {
            let (from, to) = (path("a"), path(to));
            store.copy_one_of(ID, (&from, &to), &|| Ok(()), &mut room)
        };
        copy("b").expect("copied");
        copy("c").expect("copied");
        let over = copy("d").expect_err("more bytes than are left");
        assert_eq!(over.code(), Some("folder.copy-too-large"));
        assert!(place.join("c").exists() && !place.join("d").exists());
    }
}
