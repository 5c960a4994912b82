//! Forms outside of a session's page and the launch form with wrong values: each fault stands at its field, and no
//! secret comes back.

use axum::http::StatusCode;

use super::{PASSWORD, PageAnswer, PagesFixture};

/// Holds a refused form to its fault at that field.
pub(super) fn at_its_field(what: &str, answer: &PageAnswer, field: &str) {
    assert!(
        answer.status.is_client_error(),
        "{what} was taken: {} {}",
        answer.status,
        answer.location
    );
    let wanted = format!(" aria-invalid=\"true\" aria-describedby=\"fault-{field}");
    assert!(
        answer.body.contains(&wanted) && answer.body.contains(&format!("id=\"fault-{field}\"")),
        "{what} is not marked at {field}: {}",
        answer.body
    );
    assert_eq!(
        answer.body.matches(" autofocus").count(),
        1,
        "{what}: the focus"
    );
    assert!(
        !answer.body.contains(PASSWORD),
        "{what}: a secret came back"
    );
}

#[tokio::test]
async fn a_wrong_value_of_the_setup_form_stands_at_its_field() {
    let house = PagesFixture::open();
    let code = server::access::setup_link(&house.server).expect("setup is open");
    for (field, changed) in [
        ("code", [("code", "AAAA-BBBB-CCCC")].as_slice()),
        ("name", &[("name", "No Such Name!")]),
        ("password", &[("password", "short"), ("again", "short")]),
        ("again", &[("again", "something else 9")]),
    ] {
        let mut form = vec![
            ("code", code.as_str()),
            ("name", "mina"),
            ("password", PASSWORD),
            ("again", PASSWORD),
        ];
        for (name, value) in changed {
            form.retain(|(known, _)| known != name);
            form.push((name, value));
        }
        let answer = house.post("", "/setup", &form).await;
        at_its_field(&format!("{changed:?}"), &answer, field);
    }
}

#[tokio::test]
async fn a_wrong_value_of_a_form_of_the_account_and_the_certificate_stands_at_its_field() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    let other = "another long walk 8";
    let wrong = [("name", "mina"), ("password", "not this one")];
    let answer = house.post("", "/login", &wrong).await;
    at_its_field("a wrong password", &answer, "password");
    for (path, field, form) in [
        (
            "/me/password",
            "old",
            [("old", "not the old one"), ("new", other), ("again", other)].as_slice(),
        ),
        (
            "/me/password",
            "new",
            &[("old", PASSWORD), ("new", "short"), ("again", "short")],
        ),
        (
            "/me/password",
            "again",
            &[("old", PASSWORD), ("new", other), ("again", "x")],
        ),
        ("/me/tokens", "name", &[("name", " "), ("days", "30")]),
        (
            "/system/tls/request",
            "names",
            &[("names", "no_such_name!")],
        ),
        (
            "/system/tls/request",
            "organisation",
            &[("names", "box.example"), ("organisation", "a\u{7}b")],
        ),
    ] {
        let answer = house.post(&cookie, path, form).await;
        at_its_field(&format!("{path} {form:?}"), &answer, field);
    }
    // A refusal of what no form of the page sends stands above all.
    let answer = house.post(&cookie, "/me/tokens/none/revoke", &[]).await;
    assert_ne!(answer.status, StatusCode::SEE_OTHER);
    assert!(
        answer.body.contains("class=\"banner\" role=\"alert\""),
        "{}",
        answer.body
    );
}
