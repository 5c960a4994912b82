//! What the manifest of one image names, as Docker (schema 2) and OCI write it. Reads no blob.

use rules::refusal::Refusal;
use rules::refusals;
use serde::Deserialize;

use crate::images::digest::Sha256Digest;

/// Bytes of a manifest or an index. Real ones have some thousand.
pub const MAX_MANIFEST_BYTES: usize = 4 << 20;
/// Layers that a manifest may name; other engines stop at 127.
const MAX_LAYERS: usize = 127;
/// Bytes of all blobs of one image, as an import bounds what they unpack to. Higher: a pull fills the disk before it is
/// refused. Lower: images of large models are.
const MAX_IMAGE_BYTES: u64 = 512 << 30;
/// Images that an index may name.
const MAX_ENTRIES: usize = 64;

/// Media types that a manifest may have, newest first.
pub const MANIFEST_TYPES: [&str; 2] = [
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
];

/// Media types of lists of manifests, one for each kind of machine.
pub const INDEX_TYPES: [&str; 2] = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
];

/// A blob as a manifest names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedBlob {
    pub digest: Sha256Digest,
    pub bytes: u64,
}

/// The manifest of one image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushedManifest {
    pub media_type: String,
    /// The configuration first, then the layers, bottom first; each as often as it is named.
    pub blobs: Vec<NamedBlob>,
}

impl PushedManifest {
    /// Bytes of all blobs together.
    pub fn total_bytes(&self) -> u64 {
        let sum = |sum: u64, blob: &NamedBlob| sum.saturating_add(blob.bytes);
        self.blobs.iter().fold(0, sum)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManifestText {
    schema_version: u32,
    #[serde(default)]
    media_type: Option<String>,
    #[serde(default)]
    config: Option<DescriptorText>,
    #[serde(default)]
    layers: Option<Vec<DescriptorText>>,
    #[serde(default)]
    manifests: Option<Vec<DescriptorText>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DescriptorText {
    #[serde(default)]
    media_type: String,
    digest: String,
    size: u64,
    #[serde(default)]
    platform: Option<PlatformText>,
    #[serde(default)]
    urls: Vec<String>,
}

#[derive(Deserialize)]
struct PlatformText {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
}

/// Reads the manifest of one image; `declared` is the media type that its sender gives.
///
/// Refuses `registry.manifest-invalid`: what is no manifest, an index, a layer that lies elsewhere;
/// `image.too-many-layers`, `registry.image-too-large`.
pub fn read(bytes: &[u8], declared: &str) -> Result<PushedManifest, Refusal> {
    let text = parsed(bytes)?;
    if text.manifests.is_some() {
        return Err(invalid("it is an index of several images"));
    }
    let (Some(config), Some(layers)) = (text.config, text.layers) else {
        return Err(invalid("it names no configuration or no layers"));
    };
    let declared = declared.split(';').next().unwrap_or_default().trim();
    let media_type = match (text.media_type.as_deref(), declared) {
        (Some(own), "") => own,
        (Some(own), declared) if own != declared => {
            return Err(invalid("its media type is not the one of the request"));
        }
        (_, declared) => declared,
    };
    if !MANIFEST_TYPES.contains(&media_type) {
        return Err(invalid("its media type is not known"));
    }
    if layers.is_empty() {
        return Err(invalid("it names no layer"));
    }
    if layers.len() > MAX_LAYERS {
        return Err(refusals::image_too_many_layers(layers.len(), MAX_LAYERS));
    }
    if layers.iter().any(|layer| !layer.urls.is_empty()) {
        return Err(invalid("a layer lies elsewhere"));
    }
    let named = |blob: &DescriptorText| -> Result<NamedBlob, Refusal> {
        let digest = Sha256Digest::parse(&blob.digest);
        let digest = digest.ok_or_else(|| invalid("a digest is no sha256"))?;
        let bytes = blob.size;
        Ok(NamedBlob { digest, bytes })
    };
    let blobs = std::iter::once(&config).chain(&layers).map(named);
    let pushed = PushedManifest {
        media_type: media_type.to_owned(),
        blobs: blobs.collect::<Result<_, Refusal>>()?,
    };
    match pushed.total_bytes() > MAX_IMAGE_BYTES {
        true => Err(refusals::registry_image_too_large(MAX_IMAGE_BYTES >> 30)),
        false => Ok(pushed),
    }
}

/// The media type that the manifest of one image says itself; of OCI manifests, some do not. None for other documents.
pub fn own_media_type(bytes: &[u8]) -> Option<String> {
    let own = parsed(bytes).ok()?.media_type;
    let declared = own.as_deref().unwrap_or(MANIFEST_TYPES[0]);
    read(bytes, declared).ok().map(|pushed| pushed.media_type)
}

/// A manifest that an index names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexEntry {
    pub manifest: NamedBlob,
    pub media_type: String,
    /// It is for the kind of machine that was asked for, under Linux.
    pub is_ours: bool,
}

/// What stands behind a tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManifestOrIndex {
    Manifest(PushedManifest),
    Index {
        media_type: String,
        /// One of them at least is ours.
        entries: Vec<IndexEntry>,
    },
}

impl ManifestOrIndex {
    pub fn media_type(&self) -> &str {
        match self {
            Self::Manifest(pushed) => &pushed.media_type,
            Self::Index { media_type, .. } => media_type,
        }
    }
}

/// Reads a manifest, or an index that has an image for `architecture` under Linux.
///
/// Refuses `registry.manifest-invalid`, also where the index has no image for such a machine.
pub fn read_or_list(
    bytes: &[u8],
    declared: &str,
    architecture: &str,
) -> Result<ManifestOrIndex, Refusal> {
    let text = parsed(bytes)?;
    let Some(listed) = text.manifests else {
        return read(bytes, declared).map(ManifestOrIndex::Manifest);
    };
    let declared = declared.split(';').next().unwrap_or_default().trim();
    let media_type = match (text.media_type.as_deref(), declared) {
        (Some(own), "") => own,
        (Some(own), declared) if own != declared => {
            return Err(invalid("its media type is not the one of the request"));
        }
        (_, declared) => declared,
    };
    // Read as one thing here and as another elsewhere, one digest would stand for two images.
    if text.config.is_some() || text.layers.is_some() {
        return Err(invalid("it is an index and a manifest at once"));
    }
    if !INDEX_TYPES.contains(&media_type) {
        return Err(invalid("its media type is not known"));
    }
    if listed.len() > MAX_ENTRIES {
        return Err(invalid("the index names too many images"));
    }
    let mut entries = Vec::new();
    for one in listed {
        let digest = Sha256Digest::parse(&one.digest);
        let digest = digest.ok_or_else(|| invalid("a digest is no sha256"))?;
        let is_ours = one.platform.is_some_and(|platform| {
            platform.architecture == architecture && platform.os == "linux"
        });
        entries.push(IndexEntry {
            manifest: NamedBlob {
                digest,
                bytes: one.size,
            },
            media_type: one.media_type,
            is_ours,
        });
    }
    match entries.iter().any(|entry| entry.is_ours) {
        true => Ok(ManifestOrIndex::Index {
            media_type: media_type.to_owned(),
            entries,
        }),
        false => Err(invalid("the index has no image for this kind of machine")),
    }
}

fn parsed(bytes: &[u8]) -> Result<ManifestText, Refusal> {
    if bytes.len() > MAX_MANIFEST_BYTES {
        return Err(invalid("it is too long"));
    }
    let text: ManifestText =
        serde_json::from_slice(bytes).map_err(|error| invalid(&error.to_string()))?;
    match text.schema_version {
        2 => Ok(text),
        _ => Err(invalid("it is not of schema version 2")),
    }
}

fn invalid(why: &str) -> Refusal {
    refusals::registry_manifest_invalid(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(letter: &str) -> String {
        format!("sha256:{}", letter.repeat(64))
    }

    fn manifest() -> serde_json::Value {
        serde_json::json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPES[0],
            "config": {"mediaType": "x", "digest": digest("a"), "size": 7},
            "layers": [{"mediaType": "y", "digest": digest("b"), "size": 5}],
        })
    }

    #[test]
    fn a_manifest_names_its_configuration_and_layers() {
        let read = read(manifest().to_string().as_bytes(), MANIFEST_TYPES[0]).unwrap();
        assert_eq!(read.media_type, MANIFEST_TYPES[0]);
        assert_eq!(read.total_bytes(), 12);
        assert_eq!(read.blobs[0].digest.to_string(), digest("a"));
    }

    #[test]
    fn an_image_has_so_many_layers_and_bytes() {
        let read_with = |layers: usize, bytes: u64| {
            let mut changed = manifest();
            let layer = serde_json::json!({"mediaType": "y", "digest": digest("b"), "size": bytes});
            changed["layers"] = vec![layer; layers].into();
            read(changed.to_string().as_bytes(), MANIFEST_TYPES[0])
                .err()
                .map(|refusal| refusal.code)
        };
        assert_eq!(read_with(MAX_LAYERS, 1), None);
        let refused = read_with(MAX_LAYERS + 1, 1);
        assert_eq!(refused.as_deref(), Some("image.too-many-layers"));
        // The configuration of the sample has seven bytes.
        assert_eq!(read_with(1, MAX_IMAGE_BYTES - 7), None);
        for (layers, bytes) in [(1, MAX_IMAGE_BYTES - 6), (2, u64::MAX)] {
            let refused = read_with(layers, bytes);
            assert_eq!(refused.as_deref(), Some("registry.image-too-large"));
        }
    }

    #[test]
    fn a_manifest_says_its_media_type_and_other_documents_none() {
        let mut changed = manifest();
        let own = |document: &serde_json::Value| own_media_type(document.to_string().as_bytes());
        assert_eq!(own(&changed).as_deref(), Some(MANIFEST_TYPES[0]));
        changed["mediaType"] = MANIFEST_TYPES[1].into();
        assert_eq!(own(&changed).as_deref(), Some(MANIFEST_TYPES[1]));
        changed["mediaType"] = serde_json::Value::Null;
        assert_eq!(own(&changed).as_deref(), Some(MANIFEST_TYPES[0]));
        changed["config"] = serde_json::Value::Null;
        assert_eq!(own(&changed), None);
        assert_eq!(own_media_type(b"a layer"), None);
    }

    #[test]
    fn what_is_no_image_for_one_machine_is_refused() {
        let refused = |change: &dyn Fn(&mut serde_json::Value)| {
            let mut changed = manifest();
            change(&mut changed);
            read(changed.to_string().as_bytes(), MANIFEST_TYPES[0])
                .unwrap_err()
                .code
        };
        let cases: [&dyn Fn(&mut serde_json::Value); 6] = [
            &|m| m["schemaVersion"] = 1.into(),
            &|m| m["mediaType"] = MANIFEST_TYPES[1].into(),
            &|m| m["layers"] = serde_json::json!([]),
            &|m| m["config"]["digest"] = "md5:1".into(),
            &|m| m["layers"][0]["urls"] = serde_json::json!(["http://elsewhere/"]),
            &|m| m["manifests"] = serde_json::json!([]),
        ];
        for change in cases {
            assert_eq!(refused(change), "registry.manifest-invalid");
        }
    }

    #[test]
    fn an_index_gives_the_image_of_this_machine() {
        let index = serde_json::json!({
            "schemaVersion": 2,
            "manifests": [
                {"digest": digest("c"), "size": 1, "platform": {"os": "linux", "architecture": "arm64"}},
                {"digest": digest("d"), "size": 2, "platform": {"os": "linux", "architecture": "amd64"}},
            ],
        });
        let bytes = index.to_string();
        let listed = read_or_list(bytes.as_bytes(), INDEX_TYPES[0], "amd64").unwrap();
        let ManifestOrIndex::Index { entries, .. } = listed else {
            panic!("it is an index");
        };
        let ours: Vec<_> = entries.iter().filter(|entry| entry.is_ours).collect();
        assert_eq!(ours.len(), 1);
        assert_eq!(ours[0].manifest.digest.to_string(), digest("d"));
        assert!(read_or_list(bytes.as_bytes(), INDEX_TYPES[0], "riscv64").is_err());
        assert!(read_or_list(bytes.as_bytes(), MANIFEST_TYPES[0], "amd64").is_err());
        let mut named = index;
        named["mediaType"] = INDEX_TYPES[0].into();
        let read = |index: &serde_json::Value, declared: &str| {
            read_or_list(index.to_string().as_bytes(), declared, "amd64").is_ok()
        };
        assert!(read(&named, INDEX_TYPES[0]));
        assert!(!read(&named, MANIFEST_TYPES[0]));
        named["layers"] = serde_json::json!([]);
        assert!(!read(&named, INDEX_TYPES[0]));
    }
}
