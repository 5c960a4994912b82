//! Reaches a receiver outside, of the audit log, of mail or of a webhook: what stands in files about it, and a stream to the first of its addresses that
//! answers, encrypted where it is to be. Asks no name service, and knows nothing of what is sent.

use std::fmt::Write as _;
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::secret::SecretText;
use base::tls::client::{server_name, trusting};
use base::tls::names::HostNames;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::HandOverFault;

/// Bytes of the token file and of the file with the authority.
const MAX_FILE_BYTES: u64 = 128 << 10;
/// Longest time for a connection to one address while others of the receiver are left. Longer: behind an address that
/// swallows packets there is little time for the next. Shorter: one behind a slow line is passed over.
const MAX_CONNECTING: Duration = Duration::from_secs(3);

/// What stands in files, read again for each batch.
pub(crate) struct ReceiverPlan {
    /// The text of /etc/hosts.
    pub(crate) hosts: String,
    /// What this machine is called.
    pub(crate) own_name: String,
    /// None where nothing is encrypted.
    tls: Option<Arc<ClientConfig>>,
    pub(crate) token: Option<SecretText>,
    /// When all that is done by it has to be over.
    until: Instant,
}

/// A stream in both directions, encrypted or not.
pub(crate) trait ReceiverStream: AsyncRead + AsyncWrite + Unpin + Send {
    /// The connection that carries it.
    fn carrier(&mut self) -> &mut TcpStream;
}

impl ReceiverStream for TcpStream {
    fn carrier(&mut self) -> &mut TcpStream {
        self
    }
}

impl ReceiverStream for TlsStream<TcpStream> {
    fn carrier(&mut self) -> &mut TcpStream {
        self.get_mut().0
    }
}

/// Whether a receiver is spoken to by TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protection {
    Tls,
    None,
}

impl ReceiverPlan {
    /// Reads them: `ca_file` where the receiver is believed by another authority than those of this machine, `token_file`
    /// where it is told a secret. `time` is what the caller gives all of it.
    pub(crate) async fn read(
        protection: Protection,
        ca_file: Option<PathBuf>,
        token_file: Option<PathBuf>,
        time: Duration,
    ) -> Result<Self, HandOverFault> {
        let until = Instant::now() + time;
        let read = tokio::task::spawn_blocking(move || {
            let tls = match (protection, &ca_file) {
                (Protection::None, _) => None,
                (Protection::Tls, Some(path)) => {
                    let (pem, _) = text_of(path)?;
                    let trusted = trusting(Some(&pem), false);
                    Some(trusted.map_err(|error| unusable(path, &error))?)
                }
                (Protection::Tls, None) => {
                    let trusted = trusting(None, true);
                    Some(trusted.map_err(|error| HandOverFault::File(error.to_string()))?)
                }
            };
            let token = match &token_file {
                None => None,
                Some(path) => {
                    let (text, mode) = text_of(path)?;
                    if mode & 0o077 != 0 {
                        return Err(unusable(path, &"others than its owner may read it"));
                    }
                    Some(SecretText::from(text.lines().next().unwrap_or_default()))
                }
            };
            Ok::<_, HandOverFault>(Self {
                hosts: std::fs::read_to_string("/etc/hosts").unwrap_or_default(),
                own_name: HostNames::of_this_machine().host,
                tls,
                token,
                until,
            })
        });
        read.await.unwrap_or(Err(HandOverFault::Late))
    }

    /// Opens a stream to the first address that answers, encrypted where it is to be.
    pub(crate) async fn open(
        &self,
        host: &str,
        port: u16,
    ) -> Result<Box<dyn ReceiverStream>, HandOverFault> {
        let stream = self.connect(host, port).await?;
        match self.tls {
            None => Ok(Box::new(stream)),
            Some(_) => Ok(Box::new(self.protect(host, stream).await?)),
        }
    }

    /// Opens a connection to the first address that answers; nothing of it is encrypted yet.
    pub(crate) async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, HandOverFault> {
        let mut last = HandOverFault::Unknown;
        let addresses = base::addresses::of_host(host, &self.hosts);
        let mut left = addresses.len();
        for address in addresses {
            let connecting = TcpStream::connect((address, port));
            let connected = match part(self.until.saturating_duration_since(Instant::now()), left) {
                None => connecting.await,
                Some(part) => timeout(part, connecting)
                    .await
                    .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())),
            };
            left -= 1;
            match connected.and_then(not_to_itself) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error.into(),
            }
        }
        Err(last)
    }

    /// Begins TLS on a connection. Errors: also where the receiver is not whom it names, or is not to be encrypted at all.
    pub(crate) async fn protect(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, HandOverFault> {
        let tls = self.tls.as_ref().ok_or(HandOverFault::Address)?;
        let name = server_name(host).ok_or(HandOverFault::Unknown)?;
        let connector = TlsConnector::from(Arc::clone(tls));
        Ok(connector.connect(name, stream).await?)
    }
}

/// The time for one of so many addresses that are left; None for the last, which has all that there is.
fn part(time: Duration, left: usize) -> Option<Duration> {
    let left = u32::try_from(left).unwrap_or(u32::MAX);
    (left > 1).then(|| (time / left).min(MAX_CONNECTING))
}

/// A connection to a port of this machine where nothing listens may reach itself, and would take rows for ever.
fn not_to_itself(stream: TcpStream) -> std::io::Result<TcpStream> {
    match stream.local_addr()? == stream.peer_addr()? {
        true => Err(std::io::ErrorKind::ConnectionRefused.into()),
        false => Ok(stream),
    }
}

/// Whether a connection that both sides have closed ended before the kernel of the receiver had all of it: a receiver that
/// closes at once, because it is full or a program behind it is dead, has read nothing.
pub(crate) async fn is_cut(carrier: (SocketAddr, SocketAddr)) -> bool {
    let (own, other) = carrier;
    let path = match own.is_ipv4() {
        true => "/proc/net/tcp",
        false => "/proc/net/tcp6",
    };
    let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(path));
    let table = read.await.ok().and_then(Result::ok).unwrap_or_default();
    // One is our end alone: the receiver may have closed by the end of TLS, which stands before it.
    unconfirmed(&table, own, other) > 1
}

/// Bytes of a connection that the other side has not confirmed, its end among them, by the kernel's table; 0 where the
/// connection is not in it. In columns: a number, our address, the other's, the state, both queues in hexadecimal.
fn unconfirmed(table: &str, own: SocketAddr, other: SocketAddr) -> u64 {
    let (own, other) = (as_the_kernel_writes(own), as_the_kernel_writes(other));
    let bytes = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        if words.next()? != own || words.next()? != other {
            return None;
        }
        let (sent, _) = words.nth(1)?.split_once(':')?;
        u64::from_str_radix(sent, 16).ok()
    };
    table.lines().find_map(bytes).unwrap_or_default()
}

/// Four bytes at a time as a number of this machine, in hexadecimal, then the port.
fn as_the_kernel_writes(address: SocketAddr) -> String {
    let octets = match address.ip() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let mut text = String::new();
    for part in octets.chunks_exact(4) {
        let number = u32::from_ne_bytes([part[0], part[1], part[2], part[3]]);
        // Writing into a text cannot fail.
        let _ = write!(text, "{number:08X}");
    }
    let _ = write!(text, ":{:04X}", address.port());
    text
}

fn unusable(path: &Path, why: &dyn std::fmt::Display) -> HandOverFault {
    HandOverFault::File(format!("{}: {why}", path.display()))
}

/// The text of a plain file and its mode.
fn text_of(path: &Path) -> Result<(String, u32), HandOverFault> {
    let mut text = String::new();
    let file = std::fs::OpenOptions::new()
        .read(true)
        // A pipe without a writer would hold a thread for each try.
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
        .map_err(|error| unusable(path, &error))?;
    let mode = file.metadata().map_err(|error| unusable(path, &error))?;
    if !mode.is_file() {
        return Err(unusable(path, &"it is no plain file"));
    }
    file.take(MAX_FILE_BYTES)
        .read_to_string(&mut text)
        .map_err(|error| unusable(path, &error))?;
    Ok((text, mode.mode()))
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn what_a_receiver_has_not_confirmed_stands_in_the_kernels_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt\n   \
            0: 0100007F:DE5A 0100007F:BACD 06 00000000:00000000 03:00001770 00000000\n   \
            1: 0100007F:BACD 0100007F:DE5B 01 00000000:0000000A 00:00000000 00000000\n   \
            2: 0100007F:DE5B 0100007F:BACD 09 0000001F:00000000 01:00000014 00000000\n";
        let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(unconfirmed(table, at(0xDE5A), at(0xBACD)), 0);
        assert_eq!(unconfirmed(table, at(0xDE5B), at(0xBACD)), 31);
        assert_eq!(unconfirmed(table, at(0xBACD), at(0xDE5B)), 0);
        assert_eq!(unconfirmed(table, at(1), at(2)), 0);
        let six = "[::1]:514".parse().unwrap();
        let written = as_the_kernel_writes(six);
        assert_eq!(written, "00000000000000000000000001000000:0202");
    }

    #[tokio::test]
    async fn a_connection_to_itself_is_refused() {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let own = socket.local_addr().unwrap();
        let stream = socket.connect(own).await.unwrap();
        assert!(not_to_itself(stream).is_err());
    }

    #[test]
    fn addresses_share_the_time() {
        let seconds = Duration::from_secs;
        for (time, left, own) in [
            (10, 1, None),
            (10, 2, Some(seconds(3))),
            (7, 2, Some(seconds(3))),
            (10, 5, Some(seconds(2))),
            (2, 2, Some(seconds(1))),
            (0, 2, Some(seconds(0))),
        ] {
            assert_eq!(part(seconds(time), left), own, "{time} s for {left}");
        }
    }

    /// Packets to a listener whose queue is full are dropped: nothing comes back.
    #[tokio::test]
    async fn an_address_that_swallows_packets_leaves_time_for_the_next() {
        let (listener, full) = loop {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let socket = TcpSocket::new_v4().unwrap();
            // Another test may hold the port there.
            if socket.bind(([127, 0, 0, 2], port).into()).is_ok() {
                break (listener, socket.listen(1).unwrap());
            }
        };
        let swallows = full.local_addr().unwrap();
        let mut held = Vec::new();
        while let Ok(Ok(stream)) =
            timeout(Duration::from_millis(500), TcpStream::connect(swallows)).await
        {
            held.push(stream);
            assert!(held.len() < 100, "its queue has no end");
        }
        let answers = listener.local_addr().unwrap();
        let plan = ReceiverPlan {
            hosts: "127.0.0.2 receiver\n127.0.0.1 receiver\n".to_owned(),
            own_name: "box".to_owned(),
            tls: None,
            token: None,
            until: Instant::now() + Duration::from_secs(2),
        };
        let open = plan.open("receiver", swallows.port());
        let opened = timeout(Duration::from_secs(60), open).await;
        let mut stream = opened.expect("no address has all the time").unwrap();
        assert_eq!(stream.carrier().peer_addr().unwrap(), answers);
        drop((full, held));
    }

    #[test]
    fn a_pipe_is_no_file_of_the_settings() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(text_of(&pipe).is_err());
    }
}
