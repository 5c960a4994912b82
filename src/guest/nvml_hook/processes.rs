//! Lists of processes: the container's own, by its own numbers, in every shape the library has had.
//! They come from the account page, so that no other session's can be in them.

use crate::pages::{GuestProcess, SliceView};
use crate::{Code, DeviceHandle, INVALID_ARGUMENT, NOT_FOUND, OK, TOO_SMALL, real};

/// "Not a MIG instance".
const NONE: u32 = u32::MAX;

#[repr(C)]
struct FirstProcessRecord {
    pid: u32,
    bytes: u64,
}

#[repr(C)]
struct ProcessRecord {
    pid: u32,
    bytes: u64,
    instance: u32,
    compute: u32,
}

#[repr(C)]
struct Detail {
    pid: u32,
    bytes: u64,
    instance: u32,
    compute: u32,
    protected: u64,
}

#[repr(C)]
struct Details {
    version: u32,
    mode: u32,
    count: u32,
    list: *mut Detail,
}

impl From<GuestProcess> for FirstProcessRecord {
    fn from(tenant: GuestProcess) -> Self {
        FirstProcessRecord {
            pid: tenant.pid,
            bytes: tenant.bytes,
        }
    }
}

impl From<GuestProcess> for ProcessRecord {
    fn from(tenant: GuestProcess) -> Self {
        ProcessRecord {
            pid: tenant.pid,
            bytes: tenant.bytes,
            instance: NONE,
            compute: NONE,
        }
    }
}

impl From<GuestProcess> for Detail {
    fn from(tenant: GuestProcess) -> Self {
        Detail {
            pid: tenant.pid,
            bytes: tenant.bytes,
            instance: NONE,
            compute: NONE,
            protected: 0,
        }
    }
}

impl From<GuestProcess> for u32 {
    fn from(tenant: GuestProcess) -> Self {
        tenant.pid
    }
}

/// Writes the container's processes, as many as there is room for; asks for more room otherwise.
///
/// # Safety
/// `list` is null or has room for as many as `count` says.
unsafe fn list<T: From<GuestProcess>>(device: DeviceHandle, count: *mut u32, list: *mut T) -> Code {
    // SAFETY: the caller's argument.
    let Some(count) = (unsafe { count.as_mut() }) else {
        return INVALID_ARGUMENT;
    };
    let Some(slice) = SliceView::of(device) else {
        return NOT_FOUND;
    };
    let room = if list.is_null() { 0 } else { *count };
    let mut found = 0;
    slice.each(|tenant| {
        if tenant.pid == 0 {
            return;
        }
        if found < room {
            // SAFETY: there is room, as the caller says.
            unsafe { list.add(found as usize).write(tenant.into()) };
        }
        found += 1;
    });
    *count = found;
    if found > room { TOO_SMALL } else { OK }
}

/// None: graphics and MPS clients are none of a slice's.
unsafe fn nobody(count: *mut u32) -> Code {
    // SAFETY: the caller's argument.
    match unsafe { count.as_mut() } {
        None => INVALID_ARGUMENT,
        Some(count) => {
            *count = 0;
            OK
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses(
    device: DeviceHandle,
    count: *mut u32,
    out: *mut FirstProcessRecord,
) -> Code {
    // SAFETY: the caller's arguments.
    unsafe { list(device, count, out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v2(
    device: DeviceHandle,
    count: *mut u32,
    out: *mut ProcessRecord,
) -> Code {
    // SAFETY: the caller's arguments.
    unsafe { list(device, count, out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: DeviceHandle,
    count: *mut u32,
    out: *mut ProcessRecord,
) -> Code {
    // SAFETY: the caller's arguments.
    unsafe { list(device, count, out) }
}

macro_rules! none {
    ($( fn $name:ident )*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(_device: DeviceHandle, count: *mut u32, _out: *mut u8) -> Code {
            // SAFETY: the caller's argument.
            unsafe { nobody(count) }
        }
    )* };
}

none! {
    fn nvmlDeviceGetGraphicsRunningProcesses
    fn nvmlDeviceGetGraphicsRunningProcesses_v2
    fn nvmlDeviceGetGraphicsRunningProcesses_v3
    fn nvmlDeviceGetMPSComputeRunningProcesses
    fn nvmlDeviceGetMPSComputeRunningProcesses_v2
    fn nvmlDeviceGetMPSComputeRunningProcesses_v3
    fn nvmlDeviceGetEncoderSessions
    fn nvmlDeviceGetFBCSessions
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetRunningProcessDetailList(
    device: DeviceHandle,
    out: *mut Details,
) -> Code {
    // SAFETY: the caller's argument.
    let Some(details) = (unsafe { out.as_mut() }) else {
        return INVALID_ARGUMENT;
    };
    match details.mode {
        // SAFETY: the caller's list, with room as it says.
        0 => unsafe { list(device, &mut details.count, details.list) },
        // SAFETY: a number of our caller's.
        _ => unsafe { nobody(&mut details.count) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetAccountingPids(
    device: DeviceHandle,
    count: *mut u32,
    out: *mut u32,
) -> Code {
    // SAFETY: the caller's arguments.
    unsafe { list(device, count, out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetAccountingStats(
    device: DeviceHandle,
    pid: u32,
    out: *mut u8,
) -> Code {
    if !SliceView::of(device).is_some_and(|slice| slice.has(pid)) {
        return NOT_FOUND;
    }
    real!(nvmlDeviceGetAccountingStats(device, pid, out): fn(DeviceHandle, u32, *mut u8))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetAccountingStats_v2(
    device: DeviceHandle,
    pid: u32,
    out: *mut u8,
) -> Code {
    if !SliceView::of(device).is_some_and(|slice| slice.has(pid)) {
        return NOT_FOUND;
    }
    real!(nvmlDeviceGetAccountingStats_v2(device, pid, out): fn(DeviceHandle, u32, *mut u8))
}
