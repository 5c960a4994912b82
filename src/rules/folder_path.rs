//! A path below a folder: names of directories from its top, and of what lies in the last one. Sessions may use any bytes in
//! a name, so those are kept as they are; what the server itself makes has a name that can be read. Never looks anything up.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;
use crate::refusals;
use crate::workload::spec::hidden;

/// Bytes of a path below a folder. Higher: the kernel takes none longer in one call. Lower: deep trees are reached by
/// sessions alone.
pub const MAX_FOLDER_PATH: usize = 4000;
/// Bytes of a file that is edited outside sessions. Higher: pages that take long to draw, and requests that take memory. Lower:
/// larger files are edited inside sessions alone.
pub const MAX_FOLDER_TEXT: u64 = 1 << 20;
/// Bytes of one name, as file systems have it.
const NAME_BYTES: usize = 255;

/// What lies below a folder, by sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FolderEntryKind {
    Directory,
    File,
    /// A symbolic link; nothing of the server follows it.
    Link,
    /// A pipe, a socket or a device.
    Other,
}

impl FolderEntryKind {
    pub fn word(self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::File => "file",
            Self::Link => "link",
            Self::Other => "other",
        }
    }
}

/// Names from the top of a folder, with slashes between them; empty for the top itself. None of them is a dot or two.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FolderPath(Vec<u8>);

impl FolderPath {
    /// Reads a path as `Display` writes it. A slash at its begin or end says nothing more.
    ///
    /// Errors: `folder.path-invalid`.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let wrong = || refusals::folder_path_invalid(MAX_FOLDER_PATH);
        let text = text.strip_prefix('/').unwrap_or(text);
        let text = text.strip_suffix('/').unwrap_or(text);
        let mut path = Self::default();
        if text.is_empty() {
            return Ok(path);
        }
        for part in text.split('/') {
            path = path.child(&decoded(part)).ok_or_else(wrong)?;
        }
        Ok(path)
    }

    /// What has this name in the directory of this path; None for what is no name, or too far below.
    pub fn child(&self, name: &[u8]) -> Option<Self> {
        let good = (1..=NAME_BYTES).contains(&name.len())
            && !matches!(name, b"." | b"..")
            && !name.iter().any(|byte| matches!(byte, 0 | b'/'));
        let mut path = self.0.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        (good && path.len() <= MAX_FOLDER_PATH).then_some(Self(path))
    }

    /// The directory that it lies in; the top for the top.
    pub fn parent(&self) -> Self {
        let end = self.0.iter().rposition(|byte| *byte == b'/');
        Self(self.0[..end.unwrap_or(0)].to_vec())
    }

    /// The last name; empty for the top.
    pub fn name(&self) -> &[u8] {
        self.0
            .rsplit(|byte| *byte == b'/')
            .next()
            .unwrap_or_default()
    }

    /// The names from the top on; none for the top.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.0
            .split(|byte| *byte == b'/')
            .filter(|part| !part.is_empty())
    }

    pub fn is_top(&self) -> bool {
        self.0.is_empty()
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// True for the same path, and for one that leads through `other`.
    pub fn is_at_or_below(&self, other: &Self) -> bool {
        match self.0.strip_prefix(other.0.as_slice()) {
            Some(rest) => other.is_top() || rest.is_empty() || rest.first() == Some(&b'/'),
            None => false,
        }
    }

    /// Refuses what the server would not make: names that are no text, and text that cannot be seen.
    ///
    /// Errors: `folder.new-name-invalid`.
    pub fn check_new(&self) -> Result<(), Refusal> {
        let is_plain =
            |part: &[u8]| std::str::from_utf8(part).is_ok_and(|text| !text.chars().any(hidden));
        match !self.is_top() && self.parts().all(is_plain) {
            true => Ok(()),
            false => Err(refusals::folder_new_name_invalid()),
        }
    }

    /// The last name for users to read; empty for the top.
    pub fn shown_name(&self) -> String {
        String::from_utf8_lossy(self.name()).into_owned()
    }
}

impl fmt::Display for FolderPath {
    /// As text that names the same bytes again: a percent sign, and each byte that belongs to no visible character, as `%`
    /// and two digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c == '%' || hidden(c) {
                    true => escape(f, c.encode_utf8(&mut [0; 4]).as_bytes())?,
                    false => write!(f, "{c}")?,
                }
            }
            escape(f, chunk.invalid())?;
        }
        Ok(())
    }
}

fn escape(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "%{byte:02X}"))
}

/// One name with its escapes undone; a percent sign without two digits behind it is one.
fn decoded(part: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let digits = digits.filter(|two| two.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let escaped = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        match escaped.filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> FolderPath {
        FolderPath::parse(text).expect(text)
    }

    #[test]
    fn a_path_names_the_same_bytes_again() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("a", b"a"),
            ("a/b c/\u{ac00}.txt", "a/b c/\u{ac00}.txt".as_bytes()),
            ("100%25 sure", b"100% sure"),
            ("two%0Alines/%FF", b"two\nlines/\xff"),
            ("%E2%80%AEtxt.exe", "\u{202e}txt.exe".as_bytes()),
        ] {
            let read = path(text);
            assert_eq!(read.as_bytes(), bytes);
            assert_eq!(read.to_string(), text);
        }
        assert_eq!(path("/a/b/"), path("a/b"));
        assert_eq!(path("100%").as_bytes(), b"100%");
        assert_eq!(path("a/b").parent(), path("a"));
        assert_eq!(path("a").parent(), path(""));
        assert_eq!(path("a/b").name(), b"b");
        assert_eq!(path("a/b").parts().count(), 2);
        assert_eq!(path("").parts().count(), 0);
    }

    #[test]
    fn what_leads_out_of_a_folder_is_no_path() {
        let long = "x".repeat(256);
        let deep = "abcdefghi/".repeat(401);
        for text in [
            ".", "..", "a/..", "a/./b", "a//b", "%2E%2E", "a%2Fb", "a%00b", "//a", &long, &deep,
        ] {
            let refusal = FolderPath::parse(text).expect_err(text);
            assert_eq!(refusal.code, "folder.path-invalid", "{text}");
        }
    }

    #[test]
    fn a_new_name_can_be_read() {
        for text in ["a", "a b", ".ssh", "100%25", "\u{ac00}/b"] {
            path(text).check_new().expect(text);
        }
        for text in ["", "two%0Alines", "%FF", "a/%E2%80%AEb", "%FF/b"] {
            let refusal = path(text).check_new().expect_err(text);
            assert_eq!(refusal.code, "folder.new-name-invalid", "{text}");
        }
    }

    #[test]
    fn a_path_is_below_those_that_it_leads_through() {
        for (inner, outer, below) in [
            ("a/b", "a", true),
            ("a", "a", true),
            ("ab", "a", false),
            ("a", "a/b", false),
            ("a", "", true),
            ("", "", true),
        ] {
            assert_eq!(
                path(inner).is_at_or_below(&path(outer)),
                below,
                "{inner} {outer}"
            );
        }
    }
}
