//! What a user may do with accounts: administrators with everybody's, everybody with their own.
//! The last administrator can be neither suspended, demoted nor removed.

use api::secret::SecretText;
use api::users::{SignInView, UserPatchBody, UserPreferences};
use rules::grants::{Grant, HeldGrant};
use rules::names::{EmailAddress, TokenId, UserId, UserName};
use rules::permissions::{self, Permission};
use rules::reason::Reason;
use rules::refusal::Refusal;
use rules::refusals;
use rules::session::{DesiredState, Session, SessionState};
use rules::tenancy::Scope;
use rules::units::Timestamp;
use rules::users::{Role, User, full_name};
use serde::Serialize;
use uuid::Uuid;

use super::accounts::{find, keep_an_administrator};
use super::four_eyes::{self, MeantUser, PendingAct, hold, kept};
use super::tenancy::home_of_account;
use super::{IdempotencyKey, Once, allowed, once, own_key, somewhere};
use crate::access::password::{self, PasswordCheck, PasswordRules};
use crate::access::tokens::refuse_bound;
use crate::access::{self, Caller, Via, networks};
use crate::catalog::audit::{ActingUser, NewAct};
use crate::catalog::events::NewEvent;
use crate::catalog::users::ROOT;
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::{Failure, Server};

pub mod access_keys;
pub mod departure;
mod profile;
pub mod second_factor;
pub mod sign_in_link;
pub mod ssh_keys;
pub mod start_up;
#[cfg(test)]
mod tests;
pub mod tokens;

pub use profile::{UserProfile, profile};

/// How the first administrator is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SetupLinks {
    /// The box is not set up yet: the links lead to the form that makes the administrator, once,
    /// within the hour. Otherwise they lead to the sign-in.
    pub open: bool,
    /// One for each address the box can be reached at; never empty.
    pub links: Vec<String>,
}

/// Draws a new setup code, which voids the one before it, and gives the links that carry it. Once the
/// box is set up, gives the links to sign in instead.
///
/// Errors: `setup.root-needed` for everybody but root on this machine while setup is open.
pub async fn setup_links(server: &Server, caller: &Caller) -> Result<SetupLinks, Failure> {
    of_the_site(caller)?;
    let open = access::setup_open(server);
    if open && caller.via != Via::LocalRoot {
        return Err(refusals::setup_root_needed().into());
    }
    let path = match access::setup_link(server) {
        Some(code) => format!("/setup?code={code}"),
        None if open => {
            return Err(refusals::setup_code_not_kept().into());
        }
        None => "/login".to_owned(),
    };
    let origins = server.settings().origins();
    let links = origins
        .iter()
        .map(|origin| format!("{origin}{path}"))
        .collect();
    Ok(SetupLinks { open, links })
}

/// All users with an account, by name. Root on the machine has none and is left out.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<User>, Failure> {
    somewhere(caller, Permission::UsersRead)?;
    let reach = permissions::reach(&caller.subject, Permission::UsersRead);
    server.catalog().read_now("list users", |view| {
        let mut users = view.users(&reach)?;
        users.retain(|user| user.id != ROOT);
        Ok(users)
    })
}

/// One user, by id or name. Errors: `user.not-found`.
pub async fn get(server: &Server, caller: &Caller, who: &str) -> Result<User, Failure> {
    somewhere(caller, Permission::UsersRead)?;
    server.catalog().read_now("show a user", |view| {
        find(view, &caller.subject, Permission::UsersRead, who)
    })
}

/// Makes an account.
///
/// Errors: `user.name-invalid`, `user.name-reserved`, `user.name-taken`, `password.…`. The first administrator made here
/// closes setup as well.
pub async fn create(
    server: &Server,
    caller: &Caller,
    name: &str,
    role: Role,
    password: impl Into<SecretText>,
) -> Result<User, Failure> {
    let made = create_once(server, caller, name, role, password, None, None).await?;
    Ok(made.value)
}

/// As `create`, in a domain (none: the caller's own), and at most once for the same key. The user begins as a member
/// of the domain's project `default`.
///
/// Errors: as `create`; `domain.not-found`; `idempotency.key-reused`; `network.bound`.
pub async fn create_once(
    server: &Server,
    caller: &Caller,
    name: &str,
    role: Role,
    password: impl Into<SecretText>,
    domain: Option<&str>,
    key: Option<IdempotencyKey>,
) -> Result<Once<User>, Failure> {
    let password = password.into();
    somewhere(caller, Permission::UsersWrite)?;
    if permissions::is_administrator(role) {
        of_the_site(caller)?;
    }
    // Its body holds a password, whose plain digest is not to be kept.
    let key = own_key(caller, key.map(|key| key.blinded(server)))?;
    let name = UserName::of_new_user(name.trim())?;
    password::check_new(
        PasswordRules::of(server),
        &password,
        name.as_str(),
        "/password",
    )?;
    // A name that is taken is said before the costly part.
    let taken = server.catalog().read_now("look for a name", |view| {
        Ok(view.user_named(name.as_str())?.is_some())
    })?;
    let hash = if taken {
        String::new()
    } else {
        server.hasher().hash(&password).await?
    };
    let user = User {
        time_zone: caller.time_zone.clone(),
        must_change_password: server.settings().password_change_first,
        ..access::new_user(name, role, server.clock().now())
    };
    let (actor, subject) = (caller.name.clone(), caller.subject.clone());
    let domain = domain.map(str::to_owned);
    let by = caller.clone();
    server
        .catalog()
        .write(Lane::Requests, "add a user", move |rows| {
            refuse_bound(rows, &by)?;
            if permissions::is_administrator(role) {
                four_eyes::refuse_new_chief(rows, &by)?;
            }
            once(rows, key.as_ref(), || {
                let (domain, member) = home_of_account(rows, &subject, domain.as_deref())?;
                let mut grants = user.grants.clone();
                grants.retain(|held| !held.grant.role.is_of_project());
                grants.extend(member);
                let user = User {
                    domain,
                    grants,
                    ..user
                };
                rows.insert_user(&user, &hash)?;
                if permissions::is_administrator(role) {
                    rows.finish_setup()?;
                }
                note(rows, &actor, &user, "user.added", "", role.word())?;
                Ok(user)
            })
        })
        .await
}

/// What becomes of a user's tokens when an administrator sets their password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokensAfterReset {
    Revoked,
    Kept,
}

/// Sets the password of another user, ends their sign-ins, revokes their tokens and SSH keys unless they are kept, and
/// lifts a lock on their name.
///
/// Errors: `user.password-elsewhere` for a user of a directory; `user.self`: whoever has only an open browser of an
/// administrator must not choose their password; `token.scope-missing` for a token that may not all that the user may: who
/// signs in with the new password may; `network.bound`; `password.…`; those of finding a user.
pub async fn set_password(
    server: &Server,
    caller: &Caller,
    who: &str,
    password: impl Into<SecretText>,
    tokens: TokensAfterReset,
) -> Result<User, Failure> {
    let password = password.into();
    somewhere(caller, Permission::UsersWrite)?;
    let (user, last) = server.catalog().read_now("show a user", |view| {
        let user = find(view, &caller.subject, Permission::UsersWrite, who)?;
        let mut last: Vec<String> = view.password(user.id)?.into_iter().collect();
        last.extend(view.past_passwords(user.id)?);
        Ok((user, last))
    })?;
    if user.id == caller.subject.user {
        return Err(refusals::user_self_password().into());
    }
    if !user.source.is_local() {
        return Err(refusals::user_password_elsewhere().into());
    }
    may_open(caller, &user)?;
    password::check_new(
        PasswordRules::of(server),
        &password,
        user.name.as_str(),
        "/password",
    )?;
    password::check_unused(server, &password, &last, "/password").await?;
    let hash = server.hasher().hash(&password).await?;
    let who = user.id.to_string();
    let history = PasswordRules::of(server).history;
    let first = server.settings().password_change_first;
    let by = caller.clone();
    let user = change(
        server,
        caller,
        who,
        "set a password",
        move |rows, user, actor| {
            // They may have been given a role since.
            may_open(&by, user)?;
            refuse_bound(rows, &by)?;
            four_eyes::keep_accounts_apart(rows, &by, user)?;
            rows.put_password(user.id, &hash, history)?;
            if first {
                rows.demand_password(user.id)?;
            }
            rows.forget_browsers(user.id, None)?;
            let after = match tokens {
                TokensAfterReset::Revoked => {
                    rows.forget_tokens(user.id, None)?;
                    rows.forget_ssh_keys(user.id)?;
                    rows.forget_invitations_of(user.id)?;
                    "tokens revoked"
                }
                TokensAfterReset::Kept => "tokens kept",
            };
            note(rows, actor, user, "user.password-set", "", after)
        },
    )
    .await?;
    access::unlock(server, user.name.as_str());
    Ok(user)
}

/// Makes a user an administrator, or an ordinary user again.
///
/// Errors: as `patch`.
pub async fn set_role(
    server: &Server,
    caller: &Caller,
    who: &str,
    role: Role,
    if_match: Option<u64>,
) -> Result<User, Failure> {
    let patch = UserPatchBody {
        role: Some(role),
        ..UserPatchBody::default()
    };
    self::patch(server, caller, who, patch, if_match).await
}

/// Changes an account's role, full name, address, networks or end; what is None stays. All of it in one commit, or nothing.
///
/// Errors: `user.last-administrator`, `user.full-name-invalid`, `user.email-invalid`, `user.email-taken`;
/// `grant.ends-in-past`, `user.end-of-administrator`;
/// `token.scope-missing` for another address by a token that may less than the user: who reads mail there, or comes from a
/// provider with it, may become the user; `network.bound` for that, for a new administrator and for more networks;
/// `network.invalid`, `network.too-many`, `network.own-address` where the caller would lock themselves out; `user.stale`
/// where `if_match` is not their version.
pub async fn patch(
    server: &Server,
    caller: &Caller,
    who: &str,
    patch: UserPatchBody,
    if_match: Option<u64>,
) -> Result<User, Failure> {
    match patch.role {
        Some(_) => of_the_site(caller)?,
        None => somewhere(caller, Permission::UsersWrite)?,
    }
    let full_name = patch.full_name.as_deref().map(full_name).transpose()?;
    let email = match patch.email.as_deref().map(str::trim) {
        Some("") => Some(None),
        Some(text) => Some(Some(EmailAddress::parse(text)?)),
        None => None,
    };
    let networks = patch.networks.as_deref().map(networks::parse).transpose()?;
    let (own, source) = (caller.subject.user, caller.source);
    let by = caller.clone();
    let meant = MeantUser::of(server, caller, who)?;
    let who = meant.which();
    let act = PendingAct::UserRole {
        who: meant,
        patch: patch.clone(),
        if_match,
    };
    let held = act.clone();
    let done = change(
        server,
        caller,
        who,
        "change a user",
        move |rows, user, actor| {
            fresh(user, if_match)?;
            if let Some(Some(email)) = &email {
                let other = rows.user_by_email(email)?;
                if other.is_some_and(|other| other.id != user.id) {
                    return Err(refusals::user_email_taken(email).at("/email").into());
                }
            }
            if let Some(networks) = &networks
                && let Some(source) = source
                && user.id == own
                && !networks::admit(networks, source)
            {
                return Err(refusals::network_own_address(source).at("/networks").into());
            }
            if let Some(end) = patch.expires_at {
                super::tenancy::ends_later(rows, end)?;
            }
            let changed = User {
                expires_at: patch.expires_at.unwrap_or(user.expires_at),
                networks: networks.unwrap_or_else(|| user.networks.clone()),
                full_name: full_name.unwrap_or_else(|| user.full_name.clone()),
                email: email.unwrap_or_else(|| user.email.clone()),
                ..user.clone()
            };
            if changed.email != user.email {
                may_open(&by, user)?;
                refuse_bound(rows, &by)?;
                four_eyes::keep_accounts_apart(rows, &by, user)?;
            }
            let role = patch.role.filter(|role| *role != user.role);
            let is_chief = permissions::is_administrator(role.unwrap_or(user.role));
            if is_chief && changed.expires_at.is_some() {
                return Err(refusals::user_end_of_administrator()
                    .at("/expires_at")
                    .into());
            }
            if let Some(role) = role {
                if permissions::is_administrator(role) {
                    refuse_bound(rows, &by)?;
                }
                put_role(rows, user, role)?;
                let (before, after) = (user.role.word(), role.word());
                note(rows, actor, user, "user.role-set", before, after)?;
                hold(rows, &by, &held)?;
            }
            if changed.expires_at != user.expires_at {
                let told =
                    |end: Option<Timestamp>| end.map_or_else(String::new, |end| end.to_string());
                let (before, after) = (told(user.expires_at), told(changed.expires_at));
                note(rows, actor, user, "user.end-set", &before, &after)?;
            }
            let renamed = called(user) != called(&changed);
            let widens = !user.networks.is_empty()
                && (changed.networks.is_empty()
                    || !networks::within(&changed.networks, &user.networks));
            if widens {
                refuse_bound(rows, &by)?;
            }
            if changed.networks != user.networks {
                let [before, after] = [user, &changed].map(|one| one.networks.join(" "));
                note(rows, actor, user, "user.networks-set", &before, &after)?;
            }
            if renamed {
                let (before, after) = (called(user), called(&changed));
                note(rows, actor, user, "user.changed", &before, &after)?;
            }
            match changed != *user || role.is_some() {
                true => put(rows, &changed),
                false => Ok(()),
            }
        },
    )
    .await;
    kept(server, caller, done, &act).await
}

fn put_role(rows: &Rows<'_>, user: &User, role: Role) -> Result<(), Failure> {
    let site = Grant::SITE_ADMINISTRATOR;
    if permissions::is_administrator(role) {
        let lasting = HeldGrant {
            grant: site,
            expires_at: None,
        };
        rows.put_grant(user.id, &lasting)
    } else {
        keep_an_administrator(rows, user)?;
        rows.forget_grant(user.id, &site).map(drop)
    }
}

/// `Mina Han <mina@lab.example>`, as far as there is one of them.
pub(super) fn called(user: &User) -> String {
    match (&user.email, user.full_name.as_str()) {
        (None, name) => name.to_owned(),
        (Some(email), "") => email.to_string(),
        (Some(email), name) => format!("{name} <{email}>"),
    }
}

/// What becomes of the sign-ins of a user, and of what they have running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suspension {
    Lifted,
    SessionsGoOn,
    SessionsStop,
}

impl Suspension {
    /// As a request asks for it. Errors: `suspension.sessions` for sessions that stop while the user is admitted.
    pub fn asked(suspended: bool, stop_sessions: bool) -> Result<Self, Refusal> {
        match (suspended, stop_sessions) {
            (false, false) => Ok(Self::Lifted),
            (true, false) => Ok(Self::SessionsGoOn),
            (true, true) => Ok(Self::SessionsStop),
            (false, true) => Err(refusals::suspension_sessions().at("/stop_sessions")),
        }
    }
}

/// Suspends a user, or admits them again, which also calls a departure off. Their sessions go on; their sign-ins and
/// sign-in links end at once.
///
/// Errors: as `set_suspension`.
pub async fn suspend(
    server: &Server,
    caller: &Caller,
    who: &str,
    suspended: bool,
    if_match: Option<u64>,
) -> Result<User, Failure> {
    let asked = Suspension::asked(suspended, false)?;
    set_suspension(server, caller, who, asked, if_match).await
}

/// As `suspend`; where it is asked for, the sessions of the user stop with it, in the same commit: those that wait are
/// cancelled, those that run get TERM, and none starts again by itself. Of a user who is suspended already, too.
///
/// Errors: `user.self`, `user.last-administrator`, `user.stale`; `token.scope-missing` for a token that stops no sessions.
pub async fn set_suspension(
    server: &Server,
    caller: &Caller,
    who: &str,
    asked: Suspension,
    if_match: Option<u64>,
) -> Result<User, Failure> {
    somewhere(caller, Permission::UsersWrite)?;
    if asked == Suspension::SessionsStop {
        caller.subject.token_allows(Permission::SessionsWrite)?;
    }
    let own = caller.subject.user;
    change(
        server,
        caller,
        who.to_owned(),
        "suspend a user",
        move |rows, user, actor| {
            fresh(user, if_match)?;
            let live = match asked {
                Suspension::SessionsStop => live_of(rows, user.id)?,
                Suspension::SessionsGoOn | Suspension::Lifted => Vec::new(),
            };
            put_suspension(rows, (own, actor), user, asked, &live).map(drop)
        },
    )
    .await
}

/// Suspends one user inside a commit of `own`, or admits them; true where that changed the account. Where their sessions stop,
/// those of them that are among `live`.
///
/// Errors: `user.self`, `user.last-administrator`.
pub(super) fn put_suspension(
    rows: &Rows<'_>,
    (own, actor): (UserId, &UserName),
    user: &User,
    asked: Suspension,
    live: &[Session],
) -> Result<bool, Failure> {
    let suspended = asked != Suspension::Lifted;
    if suspended && user.id == own {
        return Err(oneself("suspend").into());
    }
    if asked == Suspension::SessionsStop {
        for session in live.iter().filter(|session| session.owner == user.id) {
            rows.edit_session(session.id, actor.as_str(), None, |session| {
                let because = rules::reasons::session_owner_suspended(actor);
                Ok(stop_for_good(session, because, rows.now))
            })?;
        }
    }
    if user.suspended == suspended {
        return Ok(false);
    }
    if suspended {
        keep_an_administrator(rows, user)?;
        rows.forget_browsers(user.id, None)?;
        rows.forget_sign_in_links(user.id)?;
    }
    let changed = User {
        suspended,
        departs_at: user.departs_at.filter(|_| suspended),
        // An end that is over would suspend them again.
        expires_at: user.expires_at.filter(|end| suspended || *end > rows.now),
        ..user.clone()
    };
    put(rows, &changed)?;
    let code = match suspended {
        true => rules::codes::USER_SUSPENDED,
        false => "user.admitted",
    };
    note(rows, actor, user, code, "", "")?;
    Ok(true)
}

/// The sessions of a user that have not ended. O(live sessions).
fn live_of(view: &ReadTransaction<'_>, user: UserId) -> Result<Vec<Session>, Failure> {
    let mut live = view.live_sessions()?.into_vec();
    live.retain(|session| session.owner == user && session.state() != SessionState::Ended);
    Ok(live)
}

/// Stops a session that does not start again by itself either. False where nothing changed.
fn stop_for_good(session: &mut Session, because: Reason, now: Timestamp) -> bool {
    let restarts = std::mem::take(&mut session.restart);
    session.stop(DesiredState::Stop, because, now) || restarts
}

/// Takes an account away. What it owned keeps its owner's name; the name is free again.
///
/// Errors: `user.has-sessions` while sessions of theirs live, `user.self`,
/// `user.last-administrator`, `user.stale`.
pub async fn remove(
    server: &Server,
    caller: &Caller,
    who: &str,
    if_match: Option<u64>,
) -> Result<User, Failure> {
    somewhere(caller, Permission::UsersWrite)?;
    let (own, actor, who) = (caller.subject.user, caller.name.clone(), who.to_owned());
    let subject = caller.subject.clone();
    server
        .catalog()
        .write(Lane::Requests, "remove a user", move |rows| {
            let user = find(rows, &subject, Permission::UsersWrite, &who)?;
            fresh(&user, if_match)?;
            if user.id == own {
                return Err(oneself("remove").into());
            }
            keep_an_administrator(rows, &user)?;
            let live = rows
                .live_sessions()?
                .iter()
                .filter(|s| s.owner == user.id && s.state() != SessionState::Ended)
                .count();
            if live > 0 {
                return Err(refusals::user_has_sessions(&user.name, live).into());
            }
            rows.remove_user(user.id)?;
            note(rows, &actor, &user, "user.removed", user.role.word(), "")?;
            Ok(user)
        })
        .await
}

/// The caller's own account.
pub async fn me(server: &Server, caller: &Caller) -> Result<User, Failure> {
    allowed(caller, Permission::Me)?;
    server
        .catalog()
        .read_now("show an account", |view| own(view, caller))
}

/// Sets the caller's language, theme and time zone.
pub async fn set_me(
    server: &Server,
    caller: &Caller,
    preferences: UserPreferences,
) -> Result<User, Failure> {
    allowed(caller, Permission::Me)?;
    check(&preferences)?;
    let caller = caller.clone();
    server
        .catalog()
        .write(Lane::Requests, "set preferences", move |rows| {
            let user = own(rows, &caller)?;
            let changed = User {
                language: preferences.language.unwrap_or(user.language),
                theme: preferences.theme.unwrap_or(user.theme),
                time_zone: preferences.time_zone.unwrap_or(user.time_zone),
                ..user
            };
            put(rows, &changed)?;
            own(rows, &caller)
        })
        .await
}

/// Changes the caller's password and ends every other sign-in and token of theirs: who knew the old one may have made
/// them.
///
/// Errors: `user.password-elsewhere` for a user of a directory; `password.wrong`, also where it was changed meanwhile;
/// `password.…` for a bad new one; `sign-in.locked` after some wrong ones.
pub async fn change_password(
    server: &Server,
    caller: &Caller,
    old: impl Into<SecretText>,
    new: impl Into<SecretText>,
) -> Result<(), Failure> {
    let (old, new) = (old.into(), new.into());
    allowed(caller, Permission::Me)?;
    if caller.subject.user == ROOT {
        return Err(not_an_account().into());
    }
    let (user, stored, past) = server.catalog().read_now("show an account", |view| {
        let user = own(view, caller)?;
        let stored = view.password(user.id)?;
        let past = view.past_passwords(user.id)?;
        Ok((user, stored, past))
    })?;
    if !user.source.is_local() {
        return Err(refusals::user_password_elsewhere().into());
    }
    let last: Vec<String> = stored.iter().cloned().chain(past).collect();
    let checked = access::prove_again(server, caller, &old, stored.clone()).await?;
    if checked == PasswordCheck::Wrong {
        return Err(refusals::password_wrong().at("/old").into());
    }
    password::check_new(PasswordRules::of(server), &new, user.name.as_str(), "/new")?;
    if caller.must_change_password && old.reveal() == new.reveal() {
        return Err(refusals::password_unchanged().at("/new").into());
    }
    password::check_unused(server, &new, &last, "/new").await?;
    let history = PasswordRules::of(server).history;
    let hash = server.hasher().hash(&new).await?;
    let (browser, token) = (own_browser(caller), own_token(caller));
    server
        .catalog()
        .write(Lane::Requests, "change a password", move |rows| {
            if rows.password(user.id)? != stored {
                // An administrator has set another one.
                return Err(refusals::password_wrong().at("/old").into());
            }
            rows.put_password(user.id, &hash, history)?;
            if user.must_change_password {
                rows.own_password(user.id)?;
            }
            rows.forget_tokens(user.id, token)?;
            rows.forget_browsers(user.id, browser)?;
            let after = "tokens revoked";
            note(rows, &user.name, &user, "user.password-changed", "", after)
        })
        .await
}

/// Events of an account that are looked through for who chose its password. Higher: each overview costs more. Lower: a
/// password that was set long ago is taken for the user's own.
const PASSWORD_EVENTS: u32 = 50;

/// When an administrator chose the password that the caller still has. None where the caller chose it, where it is no
/// password of this site, and where the journal does not tell it any more. One indexed read.
pub fn assigned_password(server: &Server, caller: &Caller) -> Option<Timestamp> {
    allowed(caller, Permission::Me).ok()?;
    let found = server
        .catalog()
        .read_now("look who chose a password", |view| {
            let user = own(view, caller)?;
            if !user.source.is_local() {
                return Ok(None);
            }
            let events = view.events_of(&user.id.to_string(), PASSWORD_EVENTS)?;
            let newest_first = events.iter().rev();
            let mut known = newest_first.filter_map(|event| match event.code.as_str() {
                "user.password-set" => Some(Some(event.at)),
                // Who asked for the account typed the password then, and it has its date.
                "user.added" => Some(user.password_set_at.is_none().then_some(event.at)),
                "user.password-changed" | "user.joined" => Some(None),
                _ => None,
            });
            Ok(known.next().flatten())
        });
    found.ok().flatten()
}

/// The caller's signed-in browsers, newest first.
pub async fn sign_ins(server: &Server, caller: &Caller) -> Result<Vec<SignInView>, Failure> {
    allowed(caller, Permission::Me)?;
    let rows = server
        .catalog()
        .read_now("list sign-ins", |view| view.browsers(caller.subject.user))?;
    let now = server.clock().now();
    Ok(profile::open_sign_ins(rows, caller, now))
}

/// The signed-in browsers of a user, newest first.
///
/// Errors: `denied` without `users:read`; `user.not-found`.
pub async fn sign_ins_of(
    server: &Server,
    caller: &Caller,
    who: &str,
) -> Result<Vec<SignInView>, Failure> {
    somewhere(caller, Permission::UsersRead)?;
    let rows = server.catalog().read_now("list sign-ins", |view| {
        let user = find(view, &caller.subject, Permission::UsersRead, who)?;
        view.browsers(user.id)
    })?;
    Ok(profile::open_sign_ins(rows, caller, server.clock().now()))
}

/// Ends one signed-in browser of the caller. Errors: `sign-in.not-found`.
pub async fn end_sign_in(server: &Server, caller: &Caller, id: Uuid) -> Result<(), Failure> {
    allowed(caller, Permission::Me)?;
    let caller = caller.clone();
    server
        .catalog()
        .write(Lane::Requests, "end a sign-in", move |rows| {
            end_browser(rows, &own(rows, &caller)?, id, &caller.name)
        })
        .await
}

/// Ends one signed-in browser of a user, with all that is open in it. Errors: `sign-in.not-found`; those of finding a
/// user.
pub async fn end_sign_in_of(
    server: &Server,
    caller: &Caller,
    who: &str,
    id: Uuid,
) -> Result<(), Failure> {
    somewhere(caller, Permission::UsersWrite)?;
    change(
        server,
        caller,
        who.to_owned(),
        "end a sign-in",
        move |rows, user, actor| end_browser(rows, user, id, actor),
    )
    .await
    .map(drop)
}

fn end_browser(rows: &Rows<'_>, user: &User, id: Uuid, actor: &UserName) -> Result<(), Failure> {
    let source = rows
        .forget_browser(id, user.id)?
        .ok_or_else(refusals::sign_in_not_found)?;
    rows.record(NewAct {
        actor: ActingUser::Named(actor.as_str()),
        act: rules::codes::SIGN_IN_ENDED,
        topic: "users",
        object: &user.id.to_string(),
        scope: Scope::user(user.id),
        before: "",
        after: &id.to_string(),
        reason: "",
    })?;
    // The act has its row, under the name that every end of a sign-in has.
    rows.note_alone(NewEvent {
        actor: actor.as_str(),
        topic: "users",
        object: &user.id.to_string(),
        scope: Scope::domain(user.domain),
        code: "user.sign-in-ended",
        before: "",
        after: &source,
    })
}

/// Refuses who may not change accounts of the whole site, such as its administrators.
fn of_the_site(caller: &Caller) -> Result<(), Failure> {
    permissions::may(&caller.subject, Permission::UsersWrite, &Scope::SITE).map_err(Failure::from)
}

fn own_browser(caller: &Caller) -> Option<Uuid> {
    match caller.via {
        Via::Browser { session } => Some(session.0),
        Via::Token { .. } | Via::SshKey { .. } | Via::Session { .. } | Via::LocalRoot => None,
    }
}

fn own_token(caller: &Caller) -> Option<TokenId> {
    match caller.via {
        Via::Token { id } => Some(id),
        Via::Browser { .. } | Via::SshKey { .. } | Via::Session { .. } | Via::LocalRoot => None,
    }
}

fn own(view: &ReadTransaction<'_>, caller: &Caller) -> Result<User, Failure> {
    view.user(caller.subject.user)?
        .ok_or_else(|| refusals::user_gone().into())
}

/// Finds a user, checks who asks, runs `work`, and gives them as they are afterwards.
async fn change(
    server: &Server,
    caller: &Caller,
    who: String,
    what: &'static str,
    work: impl FnOnce(&Rows<'_>, &User, &UserName) -> Result<(), Failure> + Send + 'static,
) -> Result<User, Failure> {
    let (actor, subject) = (caller.name.clone(), caller.subject.clone());
    server
        .catalog()
        .write(Lane::Requests, what, move |rows| {
            let user = find(rows, &subject, Permission::UsersWrite, &who)?;
            work(rows, &user, &actor)?;
            find(rows, &subject, Permission::UsersWrite, &user.id.to_string())
        })
        .await
}

fn put(rows: &Rows<'_>, user: &User) -> Result<(), Failure> {
    if rows.put_user(user, user.generation)? {
        return Ok(());
    }
    Err(crate::ServerFault::new("change a user", "the row changed inside one transaction").into())
}

/// Asked before a caller is handed what signs them in as that user: then they may what the user may, and not what the token
/// may by which they asked. Errors: `token.scope-missing`.
fn may_open(caller: &Caller, user: &User) -> Result<(), Refusal> {
    let grants: Vec<Grant> = user.grants.iter().map(|held| held.grant).collect();
    caller.subject.may_open(&grants)
}

fn fresh(user: &User, if_match: Option<u64>) -> Result<(), Refusal> {
    if if_match.is_none_or(|generation| generation == user.generation) {
        return Ok(());
    }
    Err(refusals::user_stale(&user.name, user.generation))
}

fn oneself(verb: &str) -> Refusal {
    refusals::user_self(verb)
}

fn not_an_account() -> Refusal {
    refusals::user_root()
}

fn note(
    rows: &Rows<'_>,
    actor: &UserName,
    user: &User,
    code: &str,
    before: &str,
    after: &str,
) -> Result<(), Failure> {
    rows.note(NewEvent {
        actor: actor.as_str(),
        topic: "users",
        object: &user.id.to_string(),
        scope: rules::tenancy::Scope::domain(user.domain),
        code,
        before,
        after,
    })
}

fn check(preferences: &UserPreferences) -> Result<(), Refusal> {
    if let Some(language) = preferences.language.as_deref()
        && !["", "en", "ko"].contains(&language)
    {
        return Err(refusals::language_unknown().at("/language"));
    }
    if let Some(theme) = preferences.theme.as_deref()
        && !["light", "dark", "system"].contains(&theme)
    {
        return Err(refusals::theme_unknown().at("/theme"));
    }
    if let Some(zone) = preferences
        .time_zone
        .as_deref()
        .filter(|zone| !zone.is_empty())
        && (zone.len() > 64 || jiff::tz::TimeZone::get(zone).is_err())
    {
        return Err(refusals::time_zone_unknown().at("/time_zone"));
    }
    Ok(())
}
