//! The caller's API tokens. The secret is shown once and kept as a hash; what a token may do is never
//! more than what its maker may.

use api::users::TokenView;
use rules::names::TokenId;
use rules::permissions::Permission;
use rules::refusals;

use super::*;
use crate::access::NewToken;
use crate::access::tokens::{self as made, DrawnToken, shown};

/// The caller's tokens, newest first; without those behind access keys.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<TokenView>, Failure> {
    allowed(caller, Permission::Me)?;
    let user = caller.subject.user;
    server.catalog().read_now("list tokens", |view| {
        let keys = view.access_key_names(user)?;
        let mut rows = view.tokens(user)?;
        rows.retain(|row| !keys.contains_key(&row.id));
        Ok(rows.into_iter().map(shown).collect())
    })
}

/// Why a user with so many tokens, those behind access keys among them, can make no other; None while there is room.
pub fn no_room(known: usize) -> Option<Refusal> {
    made::no_room(known)
}

/// Makes a token and gives its secret, this once.
///
/// Errors: `token.name-…`, `scope.unknown`, `scope.missing` where none is given, `scope.wider` for a
/// token that would make a stronger one, `expires-at.past`, `expires-at.after-maker` for one that would make a longer one,
/// `network.invalid`, `network.too-many`, `network.wider` for one that would make one for other networks,
/// `token.too-many`; `sign-in.ended`, `token.revoked` and `user.suspended` where what the caller asks by has ended
/// meanwhile.
pub async fn create(
    server: &Server,
    caller: &Caller,
    name: &str,
    scopes: &[String],
    expires_at: Option<Timestamp>,
    networks: &[String],
) -> Result<(TokenView, SecretText), Failure> {
    allowed(caller, Permission::Me)?;
    let now = server.clock().now();
    let wanted = wanted(caller, name, scopes, (expires_at, networks), now)?;
    let DrawnToken {
        mut row,
        hash,
        secret,
    } = wanted.draw(caller.subject.user, now);
    let caller = caller.clone();
    let token = server
        .catalog()
        .write(Lane::Requests, "make a token", move |rows| {
            // What the caller asks by may have been ended since: nothing that it makes outlives it.
            made::still_admitted(rows, &caller)?;
            row.expires_at = made::end_with_maker(rows, &caller, row.expires_at)?;
            row.networks = made::networks_with_maker(rows, &caller, row.networks)?;
            made::insert(rows, &caller.name, &row, &hash)?;
            Ok(shown(row))
        })
        .await?;
    Ok((token, secret))
}

/// Revokes a token at once. Errors: `token.not-found`.
pub async fn revoke(server: &Server, caller: &Caller, id: TokenId) -> Result<TokenView, Failure> {
    allowed(caller, Permission::Me)?;
    let (user, actor) = (caller.subject.user, caller.name.clone());
    server
        .catalog()
        .write(Lane::Requests, "revoke a token", move |rows| {
            let keys = rows.access_key_names(user)?;
            let row = rows
                .tokens(user)?
                .into_iter()
                .find(|row| row.id == id && !keys.contains_key(&row.id))
                .ok_or_else(refusals::token_not_found)?;
            rows.forget_token(id, user)?;
            made::note(rows, &actor, &row, rules::codes::TOKEN_REVOKED)?;
            Ok(shown(row))
        })
        .await
}

/// What a user asks to make: a token, or what is proven by a signature in its place. With it its end, and the networks that
/// it may be used from.
///
/// Errors: root has no account; `token.name-…`, `scope.…`, `expires-at.past`, `network.…`.
pub(super) fn wanted(
    caller: &Caller,
    name: &str,
    scopes: &[String],
    (expires_at, typed): (Option<Timestamp>, &[String]),
    now: Timestamp,
) -> Result<NewToken, Refusal> {
    if caller.subject.user == ROOT {
        return Err(not_an_account());
    }
    let name = made::token_name("/name", name)?;
    let scopes = read_scopes(caller, scopes)?;
    let wanted = NewToken::new(name, scopes, expires_at, networks::parse(typed)?);
    match expires_at.is_some_and(|end| end <= now) {
        true => Err(refusals::expires_at_past().at("/expires_at")),
        false => Ok(wanted),
    }
}

fn read_scopes(caller: &Caller, words: &[String]) -> Result<Vec<Permission>, Refusal> {
    let all: Vec<&str> = Permission::ALL.iter().map(|verb| verb.word()).collect();
    if words.is_empty() {
        return Err(refusals::scope_missing(all.join(", ")).at("/scopes"));
    }
    let mut scopes = Vec::new();
    for word in words {
        let verb = Permission::parse(word).ok_or_else(|| {
            let shown: String = word.chars().take(40).flat_map(char::escape_debug).collect();
            refusals::scope_unknown(shown, all.join(", ")).at("/scopes")
        })?;
        if let Some(own) = &caller.subject.scopes
            && !own.contains(&verb)
        {
            return Err(refusals::scope_wider(word).at("/scopes"));
        }
        if !scopes.contains(&verb) {
            scopes.push(verb);
        }
    }
    Ok(scopes)
}
