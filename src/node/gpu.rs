//! Shares of a GPU: what a container gets of a device and when it may use it. Never runs code of the
//! vendor's.

pub mod accelerators;
pub mod arbiter;
pub mod driver;
pub mod watchdog;
