//! Reads a session's own layer, the upper directory of its overlay, as a layer in the form of OCI: first what is in it
//! and what looks like a secret, then its bytes. Ids of the machine become ids of the image again. Reads each name from
//! the directory that is open, follows no link, writes nothing into the layer, and freezes no session.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rules::commit::{
    LayerExclusions, LayerSurvey, MAX_LAYER_DEPTH, MAX_LAYER_ENTRIES, MAX_SEARCHED_BYTES,
    secret_by_content, secret_by_name,
};
use rules::refusal::Refusal;
use rules::refusals;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use tar::EntryType;

use super::failure::{Doing, ImageError, shown};
use super::lower;
use super::pack::{
    DirectoryLevel, END_OF_ARCHIVE, MAX_STRETCHES, MemberHead, PIECE, PaxRecord, attributes,
    sending, write_head, write_padding,
};

/// Paths of files with several names that are remembered, bytes of all together. Higher: more memory. Lower: more of such
/// files become files of their own.
const MAX_NAME_BYTES: usize = 32 << 20;
/// The id of the user `nobody`, for ids outside the session's range, as the session sees them.
const NOBODY: u32 = 65_534;
/// Overlayfs's own attributes that make a name stand for something of another place below.
const REDIRECTIONS: [&str; 2] = ["trusted.overlay.redirect", "trusted.overlay.metacopy"];

/// The ids of the machine `base .. base + size` that stand for a session's `0 .. size`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionIds {
    pub base: u32,
    pub size: u32,
    /// The user and the group that stand for 1000 instead.
    pub mapped: Option<(u32, u32)>,
}

/// The user and the group that may be mapped to others.
const MAPPED_ID: u32 = 1000;

impl SessionIds {
    fn user(self, id: u32) -> u32 {
        match self.mapped {
            Some((user, _)) if user == id => MAPPED_ID,
            _ => self.inside(id),
        }
    }

    fn group(self, id: u32) -> u32 {
        match self.mapped {
            Some((_, group)) if group == id => MAPPED_ID,
            _ => self.inside(id),
        }
    }

    fn inside(self, id: u32) -> u32 {
        match id.checked_sub(self.base) {
            Some(inside) if inside < self.size => inside,
            _ => NOBODY,
        }
    }
}

/// One session's own layer, and what of it is read.
pub struct UpperLayer<'a> {
    pub directory: BorrowedFd<'a>,
    pub ids: SessionIds,
    pub exclusions: &'a LayerExclusions,
    /// Bytes of all files together.
    pub most_bytes: u64,
    /// Asked before each name; its refusal ends the reading.
    pub proceed: &'a dyn Fn() -> Result<(), Refusal>,
}

impl UpperLayer<'_> {
    /// What the layer holds, and which of it looks like a secret. Costs a look at each name, and a read of each file of at
    /// most `MAX_SEARCHED_BYTES`.
    ///
    /// Errors: `commit.layer-size`, `commit.layer-entries`, `commit.layer-deep`, `commit.layer-redirected`.
    pub fn survey(&self) -> Result<LayerSurvey, ImageError> {
        let mut walk = UpperWalk::new(self, None);
        walk.run()?;
        Ok(walk.survey)
    }

    /// Writes the layer as an uncompressed archive, names in the order of their bytes; the same layer gives the same bytes.
    /// Costs a read of all files; memory for the names of one directory on each level.
    ///
    /// Errors: as `survey`; an error of `sink` ends it as a fault.
    pub fn write(&self, sink: &mut dyn Write) -> Result<(), ImageError> {
        let mut walk = UpperWalk::new(self, Some(sink));
        walk.run()
    }
}

struct UpperWalk<'a, 'b> {
    layer: &'a UpperLayer<'a>,
    /// None: it is only looked at.
    sink: Option<&'b mut dyn Write>,
    survey: LayerSurvey,
    /// The first path of each file that has several names.
    first_names: HashMap<(u64, u64), Vec<u8>>,
    names_held: usize,
    /// Names of all directories that were listed.
    listed: u64,
    buffer: Vec<u8>,
}

impl<'a, 'b> UpperWalk<'a, 'b> {
    fn new(layer: &'a UpperLayer<'a>, sink: Option<&'b mut dyn Write>) -> Self {
        let buffer = match &sink {
            Some(_) => PIECE,
            None => usize::try_from(MAX_SEARCHED_BYTES).expect("a MiB"),
        };
        Self {
            layer,
            sink,
            survey: LayerSurvey::default(),
            first_names: HashMap::new(),
            names_held: 0,
            listed: 0,
            buffer: vec![0; buffer],
        }
    }

    fn run(&mut self) -> Result<(), ImageError> {
        let root = self.layer.directory;
        let stat = rustix::fs::fstat(root).doing(|| "look at a session's layer".into())?;
        self.directory(b"./", root, stat)?;
        let root =
            rustix::io::fcntl_dupfd_cloexec(root, 3).doing(|| "keep a directory open".into())?;
        let mut levels = vec![list(root, &mut self.listed)?];
        let mut path: Vec<Vec<u8>> = Vec::new();
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.names.next() else {
                levels.pop();
                path.pop();
                continue;
            };
            (self.layer.proceed)()?;
            path.push(name);
            match self.entry(level.directory.as_fd(), &path)? {
                Some(directory) if path.len() <= MAX_LAYER_DEPTH => {
                    levels.push(list(directory, &mut self.listed)?);
                }
                Some(_) => return Err(refusals::commit_layer_deep(MAX_LAYER_DEPTH).into()),
                None => {
                    path.pop();
                }
            }
        }
        match &mut self.sink {
            Some(sink) => sink.write_all(&END_OF_ARCHIVE).doing(sending),
            None => Ok(()),
        }
    }

    /// Takes what stands at the end of `path`; gives it open where it is a directory.
    fn entry(
        &mut self,
        parent: BorrowedFd<'_>,
        path: &[Vec<u8>],
    ) -> Result<Option<OwnedFd>, ImageError> {
        let name = path.last().expect("the walk has just pushed it");
        let full = path.join(&b'/');
        if self
            .layer
            .exclusions
            .covers(&String::from_utf8_lossy(&full))
        {
            return Ok(None);
        }
        let stat = rustix::fs::statat(parent, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW);
        if self.is_looked_at() && is_gone(&stat) {
            return Ok(None);
        }
        let mut stat = stat.doing(|| format!("look at {}", shown(&full)))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::CharacterDevice && stat.st_rdev == 0 {
            self.survey.removed += 1;
            self.whiteout(name, &path[..path.len() - 1])?;
            return Ok(None);
        }
        let is_kept = matches!(
            kind,
            FileType::Directory | FileType::RegularFile | FileType::Symlink | FileType::Fifo
        );
        // Such a name would be read as a whiteout.
        if !is_kept || name.starts_with(b".wh.") {
            self.survey.skipped += 1;
            return Ok(None);
        }
        self.survey.entries += 1;
        if self.survey.entries > MAX_LAYER_ENTRIES {
            return Err(refusals::commit_layer_entries(MAX_LAYER_ENTRIES).into());
        }
        if kind == FileType::Directory {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let directory = rustix::fs::openat(parent, name.as_slice(), flags, Mode::empty());
            if self.is_looked_at() && is_gone(&directory) {
                return Ok(None);
            }
            let directory = directory.doing(|| format!("open {}", shown(&full)))?;
            self.directory(&full, directory.as_fd(), stat)?;
            return Ok(Some(directory));
        }
        if stat.st_nlink > 1 && self.is_another_name(&stat, &full)? {
            return Ok(None);
        }
        self.own(&mut stat);
        match kind {
            FileType::RegularFile => self.file(parent, name, &full, &stat)?,
            FileType::Symlink => {
                if self.is_looked_at() {
                    return Ok(None);
                }
                let target = rustix::fs::readlinkat(parent, name.as_slice(), Vec::new())
                    .doing(|| format!("read the link {}", shown(&full)))?
                    .into_bytes();
                self.head(&full, EntryType::Symlink, &target, Some(&stat), Vec::new())?;
            }
            _ => self.head(&full, EntryType::Fifo, b"", Some(&stat), Vec::new())?,
        }
        Ok(None)
    }

    /// Whether nothing is written. Then the session may run, and what it removes meanwhile is no fault.
    fn is_looked_at(&self) -> bool {
        self.sink.is_none()
    }

    /// Gives what the machine's ids own to the image's.
    fn own(&self, stat: &mut Stat) {
        stat.st_uid = self.layer.ids.user(stat.st_uid);
        stat.st_gid = self.layer.ids.group(stat.st_gid);
    }

    fn whiteout(&mut self, name: &[u8], above: &[Vec<u8>]) -> Result<(), ImageError> {
        let mut whiteout = above.join(&b'/');
        if !whiteout.is_empty() {
            whiteout.push(b'/');
        }
        whiteout.extend_from_slice(b".wh.");
        whiteout.extend_from_slice(name);
        self.head(&whiteout, EntryType::Regular, b"", None, Vec::new())
    }

    /// Whether a file with several names was written under another one; then this one is a link to it.
    fn is_another_name(&mut self, stat: &Stat, full: &[u8]) -> Result<bool, ImageError> {
        let file = (stat.st_dev, stat.st_ino);
        if let Some(first) = self.first_names.get(&file).cloned() {
            self.head(full, EntryType::Link, &first, None, Vec::new())?;
            return Ok(true);
        }
        if self.names_held + full.len() <= MAX_NAME_BYTES {
            self.names_held += full.len();
            self.first_names.insert(file, full.to_vec());
        }
        Ok(false)
    }

    fn directory(
        &mut self,
        name: &[u8],
        directory: BorrowedFd<'_>,
        mut stat: Stat,
    ) -> Result<(), ImageError> {
        refuse_redirected(directory, name)?;
        self.own(&mut stat);
        let records = self.records(directory)?;
        self.head(name, EntryType::Directory, b"", Some(&stat), records)?;
        // The root of an upper directory hides nothing by itself.
        if name == b"./" || !lower::is_opaque(directory) {
            return Ok(());
        }
        let marker = [name, b"/.wh..wh..opq"].concat();
        self.head(&marker, EntryType::Regular, b"", None, Vec::new())
    }

    fn file(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        full: &[u8],
        stat: &Stat,
    ) -> Result<(), ImageError> {
        let reading = || format!("read {}", shown(full));
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        self.survey.bytes = self.survey.bytes.saturating_add(size);
        if self.survey.bytes > self.layer.most_bytes {
            return Err(refusals::commit_layer_size(self.layer.most_bytes >> 20).into());
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(parent, name, flags, Mode::empty());
        if self.is_looked_at() && is_gone(&opened) {
            return Ok(());
        }
        let opened = opened.doing(reading)?;
        refuse_redirected(opened.as_fd(), full)?;
        let mut records = self.records(opened.as_fd())?;
        let file = File::from(opened);
        let Some(sink) = &mut self.sink else {
            return self.search(&file, full, size).doing(reading);
        };
        let is_sparse = u64::try_from(stat.st_blocks)
            .unwrap_or(0)
            .saturating_mul(512)
            < size;
        let stretches = match is_sparse {
            true => stretches(&file, size).doing(reading)?,
            false => vec![(0, size)],
        };
        if is_sparse {
            let map: Vec<String> = match stretches.is_empty() {
                true => vec!["0,0".into()],
                false => stretches
                    .iter()
                    .map(|(at, length)| format!("{at},{length}"))
                    .collect(),
            };
            let length = size.to_string().into_bytes();
            records.push((b"GNU.sparse.size".to_vec(), length));
            records.push((b"GNU.sparse.map".to_vec(), map.join(",").into_bytes()));
        }
        let stored: u64 = stretches.iter().map(|(_, length)| length).sum();
        write_head(
            &mut **sink,
            &MemberHead {
                name: full,
                kind: EntryType::Regular,
                link: b"",
                stored,
                stat: Some(stat),
                records,
            },
        )?;
        for (mut at, length) in stretches {
            let end = at + length;
            while at < end {
                let want = PIECE.min(usize::try_from(end - at).unwrap_or(PIECE));
                let piece = &mut self.buffer[..want];
                file.read_exact_at(piece, at).doing(reading)?;
                sink.write_all(piece).doing(sending)?;
                at += want as u64;
            }
        }
        write_padding(&mut **sink, stored)
    }

    /// Notes a file that looks like it holds a secret.
    fn search(&mut self, file: &File, full: &[u8], size: u64) -> io::Result<()> {
        let path = String::from_utf8_lossy(full);
        let mut kind = secret_by_name(&path);
        if kind.is_none() && (1..=MAX_SEARCHED_BYTES).contains(&size) {
            let length = usize::try_from(size).unwrap_or(0);
            let text = &mut self.buffer[..length];
            kind = match file.read_exact_at(text, 0) {
                Ok(()) => secret_by_content(text),
                // It became shorter, a pipe or a directory, while the session runs.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::SPIPE | Errno::ISDIR) => None,
                    _ => return Err(error),
                },
            };
        }
        if let Some(kind) = kind.filter(|_| size > 0) {
            self.survey.note(format!("/{path}"), kind);
        }
        Ok(())
    }

    /// The attributes that a layer may carry, with the ids of the image in them.
    fn records(&self, file: BorrowedFd<'_>) -> Result<Vec<PaxRecord>, ImageError> {
        if self.sink.is_none() {
            return Ok(Vec::new());
        }
        let mut records = attributes(file)?;
        for (key, value) in &mut records {
            match key.as_slice() {
                b"SCHILY.xattr.security.capability" => {
                    *value = capability_inside(value, self.layer.ids);
                }
                b"SCHILY.xattr.system.posix_acl_access"
                | b"SCHILY.xattr.system.posix_acl_default" => acl_inside(value, self.layer.ids),
                _ => {}
            }
        }
        Ok(records)
    }

    fn head(
        &mut self,
        name: &[u8],
        kind: EntryType,
        link: &[u8],
        stat: Option<&Stat>,
        records: Vec<PaxRecord>,
    ) -> Result<(), ImageError> {
        match &mut self.sink {
            None => Ok(()),
            Some(sink) => write_head(
                &mut **sink,
                &MemberHead {
                    name,
                    kind,
                    link,
                    stored: 0,
                    stat,
                    records,
                },
            ),
        }
    }
}

/// The names of a directory in the order of their bytes, counted with those listed before; refuses more than a layer takes
/// before they fill the memory.
fn list(directory: OwnedFd, listed: &mut u64) -> Result<DirectoryLevel, ImageError> {
    let doing = || "list a directory of a session".to_owned();
    let mut names = Vec::new();
    for entry in Dir::read_from(&directory).doing(doing)? {
        let name = entry.doing(doing)?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
            *listed += 1;
        }
        if *listed > MAX_LAYER_ENTRIES {
            return Err(refusals::commit_layer_entries(MAX_LAYER_ENTRIES).into());
        }
    }
    names.sort_unstable();
    Ok(DirectoryLevel {
        directory,
        names: names.into_iter(),
    })
}

/// Whether a name stands for nothing any more, or for another kind of thing than a moment ago.
fn is_gone<T>(opened: &Result<T, Errno>) -> bool {
    let error = opened.as_ref().err();
    error.is_some_and(|error| {
        matches!(
            *error,
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO
        )
    })
}

fn refuse_redirected(file: BorrowedFd<'_>, name: &[u8]) -> Result<(), ImageError> {
    let mut all = REDIRECTIONS.iter();
    match all.any(|attribute| rustix::fs::fgetxattr_query(file, *attribute).is_ok()) {
        true => Err(refusals::commit_layer_redirected(format!("/{}", shown(name))).into()),
        false => Ok(()),
    }
}

/// Where a file with holes has bytes, as (offset, length) in order.
fn stretches(file: &File, size: u64) -> io::Result<Vec<(u64, u64)>> {
    let mut stretches: Vec<(u64, u64)> = Vec::new();
    let mut at = 0;
    while at < size {
        let from = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(from) if from < size => from,
            // Nothing but a hole is left.
            Ok(_) | Err(Errno::NXIO) => break,
            // The file system does not tell.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(vec![(0, size)]),
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(from))?.min(size);
        if stretches.len() == MAX_STRETCHES - 1 {
            // The last stretch reaches to the end, with what holes are left.
            stretches.push((from, size - from));
            break;
        }
        stretches.push((from, end - from));
        at = end;
    }
    Ok(stretches)
}

/// A file capability as an image has it: one of the session's own root is one of root.
///
/// Rule: linux/capability.h, `vfs_ns_cap_data`.
fn capability_inside(value: &[u8], ids: SessionIds) -> Vec<u8> {
    const REVISION: u32 = 0xff00_0000;
    const REVISION_2: u32 = 0x0200_0000;
    const REVISION_3: u32 = 0x0300_0000;
    const LENGTH_2: usize = 20;
    let number = |at: usize| {
        let bytes = value.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let (Some(magic), Some(root)) = (number(0), number(LENGTH_2)) else {
        return value.to_vec();
    };
    if magic & REVISION != REVISION_3 {
        return value.to_vec();
    }
    let mut inside = value.to_vec();
    match ids.user(root) {
        0 => {
            inside.truncate(LENGTH_2);
            inside[..4].copy_from_slice(&((magic & !REVISION) | REVISION_2).to_le_bytes());
        }
        root => inside[LENGTH_2..LENGTH_2 + 4].copy_from_slice(&root.to_le_bytes()),
    }
    inside
}

/// Changes the ids of an access list.
///
/// Rule: linux/posix_acl_xattr.h, version 2.
fn acl_inside(value: &mut [u8], ids: SessionIds) {
    const HEADER: usize = 4;
    const ENTRY: usize = 8;
    const USER: u16 = 0x02;
    const GROUP: u16 = 0x08;
    let Some(entries) = value.get_mut(HEADER..) else {
        return;
    };
    for entry in entries.chunks_exact_mut(ENTRY) {
        let tag = u16::from_le_bytes([entry[0], entry[1]]);
        if tag == USER || tag == GROUP {
            let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
            let inside = match tag {
                USER => ids.user(id),
                _ => ids.group(id),
            };
            entry[4..].copy_from_slice(&inside.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests;
