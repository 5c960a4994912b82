//! The file system of one scope, in a sparse file beside the folders: as large as the limit, made by the machine's own tools,
//! mounted from a loop device. Takes no more of the disk than what lies in it; what is removed is given back.

use std::fs::{self, File, Permissions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use rules::units::Bytes;
use store::quota::ScopePlace;

use super::loop_device::{LoopDevice, attach, is_attached, name_below};
use crate::program;

/// The kernel's request to grow a mounted ext4, with the number of blocks.
const RESIZE: libc::Ioctl = 0x4008_6610;
const BLOCK: u64 = 4096;
/// Bytes of a scope for each file that there may be in it. Higher: trees of small files meet their end before the limit.
/// Lower: more of the disk is tables.
const BYTES_FOR_A_FILE: u64 = 16 * 1024;
/// How often a file system is made or grown until its room is what the limit says. Each step is nearer; the second one is
/// nearly always the last.
const FITTINGS: u64 = 4;
/// Blocks that may be missing: to be exact costs another file system. Those of an eight thousandth of the limit may too.
const SPARE_BLOCKS: u64 = 64;
/// Blocks that the kernel keeps for itself of any limit, at least and at most, and a thousandth between. Without them data
/// that was written, but not yet to the disk, may find no block for its own place in the tree.
const OWN_BLOCKS: [u64; 2] = [64, 1024];
/// How long a device may take to let go of its file once nothing is mounted from it: the kernel does that beside, and a
/// session that begins holds all mounts for a moment.
const DETACH_TIMEOUT: Duration = Duration::from_secs(2);
/// The bit of a superblock's state that says that there is something to mend.
const FAULT: u8 = 2;
/// What is asked of a mounted scope: freed blocks go back to the disk, the tables that read as nothing stay so, and a fault
/// of the disk ends writing.
const OPTIONS: &str = "discard,noinit_itable,errors=remount-ro";

/// Where the tools of file systems are.
const TOOLS: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin"];

/// How long what lies in an image has to last.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ImageLife {
    /// Over a loss of power.
    Long,
    /// As long as one session.
    Session,
}

/// MiB of the journal. More: a scope takes more of the disk than what lies in it. Less: many small writes wait for it.
fn journal(limit: Bytes) -> u64 {
    match limit {
        limit if limit < Bytes::gib(1) => 16,
        limit if limit < Bytes::gib(16) => 32,
        _ => 64,
    }
}

/// About how long a file is whose file system has room for `limit`, rather more than less.
fn length_for(limit: Bytes) -> u64 {
    let tables = limit.0 / BYTES_FOR_A_FILE * 256 + limit.0 / 1024;
    whole_blocks(limit.0 + tables + (journal(limit) << 20) + (4 << 20))
}

/// Whether a file system with so much room is as large as its limit.
fn is_enough(room: u64, limit: Bytes) -> bool {
    room + (SPARE_BLOCKS * BLOCK).max(limit.0 / 8192) >= limit.0
}

fn whole_blocks(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK)
}

/// How large the file system of a scope is: no larger than the disk below it, where that says how large it is. What the disk
/// could not hold would cost tables all the same, and seconds to make them.
pub(super) fn within_disk(scope: &ScopePlace, limit: Bytes) -> io::Result<Bytes> {
    let disk = rustix::fs::statvfs(scope.directory())?;
    Ok(match disk.f_blocks.saturating_mul(disk.f_frsize) {
        0 => limit,
        all => limit.min(Bytes(all)),
    })
}

/// Makes the file system of a scope, which has none. A loss of power leaves it whole or not there.
///
/// Errors: `AlreadyExists` where one that lasts is there: what lies in it is never written over.
pub(super) fn make(scope: &ScopePlace, limit: Bytes, life: ImageLife) -> io::Result<()> {
    if life == ImageLife::Long && scope.image().try_exists()? {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let limit = within_disk(scope, limit)?;
    let beside = scope.directory().join("image.new");
    let mut length = match life {
        ImageLife::Long => length_for(limit),
        ImageLife::Session => length_for(limit) - (journal(limit) << 20),
    };
    let wanted = limit.0 / BLOCK * BLOCK;
    for _ in 0..FITTINGS {
        let file = File::create(&beside)?;
        file.set_len(length)?;
        format(&beside, limit, life)?;
        let Some(room) = Superblock::read(&beside)?.room() else {
            break;
        };
        if room <= wanted && is_enough(room, limit) {
            break;
        }
        let missing = wanted.saturating_sub(room);
        let beyond = room.saturating_sub(wanted);
        length = with_tables(length, missing).saturating_sub(beyond);
    }
    if life == ImageLife::Long {
        File::open(&beside)?.sync_all()?;
    }
    fs::rename(&beside, scope.image())?;
    match life {
        ImageLife::Long => File::open(scope.directory())?.sync_all(),
        ImageLife::Session => Ok(()),
    }
}

fn format(image: &Path, limit: Bytes, life: ImageLife) -> io::Result<()> {
    let size = format!("size={}", journal(limit));
    let journal = match life {
        ImageLife::Long => ["-J", size.as_str()],
        ImageLife::Session => ["-O", "^has_journal"],
    };
    let block = BLOCK.to_string();
    let each = BYTES_FOR_A_FILE.to_string();
    let words = [
        "mkfs.ext4",
        "-q",
        "-F",
        "-b",
        block.as_str(),
        "-I",
        "256",
        "-i",
        each.as_str(),
        "-m",
        "0",
        journal[0],
        journal[1],
        "-E",
        // The file reads as nothing: there is nothing to write where nothing is.
        "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0",
        word(image)?,
    ];
    run(&words, &[0])
}

fn word(path: &Path) -> io::Result<&str> {
    path.to_str()
        .ok_or_else(|| io::Error::other("the path of the data directory is no text"))
}

/// Where one of the machine's own tools is, whatever the path of this process says; None where it is not installed.
pub(super) fn tool(name: &str) -> Option<String> {
    let mut places = TOOLS.iter().map(|directory| format!("{directory}/{name}"));
    places.find(|place| Path::new(place).exists())
}

/// Runs one of these tools, which ends with one of these codes where all is well.
fn run(words: &[&str], well: &[i32]) -> io::Result<()> {
    let Some((name, arguments)) = words.split_first() else {
        return Ok(());
    };
    let missing = || io::Error::other(format!("{name} is not installed"));
    let place = tool(name).ok_or_else(missing)?;
    let all: Vec<&str> = std::iter::once(place.as_str())
        .chain(arguments.iter().copied())
        .collect();
    let ended = program::run_ending(&all, well);
    ended.map(drop).map_err(io::Error::other)
}

/// What a file system says of itself, in its file or on its device.
struct Superblock {
    blocks: u64,
    /// Blocks of tables; 0 where the tools that made it do not say.
    tables: u64,
    /// The kernel, or the tool that grew it, left it with something to mend.
    has_fault: bool,
}

impl Superblock {
    fn read(place: &Path) -> io::Result<Self> {
        let mut block = [0u8; 1024];
        let mut file = File::open(place)?;
        file.seek(SeekFrom::Start(1024))?;
        file.read_exact(&mut block)?;
        let number = |at: usize| {
            let bytes = [block[at], block[at + 1], block[at + 2], block[at + 3]];
            u64::from(u32::from_le_bytes(bytes))
        };
        Ok(Self {
            blocks: number(0x4) | (number(0x150) << 32),
            tables: number(0x248),
            has_fault: block[0x3a] & FAULT != 0,
        })
    }

    /// Bytes that it has for files; None where that is not said.
    fn room(&self) -> Option<u64> {
        let blocks = self.blocks.saturating_sub(self.tables);
        (self.tables > 0).then_some(blocks * BLOCK)
    }
}

/// Whether the kernel found a fault in a mounted scope: it writes nothing more to it then.
pub(super) fn has_fault(scope: &ScopePlace) -> io::Result<bool> {
    let device = LoopDevice::below(&File::open(scope.files())?)?;
    Ok(Superblock::read(&device.path)?.has_fault)
}

/// Has the tool of the file system mend a fault that was found in it, unless a session still has it mounted. A full disk of the
/// machine leaves one as well as a broken one, and so does a loss of power while it was grown unmounted.
fn mend(image: &Path) -> io::Result<()> {
    if !Superblock::read(image)?.has_fault || !is_let_go(image)? {
        return Ok(());
    }
    tracing::warn!(image = %image.display(), "a fault in the file system of a scope is mended");
    check(image)
}

fn check(image: &Path) -> io::Result<()> {
    // It ends with 1 where it mended something.
    run(&["e2fsck", "-f", "-p", word(image)?], &[0, 1])
}

/// Whether nothing is mounted from the file of a scope, in any namespace. Waits for a moment while something is.
fn is_let_go(image: &Path) -> io::Result<bool> {
    let until = Instant::now() + DETACH_TIMEOUT;
    while is_attached(image)? {
        if Instant::now() >= until {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(true)
}

/// Mounts the file system of a scope where its folders lie, for root alone to walk.
pub(super) fn mount_files(scope: &ScopePlace) -> io::Result<()> {
    let image = scope.image();
    if let Err(error) = mend(&image) {
        // The kernel decides whether it can be mounted as it is.
        tracing::error!(image = %image.display(), %error, "the file system of a scope cannot be mended");
    }
    let device = attach(&image)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let files = scope.files();
    let as_told = |flags| {
        let (device, kind) = (Some(&device.path), Some("ext4"));
        mount(device, &files, kind, flags, Some(OPTIONS))
    };
    match as_told(flags) {
        // A session has it mounted, and a fault ended writing: reading goes on.
        Err(Errno::EBUSY) => Ok(as_told(flags | MsFlags::MS_RDONLY)?),
        mounted => {
            mounted?;
            fs::set_permissions(&files, Permissions::from_mode(0o700))
        }
    }
}

/// Takes the file system of a scope out of this namespace. Sessions that mount its folders keep what they have.
///
/// Errors: `ResourceBusy` while this process has something of it open.
pub(super) fn unmount_files(scope: &ScopePlace) -> io::Result<()> {
    Ok(umount2(&scope.files(), MntFlags::UMOUNT_NOFOLLOW)?)
}

/// The same, at once: a descriptor that this process still has open stays usable.
pub(super) fn detach_files(scope: &ScopePlace) -> io::Result<()> {
    let flags = MntFlags::UMOUNT_NOFOLLOW | MntFlags::MNT_DETACH;
    Ok(umount2(&scope.files(), flags)?)
}

/// What a mounted scope has, in blocks of its own size.
struct ScopeRoom {
    block: u64,
    all: u64,
    free: u64,
    /// Of the free ones, those that a scope gets.
    left: u64,
    files: u64,
    free_files: u64,
}

impl ScopeRoom {
    fn of(root: &File) -> io::Result<Self> {
        let found = rustix::fs::fstatvfs(root)?;
        Ok(Self {
            block: found.f_frsize.max(1),
            all: found.f_blocks,
            free: found.f_bfree,
            left: found.f_bavail,
            files: found.f_files,
            free_files: found.f_ffree,
        })
    }
}

/// Used bytes, files in it and how many there may be, as a mounted scope says. Where the kernel gives out no block any more, all
/// of the limit is used: the last ones are its own.
pub(super) fn taken(scope: &ScopePlace, limit: Bytes) -> io::Result<(Bytes, u64, u64)> {
    let room = ScopeRoom::of(&File::open(scope.files())?)?;
    let used = room.all.saturating_sub(room.free) * room.block;
    let used = if room.left == 0 {
        used.max(limit.0)
    } else {
        used
    };
    let files = room.files.saturating_sub(room.free_files);
    Ok((Bytes(used), files, room.files))
}

/// Gives a mounted scope room for its limit, and keeps what it has beyond that from everybody. Never makes it smaller: a lower
/// limit holds because the kernel gives out no block beyond it.
///
/// Errors: `PermissionDenied` where it is too small and the kernel grows no mounted file system for this process.
pub(super) fn fit(scope: &ScopePlace, limit: Bytes) -> io::Result<()> {
    let limit = within_disk(scope, limit)?;
    let root = File::open(scope.files())?;
    let mut room = ScopeRoom::of(&root)?;
    let mut length = 0;
    for _ in 0..FITTINGS {
        let has = room.all * room.block;
        if is_enough(has, limit) {
            break;
        }
        length = grow(&root, &scope.image(), length, limit.0.saturating_sub(has))?;
        room = ScopeRoom::of(&root)?;
    }
    reserve(&root, &room, limit)
}

/// Grows a mounted file system by so much room; gives how long it was asked to be. `before`: the same of the step before.
///
/// A refusal, or a loss of power in between, leaves its file longer than it is, which costs nothing. The file is never made
/// shorter again: the kernel may have grown a part of the way, and what it wrote there would be gone.
fn grow(root: &File, image: &Path, before: u64, missing: u64) -> io::Result<u64> {
    let device = LoopDevice::below(root)?;
    let blocks = Superblock::read(&device.path)?.blocks;
    // By its own size and not by its file's: else each further try would make it longer.
    let length = with_tables(before.max(blocks * BLOCK), missing);
    lengthen(image, length)?;
    device.follow_file()?;
    let blocks = length / BLOCK;
    // SAFETY: the request takes the address of a number, which lives through the call.
    let answer = unsafe { libc::ioctl(root.as_raw_fd(), RESIZE, &raw const blocks) };
    match answer {
        0 => Ok(length),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes the file of a scope at least so long, over a loss of power.
fn lengthen(image: &Path, length: u64) -> io::Result<()> {
    let image = File::options().write(true).open(image)?;
    if image.metadata()?.len() < length {
        image.set_len(length)?;
        image.sync_all()?;
    }
    Ok(())
}

/// How long a file is that grows by so much room: what is added has tables too, a hundredth of it or two. Rather a second step
/// than one too far.
fn with_tables(length: u64, missing: u64) -> u64 {
    whole_blocks(length + missing + missing / 128)
}

/// Has the kernel keep what a scope has beyond its limit, and a little for itself.
fn reserve(root: &File, room: &ScopeRoom, limit: Bytes) -> io::Result<()> {
    let limit = limit.0 / room.block;
    let own = (limit / 1024).clamp(OWN_BLOCKS[0], OWN_BLOCKS[1]);
    let kept = room.all.saturating_sub(limit).max(own);
    let kept = kept.min(room.all.saturating_sub(1));
    let name = name_below(root)?;
    let place = Path::new("/sys/fs/ext4")
        .join(name)
        .join("reserved_clusters");
    fs::write(place, kept.to_string())
}

/// Grows the file system of a scope that was just unmounted to its limit. A loss of power in between leaves it with a fault
/// that is mended before it is mounted.
///
/// Errors: `ResourceBusy` while a session still mounts it, whose mount is in no list of this process.
pub(super) fn grow_unmounted(scope: &ScopePlace, limit: Bytes) -> io::Result<()> {
    let path = scope.image();
    if !is_let_go(&path)? {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    let limit = within_disk(scope, limit)?;
    let found = Superblock::read(&path)?;
    let length = match found.room() {
        Some(room) if is_enough(room, limit) => return Ok(()),
        Some(room) => with_tables(found.blocks * BLOCK, limit.0.saturating_sub(room)),
        None => length_for(limit),
    };
    check(&path)?;
    lengthen(&path, length)?;
    run(&["resize2fs", word(&path)?], &[0])
}
