//! The pool: one XFS that counts by projects, in one file whose blocks are set aside on the disk, for the scopes of all owners.
//! Each scope is a directory of it with a number and a limit, mounted where its folders lie while something needs it. Grows
//! while it is in use and never shrinks.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use rules::storage::{DiskRoom, MIN_POOL, PoolSetting, PoolUse, first_pool, named_pool};
use rules::units::Bytes;
use store::quota::ScopePlace;
use store::quota::pool::PoolPlace;

use super::loop_device::{LoopDevice, attach};
use super::project;

pub(super) mod first_writes;

use first_writes::{FirstWrites, FirstWritesEnd};

/// Requests of `linux/xfs_fs.h`.
const GET_GEOMETRY: libc::Ioctl = 0x8070_5864u32 as libc::Ioctl;
const GROW: libc::Ioctl = 0x4010_586eu32 as libc::Ioctl;
/// What is asked of the mounted pool: it counts and holds by projects, and all pools have one and the same identity.
const OPTIONS: &str = "prjquota,nouuid";
/// The kernel's word for a file system whose tables of files have no bound of their own.
const FILES_UNBOUNDED: u32 = 0;
/// Parts of the file system that are as large as those it was made with. More: each mount reads a block of each of them. Fewer:
/// a small pool cannot grow with its site.
const MAX_GROUPS: u64 = 1024;

/// Where in the pool lies what single sessions write outside their folders, and what is to be removed of it.
const SESSIONS: &str = ".sessions";
const REMOVED: &str = ".removed";
/// The first number of a session: far from those of scopes, and given again once nothing has it, since the kernel keeps a record
/// of each number for good.
const FIRST_OF_SESSIONS: u32 = project::FIRST + (1 << 30);

/// The kernel's `struct xfs_fsop_geom_v1`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Geometry {
    block: u32,
    realtime_extent: u32,
    group_blocks: u32,
    groups: u32,
    log_blocks: u32,
    sector: u32,
    inode: u32,
    inode_percent: u32,
    blocks: u64,
    realtime: [u64; 2],
    log_start: u64,
    identity: [u8; 16],
    rest: [u32; 7],
}

/// The kernel's `struct xfs_growfs_data`.
#[repr(C)]
struct Growth {
    blocks: u64,
    inode_percent: u32,
}

const _: () = assert!(size_of::<Geometry>() == 112);
const _: () = assert!(size_of::<Growth>() == 16);

/// The pool of one data directory.
#[derive(Debug)]
pub(super) struct FolderPool {
    data: PathBuf,
    place: PoolPlace,
    setting: OnceLock<PoolSetting>,
    /// Held while it is made, mounted, grown or let go of; true once it was let go of for good.
    changing: Mutex<bool>,
    /// Held while what was taken out of it is removed: a number that one thread sets free is not held to nothing by another,
    /// behind the session that has it next.
    clearing: Mutex<()>,
    /// Blocks may have been set aside to which nothing was written yet.
    is_fresh: AtomicBool,
    /// A thread writes to them.
    is_writing: AtomicBool,
    /// The server leaves.
    is_leaving: AtomicBool,
}

impl FolderPool {
    /// Looks at nothing yet.
    pub(super) fn of(data: &Path) -> Self {
        Self {
            data: data.to_owned(),
            place: PoolPlace::of(data),
            setting: OnceLock::new(),
            changing: Mutex::new(false),
            clearing: Mutex::new(()),
            is_fresh: AtomicBool::new(true),
            is_writing: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
        }
    }

    /// How large it is at first. The first word counts.
    pub(super) fn set(&self, setting: PoolSetting) {
        // A second one would be a second start of the same server, which does not happen.
        let _ = self.setting.set(setting);
    }

    fn changing(&self) -> MutexGuard<'_, bool> {
        // What a panic leaves is looked at again: it is mounted or not.
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn exists(&self) -> io::Result<bool> {
        self.place.exists()
    }

    /// Whether new scopes are to lie in it: there is one, or the disk has room for one and the kernel holds it. Costs some
    /// hundred milliseconds where there is none: it is tried out.
    pub(super) fn is_offered(&self) -> io::Result<bool> {
        let setting = self.setting.get().copied().unwrap_or(PoolSetting::Never);
        if setting == PoolSetting::Never {
            return Ok(false);
        }
        if self.exists()? {
            let opened = self.open();
            if let Err(error) = &opened {
                tracing::error!(%error, "folders in the pool cannot be reached");
            }
            return opened.map(|_| true);
        }
        if self.first_size()?.is_none() {
            return Ok(false);
        }
        self.try_out().map(|()| true)
    }

    /// None where it is not to be, or has no room.
    fn first_size(&self) -> io::Result<Option<Bytes>> {
        self.place.make()?;
        self.place.clear()?;
        let disk = self.disk()?;
        Ok(match self.setting.get() {
            None | Some(PoolSetting::Never) => None,
            Some(PoolSetting::ByDisk) => first_pool(disk),
            Some(PoolSetting::Size(size)) => named_pool(*size, disk),
        })
    }

    fn disk(&self) -> io::Result<DiskRoom> {
        let found = rustix::fs::statvfs(self.place.directory())?;
        let bytes = |blocks: u64| Bytes(blocks.saturating_mul(found.f_frsize));
        Ok(DiskRoom {
            total: bytes(found.f_blocks),
            free: bytes(found.f_bavail),
        })
    }

    /// Mounts a small one, has it count, and removes it.
    fn try_out(&self) -> io::Result<()> {
        let trial = PoolPlace::trial(&self.data);
        let clear = || -> io::Result<()> {
            if is_mounted(&trial)? {
                detach(&trial)?;
            }
            store::trees::remove(trial.directory())
        };
        // What an earlier try left, whose process was killed.
        clear()?;
        let tried = trial.write(MIN_POOL, false).and_then(|()| {
            mount_at(&trial, OPTIONS)?;
            let root = File::open(trial.files())?;
            let own = trial.files().join("own");
            fs::create_dir(&own)?;
            // One below those of scopes, as of any trial.
            let number = project::FIRST - 1;
            project::mark(&File::open(&own)?, number)?;
            project::hold_in_pool(&root, number, MIN_POOL)?;
            project::taken(&root, number).map(drop)
        });
        if let Err(error) = clear() {
            tracing::debug!(%error, "what was made to try a pool stays until the next time");
        }
        tried
    }

    /// The root of the pool, which is made where there is none.
    ///
    /// Errors: `StorageFull` where the disk has no room for one.
    pub(super) fn ready(&self) -> io::Result<File> {
        if !self.exists()? {
            let _changing = self.changing();
            // Another thread may have made it meanwhile.
            if !self.exists()? {
                let size = self.first_size()?.ok_or(io::ErrorKind::StorageFull)?;
                self.place.write(size, true)?;
                let place = self.place.image();
                tracing::info!(pool = %place.display(), %size, "a pool for the folders of all users was made");
            }
        }
        self.open()
    }

    /// The root of the pool, mounted, and as large as its file where the kernel grows it.
    ///
    /// Errors: `NotFound` where there is none; what the kernel says where its disk failed and sessions still have it.
    pub(super) fn open(&self) -> io::Result<File> {
        let is_closed = self.changing();
        // What is let go of at the end is not mounted behind that.
        if *is_closed {
            return Err(super::stops());
        }
        if !self.exists()? {
            return Err(io::ErrorKind::NotFound.into());
        }
        match is_mounted(&self.place) {
            Ok(true) => return File::open(self.place.files()),
            Ok(false) => {}
            // A fault ended all work on it; the kernel mends it when it is mounted for the first time again.
            Err(error) => {
                tracing::warn!(%error, "the pool has a fault and is mounted once more");
                detach(&self.place)?;
            }
        }
        self.place.make()?;
        mount_at(&self.place, OPTIONS)?;
        let root = match File::open(self.place.files()) {
            Ok(root) => root,
            Err(error) => {
                detach(&self.place)?;
                return Err(error);
            }
        };
        // Less room than there might be keeps no owner from their files.
        if let Err(error) = self.fill(&root) {
            tracing::error!(%error, "the pool is smaller than its file");
        }
        Ok(root)
    }

    /// Grows the file system to the end of its file: a new one, and one whose growth was broken off. Lets its tables of files
    /// take all of it: one owner with many small files would else leave room for no name of any other long before it grows.
    fn fill(&self, root: &File) -> io::Result<()> {
        let length = self.place.image().metadata()?.len();
        let found = geometry(root)?;
        let blocks = length / u64::from(found.block.max(1));
        if blocks <= found.blocks && found.inode_percent == FILES_UNBOUNDED {
            return Ok(());
        }
        LoopDevice::below(root)?.follow_file()?;
        let growth = Growth {
            blocks: blocks.max(found.blocks),
            inode_percent: FILES_UNBOUNDED,
        };
        // SAFETY: the structure has the kernel's layout, whose size is checked above, and lives through the call.
        let answer = unsafe { libc::ioctl(root.as_raw_fd(), GROW, &raw const growth) };
        done(answer)
    }

    /// Makes it so large while it is in use. A loss of power leaves its file longer than it is, which the next mount mends.
    ///
    /// Errors: `NotFound`, `StorageFull`; nothing changed then.
    pub(super) fn grow(&self, size: Bytes) -> io::Result<()> {
        let root = self.open()?;
        let _changing = self.changing();
        self.place.lengthen(size)?;
        self.is_fresh.store(true, Ordering::Release);
        self.fill(&root)
    }

    /// Has the disk set aside again what a trim gave back to it. Costs one look where nothing was.
    pub(super) fn keep_whole(&self) -> io::Result<()> {
        let _changing = self.changing();
        if self.place.keep_whole()? {
            self.is_fresh.store(true, Ordering::Release);
            tracing::info!("blocks of the pool that a trim gave back are set aside again");
        }
        Ok(())
    }

    /// Has a thread write once to what is free and was only set aside. Nothing where one does, and where nothing was set aside
    /// since the last. What is to be written is read of the file each time, so that the next server goes on.
    pub(super) fn begin_first_writes(self: &Arc<Self>) {
        let is_fresh = self.is_fresh.load(Ordering::Acquire);
        if !is_fresh || self.is_writing.swap(true, Ordering::AcqRel) {
            return;
        }
        let pool = Arc::clone(self);
        let begun = std::thread::Builder::new()
            .name("pool-write".to_owned())
            .spawn(move || {
                first_writes::give_way();
                // Before it looks: what is set aside meanwhile is for the next one.
                pool.is_fresh.store(false, Ordering::Release);
                let began = Instant::now();
                match pool.write_first(true) {
                    Ok((FirstWritesEnd::Done, Bytes::ZERO)) => {}
                    Ok((FirstWritesEnd::Done, written)) => {
                        let seconds = began.elapsed().as_secs();
                        tracing::info!(%written, seconds, "what was free of the pool was written once");
                    }
                    Ok((end, written)) => {
                        pool.is_fresh.store(true, Ordering::Release);
                        tracing::debug!(?end, %written, "a part of the pool was written once");
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the pool stays as slow as it is where nothing was written yet");
                    }
                }
                pool.is_writing.store(false, Ordering::Release);
            });
        if let Err(error) = begun {
            self.is_writing.store(false, Ordering::Release);
            tracing::debug!(%error, "no thread for the first writes of the pool");
        }
    }

    /// Writes once to what is free and was only set aside; says what was written. `is_polite`: as `FirstWrites` has it.
    pub(super) fn write_first(&self, is_polite: bool) -> io::Result<(FirstWritesEnd, Bytes)> {
        let root = self.open()?;
        let groups = geometry(&root)?.groups;
        let image = self.place.image();
        let mut writes = FirstWrites::of(&root, &image, &self.is_leaving, is_polite)?;
        let end = writes.run(groups)?;
        Ok((end, Bytes(writes.written)))
    }

    /// How large it is, and what is free. `promised`: what the caller knows.
    pub(super) fn room(&self, promised: Bytes) -> io::Result<PoolUse> {
        let root = self.open()?;
        let found = rustix::fs::fstatvfs(&root)?;
        let free = found.f_bfree.saturating_mul(found.f_frsize);
        let geometry = geometry(&root)?;
        let block = u64::from(geometry.block);
        // Not of its file: that is longer where a growth failed half-way, and the next one would begin beyond it.
        let size = Bytes(geometry.blocks.saturating_mul(block));
        let group = u64::from(geometry.group_blocks) * block;
        Ok(PoolUse {
            size,
            used: size.saturating_sub(Bytes(free)),
            promised,
            bound: Bytes(group.saturating_mul(MAX_GROUPS)).max(size),
            disk: self.disk()?,
        })
    }

    /// Where the files of a scope lie in it.
    fn own(&self, scope: &ScopePlace) -> io::Result<PathBuf> {
        let name = scope.directory().file_name();
        let name = name.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.place.files().join(name))
    }

    /// Where what a session writes lies in it.
    fn of_session(&self, scratch: &ScopePlace) -> io::Result<PathBuf> {
        let name = scratch.directory().file_name();
        let name = name.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.place.files().join(SESSIONS).join(name))
    }

    /// Makes the directory of a scope that was never kept as one of the pool, with its number and its limit. What lies there was
    /// left by one that was being made, or removed.
    ///
    /// Errors: `AlreadyExists` where folders lie there: what was kept of their scope is gone, and they are not removed.
    pub(super) fn add(
        &self,
        root: &File,
        scope: &ScopePlace,
        number: u32,
        limit: Bytes,
    ) -> io::Result<()> {
        let own = self.own(scope)?;
        if holds_folders(&own)? {
            let place = own.display();
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                format!("folders lie in {place}, of which nothing is kept"),
            ));
        }
        add(root, &own, number, limit)?.sync_all()?;
        root.sync_all()
    }

    /// Mounts the directory of a scope where its folders lie.
    pub(super) fn bind(&self, scope: &ScopePlace) -> io::Result<()> {
        bind(&self.own(scope)?, &scope.files())
    }

    /// Makes a directory for what a session writes, with its limit, and mounts it on the session's own, which is empty. Gives its
    /// number. No other session is given one meanwhile. Costs a look at each session that has one.
    pub(super) fn open_session(
        &self,
        root: &File,
        scratch: &ScopePlace,
        limit: Bytes,
    ) -> io::Result<u32> {
        let own = self.of_session(scratch)?;
        let mut taken = BTreeSet::new();
        for beside in [SESSIONS, REMOVED] {
            let beside = self.place.files().join(beside);
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&beside)?;
            for (_, number) in marked(&beside)? {
                taken.insert(number);
            }
        }
        let mut number = FIRST_OF_SESSIONS;
        // What a former session left may still count for a moment, or for as long as a program of it has it open.
        while taken.contains(&number) || project::taken(root, number)? != (Bytes::ZERO, 0) {
            number = number.checked_add(1).ok_or(io::ErrorKind::StorageFull)?;
        }
        add(root, &own, number, limit)?;
        bind(&own, &scratch.files())?;
        Ok(number)
    }

    /// Takes what a session wrote out of its place: one rename. Fine where there is nothing.
    pub(super) fn throw_session(&self, scratch: &ScopePlace) -> io::Result<()> {
        let own = self.of_session(scratch)?;
        let to = self.place.files().join(REMOVED);
        match fs::rename(&own, to.join(uuid::Uuid::now_v7().to_string())) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes what was taken out of its place. O(names). Waits for another thread that does so.
    pub(super) fn empty_removed(&self, root: &File) -> io::Result<()> {
        // A panic leaves names, which are listed again.
        let _alone = self.clearing.lock().unwrap_or_else(PoisonError::into_inner);
        for (path, number) in marked(&self.place.files().join(REMOVED))? {
            // First: once it is gone another session may be given the number.
            project::hold_in_pool(root, number, Bytes::ZERO)?;
            store::trees::remove(&path)?;
        }
        Ok(())
    }

    /// The places of sessions that have something in it, whether they are still there or not.
    pub(super) fn sessions(&self) -> io::Result<Vec<ScopePlace>> {
        let all = marked(&self.place.files().join(SESSIONS))?.into_iter();
        let names = all.filter_map(|(path, _)| Some(path.file_name()?.to_str()?.to_owned()));
        Ok(names
            .map(|name| ScopePlace::of_session(&self.data, &name))
            .collect())
    }

    /// Removes what a scope has there, and its limit. Fine where there is nothing.
    pub(super) fn remove(&self, scope: &ScopePlace, numbers: &[u32]) -> io::Result<()> {
        let root = self.open()?;
        store::trees::remove(&self.own(scope)?)?;
        for number in numbers {
            project::hold_in_pool(&root, *number, Bytes::ZERO)?;
        }
        Ok(())
    }

    /// The highest number of what lies in it; none where it is not mounted. Costs a look at each scope.
    pub(super) fn newest(&self) -> io::Result<Option<u32>> {
        if !self.exists()? || !is_mounted(&self.place)? {
            return Ok(None);
        }
        let all = marked(&self.place.files())?.into_iter();
        Ok(all.map(|(_, number)| number).max())
    }

    /// Takes it out of this namespace, at once where something still looks into it. Sessions that mount folders of it keep what
    /// they have.
    pub(super) fn close(&self) -> io::Result<()> {
        self.is_leaving.store(true, Ordering::Release);
        let mut is_closed = self.changing();
        *is_closed = true;
        if matches!(is_mounted(&self.place), Ok(false)) {
            return Ok(());
        }
        let unmounted = umount2(&self.place.files(), MntFlags::UMOUNT_NOFOLLOW);
        unmounted.or_else(|_| detach(&self.place))
    }
}

/// Makes an empty directory with a number and a limit; what lay there goes first.
fn add(root: &File, own: &Path, number: u32, limit: Bytes) -> io::Result<File> {
    store::trees::remove(own)?;
    DirBuilder::new().mode(0o700).create(own)?;
    let directory = File::open(own)?;
    project::mark(&directory, number)?;
    project::hold_in_pool(root, number, limit)?;
    Ok(directory)
}

/// Whether a folder lies in the directory of a scope; what is its own or emptied is hidden.
fn holds_folders(own: &Path) -> io::Result<bool> {
    let entries = match fs::read_dir(own) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        entries => entries?,
    };
    for entry in entries {
        if !entry?.file_name().as_encoded_bytes().starts_with(b".") {
            return Ok(true);
        }
    }
    Ok(false)
}

fn bind(own: &Path, at: &Path) -> io::Result<()> {
    let none = None::<&str>;
    Ok(mount(Some(own), at, none, MsFlags::MS_BIND, none)?)
}

/// The directories in one that have a number, with it; none where there is no such one.
fn marked(directory: &Path) -> io::Result<Vec<(PathBuf, u32)>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut all = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            // It may be gone since it was listed.
            let number = match File::open(entry.path()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => project::mark_of(&opened?)?,
            };
            if number >= project::FIRST {
                all.push((entry.path(), number));
            }
        }
    }
    Ok(all)
}

/// Errors: what the kernel says of a file system with a fault.
fn is_mounted(place: &PoolPlace) -> io::Result<bool> {
    let files = match place.files().symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        files => files?,
    };
    Ok(place.directory().symlink_metadata()?.dev() != files.dev())
}

/// What is free of it; None while it is not mounted.
pub(super) fn free(place: &PoolPlace) -> io::Result<Option<Bytes>> {
    if !is_mounted(place)? {
        return Ok(None);
    }
    let found = rustix::fs::statvfs(place.files())?;
    Ok(Some(Bytes(found.f_bfree.saturating_mul(found.f_frsize))))
}

fn mount_at(place: &PoolPlace, options: &str) -> io::Result<()> {
    let device = attach(&place.image())?;
    let files = place.files();
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let source = Some(&device.path);
    mount(source, &files, Some("xfs"), flags, Some(options))?;
    fs::set_permissions(&files, Permissions::from_mode(0o700))
}

fn detach(place: &PoolPlace) -> io::Result<()> {
    let flags = MntFlags::UMOUNT_NOFOLLOW | MntFlags::MNT_DETACH;
    Ok(umount2(&place.files(), flags)?)
}

fn geometry(root: &File) -> io::Result<Geometry> {
    let mut found = Geometry::default();
    // SAFETY: the kernel writes into a structure of its own layout, whose size is checked above.
    let answer = unsafe { libc::ioctl(root.as_raw_fd(), GET_GEOMETRY, &raw mut found) };
    done(answer).map(|()| found)
}

fn done(answer: i32) -> io::Result<()> {
    match answer {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
