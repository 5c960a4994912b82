//! Copies the files of a folder into another one, and moves a folder into the scope of another owner. Blocks are shared where
//! the file system can do that; snapshots are such copies, too. Never follows a link, never leaves the file system, never
//! writes beyond a limit, and shows nothing half-made: a copy is found by its row, a moved folder by its link.

use std::ffi::{CStr, CString};
use std::fs::{self, File, FileTimes, Metadata, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, fchown, symlink};
use std::path::Path;
use std::sync::Arc;

use rules::folder::ScopeOwner;
use rules::folder_path::FolderPath;
use rules::names::FolderId;
use rules::refusals;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, RenameFlags, SeekFrom, Uid, XattrFlags,
    fgetxattr, flistxattr, flistxattr_query, fsetxattr, ioctl_ficlone, readlinkat, renameat_with,
    seek, statat, symlinkat, syncfs,
};
use rustix::io::Errno;
use uuid::Uuid;

use super::beneath::FolderTop;
use super::failure::{FolderError, failed, fault};
use super::found::FoundFolder;
use super::{
    DATA, FolderLimit, FolderStore, REMOVED, TRASH, directory, give, make, open_to_all, scope_of,
    unlink,
};
use crate::folders::staging::refuse_full_disk;
use crate::trees::{self, Thrown, Trash};

const DOING: &str = "copy a folder";
/// Directories below each other. More: a copy has more of them open at once. Fewer: deep trees are not copied.
const MAX_LEVELS: usize = 128;
/// Bytes between two looks whether to go on and whether there is room. More: a cancelled copy goes on for longer. Fewer: more
/// calls.
const PIECE: u64 = 1 << 20;
/// What a name takes that has no bytes.
const BLOCK: u64 = 4096;
/// Bytes of the names of all attributes of a file, and of the value of one: the kernel takes no more.
const MAX_ATTRIBUTES: usize = 64 << 10;

const OPEN_DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// A pipe without a writer makes no thread wait, and a terminal does not become the server's.
const OPEN_FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);
const NEW_FILE: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Is told how many bytes were copied, at each name and each piece; an error ends the copy.
pub type CopyWatch<'a> = dyn FnMut(u64) -> Result<(), FolderError> + 'a;

impl FolderStore {
    /// Fills a folder that is there with a copy of the files of another one; what lay in it goes first. Pipes, sockets and
    /// devices are left out, and a file with two names becomes two. O(names + bytes), or O(names) where blocks are shared.
    ///
    /// Errors: `quota.exceeded`, `disk.full`, `folder.too-deep`; those of `watch`.
    pub fn copy(
        &self,
        from: FolderId,
        to: FolderId,
        watch: &mut CopyWatch<'_>,
    ) -> Result<(), FolderError> {
        let source = self.place_of(from)?;
        let target = self.place_of(to)?;
        let data = target.data();
        // What a copy left that was broken off.
        trees::remove(&data).map_err(fault(DOING))?;
        make(&data).map_err(|error| target.told(fault(DOING)(error)))?;
        open_to_all(&data).map_err(fault(DOING))?;
        let mut copy = TreeCopy::new(&target, target.disk(&self.folders), watch);
        copy.tree(&source.data(), &data)
    }

    /// Removes a folder's directory with all that lies in it, at once; fine where there is none.
    pub fn discard(&self, id: FolderId) -> io::Result<()> {
        let Some(found) = self.find(id)? else {
            return Ok(());
        };
        trees::remove(&found.own)?;
        match found.scope.is_some() || found.volume.is_some() {
            true => unlink(&directory(&self.folders, id)),
            false => Ok(()),
        }
    }

    /// Moves a folder into the scope of another limit, that of another owner or its own: its files are copied there, then one
    /// rename lets its link lead to them, then those in the scope of `before` are removed. Safe to be done again after it was
    /// broken off. Does nothing where no limit is held, and for a folder on a volume. No session may mount it and no file of
    /// it be written meanwhile.
    ///
    /// Errors: as `copy`.
    pub fn rehome(
        &self,
        id: FolderId,
        before: ScopeOwner,
        limit: FolderLimit,
        watch: &mut CopyWatch<'_>,
    ) -> Result<(), FolderError> {
        let Some(found) = self.find(id).map_err(fault(DOING))? else {
            return Ok(());
        };
        if found.volume.is_some() || !self.keeper.enforcement().is_enforced() {
            return Ok(());
        }
        let scope = self.scope(limit.owner);
        let held = found.scope.as_ref().map(|(held, _)| held);
        if held == Some(&scope) {
            return self.forget_former(id, before).map_err(fault(DOING));
        }
        let lease = self.keeper.enter(&scope, Some(limit.bytes));
        let lease = lease.map_err(fault(DOING))?;
        let own = scope.files().join(id.to_string());
        let target = FoundFolder {
            own: own.clone(),
            pool: self.pool_of(&scope),
            scope: Some((scope.clone(), lease)),
            volume: None,
            keeper: Arc::clone(&self.keeper),
            count: None,
        };
        let told = |error| target.told(fault(DOING)(error));
        trees::remove(&own).map_err(told)?;
        for path in [
            scope.files().join(TRASH),
            own.clone(),
            own.join(DATA),
            own.join(REMOVED),
        ] {
            make(&path).map_err(told)?;
        }
        let like = fs::metadata(found.data()).map_err(fault(DOING))?;
        let opened = match like.mode() & 0o077 {
            // A home, which only its owner reads inside.
            0 => give(&target.data()),
            _ => open_to_all(&target.data()),
        };
        opened.map_err(told)?;
        let mut copy = TreeCopy::new(&target, target.disk(&self.folders), watch);
        copy.tree(&found.data(), &target.data())?;
        if found.removed().is_dir() {
            copy.tree(&found.removed(), &target.removed())?;
        }
        if found.snapshots().is_dir() {
            make(&target.snapshots()).map_err(told)?;
            let apart = self.keeper.count_apart(&scope, &target.snapshots());
            apart.map_err(told)?;
            copy.tree(&found.snapshots(), &target.snapshots())?;
        }
        self.lead_to(id, &own).map_err(told)?;
        self.forget_former(id, before).map_err(told)
    }

    /// Removes the half-made directory of a folder from the scope of a limit on which it does not count. One whose link leads
    /// there already stays: then what is left in the scope of `before` is removed.
    pub fn give_up_rehome(
        &self,
        id: FolderId,
        before: ScopeOwner,
        owner: ScopeOwner,
    ) -> io::Result<()> {
        let scope = self.scope(owner);
        if scope_of(&self.data, id).as_ref() == Some(&scope) {
            return self.forget_former(id, before);
        }
        if !scope.directory().is_dir() {
            return Ok(());
        }
        let _lease = self.keeper.enter(&scope, None)?;
        trees::remove(&scope.files().join(id.to_string()))
    }

    /// Lets the link of a folder lead to `own`: one rename. What stood in its place, a link or a directory, goes into the trash.
    fn lead_to(&self, id: FolderId, own: &Path) -> io::Result<()> {
        let place = directory(&self.folders, id);
        let inside = own.strip_prefix(&self.folders).map_err(io::Error::other)?;
        let trash = self.folders.join(TRASH);
        let beside = trash.join(Uuid::now_v7().simple().to_string());
        symlink(Path::new("..").join(inside), &beside)?;
        renameat_with(CWD, &beside, CWD, &place, RenameFlags::EXCHANGE)?;
        let shard = place.parent().unwrap_or(&trash);
        for changed in [shard, trash.as_path()] {
            File::open(changed)?.sync_all()?;
        }
        Ok(())
    }

    /// Removes what a folder that moved left in the scope of its former limit.
    fn forget_former(&self, id: FolderId, before: ScopeOwner) -> io::Result<()> {
        let scope = self.scope(before);
        if !scope.directory().is_dir() {
            return Ok(());
        }
        let _lease = match self.keeper.enter(&scope, None) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            lease => lease?,
        };
        let own = scope.files().join(id.to_string());
        let trash = Trash::open(&scope.files().join(TRASH))?;
        match trash.throw(&own)? {
            Thrown::Stays => trees::remove(&own)?,
            Thrown::Away | Thrown::Nothing => {}
        }
        // Now: it stands against that limit until then, and nothing mounts the scope of one folder again for the next look.
        for (path, error) in trash.empty(|| true)? {
            tracing::warn!(path = %path.display(), %error, "files of a folder that moved stay on the disk");
        }
        Ok(())
    }
}

/// A copy of one tree into a folder.
pub(super) struct TreeCopy<'a, 'w> {
    into: &'a FoundFolder,
    disk: &'a Path,
    watch: &'a mut CopyWatch<'w>,
    /// Bytes that were copied, or shared.
    pub(super) done: u64,
    /// Files, directories and links that were.
    pub(super) names: u64,
    /// Where blocks are shared: a file takes as many bytes of the limit there as it has, and next to none of the disk.
    shares: Option<&'a Path>,
    device: u64,
    piece: Vec<u8>,
}

/// A directory that is being copied.
struct CopyLevel {
    from: Dir,
    to: File,
    /// What it is to be like once everything lies in it.
    like: Metadata,
}

impl<'a, 'w> TreeCopy<'a, 'w> {
    pub(super) fn new(into: &'a FoundFolder, disk: &'a Path, watch: &'a mut CopyWatch<'w>) -> Self {
        Self {
            into,
            disk,
            watch,
            done: 0,
            names: 0,
            shares: None,
            device: 0,
            piece: vec![0; usize::try_from(PIECE).unwrap_or(1 << 20)],
        }
    }

    /// The same where the file system is known to share blocks. `place`: what tells how much room there is.
    pub(super) fn sharing(self, place: &'a Path) -> Self {
        Self {
            shares: Some(place),
            ..self
        }
    }

    /// Copies what lies in one directory into another one, which is empty, and keeps it over a loss of power.
    pub(super) fn tree(&mut self, from: &Path, to: &Path) -> Result<(), FolderError> {
        let top = FolderTop::open(from)?.directory(&FolderPath::default())?;
        self.below(top.into(), to)
    }

    /// Copies one file or link of a directory into another one, which is empty; of a directory what lies in it.
    ///
    /// Errors: `folder.entry-not-found`, `folder.entry-link`.
    pub(super) fn part(
        &mut self,
        from: &FolderTop,
        path: &FolderPath,
        to: &Path,
    ) -> Result<(), FolderError> {
        if path.is_top() {
            return self.below(from.directory(path)?.into(), to);
        }
        let above = File::from(from.directory(&path.parent())?);
        let stat = statat(&above, path.name(), AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.map_err(failed(DOING, path))?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            return self.below(from.directory(path)?.into(), to);
        }
        let name = CString::new(path.name()).map_err(|error| self.fault(error))?;
        let to = File::from(FolderTop::open(to)?.directory(&FolderPath::default())?);
        self.device = above.metadata().map_err(|error| self.fault(error))?.dev();
        let whole = to.try_clone().map_err(|error| self.fault(error))?;
        let level = self.level(&above, to)?;
        self.entry(&level, &name, 1)?;
        syncfs(&whole).map_err(|error| self.fault(error))
    }

    fn below(&mut self, top: File, to: &Path) -> Result<(), FolderError> {
        let to = FolderTop::open(to)?.directory(&FolderPath::default())?;
        let to = File::from(to);
        self.device = top.metadata().map_err(|error| self.fault(error))?.dev();
        let whole = to.try_clone().map_err(|error| self.fault(error))?;
        let mut levels = vec![self.level(&top, to)?];
        loop {
            let depth = levels.len();
            let Some(level) = levels.last_mut() else {
                break;
            };
            match next(&mut level.from).map_err(|error| self.fault(error))? {
                Some(name) => {
                    if let Some(below) = self.entry(level, &name, depth)? {
                        levels.push(below);
                    }
                }
                None => {
                    let done = levels.pop();
                    // The top keeps what was given to it when it was made.
                    if let Some(done) = done.filter(|_| depth > 1) {
                        let kept = settle(&done.to, &done.like);
                        kept.map_err(|error| self.fault(error))?;
                    }
                }
            }
        }
        (self.watch)(self.done)?;
        syncfs(&whole).map_err(|error| self.fault(error))
    }

    fn level(&self, from: &File, to: File) -> Result<CopyLevel, FolderError> {
        Ok(CopyLevel {
            like: from.metadata().map_err(|error| self.fault(error))?,
            from: Dir::read_from(from).map_err(|error| self.fault(error))?,
            to,
        })
    }

    /// Copies one name; gives the directory that it is, to be gone through.
    fn entry(
        &mut self,
        level: &CopyLevel,
        name: &CStr,
        depth: usize,
    ) -> Result<Option<CopyLevel>, FolderError> {
        (self.watch)(self.done)?;
        self.names += 1;
        let here = level.from.fd().map_err(|error| self.fault(error))?;
        let stat = match statat(here, name, AtFlags::SYMLINK_NOFOLLOW) {
            // It is gone since it was listed.
            Err(Errno::NOENT) => return Ok(None),
            stat => stat.map_err(|error| self.fault(error))?,
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                if depth >= MAX_LEVELS {
                    return Err(refusals::folder_too_deep(MAX_LEVELS).into());
                }
                let Some(from) = self.opened(here, name, OPEN_DIRECTORY)? else {
                    return Ok(None);
                };
                self.room(BLOCK)?;
                rustix::fs::mkdirat(&level.to, name, Mode::RWXU)
                    .map_err(|error| self.fault(error))?;
                let to = rustix::fs::openat(&level.to, name, OPEN_DIRECTORY, Mode::empty());
                let to = File::from(to.map_err(|error| self.fault(error))?);
                keep_attributes(&from, &to).map_err(|error| self.fault(error))?;
                Ok(Some(self.level(&from, to)?))
            }
            FileType::RegularFile => {
                if let Some(from) = self.opened(here, name, OPEN_FILE)? {
                    self.file(&from, level, name)?;
                }
                Ok(None)
            }
            FileType::Symlink => {
                self.room(BLOCK)?;
                let target = match readlinkat(here, name, Vec::new()) {
                    Err(Errno::NOENT | Errno::INVAL) => return Ok(None),
                    target => target.map_err(|error| self.fault(error))?,
                };
                symlinkat(&target, &level.to, name).map_err(|error| self.fault(error))?;
                if rustix::process::geteuid().is_root() {
                    let (user, group) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
                    let flags = AtFlags::SYMLINK_NOFOLLOW;
                    rustix::fs::chownat(&level.to, name, Some(user), Some(group), flags)
                        .map_err(|error| self.fault(error))?;
                }
                Ok(None)
            }
            // What programs talk through holds nothing.
            _ => Ok(None),
        }
    }

    /// Opens what was listed; None where it is gone, became something else, or is of another file system.
    fn opened(
        &self,
        here: impl AsFd,
        name: &CStr,
        flags: OFlags,
    ) -> Result<Option<File>, FolderError> {
        let opened = match rustix::fs::openat(here, name, flags, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO) => return Ok(None),
            opened => File::from(opened.map_err(|error| self.fault(error))?),
        };
        let found = opened.metadata().map_err(|error| self.fault(error))?;
        let kind = found.file_type();
        let is_device = kind.is_fifo() || kind.is_char_device() || kind.is_block_device();
        let is_other = is_device || kind.is_dir() != flags.contains(OFlags::DIRECTORY);
        Ok((found.dev() == self.device && !is_other).then_some(opened))
    }

    fn file(&mut self, from: &File, level: &CopyLevel, name: &CStr) -> Result<(), FolderError> {
        let like = from.metadata().map_err(|error| self.fault(error))?;
        let taken = like.blocks().saturating_mul(512);
        let most = taken.min(like.len()).max(BLOCK);
        match self.shares {
            Some(place) => {
                self.into.refuse_beyond_limit_of(place, most)?;
                refuse_full_disk(self.disk, BLOCK)?;
            }
            None => self.room(most)?,
        }
        let to = rustix::fs::openat(&level.to, name, NEW_FILE, Mode::RUSR | Mode::WUSR);
        let to = File::from(to.map_err(|error| self.fault(error))?);
        match ioctl_ficlone(&to, from) {
            Ok(()) => self.done += taken,
            // The file systems differ, or this one shares no blocks.
            Err(_) => self.bytes(from, &to, like.len())?,
        }
        keep_attributes(from, &to).map_err(|error| self.fault(error))?;
        settle(&to, &like).map_err(|error| self.fault(error))
    }

    /// Copies the bytes of a file up to `length`; holes stay holes.
    fn bytes(&mut self, from: &File, to: &File, length: u64) -> Result<(), FolderError> {
        let mut at = 0;
        while at < length {
            let begin = match seek(from, SeekFrom::Data(at)) {
                Ok(begin) => begin,
                Err(Errno::NXIO) => break,
                // This file system tells of no holes.
                Err(_) => at,
            };
            let hole = seek(from, SeekFrom::Hole(begin)).ok();
            let hole = hole.filter(|hole| *hole > begin).unwrap_or(length);
            let end = hole.min(length);
            at = begin;
            while at < end {
                (self.watch)(self.done)?;
                let most = (end - at).min(PIECE);
                self.room(most)?;
                let mut piece = std::mem::take(&mut self.piece);
                let part = usize::try_from(most).unwrap_or(piece.len());
                let copied = from.read_at(&mut piece[..part], at).and_then(|read| {
                    to.write_all_at(&piece[..read], at)?;
                    Ok(read)
                });
                self.piece = piece;
                match copied {
                    // It became shorter meanwhile.
                    Ok(0) => {
                        at = length;
                        break;
                    }
                    Ok(read) => {
                        at += read as u64;
                        self.done += read as u64;
                        self.into.note_written(read as u64);
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(self.fault(error)),
                }
            }
        }
        to.set_len(length).map_err(|error| self.fault(error))
    }

    /// Refuses so many bytes more where the limit or the disk has no room for them.
    fn room(&self, bytes: u64) -> Result<(), FolderError> {
        self.into.refuse_beyond_limit(bytes)?;
        refuse_full_disk(self.disk, bytes)
    }

    fn fault(&self, error: impl Into<io::Error>) -> FolderError {
        self.into.told(fault(DOING)(error.into()))
    }
}

/// Gives a copy the owner, the mode and the time of what it is a copy of. No program of a copy runs as its owner.
fn settle(copy: &File, like: &Metadata) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        fchown(copy, Some(like.uid()), Some(like.gid()))?;
    }
    copy.set_permissions(Permissions::from_mode(like.mode() & 0o777))?;
    let times = FileTimes::new().set_modified(like.modified()?);
    copy.set_times(times)
}

/// Gives a copy the attributes that programs gave what it is a copy of; none where the file system keeps none.
fn keep_attributes(from: &File, copy: &File) -> io::Result<()> {
    match flistxattr_query(from) {
        Ok(0) | Err(Errno::NOTSUP) => return Ok(()),
        length => length?,
    };
    let mut names = vec![0; MAX_ATTRIBUTES];
    let length = flistxattr(from, &mut names[..])?;
    let names = names[..length].split(|byte| *byte == 0);
    let mut value = vec![0; MAX_ATTRIBUTES];
    for name in names.filter(|name| name.starts_with(b"user.")) {
        let read = match fgetxattr(from, name, &mut value[..]) {
            // It was removed since it was listed.
            Err(Errno::NODATA) => continue,
            read => read?,
        };
        match fsetxattr(copy, name, &value[..read], XattrFlags::empty()) {
            Err(Errno::NOTSUP) => return Ok(()),
            kept => kept?,
        }
    }
    Ok(())
}

fn next(names: &mut Dir) -> io::Result<Option<CString>> {
    loop {
        match names.read().transpose()? {
            Some(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
            Some(entry) => return Ok(Some(entry.file_name().to_owned())),
            None => return Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::super::mounted_directory;
    use super::*;

    const FROM: FolderId = FolderId(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_00ab));
    const TO: FolderId = FolderId(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_00cd));

    fn opened() -> (tempfile::TempDir, FolderStore, PathBuf, PathBuf) {
        let data = tempfile::tempdir().expect("a directory");
        let store = FolderStore::open(data.path()).expect("a store");
        for id in [FROM, TO] {
            store.create(id, false, None).expect("made");
        }
        let [from, to] = [FROM, TO].map(|id| mounted_directory(data.path(), id));
        (data, store, from, to)
    }

    #[test]
    fn a_copy_holds_files_directories_links_and_holes_as_they_are() {
        let (_data, store, from, to) = opened();
        fs::create_dir_all(from.join("a/b")).expect("made");
        fs::write(from.join("a/b/file"), "text").expect("written");
        for noted in ["a/b", "a/b/file"] {
            let noted = from.join(noted);
            rustix::fs::setxattr(noted, "user.note", b"hello", XattrFlags::empty()).expect("noted");
        }
        fs::set_permissions(from.join("a/b/file"), Permissions::from_mode(0o4750)).expect("set");
        symlink("/etc/passwd", from.join("a/out")).expect("a link");
        let sparse = File::create(from.join("sparse")).expect("made");
        sparse.set_len(1 << 30).expect("a hole");
        sparse.write_all_at(b"end", (1 << 30) - 3).expect("written");
        fs::write(to.join("left"), "of a copy that was broken off").expect("written");
        let mut seen = 0;
        let watch = &mut |done: u64| -> Result<(), FolderError> {
            seen = done;
            Ok(())
        };
        store.copy(FROM, TO, watch).expect("copied");
        assert!(seen > 0);
        assert!(!to.join("left").exists());
        assert_eq!(
            fs::read_to_string(to.join("a/b/file")).expect("there"),
            "text"
        );
        for noted in ["a/b", "a/b/file"] {
            let mut value = [0; 16];
            let read = rustix::fs::getxattr(to.join(noted), "user.note", &mut value[..]);
            assert_eq!(&value[..read.expect("copied")], b"hello", "{noted}");
        }
        let file = to.join("a/b/file").metadata().expect("there");
        assert_eq!(file.mode() & 0o7777, 0o750);
        let before = from.join("a/b/file").metadata().expect("there");
        assert_eq!(
            file.modified().expect("a time"),
            before.modified().expect("a time")
        );
        assert_eq!(
            fs::read_link(to.join("a/out")).expect("a link"),
            Path::new("/etc/passwd")
        );
        let copy = to.join("sparse").metadata().expect("there");
        assert_eq!(copy.len(), 1 << 30);
        assert!(copy.blocks() * 512 < 1 << 24, "{}", copy.blocks());
        fs::write(to.join("a/b/file"), "another").expect("written");
        assert_eq!(
            fs::read_to_string(from.join("a/b/file")).expect("there"),
            "text"
        );
    }

    #[test]
    fn a_copy_ends_where_it_is_told_to() {
        let (_data, store, from, _) = opened();
        for number in 0..10 {
            fs::write(from.join(format!("file-{number}")), "text").expect("written");
        }
        let mut looks = 0;
        let watch = &mut |_: u64| -> Result<(), FolderError> {
            looks += 1;
            match looks > 3 {
                true => Err(refusals::folder_copy_cancelled().into()),
                false => Ok(()),
            }
        };
        let ended = store.copy(FROM, TO, watch).expect_err("cancelled");
        assert_eq!(ended.code(), Some("folder.copy-cancelled"));
        store.discard(TO).expect("removed");
        assert!(!store.has(TO) && store.has(FROM));
        store.discard(TO).expect("nothing is there");
    }

    #[test]
    fn a_tree_that_is_too_deep_is_not_copied() {
        let (_data, store, from, _) = opened();
        let deep = (0..=MAX_LEVELS).fold(from, |path, _| path.join("d"));
        fs::create_dir_all(deep).expect("made");
        let refused = store.copy(FROM, TO, &mut |_| Ok(())).expect_err("too deep");
        assert_eq!(refused.code(), Some("folder.too-deep"));
    }
}
