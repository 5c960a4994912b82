//! What SFTP tells of a file and sets on it, and the few calls of the C library that the standard library has no
//! name for. Never opens a path that a client names by another user than its own.

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_ulong};
use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use crate::packet::{CutRequest, ReplyWriter, RequestReader};

const SIZE: u32 = 1;
const OWNERS: u32 = 2;
const PERMISSIONS: u32 = 4;
const TIMES: u32 = 8;
const EXTENDED: u32 = 0x8000_0000;

const AT_FDCWD: c_int = -100;
const AT_SYMLINK_NOFOLLOW: c_int = 0x100;
const PR_SET_NAME: c_int = 15;

#[repr(C)]
struct FileTime {
    seconds: c_long,
    nanoseconds: c_long,
}

/// `struct statvfs` of 64-bit Linux.
#[repr(C)]
struct RawFileSystem {
    block_size: c_ulong,
    fragment_size: c_ulong,
    blocks: u64,
    blocks_free: u64,
    blocks_available: u64,
    files: u64,
    files_free: u64,
    files_available: u64,
    id: c_ulong,
    flags: c_ulong,
    longest_name: c_ulong,
    spare: [c_int; 6],
}

unsafe extern "C" {
    fn utimensat(folder: c_int, path: *const c_char, times: *const FileTime, flags: c_int)
    -> c_int;
    fn futimens(file: c_int, times: *const FileTime) -> c_int;
    fn statvfs(path: *const c_char, into: *mut RawFileSystem) -> c_int;
    fn fstatvfs(file: c_int, into: *mut RawFileSystem) -> c_int;
    fn prctl(option: c_int, ...) -> c_int;
}

/// Gives the process the name that lists show; it was started from a file without one.
pub(crate) fn name_process(name: &CStr) {
    // SAFETY: the name ends with a null byte and outlives the call.
    unsafe { prctl(PR_SET_NAME, name.as_ptr()) };
}

fn done(answer: c_int) -> io::Result<()> {
    match answer {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Attributes of a file, as far as they are given.
#[derive(Default)]
pub(crate) struct Attributes {
    size: Option<u64>,
    owners: Option<(u32, u32)>,
    permissions: Option<u32>,
    /// Read and written, in seconds.
    times: Option<(u32, u32)>,
}

impl Attributes {
    pub(crate) fn of(seen: &Metadata) -> Self {
        let seconds = |time: i64| u32::try_from(time).unwrap_or(0);
        Self {
            size: Some(seen.len()),
            owners: Some((seen.uid(), seen.gid())),
            permissions: Some(seen.mode()),
            times: Some((seconds(seen.atime()), seconds(seen.mtime()))),
        }
    }

    pub(crate) fn read(request: &mut RequestReader<'_>) -> Result<Self, CutRequest> {
        let flags = request.number()?;
        let mut read = Self::default();
        if flags & SIZE != 0 {
            read.size = Some(request.long()?);
        }
        if flags & OWNERS != 0 {
            read.owners = Some((request.number()?, request.number()?));
        }
        if flags & PERMISSIONS != 0 {
            read.permissions = Some(request.number()?);
        }
        if flags & TIMES != 0 {
            read.times = Some((request.number()?, request.number()?));
        }
        if flags & EXTENDED != 0 {
            for _ in 0..request.number()? {
                request.string()?;
                request.string()?;
            }
        }
        Ok(read)
    }

    pub(crate) fn write(&self, reply: &mut ReplyWriter) {
        let flag = |given: bool, flag: u32| if given { flag } else { 0 };
        reply.number(
            flag(self.size.is_some(), SIZE)
                | flag(self.owners.is_some(), OWNERS)
                | flag(self.permissions.is_some(), PERMISSIONS)
                | flag(self.times.is_some(), TIMES),
        );
        if let Some(size) = self.size {
            reply.long(size);
        }
        if let Some((user, group)) = self.owners {
            reply.number(user);
            reply.number(group);
        }
        if let Some(permissions) = self.permissions {
            reply.number(permissions);
        }
        if let Some((read, written)) = self.times {
            reply.number(read);
            reply.number(written);
        }
    }

    /// The bits that may be set.
    pub(crate) fn permissions(&self) -> Option<u32> {
        self.permissions.map(|bits| bits & 0o7777)
    }

    fn moments(&self) -> Option<[FileTime; 2]> {
        let moment = |seconds: u32| FileTime {
            seconds: c_long::from(seconds),
            nanoseconds: 0,
        };
        self.times
            .map(|(read, written)| [moment(read), moment(written)])
    }

    /// Sets what is given on a path; without `follows`, on a link itself, which has neither size nor permissions.
    pub(crate) fn set_on(&self, path: &Path, follows: bool) -> io::Result<()> {
        if follows {
            if let Some(size) = self.size {
                File::options().write(true).open(path)?.set_len(size)?;
            }
            if let Some(bits) = self.permissions() {
                fs::set_permissions(path, Permissions::from_mode(bits))?;
            }
        }
        if let Some(times) = self.moments() {
            let path = CString::new(path.as_os_str().as_bytes())?;
            let flags = if follows { 0 } else { AT_SYMLINK_NOFOLLOW };
            // SAFETY: the path ends with a null byte, and two moments outlive the call.
            done(unsafe { utimensat(AT_FDCWD, path.as_ptr(), times.as_ptr(), flags) })?;
        }
        if let Some((user, group)) = self.owners {
            match follows {
                true => std::os::unix::fs::chown(path, Some(user), Some(group))?,
                false => std::os::unix::fs::lchown(path, Some(user), Some(group))?,
            }
        }
        Ok(())
    }

    pub(crate) fn set_on_file(&self, file: &File) -> io::Result<()> {
        if let Some(size) = self.size {
            file.set_len(size)?;
        }
        if let Some(bits) = self.permissions() {
            file.set_permissions(Permissions::from_mode(bits))?;
        }
        if let Some(times) = self.moments() {
            // SAFETY: an open file, and two moments that outlive the call.
            done(unsafe { futimens(file.as_raw_fd(), times.as_ptr()) })?;
        }
        if let Some((user, group)) = self.owners {
            std::os::unix::fs::fchown(file, Some(user), Some(group))?;
        }
        Ok(())
    }
}

/// How full a file system is.
pub(crate) struct FileSystem(RawFileSystem);

impl FileSystem {
    pub(crate) fn at(path: &CStr) -> io::Result<Self> {
        // SAFETY: all of it are numbers, of which zero is one.
        let mut raw: RawFileSystem = unsafe { std::mem::zeroed() };
        // SAFETY: the path ends with a null byte, and the structure has the C library's layout.
        done(unsafe { statvfs(path.as_ptr(), &raw mut raw) })?;
        Ok(Self(raw))
    }

    pub(crate) fn of(file: &File) -> io::Result<Self> {
        // SAFETY: as above.
        let mut raw: RawFileSystem = unsafe { std::mem::zeroed() };
        // SAFETY: an open file, and a structure with the C library's layout.
        done(unsafe { fstatvfs(file.as_raw_fd(), &raw mut raw) })?;
        Ok(Self(raw))
    }

    pub(crate) fn reply(&self, kind: u8, id: u32) -> ReplyWriter {
        const READ_ONLY: c_ulong = 1;
        const NO_SET_ID: c_ulong = 2;
        let raw = &self.0;
        let mut reply = ReplyWriter::new(kind);
        reply.number(id);
        for number in [
            raw.block_size,
            raw.fragment_size,
            raw.blocks,
            raw.blocks_free,
            raw.blocks_available,
            raw.files,
            raw.files_free,
            raw.files_available,
            raw.id,
            // The two flags that SFTP knows have the kernel's numbers.
            raw.flags & (READ_ONLY | NO_SET_ID),
            raw.longest_name,
        ] {
            reply.long(number);
        }
        reply
    }
}

/// A line as `ls -l` prints it, with numbers for the owners.
pub(crate) fn long_name(name: &[u8], seen: &Metadata) -> Vec<u8> {
    let mode = seen.mode();
    let kind = match mode & 0o170_000 {
        0o040_000 => 'd',
        0o120_000 => 'l',
        0o060_000 => 'b',
        0o020_000 => 'c',
        0o010_000 => 'p',
        0o140_000 => 's',
        _ => '-',
    };
    let mut bits = String::from(kind);
    for (at, letter) in "rwxrwxrwx".chars().enumerate() {
        let set = mode & (0o400 >> at) != 0;
        let special = match at {
            2 => mode & 0o4000 != 0,
            5 => mode & 0o2000 != 0,
            8 => mode & 0o1000 != 0,
            _ => false,
        };
        bits.push(match (special, set, at) {
            (true, true, 8) => 't',
            (true, false, 8) => 'T',
            (true, true, _) => 's',
            (true, false, _) => 'S',
            (false, true, _) => letter,
            (false, false, _) => '-',
        });
    }
    let mut line = format!(
        "{bits} {:>4} {:<8} {:<8} {:>8} {} ",
        seen.nlink(),
        seen.uid(),
        seen.gid(),
        seen.len(),
        day(seen.mtime()),
    )
    .into_bytes();
    line.extend_from_slice(name);
    line
}

/// A time as `Jan  5  2026`, by the calendar of Greenwich.
fn day(seconds: i64) -> String {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    // Days since the first of March of the year 0, by whole periods of 400 years.
    let days = seconds.div_euclid(86_400) + 719_468;
    let period = days.div_euclid(146_097);
    let of_period = days.rem_euclid(146_097);
    let year_of_period =
        (of_period - of_period / 1_460 + of_period / 36_524 - of_period / 146_096) / 365;
    let of_year = of_period - (365 * year_of_period + year_of_period / 4 - year_of_period / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = (from_march + 2) % 12;
    let year = year_of_period + period * 400 + i64::from(month < 2);
    let month = MONTHS[usize::try_from(month).unwrap_or(0)];
    format!("{month} {day:>2}  {year}")
}
