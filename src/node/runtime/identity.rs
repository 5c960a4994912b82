//! Knows a process by more than its number: pid, start time and boot together. Numbers are
//! reused; a signal to a bare pid may reach a stranger. Never signals by pid alone.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// A process that can be recognised again, also by a later server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProcessIdentity {
    pub pid: i32,
    /// Clock ticks after boot, field 22 of `/proc/PID/stat`.
    pub start_time: u64,
    pub boot_id: String,
}

impl ProcessIdentity {
    /// The identity of a living process; an error when it is gone.
    pub(super) fn of(pid: i32) -> io::Result<Self> {
        Ok(Self {
            pid,
            start_time: start_time(pid)?,
            boot_id: boot_id()?,
        })
    }

    /// A handle to exactly this process, or nothing when it is dead or its number was reused. An error where
    /// it could not be read, for want of memory or descriptors: it may live then, and counts as living.
    pub(super) fn open(&self) -> io::Result<Option<OwnedFd>> {
        if boot_id()? != self.boot_id {
            return Ok(None);
        }
        let Some(pid) = Pid::from_raw(self.pid) else {
            return Ok(None);
        };
        let handle = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(handle) => handle,
            // The last two where its number names a thread of another process now.
            Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // Compared after opening: from here on the handle cannot come to mean another process.
        // One that only waits to be taken by its parent is dead.
        let lives = session_of(self.pid)?.is_some();
        let since = match start_time(self.pid) {
            Err(error) if is_gone(&error) => return Ok(None),
            since => since?,
        };
        Ok((lives && since == self.start_time).then_some(handle))
    }

    /// Sends a signal to exactly this process; false when it is gone or cannot be reached now.
    pub(super) fn signal(&self, signal: i32) -> bool {
        // SAFETY: only numbers of real signals are passed on by the callers in this room.
        let signal = unsafe { Signal::from_raw_unchecked(signal) };
        let opened = self.open().ok().flatten();
        opened.is_some_and(|handle| pidfd_send_signal(handle.as_fd(), signal).is_ok())
    }
}

/// Handles to the living members of the session (in the kernel's sense) that `leader` opened and did not
/// survive: what it forked and what stayed with it. Empty where its number has passed to another process:
/// then no member is left, because the kernel gives no number away that still names a session. Reads one
/// small file for each process of the machine.
pub(super) fn left_by(leader: &ProcessIdentity) -> Vec<OwnedFd> {
    if boot_id().ok().as_ref() != Some(&leader.boot_id)
        || start_time(leader.pid).is_ok_and(|since| since != leader.start_time)
    {
        return Vec::new();
    }
    let member = |pid: i32| (living_session(pid)? == leader.pid).then_some(());
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid: i32| {
            member(pid)?;
            let handle = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
            // Looked at again: from here on the handle cannot come to mean another process.
            member(pid).map(|()| handle)
        })
        .collect()
}

/// A handle to a living process whose session's leader is dead; None for every other.
pub(super) fn leaderless(pid: i32) -> Option<OwnedFd> {
    let without = || {
        let session = living_session(pid)?;
        (session != pid && matches!(session_of(session), Ok(None))).then_some(())
    };
    without()?;
    let handle = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    without().map(|()| handle)
}

/// The session that a process stands in; None once it is dead, and where it could not be read.
fn living_session(pid: i32) -> Option<i32> {
    session_of(pid).ok().flatten()
}

/// The session that a process stands in; None once it is dead, an error where it could not be read.
fn session_of(pid: i32) -> io::Result<Option<i32>> {
    let line = match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Err(error) if is_gone(&error) => return Ok(None),
        line => line?,
    };
    let told = || {
        let mut fields = line.rsplit_once(") ")?.1.split(' ');
        let state = fields.next()?;
        let session = fields.nth(2)?.parse().ok()?;
        (!matches!(state, "Z" | "X")).then_some(session)
    };
    Ok(told())
}

/// Whether a file of `/proc` could not be read because its process is gone.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

/// Milliseconds since a process began, on the clock that counts from the machine's boot and that none can
/// set; None once it is gone. Exact to a clock tick, a hundredth of a second.
pub(super) fn age_millis(pid: i32) -> Option<u64> {
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let (seconds, rest) = uptime.split_whitespace().next()?.split_once('.')?;
    let hundredths: u64 = seconds.parse::<u64>().ok()? * 100 + rest.parse::<u64>().ok()?;
    Some(hundredths.saturating_sub(start_time(pid).ok()?) * 10)
}

/// This start of the machine.
pub(super) fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}

fn start_time(pid: i32) -> io::Result<u64> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second field is a name in parentheses that may hold anything; count from its end.
    line.rsplit_once(") ")
        .and_then(|(_, rest)| rest.split(' ').nth(19))
        .and_then(|field| field.parse().ok())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a process without a start time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_grows_older_by_the_machines_own_clock() {
        let own = std::process::id() as i32;
        let before = age_millis(own).expect("this process lives");
        std::thread::sleep(std::time::Duration::from_millis(60));
        let after = age_millis(own).expect("it still does");
        assert!(
            (before + 40..before + 10_000).contains(&after),
            "{before} {after}"
        );
        assert_eq!(age_millis(i32::MAX), None);
    }

    #[test]
    fn what_a_dead_leader_left_is_found_and_nothing_of_a_stranger() {
        use std::io::Read as _;
        use std::process::{Command, Stdio};
        let mut leader = Command::new("setsid")
            .args(["sh", "-c", "sleep 1000 <&- >&- 2>&- & echo; read wait"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a leader");
        let mut said = [0u8; 1];
        let mut output = leader.stdout.take().expect("piped");
        output.read_exact(&mut said).expect("it forked");
        let identity = ProcessIdentity::of(leader.id() as i32).expect("it lives");
        leader.kill().expect("ended");
        leader.wait().expect("waited for");
        let left = left_by(&identity);
        assert_eq!(left.len(), 1);
        let own = ProcessIdentity::of(std::process::id() as i32).expect("this process lives");
        for stranger in [
            ProcessIdentity {
                start_time: own.start_time + 1,
                ..own.clone()
            },
            ProcessIdentity {
                boot_id: "another".into(),
                ..identity
            },
        ] {
            assert!(left_by(&stranger).is_empty());
        }
        for handle in left {
            pidfd_send_signal(handle, Signal::KILL).expect("ended");
        }
    }

    #[test]
    fn a_reused_number_or_another_boot_is_a_stranger() {
        let own = ProcessIdentity::of(std::process::id() as i32).expect("this process lives");
        assert!(own.open().unwrap().is_some());
        assert!(
            ProcessIdentity {
                start_time: own.start_time + 1,
                ..own.clone()
            }
            .open()
            .unwrap()
            .is_none()
        );
        assert!(
            ProcessIdentity {
                boot_id: "another".into(),
                ..own
            }
            .open()
            .unwrap()
            .is_none()
        );
    }
}
