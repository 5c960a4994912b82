//! What one file can be started as. Roles wire rooms together and shut them down in order; what the
//! rooms do is theirs.

mod backup;
pub mod bench;
pub mod client;
pub mod console;
pub mod doctor;
pub mod hold;
mod program;
pub mod rehearse;
pub mod server;
pub mod shim;
mod state;
pub mod support;
