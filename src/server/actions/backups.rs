//! Backups that the server makes by itself: looked at, and asked for. Restoring is not here: it needs a
//! server that does not run.

use rules::permissions::Permission;

use super::allowed;
use crate::access::Caller;
use crate::appliance::backups;
pub use crate::appliance::backups::{BackupFailure, BackupFile, BackupStanding};
use crate::catalog::Lane;
use crate::catalog::events::NewEvent;
use crate::{Failure, Server, ServerFault};

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
    backups::make(server, caller.name.as_str()).await
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
mod schedule;
#[cfg(test)]
mod tests;
