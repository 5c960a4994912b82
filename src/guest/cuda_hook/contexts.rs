//! The driver's beginning, and contexts: room is kept for one before the driver makes it, because what it
//! takes is seen by the host only, and later; what ends with a context is given back with it. Also the
//! limits of a context that cost memory.

use crate::account::{self, Process};
use crate::here::here;
use crate::ledger::{AllocationEntry, AllocationKind};
use crate::region::DEVICES;
use crate::{Code, NOT_READY, OK, OUT_OF_MEMORY, context_changes, gate, real};

/// Without pages that we understand there is no device. Everything else answers "not initialised" then.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuInit(flags: u32) -> Code {
    if account::process().is_none() {
        return NOT_READY;
    }
    real!(cuInit(flags): fn(u32))
}

/// Has the driver make a context on a device.
///
/// # Safety
/// `out` is the caller's own output argument.
unsafe fn new(out: *mut u64, ordinal: i32, make: impl FnOnce() -> Code) -> Code {
    context_changes::about_to_change();
    let Some(process) = account::process() else {
        return make();
    };
    // Not one of this container's, or not begun yet: the driver says so best.
    let Some(device) = process.place(ordinal) else {
        return make();
    };
    if !process.make_context(device) {
        return OUT_OF_MEMORY;
    }
    let code = make();
    if code == OK && !out.is_null() {
        // SAFETY: the driver has just written it.
        let context = unsafe { *out };
        let entry = AllocationEntry {
            bytes: 0,
            context,
            extra: 0,
            device: device as u32,
        };
        process.with_ledger(|ledger| ledger.insert(AllocationKind::Context, context, entry));
        process.say_context(device, true);
    } else if !has_one(process, device) {
        process.say_context(device, false);
    }
    code
}

fn has_one(process: &Process, device: usize) -> bool {
    let mut found = false;
    process.with_ledger(|ledger| {
        ledger.sweep(AllocationKind::Context, |_, entry| {
            found |= entry.device as usize == device;
            false
        });
    });
    found
}

fn gone(process: &Process, context: u64) {
    let mut freed = [0u64; DEVICES];
    let ended = process.with_ledger(|ledger| ledger.remove(AllocationKind::Context, context));
    if let Some(device) = ended.map(|entry| entry.device as usize)
        && !has_one(process, device)
    {
        process.say_context(device, false);
    }
    process.with_ledger(|ledger| {
        for kind in [
            AllocationKind::Piece,
            AllocationKind::Array,
            AllocationKind::ContextLimit,
        ] {
            ledger.sweep(kind, |_, entry| {
                let ours = entry.context == context;
                if ours {
                    freed[entry.device as usize % DEVICES] += entry.bytes;
                }
                ours
            });
        }
    });
    for (device, bytes) in freed.into_iter().enumerate() {
        process.give(device, bytes);
    }
}

fn after(code: Code, context: u64) -> Code {
    if code == OK
        && let Some(process) = account::process()
    {
        gone(process, context);
    }
    code
}

fn before(context: u64) {
    if let Some(process) = account::process() {
        gate::forget_context(process, context);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxDestroy(context: u64) -> Code {
    before(context);
    after(real!(cuCtxDestroy(context): fn(u64)), context)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxDestroy_v2(context: u64) -> Code {
    before(context);
    after(real!(cuCtxDestroy_v2(context): fn(u64)), context)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxCreate(out: *mut u64, flags: u32, ordinal: i32) -> Code {
    let make = || real!(cuCtxCreate(out, flags, ordinal): fn(*mut u64, u32, i32));
    // SAFETY: it is the caller's.
    unsafe { new(out, ordinal, make) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxCreate_v2(out: *mut u64, flags: u32, ordinal: i32) -> Code {
    let make = || real!(cuCtxCreate_v2(out, flags, ordinal): fn(*mut u64, u32, i32));
    // SAFETY: as above.
    unsafe { new(out, ordinal, make) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxCreate_v3(
    out: *mut u64,
    affinities: usize,
    count: i32,
    flags: u32,
    ordinal: i32,
) -> Code {
    let make = || {
        real!(cuCtxCreate_v3(out, affinities, count, flags, ordinal):
            fn(*mut u64, usize, i32, u32, i32))
    };
    // SAFETY: as above.
    unsafe { new(out, ordinal, make) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxCreate_v4(
    out: *mut u64,
    parameters: usize,
    flags: u32,
    ordinal: i32,
) -> Code {
    let make = || {
        real!(cuCtxCreate_v4(out, parameters, flags, ordinal):
            fn(*mut u64, usize, u32, i32))
    };
    // SAFETY: as above.
    unsafe { new(out, ordinal, make) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(out: *mut u64, ordinal: i32) -> Code {
    let make = || real!(cuDevicePrimaryCtxRetain(out, ordinal): fn(*mut u64, i32));
    // SAFETY: as above.
    let code = unsafe { new(out, ordinal, make) };
    if code == OK
        && !out.is_null()
        && let Some(process) = account::process()
    {
        let entry = AllocationEntry {
            bytes: 0,
            context: 0,
            // SAFETY: the driver has just written it.
            extra: unsafe { *out },
            device: 0,
        };
        process.with_ledger(|ledger| ledger.insert(AllocationKind::Primary, ordinal as u64, entry));
    }
    code
}

/// After a primary context may have ended.
fn primary(code: Code, ordinal: i32, surely: bool) -> Code {
    let (mut flags, mut active) = (0u32, 0i32);
    let asked = real!(cuDevicePrimaryCtxGetState(ordinal, &mut flags, &mut active):
        fn(i32, &mut u32, &mut i32));
    if code == OK
        && (surely || asked == OK && active == 0)
        && let Some(process) = account::process()
    {
        let context =
            process.with_ledger(|ledger| ledger.remove(AllocationKind::Primary, ordinal as u64));
        if let Some(context) = context {
            gate::forget_context(process, context.extra);
            gone(process, context.extra);
        }
    }
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRelease(ordinal: i32) -> Code {
    primary(
        real!(cuDevicePrimaryCtxRelease(ordinal): fn(i32)),
        ordinal,
        false,
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRelease_v2(ordinal: i32) -> Code {
    primary(
        real!(cuDevicePrimaryCtxRelease_v2(ordinal): fn(i32)),
        ordinal,
        false,
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxReset(ordinal: i32) -> Code {
    primary(
        real!(cuDevicePrimaryCtxReset(ordinal): fn(i32)),
        ordinal,
        true,
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxReset_v2(ordinal: i32) -> Code {
    primary(
        real!(cuDevicePrimaryCtxReset_v2(ordinal): fn(i32)),
        ordinal,
        true,
    )
}

/// Bytes of the limits that every context has; they are part of what the host counts as overhead.
const USUAL: [(i32, u64); 2] = [(1, 1 << 20), (2, 8 << 20)];

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxSetLimit(limit: i32, value: usize) -> Code {
    let set = || real!(cuCtxSetLimit(limit, value): fn(i32, usize));
    let Some((_, usual)) = USUAL.iter().find(|(known, _)| *known == limit) else {
        return set();
    };
    let Ok(Some(here)) = here() else {
        return set();
    };
    let key = here.context ^ (limit as u64) << 56;
    let wanted = (value as u64).saturating_sub(*usual);
    let charged = here
        .process
        .with_ledger(|ledger| {
            ledger
                .get(AllocationKind::ContextLimit, key)
                .map(|entry| entry.bytes)
        })
        .unwrap_or(0);
    if wanted > charged && !here.process.take(here.device, wanted - charged) {
        return OUT_OF_MEMORY;
    }
    let code = set();
    let now = if code == OK { wanted } else { charged };
    let most = wanted.max(charged);
    here.process.give(here.device, most - now);
    let entry = here.entry(now);
    here.process
        .with_ledger(|ledger| ledger.insert(AllocationKind::ContextLimit, key, entry));
    code
}
