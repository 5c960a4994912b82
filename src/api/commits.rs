//! An image made of a session: what is asked, and what it would hold. Reads no session.

use rules::commit::{FoundSecret, SecretKind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What to call the image of a session, and what it leaves out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CommitRequest {
    /// `name:tag`; the image is called `USER/name:tag`.
    pub reference: String,
    /// Absolute paths that are left out with all below them, at most 64.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// Make it though files look like they hold secrets.
    #[serde(default)]
    pub accept_secrets: bool,
}

/// What an image of a session would hold now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CommitPreview {
    /// What it would be called.
    pub reference: String,
    /// The image below.
    pub base: String,
    /// Bytes of the files of the new layer.
    pub bytes: u64,
    /// Files, directories and links of it.
    pub entries: u64,
    /// Files of the image below that are gone.
    pub removed: u64,
    /// Sockets, devices and names that no image can hold.
    pub skipped: u64,
    /// Files that look like they hold secrets, at most 200.
    pub secrets: Vec<CommitSecret>,
    /// Those beyond.
    pub more_secrets: u64,
}

/// A file that looks like it holds a secret. Never the secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CommitSecret {
    /// Absolute, inside.
    pub path: String,
    /// `private-key`, `ssh-key`, `token`, `cloud-credentials`, `password`, `environment-file` or `shell-history`.
    #[schema(value_type = String)]
    pub kind: SecretKind,
}

impl From<FoundSecret> for CommitSecret {
    fn from(found: FoundSecret) -> Self {
        Self {
            path: found.path,
            kind: found.kind,
        }
    }
}
