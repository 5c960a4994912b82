//! Refuses a bare LF where HTTP/1 frames a request: in its head, between its chunks and in its trailer. RFC 9112
//! (2.2) lets a recipient take it for the end of a line, and the HTTP library does, without a switch. A proxy in
//! front that does not would see other requests than this server, so one client could hide requests behind
//! another's. The bytes are only followed: each bare LF becomes a NUL, which the library refuses with 400.

use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that are kept of a line, without its blanks: enough for each line that frames a body. A
/// `Content-Length` that is longer is refused, and so is the length of a chunk.
const KEPT: usize = 64;
/// How the first line of HTTP/2 begins, without its blanks.
const HTTP2: &[u8] = b"PRI*HTTP/2.0";

/// What the next byte belongs to.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    /// The head of a request. `began`: its first line was seen, so an empty line ends it.
    Head { began: bool },
    /// So many bytes of a body, or of a chunk with the end of its line.
    Bytes { left: u64, chunked: bool },
    /// The line before a chunk, which tells its length.
    ChunkSize,
    /// The lines after the last chunk.
    Trailer,
    /// Nothing of HTTP/1 follows.
    Other,
}

/// What the head has told about its body.
#[derive(Default)]
struct Framing {
    length: u64,
    chunked: bool,
}

/// Follows the bytes of one connection. Time: O(bytes of heads), of most of them to find the end of their line; bodies are
/// skipped. Memory: one short line.
struct Lines {
    part: Part,
    framing: Framing,
    /// The line so far, in lower case but for HTTP/2, without blanks.
    line: Vec<u8>,
    /// Whether the line had more bytes than are kept.
    long: bool,
    before: u8,
    first: bool,
}

impl Lines {
    fn new() -> Self {
        Self {
            part: Part::Head { began: false },
            framing: Framing::default(),
            line: Vec::new(),
            long: false,
            before: 0,
            first: true,
        }
    }

    /// Follows bytes that came, and makes each bare LF a NUL.
    fn follow(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            match &mut self.part {
                Part::Other => return,
                Part::Bytes { left, chunked } => {
                    let here =
                        usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                    *left -= here as u64;
                    if *left == 0 {
                        self.part = match chunked {
                            true => Part::ChunkSize,
                            false => Part::Head { began: false },
                        };
                    }
                    bytes = &mut bytes[here..];
                }
                Part::Head { .. } | Part::ChunkSize | Part::Trailer => {
                    let passed = self.passed_over(bytes);
                    if passed > 0 {
                        bytes = &mut bytes[passed..];
                        continue;
                    }
                    let (byte, rest) = bytes.split_at_mut(1);
                    self.of_a_line(&mut byte[0]);
                    bytes = rest;
                }
            }
        }
    }

    /// How many bytes come before the next LF where the rest of the line cannot matter: it is a field that frames no body,
    /// or longer than what is kept. Most bytes of a head are such, and a request is not to pay for each of them.
    fn passed_over(&mut self, bytes: &[u8]) -> usize {
        let is_field = matches!(self.part, Part::Head { began: true });
        let frames = |first: &u8| matches!(first, b'c' | b'C' | b't' | b'T');
        let is_other = is_field && self.line.first().is_some_and(|first| !frames(first));
        if !is_other && !self.long {
            return 0;
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let passed = &bytes[..end.unwrap_or(bytes.len())];
        if let Some(last) = passed.last() {
            self.before = *last;
        }
        passed.len()
    }

    fn of_a_line(&mut self, byte: &mut u8) {
        match *byte {
            b'\n' if self.before != b'\r' => *byte = 0,
            b'\n' => {
                if !self.ended() {
                    *byte = 0;
                }
                self.line.clear();
                self.long = false;
            }
            b' ' | b'\t' | b'\r' => {}
            _ if self.line.len() == KEPT => self.long = true,
            other => self.line.push(other),
        }
        self.before = *byte;
    }

    /// Takes a whole line; false when it cannot be followed and is to be refused.
    fn ended(&mut self) -> bool {
        match self.part {
            Part::Head { began: false } if self.line.is_empty() => true,
            Part::Head { began: false } => {
                let first = mem::replace(&mut self.first, false);
                self.part = match first && self.line == HTTP2 {
                    true => Part::Other,
                    false => Part::Head { began: true },
                };
                true
            }
            Part::Head { began: true } if self.line.is_empty() => {
                let framing = mem::take(&mut self.framing);
                self.part = match framing {
                    Framing { chunked: true, .. } => Part::ChunkSize,
                    Framing { length: 0, .. } => Part::Head { began: false },
                    Framing { length, .. } => Part::Bytes {
                        left: length,
                        chunked: false,
                    },
                };
                true
            }
            Part::Head { began: true } => self.field(),
            Part::ChunkSize => self.chunk(),
            Part::Trailer => {
                if self.line.is_empty() {
                    self.part = Part::Head { began: false };
                }
                true
            }
            Part::Bytes { .. } | Part::Other => true,
        }
    }

    fn field(&mut self) -> bool {
        self.line.make_ascii_lowercase();
        if self.line.starts_with(b"transfer-encoding:") {
            self.framing.chunked = true;
        } else if let Some(length) = self.line.strip_prefix(b"content-length:") {
            let length = str::from_utf8(length)
                .ok()
                .and_then(|text| text.parse().ok());
            match length {
                Some(length) if !self.long => self.framing.length = length,
                _ => return false,
            }
        }
        true
    }

    fn chunk(&mut self) -> bool {
        if self.long && !self.line.contains(&b';') {
            // Digits are missing: the library reads them all, zeros before them too.
            return false;
        }
        let digits = self.line.split(|byte| *byte == b';').next();
        let size = digits
            .and_then(|digits| str::from_utf8(digits).ok())
            .and_then(|digits| u64::from_str_radix(digits, 16).ok());
        self.part = match size {
            Some(0) => Part::Trailer,
            // With the end of its line.
            Some(size) if size < u64::MAX - 2 => Part::Bytes {
                left: size + 2,
                chunked: true,
            },
            _ => return false,
        };
        true
    }
}

/// A connection whose bytes are followed.
pub(super) struct StrictLines<S> {
    stream: S,
    lines: Lines,
    /// Set when the connection carries something else than requests.
    upgraded: Arc<AtomicBool>,
}

impl<S> StrictLines<S> {
    pub(super) fn new(stream: S, upgraded: Arc<AtomicBool>) -> Self {
        Self {
            stream,
            lines: Lines::new(),
            upgraded,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StrictLines<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        if this.upgraded.load(Ordering::Acquire) {
            this.lines.part = Part::Other;
        }
        this.lines.follow(&mut buffer.filled_mut()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StrictLines<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::{KEPT, Lines, Part};

    /// Feeds `text` in pieces of `size` bytes; returns what the library would read.
    fn read(text: &str, size: usize) -> String {
        let mut lines = Lines::new();
        let mut bytes = text.as_bytes().to_vec();
        for piece in bytes.chunks_mut(size) {
            lines.follow(piece);
        }
        String::from_utf8(bytes).expect("still text")
    }

    /// In pieces of every size it is the same.
    fn each(text: &str, expected: &str) {
        for size in 1..=text.len() {
            assert_eq!(read(text, size), expected, "in pieces of {size}");
        }
    }

    #[test]
    fn a_bare_lf_is_replaced_wherever_a_request_is_framed() {
        for (text, expected) in [
            (
                "GET / HTTP/1.1\nHost: a\r\n\r\n",
                "GET / HTTP/1.1\0Host: a\r\n\r\n",
            ),
            (
                "GET / HTTP/1.1\r\nHost: a\n\r\n",
                "GET / HTTP/1.1\r\nHost: a\0\r\n",
            ),
            (
                "GET / HTTP/1.1\r\nHost: a\r\n\n",
                "GET / HTTP/1.1\r\nHost: a\r\n\0",
            ),
            ("\nGET / HTTP/1.1\r\n\r\n", "\0GET / HTTP/1.1\r\n\r\n"),
            // Behind a request without a body, one with a length and one in chunks.
            (
                "\r\nGET / HTTP/1.1\r\n\r\nGET /\n",
                "\r\nGET / HTTP/1.1\r\n\r\nGET /\0",
            ),
            (
                "POST / HTTP/1.1\r\ncontent-LENGTH:  3 \r\n\r\na\n\nGET /\n",
                "POST / HTTP/1.1\r\ncontent-LENGTH:  3 \r\n\r\na\n\nGET /\0",
            ),
            (
                "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, Chunked\r\nContent-Length: 1\r\n\r\nA;x=y\r\n\n2345678\n0\r\n0\r\nx: y\n\r\n\r\nGET /\n",
                "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, Chunked\r\nContent-Length: 1\r\n\r\nA;x=y\r\n\n2345678\n0\r\n0\r\nx: y\0\r\n\r\nGET /\0",
            ),
            // Fields whose rest cannot matter, and one that is longer than what is kept.
            (
                "GET / HTTP/1.1\r\nAccept: a\nb\r\nCookie: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\nx\r\n\n\r\n\r\n",
                "GET / HTTP/1.1\r\nAccept: a\0b\r\nCookie: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\0x\r\n\0\r\n\r\n",
            ),
            (
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\na",
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\0a",
            ),
        ] {
            each(text, expected);
        }
    }

    #[test]
    fn a_length_that_cannot_be_followed_is_refused() {
        for length in ["", "x", "-1", "18446744073709551616", &"0".repeat(90)] {
            let text = format!("POST / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n");
            assert!(read(&text, 7).contains("\r\0"), "{length}");
        }
        let chunk = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n";
        assert!(read(chunk, 7).ends_with('\0'));
        let zeros = "0".repeat(KEPT);
        for (line, is_refused) in [(format!("{zeros}5"), true), (format!("5;{zeros}"), false)] {
            let chunk = format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{line}\r\n");
            assert_eq!(read(&chunk, 7).ends_with('\0'), is_refused, "{line}");
        }
    }

    #[test]
    fn another_protocol_is_let_pass() {
        let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\n\0\n";
        each(preface, preface);
        // Not later: HTTP/2 begins with its first line.
        let later = "GET / HTTP/1.1\r\n\r\nPRI * HTTP/2.0\r\n\n";
        assert!(read(later, 9).ends_with('\0'));
        let mut lines = Lines::new();
        lines.part = Part::Other;
        let mut bytes = *b"\n\n";
        lines.follow(&mut bytes);
        assert_eq!(&bytes, b"\n\n");
    }
}
