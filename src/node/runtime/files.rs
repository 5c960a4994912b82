//! The guest that serves the files of a session over SFTP, as the build script made it. Never starts it.

/// A static program: it needs nothing of the image.
pub static FILES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/files"));
