//! The files by which programs measure a machine, in the container's own measure: plain files on
//! the stage, bound over `/proc/meminfo` and its kin, rewritten in place by the shim. In place,
//! because a renamed file would leave the bind on the old one; plain, because a file stays
//! readable when shim and server are gone.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::order::RuntimeUsage;

/// Clock ticks per second in `/proc/stat`; fixed by the kernel's interface.
const TICKS: u64 = 100;

/// The files of one container.
pub(super) struct ProcFiles {
    meminfo: File,
    stat: File,
    loadavg: File,
    cpuinfo: File,
    online: File,
    /// The machine's own processors, one block each.
    blocks: Vec<String>,
    boot_seconds: u64,
    shown: Option<(u64, u64, u64)>,
    processors: usize,
    load: [f64; 3],
    looked: Option<(Instant, u64)>,
}

impl ProcFiles {
    /// Writes the first version below `directory`; gives what must be bound where.
    pub(super) fn lay(
        directory: &Path,
        processors: usize,
        memory_limit: u64,
    ) -> io::Result<(Self, Vec<(PathBuf, String)>)> {
        fs::create_dir_all(directory)?;
        let mut binds = Vec::new();
        let mut open = |name: &str, at: &str| {
            let path = directory.join(name);
            let file = OpenOptions::new()
                .create(true)
                .truncate(true)
                .write(true)
                .open(&path)?;
            binds.push((path, at.to_owned()));
            io::Result::Ok(file)
        };
        let machine = fs::read_to_string("/proc/cpuinfo")?;
        let mut files = Self {
            meminfo: open("meminfo", "/proc/meminfo")?,
            stat: open("stat", "/proc/stat")?,
            loadavg: open("loadavg", "/proc/loadavg")?,
            cpuinfo: open("cpuinfo", "/proc/cpuinfo")?,
            online: open("online", "/sys/devices/system/cpu/online")?,
            blocks: machine
                .split("\n\n")
                .filter(|block| block.contains("processor"))
                .map(str::to_owned)
                .collect(),
            boot_seconds: now_seconds(),
            shown: None,
            processors: 0,
            load: [0.0; 3],
            looked: None,
        };
        let nothing = RuntimeUsage {
            cpu_microseconds: 0,
            memory_bytes: 0,
            memory_limit,
            pids: 1,
            waited_microseconds: None,
        };
        files.refresh(&nothing, processors, 0)?;
        Ok((files, binds))
    }

    /// Rewrites what has changed. `uptime_seconds` is the container's own.
    pub(super) fn refresh(
        &mut self,
        usage: &RuntimeUsage,
        processors: usize,
        uptime_seconds: u64,
    ) -> io::Result<()> {
        if processors != self.processors {
            self.processors = processors;
            rewrite(&self.cpuinfo, &cpuinfo(&self.blocks, processors))?;
            rewrite(&self.online, &online(processors))?;
        }
        self.measure_load(usage);
        let state = (
            usage.memory_bytes / 65_536,
            usage.memory_limit,
            usage.cpu_microseconds / 1000,
        );
        if self.shown != Some(state) {
            self.shown = Some(state);
            rewrite(&self.meminfo, &meminfo(usage))?;
        }
        rewrite(
            &self.stat,
            &stat(usage, processors, uptime_seconds, self.boot_seconds),
        )?;
        let [one, five, fifteen] = self.load;
        rewrite(
            &self.loadavg,
            &format!(
                "{one:.2} {five:.2} {fifteen:.2} 1/{} {}\n",
                usage.pids, usage.pids
            ),
        )
    }

    /// Load as processors in use, averaged as the kernel averages over 1, 5 and 15 minutes.
    fn measure_load(&mut self, usage: &RuntimeUsage) {
        let now = Instant::now();
        if let Some((then, before)) = self.looked {
            let seconds = now.duration_since(then).as_secs_f64();
            if seconds > 0.0 {
                let busy = usage.cpu_microseconds.saturating_sub(before) as f64 / 1e6 / seconds;
                for (load, span) in self.load.iter_mut().zip([60.0, 300.0, 900.0]) {
                    let keep = (-seconds / span).exp();
                    *load = *load * keep + busy * (1.0 - keep);
                }
            }
        }
        self.looked = Some((now, usage.cpu_microseconds));
    }
}

/// Whole processors shown for a limit in hundredths of a core: what a program should start as
/// many threads as, never none.
pub(super) fn processors(hundredths: u32) -> usize {
    (hundredths.div_ceil(100) as usize).max(1)
}

/// The directories below `/sys/devices` in which this machine keeps what it knows of its disks; empty
/// without any. A disk that comes later may bring another.
pub(super) fn disk_directories() -> Vec<String> {
    let mut found: Vec<String> = fs::read_dir("/sys/block")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|disk| disk.path().canonicalize().ok())
        .filter_map(|disk| Some(disk.parent()?.to_str()?.to_owned()))
        .filter(|above| above.starts_with("/sys/devices/"))
        .collect();
    found.sort();
    found.dedup();
    found
}

fn rewrite(file: &File, text: &str) -> io::Result<()> {
    file.write_all_at(text.as_bytes(), 0)?;
    file.set_len(text.len() as u64)
}

fn meminfo(usage: &RuntimeUsage) -> String {
    let total = usage.memory_limit / 1024;
    let free = usage.memory_limit.saturating_sub(usage.memory_bytes) / 1024;
    let mut text = String::new();
    for (name, value) in [
        ("MemTotal", total),
        ("MemFree", free),
        ("MemAvailable", free),
        ("Buffers", 0),
        ("Cached", 0),
        ("SwapCached", 0),
        ("Active", total - free),
        ("Inactive", 0),
        ("SwapTotal", 0),
        ("SwapFree", 0),
        ("Dirty", 0),
        ("Writeback", 0),
        ("AnonPages", total - free),
        ("Mapped", 0),
        ("Shmem", 0),
        ("KReclaimable", 0),
        ("Slab", 0),
        ("SReclaimable", 0),
        ("SUnreclaim", 0),
        ("CommitLimit", total),
        ("Committed_AS", total - free),
    ] {
        let _ = writeln!(text, "{:<16}{value:>8} kB", format!("{name}:"));
    }
    text
}

fn cpuinfo(blocks: &[String], processors: usize) -> String {
    let mut text = String::new();
    for (number, block) in blocks.iter().take(processors).enumerate() {
        for line in block.lines() {
            if line.starts_with("processor") {
                let _ = writeln!(text, "processor\t: {number}");
            } else {
                text.push_str(line);
                text.push('\n');
            }
        }
        text.push('\n');
    }
    text
}

fn online(processors: usize) -> String {
    if processors == 1 {
        "0\n".to_owned()
    } else {
        format!("0-{}\n", processors - 1)
    }
}

fn stat(usage: &RuntimeUsage, processors: usize, uptime_seconds: u64, boot_seconds: u64) -> String {
    let busy = usage.cpu_microseconds * TICKS / 1_000_000;
    let idle = (uptime_seconds * TICKS * processors as u64).saturating_sub(busy);
    let line = |name: &str, share: u64| {
        format!("{name} {} 0 0 {} 0 0 0 0 0 0\n", busy / share, idle / share)
    };
    let mut text = line("cpu ", 1);
    for number in 0..processors {
        text.push_str(&line(&format!("cpu{number}"), processors as u64));
    }
    let _ = write!(
        text,
        "intr 0\nctxt 0\nbtime {boot_seconds}\nprocesses {0}\nprocs_running 1\nprocs_blocked 0\n",
        usage.pids
    );
    text
}

fn now_seconds() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_a_core_is_shown_as_whole_processors() {
        assert_eq!(
            [0, 1, 50, 100, 101, 250].map(processors),
            [1, 1, 1, 1, 2, 3]
        );
    }

    #[test]
    fn files_tell_the_limits_and_shrink_in_place() {
        let directory = tempfile::tempdir().expect("a directory");
        let (mut files, binds) = ProcFiles::lay(directory.path(), 2, 256 << 20).expect("laid");
        assert_eq!(binds.len(), 5);
        let read = |name: &str| fs::read_to_string(directory.path().join(name)).expect("readable");
        assert!(
            read("meminfo")
                .starts_with("MemTotal:         262144 kB\nMemFree:          262144 kB\n")
        );
        let usage = RuntimeUsage {
            cpu_microseconds: 3_000_000,
            memory_bytes: 64 << 20,
            memory_limit: 128 << 20,
            pids: 3,
            waited_microseconds: None,
        };
        files.refresh(&usage, 1, 10).expect("refreshed");
        assert!(read("meminfo").contains("MemAvailable:      65536 kB"));
        assert_eq!(read("online"), "0\n");
        assert_eq!(read("cpuinfo").matches("processor\t:").count(), 1);
        assert!(read("stat").starts_with("cpu  300 0 0 700 "));
        assert_eq!(
            read("stat")
                .lines()
                .filter(|line| line.starts_with("cpu"))
                .count(),
            2
        );
    }
}
