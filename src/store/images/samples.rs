//! Hand-made layers and archives for the tests: every producer's shape, and raw headers that lie.
//! Used by tests only; writes bytes, never files of its own choosing.

use std::io::Write;

use tar::{EntryType, Header};

use super::digest::Sha256Digest;

/// Writes a tar stream member by member, with nothing checked.
#[derive(Default, Clone)]
pub(super) struct Tar {
    bytes: Vec<u8>,
}

/// One member to write; `..Entry::default()` is an empty file of root, mode 0644.
#[derive(Clone)]
pub(super) struct SampleEntry<'a> {
    pub(super) name: &'a str,
    pub(super) kind: EntryType,
    pub(super) link: &'a str,
    pub(super) data: &'a [u8],
    pub(super) mode: u32,
    pub(super) uid: u64,
    pub(super) gid: u64,
    pub(super) mtime: u64,
    pub(super) device: (u32, u32),
    pub(super) pax: &'a [(&'a str, &'a [u8])],
    /// Declared size, when it is to differ from the data.
    pub(super) size: Option<u64>,
}

impl Default for SampleEntry<'_> {
    fn default() -> Self {
        Self {
            name: "",
            kind: EntryType::Regular,
            link: "",
            data: b"",
            mode: 0o644,
            uid: 0,
            gid: 0,
            mtime: 1_700_000_000,
            device: (0, 0),
            pax: &[],
            size: None,
        }
    }
}

impl Tar {
    pub(super) fn add(mut self, entry: &SampleEntry<'_>) -> Self {
        if !entry.pax.is_empty() {
            let mut records = Vec::new();
            for (key, value) in entry.pax {
                let rest = key.len() + value.len() + 3;
                let mut length = rest + rest.to_string().len();
                if length.to_string().len() != rest.to_string().len() {
                    length += 1;
                }
                records.extend_from_slice(format!("{length} {key}=").as_bytes());
                records.extend_from_slice(value);
                records.push(b'\n');
            }
            self.member(
                "pax",
                EntryType::XHeader,
                &SampleEntry {
                    data: &records,
                    ..SampleEntry::default()
                },
            );
        }
        if entry.name.len() > 100 {
            let long = [entry.name.as_bytes(), b"\0"].concat();
            let holder = SampleEntry {
                data: &long,
                ..SampleEntry::default()
            };
            self.member("././@LongLink", EntryType::GNULongName, &holder);
        }
        if entry.link.len() > 100 {
            let long = [entry.link.as_bytes(), b"\0"].concat();
            let holder = SampleEntry {
                data: &long,
                ..SampleEntry::default()
            };
            self.member("././@LongLink", EntryType::GNULongLink, &holder);
        }
        self.member(entry.name, entry.kind, entry);
        self
    }

    fn member(&mut self, name: &str, kind: EntryType, entry: &SampleEntry<'_>) {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(entry.mode);
        header.set_uid(entry.uid);
        header.set_gid(entry.gid);
        header.set_mtime(entry.mtime);
        header.set_size(entry.size.unwrap_or(entry.data.len() as u64));
        header
            .set_device_major(entry.device.0)
            .expect("a gnu header has it");
        header
            .set_device_minor(entry.device.1)
            .expect("a gnu header has it");
        let raw = header.as_mut_bytes();
        let name = &name.as_bytes()[..name.len().min(100)];
        raw[..name.len()].copy_from_slice(name);
        let link = &entry.link.as_bytes()[..entry.link.len().min(100)];
        raw[157..157 + link.len()].copy_from_slice(link);
        header.set_cksum();
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(entry.data);
        let padding = (512 - entry.data.len() % 512) % 512;
        self.bytes.extend(std::iter::repeat_n(0, padding));
    }

    pub(super) fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub(super) fn file(self, name: &str, data: &[u8]) -> Self {
        self.add(&SampleEntry {
            name,
            data,
            ..SampleEntry::default()
        })
    }

    pub(super) fn directory(self, name: &str, mode: u32) -> Self {
        self.add(&SampleEntry {
            name,
            mode,
            kind: EntryType::Directory,
            ..SampleEntry::default()
        })
    }

    pub(super) fn symlink(self, name: &str, link: &str) -> Self {
        self.add(&SampleEntry {
            name,
            link,
            mode: 0o777,
            kind: EntryType::Symlink,
            ..SampleEntry::default()
        })
    }

    pub(super) fn hard_link(self, name: &str, link: &str) -> Self {
        self.add(&SampleEntry {
            name,
            link,
            kind: EntryType::Link,
            ..SampleEntry::default()
        })
    }

    /// The members without an end mark.
    pub(super) fn bytes_only(self) -> Vec<u8> {
        self.bytes
    }

    pub(super) fn end(mut self) -> Vec<u8> {
        self.bytes.extend_from_slice(&[0; 1024]);
        self.bytes
    }
}

/// An image to be packed in any shape.
pub(super) struct SampleImage {
    /// Uncompressed, bottom first.
    pub(super) layers: Vec<Vec<u8>>,
    pub(super) config: Vec<u8>,
}

/// Who is said to have saved an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Producer {
    Docker20,
    Docker25,
    PodmanDocker,
    PodmanOci,
    SkopeoZstd,
    Umoci,
}

pub(super) const PRODUCERS: [Producer; 6] = [
    Producer::Docker20,
    Producer::Docker25,
    Producer::PodmanDocker,
    Producer::PodmanOci,
    Producer::SkopeoZstd,
    Producer::Umoci,
];

impl SampleImage {
    pub(super) fn of(layers: Vec<Vec<u8>>) -> Self {
        Self::with_run(
            layers,
            r#"{"Env":["PATH=/bin","A=b=c"],"Cmd":["/bin/sh"],"WorkingDir":"/work","User":"1000:100","Labels":{"one":"1"},"ExposedPorts":{"8888/tcp":{}},"StopSignal":"SIGINT"}"#,
        )
    }

    pub(super) fn with_run(layers: Vec<Vec<u8>>, run: &str) -> Self {
        let diff_ids: Vec<String> = layers
            .iter()
            .map(|layer| format!("\"{}\"", Sha256Digest::of(layer)))
            .collect();
        let config = format!(
            r#"{{"architecture":"{}","os":"linux","created":"2026-01-02T03:04:05Z","config":{run},"rootfs":{{"type":"layers","diff_ids":[{}]}},"history":[]}}"#,
            super::config::own_architecture(),
            diff_ids.join(",")
        );
        Self {
            layers,
            config: config.into_bytes(),
        }
    }

    pub(super) fn id(&self) -> Sha256Digest {
        Sha256Digest::of(&self.config)
    }

    /// The archive as this producer would write it, named `lab/tiny:1`.
    pub(super) fn pack(&self, producer: Producer) -> Vec<u8> {
        match producer {
            Producer::Docker20 => self.docker_20(),
            Producer::PodmanDocker => self.podman_docker(),
            Producer::Docker25 => {
                let manifest = self
                    .docker_manifest(&format!("blobs/sha256/{}", self.id().hex()), |layer| {
                        format!("blobs/sha256/{}", Sha256Digest::of(layer).hex())
                    });
                let annotations = r#"{"io.containerd.image.name":"docker.io/lab/tiny:1","org.opencontainers.image.ref.name":"1"}"#;
                self.oci(plain, "tar", annotations)
                    .file("manifest.json", manifest.as_bytes())
                    .file("repositories", b"{}")
                    .end()
            }
            Producer::PodmanOci => self
                .oci(
                    gzip,
                    "tar+gzip",
                    r#"{"org.opencontainers.image.ref.name":"lab/tiny:1"}"#,
                )
                .end(),
            Producer::SkopeoZstd => self
                .oci(
                    zstd,
                    "tar+zstd",
                    r#"{"org.opencontainers.image.ref.name":"1"}"#,
                )
                .end(),
            Producer::Umoci => self
                .oci(
                    gzip,
                    "tar+gzip",
                    r#"{"org.opencontainers.image.ref.name":"1"}"#,
                )
                .end(),
        }
    }

    fn docker_manifest(&self, config: &str, name: impl Fn(&[u8]) -> String) -> String {
        let layers: Vec<String> = self
            .layers
            .iter()
            .map(|layer| format!("\"{}\"", name(layer)))
            .collect();
        format!(
            r#"[{{"Config":"{config}","RepoTags":["lab/tiny:1"],"Layers":[{}]}}]"#,
            layers.join(",")
        )
    }

    fn docker_20(&self) -> Vec<u8> {
        let mut tar = Tar::default();
        let mut names: Vec<String> = Vec::new();
        for (at, layer) in self.layers.iter().enumerate() {
            let id = Sha256Digest::of(format!("legacy {at}").as_bytes())
                .hex()
                .to_owned();
            tar = tar
                .directory(&format!("{id}/"), 0o755)
                .file(&format!("{id}/VERSION"), b"1.0")
                .file(&format!("{id}/json"), b"{}")
                .file(&format!("{id}/layer.tar"), layer);
            names.push(format!("\"{id}/layer.tar\""));
        }
        let config = format!("{}.json", self.id().hex());
        let manifest = format!(
            r#"[{{"Config":"{config}","RepoTags":["lab/tiny:1"],"Layers":[{}]}}]"#,
            names.join(",")
        );
        tar.file(&config, &self.config)
            .file("manifest.json", manifest.as_bytes())
            .file("repositories", br#"{"lab/tiny":{"1":"x"}}"#)
            .end()
    }

    fn podman_docker(&self) -> Vec<u8> {
        let mut tar = Tar::default();
        let mut links = Vec::new();
        for (at, layer) in self.layers.iter().enumerate() {
            let flat = format!("{}.tar", Sha256Digest::of(layer).hex());
            tar = tar.add(&SampleEntry {
                name: &flat,
                data: layer,
                mode: 0o444,
                mtime: 0,
                ..SampleEntry::default()
            });
            let id = Sha256Digest::of(format!("legacy {at}").as_bytes())
                .hex()
                .to_owned();
            links.push((format!("{id}/layer.tar"), format!("../{flat}")));
        }
        let config = format!("{}.json", self.id().hex());
        tar = tar.file(&config, &self.config);
        for (name, target) in &links {
            tar = tar.symlink(name, target);
        }
        let manifest = self.docker_manifest(&config, |layer| {
            format!("{}.tar", Sha256Digest::of(layer).hex())
        });
        tar.file("repositories", b"{}")
            .file("manifest.json", manifest.as_bytes())
            .end()
    }

    fn oci(&self, compress: fn(&[u8]) -> Vec<u8>, media: &str, annotations: &str) -> Tar {
        let mut tar = Tar::default()
            .file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)
            .directory("blobs/", 0o755)
            .directory("blobs/sha256/", 0o755);
        let mut layers = Vec::new();
        let mut written = std::collections::BTreeSet::new();
        for layer in &self.layers {
            let blob = compress(layer);
            let digest = Sha256Digest::of(&blob);
            layers.push(format!(
                r#"{{"mediaType":"application/vnd.oci.image.layer.v1.{media}","digest":"{digest}","size":{}}}"#,
                blob.len()
            ));
            if written.insert(digest.clone()) {
                tar = tar.file(&format!("blobs/sha256/{}", digest.hex()), &blob);
            }
        }
        let manifest = format!(
            r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"{}","size":{}}},"layers":[{}]}}"#,
            self.id(),
            self.config.len(),
            layers.join(",")
        );
        let digest = Sha256Digest::of(manifest.as_bytes());
        let index = format!(
            r#"{{"schemaVersion":2,"manifests":[{{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"{digest}","size":{},"annotations":{annotations}}}]}}"#,
            manifest.len()
        );
        tar.file(&format!("blobs/sha256/{}", self.id().hex()), &self.config)
            .file(
                &format!("blobs/sha256/{}", digest.hex()),
                manifest.as_bytes(),
            )
            .file("index.json", index.as_bytes())
    }
}

pub(super) fn plain(bytes: &[u8]) -> Vec<u8> {
    bytes.to_vec()
}

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("a Vec takes all bytes");
    encoder.finish().expect("a Vec takes all bytes")
}

pub(super) fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).expect("a Vec takes all bytes")
}
