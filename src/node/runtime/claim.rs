//! Who may begin a container: exactly one shim, or none any more. The file `claim` in the
//! container's directory decides: the process that makes it first. A shim keeps it locked as long as it lives,
//! so a later server can tell a shim that has not written its record yet from one that died before
//! it did anything, and can start that container as if it had never been tried.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FlockOperation, flock};

use super::identity::ProcessIdentity;

const NAME: &str = "claim";

/// What became of a start that has left no record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    /// Nothing was begun, and nothing will be.
    Never,
    /// A shim lives and has written its record meanwhile.
    Recorded,
    /// A shim lives and writes nothing.
    Stuck,
}

/// Takes the right to begin the container of `directory`; None where a server withdrew it, another
/// shim has it, or the server that ordered it is gone. Hold what it gives until the end.
pub(super) fn take(directory: &Path, server: &UnixStream) -> io::Result<Option<File>> {
    if hung_up(server) {
        return Ok(None);
    }
    let own = directory.join(format!("{NAME}.{}", std::process::id()));
    let mut file = open(OpenOptions::new().create_new(true), &own)?;
    // The process that has to end a shim without a record finds it by this.
    let identity = ProcessIdentity::of(rustix::process::getpid().as_raw_nonzero().get())?;
    file.write_all(&serde_json::to_vec(&identity)?)?;
    flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive)?;
    // Linked only when locked: no process ever sees the claim of a living shim unlocked.
    let taken = fs::hard_link(&own, directory.join(NAME));
    fs::remove_file(&own)?;
    match taken {
        // A server that died just now may have a successor that has looked already.
        Ok(()) => Ok((!hung_up(server)).then_some(file)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(error),
    }
}

/// Finds out whether the container of `directory`, which has no record, was begun; withdraws it
/// where it was not. Waits for a living shim as long as `patience`: from its claim to its record it takes
/// a millisecond, unless it is stopped.
pub(super) fn settle(directory: &Path, patience: Duration) -> io::Result<Beginning> {
    let path = directory.join(NAME);
    match open(OpenOptions::new().create_new(true), &path) {
        Ok(_) => return Ok(Beginning::Never),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let claim = open(&mut OpenOptions::new(), &path)?;
    let until = Instant::now() + patience;
    loop {
        if directory.join("run.json").exists() {
            return Ok(Beginning::Recorded);
        }
        match flock(claim.as_fd(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if directory.join("run.json").exists() => return Ok(Beginning::Recorded),
            Ok(()) => return Ok(Beginning::Never),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(Beginning::Stuck),
            Err(error) => return Err(error.into()),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether no process holds the claim of `directory` any more, neither its shim nor what that forked. Waits as
/// long as `patience` for those who are about to end.
pub(super) fn unheld(directory: &Path, patience: Duration) -> io::Result<bool> {
    let claim = match open(&mut OpenOptions::new(), &directory.join(NAME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        opened => opened?,
    };
    let until = Instant::now() + patience;
    loop {
        match flock(claim.as_fd(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The shim that took the claim of `directory`; None where none did, or one of an older version. An error
/// where it could not be read.
pub(super) fn holder(directory: &Path) -> io::Result<Option<ProcessIdentity>> {
    match fs::read(directory.join(NAME)) {
        Ok(text) => Ok(serde_json::from_slice(&text).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn open(how: &mut OpenOptions, path: &Path) -> io::Result<File> {
    how.read(true).write(true).mode(0o600).open(path)
}

/// True where the other end of the socket is gone.
fn hung_up(server: &UnixStream) -> bool {
    let mut watched = [PollFd::new(server, PollFlags::empty())];
    let now = rustix::time::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut watched, Some(&now)).is_ok_and(|_| watched[0].revents().contains(PollFlags::HUP))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAIM_TIMEOUT: Duration = Duration::from_secs(3);

    #[test]
    fn one_claim_is_taken_and_a_dead_one_counts_as_never_begun() {
        let folder = tempfile::tempdir().unwrap();
        let (near, _far) = UnixStream::pair().unwrap();
        let held = take(folder.path(), &near).unwrap();
        assert!(held.is_some());
        let holder = holder(folder.path()).unwrap().unwrap();
        assert_eq!(holder.pid, std::process::id() as i32);
        assert!(
            take(folder.path(), &near).unwrap().is_none(),
            "a second shim"
        );
        assert!(!unheld(folder.path(), Duration::ZERO).unwrap());
        drop(held);
        assert!(unheld(folder.path(), Duration::ZERO).unwrap());
        assert_eq!(
            settle(folder.path(), CLAIM_TIMEOUT).unwrap(),
            Beginning::Never
        );
    }

    #[test]
    fn a_living_shim_is_waited_for_until_its_record_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let (near, _far) = UnixStream::pair().unwrap();
        let _held = take(folder.path(), &near).unwrap().unwrap();
        let record = folder.path().join("run.json");
        let writer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            fs::write(record, "{}").unwrap();
        });
        assert_eq!(
            settle(folder.path(), CLAIM_TIMEOUT).unwrap(),
            Beginning::Recorded
        );
        writer.join().unwrap();
    }

    #[test]
    fn what_a_server_withdrew_no_shim_begins() {
        let folder = tempfile::tempdir().unwrap();
        let (near, far) = UnixStream::pair().unwrap();
        assert_eq!(
            settle(folder.path(), CLAIM_TIMEOUT).unwrap(),
            Beginning::Never
        );
        assert!(take(folder.path(), &near).unwrap().is_none());
        let other = tempfile::tempdir().unwrap();
        drop(far);
        assert!(
            take(other.path(), &near).unwrap().is_none(),
            "its server is gone"
        );
    }
}
