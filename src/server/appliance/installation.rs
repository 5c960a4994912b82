//! How far the installation of this machine has got: a small file beside the catalog, so that the wizard
//! goes on where it was left. Never decides who may see it.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rules::names::SessionId;
use rules::units::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ServerFault;
use crate::backup::INSTALLATION as FILE;

/// One step after the first administrator is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SetupStep {
    Time,
    Certificate,
    Environment,
    Test,
}

impl SetupStep {
    pub const ALL: [Self; 4] = [Self::Time, Self::Certificate, Self::Environment, Self::Test];

    pub fn word(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Certificate => "certificate",
            Self::Environment => "environment",
            Self::Test => "test",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.word() == word)
    }
}

/// What was done, and when.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SetupRecord {
    pub(crate) began_at: Option<Timestamp>,
    pub(crate) done: BTreeMap<SetupStep, Timestamp>,
    /// The session of the last test.
    pub(crate) test: Option<SessionId>,
    pub(crate) finished_at: Option<Timestamp>,
}

/// Reads the record; an empty one where setup was not begun, or where it cannot be read: steps are cheap to
/// repeat.
pub(crate) fn read(data: &Path) -> SetupRecord {
    match std::fs::read(data.join(FILE)) {
        Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
            tracing::warn!(%error, "the record of the installation is damaged; a new one is started");
            SetupRecord::default()
        }),
        Err(error) => {
            if error.kind() != ErrorKind::NotFound {
                tracing::warn!(%error, "the record of the installation cannot be read");
            }
            SetupRecord::default()
        }
    }
}

/// Writes the record whole or not at all.
pub(crate) fn write(data: &Path, record: &SetupRecord) -> Result<(), ServerFault> {
    let failed =
        |error: std::io::Error| ServerFault::new("keep the record of the installation", error);
    let (path, new) = (data.join(FILE), data.join(".installation.new"));
    let text = serde_json::to_vec_pretty(record)
        .map_err(|error| ServerFault::new("write the record of the installation", error))?;
    std::fs::create_dir_all(data).map_err(failed)?;
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)
        .map_err(failed)?;
    file.write_all(&text)
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&new, &path))
        .and_then(|()| std::fs::File::open(data)?.sync_all())
        .map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_kept_and_a_damaged_one_begins_again() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(read(folder.path()), SetupRecord::default());
        let at = Timestamp::from_millis(1_800_000_000_000);
        let record = SetupRecord {
            began_at: Some(at),
            done: BTreeMap::from([(SetupStep::Time, at)]),
            ..SetupRecord::default()
        };
        write(folder.path(), &record).expect("written");
        assert_eq!(read(folder.path()), record);
        std::fs::write(folder.path().join(FILE), "{").expect("damaged");
        assert_eq!(read(folder.path()), SetupRecord::default());
    }
}
