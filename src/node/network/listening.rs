//! Which TCP ports of a namespace a process listens on, by the kernel's list (`sock_diag`): a fraction of a millisecond,
//! where `/proc/net/tcp` takes ten. Only looks. Rule: `sock_diag(7)`, `netlink(7)`.

use std::collections::BTreeSet;
use std::io;

use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};

/// Ports that are named. More: a program that listens on every port makes the list as long as it likes.
const MAX_LISTENING: usize = 64;

/// A message of netlink: its length, kind, flags, number and sender.
const HEADER: usize = 16;
/// What asks for sockets, behind the header: `inet_diag_req_v2`.
const REQUEST: usize = 56;
/// What tells of one, behind the header: `inet_diag_msg`, up to the end of its own address.
const SOCKET: usize = 24;
/// `SOCK_DIAG_BY_FAMILY`
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST | NLM_F_DUMP`
const ASK_ALL: u16 = 0x301;
/// `NLMSG_ERROR` and `NLMSG_DONE`
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `1 << TCP_LISTEN`
const LISTENING: u32 = 1 << 10;

/// The ports of this thread's namespace that a connection to 127.0.0.1 reaches, at most 64.
pub(super) fn ports() -> io::Result<BTreeSet<u16>> {
    let mut found = BTreeSet::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let family = u8::try_from(family).unwrap_or_default();
        // A kernel without IPv6 refuses its half.
        let heard = dump(family, &mut found);
        if family == 2 {
            heard?;
        }
    }
    Ok(found.into_iter().take(MAX_LISTENING).collect())
}

fn dump(family: u8, found: &mut BTreeSet<u16>) -> io::Result<()> {
    let asking = socket(
        AddressFamily::Netlink,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkSockDiag,
    )?;
    rustix::io::write(&asking, &request(family))?;
    let mut buffer = vec![0; 32 << 10];
    loop {
        let count = rustix::io::read(&asking, &mut buffer[..])?;
        if count == 0 || take(&buffer[..count], family, found)? {
            return Ok(());
        }
    }
}

fn request(family: u8) -> [u8; HEADER + REQUEST] {
    let mut bytes = [0; HEADER + REQUEST];
    let length = (HEADER + REQUEST) as u32;
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    bytes[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&ASK_ALL.to_ne_bytes());
    bytes[HEADER] = family;
    // IPPROTO_TCP
    bytes[HEADER + 1] = 6;
    bytes[HEADER + 4..HEADER + 8].copy_from_slice(&LISTENING.to_ne_bytes());
    bytes
}

/// Takes the ports out of what the kernel said; true after the last message.
fn take(said: &[u8], family: u8, found: &mut BTreeSet<u16>) -> io::Result<bool> {
    let mut rest = said;
    while rest.len() >= HEADER {
        let length = u32::from_ne_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
        let kind = u16::from_ne_bytes([rest[4], rest[5]]);
        if length < HEADER || length > rest.len() {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        let (message, _) = rest.split_at(length);
        match kind {
            DONE => return Ok(true),
            ERROR => {
                let code = message.get(HEADER..HEADER + 4);
                let code = code.and_then(|bytes| bytes.try_into().ok());
                let code = code.map_or(0, i32::from_ne_bytes);
                return Err(io::Error::from_raw_os_error(-code));
            }
            BY_FAMILY => {
                if let Some(port) = port(&message[HEADER..], family) {
                    found.insert(port);
                }
            }
            _ => {}
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// The port of a socket that 127.0.0.1 reaches.
fn port(socket: &[u8], family: u8) -> Option<u16> {
    let socket = socket.get(..SOCKET)?;
    let port = u16::from_be_bytes([socket[4], socket[5]]);
    let address = &socket[8..24];
    let any = address.iter().all(|byte| *byte == 0);
    // Other loopback addresses are the relay's: no program of the session listens there.
    let loopback = family == 2 && address[..4] == [127, 0, 0, 1];
    (port > 0 && (any || loopback)).then_some(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One message of the kernel about a socket.
    fn told(port: u16, address: &[u8]) -> Vec<u8> {
        let mut message = vec![0; HEADER + 72];
        let length = message.len() as u32;
        message[..4].copy_from_slice(&length.to_ne_bytes());
        message[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        message[HEADER + 4..HEADER + 6].copy_from_slice(&port.to_be_bytes());
        message[HEADER + 8..HEADER + 8 + address.len()].copy_from_slice(address);
        message
    }

    #[test]
    fn ports_are_taken_out_of_what_the_kernel_says() {
        let mut done = vec![0; HEADER + 4];
        done[0] = 20;
        done[4..6].copy_from_slice(&DONE.to_ne_bytes());
        let said = [
            told(8888, &[127, 0, 0, 1]),
            told(80, &[0, 0, 0, 0]),
            told(9, &[10, 0, 0, 1]),
            told(3306, &[127, 80, 0, 1]),
            done,
        ]
        .concat();
        let mut found = BTreeSet::new();
        assert!(take(&said, 2, &mut found).expect("well formed"));
        assert_eq!(found, BTreeSet::from([80, 8888]));
        let mut six = BTreeSet::new();
        let own = told(7, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert!(!take(&[own, told(8, &[0; 16])].concat(), 10, &mut six).expect("well formed"));
        assert_eq!(six, BTreeSet::from([8]), "::1 is not reached by 127.0.0.1");
        for broken in [&said[..HEADER + 3], &[1; HEADER][..]] {
            assert!(take(broken, 2, &mut found).is_err(), "{broken:?}");
        }
    }

    #[test]
    fn a_port_of_our_own_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let open = dump_all();
        let Some(open) = open else {
            // A kernel without the list.
            return;
        };
        assert!(open.contains(&port), "{port} is not among {open:?}");
    }

    fn dump_all() -> Option<BTreeSet<u16>> {
        let mut found = BTreeSet::new();
        dump(2, &mut found).ok()?;
        Some(found)
    }
}
