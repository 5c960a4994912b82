//! The few system calls that the hooks need, made directly: a library that is loaded into every image
//! of every age may lean on no C library. Never allocates, and never touches `errno`.

use core::arch::asm;
use core::ffi::CStr;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the hooks know only the x86-64 system call convention");

const SYS_READ: usize = 0;
const SYS_OPEN: usize = 2;
const SYS_CLOSE: usize = 3;
const SYS_MMAP: usize = 9;
const SYS_MUNMAP: usize = 11;
const SYS_SCHED_YIELD: usize = 24;
const SYS_MADVISE: usize = 28;
const SYS_NANOSLEEP: usize = 35;
const SYS_GETPID: usize = 39;
const SYS_KILL: usize = 62;
const SYS_READLINK: usize = 89;
const SYS_FUTEX: usize = 202;
const SYS_CLOCK_GETTIME: usize = 228;

const ESRCH: isize = -3;
const O_RDWR: usize = 0o2;
const O_CLOEXEC: usize = 0o2_000_000;
const PROT_READ: usize = 1;
const PROT_WRITE: usize = 2;
const MAP_SHARED: usize = 1;
const MAP_PRIVATE: usize = 2;
const MAP_ANONYMOUS: usize = 0x20;
const MAP_NORESERVE: usize = 0x4000;
const MADV_WIPEONFORK: usize = 18;
const FUTEX_WAIT: usize = 0;
const CLOCK_MONOTONIC: usize = 1;

/// # Safety
/// The caller passes arguments that are valid for the system call `number`.
unsafe fn call(number: usize, arguments: [usize; 6]) -> isize {
    let answer: isize;
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the x86-64 convention; the kernel clobbers only rcx and r11.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    answer
}

#[repr(C)]
struct KernelTimespec {
    seconds: i64,
    nanoseconds: i64,
}

impl KernelTimespec {
    fn of(nanoseconds: u64) -> Self {
        KernelTimespec {
            seconds: (nanoseconds / 1_000_000_000) as i64,
            nanoseconds: (nanoseconds % 1_000_000_000) as i64,
        }
    }
}

pub fn process_number() -> u32 {
    // SAFETY: takes no argument.
    unsafe { call(SYS_GETPID, [0; 6]) as u32 }
}

/// Whether there surely is no such process in our namespace.
pub fn is_gone(pid: u32) -> bool {
    // SAFETY: signal 0 only asks.
    unsafe { call(SYS_KILL, [pid as usize, 0, 0, 0, 0, 0]) == ESRCH }
}

/// Reads the beginning of a file; what was read, empty when it cannot be read.
pub fn read<'a>(path: &CStr, into: &'a mut [u8]) -> &'a [u8] {
    // SAFETY: the path ends with zero, the buffer is as long as said, the descriptor is our own.
    let count = unsafe {
        let file = call(SYS_OPEN, [path.as_ptr() as usize, O_CLOEXEC, 0, 0, 0, 0]);
        if file < 0 {
            return &[];
        }
        let count = call(
            SYS_READ,
            [
                file as usize,
                into.as_mut_ptr() as usize,
                into.len(),
                0,
                0,
                0,
            ],
        );
        call(SYS_CLOSE, [file as usize, 0, 0, 0, 0, 0]);
        count
    };
    into.get(..count.max(0) as usize).unwrap_or(&[])
}

/// Reads what a symbolic link says; empty when it cannot be read.
pub fn read_link<'a>(path: &CStr, into: &'a mut [u8]) -> &'a [u8] {
    let arguments = [
        path.as_ptr() as usize,
        into.as_mut_ptr() as usize,
        into.len(),
        0,
        0,
        0,
    ];
    // SAFETY: the path ends with zero, the buffer is as long as said.
    let count = unsafe { call(SYS_READLINK, arguments) };
    into.get(..count.max(0) as usize).unwrap_or(&[])
}

/// Maps a file that others map too. None when it cannot be, or is shorter than `size`.
pub fn map_file(path: &CStr, size: usize, writable: bool) -> Option<*mut u8> {
    let (flags, access) = if writable {
        (O_RDWR | O_CLOEXEC, PROT_READ | PROT_WRITE)
    } else {
        (O_CLOEXEC, PROT_READ)
    };
    // SAFETY: the path ends with zero; a new mapping touches no old one; the descriptor is our own.
    unsafe {
        let file = call(SYS_OPEN, [path.as_ptr() as usize, flags, 0, 0, 0, 0]);
        if file < 0 {
            return None;
        }
        // The size of the file, without `struct stat`: where its end is.
        const SYS_LSEEK: usize = 8;
        let end = call(SYS_LSEEK, [file as usize, 0, 2, 0, 0, 0]);
        let at = if end >= size as isize {
            call(SYS_MMAP, [0, size, access, MAP_SHARED, file as usize, 0])
        } else {
            -1
        };
        call(SYS_CLOSE, [file as usize, 0, 0, 0, 0, 0]);
        (at > 0).then_some(at as *mut u8)
    }
}

/// Memory of our own, all zero, none of it used before it is touched. A forked child sees zeros again
/// when `true` comes with it; older kernels copy it like any other.
pub fn map_memory(size: usize) -> Option<(*mut u8, bool)> {
    let kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: a new mapping touches no old one.
    unsafe {
        let at = call(
            SYS_MMAP,
            [0, size, PROT_READ | PROT_WRITE, kind, usize::MAX, 0],
        );
        if at <= 0 {
            return None;
        }
        let wiped = call(SYS_MADVISE, [at as usize, size, MADV_WIPEONFORK, 0, 0, 0]) == 0;
        Some((at as *mut u8, wiped))
    }
}

/// # Safety
/// No thread looks at that memory any more.
pub unsafe fn unmap(at: *mut u8, size: usize) {
    // SAFETY: promised by the caller.
    unsafe { call(SYS_MUNMAP, [at as usize, size, 0, 0, 0, 0]) };
}

/// Lets others run.
pub fn give_way() {
    // SAFETY: takes no argument.
    unsafe { call(SYS_SCHED_YIELD, [0; 6]) };
}

pub fn sleep(nanoseconds: u64) {
    let moment = KernelTimespec::of(nanoseconds);
    // SAFETY: the moment lives through the call.
    unsafe { call(SYS_NANOSLEEP, [&raw const moment as usize, 0, 0, 0, 0, 0]) };
}

/// Sleeps while the word has that value, and for no longer than that. Returns early at a signal.
pub fn wait_while(word: &core::sync::atomic::AtomicU32, value: u32, nanoseconds: u64) {
    let moment = KernelTimespec::of(nanoseconds);
    // Not FUTEX_PRIVATE: the waker is another process.
    let arguments = [
        word.as_ptr() as usize,
        FUTEX_WAIT,
        value as usize,
        &raw const moment as usize,
        0,
        0,
    ];
    // SAFETY: word and moment live through the call; the kernel only reads both.
    unsafe { call(SYS_FUTEX, arguments) };
}

/// Monotonic nanoseconds.
pub fn now() -> u64 {
    let mut moment = KernelTimespec::of(0);
    // SAFETY: the moment lives through the call.
    unsafe {
        call(
            SYS_CLOCK_GETTIME,
            [CLOCK_MONOTONIC, &raw mut moment as usize, 0, 0, 0, 0],
        )
    };
    moment.seconds as u64 * 1_000_000_000 + moment.nanoseconds as u64
}
