//! Sign-ins by a provider of SAML that is honest, lies, or says a thing twice.

use rules::units::Timestamp;

use super::super::begun_sign_ins::{BEGUN_SECONDS, MAX_BEGUN_OF_ADDRESS};
use super::super::tests::{GOOD, HERE, later, with_settings};
use super::super::{SignInStep, by_cookie, provider, sign_in};
use super::response::tests::{CERTIFICATE, TestAssertion};
use super::*;
use crate::catalog::Lane;
use crate::code;

/// A server whose users sign in by SAML, with the local administrator mina.
async fn asking(folder: &Path) -> (Server, Caller) {
    let certificate = folder.join("saml.pem");
    std::fs::write(&certificate, CERTIFICATE).unwrap();
    let text = format!(
        "saml_issuer = 'https://id.example.org'\n\
         saml_sso_url = 'https://id.example.org/sso?tenant=a'\n\
         saml_certificate_file = '{}'\n\
         saml_origin = 'https://fardel.example.org/'\n\
         saml_entity_id = 'https://fardel.example.org'\n\
         ldap_groups = 'staff -> default:member'\n",
        certificate.display()
    );
    std::fs::write(folder.join("fardel.toml"), text).unwrap();
    with_settings(folder).await
}

/// The request that a browser was led away with.
fn asked(start: &ProviderStart) -> String {
    let (_, value) = start.to.split_once("&SAMLRequest=").unwrap();
    let value = value.replace("%2B", "+").replace("%2F", "/");
    let block = STANDARD.decode(value.replace("%3D", "=")).unwrap();
    let length = u16::from_le_bytes([block[1], block[2]]);
    assert_eq!(block[0], 1);
    assert_eq!(u16::from_le_bytes([block[3], block[4]]), !length);
    assert_eq!(block.len(), 5 + usize::from(length));
    String::from_utf8(block[5..].to_vec()).unwrap()
}

fn attribute(message: &str, name: &str) -> String {
    let (_, rest) = message.split_once(&format!("{name}=\"")).unwrap();
    rest.split('"').next().unwrap().to_owned()
}

fn begun(server: &Server, again: Option<&Caller>) -> (ProviderStart, String) {
    let start = begin_by_saml(server, HERE, "/sessions", again).unwrap();
    let request = attribute(&asked(&start), " ID");
    (start, request)
}

fn post(text: &str) -> SamlPost {
    SamlPost {
        response: STANDARD.encode(text),
    }
}

async fn posted(server: &Server, assertion: &TestAssertion) -> Result<String, Failure> {
    take_saml_response(server, post(&assertion.response()), HERE).await
}

async fn fetched(
    server: &Server,
    state: &str,
    start: &ProviderStart,
) -> Result<ProviderOutcome, Failure> {
    finish_by_saml(server, state, Some(&start.browser), HERE.into()).await
}

async fn whole(
    server: &Server,
    change: impl FnOnce(&mut TestAssertion),
) -> Result<ProviderOutcome, Failure> {
    let (start, request) = begun(server, None);
    let mut assertion = TestAssertion::honest(&request);
    change(&mut assertion);
    let state = posted(server, &assertion).await?;
    fetched(server, &state, &start).await
}

/// The sign-in of an outcome.
async fn caller_of(server: &Server, outcome: ProviderOutcome) -> Caller {
    let ProviderOutcome::SignedIn { step, next } = outcome else {
        panic!("signed in");
    };
    assert_eq!(next, "/sessions");
    let SignInStep::Done(signed_in) = step else {
        panic!("no code was needed");
    };
    let caller = by_cookie(server, &signed_in.cookie, HERE).await;
    caller.unwrap().expect("the cookie is good")
}

/// A user of a SAML provider signs in by one response, in the browser that began and once only; the account is made at
/// the first sign-in and found again by its identifier.
#[tokio::test]
async fn a_response_admits_the_browser_that_began_once() {
    let folder = tempfile::tempdir().unwrap();
    let (server, _) = asking(folder.path()).await;
    assert_eq!(
        saml_name(&server).as_deref(),
        Some("single sign-on by SAML")
    );
    let (start, request) = begun(&server, None);
    let message = asked(&start);
    assert!(
        start
            .to
            .starts_with("https://id.example.org/sso?tenant=a&SAMLRequest=")
    );
    let back = "https://fardel.example.org/login/saml/return";
    assert_eq!(attribute(&message, "AssertionConsumerServiceURL"), back);
    assert!(message.contains("<saml:Issuer>https://fardel.example.org</saml:Issuer>"));
    assert!(!message.contains("ForceAuthn"));
    let unknown = rules::codes::PROVIDER_RETURN_UNKNOWN;
    // Before the answer is here there is nothing to fetch.
    assert_eq!(code(fetched(&server, &request, &start).await), unknown);
    let assertion = TestAssertion::honest(&request);
    let state = posted(&server, &assertion).await.unwrap();
    assert_eq!(code(posted(&server, &assertion).await), unknown, "a replay");
    for browser in [Some("another"), None] {
        let other = finish_by_saml(&server, &state, browser, HERE.into()).await;
        assert_eq!(code(other), unknown);
    }
    let outcome = fetched(&server, &state, &start).await.unwrap();
    let kim = caller_of(&server, outcome).await;
    assert_eq!(kim.name.as_str(), "kim");
    assert_eq!(code(fetched(&server, &state, &start).await), unknown);
    assert_eq!(code(posted(&server, &assertion).await), unknown, "a replay");
    // Another name of the same identifier is the same account, and it has no password.
    let again = whole(&server, |it| it.user = "kate".into()).await.unwrap();
    let again = caller_of(&server, again).await;
    assert_eq!(again.subject.user, kim.subject.user);
    let password = code(sign_in(&server, "kim", "", HERE).await);
    assert_eq!(password, "sign-in.wrong");
    let (_, late) = begun(&server, None);
    later(&server, BEGUN_SECONDS);
    let late = posted(&server, &TestAssertion::honest(&late)).await;
    assert_eq!(code(late), unknown);
}

/// Who begins a sign-in can hand the way to the provider on. What another user proves there is not for them: the state
/// under which it is fetched is told to the browser that posts, and not the request that both know.
#[tokio::test]
async fn what_another_browser_proved_is_not_for_the_one_that_began() {
    let folder = tempfile::tempdir().unwrap();
    let (server, _) = asking(folder.path()).await;
    let (start, request) = begun(&server, None);
    let state = posted(&server, &TestAssertion::honest(&request)).await;
    let state = state.unwrap();
    assert_ne!(state, request);
    let unknown = rules::codes::PROVIDER_RETURN_UNKNOWN;
    assert_eq!(code(fetched(&server, &request, &start).await), unknown);
    let (other, _) = begun(&server, None);
    assert_eq!(code(fetched(&server, &state, &other).await), unknown);
    assert_eq!(code(fetched(&server, &state, &start).await), "done");
}

/// A response that is unsigned, changed, for another site or another sign-in, or over is refused by one code that says no
/// more; and a local account is never its user's.
#[tokio::test]
async fn a_response_that_lies_admits_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let (server, _) = asking(folder.path()).await;
    let wrong = rules::codes::PROVIDER_RESPONSE_WRONG;
    let lies: [fn(&mut TestAssertion); 6] = [
        |it| it.issuer.push('/'),
        |it| it.audience.push('/'),
        |it| it.recipient.push('/'),
        |it| it.not_on_or_after = "2027-01-15T07:50:00Z",
        |it| it.format = "transient",
        |it| it.name_id.clear(),
    ];
    for (at, lie) in lies.into_iter().enumerate() {
        assert_eq!(code(whole(&server, lie).await), wrong, "lie {at}");
    }
    let (_, request) = begun(&server, None);
    let good = TestAssertion::honest(&request).response();
    let doubled = good.replacen(
        "</samlp:Status>",
        "</samlp:Status><saml:Assertion xmlns:saml='a'/>",
        1,
    );
    for text in [
        good.replace(">kim<", ">mina<"),
        good.replace("id of kim", "id of <!-- -->kim"),
        format!("<!DOCTYPE a>{good}"),
        doubled,
        "no document".to_owned(),
    ] {
        let told = take_saml_response(&server, post(&text), HERE).await;
        assert_eq!(code(told), wrong, "{text}");
    }
    let plain = SamlPost {
        response: good.clone(),
    };
    assert_eq!(code(take_saml_response(&server, plain, HERE).await), wrong);
    let stranger = whole(&server, |it| it.request = "_another".into()).await;
    assert_eq!(code(stranger), rules::codes::PROVIDER_RETURN_UNKNOWN);
    let refused = good.replacen("status:Success", "status:AuthnFailed", 1);
    let refused = take_saml_response(&server, post(&refused), HERE).await;
    assert_eq!(code(refused), rules::codes::PROVIDER_REFUSED);
    for name in ["system", "mina", "\u{212a}ira"] {
        let named = code(whole(&server, |it| it.user = name.into()).await);
        assert_eq!(named, rules::codes::DIRECTORY_ENTRY_UNUSABLE, "{name}");
    }
    assert_eq!(code(sign_in(&server, "mina", GOOD, HERE).await), "done");
    // What was refused is no reason to refuse the true one.
    assert_eq!(code(whole(&server, |_| {}).await), "done");
}

/// A user of SAML has no password to prove again: they sign in at the provider anew, and it says when that was.
#[tokio::test]
async fn a_new_proof_by_saml_is_one_that_the_provider_dates() {
    let folder = tempfile::tempdir().unwrap();
    let (server, mina) = asking(folder.path()).await;
    let outcome = whole(&server, |_| {}).await.unwrap();
    let kim = caller_of(&server, outcome).await;
    assert!(is_of_saml(&server, &kim) && !is_of_saml(&server, &mina));
    let proven = || code(provider::proves(&server, &kim));
    assert_eq!(proven(), rules::codes::PROVIDER_AGAIN);
    for (name_id, at, told) in [
        (
            "id of kim",
            "2027-01-15T07:57:59Z",
            "provider.response-wrong",
        ),
        (
            "id of lee",
            "2027-01-15T08:00:00Z",
            "provider.response-wrong",
        ),
        ("id of kim", "2027-01-15T08:00:00Z", "done"),
    ] {
        let (start, request) = begun(&server, Some(&kim));
        assert_eq!(attribute(&asked(&start), "ForceAuthn"), "true");
        let assertion = TestAssertion {
            name_id: name_id.to_owned(),
            proven_at: at,
            ..TestAssertion::honest(&request)
        };
        let state = posted(&server, &assertion).await.unwrap();
        assert_eq!(code(fetched(&server, &state, &start).await), told, "{at}");
    }
    assert_eq!(proven(), "done");
}

#[tokio::test]
async fn without_its_certificate_a_provider_of_saml_admits_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let (server, _) = asking(folder.path()).await;
    assert_eq!(tried(&server).await, Some(Ok(())));
    let metadata = saml_metadata(&server).unwrap();
    assert_eq!(
        attribute(&metadata, "entityID"),
        "https://fardel.example.org"
    );
    std::fs::write(folder.path().join("saml.pem"), "nothing").unwrap();
    assert!(tried(&server).await.unwrap().is_err());
    let refused = code(whole(&server, |_| {}).await);
    assert_eq!(refused, rules::codes::PROVIDER_UNREACHABLE);
    let off = Server::for_tests();
    assert_eq!(tried(&off).await, None);
    assert_eq!((saml_name(&off), saml_metadata(&off)), (None, None));
    let begun = begin_by_saml(&off, HERE, "/", None);
    assert_eq!(code(begun), rules::codes::PROVIDER_NONE);
    let told = take_saml_response(&off, SamlPost::default(), HERE).await;
    assert_eq!(code(told), rules::codes::PROVIDER_NONE);
}

/// Whom an administrator suspended or removed, a response does not bring back; and what is begun is bounded.
#[tokio::test]
async fn who_was_removed_here_does_not_come_back_by_saml() {
    let folder = tempfile::tempdir().unwrap();
    let (server, _) = asking(folder.path()).await;
    let outcome = whole(&server, |_| {}).await.unwrap();
    let id = caller_of(&server, outcome).await.subject.user;
    server
        .catalog()
        .write(Lane::Requests, "remove a user", move |rows| {
            rows.remove_user(id)
        })
        .await
        .unwrap();
    let refused = code(whole(&server, |_| {}).await);
    assert_eq!(refused, rules::codes::DIRECTORY_USER_REMOVED);
    for _ in 0..=MAX_BEGUN_OF_ADDRESS {
        begin_by_saml(&server, HERE, "/", None).unwrap();
    }
    assert_eq!(server.saml_sign_ins().begun.count(), MAX_BEGUN_OF_ADDRESS);
}

/// A group gives its role, and a user has no more groups than are looked at.
#[test]
fn groups_of_a_response_are_bounded() {
    let settings = Settings::read(Default::default(), |_| None).unwrap();
    let told = |count: usize| {
        let assertion = TestAssertion {
            groups: vec!["g"; count],
            ..TestAssertion::honest("_request")
        };
        let response = read_posted(&post(&assertion.response())).unwrap();
        let expected = ExpectedResponse {
            issuer: "https://id.example.org",
            audience: "https://fardel.example.org",
            recipient: "https://fardel.example.org/login/saml/return",
            request: "_request",
            now: Timestamp::from_millis(1_800_000_000_000),
        };
        let keys = PinnedKeys::read(CERTIFICATE).unwrap();
        let claims = response.claims(&keys, expected).unwrap();
        entry(&settings, &claims).map(|entry| entry.groups.len())
    };
    assert_eq!(told(MAX_GROUPS).ok(), Some(MAX_GROUPS));
    assert!(told(MAX_GROUPS + 1).is_err());
}
