//! Earlier states of folders: users make some by hand, set a schedule that makes others, look into them, and take files back out.
//! `jobs::folder_snapshots` makes and removes their files. Who may share a folder says which there are; who may read its files
//! reads them.

use api::folder_snapshots::{
    FolderSnapshotRestoreBody, FolderSnapshotScheduleBody, FolderSnapshotScheduleView,
    FolderSnapshotsView, NewFolderFromSnapshotBody,
};
use api::folders::{FolderEntryQuery, FolderEntryView, NewFolderCopyBody};
use api::operations::OperationView;
use api::page::ListPage;
use base::observe::chain;
use rules::codes::{DISK_FULL, DISK_READ_ONLY, OPERATION_TOO_MANY, POOL_FULL, QUOTA_EXCEEDED};
use rules::folder::{Folder, FolderState};
use rules::folder_path::FolderPath;
use rules::folder_rights::{FolderRight, FolderVerb, speaks_for};
use rules::folder_snapshot::{
    FolderSnapshot, MAX_HAND_SNAPSHOTS, SnapshotOrigin, SnapshotSchedule, SnapshotState,
    history_limit,
};
use rules::names::{FolderId, OperationId, UserId};
use rules::permissions::Permission;
use rules::refusals;
use store::folders::FolderStore;
use store::folders::failure::FolderError;
use store::folders::listing::EntryQuery;
use store::folders::position::EntryPosition;

use super::copies::{FolderOperation, begin_copy, begin_for, ready};
use super::files::{
    DirectoryPage, FileDownload, MAX_PAGE_ENTRIES, MAX_WORDS, PAGE, change_files, download_of,
    folder_for, may_still, on_files, parsed, view,
};
use super::{find, note, permitted, refuse_unready};
use crate::access::Caller;
use crate::actions::operations::show;
use crate::actions::storage::folder_limit;
use crate::actions::{IdempotencyKey, Once, allowed, cursor};
use crate::catalog::job_kinds::{FOLDER_SNAPSHOT, FolderSnapshotInput};
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::{Failure, Server, ServerFault};

/// Scheduled snapshots that are on their way at once. Higher: at the full hour users cannot begin work of their own. Lower:
/// some of them wait for longer.
const MAX_SCHEDULED: usize = 4;
/// Why a disk cannot be tried, which says nothing of whether it shares blocks.
const UNTRIED: [&str; 4] = [DISK_FULL, DISK_READ_ONLY, POOL_FULL, QUOTA_EXCEEDED];

/// The snapshots of a folder, its schedule, and whether one can be made where it lies.
///
/// Errors: those of `files::list` on a folder.
pub async fn list(
    server: &Server,
    caller: &Caller,
    which: &str,
) -> Result<(Folder, FolderSnapshotsView), Failure> {
    let done = on_files(server, caller, which, FolderVerb::Read, |store, folder| {
        is_offered(store, folder.id)
    });
    let (folder, offered) = done.await?;
    let now = server.clock().now();
    // What else its owner has is nothing to those whom it is shared with.
    let is_told = folder.volume.is_none() && speaks_for(&caller.subject, folder.owner);
    server
        .catalog()
        .read("list snapshots of a folder", move |view| {
            let all = view.folder_snapshots(folder.id)?;
            let schedule = view.snapshot_schedule(folder.id)?;
            let (used, limit) = match is_told {
                false => (all.iter().filter_map(|one| one.bytes).sum(), None),
                true => {
                    let of_owner = view.snapshots_of_owner(folder.owner)?;
                    let most = folder_limit(view, folder.owner, folder.domain, now)?;
                    let used = of_owner.iter().filter_map(|one| one.bytes).sum();
                    (used, Some(history_limit(most.0)))
                }
            };
            let shown = all
                .into_iter()
                .filter(|one| one.state != SnapshotState::Removing);
            let shown = FolderSnapshotsView {
                items: shown.map(Into::into).collect(),
                schedule: schedule
                    .map(|record| record.schedule)
                    .unwrap_or_default()
                    .into(),
                offered,
                used,
                limit,
            };
            Ok((folder, shown))
        })
        .await
}

/// Begins to make a snapshot of a folder; gives the operation, whose result names its number.
///
/// Errors: as `list`; `folder.right-missing`, `folder.snapshot-unavailable`, `folder.snapshot-making`, `folder.snapshots-many`,
/// `operation.too-many`.
pub async fn create(
    server: &Server,
    caller: &Caller,
    which: &str,
) -> Result<OperationView, Failure> {
    allowed(caller, Permission::SessionsWrite)?;
    refuse_unoffered(server, caller, which).await?;
    let (asking, which) = (caller.clone(), which.to_owned());
    let begun = server
        .catalog()
        .write(
            Lane::Requests,
            "begin a snapshot of a folder",
            move |rows| {
                let folder = shared(rows, &asking, &which)?;
                let all = rows.folder_snapshots(folder.id)?;
                let by_hand = all.iter().filter(|one| {
                    one.origin == SnapshotOrigin::Hand && one.state != SnapshotState::Removing
                });
                if by_hand.count() >= MAX_HAND_SNAPSHOTS {
                    return Err(refusals::folder_snapshots_many(MAX_HAND_SNAPSHOTS).into());
                }
                let who = (asking.subject.user, asking.name.as_str());
                let id = begin(rows, who, &folder, &all, SnapshotOrigin::Hand)?;
                let row = rows.operation(id)?;
                row.ok_or_else(|| {
                    ServerFault::new("begin a snapshot of a folder", "its row is gone").into()
                })
            },
        )
        .await?;
    server.jobs().wake(FOLDER_SNAPSHOT)?;
    Ok(show(server, begun))
}

/// The snapshot of a folder that is on its way, as far as the caller may call it off; None for none.
///
/// Errors: as `list`.
pub async fn under_way(
    server: &Server,
    caller: &Caller,
    which: &str,
) -> Result<Option<FolderOperation>, Failure> {
    let folder = folder_for(server, caller, which, FolderVerb::Read)?;
    let open = server
        .catalog()
        .read_now("list open work on folders", |view| view.open_operations())?;
    let row = open.into_iter().find(|row| {
        let input = serde_json::from_value::<FolderSnapshotInput>(row.input.clone());
        row.kind == FOLDER_SNAPSHOT
            && row.user == caller.subject.user
            && input.is_ok_and(|input| input.folder == folder.id)
    });
    Ok(row.map(|row| {
        let seen = server.jobs().progress(row.id);
        let (done, total) = seen.map_or((0, 0), |seen| (seen.done, seen.total));
        FolderOperation {
            folder: folder.id,
            operation: row.id,
            done,
            total,
        }
    }))
}

/// Removes a snapshot. The room that it takes comes back a moment later.
///
/// Errors: as `create`; `folder.snapshot-not-found`.
pub async fn remove(
    server: &Server,
    caller: &Caller,
    which: &str,
    number: u32,
) -> Result<(), Failure> {
    allowed(caller, Permission::SessionsWrite)?;
    let (caller, which) = (caller.clone(), which.to_owned());
    server
        .catalog()
        .write(
            Lane::Requests,
            "remove a snapshot of a folder",
            move |rows| {
                let folder = shared(rows, &caller, &which)?;
                let found = ready(rows, folder.id, number)?;
                drop_all(rows, caller.name.as_str(), &folder, &[found.number])
            },
        )
        .await
}

/// Sets how many scheduled snapshots of a folder are kept. Those that are more than that go at once.
///
/// Errors: as `create`; `folder.snapshot-schedule`.
pub async fn set_schedule(
    server: &Server,
    caller: &Caller,
    which: &str,
    asked: FolderSnapshotScheduleBody,
) -> Result<FolderSnapshotScheduleView, Failure> {
    allowed(caller, Permission::SessionsWrite)?;
    let schedule = SnapshotSchedule::from(asked);
    schedule.check()?;
    if !schedule.is_off() {
        refuse_unoffered(server, caller, which).await?;
    }
    let (caller, which) = (caller.clone(), which.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "set a schedule of snapshots", move |rows| {
            let folder = shared(rows, &caller, &which)?;
            let before = rows.snapshot_schedule(folder.id)?;
            let before = before.map(|record| record.schedule).unwrap_or_default();
            match schedule.is_off() {
                true => rows.forget_snapshot_schedule(folder.id)?,
                false => rows.put_snapshot_schedule(folder.id, caller.subject.user, schedule)?,
            }
            let actor = caller.name.as_str();
            if before != schedule {
                let told = (words(before), words(schedule));
                let code = "folder.snapshot-schedule-set";
                note(rows, actor, &folder, code, (&told.0, &told.1))?;
            }
            let all = rows.folder_snapshots(folder.id)?;
            drop_all(rows, actor, &folder, &schedule.beyond(&all))?;
            Ok(schedule.into())
        })
        .await
}

/// One page of a directory of a snapshot, by name.
///
/// Errors: as `files::list`; `folder.snapshot-not-found`.
pub async fn entries(
    server: &Server,
    caller: &Caller,
    which: &str,
    number: u32,
    wanted: &FolderEntryQuery,
) -> Result<DirectoryPage, Failure> {
    let snapshot = known(server, caller, which, number)?;
    let limit = wanted.limit.unwrap_or(PAGE);
    let (path, words, asked) = (wanted.path.clone(), wanted.q.clone(), wanted.cursor.clone());
    let signing = server.catalog().founding().cursor_key;
    let done = on_files(
        server,
        caller,
        which,
        FolderVerb::Read,
        move |store, folder| {
            if !(1..=MAX_PAGE_ENTRIES).contains(&limit) {
                return Err(refusals::limit_out_of_range(MAX_PAGE_ENTRIES)
                    .at("/limit")
                    .into());
            }
            if words.len() > MAX_WORDS {
                return Err(refusals::query_too_long(words.len(), MAX_WORDS)
                    .at("/q")
                    .into());
            }
            let path = parsed(&path)?;
            let made_at = snapshot.created_at.as_millis();
            let bound = format!("snapshot|{}|{number}|{made_at}|{path}|{words}", folder.id);
            let after = match asked.as_deref().filter(|text| !text.is_empty()) {
                None => None,
                Some(text) => Some(cursor::read::<(bool, Vec<u8>)>(&signing, &bound, text)?),
            };
            let query = EntryQuery {
                after: after.map(|(is_behind, name)| EntryPosition { is_behind, name }),
                words,
                limit,
            };
            let page = store.list_snapshot(folder.id, number, &path, &query)?;
            let next = page.next.map(|last| (last.is_behind, last.name));
            let items = page.entries.into_iter();
            let items = items.filter_map(|one| Some(view(&path.child(&one.name)?, &one)));
            let list = ListPage {
                items: items.collect(),
                next_cursor: next.map(|last| cursor::write(&signing, &bound, &last)),
                estimated_total: page.total,
            };
            Ok((path.to_string(), list, page.whole))
        },
    );
    let (folder, (path, page, whole)) = done.await?;
    Ok(DirectoryPage {
        folder,
        path,
        page,
        whole,
    })
}

/// Opens an ordinary file of a snapshot to be taken.
///
/// Errors: as `entries`; `folder.entry-not-file`.
pub async fn open(
    server: &Server,
    caller: &Caller,
    which: &str,
    number: u32,
    path: &str,
) -> Result<FileDownload, Failure> {
    known(server, caller, which, number)?;
    let path = path.to_owned();
    let done = on_files(
        server,
        caller,
        which,
        FolderVerb::Read,
        move |store, folder| {
            let path = parsed(&path)?;
            let open = store.snapshot_file(folder.id, number, &path)?;
            Ok((path.shown_name(), open))
        },
    );
    let (folder, (name, open)) = done.await?;
    Ok(download_of(server, &folder, name, open))
}

/// Begins to fill a new folder with all of a snapshot, or with one path of it; gives the operation, whose result names the folder.
///
/// Errors: those of `copies::create`; `folder.snapshot-not-found`, `folder.path-invalid`, `folder.entry-not-found`.
pub async fn copy(
    server: &Server,
    caller: &Caller,
    which: &str,
    number: u32,
    asked: NewFolderFromSnapshotBody,
    key: Option<IdempotencyKey>,
) -> Result<Once<OperationView>, Failure> {
    let path = FolderPath::parse(&asked.path).map_err(|refusal| refusal.at("/path"))?;
    known(server, caller, which, number)?;
    let looked_for = path.clone();
    let looked = on_files(
        server,
        caller,
        which,
        FolderVerb::Clone,
        move |store, folder| {
            let found = store.snapshot_entry(folder.id, number, &looked_for);
            found.map(|_| ())
        },
    );
    looked.await?;
    let folder = NewFolderCopyBody {
        name: asked.name,
        project: asked.project,
    };
    let part = Some((number, path.to_string()));
    begin_copy(server, caller, which, folder, part, key).await
}

/// Puts one path of a snapshot back into its folder. What stands there is refused, or goes into the trash where that is asked.
///
/// Errors: as `entries`; `folder.right-missing`, `folder.entry-exists`, `folder.new-name-invalid`, `folder.copy-too-large`,
/// `quota.exceeded`, `disk.full`.
pub async fn restore(
    server: &Server,
    caller: &Caller,
    which: &str,
    number: u32,
    asked: FolderSnapshotRestoreBody,
) -> Result<FolderEntryView, Failure> {
    let volume = folder_for(server, caller, which, FolderVerb::Write)?.volume;
    let snapshot = known(server, caller, which, number)?;
    let turns = server.folder_turns();
    let place = turns.enter_copy(caller.subject.user, volume).await?;
    let (asked_of, whose) = (server.clone(), caller.clone());
    let now = server.clock().now();
    let how = |_: &FolderEntryView| Some("snapshot");
    let done = change_files(server, caller, which, how, move |store, folder| {
        let _place = place;
        let from = parsed(&asked.path)?;
        let to = match &asked.to {
            Some(to) => FolderPath::parse(to).map_err(|refusal| refusal.at("/to"))?,
            None => from.clone(),
        };
        // A disk that stutters ends no copy; the next look tells.
        let may = || {
            let right = may_still(&asked_of, &whose, folder.id, FolderVerb::Write);
            let held = right.and_then(|()| still(&asked_of, &snapshot));
            match held {
                Err(Failure::Refusal(refusal)) => Err(FolderError::from(refusal)),
                Err(Failure::Fault(_)) | Ok(()) => Ok(()),
            }
        };
        let replaces = asked.replace.then_some(now);
        store.restore_from_snapshot((folder.id, number), (&from, &to), replaces, &may)?;
        Ok(view(&to, &store.entry(folder.id, &to)?))
    });
    Ok(done.await?.1)
}

/// Refuses where no snapshot can be made of a folder.
///
/// Errors: as `create`.
async fn refuse_unoffered(server: &Server, caller: &Caller, which: &str) -> Result<(), Failure> {
    let done = on_files(server, caller, which, FolderVerb::Share, |store, folder| {
        is_offered(store, folder.id)
    });
    match done.await? {
        (_, true) => Ok(()),
        (_, false) => Err(refusals::folder_snapshot_unavailable().into()),
    }
}

/// Whether a snapshot can be made of a folder. A full or read-only disk cannot be tried: those that are there are listed and
/// removed all the same, and who makes one is told what is lacking.
fn is_offered(store: &FolderStore, folder: FolderId) -> Result<bool, FolderError> {
    match store.shares_blocks(folder) {
        Err(error) if error.code().is_some_and(|code| UNTRIED.contains(&code)) => Ok(true),
        known => known,
    }
}

/// A folder of which the caller may say which snapshots there are.
///
/// Errors: as `folder_for`.
fn shared(rows: &Rows<'_>, caller: &Caller, which: &str) -> Result<Folder, Failure> {
    let folder = find(rows, caller, which, FolderState::Ready, rows.now)?.folder;
    permitted(rows, &caller.subject, &folder, FolderVerb::Share, rows.now)?;
    refuse_unready(&folder)?;
    Ok(folder)
}

/// A snapshot of a folder whose files the caller may read.
///
/// Errors: as `folder_for`; `folder.snapshot-not-found`.
fn known(
    server: &Server,
    caller: &Caller,
    which: &str,
    number: u32,
) -> Result<FolderSnapshot, Failure> {
    let folder = folder_for(server, caller, which, FolderVerb::Read)?;
    server
        .catalog()
        .read_now("look for a snapshot", |view| ready(view, folder.id, number))
}

/// Refuses to go on with a snapshot that went meanwhile.
fn still(server: &Server, snapshot: &FolderSnapshot) -> Result<(), Failure> {
    let (folder, number) = (snapshot.folder, snapshot.number);
    let found = server
        .catalog()
        .read_now("look for a snapshot", |view| ready(view, folder, number))?;
    match found.created_at == snapshot.created_at {
        true => Ok(()),
        false => Err(refusals::folder_snapshot_not_found(number).into()),
    }
}

/// Writes a snapshot that is to be made, and its operation. One of a folder is made at a time.
fn begin(
    rows: &Rows<'_>,
    who: (UserId, &str),
    folder: &Folder,
    all: &[FolderSnapshot],
    origin: SnapshotOrigin,
) -> Result<OperationId, Failure> {
    if all.iter().any(|one| one.state == SnapshotState::Making) {
        return Err(refusals::folder_snapshot_making(&folder.name).into());
    }
    let number = rows.begin_snapshot(folder.id, origin, who.1)?;
    let input = FolderSnapshotInput {
        folder: folder.id,
        number,
        file: format!("{} #{number}", folder.name),
    };
    begin_for(rows, who, FOLDER_SNAPSHOT, &input)
}

/// Lets snapshots of a folder go, each with its event.
pub(crate) fn drop_all(
    rows: &Rows<'_>,
    actor: &str,
    folder: &Folder,
    numbers: &[u32],
) -> Result<(), Failure> {
    for number in numbers {
        rows.drop_snapshot(folder.id, *number)?;
        let told = number.to_string();
        note(
            rows,
            actor,
            folder,
            "folder.snapshot-removed",
            (told.as_str(), ""),
        )?;
    }
    Ok(())
}

fn words(schedule: SnapshotSchedule) -> String {
    let SnapshotSchedule {
        hourly,
        daily,
        weekly,
    } = schedule;
    format!("hourly {hourly}, daily {daily}, weekly {weekly}")
}

/// Begins the snapshots that schedules are due for. One that is refused is tried again in the next hour, and one for which too
/// much is under way at the next look. O(schedules), and O(snapshots) of those that were not tried in this hour.
pub(crate) async fn begin_due(server: &Server) -> Result<(), Failure> {
    let now = server.clock().now();
    let (due, mut room) = server
        .catalog()
        .read_now("look for snapshots that are due", |view| {
            let mut due = Vec::new();
            for record in view.snapshot_schedules()? {
                let is_due = |all: &[FolderSnapshot]| {
                    record.schedule.due(all, record.tried_at, now).is_some()
                };
                if is_due(&[]) && is_due(&view.folder_snapshots(record.folder)?) {
                    due.push(record.folder);
                }
            }
            let open = match due.is_empty() {
                true => 0,
                false => scheduled_under_way(view)?,
            };
            Ok((due, MAX_SCHEDULED.saturating_sub(open)))
        })?;
    let mut is_any = false;
    for folder in due {
        if room == 0 {
            break;
        }
        let begun =
            server
                .catalog()
                .write(Lane::Loops, "begin a scheduled snapshot", move |rows| {
                    begin_one(rows, folder)
                });
        match begun.await {
            Ok(true) => {
                room -= 1;
                is_any = true;
            }
            Ok(false) => {}
            Err(Failure::Refusal(refusal)) if refusal.code == OPERATION_TOO_MANY => {}
            Err(failure) => {
                tracing::warn!(%folder, error = %chain(&failure), "a scheduled snapshot is not made");
                server
                    .catalog()
                    .write(Lane::Loops, "note a scheduled snapshot", move |rows| {
                        rows.note_snapshot_try(folder)
                    })
                    .await?;
            }
        }
    }
    if is_any {
        server.jobs().wake(FOLDER_SNAPSHOT)?;
    }
    Ok(())
}

/// How many scheduled snapshots are on their way. O(open operations).
fn scheduled_under_way(view: &ReadTransaction<'_>) -> Result<usize, Failure> {
    let mut count = 0;
    for row in view.open_operations()? {
        if row.kind != FOLDER_SNAPSHOT {
            continue;
        }
        let Ok(input) = serde_json::from_value::<FolderSnapshotInput>(row.input) else {
            continue;
        };
        let made = view.folder_snapshot(input.folder, input.number)?;
        count += usize::from(made.is_some_and(|made| made.origin != SnapshotOrigin::Hand));
    }
    Ok(count)
}

/// Begins the one that is due of a folder; false where the user who set the schedule may not make one now.
fn begin_one(rows: &Rows<'_>, folder: FolderId) -> Result<bool, Failure> {
    let Some(record) = rows.snapshot_schedule(folder)? else {
        return Ok(false);
    };
    let all = rows.folder_snapshots(folder)?;
    let Some(origin) = record.schedule.due(&all, record.tried_at, rows.now) else {
        return Ok(false);
    };
    rows.note_snapshot_try(folder)?;
    let found = rows.folder(folder)?.map(|found| found.folder);
    let Some(found) = found.filter(|found| found.state == FolderState::Ready) else {
        return Ok(false);
    };
    let user = rows.user(record.user)?.filter(|user| !user.suspended);
    let right = rows.right_to_files(record.user, &found, rows.now)?;
    let (Some(user), Some(FolderRight::Rwd)) = (user, right) else {
        return Ok(false);
    };
    let who = (record.user, user.name.as_str());
    begin(rows, who, &found, &all, origin).map(|_| true)
}

#[cfg(test)]
mod tests;
