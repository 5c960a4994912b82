//! The private network of a session of several containers: a bridge inside the namespace of its main container, and a pair
//! of virtual interfaces from there to each other one, by messages of `rtnetlink(7)`. All of it lies in namespaces of the
//! session and goes with them: nothing of it is on the machine, and nothing has to be taken down. Never changes which
//! namespace a thread is in.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use rules::container_network::PREFIX_LENGTH;
use rules::workload::container::role;

/// What the interface is called in every container, the bridge itself in the main one.
const INTERFACE: &std::ffi::CStr = c"cluster0";

/// `RTM_NEWLINK` and `RTM_NEWADDR`
const NEW_LINK: u16 = 16;
const NEW_ADDRESS: u16 = 20;
/// `NLM_F_REQUEST | NLM_F_ACK`, and with `NLM_F_EXCL | NLM_F_CREATE`
const CHANGE: u16 = 0x5;
const MAKE: u16 = 0x605;
/// `NLMSG_ERROR`
const ERROR: u16 = 2;
/// A message of netlink: its length, kind, flags, number and sender.
const HEADER: usize = 16;

/// `IFLA_IFNAME`, `IFLA_MASTER`, `IFLA_LINKINFO`, `IFLA_NET_NS_FD`
const NAME: u16 = 3;
const MASTER: u16 = 10;
const KIND_OF_LINK: u16 = 18;
const NAMESPACE: u16 = 28;
/// `IFLA_INFO_KIND`, `IFLA_INFO_DATA`, `VETH_INFO_PEER`
const KIND: u16 = 1;
const DATA: u16 = 2;
const PEER: u16 = 1;
/// `IFA_ADDRESS`, `IFA_LOCAL`
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;

/// Makes the bridge in this thread's namespace, with the address of the main container.
pub(super) fn make(address: Ipv4Addr) -> io::Result<()> {
    let asking = Asking::new()?;
    let bridge = attribute(KIND_OF_LINK, &attribute(KIND, b"bridge\0"));
    let name = attribute(NAME, INTERFACE.to_bytes_with_nul());
    asking.ask(NEW_LINK, MAKE, &[link(0, true), name, bridge].concat())?;
    asking.ask(NEW_ADDRESS, MAKE, &has(interface()?, address))
}

/// Makes the pair of the container of that place: one end on the bridge of this thread's namespace, the other in its own.
pub(super) fn connect(index: u32, member: &File) -> io::Result<()> {
    let asking = Asking::new()?;
    let namespace = attribute(NAMESPACE, &member.as_raw_fd().to_ne_bytes());
    let name = attribute(NAME, INTERFACE.to_bytes_with_nul());
    // Down: an end cannot be raised before the other one exists.
    let peer = attribute(PEER, &[link(0, false), name, namespace].concat());
    let kind = attribute(KIND, b"veth\0");
    let pair = attribute(KIND_OF_LINK, &[kind, attribute(DATA, &peer)].concat());
    let port = attribute(NAME, format!("{}\0", role(index)).as_bytes());
    let bridge = attribute(MASTER, &interface()?.to_ne_bytes());
    let message = [link(0, true), port, bridge, pair].concat();
    asking.ask(NEW_LINK, MAKE, &message)
}

/// Gives the interface of this thread's namespace its address, and raises it.
pub(super) fn raise(address: Ipv4Addr) -> io::Result<()> {
    let asking = Asking::new()?;
    let own = interface()?;
    asking.ask(NEW_ADDRESS, MAKE, &has(own, address))?;
    asking.ask(NEW_LINK, CHANGE, &link(own, true))
}

/// The number of the interface in this thread's namespace.
fn interface() -> io::Result<u32> {
    // SAFETY: the name is a constant that ends with a NUL.
    match unsafe { libc::if_nametoindex(INTERFACE.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// A connection to the kernel's list of interfaces, of the namespace in which it was made.
struct Asking(OwnedFd);

impl Asking {
    fn new() -> io::Result<Self> {
        Ok(Self(socket(
            AddressFamily::Netlink,
            SockType::Datagram,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkRoute,
        )?))
    }

    /// Sends one message, and gives the kernel's answer to it.
    fn ask(&self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        let length = u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX);
        let mut message: Vec<u8> = Vec::with_capacity(HEADER + body.len());
        message.extend(length.to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(flags.to_ne_bytes());
        // Number and sender: one question at a time, and the kernel knows who asks.
        message.extend([0; 8]);
        message.extend(body);
        rustix::io::write(&self.0, &message)?;
        let mut buffer = vec![0; 4 << 10];
        let count = rustix::io::read(&self.0, &mut buffer[..])?;
        answer(&buffer[..count])
    }
}

/// What the kernel said to one message.
fn answer(said: &[u8]) -> io::Result<()> {
    let strange = || io::Error::from(io::ErrorKind::InvalidData);
    let kind = said.get(4..6).and_then(|bytes| bytes.try_into().ok());
    let code = said.get(HEADER..HEADER + 4);
    let code = code.and_then(|bytes| bytes.try_into().ok());
    match (kind.map(u16::from_ne_bytes), code.map(i32::from_ne_bytes)) {
        (Some(ERROR), Some(0)) => Ok(()),
        (Some(ERROR), Some(code)) => Err(io::Error::from_raw_os_error(-code)),
        _ => Err(strange()),
    }
}

/// `ifinfomsg`: an interface by number, 0 for a new one, raised or not.
fn link(index: u32, raised: bool) -> Vec<u8> {
    let flags = u32::from(raised).to_ne_bytes();
    [[0; 4], index.to_ne_bytes(), flags, flags].concat()
}

/// `ifaddrmsg` with its attributes.
fn has(index: u32, address: Ipv4Addr) -> Vec<u8> {
    let family = u8::try_from(libc::AF_INET).unwrap_or_default();
    let mut message = vec![family, PREFIX_LENGTH, 0, 0];
    message.extend(index.to_ne_bytes());
    message.extend(attribute(LOCAL, &address.octets()));
    message.extend(attribute(ADDRESS, &address.octets()));
    message
}

/// One attribute: its length, its kind, what it holds, and as many zeros as bring the next to its place.
fn attribute(kind: u16, holds: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + holds.len()).unwrap_or(u16::MAX);
    let mut bytes = Vec::with_capacity(4 + holds.len().next_multiple_of(4));
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(holds);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_begins_where_the_kernel_looks_for_it() {
        let one = attribute(NAME, b"sub1\0");
        assert_eq!((one.len(), u16::from_ne_bytes([one[0], one[1]])), (12, 9));
        assert_eq!(&one[4..], b"sub1\0\0\0\0");
        assert_eq!(attribute(MASTER, &7_u32.to_ne_bytes()).len(), 8);
        assert_eq!(link(0, true).len(), 16);
        assert_eq!(has(1, Ipv4Addr::LOCALHOST).len(), 8 + 2 * 8);
    }

    #[test]
    fn an_answer_is_what_the_kernel_says_and_nothing_else_is_taken_for_one() {
        let said = |kind: u16, code: i32| {
            let mut bytes = vec![0; HEADER];
            bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
            bytes.extend(code.to_ne_bytes());
            bytes
        };
        assert!(answer(&said(ERROR, 0)).is_ok());
        let refused = answer(&said(ERROR, -libc::EEXIST)).expect_err("it is there");
        assert_eq!(refused.raw_os_error(), Some(libc::EEXIST));
        assert!(answer(&said(NEW_LINK, 0)).is_err());
        assert!(answer(&said(ERROR, 0)[..HEADER + 2]).is_err());
    }
}
