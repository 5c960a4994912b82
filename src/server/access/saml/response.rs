//! Reads a response of a SAML 2.0 identity provider and says what it proves. One response, one assertion in it, each at its
//! place; what is read after the check is the very element that was checked. Fetches nothing and admits nobody.

use std::collections::{BTreeMap, BTreeSet};

use base::tls::pinned::PinnedKeys;
use rules::units::Timestamp;

use super::signature::{self, OF_SIGNATURES, SignatureFault};
use super::xml::{XmlDocument, XmlFault, document};

/// Namespaces of messages and of what they state.
pub(super) const OF_MESSAGES: &str = "urn:oasis:names:tc:SAML:2.0:protocol";
pub(super) const OF_ASSERTIONS: &str = "urn:oasis:names:tc:SAML:2.0:assertion";
const SUCCESS: &str = "urn:oasis:names:tc:SAML:2.0:status:Success";
const BEARER: &str = "urn:oasis:names:tc:SAML:2.0:cm:bearer";
const TRANSIENT: &str = "urn:oasis:names:tc:SAML:2.0:nameid-format:transient";
/// Words of the statuses by which a provider refuses (section 3.2.2.2 of the core of SAML 2.0).
const STATUS_WORDS: [&str; 9] = [
    "Requester",
    "VersionMismatch",
    "AuthnFailed",
    "InvalidNameIDPolicy",
    "NoAuthnContext",
    "NoPassive",
    "RequestDenied",
    "RequestUnsupported",
    "UnknownPrincipal",
];
/// Seconds by which the clocks of provider and server may differ.
pub(super) const SKEW_SECONDS: u64 = 120;
/// Longest name identifier that the standard allows.
const MAX_NAME_ID: usize = 256;

/// What a response has to say.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExpectedResponse<'a> {
    /// The provider, letter by letter as it names itself.
    pub issuer: &'a str,
    /// What the provider calls this site.
    pub audience: &'a str,
    /// The address to which responses are sent.
    pub recipient: &'a str,
    /// The request that it answers.
    pub request: &'a str,
    pub now: Timestamp,
}

/// What a good response says of a user. The name identifier alone is the identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SamlClaims {
    /// The provider that says it.
    pub issuer: String,
    pub name_id: String,
    /// When the user proved to the provider who they are.
    pub proven_at: Timestamp,
    /// Names of attributes and their texts, in their order. Some providers say each group in an attribute of its own.
    attributes: BTreeMap<String, Vec<String>>,
}

/// Why a response admits nobody.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum SamlFault {
    #[error(transparent)]
    Xml(#[from] XmlFault),
    #[error(transparent)]
    Signature(#[from] SignatureFault),
    #[error("the document is no response with one assertion in its place")]
    Shape,
    #[error("a part of the response is encrypted, which is not read here")]
    Encrypted,
    #[error("two parts of the response have one identifier")]
    Identifier,
    #[error("neither response nor assertion is signed")]
    Unsigned,
    #[error("the provider says {0}")]
    Status(String),
    #[error("another provider made the response")]
    Issuer,
    #[error("the assertion is for another site")]
    Audience,
    #[error("the response was for another address")]
    Recipient,
    #[error("the response answers another request")]
    Request,
    #[error("the assertion is over, or not of this time")]
    Time,
    #[error("the assertion names no user, or one by a name for this once")]
    Subject,
    #[error("the assertion has a condition that is not known here")]
    Condition,
}

/// A response that has its shape. Nothing in it is proven.
#[derive(Debug)]
pub(super) struct ReadResponse {
    document: XmlDocument,
    assertion: usize,
    /// The signatures of response and assertion.
    of_response: Option<usize>,
    of_assertion: Option<usize>,
}

impl SamlClaims {
    /// The texts of an attribute; none where it is not there.
    pub(super) fn attribute(&self, name: &str) -> &[String] {
        let found = self.attributes.get(name);
        found.map(Vec::as_slice).unwrap_or_default()
    }
}

/// Reads a response and looks whether it has the one shape that is taken. Costs one look at each byte.
///
/// Errors: the first thing that is wrong.
pub(super) fn read(bytes: &[u8]) -> Result<ReadResponse, SamlFault> {
    const ROOT: usize = 0;
    let document = document(bytes)?;
    let root = document.element(ROOT);
    if !root.is(OF_MESSAGES, "Response") || root.attribute("Version") != Some("2.0") {
        return Err(SamlFault::Shape);
    }
    let mut identifiers = BTreeSet::new();
    let mut assertions = Vec::new();
    let mut signatures = Vec::new();
    for (number, element) in document.elements().iter().enumerate() {
        for attribute in &element.attributes {
            let names = attribute.local.eq_ignore_ascii_case("id");
            if names && !identifiers.insert(attribute.value.as_str()) {
                return Err(SamlFault::Identifier);
            }
        }
        // By their local names alone: one of another namespace has no place here either.
        match element.local.as_str() {
            "Response" if number != ROOT => return Err(SamlFault::Shape),
            "Assertion" => assertions.push(number),
            "Signature" => signatures.push(number),
            "EncryptedAssertion" | "EncryptedID" | "EncryptedAttribute" | "EncryptedData" => {
                return Err(SamlFault::Encrypted);
            }
            _ => {}
        }
    }
    let assertion = match assertions[..] {
        [assertion] => assertion,
        [] => return Err(failed(&document)),
        _ => return Err(SamlFault::Shape),
    };
    let element = document.element(assertion);
    if !element.is(OF_ASSERTIONS, "Assertion")
        || element.parent != Some(ROOT)
        || element.attribute("Version") != Some("2.0")
    {
        return Err(SamlFault::Shape);
    }
    let (mut of_response, mut of_assertion) = (None, None);
    for number in signatures {
        let element = document.element(number);
        let place = match element.parent {
            Some(ROOT) => &mut of_response,
            Some(parent) if parent == assertion => &mut of_assertion,
            Some(_) | None => return Err(SamlFault::Shape),
        };
        if !element.is(OF_SIGNATURES, "Signature") || place.replace(number).is_some() {
            return Err(SamlFault::Shape);
        }
    }
    Ok(ReadResponse {
        document,
        assertion,
        of_response,
        of_assertion,
    })
}

impl ReadResponse {
    /// The request that the response says to answer; empty where it says none. Unproven.
    pub(super) fn request(&self) -> &str {
        let root = self.document.element(0);
        root.attribute("InResponseTo").unwrap_or_default()
    }

    /// What the response proves, where all of it is as expected. Nothing of it is believed before its signatures.
    ///
    /// Errors: the first thing that is wrong.
    pub(super) fn claims(
        &self,
        keys: &PinnedKeys,
        expected: ExpectedResponse<'_>,
    ) -> Result<SamlClaims, SamlFault> {
        self.succeeded()?;
        let signed = [(0, self.of_response), (self.assertion, self.of_assertion)];
        if signed.iter().all(|(_, signature)| signature.is_none()) {
            return Err(SamlFault::Unsigned);
        }
        // One that is wrong is no good beside one that is right.
        for (element, signature) in signed {
            if let Some(signature) = signature {
                let id = self.document.element(element).attribute("ID");
                let id = id.unwrap_or_default();
                signature::check(&self.document, element, signature, id, keys)?;
            }
        }
        self.answers(expected)?;
        let claims = self.subject(expected)?;
        self.conditions(expected)?;
        Ok(claims)
    }

    /// A status says why there is no assertion; that of a good response proves nothing.
    fn succeeded(&self) -> Result<(), SamlFault> {
        let status = self.one(0, OF_MESSAGES, "Status")?;
        let code = self.one(status, OF_MESSAGES, "StatusCode")?;
        let said = self.document.element(code).attribute("Value");
        let said = said.unwrap_or_default();
        if said == SUCCESS {
            return Ok(());
        }
        Err(SamlFault::Status(status_word(said).to_owned()))
    }

    /// What the envelope says, where it says anything: it may be unsigned, and then refuses and proves nothing.
    fn answers(&self, expected: ExpectedResponse<'_>) -> Result<(), SamlFault> {
        let root = self.document.element(0);
        let place = root.attribute("Destination");
        if place.is_some_and(|place| place != expected.recipient) {
            return Err(SamlFault::Recipient);
        }
        if root.attribute("InResponseTo") != Some(expected.request) {
            return Err(SamlFault::Request);
        }
        let issuer = self.all(0, OF_ASSERTIONS, "Issuer");
        for number in issuer {
            if self.text(number)? != expected.issuer {
                return Err(SamlFault::Issuer);
            }
        }
        let issuer = self.one(self.assertion, OF_ASSERTIONS, "Issuer")?;
        match self.text(issuer)? == expected.issuer {
            true => Ok(()),
            false => Err(SamlFault::Issuer),
        }
    }

    /// Who the user is, that the assertion is for this sign-in, and what it says of the user.
    fn subject(&self, expected: ExpectedResponse<'_>) -> Result<SamlClaims, SamlFault> {
        let subject = self.one(self.assertion, OF_ASSERTIONS, "Subject")?;
        let name = self.one(subject, OF_ASSERTIONS, "NameID")?;
        let name_id = self.text(name)?;
        let transient = self.document.element(name).attribute("Format") == Some(TRANSIENT);
        if transient || name_id.is_empty() || name_id.chars().count() > MAX_NAME_ID {
            return Err(SamlFault::Subject);
        }
        let mut confirmed = Err(SamlFault::Subject);
        for number in self.all(subject, OF_ASSERTIONS, "SubjectConfirmation") {
            if self.document.element(number).attribute("Method") == Some(BEARER) {
                confirmed = self.confirmed(number, expected);
                if confirmed.is_ok() {
                    break;
                }
            }
        }
        confirmed?;
        let mut proven_at: Option<Timestamp> = None;
        for number in self.all(self.assertion, OF_ASSERTIONS, "AuthnStatement") {
            let statement = self.document.element(number);
            let at = moment(statement.attribute("AuthnInstant").unwrap_or_default())?;
            let over = match statement.attribute("SessionNotOnOrAfter") {
                Some(end) => is_over(moment(end)?, expected.now),
                None => false,
            };
            if over || !has_begun(at, expected.now) {
                return Err(SamlFault::Time);
            }
            proven_at = proven_at.max(Some(at));
        }
        Ok(SamlClaims {
            issuer: expected.issuer.to_owned(),
            name_id: name_id.to_owned(),
            proven_at: proven_at.ok_or(SamlFault::Shape)?,
            attributes: self.attributes(),
        })
    }

    fn confirmed(&self, at: usize, expected: ExpectedResponse<'_>) -> Result<(), SamlFault> {
        let said = self.one(at, OF_ASSERTIONS, "SubjectConfirmationData")?;
        let said = self.document.element(said);
        if said.attribute("Recipient") != Some(expected.recipient) {
            return Err(SamlFault::Recipient);
        }
        if said.attribute("InResponseTo") != Some(expected.request) {
            return Err(SamlFault::Request);
        }
        let end = said.attribute("NotOnOrAfter").unwrap_or_default();
        timely(said.attribute("NotBefore"), Some(end), expected.now)
    }

    fn conditions(&self, expected: ExpectedResponse<'_>) -> Result<(), SamlFault> {
        let conditions = self.one(self.assertion, OF_ASSERTIONS, "Conditions")?;
        let said = self.document.element(conditions);
        let (begin, end) = (said.attribute("NotBefore"), said.attribute("NotOnOrAfter"));
        timely(begin, end, expected.now)?;
        let mut restricted = false;
        for number in self.document.below(conditions) {
            let condition = self.document.element(number);
            match (condition.namespace.as_str(), condition.local.as_str()) {
                (OF_ASSERTIONS, "AudienceRestriction") => {
                    let mut ours = false;
                    for audience in self.all(number, OF_ASSERTIONS, "Audience") {
                        ours |= self.text(audience)? == expected.audience;
                    }
                    if !ours {
                        return Err(SamlFault::Audience);
                    }
                    restricted = true;
                }
                // Each response is good once anyhow, and nothing is passed on.
                (OF_ASSERTIONS, "OneTimeUse" | "ProxyRestriction") => {}
                _ => return Err(SamlFault::Condition),
            }
        }
        match restricted {
            true => Ok(()),
            false => Err(SamlFault::Audience),
        }
    }

    /// All attributes; a value that is no text is left out.
    fn attributes(&self) -> BTreeMap<String, Vec<String>> {
        let mut attributes: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for statement in self.all(self.assertion, OF_ASSERTIONS, "AttributeStatement") {
            for number in self.all(statement, OF_ASSERTIONS, "Attribute") {
                let name = self.document.element(number).attribute("Name");
                let values = self.all(number, OF_ASSERTIONS, "AttributeValue");
                let texts = values
                    .into_iter()
                    .filter_map(|value| self.document.text(value))
                    .map(|text| text.trim().to_owned());
                let name = name.unwrap_or_default().to_owned();
                attributes.entry(name).or_default().extend(texts);
            }
        }
        attributes
    }

    /// The elements of a name right below one.
    fn all(&self, at: usize, namespace: &str, local: &str) -> Vec<usize> {
        let named = |number: &usize| self.document.element(*number).is(namespace, local);
        self.document.below(at).filter(named).collect()
    }

    /// The one element of a name right below another.
    fn one(&self, at: usize, namespace: &str, local: &str) -> Result<usize, SamlFault> {
        match self.all(at, namespace, local)[..] {
            [number] => Ok(number),
            _ => Err(SamlFault::Shape),
        }
    }

    /// The whole text of an element that holds nothing else. Blanks of other scripts are letters of a name: without them it
    /// could be another user's.
    fn text(&self, at: usize) -> Result<&str, SamlFault> {
        let text = self.document.text(at).ok_or(SamlFault::Shape)?;
        Ok(text.trim_matches([' ', '\t', '\n', '\r']))
    }
}

/// Why a response has no assertion: the innermost status that it names.
fn failed(document: &XmlDocument) -> SamlFault {
    let all = document.elements().iter().rev();
    let mut codes = all.filter(|element| element.is(OF_MESSAGES, "StatusCode"));
    match codes.find_map(|code| code.attribute("Value")) {
        Some(said) if said != SUCCESS => SamlFault::Status(status_word(said).to_owned()),
        Some(_) | None => SamlFault::Shape,
    }
}

/// The last word of a status that the standard knows: a page shows it, so it is none that a stranger thought of.
fn status_word(status: &str) -> &'static str {
    let word = status.rsplit(':').next().unwrap_or_default();
    let known = STATUS_WORDS.into_iter().find(|known| *known == word);
    known.unwrap_or("Responder")
}

fn moment(text: &str) -> Result<Timestamp, SamlFault> {
    Timestamp::parse(text).map_err(|_| SamlFault::Time)
}

fn has_begun(at: Timestamp, now: Timestamp) -> bool {
    at <= now.plus_seconds(SKEW_SECONDS)
}

fn is_over(end: Timestamp, now: Timestamp) -> bool {
    end.plus_seconds(SKEW_SECONDS) <= now
}

/// Whether now lies between two moments, of which each may be left out.
fn timely(begin: Option<&str>, end: Option<&str>, now: Timestamp) -> Result<(), SamlFault> {
    let begun = match begin {
        Some(begin) => has_begun(moment(begin)?, now),
        None => true,
    };
    let over = match end {
        Some(end) => is_over(moment(end)?, now),
        None => false,
    };
    match begun && !over {
        true => Ok(()),
        false => Err(SamlFault::Time),
    }
}

#[cfg(test)]
pub(super) mod tests;
