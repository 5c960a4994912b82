//! The file of a pool: one file system for the scopes of all owners, beside the folders. Says where it lies, and writes a new one
//! from a template, since a machine need not have the tools that make such a file system. Never mounts it and never grows it.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rules::units::Bytes;
use rustix::fs::{FallocateFlags, IFlags, fallocate, ioctl_getflags, ioctl_setflags, statfs};

/// Where the pool lies below a data directory.
const PLACE: [&str; 2] = ["folders", ".pool"];
const IMAGE: &str = "pool.xfs";
/// One that is being written; a loss of power leaves it, and the next one begins with it.
const DRAFT: &str = "pool.xfs.new";
const FILES: &str = "files";

/// Empty file systems by the least size that each is for, the largest first: what `mkfs.xfs` wrote for
/// `packaging/pool_templates.py`. Kernels from 5.15 on mount them. Packed with zstd: a length of eight bytes, then pieces, each an
/// offset of eight bytes, a length of two and so many bytes; what is in no piece is zero. Numbers are little-endian.
const TEMPLATES: [(Bytes, &[u8]); 3] = [
    (Bytes::gib(256), include_bytes!("pool-256g.zst")),
    (Bytes::gib(16), include_bytes!("pool-16g.zst")),
    (Bytes::mib(512), include_bytes!("pool-512m.zst")),
];
/// Bytes of an unpacked template.
const MAX_TEMPLATE: u64 = 1 << 20;
/// Bytes of it in which the file system describes itself.
const HEAD: usize = 512;
/// Bytes that are written at once where nothing but zeros goes.
const ZEROS: usize = 1 << 20;

/// File systems that a pool may lie on, by their numbers in `linux/magic.h`: ext4, XFS, Btrfs. Others share blocks that were
/// set aside, keep them in memory, or lie on another machine.
const BELOW: [u64; 3] = [0xef53, 0x5846_5342, 0x9123_683e];
const BTRFS: u64 = BELOW[2];

/// Where a pool lies. Its directories belong to root alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolPlace {
    directory: PathBuf,
}

impl PoolPlace {
    /// That of a data directory, whether there is one or not.
    pub fn of(data: &Path) -> Self {
        let [folders, pool] = PLACE;
        Self {
            directory: data.join(folders).join(pool),
        }
    }

    /// One to try out what a machine can do.
    pub fn trial(data: &Path) -> Self {
        let [folders, pool] = PLACE;
        Self {
            directory: data.join(folders).join(pool).join(".trial"),
        }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The file with the file system.
    pub fn image(&self) -> PathBuf {
        self.directory.join(IMAGE)
    }

    /// Where it is mounted.
    pub fn files(&self) -> PathBuf {
        self.directory.join(FILES)
    }

    /// Whether a path is where a pool is mounted. Looks at names alone.
    pub fn is_root(path: &Path) -> bool {
        let [folders, pool] = PLACE;
        path.ends_with(Path::new(folders).join(pool).join(FILES))
    }

    /// Whether there is one. Errors: where the disk does not say, which is no reason to make another.
    pub fn exists(&self) -> io::Result<bool> {
        self.image().try_exists()
    }

    /// Makes the directories of the pool; fine where they are.
    pub fn make(&self) -> io::Result<()> {
        for path in [self.directory.clone(), self.files()] {
            DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        }
        Ok(())
    }

    /// Removes a pool that was being written when its server was ended: what it takes of the disk may be what the next one lacks.
    pub fn clear(&self) -> io::Result<()> {
        match fs::remove_file(self.directory.join(DRAFT)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Writes a new pool, all of whose bytes are set aside on the disk where `is_kept`; a trial sets none aside. A loss of power
    /// leaves it whole or not there. Its file system is smaller than its file until it is grown.
    ///
    /// Errors: `AlreadyExists` where there is one: what lies in it is never written over. `Unsupported` where the disk below
    /// sets nothing aside for good.
    pub fn write(&self, size: Bytes, is_kept: bool) -> io::Result<()> {
        if self.exists()? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.make()?;
        let draft = self.directory.join(DRAFT);
        let written = self.write_draft(&draft, size, is_kept);
        if let Err(error) = written {
            // A part of a disk that is full already.
            let _ = fs::remove_file(&draft);
            return Err(error);
        }
        fs::rename(&draft, self.image())?;
        for above in self.directory.ancestors().take(2) {
            File::open(above)?.sync_all()?;
        }
        Ok(())
    }

    fn write_draft(&self, draft: &Path, size: Bytes, is_kept: bool) -> io::Result<()> {
        let below = statfs(&self.directory)?.f_type;
        let below = u64::try_from(below).unwrap_or_default();
        if !BELOW.contains(&below) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("a pool lies on ext4, XFS or Btrfs, and this disk is {below:#x}"),
            ));
        }
        let template = template(size)?;
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(draft)?;
        if below == BTRFS {
            // Its blocks would be written elsewhere each time, and those that were set aside would be of no use.
            let flags = ioctl_getflags(&file)?;
            ioctl_setflags(&file, flags | IFlags::NOCOW)?;
        }
        match is_kept {
            true => {
                fallocate(&file, FallocateFlags::empty(), 0, size.0)?;
                write_zeros(&file, template.log()?)?;
            }
            false => file.set_len(size.0)?,
        }
        for (offset, bytes) in &template.pieces {
            file.write_all_at(bytes, *offset)?;
        }
        file.sync_all()
    }

    /// Has the disk set so many bytes aside for the pool. Where it has no room for them the file is as long as before.
    pub fn lengthen(&self, size: Bytes) -> io::Result<()> {
        let file = File::options().write(true).open(self.image())?;
        let before = file.metadata()?.len();
        if size.0 <= before {
            return Ok(());
        }
        let longer = fallocate(&file, FallocateFlags::empty(), before, size.0 - before);
        if let Err(error) = longer {
            // No file system reaches so far yet.
            file.set_len(before)?;
            return Err(error.into());
        }
        file.sync_all()
    }

    /// Has the disk set aside again what was given back to it, as a trim of the mounted pool does; says whether there was
    /// something. Costs one look where all is set aside. What lies in the pool stays as it is.
    ///
    /// Errors: `StorageFull` where the disk has no room for it any more.
    pub fn keep_whole(&self) -> io::Result<bool> {
        let file = File::options().write(true).open(self.image())?;
        let found = file.metadata()?;
        if found.blocks().saturating_mul(512) >= found.len() {
            return Ok(false);
        }
        fallocate(&file, FallocateFlags::empty(), 0, found.len())?;
        file.sync_all().map(|()| true)
    }
}

/// An empty file system.
struct PoolTemplate {
    /// Bytes of the whole.
    length: u64,
    pieces: Vec<(u64, Vec<u8>)>,
}

impl PoolTemplate {
    /// Where the file system keeps its log, in bytes of the whole.
    fn log(&self) -> io::Result<Range<u64>> {
        let broken = || io::Error::from(io::ErrorKind::InvalidData);
        let head = self.head();
        let word =
            |at: usize| u64::from(u32::from_be_bytes([0, 1, 2, 3].map(|byte| head[at + byte])));
        let (block, part) = (word(4), word(84));
        // Its place is told as a part and a block of that part.
        let (high, low) = (word(48), word(52));
        let bits = u32::from(head[124]);
        let place = (high << 32) | low;
        let number = place.checked_shr(bits).ok_or_else(broken)?;
        let within = place - (number << bits);
        let first = number
            .checked_mul(part)
            .and_then(|at| at.checked_add(within));
        let first = first
            .and_then(|at| at.checked_mul(block))
            .ok_or_else(broken)?;
        let log = first..first.saturating_add(word(96).saturating_mul(block));
        match log.is_empty() || log.end > self.length {
            true => Err(broken()),
            false => Ok(log),
        }
    }

    /// The first bytes, where the file system describes itself.
    fn head(&self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        for (offset, piece) in &self.pieces {
            let at = usize::try_from(*offset).unwrap_or(HEAD).min(HEAD);
            let end = HEAD.min(at.saturating_add(piece.len()));
            head[at..end].copy_from_slice(&piece[..end - at]);
        }
        head
    }
}

/// Writes zeros where zeros are: blocks that were only set aside cost the disk an entry of its journal each at their first write,
/// and a log is written with each file that is synced.
fn write_zeros(file: &File, at: Range<u64>) -> io::Result<()> {
    let zeros = vec![0; ZEROS];
    let mut next = at.start;
    while next < at.end {
        let left = usize::try_from(at.end - next).unwrap_or(ZEROS).min(ZEROS);
        file.write_all_at(&zeros[..left], next)?;
        next += left as u64;
    }
    Ok(())
}

/// The largest one that such a file holds. The larger one is to become, the fewer and larger its parts have to be.
fn template(size: Bytes) -> io::Result<PoolTemplate> {
    let found = TEMPLATES.iter().find(|(least, _)| *least <= size);
    let (_, packed) = found.ok_or(io::ErrorKind::InvalidInput)?;
    let template = unpacked(packed)?;
    match template.length <= size.0 {
        true => Ok(template),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn unpacked(packed: &[u8]) -> io::Result<PoolTemplate> {
    let mut bytes = Vec::new();
    let decoder = zstd::stream::read::Decoder::new(packed)?;
    decoder.take(MAX_TEMPLATE).read_to_end(&mut bytes)?;
    let broken = || io::Error::from(io::ErrorKind::InvalidData);
    let (length, mut rest) = bytes.split_first_chunk::<8>().ok_or_else(broken)?;
    let length = u64::from_le_bytes(*length);
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let (offset, after) = rest.split_first_chunk::<8>().ok_or_else(broken)?;
        let (count, after) = after.split_first_chunk::<2>().ok_or_else(broken)?;
        let count = usize::from(u16::from_le_bytes(*count));
        let (piece, after) = after.split_at_checked(count).ok_or_else(broken)?;
        let offset = u64::from_le_bytes(*offset);
        if offset.saturating_add(count as u64) > length {
            return Err(broken());
        }
        pieces.push((offset, piece.to_vec()));
        rest = after;
    }
    Ok(PoolTemplate { length, pieces })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the head of an XFS says: its blocks, and those of one of its parts.
    fn head(template: &PoolTemplate) -> (u64, u64) {
        let block = template.head();
        assert_eq!(&block[..4], b"XFSB");
        let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| block[at + byte]));
        assert_eq!(word(4), 4096, "bytes of a block");
        let blocks = (u64::from(word(8)) << 32) | u64::from(word(12));
        (blocks * 4096, u64::from(word(84)) * 4096)
    }

    #[test]
    fn each_template_is_a_whole_file_system_of_the_size_that_it_is_for() {
        for (least, packed) in TEMPLATES {
            let template = unpacked(packed).expect("whole");
            let (size, part) = head(&template);
            assert_eq!((size, template.length), (least.0, least.0));
            assert_eq!(part, least.0 / 4);
            let log = template.log().expect("it has one");
            // What `mkfs.xfs` writes there first is a record of the log.
            let record = template.pieces.iter().find(|(at, _)| *at == log.start);
            let (_, record) = record.expect("it begins in a piece");
            assert_eq!(record[..4], [0xfe, 0xed, 0xba, 0xbe]);
            let expected = if least == Bytes::gib(256) { 256 } else { 64 };
            assert_eq!(log.end - log.start, expected << 20);
        }
        assert!(template(Bytes::mib(511)).is_err());
        for (size, expected) in [
            (Bytes::mib(512), Bytes::mib(512)),
            (Bytes::gib(15), Bytes::mib(512)),
            (Bytes::gib(16), Bytes::gib(16)),
            (Bytes::gib(300), Bytes::gib(256)),
        ] {
            let found = template(size).expect("one that fits").length;
            assert_eq!(found, expected.0, "{size}");
        }
    }

    #[test]
    fn what_is_no_template_is_not_written() {
        let pack = |bytes: &[u8]| zstd::encode_all(bytes, 3).expect("a Vec takes all");
        let mut beyond = 16_u64.to_le_bytes().to_vec();
        beyond.extend(15_u64.to_le_bytes());
        beyond.extend(2_u16.to_le_bytes());
        beyond.extend([1, 1]);
        let mut short = beyond.clone();
        short.pop();
        for bytes in [&b"abc"[..], &beyond, &short] {
            assert!(unpacked(&pack(bytes)).is_err(), "{bytes:?}");
        }
        assert!(unpacked(b"not packed").is_err());
    }

    #[test]
    fn a_pool_is_written_once_and_its_room_is_set_aside() {
        const NAME: &str = "a_pool_is_written_once_and_its_room_is_set_aside";
        let data = tempfile::tempdir().expect("a directory");
        let pool = PoolPlace::of(data.path());
        assert!(!pool.exists().expect("nothing there"));
        assert!(PoolPlace::is_root(&pool.files()));
        assert!(!PoolPlace::is_root(data.path()) && !PoolPlace::is_root(pool.directory()));
        let size = Bytes::mib(512);
        match pool.write(size, true) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                return skips::skip(NAME, &error.to_string());
            }
            written => written.expect("there is room"),
        }
        let file = pool.image().metadata().expect("there");
        assert_eq!(file.len(), size.0);
        assert!(file.blocks() * 512 >= size.0, "{}", file.blocks());
        let again = pool.write(size, true).expect_err("it is there");
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        pool.lengthen(Bytes::mib(520)).expect("there is room");
        pool.lengthen(Bytes::mib(1)).expect("it is longer already");
        let file = pool.image().metadata().expect("there");
        assert_eq!(file.len(), Bytes::mib(520).0);
        pool.lengthen(Bytes(1 << 50))
            .expect_err("no disk is so large");
        let file = pool.image().metadata().expect("there");
        assert_eq!(file.len(), Bytes::mib(520).0, "as long as before");
        assert!(!pool.keep_whole().expect("all of it is set aside"));
        let draft = pool.directory().join(DRAFT);
        fs::write(&draft, "begun").expect("written");
        pool.clear().expect("removed");
        pool.clear().expect("nothing to remove");
        assert!(!draft.exists() && pool.image().exists());
        let trimmed = File::options().write(true).open(pool.image());
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(trimmed.expect("there"), hole, 256 << 20, 64 << 20).expect("given back");
        assert!(pool.keep_whole().expect("there is room"));
        let file = pool.image().metadata().expect("there");
        assert!(file.blocks() * 512 >= file.len(), "{}", file.blocks());
        let mut head = [0; 4];
        let image = File::open(pool.image()).expect("there");
        image.read_exact_at(&mut head, 0).expect("read");
        assert_eq!(&head, b"XFSB");
    }
}
