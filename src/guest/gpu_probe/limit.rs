//! The driver's limit for a control group (NVML of driver 615 and newer; its structure as `nvml.h` of CUDA
//! 13.5 has it). The wrapper does not know the call, so it is looked up by name. Sets what it is told, and
//! never a soft limit: that one would be added to every group above, and nobody takes it away when the
//! group ends.

use std::ffi::{CString, OsStr, c_char, c_int, c_ulonglong, c_void};
use std::os::unix::ffi::OsStrExt as _;

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_enum_NVML_SUCCESS, nvmlReturn_t};
use serde_json::{Value, json};

use crate::library::{NvmlLibrary, word};

/// What holds nobody.
const NONE: c_ulonglong = c_ulonglong::MAX;

#[repr(C)]
pub(crate) struct Limits {
    /// The control group's whole path.
    group: *const c_char,
    soft: c_ulonglong,
    hard: c_ulonglong,
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
    // SAFETY: the function of that name has this signature, and stays where it is: nobody closes the library.
    (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Call>(found) })
}

/// Holds a control group to so many bytes of a card, or to nothing any more where none are named.
pub(crate) fn set(library: &NvmlLibrary, asked: &Value) -> Result<Value, String> {
    let call = library.limits.ok_or("the library has no such call")?;
    let text = |name: &str| asked[name].as_str().ok_or(format!("{name} is missing"));
    let card = library
        .nvml
        .device_by_uuid(text("card")?)
        .map_err(|fault| word(&fault))?;
    let group = CString::new(text("group")?).map_err(|fault| fault.to_string())?;
    let mut limits = Limits {
        group: group.as_ptr(),
        soft: 0,
        hard: asked["bytes"].as_u64().unwrap_or(NONE),
    };
    // SAFETY: the handle is the library's own; path and structure outlive the call.
    let code = unsafe { call(card.handle(), &raw mut limits) };
    if code != nvmlReturn_enum_NVML_SUCCESS {
        return Err(format!("it refuses the limit with code {code}"));
    }
    Ok(json!(true))
}
