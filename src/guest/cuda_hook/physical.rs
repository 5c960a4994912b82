//! Physical memory by handle: charged when it is made, given back when the last handle is released and
//! the last mapping is gone, as the driver itself counts. Imported handles cost nothing here: whoever
//! exported them pays.

use core::sync::atomic::Ordering::SeqCst;

use crate::account::{self, Process};
use crate::ledger::{AllocationEntry, AllocationKind, AllocationTable};
use crate::{Code, NOT_READY, OK, OUT_OF_MEMORY, real};

const ON_DEVICE: i32 = 1;
/// What handles and mappings are counted in: `extra` of a `Physical`.
const HANDLE: u64 = 1;
const MAPPING: u64 = 1 << 32;
/// The smallest piece that can be mapped: how a range with holes is walked.
const STEP: u64 = 64 << 10;

/// The beginning of the driver's description of an allocation.
#[repr(C)]
struct PhysicalProperties {
    kind: i32,
    handles: i32,
    location: i32,
    id: i32,
}

fn release(handle: u64) -> Code {
    real!(cuMemRelease(handle): fn(u64))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemCreate(
    out: *mut u64,
    bytes: usize,
    properties: *const PhysicalProperties,
    flags: u64,
) -> Code {
    let make = |out| real!(cuMemCreate(out, bytes, properties, flags): fn(*mut u64, usize, *const PhysicalProperties, u64));
    let Some(process) = account::process() else {
        return NOT_READY;
    };
    // SAFETY: a description when it is not null, as the driver expects.
    let Some(properties) = (unsafe { properties.as_ref() }) else {
        return make(out);
    };
    if out.is_null() || bytes == 0 || properties.location != ON_DEVICE {
        return make(out);
    }
    let Some(device) = process.place(properties.id) else {
        return OUT_OF_MEMORY;
    };
    if !process.take(device, bytes as u64) {
        return OUT_OF_MEMORY;
    }
    let mut made = 0;
    let code = make(&mut made);
    if code != OK {
        process.give(device, bytes as u64);
        return code;
    }
    let number = process.next_physical.fetch_add(1, SeqCst) + 1;
    let physical = AllocationEntry {
        bytes: bytes as u64,
        context: 0,
        extra: HANDLE,
        device: device as u32,
    };
    let handle = AllocationEntry {
        bytes: 0,
        context: 0,
        extra: number,
        device: device as u32,
    };
    let entered = process.with_ledger(|ledger| {
        ledger.insert(AllocationKind::Physical, number, physical)
            && ledger.insert(AllocationKind::Handle, made, handle)
    });
    if !entered {
        process.with_ledger(|ledger| ledger.remove(AllocationKind::Physical, number));
        release(made);
        process.give(device, bytes as u64);
        return OUT_OF_MEMORY;
    }
    // SAFETY: the caller's output argument.
    unsafe { out.write(made) };
    OK
}

/// Takes one handle or mapping away; what became free, if it was the last.
fn drop_one(ledger: &mut AllocationTable, number: u64, what: u64) -> Option<(usize, u64)> {
    let entry = ledger.get(AllocationKind::Physical, number)?;
    entry.extra = entry.extra.saturating_sub(what);
    if entry.extra != 0 {
        return None;
    }
    let entry = ledger.remove(AllocationKind::Physical, number)?;
    Some((entry.device as usize, entry.bytes))
}

fn give(process: &Process, freed: Option<(usize, u64)>) {
    if let Some((device, bytes)) = freed {
        process.give(device, bytes);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemRelease(handle: u64) -> Code {
    let Some(process) = account::process() else {
        return NOT_READY;
    };
    // The last handle's number may be given to new memory as soon as the driver is done with it.
    let before = process.with_ledger(|ledger| {
        let number = ledger.get(AllocationKind::Handle, handle)?.extra;
        let last = ledger
            .get(AllocationKind::Physical, number)
            .is_some_and(|entry| entry.extra % MAPPING == HANDLE);
        if last {
            ledger.remove(AllocationKind::Handle, handle);
        }
        Some((number, last))
    });
    let code = release(handle);
    if let Some((number, last)) = before {
        let freed = process.with_ledger(|ledger| {
            if code == OK {
                return drop_one(ledger, number, HANDLE);
            }
            if last {
                let entry = AllocationEntry {
                    bytes: 0,
                    context: 0,
                    extra: number,
                    device: 0,
                };
                ledger.insert(AllocationKind::Handle, handle, entry);
            }
            None
        });
        give(process, freed);
    }
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemMap(
    at: u64,
    bytes: usize,
    offset: usize,
    handle: u64,
    flags: u64,
) -> Code {
    let Some(process) = account::process() else {
        return NOT_READY;
    };
    // Counted first, so that a release on another thread does not free it in between.
    let number = process.with_ledger(|ledger| {
        let number = ledger.get(AllocationKind::Handle, handle)?.extra;
        ledger.get(AllocationKind::Physical, number)?.extra += MAPPING;
        Some(number)
    });
    let code = real!(cuMemMap(at, bytes, offset, handle, flags):
        fn(u64, usize, usize, u64, u64));
    if let Some(number) = number {
        let freed = process.with_ledger(|ledger| {
            let entry = AllocationEntry {
                bytes: bytes as u64,
                context: 0,
                extra: number,
                device: 0,
            };
            // Without an entry the mapping stays counted for good: rather too much than too little.
            if code == OK {
                ledger.insert(AllocationKind::Mapping, at, entry);
                return None;
            }
            drop_one(ledger, number, MAPPING)
        });
        give(process, freed);
    }
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemUnmap(at: u64, bytes: usize) -> Code {
    let Some(process) = account::process() else {
        return NOT_READY;
    };
    let code = real!(cuMemUnmap(at, bytes): fn(u64, usize));
    if code != OK {
        return code;
    }
    let end = at.saturating_add(bytes as u64);
    let mut from = at;
    while from < end {
        let (freed, size) =
            process.with_ledger(
                |ledger| match ledger.remove(AllocationKind::Mapping, from) {
                    Some(mapping) => (
                        drop_one(ledger, mapping.extra, MAPPING),
                        mapping.bytes.max(STEP),
                    ),
                    None => (None, STEP),
                },
            );
        give(process, freed);
        from = from.saturating_add(size);
    }
    OK
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemRetainAllocationHandle(out: *mut u64, at: u64) -> Code {
    let Some(process) = account::process() else {
        return NOT_READY;
    };
    let code = real!(cuMemRetainAllocationHandle(out, at): fn(*mut u64, u64));
    if code != OK || out.is_null() {
        return code;
    }
    // SAFETY: the driver has just written it.
    let handle = unsafe { *out };
    process.with_ledger(|ledger| {
        let mut number = ledger
            .get(AllocationKind::Handle, handle)
            .map(|entry| entry.extra);
        if number.is_none() {
            // The last handle was released while the memory was mapped: found by where it is mapped.
            ledger.sweep(AllocationKind::Mapping, |from, entry| {
                if from <= at && at - from < entry.bytes {
                    number = Some(entry.extra);
                }
                false
            });
        }
        let Some(number) = number else {
            return;
        };
        if let Some(entry) = ledger.get(AllocationKind::Physical, number) {
            entry.extra += HANDLE;
            let entry = AllocationEntry {
                bytes: 0,
                context: 0,
                extra: number,
                device: 0,
            };
            ledger.insert(AllocationKind::Handle, handle, entry);
        }
    });
    code
}
