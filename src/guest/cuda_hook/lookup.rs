//! The driver's own way to look functions up. The real one chooses version and stream flavour; when
//! what it chose is a function that this hook overrides, the caller gets the override.
//! Should a driver answer with pointers that are not its exported symbols, names and versions decide.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;

use crate::driver::{self, OVERRIDES, REAL};
use crate::{Code, OK, real, recording, threads};

/// The caller wants the variant that works on its own thread's default stream.
const PER_THREAD: u64 = 2;

/// Since when a name means its second version, where that was not CUDA 3.2.
const SECOND_SINCE: [(&CStr, c_int); 11] = [
    (c"cuCtxDestroy", 4000),
    (c"cuCtxPopCurrent", 4000),
    (c"cuCtxPushCurrent", 4000),
    (c"cuCtxSynchronize", 13000),
    (c"cuDevicePrimaryCtxRelease", 11000),
    (c"cuDevicePrimaryCtxReset", 11000),
    (c"cuGetProcAddress", 12000),
    (c"cuGraphAddNode", 12030),
    (c"cuGraphInstantiate", 11000),
    (c"cuGraphInstantiate_v2", c_int::MAX),
    (c"cuStreamEndCapture", c_int::MAX),
];

/// Puts the override in the place of a function that the driver found.
///
/// # Safety
/// `name` ends with zero; `found` is null or what the driver has just written.
unsafe fn replace(name: *const c_char, found: *mut *const c_void, version: c_int, flags: u64) {
    if name.is_null() || found.is_null() {
        return;
    }
    // SAFETY: promised by the caller.
    let (name, real) = unsafe { (CStr::from_ptr(name), *found) };
    if real.is_null() {
        return;
    }
    let same = OVERRIDES
        .iter()
        .find(|(at, _)| core::ptr::eq(REAL[*at].load(Relaxed), real));
    let chosen = match same {
        Some((_, ours)) => Some(*ours),
        None => by_name(name.to_bytes(), version, flags),
    };
    if let Some(ours) = chosen {
        // SAFETY: promised by the caller.
        unsafe { found.write(ours as *const c_void) };
    }
}

fn by_name(name: &[u8], version: c_int, flags: u64) -> Option<unsafe extern "C" fn()> {
    // These changed with every few versions, and later ones will be called alike. The driver's own does;
    // what it changes is then asked for at each launch.
    if name.starts_with(b"cuStreamBegin") {
        recording::unseen();
        return None;
    }
    if name.starts_with(b"cuCtxCreate") || name.starts_with(b"cuGLCtxCreate") {
        threads::unseen();
        return None;
    }
    let per_thread = if flags & PER_THREAD != 0 {
        ours(name, b"_ptsz")
    } else {
        None
    };
    if per_thread.is_some() {
        return per_thread;
    }
    let since = SECOND_SINCE
        .iter()
        .find(|(known, _)| known.to_bytes() == name)
        .map_or(3020, |(_, since)| *since);
    let second = if version >= since {
        ours(name, b"_v2")
    } else {
        None
    };
    second.or_else(|| ours(name, b""))
}

/// The override of `name` followed by `ending`.
fn ours(name: &[u8], ending: &[u8]) -> Option<unsafe extern "C" fn()> {
    OVERRIDES
        .iter()
        .find(|(at, _)| {
            driver::name(*at)
                .to_bytes()
                .strip_prefix(name)
                .is_some_and(|rest| rest == ending)
        })
        .map(|(_, ours)| *ours)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetProcAddress(
    name: *const c_char,
    found: *mut *const c_void,
    version: c_int,
    flags: u64,
) -> Code {
    let code = real!(cuGetProcAddress(name, found, version, flags):
        fn(*const c_char, *mut *const c_void, c_int, u64));
    if code == OK {
        // SAFETY: the caller's name, and what the driver has just written.
        unsafe { replace(name, found, version, flags) };
    }
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    found: *mut *const c_void,
    version: c_int,
    flags: u64,
    status: *mut c_int,
) -> Code {
    let code = real!(cuGetProcAddress_v2(name, found, version, flags, status):
        fn(*const c_char, *mut *const c_void, c_int, u64, *mut c_int));
    if code == OK {
        // SAFETY: the caller's name, and what the driver has just written.
        unsafe { replace(name, found, version, flags) };
    }
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetProcAddress_v2_ptsz(
    name: *const c_char,
    found: *mut *const c_void,
    version: c_int,
    flags: u64,
    status: *mut c_int,
) -> Code {
    let code = real!(cuGetProcAddress_v2_ptsz(name, found, version, flags, status):
        fn(*const c_char, *mut *const c_void, c_int, u64, *mut c_int));
    if code == OK {
        // SAFETY: the caller's name, and what the driver has just written.
        unsafe { replace(name, found, version, flags | PER_THREAD) };
    }
    code
}
