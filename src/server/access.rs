//! Answers who is calling and proves it: cookies of browsers, tokens of programs, root on this
//! machine, the one-time setup code. Never says what a caller may do; that is `rules::permissions`.

use std::net::IpAddr;
use std::sync::Arc;

use api::secret::SecretText;
use api::users::TokenView;
use rules::grants::{Grant, HeldGrant};
use rules::names::{EmailAddress, SessionId, SshKeyId, TokenId, UserId, UserName};
use rules::permissions::Subject;
use rules::refusal::Refusal;
use rules::refusals;
use rules::tenancy::{ProjectId, Scope};
use rules::units::Timestamp;
use rules::users::{DEFAULT_MEMBER, Role, User, UserSource};
use uuid::Uuid;

use crate::catalog::audit::{ActingUser, NewAct};
use crate::catalog::events::NewEvent;
use crate::catalog::origin::{self, ProvenCaller, RequestOrigin};
use crate::catalog::policies::PolicySubjects;
use crate::catalog::users::{
    BrowserRow, FullSignIns, IDLE_HOURS, NO_PASSWORD, ROOT, SIGNED_IN_ELSEWHERE, TokenRow,
};
use crate::catalog::{Lane, Rows};
use crate::{Failure, Server};

mod access_key;
mod app_entry;
mod attempts;
mod begun_sign_ins;
pub(crate) mod directory;
pub(crate) mod external_user;
mod id_token;
mod inner_door;
mod invitation;
mod lease;
pub(crate) mod networks;
pub(crate) mod password;
pub(crate) mod provider;
pub(crate) mod repeated;
pub(crate) mod saml;
pub(crate) mod second_factor;
pub mod secret;
mod setup;
mod sign_in_link;
mod sign_up;
pub(crate) mod ssh_host_key;
pub(crate) mod ssh_key;
pub(crate) mod ticket;
pub(crate) mod tokens;
pub(crate) mod totp;

pub(crate) use access_key::new_key as new_access_key;
pub use access_key::{SignedRequest, by_signature};
pub use app_entry::{
    APP_COOKIE_SECONDS, AppPass, app_cookie, by_app_pass, read_app_cookie, take_app_ticket,
};
pub(crate) use app_entry::{AppTickets, new_ticket as new_app_ticket};
pub(crate) use attempts::{AttemptCounts, unlock};
pub use inner_door::{by_inner_door, inner_doors};
pub use invitation::{NewMember, join, offer};
pub(crate) use invitation::{
    holding as holding_invitation, membership as invited_membership,
    new_code as new_invitation_code, note_joined,
};
pub(crate) use lease::OpenStreams;
pub use lease::{InUse, Lease, lease};
pub use provider::{
    ProviderOutcome, ProviderReturn, ProviderStart, begin_by_provider, finish_by_provider,
    is_of_provider, provider_name,
};
pub use repeated::refused;
pub use saml::{
    SAML_METADATA, SAML_RETURN, SamlPost, begin_by_saml, finish_by_saml, is_of_saml, saml_metadata,
    saml_name, take_saml_response,
};
pub use second_factor::finish_sign_in;
pub use setup::{set_up, setup_link, setup_open};
pub(crate) use sign_in_link::new_code as new_link_code;
pub use sign_in_link::{LinkedUser, begin_by_link, linked_user};
pub use sign_up::{NewSignUp, ask_for_account, open_for_sign_up};
pub use ssh_host_key::{SshHostKey, ssh_host_key};
pub use ssh_key::{by_ssh_key, is_ssh_key_known, prove_ssh_key_again};
pub use tokens::NewToken;

use attempts::{Attempt, KnownBrowser};
use directory::PasswordSent;
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
    /// Where the request comes from; None for root on the machine and for a session.
    pub source: Option<IpAddr>,
    /// The password is an initial one: doors let the user do nothing but set their own.
    pub must_change_password: bool,
    /// The site demands a second factor and the user has none: from then on doors let them do nothing but set one up.
    pub second_factor_due: Option<Timestamp>,
    /// Id of the request, for the log; doors fill it in.
    pub request: String,
}

impl Caller {
    /// Whether doors let the user do nothing but set up a second factor.
    pub fn must_set_up_second_factor(&self, now: Timestamp) -> bool {
        self.second_factor_due.is_some_and(|due| due <= now)
    }

    fn with_due(self, server: &Server, user: &User, since: Option<Timestamp>) -> Self {
        Self {
            second_factor_due: second_factor::due(server, user, since),
            ..self
        }
    }
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
    /// A public key, over SSH: into sessions, and nowhere else.
    SshKey {
        id: SshKeyId,
    },
    /// From inside a session, by the socket that its node opened there: to this session, and nowhere else.
    Session {
        id: SessionId,
    },
    /// The local socket, as root or as the user that runs the server.
    LocalRoot,
}

/// One sign-in of one browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrowserSessionId(pub Uuid);

/// A fresh sign-in.
pub struct NewSignIn {
    /// The value of the browser's cookie. Stored nowhere else; of no use where a token was wanted.
    pub cookie: String,
    /// The value of the cookie by which the browser is known again, by its failures alone. Authenticates no user.
    pub device: String,
    /// The cookie is of no use after this.
    pub ends_at: Timestamp,
    pub caller: Caller,
    /// What a program traded it for, and the secret of that, this once.
    pub token: Option<(TokenView, SecretText)>,
}

impl std::fmt::Debug for NewSignIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NewSignIn of {}", self.caller.name)
    }
}

/// Days after which it has to in any case.
const MAX_TOKEN_DAYS: u64 = 7;
/// Seconds that a browser is known again by its device: as long as browsers keep a cookie.
pub const DEVICE_SECONDS: u64 = 400 * 86_400;
/// Letters that are kept of what a browser calls itself; today's have some 120.
const MAX_AGENT: usize = 200;
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
        Via::SshKey { id } => ("ssh-key", Some(id.0)),
        Via::Session { id } => ("session", Some(id.0)),
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
///
/// Errors: `sign-in.address-refused`.
pub async fn by_cookie(
    server: &Server,
    cookie: &str,
    source: IpAddr,
) -> Result<Option<Caller>, Failure> {
    // 43 characters carry 32 bytes; anything else was never ours.
    if cookie.len() != 43 {
        return Ok(None);
    }
    let hash = secret::hash(&SecretText::from(cookie));
    let found = server
        .catalog()
        .read_now("find a browser's sign-in", |view| {
            let Some(found) = view.browser(&hash)? else {
                return Ok(None);
            };
            Ok(Some((found, view.second_factor_required_since()?)))
        })?;
    let Some(((browser, user), since)) = found else {
        return Ok(None);
    };
    let now = server.clock().now();
    if user.is_shut_out(now)
        || browser.ends_at <= now
        || browser.used_at.plus_seconds(IDLE_HOURS * 3600) <= now
    {
        return Ok(None);
    }
    let via = Via::Browser {
        session: BrowserSessionId(browser.id),
    };
    let caller = Caller {
        must_change_password: user.must_change_password || is_aged(server, &user),
        ..caller(&user, None, via, source, now)
    };
    // A request that is refused from here on is one of theirs.
    let caller = told(caller.with_due(server, &user, since));
    from_own_network(&user, source)?;
    if now.seconds_since(browser.used_at) >= TOUCH_SECONDS {
        let id = browser.id;
        server
            .catalog()
            .write_later(Lane::Loops, "note a browser's last use", move |rows| {
                rows.touch_browser(id)
            });
    }
    Ok(Some(caller))
}

/// Whether users of a directory sign in beside those of this site.
pub fn asks_directory(server: &Server) -> bool {
    server.settings().ldap_url.is_some()
}

/// Whether the password of a user is older than the site allows. Tokens do not age with it, and a directory has rules of
/// its own.
fn is_aged(server: &Server, user: &User) -> bool {
    ages_at(server, user).is_some_and(|end| end <= server.clock().now())
}

/// When the password of a user is too old; None where the site allows any age, and for a user of a directory or provider.
fn ages_at(server: &Server, user: &User) -> Option<Timestamp> {
    if !user.source.is_local() {
        return None;
    }
    let days = u64::from(server.settings().password_days);
    let set_at = user.password_set_at.unwrap_or(user.created_at);
    (days > 0).then(|| set_at.plus_seconds(days * 86_400))
}

/// Who is behind this bearer token; None where it is none of ours.
///
/// Errors: `token.expired`, `user.suspended`, both unauthenticated; `sign-in.address-refused`, `token.address-refused`.
pub async fn by_token(
    server: &Server,
    bearer: &str,
    source: IpAddr,
) -> Result<Option<Caller>, Failure> {
    if !bearer.starts_with(TOKEN_PREFIX) || bearer.len() != TOKEN_PREFIX.len() + 43 {
        return Ok(None);
    }
    let hash = secret::hash(&SecretText::from(bearer));
    let found = server.catalog().read_now("find a token", |view| {
        let Some(found) = view.token(&hash)? else {
            return Ok(None);
        };
        Ok(Some((found, view.second_factor_required_since()?)))
    })?;
    let Some(((token, user), since)) = found else {
        return Ok(None);
    };
    of_token(server, token, &user, since, source).map(Some)
}

/// The caller by a token that was proven just now, by itself or by a signature of its key. `since` is since when a second
/// factor is demanded.
///
/// Errors: as `by_token`.
fn of_token(
    server: &Server,
    token: TokenRow,
    user: &User,
    since: Option<Timestamp>,
    source: IpAddr,
) -> Result<Caller, Failure> {
    let now = server.clock().now();
    if let Some(end) = token.expires_at
        && end <= now
    {
        return Err(token_expired(end).into());
    }
    if user.is_shut_out(now) {
        return Err(suspended().into());
    }
    let via = Via::Token { id: token.id };
    let caller = caller(user, Some(token.scopes), via, source, now);
    let caller = told(caller.with_due(server, user, since));
    from_own_network(user, source)?;
    if !networks::admit(&token.networks, source) {
        return Err(refusals::token_address_refused(source).into());
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
    Ok(caller)
}

/// Root on this machine, or the user that runs the server: the caller that doors let in through the local
/// socket after looking at the peer's uid. An administrator who needs no sign-in.
pub fn local_root(_server: &Server) -> Caller {
    told(Caller {
        subject: root_subject(),
        name: UserName::parse("root").expect("root is a name by the rules of names"),
        language: String::new(),
        theme: "system".to_owned(),
        time_zone: String::new(),
        via: Via::LocalRoot,
        source: None,
        must_change_password: false,
        second_factor_due: None,
        request: String::new(),
    })
}

/// Where a sign-in comes from.
#[derive(Debug, Clone, Copy)]
pub struct SignInFrom<'a> {
    pub source: IpAddr,
    /// The cookie of an earlier sign-in of the same browser: where it is this user's, failures elsewhere cause no delay
    /// here.
    pub device: Option<&'a str>,
    /// What the browser calls itself; empty for none.
    pub agent: &'a str,
    pub use_of: SignInUse<'a>,
}

/// What a sign-in is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignInUse<'a> {
    /// A browser goes on with it: it counts among those of its user.
    Browser,
    /// A program trades it for this token in the same commit: no cookie of it is kept.
    Token(&'a NewToken),
}

impl From<IpAddr> for SignInFrom<'_> {
    fn from(source: IpAddr) -> Self {
        Self {
            source,
            device: None,
            agent: "",
            use_of: SignInUse::Browser,
        }
    }
}

/// How far a sign-in came by the password.
pub enum SignInStep {
    Done(NewSignIn),
    /// The user has a second factor: this ticket and a code go to `finish_sign_in`.
    CodeNeeded(String),
}

impl std::fmt::Debug for SignInStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Done(_) => "Done",
            Self::CodeNeeded(_) => "CodeNeeded",
        })
    }
}

/// Signs in a user without a second factor by password.
///
/// Errors: `second-factor.needed` for one with a second factor; as `begin_sign_in`.
pub async fn sign_in(
    server: &Server,
    name: &str,
    password: impl Into<SecretText>,
    from: impl Into<SignInFrom<'_>>,
) -> Result<NewSignIn, Failure> {
    match begin_sign_in(server, name, password, from).await? {
        SignInStep::Done(signed_in) => Ok(signed_in),
        SignInStep::CodeNeeded(_) => Err(refusals::second_factor_needed().at("/code").into()),
    }
}

/// Signs a user in by password, or gives a ticket for the second step.
///
/// Errors: `sign-in.wrong` (the same words and the same cost whether the name exists or not),
/// `sign-in.locked` while this name has to wait after failures from this address, `sign-in.busy` while too
/// many passwords are being checked, `user.suspended`, `sign-in.address-refused`, `directory.…` of a user of a directory,
/// `sign-in.too-many`, `password.change-needed` for a token by a password that is too old.
pub async fn begin_sign_in(
    server: &Server,
    name: &str,
    password: impl Into<SecretText>,
    from: impl Into<SignInFrom<'_>>,
) -> Result<SignInStep, Failure> {
    let (password, from) = (password.into(), from.into());
    let found = server.catalog().read_now("find a user", |view| {
        let found = match EmailAddress::parse(name) {
            Ok(email) => view.user_by_email(&email)?,
            Err(_) => match view.user_named(name)? {
                // A directory knows it in capitals too.
                None => view
                    .user_named(&name.to_ascii_lowercase())?
                    .filter(|user| user.source == UserSource::Directory),
                found => found,
            },
        };
        let Some(user) = found else {
            return Ok(None);
        };
        let stored = view.password(user.id)?;
        let factor = view.second_factor_since(user.id)?;
        Ok(Some((user, stored, factor)))
    })?;
    let (found, factor) = match found {
        Some((user, stored, factor)) => (Some((user, stored)), factor),
        None => (None, None),
    };
    let known = found.as_ref().map(|(user, _)| user.id);
    let device = found.as_ref().and_then(|(user, stored)| {
        KnownBrowser::read(server, from.device?, user.id, factor, stored.as_deref()?)
    });
    // Tries by name and by address are of one account, however the address is written.
    let counted = match (&found, EmailAddress::parse(name)) {
        (Some((user, _)), _) => user.name.to_string(),
        (None, Ok(email)) => email.to_string(),
        // A directory knows it in capitals too.
        (None, Err(_)) => name.to_lowercase(),
    };
    let attempt = Attempt::of(server, (counted.as_str(), name), known, from.source, device);
    let owner = found.as_ref().map(|(user, _)| user.clone());
    let failed = |failure: Failure| {
        repeated::sign_in_failed(server, owner.as_ref(), &failure);
        failure
    };
    let _slowed = attempt.begin().await.map_err(&failed)?;
    let stored = found.as_ref().and_then(|(_, stored)| stored.clone());
    // Of who has no password here too: an unknown name costs the same.
    let checked = match server.hasher().check(&password, stored).await {
        Ok(checked) => checked,
        Err(failure) => {
            attempt.undone();
            return Err(failure);
        }
    };
    let asks = directory::checks(server, owner.as_ref())
        && !directory::is_near_other(server, name).map_err(&failed)?;
    let (user, stored, checked) = if asks {
        let sent = PasswordSent::default();
        match directory::admitted(server, name, &password, owner.as_ref(), &sent).await {
            Ok(user) => (user, NO_PASSWORD.to_owned(), PasswordCheck::Right),
            Err(failure) => {
                if directory::said_nothing(&failure) && !sent.was_noted() {
                    attempt.undone();
                }
                return Err(failed(failure));
            }
        }
    } else {
        match (checked, found) {
            (PasswordCheck::Right | PasswordCheck::RightButOld, Some((user, Some(stored)))) => {
                (user, stored, checked)
            }
            _ => {
                return Err(failed(refusals::sign_in_wrong().into()));
            }
        }
    };
    if user.is_shut_out(server.clock().now()) {
        return Err(failed(suspended().into()));
    }
    from_own_network(&user, from.source).map_err(|refusal| failed(refusal.into()))?;
    // Not before: from elsewhere a right guess counts as a wrong one does, and waits for it.
    attempt.forgiven();
    // A token does not age, so none is given for a password that did.
    if matches!(from.use_of, SignInUse::Token(_)) && is_aged(server, &user) {
        return Err(failed(refusals::password_change_needed().into()));
    }
    let stored = match checked {
        PasswordCheck::RightButOld => {
            let renewed = renew(server, user.id, &password, stored).await;
            renewed.map_err(&failed)?
        }
        PasswordCheck::Right | PasswordCheck::Wrong => stored,
    };
    enter(server, user, stored, None, from)
        .await
        .map_err(&failed)
}

/// Lets a user in whose first proof was right just now, or gives a ticket for the second one. `stored` is what is kept of
/// their password, `link` the hash of the sign-in link that they came by, which is taken with the sign-in.
///
/// Errors: `user.suspended`, `sign-in.wrong` where the password is another by now, `sign-in-link.spent`,
/// `sign-in.too-many`.
async fn enter(
    server: &Server,
    user: User,
    stored: String,
    link: Option<[u8; 32]>,
    from: SignInFrom<'_>,
) -> Result<SignInStep, Failure> {
    if user.second_factor {
        let ticket = second_factor::second_step(server, &user, &stored, link.as_ref());
        return Ok(SignInStep::CodeNeeded(ticket));
    }
    let signed_in = admit(server, user, from, move |rows, user| {
        if !still_proves(rows, user, &stored)? {
            return Err(refusals::sign_in_wrong().into());
        }
        // Another browser may have set one up meanwhile.
        if rows.second_factor_since(user.id)?.is_some() {
            return Err(refusals::second_factor_needed().at("/code").into());
        }
        if let Some(link) = &link {
            sign_in_link::take(rows, user, link)?;
        }
        record_sign_in(rows, user)
    });
    signed_in.await.map(SignInStep::Done)
}

/// Whether a password that was right a moment ago, kept as `stored`, is still the user's: an administrator may have
/// set another one, which ends all sign-ins, this one too.
///
/// Errors: `user.suspended`.
fn still_proves(rows: &Rows<'_>, user: &User, stored: &str) -> Result<bool, Failure> {
    if rows.user(user.id)?.is_some_and(|user| user.suspended) {
        return Err(suspended().into());
    }
    Ok(rows.password(user.id)?.as_deref() == Some(stored))
}

/// Hashes a right password by today's costs; gives what is kept of it now.
///
/// Errors: `sign-in.wrong` where it is another one by now.
async fn renew(
    server: &Server,
    user: UserId,
    password: &SecretText,
    stored: String,
) -> Result<String, Failure> {
    let renewed = server.hasher().hash(password).await?;
    let kept = server
        .catalog()
        .write(Lane::Requests, "renew a password's hash", move |rows| {
            // The password stays; the sign-in has its row.
            rows.mute_acts();
            match rows.renew_password(user, &stored, &renewed)? {
                true => Ok((Some(renewed), true)),
                false => Ok((rows.password(user)?, false)),
            }
        })
        .await?;
    match kept {
        (Some(renewed), true) => Ok(renewed),
        // Another sign-in renewed it at the same moment, or it was changed.
        (other, _) => match server.hasher().check(password, other.clone()).await? {
            PasswordCheck::Wrong => Err(refusals::sign_in_wrong().into()),
            PasswordCheck::Right | PasswordCheck::RightButOld => {
                other.ok_or_else(|| refusals::sign_in_wrong().into())
            }
        },
    }
}

/// The row of a sign-in, in the commit that admits.
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

/// Tells a user of a sign-in from a network that they never came from; of the first one nothing is told, nor of one from this
/// machine. It may be another who has their password.
fn note_place(rows: &Rows<'_>, user: &User, source: IpAddr) -> Result<(), Failure> {
    let Some(network) = networks::place(source) else {
        return Ok(());
    };
    if rows.signs_in_from(user.id, &network)? {
        return Ok(());
    }
    // The sign-in is the act, and has its row.
    rows.note_alone(NewEvent {
        actor: user.name.as_str(),
        topic: "users",
        object: &user.id.to_string(),
        scope: Scope::user(user.id),
        code: SIGNED_IN_ELSEWHERE,
        before: "",
        after: &source.to_canonical().to_string(),
    })
}

/// The row of a browser that ends because another one of its user signs in.
fn record_end(rows: &Rows<'_>, user: &User, browser: Uuid) -> Result<(), Failure> {
    rows.record(NewAct {
        actor: ActingUser::Known {
            user: user.id,
            name: user.name.as_str(),
            domain: user.domain,
        },
        act: rules::codes::SIGN_IN_ENDED,
        topic: "users",
        object: &user.id.to_string(),
        scope: Scope::user(user.id),
        before: "",
        after: &browser.to_string(),
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
            if rows.forget_browser(session.0, user)?.is_none() {
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
/// sign-in alone, so that a thief of an open browser guesses slowly and no other sign-in waits for it. All tokens of a
/// user have one count: whoever has one makes others.
///
/// Errors: `sign-in.locked` while it has to wait, `sign-in.busy`, `directory.…` of a user of a directory, `provider.again`
/// of one of an identity provider who proved nothing anew.
pub(crate) async fn prove_again(
    server: &Server,
    caller: &Caller,
    password: &SecretText,
    stored: Option<String>,
) -> Result<PasswordCheck, Failure> {
    let by = match caller.via {
        Via::Browser { session } => session.0.into_bytes(),
        Via::Token { .. } | Via::SshKey { .. } | Via::Session { .. } => {
            caller.subject.user.0.into_bytes()
        }
        Via::LocalRoot => [0; 16],
    };
    let attempt = Attempt::of_own(server, caller.name.as_str(), caller.subject.user, &by);
    let _slowed = attempt.begin().await?;
    let user = server
        .catalog()
        .read_now("find a user", |view| view.user(caller.subject.user))?;
    let sent = PasswordSent::default();
    let checked = match user {
        Some(user) if user.source == UserSource::Directory => {
            directory::proves(server, &user, password, &sent).await
        }
        Some(user) if matches!(user.source, UserSource::Provider | UserSource::Saml) => {
            provider::proves(server, caller)
        }
        Some(_) | None => server.hasher().check(password, stored).await,
    };
    match &checked {
        Ok(PasswordCheck::Wrong) => {}
        Ok(PasswordCheck::Right | PasswordCheck::RightButOld) => attempt.forgiven(),
        // A directory that has the password may have said no to it.
        Err(_) if sent.was_noted() => {}
        Err(_) => attempt.undone(),
    }
    checked
}

/// Writes a sign-in and gives its cookie, or the token that it is traded for. `also` is written with it, or neither is.
///
/// Errors: `sign-in.too-many`, `token.too-many`.
async fn admit(
    server: &Server,
    user: User,
    from: SignInFrom<'_>,
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
        source: from.source.to_string(),
        agent: from
            .agent
            .chars()
            .filter(|c| c.is_ascii_graphic() || *c == ' ')
            .take(MAX_AGENT)
            .collect(),
    };
    let drawn = match from.use_of {
        SignInUse::Browser => None,
        SignInUse::Token(new) => Some(new.draw(user.id, now)),
    };
    let (via, scopes) = match &drawn {
        Some(drawn) => (
            Via::Token { id: drawn.row.id },
            Some(drawn.row.scopes.clone()),
        ),
        None => {
            let session = BrowserSessionId(browser.id);
            (Via::Browser { session }, None)
        }
    };
    let (token, secret) = match drawn {
        Some(drawn) => (Some((drawn.row, drawn.hash)), Some(drawn.secret)),
        None => (None, None),
    };
    let ends_at = browser.ends_at;
    let caller = caller(&user, scopes, via, from.source, now);
    let id = user.id;
    let settings = server.settings();
    let full = match settings.sign_ins_full.as_str() {
        "refuse" => FullSignIns::Refuse,
        _ => FullSignIns::EndOldest,
    };
    let (opens_browser, setting) = (token.is_none(), settings.sign_ins);
    let source = from.source;
    let (token, factor, stored) = server
        .catalog()
        .write(Lane::Requests, "sign in", move |rows| {
            also(rows, &user)?;
            rows.signs_in(user.id)?;
            note_place(rows, &user, source)?;
            // What was proven just now: a user with a second factor proved it too.
            let factor = rows.second_factor_since(user.id)?;
            let stored = rows.password(user.id)?.unwrap_or_default();
            let most = match opens_browser {
                true => max_sign_ins(rows, &user, setting)?,
                false => None,
            };
            let mut ended = match most {
                Some(most) => rows.make_room_for_browser(user.id, most, full)?,
                None => Vec::new(),
            };
            // A sign-in that is traded for a token opens no browser: it must not take the place of a browser.
            let token = match token {
                None => {
                    ended.extend(rows.insert_browser(&browser, &hash)?);
                    None
                }
                Some((row, hash)) => {
                    tokens::insert(rows, &user.name, &row, &hash)?;
                    Some(tokens::shown(row))
                }
            };
            for browser in ended {
                record_end(rows, &user, browser)?;
            }
            Ok((token, factor, stored))
        })
        .await?;
    let device = from
        .device
        .and_then(|device| KnownBrowser::read(server, device, id, factor, &stored))
        .filter(|device| device.proved(factor))
        .unwrap_or_else(|| KnownBrowser::draw(id, factor, &stored));
    Ok(NewSignIn {
        cookie: cookie.reveal().to_owned(),
        device: device.cookie(server),
        ends_at,
        caller,
        token: token.zip(secret),
    })
}

/// How many browsers a user may be signed in with: what the setting says, or a policy that holds for them where that is
/// stricter. None: any number.
fn max_sign_ins(rows: &Rows<'_>, user: &User, setting: u32) -> Result<Option<u32>, Failure> {
    let home = rows.home_project(user.id, rows.now)?;
    let subjects = PolicySubjects {
        domain: user.domain,
        // Who is in no project has only those of site, domain and account.
        project: home.map_or(ProjectId(Uuid::nil()), |(_, project)| project),
        user: user.id,
    };
    let mut attached = rows.policies_of(&subjects)?;
    for allowance in rows.allowances_of(&subjects)? {
        for policy in &mut attached {
            policy.raise(&allowance);
        }
    }
    let of_policies = attached.iter().filter_map(|policy| policy.limits.sign_ins);
    let of_policies = of_policies.map(|most| u32::try_from(most.max(1)).unwrap_or(u32::MAX));
    let of_setting = Some(setting).filter(|most| *most > 0);
    Ok(of_policies.chain(of_setting).min())
}

fn caller(
    user: &User,
    scopes: Option<Vec<rules::permissions::Permission>>,
    via: Via,
    source: IpAddr,
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
        source: Some(source),
        must_change_password: user.must_change_password,
        second_factor_due: None,
        request: String::new(),
    }
}

/// A user as the reader of their own notices, whom no request proved. For work of the server that tells them something: no
/// door gets it.
pub(crate) fn reader(user: &User, now: Timestamp) -> Caller {
    let via = Via::Browser {
        session: BrowserSessionId(Uuid::nil()),
    };
    caller(user, None, via, IpAddr::from([0, 0, 0, 0]), now)
}

fn token_expired(end: Timestamp) -> Refusal {
    refusals::token_expired(end)
}

/// Errors: `sign-in.address-refused` for who comes from none of their networks.
fn from_own_network(user: &User, source: IpAddr) -> Result<(), Refusal> {
    match networks::admit(&user.networks, source) {
        true => Ok(()),
        false => Err(refusals::sign_in_address_refused(source)),
    }
}

fn suspended() -> Refusal {
    refusals::user_suspended()
}

/// Root on the machine, as rules see it.
fn root_subject() -> Subject {
    Subject {
        user: ROOT,
        grants: vec![Grant::SITE_ADMINISTRATOR, DEFAULT_MEMBER.grant],
        domain: rules::tenancy::DomainId::DEFAULT,
        scopes: None,
    }
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
        second_factor: false,
        source: UserSource::Local,
        password_set_at: None,
        domain: rules::tenancy::DomainId::DEFAULT,
        role,
        grants,
        language: String::new(),
        theme: "system".to_owned(),
        time_zone: String::new(),
        suspended: false,
        networks: Vec::new(),
        departs_at: None,
        expires_at: None,
        signed_in_at: None,
        created_at: now,
        generation: 1,
    }
}

#[cfg(test)]
pub(crate) mod tests;
