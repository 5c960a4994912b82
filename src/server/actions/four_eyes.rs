//! Acts of administrators that a second one approves, where the site says so. An act runs as always, inside its own write,
//! and is held back at the end of it: so it is checked in full, nothing of it is kept, and it is written down to wait. Knows
//! no act itself; `approvals` does them again once they are approved. Root at the socket of the machine waits for no one.

use api::policies::{NewPolicyBody, PolicyPatchBody, PolicyUseBody};
use api::users::UserPatchBody;
use rules::codes::APPROVAL_NEEDED;
use rules::grants::{Grant, GrantRole, HeldGrant};
use rules::names::{ApprovalId, UserId};
use rules::permissions::{Permission, Subject, may};
use rules::quota::PolicyLevel;
use rules::refusals;
use rules::tenancy::Scope;
use rules::units::Timestamp;
use rules::users::User;
use serde::{Deserialize, Serialize};

use super::accounts::find;
use crate::access::Caller;
use crate::catalog::approvals::{ApprovalRecord, ApprovalStep};
use crate::catalog::events::NewEvent;
use crate::catalog::users::ROOT;
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::{Failure, Server, ServerFault};

/// Hours for which an act waits. Longer: one is approved that its asker has forgotten. Shorter: over a night none is.
const WAITS_HOURS: u64 = 24;
/// Acts of one administrator that wait. Higher: one of a domain fills the list of those of the site. Lower: a busy day is refused.
const MAX_WAITING: u64 = 20;

/// An act with everything that it needs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PendingAct {
    PolicyCreate {
        asked: NewPolicyBody,
    },
    PolicyChange {
        which: String,
        patch: PolicyPatchBody,
        if_match: Option<u64>,
        /// Where it is attached, too.
        to: Option<PolicyUseBody>,
    },
    PolicyRemove {
        which: String,
    },
    PolicyAttach {
        which: String,
        to: PolicyUseBody,
    },
    PolicyDetach {
        which: String,
        level: Option<PolicyLevel>,
        subject: Option<String>,
    },
    RoleGrant {
        who: MeantUser,
        role: GrantRole,
        domain: Option<String>,
        expires_at: Option<Timestamp>,
    },
    RoleRevoke {
        who: MeantUser,
        role: Option<GrantRole>,
        domain: Option<String>,
    },
    /// A change of an account with its role on the site.
    UserRole {
        who: MeantUser,
        patch: UserPatchBody,
        if_match: Option<u64>,
    },
    SettingChange {
        key: String,
        value: String,
    },
    SettingUndo {
        key: String,
        /// What it was before and is to be again; None for its default. By it an approval is for this one.
        value: Option<String>,
    },
    /// No act waits any more.
    FourEyesOff,
}

/// The account that an act is about. By its id: while the act waits, another one may get its name.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct MeantUser {
    /// None where none was found, which the act itself says.
    id: Option<UserId>,
    name: String,
}

impl MeantUser {
    /// Errors: none of the look-up's own.
    pub(super) fn of(server: &Server, caller: &Caller, who: &str) -> Result<Self, Failure> {
        let found = server
            .catalog()
            .read_now("look whom an act is about", |view| {
                find(view, &caller.subject, Permission::UsersWrite, who)
            });
        match found {
            Ok(user) => Ok(Self {
                id: Some(user.id),
                name: user.name.to_string(),
            }),
            Err(Failure::Refusal(_)) => Ok(Self {
                id: None,
                name: who.to_owned(),
            }),
            Err(fault) => Err(fault),
        }
    }

    /// As the act is asked for again.
    pub(super) fn which(&self) -> String {
        self.id
            .map_or_else(|| self.name.clone(), |id| id.to_string())
    }
}

impl PendingAct {
    /// What it does, in a word.
    fn word(&self) -> &'static str {
        match self {
            Self::PolicyCreate { .. } => "policy-create",
            Self::PolicyChange { .. } => "policy-change",
            Self::PolicyRemove { .. } => "policy-remove",
            Self::PolicyAttach { .. } => "policy-attach",
            Self::PolicyDetach { .. } => "policy-detach",
            Self::RoleGrant { .. } => "role-grant",
            Self::RoleRevoke { .. } => "role-revoke",
            Self::UserRole { .. } => "user-role",
            Self::SettingChange { .. } => "setting-change",
            Self::SettingUndo { .. } => "setting-undo",
            Self::FourEyesOff => "four-eyes-off",
        }
    }

    /// The name of what it changes.
    fn object(&self) -> &str {
        match self {
            Self::PolicyCreate { asked } => &asked.name,
            Self::PolicyChange { which, .. }
            | Self::PolicyRemove { which }
            | Self::PolicyAttach { which, .. }
            | Self::PolicyDetach { which, .. } => which,
            Self::RoleGrant { who, .. }
            | Self::RoleRevoke { who, .. }
            | Self::UserRole { who, .. } => &who.name,
            Self::SettingChange { key, .. } | Self::SettingUndo { key, .. } => key,
            Self::FourEyesOff => "",
        }
    }

    fn text(&self) -> Result<String, Failure> {
        let text = serde_json::to_string(self);
        text.map_err(|error| ServerFault::new("write an act down", error).into())
    }
}

/// Held at the end of the write of an act: refuses it where a second administrator has to approve it, and takes the approval
/// where one did, in the same commit.
///
/// Errors: `approval.needed`, of which `kept` makes one with an id.
pub(super) fn hold(rows: &Rows<'_>, caller: &Caller, act: &PendingAct) -> Result<(), Failure> {
    if !waits(rows, &caller.subject)? {
        return Ok(());
    }
    let (asker, text) = (caller.subject.user, act.text()?);
    match rows.approval_of(asker, &text, ApprovalStep::Running, rows.now)? {
        Some(approved) => {
            let by = approved.decided_by.as_deref();
            rows.move_approval(approved.id, ApprovalStep::Done, by)
        }
        None => Err(needed(String::new())),
    }
}

fn needed(id: String) -> Failure {
    refusals::approval_needed(WAITS_HOURS, id).into()
}

/// What came of an act that `hold` looked at: where it was held back it waits from now on.
///
/// Errors: the act's own; `approval.needed` with the id that it waits by; `approval.too-many`.
pub(super) async fn kept<T>(
    server: &Server,
    caller: &Caller,
    done: Result<T, Failure>,
    act: &PendingAct,
) -> Result<T, Failure> {
    match done {
        Err(Failure::Refusal(refusal)) if refusal.code == APPROVAL_NEEDED => {
            let id = ask(server, caller, act).await?;
            Err(needed(id.to_string()))
        }
        done => done,
    }
}

/// `hold` for an act that is no write of the catalog, before it is done.
///
/// Errors: as `kept`.
pub(super) async fn pass(
    server: &Server,
    caller: &Caller,
    act: &PendingAct,
) -> Result<(), Failure> {
    let (by, held) = (caller.clone(), act.clone());
    let passed = server
        .catalog()
        .write(Lane::Requests, "look for an approval", move |rows| {
            hold(rows, &by, &held)
        })
        .await;
    kept(server, caller, passed, act).await
}

async fn ask(server: &Server, caller: &Caller, act: &PendingAct) -> Result<ApprovalId, Failure> {
    let (caller, text) = (caller.clone(), act.text()?);
    let (word, object) = (act.word(), act.object().to_owned());
    server
        .catalog()
        .write(Lane::Requests, "let an act wait", move |rows| {
            let asker = caller.subject.user;
            let known = rows.approval_of(asker, &text, ApprovalStep::Waiting, rows.now)?;
            if let Some(known) = known {
                return Ok(known.id);
            }
            if rows.waiting_approvals(asker, rows.now)? >= MAX_WAITING {
                return Err(refusals::approval_too_many(MAX_WAITING).into());
            }
            let row = ApprovalRecord {
                id: ApprovalId::make(rows.now, base::observe::random()),
                asker,
                asker_name: caller.name.to_string(),
                act: text,
                word: word.to_owned(),
                object,
                asked_at: rows.now,
                expires_at: rows.now.plus_seconds(WAITS_HOURS * 3_600),
                step: ApprovalStep::Waiting,
                decided_by: None,
                decided_at: None,
            };
            rows.insert_approval(&row)?;
            note(rows, &caller, &row, "approval.asked")?;
            Ok(row.id)
        })
        .await
}

/// How many acts of others wait for the caller's decision, and when the newest was asked for; None where none does. Nothing is
/// read for who decides on none.
pub(super) fn waiting_for(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    now: Timestamp,
) -> Result<Option<(u64, Timestamp)>, Failure> {
    if may(&caller.subject, Permission::SystemWrite, &Scope::SITE).is_err() {
        return Ok(None);
    }
    let (count, newest) = view.approvals_waiting_for(caller.subject.user, now)?;
    Ok(newest.map(|newest| (count, newest)))
}

/// Writes down what became of an act that waits.
pub(super) fn note(
    rows: &Rows<'_>,
    caller: &Caller,
    row: &ApprovalRecord,
    code: &str,
) -> Result<(), Failure> {
    let told = format!("{} {}", row.word, row.object);
    rows.note(NewEvent {
        actor: caller.name.as_str(),
        topic: "system",
        object: told.trim_end(),
        scope: Scope::SITE,
        code,
        before: &row.asker_name,
        after: "",
    })
}

/// Whether acts of a subject wait; those of root on the machine do not.
///
/// Errors: none of its own.
pub(super) fn waits(view: &ReadTransaction<'_>, subject: &Subject) -> Result<bool, Failure> {
    Ok(subject.user != ROOT && view.four_eyes()?)
}

/// Where acts wait, whether the account is that of another administrator of the site.
pub(super) fn is_kept_apart(
    view: &ReadTransaction<'_>,
    subject: &Subject,
    user: &User,
) -> Result<bool, Failure> {
    let chief = |held: &HeldGrant| held.grant == Grant::SITE_ADMINISTRATOR;
    let is_other = user.id != subject.user && user.grants.iter().any(chief);
    Ok(is_other && waits(view, subject)?)
}

/// Where acts wait, no administrator gets into the account of another one, who could then approve for them.
///
/// Errors: `approval.account`.
pub(super) fn keep_accounts_apart(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    user: &User,
) -> Result<(), Failure> {
    match is_kept_apart(view, &caller.subject, user)? {
        true => Err(refusals::approval_account().into()),
        false => Ok(()),
    }
}

/// Where acts wait, no account is made as an administrator's: it gets the role later, by an act that waits.
///
/// Errors: `approval.account`.
pub(super) fn refuse_new_chief(view: &ReadTransaction<'_>, caller: &Caller) -> Result<(), Failure> {
    match waits(view, &caller.subject)? {
        true => Err(refusals::approval_account().into()),
        false => Ok(()),
    }
}

/// Where acts wait, no roster attaches a policy or takes one away: a second administrator approves single acts.
///
/// Errors: `approval.roster`.
pub(super) fn refuse_roster(view: &ReadTransaction<'_>, subject: &Subject) -> Result<(), Failure> {
    match waits(view, subject)? {
        true => Err(refusals::approval_roster().into()),
        false => Ok(()),
    }
}
