//! Holds scopes to their limits on this machine: finds out how that can be done, and mounts the file system of each scope for
//! as long as something needs it. Sessions that mount a folder keep their own mount of it: to let go of one here takes nothing
//! from them, and to mount it once more finds the device that they still use. Knows no owner's name and no policy.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use base::observe::Clock;
use rules::folder_snapshot::history_limit;
use rules::storage::{MIN_FOLDER_BYTES, PoolSetting, PoolUse, StorageEnforcement, grown_pool};
use rules::units::Bytes;
use store::quota::pool::PoolPlace;
use store::quota::{ScopeKeeper, ScopeLease, ScopePlace, ScopeUse};

mod image;
mod loop_device;
mod pool;
mod project;

use image::ImageLife;
use pool::FolderPool;

/// How long a scope that nothing needs stays mounted. Longer: more kernel threads stand idle. Shorter: a user who starts one
/// session after the other waits for the mount each time.
pub(crate) const IDLE: Duration = Duration::from_secs(600);

/// The scopes of one data directory.
#[derive(Debug)]
pub(crate) struct NodeScopes {
    data: PathBuf,
    clock: Clock,
    enforcement: OnceLock<StorageEnforcement>,
    known: Mutex<BTreeMap<ScopePlace, Arc<Mutex<KeptScope>>>>,
    /// The number that a scope was given last, where the disk or the pool counts by numbers.
    newest: Mutex<Option<u32>>,
    pool: Arc<FolderPool>,
    /// Held while a session is given a disk in the pool, and once what an earlier server left of such is thrown away.
    scratches: Mutex<bool>,
    /// Once what an earlier server left mounted is known.
    adopted: Once,
    is_closed: AtomicBool,
}

/// What is known of one scope. Locked for as long as it is made, mounted or let go of.
#[derive(Debug)]
struct KeptScope {
    /// Leases are copies of it.
    lease: ScopeLease,
    /// It was mounted, and held to its limit, by this process.
    is_ready: bool,
    used_at: Instant,
}

impl NodeScopes {
    /// The scopes below a data directory. Looks at nothing yet.
    pub(crate) fn of(data: PathBuf, clock: Clock) -> Self {
        Self {
            pool: Arc::new(FolderPool::of(&data)),
            scratches: Mutex::default(),
            data,
            clock,
            enforcement: OnceLock::new(),
            known: Mutex::default(),
            newest: Mutex::default(),
            adopted: Once::new(),
            is_closed: AtomicBool::new(false),
        }
    }

    /// How large a pool of this machine is at first, and whether there may be one; without a word there is none.
    pub(crate) fn set_pool(&self, setting: PoolSetting) {
        self.pool.set(setting);
    }

    /// Has all of a pool set aside, grows one that is short of room, and begins to write what was never written of it. Costs three
    /// looks where it is not.
    pub(crate) fn tend_pool(&self) {
        let is_open = !self.is_closed.load(Ordering::Acquire);
        if !is_open || !self.pool.exists().unwrap_or(false) {
            return;
        }
        if let Err(error) = self.pool.keep_whole() {
            tracing::error!(%error, "the pool is not set aside as a whole: when the disk is full, writes into it may be lost");
        }
        let grown = self.pool.room(Bytes::ZERO).and_then(|pool| {
            let Some(size) = grown_pool(&pool) else {
                return Ok(());
            };
            self.pool.grow(size)?;
            tracing::info!(before = %pool.size, now = %size, "the pool was short of room and has grown");
            Ok(())
        });
        if let Err(error) = grown {
            tracing::warn!(%error, "the pool cannot grow");
        }
        self.pool.begin_first_writes();
    }

    /// Gives a session a disk of its own in the pool, mounted on its directory, which is there and empty. False, and nothing done,
    /// where new scopes lie in no pool. Costs a millisecond.
    pub(crate) fn open_scratch(&self, scratch: &ScopePlace, limit: Bytes) -> io::Result<bool> {
        if self.enforcement.get() != Some(&StorageEnforcement::Pool) {
            return Ok(false);
        }
        let root = self.pool.ready()?;
        let mut is_swept = self
            .scratches
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !*is_swept {
            for left in self.pool.sessions()? {
                if !left.is_pooled() {
                    self.pool.throw_session(&left)?;
                }
            }
            *is_swept = true;
        }
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(scratch.directory())?;
        let opened = self.pool.open_session(&root, scratch, limit);
        let noted = opened.and_then(|number| scratch.note_pooled(number));
        if noted.is_err() {
            // Without a note no end of the session would find it.
            close_scratch(scratch)?;
            self.pool.throw_session(scratch)?;
        }
        noted.map(|()| true)
    }

    /// Takes what a session wrote out of the pool: one rename, after which `empty_removed` removes it. False where it lies in none.
    pub(crate) fn throw_scratch(&self, scratch: &ScopePlace) -> io::Result<bool> {
        if !scratch.is_pooled() {
            return Ok(false);
        }
        self.open_pool()?;
        self.pool.throw_session(scratch).map(|()| true)
    }

    /// Removes what was taken out of the pool. O(names).
    pub(crate) fn empty_removed(&self) -> io::Result<()> {
        self.pool.empty_removed(&self.open_pool()?)
    }

    /// The root of the pool. Where its disk failed, what is mounted of it goes first: then the kernel mends it.
    fn open_pool(&self) -> io::Result<File> {
        // What is let go of at the end is not mounted behind that.
        if self.is_closed.load(Ordering::Acquire) {
            return Err(stops());
        }
        match self.pool.open() {
            Err(error) if has_failed(&error) => {
                for (_, scope) in ScopePlace::all(&self.data)? {
                    if scope.pooled()?.is_some() {
                        let_go_of_failed(&scope)?;
                    }
                }
                self.pool.open()
            }
            opened => opened,
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<ScopePlace, Arc<Mutex<KeptScope>>>> {
        // Only ever added to; a panic elsewhere leaves nothing half done.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self, scope: &ScopePlace) -> Arc<Mutex<KeptScope>> {
        let mut known = self.known();
        if let Some(kept) = known.get(scope) {
            return Arc::clone(kept);
        }
        let kept = Arc::new(Mutex::new(KeptScope {
            lease: ScopeLease::default(),
            is_ready: false,
            used_at: Instant::now(),
        }));
        known.insert(scope.clone(), Arc::clone(&kept));
        kept
    }

    /// Lets go of scopes that nothing needed for a while. `used`: those that sessions mount.
    pub(crate) fn release_idle(&self, used: &BTreeSet<ScopePlace>, idle: Duration) {
        self.adopted.call_once(|| self.adopt());
        let all: Vec<_> = self
            .known()
            .iter()
            .map(|(scope, kept)| (scope.clone(), Arc::clone(kept)))
            .collect();
        for (scope, kept) in all {
            let mut kept = locked(&kept);
            let is_idle = kept.used_at.elapsed() >= idle && !kept.lease.is_shared();
            if !is_idle || used.contains(&scope) || !scope.is_mounted() {
                continue;
            }
            self.keep_use(&scope);
            kept.is_ready = false;
            match image::unmount_files(&scope) {
                Ok(()) => tracing::debug!(scope = %scope.directory().display(), "unmounted"),
                // Something of this process looks into it; the next look finds it idle.
                Err(error) => {
                    tracing::debug!(scope = %scope.directory().display(), %error, "stays mounted");
                }
            }
        }
    }

    /// Lets go of all scopes but those that sessions are just being started with; nothing is entered any more.
    pub(crate) fn close(&self, starting: &BTreeSet<ScopePlace>) {
        self.is_closed.store(true, Ordering::Release);
        self.release_idle(starting, Duration::ZERO);
        if let Err(error) = self.pool.close() {
            tracing::debug!(%error, "the pool stays mounted");
        }
    }

    /// Finds the scopes that an earlier server left mounted.
    fn adopt(&self) {
        match ScopePlace::all(&self.data) {
            Ok(all) => {
                for (_, scope) in all {
                    if scope.is_mounted() {
                        self.kept(&scope);
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "the scopes of folders cannot be listed"),
        }
    }

    /// Makes what is missing of a scope, mounts it where it has a file system of its own, and holds it to its limit.
    fn make_ready(&self, scope: &ScopePlace, new: Option<Bytes>) -> io::Result<()> {
        if let Some(project) = scope.project()? {
            let limit = scope.limit()?.or(new).unwrap_or_default();
            let files = File::open(scope.files());
            return match files.and_then(|files| project::hold(&files, project, limit)) {
                // Files that were moved to a disk that counts nothing are there all the same.
                Err(error) if scope.files().is_dir() => {
                    let scope = scope.directory().display();
                    tracing::warn!(%scope, %limit, %error, "folders are not held to their limit");
                    Ok(())
                }
                held => held,
            };
        }
        // A disk that does not say has one: to make another would be the end of its files.
        if scope.pooled()?.is_none() && !scope.image().try_exists()? {
            let limit = new.ok_or(io::ErrorKind::NotFound)?;
            match self.enforcement() {
                StorageEnforcement::Native => return self.make_numbered(scope, limit),
                StorageEnforcement::Pool => {
                    // A disk that has become too full for a pool has room for what a scope takes at first.
                    if let Err(error) = self.make_pooled(scope, limit) {
                        tracing::warn!(%error, "a scope has a file of its own and lies in no pool");
                        Self::make_image(scope, limit)?;
                    }
                }
                StorageEnforcement::Image => Self::make_image(scope, limit)?,
                StorageEnforcement::Counted => return Err(io::ErrorKind::Unsupported.into()),
            }
        }
        match scope.pooled()? {
            Some(project) => self.mount_pooled(scope, project, new),
            None => Self::mount(scope, new),
        }
    }

    /// Gives a new scope a directory in the pool, with a number that no other has, and its limit.
    fn make_pooled(&self, scope: &ScopePlace, limit: Bytes) -> io::Result<()> {
        let root = self.pool.ready()?;
        // Held until the number is kept: two new scopes at once would take the same.
        let mut newest = self.newest();
        let mut project = self.next_project(*newest)?;
        // What was removed of an earlier scope may count for as long as a program has it open.
        while project::taken(&root, project)? != (Bytes::ZERO, 0) {
            project += 1;
        }
        scope.make()?;
        scope.keep_limit(limit)?;
        self.pool.add(&root, scope, project, limit)?;
        // Last: a scope with a number has all of this.
        scope.keep_pooled(project)?;
        *newest = Some(project);
        Ok(())
    }

    fn mount_pooled(&self, scope: &ScopePlace, project: u32, new: Option<Bytes>) -> io::Result<()> {
        let root = self.open_pool()?;
        let_go_of_failed(scope)?;
        if let Some(limit) = scope.limit()?.or(new) {
            project::hold_in_pool(&root, project, limit)?;
        }
        match scope.is_mounted() {
            true => Ok(()),
            false => self.pool.bind(scope),
        }
    }

    fn make_image(scope: &ScopePlace, limit: Bytes) -> io::Result<()> {
        scope.make()?;
        scope.keep_limit(limit)?;
        image::make(scope, limit, ImageLife::Long)
    }

    /// Gives a new scope a number that no other has, and its limit.
    fn make_numbered(&self, scope: &ScopePlace, limit: Bytes) -> io::Result<()> {
        // Held until the number is kept: two new scopes at once would take the same.
        let mut newest = self.newest();
        let project = self.next_project(*newest)?;
        scope.make()?;
        scope.keep_limit(limit)?;
        project::make(scope, project, limit)?;
        *newest = Some(project);
        Ok(())
    }

    fn newest(&self) -> MutexGuard<'_, Option<u32>> {
        // A number is taken once it is kept.
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number that nothing has. `newest`: the last one that this process gave. The first costs a few small reads of each scope.
    fn next_project(&self, newest: Option<u32>) -> io::Result<u32> {
        let mut newest = match newest {
            Some(newest) => return Ok(newest + 1),
            None => self.pool.newest()?,
        };
        for (_, scope) in ScopePlace::all(&self.data)? {
            let numbers = [scope.project()?, scope.pooled()?, scope.history()?];
            newest = numbers.into_iter().fold(newest, Ord::max);
        }
        Ok(newest.map_or(project::FIRST, |one| one + 1))
    }

    /// Holds what is kept of earlier states of the files of a scope to its part of the limit, where it counts apart.
    fn hold_history(scope: &ScopePlace, within: &File, limit: Bytes) -> io::Result<()> {
        let limit = Bytes(history_limit(limit.0));
        match scope.history()? {
            Some(number) if scope.is_pooled() => project::hold_in_pool(within, number, limit),
            Some(number) => project::hold(within, number, limit),
            None => Ok(()),
        }
    }

    fn mount(scope: &ScopePlace, new: Option<Bytes>) -> io::Result<()> {
        let was_mounted = scope.is_mounted();
        if !was_mounted {
            image::mount_files(scope)?;
        }
        let Some(limit) = scope.limit()?.or(new) else {
            return Ok(());
        };
        let fitted = match image::fit(scope, limit) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !was_mounted => {
                image::unmount_files(scope)?;
                let grown = image::grow_unmounted(scope, limit);
                image::mount_files(scope)?;
                grown.and_then(|()| image::fit(scope, limit))
            }
            fitted => fitted,
        };
        // Room of another size than its limit keeps no session from its files.
        if let Err(error) = fitted {
            let scope = scope.directory().display();
            tracing::warn!(%scope, %limit, %error, "a scope has the size that it had before");
        }
        Ok(())
    }

    /// What a mounted scope takes now; kept for the time that it is not.
    fn keep_use(&self, scope: &ScopePlace) {
        let kept = self.measured(scope).and_then(|taken| match taken {
            Some(taken) => scope.keep_use(&taken),
            None => Ok(()),
        });
        if let Err(error) = kept {
            let scope = scope.directory().display();
            tracing::warn!(%scope, %error, "what folders take is not kept");
        }
    }

    fn measured(&self, scope: &ScopePlace) -> io::Result<Option<ScopeUse>> {
        let limit = scope.limit()?.unwrap_or_default();
        let pooled = |within: &File, project| {
            let taken = project::taken(within, project);
            taken.map(|(used, files)| (used, files, project::max_files(limit)))
        };
        let is_closed = self.is_closed.load(Ordering::Acquire);
        let (used, files, max_files) = match (scope.project()?, scope.pooled()?) {
            (Some(project), _) => {
                let (used, files) = project::taken(&File::open(scope.files())?, project)?;
                (used, files, 0)
            }
            // The pool itself says it, also while the folders of the scope are not mounted.
            (None, Some(project)) if !is_closed => pooled(&self.open_pool()?, project)?,
            (None, Some(project)) if scope.is_mounted() => {
                pooled(&File::open(scope.files())?, project)?
            }
            (None, None) if scope.is_mounted() => image::taken(scope, limit)?,
            (None, _) => return scope.kept_use(),
        };
        Ok(Some(ScopeUse {
            used,
            limit,
            files,
            max_files,
            at: self.clock.now().as_millis(),
        }))
    }

    /// Makes a small scope, and removes it: what works once works for the next.
    fn try_out(&self, how: StorageEnforcement) -> io::Result<()> {
        if !rustix::process::geteuid().is_root() {
            return Err(io::Error::other("only root holds limits of a disk"));
        }
        let scope = ScopePlace::trial(&self.data);
        let clear = || -> io::Result<()> {
            if scope.is_mounted() {
                image::detach_files(&scope)?;
            }
            store::trees::remove(scope.directory())
        };
        // What an earlier try left, whose process was killed.
        clear()?;
        let tried = match how {
            StorageEnforcement::Native => Self::try_numbers(&scope),
            // It has a trial of its own.
            StorageEnforcement::Pool => Ok(()),
            StorageEnforcement::Image => Self::make_image(&scope, MIN_FOLDER_BYTES)
                .and_then(|()| Self::mount(&scope, Some(MIN_FOLDER_BYTES))),
            StorageEnforcement::Counted => Ok(()),
        };
        if let Err(error) = clear() {
            tracing::debug!(%error, "what was made to try it stays until the next time");
        }
        tried
    }

    /// Whether the disk takes a number and a limit. No write beyond it is tried: the kernel lets root do that.
    fn try_numbers(scope: &ScopePlace) -> io::Result<()> {
        // One below those of scopes, so that no scope has it.
        let project = project::FIRST - 1;
        project::make(scope, project, MIN_FOLDER_BYTES)?;
        let files = File::open(scope.files())?;
        project::taken(&files, project)?;
        project::hold(&files, project, Bytes::ZERO)
    }
}

impl ScopeKeeper for NodeScopes {
    fn enforcement(&self) -> StorageEnforcement {
        *self.enforcement.get_or_init(|| {
            if project::is_on(&self.data) {
                match self.try_out(StorageEnforcement::Native) {
                    Ok(()) => return StorageEnforcement::Native,
                    Err(error) => {
                        tracing::warn!(%error, "the disk's own quota cannot be used");
                    }
                }
            }
            let is_root = rustix::process::geteuid().is_root();
            match is_root.then(|| self.pool.is_offered()) {
                Some(Ok(true)) => return StorageEnforcement::Pool,
                Some(Ok(false)) | None => {}
                Some(Err(error)) => tracing::info!(%error, "no pool can be held here"),
            }
            match self.try_out(StorageEnforcement::Image) {
                Ok(()) => StorageEnforcement::Image,
                Err(error) => {
                    tracing::warn!(%error, "no limit of folders can be held here; they are counted");
                    StorageEnforcement::Counted
                }
            }
        })
    }

    fn holds_sessions(&self) -> bool {
        match self.enforcement() {
            StorageEnforcement::Pool => true,
            other => other.is_enforced() && missing().is_empty(),
        }
    }

    fn enter(&self, scope: &ScopePlace, limit: Option<Bytes>) -> io::Result<ScopeLease> {
        let kept = self.kept(scope);
        let mut kept = locked(&kept);
        // Looked at under the lock: what is let go of at the end is not mounted behind that.
        if self.is_closed.load(Ordering::Acquire) {
            return Err(stops());
        }
        let has_image = scope.is_mounted() && scope.pooled()?.is_none();
        let has_fault = has_image && image::has_fault(scope).unwrap_or(false);
        if has_fault && !kept.lease.is_shared() {
            kept.is_ready = false;
            // It is mended when it is mounted again, unless a session still has it.
            if let Err(error) = image::unmount_files(scope) {
                let scope = scope.directory().display();
                tracing::warn!(%scope, %error, "a scope with a fault stays mounted");
            }
        }
        if !kept.is_ready || !scope.files().is_dir() || !scope.is_reachable() {
            self.make_ready(scope, limit)?;
            kept.is_ready = true;
        }
        kept.used_at = Instant::now();
        Ok(kept.lease.clone())
    }

    fn hold_to(&self, scope: &ScopePlace, limit: Bytes) -> io::Result<()> {
        let kept = self.kept(scope);
        let _kept = locked(&kept);
        if scope.limit()? == Some(limit) {
            return Ok(());
        }
        let held = match (scope.project()?, scope.pooled()?) {
            (Some(project), _) => {
                let files = File::open(scope.files())?;
                project::hold(&files, project, limit)
                    .and_then(|()| Self::hold_history(scope, &files, limit))
            }
            (None, Some(project)) => {
                let root = self.open_pool()?;
                project::hold_in_pool(&root, project, limit)
                    .and_then(|()| Self::hold_history(scope, &root, limit))
            }
            (None, None) if scope.is_mounted() => image::fit(scope, limit),
            (None, None) => Ok(()),
        };
        match held {
            // It is grown once nothing mounts it any more.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            held => held?,
        }
        // Last: what is kept is held, and what could not be held is tried again.
        scope.keep_limit(limit)
    }

    fn measure(&self, scope: &ScopePlace) -> io::Result<Option<ScopeUse>> {
        let kept = self.kept(scope);
        // What is let go of meanwhile would tell the room of the disk below.
        let _kept = locked(&kept);
        self.measured(scope)
    }

    fn remove_empty(&self, scope: &ScopePlace) -> io::Result<()> {
        let lease = self.enter(scope, None)?;
        let kept = self.kept(scope);
        let mut kept = locked(&kept);
        drop(lease);
        if kept.lease.is_shared() || scope.has_folders()? {
            return Ok(());
        }
        kept.is_ready = false;
        let (history, pooled) = (scope.history()?, scope.pooled()?);
        match scope.project()? {
            Some(project) => {
                let files = File::open(scope.files())?;
                for number in [Some(project), history].into_iter().flatten() {
                    project::hold(&files, number, Bytes::ZERO)?;
                }
            }
            None => image::unmount_files(scope)?,
        }
        store::trees::remove(scope.directory())?;
        match pooled {
            // What a loss of power leaves of it there goes when its owner gets the next one.
            Some(project) => {
                let numbers: Vec<u32> = [Some(project), history].into_iter().flatten().collect();
                self.pool.remove(scope, &numbers)
            }
            None => Ok(()),
        }
    }

    fn count_apart(&self, scope: &ScopePlace, place: &Path) -> io::Result<()> {
        let is_numbered = scope.project()?.is_some() || scope.pooled()?.is_some();
        if !is_numbered {
            return Ok(());
        }
        let kept = self.kept(scope);
        let _kept = locked(&kept);
        let number = match scope.history()? {
            Some(number) => number,
            None => {
                let mut newest = self.newest();
                let number = self.next_project(*newest)?;
                scope.keep_history(number)?;
                *newest = Some(number);
                number
            }
        };
        let directory = File::open(place)?;
        // What lies there already counts as it was made: a number is for what comes later.
        if project::mark_of(&directory)? != number && fs::read_dir(place)?.next().is_none() {
            project::mark(&directory, number)?;
        }
        let limit = scope.limit()?.unwrap_or_default();
        Self::hold_history(scope, &directory, limit)
    }

    fn pool(&self) -> io::Result<Option<PoolUse>> {
        if !self.pool.exists()? || self.is_closed.load(Ordering::Acquire) {
            return Ok(None);
        }
        let mut promised = Vec::new();
        for (_, scope) in ScopePlace::all(&self.data)? {
            if scope.pooled()?.is_some() {
                promised.extend(scope.limit()?);
            }
        }
        self.open_pool()?;
        self.pool.room(promised.into_iter().sum()).map(Some)
    }

    fn grow_pool(&self, size: Bytes) -> io::Result<()> {
        self.pool.grow(size)
    }
}

fn stops() -> io::Error {
    io::Error::other("the server stops")
}

/// Whether the file system of a disk that failed says so.
fn has_failed(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EIO)
}

/// Takes what is mounted of a scope out of this namespace where its file system ended all work. Sessions keep what they have.
fn let_go_of_failed(scope: &ScopePlace) -> io::Result<()> {
    match scope.files().symlink_metadata() {
        Err(error) if has_failed(&error) => image::detach_files(scope),
        _ => Ok(()),
    }
}

/// Makes the file system of what one session may write outside its folders. Costs some thirty milliseconds.
pub(crate) fn make_scratch(scratch: &ScopePlace, limit: Bytes) -> io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(scratch.directory())?;
    image::make(scratch, limit, ImageLife::Session)
}

/// Mounts it on the session's own directory, which is there. Costs a few milliseconds.
pub(crate) fn mount_scratch(scratch: &ScopePlace, limit: Bytes) -> io::Result<()> {
    image::mount_files(scratch)?;
    // It was made so large; what the kernel keeps of it is no reason to start no session.
    if let Err(error) = image::fit(scratch, limit) {
        let scratch = scratch.directory().display();
        tracing::warn!(%scratch, %limit, %error, "the disk of a session is not exactly its limit");
    }
    Ok(())
}

/// Takes it out of this namespace; fine where it is not mounted. Its file goes with its directory.
pub(crate) fn close_scratch(scratch: &ScopePlace) -> io::Result<()> {
    let_go_of_failed(scratch)?;
    match scratch.is_mounted() {
        true => image::detach_files(scratch),
        false => Ok(()),
    }
}

fn locked(kept: &Mutex<KeptScope>) -> MutexGuard<'_, KeptScope> {
    // A panic in between leaves a scope that is mounted or not: both are looked at again.
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the disk of a data directory counts by projects itself. For `doctor`.
pub(crate) fn is_native(data: &Path) -> bool {
    project::is_on(data)
}

/// How large the pool of a data directory is, and what of it is free while it is mounted; None where there is none. Mounts
/// nothing. For `doctor`.
pub(crate) fn pool_room(data: &Path) -> Option<(Bytes, Option<Bytes>)> {
    let place = PoolPlace::of(data);
    let size = place.image().metadata().ok()?.len();
    Some((Bytes(size), pool::free(&place).ok().flatten()))
}

/// Whether this machine can hold limits by files, without trying it: what is missing, else nothing.
pub(crate) fn missing() -> Vec<&'static str> {
    let mut missing = Vec::new();
    if !Path::new("/dev/loop-control").exists() {
        missing.push("loop devices");
    }
    if image::tool("mkfs.ext4").is_none() {
        missing.push("mkfs.ext4");
    }
    missing
}

#[cfg(test)]
mod tests;
