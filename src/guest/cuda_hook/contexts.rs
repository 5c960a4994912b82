//! The driver's beginning, and contexts: what ends with a context is given back with it. Also the limits
//! of a context that cost memory.

use crate::account::{self, Process};
use crate::ledger::{Entry, Kind};
use crate::memory::here;
use crate::region::DEVICES;
use crate::{Code, NOT_READY, OK, OUT_OF_MEMORY, gate, real};

/// Without pages that we understand there is no device. Everything else answers "not initialised" then.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuInit(flags: u32) -> Code {
    if account::process().is_none() {
        return NOT_READY;
    }
    real!(cuInit(flags): fn(u32))
}

fn gone(process: &Process, context: u64) {
    let mut freed = [0u64; DEVICES];
    process.with_ledger(|ledger| {
        for kind in [Kind::Piece, Kind::Array, Kind::ContextLimit] {
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
unsafe extern "C" fn cuDevicePrimaryCtxRetain(out: *mut u64, ordinal: i32) -> Code {
    let code = real!(cuDevicePrimaryCtxRetain(out, ordinal): fn(*mut u64, i32));
    if code == OK
        && !out.is_null()
        && let Some(process) = account::process()
    {
        let entry = Entry {
            bytes: 0,
            context: 0,
            // SAFETY: the driver has just written it.
            extra: unsafe { *out },
            device: 0,
        };
        process.with_ledger(|ledger| ledger.insert(Kind::Primary, ordinal as u64, entry));
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
        let context = process.with_ledger(|ledger| ledger.remove(Kind::Primary, ordinal as u64));
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
        .with_ledger(|ledger| ledger.get(Kind::ContextLimit, key).map(|entry| entry.bytes))
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
        .with_ledger(|ledger| ledger.insert(Kind::ContextLimit, key, entry));
    code
}
