//! What a user may do with invitations: make and revoke them for projects whose members they choose, and accept one.

use api::invitations::{InvitationView, MadeInvitation, NewInvitationBody};
use api::sessions::Owner;
use api::tenancy::MemberView;
use rules::grants::{GrantScope, HeldGrant};
use rules::names::{EmailAddress, InvitationId};
use rules::permissions::Permission;
use rules::refusal::Refusal;
use rules::refusals;

use super::allowed;
use super::tenancy::find_project;
use crate::access::tokens::refuse_bound;
use crate::access::{self, Caller};
use crate::catalog::Lane;
use crate::catalog::invitations::InvitationRecord;
use crate::{Failure, Server};

/// Days that an invitation can be used where its maker says nothing.
const USUAL_DAYS: u64 = 7;
/// Days that it can be used at most. Higher: a link that was forgotten somewhere opens the door for longer.
const MAX_DAYS: u64 = 90;
/// Accounts that one link makes at most.
const MAX_USES: u32 = 500;
/// Invitations of a project that can be used at once.
const MAX_OPEN: usize = 200;

/// The invitations of a project that can still be used, newest first; never more than 200.
///
/// Errors: `project.not-found`, `role.permission-missing`.
pub async fn list(
    server: &Server,
    caller: &Caller,
    which: &str,
) -> Result<Vec<InvitationView>, Failure> {
    let now = server.clock().now();
    server.catalog().read_now("list invitations", |view| {
        let project = find_project(view, &caller.subject, Permission::ProjectsWrite, which)?;
        let rows = view.invitations(project.id, now)?;
        Ok(rows.into_iter().map(show).collect())
    })
}

/// Why a project with so many open invitations can have no other; None while there is room.
pub fn no_room(open: usize) -> Option<Refusal> {
    (open >= MAX_OPEN).then(|| refusals::invitation_too_many(MAX_OPEN))
}

/// Makes an invitation to a project. The link is given this once.
///
/// Errors: `project.not-found`, `project.archived`, `grant.role-invalid`, `grant.ends-in-past`, `user.email-invalid`,
/// `invitation.uses`, `invitation.end`, `invitation.too-many`, `network.bound`.
pub async fn create(
    server: &Server,
    caller: &Caller,
    which: &str,
    asked: NewInvitationBody,
) -> Result<MadeInvitation, Failure> {
    if !asked.role.is_of_project() {
        return Err(refusals::grant_role_of_project().at("/role").into());
    }
    let typed = asked.email.as_deref().map(str::trim);
    let email = typed
        .filter(|text| !text.is_empty())
        .map(EmailAddress::parse)
        .transpose()?;
    let max_uses = asked.max_uses.unwrap_or(1);
    // An address is one user's.
    let most = if email.is_some() { 1 } else { MAX_USES };
    if !(1..=most).contains(&max_uses) {
        return Err(refusals::invitation_uses(most).at("/max_uses").into());
    }
    let (code, hash) = access::new_invitation_code();
    let (which, subject) = (which.to_owned(), caller.subject.clone());
    let (owner, actor) = (caller.subject.user, caller.name.clone());
    let by = caller.clone();
    let made = server
        .catalog()
        .write(Lane::Requests, "make an invitation", move |rows| {
            let project = find_project(rows, &subject, Permission::ProjectsWrite, &which)?;
            refuse_bound(rows, &by)?;
            if project.state == rules::tenancy::TenantState::Archived {
                return Err(refusals::project_archived(&project.name).into());
            }
            super::tenancy::ends_later(rows, asked.member_until)?;
            let usual = || rows.now.plus_seconds(USUAL_DAYS * 86_400);
            let expires_at = asked.expires_at.unwrap_or_else(usual);
            // A link that outlives what it gives would make accounts of no project.
            let expires_at = asked
                .member_until
                .map_or(expires_at, |end| end.min(expires_at));
            let last = rows.now.plus_seconds(MAX_DAYS * 86_400);
            if expires_at <= rows.now || expires_at > last {
                return Err(refusals::invitation_end(MAX_DAYS).at("/expires_at").into());
            }
            let open = rows.invitations(project.id, rows.now)?.len();
            if let Some(full) = no_room(open) {
                return Err(full.into());
            }
            let invitation = InvitationRecord {
                id: InvitationId::make(rows.now, base::observe::random()),
                project: project.id,
                role: asked.role,
                email,
                max_uses,
                used: 0,
                member_until: asked.member_until,
                owner,
                actor: actor.to_string(),
                created_at: rows.now,
                expires_at,
            };
            rows.insert_invitation(&invitation, &hash)?;
            let told = told(&invitation);
            rows.note_project(actor.as_str(), &project, "project.invited", "", &told)?;
            Ok(invitation)
        })
        .await?;
    let path = format!("/join?code={}", code.reveal());
    let origins = server.settings().origins();
    Ok(MadeInvitation {
        invitation: show(made),
        links: origins
            .iter()
            .map(|origin| format!("{origin}{path}"))
            .collect(),
        code: code.reveal().to_owned(),
    })
}

/// Ends an invitation: its link is of no use any more. Members that came of it stay.
///
/// Errors: `project.not-found`, `invitation.not-found`.
pub async fn revoke(
    server: &Server,
    caller: &Caller,
    which: &str,
    id: &str,
) -> Result<(), Failure> {
    let (which, subject) = (which.to_owned(), caller.subject.clone());
    let (actor, id) = (caller.name.clone(), id.parse::<InvitationId>().ok());
    server
        .catalog()
        .write(Lane::Requests, "revoke an invitation", move |rows| {
            let project = find_project(rows, &subject, Permission::ProjectsWrite, &which)?;
            let open = rows.invitations(project.id, rows.now)?;
            let invitation = open
                .into_iter()
                .find(|one| Some(one.id) == id)
                .ok_or_else(refusals::invitation_not_found)?;
            rows.forget_invitation(invitation.id)?;
            let (actor, told) = (actor.as_str(), told(&invitation));
            rows.note_project(actor, &project, "project.invitation-revoked", &told, "")
        })
        .await
}

/// Makes the caller a member of the project of an invitation. Who is a member already keeps what they have.
///
/// Errors: `invitation.spent`, `invitation.other-address`, `member.other-domain`, `invitation.member-already`.
pub async fn accept(server: &Server, caller: &Caller, code: &str) -> Result<MemberView, Failure> {
    allowed(caller, Permission::Me)?;
    let (caller, code, held) = (caller.clone(), code.trim().to_owned(), server.clone());
    server
        .catalog()
        .write(Lane::Requests, "accept an invitation", move |rows| {
            let (invitation, project) = access::holding_invitation(&held, rows, &code)?;
            let user = rows
                .user(caller.subject.user)?
                .filter(|user| user.id != crate::catalog::users::ROOT)
                .ok_or_else(refusals::user_not_found)?;
            if user.domain != project.domain {
                return Err(refusals::member_of_another_domain(&user.name).into());
            }
            if invitation.email.is_some() && invitation.email != user.email {
                return Err(refusals::invitation_of_another_address().into());
            }
            let here = GrantScope::Project(project.id);
            let holds = |held: &HeldGrant| held.grant.scope == here && held.holds_at(rows.now);
            if user.grants.iter().any(holds) {
                return Err(refusals::invitation_member_already(&project.name).into());
            }
            let member = access::invited_membership(&invitation);
            rows.put_grant(user.id, &member)?;
            rows.use_invitation(invitation.id)?;
            let role = invitation.role.word();
            let told = format!("{} {role}", user.name);
            let actor = user.name.as_str();
            rows.note_project(actor, &project, "project.member-set", "", &told)?;
            access::note_joined(rows, &user, &invitation)?;
            Ok(MemberView {
                user: Owner {
                    id: user.id,
                    name: user.name,
                },
                role: invitation.role,
                expires_at: invitation.member_until,
            })
        })
        .await
}

/// `lead mina@lab.example`, or `member 40` for forty uses.
fn told(invitation: &InvitationRecord) -> String {
    let role = invitation.role.word();
    match &invitation.email {
        Some(email) => format!("{role} {email}"),
        None => format!("{role} {}", invitation.max_uses),
    }
}

fn show(invitation: InvitationRecord) -> InvitationView {
    InvitationView {
        id: invitation.id.0,
        role: invitation.role,
        email: invitation.email.map(|email| email.to_string()),
        max_uses: invitation.max_uses,
        used: invitation.used,
        member_until: invitation.member_until,
        actor: invitation.actor,
        created_at: invitation.created_at,
        expires_at: invitation.expires_at,
    }
}

#[cfg(test)]
mod tests;
