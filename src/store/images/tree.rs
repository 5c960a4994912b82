//! Layers of a directory tree that a build makes: what one step added to the tree, as an archive in the form of OCI layers.
//! The same trees give the same bytes on every day and machine: names in the order of their bytes, no time after a given
//! one, no cache, log or name of the machine. Follows no link out of a tree, runs nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use tar::EntryType;

use super::digest::{Hashing, Sha256Digest};
use super::failure::{Doing, ImageError, shown};
use super::lower;
use super::pack::{
    DirectoryLevel, END_OF_ARCHIVE, MemberHead, PIECE, PaxRecord, attributes, sending, write_head,
    write_padding,
};

/// Names of one tree. Higher: more memory, some hundred bytes each. Lower: CUDA toolkits (60,000) do not fit.
const MAX_TREE_ENTRIES: usize = 1_000_000;
/// Directories above a file.
const MAX_TREE_DEPTH: usize = 256;
/// Directories whose contents are of one run or one machine; they stay, empty.
const EMPTIED: [&str; 12] = [
    "dev",
    "proc",
    "run",
    "sys",
    "tmp",
    "var/cache/apt",
    "var/cache/fontconfig",
    "var/cache/ldconfig",
    "var/lib/apt/lists",
    "var/log",
    "var/tmp",
    "root/.cache",
];
/// Files of one run or one machine.
const LEFT_OUT: [&str; 9] = [
    "etc/.pwd.lock",
    "etc/hostname",
    "etc/machine-id",
    "etc/resolv.conf",
    "var/lib/dbus/machine-id",
    "var/lib/dpkg/available-old",
    "var/lib/dpkg/diversions-old",
    "var/lib/dpkg/status-old",
    "var/lib/systemd/random-seed",
];

/// Keys that the SSH server of Debian draws while it is installed: all sessions of an image would have the same.
const HOST_KEYS: &[u8] = b"etc/ssh/ssh_host_";

/// What stands at one name of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TreeEntry {
    /// Kind and permissions.
    mode: u32,
    owners: (u32, u32),
    /// Where a symbolic link leads.
    link: Vec<u8>,
    /// Bytes of a regular file.
    content: Option<Sha256Digest>,
    /// The first name of the same file, where this is a later one.
    first: Option<Vec<u8>>,
    attributes: Vec<PaxRecord>,
}

/// A tree as it stands between two steps. Memory: every name and one digest for each file.
#[derive(Debug, Clone, Default)]
pub struct TreeSnapshot {
    entries: BTreeMap<Vec<u8>, TreeEntry>,
}

/// A layer that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenLayer {
    /// Of its bytes, which are not compressed.
    pub digest: Sha256Digest,
    pub bytes: u64,
    /// Names in it.
    pub entries: usize,
}

impl TreeSnapshot {
    /// Reads every file of the tree once.
    ///
    /// Errors: faults: too many names or too deep ones, and what the kernel says.
    pub fn of(root: BorrowedFd<'_>) -> Result<Self, ImageError> {
        let mut snapshot = Self::default();
        let mut first_names: HashMap<(u64, u64), Vec<u8>> = HashMap::new();
        let mut levels = vec![DirectoryLevel::read(
            rustix::io::fcntl_dupfd_cloexec(root, 3).doing(|| "keep a directory open".into())?,
        )?];
        let mut path: Vec<Vec<u8>> = Vec::new();
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.names.next() else {
                levels.pop();
                path.pop();
                continue;
            };
            let parent = level.directory.as_fd();
            path.push(name);
            let full = path.join(&b'/');
            let is_kept =
                !LEFT_OUT.iter().any(|one| one.as_bytes() == full) && !full.starts_with(HOST_KEYS);
            let entry = match is_kept {
                true => TreeEntry::of(parent, &full, &path, &mut first_names)?,
                false => None,
            };
            let Some((entry, directory)) = entry else {
                path.pop();
                continue;
            };
            if snapshot.entries.len() >= MAX_TREE_ENTRIES {
                return Err(too_large("it has too many files"));
            }
            let is_emptied = EMPTIED.iter().any(|one| one.as_bytes() == full);
            snapshot.entries.insert(full, entry);
            match directory {
                Some(_) if path.len() > MAX_TREE_DEPTH => {
                    return Err(too_large("its directories are too deep"));
                }
                Some(directory) if !is_emptied => levels.push(DirectoryLevel::read(directory)?),
                _ => {
                    path.pop();
                }
            }
        }
        Ok(snapshot)
    }

    /// Names at which two trees differ, in their order.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let names: BTreeSet<&Vec<u8>> = self.entries.keys().chain(other.entries.keys()).collect();
        let differs = |name: &&Vec<u8>| self.entries.get(*name) != other.entries.get(*name);
        let named = names.into_iter().filter(differs);
        named.map(|name| shown(name)).collect()
    }

    /// Names that a layer from `before` to this tree lists, with the directories above them, in the order of the walk: a
    /// file stands before its further names.
    fn listed(&self, before: &Self) -> Vec<&[u8]> {
        let mut listed: BTreeSet<&[u8]> = BTreeSet::new();
        for (name, entry) in &self.entries {
            if before.entries.get(name) == Some(entry) {
                continue;
            }
            let first = entry.first.as_deref();
            for mut name in [Some(name.as_slice()), first].into_iter().flatten() {
                while listed.insert(name) {
                    match name.iter().rposition(|byte| *byte == b'/') {
                        Some(at) => name = &name[..at],
                        None => break,
                    }
                }
            }
        }
        let mut listed: Vec<&[u8]> = listed.into_iter().collect();
        // What lies below a directory comes before its next neighbour: `a`, `a/b`, `a-b`.
        let slash_first = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
        listed.sort_by(|one, other| {
            let (one, other) = (one.iter().map(slash_first), other.iter().map(slash_first));
            one.cmp(other)
        });
        listed
    }

    /// Names of `before` that this tree lacks, without those below another one.
    fn removed<'a>(&self, before: &'a Self) -> Vec<&'a [u8]> {
        let names = before.entries.keys();
        let gone = names.filter(|name| !self.entries.contains_key(*name));
        let is_topmost = |name: &&Vec<u8>| match name.iter().rposition(|byte| *byte == b'/') {
            None => true,
            // A directory that became another thing hides what was below it.
            Some(at) => self
                .entries
                .get(&name[..at])
                .is_some_and(|above| FileType::from_raw_mode(above.mode) == FileType::Directory),
        };
        gone.filter(is_topmost).map(Vec::as_slice).collect()
    }

    /// Writes what this tree, which `root` holds, has more, less or other than `before`. No time of it is after `latest`,
    /// seconds since 1970. Costs a read of each file that it writes.
    ///
    /// Errors: a file that changed since the snapshot, and what the kernel or the sink says, are faults.
    pub fn write_layer(
        &self,
        before: &Self,
        root: BorrowedFd<'_>,
        latest: u32,
        sink: &mut dyn Write,
    ) -> Result<WrittenLayer, ImageError> {
        let mut out = LayerOut::new(sink);
        let top = rustix::fs::fstat(root).doing(|| "look at a tree".into())?;
        let top = no_later(top, latest);
        out.head(&MemberHead {
            name: b"./",
            kind: EntryType::Directory,
            link: b"",
            stored: 0,
            stat: Some(&top),
            records: Vec::new(),
        })?;
        for name in self.removed(before) {
            let (above, last) = match name.iter().rposition(|byte| *byte == b'/') {
                Some(at) => name.split_at(at + 1),
                None => (&b""[..], name),
            };
            let whiteout = [above, b".wh.", last].concat();
            out.head(&MemberHead {
                name: &whiteout,
                kind: EntryType::Regular,
                link: b"",
                stored: 0,
                stat: None,
                records: Vec::new(),
            })?;
        }
        for name in self.listed(before) {
            let entry = self.entries.get(name).expect("listed names are of it");
            out.entry(root, name, entry, latest)?;
        }
        out.write_all(&END_OF_ARCHIVE).doing(sending)?;
        out.flush().doing(sending)?;
        Ok(out.written())
    }
}

impl TreeEntry {
    /// What stands at the end of `path`, and the directory where it is one. None: a device or a socket.
    fn of(
        parent: BorrowedFd<'_>,
        full: &[u8],
        path: &[Vec<u8>],
        first_names: &mut HashMap<(u64, u64), Vec<u8>>,
    ) -> Result<Option<(Self, Option<OwnedFd>)>, ImageError> {
        let name = path.last().expect("the walk has just pushed it").as_slice();
        let looking = || format!("look at {}", shown(full));
        let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).doing(looking)?;
        let mut entry = Self {
            mode: stat.st_mode,
            owners: (stat.st_uid, stat.st_gid),
            link: Vec::new(),
            content: None,
            first: None,
            attributes: Vec::new(),
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Directory {
            let directory = lower::open_directory(parent, name)?;
            entry.attributes = attributes(directory.as_fd())?;
            return Ok(Some((entry, Some(directory))));
        }
        if stat.st_nlink > 1 {
            let file = (stat.st_dev, stat.st_ino);
            match first_names.get(&file) {
                Some(first) => entry.first = Some(first.clone()),
                None => drop(first_names.insert(file, full.to_vec())),
            }
        }
        match kind {
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(parent, name, Vec::new()).doing(looking)?;
                entry.link = target.into_bytes();
            }
            FileType::RegularFile => {
                let file = opened(parent, name).doing(looking)?;
                entry.attributes = attributes(file.as_fd())?;
                let mut hashing = Hashing::new(file);
                io::copy(&mut hashing, &mut io::sink()).doing(looking)?;
                entry.content = Some(hashing.finish().0);
            }
            FileType::Fifo => {}
            _ => return Ok(None),
        }
        Ok(Some((entry, None)))
    }
}

/// What a layer's bytes go through: counted and hashed on their way.
struct LayerOut<'a> {
    sink: &'a mut dyn Write,
    hash: Hashing<io::Empty>,
    entries: usize,
}

impl<'a> LayerOut<'a> {
    fn new(sink: &'a mut dyn Write) -> Self {
        Self {
            sink,
            hash: Hashing::new(io::empty()),
            entries: 0,
        }
    }

    fn head(&mut self, head: &MemberHead<'_>) -> Result<(), ImageError> {
        self.entries += 1;
        write_head(self, head)
    }

    fn entry(
        &mut self,
        root: BorrowedFd<'_>,
        name: &[u8],
        entry: &TreeEntry,
        latest: u32,
    ) -> Result<(), ImageError> {
        let reading = || format!("read {}", shown(name));
        let (above, last) = match name.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&name[..at], &name[at + 1..]),
            None => (&b"."[..], name),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent =
            rustix::fs::openat2(root, above, flags, Mode::empty(), inside()).doing(reading)?;
        let stat = rustix::fs::statat(&parent, last, AtFlags::SYMLINK_NOFOLLOW).doing(reading)?;
        if stat.st_mode != entry.mode {
            return Err(changed(name));
        }
        let stat = no_later(stat, latest);
        let mut head = MemberHead {
            name,
            kind: EntryType::Regular,
            link: b"",
            stored: 0,
            stat: Some(&stat),
            records: entry.attributes.clone(),
        };
        if let Some(first) = &entry.first {
            head.kind = EntryType::Link;
            head.link = first;
            head.records = Vec::new();
            return self.head(&head);
        }
        match FileType::from_raw_mode(entry.mode) {
            FileType::Directory => head.kind = EntryType::Directory,
            FileType::Symlink => {
                head.kind = EntryType::Symlink;
                head.link = &entry.link;
            }
            FileType::Fifo => head.kind = EntryType::Fifo,
            _ => {
                head.stored = u64::try_from(stat.st_size).unwrap_or(0);
                self.head(&head)?;
                let file = opened(parent.as_fd(), last).doing(reading)?;
                let mut hashing = Hashing::new(file.take(head.stored));
                let mut piece = vec![0; PIECE];
                loop {
                    let count = hashing.read(&mut piece).doing(reading)?;
                    if count == 0 {
                        break;
                    }
                    self.write_all(&piece[..count]).doing(sending)?;
                }
                let (digest, bytes) = hashing.finish();
                if bytes != head.stored || Some(&digest) != entry.content.as_ref() {
                    return Err(changed(name));
                }
                return write_padding(self, head.stored);
            }
        }
        self.head(&head)
    }

    fn written(mut self) -> WrittenLayer {
        let (digest, bytes) = self.hash.finish();
        WrittenLayer {
            digest,
            bytes,
            entries: self.entries,
        }
    }
}

impl Write for LayerOut<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.sink.write(bytes)?;
        self.hash.add(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

/// A small file of a tree, links of the tree followed as a program inside would; None where there is none, or it is longer.
pub fn text_in(root: BorrowedFd<'_>, path: &Path, most: u64) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let file = rustix::fs::openat2(root, path, flags, Mode::empty(), resolve).ok()?;
    let stat = rustix::fs::fstat(&file).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let mut bytes = Vec::new();
    let read = File::from(file).take(most + 1).read_to_end(&mut bytes);
    let fits = read.is_ok_and(|count| count as u64 <= most);
    fits.then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// Makes a directory of a tree with those above it, and opens it; links of the tree lead nowhere out of it.
///
/// Errors: faults.
pub fn directory_in(root: BorrowedFd<'_>, path: &str) -> Result<OwnedFd, ImageError> {
    let making = || format!("make {}", shown(path.as_bytes()));
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut last =
        rustix::io::fcntl_dupfd_cloexec(root, 3).doing(|| "keep a directory open".into())?;
    let mut so_far = String::from(".");
    for part in path.split('/').filter(|part| !part.is_empty()) {
        so_far.push('/');
        so_far.push_str(part);
        let mode = Mode::from_raw_mode(0o755);
        let is_new = match rustix::fs::mkdirat(&last, part, mode) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error).doing(making),
        };
        let next = rustix::fs::openat2(root, so_far.as_str(), flags, Mode::empty(), resolve);
        last = next.doing(making)?;
        if is_new {
            // The mask of who builds decides nothing.
            rustix::fs::fchmod(&last, mode).doing(making)?;
        }
    }
    Ok(last)
}

/// Writes a file of a tree, in place of one that is there, with the directories above it.
///
/// Errors: faults.
pub fn write_in(
    root: BorrowedFd<'_>,
    path: &str,
    text: &str,
    is_executable: bool,
) -> Result<(), ImageError> {
    let writing = || format!("write {}", shown(path.as_bytes()));
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let parent = directory_in(root, above)?;
    match rustix::fs::unlinkat(&parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error).doing(writing),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(if is_executable { 0o755 } else { 0o644 });
    let opened = rustix::fs::openat(&parent, name, flags, mode).doing(writing)?;
    // The mask of who builds decides nothing.
    rustix::fs::fchmod(&opened, mode).doing(writing)?;
    File::from(opened).write_all(text.as_bytes()).doing(writing)
}

fn inside() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS
}

fn opened(parent: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty()).map(File::from)
}

/// Times of another machine's clock, cut at the one that all of the image is from.
fn no_later(mut stat: Stat, latest: u32) -> Stat {
    if stat.st_mtime >= i64::from(latest) {
        stat.st_mtime = i64::from(latest);
    }
    stat.st_mtime_nsec = 0;
    stat
}

fn too_large(why: &str) -> ImageError {
    ImageError::fault("read a tree", io::Error::other(why.to_owned()))
}

fn changed(name: &[u8]) -> ImageError {
    let error = io::Error::other("it changed while it was read");
    ImageError::fault(format!("write {}", shown(name)), error)
}

#[cfg(test)]
mod tests;
