//! Checks ID tokens of OpenID Connect providers: who signed, for whom, until when, and for which sign-in. Fetches nothing
//! and admits nobody; whoever asks a provider hands its keys over.

use api::secret::SecretText;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use rules::units::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::secret::{hash, same};

/// Bytes of a token; those of providers with many claims have some 4 KiB.
const MAX_ID_TOKEN: usize = 64 << 10;
/// Keys of one provider that are looked at.
const MAX_PROVIDER_KEYS: usize = 32;
/// Seconds by which the clocks of provider and server may differ.
pub(super) const SKEW_SECONDS: i64 = 60;
/// Longest subject that the standard allows.
const MAX_SUBJECT: usize = 255;

/// What a token has to say.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExpectedToken<'a> {
    /// The provider, letter by letter as it names itself.
    pub issuer: &'a str,
    /// What the provider calls this site.
    pub audience: &'a str,
    /// Hash of what was drawn for this sign-in.
    pub nonce: &'a [u8; 32],
    pub now: Timestamp,
}

/// What a good token says of a user. The subject alone is the identity; an address may be another's tomorrow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IdTokenClaims {
    pub subject: String,
    /// Seconds of the epoch when the user proved who they are; None where the provider does not say.
    pub proven_at: Option<i64>,
    /// Only where the provider says that it verified it.
    pub email: Option<String>,
    pub name: String,
    pub all: Value,
}

/// Why a token admits nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum IdTokenFault {
    #[error("the text is no signed token, or no list of keys")]
    Malformed,
    #[error("the algorithm is not RS256 or ES256 alone")]
    Algorithm,
    #[error("no key of the provider made the signature")]
    Signature,
    #[error("another issuer made the token")]
    Issuer,
    #[error("the token is for somebody else")]
    Audience,
    #[error("the token is over, or not of this time")]
    Time,
    #[error("the token is of another sign-in")]
    Nonce,
    #[error("the token names no user")]
    Subject,
}

/// A public key of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProviderKey {
    id: Option<String>,
    key: PublicKey,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum PublicKey {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// An uncompressed point of P-256.
    Curve(Vec<u8>),
}

#[derive(Deserialize)]
struct KeyList {
    keys: Vec<Value>,
}

/// The keys of a provider that can sign tokens; others in the list are left out.
///
/// Errors: `IdTokenFault::Malformed` for a text that is no list of keys.
pub(super) fn provider_keys(text: &str) -> Result<Vec<ProviderKey>, IdTokenFault> {
    let list: KeyList = serde_json::from_str(text).map_err(|_| IdTokenFault::Malformed)?;
    let keys = list.keys.iter().take(MAX_PROVIDER_KEYS);
    Ok(keys.filter_map(provider_key).collect())
}

fn provider_key(key: &Value) -> Option<ProviderKey> {
    let text = |name: &str| key.get(name).and_then(Value::as_str);
    let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?).ok();
    if text("use").is_some_and(|purpose| purpose != "sig") {
        return None;
    }
    let public = match (text("kty")?, text("crv")) {
        ("RSA", _) => PublicKey::Rsa {
            modulus: bytes("n")?,
            exponent: bytes("e")?,
        },
        ("EC", Some("P-256")) => {
            let point = [vec![4], bytes("x")?, bytes("y")?].concat();
            PublicKey::Curve(point)
        }
        _ => return None,
    };
    Some(ProviderKey {
        id: text("kid").map(str::to_owned),
        key: public,
    })
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// What a reader has to understand; this one understands nothing of the kind.
    crit: Option<Value>,
}

/// What a token says, where all of it is as expected. Costs a signature check for each key that may have made it.
///
/// Errors: the first thing that is wrong; nothing of a token is believed before its signature.
pub(super) fn check(
    token: &str,
    keys: &[ProviderKey],
    expected: ExpectedToken<'_>,
) -> Result<IdTokenClaims, IdTokenFault> {
    let malformed = IdTokenFault::Malformed;
    if token.len() > MAX_ID_TOKEN {
        return Err(malformed);
    }
    let (signed, signature) = token.rsplit_once('.').ok_or(malformed)?;
    let (header, payload) = signed.split_once('.').ok_or(malformed)?;
    let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| malformed);
    let header: Header = serde_json::from_slice(&decoded(header)?).map_err(|_| malformed)?;
    let signature = decoded(signature)?;
    if !matches!(header.alg.as_str(), "RS256" | "ES256") || header.crit.is_some() {
        return Err(IdTokenFault::Algorithm);
    }
    let may_be = |key: &&ProviderKey| header.kid.is_none() || key.id == header.kid;
    let made = |key: &ProviderKey| verifies(&header.alg, &key.key, signed.as_bytes(), &signature);
    if !keys.iter().filter(may_be).any(made) {
        return Err(IdTokenFault::Signature);
    }
    let claims: Value = serde_json::from_slice(&decoded(payload)?).map_err(|_| malformed)?;
    believed(claims, expected)
}

fn verifies(algorithm: &str, key: &PublicKey, signed: &[u8], signature: &[u8]) -> bool {
    match (algorithm, key) {
        ("RS256", PublicKey::Rsa { modulus, exponent }) => {
            let key = RsaPublicKeyComponents {
                n: modulus,
                e: exponent,
            };
            key.verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature)
                .is_ok()
        }
        ("ES256", PublicKey::Curve(point)) => {
            let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
            key.verify(signed, signature).is_ok()
        }
        _ => false,
    }
}

/// The claims of a token whose signature is right.
fn believed(claims: Value, expected: ExpectedToken<'_>) -> Result<IdTokenClaims, IdTokenFault> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str).unwrap_or_default();
    if text("iss") != expected.issuer {
        return Err(IdTokenFault::Issuer);
    }
    let (own, others) = match claims.get("aud") {
        Some(Value::String(audience)) => (audience == expected.audience, false),
        Some(Value::Array(all)) => (
            all.iter()
                .any(|one| one.as_str() == Some(expected.audience)),
            all.len() > 1,
        ),
        _ => (false, false),
    };
    // Of several, the token says whose it is.
    let party = claims.get("azp").and_then(Value::as_str);
    let strange = party.map_or(others, |party| party != expected.audience);
    if !own || strange {
        return Err(IdTokenFault::Audience);
    }
    let now = expected.now.as_millis() / 1000;
    let second = |name: &str| claims.get(name).and_then(Value::as_i64);
    let begun = |at: Option<i64>| at.is_none_or(|at| at <= now.saturating_add(SKEW_SECONDS));
    let over = second("exp").is_none_or(|end| end.saturating_add(SKEW_SECONDS) <= now);
    if over || !begun(second("iat")) || !begun(second("nbf")) {
        return Err(IdTokenFault::Time);
    }
    let said = text("nonce");
    if said.is_empty() || !same(&hash(&SecretText::from(said)), expected.nonce) {
        return Err(IdTokenFault::Nonce);
    }
    let subject = text("sub").to_owned();
    if subject.is_empty() || subject.len() > MAX_SUBJECT {
        return Err(IdTokenFault::Subject);
    }
    let verified = claims.get("email_verified").and_then(Value::as_bool) == Some(true);
    Ok(IdTokenClaims {
        subject,
        proven_at: second("auth_time"),
        email: verified
            .then(|| text("email").to_owned())
            .filter(|email| !email.is_empty()),
        name: text("name").to_owned(),
        all: claims,
    })
}

#[cfg(test)]
pub(super) mod tests;
