//! Presets on the launch form: one is said to be chosen, and named by the session, where a user picked it.

use axum::http::StatusCode;

use super::PagesFixture;

const SECOND: &str = "<button class=\"chip on\" name=\"preset\" value=\"second\"";

#[tokio::test]
async fn of_presets_with_equal_amounts_only_the_picked_one_is_named() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    for name in ["first", "second"] {
        let preset = [
            ("name", name),
            ("scope", "site"),
            ("cpu", "1"),
            ("memory", "1"),
        ];
        let answer = house.post(&cookie, "/presets", &preset).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.body);
    }
    let chosen = |body: &str| body.matches("class=\"chip on\"").count();
    let new = house.get(&cookie, "/sessions/new").await.body;
    assert!(new.contains("id=\"cpu\" name=\"cpu\" value=\"1\""), "{new}");
    assert_eq!(chosen(&new), 0, "nobody picked one");
    let linked = house.get(&cookie, "/sessions/new?preset=second").await.body;
    assert!(linked.contains(SECOND) && chosen(&linked) == 1, "{linked}");

    let launch = |name, picked| {
        [
            ("kind", "interactive"),
            ("cpu", "1"),
            ("memory", "1"),
            ("name", name),
            ("picked", picked),
            ("act", "launch"),
        ]
    };
    let refused = launch("No Such Name!", "second");
    let refused = house.post(&cookie, "/sessions/new", &refused).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(refused.body.contains(SECOND), "the form comes back as sent");
    for (name, picked) in [("tagged", "second"), ("plain", "")] {
        let answer = house
            .post(&cookie, "/sessions/new", &launch(name, picked))
            .await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.body);
    }
    let list = house
        .get(&cookie, "/sessions?q=label%3Apreset%3Dsecond")
        .await
        .body;
    assert!(list.contains(">tagged<") && !list.contains(">plain<"));
    let other = house
        .get(&cookie, "/sessions?q=label%3Apreset%3Dfirst")
        .await
        .body;
    assert!(!other.contains(">tagged<") && !other.contains(">plain<"));
}
