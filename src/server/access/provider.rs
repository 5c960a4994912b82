//! Users whom a provider of OpenID Connect proves: authorization code with PKCE. Pages lead the browser there and take it
//! back; what was begun is kept in memory by hash, for some minutes, and for the browser that began it. Nobody waits for
//! a provider longer than two seconds, and accounts of this site never ask one.

use std::collections::HashMap;
use std::io::Read as _;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::secret::SecretText;
use base::settings::Settings;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rules::directory::MAX_GROUPS;
use rules::provider::{WebAddress, configuration_of, encoded, parameters, with_parameters};
use rules::refusal::Refusal;
use rules::refusals;
use rules::units::Timestamp;
use rules::users::{User, UserSource};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::attempts::{Attempt, network};
use super::begun_sign_ins::{BegunSignIn, BegunSignIns, kept_next};
use super::external_user::{ExternalEntry, ExternalRules, take_up};
use super::id_token::{
    ExpectedToken, IdTokenClaims, IdTokenFault, ProviderKey, SKEW_SECONDS, check, provider_keys,
};
use super::password::PasswordCheck;
use super::secret::{self, hash};
use super::{Caller, SignInFrom, SignInStep, Via, enter, from_own_network, repeated};
use crate::catalog::external_users::EntryOwner;
use crate::catalog::users::NO_PASSWORD;
use crate::{Failure, Server};

mod http;

use http::{PostedForm, ProviderFault, ProviderRoute, ask};

/// Longest time of all questions of one step. Longer: users wait for a provider that is dead. Shorter: one behind a slow
/// line admits nobody.
const MAX_STEP: Duration = Duration::from_secs(2);
/// Steps that ask at once. More: a dead provider holds more of them for two seconds each.
const MAX_STEPS_AT_ONCE: usize = 16;
/// Seconds that a browser's new proof at the provider is good for.
const PROVEN_SECONDS: u64 = 300;
/// Seconds after which the configuration of a provider is read again.
const KNOWN_SECONDS: u64 = 600;
/// Seconds between two looks at a provider's keys because a token is signed by none of them.
const KEYS_SECONDS: u64 = 10;
/// Seconds after which a sign-in may ask again that a dead provider refused.
const RETRY_SECONDS: u64 = 10;
/// Bytes of the secret's file and of the file with the authority.
const MAX_FILE_BYTES: u64 = 128 << 10;
/// Letters of a code that a browser brings back.
const MAX_CODE: usize = 4_096;

/// What is begun, and what is known of the provider.
pub(crate) struct ProviderSignIns {
    /// Each with the hash of what was drawn for it and its token has to name.
    begun: BegunSignIns<[u8; 32]>,
    known: Mutex<Option<KnownProvider>>,
    /// Sign-ins of browsers that proved anew who they are, and when.
    proven: Mutex<HashMap<Uuid, Timestamp>>,
    turns: Semaphore,
    /// Of this process: makes nonce and verifier out of a state, so that neither is kept.
    key: ring::hmac::Key,
}

/// What a provider says of itself.
#[derive(Clone)]
struct KnownProvider {
    issuer: String,
    authorize: String,
    token: WebAddress,
    keys_at: WebAddress,
    keys: Arc<Vec<ProviderKey>>,
    keys_read_at: Timestamp,
    read_at: Timestamp,
    /// The secret goes into the form and not into a header.
    posts_secret: bool,
    /// It says on each return who it is.
    names_itself: bool,
}

#[derive(Deserialize)]
struct Configuration {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    code_challenge_methods_supported: Option<Vec<String>>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

#[derive(Deserialize)]
struct TokenAnswer {
    id_token: String,
}

/// Where to lead a browser, and the cookie by which it is known when it comes back.
#[derive(Debug)]
pub struct ProviderStart {
    pub to: String,
    pub browser: String,
}

/// What a browser brings back from a provider.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ProviderReturn {
    code: String,
    state: String,
    error: String,
    iss: Option<String>,
}

/// What came of a return.
#[derive(Debug)]
pub enum ProviderOutcome {
    /// The user is in, or needs a code; `next` is where they wanted to go.
    SignedIn { step: SignInStep, next: String },
    /// A signed-in user proved anew who they are.
    ProvenAgain,
}

/// Why a step came to nothing.
enum StepFault {
    Provider(ProviderFault),
    Token(IdTokenFault),
    /// The provider takes the code for none of its own.
    Code,
}

impl From<ProviderFault> for StepFault {
    fn from(fault: ProviderFault) -> Self {
        Self::Provider(fault)
    }
}

impl Default for ProviderSignIns {
    fn default() -> Self {
        let key = base::observe::random::<32>();
        Self {
            begun: BegunSignIns::default(),
            known: Mutex::default(),
            proven: Mutex::default(),
            turns: Semaphore::new(MAX_STEPS_AT_ONCE),
            key: ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &key),
        }
    }
}

impl ProviderSignIns {
    /// A secret that belongs to a state.
    fn derived(&self, what: &str, state: &str) -> String {
        let tag = ring::hmac::sign(&self.key, format!("{what} {state}").as_bytes());
        URL_SAFE_NO_PAD.encode(tag.as_ref())
    }

    pub(super) fn note_proven(&self, browser: Uuid, now: Timestamp) {
        let mut all = locked(&self.proven);
        all.retain(|_, at| now.seconds_since(*at) < PROVEN_SECONDS);
        all.insert(browser, now);
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What sign-in pages call the provider; None where there is none. Asks nobody.
pub fn provider_name(server: &Server) -> Option<String> {
    let settings = server.settings();
    settings.oidc_issuer.as_ref()?;
    Some(settings.oidc_name.trim().to_owned())
}

/// Whether the caller has no password, and proves at the provider who they are.
pub fn is_of_provider(server: &Server, caller: &Caller) -> bool {
    let user = server
        .catalog()
        .read_now("find a user", |view| view.user(caller.subject.user));
    user.is_ok_and(|user| user.is_some_and(|user| user.source == UserSource::Provider))
}

/// Whether a signed-in user of a provider, by OIDC or SAML, signed in there once more, in this browser, some minutes
/// ago at most.
///
/// Errors: `provider.again` where they did not.
pub(super) fn proves(server: &Server, caller: &Caller) -> Result<PasswordCheck, Failure> {
    let Via::Browser { session } = caller.via else {
        return Err(refusals::provider_again().into());
    };
    let now = server.clock().now();
    let proven = locked(&server.provider_sign_ins().proven)
        .get(&session.0)
        .is_some_and(|at| now.seconds_since(*at) < PROVEN_SECONDS);
    match proven {
        true => Ok(PasswordCheck::Right),
        false => Err(refusals::provider_again().into()),
    }
}

/// Begins a sign-in by the provider, or for a signed-in caller a new proof of who they are.
///
/// Errors: `provider.none`, `provider.unreachable` after two seconds, `directory.busy`.
pub async fn begin_by_provider(
    server: &Server,
    source: IpAddr,
    next: &str,
    again: Option<&Caller>,
) -> Result<ProviderStart, Failure> {
    let settings = server.settings();
    let now = server.clock().now();
    let known = within(server, learn(server, &settings, now)).await?;
    let sign_ins = server.provider_sign_ins();
    let (state, browser) = (secret::draw(""), secret::draw(""));
    let nonce = sign_ins.derived("nonce", state.reveal());
    let verifier = sign_ins.derived("verifier", state.reveal());
    let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
    let again = again.and_then(|caller| match caller.via {
        Via::Browser { session } => Some((session.0, caller.subject.user)),
        Via::Token { .. } | Via::SshKey { .. } | Via::Session { .. } | Via::LocalRoot => None,
    });
    let back = return_address(&settings);
    let client = settings.oidc_client.as_deref().unwrap_or_default().trim();
    let mut pairs = vec![
        ("response_type", "code"),
        ("client_id", client),
        ("redirect_uri", back.as_str()),
        ("scope", settings.oidc_scope.trim()),
        ("state", state.reveal()),
        ("nonce", nonce.as_str()),
        ("code_challenge", challenge.as_str()),
        ("code_challenge_method", "S256"),
    ];
    if again.is_some() {
        pairs.extend([("prompt", "login"), ("max_age", "0")]);
    }
    let to = with_parameters(&known.authorize, &pairs);
    let begun = BegunSignIn {
        browser: hash(&browser),
        network: network(source),
        next: kept_next(next),
        at: now,
        again,
        of: hash(&SecretText::from(nonce.as_str())),
    };
    sign_ins.begun.begin(hash(&state), begun);
    Ok(ProviderStart {
        to,
        browser: browser.reveal().to_owned(),
    })
}

/// Ends what a browser began, with what it brings back; `browser` is its cookie. Each failure counts against its address.
///
/// Errors: `provider.return-unknown` for what was not begun in this browser, or is over; `provider.refused`;
/// `provider.token-wrong`; `provider.unreachable` after two seconds; `sign-in.busy`; those of a directory's user.
pub async fn finish_by_provider(
    server: &Server,
    returned: ProviderReturn,
    browser: Option<&str>,
    from: SignInFrom<'_>,
) -> Result<ProviderOutcome, Failure> {
    let mut owner = None;
    let finished = finish(server, returned, browser, from, &mut owner).await;
    finished.inspect_err(|failure| repeated::sign_in_failed(server, owner.as_ref(), failure))
}

/// As `finish_by_provider`; `owner` becomes the account that a good token is of.
async fn finish(
    server: &Server,
    returned: ProviderReturn,
    browser: Option<&str>,
    from: SignInFrom<'_>,
    owner: &mut Option<User>,
) -> Result<ProviderOutcome, Failure> {
    let (sign_ins, now) = (server.provider_sign_ins(), server.clock().now());
    let state = returned.state.as_str();
    let browser = hash(&SecretText::from(browser.unwrap_or_default()));
    let begun = sign_ins
        .begun
        .take(&hash(&SecretText::from(state)), &browser, now);
    let begun = begun.ok_or_else(refusals::provider_return_unknown)?;
    if !returned.error.is_empty() {
        let word = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
        let said: String = returned.error.chars().filter(word).take(60).collect();
        return Err(refusals::provider_refused(said).into());
    }
    if returned.code.is_empty() || returned.code.len() > MAX_CODE {
        return Err(refusals::provider_return_unknown().into());
    }
    let attempt = Attempt::of_return(server, from.source);
    let _slowed = attempt.begin().await?;
    let settings = server.settings();
    let asked = exchange(server, &settings, &returned, &begun, now);
    let claims = match within(server, asked).await {
        Ok(claims) => claims,
        Err(failure) => {
            if super::directory::said_nothing(&failure) {
                attempt.undone();
            }
            return Err(failure);
        }
    };
    let entry = entry(&settings, claims.clone())?;
    let known = server.catalog().read_now("find a user's entry", |view| {
        view.owner_of_entry(UserSource::Provider, &entry.subject)
    })?;
    *owner = known.and_then(EntryOwner::user);
    if let Some((session, user)) = begun.again {
        let same_user = owner.as_ref().is_some_and(|owner| owner.id == user);
        let since = begun.at.as_millis() / 1000 - SKEW_SECONDS;
        if !same_user || claims.proven_at.is_none_or(|at| at < since) {
            return Err(token_wrong("it proves nobody anew").into());
        }
        attempt.forgiven();
        sign_ins.note_proven(session, now);
        return Ok(ProviderOutcome::ProvenAgain);
    }
    let user = take_up(server, entry, ExternalRules::of(server), None).await?;
    from_own_network(&user, from.source)?;
    attempt.forgiven();
    let step = enter(server, user, NO_PASSWORD.to_owned(), None, from).await?;
    Ok(ProviderOutcome::SignedIn {
        step,
        next: begun.next,
    })
}

/// Reads what the provider says of itself anew, and says what is wrong; None where no provider is set.
pub(crate) async fn tried(server: &Server) -> Option<Result<(), String>> {
    let settings = server.settings();
    let issuer = settings.oidc_issuer.as_deref()?.trim();
    let now = server.clock().now();
    let read = async {
        let route = route(&settings).await?;
        client_secret(&settings).await?;
        read_configuration(issuer, &route, now).await
    };
    let read = tokio::time::timeout(MAX_STEP, read).await;
    Some(match read.unwrap_or(Err(ProviderFault::Late)) {
        Ok(known) => {
            *locked(&server.provider_sign_ins().known) = Some(known);
            Ok(())
        }
        Err(fault) => Err(base::observe::chain(&fault)),
    })
}

/// Runs one step, for two seconds at most and with few others at once.
async fn within<T>(
    server: &Server,
    step: impl Future<Output = Result<T, StepFault>>,
) -> Result<T, Failure> {
    if server.settings().oidc_issuer.is_none() {
        return Err(refusals::provider_none().into());
    }
    let Ok(_turn) = server.provider_sign_ins().turns.try_acquire() else {
        return Err(refusals::directory_busy().retry_after(2).into());
    };
    let done = tokio::time::timeout(MAX_STEP, step).await;
    let fault = match done.unwrap_or(Err(StepFault::Provider(ProviderFault::Late))) {
        Ok(done) => return Ok(done),
        Err(StepFault::Token(fault)) => return Err(token_wrong(&fault.to_string()).into()),
        Err(StepFault::Code) => return Err(token_wrong("it takes the code for none").into()),
        Err(StepFault::Provider(fault)) => fault,
    };
    tracing::warn!(error = %base::observe::chain(&fault), "the identity provider was asked in vain");
    let refusal = refusals::provider_unreachable();
    Err(refusal.retry_after(RETRY_SECONDS).into())
}

fn token_wrong(why: &str) -> Refusal {
    refusals::provider_token_wrong(why)
}

fn return_address(settings: &Settings) -> String {
    let origin = settings.oidc_origin.as_deref().unwrap_or_default().trim();
    format!(
        "{}/login/return",
        origin.strip_suffix('/').unwrap_or(origin)
    )
}

/// What stands in files, read anew for each step.
async fn route(settings: &Arc<Settings>) -> Result<ProviderRoute, ProviderFault> {
    let settings = Arc::clone(settings);
    let read = tokio::task::spawn_blocking(move || {
        let unusable =
            |error: &dyn std::fmt::Display| ProviderFault::File(format!("the authority: {error}"));
        let tls = match &settings.oidc_ca_file {
            Some(path) => {
                let (pem, _) = file(path)?;
                base::tls::client::trusting(Some(&pem), false)
            }
            None => base::tls::client::trusting(None, true),
        };
        Ok::<_, ProviderFault>(ProviderRoute {
            tls: tls.map_err(|error| unusable(&error))?,
            hosts: std::fs::read_to_string("/etc/hosts").unwrap_or_default(),
        })
    });
    read.await.unwrap_or(Err(ProviderFault::Late))
}

/// The text of a file and its mode.
fn file(path: &Path) -> Result<(String, u32), ProviderFault> {
    let unusable =
        |error: std::io::Error| ProviderFault::File(format!("{}: {error}", path.display()));
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(unusable)?;
    let mode = file.metadata().map_err(unusable)?.mode();
    file.take(MAX_FILE_BYTES)
        .read_to_string(&mut text)
        .map_err(unusable)?;
    Ok((text, mode))
}

/// The secret of the client; None for one without.
async fn client_secret(settings: &Settings) -> Result<Option<SecretText>, ProviderFault> {
    let Some(path) = settings.oidc_secret_file.clone() else {
        return Ok(None);
    };
    let read = tokio::task::spawn_blocking(move || {
        let (text, mode) = file(&path)?;
        if mode & 0o077 != 0 {
            let why = format!("{}: others than its owner may read it", path.display());
            return Err(ProviderFault::File(why));
        }
        let line = text.lines().next().unwrap_or_default();
        Ok(Some(SecretText::from(line)))
    });
    read.await.unwrap_or(Err(ProviderFault::Late))
}

async fn learn(
    server: &Server,
    settings: &Arc<Settings>,
    now: Timestamp,
) -> Result<KnownProvider, StepFault> {
    // Anybody may begin, and reading the authorities takes milliseconds.
    if let Some(known) = remembered(server, settings, now) {
        return Ok(known);
    }
    let route = route(settings).await?;
    Ok(known(server, settings, &route, now).await?)
}

fn remembered(server: &Server, settings: &Settings, now: Timestamp) -> Option<KnownProvider> {
    let issuer = settings.oidc_issuer.as_deref().unwrap_or_default().trim();
    let known = locked(&server.provider_sign_ins().known).clone();
    known.filter(|known| known.issuer == issuer && now.seconds_since(known.read_at) < KNOWN_SECONDS)
}

/// What the provider says of itself, read some minutes ago at most.
async fn known(
    server: &Server,
    settings: &Settings,
    route: &ProviderRoute,
    now: Timestamp,
) -> Result<KnownProvider, ProviderFault> {
    let issuer = settings.oidc_issuer.as_deref().unwrap_or_default().trim();
    if let Some(known) = remembered(server, settings, now) {
        return Ok(known);
    }
    let read = read_configuration(issuer, route, now).await?;
    *locked(&server.provider_sign_ins().known) = Some(read.clone());
    Ok(read)
}

async fn read_configuration(
    issuer: &str,
    route: &ProviderRoute,
    now: Timestamp,
) -> Result<KnownProvider, ProviderFault> {
    let own = WebAddress::parse(issuer).ok_or(ProviderFault::Answer("the issuer's address"))?;
    let place = configuration_of(issuer);
    let place = WebAddress::parse(&place).ok_or(ProviderFault::Answer("the issuer's address"))?;
    let body = ask(route, &place, None).await?;
    let said: Configuration = serde_json::from_slice(&body)
        .map_err(|_| ProviderFault::Answer("its configuration cannot be read"))?;
    if said.issuer != issuer {
        return Err(ProviderFault::Answer(
            "its configuration is of another issuer",
        ));
    }
    let lacks = |list: &Option<Vec<String>>, word: &str| {
        let list = list.as_ref();
        list.is_some_and(|list| !list.iter().any(|one| one == word))
    };
    if lacks(&said.code_challenge_methods_supported, "S256") {
        return Err(ProviderFault::Answer("it takes no challenge by S256"));
    }
    // A provider on this machine may go without TLS, and then only to this machine.
    let address = |text: &str| {
        WebAddress::parse(text)
            .filter(|found| {
                let here = !own.encrypted && base::addresses::is_own_host(&found.host);
                found.encrypted || here
            })
            .ok_or(ProviderFault::Answer("an address of it is none over TLS"))
    };
    address(&said.authorization_endpoint)?;
    let methods = &said.token_endpoint_auth_methods_supported;
    let posts_secret =
        lacks(methods, "client_secret_basic") && !lacks(methods, "client_secret_post");
    let keys_at = address(&said.jwks_uri)?;
    Ok(KnownProvider {
        issuer: said.issuer,
        token: address(&said.token_endpoint)?,
        keys: read_keys(route, &keys_at).await?,
        keys_at,
        keys_read_at: now,
        read_at: now,
        authorize: said.authorization_endpoint,
        posts_secret,
        names_itself: said.authorization_response_iss_parameter_supported,
    })
}

async fn read_keys(
    route: &ProviderRoute,
    place: &WebAddress,
) -> Result<Arc<Vec<ProviderKey>>, ProviderFault> {
    let unreadable = || ProviderFault::Answer("its list of keys cannot be read");
    let body = ask(route, place, None).await?;
    let text = std::str::from_utf8(&body).map_err(|_| unreadable())?;
    let keys = provider_keys(text).map_err(|_| unreadable())?;
    Ok(Arc::new(keys))
}

/// Trades the code for an ID token, and gives what that says.
async fn exchange(
    server: &Server,
    settings: &Arc<Settings>,
    returned: &ProviderReturn,
    begun: &BegunSignIn<[u8; 32]>,
    now: Timestamp,
) -> Result<IdTokenClaims, StepFault> {
    let route = route(settings).await?;
    let mut known = known(server, settings, &route, now).await?;
    // Whoever mixes up two providers is told apart by the name on the return.
    match returned.iss.as_deref() {
        Some(named) if named != known.issuer => {
            return Err(StepFault::Token(IdTokenFault::Issuer));
        }
        None if known.names_itself => return Err(StepFault::Token(IdTokenFault::Issuer)),
        Some(_) | None => {}
    }
    let form = form(server, settings, &known, returned).await?;
    let body = match ask(&route, &known.token, Some(form)).await {
        Ok(body) => body,
        Err(ProviderFault::Status(400..500)) => return Err(StepFault::Code),
        Err(fault) => return Err(fault.into()),
    };
    let answer: TokenAnswer =
        serde_json::from_slice(&body).map_err(|_| ProviderFault::Answer("it gave no ID token"))?;
    let client = settings.oidc_client.as_deref().unwrap_or_default().trim();
    let issuer = known.issuer.clone();
    let expected = ExpectedToken {
        issuer: &issuer,
        audience: client,
        nonce: &begun.of,
        now,
    };
    let mut checked = check(&answer.id_token, &known.keys, expected);
    // A provider that changes its keys signs by one that was not there at the last look.
    if checked == Err(IdTokenFault::Signature)
        && now.seconds_since(known.keys_read_at) >= KEYS_SECONDS
    {
        known.keys = read_keys(&route, &known.keys_at).await?;
        known.keys_read_at = now;
        *locked(&server.provider_sign_ins().known) = Some(known.clone());
        checked = check(&answer.id_token, &known.keys, expected);
    }
    checked.map_err(StepFault::Token)
}

async fn form(
    server: &Server,
    settings: &Settings,
    known: &KnownProvider,
    returned: &ProviderReturn,
) -> Result<PostedForm, ProviderFault> {
    let verifier = server
        .provider_sign_ins()
        .derived("verifier", &returned.state);
    let back = return_address(settings);
    let client = settings.oidc_client.as_deref().unwrap_or_default().trim();
    let secret = client_secret(settings).await?;
    let mut pairs = vec![
        ("grant_type", "authorization_code"),
        ("code", returned.code.as_str()),
        ("redirect_uri", back.as_str()),
        ("code_verifier", verifier.as_str()),
    ];
    let authorization = match &secret {
        Some(secret) if known.posts_secret => {
            pairs.extend([("client_id", client), ("client_secret", secret.reveal())]);
            None
        }
        Some(secret) => {
            let pair = format!("{}:{}", encoded(client), encoded(secret.reveal()));
            Some(format!("Basic {}", STANDARD.encode(pair)))
        }
        None => {
            pairs.push(("client_id", client));
            None
        }
    };
    Ok(PostedForm {
        body: parameters(&pairs),
        authorization,
    })
}

/// What a token says of its user. Errors: `directory.too-many-groups`.
fn entry(settings: &Settings, claims: IdTokenClaims) -> Result<ExternalEntry, Refusal> {
    let said = |name: &str| claims.all.get(name);
    let groups = match said(settings.oidc_groups.trim()) {
        Some(Value::String(group)) => vec![group.clone()],
        Some(Value::Array(all)) => {
            if all.len() > MAX_GROUPS {
                return Err(refusals::directory_too_many_groups(MAX_GROUPS));
            }
            let texts = all.iter().filter_map(Value::as_str);
            texts.map(str::to_owned).collect()
        }
        _ => Vec::new(),
    };
    let name = said(settings.oidc_user.trim()).and_then(Value::as_str);
    let issuer = settings.oidc_issuer.as_deref().unwrap_or_default().trim();
    Ok(ExternalEntry {
        source: UserSource::Provider,
        asked: String::new(),
        // A subject is of its issuer alone.
        subject: format!("{issuer} {}", claims.subject),
        // Letters that look alike stay what they are: no name of this site has them.
        name: name.unwrap_or_default().to_ascii_lowercase(),
        email: claims.email.unwrap_or_default(),
        full_name: claims.name,
        groups,
    })
}

#[cfg(test)]
mod tests;
