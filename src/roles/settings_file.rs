//! Where the settings file of this machine is. Reads nothing of it.

use std::path::PathBuf;

use base::settings;

/// The settings file of this machine, as the server finds it.
pub(super) fn settings_file() -> PathBuf {
    std::env::var_os("FARDEL_CONFIG").map_or_else(|| PathBuf::from(settings::FILE), PathBuf::from)
}
