//! What a user may do with resource groups: administrators of the site keep them, every user sees those that they may use.
//! A change of a group's nodes or access touches no session that has a place.

use std::collections::{BTreeMap, BTreeSet};

use api::resource_groups::{
    GroupAccessBody, GroupAccessView, GroupNodesBody, GroupWindowView, GroupWindowsBody,
    NewResourceGroupBody, ResourceGroupPatchBody, ResourceGroupView,
};
use jiff::tz::TimeZone;
use rules::calendar::{GroupCalendar, GroupWindow};
use rules::fair_share::QueueOrder;
use rules::grants::GrantScope;
use rules::names::{NodeId, ResourceGroupId, TenantName};
use rules::permissions::{Permission, Subject, may};
use rules::placement::reservable;
use rules::policy::{BackfillMode, PreemptionMode, Spreading};
use rules::refusal::Refusal;
use rules::refusals;
use rules::reservation::is_covered;
use rules::resource_group::{
    CpuOvercommit, GroupAccess, GroupKinds, GroupPlan, ResourceGroup, group_title,
};
use rules::session::SessionKind;
use rules::tenancy::{DomainId, ProjectId, Scope};
use rules::units::CpuShare;

use super::accounts::find as find_user;
use super::tenancy::{find_domain, find_project};
use super::{IdempotencyKey, Once, allowed, once, own_key};
use crate::access::Caller;
use crate::catalog::events::NewEvent;
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::{Failure, Server};

/// Resource groups of the site. Higher: each pass of the scheduler walks more queues. Lower: a site with many kinds of
/// machines and faculties cannot part them.
const MAX_GROUPS: usize = 32;
/// Domains, projects and users that one group lists. Higher: each pass compares more of them for each session that waits.
/// Lower: a group for many users has to list their project.
const MAX_GROUP_ACCESS: usize = 200;

/// Ended sessions that leave a group in one commit before it is removed. Higher: users who click meanwhile wait. Lower: a
/// group of many sessions takes long to be removed.
const LEAVING_AT_ONCE: usize = 1_000;

/// The groups that the caller may use, in the order in which a launch takes them; all of them, with their nodes and who
/// may use them, for those who may read the system. O(groups × the caller's projects).
///
/// Errors: `denied` without `sessions:read`.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<ResourceGroupView>, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let caller = caller.clone();
    server
        .catalog()
        .read("list resource groups", move |view| {
            let plan = view.nodes_by_group()?;
            let seen = seen(view, &caller, &plan)?;
            let shown = seen.into_iter();
            shown
                .map(|group| show(view, &caller, &plan, group))
                .collect()
        })
        .await
}

/// One of `list`, by name or id. Errors: `group.not-found`.
pub async fn get(
    server: &Server,
    caller: &Caller,
    which: &str,
) -> Result<ResourceGroupView, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let (caller, which) = (caller.clone(), which.to_owned());
    server
        .catalog()
        .read("show a resource group", move |view| {
            let plan = view.nodes_by_group()?;
            let found = seen(view, &caller, &plan)?.into_iter();
            let group = one_of(found, &which)?;
            show(view, &caller, &plan, group)
        })
        .await
}

/// True for those who may write resource groups.
pub fn may_write(caller: &Caller) -> bool {
    allowed(caller, Permission::SystemWrite).is_ok()
}

/// The names of the groups that a launch of the caller's may name; empty while the site has one, or the caller may use
/// only one: then nothing is to be chosen.
///
/// Errors: `denied` without `sessions:write`.
pub async fn for_launch(server: &Server, caller: &Caller) -> Result<Vec<TenantName>, Failure> {
    allowed(caller, Permission::SessionsWrite)?;
    let caller = caller.clone();
    server
        .catalog()
        .read("list resource groups of a launch", move |view| {
            let groups = view.resource_groups()?;
            if groups.len() < 2 {
                return Ok(Vec::new());
            }
            let usable = usable(view, &caller.subject, groups)?;
            Ok(match usable.len() {
                0 | 1 => Vec::new(),
                _ => usable.into_iter().map(|group| group.name).collect(),
            })
        })
        .await
}

/// The name of each node's group, for pages of those who may see the group; empty while there is only one.
///
/// Errors: `denied` without `sessions:read`.
pub async fn of_nodes(
    server: &Server,
    caller: &Caller,
) -> Result<BTreeMap<NodeId, TenantName>, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let caller = caller.clone();
    server
        .catalog()
        .read("look for groups of nodes", move |view| {
            let plan = view.nodes_by_group()?;
            if plan.is_single() {
                return Ok(BTreeMap::new());
            }
            let seen = seen(view, &caller, &plan)?;
            let named = |(node, _): (NodeId, String)| {
                let group = plan.of_node(node);
                let group = seen.iter().find(|one| one.id == group)?;
                Some((node, group.name.clone()))
            };
            Ok(view.node_names()?.into_iter().filter_map(named).collect())
        })
        .await
}

/// Makes a group without nodes, for everybody.
///
/// Errors: `group.name-invalid`, `group.name-taken`, `group.title-invalid`, `group.kinds-empty`,
/// `group.overcommit-range`, `group.too-many`; `role.administrator-needed`.
pub async fn create(
    server: &Server,
    caller: &Caller,
    asked: NewResourceGroupBody,
    key: Option<IdempotencyKey>,
) -> Result<Once<ResourceGroupView>, Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let key = own_key(caller, key)?;
    let name = name_of(&asked.name)?;
    let title = group_title(asked.title.as_deref().unwrap_or_default(), "/title")?;
    let kinds = asked.kinds.as_deref().map(kinds_of).transpose()?;
    let overcommit = asked.cpu_overcommit.map(overcommit_of).transpose()?;
    let caller = caller.clone();
    server
        .catalog()
        .write(Lane::Requests, "make a resource group", move |rows| {
            once(rows, key.as_ref(), || {
                let known = rows.resource_groups()?;
                if known.len() >= MAX_GROUPS {
                    return Err(refusals::group_too_many(MAX_GROUPS).into());
                }
                let group = ResourceGroup {
                    id: ResourceGroupId::make(rows.now, base::observe::random()),
                    name,
                    title,
                    access: None,
                    kinds: kinds.unwrap_or(GroupKinds::ALL),
                    spreading: asked.spreading,
                    order: asked.order,
                    backfill: asked.backfill,
                    cpu_overcommit: overcommit.unwrap_or_default(),
                    calendar: GroupCalendar::default(),
                    preemption: asked.preemption.unwrap_or_default(),
                    generation: 1,
                };
                refuse_taken(&known, &group)?;
                rows.insert_resource_group(&group)?;
                if group.order.is_some() {
                    rows.sum_up_past()?;
                }
                note(rows, &caller, &group, "group.added", ("", ""))?;
                again(rows, &caller, group.id)
            })
        })
        .await
}

/// Changes what a group is called, which kinds it takes, how its sessions are spread, its queue is served, its cores are
/// given, and whether its sessions make way. Sessions that wait in it stay, and what runs goes on: also beyond a factor that
/// was lowered.
///
/// Errors: as `create`; `group.not-found`, `group.stale`.
pub async fn change(
    server: &Server,
    caller: &Caller,
    which: &str,
    patch: ResourceGroupPatchBody,
    if_match: Option<u64>,
) -> Result<ResourceGroupView, Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let name = patch.name.as_deref().map(name_of).transpose()?;
    let title = patch.title.as_deref();
    let title = title
        .map(|title| group_title(title, "/title"))
        .transpose()?;
    let kinds = patch.kinds.as_deref().map(kinds_of).transpose()?;
    let overcommit = patch.cpu_overcommit.map(overcommit_of).transpose()?;
    let (caller, which) = (caller.clone(), which.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "change a resource group", move |rows| {
            let known = rows.resource_groups()?;
            let before = one_of(known.iter().cloned(), &which)?;
            refuse_stale(&before, if_match)?;
            let after = ResourceGroup {
                name: name.unwrap_or_else(|| before.name.clone()),
                title: title.unwrap_or_else(|| before.title.clone()),
                kinds: kinds.unwrap_or(before.kinds),
                spreading: patch.spreading.unwrap_or(before.spreading),
                order: patch.order.unwrap_or(before.order),
                backfill: patch.backfill.unwrap_or(before.backfill),
                cpu_overcommit: overcommit.unwrap_or(before.cpu_overcommit),
                preemption: patch.preemption.unwrap_or(before.preemption),
                ..before.clone()
            };
            if after == before {
                return again(rows, &caller, before.id);
            }
            refuse_taken(&known, &after)?;
            rows.put_resource_group(&after)?;
            if after.order != before.order {
                rows.sum_up_past()?;
            }
            let told = (told(&before), told(&after));
            note(rows, &caller, &after, "group.changed", (&told.0, &told.1))?;
            again(rows, &caller, before.id)
        })
        .await
}

/// Says who may use a group from now on. Sessions of others that run in it go on; those that wait wait on.
///
/// Errors: `group.not-found`, `group.stale`, `group.subject-unknown`, `group.access-too-many`;
/// `role.administrator-needed`.
pub async fn set_access(
    server: &Server,
    caller: &Caller,
    which: &str,
    wanted: GroupAccessBody,
    if_match: Option<u64>,
) -> Result<ResourceGroupView, Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let (caller, which) = (caller.clone(), which.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "say who may use a group", move |rows| {
            let before = one_of(rows.resource_groups()?.into_iter(), &which)?;
            refuse_stale(&before, if_match)?;
            let access = access_of(rows, &caller.subject, &wanted)?;
            if access == before.access {
                return again(rows, &caller, before.id);
            }
            let after = ResourceGroup {
                access,
                ..before.clone()
            };
            rows.put_resource_group(&after)?;
            let told = (
                access_told(rows, before.access.as_ref())?,
                access_told(rows, after.access.as_ref())?,
            );
            note(rows, &caller, &after, "group.access", (&told.0, &told.1))?;
            again(rows, &caller, before.id)
        })
        .await
}

/// Gives a group exactly these windows. What runs goes on, also where a window takes no such session; what waits is judged by
/// them from the next pass on.
///
/// Errors: `group.not-found`, `group.window-invalid`, `group.window-overlap`, `group.windows-too-many`,
/// `time-zone.unknown`; `role.administrator-needed`.
pub async fn set_windows(
    server: &Server,
    caller: &Caller,
    which: &str,
    wanted: GroupWindowsBody,
) -> Result<ResourceGroupView, Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let calendar = calendar_of(caller, &wanted)?;
    let (caller, which) = (caller.clone(), which.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "set windows of a group", move |rows| {
            let before = one_of(rows.resource_groups()?.into_iter(), &which)?;
            if calendar == before.calendar {
                return again(rows, &caller, before.id);
            }
            let after = ResourceGroup {
                calendar,
                ..before.clone()
            };
            rows.put_resource_group(&after)?;
            // In the one writer it costs a visit of each row of use.
            if !after.orders().eq(before.orders()) {
                rows.sum_up_past()?;
            }
            let told = (windows_told(&before), windows_told(&after));
            note(rows, &caller, &after, "group.windows", (&told.0, &told.1))?;
            again(rows, &caller, before.id)
        })
        .await
}

/// Gives a group exactly these nodes; those that it had go to the founding group, and to that one they only come. What runs
/// on them goes on, and what waits keeps its group.
///
/// Errors: `group.not-found`, `group.stale`, `group.node-unknown`, `group.node-reserved` for a node that leaves the founding
/// group while a reservation keeps something of it, or where more is booked than the other nodes have; `role.administrator-needed`.
pub async fn set_nodes(
    server: &Server,
    caller: &Caller,
    which: &str,
    wanted: GroupNodesBody,
    if_match: Option<u64>,
) -> Result<ResourceGroupView, Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let (caller, which) = (caller.clone(), which.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "put nodes into a group", move |rows| {
            let plan = rows.nodes_by_group()?;
            let group = one_of(plan.groups.iter().cloned(), &which)?;
            refuse_stale(&group, if_match)?;
            let all = rows.node_names()?;
            let wanted = nodes_of(&all, &wanted.nodes)?;
            let before = own_names(&all, &plan, group.id);
            let reserved: BTreeSet<NodeId> = rows
                .near_reservations()?
                .iter()
                .flat_map(|time| time.parts.iter().map(|part| part.node))
                .collect();
            let mut moved: BTreeSet<ResourceGroupId> = BTreeSet::new();
            for (node, name) in &all {
                let was = plan.of_node(*node);
                let is = match (wanted.contains(node), was == group.id) {
                    (true, _) => group.id,
                    (false, true) => ResourceGroupId::DEFAULT,
                    (false, false) => was,
                };
                if is == was {
                    continue;
                }
                if was == ResourceGroupId::DEFAULT && reserved.contains(node) {
                    return Err(refusals::group_node_reserved(name).at("/nodes").into());
                }
                rows.put_node_group(*node, is)?;
                moved.extend([was, is]);
            }
            if group.id != ResourceGroupId::DEFAULT && moved.contains(&ResourceGroupId::DEFAULT) {
                refuse_short(rows, &plan)?;
            }
            // The version of a group is that of its nodes as well.
            for one in plan.groups.iter().filter(|one| moved.contains(&one.id)) {
                rows.put_resource_group(one)?;
            }
            if !moved.is_empty() {
                let after = own_names(&all, &rows.nodes_by_group()?, group.id);
                let told = (before.join(" "), after.join(" "));
                note(rows, &caller, &group, "group.nodes", (&told.0, &told.1))?;
            }
            again(rows, &caller, group.id)
        })
        .await
}

/// Refuses nodes that leave the founding group where reservations would have more booked than it still has.
fn refuse_short(rows: &Rows<'_>, before: &GroupPlan) -> Result<(), Failure> {
    let (mut had, left) = (rows.nodes()?, rows.founding_nodes()?);
    had.retain(|node| before.of_node(node.id) == ResourceGroupId::DEFAULT);
    let (had, left) = (reservable(&had), reservable(&left));
    // Nodes that come make nothing worse, also where devices failed since the booking.
    if had.fits(left) || is_covered(&rows.live_reservations()?, left) {
        return Ok(());
    }
    Err(refusals::group_reservations_short().at("/nodes").into())
}

/// Removes a group that has no node and no live session; its ended ones are of the founding group from then on, some in each
/// commit. Where it is refused half way, the ones that left are not brought back.
///
/// Errors: `group.not-found`, `group.founding`, `group.in-use`; `role.administrator-needed`.
pub async fn remove(server: &Server, caller: &Caller, which: &str) -> Result<(), Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let mut is_removed = false;
    while !is_removed {
        let (caller, which) = (caller.clone(), which.to_owned());
        is_removed = server
            .catalog()
            .write(Lane::Requests, "remove a resource group", move |rows| {
                remove_part(rows, &caller, &which)
            })
            .await?;
    }
    Ok(())
}

/// Makes ended sessions leave a group, and removes it when none is left; says whether it did.
fn remove_part(rows: &Rows<'_>, caller: &Caller, which: &str) -> Result<bool, Failure> {
    let plan = rows.nodes_by_group()?;
    let group = one_of(plan.groups.iter().cloned(), which)?;
    if group.id == ResourceGroupId::DEFAULT {
        return Err(refusals::group_founding().into());
    }
    let nodes = plan.nodes.values().filter(|id| **id == group.id).count();
    let sessions = rows.live_in_group(group.id)?;
    if nodes > 0 || sessions > 0 {
        return Err(refusals::group_in_use(&group.name, nodes, sessions).into());
    }
    if rows.leave_resource_group(group.id, LEAVING_AT_ONCE)? == LEAVING_AT_ONCE {
        // The act is that of the last commit.
        rows.mute_acts();
        return Ok(false);
    }
    rows.forget_resource_group(group.id)?;
    note(rows, caller, &group, "group.removed", (&told(&group), ""))?;
    Ok(true)
}

/// Whether the caller sees every group, its nodes and who may use it.
fn sees_all(caller: &Caller) -> bool {
    may(&caller.subject, Permission::SystemRead, &Scope::SITE).is_ok()
}

fn seen(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    plan: &GroupPlan,
) -> Result<Vec<ResourceGroup>, Failure> {
    match sees_all(caller) {
        true => Ok(plan.groups.clone()),
        false => usable(view, &caller.subject, plan.groups.clone()),
    }
}

/// The ids of the groups that the caller sees. Costs a look-up for each of their projects where a group is not for everybody.
pub(crate) fn seen_ids(
    view: &ReadTransaction<'_>,
    caller: &Caller,
) -> Result<BTreeSet<ResourceGroupId>, Failure> {
    let groups = view.resource_groups()?;
    let seen = match sees_all(caller) {
        true => groups,
        false => usable(view, &caller.subject, groups)?,
    };
    Ok(seen.into_iter().map(|group| group.id).collect())
}

/// Those of these groups that take sessions of a user in some project in which they may launch: who only reads a project
/// learns of no group that lists it.
fn usable(
    view: &ReadTransaction<'_>,
    subject: &Subject,
    mut groups: Vec<ResourceGroup>,
) -> Result<Vec<ResourceGroup>, Failure> {
    if groups.iter().all(|group| group.access.is_none()) {
        return Ok(groups);
    }
    let mut projects: Vec<(DomainId, ProjectId)> = Vec::new();
    for grant in subject.grants.iter().filter(|one| one.role.launches()) {
        if let GrantScope::Project(id) = grant.scope
            && let Some(project) = view.project(id)?
        {
            projects.push((project.domain, id));
        }
    }
    groups.retain(|group| {
        let mut own = projects.iter();
        group.access.is_none()
            || own.any(|(domain, project)| group.admits(*domain, *project, subject.user))
    });
    Ok(groups)
}

/// The group of that name or id.
fn one_of(
    mut groups: impl Iterator<Item = ResourceGroup>,
    which: &str,
) -> Result<ResourceGroup, Refusal> {
    let id = which.parse::<ResourceGroupId>().ok();
    groups
        .find(|group| Some(group.id) == id || group.name.as_str() == which)
        .ok_or_else(refusals::group_not_found)
}

fn name_of(typed: &str) -> Result<TenantName, Refusal> {
    TenantName::parse(typed.trim()).map_err(|_| refusals::group_name_invalid().at("/name"))
}

fn kinds_of(kinds: &[SessionKind]) -> Result<GroupKinds, Refusal> {
    GroupKinds::of(kinds).ok_or_else(|| refusals::group_kinds_empty().at("/kinds"))
}

/// The version of a group is that of its nodes and of who may use it as well.
fn refuse_stale(group: &ResourceGroup, if_match: Option<u64>) -> Result<(), Refusal> {
    match if_match.is_some_and(|seen| seen != group.generation) {
        true => Err(refusals::group_stale(&group.name, group.generation)),
        false => Ok(()),
    }
}

/// The windows that are asked for, in the named zone or the caller's.
fn calendar_of(caller: &Caller, wanted: &GroupWindowsBody) -> Result<GroupCalendar, Refusal> {
    let named = wanted.time_zone.as_deref().map(str::trim);
    let zone = match named.filter(|name| !name.is_empty()) {
        Some(name) => {
            TimeZone::get(name).map_err(|_| refusals::time_zone_unknown().at("/time_zone"))?
        }
        None => TimeZone::get(&caller.time_zone).unwrap_or(TimeZone::UTC),
    };
    let windows = wanted.windows.iter().map(GroupWindowView::window);
    let windows = windows.collect::<Result<Vec<GroupWindow>, Refusal>>();
    let windows = windows.map_err(|refusal| refusal.at("/windows"))?;
    if windows.is_empty() {
        return Ok(GroupCalendar::default());
    }
    let zone = zone.iana_name().unwrap_or("UTC").to_owned();
    GroupCalendar::checked(zone, windows).map_err(|refusal| refusal.at("/windows"))
}

/// `Asia/Seoul: mon-fri 18:00-08:00 kinds=batch; sat 00:00-24:00`; for events.
fn windows_told(group: &ResourceGroup) -> String {
    let windows = group.calendar.windows.iter().map(ToString::to_string);
    let windows: Vec<String> = windows.collect();
    match windows.is_empty() {
        true => String::new(),
        false => format!("{}: {}", group.calendar.zone, windows.join("; ")),
    }
}

fn overcommit_of(factor: CpuShare) -> Result<CpuOvercommit, Refusal> {
    CpuOvercommit::new(factor.0, "/cpu_overcommit")
}

fn refuse_taken(known: &[ResourceGroup], group: &ResourceGroup) -> Result<(), Refusal> {
    let mut others = known.iter().filter(|other| other.id != group.id);
    match others.any(|other| other.name == group.name) {
        true => Err(refusals::group_name_taken(&group.name).at("/name")),
        false => Ok(()),
    }
}

/// The nodes of these names or ids. Errors: `group.node-unknown`.
fn nodes_of(all: &[(NodeId, String)], typed: &[String]) -> Result<BTreeSet<NodeId>, Refusal> {
    let known = |typed: &String| {
        let typed = typed.trim();
        let mut nodes = all.iter();
        let found = nodes.find(|(id, name)| name == typed || id.to_string() == typed);
        found.map(|(id, _)| *id).ok_or_else(|| {
            let shown: String = typed
                .chars()
                .take(80)
                .flat_map(char::escape_debug)
                .collect();
            refusals::group_node_unknown(shown).at("/nodes")
        })
    };
    typed.iter().map(known).collect()
}

/// Names of the nodes of a group, by name. `all`: of every group.
fn own_names(all: &[(NodeId, String)], plan: &GroupPlan, group: ResourceGroupId) -> Vec<String> {
    let own = all.iter().filter(|(id, _)| plan.of_node(*id) == group);
    own.map(|(_, name)| name.clone()).collect()
}

/// Those who are named. Errors: `group.subject-unknown`, `group.access-too-many`.
fn access_of(
    view: &ReadTransaction<'_>,
    subject: &Subject,
    wanted: &GroupAccessBody,
) -> Result<Option<GroupAccess>, Failure> {
    if wanted.everybody {
        return Ok(None);
    }
    let mut access = GroupAccess::default();
    for typed in &wanted.domains {
        let found = find_domain(view, subject, typed.trim());
        let found = found.map_err(|failure| unknown(failure, typed, "/domains"))?;
        access.domains.insert(found.id);
    }
    for typed in &wanted.projects {
        let found = find_project(view, subject, Permission::ProjectsRead, typed.trim());
        let found = found.map_err(|failure| unknown(failure, typed, "/projects"))?;
        access.projects.insert(found.id);
    }
    for typed in &wanted.users {
        let found = find_user(view, subject, Permission::UsersRead, typed.trim());
        let found = found.map_err(|failure| unknown(failure, typed, "/users"))?;
        access.users.insert(found.id);
    }
    if access.count() > MAX_GROUP_ACCESS {
        let refusal = refusals::group_access_too_many(MAX_GROUP_ACCESS);
        return Err(refusal.at("/users").into());
    }
    Ok(Some(access))
}

/// A refusal of a look-up at its field.
fn unknown(failure: Failure, typed: &str, at: &str) -> Failure {
    match failure {
        Failure::Refusal(_) => {
            let shown: String = typed
                .chars()
                .take(80)
                .flat_map(char::escape_debug)
                .collect();
            refusals::group_subject_unknown(shown).at(at).into()
        }
        fault @ Failure::Fault(_) => fault,
    }
}

/// Names of those who may use a group; who is gone is left out.
fn named(view: &ReadTransaction<'_>, access: &GroupAccess) -> Result<GroupAccessView, Failure> {
    let domains = view.domains()?;
    let name_of_domain = |id: DomainId| {
        let mut all = domains.iter();
        all.find(|one| one.id == id).map(|one| one.name.to_string())
    };
    let mut named = GroupAccessView {
        domains: access
            .domains
            .iter()
            .filter_map(|id| name_of_domain(*id))
            .collect(),
        ..GroupAccessView::default()
    };
    for id in &access.projects {
        if let Some(project) = view.project(*id)?
            && let Some(domain) = name_of_domain(project.domain)
        {
            named.projects.push(format!("{domain}/{}", project.name));
        }
    }
    for id in &access.users {
        let name = view.user_name(*id)?;
        named.users.extend(name.map(|name| name.to_string()));
    }
    named.domains.sort_unstable();
    named.projects.sort_unstable();
    named.users.sort_unstable();
    Ok(named)
}

/// `everybody`, or `domains=a projects=a/b users=kim`; for events.
fn access_told(
    view: &ReadTransaction<'_>,
    access: Option<&GroupAccess>,
) -> Result<String, Failure> {
    let Some(access) = access else {
        return Ok("everybody".to_owned());
    };
    let names = named(view, access)?;
    let parts = [
        ("domains", names.domains),
        ("projects", names.projects),
        ("users", names.users),
    ];
    let said = parts.into_iter().filter(|(_, names)| !names.is_empty());
    let said: Vec<String> = said
        .map(|(what, names)| format!("{what}={}", names.join(",")))
        .collect();
    Ok(said.join(" "))
}

/// `lab kinds=interactive,batch spreading=pack order=fair backfill=timed cpu-overcommit=1.5`; for events.
fn told(group: &ResourceGroup) -> String {
    let kinds = [
        ("interactive", group.kinds.interactive),
        ("batch", group.kinds.batch),
    ];
    let kinds: Vec<&str> = kinds
        .into_iter()
        .filter_map(|(word, takes)| takes.then_some(word))
        .collect();
    let mut told = format!("{} kinds={}", group.name, kinds.join(","));
    let own = [
        ("spreading", group.spreading.map(Spreading::word)),
        ("order", group.order.map(QueueOrder::word)),
        ("backfill", group.backfill.map(BackfillMode::word)),
    ];
    for (what, word) in own {
        if let Some(word) = word {
            told.push_str(&format!(" {what}={word}"));
        }
    }
    if group.cpu_overcommit != CpuOvercommit::NONE {
        let factor = CpuShare(group.cpu_overcommit.hundredths());
        told.push_str(&format!(" cpu-overcommit={factor}"));
    }
    if group.preemption != PreemptionMode::Off {
        told.push_str(" preemption=");
        told.push_str(group.preemption.word());
    }
    told
}

fn again(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    id: ResourceGroupId,
) -> Result<ResourceGroupView, Failure> {
    let plan = view.nodes_by_group()?;
    let group = plan.group(id).cloned();
    show(
        view,
        caller,
        &plan,
        group.ok_or_else(refusals::group_not_found)?,
    )
}

fn show(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    plan: &GroupPlan,
    group: ResourceGroup,
) -> Result<ResourceGroupView, Failure> {
    if !sees_all(caller) {
        return Ok(ResourceGroupView::new(group, None, None));
    }
    let access = group.access.as_ref().map(|access| named(view, access));
    let access = access.transpose()?;
    let nodes = own_names(&view.node_names()?, plan, group.id);
    Ok(ResourceGroupView::new(group, access, Some(nodes)))
}

fn note(
    rows: &Rows<'_>,
    caller: &Caller,
    group: &ResourceGroup,
    code: &str,
    (before, after): (&str, &str),
) -> Result<(), Failure> {
    rows.note(NewEvent {
        actor: caller.name.as_str(),
        topic: "system",
        object: group.name.as_str(),
        scope: Scope::SITE,
        code,
        before,
        after,
    })
}

#[cfg(test)]
mod tests;
