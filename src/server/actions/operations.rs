//! What a user may do with long work: look at it, and call it off.

use api::operations::OperationView;
use rules::names::OperationId;
use rules::permissions::{Permission, Reach, reach};
use rules::refusals;

use super::allowed;
use crate::access::Caller;
use crate::catalog::Lane;
use crate::catalog::job_kinds::{
    FOLDER_CLONE, FOLDER_LIMIT, FOLDER_SNAPSHOT, FOLDER_TRANSFER, SESSION_COMMIT,
};
use crate::catalog::jobs::OperationRow;
use crate::{Failure, Server, ServerFault};

/// Operations that are listed.
const MAX_OPERATIONS: u32 = 200;

/// The caller's operations, newest first, at most 200; those of all users for callers who may see the whole box.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<OperationView>, Failure> {
    allowed(caller, Permission::ImagesRead)?;
    let reach = visible(caller);
    let rows = server.catalog().read_now("list operations", |view| {
        view.operations(&reach, MAX_OPERATIONS)
    })?;
    Ok(rows.into_iter().map(|row| show(server, row)).collect())
}

/// One operation. Errors: `operation.not-found`, also for another user's.
pub async fn get(
    server: &Server,
    caller: &Caller,
    id: OperationId,
) -> Result<OperationView, Failure> {
    allowed(caller, Permission::ImagesRead)?;
    find(server, caller, id)
}

fn find(server: &Server, caller: &Caller, id: OperationId) -> Result<OperationView, Failure> {
    let reach = visible(caller);
    let row = server.catalog().read_now("show an operation", |view| {
        view.operation_within(&reach, id)
    })?;
    match row {
        Some(row) => Ok(show(server, row)),
        None => Err(refusals::operation_not_found().into()),
    }
}

/// Calls an operation off. It ends shortly after; what it had done is undone.
///
/// Errors: `operation.over`.
pub async fn cancel(
    server: &Server,
    caller: &Caller,
    id: OperationId,
) -> Result<OperationView, Failure> {
    if let Err(denied) = allowed(caller, Permission::ImagesWrite)
        && !is_own_work(server, caller, id)
    {
        return Err(denied);
    }
    find(server, caller, id)?;
    let asked = server
        .catalog()
        .write(Lane::Requests, "cancel an operation", move |rows| {
            rows.cancel_operation(id)
        })
        .await?;
    if !asked {
        return Err(refusals::operation_over().into());
    }
    let runner = server.clone();
    tokio::task::spawn_blocking(move || runner.jobs().cancel(id))
        .await
        .map_err(|ended| ServerFault::new("cancel an operation", ended))??;
    find(server, caller, id)
}

/// Whether it makes an image of a session of the caller, or copies or keeps a folder for them, which they may call off without being
/// an administrator.
fn is_own_work(server: &Server, caller: &Caller, id: OperationId) -> bool {
    let Ok(found) = find(server, caller, id) else {
        return false;
    };
    let permission = match found.kind.as_str() {
        SESSION_COMMIT => Permission::ImagesWrite,
        FOLDER_CLONE | FOLDER_LIMIT | FOLDER_SNAPSHOT | FOLDER_TRANSFER => {
            Permission::SessionsWrite
        }
        _ => return false,
    };
    found.user == caller.subject.user && caller.subject.token_allows(permission).is_ok()
}

/// Which operations the caller may see: their own, or all for those who may see the whole box.
fn visible(caller: &Caller) -> Reach {
    reach(&caller.subject, Permission::SystemRead).or_own(&caller.subject)
}

pub(super) fn show(server: &Server, row: OperationRow) -> OperationView {
    let seen = server.jobs().progress(row.id);
    let (done, total) = seen.as_ref().map_or((0, 0), |seen| (seen.done, seen.total));
    let file = row.input.get("file").and_then(serde_json::Value::as_str);
    OperationView {
        id: row.id,
        file: file.unwrap_or_default().to_owned(),
        kind: row.kind,
        user: row.user,
        state: row.state,
        step: seen.map(|seen| seen.step).unwrap_or_default(),
        done,
        total,
        cancelable: row.state.is_open() && !row.cancel,
        result: row.result,
        refusal: row.refusal,
        created_at: row.created_at,
        ended_at: row.ended_at,
        generation: row.generation,
    }
}
