//! A backup that a running server makes: copied, sealed and verified before older ones are removed; when one is
//! due. No row keeps such a job: it must succeed when the catalog cannot be written, and its own row would be
//! in the copy as running. A crash leaves no backup, and the next one is due at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::observe::chain;
use rules::refusals;

use super::outcome::PANICKED;
use super::runner::UnrecordedKind;
use crate::appliance::backups::{BackupFailure, BackupFile, files, standing};
use crate::backup::{self, BackupPaths, Passphrase};
use crate::catalog::events::NewEvent;
use crate::catalog::{Lane, origin};
use crate::{Failure, Server, ServerFault};

#[cfg(test)]
mod tests;

/// Backups that are made at once. More: two remove each other's older ones. Fewer: there is none.
const AT_ONCE: usize = 1;
/// How often is looked whether one is due.
const LOOK: Duration = Duration::from_secs(60);

const BACKUP: UnrecordedKind = UnrecordedKind {
    name: "backup",
    thread: "backup",
    at_once: AT_ONCE,
};

/// Makes one now, verifies it, and removes those beyond the number that is kept.
///
/// Errors: `backup.not-configured`, `backup.under-way`; those of making and verifying one. A failure
/// is remembered, shown as a finding, and noted in the journal.
pub(crate) async fn make(server: &Server, actor: &str) -> Result<BackupFile, Failure> {
    let settings = server.settings();
    let Some(directory) = settings.backup_dir.clone() else {
        return Err(refusals::backup_not_configured().into());
    };
    let (work, actor) = (server.clone(), actor.to_owned());
    let making = origin::carried_along(move || make_and_note(&work, &directory, &actor));
    let begun = server.jobs().run_unrecorded(BACKUP, making)?;
    let Some(answer) = begun else {
        return Err(refusals::backup_under_way().into());
    };
    answer
        .await
        .map_err(|gone| ServerFault::new("make a backup", gone))?
}

/// Makes one here, remembers why where it cannot, and notes either in the journal.
fn make_and_note(server: &Server, directory: &Path, actor: &str) -> Result<BackupFile, Failure> {
    let done = catch_unwind(AssertUnwindSafe(|| make_here(server, directory)));
    let done = done.unwrap_or_else(|_| Err(ServerFault::new("make a backup", PANICKED).into()));
    let (code, after) = match &done {
        Ok(file) => {
            server.backups().set_failure(None);
            server.diagnostics().look_again();
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
        .write_now(Lane::Loops, "note a backup", move |rows| {
            rows.note(NewEvent {
                actor: &actor,
                topic: "system",
                object: "backup",
                scope: rules::tenancy::Scope::SITE,
                code,
                before: "",
                after: &after,
            })
        });
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
    let to = free_place(directory, &backup::stamp(now));
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

/// Where no backup lies yet: the second one of a second has a number behind its time. It sorts behind the first, as files are sorted.
fn free_place(directory: &Path, stamp: &str) -> PathBuf {
    let first = directory.join(format!("fardel-{stamp}.backup"));
    let later = (2..).map(|number| directory.join(format!("fardel-{stamp}_{number}.backup")));
    let mut all = std::iter::once(first.clone()).chain(later);
    all.find(|place| !place.exists()).unwrap_or(first)
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
