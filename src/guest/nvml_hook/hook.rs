//! What a container finds as `libnvidia-ml.so.1`: the device as the container has it. Memory is the
//! slice, use is within the share, processes are the container's own, and whatever would change a device
//! is refused. The rest jumps on to the vendor's library, this one's dependency by absolute path.
//! Reads the two pages and writes neither.

#![no_std]

#[path = "../cuda_hook/driver.rs"]
pub mod driver;
#[path = "../cuda_hook/freestanding.rs"]
mod freestanding;
#[path = "../cuda_hook/kernel.rs"]
pub mod kernel;
mod memory;
mod pages;
#[path = "../cuda_hook/process.rs"]
pub mod process;
mod processes;
mod refused;
#[path = "../cuda_hook/region.rs"]
pub mod region;
mod utilisation;

/// What the library's functions answer with.
pub type Code = core::ffi::c_int;
pub const OK: Code = 0;
pub const INVALID_ARGUMENT: Code = 2;
pub const NOT_SUPPORTED: Code = 3;
pub const NO_PERMISSION: Code = 4;
pub const NOT_FOUND: Code = 6;
/// "Insufficient size": the count says how many there are.
pub const TOO_SMALL: Code = 7;
const FUNCTION_NOT_FOUND: Code = 13;

/// A device as the vendor's library knows it.
pub type DeviceHandle = u64;

/// Stands in for a name that this driver does not have yet, or no longer.
extern "C" fn missing() -> Code {
    FUNCTION_NOT_FOUND
}

fn loaded() {
    pages::prepare();
}
