//! What a user may do with policies: administrators of the site write and attach them, users see which limits hold for
//! them. Lowering a limit ends nothing; a network that is narrowed ends connections of sessions that run.

use std::collections::BTreeMap;

use api::policies::{
    EffectiveLimitView, EgressBody, LimitsBody, NewPolicyBody, OverLimitView, PolicyPatchBody,
    PolicyPreviewView, PolicyUseBody, PolicyUseView, PolicyView,
};
use rules::commit::MAX_POLICY_IMAGES;
use rules::egress::EgressPolicy;
use rules::names::{PolicyId, TenantName, UserId};
use rules::object::Object;
use rules::permissions::{Permission, may};
use rules::quota::{self, AttachedPolicy, LimitKey, LimitUsage, PolicyLevel, PolicyLimits};
use rules::refusal::Refusal;
use rules::refusals;
use rules::resources::MIN_DISK;
use rules::storage::MIN_FOLDER_BYTES;
use rules::tenancy::Scope;
use rules::units::GpuShare;
use rules::users::User;
use rules::workload::precedence::MAX_PRIORITY;
use rules::workload::validate::check_run_seconds;
use uuid::Uuid;

use super::accounts::find as find_user;
use super::four_eyes::{PendingAct, hold, kept};
use super::tenancy::{find_domain, find_project, project_for_launch};
use super::{allowed, budgets, sessions, somewhere};
use crate::access::Caller;
use crate::catalog::events::NewEvent;
use crate::catalog::policies::{PolicyRecord, PolicySubjects, PolicyUse};
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::{Failure, Server};

/// Policies of a site. Higher: their list is long. Lower: sites with many courses name fewer.
const MAX_POLICIES: usize = 500;
/// Sums beyond a changed policy that its preview tells. Higher: the page is long. Lower: of a class some are only counted.
const MAX_OVER: usize = 100;

/// All policies with what they are attached to, by name; for administrators and auditors of the site.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<PolicyView>, Failure> {
    may(&caller.subject, Permission::SystemRead, &Scope::SITE)?;
    server.catalog().read_now("list policies", |view| {
        let rows = view.policies()?;
        rows.into_iter().map(|row| show(view, row)).collect()
    })
}

/// One policy, by id or name. Errors: `policy.not-found`.
pub async fn get(server: &Server, caller: &Caller, which: &str) -> Result<PolicyView, Failure> {
    may(&caller.subject, Permission::SystemRead, &Scope::SITE)?;
    server.catalog().read_now("show a policy", |view| {
        let row = find(view, which)?;
        show(view, row)
    })
}

/// Why a site with so many policies can have no other; None while there is room.
pub fn no_room(known: usize) -> Option<Refusal> {
    (known >= MAX_POLICIES).then(|| refusals::policy_too_many(MAX_POLICIES))
}

/// Makes a policy, attached to nothing.
///
/// Errors: `policy.name-invalid`, `policy.name-taken`, `policy.too-many`, `egress.network-unknown`, `egress.target-invalid`,
/// `egress.too-many`.
pub async fn create(
    server: &Server,
    caller: &Caller,
    asked: NewPolicyBody,
) -> Result<PolicyView, Failure> {
    may(&caller.subject, Permission::SystemWrite, &Scope::SITE)?;
    let (name, limits) = (name_of(&asked.name)?, limits_of(asked.limits)?);
    let egress = asked.egress.read()?;
    let act = PendingAct::PolicyCreate {
        asked: asked.clone(),
    };
    let (by, held) = (caller.clone(), act.clone());
    let made = server
        .catalog()
        .write(Lane::Requests, "make a policy", move |rows| {
            if let Some(full) = no_room(rows.policies()?.len()) {
                return Err(full.into());
            }
            let policy = PolicyRecord {
                id: PolicyId::make(rows.now, base::observe::random()),
                name,
                limits,
                egress,
                sudo: asked.sudo,
                no_inner_door: asked.no_inner_door,
                no_home: asked.no_home,
                require_limit: asked.require_limit,
                generation: 1,
            };
            rows.insert_policy(&policy)?;
            let told = told(&policy);
            note(rows, by.name.as_str(), &policy, "policy.added", "", &told)?;
            hold(rows, &by, &held)?;
            show(rows, policy)
        })
        .await;
    kept(server, caller, made, &act).await
}

/// Changes a policy's name or limits. What runs goes on. Sums hold at once, also for what waits; limits of one session
/// hold for what is launched, changed or restarted from now on.
///
/// Errors: `policy.not-found`, `policy.stale`, `policy.name-invalid`, `policy.name-taken`.
pub async fn change(
    server: &Server,
    caller: &Caller,
    which: &str,
    patch: PolicyPatchBody,
    if_match: Option<u64>,
) -> Result<PolicyView, Failure> {
    may(&caller.subject, Permission::SystemWrite, &Scope::SITE)?;
    let act = PendingAct::PolicyChange {
        which: which.to_owned(),
        patch: patch.clone(),
        if_match,
        to: None,
    };
    let wanted = PolicyChange::read(patch, if_match)?;
    let (by, which, held) = (caller.clone(), which.to_owned(), act.clone());
    let changed = server
        .catalog()
        .write(Lane::Requests, "change a policy", move |rows| {
            let policy = find(rows, &which)?;
            let changed = changed(rows, by.name.as_str(), policy, wanted)?;
            hold(rows, &by, &held)?;
            show(rows, changed)
        })
        .await;
    kept(server, caller, changed, &act).await
}

/// Changes a policy and attaches it, both or neither.
///
/// Errors: as `change` and as `attach`.
pub async fn change_and_attach(
    server: &Server,
    caller: &Caller,
    which: &str,
    patch: PolicyPatchBody,
    if_match: Option<u64>,
    to: PolicyUseBody,
) -> Result<PolicyView, Failure> {
    may(&caller.subject, Permission::SystemWrite, &Scope::SITE)?;
    let act = PendingAct::PolicyChange {
        which: which.to_owned(),
        patch: patch.clone(),
        if_match,
        to: Some(to.clone()),
    };
    let wanted = PolicyChange::read(patch, if_match)?;
    let (by, which, held) = (caller.clone(), which.to_owned(), act.clone());
    let done = server
        .catalog()
        .write(Lane::Requests, "change and attach a policy", move |rows| {
            let policy = find(rows, &which)?;
            let changed = changed(rows, by.name.as_str(), policy, wanted)?;
            let done = attached(rows, &by, changed, &to)?;
            hold(rows, &by, &held)?;
            Ok(done)
        })
        .await;
    kept(server, caller, done, &act).await
}

/// Who would have more than a changed policy allows, by what lives now and with their allowances: nothing of theirs would
/// end, and nothing more would start. Changes nothing. Costs one visit of each live session.
///
/// Errors: those of `change`, but for a stale version.
pub async fn preview(
    server: &Server,
    caller: &Caller,
    which: &str,
    patch: PolicyPatchBody,
) -> Result<PolicyPreviewView, Failure> {
    may(&caller.subject, Permission::SystemWrite, &Scope::SITE)?;
    let wanted = PolicyChange::read(patch, None)?;
    let which = which.to_owned();
    server
        .catalog()
        .read("preview a change of a policy", move |view| {
            let policy = find(view, &which)?;
            let limits = wanted.limits.unwrap_or(policy.limits);
            let all = view.live_usage()?;
            let mut preview = PolicyPreviewView::default();
            for (_, used) in view
                .policy_uses()?
                .iter()
                .filter(|(id, _)| *id == policy.id)
            {
                let mut sums: BTreeMap<Uuid, (PolicySubjects, LimitUsage)> = BTreeMap::new();
                for (subjects, usage) in &all {
                    let Some(whose) = bounded(used, subjects) else {
                        continue;
                    };
                    let none = (*subjects, LimitUsage::default());
                    let sum = &mut sums.entry(whose).or_insert(none).1;
                    *sum = sum.plus(*usage);
                }
                for (subjects, usage) in sums.into_values() {
                    put_over(view, &mut preview, (used, limits), &subjects, &usage)?;
                }
            }
            Ok(preview)
        })
        .await
}

/// Whose sum the policy bounds there, of those to whom something of these subjects belongs; None where it bounds none of
/// theirs.
fn bounded(used: &PolicyUse, subjects: &PolicySubjects) -> Option<Uuid> {
    let (domain, project, user) = (subjects.domain.0, subjects.project.0, subjects.user.0);
    let is_of = |id: Uuid| used.subject == Some(id);
    match used.level {
        PolicyLevel::Site => Some(user),
        PolicyLevel::Domain => is_of(domain).then_some(domain),
        PolicyLevel::Project => is_of(project).then_some(project),
        PolicyLevel::Member => is_of(project).then_some(user),
        PolicyLevel::User => is_of(user).then_some(user),
    }
}

/// Adds what of one sum is beyond the limits there, raised by allowances.
fn put_over(
    view: &ReadTransaction<'_>,
    preview: &mut PolicyPreviewView,
    (used, limits): (&PolicyUse, PolicyLimits),
    subjects: &PolicySubjects,
    usage: &LimitUsage,
) -> Result<(), Failure> {
    let mut attached = AttachedPolicy {
        level: used.level,
        name: String::new(),
        limits,
        raised: Vec::new(),
    };
    for allowance in view.allowances_of(subjects)? {
        attached.raise(&allowance);
    }
    for (key, has, limit) in quota::beyond(&attached.limits, usage) {
        if preview.items.len() >= MAX_OVER {
            preview.more += 1;
            continue;
        }
        let user = match used.level {
            PolicyLevel::Domain | PolicyLevel::Project => None,
            PolicyLevel::Site | PolicyLevel::Member | PolicyLevel::User => {
                view.user(subjects.user)?.map(|user| user.name.to_string())
            }
        };
        preview.items.push(OverLimitView {
            level: used.level,
            name: used.whose.clone(),
            user,
            key: key.word().to_owned(),
            used: has,
            limit,
            used_text: key.told(has),
            limit_text: key.told(limit),
        });
    }
    Ok(())
}

/// What a patch says, read; nothing of the catalog is known yet.
struct PolicyChange {
    name: Option<String>,
    limits: Option<PolicyLimits>,
    egress: Option<Option<EgressPolicy>>,
    sudo: Option<bool>,
    no_inner_door: Option<bool>,
    no_home: Option<bool>,
    require_limit: Option<bool>,
    if_match: Option<u64>,
}

impl PolicyChange {
    fn read(patch: PolicyPatchBody, if_match: Option<u64>) -> Result<Self, Refusal> {
        let limits = patch.limits.map(|Object(limits)| limits_of(limits));
        let egress = patch.egress.map(|Object(egress)| egress.read());
        Ok(Self {
            name: patch.name.as_deref().map(name_of).transpose()?,
            limits: limits.transpose()?,
            egress: egress.transpose()?,
            sudo: patch.sudo,
            no_inner_door: patch.no_inner_door,
            no_home: patch.no_home,
            require_limit: patch.require_limit,
            if_match,
        })
    }
}

/// The policy after a change, with its rows; as it was where the change says nothing new.
fn changed(
    rows: &Rows<'_>,
    actor: &str,
    policy: PolicyRecord,
    wanted: PolicyChange,
) -> Result<PolicyRecord, Failure> {
    if wanted
        .if_match
        .is_some_and(|seen| seen != policy.generation)
    {
        return Err(refusals::policy_stale(&policy.name, policy.generation).into());
    }
    let changed = PolicyRecord {
        name: wanted.name.unwrap_or_else(|| policy.name.clone()),
        limits: wanted.limits.unwrap_or(policy.limits),
        egress: wanted.egress.unwrap_or_else(|| policy.egress.clone()),
        sudo: wanted.sudo.unwrap_or(policy.sudo),
        no_inner_door: wanted.no_inner_door.unwrap_or(policy.no_inner_door),
        no_home: wanted.no_home.unwrap_or(policy.no_home),
        require_limit: wanted.require_limit.unwrap_or(policy.require_limit),
        ..policy.clone()
    };
    if changed == policy {
        return Ok(policy);
    }
    rows.put_policy(&changed)?;
    if changed.egress != policy.egress {
        narrow_networks(rows, actor)?;
    }
    let is_renamed = changed.limits == policy.limits
        && changed.egress == policy.egress
        && changed.sudo == policy.sudo
        && changed.no_inner_door == policy.no_inner_door
        && changed.no_home == policy.no_home
        && changed.require_limit == policy.require_limit;
    let (before, after) = match is_renamed {
        true => (policy.name.clone(), changed.name.clone()),
        false => (told(&policy), told(&changed)),
    };
    note(rows, actor, &changed, "policy.changed", &before, &after)?;
    find(rows, &policy.id.to_string())
}

/// Removes a policy that is attached to nothing. Errors: `policy.not-found`, `policy.in-use`.
pub async fn remove(server: &Server, caller: &Caller, which: &str) -> Result<(), Failure> {
    may(&caller.subject, Permission::SystemWrite, &Scope::SITE)?;
    let act = PendingAct::PolicyRemove {
        which: which.to_owned(),
    };
    let (by, which, held) = (caller.clone(), which.to_owned(), act.clone());
    let removed = server
        .catalog()
        .write(Lane::Requests, "remove a policy", move |rows| {
            let policy = find(rows, &which)?;
            let uses = uses_of(rows, policy.id)?.len();
            if uses > 0 {
                return Err(refusals::policy_in_use(&policy.name, uses).into());
            }
            rows.forget_policy(policy.id)?;
            let told = told(&policy);
            note(rows, by.name.as_str(), &policy, "policy.removed", &told, "")?;
            hold(rows, &by, &held)
        })
        .await;
    kept(server, caller, removed, &act).await
}

/// Attaches a policy to the site, a domain, a project, each of its members or a user, in the place of the one that was there.
///
/// Errors: `policy.not-found`, `domain.not-found`, `project.not-found`, `user.not-found`.
pub async fn attach(
    server: &Server,
    caller: &Caller,
    which: &str,
    to: PolicyUseBody,
) -> Result<PolicyView, Failure> {
    may(&caller.subject, Permission::SystemWrite, &Scope::SITE)?;
    let act = PendingAct::PolicyAttach {
        which: which.to_owned(),
        to: to.clone(),
    };
    let (by, which, held) = (caller.clone(), which.to_owned(), act.clone());
    let done = server
        .catalog()
        .write(Lane::Requests, "attach a policy", move |rows| {
            let policy = find(rows, &which)?;
            let done = attached(rows, &by, policy, &to)?;
            hold(rows, &by, &held)?;
            Ok(done)
        })
        .await;
    kept(server, caller, done, &act).await
}

fn attached(
    rows: &Rows<'_>,
    caller: &Caller,
    policy: PolicyRecord,
    to: &PolicyUseBody,
) -> Result<PolicyView, Failure> {
    let (subject, whose) = subject(rows, caller, to)?;
    let there = |(_, one): &(PolicyId, PolicyUse)| one.level == to.level && one.subject == subject;
    let replaced = rows.policy_uses()?.into_iter().find(there);
    let replaced = match replaced {
        Some((id, _)) => rows.policy_called(&id.to_string())?,
        None => None,
    };
    rows.put_policy_use(to.level, subject, policy.id)?;
    narrow_networks(rows, caller.name.as_str())?;
    let told = place(to.level, &whose);
    let before = replaced.map_or_else(String::new, |one| one.name);
    let actor = caller.name.as_str();
    note(rows, actor, &policy, "policy.attached", &before, &told)?;
    show(rows, policy)
}

/// Takes the policy away that is attached there. The site falls back to the limits that are built in.
///
/// Errors: `policy.not-attached`, `policy.level-unknown`; as `attach`.
pub async fn detach(
    server: &Server,
    caller: &Caller,
    which: &str,
    level: Option<PolicyLevel>,
    subject_name: Option<String>,
) -> Result<PolicyView, Failure> {
    may(&caller.subject, Permission::SystemWrite, &Scope::SITE)?;
    let act = PendingAct::PolicyDetach {
        which: which.to_owned(),
        level,
        subject: subject_name.clone(),
    };
    let from = PolicyUseBody {
        level: level.ok_or_else(|| refusals::policy_level_unknown().at("/level"))?,
        subject: subject_name,
    };
    let (by, which, held) = (caller.clone(), which.to_owned(), act.clone());
    let done = server
        .catalog()
        .write(Lane::Requests, "detach a policy", move |rows| {
            let policy = find(rows, &which)?;
            let (subject, whose) = subject(rows, &by, &from)?;
            let uses = uses_of(rows, policy.id)?;
            let there = |one: &PolicyUseView| one.level == from.level && one.id == subject;
            if !uses.iter().any(there) {
                return Err(refusals::policy_not_attached().into());
            }
            rows.forget_policy_use(from.level, subject)?;
            narrow_networks(rows, by.name.as_str())?;
            let told = place(from.level, &whose);
            let actor = by.name.as_str();
            note(rows, actor, &policy, "policy.detached", &told, "")?;
            hold(rows, &by, &held)?;
            show(rows, policy)
        })
        .await;
    kept(server, caller, done, &act).await
}

/// Makes the policy that bounds GPUs and nothing else.
///
/// Errors: `policy.name-taken`.
pub(super) fn make_for_gpu(
    rows: &Rows<'_>,
    actor: &str,
    name: String,
    gpu: GpuShare,
) -> Result<PolicyRecord, Failure> {
    let policy = PolicyRecord {
        id: PolicyId::make(rows.now, base::observe::random()),
        name,
        limits: PolicyLimits {
            gpu: Some(u64::from(gpu.0)),
            ..PolicyLimits::NONE
        },
        egress: None,
        sudo: false,
        no_inner_door: false,
        no_home: false,
        require_limit: false,
        generation: 1,
    };
    rows.insert_policy(&policy)?;
    note(rows, actor, &policy, "policy.added", "", &told(&policy))?;
    Ok(policy)
}

/// Attaches a policy to an account in the place of `replaced`, or takes that one away. After the last of several
/// `narrow_networks` is due.
pub(super) fn put_on_user(
    rows: &Rows<'_>,
    actor: &str,
    policy: Option<PolicyId>,
    replaced: Option<PolicyId>,
    user: &User,
) -> Result<(), Failure> {
    let of = |id: Option<PolicyId>| match id {
        Some(id) => find(rows, &id.to_string()).map(Some),
        None => Ok(None),
    };
    let (policy, replaced) = (of(policy)?, of(replaced)?);
    let (UserId(id), told) = (user.id, place(PolicyLevel::User, user.name.as_str()));
    match (policy, replaced) {
        (Some(policy), replaced) => {
            rows.put_policy_use(PolicyLevel::User, Some(id), policy.id)?;
            let before = replaced.map_or_else(String::new, |one| one.name);
            note(rows, actor, &policy, "policy.attached", &before, &told)
        }
        (None, Some(replaced)) => {
            rows.forget_policy_use(PolicyLevel::User, Some(id))?;
            note(rows, actor, &replaced, "policy.detached", &told, "")
        }
        (None, None) => Ok(()),
    }
}

/// Removes a policy that is as it was made and attached to nothing; another one stays.
pub(super) fn forget_unused(rows: &Rows<'_>, actor: &str, policy: PolicyId) -> Result<(), Failure> {
    let found = rows.policy_called(&policy.to_string())?;
    let Some(policy) = found.filter(|one| one.generation == 1) else {
        return Ok(());
    };
    if !uses_of(rows, policy.id)?.is_empty() {
        return Ok(());
    }
    rows.forget_policy(policy.id)?;
    note(rows, actor, &policy, "policy.removed", &told(&policy), "")
}

/// The limits that hold for a user in a project, each with the rule that it comes from and what is in use of it. The
/// caller's own where no user is named, their first project where none is.
///
/// Errors: `user.not-found`, `project.not-found`, `project.none`.
pub async fn effective(
    server: &Server,
    caller: &Caller,
    user: Option<&str>,
    project: Option<&str>,
) -> Result<Vec<EffectiveLimitView>, Failure> {
    allowed(caller, Permission::Me)?;
    if user.is_some() {
        somewhere(caller, Permission::UsersRead)?;
    }
    let now = server.clock().now();
    server.catalog().read_now("show limits", |view| {
        let subject = match user {
            Some(who) => {
                let user = find_user(view, &caller.subject, Permission::UsersRead, who)?;
                rules::permissions::Subject {
                    user: user.id,
                    grants: user.grants_at(now),
                    domain: user.domain,
                    scopes: None,
                }
            }
            None => caller.subject.clone(),
        };
        let (domain, project) = project_for_launch(view, &subject, project, now)?;
        let subjects = PolicySubjects {
            domain,
            project,
            user: subject.user,
        };
        let limits = sessions::effective_limits(view, &subjects)?.into_iter();
        let mut all: Vec<EffectiveLimitView> = limits.map(EffectiveLimitView::from).collect();
        all.extend(budgets::as_limits(
            view,
            &budgets::seen(caller),
            project,
            subject.user,
            now,
        )?);
        Ok(all)
    })
}

/// Takes from each live session what the policies that hold for it list no more: its node closes those connections. Costs a
/// visit of each live session, and a look at the policies of each that has a network.
pub(super) fn narrow_networks(rows: &Rows<'_>, actor: &str) -> Result<(), Failure> {
    let live = rows.live_sessions()?;
    for session in live.iter().filter(|session| session.egress.is_some()) {
        let subjects = PolicySubjects {
            domain: session.domain,
            project: session.project,
            user: session.owner,
        };
        let policy = rows.egress_policy(&subjects)?;
        let left = session
            .egress
            .as_ref()
            .map(|one| one.under(policy.as_ref()));
        if left == session.egress {
            continue;
        }
        rows.change_session(session.id, None, actor, None, |session| {
            session.egress.clone_from(&left);
            true
        })?;
    }
    Ok(())
}

pub(super) fn limits_of(asked: LimitsBody) -> Result<PolicyLimits, Refusal> {
    check_run_seconds(asked.runtime_seconds)
        .map_err(|refusal| refusal.at("/limits/runtime_seconds"))?;
    if asked.sign_ins == Some(0) {
        return Err(refusals::policy_limit_invalid(4).at("/limits/sign_ins"));
    }
    if asked.images.is_some_and(|most| most > MAX_POLICY_IMAGES) {
        return Err(refusals::policy_limit_invalid(32).at("/limits/images"));
    }
    if asked.disk_each.is_some_and(|bytes| bytes < MIN_DISK) {
        return Err(refusals::policy_limit_invalid("20 GiB").at("/limits/disk_each"));
    }
    if asked
        .folder_bytes
        .is_some_and(|bytes| bytes < MIN_FOLDER_BYTES)
    {
        return Err(refusals::policy_limit_invalid("50 GiB").at("/limits/folder_bytes"));
    }
    if asked
        .priority
        .is_some_and(|one| one > u64::from(MAX_PRIORITY))
    {
        return Err(refusals::priority_out_of_range(MAX_PRIORITY).at("/limits/priority"));
    }
    let limits = PolicyLimits::from(asked);
    let most = i64::MAX.unsigned_abs();
    let beyond = LimitKey::ALL
        .into_iter()
        .find(|key| limits.get(*key).is_some_and(|value| value > most));
    match beyond {
        Some(key) => {
            Err(refusals::policy_limit_too_large(most).at(format!("/limits/{}", key.word())))
        }
        None => Ok(limits),
    }
}

fn name_of(typed: &str) -> Result<String, Refusal> {
    match TenantName::parse(typed.trim()) {
        Ok(name) => Ok(name.to_string()),
        Err(_) => Err(refusals::policy_name_invalid().at("/name")),
    }
}

/// What a policy says, as audit rows tell it.
fn told(policy: &PolicyRecord) -> String {
    let limits = policy.limits.told();
    let network = policy
        .egress
        .as_ref()
        .map(|egress| format!("network {}", egress.told()));
    let sudo = policy.sudo.then(|| "sudo".to_owned());
    let door = policy.no_inner_door.then(|| "no inner door".to_owned());
    let home = policy.no_home.then(|| "no home".to_owned());
    let duty = policy.require_limit.then(|| "time limit".to_owned());
    let said: Vec<String> = [Some(limits), network, sudo, door, home, duty]
        .into_iter()
        .flatten()
        .filter(|words| !words.is_empty())
        .collect();
    said.join(", ")
}

fn find(view: &ReadTransaction<'_>, which: &str) -> Result<PolicyRecord, Failure> {
    let found = view.policy_called(which)?;
    found.ok_or_else(|| refusals::policy_not_found().into())
}

fn uses_of(view: &ReadTransaction<'_>, id: PolicyId) -> Result<Vec<PolicyUseView>, Failure> {
    let all = view.policy_uses()?.into_iter();
    let own = all.filter(|(policy, _)| *policy == id);
    Ok(own
        .map(|(_, one)| PolicyUseView {
            level: one.level,
            id: one.subject,
            name: one.whose,
        })
        .collect())
}

fn show(view: &ReadTransaction<'_>, policy: PolicyRecord) -> Result<PolicyView, Failure> {
    Ok(PolicyView {
        id: policy.id.0,
        uses: uses_of(view, policy.id)?,
        name: policy.name,
        limits: LimitsBody::from(policy.limits),
        egress: EgressBody::from(policy.egress.as_ref()),
        sudo: policy.sudo,
        no_inner_door: policy.no_inner_door,
        no_home: policy.no_home,
        require_limit: policy.require_limit,
        generation: policy.generation,
    })
}

/// Id and name of what is meant.
pub(super) fn subject(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    of: &PolicyUseBody,
) -> Result<(Option<Uuid>, String), Failure> {
    let which = of.subject.as_deref().unwrap_or_default().trim();
    let at = |failure: Failure| failure.at("/subject");
    let subject = &caller.subject;
    Ok(match of.level {
        PolicyLevel::Site if which.is_empty() => (None, String::new()),
        PolicyLevel::Site => return Err(refusals::policy_subject_unwanted().at("/subject").into()),
        PolicyLevel::Domain => {
            let domain = find_domain(view, subject, which).map_err(at)?;
            (Some(domain.id.0), domain.name.to_string())
        }
        PolicyLevel::Project | PolicyLevel::Member => {
            let permission = Permission::ProjectsWrite;
            let project = find_project(view, subject, permission, which).map_err(at)?;
            (Some(project.id.0), project.name.to_string())
        }
        PolicyLevel::User => {
            let user = find_user(view, subject, Permission::UsersWrite, which).map_err(at)?;
            let UserId(id) = user.id;
            (Some(id), user.name.to_string())
        }
    })
}

pub(super) fn place(level: PolicyLevel, whose: &str) -> String {
    match level {
        PolicyLevel::Site => "site".to_owned(),
        PolicyLevel::Member => format!("members of {whose}"),
        level => format!("{} {whose}", level.word()),
    }
}

fn note(
    rows: &Rows<'_>,
    actor: &str,
    policy: &PolicyRecord,
    code: &str,
    before: &str,
    after: &str,
) -> Result<(), Failure> {
    rows.note(NewEvent {
        actor,
        topic: "system",
        object: &policy.name,
        scope: Scope::SITE,
        code,
        before,
        after,
    })
}

#[cfg(test)]
mod tests;
