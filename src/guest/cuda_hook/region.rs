//! The two pages that host and container share about a slice of a GPU, and how bytes are charged in
//! them: layout version 1. One file, compiled into both hooks and into the node.
//!
//! *Control* is written by the host and mapped read-only in the container: limits, share, gate.
//! *Account* is written by the container's processes, each in its own slot. A charge lives only in its
//! owner's slot, so a process may be killed at any instruction: its slot stops counting by one
//! compare-and-swap of the process that finds it dead, and nothing has to be repaired. Never takes a lock, makes
//! no system call, and trusts nothing in the account page further than that container's own limit.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

/// "fardelGP", little-endian: what both pages open with.
pub const MAGIC: u64 = u64::from_le_bytes(*b"fardelGP");

/// The layout below. A hook that meets another one lets no program near the device.
pub const VERSION: u32 = 1;

/// Devices one container may hold. Also the width of every slot.
pub const DEVICES: usize = 16;

/// Processes of one container that may use a device at the same time. More: the next one is told that
/// memory ran out. Fewer would refuse a data loader with a process per core.
pub const SLOTS: usize = 512;

/// Nanoseconds without a heartbeat after which the gate no longer holds a thread back.
pub const STALE_HEARTBEAT: u64 = 2_000_000_000;

/// The host leaves launches alone.
pub const MODE_OFF: u32 = 0;
/// Launches pass only while the host holds the window open.
pub const MODE_WINDOW: u32 = 1;

/// A gate as a thread before it sees it. A trait, so that a model checker tries the very code that
/// hooks run, in every order of events.
pub trait Gate {
    fn is_open(&self) -> bool;
    /// Whether the host gives turns at this device at all.
    fn is_in_use(&self) -> bool;
    /// Nanoseconds since the host last said that it lives.
    fn silence(&self) -> u64;
    /// Sleeps while the gate is closed, and not for ever: what is asked above is asked again after it.
    fn sleep(&self);
}

/// Stands before a gate until launches may pass: it is open, out of use, or turns are given no more.
pub fn wait_at(gate: &impl Gate) {
    while !gate.is_open() && gate.is_in_use() && gate.silence() < STALE_HEARTBEAT {
        gate.sleep();
    }
}

/// What the host says. Mapped read-only inside.
#[repr(C, align(4096))]
pub struct Control {
    pub magic: AtomicU64,
    pub version: AtomicU32,
    /// How many of `device` count.
    pub devices: AtomicU32,
    /// Raised with every change, so that a reader can tell that something moved.
    pub generation: AtomicU64,
    /// Monotonic nanoseconds at which the arbiter last said that it lives.
    pub heartbeat: AtomicU64,
    /// Not zero while any device has a mode other than `MODE_OFF`: the one word a launch looks at.
    pub gated: AtomicU32,
    pub spare: [AtomicU32; 7],
    pub device: [ControlDevice; DEVICES],
}

/// One device's part of the control page.
#[repr(C)]
pub struct ControlDevice {
    /// As the driver tells it (a MIG device has its own), first eight bytes first.
    pub uuid: [AtomicU64; 2],
    /// Bytes all processes of the container may hold together.
    pub mem_limit: AtomicU64,
    /// Bytes that the host saw beyond what the slots say: contexts, code, local memory.
    pub mem_overhead: AtomicU64,
    /// Thousandths of the device's time.
    pub share_milli: AtomicU32,
    pub mode: AtomicU32,
    /// Not zero: launches may pass. Waiters sleep on this word.
    pub gate_open: AtomicU32,
    pub flags: AtomicU32,
    /// Monotonic nanoseconds at which the open window ends.
    pub window_end: AtomicU64,
    /// Bytes that are kept for the context of a process while the host has not seen what it takes.
    pub context_room: AtomicU64,
    /// Contexts that `mem_overhead` counts already.
    pub contexts_seen: AtomicU32,
    /// Raised before and after the host writes what it saw; odd in between.
    pub looks: AtomicU32,
    pub spare: [AtomicU64; 7],
}

/// What the container's processes say. Mapped writable inside, so the host believes it only as far as
/// that container's own limit.
#[repr(C, align(4096))]
pub struct AccountPage {
    pub magic: AtomicU64,
    pub version: AtomicU32,
    /// Slots from here on were never used, so they need no look.
    pub high: AtomicU32,
    pub spare: [AtomicU64; 6],
    pub slot: [Slot; SLOTS],
}

/// One process.
#[repr(C, align(64))]
pub struct Slot {
    /// Process number (low 32 bits), a stamp that changes with every owner, and whether the owner is
    /// still moving in. Process number 0: no process, and whatever stands in the slot counts for nothing.
    pub owner: AtomicU64,
    /// Ticks after boot at which the process began, 0 when it could not find out.
    pub start: AtomicU64,
    /// Number of the process-number namespace that the process number belongs to.
    pub namespace: AtomicU64,
    /// Where its stack begins: the one thing seen from outside that `exec` changes. 0: unknown.
    pub stack: AtomicU64,
    pub spare: [AtomicU64; 4],
    pub device: [SlotDevice; DEVICES],
}

/// What one process says about one device, in a cache line of its own.
#[repr(C, align(64))]
pub struct SlotDevice {
    /// Bytes that were granted.
    pub charged: AtomicU64,
    /// Bytes that a process is asking for right now.
    pub pending: AtomicU64,
    /// Threads that wait at the gate.
    pub waiting: AtomicU32,
    pub spare_half: AtomicU32,
    /// Launches handed to the device, and how many of them are known to be done: a marker showed it to
    /// the next launch, to a thread at the gate, or to one that waited for the device.
    pub submitted: AtomicU64,
    pub finished: AtomicU64,
    /// Threads that will say in `finished` when all that was submitted before they came is done, whether
    /// or not anything more is launched.
    pub watching: AtomicU32,
    /// Whether the process has a context here: `NO_CONTEXT`, `MAKING_CONTEXT` or `HAS_CONTEXT`.
    pub context: AtomicU32,
    pub spare: [AtomicU64; 2],
}

pub const NO_CONTEXT: u32 = 0;
/// The driver is asked for it: room is kept, and what it takes cannot be seen yet.
pub const MAKING_CONTEXT: u32 = 1;
pub const HAS_CONTEXT: u32 = 2;

const _: () = assert!(size_of::<Control>() == 4096);
const _: () = assert!(size_of::<ControlDevice>() == 128);
const _: () = assert!(core::mem::offset_of!(Control, gated) == 32);
const _: () = assert!(core::mem::offset_of!(Control, device) == 64);
const _: () = assert!(core::mem::offset_of!(ControlDevice, mem_limit) == 16);
const _: () = assert!(core::mem::offset_of!(ControlDevice, gate_open) == 40);
const _: () = assert!(core::mem::offset_of!(ControlDevice, window_end) == 48);
const _: () = assert!(core::mem::offset_of!(ControlDevice, context_room) == 56);
const _: () = assert!(core::mem::offset_of!(AccountPage, slot) == 64);
const _: () = assert!(size_of::<SlotDevice>() == 64);
const _: () = assert!(size_of::<Slot>() == 64 + DEVICES * 64);
const _: () = assert!(size_of::<AccountPage>() == 561_152);

const MOVING_IN: u64 = 1 << 32;
/// The stamp's low end, above the flag and eleven bits of the namespace.
const STAMP: u64 = 1 << 44;
const NAMESPACE_BITS: u64 = 0x7ff;

/// Who a process is, as far as others can check it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub pid: u32,
    pub start: u64,
    pub namespace: u64,
    pub stack: u64,
}

/// The owner of a slot as another process sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotOwner {
    pub pid: u32,
    /// None while the owner is moving in: only process number and namespace are certain then.
    pub settled: Option<Identity>,
    /// Some bits of the namespace; all there is while the owner moves in.
    pub namespace_bits: u64,
}

impl SlotOwner {
    /// Whether the process number means something in that namespace.
    pub fn belongs_to(&self, namespace: u64) -> bool {
        match self.settled {
            Some(identity) => identity.namespace == namespace,
            None => self.namespace_bits == namespace & NAMESPACE_BITS,
        }
    }
}

/// A slot that its process owns, and the word that proves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tenure {
    pub slot: usize,
    owner: u64,
}

/// How a request for bytes ended. A caller that is `Contended` may ask again: others are asking too, and
/// without them it would fit. `Unseen`: without the room that is kept for new contexts it would fit, so it
/// may be asked again once the host has seen what they take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    Granted,
    Contended,
    Unseen,
    Over,
}

/// Bytes on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceTotals {
    /// Everything that is charged or asked for.
    pub total: u64,
    /// The part of it that may go away by itself in a moment.
    pub passing: u64,
    /// Processes that have a context, or are about to.
    pub contexts: u32,
    /// Those of them that have it.
    pub made: u32,
}

/// Every write to the account page stands behind this, so that a test can kill the writer there.
#[inline(always)]
fn about_to_write() {
    #[cfg(test)]
    tests::perhaps_die();
}

impl Control {
    /// Whether this is a page that we can read.
    pub fn is_known(&self) -> bool {
        self.magic.load(SeqCst) == MAGIC && self.version.load(SeqCst) == VERSION
    }

    /// Host side: makes an all-zero page one that hooks accept. The magic comes last.
    pub fn found(&self, devices: &[DeviceTerms]) {
        self.version.store(VERSION, SeqCst);
        for (at, terms) in devices.iter().take(DEVICES).enumerate() {
            let device = &self.device[at];
            for (word, bytes) in device.uuid.iter().zip(terms.uuid.chunks_exact(8)) {
                let mut eight = [0; 8];
                eight.copy_from_slice(bytes);
                word.store(u64::from_ne_bytes(eight), SeqCst);
            }
            self.set(at, terms);
        }
        self.devices
            .store(devices.len().min(DEVICES) as u32, SeqCst);
        self.magic.store(MAGIC, SeqCst);
    }

    /// Host side: changes the terms of a device while its container runs. The next call inside sees them.
    pub fn set(&self, at: usize, terms: &DeviceTerms) {
        let device = &self.device[at];
        device.mem_limit.store(terms.mem_limit, SeqCst);
        device.mem_overhead.store(terms.mem_overhead, SeqCst);
        device.share_milli.store(terms.share_milli, SeqCst);
        self.set_mode(at, terms.mode);
    }

    /// Host side: says whether launches on a device wait for their turn.
    pub fn set_mode(&self, at: usize, mode: u32) {
        self.device[at].mode.store(mode, SeqCst);
        let gated = self
            .device
            .iter()
            .any(|device| device.mode.load(SeqCst) != MODE_OFF);
        self.gated.store(u32::from(gated), SeqCst);
        self.generation.fetch_add(1, SeqCst);
    }

    /// The place of a device in the page; none when the container has no such device.
    pub fn find(&self, uuid: &[u8; 16]) -> Option<usize> {
        let count = (self.devices.load(SeqCst) as usize).min(DEVICES);
        self.device[..count].iter().position(|device| {
            device
                .uuid
                .iter()
                .zip(uuid.chunks_exact(8))
                .all(|(word, bytes)| word.load(SeqCst).to_ne_bytes() == *bytes)
        })
    }
}

impl ControlDevice {
    /// Bytes that no account shows: what the host saw, and what is kept for contexts that it has not
    /// seen, of so many that there are.
    pub fn beyond(&self, contexts: u32) -> (u64, u64) {
        let before = self.looks.load(SeqCst);
        let overhead = self.mem_overhead.load(SeqCst);
        let seen = self.contexts_seen.load(SeqCst);
        // During a look the two may not belong together; then room is kept for all.
        let whole = before.is_multiple_of(2) && before == self.looks.load(SeqCst);
        let seen = if whole { seen } else { 0 };
        let unseen = u64::from(contexts.saturating_sub(seen));
        let kept = unseen.saturating_mul(self.context_room.load(SeqCst));
        (overhead, kept)
    }

    /// Host side: says what so many contexts take, everything else beyond the accounts included.
    pub fn saw(&self, overhead: u64, contexts: u32) {
        // Odd already, should an earlier server have died here.
        let amid = self.looks.load(SeqCst) | 1;
        self.looks.store(amid, SeqCst);
        self.mem_overhead.store(overhead, SeqCst);
        self.contexts_seen.store(contexts, SeqCst);
        self.looks.store(amid.wrapping_add(1), SeqCst);
    }
}

/// What a container may have of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceTerms {
    pub uuid: [u8; 16],
    pub mem_limit: u64,
    pub mem_overhead: u64,
    pub share_milli: u32,
    pub mode: u32,
}

impl AccountPage {
    /// Whether this is a page that we can write.
    pub fn is_known(&self) -> bool {
        self.magic.load(SeqCst) == MAGIC && self.version.load(SeqCst) == VERSION
    }

    /// Host side: makes an all-zero page one that hooks accept.
    pub fn found(&self) {
        self.version.store(VERSION, SeqCst);
        self.magic.store(MAGIC, SeqCst);
    }

    fn used(&self) -> &[Slot] {
        &self.slot[..(self.high.load(SeqCst) as usize).min(SLOTS)]
    }

    /// Takes a slot for a process and empties it; none when every slot has an owner that may live.
    ///
    /// A slot of the same process from before an `exec` is taken over. Counts nothing of what a former
    /// owner left there once it returns; until then that only makes others wait a moment.
    pub fn claim(&self, me: Identity) -> Option<Tenure> {
        if me.pid == 0 {
            return None;
        }
        let own = self.used().iter().position(|slot| {
            let seen = slot.sight();
            seen.is_some_and(|seen| {
                seen.settled.is_some_and(|them| {
                    them.pid == me.pid && them.start == me.start && them.namespace == me.namespace
                })
            })
        });
        for at in own.into_iter().chain(0..SLOTS) {
            let slot = &self.slot[at];
            let before = slot.owner.load(SeqCst);
            if before as u32 != 0 && Some(at) != own {
                continue;
            }
            let stamp = (before & !(STAMP - 1)).wrapping_add(STAMP);
            let moving =
                stamp | (me.namespace & NAMESPACE_BITS) << 33 | MOVING_IN | u64::from(me.pid);
            // Before the slot has an owner: a reader that counts must not stop short of it.
            about_to_write();
            self.high.fetch_max(at as u32 + 1, SeqCst);
            about_to_write();
            if slot
                .owner
                .compare_exchange(before, moving, SeqCst, SeqCst)
                .is_err()
            {
                continue;
            }
            for device in &slot.device {
                device.empty();
            }
            about_to_write();
            slot.start.store(me.start, SeqCst);
            about_to_write();
            slot.namespace.store(me.namespace, SeqCst);
            about_to_write();
            slot.stack.store(me.stack, SeqCst);
            about_to_write();
            let owner = moving & !MOVING_IN;
            if slot
                .owner
                .compare_exchange(moving, owner, SeqCst, SeqCst)
                .is_ok()
            {
                return Some(Tenure { slot: at, owner });
            }
        }
        None
    }

    /// Whether the slot is still its owner's. It is not when a page was wiped from inside, or when
    /// a process was taken for dead; the owner then claims again and charges what it holds.
    pub fn holds(&self, tenure: Tenure) -> bool {
        self.slot[tenure.slot].owner.load(SeqCst) == tenure.owner
    }

    /// Gives a slot back; what stands in it counts no longer.
    pub fn leave(&self, tenure: Tenure) {
        self.vacate(tenure.slot, tenure.owner);
    }

    fn vacate(&self, at: usize, owner: u64) -> bool {
        let nobody = owner & !(STAMP - 1);
        about_to_write();
        self.slot[at]
            .owner
            .compare_exchange(owner, nobody, SeqCst, SeqCst)
            .is_ok()
    }

    /// Frees the slots whose owners `is_dead` is sure about; says how many. One compare-and-swap each,
    /// so two that do it at once, or one killed in between, do no harm.
    pub fn reap(&self, mut is_dead: impl FnMut(&SlotOwner) -> bool) -> usize {
        let mut freed = 0;
        for (at, slot) in self.used().iter().enumerate() {
            let owner = slot.owner.load(SeqCst);
            let Some(seen) = slot.sight() else { continue };
            // The same owner before and after its identity was read, or the answer is about a mixture.
            if slot.owner.load(SeqCst) != owner || !is_dead(&seen) {
                continue;
            }
            freed += usize::from(self.vacate(at, owner));
        }
        freed
    }

    /// What all processes hold on a device, without the host's overhead.
    pub fn sum(&self, device: usize) -> DeviceTotals {
        let mut sum = DeviceTotals {
            total: 0,
            passing: 0,
            contexts: 0,
            made: 0,
        };
        for slot in self.used() {
            let owner = slot.owner.load(SeqCst);
            if owner as u32 == 0 {
                continue;
            }
            // Pending first: a grant adds to `charged` before it takes from `pending`, so this order may
            // count it twice for a moment, and never misses it.
            let pending = slot.device[device].pending.load(SeqCst);
            let charged = slot.device[device].charged.load(SeqCst);
            sum.total = sum.total.saturating_add(pending).saturating_add(charged);
            sum.passing = sum.passing.saturating_add(pending);
            if owner & MOVING_IN != 0 {
                sum.passing = sum.passing.saturating_add(charged);
                continue;
            }
            let context = slot.device[device].context.load(SeqCst);
            sum.contexts += u32::from(context != NO_CONTEXT);
            sum.made += u32::from(context == HAS_CONTEXT);
        }
        sum
    }

    /// Adds to the own slot, then looks whether everybody together is still within the limit. Of racing
    /// requests for the last bytes never two succeed where one fits; both may be told to ask again.
    pub fn charge(
        &self,
        tenure: Tenure,
        device: usize,
        bytes: u64,
        terms: &ControlDevice,
    ) -> Charge {
        let own = &self.slot[tenure.slot].device[device];
        let limit = terms.mem_limit.load(SeqCst);
        // Also keeps the sums below from going round.
        if bytes > limit {
            return Charge::Over;
        }
        about_to_write();
        own.pending.fetch_add(bytes, SeqCst);
        let sum = self.sum(device);
        let limit = terms.mem_limit.load(SeqCst);
        let (overhead, kept) = terms.beyond(sum.contexts);
        let whole = sum.total.saturating_add(overhead).saturating_add(kept);
        if whole <= limit {
            about_to_write();
            own.charged.fetch_add(bytes, SeqCst);
            about_to_write();
            own.pending.fetch_sub(bytes, SeqCst);
            return Charge::Granted;
        }
        about_to_write();
        own.pending.fetch_sub(bytes, SeqCst);
        let alone = whole.saturating_sub(sum.passing.saturating_sub(bytes));
        if alone <= limit {
            Charge::Contended
        } else if alone.saturating_sub(kept) <= limit {
            Charge::Unseen
        } else {
            Charge::Over
        }
    }

    /// Keeps room for the context that this process is about to make on a device, before the driver is asked.
    /// Granted where it has one already, or where the room is unknown. Nothing is kept otherwise.
    pub fn make_context(&self, tenure: Tenure, device: usize, terms: &ControlDevice) -> Charge {
        let own = &self.slot[tenure.slot].device[device].context;
        let room = terms.context_room.load(SeqCst);
        about_to_write();
        let before = own.compare_exchange(NO_CONTEXT, MAKING_CONTEXT, SeqCst, SeqCst);
        if before.is_err() || room == 0 {
            return Charge::Granted;
        }
        let sum = self.sum(device);
        let limit = terms.mem_limit.load(SeqCst);
        let (overhead, kept) = terms.beyond(sum.contexts);
        let whole = sum.total.saturating_add(overhead).saturating_add(kept);
        if whole <= limit {
            return Charge::Granted;
        }
        about_to_write();
        own.store(NO_CONTEXT, SeqCst);
        let alone = whole.saturating_sub(sum.passing);
        if alone <= limit {
            Charge::Contended
        } else if alone.saturating_sub(kept.saturating_sub(room)) <= limit {
            Charge::Unseen
        } else {
            Charge::Over
        }
    }

    /// Says that the driver has made it: from now on the host can see what it takes.
    pub fn has_context(&self, tenure: Tenure, device: usize) {
        about_to_write();
        self.slot[tenure.slot].device[device]
            .context
            .store(HAS_CONTEXT, SeqCst);
    }

    /// Says that this process has no context on a device any more.
    pub fn end_context(&self, tenure: Tenure, device: usize) {
        about_to_write();
        self.slot[tenure.slot].device[device]
            .context
            .store(NO_CONTEXT, SeqCst);
    }

    /// Charges what is held already, whatever the limit says: the truth, so that nothing more is granted.
    pub fn charge_held(&self, tenure: Tenure, device: usize, bytes: u64) {
        about_to_write();
        self.slot[tenure.slot].device[device]
            .charged
            .fetch_add(bytes, SeqCst);
    }

    /// Takes back what was charged; never below zero, though a tenant may have written there.
    pub fn refund(&self, tenure: Tenure, device: usize, bytes: u64) {
        about_to_write();
        let own = &self.slot[tenure.slot].device[device].charged;
        let mut before = own.load(SeqCst);
        while let Err(seen) =
            own.compare_exchange(before, before.saturating_sub(bytes), SeqCst, SeqCst)
        {
            before = seen;
        }
    }
}

impl Slot {
    /// Its owner; none where it has none.
    pub fn sight(&self) -> Option<SlotOwner> {
        let owner = self.owner.load(SeqCst);
        let pid = owner as u32;
        if pid == 0 {
            return None;
        }
        let settled = (owner & MOVING_IN == 0).then(|| Identity {
            pid,
            start: self.start.load(SeqCst),
            namespace: self.namespace.load(SeqCst),
            stack: self.stack.load(SeqCst),
        });
        Some(SlotOwner {
            pid,
            settled,
            namespace_bits: owner >> 33 & NAMESPACE_BITS,
        })
    }
}

impl SlotDevice {
    fn empty(&self) {
        for word in [
            &self.charged,
            &self.pending,
            &self.submitted,
            &self.finished,
        ] {
            about_to_write();
            word.store(0, SeqCst);
        }
        about_to_write();
        self.waiting.store(0, SeqCst);
        about_to_write();
        self.watching.store(0, SeqCst);
        about_to_write();
        self.context.store(NO_CONTEXT, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::{Layout, alloc_zeroed};
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    thread_local! {
        static WRITES_LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
    }

    /// The death of a process during a write: the code behind it never runs.
    struct Killed;

    pub(super) fn perhaps_die() {
        WRITES_LEFT.with(|left| match left.get() {
            usize::MAX => {}
            0 => {
                left.set(usize::MAX);
                std::panic::panic_any(Killed)
            }
            more => left.set(more - 1),
        });
    }

    /// Runs `work` and kills it before its write number `at`; whether it was killed.
    fn killed_before(at: usize, work: impl FnOnce()) -> bool {
        WRITES_LEFT.with(|left| left.set(at));
        let ended = catch_unwind(AssertUnwindSafe(work));
        WRITES_LEFT.with(|left| left.set(usize::MAX));
        match ended {
            Ok(()) => false,
            Err(cause) if cause.is::<Killed>() => true,
            Err(cause) => std::panic::resume_unwind(cause),
        }
    }

    const GIB: u64 = 1 << 30;
    const UUID: [u8; 16] = *b"device number 1.";

    fn page<T>() -> &'static T {
        // SAFETY: both pages are atomics, for which zero is a value; they live as long as the test.
        unsafe { &*alloc_zeroed(Layout::new::<T>()).cast::<T>() }
    }

    fn pages(limit: u64) -> (&'static Control, &'static AccountPage) {
        let control: &Control = page();
        let account: &AccountPage = page();
        control.found(&[terms(limit)]);
        account.found();
        (control, account)
    }

    fn terms(limit: u64) -> DeviceTerms {
        DeviceTerms {
            uuid: UUID,
            mem_limit: limit,
            mem_overhead: 0,
            share_milli: 500,
            mode: MODE_OFF,
        }
    }

    fn process(pid: u32) -> Identity {
        Identity {
            pid,
            start: 1000 + u64::from(pid),
            namespace: 4_026_531_836,
            stack: 0,
        }
    }

    fn dead(pids: &[u32]) -> impl FnMut(&SlotOwner) -> bool {
        let pids = pids.to_vec();
        move |seen| pids.contains(&seen.pid)
    }

    #[test]
    fn a_page_is_known_by_its_magic_and_its_version_only() {
        let (control, account) = pages(GIB);
        assert!(control.is_known() && account.is_known());
        control.version.store(2, SeqCst);
        account.magic.store(0, SeqCst);
        assert!(!control.is_known() && !account.is_known());
        let empty: &Control = page();
        assert!(!empty.is_known());
    }

    #[test]
    fn a_device_is_found_by_its_number_and_others_are_not() {
        let (control, _) = pages(GIB);
        assert_eq!(control.find(&UUID), Some(0));
        assert_eq!(control.find(&[0; 16]), None);
    }

    #[test]
    fn a_limit_holds_to_the_byte_and_everything_comes_back() {
        let (control, account) = pages(GIB);
        let me = account.claim(process(7)).unwrap();
        let device = &control.device[0];
        assert_eq!(account.charge(me, 0, GIB - 1, device), Charge::Granted);
        assert_eq!(account.charge(me, 0, 2, device), Charge::Over);
        assert_eq!(account.charge(me, 0, 1, device), Charge::Granted);
        assert_eq!(account.charge(me, 0, 1, device), Charge::Over);
        account.refund(me, 0, GIB);
        assert_eq!(account.sum(0).total, 0);
    }

    #[test]
    fn the_overhead_counts_and_a_limit_moves_both_ways_while_it_runs() {
        let (control, account) = pages(GIB);
        let me = account.claim(process(7)).unwrap();
        let device = &control.device[0];
        control.set(
            0,
            &DeviceTerms {
                mem_overhead: GIB / 2,
                ..terms(GIB)
            },
        );
        assert_eq!(account.charge(me, 0, GIB / 2 + 1, device), Charge::Over);
        assert_eq!(account.charge(me, 0, GIB / 2, device), Charge::Granted);
        control.set(0, &terms(2 * GIB));
        assert_eq!(account.charge(me, 0, GIB, device), Charge::Granted);
        control.set(0, &terms(GIB / 4));
        assert_eq!(account.charge(me, 0, 1, device), Charge::Over);
        assert_eq!(account.sum(0).total, GIB + GIB / 2);
    }

    #[test]
    fn room_is_kept_for_a_context_until_the_host_has_seen_what_it_takes() {
        const ROOM: u64 = GIB / 4;
        let (control, account) = pages(GIB);
        let device = &control.device[0];
        device.context_room.store(ROOM, SeqCst);
        let one = account.claim(process(1)).unwrap();
        let two = account.claim(process(2)).unwrap();
        assert_eq!(account.make_context(one, 0, device), Charge::Granted);
        assert_eq!(account.make_context(one, 0, device), Charge::Granted, "its");
        let told = |account: &AccountPage| (account.sum(0).contexts, account.sum(0).made);
        assert_eq!(told(account), (1, 0));
        account.has_context(one, 0);
        assert_eq!(told(account), (1, 1));
        assert_eq!(
            account.charge(one, 0, GIB - ROOM + 1, device),
            Charge::Unseen
        );
        assert_eq!(account.charge(one, 0, GIB - ROOM, device), Charge::Granted);
        assert_eq!(account.charge(one, 0, GIB, device), Charge::Over);
        // A second one would fit, should the first take little.
        assert_eq!(account.make_context(two, 0, device), Charge::Unseen);
        assert_eq!(told(account), (1, 1));
        // The host has looked: it takes less than was kept.
        device.saw(ROOM / 2, 1);
        assert_eq!(account.charge(one, 0, ROOM / 2 + 1, device), Charge::Over);
        assert_eq!(account.make_context(two, 0, device), Charge::Over);
        device.context_room.store(ROOM / 2, SeqCst);
        assert_eq!(account.make_context(two, 0, device), Charge::Granted);
        assert_eq!(account.charge(one, 0, 1, device), Charge::Unseen);
        // It took nothing at all, and then the first one is gone.
        device.saw(ROOM / 2, 2);
        assert_eq!(account.charge(two, 0, ROOM / 2, device), Charge::Granted);
        account.leave(one);
        device.saw(0, 1);
        assert_eq!(
            account.charge(two, 0, GIB - ROOM / 2, device),
            Charge::Granted
        );
        account.end_context(two, 0);
        assert_eq!(told(account), (0, 0));
    }

    #[test]
    fn whoever_reads_amid_a_look_of_the_host_finds_too_much_and_never_too_little() {
        let (control, _) = pages(GIB);
        let device = &control.device[0];
        device.context_room.store(100, SeqCst);
        // Two contexts of 100: whatever the host has seen of them, both are counted.
        std::thread::scope(|scope| {
            let host = scope.spawn(|| {
                for _ in 0..20_000 {
                    device.saw(100, 1);
                    device.saw(200, 2);
                    device.saw(0, 0);
                }
            });
            while !host.is_finished() {
                let (overhead, kept) = device.beyond(2);
                assert!(overhead + kept >= 200, "{overhead} and {kept}");
            }
        });
    }

    #[test]
    fn a_request_that_overflows_is_over_and_leaves_nothing() {
        let (control, account) = pages(GIB);
        let me = account.claim(process(7)).unwrap();
        assert_eq!(
            account.charge(me, 0, 512, &control.device[0]),
            Charge::Granted
        );
        assert_eq!(
            account.charge(me, 0, u64::MAX - 100, &control.device[0]),
            Charge::Over
        );
        assert_eq!(account.sum(0).total, 512);
    }

    #[test]
    fn eight_racers_for_the_last_bytes_end_exactly_at_the_limit() {
        const PIECE: u64 = 1 << 20;
        for round in 0..20u32 {
            let (control, account) = pages(64 * PIECE);
            let got: u64 = std::thread::scope(|scope| {
                let racers: Vec<_> = (0..8)
                    .map(|number| {
                        scope.spawn(move || {
                            let me = account.claim(process(100 + round * 8 + number)).unwrap();
                            let mut got = 0;
                            loop {
                                match account.charge(me, 0, PIECE, &control.device[0]) {
                                    Charge::Granted => got += PIECE,
                                    Charge::Contended => std::thread::yield_now(),
                                    Charge::Over | Charge::Unseen => return got,
                                }
                            }
                        })
                    })
                    .collect();
                racers.into_iter().map(|racer| racer.join().unwrap()).sum()
            });
            assert_eq!(got, 64 * PIECE, "round {round}");
            assert_eq!(account.sum(0).total, 64 * PIECE);
            assert_eq!(account.sum(0).passing, 0);
        }
    }

    #[test]
    fn of_two_that_ask_at_once_the_one_that_would_fit_alone_is_told_to_ask_again() {
        let (control, account) = pages(GIB);
        let one = account.claim(process(1)).unwrap();
        let two = account.claim(process(2)).unwrap();
        // The other one is in its request.
        account.slot[two.slot].device[0].pending.store(GIB, SeqCst);
        assert_eq!(
            account.charge(one, 0, 512, &control.device[0]),
            Charge::Contended
        );
        assert_eq!(
            account.charge(one, 0, GIB + 1, &control.device[0]),
            Charge::Over
        );
    }

    #[test]
    fn a_death_before_any_write_leaks_nothing_and_blocks_nobody() {
        // Moving in, a grant, a refusal, a refund, moving out: killed before each write in turn.
        let life = |account: &'static AccountPage, control: &'static Control| {
            let me = account.claim(process(7)).unwrap();
            let device = &control.device[0];
            assert_eq!(account.charge(me, 0, GIB / 2, device), Charge::Granted);
            assert_eq!(account.charge(me, 0, GIB, device), Charge::Over);
            account.refund(me, 0, GIB / 4);
            account.charge_held(me, 0, 512);
            device.context_room.store(GIB / 8, SeqCst);
            assert_eq!(account.make_context(me, 0, device), Charge::Granted);
            account.has_context(me, 0);
            account.end_context(me, 0);
            device.context_room.store(GIB, SeqCst);
            assert_eq!(account.make_context(me, 0, device), Charge::Over);
            account.leave(me);
        };
        let mut deaths = 0;
        loop {
            let (control, account) = pages(GIB);
            // The slot held another owner's charge before, so that moving in has something to empty.
            let former = account.claim(process(3)).unwrap();
            account.charge_held(former, 0, GIB);
            account.leave(former);
            let died = killed_before(deaths, || life(account, control));
            let me = account.claim(process(8)).unwrap();
            account.reap(dead(&[7]));
            assert_eq!(
                account.sum(0),
                DeviceTotals {
                    total: 0,
                    passing: 0,
                    contexts: 0,
                    made: 0
                },
                "death {deaths}"
            );
            assert_eq!(
                account.charge(me, 0, GIB, &control.device[0]),
                Charge::Granted,
                "death {deaths}"
            );
            if !died {
                break;
            }
            deaths += 1;
        }
        assert!(deaths > 100, "only {deaths} places to die were tried");
    }

    #[test]
    fn a_death_amid_reaping_leaves_the_rest_to_the_next() {
        for at in 0..3 {
            let (_, account) = pages(GIB);
            for pid in 1..=3 {
                let them = account.claim(process(pid)).unwrap();
                account.charge_held(them, 0, 100);
            }
            killed_before(at, || {
                account.reap(dead(&[1, 2]));
            });
            account.reap(dead(&[1, 2]));
            assert_eq!(account.sum(0).total, 100);
        }
    }

    /// A running container keeps the hook it was started with, so these places never move: a version that needs
    /// others raises `VERSION`, and keeps what writes this one for as long as such containers may live.
    #[test]
    fn the_layout_is_the_one_that_running_containers_have() {
        use core::mem::offset_of;
        assert_eq!(VERSION, 1);
        let control = [
            offset_of!(Control, magic),
            offset_of!(Control, version),
            offset_of!(Control, devices),
            offset_of!(Control, generation),
            offset_of!(Control, heartbeat),
            offset_of!(Control, gated),
            offset_of!(Control, device),
        ];
        assert_eq!(control, [0, 8, 12, 16, 24, 32, 64]);
        let of_a_device = [
            offset_of!(ControlDevice, uuid),
            offset_of!(ControlDevice, mem_limit),
            offset_of!(ControlDevice, mem_overhead),
            offset_of!(ControlDevice, share_milli),
            offset_of!(ControlDevice, mode),
            offset_of!(ControlDevice, gate_open),
            offset_of!(ControlDevice, flags),
            offset_of!(ControlDevice, window_end),
        ];
        assert_eq!(of_a_device, [0, 16, 24, 32, 36, 40, 44, 48]);
        let account = [
            offset_of!(AccountPage, magic),
            offset_of!(AccountPage, version),
            offset_of!(AccountPage, high),
            offset_of!(AccountPage, slot),
        ];
        assert_eq!(account, [0, 8, 12, 64]);
        let slot = [
            offset_of!(Slot, owner),
            offset_of!(Slot, start),
            offset_of!(Slot, namespace),
            offset_of!(Slot, stack),
            offset_of!(Slot, device),
        ];
        assert_eq!(slot, [0, 8, 16, 24, 64]);
        let of_a_process = [
            offset_of!(SlotDevice, charged),
            offset_of!(SlotDevice, pending),
            offset_of!(SlotDevice, waiting),
            offset_of!(SlotDevice, submitted),
            offset_of!(SlotDevice, finished),
            offset_of!(SlotDevice, watching),
        ];
        assert_eq!(of_a_process, [0, 8, 16, 24, 32, 40]);
        assert_eq!(size_of::<ControlDevice>() * DEVICES + 64, 2112);
        assert_eq!((size_of::<SlotDevice>(), SLOTS, DEVICES), (64, 512, 16));
    }

    #[test]
    fn one_that_lives_is_not_taken_for_its_dead_predecessor() {
        let (_, account) = pages(GIB);
        let first = account.claim(process(1)).unwrap();
        let stale = account.slot[first.slot].owner.load(SeqCst);
        assert!(account.vacate(first.slot, stale));
        let second = account.claim(process(2)).unwrap();
        assert_eq!(second.slot, first.slot);
        // A reaper that decided long ago comes late.
        assert!(!account.vacate(first.slot, stale));
        assert!(account.holds(second));
        assert!(!account.holds(first));
    }

    #[test]
    fn after_exec_a_process_finds_its_own_slot_and_begins_with_nothing() {
        let (_, account) = pages(GIB);
        let before = account.claim(process(1)).unwrap();
        account.charge_held(before, 0, GIB);
        let after = account
            .claim(Identity {
                stack: 77,
                ..process(1)
            })
            .unwrap();
        assert_eq!(after.slot, before.slot);
        assert_eq!(account.sum(0).total, 0);
        assert!(!account.holds(before));
    }

    #[test]
    fn the_same_number_in_another_namespace_or_another_life_is_another_process() {
        let (_, account) = pages(GIB);
        let here = account.claim(process(1)).unwrap();
        let there = account
            .claim(Identity {
                namespace: 4_026_532_000,
                ..process(1)
            })
            .unwrap();
        let later = account
            .claim(Identity {
                start: 9_999,
                ..process(1)
            })
            .unwrap();
        assert!(here.slot != there.slot && there.slot != later.slot && here.slot != later.slot);
    }

    #[test]
    fn who_is_moving_in_says_its_namespace_only() {
        let (_, account) = pages(GIB);
        killed_before(8, || {
            account.claim(process(1));
        });
        let seen = account.slot[0].sight().unwrap();
        assert_eq!(seen.settled, None);
        assert!(seen.belongs_to(process(1).namespace));
        assert!(!seen.belongs_to(process(1).namespace + 1));
    }

    #[test]
    fn when_every_slot_is_taken_the_next_process_gets_none() {
        let (_, account) = pages(GIB);
        for pid in 1..=SLOTS as u32 {
            assert!(account.claim(process(pid)).is_some());
        }
        assert_eq!(account.claim(process(99_999)), None);
        assert_eq!(account.reap(dead(&[17])), 1);
        assert_eq!(account.claim(process(99_999)).unwrap().slot, 16);
    }

    #[test]
    fn a_page_full_of_rubbish_ends_nobody() {
        let (control, account) = pages(GIB);
        let bytes = std::ptr::from_ref(account).cast_mut().cast::<u8>();
        let me = account.claim(process(1)).unwrap();
        // SAFETY: the page is atomics and lives on; no other code looks at it.
        unsafe { std::ptr::write_bytes(bytes, 0xa5, size_of::<AccountPage>()) };
        assert!(!account.is_known() && !account.holds(me));
        assert_ne!(
            account.charge(me, 0, 512, &control.device[0]),
            Charge::Granted
        );
        account.reap(|_| true);
        account.refund(me, 0, u64::MAX);
        assert_eq!(account.sum(0).total, 0);
    }
}
