//! Writes an unpacked layer as a tar stream in the form of OCI layers, for another store that unpacks it
//! again. The same layer gives the same bytes every time, so they have one digest and can be resumed at any
//! byte. Never compresses, never follows a link, never decides who gets them.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rules::refusals;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use tar::{EntryType, Header};

use super::failure::{Doing, ImageError, shown};
use super::lower;

const BLOCK: u64 = 512;
/// Two blocks of zeros end an archive.
pub(super) const END_OF_ARCHIVE: [u8; 2 * BLOCK as usize] = [0; 2 * BLOCK as usize];
/// Bytes read of a file at once. Larger: more memory for each layer that is sent. Smaller: more calls.
pub(super) const PIECE: usize = 256 << 10;
/// Zeros that count as a hole in a file that had holes when it was imported. Larger: small holes are sent and
/// take room. Smaller: longer lists of stretches.
const HOLE: usize = 64 << 10;
/// Stretches of one such file that are told apart; the rest of the file is sent whole. Higher: the list does
/// not fit into one extended header of the receiver. Lower: more zeros are sent.
pub(super) const MAX_STRETCHES: usize = 8192;

/// Bytes of all extended attributes of one file. Higher: a session has this process hold more, and the receiver refuses
/// them. Lower: files that an import takes are refused.
const MAX_ATTRIBUTE_BYTES: usize = 1 << 20;

/// Takes the packed bytes.
pub(super) trait PackSink: Write {
    /// Whether the next `bytes` bytes are not wanted; then they count as taken.
    fn skips(&mut self, bytes: u64) -> bool;
}

/// Writes everything below `layer`, directories before what they hold, names in the order of their bytes.
/// `holes` lists the files that are read for holes.
///
/// Costs one read of all files, two of those with holes; memory for the names of one directory on each
/// level, and for the paths of files with several names. Errors: what the kernel or the sink says.
pub(super) fn pack(
    layer: BorrowedFd<'_>,
    holes: &BTreeSet<Vec<u8>>,
    sink: &mut dyn PackSink,
) -> Result<(), ImageError> {
    let mut packer = LayerPacker {
        sink,
        holes,
        first_names: HashMap::new(),
        buffer: vec![0; PIECE],
    };
    let stat = rustix::fs::fstat(layer).doing(|| "look at a layer".into())?;
    packer.directory(b"./", layer, &stat)?;
    let mut levels = vec![DirectoryLevel::read(
        rustix::io::fcntl_dupfd_cloexec(layer, 3).doing(|| "keep a directory open".into())?,
    )?];
    let mut path: Vec<Vec<u8>> = Vec::new();
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.names.next() else {
            levels.pop();
            path.pop();
            continue;
        };
        path.push(name);
        match packer.entry(level.directory.as_fd(), &path)? {
            Some(directory) => levels.push(DirectoryLevel::read(directory)?),
            None => {
                path.pop();
            }
        }
    }
    packer.sink.write_all(&END_OF_ARCHIVE).doing(sending)
}

/// A directory on the way, with the names that are still to come.
pub(super) struct DirectoryLevel {
    pub(super) directory: OwnedFd,
    pub(super) names: std::vec::IntoIter<Vec<u8>>,
}

impl DirectoryLevel {
    pub(super) fn read(directory: OwnedFd) -> Result<Self, ImageError> {
        let doing = || "list a directory of a layer".to_owned();
        let mut names = Vec::new();
        for entry in Dir::read_from(&directory).doing(doing)? {
            let name = entry.doing(doing)?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(Self {
            directory,
            names: names.into_iter(),
        })
    }
}

struct LayerPacker<'a> {
    sink: &'a mut dyn PackSink,
    holes: &'a BTreeSet<Vec<u8>>,
    /// The first path of each file that has several names.
    first_names: HashMap<(u64, u64), Vec<u8>>,
    buffer: Vec<u8>,
}

/// Key and value of one record of an extended header.
pub(super) type PaxRecord = (Vec<u8>, Vec<u8>);

/// What the header of one member says.
pub(super) struct MemberHead<'a> {
    pub(super) name: &'a [u8],
    pub(super) kind: EntryType,
    pub(super) link: &'a [u8],
    pub(super) stored: u64,
    pub(super) stat: Option<&'a Stat>,
    pub(super) records: Vec<PaxRecord>,
}

impl LayerPacker<'_> {
    /// Writes what stands at the end of `path`; gives it open where it is a directory.
    fn entry(
        &mut self,
        parent: BorrowedFd<'_>,
        path: &[Vec<u8>],
    ) -> Result<Option<OwnedFd>, ImageError> {
        let name = path.last().expect("the walk has just pushed it");
        let full = path.join(&b'/');
        let stat = rustix::fs::statat(parent, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW)
            .doing(|| format!("look at {}", shown(&full)))?;
        let mut head = MemberHead {
            name: &full,
            kind: EntryType::Regular,
            link: b"",
            stored: 0,
            stat: Some(&stat),
            records: Vec::new(),
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Directory {
            let directory = lower::open_directory(parent, name)?;
            self.directory(&full, directory.as_fd(), &stat)?;
            return Ok(Some(directory));
        }
        if kind == FileType::CharacterDevice {
            let mut whiteout = path[..path.len() - 1].join(&b'/');
            if !whiteout.is_empty() {
                whiteout.push(b'/');
            }
            whiteout.extend_from_slice(b".wh.");
            whiteout.extend_from_slice(name);
            self.head(&MemberHead {
                name: &whiteout,
                stat: None,
                ..head
            })?;
            return Ok(None);
        }
        let file = (stat.st_dev, stat.st_ino);
        if stat.st_nlink > 1 {
            if let Some(first) = self.first_names.get(&file).cloned() {
                head.kind = EntryType::Link;
                head.link = &first;
                self.head(&head)?;
                return Ok(None);
            }
            self.first_names.insert(file, full.clone());
        }
        match kind {
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(parent, name.as_slice(), Vec::new())
                    .doing(|| format!("read the link {}", shown(&full)))?
                    .into_bytes();
                head.kind = EntryType::Symlink;
                head.link = &target;
                self.head(&head)?;
            }
            FileType::Fifo => {
                head.kind = EntryType::Fifo;
                self.head(&head)?;
            }
            FileType::RegularFile => self.file(parent, name, head)?,
            other => {
                let error = io::Error::other(format!("{other:?} in a layer"));
                return Err(ImageError::fault(format!("send {}", shown(&full)), error));
            }
        }
        Ok(None)
    }

    fn directory(
        &mut self,
        name: &[u8],
        directory: BorrowedFd<'_>,
        stat: &Stat,
    ) -> Result<(), ImageError> {
        self.head(&MemberHead {
            name,
            kind: EntryType::Directory,
            link: b"",
            stored: 0,
            stat: Some(stat),
            records: attributes(directory)?,
        })?;
        if !lower::is_opaque(directory) {
            return Ok(());
        }
        let marker = [name, b"/.wh..wh..opq"].concat();
        self.head(&MemberHead {
            name: &marker,
            kind: EntryType::Regular,
            link: b"",
            stored: 0,
            stat: None,
            records: Vec::new(),
        })
    }

    fn file(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        mut head: MemberHead<'_>,
    ) -> Result<(), ImageError> {
        let full = head.name;
        let reading = || format!("read {}", shown(full));
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(parent, name, flags, Mode::empty()).doing(reading)?;
        head.records = attributes(opened.as_fd())?;
        let file = File::from(opened);
        let size = head
            .stat
            .and_then(|stat| u64::try_from(stat.st_size).ok())
            .unwrap_or(0);
        let stretches = match self.holes.contains(full) {
            true => self.stretches(&file, size).doing(reading)?,
            false => vec![(0, size)],
        };
        head.stored = stretches.iter().map(|(_, length)| length).sum();
        if self.holes.contains(full) {
            let map: Vec<String> = match stretches.is_empty() {
                true => vec!["0,0".into()],
                false => stretches
                    .iter()
                    .map(|(at, n)| format!("{at},{n}"))
                    .collect(),
            };
            head.records
                .push((b"GNU.sparse.size".to_vec(), size.to_string().into_bytes()));
            head.records
                .push((b"GNU.sparse.map".to_vec(), map.join(",").into_bytes()));
        }
        self.head(&head)?;
        for (at, length) in stretches {
            self.stretch(&file, at, length, &reading)?;
        }
        self.pad(head.stored)
    }

    fn stretch(
        &mut self,
        file: &File,
        mut at: u64,
        length: u64,
        reading: &dyn Fn() -> String,
    ) -> Result<(), ImageError> {
        if self.sink.skips(length) {
            return Ok(());
        }
        let end = at + length;
        while at < end {
            let want = PIECE.min(usize::try_from(end - at).unwrap_or(PIECE));
            let piece = &mut self.buffer[..want];
            file.read_exact_at(piece, at).doing(reading)?;
            self.sink.write_all(piece).doing(sending)?;
            at += want as u64;
        }
        Ok(())
    }

    /// Stretches of a file that are not zeros only, as (offset, length) in order.
    fn stretches(&mut self, file: &File, size: u64) -> io::Result<Vec<(u64, u64)>> {
        let mut stretches: Vec<(u64, u64)> = Vec::new();
        let mut at = 0;
        while at < size {
            let want = HOLE.min(usize::try_from(size - at).unwrap_or(HOLE));
            let piece = &mut self.buffer[..want];
            file.read_exact_at(piece, at)?;
            if piece.iter().any(|byte| *byte != 0) {
                let count = stretches.len();
                match stretches.last_mut() {
                    Some((from, length)) if *from + *length == at => *length += want as u64,
                    Some((from, length)) if count == MAX_STRETCHES => {
                        // The last stretch reaches to the end, with what holes are left.
                        *length = size - *from;
                        return Ok(stretches);
                    }
                    _ => stretches.push((at, want as u64)),
                }
            }
            at += want as u64;
        }
        Ok(stretches)
    }

    fn head(&mut self, member: &MemberHead<'_>) -> Result<(), ImageError> {
        write_head(&mut *self.sink, member)
    }

    fn pad(&mut self, stored: u64) -> Result<(), ImageError> {
        write_padding(&mut *self.sink, stored)
    }
}

/// Writes the header of a member, after an extended one where its fields do not hold everything.
pub(super) fn write_head<W: Write + ?Sized>(
    sink: &mut W,
    member: &MemberHead<'_>,
) -> Result<(), ImageError> {
    let mut records = Vec::new();
    let mut record = |key: &[u8], value: &[u8]| {
        // The length counts itself.
        let rest = key.len() + value.len() + 3;
        let mut length = rest + rest.to_string().len();
        if length.to_string().len() != rest.to_string().len() {
            length = rest + length.to_string().len();
        }
        records.extend_from_slice(format!("{length} ").as_bytes());
        records.extend_from_slice(key);
        records.push(b'=');
        records.extend_from_slice(value);
        records.push(b'\n');
    };
    let mut header = Header::new_gnu();
    header.set_entry_type(member.kind);
    header.set_size(member.stored);
    let (mut mode, mut owners, mut seconds) = (0, (0, 0), 0);
    if let Some(stat) = member.stat {
        mode = stat.st_mode & 0o7777;
        owners = (stat.st_uid, stat.st_gid);
        let nanoseconds = u32::try_from(stat.st_mtime_nsec).unwrap_or(0);
        match u64::try_from(stat.st_mtime) {
            Ok(whole) if nanoseconds == 0 => seconds = whole,
            _ => record(b"mtime", pax_time(stat.st_mtime, nanoseconds).as_bytes()),
        }
    }
    header.set_mode(mode);
    header.set_uid(owners.0.into());
    header.set_gid(owners.1.into());
    header.set_mtime(seconds);
    let raw = header.as_mut_bytes();
    for (text, key, field) in [
        (member.name, b"path".as_slice(), 0),
        (member.link, b"linkpath".as_slice(), 157),
    ] {
        match text.len() <= 100 {
            true => raw[field..field + text.len()].copy_from_slice(text),
            false => record(key, text),
        }
    }
    for (key, value) in &member.records {
        record(key, value);
    }
    if !records.is_empty() {
        let mut extended = Header::new_gnu();
        extended.set_entry_type(EntryType::XHeader);
        extended.set_size(records.len() as u64);
        extended.set_cksum();
        sink.write_all(extended.as_bytes()).doing(sending)?;
        sink.write_all(&records).doing(sending)?;
        write_padding(sink, records.len() as u64)?;
    }
    header.set_cksum();
    sink.write_all(header.as_bytes()).doing(sending)
}

/// Fills the last block of so many stored bytes.
pub(super) fn write_padding<W: Write + ?Sized>(
    sink: &mut W,
    stored: u64,
) -> Result<(), ImageError> {
    let padding = usize::try_from((BLOCK - stored % BLOCK) % BLOCK).expect("below a block");
    sink.write_all(&[0; BLOCK as usize][..padding])
        .doing(sending)
}

/// The extended attributes that a layer may carry, as PAX records in the order of their names. Labels of this
/// machine and overlayfs's own stay here.
pub(super) fn attributes(file: BorrowedFd<'_>) -> Result<Vec<PaxRecord>, ImageError> {
    let doing = || "read the attributes of a file of a layer".to_owned();
    let length = match rustix::fs::flistxattr_query(file) {
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        length => length.doing(doing)?,
    };
    let mut list = vec![0u8; length];
    let length = rustix::fs::flistxattr(file, &mut list[..]).doing(doing)?;
    let mut names: Vec<&[u8]> = list[..length]
        .split(|byte| *byte == 0)
        .filter(|name| {
            (name.starts_with(b"user.") && !name.starts_with(b"user.overlay."))
                || *name == b"security.capability"
                || *name == b"system.posix_acl_access"
                || *name == b"system.posix_acl_default"
        })
        .collect();
    names.sort_unstable();
    let mut records = Vec::new();
    let mut held = 0;
    for name in names {
        let length = rustix::fs::fgetxattr_query(file, name).doing(doing)?;
        held += name.len() + length;
        if held > MAX_ATTRIBUTE_BYTES {
            return Err(refusals::commit_layer_attributes(MAX_ATTRIBUTE_BYTES >> 10).into());
        }
        let mut value = vec![0u8; length];
        let length = rustix::fs::fgetxattr(file, name, &mut value[..]).doing(doing)?;
        value.truncate(length);
        records.push(([b"SCHILY.xattr.", name].concat(), value));
    }
    Ok(records)
}

/// A time as PAX writes it: a decimal number with its sign in front.
fn pax_time(seconds: i64, nanoseconds: u32) -> String {
    match (seconds < 0, nanoseconds) {
        (_, 0) => seconds.to_string(),
        (false, part) => format!("{seconds}.{part:09}"),
        (true, part) => format!("-{}.{:09}", -(seconds + 1), 1_000_000_000 - part),
    }
}

pub(super) fn sending() -> String {
    "send a layer".into()
}

/// Paths of the files of a layer that had holes when it was imported, from its list of contents.
pub(super) fn files_with_holes(mut contents: impl Read) -> io::Result<BTreeSet<Vec<u8>>> {
    let mut reader = io::BufReader::new(&mut contents);
    let mut holes = BTreeSet::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        io::BufRead::read_until(&mut reader, 0, &mut line)?;
        if line.pop().is_none() {
            return Ok(holes);
        }
        let mut fields = line.splitn(3, |byte| *byte == b' ');
        if let (Some(b"-"), Some(_), Some(path)) = (fields.next(), fields.next(), fields.next()) {
            holes.insert(path.to_vec());
        }
    }
}
