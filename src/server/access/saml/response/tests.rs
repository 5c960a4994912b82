//! Good responses, and one for each way in which a response can lie. The two files beside this one were signed by another
//! implementation (signxml 5.2 on libxml2), so that a mistake of ours is not made twice.

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

use super::super::canonical::canonical;
use super::*;

/// 2027-01-15T08:00:00Z, when all responses of these tests are made.
const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const ISSUER: &str = "https://id.example.org";
const SITE: &str = "https://fardel.example.org";
const RETURN: &str = "https://fardel.example.org/login/saml/return";
/// The key of `ecdsa.crt`, of tests alone.
const KEY: &str = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgQwJheWRkZO9iblMd9Jcwij8UUsjKXpp9uLT7wTsGRpeh\
                   RANCAASK2BwOjbKYL/evSf8dTd7oH6PI/GaOmUnRdPo1eNgPuzrW/O7ydbSmI+q5IfBDaQt+G/u7W9Plt4gTJA2/s6ji";

pub(crate) const CERTIFICATE: &str = include_str!("ecdsa.crt");

/// What a provider of these tests says; each test changes one thing.
#[derive(Debug, Clone)]
pub(crate) struct TestAssertion {
    pub issuer: String,
    pub name_id: String,
    pub format: &'static str,
    pub request: String,
    pub recipient: String,
    pub audience: String,
    pub not_before: &'static str,
    pub not_on_or_after: &'static str,
    pub proven_at: &'static str,
    pub user: String,
    pub groups: Vec<&'static str>,
}

impl TestAssertion {
    pub(crate) fn honest(request: &str) -> Self {
        Self {
            issuer: ISSUER.to_owned(),
            name_id: "id of kim".to_owned(),
            format: "persistent",
            request: request.to_owned(),
            recipient: RETURN.to_owned(),
            audience: SITE.to_owned(),
            not_before: "2027-01-15T07:59:00Z",
            not_on_or_after: "2027-01-15T08:05:00Z",
            proven_at: "2027-01-15T08:00:00Z",
            user: "kim".to_owned(),
            groups: vec!["staff"],
        }
    }

    /// The assertion without a signature.
    fn text(&self, id: &str) -> String {
        let groups: String = self
            .groups
            .iter()
            .map(|group| format!("<saml:AttributeValue>{group}</saml:AttributeValue>"))
            .collect();
        format!(
            "<saml:Assertion xmlns:saml=\"{OF_ASSERTIONS}\" ID=\"{id}\" Version=\"2.0\" IssueInstant=\"{}\">\
             <saml:Issuer>{}</saml:Issuer><saml:Subject>\
             <saml:NameID Format=\"urn:oasis:names:tc:SAML:2.0:nameid-format:{}\">{}</saml:NameID>\
             <saml:SubjectConfirmation Method=\"{BEARER}\"><saml:SubjectConfirmationData InResponseTo=\"{}\" \
             NotOnOrAfter=\"{}\" Recipient=\"{}\"/></saml:SubjectConfirmation></saml:Subject>\
             <saml:Conditions NotBefore=\"{}\" NotOnOrAfter=\"{}\"><saml:AudienceRestriction>\
             <saml:Audience>{}</saml:Audience></saml:AudienceRestriction></saml:Conditions>\
             <saml:AuthnStatement AuthnInstant=\"{}\"/><saml:AttributeStatement>\
             <saml:Attribute Name=\"uid\"><saml:AttributeValue>{}</saml:AttributeValue></saml:Attribute>\
             <saml:Attribute Name=\"groups\">{groups}</saml:Attribute>\
             </saml:AttributeStatement></saml:Assertion>",
            self.proven_at,
            self.issuer,
            self.format,
            self.name_id,
            self.request,
            self.not_on_or_after,
            self.recipient,
            self.not_before,
            self.not_on_or_after,
            self.audience,
            self.proven_at,
            self.user,
        )
    }

    /// A response with this assertion, signed as a provider signs it.
    pub(crate) fn response(&self) -> String {
        around(&self.request, &signed(&self.text("_a")))
    }

    /// The same with the signature over the response.
    fn signed_response(&self) -> String {
        signed(&around(&self.request, &self.text("_a")))
    }
}

/// A response around what stands in it.
fn around(request: &str, inside: &str) -> String {
    format!(
        "<samlp:Response xmlns:samlp=\"{OF_MESSAGES}\" ID=\"_r\" Version=\"2.0\" InResponseTo=\"{request}\" \
         Destination=\"{RETURN}\"><samlp:Status><samlp:StatusCode Value=\"{SUCCESS}\"/></samlp:Status>{inside}\
         </samlp:Response>"
    )
}

/// The signature of the first element of a text, by the key of the tests.
fn signature_of(text: &str) -> String {
    let read = document(text.as_bytes()).unwrap();
    let id = read.element(0).attribute("ID").unwrap();
    let form = canonical(&read, 0, None, &[]).unwrap();
    let digest = STANDARD.encode(Sha256::digest(form));
    let information = format!(
        "<ds:SignedInfo><ds:CanonicalizationMethod Algorithm=\"http://www.w3.org/2001/10/xml-exc-c14n#\">\
         </ds:CanonicalizationMethod>\
         <ds:SignatureMethod Algorithm=\"http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha256\"></ds:SignatureMethod>\
         <ds:Reference URI=\"#{id}\"><ds:Transforms>\
         <ds:Transform Algorithm=\"http://www.w3.org/2000/09/xmldsig#enveloped-signature\"></ds:Transform>\
         <ds:Transform Algorithm=\"http://www.w3.org/2001/10/xml-exc-c14n#\"></ds:Transform></ds:Transforms>\
         <ds:DigestMethod Algorithm=\"http://www.w3.org/2001/04/xmlenc#sha256\"></ds:DigestMethod>\
         <ds:DigestValue>{digest}</ds:DigestValue></ds:Reference></ds:SignedInfo>"
    );
    let declared = format!("<ds:SignedInfo xmlns:ds=\"{OF_SIGNATURES}\">");
    let bytes = information.replacen("<ds:SignedInfo>", &declared, 1);
    let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
    let random = SystemRandom::new();
    let key = STANDARD.decode(KEY).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, &key, &random).unwrap();
    let value = pair.sign(&random, bytes.as_bytes()).unwrap();
    let value = STANDARD.encode(value.as_ref());
    format!(
        "<ds:Signature xmlns:ds=\"{OF_SIGNATURES}\">{information}\
         <ds:SignatureValue>{value}</ds:SignatureValue></ds:Signature>"
    )
}

/// An element with its signature as its first child.
fn signed(text: &str) -> String {
    let signature = signature_of(text);
    text.replacen('>', &format!(">{signature}"), 1)
}

fn keys() -> PinnedKeys {
    PinnedKeys::read(CERTIFICATE).unwrap()
}

fn expected(request: &str) -> ExpectedResponse<'_> {
    ExpectedResponse {
        issuer: ISSUER,
        audience: SITE,
        recipient: RETURN,
        request,
        now: NOW,
    }
}

fn judged(text: &str) -> Result<SamlClaims, SamlFault> {
    read(text.as_bytes())?.claims(&keys(), expected("_request"))
}

fn fault(text: &str) -> SamlFault {
    judged(text).expect_err(text)
}

fn honest() -> TestAssertion {
    TestAssertion::honest("_request")
}

#[test]
fn a_response_that_another_implementation_signed_is_believed() {
    let own = PinnedKeys::read(include_str!("rsa.crt")).unwrap();
    let both = PinnedKeys::read(&format!("{CERTIFICATE}{}", include_str!("rsa.crt"))).unwrap();
    for (text, keys) in [
        (include_str!("signed_by_ecdsa.xml"), keys()),
        (include_str!("signed_by_rsa.xml"), own),
        (include_str!("signed_by_rsa.xml"), both),
    ] {
        let read = read(text.as_bytes()).unwrap();
        assert_eq!(read.request(), "_request");
        let claims = read.claims(&keys, expected("_request")).unwrap();
        assert_eq!(claims.name_id, "id of kim");
        assert_eq!(claims.proven_at, NOW);
        assert_eq!(claims.attribute("uid"), ["kim"]);
        assert_eq!(claims.attribute("cn"), ["\u{ae40} & Kim <\u{e9}>"]);
        assert!(claims.attribute("mail").is_empty());
        // One letter anywhere in what is signed.
        for (old, new) in [("id of kim", "id of kin"), ("08:05", "09:05")] {
            let changed = text.replace(old, new);
            let changed = super::read(changed.as_bytes()).unwrap();
            let told = changed.claims(&keys, expected("_request"));
            assert_eq!(told, Err(SamlFault::from(SignatureFault::Changed)), "{old}");
        }
    }
}

/// A response is believed where the response, the assertion or both are signed, by a key of the settings and no other one.
#[test]
fn the_pinned_key_alone_proves_a_response() {
    assert_eq!(judged(&honest().response()).unwrap().name_id, "id of kim");
    let whole = honest().signed_response();
    assert_eq!(judged(&whole).unwrap().attribute("groups"), ["staff"]);
    let both = signed(&honest().response());
    assert!(judged(&both).is_ok());
    // Each group in an attribute of its own, as some providers say them.
    let end = "</saml:AttributeStatement>";
    let more = "<saml:Attribute Name=\"groups\"><saml:AttributeValue>lab</saml:AttributeValue></saml:Attribute>";
    let bare = honest()
        .text("_a")
        .replacen(end, &format!("{more}{end}"), 1);
    let told = judged(&around("_request", &signed(&bare))).unwrap();
    assert_eq!(told.attribute("groups"), ["staff", "lab"]);
    // A blank that is none of XML makes another name.
    let spaced = TestAssertion {
        name_id: " id of kim\u{a0} ".to_owned(),
        ..honest()
    };
    let told = judged(&spaced.response()).unwrap();
    assert_eq!(told.name_id, "id of kim\u{a0}");
    let unsigned = around("_request", &honest().text("_a"));
    assert_eq!(fault(&unsigned), SamlFault::Unsigned);
    // The key that the response brings along is not looked at.
    let foreign = include_str!("signed_by_rsa.xml");
    assert_eq!(fault(foreign), SamlFault::from(SignatureFault::Key));
    let text = honest().response();
    let (before, after) = text.split_once("<ds:SignatureValue>").unwrap();
    let (value, after) = after.split_once('<').unwrap();
    let mut value = STANDARD.decode(value).unwrap();
    value[7] ^= 1;
    let value = STANDARD.encode(value);
    let bent = format!("{before}<ds:SignatureValue>{value}<{after}");
    assert_eq!(fault(&bent), SamlFault::from(SignatureFault::Key));
    // A bad signature is no good beside a good one.
    let half = both.replacen("Destination", "Consent=\"a\" Destination", 1);
    assert_eq!(fault(&half), SamlFault::from(SignatureFault::Changed));
}

/// Eight ways to put a forged assertion beside the signed one (XSW 1 to 8 of Somorovsky and others, 2012), and a few more:
/// none is believed.
#[test]
fn a_wrapped_signature_proves_nothing_else() {
    let good = honest();
    let forged = TestAssertion {
        name_id: "id of mina".to_owned(),
        user: "mina".to_owned(),
        ..honest()
    };
    let bare = good.text("_a");
    let proof = signature_of(&bare);
    let own = signed(&bare);
    let evil = forged.text("_evil");
    let within = |outer: &str, inner: &str| outer.replacen('>', &format!(">{inner}"), 1);
    let object = |inner: &str| {
        let object = format!("<ds:Object>{inner}</ds:Object></ds:Signature>");
        proof.replace("</ds:Signature>", &object)
    };
    let whole = around("_request", &bare);
    let of_whole = signature_of(&whole);
    let evil_whole = around("_request", &evil).replacen("\"_r\"", "\"_other\"", 1);
    let around_whole = of_whole.replace(
        "</ds:Signature>",
        &format!("<ds:Object>{whole}</ds:Object></ds:Signature>"),
    );
    let extensions = format!("<samlp:Extensions>{evil}</samlp:Extensions>");
    let same = forged.text("_a");
    for (name, text) in [
        ("1", within(&evil_whole, &around_whole)),
        ("2", within(&evil_whole, &format!("{whole}{of_whole}"))),
        ("3", around("_request", &format!("{evil}{own}"))),
        ("4", around("_request", &within(&evil, &own))),
        (
            "5",
            around("_request", &format!("{}{bare}", within(&evil, &proof))),
        ),
        ("6", around("_request", &within(&evil, &object(&bare)))),
        ("7", around("_request", &format!("{extensions}{own}"))),
        (
            "8",
            around(
                "_request",
                &format!("{own}<ds:Object xmlns:ds=\"{OF_SIGNATURES}\">{evil}</ds:Object>"),
            ),
        ),
        ("behind", around("_request", &format!("{own}{evil}"))),
        ("two signatures", around("_request", &within(&own, &proof))),
        (
            "elsewhere",
            around(
                "_request",
                &format!("<samlp:Extensions>{own}</samlp:Extensions>"),
            ),
        ),
        (
            "of another",
            around("_request", &bare).replacen(
                "<samlp:Status>",
                &format!("<samlp:Extensions>{proof}</samlp:Extensions><samlp:Status>"),
                1,
            ),
        ),
        (
            "namespace",
            around("_request", &format!("{own}<Assertion/>")),
        ),
    ] {
        assert_eq!(fault(&text), SamlFault::Shape, "{name}");
    }
    // Where the forged one takes the identifier of the signed one.
    let doubled = around("_request", &format!("{same}{own}"));
    assert_eq!(fault(&doubled), SamlFault::Identifier);
    let hidden = around("_request", &format!("{own}<x Id=\"_a\"/>"));
    assert_eq!(fault(&hidden), SamlFault::Identifier);
    // The signature of the other one, moved over.
    let moved = around("_request", &within(&evil, &proof));
    assert_eq!(fault(&moved), SamlFault::from(SignatureFault::Reference));
    let renamed = around("_request", &within(&same, &proof));
    assert_eq!(fault(&renamed), SamlFault::from(SignatureFault::Changed));
    let nothing = around("_request", &own.replacen("URI=\"#_a\"", "URI=\"\"", 1));
    assert_eq!(fault(&nothing), SamlFault::from(SignatureFault::Reference));
}

#[test]
fn a_signature_has_one_shape_and_strong_algorithms() {
    let with = |old: &str, new: &str| {
        let text = honest().response();
        assert!(text.contains(old), "{old}");
        fault(&text.replacen(old, new, 1))
    };
    let algorithm = SamlFault::from(SignatureFault::Algorithm);
    for (old, new) in [
        ("xmldsig-more#ecdsa-sha256", "xmldsig-more#hmac-sha256"),
        (
            "2001/04/xmldsig-more#ecdsa-sha256",
            "2000/09/xmldsig#rsa-sha1",
        ),
        ("2001/04/xmlenc#sha256", "2000/09/xmldsig#sha1"),
        ("2001/10/xml-exc-c14n#", "TR/2001/REC-xml-c14n-20010315"),
        (
            "2001/10/xml-exc-c14n#\"",
            "2001/10/xml-exc-c14n#WithComments\"",
        ),
        (
            "2000/09/xmldsig#enveloped-signature",
            "TR/1999/REC-xslt-19991116",
        ),
        (
            "2000/09/xmldsig#enveloped-signature",
            "2001/10/xml-exc-c14n#",
        ),
    ] {
        assert_eq!(with(old, new), algorithm, "{new}");
    }
    let shape = SamlFault::from(SignatureFault::Shape);
    for (old, new) in [
        ("<ds:Reference ", "text<ds:Reference "),
        ("</ds:Reference>", "</ds:Reference><ds:Reference/>"),
        ("</ds:SignedInfo>", "</ds:SignedInfo><ds:SignedInfo/>"),
        ("<ds:SignatureValue>", "<ds:SignatureValue>!"),
        ("</ds:Transforms>", "<ds:Transform/></ds:Transforms>"),
    ] {
        assert_eq!(with(old, new), shape, "{new}");
    }
    let listed = |count: usize| {
        let all: Vec<String> = (0..count).map(|at| format!("p{at}")).collect();
        let form =
            "<ds:CanonicalizationMethod Algorithm=\"http://www.w3.org/2001/10/xml-exc-c14n#\">";
        let list = format!(
            "{form}<e:InclusiveNamespaces xmlns:e=\"http://www.w3.org/2001/10/xml-exc-c14n#\" PrefixList=\"{}\"/>",
            all.join(" ")
        );
        with(form, &list)
    };
    let key = SamlFault::from(SignatureFault::Key);
    assert_eq!(listed(16), key, "what was signed has no list");
    assert_eq!(listed(17), SamlFault::from(SignatureFault::Size));
    // A key of another kind than the algorithm.
    let other = with("ecdsa-sha256", "rsa-sha256");
    assert_eq!(other, SamlFault::from(SignatureFault::Key));
}

#[test]
fn a_text_with_two_readings_is_no_response() {
    let text = honest().response();
    let forbidden = SamlFault::from(XmlFault::Forbidden);
    let typed = format!("<!DOCTYPE samlp:Response [<!ENTITY a 'b'>]>{text}");
    assert_eq!(fault(&typed), forbidden);
    // A comment in a name that another reader takes for its end.
    let long = TestAssertion {
        name_id: "id of mina.example.org".to_owned(),
        ..honest()
    };
    let cut = long.response().replace("id of mina", "id of mina<!-- -->");
    assert_eq!(fault(&cut), forbidden);
    let instructed = text.replace("id of kim", "id of <?a b?>kim");
    assert_eq!(fault(&instructed), forbidden);
    let entity = text.replace("id of kim", "id of &kim;");
    assert_eq!(fault(&entity), forbidden);
    let marked = text.replace("id of kim", "<![CDATA[id of kim]]>");
    assert_eq!(fault(&marked), forbidden);
    // Elements in a name are no way around it.
    let parted = TestAssertion {
        name_id: "id of <b/>kim".to_owned(),
        ..honest()
    };
    assert_eq!(fault(&parted.response()), SamlFault::Shape);
    for name in ["EncryptedAssertion", "EncryptedID"] {
        let hidden = around(
            "_request",
            &format!("{}<{name}/>", signed(&honest().text("_a"))),
        );
        assert_eq!(fault(&hidden), SamlFault::Encrypted, "{name}");
    }
}

/// What a provider signed is believed for this site, this address, this request and this time alone.
#[test]
fn a_true_response_of_another_sign_in_admits_nobody() {
    let with = |change: fn(&mut TestAssertion)| {
        let mut assertion = honest();
        change(&mut assertion);
        fault(&assertion.response())
    };
    let subject = SamlFault::Subject;
    assert_eq!(
        with(|it| it.issuer = "https://id".into()),
        SamlFault::Issuer
    );
    assert_eq!(with(|it| it.audience.push('/')), SamlFault::Audience);
    assert_eq!(with(|it| it.recipient.push('/')), SamlFault::Recipient);
    assert_eq!(with(|it| it.request.push('x')), SamlFault::Request);
    assert_eq!(with(|it| it.name_id.clear()), subject);
    assert_eq!(with(|it| it.name_id = "a".repeat(MAX_NAME_ID + 1)), subject);
    assert_eq!(with(|it| it.format = "transient"), subject);
    // Clocks may differ by two minutes.
    let time = SamlFault::Time;
    assert_eq!(with(|it| it.not_on_or_after = "2027-01-15T07:58:00Z"), time);
    assert_eq!(with(|it| it.not_before = "2027-01-15T08:02:01Z"), time);
    assert_eq!(with(|it| it.proven_at = "2027-01-15T08:02:01Z"), time);
    assert_eq!(with(|it| it.not_on_or_after = "soon"), time);
    let skewed = TestAssertion {
        not_before: "2027-01-15T08:02:00Z",
        not_on_or_after: "2027-01-15T07:58:01Z",
        ..honest()
    };
    assert!(judged(&skewed.response()).is_ok());
    // The envelope's own words refuse, whether it is signed or not.
    let text = honest().response();
    let other = text.replacen(
        &format!("Destination=\"{RETURN}"),
        "Destination=\"https://x",
        1,
    );
    assert_eq!(fault(&other), SamlFault::Recipient);
    let failed = text.replacen("status:Success", "status:AuthnFailed", 1);
    assert_eq!(fault(&failed), SamlFault::Status("AuthnFailed".to_owned()));
    let none = around("_request", "");
    assert_eq!(fault(&none), SamlFault::Shape);
    let inner = "status:Responder\"><samlp:StatusCode Value=\"urn:oasis:names:tc:SAML:2.0:status:NoPassive\"/></samlp:StatusCode>";
    let none = none.replacen("status:Success\"/>", inner, 1);
    assert_eq!(fault(&none), SamlFault::Status("NoPassive".to_owned()));
    let told = none.replace("status:NoPassive", "Call this number");
    assert_eq!(fault(&told), SamlFault::Status("Responder".to_owned()));
    let strange = "<saml:Issuer xmlns:saml=\"urn:oasis:names:tc:SAML:2.0:assertion\">x</saml:Issuer><samlp:Status>";
    let strange = text.replacen("<samlp:Status>", strange, 1);
    assert_eq!(fault(&strange), SamlFault::Issuer);
    // What is there to restrict is there, and nothing that is not known here.
    let resigned = |old: &str, new: &str| {
        let bare = honest().text("_a");
        assert!(bare.contains(old), "{old}");
        fault(&around("_request", &signed(&bare.replacen(old, new, 1))))
    };
    let restriction = format!(
        "<saml:AudienceRestriction><saml:Audience>{SITE}</saml:Audience></saml:AudienceRestriction>"
    );
    assert_eq!(resigned(&restriction, ""), SamlFault::Audience);
    let twice = format!("{restriction}{}", restriction.replace(SITE, "another"));
    assert_eq!(resigned(&restriction, &twice), SamlFault::Audience);
    let more = format!("{restriction}<saml:Condition/>");
    assert_eq!(resigned(&restriction, &more), SamlFault::Condition);
    assert_eq!(resigned("cm:bearer", "cm:sender-vouches"), subject);
    let statement = "<saml:AuthnStatement AuthnInstant=\"2027-01-15T08:00:00Z\"/>";
    assert_eq!(resigned(statement, ""), SamlFault::Shape);
}
