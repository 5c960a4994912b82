//! What folders take and may take, of each user and of each project together. Everybody sees what is theirs; who sees the
//! sessions of a user or a project sees theirs. Holds nothing: the keeper of scopes does.

use api::folders::FolderOwnerView;
use api::storage::StorageView;
use rules::commit::{MAX_OWN_IMAGES, own_images_limit};
use rules::folder::{Folder, FolderOwner, FolderUse, ScopeOwner};
use rules::names::{FolderId, UserId};
use rules::permissions::{Permission, reach};
use rules::quota::{AttachedPolicy, LimitKey, PolicyLevel, PolicyLimits};
use rules::refusals;
use rules::storage::{
    DEFAULT_FOLDER_BYTES, MIN_FOLDER_BYTES, StorageEnforcement, StorageUse, limit_of,
};
use rules::tenancy::{DomainId, ProjectId};
use rules::units::{Bytes, Timestamp};
use store::folders::FolderStore;
use store::folders::counted::CountedScope;
use store::quota::ScopeKeeper;
use store::trees::Size;
use tokio::runtime::Handle;
use uuid::Uuid;

use super::{allowed, somewhere};
use crate::access::Caller;
use crate::appliance::lazy_stores::folder_failure;
use crate::catalog::policies::PolicySubjects;
use crate::catalog::{Lane, ReadTransaction};
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
            // Those on volumes take none of it.
            let counted = counted(view, user.into())?;
            let kept = view.storage_of(user)?.map(|warning| warning.taken);
            let taken = seen.or(kept);
            let known = (counted, limit);
            Ok(StorageView::new(owner, enforcement, taken, known))
        })
        .await
}

/// Names of one folder that are counted. Higher: a count takes long. Lower: more folders are shown as smaller than they are.
pub(crate) const MAX_COUNTED: u64 = 2_000_000;

/// What the folders of an owner may take together that have no limit of their own: what all may, without what is set aside for
/// those that have. Costs one range of an index more than `whole_limit`.
pub(crate) fn folder_limit(
    view: &ReadTransaction<'_>,
    owner: impl Into<FolderOwner>,
    domain: DomainId,
    now: Timestamp,
) -> Result<Bytes, Failure> {
    let owner = owner.into();
    let whole = whole_limit(view, owner, domain, now)?;
    let aside = view.set_aside(owner)?;
    // A policy may have become stricter since.
    Ok(Bytes(whole.0.saturating_sub(aside.0)).max(MIN_FOLDER_BYTES))
}

/// What all that counts on the limit of a folder may take. A part of its owner's limit is never more than that one is by now.
/// Costs what `folder_limit` does.
pub(crate) fn limit_on(
    view: &ReadTransaction<'_>,
    folder: &Folder,
    now: Timestamp,
) -> Result<Bytes, Failure> {
    let (owner, domain) = (folder.owner, folder.domain);
    match folder.own_limit {
        None => folder_limit(view, owner, domain, now),
        Some(own) if own.is_on_top => Ok(own.bytes),
        Some(own) => Ok(own.bytes.min(whole_limit(view, owner, domain, now)?)),
    }
}

/// What all folders of an owner may take together: the strictest of the policies that are attached to them, with their
/// allowances. What bounds each member of a project says nothing of the project's own. Costs a few steps of indexes.
pub(crate) fn whole_limit(
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
    let (mut attached, subjects) = unraised(view, owner, domain, now)?;
    for allowance in view.allowances_of(&subjects)? {
        for policy in &mut attached {
            policy.raise(&allowance);
        }
    }
    Ok(attached)
}

/// The same without allowances, and whose they are.
pub(crate) fn unraised(
    view: &ReadTransaction<'_>,
    owner: FolderOwner,
    domain: DomainId,
    now: Timestamp,
) -> Result<(Vec<AttachedPolicy>, PolicySubjects), Failure> {
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
    attached.extend(usual_limits(&attached, owner));
    Ok((attached, subjects))
}

/// What holds for the account of an owner where no policy says it, as a policy, so that an allowance raises that too.
/// Images belong to users alone.
pub(crate) fn usual_limits(
    attached: &[AttachedPolicy],
    owner: FolderOwner,
) -> Option<AttachedPolicy> {
    let mut limits = PolicyLimits::NONE;
    for (key, usual) in [
        (LimitKey::FolderBytes, DEFAULT_FOLDER_BYTES.0),
        (LimitKey::Images, MAX_OWN_IMAGES),
    ] {
        let is_named = attached
            .iter()
            .any(|policy| policy.limits.get(key).is_some());
        let is_of_owner = key == LimitKey::FolderBytes || matches!(owner, FolderOwner::User(_));
        if is_of_owner && !is_named {
            limits.set(key, Some(usual));
        }
    }
    (limits != PolicyLimits::NONE).then(|| AttachedPolicy {
        level: match owner {
            FolderOwner::User(_) => PolicyLevel::User,
            FolderOwner::Project(_) => PolicyLevel::Project,
        },
        name: String::new(),
        limits,
        raised: Vec::new(),
    })
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
        None => counted(view, owner)?.0,
    };
    match used.saturating_add(bytes) > limit.0 {
        true => Err(refusals::quota_exceeded(Bytes(used), limit).into()),
        false => Ok(()),
    }
}

/// The sum of what was counted last of each folder of an owner that counts on their limit: none on a volume does, and none with
/// a limit of its own.
fn counted(view: &ReadTransaction<'_>, owner: FolderOwner) -> Result<Bytes, Failure> {
    let all = view.folders_of(owner)?.into_iter().map(|one| one.folder);
    let all = all.filter(|one| one.volume.is_none() && one.own_limit.is_none());
    let counted = all.filter_map(|one| one.counted);
    Ok(Bytes(counted.map(|counted| counted.bytes).sum()))
}

/// What was counted of all that counts on the limit of a folder. Costs a visit of each folder of its owner.
fn counted_use(
    view: &ReadTransaction<'_>,
    folder: &Folder,
    now: Timestamp,
) -> Result<CountedScope, Failure> {
    let owner = folder.limited_by();
    let limit = limit_on(view, folder, now)?;
    let all = match owner {
        ScopeOwner::Folder(id) => view.folder(id)?.into_iter().collect(),
        ScopeOwner::Owner(owner) => view.folders_of(owner)?,
    };
    let all = all.into_iter().map(|found| found.folder);
    let own: Vec<Folder> = all
        .filter(|one| one.limited_by() == owner)
        .filter(|one| one.volume.is_none() || one.own_limit.is_some())
        .collect();
    let bytes = own.iter().filter_map(|one| one.counted);
    Ok(CountedScope {
        owner,
        limit,
        used: Bytes(bytes.map(|counted| counted.bytes).sum()),
        counts: own
            .iter()
            .map(|one| (one.id, one.counted.map(|counted| counted.at)))
            .collect(),
    })
}

/// Lets the store know what is counted against the limit of a folder, where nothing else holds it: what is written there through
/// this server is held to it. Blocks where it is tried out first how limits are held.
pub(crate) fn tell_counted(
    server: &Server,
    store: &FolderStore,
    folder: &Folder,
) -> Result<(), Failure> {
    let is_counted = match folder.volume {
        Some(_) => folder.own_limit.is_some(),
        None => !store.keeper().enforcement().is_enforced(),
    };
    if !is_counted {
        if folder.volume.is_some() {
            store.forget_counted(folder.id);
        }
        return Ok(());
    }
    let now = server.clock().now();
    let told = server
        .catalog()
        .read_now("look what was counted of folders", |view| {
            counted_use(view, folder, now)
        })?;
    store.tell_counted(told);
    Ok(())
}

/// Whether the folders that count on the limit of this one take more than it, as far as they were counted: on a machine that
/// holds no limit, and on a volume.
pub(crate) fn is_over(
    view: &ReadTransaction<'_>,
    folder: &Folder,
    now: Timestamp,
) -> Result<bool, Failure> {
    if folder.volume.is_some() && folder.own_limit.is_none() {
        return Ok(false);
    }
    let counted = counted_use(view, folder, now)?;
    Ok(counted.used > counted.limit)
}

/// Counts a folder whose files were just removed, where nothing but the count stands for its limit: its owner is not kept waiting
/// for the next look. Costs a visit of each of its files.
pub(crate) async fn count_again(server: &Server, id: FolderId) -> Result<(), Failure> {
    let at = server.clock().now();
    let measuring = server.clone();
    let size = tokio::task::spawn_blocking(move || {
        let store = measuring.folders()?;
        if store.keeper().enforcement().is_enforced() || !store.has(id) {
            return Ok(None);
        }
        let size = store.measure(id, MAX_COUNTED).map_err(folder_failure)?;
        Ok::<_, Failure>(Some(size))
    });
    let size = size
        .await
        .map_err(|error| ServerFault::new("count a folder", error))??;
    match size {
        Some(size) => keep_size(server, id, size, at).await,
        None => Ok(()),
    }
}

/// The same on a volume, of a folder that has a limit of its own. Callers bring a thread that may wait for the volume.
pub(crate) fn count_on_volume(
    server: &Server,
    runtime: &Handle,
    id: FolderId,
) -> Result<(), Failure> {
    let at = server.clock().now();
    let found = server
        .catalog()
        .read_now("look for the limit of a folder", |view| view.folder(id))?;
    if found.is_none_or(|found| found.folder.own_limit.is_none()) {
        return Ok(());
    }
    let size = server.folders()?.measure(id, MAX_COUNTED);
    let size = size.map_err(folder_failure)?;
    runtime.block_on(keep_size(server, id, size, at))
}

async fn keep_size(
    server: &Server,
    id: FolderId,
    size: Size,
    at: Timestamp,
) -> Result<(), Failure> {
    let counted = FolderUse {
        bytes: size.bytes,
        entries: size.entries,
        at,
    };
    server
        .catalog()
        .write_of_server(Lane::Loops, "keep the size of a folder", move |rows| {
            rows.note_folder_size(id, counted)
        })
        .await
}

/// How limits are held on the server's machine. The first answer of a server may take a moment: it is tried out.
pub(crate) async fn enforcement(server: &Server) -> Result<StorageEnforcement, Failure> {
    ask_keeper(server, |keeper| keeper.enforcement()).await
}

/// Whether the server's machine holds what sessions write outside their folders. Costs as much as `enforcement`.
pub(crate) async fn holds_sessions(server: &Server) -> Result<bool, Failure> {
    ask_keeper(server, |keeper| keeper.holds_sessions()).await
}

async fn ask_keeper<T: Send + 'static>(
    server: &Server,
    ask: fn(&dyn ScopeKeeper) -> T,
) -> Result<T, Failure> {
    let server = server.clone();
    let told = tokio::task::spawn_blocking(move || {
        let folders = server.folders()?;
        Ok(ask(folders.keeper()))
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
