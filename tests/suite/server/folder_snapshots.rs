//! Snapshots of folders over the routes: on a Btrfs that the test mounts they are made, browsed, and taken back; elsewhere a
//! folder says why it has none.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::mount::{MntFlags, umount2};
use serde_json::{Value, json};

use super::the_box::{Answer, As, TheBox};

/// What a job on a small folder takes at the most.
const JOB_TIMEOUT: Duration = Duration::from_secs(30);

/// Lets go of what is mounted, however the test ends.
struct Unmounted(PathBuf);

impl Drop for Unmounted {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

/// Mounts an empty Btrfs; what the machine says where it cannot.
fn btrfs(image: &Path, place: &Path) -> Result<(), String> {
    let packed = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/reflink.btrfs.gz.gz"
    );
    let unpack = format!("gzip -dc {packed} | gzip -dc | cp --sparse=always /dev/stdin \"$0\"");
    let mut shell = Command::new("sh");
    let unpacked = shell.arg("-c").arg(unpack).arg(image).status();
    assert!(unpacked.expect("a shell").success());
    let mut mount = Command::new("mount");
    let mounted = mount.args(["-o", "loop"]).arg(image).arg(place).output();
    match mounted {
        Ok(done) if done.status.success() => Ok(()),
        Ok(done) => Err(String::from_utf8_lossy(&done.stderr).into_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Waits for the end of the operation that an answer names.
async fn over(the_box: &TheBox, who: &As, begun: Answer) -> Value {
    assert_eq!(begun.status, 202, "{}", begun.short());
    let id = begun.json()["id"].as_str().expect("an id").to_owned();
    let path = format!("/api/v1/operations/{id}");
    let waits = async {
        loop {
            let seen = the_box.get(who, &path).await.json();
            if seen["ended_at"].is_string() {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(JOB_TIMEOUT, waits)
        .await
        .expect("it ends")
}

async fn write(the_box: &TheBox, folder: &str, text: &str) {
    let path = format!("{folder}/text");
    let body = json!({"path": "notes.txt", "text": text}).to_string();
    let request = TheBox::request(&the_box.mina, "PUT", &path)
        .header("content-type", "application/json")
        .header("if-match", "*")
        .body(axum::body::Body::from(body))
        .expect("a request");
    let written = the_box.send(request).await;
    assert_eq!(written.status, 200, "{}", written.short());
}

async fn read(the_box: &TheBox, folder: &str) -> Value {
    let path = format!("{folder}/text?path=notes.txt");
    the_box.get(&the_box.mina, &path).await.json()["text"].clone()
}

/// Promise (Disk, backup and upgrade): A snapshot of a folder keeps what is changed later; its owner looks into it, and takes a file
/// or all of it back, over nothing that stands there unless they say so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_on_a_disk_that_shares_blocks_has_snapshots() {
    let test = "a_folder_on_a_disk_that_shares_blocks_has_snapshots";
    let the_box = TheBox::open().await;
    let [image, place] = ["image", "shared"].map(|name| the_box.folder.path().join(name));
    fs::create_dir(&place).expect("made");
    if let Err(error) = btrfs(&image, &place) {
        skips::skip(test, &format!("no Btrfs can be mounted: {error}"));
        return;
    }
    let _unmounted = Unmounted(place.clone());
    fs::set_permissions(&place, fs::Permissions::from_mode(0o700)).expect("its mode");
    let volume = json!({"name": "big", "path": place});
    let made = the_box
        .post(&the_box.admin, "/api/v1/volumes", volume)
        .await;
    assert_eq!(made.status, 201, "{}", made.short());
    let folder = json!({"name": "data", "volume": "big"});
    let made = the_box.post(&the_box.mina, "/api/v1/folders", folder).await;
    assert_eq!(made.status, 201, "{}", made.short());
    let id = made.json()["id"].as_str().expect("an id").to_owned();
    let folder = format!("/api/v1/folders/{id}");
    let snapshots = format!("{folder}/snapshots");
    let text = json!({"path": "notes.txt", "text": "first"});
    let made = the_box
        .post(&the_box.mina, &format!("{folder}/text"), text)
        .await;
    assert_eq!(made.status, 201, "{}", made.short());

    let begun = the_box.post(&the_box.mina, &snapshots, json!({})).await;
    let done = over(&the_box, &the_box.mina, begun).await;
    assert_eq!(done["state"], "succeeded", "{done}");
    assert_eq!(done["result"]["number"], 1);
    let known = the_box.get(&the_box.mina, &snapshots).await.json();
    assert_eq!(known["offered"], true);
    assert_eq!(known["limit"], Value::Null, "none is held on a volume");
    let one = &known["items"][0];
    assert_eq!(
        (
            &one["number"],
            &one["state"],
            &one["origin"],
            &one["frozen"]
        ),
        (&json!(1), &json!("ready"), &json!("hand"), &json!(true))
    );
    assert_eq!(one["entries"], 1);

    write(&the_box, &folder, "second").await;
    let first = format!("{snapshots}/1");
    let entries = format!("{first}/entries");
    let listed = the_box.get(&the_box.mina, &entries).await.json();
    assert_eq!(listed["items"][0]["path"], "notes.txt");
    let notes = format!("{first}/files?path=notes.txt");
    let held = the_box.get(&the_box.mina, &notes).await;
    assert_eq!(held.bytes, b"first"[..]);
    for bad in ["../data/notes.txt", "/etc/passwd", "a/../../notes.txt"] {
        let path = format!("{first}/files?path={bad}");
        let refused = the_box.get(&the_box.mina, &path).await;
        assert_ne!(refused.status, 200, "{bad}");
    }
    let back = format!("{first}/restore");
    let body = json!({"path": "notes.txt"});
    let refused = the_box.post(&the_box.mina, &back, body).await;
    assert_eq!(refused.short(), "409 folder.entry-exists");
    assert_eq!(read(&the_box, &folder).await, "second");
    let body = json!({"path": "notes.txt", "replace": true});
    let restored = the_box.post(&the_box.mina, &back, body).await;
    assert_eq!(restored.status, 201, "{}", restored.short());
    assert_eq!(read(&the_box, &folder).await, "first");
    let trash = format!("{folder}/removed");
    let removed = the_box.get(&the_box.mina, &trash).await.json();
    assert_eq!(removed["items"].as_array().map(Vec::len), Some(1));

    let new = json!({"name": "earlier"});
    let begun = the_box
        .post(&the_box.mina, &format!("{first}/clone"), new)
        .await;
    let done = over(&the_box, &the_box.mina, begun).await;
    assert_eq!(done["state"], "succeeded", "{done}");
    let earlier = "/api/v1/folders/earlier";
    assert_eq!(read(&the_box, earlier).await, "first");

    for (who, code) in [
        (&the_box.jae, "404 folder.not-found"),
        (&the_box.admin, "403 folder.files-own"),
    ] {
        let refused = the_box.get(who, &snapshots).await;
        assert_eq!(refused.short(), code);
        let refused = the_box.post(who, &snapshots, json!({})).await;
        assert_eq!(refused.short(), code);
        let refused = the_box.with_body(who, "DELETE", &first, "").await;
        assert_eq!(refused.short(), code);
    }
    let schedule = format!("{snapshots}/schedule");
    let asked = json!({"hourly": 49, "daily": 0, "weekly": 0}).to_string();
    let refused = the_box.with_body(&the_box.mina, "PUT", &schedule, asked);
    assert_eq!(refused.await.short(), "422 folder.snapshot-schedule");
    let asked = json!({"hourly": 24, "daily": 7, "weekly": 4}).to_string();
    let set = the_box
        .with_body(&the_box.mina, "PUT", &schedule, asked)
        .await;
    assert_eq!(set.status, 200, "{}", set.short());
    let known = the_box.get(&the_box.mina, &snapshots).await.json();
    assert_eq!(known["schedule"]["daily"], 7);

    let house = tokio::spawn(server::keep_house(&the_box.server));
    let scheduled = async {
        loop {
            let known = the_box.get(&the_box.mina, &snapshots).await.json();
            let one = known["items"][0].clone();
            if one["origin"] == "weekly" && one["state"] == "ready" {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let scheduled = tokio::time::timeout(JOB_TIMEOUT, scheduled).await;
    scheduled.expect("the longest that is due is made");
    let gone = the_box.with_body(&the_box.mina, "DELETE", &first, "").await;
    assert_eq!(gone.status, 204, "{}", gone.short());
    let missing = the_box.get(&the_box.mina, &entries).await;
    assert_eq!(missing.short(), "404 folder.snapshot-not-found");
    let shard = place.join("folders").join(&id[id.len() - 2..]).join(&id);
    let cleared = async {
        while shard.join("snapshots/1").exists() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let cleared = tokio::time::timeout(JOB_TIMEOUT, cleared).await;
    cleared.expect("its room comes back");
    assert!(shard.join("snapshots/2").is_dir());
    house.abort();
    let _ = house.await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_elsewhere_says_why_it_has_no_snapshot() {
    let the_box = TheBox::open().await;
    let folder = json!({"name": "data"});
    let made = the_box.post(&the_box.mina, "/api/v1/folders", folder).await;
    assert_eq!(made.status, 201, "{}", made.short());
    let id = made.json()["id"].as_str().expect("an id").to_owned();
    let snapshots = format!("/api/v1/folders/{id}/snapshots");
    let known = the_box.get(&the_box.mina, &snapshots).await.json();
    let begun = the_box.post(&the_box.mina, &snapshots, json!({})).await;
    // The disk of the machine that tests run on may be of either sort.
    match known["offered"].as_bool().expect("told") {
        true => assert_eq!(
            over(&the_box, &the_box.mina, begun).await["state"],
            "succeeded"
        ),
        false => assert_eq!(begun.short(), "409 folder.snapshot-unavailable"),
    }
    let absent = format!("{snapshots}/7");
    let missing = the_box
        .with_body(&the_box.mina, "DELETE", &absent, "")
        .await;
    assert_eq!(missing.short(), "404 folder.snapshot-not-found");
    let missing = the_box
        .get(&the_box.mina, &format!("{absent}/entries"))
        .await;
    assert_eq!(missing.short(), "404 folder.snapshot-not-found");
    let word = the_box
        .get(&the_box.mina, &format!("{snapshots}/x/entries"))
        .await;
    assert_eq!(word.short(), "404 folder.snapshot-not-found");
}
