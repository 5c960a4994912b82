//! Devices that their vendor describes in files of the Container Device Interface, versions 0.3 to 1.1:
//! `/etc/cdi` and `/var/run/cdi` on a machine. Takes what such a file shows and sets inside; programs that
//! it wants to run on the host are never run, and a device that needs one is refused with its name.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::super::DeviceOrder;
use super::{Edits, Mount, numbers};

/// Largest file that is read.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// A device as its vendor describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// `vendor.com/class`.
    pub kind: String,
    pub name: String,
    pub edits: Edits,
}

/// What could not be taken, with why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The file, or `vendor.com/class=name` in it.
    pub what: String,
    pub why: String,
}

#[derive(Deserialize)]
struct File {
    #[serde(rename = "cdiVersion")]
    version: String,
    kind: String,
    #[serde(default)]
    devices: Vec<CdiDevice>,
    #[serde(default, rename = "containerEdits")]
    edits: CdiEdits,
}

#[derive(Deserialize)]
struct CdiDevice {
    name: String,
    #[serde(default, rename = "containerEdits")]
    edits: CdiEdits,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct CdiEdits {
    env: Vec<String>,
    device_nodes: Vec<RawNode>,
    mounts: Vec<RawMount>,
    hooks: Vec<serde_json::Value>,
    #[serde(rename = "additionalGids")]
    groups: Vec<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawNode {
    path: String,
    #[serde(default)]
    host_path: String,
    #[serde(default, rename = "type")]
    kind: String,
    major: Option<u32>,
    minor: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawMount {
    host_path: PathBuf,
    container_path: String,
    #[serde(default)]
    options: Vec<String>,
}

/// Every device that files below `root` describe, by kind and name, and what was left. Of two that describe
/// one device, that in `/var/run/cdi` counts, as the interface says. JSON only.
pub fn discover(root: &Path) -> (Vec<Described>, Vec<Left>) {
    let mut found = BTreeMap::new();
    let mut left = Vec::new();
    for folder in ["etc/cdi", "var/run/cdi"] {
        let mut paths: Vec<PathBuf> = fs::read_dir(root.join(folder))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|end| end == "json"))
            .collect();
        paths.sort();
        for path in paths {
            let what = path.strip_prefix(root).unwrap_or(&path);
            let what = format!("/{}", what.display());
            match read(&path) {
                Ok(file) => {
                    for device in &file.devices {
                        let name = format!("{}={}", file.kind, device.name);
                        match taken(root, &[&file.edits, &device.edits]) {
                            Ok(edits) => {
                                let described = Described {
                                    kind: file.kind.clone(),
                                    name: device.name.clone(),
                                    edits,
                                };
                                found.insert(name, described);
                            }
                            Err(why) => left.push(Left { what: name, why }),
                        }
                    }
                }
                Err(why) => left.push(Left { what, why }),
            }
        }
    }
    (found.into_values().collect(), left)
}

fn read(path: &Path) -> Result<File, String> {
    let size = fs::metadata(path).map_err(|error| error.to_string())?.len();
    if size > MAX_FILE_BYTES {
        return Err(format!("{size} bytes are too many for a description"));
    }
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let file: File = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let known = ["0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "1.0", "1.1"];
    if !known
        .iter()
        .any(|known| file.version.starts_with(&format!("{known}.")))
    {
        return Err(format!("version {} is not known here", file.version));
    }
    let named = file.kind.split_once('/').is_some_and(|(vendor, class)| {
        !vendor.is_empty() && !class.is_empty() && !file.kind.contains(char::is_whitespace)
    });
    if !named {
        return Err(format!("{:?} is no kind of device", file.kind));
    }
    Ok(file)
}

fn taken(root: &Path, all: &[&CdiEdits]) -> Result<Edits, String> {
    let mut edits = Edits::default();
    for raw in all {
        if !raw.hooks.is_empty() {
            return Err("it wants to run a program on the host, which is never done".to_owned());
        }
        for variable in &raw.env {
            let (name, value) = variable
                .split_once('=')
                .ok_or_else(|| format!("{variable:?} sets nothing"))?;
            edits.environment.insert(name.to_owned(), value.to_owned());
        }
        for node in &raw.device_nodes {
            if !matches!(node.kind.as_str(), "" | "c" | "u") {
                return Err(format!("{} is no character device", node.path));
            }
            let at = inside(&node.path)?;
            if !at.starts_with("/dev/") {
                return Err(format!("{at} is no place for a device"));
            }
            let host = if node.host_path.is_empty() {
                &node.path
            } else {
                &node.host_path
            };
            let told = node.major.zip(node.minor);
            let (major, minor) = told
                .or_else(|| numbers(&root.join(host.trim_start_matches('/'))))
                .ok_or_else(|| format!("{host} is not there"))?;
            edits.nodes.push(DeviceOrder { at, major, minor });
        }
        for mount in &raw.mounts {
            edits.mounts.push(Mount {
                from: mount.host_path.clone(),
                at: inside(&mount.container_path)?,
                read_only: mount.options.iter().any(|option| option == "ro"),
            });
        }
        edits.groups.extend(&raw.groups);
    }
    Ok(edits)
}

/// An absolute path without a step back.
fn inside(path: &str) -> Result<String, String> {
    if path.starts_with('/') && !path.split('/').any(|part| part == "..") {
        Ok(path.to_owned())
    } else {
        Err(format!("{path:?} is no place inside"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_read_up_to_its_largest() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(folder.path().join("etc/cdi")).expect("made");
        let path = folder.path().join("etc/cdi/vendor.json");
        let text = r#"{"cdiVersion": "0.7.0", "kind": "vendor.com/npu", "devices": []}"#;
        for (size, taken) in [(4 << 20, true), ((4 << 20) + 1, false)] {
            let blanks = " ".repeat(size - text.len());
            fs::write(&path, format!("{text}{blanks}")).expect("written");
            let read = read(&path);
            assert_eq!(read.is_ok(), taken, "{:?}", read.err());
        }
        let (found, left) = discover(folder.path());
        assert!(
            found.is_empty() && left[0].why.contains("too many"),
            "{left:?}"
        );
    }
}
