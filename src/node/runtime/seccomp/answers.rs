//! Answers the two calls that reveal the size of the machine in the container's own measure:
//! `sched_getaffinity` (how `nproc`, Go and OpenMP count processors) and `sysinfo` (how small
//! programs count memory). A convenience, not a border: the limits themselves are kept elsewhere.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// The container's own measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::runtime) struct VirtualSysinfo {
    /// Whole processors shown.
    pub(in crate::runtime) processors: usize,
    /// Where counting begins, so that containers that pin themselves do not all meet on the first.
    pub(in crate::runtime) first: usize,
    pub(in crate::runtime) memory_limit: u64,
    pub(in crate::runtime) memory_used: u64,
    pub(in crate::runtime) processes: u64,
    pub(in crate::runtime) uptime_seconds: u64,
}

/// Hundredths of a processor that answers to one session may take, which no group is charged for. Beyond it a
/// caller waits its turn. An answer costs some forty microseconds: four hundred a second. Higher: a session
/// takes that much more than its share. Lower: a build that starts hundreds of programs a second is held up.
const ANSWERING_HUNDREDTHS: u32 = 3;

/// An answer is counted as so many times what it took by itself: the supervisor also has to wake and to look.
const AROUND_AN_ANSWER: u32 = 2;

/// How far a session may be ahead of that pace, after a rest. Higher: short bursts cost neighbours. Lower: a
/// start of many threads or programs together waits.
const AHEAD: Duration = Duration::from_millis(500);

/// How far a session is ahead of its pace.
#[derive(Clone, Copy, Debug)]
pub(in crate::runtime) struct Pace {
    /// When everything answered so far would have been answered at an even pace.
    even: Instant,
}

impl Pace {
    /// A session that has asked nothing yet.
    pub(in crate::runtime) fn new(now: Instant) -> Self {
        Self { even: now }
    }

    /// How long the next question has to wait; nothing when it has not.
    pub(in crate::runtime) fn wait(&self, now: Instant) -> Option<Duration> {
        let ahead = self.even.saturating_duration_since(now);
        ahead.checked_sub(AHEAD).filter(|wait| !wait.is_zero())
    }

    /// Counts one answer that took so much of a processor.
    pub(in crate::runtime) fn answered(&mut self, now: Instant, took: Duration) {
        self.even = self.even.max(now) + took * AROUND_AN_ANSWER * 100 / ANSWERING_HUNDREDTHS;
    }
}

/// What the calling thread has had of a processor.
pub(in crate::runtime) fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

const RECEIVE: libc::Ioctl = 0xc050_2100u32 as libc::Ioctl;
const SEND: libc::Ioctl = 0xc018_2101u32 as libc::Ioctl;
const STILL_WAITS: libc::Ioctl = 0x4008_2102u32 as libc::Ioctl;

/// The kernel's `struct seccomp_notif`.
#[derive(Default)]
#[repr(C)]
struct Question {
    id: u64,
    pid: u32,
    flags: u32,
    call: i32,
    architecture: u32,
    instruction: u64,
    arguments: [u64; 6],
}

/// The kernel's `struct seccomp_notif_resp`.
#[repr(C)]
struct NotifyResponse {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// Takes one question and answers it. A caller that died meanwhile is no fault.
pub(in crate::runtime) fn answer_one(
    listener: &OwnedFd,
    measure: impl FnOnce() -> VirtualSysinfo,
) -> io::Result<()> {
    let mut question = Question::default();
    // SAFETY: the structure has the kernel's layout and is zeroed as the kernel demands.
    if unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE, &raw mut question) } < 0 {
        return gone_is_fine(io::Error::last_os_error());
    }
    let given = match libc::c_long::from(question.call) {
        libc::SYS_sched_getaffinity => affinity(listener, &question, &measure()),
        libc::SYS_sysinfo => size_of_machine(listener, &question, &measure()),
        _ => Err(libc::ENOSYS),
    };
    let (value, error) = match given {
        Ok(value) => (value, 0),
        Err(errno) => (0, -errno),
    };
    let answer = NotifyResponse {
        id: question.id,
        value,
        error,
        flags: 0,
    };
    // SAFETY: as above.
    if unsafe { libc::ioctl(listener.as_raw_fd(), SEND, &raw const answer) } < 0 {
        return gone_is_fine(io::Error::last_os_error());
    }
    Ok(())
}

fn gone_is_fine(error: io::Error) -> io::Result<()> {
    if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) {
        Ok(())
    } else {
        Err(error)
    }
}

fn affinity(listener: &OwnedFd, question: &Question, measure: &VirtualSysinfo) -> Result<i64, i32> {
    let [_, length, into, ..] = question.arguments;
    let mut real = [0u64; 128];
    // SAFETY: the buffer is as long as said. Asked about the caller, who cannot be reused while it waits.
    let size = unsafe {
        libc::syscall(
            libc::SYS_sched_getaffinity,
            question.pid,
            size_of_val(&real),
            real.as_mut_ptr(),
        )
    };
    let size = u64::try_from(size).map_err(|_| libc::ESRCH)?;
    if length < size.min(8) || !length.is_multiple_of(8) {
        return Err(libc::EINVAL);
    }
    let shown = shown_processors(&real, measure.processors, measure.first);
    let bytes: Vec<u8> = shown
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .take(size.min(length) as usize)
        .collect();
    write_into(listener, question, into, &bytes)?;
    Ok(bytes.len() as i64)
}

/// As many of the allowed processors as the measure says, counted from `first`, wrapping around.
fn shown_processors(allowed: &[u64; 128], count: usize, first: usize) -> [u64; 128] {
    let all: Vec<usize> = (0..allowed.len() * 64)
        .filter(|bit| allowed[bit / 64] & (1 << (bit % 64)) != 0)
        .collect();
    let mut shown = [0u64; 128];
    for number in 0..count.max(1).min(all.len()) {
        let bit = all[(first + number) % all.len()];
        shown[bit / 64] |= 1 << (bit % 64);
    }
    shown
}

fn size_of_machine(
    listener: &OwnedFd,
    question: &Question,
    measure: &VirtualSysinfo,
) -> Result<i64, i32> {
    // SAFETY: an all-zero structure is valid, and the call fills it.
    let mut info: libc::sysinfo = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    unsafe { libc::sysinfo(&raw mut info) };
    info.uptime = measure.uptime_seconds.cast_signed();
    info.totalram = measure.memory_limit;
    info.freeram = measure.memory_limit.saturating_sub(measure.memory_used);
    (
        info.sharedram,
        info.bufferram,
        info.totalswap,
        info.freeswap,
        info.totalhigh,
        info.freehigh,
    ) = (0, 0, 0, 0, 0, 0);
    info.procs = u16::try_from(measure.processes).unwrap_or(u16::MAX);
    info.mem_unit = 1;
    // SAFETY: a plain structure without padding that matters, read as bytes.
    let bytes =
        unsafe { std::slice::from_raw_parts((&raw const info).cast::<u8>(), size_of_val(&info)) };
    write_into(listener, question, question.arguments[0], bytes)?;
    Ok(0)
}

/// Writes into the caller's memory, after making sure that it is still the caller.
fn write_into(
    listener: &OwnedFd,
    question: &Question,
    address: u64,
    bytes: &[u8],
) -> Result<(), i32> {
    let memory = OpenOptions::new()
        .write(true)
        .open(format!("/proc/{}/mem", question.pid))
        .map_err(|_| libc::ESRCH)?;
    // Opened first, asked afterwards: if the caller still waits now, the memory is the caller's.
    // SAFETY: the id outlives the call.
    if unsafe { libc::ioctl(listener.as_raw_fd(), STILL_WAITS, &raw const question.id) } < 0 {
        return Err(libc::ESRCH);
    }
    memory
        .write_all_at(bytes, address)
        .map_err(|_| libc::EFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_answered_at_a_pace_and_a_rest_earns_no_more_than_one_burst() {
        let begin = Instant::now();
        let mut pace = Pace::new(begin);
        // Asked as fast as it is answered, for three seconds from an hour after the start.
        let (mut now, end) = (
            begin + Duration::from_secs(3600),
            begin + Duration::from_secs(3603),
        );
        let (cost, mut answered) = (Duration::from_micros(40), 0);
        while now < end {
            match pace.wait(now) {
                Some(wait) => now += wait,
                None => {
                    pace.answered(now, cost);
                    answered += 1;
                }
            }
        }
        // Three hundredths of 3 seconds, and of the half second that a rest earns; all is counted twice.
        let took = cost * answered * 2;
        let most = Duration::from_millis(105);
        assert!(took > most / 2 && took <= most + cost * 4, "{took:?}");
    }

    #[test]
    fn as_many_processors_as_the_measure_and_only_allowed_ones() {
        let mut allowed = [0u64; 128];
        allowed[0] = 0b1011;
        allowed[1] = 0b1;
        assert_eq!(shown_processors(&allowed, 2, 0)[0], 0b11);
        assert_eq!(shown_processors(&allowed, 2, 2)[..2], [0b1000, 1]);
        assert_eq!(
            shown_processors(&allowed, 2, 3)[..2],
            [1, 1],
            "wraps around"
        );
        assert_eq!(shown_processors(&allowed, 99, 0), allowed);
        assert_eq!(shown_processors(&allowed, 0, 0)[0], 1, "never none");
    }
}
