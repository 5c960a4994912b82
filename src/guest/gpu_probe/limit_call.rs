//! The driver's call for limits of control groups (NVML of driver 615 and newer; its structure as `nvml.h` of
//! CUDA 13.5 has it). The wrapper does not know it, so it is looked up by name. Calls nothing.

use std::ffi::{CString, OsStr, c_char, c_int, c_ulonglong, c_void};
use std::os::unix::ffi::OsStrExt as _;

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t};

#[repr(C)]
pub(crate) struct Limits {
    /// The control group's whole path.
    pub(crate) group: *const c_char,
    pub(crate) soft: c_ulonglong,
    pub(crate) hard: c_ulonglong,
}

pub(crate) type Call = unsafe extern "C" fn(nvmlDevice_t, *mut Limits) -> nvmlReturn_t;

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// The call in a library that is open already; None where it has none.
pub(crate) fn call(path: &OsStr) -> Option<Call> {
    const NOW: c_int = 2;
    let path = CString::new(path.as_bytes()).ok()?;
    // SAFETY: both names end with a zero. A library that is open is only counted once more.
    let found = unsafe {
        let library = dlopen(path.as_ptr(), NOW);
        if library.is_null() {
            return None;
        }
        dlsym(library, c"nvmlDeviceSetMemoryLimits_v1".as_ptr())
    };
    // SAFETY: the function of that name has this signature, and the library is never closed.
    (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Call>(found) })
}
