//! What the box's own files say about themselves, for `fardel doctor`: with or without a server, changing
//! nothing. The checks of the doctor judge it.

pub mod checks;

use std::path::Path;

use base::settings::Settings;
use rules::refusal::Refusal;
use rules::refusals;
use rules::units::Timestamp;

use crate::Failure;
use crate::appliance::backups;
use crate::backup::Passphrase;
use crate::catalog::copy;
pub use crate::catalog::copy::CatalogInspection;

/// How the backups stand that the server is to make by itself.
#[derive(Debug)]
pub struct BackupInspection {
    /// Newest first: when each was made.
    pub made_at: Vec<Timestamp>,
    /// Why the passphrase cannot be read; None where it can.
    pub passphrase: Option<Refusal>,
}

/// The catalog in `data`; None where there is none. Costs reading all of it.
pub fn catalog(data: &Path) -> Result<Option<CatalogInspection>, Failure> {
    copy::look(data)
}

/// Newest schema that this program knows.
pub fn newest_version() -> u32 {
    copy::newest_version()
}

/// None while the server was not told to make any.
pub fn backups(settings: &Settings) -> Option<BackupInspection> {
    let directory = settings.backup_dir.as_deref()?;
    let made_at = backups::files(directory)
        .iter()
        .map(|file| file.made_at)
        .collect();
    let passphrase = match &settings.backup_passphrase_file {
        Some(file) => Passphrase::read(file).err(),
        None => Some(refusals::backup_passphrase_file_unset()),
    };
    Some(BackupInspection {
        made_at,
        passphrase,
    })
}
