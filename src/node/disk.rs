//! Keeps sessions from filling the machine's disk: looks how much room is left where they write, finds who
//! took it, and pauses the session that grows most before the reserve that the rest of the machine lives on is
//! touched. They go on when there is room again. Only a session that grew is ever paused, or one that hides what
//! it has open when nothing else explains what went; within the limit of its folders everybody may write as long
//! as there is room. Never removes anything, and measures nothing while the disk does not fill.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use base::observe::{Clock, chain};
use rules::incident::{EnforcementAction, MemoryIncident};
use rules::names::IncidentId;
use rules::units::Bytes;
use serde::{Deserialize, Serialize};
use store::quota::ScopePlace;
use store::trees::{self, Size};

use crate::record;
use crate::runtime::{Runtime, RuntimeFault, RuntimeName, RuntimePhase, Unnamed};

/// Free bytes below which a growing session is paused; on a small disk an eighth of it, where that is less. Higher:
/// people wait on a disk that has room. Lower: a fast writer gets past it between two looks, down to what the
/// catalog and the logs need.
pub const PAUSE_BELOW: u64 = 512 << 20;

/// Free names (inodes) below which a session that makes files is paused; on a small disk an eighth of all.
pub const PAUSE_BELOW_FILES: u64 = 20_000;

/// How often the disk is looked at while there is plenty of room, which costs one call.
const LOOK_FAR: Duration = Duration::from_secs(1);

/// The same where there is less than this many times the mark for a pause, or a session is paused.
const LOOK_NEAR: Duration = Duration::from_millis(100);
const NEAR: u64 = 4;

/// Room that has to be gone before it is asked who took it: with plenty left, and with none to spare.
const FELL_FAR: FreeSpace = FreeSpace {
    bytes: 64 << 20,
    files: 4096,
};
const FELL_NEAR: FreeSpace = FreeSpace {
    bytes: 1 << 20,
    files: 64,
};

/// While there is plenty of room, sessions are measured no more often than this. Shorter: their files are
/// walked all the time while a session unpacks an archive. Longer: what was written long ago is laid to
/// a session's charge when the disk fills.
const MEASURE_INTERVAL: Duration = Duration::from_secs(30);

/// Measuring may take one part in so many of the time; half of it where there is no room to spare.
const PART_OF_TIME: u32 = 10;

/// Names of one session that are looked at. More: a session of millions of files keeps the thread busy for
/// long. Fewer: more of them are judged by what they wrote instead.
const MAX_NAMES: u64 = 1_000_000;

/// Incidents told of one session; the oldest go first.
const TOLD: usize = 8;

/// What the incidents call the disk, by what is about to run out.
const DISK: &str = "disk";
const FILES: &str = "files";

/// Room for bytes and for names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FreeSpace {
    bytes: u64,
    files: u64,
}

/// The marks at which a session is paused, and at which all continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PauseThresholds {
    pause: FreeSpace,
    go_on: FreeSpace,
}

/// What one session did since it was measured before.
#[derive(Clone, Copy, Debug, Default)]
struct DiskGrowth {
    /// Of its files, those without a name and those in its folders included.
    bytes: u64,
    files: u64,
    /// Bytes that its processes wrote anywhere: what was taken and is in no file that was seen.
    written: u64,
    /// Names in it, where they are too many to be counted.
    beyond: u64,
    /// Its open files could not all be looked at.
    hides: bool,
}

/// What is known of a session that just began.
const NOTHING: SessionDiskUse = SessionDiskUse {
    size: Size {
        bytes: 0,
        entries: 0,
        whole: true,
    },
    unnamed: Unnamed {
        bytes: 0,
        whole: true,
    },
    written: 0,
    flushed: 0,
};

/// What is known of open files that cannot be looked at.
const UNSEEN: Unnamed = Unnamed {
    bytes: 0,
    whole: false,
};

/// What is known of one session.
#[derive(Clone, Copy, Debug)]
struct SessionDiskUse {
    size: Size,
    unnamed: Unnamed,
    /// What its processes say that they wrote.
    written: u64,
    /// What its control group says that was written.
    flushed: u64,
}

/// The watch over one machine's disk.
pub struct DiskWatch {
    inner: Arc<Inner>,
}

struct Inner {
    runtime: Arc<Runtime>,
    clock: Clock,
    /// Where `DiskRecord` is written.
    record: PathBuf,
    /// Called after each incident, so that it is reported at once.
    ring: Box<dyn Fn() + Send + Sync>,
    seen: Mutex<DiskRecord>,
}

/// What the next server has to know.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
struct DiskRecord {
    held: BTreeSet<RuntimeName>,
    incidents: BTreeMap<RuntimeName, Vec<MemoryIncident>>,
}

/// What the thread alone remembers.
#[derive(Default)]
struct DiskWatchState {
    known: BTreeMap<RuntimeName, SessionDiskUse>,
    /// Folders that sessions may write to, or the files of their scopes, as they were measured last.
    folders: BTreeMap<PathBuf, Size>,
    /// Room when everybody was measured, when that was and how long it took; None before the first time.
    measured: Option<(FreeSpace, Instant, Duration)>,
    written: DiskRecord,
}

impl DiskWatch {
    /// A watch that goes on where the one that wrote the record at `path` ended, for the containers that still
    /// exist, and begins to look. `ring` is called when there is something new to tell.
    pub fn begin(
        runtime: Arc<Runtime>,
        clock: Clock,
        path: &Path,
        ring: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let mut seen = record::read(path).unwrap_or_else(|error| {
            tracing::warn!(%error, path = %path.display(), "who was paused for the disk cannot be read; they go on");
            DiskRecord::default()
        });
        let there = runtime.sights().into_iter().map(|sight| sight.name);
        seen.keep(&there.collect());
        let inner = Arc::new(Inner {
            runtime,
            clock,
            record: path.to_owned(),
            ring: Box::new(ring),
            seen: Mutex::new(seen),
        });
        let watched = Arc::downgrade(&inner);
        std::thread::Builder::new()
            .name("disk".to_owned())
            .spawn(move || watch(&watched))?;
        Ok(Self { inner })
    }

    /// Whether this container is paused for the disk's sake: then nothing else resumes it.
    pub fn holds(&self, container: &RuntimeName) -> bool {
        self.inner.seen().held.contains(container)
    }

    /// Everything that was done to containers that are not forgotten, oldest first for each.
    pub fn incidents(&self) -> Vec<MemoryIncident> {
        let seen = self.inner.seen();
        seen.incidents.values().flatten().cloned().collect()
    }

    /// Drops what is known of a container that is gone for good.
    pub fn forget(&self, container: &RuntimeName) {
        let mut seen = self.inner.seen();
        seen.held.remove(container);
        seen.incidents.remove(container);
    }
}

impl DiskRecord {
    fn keep(&mut self, there: &BTreeSet<RuntimeName>) {
        self.held.retain(|name| there.contains(name));
        self.incidents.retain(|name, _| there.contains(name));
    }
}

/// Looks until the machine is closed.
fn watch(inner: &Weak<Inner>) {
    let mut eyes = DiskWatchState::default();
    loop {
        let Some(inner) = inner.upgrade() else {
            return;
        };
        let near = match inner.look(&mut eyes) {
            Ok(near) => near,
            Err(error) => {
                tracing::warn!(%error, "the room on the disk cannot be seen");
                false
            }
        };
        drop(inner);
        std::thread::sleep(if near { LOOK_NEAR } else { LOOK_FAR });
    }
}

impl Inner {
    /// Changed in one step each; a panic elsewhere leaves nothing half done.
    fn seen(&self) -> MutexGuard<'_, DiskRecord> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One look at the disk; says whether the next should come soon.
    fn look(&self, eyes: &mut DiskWatchState) -> io::Result<bool> {
        let (room, marks) = look_at(&self.runtime.written_to())?;
        let running = self.running();
        eyes.known.retain(|name, _| running.contains_key(name));
        self.seen().held.retain(|name| running.contains_key(name));
        if eyes.is_due(room, marks) {
            let (fell, grown) = self.measure(eyes, room, &running);
            if room.bytes < marks.pause.bytes {
                for name in by_bytes(fell.bytes, &grown) {
                    self.pause(&name, DISK, eyes, room);
                }
            }
            if room.files < marks.pause.files {
                for name in by_files(fell.files, &grown) {
                    self.pause(&name, FILES, eyes, room);
                }
            }
        }
        if room.bytes >= marks.go_on.bytes && room.files >= marks.go_on.files {
            self.let_one_go_on(eyes, room);
        }
        self.write_down(eyes);
        let near = |left: u64, mark: u64| left < mark.saturating_mul(NEAR);
        Ok(near(room.bytes, marks.pause.bytes)
            || near(room.files, marks.pause.files)
            || !self.seen().held.is_empty())
    }

    /// Containers that run, and whether they are said to be paused.
    fn running(&self) -> BTreeMap<RuntimeName, bool> {
        let sights = self.runtime.sights().into_iter();
        sights
            .filter_map(|sight| match sight.standing {
                RuntimePhase::Running { paused, .. } => Some((sight.name, paused)),
                _ => None,
            })
            .collect()
    }

    /// Measures all sessions again; gives how much room went since the last time, and what each did meanwhile.
    fn measure(
        &self,
        eyes: &mut DiskWatchState,
        room: FreeSpace,
        running: &BTreeMap<RuntimeName, bool>,
    ) -> (FreeSpace, BTreeMap<RuntimeName, DiskGrowth>) {
        let began = Instant::now();
        let before = eyes.measured.map(|(room, _, _)| room);
        let mut grown = BTreeMap::new();
        let mut folders = BTreeMap::new();
        for (name, paused) in running {
            let mut in_folders = FreeSpace::default();
            let written = self.runtime.writable_folders(name);
            // Of a scope each session has its file once, however many folders of it are mounted.
            let written: BTreeSet<PathBuf> = written.into_iter().map(taken_by).collect();
            for folder in written {
                let then = eyes.folders.get(&folder);
                let now = folders
                    .entry(folder)
                    .or_insert_with_key(|folder| self.measure_folder(folder));
                let more = more_in_folder(then, now);
                in_folders.bytes = in_folders.bytes.saturating_add(more.bytes);
                in_folders.files = in_folders.files.saturating_add(more.files);
            }
            let size = match self.runtime.scratch_image(name) {
                Some(image) => self.measure_folder(&image),
                None => self.measure_own(name),
            };
            let now = SessionDiskUse {
                size,
                unnamed: self.runtime.unnamed(name).unwrap_or_else(|error| {
                    tracing::debug!(container = %name, error = %chain(&error), "its open files cannot be looked at");
                    UNSEEN
                }),
                written: self.runtime.written(name),
                flushed: self.runtime.flushed(name),
            };
            let then = eyes.known.insert(name.clone(), now);
            // One that is new since the last time began with nothing.
            let then = then.or(before.is_some().then_some(NOTHING));
            // Who stands still cannot grow; who is told to end goes on until then.
            let still = *paused && self.runtime.stands_still(name);
            if let (Some(then), false) = (then, still) {
                let mut growth = DiskGrowth::between(&then, &now);
                growth.bytes = growth.bytes.saturating_add(in_folders.bytes);
                growth.files = growth.files.saturating_add(in_folders.files);
                grown.insert(name.clone(), growth);
            }
        }
        eyes.folders = folders;
        eyes.measured = Some((room, Instant::now(), began.elapsed()));
        (before.unwrap_or(room).less(room), grown)
    }

    /// What a container's own layers take.
    fn measure_own(&self, name: &RuntimeName) -> Size {
        let device = |path: &Path| rustix::fs::stat(path).map(|found| found.st_dev);
        let (there, here) = (
            device(&self.runtime.own_files(name)),
            device(&self.runtime.written_to()),
        );
        // In a pool they take nothing of this disk that was not set aside.
        if matches!((there, here), (Ok(there), Ok(here)) if there != here) {
            return Size::default();
        }
        trees::measure(&self.runtime.own_files(name), MAX_NAMES).unwrap_or_else(|error| {
            tracing::debug!(container = %name, %error, "its files cannot be measured");
            Size::default()
        })
    }

    /// What a folder takes of the disk that is watched; nothing where it lies on another one.
    fn measure_folder(&self, folder: &Path) -> Size {
        let device = |path: &Path| rustix::fs::stat(path).map(|found| found.st_dev);
        match (device(folder), device(&self.runtime.written_to())) {
            (Ok(there), Ok(here)) if there == here => {}
            _ => return Size::default(),
        }
        if let Ok(found) = folder.metadata()
            && found.is_file()
        {
            return Size {
                bytes: found.blocks().saturating_mul(512),
                entries: 0,
                whole: true,
            };
        }
        trees::measure(folder, MAX_NAMES).unwrap_or_else(|error| {
            tracing::debug!(folder = %folder.display(), %error, "its files cannot be measured");
            Size::default()
        })
    }

    /// Pauses one container, and keeps it so.
    fn pause(&self, name: &RuntimeName, short: &str, eyes: &DiskWatchState, room: FreeSpace) {
        // Before it stands still: nothing may resume it in between.
        let new = self.seen().held.insert(name.clone());
        match self.runtime.pause(name) {
            Ok(()) if new => self.tell(name, EnforcementAction::Paused, short, eyes, room),
            // It was told to end and grows instead: it is killed after its grace, where it stands.
            Ok(()) => {}
            Err(fault) => {
                self.seen().held.remove(name);
                let over = matches!(
                    fault,
                    RuntimeFault::NotRunning(_) | RuntimeFault::Unknown(_)
                );
                if !over {
                    tracing::error!(container = %name, error = %chain(&fault), "it fills the disk and cannot be paused");
                }
            }
        }
    }

    /// The reconciler resumes it where it is wanted. One at a look: all at once would fill the disk at once.
    fn let_one_go_on(&self, eyes: &DiskWatchState, room: FreeSpace) {
        let Some(name) = self.seen().held.pop_first() else {
            return;
        };
        self.tell(&name, EnforcementAction::Resumed, DISK, eyes, room);
    }

    fn tell(
        &self,
        name: &RuntimeName,
        answer: EnforcementAction,
        short: &str,
        eyes: &DiskWatchState,
        room: FreeSpace,
    ) {
        let known = eyes.known.get(name);
        let held = known.map_or(0, |known| known.size.bytes + known.unnamed.bytes);
        tracing::warn!(container = %name, ?answer, short, held, free = room.bytes, free_files = room.files, "the disk is short of room");
        if let Ok(container) = name.as_str().parse() {
            let incident = MemoryIncident {
                id: IncidentId(uuid::Uuid::now_v7()),
                at: self.clock.now(),
                container,
                device: short.to_owned(),
                answer,
                held: Bytes(held),
                limit: Bytes(room.bytes),
            };
            let mut seen = self.seen();
            let told = seen.incidents.entry(name.clone()).or_default();
            told.push(incident);
            if told.len() > TOLD {
                told.remove(0);
            }
        }
        (self.ring)();
    }

    /// Writes what the next server has to know, where it is not what stands there.
    fn write_down(&self, eyes: &mut DiskWatchState) {
        let now = self.seen().clone();
        if now == eyes.written {
            return;
        }
        match record::write(&self.record, &now) {
            Ok(()) => eyes.written = now,
            Err(error) => {
                tracing::warn!(%error, path = %self.record.display(), "who is paused for the disk cannot be written; a next server would let them go on");
            }
        }
    }
}

impl DiskWatchState {
    /// Whether it is time to ask who took the room.
    fn is_due(&self, room: FreeSpace, marks: PauseThresholds) -> bool {
        let Some((before, at, took)) = self.measured else {
            return true;
        };
        let fell = before.less(room);
        let by = |step: FreeSpace| fell.bytes >= step.bytes || fell.files >= step.files;
        let short = room.bytes < marks.pause.bytes || room.files < marks.pause.files;
        let rest = match short {
            true => took,
            false => MEASURE_INTERVAL.max(took * PART_OF_TIME),
        };
        at.elapsed() >= rest && by(if short { FELL_NEAR } else { FELL_FAR })
    }
}

impl FreeSpace {
    /// How much less there is in the other.
    fn less(self, now: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(now.bytes),
            files: self.files.saturating_sub(now.files),
        }
    }
}

impl DiskGrowth {
    fn between(then: &SessionDiskUse, now: &SessionDiskUse) -> Self {
        let counted = then.size.whole && now.size.whole;
        let seen = then.unnamed.whole && now.unnamed.whole;
        let only = |known: bool, amount: u64| if known { amount } else { 0 };
        // Together: a file that lost its name is no growth.
        let bytes =
            |each: &SessionDiskUse| only(counted, each.size.bytes) + only(seen, each.unnamed.bytes);
        let written = now.written.saturating_sub(then.written);
        Self {
            bytes: bytes(now).saturating_sub(bytes(then)),
            files: only(counted, now.size.entries.saturating_sub(then.size.entries)),
            written: written.max(now.flushed.saturating_sub(then.flushed)),
            beyond: only(!counted, now.size.entries),
            hides: !now.unnamed.whole,
        }
    }
}

/// What takes the room that is written into a folder: the file of its scope where it has one, else itself.
fn taken_by(folder: PathBuf) -> PathBuf {
    match ScopePlace::around(&folder).map(|scope| scope.image()) {
        Some(image) if image.is_file() => image,
        _ => folder,
    }
}

/// How much a folder grew. One that is seen for the first time did not: what lies in it was there before its session. Each
/// session that may write to it is said to have done it.
fn more_in_folder(then: Option<&Size>, now: &Size) -> FreeSpace {
    match then {
        Some(then) if then.whole && now.whole => FreeSpace {
            bytes: now.bytes.saturating_sub(then.bytes),
            files: now.entries.saturating_sub(then.entries),
        },
        _ => FreeSpace::default(),
    }
}

/// Who has to be paused for the bytes that went. Where neither files nor bytes written say it, the session whose
/// open files cannot all be looked at, and of several the one that wrote most.
fn by_bytes(fell: u64, grown: &BTreeMap<RuntimeName, DiskGrowth>) -> Vec<RuntimeName> {
    let chosen = choose(fell, grown, |each| each.bytes, |each| each.written);
    if !chosen.is_empty() || fell == 0 {
        return chosen;
    }
    let hiding = grown.iter().filter(|(_, each)| each.hides);
    let most = hiding.max_by_key(|(_, each)| each.written);
    most.map(|(name, _)| name.clone()).into_iter().collect()
}

/// Who has to be paused for the names that went.
fn by_files(fell: u64, grown: &BTreeMap<RuntimeName, DiskGrowth>) -> Vec<RuntimeName> {
    choose(fell, grown, |each| each.files, |each| each.beyond)
}

/// Those that grew most, until they make up for half of all growth. Where no growth makes up for half of
/// what went, the one that `otherwise` says most of, if all together say enough; else it was no session.
fn choose(
    fell: u64,
    grown: &BTreeMap<RuntimeName, DiskGrowth>,
    by: impl Fn(&DiskGrowth) -> u64,
    otherwise: impl Fn(&DiskGrowth) -> u64,
) -> Vec<RuntimeName> {
    let all: u64 = grown.values().map(&by).sum();
    if all > 0 && all.saturating_mul(2) >= fell {
        let mut most: Vec<(u64, &RuntimeName)> =
            grown.iter().map(|(name, each)| (by(each), name)).collect();
        most.sort_by_key(|(amount, _)| std::cmp::Reverse(*amount));
        let mut sum = 0u64;
        return most
            .into_iter()
            .take_while(|(amount, _)| {
                let more = *amount > 0 && sum.saturating_mul(2) < all;
                sum += amount;
                more
            })
            .map(|(_, name)| name.clone())
            .collect();
    }
    let rest = fell.saturating_sub(all);
    let hints: u64 = grown.values().map(&otherwise).sum();
    if hints == 0 || hints.saturating_mul(2) < rest {
        return Vec::new();
    }
    let most = grown.iter().max_by_key(|(_, each)| otherwise(each));
    most.map(|(name, _)| name.clone()).into_iter().collect()
}

/// Room on the disk of a directory, and the marks of a disk of its size.
fn look_at(directory: &Path) -> io::Result<(FreeSpace, PauseThresholds)> {
    let found = rustix::fs::statvfs(directory)?;
    let room = FreeSpace {
        bytes: found.f_bavail.saturating_mul(found.f_frsize),
        // Some file systems have as many as there is room for, and say none.
        files: match found.f_files {
            0 => u64::MAX,
            _ => found.f_favail,
        },
    };
    let all = FreeSpace {
        bytes: found.f_blocks.saturating_mul(found.f_frsize),
        files: found.f_files,
    };
    Ok((room, PauseThresholds::of(all)))
}

impl PauseThresholds {
    /// The marks of a disk with so much room in all.
    fn of(all: FreeSpace) -> Self {
        let pause = FreeSpace {
            bytes: PAUSE_BELOW.min(all.bytes / 8),
            files: PAUSE_BELOW_FILES.min(all.files / 8),
        };
        // Half as much again: a session that is resumed at the mark would be paused at once.
        let go_on = FreeSpace {
            bytes: pause.bytes / 2 * 3,
            files: pause.files / 2 * 3,
        };
        Self { pause, go_on }
    }
}

#[cfg(test)]
mod tests;
