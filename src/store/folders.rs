//! The bytes of folders on this machine: one directory for each, which sessions mount. Names and rights are rows of the
//! catalog; here a folder has its id alone. Directories above a folder's files are root's alone, so no session ever changes
//! a path that this file walks.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rules::folder_path::{FolderPath, MAX_FOLDER_PATH};
use rules::names::FolderId;
use rules::refusals;
use rules::units::Timestamp;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, XattrFlags, openat2};
use rustix::io::Errno;
use uuid::Uuid;

use crate::trees::{self, Size, Thrown, Trash};
use archive::{ArchiveFormat, FolderArchive};
use beneath::{FIRST_OWNER, FolderTop};
use failure::FolderError;
use files::FolderFile;
use listing::{EntryPage, EntryQuery, FolderEntry};
use removed::RemovedEntry;

pub mod archive;
mod beneath;
pub mod failure;
pub mod files;
pub mod listing;
pub mod position;
pub mod removed;
mod sorted_names;
pub mod staging;

/// The default access list of a folder, as the kernel keeps it: all users inside may read and write a new file of any of
/// them. Rights between people are mounts, never modes.
const OPEN_TO_ALL: [u8; 28] = [
    2, 0, 0, 0, // version
    0x01, 0, 7, 0, 0xff, 0xff, 0xff, 0xff, // the owner
    0x04, 0, 7, 0, 0xff, 0xff, 0xff, 0xff, // the group
    0x20, 0, 7, 0, 0xff, 0xff, 0xff, 0xff, // all others
];
const DEFAULT_ACCESS: &str = "system.posix_acl_default";
/// Where folders lie below a data directory, and what is removed of them below that.
const FOLDERS: &str = "folders";
const TRASH: &str = ".trash";
/// What of a folder's directory sessions mount.
const DATA: &str = "data";
/// What of a folder's directory holds files that are being uploaded, and what was removed of it.
const STAGING: &str = "staging";
const REMOVED: &str = "trash";

/// The directory that sessions mount of a folder, whether it is there or not.
///
/// `data`: the data directory of the machine.
pub fn mounted_directory(data: &Path, id: FolderId) -> PathBuf {
    directory(&data.join(FOLDERS), id).join(DATA)
}

/// Opens what lies at `subpath` below a folder's directory, to be mounted; an empty one is the directory itself. No link is
/// followed, nothing above is reached, and nothing on another file system.
///
/// Errors: what the kernel says, `ENOENT` where there is none and `ELOOP` at a link.
pub fn open_mounted(directory: &Path, subpath: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let whole = rustix::fs::openat(CWD, directory, flags, Mode::empty())?;
    if subpath.is_empty() {
        return Ok(whole);
    }
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    Ok(openat2(&whole, subpath, flags, Mode::empty(), resolve)?)
}

/// The last two digits of an id are random, the first ones are its time.
fn directory(folders: &Path, id: FolderId) -> PathBuf {
    let name = id.to_string();
    let shard = &name[name.len() - 2..];
    folders.join(shard).join(&name)
}

/// The folders of one data directory.
#[derive(Debug)]
pub struct FolderStore {
    folders: PathBuf,
    trash: Trash,
    /// Uploads that are written to, finished or removed at this moment.
    busy: staging::BusyUploads,
    finished: staging::FinishedUploads,
    /// Names of large directories that were listed a moment ago.
    listings: sorted_names::KeptListings,
}

impl FolderStore {
    /// Opens the folders of a data directory; the first time makes the place for them.
    pub fn open(data: &Path) -> io::Result<Self> {
        let folders = data.join(FOLDERS);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folders)?;
        let trash = Trash::open(&folders.join(TRASH))?;
        Ok(Self {
            folders,
            trash,
            busy: staging::BusyUploads::default(),
            finished: staging::FinishedUploads::default(),
            listings: sorted_names::KeptListings::default(),
        })
    }

    /// Makes the directory of a folder, and keeps it over a loss of power. Does nothing where there is one.
    ///
    /// `is_home`: a home, which only its owner reads inside, as programs ask of one.
    pub fn create(&self, id: FolderId, is_home: bool) -> io::Result<()> {
        let own = directory(&self.folders, id);
        let data = own.join(DATA);
        let shard = own.parent().unwrap_or(&self.folders);
        make(shard)?;
        make(&own)?;
        make(&data)?;
        let is_root = rustix::process::geteuid().is_root();
        if is_root {
            chown(&data, Some(FIRST_OWNER), Some(FIRST_OWNER))?;
        }
        if !is_home {
            let set =
                rustix::fs::setxattr(&data, DEFAULT_ACCESS, &OPEN_TO_ALL, XattrFlags::empty());
            match set {
                // Modes alone decide on a file system without access lists.
                Ok(()) | Err(Errno::OPNOTSUPP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mode = if is_home { 0o700 } else { 0o777 };
        fs::set_permissions(&data, Permissions::from_mode(mode))?;
        for changed in [data.as_path(), own.as_path(), shard, self.folders.as_path()] {
            File::open(changed)?.sync_all()?;
        }
        Ok(())
    }

    /// Whether the directory of a folder is there.
    pub fn has(&self, id: FolderId) -> bool {
        directory(&self.folders, id).join(DATA).is_dir()
    }

    /// Removes a folder's directory where nothing lies in it; fine where there is none.
    ///
    /// Errors: what the kernel says, `ENOTEMPTY` where something does: then all of it stays.
    pub fn remove_empty(&self, id: FolderId) -> io::Result<()> {
        let own = directory(&self.folders, id);
        for path in [own.join(STAGING), own.join(REMOVED), own.join(DATA), own] {
            match fs::remove_dir(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes a folder's directory away: one rename, however much lies in it. `empty` removes it.
    pub fn throw(&self, id: FolderId) -> io::Result<Thrown> {
        self.trash.throw(&directory(&self.folders, id))
    }

    /// Removes what was thrown away; `go_on` is asked between two folders. Says of the rest why it stays, in the log alone.
    pub fn empty(&self, go_on: impl Fn() -> bool) -> io::Result<()> {
        for (path, error) in self.trash.empty(go_on)? {
            tracing::warn!(path = %path.display(), %error, "a removed folder stays on the disk");
        }
        Ok(())
    }

    /// Counts what a folder takes of the disk, its own directory and uploads under way included; at most `most` names. Costs
    /// a visit of each file.
    pub fn measure(&self, id: FolderId, most: u64) -> io::Result<Size> {
        let own = directory(&self.folders, id);
        let mut size = trees::measure(&own.join(DATA), most)?;
        for more in [STAGING, REMOVED] {
            // Names there are not the owner's.
            let more = trees::measure(&own.join(more), most)?;
            size.bytes = size.bytes.saturating_add(more.bytes);
        }
        Ok(size)
    }

    /// One page of a directory of a folder.
    ///
    /// Errors: `folder.entry-not-found`, `folder.entry-link`.
    pub fn list(
        &self,
        id: FolderId,
        path: &FolderPath,
        query: &EntryQuery,
    ) -> Result<EntryPage, FolderError> {
        listing::list(&self.top(id)?, path, query, &self.listings)
    }

    /// Forgets the names of large directories that no page is asked of.
    pub fn forget_listings(&self) {
        self.listings.forget_old();
    }

    /// What a path leads to; of a link itself.
    ///
    /// Errors: as `list`.
    pub fn entry(&self, id: FolderId, path: &FolderPath) -> Result<FolderEntry, FolderError> {
        listing::entry(&self.top(id)?, path)
    }

    /// Opens an ordinary file to be read.
    ///
    /// Errors: as `list`; `folder.entry-not-file`.
    pub fn file(&self, id: FolderId, path: &FolderPath) -> Result<FolderFile, FolderError> {
        files::open(&self.top(id)?, path)
    }

    /// Makes one directory, in one that is there.
    ///
    /// Errors: as `list`; `folder.new-name-invalid`, `folder.entry-exists`, `disk.full`.
    pub fn make_directory(&self, id: FolderId, path: &FolderPath) -> Result<(), FolderError> {
        path.check_new()?;
        staging::refuse_full_disk(&self.folders, 0)?;
        files::make_directory(&self.top(id)?, path)
    }

    /// Gives a file, a directory or a link another name or place in the same folder; never over another one.
    ///
    /// Errors: as `make_directory`; `folder.move-inside`.
    pub fn move_entry(
        &self,
        id: FolderId,
        from: &FolderPath,
        to: &FolderPath,
    ) -> Result<(), FolderError> {
        refuse_top(from)?;
        to.check_new()?;
        files::move_entry(&self.top(id)?, from, to)
    }

    /// Moves a file, a link, or a directory with all below it into the folder's trash: one rename. On a full disk it is
    /// removed for good.
    ///
    /// Errors: as `list`.
    pub fn remove_entry(
        &self,
        id: FolderId,
        path: &FolderPath,
        now: Timestamp,
    ) -> Result<(), FolderError> {
        refuse_top(path)?;
        let trash = self.made_trash(id)?;
        removed::take(&self.top(id)?, path, &trash, now)
    }

    /// Takes a file, a link, or a directory with all below it away for good: one rename. `empty_removed` gives the room back.
    ///
    /// Errors: as `list`.
    pub fn remove_for_good(&self, id: FolderId, path: &FolderPath) -> Result<(), FolderError> {
        refuse_top(path)?;
        let trash = self.made_trash(id)?;
        removed::take_for_good(&self.top(id)?, path, &trash)
    }

    /// What lies in the folder's trash, newest first.
    pub fn removed(&self, id: FolderId) -> Result<Vec<RemovedEntry>, FolderError> {
        removed::list(&self.own_trash(id))
    }

    /// Puts one of `removed` back where it was, with the directories above it, and gives its path. Never over another one.
    ///
    /// Errors: `folder.removed-not-found`, `folder.entry-exists`, `folder.entry-link`.
    pub fn restore_entry(&self, id: FolderId, item: Uuid) -> Result<FolderPath, FolderError> {
        removed::restore(&self.top(id)?, &self.own_trash(id), item)
    }

    /// Takes some of `removed` out of the trash for good, or all where `items` is None. `empty_removed` gives the room back.
    ///
    /// Errors: `folder.removed-not-found`.
    pub fn purge_removed(
        &self,
        id: FolderId,
        items: Option<&[Uuid]>,
        now: Timestamp,
    ) -> Result<(), FolderError> {
        let trash = self.own_trash(id);
        match items {
            Some(items) => items
                .iter()
                .try_for_each(|item| removed::purge(&trash, *item)),
            None => removed::purge_before(&trash, None, now),
        }
    }

    /// Takes out of the trash for good what lies there since before `since`, and what a crash left.
    pub fn expire_removed(
        &self,
        id: FolderId,
        since: Timestamp,
        now: Timestamp,
    ) -> Result<(), FolderError> {
        removed::purge_before(&self.own_trash(id), Some(since), now)
    }

    /// Gives the room of what was removed from a folder for good back. May take long.
    pub fn empty_removed(&self, id: FolderId) -> io::Result<()> {
        removed::empty(&self.own_trash(id))
    }

    fn own_trash(&self, id: FolderId) -> PathBuf {
        directory(&self.folders, id).join(REMOVED)
    }

    fn made_trash(&self, id: FolderId) -> Result<PathBuf, FolderError> {
        let trash = self.own_trash(id);
        make(&trash).map_err(failure::fault("make room for what is removed"))?;
        Ok(trash)
    }

    /// An archive of a directory, or of one file; `name` is the name of its top.
    ///
    /// Errors: as `list`; `folder.archive-too-many` for a zip.
    pub fn archive(
        &self,
        id: FolderId,
        path: &FolderPath,
        name: &str,
        format: ArchiveFormat,
    ) -> Result<FolderArchive, FolderError> {
        FolderArchive::open(&self.top(id)?, path, name, format)
    }

    fn top(&self, id: FolderId) -> Result<FolderTop, FolderError> {
        FolderTop::open(&directory(&self.folders, id).join(DATA))
    }

    /// The folders whose directories are here, each with the time when it was made or changed last.
    pub fn all(&self) -> io::Result<Vec<(FolderId, SystemTime)>> {
        let mut all = Vec::new();
        for shard in fs::read_dir(&self.folders)? {
            let shard = shard?;
            if shard.file_name() == TRASH || !shard.file_type()?.is_dir() {
                continue;
            }
            for own in fs::read_dir(shard.path())? {
                let own = own?;
                let name = own.file_name();
                let id = name.to_str().and_then(|name| name.parse::<FolderId>().ok());
                // It may be gone since it was listed.
                if let (Some(id), Ok(found)) = (id, own.metadata()) {
                    all.push((id, found.modified()?));
                }
            }
        }
        Ok(all)
    }
}

fn refuse_top(path: &FolderPath) -> Result<(), FolderError> {
    match path.is_top() {
        true => Err(refusals::folder_path_invalid(MAX_FOLDER_PATH).into()),
        false => Ok(()),
    }
}

fn make(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    const ID: FolderId = FolderId(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_00ab));

    fn opened() -> (tempfile::TempDir, FolderStore) {
        let data = tempfile::tempdir().expect("a directory");
        let store = FolderStore::open(data.path()).expect("a store");
        (data, store)
    }

    #[test]
    fn a_folder_has_a_directory_that_its_id_names() {
        let (data, store) = opened();
        store.create(ID, false).expect("made");
        store
            .create(ID, false)
            .expect("made again, and nothing lost");
        assert!(store.has(ID));
        let mounted = mounted_directory(data.path(), ID);
        assert!(mounted.ends_with(format!("folders/ab/{ID}/data")));
        assert_eq!(mounted.metadata().expect("there").mode() & 0o777, 0o777);
        let above = mounted
            .parent()
            .expect("a parent")
            .metadata()
            .expect("there");
        assert_eq!(above.mode() & 0o777, 0o700);
        let all = store.all().expect("a list");
        assert_eq!(all.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [ID]);
    }

    #[test]
    fn only_a_folder_without_files_is_removed_at_once() {
        let (data, store) = opened();
        store.remove_empty(ID).expect("nothing there");
        store.create(ID, false).expect("made");
        let file = mounted_directory(data.path(), ID).join("a");
        fs::write(&file, "text").expect("written");
        store.remove_empty(ID).expect_err("not empty");
        assert!(file.is_file());
        fs::remove_file(file).expect("removed");
        store.remove_empty(ID).expect("removed");
        assert!(store.all().expect("a list").is_empty());
    }

    #[test]
    fn a_folder_that_is_thrown_away_is_gone_with_its_files() {
        let (data, store) = opened();
        store.create(ID, true).expect("made");
        let mounted = mounted_directory(data.path(), ID);
        fs::write(mounted.join("a"), "text").expect("written");
        assert!(store.measure(ID, 100).expect("counted").entries >= 1);
        assert_eq!(store.throw(ID).expect("thrown"), Thrown::Away);
        assert!(!store.has(ID));
        assert_eq!(store.throw(ID).expect("nothing there"), Thrown::Nothing);
        store.empty(|| true).expect("emptied");
        let left = fs::read_dir(data.path().join(FOLDERS).join(TRASH)).expect("a trash");
        assert_eq!(left.count(), 0);
    }

    #[test]
    fn nothing_but_what_lies_below_a_folder_is_opened() {
        let (data, store) = opened();
        store.create(ID, false).expect("made");
        let mounted = mounted_directory(data.path(), ID);
        fs::create_dir_all(mounted.join("a/b")).expect("made");
        fs::write(mounted.join("file"), "").expect("written");
        symlink("/", mounted.join("out")).expect("a link");
        symlink("a", mounted.join("in")).expect("a link");
        for good in ["", "a", "a/b"] {
            open_mounted(&mounted, good).expect(good);
        }
        for bad in [
            "..", "a/../..", "/", "/etc", "out", "out/etc", "in", "in/b", "file", "none",
        ] {
            assert!(open_mounted(&mounted, bad).is_err(), "{bad}");
        }
    }
}
