//! Environments that travel as one file: what the manifest of a bundle may say, which version is newer, which packages an
//! image holds. Reads no bundle and trusts no key.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::image::parse_reference;
use crate::refusal::Refusal;
use crate::refusals;

/// What the manifest calls itself.
pub const KIND: &str = "fardel-environment";
/// The format that this release writes and reads.
pub const FORMAT: u32 = 1;
/// Members of a bundle behind manifest and signature. Higher: a longer list in memory. Lower: 16 images of 127 layers,
/// each with configuration and manifest, do not fit.
pub const MAX_MEMBERS: usize = 4096;
/// Images of a bundle: as many as one archive may hold.
pub const MAX_IMAGES: usize = 16;
/// Bytes of the manifest. Higher: more memory for each import. Lower: 4,096 members do not fit.
pub const MAX_MANIFEST_BYTES: u64 = 1 << 20;
/// Bytes of the list of packages, and of the licences. Higher: a larger catalog. Lower: long lists do not fit.
pub const MAX_TEXT_BYTES: u64 = 4 << 20;
/// Ports that are recommended for an image.
pub const MAX_PORTS: usize = 32;
/// Bytes of what the manifest says about the environment.
pub const MAX_ABOUT_BYTES: usize = 500;
/// The list of packages (SPDX, JSON) and the licences, by their names in the bundle.
pub const SBOM: &str = "sbom.json";
pub const LICENCES: &str = "licences.txt";
/// What stands before the digest of a blob.
pub const BLOBS: &str = "blobs/sha256/";

/// What a bundle says of itself; its signature is over these bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundleManifest {
    pub kind: String,
    pub format: u32,
    pub name: String,
    /// Up to four numbers with dots between them.
    pub version: String,
    /// A sentence for people; may be empty.
    #[serde(default)]
    pub about: String,
    pub images: Vec<BundleImage>,
    /// All other members of the bundle.
    pub members: Vec<EnvironmentMember>,
}

/// An image of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundleImage {
    /// `name:tag`.
    pub reference: String,
    /// Digest of its configuration, `sha256:…`.
    pub digest: String,
    #[serde(default)]
    pub recommended: RecommendedOptions,
}

/// What a session of an image is best started with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecommendedOptions {
    /// Bytes of shared memory.
    #[serde(default)]
    pub shm: Option<u64>,
    /// Bytes of memory.
    #[serde(default)]
    pub memory: Option<u64>,
    /// Ports that it listens on.
    #[serde(default)]
    pub ports: Vec<u16>,
}

/// A member of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvironmentMember {
    pub path: String,
    pub bytes: u64,
    /// 64 hexadecimal digits.
    pub sha256: String,
}

impl BundleManifest {
    /// Whether a bundle of this manifest can be imported.
    ///
    /// Errors: `environment.format`, `environment.name`, `environment.version`, `environment.manifest`,
    /// `environment.members`, `environment.member-name`, `environment.member-doubled`, `image.reference-invalid`.
    pub fn check(&self) -> Result<(), Refusal> {
        check_format(&self.kind, self.format)?;
        check_name(&self.name)?;
        numbers(&self.version).ok_or_else(refusals::environment_version)?;
        let wrong = refusals::environment_manifest;
        if self.about.len() > MAX_ABOUT_BYTES || self.about.chars().any(char::is_control) {
            return Err(wrong(
                "what it says about itself is too long or no plain text",
            ));
        }
        if self.images.is_empty() || self.images.len() > MAX_IMAGES {
            return Err(wrong("it has no image, or too many"));
        }
        let mut references = BTreeSet::new();
        for image in &self.images {
            if parse_reference(&image.reference)? != image.reference {
                return Err(wrong("an image has a name without a tag"));
            }
            if !references.insert(&image.reference) {
                return Err(wrong("two images have one name"));
            }
            if !image.digest.strip_prefix("sha256:").is_some_and(is_hex) {
                return Err(wrong("an image has no digest"));
            }
            if image.recommended.ports.len() > MAX_PORTS || image.recommended.ports.contains(&0) {
                return Err(wrong("an image has a port that is none, or too many"));
            }
        }
        if self.members.len() > MAX_MEMBERS {
            return Err(refusals::environment_members(MAX_MEMBERS));
        }
        let mut paths = BTreeSet::new();
        for member in &self.members {
            let is_named = match member.path.strip_prefix(BLOBS) {
                Some(hex) => is_hex(hex) && hex == member.sha256,
                None => ["oci-layout", "index.json", SBOM, LICENCES].contains(&&*member.path),
            };
            if !is_named {
                return Err(refusals::environment_member_name());
            }
            if !is_hex(&member.sha256) {
                return Err(wrong("a member has no digest"));
            }
            if !paths.insert(member.path.as_str()) {
                return Err(refusals::environment_member_doubled(&member.path));
            }
            if [SBOM, LICENCES].contains(&&*member.path) && member.bytes > MAX_TEXT_BYTES {
                return Err(wrong("its list of packages or its licences are too long"));
            }
        }
        let needed = ["oci-layout", "index.json", SBOM, LICENCES];
        match needed.iter().find(|path| !paths.contains(**path)) {
            Some(_) => Err(wrong(
                "it lacks the layout, the list of packages or the licences",
            )),
            None => Ok(()),
        }
    }
}

/// Errors: `environment.manifest` for another kind of file, `environment.format` for a later one.
pub fn check_format(kind: &str, format: u32) -> Result<(), Refusal> {
    if kind != KIND {
        return Err(refusals::environment_manifest("it is of another kind"));
    }
    match format {
        FORMAT => Ok(()),
        other => Err(refusals::environment_format(other, FORMAT)),
    }
}

/// Errors: `environment.name`.
pub fn check_name(name: &str) -> Result<(), Refusal> {
    let is_fit = name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-._".contains(c));
    match is_fit {
        true => Ok(()),
        false => Err(refusals::environment_name()),
    }
}

/// Errors: `environment.version`.
pub fn check_version(version: &str) -> Result<(), Refusal> {
    match numbers(version) {
        Some(_) => Ok(()),
        None => Err(refusals::environment_version()),
    }
}

/// Which of two versions is newer; zeros at the end mean nothing. What is no version is older than all.
pub fn compare(one: &str, other: &str) -> Ordering {
    numbers(one).cmp(&numbers(other))
}

fn numbers(version: &str) -> Option<[u32; 4]> {
    let mut numbers = [0; 4];
    let parts: Vec<&str> = version.split('.').collect();
    if parts.len() > numbers.len() {
        return None;
    }
    for (at, part) in parts.iter().enumerate() {
        let is_number = (1..=9).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        if !is_number || (part.len() > 1 && part.starts_with('0')) {
            return None;
        }
        numbers[at] = part.parse().ok()?;
    }
    Some(numbers)
}

fn is_hex(text: &str) -> bool {
    text.len() == 64
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// A package of an image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstalledPackage {
    pub name: String,
    pub version: String,
}

/// Packages that the status file of dpkg says are installed, in the order of their names.
pub fn debian_packages(status: &str) -> BTreeSet<InstalledPackage> {
    let mut packages = BTreeSet::new();
    for paragraph in status.split("\n\n") {
        let field = |name: &str| {
            let mut lines = paragraph.lines();
            lines
                .find_map(|line| line.strip_prefix(name))
                .map(str::trim)
        };
        let is_installed = field("Status:").is_some_and(|text| text.ends_with(" installed"));
        if let (true, Some(name), Some(version)) =
            (is_installed, field("Package:"), field("Version:"))
        {
            packages.insert(InstalledPackage {
                name: name.to_owned(),
                version: version.to_owned(),
            });
        }
    }
    packages
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(path: &str) -> EnvironmentMember {
        EnvironmentMember {
            path: path.into(),
            bytes: 2,
            sha256: "a".repeat(64),
        }
    }

    fn manifest() -> BundleManifest {
        BundleManifest {
            kind: KIND.into(),
            format: FORMAT,
            name: "jupyter".into(),
            version: "1.2".into(),
            about: String::new(),
            images: vec![BundleImage {
                reference: "jupyter:1.2".into(),
                digest: format!("sha256:{}", "b".repeat(64)),
                recommended: RecommendedOptions::default(),
            }],
            members: ["oci-layout", "index.json", SBOM, LICENCES]
                .map(member)
                .to_vec(),
        }
    }

    #[test]
    fn a_whole_manifest_passes_and_each_fault_has_its_code() {
        assert_eq!(manifest().check(), Ok(()));
        type Fault = fn(&mut BundleManifest);
        let faults: [(&str, Fault); 13] = [
            ("environment.manifest", |m| m.kind = "other".into()),
            ("environment.format", |m| m.format = 2),
            ("environment.name", |m| m.name = "../x".into()),
            ("environment.version", |m| m.version = "1.x".into()),
            ("environment.manifest", |m| m.about = "a\nb".into()),
            ("environment.manifest", |m| m.images.clear()),
            ("image.reference-invalid", |m| {
                m.images[0].reference = "../x:1".into();
            }),
            ("environment.manifest", |m| m.images[0].digest = "x".into()),
            ("environment.manifest", |m| drop(m.members.pop())),
            ("environment.member-name", |m| {
                m.members.push(member("blobs/sha256/../../etc/passwd"));
            }),
            ("environment.member-name", |m| {
                m.members.push(member("/etc/x"))
            }),
            ("environment.member-doubled", |m| {
                m.members.push(member(SBOM));
            }),
            ("environment.members", |m| {
                m.members = vec![member(SBOM); MAX_MEMBERS + 1];
            }),
        ];
        for (code, fault) in faults {
            let mut faulty = manifest();
            fault(&mut faulty);
            assert_eq!(faulty.check().unwrap_err().code, code);
        }
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert_eq!(compare("1.10", "1.9"), Ordering::Greater);
        assert_eq!(compare("1.2", "1.2.0"), Ordering::Equal);
        assert_eq!(compare("0.9.9", "1"), Ordering::Less);
        for wrong in ["", "1.", "v1", "01", "1.2.3.4.5", "1234567890"] {
            assert!(check_version(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_installed_packages_are_listed() {
        let status = "Package: b\nStatus: install ok installed\nVersion: 2-1\n\n\
            Package: a\nStatus: deinstall ok config-files\nVersion: 1\n\n\
            Package: c\nVersion: 3\n";
        let packages = debian_packages(status);
        let names: Vec<&str> = packages
            .iter()
            .map(|package| package.name.as_str())
            .collect();
        assert_eq!(names, ["b"]);
    }
}
