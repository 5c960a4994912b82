//! First writes of the pool. The blocks of its file were only set aside, and the first write to each of them costs the disk an
//! entry of its journal, for which a synced write waits. So zeros go once to all that is free, in the background. Never writes
//! to a block that anything else has, since each belongs to a file without a name meanwhile, and never holds more than a few MiB.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, FallocateFlags, Mode, OFlags, fallocate, fstatvfs, mkdirat, openat, unlinkat,
};
use rustix::io::Errno;

/// A request of `linux/fs.h`, and words of its answer in `linux/fiemap.h`.
const MAP_EXTENTS: libc::Ioctl = 0xc020_660bu32 as libc::Ioctl;
const LAST: u32 = 1;
const UNWRITTEN: u32 = 0x800;
/// Extents of one answer.
const EXTENTS: u32 = 64;

/// Bytes that are taken, looked at and written together. More: the end of each part of the file system stays as it is, up to
/// so many bytes. Fewer: more transactions.
const PIECE: u64 = 1 << 20;
/// Pieces that are held, so that the kernel gives out the blocks behind them next. Fewer: it is led back over shorter files of
/// users to what it had. More: users have so much less for as long.
const HELD: usize = 8;
/// The part of the pool that may stay as it was: ends that are shorter than a piece.
const LEFT_PART: u64 = 100;
/// The part of the pool that has to be free, above that at which it grows: what is held neither makes it grow nor full.
const FREE_PART: u64 = 4;

/// The directory in which files without a name are made; it is there for a moment.
const PLACE: &str = ".first-writes";
/// What a buffer has to begin at where the kernel takes it as it is.
const ALIGNED: usize = 4096;

/// Bytes a second that others may move on the disk. Less: it is never quiet enough. More: people who wait for a disk notice.
const QUIET: u64 = 1 << 20;
/// How often that is looked at, and how long the disk is left alone where others use it.
const LOOK: Duration = Duration::from_millis(250);
const PAUSE: Duration = Duration::from_secs(1);
/// How soon the end of the server is noticed in a pause.
const STEP: Duration = Duration::from_millis(100);
const SECTOR: u64 = 512;

/// The lowest priority of a thread, and the kernel's words for one whose reads and writes come after those of all others.
const NICER: i32 = 19;
const OF_THREAD: libc::c_int = 1;
const IDLE: libc::c_int = 3 << 13;

/// The kernel's `struct fiemap_extent`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    rest: [u32; 3],
}

/// The kernel's `struct fiemap`, with room for its answer.
#[repr(C)]
struct ExtentMap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [Extent; EXTENTS as usize],
}

const _: () = assert!(size_of::<Extent>() == 56);
const _: () = assert!(size_of::<ExtentMap>() == 32 + 56 * EXTENTS as usize);

/// Why no more is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::scopes) enum FirstWritesEnd {
    /// All that the kernel gives out was written once.
    Done,
    /// Users need what is free.
    Short,
    /// The server leaves.
    Leaving,
}

/// Lets all others go before this thread.
pub(super) fn give_way() {
    let _ = rustix::process::nice(NICER);
    // SAFETY: ioprio_set takes three numbers; 0 is the calling thread.
    // Justification: neither the standard library nor rustix has a way to set it.
    let set = unsafe { libc::syscall(libc::SYS_ioprio_set, OF_THREAD, 0, IDLE) };
    if set != 0 {
        let error = io::Error::last_os_error();
        tracing::debug!(%error, "first writes of the pool are as urgent as all others");
    }
}

/// Bytes of a file that were set aside and never written. Costs a look at each of its extents.
fn unwritten(image: &File) -> io::Result<u64> {
    let all = extents(image, 0..image.metadata()?.len())?;
    let unwritten = all
        .iter()
        .filter(|extent| extent.flags & UNWRITTEN != 0)
        .map(|extent| extent.length);
    Ok(unwritten.sum())
}

/// One pass over the pool.
pub(super) struct FirstWrites<'a> {
    root: &'a File,
    image: File,
    length: u64,
    is_leaving: &'a AtomicBool,
    others: Option<DiskUse>,
    pub(super) written: u64,
}

impl<'a> FirstWrites<'a> {
    /// `root`: of the mounted pool; `image`: its file. `is_polite`: rests as long as it writes, and while others use the disk.
    pub(super) fn of(
        root: &'a File,
        image: &Path,
        is_leaving: &'a AtomicBool,
        is_polite: bool,
    ) -> io::Result<Self> {
        let image = File::open(image)?;
        let found = image.metadata()?;
        Ok(Self {
            root,
            length: found.len(),
            is_leaving,
            others: is_polite.then(|| DiskUse::of(found.dev())),
            image,
            written: 0,
        })
    }

    /// Writes until a hundredth of the pool is left, or nothing of it is reached any more. `groups`: the parts of its file system.
    /// Costs one write of what is free and was never written, and as long again of rest.
    pub(super) fn run(&mut self, groups: u32) -> io::Result<FirstWritesEnd> {
        let mut in_vain = 0;
        // A device that keeps what was written to itself for a while would have it written for ever.
        while in_vain < groups && self.written <= self.length {
            if unwritten(&self.image)? < self.length / LEFT_PART {
                break;
            }
            let before = self.written;
            if let Some(end) = self.sweep()? {
                return Ok(end);
            }
            // What a file without a name takes itself may move everything behind it by a little.
            match self.written - before < PIECE {
                true => in_vain += 1,
                false => in_vain = 0,
            }
        }
        Ok(FirstWritesEnd::Done)
    }

    /// Goes over one part of the file system. The kernel gives a file the blocks behind those that it has, so that all of the part
    /// comes by while little is held; the part is over once blocks come by that were given back. None then.
    fn sweep(&mut self) -> io::Result<Option<FirstWritesEnd>> {
        let file = nameless(self.root)?;
        file.set_len(self.length)?;
        let zeros = vec![0_u8; PIECE as usize + ALIGNED];
        let zeros = &zeros[zeros.as_ptr().align_offset(ALIGNED).min(ALIGNED)..];
        let mut held: VecDeque<(u64, Vec<Place>)> = VecDeque::new();
        let mut given_back: Vec<Range<u64>> = Vec::new();
        let mut at = 0;
        while at + PIECE <= self.length {
            if let Some(end) = self.end()? {
                return Ok(Some(end));
            }
            if self.others.as_mut().is_some_and(DiskUse::is_busy) {
                self.pause();
                continue;
            }
            let began = Instant::now();
            match fallocate(&file, FallocateFlags::KEEP_SIZE, at, PIECE) {
                Err(Errno::NOSPC) => return Ok(Some(FirstWritesEnd::Short)),
                taken => taken?,
            }
            let places = places(&file, at..at + PIECE)?;
            if places.iter().any(|place| place.meets(&given_back)) {
                break;
            }
            for place in &places {
                self.write(&file, place, zeros)?;
            }
            held.push_back((at, places));
            if held.len() > HELD
                && let Some((oldest, places)) = held.pop_front()
            {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&file, flags, oldest, PIECE)?;
                for place in places {
                    match given_back.last_mut() {
                        Some(last) if last.end == place.below.start => last.end = place.below.end,
                        _ => given_back.push(place.below),
                    }
                }
            }
            at += PIECE;
            if self.others.is_some() {
                std::thread::sleep(began.elapsed().min(PAUSE));
            }
        }
        Ok(None)
    }

    fn write(&mut self, file: &File, place: &Place, zeros: &[u8]) -> io::Result<()> {
        let below = extents(&self.image, place.below.clone())?;
        if below.iter().all(|extent| extent.flags & UNWRITTEN == 0) {
            return Ok(());
        }
        let count = place.below.end - place.below.start;
        file.write_all_at(&zeros[..count as usize], place.offset)?;
        self.written += count;
        if let Some(others) = &mut self.others {
            others.own += count;
        }
        Ok(())
    }

    /// Whether it is to end before it is done.
    fn end(&self) -> io::Result<Option<FirstWritesEnd>> {
        if self.is_leaving.load(Ordering::Acquire) {
            return Ok(Some(FirstWritesEnd::Leaving));
        }
        let found = fstatvfs(self.root)?;
        let is_short = found.f_bfree < found.f_blocks / FREE_PART;
        Ok(is_short.then_some(FirstWritesEnd::Short))
    }

    fn pause(&self) {
        let until = Instant::now() + PAUSE;
        while Instant::now() < until && !self.is_leaving.load(Ordering::Acquire) {
            std::thread::sleep(STEP);
        }
    }
}

/// A piece of a file, or a part of one: where in the file it is, and where on the device below.
#[derive(Debug)]
struct Place {
    offset: u64,
    below: Range<u64>,
}

impl Place {
    fn meets(&self, others: &[Range<u64>]) -> bool {
        let below = &self.below;
        others
            .iter()
            .any(|other| other.start < below.end && below.start < other.end)
    }
}

/// A file that goes when it is closed, in another part of the file system than the one before: the kernel gives each new directory
/// the next part, and a file that of its directory. Nothing counts it against a scope.
fn nameless(root: &File) -> io::Result<File> {
    let remove = || match unlinkat(root, PLACE, AtFlags::REMOVEDIR) {
        Err(error) if error != Errno::NOENT => Err(error),
        _ => Ok(()),
    };
    // What a loss of power left.
    remove()?;
    mkdirat(root, PLACE, Mode::from_raw_mode(0o700))?;
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    let opened = openat(root, PLACE, flags, Mode::from_raw_mode(0o600));
    remove()?;
    Ok(File::from(opened?))
}

/// Where a part of a file lies on the device below.
fn places(file: &File, part: Range<u64>) -> io::Result<Vec<Place>> {
    let all = extents(file, part.clone())?.into_iter();
    let places = all.filter_map(|extent| {
        let offset = extent.logical.max(part.start);
        let end = extent.logical.saturating_add(extent.length).min(part.end);
        let start = extent.physical + (offset - extent.logical);
        let count = end.checked_sub(offset)?;
        (count > 0).then(|| Place {
            offset,
            below: start..start + count,
        })
    });
    Ok(places.collect())
}

/// What the file system says of a part of a file. Extents that reach beyond it are told whole; holes are not told.
fn extents(file: &File, part: Range<u64>) -> io::Result<Vec<Extent>> {
    let mut all = Vec::new();
    let mut start = part.start;
    while start < part.end {
        let mut map = ExtentMap {
            start,
            length: part.end - start,
            flags: 0,
            mapped: 0,
            count: EXTENTS,
            reserved: 0,
            extents: [Extent::default(); EXTENTS as usize],
        };
        // SAFETY: the structure has the kernel's layout, whose size is checked above, and says how many extents it has room for.
        let answer = unsafe { libc::ioctl(file.as_raw_fd(), MAP_EXTENTS, &raw mut map) };
        super::done(answer)?;
        let found = &map.extents[..map.mapped.min(EXTENTS) as usize];
        all.extend(found);
        match found.last() {
            Some(last) if last.flags & LAST == 0 && last.logical + last.length > start => {
                start = last.logical + last.length;
            }
            _ => break,
        }
    }
    Ok(all)
}

/// What others move on a disk.
struct DiskUse {
    /// Where the kernel counts; for some disks it does nowhere, and they are quiet.
    counts: PathBuf,
    looked: Instant,
    moved: Option<u64>,
    /// Bytes that were written here since then.
    own: u64,
}

impl DiskUse {
    /// `device`: the number of the disk.
    fn of(device: u64) -> Self {
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let counts = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
        Self {
            moved: moved_in(&counts),
            counts,
            looked: Instant::now(),
            own: 0,
        }
    }

    /// Whether others used the disk since the last look. Costs nothing where that was a moment ago.
    fn is_busy(&mut self) -> bool {
        let elapsed = self.looked.elapsed();
        if elapsed < LOOK {
            return false;
        }
        let now = moved_in(&self.counts);
        let is_busy = match (self.moved, now) {
            (Some(before), Some(now)) => is_busy(now.saturating_sub(before), self.own, elapsed),
            _ => false,
        };
        self.looked = Instant::now();
        self.moved = now;
        self.own = 0;
        is_busy
    }
}

/// A sixteenth more than what is written is what both file systems write for it.
fn is_busy(moved: u64, own: u64, elapsed: Duration) -> bool {
    let others = moved.saturating_sub(own + own / 16);
    let milliseconds = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    others.saturating_mul(1000) > QUIET.saturating_mul(milliseconds)
}

/// Bytes that were read and written since the machine began.
fn moved_in(counts: &Path) -> Option<u64> {
    moved(&fs::read_to_string(counts).ok()?)
}

fn moved(counts: &str) -> Option<u64> {
    let mut words = counts.split_whitespace();
    let read: u64 = words.nth(2)?.parse().ok()?;
    let written: u64 = words.nth(3)?.parse().ok()?;
    Some(read.saturating_add(written).saturating_mul(SECTOR))
}

#[cfg(test)]
mod tests;
