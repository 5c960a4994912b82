//! Giving a folder to another owner: its owner offers it, the receiver takes it, or a lead of the project that does. It counts
//! on the limit of the receiver from then on; shares of it end. `jobs::folder_copies` moves its files, which stand still
//! meanwhile: no session may mount it.

use std::collections::BTreeSet;

use api::folders::{FolderOwnerView, FolderTransferView, NewFolderTransferBody};
use api::operations::OperationView;
use rules::folder::{Folder, FolderKind, FolderOwner, FolderState};
use rules::folder_rights::{FolderVerb, leads, speaks_for};
use rules::names::{FolderId, OperationId, UserId};
use rules::permissions::{Permission, Subject};
use rules::refusals;
use rules::tenancy::TenantState;
use rules::units::Timestamp;
use rules::users::User;

use super::copies::{begin, label};
use super::sharing::sessions_of;
use super::{
    find, known_project, note, permitted, projects_of, refuse_full, refuse_mounted, refuse_taken,
    refuse_unready,
};
use crate::access::Caller;
use crate::actions::operations::show;
use crate::actions::somewhere;
use crate::actions::storage::refuse_beyond;
use crate::actions::volumes::still_admits;
use crate::catalog::folder_transfers::FolderTransferRecord;
use crate::catalog::folders::FolderRecord;
use crate::catalog::job_kinds::{FOLDER_TRANSFER, FolderTransferInput};
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::{Failure, Server, ServerFault};

/// Folders that are offered to one owner at once. Higher: their list is longer, and each new name of theirs costs a look at all.
/// Lower: a lab that hands its folders over does so in turns.
const MAX_OFFERS: usize = 200;

/// Offers a folder to a user or a project, in the place of an offer of it that is there. Nothing changes until it is taken.
///
/// Errors: `folder.not-found`, `folder.ambiguous`, `folder.owner-only`, `folder.home-shared`, `folder.in-trash`,
/// `folder.copying`, `folder.transferring`, `folder.share-target`, `folder.share-unknown`, `folder.project-unknown`,
/// `folder.offers-many`, `project.archived`.
pub async fn offer(
    server: &Server,
    caller: &Caller,
    which: &str,
    asked: NewFolderTransferBody,
) -> Result<FolderTransferView, Failure> {
    somewhere(caller, Permission::SessionsWrite)?;
    let (caller, which) = (caller.clone(), which.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "offer a folder", move |rows| {
            let found = owned(rows, &caller, &which)?;
            let folder = &found.folder;
            if folder.kind == FolderKind::Home {
                return Err(refusals::folder_home_shared().into());
            }
            refuse_unready(folder)?;
            let to = receiver(rows, &caller, folder, &asked)?;
            let offers = rows.folder_transfers_to(to)?;
            let is_new = offers.iter().all(|offer| offer.folder != folder.id);
            if is_new && offers.len() >= MAX_OFFERS {
                return Err(refusals::folder_offers_many(MAX_OFFERS).into());
            }
            rows.put_folder_transfer(folder.id, to, caller.name.as_str())?;
            let offer = offer_of(rows, folder.id)?;
            let code = "folder.offered";
            note(
                rows,
                caller.name.as_str(),
                folder,
                code,
                ("", &offer.to_name),
            )?;
            Ok(view_of(found, offer))
        })
        .await
}

/// Offers every folder of a user to another one, in the place of offers that are there; home folders and those that are not
/// ready stay. For who lets that user leave. O(folders).
///
/// Errors: `folder.offers-many`.
pub(in crate::actions) fn offer_all(
    rows: &Rows<'_>,
    caller: &Caller,
    from: UserId,
    to: &User,
) -> Result<(), Failure> {
    let receiver = FolderOwner::User(to.id);
    let mut offers = rows.folder_transfers_to(receiver)?.len();
    for found in rows.folders_of(from)? {
        let folder = &found.folder;
        if folder.kind == FolderKind::Home || folder.state != FolderState::Ready {
            continue;
        }
        let known = rows.folder_transfer(folder.id)?;
        if known.is_some_and(|known| known.to == receiver) {
            continue;
        }
        offers += 1;
        if offers > MAX_OFFERS {
            return Err(refusals::folder_offers_many(MAX_OFFERS).into());
        }
        rows.put_folder_transfer(folder.id, receiver, caller.name.as_str())?;
        let told = ("", to.name.as_str());
        note(rows, caller.name.as_str(), folder, "folder.offered", told)?;
    }
    Ok(())
}

/// Whom a folder is offered to.
fn receiver(
    rows: &Rows<'_>,
    caller: &Caller,
    folder: &Folder,
    asked: &NewFolderTransferBody,
) -> Result<FolderOwner, Failure> {
    let typed = |text: &Option<String>| {
        let text = text.as_deref().map(str::trim);
        text.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    match (typed(&asked.user), typed(&asked.project)) {
        (Some(name), None) => {
            let user = rows.user_named(&name)?.filter(|user| {
                user.domain == folder.domain && !user.suspended && folder.owner != user.id.into()
            });
            let unknown = || refusals::folder_share_unknown().at("/user");
            Ok(user.ok_or_else(unknown)?.id.into())
        }
        (None, Some(name)) => {
            let project = known_project(rows, &caller.subject, &name)?;
            let of_domain = rows.project(project)?;
            let is_other = of_domain.is_some_and(|one| one.domain == folder.domain)
                && folder.owner != project.into();
            match is_other {
                true => Ok(project.into()),
                false => Err(refusals::folder_project_unknown().at("/project").into()),
            }
        }
        (None, None) | (Some(_), Some(_)) => {
            Err(refusals::folder_share_target().at("/user").into())
        }
    }
}

/// The offer of a folder, for its owner; None where it is offered to no other one.
///
/// Errors: `folder.not-found`, `folder.ambiguous`, `folder.owner-only`.
pub async fn offered(
    server: &Server,
    caller: &Caller,
    which: &str,
) -> Result<Option<FolderTransferView>, Failure> {
    somewhere(caller, Permission::SessionsWrite)?;
    server
        .catalog()
        .read_now("show the offer of a folder", |view| {
            let found = find(
                view,
                caller,
                which,
                FolderState::Ready,
                server.clock().now(),
            )?;
            let (subject, verb) = (&caller.subject, FolderVerb::Transfer);
            permitted(view, subject, &found.folder, verb, server.clock().now())?;
            let offer = view.folder_transfer(found.folder.id)?;
            Ok(offer.map(|offer| view_of(found, offer)))
        })
}

/// Takes the offer of a folder back.
///
/// Errors: as `offered`; `folder.transferring`, `folder.transfer-not-found`.
pub async fn withdraw(server: &Server, caller: &Caller, which: &str) -> Result<(), Failure> {
    somewhere(caller, Permission::SessionsWrite)?;
    let (caller, which) = (caller.clone(), which.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "take an offer back", move |rows| {
            let folder = owned(rows, &caller, &which)?.folder;
            refuse_unready(&folder)?;
            let offer = offer_of(rows, folder.id)?;
            rows.forget_folder_transfer(folder.id)?;
            let (code, told) = ("folder.offer-withdrawn", offer.to_name.as_str());
            note(rows, caller.name.as_str(), &folder, code, (told, ""))
        })
        .await
}

/// The folders that other owners offer to the caller, or to projects that they lead, oldest offer first.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<FolderTransferView>, Failure> {
    somewhere(caller, Permission::SessionsRead)?;
    let (subject, now) = (&caller.subject, server.clock().now());
    server.catalog().read_now("list offers of folders", |view| {
        let mut receivers = BTreeSet::from([FolderOwner::User(subject.user)]);
        receivers.extend(projects_of(subject).into_iter().map(FolderOwner::Project));
        let mut all = Vec::new();
        for to in receivers {
            for offer in view.folder_transfers_to(to)? {
                if let Some(found) = takeable(view, subject, &offer, now)? {
                    all.push(view_of(found, offer));
                }
            }
        }
        all.sort_by_key(|one| (one.created_at, one.folder));
        Ok(all)
    })
}

/// Takes an offered folder, for the caller or for a project that they lead, and gives the operation that moves its files.
///
/// Errors: `folder.id-invalid`, `folder.transfer-not-found`, `folder.in-trash`, `folder.transferring`, `folder.mounted`,
/// `folder.name-taken`, `folder.too-many`, `quota.exceeded`, `volume.not-found`, `operation.too-many`.
pub async fn accept(server: &Server, caller: &Caller, id: &str) -> Result<OperationView, Failure> {
    somewhere(caller, Permission::SessionsWrite)?;
    let id = id.parse::<FolderId>()?;
    let caller = caller.clone();
    let begun = server
        .catalog()
        .write(Lane::Requests, "take a folder over", move |rows| {
            let (found, offer) = taken(rows, &caller, id, rows.now)?;
            let before = found.folder;
            refuse_unready(&before)?;
            refuse_mounted(&before, &sessions_of(rows, id)?)?;
            let mut after = Folder {
                owner: offer.to,
                ..before.clone()
            };
            refuse_taken(rows, &after)?;
            refuse_full(rows, offer.to)?;
            match (before.volume, before.counted) {
                (Some(volume), _) => still_admits(rows, &caller.subject, volume)?,
                (None, Some(counted)) => {
                    refuse_beyond(rows, offer.to, before.domain, counted.bytes, rows.now)?;
                }
                (None, None) => {}
            }
            after.owner = before.owner;
            after.state = FolderState::Transferring;
            rows.put_folder(&after)?;
            let (code, told) = ("folder.transfer-accepted", offer.to_name.as_str());
            note(
                rows,
                caller.name.as_str(),
                &before,
                code,
                (&found.owner_name, told),
            )?;
            let input = FolderTransferInput {
                folder: id,
                before: before.owner.to_string(),
                to: offer.to.to_string(),
                file: label(&before, told),
            };
            let begun: OperationId = begin(rows, &caller, FOLDER_TRANSFER, &input)?;
            let row = rows.operation(begun)?;
            Ok(row.ok_or_else(|| ServerFault::new("take a folder over", "its row is gone"))?)
        })
        .await?;
    server.jobs().wake(FOLDER_TRANSFER)?;
    Ok(show(server, begun))
}

/// Refuses an offered folder.
///
/// Errors: `folder.id-invalid`, `folder.transfer-not-found`, `folder.transferring`.
pub async fn decline(server: &Server, caller: &Caller, id: &str) -> Result<(), Failure> {
    somewhere(caller, Permission::SessionsWrite)?;
    let id = id.parse::<FolderId>()?;
    let caller = caller.clone();
    server
        .catalog()
        .write(Lane::Requests, "refuse an offered folder", move |rows| {
            let (found, offer) = taken(rows, &caller, id, rows.now)?;
            refuse_unready(&found.folder)?;
            rows.forget_folder_transfer(id)?;
            let (code, told) = ("folder.transfer-declined", offer.to_name.as_str());
            note(rows, caller.name.as_str(), &found.folder, code, (told, ""))
        })
        .await
}

/// An offered folder, and its offer, for who may take it.
fn taken(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    id: FolderId,
    now: Timestamp,
) -> Result<(FolderRecord, FolderTransferRecord), Failure> {
    let missing = || Failure::from(refusals::folder_transfer_not_found());
    let offer = view.folder_transfer(id)?.ok_or_else(missing)?;
    let found = takeable(view, &caller.subject, &offer, now)?.ok_or_else(missing)?;
    Ok((found, offer))
}

/// The folder of an offer that a subject may take; None where it is not for them, or holds no more.
fn takeable(
    view: &ReadTransaction<'_>,
    subject: &Subject,
    offer: &FolderTransferRecord,
    now: Timestamp,
) -> Result<Option<FolderRecord>, Failure> {
    if !speaks_for(subject, offer.to) {
        return Ok(None);
    }
    let Some(found) = view.folder(offer.folder)? else {
        return Ok(None);
    };
    let is_of_domain = match offer.to {
        FolderOwner::User(_) => found.folder.domain == subject.domain,
        FolderOwner::Project(project) => view.project(project)?.is_some_and(|project| {
            project.domain == found.folder.domain && project.state == TenantState::Active
        }),
    };
    let is_kept = found.folder.trashed_at.is_none();
    let is_given = still_gives(view, found.folder.owner, offer, now)?;
    Ok(Some(found).filter(|_| is_of_domain && is_kept && is_given))
}

/// Whether who offered a folder may give it away by now: who leads its project no more takes nothing out of it.
fn still_gives(
    view: &ReadTransaction<'_>,
    owner: FolderOwner,
    offer: &FolderTransferRecord,
    now: Timestamp,
) -> Result<bool, Failure> {
    let FolderOwner::Project(project) = owner else {
        return Ok(true);
    };
    let by = view.user_named(&offer.created_by)?;
    let by = by.filter(|by| !by.suspended);
    Ok(by.is_some_and(|by| leads(&by.grants_at(now), project)))
}

/// The folder that is meant, for its owner.
fn owned(view: &Rows<'_>, caller: &Caller, which: &str) -> Result<FolderRecord, Failure> {
    let found = find(view, caller, which, FolderState::Ready, view.now)?;
    let (subject, verb) = (&caller.subject, FolderVerb::Transfer);
    permitted(view, subject, &found.folder, verb, view.now)?;
    Ok(found)
}

fn offer_of(view: &ReadTransaction<'_>, id: FolderId) -> Result<FolderTransferRecord, Failure> {
    let offer = view.folder_transfer(id)?;
    Ok(offer.ok_or_else(refusals::folder_transfer_not_found)?)
}

fn view_of(found: FolderRecord, offer: FolderTransferRecord) -> FolderTransferView {
    FolderTransferView {
        folder: found.folder.id,
        name: found.folder.name,
        owner: FolderOwnerView::new(found.folder.owner, found.owner_name),
        to: FolderOwnerView::new(offer.to, offer.to_name),
        bytes: found.folder.counted.map(|counted| counted.bytes),
        created_at: offer.created_at,
        created_by: offer.created_by,
    }
}

#[cfg(test)]
mod tests;
