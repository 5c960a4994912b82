//! Backups that the server makes by itself: looked at, and asked for. Restoring is not here: it needs a
//! server that does not run.

use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use api::secret::SecretText;
use rules::permissions::Permission;
use rules::refusal::Refusal;
use rules::refusals;

use super::allowed;
use super::settings as settings_actions;
use crate::access::Caller;
use crate::appliance::backups;
pub use crate::appliance::backups::{BackupFailure, BackupFile, BackupStanding};
use crate::backup::Passphrase;
use crate::catalog::Lane;
use crate::catalog::audit::{ActingUser, NewAct};
use crate::catalog::events::NewEvent;
use crate::{Failure, Server, ServerFault};

/// The setting that schedules backups; 0 schedules none.
const INTERVAL_KEY: &str = "backup_every_hours";
/// Name of the file, in the data directory, that holds a passphrase given in the console.
const PASSPHRASE_FILE: &str = "backup.passphrase";
/// Directories that belong to the system: a server that runs as root puts no backups there for anybody.
const OF_THE_SYSTEM: [&str; 12] = [
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin", "/sys",
    "/usr",
];

/// What an administrator asks for in the form of backups. Texts as they were typed.
#[derive(Debug, Clone)]
pub struct BackupSchedule {
    pub directory: String,
    /// None: no backup is scheduled, each is asked for.
    pub every_hours: Option<String>,
    pub keep: String,
    /// Empty keeps the passphrase that is set.
    pub passphrase: SecretText,
}

/// How they stand: where, how often, which there are, what failed last.
pub async fn standing(server: &Server, caller: &Caller) -> Result<BackupStanding, Failure> {
    allowed(caller, Permission::SystemRead)?;
    let server = server.clone();
    tokio::task::spawn_blocking(move || backups::standing(&server))
        .await
        .map_err(|ended| ServerFault::new("look at the backups", ended).into())
}

/// Makes one now and verifies it. Takes as long as that takes, some seconds for a large catalog.
///
/// Errors: `backup.not-configured`, `backup.under-way`, and those of making one.
pub async fn make(server: &Server, caller: &Caller) -> Result<BackupFile, Failure> {
    allowed(caller, Permission::SystemWrite)?;
    server.make_backup(caller.name.as_str()).await
}

/// Chooses where backups go, how often they are made, how many are kept, and their passphrase. The passphrase goes to
/// a file of the data directory that only the server reads; the rest to the settings file.
///
/// Errors: `denied` without `system:write`; `backup.directory-invalid` and `backup.unwritable` at `/directory`,
/// `backup.passphrase-…` at `/passphrase`, `setting.…` at the field it is about. Nothing is scheduled after an error.
pub async fn schedule(
    server: &Server,
    caller: &Caller,
    wanted: BackupSchedule,
) -> Result<(), Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let work = server.clone();
    let has_passphrase = !wanted.passphrase.reveal().is_empty();
    let changes = tokio::task::spawn_blocking(move || scheduled(&work, &wanted))
        .await
        .map_err(|ended| ServerFault::new("schedule backups", ended))??;
    for (key, change) in changes {
        settings_actions::note(server, caller, key, &change).await?;
    }
    if has_passphrase {
        // No setting tells it: its file has the same name as before.
        record_passphrase(server, caller).await?;
    }
    // What failed before was another directory or passphrase.
    server.backups().set_failure(None);
    server.diagnostics().look_again();
    Ok(())
}

async fn record_passphrase(server: &Server, caller: &Caller) -> Result<(), Failure> {
    let (name, user) = (caller.name.clone(), caller.subject.user);
    let domain = caller.subject.domain;
    server
        .catalog()
        .write(
            Lane::Requests,
            "note a passphrase of backups",
            move |rows| {
                rows.record(NewAct {
                    actor: ActingUser::Known {
                        user,
                        name: name.as_str(),
                        domain,
                    },
                    act: "backup.passphrase-set",
                    topic: "system",
                    object: "backup",
                    scope: rules::tenancy::Scope::SITE,
                    before: "",
                    after: "",
                    reason: "",
                })
            },
        )
        .await
}

/// Turns scheduled backups off. Directory, passphrase and the backups that are there stay.
///
/// Errors: `denied` without `system:write`; `setting.set-elsewhere` and `setting.file-…` at `/every_hours`.
pub async fn unschedule(server: &Server, caller: &Caller) -> Result<(), Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let work = server.clone();
    let changed = tokio::task::spawn_blocking(move || changed(&work, INTERVAL_KEY, "0"))
        .await
        .map_err(|ended| ServerFault::new("turn scheduled backups off", ended))?;
    let change = changed.map_err(|refusal| refusal.at("/every_hours"))?;
    if change.before != change.after {
        settings_actions::note(server, caller, INTERVAL_KEY, &change).await?;
    }
    // What failed before was scheduled, and is not tried again.
    server.backups().set_failure(None);
    Ok(())
}

/// Writes one key of the backups to the settings file.
fn changed(
    server: &Server,
    key: &'static str,
    value: &str,
) -> Result<base::settings::edit::PlannedChange, Refusal> {
    let known = base::settings::edit::key_named(key)?;
    let value = base::settings::edit::written(known, value)?.unwrap_or_default();
    let (change, _) = server.in_force().change_backups(key, &value)?;
    Ok(change)
}

type Changes = Vec<(&'static str, base::settings::edit::PlannedChange)>;

fn scheduled(server: &Server, wanted: &BackupSchedule) -> Result<Changes, Failure> {
    let settings = server.settings();
    let directory = directory(&wanted.directory).map_err(|refusal| refusal.at("/directory"))?;
    let typed = wanted.passphrase.reveal();
    if typed.is_empty() && settings.backup_passphrase_file.is_none() {
        return Err(refusals::backup_passphrase_needed()
            .at("/passphrase")
            .into());
    }
    if !typed.is_empty() {
        Passphrase::new(typed).map_err(|refusal| refusal.at("/passphrase"))?;
    }
    let every_hours = wanted.every_hours.as_ref();
    let numbers = every_hours.map(|hours| ("/every_hours", hours));
    for (field, text) in numbers.into_iter().chain([("/keep", &wanted.keep)]) {
        if !text.trim().parse::<u32>().is_ok_and(|number| number > 0) {
            return Err(refusals::backup_number_invalid().at(field).into());
        }
    }
    writable(&directory).map_err(|refusal| refusal.at("/directory"))?;
    let mut changes = Vec::new();
    let mut set = |key: &'static str, field: &str, value: String| -> Result<(), Refusal> {
        let change = changed(server, key, &value).map_err(|refusal| refusal.at(field))?;
        if change.before != change.after {
            changes.push((key, change));
        }
        Ok(())
    };
    let text = |path: &Path| path.display().to_string();
    // The directory comes last: it is what makes the rest count.
    if !typed.is_empty() {
        let file = settings.data.join(PASSPHRASE_FILE);
        keep_passphrase(&file, typed).map_err(|error| {
            refusals::backup_passphrase_unwritable(file.display(), &error).at("/passphrase")
        })?;
        set("backup_passphrase_file", "/passphrase", text(&file))?;
    }
    let hours = every_hours.map_or("0", |hours| hours.trim());
    set(INTERVAL_KEY, "/every_hours", hours.to_owned())?;
    set("backup_keep", "/keep", wanted.keep.trim().to_owned())?;
    set("backup_dir", "/directory", text(&directory))?;
    Ok(changes)
}

/// The directory that was typed: absolute, without `..`, and none of the system's.
fn directory(typed: &str) -> Result<PathBuf, Refusal> {
    let path = PathBuf::from(typed.trim());
    let plain = path
        .components()
        .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    let own = OF_THE_SYSTEM.iter().any(|system| path.starts_with(system));
    match path.is_absolute() && plain && !own && path.parent().is_some() {
        true if typed.chars().all(|c| !c.is_control()) => Ok(path),
        _ => Err(refusals::backup_directory_invalid()),
    }
}

/// Makes the directory where it is missing, and proves that a file can be written there.
fn writable(directory: &Path) -> Result<(), Refusal> {
    let proof = directory.join(".fardel-write-test");
    let tried = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .and_then(|()| {
            // Where links lead is known only now: the system's own directories stay closed.
            let real = directory.canonicalize()?;
            let own = OF_THE_SYSTEM.iter().any(|system| real.starts_with(system));
            match own {
                true => Err(std::io::Error::other(real.display().to_string())),
                false => Ok(()),
            }
        })
        .and_then(|()| {
            std::fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
                .mode(0o600)
                .open(&proof)
        })
        .and_then(|_| std::fs::remove_file(&proof));
    tried.map_err(|error| refusals::backup_directory_unwritable(directory.display(), &error))
}

/// Writes the passphrase beside its file and puts it in its place, readable by the server's user only.
fn keep_passphrase(file: &Path, passphrase: &str) -> std::io::Result<()> {
    let beside = file.with_extension("part");
    let _ = std::fs::remove_file(&beside);
    let mut open = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)?;
    open.write_all(passphrase.as_bytes())?;
    open.write_all(b"\n")?;
    open.sync_all()?;
    std::fs::rename(&beside, file)
}

/// One of them to be carried away: what it is and its bytes, which only the passphrase opens.
///
/// Errors: `backup.not-found`. It is noted who took it.
pub async fn take(
    server: &Server,
    caller: &Caller,
    name: String,
) -> Result<(BackupFile, std::fs::File), Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let looking = server.clone();
    let taken = tokio::task::spawn_blocking(move || backups::open(&looking, &name))
        .await
        .map_err(|ended| ServerFault::new("open a backup", ended))??;
    let (actor, after) = (caller.name.as_str().to_owned(), taken.0.name.clone());
    server
        .catalog()
        .write(Lane::Requests, "note who took a backup", move |rows| {
            rows.note(NewEvent {
                actor: &actor,
                topic: "system",
                object: "backup",
                scope: rules::tenancy::Scope::SITE,
                code: "backup.taken",
                before: "",
                after: &after,
            })
        })
        .await?;
    Ok(taken)
}

#[cfg(test)]
mod rollback;
#[cfg(test)]
mod tests;
