//! Long work of the box: forward-only jobs whose rows say what is wanted, each step safe to run twice.
//! What is open when the server dies is simply begun again.

pub(crate) mod backups;
pub(crate) mod imports;
pub(crate) mod installation;
pub(crate) mod lazy_stores;
pub(crate) mod settings;
