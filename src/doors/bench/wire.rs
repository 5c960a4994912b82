//! One kept-alive HTTP/1.1 connection, blocking: what a measuring client needs and nothing that
//! would cost more than what it measures. Never retries.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

/// Longer than any answer may take; only a hang reaches it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Where a server listens.
#[derive(Debug, Clone)]
pub enum BenchAddress {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

pub struct Connection {
    stream: BufReader<Box<dyn Stream>>,
    /// Sent with every request: cookies, encodings.
    headers: String,
}

/// An answer, with what came over the wire counted.
#[derive(Debug)]
pub struct MeasuredAnswer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl MeasuredAnswer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    pub fn is_good(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Value of a header; its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// The body, or the text of the refusal.
    pub fn good(self, what: &str) -> io::Result<Self> {
        if self.is_good() {
            return Ok(self);
        }
        let said = String::from_utf8_lossy(&self.body).into_owned();
        Err(io::Error::other(format!("{what}: {} {said}", self.status)))
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
}

impl Connection {
    pub fn open(address: &BenchAddress, headers: &[(&str, &str)]) -> io::Result<Self> {
        let stream: Box<dyn Stream> = match address {
            BenchAddress::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
                Box::new(stream)
            }
            BenchAddress::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
        };
        let headers = headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        Ok(Self {
            stream: BufReader::new(stream),
            headers,
        })
    }

    pub fn get(&mut self, path: &str) -> io::Result<MeasuredAnswer> {
        self.call("GET", path, None)
    }

    pub fn post(&mut self, path: &str, body: &Value) -> io::Result<MeasuredAnswer> {
        self.call("POST", path, Some(body))
    }

    /// Sends a form as a browser does.
    pub fn form(&mut self, path: &str, body: &str) -> io::Result<MeasuredAnswer> {
        self.send(
            "POST",
            path,
            "content-type: application/x-www-form-urlencoded\r\n",
            body,
        )
    }

    fn call(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> io::Result<MeasuredAnswer> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let kind = if body.is_empty() {
            ""
        } else {
            "content-type: application/json\r\n"
        };
        self.send(method, path, kind, &body)
    }

    /// Sends a body as it is; `kind` has its header lines, each with its end.
    pub fn send(
        &mut self,
        method: &str,
        path: &str,
        kind: &str,
        body: &str,
    ) -> io::Result<MeasuredAnswer> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{}{kind}content-length: {}\r\n\r\n{body}",
            self.headers,
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<MeasuredAnswer> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.stream.read_line(&mut head)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|word| word.parse().ok())
            .ok_or_else(|| io::Error::other("no status line"))?;
        let chunked = header(&head, "transfer-encoding").is_some_and(|v| v == "chunked");
        let body = if chunked {
            self.chunks()?
        } else {
            let length = header(&head, "content-length")
                .and_then(|text| text.parse().ok())
                .unwrap_or(0);
            let mut body = vec![0; length];
            self.stream.read_exact(&mut body)?;
            body
        };
        Ok(MeasuredAnswer { status, head, body })
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line)?;
            let size = usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
            let from = body.len();
            body.resize(from + size, 0);
            self.stream.read_exact(&mut body[from..])?;
            self.stream.read_line(&mut String::new())?;
            if size == 0 {
                return Ok(body);
            }
        }
    }
}
