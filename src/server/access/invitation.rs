//! Invitations as proofs: the holder of a code may make an account in its project. An invitation holds only
//! while its maker may still choose members of the project.

use api::invitations::OfferView;
use api::secret::SecretText;
use rules::grants::{Grant, GrantScope, HeldGrant};
use rules::names::UserName;
use rules::permissions::{Permission, Subject, may};
use rules::refusals;
use rules::tenancy::{Project, Scope, TenantState};
use rules::users::{Role, User, full_name};

use super::attempts::Attempt;
use super::password::{self, PasswordRules};
use super::secret::{draw, hash};
use super::{NewSignIn, SignInFrom, admit, new_user, root_subject};
use crate::catalog::events::NewEvent;
use crate::catalog::invitations::InvitationRecord;
use crate::catalog::users::ROOT;
use crate::catalog::{ReadTransaction, Rows};
use crate::{Failure, Server};

/// Characters of a code: 32 bytes.
const CODE_LENGTH: usize = 43;

/// A new code, and what is kept of it.
pub(crate) fn new_code() -> (SecretText, [u8; 32]) {
    let code = draw("");
    let kept = hash(&code);
    (code, kept)
}

/// What a new account is made of.
pub struct NewMember {
    pub name: String,
    pub full_name: String,
    pub password: SecretText,
}

/// The invitation of this code and its project, while it holds.
///
/// Errors: `invitation.spent` for a code that is unknown, used up, revoked or over, and where the project is archived
/// or its maker may not choose members any more.
pub(crate) fn holding(
    server: &Server,
    view: &ReadTransaction<'_>,
    code: &str,
) -> Result<(InvitationRecord, Project), Failure> {
    let spent = || refusals::invitation_spent().at("/code");
    // Anything of another length was never ours.
    if code.len() != CODE_LENGTH {
        return Err(spent().into());
    }
    let now = server.clock().now();
    let kept = hash(&SecretText::from(code));
    let invitation = view.invitation_by_hash(&kept, now)?.ok_or_else(spent)?;
    let project = view.project(invitation.project)?;
    let project = project
        .filter(|project| project.state == TenantState::Active)
        .ok_or_else(spent)?;
    let maker = match invitation.owner {
        ROOT => root_subject(),
        owner => {
            let user = view.user(owner)?.filter(|user| !user.suspended);
            let user = user.ok_or_else(spent)?;
            Subject {
                user: user.id,
                grants: user.grants_at(now),
                domain: user.domain,
                scopes: None,
            }
        }
    };
    may(&maker, Permission::ProjectsWrite, &project.scope()).map_err(|_| spent())?;
    Ok((invitation, project))
}

/// What the holder of a code is offered. Errors: `invitation.spent`.
pub fn offer(server: &Server, code: &str) -> Result<OfferView, Failure> {
    server.catalog().read_now("look at an invitation", |view| {
        let (invitation, project) = holding(server, view, code)?;
        let domain = view.domain(project.domain)?;
        Ok(OfferView {
            domain: domain.map_or_else(String::new, |domain| domain.name.to_string()),
            project: match project.title.is_empty() {
                true => project.name.to_string(),
                false => project.title.clone(),
            },
            role: invitation.role,
            email: invitation.email.map(|email| email.to_string()),
            invited_by: invitation.actor,
            expires_at: invitation.expires_at,
        })
    })
}

/// Makes an account by invitation, a member of its project, and signs it in. The invitation is used once more.
///
/// Errors: `invitation.spent`; `sign-in.locked` for names that are taken, tried too fast from one address; names,
/// addresses and passwords as for everybody.
pub async fn join(
    server: &Server,
    code: &str,
    new: NewMember,
    from: impl Into<SignInFrom<'_>>,
) -> Result<NewSignIn, Failure> {
    let from = from.into();
    let name = UserName::of_new_user(new.name.trim())?;
    let full_name = full_name(&new.full_name)?;
    let ((invitation, project), taken) =
        server.catalog().read_now("look at an invitation", |view| {
            let found = holding(server, view, code)?;
            Ok((found, view.user_named(name.as_str())?.is_some()))
        })?;
    if taken {
        // Names are of the whole site: a caller that tries many is slowed down.
        Attempt::of_setup(server, from.source).begin().await?;
        return Err(refusals::user_name_taken(&name).at("/name").into());
    }
    // An address that was not verified would block the account of its owner.
    let email = invitation.email.clone();
    password::check_new(
        PasswordRules::of(server),
        &new.password,
        name.as_str(),
        "/password",
    )?;
    let hashed = server.hasher().hash(&new.password).await?;
    let member = membership(&invitation);
    let user = User {
        full_name,
        email: email.clone(),
        domain: project.domain,
        grants: vec![member],
        ..new_user(name, Role::User, server.clock().now())
    };
    let (code, held) = (code.to_owned(), server.clone());
    admit(server, user, from, move |rows, user| {
        // Meanwhile it may have been revoked, or used by others.
        let (invitation, project) = holding(&held, rows, &code)?;
        if let Some(email) = &email
            && rows.user_by_email(email)?.is_some()
        {
            return Err(refusals::user_email_taken(email).at("/email").into());
        }
        rows.insert_user(user, &hashed)?;
        rows.use_invitation(invitation.id)?;
        let role = invitation.role.word();
        note_joined(rows, user, &invitation)?;
        rows.note(NewEvent {
            actor: user.name.as_str(),
            topic: "projects",
            object: &project.id.to_string(),
            scope: project.scope(),
            code: "project.member-set",
            before: "",
            after: &format!("{} {role}", user.name),
        })
    })
    .await
}

/// Notes whose invitation a user accepted.
pub(crate) fn note_joined(
    rows: &Rows<'_>,
    user: &User,
    invitation: &InvitationRecord,
) -> Result<(), Failure> {
    rows.note(NewEvent {
        actor: user.name.as_str(),
        topic: "users",
        object: &user.id.to_string(),
        scope: Scope::domain(user.domain),
        code: "user.joined",
        before: "",
        after: &invitation.actor,
    })
}

/// The membership that an invitation gives.
pub(crate) fn membership(invitation: &InvitationRecord) -> HeldGrant {
    HeldGrant {
        grant: Grant {
            role: invitation.role,
            scope: GrantScope::Project(invitation.project),
        },
        expires_at: invitation.member_until,
    }
}
