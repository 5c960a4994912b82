//! The proxy of a session as SOCKS 5 (RFC 1928): CONNECT to names and addresses, without a user name. Names are resolved here,
//! never inside. Judges nothing: `reach` does.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use rules::egress::EgressOutcome;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::http::HEAD_TIMEOUT;
use super::reach::reach;
use super::served::ServedSession;

/// What a client of this protocol begins with. No method of HTTP does.
pub(super) const VERSION: u8 = 5;

const NO_USER: u8 = 0;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;

/// What a client is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SocksReply {
    Succeeded = 0,
    NotAllowed = 2,
    HostUnreachable = 4,
    Refused = 5,
    CommandUnknown = 7,
    AddressUnknown = 8,
}

/// What a client asked for.
#[derive(Debug, PartialEq, Eq)]
enum SocksRequest {
    To {
        host: String,
        port: u16,
    },
    Refused(SocksReply),
    /// It offered no way in without a user name.
    NoMethod,
}

/// Serves one connection of a client.
pub(super) async fn serve(served: &ServedSession, mut client: TcpStream) {
    let asked = tokio::time::timeout(HEAD_TIMEOUT, read(&mut client)).await;
    let Ok(Ok(asked)) = asked else {
        return;
    };
    let reply = match asked {
        SocksRequest::NoMethod => {
            // A client that is gone needs no answer.
            let _ = client.write_all(&[VERSION, NO_METHOD]).await;
            return;
        }
        SocksRequest::Refused(reply) => reply,
        SocksRequest::To { host, port } => match reach(served, &host, port).await {
            Ok(reached) => {
                if answer(&mut client, SocksReply::Succeeded).await.is_ok() {
                    reached.carry(served, client).await;
                }
                return;
            }
            Err(EgressOutcome::NotListed | EgressOutcome::AddressRefused) => SocksReply::NotAllowed,
            Err(EgressOutcome::Unreachable) => SocksReply::Refused,
            Err(EgressOutcome::Unresolved | EgressOutcome::TooMany | EgressOutcome::Opened) => {
                SocksReply::HostUnreachable
            }
        },
    };
    let _ = answer(&mut client, reply).await;
    let _ = client.shutdown().await;
}

/// Reads the greeting, answers it, and reads the request. At most 514 bytes.
async fn read(client: &mut TcpStream) -> io::Result<SocksRequest> {
    let [version, count] = bytes(client).await?;
    let mut methods = vec![0; usize::from(count)];
    client.read_exact(&mut methods).await?;
    if version != VERSION {
        return Err(io::ErrorKind::InvalidData.into());
    }
    if !methods.contains(&NO_USER) {
        return Ok(SocksRequest::NoMethod);
    }
    client.write_all(&[VERSION, NO_USER]).await?;
    let [version, command, _, kind] = bytes(client).await?;
    if version != VERSION {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let host = match kind {
        1 => Ipv4Addr::from(bytes::<4>(client).await?).to_string(),
        3 => {
            let [length] = bytes(client).await?;
            let mut name = vec![0; usize::from(length)];
            client.read_exact(&mut name).await?;
            // What is no text is no name, and so on no list.
            String::from_utf8_lossy(&name).into_owned()
        }
        4 => Ipv6Addr::from(bytes::<16>(client).await?).to_string(),
        _ => return Ok(SocksRequest::Refused(SocksReply::AddressUnknown)),
    };
    let port = u16::from_be_bytes(bytes(client).await?);
    Ok(match command {
        CONNECT => SocksRequest::To { host, port },
        _ => SocksRequest::Refused(SocksReply::CommandUnknown),
    })
}

async fn bytes<const N: usize>(client: &mut TcpStream) -> io::Result<[u8; N]> {
    let mut all = [0; N];
    client.read_exact(&mut all).await?;
    Ok(all)
}

/// Says how it went. The address that a server sees is the machine's business, so none is told.
async fn answer(client: &mut TcpStream, reply: SocksReply) -> io::Result<()> {
    let head = [VERSION, reply as u8, 0, 1];
    let nowhere = [0; 6];
    client.write_all(&[&head[..], &nowhere].concat()).await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rules::egress::{EgressTarget, NetworkMode, SessionEgress};
    use tokio::net::TcpListener;
    use tokio::sync::Semaphore;

    use super::*;

    async fn listener() -> (TcpListener, u16) {
        let bound = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = bound.local_addr().expect("bound").port();
        (bound, port)
    }

    /// A client of a session that may reach one port of this machine, and what it gets for these bytes.
    async fn asked(listed: u16, sent: &[u8]) -> (TcpStream, Vec<u8>) {
        let target = EgressTarget::parse(&format!("127.0.0.1:{listed}")).expect("a target");
        let egress = SessionEgress {
            mode: NetworkMode::Proxy,
            targets: vec![target],
            refused: Vec::new(),
        };
        let (near, port) = listener().await;
        let mut client = TcpStream::connect(("127.0.0.1", port)).await.expect("open");
        let (served, _) = near.accept().await.expect("a client");
        tokio::spawn(async move {
            let session = ServedSession::of(egress, Arc::new(Semaphore::new(8)));
            serve(&session, served).await;
        });
        client.write_all(sent).await.expect("sent");
        let mut got = vec![0; 64];
        let mut count = 0;
        while count < 12 {
            let more = client.read(&mut got[count..]).await.expect("read");
            if more == 0 {
                break;
            }
            count += more;
        }
        got.truncate(count);
        (client, got)
    }

    fn to_address(port: u16) -> Vec<u8> {
        let [high, low] = port.to_be_bytes();
        vec![5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1, high, low]
    }

    #[tokio::test]
    async fn what_is_listed_is_opened_and_carried() {
        let (server, port) = listener().await;
        let echo = tokio::spawn(async move {
            let (mut one, _) = server.accept().await.expect("a client");
            let heard: [u8; 5] = bytes(&mut one).await.expect("read");
            one.write_all(&heard).await.expect("sent");
        });
        let (mut client, got) = asked(port, &to_address(port)).await;
        assert_eq!(got, [5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        client.write_all(b"hello").await.expect("sent");
        let heard: [u8; 5] = bytes(&mut client).await.expect("read");
        assert_eq!(&heard, b"hello");
        echo.await.expect("it ended");
    }

    #[tokio::test]
    async fn what_is_not_listed_or_not_spoken_is_refused() {
        let (_server, port) = listener().await;
        let (_other, unlisted) = listener().await;
        let [high, low] = port.to_be_bytes();
        let name = |name: &[u8]| {
            let head = [
                5,
                1,
                0,
                5,
                1,
                0,
                3,
                u8::try_from(name.len()).expect("short"),
            ];
            [&head[..], name, &[high, low]].concat()
        };
        for (sent, reply) in [
            (to_address(unlisted), Some(2)),
            (name(b"localhost"), Some(2)),
            (name(b"\xff\0"), Some(2)),
            (name(b""), Some(2)),
            (vec![5, 1, 0, 5, 2, 0, 1, 127, 0, 0, 1, high, low], Some(7)),
            (vec![5, 1, 0, 5, 3, 0, 1, 127, 0, 0, 1, high, low], Some(7)),
            (vec![5, 1, 0, 5, 1, 0, 9], Some(8)),
            (vec![5, 1, 2], None),
        ] {
            let (_, got) = asked(port, &sent).await;
            match reply {
                Some(reply) => assert_eq!(got[..4], [5, 0, 5, reply], "{sent:?}"),
                None => assert_eq!(got, [5, 0xff]),
            }
        }
    }
}
