//! The two ways an image operation ends badly: a refusal (the archive or the request is wrong, the
//! disk is full) and a fault (the machine failed). Also carries both through `std::io::Read`.

use std::fmt;
use std::io;

use rules::refusal::Refusal;
use rules::refusals;

/// A fault of the machine while keeping images, with what was being done.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct ImageFault {
    what: String,
    #[source]
    source: io::Error,
}

/// Why an image operation did not happen.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The caller's: a stable code beginning with `image.`, what was wrong, what would work.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// Ours: the whole chain belongs in the log.
    #[error(transparent)]
    Fault(#[from] ImageFault),
}

impl From<Refusal> for ImageError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

impl ImageError {
    /// Wraps an error of the operating system with what was being done.
    pub(super) fn fault(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Fault(ImageFault {
            what: what.into(),
            source: source.into(),
        })
    }

    /// The stable code of a refusal; `None` for a fault.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused(refusal) => Some(&refusal.code),
            Self::Fault(_) => None,
        }
    }
}

/// Adds what was being done to an error of the operating system.
pub(super) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, ImageError>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, ImageError> {
        self.map_err(|error| {
            let error = error.into();
            match error.raw_os_error() {
                // A full disk is no bug: the user gets its own message.
                Some(code) if code == NO_SPACE || code == QUOTA => disk_full().into(),
                _ => ImageError::fault(what(), error),
            }
        })
    }
}

const NO_SPACE: i32 = rustix::io::Errno::NOSPC.raw_os_error();
const QUOTA: i32 = rustix::io::Errno::DQUOT.raw_os_error();

pub(super) fn disk_full() -> Refusal {
    refusals::image_disk_full()
}

/// An `ImageError` travelling through a `Read` (a decompressor sits between the layer's limits and
/// the code that asked for bytes).
#[derive(Debug)]
struct Carried(ImageError);

impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Carried {}

/// Packs an error for the way through a `Read`; `from_read` takes it out again.
pub fn carry(error: impl Into<ImageError>) -> io::Error {
    io::Error::other(Carried(error.into()))
}

/// Turns an error that came out of a chain of readers into ours: a carried one as it was packed,
/// anything else is the decompressor's verdict on the bytes, hence the archive's fault.
pub(super) fn from_read(error: io::Error, what: &str) -> ImageError {
    let is_carried = error.get_ref().is_some_and(|inner| inner.is::<Carried>());
    if is_carried {
        let inner = error.into_inner().expect("get_ref just showed it");
        let carried = inner
            .downcast::<Carried>()
            .expect("is::<Carried> just held");
        return carried.0;
    }
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return refusals::image_truncated(what).into();
    }
    refusals::image_damaged(what, &error).into()
}

/// Bytes of an archive as text for a person: valid UTF-8 as it is, control characters and anything
/// else escaped, long ones shortened.
pub(super) fn shown(bytes: &[u8]) -> String {
    const MAX_SHOWN: usize = 120;
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::new();
    for c in text.chars() {
        if out.len() >= MAX_SHOWN {
            out.push('…');
            break;
        }
        // Right-to-left and zero-width marks would let a name lie about itself in a message.
        let misleading = matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
        if c.is_control() || misleading {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_an_archive_is_cut_where_it_is_too_long() {
        assert_eq!(shown(&[b'x'; 120]), "x".repeat(120));
        assert_eq!(shown(&[b'x'; 121]), format!("{}…", "x".repeat(120)));
        // What is escaped takes more room, and is whole.
        let escaped = shown(&[0; 1000]);
        assert_eq!(escaped, format!("{}…", "\\u{0}".repeat(24)));
    }
}
