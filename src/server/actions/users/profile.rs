//! One account as administrators see it: from where it is signed in, how many tokens it has, and what it may have
//! waiting. Shows no secret and changes nothing.

use rules::quota::EffectiveLimit;
use rules::units::GpuShare;

use super::*;
use crate::actions::sessions;
use crate::catalog::users::BrowserRow;

/// What is known of one user.
#[derive(Debug, Clone, PartialEq)]
pub struct UserProfile {
    pub user: User,
    /// Browsers that are signed in now, newest first.
    pub sign_ins: Vec<SignIn>,
    /// Access tokens that have not ended.
    pub tokens: usize,
    /// When one of them was last used.
    pub token_used_at: Option<Timestamp>,
    /// The most of GPUs that they hold at once; None: no limit.
    pub gpus: Option<GpuShare>,
    /// What they may have waiting, and how much of it is in use.
    pub limits: Vec<EffectiveLimit>,
    /// Why the caller can neither suspend nor remove the account; None where nothing keeps it.
    pub kept: Option<Refusal>,
    /// It is the only one that administers the site, and has to stay so.
    pub last_administrator: bool,
}

/// One user, by id or name, with what belongs to the account. Costs the reads of a page: their browsers, tokens and
/// waiting sessions.
///
/// Errors: `denied` without `users:read`; `user.not-found`.
pub async fn profile(server: &Server, caller: &Caller, who: &str) -> Result<UserProfile, Failure> {
    somewhere(caller, Permission::UsersRead)?;
    let now = server.clock().now();
    let gpus = server.snapshot().await?.world.policy.each;
    server.catalog().read_now("show a user", |view| {
        let user = find(view, &caller.subject, Permission::UsersRead, who)?;
        let tokens = view.tokens(user.id)?;
        let open = tokens
            .iter()
            .filter(|token| token.expires_at.is_none_or(|end| end > now));
        let browsers = view.browsers(user.id)?;
        let (last, own) = (last(view, &user)?, user.id == caller.subject.user);
        Ok(UserProfile {
            sign_ins: browsers
                .into_iter()
                .filter(|row| row.ends_at > now)
                .map(|row| sign_in(row, caller))
                .collect(),
            tokens: open.count(),
            token_used_at: tokens.iter().filter_map(|token| token.used_at).max(),
            gpus,
            limits: sessions::limits_of_user(view, user.id, now)?,
            last_administrator: last.is_some(),
            kept: last.or_else(|| own.then(|| oneself("suspend or remove"))),
            user,
        })
    })
}

/// What is said of the last administrator; None of everybody else.
fn last(view: &ReadTransaction<'_>, user: &User) -> Result<Option<Refusal>, Failure> {
    match keep_an_administrator(view, user) {
        Ok(()) => Ok(None),
        Err(Failure::Refusal(refusal)) => Ok(Some(refusal)),
        Err(fault) => Err(fault),
    }
}

/// A signed-in browser; `caller`'s own is marked.
pub(super) fn sign_in(row: BrowserRow, caller: &Caller) -> SignIn {
    SignIn {
        current: match caller.via {
            Via::Browser { session } => session.0 == row.id,
            Via::Token { .. } | Via::LocalRoot => false,
        },
        id: row.id,
        created_at: row.created_at,
        used_at: row.used_at,
        ends_at: row.ends_at,
        source: row.source,
    }
}
