//! How the server and the supervisors of sessions speak to the relay: one question and one answer a connection, each a length
//! and JSON, at a socket that only root opens. Knows neither names nor addresses.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use rules::egress::SessionEgress;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::{Deserialize, Serialize};

use super::session::Sessions;
use super::{RelaySight, SOCKET};

/// What this relay speaks. A relay of an older version goes on until it is ended, and answers what it knows.
const PROTOCOL: u32 = 1;

/// How long the other side may take. It takes microseconds; this only bounds one that is stopped.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes of a question: 64 targets with the longest names.
const MAX_QUESTION: usize = 256 << 10;

/// Bytes of an answer: 1,000 sessions with all of their rows and ends.
const MAX_ANSWER: usize = 32 << 20;

/// Length of what stands before each message.
const HEAD: usize = 4;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "ask")]
pub(crate) enum RelayRequest {
    /// Serves a container; its network namespace and a handle to its first process come along. Again judges
    /// its connections by what is given.
    Open {
        name: String,
        egress: SessionEgress,
    },
    Look,
    Close {
        name: String,
    },
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RelayReply {
    pub(crate) protocol: u32,
    pub(crate) sessions: Vec<RelaySight>,
    /// Why nothing was done.
    pub(crate) fault: Option<String>,
}

/// A connection to a relay, for one question.
#[derive(Debug)]
pub(crate) struct RelayConnection {
    socket: UnixStream,
}

impl RelayConnection {
    /// Connects. Errors: no relay serves below `run`.
    pub(crate) fn open(run: &Path) -> io::Result<Self> {
        Self::below(&File::open(run)?)
    }

    /// The same below an open directory, also where its path leads there no more.
    pub(crate) fn below(held: &File) -> io::Result<Self> {
        // The path may be longer than a socket address allows.
        let path = format!("/proc/self/fd/{}/{SOCKET}", held.as_raw_fd());
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let socket = UnixStream::from(socket);
        socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        // Before it connects: where the relay is stopped and its queue is full, that waits too.
        socket.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Self { socket })
    }

    /// Asks, with open files. Errors: what the relay says was wrong, too.
    pub(crate) fn ask(
        mut self,
        request: &RelayRequest,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<RelayReply> {
        let message = framed(request)?;
        let raw: Vec<RawFd> = descriptors.iter().map(|one| one.as_raw_fd()).collect();
        let controls = match raw.is_empty() {
            true => vec![],
            false => vec![ControlMessage::ScmRights(&raw)],
        };
        let parts = [IoSlice::new(&message)];
        let socket = self.socket.as_raw_fd();
        let sent = sendmsg::<()>(socket, &parts, &controls, MsgFlags::MSG_NOSIGNAL, None)?;
        self.socket.write_all(&message[sent..])?;
        let mut head = [0; HEAD];
        self.socket.read_exact(&mut head)?;
        let mut answer = vec![0; length_of(head, MAX_ANSWER)?];
        self.socket.read_exact(&mut answer)?;
        let reply: RelayReply = serde_json::from_slice(&answer)?;
        match reply.fault {
            Some(fault) => Err(io::Error::other(fault)),
            None => Ok(reply),
        }
    }
}

fn framed(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let text = serde_json::to_vec(message)?;
    let length = u32::try_from(text.len()).map_err(io::Error::other)?;
    let mut framed = length.to_le_bytes().to_vec();
    framed.extend(text);
    Ok(framed)
}

fn length_of(head: [u8; HEAD], most: usize) -> io::Result<usize> {
    let length = u32::from_le_bytes(head) as usize;
    match length <= most {
        true => Ok(length),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Answers one connection after the other, for ever. One that says nothing holds up the others for its time.
pub(super) fn serve(listener: &UnixListener, sessions: &Sessions) {
    for socket in listener.incoming() {
        let served = socket.and_then(|socket| answer(socket, sessions));
        if let Err(error) = served {
            eprintln!("fardel relay: a question was not answered: {error}");
            // Out of descriptors, for one: it must not fill the journal.
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn answer(mut socket: UnixStream, sessions: &Sessions) -> io::Result<()> {
    socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    socket.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    let peer = rustix::net::sockopt::socket_peercred(&socket)?;
    if peer.uid != rustix::process::geteuid() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    // One that only looks whether a relay is there says nothing.
    let Some((question, descriptors)) = receive(&mut socket)? else {
        return Ok(());
    };
    let mut reply = RelayReply {
        protocol: PROTOCOL,
        ..RelayReply::default()
    };
    match serde_json::from_slice(&question)? {
        RelayRequest::Open { name, egress } => {
            let opened = <[OwnedFd; 2]>::try_from(descriptors)
                .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
                .and_then(|[namespace, process]| {
                    sessions.open(name, egress, &File::from(namespace), process)
                });
            reply.fault = opened.err().map(|error| error.to_string());
        }
        RelayRequest::Look => reply.sessions = sessions.look(),
        RelayRequest::Close { name } => sessions.close(&name),
    }
    socket.write_all(&framed(&reply)?)
}

/// One question, and what came along; None where the other side said nothing.
fn receive(socket: &mut UnixStream) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let mut bytes = vec![0u8; 64 << 10];
    let mut descriptors = Vec::new();
    let count = {
        let mut space = nix::cmsg_space!([RawFd; 2]);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(all) = control {
                // SAFETY: the kernel just made these descriptors for us.
                let owned = all
                    .into_iter()
                    .map(|one| unsafe { OwnedFd::from_raw_fd(one) });
                descriptors.extend(owned);
            }
        }
        message.bytes
    };
    if count == 0 {
        return Ok(None);
    }
    bytes.truncate(count);
    if bytes.len() < HEAD {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut question = bytes.split_off(HEAD);
    let head = <[u8; HEAD]>::try_from(bytes).unwrap_or_default();
    let length = length_of(head, MAX_QUESTION)?;
    let here = question.len();
    if here > length {
        return Err(io::ErrorKind::InvalidData.into());
    }
    question.resize(length, 0);
    socket.read_exact(&mut question[here..])?;
    Ok(Some((question, descriptors)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_arrives_whole_with_its_open_files() {
        let (near, mut far) = UnixStream::pair().expect("a pair");
        let file = File::open("/dev/null").expect("it opens");
        let request = RelayRequest::Close {
            name: "x".repeat(100_000),
        };
        let sender = std::thread::spawn(move || {
            use std::os::fd::AsFd as _;
            let asking = RelayConnection { socket: near };
            asking.ask(&request, &[file.as_fd(), file.as_fd()])
        });
        let (question, files) = receive(&mut far)
            .expect("received")
            .expect("it said something");
        assert_eq!(files.len(), 2);
        let RelayRequest::Close { name } = serde_json::from_slice(&question).expect("JSON") else {
            panic!("another question");
        };
        assert_eq!(name.len(), 100_000);
        let fault = RelayReply {
            fault: Some("no".to_owned()),
            ..RelayReply::default()
        };
        far.write_all(&framed(&fault).expect("JSON")).expect("sent");
        let told = sender.join().expect("no panic").expect_err("a fault");
        assert_eq!(told.to_string(), "no");
    }

    #[test]
    fn a_question_that_is_too_long_is_not_read() {
        let (mut near, mut far) = UnixStream::pair().expect("a pair");
        near.write_all(&u32::MAX.to_le_bytes()).expect("sent");
        assert!(receive(&mut far).is_err());
        drop(near);
        let (near, mut far) = UnixStream::pair().expect("a pair");
        drop(near);
        assert!(receive(&mut far).expect("nothing is wrong").is_none());
    }
}
