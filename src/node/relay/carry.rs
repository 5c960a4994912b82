//! Opens one connection to the outside and carries its bytes, held to the pace of its session. An address is judged after its
//! name was resolved, and exactly that address is connected to.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rules::egress::{EgressOutcome, EgressTarget, SessionEgress, TargetHost, translated};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::names;
use super::served::{OpenConnection, ServedSession};

/// How long a name server may take, and how long a host.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Addresses of one name that are tried.
const MAX_TRIED: usize = 4;

/// Bytes that are on their way in one direction.
const BUFFER: usize = 16 << 10;

/// Connects to what a target lists as `host`.
///
/// Errors: the outcome that it has instead of `Opened`.
pub(super) async fn open(
    egress: &SessionEgress,
    target: &EgressTarget,
    host: &str,
) -> Result<TcpStream, EgressOutcome> {
    let addresses = match (&target.host, host.parse::<IpAddr>()) {
        (TargetHost::Pinned { address, .. }, _) => vec![*address],
        (_, Ok(address)) => vec![address.to_canonical()],
        (_, Err(_)) => resolve(host).await.ok_or(EgressOutcome::Unresolved)?,
    };
    let admitted: Vec<IpAddr> = addresses
        .into_iter()
        .filter(|address| egress.admits(target, *address, is_own(*address)))
        .take(MAX_TRIED)
        .collect();
    if admitted.is_empty() {
        return Err(EgressOutcome::AddressRefused);
    }
    for address in admitted {
        let connecting = TcpStream::connect(SocketAddr::new(address, target.port));
        if let Ok(Ok(server)) = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            return Ok(server);
        }
    }
    Err(EgressOutcome::Unreachable)
}

/// Where a connection leads; None where it is over already.
pub(super) fn address_of(server: &TcpStream) -> Option<IpAddr> {
    let at = server.peer_addr().ok()?;
    Some(at.ip().to_canonical())
}

/// Whether a connection that `target` lists may go on to this address.
pub(super) fn admits(
    egress: &SessionEgress,
    target: &EgressTarget,
    address: Option<IpAddr>,
) -> bool {
    address.is_some_and(|address| egress.admits(target, address, is_own(address)))
}

/// The addresses of a name; None where there are none, or no server says.
async fn resolve(name: &str) -> Option<Vec<IpAddr>> {
    let looked = tokio::time::timeout(RESOLVE_TIMEOUT, names::resolve(name)).await;
    let found = looked.ok()??;
    Some(found.iter().map(IpAddr::to_canonical).collect())
}

/// Whether the machine itself has the address, or the one that a translator would make of it.
pub(super) fn is_own(address: IpAddr) -> bool {
    stands_at(address) || translated(address).is_some_and(|four| stands_at(four.into()))
}

/// Whether a socket can stand at the address: then, and only then, the machine has it. Sends nothing. An address that cannot be
/// looked at counts as its own.
fn stands_at(address: IpAddr) -> bool {
    match UdpSocket::bind((address, 0)) {
        Err(error) => error.kind() != io::ErrorKind::AddrNotAvailable,
        Ok(_) if binds_foreign(address) => has_interface(address),
        Ok(_) => true,
    }
}

/// Whether the machine lets sockets stand at addresses that it does not have.
fn binds_foreign(address: IpAddr) -> bool {
    let family = match address {
        IpAddr::V4(_) => "ipv4",
        IpAddr::V6(_) => "ipv6",
    };
    let setting = std::fs::read_to_string(format!("/proc/sys/net/{family}/ip_nonlocal_bind"));
    setting.is_ok_and(|text| text.trim() != "0")
}

fn has_interface(address: IpAddr) -> bool {
    let Ok(all) = nix::ifaddrs::getifaddrs() else {
        return true;
    };
    let mut all = all.filter_map(|one| one.address);
    all.any(|one| match address {
        IpAddr::V4(four) => one.as_sockaddr_in().is_some_and(|known| known.ip() == four),
        IpAddr::V6(six) => one.as_sockaddr_in6().is_some_and(|known| known.ip() == six),
    })
}

/// Carries both ways until both are at their end, or one fails.
pub(super) async fn both(
    served: &ServedSession,
    connection: &OpenConnection<'_>,
    client: TcpStream,
    server: TcpStream,
) {
    for socket in [&client, &server] {
        // What waits for the other side to speak is not forgotten where that side is gone.
        let _ = rustix::net::sockopt::set_socket_keepalive(socket, true);
        let _ = socket.set_nodelay(true);
    }
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    let row = &connection.row;
    let sent = [&row.sent, &connection.sent];
    let received = [&row.received, &connection.received];
    let sent = pump(served, from_client, to_server, sent);
    let received = pump(served, from_server, to_client, received);
    // A connection that fails is over; both its ends close.
    let _ = tokio::try_join!(sent, received);
}

async fn pump(
    served: &ServedSession,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    counters: [&AtomicU64; 2],
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        served.pace.bytes(count).await;
        to.write_all(&buffer[..count]).await?;
        for counter in counters {
            counter.fetch_add(count as u64, Ordering::Relaxed);
        }
    }
}
