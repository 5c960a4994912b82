//! The driver's limit for a control group. Sets what it is told, and never a soft limit: that one would be added
//! to every group above, and stays there when the group ends.

use std::ffi::{CString, c_ulonglong};

use nvml_wrapper_sys::bindings::nvmlReturn_enum_NVML_SUCCESS;
use serde_json::{Value, json};

use crate::library::{NvmlLibrary, word};
use crate::limit_call::Limits;

/// What enforces nothing.
const NONE: c_ulonglong = c_ulonglong::MAX;

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
