//! What is found, counted, edited and copied in folders from outside of sessions.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use rules::units::Timestamp;

use crate::folders::FolderEntryView;

/// Which names below which directory.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct FolderSearchQuery {
    /// A directory, from the top of the folder; empty: the top.
    pub path: String,
    /// What names contain.
    pub q: String,
    pub limit: Option<usize>,
    pub cursor: Option<String>,
}

/// What ended a search before all names were looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SearchStop {
    /// As many were found as were asked for.
    Page,
    /// A million names were looked at.
    Names,
    /// It took as long as one search may.
    Time,
}

/// What one search found: each directory before what lies in it, names in the order of their bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = FolderSearch)]
pub struct FolderSearchView {
    pub items: Vec<FolderEntryView>,
    /// Goes on with the search where this one ended; null at the end.
    pub next_cursor: Option<String>,
    /// What ended it; null at the end.
    pub stopped: Option<SearchStop>,
    /// Names that this search looked at.
    pub looked: u64,
    /// False where something was not looked at: a directory that cannot be read, or that is too large or too deep.
    pub whole: bool,
}

/// Which directory is counted.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct FolderUsageQuery {
    /// From the top of the folder; empty: the top.
    pub path: String,
    /// True: counted now, also where it was counted lately.
    pub fresh: bool,
}

/// What one directory takes of the disk, with all below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = SubfolderUsage)]
pub struct SubfolderUsageView {
    /// The last name of its path, as far as it is text.
    pub name: String,
    /// Its path from the top of the folder.
    pub path: String,
    /// Bytes on the disk.
    pub bytes: u64,
    /// Files, directories and links, itself included.
    pub entries: u64,
}

/// What the directories in a directory take of the disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = FolderUsage)]
pub struct FolderUsageView {
    /// The directory that was counted, from the top of the folder.
    pub path: String,
    /// The largest ones, at most 200, largest first.
    pub items: Vec<SubfolderUsageView>,
    /// How many directories there are besides.
    pub others: u64,
    /// What those take together.
    pub others_bytes: u64,
    /// Bytes of the files and links in the directory itself.
    pub files_bytes: u64,
    /// How many those are.
    pub files: u64,
    /// False where the count ended before the tree did: then it is less than what is taken.
    pub whole: bool,
    /// When it was counted; a count is kept for ten minutes.
    #[schema(value_type = String, format = DateTime)]
    pub counted_at: Timestamp,
}

/// A file of text, whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = FolderText)]
pub struct FolderTextView {
    /// From the top of the folder.
    pub path: String,
    pub text: String,
    /// Version, and ETag, with its quotes.
    pub etag: String,
    #[schema(value_type = String, format = DateTime)]
    pub modified_at: Timestamp,
}

/// A file of text that was written. What it holds is what was sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = WrittenFolderText)]
pub struct WrittenFolderTextView {
    /// From the top of the folder.
    pub path: String,
    /// Version, and ETag, with its quotes.
    pub etag: String,
    #[schema(value_type = String, format = DateTime)]
    pub modified_at: Timestamp,
}

/// What a file is to hold.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = NewFolderText)]
#[serde(deny_unknown_fields)]
pub struct NewFolderTextBody {
    /// From the top of the folder; the directory above it is there.
    pub path: String,
    /// All of it, at most 1 MiB.
    pub text: String,
}

/// A copy in the same folder.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = FolderCopy)]
#[serde(deny_unknown_fields)]
pub struct FolderCopyBody {
    pub from: String,
    /// Where the copy is to be, its name included; nothing is there yet.
    pub to: String,
}
