//! What became of work on the files of a folder that did not succeed: what the kernel says in words for who asked, or a fault
//! of ours. Never decides what is done about it.

use std::io;

use rules::folder_path::{FolderPath, MAX_FOLDER_PATH};
use rules::refusal::Refusal;
use rules::refusals;
use rustix::io::Errno;

use crate::volumes::refusal_of;

/// Why nothing was done with the files of a folder.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("{0}")]
    Refused(Box<Refusal>),
    #[error("{what}")]
    Fault {
        what: &'static str,
        #[source]
        source: io::Error,
    },
}

impl From<Refusal> for FolderError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

impl FolderError {
    /// The stable code of a refusal; None for a fault.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused(refusal) => Some(&refusal.code),
            Self::Fault { .. } => None,
        }
    }
}

/// What the kernel said about `path`, in words where it is about what was asked for.
pub(super) fn failed<E: Into<io::Error>>(
    what: &'static str,
    path: &FolderPath,
) -> impl Fn(E) -> FolderError {
    let name = named(path);
    move |error| {
        let source: io::Error = error.into();
        match Errno::from_io_error(&source) {
            Some(Errno::NOENT | Errno::NOTDIR) => refusals::folder_entry_not_found(&name).into(),
            Some(Errno::EXIST | Errno::NOTEMPTY) => refusals::folder_entry_exists(&name).into(),
            Some(Errno::LOOP | Errno::XDEV) => refusals::folder_entry_link(&name).into(),
            Some(Errno::ISDIR | Errno::NXIO | Errno::OPNOTSUPP) => {
                refusals::folder_entry_not_file(&name).into()
            }
            Some(Errno::NAMETOOLONG) => refusals::folder_path_invalid(MAX_FOLDER_PATH).into(),
            _ => fault(what)(source),
        }
    }
}

/// What the kernel said of reading a link: where it is none any more, it is gone.
pub(super) fn unlinked(error: Errno) -> Errno {
    match error {
        Errno::INVAL => Errno::NOENT,
        error => error,
    }
}

/// What the kernel said about a file of ours.
pub(super) fn fault(what: &'static str) -> impl Fn(io::Error) -> FolderError {
    move |source| match (refusal_of(&source), Errno::from_io_error(&source)) {
        (Some(refusal), _) => refusal.into(),
        (None, Some(Errno::NOSPC | Errno::DQUOT)) => refusals::disk_full().into(),
        (None, Some(Errno::ROFS)) => refusals::disk_read_only().into(),
        (None, _) => FolderError::Fault { what, source },
    }
}

/// A path in a sentence: its last name, of which a long one is shortened.
pub(super) fn named(path: &FolderPath) -> String {
    /// Letters of a name that a sentence holds.
    const SHOWN: usize = 80;
    let name = path.shown_name();
    match name.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name,
    }
}
