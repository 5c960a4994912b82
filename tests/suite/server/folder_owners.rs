//! Folders that a project owns, own copies of folders, and folders that go to another owner, over the routes.

use std::time::Duration;

use axum::body::Body;
use serde_json::{Value, json};

use super::the_box::{Answer, As, TheBox};

/// What a job on a small folder takes at the most, the two seconds that a folder stands still included.
const COPY_TIMEOUT: Duration = Duration::from_secs(30);

async fn change(the_box: &TheBox, who: &As, path: &str, patch: Value) -> Answer {
    let request = TheBox::request(who, "PATCH", path)
        .header("content-type", "application/merge-patch+json")
        .header("if-match", "*")
        .body(Body::from(patch.to_string()))
        .expect("a request");
    the_box.send(request).await
}

async fn member(the_box: &TheBox, user: &str, role: &str) {
    let path = format!("/api/v1/projects/vision/members/{user}");
    let body = json!({"role": role}).to_string();
    let set = the_box.with_body(&the_box.admin, "PUT", &path, body).await;
    assert_eq!(set.status, 200, "{}", set.short());
}

/// The project vision, which mina leads.
async fn vision(the_box: &TheBox) {
    let made = the_box.post(
        &the_box.admin,
        "/api/v1/projects",
        json!({"name": "vision"}),
    );
    let made = made.await;
    assert_eq!(made.status, 201, "{}", made.short());
    member(the_box, "mina", "lead").await;
}

async fn folder(the_box: &TheBox, who: &As, body: Value) -> String {
    let made = the_box.post(who, "/api/v1/folders", body).await;
    assert_eq!(made.status, 201, "{}", made.short());
    let id = made.json()["id"].as_str().expect("an id").to_owned();
    format!("/api/v1/folders/{id}")
}

async fn mkdir(the_box: &TheBox, who: &As, folder: &str, path: &str) -> String {
    let place = format!("{folder}/mkdir");
    let made = the_box.post(who, &place, json!({"path": path})).await;
    made.short()
}

/// Waits for the end of the operation that an answer names.
async fn over(the_box: &TheBox, who: &As, begun: Answer) -> Value {
    assert_eq!(begun.status, 202, "{}", begun.short());
    let id = begun.json()["id"].as_str().expect("an id").to_owned();
    let path = format!("/api/v1/operations/{id}");
    let waits = async {
        loop {
            let seen = the_box.get(who, &path).await.json();
            if !["pending", "running"].contains(&seen["state"].as_str().unwrap_or_default()) {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let ended = tokio::time::timeout(COPY_TIMEOUT, waits).await;
    ended.expect("it ends")
}

/// A folder of a project is read or written by its members as its leads say, and is nothing to who left the project.
///
/// Proves too: `a_colleague_reads_a_shared_folder_and_does_not_write`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_use_a_folder_of_their_project_as_its_leads_say() {
    let the_box = TheBox::open().await;
    vision(&the_box).await;
    let (mina, jae) = (&the_box.mina, &the_box.jae);
    let asked = json!({"name": "corpus", "project": "vision"});
    let outside = the_box.post(jae, "/api/v1/folders", asked.clone()).await;
    assert_eq!(outside.short(), "422 folder.project-unknown");
    let corpus = folder(&the_box, mina, asked.clone()).await;
    let shown = the_box.get(mina, &corpus).await.json();
    assert_eq!(shown["owner"]["kind"], "project");
    assert_eq!(shown["owner"]["name"], "vision");
    assert_eq!(
        (&shown["members"], &shown["owned"]),
        (&json!("ro"), &json!(true))
    );
    let entries = format!("{corpus}/entries");
    let hidden = the_box.get(jae, &entries).await;
    assert_eq!(hidden.short(), "404 folder.not-found");

    member(&the_box, "jae", "member").await;
    assert_eq!(the_box.get(jae, &entries).await.status, 200);
    let listed = the_box.get(jae, "/api/v1/folders").await.json();
    assert_eq!(listed["items"][0]["right"], "ro");
    let refused = mkdir(&the_box, jae, &corpus, "new").await;
    assert_eq!(refused, "403 folder.right-missing");
    let mounts = json!([{"folder": "vision/corpus", "at": "/data"}]);
    let wanted =
        json!({"command": ["true"], "kind": "batch", "project": "default", "mounts": mounts});
    let launched = the_box.launch(jae, wanted).await;
    let session = launched.get("sessions").map_or(&launched, |all| &all[0]);
    assert_eq!(session["mounts"][0]["access"], "ro", "{launched}");
    let refused = change(&the_box, jae, &corpus, json!({"members": "rw"})).await;
    assert_eq!(refused.short(), "403 folder.right-missing");
    let refused = the_box.post(jae, "/api/v1/folders", asked).await;
    assert_eq!(refused.short(), "403 folder.lead-needed");
    let changed = change(&the_box, mina, &corpus, json!({"members": "rw"})).await;
    assert_eq!(changed.status, 200, "{}", changed.short());
    let made = mkdir(&the_box, jae, &corpus, "new").await;
    assert!(made.starts_with("201"), "{made}");

    // What an archived project holds stays as it is, but for its leads.
    let path = "/api/v1/projects/vision";
    let archived = change(&the_box, &the_box.admin, path, json!({"state": "archived"})).await;
    assert_eq!(archived.status, 200, "{}", archived.short());
    let refused = mkdir(&the_box, jae, &corpus, "newer").await;
    assert_eq!(refused, "403 folder.right-missing");
    assert_eq!(the_box.get(jae, &entries).await.status, 200);
    let made = mkdir(&the_box, mina, &corpus, "newer").await;
    assert!(made.starts_with("201"), "{made}");
    let back = change(&the_box, &the_box.admin, path, json!({"state": "active"})).await;
    assert_eq!(back.status, 200, "{}", back.short());

    let path = "/api/v1/projects/vision/members/jae";
    let left = the_box.with_body(&the_box.admin, "DELETE", path, "").await;
    assert_eq!(left.status, 204, "{}", left.short());
    let gone = the_box.get(jae, &entries).await;
    assert_eq!(gone.short(), "404 folder.not-found");
    let usage = the_box.get(mina, "/api/v1/storage").await.json();
    let owners: Vec<&Value> = usage["items"].as_array().expect("a list").iter().collect();
    assert!(
        owners.iter().any(|one| one["owner"]["kind"] == "project"),
        "{owners:?}"
    );
}

/// Proves too: `a_colleague_reads_a_shared_folder_and_does_not_write`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_reads_a_folder_makes_an_own_copy_of_it() {
    let the_box = TheBox::open().await;
    let (mina, jae) = (&the_box.mina, &the_box.jae);
    let data = folder(&the_box, mina, json!({"name": "data"})).await;
    mkdir(&the_box, mina, &data, "train").await;
    let clone = format!("{data}/clone");
    let hidden = the_box.post(jae, &clone, json!({"name": "mine"})).await;
    assert_eq!(hidden.short(), "404 folder.not-found");
    let shares = format!("{data}/shares");
    let share = the_box.post(mina, &shares, json!({"user": "jae"})).await;
    let share = share.json()["id"].as_str().expect("an id").to_owned();
    let path = format!("/api/v1/folder-invitations/{share}/accept");
    the_box.post(jae, &path, json!({})).await;
    let begun = the_box.post(jae, &clone, json!({"name": "mine"})).await;
    let ended = over(&the_box, jae, begun).await;
    assert_eq!(ended["state"], "succeeded", "{ended}");
    let copy = ended["result"]["folder"].as_str().expect("an id");
    let copy = format!("/api/v1/folders/{copy}");
    let shown = the_box.get(jae, &copy).await.json();
    assert_eq!(shown["owner"]["name"], "jae");
    assert_eq!(shown["state"], "ready");
    let entries = format!("{copy}/entries");
    let listed = the_box.get(jae, &entries).await.json();
    assert_eq!(listed["items"][0]["name"], "train");
    let others = the_box.get(mina, &copy).await;
    assert_eq!(others.short(), "404 folder.not-found");
    let again = the_box.post(jae, &clone, json!({"name": "mine"})).await;
    assert_eq!(again.short(), "409 folder.name-taken");

    // Its owner keeps copies to herself; others read it on.
    let refused = change(&the_box, jae, &data, json!({"cloneable": false})).await;
    assert_eq!(refused.short(), "403 folder.right-missing");
    let kept = json!({"name": "data-2", "cloneable": false});
    let kept = change(&the_box, mina, &data, kept).await;
    assert_eq!(kept.status, 200, "{}", kept.short());
    let kept = kept.json();
    assert_eq!(
        (&kept["cloneable"], &kept["name"]),
        (&json!(false), &json!("data-2"))
    );
    let refused = the_box.post(jae, &clone, json!({"name": "more"})).await;
    assert_eq!(refused.short(), "403 folder.not-cloneable");
    let entries = format!("{data}/entries");
    assert_eq!(the_box.get(jae, &entries).await.status, 200);
    let own = the_box.post(mina, &clone, json!({"name": "more"})).await;
    assert_eq!(over(&the_box, mina, own).await["state"], "succeeded");
    let given = change(&the_box, mina, &data, json!({"cloneable": true})).await;
    assert_eq!(given.json()["cloneable"], true);
    let begun = the_box.post(jae, &clone, json!({"name": "more"})).await;
    assert_eq!(over(&the_box, jae, begun).await["state"], "succeeded");
}

/// It is nothing to its former owner from then on.
///
/// Proves too: `a_colleague_reads_a_shared_folder_and_does_not_write`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_goes_to_another_owner_who_takes_it() {
    let the_box = TheBox::open().await;
    let (mina, jae) = (&the_box.mina, &the_box.jae);
    let data = folder(&the_box, mina, json!({"name": "data"})).await;
    mkdir(&the_box, mina, &data, "train").await;
    let transfer = format!("{data}/transfer");
    let hidden = the_box.post(jae, &transfer, json!({"user": "jae"})).await;
    assert_eq!(hidden.short(), "404 folder.not-found");
    for (body, expected) in [
        (json!({}), "422 folder.share-target"),
        (json!({"user": "mina"}), "422 folder.share-unknown"),
        (json!({"user": "no.such"}), "422 folder.share-unknown"),
        (json!({"project": "no-such"}), "422 folder.project-unknown"),
    ] {
        let refused = the_box.post(mina, &transfer, body).await;
        assert_eq!(refused.short(), expected);
    }
    let id = data.rsplit('/').next().expect("an id");
    let accept = format!("/api/v1/folder-transfers/{id}/accept");
    let none = the_box.post(jae, &accept, json!({})).await;
    assert_eq!(none.short(), "404 folder.transfer-not-found");
    let offered = the_box.post(mina, &transfer, json!({"user": "jae"})).await;
    assert_eq!(offered.status, 201, "{}", offered.short());
    let own = the_box.post(mina, &accept, json!({})).await;
    assert_eq!(own.short(), "404 folder.transfer-not-found");
    let listed = the_box.get(jae, "/api/v1/folder-transfers").await.json();
    assert_eq!(listed["items"][0]["folder"], id);
    // Until it is taken, nothing of it is jae's.
    let hidden = the_box.get(jae, &data).await;
    assert_eq!(hidden.short(), "404 folder.not-found");
    let own = folder(&the_box, jae, json!({"name": "data"})).await;
    let taken = the_box.post(jae, &accept, json!({})).await;
    assert_eq!(taken.short(), "409 folder.name-taken");
    let renamed = change(&the_box, jae, &own, json!({"name": "older"})).await;
    assert_eq!(renamed.status, 200);
    let begun = the_box.post(jae, &accept, json!({})).await;
    // Its name is jae's from that moment, and its files stand still.
    let twice = the_box.post(jae, "/api/v1/folders", json!({"name": "data"}));
    assert_eq!(twice.await.short(), "409 folder.name-taken");
    let still = mkdir(&the_box, mina, &data, "late").await;
    assert_eq!(still, "409 folder.transferring");
    let ended = over(&the_box, jae, begun).await;
    assert_eq!(ended["state"], "succeeded", "{ended}");
    let shown = the_box.get(jae, &data).await.json();
    assert_eq!(
        (&shown["owner"]["name"], &shown["state"]),
        (&json!("jae"), &json!("ready"))
    );
    let entries = format!("{data}/entries");
    let listed = the_box.get(jae, &entries).await.json();
    assert_eq!(listed["items"][0]["name"], "train");
    let gone = the_box.get(mina, &entries).await;
    assert_eq!(gone.short(), "404 folder.not-found");
    let listed = the_box.get(jae, "/api/v1/folder-transfers").await.json();
    assert_eq!(listed["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_goes_to_a_project_whose_lead_takes_it() {
    let the_box = TheBox::open().await;
    vision(&the_box).await;
    member(&the_box, "jae", "member").await;
    let (mina, jae) = (&the_box.mina, &the_box.jae);
    let data = folder(&the_box, jae, json!({"name": "data"})).await;
    let transfer = format!("{data}/transfer");
    let offered = the_box.post(jae, &transfer, json!({"project": "vision"}));
    assert_eq!(offered.await.status, 201);
    let id = data.rsplit('/').next().expect("an id");
    let accept = format!("/api/v1/folder-transfers/{id}/accept");
    let member = the_box.post(jae, &accept, json!({})).await;
    assert_eq!(member.short(), "404 folder.transfer-not-found");
    let back = the_box.with_body(jae, "DELETE", &transfer, "").await;
    assert_eq!(back.status, 204, "{}", back.short());
    let none = the_box.post(mina, &accept, json!({})).await;
    assert_eq!(none.short(), "404 folder.transfer-not-found");
    let offered = the_box.post(jae, &transfer, json!({"project": "vision"}));
    assert_eq!(offered.await.status, 201);
    let begun = the_box.post(mina, &accept, json!({})).await;
    let ended = over(&the_box, mina, begun).await;
    assert_eq!(ended["state"], "succeeded", "{ended}");
    // Its former owner reads it as the other members do.
    let shown = the_box.get(jae, &data).await.json();
    assert_eq!(shown["owner"]["name"], "vision");
    assert_eq!(shown["right"], "ro");
    let refused = the_box.post(jae, &transfer, json!({"user": "jae"})).await;
    assert_eq!(refused.short(), "403 folder.owner-only");
}

/// Who leads a project no more takes nothing out of it by an offer that was made before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offer_out_of_a_project_ends_with_its_lead() {
    let the_box = TheBox::open().await;
    vision(&the_box).await;
    let (mina, jae) = (&the_box.mina, &the_box.jae);
    let asked = json!({"name": "corpus", "project": "vision", "members": "rw"});
    let corpus = folder(&the_box, mina, asked).await;
    let transfer = format!("{corpus}/transfer");
    let offered = the_box.post(mina, &transfer, json!({"user": "jae"})).await;
    assert_eq!(offered.status, 201, "{}", offered.short());
    let id = corpus.rsplit('/').next().expect("an id");
    let accept = format!("/api/v1/folder-transfers/{id}/accept");
    member(&the_box, "mina", "member").await;
    let listed = the_box.get(jae, "/api/v1/folder-transfers").await.json();
    assert_eq!(listed["items"], json!([]));
    let taken = the_box.post(jae, &accept, json!({})).await;
    assert_eq!(taken.short(), "404 folder.transfer-not-found");

    member(&the_box, "mina", "lead").await;
    let begun = the_box.post(jae, &accept, json!({})).await;
    let ended = over(&the_box, jae, begun).await;
    assert_eq!(ended["state"], "succeeded", "{ended}");
    let shown = the_box.get(jae, &corpus).await.json();
    assert_eq!(
        (&shown["owner"]["name"], &shown["members"]),
        (&json!("jae"), &Value::Null)
    );
    let gone = the_box.get(mina, &corpus).await;
    assert_eq!(gone.short(), "404 folder.not-found");
}
