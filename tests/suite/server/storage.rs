//! What folders take, over the routes: in the figures, on the page of administrators, and nowhere for other users.

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
