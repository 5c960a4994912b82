//! What vanishes while a page is read fails no page, and what turns the reading direction reaches none.

use askama::Template as _;
use axum::http::{HeaderMap, StatusCode};
use base::observe::Clock;
use base::settings::{Settings, SettingsLayer};
use rules::names::SessionId;
use rules::session::SessionState;
use rules::units::{Bytes, CpuShare};
use server::Server;
use server::access;
use server::actions::sessions::{self, HeldSlice, NodeOverview};

use super::super::request_context::RequestContext;
use super::super::{overview, responses};
use crate::doors::text::Text;

#[tokio::test]
async fn a_session_that_was_removed_since_it_was_listed_fails_no_overview() {
    let settings =
        Settings::read(SettingsLayer::default(), |_| None).expect("built-in settings are good");
    let server = Server::in_memory(settings, Clock::system()).expect("a server in memory");
    let root = access::local_root(&server);
    let now = server.clock().now();
    let mut seen = sessions::overview(&server, &root).await.expect("seen");
    seen.machines.push(NodeOverview {
        id: server.node(),
        name: "box".to_owned(),
        seen_at: now,
        silent: false,
        schedulable: true,
        host_environment: true,
        problems: Vec::new(),
        cpu: CpuShare(400),
        cpu_used: CpuShare(100),
        cpu_busy: None,
        memory: Bytes::gib(8),
        memory_used: Bytes::gib(1),
        memory_busy: None,
        devices: Vec::new(),
        cordoned: Default::default(),
        // Nobody has a row of it any more.
        slices: vec![HeldSlice {
            id: Some(SessionId(uuid::Uuid::from_u128(7))),
            name: Some("gone".to_owned()),
            owner: None,
            mine: true,
            state: SessionState::Running,
            paused: false,
            cpu: CpuShare(100),
            memory: Bytes::gib(1),
            devices: Vec::new(),
            cpu_busy: None,
            memory_busy: None,
        }],
    });
    let trends = overview::trends(&server, &root, &seen, now).await;
    assert!(trends.expect("the page is shown").is_empty());
}

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
