//! What the store knows about an image and its layers: the at-rest truth for bytes. One file per
//! image, replaced whole; the catalog of the server keeps its own row and may lag behind.

use std::collections::BTreeSet;

use rules::units::Timestamp;
use serde::{Deserialize, Serialize};

use super::config::ImageSettings;
use super::digest::Sha256Digest;

/// An imported image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRecord {
    /// Digest of the configuration; the identity of the image everywhere.
    pub id: Sha256Digest,
    /// Names the archives gave it, completed to `name:tag`; empty when none did.
    pub references: BTreeSet<String>,
    pub architecture: String,
    /// As the builder wrote it, RFC 3339; absent in reproducible builds.
    pub created: Option<String>,
    pub settings: ImageSettings,
    /// Bottom first, as the configuration lists them.
    pub layers: Vec<LayerRecord>,
    /// Sum of the lengths of all files of all layers.
    pub total_bytes: u64,
    pub imported_at: Timestamp,
    /// What was left out or will behave otherwise; sentences for the person.
    pub warnings: BTreeSet<String>,
    /// The configuration byte for byte, so that its digest can be checked and the image exported.
    pub config: String,
}

/// A layer as an image uses it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerRecord {
    /// Digest of the uncompressed layer.
    pub diff_id: Sha256Digest,
    /// Digest of the layer as it lay in the archive, where the archive declared one.
    pub blob: Option<Sha256Digest>,
    /// Name of the layer's directory: its `diff_id`, or the chain id (OCI image specification,
    /// "Layer ChainID") where the layer means something only on top of those below.
    pub key: Sha256Digest,
    /// Sum of the lengths of its files.
    pub bytes: u64,
    /// Files, directories, links and pipes.
    pub entries: u64,
    /// Hides every layer below it (a whiteout of the whole root).
    #[serde(default)]
    pub hides_below: bool,
    /// Bytes in the archive.
    pub packed_bytes: u64,
}

/// What lies beside an unpacked layer and describes it without any image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LayerFile {
    pub(super) diff_id: Sha256Digest,
    pub(super) bytes: u64,
    pub(super) entries: u64,
    #[serde(default)]
    pub(super) hides_below: bool,
    pub(super) warnings: BTreeSet<String>,
}
