//! Giving a folder a limit of its own: a part of what its owner's folders may take, or, by an administrator, on top of that;
//! on a volume, where nothing but a count holds it, by an administrator alone.
//! Where limits are held its files move once; `jobs::folder_limits` does that, and no session may mount it meanwhile.

use api::folders::{FolderLimitBody, FolderView};
use rules::folder::{Folder, FolderState, OwnLimit, ScopeOwner};
use rules::folder_rights::FolderVerb;
use rules::names::FolderId;
use rules::permissions::{Permission, may};
use rules::refusals;
use rules::storage::{MAX_FOLDER_BYTES, MIN_FOLDER_BYTES, StorageEnforcement, own_limit_room};
use rules::tenancy::Scope;
use rules::units::{Bytes, Timestamp};

use super::copies::begin;
use super::sharing::sessions_of;
use super::{again, find, note, permitted, refuse_mounted, refuse_unready};
use crate::access::Caller;
use crate::actions::somewhere;
use crate::actions::storage::{MAX_COUNTED, enforcement, whole_limit};
use crate::actions::volumes::{on_volume, refuse_silent};
use crate::appliance::lazy_stores::folder_failure;
use crate::catalog::job_kinds::{FOLDER_LIMIT, FolderLimitInput};
use crate::catalog::{Lane, ReadTransaction};
use crate::{Failure, Server, ServerFault};

/// What takes how much before a limit changes.
#[derive(Debug, Clone, Copy)]
struct SeenUse {
    folder: Bytes,
    /// All that counts on the limit of the owner, the folder included where it does.
    owner: Bytes,
}

/// Lets a folder take so many bytes by itself, or count on the limit of its owner's folders again. Where its files have to move
/// first it is `transferring` until they have.
///
/// Errors: `folder.not-found`, `folder.ambiguous`, `folder.owner-only`, `folder.limit-volume`, `folder.limit-size`,
/// `folder.limit-below-use`, `folder.limit-beyond`, `quota.exceeded`, `folder.mounted`, `folder.in-trash`, `folder.copying`,
/// `folder.transferring`, `folder.purging`, `operation.too-many`, `volume.absent`, `volume.hung`.
pub async fn set(
    server: &Server,
    caller: &Caller,
    which: &str,
    asked: FolderLimitBody,
) -> Result<FolderView, Failure> {
    somewhere(caller, Permission::SessionsWrite)?;
    let now = server.clock().now();
    let folder = server.catalog().read_now("look at a folder", |view| {
        let folder = find(view, caller, which, FolderState::Ready, now)?.folder;
        let is_on_top = may_add(view, caller, &folder, now)?;
        refuse_volume(&folder, is_on_top)?;
        refuse_size(asked.bytes)?;
        Ok(Folder {
            own_limit: asked.bytes.map(|bytes| OwnLimit {
                bytes: Bytes(bytes),
                is_on_top,
            }),
            ..folder
        })
    })?;
    let (wanted, id) = (folder.own_limit, folder.id);
    let enforcement = match folder.volume {
        Some(_) => StorageEnforcement::Counted,
        None => enforcement(server).await?,
    };
    let seen = seen(server, id, enforcement).await?;
    let by = caller.clone();
    let (shown, moves) = server
        .catalog()
        .write(Lane::Requests, "limit a folder", move |rows| {
            let before = find(rows, &by, &id.to_string(), FolderState::Ready, rows.now)?.folder;
            let is_on_top = may_add(rows, &by, &before, rows.now)?;
            refuse_volume(&before, is_on_top)?;
            refuse_unready(&before)?;
            if before.own_limit == wanted {
                return Ok((again(rows, &by, id, rows.now)?, false));
            }
            let mut after = Folder {
                own_limit: wanted,
                ..before.clone()
            };
            refuse_room(rows, &before, &after, seen, rows.now)?;
            let is_elsewhere = before.limited_by() != after.limited_by();
            let moves = enforcement.is_enforced() && is_elsewhere;
            let [was, is] = [&before, &after].map(|one| one.own_limit.map(|own| own.bytes));
            let [was_told, is_told] =
                [was, is].map(|bytes| bytes.map_or_else(String::new, |bytes| bytes.to_string()));
            if moves {
                refuse_mounted(&before, &sessions_of(rows, id)?)?;
                after.state = FolderState::Transferring;
                let input = FolderLimitInput {
                    folder: id,
                    before: was.map(|bytes| bytes.0),
                    was_on_top: before.own_limit.is_some_and(|own| own.is_on_top),
                    bytes: is.map(|bytes| bytes.0),
                    file: before.name.to_string(),
                };
                begin(rows, &by, FOLDER_LIMIT, &input)?;
            }
            rows.put_folder(&after)?;
            if !moves {
                let told = (was_told.as_str(), is_told.as_str());
                note(rows, by.name.as_str(), &after, "folder.limit-set", told)?;
            }
            Ok((again(rows, &by, id, rows.now)?, moves))
        })
        .await?;
    match (moves, wanted) {
        (true, _) => server.jobs().wake(FOLDER_LIMIT)?,
        (false, Some(own)) if enforcement.is_enforced() => hold(server, id, own.bytes).await?,
        (false, _) => {}
    }
    Ok(shown)
}

/// Whether a limit of the caller's comes on top of the owner's: they are an administrator. Else they have to be the owner.
///
/// Errors: `folder.owner-only`; as `permitted`.
fn may_add(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    folder: &Folder,
    now: Timestamp,
) -> Result<bool, Failure> {
    if adds(caller) {
        permitted(view, &caller.subject, folder, FolderVerb::See, now)?;
        return Ok(true);
    }
    permitted(view, &caller.subject, folder, FolderVerb::Transfer, now)?;
    Ok(false)
}

/// Whether limits of the caller's come on top of those of owners.
pub fn adds(caller: &Caller) -> bool {
    may(&caller.subject, Permission::SystemWrite, &Scope::SITE).is_ok()
}

/// Refuses a limit that an owner sets on a volume: their other folders there are held to none, of which it were a part.
///
/// Errors: `folder.limit-volume`.
fn refuse_volume(folder: &Folder, is_on_top: bool) -> Result<(), Failure> {
    match folder.volume.is_some() && !is_on_top {
        true => Err(refusals::folder_limit_volume(&folder.name).into()),
        false => Ok(()),
    }
}

/// Errors: `folder.limit-size`.
fn refuse_size(bytes: Option<u64>) -> Result<(), Failure> {
    let (least, most) = (MIN_FOLDER_BYTES, MAX_FOLDER_BYTES);
    match bytes.is_none_or(|bytes| (least.0..=most.0).contains(&bytes)) {
        true => Ok(()),
        false => Err(refusals::folder_limit_size(least, most).at("/bytes").into()),
    }
}

/// Refuses a limit that is below what the folder takes, or for which the owner's has no room; and the end of one, where what it
/// takes does not fit into the owner's.
///
/// Errors: `folder.limit-below-use`, `folder.limit-beyond`, `quota.exceeded`.
fn refuse_room(
    view: &ReadTransaction<'_>,
    before: &Folder,
    after: &Folder,
    seen: SeenUse,
    now: Timestamp,
) -> Result<(), Failure> {
    if before.volume.is_some() {
        return refuse_below(before, after, seen.folder);
    }
    let whole = whole_limit(view, before.owner, before.domain, now)?;
    let own = before.own_limit.filter(|own| !own.is_on_top);
    let aside = view.set_aside(before.owner)?;
    let others = Bytes(aside.0.saturating_sub(own.map_or(0, |own| own.bytes.0)));
    // What of the owner's use is not the folder's.
    let rest = match before.own_limit {
        Some(_) => seen.owner,
        None => Bytes(seen.owner.0.saturating_sub(seen.folder.0)),
    };
    let Some(wanted) = after.own_limit else {
        let left = Bytes(whole.0.saturating_sub(others.0));
        let used = Bytes(rest.0.saturating_add(seen.folder.0));
        return match used > left {
            true => Err(refusals::quota_exceeded(used, left).into()),
            false => Ok(()),
        };
    };
    refuse_below(before, after, seen.folder)?;
    let room = own_limit_room(whole, others, rest);
    match wanted.is_on_top || wanted.bytes <= room {
        true => Ok(()),
        false => Err(refusals::folder_limit_beyond(room).at("/bytes").into()),
    }
}

/// Errors: `folder.limit-below-use`.
fn refuse_below(before: &Folder, after: &Folder, used: Bytes) -> Result<(), Failure> {
    match after.own_limit.is_some_and(|wanted| wanted.bytes < used) {
        true => {
            let refusal = refusals::folder_limit_below_use(&before.name, used);
            Err(refusal.at("/bytes").into())
        }
        false => Ok(()),
    }
}

/// What a folder takes, and all that counts on the limit of its owner: as the kernel says where it holds them, else as it was
/// counted last. Costs a visit of each file of a folder that was not counted yet.
async fn seen(
    server: &Server,
    id: FolderId,
    enforcement: StorageEnforcement,
) -> Result<SeenUse, Failure> {
    let found = server
        .catalog()
        .read_now("look what folders take", |view| {
            let found = view.folder(id)?.ok_or_else(refusals::folder_not_found)?;
            let all = view.folders_of(found.folder.owner)?.into_iter();
            let all = all.map(|one| one.folder);
            let all = all.filter(|one| one.volume.is_none() && one.own_limit.is_none());
            let counted = all.filter_map(|one| one.counted);
            let counted: u64 = counted.map(|counted| counted.bytes).sum();
            Ok((found.folder, Bytes(counted)))
        })?;
    let (shelf, volume) = (server.folders()?.volumes().clone(), found.0.volume);
    let server = server.clone();
    let look = move || -> Result<SeenUse, Failure> {
        let (folder, counted) = found;
        let store = server.folders()?;
        let keeper = store.keeper();
        let measured = |owner: ScopeOwner| -> Result<Option<Bytes>, Failure> {
            if !enforcement.is_enforced() {
                return Ok(None);
            }
            let taken = keeper
                .measure(&store.scope(owner))
                .map_err(folder_failure)?;
            Ok(taken.map(|taken| taken.used))
        };
        let known = folder.counted.map(|counted| Bytes(counted.bytes));
        let own = match folder.own_limit {
            Some(_) => measured(ScopeOwner::Folder(folder.id))?.or(known),
            None => known,
        };
        let own = match own {
            Some(own) => own,
            None => {
                let size = store.measure(folder.id, MAX_COUNTED);
                Bytes(size.map_err(folder_failure)?.bytes)
            }
        };
        let owner = measured(ScopeOwner::Owner(folder.owner))?;
        Ok(SeenUse {
            folder: own,
            owner: owner.unwrap_or(counted),
        })
    };
    if let Some(volume) = volume {
        refuse_silent(&shelf, volume)?;
        return on_volume(&shelf, volume, look).await?;
    }
    tokio::task::spawn_blocking(look)
        .await
        .map_err(|error| ServerFault::new("measure a folder", error))?
}

/// Holds a folder to its own limit from now on.
async fn hold(server: &Server, id: FolderId, bytes: Bytes) -> Result<(), Failure> {
    let server = server.clone();
    let held = tokio::task::spawn_blocking(move || {
        let store = server.folders()?;
        let scope = store.scope(id);
        // One that was limited before limits could be held lies in none.
        match scope.directory().is_dir() {
            true => store
                .keeper()
                .hold_to(&scope, bytes)
                .map_err(folder_failure),
            false => Ok(()),
        }
    });
    held.await
        .map_err(|error| ServerFault::new("hold a folder to its limit", error))?
}

#[cfg(test)]
mod tests;
