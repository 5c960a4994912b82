//! Hands open files from one process to another over a local socket. Nothing else travels there.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use std::os::fd::FromRawFd;

/// Sends one descriptor. Allocates little and takes no lock, so it may run after a fork.
pub(super) fn send_descriptor(socket: RawFd, descriptor: &impl AsFd) -> io::Result<()> {
    let descriptors = [descriptor.as_fd().as_raw_fd()];
    sendmsg::<()>(
        socket,
        &[IoSlice::new(b"d")],
        &[ControlMessage::ScmRights(&descriptors)],
        MsgFlags::MSG_NOSIGNAL,
        None,
    )?;
    Ok(())
}

/// Receives one descriptor; an error when the other side closed without sending one.
pub(super) fn receive_descriptor(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut byte = [0u8; 64];
    let mut space = nix::cmsg_space!([RawFd; 1]);
    let mut parts = [IoSliceMut::new(&mut byte)];
    let message = recvmsg::<()>(
        socket.as_raw_fd(),
        &mut parts,
        Some(&mut space),
        MsgFlags::MSG_CMSG_CLOEXEC,
    )?;
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = control {
            if let Some(first) = descriptors.first() {
                // SAFETY: the kernel just made this descriptor for us; only one fits the space given.
                return Ok(unsafe { OwnedFd::from_raw_fd(*first) });
            }
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}
