//! Sign-in links as proofs: the holder of a code signs in once, in place of the password. The second factor is asked
//! for still. A link holds only while its maker may still change the account. It is taken in the commit that admits.

use api::secret::SecretText;
use rules::grants::Grant;
use rules::permissions::{Permission, Subject, may};
use rules::refusals;
use rules::tenancy::Scope;
use rules::units::Timestamp;
use rules::users::User;

use super::secret::{draw, hash};
use super::{SignInFrom, SignInStep, enter, from_own_network, repeated, root_subject, suspended};
use crate::catalog::events::NewEvent;
use crate::catalog::sign_in_links::SignInLinkRecord;
use crate::catalog::users::ROOT;
use crate::catalog::{ReadTransaction, Rows};
use crate::{Failure, Server};

/// Characters of a code: 32 bytes.
const CODE_LENGTH: usize = 43;

/// Whom a link signs in, and until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkedUser {
    pub name: String,
    pub expires_at: Timestamp,
}

/// A new code, and what is kept of it.
pub(crate) fn new_code() -> (SecretText, [u8; 32]) {
    let code = draw("");
    let kept = hash(&code);
    (code, kept)
}

/// What is kept of a code; None for what was never one of ours.
fn kept_of(code: &str) -> Option<[u8; 32]> {
    (code.len() == CODE_LENGTH).then(|| hash(&SecretText::from(code)))
}

/// The link of this hash and whom it signs in, while it holds.
///
/// Errors: `sign-in-link.spent` for one that is unknown, used, revoked or over, and where its maker may not change the
/// account any more.
fn holding(
    view: &ReadTransaction<'_>,
    kept: &[u8; 32],
    now: Timestamp,
) -> Result<(SignInLinkRecord, User), Failure> {
    let spent = refusals::sign_in_link_spent;
    let link = view
        .sign_in_link_by_hash(kept)?
        .filter(|link| link.expires_at > now)
        .ok_or_else(spent)?;
    let user = view
        .user(link.user)?
        .filter(|user| user.source.is_local())
        .ok_or_else(spent)?;
    let maker = match link.maker {
        ROOT => root_subject(),
        maker => {
            let maker = view.user(maker)?.filter(|maker| !maker.suspended);
            let maker = maker.ok_or_else(spent)?;
            Subject {
                user: maker.id,
                grants: maker.grants_at(now),
                domain: maker.domain,
                scopes: None,
            }
        }
    };
    may(&maker, Permission::UsersWrite, &Scope::domain(user.domain)).map_err(|_| spent())?;
    // The account may have been given a role since that is beyond its maker's.
    let grants: Vec<Grant> = user.grants.iter().map(|held| held.grant).collect();
    match maker.outranks(&grants) {
        true => Ok((link, user)),
        false => Err(spent().into()),
    }
}

/// Whom a link signs in. Takes nothing: programs that open the addresses in messages end no link.
///
/// Errors: `sign-in-link.spent`.
pub fn linked_user(server: &Server, code: &str) -> Result<LinkedUser, Failure> {
    let kept = kept_of(code).ok_or_else(refusals::sign_in_link_spent)?;
    let now = server.clock().now();
    server.catalog().read_now("look at a sign-in link", |view| {
        let (link, user) = holding(view, &kept, now)?;
        Ok(LinkedUser {
            name: user.name.to_string(),
            expires_at: link.expires_at,
        })
    })
}

/// Signs a user in by link, or gives a ticket for the second step; the link is taken when the sign-in is done.
///
/// Errors: `sign-in-link.spent`, `user.suspended`, `sign-in.address-refused`, `sign-in.too-many`.
pub async fn begin_by_link(
    server: &Server,
    code: &str,
    from: impl Into<SignInFrom<'_>>,
) -> Result<SignInStep, Failure> {
    let from = from.into();
    let kept = kept_of(code);
    let now = server.clock().now();
    let (owner, stored, held) = server
        .catalog()
        .read_now("look at a sign-in link", |view| {
            let Some(kept) = &kept else {
                return Ok((
                    None,
                    None,
                    Err(Failure::from(refusals::sign_in_link_spent())),
                ));
            };
            let (mut owner, mut stored) = (None, None);
            // Of a link that is over too, so that the acts say whose it was.
            if let Some(link) = view.sign_in_link_by_hash(kept)? {
                owner = view.user(link.user)?;
                stored = view.password(link.user)?;
            }
            let held = holding(view, kept, now).map(|(_, user)| (*kept, user));
            Ok((owner, stored, held))
        })?;
    let failed = |failure: Failure| {
        repeated::sign_in_failed(server, owner.as_ref(), &failure);
        failure
    };
    let (kept, user) = held.map_err(&failed)?;
    if user.is_shut_out(now) {
        return Err(failed(suspended().into()));
    }
    from_own_network(&user, from.source).map_err(|refusal| failed(refusal.into()))?;
    let stored = stored.unwrap_or_default();
    enter(server, user, stored, Some(kept), from)
        .await
        .map_err(&failed)
}

/// Takes the link of this hash, in the commit that admits its user.
///
/// Errors: `sign-in-link.spent` where another request took it first, or where it ended meanwhile.
pub(super) fn take(rows: &Rows<'_>, user: &User, kept: &[u8; 32]) -> Result<(), Failure> {
    let spent = refusals::sign_in_link_spent;
    let (link, linked) = holding(rows, kept, rows.now)?;
    if linked.id != user.id || !rows.use_sign_in_link(kept)? {
        return Err(spent().into());
    }
    rows.note(NewEvent {
        actor: user.name.as_str(),
        topic: "users",
        object: &user.id.to_string(),
        scope: Scope::domain(user.domain),
        code: "user.sign-in-link-used",
        before: "",
        after: &link.actor,
    })
}
