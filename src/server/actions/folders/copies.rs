//! Own copies of folders: who may read the files of one makes another folder of them. The copy is a row from its beginning,
//! whose files no user sees until all of them are there; `jobs::folder_copies` makes them.

use api::folders::NewFolderCopyBody;
use api::operations::OperationView;
use rules::folder::{Folder, FolderKind, FolderState};
use rules::folder_rights::FolderVerb;
use rules::folder_snapshot::{FolderSnapshot, SnapshotState};
use rules::names::{FolderId, OperationId, UserId};
use rules::permissions::Permission;
use rules::refusals;
use rules::units::Timestamp;
use serde::Serialize;

use super::files::folder_for;
use super::{
    drafted, find, forget_unused, insert, make_directory, name_of, new_owner, permitted,
    refuse_full, refuse_taken, refuse_unready,
};
use crate::access::Caller;
use crate::actions::operations::show;
use crate::actions::storage::refuse_beyond;
use crate::actions::volumes::{limit_of_new, still_admits};
use crate::actions::{IdempotencyKey, Once, allowed, once, own_key};
use crate::catalog::job_kinds::{
    FOLDER_CLONE, FOLDER_LIMIT, FOLDER_TRANSFER, FolderCloneInput, SnapshotPart,
};
use crate::catalog::jobs::OperationRow;
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::{Failure, Server, ServerFault};

/// Operations that are open at once. Higher: a list of them is long. Lower: users wait for each other.
const MAX_OPEN: usize = 64;
/// The same of one user. Higher: few users keep all others from theirs. Lower: many folders are copied in turns.
const MAX_OWN: usize = 8;

/// Begins to copy a folder into a new one of the caller's own, or of a project that they lead; gives the operation, whose
/// result names the copy. It lies on the volume of the first one where its owner may make folders there.
///
/// Errors: those of `create`; `folder.not-found`, `folder.ambiguous`, `folder.files-own`, `folder.in-trash`, `folder.copying`,
/// `folder.transferring`, `folder.purging`, `operation.too-many`.
pub async fn create(
    server: &Server,
    caller: &Caller,
    which: &str,
    asked: NewFolderCopyBody,
    key: Option<IdempotencyKey>,
) -> Result<Once<OperationView>, Failure> {
    begin_copy(server, caller, which, asked, None, key).await
}

/// The same; `part`: a number and a path where it is filled with what lies in a snapshot of the folder.
///
/// Errors: as `create`; `folder.snapshot-not-found`.
pub(super) async fn begin_copy(
    server: &Server,
    caller: &Caller,
    which: &str,
    asked: NewFolderCopyBody,
    part: Option<(u32, String)>,
    key: Option<IdempotencyKey>,
) -> Result<Once<OperationView>, Failure> {
    allowed(caller, Permission::SessionsWrite)?;
    let key = own_key(caller, key)?;
    let name = name_of(&asked.name)?;
    let source = folder_for(server, caller, which, FolderVerb::Clone)?;
    let mut copy = drafted(server, &caller.subject, name, FolderKind::General);
    copy.state = FolderState::Copying;
    let now = server.clock().now();
    server
        .catalog()
        .read_now("look where a copy is to be", |view| {
            copy.owner = new_owner(view, &caller.subject, asked.project.as_deref())?;
            copy.volume = match source.volume {
                Some(volume) if still_admits(view, &caller.subject, volume).is_ok() => Some(volume),
                _ => None,
            };
            copy.own_limit = limit_of_new(view, copy.volume)?;
            // A request that was answered is answered again, also where its copy has the name since.
            if key.is_none() {
                refuse_taken(view, &copy)?;
                refuse_full(view, copy.owner)?;
                let part = snapshot_part(view, &source, part.as_ref())?;
                fits(view, &copy, &source, part.as_ref(), now)?;
            }
            Ok(())
        })?;
    make_directory(server, &copy).await?;
    let id = copy.id;
    let (asking, which) = (caller.clone(), which.to_owned());
    let begun = server
        .catalog()
        .write(Lane::Requests, "begin to copy a folder", move |rows| {
            let begun = once::<OperationId>(rows, key.as_ref(), || {
                let found = find(rows, &asking, &which, FolderState::Ready, rows.now)?.folder;
                permitted(rows, &asking.subject, &found, FolderVerb::Clone, rows.now)?;
                refuse_unready(&found)?;
                let part = snapshot_part(rows, &found, part.as_ref())?;
                fits(rows, &copy, &found, part.as_ref(), rows.now)?;
                insert(rows, &asking, &copy)?;
                let input = FolderCloneInput {
                    from: found.id,
                    to: copy.id,
                    snapshot: part.map(|(part, _)| part),
                    file: label(&found, copy.name.as_str()),
                };
                begin(rows, &asking, FOLDER_CLONE, &input)
            })?;
            let row = rows
                .operation(begun.value)?
                .ok_or_else(|| ServerFault::new("begin to copy a folder", "its row is gone"))?;
            Ok(Once {
                value: row,
                replayed: begun.replayed,
            })
        })
        .await;
    if !begun.as_ref().is_ok_and(|begun| !begun.replayed) {
        forget_unused(server, Some(id));
    }
    let begun = begun?;
    server.jobs().wake(FOLDER_CLONE)?;
    Ok(Once {
        value: show(server, begun.value),
        replayed: begun.replayed,
    })
}

/// Refuses a copy for which its owner has no room, as far as the folder was counted; none is held on a volume.
///
/// Errors: `quota.exceeded`.
fn fits(
    view: &ReadTransaction<'_>,
    copy: &Folder,
    source: &Folder,
    part: Option<&(SnapshotPart, u64)>,
    now: Timestamp,
) -> Result<(), Failure> {
    let bytes = match part {
        Some((part, bytes)) => part.path.is_empty().then_some(*bytes),
        None => source.counted.map(|counted| counted.bytes),
    };
    match (copy.volume, bytes) {
        (None, Some(bytes)) => refuse_beyond(view, copy.owner, copy.domain, bytes, now),
        _ => Ok(()),
    }
}

/// What of a snapshot is meant, with the bytes of all of it.
///
/// Errors: `folder.snapshot-not-found`.
fn snapshot_part(
    view: &ReadTransaction<'_>,
    source: &Folder,
    part: Option<&(u32, String)>,
) -> Result<Option<(SnapshotPart, u64)>, Failure> {
    let Some((number, path)) = part else {
        return Ok(None);
    };
    let found = ready(view, source.id, *number)?;
    let part = SnapshotPart {
        number: found.number,
        created_at: found.created_at,
        path: path.clone(),
    };
    Ok(Some((part, found.bytes.unwrap_or(0))))
}

/// A snapshot whose files are all there.
///
/// Errors: `folder.snapshot-not-found`.
pub(crate) fn ready(
    view: &ReadTransaction<'_>,
    folder: FolderId,
    number: u32,
) -> Result<FolderSnapshot, Failure> {
    let found = view.folder_snapshot(folder, number)?;
    let found = found.filter(|found| found.state == SnapshotState::Ready);
    Ok(found.ok_or_else(|| refusals::folder_snapshot_not_found(number))?)
}

/// A copy or a transfer of a folder that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderOperation {
    /// The copy, or the folder on its way.
    pub folder: FolderId,
    pub operation: OperationId,
    /// Bytes, of `total`; both 0 before it began.
    pub done: u64,
    pub total: u64,
}

/// The copies and transfers of the caller that are under way, oldest first.
pub async fn under_way(server: &Server, caller: &Caller) -> Result<Vec<FolderOperation>, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let open = server
        .catalog()
        .read_now("list open work on folders", |view| view.open_operations())?;
    let own = open
        .into_iter()
        .filter(|row| row.user == caller.subject.user);
    let work = own.filter_map(|row| {
        let field = match row.kind.as_str() {
            FOLDER_CLONE => "to",
            FOLDER_LIMIT | FOLDER_TRANSFER => "folder",
            _ => return None,
        };
        let folder = row.input.get(field)?.as_str()?.parse().ok()?;
        let seen = server.jobs().progress(row.id);
        let (done, total) = seen.map_or((0, 0), |seen| (seen.done, seen.total));
        Some(FolderOperation {
            folder,
            operation: row.id,
            done,
            total,
        })
    });
    Ok(work.collect())
}

/// What users read of an operation on a folder.
pub(super) fn label(folder: &Folder, to: &str) -> String {
    format!("{} → {to}", folder.name)
}

/// Writes the row of an operation on a folder.
///
/// Errors: `operation.too-many`.
pub(super) fn begin(
    rows: &Rows<'_>,
    caller: &Caller,
    kind: &str,
    input: &impl Serialize,
) -> Result<OperationId, Failure> {
    begin_for(
        rows,
        (caller.subject.user, caller.name.as_str()),
        kind,
        input,
    )
}

/// The same for a user who asked before, by id and name.
///
/// Errors: as `begin`.
pub(super) fn begin_for(
    rows: &Rows<'_>,
    (user, name): (UserId, &str),
    kind: &str,
    input: &impl Serialize,
) -> Result<OperationId, Failure> {
    let open = rows.open_operations()?;
    let own = open.iter().filter(|row| row.user == user);
    let own = own.count();
    for (count, most) in [(own, MAX_OWN), (open.len(), MAX_OPEN)] {
        if count >= most {
            return Err(refusals::operation_too_many(count).retry_after(60).into());
        }
    }
    let input = serde_json::to_value(input)
        .map_err(|error| ServerFault::new("keep what to do with a folder", error))?;
    let row = OperationRow::asked(rows.now, kind, user, input);
    rows.insert_operation(&row, name)?;
    Ok(row.id)
}
