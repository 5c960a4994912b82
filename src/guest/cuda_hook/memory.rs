//! Plain, pitched and managed memory: charged before the driver is asked, entered in the ledger after.
//! A request that does not fit never reaches the driver, and its output arguments stay as they were.

use crate::account;
use crate::here::{GRAIN, here};
use crate::ledger::AllocationKind;
use crate::{Code, OK, OUT_OF_MEMORY, pools, real};

/// Charges `bytes`, lets `make` call the driver into a place of ours, and hands the result over.
/// `undo` frees it again when the ledger has no room for it.
///
/// # Safety
/// `out` is the caller's own output argument.
pub unsafe fn grant(
    kind: AllocationKind,
    out: *mut u64,
    bytes: u64,
    make: impl Fn(*mut u64) -> Code,
    undo: impl Fn(u64) -> Code,
) -> Code {
    if out.is_null() || bytes == 0 {
        return make(out);
    }
    let here = match here() {
        Ok(Some(here)) => here,
        Ok(None) => return make(out),
        Err(code) => return code,
    };
    let Some(bytes) = bytes.checked_next_multiple_of(GRAIN) else {
        return OUT_OF_MEMORY;
    };
    if !here.process.take(here.device, bytes) {
        return OUT_OF_MEMORY;
    }
    let mut made = 0;
    let code = make(&mut made);
    if code != OK {
        here.process.give(here.device, bytes);
        return code;
    }
    let entry = here.entry(bytes);
    if !here
        .process
        .with_ledger(|ledger| ledger.insert(kind, made, entry))
    {
        undo(made);
        here.process.give(here.device, bytes);
        return OUT_OF_MEMORY;
    }
    // SAFETY: promised by the caller.
    unsafe { out.write(made) };
    OK
}

/// Takes the entry out, frees through the driver, and gives back. The entry goes first: as soon as the
/// driver has freed it, another thread may be given the same address.
pub fn release(kind: AllocationKind, key: u64, free: impl FnOnce() -> Code) -> Code {
    let Some(process) = account::process() else {
        return free();
    };
    let entry = process.with_ledger(|ledger| ledger.remove(kind, key));
    let code = free();
    if let Some(entry) = entry {
        if code == OK {
            process.give(entry.device as usize, entry.bytes);
        } else {
            process.with_ledger(|ledger| ledger.insert(kind, key, entry));
        }
    }
    code
}

fn free(at: u64) -> Code {
    real!(cuMemFree_v2(at): fn(u64))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(out: *mut u64, bytes: usize) -> Code {
    let make = |out| real!(cuMemAlloc_v2(out, bytes): fn(*mut u64, usize));
    // SAFETY: the caller's output argument.
    unsafe { grant(AllocationKind::Piece, out, bytes as u64, make, free) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocManaged(out: *mut u64, bytes: usize, flags: u32) -> Code {
    let make = |out| real!(cuMemAllocManaged(out, bytes, flags): fn(*mut u64, usize, u32));
    // SAFETY: the caller's output argument.
    unsafe { grant(AllocationKind::Piece, out, bytes as u64, make, free) }
}

/// The driver alone knows the pitch. The usual one is charged first; when the driver's is larger the
/// rest is asked for, and the memory given back when that is refused.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocPitch_v2(
    out: *mut u64,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: u32,
) -> Code {
    let make = |out, pitch| {
        real!(cuMemAllocPitch_v2(out, pitch, width, height, element):
            fn(*mut u64, *mut usize, usize, usize, u32))
    };
    if out.is_null() || pitch.is_null() || width == 0 || height == 0 {
        return make(out, pitch);
    }
    let here = match here() {
        Ok(Some(here)) => here,
        Ok(None) => return make(out, pitch),
        Err(code) => return code,
    };
    let usual = (width as u64)
        .checked_next_multiple_of(GRAIN)
        .and_then(|row| row.checked_mul(height as u64));
    let Some(usual) = usual else {
        return OUT_OF_MEMORY;
    };
    if !here.process.take(here.device, usual) {
        return OUT_OF_MEMORY;
    }
    let (mut made, mut row) = (0, 0);
    let code = make(&mut made, &mut row);
    if code != OK {
        here.process.give(here.device, usual);
        return code;
    }
    let bytes = (row as u64)
        .saturating_mul(height as u64)
        .next_multiple_of(GRAIN);
    let fits = bytes <= usual || here.process.take(here.device, bytes - usual);
    if bytes < usual {
        here.process.give(here.device, usual - bytes);
    }
    let entry = here.entry(bytes);
    if !fits {
        free(made);
        here.process.give(here.device, usual);
        return OUT_OF_MEMORY;
    }
    if !here
        .process
        .with_ledger(|ledger| ledger.insert(AllocationKind::Piece, made, entry))
    {
        free(made);
        here.process.give(here.device, bytes);
        return OUT_OF_MEMORY;
    }
    // SAFETY: the caller's output arguments.
    unsafe {
        out.write(made);
        pitch.write(row);
    }
    OK
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemFree_v2(at: u64) -> Code {
    let code = release(AllocationKind::Piece, at, || free(at));
    // It may have been a pool's.
    pools::settle_if_any();
    code
}

/// Memory of any path may be freed in stream order. What did not come from a pool is given back here,
/// though the device holds it until the stream gets there: the watchdog's view, not ours, has that moment.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemFreeAsync(at: u64, stream: u64) -> Code {
    let code = release(
        AllocationKind::Piece,
        at,
        || real!(cuMemFreeAsync(at, stream): fn(u64, u64)),
    );
    pools::settle_if_any();
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemFreeAsync_ptsz(at: u64, stream: u64) -> Code {
    let code = release(
        AllocationKind::Piece,
        at,
        || real!(cuMemFreeAsync_ptsz(at, stream): fn(u64, u64)),
    );
    pools::settle_if_any();
    code
}

// The interface of CUDA 2 and 3.0, with 32-bit addresses, is still exported. A charge of its own would
// double this file for programs that no 64-bit driver runs; none is granted.

#[unsafe(no_mangle)]
extern "C" fn cuMemAlloc(_out: *mut u32, _bytes: u32) -> Code {
    crate::NOT_SUPPORTED
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocPitch(_out: *mut u32, _pitch: *mut u32, _w: u32, _h: u32, _e: u32) -> Code {
    crate::NOT_SUPPORTED
}
