//! What this process holds of its own program and of its allocator: gives it back to the machine. Never measures, and never
//! decides when.

use std::fs;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::OnceLock;

/// Asks for nothing that happens inside the kernel, so no privilege is needed. Linux's `userfaultfd.h`, as all below.
const USER_MODE_ONLY: libc::c_int = 1;
const API: u64 = 0xaa;
const SET_API: libc::c_ulong = 0xc018_aa3f;
const REGISTER: libc::c_ulong = 0xc020_aa00;
/// Writes are noted by the kernel alone: nobody has to answer. Since Linux 6.7, for mappings of any kind.
const NOTE_WRITES: u64 = 1 << 15;
const MODE_WRITES: u64 = 1 << 1;

#[repr(C)]
struct ApiRequest {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct RegisterRequest {
    start: u64,
    length: u64,
    mode: u64,
    ioctls: u64,
}

/// Gives back what lies free inside the heaps, and the program's code and constants, of which what is used next comes back
/// from the page cache: in pages of 4 KiB from Linux 6.7 on, in blocks of 64 KiB before. Costs a millisecond, and what runs
/// next some two thousand faults of a microsecond, or three hundred of five.
pub fn give_back() {
    trim();
    let program = program();
    map_single_pages(&program);
    unmap(&program);
}

fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim locks each heap while it works on it; any thread may call it at any time.
    // Justification: the standard library has no way to ask for it.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Mappings of the program's own code and constants: beginning and length. Empty where `/proc` cannot be read.
fn program() -> Vec<(usize, usize)> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().filter_map(unwritten).collect()
}

/// Takes the program out of the memory of this process: what was used once stays out, and the rest comes back from the page
/// cache when it is used next.
fn unmap(program: &[(usize, usize)]) {
    for (from, length) in program {
        // SAFETY: the range is a mapping of a file that never could be written, so each page of it is as the file has
        // it; a thread that runs or reads there faults it in again.
        // Justification: the standard library has no way to ask for it.
        unsafe {
            libc::madvise(
                std::ptr::with_exposed_provenance_mut(*from),
                *length,
                libc::MADV_DONTNEED,
            );
        }
    }
}

/// Has a fault of the program map its own page only, and not the 64 KiB around it, for as long as this process lives; true
/// where the kernel does so. It maps single pages wherever somebody wants to know of writes, and no write ever comes.
fn map_single_pages(program: &[(usize, usize)]) -> bool {
    // Closed with the process: the kernel forgets what was asked when nobody holds it. A child has it without effect.
    static ASKED: OnceLock<Option<OwnedFd>> = OnceLock::new();
    ASKED.get_or_init(|| ask_for_writes(program)).is_some()
}

fn ask_for_writes(program: &[(usize, usize)]) -> Option<OwnedFd> {
    // SAFETY: the call takes two flags and gives a new descriptor, or -1.
    // Justification: the standard library has no such descriptor.
    let made = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | USER_MODE_ONLY) };
    let made = i32::try_from(made).ok().filter(|made| *made >= 0)?;
    // SAFETY: the kernel just gave it, and nothing else has it.
    // Justification: as above.
    let made = unsafe { OwnedFd::from_raw_fd(made) };
    let mut api = ApiRequest {
        api: API,
        features: NOTE_WRITES,
        ioctls: 0,
    };
    // SAFETY: the kernel reads and writes one `struct uffdio_api`, whose layout this is.
    // Justification: as above.
    let agreed = unsafe { libc::ioctl(made.as_raw_fd(), SET_API, &raw mut api) };
    if agreed != 0 {
        return None;
    }
    for (from, length) in program {
        let mut asked = RegisterRequest {
            start: *from as u64,
            length: *length as u64,
            mode: MODE_WRITES,
            ioctls: 0,
        };
        // SAFETY: the kernel reads and writes one `struct uffdio_register`, whose layout this is; the mapping stays as it is.
        // Justification: as above.
        let registered = unsafe { libc::ioctl(made.as_raw_fd(), REGISTER, &raw mut asked) };
        if registered != 0 {
            return None;
        }
    }
    Some(made)
}

/// Beginning and length of a mapping that holds code of a file, or its first part, which has its constants; None for every
/// other line of `/proc/self/maps`. What the loader wrote addresses into can be read only, too, but is never the first part.
fn unwritten(line: &str) -> Option<(usize, usize)> {
    let mut parts = line.split_whitespace();
    let (from, to) = parts.next()?.split_once('-')?;
    let is_unwritten = match (parts.next()?, parts.next()?) {
        ("r-xp", _) => true,
        ("r--p", offset) => offset.bytes().all(|digit| digit == b'0'),
        _ => false,
    };
    let is_file = parts.nth(2)?.starts_with('/');
    let number = |text| usize::from_str_radix(text, 16).ok();
    let (from, to) = (number(from)?, number(to)?);
    (is_unwritten && is_file).then(|| (from, to.saturating_sub(from)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_was_written_is_told_from_everything_else() {
        for text in [
            "55d0c000-55d0e000 r-xp 00002000 fe:00 131 /usr/bin/fardel (deleted)",
            "55d0c000-55d0e000 r--p 00000000 fe:00 131 /usr/bin/fardel",
        ] {
            assert_eq!(unwritten(text), Some((0x55d0_c000, 0x2000)), "{text}");
        }
        for other in [
            "55d0c000-55d0e000 r--p 00002000 fe:00 131 /usr/bin/fardel",
            "55d0c000-55d0e000 rwxp 00002000 fe:00 131 /usr/bin/fardel",
            "7ffc6000-7ffc8000 r-xp 00000000 00:00 0 [vdso]",
            "55d0c000-55d0e000 r-xp 00000000 00:00 0",
            "",
        ] {
            assert_eq!(unwritten(other), None, "{other}");
        }
    }

    #[test]
    fn a_program_without_its_code_goes_on() {
        unmap(&program());
        let told: Vec<String> = (0..100).map(|number| format!("{number:x}")).collect();
        assert_eq!(told.concat().len(), 16 + 84 * 2);
    }
    #[test]
    fn a_fault_of_the_program_maps_its_own_page_only() {
        let program = program();
        assert!(!program.is_empty());
        if !map_single_pages(&program) {
            skips::skip(
                "a_fault_of_the_program_maps_its_own_page_only",
                "userfaultfd notes no writes of files here: Linux 6.7 does",
            );
            return;
        }
        let (from, length) = *program.last().expect("code");
        unmap(&program);
        for at in (from..from + length).step_by(64 << 10) {
            let byte = std::ptr::with_exposed_provenance::<u8>(at);
            // SAFETY: the byte lies in a mapping of this program, which can be read.
            // Justification: nothing else touches one page of it.
            let _ = unsafe { byte.read_volatile() };
        }
        // One of sixteen, and what runs here.
        let (pages, kept) = (length >> 12, resident_pages(from, length));
        assert!(kept * 4 < pages, "{kept} of {pages} pages");
    }

    /// Pages of a mapping that this process has in its own tables.
    fn resident_pages(from: usize, length: usize) -> usize {
        let smaps = fs::read_to_string("/proc/self/smaps").expect("smaps");
        let mut lines = smaps.lines();
        let head = format!("{from:x}-{:x} ", from + length);
        lines
            .find(|line| line.starts_with(&head))
            .expect("the mapping");
        let rss = lines
            .find_map(|line| line.strip_prefix("Rss:"))
            .expect("its pages");
        let kilobytes = rss.trim().trim_end_matches(" kB");
        kilobytes.parse::<usize>().expect("a number") / 4
    }
}
