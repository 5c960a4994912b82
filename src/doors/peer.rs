//! Who is at the other end of a connection, as the kernel says. Roles put it into every request;
//! headers that a client can write are never asked.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The other end of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    Tcp(SocketAddr),
    /// The local socket; `trusted` when its owner is root or the user that runs the server.
    Local {
        trusted: bool,
    },
}

/// Says that a connection is encrypted; roles put it into requests that came by TLS.
#[derive(Clone, Copy, Debug)]
pub struct Encrypted;

/// The port of this machine that a connection came to.
#[derive(Clone, Copy, Debug)]
pub struct OwnPort(pub u16);

impl Peer {
    /// The address that limits and logs count by; loopback for the local socket.
    pub fn address(self) -> IpAddr {
        match self {
            Self::Tcp(address) => address.ip().to_canonical(),
            Self::Local { .. } => Ipv4Addr::LOCALHOST.into(),
        }
    }
}
