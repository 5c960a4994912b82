//! Slices of a GPU on machines without one: the hooks between ordinary programs and the fake driver.
//! Nothing here opens a device; what only hardware can show is marked so in tests/SPECIFICATION.md.

mod attacks;
mod bench;
mod carried;
mod gate;
mod loading;
mod memory;
mod monitor;
mod peer;
mod probe;
mod proof;
mod rig;
mod session;
mod speed;
mod turns;
mod views;
mod whole;
