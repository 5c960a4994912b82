//! Copies the files of folders: into an own copy of a user, and into the scope of another owner, where the file system of their
//! limit is another one. A crash leaves an open row; the next start does all of it again. A copy that is not whole goes with its
//! row; a folder that did not get to its new owner is its old one's as before. Whose scope its link leads to, theirs it is: one
//! that got there is its new owner's, also where its operation failed or was called off behind that.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rules::folder::{Folder, FolderOwner, FolderState, MountAccess, ScopeOwner};
use rules::folder_path::FolderPath;
use rules::folder_rights::leads;
use rules::names::{FolderId, OperationId, UserId};
use rules::refusal::Refusal;
use rules::refusals;
use rules::tenancy::TenantState;
use rules::units::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::json;
use store::folders::failure::FolderError;
use store::folders::{FolderLimit, FolderStore, scope_of};
use store::quota::ScopePlace;

use super::outcome::{JobFailure, JobProgress, JobResult};
use super::runner::{JobKind, RunningJob};
use crate::actions::folders::copies::ready;
use crate::actions::folders::note;
use crate::actions::storage::{folder_limit, refuse_beyond};
use crate::appliance::lazy_stores::{folder_error, folder_failure};
use crate::catalog::job_kinds::{
    FOLDER_CLONE, FOLDER_TRANSFER, FolderCloneInput, FolderTransferInput, SnapshotPart,
};
use crate::catalog::jobs::OperationRow;
use crate::catalog::{ReadTransaction, Rows};
use crate::{Failure, Server, ServerFault, WeakServer};

/// Copies of each kind that run at once. More: sessions wait longer for the disk. Fewer: users wait for each other.
const AT_ONCE: usize = 2;
/// Between two looks at the rights of its user. Longer: who may no more gets more. Shorter: more reads.
const RIGHTS_LOOK: Duration = Duration::from_secs(1);
/// Names that are counted to tell how far a copy is. Higher: it begins later. Lower: its progress is less true.
pub(super) const MAX_COUNTED: u64 = 1_000_000;
/// How long a folder stands still before it is moved. Longer: a transfer ends later. Shorter: a change that was begun before
/// may come behind the copy, and is lost.
const STILL: Duration = Duration::from_secs(2);
/// How often a transfer that waits looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(100);

/// The own copies of one server.
pub(crate) struct CloneJobs(pub(crate) WeakServer);

/// The transfers of one server.
pub(crate) struct TransferJobs {
    pub(crate) server: WeakServer,
    /// The server's data directory.
    pub(crate) data: PathBuf,
}

impl JobKind for CloneJobs {
    fn name(&self) -> &'static str {
        FOLDER_CLONE
    }

    fn thread(&self) -> &'static str {
        "folder-clones"
    }

    fn at_once(&self) -> usize {
        AT_ONCE
    }

    fn run(&self, job: &RunningJob<'_>) -> Result<JobResult, JobFailure> {
        let server = self.0.upgrade().ok_or(JobFailure::Interrupted)?;
        let input: FolderCloneInput = input(job.row)?;
        let (from, to, user) = (input.from, input.to, job.row.user);
        let store = server.folders()?;
        let part = input.snapshot;
        let bytes = match &part {
            // As much at most, where it is a part of it.
            Some(part) => {
                let look = |view: &ReadTransaction<'_>| still_ready(view, from, part);
                server.catalog().read_now("look at a snapshot", look)?
            }
            None => {
                let whole = store.measure(from, MAX_COUNTED);
                whole.map_err(folder_failure)?.bytes
            }
        };
        let is_all = part.as_ref().is_none_or(|part| part.path.is_empty());
        let look = |view: &ReadTransaction<'_>| {
            let copy = copied(view, user, (from, to), now_of(&server))?;
            match copy.volume.is_none() && is_all {
                true => refuse_beyond(view, copy.owner, copy.domain, bytes, now_of(&server)),
                false => Ok(()),
            }
        };
        server
            .catalog()
            .read_now("look at a folder to copy", look)?;
        let allowed = |view: &ReadTransaction<'_>| {
            copied(view, user, (from, to), now_of(&server)).map(|_| ())
        };
        let mut watch = watch(&server, job, bytes, &allowed);
        match &part {
            Some(part) => {
                let path = FolderPath::parse(&part.path)?;
                let from = (from, part.number);
                store
                    .copy_snapshot(from, &path, to, &mut watch)
                    .map_err(folder_error)?;
            }
            None => store.copy(from, to, &mut watch).map_err(folder_error)?,
        }
        Ok(Box::new(move |rows| {
            if let Some(part) = &part {
                // One that went meanwhile gave a part of its files.
                still_ready(rows, from, part)?;
            }
            let mut copy = copied(rows, user, (from, to), rows.now)?;
            copy.state = FolderState::Ready;
            rows.put_folder(&copy)?;
            let source = rows.folder(from)?.ok_or_else(refusals::folder_not_found)?;
            let actor = rows.user(user)?.map(|user| user.name.to_string());
            let told = format!("{}/{}", source.owner_name, source.folder.name);
            let actor = actor.unwrap_or_default();
            let code = match part {
                Some(_) => "folder.snapshot-restored",
                None => "folder.cloned",
            };
            note(rows, &actor, &copy, code, (&told, copy.name.as_str()))?;
            Ok(json!({"folder": to, "name": copy.name}))
        }))
    }

    fn cancelled(&self) -> Refusal {
        refusals::folder_copy_cancelled()
    }

    fn waiting(&self) -> Option<JobProgress> {
        Some(waits())
    }

    /// What was copied goes; where that fails, the next look at the trash removes it.
    fn discard(&self, row: &OperationRow, _refusal: &Refusal) {
        let Some(server) = self.0.upgrade() else {
            return;
        };
        let removed = input::<FolderCloneInput>(row)
            .map_err(Failure::from)
            .and_then(|input| {
                let store = server.folders()?;
                store.discard(input.to).map_err(folder_failure)
            });
        tell(removed);
    }

    fn give_up(&self, rows: &Rows<'_>, job: OperationId) -> Result<(), Failure> {
        let Some(row) = rows.operation(job)? else {
            return Ok(());
        };
        let input: FolderCloneInput = input(&row)?;
        let found = rows.folder(input.to)?.map(|found| found.folder);
        let Some(mut copy) = found.filter(|copy| copy.state == FolderState::Copying) else {
            return Ok(());
        };
        copy.state = FolderState::Purging;
        copy.trashed_at = Some(rows.now);
        rows.put_folder(&copy)
    }
}

impl JobKind for TransferJobs {
    fn name(&self) -> &'static str {
        FOLDER_TRANSFER
    }

    fn thread(&self) -> &'static str {
        "folder-moves"
    }

    fn at_once(&self) -> usize {
        AT_ONCE
    }

    fn run(&self, job: &RunningJob<'_>) -> Result<JobResult, JobFailure> {
        let server = self.server.upgrade().ok_or(JobFailure::Interrupted)?;
        let input: FolderTransferInput = input(job.row)?;
        let (before, to) = owners(&input)?;
        let (id, user) = (input.folder, job.row.user);
        let store = server.folders()?;
        let former = former(&server, id, before)?;
        match self.has_moved(id, to) {
            // An earlier run got so far: there is no way back.
            true => store
                .give_up_rehome(id, former, to.into())
                .map_err(folder_failure)?,
            false => move_files(&server, job, &store, id, (former, to))?,
        }
        Ok(Box::new(move |rows| {
            let name = hand_over(rows, user, id, to)?.name;
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
        let read = input::<FolderTransferInput>(row).and_then(|input| {
            let (before, to) = owners(&input)?;
            Ok((input.folder, before, to))
        });
        let removed = read.map_err(Failure::from).and_then(|(id, before, to)| {
            let store = server.folders()?;
            let former = former(&server, id, before)?;
            store
                .give_up_rehome(id, former, to.into())
                .map_err(folder_failure)
        });
        tell(removed);
    }

    /// The folder is its owner's as before, and the offer stands; one whose files got to its new owner is theirs.
    fn give_up(&self, rows: &Rows<'_>, job: OperationId) -> Result<(), Failure> {
        let Some(row) = rows.operation(job)? else {
            return Ok(());
        };
        let input: FolderTransferInput = input(&row)?;
        let (_, to) = owners(&input)?;
        let found = rows.folder(input.folder)?.map(|found| found.folder);
        let moving = found.filter(|folder| folder.state == FolderState::Transferring);
        let Some(mut folder) = moving else {
            return Ok(());
        };
        if self.has_moved(folder.id, to) {
            return hand_over(rows, row.user, folder.id, to).map(|_| ());
        }
        arrive(rows, &mut folder)?;
        rows.put_folder(&folder)
    }
}

impl TransferJobs {
    /// Whether the files of a folder lie in the scope of an owner. Costs one look at a link.
    fn has_moved(&self, id: FolderId, to: FolderOwner) -> bool {
        scope_of(&self.data, id) == Some(ScopePlace::of(&self.data, to))
    }
}

/// The limit on which a folder counts before it is moved: its own, or that of its former owner.
fn former(server: &Server, id: FolderId, before: FolderOwner) -> Result<ScopeOwner, Failure> {
    let found = server
        .catalog()
        .read_now("look at a folder to transfer", |view| view.folder(id))?;
    let own = found.is_some_and(|found| found.folder.own_limit.is_some());
    match own {
        true => Ok(ScopeOwner::Folder(id)),
        false => Ok(ScopeOwner::Owner(before)),
    }
}

/// Moves the files of a folder into the scope of its new owner, where limits are held.
fn move_files(
    server: &Server,
    job: &RunningJob<'_>,
    store: &FolderStore,
    id: FolderId,
    (before, to): (ScopeOwner, FolderOwner),
) -> Result<(), JobFailure> {
    let user = job.row.user;
    stand_still(job)?;
    let whole = store.measure(id, MAX_COUNTED).map_err(folder_failure)?;
    let look = |view: &ReadTransaction<'_>| {
        let now = now_of(server);
        let folder = moving(view, user, to, id, now)?;
        // Where limits are held, its snapshots are copied, and count, too.
        let history: u64 = match store.keeper().enforcement().is_enforced() {
            true => {
                let all = view.folder_snapshots(id)?;
                all.iter().filter_map(|one| one.bytes).sum()
            }
            false => 0,
        };
        if folder.volume.is_none() {
            let bytes = whole.bytes.saturating_add(history);
            refuse_beyond(view, to, folder.domain, bytes, now)?;
        }
        folder_limit(view, to, folder.domain, now)
    };
    let bytes = server
        .catalog()
        .read_now("look at a folder to transfer", look)?;
    let allowed =
        |view: &ReadTransaction<'_>| moving(view, user, to, id, now_of(server)).map(|_| ());
    let mut watch = watch(server, job, whole.bytes, &allowed);
    let limit = FolderLimit {
        owner: to.into(),
        bytes,
    };
    store
        .rehome(id, before, limit, &mut watch)
        .map_err(folder_error)?;
    Ok(())
}

/// Writes that a folder is another owner's. What its former owner gave others ends: shares, and what members may do;
/// so does their schedule of snapshots, and those that are there go along. It counts on the new one's limit.
fn hand_over(
    rows: &Rows<'_>,
    user: UserId,
    id: FolderId,
    to: FolderOwner,
) -> Result<Folder, Failure> {
    let found = rows.folder(id)?.ok_or_else(refusals::folder_not_found)?;
    let actor = rows.user(user)?.map(|user| user.name.to_string());
    let mut after = Folder {
        owner: to,
        members: MountAccess::Ro,
        // What an administrator set for a place on a volume stays with it.
        own_limit: found
            .folder
            .own_limit
            .filter(|_| found.folder.volume.is_some()),
        ..found.folder.clone()
    };
    arrive(rows, &mut after)?;
    rows.forget_folder_transfer(id)?;
    rows.forget_shares_of_folder(id)?;
    rows.forget_snapshot_schedule(id)?;
    rows.put_folder(&after)?;
    rows.forget_storage()?;
    let named = rows.folder(id)?.ok_or_else(refusals::folder_not_found)?;
    let actor = actor.unwrap_or_default();
    let told = (found.owner_name.as_str(), named.owner_name.as_str());
    // Whose it was hears of it, and whose it is.
    for seen in [&found.folder, &named.folder] {
        note(rows, &actor, seen, "folder.transferred", told)?;
    }
    Ok(after)
}

/// Makes a folder ready at its owner; it goes to the trash, as their other ones, where that one is gone.
pub(super) fn arrive(rows: &Rows<'_>, folder: &mut Folder) -> Result<(), Failure> {
    let is_gone = match folder.owner {
        FolderOwner::User(user) => rows.user(user)?.is_none(),
        FolderOwner::Project(_) => false,
    };
    if is_gone {
        rows.forget_folder_transfer(folder.id)?;
        rows.forget_shares_of_folder(folder.id)?;
    }
    (folder.state, folder.trashed_at) = match is_gone {
        true => (FolderState::Trashed, Some(rows.now)),
        false => (FolderState::Ready, None),
    };
    Ok(())
}

pub(super) fn waits() -> JobProgress {
    JobProgress {
        step: "waiting".to_owned(),
        done: 0,
        total: 0,
    }
}

pub(super) fn tell(removed: Result<(), Failure>) {
    if let Err(failure) = removed {
        let error = base::observe::chain(&failure);
        tracing::warn!(%error, "a half-made copy of a folder stays on the disk");
    }
}

pub(super) fn input<T: DeserializeOwned>(row: &OperationRow) -> Result<T, ServerFault> {
    serde_json::from_value(row.input.clone())
        .map_err(|error| ServerFault::new("read what to do with a folder", error))
}

/// The former owner of a folder, and the next one.
fn owners(input: &FolderTransferInput) -> Result<(FolderOwner, FolderOwner), ServerFault> {
    match (
        FolderOwner::parse(&input.before),
        FolderOwner::parse(&input.to),
    ) {
        (Some(before), Some(to)) => Ok((before, to)),
        _ => Err(ServerFault::new(
            "read whose a folder is to be",
            input.to.clone(),
        )),
    }
}

fn now_of(server: &Server) -> Timestamp {
    server.clock().now()
}

/// The copy that is under way, for a user who may still make a copy of what it is one of, and folders of its owner.
///
/// Errors: `folder.not-found`, `folder.not-cloneable`.
fn copied(
    view: &ReadTransaction<'_>,
    user: UserId,
    (from, to): (FolderId, FolderId),
    now: Timestamp,
) -> Result<Folder, Failure> {
    let missing = || Failure::from(refusals::folder_not_found());
    let source = view.folder(from)?.map(|found| found.folder);
    let source = source.filter(|source| source.state == FolderState::Ready);
    let source = source.ok_or_else(missing)?;
    let right = view.right_to_files(user, &source, now)?;
    let copy = view.folder(to)?.map(|found| found.folder);
    let copy = copy.filter(|copy| copy.state == FolderState::Copying && right.is_some());
    let copy = copy.ok_or_else(missing)?;
    if !source.is_cloneable && !owns(view, user, source.owner, now)? {
        return Err(refusals::folder_not_cloneable(&source.name).into());
    }
    match acts_for(view, user, copy.owner, now)? {
        true => Ok(copy),
        false => Err(missing()),
    }
}

/// Whether a user is an owner, or leads the project that is.
fn owns(
    view: &ReadTransaction<'_>,
    user: UserId,
    owner: FolderOwner,
    now: Timestamp,
) -> Result<bool, Failure> {
    match owner {
        FolderOwner::User(owner) => Ok(owner == user),
        FolderOwner::Project(project) => {
            let found = view.user(user)?;
            Ok(found.is_some_and(|found| leads(&found.grants_at(now), project)))
        }
    }
}

/// The folder that is on its way, for a user who may still take it over.
///
/// Errors: `folder.not-found`.
fn moving(
    view: &ReadTransaction<'_>,
    user: UserId,
    to: FolderOwner,
    id: FolderId,
    now: Timestamp,
) -> Result<Folder, Failure> {
    let may = acts_for(view, user, to, now)?;
    let found = view.folder(id)?.map(|found| found.folder);
    let found = found.filter(|one| may && one.state == FolderState::Transferring);
    Ok(found.ok_or_else(refusals::folder_not_found)?)
}

/// Whether a user, whose account is not closed, is the owner that a folder is to have, or leads the project that is, which is
/// not archived.
fn acts_for(
    view: &ReadTransaction<'_>,
    user: UserId,
    owner: FolderOwner,
    now: Timestamp,
) -> Result<bool, Failure> {
    let Some(found) = view.user(user)?.filter(|found| !found.suspended) else {
        return Ok(false);
    };
    let project = match owner {
        FolderOwner::User(owner) => return Ok(owner == user),
        FolderOwner::Project(project) => project,
    };
    let state = view.project(project)?.map(|found| found.state);
    Ok(state == Some(TenantState::Active) && leads(&found.grants_at(now), project))
}

/// Waits for changes of files that were begun: no new one begins in a folder that is on its way.
pub(super) fn stand_still(job: &RunningJob<'_>) -> Result<(), JobFailure> {
    let until = Instant::now() + STILL;
    while Instant::now() < until {
        if job.is_closing() {
            return Err(JobFailure::Interrupted);
        }
        if job.is_stopped() {
            return Err(refusals::folder_copy_cancelled().into());
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// The bytes of a snapshot that is as it was when a copy of it was asked for.
///
/// Errors: `folder.snapshot-not-found`.
fn still_ready(
    view: &ReadTransaction<'_>,
    folder: FolderId,
    part: &SnapshotPart,
) -> Result<u64, Failure> {
    let found = ready(view, folder, part.number)?;
    match found.created_at == part.created_at {
        true => Ok(found.bytes.unwrap_or(0)),
        false => Err(refusals::folder_snapshot_not_found(part.number).into()),
    }
}

/// What a copy is told at each name and piece: how far it is, and whether it goes on.
pub(super) fn watch<'a>(
    server: &'a Server,
    job: &'a RunningJob<'a>,
    total: u64,
    allowed: &'a dyn Fn(&ReadTransaction<'_>) -> Result<(), Failure>,
) -> impl FnMut(u64) -> Result<(), FolderError> + 'a {
    let mut looked_at = Instant::now();
    move |done| {
        if job.is_stopped() {
            return Err(refusals::folder_copy_cancelled().into());
        }
        if looked_at.elapsed() >= RIGHTS_LOOK {
            looked_at = Instant::now();
            let look = "look whether a copy may go on";
            server
                .catalog()
                .read_now(look, allowed)
                .map_err(|failure| match failure {
                    Failure::Refusal(refusal) => refusal,
                    Failure::Fault(fault) => {
                        let error = base::observe::chain(&fault);
                        tracing::error!(%error, "it is not known whether a copy may go on");
                        refusals::server_job_failed()
                    }
                })?;
        }
        job.report(JobProgress {
            step: "copying files".to_owned(),
            done: done.min(total),
            total,
        });
        Ok(())
    }
}
