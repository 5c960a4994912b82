//! What the server keeps beside its rows: stores of bytes, settings in force, backups, the installation.

pub(crate) mod backups;
pub(crate) mod installation;
pub(crate) mod lazy_stores;
pub(crate) mod settings;
pub(crate) mod unnamed_images;
pub(crate) mod unused_blobs;
