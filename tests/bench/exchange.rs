//! One HTTP/1.1 connection, plain or under TLS, that streams what it sends and what it takes: bytes are counted and thrown
//! away. The same client for the product and for its peers; it does nothing that would cost more than what it measures.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use base::tls::client::{CertificateCapture, server_name};
use rustls::{ClientConnection, StreamOwned};

/// Longer than any one read may wait; only a hang reaches it.
const READ_TIMEOUT: Duration = Duration::from_secs(300);
/// Bytes of one read of a body.
const PIECE: usize = 256 << 10;

trait ByteWire: Read + Write + Send {}
impl<T: Read + Write + Send> ByteWire for T {}

pub(super) struct Exchange {
    wire: BufReader<Box<dyn ByteWire>>,
    /// What is thrown away.
    buffer: Vec<u8>,
    /// As the requests name it, with its port.
    pub(super) host: String,
}

/// What was answered, its body thrown away.
#[derive(Debug)]
pub(super) struct CountedAnswer {
    pub(super) status: u16,
    pub(super) head: String,
    /// Bytes of the body, with the sizes between the pieces of one that comes in pieces.
    pub(super) bytes: u64,
}

impl CountedAnswer {
    /// The value of a header; its name in lower case.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// Errors: any status but this one.
    pub(super) fn with_status(self, status: u16, what: &str) -> io::Result<Self> {
        match self.status == status {
            true => Ok(self),
            false => Err(io::Error::other(format!("{what}: {}", self.head))),
        }
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
}

impl Exchange {
    pub(super) fn plain(address: SocketAddr) -> io::Result<Self> {
        Ok(Self::over(address, Box::new(connected(address)?)))
    }

    /// Under TLS; any certificate is taken.
    pub(super) fn encrypted(address: SocketAddr) -> io::Result<Self> {
        let config = CertificateCapture::new()
            .config()
            .map_err(|error| io::Error::other(error.to_string()))?;
        let name = server_name(&address.ip().to_string())
            .ok_or_else(|| io::Error::other("an address is no name of a server"))?;
        let tls = ClientConnection::new(config, name).map_err(io::Error::other)?;
        let wire = StreamOwned::new(tls, connected(address)?);
        Ok(Self::over(address, Box::new(wire)))
    }

    fn over(address: SocketAddr, wire: Box<dyn ByteWire>) -> Self {
        Self {
            wire: BufReader::new(wire),
            buffer: vec![0; PIECE],
            host: address.to_string(),
        }
    }

    /// Sends a request without a body and takes the answer; `more` has header lines, each with its end.
    pub(super) fn get(&mut self, path: &str, more: &str) -> io::Result<CountedAnswer> {
        self.begin("GET", path, more)?;
        self.answer()
    }

    /// Sends `bytes` of a body, `piece` after `piece`, and takes the answer.
    pub(super) fn send(
        &mut self,
        method: &str,
        path: &str,
        more: &str,
        (bytes, piece): (u64, &[u8]),
    ) -> io::Result<CountedAnswer> {
        self.begin(method, path, &format!("{more}content-length: {bytes}\r\n"))?;
        let mut left = bytes;
        while left > 0 {
            let now = left.min(piece.len() as u64);
            self.wire.get_mut().write_all(&piece[..now as usize])?;
            left -= now;
        }
        self.wire.get_mut().flush()?;
        self.answer()
    }

    fn begin(&mut self, method: &str, path: &str, more: &str) -> io::Result<()> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\n{more}\r\n",
            self.host
        );
        self.wire.get_mut().write_all(request.as_bytes())?;
        self.wire.get_mut().flush()
    }

    fn answer(&mut self) -> io::Result<CountedAnswer> {
        let head = self.head()?;
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.ok_or_else(|| io::Error::other("no status line"))?;
        let is_empty = matches!(status, 101 | 204 | 304);
        let length = header(&head, "content-length").and_then(|text| text.parse().ok());
        let bytes = match length {
            _ if is_empty => 0,
            Some(length) => self.take(length)?,
            None if header(&head, "transfer-encoding") == Some("chunked") => self.pieces()?,
            None => self.take(u64::MAX)?,
        };
        Ok(CountedAnswer {
            status,
            head,
            bytes,
        })
    }

    fn head(&mut self) -> io::Result<String> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.wire.read_line(&mut head)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(head)
    }

    /// Takes so many bytes, or all until the end where they are without one.
    fn take(&mut self, length: u64) -> io::Result<u64> {
        let mut taken = 0;
        while taken < length {
            let now = (length - taken).min(PIECE as u64) as usize;
            let read = self.wire.read(&mut self.buffer[..now])?;
            if read == 0 && length == u64::MAX {
                return Ok(taken);
            }
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            taken += read as u64;
        }
        Ok(taken)
    }

    fn pieces(&mut self) -> io::Result<u64> {
        let mut taken = 0;
        loop {
            let mut line = String::new();
            self.wire.read_line(&mut line)?;
            let size = u64::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
            taken += self.take(size)?;
            self.wire.read_line(&mut String::new())?;
            if size == 0 {
                return Ok(taken);
            }
        }
    }

    /// Writes bytes as they are, for a protocol that was changed to.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.wire.get_mut().write_all(bytes)
    }

    /// Fills the buffer, for a protocol that was changed to.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        self.wire.read_exact(buffer)
    }
}

fn connected(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Bytes that no compression and no disk makes less of.
pub(super) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut all = Vec::with_capacity(length + 8);
    while all.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        all.extend(state.to_le_bytes());
    }
    all.truncate(length);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A server that gives these bytes to one client, without a look at what it asks.
    fn answering(said: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            while request.read_line(&mut line).unwrap() > 2 {
                line.clear();
            }
            stream.write_all(said.as_bytes()).unwrap();
        });
        address
    }

    #[test]
    fn bodies_are_counted_by_their_length_in_pieces_and_until_the_end() {
        for (said, bytes) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc", 3),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
                5,
            ),
            ("HTTP/1.1 200 OK\r\n\r\nabcd", 4),
            ("HTTP/1.1 204 No Content\r\n\r\n", 0),
        ] {
            let mut exchange = Exchange::plain(answering(said)).unwrap();
            let answer = exchange.get("/", "").unwrap();
            assert_eq!(answer.bytes, bytes, "{said}");
        }
        let cut = answering("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc");
        assert!(Exchange::plain(cut).unwrap().get("/", "").is_err());
    }

    #[test]
    fn noise_has_the_length_that_was_asked_for() {
        assert_eq!(noise(13).len(), 13);
        assert_ne!(noise(64)[..32], noise(64)[32..]);
    }
}
