//! Sends rows to a syslog receiver: as datagrams, which none confirms, or over a connection of their own, in frames with
//! their length in front (RFC 6587, RFC 5425). Such a connection is closed by both sides in order; then the receiver has
//! read everything.

use std::io::{Error, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use base::settings::Settings;
use rules::audit::AuditStatement;
use rules::hand_over::{SyslogAddress, syslog_message, syslog_trial};
use rules::units::Timestamp;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UdpSocket, UnixDatagram};

use super::receiver::{Protection, ReceiverPlan, ReceiverStream, is_cut};
use super::{HandOverFault, MAX_HANDING_OVER, MAX_TRIAL};
use crate::catalog::audit::AuditRow;

/// Bytes of one datagram; IPv4 carries 65,507.
const MAX_DATAGRAM_BYTES: usize = 60_000;

/// Sends rows, and ends when the receiver has read them, or has been sent them where nothing tells.
pub(super) async fn send(settings: &Arc<Settings>, rows: &[AuditRow]) -> Result<(), HandOverFault> {
    let (address, plan) = prepare(settings, MAX_HANDING_OVER).await?;
    let most = match &address {
        SyslogAddress::Udp(..) | SyslogAddress::Socket(_) => Some(MAX_DATAGRAM_BYTES),
        SyslogAddress::Tcp(..) | SyslogAddress::Tls(..) => None,
    };
    let messages = rows
        .iter()
        .map(|row| {
            let statement: AuditStatement = serde_json::from_str(&row.statement)
                .map_err(|_| HandOverFault::Row(row.sequence))?;
            let (text, own_name) = (&row.statement, &plan.own_name);
            Ok(syslog_message(&statement, text, own_name, most))
        })
        .collect::<Result<Vec<String>, HandOverFault>>()?;
    deliver(&address, &plan, &messages).await
}

/// Sends one message that is a trial; says what came back.
pub(super) async fn tried(
    settings: &Arc<Settings>,
    now: Timestamp,
) -> Result<String, HandOverFault> {
    let (address, plan) = prepare(settings, MAX_TRIAL).await?;
    let message = syslog_trial(now, &plan.own_name);
    deliver(&address, &plan, &[message]).await?;
    let said = match address {
        SyslogAddress::Udp(..) | SyslogAddress::Socket(_) => "sent; datagrams are not confirmed",
        SyslogAddress::Tcp(..) | SyslogAddress::Tls(..) => "read to its end",
    };
    Ok(said.to_owned())
}

async fn prepare(
    settings: &Arc<Settings>,
    time: Duration,
) -> Result<(SyslogAddress, ReceiverPlan), HandOverFault> {
    let text = settings.audit_to_syslog.as_deref().unwrap_or_default();
    let address = SyslogAddress::parse(text).ok_or(HandOverFault::Address)?;
    let protection = match &address {
        SyslogAddress::Tls(..) => Protection::Tls,
        SyslogAddress::Udp(..) | SyslogAddress::Tcp(..) | SyslogAddress::Socket(_) => {
            Protection::None
        }
    };
    let ca_file = settings.audit_ca_file.clone();
    let plan = ReceiverPlan::read(protection, ca_file, None, time).await?;
    Ok((address, plan))
}

async fn deliver(
    address: &SyslogAddress,
    plan: &ReceiverPlan,
    messages: &[String],
) -> Result<(), HandOverFault> {
    match address {
        SyslogAddress::Udp(host, port) => {
            let addresses = base::addresses::of_host(host, &plan.hosts);
            let address = *addresses.first().ok_or(HandOverFault::Unknown)?;
            let own: SocketAddr = match address.is_ipv4() {
                true => (Ipv4Addr::UNSPECIFIED, 0).into(),
                false => (Ipv6Addr::UNSPECIFIED, 0).into(),
            };
            let socket = UdpSocket::bind(own).await?;
            socket.connect((address, *port)).await?;
            for message in messages {
                socket.send(message.as_bytes()).await?;
            }
            // That no receiver is there comes back after the message.
            match socket.take_error()? {
                Some(error) => Err(error.into()),
                None => Ok(()),
            }
        }
        SyslogAddress::Socket(path) => {
            let socket = UnixDatagram::unbound()?;
            socket.connect(path)?;
            for message in messages {
                socket.send(message.as_bytes()).await?;
            }
            Ok(())
        }
        SyslogAddress::Tcp(host, port) | SyslogAddress::Tls(host, port) => {
            let stream = plan.open(host, *port).await?;
            over(stream, messages).await
        }
    }
}

/// Sends frames, closes the own side, and waits until the receiver closes the other. What it says meanwhile is not looked
/// at. Errors: also where the receiver had closed before it had everything.
async fn over(
    mut stream: Box<dyn ReceiverStream>,
    messages: &[String],
) -> Result<(), HandOverFault> {
    let mut frames = String::new();
    for message in messages {
        frames.push_str(&message.len().to_string());
        frames.push(' ');
        frames.push_str(message);
    }
    let carrier = stream.carrier();
    let carrier = (carrier.local_addr()?, carrier.peer_addr()?);
    stream.write_all(frames.as_bytes()).await?;
    stream.shutdown().await?;
    let mut unread = [0; 512];
    loop {
        match stream.read(&mut unread).await {
            Ok(0) => break,
            Ok(_) => {}
            // Many receivers, rsyslog among them, end TLS without a farewell.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error.into()),
        }
    }
    // Behind the end of TLS: only now nothing is broken off any more.
    while stream.carrier().read(&mut unread).await? > 0 {}
    // The table first: a connection that is broken off in between leaves it, and has an error then.
    let is_cut = is_cut(carrier).await;
    match stream.carrier().take_error()? {
        Some(error) => Err(error.into()),
        None if is_cut => Err(Error::from(ErrorKind::ConnectionAborted).into()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, ready};

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Ends as TLS does where the other side says no farewell.
    struct WithoutFarewell(TcpStream);

    impl AsyncRead for WithoutFarewell {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<std::io::Result<()>> {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut self.0).poll_read(context, buffer))?;
            Poll::Ready(match buffer.filled().len() == before {
                true => Err(ErrorKind::UnexpectedEof.into()),
                false => Ok(()),
            })
        }
    }

    impl AsyncWrite for WithoutFarewell {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<std::io::Result<usize>> {
            Pin::new(&mut self.0).poll_write(context, bytes)
        }

        fn poll_flush(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<std::io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(context)
        }

        fn poll_shutdown(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<std::io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(context)
        }
    }

    impl ReceiverStream for WithoutFarewell {
        fn carrier(&mut self) -> &mut TcpStream {
            &mut self.0
        }
    }

    #[tokio::test]
    async fn a_receiver_that_says_no_farewell_has_read_everything() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let receiver = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).await.unwrap();
            text
        });
        let stream = WithoutFarewell(TcpStream::connect(address).await.unwrap());
        over(Box::new(stream), &["one".to_owned()]).await.unwrap();
        assert_eq!(receiver.await.unwrap(), "3 one");
    }
}
