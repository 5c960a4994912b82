//! An environment that came as a bundle starts as any image does, also one that a recipe was built of.

use std::fs;
use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::Arc;

use api::operations::OperationState;
use base::observe::Clock;
use base::settings::Settings;
use node::images::ImageDirectory;
use node::runtime::{Runtime, RuntimePaths};
use node::{LocalNode, NodeOptions};
use rules::environment::RecommendedOptions;
use rules::units::Timestamp;
use server::actions::images::{ImportSource, environments};
use server::actions::sessions;
use server::links::Links;
use server::{Server, access};
use store::images::archive::Archive;
use store::images::environment::{BundlePlan, PlannedImage};
use store::images::limits::ImportLimits;
use store::images::{ArchiveImport, ImageStore};

use super::commit::{over, running, stay};
use super::images::{NoImages, layout_of, member, until};

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
    let folder = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| folder.path().join(name);
    let data = at("server").display().to_string();
    let settings = Settings::read(Default::default(), |name| match name {
        "FARDEL_DATA" => Some(data.clone()),
        "FARDEL_RUN" => Some(format!("{data}/run")),
        "FARDEL_CONFIG" => Some("/nonexistent".into()),
        _ => None,
    })
    .expect("valid settings");
    fs::create_dir_all(settings.data.join("run")).expect("a directory");
    let server = Server::in_memory(settings, Clock::system()).expect("a server in memory");
    let places = RuntimePaths {
        data: at("node"),
        run: at("run"),
        shim_binary: env!("CARGO_BIN_EXE_fardel").into(),
    };
    let options = NodeOptions {
        id: server.node(),
        places: places.clone(),
        images: ImageDirectory::Shared(server.image_directory()),
        host_environment: false,
        cpu: None,
        memory: None,
        devices: Vec::new(),
        driver_root: at("no-driver"),
        gpu_mode: node::gpu::arbiter::Mode::Hard,
        keep_days: 1,
    };
    let machine = LocalNode::open(options, Arc::new(NoImages), Clock::system()).expect("it opens");
    let mut findings = machine.findings().iter();
    if let Some(finding) = findings.find(|finding| finding.prevents_containers) {
        skips::skip(NAME, &finding.what);
        return;
    }
    server.bring_streams(machine.streams());
    let (server_end, node_end) = base::link::local();
    let links = Links::to(server.node(), server_end);
    let controller = tokio::spawn(server::conduct(&server, links));
    let runs = tokio::spawn(machine.run(node_end));
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

    controller.abort();
    runs.await.expect("no panic").expect("it ran");
    let runtime = Runtime::open(places).expect("it opens");
    super::disk::end_fork_server(runtime.instance_id());
    runtime.retire();
}
