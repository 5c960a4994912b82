//! Which failures to start a container pass by themselves, and when it is tried again. A full disk, a table
//! of processes without room or a device that is busy for a moment must not end a session for good. Never
//! starts anything.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::time::{Duration, Instant};

use rules::names::ContainerName;

use crate::runtime::RuntimeFault;

/// Times a container is tried in all before its session ends. Higher: a session that never starts waits
/// longer for its reason. Lower: a disk that is full for a minute ends everybody who waits.
const MAX_STARTS: u32 = 6;
/// The first pause; each further one is twice as long, so that the last try comes after a minute.
const FIRST_PAUSE: Duration = Duration::from_secs(2);

/// Starts that failed and are to be tried again.
#[derive(Debug, Default)]
pub(crate) struct Again(BTreeMap<ContainerName, Try>);

#[derive(Debug, Clone, Copy)]
struct Try {
    failed: u32,
    due: Instant,
}

impl Again {
    /// Whether a container may be tried now.
    pub(crate) fn is_due(&self, name: ContainerName, now: Instant) -> bool {
        self.0.get(&name).is_none_or(|again| again.due <= now)
    }

    /// Notes a failure that may pass. False once it was tried often enough: then it is final.
    pub(crate) fn failed(&mut self, name: ContainerName, now: Instant) -> bool {
        let failed = self.0.get(&name).map_or(0, |again| again.failed) + 1;
        if failed >= MAX_STARTS {
            self.0.remove(&name);
            return false;
        }
        let pause = FIRST_PAUSE * 2_u32.saturating_pow(failed - 1);
        let due = now + pause;
        self.0.insert(name, Try { failed, due });
        true
    }

    /// It was started, refused for good or is wanted no more.
    pub(crate) fn forget(&mut self, name: ContainerName) {
        self.0.remove(&name);
    }

    /// Forgets all that `kept` does not know.
    pub(crate) fn retain(&mut self, kept: impl Fn(&ContainerName) -> bool) {
        self.0.retain(|name, _| kept(name));
    }

    /// Until the next of them is due; None where none waits.
    pub(crate) fn wait(&self, now: Instant) -> Option<Duration> {
        let next = self.0.values().map(|again| again.due).min()?;
        Some(next.saturating_duration_since(now))
    }
}

/// True for a failure that may be over in a moment, and after which nothing of the container is left.
pub(crate) fn passes(fault: &RuntimeFault) -> bool {
    match fault {
        RuntimeFault::File { source, .. } | RuntimeFault::System { source, .. } => {
            is_passing(source)
        }
        _ => false,
    }
}

fn is_passing(error: &Error) -> bool {
    use rustix::io::Errno;
    let of_the_moment = matches!(
        error.kind(),
        ErrorKind::StorageFull
            | ErrorKind::QuotaExceeded
            | ErrorKind::OutOfMemory
            | ErrorKind::ResourceBusy
            | ErrorKind::WouldBlock
            | ErrorKind::Interrupted
            | ErrorKind::TimedOut
    );
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    of_the_moment || matches!(number, Some(Errno::IO | Errno::MFILE | Errno::NFILE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rules::names::SessionId;
    use std::path::PathBuf;

    const NAME: ContainerName = ContainerName {
        session: SessionId(uuid::Uuid::from_u128(1)),
        incarnation: 1,
        index: 0,
    };

    #[test]
    fn a_start_that_failed_is_tried_again_with_growing_pauses_and_not_for_ever() {
        let mut again = Again::default();
        let mut now = Instant::now();
        let mut pauses = Vec::new();
        assert!(again.is_due(NAME, now));
        while again.failed(NAME, now) {
            assert!(!again.is_due(NAME, now));
            let wait = again.wait(now).unwrap();
            pauses.push(wait.as_secs());
            now += wait;
            assert!(again.is_due(NAME, now));
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32]);
        assert_eq!(again.wait(now), None);
    }

    #[test]
    fn a_full_disk_passes_and_a_missing_program_does_not() {
        let file = |source: Error| RuntimeFault::File {
            what: "create",
            path: PathBuf::from("/run/fardel/c/x"),
            source,
        };
        for number in [
            libc::ENOSPC,
            libc::EIO,
            libc::EAGAIN,
            libc::ENFILE,
            libc::EBUSY,
        ] {
            let fault = file(Error::from_raw_os_error(number));
            assert!(passes(&fault), "{fault:?}");
        }
        for number in [libc::ENOENT, libc::EACCES, libc::EROFS] {
            let fault = file(Error::from_raw_os_error(number));
            assert!(!passes(&fault), "{fault:?}");
        }
        assert!(!passes(&RuntimeFault::Refused("no such user".into())));
        // A supervisor that could not be started, too: nothing of it is there.
        let started = |source: Error| RuntimeFault::File {
            what: "start",
            path: PathBuf::from("/proc/self/exe"),
            source,
        };
        for number in [libc::EAGAIN, libc::ENOMEM] {
            assert!(passes(&started(Error::from_raw_os_error(number))));
        }
        assert!(passes(&started(ErrorKind::TimedOut.into())));
        assert!(!passes(&started(Error::from_raw_os_error(libc::ENOENT))));
    }
}
