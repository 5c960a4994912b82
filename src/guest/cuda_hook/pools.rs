//! Memory in stream order, from the default pool and from pools of the program's own. What counts is
//! what a pool has reserved from the device, not what the program uses of it; so the pool is asked
//! after every call that may have moved it, and the charge made true.

use core::sync::atomic::Ordering::SeqCst;

use crate::account::{self, Process};
use crate::gate::WaitFor;
use crate::here::{GRAIN, here};
use crate::ledger::{AllocationEntry, AllocationKind};
use crate::region::Charge;
use crate::{Code, OK, OUT_OF_MEMORY, capture, gate, real, streams};

const RESERVED: i32 = 5;
const USED: i32 = 7;
/// The graph memory of a device: bytes it keeps reserved.
const GRAPH_RESERVED: i32 = 2;
const LOCATION_DEVICE: i32 = 1;
/// In an entry: the pool lies in the host's memory and costs no device anything.
const ELSEWHERE: u32 = u32::MAX;

fn ask(pool: u64, attribute: i32) -> Option<u64> {
    let mut bytes = 0;
    let code = real!(cuMemPoolGetAttribute(pool, attribute, &mut bytes): fn(u64, i32, &mut u64));
    (code == OK).then_some(bytes)
}

/// Makes the charge of every pool what the pool has reserved. The caller holds the pools' lock.
pub fn settle_all(process: &Process) {
    if process.tracked_pools.load(SeqCst) == 0 {
        return;
    }
    process.with_ledger(|ledger| {
        ledger.sweep(AllocationKind::Pool, |pool, entry| {
            if entry.device != ELSEWHERE
                && let Some(reserved) = ask(pool, RESERVED)
            {
                // Not through `give`: it may have to take the lock that is held here.
                entry.extra = reserved;
            }
            false
        });
    });
    // One after the other, each outside the ledger's lock.
    while let Some((device, before, after)) = process.with_ledger(|ledger| {
        let mut moved = None;
        ledger.sweep(AllocationKind::Pool, |_, entry| {
            if moved.is_none() && entry.extra != entry.bytes {
                moved = Some((entry.device as usize, entry.bytes, entry.extra));
                entry.bytes = entry.extra;
            }
            false
        });
        moved
    }) {
        if after > before {
            process.take_held(device, after - before);
        } else {
            process.give(device, before - after);
        }
    }
}

/// As `settle_all`, from outside; costs one load when the program has no pool.
pub fn settle_if_any() {
    let Some(process) = account::process() else {
        return;
    };
    if process.tracked_pools.load(SeqCst) != 0 {
        process.pools.hold(|| settle_all(process));
    }
}

/// Asks every pool for what it does not use. The caller holds the pools' lock.
pub fn trim_all(process: &Process) {
    if process.tracked_pools.load(SeqCst) == 0 {
        return;
    }
    process.with_ledger(|ledger| {
        ledger.sweep(AllocationKind::Pool, |pool, _| {
            real!(cuMemPoolTrimTo(pool, 0): fn(u64, usize));
            false
        });
    });
    settle_all(process);
}

/// What is asked for comes out of what pools do not use before it is refused.
impl Process {
    /// Asks for bytes on a device. Before it gives up it has asked every pool for what it does not use
    /// and buried the dead.
    pub fn take(&self, device: usize, bytes: u64) -> bool {
        if self.charge(device, bytes) == Charge::Granted {
            return true;
        }
        let again = self.pools.hold(|| {
            trim_all(self);
            self.reap();
            self.charge(device, bytes)
        });
        self.patiently(again, || self.charge(device, bytes))
    }

    /// As `take`, for callers that hold the lock of the pools.
    pub fn take_holding_pools(&self, device: usize, bytes: u64) -> bool {
        if self.charge(device, bytes) == Charge::Granted {
            return true;
        }
        trim_all(self);
        self.reap();
        self.patiently(self.charge(device, bytes), || self.charge(device, bytes))
    }

    /// Keeps room for a context that the driver is about to make. False: there is none. Fine where this
    /// process has one on that device already.
    pub fn make_context(&self, device: usize) -> bool {
        let ask = || {
            self.ask(|account, control, tenure| {
                account.make_context(tenure, device, &control.device[device])
            })
        };
        if ask() == Charge::Granted {
            return true;
        }
        let again = self.pools.hold(|| {
            trim_all(self);
            self.reap();
            ask()
        });
        self.patiently(again, ask)
    }

    /// Bytes the container may have and bytes it could still get on a device.
    pub fn view(&self, device: usize) -> Option<(u64, u64)> {
        let (account, control) = (account::account()?, account::control()?);
        // Also restores an entry that a process wiped from the page.
        self.tenure()?;
        self.pools.hold(|| settle_all(self));
        let terms = &control.device[device];
        let sum = account.sum(device).total;
        if sum > self.held[device].load(SeqCst) {
            // Others hold some; the dead among them must not be counted.
            self.reap();
        }
        let used = || {
            let sum = account.sum(device);
            let (overhead, kept) = terms.beyond(sum.contexts);
            (
                sum.total.saturating_add(overhead).saturating_add(kept),
                kept,
            )
        };
        // Frameworks size what they take once and for all by this answer.
        let asked = || match used() {
            (_, 0) => Charge::Granted,
            _ => Charge::Unseen,
        };
        self.patiently(asked(), asked);
        let limit = terms.mem_limit.load(SeqCst);
        Some((limit, limit.saturating_sub(used().0)))
    }
}

/// Enters a pool that was not seen before.
fn known(process: &Process, pool: u64, device: usize) -> Option<AllocationEntry> {
    let fresh = AllocationEntry {
        bytes: 0,
        context: 0,
        extra: 0,
        device: device as u32,
    };
    process.with_ledger(|ledger| {
        if let Some(entry) = ledger.get(AllocationKind::Pool, pool) {
            return Some(*entry);
        }
        ledger.insert(AllocationKind::Pool, pool, fresh).then(|| {
            process.tracked_pools.fetch_add(1, SeqCst);
            fresh
        })
    })
}

/// # Safety
/// `out` is the caller's output argument.
unsafe fn allocate(
    out: *mut u64,
    bytes: usize,
    pool: Option<u64>,
    (stream, per_thread): (u64, bool),
    make: impl Fn(*mut u64) -> Code,
) -> Code {
    if out.is_null() || bytes == 0 {
        return make(out);
    }
    let here = match here() {
        Ok(Some(here)) => here,
        Ok(None) => return make(out),
        Err(code) => return code,
    };
    let process = here.process;
    if capture::is_capturing(stream, per_thread) {
        // Becomes a node of a graph; the graph pays when it is launched.
        process.captured.fetch_add(bytes as u64, SeqCst);
        return make(out);
    }
    let Some(bytes) = (bytes as u64).checked_next_multiple_of(GRAIN) else {
        return OUT_OF_MEMORY;
    };
    process.pools.hold(|| {
        let pool = match pool {
            Some(pool) => pool,
            None => {
                let mut pool = 0;
                if real!(cuDeviceGetMemPool(&mut pool, here.ordinal): fn(&mut u64, i32)) != OK {
                    return OUT_OF_MEMORY;
                }
                pool
            }
        };
        let Some(entry) = known(process, pool, here.device) else {
            return OUT_OF_MEMORY;
        };
        if entry.device == ELSEWHERE {
            return make(out);
        }
        let device = entry.device as usize;
        settle_all(process);
        let idle = ask(pool, RESERVED)
            .unwrap_or(0)
            .saturating_sub(ask(pool, USED).unwrap_or(0));
        let mut asked = bytes.saturating_sub(idle);
        if !process.take_holding_pools(device, asked) {
            return OUT_OF_MEMORY;
        }
        let before = process
            .with_ledger(|ledger| {
                ledger
                    .get(AllocationKind::Pool, pool)
                    .map(|entry| entry.bytes)
            })
            .unwrap_or(0);
        let mut made = 0;
        let code = make(&mut made);
        let grown = ask(pool, RESERVED).unwrap_or(before).saturating_sub(before);
        if code != OK {
            process.give(device, asked);
            settle_all(process);
            return code;
        }
        // Pools grow by whole blocks: the rest is asked for now.
        if grown > asked {
            if !process.take_holding_pools(device, grown - asked) {
                real!(cuMemFree_v2(made): fn(u64));
                real!(cuMemPoolTrimTo(pool, 0): fn(u64, usize));
                process.give(device, asked);
                settle_all(process);
                return OUT_OF_MEMORY;
            }
            asked = grown;
        }
        process.with_ledger(|ledger| {
            if let Some(entry) = ledger.get(AllocationKind::Pool, pool) {
                entry.bytes += asked;
            }
        });
        // SAFETY: promised by the caller.
        unsafe { out.write(made) };
        // What the pool served from its own is given back here.
        settle_all(process);
        OK
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocAsync(out: *mut u64, bytes: usize, stream: u64) -> Code {
    let make = |out| real!(cuMemAllocAsync(out, bytes, stream): fn(*mut u64, usize, u64));
    // SAFETY: the caller's output argument.
    unsafe { allocate(out, bytes, None, (stream, false), make) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocAsync_ptsz(out: *mut u64, bytes: usize, stream: u64) -> Code {
    let make = |out| real!(cuMemAllocAsync_ptsz(out, bytes, stream): fn(*mut u64, usize, u64));
    // SAFETY: the caller's output argument.
    unsafe { allocate(out, bytes, None, (stream, true), make) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocFromPoolAsync(
    out: *mut u64,
    bytes: usize,
    pool: u64,
    stream: u64,
) -> Code {
    let make = |out| real!(cuMemAllocFromPoolAsync(out, bytes, pool, stream): fn(*mut u64, usize, u64, u64));
    // SAFETY: the caller's output argument.
    unsafe { allocate(out, bytes, Some(pool), (stream, false), make) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocFromPoolAsync_ptsz(
    out: *mut u64,
    bytes: usize,
    pool: u64,
    stream: u64,
) -> Code {
    let make = |out| {
        real!(cuMemAllocFromPoolAsync_ptsz(out, bytes, pool, stream):
            fn(*mut u64, usize, u64, u64))
    };
    // SAFETY: the caller's output argument.
    unsafe { allocate(out, bytes, Some(pool), (stream, true), make) }
}

/// The beginning of the driver's description of a pool.
#[repr(C)]
struct PoolProperties {
    kind: i32,
    handles: i32,
    location: i32,
    id: i32,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemPoolCreate(out: *mut u64, properties: *const PoolProperties) -> Code {
    let Some(process) = account::process() else {
        return crate::NOT_READY;
    };
    // SAFETY: a description when it is not null, as the driver expects.
    let place = match unsafe { properties.as_ref() } {
        Some(properties) if properties.location == LOCATION_DEVICE => match process.place(properties.id) {
            Some(place) => place as u32,
            None => return OUT_OF_MEMORY,
        },
        _ => ELSEWHERE,
    };
    process.pools.hold(|| {
        let code = real!(cuMemPoolCreate(out, properties): fn(*mut u64, *const PoolProperties));
        if code == OK && !out.is_null() {
            let entry = AllocationEntry {
                bytes: 0,
                context: 0,
                extra: 0,
                device: place,
            };
            // SAFETY: the driver has just written it.
            let pool = unsafe { *out };
            if process.with_ledger(|ledger| ledger.insert(AllocationKind::Pool, pool, entry)) {
                process.tracked_pools.fetch_add(1, SeqCst);
            }
        }
        code
    })
}

/// The driver keeps what is still in use after a pool is gone, and nobody can ask it any more: that
/// part stays charged until the process ends.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemPoolDestroy(pool: u64) -> Code {
    let Some(process) = account::process() else {
        return crate::NOT_READY;
    };
    process.pools.hold(|| {
        let mut used = ask(pool, USED).unwrap_or(0);
        if used > 0 {
            // Frees that are on their way.
            real!(cuCtxSynchronize(): fn());
            used = ask(pool, USED).unwrap_or(used);
        }
        let code = real!(cuMemPoolDestroy(pool): fn(u64));
        if code == OK
            && let Some(entry) =
                process.with_ledger(|ledger| ledger.remove(AllocationKind::Pool, pool))
        {
            process.tracked_pools.fetch_sub(1, SeqCst);
            if entry.device == ELSEWHERE {
                return code;
            }
            process.give(entry.device as usize, entry.bytes.saturating_sub(used));
        }
        code
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemPoolTrimTo(pool: u64, keep: usize) -> Code {
    let code = real!(cuMemPoolTrimTo(pool, keep): fn(u64, usize));
    settle_if_any();
    code
}

// After these work is done, and a pool may have given memory back.

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamSynchronize(stream: u64) -> Code {
    let code = gate::watch(
        WaitFor::Stream(streams::number(stream, false)),
        || real!(cuStreamSynchronize(stream): fn(u64)),
    );
    settle_if_any();
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamSynchronize_ptsz(stream: u64) -> Code {
    let code = gate::watch(
        WaitFor::Stream(streams::number(stream, true)),
        || real!(cuStreamSynchronize_ptsz(stream): fn(u64)),
    );
    settle_if_any();
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventSynchronize(event: u64) -> Code {
    let code = gate::watch(WaitFor::Event, || real!(cuEventSynchronize(event): fn(u64)));
    settle_if_any();
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxSynchronize() -> Code {
    let code = gate::watch(WaitFor::Context, || real!(cuCtxSynchronize(): fn()));
    settle_if_any();
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxSynchronize_v2(context: u64) -> Code {
    let code = gate::watch(
        WaitFor::Event,
        || real!(cuCtxSynchronize_v2(context): fn(u64)),
    );
    settle_if_any();
    code
}

/// What a device keeps reserved for graphs.
pub fn graph_reserved(ordinal: i32) -> Option<u64> {
    let mut bytes = 0;
    let code = real!(cuDeviceGetGraphMemAttribute(ordinal, GRAPH_RESERVED, &mut bytes):
        fn(i32, i32, &mut u64));
    (code == OK).then_some(bytes)
}
