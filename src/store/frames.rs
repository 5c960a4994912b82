//! A ring of texts at rest: each compressed and numbered, behind one another in a few files of bounded size. The oldest file
//! goes when a new one begins, and what a crash cut off at the end is forgotten. Never knows what the texts say.
//!
//! On disk, below one directory: files `<number of the first>.frames`. A frame is its length in four bytes, its number in
//! eight, both little-endian, and the compressed text with a checksum of its own.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Bytes of a file after which the next frame begins another. Higher: more is forgotten at once. Lower: whole texts, which
/// each file begins with, take most of the room.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// Files that are kept. Higher: the log takes more of the disk. Lower: it reaches back for less time.
const MAX_FILES: usize = 4;
/// Bytes of one compressed text. Higher: a damaged length is believed, and memory is taken for it. Lower: the world of a
/// large site cannot be written.
const MAX_FRAME_BYTES: usize = 64 << 20;
/// Bytes that stay free on the disk, more than are kept there so that running work can be recorded. Higher: a small disk gets
/// no frames. Lower: a log that nothing needs tonight takes the last room of what everything needs.
const MIN_FREE_BYTES: u64 = 128 << 20;
const HEAD: usize = 12;
const ENDING: &str = "frames";
/// Speed before size: it is compressed while sessions are started.
const LEVEL: i32 = 1;

/// The writing end of a ring. One at a time for a directory.
#[derive(Debug)]
pub struct FrameRing {
    directory: PathBuf,
    file_bytes: u64,
    free_bytes: u64,
    /// The file that is written, and its length; None before the first frame.
    open: Option<(File, u64)>,
    newest: Option<u64>,
}

impl FrameRing {
    /// Opens the ring in this directory, which is made for its owner alone where it is missing.
    pub fn open(directory: &Path) -> io::Result<Self> {
        Self::with_files_of(directory, MAX_FILE_BYTES)
    }

    fn with_files_of(directory: &Path, file_bytes: u64) -> io::Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
        let mut ring = Self {
            directory: directory.to_owned(),
            file_bytes,
            free_bytes: MIN_FREE_BYTES,
            open: None,
            newest: None,
        };
        for path in files(directory)?.iter().rev() {
            let mut frames = FrameReader::open(path)?;
            while let Some(frame) = frames.next()? {
                ring.newest = Some(frame.number);
            }
            let mut file = OpenOptions::new().write(true).open(path)?;
            let bytes = file.metadata()?.len();
            if bytes > frames.read {
                let (cut, file) = (bytes - frames.read, path.display());
                tracing::warn!(%file, cut, "what stood behind the last whole frame of a log is cut off");
            }
            if ring.newest.is_none() {
                // Begun, and cut off in its first frame: the numbers go on behind the file before.
                fs::remove_file(path)?;
                continue;
            }
            file.set_len(frames.read)?;
            file.seek(SeekFrom::Start(frames.read))?;
            ring.open = Some((file, frames.read));
            break;
        }
        Ok(ring)
    }

    /// The number of the newest frame; None where there is none.
    pub fn newest(&self) -> Option<u64> {
        self.newest
    }

    /// Whether the next frame begins a file, so that nothing before it will be there for ever.
    pub fn begins_file(&self) -> bool {
        self.open
            .as_ref()
            .is_none_or(|(_, bytes)| *bytes >= self.file_bytes)
    }

    /// Writes one frame behind the others; after an error nothing of it is there. It is on disk when the kernel writes it.
    /// Numbers of one file follow each other by one: what does not is taken for the end.
    ///
    /// Errors: a text that is too long; a disk that is nearly full; what the disk says.
    pub fn push(&mut self, number: u64, text: &[u8]) -> io::Result<()> {
        let packed = packed(text)?;
        let length = u32::try_from(packed.len())
            .ok()
            .filter(|_| packed.len() <= MAX_FRAME_BYTES)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the text is too long"))?;
        let disk = rustix::fs::statvfs(&self.directory)?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if free < self.free_bytes.saturating_add(u64::from(length)) {
            let error = "the disk is nearly full";
            return Err(io::Error::new(io::ErrorKind::StorageFull, error));
        }
        if self.begins_file() {
            self.open = Some((self.begin(number)?, 0));
        }
        let Some((file, bytes)) = &mut self.open else {
            return Ok(());
        };
        let mut frame = Vec::with_capacity(HEAD + packed.len());
        frame.extend(length.to_le_bytes());
        frame.extend(number.to_le_bytes());
        frame.extend(packed);
        if let Err(error) = file.write_all(&frame) {
            let back = file.set_len(*bytes);
            if back
                .and_then(|()| file.seek(SeekFrom::Start(*bytes)))
                .is_err()
            {
                // What stands there is the end of that file.
                self.open = None;
            }
            return Err(error);
        }
        *bytes += frame.len() as u64;
        self.newest = Some(number);
        Ok(())
    }

    /// A new file, and room for it among the others.
    fn begin(&self, number: u64) -> io::Result<File> {
        let mut old = files(&self.directory)?;
        let over = (old.len() + 1).saturating_sub(MAX_FILES);
        for path in old.drain(..over) {
            fs::remove_file(path)?;
        }
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(self.directory.join(format!("{number:020}.{ENDING}")))
    }
}

fn packed(text: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), LEVEL)?;
    encoder.include_checksum(true)?;
    encoder.write_all(text)?;
    encoder.finish()
}

/// The files of a ring, oldest first; none where the directory is missing.
pub fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let is_one = path.extension().is_some_and(|ending| ending == ENDING);
        if is_one && first_of(&path).is_some() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// The number of the first frame of a file, by its name; None for a file of another name.
pub fn first_of(path: &Path) -> Option<u64> {
    path.file_stem()?.to_str()?.parse().ok()
}

/// One frame, still compressed.
#[derive(Debug)]
pub struct Frame {
    pub number: u64,
    packed: Vec<u8>,
}

impl Frame {
    /// Errors: bytes that are not as they were written.
    pub fn text(&self) -> io::Result<Vec<u8>> {
        zstd::stream::decode_all(self.packed.as_slice())
    }
}

/// Reads the frames of one file in their order.
#[derive(Debug)]
pub struct FrameReader {
    file: BufReader<File>,
    /// The number of the next frame.
    next: u64,
    /// Bytes of whole frames so far.
    read: u64,
}

impl FrameReader {
    /// Errors: a file whose name has no number; what the disk says.
    pub fn open(path: &Path) -> io::Result<Self> {
        let unnamed = || io::Error::new(io::ErrorKind::InvalidData, "the name has no number");
        Ok(Self {
            file: BufReader::new(File::open(path)?),
            next: first_of(path).ok_or_else(unnamed)?,
            read: 0,
        })
    }

    /// The next frame; None at the end, where the last one was cut off, and where a lost power left something else.
    pub fn next(&mut self) -> io::Result<Option<Frame>> {
        let mut head = [0; HEAD];
        if !self.fill(&mut head)? {
            return Ok(None);
        }
        let [a, b, c, d, number @ ..] = head;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        let number = u64::from_le_bytes(number);
        if length > MAX_FRAME_BYTES || number != self.next {
            return Ok(None);
        }
        let mut packed = vec![0; length];
        if !self.fill(&mut packed)? {
            return Ok(None);
        }
        self.read += (HEAD + length) as u64;
        self.next += 1;
        Ok(Some(Frame { number, packed }))
    }

    /// False where the file ends before.
    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<bool> {
        match self.file.read_exact(bytes) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers and texts of all frames.
    fn all(directory: &Path) -> Vec<(u64, String)> {
        let mut found = Vec::new();
        for path in files(directory).unwrap() {
            let mut frames = FrameReader::open(&path).unwrap();
            while let Some(frame) = frames.next().unwrap() {
                let text = String::from_utf8(frame.text().unwrap()).unwrap();
                found.push((frame.number, text));
            }
        }
        found
    }

    #[test]
    fn what_was_written_is_read_and_a_cut_off_end_is_forgotten() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("ring");
        let mut ring = FrameRing::open(&directory).unwrap();
        assert_eq!((ring.newest(), ring.begins_file()), (None, true));
        for number in 1..=3 {
            let text = format!("text {number}");
            ring.push(number, text.as_bytes()).unwrap();
        }
        drop(ring);
        let file = files(&directory).unwrap().remove(0);
        let bytes = fs::read(&file).unwrap();
        for cut in 1..20 {
            fs::write(&file, &bytes[..bytes.len() - cut]).unwrap();
            let mut ring = FrameRing::open(&directory).unwrap();
            assert_eq!(ring.newest(), Some(2), "{cut} bytes are missing");
            ring.push(3, b"again").unwrap();
            let found = all(&directory);
            assert_eq!(found.len(), 3);
            assert_eq!(found[2], (3, "again".to_owned()));
        }
    }

    #[test]
    fn a_file_without_a_whole_frame_and_what_a_lost_power_left_are_forgotten() {
        let place = tempfile::tempdir().unwrap();
        let mut ring = FrameRing::with_files_of(place.path(), 1).unwrap();
        for number in 1..=2 {
            ring.push(number, b"text").unwrap();
        }
        drop(ring);
        // A disk that was full, or a death between the two: the file is there and its frame is not.
        let third = place.path().join(format!("{:020}.{ENDING}", 3));
        for left in [&b""[..], &b"\x09\0\0"[..], &[0_u8; 40], &[0xff_u8; 40]] {
            fs::write(&third, left).unwrap();
            let ring = FrameRing::open(place.path()).unwrap();
            assert_eq!(ring.newest(), Some(2), "{left:?}");
            assert!(!third.exists());
        }
        // A file grows before its bytes are on disk.
        let second = files(place.path()).unwrap().pop().unwrap();
        let mut bytes = fs::read(&second).unwrap();
        bytes.extend([0; 100]);
        fs::write(&second, bytes).unwrap();
        let mut ring = FrameRing::open(place.path()).unwrap();
        assert_eq!(ring.newest(), Some(2));
        ring.push(3, b"again").unwrap();
        let numbers: Vec<u64> = all(place.path()).into_iter().map(|(n, _)| n).collect();
        assert_eq!(numbers, [1, 2, 3]);
    }

    #[test]
    fn a_nearly_full_disk_gets_no_frame_and_files_are_their_owners_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("ring");
        let mut ring = FrameRing::open(&directory).unwrap();
        ring.free_bytes = u64::MAX;
        let refused = ring.push(1, b"text").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        assert_eq!(files(&directory).unwrap(), Vec::<PathBuf>::new());
        ring.free_bytes = 0;
        ring.push(1, b"text").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let file = files(&directory).unwrap().remove(0);
        assert_eq!((mode(&directory), mode(&file)), (0o700, 0o600));
    }

    #[test]
    fn a_ring_keeps_so_many_files_and_forgets_the_oldest() {
        let place = tempfile::tempdir().unwrap();
        let mut ring = FrameRing::with_files_of(place.path(), 1).unwrap();
        for number in 1..=10 {
            ring.push(number, b"text").unwrap();
        }
        let numbers: Vec<u64> = all(place.path()).into_iter().map(|(n, _)| n).collect();
        assert_eq!(numbers, [7, 8, 9, 10]);
        assert_eq!(numbers.len(), MAX_FILES);
    }

    #[test]
    fn a_changed_byte_of_a_text_is_noticed() {
        let place = tempfile::tempdir().unwrap();
        let mut ring = FrameRing::open(place.path()).unwrap();
        let text: String = (0..2_000).map(|n| format!("{n} ")).collect();
        ring.push(1, text.as_bytes()).unwrap();
        drop(ring);
        let file = files(place.path()).unwrap().remove(0);
        let mut bytes = fs::read(&file).unwrap();
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        fs::write(&file, bytes).unwrap();
        let frame = FrameReader::open(&file).unwrap().next().unwrap().unwrap();
        assert!(frame.text().is_err());
    }
}
