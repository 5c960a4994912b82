//! The page of a course: a board without students and with some, acts that ask first, and a launch form that says what
//! the course says.

use api::sessions::ListQuery;
use axum::http::StatusCode;
use rules::grants::GrantRole;
use rules::users::Role;
use server::actions::{sessions, tenancy, users};

use super::refused::at_its_field;
use super::{PASSWORD, PagesFixture};

#[tokio::test]
async fn a_teacher_acts_on_a_board_and_a_student_reads_the_rules() {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    let server = &house.server;
    let root = server::access::local_root(server);
    let made = tenancy::create_project(server, &root, Some("default"), "vision", "", None).await;
    let project = made.expect("a project").value.id.to_string();
    let now = server.clock().now();
    let local = |days: u64| now.plus_seconds(days * 86_400).to_string()[..16].to_owned();
    let (from, to) = (local(0), local(90));
    let course = [
        ("name", "deep"),
        ("project", "default/vision"),
        ("from", from.as_str()),
        ("to", to.as_str()),
        ("max_runtime_seconds", "2h"),
        ("rules", "Save your work in time."),
    ];
    let wrong = [("name", "A course"), course[1], course[2], course[3]];
    let refused = house.post(&cookie, "/courses", &wrong).await;
    at_its_field("a course without a name", &refused, "name");
    let made = house.post(&cookie, "/courses", &course).await;
    assert_eq!(made.status, StatusCode::SEE_OTHER, "{}", made.body);

    let empty = house.get(&cookie, "/courses/deep").await.body;
    assert!(empty.contains("The project has no students"), "{empty}");
    let opened = house.post(&cookie, "/courses/deep/open", &[]).await;
    assert_eq!(opened.status, StatusCode::SEE_OTHER, "{}", opened.body);
    for name in ["jae", "kim"] {
        users::create_once(server, &root, name, Role::User, PASSWORD, None, None)
            .await
            .expect("a user");
        tenancy::put_member(server, &root, &project, name, GrantRole::Member, None)
            .await
            .expect("a member");
    }
    let board = house.get(&cookie, "/courses/deep").await.body;
    assert_eq!(board.matches("name=\"member\"").count(), 2, "{board}");

    let act = "/courses/deep/act";
    let asked = house
        .post(
            &cookie,
            act,
            &[("act", "start"), ("member", "jae"), ("key", "board")],
        )
        .await;
    assert!(asked.body.contains("Start 1 session?"), "{}", asked.body);
    // A question that is asked again is no repetition of the act that followed the first one.
    let own_key = asked.body.contains("name=\"key\" value=\"");
    assert!(own_key && !asked.body.contains("value=\"board\""));
    let sure = [("act", "start"), ("member", "jae"), ("sure", "1")];
    let started = house.post(&cookie, act, &sure).await;
    assert_eq!(started.status, StatusCode::SEE_OTHER, "{}", started.body);
    let board = house.get(&cookie, "/courses/deep").await.body;
    assert_eq!(board.matches("href=\"/sessions/0").count(), 1, "{board}");
    let wrong = [("act", "extend"), ("minutes", "soon")];
    let refused = house.post(&cookie, act, &wrong).await;
    at_its_field("a word for minutes", &refused, "minutes");
    // A second click on the same board, and one on the board behind it.
    let limit = async || {
        let all = sessions::list(server, &root, &ListQuery::default()).await;
        all.expect("a list").items[0].max_runtime_seconds
    };
    let longer = [("act", "extend"), ("minutes", "30"), ("key", "first")];
    for _ in 0..2 {
        let answer = house.post(&cookie, act, &longer).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.body);
    }
    assert_eq!(limit().await, Some(9_000), "once");
    let again = [longer[0], longer[1], ("key", "second")];
    house.post(&cookie, act, &again).await;
    assert_eq!(limit().await, Some(10_800));
    let board = house.get(&cookie, "/courses/deep").await.body;
    assert!(board.contains("name=\"key\" value=\""), "{board}");
    let silent = [("act", "message"), ("text", " ")];
    let refused = house.post(&cookie, act, &silent).await;
    at_its_field("an empty message", &refused, "text");

    let link = "/sessions/new?project=default%2Fvision&max_runtime=2h";
    let form = house.get(&cookie, link).await.body;
    assert!(form.contains("Save your work in time."), "{form}");
    let closed = house.post(&cookie, "/courses/deep/close", &[]).await;
    assert_eq!(closed.status, StatusCode::SEE_OTHER, "{}", closed.body);
    let form = house.get(&cookie, link).await.body;
    assert!(!form.contains("Save your work in time."), "it is over");
}
