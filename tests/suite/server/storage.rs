//! What folders take, over the routes: in the figures, on the page of administrators, and nowhere for other users.

use axum::body::Body;
use serde_json::json;

use super::the_box::{As, TheBox};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_folders_take_is_in_the_figures_and_on_the_page_of_administrators() {
    let the_box = TheBox::open().await;
    let asked = json!({"name": "data"});
    let made = the_box.post(&the_box.mina, "/api/v1/folders", asked).await;
    assert_eq!(made.status, 201, "{}", made.short());
    let figures = the_box.get(&As::Root, "/metrics").await;
    assert_eq!(figures.status, 200);
    let figures = String::from_utf8_lossy(&figures.bytes).into_owned();
    for level in ["free", "near", "close", "full"] {
        let line = format!("fardel_folder_owners{{level=\"{level}\"}} 0");
        assert!(figures.contains(&line), "{line}: {figures}");
    }
    let page = the_box.get(&the_box.browser, "/storage").await;
    assert_eq!(page.status, 200);
    let page = String::from_utf8_lossy(&page.bytes).into_owned();
    assert!(page.contains("<span class=\"nm\">mina</span>"), "{page}");
    let own = the_box.get(&the_box.mina, "/api/v1/storage").await.json();
    assert_eq!(own["items"][0]["owner"]["name"], "mina");
    assert_eq!(own["items"][0]["level"], "free");
    let others = the_box.get(&the_box.jae, "/api/v1/storage").await.json();
    assert_eq!(others["items"], json!([]), "others see nothing of it");
}

/// Where it lies is the business of those who look after the site.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pool_is_told_to_administrators_and_is_not_made_larger_where_there_is_none() {
    const POOL: &str = "/api/v1/storage/pool";
    let the_box = TheBox::open().await;
    let seen = the_box.get(&the_box.admin, POOL).await;
    assert_eq!(seen.status, 200, "{}", seen.short());
    assert_eq!(seen.json()["enforcement"], "counted");
    assert_eq!(seen.json()["size"], json!(null));
    assert_eq!(the_box.get(&the_box.mina, POOL).await.status, 403);
    let page = the_box.get(&the_box.browser, "/storage").await;
    let page = String::from_utf8_lossy(&page.bytes).into_owned();
    assert!(page.contains("Limits are not enforced here"), "{page}");
    assert!(!page.contains("action=\"/storage/pool\""), "{page}");
    for (who, status, code) in [
        (&the_box.admin, 409, "pool.absent"),
        (&the_box.mina, 403, "role.administrator-needed"),
    ] {
        let request = TheBox::request(who, "PUT", POOL)
            .header("content-type", "application/json")
            .body(Body::from(json!({"bytes": 64_u64 << 30}).to_string()));
        let answer = the_box.send(request.expect("a request")).await;
        assert_eq!(answer.status, status, "{}", answer.short());
        assert_eq!(answer.json()["code"], code);
    }
}
