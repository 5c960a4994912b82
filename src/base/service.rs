//! Tells the service manager that started this process how it stands. Without one (no
//! `NOTIFY_SOCKET`), nothing is told. Never asks it anything.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The process does its work now: the unit counts as started.
pub const READY: &str = "READY=1";
/// The process is about to leave: the unit counts as stopping.
pub const STOPPING: &str = "STOPPING=1";

/// Whether a service manager waits to be told, and keeps what this process prints.
pub fn has_manager() -> bool {
    socket().is_some()
}

/// Sends one state, as sd_notify(3) words it; does nothing without a service manager.
///
/// Errors: the socket named by the environment cannot be written; the service goes on, and the
/// manager gives up waiting by itself.
pub fn tell(state: &str) -> io::Result<()> {
    match socket() {
        Some(socket) => send(&socket, state),
        None => Ok(()),
    }
}

fn socket() -> Option<OsString> {
    std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty())
}

/// A name that begins with `@` lives in the kernel's own name space and not in the file system.
fn send(socket: &OsString, state: &str) -> io::Result<()> {
    let name = socket.as_bytes();
    let address = match name.strip_prefix(b"@") {
        Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?
        .send_to_addr(state.as_bytes(), &address)
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(by: &UnixDatagram) -> String {
        let mut buffer = [0; 64];
        let count = by.recv(&mut buffer).expect("something was sent");
        String::from_utf8_lossy(&buffer[..count]).into_owned()
    }

    #[test]
    fn a_manager_hears_at_a_path_and_at_an_abstract_name() {
        let folder = std::env::temp_dir().join(format!("fardel-notify-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("socket");
        let manager = UnixDatagram::bind(&path).unwrap();
        send(&path.clone().into_os_string(), READY).unwrap();
        assert_eq!(heard(&manager), "READY=1");

        let name = format!("fardel-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        send(&format!("@{name}").into(), STOPPING).unwrap();
        assert_eq!(heard(&manager), "STOPPING=1");

        std::fs::remove_dir_all(&folder).unwrap();
        let gone = send(&path.into_os_string(), READY).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }
}
