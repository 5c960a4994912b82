//! Looks at what the folders of each owner take, and holds them to what policies say now. What is reachable is looked at every
//! minute, everything else now and then: nothing of it changes meanwhile but its limit. A row is written only where there is
//! something new to tell. Near a limit the oldest of the trash gives way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::observe::chain;
use rules::folder::{FolderOwner, ScopeOwner};
use rules::names::FolderId;
use rules::storage::{StorageLevel, StorageUse, percent, settled, trash_to_go};
use rules::tenancy::Scope;
use rules::units::{Bytes, Timestamp};
use store::folders::FolderStore;
use store::quota::ScopePlace;

use crate::actions::storage::{folder_limit, limit_on};
use crate::appliance::lazy_stores::folder_failure;
use crate::catalog::events::NewEvent;
use crate::catalog::storage::OwnedFolders;
use crate::catalog::{Lane, Rows};
use crate::{Failure, Server, ServerFault};

mod trash;

/// Between two looks. Longer: a raised limit holds later, and a warning comes later. Shorter: rows are written more often.
const LOOK: Duration = Duration::from_secs(60);
/// Before the first one, so that a server that just started serves first.
const FIRST_LOOK: Duration = Duration::from_secs(30);
/// Every so many looks everything is looked at. Higher: a list shows an old limit for longer. Lower: the records of all users
/// are read more often.
const WHOLE_LOOKS: u64 = 10;
/// What folders have to grow or shrink by to be written down. Higher: lists are less true. Lower: rows are written all the
/// time while a session works.
const CHANGE: u64 = 16 << 20;

/// Looks, until it is dropped.
pub(crate) async fn keep(server: Server) {
    tokio::time::sleep(FIRST_LOOK).await;
    for number in 0_u64.. {
        if let Err(failure) = look(&server, number.is_multiple_of(WHOLE_LOOKS)).await {
            tracing::error!(error = %chain(&failure), "what folders take was not looked at");
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// One look; at everything, or at what is reachable.
pub(crate) async fn look(server: &Server, is_whole: bool) -> Result<(), Failure> {
    let store = server.folders()?;
    let now = server.clock().now();
    let scopes = off_thread({
        let store = Arc::clone(&store);
        move || reachable(&store, is_whole)
    })
    .await?;
    if !is_whole && scopes.is_empty() {
        return Ok(());
    }
    let known = scopes.clone();
    let (owners, own, moving) = server
        .catalog()
        .read("look whose folders there are", move |view| {
            let all = view.folder_owners()?.into_iter();
            let all =
                all.filter(|one| is_whole || known.contains_key(&ScopeOwner::from(one.owner)));
            let owners = all
                .map(|one| Ok((one, folder_limit(view, one.owner, one.domain, now)?)))
                .collect::<Result<Vec<_>, Failure>>()?;
            let own = view.own_limits()?.into_iter();
            let own = own
                .map(|folder| {
                    let counted = folder.counted.map_or(0, |counted| counted.bytes);
                    Ok((folder.id, limit_on(view, &folder, now)?, Bytes(counted)))
                })
                .collect::<Result<Vec<_>, Failure>>()?;
            Ok((owners, own, view.owners_of_moving()?))
        })
        .await?;
    let (news, crowded) = off_thread(move || {
        if is_whole {
            remove_unused(&store, &scopes, &owners, &own);
        }
        let mut crowded = Vec::new();
        let mut crowd = |owner: ScopeOwner, taken: &StorageUse| {
            if trash_to_go(taken.used, taken.limit) > Bytes::ZERO {
                crowded.push((owner, taken.limit));
            }
        };
        let mut news = Vec::new();
        for (owner, limit) in owners {
            if moving.contains(&owner.owner) {
                // A folder that gets a limit of its own takes room of its owner's until it has moved: no trash gives way for that.
                continue;
            }
            let taken = match scopes.get(&ScopeOwner::from(owner.owner)) {
                Some(scope) => held(&store, scope, limit),
                None => Some(StorageUse {
                    used: owner.counted,
                    limit,
                    at: now,
                }),
            };
            let Some(taken) = taken else { continue };
            crowd(owner.owner.into(), &taken);
            if is_new(&owner, &taken) {
                news.push((owner, taken));
            }
        }
        for (id, limit, counted) in own {
            let taken = match scopes.get(&ScopeOwner::from(id)) {
                Some(scope) => held(&store, scope, limit),
                None => is_whole.then_some(StorageUse {
                    used: counted,
                    limit,
                    at: now,
                }),
            };
            if let Some(taken) = taken {
                crowd(id.into(), &taken);
            }
        }
        Ok((news, crowded))
    })
    .await?;
    keep_news(server, news).await?;
    for (owner, limit) in crowded {
        // One trash that cannot be emptied keeps no other one from giving way.
        if let Err(failure) = trash::give_way(server, owner, limit).await {
            tracing::warn!(%owner, error = %chain(&failure), "trash near a limit stays");
        }
    }
    Ok(())
}

/// Writes down what is new of what owners' folders take, and tells those who came nearer to their limit.
async fn keep_news(server: &Server, news: Vec<(OwnedFolders, StorageUse)>) -> Result<(), Failure> {
    if news.is_empty() {
        return Ok(());
    }
    let clock = server.clock().clone();
    server
        .catalog()
        .write_of_server(Lane::Loops, "keep what folders take", move |rows| {
            // Mail that looked meanwhile looks only for what is newer.
            let now = clock.now();
            for (owner, taken) in &news {
                let before = rows.storage_of(owner.owner)?;
                let before = before.map_or(StorageLevel::Free, |before| before.level);
                let level = settled(before, taken.used, taken.limit);
                rows.put_storage(owner.owner, taken, level, now)?;
                if level > before {
                    warn(rows, owner, taken)?;
                }
            }
            Ok(())
        })
        .await
}

/// Tells that the limit of an owner came nearer, once for each crossing: an event, which webhooks are told of. Bell and mail of
/// a user go by the row.
fn warn(rows: &Rows<'_>, owner: &OwnedFolders, taken: &StorageUse) -> Result<(), Failure> {
    let percent = percent(taken.used, taken.limit);
    rows.note(NewEvent {
        actor: "system",
        topic: match owner.owner {
            FolderOwner::User(_) => "users",
            FolderOwner::Project(_) => "projects",
        },
        object: &owner.owner.id().to_string(),
        scope: Scope {
            domain: Some(owner.domain),
            project: owner.owner.project(),
            owner: owner.owner.user(),
        },
        code: "storage.warned",
        before: "",
        after: &format!("{percent} %: {} of {}", taken.used, taken.limit),
    })
}

/// The scopes that are looked at, by whose limit they are held to.
fn reachable(
    store: &FolderStore,
    is_whole: bool,
) -> Result<BTreeMap<ScopeOwner, ScopePlace>, Failure> {
    let all = store.scopes().map_err(folder_failure)?.into_iter();
    Ok(all
        .filter(|(_, scope)| is_whole || scope.is_reachable())
        .collect())
}

/// Holds a scope to its limit; gives what it takes. None where it cannot be seen: the log says why.
fn held(store: &FolderStore, scope: &ScopePlace, limit: Bytes) -> Option<StorageUse> {
    let keeper = store.keeper();
    let seen = keeper
        .hold_to(scope, limit)
        .and_then(|()| keeper.measure(scope));
    match seen {
        Ok(seen) => seen.map(|taken| StorageUse {
            used: taken.used,
            limit,
            at: Timestamp::from_millis(taken.at),
        }),
        Err(error) => {
            let scope = scope.directory().display();
            tracing::warn!(%scope, %limit, %error, "folders are not held to their limit");
            None
        }
    }
}

/// Removes the scopes of owners who have no folder any more, and those of folders that have no limit of their own.
fn remove_unused(
    store: &FolderStore,
    scopes: &BTreeMap<ScopeOwner, ScopePlace>,
    owners: &[(OwnedFolders, Bytes)],
    own: &[(FolderId, Bytes, Bytes)],
) {
    for (owner, scope) in scopes {
        let is_used = match owner {
            ScopeOwner::Owner(owner) => owners.iter().any(|(one, _)| one.owner == *owner),
            ScopeOwner::Folder(id) => own.iter().any(|(one, ..)| one == id),
        };
        if is_used {
            continue;
        }
        if let Err(error) = store.keeper().remove_empty(scope) {
            let scope = scope.directory().display();
            tracing::warn!(%scope, %error, "a scope without a folder stays on the disk");
        }
    }
}

/// Whether something is to be written: another limit, another level, or much more or less than before.
fn is_new(owner: &OwnedFolders, now: &StorageUse) -> bool {
    let Some(before) = owner.before else {
        return true;
    };
    before.taken.limit != now.limit
        || before.level != settled(before.level, now.used, now.limit)
        || before.taken.used.0.abs_diff(now.used.0) >= CHANGE
}

async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| ServerFault::new("look at limits of folders", error))?
}

#[cfg(test)]
mod tests;
