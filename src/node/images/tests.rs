//! A server and a node with a store each, joined by a source that can be broken: what is fetched, how often,
//! what is refused, what goes on after a break, and what is removed.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};

use base::link::images::ImageBytes;
use base::link::streams::BoxFuture;
use bytes::Bytes;
use rules::refusal::Refusal;
use rules::refusals;
use rules::units::Timestamp;
use store::images::ArchiveImport;
use store::images::archive::Archive;
use tempfile::TempDir;
use tokio::sync::mpsc;

use super::*;

/// Longer than anything here takes on a loaded machine; only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of one chunk of the fake link.
const CHUNK: usize = 1000;

/// The server's store behind a link that does as the test says.
struct FakeLink {
    store: ImageStore,
    manifests: AtomicUsize,
    /// From which byte each stream was asked for.
    offsets: Mutex<Vec<u64>>,
    /// Chunks after which the next streams break off; the last one stays.
    breaks: Mutex<Vec<usize>>,
    /// Bytes of white space behind each manifest.
    padding: AtomicUsize,
    /// Spoils the bytes of layers.
    spoils: AtomicBool,
    /// Refuses all, as a server that is away or busy.
    is_away: AtomicBool,
}

impl ImageSource for FakeLink {
    fn manifest(&self, image: String) -> BoxFuture<Bytes> {
        self.manifests.fetch_add(1, Ordering::Relaxed);
        let answer = self.here().and_then(|()| {
            let id = Sha256Digest::parse(&image).expect("a digest");
            self.store.transfer_manifest(&id).map_err(refused)
        });
        let answer = answer.map(|manifest| {
            let mut bytes = serde_json::to_vec(&manifest).expect("JSON");
            let length = self.padding.load(Ordering::Relaxed).max(bytes.len());
            bytes.resize(length, b' ');
            bytes.into()
        });
        Box::pin(async { answer })
    }

    fn layer(&self, image: String, layer: String, offset: u64) -> BoxFuture<ImageBytes> {
        let answer = self.here().and_then(|()| {
            self.offsets.lock().expect("no panic").push(offset);
            let digest = |text: &str| Sha256Digest::parse(text).expect("a digest");
            let mut bytes = Vec::new();
            self.store
                .send_layer(&digest(&image), &digest(&layer), offset, &mut bytes)
                .map_err(refused)?;
            if self.spoils.load(Ordering::Relaxed)
                && let Some(at) = bytes.windows(8).position(|part| part == b"contents")
            {
                bytes[at] ^= 1;
            }
            let mut breaks = self.breaks.lock().expect("no panic");
            let most = match breaks.len() {
                0 => usize::MAX,
                1 => breaks[0],
                _ => breaks.remove(0),
            };
            let chunks: Vec<Bytes> = bytes
                .chunks(CHUNK)
                .take(most)
                .map(Bytes::copy_from_slice)
                .collect();
            let (send, receive) = mpsc::channel(chunks.len().max(1));
            for chunk in chunks {
                send.try_send(chunk).expect("there is room for all");
            }
            Ok(ImageBytes { chunks: receive })
        });
        Box::pin(async { answer })
    }

    fn kept(&self, images: Vec<String>) -> BoxFuture<Vec<String>> {
        let kept = self.here().map(|()| {
            let here = |image: &String| {
                let id = Sha256Digest::parse(image).expect("a digest");
                self.store.image(&id).is_ok()
            };
            images.into_iter().filter(here).collect()
        });
        Box::pin(async { kept })
    }
}

impl FakeLink {
    fn here(&self) -> Result<(), Refusal> {
        match self.is_away.load(Ordering::Relaxed) {
            true => Err(refusals::image_sends_busy(8)),
            false => Ok(()),
        }
    }

    fn offsets(&self) -> Vec<u64> {
        self.offsets.lock().expect("no panic").clone()
    }
}

fn refused(error: ImageError) -> Refusal {
    match error {
        ImageError::Refused(refusal) => *refusal,
        fault => panic!("{fault:?}"),
    }
}

struct Rig {
    directory: TempDir,
    link: Arc<FakeLink>,
    images: NodeImages,
    bell: Receiver<()>,
}

impl Rig {
    /// Two stores with nothing in them; None, with the reason told, where images cannot be unpacked.
    fn lay(test: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let limits = ImportLimits {
            reserve_bytes: 0,
            ..ImportLimits::default()
        };
        let store = ImageStore::open(&directory.path().join("server"), limits).unwrap();
        if let Err(error) = store.can_unpack() {
            skips::skip(test, &error.to_string());
            return None;
        }
        let link = Arc::new(FakeLink {
            store,
            manifests: AtomicUsize::new(0),
            offsets: Mutex::default(),
            breaks: Mutex::default(),
            padding: AtomicUsize::new(0),
            spoils: AtomicBool::new(false),
            is_away: AtomicBool::new(false),
        });
        let (ring, bell) = channel();
        let own = ImageDirectory::Own(directory.path().join("node"));
        let images = NodeImages::open(&own, Arc::clone(&link) as _, move || {
            let _ = ring.send(());
        });
        Some(Self {
            images: images.unwrap(),
            directory,
            link,
            bell,
        })
    }

    /// Imports an image of one file on the server.
    fn import(&self, name: &str, bytes: usize) -> Sha256Digest {
        let layout = self.directory.path().join(name);
        write_layout(&layout, name, bytes);
        let request = ArchiveImport {
            archive: Archive::at(&layout).unwrap(),
            name: Some(name),
            now: Timestamp::default(),
            cancelled: None,
        };
        let imported = self.link.store.import(request, &mut |_| {}).unwrap();
        imported[0].record.id.clone()
    }

    /// Asks until the image is no longer on its way, as the reconciler does with each bell.
    fn settled(&self, image: &Sha256Digest) -> ImageNeed {
        loop {
            match self.images.need(image) {
                ImageNeed::Fetching => self.bell.recv_timeout(TIMEOUT).expect("it rings"),
                need => return need,
            }
        }
    }

    fn kept_on_node(&self) -> Vec<Sha256Digest> {
        let records = self.images.store().list().unwrap();
        records.into_iter().map(|record| record.id).collect()
    }
}

/// An OCI layout of one layer that holds one file, `name`, of so many bytes and "contents" at its end.
fn write_layout(at: &Path, name: &str, bytes: usize) {
    let mut data: Vec<u8> = (0..bytes).map(|n| (n % 253) as u8).collect();
    data.extend_from_slice(b"contents");
    let mut header = [0u8; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..107].copy_from_slice(b"0000644");
    header[108..115].copy_from_slice(b"0000000");
    header[116..123].copy_from_slice(b"0000000");
    header[124..135].copy_from_slice(format!("{:011o}", data.len()).as_bytes());
    header[136..147].copy_from_slice(b"00000000000");
    header[148..156].fill(b' ');
    header[156] = b'0';
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut layer = header.to_vec();
    layer.extend_from_slice(&data);
    layer.resize(layer.len().next_multiple_of(512) + 1024, 0);
    let blobs = at.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let blob = |bytes: &[u8]| {
        let digest = Sha256Digest::of(bytes);
        fs::write(blobs.join(digest.hex()), bytes).unwrap();
        format!(r#""digest":"{digest}","size":{}"#, bytes.len())
    };
    let config = format!(
        r#"{{"os":"linux","config":{{"Env":["NAME={name}"]}},"rootfs":{{"type":"layers","diff_ids":["{}"]}}}}"#,
        Sha256Digest::of(&layer)
    );
    let types = "application/vnd.oci.image";
    let manifest = format!(
        r#"{{"schemaVersion":2,"config":{{"mediaType":"{types}.config.v1+json",{}}},"layers":[{{"mediaType":"{types}.layer.v1.tar",{}}}]}}"#,
        blob(config.as_bytes()),
        blob(&layer)
    );
    let index = format!(
        r#"{{"schemaVersion":2,"manifests":[{{"mediaType":"{types}.manifest.v1+json",{}}}]}}"#,
        blob(manifest.as_bytes())
    );
    fs::write(at.join("index.json"), index).unwrap();
    fs::write(at.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
}

#[test]
fn an_image_is_fetched_once_and_then_it_is_here() {
    let Some(rig) = Rig::lay("an_image_is_fetched_once_and_then_it_is_here") else {
        return;
    };
    let image = rig.import("one", 5000);
    assert_eq!(rig.images.need(&image), ImageNeed::Fetching);
    // A second session of it waits for the same fetch.
    assert_eq!(rig.settled(&image), ImageNeed::Ready);
    let layers = rig.images.store().layers(&image).unwrap();
    let data = fs::read(layers[0].join("one")).unwrap();
    assert_eq!((layers.len(), data.len()), (1, 5008));
    assert!(layers[0].starts_with(rig.directory.path().join("node")));
    for _ in 0..3 {
        assert_eq!(rig.images.need(&image), ImageNeed::Ready);
    }
    assert_eq!(rig.link.manifests.load(Ordering::Relaxed), 1);
    assert_eq!(rig.link.offsets(), [0]);
}

#[test]
fn a_fetch_that_is_cut_off_goes_on_at_its_byte() {
    let Some(rig) = Rig::lay("a_fetch_that_is_cut_off_goes_on_at_its_byte") else {
        return;
    };
    let image = rig.import("cut", 9000);
    *rig.link.breaks.lock().unwrap() = vec![3, 0, 2, usize::MAX];
    assert_eq!(rig.settled(&image), ImageNeed::Ready);
    assert_eq!(rig.link.offsets(), [0, 3000, 3000, 5000]);
    let found = rig.images.store().verify(&image).unwrap();
    assert_eq!((found.files, found.damage_count), (1, 0));
}

#[test]
fn a_server_that_is_away_is_waited_for_while_the_image_is_wanted() {
    let Some(rig) = Rig::lay("a_server_that_is_away_is_waited_for_while_the_image_is_wanted")
    else {
        return;
    };
    let image = rig.import("late", 100);
    rig.link.is_away.store(true, Ordering::Relaxed);
    assert_eq!(rig.images.need(&image), ImageNeed::Fetching);
    rig.images.retain(&BTreeSet::from([image.clone()]));
    while rig.link.manifests.load(Ordering::Relaxed) < 2 {
        std::thread::yield_now();
    }
    assert_eq!(rig.images.need(&image), ImageNeed::Fetching);
    // Nothing wants it any more: the fetch ends, and leaves no failure behind.
    rig.images.retain(&BTreeSet::new());
    rig.bell.recv_timeout(TIMEOUT).expect("it ends");
    rig.link.is_away.store(false, Ordering::Relaxed);
    assert_eq!(rig.settled(&image), ImageNeed::Ready);
}

#[test]
fn wrong_bytes_and_missing_images_refuse_with_a_reason() {
    let Some(rig) = Rig::lay("wrong_bytes_and_missing_images_refuse_with_a_reason") else {
        return;
    };
    let image = rig.import("spoilt", 100);
    rig.link.spoils.store(true, Ordering::Relaxed);
    let ImageNeed::Failed(reason) = rig.settled(&image) else {
        panic!("spoilt bytes were taken");
    };
    assert_eq!(reason.code, "image.fetch-failed");
    assert!(
        reason.text.contains("declared as sha256"),
        "{}",
        reason.text
    );
    // A second session is refused at once, without another fetch.
    assert_eq!(rig.images.need(&image), ImageNeed::Failed(reason));
    assert_eq!(rig.link.manifests.load(Ordering::Relaxed), 1);
    let unknown = Sha256Digest::of(b"no image");
    let ImageNeed::Failed(reason) = rig.settled(&unknown) else {
        panic!("an image that does not exist was fetched");
    };
    assert_eq!(reason.code, "image.missing");
    assert!(rig.kept_on_node().is_empty());
}

#[test]
fn an_image_that_the_server_removed_leaves_when_no_container_uses_it() {
    let Some(rig) = Rig::lay("an_image_that_the_server_removed_leaves_when_no_container_uses_it")
    else {
        return;
    };
    let (gone, stays) = (rig.import("gone", 100), rig.import("stays", 200));
    for image in [&gone, &stays] {
        assert_eq!(rig.settled(image), ImageNeed::Ready);
    }
    while rig.bell.try_recv().is_ok() {}
    rig.link.store.remove(&gone).unwrap();
    let swept = |used: &BTreeSet<Sha256Digest>| {
        rig.images.sweep(used);
        rig.bell.recv_timeout(TIMEOUT).expect("the sweep ends");
        rig.kept_on_node().len()
    };
    assert_eq!(
        swept(&BTreeSet::from([gone.clone()])),
        2,
        "a container uses it"
    );
    rig.link.is_away.store(true, Ordering::Relaxed);
    assert_eq!(
        swept(&BTreeSet::new()),
        2,
        "the server does not say that it is gone"
    );
    rig.link.is_away.store(false, Ordering::Relaxed);
    assert_eq!(swept(&BTreeSet::new()), 1);
    assert_eq!(rig.kept_on_node(), [stays]);
    let layers = fs::read_dir(rig.directory.path().join("node/layers")).unwrap();
    assert_eq!(layers.count(), 1);
}

#[test]
fn an_image_given_to_a_container_while_a_sweep_goes_on_stays() {
    let Some(rig) = Rig::lay("an_image_given_to_a_container_while_a_sweep_goes_on_stays") else {
        return;
    };
    let image = rig.import("held", 100);
    assert_eq!(rig.settled(&image), ImageNeed::Ready);
    remove(rig.images.store(), &rig.images.works, vec![image.clone()]);
    assert_eq!(rig.kept_on_node(), std::slice::from_ref(&image));
    locked(&rig.images.works).given.clear();
    remove(rig.images.store(), &rig.images.works, vec![image]);
    assert!(rig.kept_on_node().is_empty());
}

#[test]
fn no_more_images_are_fetched_together_than_the_bound() {
    let Some(rig) = Rig::lay("no_more_images_are_fetched_together_than_the_bound") else {
        return;
    };
    rig.link.is_away.store(true, Ordering::Relaxed);
    let names = ["a", "b", "c", "d"];
    let images: Vec<_> = names.iter().map(|name| rig.import(name, 10)).collect();
    for image in &images {
        assert_eq!(rig.images.need(image), ImageNeed::Fetching);
    }
    assert_eq!(
        locked(&rig.images.works).by_image.len(),
        MAX_CONCURRENT_FETCHES
    );
    rig.link.is_away.store(false, Ordering::Relaxed);
    for image in &images {
        assert_eq!(rig.settled(image), ImageNeed::Ready);
    }
}

#[test]
fn a_manifest_is_taken_up_to_its_largest() {
    use store::images::transfer::MAX_TRANSFER_MANIFEST_BYTES;
    let Some(rig) = Rig::lay("a_manifest_is_taken_up_to_its_largest") else {
        return;
    };
    let (fits, is_too_large) = (rig.import("fits", 10), rig.import("large", 10));
    let most = MAX_TRANSFER_MANIFEST_BYTES;
    rig.link.padding.store(most, Ordering::Relaxed);
    assert_eq!(rig.settled(&fits), ImageNeed::Ready);
    rig.link.padding.store(most + 1, Ordering::Relaxed);
    let ImageNeed::Failed(reason) = rig.settled(&is_too_large) else {
        panic!("a manifest of {most} bytes and one was taken");
    };
    assert_eq!(reason.code, "image.fetch-failed");
    assert!(reason.text.contains("16777217"), "{}", reason.text);
}

#[test]
fn what_the_server_has_in_a_shared_directory_is_here_at_once() {
    let Some(rig) = Rig::lay("what_the_server_has_in_a_shared_directory_is_here_at_once") else {
        return;
    };
    let image = rig.import("shared", 100);
    let server = ImageDirectory::Shared(rig.directory.path().join("server"));
    let shared = NodeImages::open(&server, Arc::clone(&rig.link) as _, || {}).unwrap();
    assert_eq!(shared.need(&image), ImageNeed::Ready);
    let layers = shared.store().layers(&image).unwrap();
    assert!(layers[0].join("shared").exists());
    // It removes nothing there: the server does.
    shared.sweep(&BTreeSet::new());
    assert!(rig.link.store.image(&image).is_ok());
    assert_eq!(rig.link.manifests.load(Ordering::Relaxed), 0);
    assert_eq!(rig.link.offsets(), [0u64; 0]);
}
