//! The one integration binary; each module below says what it holds the product to.

mod architecture;
mod bounds;
mod containers;
mod crash;
mod crowd;
mod gpu;
mod open_apps;
mod programs;
mod scenarios;
mod server;
mod simulation;
mod state;
mod steady;
