//! Slices of a GPU on machines without one: the hooks between ordinary programs and the fake driver.
//! Nothing here opens a device; what only hardware can show is marked so in tests/SPECIFICATION.md.
//!
//! Unproven (GPUs): On a real GPU, the memory limit of a slice is exact within the driver's block size. Why:
//! it was on an H200, but for pools, which grow by 32 MiB; no gate has a card.
//!
//! Unproven (GPUs): On a real GPU, each session that always has work gets its share of device time within two
//! percentage points. Why: on an H200 it was up to 6 points short
//! (tests/suite/gpu/protocol/figures).

mod attacks;
mod bench;
mod carried;
mod gate;
mod loading;
mod memory;
mod monitor;
mod peer;
mod probe;
mod rig;
mod self_test;
mod session;
mod speed;
mod time_slicing;
mod views;
mod whole;
