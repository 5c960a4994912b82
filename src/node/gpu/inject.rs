//! What a container with slices of NVIDIA's cards is given: the devices of its cards, the driver's libraries
//! with ours in the places of two of them, and the two pages that say what it may have. All of it or
//! nothing: without its pages, its hooks or a whole driver a container has no device. Runs nothing of
//! the vendor's or of an image, and reads nothing that an image says.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::mem::offset_of;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{
    DirBuilderExt as _, FileExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use super::driver::{self, Driver, Lacks};
use super::hooks::{CUDA_HOOK, GPU_TEST, NVML_HOOK, PLACE};
use super::region::{
    AccountPage, Control, DEVICES, DeviceTerms, MAGIC, SLOTS, Slot, SlotDevice, VERSION,
};
use super::{DeviceOrder, FileOrder, FileUse};

/// A part of one card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InjectedSlice {
    /// The card's minor number.
    pub card: u32,
    pub terms: DeviceTerms,
}

/// What is added to a container's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Injection {
    pub devices: Vec<DeviceOrder>,
    pub files: Vec<FileOrder>,
}

/// Why a container does not get its slices; then it does not start.
#[derive(Debug, thiserror::Error)]
pub enum NotInjected {
    #[error(transparent)]
    Driver(#[from] Lacks),
    #[error("{0} devices are more than the {DEVICES} that one session can have")]
    TooMany(usize),
    #[error("{path} cannot be made")]
    File { path: PathBuf, source: io::Error },
    #[error("its pages are of version {0}")]
    Version(u32),
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> NotInjected {
    let path = path.to_owned();
    move |source| NotInjected::File { path, source }
}

/// What a container's processes say of their work on one device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Traffic {
    /// By their slots, in order.
    pub processes: Vec<ProcessTraffic>,
    /// How many slots were read.
    pub slots: usize,
}

/// What one of them says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessTraffic {
    pub slot: usize,
    /// Threads at the gate.
    pub waiting: u32,
    /// Threads that will say when work is done.
    pub watching: u32,
    /// Raised with each launch.
    pub launched: u64,
    /// Launches that it has not seen done yet.
    pub unfinished: u64,
}

/// The host's side of a container's two pages. The files stay when the server goes, and are opened again by
/// the next one. Control is mapped; account is read as a file, because whoever may write it may also cut
/// it off, and a mapping of what is no longer there ends the process that looks.
pub struct Pages {
    control: Mapped<Control>,
    account: fs::File,
}

impl Pages {
    /// Opens the pages of a container that lives on; what stands in them stays. Pages of another version are
    /// only read, and not further than their number.
    ///
    /// Errors: `Version` for those, `File` for what is no page or cannot be opened.
    pub fn open(place: &Path) -> Result<Self, NotInjected> {
        let path = place.join("control");
        let mut head = [0; offset_of!(Control, devices)];
        let file = fs::File::open(&path).map_err(at(&path))?;
        file.read_exact_at(&mut head, 0).map_err(at(&path))?;
        let version = half(&head, offset_of!(Control, version));
        if word(&head, offset_of!(Control, magic)) != MAGIC {
            return Err(at(&path)(io::Error::other("it is no page of ours")));
        }
        if version != VERSION {
            return Err(NotInjected::Version(version));
        }
        if file.metadata().map_err(at(&path))?.len() != size_of::<Control>() as u64 {
            return Err(at(&path)(io::ErrorKind::UnexpectedEof.into()));
        }
        Self::make(place, &[])
    }

    /// Makes both pages in the new directory `place`, or opens those of a start that came to nothing; what
    /// stands in the pages then stays.
    pub fn make(place: &Path, slices: &[InjectedSlice]) -> Result<Self, NotInjected> {
        if slices.len() > DEVICES {
            return Err(NotInjected::TooMany(slices.len()));
        }
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(place)
            .map_err(at(place))?;
        let pages = Self {
            control: Mapped::open(&place.join("control"))?,
            // Written from inside, by whoever the container's processes are.
            account: page(&place.join("account"), 0o666, size_of::<AccountPage>())?,
        };
        if !pages.control().is_known() {
            let terms: Vec<DeviceTerms> = slices.iter().map(|slice| slice.terms).collect();
            let mut blank = blank();
            blank.found();
            pages
                .account
                .write_all_at(bytes(&mut blank), 0)
                .map_err(at(&place.join("account")))?;
            pages.control().found(&terms);
        }
        Ok(pages)
    }

    pub fn control(&self) -> &Control {
        self.control.get()
    }

    /// What the container's processes say of themselves now, as a copy; believed only as far as the
    /// container's own limit. Costs a read of half a megabyte.
    ///
    /// Errors: `UnexpectedEof` where somebody inside cut the page off.
    pub fn account(&self) -> io::Result<Box<AccountPage>> {
        let mut copy = blank();
        self.account.read_exact_at(bytes(&mut copy), 0)?;
        Ok(copy)
    }

    /// What each of the container's processes says of its launches on the `at`-th device. Costs a read of a
    /// kilobyte for each process there was at once.
    ///
    /// Errors: where the page was cut off or is none any more.
    pub fn traffic(&self, at: usize) -> io::Result<Traffic> {
        let mut head = [0; offset_of!(AccountPage, slot)];
        self.account.read_exact_at(&mut head, 0)?;
        let known = word(&head, offset_of!(AccountPage, magic)) == MAGIC
            && half(&head, offset_of!(AccountPage, version)) == VERSION;
        if !known || at >= DEVICES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let slots = (half(&head, offset_of!(AccountPage, high)) as usize).min(SLOTS);
        let mut traffic = Traffic {
            slots,
            processes: Vec::new(),
        };
        let mut copy = vec![0; slots * size_of::<Slot>()];
        self.account.read_exact_at(&mut copy, head.len() as u64)?;
        for (number, slot) in copy.chunks_exact(size_of::<Slot>()).enumerate() {
            // Nobody's: what stands there counts for nothing.
            if half(slot, offset_of!(Slot, owner)) == 0 {
                continue;
            }
            let place = offset_of!(Slot, device) + at * size_of::<SlotDevice>();
            let device = &slot[place..place + size_of::<SlotDevice>()];
            let submitted = word(device, offset_of!(SlotDevice, submitted));
            let finished = word(device, offset_of!(SlotDevice, finished));
            traffic.processes.push(ProcessTraffic {
                slot: number,
                waiting: half(device, offset_of!(SlotDevice, waiting)),
                watching: half(device, offset_of!(SlotDevice, watching)),
                launched: submitted,
                unfinished: submitted.saturating_sub(finished),
            });
        }
        Ok(traffic)
    }
}

/// A number of eight bytes in a copy of a page.
fn word(bytes: &[u8], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(eight)
}

/// One of four.
fn half(bytes: &[u8], at: usize) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(four)
}

fn blank() -> Box<AccountPage> {
    let layout = std::alloc::Layout::new::<AccountPage>();
    // SAFETY: of the page's own size and alignment; it is made of integers alone, and zeros are what an
    // unused one holds.
    unsafe {
        let page = std::alloc::alloc_zeroed(layout).cast::<AccountPage>();
        if page.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        Box::from_raw(page)
    }
}

fn bytes(page: &mut AccountPage) -> &mut [u8] {
    // SAFETY: integers without gaps, any bytes of which are a page; nobody else has it meanwhile.
    unsafe {
        std::slice::from_raw_parts_mut(std::ptr::from_mut(page).cast(), size_of::<AccountPage>())
    }
}

/// A file of a page's size, with this mode whatever the umask says.
fn page(path: &Path, mode: u32, size: usize) -> Result<fs::File, NotInjected> {
    let made = || {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(mode)
            .open(path)?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.set_len(size as u64)?;
        Ok(file)
    };
    made().map_err(at(path))
}

/// Gathers everything for one container. `root` is the machine (`/`), `hooks` a directory for our libraries,
/// `place` one for this container's pages. Costs some directories and, the first time, two small files.
pub fn inject(
    root: &Path,
    hooks: &Path,
    place: &Path,
    slices: &[InjectedSlice],
) -> Result<(Injection, Pages), NotInjected> {
    let driver = Driver::find(root)?;
    let cuda = laid(hooks, "libcuda.so.1", CUDA_HOOK)?;
    let nvml = laid(hooks, "libnvidia-ml.so.1", NVML_HOOK)?;
    let test = laid(hooks, "gpu-test", GPU_TEST)?;
    let pages = Pages::make(place, slices)?;
    let mut cards: Vec<u32> = slices.iter().map(|slice| slice.card).collect();
    cards.sort_unstable();
    cards.dedup();
    let stand_ins = BTreeMap::from([("libcuda", cuda), ("libnvidia-ml", nvml)]);
    let mut files = driver.files(&stand_ins, PLACE);
    for (name, for_what) in [("control", FileUse::Read), ("account", FileUse::Write)] {
        files.push(FileOrder {
            from: place.join(name),
            at: format!("{PLACE}/{name}"),
            for_what,
        });
    }
    files.push(FileOrder {
        from: test,
        at: format!("{PLACE}/test"),
        for_what: FileUse::Run,
    });
    if let Some(text) = driver::parameters(root) {
        let path = place.join("params");
        fs::write(&path, text).map_err(at(&path))?;
        files.push(FileOrder {
            from: path,
            at: "/proc/driver/nvidia/params".to_owned(),
            for_what: FileUse::Read,
        });
    }
    let injection = Injection {
        devices: driver.devices(&cards),
        files,
    };
    Ok((injection, pages))
}

/// One of our libraries as a file; written anew where it is not byte for byte what this program carries.
fn laid(folder: &Path, name: &str, bytes: &[u8]) -> Result<PathBuf, NotInjected> {
    let path = folder.join(name);
    if fs::read(&path).is_ok_and(|there| there == bytes) {
        return Ok(path);
    }
    fs::create_dir_all(folder).map_err(at(folder))?;
    // A container that runs keeps the file it has: the new one takes its name only.
    let new = folder.join(format!(".{name}.{}", std::process::id()));
    fs::write(&new, bytes)
        .and_then(|()| fs::set_permissions(&new, fs::Permissions::from_mode(0o755)))
        .and_then(|()| fs::rename(&new, &path))
        .map_err(at(&path))?;
    Ok(path)
}

/// A page as a file, mapped.
struct Mapped<T> {
    page: std::ptr::NonNull<T>,
}

// SAFETY: the page is made of atomics alone, and the mapping belongs to nobody else.
unsafe impl<T: Sync> Send for Mapped<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Mapped<T> {}

impl<T> Mapped<T> {
    fn open(path: &Path) -> Result<Self, NotInjected> {
        let size = size_of::<T>();
        let file = page(path, 0o644, size)?;
        // SAFETY: a new mapping of a file of this size; zeros are a valid page of either kind.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if page == libc::MAP_FAILED {
            return Err(at(path)(io::Error::last_os_error()));
        }
        std::ptr::NonNull::new(page.cast())
            .map(|page| Self { page })
            .ok_or_else(|| at(path)(io::Error::other("it was mapped at nothing")))
    }

    fn get(&self) -> &T {
        // SAFETY: mapped until the drop, of this size, aligned to a page, and atomics all through.
        unsafe { self.page.as_ref() }
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: mapped by `open` with this size; nobody keeps a reference longer than `self`.
        unsafe { libc::munmap(self.page.as_ptr().cast(), size_of::<T>()) };
    }
}
