//! What pages say where nothing is to be shown, and what is on every page: refusals in words, the menu's numbers, the
//! palette, the faults of the door.

use axum::http::{Method, StatusCode};
use rules::translations::TRANSLATIONS;

use super::lint;
use super::whole::PagesFixture;

#[tokio::test]
async fn an_address_that_takes_forms_only_is_no_blank_page() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    for (language, words) in [
        ("en", "This address shows no page"),
        ("ko", "보여 줄 페이지가 없습니다"),
    ] {
        let headers = [("cookie", cookie.as_str()), ("accept-language", language)];
        let answer = house.ask(Method::GET, "/preferences", &headers, &[]).await;
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
        assert!(answer.body.contains(words), "{}", answer.body);
        let faults = lint::page(&answer.body);
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
    let stranger = house.get("", "/logout").await;
    assert_eq!(stranger.status, StatusCode::METHOD_NOT_ALLOWED);
    assert!(stranger.body.contains("This address shows no page"));
}

#[tokio::test]
async fn the_menu_has_its_numbers_on_every_page() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    let form = [("name", "first"), ("cpu", "1"), ("memory", "1")];
    let launched = house.post(&cookie, "/sessions/new", &form).await;
    assert_eq!(launched.status, StatusCode::SEE_OTHER, "{}", launched.body);
    for path in [
        "/",
        "/sessions",
        "/queue",
        "/gpus",
        "/images",
        "/system/checks",
        "/system/settings",
        "/system/tls",
        "/me",
        "/docs",
        "/api/docs",
        "/about",
        "/nothing",
    ] {
        let page = house.get(&cookie, path).await;
        for count in ["data-count=\"0\">1<", "data-count=\"1\">1<"] {
            assert!(page.body.contains(count), "{path} lacks {count}");
        }
    }
}

#[tokio::test]
async fn the_palette_finds_a_session_by_verb_and_says_when_it_finds_nothing() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    let form = [("name", "train-7"), ("cpu", "1"), ("memory", "1")];
    house.post(&cookie, "/sessions/new", &form).await;
    let found = house.get(&cookie, "/palette?q=stop%20train").await.body;
    assert!(
        found.contains("Stop train-7") && found.contains("#stop\""),
        "{found}"
    );
    assert!(!found.contains("href=\"/queue\""), "{found}");
    let all = house.get(&cookie, "/palette").await.body;
    for href in ["/gpus", "/system/checks", "/system/tls", "/about"] {
        assert!(all.contains(&format!("href=\"{href}\"")), "{href}");
    }
    let nothing = house.get(&cookie, "/palette?q=zzzz").await.body;
    assert!(
        nothing.contains("zzzz") && !nothing.contains("role=\"option\""),
        "{nothing}"
    );
}

#[tokio::test]
async fn the_door_tells_every_empty_field_and_keeps_the_name() {
    let house = PagesFixture::open();
    house.set_up().await;
    let empty = house.post("", "/login", &[]).await;
    assert_eq!(empty.status, StatusCode::UNPROCESSABLE_ENTITY);
    for field in ["name", "password"] {
        assert!(empty.body.contains(&format!("data-fault=\"{field}\"")));
    }
    let form = [("name", "mina"), ("password", "wrong")];
    let wrong = house.post("", "/login", &form).await;
    assert_eq!(wrong.status, StatusCode::UNAUTHORIZED);
    assert!(
        wrong.body.contains("data-fault=\"password\"") && wrong.body.contains("value=\"mina\"")
    );
    let marked = " aria-invalid=\"true\" aria-describedby=\"fault-password";
    assert!(wrong.body.contains(marked), "{}", wrong.body);
    assert_eq!(wrong.body.matches(" autofocus").count(), 1);
}

#[tokio::test]
async fn a_wrong_time_zone_is_refused_in_the_wizard_and_a_right_one_is_kept() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    let wrong = house
        .post(&cookie, "/setup/time", &[("zone", "Nowhere/Land")])
        .await;
    assert!(wrong.status.is_client_error(), "{}", wrong.status);
    let right = house
        .post(&cookie, "/setup/time", &[("zone", "Asia/Seoul")])
        .await;
    assert_eq!(right.status, StatusCode::SEE_OTHER);
    assert!(right.cookie.contains("Asia/Seoul"), "{}", right.cookie);
}

#[tokio::test]
async fn the_card_of_what_waits_says_of_how_many_it_shows_five() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    for number in 1..=7 {
        let name = format!("waits-{number}");
        let form = [("name", name.as_str()), ("cpu", "1"), ("memory", "1")];
        house.post(&cookie, "/sessions/new", &form).await;
        let page = house.get(&cookie, "/").await.body;
        let (_, card) = page.split_once("id=\"waiting\"").expect("the card");
        let (card, _) = card.split_once("</section>").expect("its end");
        let told = card.contains(&format!("<a href=\"/queue\">5 of {number} sessions</a>"));
        assert_eq!(told, number > 5, "{number} wait: {card}");
        assert_eq!(card.matches("<li>").count(), number.min(5), "{card}");
    }
}

#[tokio::test]
async fn the_last_administrator_is_not_offered_what_would_be_refused() {
    const ONLY: &str = "mina is the last administrator of this machine.";
    const GOOD: &str = "a long walk by the river 8";
    const OWN: &str = "You cannot suspend or remove your own account.";
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    let id = {
        let page = house.get(&cookie, "/users/mina").await.body;
        let (_, rest) = page.split_once("/users/0").expect("an address with the id");
        format!("0{}", rest.split('/').next().unwrap_or_default())
    };
    let inactive = "aria-disabled=\"true\"";
    let suspend = format!("href=\"/users/{id}/suspend\"");
    let remove = format!("href=\"/users/{id}/remove\"");
    for why in [ONLY, OWN] {
        let page = house.get(&cookie, "/users/mina").await.body;
        assert!(page.contains(why) && !page.contains(&suspend), "{page}");
        assert_eq!(page.matches(inactive).count(), 1);
        assert_eq!(page.contains("/grants/revoke?"), why == OWN, "{page}");
        let menu = house.get(&cookie, &format!("/users/{id}/menu")).await.body;
        assert!(menu.contains(why) && !menu.contains(&suspend), "{menu}");
        assert!(!menu.contains(&remove), "{menu}");
        let demote = menu.contains(&format!("href=\"/users/{id}/role\""));
        assert_eq!(demote, why == OWN, "{menu}");
        let question = house
            .get(&cookie, &format!("/users/{id}/suspend"))
            .await
            .body;
        assert!(
            question.contains(why)
                && !question.contains(&format!("action=\"/users/{id}/suspend\""))
        );
        let second = [
            ("name", "jae"),
            ("password", GOOD),
            ("again", GOOD),
            ("role", "administrator"),
        ];
        house.post(&cookie, "/users/new", &second).await;
    }
    let other = house.get(&cookie, "/users/jae").await.body;
    assert!(
        other.contains("/suspend\"") && !other.contains(inactive),
        "{other}"
    );
}

/// Every answer of the API that refuses links the page of its code.
#[tokio::test]
async fn codes_of_refusals_have_pages() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    let told = TRANSLATIONS.iter().filter(|entry| !entry.en.is_empty());
    // Each of some hundred pages is made alike; a few of all families are enough.
    let mut seen = 0;
    for entry in told.step_by(25) {
        let address = format!("/docs/errors/{}", entry.code.replace('.', "-"));
        let page = house.get(&cookie, &address).await;
        assert_eq!(page.status, StatusCode::OK, "{address}");
        assert!(page.body.contains(entry.code), "{address}");
        seen += 1;
    }
    assert!(seen > 10, "only {seen} codes");
    let unknown = house.get(&cookie, "/docs/errors/no-such-code").await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
}
