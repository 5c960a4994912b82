//! Environments that come as bundles, as an administrator meets them: packed on one box, imported on another, refused by
//! name where something is wrong. Images are unpacked where this process is root.

use std::path::Path;

use base::recipe_files;
use base::signing::SigningKey;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rules::environment::RecommendedOptions;
use rules::recipe::locked_wheels;
use rules::units::Timestamp;
use serde_json::{Value, json};
use store::images::ArchiveImport;
use store::images::archive::Archive;
use store::images::environment::{BundlePlan, PlannedImage};

use super::registry::{SmallImage, can_unpack, ended};
use super::the_box::{As, TheBox};

const IMPORT: &str = "/api/v1/environments/import";

/// A bundle of one small image, packed by a box of its own.
async fn packed(content: &str, version: &str, key: Option<&SigningKey>) -> Vec<u8> {
    let there = TheBox::open().await;
    let layout = tempfile::tempdir().expect("a folder");
    SmallImage::new(content).lay_down(layout.path());
    let images = there.server.image_store().expect("a store");
    let request = ArchiveImport {
        archive: Archive::at(layout.path()).expect("a layout"),
        name: Some("tiny"),
        now: Timestamp::default(),
        cancelled: None,
    };
    let imported = images.import(request, &mut |_| {}).expect("imported");
    let planned = [PlannedImage {
        id: imported[0].record.id.clone(),
        reference: "lab/tiny:1".to_owned(),
        recommended: RecommendedOptions {
            shm: Some(1 << 30),
            memory: None,
            ports: vec![8888],
        },
    }];
    let plan = BundlePlan {
        name: "tiny",
        version,
        about: "A tiny one",
        images: &planned,
        others: &[],
        licences: "MIT".to_owned(),
        key,
    };
    let mut bytes = Vec::new();
    images.write_bundle(plan, &mut bytes).expect("written");
    bytes
}

async fn uploaded(here: &TheBox, bytes: &[u8]) -> String {
    let name = format!("filename {}", STANDARD.encode("tiny.tar"));
    let request = TheBox::request(&here.admin, "POST", "/api/v1/uploads")
        .header("tus-resumable", "1.0.0")
        .header("upload-length", bytes.len().to_string())
        .header("upload-metadata", name)
        .body(axum::body::Body::empty())
        .expect("a request");
    let made = here.send(request).await;
    assert_eq!(made.status, 201, "{}", made.short());
    let place = made.header("location").to_owned();
    let request = TheBox::request(&here.admin, "PATCH", &place)
        .header("tus-resumable", "1.0.0")
        .header("content-type", "application/offset+octet-stream")
        .header("upload-offset", "0")
        .body(axum::body::Body::from(bytes.to_vec()))
        .expect("a request");
    let sent = here.send(request).await;
    assert_eq!(sent.status, 204, "{}", sent.short());
    place.rsplit('/').next().unwrap_or_default().to_owned()
}

async fn imported(here: &TheBox, bytes: &[u8], more: Value) -> Value {
    let mut body = more;
    body["upload"] = uploaded(here, bytes).await.into();
    let answer = here.post(&here.admin, IMPORT, body).await;
    assert_eq!(answer.status, 202, "{}", answer.short());
    ended(here, &answer.json()).await
}

async fn refused(here: &TheBox, bytes: &[u8]) -> String {
    let body = json!({"upload": uploaded(here, bytes).await});
    let answer = here.post(&here.admin, IMPORT, body).await;
    // Manifest and signature are looked at before the work begins.
    if answer.status != 202 {
        let code = answer.json()["code"].clone();
        return code.as_str().unwrap_or_default().to_owned();
    }
    let done = ended(here, &answer.json()).await;
    assert_eq!(done["state"], "failed", "{done}");
    done["refusal"]["code"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Promise (Images): An environment comes as one signed file, without a network. What was changed, cut, is older or has no
/// trusted signature is refused by name and leaves nothing; layers that are here take no more room.
#[tokio::test]
async fn an_environment_travels_as_a_file() {
    const NAME: &str = "an_environment_travels_as_a_file";
    let key = SigningKey::parse(&SigningKey::draw().expect("drawn")).expect("a key");
    let folder = tempfile::tempdir().expect("a folder");
    let keys = folder.path().join("keys");
    std::fs::write(&keys, format!("lab {}\n", key.public().text())).expect("written");
    // They live as long as the test's process: settings of a box are static.
    let keys: &'static str = keys.display().to_string().leak();
    let more: &'static [(&'static str, &'static str)] =
        vec![("FARDEL_ENVIRONMENT_KEYS_FILE", keys)].leak();
    let here = TheBox::with(more, Vec::new()).await;
    if !can_unpack(NAME, &here) {
        return;
    }
    let list = async |who: &As| {
        let all = here.get(who, "/api/v1/environments").await.json();
        all["items"].as_array().map_or(0, Vec::len)
    };
    let second = packed("two", "2.0", Some(&key)).await;

    let mut tampered = second.clone();
    let at = tampered.windows(3).rposition(|part| part == b"two");
    tampered[at.expect("the layer's file")] ^= 1;
    let code = refused(&here, &tampered).await;
    assert_eq!(code, "environment.member-changed");
    let cut = &second[..second.len() - 2048];
    assert_eq!(refused(&here, cut).await, "environment.cut");
    let unsigned = packed("two", "2.0", None).await;
    assert_eq!(refused(&here, &unsigned).await, "environment.unsigned");
    assert_eq!(list(&here.admin).await, 0);

    let done = imported(&here, &second, json!({})).await;
    assert_eq!(done["state"], "succeeded", "{done}");
    assert_eq!(done["result"]["environment"]["signer"], "lab");
    let again = imported(&here, &second, json!({})).await;
    assert_eq!(again["result"]["images"][0]["new_bytes"], 0, "{again}");
    let shown = here
        .get(&here.mina, "/api/v1/environments/tiny")
        .await
        .json();
    assert_eq!(shown["environment"]["version"], "2.0", "{shown}");
    assert_eq!(shown["environment"]["images"][0]["ports"], json!([8888]));
    assert_eq!(shown["licences"], "MIT");

    let first = packed("one", "1.0", Some(&key)).await;
    assert_eq!(refused(&here, &first).await, "environment.older");
    let other = packed("three", "2.0", Some(&key)).await;
    assert_eq!(refused(&here, &other).await, "environment.version-differs");
    let third = packed("three", "3.0", Some(&key)).await;
    let done = imported(&here, &third, json!({})).await;
    assert_eq!(done["state"], "succeeded", "{done}");
    // The version before stays, with its image under another name.
    assert_eq!(list(&here.admin).await, 2);
    let before = here.get(&here.admin, "/api/v1/environments/tiny:2.0").await;
    let named = before.json()["environment"]["images"][0]["reference"].clone();
    assert!(
        named.as_str().is_some_and(|name| name.contains("-was-")),
        "{named}"
    );

    let session = json!({"name": "s", "image": "lab/tiny:1", "command": ["true"]});
    let launched = here.launch(&here.mina, session).await;
    // Where a launch names none, it has what the bundle recommends.
    assert_eq!(launched["resources"]["shm"], 1 << 30, "{launched}");
    let place = "/api/v1/environments/tiny:3.0";
    let denied = here.with_body(&here.mina, "DELETE", place, "{}").await;
    assert_eq!(denied.status, 403);
    let used = here.with_body(&here.admin, "DELETE", place, "{}").await;
    assert_eq!(used.short(), "409 environment.in-use");
    // Without a version nothing is removed: sent twice, it would take the version before as well.
    let place = "/api/v1/environments/tiny";
    let unsaid = here.with_body(&here.admin, "DELETE", place, "{}").await;
    assert_eq!(unsaid.short(), "404 environment.not-found");
    let place = "/api/v1/environments/tiny:2.0";
    let gone = here.with_body(&here.admin, "DELETE", place, "{}").await;
    assert_eq!(gone.status, 204, "{}", gone.short());
    assert_eq!(list(&here.admin).await, 1);
}

/// A recipe of this tree can be read, and its lock file names each wheel with its digest.
#[test]
fn every_recipe_of_the_tree_is_whole() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/environments");
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).expect(name);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder).expect("the recipes") {
        let name = entry.expect("an entry").file_name();
        let name = name.to_string_lossy();
        let Some(stem) = name.strip_suffix(".toml") else {
            continue;
        };
        let recipe = recipe_files::read(&text(&name)).expect(stem);
        assert_eq!(recipe.name, stem);
        if let Some(wheels) = &recipe.wheels {
            let lock = locked_wheels(&text(&wheels.lock)).expect(stem);
            assert!(lock.iter().any(|wheel| wheel.name == "pip"), "{stem}");
        }
        names.push(stem.to_owned());
    }
    names.sort();
    let known = [
        "cpp-code-server",
        "desktop",
        "python-jupyter",
        "pytorch-cuda",
        "r",
        "rstudio",
        "tensorflow-cuda",
    ];
    assert_eq!(names, known);
}
