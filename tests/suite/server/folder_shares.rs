//! Shared folders over the routes: a colleague reads and does not write, and what is under way ends with the share.

use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::StreamExt as _;
use serde_json::json;
use tower::ServiceExt as _;

use super::the_box::{As, TheBox};

/// What is promised of rights that end.
const SOON: Duration = Duration::from_secs(2);

/// A folder of mina's that is shared with jae: its path, and that of the share.
async fn shared(the_box: &TheBox, right: &str) -> (String, String) {
    let made = the_box.post(&the_box.mina, "/api/v1/folders", json!({"name": "data"}));
    let made = made.await;
    assert_eq!(made.status, 201, "{}", made.short());
    let id = made.json()["id"].as_str().expect("an id").to_owned();
    let folder = format!("/api/v1/folders/{id}");
    let asked = json!({"user": "jae", "right": right});
    let shares = format!("{folder}/shares");
    let share = the_box.post(&the_box.mina, &shares, asked).await;
    assert_eq!(share.status, 201, "{}", share.short());
    let share = share.json()["id"].as_str().expect("an id").to_owned();
    let offered = the_box
        .get(&the_box.jae, "/api/v1/folder-invitations")
        .await;
    assert_eq!(offered.json()["items"][0]["id"], share);
    let path = format!("/api/v1/folder-invitations/{share}/accept");
    let taken = the_box.post(&the_box.jae, &path, json!({})).await;
    assert_eq!(taken.status, 200, "{}", taken.short());
    let share = format!("{folder}/shares/{share}");
    (folder, share)
}

async fn remove(the_box: &TheBox, path: &str) {
    let removed = the_box.with_body(&the_box.mina, "DELETE", path, "").await;
    assert_eq!(removed.status, 204, "{}", removed.short());
}

async fn mkdir(the_box: &TheBox, who: &As, folder: &str, path: &str) -> String {
    let place = format!("{folder}/mkdir");
    let made = the_box.post(who, &place, json!({"path": path})).await;
    made.short()
}

/// Promise (Isolation and access): A shared folder gives a colleague what its share says, and nothing from two seconds after
/// its end on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_colleague_reads_a_shared_folder_and_does_not_write() {
    let the_box = TheBox::open().await;
    let (folder, share) = shared(&the_box, "ro").await;
    let entries = format!("{folder}/entries");
    assert_eq!(the_box.get(&the_box.jae, &entries).await.status, 200);
    let refused = mkdir(&the_box, &the_box.jae, &folder, "new").await;
    assert_eq!(refused, "403 folder.right-missing");
    let listed = the_box.get(&the_box.jae, "/api/v1/folders").await.json();
    assert_eq!(listed["items"][0]["right"], "ro");
    assert_eq!(listed["items"][0]["owner"]["name"], "mina");
    let asked = json!({"user": "jae", "right": "rw"});
    let shares = format!("{folder}/shares");
    let more = the_box.post(&the_box.mina, &shares, asked).await;
    assert_eq!(more.status, 201);
    let made = mkdir(&the_box, &the_box.jae, &folder, "new").await;
    assert!(made.starts_with("201"), "{made}");
    remove(&the_box, &share).await;
    let gone = the_box.get(&the_box.jae, &entries).await;
    assert_eq!(gone.short(), "404 folder.not-found");
}

/// Proves too: `a_colleague_reads_a_shared_folder_and_does_not_write`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_into_a_shared_folder_ends_with_the_share() {
    let the_box = TheBox::open().await;
    let (folder, share) = shared(&the_box, "rw").await;
    let begun = TheBox::request(&the_box.jae, "POST", &format!("{folder}/uploads"))
        .header("tus-resumable", "1.0.0")
        .header("upload-length", "6")
        .header("upload-metadata", "filename YQ==")
        .body(Body::empty())
        .expect("a request");
    let begun = the_box.send(begun).await;
    assert_eq!(begun.status, 201, "{}", begun.short());
    let (feed, pieces) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(4);
    feed.send(Ok("abc".into())).await.expect("taken");
    let pieces = futures_util::stream::unfold(pieces, |mut pieces| async move {
        Some((pieces.recv().await?, pieces))
    });
    let request = TheBox::request(&the_box.jae, "PATCH", begun.header("location"))
        .header("tus-resumable", "1.0.0")
        .header("upload-offset", "0")
        .header("content-type", "application/offset+octet-stream")
        .body(Body::from_stream(pieces))
        .expect("a request");
    let router = the_box.router.clone();
    let sending = tokio::spawn(async move { router.oneshot(request).await.expect("an answer") });
    tokio::time::sleep(Duration::from_millis(300)).await;
    remove(&the_box, &share).await;
    let answer = tokio::time::timeout(SOON, sending).await;
    let answer = answer.expect("it ends").expect("no panic");
    assert_eq!(answer.status(), 404);
    drop(feed);
    let listed = the_box
        .get(&the_box.mina, &format!("{folder}/entries"))
        .await;
    assert_eq!(listed.json()["items"], json!([]));
}

/// Proves too: `a_colleague_reads_a_shared_folder_and_does_not_write`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn downloads_from_a_shared_folder_end_with_the_share() {
    /// Longer than two seconds at one piece in `PAUSE`.
    const BYTES: usize = 32 << 20;
    const PAUSE: Duration = Duration::from_millis(25);
    let the_box = TheBox::open().await;
    let (folder, share) = shared(&the_box, "ro").await;
    let request = TheBox::request(&the_box.mina, "POST", &format!("{folder}/uploads"))
        .header("tus-resumable", "1.0.0")
        .header("content-type", "application/offset+octet-stream")
        .header("upload-length", BYTES.to_string())
        .header("upload-metadata", "filename YQ==")
        .body(Body::from(vec![7; BYTES]))
        .expect("a request");
    let sent = the_box.send(request).await;
    assert_eq!(sent.status, 201, "{}", sent.short());
    let mut reading = Vec::new();
    for path in ["files?path=a", "archive?format=tar", "archive?format=zip"] {
        let request = TheBox::request(&the_box.jae, "GET", &format!("{folder}/{path}"))
            .body(Body::empty())
            .expect("a request");
        let answer = the_box.router.clone().oneshot(request).await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.status(), 200, "{path}");
        let mut body = answer.into_body().into_data_stream();
        body.next().await.expect("a piece").expect("read");
        // Read slowly: all of it is not taken before the share ends.
        let rest = async move {
            loop {
                match body.next().await {
                    Some(Ok(_)) => tokio::time::sleep(PAUSE).await,
                    Some(Err(_)) => return "broken off",
                    None => return "whole",
                }
            }
        };
        reading.push((path, tokio::spawn(rest)));
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    remove(&the_box, &share).await;
    let end = tokio::time::Instant::now() + SOON;
    for (path, rest) in reading {
        let rest = tokio::time::timeout_at(end, rest).await;
        let rest = rest.unwrap_or_else(|_| panic!("{path} goes on"));
        assert_eq!(rest.expect("no panic"), "broken off", "{path}");
    }
}
