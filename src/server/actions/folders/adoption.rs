//! Gives a directory that belongs to no folder a row again, for administrators of the site: after a restore of an older backup
//! nothing else leads to its files. Reads and moves no file; one on a volume gets the link that leads there.

use std::sync::Arc;

use api::folders::{FolderAdoptionBody, FolderView};
use rules::folder::{
    Folder, FolderKind, FolderOwner, FolderState, MountAccess, OwnLimit, ScopeOwner,
};
use rules::names::{FolderId, VolumeId};
use rules::permissions::{Permission, may};
use rules::refusals;
use rules::tenancy::Scope;
use rules::volume::VolumeState;
use store::folders::{FolderStore, scope_of};

use super::{again, insert, name_of};
use crate::access::Caller;
use crate::actions::accounts::find as find_user;
use crate::actions::volumes::on_volume;
use crate::appliance::lazy_stores::folder_failure;
use crate::catalog::Lane;
use crate::{Failure, Server, ServerFault};

/// Where a directory lies.
#[derive(Debug, Clone, Copy)]
struct FoundDirectory {
    volume: Option<VolumeId>,
    /// A link of this machine leads there, or it lies on its disk.
    is_linked: bool,
    /// It names another site that has the same volume.
    is_of_other_site: bool,
    /// Whose limit holds it; None where none does.
    holder: Option<FolderOwner>,
    /// What it is held to by itself.
    own_limit: Option<OwnLimit>,
}

/// Makes a directory the folder of a user: that of the user whose limit holds it, where one does.
///
/// Errors: `role.administrator-needed`, `folder.id-invalid`, `folder.name-invalid`, `folder.home`, `folder.not-found` where there
/// is no such directory, `folder.directory-known`, `volume.not-found` where it lies on one that was forgotten,
/// `folder.directory-other-site`, `folder.directory-held`, `user.not-found`, `folder.name-taken`, `folder.too-many`.
pub async fn adopt(
    server: &Server,
    caller: &Caller,
    which: &str,
    asked: FolderAdoptionBody,
) -> Result<FolderView, Failure> {
    may(&caller.subject, Permission::SystemWrite, &Scope::SITE)?;
    let id: FolderId = which.parse()?;
    let name = name_of(&asked.name)?;
    let (store, data) = (server.folders()?, server.settings().data.clone());
    let near = Arc::clone(&store);
    let looked = tokio::task::spawn_blocking(move || found(&near, &data, id));
    let looked = looked
        .await
        .map_err(|error| ServerFault::new("look for a directory", error))??;
    let found = match looked {
        Some(found) => Some(found),
        None => unlinked(&store, id).await?,
    };
    let caller = caller.clone();
    let taken = found.filter(|found| found.is_of_other_site);
    let from_site = taken.and_then(|found| found.volume);
    let folders = Arc::clone(&store);
    let adopted = server
        .catalog()
        .write(Lane::Requests, "adopt a directory", move |rows| {
            if let Some(known) = rows.folder(id)? {
                return Err(refusals::folder_directory_known(&known.folder.name).into());
            }
            let found = found.ok_or_else(refusals::folder_not_found)?;
            if let Some(volume) = found.volume
                && rows.volume(volume)?.is_none()
            {
                return Err(refusals::volume_not_found().into());
            }
            if found.is_of_other_site && !asked.of_other_site {
                return Err(refusals::folder_directory_other_site().into());
            }
            let (subject, owner) = (&caller.subject, asked.owner.trim());
            let owner = find_user(rows, subject, Permission::UsersRead, owner)?;
            let other = found.holder.filter(|holder| *holder != owner.id.into());
            if let Some(holder) = other {
                let name = match holder {
                    FolderOwner::User(user) => rows.user_name(user)?.map(|name| name.to_string()),
                    FolderOwner::Project(project) => rows
                        .project(project)?
                        .map(|project| project.name.to_string()),
                };
                let name = name.unwrap_or_else(|| holder.to_string());
                return Err(refusals::folder_directory_held(name).at("/owner").into());
            }
            let folder = Folder {
                id,
                owner: owner.id.into(),
                domain: owner.domain,
                members: MountAccess::Ro,
                is_closed: false,
                is_cloneable: true,
                name,
                kind: FolderKind::General,
                state: FolderState::Ready,
                volume: found.volume,
                created_at: rows.now,
                used_at: None,
                trashed_at: None,
                counted: None,
                own_limit: found.own_limit,
                generation: 1,
            };
            insert(rows, &caller, &folder)?;
            // The last step: without the row nothing is found by the link, and the next adoption takes it.
            if let Some(volume) = found.volume.filter(|_| !found.is_linked) {
                store.link_on(volume, id).map_err(folder_failure)?;
                // Something else that has the id leads elsewhere.
                if store.volume_of(id) != Some(volume) {
                    return Err(refusals::folder_not_found().into());
                }
            }
            again(rows, &caller, id, rows.now)
        })
        .await?;
    if let Some(volume) = from_site {
        let shelf = folders.volumes().clone();
        let named = on_volume(&shelf, volume, move || folders.take_from_site(volume, id)).await;
        // It is a folder of this site by its row; the other one may still name it.
        if !matches!(named, Ok(Ok(()))) {
            tracing::warn!(%volume, folder = %id, "a directory that was adopted still names another site");
        }
    }
    Ok(adopted)
}

/// None where nothing of this machine's disk has that id. Costs one visit of each directory.
fn found(
    store: &FolderStore,
    data: &std::path::Path,
    id: FolderId,
) -> Result<Option<FoundDirectory>, Failure> {
    let all = store.all().map_err(folder_failure)?;
    if !all.iter().any(|(one, _)| *one == id) {
        return Ok(None);
    }
    let volume = store.volume_of(id);
    // A link into a scope that has no such directory leads nowhere.
    if volume.is_none() && !store.has(id) {
        return Ok(None);
    }
    let mut found = FoundDirectory {
        volume,
        is_linked: true,
        is_of_other_site: false,
        holder: None,
        own_limit: None,
    };
    if let Some(scope) = scope_of(data, id) {
        let all = store.scopes().map_err(folder_failure)?;
        let own = all.into_iter().find(|(_, one)| *one == scope);
        match own.map(|(owner, _)| owner) {
            Some(ScopeOwner::Owner(owner)) => found.holder = Some(owner),
            Some(ScopeOwner::Folder(_)) => {
                let limit = scope.limit().map_err(folder_failure)?;
                // Nothing tells any more of whose limit it was a part.
                found.own_limit = limit.map(|bytes| OwnLimit {
                    bytes,
                    is_on_top: true,
                });
            }
            None => {}
        }
    }
    Ok(Some(found))
}

/// A directory on a volume that no link leads to. Costs one look at each volume that is ready, and waits for none that hangs.
async fn unlinked(
    store: &Arc<FolderStore>,
    id: FolderId,
) -> Result<Option<FoundDirectory>, Failure> {
    let shelf = store.volumes();
    for volume in shelf.all().map_err(folder_failure)? {
        let state = shelf.sight(volume).map(|sight| sight.state);
        // Until the first look nothing is known against it.
        if !matches!(state, None | Some(VolumeState::Ready)) {
            continue;
        }
        let folders = Arc::clone(store);
        let looked = on_volume(shelf, volume, move || {
            let lies = folders.lies_on(volume, id);
            lies.then(|| folders.is_of_other_site(volume, id).unwrap_or(true))
        });
        if let Ok(Some(is_of_other_site)) = looked.await {
            return Ok(Some(FoundDirectory {
                volume: Some(volume),
                is_linked: false,
                is_of_other_site,
                holder: None,
                own_limit: None,
            }));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use api::folders::FolderEntryQuery;

    use super::super::tests::TwoDomains;
    use super::super::{files, list};
    use super::*;
    use crate::code;

    fn asked(owner: &str, name: &str) -> FolderAdoptionBody {
        FolderAdoptionBody {
            owner: owner.to_owned(),
            name: name.to_owned(),
            of_other_site: false,
        }
    }

    #[tokio::test]
    async fn a_directory_without_a_folder_comes_back_to_a_user() {
        let two = TwoDomains::open().await;
        let server = &two.server;
        let known = two.made(&two.abe, "data").await.id.to_string();
        let stray = FolderId(uuid::Uuid::from_u128(0x57a7));
        let which = stray.to_string();
        let none = adopt(server, &two.boss, &which, asked("abe", "back")).await;
        assert_eq!(code(none), "folder.not-found");
        server
            .folders()
            .unwrap()
            .create(stray, false, None)
            .unwrap();
        let place = store::folders::mounted_directory(two.directory.path(), stray);
        fs::write(place.join("file"), "all that is left").unwrap();
        for (caller, which, owner, name, refused) in [
            (&two.abe, &which, "abe", "back", "role.administrator-needed"),
            (
                &two.chief,
                &which,
                "abe",
                "back",
                "role.administrator-needed",
            ),
            (&two.boss, &which, "no.such.user", "back", "user.not-found"),
            (&two.boss, &which, "abe", "a/b", "folder.name-invalid"),
            (&two.boss, &which, "abe", "data", "folder.name-taken"),
            (&two.boss, &known, "abe", "back", "folder.directory-known"),
        ] {
            let done = adopt(server, caller, which, asked(owner, name)).await;
            assert_eq!(code(done), refused, "{owner} {name}");
        }
        assert_eq!(list(server, &two.abe).await.unwrap().len(), 1);
        let made = adopt(server, &two.boss, &which, asked("abe", "back")).await;
        let made = made.unwrap();
        assert_eq!((made.id, made.owner.name.as_str()), (stray, "abe"));
        let entries = FolderEntryQuery::default();
        let read = files::list(server, &two.abe, &which, &entries).await;
        assert_eq!(read.unwrap().page.items[0].name, "file");
        let again = adopt(server, &two.boss, &which, asked("abe", "back")).await;
        assert_eq!(code(again), "folder.directory-known");
    }
}
