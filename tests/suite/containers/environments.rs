//! An environment that came as a bundle starts as any image does, also one that a recipe was built of.

use std::fs;
use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use api::operations::OperationState;
use rules::environment::RecommendedOptions;
use rules::units::Timestamp;
use server::access;
use server::actions::images::{ImportSource, environments};
use server::actions::sessions;
use store::images::archive::Archive;
use store::images::environment::{BundlePlan, PlannedImage};
use store::images::limits::ImportLimits;
use store::images::{ArchiveImport, ImageStore};

use super::commit::{over, running, stay};
use super::images::{layout_of, member, until};
use super::whole::Whole;

const RECIPE: &str = r#"
name = "tiny"
version = "1.0"
title = {en = "Tiny", ko = "작은 환경"}
architectures = ["amd64", "arm64"]
command = ["/bin/stay"]

[base]
root = "root"
epoch = 1750000000

[[file]]
path = "/etc/hello"
text = "of a recipe"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn an_image_of_a_bundle_starts() {
    const NAME: &str = "an_image_of_a_bundle_starts";
    let Some(whole) = Whole::begin(NAME, false) else {
        return;
    };
    let (server, places) = (whole.server.clone(), whole.places.clone());
    let at = |name: &str| whole.at(name);
    let root = access::local_root(&server);

    let mut layer = member("stay", &stay());
    layer.extend(member("here", b"came on a stick"));
    layer.resize(layer.len() + 1024, 0);
    layout_of(&at("layout"), &layer, "/stay");
    // Packed by another store, as on another box.
    let there = ImageStore::open(&at("there"), ImportLimits::default()).expect("a store");
    let request = ArchiveImport {
        archive: Archive::at(&at("layout")).expect("a layout"),
        name: Some("base"),
        now: Timestamp::default(),
        cancelled: None,
    };
    let packed = there.import(request, &mut |_| {}).expect("imported");
    let images = [PlannedImage {
        id: packed[0].record.id.clone(),
        reference: "stick:1".to_owned(),
        recommended: RecommendedOptions::default(),
    }];
    let plan = BundlePlan {
        name: "stick",
        version: "1.0",
        about: "",
        images: &images,
        others: &[],
        licences: String::new(),
        key: None,
    };
    let mut file = File::create(at("stick.tar")).expect("a file");
    there.write_bundle(plan, &mut file).expect("written");
    let from = ImportSource::Path(at("stick.tar"));
    let begun = environments::import(&server, &root, from, true, false, None).await;
    let imported = over(&server, &begun.expect("the import begins").value).await;
    assert_eq!(imported.state, OperationState::Succeeded, "{imported:?}");

    let (_, inside) = running(&server, &places.run, "first", "stick:1").await;
    let text = fs::read_to_string(inside.root.join("here"));
    assert_eq!(text.expect("it is there"), "came on a stick");

    let used = environments::remove(&server, &root, "stick:1.0").await;
    match used {
        Err(server::Failure::Refusal(refusal)) => assert_eq!(refusal.code, "environment.in-use"),
        other => panic!("not refused: {other:?}"),
    }
    sessions::stop(&server, &root, "first", true)
        .await
        .expect("told to end");
    until("it ends", async || {
        let seen = sessions::get(&server, &root, "first").await;
        seen.expect("it is there").ended_at.is_some().then_some(())
    })
    .await;
    let gone = environments::remove(&server, &root, "stick:1.0").await;
    assert_eq!(gone.expect("it is removed").version, "1.0");

    // Built here, of a directory that is a root already: without a network, and without a container engine.
    let recipe = at("recipe/tiny.toml");
    fs::create_dir_all(at("recipe/root/bin")).expect("a directory");
    fs::write(at("recipe/root/bin/stay"), stay()).expect("written");
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(at("recipe/root/bin/stay"), mode).expect("executable");
    fs::write(&recipe, RECIPE).expect("written");
    let built = Command::new(env!("CARGO_BIN_EXE_fardel"))
        .args(["environment", "build", "--twice", "--out"])
        .arg(at("built.tar"))
        .arg(&recipe)
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{said}");
    let from = ImportSource::Path(at("built.tar"));
    let begun = environments::import(&server, &root, from, true, false, None).await;
    let imported = over(&server, &begun.expect("the import begins").value).await;
    assert_eq!(imported.state, OperationState::Succeeded, "{imported:?}");
    let (_, inside) = running(&server, &places.run, "second", "tiny:1.0").await;
    let text = fs::read_to_string(inside.root.join("etc/hello"));
    assert_eq!(text.expect("it is there"), "of a recipe");
    sessions::stop(&server, &root, "second", true)
        .await
        .expect("told to end");
    until("it ends", async || {
        let seen = sessions::get(&server, &root, "second").await;
        seen.expect("it is there").ended_at.is_some().then_some(())
    })
    .await;

    whole.end().await;
}
