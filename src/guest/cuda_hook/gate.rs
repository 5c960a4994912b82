//! The gate that launches pass. While no device is gated a launch costs two loads, a compare and a jump.
//! Otherwise it waits until the host holds the window open, and no more work is queued than a marker
//! shows to be unfinished. A host that gave no sign of life for two seconds holds nobody back.
//! Launches that a stream only records are neither delayed nor marked.

use core::arch::naked_asm;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use crate::account::{self, Lock, Process};
use crate::driver::{REAL, index};
use crate::memory::here;
use crate::region::{Control, MODE_WINDOW, STALE_HEARTBEAT, SlotDevice};
use crate::{Code, OK, kernel, pools, real};

/// Streams of a process that are watched at the same time.
pub const STREAMS: usize = 16;
/// Nanoseconds of queued work after which a stream waits for its marker.
const QUEUE: u64 = 1_500_000;
/// Launches between two markers at most: one marker for each would cost more than it tells.
const BETWEEN: u32 = 16;
/// Longest sleep at the gate: every signal is looked at again after it, so none can be lost.
const NAP: u64 = 20_000_000;

/// A stream and the last marker in it. All zero: none.
#[repr(C)]
pub struct Mark {
    stream: AtomicU64,
    event: AtomicU64,
    /// When the marker was put there; 0: it was seen finished.
    since: AtomicU64,
    /// How much this process had submitted to the device by then.
    behind: AtomicU64,
    launches: AtomicU32,
    lock: Lock,
}

/// What the word points at while there are no pages.
static NEVER: AtomicU32 = AtomicU32::new(0);

/// The page's one word about all gates.
static GATED: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());

/// Called when the library is loaded.
pub fn prepare() {
    let word = account::control().map_or(&raw const NEVER, |control: &Control| {
        &raw const control.gated
    });
    GATED.store(word.cast_mut(), SeqCst);
}

/// Lets a launch of this thread pass when its turn has come.
pub fn pass(stream: u64, per_thread: bool) {
    // SAFETY: null, or mapped for good.
    let gated = unsafe { GATED.load(Relaxed).as_ref() };
    if gated.is_some_and(|word| word.load(Relaxed) != 0) {
        wait(stream, per_thread);
    }
}

#[cold]
fn wait(stream: u64, per_thread: bool) {
    let (Ok(Some(here)), Some(control), Some(account)) =
        (here(), account::control(), account::account())
    else {
        return;
    };
    let terms = &control.device[here.device];
    if terms.mode.load(SeqCst) != MODE_WINDOW || pools::is_capturing(stream, per_thread) {
        return;
    }
    let Some(tenure) = here.process.tenure() else {
        return;
    };
    let own = &account.slot[tenure.slot].device[here.device];
    bound(here.process, own, stream, per_thread);
    if terms.gate_open.load(SeqCst) == 0 {
        own.waiting.fetch_add(1, SeqCst);
        while terms.gate_open.load(SeqCst) == 0
            && terms.mode.load(SeqCst) == MODE_WINDOW
            && kernel::now().saturating_sub(control.heartbeat.load(SeqCst)) < STALE_HEARTBEAT
        {
            kernel::wait_while(&terms.gate_open, 0, NAP);
        }
        own.waiting.fetch_sub(1, SeqCst);
    }
    own.passed.fetch_add(1, SeqCst);
    own.submitted.fetch_add(1, SeqCst);
}

/// Waits while a stream has more queued than it should: until the last marker is reached, once that
/// marker is old. Puts the next marker behind what was launched so far.
fn bound(process: &Process, own: &SlotDevice, stream: u64, per_thread: bool) {
    let Some(mark) = mark_of(process, stream) else {
        return;
    };
    mark.lock.hold(|| {
        let event = mark.event.load(SeqCst);
        let since = mark.since.load(SeqCst);
        let launches = mark.launches.fetch_add(1, SeqCst);
        if since != 0 {
            // Not waited for in the driver: it would hold its locks meanwhile.
            while real!(cuEventQuery(event): fn(u64)) == NOT_DONE {
                if kernel::now().saturating_sub(since) < QUEUE && launches < BETWEEN {
                    return;
                }
                kernel::sleep(50_000);
            }
            mark.since.store(0, SeqCst);
            own.finished.fetch_max(mark.behind.load(SeqCst), SeqCst);
        }
        let code = if per_thread {
            real!(cuEventRecord_ptsz(event, stream): fn(u64, u64))
        } else {
            real!(cuEventRecord(event, stream): fn(u64, u64))
        };
        if code == OK {
            mark.behind.store(own.submitted.load(SeqCst), SeqCst);
            mark.since.store(kernel::now(), SeqCst);
            mark.launches.store(0, SeqCst);
        }
    });
}

/// The driver's "not ready" of an event.
const NOT_DONE: Code = 600;
/// An event without a time: cheaper, and nobody asks for it.
const WITHOUT_TIME: u32 = 2;
/// The default stream is number 0, which means an empty mark; no driver uses this number.
const DEFAULT: u64 = u64::MAX;

fn mark_of(process: &Process, stream: u64) -> Option<&Mark> {
    let key = if stream == 0 { DEFAULT } else { stream };
    let found = process
        .marks
        .iter()
        .find(|mark| mark.stream.load(SeqCst) == key);
    if found.is_some() {
        return found;
    }
    // Streams beyond the sixteenth go by the window alone.
    let free = process
        .marks
        .iter()
        .find(|mark| mark.stream.compare_exchange(0, key, SeqCst, SeqCst).is_ok())?;
    let mut event = 0;
    if real!(cuEventCreate(&mut event, WITHOUT_TIME): fn(&mut u64, u32)) != OK {
        free.stream.store(0, SeqCst);
        return None;
    }
    free.event.store(event, SeqCst);
    Some(free)
}

/// Lets go of a stream that is gone.
pub fn forget(stream: u64) {
    let Some(process) = account::process() else {
        return;
    };
    for mark in &process.marks {
        if mark.stream.load(SeqCst) == stream && stream != 0 {
            mark.lock.hold(|| {
                real!(cuEventDestroy_v2(mark.event.swap(0, SeqCst)): fn(u64));
                mark.since.store(0, SeqCst);
                mark.launches.store(0, SeqCst);
                mark.stream.store(0, SeqCst);
            });
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamDestroy_v2(stream: u64) -> Code {
    forget(stream);
    real!(cuStreamDestroy_v2(stream): fn(u64))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamDestroy(stream: u64) -> Code {
    forget(stream);
    real!(cuStreamDestroy(stream): fn(u64))
}

extern "C" fn pass_plain(stream: u64) {
    wait(stream, false);
}

extern "C" fn pass_per_thread(stream: u64) {
    wait(stream, true);
}

/// A launch: looks at the one word and jumps on. When gates are in use it keeps the arguments, finds
/// the stream by `$stream` (rsp points at the seven kept words, the return address and the caller's
/// further arguments follow), and waits.
macro_rules! launch {
    ($name:ident, $pass:ident, $stream:literal) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                "mov rax, qword ptr [rip + {gated}]",
                "cmp dword ptr [rax], 0",
                "jne 2f",
                "jmp qword ptr [rip + {real} + 8*{at}]",
                "2:",
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                "push r9",
                $stream,
                "call {pass}",
                "pop r9",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "jmp qword ptr [rip + {real} + 8*{at}]",
                gated = sym GATED,
                real = sym REAL,
                at = const index::$name,
                pass = sym $pass,
            )
        }
    };
}

// Seven kept words and the return address are 64 bytes; then the seventh argument and on.
launch!(cuLaunchKernel, pass_plain, "mov rdi, qword ptr [rsp + 80]");
launch!(
    cuLaunchKernel_ptsz,
    pass_per_thread,
    "mov rdi, qword ptr [rsp + 80]"
);
launch!(
    cuLaunchCooperativeKernel,
    pass_plain,
    "mov rdi, qword ptr [rsp + 80]"
);
launch!(
    cuLaunchCooperativeKernel_ptsz,
    pass_per_thread,
    "mov rdi, qword ptr [rsp + 80]"
);
// The description's stream stands behind seven numbers of four bytes.
launch!(
    cuLaunchKernelEx,
    pass_plain,
    "mov rdi, qword ptr [rdi + 32]"
);
launch!(
    cuLaunchKernelEx_ptsz,
    pass_per_thread,
    "mov rdi, qword ptr [rdi + 32]"
);
// Over several devices: by the first one's stream, behind a function, seven numbers.
launch!(
    cuLaunchCooperativeKernelMultiDevice,
    pass_plain,
    "mov rdi, qword ptr [rdi + 40]"
);
launch!(cuLaunch, pass_plain, "xor edi, edi");
launch!(cuLaunchGrid, pass_plain, "xor edi, edi");
launch!(cuLaunchGridAsync, pass_plain, "mov rdi, rcx");
