//! Sends images from one store to another: the trees are the same, wrong bytes are refused, and what was cut
//! off goes on where it stopped.

use std::cell::RefCell;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use rules::units::Timestamp;
use tar::EntryType;
use tempfile::TempDir;

use super::super::archive::Archive;
use super::super::limits::ImportLimits;
use super::super::samples::{Producer, SampleEntry, SampleImage, Tar};
use super::super::{ArchiveImport, names};
use super::*;

fn limits() -> ImportLimits {
    ImportLimits {
        reserve_bytes: 0,
        ..ImportLimits::default()
    }
}

/// Two stores side by side; None, with the reason told, where images cannot be unpacked.
struct Two {
    directory: TempDir,
    from: ImageStore,
    to: ImageStore,
}

impl Two {
    fn open(test: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let from = ImageStore::open(&directory.path().join("from"), limits()).unwrap();
        let to = ImageStore::open(&directory.path().join("to"), limits()).unwrap();
        if let Err(error) = from.can_unpack() {
            skips::skip(test, &error.to_string());
            return None;
        }
        Some(Self {
            directory,
            from,
            to,
        })
    }

    fn import(&self, layers: Vec<Vec<u8>>) -> ImageRecord {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&SampleImage::of(layers).pack(Producer::Docker25))
            .unwrap();
        let request = ArchiveImport {
            archive: Archive::File(file),
            name: Some("tiny"),
            now: Timestamp::default(),
            cancelled: None,
        };
        self.from
            .import(request, &mut |_| {})
            .unwrap()
            .remove(0)
            .record
    }

    fn manifest(&self, id: &Sha256Digest) -> Vec<u8> {
        serde_json::to_vec(&self.from.transfer_manifest(id).unwrap()).unwrap()
    }

    fn packed(&self, id: &Sha256Digest, key: &Sha256Digest, offset: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.from.send_layer(id, key, offset, &mut bytes).unwrap();
        bytes
    }

    /// Receives with bytes that `change` may spoil; gives what came of it and the keys that were asked for.
    fn receive(
        &self,
        id: &Sha256Digest,
        change: impl Fn(&mut Vec<u8>),
    ) -> (Result<ImageRecord, ImageError>, Vec<Sha256Digest>) {
        let asked = RefCell::new(Vec::new());
        let mut open = |layer: &PackedLayer| -> Box<dyn Read> {
            asked.borrow_mut().push(layer.key.clone());
            let mut bytes = self.packed(id, &layer.key, 0);
            change(&mut bytes);
            Box::new(io::Cursor::new(bytes))
        };
        let done = self
            .to
            .receive(id, &self.manifest(id), &mut open, &AtomicBool::new(false));
        (done, asked.into_inner())
    }

    fn tree(&self, store: &str, key: &Sha256Digest) -> Vec<String> {
        let root = self
            .directory
            .path()
            .join(store)
            .join("layers")
            .join(key.hex())
            .join("fs");
        let mut lines = Vec::new();
        look(&root, &root, &mut lines);
        lines
    }
}

/// One line for everything below a directory, with all that a session could see of it.
fn look(root: &Path, at: &Path, lines: &mut Vec<String>) {
    let meta = fs::symlink_metadata(at).unwrap();
    let name = at.strip_prefix(root).unwrap().display();
    let mut attributes = vec![0u8; 4096];
    let length = rustix::fs::llistxattr(at, &mut attributes[..]).unwrap();
    let mut listed: Vec<String> = attributes[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty() && !name.starts_with(b"security.selinux"))
        .map(|name| {
            let mut value = [0u8; 64];
            let n = rustix::fs::lgetxattr(at, name, &mut value[..]).unwrap();
            format!("{}={:?}", String::from_utf8_lossy(name), &value[..n])
        })
        .collect();
    listed.sort();
    let holds = match meta.file_type() {
        kind if kind.is_file() => format!(
            "{} bytes {}, {} names",
            meta.len(),
            Sha256Digest::of(&fs::read(at).unwrap()).short(),
            meta.nlink()
        ),
        kind if kind.is_symlink() => fs::read_link(at).unwrap().display().to_string(),
        _ => format!("device {}", meta.rdev()),
    };
    // Nothing shows the time of a whiteout.
    let time = match meta.file_type().is_char_device() {
        true => (0, 0),
        false => (meta.mtime(), meta.mtime_nsec()),
    };
    lines.push(format!(
        "{name} {:o} {}:{} {time:?} {holds} {listed:?}",
        meta.permissions().mode(),
        meta.uid(),
        meta.gid(),
    ));
    if meta.is_dir() {
        let below = names(at).unwrap();
        for name in below {
            look(root, &at.join(name), lines);
        }
    }
}

fn file<'a>(name: &'a str, data: &'a [u8]) -> SampleEntry<'a> {
    SampleEntry {
        name,
        data,
        ..SampleEntry::default()
    }
}

/// A bottom layer with one of everything, and one above that hides some of it.
fn layers() -> Vec<Vec<u8>> {
    let long = format!("long/{}/{}", "d".repeat(90), "n".repeat(120));
    let big: Vec<u8> = (0..700_000u32).map(|n| (n % 251) as u8).collect();
    let bottom = Tar::default()
        .directory("./", 0o755)
        .directory("bin/", 0o755)
        .add(&SampleEntry {
            mode: 0o4755,
            uid: 3,
            gid: 70_000,
            ..file("bin/sh", b"#!")
        })
        .add(&SampleEntry {
            kind: EntryType::Link,
            link: "bin/sh",
            ..file("bin/sh-too", b"")
        })
        .add(&SampleEntry {
            kind: EntryType::Symlink,
            link: "sh",
            ..file("bin/bash", b"")
        })
        .add(&SampleEntry {
            kind: EntryType::Fifo,
            ..file("bin/pipe", b"")
        })
        .directory("data/", 0o1777)
        .add(&file("data/gone", b"1"))
        .add(&SampleEntry {
            pax: &[
                ("mtime", b"-3.25"),
                ("SCHILY.xattr.user.note", b"a\0b=c\nd"),
            ],
            ..file("data/old", b"2")
        })
        .add(&SampleEntry {
            pax: &[("mtime", b"1700000000.123456789")],
            ..file("data/big", &big)
        })
        .directory("long/", 0o700)
        .add(&file(&long, b"3"))
        .end();
    let top = Tar::default()
        .directory("data/", 0o755)
        .add(&file("data/.wh.gone", b""))
        .add(&file("data/new", b"4"))
        .directory("bin/", 0o755)
        .add(&file("bin/.wh..wh..opq", b""))
        .end();
    vec![bottom, top]
}

#[test]
fn an_image_that_is_sent_has_the_same_trees_and_is_whole() {
    let Some(two) = Two::open("an_image_that_is_sent_has_the_same_trees_and_is_whole") else {
        return;
    };
    let record = two.import(layers());
    let (received, asked) = two.receive(&record.id, |_| {});
    assert_eq!(received.unwrap(), record);
    assert_eq!(asked.len(), 2);
    for layer in &record.layers {
        let tree = two.tree("to", &layer.key);
        assert_eq!(tree, two.tree("from", &layer.key));
        assert!(tree.len() > 3, "{tree:?}");
    }
    let found = two.to.verify(&record.id).unwrap();
    assert_eq!(found.damages, Vec::<String>::new());
    assert_eq!(found, two.from.verify(&record.id).unwrap());
    // Whiteouts are there, or this would prove nothing of them.
    let top = two.tree("to", &record.layers[1].key).join("\n");
    assert!(top.contains("data/gone 20000 ") && top.contains("trusted.overlay.opaque"));
    // All of it is there now: nothing is asked for.
    let (again, asked) = two.receive(&record.id, |_| {});
    assert_eq!((again.unwrap().id, asked.len()), (record.id.clone(), 0));
    let removed = two.to.remove(&record.id).unwrap();
    assert_eq!(removed.layers, 2);
}

#[test]
fn packed_bytes_are_the_same_every_time_and_go_on_at_any_byte() {
    let Some(two) = Two::open("packed_bytes_are_the_same_every_time_and_go_on_at_any_byte") else {
        return;
    };
    let record = two.import(layers());
    let manifest = two.from.transfer_manifest(&record.id).unwrap();
    for packed in &manifest.layers {
        let whole = two.packed(&record.id, &packed.key, 0);
        assert_eq!(Sha256Digest::of(&whole), packed.digest);
        assert_eq!(whole.len() as u64, packed.bytes);
        let ends = [
            1,
            511,
            512,
            513,
            whole.len() / 2,
            whole.len() - 1,
            whole.len(),
        ];
        for offset in ends {
            let rest = two.packed(&record.id, &packed.key, offset as u64);
            assert!(rest == whole[offset..], "from byte {offset}");
        }
    }
    // What was received packs to the same bytes: a node could send it on.
    two.receive(&record.id, |_| {}).0.unwrap();
    assert_eq!(two.to.transfer_manifest(&record.id).unwrap(), manifest);
}

#[test]
fn holes_are_not_sent() {
    let Some(two) = Two::open("holes_are_not_sent") else {
        return;
    };
    // Four MiB, of which only two blocks are stored.
    let stored = [vec![1; 512], vec![2; 512]].concat();
    let sparse = SampleEntry {
        data: &stored,
        pax: &[
            ("GNU.sparse.size", b"4194304"),
            ("GNU.sparse.map", b"1048576,512,3145728,512"),
        ],
        ..file("sparse", b"")
    };
    let empty = SampleEntry {
        pax: &[("GNU.sparse.size", b"4194304"), ("GNU.sparse.map", b"0,0")],
        ..file("zeros", b"")
    };
    let record = two.import(vec![Tar::default().add(&sparse).add(&empty).end()]);
    let key = &record.layers[0].key;
    assert!(two.packed(&record.id, key, 0).len() < 200_000);
    two.receive(&record.id, |_| {}).0.unwrap();
    assert_eq!(two.tree("to", key), two.tree("from", key));
    for name in ["sparse", "zeros"] {
        let at = two.to.layer_path(key).join("fs").join(name);
        let meta = fs::metadata(at).unwrap();
        assert!(
            meta.blocks() * 512 < 1 << 20,
            "{name} takes its whole length"
        );
    }
}

#[test]
fn bytes_with_another_digest_are_refused_and_nothing_is_kept() {
    let Some(two) = Two::open("bytes_with_another_digest_are_refused_and_nothing_is_kept") else {
        return;
    };
    let record = two.import(vec![Tar::default().add(&file("a", b"plain")).end()]);
    let id = &record.id;
    let code = |done: Result<ImageRecord, ImageError>| {
        let error = done.expect_err("it is not what was named");
        error.code().expect("a refusal").to_owned()
    };
    let flip = |bytes: &mut Vec<u8>| {
        let at = bytes.windows(5).position(|part| part == b"plain").unwrap();
        bytes[at] ^= 1;
    };
    assert_eq!(code(two.receive(id, flip).0), "image.digest-mismatch");
    let cut = |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() - 512);
    assert_eq!(code(two.receive(id, cut).0), "image.size-mismatch");
    let more = |bytes: &mut Vec<u8>| bytes.extend([0; 4096]);
    assert!(
        two.receive(id, more).0.is_ok(),
        "what was not named is not read"
    );
    two.to.remove(id).unwrap();
    // A manifest of another image, and one whose layers are not the configuration's.
    let other = two.import(vec![Tar::default().add(&file("b", b"other")).end()]);
    let mut nothing = |_: &PackedLayer| -> Box<dyn Read> { panic!("no layer is asked for") };
    let of = |bytes: &[u8], open: &mut dyn FnMut(&PackedLayer) -> Box<dyn Read>| {
        two.to.receive(id, bytes, open, &AtomicBool::new(false))
    };
    let foreign = two.manifest(&other.id);
    assert_eq!(code(of(&foreign, &mut nothing)), "image.digest-mismatch");
    let mut mixed = two.from.transfer_manifest(id).unwrap();
    mixed.record.layers = other.layers;
    let mixed = serde_json::to_vec(&mixed).unwrap();
    assert_eq!(code(of(&mixed, &mut nothing)), "image.digest-mismatch");
    assert_eq!(code(of(b"{", &mut nothing)), "image.damaged");
    for part in ["layers", "records", "staging"] {
        let left = names(&two.directory.path().join("to").join(part)).unwrap();
        assert!(left.is_empty(), "{part} holds {left:?}");
    }
}

#[test]
fn a_full_disk_and_a_cancelled_fetch_keep_nothing() {
    let Some(two) = Two::open("a_full_disk_and_a_cancelled_fetch_keep_nothing") else {
        return;
    };
    let record = two.import(layers());
    let manifest = two.manifest(&record.id);
    let mut open = |layer: &PackedLayer| -> Box<dyn Read> {
        Box::new(io::Cursor::new(two.packed(&record.id, &layer.key, 0)))
    };
    let small = ImportLimits {
        reserve_bytes: u64::MAX / 2,
        ..ImportLimits::default()
    };
    let full = ImageStore::open(&two.directory.path().join("full"), small).unwrap();
    let refused = full.receive(&record.id, &manifest, &mut open, &AtomicBool::new(false));
    assert_eq!(refused.unwrap_err().code(), Some("image.disk-full"));
    let refused = two
        .to
        .receive(&record.id, &manifest, &mut open, &AtomicBool::new(true));
    assert_eq!(refused.unwrap_err().code(), Some("image.cancelled"));
    assert_eq!(two.to.list().unwrap(), Vec::new());
    assert_eq!(
        names(&two.directory.path().join("to/layers"))
            .unwrap()
            .len(),
        0
    );
}

#[test]
fn a_layer_of_another_image_is_not_given() {
    let Some(two) = Two::open("a_layer_of_another_image_is_not_given") else {
        return;
    };
    let one = two.import(vec![Tar::default().add(&file("a", b"1")).end()]);
    let other = two.import(vec![Tar::default().add(&file("b", b"2")).end()]);
    let mut bytes = Vec::new();
    let asked = two
        .from
        .send_layer(&one.id, &other.layers[0].key, 0, &mut bytes);
    assert_eq!(asked.unwrap_err().code(), Some("image.not-found"));
    assert!(bytes.is_empty());
}
