//! What this process holds of its own program and of its allocator: gives it back to the machine. Never measures, and never
//! decides when.

/// Gives back what lies free inside the heaps, and the program's code and constants, of which what is used next comes back
/// from the page cache. Costs a millisecond, and what runs next some three hundred faults of 64 KiB.
pub fn give_back() {
    trim();
    unmap_program();
}

fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim locks each heap while it works on it; any thread may call it at any time.
    // Justification: the standard library has no way to ask for it.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Takes the program's own code and constants out of the memory of this process: what was used once stays out, and the rest
/// comes back from the page cache when it is used next, some 64 KiB a fault.
fn unmap_program() {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else {
        return;
    };
    for (from, length) in maps.lines().filter_map(unwritten) {
        // SAFETY: the range is a mapping of a file that never could be written, so each page of it is as the file has
        // it; a thread that runs or reads there faults it in again.
        // Justification: the standard library has no way to ask for it.
        unsafe {
            libc::madvise(
                std::ptr::with_exposed_provenance_mut(from),
                length,
                libc::MADV_DONTNEED,
            );
        }
    }
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
        unmap_program();
        let told: Vec<String> = (0..100).map(|number| format!("{number:x}")).collect();
        assert_eq!(told.concat().len(), 16 + 84 * 2);
    }
}
