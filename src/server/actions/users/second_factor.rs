//! The caller's second factor: set up, replaced, turned off; and taken away from a user who lost theirs. Whoever
//! changes their own proves the password again, and the factor that they have: a stolen cookie changes nothing.

use api::second_factor::{RecoveryCodes, SecondFactorOffer, SecondFactorView};
use api::secret::SecretText;
use rules::names::UserId;
use rules::permissions::Permission;
use rules::refusals;

use super::*;
use crate::access::second_factor::{self as factor, OfferedFactor, ProvenCode};
use crate::access::totp;

/// The caller's second factor, without its secret.
pub async fn show(server: &Server, caller: &Caller) -> Result<SecondFactorView, Failure> {
    allowed(caller, Permission::Me)?;
    let user = caller.subject.user;
    server.catalog().read_now("show a second factor", |view| {
        let since = view.second_factor_since(user)?;
        Ok(SecondFactorView {
            enabled: since.is_some(),
            since,
            recovery_codes: view.recovery_codes_left(user)?,
        })
    })
}

/// Draws a second factor for the caller and gives it, this once. It is theirs when `confirm` has its first code; until
/// then nothing changes.
///
/// Errors: `password.wrong`; with a second factor those of its code, `second-factor.code-missing` for none; `sign-in.locked`
/// after some wrong ones; `user.root`.
pub async fn begin(
    server: &Server,
    caller: &Caller,
    password: impl Into<SecretText>,
    code: Option<&str>,
) -> Result<SecondFactorOffer, Failure> {
    let Proof { user, code, bound } = prove(server, caller, &password.into(), code).await?;
    server
        .catalog()
        .write(Lane::Requests, "begin a second factor", move |rows| {
            if let Some(code) = code {
                code.take(rows, &user)?;
            }
            rows.record(NewAct {
                actor: ActingUser::Named(user.name.as_str()),
                act: "user.second-factor-begun",
                topic: "users",
                object: &user.id.to_string(),
                scope: Scope::user(user.id),
                before: "",
                after: "",
                reason: "",
            })
        })
        .await?;
    // To what was proven: what was set up since then is not replaced without its code.
    Ok(offer(factor::offer(server, caller, &bound)))
}

/// An offer again, by its ticket; None where it does not hold any more. It tells its holder nothing new.
pub fn offered(
    server: &Server,
    caller: &Caller,
    ticket: &str,
) -> Result<Option<SecondFactorOffer>, Failure> {
    allowed(caller, Permission::Me)?;
    let bound = bound(server, caller.subject.user)?;
    Ok(factor::offer_again(server, caller, ticket, &bound).map(offer))
}

/// Makes what was offered the caller's second factor, ends every other sign-in of theirs, and gives new recovery
/// codes, this once. With the first one their other tokens end too: whoever had the password alone could make one.
///
/// Errors: `second-factor.wrong`; `second-factor.late` for a ticket that ended or was used, or after a new password.
pub async fn confirm(
    server: &Server,
    caller: &Caller,
    ticket: &str,
    code: &str,
) -> Result<RecoveryCodes, Failure> {
    allowed(caller, Permission::Me)?;
    let id = caller.subject.user;
    let bound = bound(server, id)?;
    let (secret, step) = factor::accepted(server, id, ticket, code, &bound)?;
    let (codes, hashes) = totp::draw_recovery_codes();
    let (keep, caller) = (own_browser(caller), caller.clone());
    server
        .catalog()
        .write(Lane::Requests, "set up a second factor", move |rows| {
            // Another request may have used the same ticket, or set a password.
            if factor::bound_to(rows, id)? != bound {
                return Err(refusals::second_factor_late().into());
            }
            let user = own(rows, &caller)?;
            if !user.second_factor {
                rows.forget_tokens(id, own_token(&caller))?;
            }
            rows.put_second_factor(id, &secret, step)?;
            rows.put_recovery_codes(id, &hashes)?;
            rows.forget_browsers(id, keep)?;
            put(rows, &user)?;
            note(rows, &user.name, &user, "user.second-factor-set", "", "")
        })
        .await?;
    Ok(RecoveryCodes { codes })
}

/// Gives new recovery codes, this once; the old ones are void.
///
/// Errors: `second-factor.none`; `second-factor.late` where password or factor were changed meanwhile; as `begin`.
pub async fn renew_recovery_codes(
    server: &Server,
    caller: &Caller,
    password: impl Into<SecretText>,
    code: Option<&str>,
) -> Result<RecoveryCodes, Failure> {
    let (proof, proven) = prove_both(server, caller, &password.into(), code).await?;
    let user = proof.user;
    let (codes, hashes) = totp::draw_recovery_codes();
    server
        .catalog()
        .write(Lane::Requests, "make recovery codes", move |rows| {
            still(rows, &user, &proof.bound)?;
            proven.take(rows, &user)?;
            rows.put_recovery_codes(user.id, &hashes)?;
            note(rows, &user.name, &user, "user.recovery-codes-made", "", "")
        })
        .await?;
    Ok(RecoveryCodes { codes })
}

/// Turns the caller's second factor off.
///
/// Errors: `second-factor.required` where the site demands one; as `renew_recovery_codes`.
pub async fn turn_off(
    server: &Server,
    caller: &Caller,
    password: impl Into<SecretText>,
    code: Option<&str>,
) -> Result<(), Failure> {
    allowed(caller, Permission::Me)?;
    if server.settings().requires_second_factor() {
        return Err(refusals::second_factor_required().into());
    }
    let (proof, proven) = prove_both(server, caller, &password.into(), code).await?;
    let (user, caller) = (proof.user, caller.clone());
    server
        .catalog()
        .write(Lane::Requests, "turn a second factor off", move |rows| {
            still(rows, &user, &proof.bound)?;
            proven.take(rows, &user)?;
            rows.forget_second_factor(user.id)?;
            put(rows, &own(rows, &caller)?)?;
            note(rows, &user.name, &user, "user.second-factor-off", "", "")
        })
        .await
}

/// The user whose second factor `reset` would take away. Errors: as there.
pub async fn resettable(server: &Server, caller: &Caller, who: &str) -> Result<User, Failure> {
    somewhere(caller, Permission::UsersWrite)?;
    let user = server.catalog().read_now("show a user", |view| {
        find(view, &caller.subject, Permission::UsersWrite, who)
    })?;
    if user.id == caller.subject.user {
        return Err(oneself("reset the second factor of").into());
    }
    match user.second_factor {
        true => Ok(user),
        false => Err(refusals::second_factor_none().into()),
    }
}

/// Takes the second factor of a user away who lost it, and ends their sign-ins, tokens and invitations: whoever has
/// the phone may have made them. Their password stays.
///
/// Errors: `user.self`: whoever has only an open browser of an administrator must not get rid of theirs;
/// `second-factor.none`; `network.bound`; `approval.account`; those of finding a user.
pub async fn reset(server: &Server, caller: &Caller, who: &str) -> Result<User, Failure> {
    somewhere(caller, Permission::UsersWrite)?;
    let own = caller.subject.user;
    let by = caller.clone();
    let user = change(
        server,
        caller,
        who.to_owned(),
        "reset a second factor",
        move |rows, user, actor| {
            if user.id == own {
                return Err(oneself("reset the second factor of").into());
            }
            refuse_bound(rows, &by)?;
            four_eyes::keep_accounts_apart(rows, &by, user)?;
            if !rows.forget_second_factor(user.id)? {
                return Err(refusals::second_factor_none().into());
            }
            rows.forget_proofs(user.id)?;
            put(rows, user)?;
            note(rows, actor, user, "user.second-factor-reset", "", "")
        },
    )
    .await?;
    access::unlock(server, user.name.as_str());
    Ok(user)
}

/// What a caller proved.
struct Proof {
    user: User,
    /// The code of their second factor, where they have one.
    code: Option<ProvenCode>,
    /// The password and the second factor that were looked at.
    bound: Vec<u8>,
}

/// Refuses where password or second factor are others by now than those that were proven.
fn still(rows: &Rows<'_>, user: &User, bound: &[u8]) -> Result<(), Failure> {
    match factor::bound_to(rows, user.id)? == bound {
        true => Ok(()),
        false => Err(refusals::second_factor_late().into()),
    }
}

/// The caller, whose password is right, and the code of their second factor where they have one.
async fn prove(
    server: &Server,
    caller: &Caller,
    password: &SecretText,
    code: Option<&str>,
) -> Result<Proof, Failure> {
    allowed(caller, Permission::Me)?;
    if caller.subject.user == ROOT {
        return Err(not_an_account().into());
    }
    let (user, stored, bound) = server.catalog().read_now("show an account", |view| {
        let user = own(view, caller)?;
        let stored = view.password(user.id)?;
        let bound = factor::bound_to(view, user.id)?;
        Ok((user, stored, bound))
    })?;
    if access::prove_again(server, caller, password, stored).await? == PasswordCheck::Wrong {
        return Err(refusals::password_wrong().at("/password").into());
    }
    let code = match user.second_factor {
        false => None,
        true => {
            let code = code.filter(|code| !code.trim().is_empty());
            let code = code.ok_or_else(|| refusals::second_factor_code_missing().at("/code"))?;
            let (source, browser) = (caller.source, own_browser(caller).map(Uuid::into_bytes));
            Some(factor::prove_code(server, &user, code, source, browser).await?)
        }
    };
    Ok(Proof { user, code, bound })
}

/// As `prove`, for who has a second factor. Errors: `second-factor.none`.
async fn prove_both(
    server: &Server,
    caller: &Caller,
    password: &SecretText,
    code: Option<&str>,
) -> Result<(Proof, ProvenCode), Failure> {
    let mut proof = prove(server, caller, password, code).await?;
    let proven = proof.code.take();
    let proven = proven.ok_or_else(refusals::second_factor_none)?;
    Ok((proof, proven))
}

fn bound(server: &Server, user: UserId) -> Result<Vec<u8>, Failure> {
    server
        .catalog()
        .read_now("look at a second factor", |view| {
            factor::bound_to(view, user)
        })
}

fn offer(offered: OfferedFactor) -> SecondFactorOffer {
    let OfferedFactor {
        key,
        address,
        ticket,
        ends_at,
    } = offered;
    SecondFactorOffer {
        key,
        address,
        ticket,
        ends_at,
    }
}
