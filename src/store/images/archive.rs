//! The outer container of an image: a tar file indexed by its members, or a directory. Gives named
//! documents whole and layers as streams; follows the archive's own links (podman's legacy names,
//! docker's repeated layers) inside the index only. Knows nothing of manifests.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use flate2::bufread::MultiGzDecoder;
use rules::refusals;
use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::failure::{Doing, ImageError, carry, from_read, shown};
use super::limits::ImportLimits;
use super::members::{MemberKind, Members, Skip};

/// Longest chain of links from one member of the archive to another.
const LINKS: usize = 8;

/// What an import reads from.
#[derive(Debug)]
pub enum Archive {
    /// A tar file: docker-archive or OCI archive, plain or compressed as a whole.
    File(File),
    /// An unpacked OCI layout (`index.json`, `blobs/`) or docker-archive.
    Directory(OwnedFd),
}

impl Archive {
    /// Opens what lies at this path. A refusal when it is neither a regular file nor a directory.
    pub fn at(path: &Path) -> Result<Self, ImageError> {
        let open = rustix::fs::open(
            path,
            // A fifo would block here for ever without NONBLOCK; it is refused below.
            OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK,
            Mode::empty(),
        );
        let opened = match open {
            Err(rustix::io::Errno::NOENT) => {
                return Err(refusals::image_archive_missing(path.display()).into());
            }
            other => other.doing(|| format!("open the archive {}", path.display()))?,
        };
        Self::of(opened)
    }

    /// Takes an open file or directory.
    pub fn of(opened: OwnedFd) -> Result<Self, ImageError> {
        let stat = rustix::fs::fstat(&opened).doing(|| "look at the archive".into())?;
        match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
            rustix::fs::FileType::RegularFile => Ok(Self::File(File::from(opened))),
            rustix::fs::FileType::Directory => Ok(Self::Directory(opened)),
            _ => Err(refusals::image_not_a_file().into()),
        }
    }
}

/// Where the bytes of a member lie.
#[derive(Debug, Clone)]
pub(super) enum MemberPlace {
    Bytes { offset: u64, size: u64 },
    Link(Vec<u8>),
}

/// An archive ready to be asked for its members.
pub(super) enum ArchiveSource {
    Tar {
        file: Arc<File>,
        index: HashMap<Vec<u8>, MemberPlace>,
    },
    Directory(OwnedFd),
}

impl ArchiveSource {
    /// Indexes a tar file (one pass over its headers, no data read) or takes a directory as it is.
    /// An archive compressed as a whole is first unpacked into `scratch`, inside the same limits.
    pub(super) fn open(
        archive: Archive,
        scratch: impl FnOnce() -> Result<File, ImageError>,
        room: &dyn Fn(u64) -> Result<(), ImageError>,
        limits: &ImportLimits,
    ) -> Result<Self, ImageError> {
        let file = match archive {
            Archive::Directory(root) => return Ok(Self::Directory(root)),
            Archive::File(file) => file,
        };
        let mut magic = [0u8; 6];
        let n = file
            .read_at(&mut magic, 0)
            .doing(|| "read the archive".into())?;
        let file = match Compression::of(&magic[..n]) {
            Compression::None => file,
            compressed => expand(file, compressed, scratch()?, room, limits)?,
        };
        let file = Arc::new(file);
        let index = index(&file, limits)?;
        Ok(Self::Tar { file, index })
    }

    /// Whether there is such a member.
    pub(super) fn has(&self, name: &str) -> Result<bool, ImageError> {
        match self {
            Self::Tar { .. } => Ok(self.place(name)?.is_some()),
            Self::Directory(_) => Ok(self.beneath(name)?.is_some()),
        }
    }

    /// A small member whole; `None` when there is no such member.
    pub(super) fn document(
        &self,
        name: &str,
        limits: &ImportLimits,
    ) -> Result<Option<Vec<u8>>, ImageError> {
        let Some(mut stream) = self.stream(name)? else {
            return Ok(None);
        };
        if stream.size > limits.document_bytes {
            return Err(refusals::image_document_too_large(
                shown(name.as_bytes()),
                stream.size,
                limits.document_bytes,
            )
            .into());
        }
        let mut bytes = Vec::new();
        stream
            .read_to_end(&mut bytes)
            .map_err(|error| from_read(error, name))?;
        if bytes.len() as u64 != stream.size {
            return Err(from_read(io::ErrorKind::UnexpectedEof.into(), name));
        }
        Ok(Some(bytes))
    }

    /// A member as a stream of bytes; `None` when there is no such member.
    pub(super) fn stream(&self, name: &str) -> Result<Option<Section>, ImageError> {
        match self {
            Self::Tar { file, .. } => Ok(self.place(name)?.map(|(offset, size)| Section {
                file: Arc::clone(file),
                at: offset,
                end: offset + size,
                size,
            })),
            Self::Directory(_) => Ok(self.beneath(name)?.map(|(file, size)| Section {
                file: Arc::new(file),
                at: 0,
                end: size,
                size,
            })),
        }
    }

    /// Whether the top looks like a root file system, for a better hint.
    pub(super) fn looks_like_a_root(&self) -> bool {
        match self {
            Self::Tar { index, .. } => index
                .keys()
                .any(|name| name.starts_with(b"etc/") || name.starts_with(b"usr/")),
            Self::Directory(_) => matches!(self.beneath("etc/passwd"), Ok(Some(_))),
        }
    }

    fn place(&self, name: &str) -> Result<Option<(u64, u64)>, ImageError> {
        let Self::Tar { index, .. } = self else {
            return Ok(None);
        };
        let mut name = normal(name.as_bytes());
        for _ in 0..=LINKS {
            match name.as_ref().and_then(|name| index.get(name)) {
                None => return Ok(None),
                Some(MemberPlace::Bytes { offset, size }) => return Ok(Some((*offset, *size))),
                Some(MemberPlace::Link(target)) => name = Some(target.clone()),
            }
        }
        Err(refusals::image_link_circle().into())
    }

    fn beneath(&self, name: &str) -> Result<Option<(File, u64)>, ImageError> {
        let Self::Directory(root) = self else {
            return Ok(None);
        };
        let opened = rustix::fs::openat2(
            root.as_fd(),
            name,
            OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK,
            Mode::empty(),
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
        );
        match opened {
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => Ok(None),
            Err(rustix::io::Errno::LOOP | rustix::io::Errno::XDEV) => {
                Err(refusals::image_link_in_layout(shown(name.as_bytes())).into())
            }
            Err(error) => Err(error).doing(|| format!("open {name} of the layout")),
            Ok(opened) => {
                let file = File::from(opened);
                let meta = file
                    .metadata()
                    .doing(|| format!("look at {name} of the layout"))?;
                Ok(meta.is_file().then_some((file, meta.len())))
            }
        }
    }
}

/// Reads every header of the archive, seeking over the data.
fn index(
    file: &Arc<File>,
    limits: &ImportLimits,
) -> Result<HashMap<Vec<u8>, MemberPlace>, ImageError> {
    let size = file
        .metadata()
        .doing(|| "look at the archive".into())?
        .len();
    let whole = Section {
        file: Arc::clone(file),
        at: 0,
        end: size,
        size,
    };
    let what = "the archive".to_owned();
    let mut members = Members::new(whole, what, limits.archive_members, limits);
    let mut index = HashMap::new();
    loop {
        let member = match members.next() {
            Ok(Some(member)) => member,
            Ok(None) => break,
            // The very first header decides whether this is a tar file at all.
            Err(ImageError::Refused(_)) if index.is_empty() && members.inner().at <= 1024 => {
                return Err(refusals::image_not_tar().into());
            }
            Err(error) => return Err(error),
        };
        if member.kind == MemberKind::Directory {
            continue;
        }
        if member.name.len().max(member.link.len()) > limits.archive_name_bytes {
            return Err(refusals::image_member_name_too_long(limits.archive_name_bytes).into());
        }
        let Some(name) = normal(&member.name) else {
            return Err(refusals::image_member_escapes(shown(&member.name)).into());
        };
        let place = match member.kind {
            MemberKind::File if member.sparse.is_some() => {
                return Err(refusals::image_sparse_member(shown(&member.name)).into());
            }
            MemberKind::File => MemberPlace::Bytes {
                offset: members.inner().at,
                size: member.size,
            },
            MemberKind::Symlink => {
                let parent = match name.iter().rposition(|b| *b == b'/') {
                    Some(slash) => &name[..=slash],
                    None => b"".as_slice(),
                };
                match relative(parent, &member.link) {
                    Some(target) => MemberPlace::Link(target),
                    None => return Err(leaving(&member.name, &member.link)),
                }
            }
            MemberKind::HardLink => match normal(&member.link) {
                Some(target) => MemberPlace::Link(target),
                None => return Err(leaving(&member.name, &member.link)),
            },
            MemberKind::Fifo
            | MemberKind::CharacterDevice { .. }
            | MemberKind::BlockDevice { .. } => {
                return Err(refusals::image_member_is_device(shown(&member.name)).into());
            }
            MemberKind::Directory => continue,
        };
        let end = members.inner().at.checked_add(members.left());
        if end.is_none_or(|end| end > size) {
            return Err(from_read(
                io::ErrorKind::UnexpectedEof.into(),
                &format!("Member {} of the archive", shown(&member.name)),
            ));
        }
        if index.insert(name, place).is_some() {
            return Err(refusals::image_archive_duplicate_member(shown(&member.name)).into());
        }
    }
    Ok(index)
}

fn leaving(name: &[u8], target: &[u8]) -> ImageError {
    refusals::image_member_link_escapes(shown(name), shown(target)).into()
}

/// A name inside the archive without `.` and empty parts; `None` when absolute, with `..` or empty.
fn normal(name: &[u8]) -> Option<Vec<u8>> {
    if name.first() == Some(&b'/') || name.contains(&0) {
        return None;
    }
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in name.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return None,
            part => parts.push(part),
        }
    }
    (!parts.is_empty()).then(|| parts.join(&b'/'))
}

/// The target of a symbolic link in `parent`, as a name inside the archive.
fn relative(parent: &[u8], target: &[u8]) -> Option<Vec<u8>> {
    if target.first() == Some(&b'/') || target.contains(&0) {
        return None;
    }
    let mut parts: Vec<&[u8]> = parent
        .split(|b| *b == b'/')
        .filter(|p| !p.is_empty())
        .collect();
    for part in target.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    (!parts.is_empty()).then(|| parts.join(&b'/'))
}

/// A stretch of a file, read by position so that several may be open at once.
#[derive(Debug)]
pub(super) struct Section {
    file: Arc<File>,
    at: u64,
    end: u64,
    size: u64,
}

impl Section {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The first bytes, without moving.
    pub(super) fn peek(&self, buf: &mut [u8]) -> Result<usize, ImageError> {
        let want = buf
            .len()
            .min(usize::try_from(self.end - self.at).unwrap_or(usize::MAX));
        self.file
            .read_at(&mut buf[..want], self.at)
            .doing(|| "read the archive".into())
    }
}

impl Read for Section {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let want = buf
            .len()
            .min(usize::try_from(self.end - self.at).unwrap_or(usize::MAX));
        let n = match self.file.read_at(&mut buf[..want], self.at) {
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            // A failing disk is not a damaged archive; keep the two apart behind a decompressor.
            Err(error) => return Err(carry(ImageError::fault("read the archive", error))),
        };
        self.at += n as u64;
        Ok(n)
    }
}

impl Skip for Section {
    fn skip(&mut self, count: u64) -> io::Result<()> {
        match self.at.checked_add(count) {
            Some(to) if to <= self.end => {
                self.at = to;
                Ok(())
            }
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// How a layer or a whole archive is compressed, told by its first bytes: media types and file
/// names are often wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Gzip,
    Zstd,
    Unsupported(&'static str),
}

impl Compression {
    pub(super) fn of(first: &[u8]) -> Self {
        match first {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            // A skippable frame; podman's seekable zstd may begin so.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            [0xfd, b'7', b'z', b'X', b'Z', ..] => Self::Unsupported("xz"),
            [b'B', b'Z', b'h', ..] => Self::Unsupported("bzip2"),
            [0x5d, 0x00, 0x00, ..] => Self::Unsupported("lzma"),
            [0x04, 0x22, 0x4d, 0x18, ..] => Self::Unsupported("lz4"),
            [b'P', b'K', 3, 4, ..] => Self::Unsupported("zip"),
            _ => Self::None,
        }
    }

    /// The bytes behind this compression. Memory: one window, at most 128 MiB for zstd.
    pub(super) fn reader<'r>(self, from: impl Read + 'r) -> Result<Box<dyn Read + 'r>, ImageError> {
        let buffered = io::BufReader::with_capacity(128 << 10, from);
        match self {
            Self::None => Ok(Box::new(buffered)),
            Self::Gzip => Ok(Box::new(MultiGzDecoder::new(buffered))),
            Self::Zstd => {
                let decoder = zstd::stream::read::Decoder::with_buffer(buffered)
                    .doing(|| "make ready for zstd".into())?;
                Ok(Box::new(decoder))
            }
            Self::Unsupported(name) => Err(refusals::image_compression(name).into()),
        }
    }
}

/// Unpacks an archive compressed as a whole (`docker save | gzip`), because its manifest may come
/// last and only a plain file can be read from the middle.
fn expand(
    file: File,
    compression: Compression,
    mut scratch: File,
    room: &dyn Fn(u64) -> Result<(), ImageError>,
    limits: &ImportLimits,
) -> Result<File, ImageError> {
    let what = "The compressed archive";
    let size = file
        .metadata()
        .doing(|| "look at the archive".into())?
        .len();
    let section = Section {
        file: Arc::new(file),
        at: 0,
        end: size,
        size,
    };
    let mut reader = compression.reader(section)?;
    let mut buf = vec![0u8; 1 << 20];
    let mut written = 0u64;
    loop {
        let n = match reader.read(&mut buf) {
            Ok(0) => break,
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(from_read(error, what)),
        };
        written += n as u64;
        if written > limits.unpacked_bytes
            || (written > limits.ratio_grace_bytes && written / limits.ratio > size)
        {
            return Err(bomb(what, written, size));
        }
        room(n as u64)?;
        scratch
            .write_all(&buf[..n])
            .doing(|| "unpack the compressed archive".into())?;
    }
    Ok(scratch)
}

pub(super) fn bomb(what: &str, unpacked: u64, packed: u64) -> ImageError {
    refusals::image_bomb(what, unpacked, packed).into()
}
