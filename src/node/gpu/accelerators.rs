//! Devices that are not NVIDIA's: which of them a machine has, and what a container needs to use one. Each
//! family is a row of facts; devices that a vendor describes itself in a CDI file are read from there.
//! Reads names, numbers and small files below a root, never opens a device, and runs nothing: a
//! description that wants a program of its own to run on the host is refused.
//!
//! Every row is tried on made-up trees only, and says so wherever it is shown.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rules::resources::OtherDevices;

use super::DeviceOrder;

pub mod cdi;

/// What a container gets with a device, beside what every container has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edits {
    pub nodes: Vec<DeviceOrder>,
    pub mounts: Vec<Mount>,
    pub environment: BTreeMap<String, String>,
    /// Numbers of groups that its user joins.
    pub groups: Vec<u32>,
    pub capabilities: Vec<&'static str>,
    /// Memory may be locked without limit: the device reads it by itself.
    pub locked_memory: bool,
    /// It has to share the machine's own space of semaphores and queues.
    pub host_ipc: bool,
    /// System calls that the filter refuses otherwise.
    pub calls: Vec<&'static str>,
}

/// A file or directory of the machine at a place inside.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mount {
    pub from: PathBuf,
    pub at: String,
    pub read_only: bool,
}

/// How a device can be divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// It goes to one session whole.
    Whole,
    /// The kernel holds a session to a part of its memory (`dmem`); its time is not divided.
    Memory,
}

/// What is known of one device without asking its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accelerator {
    pub family: &'static Family,
    /// As the machine counts them.
    pub index: u32,
    /// `0000:41:00.0`; empty where the tree does not say.
    pub pci: String,
    /// Bytes of its own memory; None where the tree does not say.
    pub memory: Option<u64>,
    /// Of the machine's processors; None where it is alone or that is unknown.
    pub numa: Option<u32>,
    nodes: Vec<(PathBuf, u32, u32)>,
}

/// One family of devices, as data.
#[derive(Debug, PartialEq, Eq)]
pub struct Family {
    /// As in `--device amd:1`.
    pub name: &'static str,
    pub title: &'static str,
    pub division: Division,
    find: Find,
    /// Nodes that every container with a device of the family gets, where they are there.
    common: &'static [&'static str],
    groups: &'static [&'static str],
    capabilities: &'static [&'static str],
    locked_memory: bool,
    host_ipc: bool,
    calls: &'static [&'static str],
    mounts: &'static [&'static str],
    /// Variables with the indices of the granted devices, counted as inside.
    visible: &'static [&'static str],
}

/// How devices of a family are found, `#` being the number in a name.
#[derive(Debug, PartialEq, Eq)]
enum Find {
    /// Render nodes whose PCI device is of this vendor.
    Render { vendor: &'static str },
    /// Nodes of this name. `beside`: further nodes of the same device. `inside`: the name in the
    /// container, counted from 0; empty keeps the machine's names. `sys`: where the machine says more.
    Nodes {
        first: &'static str,
        beside: &'static [&'static str],
        inside: &'static str,
        sys: &'static str,
    },
}

const PLAIN: Family = Family {
    name: "",
    title: "",
    division: Division::Whole,
    find: Find::Render { vendor: "" },
    common: &[],
    groups: &[],
    capabilities: &[],
    locked_memory: false,
    host_ipc: false,
    calls: &[],
    mounts: &[],
    visible: &[],
};

/// Every family but NVIDIA's. What each needs is what its vendor's and other schedulers' plug-ins give.
pub static FAMILIES: [Family; 10] = [
    Family {
        name: "amd",
        title: "AMD Instinct and Radeon (ROCm)",
        division: Division::Memory,
        find: Find::Render { vendor: "0x1002" },
        common: &["dev/kfd"],
        groups: &["video", "render"],
        ..PLAIN
    },
    Family {
        name: "intel",
        title: "Intel GPU",
        division: Division::Memory,
        find: Find::Render { vendor: "0x8086" },
        groups: &["video", "render"],
        ..PLAIN
    },
    Family {
        name: "gaudi",
        title: "Intel Gaudi",
        find: Find::Nodes {
            first: "dev/accel/accel#",
            beside: &["dev/accel/accel_controlD#"],
            inside: "",
            sys: "sys/class/accel/accel#/device",
        },
        visible: &["HABANA_VISIBLE_DEVICES"],
        ..PLAIN
    },
    Family {
        name: "warboy",
        title: "FuriosaAI Warboy",
        find: Find::Nodes {
            first: "dev/npu#",
            beside: &[
                "dev/npu#_mgmt",
                "dev/npu#pe0",
                "dev/npu#pe1",
                "dev/npu#pe0-1",
            ],
            inside: "",
            sys: "sys/class/npu_mgmt/npu#_mgmt",
        },
        ..PLAIN
    },
    Family {
        name: "rngd",
        title: "FuriosaAI RNGD",
        find: Find::Nodes {
            first: "dev/rngd/npu#mgmt",
            beside: &[
                "dev/rngd/npu#pe0",
                "dev/rngd/npu#pe1",
                "dev/rngd/npu#pe2",
                "dev/rngd/npu#pe3",
                "dev/rngd/npu#pe4",
                "dev/rngd/npu#pe5",
                "dev/rngd/npu#pe6",
                "dev/rngd/npu#pe7",
            ],
            inside: "",
            sys: "sys/class/rngd_mgmt/rngd!npu#mgmt",
        },
        calls: &["io_uring_setup", "io_uring_enter", "io_uring_register"],
        ..PLAIN
    },
    Family {
        name: "rebellions",
        title: "Rebellions ATOM",
        find: Find::Nodes {
            first: "dev/rbln#",
            beside: &[],
            inside: "/dev/rbln#",
            sys: "sys/class/rebellions/rbln#/device",
        },
        common: &["dev/rsd0"],
        capabilities: &["CAP_IPC_LOCK"],
        locked_memory: true,
        host_ipc: true,
        ..PLAIN
    },
    Family {
        name: "ipu",
        title: "Graphcore IPU",
        find: Find::Nodes {
            first: "dev/ipu#",
            beside: &["dev/ipu#_ex"],
            inside: "",
            sys: "",
        },
        capabilities: &["CAP_IPC_LOCK"],
        locked_memory: true,
        ..PLAIN
    },
    Family {
        name: "lpu",
        title: "HyperAccel LPU",
        find: Find::Nodes {
            first: "dev/xfpga/xvc_pri.m#.0",
            beside: &[],
            inside: "",
            sys: "",
        },
        mounts: &["opt/hyperdex"],
        ..PLAIN
    },
    Family {
        name: "tpu",
        title: "Google TPU",
        find: Find::Nodes {
            first: "dev/accel#",
            beside: &[],
            inside: "/dev/accel#",
            sys: "",
        },
        visible: &["TPU_VISIBLE_DEVICES"],
        ..PLAIN
    },
    Family {
        name: "tenstorrent",
        title: "Tenstorrent",
        find: Find::Nodes {
            first: "dev/tenstorrent/#",
            beside: &[],
            inside: "/dev/tenstorrent/#",
            sys: "sys/class/tenstorrent/tenstorrent!#/device",
        },
        mounts: &["dev/hugepages-1G"],
        ..PLAIN
    },
];

impl Accelerator {
    /// What a container needs for these devices, all of one family, in the order given: the first is number
    /// 0 inside. Groups are looked up in the machine's own `/etc/group` below `root`.
    pub fn edits(devices: &[&Self], root: &Path) -> Edits {
        let mut edits = Edits::default();
        let Some(family) = devices.first().map(|device| device.family) else {
            return edits;
        };
        for (number, device) in devices.iter().enumerate() {
            for (position, (path, major, minor)) in device.nodes.iter().enumerate() {
                let own = match &family.find {
                    Find::Nodes { inside, .. } if position == 0 && !inside.is_empty() => {
                        inside.replace('#', &number.to_string())
                    }
                    _ => format!("/{}", path.display()),
                };
                edits.nodes.push(DeviceOrder {
                    at: own,
                    major: *major,
                    minor: *minor,
                });
            }
        }
        for common in family.common {
            if let Some((major, minor)) = numbers(&root.join(common)) {
                edits.nodes.push(DeviceOrder {
                    at: format!("/{common}"),
                    major,
                    minor,
                });
            }
        }
        for at in family.mounts {
            if root.join(at).is_dir() {
                edits.mounts.push(Mount {
                    from: Path::new("/").join(at),
                    at: format!("/{at}"),
                    read_only: !at.starts_with("dev/"),
                });
            }
        }
        let inside: Vec<String> = (0..devices.len())
            .map(|number| number.to_string())
            .collect();
        let kept: Vec<String> = devices.iter().map(|d| d.index.to_string()).collect();
        for variable in family.visible {
            let renumbered =
                matches!(family.find, Find::Nodes { inside, .. } if !inside.is_empty());
            let list = if renumbered { &inside } else { &kept };
            edits
                .environment
                .insert((*variable).to_owned(), list.join(","));
        }
        let groups = fs::read_to_string(root.join("etc/group")).unwrap_or_default();
        edits.groups = family
            .groups
            .iter()
            .filter_map(|name| group(&groups, name))
            .collect();
        edits.capabilities = family.capabilities.to_vec();
        edits.locked_memory = family.locked_memory;
        edits.host_ipc = family.host_ipc;
        edits.calls = family.calls.to_vec();
        edits
    }
}

/// Every device of every family below `root` (`/` on a machine), by family and number. Empty where there is
/// none; what cannot be read is not there.
pub fn discover(root: &Path) -> Vec<Accelerator> {
    FAMILIES
        .iter()
        .flat_map(|family| match &family.find {
            Find::Render { vendor } => rendering(root, family, vendor),
            Find::Nodes {
                first, beside, sys, ..
            } => named(root, family, first, beside, sys),
        })
        .collect()
}

/// The same counted by family, with those that vendors describe, by name, for those that only show them; and the
/// descriptions that were left out.
pub fn others(root: &Path) -> (Vec<OtherDevices>, Vec<cdi::Left>) {
    let mut counted: BTreeMap<String, u32> = BTreeMap::new();
    for found in discover(root) {
        *counted.entry(found.family.title.to_owned()).or_default() += 1;
    }
    let (described, left) = cdi::discover(root);
    for device in described {
        *counted.entry(device.kind).or_default() += 1;
    }
    let others = counted
        .into_iter()
        .map(|(family, number)| OtherDevices { family, number })
        .collect();
    (others, left)
}

fn rendering(root: &Path, family: &'static Family, vendor: &str) -> Vec<Accelerator> {
    let mut found = Vec::new();
    for number in listed(&root.join("sys/class/drm"), "renderD#") {
        let sys = root.join(format!("sys/class/drm/renderD{number}/device"));
        if text(&sys.join("vendor")).as_deref() != Some(vendor) {
            continue;
        }
        let mut paths = vec![format!("dev/dri/renderD{number}")];
        paths.extend(
            listed(&sys.join("drm"), "card#")
                .into_iter()
                .map(|card| format!("dev/dri/card{card}")),
        );
        let nodes = nodes(root, &paths);
        // Without its render node it cannot be used.
        if nodes
            .first()
            .is_none_or(|(path, ..)| *path != Path::new(&paths[0]))
        {
            continue;
        }
        found.push(Accelerator {
            family,
            index: number.saturating_sub(128),
            pci: pci(&sys),
            memory: text(&sys.join("mem_info_vram_total")).and_then(|text| text.parse().ok()),
            numa: text(&sys.join("numa_node")).and_then(|text| text.parse().ok()),
            nodes,
        });
    }
    found
}

fn named(
    root: &Path,
    family: &'static Family,
    first: &str,
    beside: &[&str],
    sys: &str,
) -> Vec<Accelerator> {
    let (folder, pattern) = first.rsplit_once('/').unwrap_or(("", first));
    let mut found = Vec::new();
    for number in listed(&root.join(folder), pattern) {
        let paths: Vec<String> = std::iter::once(first)
            .chain(beside.iter().copied())
            .map(|pattern| pattern.replace('#', &number.to_string()))
            .collect();
        let nodes = nodes(root, &paths);
        if nodes
            .first()
            .is_none_or(|(path, ..)| *path != Path::new(&paths[0]))
        {
            continue;
        }
        let sys = root.join(sys.replace('#', &number.to_string()));
        found.push(Accelerator {
            family,
            index: number,
            pci: pci(&sys),
            memory: None,
            numa: text(&sys.join("numa_node")).and_then(|text| text.parse().ok()),
            nodes,
        });
    }
    found
}

/// Those of these paths below `root` that are character devices, with their numbers.
fn nodes(root: &Path, paths: &[String]) -> Vec<(PathBuf, u32, u32)> {
    paths
        .iter()
        .filter_map(|path| {
            let (major, minor) = numbers(&root.join(path))?;
            Some((PathBuf::from(path), major, minor))
        })
        .collect()
}

fn numbers(path: &Path) -> Option<(u32, u32)> {
    let found = fs::symlink_metadata(path).ok()?;
    found.file_type().is_char_device().then(|| {
        (
            rustix::fs::major(found.rdev()),
            rustix::fs::minor(found.rdev()),
        )
    })
}

/// The numbers that stand for `#` in names of a directory, in order.
fn listed(folder: &Path, pattern: &str) -> Vec<u32> {
    let (before, after) = pattern.split_once('#').unwrap_or((pattern, ""));
    let mut numbers: Vec<u32> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let number = name.strip_prefix(before)?.strip_suffix(after)?;
            let plain = number.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| number.parse().ok()).flatten()
        })
        .collect();
    numbers.sort_unstable();
    numbers
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_owned())
}

/// The place on the bus, from where the link of a device points.
fn pci(sys: &Path) -> String {
    fs::canonicalize(sys)
        .ok()
        .and_then(|path| {
            path.file_name()
                .map(|name| name.to_string_lossy().into_owned())
        })
        .filter(|name| name.matches(':').count() == 2)
        .unwrap_or_default()
}

fn group(groups: &str, name: &str) -> Option<u32> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests;
