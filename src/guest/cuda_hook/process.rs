//! Who this process is, and whether another one that owns a slot is surely dead. Reads only `/proc`
//! and asks the kernel; in doubt a process lives, because a slot freed too early would lift a limit.

use core::ffi::CStr;

use crate::kernel;
use crate::region::{Identity, SlotOwner};

/// Where in `/proc/PID/stat` things stand, counted from one, as proc(5) does.
const THREADS: usize = 20;
const START: usize = 22;
const STACK: usize = 28;

/// This process. Without `/proc` the process number alone has to do.
pub fn me() -> Identity {
    let mut link = [0; 64];
    let mut text = [0; 1024];
    let stat = kernel::read(c"/proc/self/stat", &mut text);
    Identity {
        pid: kernel::process_number(),
        start: field(stat, START).unwrap_or(0),
        namespace: namespace(kernel::read_link(c"/proc/self/ns/pid", &mut link)),
        stack: field(stat, STACK).unwrap_or(0),
    }
}

/// Whether the owner of a slot is surely gone, or has become another program by `exec`. Of processes
/// with numbers of another namespace nothing can be said: false.
pub fn is_dead(seen: &SlotOwner, namespace: u64) -> bool {
    if !seen.belongs_to(namespace) {
        return false;
    }
    if kernel::is_gone(seen.pid) {
        return true;
    }
    let Some(owner) = seen.settled else {
        return false;
    };
    let mut path = [0; 24];
    let mut text = [0; 1024];
    let Some(path) = path_of(seen.pid, &mut path) else {
        return false;
    };
    differs(kernel::read(path, &mut text), &owner)
}

/// Whether that line of `/proc/PID/stat` is of another process than `owner`, or of a zombie.
fn differs(stat: &[u8], owner: &Identity) -> bool {
    let Some(start) = field(stat, START) else {
        return false;
    };
    if owner.start != 0 && start != owner.start {
        return true;
    }
    // A zombie has given its memory back; one whose other threads go on has not.
    let corpse = matches!(after_name(stat).first(), Some(b'Z' | b'X'));
    if corpse && field(stat, THREADS).is_none_or(|threads| threads <= 1) {
        return true;
    }
    // 0 or 1: we may not know. Only exec gives a process another stack.
    match (field(stat, STACK), owner.stack) {
        (Some(now), before) if now > 1 && before > 1 => now != before,
        _ => false,
    }
}

/// `/proc/PID/stat`, written without a heap.
fn path_of(pid: u32, into: &mut [u8; 24]) -> Option<&CStr> {
    let mut digits = [0; 10];
    let mut count = 0;
    let mut rest = pid;
    while rest > 0 {
        digits[count] = b'0' + (rest % 10) as u8;
        rest /= 10;
        count += 1;
    }
    let number = digits[..count].iter().rev();
    let path = b"/proc/".iter().chain(number).chain(b"/stat");
    for (place, byte) in into.iter_mut().zip(path) {
        *place = *byte;
    }
    CStr::from_bytes_until_nul(into).ok()
}

/// Behind the program's name, which may hold blanks and brackets: the third field and on.
fn after_name(stat: &[u8]) -> &[u8] {
    match stat.iter().rposition(|byte| *byte == b')') {
        Some(at) => stat.get(at + 2..).unwrap_or(&[]),
        None => &[],
    }
}

fn field(stat: &[u8], number: usize) -> Option<u64> {
    let word = after_name(stat)
        .split(|byte| *byte == b' ')
        .nth(number - 3)?;
    digits(word)
}

pub fn namespace(link: &[u8]) -> u64 {
    // pid:[4026531836]
    let inner = link
        .strip_prefix(b"pid:[")
        .and_then(|rest| rest.strip_suffix(b"]"));
    inner.and_then(digits).unwrap_or(0)
}

fn digits(word: &[u8]) -> Option<u64> {
    if word.is_empty() {
        return None;
    }
    word.iter().try_fold(0u64, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &[u8] = b"4711 (a ) b) S 1 4711 4711 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 \
        98765 2560000 100 18446744073709551615 1 1 140730000000000 0 0 0";

    fn owner() -> Identity {
        Identity {
            pid: 4711,
            start: 98_765,
            namespace: 1,
            stack: 140_730_000_000_000,
        }
    }

    #[test]
    fn a_living_process_is_itself_and_its_parts_are_read_past_any_name() {
        assert_eq!(field(LINE, START), Some(98_765));
        assert_eq!(field(LINE, STACK), Some(140_730_000_000_000));
        assert!(!differs(LINE, &owner()));
    }

    #[test]
    fn a_reused_number_an_exec_and_a_corpse_are_somebody_else() {
        let later = Identity {
            start: 98_764,
            ..owner()
        };
        assert!(differs(LINE, &later));
        let before_exec = Identity {
            stack: 140_730_000_000_016,
            ..owner()
        };
        assert!(differs(LINE, &before_exec));
        let corpse = String::from_utf8(LINE.to_vec())
            .unwrap()
            .replace(") S", ") Z");
        assert!(differs(corpse.as_bytes(), &owner()));
        let threads_go_on = corpse.replace("20 0 1 0", "20 0 2 0");
        assert!(!differs(threads_go_on.as_bytes(), &owner()));
    }

    #[test]
    fn what_cannot_be_read_is_no_proof_of_death() {
        assert!(!differs(b"", &owner()));
        assert!(!differs(b"4711 (x) S", &owner()));
        let unknown = Identity {
            start: 0,
            stack: 0,
            ..owner()
        };
        assert!(!differs(LINE, &unknown));
    }

    #[test]
    fn this_process_knows_itself_and_lives() {
        let me = me();
        assert_eq!(me.pid, std::process::id());
        assert!(me.start > 0 && me.namespace > 0);
        let seen = SlotOwner {
            pid: me.pid,
            settled: Some(me),
            namespace_bits: 0,
        };
        assert!(!is_dead(&seen, me.namespace));
        let reused = SlotOwner {
            settled: Some(Identity {
                start: me.start - 1,
                ..me
            }),
            ..seen
        };
        assert!(is_dead(&reused, me.namespace));
        assert!(!is_dead(&reused, me.namespace + 1));
    }

    #[test]
    fn a_child_that_ended_is_dead_before_and_after_it_is_buried() {
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .unwrap();
        let mut path = [0; 24];
        let mut text = [0; 1024];
        let stat = kernel::read(path_of(child.id(), &mut path).unwrap(), &mut text);
        let seen = SlotOwner {
            pid: child.id(),
            settled: Some(Identity {
                pid: child.id(),
                start: field(stat, START).unwrap(),
                namespace: me().namespace,
                stack: 0,
            }),
            namespace_bits: 0,
        };
        assert!(!is_dead(&seen, me().namespace));
        child.kill().unwrap();
        let waited = std::time::Instant::now();
        while !is_dead(&seen, me().namespace) {
            assert!(waited.elapsed().as_secs() < 10, "the corpse is not seen");
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(is_dead(&seen, me().namespace));
    }
}
