//! A place in the order in which a directory of a folder is listed. Never knows what is listed.

/// The sort and the name of an entry: directories come first, then all else, each in the order of the bytes of their names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryPosition {
    /// False for a directory.
    pub is_behind: bool,
    pub name: Vec<u8>,
}
