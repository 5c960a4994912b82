//! A session's network: a namespace of its own in which only `lo` exists, reached from outside by
//! entering it for the length of one connect. Several containers of one session have one each, joined by a switch that lies
//! in them. Nothing of a session ever listens on this machine.
//!
//! Entering is per thread and synchronous; when the way back fails the process ends at once,
//! because going on in the wrong network would connect strangers.

mod listening;
mod switch;

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use nix::sched::{CloneFlags, setns};

/// How long a program inside may take to accept. It is on the same machine: longer only hides that none listens.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Brings up `lo` in the network namespace of process `pid`.
pub(crate) fn raise_loopback(pid: i32) -> io::Result<()> {
    inside(&File::open(format!("/proc/{pid}/ns/net"))?, || {
        let socket = rustix::net::socket(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::DGRAM,
            None,
        )?;
        // SAFETY: an all-zero request is a valid value of this plain C structure.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
            *to = *from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        // SAFETY: the request outlives the call and names its interface.
        if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    })
}

/// Opens the private network of a session in the network namespace of its main container, whose first process is `pid`.
pub(crate) fn make_switch(pid: i32, address: Ipv4Addr) -> io::Result<()> {
    let namespace = File::open(format!("/proc/{pid}/ns/net"))?;
    inside(&namespace, || switch::make(address))
}

/// Joins the container of that place, whose first process is `pid`, to the private network whose switch lies in `hub`.
pub(crate) fn join_switch(hub: &File, pid: i32, index: u32, address: Ipv4Addr) -> io::Result<()> {
    let own = File::open(format!("/proc/{pid}/ns/net"))?;
    inside(hub, || switch::connect(index, &own))?;
    inside(&own, || switch::raise(address))
}

/// Connects to a port on the loopback address of the namespace; works for programs bound to 127.0.0.1.
pub(crate) fn dial(namespace: &File, port: u16) -> io::Result<TcpStream> {
    inside(namespace, || {
        let address = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
        TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)
    })
}

/// Listens at addresses inside the namespace; all of them or none. Connections are taken by this process, wherever it stands.
pub(crate) fn listen(namespace: &File, addresses: &[SocketAddrV4]) -> io::Result<Vec<TcpListener>> {
    inside(namespace, || {
        addresses.iter().map(TcpListener::bind).collect()
    })
}

/// The ports of the namespace that a connection to its 127.0.0.1 reaches.
pub(crate) fn listening(namespace: &File) -> io::Result<BTreeSet<u16>> {
    inside(namespace, listening::ports)
}

/// Runs `work` with this thread inside another network namespace.
fn inside<T>(namespace: &File, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let own = File::open("/proc/thread-self/ns/net")?;
    setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET)?;
    let done = work();
    if setns(own.as_fd(), CloneFlags::CLONE_NEWNET).is_err() {
        // Nothing in this process may go on with a thread in a stranger's network.
        std::process::abort();
    }
    done
}
