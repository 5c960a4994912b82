//! Many announcements: three above a page, the others behind a link, before sign-in as well.

use axum::http::{Method, StatusCode};

use super::PagesFixture;

const KEY: &str = "data-announced=\"";

fn banners(body: &str) -> usize {
    body.matches(KEY).count()
}

#[tokio::test]
async fn three_announcements_stand_above_a_page_and_all_on_one_of_their_own() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    for (text, level) in [
        ("News one.", "warning"),
        ("News two.", "info"),
        ("News three.", "info"),
        ("News four.", "info"),
        ("News five.", "info"),
    ] {
        let form = [("text", text), ("level", level), ("before_sign_in", "1")];
        let answer = house.post(&cookie, "/announcements", &form).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.body);
    }
    for (cookie, path) in [(cookie.as_str(), "/queue"), ("", "/login")] {
        let body = house.get(cookie, path).await.body;
        assert_eq!(banners(&body), 3, "{path}: {body}");
        assert!(body.contains("News one."), "a warning stands first");
        assert!(body.contains(">2 more announcements</a>"), "{body}");
        let all = house.get(cookie, "/announcements/current").await;
        assert_eq!(all.status, StatusCode::OK);
        assert_eq!(banners(&all.body), 5, "{}", all.body);
        assert!(!all.body.contains("2 more announcements"));
    }
    let korean = [("cookie", cookie.as_str()), ("accept-language", "ko")];
    let korean = house.ask(Method::GET, "/queue", &korean, &[]).await.body;
    assert!(korean.contains(">공지 2개 더 보기</a>"), "{korean}");

    // Who closes one sees the next, and reads the closed one still among all.
    let home = house.get(&cookie, "/queue").await.body;
    let (_, rest) = home.split_once(KEY).expect("a banner");
    let (key, _) = rest.split_once('"').expect("its end");
    let closed = format!("{cookie}; fardel_closed={key}");
    let home = house.get(&closed, "/queue").await.body;
    assert_eq!(banners(&home), 3);
    assert!(home.contains(">1 more announcement</a>") && !home.contains("News one."));
    let all = house.get(&closed, "/announcements/current").await.body;
    assert_eq!(banners(&all), 4);
    assert!(all.contains("News one."));
}
