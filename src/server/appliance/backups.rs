//! The backups a server makes by itself: when one is due, what came of the last, which are kept. A fresh
//! one is verified before older ones are removed. Never restores anything.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base::observe::chain;
use rules::refusals;
use rules::units::{Bytes, Timestamp};
use serde::{Deserialize, Serialize};

use crate::backup::{self, BackupPaths, Passphrase};
use crate::catalog::Lane;
use crate::catalog::events::NewEvent;
use crate::{Failure, Server};

/// How often is looked whether one is due.
const LOOK: Duration = Duration::from_secs(60);
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
    pub every_hours: u32,
    pub keep: u32,
    /// Newest first.
    pub files: Vec<BackupFile>,
    /// Why the last try failed; None after a good one.
    pub failure: Option<BackupFailure>,
    /// When the next one is due; None while the server makes none.
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
    /// One at a time.
    turn: tokio::sync::Mutex<()>,
}

impl BackupState {
    fn failure(&self) -> Option<BackupFailure> {
        self.failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set_failure(&self, failure: Option<BackupFailure>) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }
}

/// Looks at the directory of backups. Costs a read of each one's header.
pub(crate) fn standing(server: &Server) -> BackupStanding {
    let settings = server.settings();
    let files = settings
        .backup_dir
        .as_deref()
        .map(files)
        .unwrap_or_default();
    let failure = server.backups().failure();
    let now = server.clock().now();
    let due_at = settings.backup_dir.as_ref().map(|_| {
        let by_age = due_at(&files, now, u64::from(settings.backup_every_hours) * HOUR);
        match &failure {
            Some(failure) => by_age.max(failure.at.plus_seconds(TRY_AGAIN)),
            None => by_age,
        }
    });
    BackupStanding {
        directory: settings.backup_dir.clone(),
        every_hours: settings.backup_every_hours,
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

/// Makes one now, verifies it, and removes those beyond the number that is kept.
///
/// Errors: `backup.not-configured`, `backup.under-way`; those of making and verifying one. A failure
/// is remembered, shown as a finding, and noted in the journal.
pub(crate) async fn make(server: &Server, actor: &str) -> Result<BackupFile, Failure> {
    let settings = server.settings();
    let Some(directory) = settings.backup_dir.clone() else {
        return Err(refusals::backup_not_configured().into());
    };
    let Ok(_turn) = server.backups().turn.try_lock() else {
        return Err(refusals::backup_under_way().into());
    };
    let work = server.clone();
    let done = tokio::task::spawn_blocking(move || make_here(&work, &directory))
        .await
        .map_err(|ended| Failure::Fault(crate::ServerFault::new("make a backup", ended)))
        .flatten();
    let (code, after) = match &done {
        Ok(file) => {
            server.backups().set_failure(None);
            ("backup.made", file.name.clone())
        }
        Err(failure) => {
            let refusal = match failure {
                Failure::Refusal(refusal) => refusal.clone(),
                fault => refusals::backup_failed_see_log(chain(fault)),
            };
            tracing::error!(code = refusal.code, "no backup was made: {refusal}");
            let told = refusal.code.clone();
            server.backups().set_failure(Some(BackupFailure {
                at: server.clock().now(),
                code: refusal.code,
                text: refusal.text,
                hint: refusal.hint,
            }));
            (rules::codes::BACKUP_FAILED, told)
        }
    };
    let actor = actor.to_owned();
    let noted = server
        .catalog()
        .write(Lane::Loops, "note a backup", move |rows| {
            rows.note(NewEvent {
                actor: &actor,
                topic: "system",
                object: "backup",
                scope: rules::tenancy::Scope::SITE,
                code,
                before: "",
                after: &after,
            })
        })
        .await;
    if let Err(failure) = noted {
        tracing::warn!(error = %chain(&failure), "a backup was not noted");
    }
    done
}

fn make_here(server: &Server, directory: &Path) -> Result<BackupFile, Failure> {
    use std::os::unix::fs::DirBuilderExt as _;
    let settings = server.settings();
    let secret = settings
        .backup_passphrase_file
        .as_deref()
        .ok_or_else(refusals::backup_passphrase_not_configured)?;
    let passphrase = Passphrase::read(secret)?;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|error| refusals::backup_directory_unwritable(directory.display(), &error))?;
    let places = BackupPaths {
        data: settings.data.clone(),
        settings: server.in_force().reading().sources.file(),
    };
    let now = server.clock().now();
    let to = directory.join(format!("fardel-{}.backup", backup::stamp(now)));
    let made = backup::create(&places, &passphrase, &to, now)?;
    let verified = backup::verify(&to, &passphrase, &settings.data)?;
    if !verified.catalog.is_sound() {
        return Err(refusals::backup_made_unsound(to.display()).into());
    }
    let name = made
        .path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    prune(directory, &name, settings.backup_keep as usize);
    Ok(BackupFile {
        name,
        size: made.size,
        made_at: now,
    })
}

/// Removes the oldest beyond `keep`, never the one just made.
fn prune(directory: &Path, just_made: &str, keep: usize) {
    let others = files(directory)
        .into_iter()
        .filter(|file| file.name != just_made);
    for old in others.skip(keep.saturating_sub(1)) {
        if let Err(error) = std::fs::remove_file(directory.join(&old.name)) {
            tracing::warn!(%error, name = old.name, "an old backup was not removed");
        }
    }
}

/// Makes backups when they are due, until it is dropped.
pub(crate) async fn keep_making(server: Server) {
    loop {
        tokio::time::sleep(LOOK).await;
        make_if_due(&server).await;
    }
}

/// One look, and what follows from it.
pub(crate) async fn make_if_due(server: &Server) {
    let looked = server.clone();
    let Ok(found) = tokio::task::spawn_blocking(move || standing(&looked)).await else {
        return;
    };
    if found.due_at.is_some_and(|due| due <= server.clock().now()) {
        // What failed was logged and remembered there.
        let _ = make(server, "schedule").await;
    }
}
