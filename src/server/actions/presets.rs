//! What a user may do with presets: whoever may write the site, a domain or a project keeps those of it, every user sees
//! those that their launches may name. A change touches no session.

use std::collections::BTreeMap;

use api::presets::{NewPresetBody, PresetPatchBody, PresetView};
use rules::names::{PresetId, ResourceGroupId, TenantName};
use rules::object::Object;
use rules::permissions::{Extent, Permission, may, reach};
use rules::preset::{Preset, PresetScope, in_order, preset_title};
use rules::refusal::Refusal;
use rules::refusals;

use super::resource_groups::seen_ids;
use super::sessions::project_of_launch;
use super::tenancy::{find_domain, find_project};
use super::{IdempotencyKey, Once, allowed, once, own_key, somewhere};
use crate::access::Caller;
use crate::catalog::events::NewEvent;
use crate::catalog::presets::PresetRecord;
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::{Failure, Server};

/// Presets of the site, of each domain and of each project. Higher: nobody finds the right one. Lower: a site with many
/// kinds of GPUs and courses cannot name its sizes.
const MAX_PRESETS: usize = 200;

/// The presets that the caller may see: those of the site, of their home domain and of everything that they reach; where
/// a project is named, those that a launch in it may name, in the order in which they are shown.
///
/// Errors: `project.not-found`.
pub async fn list(
    server: &Server,
    caller: &Caller,
    project: Option<&str>,
) -> Result<Vec<PresetView>, Failure> {
    allowed(caller, Permission::ProjectsRead)?;
    let project = project.map(str::trim).filter(|name| !name.is_empty());
    server.catalog().read_now("list presets", |view| {
        let Some(project) = project else {
            let rows = seen(view, caller)?;
            return Ok(rows.into_iter().map(show).collect());
        };
        let project = find_project(view, &caller.subject, Permission::ProjectsRead, project)?;
        let rows = view.presets_for(project.domain, project.id)?;
        Ok(ordered(of_seen_groups(view, caller, rows)?))
    })
}

/// The presets that a launch of the caller's in the project may name, in the order in which they are shown; the first
/// project of whoever the launch is for where none is named. Empty where nobody can launch there.
pub async fn for_launch(
    server: &Server,
    caller: &Caller,
    project: &str,
    owner: &str,
) -> Result<Vec<PresetView>, Failure> {
    allowed(caller, Permission::SessionsWrite)?;
    let now = server.clock().now();
    server
        .catalog()
        .read_now("list presets of a launch", |view| {
            match project_of_launch(view, caller, Some(owner), Some(project.to_owned()), now) {
                Ok((domain, project)) => {
                    let rows = view.presets_for(domain, project)?;
                    Ok(ordered(of_seen_groups(view, caller, rows)?))
                }
                Err(Failure::Refusal(_)) => Ok(Vec::new()),
                Err(fault) => Err(fault),
            }
        })
}

/// One of `list`, by id or name. Errors: `preset.not-found`, `preset.ambiguous`.
pub async fn get(server: &Server, caller: &Caller, which: &str) -> Result<PresetView, Failure> {
    allowed(caller, Permission::ProjectsRead)?;
    server
        .catalog()
        .read_now("show a preset", |view| find(view, caller, which).map(show))
}

/// True for those who may write presets somewhere.
pub fn may_write(caller: &Caller) -> bool {
    somewhere(caller, Permission::ProjectsWrite).is_ok()
}

/// True where the caller may change that preset.
pub fn may_change(caller: &Caller, preset: &PresetView, scopes: &WritableScopes) -> bool {
    may_write(caller)
        && match (&preset.project, &preset.domain) {
            (None, None) => scopes.site,
            (None, Some(domain)) => scopes.domains.contains(domain),
            (Some(project), Some(domain)) => {
                scopes.projects.contains(&format!("{domain}/{project}"))
            }
            (Some(_), None) => false,
        }
}

/// Where a caller may write presets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WritableScopes {
    pub site: bool,
    /// Names, in order.
    pub domains: Vec<String>,
    /// `DOMAIN/NAME`, in order.
    pub projects: Vec<String>,
}

/// Why one who sees these presets and writes in these scopes can make no other; None while one of the scopes has room.
pub fn no_room(known: &[PresetView], scopes: &WritableScopes) -> Option<Refusal> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for preset in known {
        let parts = [preset.domain.as_deref(), preset.project.as_deref()];
        let scope: Vec<&str> = parts.into_iter().flatten().collect();
        *counts.entry(scope.join("/")).or_default() += 1;
    }
    let site = scopes.site.then(String::new);
    let own = site.iter().chain(&scopes.domains).chain(&scopes.projects);
    let own: Vec<&String> = own.collect();
    let is_full = |scope: &&String| {
        counts
            .get(*scope)
            .is_some_and(|count| *count >= MAX_PRESETS)
    };
    let all_full = !own.is_empty() && own.iter().all(is_full);
    all_full.then(|| refusals::preset_too_many(MAX_PRESETS))
}

/// Where the caller may write presets. O(domains + projects).
pub async fn scopes(server: &Server, caller: &Caller) -> Result<WritableScopes, Failure> {
    let subject = caller.subject.clone();
    let own = reach(&subject, Permission::ProjectsWrite);
    if *own.extent() == Extent::Nothing {
        return Ok(WritableScopes::default());
    }
    let writes =
        move |scope: PresetScope| may(&subject, Permission::ProjectsWrite, &scope.scope()).is_ok();
    server
        .catalog()
        .read("list scopes of presets", move |view| {
            let domains = view.domains()?.into_iter();
            let domains = domains.filter(|domain| writes(PresetScope::Domain(domain.id)));
            let projects = view.projects(&own)?.into_iter().filter(|row| {
                let (domain, project) = (row.project.domain, row.project.id);
                writes(PresetScope::Project { domain, project })
            });
            Ok(WritableScopes {
                site: writes(PresetScope::Site),
                domains: domains.map(|domain| domain.name.to_string()).collect(),
                projects: projects
                    .map(|row| format!("{}/{}", row.domain_name, row.project.name))
                    .collect(),
            })
        })
        .await
}

/// Makes a preset of the site, a domain or a project.
///
/// Errors: `preset.name-invalid`, `preset.name-taken`, `preset.title-invalid`, `preset.empty`, `preset.position`,
/// `preset.scope-twice`, `preset.too-many`, those of amounts; `domain.not-found`, `project.not-found`,
/// `role.administrator-needed`, `role.permission-missing`.
pub async fn create(
    server: &Server,
    caller: &Caller,
    asked: NewPresetBody,
    key: Option<IdempotencyKey>,
) -> Result<Once<PresetView>, Failure> {
    somewhere(caller, Permission::ProjectsWrite)?;
    let key = own_key(caller, key)?;
    let name = name_of(&asked.name)?;
    let title = preset_title(asked.title.as_deref().unwrap_or_default(), "/title")?;
    let title_ko = preset_title(asked.title_ko.as_deref().unwrap_or_default(), "/title_ko")?;
    let caller = caller.clone();
    server
        .catalog()
        .write(Lane::Requests, "make a preset", move |rows| {
            once(rows, key.as_ref(), || {
                let scope = scope_of(
                    rows,
                    &caller,
                    asked.domain.as_deref(),
                    asked.project.as_deref(),
                )?;
                let preset = Preset {
                    id: PresetId::make(rows.now, base::observe::random()),
                    scope,
                    name,
                    title,
                    title_ko,
                    amounts: asked.resources.amounts(asked.max_runtime_seconds),
                    group: group_of(rows, &caller, asked.group.as_deref())?,
                    position: asked.position,
                    is_default: asked.default,
                    generation: 1,
                };
                preset.check()?;
                if rows.presets_of(scope)?.len() >= MAX_PRESETS {
                    return Err(refusals::preset_too_many(MAX_PRESETS).into());
                }
                refuse_taken(rows, &preset)?;
                rows.insert_preset(&preset)?;
                if preset.is_default {
                    rows.only_default_preset(&preset)?;
                }
                let told = preset.amounts.told();
                note(rows, &caller, &preset, "preset.added", "", &told)?;
                again(rows, preset.id)
            })
        })
        .await
}

/// Changes a preset; its scope stays. What was launched with it stays as it is.
///
/// Errors: as `create`; `preset.not-found`, `preset.ambiguous`, `preset.stale`.
pub async fn change(
    server: &Server,
    caller: &Caller,
    which: &str,
    patch: PresetPatchBody,
    if_match: Option<u64>,
) -> Result<PresetView, Failure> {
    somewhere(caller, Permission::ProjectsWrite)?;
    let name = patch.name.as_deref().map(name_of).transpose()?;
    let titled = |typed: &Option<String>, at: &str| {
        let title = typed.as_deref().map(|title| preset_title(title, at));
        title.transpose()
    };
    let title = titled(&patch.title, "/title")?;
    let title_ko = titled(&patch.title_ko, "/title_ko")?;
    let (caller, which) = (caller.clone(), which.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "change a preset", move |rows| {
            let before = find_to_change(rows, &caller, &which)?.preset;
            if if_match.is_some_and(|seen| seen != before.generation) {
                return Err(refusals::preset_stale(&before.name, before.generation).into());
            }
            let limit = patch.max_runtime_seconds;
            let limit = limit.unwrap_or(before.amounts.max_runtime_seconds);
            let amounts = match patch.resources {
                Some(Object(resources)) => resources.amounts(limit),
                None => rules::preset::PresetAmounts {
                    max_runtime_seconds: limit,
                    ..before.amounts
                },
            };
            let after = Preset {
                name: name.unwrap_or_else(|| before.name.clone()),
                title: title.unwrap_or_else(|| before.title.clone()),
                title_ko: title_ko.unwrap_or_else(|| before.title_ko.clone()),
                amounts,
                group: match patch.group.as_deref() {
                    None => before.group,
                    typed => group_of(rows, &caller, typed)?,
                },
                position: patch.position.unwrap_or(before.position),
                is_default: patch.default.unwrap_or(before.is_default),
                ..before.clone()
            };
            if after == before {
                return again(rows, before.id);
            }
            after.check()?;
            refuse_taken(rows, &after)?;
            rows.put_preset(&after)?;
            if after.is_default && !before.is_default {
                rows.only_default_preset(&after)?;
            }
            let (was, is) = match before.amounts == after.amounts {
                true => (before.name.to_string(), after.name.to_string()),
                false => (before.amounts.told(), after.amounts.told()),
            };
            note(rows, &caller, &after, "preset.changed", &was, &is)?;
            again(rows, before.id)
        })
        .await
}

/// Removes a preset. What was launched with it stays as it is. Errors: `preset.not-found`, `preset.ambiguous`,
/// `role.administrator-needed`, `role.permission-missing`.
pub async fn remove(server: &Server, caller: &Caller, which: &str) -> Result<(), Failure> {
    somewhere(caller, Permission::ProjectsWrite)?;
    let (caller, which) = (caller.clone(), which.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "remove a preset", move |rows| {
            let preset = find_to_change(rows, &caller, &which)?.preset;
            rows.forget_preset(preset.id)?;
            let told = preset.amounts.told();
            note(rows, &caller, &preset, "preset.removed", &told, "")
        })
        .await
}

fn seen(view: &ReadTransaction<'_>, caller: &Caller) -> Result<Vec<PresetRecord>, Failure> {
    let own = reach(&caller.subject, Permission::ProjectsRead);
    let rows = view.presets(&own, caller.subject.domain)?;
    of_seen_groups(view, caller, rows)
}

/// Without those for resource groups that the caller does not see: they learn no name of one. O(groups) where one is for a
/// group.
fn of_seen_groups(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    mut rows: Vec<PresetRecord>,
) -> Result<Vec<PresetRecord>, Failure> {
    if rows.iter().any(|row| row.preset.group.is_some()) {
        let seen = seen_ids(view, caller)?;
        rows.retain(|row| row.preset.group.is_none_or(|group| seen.contains(&group)));
    }
    Ok(rows)
}

/// The resource group that is meant among those that the caller sees; None for an empty text.
///
/// Errors: `group.not-found` at `/group`.
fn group_of(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    typed: Option<&str>,
) -> Result<Option<ResourceGroupId>, Failure> {
    let Some(which) = typed.map(str::trim).filter(|typed| !typed.is_empty()) else {
        return Ok(None);
    };
    let seen = seen_ids(view, caller)?;
    let id = which.parse::<ResourceGroupId>().ok();
    let mut groups = view.resource_groups()?.into_iter();
    let found = groups.find(|group| {
        let is_meant = Some(group.id) == id || group.name.as_str() == which;
        is_meant && seen.contains(&group.id)
    });
    let missing = || refusals::group_not_found().at("/group");
    Ok(Some(found.ok_or_else(missing)?.id))
}

/// The preset that is meant among those that the caller sees.
fn find(view: &ReadTransaction<'_>, caller: &Caller, which: &str) -> Result<PresetRecord, Failure> {
    one_of(called(view, caller, which)?)
}

/// Those that the caller sees of this id or name.
fn called(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    which: &str,
) -> Result<Vec<PresetRecord>, Failure> {
    let id = which.parse::<PresetId>().ok();
    let mut found = seen(view, caller)?;
    found.retain(|one| match id {
        Some(id) => one.preset.id == id,
        None => one.preset.name.as_str() == which,
    });
    Ok(found)
}

fn one_of(found: Vec<PresetRecord>) -> Result<PresetRecord, Failure> {
    let mut found = found.into_iter();
    match (found.next(), found.next()) {
        (None, _) => Err(refusals::preset_not_found().into()),
        (Some(one), None) => Ok(one),
        (Some(one), Some(_)) => Err(refusals::preset_ambiguous(&one.preset.name).into()),
    }
}

fn find_to_change(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    which: &str,
) -> Result<PresetRecord, Failure> {
    let writes = |one: &PresetRecord| {
        let scope = one.preset.scope.scope();
        may(&caller.subject, Permission::ProjectsWrite, &scope)
    };
    let mut found = called(view, caller, which)?;
    // Of several with one name those are not meant that the caller may not write.
    if found.len() > 1 && found.iter().any(|one| writes(one).is_ok()) {
        found.retain(|one| writes(one).is_ok());
    }
    let found = one_of(found)?;
    writes(&found)?;
    Ok(found)
}

/// Where a new preset is to be, if the caller may write there.
fn scope_of<'a>(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    domain: Option<&'a str>,
    project: Option<&'a str>,
) -> Result<PresetScope, Failure> {
    let named = |typed: Option<&'a str>| typed.map(str::trim).filter(|name| !name.is_empty());
    let subject = &caller.subject;
    let scope = match (named(domain), named(project)) {
        (Some(_), Some(_)) => return Err(refusals::preset_scope_twice().at("/domain").into()),
        (None, None) => PresetScope::Site,
        (Some(domain), None) => {
            let found = find_domain(view, subject, domain);
            PresetScope::Domain(found.map_err(|failure| failure.at("/domain"))?.id)
        }
        (None, Some(project)) => {
            let found = find_project(view, subject, Permission::ProjectsRead, project);
            let found = found.map_err(|failure| failure.at("/project"))?;
            PresetScope::Project {
                domain: found.domain,
                project: found.id,
            }
        }
    };
    may(subject, Permission::ProjectsWrite, &scope.scope())?;
    Ok(scope)
}

fn name_of(typed: &str) -> Result<TenantName, Refusal> {
    TenantName::parse(typed.trim()).map_err(|_| refusals::preset_name_invalid().at("/name"))
}

fn refuse_taken(rows: &Rows<'_>, preset: &Preset) -> Result<(), Failure> {
    match rows.preset_name_taken(preset)? {
        true => Err(refusals::preset_name_taken(&preset.name).at("/name").into()),
        false => Ok(()),
    }
}

fn again(view: &ReadTransaction<'_>, id: PresetId) -> Result<PresetView, Failure> {
    let found = view.preset(id)?;
    found
        .map(show)
        .ok_or_else(|| refusals::preset_not_found().into())
}

/// Those of a launch, in the order in which they are shown.
fn ordered(rows: Vec<PresetRecord>) -> Vec<PresetView> {
    let presets = rows.iter().map(|row| row.preset.clone()).collect();
    let order = in_order(presets).into_iter();
    let names = |id: PresetId| rows.iter().find(|row| row.preset.id == id).cloned();
    order.filter_map(|one| names(one.id)).map(show).collect()
}

fn show(row: PresetRecord) -> PresetView {
    PresetView::new(
        row.preset,
        row.domain_name,
        row.project_name,
        row.group_name,
    )
}

fn note(
    rows: &Rows<'_>,
    caller: &Caller,
    preset: &Preset,
    code: &str,
    before: &str,
    after: &str,
) -> Result<(), Failure> {
    rows.note(NewEvent {
        actor: caller.name.as_str(),
        topic: "system",
        object: preset.name.as_str(),
        scope: preset.scope.scope(),
        code,
        before,
        after,
    })
}

#[cfg(test)]
mod tests;
