//! The gate that launches pass. While no device is gated a launch costs two loads, a compare and a jump.
//! Otherwise it waits until the host holds the window open, and no more work is queued than a marker
//! shows to be unfinished. A host that gave no sign of life for two seconds holds no thread back.
//! Launches that a stream only records are neither delayed nor marked.

use core::arch::naked_asm;
use core::cell::Cell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};

use crate::account::{self, Process};
use crate::driver::{REAL, index};
use crate::here::here;
use crate::region::{AccountPage, Control, ControlDevice, Gate, MODE_WINDOW, SlotDevice, wait_at};
use crate::streams::{self, LaunchPlace, Mark};
use crate::{Code, OK, capture, kernel, real, recording, threads};

/// Longest sleep at the gate: every signal is looked at again after it, so none can be lost.
const NAP: u64 = 20_000_000;
/// Sleeps at the gate while work of before is not done, since a thread has to say when it is: what is
/// seen late is charged as work. Shorter: more of a core while a long kernel runs.
const FIRST_LOOK: u64 = 50_000;
const LATER_LOOKS: u64 = 100_000;

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

/// Asks the driver nothing while the stream and the thread's context are known, nothing records, and the
/// window is the one of the launch before.
#[cold]
fn wait(stream: u64, per_thread: bool) {
    let (Some(process), Some(control), Some(account)) =
        (account::process(), account::control(), account::account())
    else {
        return;
    };
    let number = streams::number(stream, per_thread);
    let found = process.launches.find(number);
    let Some(mark) = found.or_else(|| first(process, account, number)) else {
        return;
    };
    let device = mark.device();
    let terms = &control.device[device];
    if terms.mode.load(SeqCst) != MODE_WINDOW {
        return;
    }
    if recording::any() && capture::is_capturing(stream, per_thread) {
        return;
    }
    let Some(tenure) = process.tenure() else {
        return;
    };
    let own = &account.slot[tenure.slot].device[device];
    mark.prepare();
    let window = terms.window_end.load(SeqCst);
    if mark.is_due(window) {
        mark.bound(own, window);
        process.launches.tell(device, own);
    }
    if terms.gate_open.load(SeqCst) == 0 {
        own.waiting.fetch_add(1, SeqCst);
        wait_at(&Closed {
            control,
            terms,
            process,
            device,
            own,
            nap: Cell::new(FIRST_LOOK),
        });
        own.waiting.fetch_sub(1, SeqCst);
    }
    mark.launch(own);
}

/// The mark of a stream that nothing was launched into yet, or not lately, or by another thread.
fn first(process: &'static Process, account: &AccountPage, number: u64) -> Option<&'static Mark> {
    streams::in_context_of(number, || {
        let here = here().ok()??;
        let own = &account.slot[process.tenure()?.slot].device[here.device];
        let place = LaunchPlace {
            context: here.context,
            device: here.device,
        };
        process.launches.of(place, number, own)
    })
}

/// The gate of one device, for one thread before it.
struct Closed<'a> {
    control: &'a Control,
    terms: &'a ControlDevice,
    process: &'a Process,
    device: usize,
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
        let all_done = self.process.launches.report(self.device, self.own, true);
        let nap = if all_done { NAP } else { self.nap.get() };
        kernel::wait_while(&self.terms.gate_open, 0, nap);
        self.nap.set((self.nap.get() * 2).min(LATER_LOOKS));
    }
}

/// What a call waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum WaitFor {
    /// By its number, as `streams::number` gives it.
    Stream(u64),
    /// Everything of the thread's context.
    Context,
    /// Something else, so that markers have to tell.
    Event,
}

/// Runs a call that waits for the device, and says in the page what is done after it. Costs a load where
/// no gate is in use.
pub fn watch(until: WaitFor, wait: impl FnOnce() -> Code) -> Code {
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
    let launches = &here.process.launches;
    let (device, context) = match until {
        // Launches are numbered by device, and the stream may be on another.
        WaitFor::Stream(number) => launches
            .find(number)
            .map_or((here.device, here.context), |mark| {
                (mark.device(), mark.context())
            }),
        WaitFor::Context | WaitFor::Event => (here.device, here.context),
    };
    let own = &account.slot[tenure.slot].device[device];
    own.watching.fetch_add(1, SeqCst);
    let before = own.submitted.load(SeqCst);
    let code = wait();
    if code == OK {
        let me = threads::me();
        launches.finish(before, |stream, its_context, thread| {
            let waited_for = match until {
                WaitFor::Stream(waited_for) => {
                    stream == waited_for && (thread == 0 || thread == me)
                }
                WaitFor::Context => true,
                WaitFor::Event => false,
            };
            waited_for && its_context == context
        });
    }
    launches.report(device, own, false);
    own.watching.fetch_sub(1, SeqCst);
    code
}

/// Lets go of the streams of a context that is about to end; their markers end with it.
pub fn forget_context(process: &Process, context: u64) {
    process.launches.forget_context(context);
}

fn forget(stream: u64) {
    if let Some(process) = account::begun() {
        process.launches.forget(stream);
    }
}

// Calls by which programs wait without saying so: what was launched before is done as a rule.

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) -> Code {
    watch(
        WaitFor::Event,
        || real!(cuMemcpyDtoH_v2(to, from, bytes): fn(*mut c_void, u64, usize)),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoH_v2_ptds(to: *mut c_void, from: u64, bytes: usize) -> Code {
    watch(
        WaitFor::Event,
        || real!(cuMemcpyDtoH_v2_ptds(to, from, bytes): fn(*mut c_void, u64, usize)),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpy(to: u64, from: u64, bytes: usize) -> Code {
    watch(
        WaitFor::Event,
        || real!(cuMemcpy(to, from, bytes): fn(u64, u64, usize)),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpy_ptds(to: u64, from: u64, bytes: usize) -> Code {
    watch(
        WaitFor::Event,
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
                $crate::keep!(),
                $stream,
                "call {pass}",
                $crate::put_back!(),
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
