//! What a container wrote: appended by its shim, kept after its end, bounded in size. Each file is
//! named by the position of its first byte in the whole stream, so that a reader can follow across
//! rotation and a position means the same for ever. Never interprets a byte.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Bytes per file. Two files are kept: a runaway program costs a box at most twice this, and the
/// last screens before a crash are always there.
const FILE_BYTES: u64 = 8 * 1024 * 1024;

/// Appends to the log of one container.
pub(super) struct LogWriter {
    directory: PathBuf,
    file: File,
    /// Where `file` begins, and how much it holds.
    start: u64,
    length: u64,
}

impl LogWriter {
    /// Opens the log below `directory`, continuing one that is there.
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let start = files(directory)?.last().map_or(0, |(start, _)| *start);
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(file_path(directory, start))?;
        let length = file.metadata()?.len();
        Ok(Self {
            directory: directory.to_owned(),
            file,
            start,
            length,
        })
    }

    /// Appends bytes, beginning a new file when this one is full.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.length += bytes.len() as u64;
        if self.length >= FILE_BYTES {
            let next = self.start + self.length;
            self.file = OpenOptions::new()
                .create(true)
                .append(true)
                .open(file_path(&self.directory, next))?;
            for (start, path) in files(&self.directory)? {
                if start < self.start {
                    fs::remove_file(path)?;
                }
            }
            (self.start, self.length) = (next, 0);
        }
        Ok(())
    }
}

/// A piece of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPiece {
    /// Position of the first byte in the whole stream; later than asked when older bytes are gone.
    pub from: u64,
    pub bytes: Vec<u8>,
}

impl LogPiece {
    /// Where the next read continues.
    pub fn next(&self) -> u64 {
        self.from + self.bytes.len() as u64
    }
}

/// Reads the log of one container, during its life and after.
#[derive(Clone, Debug)]
pub struct LogReader {
    directory: PathBuf,
}

impl LogReader {
    /// A reader of the log below `directory`, which need not exist yet.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Up to `limit` bytes from a position; empty at the end or when nothing was written.
    pub fn read(&self, from: u64, limit: usize) -> io::Result<LogPiece> {
        let files = match files(&self.directory) {
            Ok(files) => files,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let Some((oldest, _)) = files.first() else {
            return Ok(LogPiece {
                from,
                bytes: Vec::new(),
            });
        };
        let from = from.max(*oldest);
        let (start, path) = files
            .iter()
            .rev()
            .find(|(start, _)| *start <= from)
            .expect("the oldest begins at or before");
        let mut bytes = Vec::new();
        let mut file = File::open(path)?;
        // Far beyond its end a file cannot even be sought.
        if from - start >= file.metadata()?.len() {
            return Ok(LogPiece { from, bytes });
        }
        file.seek(SeekFrom::Start(from - start))?;
        file.take(limit as u64).read_to_end(&mut bytes)?;
        Ok(LogPiece { from, bytes })
    }

    /// Position of the byte after the last one; where only new output should be seen, begin here.
    pub fn end(&self) -> io::Result<u64> {
        match files(&self.directory) {
            Ok(files) => Ok(match files.last() {
                Some((start, path)) => start + fs::metadata(path)?.len(),
                None => 0,
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
        }
    }
}

fn file_path(directory: &Path, start: u64) -> PathBuf {
    directory.join(format!("console-{start:020}.log"))
}

fn files(directory: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let start = path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| {
                name.strip_prefix("console-")?
                    .strip_suffix(".log")?
                    .parse()
                    .ok()
            });
        if let Some(start) = start {
            found.push((start, path));
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_follows_across_rotation_and_never_repeats() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut log = LogWriter::open(directory.path()).expect("opened");
        let reader = LogReader::new(directory.path().to_owned());
        let line = vec![b'x'; 1024 * 1024];
        let mut position = 0;
        let mut read = 0;
        for _ in 0..30 {
            log.append(&line).expect("written");
            loop {
                let piece = reader.read(position, 300_000).expect("read");
                assert_eq!(
                    piece.from, position,
                    "nothing was lost for a reader who keeps up"
                );
                if piece.bytes.is_empty() {
                    break;
                }
                read += piece.bytes.len();
                position = piece.next();
            }
        }
        assert_eq!(read, 30 * line.len());
        assert_eq!(reader.end().expect("end"), 30 * line.len() as u64);
        let kept: u64 = files(directory.path())
            .expect("listed")
            .iter()
            .map(|(_, path)| fs::metadata(path).expect("there").len())
            .sum();
        assert!(
            kept <= 2 * FILE_BYTES + line.len() as u64,
            "{kept} bytes kept"
        );
        for beyond in [1 << 40, i64::MAX as u64, u64::MAX] {
            let piece = reader.read(beyond, 10).expect("no fault beyond the end");
            assert_eq!((piece.from, piece.bytes.len()), (beyond, 0));
        }
        let late = reader.read(0, 10).expect("read");
        assert!(
            late.from > 0,
            "a late reader is told where the log now begins"
        );
    }

    #[test]
    fn a_container_that_wrote_nothing_has_an_empty_log() {
        let reader = LogReader::new("/nonexistent/fardel".into());
        assert_eq!(
            reader.read(0, 10).expect("no fault"),
            LogPiece {
                from: 0,
                bytes: vec![]
            }
        );
    }
}
