//! Answers who is calling and proves it: cookies of browsers, tokens of programs, root on this
//! machine, the one-time setup code. Never says what a caller may do; that is `rules::permissions`.

use std::net::IpAddr;
use std::sync::Arc;

use api::secret::SecretText;
use rules::grants::{Grant, HeldGrant};
use rules::names::{EmailAddress, TokenId, UserId, UserName};
use rules::permissions::Subject;
use rules::refusal::Refusal;
use rules::refusals;
use rules::tenancy::Scope;
use rules::units::Timestamp;
use rules::users::{DEFAULT_MEMBER, Role, User};
use uuid::Uuid;

use crate::catalog::audit::{ActingUser, NewAct};
use crate::catalog::origin::{self, ProvenCaller, RequestOrigin};
use crate::catalog::users::{BrowserRow, IDLE_HOURS, ROOT};
use crate::catalog::{Lane, Rows};
use crate::{Failure, Server};

mod attempts;
mod invitation;
mod lease;
pub(crate) mod password;
pub(crate) mod repeated;
pub mod secret;
mod setup;

pub(crate) use attempts::{AttemptCounts, unlock};
pub use invitation::{NewMember, join, offer};
pub(crate) use invitation::{
    holding as holding_invitation, membership as invited_membership,
    new_code as new_invitation_code, note_joined,
};
pub(crate) use lease::OpenStreams;
pub use lease::{InUse, Lease, lease};
pub use repeated::refused;
pub use setup::{set_up, setup_link, setup_open};

use attempts::{Attempt, KnownBrowser};
use password::PasswordCheck;

/// Who calls, proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub subject: Subject,
    pub name: UserName,
    /// `en`, `ko`, or empty for what the browser asks.
    pub language: String,
    /// `light`, `dark` or `system`.
    pub theme: String,
    /// IANA name; empty means UTC.
    pub time_zone: String,
    pub via: Via,
    /// The password is an initial one: doors let the user do nothing but set their own.
    pub must_change_password: bool,
    /// Id of the request, for the log; doors fill it in.
    pub request: String,
}

/// By what a caller proved who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    Browser {
        session: BrowserSessionId,
    },
    Token {
        id: TokenId,
    },
    /// The local socket, as root or as the user that runs the server.
    LocalRoot,
}

/// One sign-in of one browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrowserSessionId(pub Uuid);

/// A fresh sign-in.
#[derive(Debug)]
pub struct NewSignIn {
    /// The value of the browser's cookie. Stored nowhere else.
    pub cookie: String,
    /// The value of the cookie by which the browser is known again, by its failures alone. Authenticates no user.
    pub device: String,
    /// The cookie is of no use after this.
    pub ends_at: Timestamp,
    pub caller: Caller,
}

/// Days after which it has to in any case.
const MAX_TOKEN_DAYS: u64 = 7;
/// Seconds that a browser is known again by its device: as long as browsers keep a cookie.
pub const DEVICE_SECONDS: u64 = 400 * 86_400;
/// A last use is written at most this often, so that reading pages costs no commits.
const TOUCH_SECONDS: u64 = 60;
/// What every token begins with, so that scanners find one that leaked.
pub const TOKEN_PREFIX: &str = "fardel_";

/// Runs `work` as one request of the client at `source`: what it writes into the audit log says so, and who proved to be
/// its caller.
pub async fn as_request<T>(source: IpAddr, id: &str, work: impl Future<Output = T>) -> T {
    let request = RequestOrigin::new(source.to_string(), id.to_owned());
    origin::within(Arc::new(request), work).await
}

/// Tells the request that this task works for whose it is.
fn told(caller: Caller) -> Caller {
    let (via, credential) = match caller.via {
        Via::Browser { session } => ("browser", Some(session.0)),
        Via::Token { id } => ("token", Some(id.0)),
        Via::LocalRoot => ("socket", None),
    };
    origin::proven(ProvenCaller {
        user: caller.subject.user,
        name: caller.name.to_string(),
        domain: caller.subject.domain,
        via,
        credential,
    });
    caller
}

/// The user of this cookie; None where it is not valid any more.
///
/// Moves the idle limit on, at most once a minute. Costs two rows by key.
pub async fn by_cookie(server: &Server, cookie: &str) -> Result<Option<Caller>, Failure> {
    // 43 characters carry 32 bytes; anything else was never ours.
    if cookie.len() != 43 {
        return Ok(None);
    }
    let hash = secret::hash(&SecretText::from(cookie));
    let found = server
        .catalog()
        .read_now("find a browser's sign-in", |view| view.browser(&hash))?;
    let Some((browser, user)) = found else {
        return Ok(None);
    };
    let now = server.clock().now();
    if user.suspended
        || browser.ends_at <= now
        || browser.used_at.plus_seconds(IDLE_HOURS * 3600) <= now
    {
        return Ok(None);
    }
    if now.seconds_since(browser.used_at) >= TOUCH_SECONDS {
        let id = browser.id;
        server
            .catalog()
            .write_later(Lane::Loops, "note a browser's last use", move |rows| {
                rows.touch_browser(id)
            });
    }
    let via = Via::Browser {
        session: BrowserSessionId(browser.id),
    };
    Ok(Some(told(caller(&user, None, via, now))))
}

/// Who is behind this bearer token; None where it is none of ours.
///
/// Errors: `token.expired`, `user.suspended`, both unauthenticated.
pub async fn by_token(
    server: &Server,
    bearer: &str,
    source: IpAddr,
) -> Result<Option<Caller>, Failure> {
    if !bearer.starts_with(TOKEN_PREFIX) || bearer.len() != TOKEN_PREFIX.len() + 43 {
        return Ok(None);
    }
    let hash = secret::hash(&SecretText::from(bearer));
    let found = server
        .catalog()
        .read_now("find a token", |view| view.token(&hash))?;
    let Some((token, user)) = found else {
        return Ok(None);
    };
    let now = server.clock().now();
    if let Some(end) = token.expires_at
        && end <= now
    {
        return Err(token_expired(end).into());
    }
    if user.suspended {
        return Err(suspended().into());
    }
    if token
        .used_at
        .is_none_or(|used| now.seconds_since(used) >= TOUCH_SECONDS)
    {
        let id = token.id;
        server
            .catalog()
            .write_later(Lane::Loops, "note a token's last use", move |rows| {
                rows.touch_token(id, source)
            });
    }
    let via = Via::Token { id: token.id };
    Ok(Some(told(caller(&user, Some(token.scopes), via, now))))
}

/// Root on this machine, or the user that runs the server: the caller that doors let in through the local
/// socket after looking at the peer's uid. An administrator who needs no sign-in.
pub fn local_root(_server: &Server) -> Caller {
    told(Caller {
        subject: Subject {
            user: ROOT,
            grants: root_grants(),
            domain: rules::tenancy::DomainId::DEFAULT,
            scopes: None,
        },
        name: UserName::parse("root").expect("root is a name by the rules of names"),
        language: String::new(),
        theme: "system".to_owned(),
        time_zone: String::new(),
        via: Via::LocalRoot,
        must_change_password: false,
        request: String::new(),
    })
}

/// Signs a user in by password.
///
/// Errors: `sign-in.wrong` (the same words and the same cost whether the name exists or not),
/// `sign-in.locked` while this name has to wait after failures from this address, `sign-in.busy` while too
/// many passwords are being checked, `user.suspended`.
pub async fn sign_in(
    server: &Server,
    name: &str,
    password: impl Into<SecretText>,
    source: IpAddr,
) -> Result<NewSignIn, Failure> {
    sign_in_by(server, name, password, source, None).await
}

/// As `sign_in`, from a browser that sends the cookie `device` of an earlier sign-in: where it is this
/// user's, failures elsewhere cause no delay here.
pub async fn sign_in_by(
    server: &Server,
    name: &str,
    password: impl Into<SecretText>,
    source: IpAddr,
    device: Option<&str>,
) -> Result<NewSignIn, Failure> {
    let password = password.into();
    let found = server.catalog().read_now("find a user", |view| {
        let found = match EmailAddress::parse(name) {
            Ok(email) => view.user_by_email(&email)?,
            Err(_) => view.user_named(name)?,
        };
        let Some(user) = found else {
            return Ok(None);
        };
        let stored = view.password(user.id)?;
        Ok(Some((user, stored)))
    })?;
    let known = found.as_ref().map(|(user, _)| user.id);
    let device = known.and_then(|user| KnownBrowser::read(server, device?, user));
    // Tries by name and by address are of one account, however the address is written.
    let counted = match (&found, EmailAddress::parse(name)) {
        (Some((user, _)), _) => user.name.to_string(),
        (None, Ok(email)) => email.to_string(),
        (None, Err(_)) => name.to_owned(),
    };
    let attempt = Attempt::of(server, &counted, known, source, device);
    let owner = found.as_ref().map(|(user, _)| user.clone());
    let failed = |failure: Failure| {
        repeated::sign_in_failed(server, owner.as_ref(), &failure);
        failure
    };
    let _slowed = attempt.begin().await.map_err(&failed)?;
    let stored = found.as_ref().and_then(|(_, stored)| stored.clone());
    let checked = match server.hasher().check(&password, stored).await {
        Ok(checked) => checked,
        Err(failure) => {
            attempt.undone();
            return Err(failure);
        }
    };
    let user = match (checked, found) {
        (PasswordCheck::Right | PasswordCheck::RightButOld, Some((user, _))) => user,
        _ => {
            return Err(failed(refusals::sign_in_wrong().into()));
        }
    };
    attempt.forgiven();
    if user.suspended {
        return Err(failed(suspended().into()));
    }
    let renewed = match checked {
        PasswordCheck::RightButOld => Some(server.hasher().hash(&password).await?),
        PasswordCheck::Right | PasswordCheck::Wrong => None,
    };
    admit(server, user, source, device, move |rows, user| {
        record_sign_in(rows, user)?;
        match &renewed {
            Some(hash) => rows.put_password(user.id, hash),
            None => Ok(()),
        }
    })
    .await
}

fn record_sign_in(rows: &Rows<'_>, user: &User) -> Result<(), Failure> {
    rows.record(NewAct {
        actor: ActingUser::Known {
            user: user.id,
            name: user.name.as_str(),
            domain: user.domain,
        },
        act: "sign-in.succeeded",
        topic: "users",
        object: &user.id.to_string(),
        scope: Scope::user(user.id),
        before: "",
        after: "",
        reason: "",
    })
}

/// Signs the caller's browser out; other browsers stay. Does nothing for tokens and local root.
pub async fn sign_out(server: &Server, caller: &Caller) -> Result<(), Failure> {
    let Via::Browser { session } = caller.via else {
        return Ok(());
    };
    let (user, name) = (caller.subject.user, caller.name.clone());
    let domain = caller.subject.domain;
    server
        .catalog()
        .write(Lane::Requests, "sign out", move |rows| {
            if !rows.forget_browser(session.0, user)? {
                return Ok(());
            }
            rows.record(NewAct {
                actor: ActingUser::Known {
                    user,
                    name: name.as_str(),
                    domain,
                },
                act: rules::codes::SIGN_IN_ENDED,
                topic: "users",
                object: &user.to_string(),
                scope: Scope::user(user),
                before: "",
                after: "",
                reason: "",
            })
        })
        .await
}

/// Checks the password that a signed-in user was asked for again. Its failures are counted by this
/// sign-in alone, so that a thief of an open browser guesses slowly and no other sign-in waits for it.
///
/// Errors: `sign-in.locked` while it has to wait, `sign-in.busy`.
pub(crate) async fn prove_again(
    server: &Server,
    caller: &Caller,
    password: &SecretText,
    stored: Option<String>,
) -> Result<PasswordCheck, Failure> {
    let by = match caller.via {
        Via::Browser { session } => session.0.into_bytes(),
        Via::Token { id } => id.0.into_bytes(),
        Via::LocalRoot => [0; 16],
    };
    let attempt = Attempt::of_own(server, caller.name.as_str(), caller.subject.user, &by);
    let _slowed = attempt.begin().await?;
    let checked = server.hasher().check(password, stored).await;
    match &checked {
        Ok(PasswordCheck::Wrong) => {}
        Ok(PasswordCheck::Right | PasswordCheck::RightButOld) => attempt.forgiven(),
        Err(_) => attempt.undone(),
    }
    checked
}

/// Writes a sign-in and gives its cookie. `also` is written with it, or neither is.
async fn admit(
    server: &Server,
    user: User,
    source: IpAddr,
    device: Option<KnownBrowser>,
    also: impl FnOnce(&Rows<'_>, &User) -> Result<(), Failure> + Send + 'static,
) -> Result<NewSignIn, Failure> {
    let cookie = secret::draw("");
    let hash = secret::hash(&cookie);
    let now = server.clock().now();
    let browser = BrowserRow {
        id: UserId::make(now, base::observe::random()).0,
        user: user.id,
        created_at: now,
        used_at: now,
        ends_at: now.plus_seconds(MAX_TOKEN_DAYS * 86_400),
        source: source.to_string(),
    };
    let via = Via::Browser {
        session: BrowserSessionId(browser.id),
    };
    let (ends_at, caller) = (browser.ends_at, caller(&user, None, via, now));
    let device = device.unwrap_or_else(|| KnownBrowser::draw(user.id));
    server
        .catalog()
        .write(Lane::Requests, "sign in", move |rows| {
            also(rows, &user)?;
            rows.insert_browser(&browser, &hash)
        })
        .await?;
    Ok(NewSignIn {
        cookie: cookie.reveal().to_owned(),
        device: device.cookie(server),
        ends_at,
        caller,
    })
}

fn caller(
    user: &User,
    scopes: Option<Vec<rules::permissions::Permission>>,
    via: Via,
    now: Timestamp,
) -> Caller {
    Caller {
        subject: Subject {
            user: user.id,
            grants: user.grants_at(now),
            domain: user.domain,
            scopes,
        },
        name: user.name.clone(),
        language: user.language.clone(),
        theme: user.theme.clone(),
        time_zone: user.time_zone.clone(),
        via,
        must_change_password: user.must_change_password,
        request: String::new(),
    }
}

fn token_expired(end: Timestamp) -> Refusal {
    refusals::token_expired(end)
}

fn suspended() -> Refusal {
    refusals::user_suspended()
}

/// What root on the machine holds.
fn root_grants() -> Vec<Grant> {
    vec![Grant::SITE_ADMINISTRATOR, DEFAULT_MEMBER.grant]
}

/// A new user of the domain `default` as rows keep one.
pub(crate) fn new_user(name: UserName, role: Role, now: Timestamp) -> User {
    let lasting = |grant| HeldGrant {
        grant,
        expires_at: None,
    };
    let mut grants: Vec<HeldGrant> = role.grants().into_iter().map(lasting).collect();
    grants.push(DEFAULT_MEMBER);
    User {
        id: UserId::make(now, base::observe::random()),
        name,
        full_name: String::new(),
        email: None,
        must_change_password: false,
        domain: rules::tenancy::DomainId::DEFAULT,
        role,
        grants,
        language: String::new(),
        theme: "system".to_owned(),
        time_zone: String::new(),
        suspended: false,
        departs_at: None,
        created_at: now,
        generation: 1,
    }
}

#[cfg(test)]
mod tests;
