//! Bytes at rest: image layers, resumable uploads, trees of files that nobody needs. Knows files, digests
//! and free disk; never knows people, sessions, HTTP or the catalog. Whoever calls brings the time and the
//! permission.

pub mod bundle;
pub mod images;
pub mod trees;
pub mod uploads;
