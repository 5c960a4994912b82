//! Good tokens, and one for each way in which a token can be bad.

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::json;

use super::*;

const NOW: i64 = 1_800_000_000;

pub(crate) struct TestSigner {
    pair: EcdsaKeyPair,
    id: &'static str,
}

impl TestSigner {
    pub(crate) fn new(id: &'static str) -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).unwrap();
        Self { pair, id }
    }

    /// The list of keys as a provider gives it, with one in it that signs nothing.
    pub(crate) fn list(&self) -> String {
        let point = self.pair.public_key().as_ref();
        let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let key = json!({
            "kty": "EC", "crv": "P-256", "use": "sig", "kid": self.id,
            "x": part(&point[1..33]), "y": part(&point[33..]),
        });
        json!({"keys": [{"kty": "oct"}, key]}).to_string()
    }

    fn keys(&self) -> Vec<ProviderKey> {
        provider_keys(&self.list()).unwrap()
    }

    pub(crate) fn token(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes());
        let signature = URL_SAFE_NO_PAD.encode(signature.unwrap().as_ref());
        format!("{signed}.{signature}")
    }
}

fn claims() -> Value {
    json!({
        "iss": "https://id.example.org", "aud": "fardel", "sub": "7", "nonce": "n",
        "iat": NOW, "exp": NOW + 300, "email": "kim@example.org", "email_verified": true,
        "name": "Kim",
    })
}

fn checked(token: &str, keys: &[ProviderKey]) -> Result<IdTokenClaims, IdTokenFault> {
    let expected = ExpectedToken {
        issuer: "https://id.example.org",
        audience: "fardel",
        nonce: &hash(&SecretText::from("n")),
        now: Timestamp::from_millis(NOW * 1000),
    };
    check(token, keys, expected)
}

/// An ID token of another issuer, audience or sign-in, an old one, an unsigned one and one of
/// another algorithm admit nobody.
#[test]
fn a_token_is_believed_only_as_a_whole() {
    let provider = TestSigner::new("a");
    let keys = provider.keys();
    assert_eq!(keys.len(), 1);
    let header = json!({"alg": "ES256", "kid": "a"});
    let good = checked(&provider.token(&header, &claims()), &keys).unwrap();
    assert_eq!((good.subject.as_str(), good.name.as_str()), ("7", "Kim"));
    assert_eq!(good.email.as_deref(), Some("kim@example.org"));
    let with = |name: &str, value: Value| {
        let mut claims = claims();
        claims[name] = value;
        checked(&provider.token(&header, &claims), &keys)
    };
    assert_eq!(
        with("iss", json!("https://id.example.org/")),
        Err(IdTokenFault::Issuer)
    );
    assert_eq!(with("aud", json!("another")), Err(IdTokenFault::Audience));
    assert_eq!(
        with("aud", json!(["fardel", "another"])),
        Err(IdTokenFault::Audience)
    );
    assert!(with("aud", json!(["fardel"])).is_ok());
    assert_eq!(with("azp", json!("another")), Err(IdTokenFault::Audience));
    assert_eq!(with("exp", json!(NOW - 60)), Err(IdTokenFault::Time));
    assert!(with("exp", json!(NOW - 59)).is_ok());
    assert_eq!(with("exp", Value::Null), Err(IdTokenFault::Time));
    assert_eq!(with("iat", json!(NOW + 61)), Err(IdTokenFault::Time));
    assert_eq!(with("nonce", json!("m")), Err(IdTokenFault::Nonce));
    assert_eq!(with("sub", json!("")), Err(IdTokenFault::Subject));
    assert_eq!(with("email_verified", json!(false)).unwrap().email, None);
}

#[test]
fn no_other_signature_will_do() {
    let (provider, other) = (TestSigner::new("a"), TestSigner::new("a"));
    let keys = provider.keys();
    let header = json!({"alg": "ES256", "kid": "a"});
    let token = provider.token(&header, &claims());
    assert_eq!(
        checked(&other.token(&header, &claims()), &keys),
        Err(IdTokenFault::Signature)
    );
    let (signed, _) = token.rsplit_once('.').unwrap();
    assert_eq!(
        checked(&format!("{signed}."), &keys),
        Err(IdTokenFault::Signature)
    );
    for algorithm in ["none", "None", "HS256", "RS512", ""] {
        let token = provider.token(&json!({"alg": algorithm, "kid": "a"}), &claims());
        assert_eq!(
            checked(&token, &keys),
            Err(IdTokenFault::Algorithm),
            "{algorithm}"
        );
    }
    // A signature of a curve is none of RSA, whatever the header says.
    let token = provider.token(&json!({"alg": "RS256", "kid": "a"}), &claims());
    assert_eq!(checked(&token, &keys), Err(IdTokenFault::Signature));
    let token = provider.token(&json!({"alg": "ES256", "kid": "b"}), &claims());
    assert_eq!(checked(&token, &keys), Err(IdTokenFault::Signature));
    let long = "a".repeat(MAX_ID_TOKEN + 1);
    for bad in ["", "..", "a.b.c", "a.b", long.as_str()] {
        assert_eq!(
            checked(bad, &keys),
            Err(IdTokenFault::Malformed),
            "{bad:.9}"
        );
    }
    assert_eq!(provider_keys("[]"), Err(IdTokenFault::Malformed));
}
