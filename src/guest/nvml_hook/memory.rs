//! Memory as the slice has it; agrees with what `cuMemGetInfo` answers.

use core::sync::atomic::Ordering::SeqCst;

use crate::pages::SliceView;
use crate::{Code, DeviceHandle, NOT_FOUND, OK, real};

#[repr(C)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

#[repr(C)]
struct MemoryV2 {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// Total, free and used bytes of the slice, never more than the device has.
fn view(device: DeviceHandle, total: u64, free: u64) -> Option<(u64, u64, u64)> {
    let slice = SliceView::of(device)?;
    let total = total.min(slice.terms.mem_limit.load(SeqCst));
    let free = total.saturating_sub(slice.used()).min(free);
    Some((total, free, total - free))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo(device: DeviceHandle, out: *mut Memory) -> Code {
    let code = real!(nvmlDeviceGetMemoryInfo(device, out): fn(DeviceHandle, *mut Memory));
    // SAFETY: null, or what the library has just written.
    let Some(memory) = (unsafe { out.as_mut() }).filter(|_| code == OK) else {
        return code;
    };
    let view = view(device, memory.total, memory.free);
    let (total, free, used) = view.unwrap_or((0, 0, 0));
    *memory = Memory { total, free, used };
    if view.is_some() { OK } else { NOT_FOUND }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: DeviceHandle, out: *mut MemoryV2) -> Code {
    let code = real!(nvmlDeviceGetMemoryInfo_v2(device, out): fn(DeviceHandle, *mut MemoryV2));
    // SAFETY: null, or what the library has just written.
    let Some(memory) = (unsafe { out.as_mut() }).filter(|_| code == OK) else {
        return code;
    };
    let view = view(device, memory.total, memory.free);
    let (total, free, used) = view.unwrap_or((0, 0, 0));
    *memory = MemoryV2 {
        version: memory.version,
        total,
        reserved: 0,
        free,
        used,
    };
    if view.is_some() { OK } else { NOT_FOUND }
}
