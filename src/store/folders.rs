//! The bytes of folders on this machine: one directory for each, which sessions mount. Names and rights are rows of the
//! catalog; here a folder has its id alone. One that lies in a scope has a link in its place, which leads to its directory
//! there. Directories above a folder's files are root's alone, so no session ever changes a path that this file walks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use rules::folder::ScopeOwner;
use rules::folder_path::{FolderPath, MAX_FOLDER_PATH};
use rules::names::{FolderId, VolumeId};
use rules::refusals;
use rules::units::{Bytes, Timestamp};
use rules::volume::{MappedUser, VolumeState};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, XattrFlags, openat2};
use rustix::io::Errno;
use uuid::Uuid;

use crate::quota::pool::PoolPlace;
use crate::quota::{CountingKeeper, SPARE, ScopeKeeper, ScopePlace};
use crate::trees::{self, Size, Thrown, Trash};
use crate::volumes::{FOLDERS, OpenVolume, VOLUMES, VolumeShelf, directory_below};
use archive::{ArchiveFormat, FolderArchive};
use beneath::{FIRST_OWNER, FolderTop};
use counted::CountedScope;
use failure::FolderError;
use files::FolderFile;
use found::FoundFolder;
use listing::{EntryPage, EntryQuery, FolderEntry};
use ordered::{OrderedPage, SortedQuery};
use removed::RemovedEntry;
use search::{SearchPage, SearchQuery};
use subfolders::SubfolderCount;

pub mod archive;
mod beneath;
pub mod copies;
pub mod copying;
pub mod counted;
pub mod failure;
pub mod files;
mod found;
#[cfg(test)]
mod full_disk_test;
pub mod listing;
mod names;
pub mod ordered;
pub mod position;
#[cfg(test)]
mod races_test;
pub mod removed;
pub mod search;
pub mod snapshots;
mod sorted_names;
pub mod staging;
pub mod subfolders;
mod texts;
pub mod versions;

/// The default access list of a folder, as the kernel keeps it: all users inside may read and write a new file of any of
/// them. Rights between people are mounts, never modes.
const OPEN_TO_ALL: [u8; 28] = [
    2, 0, 0, 0, // version
    0x01, 0, 7, 0, 0xff, 0xff, 0xff, 0xff, // the owner
    0x04, 0, 7, 0, 0xff, 0xff, 0xff, 0xff, // the group
    0x20, 0, 7, 0, 0xff, 0xff, 0xff, 0xff, // all others
];
const DEFAULT_ACCESS: &str = "system.posix_acl_default";
/// Where what is removed of folders lies below them.
const TRASH: &str = ".trash";
/// What of a folder's directory sessions mount.
const DATA: &str = "data";
/// What of a folder's directory holds files that are being uploaded, and what was removed of it.
const STAGING: &str = "staging";
const REMOVED: &str = "trash";
/// What of a folder's directory holds earlier states of its files.
const SNAPSHOTS: &str = "snapshots";
/// What of a folder's directory on a volume names the site whose folder it is: several sites may share a volume.
const SITE: &str = "site";
/// What is read of it: an id as text.
const MAX_SITE: u64 = 64;

/// The directory that sessions mount of a folder, whether it is there or not. It may lead through a link of ours into a scope
/// that has to be entered first.
///
/// `data`: the data directory of the machine.
pub fn mounted_directory(data: &Path, id: FolderId) -> PathBuf {
    directory(&data.join(FOLDERS), id).join(DATA)
}

/// The scope that a folder lies in; None for a plain one, and where there is none. Costs one look.
pub fn scope_of(data: &Path, id: FolderId) -> Option<ScopePlace> {
    linked(&directory(&data.join(FOLDERS), id)).map(|(scope, _)| scope)
}

/// What the link of a folder leads to: its scope, and its directory there.
fn linked(place: &Path) -> Option<(ScopePlace, PathBuf)> {
    let target = fs::read_link(place).ok()?;
    // It is written relative, so that a data directory may be moved as a whole: from its shard one step up.
    let inside = target.strip_prefix("..").ok()?;
    let own = place.parent()?.parent()?.join(inside);
    Some((ScopePlace::around(&own)?, own))
}

/// The volume that a folder lies on; None for one on the disk of the data directory. Costs one look there, and none at the
/// volume.
pub fn volume_of(data: &Path, id: FolderId) -> Option<VolumeId> {
    on_volume(&directory(&data.join(FOLDERS), id))
}

/// The directory that sessions mount of a folder on a volume, by its whole path. The volume was compared with its marker at
/// this moment. Callers bring a thread that may wait for it.
///
/// Errors: `volume.absent`, carried; what the kernel says.
pub fn directory_on_volume(
    shelf: &VolumeShelf,
    volume: VolumeId,
    id: FolderId,
) -> io::Result<PathBuf> {
    let open = shelf.enter(volume)?;
    let inside = directory(Path::new(FOLDERS), id).join(DATA);
    open.directory(&inside)?;
    Ok(shelf.path(volume)?.join(inside))
}

/// The volume that the link of a folder names.
fn on_volume(place: &Path) -> Option<VolumeId> {
    let target = fs::read_link(place).ok()?;
    let inside = target.strip_prefix("..").ok()?.strip_prefix(VOLUMES).ok()?;
    let name = inside.components().next()?;
    name.as_os_str().to_str()?.parse().ok()
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

/// Which limit a new folder lies below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FolderLimit {
    pub owner: ScopeOwner,
    /// Of all that counts on it, where this is the first of it.
    pub bytes: Bytes,
}

/// The folders of one data directory.
#[derive(Debug)]
pub struct FolderStore {
    data: PathBuf,
    folders: PathBuf,
    trash: Trash,
    keeper: Arc<dyn ScopeKeeper>,
    volumes: VolumeShelf,
    /// The site that directories on volumes name. None until it is told.
    site: OnceLock<Uuid>,
    /// Uploads that are written to, finished or removed at this moment.
    busy: staging::BusyUploads,
    finished: staging::FinishedUploads,
    /// Names of large directories that were listed a moment ago.
    listings: sorted_names::KeptListings,
    /// What directories took a moment ago.
    counts: subfolders::KeptCounts,
    /// Files whose text is written right now.
    texts: versions::TextsUnderWay,
    /// What limits leave that the kernel does not hold.
    counted: counted::CountedLimits,
    /// File systems that were asked whether files share blocks there.
    sharing: snapshots::KnownSharing,
}

impl FolderStore {
    /// Opens the folders of a data directory, held to no limit; the first time makes the place for them.
    pub fn open(data: &Path) -> io::Result<Self> {
        Self::limited(data, Arc::new(CountingKeeper))
    }

    /// Opens the folders of a data directory, held to limits by `keeper`.
    pub fn limited(data: &Path, keeper: Arc<dyn ScopeKeeper>) -> io::Result<Self> {
        let folders = data.join(FOLDERS);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folders)?;
        let trash = Trash::open(&folders.join(TRASH))?;
        Ok(Self {
            data: data.to_owned(),
            volumes: VolumeShelf::below(&folders),
            site: OnceLock::new(),
            folders,
            trash,
            keeper,
            busy: staging::BusyUploads::default(),
            finished: staging::FinishedUploads::default(),
            listings: sorted_names::KeptListings::default(),
            counts: subfolders::KeptCounts::default(),
            texts: versions::TextsUnderWay::default(),
            counted: counted::CountedLimits::default(),
            sharing: snapshots::KnownSharing::default(),
        })
    }

    /// What holds folders to their limits.
    pub fn keeper(&self) -> &dyn ScopeKeeper {
        &*self.keeper
    }

    /// The volumes that folders may lie on.
    pub fn volumes(&self) -> &VolumeShelf {
        &self.volumes
    }

    /// Says which site this is: what is made on a volume from now on names it.
    pub fn be_site(&self, site: Uuid) {
        // A site has one id for as long as it is there.
        let _ = self.site.set(site);
    }

    /// The volume that a folder lies on; None for one on the disk of the data directory. Costs one look there, and none at
    /// the volume.
    pub fn volume_of(&self, id: FolderId) -> Option<VolumeId> {
        on_volume(&directory(&self.folders, id))
    }

    /// Makes the directory of a folder on a volume, as `create` does on the disk of the data directory. It is held to no limit
    /// there. `mapped`: whose it is where the volume has no id-mapped mounts.
    ///
    /// Errors: `volume.absent`, `volume.hung`, each carried.
    pub fn create_on(
        &self,
        volume: VolumeId,
        id: FolderId,
        mapped: Option<MappedUser>,
    ) -> io::Result<()> {
        let open = self.volumes.enter(volume)?;
        let inside = directory(Path::new(FOLDERS), id);
        let own = open.path().join(&inside);
        let above = own.parent().unwrap_or(&own);
        let data = own.join(DATA);
        // Nothing of a foreign tree is taken for ours: no step leads through a link or to another file system.
        for step in [
            PathBuf::from(FOLDERS),
            inside.parent().unwrap_or(&inside).to_owned(),
            inside.clone(),
            inside.join(DATA),
            inside.join(REMOVED),
        ] {
            make(&open.path().join(&step))?;
            open.directory(&step)?;
        }
        match mapped.filter(|_| rustix::process::geteuid().is_root()) {
            // Others would leave files there whose owners are ids of one session: they are strangers.
            Some(user) => {
                chown(&data, Some(user.uid), Some(user.gid))?;
                fs::set_permissions(&data, Permissions::from_mode(0o770))?;
            }
            None => open_to_all(&data)?,
        }
        self.name_site(&open, id)?;
        let top = open.path();
        let all = top.join(FOLDERS);
        for changed in [
            data.as_path(),
            own.as_path(),
            above,
            all.as_path(),
            top.as_path(),
        ] {
            File::open(changed)?.sync_all()?;
        }
        // By the link it is found from then on; before, it is an empty directory that a later folder of this id takes.
        self.link_on(volume, id)
    }

    /// Writes the link by which a folder on a volume is found; fine where it is already.
    pub fn link_on(&self, volume: VolumeId, id: FolderId) -> io::Result<()> {
        let place = directory(&self.folders, id);
        let shard = place.parent().unwrap_or(&self.folders);
        make(shard)?;
        let inside = Path::new("..")
            .join(VOLUMES)
            .join(volume.to_string())
            .join(directory(Path::new(FOLDERS), id));
        match symlink(inside, &place) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        for changed in [shard, self.folders.as_path()] {
            File::open(changed)?.sync_all()?;
        }
        Ok(())
    }

    /// Whether a volume holds the directory of a folder, whether a link leads there or not. Callers bring a thread that may wait
    /// for it.
    pub fn lies_on(&self, volume: VolumeId, id: FolderId) -> bool {
        directory_on_volume(&self.volumes, volume, id).is_ok()
    }

    /// Writes into the directory of a folder on a volume whose it is, where nothing says so yet.
    fn name_site(&self, open: &OpenVolume, id: FolderId) -> io::Result<()> {
        let Some(site) = self.site.get() else {
            return Ok(());
        };
        let own = open.directory(&directory(Path::new(FOLDERS), id))?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = match rustix::fs::openat(&own, SITE, flags, Mode::RUSR | Mode::WUSR) {
            Err(Errno::EXIST) => return Ok(()),
            made => File::from(made?),
        };
        // Half of it names no site, as a directory of an earlier version.
        file.write_all(site.to_string().as_bytes())?;
        file.sync_all()
    }

    /// Whether a directory on a volume names another site. One that names none is no other's: an earlier version made it.
    fn is_of_other(&self, open: &OpenVolume, id: FolderId) -> io::Result<bool> {
        let own = open.directory(&directory(Path::new(FOLDERS), id))?;
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&own, SITE, flags, Mode::empty()) {
            Err(Errno::NOENT | Errno::LOOP) => return Ok(false),
            opened => File::from(opened?),
        };
        let mut text = Vec::new();
        file.take(MAX_SITE).read_to_end(&mut text)?;
        let named = String::from_utf8_lossy(&text).trim().parse::<Uuid>().ok();
        Ok(named.is_some_and(|named| self.site.get().is_some_and(|own| *own != named)))
    }

    /// Whether the directory of a folder on a volume is one of another site, which has the same volume. Callers bring a thread
    /// that may wait for it.
    ///
    /// Errors: `volume.absent`, `volume.hung`, each carried; what the kernel says.
    pub fn is_of_other_site(&self, volume: VolumeId, id: FolderId) -> io::Result<bool> {
        self.is_of_other(&self.volumes.enter(volume)?, id)
    }

    /// Makes the directory of a folder on a volume one of this site. Callers bring a thread that may wait for it.
    ///
    /// Errors: as `is_of_other_site`.
    pub fn take_from_site(&self, volume: VolumeId, id: FolderId) -> io::Result<()> {
        let open = self.volumes.enter(volume)?;
        let inside = directory(Path::new(FOLDERS), id);
        let own = open.directory(&inside)?;
        match rustix::fs::unlinkat(&own, SITE, AtFlags::empty()) {
            Err(error) if error != Errno::NOENT => return Err(error.into()),
            _ => {}
        }
        self.name_site(&open, id)?;
        File::open(open.path().join(inside))?.sync_all()
    }

    /// Finds a folder on a volume again whose link is not on this disk, as where the box came back from a backup to another one.
    /// False where something is in the place of the link, and where the volume has no such folder. Callers bring a thread that
    /// may wait for it.
    ///
    /// Errors: `volume.absent`, `volume.hung`, each carried.
    pub fn find_again(&self, volume: VolumeId, id: FolderId) -> io::Result<bool> {
        if directory(&self.folders, id).symlink_metadata().is_ok() {
            return Ok(false);
        }
        let open = self.volumes.enter(volume)?;
        let inside = directory(Path::new(FOLDERS), id).join(DATA);
        match open.directory(&inside) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            found => drop(found?),
        }
        self.link_on(volume, id)?;
        Ok(true)
    }

    /// The folders into which something was written that no count knows yet, where the kernel holds no limit.
    pub fn written(&self) -> BTreeSet<FolderId> {
        self.counted.written()
    }

    /// Takes in what is known of folders whose limit the kernel does not hold: what is written to them is held to it from now
    /// on. O(folders of the owner).
    pub fn tell_counted(&self, told: CountedScope) {
        self.counted.tell(told);
    }

    /// Holds a folder that counts on no other limit to none of its own any more.
    pub fn forget_counted(&self, id: FolderId) {
        self.counted.forget(id);
    }

    /// The scope of a limit, whether it is there or not.
    pub fn scope(&self, owner: impl Into<ScopeOwner>) -> ScopePlace {
        ScopePlace::of(&self.data, owner)
    }

    /// All scopes that were ever made here, each with whose limit it is held to, in no order.
    pub fn scopes(&self) -> io::Result<Vec<(ScopeOwner, ScopePlace)>> {
        ScopePlace::all(&self.data)
    }

    /// Makes the directory of a folder, and keeps it over a loss of power. Does nothing where there is one.
    ///
    /// `is_home`: a home, which only its owner reads inside, as programs ask of one. `limit`: which scope it lies in; None, or
    /// on a machine that holds no limits, in none.
    pub fn create(
        &self,
        id: FolderId,
        is_home: bool,
        limit: Option<FolderLimit>,
    ) -> io::Result<()> {
        let place = directory(&self.folders, id);
        let shard = place.parent().unwrap_or(&self.folders);
        make(shard)?;
        let limit = limit.filter(|_| self.keeper.enforcement().is_enforced());
        if let Some(limit) = limit.filter(|_| place.symlink_metadata().is_err()) {
            let scope = self.scope(limit.owner);
            // Held until the link stands, by which the folder is found from then on.
            let _lease = self.keeper.enter(&scope, Some(limit.bytes))?;
            // Made while there is room: a full scope must be able to throw something away.
            make(&scope.files().join(TRASH))?;
            let own = scope.files().join(id.to_string());
            let inside = own.strip_prefix(&self.folders).map_err(io::Error::other)?;
            match symlink(Path::new("..").join(inside), &place) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        let found = match self.find(id)? {
            Some(found) => found,
            None => {
                make(&place)?;
                self.plain(id)
            }
        };
        let own = found.own.as_path();
        let spare = found.scope.as_ref();
        let spare = spare.map(|(scope, _)| scope.files().join(SPARE));
        match (make(own), &spare) {
            // A full scope keeps no session from its home.
            (Err(error), Some(spare)) if is_full(&error) => {
                fs::rename(spare, own).map_err(|_| error)?;
            }
            (made, _) => made?,
        }
        let data = found.data();
        make(&data)?;
        if found.scope.is_some() {
            // Made while there is room: what fills a scope is removed through it.
            let _ = make(&found.removed());
        }
        match is_home {
            true => {
                give(&data)?;
                fs::set_permissions(&data, Permissions::from_mode(0o700))?;
            }
            false => open_to_all(&data)?,
        }
        let above = own.parent().unwrap_or(&self.folders);
        for changed in [data.as_path(), own, above, shard, self.folders.as_path()] {
            File::open(changed)?.sync_all()?;
        }
        if let Some(spare) = spare {
            // Where there is no room for it, there is one the next time.
            let _ = make(&spare)
                .and_then(|()| make(&spare.join(DATA)))
                .and_then(|()| make(&spare.join(REMOVED)));
        }
        Ok(())
    }

    /// Where a folder is; None where it has neither a directory nor a link. Its scope is entered, its own directory may be
    /// missing there.
    fn find(&self, id: FolderId) -> io::Result<Option<FoundFolder>> {
        let place = directory(&self.folders, id);
        if let Some((scope, own)) = linked(&place) {
            let lease = self.keeper.enter(&scope, None)?;
            return Ok(Some(FoundFolder {
                own,
                pool: self.pool_of(&scope),
                scope: Some((scope, lease)),
                volume: None,
                keeper: Arc::clone(&self.keeper),
                count: None,
            }));
        }
        if let Some(volume) = on_volume(&place) {
            let open = self.volumes.enter(volume)?;
            let inside = directory(Path::new(FOLDERS), id);
            match open.directory(&inside) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            return Ok(Some(FoundFolder {
                own: open.path().join(inside),
                pool: None,
                scope: None,
                volume: Some(open),
                keeper: Arc::clone(&self.keeper),
                count: self.counted.of(id),
            }));
        }
        match place.symlink_metadata() {
            Ok(_) => Ok(Some(self.plain(id))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Where a folder is that lies in no scope, whether it is there or not.
    fn plain(&self, id: FolderId) -> FoundFolder {
        FoundFolder {
            own: directory(&self.folders, id),
            pool: None,
            scope: None,
            volume: None,
            keeper: Arc::clone(&self.keeper),
            count: self.counted.of(id),
        }
    }

    /// Where the pool is that a scope lies in; None where it lies in none. Costs one look.
    fn pool_of(&self, scope: &ScopePlace) -> Option<PathBuf> {
        scope.is_pooled().then(|| PoolPlace::of(&self.data).files())
    }

    /// Where the files of a folder are. Of one that is not there nothing is found below it.
    fn place_of(&self, id: FolderId) -> Result<FoundFolder, FolderError> {
        let found = self.find(id).map_err(failure::fault("enter a folder"))?;
        Ok(found.unwrap_or_else(|| self.plain(id)))
    }

    /// Whether a folder can be looked into without a mount.
    pub fn is_near(&self, id: FolderId) -> bool {
        if let Some(volume) = self.volume_of(id) {
            let state = self.volumes.sight(volume).map(|sight| sight.state);
            return state == Some(VolumeState::Ready);
        }
        linked(&directory(&self.folders, id)).is_none_or(|(scope, _)| scope.is_reachable())
    }

    /// Whether the directory of a folder is there; not where its scope cannot be entered.
    pub fn has(&self, id: FolderId) -> bool {
        let found = self.find(id).ok().flatten();
        found.is_some_and(|found| found.data().is_dir())
    }

    /// Removes a folder's directory where nothing lies in it; fine where there is none.
    ///
    /// Errors: what the kernel says, `ENOTEMPTY` where something does: then all of it stays.
    pub fn remove_empty(&self, id: FolderId) -> io::Result<()> {
        let Some(found) = self.find(id)? else {
            return Ok(());
        };
        let fine = |gone: io::Result<()>| match gone {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
        for path in [
            found.staging(),
            found.removed(),
            found.snapshots(),
            found.data(),
        ] {
            fine(fs::remove_dir(path))?;
        }
        fine(fs::remove_file(found.own.join(SITE)))?;
        fine(fs::remove_dir(&found.own))?;
        match found.scope.is_some() || found.volume.is_some() {
            true => unlink(&directory(&self.folders, id)),
            false => Ok(()),
        }
    }

    /// Takes a folder's directory away: one rename, however much lies in it. `empty` removes it.
    pub fn throw(&self, id: FolderId) -> io::Result<Thrown> {
        let Some(found) = self.find(id)? else {
            return Ok(Thrown::Nothing);
        };
        // A rename leads into no other file system: a scope has a trash of its own, and a volume.
        let trash = match (&found.scope, &found.volume) {
            (Some((scope, _)), _) => Trash::open(&scope.files().join(TRASH))?,
            (None, Some(volume)) => Trash::open(&volume_trash(volume))?,
            (None, None) => return self.trash.throw(&found.own),
        };
        if trash.throw(&found.own)? == Thrown::Stays {
            // Its trash has no room for one more name: what lies in the folder goes where it is.
            trees::remove(&found.own)?;
        }
        unlink(&directory(&self.folders, id))?;
        Ok(Thrown::Away)
    }

    /// Removes what was thrown away; `go_on` is asked between two folders. Says of the rest why it stays, in the log alone.
    pub fn empty(&self, go_on: impl Fn() -> bool) -> io::Result<()> {
        let told = |kept: BTreeMap<PathBuf, io::Error>| {
            for (path, error) in kept {
                tracing::warn!(path = %path.display(), %error, "a removed folder stays on the disk");
            }
        };
        told(self.trash.empty(&go_on)?);
        for (_, scope) in self.scopes()? {
            if !go_on() {
                break;
            }
            // What is not mounted has nothing new in its trash, but for what a loss of power left there: that goes with
            // the next folder that is thrown away.
            let trash = scope.files().join(TRASH);
            if !scope.is_reachable() || !trash.is_dir() {
                continue;
            }
            match self.keeper.enter(&scope, None) {
                Ok(_lease) => told(Trash::open(&trash)?.empty(&go_on)?),
                Err(error) => {
                    let path = scope.directory().display();
                    tracing::warn!(%path, %error, "the trash of a scope cannot be emptied");
                }
            }
        }
        Ok(())
    }

    /// Gives the room of what was thrown away from one scope back; fine where there is none. May take long.
    pub fn empty_scope(&self, owner: impl Into<ScopeOwner>) -> io::Result<()> {
        let scope = self.scope(owner);
        if !scope.directory().is_dir() {
            return Ok(());
        }
        let _lease = match self.keeper.enter(&scope, None) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            lease => lease?,
        };
        let trash = scope.files().join(TRASH);
        if !trash.is_dir() {
            return Ok(());
        }
        for (path, error) in Trash::open(&trash)?.empty(|| true)? {
            tracing::warn!(path = %path.display(), %error, "a removed folder stays on the disk");
        }
        Ok(())
    }

    /// The same as `empty` on one volume, where it is ready. Callers bring a thread that may wait for it.
    ///
    /// Errors: `volume.absent`, `volume.hung`, each carried.
    pub fn empty_volume(&self, id: VolumeId) -> io::Result<()> {
        let volume = self.volumes.enter(id)?;
        let trash = volume_trash(&volume);
        if !trash.is_dir() {
            return Ok(());
        }
        let kept = Trash::open(&trash)?.empty(|| true)?;
        for error in kept.values() {
            tracing::warn!(volume = %id, %error, "a removed folder stays on a volume");
        }
        Ok(())
    }

    /// Counts what a folder takes of the disk, its own directory and uploads under way included, and no snapshot; at most `most`
    /// names. Costs a visit of each file.
    pub fn measure(&self, id: FolderId, most: u64) -> io::Result<Size> {
        let found = self.find(id)?.unwrap_or_else(|| self.plain(id));
        let mut size = trees::measure(&found.data(), most)?;
        for more in [found.staging(), found.removed()] {
            // Names there are not the owner's.
            let more = trees::measure(&more, most)?;
            size.bytes = size.bytes.saturating_add(more.bytes);
        }
        Ok(size)
    }

    /// The same without what is not in its place: uploads under way, and what was removed.
    pub fn measure_files(&self, id: FolderId, most: u64) -> io::Result<Size> {
        let found = self.find(id)?.unwrap_or_else(|| self.plain(id));
        trees::measure(&found.data(), most)
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

    /// One page of a directory of a folder in another order than by name.
    ///
    /// Errors: as `list`; `folder.sort-too-many`.
    pub fn list_sorted(
        &self,
        id: FolderId,
        path: &FolderPath,
        query: &SortedQuery,
    ) -> Result<OrderedPage, FolderError> {
        ordered::list(&self.top(id)?, path, query)
    }

    /// What is called so below a directory, page by page.
    ///
    /// Errors: as `list`.
    pub fn search(
        &self,
        id: FolderId,
        path: &FolderPath,
        query: &SearchQuery,
    ) -> Result<SearchPage, FolderError> {
        search::search(&self.top(id)?, path, query)
    }

    /// What the directories in a directory take: as it was counted lately, or now where that is asked for.
    ///
    /// Errors: as `list`.
    pub fn subfolders(
        &self,
        id: FolderId,
        path: &FolderPath,
        now: Timestamp,
        fresh: bool,
    ) -> Result<Arc<SubfolderCount>, FolderError> {
        let top = self.top(id)?;
        // Of what is gone, or became a link, no count is told.
        top.directory(path)?;
        let kept = self.counts.find(id, path, now).filter(|_| !fresh);
        if let Some(count) = kept {
            return Ok(count);
        }
        let count = Arc::new(subfolders::count(&top, path, now)?);
        self.counts.keep(id, path, Arc::clone(&count));
        Ok(count)
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
    /// Errors: as `list`; `folder.new-name-invalid`, `folder.entry-exists`, `quota.exceeded`, `disk.full`.
    pub fn make_directory(&self, id: FolderId, path: &FolderPath) -> Result<(), FolderError> {
        path.check_new()?;
        let found = self.place_of(id)?;
        staging::refuse_full_disk(found.disk(&self.folders), 0)?;
        let top = found.top()?;
        found.refuse_beyond_limit(1)?;
        files::make_directory(&top, path).map_err(|error| found.told(error))
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
        let found = self.place_of(id)?;
        files::move_entry(&found.top()?, from, to).map_err(|error| found.told(error))
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
        let found = self.place_of(id)?;
        let trash = made_trash(&found)?;
        removed::take(&found.top()?, path, &trash, now).map_err(|error| found.told(error))
    }

    /// Takes a file, a link, or a directory with all below it away for good: one rename. `empty_removed` gives the room back.
    ///
    /// Errors: as `list`.
    pub fn remove_for_good(&self, id: FolderId, path: &FolderPath) -> Result<(), FolderError> {
        refuse_top(path)?;
        let found = self.place_of(id)?;
        let trash = made_trash(&found)?;
        removed::take_for_good(&found.top()?, path, &trash).map_err(|error| found.told(error))
    }

    /// What lies in the folder's trash, newest first.
    pub fn removed(&self, id: FolderId) -> Result<Vec<RemovedEntry>, FolderError> {
        removed::list(&self.place_of(id)?.removed())
    }

    /// What lies in the folder's trash, oldest first, at most so many.
    pub fn oldest_removed(
        &self,
        id: FolderId,
        most: usize,
    ) -> Result<Vec<RemovedEntry>, FolderError> {
        removed::oldest(&self.place_of(id)?.removed(), most)
    }

    /// What one of `removed` takes of the disk; 0 where it is none. Looks at no more than `most` names.
    pub fn removed_size(&self, id: FolderId, item: Uuid, most: u64) -> Result<u64, FolderError> {
        let size = removed::size(&self.place_of(id)?.removed(), item, most);
        size.map_err(failure::fault("measure a removed file"))
    }

    /// Puts one of `removed` back where it was, with the directories above it, and gives its path. Never over another one.
    ///
    /// Errors: `folder.removed-not-found`, `folder.entry-exists`, `folder.entry-link`, `quota.exceeded`, `disk.full`.
    pub fn restore_entry(&self, id: FolderId, item: Uuid) -> Result<FolderPath, FolderError> {
        let found = self.place_of(id)?;
        let told = |error| found.told(error);
        removed::restore(&found.top()?, &found.removed(), item, &told)
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
        let found = self.place_of(id)?;
        let trash = found.removed();
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
        let found = self.place_of(id)?;
        removed::purge_before(&found.removed(), Some(since), now)
    }

    /// Gives the room of what was removed from a folder for good back. May take long.
    pub fn empty_removed(&self, id: FolderId) -> io::Result<()> {
        let Some(found) = self.find(id)? else {
            return Ok(());
        };
        removed::empty(&found.removed())
    }

    /// Whether the room of all that was removed from a folder for good is given back.
    pub fn is_emptied(&self, id: FolderId) -> io::Result<bool> {
        match self.find(id)? {
            Some(found) => removed::is_emptied(&found.removed()),
            None => Ok(true),
        }
    }

    /// An archive of directories and files, one at least; `name` is what one alone is called in it.
    ///
    /// Errors: as `list`; `folder.archive-too-many` for a zip.
    pub fn archive(
        &self,
        id: FolderId,
        paths: &[FolderPath],
        name: &str,
        format: ArchiveFormat,
    ) -> Result<FolderArchive, FolderError> {
        FolderArchive::open(self.top(id)?, paths, name, format)
    }

    fn top(&self, id: FolderId) -> Result<FolderTop, FolderError> {
        self.place_of(id)?.top()
    }

    /// The folders whose directories are here, each with the time when it was made or changed last.
    pub fn all(&self) -> io::Result<Vec<(FolderId, SystemTime)>> {
        listed(&self.folders)
    }

    /// The folders whose directories are on a volume, whether a link leads there or not, without those of other sites that no
    /// row names. Callers bring a thread that may wait for it. Costs a small read of each that is not `known`.
    ///
    /// Errors: `volume.absent`, `volume.hung`, each carried.
    pub fn all_on(
        &self,
        volume: VolumeId,
        known: &BTreeSet<FolderId>,
    ) -> io::Result<BTreeSet<FolderId>> {
        let open = self.volumes.enter(volume)?;
        let mut all = ids_below(open.root())?;
        // What cannot be read is named: an administrator looks at it.
        all.retain(|id| known.contains(id) || !self.is_of_other(&open, *id).unwrap_or(false));
        Ok(all)
    }
}

/// What lies in a directory of folders, as `FolderStore::all` tells of it.
fn listed(folders: &Path) -> io::Result<Vec<(FolderId, SystemTime)>> {
    let mut all = Vec::new();
    for shard in fs::read_dir(folders)? {
        let shard = shard?;
        let is_hidden = shard.file_name().as_encoded_bytes().starts_with(b".");
        if is_hidden || !shard.file_type()?.is_dir() {
            continue;
        }
        for own in fs::read_dir(shard.path())? {
            let own = own?;
            let name = own.file_name();
            let id = name.to_str().and_then(|name| name.parse::<FolderId>().ok());
            // It may be gone since it was listed. A link has a time of its own.
            if let (Some(id), Ok(found)) = (id, own.path().symlink_metadata()) {
                all.push((id, found.modified()?));
            }
        }
    }
    Ok(all)
}

/// The ids that name directories of folders below the root of a volume: none where there are none. What is no directory of ours
/// is passed over; no link is followed, and no other file system entered.
fn ids_below(root: BorrowedFd<'_>) -> io::Result<BTreeSet<FolderId>> {
    let mut all = BTreeSet::new();
    let folders = match directory_below(root, Path::new(FOLDERS)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(all),
        folders => folders?,
    };
    for shard in entries_of(&folders)? {
        let shard = shard?.file_name();
        if shard.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let shard = Path::new(&shard);
        let opened = match directory_below(folders.as_fd(), shard) {
            Err(error) if is_foreign(&error) => continue,
            opened => opened?,
        };
        for own in entries_of(&opened)? {
            let own = own?;
            let name = own.file_name();
            let id = name.to_str().and_then(|name| name.parse::<FolderId>().ok());
            let is_directory = own.file_type().is_ok_and(|kind| kind.is_dir());
            let place = shard.join(&name);
            let is_at_its_place = id.is_some_and(|id| directory(Path::new(""), id) == place);
            all.extend(id.filter(|_| is_directory && is_at_its_place));
        }
    }
    Ok(all)
}

fn entries_of(open: &OwnedFd) -> io::Result<fs::ReadDir> {
    fs::read_dir(format!("/proc/self/fd/{}", open.as_raw_fd()))
}

/// Whether what was to be opened is no directory of its file system: a link, a file, a mount; or gone by now.
fn is_foreign(error: &io::Error) -> bool {
    let foreign = [Errno::LOOP, Errno::XDEV, Errno::NOTDIR, Errno::NOENT];
    Errno::from_io_error(error).is_some_and(|errno| foreign.contains(&errno))
}

fn made_trash(found: &FoundFolder) -> Result<PathBuf, FolderError> {
    let trash = found.removed();
    let made = make(&trash).map_err(failure::fault("make room for what is removed"));
    made.map_err(|error| found.told(error))?;
    Ok(trash)
}

fn refuse_top(path: &FolderPath) -> Result<(), FolderError> {
    match path.is_top() {
        true => Err(refusals::folder_path_invalid(MAX_FOLDER_PATH).into()),
        false => Ok(()),
    }
}

/// Whether it is for want of room, on the disk or within a limit, that something was not made.
pub fn is_full(error: &io::Error) -> bool {
    let kind = error.kind();
    matches!(
        kind,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Removes a link of ours, and keeps that over a loss of power; fine where there is none.
fn unlink(place: &Path) -> io::Result<()> {
    match fs::remove_file(place) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    match place.parent() {
        Some(shard) => File::open(shard)?.sync_all(),
        None => Ok(()),
    }
}

/// Where folders of a volume lie that were thrown away.
fn volume_trash(volume: &OpenVolume) -> PathBuf {
    volume.path().join(FOLDERS).join(TRASH)
}

/// Gives a directory to the first user inside sessions.
fn give(data: &Path) -> io::Result<()> {
    match rustix::process::geteuid().is_root() {
        true => chown(data, Some(FIRST_OWNER), Some(FIRST_OWNER)),
        false => Ok(()),
    }
}

/// The same, with what lets all users inside read and write it.
fn open_to_all(data: &Path) -> io::Result<()> {
    give(data)?;
    match rustix::fs::setxattr(data, DEFAULT_ACCESS, &OPEN_TO_ALL, XattrFlags::empty()) {
        // Modes alone decide on a file system without access lists.
        Ok(()) | Err(Errno::OPNOTSUPP) => {}
        Err(error) => return Err(error.into()),
    }
    fs::set_permissions(data, Permissions::from_mode(0o777))
}

fn make(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use rules::names::UserId;
    use rules::storage::StorageEnforcement;

    use super::*;
    use crate::quota::{ScopeLease, ScopeUse};

    const ID: FolderId = FolderId(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_00ab));

    fn opened() -> (tempfile::TempDir, FolderStore) {
        let data = tempfile::tempdir().expect("a directory");
        let store = FolderStore::open(data.path()).expect("a store");
        (data, store)
    }

    #[test]
    fn a_folder_has_a_directory_that_its_id_names() {
        let (data, store) = opened();
        store.create(ID, false, None).expect("made");
        store
            .create(ID, false, None)
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
        store.create(ID, false, None).expect("made");
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
        store.create(ID, true, None).expect("made");
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

    /// Holds nothing, and lets folders lie in scopes.
    #[derive(Debug)]
    struct PlainScopes;

    impl ScopeKeeper for PlainScopes {
        fn enforcement(&self) -> StorageEnforcement {
            StorageEnforcement::Image
        }

        fn enter(&self, scope: &ScopePlace, limit: Option<Bytes>) -> io::Result<ScopeLease> {
            if let Some(limit) = limit {
                scope.make()?;
                scope.keep_limit(limit)?;
            }
            match scope.files().is_dir() {
                true => Ok(ScopeLease::default()),
                false => Err(io::ErrorKind::NotFound.into()),
            }
        }

        fn hold_to(&self, scope: &ScopePlace, limit: Bytes) -> io::Result<()> {
            scope.keep_limit(limit)
        }

        fn measure(&self, scope: &ScopePlace) -> io::Result<Option<ScopeUse>> {
            scope.kept_use()
        }

        fn remove_empty(&self, _: &ScopePlace) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_folder_with_a_limit_lies_in_the_scope_of_its_owner() {
        const OWNER: UserId = UserId(Uuid::from_u128(7));
        let data = tempfile::tempdir().expect("a directory");
        let keeper: Arc<dyn ScopeKeeper> = Arc::new(PlainScopes);
        let store = FolderStore::limited(data.path(), keeper).expect("a store");
        let bytes = Bytes::gib(1);
        let limit = Some(FolderLimit {
            owner: OWNER.into(),
            bytes,
        });
        for _ in 0..2 {
            store
                .create(ID, false, limit)
                .expect("made, and made again");
        }
        let scope = store.scope(OWNER);
        assert_eq!(scope_of(data.path(), ID), Some(scope.clone()));
        assert_eq!(scope.limit().expect("kept"), Some(bytes));
        let mounted = mounted_directory(data.path(), ID);
        let real = mounted.canonicalize().expect("there");
        let around = ScopePlace::around(&real).expect("a scope");
        let files = scope.files().canonicalize().expect("there");
        assert_eq!(around.files(), files);
        assert_eq!(mounted.metadata().expect("there").mode() & 0o777, 0o777);
        fs::write(mounted.join("a"), "text").expect("written");
        assert!(store.has(ID) && store.measure(ID, 100).expect("counted").entries >= 1);
        store.remove_empty(ID).expect_err("not empty");
        let all = store.all().expect("a list");
        assert_eq!(all.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [ID]);
        assert_eq!(store.throw(ID).expect("thrown"), Thrown::Away);
        assert!(!store.has(ID) && store.all().expect("a list").is_empty());
        assert_eq!(store.throw(ID).expect("nothing there"), Thrown::Nothing);
        let left = || fs::read_dir(scope.files().join(TRASH)).expect("a trash");
        assert_eq!(left().count(), 1, "it is removed later");
        store.create(ID, true, limit).expect("made once more");
        store.remove_empty(ID).expect("removed, and its link");
        assert_eq!(scope_of(data.path(), ID), None);
    }

    #[test]
    fn files_go_into_a_scope_until_it_is_full() {
        const OWNER: UserId = UserId(Uuid::from_u128(7));
        let data = tempfile::tempdir().expect("a directory");
        let keeper: Arc<dyn ScopeKeeper> = Arc::new(PlainScopes);
        let store = FolderStore::limited(data.path(), keeper).expect("a store");
        let bytes = Bytes::gib(1);
        let limit = FolderLimit {
            owner: OWNER.into(),
            bytes,
        };
        store.create(ID, false, Some(limit)).expect("made");
        let scope = store.scope(OWNER);
        let own = scope.files().join(ID.to_string());
        assert!(own.join(REMOVED).is_dir(), "made while there is room");
        let path = |text: &str| FolderPath::parse(text).expect(text);
        store.make_directory(ID, &path("a")).expect("made");
        let now = Timestamp::from_millis(4_000_000_000_000);
        let declared = staging::DeclaredFile {
            path: "a/file".to_owned(),
            bytes: Some(4),
            overwrite: false,
            version: None,
            modified_at: None,
            by: None,
        };
        let staged = store.stage(ID, &path("a/file"), declared, now);
        let upload = staged.expect("begun").id;
        assert_eq!(fs::read_dir(own.join(STAGING)).expect("there").count(), 2);
        let mut writer = store.append(ID, upload, 0, None).expect("begun");
        writer.write(b"text").expect("written");
        writer.finish(true).expect("kept");
        assert!(store.place(ID, upload).expect("in its place"));
        let file = mounted_directory(data.path(), ID).join("a/file");
        assert_eq!(fs::read_to_string(&file).expect("there"), "text");
        store.remove_entry(ID, &path("a"), now).expect("removed");
        assert_eq!(store.removed(ID).expect("a list").len(), 1);
        store.purge_removed(ID, None, now).expect("purged");
        store.empty_removed(ID).expect("emptied");
        assert_eq!(fs::read_dir(own.join(REMOVED)).expect("there").count(), 0);
        let found = store.place_of(ID).expect("there");
        let told = || found.told(refusals::disk_full().into());
        assert_eq!(told().code(), Some("disk.full"));
        let taken = ScopeUse {
            used: bytes,
            limit: bytes,
            files: 1,
            max_files: 0,
            at: 5,
        };
        scope.keep_use(&taken).expect("kept");
        assert_eq!(told().code(), Some("quota.exceeded"));
        let plain = store.plain(ID).told(refusals::disk_full().into());
        assert_eq!(plain.code(), Some("disk.full"), "it has no limit");
    }

    #[test]
    fn a_folder_moves_into_the_scope_of_its_next_owner() {
        const OWNER: UserId = UserId(Uuid::from_u128(7));
        const NEXT: UserId = UserId(Uuid::from_u128(8));
        let data = tempfile::tempdir().expect("a directory");
        let keeper: Arc<dyn ScopeKeeper> = Arc::new(PlainScopes);
        let store = FolderStore::limited(data.path(), keeper).expect("a store");
        let [limit, next] = [OWNER, NEXT].map(|owner| FolderLimit {
            owner: owner.into(),
            bytes: Bytes::gib(1),
        });
        store.create(ID, false, Some(limit)).expect("made");
        let file = mounted_directory(data.path(), ID).join("file");
        fs::write(&file, "text").expect("written");
        for _ in 0..2 {
            store
                .rehome(ID, OWNER.into(), next, &mut |_| Ok(()))
                .expect("moved, and found there");
        }
        assert_eq!(scope_of(data.path(), ID), Some(store.scope(NEXT)));
        assert_eq!(fs::read_to_string(&file).expect("there"), "text");
        let left = store.scope(OWNER).files().join(ID.to_string());
        assert!(!left.exists(), "it counts on one owner alone");
        let ended = store.rehome(ID, NEXT.into(), limit, &mut |_| {
            Err(refusals::folder_copy_cancelled().into())
        });
        let ended = ended.expect_err("cancelled");
        assert_eq!(ended.code(), Some("folder.copy-cancelled"));
        assert!(left.exists(), "half-made");
        let give_up = || store.give_up_rehome(ID, NEXT.into(), OWNER.into());
        give_up().expect("removed");
        assert!(!left.exists());
        assert_eq!(scope_of(data.path(), ID), Some(store.scope(NEXT)));
        assert_eq!(fs::read_to_string(&file).expect("there"), "text");
        store
            .rehome(ID, NEXT.into(), limit, &mut |_| Ok(()))
            .expect("moved");
        let former = store.scope(NEXT).files().join(ID.to_string());
        fs::create_dir(&former).expect("as a crash leaves it");
        give_up().expect("it stays where it is");
        assert!(left.exists() && !former.exists());
    }

    #[test]
    fn a_folder_moves_to_a_limit_of_its_own_and_back() {
        const OWNER: UserId = UserId(Uuid::from_u128(7));
        let data = tempfile::tempdir().expect("a directory");
        let keeper: Arc<dyn ScopeKeeper> = Arc::new(PlainScopes);
        let store = FolderStore::limited(data.path(), keeper).expect("a store");
        let limit = |owner: ScopeOwner, bytes| FolderLimit { owner, bytes };
        let of_owner = limit(OWNER.into(), Bytes::gib(2));
        let own = limit(ID.into(), Bytes::gib(1));
        store.create(ID, true, Some(of_owner)).expect("made");
        let mounted = mounted_directory(data.path(), ID);
        fs::write(mounted.join("file"), "text").expect("written");
        for (before, to) in [(of_owner, own), (own, of_owner)] {
            store
                .rehome(ID, before.owner, to, &mut |_| Ok(()))
                .expect("moved");
            let scope = store.scope(to.owner);
            assert_eq!(scope_of(data.path(), ID), Some(scope.clone()));
            assert_eq!(scope.limit().expect("kept"), Some(to.bytes));
            let text = fs::read_to_string(mounted.join("file"));
            assert_eq!(text.expect("there"), "text");
            let mode = mounted.metadata().expect("there").mode();
            assert_eq!(mode & 0o777, 0o700, "a home stays one");
            let left = store.scope(before.owner).files();
            for left in [left.join(TRASH), left.join(ID.to_string())] {
                let names = fs::read_dir(&left).map_or(0, Iterator::count);
                assert_eq!(names, 0, "it takes no room of the former limit");
            }
        }
        let owners: Vec<ScopeOwner> = store
            .scopes()
            .expect("a list")
            .into_iter()
            .map(|(owner, _)| owner)
            .collect();
        assert!(owners.contains(&ID.into()) && owners.contains(&OWNER.into()));
    }

    #[test]
    fn what_is_written_where_nothing_holds_a_limit_is_held_to_the_count() {
        const OWNER: UserId = UserId(Uuid::from_u128(7));
        let (data, store) = opened();
        store.create(ID, false, None).expect("made");
        let path = |text: &str| FolderPath::parse(text).expect(text);
        store.make_directory(ID, &path("a")).expect("not told yet");
        let told = |used| {
            store.tell_counted(CountedScope {
                owner: OWNER.into(),
                limit: Bytes(1000),
                used: Bytes(used),
                counts: [(ID, None)].into(),
            });
        };
        told(990);
        let declared = |bytes| staging::DeclaredFile {
            path: "file".to_owned(),
            bytes: Some(bytes),
            overwrite: false,
            modified_at: None,
            version: None,
            by: None,
        };
        let now = Timestamp::from_millis(4_000_000_000_000);
        let refused = store.stage(ID, &path("file"), declared(11), now);
        let refused = refused.expect_err("it does not fit");
        assert_eq!(refused.code(), Some("quota.exceeded"));
        let upload = store.stage(ID, &path("file"), declared(10), now);
        let upload = upload.expect("it fits").id;
        let mut writer = store.append(ID, upload, 0, None).expect("begun");
        writer.write(b"0123456789").expect("written");
        writer.finish(true).expect("kept");
        assert!(store.place(ID, upload).expect("in its place"));
        let refused = store.make_directory(ID, &path("b"));
        let refused = refused.expect_err("what was written counts");
        assert_eq!(refused.code(), Some("quota.exceeded"));
        store.remove_entry(ID, &path("file"), now).expect("removed");
        assert!(mounted_directory(data.path(), ID).join("a").is_dir());
    }

    #[test]
    fn a_folder_whose_volume_is_gone_is_refused_and_makes_nothing_elsewhere() {
        let (data, store) = opened();
        let volume = VolumeId(Uuid::from_u128(9));
        let below = data.path().join("mnt");
        fs::create_dir(&below).expect("made");
        store.volumes().keep(volume, &below).expect("kept");
        let error = store.create_on(volume, ID, None).expect_err("not mounted");
        let told = crate::volumes::refusal_of(&error).map(|refusal| refusal.code);
        assert_eq!(told.as_deref(), Some("volume.absent"));
        store.find_again(volume, ID).expect_err("not mounted");
        store
            .all_on(volume, &BTreeSet::new())
            .expect_err("not mounted");
        store.is_of_other_site(volume, ID).expect_err("not mounted");
        assert_eq!(store.volume_of(ID), None);
        let place = directory(&data.path().join(FOLDERS), ID);
        fs::create_dir_all(place.parent().expect("a shard")).expect("made");
        let inside = format!("../.volumes/{volume}/folders/ab/{ID}");
        symlink(inside, &place).expect("a link");
        assert_eq!(store.volume_of(ID), Some(volume));
        assert_eq!(volume_of(data.path(), ID), Some(volume));
        assert_eq!(scope_of(data.path(), ID), None);
        assert!(!store.has(ID) && !store.is_near(ID));
        let again = store.find_again(volume, ID);
        assert!(!again.expect("no look at the volume"), "it has its link");
        let path = FolderPath::parse("a").expect("a path");
        let refused = store.make_directory(ID, &path).expect_err("not mounted");
        assert_eq!(refused.code(), Some("volume.absent"));
        store.throw(ID).expect_err("not mounted");
        assert_eq!(store.volume_of(ID), Some(volume), "its link stays");
        assert_eq!(fs::read_dir(&below).expect("there").count(), 0);
        let all = store.all().expect("a list");
        assert_eq!(all.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [ID]);
    }

    #[test]
    fn only_directories_at_their_own_place_are_folders_of_a_volume() {
        let root = tempfile::tempdir().expect("a directory");
        let folders = root.path().join(FOLDERS);
        let top = File::open(root.path()).expect("open");
        assert!(ids_below(top.as_fd()).expect("none yet").is_empty());
        fs::create_dir_all(directory(&folders, ID)).expect("made");
        for strange in ["ab/x", ".trash/x", "cd"] {
            fs::create_dir_all(folders.join(strange)).expect("made");
        }
        // Nothing would ever find it there.
        fs::create_dir_all(folders.join("cd").join(ID.to_string())).expect("made");
        let linked = FolderId(Uuid::from_u128(0xab));
        symlink("/etc", directory(&folders, linked)).expect("a link");
        fs::write(folders.join("file"), "").expect("written");
        let outside = tempfile::tempdir().expect("a directory");
        let other = FolderId(Uuid::from_u128(0xef));
        fs::create_dir(outside.path().join(other.to_string())).expect("made");
        symlink(outside.path(), folders.join("ef")).expect("a link");
        let all = ids_below(top.as_fd()).expect("a list");
        assert_eq!(all, BTreeSet::from([ID]), "no link is followed");
        fs::rename(&folders, root.path().join("elsewhere")).expect("moved");
        symlink("elsewhere", &folders).expect("a link");
        ids_below(top.as_fd()).expect_err("it is no directory of ours");
    }

    #[test]
    fn a_plain_folder_stays_where_it_is_once_there_are_limits() {
        const OWNER: UserId = UserId(Uuid::from_u128(7));
        let (data, store) = opened();
        store.create(ID, false, None).expect("made");
        drop(store);
        let keeper: Arc<dyn ScopeKeeper> = Arc::new(PlainScopes);
        let store = FolderStore::limited(data.path(), keeper).expect("a store");
        let limit = FolderLimit {
            owner: OWNER.into(),
            bytes: Bytes::gib(1),
        };
        store.create(ID, false, Some(limit)).expect("it is there");
        assert_eq!(scope_of(data.path(), ID), None);
        assert!(store.has(ID));
    }

    #[test]
    fn nothing_but_what_lies_below_a_folder_is_opened() {
        let (data, store) = opened();
        store.create(ID, false, None).expect("made");
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
