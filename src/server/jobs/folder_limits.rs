//! Moves the files of a folder to the scope of its own limit, or back to that of its owner's folders, where limits are held. The
//! row says from the begin on which limit it is to be; where the move fails or is called off, it says the former one again. A
//! crash leaves an open row; the next start does all of it again.

use std::path::PathBuf;

use rules::folder::{Folder, FolderState, OwnLimit, ScopeOwner};
use rules::names::{FolderId, OperationId, UserId};
use rules::refusal::Refusal;
use rules::refusals;
use rules::units::Bytes;
use serde_json::json;
use store::folders::{FolderLimit, FolderStore, scope_of};
use store::quota::ScopePlace;

use super::folder_copies::{MAX_COUNTED, arrive, input, stand_still, tell, waits, watch};
use super::outcome::{JobFailure, JobProgress, JobResult};
use super::runner::{JobKind, RunningJob};
use crate::actions::folders::note;
use crate::actions::storage::limit_on;
use crate::appliance::lazy_stores::{folder_error, folder_failure};
use crate::catalog::job_kinds::{FOLDER_LIMIT, FolderLimitInput};
use crate::catalog::jobs::OperationRow;
use crate::catalog::{ReadTransaction, Rows};
use crate::{Failure, Server, WeakServer};

/// Moves that run at once. More: sessions wait longer for the disk. Fewer: users wait for each other.
const AT_ONCE: usize = 1;

/// The moves of one server.
pub(crate) struct LimitJobs {
    pub(crate) server: WeakServer,
    /// The server's data directory.
    pub(crate) data: PathBuf,
}

impl JobKind for LimitJobs {
    fn name(&self) -> &'static str {
        FOLDER_LIMIT
    }

    fn thread(&self) -> &'static str {
        "folder-limits"
    }

    fn at_once(&self) -> usize {
        AT_ONCE
    }

    fn run(&self, job: &RunningJob<'_>) -> Result<JobResult, JobFailure> {
        let server = self.server.upgrade().ok_or(JobFailure::Interrupted)?;
        let input: FolderLimitInput = input(job.row)?;
        let (id, user) = (input.folder, job.row.user);
        let folder = server
            .catalog()
            .read_now("look at a folder to limit", |view| moving(view, id))?;
        let (before, to) = scopes(&input, &folder);
        let store = server.folders()?;
        match self.has_moved(id, to) {
            // An earlier run got so far: there is no way back.
            true => store
                .give_up_rehome(id, before, to)
                .map_err(folder_failure)?,
            false => move_files(&server, job, &store, &folder, (before, to))?,
        }
        Ok(Box::new(move |rows| {
            let name = finish(rows, user, id, &input)?.name;
            Ok(json!({"folder": id, "name": name}))
        }))
    }

    fn cancelled(&self) -> Refusal {
        refusals::folder_copy_cancelled()
    }

    fn waiting(&self) -> Option<JobProgress> {
        Some(waits())
    }

    fn discard(&self, row: &OperationRow, _refusal: &Refusal) {
        let Some(server) = self.server.upgrade() else {
            return;
        };
        let removed = input::<FolderLimitInput>(row)
            .map_err(Failure::from)
            .and_then(|input| {
                let id = input.folder;
                let found = server
                    .catalog()
                    .read_now("look at a folder to limit", |view| view.folder(id))?;
                let Some(found) = found else { return Ok(()) };
                let (before, to) = scopes(&input, &found.folder);
                let store = server.folders()?;
                store.give_up_rehome(id, before, to).map_err(folder_failure)
            });
        tell(removed);
    }

    /// The folder counts on its former limit again; one whose files got to the new one counts on that.
    fn give_up(&self, rows: &Rows<'_>, job: OperationId) -> Result<(), Failure> {
        let Some(row) = rows.operation(job)? else {
            return Ok(());
        };
        let input: FolderLimitInput = input(&row)?;
        let found = rows.folder(input.folder)?.map(|found| found.folder);
        let moving = found.filter(|folder| folder.state == FolderState::Transferring);
        let Some(mut folder) = moving else {
            return Ok(());
        };
        let (_, to) = scopes(&input, &folder);
        if self.has_moved(folder.id, to) {
            return finish(rows, row.user, folder.id, &input).map(|_| ());
        }
        folder.own_limit = limit_of(input.before, input.was_on_top);
        arrive(rows, &mut folder)?;
        rows.put_folder(&folder)
    }
}

impl LimitJobs {
    /// Whether the files of a folder lie in the scope of a limit. Costs one look at a link.
    fn has_moved(&self, id: FolderId, to: ScopeOwner) -> bool {
        scope_of(&self.data, id) == Some(ScopePlace::of(&self.data, to))
    }
}

/// On which limits a folder counted, and is to count.
fn scopes(input: &FolderLimitInput, folder: &Folder) -> (ScopeOwner, ScopeOwner) {
    let of = |bytes: Option<u64>| match bytes {
        Some(_) => ScopeOwner::Folder(folder.id),
        None => ScopeOwner::Owner(folder.owner),
    };
    (of(input.before), of(input.bytes))
}

fn limit_of(bytes: Option<u64>, is_on_top: bool) -> Option<OwnLimit> {
    bytes.map(|bytes| OwnLimit {
        bytes: Bytes(bytes),
        is_on_top,
    })
}

/// The folder that is on its way.
///
/// Errors: `folder.not-found`.
fn moving(view: &ReadTransaction<'_>, id: FolderId) -> Result<Folder, Failure> {
    let found = view.folder(id)?.map(|found| found.folder);
    let found = found.filter(|one| one.state == FolderState::Transferring);
    Ok(found.ok_or_else(refusals::folder_not_found)?)
}

fn move_files(
    server: &Server,
    job: &RunningJob<'_>,
    store: &FolderStore,
    folder: &Folder,
    (before, to): (ScopeOwner, ScopeOwner),
) -> Result<(), JobFailure> {
    let id = folder.id;
    stand_still(job)?;
    let whole = store.measure(id, MAX_COUNTED).map_err(folder_failure)?;
    let now = server.clock().now();
    let bytes = server
        .catalog()
        .read_now("look at a folder to limit", |view| {
            limit_on(view, folder, now)
        })?;
    let scope = store.scope(to);
    if scope.directory().is_dir() {
        // One that is there would be held to what it was until the next look.
        store
            .keeper()
            .hold_to(&scope, bytes)
            .map_err(folder_failure)?;
    }
    let allowed = |view: &ReadTransaction<'_>| moving(view, id).map(|_| ());
    let mut watch = watch(server, job, whole.bytes, &allowed);
    let limit = FolderLimit { owner: to, bytes };
    store
        .rehome(id, before, limit, &mut watch)
        .map_err(folder_error)?;
    Ok(())
}

/// Writes that a folder is ready, and counts on its new limit.
fn finish(
    rows: &Rows<'_>,
    user: UserId,
    id: FolderId,
    input: &FolderLimitInput,
) -> Result<Folder, Failure> {
    let found = rows.folder(id)?.ok_or_else(refusals::folder_not_found)?;
    let actor = rows.user(user)?.map(|user| user.name.to_string());
    let mut after = found.folder;
    arrive(rows, &mut after)?;
    rows.put_folder(&after)?;
    let [was, is] = [input.before, input.bytes].map(told);
    let actor = actor.unwrap_or_default();
    note(rows, &actor, &after, "folder.limit-set", (&was, &is))?;
    Ok(after)
}

/// A limit as the journal has it; empty for that of the owner.
fn told(bytes: Option<u64>) -> String {
    bytes.map_or_else(String::new, |bytes| Bytes(bytes).to_string())
}
