//! Bytes at rest: image layers and resumable uploads. Knows files, digests and free disk; never
//! knows people, sessions, HTTP or the catalog. Whoever calls brings the time and the permission.

pub mod bundle;
pub mod images;
pub mod uploads;
