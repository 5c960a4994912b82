//! Rosters: a list of accounts and memberships is planned row by row, taken in as one commit, and undone as one while
//! nobody of it has begun. Nobody takes in more than they could do one by one.

mod plan;
mod read;
#[cfg(test)]
mod tests;

use api::rosters::{AppliedRoster, RosterPlan, RosterSlip, RosterView};
use api::secret::SecretText;
use rules::grants::HeldGrant;
use rules::names::{RosterId, UserId};
use rules::permissions::{Permission, Subject};
use rules::refusals;
use rules::tenancy::Scope;
use rules::users::{Role, User};

use super::somewhere;
use crate::access::{self, Caller};
use crate::catalog::events::NewEvent;
use crate::catalog::rosters::{RosterChange, RosterRecord};
use crate::catalog::{Lane, Rows};
use crate::{Failure, Server};
pub use plan::last_instant;
use plan::{NewAccount, PlannedAct, PlannedRow};

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
    let now = server.clock().now();
    server
        .catalog()
        .read("plan a roster", move |view| {
            let planned = plan::plan(view, &subject, &lines, project.as_deref(), now)?;
            Ok(plan::shown(planned))
        })
        .await
}

/// Takes a roster in as it was planned: all of it in one commit, or none.
///
/// Errors: as `plan`; `roster.faulty` while a row has a fault; `roster.stale` where `digest` is not the plan's of now.
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
    let now = server.clock().now();
    let read = (lines.clone(), project.clone(), subject.clone());
    let planned = server
        .catalog()
        .read("plan a roster", move |view| {
            let (lines, project, subject) = read;
            plan::plan(view, &subject, &lines, project.as_deref(), now)
        })
        .await?;
    sound(&planned, digest)?;
    let passwords = drawn(server, &planned).await?;
    let (digest, caller) = (digest.to_owned(), caller.clone());
    server
        .catalog()
        .write(Lane::Requests, "take a roster in", move |rows| {
            let planned = plan::plan(rows, &subject, &lines, project.as_deref(), now)?;
            sound(&planned, &digest)?;
            taken(rows, &caller, planned, passwords)
        })
        .await
}

/// A password, and its hash.
type DrawnPassword = (SecretText, String);

fn sound(planned: &[PlannedRow], digest: &str) -> Result<(), Failure> {
    let faulty = planned.iter().filter(|row| row.act.is_none()).count();
    if faulty > 0 {
        return Err(refusals::roster_faulty(faulty).into());
    }
    match plan::digest(planned) == digest {
        true => Ok(()),
        false => Err(refusals::roster_stale().into()),
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
    for PlannedRow { act, .. } in planned {
        match act {
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
            }
            Some(PlannedAct::Join { user, member }) => {
                rows.put_grant(user.id, &member)?;
                note(
                    rows,
                    caller,
                    &user,
                    "user.joined",
                    "",
                    member.grant.role.word(),
                )?;
                applied.joins += 1;
                let user = user.id;
                changes.push(RosterChange::Joined { user, member });
            }
            Some(PlannedAct::Change {
                user,
                full_name,
                email,
                member,
            }) => {
                let changed = User {
                    full_name,
                    email,
                    ..user.clone()
                };
                let change = put(rows, &user, &changed, member)?;
                note(rows, caller, &user, "user.changed", "", "")?;
                applied.changes += 1;
                changes.push(change);
            }
            Some(PlannedAct::Nothing) | None => applied.unchanged += 1,
        }
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
        domain: account.project.domain,
        grants: vec![member],
        ..access::new_user(account.name.clone(), Role::User, rows.now)
    };
    rows.insert_user(&user, hash)?;
    note(
        rows,
        caller,
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
    before: &User,
    after: &User,
    member: Option<HeldGrant>,
) -> Result<RosterChange, Failure> {
    if !rows.put_user(after, before.generation)? {
        return Err(refusals::roster_stale().into());
    }
    let mut members = None;
    if let Some(member) = member {
        let here = |held: &&HeldGrant| held.grant.scope == member.grant.scope;
        members = before.grants.iter().find(here).map(|held| [*held, member]);
        rows.put_grant(before.id, &member)?;
    }
    let text = |user: &User| user.email.as_ref().map(ToString::to_string);
    Ok(RosterChange::Changed {
        user: before.id,
        full_name: [before.full_name.clone(), after.full_name.clone()],
        email: [text(before), text(after)],
        member: members,
    })
}

/// Rosters that the caller took in, for administrators of the site all of them; newest first, at most 50.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<RosterView>, Failure> {
    somewhere(caller, Permission::ProjectsWrite)?;
    let owner = own_only(&caller.subject);
    server
        .catalog()
        .read("list rosters", move |view| {
            let rows = view.rosters(owner, MAX_LISTED)?;
            Ok(rows.into_iter().map(show).collect())
        })
        .await
}

/// Takes a roster back: what it made is gone, what it changed is as before. Only while nobody of it has signed in,
/// launched, or was changed since.
///
/// Errors: `roster.not-found`, `roster.undone`, `roster.begun` with the names of those who stand in the way.
pub async fn undo(server: &Server, caller: &Caller, id: &str) -> Result<RosterView, Failure> {
    somewhere(caller, Permission::ProjectsWrite)?;
    let owner = own_only(&caller.subject);
    let (id, caller) = (id.to_owned(), caller.clone());
    server
        .catalog()
        .write(Lane::Requests, "undo a roster", move |rows| {
            let found = match id.parse::<RosterId>() {
                Ok(id) => rows.roster(id)?,
                Err(_) => None,
            };
            let roster = found
                .filter(|roster| owner.is_none_or(|owner| owner == roster.owner))
                .ok_or_else(refusals::roster_not_found)?;
            if roster.undone_at.is_some() {
                return Err(refusals::roster_undone().into());
            }
            let begun = in_the_way(rows, &roster.changes)?;
            if !begun.is_empty() {
                let named: Vec<&str> = begun.iter().take(MAX_NAMED).map(String::as_str).collect();
                return Err(refusals::roster_begun(begun.len(), named.join(", ")).into());
            }
            for change in &roster.changes {
                take_back(rows, &caller, change)?;
            }
            rows.mark_roster_undone(roster.id)?;
            Ok(show(RosterRecord {
                undone_at: Some(rows.now),
                ..roster
            }))
        })
        .await
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
                user.must_change_password && !rows.has_begun(*id)?
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
                user.full_name == full_name[1]
                    && address == email[1]
                    && member.is_none_or(|[_, after]| user.grants.contains(&after))
            }
        };
        if !same {
            names.push(user.name.to_string());
        }
    }
    Ok(names)
}

fn launched(rows: &Rows<'_>, user: &User, member: &HeldGrant) -> Result<bool, Failure> {
    let rules::grants::GrantScope::Project(project) = member.grant.scope else {
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
            note(rows, caller, &user, "user.removed", "", "")?;
            rows.erase_user(*id)
        }
        RosterChange::Joined { user: id, member } => {
            note(
                rows,
                caller,
                &user,
                "user.left",
                member.grant.role.word(),
                "",
            )?;
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
                email: email[0]
                    .as_deref()
                    .map(rules::names::EmailAddress::parse)
                    .transpose()?,
                ..user.clone()
            };
            rows.put_user(&before, user.generation)?;
            if let Some([held, _]) = member {
                rows.put_grant(user.id, held)?;
            }
            note(rows, caller, &user, "user.changed", "", "")
        }
    }
}

fn show(roster: RosterRecord) -> RosterView {
    let count = |one: fn(&RosterChange) -> bool| {
        u32::try_from(roster.changes.iter().filter(|change| one(change)).count())
            .unwrap_or(u32::MAX)
    };
    RosterView {
        id: roster.id.0,
        creates: count(|change| matches!(change, RosterChange::Created { .. })),
        joins: count(|change| matches!(change, RosterChange::Joined { .. })),
        changes: count(|change| matches!(change, RosterChange::Changed { .. })),
        actor: roster.actor,
        applied_at: roster.applied_at,
        undone_at: roster.undone_at,
    }
}

fn note(
    rows: &Rows<'_>,
    caller: &Caller,
    user: &User,
    code: &str,
    before: &str,
    after: &str,
) -> Result<(), Failure> {
    rows.note(NewEvent {
        actor: caller.name.as_str(),
        topic: "users",
        object: &user.id.to_string(),
        scope: Scope::domain(user.domain),
        code,
        before,
        after,
    })
}
