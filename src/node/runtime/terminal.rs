//! The near end of a container's input and output: the terminal or the pipe, and the recent output
//! that a person who comes back sees first. Never blocks: a slow reader or writer waits, the shim
//! does not.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::fcntl::{FcntlArg, fcntl};

use super::order::TerminalSize;

/// Recent output kept for people who attach later. More costs memory in every shim; less than a
/// few screens of colour output makes a reload look like a loss.
const SCROLLBACK_BYTES: usize = 256 * 1024;

/// Input that waits for a program which does not read. A paste beyond this is cut.
const WAITING_INPUT: usize = 256 * 1024;

/// Bytes that a pipe holds over which much went. More: a program that does not read, or is not read, keeps more of the
/// machine's memory. Fewer: both sides wait for each other more often.
const PIPE_BYTES: usize = 256 << 10;

/// Bytes after which that is much. Fewer: short programs pay for it. More: long transfers begin slower.
const MUCH: usize = 1 << 20;

/// How far into remembered output a line may begin after output was skipped. More: a line longer than this is cut.
/// Less: the reader sees the middle of an escape sequence more often.
const LINE_SOUGHT: usize = 4096;

/// The last output of a container.
#[derive(Debug, Default)]
pub(super) struct Scrollback {
    bytes: VecDeque<u8>,
    /// Bytes of output since the start, the forgotten ones counted.
    written: u64,
}

/// A part of the output, as a reader at some place of it gets it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OutputPiece {
    /// Bytes before this piece that the reader never gets: they are forgotten.
    pub skipped: u64,
    pub bytes: Vec<u8>,
    /// The place behind this piece.
    pub end: u64,
}

impl Scrollback {
    /// Remembers output, forgetting the oldest beyond the bound.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.written += bytes.len() as u64;
        let bytes = &bytes[bytes.len().saturating_sub(SCROLLBACK_BYTES)..];
        let excess = (self.bytes.len() + bytes.len()).saturating_sub(SCROLLBACK_BYTES);
        self.bytes.drain(..excess);
        self.bytes.extend(bytes);
    }

    /// Everything remembered, oldest first.
    pub(super) fn replay(&self) -> Vec<u8> {
        let (first, second) = self.bytes.as_slices();
        [first, second].concat()
    }

    /// The place of the next byte of output.
    pub(super) fn end(&self) -> u64 {
        self.written
    }

    /// The place of the oldest byte remembered.
    pub(super) fn start(&self) -> u64 {
        self.written - self.bytes.len() as u64
    }

    /// What follows `place`, at most `most` bytes. Where that is forgotten, the oldest whole line remembered.
    pub(super) fn after(&self, place: u64, most: usize) -> OutputPiece {
        let mut from = usize::try_from(place.saturating_sub(self.start())).unwrap_or(usize::MAX);
        if place < self.start() {
            let line = self
                .bytes
                .iter()
                .take(LINE_SOUGHT)
                .position(|byte| *byte == b'\n');
            from = line.map_or(0, |at| at + 1);
        }
        let from = from.min(self.bytes.len());
        let (first, second) = self.bytes.as_slices();
        let until = self.bytes.len().min(from.saturating_add(most));
        let part = |slice: &[u8], offset: usize| {
            let cut = |place: usize| place.saturating_sub(offset).min(slice.len());
            slice[cut(from)..cut(until)].to_vec()
        };
        let bytes = [part(first, 0), part(second, first.len())].concat();
        let begin = self.start() + from as u64;
        OutputPiece {
            skipped: begin.saturating_sub(place),
            end: begin + bytes.len() as u64,
            bytes,
        }
    }
}

/// One end of a program's input and output, ours.
#[derive(Debug)]
pub(super) struct ProgramStream {
    descriptor: OwnedFd,
    waiting: Vec<u8>,
    pub is_terminal: bool,
    /// Bytes that went over it, counted up to `MUCH`.
    carried: usize,
}

/// What reading gave.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReadOutcome {
    Bytes(usize),
    Nothing,
    /// The other end is closed for good.
    End,
}

impl ProgramStream {
    /// Takes an end and makes it non-blocking.
    pub(super) fn new(descriptor: OwnedFd, is_terminal: bool) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&descriptor, true)?;
        Ok(Self {
            descriptor,
            waiting: Vec::new(),
            is_terminal,
            carried: 0,
        })
    }

    /// For polling.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Whether input waits to be written.
    pub(super) fn wants_to_write(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Reads what is there.
    pub(super) fn hear(&mut self, into: &mut [u8]) -> ReadOutcome {
        match rustix::io::read(&self.descriptor, into) {
            Ok(0) => ReadOutcome::End,
            Ok(count) => {
                self.count(count);
                ReadOutcome::Bytes(count)
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => ReadOutcome::Nothing,
            // A terminal whose last program closed it answers EIO.
            Err(_) => ReadOutcome::End,
        }
    }

    /// How much input waits.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Takes input for the program; what it does not take now waits, and what does not fit the bound is dropped.
    pub(super) fn say(&mut self, bytes: &[u8]) {
        self.flush();
        let mut rest = bytes;
        while self.waiting.is_empty() && !rest.is_empty() {
            match rustix::io::write(&self.descriptor, rest) {
                Ok(count) => {
                    self.count(count);
                    rest = &rest[count..];
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => break,
                Err(_) => return,
            }
        }
        let room = WAITING_INPUT.saturating_sub(self.waiting.len());
        self.waiting
            .extend_from_slice(&rest[..rest.len().min(room)]);
    }

    /// Counts what went over it; a pipe over which much went holds more from then on.
    fn count(&mut self, bytes: usize) {
        if self.is_terminal || self.carried >= MUCH {
            return;
        }
        self.carried = self.carried.saturating_add(bytes);
        if self.carried < MUCH {
            return;
        }
        let pipe = self.descriptor.as_raw_fd();
        let size = libc::c_int::try_from(PIPE_BYTES).unwrap_or(libc::c_int::MAX);
        // The program may have asked for more itself.
        let small = fcntl(pipe, FcntlArg::F_GETPIPE_SZ).is_ok_and(|now| now < size);
        // One that may not grow carries fewer bytes at a time, and all of them.
        if small && let Err(error) = fcntl(pipe, FcntlArg::F_SETPIPE_SZ(size)) {
            tracing::debug!("a pipe keeps its size: {error}");
        }
    }

    /// Writes as much as the program takes now.
    pub(super) fn flush(&mut self) {
        while !self.waiting.is_empty() {
            match rustix::io::write(&self.descriptor, &self.waiting) {
                Ok(count) => drop(self.waiting.drain(..count)),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => self.waiting.clear(),
            }
        }
        self.waiting.shrink_to(4096);
    }

    /// Tells a terminal its size; nothing for a pipe.
    pub(super) fn resize(&self, size: TerminalSize) {
        if self.is_terminal {
            let window = libc::winsize {
                ws_row: size.rows,
                ws_col: size.columns,
                ws_xpixel: 0,
                ws_ypixel: 0,
            };
            // SAFETY: the structure outlives the call. A terminal that is gone needs no size.
            unsafe {
                libc::ioctl(
                    self.descriptor.as_raw_fd(),
                    libc::TIOCSWINSZ,
                    &raw const window,
                )
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scrollback_keeps_the_newest_bytes_in_order() {
        let mut scrollback = Scrollback::default();
        let mut all = Vec::new();
        for number in 0..60_000u32 {
            let line = format!("{number}\n");
            scrollback.add(line.as_bytes());
            all.extend_from_slice(line.as_bytes());
        }
        assert_eq!(scrollback.replay(), all[all.len() - SCROLLBACK_BYTES..]);
        scrollback.add(&vec![b'z'; SCROLLBACK_BYTES * 3]);
        assert_eq!(scrollback.replay(), vec![b'z'; SCROLLBACK_BYTES]);
    }

    #[test]
    fn a_reader_that_is_too_slow_gets_the_oldest_whole_line_that_is_kept() {
        let mut scrollback = Scrollback::default();
        scrollback.add(b"one\ntwo\n");
        let piece = scrollback.after(4, 64);
        assert_eq!(
            (piece.skipped, &piece.bytes[..], piece.end),
            (0, &b"two\n"[..], 8)
        );
        assert_eq!(scrollback.after(8, 64).bytes, b"");
        for number in 0..60_000u32 {
            scrollback.add(format!("{number}\n").as_bytes());
        }
        let mut place = 8;
        let first = scrollback.after(place, 1000);
        assert!(first.skipped > 0 && first.bytes.len() == 1000);
        assert_eq!(place + first.skipped + 1000, first.end);
        let mut heard = Vec::new();
        let mut skipped = 0;
        while place < scrollback.end() {
            let piece = scrollback.after(place, 1000);
            skipped += piece.skipped;
            place = piece.end;
            heard.extend(piece.bytes);
        }
        let text = String::from_utf8(heard).expect("numbers");
        let begin: u32 = text
            .lines()
            .next()
            .and_then(|line| line.parse().ok())
            .expect("a whole line");
        let wanted: String = (begin..60_000)
            .map(|number| format!("{number}\n"))
            .collect();
        assert!(text == wanted, "lines are missing or cut behind {begin}");
        assert_eq!(8 + skipped + text.len() as u64, scrollback.end());
    }

    #[test]
    fn input_that_no_program_reads_is_kept_up_to_its_bound() {
        let (read, write) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let mut line = ProgramStream::new(write.into(), false).expect("a line");
        let mut typed = 0;
        // The other end itself takes some first.
        while line.waiting() < WAITING_INPUT {
            line.say(&[b'x'; 1000]);
            typed += 1000;
            assert!(typed < 4 * WAITING_INPUT, "what is beyond is kept");
        }
        assert_eq!(line.waiting(), WAITING_INPUT);
        line.say(b"lost");
        assert_eq!(line.waiting(), WAITING_INPUT);
        read.set_nonblocking(true).expect("set");
        let (mut heard, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            match rustix::io::read(&read, &mut buffer) {
                Ok(count) => heard.extend_from_slice(&buffer[..count]),
                Err(_) if !line.wants_to_write() => break,
                Err(_) => line.flush(),
            }
        }
        assert!(heard.len() <= typed && heard.iter().all(|letter| *letter == b'x'));
    }
}
