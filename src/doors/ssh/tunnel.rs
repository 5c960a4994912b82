//! One tunnel over one channel: from a client to a port inside the session. Leads nowhere else, not to this machine and not
//! to a neighbour of the session.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use base::link::streams::ByteStream;
use bytes::{Bytes, BytesMut};
use rules::names::SessionName;
use russh::server::{ChannelOpenHandle, Msg};
use russh::{Channel, ChannelMsg, ChannelOpenFailure, ChannelReadHalf, ChannelWriteHalf};
use server::routes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::ahead::{AheadReceiver, AheadRoom, ahead};
use super::both_ways::BothWays;
use super::refused;
use super::seat::{ChannelSeat, EnteredSession};

/// The largest piece of a tunnel.
const PIECE: usize = 32 << 10;
/// How long the client may take to close a tunnel that both sides have ended. What this side closes first, `russh` keeps
/// until the connection ends.
const CLOSING: Duration = Duration::from_secs(5);

/// Whether a client means the session itself by this host.
fn is_inside(host: &str, session: &SessionName) -> bool {
    let here = |name: &str| host.eq_ignore_ascii_case(name);
    here("localhost")
        || here(session.as_str())
        || host
            .trim_matches(['[', ']'])
            .parse::<IpAddr>()
            .is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Opens the tunnel, or says that it cannot be, and carries it until both sides have ended it, the client closes the
/// channel, or the connection or the session ends.
pub(super) async fn serve(
    seat: ChannelSeat,
    channel: Channel<Msg>,
    reply: ChannelOpenHandle,
    host: &str,
    port: u32,
) {
    let opened = tokio::select! {
        opened = open(&seat, host, port) => opened,
        () = seat.ended() => return,
    };
    let (stream, mut entered) = match opened {
        Ok(opened) => opened,
        Err(why) => return reply.reject(why).await,
    };
    seat.accept(reply).await;
    let (read, write) = channel.split();
    let over = routes::has_ended(&seat.context.server, entered.container);
    tokio::select! {
        () = carry(read, &write, stream, &seat.ahead, over) => {}
        _ = &mut entered.over => {}
        () = seat.ended() => {}
    }
    // Until here its user was inside.
    drop(entered);
}

async fn open(
    seat: &ChannelSeat,
    host: &str,
    port: u32,
) -> Result<(ByteStream, EnteredSession), ChannelOpenFailure> {
    let port = u16::try_from(port)
        .ok()
        .filter(|port| *port > 0)
        .ok_or(ChannelOpenFailure::ConnectFailed)?;
    let entered = seat.enter().await.map_err(|failure| {
        let code = refused(failure).code;
        tracing::debug!(code, "a tunnel was refused");
        ChannelOpenFailure::AdministrativelyProhibited
    })?;
    if !is_inside(host, &entered.name) {
        return Err(ChannelOpenFailure::AdministrativelyProhibited);
    }
    let dialled = seat.context.streams.dial(entered.container, port).await;
    match dialled {
        Ok(stream) => Ok((stream, entered)),
        Err(refusal) => {
            tracing::debug!(
                code = refusal.code,
                port,
                "a port of a session does not answer"
            );
            Err(ChannelOpenFailure::ConnectFailed)
        }
    }
}

/// Carries both directions, each on its own, until both have ended, or the one from the session has and `over` is ready: a
/// client that says nothing more would keep what leads nowhere.
async fn carry(
    mut read: ChannelReadHalf,
    write: &ChannelWriteHalf<Msg>,
    stream: ByteStream,
    room: &AheadRoom,
    over: impl Future<Output = ()>,
) {
    let (from, to) = tokio::io::split(stream);
    let ways = BothWays::default();
    let (behind, mut waiting) = ahead(room);
    let heard = async {
        while let Some(message) = read.wait().await {
            match message {
                ChannelMsg::Data { data } => {
                    let bytes = data.len();
                    ways.inward(behind.put(Some(data), bytes)).await;
                }
                ChannelMsg::Eof => behind.put(None, 0).await,
                ChannelMsg::Close => return,
                _ => {}
            }
        }
    };
    let fed = async {
        let fed = feed(to, &mut waiting).await;
        // What comes after a program that hears no more is dropped, so that the line goes on.
        if fed.is_err() {
            while waiting.next().await.is_some() {}
        }
    };
    let (end, ended) = oneshot::channel();
    let shown = async {
        show(from, write, &ways).await;
        // Its reader is gone only with both.
        let _ = end.send(());
    };
    let left = async {
        let _ = ended.await;
        over.await;
    };
    let both = async {
        tokio::join!(fed, shown);
        sleep(CLOSING).await;
    };
    let closed = tokio::select! {
        () = heard => true,
        () = both => false,
        () = left => false,
        () = ways.stand_still() => false,
    };
    if !closed {
        // Nothing of the channel is heard any more, so the line goes on and takes the last word.
        drop(read);
        let _ = write.close().await;
    }
}

/// Writes what waits until the client has ended its direction.
async fn feed(
    mut to: WriteHalf<ByteStream>,
    waiting: &mut AheadReceiver<Option<Bytes>>,
) -> io::Result<()> {
    while let Some(piece) = waiting.next().await {
        match piece {
            Some(bytes) => to.write_all(&bytes).await?,
            None => return to.shutdown().await,
        }
    }
    Ok(())
}

/// Sends what the program says until it has ended its direction.
async fn show(mut from: ReadHalf<ByteStream>, write: &ChannelWriteHalf<Msg>, ways: &BothWays) {
    let mut buffer = BytesMut::with_capacity(PIECE);
    loop {
        buffer.reserve(PIECE);
        match from.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => {
                let _ = write.eof().await;
                return;
            }
            Ok(_) => {
                let piece: Bytes = buffer.split().freeze();
                if ways.outward(write.data_bytes(piece)).await.is_err() {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_leads_into_its_session_and_nowhere_else() {
        let session = SessionName::parse("train-1").expect("good");
        for host in [
            "localhost",
            "127.0.0.1",
            "127.8.9.1",
            "::1",
            "[::1]",
            "train-1",
            "LOCALHOST",
        ] {
            assert!(is_inside(host, &session), "{host}");
        }
        for host in [
            "",
            "train-2",
            "10.0.0.1",
            "0.0.0.0",
            "::",
            "::ffff:10.0.0.1",
            "127.0.0.1.evil",
            "localhost.evil",
            "169.254.169.254",
            "../localhost",
        ] {
            assert!(!is_inside(host, &session), "{host}");
        }
    }
}
