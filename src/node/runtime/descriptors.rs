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
    Ok(receive_with_descriptor(socket)?.1)
}

/// Receives one descriptor and the bytes it came with, up to a path's length.
pub(super) fn receive_with_descriptor(socket: BorrowedFd<'_>) -> io::Result<(Vec<u8>, OwnedFd)> {
    let mut bytes = vec![0u8; 4096];
    let mut space = nix::cmsg_space!([RawFd; 1]);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = loop {
        match recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags) {
            Err(nix::errno::Errno::EINTR) => {}
            done => break done?,
        }
    };
    let descriptor = message.cmsgs()?.find_map(|control| match control {
        // SAFETY: the kernel just made this descriptor for us; only one fits the space given.
        ControlMessageOwned::ScmRights(all) => all
            .first()
            .map(|first| unsafe { OwnedFd::from_raw_fd(*first) }),
        _ => None,
    });
    let length = message.bytes;
    bytes.truncate(length);
    Ok((bytes, descriptor.ok_or(io::ErrorKind::UnexpectedEof)?))
}
