//! The registry as its clients meet it: by the requests of the protocol, and by programs as they are installed. Images are
//! unpacked where this process is root; the other tests run everywhere.

mod clients;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::process::Command;

use super::the_box::{Answer, As, TheBox};

/// Longer than anything here takes on a loaded machine; only a hang reaches it.
const HANG: Duration = Duration::from_secs(60);
const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{hex}")
}

fn secret(who: &As) -> &str {
    match who {
        As::Token(token) => token,
        _ => panic!("clients of the registry have a token"),
    }
}

/// One file in a tar archive.
fn member(name: &str, data: &[u8]) -> Vec<u8> {
    let mut header = [0_u8; 512];
    let mut put = |at: usize, text: &str| {
        header[at..at + text.len()].copy_from_slice(text.as_bytes());
    };
    put(0, name);
    put(100, "0000644\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{:011o}\0", data.len()));
    put(136, "00000000000\0");
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\u{0}00");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut bytes = header.to_vec();
    bytes.extend(data);
    bytes.resize(bytes.len().div_ceil(512) * 512, 0);
    bytes
}

/// An image of one layer with one file: its layer, configuration and manifest.
pub(super) struct SmallImage {
    layer: Vec<u8>,
    config: Vec<u8>,
    manifest: Vec<u8>,
}

impl SmallImage {
    pub(super) fn new(content: &str) -> Self {
        Self::labelled(content, &json!({}))
    }

    fn labelled(content: &str, labels: &Value) -> Self {
        let mut layer = member("motd", content.as_bytes());
        layer.extend([0; 1024]);
        let machine = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let config = json!({
            "architecture": machine,
            "os": "linux",
            "config": {"Cmd": ["/bin/sh"], "Labels": labels},
            "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
        })
        .to_string()
        .into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": digest(&config),
                "size": config.len(),
            },
            "layers": [{
                "mediaType": "application/vnd.oci.image.layer.v1.tar",
                "digest": digest(&layer),
                "size": layer.len(),
            }],
        })
        .to_string()
        .into_bytes();
        Self {
            layer,
            config,
            manifest,
        }
    }

    /// Lays it down as an OCI layout.
    pub(super) fn lay_down(&self, folder: &Path) {
        let blobs = folder.join("blobs/sha256");
        std::fs::create_dir_all(&blobs).expect("made");
        for bytes in [&self.layer, &self.config, &self.manifest] {
            let name = digest(bytes);
            let name = name.trim_start_matches("sha256:");
            std::fs::write(blobs.join(name), bytes).expect("written");
        }
        let index = json!({
            "schemaVersion": 2,
            "manifests": [{
                "mediaType": OCI_MANIFEST,
                "digest": digest(&self.manifest),
                "size": self.manifest.len(),
            }],
        });
        std::fs::write(folder.join("index.json"), index.to_string()).expect("written");
        let layout = r#"{"imageLayoutVersion":"1.0.0"}"#;
        std::fs::write(folder.join("oci-layout"), layout).expect("written");
    }
}

/// A user's requests to the registry.
struct RegistryCaller<'a> {
    the_box: &'a TheBox,
    name: &'static str,
    who: &'a As,
}

impl RegistryCaller<'_> {
    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let pair = format!("{}:{}", self.name, secret(self.who));
        let mut request = TheBox::request(&As::Nobody, method, path)
            .header("authorization", format!("Basic {}", STANDARD.encode(pair)));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_vec())).expect("a request");
        self.the_box.send(request).await
    }

    /// Status and word of the protocol.
    async fn short(&self, method: &str, path: &str, body: &[u8]) -> String {
        let answer = self.ask(method, path, &[], body).await;
        short(&answer)
    }

    async fn push_blob(&self, repository: &str, bytes: &[u8]) {
        let path = format!("/v2/{repository}/blobs/uploads/?digest={}", digest(bytes));
        assert_eq!(self.short("POST", &path, bytes).await, "201");
    }

    async fn push(&self, repository: &str, tag: &str, image: &SmallImage) -> Answer {
        self.push_blob(repository, &image.layer).await;
        self.push_blob(repository, &image.config).await;
        let path = format!("/v2/{repository}/manifests/{tag}");
        let kind = [("content-type", OCI_MANIFEST)];
        self.ask("PUT", &path, &kind, &image.manifest).await
    }
}

fn short(answer: &Answer) -> String {
    let status = answer.status.as_u16();
    match serde_json::from_slice::<Value>(&answer.bytes) {
        Ok(body) if status >= 400 => {
            let word = body["errors"][0]["code"].as_str();
            format!("{status} {}", word.unwrap_or("without a code"))
        }
        _ => status.to_string(),
    }
}

/// Whether images can be unpacked here; says so for the test where they cannot.
pub(super) fn can_unpack(test: &str, the_box: &TheBox) -> bool {
    let images = the_box.server.image_store().expect("a store");
    match images.can_unpack() {
        Ok(()) => true,
        Err(error) => {
            skips::skip(test, &error.to_string());
            false
        }
    }
}

/// A stranger learns nothing of the registry, a user without the right to images pushes
/// nothing, and a digest alone gives no blob.
#[tokio::test]
async fn the_registry_tells_strangers_nothing_and_a_digest_gives_no_blob() {
    let the_box = TheBox::open().await;
    let ada = RegistryCaller {
        the_box: &the_box,
        name: "ada",
        who: &the_box.admin,
    };
    let mina = RegistryCaller {
        name: "mina",
        who: &the_box.mina,
        ..ada
    };
    ada.push_blob("lab/tiny", b"bytes of ada").await;
    let known = format!("/v2/lab/tiny/blobs/{}", digest(b"bytes of ada"));
    let unknown = format!("/v2/lab/none/blobs/{}", digest(b"no bytes"));
    let mut seen = Vec::new();
    for path in ["/v2/", &known, &unknown, "/v2/lab/tiny/tags/list"] {
        let answer = the_box.get(&As::Nobody, path).await;
        assert_eq!(short(&answer), "401 UNAUTHORIZED", "{path}");
        assert!(answer.header("www-authenticate").starts_with("Basic "));
        seen.push(answer.bytes);
    }
    seen.dedup();
    assert_eq!(seen.len(), 1, "one path tells more than another");
    let theirs = RegistryCaller {
        name: "ada",
        who: &the_box.mina,
        ..mina
    };
    assert_eq!(theirs.short("GET", "/v2/", b"").await, "401 UNAUTHORIZED");
    assert_eq!(mina.short("GET", "/v2/", b"").await, "200");
    assert_eq!(mina.short("GET", &known, b"").await, "404 BLOB_UNKNOWN");
    assert_eq!(mina.short("GET", &unknown, b"").await, "404 BLOB_UNKNOWN");
    assert_eq!(mina.short("GET", "/v2/_catalog", b"").await, "403 DENIED");
    for path in ["/v2/lab/tiny/blobs/uploads/", "/v2/lab/none/blobs/uploads/"] {
        assert_eq!(mina.short("POST", path, b"").await, "403 DENIED", "{path}");
    }
    let whole = ada.ask("GET", &known, &[], b"").await;
    assert_eq!(whole.bytes, b"bytes of ada");
    let part = ada.ask("GET", &known, &[("range", "bytes=6-7")], b"").await;
    assert_eq!((part.status.as_u16(), &part.bytes[..]), (206, &b"of"[..]));
    assert_eq!(part.header("content-range"), "bytes 6-7/12");
    let behind = ada.ask("GET", &known, &[("range", "bytes=90-")], b"").await;
    assert_eq!(behind.status, 416);
}

/// A push that was cut goes on where it was, and bytes with another digest are kept nowhere.
#[tokio::test]
async fn a_cut_upload_goes_on_and_a_wrong_digest_is_refused() {
    let the_box = TheBox::open().await;
    let ada = RegistryCaller {
        the_box: &the_box,
        name: "ada",
        who: &the_box.admin,
    };
    let begun = ada
        .ask("POST", "/v2/lab/tiny/blobs/uploads/", &[], b"")
        .await;
    assert_eq!(begun.status, 202);
    let upload = begun.header("location").to_owned();
    let piece = ada
        .ask("PATCH", &upload, &[("content-range", "0-5")], b"hello ")
        .await;
    assert_eq!((piece.status.as_u16(), piece.header("range")), (202, "0-5"));
    let wrong = ada
        .ask("PATCH", &upload, &[("content-range", "3-4")], b"xx")
        .await;
    assert_eq!(short(&wrong), "416 BLOB_UPLOAD_INVALID");
    for bad in ["x", "5-4", "0-18446744073709551615"] {
        let answer = ada
            .ask("PATCH", &upload, &[("content-range", bad)], b"xx")
            .await;
        assert_eq!(answer.status, 400, "{bad}");
    }
    let there = ada.ask("GET", &upload, &[], b"").await;
    assert_eq!((there.status.as_u16(), there.header("range")), (204, "0-5"));
    let elsewhere = upload.replace("lab/tiny", "lab/other");
    let answer = ada.ask("GET", &elsewhere, &[], b"").await;
    assert_eq!(short(&answer), "404 BLOB_UPLOAD_UNKNOWN");
    let whole = digest(b"hello world");
    let ended = format!("{upload}?digest={whole}");
    let done = ada
        .ask("PUT", &ended, &[("content-range", "6-10")], b"world")
        .await;
    assert_eq!(done.status, 201);
    assert_eq!(done.header("docker-content-digest"), whole);
    let blob = format!("/v2/lab/tiny/blobs/{whole}");
    assert_eq!(ada.short("HEAD", &blob, b"").await, "200");

    let mount = format!("/v2/lab/other/blobs/uploads/?mount={whole}&from=lab/tiny");
    assert_eq!(ada.short("POST", &mount, b"").await, "201");
    let lie = format!("/v2/lab/tiny/blobs/uploads/?digest={whole}");
    assert_eq!(
        ada.short("POST", &lie, b"other").await,
        "400 DIGEST_INVALID"
    );
    let other = format!("/v2/lab/tiny/blobs/{}", digest(b"other"));
    assert_eq!(ada.short("GET", &other, b"").await, "404 BLOB_UNKNOWN");

    let image = SmallImage::new("hello");
    let path = "/v2/lab/tiny/manifests/1";
    let kind = [("content-type", OCI_MANIFEST)];
    let answer = ada.ask("PUT", path, &kind, &image.manifest).await;
    assert_eq!(short(&answer), "404 MANIFEST_BLOB_UNKNOWN");
    let answer = ada.ask("PUT", path, &kind, b"{}").await;
    assert_eq!(short(&answer), "400 MANIFEST_INVALID");
    for bad in ["/v2/Lab/manifests/1", "/v2/../x/manifests/1"] {
        assert_eq!(ada.ask("GET", bad, &[], b"").await.status, 400, "{bad}");
    }
    let names = ada.ask("GET", "/v2/_catalog", &[], b"").await;
    assert_eq!(names.json(), json!({"repositories": []}));
}

/// Labels of an image bound what its sessions ask for, until an administrator says something else.
#[tokio::test]
async fn labels_of_an_image_bound_its_launches_until_an_administrator_says_otherwise() {
    const NAME: &str =
        "labels_of_an_image_bound_its_launches_until_an_administrator_says_otherwise";
    let the_box = TheBox::open().await;
    if !can_unpack(NAME, &the_box) {
        return;
    }
    let ada = RegistryCaller {
        the_box: &the_box,
        name: "ada",
        who: &the_box.admin,
    };
    let labels = json!({"fardel.min.cpu": "2", "ai.backend.resource.min.mem": "512m"});
    let image = SmallImage::labelled("hello", &labels);
    assert_eq!(ada.push("lab/tiny", "1", &image).await.status, 201);
    let path = "/api/v1/images/lab%2Ftiny%3A1";
    let shown = the_box.get(&the_box.mina, path).await.json();
    assert_eq!(shown["limits"]["min_cpu"], 2);
    assert_eq!(shown["limits"]["min_memory"], 512 << 20);
    assert_eq!(shown["limits_set"], false);
    let preview = async |cpu: u64| {
        let body = json!({"image": "lab/tiny:1", "resources": {"cpu": cpu}});
        let path = "/api/v1/sessions?dry_run=true";
        the_box.post(&the_box.mina, path, body).await
    };
    let refused = preview(1).await;
    assert_eq!(refused.short(), "422 image.minimum");
    let limits = format!("{path}/limits");
    let body = json!({"min_cpu": 1}).to_string();
    let answer = the_box
        .with_body(&the_box.mina, "PUT", &limits, body.clone())
        .await;
    assert_eq!(answer.short(), "403 role.administrator-needed");
    let answer = the_box
        .with_body(&the_box.admin, "PUT", &limits, body)
        .await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["limits_set"], true);
    assert_eq!(preview(1).await.status, 200);
    let body = json!({"of_labels": true}).to_string();
    let answer = the_box
        .with_body(&the_box.admin, "PUT", &limits, body)
        .await;
    assert_eq!(answer.json()["limits"]["min_cpu"], 2);
    assert_eq!(preview(1).await.short(), "422 image.minimum");
}

/// Promise (Images): What docker, podman and skopeo push is an image of the site, and is pulled with the digests that it was
/// pushed with.
#[tokio::test]
async fn skopeo_pushes_and_pulls_with_equal_digests() {
    const NAME: &str = "skopeo_pushes_and_pulls_with_equal_digests";
    let the_box = TheBox::open().await;
    if !can_unpack(NAME, &the_box) {
        return;
    }
    if Command::new("skopeo")
        .arg("--version")
        .output()
        .await
        .is_err()
    {
        skips::skip(NAME, "skopeo is not here");
        return;
    }
    let (address, _) = the_box.serve().await;
    let folder = tempfile::tempdir().expect("a directory");
    let image = SmallImage::new("hello");
    image.lay_down(&folder.path().join("there"));
    let layout = |name: &str| format!("oci:{}:1", folder.path().join(name).display());
    let ours = format!("docker://{address}/lab/tiny:1");
    let skopeo = |arguments: Vec<String>| {
        let home = folder.path().to_owned();
        async move {
            let running = Command::new("skopeo")
                .arg("--insecure-policy")
                .args(arguments)
                .env("HOME", home)
                .kill_on_drop(true)
                .output();
            let ended = tokio::time::timeout(HANG, running).await;
            ended.expect("it ends").expect("it runs")
        }
    };
    let there = format!("oci:{}", folder.path().join("there").display());
    let push = |creds: String| {
        let arguments = [
            "copy".to_owned(),
            "--preserve-digests".to_owned(),
            "--dest-tls-verify=false".to_owned(),
            format!("--dest-creds={creds}"),
            there.clone(),
            ours.clone(),
        ];
        skopeo(arguments.to_vec())
    };
    let refused = push(format!("mina:{}", secret(&the_box.mina))).await;
    assert!(!refused.status.success(), "mina may not push");
    let pushed = push(format!("ada:{}", secret(&the_box.admin))).await;
    assert!(pushed.status.success(), "{pushed:?}");
    let shown = the_box
        .get(&the_box.mina, "/api/v1/images/lab%2Ftiny:1")
        .await
        .json();
    assert_eq!(shown["digest"], digest(&image.config), "{shown}");

    let back = skopeo(vec![
        "copy".to_owned(),
        "--preserve-digests".to_owned(),
        "--src-tls-verify=false".to_owned(),
        format!("--src-creds=mina:{}", secret(&the_box.mina)),
        ours.clone(),
        layout("back"),
    ])
    .await;
    assert!(back.status.success(), "{back:?}");
    let index = std::fs::read(folder.path().join("back/index.json")).expect("an index");
    let index: Value = serde_json::from_slice(&index).expect("JSON");
    assert_eq!(index["manifests"][0]["digest"], digest(&image.manifest));
    for bytes in [&image.layer, &image.config] {
        let name = digest(bytes);
        let name = name.trim_start_matches("sha256:");
        let path = folder.path().join("back/blobs/sha256").join(name);
        assert_eq!(&std::fs::read(path).expect("a blob"), bytes);
    }
}

/// Of an index of images for several kinds of machines, the one for this machine is launched from, and the
/// index is pulled with the digest that it was pushed with.
#[tokio::test]
async fn an_index_gives_its_image_for_this_machine() {
    let the_box = TheBox::open().await;
    if !can_unpack("an_index_gives_its_image_for_this_machine", &the_box) {
        return;
    }
    let ada = RegistryCaller {
        the_box: &the_box,
        name: "ada",
        who: &the_box.admin,
    };
    let (ours, other) = (SmallImage::new("ours"), SmallImage::new("other"));
    let config: Value = serde_json::from_slice(&ours.config).expect("JSON");
    let index = json!({
        "schemaVersion": 2,
        "mediaType": OCI_INDEX,
        "manifests": [
            {
                "mediaType": OCI_MANIFEST,
                "digest": digest(&other.manifest),
                "size": other.manifest.len(),
                "platform": {"os": "linux", "architecture": "other"},
            },
            {
                "mediaType": OCI_MANIFEST,
                "digest": digest(&ours.manifest),
                "size": ours.manifest.len(),
                "platform": {"os": "linux", "architecture": config["architecture"]},
            },
        ],
    })
    .to_string();
    let kind = [("content-type", OCI_INDEX)];
    let path = "/v2/lab/many/manifests/1";
    let early = ada.ask("PUT", path, &kind, index.as_bytes()).await;
    assert_eq!(short(&early), "404 MANIFEST_BLOB_UNKNOWN");
    for image in [&other, &ours] {
        let pushed = ada.push("lab/many", &digest(&image.manifest), image).await;
        assert_eq!(short(&pushed), "201");
    }
    let mina = RegistryCaller {
        name: "mina",
        who: &the_box.mina,
        ..ada
    };
    // Who pushed them finds them before the index names them; others do not.
    let path_of_ours = format!("/v2/lab/many/manifests/{}", digest(&ours.manifest));
    let found = ada.ask("GET", &path_of_ours, &[], b"").await;
    assert_eq!(found.bytes, ours.manifest);
    assert_eq!(found.header("content-type"), OCI_MANIFEST);
    let hidden = mina.short("GET", &path_of_ours, b"").await;
    assert_eq!(hidden, "404 MANIFEST_UNKNOWN");
    let blob = format!("/v2/lab/many/manifests/{}", digest(&ours.layer));
    assert_eq!(ada.short("GET", &blob, b"").await, "404 MANIFEST_UNKNOWN");
    let pushed = ada.ask("PUT", path, &kind, index.as_bytes()).await;
    assert_eq!(short(&pushed), "201");
    assert_eq!(mina.short("GET", &path_of_ours, b"").await, "200");
    let back = ada.ask("GET", path, &[], b"").await;
    assert_eq!(back.bytes, index.as_bytes());
    assert_eq!(back.header("content-type"), OCI_INDEX);
    for image in [&other, &ours] {
        let path = format!("/v2/lab/many/manifests/{}", digest(&image.manifest));
        let listed = ada.ask("GET", &path, &[], b"").await;
        assert_eq!(listed.bytes, image.manifest);
        let layer = format!("/v2/lab/many/blobs/{}", digest(&image.layer));
        assert_eq!(ada.short("HEAD", &layer, b"").await, "200");
    }
    let shown = the_box
        .get(&the_box.admin, "/api/v1/images/lab%2Fmany:1")
        .await
        .json();
    assert_eq!(shown["digest"], digest(&ours.config), "{shown}");
}

/// A tag and a digest are deleted as images are elsewhere; blobs are not, and who may not push deletes nothing.
#[tokio::test]
async fn a_tag_and_a_digest_are_deleted() {
    let the_box = TheBox::open().await;
    if !can_unpack("a_tag_and_a_digest_are_deleted", &the_box) {
        return;
    }
    let ada = RegistryCaller {
        the_box: &the_box,
        name: "ada",
        who: &the_box.admin,
    };
    let mina = RegistryCaller {
        name: "mina",
        who: &the_box.mina,
        ..ada
    };
    let image = SmallImage::new("hello");
    for tag in ["1", "2", "3"] {
        let pushed = ada.push("lab/tiny", tag, &image).await;
        assert_eq!(short(&pushed), "201");
    }
    let other = SmallImage::new("other");
    assert_eq!(short(&ada.push("lab/tiny", "4", &other).await), "201");
    let path = |tag: &str| format!("/v2/lab/tiny/manifests/{tag}");
    for tag in ["1", "9"] {
        let refused = mina.short("DELETE", &path(tag), b"").await;
        assert_eq!(refused, "403 DENIED", "{tag}");
    }
    for unknown in ["9", &digest(b"no manifest"), &digest(&image.layer)] {
        let refused = ada.short("DELETE", &path(unknown), b"").await;
        assert_eq!(refused, "404 MANIFEST_UNKNOWN", "{unknown}");
    }
    let blob = format!("/v2/lab/tiny/blobs/{}", digest(&image.layer));
    assert_eq!(ada.short("DELETE", &blob, b"").await, "405 UNSUPPORTED");
    assert_eq!(ada.short("DELETE", &path("1"), b"").await, "202");
    let gone = ada.short("GET", &path("1"), b"").await;
    assert_eq!(gone, "404 MANIFEST_UNKNOWN");
    let all = digest(&image.manifest);
    assert_eq!(ada.short("DELETE", &path(&all), b"").await, "202");
    let tags = ada.ask("GET", "/v2/lab/tiny/tags/list", &[], b"").await;
    assert_eq!(tags.json(), json!({"name": "lab/tiny", "tags": ["4"]}));
    let removed = the_box
        .get(&the_box.admin, "/api/v1/images/lab%2Ftiny:2")
        .await;
    assert_eq!(removed.short(), "404 image.not-found");
}

/// An image of another registry that the settings allow is pulled with equal digests; other hosts are
/// refused.
#[tokio::test]
async fn an_image_is_pulled_from_another_registry() {
    const NAME: &str = "an_image_is_pulled_from_another_registry";
    let there = TheBox::open().await;
    if !can_unpack(NAME, &there) {
        return;
    }
    let image = SmallImage::new("hello from there");
    let ada = RegistryCaller {
        the_box: &there,
        name: "ada",
        who: &there.admin,
    };
    let pushed = ada.push("lab/tiny", "1", &image).await;
    assert_eq!(short(&pushed), "201");
    assert_eq!(
        pushed.header("docker-content-digest"),
        digest(&image.manifest)
    );
    let (address, _) = there.serve().await;
    let credentials = there.folder.path().join("credentials.json");
    let pair = format!("mina:{}", secret(&there.mina));
    let auths = json!({"auths": {address.to_string(): {"auth": STANDARD.encode(pair)}}});
    std::fs::write(&credentials, auths.to_string()).expect("written");
    let closed = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&credentials, closed).expect("closed to others");
    // They live as long as the test's process: settings of a box are static.
    let registries: &'static str = format!("http://{address}").leak();
    let credentials: &'static str = credentials.display().to_string().leak();
    let more: &'static [(&'static str, &'static str)] = vec![
        ("FARDEL_REGISTRIES", registries),
        ("FARDEL_REGISTRY_CREDENTIALS_FILE", credentials),
    ]
    .leak();
    let here = TheBox::with(more, Vec::new()).await;

    let pull = |image: &str| json!({ "image": image });
    let elsewhere = pull("127.0.0.1:9/lab/tiny:1");
    let answer = here
        .post(&here.admin, "/api/v1/images/pull", elsewhere)
        .await;
    assert_eq!(answer.short(), "422 registry.not-allowed");
    let body = pull(&format!("{address}/lab/tiny:1"));
    let answer = here
        .post(&here.mina, "/api/v1/images/pull", body.clone())
        .await;
    assert_eq!(answer.status, 403);
    let answer = here.post(&here.admin, "/api/v1/images/pull", body).await;
    assert_eq!(answer.status, 202, "{}", answer.short());
    let done = ended(&here, &answer.json()).await;
    assert_eq!(done["state"], "succeeded", "{done}");
    let ours = RegistryCaller {
        the_box: &here,
        name: "ada",
        who: &here.admin,
    };
    let manifest = ours.ask("GET", "/v2/lab/tiny/manifests/1", &[], b"").await;
    assert_eq!(manifest.bytes, image.manifest);
    assert_eq!(manifest.header("content-type"), OCI_MANIFEST);
    let layer = format!("/v2/lab/tiny/blobs/{}", digest(&image.layer));
    assert_eq!(ours.ask("GET", &layer, &[], b"").await.bytes, image.layer);
    let tags = ours.ask("GET", "/v2/lab/tiny/tags/list", &[], b"").await;
    assert_eq!(tags.json(), json!({"name": "lab/tiny", "tags": ["1"]}));

    let missing = pull(&format!("{address}/lab/none:1"));
    let answer = here.post(&here.admin, "/api/v1/images/pull", missing).await;
    let done = ended(&here, &answer.json()).await;
    assert_eq!(done["refusal"]["code"], "registry.answer", "{done}");
}

pub(super) async fn ended(the_box: &TheBox, operation: &Value) -> Value {
    let id = operation["id"].as_str().expect("an id");
    let path = format!("/api/v1/operations/{id}");
    let begun = Instant::now();
    loop {
        let now = the_box.get(&the_box.admin, &path).await.json();
        let state = now["state"].as_str().unwrap_or_default();
        if !["pending", "running"].contains(&state) {
            return now;
        }
        assert!(begun.elapsed() < HANG, "{now}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
