//! Makes snapshots of folders, by hand and by schedule, and removes the files of those that went. A crash leaves an open row; the
//! next start does all of it again. One that is not whole goes with its row. Scheduled ones give way where all snapshots of an
//! owner would take more than they may, and one at a time where a new one found no room; those by hand never do.

use std::collections::BTreeMap;
use std::time::Duration;

use base::observe::chain;
use rules::codes::{DISK_FULL, POOL_FULL, QUOTA_EXCEEDED};
use rules::folder::{Folder, FolderState};
use rules::folder_rights::FolderRight;
use rules::folder_snapshot::{
    FolderSnapshot, SnapshotState, first_to_go, giving_way, history_limit, refuse_no_room,
};
use rules::names::{FolderId, OperationId, UserId};
use rules::refusal::Refusal;
use rules::refusals;
use rules::units::Timestamp;
use serde_json::json;

use super::folder_copies::watch;
use super::outcome::{JobFailure, JobProgress, JobResult};
use super::runner::{JobKind, RunningJob};
use crate::actions::folders::note;
use crate::actions::folders::snapshots::{begin_due, drop_all};
use crate::actions::storage::folder_limit;
use crate::actions::volumes::on_volume;
use crate::appliance::lazy_stores::{folder_error, folder_failure};
use crate::catalog::job_kinds::{FOLDER_SNAPSHOT, FolderSnapshotInput};
use crate::catalog::jobs::OperationRow;
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::{Failure, Server, ServerFault, WeakServer};

/// Snapshots that are made at once. More: sessions wait longer for the disk. Fewer: users wait for each other.
const AT_ONCE: usize = 2;
/// Names that are counted to tell how far a snapshot is. Higher: it begins later. Lower: its progress is less true.
const MAX_COUNTED: u64 = 1_000_000;
/// Between two looks at schedules and at what has to go. Longer: room comes back later. Shorter: more reads.
const LOOK: Duration = Duration::from_secs(5);
/// Who removed one that gave way, in the journal.
const ACTOR: &str = "retention";

/// Looks, until it is dropped.
pub(crate) async fn keep(server: Server) {
    tell_of_disk(&server).await;
    loop {
        tokio::time::sleep(LOOK).await;
        if let Err(failure) = begin_due(&server).await {
            tracing::error!(error = %chain(&failure), "schedules of snapshots were not looked at");
        }
        if let Err(failure) = remove_dropped(&server).await {
            tracing::error!(error = %chain(&failure), "files of removed snapshots stay");
        }
    }
}

/// Tries once at the start whether files share blocks on the own disk, and says so in the log.
async fn tell_of_disk(server: &Server) {
    let asked = server.clone();
    let tried = tokio::task::spawn_blocking(move || -> Result<bool, Failure> {
        asked
            .folders()?
            .shares_blocks_here()
            .map_err(folder_failure)
    });
    match tried.await {
        Ok(Ok(shares)) => tracing::info!(shares, "snapshots of folders on the own disk"),
        Ok(Err(failure)) => {
            tracing::warn!(error = %chain(&failure), "it is not known whether files share blocks");
        }
        Err(error) => tracing::error!(%error, "the disk of folders was not tried"),
    }
}

/// Removes the files of snapshots that went, then their rows. What cannot be removed keeps no other one.
pub(crate) async fn remove_dropped(server: &Server) -> Result<(), Failure> {
    let dropped = server
        .catalog()
        .read_now("look for removed snapshots", |view| {
            let mut dropped = Vec::new();
            for one in view.snapshots_to_remove()? {
                if !is_on_its_way(view, one.folder)? {
                    dropped.push(one);
                }
            }
            Ok(dropped)
        })?;
    for one in dropped {
        let store = server.folders()?;
        let (folder, number) = (one.folder, one.number);
        if !store.is_near(folder) && store.volume_of(folder).is_some() {
            continue;
        }
        let (shelf, volume) = (store.volumes().clone(), store.volume_of(folder));
        let remove = move || store.remove_snapshot(folder, number);
        let removed = match volume {
            Some(volume) => on_volume(&shelf, volume, remove).await,
            None => tokio::task::spawn_blocking(remove)
                .await
                .map_err(|error| ServerFault::new("remove a snapshot", error).into()),
        };
        match removed.and_then(|removed| removed.map_err(folder_failure)) {
            Ok(()) => {
                server
                    .catalog()
                    .write(
                        Lane::Loops,
                        "forget a snapshot",
                        move |rows| match is_on_its_way(rows, folder)? {
                            true => Ok(()),
                            false => rows.forget_snapshot(folder, number),
                        },
                    )
                    .await?;
            }
            Err(failure) => {
                tracing::warn!(%folder, number, error = %chain(&failure), "files of a removed snapshot stay");
            }
        }
    }
    Ok(())
}

/// Whether the files of a folder are being copied to another owner: what is removed here is there by then, and goes there.
fn is_on_its_way(view: &ReadTransaction<'_>, folder: FolderId) -> Result<bool, Failure> {
    let found = view.folder(folder)?;
    Ok(found.is_some_and(|found| found.folder.state == FolderState::Transferring))
}

/// The snapshots of one server.
pub(crate) struct SnapshotJobs(pub(crate) WeakServer);

impl JobKind for SnapshotJobs {
    fn name(&self) -> &'static str {
        FOLDER_SNAPSHOT
    }

    fn thread(&self) -> &'static str {
        "snapshots"
    }

    fn at_once(&self) -> usize {
        AT_ONCE
    }

    fn run(&self, job: &RunningJob<'_>) -> Result<JobResult, JobFailure> {
        let server = self.0.upgrade().ok_or(JobFailure::Interrupted)?;
        let FolderSnapshotInput { folder, number, .. } = input(job.row)?;
        let user = job.row.user;
        let store = server.folders()?;
        let whole = store.measure_files(folder, MAX_COUNTED);
        let whole = whole.map_err(folder_failure)?;
        let look = |view: &ReadTransaction<'_>| -> Result<_, Failure> {
            let (found, _) = making(view, user, (folder, number), server.clock().now())?;
            let limit = limit_of(view, &found, &server)?;
            if let Some((all, limit)) = limit {
                refuse_no_room(&all, whole.bytes, limit)?;
            }
            Ok((is_written(view, folder)?, found.used_at))
        };
        let (was_written, used_at) = server
            .catalog()
            .read_now("look at a folder to keep", look)?;
        let allowed = |view: &ReadTransaction<'_>| {
            making(view, user, (folder, number), server.clock().now()).map(|_| ())
        };
        let mut watch = watch(&server, job, whole.bytes, &allowed);
        let size = match store.take_snapshot(folder, number, &mut watch) {
            Ok(size) => size,
            Err(error) => {
                if matches!(error.code(), Some(DISK_FULL | POOL_FULL | QUOTA_EXCEEDED)) {
                    make_room(&server, folder)?;
                }
                return Err(folder_error(error).into());
            }
        };
        let writing = server.clone();
        Ok(Box::new(move |rows| {
            let (found, mut made) = making(rows, user, (folder, number), rows.now)?;
            // Counted by now: the folder may have grown, and others may have been made meanwhile.
            if let Some((all, limit)) = limit_of(rows, &found, &writing)? {
                refuse_no_room(&all, size.bytes, limit)?;
            }
            // Launches and changes from outside leave another time there.
            let is_touched = was_written || found.used_at != used_at;
            made.is_frozen = !is_touched && !is_written(rows, folder)?;
            made.bytes = Some(size.bytes);
            made.entries = Some(size.entries);
            rows.end_snapshot(&made)?;
            let told = number.to_string();
            let code = "folder.snapshot-made";
            note(
                rows,
                &made.created_by,
                &found,
                code,
                (made.origin.word(), told.as_str()),
            )?;
            let schedule = rows.snapshot_schedule(folder)?;
            if let Some(record) = schedule {
                let all = rows.folder_snapshots(folder)?;
                drop_all(rows, ACTOR, &found, &record.schedule.beyond(&all))?;
            }
            give_way(rows, &found, &writing)?;
            Ok(json!({"folder": folder, "name": found.name, "number": number}))
        }))
    }

    fn cancelled(&self) -> Refusal {
        refusals::folder_copy_cancelled()
    }

    fn waiting(&self) -> Option<JobProgress> {
        Some(JobProgress {
            step: "waiting".to_owned(),
            done: 0,
            total: 0,
        })
    }

    /// What there is of it goes; where that fails, the next one of its number removes it.
    fn discard(&self, row: &OperationRow, _refusal: &Refusal) {
        let Some(server) = self.0.upgrade() else {
            return;
        };
        let removed = input(row).map_err(Failure::from).and_then(|input| {
            let store = server.folders()?;
            store
                .remove_snapshot(input.folder, input.number)
                .map_err(folder_failure)
        });
        if let Err(failure) = removed {
            tracing::warn!(error = %chain(&failure), "a half-made snapshot stays on the disk");
        }
    }

    fn give_up(&self, rows: &Rows<'_>, job: OperationId) -> Result<(), Failure> {
        let Some(row) = rows.operation(job)? else {
            return Ok(());
        };
        let FolderSnapshotInput { folder, number, .. } = input(&row)?;
        let found = rows.folder_snapshot(folder, number)?;
        match found.is_some_and(|found| found.state == SnapshotState::Making) {
            true => rows.forget_snapshot(folder, number),
            false => Ok(()),
        }
    }
}

/// What the owner's snapshots may take, with those that there are; None on a volume.
fn limit_of(
    view: &ReadTransaction<'_>,
    folder: &Folder,
    server: &Server,
) -> Result<Option<(Vec<FolderSnapshot>, u64)>, Failure> {
    if folder.volume.is_some() {
        return Ok(None);
    }
    let all = view.snapshots_of_owner(folder.owner)?;
    let now = server.clock().now();
    let limit = folder_limit(view, folder.owner, folder.domain, now)?;
    Ok(Some((all, history_limit(limit.0))))
}

/// Lets the oldest scheduled snapshots of an owner go until the others take no more than they may.
fn give_way(rows: &Rows<'_>, folder: &Folder, server: &Server) -> Result<(), Failure> {
    let Some((all, limit)) = limit_of(rows, folder, server)? else {
        return Ok(());
    };
    let mut gone: BTreeMap<FolderId, Vec<u32>> = BTreeMap::new();
    for (folder, number) in giving_way(&all, limit) {
        gone.entry(folder).or_default().push(number);
    }
    for (id, numbers) in gone {
        if let Some(found) = rows.folder(id)? {
            drop_all(rows, ACTOR, &found.folder, &numbers)?;
        }
    }
    Ok(())
}

/// Lets the oldest scheduled snapshot of a folder go where there was no room for a new one: the next try finds more.
fn make_room(server: &Server, folder: FolderId) -> Result<(), Failure> {
    let what = "let a snapshot of a folder give way";
    server.catalog().write_now(Lane::Loops, what, move |rows| {
        let all = rows.folder_snapshots(folder)?;
        match (first_to_go(&all), rows.folder(folder)?) {
            (Some(number), Some(found)) => drop_all(rows, ACTOR, &found.folder, &[number]),
            _ => Ok(()),
        }
    })
}

/// The folder and the snapshot of it that is on its way, for a user who may still make one.
///
/// Errors: `folder.not-found`, `folder.snapshot-not-found`.
fn making(
    view: &ReadTransaction<'_>,
    user: UserId,
    (folder, number): (FolderId, u32),
    now: Timestamp,
) -> Result<(Folder, FolderSnapshot), Failure> {
    let found = view.folder(folder)?.map(|found| found.folder);
    let found = found.filter(|found| found.state == FolderState::Ready);
    let found = found.ok_or_else(refusals::folder_not_found)?;
    let is_open = view.user(user)?.is_some_and(|user| !user.suspended);
    let right = view.right_to_files(user, &found, now)?;
    if !is_open || right != Some(FolderRight::Rwd) {
        return Err(refusals::folder_not_found().into());
    }
    let made = view.folder_snapshot(folder, number)?;
    let made = made.filter(|made| made.state == SnapshotState::Making);
    let made = made.ok_or_else(|| refusals::folder_snapshot_not_found(number))?;
    Ok((found, made))
}

/// Whether a session that is not over may write to a folder. O(live sessions).
fn is_written(view: &ReadTransaction<'_>, folder: FolderId) -> Result<bool, Failure> {
    let live = view.live_sessions()?;
    let mut mounts = live.iter().flat_map(|session| session.mounts.iter());
    Ok(mounts.any(|mount| mount.folder == folder && !mount.read_only))
}

fn input(row: &OperationRow) -> Result<FolderSnapshotInput, ServerFault> {
    serde_json::from_value(row.input.clone())
        .map_err(|error| ServerFault::new("read which snapshot to make", error))
}
