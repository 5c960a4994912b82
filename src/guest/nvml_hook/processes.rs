//! Lists of processes: the container's own, by its own numbers, in every shape the library has had.
//! They come from the account page, so that nobody else's can be in them.

use crate::pages::{Slice, Tenant};
use crate::{Code, Device, INVALID_ARGUMENT, NOT_FOUND, OK, TOO_SMALL, real};

/// "Not a MIG instance".
const NONE: u32 = u32::MAX;

#[repr(C)]
struct First {
    pid: u32,
    bytes: u64,
}

#[repr(C)]
struct Later {
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

impl From<Tenant> for First {
    fn from(tenant: Tenant) -> Self {
        First {
            pid: tenant.pid,
            bytes: tenant.bytes,
        }
    }
}

impl From<Tenant> for Later {
    fn from(tenant: Tenant) -> Self {
        Later {
            pid: tenant.pid,
            bytes: tenant.bytes,
            instance: NONE,
            compute: NONE,
        }
    }
}

impl From<Tenant> for Detail {
    fn from(tenant: Tenant) -> Self {
        Detail {
            pid: tenant.pid,
            bytes: tenant.bytes,
            instance: NONE,
            compute: NONE,
            protected: 0,
        }
    }
}

impl From<Tenant> for u32 {
    fn from(tenant: Tenant) -> Self {
        tenant.pid
    }
}

/// Writes the container's processes, as many as there is room for; asks for more room otherwise.
///
/// # Safety
/// `list` is null or has room for as many as `count` says.
unsafe fn list<T: From<Tenant>>(device: Device, count: *mut u32, list: *mut T) -> Code {
    // SAFETY: the caller's argument.
    let Some(count) = (unsafe { count.as_mut() }) else {
        return INVALID_ARGUMENT;
    };
    let Some(slice) = Slice::of(device) else {
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

/// Nobody: graphics and MPS clients are none of a slice's.
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
    device: Device,
    count: *mut u32,
    out: *mut First,
) -> Code {
    // SAFETY: the caller's arguments.
    unsafe { list(device, count, out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v2(
    device: Device,
    count: *mut u32,
    out: *mut Later,
) -> Code {
    // SAFETY: the caller's arguments.
    unsafe { list(device, count, out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: Device,
    count: *mut u32,
    out: *mut Later,
) -> Code {
    // SAFETY: the caller's arguments.
    unsafe { list(device, count, out) }
}

macro_rules! none {
    ($( fn $name:ident )*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(_device: Device, count: *mut u32, _out: *mut u8) -> Code {
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
    device: Device,
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
    device: Device,
    count: *mut u32,
    out: *mut u32,
) -> Code {
    // SAFETY: the caller's arguments.
    unsafe { list(device, count, out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetAccountingStats(device: Device, pid: u32, out: *mut u8) -> Code {
    if !Slice::of(device).is_some_and(|slice| slice.has(pid)) {
        return NOT_FOUND;
    }
    real!(nvmlDeviceGetAccountingStats(device, pid, out): fn(Device, u32, *mut u8))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetAccountingStats_v2(
    device: Device,
    pid: u32,
    out: *mut u8,
) -> Code {
    if !Slice::of(device).is_some_and(|slice| slice.has(pid)) {
        return NOT_FOUND;
    }
    real!(nvmlDeviceGetAccountingStats_v2(device, pid, out): fn(Device, u32, *mut u8))
}
