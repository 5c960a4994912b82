//! New tokens: what one is called, how long one that a password made is good, and its row, written in the commit of what
//! permits it. Its maker decides its scopes.

use api::secret::SecretText;
use api::users::TokenView;
use rules::names::{TokenId, UserId, UserName};
use rules::permissions::Permission;
use rules::refusal::Refusal;
use rules::refusals;
use rules::session::{TextField, plain, text};
use rules::tenancy::Scope;
use rules::units::Timestamp;

use super::{Caller, TOKEN_PREFIX, Via, networks, secret, suspended};
use crate::catalog::events::NewEvent;
use crate::catalog::users::TokenRow;
use crate::catalog::{ReadTransaction, Rows};
use crate::{Failure, Server};

/// Tokens one user may have. More would be a leak in a script.
const MAX_TOKENS: usize = 100;
const MAX_NAME_LENGTH: usize = 64;
/// How long a token made by signing in is good, unless the client says otherwise.
const USUAL_SECONDS: u64 = 90 * 86_400;
/// Days that a client may ask for. Higher: a password that leaked once opens the account for longer. Lower: programs that
/// run for years ask for a password again.
const MAX_SIGNED_IN_DAYS: u64 = 3_650;

/// A token that is wanted, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    name: String,
    scopes: Vec<Permission>,
    expires_at: Option<Timestamp>,
    networks: Vec<String>,
}

/// A token with its secret, not written yet.
pub(crate) struct DrawnToken {
    pub(crate) row: TokenRow,
    pub(crate) hash: [u8; 32],
    pub(crate) secret: SecretText,
}

impl NewToken {
    /// What a program trades a sign-in for: it may what its user may.
    ///
    /// Errors: `token.name-…`; `expires-seconds.out-of-range`.
    pub fn by_sign_in(server: &Server, name: &str, seconds: Option<u64>) -> Result<Self, Refusal> {
        let seconds = seconds.unwrap_or(USUAL_SECONDS);
        if !(1..=MAX_SIGNED_IN_DAYS * 86_400).contains(&seconds) {
            let refusal = refusals::expires_seconds_out_of_range(MAX_SIGNED_IN_DAYS);
            return Err(refusal.at("/expires_seconds"));
        }
        Ok(Self {
            name: token_name("/token_name", name)?,
            scopes: Permission::ALL.to_vec(),
            expires_at: Some(server.clock().now().plus_seconds(seconds)),
            networks: Vec::new(),
        })
    }

    /// Made by a user who is signed in. Its name is checked, and whether they may give these scopes.
    pub(crate) fn new(
        name: String,
        scopes: Vec<Permission>,
        expires_at: Option<Timestamp>,
        networks: Vec<String>,
    ) -> Self {
        Self {
            name,
            scopes,
            expires_at,
            networks,
        }
    }

    pub(crate) fn draw(&self, user: UserId, now: Timestamp) -> DrawnToken {
        let secret = secret::draw(TOKEN_PREFIX);
        DrawnToken {
            row: TokenRow {
                id: TokenId::make(now, base::observe::random()),
                user,
                name: self.name.clone(),
                scopes: self.scopes.clone(),
                created_at: now,
                expires_at: self.expires_at,
                used_at: None,
                used_from: None,
                networks: self.networks.clone(),
            },
            hash: secret::hash(&secret),
            secret,
        }
    }
}

/// The name of a token, without blanks around it. Errors: `token.name-…`.
pub(crate) fn token_name(pointer: &str, name: &str) -> Result<String, Refusal> {
    let name = name.trim();
    text(TextField::Token, pointer, name, MAX_NAME_LENGTH)?;
    plain(TextField::Token, pointer, name)?;
    if name.is_empty() {
        return Err(refusals::token_name_missing().at(pointer));
    }
    Ok(name.to_owned())
}

/// Why a user with so many tokens can make no other; None while there is room.
pub(crate) fn no_room(known: usize) -> Option<Refusal> {
    (known >= MAX_TOKENS).then(|| refusals::token_too_many(MAX_TOKENS))
}

/// Writes a token and the act of its maker. Errors: `token.too-many`.
pub(crate) fn insert(
    rows: &Rows<'_>,
    actor: &UserName,
    row: &TokenRow,
    hash: &[u8; 32],
) -> Result<(), Failure> {
    if let Some(full) = no_room(rows.tokens(row.user)?.len()) {
        return Err(full.into());
    }
    rows.insert_token(row, hash)?;
    note(rows, actor, row, "token.made")
}

/// Notes what became of a token.
pub(crate) fn note(
    rows: &Rows<'_>,
    actor: &UserName,
    row: &TokenRow,
    code: &str,
) -> Result<(), Failure> {
    rows.note(NewEvent {
        actor: actor.as_str(),
        topic: "users",
        object: &row.id.to_string(),
        scope: Scope::user(row.user),
        code,
        before: "",
        after: &row.name,
    })
}

/// When what a caller makes ends. By a token or key that ends they make nothing that ends later; where no end is asked for,
/// both end together.
///
/// Errors: `expires-at.after-maker`.
pub(crate) fn end_with_maker(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    asked: Option<Timestamp>,
) -> Result<Option<Timestamp>, Failure> {
    let Via::Token { id } = caller.via else {
        return Ok(asked);
    };
    let maker = view.token_by_id(id)?;
    let end = maker.and_then(|(token, _)| token.expires_at);
    match (asked, end) {
        (Some(asked), Some(end)) if asked > end => {
            let refusal = refusals::expires_at_after_maker(end);
            Err(refusal.at("/expires_at").into())
        }
        (asked, end) => Ok(asked.or(end)),
    }
}

/// Networks that what a caller makes may be used from: by a token or key that is bound to some, nothing that is good
/// elsewhere. Where none are asked for, both have the same.
///
/// Errors: `network.wider`.
pub(crate) fn networks_with_maker(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    asked: Vec<String>,
) -> Result<Vec<String>, Failure> {
    let own = networks_of_maker(view, caller)?;
    if own.is_empty() {
        return Ok(asked);
    }
    if asked.is_empty() {
        return Ok(own);
    }
    match networks::within(&asked, &own) {
        true => Ok(asked),
        false => Err(refusals::network_wider(own.join(", "))
            .at("/networks")
            .into()),
    }
}

/// Networks that the token or key of a caller is bound to; empty for all others.
fn networks_of_maker(view: &ReadTransaction<'_>, caller: &Caller) -> Result<Vec<String>, Failure> {
    let Via::Token { id } = caller.via else {
        return Ok(Vec::new());
    };
    let maker = view.token_by_id(id)?;
    Ok(maker.map(|(token, _)| token.networks).unwrap_or_default())
}

/// Refuses to a token or key that is bound to networks what would be good from everywhere: an SSH key, an account whose
/// password the caller knows or a stranger chose, a link, a role that administers.
///
/// Errors: `network.bound`.
pub(crate) fn refuse_bound(view: &ReadTransaction<'_>, caller: &Caller) -> Result<(), Failure> {
    match networks_of_maker(view, caller)?.is_empty() {
        true => Ok(()),
        false => Err(refusals::network_bound().into()),
    }
}

/// Whether the browser, the token, the key or the session of a caller, who proved themselves when the request began, still
/// opens anything.
///
/// Errors: `sign-in.ended`, `token.revoked`, `user.suspended`.
pub(crate) fn still_admitted(view: &ReadTransaction<'_>, caller: &Caller) -> Result<(), Failure> {
    let user = match caller.via {
        Via::LocalRoot => return Ok(()),
        Via::Browser { session } => view.browser_by_id(session.0)?.map(|(_, user)| user),
        Via::Token { id } => view.token_by_id(id)?.map(|(_, user)| user),
        Via::SshKey { id } => view.ssh_key_by_id(id)?.map(|(_, user)| user),
        Via::Session { id } => match view.session(id)? {
            Some(session) => view.user(session.owner)?,
            None => None,
        },
    };
    match (user, caller.via) {
        (Some(user), _) if user.suspended => Err(suspended().into()),
        (Some(_), _) => Ok(()),
        (None, Via::Token { .. }) => Err(refusals::token_revoked().into()),
        (None, Via::SshKey { .. }) => Err(refusals::ssh_key_revoked().into()),
        (None, _) => Err(refusals::sign_in_ended().into()),
    }
}

/// A row as the API says it.
pub(crate) fn shown(row: TokenRow) -> TokenView {
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
        used_from: row
            .used_from
            .filter(|from| from.parse::<std::net::IpAddr>().is_ok()),
        networks: row.networks,
    }
}
