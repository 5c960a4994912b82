//! The caller's API tokens. The secret is shown once and kept as a hash; what a token may do is never
//! more than what its maker may.

use std::net::IpAddr;

use api::users::TokenView;
use rules::names::TokenId;
use rules::permissions::Permission;
use rules::refusals;

use super::*;
use crate::access::{TOKEN_PREFIX, secret};
use crate::catalog::users::TokenRow;

/// Tokens one user may have. More would be a leak in a script.
const MAX_TOKENS: usize = 100;
const MAX_NAME_LENGTH: usize = 64;

/// A row as the API says it.
fn view(row: TokenRow) -> TokenView {
    TokenView {
        id: row.id,
        name: row.name,
        scopes: row
            .scopes
            .iter()
            .map(|verb| verb.word().to_owned())
            .collect(),
        created_at: row.created_at,
        expires_at: row.expires_at,
        used_at: row.used_at,
        used_from: row.used_from.filter(|from| from.parse::<IpAddr>().is_ok()),
    }
}

/// The caller's tokens, newest first.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<TokenView>, Failure> {
    allowed(caller, Permission::Me)?;
    let rows = server
        .catalog()
        .read_now("list tokens", |view| view.tokens(caller.subject.user))?;
    Ok(rows.into_iter().map(view).collect())
}

/// Makes a token and gives its secret, this once.
///
/// Errors: `token.name-…`, `scope.unknown`, `scope.missing` where none is given, `scope.wider` for a
/// token that would make a stronger one, `expires-at.past`, `token.too-many`.
pub async fn create(
    server: &Server,
    caller: &Caller,
    name: &str,
    scopes: &[String],
    expires_at: Option<Timestamp>,
) -> Result<(TokenView, SecretText), Failure> {
    allowed(caller, Permission::Me)?;
    if caller.subject.user == ROOT {
        return Err(not_an_account().into());
    }
    let name = name.trim().to_owned();
    text(
        rules::session::TextField::Token,
        "/name",
        &name,
        MAX_NAME_LENGTH,
    )?;
    plain(rules::session::TextField::Token, "/name", &name)?;
    if name.is_empty() {
        return Err(refusals::token_name_missing().at("/name").into());
    }
    let scopes = read_scopes(caller, scopes)?;
    let now = server.clock().now();
    if expires_at.is_some_and(|end| end <= now) {
        return Err(refusals::expires_at_past().at("/expires_at").into());
    }
    let secret = secret::draw(TOKEN_PREFIX);
    let hash = secret::hash(&secret);
    let row = TokenRow {
        id: TokenId::make(now, base::observe::random()),
        user: caller.subject.user,
        name,
        scopes,
        created_at: now,
        expires_at,
        used_at: None,
        used_from: None,
    };
    let actor = caller.name.clone();
    let token = server
        .catalog()
        .write(Lane::Requests, "make a token", move |rows| {
            if rows.tokens(row.user)?.len() >= MAX_TOKENS {
                return Err(refusals::token_too_many(MAX_TOKENS).into());
            }
            rows.insert_token(&row, &hash)?;
            token_note(rows, &actor, &row, "token.made")?;
            Ok(view(row))
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
            let row = rows
                .tokens(user)?
                .into_iter()
                .find(|row| row.id == id)
                .ok_or_else(refusals::token_not_found)?;
            rows.forget_token(id, user)?;
            token_note(rows, &actor, &row, rules::codes::TOKEN_REVOKED)?;
            Ok(view(row))
        })
        .await
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

fn token_note(
    rows: &Rows<'_>,
    actor: &UserName,
    row: &TokenRow,
    code: &str,
) -> Result<(), Failure> {
    rows.note(NewEvent {
        actor: actor.as_str(),
        topic: "users",
        object: &row.id.to_string(),
        scope: rules::tenancy::Scope::user(row.user),
        code,
        before: "",
        after: &row.name,
    })
}
