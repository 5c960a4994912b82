//! Folders: directories that outlive sessions, and the files in them.

use rules::folder::{Folder, FolderKind, FolderName, FolderOwner, FolderState, MountAccess};
use rules::folder_path::FolderEntryKind;
use rules::folder_rights::{EffectiveRight, FolderRight};
use rules::names::{FolderId, FolderShareId, SessionName, UploadId};
use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::sessions::Owner;
use crate::values::{
    FolderEntryKindShape, FolderKindShape, FolderRightShape, FolderStateShape, MountAccessShape,
};

/// Whose a folder is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = FolderOwner)]
pub struct FolderOwnerView {
    pub kind: FolderOwnerKind,
    #[schema(value_type = String, format = Uuid)]
    pub id: Uuid,
    pub name: String,
}

/// What owns a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FolderOwnerKind {
    User,
    /// Its leads do with the folder what a user does with their own.
    Project,
}

impl FolderOwnerView {
    pub fn new(owner: FolderOwner, name: String) -> Self {
        let kind = match owner {
            FolderOwner::User(_) => FolderOwnerKind::User,
            FolderOwner::Project(_) => FolderOwnerKind::Project,
        };
        Self {
            kind,
            id: owner.id(),
            name,
        }
    }
}

/// One folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Folder)]
pub struct FolderView {
    #[schema(value_type = String, format = Uuid)]
    pub id: FolderId,
    /// Unique among the folders of its owner that are not in the trash.
    #[schema(value_type = String)]
    pub name: FolderName,
    pub owner: FolderOwnerView,
    /// What members of the project may do with its files that owns it; null where a user owns it.
    #[schema(value_type = Option<MountAccessShape>)]
    pub members: Option<MountAccess>,
    /// All who may read its files make own copies of it; else its owner alone.
    #[serde(default)]
    pub cloneable: bool,
    /// `home` is made by the first session of its owner that mounts `home`.
    #[schema(value_type = FolderKindShape)]
    pub kind: FolderKind,
    #[schema(value_type = FolderStateShape)]
    pub state: FolderState,
    /// The volume that it lies on; null: the box's own disk.
    pub volume: Option<String>,
    /// The caller may give it to another owner: it is their own, or they lead the project that owns it.
    pub owned: bool,
    /// What the caller may do: `ro` reads its files, `rw` changes them, too, `rwd` renames, trashes and shares the folder, too,
    /// as its owner may. Null: nothing with its files.
    #[schema(value_type = Option<FolderRightShape>)]
    pub right: Option<FolderRight>,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When a session was launched that mounts it, or its owner changed its files from outside, last.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub used_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub trashed_at: Option<Timestamp>,
    /// When its files are removed, while it lies in the trash.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub purge_at: Option<Timestamp>,
    /// Bytes on the disk when it was counted last; null before that. No limit is held against it.
    pub bytes: Option<u64>,
    /// Files, directories and links when it was counted last.
    pub entries: Option<u64>,
    /// When it was counted last.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub counted_at: Option<Timestamp>,
    /// Bytes that it may take by itself; null: it counts on the limit of all folders of its owner, and on a volume on none.
    pub limit: Option<u64>,
    /// Its limit was given by an administrator, on top of that of its owner.
    #[serde(default)]
    pub limit_on_top: bool,
    /// Version, and ETag.
    pub generation: u64,
}

impl FolderView {
    /// `owner`: the name of its owner. `volume`: the name of the volume that it lies on.
    pub fn new(
        folder: Folder,
        owner: String,
        volume: Option<String>,
        right: Option<EffectiveRight>,
    ) -> Self {
        let purge_at = folder.purge_at();
        Self {
            id: folder.id,
            name: folder.name,
            owner: FolderOwnerView::new(folder.owner, owner),
            members: folder.owner.project().map(|_| folder.members),
            cloneable: folder.is_cloneable,
            kind: folder.kind,
            state: folder.state,
            volume,
            owned: right.is_some_and(|right| right.owns),
            right: right.and_then(|right| right.files),
            created_at: folder.created_at,
            used_at: folder.used_at,
            trashed_at: folder.trashed_at,
            purge_at,
            bytes: folder.counted.map(|counted| counted.bytes),
            entries: folder.counted.map(|counted| counted.entries),
            counted_at: folder.counted.map(|counted| counted.at),
            limit: folder.own_limit.map(|limit| limit.bytes.0),
            limit_on_top: folder.own_limit.is_some_and(|limit| limit.is_on_top),
            generation: folder.generation,
        }
    }
}

/// A folder of the caller's own, or of a project that they lead.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = NewFolder)]
#[serde(deny_unknown_fields)]
pub struct NewFolderBody {
    /// No `/`, no `:`, nothing hidden and no blank at its ends; not `.`, `..` or `home`. With a dot at its begin it is mounted
    /// at that name in the home of each session of its owner.
    pub name: String,
    /// Name or id of the volume that it is to lie on; `default`, and where it is left out: the box's own disk.
    #[serde(default)]
    pub volume: Option<String>,
    /// Name of a project of the caller's domain that they lead; left out: it is the caller's own.
    #[serde(default)]
    pub project: Option<String>,
    /// What members of that project may do with its files; `ro` where it is left out.
    #[serde(default)]
    #[schema(value_type = Option<MountAccessShape>)]
    pub members: Option<MountAccess>,
}

/// A merge patch: what is left out stays.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = FolderPatch)]
#[serde(deny_unknown_fields)]
pub struct FolderPatchBody {
    pub name: Option<String>,
    /// What members of the project may do with its files that owns it.
    #[schema(value_type = Option<MountAccessShape>)]
    pub members: Option<MountAccess>,
    /// Whether all who may read its files make own copies of it. Its owner alone says so.
    pub cloneable: Option<bool>,
}

/// What a folder may take by itself.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = FolderLimit)]
#[serde(deny_unknown_fields)]
pub struct FolderLimitBody {
    /// Null, and left out: it counts on the limit of all folders of its owner.
    #[serde(default)]
    pub bytes: Option<u64>,
}

/// An own copy of a folder.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = NewFolderCopy)]
#[serde(deny_unknown_fields)]
pub struct NewFolderCopyBody {
    /// As of a new folder.
    pub name: String,
    /// As of a new folder.
    #[serde(default)]
    pub project: Option<String>,
}

/// Whom a folder is to belong to: a user, or a project.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = NewFolderTransfer)]
#[serde(deny_unknown_fields)]
pub struct NewFolderTransferBody {
    /// A user of the folder's domain.
    #[serde(default)]
    pub user: Option<String>,
    /// A project of that domain, of which the caller is a member.
    #[serde(default)]
    pub project: Option<String>,
}

/// A folder that its owner offers another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = FolderTransfer)]
pub struct FolderTransferView {
    #[schema(value_type = String, format = Uuid)]
    pub folder: FolderId,
    #[schema(value_type = String)]
    pub name: FolderName,
    /// Whose it is.
    pub owner: FolderOwnerView,
    /// Whose it is to be.
    pub to: FolderOwnerView,
    /// Bytes on the disk when it was counted last; null before that.
    pub bytes: Option<u64>,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// Who offers it.
    pub created_by: String,
}

/// What becomes of a directory that belongs to no folder.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = FolderAdoption)]
#[serde(deny_unknown_fields)]
pub struct FolderAdoptionBody {
    /// Name or id of the user whose folder it becomes: the one whose limit holds it, where one does.
    pub owner: String,
    /// As of a new folder.
    pub name: String,
    /// Take it although it names another site that has the same volume: one that is no more, or was set up once more without its
    /// backup.
    #[serde(default)]
    pub of_other_site: bool,
}

/// A file, a directory or a link in a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = FolderEntry)]
pub struct FolderEntryView {
    /// The last name of its path, as far as it is text.
    pub name: String,
    /// Its path from the top of the folder: a percent sign, and each byte that is no visible text, as `%` and two digits.
    pub path: String,
    #[schema(value_type = FolderEntryKindShape)]
    pub kind: FolderEntryKind,
    /// Bytes of its contents, where it is a file.
    pub size: u64,
    /// When its contents were changed last.
    #[schema(value_type = String, format = DateTime)]
    pub modified_at: Timestamp,
}

/// Which page of which directory.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct FolderEntryQuery {
    /// A directory, from the top of the folder; empty: the top.
    pub path: String,
    /// What names contain.
    pub q: String,
    /// `name`, `size` or `modified_at`, with a minus in front the other way round; empty: by name.
    pub sort: String,
    pub limit: Option<usize>,
    pub cursor: Option<String>,
}

/// The checksum of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = FolderChecksum)]
pub struct FolderChecksumView {
    /// SHA-256 in hexadecimal digits.
    pub sha256: String,
    /// Bytes of the file.
    pub size: u64,
    /// Version of the file that was read, with its quotes.
    pub etag: String,
}

/// A new directory in a folder.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = NewFolderDirectory)]
#[serde(deny_unknown_fields)]
pub struct NewFolderDirectoryBody {
    /// From the top of the folder; the directory above it is there.
    pub path: String,
}

/// Another name or place for a file, a directory or a link of a folder.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = FolderMove)]
#[serde(deny_unknown_fields)]
pub struct FolderMoveBody {
    pub from: String,
    /// Where it is to be, its name included; nothing is there yet.
    pub to: String,
}

/// Several files and directories of a folder, and the directory that they go into.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = FolderSelection)]
#[serde(deny_unknown_fields)]
pub struct FolderSelectionBody {
    /// Files, links and directories with all below them.
    #[schema(min_items = 1, max_items = 1000)]
    pub paths: Vec<String>,
    /// A directory, from the top of the folder; empty: the top. Each keeps its name there, and nothing has it yet.
    pub to: String,
}

/// What is removed from a folder.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = FolderRemoval)]
#[serde(deny_unknown_fields)]
pub struct FolderRemovalBody {
    /// Files, links and directories with all below them.
    #[schema(min_items = 1, max_items = 1000)]
    pub paths: Vec<String>,
    /// True: at once. False: into the trash of the folder, for 30 days.
    #[serde(default)]
    pub for_good: bool,
}

/// A file, a directory or a link in the trash of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = RemovedEntry)]
pub struct RemovedEntryView {
    #[schema(value_type = String, format = Uuid)]
    pub id: Uuid,
    /// Where it was, and is put back to, from the top of the folder.
    pub path: String,
    #[schema(value_type = FolderEntryKindShape)]
    pub kind: FolderEntryKind,
    /// Bytes of its contents, where it is a file.
    pub size: u64,
    #[schema(value_type = String, format = DateTime)]
    pub removed_at: Timestamp,
    /// When it is removed for good.
    #[schema(value_type = String, format = DateTime)]
    pub purge_at: Timestamp,
}

/// Some of what is in the trash of a folder.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = RemovedEntries)]
#[serde(deny_unknown_fields)]
pub struct RemovedEntriesBody {
    /// Ids of items of the trash.
    #[schema(value_type = Vec<String>, min_items = 1, max_items = 1000)]
    pub items: Vec<Uuid>,
}

/// A file on its way into a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = FolderUpload)]
pub struct FolderUploadView {
    #[schema(value_type = String, format = Uuid)]
    pub id: UploadId,
    #[schema(value_type = String, format = Uuid)]
    pub folder: FolderId,
    /// Where it will be, from the top of the folder.
    pub path: String,
    /// Declared size in bytes; null: as many as come.
    pub size: Option<u64>,
    /// Bytes that came. The file is in its place once all came.
    pub offset: u64,
    /// Whether it takes the place of a file that is there.
    pub overwrite: bool,
    /// When its contents were changed last, where its sender said so.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub modified_at: Option<Timestamp>,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it is forgotten unless a byte comes.
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Timestamp,
}

/// One share of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = FolderShare)]
pub struct FolderShareView {
    #[schema(value_type = String, format = Uuid)]
    pub id: FolderShareId,
    /// The name of the user whom it is for; null for one with a project.
    pub user: Option<String>,
    /// The name of the project whose members it is for; null for one with a user.
    pub project: Option<String>,
    #[schema(value_type = FolderRightShape)]
    pub right: FolderRight,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// Who made it, or changed it last.
    pub created_by: String,
    /// Null while the user did not accept it: nothing is given until then.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub accepted_at: Option<Timestamp>,
    /// Null: until it is taken back.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ends_at: Option<Timestamp>,
}

/// Whom a folder is shared with: a user, or all members of a project.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = NewFolderShare)]
#[serde(deny_unknown_fields)]
pub struct NewFolderShareBody {
    /// A user of the domain of the folder's owner, who is asked first.
    #[serde(default)]
    pub user: Option<String>,
    /// A project of that domain, of which the caller is a member; it is given at once.
    #[serde(default)]
    pub project: Option<String>,
    /// `ro` where it is left out; no more than the caller's own.
    #[serde(default)]
    #[schema(value_type = Option<FolderRightShape>)]
    pub right: Option<FolderRight>,
    /// When it ends; where it is left out, it stays until it is taken back. One made by whom the folder is shared with ends with
    /// their own at the latest.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
}

/// A folder that its owner offers the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = FolderInvitation)]
pub struct FolderInvitationView {
    #[schema(value_type = String, format = Uuid)]
    pub id: FolderShareId,
    #[schema(value_type = String)]
    pub name: FolderName,
    pub owner: FolderOwnerView,
    #[schema(value_type = FolderRightShape)]
    pub right: FolderRight,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// Who made it, or changed it last.
    pub created_by: String,
    /// Null: until it is taken back.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ends_at: Option<Timestamp>,
}

/// The sessions that are to lose a folder.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = FolderDetachment)]
#[serde(deny_unknown_fields)]
pub struct FolderDetachmentBody {
    /// Each as OWNER/NAME, or by its name alone where it is the caller's own; at most 100.
    #[schema(max_items = 100)]
    pub sessions: Vec<String>,
}

/// A session that is not over and mounts a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = FolderSession)]
pub struct FolderSessionView {
    #[schema(value_type = String)]
    pub name: SessionName,
    pub owner: Owner,
    #[schema(value_type = MountAccessShape)]
    pub access: MountAccess,
    /// False: its owner has no such right any more, and it does not start again with the folder.
    pub allowed: bool,
    /// The folder was taken out of it and is still there: the machine could not unmount it yet, and tries again.
    #[serde(default)]
    #[schema(required = true)]
    pub stuck: bool,
}
