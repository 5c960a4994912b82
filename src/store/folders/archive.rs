//! Directories and files of a folder as one stream, zip or tar, made while it is read: the caller asks for piece after piece,
//! and between two of them nothing runs. Files are stored as they are; links are kept as links and never followed. What cannot be read, or
//! changes meanwhile, is named in a file at the end.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use flate2::Crc;
use rules::folder_path::FolderPath;
use rules::refusals;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use tar::{EntryType, Header};
use zstd::stream::write::Encoder;

use super::beneath::FolderTop;
use super::failure::{FolderError, failed, fault, unlinked};
use super::files;

/// Bytes of one piece, about.
const PIECE: usize = 256 << 10;
/// Directories of one archive that are open at once. Higher: a deep tree takes descriptors from the whole server. Lower: what
/// lies deeper is left out of more archives.
const MAX_LEVELS: usize = 64;
/// Files and directories of one zip, whose list of contents lies in memory until its end.
pub const MAX_ZIPPED: usize = 110_000;
/// Bytes of all their paths. Higher: more memory for each zip. Lower: deep trees are taken as tar.
const MAX_ZIP_NAME_BYTES: usize = 16 << 20;
/// Lines of the file at the end that names what is wrong.
const MAX_NOTES: usize = 200;
/// What that file is called.
const NOTES: &str = "ERRORS.txt";
/// What makes a program that a session wrote one of root, where root unpacks an archive: it is left out.
const PRIVILEGED: u32 = 0o6000;
/// Tar goes by blocks.
const BLOCK: usize = 512;
/// How hard a packed archive is worked on. Higher: the stream waits for the processor. Lower: it is larger.
const PACKING_LEVEL: i32 = 3;
/// What does not fit into four bytes has eight elsewhere.
const FOUR_BYTES: u64 = 0xffff_ffff;

/// The form of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchiveFormat {
    Zip,
    Tar,
    /// A tar, packed by zstd.
    TarZst,
}

/// An archive that is being made.
pub struct FolderArchive {
    top: FolderTop,
    /// What comes behind the tree that is walked, each with its name in the archive.
    waiting: VecDeque<(FolderPath, String)>,
    walk: ArchiveWalk,
    /// None where the archive is not packed, or is over.
    packer: Option<Encoder<'static, Vec<u8>>>,
    writer: ArchiveWriter,
    /// The file whose contents are being written.
    current: Option<CurrentFile>,
    notes: Vec<String>,
    stage: ArchiveStage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArchiveStage {
    Contents,
    Notes,
    End,
    Over,
}

struct CurrentFile {
    file: File,
    name: Vec<u8>,
    at: u64,
    left: u64,
    /// It was shorter than it was said to be.
    is_cut: bool,
}

impl FolderArchive {
    /// Opens what is to be archived, one path at least; nothing of it is read yet, but of a zip how much it is. `name` is that
    /// of one path alone.
    pub(super) fn open(
        top: FolderTop,
        paths: &[FolderPath],
        name: &str,
        format: ArchiveFormat,
    ) -> Result<Self, FolderError> {
        let mut waiting = named(paths, name);
        let mut room = ZipRoom {
            entries: MAX_ZIPPED,
            bytes: MAX_ZIP_NAME_BYTES,
        };
        for (path, name) in &waiting {
            // One that is not there is refused before the first byte.
            let walk = ArchiveWalk::open(&top, path, name)?;
            if format != ArchiveFormat::Zip {
                continue;
            }
            let fits = walk.fits(&mut room);
            if !fits.map_err(fault("count the files of a folder"))? {
                return Err(refusals::folder_archive_too_many(MAX_ZIPPED).into());
            }
        }
        let (path, first) = waiting.pop_front().unwrap_or_default();
        let walk = ArchiveWalk::open(&top, &path, &first)?;
        let packer = match format {
            ArchiveFormat::Zip | ArchiveFormat::Tar => None,
            ArchiveFormat::TarZst => {
                let packer = Encoder::new(Vec::new(), PACKING_LEVEL);
                Some(packer.map_err(fault("begin a packed archive"))?)
            }
        };
        Ok(Self {
            top,
            waiting,
            walk,
            packer,
            writer: ArchiveWriter::new(format),
            current: None,
            notes: Vec::new(),
            stage: ArchiveStage::Contents,
        })
    }

    /// The next piece; None at the end.
    ///
    /// Errors: what a disk says that cannot be read; then the archive is broken.
    pub fn next_piece(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let piece = self.next_unpacked()?;
            let Some(packer) = &mut self.packer else {
                return Ok(piece);
            };
            let Some(piece) = piece else {
                let rest = self.packer.take().map(Encoder::finish).transpose()?;
                return Ok(rest.filter(|rest| !rest.is_empty()));
            };
            packer.write_all(&piece)?;
            let packed = std::mem::take(packer.get_mut());
            // What packs well comes out later.
            if !packed.is_empty() {
                return Ok(Some(packed));
            }
        }
    }

    fn next_unpacked(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.writer.out = Vec::with_capacity(PIECE + 2 * BLOCK);
        while self.writer.out.len() < PIECE && self.stage != ArchiveStage::Over {
            if self.current.is_some() {
                self.copy();
                continue;
            }
            match self.stage {
                ArchiveStage::Contents => self.enter_next()?,
                ArchiveStage::Notes => {
                    self.write_notes();
                    self.stage = ArchiveStage::End;
                }
                ArchiveStage::End => {
                    self.writer.end();
                    self.stage = ArchiveStage::Over;
                }
                ArchiveStage::Over => {}
            }
        }
        let piece = std::mem::take(&mut self.writer.out);
        Ok((!piece.is_empty()).then_some(piece))
    }

    /// Writes the head of the next file or directory.
    fn enter_next(&mut self) -> io::Result<()> {
        let Some(visited) = self.walk.step()? else {
            self.enter_next_tree();
            return Ok(());
        };
        if self.writer.is_full() {
            return Err(io::Error::other("an archive grew beyond what a zip takes"));
        }
        let name = self.walk.path.clone();
        match visited {
            VisitedEntry::Directory(stat) => {
                let name = [name.as_slice(), b"/"].concat();
                self.writer.whole(&name, EntryType::Directory, b"", &stat);
            }
            VisitedEntry::Link(target, stat) => {
                self.writer.whole(&name, EntryType::Symlink, &target, &stat);
            }
            VisitedEntry::File(file, stat) => {
                let size = u64::try_from(stat.st_size).unwrap_or(0);
                self.writer.begin(&name, size, &stat);
                self.current = Some(CurrentFile {
                    file,
                    name,
                    at: 0,
                    left: size,
                    is_cut: false,
                });
                if size == 0 {
                    self.close();
                }
            }
            VisitedEntry::Skipped(why) => self.note(&name, why),
        }
        Ok(())
    }

    /// Goes on with the next of several trees, or to what stands at the end.
    fn enter_next_tree(&mut self) {
        let Some((path, name)) = self.waiting.pop_front() else {
            self.stage = ArchiveStage::Notes;
            return;
        };
        match ArchiveWalk::open(&self.top, &path, &name) {
            Ok(walk) => self.walk = walk,
            // It was there when the archive was asked for.
            Err(_) => self.note(
                name.as_bytes(),
                "was removed meanwhile, or could not be read",
            ),
        }
    }

    /// Writes more of the file that is open. What it lacks is filled with zeros: its size was said before.
    fn copy(&mut self) {
        let Some(current) = &mut self.current else {
            return;
        };
        let room = PIECE.saturating_sub(self.writer.out.len()).max(BLOCK);
        let want = room.min(usize::try_from(current.left).unwrap_or(room));
        let mut piece = vec![0; want];
        if !current.is_cut {
            match current.file.read_at(&mut piece, current.at) {
                Ok(0) | Err(_) => current.is_cut = true,
                Ok(read) => piece.truncate(read),
            }
        }
        current.at += piece.len() as u64;
        current.left -= piece.len() as u64;
        let is_over = current.left == 0;
        self.writer.content(&piece);
        if is_over {
            self.close();
        }
    }

    fn close(&mut self) {
        let Some(current) = self.current.take() else {
            return;
        };
        self.writer.close();
        if current.is_cut {
            self.note(
                &current.name,
                "became shorter, or could not be read to its end",
            );
        }
    }

    fn note(&mut self, name: &[u8], why: &str) {
        match self.notes.len() {
            MAX_NOTES => self.notes.push("…\n".to_owned()),
            known if known < MAX_NOTES => {
                let name = String::from_utf8_lossy(name);
                self.notes.push(format!("{name}: {why}\n"));
            }
            _ => {}
        }
    }

    fn write_notes(&mut self) {
        if self.notes.is_empty() {
            return;
        }
        let text = self.notes.concat();
        self.writer.text(NOTES.as_bytes(), text.as_bytes());
    }
}

/// Each path with its name in the archive. One alone has `name`; several have what their paths are below the directory that
/// holds them all. What lies in another one of them comes with that. O(paths²).
fn named(paths: &[FolderPath], name: &str) -> VecDeque<(FolderPath, String)> {
    let is_outer = |path: &&FolderPath| {
        let mut others = paths.iter().filter(|other| *other != *path);
        !others.any(|other| path.is_at_or_below(other))
    };
    let outer: BTreeSet<&FolderPath> = paths.iter().filter(is_outer).collect();
    if outer.len() < 2 {
        let one = outer
            .into_iter()
            .map(|path| (path.clone(), name.to_owned()));
        return one.collect();
    }
    let mut above = outer.first().map(|path| path.parent()).unwrap_or_default();
    for path in &outer {
        while !path.parent().is_at_or_below(&above) {
            above = above.parent();
        }
    }
    let skipped = match above.is_top() {
        true => 0,
        false => above.as_bytes().len() + 1,
    };
    let own = |path: &FolderPath| String::from_utf8_lossy(&path.as_bytes()[skipped..]).into_owned();
    let all = outer.into_iter().map(|path| (path.clone(), own(path)));
    all.collect()
}

/// How much more a zip takes.
struct ZipRoom {
    entries: usize,
    /// Of paths.
    bytes: usize,
}

impl ZipRoom {
    /// Counts one entry with a path of so many bytes; false where there is no room for it.
    fn take(&mut self, bytes: usize) -> bool {
        match (self.entries.checked_sub(1), self.bytes.checked_sub(bytes)) {
            (Some(entries), Some(bytes)) => {
                *self = Self { entries, bytes };
                true
            }
            _ => false,
        }
    }
}

/// What a step of a walk came to.
enum VisitedEntry {
    Directory(Stat),
    File(File, Stat),
    Link(Vec<u8>, Stat),
    /// It is not in the archive, and why.
    Skipped(&'static str),
}

/// Goes through a tree, a directory before what it holds.
struct ArchiveWalk {
    /// The directories that are open, from the top on, each with the bytes of its path.
    levels: Vec<(Dir, usize)>,
    /// The path of what was visited last, in the archive.
    path: Vec<u8>,
    /// What is visited first.
    first: Option<VisitedEntry>,
    /// The directory to go down into.
    down: Option<OwnedFd>,
    device: u64,
}

impl ArchiveWalk {
    fn open(top: &FolderTop, path: &FolderPath, name: &str) -> Result<Self, FolderError> {
        let doing = "open a directory of a folder";
        let mut walk = Self {
            levels: Vec::new(),
            path: name.as_bytes().to_vec(),
            first: None,
            down: None,
            device: 0,
        };
        match top.directory(path) {
            Ok(directory) => {
                let stat = rustix::fs::fstat(&directory).map_err(failed(doing, path))?;
                walk.device = stat.st_dev;
                walk.first = Some(VisitedEntry::Directory(stat));
                walk.down = Some(directory);
            }
            // What is no directory may be put into an archive, too.
            Err(_) if !path.is_top() => {
                let parent = top.directory(&path.parent())?;
                let seen = rustix::fs::statat(&parent, path.name(), AtFlags::SYMLINK_NOFOLLOW);
                let seen = seen.map_err(failed(doing, path))?;
                walk.device = seen.st_dev;
                walk.first = Some(match FileType::from_raw_mode(seen.st_mode) {
                    FileType::Symlink => {
                        let target = rustix::fs::readlinkat(&parent, path.name(), Vec::new());
                        let target = target.map_err(unlinked).map_err(failed(doing, path))?;
                        VisitedEntry::Link(target.into_bytes(), seen)
                    }
                    FileType::RegularFile | FileType::Directory => {
                        let file = files::open(top, path)?.file;
                        let stat = rustix::fs::fstat(&file).map_err(failed(doing, path))?;
                        walk.device = stat.st_dev;
                        VisitedEntry::File(file, stat)
                    }
                    _ => VisitedEntry::Skipped("is no file, directory or link"),
                });
            }
            Err(error) => return Err(error),
        }
        Ok(walk)
    }

    /// Visits the next entry, whose path is in `path` then; None at the end.
    fn step(&mut self) -> io::Result<Option<VisitedEntry>> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        if let Some(directory) = self.down.take() {
            self.levels.push((Dir::new(directory)?, self.path.len()));
        }
        loop {
            let Some((directory, length)) = self.levels.last_mut() else {
                return Ok(None);
            };
            let entry = match directory.read() {
                Some(entry) => entry?,
                None => {
                    self.levels.pop();
                    continue;
                }
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            self.path.truncate(*length);
            self.path.push(b'/');
            self.path.extend_from_slice(name.to_bytes());
            let name: CString = name.to_owned();
            return self.visit(&name);
        }
    }

    fn visit(&mut self, name: &CString) -> io::Result<Option<VisitedEntry>> {
        let depth = self.levels.len();
        let Some((directory, _)) = self.levels.last() else {
            return Ok(None);
        };
        let here = directory.fd()?;
        let name = name.as_c_str();
        let unread = Ok(Some(VisitedEntry::Skipped("could not be read")));
        let stat = match rustix::fs::statat(here, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // It is gone since it was listed.
            Err(Errno::NOENT) => return Ok(Some(VisitedEntry::Skipped("was removed meanwhile"))),
            Err(_) => return unread,
        };
        let common = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory if depth >= MAX_LEVELS => {
                Ok(Some(VisitedEntry::Skipped("lies too deep")))
            }
            FileType::Directory => {
                let flags = common | OFlags::DIRECTORY;
                let opened = rustix::fs::openat(here, name, flags, Mode::empty());
                let Ok(opened) = opened else {
                    return unread;
                };
                let stat = rustix::fs::fstat(&opened)?;
                if stat.st_dev != self.device {
                    return Ok(Some(VisitedEntry::Skipped("is another file system")));
                }
                self.down = Some(opened);
                Ok(Some(VisitedEntry::Directory(stat)))
            }
            FileType::RegularFile => {
                let flags = common | OFlags::NONBLOCK | OFlags::NOCTTY;
                let opened = rustix::fs::openat(here, name, flags, Mode::empty());
                let Ok(opened) = opened else {
                    return unread;
                };
                let stat = rustix::fs::fstat(&opened)?;
                let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
                match is_file && stat.st_dev == self.device {
                    true => Ok(Some(VisitedEntry::File(opened.into(), stat))),
                    false => unread,
                }
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(here, name, Vec::new());
                let Ok(target) = target else {
                    return unread;
                };
                Ok(Some(VisitedEntry::Link(target.into_bytes(), stat)))
            }
            _ => Ok(Some(VisitedEntry::Skipped("is no file, directory or link"))),
        }
    }

    /// Whether there is room for all entries, and the bytes of their paths, which are counted. Opens directories alone.
    fn fits(mut self, room: &mut ZipRoom) -> io::Result<bool> {
        let named = self.path.len();
        if !room.take(named) {
            return Ok(false);
        }
        let Some(directory) = self.down.take() else {
            return Ok(true);
        };
        // Each with the bytes of its path.
        let mut levels = vec![(Dir::new(directory)?, named)];
        loop {
            let depth = levels.len();
            let Some((directory, above)) = levels.last_mut() else {
                return Ok(true);
            };
            let Some(entry) = directory.read() else {
                levels.pop();
                continue;
            };
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let length = *above + 1 + name.to_bytes().len();
            if !room.take(length) {
                return Ok(false);
            }
            let is_leaf = !matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
            if is_leaf || depth >= MAX_LEVELS {
                continue;
            }
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::DIRECTORY;
            let below = rustix::fs::openat(directory.fd()?, name, flags, Mode::empty());
            // What is no directory, or cannot be read, holds nothing to count.
            if let Ok(below) = below
                && rustix::fs::fstat(&below)?.st_dev == self.device
            {
                levels.push((Dir::new(below)?, length));
            }
        }
    }
}

/// Writes heads, contents and ends in the form of an archive, into memory.
struct ArchiveWriter {
    format: ArchiveFormat,
    out: Vec<u8>,
    /// Bytes that were given away before `out`, and are in it.
    written: u64,
    /// What the list at the end of a zip says, and the bytes of the names in it.
    records: Vec<ZipRecord>,
    named: usize,
    crc: Crc,
    /// Bytes of the contents that are open.
    size: u64,
}

/// One entry of the list at the end of a zip.
struct ZipRecord {
    name: Vec<u8>,
    crc: u32,
    size: u64,
    offset: u64,
    mode: u32,
    modified: i64,
    /// Its checksum stands behind it.
    is_streamed: bool,
}

impl ArchiveWriter {
    fn new(format: ArchiveFormat) -> Self {
        Self {
            format,
            out: Vec::new(),
            written: 0,
            records: Vec::new(),
            named: 0,
            crc: Crc::new(),
            size: 0,
        }
    }

    /// Whether a zip has more entries than were counted before, by far.
    fn is_full(&self) -> bool {
        self.records.len() > 2 * MAX_ZIPPED || self.named > 2 * MAX_ZIP_NAME_BYTES
    }

    fn list(&mut self, record: ZipRecord) {
        self.named += record.name.len();
        self.records.push(record);
    }

    fn put(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
        self.written += bytes.len() as u64;
    }

    /// A directory, or a link to `target`.
    fn whole(&mut self, name: &[u8], kind: EntryType, target: &[u8], stat: &Stat) {
        match self.format {
            ArchiveFormat::Tar | ArchiveFormat::TarZst => {
                self.tar_head(name, kind, target, 0, &TarOwner::of(stat))
            }
            ArchiveFormat::Zip => {
                self.zip_whole(name, target, stat.st_mode & !PRIVILEGED, stat.st_mtime);
            }
        }
    }

    /// A file of ours.
    fn text(&mut self, name: &[u8], text: &[u8]) {
        match self.format {
            ArchiveFormat::Tar | ArchiveFormat::TarZst => {
                let size = text.len() as u64;
                self.tar_head(name, EntryType::Regular, b"", size, &TarOwner::default());
                self.put(text);
                self.tar_pad(size);
            }
            ArchiveFormat::Zip => self.zip_whole(name, text, 0o100_644, 0),
        }
    }

    /// The head of a file whose `size` bytes come by `content`.
    fn begin(&mut self, name: &[u8], size: u64, stat: &Stat) {
        self.size = size;
        match self.format {
            ArchiveFormat::Tar | ArchiveFormat::TarZst => {
                self.tar_head(name, EntryType::Regular, b"", size, &TarOwner::of(stat));
            }
            ArchiveFormat::Zip => {
                self.crc = Crc::new();
                let record = ZipRecord {
                    name: name.to_vec(),
                    crc: 0,
                    size,
                    offset: self.written,
                    mode: stat.st_mode & !PRIVILEGED,
                    modified: stat.st_mtime,
                    is_streamed: true,
                };
                self.zip_head(&record);
                self.list(record);
            }
        }
    }

    fn content(&mut self, bytes: &[u8]) {
        if self.format == ArchiveFormat::Zip {
            self.crc.update(bytes);
        }
        self.put(bytes);
    }

    /// What stands behind the contents of a file.
    fn close(&mut self) {
        match self.format {
            ArchiveFormat::Tar | ArchiveFormat::TarZst => self.tar_pad(self.size),
            ArchiveFormat::Zip => {
                let crc = self.crc.sum();
                let Some(record) = self.records.last_mut() else {
                    return;
                };
                record.crc = crc;
                let size = record.size;
                let mut tail = 0x0807_4b50_u32.to_le_bytes().to_vec();
                tail.extend(crc.to_le_bytes());
                for _ in ["stored", "whole"] {
                    match is_long(size) {
                        true => tail.extend(size.to_le_bytes()),
                        false => tail.extend(short(size).to_le_bytes()),
                    }
                }
                self.put(&tail);
            }
        }
    }

    fn end(&mut self) {
        match self.format {
            ArchiveFormat::Tar | ArchiveFormat::TarZst => self.put(&[0; 2 * BLOCK]),
            ArchiveFormat::Zip => self.zip_end(),
        }
    }

    /// One head; before it, names that do not fit into it.
    fn tar_head(
        &mut self,
        name: &[u8],
        kind: EntryType,
        target: &[u8],
        size: u64,
        owner: &TarOwner,
    ) {
        /// Bytes of a name in a head.
        const NAME: usize = 100;
        for (text, kind) in [
            (name, EntryType::GNULongName),
            (target, EntryType::GNULongLink),
        ] {
            if text.len() <= NAME {
                continue;
            }
            let mut long = Header::new_gnu();
            long.as_mut_bytes()[..13].copy_from_slice(b"././@LongLink");
            long.set_entry_type(kind);
            long.set_size(text.len() as u64 + 1);
            long.set_mode(0o644);
            long.set_cksum();
            self.put(long.as_bytes());
            self.put(text);
            self.put(&[0]);
            self.tar_pad(text.len() as u64 + 1);
        }
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_mode(owner.mode);
        header.set_uid(owner.user);
        header.set_gid(owner.group);
        header.set_mtime(owner.modified);
        let raw = header.as_mut_bytes();
        for (text, field) in [(name, 0), (target, 157)] {
            let text = &text[..text.len().min(NAME)];
            raw[field..field + text.len()].copy_from_slice(text);
        }
        header.set_cksum();
        self.put(header.as_bytes());
    }

    fn tar_pad(&mut self, size: u64) {
        let block = BLOCK as u64;
        let padding = usize::try_from((block - size % block) % block).unwrap_or(0);
        self.put(&[0; BLOCK][..padding]);
    }

    /// An entry whose contents are known at once.
    fn zip_whole(&mut self, name: &[u8], contents: &[u8], mode: u32, modified: i64) {
        let mut crc = Crc::new();
        crc.update(contents);
        let record = ZipRecord {
            name: name.to_vec(),
            crc: crc.sum(),
            size: contents.len() as u64,
            offset: self.written,
            mode,
            modified,
            is_streamed: false,
        };
        self.zip_head(&record);
        self.put(contents);
        self.list(record);
    }

    fn zip_head(&mut self, record: &ZipRecord) {
        let mut head = 0x0403_4b50_u32.to_le_bytes().to_vec();
        head.extend(record.common());
        let mut extra = Vec::new();
        if is_long(record.size) {
            extra.extend(extra_field(1, &[record.size, record.size]));
        }
        head.extend(length(&record.name));
        head.extend(length(&extra));
        head.extend_from_slice(&record.name);
        head.extend(extra);
        self.put(&head);
    }

    fn zip_end(&mut self) {
        let begin = self.written;
        let records = std::mem::take(&mut self.records);
        for record in &records {
            let mut extra = Vec::new();
            let mut long = Vec::new();
            if is_long(record.size) {
                long.extend([record.size, record.size]);
            }
            if is_long(record.offset) {
                long.push(record.offset);
            }
            if !long.is_empty() {
                extra.extend(extra_field(1, &long));
            }
            let mut entry = 0x0201_4b50_u32.to_le_bytes().to_vec();
            // Made on Unix, whose modes are kept.
            entry.extend([45, 3]);
            entry.extend(record.common());
            entry.extend(length(&record.name));
            entry.extend(length(&extra));
            // No comment, the first disk, no sort of contents.
            entry.extend([0; 6]);
            let is_directory = record.name.ends_with(b"/");
            let attributes = (record.mode << 16) | if is_directory { 0x10 } else { 0 };
            entry.extend(attributes.to_le_bytes());
            entry.extend(short(record.offset).to_le_bytes());
            entry.extend_from_slice(&record.name);
            entry.extend(extra);
            self.put(&entry);
        }
        let (count, size) = (records.len() as u64, self.written - begin);
        let few = u16::try_from(count).ok().filter(|count| *count != 0xffff);
        if few.is_none() || is_long(begin) || is_long(size) {
            let at = self.written;
            let mut long = 0x0606_4b50_u32.to_le_bytes().to_vec();
            long.extend(44_u64.to_le_bytes());
            long.extend([45, 3, 45, 0]);
            long.extend([0; 8]);
            for number in [count, count, size, begin] {
                long.extend(number.to_le_bytes());
            }
            long.extend(0x0706_4b50_u32.to_le_bytes());
            long.extend([0; 4]);
            long.extend(at.to_le_bytes());
            long.extend(1_u32.to_le_bytes());
            self.put(&long);
        }
        let few = few.unwrap_or(0xffff).to_le_bytes();
        let mut end = 0x0605_4b50_u32.to_le_bytes().to_vec();
        end.extend([0; 4]);
        end.extend(few);
        end.extend(few);
        end.extend(short(size).to_le_bytes());
        end.extend(short(begin).to_le_bytes());
        end.extend([0; 2]);
        self.put(&end);
    }
}

impl ZipRecord {
    /// What stands in the head of an entry and in the list at the end alike.
    fn common(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(22);
        all.extend([45, 0]);
        let is_text = std::str::from_utf8(&self.name).is_ok();
        let flags = (u16::from(self.is_streamed) << 3) | (u16::from(is_text) << 11);
        all.extend(flags.to_le_bytes());
        // Stored, not compressed.
        all.extend([0; 2]);
        let (time, date) = dos_time(self.modified);
        all.extend(time.to_le_bytes());
        all.extend(date.to_le_bytes());
        all.extend(self.crc.to_le_bytes());
        all.extend(short(self.size).to_le_bytes());
        all.extend(short(self.size).to_le_bytes());
        all
    }
}

/// Whose a member of a tar is, and when it was changed.
#[derive(Default)]
struct TarOwner {
    mode: u32,
    user: u64,
    group: u64,
    modified: u64,
}

impl TarOwner {
    fn of(stat: &Stat) -> Self {
        Self {
            mode: stat.st_mode & 0o7777 & !PRIVILEGED,
            user: stat.st_uid.into(),
            group: stat.st_gid.into(),
            modified: u64::try_from(stat.st_mtime).unwrap_or(0),
        }
    }
}

fn is_long(number: u64) -> bool {
    number >= FOUR_BYTES
}

/// Four bytes of a number; all ones where it stands elsewhere.
fn short(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The length of a field, in two bytes: of names and of what we add.
fn length(field: &[u8]) -> [u8; 2] {
    u16::try_from(field.len()).unwrap_or(u16::MAX).to_le_bytes()
}

fn extra_field(kind: u16, numbers: &[u64]) -> Vec<u8> {
    let mut field = kind.to_le_bytes().to_vec();
    let bytes: Vec<u8> = numbers.iter().flat_map(|one| one.to_le_bytes()).collect();
    field.extend(length(&bytes));
    field.extend(bytes);
    field
}

/// Time and date as a zip has them, in UTC; those before 1980 and after 2107 become the first and the last.
fn dos_time(seconds: i64) -> (u16, u16) {
    /// 1980-01-01 and 2107-12-31T23:59:58, in seconds since 1970.
    const FIRST: i64 = 315_532_800;
    const LAST: i64 = 4_354_819_198;
    let seconds = seconds.clamp(FIRST, LAST);
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days of a calendar whose years begin in March, so that a leap day is the last one. Rule: Howard Hinnant,
    // "chrono-compatible low-level date algorithms", civil_from_days.
    let since = days + 719_468;
    let (era, day_of_era) = (since.div_euclid(146_097), since.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hours, minutes, twos) = (rest / 3600, rest / 60 % 60, rest % 60 / 2);
    let fit = |number: i64| u16::try_from(number).unwrap_or(0);
    let time = fit((hours << 11) | (minutes << 5) | twos);
    let date = fit(((year - 1980) << 9) | (month << 5) | day);
    (time, date)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use rules::names::FolderId;
    use uuid::Uuid;

    use super::*;
    use crate::folders::{FolderStore, mounted_directory};

    const ID: FolderId = FolderId(Uuid::from_u128(0xab));

    fn opened() -> (tempfile::TempDir, FolderStore, PathBuf) {
        let data = tempfile::tempdir().expect("a directory");
        let store = FolderStore::open(data.path()).expect("a store");
        store.create(ID, false, None).expect("made");
        let place = mounted_directory(data.path(), ID);
        (data, store, place)
    }

    fn whole(store: &FolderStore, path: &str, format: ArchiveFormat) -> Vec<u8> {
        let path = FolderPath::parse(path).expect("a path");
        several(store, &[path], format)
    }

    fn several(store: &FolderStore, paths: &[FolderPath], format: ArchiveFormat) -> Vec<u8> {
        let mut archive = store
            .archive(ID, paths, "data", format)
            .expect("an archive");
        let mut all = Vec::new();
        while let Some(piece) = archive.next_piece().expect("read") {
            assert!(piece.len() <= 2 * PIECE, "{} bytes at once", piece.len());
            all.extend(piece);
        }
        all
    }

    /// Names of a tar with the contents of files and the targets of links.
    fn members(tar: &[u8]) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        let mut archive = tar::Archive::new(tar);
        for entry in archive.entries().expect("a tar") {
            let mut entry = entry.expect("a member");
            let name = entry.path().expect("a path").display().to_string();
            let target = entry.link_name().expect("a link or none");
            let target = target.map(|target| target.display().to_string());
            let mut text = String::new();
            entry.read_to_string(&mut text).expect("text");
            all.insert(name, target.unwrap_or(text));
        }
        all
    }

    #[test]
    fn a_tar_holds_files_directories_and_links_as_they_are() {
        let (_data, store, place) = opened();
        let long = "n".repeat(200);
        std::fs::create_dir_all(place.join("a/empty")).expect("made");
        std::fs::write(place.join("a/file"), "text").expect("written");
        std::fs::write(place.join(&long), "x".repeat(600_000)).expect("written");
        symlink("/etc/passwd", place.join("link")).expect("a link");
        let all = members(&whole(&store, "", ArchiveFormat::Tar));
        assert_eq!(all["data/a/file"], "text");
        assert_eq!(all["data/link"], "/etc/passwd");
        assert_eq!(all[&format!("data/{long}")].len(), 600_000);
        assert!(all.contains_key("data/a/empty/"), "{:?}", all.keys());
        assert_eq!(all.len(), 6);
        let one = members(&whole(&store, "a/file", ArchiveFormat::Tar));
        assert_eq!(one["data"], "text");
    }

    #[test]
    fn a_zip_lists_what_it_holds() {
        let (_data, store, place) = opened();
        std::fs::create_dir(place.join("a")).expect("made");
        std::fs::write(place.join("a/file"), "text").expect("written");
        std::fs::write(place.join("empty"), "").expect("written");
        let zip = whole(&store, "", ArchiveFormat::Zip);
        let end = &zip[zip.len() - 22..];
        assert_eq!(end[..4], 0x0605_4b50_u32.to_le_bytes());
        assert_eq!(u16::from_le_bytes([end[10], end[11]]), 4);
        let at = u32::from_le_bytes([end[16], end[17], end[18], end[19]]) as usize;
        assert_eq!(zip[at..at + 4], 0x0201_4b50_u32.to_le_bytes());
        let mut crc = Crc::new();
        crc.update(b"text");
        let record = zip[at..]
            .windows(6)
            .position(|six| six == b"a/file")
            .map(|found| at + found - 46 + 16 - 5)
            .expect("listed");
        assert_eq!(zip[record..record + 4], crc.sum().to_le_bytes());
    }

    #[test]
    fn a_zip_has_so_many_entries_and_bytes_of_paths() {
        let (_data, store, place) = opened();
        std::fs::create_dir_all(place.join("a/b")).expect("made");
        std::fs::write(place.join("a/b/file"), "text").expect("written");
        let top = store.top(ID).expect("a top");
        let fits = |entries, bytes| {
            let walk = ArchiveWalk::open(&top, &FolderPath::default(), "data").expect("a walk");
            walk.fits(&mut ZipRoom { entries, bytes }).expect("counted")
        };
        // data, data/a, data/a/b and data/a/b/file.
        assert!(fits(4, 4 + 6 + 8 + 13));
        assert!(!fits(3, 1000) && !fits(4, 4 + 6 + 8 + 12));
    }

    /// An archive as one reads it who keeps nothing of it.
    struct StreamedArchive {
        archive: FolderArchive,
        piece: io::Cursor<Vec<u8>>,
    }

    impl io::Read for StreamedArchive {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            loop {
                let count = self.piece.read(into)?;
                if count > 0 || into.is_empty() {
                    return Ok(count);
                }
                match self.archive.next_piece()? {
                    Some(piece) => {
                        assert!(piece.len() <= 2 * PIECE, "{} bytes at once", piece.len());
                        self.piece = io::Cursor::new(piece);
                    }
                    None => return Ok(0),
                }
            }
        }
    }

    /// How many members the tar of a whole folder has; nothing of it is kept.
    fn counted(store: &FolderStore) -> usize {
        let archive = store.archive(ID, &[FolderPath::default()], "data", ArchiveFormat::Tar);
        let mut archive = tar::Archive::new(StreamedArchive {
            archive: archive.expect("an archive"),
            piece: io::Cursor::default(),
        });
        let members = archive.entries().expect("a tar");
        members
            .inspect(|one| assert!(one.is_ok(), "a member"))
            .count()
    }

    fn refused_zip(store: &FolderStore) -> Option<String> {
        let zip = store.archive(ID, &[FolderPath::default()], "data", ArchiveFormat::Zip);
        let refused = zip.err()?;
        Some(refused.code().unwrap_or("fault").to_owned())
    }

    #[test]
    fn paths_that_are_too_much_for_a_zip_come_in_a_tar() {
        const LEVELS: usize = 14;
        let (_data, store, place) = opened();
        let levels: Vec<_> = (0..LEVELS).map(|level| format!("{level:0>250}")).collect();
        let deep = place.join(levels.join("/"));
        std::fs::create_dir_all(&deep).expect("made");
        // With that of each file.
        let bytes = "data/".len() + levels.join("/").len() + 101;
        let files = MAX_ZIP_NAME_BYTES / bytes + 1;
        for number in 0..files {
            std::fs::write(deep.join(format!("{number:0>100}")), "").expect("written");
        }
        assert_eq!(
            refused_zip(&store).as_deref(),
            Some("folder.archive-too-many")
        );
        assert_eq!(counted(&store), 1 + LEVELS + files);
        std::fs::remove_dir_all(&deep).expect("removed");
        assert_eq!(refused_zip(&store), None);
    }

    /// `FARDEL_ARCHIVED=1000000` says how many; the nightly does, and asks what memory it takes, too.
    #[test]
    fn an_archive_of_very_many_files_takes_no_memory_for_each() {
        const FILES: usize = 2000;
        const MAX_MEMORY: u64 = 32 << 20;
        let asked = std::env::var("FARDEL_ARCHIVED").ok();
        let asked = asked.map(|text| text.parse::<usize>().expect("a number"));
        let files = asked.unwrap_or(FILES);
        let (_data, store, place) = opened();
        for number in 0..files {
            File::create(place.join(number.to_string())).expect("made");
        }
        let before = peak();
        let is_too_many = refused_zip(&store).as_deref() == Some("folder.archive-too-many");
        assert_eq!(is_too_many, files >= MAX_ZIPPED, "{files} files");
        assert_eq!(counted(&store), files + 1);
        let grown = peak() - before;
        // Other tests of the process take memory meanwhile where it does not run alone.
        assert!(asked.is_none() || grown <= MAX_MEMORY, "{grown} bytes");
    }

    /// The most memory that this process has had, in bytes.
    fn peak() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").expect("readable");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let line = line.expect("the kernel counts it");
        let number = line.split_whitespace().next().expect("a number");
        number.parse::<u64>().expect("a number") << 10
    }

    #[test]
    fn several_come_with_their_paths_below_what_holds_them_all() {
        let (_data, store, place) = opened();
        std::fs::create_dir_all(place.join("run/a/deep")).expect("made");
        std::fs::write(place.join("run/a/deep/file"), "text").expect("written");
        std::fs::write(place.join("run/b"), "more").expect("written");
        std::fs::write(place.join("other"), "left out").expect("written");
        std::os::unix::fs::symlink("b", place.join("run/link")).expect("linked");
        let path = |text: &str| FolderPath::parse(text).expect(text);
        // What lies in another one of them is there once.
        let chosen = ["run/b", "run/a", "run/link", "run/a/deep/file"].map(path);
        let all = members(&several(&store, &chosen, ArchiveFormat::Tar));
        let names: Vec<&str> = all.keys().map(String::as_str).collect();
        assert_eq!(names, ["a/", "a/deep/", "a/deep/file", "b", "link"]);
        assert_eq!(
            (all["a/deep/file"].as_str(), all["b"].as_str()),
            ("text", "more")
        );
        let zip = several(&store, &chosen, ArchiveFormat::Zip);
        let end = &zip[zip.len() - 22..];
        assert_eq!(u16::from_le_bytes([end[10], end[11]]), 5);
        // One alone has the name that is asked for.
        let one = members(&several(
            &store,
            &[path("other"), path("other")],
            ArchiveFormat::Tar,
        ));
        assert_eq!(one["data"], "left out");
        let gone = store.archive(
            ID,
            &[path("run/b"), path("none")],
            "data",
            ArchiveFormat::Tar,
        );
        assert_eq!(
            gone.err()
                .and_then(|error| error.code().map(str::to_owned))
                .as_deref(),
            Some("folder.entry-not-found")
        );
    }

    #[test]
    fn one_of_several_that_goes_meanwhile_is_named_at_the_end() {
        let (_data, store, place) = opened();
        std::fs::write(place.join("a"), "x".repeat(1_000_000)).expect("written");
        std::fs::write(place.join("b"), "text").expect("written");
        let paths = ["a", "b"].map(|text| FolderPath::parse(text).expect(text));
        let tar = ArchiveFormat::Tar;
        let mut archive = store.archive(ID, &paths, "data", tar).expect("an archive");
        let mut all = archive.next_piece().expect("read").expect("a piece");
        std::fs::remove_file(place.join("b")).expect("removed");
        while let Some(piece) = archive.next_piece().expect("read") {
            all.extend(piece);
        }
        let all = members(&all);
        assert!(all[NOTES].contains("b: was removed"), "{}", all[NOTES]);
        assert_eq!(all["a"].len(), 1_000_000);
    }

    #[test]
    fn a_packed_archive_holds_what_the_tar_holds() {
        let (_data, store, place) = opened();
        std::fs::create_dir(place.join("a")).expect("made");
        // Packs to nearly nothing, and not at all.
        std::fs::write(place.join("a/even"), "x".repeat(3_000_000)).expect("written");
        let mut noise = Vec::with_capacity(1 << 20);
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        while noise.len() < 1 << 20 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            noise.extend(state.to_le_bytes());
        }
        std::fs::write(place.join("a/noise"), &noise).expect("written");
        let tar = whole(&store, "a", ArchiveFormat::Tar);
        let packed = whole(&store, "a", ArchiveFormat::TarZst);
        assert!(packed.len() < tar.len() / 2, "{} bytes", packed.len());
        assert!(zstd::decode_all(packed.as_slice()).expect("packed") == tar);
    }

    #[test]
    fn a_program_is_none_of_root_where_root_unpacks_an_archive() {
        use std::os::unix::fs::PermissionsExt as _;
        let (_data, store, place) = opened();
        let file = place.join("file");
        std::fs::write(&file, "text").expect("written");
        let mode = std::fs::Permissions::from_mode(0o6755);
        std::fs::set_permissions(&file, mode).expect("set");
        let tar = whole(&store, "file", ArchiveFormat::Tar);
        let head = Header::from_byte_slice(&tar[..BLOCK]);
        assert_eq!(head.mode().expect("a mode"), 0o755);
    }

    #[test]
    fn a_tree_deeper_than_an_archive_goes_is_named_at_its_end() {
        let (_data, store, place) = opened();
        let deep: PathBuf = (0..MAX_LEVELS + 3).map(|_| "d").collect();
        std::fs::create_dir_all(place.join(deep)).expect("made");
        let all = members(&whole(&store, "", ArchiveFormat::Tar));
        assert!(all[NOTES].contains("lies too deep"), "{}", all[NOTES]);
        assert_eq!(all.len(), MAX_LEVELS + 1);
    }

    #[test]
    fn a_file_that_becomes_shorter_is_filled_and_named() {
        let (_data, store, place) = opened();
        std::fs::write(place.join("file"), "x".repeat(1_000_000)).expect("written");
        let path = [FolderPath::default()];
        let tar = ArchiveFormat::Tar;
        let mut archive = store.archive(ID, &path, "data", tar).expect("an archive");
        let mut all = archive.next_piece().expect("read").expect("a piece");
        std::fs::write(place.join("file"), "short").expect("written");
        while let Some(piece) = archive.next_piece().expect("read") {
            all.extend(piece);
        }
        let all = members(&all);
        assert_eq!(all["data/file"].len(), 1_000_000);
        assert!(all[NOTES].contains("data/file"), "{}", all[NOTES]);
    }

    #[test]
    fn times_are_those_of_a_zip() {
        for (seconds, time, date) in [
            (0, 0, (1 << 5) | 1),
            (
                1_709_210_096,
                (12 << 11) | (34 << 5) | 28,
                (44 << 9) | (2 << 5) | 29,
            ),
        ] {
            assert_eq!(dos_time(seconds), (time, date), "{seconds}");
        }
    }
}
