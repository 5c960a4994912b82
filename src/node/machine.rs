//! What the kernel says of this machine beside its capacity: pressure, disks, networks and heat, as JSON. Reads small
//! files below `/proc` and `/sys` and asks each file system for its room; changes nothing, and runs no program.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use store::quota::ScopePlace;
use store::quota::pool::PoolPlace;

/// Entries of each kind that are told; a machine with more has the first.
const MAX_TOLD: usize = 32;
/// File systems that hold nobody's files.
const NO_DISKS: [&str; 20] = [
    "autofs",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nsfs",
    "overlay",
    "proc",
    "pstore",
    "securityfs",
    "sysfs",
    "tmpfs",
    "tracefs",
];

/// Everything of this moment. `data` is where the state lies; its file system is marked. What the kernel does not tell
/// is empty. Costs a few dozen reads of small files; a network disk that hangs is not asked.
pub fn facts(data: &Path) -> Value {
    let root = Path::new("/");
    json!({
        "kernel": word(&root.join("proc/sys/kernel/osrelease")),
        "processor": processor(&read(&root.join("proc/cpuinfo"))),
        "up_seconds": numbers(&read(&root.join("proc/uptime"))).first().map_or(0, |up| *up as u64),
        "load": numbers(&read(&root.join("proc/loadavg"))).into_iter().take(3).collect::<Vec<_>>(),
        "pressure": pressure(root),
        "disks": disks(&read(&root.join("proc/self/mountinfo")), data),
        "networks": networks(root),
        "heat": heat(root),
    })
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn word(path: &Path) -> String {
    read(path).trim().to_owned()
}

fn number(path: &Path) -> Option<u64> {
    word(path).parse().ok()
}

fn numbers(text: &str) -> Vec<f64> {
    let words = text.split_whitespace();
    words.map_while(|word| word.parse().ok()).collect()
}

fn processor(cpuinfo: &str) -> String {
    let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let model = lines.find(|(name, _)| name.trim() == "model name");
    model.map_or_else(String::new, |(_, model)| model.trim().to_owned())
}

fn pressure(root: &Path) -> Vec<Value> {
    let mut all = Vec::new();
    for of in ["cpu", "memory", "io"] {
        let text = read(&root.join("proc/pressure").join(of));
        let some = shares(&text, "some");
        if some.is_empty() {
            continue;
        }
        all.push(json!({"of": of, "some": some, "full": shares(&text, "full")}));
    }
    all
}

/// Per cent of the last 10, 60 and 300 seconds in the line of that name.
fn shares(text: &str, name: &str) -> Vec<f64> {
    let line = text.lines().find(|line| line.starts_with(name));
    let words = line.unwrap_or_default().split_whitespace();
    words
        .filter_map(|word| word.strip_prefix("avg")?.split_once('=')?.1.parse().ok())
        .collect()
}

/// One row for each device, by its first mount, the largest first. The file systems of folders are no disks.
fn disks(mountinfo: &str, data: &Path) -> Vec<Value> {
    let place = fs::canonicalize(data).unwrap_or_else(|_| data.to_owned());
    let mut seen: Vec<(String, String, String, String)> = Vec::new();
    let mut state: Option<(usize, String)> = None;
    for line in mountinfo.lines() {
        let Some((mount, source)) = line.split_once(" - ") else {
            continue;
        };
        let mount: Vec<&str> = mount.split(' ').collect();
        let source: Vec<&str> = source.split(' ').collect();
        let (Some(device), Some(at), Some(kind), Some(name)) =
            (mount.get(2), mount.get(4), source.first(), source.get(1))
        else {
            continue;
        };
        let at = at.replace("\\040", " ");
        if place.starts_with(&at)
            && state
                .as_ref()
                .is_none_or(|(longest, _)| at.len() >= *longest)
        {
            state = Some((at.len(), (*device).to_owned()));
        }
        let network = kind.starts_with("nfs") || ["cifs", "smb3", "9p", "ceph"].contains(kind);
        let is_own = ScopePlace::around(Path::new(&at)).is_some()
            || PoolPlace::is_root(Path::new(&at))
            || Path::new(&at).starts_with(place.join("containers"));
        if network || is_own || NO_DISKS.contains(kind) || Path::new(&at).is_file() {
            continue;
        }
        if !seen.iter().any(|(known, ..)| known == device) {
            seen.push((
                (*device).to_owned(),
                at,
                (*kind).to_owned(),
                (*name).to_owned(),
            ));
        }
    }
    let mut disks: Vec<(u64, Value)> = seen
        .into_iter()
        .filter_map(|(device, at, kind, name)| {
            let room = rustix::fs::statvfs(&at).ok()?;
            let bytes = room.f_blocks.saturating_mul(room.f_frsize);
            let disk = json!({
                "place": at,
                "device": name,
                "file_system": kind,
                "bytes": bytes,
                "free": room.f_bavail.saturating_mul(room.f_frsize),
                "holds_state": state.as_ref().is_some_and(|(_, of)| *of == device),
            });
            (bytes > 0).then_some((bytes, disk))
        })
        .collect();
    disks.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    disks
        .into_iter()
        .map(|(_, disk)| disk)
        .take(MAX_TOLD)
        .collect()
}

fn children(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut all: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    all.sort();
    all
}

fn networks(root: &Path) -> Vec<Value> {
    let all = children(&root.join("sys/class/net")).into_iter();
    all.filter_map(|path| {
        let name = path.file_name()?.to_string_lossy().into_owned();
        let count = |what: &str| number(&path.join("statistics").join(what)).unwrap_or(0);
        (name != "lo").then(|| {
            json!({
                "name": name,
                "state": word(&path.join("operstate")),
                "megabits": number(&path.join("speed")),
                "received": count("rx_bytes"),
                "sent": count("tx_bytes"),
                "errors": count("rx_errors") + count("tx_errors"),
            })
        })
    })
    .take(MAX_TOLD)
    .collect()
}

fn heat(root: &Path) -> Vec<Value> {
    let mut all = Vec::new();
    for chip in children(&root.join("sys/class/hwmon")) {
        let maker = word(&chip.join("name"));
        for path in children(&chip) {
            let file = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let Some(sensor) = file
                .strip_suffix("_input")
                .filter(|of| of.starts_with("temp"))
            else {
                continue;
            };
            let degrees = |what: &str| {
                let text = word(&chip.join(format!("{sensor}_{what}")));
                text.parse::<f64>()
                    .ok()
                    .map(|thousandths| thousandths / 1000.0)
            };
            let Some(celsius) = degrees("input") else {
                continue;
            };
            let label = word(&chip.join(format!("{sensor}_label")));
            let name = match label.as_str() {
                "" => maker.clone(),
                label => format!("{maker} {label}"),
            };
            all.push(json!({"name": name, "celsius": celsius, "critical": degrees("crit")}));
        }
    }
    all.truncate(MAX_TOLD);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn pressure_heat_and_networks_are_read_as_the_kernel_writes_them() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(
            root,
            "proc/pressure/io",
            "some avg10=1.50 avg60=0.25 avg300=0.00 total=7\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=3\n",
        );
        assert_eq!(
            pressure(root),
            [json!({"of": "io", "some": [1.5, 0.25, 0.0], "full": [1.0, 0.0, 0.0]})]
        );
        for (name, text) in [
            ("name", "coretemp\n"),
            ("temp1_input", "54000\n"),
            ("temp1_label", "Package id 0\n"),
            ("temp1_crit", "100000\n"),
            ("fan1_input", "900\n"),
        ] {
            write(root, &format!("sys/class/hwmon/hwmon0/{name}"), text);
        }
        assert_eq!(
            heat(root),
            [json!({"name": "coretemp Package id 0", "celsius": 54.0, "critical": 100.0})]
        );
        for number in 0..MAX_TOLD + 3 {
            write(
                root,
                &format!("sys/class/net/eth{number}/operstate"),
                "up\n",
            );
        }
        write(root, "sys/class/net/lo/operstate", "unknown\n");
        let found = networks(root);
        assert_eq!(found.len(), MAX_TOLD);
        assert!(
            found
                .iter()
                .all(|net| net["name"] != "lo" && net["state"] == "up")
        );
        assert_eq!(found[0]["megabits"], Value::Null, "not told");
    }

    #[test]
    fn this_machine_says_something_of_itself_and_marks_the_disk_of_the_state() {
        let facts = facts(Path::new("/"));
        assert_ne!(facts["kernel"], "");
        assert_eq!(facts["load"].as_array().map(Vec::len), Some(3));
        assert_eq!(processor("model name\t: Xeon\n"), "Xeon");
        let mounts = "1 2 8:1 / / rw - ext4 /dev/sda1 rw\n3 1 0:5 / /proc rw - proc proc rw\n4 1 8:1 /x /mnt rw - ext4 /dev/sda1 rw\n";
        let disks = disks(mounts, Path::new("/"));
        assert_eq!(disks.len(), 1, "a device is one row: {disks:?}");
        assert_eq!(disks[0]["holds_state"], true);
    }
}
