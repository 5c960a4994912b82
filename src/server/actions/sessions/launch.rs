//! Launching: from what a user typed to rows, all replicas in one commit or none. Preview and
//! duplicate live here too, since they read and write the same request.

use std::collections::BTreeMap;

use api::mounts::NewMountBody;
use api::sessions::{LaunchRequest, Resources, SessionView};
use rules::app_launch::LaunchedApps;
use rules::course::Course;
use rules::egress::{self, NetworkMode, SessionEgress};
use rules::environment::RecommendedOptions;
use rules::folder::{FolderMount, FolderOwner, RequestedMount};
use rules::image::CatalogImage;
use rules::names::{FolderId, ResourceGroupId, SessionId, SessionName, UserId};
use rules::permissions::{Permission, Reach, Subject, may, own};
use rules::placement::{self, Explanation};
use rules::preset::{Preset, in_order};
use rules::process_limits::ProcessLimits;
use rules::quota::{
    self, Allowance, AttachedPolicy, EffectiveLimit, LimitKey, PolicyLevel, PolicyLimits,
    TenantLevel, UsageByLevel,
};
use rules::refusal::Refusal;
use rules::refusals;
use rules::reservation::ReservationHolder;
use rules::resource_group::{GroupPlan, ResourceGroup};
use rules::resources::{Demand, MAX_DISK};
use rules::session::{self, Outcome, SessionEnvironment, SessionState};
use rules::start_up::StartUpChoice;
use rules::tenancy::{DomainId, ProjectId, Scope};
use rules::units::{Bytes, GpuShare, Timestamp};
use rules::workload::precedence::{MAX_PRIORITY, Precedence, USUAL_PRIORITY};
use rules::workload::remarks::Remarks;
use rules::workload::validate::{ImageChoice, RequestedLaunch, ValidatedLaunch};
use rules::world::ClusterSnapshot;

use super::discreet;
use super::find::find;
use super::view::NameCache;
use crate::access::Caller;
use crate::actions::accounts::find as find_user;
use crate::actions::allowed;
use crate::actions::budgets::{self, keep_within_budgets};
use crate::actions::folders::{self, homes};
use crate::actions::reservations::of_launch;
use crate::actions::resource_groups::seen_ids;
use crate::actions::storage::{holds_sessions, usual_limits};
use crate::actions::system::refuse_unwell;
use crate::actions::tenancy::{find_project, project_for_launch};
use crate::actions::{IdempotencyKey, once, own_key};
use crate::catalog::policies::PolicySubjects;
use crate::catalog::tenancy::MemberRow;
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::{Failure, Server};

/// What a launch gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Launched {
    /// One a copy, in order.
    pub sessions: Vec<SessionView>,
    /// This is the first answer to the same Idempotency-Key again; nothing new was launched.
    pub replayed: bool,
}

/// A launch that was validated and looked up.
#[derive(Debug, Clone)]
struct CheckedLaunch {
    /// None: to be made up.
    name: Option<SessionName>,
    remarks: Remarks,
    precedence: Precedence,
    spec: session::SessionSpec,
    device_affinity: Option<String>,
    mounts: Vec<FolderMount>,
    /// What it reaches outside.
    egress: Option<SessionEgress>,
    start_up: StartUpChoice,
    sudo: bool,
    ulimits: ProcessLimits,
    apps: LaunchedApps,
    group: ResourceGroupId,
    replicas: u32,
    /// The word a made-up name begins with.
    word: String,
}

/// Stands for a home folder that is not there yet, in a preview.
const NO_FOLDER: FolderId = FolderId(uuid::Uuid::nil());

/// Made-up names tried before giving up; each has 30 random bits.
const NAMES_TRIED: u32 = 8;

/// Launches one session, or `replicas` of them, all in one commit or none.
///
/// Errors: what is wrong with the request, by field; `session.name-taken`; what no machine here
/// could ever hold; `idempotency.key-reused`; `disk.full`; `launch.owner-denied`, `launch.owner-unknown` where it
/// is for another user; `disk.not-held`; `limit.needed`; `egress.not-allowed`; `sudo.not-allowed`; `ulimits.invalid`; `app.launch-invalid`; `preset.unknown`; `group.not-allowed`, `group.none`, `group.kind`, `group.reservation`.
pub async fn launch(
    server: &Server,
    caller: &Caller,
    request: LaunchRequest,
    key: Option<IdempotencyKey>,
) -> Result<Launched, Failure> {
    allowed(caller, Permission::SessionsWrite)?;
    let key = own_key(caller, key)?;
    refuse_unwell(server)?;
    refuse_full_queue(server)?;
    let now = server.clock().now();
    refuse_unheld_disk(server, &request).await?;
    let usual_disk = usual_disk(server, caller).await?;
    let request = with_preset(server, caller, request, now)?;
    let asked = AskedGroup::of(&request);
    let request = with_reservation(server, caller, request, now)?;
    let request = with_image(server, caller, request)?;
    let (device_affinity, priority) = (request.device_affinity.clone(), request.priority);
    let (project, owner) = (request.project.clone(), request.owner.clone());
    let (wants_start_up, wants_sudo) = (!request.without_start_up, request.sudo);
    let (ulimits, apps) = (ulimits_of(&request)?, apps_of(&request)?);
    let mounts = api::mounts::requested(&request.mounts)?;
    let without_home = request.without_home;
    let network = network_of(&request)?;
    let validated = RequestedLaunch::from(request).validate(now)?;
    let gives_homes = server.gives_homes() && !without_home;
    let understood = server.catalog().read_now("understand a launch", |view| {
        let whose = for_whom(view, caller, owner.as_deref(), project, now)?;
        let owner = whose.owner.as_ref().unwrap_or(caller);
        let project = whose.project.as_deref();
        let group = asked.find(view, &owner.subject, project, now)?;
        refuse_mounts_of_others(&mounts, &whose)?;
        let draft = look_up(view, [owner, caller], validated, device_affinity, group)?;
        let subject = owner.subject.clone();
        let has_own = gives_homes && {
            let (domain, project) = project_for_launch(view, &subject, project, now)?;
            homes::are_wanted(
                view,
                caller,
                &PolicySubjects {
                    domain,
                    project,
                    user: subject.user,
                },
            )?
        };
        Ok((draft, whose.project, subject, has_own))
    })?;
    let (draft, project, subject, has_own) = understood;
    let has_mounts = has_own || !mounts.is_empty();
    let volumes = match has_mounts {
        true => Some(server.folders()?.volumes().clone()),
        false => None,
    };
    let enforcement = folders::enforcement_for(server, has_mounts).await?;
    let home = folders::first_home(server, &subject, &mounts, has_own).await?;
    let made = home.as_ref().map(|home| home.id);
    let (name, seen) = (caller.name.clone(), budgets::seen(caller));
    let by = caller.clone();
    let launched = server
        .catalog()
        .write(Lane::Requests, "launch sessions", move |rows| {
            let launched = once(rows, key.as_ref(), || {
                if let SessionEnvironment::Image { id, reference } = &draft.spec.environment
                    && rows.image(*id)?.is_none()
                {
                    return Err(no_image(reference).into());
                }
                let subjects = subjects_of(rows, &subject, project.as_deref())?;
                let mut draft = draft;
                // It may have gone, or been closed to the owner, since it was looked up.
                let (group, plan) = asked.find(rows, &subject, project.as_deref(), rows.now)?;
                draft.group = group;
                draft.egress = egress::chosen(rows.egress_policy(&subjects)?.as_ref(), network)?;
                draft.sudo = granted_sudo(rows, &subjects, wants_sudo)?;
                (draft.ulimits, draft.apps) = (ulimits, apps);
                let limits = limits_of(rows, &subjects, CountedUse::QueueBound)?;
                keep_priority(&limits, priority, &mut draft.precedence)?;
                let place = (subjects.domain, subjects.project);
                let course = rows.course_for_launch(&subject, place, rows.now)?;
                let limit = course.and_then(|course| course.max_runtime_seconds);
                refuse_undeclared(rows, &subjects, &draft.spec, limit)?;
                keep_within_course(limit, &mut draft.spec, |spec| {
                    keep_within(rows, &limits, spec, None)
                })?;
                hold_disk(&mut draft.spec, usual_disk);
                if refuse_full(&limits, draft.replicas, &draft.spec).is_err() {
                    refuse_own_full_queue(rows, &subjects, draft.replicas, &draft.spec)?;
                }
                let whose = (subjects.project, subjects.user);
                let wanted = (&draft.spec, draft.replicas);
                keep_within_budgets(rows, &seen, whose, wanted, rows.now)?;
                draft.mounts = folders::resolve(rows, &subject, &mounts, made, rows.now)?;
                if let Some(volumes) = &volumes {
                    folders::refuse_unmounted(volumes, rows, &draft.mounts)?;
                }
                let mut left_out = Vec::new();
                if has_own {
                    let asked = std::mem::take(&mut draft.mounts);
                    let volumes = volumes.as_ref();
                    (draft.mounts, left_out) =
                        homes::with_those_of(rows, &subject, asked, made, volumes)?;
                }
                folders::hold_back(rows, &mut draft.mounts, enforcement, rows.now)?;
                let is_for_another = subject.user != by.subject.user;
                let has_variables = rows.has_variables(subject.user)?;
                draft.start_up =
                    StartUpChoice::of_launch(is_for_another, wants_start_up, has_variables);
                folders::note_mounts(rows, &by, &draft.mounts, home.as_ref())?;
                let written = insert(rows, &draft, &subjects, name.as_str())?;
                for session in &written {
                    homes::note_left_out(rows, name.as_str(), session, &left_out)?;
                }
                let mut names = NameCache::of_groups(rows, plan.groups);
                written.iter().map(|row| names.show(row)).collect()
            })?;
            Ok(Launched {
                sessions: launched.value,
                replayed: launched.replayed,
            })
        })
        .await;
    folders::forget_unused(server, made);
    launched
}

/// Refuses a limit of the disk that a launch itself names, where this machine holds none: it would be told of a bound that is
/// not there. That of a preset or a policy bounds where it can.
///
/// Errors: `disk.not-held`.
async fn refuse_unheld_disk(server: &Server, request: &LaunchRequest) -> Result<(), Failure> {
    let asks = request.resources.disk.is_some();
    match !asks || holds_sessions(server).await? {
        true => Ok(()),
        false => Err(refusals::disk_not_held().at("/resources/disk").into()),
    }
}

/// Whether this machine holds sessions to what they may write outside their folders. That of a preset or a policy stands in a
/// session where it holds none, too.
pub async fn holds_disks(server: &Server, caller: &Caller) -> Result<bool, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    Ok(server.has_scopes() && holds_sessions(server).await?)
}

/// What a session is held to on the disk where its launch, its preset and the policies say nothing; None where the site has no
/// such limit, and where this machine holds none.
pub async fn usual_disk(server: &Server, caller: &Caller) -> Result<Option<Bytes>, Failure> {
    if allowed(caller, Permission::SessionsWrite).is_err() {
        return Ok(None);
    }
    let usual = server.settings().usual_disk();
    let usual = usual.filter(|_| server.has_scopes());
    match usual.is_some() && holds_sessions(server).await? {
        true => Ok(usual),
        false => Ok(None),
    }
}

/// Gives a session without a disk the usual one, for each of its containers.
pub(super) fn hold_disk(spec: &mut session::SessionSpec, usual: Option<Bytes>) {
    if let (None, Some(each)) = (spec.demand.disk, usual) {
        let all = each.0.saturating_mul(u64::from(spec.containers.max(1)));
        spec.demand.disk = Some(Bytes(all));
    }
}

/// Refuses a session without a time limit where a policy asks for one: a limit that the policies give by themselves says
/// nothing of its run. `of_course`: the limit that its course gives, which does.
///
/// Errors: `limit.needed`.
pub(super) fn refuse_undeclared(
    view: &ReadTransaction<'_>,
    subjects: &PolicySubjects,
    spec: &session::SessionSpec,
    of_course: Option<u64>,
) -> Result<(), Failure> {
    let is_said = spec.limit().is_some() || of_course.is_some();
    match is_said || !view.requires_limit(subjects)? {
        true => Ok(()),
        false => Err(refusals::limit_needed().at("/max_runtime_seconds").into()),
    }
}

/// Whether a launch that asks for sudo gets it. Errors: `sudo.not-allowed`.
fn granted_sudo(
    view: &ReadTransaction<'_>,
    subjects: &PolicySubjects,
    wants: bool,
) -> Result<bool, Failure> {
    match !wants || view.allows_sudo(subjects)? {
        true => Ok(wants),
        false => Err(refusals::sudo_not_allowed().at("/sudo").into()),
    }
}

/// The network that a launch names; None where it names none. Errors: `egress.network-unknown`.
fn network_of(request: &LaunchRequest) -> Result<Option<NetworkMode>, Refusal> {
    let named = request.network.as_deref().map(str::trim);
    let Some(named) = named.filter(|word| !word.is_empty()) else {
        return Ok(None);
    };
    let mode = NetworkMode::parse(named);
    mode.map(Some)
        .ok_or_else(|| refusals::egress_network_unknown().at("/network"))
}

/// What a launch raises for its processes. Errors: `ulimits.invalid`.
fn ulimits_of(request: &LaunchRequest) -> Result<ProcessLimits, Refusal> {
    let typed = request.ulimits.as_deref().unwrap_or_default();
    ProcessLimits::parse(typed).map_err(|refusal| refusal.at("/ulimits"))
}

/// The apps that a launch names. Errors: `app.launch-invalid`.
fn apps_of(request: &LaunchRequest) -> Result<LaunchedApps, Refusal> {
    let typed = request.apps.as_deref().unwrap_or_default();
    LaunchedApps::parse(typed).map_err(|refusal| refusal.at("/apps"))
}

/// Whether there is a network to choose: a policy of the site names some. Which of them a launch may choose, its own policies
/// say.
pub fn has_networks(server: &Server, caller: &Caller) -> Result<bool, Failure> {
    if allowed(caller, Permission::SessionsWrite).is_err() {
        return Ok(false);
    }
    server
        .catalog()
        .read_now("look for networks", |view| view.has_egress_policies())
}

/// Whether a policy of the site allows sudo to some launches. Which, the policies of each say.
pub fn offers_sudo(server: &Server, caller: &Caller) -> Result<bool, Failure> {
    if allowed(caller, Permission::SessionsWrite).is_err() {
        return Ok(false);
    }
    server
        .catalog()
        .read_now("look for sudo", |view| view.has_sudo_policies())
}

/// Refuses folders where the session is another user's: they would be the files of one and the commands of the other.
///
/// Errors: `mount.others`.
fn refuse_mounts_of_others(mounts: &[RequestedMount], whose: &LaunchOwner) -> Result<(), Refusal> {
    match whose.owner.is_some() && !mounts.is_empty() {
        true => Err(refusals::mount_others().at("/mounts")),
        false => Ok(()),
    }
}

/// The request with the amounts of the preset that it names where it gives none itself, and the preset's name as a label.
/// A time limit of the command takes the place of the preset's time limit.
///
/// A preset of a resource group puts the session there.
///
/// Errors: `preset.unknown`, `preset.other-group`; those of the project and the owner.
fn with_preset(
    server: &Server,
    caller: &Caller,
    mut request: LaunchRequest,
    now: Timestamp,
) -> Result<LaunchRequest, Failure> {
    let named = request.preset.take();
    let Some(name) = named
        .as_deref()
        .map(str::trim)
        .filter(|name| !name.is_empty())
    else {
        return Ok(request);
    };
    let (preset, group) = server.catalog().read_now("look up a preset", |view| {
        let (owner, project) = (request.owner.as_deref(), request.project.clone());
        let place = project_of_launch(view, caller, owner, project, now)?;
        preset_called(view, caller, place, name)
    })?;
    let request = in_group_of(request, &preset, group)?;
    Ok(under_preset(request, &preset))
}

/// The request with what its image needs where it names no amount itself. An image that the caller does not reach adds
/// nothing: the launch refuses it.
fn with_image(
    server: &Server,
    caller: &Caller,
    request: LaunchRequest,
) -> Result<LaunchRequest, Failure> {
    if matches!(ImageChoice::parse(&request.image), Ok(ImageChoice::Host)) {
        return Ok(request);
    }
    server.catalog().read_now("look up an image", |view| {
        under_image(view, [caller, caller], request)
    })
}

fn under_image(
    view: &ReadTransaction<'_>,
    both: [&Caller; 2],
    mut request: LaunchRequest,
) -> Result<LaunchRequest, Failure> {
    let Ok(choice) = ImageChoice::parse(&request.image) else {
        return Ok(request);
    };
    let Some(image) = image_of(view, both, &choice)? else {
        return Ok(request);
    };
    let (limits, usual, asked) = (image.limits, Demand::default(), &mut request.resources);
    // An administrator says it in the place of all others.
    let bundle = match image.limits_set {
        true => RecommendedOptions::default(),
        false => view.recommended_of_image(image.id)?,
    };
    let cpu = limits.usual_cpu(usual.cpu);
    let memory = bundle.memory.map_or(usual.memory, Bytes);
    let memory = limits.usual_memory(memory.max(usual.memory));
    asked.cpu.get_or_insert(cpu);
    let memory = *asked.memory.get_or_insert(memory);
    if asked.gpu.is_none() && asked.mig.is_none() {
        asked.gpu = limits.min_gpu;
    }
    if asked.shm.is_none() {
        let shm = limits.shm.or(bundle.shm.map(Bytes));
        asked.shm = shm.map(|size| size.min(memory));
    }
    let typed = request.ulimits.as_deref().map(str::trim);
    if typed.is_none_or(str::is_empty) && !limits.ulimits.is_usual() {
        request.ulimits = Some(limits.ulimits.to_string());
    }
    Ok(request)
}

/// The request in the resource group of its preset. Errors: `preset.other-group`.
fn in_group_of(
    mut request: LaunchRequest,
    preset: &Preset,
    group: Option<String>,
) -> Result<LaunchRequest, Refusal> {
    let Some(own) = group else {
        return Ok(request);
    };
    let asked = request.group.as_deref().map(str::trim);
    if let Some(asked) = asked.filter(|asked| !asked.is_empty()) {
        let id = preset.group.map(|group| group.to_string());
        if asked != own && Some(asked) != id.as_deref() {
            return Err(refusals::preset_other_group(&preset.name, &own).at("/group"));
        }
        return Ok(request);
    }
    request.group = Some(own);
    Ok(request)
}

/// The preset of that name that a launch in the project may name, and the name of its resource group; none of a group that
/// the caller does not see. Errors: `preset.unknown`.
fn preset_called(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    (domain, project): (DomainId, ProjectId),
    name: &str,
) -> Result<(Preset, Option<String>), Failure> {
    let mut rows = view.presets_for(domain, project)?;
    if rows.iter().any(|row| row.preset.group.is_some()) {
        let seen = seen_ids(view, caller)?;
        rows.retain(|row| row.preset.group.is_none_or(|group| seen.contains(&group)));
    }
    let groups: BTreeMap<_, _> = rows
        .iter()
        .map(|row| (row.preset.id, row.group_name.clone()))
        .collect();
    let rows = rows.into_iter();
    let mut known = in_order(rows.map(|row| row.preset).collect()).into_iter();
    let found = known.find(|preset| preset.name.as_str() == name);
    let found = found.ok_or_else(|| {
        let shown: String = name.chars().take(80).flat_map(char::escape_debug).collect();
        refusals::preset_unknown(&shown).at("/preset")
    })?;
    let group = groups.get(&found.id).cloned().flatten();
    Ok((found, group))
}

fn under_preset(mut request: LaunchRequest, preset: &Preset) -> LaunchRequest {
    let given = request.resources.amounts(request.max_runtime_seconds);
    let amounts = preset.amounts.under(&given);
    request.resources = amounts.into();
    if request.timeout_seconds.is_none() {
        request.max_runtime_seconds = amounts.max_runtime_seconds;
    }
    if request.labels.len() < session::MAX_LABELS {
        let label = request.labels.entry("preset".to_owned());
        label.or_insert_with(|| preset.name.to_string());
    }
    request
}

/// The request with the begin of the reservation that it names as its start, and the reservation's name as a label; of
/// one for a project in that project where none is named. Once it has begun the session starts as soon as it fits.
///
/// Errors: `reservation.not-found`, `reservation.ambiguous`, `reservation.closed`, `reservation.others`,
/// `reservation.start-twice`; those of the project and the owner.
fn with_reservation(
    server: &Server,
    caller: &Caller,
    mut request: LaunchRequest,
    now: Timestamp,
) -> Result<LaunchRequest, Failure> {
    let named = request.reservation.take();
    let named = named.as_deref().map(str::trim);
    let Some(named) = named.filter(|name| !name.is_empty()) else {
        return Ok(request);
    };
    if request.start_at.is_some() {
        return Err(refusals::reservation_start_twice().at("/start_at").into());
    }
    server.catalog().read_now("look up a reservation", |view| {
        let found = of_launch(view, caller, named);
        let (name, time) = found.map_err(|failure| failure.at("/reservation"))?;
        if request.project.is_none()
            && let ReservationHolder::Project(project) = time.holder
        {
            request.project = Some(project.0.to_string());
        }
        let whose = for_whom(
            view,
            caller,
            request.owner.as_deref(),
            request.project.clone(),
            now,
        )?;
        let subject = &whose.owner.as_ref().unwrap_or(caller).subject;
        let (_, project) = project_for_launch(view, subject, whose.project.as_deref(), now)?;
        let is_member = match time.holder {
            ReservationHolder::User(user) => user == subject.user,
            ReservationHolder::Project(of) => of == project,
            ReservationHolder::Maintenance => false,
        };
        if !is_member {
            let refusal = refusals::reservation_others(&name);
            return Err(refusal.at("/reservation").into());
        }
        request.start_at = Some(time.from).filter(|from| *from > now);
        if request.labels.len() < session::MAX_LABELS {
            let label = request.labels.entry("reservation".to_owned());
            label.or_insert_with(|| name.to_string());
        }
        Ok(request)
    })
}

/// Live sessions the box takes. Every pass reads them all: higher makes decisions slow for everybody
/// (100,000 rows take a good part of a second), lower turns a large sweep of batch jobs away.
const MAX_LIVE: usize = 50_000;

fn refuse_full_queue(server: &Server) -> Result<(), Refusal> {
    if server.catalog().live_lately() < MAX_LIVE {
        return Ok(());
    }
    Err(refusals::queue_full(MAX_LIVE).retry_after(60))
}

/// Sessions of one user that wait at once. Higher: one user's sweep makes every decision slow for
/// everybody. Lower: a sweep has to be launched in parts.
pub(super) const MAX_WAITING: u32 = 1_000;

/// Bytes of commands and variables of one user's sessions that wait, all together. Every pass reads them:
/// higher, and two requests for 500 long replicas take the server's memory. Lower: a sweep of long commands has
/// to be launched in parts.
pub(super) const MAX_WAITING_BYTES: u64 = 16 << 20;

/// What each user may have waiting where the site's policy says nothing of it.
pub(crate) const USUAL_LIMITS: PolicyLimits = PolicyLimits {
    waiting: Some(MAX_WAITING as u64),
    waiting_bytes: Some(MAX_WAITING_BYTES),
    ..PolicyLimits::NONE
};

/// Of which limits the use is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CountedUse {
    /// Of none: the strictest values alone.
    Nothing,
    /// Of those of the queue alone, the user's bytes as a bound from above: enough where nothing is refused.
    QueueBound,
    /// Of those of the queue alone.
    Queue,
    /// Of all, as a page shows them. Costs a visit of each live session, too.
    All,
}

/// The limits of the policies that hold for these subjects, each with what is in use of it. Costs one visit of
/// each waiting session of the user; of those of the project and the domain where a policy of theirs limits them.
fn limits_of(
    rows: &ReadTransaction<'_>,
    subjects: &PolicySubjects,
    counted: CountedUse,
) -> Result<Vec<EffectiveLimit>, Failure> {
    let mut attached = rows.policies_of(subjects)?;
    match attached
        .iter_mut()
        .find(|policy| policy.level == PolicyLevel::Site)
    {
        Some(site) => site.limits = site.limits.or(USUAL_LIMITS),
        None => attached.push(AttachedPolicy {
            level: PolicyLevel::Site,
            name: String::new(),
            limits: USUAL_LIMITS,
            raised: Vec::new(),
        }),
    }
    let allowances = rows.allowances_of(subjects)?;
    // Where no policy names a priority, an allowance of the user raises the usual one.
    let raises = |one: &Allowance| one.level == TenantLevel::User && one.limits.priority.is_some();
    let names = |policy: &AttachedPolicy| policy.limits.priority.is_some();
    if allowances.iter().any(raises) && !attached.iter().any(names) {
        for policy in &mut attached {
            if policy.level == PolicyLevel::Site {
                policy.limits.priority = Some(u64::from(USUAL_PRIORITY));
            }
        }
    }
    for allowance in &allowances {
        for policy in &mut attached {
            policy.raise(allowance);
        }
    }
    let limited = |level: PolicyLevel| {
        let says = |policy: &AttachedPolicy| policy.limits != PolicyLimits::default();
        attached
            .iter()
            .any(|policy| policy.level == level && says(policy))
    };
    if counted == CountedUse::Nothing {
        return Ok(quota::effective(&attached, &UsageByLevel::default()));
    }
    let mut usage = UsageByLevel {
        user: match counted {
            CountedUse::QueueBound => rows.waiting_bound_of(subjects.user)?,
            _ => rows.waiting_of(subjects.user)?,
        },
        ..UsageByLevel::default()
    };
    if limited(PolicyLevel::Project) {
        usage.project = rows.waiting_in_project(subjects.project)?;
    }
    if limited(PolicyLevel::Member) {
        usage.member = rows.waiting_of_member(subjects.user, subjects.project)?;
    }
    if limited(PolicyLevel::Domain) {
        usage.domain = rows.waiting_in_domain(subjects.domain)?;
    }
    if counted == CountedUse::All {
        usage.user = usage.user.plus(rows.held_by_user(subjects.user)?);
        usage.project = usage.project.plus(rows.held_in_project(subjects.project)?);
        let member = rows.held_by_member(subjects.user, subjects.project)?;
        usage.member = usage.member.plus(member);
        usage.domain = usage.domain.plus(rows.held_in_domain(subjects.domain)?);
    }
    Ok(quota::effective(&attached, &usage))
}

/// The limits that hold for the waiting sessions of one user; empty for an account without a project. Costs one visit
/// of each of their waiting sessions.
pub(crate) fn limits_of_user(
    view: &ReadTransaction<'_>,
    user: UserId,
    now: Timestamp,
) -> Result<Vec<EffectiveLimit>, Failure> {
    match view.home_project(user, now)? {
        Some((domain, project)) => effective_limits(
            view,
            &PolicySubjects {
                domain,
                project,
                user,
            },
        ),
        None => Ok(Vec::new()),
    }
}

/// What holds for the account of the user where no policy says it, raised by allowances.
fn built_in_of_account(
    view: &ReadTransaction<'_>,
    subjects: &PolicySubjects,
) -> Result<Vec<EffectiveLimit>, Failure> {
    let attached = view.policies_of(subjects)?;
    let Some(mut built_in) = usual_limits(&attached, FolderOwner::User(subjects.user)) else {
        return Ok(Vec::new());
    };
    for allowance in view.allowances_of(subjects)? {
        built_in.raise(&allowance);
    }
    Ok(quota::effective(&[built_in], &UsageByLevel::default()))
}

/// The limits that hold for sessions of these subjects and for the account of their user, with what is in use. Costs one
/// visit of each live session.
pub(crate) fn effective_limits(
    view: &ReadTransaction<'_>,
    subjects: &PolicySubjects,
) -> Result<Vec<EffectiveLimit>, Failure> {
    let mut limits = limits_of(view, subjects, CountedUse::All)?;
    limits.extend(built_in_of_account(view, subjects)?);
    let of_folders = limits
        .iter_mut()
        .find(|limit| limit.key == LimitKey::FolderBytes);
    if let Some(limit) = of_folders
        && let Some(known) = view.storage_of(subjects.user)?
    {
        limit.used = known.taken.used.0;
        limit.left = limit.value.saturating_sub(limit.used);
    }
    Ok(limits)
}

/// Refuses a session that is larger or longer than a policy allows one to be, or larger than what all of those that the
/// policy bounds may hold together: it would wait for ever. A session without a time limit gets that of the policy.
///
/// `before`: what it is now where it is changed; then only what grows is looked at, and its time limit stays.
///
/// Errors: `limit.each`.
pub(super) fn keep_within_limits(
    rows: &ReadTransaction<'_>,
    subjects: &PolicySubjects,
    spec: &mut session::SessionSpec,
    before: Option<&session::SessionSpec>,
) -> Result<(), Failure> {
    let limits = limits_of(rows, subjects, CountedUse::Nothing)?;
    keep_within(rows, &limits, spec, before)
}

/// The same for a session that was launched and is to start, again or later. A disk beyond what a policy allows by now becomes
/// the policy's: its user may never have named one, and changes none behind the launch.
///
/// Errors: `limit.each`.
pub(super) fn keep_as_launched(
    rows: &ReadTransaction<'_>,
    subjects: &PolicySubjects,
    spec: &mut session::SessionSpec,
) -> Result<(), Failure> {
    let had = spec.demand.disk.take();
    keep_within_limits(rows, subjects, spec, None)?;
    let most = spec.demand.disk;
    if let Some(had) = had {
        spec.demand.disk = Some(most.map_or(had, |most| had.min(most)));
    }
    Ok(())
}

fn keep_within(
    rows: &ReadTransaction<'_>,
    limits: &[EffectiveLimit],
    spec: &mut session::SessionSpec,
    before: Option<&session::SessionSpec>,
) -> Result<(), Failure> {
    let amount = |demand: &Demand, key: LimitKey| -> Result<u64, Failure> {
        Ok(match key {
            LimitKey::Gpu | LimitKey::GpuEach if demand.mig.is_some() => {
                let machines = ClusterSnapshot {
                    nodes: rows.nodes()?,
                    ..ClusterSnapshot::default()
                };
                u64::from(placement::asked(&machines, demand).0)
            }
            LimitKey::Gpu | LimitKey::GpuEach => u64::from(demand.gpu.0),
            LimitKey::Cpu | LimitKey::CpuEach => u64::from(demand.cpu.0),
            LimitKey::Memory | LimitKey::MemoryEach => demand.memory.0,
            LimitKey::DiskEach => demand.disk.map_or(0, |disk| disk.0),
            LimitKey::Sessions => 1,
            LimitKey::Waiting
            | LimitKey::WaitingBytes
            | LimitKey::RuntimeSeconds
            | LimitKey::Priority
            | LimitKey::SignIns
            | LimitKey::FolderBytes
            | LimitKey::Images => 0,
        })
    };
    for limit in limits {
        let asked = match limit.key {
            LimitKey::RuntimeSeconds if before.is_some() => continue,
            LimitKey::RuntimeSeconds => match spec.limit() {
                Some((seconds, _)) => seconds,
                None => {
                    spec.max_runtime_seconds = Some(limit.value);
                    continue;
                }
            },
            LimitKey::DiskEach if spec.demand.disk.is_none() => {
                // What runs keeps the disk that it began with.
                if before.is_none() {
                    spec.demand.disk = Some(Bytes(limit.value).min(MAX_DISK));
                }
                continue;
            }
            key => amount(&spec.demand, key)?,
        };
        let grows = match before {
            Some(before) => asked > amount(&before.demand, limit.key)?,
            None => true,
        };
        if asked <= limit.value || !grows {
            continue;
        }
        let told = |amount| limit.key.told(amount);
        let (asked, most, word) = (told(asked), told(limit.value), limit.key.word());
        let at = match limit.key {
            LimitKey::RuntimeSeconds => "/max_runtime_seconds",
            LimitKey::Cpu | LimitKey::CpuEach => "/resources/cpu",
            LimitKey::Memory | LimitKey::MemoryEach => "/resources/memory",
            LimitKey::DiskEach => "/resources/disk",
            LimitKey::Sessions => "/project",
            _ => "/resources/gpu",
        };
        return Err(refusals::limit_each(&limit.policy, most, word, asked)
            .at(at)
            .into());
    }
    Ok(())
}

/// Keeps a launch within the policies, and gives one without a time limit that of its course where the policies leave as
/// much.
fn keep_within_course(
    of_course: Option<u64>,
    spec: &mut session::SessionSpec,
    keep: impl FnOnce(&mut session::SessionSpec) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let names_none = spec.limit().is_none();
    keep(spec)?;
    if let (true, Some(seconds)) = (names_none, of_course) {
        let allowed = spec.max_runtime_seconds.unwrap_or(u64::MAX);
        spec.max_runtime_seconds = Some(seconds.min(allowed));
    }
    Ok(())
}

/// Refuses a priority that was asked for above that which the policies allow, or above the usual one where none says which.
/// Where none was asked for, the usual one is lowered to theirs.
///
/// Errors: `limit.each`, `priority.not-allowed`.
fn keep_priority(
    limits: &[EffectiveLimit],
    asked: Option<u32>,
    precedence: &mut Precedence,
) -> Result<(), Refusal> {
    let limit = limits.iter().find(|limit| limit.key == LimitKey::Priority);
    let most = limit.map_or(USUAL_PRIORITY, |limit| {
        u32::try_from(limit.value).unwrap_or(MAX_PRIORITY)
    });
    let Some(asked) = asked else {
        precedence.priority = precedence.priority.min(most);
        return Ok(());
    };
    if asked <= most {
        return Ok(());
    }
    let refusal = match limit {
        Some(limit) if !limit.policy.is_empty() => {
            refusals::limit_each(&limit.policy, most, limit.key.word(), asked)
        }
        Some(_) | None => refusals::priority_not_allowed(most),
    };
    Err(refusal.at("/priority"))
}

/// The priority that a session has when it starts once more: no higher than the policies allow now.
pub(super) fn lower_priority(
    rows: &ReadTransaction<'_>,
    subjects: &PolicySubjects,
    precedence: &mut Precedence,
) -> Result<(), Failure> {
    let limits = limits_of(rows, subjects, CountedUse::Nothing)?;
    if keep_priority(&limits, Some(precedence.priority), precedence).is_err() {
        precedence.priority = USUAL_PRIORITY;
        keep_priority(&limits, None, precedence)?;
    }
    Ok(())
}

/// The network that a session has when it starts once more: that of its launch with the targets that the policies list now, or
/// none where they do not allow it any more. Sudo stays where they still allow it.
pub(super) fn renew_egress(
    rows: &ReadTransaction<'_>,
    subjects: &PolicySubjects,
    session: &mut session::Session,
) -> Result<(), Failure> {
    if let Some(before) = &session.egress {
        let policy = rows.egress_policy(subjects)?;
        session.egress = egress::chosen(policy.as_ref(), Some(before.mode)).unwrap_or_default();
    }
    session.sudo = session.sudo && rows.allows_sudo(subjects)?;
    Ok(())
}

/// Gives a session another priority.
///
/// Errors: `priority.out-of-range`; `limit.each` and `priority.not-allowed` where the policies allow no such one.
pub(super) fn put_priority(
    rows: &ReadTransaction<'_>,
    subjects: &PolicySubjects,
    session: &mut session::Session,
    priority: u32,
) -> Result<(), Failure> {
    let wanted = Precedence {
        priority,
        ..session.precedence
    };
    let mut wanted = wanted.checked(session.spec.kind)?;
    if wanted == session.precedence {
        return Ok(());
    }
    let limits = limits_of(rows, subjects, CountedUse::Nothing)?;
    keep_priority(&limits, Some(priority), &mut wanted)?;
    session.precedence = wanted;
    Ok(())
}

/// Refuses where `more` sessions of that specification would be more that wait, or larger ones, than the policies
/// allow.
pub(super) fn refuse_own_full_queue(
    rows: &ReadTransaction<'_>,
    subjects: &PolicySubjects,
    more: u32,
    spec: &session::SessionSpec,
) -> Result<(), Failure> {
    let limits = limits_of(rows, subjects, CountedUse::Queue)?;
    Ok(refuse_full(&limits, more, spec)?)
}

fn refuse_full(
    limits: &[EffectiveLimit],
    more: u32,
    spec: &session::SessionSpec,
) -> Result<(), Refusal> {
    for limit in limits {
        let asked = match limit.key {
            LimitKey::Waiting => u64::from(more),
            LimitKey::WaitingBytes => u64::from(more) * spec.bytes(),
            _ => continue,
        };
        if asked <= limit.left {
            continue;
        }
        let refusal = match (limit.level, limit.key) {
            (PolicyLevel::Site | PolicyLevel::User, LimitKey::Waiting) => {
                refusals::queue_own_full(limit.used, limit.value)
            }
            (PolicyLevel::Site | PolicyLevel::User, _) => {
                refusals::queue_own_too_large(limit.used + asked, limit.value)
            }
            (PolicyLevel::Domain | PolicyLevel::Project | PolicyLevel::Member, _) => {
                refusals::limit_reached(&limit.policy, limit.value, limit.key.word(), limit.used)
            }
        };
        return Err(refusal.retry_after(60));
    }
    Ok(())
}

/// One launch for several members of a project: understood once, each checked against what is the member's own.
pub(crate) struct LaunchForMembers {
    draft: CheckedLaunch,
    asked: AskedGroup,
    place: (DomainId, ProjectId),
    limit: Option<u64>,
    /// As the request has it; None for the usual one, lowered to what each member's policies allow.
    priority: Option<u32>,
    /// As the request has it; None for the usual one of each member's policies.
    network: Option<NetworkMode>,
    /// Each member's policies have to allow it.
    sudo: bool,
    /// Where neither the request nor a policy says any.
    usual_disk: Option<Bytes>,
    /// What is said of each group none of whose machines could ever hold it.
    impossible: BTreeMap<ResourceGroupId, Refusal>,
}

impl LaunchForMembers {
    /// Understands the request for members of a course: its name leads their sessions' names, and its time limit holds
    /// where the request names none. `usual_disk`: as `usual_disk` gives it.
    ///
    /// Errors: those of a launch, but for what is the members' own.
    pub(crate) fn understand(
        server: &Server,
        caller: &Caller,
        mut request: LaunchRequest,
        course: &Course,
        usual_disk: Option<Bytes>,
    ) -> Result<Self, Failure> {
        allowed(caller, Permission::SessionsWrite)?;
        refuse_unwell(server)?;
        refuse_full_queue(server)?;
        let now = server.clock().now();
        let place = (course.domain, course.project);
        if !request.mounts.is_empty() {
            return Err(refusals::mount_others().at("/mounts").into());
        }
        let preset = request.preset.take();
        server
            .catalog()
            .read_now("understand a launch for members", |view| {
                if let Some(name) = preset {
                    let (preset, group) = preset_called(view, caller, place, &name)?;
                    request = under_preset(in_group_of(request, &preset, group)?, &preset);
                }
                let request = under_image(view, [caller, caller], request)?;
                let asked = AskedGroup::of(&request);
                let (priority, network) = (request.priority, network_of(&request)?);
                let (sudo, ulimits) = (request.sudo, ulimits_of(&request)?);
                let apps = apps_of(&request)?;
                let validated = RequestedLaunch::from(request).validate(now)?;
                // Each member has a group of their own, which may be none of the caller's.
                let founding = ResourceGroupId::DEFAULT;
                let mut draft = named_things(view, [caller, caller], validated, None, founding)?;
                draft.word = course.name.to_string();
                (draft.ulimits, draft.apps) = (ulimits, apps);
                let machines = machines(view, view.nodes_by_group()?)?;
                let (demand, environment) = (&draft.spec.demand, &draft.spec.environment);
                let each = draft.spec.of_each();
                let groups = machines.groups.groups.iter();
                let impossible: BTreeMap<ResourceGroupId, Refusal> = groups
                    .clone()
                    .filter_map(|group| {
                        // What holds all containers may be too little for one, as a sliver of a card is.
                        let holds =
                            |demand| placement::possible(&machines, group.id, demand, environment);
                        let held = holds(&each).and_then(|()| holds(demand));
                        Some((group.id, held.err()?))
                    })
                    .collect();
                if !impossible.is_empty() && impossible.len() == groups.len() {
                    // Of machines of a group that they may not use the caller learns nothing.
                    let own = asked
                        .choose(&machines.groups, place, caller.subject.user)
                        .ok();
                    let own = own.and_then(|group| impossible.get(&group).cloned());
                    let large = || refusals::resources_too_large().at("/resources");
                    return Err(own.unwrap_or_else(large).into());
                }
                Ok(Self {
                    draft,
                    asked,
                    place,
                    limit: course.max_runtime_seconds,
                    priority,
                    network,
                    sudo,
                    usual_disk,
                    impossible,
                })
            })
    }

    /// Launches one for a member, whose limits it keeps, in a group of `plan` that the member may use. Where it is refused
    /// nothing of it is written.
    ///
    /// Errors: `image.unknown` where the member does not reach the image; `limit.each`, `limit.reached`,
    /// `course.member-queue-full`, those of budgets and of groups; `session.name-taken`.
    pub(crate) fn launch(
        &self,
        rows: &Rows<'_>,
        owner: &Subject,
        plan: &GroupPlan,
        (actor, seen): (&str, &Reach),
    ) -> Result<Option<session::Session>, Failure> {
        let mut draft = self.draft.clone();
        draft.group = self.group(plan, owner.user)?;
        if let SessionEnvironment::Image { id, reference } = &draft.spec.environment {
            let image = rows.image(*id)?;
            let is_theirs =
                |image: CatalogImage| owner.reaches(image.domain) && image.is_open_to(owner.user);
            if !image.is_some_and(is_theirs) {
                return Err(no_image(reference).into());
            }
        }
        let (domain, project) = self.place;
        let subjects = PolicySubjects {
            domain,
            project,
            user: owner.user,
        };
        let policy = rows.egress_policy(&subjects)?;
        draft.egress = egress::chosen(policy.as_ref(), self.network)?;
        draft.sudo = granted_sudo(rows, &subjects, self.sudo)?;
        let limits = limits_of(rows, &subjects, CountedUse::QueueBound)?;
        keep_priority(&limits, self.priority, &mut draft.precedence)?;
        refuse_undeclared(rows, &subjects, &draft.spec, self.limit)?;
        keep_within_course(self.limit, &mut draft.spec, |spec| {
            keep_within(rows, &limits, spec, None)
        })?;
        hold_disk(&mut draft.spec, self.usual_disk);
        if refuse_full(&limits, 1, &draft.spec).is_err() {
            refuse_own_full_queue(rows, &subjects, 1, &draft.spec).map_err(of_member)?;
        }
        let whose = (project, owner.user);
        keep_within_budgets(rows, seen, whose, (&draft.spec, 1), rows.now)?;
        let mut written = insert(rows, &draft, &subjects, actor)?;
        Ok(written.pop())
    }

    /// The row that a launch for that user would write, for a look at what would wait, and its group.
    pub(crate) fn drafted(
        &self,
        owner: UserId,
        plan: &GroupPlan,
        now: Timestamp,
    ) -> Result<(session::Session, ResourceGroupId), Failure> {
        let id = SessionId::make(now, base::observe::random());
        let name = make_name(&self.draft.word)?;
        let mut row = session::Session::launched(id, name, owner, self.draft.spec.clone(), now);
        (row.domain, row.project) = self.place;
        row.precedence = self.draft.precedence;
        Ok((row, self.group(plan, owner)?))
    }

    /// The first group that the owner may use with a machine that could hold it.
    ///
    /// Errors: those of `AskedGroup::choose`; what no machine of the owner's groups could ever hold.
    fn group(&self, plan: &GroupPlan, owner: UserId) -> Result<ResourceGroupId, Refusal> {
        let first = self.asked.choose(plan, self.place, owner)?;
        let Some(refusal) = self.impossible.get(&first) else {
            return Ok(first);
        };
        let (domain, project) = self.place;
        let mut others = plan.groups.iter().filter(|group| {
            group.admits(domain, project, owner)
                && group.kinds.takes(self.asked.kind)
                && !self.impossible.contains_key(&group.id)
                // Of a group without machines nothing is known.
                && plan.nodes.values().any(|of| *of == group.id)
        });
        others
            .next()
            .map(|group| group.id)
            .ok_or_else(|| refusal.clone())
    }
}

/// The same refusal for a user who launches for a member: how many sessions a member has elsewhere is not theirs to know.
fn of_member(failure: Failure) -> Failure {
    use rules::codes::{QUEUE_OWN_FULL, QUEUE_OWN_TOO_LARGE};
    match failure {
        Failure::Refusal(refusal)
            if [QUEUE_OWN_FULL, QUEUE_OWN_TOO_LARGE].contains(&refusal.code.as_str()) =>
        {
            refusals::course_member_queue_full().retry_after(60).into()
        }
        other => other,
    }
}

/// What would happen if this were launched now: the same checks, nothing written.
pub async fn preview(
    server: &Server,
    caller: &Caller,
    request: LaunchRequest,
) -> Result<Explanation, Failure> {
    allowed(caller, Permission::SessionsWrite)?;
    let (caller, now) = (caller.clone(), server.clock().now());
    refuse_unheld_disk(server, &request).await?;
    let request = with_preset(server, &caller, request, now)?;
    let asked = AskedGroup::of(&request);
    let request = with_reservation(server, &caller, request, now)?;
    let request = with_image(server, &caller, request)?;
    let priority = request.priority;
    let (project, owner) = (request.project.clone(), request.owner.clone());
    let mounts = api::mounts::requested(&request.mounts)?;
    let (network, wants_sudo) = (network_of(&request)?, request.sudo);
    ulimits_of(&request)?;
    apps_of(&request)?;
    let validated = RequestedLaunch::from(request).validate(now)?;
    refuse_full_queue(server)?;
    let snapshot = server.snapshot().await?;
    server
        .catalog()
        .read("preview a launch", move |view| {
            let world = &snapshot.world;
            let whose = for_whom(view, &caller, owner.as_deref(), project, now)?;
            let owner = whose.owner.as_ref().unwrap_or(&caller);
            let named = whose.project.as_deref();
            refuse_mounts_of_others(&mounts, &whose)?;
            let group = asked.find(view, &owner.subject, named, now)?;
            let draft = look_up(view, [owner, &caller], validated, None, group)?;
            folders::resolve(view, &owner.subject, &mounts, Some(NO_FOLDER), now)?;
            if let Some(name) = &draft.name {
                for number in 1..=draft.replicas {
                    let name = name.replica(number, draft.replicas)?;
                    let taken = world
                        .sessions
                        .iter()
                        .any(|s| s.owner == owner.subject.user && s.name == name);
                    if taken {
                        return Err(crate::catalog::sessions::name_taken(&name).into());
                    }
                }
            }
            let (domain, project) =
                project_for_launch(view, &owner.subject, whose.project.as_deref(), now)?;
            let subjects = PolicySubjects {
                domain,
                project,
                user: owner.subject.user,
            };
            let mut draft = draft;
            let course = view.course_for_launch(&owner.subject, (domain, project), now)?;
            let limit = course.and_then(|course| course.max_runtime_seconds);
            egress::chosen(view.egress_policy(&subjects)?.as_ref(), network)?;
            granted_sudo(view, &subjects, wants_sudo)?;
            let limits = limits_of(view, &subjects, CountedUse::Nothing)?;
            keep_priority(&limits, priority, &mut draft.precedence)?;
            refuse_undeclared(view, &subjects, &draft.spec, limit)?;
            keep_within_course(limit, &mut draft.spec, |spec| {
                keep_within_limits(view, &subjects, spec, None)
            })?;
            // As a launch does: a bound from above is enough where nothing is refused.
            let bound = limits_of(view, &subjects, CountedUse::QueueBound)?;
            if refuse_full(&bound, draft.replicas, &draft.spec).is_err() {
                refuse_own_full_queue(view, &subjects, draft.replicas, &draft.spec)?;
            }
            let whose = (subjects.project, subjects.user);
            let (seen, wanted) = (budgets::seen(&caller), (&draft.spec, draft.replicas));
            keep_within_budgets(view, &seen, whose, wanted, now)?;
            let budgets = budgets::checks(view, &caller, whose, wanted, None, now)?;
            let mut explained = snapshot.explain_draft(
                &placement::RequestDraft {
                    kind: draft.spec.kind,
                    environment: draft.spec.environment,
                    demand: draft.spec.demand,
                    start_at: draft.spec.start_at,
                    depends_on: draft.spec.depends_on,
                    precedence: draft.precedence,
                    replicas: draft.replicas,
                    max_runtime_seconds: draft.spec.max_runtime_seconds,
                    owner: Some(owner.subject.user),
                    domain,
                    project,
                    group: draft.group,
                },
                now,
            );
            explained.checks.extend(budgets);
            Ok(discreet(explained, world, &caller))
        })
        .await
}

/// Refuses what needs the launch document of a session where that is no longer kept.
pub(super) fn refuse_document_gone(session: &session::Session) -> Result<(), Refusal> {
    if !session.document_gone {
        return Ok(());
    }
    Err(refusals::session_document_gone(&session.name))
}

/// The request that would launch this session again, under a name that is free; without the folders of another user.
///
/// Errors: `session.not-found`; `session.document-gone`.
pub async fn duplicate(
    server: &Server,
    caller: &Caller,
    id: &str,
) -> Result<LaunchRequest, Failure> {
    server.catalog().read_now("duplicate a session", |view| {
        let row = find(view, caller, Permission::SessionsRead, id)?;
        refuse_document_gone(&row)?;
        let demand = row.spec.of_each();
        let project = view.project(row.project)?.map(|p| p.name.to_string());
        let group = NameCache::new(view)?.show(&row)?.group;
        // By name they would be folders of the caller, under the command of another user.
        let is_own = row.owner == caller.subject.user;
        let asked = |mount: &&FolderMount| is_own && !mount.by_itself && !mount.detached;
        let mounts = row.mounts.iter().filter(asked);
        let mounts = mounts.map(|mount| folders::asked_again(view, &caller.subject, mount));
        let mounts = mounts.collect::<Result<Vec<NewMountBody>, Failure>>()?;
        Ok(LaunchRequest {
            project,
            group: group.map(|name| name.to_string()),
            name: free_name(view, caller, row.name.as_str())?,
            kind: row.spec.kind,
            image: row.spec.environment.word().to_owned(),
            command: row.spec.command,
            env: row.spec.env,
            mounts,
            network: row.egress.as_ref().map(|one| one.mode.word().to_owned()),
            // Nor does the command of another user get the caller's start-up unless the caller asks for it.
            without_start_up: !is_own || row.start_up.choice == StartUpChoice::Nothing,
            without_home: server.gives_homes()
                && (!is_own || !row.mounts.iter().any(|mount| mount.by_itself)),
            sudo: is_own && row.sudo,
            ulimits: Some(row.ulimits.to_string()).filter(|raised| !raised.is_empty()),
            apps: Some(row.apps.to_string()).filter(|named| !named.is_empty()),
            resources: Resources {
                cpu: Some(demand.cpu),
                memory: Some(demand.memory),
                shm: Some(demand.shm),
                disk: demand.disk,
                gpu: Some(demand.gpu).filter(|gpu| *gpu > GpuShare::ZERO),
                gpu_memory: demand.gpu_memory,
                mig: demand.mig,
            },
            containers: row.spec.containers,
            replicas: 1,
            timeout_seconds: row.spec.timeout_seconds,
            max_runtime_seconds: row.spec.max_runtime_seconds,
            // A start in the past, and dependencies that are over, are not asked for again.
            start_at: None,
            depends_on: Vec::new(),
            priority: Some(row.precedence.priority).filter(|one| *one != USUAL_PRIORITY),
            yields: row.precedence.yields,
            ..LaunchRequest::saying(row.remarks)
        })
    })
}

/// Whose a launch is, and in which project.
struct LaunchOwner {
    /// The member it is for, with their own rights; None for the caller.
    owner: Option<Caller>,
    /// As asked, or id of the one that was found for the owner.
    project: Option<String>,
}

/// The project of a launch of the caller's for `owner`, who is the caller where none is named.
///
/// Errors: those of the project and the owner, each at its field.
pub(crate) fn project_of_launch(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    owner: Option<&str>,
    project: Option<String>,
    now: Timestamp,
) -> Result<(DomainId, ProjectId), Failure> {
    let whose = for_whom(view, caller, owner, project, now)?;
    let subject = &whose.owner.as_ref().unwrap_or(caller).subject;
    project_for_launch(view, subject, whose.project.as_deref(), now)
}

/// Finds whom a launch is for: the caller, or a member of a project whose sessions the caller may change. Where no
/// project is named, an administrator means the owner's first and a lead their own. The limits are the owner's; images and
/// dependencies are those that both of them see, so that a launch tells a lead nothing of what a member has elsewhere.
///
/// Errors: `launch.owner-denied`, `launch.owner-unknown`, `project.not-found`, `project.none`.
fn for_whom(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    asked: Option<&str>,
    project: Option<String>,
    now: Timestamp,
) -> Result<LaunchOwner, Failure> {
    let asked = asked.map(str::trim).filter(|who| !who.is_empty());
    let own = |who: &&str| *who != caller.name.as_str() && *who != caller.subject.user.to_string();
    let Some(asked) = asked.filter(own) else {
        return Ok(LaunchOwner {
            owner: None,
            project,
        });
    };
    let named = project.as_deref().map(str::trim);
    let (domain, id) = match named.filter(|name| !name.is_empty()) {
        Some(name) => {
            let found = find_project(view, &caller.subject, Permission::ProjectsRead, name);
            let found = found.map_err(|failure| failure.at("/project"))?;
            (found.domain, found.id)
        }
        None => {
            let owner = find_user(view, &caller.subject, Permission::UsersRead, asked);
            let user = owner.map_or(caller.subject.user, |user| user.id);
            let home = view.home_project(user, now)?;
            home.ok_or_else(refusals::project_none)?
        }
    };
    let scope = Scope {
        project: Some(id),
        ..Scope::domain(domain)
    };
    if may(&caller.subject, Permission::SessionsWrite, &scope).is_err() {
        return Err(refusals::launch_owner_denied().at("/owner").into());
    }
    let unknown = || refusals::launch_owner_unknown(asked).at("/owner");
    let members = view.members(id)?;
    let is_meant = |one: &&MemberRow| one.name.as_str() == asked || one.user.to_string() == asked;
    let member = members.iter().find(is_meant).ok_or_else(unknown)?;
    let user = view.user(member.user)?;
    let user = user.filter(|user| !user.suspended).ok_or_else(unknown)?;
    Ok(LaunchOwner {
        owner: Some(Caller {
            subject: Subject {
                user: user.id,
                grants: user.grants_at(now),
                domain: user.domain,
                scopes: None,
            },
            ..caller.clone()
        }),
        project: Some(id.to_string()),
    })
}

/// `vit` or `vit-2` → the first of `vit-2`, `vit-3` … that no session of the caller has or had; where they had all of
/// them, the first that no live one has. None where all are taken or too long.
fn free_name(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    name: &str,
) -> Result<Option<String>, Failure> {
    let stem = match name.rsplit_once('-') {
        Some((stem, number)) if number.chars().all(|c| c.is_ascii_digit()) => stem,
        _ => name,
    };
    let mut free = None;
    for number in 2..100 {
        let Ok(candidate) = SessionName::parse(&format!("{stem}-{number}")) else {
            break;
        };
        let called = view.sessions_called(&own(&caller.subject), candidate.as_str())?;
        if called.is_empty() {
            return Ok(Some(candidate.to_string()));
        }
        let ended = called.iter().all(|s| s.state() == SessionState::Ended);
        if ended && free.is_none() {
            free = Some(candidate.to_string());
        }
    }
    Ok(free)
}

fn no_image(reference: &str) -> Refusal {
    refusals::image_unknown(reference.escape_debug()).at("/image")
}

/// Looks up what a validated launch names: its image, its dependencies, and whether a machine could ever hold it.
/// What one of `both`, its owner and who asks, does not see is not there.
///
/// Errors: `image.*`, `dependency.*`, `command.missing` where the image runs nothing by itself; what no machine
/// could ever hold.
fn look_up(
    view: &ReadTransaction<'_>,
    both: [&Caller; 2],
    launch: ValidatedLaunch,
    device_affinity: Option<String>,
    (group, groups): (ResourceGroupId, GroupPlan),
) -> Result<CheckedLaunch, Failure> {
    let draft = named_things(view, both, launch, device_affinity, group)?;
    let machines = machines(view, groups)?;
    let spec = &draft.spec;
    if spec.containers > 1 {
        // What holds all of them may be too little for one, as a sliver of a card is.
        placement::possible(&machines, group, &spec.of_each(), &spec.environment)?;
    }
    placement::possible(&machines, group, &spec.demand, &spec.environment)?;
    Ok(draft)
}

/// Whether something could ever start depends on the machines alone, so no session is read for it.
fn machines(view: &ReadTransaction<'_>, groups: GroupPlan) -> Result<ClusterSnapshot, Failure> {
    Ok(ClusterSnapshot {
        nodes: view.nodes()?,
        policy: view.policy(),
        groups,
        ..ClusterSnapshot::default()
    })
}

/// `look_up` without a look at machines. Errors: those of `look_up` but for the last.
fn named_things(
    view: &ReadTransaction<'_>,
    both: [&Caller; 2],
    launch: ValidatedLaunch,
    device_affinity: Option<String>,
    group: ResourceGroupId,
) -> Result<CheckedLaunch, Failure> {
    let (environment, image) = environment(view, both, &launch.image)?;
    let runs_itself =
        |image: &CatalogImage| !(image.entrypoint.is_empty() && image.command.is_empty());
    let runs_something = image.as_ref().is_some_and(runs_itself);
    let depends_on = dependencies(view, both, &launch.depends_on, launch.name.as_ref())?;
    let word = environment.word().to_owned();
    let spec = launch
        .spec
        .complete(environment, runs_something, depends_on)?;
    if let Some(image) = &image {
        keep_within_image(view, image, &spec)?;
    }
    Ok(CheckedLaunch {
        name: launch.name,
        remarks: launch.remarks,
        precedence: launch.precedence,
        spec,
        device_affinity,
        mounts: Vec::new(),
        egress: None,
        start_up: StartUpChoice::Nothing,
        sudo: false,
        ulimits: ProcessLimits::USUAL,
        apps: LaunchedApps::default(),
        group,
        replicas: launch.replicas,
        word,
    })
}

/// Refuses containers that ask for less or for more than their image takes. Reads the machines where one asks for a partition.
///
/// Errors: `image.minimum`, `image.maximum`.
pub(super) fn keep_within_image(
    view: &ReadTransaction<'_>,
    image: &CatalogImage,
    spec: &session::SessionSpec,
) -> Result<(), Failure> {
    let each = spec.of_each();
    let gpu = match each.mig.is_some() {
        true => {
            let machines = ClusterSnapshot {
                nodes: view.nodes()?,
                ..ClusterSnapshot::default()
            };
            placement::asked(&machines, &each)
        }
        false => each.gpu,
    };
    Ok(image.limits.check(&image.reference, &each, gpu)?)
}

/// What a session starts from, with its image where that is one. An image of a domain that they do not
/// both reach is not there for them, nor is one that another user keeps private.
fn environment(
    view: &ReadTransaction<'_>,
    both: [&Caller; 2],
    choice: &ImageChoice,
) -> Result<(SessionEnvironment, Option<CatalogImage>), Failure> {
    let typed = match choice {
        ImageChoice::Host => return Ok((SessionEnvironment::Host, None)),
        ImageChoice::Id { typed, .. } | ImageChoice::Reference { typed, .. } => typed,
    };
    let image = image_of(view, both, choice)?.ok_or_else(|| no_image(typed))?;
    let environment = SessionEnvironment::Image {
        id: image.id,
        reference: image.reference.clone(),
    };
    Ok((environment, Some(image)))
}

/// The image of that choice that both may start from.
fn image_of(
    view: &ReadTransaction<'_>,
    both: [&Caller; 2],
    choice: &ImageChoice,
) -> Result<Option<CatalogImage>, Failure> {
    let found = match choice {
        ImageChoice::Host => None,
        ImageChoice::Id { id, .. } => view.image(*id)?,
        ImageChoice::Reference { reference, .. } => view.image_called(reference)?,
    };
    let is_theirs = |image: &CatalogImage, one: &Caller| {
        one.subject.reaches(image.domain) && image.is_open_to(one.subject.user)
    };
    Ok(found.filter(|image| both.iter().all(|one| is_theirs(image, one))))
}

/// The sessions that `typed` names, each once. A new session can depend on existing ones only, so no
/// cycle can be made here but with itself.
fn dependencies(
    view: &ReadTransaction<'_>,
    [owner, caller]: [&Caller; 2],
    typed: &[String],
    own_name: Option<&SessionName>,
) -> Result<Vec<SessionId>, Failure> {
    let mut ids = Vec::new();
    for text in typed {
        let seen =
            find(view, owner, Permission::SessionsRead, text).and_then(|session| {
                match owner.subject.user == caller.subject.user {
                    true => Ok(session),
                    false => {
                        let id = session.id.to_string();
                        find(view, caller, Permission::SessionsRead, &id)
                    }
                }
            });
        let found = match seen {
            Ok(session) => session,
            Err(Failure::Refusal(refusal)) if refusal.code == rules::codes::SESSION_NOT_FOUND => {
                let refusal = if own_name.is_some_and(|name| name.as_str() == text) {
                    refusals::dependency_cycle()
                } else {
                    let shown: String =
                        text.chars().take(80).flat_map(char::escape_debug).collect();
                    refusals::dependency_not_found(&shown)
                };
                return Err(refusal.at("/depends_on").into());
            }
            Err(failure) => return Err(failure),
        };
        if found
            .outcome()
            .is_some_and(|outcome| outcome != Outcome::Succeeded)
        {
            return Err(refusals::dependency_failed(&found.name)
                .at("/depends_on")
                .into());
        }
        if !ids.contains(&found.id) {
            ids.push(found.id);
        }
    }
    Ok(ids)
}

/// Writes the rows of a launch and gives them.
fn insert(
    rows: &Rows<'_>,
    draft: &CheckedLaunch,
    subjects: &PolicySubjects,
    actor: &str,
) -> Result<Vec<session::Session>, Failure> {
    let mut tried = 0;
    loop {
        tried += 1;
        let name = match &draft.name {
            Some(name) => name.clone(),
            None => make_name(&draft.word)?,
        };
        match insert_named(rows, draft, &name, subjects, actor) {
            Err(Failure::Refusal(refusal))
                if refusal.code == rules::codes::SESSION_NAME_TAKEN
                    && draft.name.is_none()
                    && draft.replicas == 1
                    && tried < NAMES_TRIED => {}
            result => return result,
        }
    }
}

fn insert_named(
    rows: &Rows<'_>,
    draft: &CheckedLaunch,
    name: &SessionName,
    subjects: &PolicySubjects,
    actor: &str,
) -> Result<Vec<session::Session>, Failure> {
    let now = rows.now;
    // Ids break ties in the queue, so that replicas start in the order of their numbers.
    let mut ids: Vec<SessionId> = (0..draft.replicas)
        .map(|_| SessionId::make(now, base::observe::random()))
        .collect();
    ids.sort_unstable();
    let mut written = Vec::with_capacity(ids.len());
    for (id, number) in ids.into_iter().zip(1..) {
        let name = name.replica(number, draft.replicas)?;
        let mut row = session::Session::launched(id, name, subjects.user, draft.spec.clone(), now);
        (row.domain, row.project) = (subjects.domain, subjects.project);
        row.remarks.clone_from(&draft.remarks);
        row.precedence = draft.precedence;
        row.device_affinity.clone_from(&draft.device_affinity);
        row.mounts.clone_from(&draft.mounts);
        row.egress.clone_from(&draft.egress);
        row.start_up.choice = draft.start_up;
        row.sudo = draft.sudo;
        row.ulimits = draft.ulimits;
        row.apps.clone_from(&draft.apps);
        rows.insert_session(&row, actor)?;
        rows.put_session_group(row.id, draft.group)?;
        written.push(row);
    }
    rows.join_launch(&written)?;
    Ok(written)
}

/// What a launch says of the resource group that it is for.
#[derive(Clone)]
struct AskedGroup {
    named: Option<String>,
    kind: session::SessionKind,
    /// The device that a self-test is bound to.
    device: Option<String>,
    /// It starts with a reservation, which keeps devices of the founding group.
    is_reserved: bool,
}

impl AskedGroup {
    fn of(request: &LaunchRequest) -> Self {
        let said = |text: &Option<String>| {
            let text = text.as_deref().map(str::trim);
            text.filter(|text| !text.is_empty()).map(str::to_owned)
        };
        Self {
            named: said(&request.group),
            kind: request.kind,
            device: request.device_affinity.clone(),
            is_reserved: said(&request.reservation).is_some(),
        }
    }

    /// The group that is named, or the first that the owner may use in that project, with all groups and their nodes; of a
    /// self-test the group of its device.
    ///
    /// Errors: `group.not-allowed`, `group.none`, `group.kind`, `group.reservation`; those of the project.
    fn find(
        &self,
        view: &ReadTransaction<'_>,
        owner: &Subject,
        project: Option<&str>,
        now: Timestamp,
    ) -> Result<(ResourceGroupId, GroupPlan), Failure> {
        let plan = view.nodes_by_group()?;
        if let Some(device) = &self.device {
            let nodes = view.nodes()?;
            let mut nodes = nodes.iter();
            let node = nodes.find(|node| node.capacity.devices.iter().any(|d| d.uuid == *device));
            let group = node.map_or(ResourceGroupId::DEFAULT, |node| plan.of_node(node.id));
            return Ok((group, plan));
        }
        if self.named.is_none() && plan.groups.iter().all(ResourceGroup::is_plain) {
            return Ok((ResourceGroupId::DEFAULT, plan));
        }
        let place = project_for_launch(view, owner, project, now)?;
        let group = self.choose(&plan, place, owner.user)?;
        Ok((group, plan))
    }

    /// The group that is named, or the first that the owner may use in that project.
    fn choose(
        &self,
        plan: &GroupPlan,
        (domain, project): (DomainId, ProjectId),
        owner: UserId,
    ) -> Result<ResourceGroupId, Refusal> {
        let founding = ResourceGroupId::DEFAULT.to_string();
        let named = match (&self.named, self.is_reserved) {
            (None, true) => Some(founding.as_str()),
            (named, _) => named.as_deref(),
        };
        let group = match plan.choose(named, (domain, project, owner), self.kind) {
            // The request did not name the founding group, so the reservation is what cannot be had.
            Err(refusal)
                if self.named.is_none() && refusal.code == rules::codes::GROUP_NOT_ALLOWED =>
            {
                return Err(refusals::group_reservation().at("/reservation"));
            }
            chosen => chosen?,
        };
        if self.is_reserved && group != ResourceGroupId::DEFAULT {
            return Err(refusals::group_reservation().at("/group"));
        }
        Ok(group)
    }
}

/// The levels that a launch of the subject belongs to.
fn subjects_of(
    rows: &Rows<'_>,
    subject: &Subject,
    project: Option<&str>,
) -> Result<PolicySubjects, Failure> {
    let (domain, project) = project_for_launch(rows, subject, project, rows.now)?;
    Ok(PolicySubjects {
        domain,
        project,
        user: subject.user,
    })
}

/// `host` → `host-k7m3xq`: the last word of the image and thirty random bits.
fn make_name(image: &str) -> Result<SessionName, Refusal> {
    const LETTERS: &[u8; 32] = b"abcdefghjkmnpqrstuvwxyz023456789";
    let path = image.rsplit_once(':').map_or(image, |(path, _)| path);
    let word: String = path
        .rsplit('/')
        .next()
        .unwrap_or(path)
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(40)
        .collect();
    let word = match word.trim_matches('-') {
        "" => "session",
        word => word,
    };
    let random: String = base::observe::random::<6>()
        .iter()
        .map(|byte| char::from(LETTERS[usize::from(byte & 31)]))
        .collect();
    SessionName::parse(&format!("{word}-{random}"))
}
