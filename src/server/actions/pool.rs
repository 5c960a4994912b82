//! What administrators see of the pool that folders lie in, and how they give it more of the disk. Holds no limit and mounts
//! nothing: the keeper of scopes does.

use std::io;

use api::storage::{PoolSizeBody, PoolView};
use rules::permissions::{Permission, may};
use rules::refusals;
use rules::storage::{PoolUse, largest_pool, refuse_pool_size, whole_pool};
use rules::tenancy::Scope;
use rules::units::Bytes;

use super::allowed;
use super::storage::enforcement;
use crate::access::Caller;
use crate::appliance::lazy_stores::folder_failure;
use crate::catalog::Lane;
use crate::catalog::events::NewEvent;
use crate::{Failure, Server, ServerFault};

/// How limits of folders are held on the box's own disk, and the pool. Costs a small read of each owner's limit.
pub async fn get(server: &Server, caller: &Caller) -> Result<PoolView, Failure> {
    allowed(caller, Permission::SystemRead)?;
    let held = enforcement(server).await?;
    Ok(PoolView::new(held, look(server).await?.as_ref()))
}

/// Makes the pool larger while it is in use. A size that it has already changes nothing.
///
/// Errors: `pool.absent`; `pool.smaller`, `pool.too-large`, each at its field. It is as large as before then.
pub async fn grow(
    server: &Server,
    caller: &Caller,
    asked: PoolSizeBody,
) -> Result<PoolView, Failure> {
    may(&caller.subject, Permission::SystemWrite, &Scope::SITE)?;
    let held = enforcement(server).await?;
    let before = look(server).await?.ok_or_else(refusals::pool_absent)?;
    let size = whole_pool(Bytes(asked.bytes));
    refuse_pool_size(size, &before).map_err(|refusal| refusal.at("/bytes"))?;
    if size == before.size {
        return Ok(PoolView::new(held, Some(&before)));
    }
    let growing = server.clone();
    let grown = off_thread(move || Ok(growing.folders()?.keeper().grow_pool(size))).await?;
    grown.map_err(|error| match error.kind() {
        // Others took the room meanwhile.
        io::ErrorKind::StorageFull => {
            let (most, free) = (largest_pool(&before), before.disk.free);
            refusals::pool_too_large(most, free).at("/bytes").into()
        }
        _ => folder_failure(error),
    })?;
    let caller = caller.clone();
    server
        .catalog()
        .write(
            Lane::Requests,
            "note that the pool has grown",
            move |rows| {
                rows.note(NewEvent {
                    actor: caller.name.as_str(),
                    topic: "system",
                    object: "pool",
                    scope: Scope::SITE,
                    code: "pool.grown",
                    before: &before.size.to_string(),
                    after: &size.to_string(),
                })
            },
        )
        .await?;
    let after = look(server).await?;
    Ok(PoolView::new(held, after.as_ref()))
}

/// The pool as it is now; None where there is none. Costs a small read of each owner's limit.
pub(super) async fn look(server: &Server) -> Result<Option<PoolUse>, Failure> {
    let server = server.clone();
    off_thread(move || {
        let folders = server.folders()?;
        folders.keeper().pool().map_err(folder_failure)
    })
    .await
}

async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| ServerFault::new("look at the pool", error))?
}

#[cfg(test)]
mod tests;
