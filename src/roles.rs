//! What one file can be started as. Roles wire rooms together and shut them down in order; what the
//! rooms do is theirs.

mod backup;
pub mod client;
pub mod console;
pub mod doctor;
mod examiner;
pub mod hold;
mod program;
mod refused;
pub mod rehearse;
pub mod server;
mod settings_file;
pub mod shim;
mod state;
pub mod support;
