//! What folders take and may take, of each user and of each project together. Everybody sees what is theirs; who sees the
//! sessions of a user or a project sees theirs. Holds nothing: the keeper of scopes does.

use api::folders::FolderOwnerView;
use api::storage::StorageView;
use rules::commit::own_images_limit;
use rules::folder::FolderOwner;
use rules::names::UserId;
use rules::permissions::{Permission, reach};
use rules::quota::{AttachedPolicy, PolicyLevel};
use rules::refusals;
use rules::storage::{StorageEnforcement, StorageUse, limit_of};
use rules::tenancy::{DomainId, ProjectId};
use rules::units::{Bytes, Timestamp};
use uuid::Uuid;

use super::{allowed, somewhere};
use crate::access::Caller;
use crate::catalog::ReadTransaction;
use crate::catalog::policies::PolicySubjects;
use crate::{Failure, Server, ServerFault};

/// What the folders of each user and each project take who has some and whom the caller may see, by name.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<StorageView>, Failure> {
    somewhere(caller, Permission::SessionsRead)?;
    let own = reach(&caller.subject, Permission::SessionsRead);
    let enforcement = enforcement(server).await?;
    let now = server.clock().now();
    server
        .catalog()
        .read("list what folders take", move |view| {
            let mut all = Vec::new();
            for found in view.storage(&own)? {
                let limit = match found.taken {
                    Some(taken) => taken.limit,
                    None => folder_limit(view, found.owner, found.domain, now)?,
                };
                let owner = FolderOwnerView::new(found.owner, found.owner_name);
                let known = (found.counted, limit);
                all.push(StorageView::new(owner, enforcement, found.taken, known));
            }
            Ok(all)
        })
        .await
}

/// What the caller's own folders take at this moment, where that can be seen, else when it was seen last; and what they may.
pub async fn own(server: &Server, caller: &Caller) -> Result<StorageView, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let (user, domain) = (caller.subject.user, caller.subject.domain);
    let now = server.clock().now();
    let enforcement = enforcement(server).await?;
    let seen = seen(server, user).await?;
    let owner = FolderOwnerView::new(user.into(), caller.name.to_string());
    server
        .catalog()
        .read("show what folders take", move |view| {
            let limit = folder_limit(view, user, domain, now)?;
            // Those on volumes are held to no limit, and take none of it.
            let own = view.folders_of(user)?.into_iter();
            let own = own.filter(|one| one.folder.volume.is_none());
            let counted = own.filter_map(|one| one.folder.counted);
            let counted: u64 = counted.map(|one| one.bytes).sum();
            let kept = view.storage_of(user)?.map(|warning| warning.taken);
            let taken = seen.or(kept);
            let known = (Bytes(counted), limit);
            Ok(StorageView::new(owner, enforcement, taken, known))
        })
        .await
}

/// What all folders of an owner may take together: the strictest of the policies that are attached to them, with their
/// allowances. What bounds each member of a project says nothing of the project's own. Costs a few steps of indexes.
pub(crate) fn folder_limit(
    view: &ReadTransaction<'_>,
    owner: impl Into<FolderOwner>,
    domain: DomainId,
    now: Timestamp,
) -> Result<Bytes, Failure> {
    Ok(limit_of(&policies_of_owner(
        view,
        owner.into(),
        domain,
        now,
    )?))
}

/// How many images of sessions a user keeps at most: the strictest of the policies that are attached to the user, with their
/// allowances. Costs a few steps of indexes.
pub(crate) fn images_limit(
    view: &ReadTransaction<'_>,
    user: UserId,
    domain: DomainId,
    now: Timestamp,
) -> Result<u64, Failure> {
    let attached = policies_of_owner(view, FolderOwner::User(user), domain, now)?;
    Ok(own_images_limit(&attached))
}

/// The policies that hold for the account of an owner, raised by allowances.
fn policies_of_owner(
    view: &ReadTransaction<'_>,
    owner: FolderOwner,
    domain: DomainId,
    now: Timestamp,
) -> Result<Vec<AttachedPolicy>, Failure> {
    let (project, user) = match owner {
        FolderOwner::User(user) => {
            let home = view.home_project(user, now)?;
            // Who is in no project has only those of site, domain and account.
            (
                home.map_or(ProjectId(Uuid::nil()), |(_, project)| project),
                Some(user),
            )
        }
        FolderOwner::Project(project) => (project, None),
    };
    let subjects = PolicySubjects {
        domain,
        project,
        user: user.unwrap_or(UserId(Uuid::nil())),
    };
    let mut attached = view.policies_of(&subjects)?;
    if user.is_none() {
        attached.retain(|policy| policy.level != PolicyLevel::Member);
    }
    for allowance in view.allowances_of(&subjects)? {
        for policy in &mut attached {
            policy.raise(&allowance);
        }
    }
    Ok(attached)
}

/// Refuses so many bytes more in the folders of an owner than they may take, as far as is known: what holds the limit counts
/// each block. Costs what `folder_limit` does; one visit of each folder of the owner before the first look.
///
/// Errors: `quota.exceeded`.
pub(crate) fn refuse_beyond(
    view: &ReadTransaction<'_>,
    owner: FolderOwner,
    domain: DomainId,
    bytes: u64,
    now: Timestamp,
) -> Result<(), Failure> {
    let limit = folder_limit(view, owner, domain, now)?;
    let used = match view.storage_of(owner)? {
        Some(known) => known.taken.used.0,
        None => {
            let all = view.folders_of(owner)?.into_iter();
            let all = all.filter(|one| one.folder.volume.is_none());
            all.filter_map(|one| one.folder.counted)
                .map(|counted| counted.bytes)
                .sum::<u64>()
        }
    };
    match used.saturating_add(bytes) > limit.0 {
        true => Err(refusals::quota_exceeded(Bytes(used), limit).into()),
        false => Ok(()),
    }
}

/// How limits are held on the server's machine. The first answer of a server may take a moment: it is tried out.
pub(crate) async fn enforcement(server: &Server) -> Result<StorageEnforcement, Failure> {
    let server = server.clone();
    let told = tokio::task::spawn_blocking(move || {
        let folders = server.folders()?;
        Ok(folders.keeper().enforcement())
    });
    told.await
        .map_err(|error| ServerFault::new("try out limits of folders", error))?
}

/// What the scope of a user says; None where they have none, and where it cannot be seen.
async fn seen(server: &Server, user: UserId) -> Result<Option<StorageUse>, Failure> {
    let server = server.clone();
    let told = tokio::task::spawn_blocking(move || {
        let folders = server.folders()?;
        let scope = folders.scope(user);
        let taken = folders.keeper().measure(&scope).unwrap_or_else(|error| {
            let path = scope.directory().display();
            tracing::warn!(%path, %error, "what folders take cannot be seen");
            None
        });
        Ok(taken.map(|taken| StorageUse {
            used: taken.used,
            limit: taken.limit,
            at: Timestamp::from_millis(taken.at),
        }))
    });
    told.await
        .map_err(|error| ServerFault::new("measure folders", error))?
}
