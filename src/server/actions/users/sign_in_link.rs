//! Links by which a user of this site signs in once, made by who may change their account. The code of a link is given
//! this once, to its maker.

use api::users::{MadeSignInLink, SignInLinkView};

use super::*;
use crate::access::tokens::still_admitted;
use crate::catalog::sign_in_links::SignInLinkRecord;

/// Minutes that a link can be used at least. Lower: it is over before its user reads the message.
const MIN_MINUTES: u32 = 10;
/// And at most. Higher: a link that was forgotten in a message opens the account for longer.
const MAX_MINUTES: u32 = 7 * 24 * 60;
/// Where its maker says nothing.
const USUAL_MINUTES: u32 = 24 * 60;

/// The link of a user that can be used now.
///
/// Errors: `sign-in-link.not-found`; those of finding a user.
pub async fn show(server: &Server, caller: &Caller, who: &str) -> Result<SignInLinkView, Failure> {
    somewhere(caller, Permission::UsersRead)?;
    let now = server.clock().now();
    server.catalog().read_now("show a sign-in link", |view| {
        let user = find(view, &caller.subject, Permission::UsersRead, who)?;
        let link = view.sign_in_link(user.id, now)?;
        Ok(shown(link.ok_or_else(refusals::sign_in_link_not_found)?))
    })
}

/// The user whom `make` would make a link for. Errors: as there.
pub async fn linkable(server: &Server, caller: &Caller, who: &str) -> Result<User, Failure> {
    somewhere(caller, Permission::UsersWrite)?;
    server.catalog().read_now("show a user", |view| {
        let user = find(view, &caller.subject, Permission::UsersWrite, who)?;
        may_link(caller, &user)?;
        Ok(user)
    })
}

/// Makes a link that signs a user in once, within so many minutes. The one that they had before is of no use any more.
///
/// Errors: `sign-in-link.minutes`, `sign-in-link.elsewhere` for a user of a directory or provider,
/// `sign-in-link.suspended`; `user.self`: a stranger at an administrator's open browser must not keep the account;
/// `user.outranked`, also by a narrowed token for administrators and auditors; `token.scope-missing` for a token that may
/// less than the user; `network.bound`; those of finding a user.
pub async fn make(
    server: &Server,
    caller: &Caller,
    who: &str,
    minutes: Option<u32>,
) -> Result<MadeSignInLink, Failure> {
    somewhere(caller, Permission::UsersWrite)?;
    let minutes = minutes.unwrap_or(USUAL_MINUTES);
    if !(MIN_MINUTES..=MAX_MINUTES).contains(&minutes) {
        let days = MAX_MINUTES / (24 * 60);
        let refusal = refusals::sign_in_link_minutes(MIN_MINUTES, days);
        return Err(refusal.at("/valid_minutes").into());
    }
    let (code, hash) = access::new_link_code();
    let (caller, who) = (caller.clone(), who.to_owned());
    let made = server
        .catalog()
        .write(Lane::Requests, "make a sign-in link", move |rows| {
            // What the caller asks by may have been ended since: nothing that it makes outlives it.
            still_admitted(rows, &caller)?;
            refuse_bound(rows, &caller)?;
            let user = find(rows, &caller.subject, Permission::UsersWrite, &who)?;
            may_link(&caller, &user)?;
            four_eyes::keep_accounts_apart(rows, &caller, &user)?;
            let link = SignInLinkRecord {
                user: user.id,
                maker: caller.subject.user,
                actor: caller.name.to_string(),
                created_at: rows.now,
                expires_at: rows.now.plus_seconds(u64::from(minutes) * 60),
            };
            rows.put_sign_in_link(&link, &hash)?;
            let until = link.expires_at.to_string();
            note(
                rows,
                &caller.name,
                &user,
                "user.sign-in-link-made",
                "",
                &until,
            )?;
            Ok(link)
        })
        .await?;
    let path = format!("/login/link?code={}", code.reveal());
    let origins = server.settings().origins();
    Ok(MadeSignInLink {
        link: shown(made),
        links: origins
            .iter()
            .map(|origin| format!("{origin}{path}"))
            .collect(),
        code: code.reveal().to_owned(),
    })
}

/// Ends the link of a user: it is of no use any more. A browser that signed in by it stays.
///
/// Errors: `sign-in-link.not-found`; those of finding a user.
pub async fn revoke(server: &Server, caller: &Caller, who: &str) -> Result<User, Failure> {
    somewhere(caller, Permission::UsersWrite)?;
    change(
        server,
        caller,
        who.to_owned(),
        "revoke a sign-in link",
        |rows, user, actor| {
            let link = rows.sign_in_link(user.id, rows.now)?;
            let link = link.ok_or_else(refusals::sign_in_link_not_found)?;
            rows.forget_sign_in_link(user.id)?;
            let until = link.expires_at.to_string();
            note(rows, actor, user, "user.sign-in-link-revoked", &until, "")
        },
    )
    .await
}

fn may_link(caller: &Caller, user: &User) -> Result<(), Refusal> {
    if user.id == caller.subject.user {
        return Err(oneself("make a sign-in link for"));
    }
    if !user.source.is_local() {
        return Err(refusals::sign_in_link_elsewhere());
    }
    if user.suspended {
        return Err(refusals::sign_in_link_suspended(&user.name));
    }
    may_open(caller, user)
}

fn shown(link: SignInLinkRecord) -> SignInLinkView {
    SignInLinkView {
        actor: link.actor,
        created_at: link.created_at,
        expires_at: link.expires_at,
    }
}
