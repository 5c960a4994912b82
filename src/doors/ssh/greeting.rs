//! Hears which ciphers a client offers before this side says which it takes. In SSH the client's order decides, and
//! OpenSSH's has ChaCha20 first, which takes several times the processor of AES where that is computed by the processor
//! itself. A client that offers both is left AES; every other gets the whole list. Takes no cipher that was not offered.

use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use russh::server::{Config, RunningSession, run_stream};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::time::timeout;

use super::handler::SshHandler;

/// What this side calls itself.
pub(super) const IDENTIFICATION: &str = "SSH-2.0-fardel";
/// The end of that line.
const LINE_END: &str = "\r\n";
/// What a client calls itself that says what it offers without waiting for us, and has ChaCha20 first. Others are not
/// waited for.
const KNOWN: &[u8] = b"SSH-2.0-OpenSSH_";
/// The cipher that is taken where the processor computes it.
const QUICK: &str = "aes256-gcm@openssh.com";
/// How long the client may take to say what it offers. Longer: one that waits for us begins later. Shorter: a client far
/// away gets the slower cipher.
const HELLO_TIMEOUT: Duration = Duration::from_millis(500);
/// Bytes that are heard ahead: a line and the largest packet that RFC 4253 asks for. Higher: strangers hold more memory.
/// Lower: a client with long lists gets the slower cipher.
const MAX_HEARD: usize = 255 + 35_000;
/// How many are read at a time.
const PIECE: usize = 4096;
/// The message that has the lists, the random bytes before them, and which of them name ciphers.
const KEX_INIT: u8 = 20;
/// See `KEX_INIT`.
const COOKIE_BYTES: usize = 16;
/// See `KEX_INIT`.
const CIPHER_LISTS: std::ops::Range<usize> = 2..4;

/// What connections are carried by.
pub(super) struct SshConfigs {
    /// For every client.
    pub(super) whole: Arc<Config>,
    /// For those that offer `QUICK`; None where this processor does not compute it.
    pub(super) quick: Option<Arc<Config>>,
}

/// Begins the protocol on a stream, with what suits its client.
pub(super) async fn begin<S>(
    configs: &SshConfigs,
    stream: S,
    handler: SshHandler,
) -> Result<RunningSession<SshHandler>, russh::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (stream, offers_quick) = greet(stream, configs.quick.is_some()).await?;
    let quick = configs.quick.as_ref().filter(|_| offers_quick);
    let config = Arc::clone(quick.unwrap_or(&configs.whole));
    run_stream(config, stream, handler).await
}

/// Whether this processor computes AES and what its GCM adds.
#[cfg(target_arch = "x86_64")]
pub(super) fn computes_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq")
}

/// Whether this processor computes AES and what its GCM adds.
#[cfg(target_arch = "aarch64")]
pub(super) fn computes_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull")
}

/// Of other processors it is not known.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) fn computes_aes() -> bool {
    false
}

/// Says who we are and, where asked, hears whether the client offers `QUICK`. What was heard is heard again by the protocol,
/// and what was said is not said twice.
async fn greet<S>(mut stream: S, asks: bool) -> io::Result<(GreetedStream<S>, bool)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let line = [IDENTIFICATION, LINE_END].concat();
    stream.write_all(line.as_bytes()).await?;
    let mut heard = Vec::new();
    let mut offers = false;
    if asks {
        // Who is late is heard by the protocol.
        let told = timeout(HELLO_TIMEOUT, hear(&mut stream, &mut heard)).await;
        offers = told.unwrap_or(Ok(false))?;
    }
    let greeted = GreetedStream {
        stream,
        heard,
        taken: 0,
        said: line.len(),
    };
    Ok((greeted, offers))
}

/// Reads until it is known. May be dropped at any time: what was read stands in `heard`.
async fn hear<S: AsyncRead + Unpin>(stream: &mut S, heard: &mut Vec<u8>) -> io::Result<bool> {
    loop {
        match offers_quick(heard) {
            Some(offers) => return Ok(offers),
            None if heard.len() >= MAX_HEARD => return Ok(false),
            None => {}
        }
        heard.reserve(PIECE);
        let mut piece = (&mut *stream).take(PIECE as u64);
        if piece.read_buf(heard).await? == 0 {
            return Ok(false);
        }
    }
}

/// Whether a client offers `QUICK` both ways, by its first bytes; None where more of them have to be heard.
fn offers_quick(heard: &[u8]) -> Option<bool> {
    let known = heard.len().min(KNOWN.len());
    if heard[..known] != KNOWN[..known] {
        return Some(false);
    }
    let line = heard.iter().position(|byte| *byte == b'\n')?;
    let (length, rest) = heard[line + 1..].split_first_chunk::<4>()?;
    let length = u32::from_be_bytes(*length) as usize;
    if length > MAX_HEARD {
        return Some(false);
    }
    let packet = rest.get(..length)?;
    Some(lists_quick(packet).unwrap_or(false))
}

/// Whether the lists in a packet name `QUICK` both ways; None where it has no lists.
fn lists_quick(packet: &[u8]) -> Option<bool> {
    // A byte for the padding, which stands behind the lists.
    let (kind, rest) = packet.get(1..)?.split_first()?;
    if *kind != KEX_INIT {
        return None;
    }
    let mut rest = rest.get(COOKIE_BYTES..)?;
    for number in 0..CIPHER_LISTS.end {
        let (length, behind) = rest.split_first_chunk::<4>()?;
        let length = u32::from_be_bytes(*length) as usize;
        let list = behind.get(..length)?;
        let mut names = list.split(|byte| *byte == b',');
        if CIPHER_LISTS.contains(&number) && !names.any(|name| name == QUICK.as_bytes()) {
            return Some(false);
        }
        rest = &behind[length..];
    }
    Some(true)
}

/// A stream whose first bytes were heard and on which our line was said.
struct GreetedStream<S> {
    stream: S,
    /// Forgotten once it is taken.
    heard: Vec<u8>,
    taken: usize,
    /// How many of the next bytes were said already.
    said: usize,
}

impl<S: AsyncRead + Unpin> AsyncRead for GreetedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.heard.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, into);
        }
        let left = &self.heard[self.taken..];
        let count = left.len().min(into.remaining());
        into.put_slice(&left[..count]);
        self.taken += count;
        if self.taken == self.heard.len() {
            drop(mem::take(&mut self.heard));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for GreetedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.said == 0 {
            return Pin::new(&mut self.stream).poll_write(context, bytes);
        }
        let count = self.said.min(bytes.len());
        self.said -= count;
        Poll::Ready(Ok(count))
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
    use tokio::io::duplex;

    use super::*;

    /// Longer than anything here takes on a loaded machine; only a hang reaches it.
    const HANG: Duration = Duration::from_secs(60);
    const CLIENT: &str = "SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n";

    /// What a client says first that offers these ciphers to us and from us.
    fn said(line: &str, to_us: &str, from_us: &str) -> Vec<u8> {
        let mut payload = vec![KEX_INIT];
        payload.extend([7; COOKIE_BYTES]);
        for list in ["curve25519-sha256", "ssh-ed25519", to_us, from_us, "", ""] {
            payload.extend(u32::try_from(list.len()).expect("short").to_be_bytes());
            payload.extend(list.as_bytes());
        }
        let mut all = line.as_bytes().to_vec();
        let length = u32::try_from(payload.len() + 5).expect("short");
        all.extend(length.to_be_bytes());
        all.push(4);
        all.extend(payload);
        all.extend([0; 4]);
        all
    }

    #[test]
    fn a_client_is_left_aes_where_it_offers_it_both_ways() {
        let both = "chacha20-poly1305@openssh.com,aes128-ctr,aes256-gcm@openssh.com";
        let other = "chacha20-poly1305@openssh.com,aes256-ctr,xaes256-gcm@openssh.com";
        let all = said(CLIENT, both, both);
        assert_eq!(offers_quick(&all), Some(true));
        for (to_us, from_us) in [(other, other), (both, other), (other, both), ("", "")] {
            let all = said(CLIENT, to_us, from_us);
            assert_eq!(offers_quick(&all), Some(false), "{to_us} {from_us}");
        }
        // Wherever it is cut, more has to be heard.
        for cut in 0..all.len() {
            assert_eq!(offers_quick(&all[..cut]), None, "{cut}");
        }
        // What another client says is not heard ahead.
        let foreign = "SSH-2.0-PuTTY_Release_0.78\r\n";
        assert_eq!(offers_quick(foreign.as_bytes()), Some(false));
        assert_eq!(offers_quick(b"GET / HTTP/1.1"), Some(false));
        // Nonsense is left to the protocol.
        let mut huge = CLIENT.as_bytes().to_vec();
        huge.extend([0xff; 4]);
        assert_eq!(offers_quick(&huge), Some(false));
        let mut torn = said(CLIENT, both, both);
        torn[CLIENT.len() + 6 + COOKIE_BYTES] = 0xff;
        assert_eq!(offers_quick(&torn), Some(false));
        let mut other_kind = said(CLIENT, both, both);
        other_kind[CLIENT.len() + 5] = 2;
        assert_eq!(offers_quick(&other_kind), Some(false));
    }

    #[tokio::test]
    async fn what_was_heard_is_heard_again_and_our_line_is_said_once() {
        let first = said(CLIENT, QUICK, QUICK);
        for asks in [true, false] {
            let (near, mut far) = duplex(1 << 16);
            far.write_all(&first).await.expect("room");
            let (mut greeted, offers) = greet(near, asks).await.expect("greeted");
            assert_eq!(offers, asks);
            far.write_all(b"more").await.expect("room");
            let mut heard = vec![0; first.len() + 4];
            greeted.read_exact(&mut heard).await.expect("heard");
            assert_eq!(heard, [&first[..], &b"more"[..]].concat());
            // The protocol says it as one piece or as several.
            for piece in ["SSH-2.0-", "fardel\r\n", "behind"] {
                greeted.write_all(piece.as_bytes()).await.expect("said");
            }
            greeted.shutdown().await.expect("ended");
            drop(greeted);
            let mut line = String::new();
            far.read_to_string(&mut line).await.expect("heard");
            assert_eq!(line, "SSH-2.0-fardel\r\nbehind");
        }
    }

    #[tokio::test]
    async fn a_client_that_waits_for_us_is_not_waited_for_long() {
        let (near, mut far) = duplex(1 << 16);
        far.write_all(CLIENT.as_bytes()).await.expect("room");
        let greeted = timeout(HANG, greet(near, true)).await;
        let (mut greeted, offers) = greeted.expect("in time").expect("greeted");
        assert!(!offers);
        let mut heard = vec![0; CLIENT.len()];
        greeted.read_exact(&mut heard).await.expect("heard");
        assert_eq!(heard, CLIENT.as_bytes());
        // One that says more than fits is heard no further.
        let (near, mut far) = duplex(1 << 17);
        let endless = [KNOWN, &[b'x'; 2 * MAX_HEARD][..]].concat();
        far.write_all(&endless).await.expect("room");
        let (greeted, offers) = greet(near, true).await.expect("greeted");
        assert!(!offers && greeted.heard.len() < MAX_HEARD + PIECE);
    }
}
