//! What this machine lacks for running containers, each with a code, a sentence and a way out; for
//! `doctor`, for refusals and for the log. Looks only; what stays is a kernel module that any container
//! would load.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::cgroup::Hierarchies;
use super::order::IdRange;
use super::rootfs;
use super::user_namespace::{UserNamespace, time_namespaces};

/// Open files a process of a session may have, unless the machine allows us fewer.
pub(crate) const OPEN_FILES: u64 = 1_048_576;
/// Below this, training on data sets of many files fails; a session gets what the server may open itself.
pub(crate) const ENOUGH_OPEN_FILES: u64 = 65_536;

/// One thing that is missing or less than it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFinding {
    /// Stable, for scripts: `no_root`, `no_cgroups`, `cgroups_read_only`, `no_overlay`,
    /// `no_user_namespaces`, `no_idmapped_mounts`, `no_seccomp`, `no_time_namespace`,
    /// `missing_controllers`, `cannot_protect_shims`.
    pub code: String,
    pub what: String,
    /// How to get it.
    pub remedy: String,
    /// Without it no container can start safely; the others cost comfort.
    pub prevents_containers: bool,
}

impl HostFinding {
    /// What is missing and how to get it, as two sentences.
    pub fn sentences(&self) -> String {
        format!("{} {}", sentence(&self.what), sentence(&self.remedy))
    }
}

/// The words with a capital at their beginning and a full stop at their end.
pub(crate) fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    let first = letters.next().map(char::to_uppercase);
    let mut said: String = first.into_iter().flatten().chain(letters).collect();
    if !said.ends_with('.') {
        said.push('.');
    }
    said
}

fn preventing(code: &str, what: impl Into<String>, remedy: &str) -> HostFinding {
    HostFinding {
        code: code.to_owned(),
        what: what.into(),
        remedy: remedy.to_owned(),
        prevents_containers: true,
    }
}

fn lessening(code: &str, what: impl Into<String>, remedy: &str) -> HostFinding {
    HostFinding {
        prevents_containers: false,
        ..preventing(code, what, remedy)
    }
}

/// Looks at the machine. What prevents containers comes first. Costs a few milliseconds.
pub(super) fn look(
    data: &Path,
    hierarchies: Option<&Hierarchies>,
    instance_id: &str,
) -> Vec<HostFinding> {
    let mut found = Vec::new();
    if !rustix::process::geteuid().is_root() {
        found.push(preventing(
            "no_root",
            "the server does not run as root",
            "start it as root, or by its service unit",
        ));
        // Everything below would fail for this reason alone.
        return found;
    }
    match hierarchies {
        None => found.push(preventing(
            "no_cgroups",
            "no control groups are mounted at /sys/fs/cgroup",
            "mount them (mount -t cgroup2 none /sys/fs/cgroup), or give this container its host's",
        )),
        Some(hierarchies) => look_at_groups(hierarchies, instance_id, &mut found),
    }
    // Asked by opening one, which loads the module as the first mount would: on a fresh machine
    // none is mounted, and /proc/filesystems does not list it yet.
    if rustix::mount::fsopen("overlay", rustix::mount::FsOpenFlags::FSOPEN_CLOEXEC).is_err() {
        found.push(preventing(
            "no_overlay",
            "the kernel has no overlay file system",
            "load it: modprobe overlay",
        ));
    }
    let probe = IdRange {
        base: 0x7000_0000,
        size: 65_536,
        mapped: None,
    };
    match UserNamespace::make(probe, None) {
        Err(error) => found.push(preventing(
            "no_user_namespaces",
            format!("user namespaces are refused: {}", deepest(&error)),
            "allow them: sysctl user.max_user_namespaces=65536",
        )),
        Ok(ids) => {
            if let Err(error) = rootfs::probe_id_map(data, ids.as_fd()) {
                found.push(preventing(
                    "no_idmapped_mounts",
                    format!("the file system of {} has no id-mapped mounts: {error}", data.display()),
                    "keep the data directory on ext4, xfs, btrfs or tmpfs, and run Linux 5.19 or later",
                ));
            }
        }
    }
    let actions = fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
    if actions.is_empty() {
        found.push(preventing(
            "no_seccomp",
            "the kernel has no system call filters",
            "use a kernel with CONFIG_SECCOMP_FILTER",
        ));
    }
    if !time_namespaces() {
        found.push(lessening(
            "no_time_namespace",
            "the kernel has no time namespaces: clocks inside count from the machine's start",
            "run Linux 5.6 or later with CONFIG_TIME_NS",
        ));
    }
    if rustix::process::getrlimit(rustix::process::Resource::Nofile)
        .maximum
        .is_some_and(|limit| limit < ENOUGH_OPEN_FILES)
    {
        found.push(lessening(
            "few_open_files",
            "a session can open fewer than 65536 files",
            "set LimitNOFILE=1048576 in the service unit of fardel, and restart the server",
        ));
    }
    found.sort_by_key(|finding| !finding.prevents_containers);
    found
}

fn look_at_groups(hierarchies: &Hierarchies, instance_id: &str, found: &mut Vec<HostFinding>) {
    let group = hierarchies.whole_instance(instance_id);
    for path in group.directories() {
        if let Err(error) = fs::create_dir_all(&path) {
            found.push(preventing(
                "cgroups_read_only",
                format!(
                    "control groups cannot be made ({}: {error})",
                    path.display()
                ),
                "mount /sys/fs/cgroup writable, and give fardel's unit Delegate=yes",
            ));
            return;
        }
    }
    for (controller, loss) in [
        ("memory", "memory limits"),
        ("cpu", "processor limits"),
        ("pids", "process limits"),
        ("devices", "the device fence"),
        ("freezer", "pausing"),
    ] {
        if !hierarchies.has(controller) {
            let fence = matches!(controller, "memory" | "pids" | "devices");
            let make = if fence {
                preventing
            } else {
                |code: &str, what: String, remedy: &str| lessening(code, what, remedy)
            };
            found.push(make(
                "missing_controllers",
                format!("the {controller} controller is missing: no {loss}"),
                if hierarchies.unified() {
                    "start the kernel without cgroup_disable for it, or with one that has it"
                } else {
                    "mount it below /sys/fs/cgroup"
                },
            ));
        }
    }
}

fn deepest(error: &dyn std::error::Error) -> String {
    let mut at = error;
    while let Some(below) = at.source() {
        at = below;
    }
    at.to_string()
}

impl From<HostFinding> for io::Error {
    fn from(finding: HostFinding) -> Self {
        Self::other(finding.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_told_in_two_sentences() {
        let finding = lessening("x", "the kernel lacks it", "load it: modprobe it");
        let told = finding.sentences();
        assert_eq!(told, "The kernel lacks it. Load it: modprobe it.");
        assert_eq!(sentence("It stays."), "It stays.");
    }
}
