//! The caller's access keys: a program signs its requests with one and sends no secret. The secret is given this once; what
//! a key may do is never more than what its maker may.

use api::users::AccessKeyView;
use rules::names::TokenId;

use super::tokens::wanted;
use super::*;
use crate::access::tokens::{self as made, DrawnToken};
use crate::catalog::users::TokenRow;

/// Access keys of one user. Higher: users lose track of which of them is in use. Lower: a user with many programs
/// gives several the same one.
const MAX_ACCESS_KEYS: usize = 10;

/// The caller's access keys, newest first.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<AccessKeyView>, Failure> {
    allowed(caller, Permission::Me)?;
    let user = caller.subject.user;
    server.catalog().read_now("list access keys", |view| {
        let mut keys = view.access_key_names(user)?;
        let rows = view.tokens(user)?.into_iter();
        let shown = rows.filter_map(|row| Some(shown(keys.remove(&row.id)?, row)));
        Ok(shown.collect())
    })
}

/// Why a user with so many access keys can make no other; None while there is room.
pub fn no_room(known: usize) -> Option<Refusal> {
    (known >= MAX_ACCESS_KEYS).then(|| refusals::key_too_many(MAX_ACCESS_KEYS))
}

/// Makes an access key and gives its secret, this once.
///
/// Errors: `key.too-many`; otherwise as for a token.
pub async fn create(
    server: &Server,
    caller: &Caller,
    name: &str,
    scopes: &[String],
    expires_at: Option<Timestamp>,
    networks: &[String],
) -> Result<(AccessKeyView, SecretText), Failure> {
    allowed(caller, Permission::Me)?;
    let now = server.clock().now();
    let wanted = wanted(caller, name, scopes, (expires_at, networks), now)?;
    // What would prove the token without a signature is forgotten here.
    let DrawnToken { mut row, hash, .. } = wanted.draw(caller.subject.user, now);
    let (key, secret) = access::new_access_key();
    let (caller, kept) = (caller.clone(), secret.clone());
    let made = server
        .catalog()
        .write(Lane::Requests, "make an access key", move |rows| {
            made::still_admitted(rows, &caller)?;
            row.expires_at = made::end_with_maker(rows, &caller, row.expires_at)?;
            row.networks = made::networks_with_maker(rows, &caller, row.networks)?;
            let known = rows.access_key_names(row.user)?.len();
            if let Some(full) = no_room(known) {
                return Err(full.into());
            }
            rows.insert_token(&row, &hash)?;
            rows.insert_access_key(row.id, &key, &kept)?;
            made::note(rows, &caller.name, &row, "key.made")?;
            Ok(shown(key, row))
        })
        .await?;
    Ok((made, secret))
}

/// Revokes an access key at once, and ends what it opened. Errors: `key.not-found`.
pub async fn revoke(server: &Server, caller: &Caller, id: TokenId) -> Result<(), Failure> {
    allowed(caller, Permission::Me)?;
    let (user, actor) = (caller.subject.user, caller.name.clone());
    server
        .catalog()
        .write(Lane::Requests, "revoke an access key", move |rows| {
            let keys = rows.access_key_names(user)?;
            let row = rows
                .tokens(user)?
                .into_iter()
                .find(|row| row.id == id && keys.contains_key(&row.id))
                .ok_or_else(refusals::key_not_found)?;
            rows.forget_token(id, user)?;
            made::note(rows, &actor, &row, "key.revoked")
        })
        .await
}

fn shown(key: String, row: TokenRow) -> AccessKeyView {
    let token = made::shown(row);
    AccessKeyView {
        id: token.id,
        key,
        name: token.name,
        scopes: token.scopes,
        created_at: token.created_at,
        expires_at: token.expires_at,
        used_at: token.used_at,
        used_from: token.used_from,
        networks: token.networks,
    }
}
