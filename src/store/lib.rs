//! Bytes at rest: image layers, folders and their limits, resumable uploads, blobs of the registry, frames of a log, trees to remove. Knows files,
//! digests and free disk; never knows people, sessions, HTTP or the catalog. The caller brings the time and the
//! permission.

pub mod bundle;
pub mod folders;
pub mod frames;
pub mod images;
pub mod quota;
pub mod registry;
pub mod trees;
pub mod uploads;
pub mod volumes;
