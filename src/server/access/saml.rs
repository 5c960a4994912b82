//! Users whom an identity provider proves by SAML 2.0: a request in the address that the browser is led to, a response that
//! the browser posts back. Off until a provider is set. Asks no server: what is believed is signed by the key of a certificate
//! that the settings name. The post comes from another site and so without our cookie; what it proves is kept until the
//! browser that posted fetches it, which has to be the one that began.

use std::io::Read as _;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use api::secret::SecretText;
use base::settings::Settings;
use base::tls::pinned::PinnedKeys;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rules::directory::MAX_GROUPS;
use rules::provider::with_parameters;
use rules::refusal::Refusal;
use rules::refusals;
use rules::users::{User, UserSource};
use serde::Deserialize;

use super::attempts::{Attempt, network};
use super::begun_sign_ins::{BegunSignIn, BegunSignIns, kept_next};
use super::external_user::{ExternalEntry, ExternalRules, take_up};
use super::provider::{ProviderOutcome, ProviderStart};
use super::secret::{self, hash};
use super::{Caller, SignInFrom, Via, enter, from_own_network, repeated};
use crate::catalog::external_users::EntryOwner;
use crate::catalog::users::NO_PASSWORD;
use crate::{Failure, Server};

mod canonical;
mod response;
mod signature;
mod xml;

use response::{
    ExpectedResponse, OF_ASSERTIONS, OF_MESSAGES, ReadResponse, SKEW_SECONDS, SamlClaims, SamlFault,
};

/// Bytes of the file of certificates.
const MAX_CERTIFICATE_BYTES: u64 = 128 << 10;
/// Seconds after which a sign-in may try again that a file of ours was in the way of.
const RETRY_SECONDS: u64 = 10;
/// Where responses go, below the origin of this site.
pub const SAML_RETURN: &str = "/login/saml/return";
/// Where the metadata of this site are, below its origin.
pub const SAML_METADATA: &str = "/login/saml/metadata";
/// What the setting of the user name says for the name identifier itself.
const NAME_ID: &str = "NameID";

/// What was begun; each with what its response proves, once that is here.
#[derive(Default)]
pub(crate) struct SamlSignIns {
    begun: BegunSignIns<Option<SamlClaims>>,
}

/// What a browser posts for a provider.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct SamlPost {
    #[serde(rename = "SAMLResponse")]
    response: String,
}

/// What sign-in pages call the provider; None where there is none.
pub fn saml_name(server: &Server) -> Option<String> {
    let settings = server.settings();
    settings.saml_issuer.as_ref()?;
    Some(settings.saml_name.trim().to_owned())
}

/// Whether the caller has no password, and proves by SAML who they are.
pub fn is_of_saml(server: &Server, caller: &Caller) -> bool {
    let user = server
        .catalog()
        .read_now("find a user", |view| view.user(caller.subject.user));
    user.is_ok_and(|user| user.is_some_and(|user| user.source == UserSource::Saml))
}

/// Begins a sign-in by SAML, or for a signed-in caller a new proof of who they are.
///
/// Errors: `provider.none`.
pub fn begin_by_saml(
    server: &Server,
    source: IpAddr,
    next: &str,
    again: Option<&Caller>,
) -> Result<ProviderStart, Failure> {
    let (settings, now) = (server.settings(), server.clock().now());
    let own = OwnAddresses::of(&settings);
    let (Some(_), Some(to)) = (&settings.saml_issuer, &settings.saml_sso_url) else {
        return Err(refusals::provider_none().into());
    };
    let to = to.trim();
    // An identifier begins with a letter or a line.
    let request = format!("_{}", secret::draw("").reveal());
    let again = again.and_then(|caller| match caller.via {
        Via::Browser { session } => Some((session.0, caller.subject.user)),
        Via::Token { .. } | Via::SshKey { .. } | Via::Session { .. } | Via::LocalRoot => None,
    });
    let force = match again {
        Some(_) => " ForceAuthn=\"true\"",
        None => "",
    };
    let message = format!(
        "<samlp:AuthnRequest xmlns:samlp=\"{OF_MESSAGES}\" xmlns:saml=\"{OF_ASSERTIONS}\" ID=\"{request}\" \
         Version=\"2.0\" IssueInstant=\"{now}\" Destination=\"{}\" AssertionConsumerServiceURL=\"{}\" \
         ProtocolBinding=\"urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST\"{force}>\
         <saml:Issuer>{}</saml:Issuer><samlp:NameIDPolicy AllowCreate=\"true\"/></samlp:AuthnRequest>",
        escaped(to),
        escaped(&own.response),
        escaped(&own.entity),
    );
    let message = STANDARD.encode(stored(&message));
    let browser = secret::draw("");
    let begun = BegunSignIn {
        browser: hash(&browser),
        network: network(source),
        next: kept_next(next),
        at: now,
        again,
        of: None,
    };
    let state = hash(&SecretText::from(request.as_str()));
    server.saml_sign_ins().begun.begin(state, begun);
    Ok(ProviderStart {
        to: with_parameters(to, &[("SAMLRequest", message.as_str())]),
        browser: browser.reveal().to_owned(),
    })
}

/// Takes a response in, and gives the browser that posts it a state under which it fetches what the response proves, if it
/// is the one that began. A response is taken once. Each failure counts against its address.
///
/// Errors: `provider.none`; `provider.response-wrong`; `provider.refused`; `provider.return-unknown` where it answers no
/// request of ours, or one that was answered; `provider.unreachable` where the certificate cannot be read; `sign-in.busy`.
pub async fn take_saml_response(
    server: &Server,
    posted: SamlPost,
    source: IpAddr,
) -> Result<String, Failure> {
    let taken = take(server, &posted, source).await;
    taken.inspect_err(|failure| repeated::sign_in_failed(server, None, failure))
}

async fn take(server: &Server, posted: &SamlPost, source: IpAddr) -> Result<String, Failure> {
    let settings = server.settings();
    let Some(issuer) = settings.saml_issuer.as_deref() else {
        return Err(refusals::provider_none().into());
    };
    let attempt = Attempt::of_return(server, source);
    let _slowed = attempt.begin().await?;
    let response = read_posted(posted).map_err(wrong)?;
    let (sign_ins, now) = (server.saml_sign_ins(), server.clock().now());
    let request = response.request().to_owned();
    let state = hash(&SecretText::from(request.as_str()));
    let waits = |begun: &BegunSignIn<Option<SamlClaims>>| begun.of.is_none();
    if sign_ins.begun.with(&state, now, waits) != Some(true) {
        return Err(refusals::provider_return_unknown().into());
    }
    let keys = match pinned(&settings).await {
        Ok(keys) => keys,
        Err(why) => {
            attempt.undone();
            tracing::warn!(%why, "no certificate of the identity provider to check a response by");
            let refusal = refusals::provider_unreachable();
            return Err(refusal.retry_after(RETRY_SECONDS).into());
        }
    };
    let own = OwnAddresses::of(&settings);
    let expected = ExpectedResponse {
        issuer: issuer.trim(),
        audience: &own.entity,
        recipient: &own.response,
        request: &request,
        now,
    };
    let claims = response.claims(&keys, expected).map_err(wrong)?;
    // Who began knows the request, and may have handed the way to the provider on to another user: only the browser that
    // posts learns this state, and only the one that began has the cookie.
    let fetch = secret::draw("");
    // Of two posts at once the first one is taken.
    let answered = hash(&fetch);
    if !sign_ins.begun.answer(&state, answered, now, Some(claims)) {
        return Err(refusals::provider_return_unknown().into());
    }
    attempt.forgiven();
    Ok(fetch.reveal().to_owned())
}

/// Ends what a browser began and a response answered; `browser` is its cookie.
///
/// Errors: `provider.return-unknown` for what was not begun in this browser, is over, or has no answer;
/// `provider.response-wrong` for one that proves no new sign-in; `sign-in.busy`; those of a directory's user.
pub async fn finish_by_saml(
    server: &Server,
    state: &str,
    browser: Option<&str>,
    from: SignInFrom<'_>,
) -> Result<ProviderOutcome, Failure> {
    let mut owner = None;
    let finished = finish(server, state, browser, from, &mut owner).await;
    finished.inspect_err(|failure| repeated::sign_in_failed(server, owner.as_ref(), failure))
}

/// As `finish_by_saml`; `owner` becomes the account that a good response is of.
async fn finish(
    server: &Server,
    state: &str,
    browser: Option<&str>,
    from: SignInFrom<'_>,
    owner: &mut Option<User>,
) -> Result<ProviderOutcome, Failure> {
    let settings = server.settings();
    let (sign_ins, now) = (server.saml_sign_ins(), server.clock().now());
    let state = hash(&SecretText::from(state));
    let browser = hash(&SecretText::from(browser.unwrap_or_default()));
    let unknown = refusals::provider_return_unknown;
    let answered = sign_ins.begun.with(&state, now, |begun| begun.of.is_some());
    if answered != Some(true) {
        return Err(unknown().into());
    }
    let begun = sign_ins.begun.take(&state, &browser, now);
    let begun = begun.ok_or_else(unknown)?;
    let claims = begun.of.ok_or_else(unknown)?;
    // The settings may have changed since the response was taken.
    if settings.saml_issuer.as_deref().map(str::trim) != Some(claims.issuer.as_str()) {
        return Err(unknown().into());
    }
    let attempt = Attempt::of_return(server, from.source);
    let _slowed = attempt.begin().await?;
    let entry = entry(&settings, &claims)?;
    let known = server.catalog().read_now("find a user's entry", |view| {
        view.owner_of_entry(UserSource::Saml, &entry.subject)
    })?;
    *owner = known.and_then(EntryOwner::user);
    if let Some((session, user)) = begun.again {
        let same_user = owner.as_ref().is_some_and(|owner| owner.id == user);
        if !same_user || claims.proven_at.plus_seconds(SKEW_SECONDS) < begun.at {
            tracing::warn!("a response by SAML proves no new sign-in");
            return Err(refusals::provider_response_wrong().into());
        }
        attempt.forgiven();
        server.provider_sign_ins().note_proven(session, now);
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

/// Looks at the certificate that responses are checked by, and says what is wrong; None where no provider is set.
pub(crate) async fn tried(server: &Server) -> Option<Result<(), String>> {
    let settings = server.settings();
    settings.saml_issuer.as_ref()?;
    Some(match pinned(&settings).await {
        Ok(keys) if keys.ends_at <= server.clock().now() => {
            Err(format!("the certificate ended at {}", keys.ends_at))
        }
        Ok(_) => Ok(()),
        Err(why) => Err(why),
    })
}

/// What this site says of itself to a provider; None where none is set.
pub fn saml_metadata(server: &Server) -> Option<String> {
    let settings = server.settings();
    settings.saml_issuer.as_ref()?;
    let own = OwnAddresses::of(&settings);
    Some(format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <md:EntityDescriptor xmlns:md=\"urn:oasis:names:tc:SAML:2.0:metadata\" entityID=\"{}\">\
         <md:SPSSODescriptor AuthnRequestsSigned=\"false\" WantAssertionsSigned=\"true\" \
         protocolSupportEnumeration=\"{OF_MESSAGES}\">\
         <md:NameIDFormat>urn:oasis:names:tc:SAML:2.0:nameid-format:persistent</md:NameIDFormat>\
         <md:AssertionConsumerService Binding=\"urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST\" \
         Location=\"{}\" index=\"0\" isDefault=\"true\"/></md:SPSSODescriptor></md:EntityDescriptor>\n",
        escaped(&own.entity),
        escaped(&own.response),
    ))
}

/// What this site is called, and where its responses go.
struct OwnAddresses {
    entity: String,
    response: String,
}

impl OwnAddresses {
    fn of(settings: &Settings) -> Self {
        let origin = settings.saml_origin.as_deref().unwrap_or_default().trim();
        let origin = origin.strip_suffix('/').unwrap_or(origin);
        let entity = match &settings.saml_entity_id {
            Some(entity) => entity.trim().to_owned(),
            None => format!("{origin}{SAML_METADATA}"),
        };
        Self {
            entity,
            response: format!("{origin}{SAML_RETURN}"),
        }
    }
}

fn read_posted(posted: &SamlPost) -> Result<ReadResponse, SamlFault> {
    let letters: String = posted.response.split_ascii_whitespace().collect();
    let bytes = STANDARD.decode(letters).map_err(|_| SamlFault::Shape)?;
    response::read(&bytes)
}

/// Why a response is refused stands in the log alone: its sender learns nothing.
fn wrong(fault: SamlFault) -> Refusal {
    tracing::warn!(error = %base::observe::chain(&fault), "a response by SAML was refused");
    match fault {
        SamlFault::Status(said) => refusals::provider_refused(said),
        _ => refusals::provider_response_wrong(),
    }
}

/// The keys of the provider, read again for each response.
async fn pinned(settings: &Arc<Settings>) -> Result<PinnedKeys, String> {
    let Some(path) = settings.saml_certificate_file.clone() else {
        return Err("saml_certificate_file is not set".to_owned());
    };
    let read = tokio::task::spawn_blocking(move || {
        let text = file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        PinnedKeys::read(&text).map_err(|refusal| format!("{}: {}", path.display(), refusal.code))
    });
    read.await
        .unwrap_or_else(|_| Err("the certificate was not read".to_owned()))
}

fn file(path: &Path) -> Result<String, std::io::Error> {
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(MAX_CERTIFICATE_BYTES)
        .read_to_string(&mut text)?;
    Ok(text)
}

/// What a response says of its user. Errors: `directory.too-many-groups`.
fn entry(settings: &Settings, claims: &SamlClaims) -> Result<ExternalEntry, Refusal> {
    let first = |name: &str| {
        let values = claims.attribute(name.trim());
        values.first().cloned().unwrap_or_default()
    };
    let groups = claims.attribute(settings.saml_groups.trim());
    if groups.len() > MAX_GROUPS {
        return Err(refusals::directory_too_many_groups(MAX_GROUPS));
    }
    let name = match settings.saml_user.trim() {
        NAME_ID => claims.name_id.clone(),
        attribute => first(attribute),
    };
    Ok(ExternalEntry {
        source: UserSource::Saml,
        asked: String::new(),
        // An identifier is of its issuer alone.
        subject: format!("{} {}", claims.issuer, claims.name_id),
        // Letters that look alike stay what they are: no name of this site has them.
        name: name.to_ascii_lowercase(),
        email: first(&settings.saml_email),
        full_name: first(&settings.saml_full_name),
        groups: groups.to_vec(),
    })
}

/// A text inside a message.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

/// A message as one stored block (RFC 1951, section 3.2.4): what the binding asks for, without a library for some hundred
/// bytes that it would make two hundred of.
fn stored(message: &str) -> Vec<u8> {
    let length = u16::try_from(message.len()).expect("the settings bound what a message holds");
    let mut block = vec![1_u8];
    block.extend(length.to_le_bytes());
    block.extend((!length).to_le_bytes());
    block.extend(message.as_bytes());
    block
}

#[cfg(test)]
mod tests;
