//! What all processes that use the fake driver share: capacity, who holds how much, how busy the
//! simulated devices are, and the faults a test planted. A file mapped by everybody, the test included.
//! A process counts while it holds the lock on its row, so that exec and SIGKILL free what it had, as
//! the closing of a device node does. Tests only.

use std::ffi::CString;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::SeqCst};

/// What the gate's search of the product binary looks for, and must not find.
pub static MARKER: &str = "fardel-fake-driver-for-tests-only";

/// Kinds of trouble with NVML.
pub const HANGS: u32 = 1;
pub const CRASHES: u32 = 2;
pub const TALKS_NONSENSE: u32 = 3;
pub const REFUSES: u32 = 4;

pub const DEVICES: usize = 4;
/// Slices of memory that a device is cut into.
pub const SLICES: usize = 8;
/// In the word of a partition: it has its compute instance.
pub const PEOPLED: u32 = 0x100;
pub const ROWS: usize = 256;

/// The shared file. All zero: no device at all.
#[repr(C)]
pub struct State {
    pub devices: AtomicU32,
    pub gap: AtomicU32,
    pub device: [Device; DEVICES],
    /// The n-th allocation from here on fails with an error of the driver's own; 0: none does.
    pub fail_allocation_in: AtomicI64,
    /// Bytes a row of a pitched allocation is rounded up to; 0: 512.
    pub pitch: AtomicU64,
    /// Bytes by which a pool grows; 0: 2 MiB.
    pub pool_chunk: AtomicU64,
    /// Bytes that a context takes of its device.
    pub context: AtomicU64,
    /// Not zero: every call answers that the device is gone.
    pub lost: AtomicU32,
    /// Not zero: `cuGetProcAddress` answers with pointers that equal no exported symbol.
    pub wrapped: AtomicU32,
    /// Not zero: time is what `clock` says, else the machine's monotonic clock.
    pub virtual_time: AtomicU32,
    /// What NVML does instead of answering; see the constants below.
    pub nvml_trouble: AtomicU32,
    /// One bit a device: NVML says that it fell off the bus.
    pub nvml_lost: AtomicU32,
    /// One bit a device: it is set to be cut into partitions.
    pub nvml_mig: AtomicU32,
    /// One bit a device: how it is set changes only with a reset.
    pub nvml_resets: AtomicU32,
    /// One bit a device: its driver makes no partition of the smallest size.
    pub nvml_grudges: AtomicU32,
    /// The partitions of a device, by the slice of memory that they begin at: 0, or the number of the size
    /// and one, and `PEOPLED` where it has its compute instance.
    pub nvml_part: [[AtomicU32; SLICES]; DEVICES],
    /// A fault to be reported once, as its number times 256 and the device's; 0: none.
    pub nvml_fault: AtomicU32,
    /// One bit a device: rows of its memory wait to be replaced.
    pub nvml_worn: AtomicU32,
    pub clock: AtomicU64,
    /// Calls that reached the driver to allocate memory.
    pub allocations: AtomicU64,
    pub row: [Row; ROWS],
}

#[repr(C)]
pub struct Device {
    pub uuid: [AtomicU64; 2],
    pub capacity: AtomicU64,
    /// Nanosecond at which everything that was submitted will be done.
    pub busy_until: AtomicU64,
}

/// One process.
#[repr(C)]
pub struct Row {
    pub pid: AtomicU32,
    /// Not zero once it made a context: only then does NVML list it.
    pub contexts: AtomicU32,
    pub bytes: [AtomicU64; DEVICES],
    pub submitted_nanoseconds: AtomicU64,
    pub launches: AtomicU64,
}

#[repr(C)]
struct Lock {
    kind: i16,
    whence: i16,
    start: i64,
    length: i64,
    pid: i32,
}

#[repr(C)]
struct Moment {
    seconds: i64,
    nanoseconds: i64,
}

const F_GETLK: i32 = 5;
const F_SETLK: i32 = 6;
const F_WRLCK: i16 = 1;
const F_UNLCK: i16 = 2;
const O_RDWR_CLOEXEC: i32 = 0o2 | 0o2_000_000;

unsafe extern "C" {
    fn open(path: *const i8, flags: i32, ...) -> i32;
    fn mmap(at: *mut u8, size: usize, access: i32, kind: i32, file: i32, offset: i64) -> *mut u8;
    fn fcntl(file: i32, command: i32, ...) -> i32;
    fn getpid() -> i32;
    fn clock_gettime(clock: i32, at: *mut Moment) -> i32;
}

pub fn pid() -> u32 {
    unsafe { getpid() as u32 }
}

/// A process's hold on the shared file.
pub struct Hold {
    pub state: &'static State,
    file: i32,
    pub own: Option<usize>,
}

impl Hold {
    /// Maps the file; none when there is no such file, which is a machine without a device.
    pub fn open(path: &str) -> Option<Self> {
        let path = CString::new(path).ok()?;
        unsafe {
            let file = open(path.as_ptr().cast(), O_RDWR_CLOEXEC);
            if file < 0 {
                return None;
            }
            let at = mmap(std::ptr::null_mut(), size_of::<State>(), 3, 1, file, 0);
            (at as isize != -1).then(|| Hold {
                state: &*at.cast::<State>(),
                file,
                own: None,
            })
        }
    }

    /// Lays out one device of 8 GiB where nobody did: in a container of the whole product, to which no test
    /// can show a file. None where there is such a folder, so that a test may go without devices.
    pub fn lay_out(path: &str) -> Option<Self> {
        let folder = std::path::Path::new(path).parent()?;
        if folder.exists() {
            return None;
        }
        std::fs::create_dir_all(folder).ok()?;
        let file = std::fs::File::create(path).ok()?;
        file.set_len(size_of::<State>() as u64).ok()?;
        let hold = Self::open(path)?;
        hold.state.furnish(1, 8 << 30);
        Some(hold)
    }

    /// Takes a row, for as long as this process runs this program.
    pub fn enter(&mut self) -> bool {
        for (at, row) in self.state.row.iter().enumerate() {
            let mut lock = lock(at, F_WRLCK);
            if unsafe { fcntl(self.file, F_SETLK, &raw mut lock) } == 0 {
                for bytes in &row.bytes {
                    bytes.store(0, SeqCst);
                }
                row.contexts.store(0, SeqCst);
                row.submitted_nanoseconds.store(0, SeqCst);
                row.launches.store(0, SeqCst);
                row.pid.store(pid(), SeqCst);
                self.own = Some(at);
                return true;
            }
        }
        false
    }

    pub fn row(&self) -> &Row {
        &self.state.row[self.own.expect("the process has entered")]
    }

    /// The process that a row is locked by, as whoever asks numbers processes; none for nobody's rows and
    /// for those of whoever asks.
    pub fn holder(&self, at: usize) -> Option<u32> {
        let mut lock = lock(at, F_WRLCK);
        let told = unsafe { fcntl(self.file, F_GETLK, &raw mut lock) } == 0;
        (told && lock.kind != F_UNLCK)
            .then(|| u32::try_from(lock.pid).ok())
            .flatten()
    }

    fn alive(&self, at: usize) -> bool {
        if self.own == Some(at) {
            return true;
        }
        let mut lock = lock(at, F_WRLCK);
        unsafe { fcntl(self.file, F_GETLK, &raw mut lock) == 0 && lock.kind != F_UNLCK }
    }

    /// The rows of processes that live.
    pub fn living(&self) -> impl Iterator<Item = &Row> {
        let state = self.state;
        (0..ROWS).filter_map(move |at| {
            let row = &state.row[at];
            (row.pid.load(SeqCst) != 0 && self.alive(at)).then_some(row)
        })
    }

    /// Bytes in use on a device, by everybody.
    pub fn used(&self, device: usize) -> u64 {
        self.living()
            .map(|row| row.bytes[device].load(SeqCst))
            .sum()
    }

    /// Takes bytes if the device has them.
    pub fn take(&self, device: usize, bytes: u64) -> bool {
        let own = &self.row().bytes[device];
        own.fetch_add(bytes, SeqCst);
        // One process alone needs no look at the others' locks: most timings have one.
        let alone = own.load(SeqCst);
        let capacity = self.state.device[device].capacity.load(SeqCst);
        let others: u64 = self.state.row.iter().enumerate().fold(0, |sum, (at, row)| {
            let there = row.bytes[device].load(SeqCst);
            if self.own != Some(at) && there != 0 && self.alive(at) {
                sum + there
            } else {
                sum
            }
        });
        if alone + others > capacity {
            own.fetch_sub(bytes, SeqCst);
            return false;
        }
        true
    }

    pub fn give(&self, device: usize, bytes: u64) {
        self.row().bytes[device].fetch_sub(bytes, SeqCst);
    }

    /// Nanoseconds.
    pub fn now(&self) -> u64 {
        if self.state.virtual_time.load(SeqCst) != 0 {
            return self.state.clock.load(SeqCst);
        }
        let mut moment = Moment {
            seconds: 0,
            nanoseconds: 0,
        };
        unsafe { clock_gettime(1, &mut moment) };
        moment.seconds as u64 * 1_000_000_000 + moment.nanoseconds as u64
    }

    /// Puts work on a device, behind everybody's; the nanosecond at which it will be done.
    pub fn submit(&self, device: usize, nanoseconds: u64) -> u64 {
        let row = self.row();
        row.submitted_nanoseconds.fetch_add(nanoseconds, SeqCst);
        row.launches.fetch_add(1, SeqCst);
        if nanoseconds == 0 {
            return 0;
        }
        let now = self.now();
        let busy = &self.state.device[device].busy_until;
        let mut before = busy.load(SeqCst);
        loop {
            let after = before.max(now) + nanoseconds;
            match busy.compare_exchange(before, after, SeqCst, SeqCst) {
                Ok(_) => return after,
                Err(seen) => before = seen,
            }
        }
    }
}

fn lock(at: usize, kind: i16) -> Lock {
    Lock {
        kind,
        whence: 0,
        start: at as i64,
        length: 1,
        pid: 0,
    }
}

impl State {
    /// For the test: lets there be that many devices of that many bytes each.
    pub fn furnish(&self, devices: usize, capacity: u64) {
        for (at, device) in self.device.iter().enumerate().take(devices) {
            let uuid = uuid(at);
            for (word, bytes) in device.uuid.iter().zip(uuid.chunks_exact(8)) {
                word.store(
                    u64::from_ne_bytes(bytes.try_into().expect("eight bytes")),
                    SeqCst,
                );
            }
            device.capacity.store(capacity, SeqCst);
        }
        self.devices.store(devices as u32, SeqCst);
    }
}

/// The number of the n-th fake device.
pub fn uuid(at: usize) -> [u8; 16] {
    let mut uuid = *b"fake device no. 0";
    uuid[16] += at as u8;
    let mut cut = [0; 16];
    cut.copy_from_slice(&uuid[1..]);
    cut
}
