//! One guest while it runs: a User-Mode Linux in a process group of its own, with two channels. The
//! console is a log for when something goes wrong; the first serial line carries what the script says
//! and what the host answers. Whatever happens, the whole group is gone in the end.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::order::{Cable, Hardware, Order, mount_word};
use super::qemu;
use super::{Folder, processes_in};
use crate::failure::Failure;
use crate::program::{self, Program};
use crate::stage;

/// How often a waiting reader looks whether the guest still moves.
const LOOK: Duration = Duration::from_millis(500);

/// Below this share of a core a silent guest is not working. Higher: one that computes on a loaded
/// machine is called stuck. Lower: one that only keeps its clock running is called busy.
const WORKING: f64 = 0.02;

/// What comes over the serial line.
#[derive(Debug, PartialEq)]
pub(super) enum Said {
    /// The guest is up, so many seconds after its kernel began; the script starts now.
    Booted(f64),
    /// A line of the script's.
    Line(String),
    /// The script ended with this code.
    Ended(i32),
}

/// A guest that runs.
pub(super) struct Machine {
    child: Child,
    line: BufReader<UnixStream>,
    partial: Vec<u8>,
    patience: Duration,
    limit: Duration,
    begun: Instant,
    moved: Instant,
    console_bytes: u64,
    cpu_seconds: f64,
    folder: Folder,
}

impl Machine {
    /// Starts the guest; returns before its kernel says anything.
    pub(super) fn boot(order: &Order<'_>) -> Result<Self, Failure> {
        let folder = Folder::make("guest", (order.memory_mib + order.written_mib + 128) << 20)?;
        let fault = |error: std::io::Error| Failure::new(format!("the guest: {error}"));
        let bed = folder.path().join("bed");
        fs::create_dir_all(&bed).map_err(fault)?;
        fs::write(bed.join("script"), &order.script).map_err(fault)?;
        for (name, text) in &order.files {
            fs::write(bed.join(name), text).map_err(fault)?;
        }
        let mut arguments = String::new();
        for argument in &order.arguments {
            arguments += argument;
            arguments += "\n";
        }
        fs::write(bed.join("arguments"), arguments).map_err(fault)?;

        let command = match &order.hardware {
            Hardware::UserMode => user_mode(order, None, folder.path(), &bed)?,
            Hardware::Wired(cable) => user_mode(order, Some(cable), folder.path(), &bed)?,
            Hardware::Emulated(emulated) => qemu::command(order, emulated, folder.path(), &bed)?,
        };
        let (ours, guests) = UnixStream::pair().map_err(fault)?;
        ours.set_read_timeout(Some(LOOK)).map_err(fault)?;
        let console = fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(folder.path().join("console"))
            .map_err(fault)?;
        let begun = Instant::now();
        let child = command
            .into_command()
            .stdin(Stdio::from(OwnedFd::from(guests)))
            .stdout(console.try_clone().map_err(fault)?)
            .stderr(console)
            // Its tracees outlive it when it is killed alone.
            .process_group(0)
            .spawn()
            .map_err(fault)?;
        Ok(Self {
            child,
            line: BufReader::new(ours),
            partial: Vec::new(),
            patience: order.patience,
            limit: order.limit,
            begun,
            moved: begun,
            console_bytes: 0,
            cpu_seconds: 0.0,
            folder,
        })
    }

    /// Processor seconds that the guest has cost so far: about what its life would have lasted on a
    /// machine that does nothing else.
    pub(super) fn cpu_seconds(&self) -> f64 {
        cpu_seconds_in(self.folder.path())
    }

    /// The folder that the guest sees as `/mnt/bed` and may write to.
    pub(super) fn shared(&self) -> PathBuf {
        self.folder.path().join("bed")
    }

    /// Waits for what the guest says next.
    ///
    /// Fails when it ends without a word, when it neither says nor does anything for its order's
    /// patience, or when its time is up; the failure holds the end of its console.
    pub(super) fn hear(&mut self) -> Result<Said, Failure> {
        self.hear_within(self.limit)?
            .ok_or_else(|| self.failed("took longer than it may"))
    }

    /// Waits as [`Machine::hear`] does, but no longer than `wait`; none when nothing was said.
    pub(super) fn hear_within(&mut self, wait: Duration) -> Result<Option<Said>, Failure> {
        let until = Instant::now() + wait;
        loop {
            match self.line.read_until(b'\n', &mut self.partial) {
                Ok(0) => return Err(self.failed("ended without a word")),
                Ok(_) if self.partial.ends_with(b"\n") => {
                    self.moved = Instant::now();
                    let line = std::mem::take(&mut self.partial);
                    return Ok(Some(understood(&line)));
                }
                // The stream ended in the middle of a line; the next read says so.
                Ok(_) => {}
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    self.look()?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(&format!("cannot be heard: {error}"))),
            }
            if Instant::now() >= until {
                return Ok(None);
            }
        }
    }

    /// Writes one line to the script's standard input.
    pub(super) fn tell(&mut self, line: &str) -> Result<(), Failure> {
        writeln!(self.line.get_mut(), "{line}")
            .map_err(|error| Failure::new(format!("the guest cannot be told: {error}")))
    }

    /// Waits until the guest has shut down by itself, and checks that nothing of it is left.
    pub(super) fn wait(mut self) -> Result<(), Failure> {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return self.leave(),
                Ok(Some(status)) => {
                    return Err(self.failed(&format!("ended with {status}")));
                }
                Ok(None) => {}
                Err(error) => return Err(Failure::new(format!("the guest: {error}"))),
            }
            std::thread::sleep(Duration::from_millis(50));
            self.look()?;
        }
    }

    /// Takes the power away: the whole group is killed this moment. Checks that nothing is left.
    pub(super) fn cut(mut self) -> Result<(), Failure> {
        self.kill();
        self.leave()
    }

    /// Notes whether the guest moves, and fails when it has not for too long.
    fn look(&mut self) -> Result<(), Failure> {
        if self.begun.elapsed() > self.limit {
            return Err(self.failed("took longer than it may"));
        }
        let since = self.moved.elapsed();
        let console_bytes = fs::metadata(self.folder.path().join("console"))
            .map(|metadata| metadata.len())
            .unwrap_or_default();
        if console_bytes != self.console_bytes {
            self.console_bytes = console_bytes;
            self.moved = Instant::now();
        } else if since > self.patience {
            // The guest's processes are processes of ours that come and go: a sum that changed much
            // in either direction is work.
            let cpu_seconds = cpu_seconds_in(self.folder.path());
            if (cpu_seconds - self.cpu_seconds).abs() > WORKING * since.as_secs_f64() {
                self.cpu_seconds = cpu_seconds;
                self.moved = Instant::now();
                return Ok(());
            }
            return Err(self.failed(&format!("has not moved for {} s", since.as_secs())));
        }
        Ok(())
    }

    fn failed(&self, what: &str) -> Failure {
        let console = fs::read(self.folder.path().join("console")).unwrap_or_default();
        let text = String::from_utf8_lossy(&console);
        let lines: Vec<&str> = text.lines().collect();
        Failure::new(format!(
            "the guest {what} after {} s; its console ends with:\n{}",
            self.begun.elapsed().as_secs(),
            lines[lines.len().saturating_sub(25)..].join("\n")
        ))
    }

    fn kill(&mut self) {
        // Gone already is as good.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }

    /// Waits for the last of its processes, and removes its folder.
    fn leave(mut self) -> Result<(), Failure> {
        // Tracees of a dead kernel are reaped by init, in its own time.
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            let left = processes_in(self.folder.path());
            if left.is_empty() {
                break;
            }
            if Instant::now() > until {
                return Err(Failure::new(format!("the guest left processes: {left:?}")));
            }
            self.kill();
            std::thread::sleep(Duration::from_millis(20));
        }
        self.folder.remove()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The program to start for this order on a kernel that is a process of ours.
fn user_mode(
    order: &Order<'_>,
    cable: Option<&Cable>,
    folder: &Path,
    bed: &Path,
) -> Result<Program, Failure> {
    let kernel = match cable {
        Some(cable) => Program::named("nsenter")
            .argument(format!("--net=/proc/{}/ns/net", cable.network_of))
            .words("-- linux.uml"),
        None => Program::named("linux.uml"),
    };
    let disk = order.disk.clone().unwrap_or_else(|| folder.join("disk"));
    let mut command = kernel
        .argument(format!("mem={}M", order.memory_mib))
        .argument(format!(
            "ubd0={},{}",
            disk.display(),
            order.root.image.display()
        ))
        .words("root=/dev/ubda rw quiet con=null con0=null,fd:1 ssl=null ssl0=fd:0,fd:0")
        // 512 legacy terminals cost udev seconds at every boot.
        .words("pty.legacy_count=0")
        .argument(format!("uml_dir={}/", folder.display()))
        .argument(format!("bed.mount=bed:rw:{}", bed.display()))
        .variable("TMPDIR", folder)
        .inside(folder);
    if let Some(stick) = &order.stick {
        command = command.argument(format!("ubd1r={}", stick.display()));
    }
    for (name, path) in &order.shares {
        command = command.argument(mount_word(name, path)?);
    }
    if let Some(library) = floating_point_shim(folder)? {
        command = command.variable("LD_PRELOAD", library);
    }
    for word in cable.map_or(&[][..], |cable| &cable.words) {
        command = command.argument(word);
    }
    Ok(command)
}

fn understood(line: &[u8]) -> Said {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end_matches(['\n', '\r']);
    // Firmware clears screens on every line it finds, and no script has spoken before this word.
    let text = text.find("\u{1}booted ").map_or(text, |at| &text[at..]);
    if let Some(word) = text.strip_prefix('\u{1}') {
        let number = word.split_whitespace().nth(1).unwrap_or_default();
        if let (true, Ok(seconds)) = (word.starts_with("booted "), number.parse()) {
            return Said::Booted(seconds);
        }
        if let (true, Ok(code)) = (word.starts_with("exit "), number.parse()) {
            return Said::Ended(code);
        }
    }
    Said::Line(text.to_owned())
}

/// Compiles the wrapper that newer processors need; without a compiler the guest starts without, and
/// says itself whether it can.
fn floating_point_shim(folder: &Path) -> Result<Option<PathBuf>, Failure> {
    if !program::installed("cc") {
        println!("no C compiler: the guest starts without its floating-point wrapper");
        return Ok(None);
    }
    let source = folder.join("fpstate.c");
    let library = folder.join("fpstate.so");
    fs::write(&source, include_str!("fpstate.c"))
        .map_err(|error| Failure::new(format!("{}: {error}", source.display())))?;
    Program::named("cc")
        .words("-O2 -shared -fPIC -o")
        .argument(&library)
        .argument(&source)
        .words("-ldl")
        .run()?;
    Ok(Some(library))
}

/// CPU seconds used so far by every process whose working directory lies in this folder, those they
/// have waited for included.
fn cpu_seconds_in(folder: &Path) -> f64 {
    processes_in(folder)
        .into_iter()
        .map(|pid| stage::cpu_seconds(&format!("/proc/{pid}/stat"), &[14, 15, 16, 17]))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beds_own_words_are_told_from_the_scripts() {
        assert_eq!(understood(b"\x01booted 9.87\n"), Said::Booted(9.87));
        assert_eq!(
            understood(b"\x1b[2J\x1b[=3h\x01booted 9.87\n"),
            Said::Booted(9.87)
        );
        assert_eq!(understood(b"\x01exit 3\r\n"), Said::Ended(3));
        assert_eq!(understood(b"exit 3\n"), Said::Line("exit 3".to_owned()));
        assert_eq!(
            understood(b"\x01exit soon\n"),
            Said::Line("\u{1}exit soon".to_owned())
        );
    }
}
