//! Loop devices: block devices whose bytes lie in a file. A file never gets two: two file systems that both believe to be the
//! only one on it would destroy each other.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Requests of `linux/loop.h`.
const CONFIGURE: libc::Ioctl = 0x4c0a;
const GET_STATUS: libc::Ioctl = 0x4c05;
const SET_CAPACITY: libc::Ioctl = 0x4c07;
const GET_FREE: libc::Ioctl = 0x4c82;
/// The device lets go of its file once nothing is mounted from it.
const AUTO_CLEAR: u32 = 4;
/// The file's pages are not cached twice.
const DIRECT_IO: u32 = 16;
/// Another process may take the free device that was found. Higher: a machine without any is asked for longer. Lower: starts
/// beside each other fail.
const ATTEMPTS: usize = 32;

/// Held from the look for a file's device until it has one: two threads at once would both find none.
static ATTACHING: Mutex<()> = Mutex::new(());

/// The kernel's `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct LoopStatus {
    device: u64,
    inode: u64,
    own_device: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encryption: u32,
    key_size: u32,
    flags: u32,
    names: [[u64; 8]; 2],
    key: [u64; 4],
    init: [u64; 2],
}

/// The kernel's `struct loop_config`.
#[repr(C)]
struct LoopConfiguration {
    file: u32,
    block_size: u32,
    status: LoopStatus,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopStatus>() == 232);
const _: () = assert!(size_of::<LoopConfiguration>() == 304);

/// A device that has its file for as long as this is held, or something is mounted from it.
pub(super) struct LoopDevice {
    pub(super) path: PathBuf,
    file: File,
}

/// The device of a file: the one that it has, else a free one, with direct input and output where the disk can.
///
/// Costs a look at each device that is in use. Errors: what the kernel says, also of a device of others that cannot be
/// looked at, since it may be the one that has the file.
pub(super) fn attach(image: &Path) -> io::Result<LoopDevice> {
    let file = open_to_write(image)?;
    let _alone = ATTACHING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(device) = attached(&file)? {
        return Ok(device);
    }
    let control = open_to_write(Path::new("/dev/loop-control"))?;
    for _ in 0..ATTEMPTS {
        // SAFETY: the request takes no argument.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), GET_FREE) };
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let configured = open_to_write(&path).and_then(|device| {
            let configured = match configure(&device, &file, AUTO_CLEAR | DIRECT_IO) {
                // A disk with larger blocks than the device, or none that reads past its cache.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    configure(&device, &file, AUTO_CLEAR)
                }
                configured => configured,
            };
            // Before the other one is closed, with which the device would let go. A kernel may mount nothing that is open
            // for writing.
            configured.and_then(|()| File::open(&path))
        });
        match configured {
            Ok(file) => return Ok(LoopDevice { path, file }),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::ResourceBusy,
        "others take each free loop device",
    ))
}

/// Whether a file has a device: something of it is still mounted somewhere. Costs as `attach`.
pub(super) fn is_attached(image: &Path) -> io::Result<bool> {
    Ok(attached(&File::open(image)?)?.is_some())
}

/// The device that has this file already, also one that another process attached.
fn attached(image: &File) -> io::Result<Option<LoopDevice>> {
    let wanted = image.metadata()?;
    for entry in fs::read_dir("/sys/block")?.flatten() {
        let name = entry.file_name();
        let is_used = entry.path().join("loop/backing_file").exists();
        if !is_used {
            continue;
        }
        let path = Path::new("/dev").join(name);
        // Only to read: the machine looks once more at what lies on a device each time that one who may write closes it.
        let looked = File::open(&path).and_then(|file| {
            let device = LoopDevice { path, file };
            device.status().map(|status| (device, status))
        });
        match looked {
            Ok((device, status))
                if (status.device, status.inode) == (wanted.dev(), wanted.ino()) =>
            {
                return Ok(Some(device));
            }
            Ok(_) => {}
            // It was let go of since.
            Err(error)
                if [libc::ENXIO, libc::ENODEV, libc::ENOENT]
                    .map(Some)
                    .contains(&error.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

impl LoopDevice {
    /// The device from which the file system at `mounted` is mounted.
    pub(super) fn below(mounted: &File) -> io::Result<Self> {
        let path = Path::new("/dev").join(name_below(mounted)?);
        Ok(Self {
            file: File::open(&path)?,
            path,
        })
    }

    fn status(&self) -> io::Result<LoopStatus> {
        let mut status = LoopStatus::default();
        // SAFETY: as in `configure` below; the kernel writes into a structure of its own layout.
        let answer = unsafe { libc::ioctl(self.file.as_raw_fd(), GET_STATUS, &raw mut status) };
        done(answer).map(|()| status)
    }

    /// Has the device look how long its file is now.
    pub(super) fn follow_file(&self) -> io::Result<()> {
        // SAFETY: the request takes no argument.
        done(unsafe { libc::ioctl(self.file.as_raw_fd(), SET_CAPACITY, 0) })
    }
}

/// What the kernel calls the device of the file system at `mounted`, such as `loop7`.
pub(super) fn name_below(mounted: &File) -> io::Result<PathBuf> {
    let device = mounted.metadata()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let link = fs::read_link(format!("/sys/dev/block/{major}:{minor}"))?;
    let name = link.file_name().ok_or(io::ErrorKind::NotFound)?;
    Ok(PathBuf::from(name))
}

/// Gives a free device its file.
fn configure(device: &File, image: &File, flags: u32) -> io::Result<()> {
    let configuration = LoopConfiguration {
        file: image.as_raw_fd().cast_unsigned(),
        block_size: 0,
        status: LoopStatus {
            flags,
            ..LoopStatus::default()
        },
        reserved: [0; 8],
    };
    // SAFETY: the structure has the kernel's layout, whose size is checked above, and lives through the call.
    let answer = unsafe { libc::ioctl(device.as_raw_fd(), CONFIGURE, &raw const configuration) };
    done(answer)
}

fn open_to_write(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).open(path)
}

fn done(answer: i32) -> io::Result<()> {
    match answer {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
