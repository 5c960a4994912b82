//! What turns the reading direction reaches no page.

use askama::Template as _;
use axum::http::{HeaderMap, StatusCode};

use super::super::request_context::RequestContext;
use super::super::responses;
use crate::doors::text::Text;

#[tokio::test]
async fn marks_that_turn_the_reading_direction_are_shown_as_such() {
    let mut page = super::sample::overview(Text::default());
    page.machine = "safe\u{202e}txt.exe\u{2066}<b>".to_owned();
    let markup = page.render().expect("sample renders");
    assert!(markup.contains('\u{202e}'), "nothing to show");
    let visit = RequestContext::of(
        &HeaderMap::new(),
        &axum::http::Extensions::new(),
        "/".to_owned(),
    );
    let answer = responses::html(&visit, StatusCode::OK, markup);
    let bytes = axum::body::to_bytes(answer.into_body(), usize::MAX).await;
    let sent = String::from_utf8(bytes.expect("whole").to_vec()).expect("text");
    assert!(!sent.contains(rules::session::turns_direction));
    assert!(sent.contains("safe\u{fffd}txt.exe\u{fffd}"), "it is gone");
}
