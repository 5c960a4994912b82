//! The gate that launches pass. While no device is gated a launch costs two loads, a compare and a jump.
//! Otherwise it waits until the host holds the window open, and no more work is queued than a marker
//! shows to be unfinished. A host that gave no sign of life for two seconds holds nobody back.
//! Launches that a stream only records are neither delayed nor marked.

use core::arch::naked_asm;
use core::cell::Cell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use crate::account::{self, Lock, Process};
use crate::driver::{REAL, index};
use crate::memory::{Here, here};
use crate::region::{Control, ControlDevice, Gate, MODE_WINDOW, SlotDevice, wait_at};
use crate::{Code, OK, kernel, pools, real};

/// Streams of a process that are watched at the same time.
pub const STREAMS: usize = 16;
/// Nanoseconds of queued work after which a stream waits for its marker.
const QUEUE: u64 = 1_500_000;
/// Launches between two markers at most: one marker for each would cost more than it tells. Fewer where
/// the launches of a stream take long.
const BETWEEN: u32 = 16;
/// Longest sleep at the gate: every signal is looked at again after it, so none can be lost.
const NAP: u64 = 20_000_000;
/// Sleeps at the gate while work of before is not done, since somebody has to say when it is: what is
/// seen late is charged as work. Shorter: more of a core while a long kernel runs.
const FIRST_LOOK: u64 = 50_000;
const LATER_LOOKS: u64 = 100_000;

/// A stream and the last marker in it. All zero: none. Launches are numbered by device, as `submitted`
/// counts them.
#[repr(C)]
pub struct Mark {
    stream: AtomicU64,
    /// Where the stream lives: markers of one context mean nothing in another.
    context: AtomicU64,
    event: AtomicU64,
    /// When the marker was put there; 0: there is none on its way.
    since: AtomicU64,
    /// The last launch before that marker.
    behind: AtomicU64,
    /// The stream's last launch of all.
    last: AtomicU64,
    /// The last that is known to be done.
    done: AtomicU64,
    device: AtomicU32,
    launches: AtomicU32,
    /// How many launches there may be between two markers here, less `BETWEEN`'s; so 0 is the most.
    fewer: AtomicU32,
    per_thread: AtomicU32,
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
    let mark = mark_of(&here, stream, per_thread);
    if let Some(mark) = mark {
        bound(here.process, own, mark);
    }
    if terms.gate_open.load(SeqCst) == 0 {
        own.waiting.fetch_add(1, SeqCst);
        wait_at(&Closed {
            control,
            terms,
            here: &here,
            own,
            nap: Cell::new(FIRST_LOOK),
        });
        own.waiting.fetch_sub(1, SeqCst);
    }
    own.passed.fetch_add(1, SeqCst);
    let number = own.submitted.fetch_add(1, SeqCst) + 1;
    if let Some(mark) = mark {
        mark.last.fetch_max(number, SeqCst);
    }
}

/// The gate of one device, for one thread before it.
struct Closed<'a> {
    control: &'a Control,
    terms: &'a ControlDevice,
    here: &'a Here,
    own: &'a SlotDevice,
    nap: Cell<u64>,
}

impl Gate for Closed<'_> {
    fn is_open(&self) -> bool {
        self.terms.gate_open.load(SeqCst) != 0
    }

    fn is_in_use(&self) -> bool {
        self.terms.mode.load(SeqCst) == MODE_WINDOW
    }

    fn silence(&self) -> u64 {
        kernel::now().saturating_sub(self.control.heartbeat.load(SeqCst))
    }

    fn sleep(&self) {
        let all_done = report(self.here.process, self.here.device, self.own);
        let nap = if all_done { NAP } else { self.nap.get() };
        kernel::wait_while(&self.terms.gate_open, 0, nap);
        self.nap.set((self.nap.get() * 2).min(LATER_LOOKS));
    }
}

/// Waits while a stream has more queued than it should: until the last marker is reached, once that
/// marker is old. Puts the next marker behind what was launched so far.
fn bound(process: &Process, own: &SlotDevice, mark: &Mark) {
    mark.lock.hold(|| {
        let since = mark.since.load(SeqCst);
        let launches = mark.launches.fetch_add(1, SeqCst);
        let most = BETWEEN - mark.fewer.load(SeqCst).min(BETWEEN - 1);
        let mut watching = false;
        while !mark.is_reached() {
            if kernel::now().saturating_sub(since) < QUEUE && launches < most {
                return;
            }
            if !watching {
                watching = true;
                own.watching.fetch_add(1, SeqCst);
            }
            kernel::sleep(50_000);
        }
        if watching {
            own.watching.fetch_sub(1, SeqCst);
        }
        if since != 0 {
            let took = kernel::now().saturating_sub(since);
            let next = if took > QUEUE {
                most.div_ceil(2)
            } else if took < QUEUE / 4 {
                (most * 2).min(BETWEEN)
            } else {
                most
            };
            mark.fewer.store(BETWEEN - next, SeqCst);
        }
        mark.put();
    });
    tell(process, mark.device.load(SeqCst) as usize, own);
}

impl Mark {
    /// Whether no marker is on its way any more.
    fn is_reached(&self) -> bool {
        if self.since.load(SeqCst) == 0 {
            return true;
        }
        let event = self.event.load(SeqCst);
        // Not waited for in the driver: it would hold its locks meanwhile.
        if relaxed(|| real!(cuEventQuery(event): fn(u64))) == NOT_DONE {
            return false;
        }
        self.since.store(0, SeqCst);
        self.done.fetch_max(self.behind.load(SeqCst), SeqCst);
        true
    }

    /// Puts a marker behind all that was launched.
    fn put(&self) {
        let (event, stream) = (self.event.load(SeqCst), self.number());
        let behind = self.last.load(SeqCst);
        let code = relaxed(|| {
            if self.per_thread.load(SeqCst) == 0 {
                real!(cuEventRecord(event, stream): fn(u64, u64))
            } else {
                real!(cuEventRecord_ptsz(event, stream): fn(u64, u64))
            }
        });
        if code == OK {
            self.behind.store(behind, SeqCst);
            self.since.store(kernel::now(), SeqCst);
            self.launches.store(0, SeqCst);
        }
    }

    /// As the driver numbers the stream.
    fn number(&self) -> u64 {
        match self.stream.load(SeqCst) {
            DEFAULT => 0,
            stream => stream,
        }
    }

    fn is_busy(&self) -> bool {
        self.last.load(SeqCst) > self.done.load(SeqCst)
    }

    /// Looks, or puts a marker where there is none. Leaves a stream alone that somebody else is at, or
    /// that must not be touched now.
    fn look(&self) {
        self.lock.try_hold(|| {
            if !self.is_busy() || !self.is_reached() || !self.is_busy() {
                return;
            }
            // Every thread has its own default stream then, and this may be another thread.
            let elsewhere = self.per_thread.load(SeqCst) != 0 && self.number() == 0;
            if !elsewhere && pools::runs(self.number()) {
                self.put();
                // On an idle stream it is there at once.
                self.is_reached();
            }
        });
    }

    fn clear(&self) {
        self.since.store(0, SeqCst);
        self.last.store(0, SeqCst);
        self.done.store(0, SeqCst);
        self.launches.store(0, SeqCst);
        self.fewer.store(0, SeqCst);
        self.context.store(0, SeqCst);
        self.stream.store(0, SeqCst);
    }
}

/// Does so without disturbing a recording of this or another thread, where the driver can.
fn relaxed<T>(work: impl FnOnce() -> T) -> T {
    const RELAXED: i32 = 2;
    let mut mode = RELAXED;
    let exchanged = real!(cuThreadExchangeStreamCaptureMode(&mut mode): fn(&mut i32)) == OK;
    let answer = work();
    if exchanged {
        real!(cuThreadExchangeStreamCaptureMode(&mut mode): fn(&mut i32));
    }
    answer
}

/// Looks how far a device has come and says it in the page; true when all that was submitted is done.
fn report(process: &Process, device: usize, own: &SlotDevice) -> bool {
    for mark in marks(process, device) {
        mark.look();
    }
    tell(process, device, own)
}

fn marks(process: &Process, device: usize) -> impl Iterator<Item = &Mark> {
    process.marks.iter().filter(move |mark| {
        mark.stream.load(SeqCst) != 0 && mark.device.load(SeqCst) as usize == device
    })
}

/// Says in the page what is known: everything up to the first launch that is not done.
fn tell(process: &Process, device: usize, own: &SlotDevice) -> bool {
    // Read first: what is submitted from here on is not among what the marks say.
    let submitted = own.submitted.load(SeqCst);
    let done = marks(process, device)
        .filter(|mark| mark.is_busy())
        .map(|mark| mark.done.load(SeqCst))
        .min();
    own.finished.fetch_max(done.unwrap_or(submitted), SeqCst);
    done.is_none()
}

/// What a call waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Until {
    Stream(u64),
    /// Everything of the thread's context.
    Context,
    /// Something else, so that markers have to tell.
    Event,
}

/// Runs a call that waits for the device, and says in the page what is done after it. Costs a load where
/// no gate is in use.
pub fn watch(until: Until, wait: impl FnOnce() -> Code) -> Code {
    // SAFETY: null, or mapped for good.
    let gated = unsafe { GATED.load(Relaxed).as_ref() };
    if gated.is_none_or(|word| word.load(Relaxed) == 0) {
        return wait();
    }
    let (Ok(Some(here)), Some(account)) = (here(), account::account()) else {
        return wait();
    };
    let Some(tenure) = here.process.tenure() else {
        return wait();
    };
    let own = &account.slot[tenure.slot].device[here.device];
    own.watching.fetch_add(1, SeqCst);
    let before = here.process.marks.each_ref().map(|mark| {
        let waited_for = match until {
            Until::Stream(stream) => mark.number() == stream,
            Until::Context => true,
            Until::Event => false,
        };
        let own_context = mark.context.load(SeqCst) == here.context;
        if waited_for && own_context {
            mark.last.load(SeqCst)
        } else {
            0
        }
    });
    let code = wait();
    if code == OK {
        for (mark, last) in here.process.marks.iter().zip(before) {
            // Unless the stream ended meanwhile, and the mark is another's.
            if mark.last.load(SeqCst) >= last {
                mark.done.fetch_max(last, SeqCst);
            }
        }
    }
    report(here.process, here.device, own);
    own.watching.fetch_sub(1, SeqCst);
    code
}

/// The driver's "not ready" of an event.
const NOT_DONE: Code = 600;
/// An event without a time: cheaper, and nobody asks for it.
const WITHOUT_TIME: u32 = 2;
/// The default stream is number 0, which means an empty mark; no driver uses this number.
const DEFAULT: u64 = u64::MAX;

fn mark_of(here: &Here, stream: u64, per_thread: bool) -> Option<&'static Mark> {
    let key = if stream == 0 { DEFAULT } else { stream };
    let marks = &here.process.marks;
    let found = marks
        .iter()
        .find(|mark| mark.stream.load(SeqCst) == key && mark.context.load(SeqCst) == here.context);
    if found.is_some() {
        return found;
    }
    // Streams beyond the sixteenth go by the window alone.
    let free = marks.iter().find(|mark| {
        let taken = mark.stream.compare_exchange(0, key, SeqCst, SeqCst);
        taken.is_ok()
    })?;
    let mut event = 0;
    if real!(cuEventCreate(&mut event, WITHOUT_TIME): fn(&mut u64, u32)) != OK {
        free.stream.store(0, SeqCst);
        return None;
    }
    free.event.store(event, SeqCst);
    free.device.store(here.device as u32, SeqCst);
    free.per_thread.store(u32::from(per_thread), SeqCst);
    free.context.store(here.context, SeqCst);
    Some(free)
}

/// Lets go of a stream that is about to end.
fn forget(stream: u64) {
    let Some(process) = account::process() else {
        return;
    };
    for mark in &process.marks {
        if stream != 0 && mark.stream.load(SeqCst) == stream {
            mark.lock.hold(|| {
                real!(cuEventDestroy_v2(mark.event.swap(0, SeqCst)): fn(u64));
                mark.clear();
            });
        }
    }
}

/// Lets go of the streams of a context that is about to end; their markers end with it.
pub fn forget_context(process: &Process, context: u64) {
    for mark in &process.marks {
        if context != 0 && mark.context.load(SeqCst) == context {
            mark.lock.hold(|| mark.clear());
        }
    }
}

/// Lets go of everything: in a forked child nothing of the parent's is there.
pub fn forget_all(process: &Process) {
    for mark in &process.marks {
        mark.lock.free();
        mark.clear();
    }
}

// Calls by which programs wait without saying so: what was launched before is done as a rule.

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) -> Code {
    watch(
        Until::Event,
        || real!(cuMemcpyDtoH_v2(to, from, bytes): fn(*mut c_void, u64, usize)),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoH_v2_ptds(to: *mut c_void, from: u64, bytes: usize) -> Code {
    watch(
        Until::Event,
        || real!(cuMemcpyDtoH_v2_ptds(to, from, bytes): fn(*mut c_void, u64, usize)),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpy(to: u64, from: u64, bytes: usize) -> Code {
    watch(
        Until::Event,
        || real!(cuMemcpy(to, from, bytes): fn(u64, u64, usize)),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpy_ptds(to: u64, from: u64, bytes: usize) -> Code {
    watch(
        Until::Event,
        || real!(cuMemcpy_ptds(to, from, bytes): fn(u64, u64, usize)),
    )
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
