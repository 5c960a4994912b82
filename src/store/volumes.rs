//! The volumes of one data directory: file systems that an administrator mounted, each with a marker that holds its id. A
//! volume is worked on through its root, opened and compared with its marker first: what is not mounted takes no byte. Looks
//! have threads and a time limit of their own. Never mounts anything, and never decides who may.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use rules::names::VolumeId;
use rules::refusal::Refusal;
use rules::refusals;
use rules::volume::VolumeState;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ResolveFlags, StatVfsMountFlags, StatxAttributes, StatxFlags,
    openat2,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// The file at a volume's root that says which volume it is.
pub const MARKER: &str = ".fardel-volume";
/// Where folders lie below a data directory, and below the root of a volume.
pub(crate) const FOLDERS: &str = "folders";
/// Links below the folders of a data directory, each from the id of a volume to the directory that it is mounted on.
pub(crate) const VOLUMES: &str = ".volumes";
/// What a marker may have. Higher: a foreign file fills memory. Lower: fields of later versions have no room.
const MAX_MARKER: u64 = 4096;
/// The version of a marker.
const FORMAT: u32 = 1;
/// How long a look may take. Longer: who asks waits for what does not answer. Shorter: a slow server counts as gone.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// Looks at one volume that did not come back. Higher: more threads hang with it. Lower: one that hangs for good hides that
/// the volume is back.
const MAX_LOOKS: usize = 3;
/// What a new file system has by itself.
const OWN_NAMES: [&str; 1] = ["lost+found"];

/// The marker as it lies on the volume.
#[derive(Debug, Serialize, Deserialize)]
struct MarkerFile {
    format: u32,
    volume: VolumeId,
}

/// What a look at a volume found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeSight {
    pub state: VolumeState,
    /// Bytes of the whole file system, and those that a user may still write; 0 where it could not be asked.
    pub total: u64,
    pub free: u64,
    /// When it was so; a state that follows from silence has the time of its question.
    pub at: SystemTime,
}

impl VolumeSight {
    fn without_room(state: VolumeState) -> Self {
        Self {
            state,
            total: 0,
            free: 0,
            at: SystemTime::now(),
        }
    }
}

/// Why a volume cannot be worked on, as an error of the kernel carries it through.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}", .0.code)]
pub struct VolumeFault(pub Refusal);

/// The refusal that an error carries; None for one of the kernel's.
pub fn refusal_of(error: &io::Error) -> Option<Refusal> {
    let inner = error.get_ref()?.downcast_ref::<VolumeFault>()?;
    Some(inner.0.clone())
}

fn carried(refusal: Refusal) -> io::Error {
    io::Error::other(VolumeFault(refusal))
}

/// What an administrator can mend: a marker that is none, and a file system that the server may not write.
fn refused(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            carried(refusals::volume_not_empty())
        }
        io::ErrorKind::PermissionDenied => carried(refusals::volume_read_only()),
        _ => error,
    }
}

/// The root of a volume, open, and compared with its marker. What is reached through it lies on that file system, also where
/// it is taken off its directory meanwhile.
#[derive(Debug)]
pub struct OpenVolume {
    root: OwnedFd,
}

impl OpenVolume {
    /// A path by which this process reaches the root for as long as this is held.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.root.as_raw_fd()))
    }

    /// Opens a directory below the root: through no link, and on no other file system.
    pub fn directory(&self, path: &Path) -> io::Result<OwnedFd> {
        directory_below(self.root(), path)
    }

    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}

/// Opens a directory below an open one: through no link, and on no other file system.
pub(crate) fn directory_below(root: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(openat2(root, path, flags, Mode::empty(), below())?)
}

fn below() -> ResolveFlags {
    ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV
}

/// What is known of one volume.
#[derive(Debug, Default)]
struct WatchedVolume {
    sight: Option<VolumeSight>,
    /// Looks that did not come back yet.
    looks: usize,
}

/// The volumes that one data directory knows.
#[derive(Debug, Clone)]
pub struct VolumeShelf {
    place: PathBuf,
    patience: Duration,
    watched: Arc<Mutex<BTreeMap<VolumeId, WatchedVolume>>>,
}

impl VolumeShelf {
    /// Those whose links lie below `folders`.
    pub(crate) fn below(folders: &Path) -> Self {
        Self {
            place: folders.join(VOLUMES),
            patience: LOOK_TIMEOUT,
            watched: Arc::default(),
        }
    }

    /// Those of a data directory.
    pub fn of(data: &Path) -> Self {
        Self::below(&data.join(FOLDERS))
    }

    /// Whether a directory is one of folders of the data directory, or holds the data directory.
    pub fn is_own(&self, path: &Path) -> bool {
        let folders = self.place.parent().unwrap_or(&self.place);
        let is_related = |folders: &Path| folders.starts_with(path) || path.starts_with(folders);
        is_related(folders)
            || folders
                .canonicalize()
                .is_ok_and(|folders| is_related(&folders))
    }

    /// Makes a file system a volume: one that is mounted on this very directory, and empty, or a volume already, whose id it
    /// keeps. Writes the marker where there is none. Costs one look without a time limit: callers bring a thread.
    ///
    /// Errors: `volume.not-mounted`, `volume.not-empty`, `volume.read-only`, each carried; what the kernel says.
    pub fn adopt(path: &Path, id: VolumeId) -> io::Result<VolumeId> {
        let root = open_root(path).map_err(|_| carried(refusals::volume_not_mounted()))?;
        if !is_mount_root(root.as_fd())? {
            return Err(carried(refusals::volume_not_mounted()));
        }
        mark(root.as_fd(), id).map_err(refused)
    }

    /// The volume whose file system is mounted on this very directory; None for one that is none. Costs as `adopt`.
    ///
    /// Errors: `volume.not-mounted`, carried; what the kernel says.
    pub fn marked(path: &Path) -> io::Result<Option<VolumeId>> {
        let root = open_root(path).map_err(|_| carried(refusals::volume_not_mounted()))?;
        match is_mount_root(root.as_fd())? {
            true => marker(root.as_fd()).map_err(refused),
            false => Err(carried(refusals::volume_not_mounted())),
        }
    }

    /// Keeps where a volume is mounted. Folders find it by that from then on.
    pub fn keep(&self, id: VolumeId, path: &Path) -> io::Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.place)?;
        let link = self.place.join(id.to_string());
        if fs::read_link(&link).is_ok_and(|known| known == path) {
            return Ok(());
        }
        let new = self.place.join(format!(".{id}"));
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        symlink(path, &new)?;
        fs::rename(new, link)?;
        File::open(&self.place)?.sync_all()?;
        self.watched().remove(&id);
        Ok(())
    }

    /// Forgets a volume; its marker stays, so that it can be added again.
    pub fn forget(&self, id: VolumeId) -> io::Result<()> {
        self.watched().remove(&id);
        match fs::remove_file(self.place.join(id.to_string())) {
            // A restored catalog may know one that was never kept here.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(()) => File::open(&self.place)?.sync_all(),
        }
    }

    /// The volumes that are kept here, in no order.
    pub fn all(&self) -> io::Result<Vec<VolumeId>> {
        let entries = match fs::read_dir(&self.place) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut all = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            all.extend(name.to_str().and_then(|name| name.parse::<VolumeId>().ok()));
        }
        Ok(all)
    }

    /// The directory that a volume is mounted on.
    ///
    /// Errors: `volume.absent`, carried, where none is kept.
    pub fn path(&self, id: VolumeId) -> io::Result<PathBuf> {
        let known = fs::read_link(self.place.join(id.to_string()));
        known.map_err(|_| carried(refusals::volume_absent()))
    }

    /// Opens the root of a volume. One that did not answer when it was looked at last is not asked.
    ///
    /// Errors: `volume.absent`, `volume.hung`, each carried.
    pub fn enter(&self, id: VolumeId) -> io::Result<OpenVolume> {
        let state = self.sight(id).map(|sight| sight.state);
        if state == Some(VolumeState::Hung) {
            return Err(carried(refusals::volume_hung()));
        }
        open(&self.path(id)?, id)
    }

    /// What the last look found; None before the first one. Costs no look.
    pub fn sight(&self, id: VolumeId) -> Option<VolumeSight> {
        let watched = self.watched();
        watched.get(&id).and_then(|one| one.sight.clone())
    }

    /// Looks at a volume, on a thread of its own, and waits five seconds at most. A look that takes longer says so when it
    /// comes back, which is how a volume that hung is ready again.
    pub fn look(&self, id: VolumeId) -> VolumeSight {
        let path = self.path(id);
        self.look_by(id, move || match path {
            Ok(path) => see(&path, id),
            Err(_) => VolumeSight::without_room(VolumeState::Absent),
        })
    }

    fn look_by(
        &self,
        id: VolumeId,
        look: impl FnOnce() -> VolumeSight + Send + 'static,
    ) -> VolumeSight {
        let hung = || VolumeSight::without_room(VolumeState::Hung);
        {
            let mut watched = self.watched();
            let one = watched.entry(id).or_default();
            if one.looks >= MAX_LOOKS {
                one.sight = Some(hung());
                return hung();
            }
            one.looks += 1;
        }
        let (tell, told) = mpsc::channel();
        let shelf = self.clone();
        let begun = thread::Builder::new()
            .name("volume-look".to_owned())
            .spawn(move || {
                let sight = look();
                // Held until it is told: who gave it up looks once more under the same lock.
                let mut watched = shelf.watched();
                if let Some(one) = watched.get_mut(&id) {
                    one.looks = one.looks.saturating_sub(1);
                    one.sight = Some(sight.clone());
                }
                let _ = tell.send(sight);
            });
        let silent = match begun {
            Ok(_) => match told.recv_timeout(self.patience) {
                Ok(sight) => return sight,
                Err(_) => hung(),
            },
            Err(error) => {
                tracing::warn!(volume = %id, %error, "no thread looks at a volume");
                if let Some(one) = self.watched().get_mut(&id) {
                    one.looks = one.looks.saturating_sub(1);
                }
                hung()
            }
        };
        let mut watched = self.watched();
        let one = watched.entry(id).or_default();
        // It may have come back at this moment.
        if let Ok(sight) = told.try_recv() {
            return sight;
        }
        one.sight = Some(silent.clone());
        silent
    }

    fn watched(&self) -> MutexGuard<'_, BTreeMap<VolumeId, WatchedVolume>> {
        // Changed in one step each.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is at a path, compared with a volume's marker.
fn see(path: &Path, id: VolumeId) -> VolumeSight {
    let Ok(open) = open(path, id) else {
        return VolumeSight::without_room(VolumeState::Absent);
    };
    let Ok(stat) = rustix::fs::fstatvfs(&open.root) else {
        return VolumeSight::without_room(VolumeState::Absent);
    };
    let state = match stat.f_flag.contains(StatVfsMountFlags::RDONLY) {
        true => VolumeState::ReadOnly,
        false => VolumeState::Ready,
    };
    VolumeSight {
        state,
        total: stat.f_blocks.saturating_mul(stat.f_frsize),
        free: stat.f_bavail.saturating_mul(stat.f_frsize),
        at: SystemTime::now(),
    }
}

fn open(path: &Path, id: VolumeId) -> io::Result<OpenVolume> {
    let absent = || carried(refusals::volume_absent());
    let root = open_root(path).map_err(|_| absent())?;
    let found = match is_mount_root(root.as_fd()) {
        Ok(true) => marker(root.as_fd()).ok().flatten(),
        _ => None,
    };
    match found == Some(id) {
        true => Ok(OpenVolume { root }),
        false => Err(absent()),
    }
}

/// Opened for reading: a lone path cannot be asked for its room on every file system.
fn open_root(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}

fn is_mount_root(root: BorrowedFd<'_>) -> io::Result<bool> {
    let seen = rustix::fs::statx(root, "", AtFlags::EMPTY_PATH, StatxFlags::empty())?;
    Ok(seen.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// The volume whose marker lies at a root; None where there is no marker. One that cannot be read is an error.
fn marker(root: BorrowedFd<'_>) -> io::Result<Option<VolumeId>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match openat2(root, MARKER, flags, Mode::empty(), below()) {
        Err(Errno::NOENT) => return Ok(None),
        opened => File::from(opened?),
    };
    let mut text = Vec::new();
    file.take(MAX_MARKER).read_to_end(&mut text)?;
    let read: MarkerFile = serde_json::from_slice(&text)?;
    Ok(Some(read.volume))
}

/// Writes the marker at a root that is empty and has none. Gives whose it is.
fn mark(root: BorrowedFd<'_>, id: VolumeId) -> io::Result<VolumeId> {
    if let Some(known) = marker(root)? {
        return Ok(known);
    }
    let path = PathBuf::from(format!("/proc/self/fd/{}", root.as_raw_fd()));
    for entry in fs::read_dir(&path)? {
        let name = entry?.file_name();
        if !OWN_NAMES.iter().any(|own| name == *own) {
            return Err(carried(refusals::volume_not_empty()));
        }
    }
    let text = serde_json::to_vec(&MarkerFile {
        format: FORMAT,
        volume: id,
    })?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let made = openat2(root, MARKER, flags, Mode::RUSR | Mode::WUSR, below());
    let mut file = match made {
        Err(Errno::ROFS) => return Err(carried(refusals::volume_read_only())),
        made => File::from(made?),
    };
    if let Err(error) = file.write_all(&text).and_then(|()| file.sync_all()) {
        // Half a marker would keep the file system from ever being a volume.
        let _ = rustix::fs::unlinkat(root, MARKER, AtFlags::empty());
        return Err(error);
    }
    rustix::fs::fsync(root)?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Instant;

    use uuid::Uuid;

    use super::*;

    const ID: VolumeId = VolumeId(Uuid::from_u128(0xab));
    const OTHER: VolumeId = VolumeId(Uuid::from_u128(0xcd));

    fn code(error: &io::Error) -> String {
        refusal_of(error).map_or_else(|| error.to_string(), |refusal| refusal.code)
    }

    fn shelf(data: &Path, patience: Duration) -> VolumeShelf {
        VolumeShelf {
            patience,
            ..VolumeShelf::of(data)
        }
    }

    #[test]
    fn a_directory_that_nothing_is_mounted_on_is_no_volume() {
        let data = tempfile::tempdir().expect("a directory");
        let path = data.path().join("mnt");
        fs::create_dir(&path).expect("made");
        let refused = VolumeShelf::adopt(&path, ID).expect_err("not mounted");
        assert_eq!(code(&refused), "volume.not-mounted");
        assert_eq!(fs::read_dir(&path).expect("there").count(), 0);
        let shelf = VolumeShelf::of(data.path());
        shelf.keep(ID, &path).expect("kept");
        assert_eq!(shelf.look(ID).state, VolumeState::Absent);
        let refused = shelf.enter(ID).expect_err("absent");
        assert_eq!(code(&refused), "volume.absent");
        assert_eq!(shelf.all().expect("a list"), [ID]);
        shelf.forget(ID).expect("forgotten");
        assert!(shelf.all().expect("a list").is_empty());
    }

    #[test]
    fn the_own_directories_of_a_server_are_no_volume() {
        let place = tempfile::tempdir().expect("a directory");
        let data = place.path().join("data");
        let shelf = VolumeShelf::of(&data);
        let below = data.join("folders/ab/x/data");
        for own in [place.path(), data.as_path(), below.as_path()] {
            assert!(shelf.is_own(own), "{}", own.display());
        }
        for other in [place.path().join("mnt"), data.join("mnt")] {
            assert!(!shelf.is_own(&other), "{}", other.display());
        }
    }

    #[test]
    fn a_marker_is_written_once_and_only_where_nothing_else_is() {
        let place = tempfile::tempdir().expect("a directory");
        let root = open_root(place.path()).expect("open");
        fs::create_dir(place.path().join("lost+found")).expect("made");
        assert_eq!(marker(root.as_fd()).expect("read"), None);
        assert_eq!(mark(root.as_fd(), ID).expect("written"), ID);
        assert_eq!(mark(root.as_fd(), OTHER).expect("it has one"), ID);
        assert_eq!(marker(root.as_fd()).expect("read"), Some(ID));
        fs::write(place.path().join(MARKER), "no marker").expect("written");
        marker(root.as_fd()).expect_err("it cannot be read");
        let full = tempfile::tempdir().expect("a directory");
        fs::write(full.path().join("a"), "").expect("written");
        let root = open_root(full.path()).expect("open");
        let refused = mark(root.as_fd(), ID).expect_err("it holds other files");
        assert_eq!(code(&refused), "volume.not-empty");
        assert!(!full.path().join(MARKER).exists());
        let link = tempfile::tempdir().expect("a directory");
        symlink("/etc/passwd", link.path().join(MARKER)).expect("a link");
        let root = open_root(link.path()).expect("open");
        marker(root.as_fd()).expect_err("no link is followed");
    }

    /// Looks that answer when the test lets them stand for a file system that hangs.
    #[test]
    fn a_look_that_does_not_come_back_costs_its_time_limit_alone() {
        let data = tempfile::tempdir().expect("a directory");
        let shelf = shelf(data.path(), Duration::from_secs(1));
        let ready = VolumeSight {
            state: VolumeState::Ready,
            total: 2,
            free: 1,
            at: SystemTime::UNIX_EPOCH,
        };
        let mut held = Vec::new();
        for _ in 0..MAX_LOOKS {
            let (go, waits) = channel::<()>();
            let sight = ready.clone();
            let seen = shelf.look_by(ID, move || {
                let _ = waits.recv();
                sight
            });
            assert_eq!(seen.state, VolumeState::Hung);
            held.push(go);
        }
        let (began, _) = (Instant::now(), shelf.enter(ID).expect_err("it hangs"));
        let seen = shelf.look_by(ID, || unreachable!("no thread more hangs with it"));
        assert_eq!(seen.state, VolumeState::Hung);
        assert!(began.elapsed() < Duration::from_secs(1), "at once");
        let other = shelf.look_by(OTHER, move || ready);
        assert_eq!(other.state, VolumeState::Ready, "others go on");
        drop(held);
        let until = Instant::now() + Duration::from_secs(10);
        while shelf
            .sight(ID)
            .is_none_or(|one| one.state == VolumeState::Hung)
        {
            assert!(Instant::now() < until, "it comes back by itself");
            thread::sleep(Duration::from_millis(5));
        }
    }
}
