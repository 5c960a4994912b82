//! What one file can be started as. Roles wire rooms together and shut them down in order; what the
//! rooms do is theirs.

mod backup;
pub mod client;
mod diagnostics;
pub mod doctor;
pub mod environments;
pub mod hold;
pub mod rehearsal;
pub mod relay;
pub mod server;
mod settings_file;
pub mod shim;
mod state;
pub mod support;
