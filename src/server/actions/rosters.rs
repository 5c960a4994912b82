//! Rosters: a list of accounts and memberships is planned row by row, taken in as one commit, and undone as one while
//! none of its users has signed in. A caller takes in no more than they could do one by one.

mod plan;
mod read;
#[cfg(test)]
mod tests;

use api::rosters::{AppliedRoster, RosterPlan, RosterSlip, RosterSuspension, RosterView};
use api::secret::SecretText;
use rules::grants::{GrantScope, HeldGrant};
use rules::names::{EmailAddress, RosterId, UserId};
use rules::permissions::{Permission, Subject, may};
use rules::quota::PolicyLevel;
use rules::refusals;
use rules::tenancy::{Project, Scope};
use rules::users::{Role, User};

use super::accounts::{find, keep_an_administrator};
use super::users::{Suspension, called, put_suspension};
use super::{four_eyes, policies, somewhere};
use crate::access::password::PasswordRules;
use crate::access::tokens::refuse_bound;
use crate::access::{self, Caller, Via};
use crate::catalog::events::NewEvent;
use crate::catalog::rosters::{RosterChange, RosterRecord};
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::{Failure, Server};
pub use plan::last_instant;
use plan::{AccountNames, NewAccount, PlannedAct, PlannedPolicy, PlannedRow, PolicyChoice};

/// Rosters that a list shows, newest first.
const MAX_LISTED: u32 = 50;
/// Names that a refusal gives. Higher: its sentence is long.
const MAX_NAMED: usize = 10;

/// What taking these bytes in would do. `project` is where rows belong that name none: by id, name or `DOMAIN/NAME`.
///
/// Errors: `roster.…` for bytes that are no roster; `role.permission-missing`. O(rows) look-ups.
pub async fn plan(
    server: &Server,
    caller: &Caller,
    bytes: &[u8],
    project: Option<&str>,
) -> Result<RosterPlan, Failure> {
    somewhere(caller, Permission::ProjectsWrite)?;
    let lines = read::read(bytes)?;
    let (subject, project) = (caller.subject.clone(), project.map(str::to_owned));
    let at = (server.clock().now(), PasswordRules::of(server));
    let key = server.catalog().founding().cursor_key;
    let zone = caller.time_zone.clone();
    server
        .catalog()
        .read("plan a roster", move |view| {
            let planned = plan::plan(view, &subject, &lines, project.as_deref(), &zone, at)?;
            Ok(plan::shown(planned, &key))
        })
        .await
}

/// Takes a roster in as it was planned: all of it in one commit, or none.
///
/// Errors: as `plan`; `roster.faulty` while a row has a fault; `roster.stale` where `digest` is not the plan's of now;
/// `network.bound` where a row makes an account or gives one another address.
/// Hashes one password for each new account, some 40 ms each on two processors.
pub async fn apply(
    server: &Server,
    caller: &Caller,
    bytes: &[u8],
    project: Option<&str>,
    digest: &str,
) -> Result<AppliedRoster, Failure> {
    somewhere(caller, Permission::ProjectsWrite)?;
    let lines = read::read(bytes)?;
    let (subject, project) = (caller.subject.clone(), project.map(str::to_owned));
    let at = (server.clock().now(), PasswordRules::of(server));
    let read = (lines.clone(), project.clone(), subject.clone());
    let zone = caller.time_zone.clone();
    let planned = server
        .catalog()
        .read("plan a roster", move |view| {
            let (lines, project, subject) = read;
            plan::plan(view, &subject, &lines, project.as_deref(), &zone, at)
        })
        .await?;
    let key = server.catalog().founding().cursor_key;
    sound(&planned, digest, &key)?;
    let passwords = drawn(server, &planned).await?;
    let (digest, caller) = (digest.to_owned(), caller.clone());
    server
        .catalog()
        .write(Lane::Requests, "take a roster in", move |rows| {
            still_allowed(rows, &caller)?;
            let planned = plan::plan(
                rows,
                &subject,
                &lines,
                project.as_deref(),
                &caller.time_zone,
                at,
            )?;
            sound(&planned, &digest, &key)?;
            if planned.iter().any(opens_account) {
                refuse_bound(rows, &caller)?;
            }
            taken(rows, &caller, planned, passwords)
        })
        .await
}

/// A password, and its hash.
type DrawnPassword = (SecretText, String);

/// Hashing takes a while: meanwhile the caller may have been suspended, or a role of theirs taken away.
fn still_allowed(rows: &Rows<'_>, caller: &Caller) -> Result<(), Failure> {
    if caller.via == Via::LocalRoot {
        return Ok(());
    }
    let user = rows.user(caller.subject.user)?;
    let same = user
        .is_some_and(|user| !user.suspended && !caller.subject.exceeds(&user.grants_at(rows.now)));
    match same {
        true => Ok(()),
        false => Err(refusals::token_changed().into()),
    }
}

fn sound(planned: &[PlannedRow], digest: &str, key: &[u8]) -> Result<(), Failure> {
    let faulty = planned.iter().filter(|row| row.act.is_none()).count();
    if faulty > 0 {
        return Err(refusals::roster_faulty(faulty).into());
    }
    match plan::digest(planned, key) == digest {
        true => Ok(()),
        false => Err(refusals::roster_stale().into()),
    }
}

/// Whether a row makes an account, or gives one an address that may open it.
fn opens_account(row: &PlannedRow) -> bool {
    let other_address = |user: &User, names: &AccountNames| names.1 != user.email;
    match &row.act {
        Some(PlannedAct::Create { .. }) => true,
        Some(PlannedAct::Join { user, renamed, .. }) => renamed
            .as_ref()
            .is_some_and(|names| other_address(user, names)),
        Some(PlannedAct::Change { user, renamed, .. }) => other_address(user, renamed),
        Some(PlannedAct::Nothing) | None => false,
    }
}

/// One for each new account, in the order of the rows.
async fn drawn(server: &Server, planned: &[PlannedRow]) -> Result<Vec<DrawnPassword>, Failure> {
    let wanted: Vec<SecretText> = planned
        .iter()
        .filter_map(|row| match &row.act {
            Some(PlannedAct::Create { account, .. }) => {
                Some(account.password.clone().unwrap_or_else(new_password))
            }
            _ => None,
        })
        .collect();
    let hashed = |password: SecretText| async {
        let hash = server.hasher().hash(&password).await?;
        Ok::<DrawnPassword, Failure>((password, hash))
    };
    let mut wanted = wanted.into_iter();
    let mut drawn = Vec::new();
    // Two at a time: as many as a small machine has processors for.
    while let Some(first) = wanted.next() {
        match wanted.next() {
            Some(second) => {
                let (first, second) = tokio::try_join!(hashed(first), hashed(second))?;
                drawn.extend([first, second]);
            }
            None => drawn.push(hashed(first).await?),
        }
    }
    Ok(drawn)
}

/// Letters of a drawn password: none that are mistaken for another on paper.
const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

/// Twelve letters of thirty-two, in three groups: sixty bits.
fn new_password() -> SecretText {
    let drawn: [u8; 12] = base::observe::random();
    let mut text = String::with_capacity(14);
    for (place, byte) in drawn.into_iter().enumerate() {
        if place > 0 && place % 4 == 0 {
            text.push('-');
        }
        text.push(char::from(LETTERS[usize::from(byte) % LETTERS.len()]));
    }
    SecretText::from(text)
}

fn taken(
    rows: &Rows<'_>,
    caller: &Caller,
    planned: Vec<PlannedRow>,
    passwords: Vec<DrawnPassword>,
) -> Result<AppliedRoster, Failure> {
    let id = RosterId::make(rows.now, base::observe::random());
    let mut applied = AppliedRoster {
        id: id.0,
        creates: 0,
        joins: 0,
        changes: 0,
        unchanged: 0,
        slips: Vec::new(),
    };
    let mut changes = Vec::new();
    let mut passwords = passwords.into_iter();
    let mut is_attached = false;
    for PlannedRow { act, policy, .. } in planned {
        let owner = match act {
            Some(PlannedAct::Create { account, member }) => {
                let Some((password, hash)) = passwords.next() else {
                    return Err(refusals::roster_stale().into());
                };
                let user = create(rows, caller, &account, member, &hash)?;
                applied.creates += 1;
                applied.slips.push(RosterSlip {
                    name: user.name.to_string(),
                    full_name: user.full_name.clone(),
                    password: password.reveal().to_owned(),
                });
                changes.push(RosterChange::Created { user: user.id });
                Some(user)
            }
            Some(PlannedAct::Join {
                user,
                renamed,
                member,
            }) => {
                if let Some(names) = renamed {
                    changes.push(put(rows, caller, &user, names, None)?);
                }
                rows.put_grant(user.id, &member)?;
                note_member(rows, caller, &user, None, &member)?;
                applied.joins += 1;
                changes.push(RosterChange::Joined {
                    user: user.id,
                    member,
                });
                Some(user)
            }
            Some(PlannedAct::Change {
                user,
                renamed,
                member,
            }) => {
                changes.push(put(rows, caller, &user, renamed, member)?);
                applied.changes += 1;
                Some(user)
            }
            Some(PlannedAct::Nothing) | None => {
                applied.unchanged += 1;
                None
            }
        };
        if let (Some(user), Some(policy)) = (owner, policy) {
            changes.push(attach(rows, caller, &user, policy)?);
            is_attached = true;
        }
    }
    if is_attached {
        policies::narrow_networks(rows, caller.name.as_str())?;
    }
    if changes.is_empty() {
        return Ok(applied);
    }
    rows.insert_roster(&RosterRecord {
        id,
        actor: caller.name.to_string(),
        owner: caller.subject.user,
        applied_at: rows.now,
        undone_at: None,
        changes,
    })?;
    Ok(applied)
}

fn create(
    rows: &Rows<'_>,
    caller: &Caller,
    account: &NewAccount,
    member: HeldGrant,
    hash: &str,
) -> Result<User, Failure> {
    let user = User {
        full_name: account.full_name.clone(),
        email: account.email.clone(),
        must_change_password: true,
        // Until they choose another, that of the importing user: times of the roster are read in it too.
        time_zone: caller.time_zone.clone(),
        domain: account.project.domain,
        grants: vec![member],
        ..access::new_user(account.name.clone(), Role::User, rows.now)
    };
    rows.insert_user(&user, hash)?;
    rows.note_user(
        caller.name.as_str(),
        &user,
        "user.added",
        "",
        member.grant.role.word(),
    )?;
    Ok(user)
}

/// Writes what changes about a member, and gives what it was before.
fn put(
    rows: &Rows<'_>,
    caller: &Caller,
    before: &User,
    (full_name, email): AccountNames,
    member: Option<HeldGrant>,
) -> Result<RosterChange, Failure> {
    let after = User {
        full_name,
        email,
        ..before.clone()
    };
    if !rows.put_user(&after, before.generation)? {
        return Err(refusals::roster_stale().into());
    }
    if after != *before {
        let (then, now) = (called(before), called(&after));
        rows.note_user(caller.name.as_str(), before, "user.changed", &then, &now)?;
    }
    let mut members = None;
    if let Some(member) = member {
        let here = |held: &&HeldGrant| held.grant.scope == member.grant.scope;
        members = before.grants.iter().find(here).map(|held| [*held, member]);
        rows.put_grant(before.id, &member)?;
        note_member(rows, caller, before, members.map(|[held, _]| held), &member)?;
    }
    let text = |user: &User| user.email.as_ref().map(ToString::to_string);
    Ok(RosterChange::Changed {
        user: before.id,
        full_name: [before.full_name.clone(), after.full_name.clone()],
        email: [text(before), text(&after)],
        member: members,
    })
}

/// Attaches a policy to an account; makes it first where no row before did.
fn attach(
    rows: &Rows<'_>,
    caller: &Caller,
    user: &User,
    PlannedPolicy { choice, replaces }: PlannedPolicy,
) -> Result<RosterChange, Failure> {
    let actor = caller.name.as_str();
    let (found, made) = match choice {
        PolicyChoice::Known(id) => (rows.policy_called(&id.to_string())?, false),
        PolicyChoice::New { name, gpu } => match rows.policy_called(&name)? {
            Some(made_before) => (Some(made_before), false),
            None => (Some(policies::make_for_gpu(rows, actor, name, gpu)?), true),
        },
    };
    let policy = found.ok_or_else(refusals::roster_stale)?;
    policies::put_on_user(rows, actor, Some(policy.id), replaces, user)?;
    Ok(RosterChange::Attached {
        user: user.id,
        before: replaces,
        after: policy.id,
        made,
    })
}

/// Notes in a project whom a roster made what.
fn note_member(
    rows: &Rows<'_>,
    caller: &Caller,
    user: &User,
    before: Option<HeldGrant>,
    member: &HeldGrant,
) -> Result<(), Failure> {
    let before = before.map_or("", |held| held.grant.role.word());
    let after = format!("{} {}", user.name, member.grant.role.word());
    note_project(rows, caller, member, "project.member-set", before, &after)
}

fn note_project(
    rows: &Rows<'_>,
    caller: &Caller,
    member: &HeldGrant,
    code: &str,
    before: &str,
    after: &str,
) -> Result<(), Failure> {
    let Some(project) = project_of(rows, member)? else {
        return Ok(());
    };
    rows.note(NewEvent {
        actor: caller.name.as_str(),
        topic: "projects",
        object: &project.id.to_string(),
        scope: project.scope(),
        code,
        before,
        after,
    })
}

fn project_of(rows: &Rows<'_>, member: &HeldGrant) -> Result<Option<Project>, Failure> {
    match member.grant.scope {
        GrantScope::Project(id) => rows.project(id),
        GrantScope::Site | GrantScope::Domain(_) => Ok(None),
    }
}

/// Rosters that the caller took in, for administrators of the site all of them; newest first, at most 50. Costs a look-up of
/// each account that they made.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<RosterView>, Failure> {
    somewhere(caller, Permission::ProjectsWrite)?;
    let owner = own_only(&caller.subject);
    server
        .catalog()
        .read("list rosters", move |view| {
            let rows = view.rosters(owner, MAX_LISTED)?;
            rows.into_iter().map(|roster| show(view, roster)).collect()
        })
        .await
}

/// Takes a roster back: what it made is gone, what it changed is as before. Only while nobody of it has signed in,
/// launched, or was changed since.
///
/// Errors: `roster.not-found`, `roster.undone`, `roster.begun` with the names of those who stand in the way; what
/// refuses one of the changes by itself, where the caller has fewer rights now.
pub async fn undo(server: &Server, caller: &Caller, id: &str) -> Result<RosterView, Failure> {
    somewhere(caller, Permission::ProjectsWrite)?;
    let owner = own_only(&caller.subject);
    let (id, caller) = (id.to_owned(), caller.clone());
    server
        .catalog()
        .write(Lane::Requests, "undo a roster", move |rows| {
            let roster = known(rows, &id, owner)?;
            let begun = in_the_way(rows, &roster.changes)?;
            if !begun.is_empty() {
                let named: Vec<&str> = begun.iter().take(MAX_NAMED).map(String::as_str).collect();
                return Err(refusals::roster_begun(begun.len(), named.join(", ")).into());
            }
            for change in &roster.changes {
                may_take_back(rows, &caller.subject, change)?;
            }
            for change in roster.changes.iter().rev() {
                take_back(rows, &caller, change)?;
            }
            let is_attached = |one: &RosterChange| matches!(one, RosterChange::Attached { .. });
            if roster.changes.iter().any(is_attached) {
                policies::narrow_networks(rows, caller.name.as_str())?;
            }
            rows.mark_roster_undone(roster.id)?;
            let undone = RosterRecord {
                undone_at: Some(rows.now),
                ..roster
            };
            show(rows, undone)
        })
        .await
}

/// Suspends the users whose accounts a roster made, or admits them again: all of them in one commit, or none. Those who are gone
/// stay so. It is what is left where a roster cannot be undone any more, and the end of a class.
///
/// Errors: `roster.not-found`, `roster.undone`; `user.outranked` for one who has wider rights by now than the caller,
/// `user.self`, `user.last-administrator`; `token.scope-missing` for a token that stops no sessions. O(accounts × live sessions).
pub async fn suspend(
    server: &Server,
    caller: &Caller,
    id: &str,
    asked: Suspension,
) -> Result<RosterSuspension, Failure> {
    somewhere(caller, Permission::UsersWrite)?;
    if asked == Suspension::SessionsStop {
        caller.subject.token_allows(Permission::SessionsWrite)?;
    }
    let owner = own_only(&caller.subject);
    let (id, caller) = (id.to_owned(), caller.clone());
    server
        .catalog()
        .write(Lane::Requests, "suspend users of a roster", move |rows| {
            let roster = known(rows, &id, owner)?;
            let live = match asked {
                Suspension::SessionsStop => rows.live_sessions()?.into_vec(),
                Suspension::SessionsGoOn | Suspension::Lifted => Vec::new(),
            };
            let by = (caller.subject.user, &caller.name);
            let mut users = 0;
            for change in &roster.changes {
                let RosterChange::Created { user } = change else {
                    continue;
                };
                if rows.user(*user)?.is_none() {
                    continue;
                }
                let which = user.to_string();
                let user = find(rows, &caller.subject, Permission::UsersWrite, &which)?;
                users += u32::from(put_suspension(rows, by, &user, asked, &live)?);
            }
            Ok(RosterSuspension { users })
        })
        .await
}

/// A roster that was not undone, among all or those of one user.
fn known(rows: &Rows<'_>, id: &str, owner: Option<UserId>) -> Result<RosterRecord, Failure> {
    let found = match id.parse::<RosterId>() {
        Ok(id) => rows.roster(id)?,
        Err(_) => None,
    };
    let roster = found
        .filter(|roster| owner.is_none_or(|owner| owner == roster.owner))
        .ok_or_else(refusals::roster_not_found)?;
    match roster.undone_at {
        None => Ok(roster),
        Some(_) => Err(refusals::roster_undone().into()),
    }
}

/// Asks for each change what undoing it by hand would ask.
fn may_take_back(rows: &Rows<'_>, subject: &Subject, change: &RosterChange) -> Result<(), Failure> {
    let Some(user) = rows.user(change.user())? else {
        return Ok(());
    };
    let id = user.id.to_string();
    let of_account = || find(rows, subject, Permission::UsersWrite, &id);
    let of_project = |member: &HeldGrant| match project_of(rows, member)? {
        Some(project) => {
            may(subject, Permission::ProjectsWrite, &project.scope()).map_err(Failure::from)
        }
        None => Ok(()),
    };
    match change {
        RosterChange::Created { .. } => {
            of_account()?;
            keep_an_administrator(rows, &user)
        }
        RosterChange::Joined { member, .. } => of_project(member),
        RosterChange::Changed {
            full_name,
            email,
            member,
            ..
        } => {
            if full_name[0] != full_name[1] || email[0] != email[1] {
                of_account()?;
            }
            if email[0] != email[1] && four_eyes::is_kept_apart(rows, subject, &user)? {
                return Err(refusals::approval_account().into());
            }
            member.map_or(Ok(()), |[held, _]| of_project(&held))
        }
        RosterChange::Attached { .. } => {
            may(subject, Permission::SystemWrite, &Scope::SITE)?;
            four_eyes::refuse_roster(rows, subject)
        }
    }
}

/// None for those who see the rosters of everybody.
fn own_only(subject: &Subject) -> Option<UserId> {
    (!subject.is_site_administrator()).then_some(subject.user)
}

/// Names of the users who are not any more what the roster made them.
fn in_the_way(rows: &Rows<'_>, changes: &[RosterChange]) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    for change in changes {
        let Some(user) = rows.user(change.user())? else {
            continue;
        };
        let same = match change {
            RosterChange::Created { user: id } => {
                let untouched = user.generation == 1 && user.grants.len() == 1;
                user.must_change_password && untouched && !rows.has_begun(*id)?
            }
            RosterChange::Joined { member, .. } => {
                user.grants.contains(member) && !launched(rows, &user, member)?
            }
            RosterChange::Changed {
                full_name,
                email,
                member,
                ..
            } => {
                let address = user.email.as_ref().map(ToString::to_string);
                // Another account may have the old address by now.
                let free = match email[0].as_deref().filter(|_| email[0] != email[1]) {
                    Some(text) => rows.user_by_email(&EmailAddress::parse(text)?)?.is_none(),
                    None => true,
                };
                free && user.full_name == full_name[1]
                    && address == email[1]
                    && member.is_none_or(|[_, after]| user.grants.contains(&after))
            }
            RosterChange::Attached {
                user: id, after, ..
            } => rows.policy_at(PolicyLevel::User, Some(id.0))? == Some(*after),
        };
        if !same {
            names.push(user.name.to_string());
        }
    }
    Ok(names)
}

fn launched(rows: &Rows<'_>, user: &User, member: &HeldGrant) -> Result<bool, Failure> {
    let GrantScope::Project(project) = member.grant.scope else {
        return Ok(false);
    };
    Ok(rows.live_in_project(project, Some(user.id))?.0 > 0)
}

fn take_back(rows: &Rows<'_>, caller: &Caller, change: &RosterChange) -> Result<(), Failure> {
    let Some(user) = rows.user(change.user())? else {
        return Ok(());
    };
    match change {
        RosterChange::Created { user: id } => {
            // The row goes, so the journal keeps the name.
            rows.note_user(
                caller.name.as_str(),
                &user,
                "user.removed",
                user.name.as_str(),
                "",
            )?;
            rows.erase_user(*id)
        }
        RosterChange::Joined { user: id, member } => {
            let (role, name) = (member.grant.role.word(), user.name.as_str());
            note_project(rows, caller, member, "project.member-removed", role, name)?;
            rows.forget_grant(*id, &member.grant).map(drop)
        }
        RosterChange::Changed {
            full_name,
            email,
            member,
            ..
        } => {
            let before = User {
                full_name: full_name[0].clone(),
                email: email[0].as_deref().map(EmailAddress::parse).transpose()?,
                ..user.clone()
            };
            if !rows.put_user(&before, user.generation)? {
                return Err(refusals::roster_stale().into());
            }
            if before != user {
                let (then, now) = (called(&user), called(&before));
                rows.note_user(caller.name.as_str(), &user, "user.changed", &then, &now)?;
            }
            if let Some([held, member]) = member {
                rows.put_grant(user.id, held)?;
                note_member(rows, caller, &user, Some(*member), held)?;
            }
            Ok(())
        }
        RosterChange::Attached {
            before,
            after,
            made,
            ..
        } => {
            let actor = caller.name.as_str();
            // One that was removed since comes not back.
            let before = match before {
                Some(id) => rows.policy_called(&id.to_string())?.map(|one| one.id),
                None => None,
            };
            policies::put_on_user(rows, actor, before, Some(*after), &user)?;
            match made {
                true => policies::forget_unused(rows, actor, *after),
                false => Ok(()),
            }
        }
    }
}

fn show(view: &ReadTransaction<'_>, roster: RosterRecord) -> Result<RosterView, Failure> {
    let (mut active, mut suspended) = (0, 0);
    for change in &roster.changes {
        let RosterChange::Created { user } = change else {
            continue;
        };
        match view.is_suspended(*user)? {
            Some(true) => suspended += 1,
            Some(false) => active += 1,
            None => {}
        }
    }
    let count = |one: fn(&RosterChange) -> bool| {
        u32::try_from(roster.changes.iter().filter(|change| one(change)).count())
            .unwrap_or(u32::MAX)
    };
    Ok(RosterView {
        id: roster.id.0,
        creates: count(|change| matches!(change, RosterChange::Created { .. })),
        joins: count(|change| matches!(change, RosterChange::Joined { .. })),
        changes: count(|change| matches!(change, RosterChange::Changed { .. })),
        actor: roster.actor,
        applied_at: roster.applied_at,
        undone_at: roster.undone_at,
        active,
        suspended,
    })
}
