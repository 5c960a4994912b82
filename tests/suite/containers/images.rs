//! A server and a node with an image store each, joined by the link of the product: what a session's image
//! costs the link, and that the session runs from what came over it.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use api::operations::OperationState;
use api::sessions::{LaunchRequest, SessionView};
use base::link::images::{ImageBytes, ImageSource};
use base::link::streams::BoxFuture;
use base::observe::Clock;
use base::settings::Settings;
use bytes::Bytes;
use node::images::ImageDirectory;
use node::runtime::{Runtime, RuntimePaths};
use node::{LocalNode, NodeOptions};
use rules::names::ContainerName;
use rules::refusals;
use rules::session::{Outcome, SessionKind, SessionState};
use server::actions::{images, operations, sessions};
use server::image_source::StoredImages;
use server::links::Links;
use server::{Server, access};
use store::images::digest::Sha256Digest;
use tokio::sync::Semaphore;

/// Longer than anything here takes on a loaded machine; only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(120);
/// What the image's only program prints.
const GREETING: &str = "hello out of the image\n";

/// A server that has no image.
pub(crate) struct NoImages;

impl ImageSource for NoImages {
    fn manifest(&self, image: String) -> BoxFuture<Bytes> {
        Box::pin(async move { Err(refusals::image_not_stored(image)) })
    }

    fn layer(&self, image: String, _layer: String, _offset: u64) -> BoxFuture<ImageBytes> {
        Box::pin(async move { Err(refusals::image_not_stored(image)) })
    }

    fn kept(&self, _images: Vec<String>) -> BoxFuture<Vec<String>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

/// Counts what is asked of a server, and holds the manifest back until the test lets it go.
struct CountedImages {
    inner: StoredImages,
    gate: Arc<Semaphore>,
    manifests: AtomicUsize,
    layers: AtomicUsize,
}

impl ImageSource for CountedImages {
    fn manifest(&self, image: String) -> BoxFuture<Bytes> {
        self.manifests.fetch_add(1, Ordering::Relaxed);
        let (gate, manifest) = (Arc::clone(&self.gate), self.inner.manifest(image));
        Box::pin(async move {
            let _open = gate.acquire().await.expect("it is never closed");
            manifest.await
        })
    }

    fn layer(&self, image: String, layer: String, offset: u64) -> BoxFuture<ImageBytes> {
        self.layers.fetch_add(1, Ordering::Relaxed);
        self.inner.layer(image, layer, offset)
    }

    fn kept(&self, images: Vec<String>) -> BoxFuture<Vec<String>> {
        self.inner.kept(images)
    }
}

impl CountedImages {
    fn counts(&self) -> (usize, usize) {
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        (count(&self.manifests), count(&self.layers))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_a_store_of_its_own_fetches_an_image_once_and_runs_it() {
    const NAME: &str = "a_node_with_a_store_of_its_own_fetches_an_image_once_and_runs_it";
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
    let source = Arc::new(CountedImages {
        inner: StoredImages::of(&server),
        gate: Arc::new(Semaphore::new(0)),
        manifests: AtomicUsize::new(0),
        layers: AtomicUsize::new(0),
    });
    let places = RuntimePaths {
        data: at("node"),
        run: at("run"),
        shim_binary: env!("CARGO_BIN_EXE_fardel").into(),
    };
    let options = NodeOptions {
        id: server.node(),
        places: places.clone(),
        images: ImageDirectory::Own(at("node-images")),
        host_environment: false,
        cpu: None,
        memory: None,
        devices: Vec::new(),
        driver_root: at("no-driver"),
        gpu_mode: node::gpu::arbiter::Mode::Hard,
        keep_days: 1,
    };
    let machine =
        LocalNode::open(options, Arc::clone(&source) as _, Clock::system()).expect("it opens");
    let mut findings = machine.findings().iter();
    if let Some(finding) = findings.find(|finding| finding.prevents_containers) {
        skips::skip(NAME, &finding.what);
        return;
    }
    let streams = machine.streams();
    let (server_end, node_end) = base::link::local();
    let controller = tokio::spawn(server::conduct(
        &server,
        Links::to(server.node(), server_end),
    ));
    let runs = tokio::spawn(machine.run(node_end));

    let layout = at("layout");
    write_layout(&layout);
    let root = access::local_root(&server);
    let from = images::ImportSource::Path(layout);
    let begun = images::import(&server, &root, from, Some("greeting:1".into())).await;
    let begun = begun.expect("the import begins");
    let imported = until("the import is over", async || {
        let seen = operations::get(&server, &root, begun.id).await;
        let seen = seen.expect("it is there");
        let is_over = !matches!(
            seen.state,
            OperationState::Pending | OperationState::Running
        );
        is_over.then_some(seen)
    });
    let imported = imported.await;
    assert_eq!(imported.state, OperationState::Succeeded, "{imported:?}");
    assert_eq!(
        source.counts(),
        (0, 0),
        "nothing is fetched before it is wanted"
    );

    for round in 1..=2 {
        let request = LaunchRequest {
            name: Some(format!("greeter-{round}")),
            kind: SessionKind::Batch,
            image: "greeting:1".into(),
            ..LaunchRequest::default()
        };
        let launched = sessions::launch(&server, &root, request, None).await;
        let launched = launched.expect("it is launched").sessions.remove(0);
        if round == 1 {
            let waiting = until("it waits for its image", async || {
                let seen = sessions::get(&server, &root, &launched.id.to_string()).await;
                let seen = seen.expect("it is there");
                (seen.state == SessionState::Preparing).then_some(seen)
            });
            let reason = waiting.await.reason.expect("a reason for waiting");
            assert_eq!(reason.code, "session.fetching-image");
            source.gate.add_permits(1);
        }
        let ended = ended(&server, &launched).await;
        assert_eq!(
            ended.outcome,
            Some(Outcome::Succeeded),
            "{:?}",
            ended.reason
        );
        let container = ContainerName {
            session: ended.id,
            incarnation: 1,
            index: 0,
        };
        let mut log = streams.logs(container, 0, false).await.expect("a log");
        let mut text = Vec::new();
        while let Some(chunk) = log.output.recv().await {
            text.extend_from_slice(&chunk.bytes);
        }
        assert_eq!(String::from_utf8_lossy(&text), GREETING);
        assert_eq!(source.counts(), (1, 1), "round {round}");
    }
    let records = |store: &Path| {
        let entries = fs::read_dir(store.join("records")).expect("a store");
        let mut names: Vec<_> = entries.map(|e| e.expect("an entry").file_name()).collect();
        names.sort();
        names
    };
    let on_node = records(&at("node-images"));
    assert_eq!(on_node.len(), 1);
    assert_eq!(on_node, records(&at("server/images")));

    controller.abort();
    runs.await.expect("no panic").expect("it ran");
    let runtime = Runtime::open(places).expect("it opens");
    super::disk::end_fork_server(runtime.instance_id());
    runtime.retire();
}

async fn ended(server: &Server, launched: &SessionView) -> SessionView {
    let root = access::local_root(server);
    until("the session ends", async || {
        let seen = sessions::get(server, &root, &launched.id.to_string()).await;
        let seen = seen.expect("it is there");
        seen.ended_at.is_some().then_some(seen)
    })
    .await
}

pub(super) async fn until<T>(what: &str, ready: impl AsyncFn() -> Option<T>) -> T {
    let end = Instant::now() + TIMEOUT;
    loop {
        if let Some(value) = ready().await {
            return value;
        }
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A program for this processor that prints the greeting and ends; it needs nothing of its image.
fn program() -> Vec<u8> {
    let length = (GREETING.len() as u32).to_le_bytes();
    let mut code = Vec::new();
    // write(1, greeting, length); exit(0). The greeting stands 16 bytes behind the third instruction.
    code.extend([0xb8, 1, 0, 0, 0, 0xbf, 1, 0, 0, 0]);
    code.extend([0x48, 0x8d, 0x35, 16, 0, 0, 0]);
    code.push(0xba);
    code.extend(length);
    code.extend([0x0f, 0x05, 0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05]);
    code.extend(GREETING.as_bytes());
    executable(&code)
}

/// A program for this processor of these instructions and data.
pub(super) fn executable(code: &[u8]) -> Vec<u8> {
    let start = 0x40_0000u64;
    let size = 64 + 56 + code.len() as u64;
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    // An executable for x86-64, with one header of a segment.
    file.extend([2, 0, 62, 0, 1, 0, 0, 0]);
    file.extend((start + 120).to_le_bytes());
    file.extend(64u64.to_le_bytes());
    file.extend([0; 12]);
    file.extend([64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
    // The segment: all of the file, to be read and run.
    file.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    for number in [0, start, start, size, size, 0x1000] {
        file.extend(number.to_le_bytes());
    }
    file.extend(code);
    file
}

/// An OCI layout of one image with one file, the program.
fn write_layout(at: &Path) {
    let mut layer = member("greet", &program());
    layer.resize(layer.len() + 1024, 0);
    layout_of(at, &layer, "/greet");
}

/// A file of root in a tar archive, with mode 755.
pub(super) fn member(name: &str, data: &[u8]) -> Vec<u8> {
    let mut header = [0u8; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..107].copy_from_slice(b"0000755");
    header[108..115].copy_from_slice(b"0000000");
    header[116..123].copy_from_slice(b"0000000");
    header[124..135].copy_from_slice(format!("{:011o}", data.len()).as_bytes());
    header[136..147].copy_from_slice(b"00000000000");
    header[148..156].fill(b' ');
    header[156] = b'0';
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut all = header.to_vec();
    all.extend_from_slice(data);
    all.resize(all.len().next_multiple_of(512), 0);
    all
}

/// An OCI layout of one image of one layer that runs this program.
pub(super) fn layout_of(at: &Path, layer: &[u8], program: &str) {
    let blobs = at.join("blobs/sha256");
    fs::create_dir_all(&blobs).expect("made");
    let blob = |bytes: &[u8]| {
        let digest = Sha256Digest::of(bytes);
        fs::write(blobs.join(digest.hex()), bytes).expect("written");
        format!(r#""digest":"{digest}","size":{}"#, bytes.len())
    };
    let config = format!(
        r#"{{"os":"linux","config":{{"Entrypoint":["{program}"]}},"rootfs":{{"type":"layers","diff_ids":["{}"]}}}}"#,
        Sha256Digest::of(layer)
    );
    let types = "application/vnd.oci.image";
    let manifest = format!(
        r#"{{"schemaVersion":2,"config":{{"mediaType":"{types}.config.v1+json",{}}},"layers":[{{"mediaType":"{types}.layer.v1.tar",{}}}]}}"#,
        blob(config.as_bytes()),
        blob(layer)
    );
    let index = format!(
        r#"{{"schemaVersion":2,"manifests":[{{"mediaType":"{types}.manifest.v1+json",{}}}]}}"#,
        blob(manifest.as_bytes())
    );
    fs::write(at.join("index.json"), index).expect("written");
    fs::write(at.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).expect("written");
}
