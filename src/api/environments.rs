//! Environments that came as bundles: what is asked and what is answered.

use std::path::PathBuf;

use rules::names::UploadId;
use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A bundle to import: one of `upload` and, for root on the machine, `path`.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = EnvironmentImport)]
#[serde(deny_unknown_fields)]
pub struct EnvironmentImportBody {
    #[serde(default)]
    #[schema(value_type = Option<String>, format = Uuid)]
    pub upload: Option<UploadId>,
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub path: Option<PathBuf>,
    /// Take it without a signature of a trusted key.
    #[serde(default)]
    pub accept_unsigned: bool,
    /// Take a version that is older than the newest one here.
    #[serde(default)]
    pub allow_older: bool,
}

/// A version of an environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Environment)]
pub struct EnvironmentView {
    pub name: String,
    pub version: String,
    /// A sentence of who made it; may be empty.
    pub about: String,
    /// Digest of the bundle's manifest.
    pub digest: String,
    /// The trusted key that signed it; null where it was accepted without one.
    pub signer: Option<String>,
    /// Whether no newer version is here.
    pub newest: bool,
    #[schema(value_type = String, format = DateTime)]
    pub imported_at: Timestamp,
    pub images: Vec<EnvironmentImageView>,
}

/// An image of an environment, with what a session of it is best started with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = EnvironmentImage)]
pub struct EnvironmentImageView {
    pub reference: String,
    pub digest: String,
    /// Bytes of shared memory.
    pub shm: Option<u64>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    pub ports: Vec<u16>,
}

/// A version of an environment with its texts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = EnvironmentDetail)]
pub struct EnvironmentDetailView {
    pub environment: EnvironmentView,
    /// Packages as SPDX, JSON in a text.
    pub sbom: String,
    pub licences: String,
}
