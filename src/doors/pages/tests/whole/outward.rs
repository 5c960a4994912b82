//! What leaves the console or changes its look, by its pages: kinds of mail, webhooks, branding.

use axum::http::{Method, StatusCode};
use server::access::local_root;
use server::actions::branding;

use super::PagesFixture;

/// A name that would be markup, a hue and a footer stand on pages before and after sign-in, as text; a reset takes them back.
#[tokio::test]
async fn a_site_looks_as_its_administrator_set_it_before_and_after_sign_in() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    let root = local_root(&house.server);
    let patch = api::branding::BrandingPatchBody {
        name: Some("<b>Lab</b>".to_owned()),
        hue: Some(Some(3)),
        footer: Some("Ask us.".to_owned()),
        footer_ko: Some("문의하세요.".to_owned()),
        sign_in: Some("For members.".to_owned()),
        ..api::branding::BrandingPatchBody::default()
    };
    let changed = branding::change(&house.server, &root, patch, None).await;
    changed.expect("a look");
    for (cookie, path) in [(cookie.as_str(), "/queue"), ("", "/login")] {
        let body = house.get(cookie, path).await.body;
        assert!(body.contains(" data-hue=\"3\""), "{path}: {body}");
        assert!(body.contains("Ask us."), "{path}");
        assert!(!body.contains("<b>Lab</b>"), "{path}: markup of a name");
        assert_eq!(body.contains("For members."), path == "/login");
        let korean = [("cookie", cookie), ("accept-language", "ko")];
        let korean = house.ask(Method::GET, path, &korean, &[]).await.body;
        assert!(korean.contains("문의하세요."), "{path}");
    }
    let logo = house.get("", "/branding/logo").await;
    assert_eq!(logo.status, StatusCode::NOT_FOUND);
    let path = "/system/branding/reset";
    let asked = house.get(&cookie, path).await;
    assert!(asked.body.contains("Reset the branding?"), "{}", asked.body);
    assert!(asked.body.contains("name=\"generation\" value=\"1\""));
    let late = house.post(&cookie, path, &[("generation", "0")]).await;
    assert_eq!(late.status, StatusCode::PRECONDITION_FAILED);
    let body = house.get("", "/login").await.body;
    assert!(
        body.contains("data-hue"),
        "a question of before resets nothing"
    );
    let reset = house.post(&cookie, path, &[("generation", "1")]).await;
    assert_eq!(reset.status, StatusCode::SEE_OTHER, "{}", reset.body);
    let body = house.get("", "/login").await.body;
    assert!(!body.contains("data-hue") && !body.contains("Ask us."));
}

/// The secret of a webhook is on one page once; a refused form keeps what was typed.
#[tokio::test]
async fn a_webhook_is_made_on_its_page_and_its_secret_shown_once() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    let form = [
        ("name", "pager"),
        ("address", "ftp://10.1.0.9/typed"),
        ("kinds", "users, nodes"),
    ];
    let refused = house.post(&cookie, "/system/webhooks", &form).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    for typed in ["value=\"pager\"", "ftp://10.1.0.9/typed", "users, nodes"] {
        assert!(refused.body.contains(typed), "{typed}: {}", refused.body);
    }
    let form = [form[0], ("address", "https://10.1.0.9/fardel"), form[2]];
    let made = house.post(&cookie, "/system/webhooks", &form).await;
    assert_eq!(made.status, StatusCode::SEE_OTHER, "{}", made.body);
    let first = house.get(&cookie, &made.location).await.body;
    assert!(first.contains("fardel_hook_"), "{first}");
    let again = house.get(&cookie, &made.location).await.body;
    assert!(!again.contains("fardel_hook_"), "shown once");
    assert!(again.contains("https://10.1.0.9/fardel"));
}

/// Where nothing was refused the page offers no retry, and without a mail server one is refused.
#[tokio::test]
async fn refused_mail_is_sent_again_where_there_is_some() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    let path = "/system/settings/mail-retry";
    let page = house.get(&cookie, "/system/settings").await.body;
    assert!(!page.contains(path), "{page}");
    let retried = house.post(&cookie, path, &[]).await;
    assert_eq!(retried.status, StatusCode::CONFLICT, "{}", retried.body);
}
