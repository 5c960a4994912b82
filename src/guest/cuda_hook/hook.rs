//! What a container finds as `libcuda.so.1`: every function that takes or shows device memory asks the
//! pages first, every launch passes the gate, and everything else jumps on to the real driver, which is
//! this library's dependency by absolute path. Reads no environment variable and no configuration.
//! Without pages that it understands it lets no program near the device.

#![no_std]

mod account;
mod arrays;
mod capture;
mod context_changes;
mod contexts;
mod driver;
mod freestanding;
mod gate;
mod graphs;
mod here;
mod kernel;
mod ledger;
mod lock;
mod lookup;
mod memory;
mod physical;
mod pools;
mod process;
mod recording;
pub mod region;
mod streams;
mod threads;
mod views;

/// What the driver's functions answer with.
pub type Code = core::ffi::c_int;
pub const OK: Code = 0;
pub const OUT_OF_MEMORY: Code = 2;
pub const NOT_SUPPORTED: Code = 801;
/// "System not yet initialised": the pages are missing, or of a version that this hook does not know.
pub const NOT_READY: Code = 802;

/// Stands in for a name that this driver does not have yet, or no longer.
extern "C" fn missing() -> Code {
    NOT_SUPPORTED
}

fn loaded() {
    account::prepare();
    gate::prepare();
}
