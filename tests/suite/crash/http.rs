//! The smallest HTTP client that can speak to the server's own socket: one request a connection,
//! the whole answer in memory. Never retries; a broken connection is the caller's to judge.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

/// Longer than any answer takes on a loaded machine; only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(30);

/// An answer that arrived whole, so the server stands by it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as JSON; null where it is none.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    pub(crate) fn is_good(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// Sends one request over the socket at `socket`. An error means that nobody knows whether the
/// server did it.
pub(crate) fn call(
    socket: &Path,
    method: &str,
    path: &str,
    key: Option<&str>,
    body: Option<&Value>,
) -> io::Result<Answer> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let body = body.map(Value::to_string).unwrap_or_default();
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nhost: box\r\nconnection: close\r\ncontent-length: {}\r\n",
        body.len()
    );
    if !body.is_empty() {
        head.push_str("content-type: application/json\r\n");
    }
    if let Some(key) = key {
        head.push_str(&format!("idempotency-key: {key}\r\n"));
    }
    stream.write_all(format!("{head}\r\n{body}").as_bytes())?;
    let mut all = Vec::new();
    stream.read_to_end(&mut all)?;
    parse(&all)
}

fn parse(all: &[u8]) -> io::Result<Answer> {
    let cut = || io::Error::new(io::ErrorKind::UnexpectedEof, "the answer was cut off");
    let end = all
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .ok_or_else(cut)?;
    let head = String::from_utf8_lossy(&all[..end]).to_ascii_lowercase();
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .ok_or_else(cut)?;
    let rest = &all[end + 4..];
    let header = |name: &str| {
        head.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
    };
    let body = if header("transfer-encoding") == Some("chunked") {
        unchunk(rest).ok_or_else(cut)?
    } else {
        let length: usize = header("content-length")
            .and_then(|text| text.parse().ok())
            .unwrap_or(0);
        rest.get(..length).ok_or_else(cut)?.to_vec()
    };
    Ok(Answer { status, body })
}

/// The bytes of a chunked body; None where its last chunk is missing.
fn unchunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|two| two == b"\r\n")?;
        let size =
            usize::from_str_radix(std::str::from_utf8(&rest[..line]).ok()?.trim(), 16).ok()?;
        rest = &rest[line + 2..];
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size + 2..)?;
    }
}
