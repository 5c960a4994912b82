//! Checks a signature inside a document (XML Signature) in the one shape that SAML allows: over the element around it, in
//! exclusive canonical form, by a key that an administrator named. What the signature says of keys is never read.

use base::tls::pinned::{PinnedAlgorithm, PinnedKeys};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

use super::canonical::{EXCLUSIVE_FORM, canonical};
use super::xml::{XmlChild, XmlDocument};

/// Namespace of signatures.
pub(super) const OF_SIGNATURES: &str = "http://www.w3.org/2000/09/xmldsig#";
const ENVELOPED: &str = "http://www.w3.org/2000/09/xmldsig#enveloped-signature";
const SHA256: &str = "http://www.w3.org/2001/04/xmlenc#sha256";
const RSA_SHA256: &str = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256";
const ECDSA_SHA256: &str = "http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha256";

/// Prefixes that a signature lists beside those that are used. Each element looks at each of them.
const MAX_LISTED_PREFIXES: usize = 16;

/// Why a signature proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum SignatureFault {
    #[error("the signature has parts that are not read here, or lacks some")]
    Shape,
    #[error("the signature is not by RSA or ECDSA with SHA-256 in exclusive canonical form")]
    Algorithm,
    #[error("the signature is of another element than the one around it")]
    Reference,
    #[error("what was signed is too large in canonical form, or too many prefixes are listed")]
    Size,
    #[error("what was signed was changed")]
    Changed,
    #[error("no key of the pinned certificates made the signature")]
    Key,
}

/// Checks the signature at `signature`, an element right below `signed`, whose `ID` is `id`. Costs the bytes of the signed
/// element, and a check for each key of the kind.
///
/// Errors: the first thing that is wrong.
pub(super) fn check(
    document: &XmlDocument,
    signed: usize,
    signature: usize,
    id: &str,
    keys: &PinnedKeys,
) -> Result<(), SignatureFault> {
    let (information, value) = match parts(document, signature)?.as_slice() {
        [information, value] => (*information, *value),
        [information, value, keys] if is(document, *keys, "KeyInfo") => (*information, *value),
        _ => return Err(SignatureFault::Shape),
    };
    if !is(document, information, "SignedInfo") || !is(document, value, "SignatureValue") {
        return Err(SignatureFault::Shape);
    }
    let [form, method, reference] = named(
        document,
        information,
        ["CanonicalizationMethod", "SignatureMethod", "Reference"],
    )?;
    let own_prefixes = exclusive(document, form)?;
    let algorithm = match plain_algorithm(document, method)? {
        RSA_SHA256 => PinnedAlgorithm::RsaSha256,
        ECDSA_SHA256 => PinnedAlgorithm::EcdsaSha256,
        _ => return Err(SignatureFault::Algorithm),
    };
    let said = document.element(reference).attribute("URI");
    let meant = said.and_then(|uri| uri.strip_prefix('#'));
    if id.is_empty() || meant != Some(id) {
        return Err(SignatureFault::Reference);
    }
    let [transforms, digest_method, digest] = named(
        document,
        reference,
        ["Transforms", "DigestMethod", "DigestValue"],
    )?;
    let [enveloped, written] = named(document, transforms, ["Transform", "Transform"])?;
    if plain_algorithm(document, enveloped)? != ENVELOPED
        || plain_algorithm(document, digest_method)? != SHA256
    {
        return Err(SignatureFault::Algorithm);
    }
    let prefixes = exclusive(document, written)?;
    let bytes = canonical(document, signed, Some(signature), &prefixes);
    let bytes = bytes.ok_or(SignatureFault::Size)?;
    let found: [u8; 32] = Sha256::digest(&bytes).into();
    if decoded(document, digest)? != found {
        return Err(SignatureFault::Changed);
    }
    let bytes = canonical(document, information, None, &own_prefixes);
    let bytes = bytes.ok_or(SignatureFault::Size)?;
    match keys.signed(algorithm, &bytes, &decoded(document, value)?) {
        true => Ok(()),
        false => Err(SignatureFault::Key),
    }
}

fn is(document: &XmlDocument, at: usize, local: &str) -> bool {
    document.element(at).is(OF_SIGNATURES, local)
}

/// The elements right below one that has nothing but blanks between them.
fn parts(document: &XmlDocument, at: usize) -> Result<Vec<usize>, SignatureFault> {
    let blank = |child: &XmlChild| match child {
        XmlChild::Element(_) => true,
        XmlChild::Text(text) => text.trim().is_empty(),
    };
    match document.element(at).children.iter().all(blank) {
        true => Ok(document.below(at).collect()),
        false => Err(SignatureFault::Shape),
    }
}

/// The elements right below one, which have to be these in this order.
fn named<const N: usize>(
    document: &XmlDocument,
    at: usize,
    names: [&str; N],
) -> Result<[usize; N], SignatureFault> {
    let found: [usize; N] = parts(document, at)?
        .try_into()
        .map_err(|_| SignatureFault::Shape)?;
    let right = |(number, name): (&usize, &str)| is(document, *number, name);
    match found.iter().zip(names).all(right) {
        true => Ok(found),
        false => Err(SignatureFault::Shape),
    }
}

/// The algorithm of an element without parameters.
fn plain_algorithm(document: &XmlDocument, at: usize) -> Result<&str, SignatureFault> {
    match parts(document, at)?.is_empty() {
        true => Ok(document.element(at).attribute("Algorithm").unwrap_or("")),
        false => Err(SignatureFault::Algorithm),
    }
}

/// The prefixes of an element that asks for the exclusive canonical form.
fn exclusive(document: &XmlDocument, at: usize) -> Result<Vec<&str>, SignatureFault> {
    if document.element(at).attribute("Algorithm") != Some(EXCLUSIVE_FORM) {
        return Err(SignatureFault::Algorithm);
    }
    let list = match parts(document, at)?.as_slice() {
        [] => return Ok(Vec::new()),
        [list] => document.element(*list),
        _ => return Err(SignatureFault::Shape),
    };
    if !list.is(EXCLUSIVE_FORM, "InclusiveNamespaces") || !list.children.is_empty() {
        return Err(SignatureFault::Shape);
    }
    let prefixes = list.attribute("PrefixList").unwrap_or("");
    let prefixes = prefixes.split_ascii_whitespace().map(listed);
    let first: Vec<&str> = prefixes.take(MAX_LISTED_PREFIXES + 1).collect();
    match first.len() <= MAX_LISTED_PREFIXES {
        true => Ok(first),
        false => Err(SignatureFault::Size),
    }
}

/// A prefix as the list of a signature names it.
fn listed(prefix: &str) -> &str {
    match prefix {
        "#default" => "",
        other => other,
    }
}

/// The bytes that an element holds as base64, with blanks anywhere.
fn decoded(document: &XmlDocument, at: usize) -> Result<Vec<u8>, SignatureFault> {
    let text = document.text(at).ok_or(SignatureFault::Shape)?;
    let letters: String = text.split_ascii_whitespace().collect();
    STANDARD.decode(letters).map_err(|_| SignatureFault::Shape)
}
