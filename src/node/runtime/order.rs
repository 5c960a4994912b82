//! What may be asked of the runtime and what it tells: orders in, sights and records out. Plain
//! values, written to disk and to the shim as JSON; nothing here touches a process or a file.

use std::fmt;
use std::path::PathBuf;

use rules::egress::SessionEgress;
use rules::process_limits::ProcessLimits;
use rules::start_up::StartUp;
use rules::volume::MappedUser;
use serde::{Deserialize, Serialize};

use crate::gpu::{DeviceOrder, FileOrder};

/// The name of one incarnation of one container; also a directory, a cgroup and a socket name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RuntimeName(String);

/// A container name that could not be a directory name.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "a container name has 1 to 120 characters of a-z, A-Z, 0-9, '-', '_' and '.', and begins with a letter or digit"
)]
pub struct BadContainerName;

impl RuntimeName {
    /// Checks a name; refuses what could leave a directory or confuse a cgroup path.
    pub fn parse(text: &str) -> Result<Self, BadContainerName> {
        let fits = (1..=120).contains(&text.len())
            && text.starts_with(|first: char| first.is_ascii_alphanumeric())
            && text
                .chars()
                .all(|each| each.is_ascii_alphanumeric() || "-_.".contains(each));
        if fits {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadContainerName)
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for RuntimeName {
    type Error = BadContainerName;
    fn try_from(text: String) -> Result<Self, BadContainerName> {
        Self::parse(&text)
    }
}

impl From<RuntimeName> for String {
    fn from(name: RuntimeName) -> String {
        name.0
    }
}

impl fmt::Display for RuntimeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Everything needed to make one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerSpec {
    pub name: RuntimeName,
    pub root: RootOrder,
    /// Program and arguments; a program without a slash is looked up on PATH inside.
    pub command: Vec<String>,
    /// Later entries win. PATH, HOME, HOSTNAME and TERM get a value when they have none.
    pub environment: Vec<(String, String)>,
    /// Working directory inside; the user's home when absent and it exists, else `/`.
    pub directory: Option<String>,
    pub user: UserOrder,
    pub hostname: String,
    /// A terminal of this size, or plain pipes.
    pub terminal: Option<TerminalSize>,
    /// Hundredths of a processor core; 100 is one core.
    pub cpu_hundredths: u32,
    pub memory_bytes: u64,
    pub shm_bytes: u64,
    /// What it may write outside its folders; as much as there is room for when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    /// Processes and threads together.
    pub pids: u32,
    pub ids: IdRange,
    /// Sent first by `stop`; 15 (TERM) for most programs.
    pub stop_signal: i32,
    /// Host directories shown inside, id-mapped like the layers.
    #[serde(default)]
    pub mounts: Vec<MountOrder>,
    /// Networks that it joins beside its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<NetworkOrder>,
    /// What the relay carries for it; nothing when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<SessionEgress>,
    /// Programs beside its first may be started as its root where its own user is another one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sudo: bool,
    /// What its processes may have more than is usual.
    #[serde(default, skip_serializing_if = "ProcessLimits::is_usual")]
    pub ulimits: ProcessLimits,
    /// Devices beside those that every container has; nothing else opens.
    #[serde(default)]
    pub devices: Vec<DeviceOrder>,
    /// Files of the host at places inside, whatever the image has there.
    #[serde(default)]
    pub files: Vec<FileOrder>,
    /// Files and the script of its owner. Variables stand in the environment and not here.
    #[serde(default, skip_serializing_if = "StartUp::is_empty")]
    pub start_up: StartUp,
}

/// Where the root file system comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootOrder {
    /// Read-only directories owned by root, lowest first, as an image manifest lists them.
    pub layers: Vec<PathBuf>,
    /// Adds this machine's own programs (the `host` environment) below all layers.
    pub host_environment: bool,
}

/// A directory of the host at a place inside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountOrder {
    pub from: PathBuf,
    /// What of it, without a leading slash; empty: all of it.
    #[serde(default)]
    pub subpath: String,
    pub at: String,
    pub read_only: bool,
    /// It lies on a file system that may not answer: only the session that mounts it looks there.
    #[serde(default)]
    pub on_volume: bool,
    /// It is the home of the session's owner, or in it: the home of the container's user stands for `/home/work`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_itself: bool,
    /// It could not be opened when the session began. What no launch asked for is left out then, and the session told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub away: bool,
    /// Its file system has no id-mapped mounts: it is shown with the ids that it has.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unmapped: bool,
}

/// A private network of the containers of one session, by the name that its node knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkOrder {
    pub name: String,
    /// How many containers it joins.
    #[serde(default)]
    pub members: u32,
    /// The container's place among them, which gives its address.
    #[serde(default)]
    pub place: u32,
    /// The running container in whose namespace the switch is; None for that one itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hub: Option<RuntimeName>,
}

/// Who runs the command, in numbers of the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UserOrder {
    /// `work` in the host environment, root elsewhere.
    Usual,
    /// `name`, `uid`, `name:group` or `uid:gid`, looked up in the container's own files.
    Named(String),
}

/// Columns and rows of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    pub columns: u16,
    pub rows: u16,
}

/// Host user and group numbers `base .. base + size` that the container's `0 .. size` stand for, but for one user and one
/// group where it is mapped to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdRange {
    pub base: u32,
    pub size: u32,
    /// What `MAPPED_ID` of the container is on the host: a user of the site, on whose file server it writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapped: Option<MappedUser>,
}

/// The user and the group of the container that a volume without id-mapped mounts maps.
const MAPPED_ID: u32 = 1000;

impl IdRange {
    /// The user of the host that one of the container is.
    pub fn user(self, inside: u32) -> u32 {
        self.outside(inside, self.mapped.map(|mapped| mapped.uid))
    }

    /// The same of a group.
    pub fn group(self, inside: u32) -> u32 {
        self.outside(inside, self.mapped.map(|mapped| mapped.gid))
    }

    fn outside(self, inside: u32, mapped: Option<u32>) -> u32 {
        match mapped {
            Some(mapped) if inside == MAPPED_ID => mapped,
            _ => self.base + inside,
        }
    }

    /// What the kernel reads as the maps of users and of groups.
    pub(super) fn maps(self) -> (String, String) {
        let (base, size) = (self.base, self.size);
        let map = |mapped: Option<u32>| match mapped {
            None => format!("0 {base} {size}\n"),
            Some(mapped) => format!(
                "0 {base} {MAPPED_ID}\n{MAPPED_ID} {mapped} 1\n{0} {1} {2}\n",
                MAPPED_ID + 1,
                base + MAPPED_ID + 1,
                size - MAPPED_ID - 1
            ),
        };
        (
            map(self.mapped.map(|mapped| mapped.uid)),
            map(self.mapped.map(|mapped| mapped.gid)),
        )
    }
}

/// One more program inside a running container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecOrder {
    pub command: Vec<String>,
    /// Added to the container's own environment; later entries win.
    pub environment: Vec<(String, String)>,
    /// The container's own working directory when absent.
    pub directory: Option<String>,
    /// The container's own user when absent.
    pub user: Option<String>,
    pub terminal: Option<TerminalSize>,
    /// A program of ours in the place of the command, which supervisors of older versions run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestProgram>,
    /// Under this name it goes on when its client has gone; while it runs, another order of the name joins it. Its input
    /// ends at once. Shims of older versions end it with its client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<String>,
}

/// A program of ours that runs inside as the session's user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestProgram {
    /// Serves files over SFTP on its standard input and output.
    Files,
}

/// What one container looks like now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerState {
    pub name: RuntimeName,
    pub standing: RuntimePhase,
}

/// How far a container has come. Times are Unix milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "phase")]
pub enum RuntimePhase {
    /// The shim is starting or mounts the root file system.
    Preparing,
    /// The container exists, its command does not run yet.
    Starting,
    Running {
        since: u64,
        pid: i32,
        paused: bool,
    },
    Ended(RuntimeExit),
    /// The supervisor vanished without a record; whatever was left has been killed.
    Lost {
        why: String,
    },
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeExit {
    /// The command's own code, 128 + signal when a signal ended it; 125 when it never started.
    pub code: i32,
    pub signal: Option<i32>,
    /// The memory limit ended the command.
    pub oom_killed: bool,
    /// Most memory in use at once, in bytes; absent where the kernel does not say.
    pub peak_memory: Option<u64>,
    /// A sentence for people where the code alone says too little.
    pub reason: Option<String>,
    /// Absent when the command never started.
    pub started_at: Option<u64>,
    pub ended_at: u64,
}

/// How a script failed that ran before the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartUpEnd {
    /// None: it was killed because it ran for too long.
    pub exit_code: Option<i32>,
    /// The command did not run.
    pub ends_session: bool,
}

/// What a container uses now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeUsage {
    /// Processor time since the start.
    pub cpu_microseconds: u64,
    /// Memory in use without page cache that can be dropped.
    pub memory_bytes: u64,
    pub memory_limit: u64,
    pub pids: u64,
    /// How long something inside waited for a processor and for memory, in microseconds since the start;
    /// absent where the kernel does not measure it.
    pub waited_microseconds: Option<(u64, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_name_never_leaves_its_directory() {
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "-x",
            ".x",
            "a b",
            "ä",
            "a\0",
            &"x".repeat(121),
        ] {
            assert_eq!(RuntimeName::parse(bad), Err(BadContainerName), "{bad:?}");
        }
        assert_eq!(
            RuntimeName::parse("s-17.2_a")
                .expect("a plain name")
                .as_str(),
            "s-17.2_a"
        );
    }

    #[test]
    fn one_user_and_one_group_may_be_those_of_a_site() {
        let plain = IdRange {
            base: 1 << 30,
            size: 65_536,
            mapped: None,
        };
        assert_eq!(plain.maps().0, "0 1073741824 65536\n");
        assert_eq!((plain.user(1000), plain.group(0)), (1_073_742_824, 1 << 30));
        let mapped = IdRange {
            mapped: Some(MappedUser {
                uid: 5000,
                gid: 6000,
            }),
            ..plain
        };
        let (users, groups) = mapped.maps();
        let told = "0 1073741824 1000\n1000 5000 1\n1001 1073742825 64535\n";
        assert_eq!(users, told);
        assert_eq!(groups, told.replace(" 5000 ", " 6000 "));
        assert_eq!((mapped.user(1000), mapped.group(1000)), (5000, 6000));
        assert_eq!(
            (mapped.user(999), mapped.user(1001)),
            (1_073_742_823, 1_073_742_825)
        );
    }
}
