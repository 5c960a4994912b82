//! The names of one directory of a folder in the order of their bytes, as many as a bound of memory takes. Never opens a file,
//! and never follows a link.

use rules::folder_path::FolderPath;
use rustix::fs::Dir;

use super::beneath::FolderTop;
use super::failure::{FolderError, failed};
use super::listing::{MAX_LISTED, is_directory};

/// The names of one directory.
#[derive(Debug, Default)]
pub(super) struct DirectoryNames {
    bytes: Vec<u8>,
    /// Begin and length of each name, and whether it is a directory's.
    places: Vec<(u32, u16, bool)>,
    /// False where there are more than there was room for.
    pub(super) whole: bool,
}

impl DirectoryNames {
    /// Reads a directory; `room`: bytes of memory that its names may take.
    ///
    /// Errors: `folder.entry-not-found`, `folder.entry-link`.
    pub(super) fn read(
        top: &FolderTop,
        path: &FolderPath,
        room: usize,
    ) -> Result<Self, FolderError> {
        let failed = || failed::<rustix::io::Errno>("look through a directory of a folder", path);
        let directory = top.directory(path)?;
        let mut listed = Dir::read_from(&directory).map_err(failed())?;
        let (mut bytes, mut places, mut whole) = (Vec::new(), Vec::new(), true);
        while let Some(entry) = listed.read() {
            let entry = entry.map_err(failed())?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let place = (u32::try_from(bytes.len()), u16::try_from(name.len()));
            let more = memory(bytes.len() + name.len(), places.len() + 1);
            let fits = more <= room && (places.len() as u64) < MAX_LISTED;
            let ((Ok(at), Ok(length)), true) = (place, fits) else {
                whole = false;
                break;
            };
            let is_below = is_directory(&directory, entry.file_type(), name);
            bytes.extend_from_slice(name);
            places.push((at, length, is_below));
        }
        let name = |at: u32, length: u16| &bytes[at as usize..at as usize + usize::from(length)];
        places.sort_unstable_by(|one: &(u32, u16, bool), other| {
            name(one.0, one.1).cmp(name(other.0, other.1))
        });
        Ok(Self {
            bytes,
            places,
            whole,
        })
    }

    pub(super) fn count(&self) -> usize {
        self.places.len()
    }

    /// A name, and whether it is a directory's.
    pub(super) fn get(&self, number: usize) -> (&[u8], bool) {
        let (at, length, is_directory) = self.places[number];
        let at = at as usize;
        (&self.bytes[at..at + usize::from(length)], is_directory)
    }

    /// The number of the first name that is `name` or comes behind it.
    pub(super) fn first_from(&self, name: &[u8]) -> usize {
        self.places.partition_point(|(at, length, _)| {
            let at = *at as usize;
            &self.bytes[at..at + usize::from(*length)] < name
        })
    }

    /// Bytes of memory that they take.
    pub(super) fn memory(&self) -> usize {
        memory(self.bytes.len(), self.places.len())
    }
}

fn memory(bytes: usize, names: usize) -> usize {
    bytes.saturating_add(names.saturating_mul(size_of::<(u32, u16, bool)>()))
}
