//! The backups a server makes by itself: which there are, what came of the last, when one is due. Makes none,
//! and never restores anything.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rules::refusal::Refusal;
use rules::refusals;
use rules::units::{Bytes, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{Failure, Server, backup};

/// After a failure the next try waits this long. Shorter: a full disk is filled again and again.
/// Longer: a stick that was plugged in again is not noticed.
const TRY_AGAIN: u64 = 30 * 60;
const HOUR: u64 = 3600;

/// One backup in the directory of backups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupFile {
    pub name: String,
    pub size: Bytes,
    pub made_at: Timestamp,
}

/// How the backups of this server stand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupStanding {
    /// Where they go; None while the server makes none.
    pub directory: Option<PathBuf>,
    /// Where they could go without another disk.
    #[serde(skip)]
    pub usual_directory: PathBuf,
    /// A file with their passphrase is set.
    #[serde(skip)]
    pub has_passphrase: bool,
    /// Why the passphrase that is set cannot be read; None where it can, and where none is set.
    #[serde(skip)]
    pub passphrase_fault: Option<Refusal>,
    /// Hours between two scheduled ones; 0: none is scheduled.
    pub every_hours: u32,
    pub keep: u32,
    /// Newest first.
    pub files: Vec<BackupFile>,
    /// Why the last try failed; None after a good one.
    pub failure: Option<BackupFailure>,
    /// When the next one is due; None while none is scheduled.
    pub due_at: Option<Timestamp>,
}

/// Why there is no new backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupFailure {
    pub at: Timestamp,
    pub code: String,
    pub text: String,
    pub hint: String,
}

/// What is remembered between two looks.
#[derive(Default)]
pub(crate) struct BackupState {
    failure: Mutex<Option<BackupFailure>>,
}

impl BackupState {
    fn failure(&self) -> Option<BackupFailure> {
        self.failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn set_failure(&self, failure: Option<BackupFailure>) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }
}

/// Looks at the directory of backups and at the passphrase file. Costs a read of each one's header.
pub(crate) fn standing(server: &Server) -> BackupStanding {
    let settings = server.settings();
    let files = settings
        .backup_dir
        .as_deref()
        .map(files)
        .unwrap_or_default();
    let failure = server.backups().failure();
    let now = server.clock().now();
    let every_hours = settings.backup_every_hours;
    let is_scheduled = settings.backup_dir.is_some() && every_hours > 0;
    let due_at = is_scheduled.then(|| {
        let by_age = due_at(&files, now, u64::from(every_hours) * HOUR);
        match &failure {
            Some(failure) => by_age.max(failure.at.plus_seconds(TRY_AGAIN)),
            None => by_age,
        }
    });
    BackupStanding {
        directory: settings.backup_dir.clone(),
        usual_directory: settings.data.join("backups"),
        has_passphrase: settings.backup_passphrase_file.is_some(),
        passphrase_fault: settings
            .backup_passphrase_file
            .as_deref()
            .and_then(|file| backup::Passphrase::read(file).err()),
        every_hours,
        keep: settings.backup_keep,
        files,
        failure,
        due_at,
    }
}

/// When the next one is due. Those from the future were made before the clock was set back, and say
/// nothing about how old the newest one is.
fn due_at(files: &[BackupFile], now: Timestamp, every_seconds: u64) -> Timestamp {
    files
        .iter()
        .map(|file| file.made_at)
        .filter(|at| *at <= now)
        .max()
        .map_or(now, |newest| newest.plus_seconds(every_seconds))
}

/// Those in a directory, newest first; empty where it cannot be read.
pub(crate) fn files(directory: &Path) -> Vec<BackupFile> {
    let mut files: Vec<BackupFile> = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            if !name.starts_with("fardel-") || !name.ends_with(".backup") {
                return None;
            }
            Some(BackupFile {
                made_at: backup::look(&entry.path()).ok()?.made_at,
                size: Bytes(entry.metadata().ok()?.len()),
                name,
            })
        })
        .collect();
    files.sort_by(|a, b| (b.made_at, &b.name).cmp(&(a.made_at, &a.name)));
    files
}

/// One of those in the directory of backups, opened to be read.
///
/// Errors: `backup.not-found`. Only names that `files` gives are opened, so no path leads elsewhere.
pub(crate) fn open(server: &Server, name: &str) -> Result<(BackupFile, std::fs::File), Failure> {
    let gone = || refusals::backup_not_found(format_args!("{name:?}"));
    let settings = server.settings();
    let directory = settings.backup_dir.as_deref().ok_or_else(gone)?;
    let found = files(directory)
        .into_iter()
        .find(|file| file.name == name)
        .ok_or_else(gone)?;
    let opened = std::fs::File::open(directory.join(&found.name)).map_err(|_| gone())?;
    Ok((found, opened))
}
