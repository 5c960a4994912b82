//! One process that is asked a line and answers a line, with nothing of our environment, and never
//! waited for longer than said. Started from memory or from a file. What it says is not looked at here.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

/// Bytes of one answer at most: what sixteen cards and a thousand processes say is a tenth of it.
const MAX_SAID: usize = 4 << 20;
/// Letters of its last words; the loader repeats itself.
const MAX_LAST_WORDS: usize = 300;
/// How often a program is tried that somebody still holds open for writing, 10 ms apart.
const BUSY_TRIES: u32 = 100;
/// How long a process that was killed is waited for before it counts as stuck.
const FAREWELL: Duration = Duration::from_millis(200);

/// Why a line had no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProbeFault {
    Silent,
    Ended,
}

#[derive(Debug)]
pub(super) struct Child {
    process: std::process::Child,
}

impl Child {
    /// Runs these bytes without a file of the machine's.
    pub(super) fn from_memory(program: &[u8], argument: &Path) -> io::Result<Self> {
        // Kernels before 6.3 do not know the flag and need none; later ones may be told to forbid what
        // has it not.
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = match memfd_create("gpu_probe", flags | MemfdFlags::EXEC) {
            Err(rustix::io::Errno::INVAL) => memfd_create("gpu_probe", flags),
            made => made,
        }?;
        let mut file = fs::File::from(memory);
        file.write_all(program)?;
        fcntl_add_seals(
            &file,
            SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL,
        )?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        Self::start(OsStr::new(&path), &[argument.as_os_str()])
    }

    /// Runs these bytes from a file of ours, made again each time so that no other file stands there.
    pub(super) fn from_file(program: &[u8], at: &Path, argument: &Path) -> io::Result<Self> {
        if let Some(folder) = at.parent() {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)?;
        }
        let fresh = at.with_extension("new");
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o700)
            .open(&fresh)?;
        file.write_all(program)?;
        drop(file);
        fs::rename(&fresh, at)?;
        let mut tries = 0;
        loop {
            match Self::start(at.as_os_str(), &[argument.as_os_str()]) {
                // Another thread forked while the file was open for writing, and has not run its own program yet.
                Err(error)
                    if error.kind() == io::ErrorKind::ExecutableFileBusy && tries < BUSY_TRIES =>
                {
                    tries += 1;
                    std::thread::sleep(Duration::from_millis(10));
                }
                ended => return ended,
            }
        }
    }

    /// Runs a program of the machine's.
    pub(super) fn start(program: &OsStr, arguments: &[&OsStr]) -> io::Result<Self> {
        let process = Command::new(program)
            .arg0("gpu_probe")
            .args(arguments)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let child = Self { process };
        for end in [
            child.process.stdout.as_ref().map(AsFd::as_fd),
            child.process.stderr.as_ref().map(AsFd::as_fd),
        ] {
            let end = end.expect("each was asked for");
            rustix::io::ioctl_fionbio(end, true)?;
        }
        Ok(child)
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Says a line and gives the next one it says, without its end.
    pub(super) fn exchange(
        &mut self,
        line: &[u8],
        patience: Duration,
    ) -> Result<Vec<u8>, ProbeFault> {
        let until = Instant::now() + patience;
        let input = self.process.stdin.as_mut().ok_or(ProbeFault::Ended)?;
        // A line is shorter than a pipe, and the helper reads one before it is told another.
        input.write_all(line).map_err(|_| ProbeFault::Ended)?;
        self.read(until, |said| said.ends_with(b"\n"))
            .map(|mut said| {
                said.pop();
                said
            })
    }

    /// All that it says until it leaves.
    pub(super) fn all(&mut self, patience: Duration) -> Result<Vec<u8>, ProbeFault> {
        drop(self.process.stdin.take());
        let mut whole = Vec::new();
        let until = Instant::now() + patience;
        loop {
            match self.read(until, |said| !said.is_empty()) {
                Ok(said) if whole.len() + said.len() <= MAX_SAID => whole.extend(said),
                Ok(_) => return Err(ProbeFault::Silent),
                Err(ProbeFault::Ended) => return Ok(whole),
                Err(ProbeFault::Silent) => return Err(ProbeFault::Silent),
            }
        }
    }

    fn read(
        &mut self,
        until: Instant,
        whole: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<u8>, ProbeFault> {
        let output = self.process.stdout.as_mut().ok_or(ProbeFault::Ended)?;
        let mut said = Vec::new();
        let mut piece = [0; 1 << 14];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            // A helper that says more than any has to say is not read to its end.
            if left.is_zero() || said.len() > MAX_SAID {
                return Err(ProbeFault::Silent);
            }
            let left = rustix::time::Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            match poll(&mut [PollFd::new(&*output, PollFlags::IN)], Some(&left)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Err(ProbeFault::Ended),
            }
            match output.read(&mut piece) {
                Ok(0) => return Err(ProbeFault::Ended),
                Ok(n) => {
                    said.extend_from_slice(&piece[..n]);
                    if whole(&said) {
                        return Ok(said);
                    }
                }
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) => {}
                Err(_) => return Err(ProbeFault::Ended),
            }
        }
    }

    /// What it said last on its other line, in one line of plain letters.
    pub(super) fn last_words(&mut self) -> String {
        let mut said = Vec::new();
        if let Some(errors) = self.process.stderr.as_mut() {
            // It does not block: what is there is all there is.
            let _ = errors.take(1 << 14).read_to_end(&mut said);
        }
        let said = String::from_utf8_lossy(&said);
        let words: Vec<&str> = said.split_whitespace().collect();
        let words = words.join(" ");
        let words = words.chars().filter(|c| !c.is_control());
        // What is at fault stands at the end.
        let skip = words.clone().count().saturating_sub(MAX_LAST_WORDS);
        words.skip(skip).collect()
    }

    pub(super) fn kill(&mut self) {
        // Fails only where it is gone already.
        let _ = self.process.kill();
        let until = Instant::now() + FAREWELL;
        while !self.is_gone() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Whether nothing is left of it. What hangs in the kernel stays until the kernel lets go.
    pub(super) fn is_gone(&mut self) -> bool {
        !matches!(self.process.try_wait(), Ok(None))
    }
}
