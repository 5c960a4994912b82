//! What the rows of long work say: their kinds, and what an import and a commit work on. Never runs any.

use std::path::PathBuf;

use rules::names::{ContainerName, FolderId, ImageId};
use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Reads an archive into the image store.
pub(crate) const IMAGE_IMPORT: &str = "image.import";
/// Makes an image of a session.
pub(crate) const SESSION_COMMIT: &str = "session.commit";
/// Makes an own copy of a folder.
pub(crate) const FOLDER_CLONE: &str = "folder.clone";
/// Moves a folder to another owner.
pub(crate) const FOLDER_TRANSFER: &str = "folder.transfer";
/// Moves a folder to a limit of its own, or back to that of its owner.
pub(crate) const FOLDER_LIMIT: &str = "folder.limit";
/// Makes a snapshot of a folder.
pub(crate) const FOLDER_SNAPSHOT: &str = "folder.snapshot";
/// The self-test of a GPU.
pub(crate) const GPU_TEST: &str = "gpu.test";

/// What one import works on, as its row keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ImportInput {
    pub(crate) source: ImportOrigin,
    /// What users shall call it; None: as the archive says.
    pub(crate) reference: Option<String>,
    /// Name of the file, for users; empty in rows of earlier versions.
    #[serde(default)]
    pub(crate) file: String,
    /// The archive is a bundle of an environment; None: of images alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bundle: Option<BundleChoice>,
}

/// What an administrator takes of a bundle that would be refused otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BundleChoice {
    pub(crate) accept_unsigned: bool,
    pub(crate) allow_older: bool,
}

/// What one commit works on, as its row keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommitInput {
    /// The start of the session that was asked about; no later one is read.
    pub(crate) container: ContainerName,
    /// The image below.
    pub(crate) base: ImageId,
    /// What the new image is called.
    pub(crate) reference: String,
    pub(crate) exclude: Vec<String>,
    /// Its owner knows that it holds what looks like secrets.
    pub(crate) accept_secrets: bool,
    /// What users read of the operation: the reference.
    pub(crate) file: String,
}

/// What one copy of a folder works on, as its row keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FolderCloneInput {
    pub(crate) from: FolderId,
    /// Its row and its directory are there.
    pub(crate) to: FolderId,
    /// What of a snapshot of `from` it is filled with; None: with the files that `from` has now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) snapshot: Option<SnapshotPart>,
    /// What users read of the operation.
    pub(crate) file: String,
}

/// All of a snapshot, or what lies at one path of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SnapshotPart {
    pub(crate) number: u32,
    /// When it was made: a later one may get its number.
    pub(crate) created_at: Timestamp,
    /// From the top of the folder; empty: all of it.
    pub(crate) path: String,
}

/// Which snapshot of which folder is made, as its row keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FolderSnapshotInput {
    pub(crate) folder: FolderId,
    /// Its row is there.
    pub(crate) number: u32,
    /// What users read of the operation.
    pub(crate) file: String,
}

/// What one transfer of a folder works on, as its row keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FolderTransferInput {
    pub(crate) folder: FolderId,
    /// Whose it was, and whose it is to be, as `FolderOwner` is written.
    pub(crate) before: String,
    pub(crate) to: String,
    /// What users read of the operation.
    pub(crate) file: String,
}

/// What one change of a folder's limit works on, as its row keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FolderLimitInput {
    pub(crate) folder: FolderId,
    /// Bytes that it could take by itself; None: it counted on the limit of its owner's folders.
    pub(crate) before: Option<u64>,
    /// They came on top of that limit.
    pub(crate) was_on_top: bool,
    /// Bytes that it is to take by itself, as its row says.
    pub(crate) bytes: Option<u64>,
    /// What users read of the operation.
    pub(crate) file: String,
}

/// Where the archive of an import lies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ImportOrigin {
    /// An upload of this user.
    Upload { id: Uuid, owner: String },
    /// A file or directory on this machine; root said so.
    Path(PathBuf),
    /// A manifest that this user pushed, with its blobs.
    Pushed {
        owner: Uuid,
        manifest: String,
        media_type: String,
    },
    /// An image of another registry, as people write it; this user asked for it.
    Registry { owner: Uuid, image: String },
}
