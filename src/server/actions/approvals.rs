//! What administrators do with acts of others that wait for them: see, approve and decline them, and say whether acts wait at
//! all. An approved act is done as its asker, with the rights that they have then.

use api::approvals::{ApprovalState, ApprovalView, FourEyesBody};
use rules::names::ApprovalId;
use rules::permissions::{Permission, may};
use rules::refusals;
use rules::tenancy::Scope;
use rules::units::Timestamp;

use super::four_eyes::{PendingAct, hold, kept, note};
use super::settings::SettingWrite;
use super::{policies, settings, tenancy, users};
use crate::access::{self, Caller};
use crate::catalog::approvals::{ApprovalRecord, ApprovalStep};
use crate::catalog::events::NewEvent;
use crate::catalog::{Lane, ReadTransaction};
use crate::{Failure, Server, ServerFault};

/// Acts that a list shows.
const MAX_LISTED: u32 = 200;
/// Longest that doing an act takes. Shorter: a second approval would do it twice. Longer: one that a crash left half-way waits
/// for longer until it can be approved again.
const DOING_SECONDS: u64 = 60;
/// Administrators without whom no act is ever approved.
const MIN_ADMINISTRATORS: u32 = 2;

/// Acts of administrators, those that wait first, then the newest; at most 200.
///
/// Errors: `role.administrator-needed`.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<ApprovalView>, Failure> {
    may(&caller.subject, Permission::SystemRead, &Scope::SITE)?;
    let now = server.clock().now();
    server.catalog().read_now("list approvals", |view| {
        let rows = view.approvals(MAX_LISTED)?;
        Ok(rows.into_iter().map(|row| show(caller, row, now)).collect())
    })
}

/// Whether acts wait. Errors: `role.administrator-needed`.
pub async fn four_eyes(server: &Server, caller: &Caller) -> Result<FourEyesBody, Failure> {
    may(&caller.subject, Permission::SystemRead, &Scope::SITE)?;
    server.catalog().read_now("look whether acts wait", |view| {
        Ok(FourEyesBody {
            on: view.four_eyes()?,
        })
    })
}

/// Says whether acts wait. That they wait no more is an act that waits itself.
///
/// Errors: `approval.alone` where no second administrator could approve; `approval.needed`, `approval.too-many`;
/// `role.administrator-needed`.
pub async fn set_four_eyes(
    server: &Server,
    caller: &Caller,
    asked: FourEyesBody,
) -> Result<FourEyesBody, Failure> {
    may(&caller.subject, Permission::SystemWrite, &Scope::SITE)?;
    let by = caller.clone();
    let set = server
        .catalog()
        .write(Lane::Requests, "say whether acts wait", move |rows| {
            let before = rows.four_eyes()?;
            if before == asked.on {
                return Ok(asked);
            }
            match asked.on {
                true if rows.administrators()? < MIN_ADMINISTRATORS => {
                    return Err(refusals::approval_alone().into());
                }
                true => {}
                false => hold(rows, &by, &PendingAct::FourEyesOff)?,
            }
            rows.put_four_eyes(asked.on)?;
            let told = |on| if on { "on" } else { "off" };
            rows.note(NewEvent {
                actor: by.name.as_str(),
                topic: "system",
                object: "four-eyes",
                scope: Scope::SITE,
                code: "approval.four-eyes-set",
                before: told(before),
                after: told(asked.on),
            })?;
            Ok(asked)
        })
        .await;
    kept(server, caller, set, &PendingAct::FourEyesOff).await
}

/// Approves an act of another administrator and does it as them.
///
/// Errors: `approval.not-found`, `approval.own`, `approval.over`, `approval.asker-gone`; those of the act, which then waits
/// on; `role.administrator-needed`.
pub async fn release(server: &Server, caller: &Caller, which: &str) -> Result<(), Failure> {
    may(&caller.subject, Permission::SystemWrite, &Scope::SITE)?;
    let (by, named) = (caller.clone(), which.to_owned());
    let (row, asker) = server
        .catalog()
        .write(Lane::Requests, "approve an act", move |rows| {
            let row = decidable(rows, &by, &named, rows.now)?;
            let asker = rows
                .user(row.asker)?
                .filter(|user| !user.is_shut_out(rows.now));
            let asker = asker.ok_or_else(|| refusals::approval_asker_gone(&row.asker_name))?;
            rows.move_approval(row.id, ApprovalStep::Running, Some(by.name.as_str()))?;
            note(rows, &by, &row, "approval.released")?;
            Ok((row, access::reader(&asker, rows.now)))
        })
        .await?;
    let act: PendingAct = serde_json::from_str(&row.act)
        .map_err(|error| ServerFault::new("read an act that waited", error))?;
    let is_setting = matches!(
        act,
        PendingAct::SettingChange { .. } | PendingAct::SettingUndo { .. }
    );
    let done = carry_out(server, &asker, act).await;
    if done.is_err() {
        server
            .catalog()
            .write(Lane::Requests, "let an act wait again", move |rows| {
                let step = rows.approval(row.id)?.map(|row| row.step);
                // What the catalog says is done is done, but for settings: their files are written after it.
                let is_undone = step == Some(ApprovalStep::Running)
                    || is_setting && step == Some(ApprovalStep::Done);
                match is_undone {
                    true => rows.move_approval(row.id, ApprovalStep::Waiting, None),
                    false => Ok(()),
                }
            })
            .await?;
    }
    done
}

/// Declines an act of another administrator; who asked may take their own back so.
///
/// Errors: `approval.not-found`, `approval.over`; `role.administrator-needed`.
pub async fn decline(server: &Server, caller: &Caller, which: &str) -> Result<(), Failure> {
    may(&caller.subject, Permission::SystemWrite, &Scope::SITE)?;
    let (by, named) = (caller.clone(), which.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "decline an act", move |rows| {
            let row = waiting(rows, &named, rows.now)?;
            if is_being_done(&row, rows.now) {
                return Err(refusals::approval_over().into());
            }
            rows.move_approval(row.id, ApprovalStep::Declined, Some(by.name.as_str()))?;
            note(rows, &by, &row, "approval.declined")
        })
        .await
}

/// The act that is meant, while it waits.
fn waiting(
    view: &ReadTransaction<'_>,
    which: &str,
    now: Timestamp,
) -> Result<ApprovalRecord, Failure> {
    let found = match which.parse::<ApprovalId>() {
        Ok(id) => view.approval(id)?,
        Err(_) => None,
    };
    let row = found.ok_or_else(refusals::approval_not_found)?;
    match state(&row, now) {
        ApprovalState::Waiting => Ok(row),
        ApprovalState::Done | ApprovalState::Declined | ApprovalState::Expired => {
            Err(refusals::approval_over().into())
        }
    }
}

/// The same, where the caller is another administrator than the one who asked.
fn decidable(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    which: &str,
    now: Timestamp,
) -> Result<ApprovalRecord, Failure> {
    let row = waiting(view, which, now)?;
    if row.asker == caller.subject.user {
        return Err(refusals::approval_own().into());
    }
    match is_being_done(&row, now) {
        true => Err(refusals::approval_over().into()),
        false => Ok(row),
    }
}

/// Whether another administrator approved an act just now, so that it is done once.
fn is_being_done(row: &ApprovalRecord, now: Timestamp) -> bool {
    let since = row.decided_at.map(|at| at.plus_seconds(DOING_SECONDS));
    row.step == ApprovalStep::Running && since.is_some_and(|end| now < end)
}

async fn carry_out(server: &Server, asker: &Caller, act: PendingAct) -> Result<(), Failure> {
    match act {
        PendingAct::PolicyCreate { asked } => {
            policies::create(server, asker, asked).await.map(drop)
        }
        PendingAct::PolicyChange {
            which,
            patch,
            if_match,
            to: None,
        } => policies::change(server, asker, &which, patch, if_match)
            .await
            .map(drop),
        PendingAct::PolicyChange {
            which,
            patch,
            if_match,
            to: Some(to),
        } => policies::change_and_attach(server, asker, &which, patch, if_match, to)
            .await
            .map(drop),
        PendingAct::PolicyRemove { which } => policies::remove(server, asker, &which).await,
        PendingAct::PolicyAttach { which, to } => {
            policies::attach(server, asker, &which, to).await.map(drop)
        }
        PendingAct::PolicyDetach {
            which,
            level,
            subject,
        } => policies::detach(server, asker, &which, level, subject)
            .await
            .map(drop),
        PendingAct::RoleGrant {
            who,
            role,
            domain,
            expires_at,
        } => tenancy::grant(
            server,
            asker,
            &who.which(),
            role,
            domain.as_deref(),
            expires_at,
        )
        .await
        .map(drop),
        PendingAct::RoleRevoke { who, role, domain } => {
            tenancy::revoke(server, asker, &who.which(), role, domain.as_deref())
                .await
                .map(drop)
        }
        PendingAct::UserRole {
            who,
            patch,
            if_match,
        } => users::patch(server, asker, &who.which(), patch, if_match)
            .await
            .map(drop),
        PendingAct::SettingChange { key, value } => {
            settings::change(server, asker, &key, &value, SettingWrite::Real)
                .await
                .map(drop)
        }
        PendingAct::SettingUndo { key, .. } => {
            settings::undo(server, asker, &key, SettingWrite::Real)
                .await
                .map(drop)
        }
        PendingAct::FourEyesOff => set_four_eyes(server, asker, FourEyesBody { on: false })
            .await
            .map(drop),
    }
}

/// How an act stands. One that was approved and not done, since the server ended meanwhile, waits for its time to end.
fn state(row: &ApprovalRecord, now: Timestamp) -> ApprovalState {
    match row.step {
        ApprovalStep::Done => ApprovalState::Done,
        ApprovalStep::Declined => ApprovalState::Declined,
        ApprovalStep::Waiting | ApprovalStep::Running if row.expires_at <= now => {
            ApprovalState::Expired
        }
        ApprovalStep::Waiting | ApprovalStep::Running => ApprovalState::Waiting,
    }
}

fn show(caller: &Caller, row: ApprovalRecord, now: Timestamp) -> ApprovalView {
    let state = state(&row, now);
    let writes = may(&caller.subject, Permission::SystemWrite, &Scope::SITE).is_ok();
    ApprovalView {
        id: row.id.0,
        act: row.word,
        object: row.object,
        detail: row.act,
        asker: row.asker_name,
        asked_at: row.asked_at,
        expires_at: row.expires_at,
        state,
        decided_by: row.decided_by,
        decided_at: row.decided_at,
        decidable: writes && state == ApprovalState::Waiting && row.asker != caller.subject.user,
    }
}

#[cfg(test)]
mod tests;
