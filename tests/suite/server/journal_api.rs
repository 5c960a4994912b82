//! Over REST: the journal searched, page by page and as a file; and a user's notices.

use axum::body::Body;
use serde_json::{Value, json};

use super::the_box::{Answer, As, TheBox};

const SEARCH: &str = "/api/v1/events/search";

async fn found(the_box: &TheBox, who: &As, query: &str) -> Value {
    let answer = the_box.get(who, &format!("{SEARCH}?{query}")).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.short());
    answer.json()
}

/// Asks for comma-separated values.
pub(super) async fn file(the_box: &TheBox, who: &As, path: &str) -> Answer {
    let request = TheBox::request(who, "GET", path)
        .header("accept", "text/csv, */*;q=0.1")
        .body(Body::empty())
        .expect("a request");
    the_box.send(request).await
}

fn texts<'a>(page: &'a Value, field: &str) -> Vec<&'a str> {
    let items = page["items"].as_array().expect("a list").iter();
    items
        .map(|item| item[field].as_str().expect("a text"))
        .collect()
}

fn numbers(page: &Value) -> Vec<u64> {
    let items = page["items"].as_array().expect("a list").iter();
    items
        .map(|item| item["sequence"].as_u64().expect("a number"))
        .collect()
}

/// A session that ends by itself with this code; gives its id.
async fn ended(the_box: &TheBox, who: &As, name: &str, code: &str) -> String {
    let body = json!({"name": name, "kind": "batch", "command": ["exit", code]});
    let id = the_box.launch(who, body).await["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    the_box.until(who, &id, "ended").await;
    id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_found_by_kind_object_user_time_and_words_and_only_those_one_may_hear() {
    let the_box = TheBox::open().await;
    let (mina, jae) = (&the_box.mina, &the_box.jae);
    let first = ended(&the_box, mina, "first", "0").await;
    let second = ended(&the_box, jae, "second", "0").await;

    for query in ["object=first".to_owned(), format!("object={first}")] {
        let page = found(&the_box, mina, &query).await;
        assert!(texts(&page, "object").iter().all(|id| *id == first));
        assert!(texts(&page, "code").contains(&"session.accepted"));
        assert_eq!(page["names"][&first], "first");
    }
    let page = found(&the_box, mina, "kind=session.ended").await;
    assert_eq!(texts(&page, "object"), [first.as_str()], "not jae's");
    let page = found(&the_box, &the_box.admin, "kind=session.ended").await;
    let mut both = texts(&page, "object");
    both.sort_unstable();
    assert_eq!(both, [first.as_str(), second.as_str()]);
    let page = found(&the_box, &the_box.admin, "kind=sessions&user=jae").await;
    assert!(texts(&page, "object").iter().all(|id| *id == second));
    for hidden in ["object=second", "q=second", "user=jae&kind=sessions"] {
        let page = found(&the_box, mina, hidden).await;
        let nothing = (json!([]), json!({}), json!(0));
        let seen = ["items", "names", "estimated_total"].map(|field| page[field].clone());
        assert_eq!(seen, <[Value; 3]>::from(nothing), "{hidden}");
    }
    let page = found(&the_box, mina, "q=FIRST+ended").await;
    assert!(texts(&page, "code").contains(&"session.ended"));

    let end = found(&the_box, mina, "kind=session.ended").await;
    let at = end["items"][0]["at"].as_str().expect("a time");
    let page = found(&the_box, mina, &format!("object=first&since={at}")).await;
    assert_eq!(texts(&page, "code"), ["session.ended"]);
    let page = found(&the_box, mina, &format!("object=first&until={at}")).await;
    assert!(texts(&page, "code").contains(&"session.accepted"));
    for none in ["since=2100-01-01T00:00:00Z", "until=2000-01-01T00:00:00Z"] {
        let page = found(&the_box, mina, none).await;
        assert_eq!(page["items"], json!([]), "{none}");
    }
    for (query, short) in [
        ("limit=0", "422 limit.out-of-range"),
        ("limit=501", "422 limit.out-of-range"),
        ("cursor=xyz", "422 cursor.invalid"),
        ("since=noon", "400 query.malformed"),
        ("kind=a%E2%80%AEb", "422 query.hidden-characters"),
        ("q=%22open", "422 query.quote-open"),
        ("q=1+2+3+4+5+6+7+8+9", "422 query.too-many-words"),
    ] {
        let answer = the_box.get(mina, &format!("{SEARCH}?{query}")).await;
        assert_eq!(answer.short(), short, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_a_search_have_every_event_once_and_a_file_has_them_all() {
    let the_box = TheBox::open().await;
    for name in ["one", "two", "three"] {
        ended(&the_box, &the_box.mina, name, "0").await;
    }
    let whole = found(&the_box, &the_box.mina, "kind=sessions&limit=500").await;
    let all = numbers(&whole);
    assert!(all.len() >= 9, "{whole}");
    assert!(all.is_sorted_by(|newer, older| newer > older));
    assert_eq!(whole["next_cursor"], Value::Null);
    assert_eq!(whole["estimated_total"], all.len());

    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let query = format!("kind=sessions&limit=2&cursor={cursor}");
        let answer = the_box
            .get(&the_box.mina, &format!("{SEARCH}?{query}"))
            .await;
        let page = answer.json();
        seen.extend(numbers(&page));
        match page["next_cursor"].as_str() {
            Some(next) => {
                let link = format!("<{SEARCH}?kind=sessions&limit=2&cursor={next}>; rel=\"next\"");
                assert_eq!(answer.header("link"), link);
                next.clone_into(&mut cursor);
            }
            None => break,
        }
    }
    assert_eq!(seen, all);
    for (who, query) in [
        (&the_box.admin, "kind=sessions"),
        (&the_box.mina, "kind=session.ended"),
    ] {
        let first = found(&the_box, &the_box.mina, "kind=sessions&limit=2").await;
        let next = first["next_cursor"].as_str().expect("a cursor");
        let path = format!("{SEARCH}?{query}&cursor={next}");
        let answer = the_box.get(who, &path).await;
        assert_eq!(answer.short(), "422 cursor.invalid", "of another search");
    }

    let table = file(&the_box, &the_box.mina, &format!("{SEARCH}?kind=sessions")).await;
    assert_eq!(table.header("content-type"), "text/csv; charset=utf-8");
    let table = String::from_utf8(table.bytes).expect("text");
    let mut lines = table.lines();
    assert_eq!(
        lines.next(),
        Some("sequence,at,actor,topic,object,name,code,before,after")
    );
    let lines: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    let sequences: Vec<String> = all.iter().map(ToString::to_string).collect();
    let told: Vec<&str> = lines.iter().map(|line| line[0]).collect();
    assert_eq!(told, sequences);
    let last = lines.last().expect("a line");
    assert_eq!((last[2], last[3], last[5]), ("mina", "sessions", "one"));
    assert_eq!(last[6], "session.accepted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notices_are_listed_and_read_over_the_api() {
    let the_box = TheBox::open().await;
    let runs = json!({"name": "runs", "kind": "batch", "command": ["sleep"]});
    the_box.launch(&the_box.mina, runs).await;
    the_box.until(&the_box.mina, "runs", "running").await;
    let id = ended(&the_box, &the_box.mina, "fails", "3").await;
    let notices = the_box
        .get(&the_box.mina, "/api/v1/me/notices")
        .await
        .json();
    let newest = &notices["items"][0];
    assert_eq!(
        ["kind", "session", "name", "outcome"].map(|field| newest[field].as_str()),
        [
            Some("ended"),
            Some(id.as_str()),
            Some("fails"),
            Some("failed")
        ]
    );
    assert!(newest["reason"]["code"].is_string(), "{newest}");
    assert_eq!(newest["unread"], true);
    assert!(texts(&notices, "kind").contains(&"started"));
    let others = the_box.get(&the_box.jae, "/api/v1/me/notices").await.json();
    assert_eq!(others["items"], json!([]));

    let path = "/api/v1/me/notices/read";
    assert_eq!(
        the_box.post(&the_box.jae, path, json!({})).await.status,
        204
    );
    let unread = |page: &Value| {
        let items = page["items"].as_array().expect("a list").iter();
        items.filter(|item| item["unread"] == true).count()
    };
    let again = the_box
        .get(&the_box.mina, "/api/v1/me/notices")
        .await
        .json();
    assert_eq!(unread(&again), 1, "only jae's were read");
    assert_eq!(
        the_box.post(&the_box.mina, path, json!({})).await.status,
        204
    );
    let read = the_box
        .get(&the_box.mina, "/api/v1/me/notices")
        .await
        .json();
    assert_eq!(unread(&read), 0, "{read}");
    assert_eq!(texts(&read, "kind"), texts(&again, "kind"));

    // A session of hers still runs on the node, so its maintenance is told to her alone.
    let path = "/api/v1/nodes/box/maintenance";
    let body = json!({"maintenance": true, "message": "new fans"});
    assert_eq!(the_box.post(&the_box.admin, path, body).await.status, 200);
    let told = the_box
        .get(&the_box.mina, "/api/v1/me/notices")
        .await
        .json();
    let newest = &told["items"][0];
    assert_eq!(
        ["kind", "name", "message", "session"].map(|field| newest[field].as_str()),
        [Some("maintenance"), Some("box"), Some("new fans"), None]
    );
    assert_eq!(newest["unread"], true);
    let others = the_box.get(&the_box.jae, "/api/v1/me/notices").await.json();
    assert_eq!(others["items"], json!([]));
}
