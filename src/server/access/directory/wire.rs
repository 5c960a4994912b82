//! Carries a conversation with a directory to the parser of LDAP: TLS first, then whole messages of a bounded size and
//! depth. The parser goes one step deeper for each element within another and keeps whatever comes, so what would exhaust
//! stack or memory ends here. Knows nothing of what is asked.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::tls::client::server_name;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::{DirectoryFault, Plan};

/// Bytes that a directory may send in one conversation. Higher: a lying one takes more memory, times the sign-ins at once.
/// Lower: users with many groups are refused.
const MAX_CONVERSATION_BYTES: usize = 4 << 20;
/// Elements within each other. An entry with its values has five.
const MAX_ELEMENT_DEPTH: usize = 16;
/// The first message of a conversation: an extended request (RFC 4511) by the name of StartTLS.
const START_TLS: &[u8] = b"\x30\x1d\x02\x01\x01\x77\x18\x80\x161.3.6.1.4.1.1466.20037";
/// The tags of an extended response and of a result code.
const EXTENDED_RESPONSE: u8 = 0x78;
const RESULT_CODE: u8 = 0x0a;

/// A conversation under way; what carries it ends with this.
#[derive(Default)]
pub(super) struct DirectoryWire {
    tasks: JoinSet<()>,
    too_long: Arc<AtomicBool>,
}

impl DirectoryWire {
    /// The parser's end of a conversation on `stream`, over TLS where the plan says so.
    ///
    /// Errors: `DirectoryFault::Connection` for a certificate that is not the directory's; `DirectoryFault::Answer` for a
    /// directory without StartTLS.
    pub(super) async fn carry(
        &mut self,
        plan: &Plan,
        mut stream: TcpStream,
    ) -> Result<std::os::unix::net::UnixStream, DirectoryFault> {
        let (ours, parsers) = UnixStream::pair()?;
        match &plan.tls {
            None => self.join(stream, ours),
            Some(tls) => {
                if !plan.url.encrypted {
                    start_tls(&mut stream).await?;
                }
                let name = server_name(&plan.url.host).ok_or(DirectoryFault::Unknown)?;
                let connector = TlsConnector::from(Arc::clone(tls));
                let stream = connector.connect(name, stream).await?;
                self.join(stream, ours);
            }
        }
        Ok(parsers.into_std()?)
    }

    /// Runs beside the conversation, and no longer.
    pub(super) fn run(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Whether the directory sent more than it may.
    pub(super) fn was_too_long(&self) -> bool {
        self.too_long.load(Ordering::Relaxed)
    }

    fn join<S>(&mut self, directory: S, ours: UnixStream)
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let too_long = Arc::clone(&self.too_long);
        let (mut from_directory, mut to_directory) = tokio::io::split(directory);
        let (mut from_parser, mut to_parser) = ours.into_split();
        self.run(async move {
            // A conversation that is broken off shows in the answer that does not come.
            let _ = tokio::io::copy(&mut from_parser, &mut to_directory).await;
        });
        self.run(async move {
            let mut left = MAX_CONVERSATION_BYTES;
            loop {
                match message(&mut from_directory, left).await {
                    Ok(Some(bytes)) => {
                        left -= bytes.len();
                        if to_parser.write_all(&bytes).await.is_err() {
                            return;
                        }
                    }
                    Ok(None) => {
                        too_long.store(true, Ordering::Relaxed);
                        return;
                    }
                    Err(_) => return,
                }
            }
        });
    }
}

/// Asks for TLS and reads the answer, and no byte behind it.
async fn start_tls(stream: &mut TcpStream) -> Result<(), DirectoryFault> {
    stream.write_all(START_TLS).await?;
    let answer = message(stream, MAX_CONVERSATION_BYTES).await?;
    let result = answer.as_deref().and_then(start_tls_result);
    match result {
        Some(0) => Ok(()),
        Some(other) => Err(DirectoryFault::Answer(other.into())),
        None => Err(DirectoryFault::Broken),
    }
}

/// What an extended response says; None of anything else.
fn start_tls_result(answer: &[u8]) -> Option<u8> {
    let all = answer.len();
    let (id, _) = content(answer, 0, all)?;
    let (_, response) = content(answer, id, all)?;
    if answer.get(response) != Some(&EXTENDED_RESPONSE) {
        return None;
    }
    let (first, _) = content(answer, response, all)?;
    if answer.get(first) != Some(&RESULT_CODE) {
        return None;
    }
    let (start, end) = content(answer, first, all)?;
    match answer.get(start..end)? {
        [result] => Some(*result),
        _ => None,
    }
}

/// One whole message; None for one that is longer than `left`. Errors: the end of the stream, and what is no message.
async fn message(from: &mut (impl AsyncRead + Unpin), left: usize) -> io::Result<Option<Vec<u8>>> {
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    let mut bytes = vec![0; 2];
    from.read_exact(&mut bytes).await?;
    let more = match bytes[1] {
        0..=127 => 0,
        wide @ 0x81..=0x84 => usize::from(wide - 0x80),
        _ => return Err(wrong()),
    };
    let mut length = usize::from(bytes[1]);
    if more > 0 {
        bytes.resize(2 + more, 0);
        from.read_exact(&mut bytes[2..]).await?;
        length = number(&bytes[2..]);
    }
    let start = bytes.len();
    if start + length > left {
        return Ok(None);
    }
    bytes.resize(start + length, 0);
    from.read_exact(&mut bytes[start..]).await?;
    match is_shallow(&bytes) {
        true => Ok(Some(bytes)),
        false => Err(wrong()),
    }
}

/// Whether every element ends where the one around it does at the latest, and none is deeper than the bound.
fn is_shallow(bytes: &[u8]) -> bool {
    // Where those end that are open.
    let mut open: Vec<usize> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        while open.last() == Some(&at) {
            open.pop();
        }
        let within = open.last().copied().unwrap_or(bytes.len());
        let Some((start, end)) = content(bytes, at, within) else {
            return false;
        };
        let has_elements = bytes[at] & 0x20 != 0;
        if !has_elements {
            at = end;
            continue;
        }
        open.push(end);
        if open.len() > MAX_ELEMENT_DEPTH {
            return false;
        }
        at = start;
    }
    true
}

/// Where the content of the element at `at` begins and ends; None where that is not before `within`.
fn content(bytes: &[u8], at: usize, within: usize) -> Option<(usize, usize)> {
    let length = *bytes.get(at + 1)?;
    let (start, length) = match length {
        0..=127 => (at + 2, usize::from(length)),
        0x81..=0x84 => {
            let start = at + 2 + usize::from(length - 0x80);
            (start, number(bytes.get(at + 2..start)?))
        }
        _ => return None,
    };
    let end = start + length;
    (end <= within).then_some((start, end))
}

/// A number of at most four bytes.
fn number(bytes: &[u8]) -> usize {
    let digit = |sum: usize, byte: &u8| (sum << 8) | usize::from(*byte);
    bytes.iter().fold(0, digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag, 0x83];
        bytes.extend(&u32::try_from(content.len()).unwrap().to_be_bytes()[1..]);
        bytes.extend(content);
        bytes
    }

    fn deep(levels: usize) -> Vec<u8> {
        (0..levels).fold(Vec::new(), |inner, _| wrapped(0x30, &inner))
    }

    #[tokio::test]
    async fn what_is_too_deep_or_too_long_reaches_no_parser() {
        let read = async |bytes: &[u8], left| message(&mut &*bytes, left).await;
        let shallow = deep(MAX_ELEMENT_DEPTH);
        let whole = read(&shallow, shallow.len()).await.unwrap();
        assert_eq!(whole.as_deref(), Some(shallow.as_slice()));
        let longer = read(&shallow, shallow.len() - 1).await.unwrap();
        assert_eq!(longer, None);
        let too_deep = deep(MAX_ELEMENT_DEPTH + 1);
        assert!(read(&too_deep, 1 << 20).await.is_err());
        let far_too_deep = deep(10_000);
        assert!(read(&far_too_deep, 1 << 20).await.is_err());
        // One after another is no depth.
        let many = wrapped(0x30, &deep(2).repeat(1000));
        assert!(read(&many, 1 << 20).await.unwrap().is_some());
        let announced = [0x30, 0x84, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(read(&announced, 1 << 20).await.unwrap(), None);
        for bad in [
            // Without an end, cut off, and longer than what is around it.
            &[0x30, 0x80, 0, 0][..],
            &[0x30, 3, 4, 1],
            &[0x30, 3, 4, 2, 0],
            &[0x30, 1, 4],
        ] {
            assert!(read(bad, 1 << 20).await.is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_answer_to_start_tls_is_a_result() {
        let answer = |tag, result| {
            let said = [0x0a, 1, result, 4, 0, 4, 0];
            wrapped(0x30, &[vec![2, 1, 1], wrapped(tag, &said)].concat())
        };
        assert_eq!(start_tls_result(&answer(0x78, 0)), Some(0));
        assert_eq!(start_tls_result(&answer(0x78, 2)), Some(2));
        assert_eq!(start_tls_result(&answer(0x61, 0)), None, "of a bind");
        assert_eq!(start_tls_result(&[0x30, 0]), None);
        assert!(is_shallow(START_TLS));
    }
}
