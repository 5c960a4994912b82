//! One account as administrators see it: from where it is signed in, how many tokens it has, and what it may have
//! waiting. Shows no secret and changes nothing.

use api::policies::EffectiveLimitView;
use rules::quota::{EffectiveLimit, PolicyLimits, TenantLevel};
use rules::storage::StorageUse;
use rules::units::{Bytes, GpuShare};

use super::*;
use crate::actions::{allowances, budgets, sessions, storage};
use crate::catalog::users::{BrowserRow, IDLE_HOURS};

/// What is known of one user.
#[derive(Debug, Clone, PartialEq)]
pub struct UserProfile {
    pub user: User,
    /// Browsers that are signed in now, newest first.
    pub sign_ins: Vec<SignInView>,
    /// Access tokens that have not ended.
    pub tokens: usize,
    /// When one of them was last used.
    pub token_used_at: Option<Timestamp>,
    /// The most of GPUs that they hold at once; None: no limit.
    pub gpus: Option<GpuShare>,
    /// What they may have waiting, and how much of it is in use.
    pub limits: Vec<EffectiveLimit>,
    /// The limits that an allowance of theirs can raise.
    pub raisable: PolicyLimits,
    /// What their folders take, and may; nothing where they have none, or it was not seen yet.
    pub folders: StorageUse,
    /// The budgets that hold for them now.
    pub budgets: Vec<EffectiveLimitView>,
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
            sign_ins: open_sign_ins(browsers, caller, now),
            tokens: open.count(),
            token_used_at: tokens.iter().filter_map(|token| token.used_at).max(),
            gpus,
            limits: sessions::limits_of_user(view, user.id, now)?,
            raisable: allowances::raisable(view, TenantLevel::User, user.id.0, now)?,
            folders: match view.storage_of(user.id)? {
                Some(known) => known.taken,
                None => StorageUse {
                    used: Bytes(0),
                    limit: storage::folder_limit(view, user.id, user.domain, now)?,
                    at: now,
                },
            },
            budgets: budgets::of_user(view, user.id, now)?,
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

/// Those that have not ended.
pub(super) fn open_sign_ins(
    rows: Vec<BrowserRow>,
    caller: &Caller,
    now: Timestamp,
) -> Vec<SignInView> {
    let idle = |row: &BrowserRow| row.used_at.plus_seconds(IDLE_HOURS * 3600) <= now;
    rows.into_iter()
        .filter(|row| row.ends_at > now && !idle(row))
        .map(|row| sign_in(row, caller))
        .collect()
}

/// A signed-in browser; `caller`'s own is marked.
fn sign_in(row: BrowserRow, caller: &Caller) -> SignInView {
    SignInView {
        current: match caller.via {
            Via::Browser { session } => session.0 == row.id,
            Via::Token { .. } | Via::SshKey { .. } | Via::Session { .. } | Via::LocalRoot => false,
        },
        id: row.id,
        created_at: row.created_at,
        used_at: row.used_at,
        ends_at: row.ends_at,
        source: row.source,
        browser: browser(&row.agent),
    }
}

/// `Firefox, Windows`: what a browser's own long name says in two words; empty where it says neither.
fn browser(agent: &str) -> String {
    // Each of them calls itself by the names behind it too.
    let programs = [
        ("Edg", "Edge"),
        ("OPR/", "Opera"),
        ("SamsungBrowser/", "Samsung Internet"),
        ("Whale/", "Whale"),
        ("Firefox/", "Firefox"),
        ("FxiOS/", "Firefox"),
        ("Chrome/", "Chrome"),
        ("CriOS/", "Chrome"),
        ("Safari/", "Safari"),
    ];
    let systems = [
        ("Android", "Android"),
        ("iPhone", "iOS"),
        ("iPad", "iOS"),
        ("Windows", "Windows"),
        ("Mac OS X", "macOS"),
        ("CrOS", "ChromeOS"),
        ("Linux", "Linux"),
    ];
    let named = |known: &[(&str, &'static str)]| {
        let mut known = known.iter();
        known
            .find(|(part, _)| agent.contains(part))
            .map(|(_, name)| *name)
    };
    let words: Vec<&str> = [named(&programs), named(&systems)]
        .into_iter()
        .flatten()
        .collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_are_called_by_two_words() {
        let firefox =
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:145.0) Gecko/20100101 Firefox/145.0";
        let edge = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36 Edg/142.0";
        let phone = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 Version/18.0 Mobile/15E148 Safari/604.1";
        for (agent, words) in [
            (firefox, "Firefox, Windows"),
            (edge, "Edge, Linux"),
            (phone, "Safari, iOS"),
            ("<script>", ""),
        ] {
            assert_eq!(browser(agent), words);
        }
    }
}
