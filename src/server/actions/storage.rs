//! What folders take and may take, of each user together. Everybody sees what is theirs; who sees a user's sessions sees that
//! of the user. Holds nothing: the keeper of scopes does.

use api::sessions::Owner;
use api::storage::StorageView;
use rules::names::UserId;
use rules::permissions::{Permission, reach};
use rules::storage::{StorageEnforcement, StorageUse, limit_of};
use rules::tenancy::{DomainId, ProjectId};
use rules::units::{Bytes, Timestamp};
use uuid::Uuid;

use super::{allowed, somewhere};
use crate::access::Caller;
use crate::catalog::ReadTransaction;
use crate::catalog::policies::PolicySubjects;
use crate::{Failure, Server, ServerFault};

/// What the folders of each user take who has some and whom the caller may see, by name.
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
                let owner = Owner {
                    id: found.owner,
                    name: found.owner_name,
                };
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
    let owner = Owner {
        id: user,
        name: caller.name.clone(),
    };
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

/// What all folders of a user may take together: the strictest of the policies that are attached to them, with their
/// allowances. Costs a few steps of indexes.
pub(crate) fn folder_limit(
    view: &ReadTransaction<'_>,
    user: UserId,
    domain: DomainId,
    now: Timestamp,
) -> Result<Bytes, Failure> {
    let home = view.home_project(user, now)?;
    let subjects = PolicySubjects {
        domain,
        // Who is in no project has only those of site, domain and account.
        project: home.map_or(ProjectId(Uuid::nil()), |(_, project)| project),
        user,
    };
    let mut attached = view.policies_of(&subjects)?;
    for allowance in view.allowances_of(&subjects)? {
        for policy in &mut attached {
            policy.raise(&allowance);
        }
    }
    Ok(limit_of(&attached))
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
