//! Sign-in by SAML in the console: a button, the one post that comes from another site, and what it does not open.

use super::*;

fn by_saml() -> PagesFixture {
    let layer = SettingsLayer {
        saml_issuer: Some("https://id.example.org".into()),
        saml_sso_url: Some("https://id.example.org/sso".into()),
        saml_certificate_file: Some("/etc/fardel/none.pem".into()),
        saml_origin: Some("https://box:7860".into()),
        saml_name: Some("Lab <account>".into()),
        ..SettingsLayer::default()
    };
    PagesFixture::with(layer, Clock::system())
}

/// Only the answer of a provider may come from another site; it acts for nobody who is signed in, and is none before a
/// provider is set.
#[tokio::test]
async fn the_answer_of_a_provider_alone_may_come_from_another_site() {
    let foreign = [
        ("origin", "https://id.example.org"),
        ("sec-fetch-site", "cross-site"),
    ];
    let answer = [("SAMLResponse", "PGEvPg==")];
    let off = PagesFixture::open();
    off.set_up().await;
    let path = "/login/saml/return";
    let none = off.ask(Method::POST, path, &foreign, &answer).await;
    assert_eq!(none.status, StatusCode::NOT_FOUND, "{}", none.body);
    let metadata = off.get("", "/login/saml/metadata").await;
    assert_eq!(metadata.status, StatusCode::NOT_FOUND);
    let house = by_saml();
    house.set_up().await;
    let wrong = house.ask(Method::POST, path, &foreign, &answer).await;
    assert_eq!(wrong.status, StatusCode::FORBIDDEN);
    assert!(
        wrong.body.contains("is not to be believed"),
        "{}",
        wrong.body
    );
    assert!(wrong.cookie.is_empty(), "it signs nobody in");
    for path in ["/login/saml", "/login/saml/finish", "/login", "/logout"] {
        let refused = house.ask(Method::POST, path, &foreign, &answer).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}");
        assert!(refused.body.contains("origin.foreign"), "{path}");
    }
}

#[tokio::test]
async fn a_browser_is_led_to_the_provider_of_saml_and_knows_itself_again() {
    let house = by_saml();
    let cookie = house.set_up().await;
    let login = house.get("", "/login?next=%2Fsessions").await.body;
    assert!(
        login.contains("href=\"/login/saml?next=%2Fsessions\""),
        "{login}"
    );
    assert!(!login.contains("Lab <account>"), "a name is no markup");
    let led = house.get("", "/login/saml?next=%2Fsessions").await;
    assert_eq!(led.status, StatusCode::SEE_OTHER);
    let place = "https://id.example.org/sso?SAMLRequest=";
    assert!(led.location.starts_with(place), "{}", led.location);
    let finish = house.get("", "/login/saml/finish?state=nothing").await;
    assert_eq!(finish.status, StatusCode::FORBIDDEN);
    assert!(finish.body.contains("was begun in another browser"));
    // Who is signed in goes where they wanted.
    let inside = house.get(&cookie, "/login/saml?next=%2Fsessions").await;
    assert_eq!(inside.location, "/sessions");
    let metadata = house.get("", "/login/saml/metadata").await;
    assert_eq!(metadata.status, StatusCode::OK);
    let place = "Location=\"https://box:7860/login/saml/return\"";
    assert!(metadata.body.contains(place), "{}", metadata.body);
}
