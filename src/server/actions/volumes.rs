//! What users may do with volumes: administrators of the site add, change and forget them; every user sees those that they may
//! make folders on. Mounts nothing: what is mounted is the site's.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use api::volumes::{NewVolumeBody, VolumePatchBody, VolumeView};
use rules::folder::OwnLimit;
use rules::names::VolumeId;
use rules::permissions::{Permission, Subject, may};
use rules::refusal::Refusal;
use rules::refusals;
use rules::storage::StorageEnforcement;
use rules::tenancy::Scope;
use rules::units::Timestamp;
use rules::volume::{
    DEFAULT_VOLUME, MAX_VOLUME_TENANTS, MAX_VOLUMES, MappedUser, Volume, VolumeAccess, VolumeState,
    usual_folder_limit, volume_name, volume_path,
};
use store::volumes::{VolumeShelf, VolumeSight, refusal_of};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use uuid::Uuid;

use super::tenancy::{find_domain, find_project};
use super::{IdempotencyKey, Once, allowed, once, own_key};
use crate::access::Caller;
use crate::appliance::lazy_stores::folder_failure;
use crate::catalog::events::NewEvent;
use crate::catalog::volumes::VolumeRecord;
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::{Failure, Server, ServerFault};

/// How long an administrator waits for what is mounted at a path. Longer: a page hangs with it. Shorter: a slow server is
/// refused.
const LOOK_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);
/// How often work on a volume looks whether the volume hangs. Longer: who waits learns it later. Shorter: costs a core more.
const TICK: std::time::Duration = std::time::Duration::from_millis(500);

/// The volumes that the caller may make folders on, and for administrators and auditors of the site all, by name.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<VolumeView>, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let sees_all = may(&caller.subject, Permission::SystemRead, &Scope::SITE).is_ok();
    let shelf = server.folders()?.volumes().clone();
    server.catalog().read_now("list volumes", |view| {
        let all = view.volumes()?.into_iter();
        let seen = all.filter(|one| sees_all || one.volume.access.admits(&caller.subject));
        seen.map(|one| show(view, one, &shelf, sees_all)).collect()
    })
}

/// Those that the caller may make folders on, by name.
pub async fn usable(server: &Server, caller: &Caller) -> Result<Vec<VolumeView>, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let shelf = server.folders()?.volumes().clone();
    server.catalog().read_now("list volumes", |view| {
        let all = view.volumes()?.into_iter();
        let seen = all.filter(|one| one.volume.access.admits(&caller.subject));
        seen.map(|one| show(view, one, &shelf, false)).collect()
    })
}

/// One of `list`, by name or id.
///
/// Errors: `volume.not-found`.
pub async fn get(server: &Server, caller: &Caller, which: &str) -> Result<VolumeView, Failure> {
    let all = list(server, caller).await?.into_iter();
    let mut found = all.filter(|one| one.name == which || one.id.to_string() == which);
    found
        .next()
        .ok_or_else(|| refusals::volume_not_found().into())
}

/// Makes a mounted file system a volume: writes its marker, where it has none, and its row.
///
/// Errors: `role.administrator-needed`, `tenant.name-invalid`, `volume.name-taken`, `volume.path-invalid`, `volume.not-mounted`,
/// `volume.not-empty`, `volume.read-only`, `volume.hung`, `volume.known`, `volume.too-many`, `volume.tenants`, `volume.mapped-user`,
/// `volume.cache-none`, `folder.limit-size`, `domain.not-found`, `project.not-found`.
pub async fn create(
    server: &Server,
    caller: &Caller,
    asked: NewVolumeBody,
    key: Option<IdempotencyKey>,
) -> Result<Once<VolumeView>, Failure> {
    may(&caller.subject, Permission::SystemWrite, &Scope::SITE)?;
    let key = own_key(caller, key)?;
    let name = volume_name(asked.name.trim())?;
    let path = volume_path(&asked.path)?;
    let typed = asked.mapped_user.as_deref().map(str::trim);
    let typed = typed.filter(|typed| !typed.is_empty());
    let mapped = typed.map(MappedUser::parse).transpose()?;
    refuse_cache(asked.cached)?;
    let folder_limit = usual_folder_limit(asked.folder_limit.unwrap_or(0))?;
    let shelf = server.folders()?.volumes().clone();
    refuse_own(&shelf, &path)?;
    // What is refused writes no marker.
    server.catalog().read_now("look for a volume", |view| {
        if key.is_none() {
            refuse_taken(view, None, name.as_str())?;
            refuse_full(view)?;
        }
        access(view, &caller.subject, &asked.domains, &asked.projects).map(drop)
    })?;
    let drafted = VolumeId::make(server.clock().now(), base::observe::random());
    let id = looked_at(server, &path, move |path| VolumeShelf::adopt(path, drafted)).await?;
    let (caller, kept) = (caller.clone(), shelf.clone());
    let made = server
        .catalog()
        .write(Lane::Requests, "add a volume", move |rows| {
            once(rows, key.as_ref(), || {
                refuse_taken(rows, None, name.as_str())?;
                refuse_full(rows)?;
                if let Some(known) = rows.volume(id)? {
                    return Err(refusals::volume_known(known.volume.name).at("/path").into());
                }
                let volume = Volume {
                    id,
                    name,
                    path,
                    access: access(rows, &caller.subject, &asked.domains, &asked.projects)?,
                    mapped,
                    folder_limit,
                    created_at: rows.now,
                    generation: 1,
                };
                rows.insert_volume(&volume)?;
                note(
                    rows,
                    &caller,
                    &volume,
                    "volume.added",
                    ("", volume.path.as_str()),
                )?;
                // The last step: without the row nothing leads to the link, and the next addition writes it again.
                kept.keep(id, &PathBuf::from(&volume.path))
                    .map_err(folder_failure)?;
                let made = VolumeRecord { volume, folders: 0 };
                show(rows, made, &kept, true)
            })
        })
        .await?;
    // So that its room is known before the next round of looks; who asked waits for none.
    tokio::task::spawn_blocking(move || shelf.look(id));
    Ok(made)
}

/// Gives a volume another name, another directory that the same file system is mounted on, or other users.
///
/// Errors: as `create`; `volume.not-found`, `volume.stale`, `volume.other-marker`.
pub async fn change(
    server: &Server,
    caller: &Caller,
    which: &str,
    patch: VolumePatchBody,
    if_match: Option<u64>,
) -> Result<VolumeView, Failure> {
    may(&caller.subject, Permission::SystemWrite, &Scope::SITE)?;
    let name = patch.name.as_deref().map(str::trim).map(volume_name);
    let name = name.transpose()?;
    let path = patch.path.as_deref().map(volume_path).transpose()?;
    refuse_cache(patch.cached == Some(true))?;
    let folder_limit = patch.folder_limit.map(usual_folder_limit).transpose()?;
    let known = server
        .catalog()
        .read_now("look for a volume", |view| find(view, which))?;
    let id = known.volume.id;
    let shelf = server.folders()?.volumes().clone();
    if let Some(path) = &path {
        refuse_own(&shelf, path)?;
    }
    if let Some(path) = &path
        && *path != known.volume.path
        && looked_at(server, path, VolumeShelf::marked).await? != Some(id)
    {
        return Err(refusals::volume_other_marker().at("/path").into());
    }
    let caller = caller.clone();
    server
        .catalog()
        .write(Lane::Requests, "change a volume", move |rows| {
            let before = rows.volume(id)?.ok_or_else(refusals::volume_not_found)?;
            let was = &before.volume;
            if if_match.is_some_and(|seen| seen != was.generation) {
                return Err(refusals::volume_stale(was.generation).into());
            }
            if let Some(name) = &name {
                refuse_taken(rows, Some(id), name.as_str())?;
            }
            let mut changed = was.clone();
            changed.name = name.unwrap_or(changed.name);
            changed.path = path.unwrap_or(changed.path);
            changed.folder_limit = folder_limit.unwrap_or(changed.folder_limit);
            let none = Vec::new();
            let (domains, projects) = (patch.domains.as_ref(), patch.projects.as_ref());
            let asked = access(
                rows,
                &caller.subject,
                domains.unwrap_or(&none),
                projects.unwrap_or(&none),
            )?;
            if domains.is_some() {
                changed.access.domains = asked.domains;
            }
            if projects.is_some() {
                changed.access.projects = asked.projects;
            }
            if changed != *was {
                rows.put_volume(&changed)?;
                let told = (was.path.as_str(), changed.path.as_str());
                note(rows, &caller, &changed, "volume.changed", told)?;
                shelf
                    .keep(id, &PathBuf::from(&changed.path))
                    .map_err(folder_failure)?;
            }
            let after = rows.volume(id)?.ok_or_else(refusals::volume_not_found)?;
            show(rows, after, &shelf, true)
        })
        .await
}

/// Refuses a read cache, which no version has yet: the field is there so that requests of today say what they mean.
///
/// Errors: `volume.cache-none`.
fn refuse_cache(is_asked: bool) -> Result<(), Refusal> {
    match is_asked {
        true => Err(refusals::volume_cache_none().at("/cached")),
        false => Ok(()),
    }
}

/// Forgets a volume that no folder lies on. Its marker stays on it.
///
/// Errors: `role.administrator-needed`, `volume.not-found`, `volume.used`.
pub async fn remove(server: &Server, caller: &Caller, which: &str) -> Result<(), Failure> {
    may(&caller.subject, Permission::SystemWrite, &Scope::SITE)?;
    let shelf = server.folders()?.volumes().clone();
    let (caller, which) = (caller.clone(), which.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "forget a volume", move |rows| {
            let found = find(rows, &which)?;
            if found.folders > 0 {
                return Err(refusals::volume_used(found.folders).into());
            }
            let volume = &found.volume;
            rows.forget_volume(volume.id)?;
            note(
                rows,
                &caller,
                volume,
                "volume.removed",
                (volume.path.as_str(), ""),
            )?;
            shelf.forget(volume.id).map_err(folder_failure)
        })
        .await
}

/// The volume that a new folder of a subject is to lie on; None for the box's own disk. One that the subject may not use is
/// none of theirs to know.
///
/// Errors: `volume.not-found`, `volume.absent`, `volume.hung`, `volume.read-only`, each at its field.
pub(super) fn chosen(
    view: &ReadTransaction<'_>,
    subject: &Subject,
    typed: Option<&str>,
    shelf: &VolumeShelf,
) -> Result<Option<VolumeId>, Failure> {
    let named = typed.map(str::trim).unwrap_or_default();
    if matches!(named, "" | DEFAULT_VOLUME) {
        return Ok(None);
    }
    let found = find(view, named).map_err(|failure| failure.at("/volume"))?;
    if !found.volume.access.admits(subject) {
        return Err(refusals::volume_not_found().at("/volume").into());
    }
    let state = shelf.sight(found.volume.id).map(|sight| sight.state);
    let usable = state.map_or(Ok(()), VolumeState::refuse_writing);
    usable.map_err(|refusal| refusal.at("/volume"))?;
    Ok(Some(found.volume.id))
}

/// Whether a subject may make a folder on a volume still, asked as its row is written.
///
/// Errors: `volume.not-found`, at its field.
pub(super) fn still_admits(
    view: &ReadTransaction<'_>,
    subject: &Subject,
    volume: VolumeId,
) -> Result<(), Failure> {
    let found = view.volume(volume)?;
    match found.is_some_and(|found| found.volume.access.admits(subject)) {
        true => Ok(()),
        false => Err(refusals::volume_not_found().at("/volume").into()),
    }
}

/// What a new folder may take by itself where it is to lie; None for one on the box's own disk, and where its volume says nothing.
pub(super) fn limit_of_new(
    view: &ReadTransaction<'_>,
    volume: Option<VolumeId>,
) -> Result<Option<OwnLimit>, Failure> {
    let found = match volume {
        Some(volume) => view.volume(volume)?,
        None => None,
    };
    let bytes = found.and_then(|found| found.volume.folder_limit);
    Ok(bytes.map(|bytes| OwnLimit {
        bytes,
        is_on_top: true,
    }))
}

/// Works on a volume, on a thread of its own. Where the volume hangs meanwhile, who asked goes on, and the thread stays with
/// the volume.
///
/// Errors: `volume.hung`.
pub(crate) async fn on_volume<T: Send + 'static>(
    shelf: &VolumeShelf,
    volume: VolumeId,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let mut told = begun(work)?;
    loop {
        tokio::select! {
            done = &mut told => {
                return done.map_err(|error| ServerFault::new("work on a volume", error).into());
            }
            () = tokio::time::sleep(TICK) => {
                let state = shelf.sight(volume).map(|sight| sight.state);
                if state == Some(VolumeState::Hung) {
                    return Err(refusals::volume_hung().into());
                }
            }
        }
    }
}

/// Waits for a place of work on a volume, and no longer than until the volume hangs.
///
/// Errors: `volume.hung`.
pub(super) async fn place_on(
    server: &Server,
    shelf: &VolumeShelf,
    volume: VolumeId,
) -> Result<OwnedSemaphorePermit, Failure> {
    loop {
        refuse_silent(shelf, volume)?;
        let waits = server.folder_turns().wait_for(Some(volume));
        if let Ok(place) = tokio::time::timeout(TICK, waits).await {
            return place.ok_or_else(|| refusals::volume_busy().into());
        }
    }
}

/// Does what no caller waits for on a thread of its own, which may wait for a volume.
pub(super) fn apart(work: impl FnOnce() + Send + 'static) {
    let begun = std::thread::Builder::new()
        .name("volume".to_owned())
        .spawn(work);
    if let Err(error) = begun {
        tracing::warn!(%error, "no thread works on a volume");
    }
}

/// Looks at what is mounted at a path, on a thread of its own; few of them at once, however many hang.
///
/// Errors: `volume.hung`, `volume.busy`; those of the look.
async fn looked_at<T: Send + 'static>(
    server: &Server,
    path: &str,
    look: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> Result<T, Failure> {
    let place = PathBuf::from(path);
    // It is no volume yet: all such looks share the places of one.
    let permit = server.folder_turns().enter_volume(VolumeId(Uuid::nil()))?;
    let told = begun(move || {
        let _permit = permit;
        look(&place)
    })?;
    let done = tokio::time::timeout(LOOK_TIMEOUT, told).await;
    let done = done.map_err(|_| refusals::volume_hung().at("/path"))?;
    let done = done.map_err(|error| ServerFault::new("look at a volume", error))?;
    done.map_err(|error| match refusal_of(&error) {
        Some(refusal) => refusal.at("/path").into(),
        None => folder_failure(error),
    })
}

fn begun<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<oneshot::Receiver<T>, Failure> {
    let (tell, told) = oneshot::channel();
    let begun = std::thread::Builder::new()
        .name("volume".to_owned())
        .spawn(move || {
            // Who asked may be gone.
            let _ = tell.send(work());
        });
    begun.map_err(|error| ServerFault::new("work on a volume", error))?;
    Ok(told)
}

/// Errors: `volume.not-found`.
fn find(view: &ReadTransaction<'_>, which: &str) -> Result<VolumeRecord, Failure> {
    let found = match which.parse::<VolumeId>() {
        Ok(id) => view.volume(id)?,
        Err(_) => view.volume_named(which)?,
    };
    found.ok_or_else(|| refusals::volume_not_found().into())
}

fn refuse_taken(
    view: &ReadTransaction<'_>,
    own: Option<VolumeId>,
    name: &str,
) -> Result<(), Failure> {
    let other = view.volume_named(name)?;
    match other.is_some_and(|other| Some(other.volume.id) != own) {
        true => Err(refusals::volume_name_taken(name).at("/name").into()),
        false => Ok(()),
    }
}

/// Refuses the places of the server's own files: neither they nor what holds them is a volume.
fn refuse_own(shelf: &VolumeShelf, path: &str) -> Result<(), Refusal> {
    match shelf.is_own(Path::new(path)) {
        true => Err(refusals::volume_path_invalid().at("/path")),
        false => Ok(()),
    }
}

fn refuse_full(view: &ReadTransaction<'_>) -> Result<(), Failure> {
    match view.volumes()?.len() >= MAX_VOLUMES {
        true => Err(refusals::volume_too_many(MAX_VOLUMES).into()),
        false => Ok(()),
    }
}

fn access(
    view: &ReadTransaction<'_>,
    subject: &Subject,
    domains: &[String],
    projects: &[String],
) -> Result<VolumeAccess, Failure> {
    if domains.len() + projects.len() > MAX_VOLUME_TENANTS {
        return Err(refusals::volume_tenants(MAX_VOLUME_TENANTS).into());
    }
    let mut found = (BTreeSet::new(), BTreeSet::new());
    for name in domains {
        let domain = find_domain(view, subject, name.trim());
        found
            .0
            .insert(domain.map_err(|failure| failure.at("/domains"))?.id);
    }
    for name in projects {
        let project = find_project(view, subject, Permission::ProjectsRead, name.trim());
        found
            .1
            .insert(project.map_err(|failure| failure.at("/projects"))?.id);
    }
    Ok(VolumeAccess {
        domains: found.0.into_iter().collect(),
        projects: found.1.into_iter().collect(),
    })
}

/// `is_whole`: also where it is mounted.
fn show(
    view: &ReadTransaction<'_>,
    row: VolumeRecord,
    shelf: &VolumeShelf,
    is_whole: bool,
) -> Result<VolumeView, Failure> {
    let volume = row.volume;
    let sight = shelf.sight(volume.id);
    let room = |of: fn(&VolumeSight) -> u64| {
        let seen = sight.as_ref().filter(|sight| sight.total > 0);
        seen.map(of)
    };
    let mut domains = Vec::new();
    let mut projects = Vec::new();
    if is_whole {
        for id in &volume.access.domains {
            let domain = view.domain(*id)?;
            // One that is gone keeps its id in sight: the volume is not open to all for that.
            domains.push(domain.map_or_else(|| id.0.to_string(), |domain| domain.name.to_string()));
        }
        for id in &volume.access.projects {
            let Some(project) = view.project(*id)? else {
                projects.push(id.0.to_string());
                continue;
            };
            let domain = view.domain(project.domain)?;
            let domain = domain.map_or_else(String::new, |domain| domain.name.to_string());
            projects.push(format!("{domain}/{}", project.name));
        }
    }
    let seen_at = sight.as_ref().and_then(|sight| {
        let since = sight.at.duration_since(std::time::UNIX_EPOCH).ok()?;
        Some(Timestamp::from_millis(
            i64::try_from(since.as_millis()).ok()?,
        ))
    });
    Ok(VolumeView {
        id: volume.id,
        name: volume.name.to_string(),
        path: is_whole.then_some(volume.path),
        mapped_user: volume
            .mapped
            .filter(|_| is_whole)
            .map(|user| user.to_string()),
        cached: false,
        folder_limit: volume.folder_limit.map(|limit| limit.0),
        // Until the first look nothing is known against it.
        state: sight
            .as_ref()
            .map_or(VolumeState::Ready, |sight| sight.state),
        seen_at: seen_at.unwrap_or(volume.created_at),
        enforcement: StorageEnforcement::Counted,
        total: room(|sight| sight.total),
        used: room(|sight| sight.total.saturating_sub(sight.free)),
        free: room(|sight| sight.free),
        domains,
        projects,
        folders: if is_whole { row.folders } else { 0 },
        generation: volume.generation,
    })
}

fn note(
    rows: &Rows<'_>,
    caller: &Caller,
    volume: &Volume,
    code: &str,
    (before, after): (&str, &str),
) -> Result<(), Failure> {
    rows.note(NewEvent {
        actor: caller.name.as_str(),
        topic: "system",
        object: volume.name.as_str(),
        scope: Scope::SITE,
        code,
        before,
        after,
    })
}

/// Writes down that a volume came to another state.
pub(crate) fn note_state(
    rows: &Rows<'_>,
    id: VolumeId,
    before: VolumeState,
    after: VolumeState,
) -> Result<(), Failure> {
    let Some(found) = rows.volume(id)? else {
        return Ok(());
    };
    rows.note(NewEvent {
        actor: "volumes",
        topic: "system",
        object: found.volume.name.as_str(),
        scope: Scope::SITE,
        code: "volume.state",
        before: before.word(),
        after: after.word(),
    })
}

/// Refuses work that is about to begin where the volume did not answer when it was looked at last.
///
/// Errors: `volume.hung`.
pub(super) fn refuse_silent(shelf: &VolumeShelf, volume: VolumeId) -> Result<(), Refusal> {
    let state = shelf.sight(volume).map(|sight| sight.state);
    // An absent one is looked for once more as it is opened: it may be back.
    match state {
        Some(VolumeState::Hung) => VolumeState::Hung.refuse_reading(),
        _ => Ok(()),
    }
}
