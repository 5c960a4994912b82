//! This process's side of the pages: its slot, what it holds, and how it asks for more. State lies in
//! memory that a forked child sees as zero, so a child begins as a process of its own.

use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::SeqCst};

use crate::ledger::AllocationTable;
use crate::lock::SpinLock;
use crate::region::{AccountPage, Charge, Control, DEVICES, Tenure};
use crate::{kernel, process, real};

/// Where the host mounts the pages. Fixed: nothing inside may point elsewhere.
const CONTROL_PATH: &CStr = path(concat!(env!("HOOK_PLACE"), "/control\0"));
const ACCOUNT_PATH: &CStr = path(concat!(env!("HOOK_PLACE"), "/account\0"));

const fn path(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(path) => path,
        Err(_) => panic!("the place holds a zero"),
    }
}

/// Devices that a process may number; more than one container ever holds.
const ORDINALS: usize = 64;
/// Times a request asks again while others ask too. Their requests take microseconds, so this is
/// patience for about 20 ms; then the answer is that memory ran out.
const LOCK_TIMEOUT: u32 = 400;
/// How long a request waits for the host to see what new contexts take, before it is told that memory ran
/// out: several looks of the host on a busy machine. Longer: a program stands still where no host looks.
/// Shorter: one that asks for all of its slice at once gets less than it may have.
const LOOKS: u64 = 5_000_000_000;
/// From one question to the next meanwhile.
const LOOK_AGAIN: u64 = 5_000_000;
/// After a wait that was in vain no thread waits again for so long: a program that fills its slice again and
/// again, as frameworks do, must not stand still each time because the host does not look.
const IN_VAIN: u64 = 30_000_000_000;

const NOT_BEGUN: u32 = 0;
const BEGINNING: u32 = 1;
const READY: u32 = 2;

/// All zero: nothing begun.
#[repr(C)]
pub struct Process {
    begun: AtomicU32,
    /// The ledger's lock.
    entering: SpinLock,
    /// Held while pools are asked or used, across calls of the driver.
    pub pools: SpinLock,
    pid: AtomicU32,
    tenure: UnsafeCell<Option<Tenure>>,
    namespace: AtomicU64,
    /// Bytes charged by this process: what is charged again should its slot be lost.
    pub held: [AtomicU64; DEVICES],
    /// Place in the control page by the driver's number of the device: 0 not asked yet, else one more.
    places: [AtomicU32; ORDINALS],
    /// One bit a device where this process has a context: what is said again should its slot be lost.
    contexts: AtomicU32,
    /// Until when no thread waits for the host to look.
    unseen_until: AtomicU64,
    ledger: UnsafeCell<AllocationTable>,
    /// How many pools are tracked: synchronisations look at pools only when there are some.
    pub tracked_pools: AtomicU32,
    /// Bytes of allocations that were captured into a graph still being made.
    pub captured: AtomicU64,
    /// Numbers for physical memory, because the driver uses its handles again.
    pub next_physical: AtomicU64,
    pub launches: crate::streams::Launches,
    /// Whether a graph with memory of its own was ever made ready to launch.
    pub graphs_with_memory: AtomicBool,
}

// SAFETY: `ledger` is reached through `with_ledger` only, which holds its lock; `tenure` is written
// under it too and read by value.
unsafe impl Sync for Process {}

static PROCESS: AtomicPtr<Process> = AtomicPtr::new(core::ptr::null_mut());
static CONTROL: AtomicPtr<Control> = AtomicPtr::new(core::ptr::null_mut());
static ACCOUNT: AtomicPtr<AccountPage> = AtomicPtr::new(core::ptr::null_mut());
/// Whether the kernel empties our memory in a forked child.
static EMPTIED: AtomicBool = AtomicBool::new(false);

/// Called when the library is loaded.
pub fn prepare() {
    if let Some((memory, emptied)) = kernel::map_memory(size_of::<Process>()) {
        EMPTIED.store(emptied, SeqCst);
        PROCESS.store(memory.cast(), SeqCst);
    }
    // Only pages that we understand: anything else is as good as none.
    let control =
        kernel::map_file(CONTROL_PATH, size_of::<Control>(), false).map(|at| at.cast::<Control>());
    let account = kernel::map_file(ACCOUNT_PATH, size_of::<AccountPage>(), true)
        .map(|at| at.cast::<AccountPage>());
    if let (Some(control), Some(account)) = (control, account) {
        // SAFETY: both are mapped for good, at least as long as their types, and hold atomics.
        if unsafe { (*control).is_known() && (*account).is_known() } {
            ACCOUNT.store(account, SeqCst);
            CONTROL.store(control, SeqCst);
        }
    }
}

pub fn control() -> Option<&'static Control> {
    // SAFETY: null, or mapped for good in `prepare`.
    unsafe { CONTROL.load(SeqCst).as_ref() }
}

pub fn account() -> Option<&'static AccountPage> {
    // SAFETY: as `control`.
    unsafe { ACCOUNT.load(SeqCst).as_ref() }
}

/// This process where it has begun already; asks no other code, so a copy of a parent's may be among them.
pub fn begun() -> Option<&'static Process> {
    // SAFETY: null, or mapped for good in `prepare`; all zero is a value.
    let process = unsafe { PROCESS.load(SeqCst).as_ref() };
    process.filter(|process| process.begun.load(SeqCst) == READY)
}

/// This process with a slot of its own; none when there are no pages, or no slot is free.
pub fn process() -> Option<&'static Process> {
    // SAFETY: null, or mapped for good in `prepare`; all zero is a value.
    let process = unsafe { PROCESS.load(SeqCst).as_ref() }?;
    if !EMPTIED.load(SeqCst) && process.pid.load(SeqCst) != kernel::process_number() {
        process.begun.store(NOT_BEGUN, SeqCst);
    }
    // Every launch asks.
    if process.begun.load(SeqCst) == READY {
        return Some(process);
    }
    loop {
        match process
            .begun
            .compare_exchange(NOT_BEGUN, BEGINNING, SeqCst, SeqCst)
        {
            Err(READY) => return Some(process),
            Err(_) => kernel::give_way(),
            Ok(_) => {
                let begun = process.begin();
                process
                    .begun
                    .store(if begun { READY } else { NOT_BEGUN }, SeqCst);
                return begun.then_some(process);
            }
        }
    }
}

impl Process {
    fn begin(&self) -> bool {
        let me = process::me();
        if !EMPTIED.load(SeqCst) {
            // A copy of the parent's: nothing in it is ours.
            for held in &self.held {
                held.store(0, SeqCst);
            }
            self.contexts.store(0, SeqCst);
            // SAFETY: all zero is an empty ledger; a child that was just forked has one thread.
            unsafe { self.ledger.get().write(core::mem::zeroed()) };
            self.entering.free();
            self.pools.free();
            self.launches.forget_all();
            self.graphs_with_memory.store(false, SeqCst);
            self.tracked_pools.store(0, SeqCst);
            self.pid.store(me.pid, SeqCst);
        }
        self.namespace.store(me.namespace, SeqCst);
        self.settle_in()
    }

    /// Takes a slot, and charges there what is held already.
    fn settle_in(&self) -> bool {
        let (Some(account), Some(_)) = (account(), control()) else {
            return false;
        };
        let me = process::me();
        let tenure = account.claim(me).or_else(|| {
            self.reap();
            account.claim(me)
        });
        let Some(tenure) = tenure else {
            return false;
        };
        for (at, held) in self.held.iter().enumerate() {
            let held = held.load(SeqCst);
            if held != 0 {
                account.charge_held(tenure, at, held);
            }
            if self.contexts.load(SeqCst) & 1 << at != 0 {
                account.has_context(tenure, at);
            }
        }
        // SAFETY: only the thread that begins, or holds `entering`, writes it; it is two words read by value.
        unsafe { self.tenure.get().write(Some(tenure)) };
        true
    }

    /// The slot, taken again should it have been lost.
    pub fn tenure(&self) -> Option<Tenure> {
        let account = account()?;
        // SAFETY: written before `begun` says READY.
        let tenure = unsafe { self.tenure.get().read() }?;
        if account.holds(tenure) {
            return Some(tenure);
        }
        self.entering.hold(|| {
            // SAFETY: as above; under the lock no other thread writes.
            let seen = unsafe { self.tenure.get().read() };
            if seen.is_some_and(|seen| account.holds(seen)) || self.settle_in() {
                // SAFETY: as above.
                unsafe { self.tenure.get().read() }
            } else {
                None
            }
        })
    }

    pub fn with_ledger<T>(&self, work: impl FnOnce(&mut AllocationTable) -> T) -> T {
        // SAFETY: the lock is held while the reference lives.
        self.entering
            .hold(|| work(unsafe { &mut *self.ledger.get() }))
    }

    /// Frees the slots of the dead.
    pub fn reap(&self) {
        let namespace = self.namespace.load(SeqCst);
        if let Some(account) = account() {
            account.reap(|seen| process::is_dead(seen, namespace));
        }
    }

    pub fn charge(&self, device: usize, bytes: u64) -> Charge {
        let answer = self.ask(|account, control, tenure| {
            account.charge(tenure, device, bytes, &control.device[device])
        });
        if answer == Charge::Granted {
            self.held[device].fetch_add(bytes, SeqCst);
        }
        answer
    }

    /// Asks until no other process asks at the same time.
    pub fn ask(&self, ask: impl Fn(&AccountPage, &Control, Tenure) -> Charge) -> Charge {
        let (Some(account), Some(control)) = (account(), control()) else {
            return Charge::Over;
        };
        for attempt in 0..LOCK_TIMEOUT {
            let Some(tenure) = self.tenure() else {
                return Charge::Over;
            };
            match ask(account, control, tenure) {
                Charge::Contended if attempt < 8 => kernel::give_way(),
                // Not all after the same time, or they meet again.
                Charge::Contended => {
                    let pid = u64::from(kernel::process_number());
                    let turn = (pid.wrapping_mul(2_654_435_761) >> 5)
                        .wrapping_add(u64::from(attempt).wrapping_mul(0x9e37_79b9));
                    kernel::sleep(1_000 + turn % 97_000);
                }
                answer => return answer,
            }
        }
        Charge::Over
    }

    /// Whether it was granted, now or once the host has seen what new contexts take.
    pub fn patiently(&self, first: Charge, ask: impl Fn() -> Charge) -> bool {
        let began = kernel::now();
        let mut answer = first;
        while answer == Charge::Unseen {
            let now = kernel::now();
            if now < self.unseen_until.load(SeqCst) {
                return false;
            }
            if now.saturating_sub(began) > LOOKS {
                self.unseen_until.store(now.saturating_add(IN_VAIN), SeqCst);
                return false;
            }
            kernel::sleep(LOOK_AGAIN);
            answer = ask();
        }
        answer == Charge::Granted
    }

    /// Says whether this process has a context on a device, once the driver has made one, or ended the last.
    pub fn say_context(&self, device: usize, has: bool) {
        let (Some(account), Some(tenure)) = (account(), self.tenure()) else {
            return;
        };
        if has {
            self.contexts.fetch_or(1 << device, SeqCst);
            account.has_context(tenure, device);
        } else {
            self.contexts.fetch_and(!(1 << device), SeqCst);
            account.end_context(tenure, device);
        }
    }

    /// Charges what is held already, whatever the limit says.
    pub fn take_held(&self, device: usize, bytes: u64) {
        if let (Some(account), Some(tenure)) = (account(), self.tenure()) {
            account.charge_held(tenure, device, bytes);
            self.held[device].fetch_add(bytes, SeqCst);
        }
    }

    pub fn give(&self, device: usize, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.held[device].fetch_sub(bytes, SeqCst);
        if let (Some(account), Some(tenure)) = (account(), self.tenure()) {
            account.refund(tenure, device, bytes);
        }
    }

    /// The place of a device in the control page, by the driver's own number for it. None: it is not
    /// one of this container's.
    pub fn place(&self, ordinal: i32) -> Option<usize> {
        const NONE: u32 = u32::MAX;
        let cell = self.places.get(usize::try_from(ordinal).ok()?)?;
        match cell.load(SeqCst) {
            NONE => None,
            0 => {
                let mut uuid = [0u8; 16];
                let code = if crate::driver::has(crate::driver::index::cuDeviceGetUuid_v2) {
                    real!(cuDeviceGetUuid_v2(&mut uuid, ordinal): fn(&mut [u8; 16], i32))
                } else {
                    real!(cuDeviceGetUuid(&mut uuid, ordinal): fn(&mut [u8; 16], i32))
                };
                if code != crate::OK {
                    return None;
                }
                let found = control()?.find(&uuid);
                cell.store(found.map_or(NONE, |at| at as u32 + 1), SeqCst);
                found
            }
            place => Some(place as usize - 1),
        }
    }
}
