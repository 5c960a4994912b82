//! The vendor's driver as this machine has it: its version, its devices, its libraries; and what of them a
//! container is shown. Read from the kernel's own files and from names of files, so that it works while
//! nothing else does. Never runs a program of the vendor's or of an image, and never loads a library.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::{DeviceOrder, FileOrder, FileUse};

/// Where distributions and the vendor's own installer put libraries, below the root.
const LIBRARY_FOLDERS: [&str; 6] = [
    "usr/lib/x86_64-linux-gnu",
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    "usr/lib",
    // Virtual machines that get the driver as a folder.
    "usr/local/nvidia/lib64",
    "usr/local/nvidia/lib",
];
/// Where its programs are. A machine with such a folder may have a script in `usr/bin` that starts the program in
/// the folder, which sessions do not see.
const PROGRAM_FOLDERS: [&str; 2] = ["usr/local/nvidia/bin", "usr/bin"];
/// Where programs inside look for them, by distribution of the image.
const SHOWN_IN: [&str; 2] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64"];

/// What computing needs. Left out on purpose: everything for pictures, which has its own ways to memory.
const COMPUTING: [&str; 13] = [
    "libcuda",
    "libcudadebugger",
    "libnvidia-allocator",
    "libnvidia-cfg",
    "libnvidia-compiler",
    "libnvidia-gpucomp",
    "libnvidia-ml",
    "libnvidia-nvvm",
    "libnvidia-opencl",
    "libnvidia-pkcs11",
    "libnvidia-pkcs11-openssl3",
    "libnvidia-ptxjitcompiler",
    "libnvidia-tileiras",
];
/// Without these there is no slice.
const NEEDED: [&str; 2] = ["libcuda", "libnvidia-ml"];
const PROGRAMS: [&str; 2] = ["nvidia-smi", "nvidia-debugdump"];

/// Where the loaded driver says its version, below the root; missing where none is loaded.
pub(super) const VERSION: &str = "proc/driver/nvidia/version";

/// Numbers that the kernel gives the vendor's devices where it does not say otherwise.
const USUAL_MAJOR: u32 = 195;
const CONTROL_MINOR: u32 = 255;

/// Why containers cannot have the driver.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Lacks {
    #[error("no driver of NVIDIA's is loaded")]
    Driver,
    #[error("the driver does not say its version in a way that is known here: {0}")]
    Version(String),
    #[error("the loaded driver is {version}, and its {library} is not on this machine")]
    Library {
        version: String,
        library: &'static str,
    },
    #[error("the kernel does not list the device {0}")]
    Major(&'static str),
}

/// A loaded driver with everything that containers get of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Driver {
    /// `580.159.03`
    pub version: String,
    /// By their names without version, the files.
    libraries: BTreeMap<&'static str, PathBuf>,
    programs: Vec<PathBuf>,
    major: u32,
    memory_major: u32,
    /// Of the devices that stand for parts of a card; None where the driver makes none.
    parts_major: Option<u32>,
}

/// A card as the kernel module lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelCard {
    /// `0000:41:00.0`
    pub pci: String,
    pub model: String,
    /// `GPU-…`; empty before anything used the card for the first time.
    pub uuid: String,
    pub minor: u32,
}

/// A hardware partition of a card, as numbers of its instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MigInstance {
    pub card: u32,
    pub gpu_instance: u32,
    pub compute_instance: u32,
}

impl Driver {
    /// The driver below `root` (`/` on a machine). Costs a few directories.
    pub fn find(root: &Path) -> Result<Self, Lacks> {
        let told = fs::read_to_string(root.join(VERSION)).map_err(|_| Lacks::Driver)?;
        let first = told.lines().next().unwrap_or_default();
        let version = first
            .split_whitespace()
            .find(|word| is_version(word))
            .ok_or_else(|| Lacks::Version(first.to_owned()))?
            .to_owned();
        let mut libraries = BTreeMap::new();
        for name in COMPUTING {
            let file = format!("{name}.so.{version}");
            if let Some(path) = LIBRARY_FOLDERS
                .iter()
                .map(|folder| root.join(folder).join(&file))
                .find(|path| path.is_file())
            {
                libraries.insert(name, path);
            }
        }
        if let Some(library) = NEEDED
            .into_iter()
            .find(|name| !libraries.contains_key(name))
        {
            return Err(Lacks::Library { version, library });
        }
        let majors = fs::read_to_string(root.join("proc/devices")).unwrap_or_default();
        Ok(Self {
            version,
            libraries,
            programs: PROGRAMS
                .iter()
                .filter_map(|name| {
                    let mut places = PROGRAM_FOLDERS.iter().map(|at| root.join(at).join(name));
                    places.find(|path| path.is_file())
                })
                .collect(),
            major: ["nvidia", "nvidia-frontend"]
                .iter()
                .find_map(|name| major(&majors, name))
                .unwrap_or(USUAL_MAJOR),
            memory_major: major(&majors, "nvidia-uvm").ok_or(Lacks::Major("nvidia-uvm"))?,
            parts_major: major(&majors, "nvidia-caps"),
        })
    }

    /// The library that programs compute with.
    pub fn computing_library(&self) -> &Path {
        &self.libraries["libcuda"]
    }

    /// The library that answers for the cards themselves.
    pub(super) fn management_library(&self) -> &Path {
        &self.libraries["libnvidia-ml"]
    }

    /// The vendor's program that prints what that library says; None where it is not installed.
    pub(super) fn smi(&self) -> Option<&Path> {
        let mut programs = self.programs.iter();
        let found = programs.find(|path| path.file_name() == Some("nvidia-smi".as_ref()));
        found.map(PathBuf::as_path)
    }

    /// The devices that a container with these cards opens, by the cards' minor numbers.
    pub fn devices(&self, cards: &[u32]) -> Vec<DeviceOrder> {
        let device = |at: String, major, minor| DeviceOrder { at, major, minor };
        let mut all = vec![
            device("/dev/nvidiactl".into(), self.major, CONTROL_MINOR),
            device("/dev/nvidia-uvm".into(), self.memory_major, 0),
            device("/dev/nvidia-uvm-tools".into(), self.memory_major, 1),
        ];
        all.extend(
            cards
                .iter()
                .map(|minor| device(format!("/dev/nvidia{minor}"), self.major, *minor)),
        );
        all
    }

    /// The devices beside its card's that stand for a part of a card; None where the kernel module does not
    /// list that part.
    pub fn part(&self, root: &Path, part: MigInstance) -> Option<Vec<DeviceOrder>> {
        let listed =
            fs::read_to_string(root.join("proc/driver/nvidia-caps/mig-minors")).unwrap_or_default();
        let minor = |name: String| {
            listed.lines().find_map(|line| {
                let (access, minor) = line.split_once(' ')?;
                (access == name).then(|| minor.trim().parse().ok())?
            })
        };
        let whole = format!("gpu{}/gi{}", part.card, part.gpu_instance);
        let minors: [u32; 2] = [
            minor(format!("{whole}/access"))?,
            minor(format!("{whole}/ci{}/access", part.compute_instance))?,
        ];
        let major = self.parts_major?;
        Some(
            minors
                .into_iter()
                .map(|minor| DeviceOrder {
                    at: format!("/dev/nvidia-caps/nvidia-cap{minor}"),
                    major,
                    minor,
                })
                .collect(),
        )
    }

    /// The driver's own files in a container. A library whose name is in `stand_ins` is shown at
    /// `real_ones` only, and the stand-in has its place; every other is shown where programs look. Each
    /// under the name that programs ask for, which stands in the file itself.
    pub fn files(
        &self,
        stand_ins: &BTreeMap<&'static str, PathBuf>,
        real_ones: &str,
    ) -> Vec<FileOrder> {
        let shown = |from: &Path, at: String| FileOrder {
            from: from.to_owned(),
            at,
            for_what: FileUse::Run,
        };
        let mut files = Vec::new();
        for (name, path) in &self.libraries {
            let asked = soname(path).unwrap_or_else(|| format!("{name}.so.{}", self.version));
            let stand_in = stand_ins.get(name);
            if stand_in.is_some() {
                files.push(shown(path, format!("{real_ones}/{asked}")));
            }
            let from = stand_in.unwrap_or(path);
            for folder in SHOWN_IN {
                files.push(shown(from, format!("{folder}/{asked}")));
                // A program that asks for the exact version gets the stand-in as well.
                let exact = format!("{name}.so.{}", self.version);
                if exact != asked {
                    files.push(shown(from, format!("{folder}/{exact}")));
                }
            }
            if *name == "libcuda" {
                files.extend(SHOWN_IN.map(|folder| shown(from, format!("{folder}/libcuda.so"))));
            }
        }
        for path in &self.programs {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            files.push(shown(path, format!("/usr/bin/{name}")));
        }
        files
    }
}

/// Every card that the kernel module lists, by place on the bus; empty where there is none.
pub fn cards(root: &Path) -> Vec<KernelCard> {
    let mut found: Vec<KernelCard> = fs::read_dir(root.join("proc/driver/nvidia/gpus"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let text = fs::read_to_string(entry.path().join("information")).ok()?;
            let field = |name: &str| {
                text.lines()
                    .filter_map(|line| line.split_once(':'))
                    .find(|(key, _)| key.trim() == name)
                    .map(|(_, value)| value.trim().to_owned())
            };
            Some(KernelCard {
                pci: entry.file_name().into_string().ok()?,
                model: field("Model").unwrap_or_default(),
                uuid: field("GPU UUID")
                    .filter(|uuid| !uuid.contains('?'))
                    .unwrap_or_default(),
                minor: field("Device Minor")?.parse().ok()?,
            })
        })
        .collect();
    found.sort_by(|a, b| a.pci.cmp(&b.pci));
    found
}

/// What the kernel module was started with, but that programs inside make no device nodes; None where there
/// is no driver.
pub fn parameters(root: &Path) -> Option<String> {
    let told = fs::read_to_string(root.join("proc/driver/nvidia/params")).ok()?;
    let lines: Vec<String> = told
        .lines()
        .map(|line| match line.split_once(':') {
            Some(("ModifyDeviceFiles", _)) => "ModifyDeviceFiles: 0".to_owned(),
            _ => line.to_owned(),
        })
        .collect();
    Some(lines.join("\n") + "\n")
}

fn is_version(word: &str) -> bool {
    let parts: Vec<&str> = word.split('.').collect();
    (2..=3).contains(&parts.len())
        && parts
            .iter()
            .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

fn major(listed: &str, name: &str) -> Option<u32> {
    listed
        .lines()
        // Block devices are listed behind the others, and may have the same name.
        .take_while(|line| !line.starts_with("Block"))
        .find_map(|line| {
            let (number, listed) = line.trim().split_once(' ')?;
            (listed.trim() == name).then(|| number.parse().ok())?
        })
}

/// The name that programs ask for a library by (its `DT_SONAME`); None where the file has none, or is no
/// 64-bit little-endian library.
fn soname(path: &Path) -> Option<String> {
    /// Program headers and entries of the dynamic section that are looked at.
    const MAX_CARDS: u64 = 4096;
    const LOAD: u32 = 1;
    const DYNAMIC: u32 = 2;
    const STRINGS: u64 = 5;
    const NAME: u64 = 14;
    let file = fs::File::open(path).ok()?;
    let read = |at: u64, into: &mut [u8]| file.read_exact_at(into, at).ok();
    let word = |at: u64| {
        let mut eight = [0; 8];
        read(at, &mut eight)?;
        Some(u64::from_le_bytes(eight))
    };
    let mut head = [0; 64];
    read(0, &mut head)?;
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, size) = (
        word(32)?,
        u64::from(u16::from_le_bytes([head[54], head[55]])),
    );
    let count = u64::from(u16::from_le_bytes([head[56], head[57]]));
    let mut segments = Vec::new();
    for number in 0..count.min(MAX_CARDS) {
        let at = table.checked_add(number * size)?;
        let kind = word(at)? as u32;
        segments.push((kind, word(at + 8)?, word(at + 16)?, word(at + 32)?));
    }
    let (_, dynamic, _, length) = *segments.iter().find(|segment| segment.0 == DYNAMIC)?;
    let (mut strings, mut name) = (None, None);
    for number in 0..(length / 16).min(MAX_CARDS) {
        let at = dynamic.checked_add(number * 16)?;
        match word(at)? {
            0 => break,
            STRINGS => strings = word(at + 8),
            NAME => name = word(at + 8),
            _ => {}
        }
    }
    let (strings, name) = (strings?, name?);
    // The dynamic section speaks of memory; segments say where in the file that is.
    let (_, offset, address, _) = *segments.iter().find(|(kind, _, address, length)| {
        *kind == LOAD && (*address..address.saturating_add(*length)).contains(&strings)
    })?;
    let at = offset.checked_add(strings - address)?.checked_add(name)?;
    let mut text = Vec::new();
    for number in 0..256 {
        let mut byte = [0];
        read(at + number, &mut byte)?;
        if byte[0] == 0 {
            break;
        }
        text.push(byte[0]);
    }
    let text = String::from_utf8(text).ok()?;
    // It becomes the name of a file inside.
    (!text.is_empty() && !text.contains('/')).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct DriverFixture(tempfile::TempDir);

    impl DriverFixture {
        fn file(&self, path: &str, text: &str) -> PathBuf {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().expect("below the root")).expect("made");
            fs::write(&path, text).expect("written");
            path
        }

        /// A real library with this name in it, made by the machine's own compiler.
        fn library(&self, path: &str, soname: &str) {
            let source = self.file("source.c", "int nothing;\n");
            let made = self.file(path, "");
            let done = std::process::Command::new("cc")
                .args(["-shared", "-fPIC", "-nostdlib"])
                .arg(format!("-Wl,-soname,{soname}"))
                .arg("-o")
                .arg(&made)
                .arg(&source)
                .status()
                .expect("a C compiler, which the product's build needs as well");
            assert!(done.success());
        }

        fn with_a_driver() -> Self {
            let machine = Self(tempfile::tempdir().expect("a directory"));
            machine.file(
                "proc/driver/nvidia/version",
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.03  Release Build\n\
                 GCC version:  gcc version 12.2.0\n",
            );
            machine.file(
                "proc/devices",
                "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n509 nvidia-uvm\n510 nvidia-caps\n\n\
                 Block devices:\n  8 sd\n 77 nvidia-uvm\n",
            );
            machine.library(
                "usr/lib/x86_64-linux-gnu/libcuda.so.580.159.03",
                "libcuda.so.1",
            );
            machine.library(
                "usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.580.159.03",
                "libnvidia-ml.so.1",
            );
            machine.library(
                "usr/lib/x86_64-linux-gnu/libnvidia-nvvm.so.580.159.03",
                "libnvidia-nvvm.so.4",
            );
            machine.library(
                "usr/lib64/libnvidia-gpucomp.so.580.159.03",
                "libnvidia-gpucomp.so.580.159.03",
            );
            // Of another version, and for pictures.
            machine.library("usr/lib/libnvidia-cfg.so.570.1", "libnvidia-cfg.so.1");
            machine.library(
                "usr/lib64/libGLX_nvidia.so.580.159.03",
                "libGLX_nvidia.so.0",
            );
            machine.file("usr/bin/nvidia-smi", "#!/bin/sh\n");
            machine
        }
    }

    #[test]
    fn a_loaded_driver_is_found_with_its_numbers_and_its_libraries_only() {
        let machine = DriverFixture::with_a_driver();
        let driver = Driver::find(machine.0.path()).expect("a driver");
        assert_eq!(driver.version, "580.159.03");
        let names: Vec<&str> = driver.libraries.keys().copied().collect();
        assert_eq!(
            names,
            [
                "libcuda",
                "libnvidia-gpucomp",
                "libnvidia-ml",
                "libnvidia-nvvm"
            ]
        );
        let devices: Vec<(String, u32, u32)> = driver
            .devices(&[0, 3])
            .into_iter()
            .map(|device| (device.at, device.major, device.minor))
            .collect();
        let told = |at: &str, major, minor| (at.to_owned(), major, minor);
        assert_eq!(
            devices,
            [
                told("/dev/nvidiactl", 195, 255),
                told("/dev/nvidia-uvm", 509, 0),
                told("/dev/nvidia-uvm-tools", 509, 1),
                told("/dev/nvidia0", 195, 0),
                told("/dev/nvidia3", 195, 3)
            ]
        );
    }

    #[test]
    fn stand_ins_have_the_places_of_the_real_libraries_under_every_name() {
        let machine = DriverFixture::with_a_driver();
        let driver = Driver::find(machine.0.path()).expect("a driver");
        let hook = PathBuf::from("/run/hook.so");
        let files = driver.files(&BTreeMap::from([("libcuda", hook.clone())]), "/real");
        let at = |place: &str| {
            let found: Vec<&FileOrder> = files.iter().filter(|file| file.at == place).collect();
            assert_eq!(found.len(), 1, "{place}: {found:?}");
            found[0].from.clone()
        };
        for folder in SHOWN_IN {
            for name in ["libcuda.so", "libcuda.so.1", "libcuda.so.580.159.03"] {
                assert_eq!(at(&format!("{folder}/{name}")), hook);
            }
            assert!(
                at(&format!("{folder}/libnvidia-nvvm.so.4"))
                    .ends_with("libnvidia-nvvm.so.580.159.03")
            );
            assert!(
                at(&format!("{folder}/libnvidia-ml.so.1")).ends_with("libnvidia-ml.so.580.159.03")
            );
            at(&format!("{folder}/libnvidia-gpucomp.so.580.159.03"));
        }
        assert!(at("/real/libcuda.so.1").ends_with("libcuda.so.580.159.03"));
        at("/usr/bin/nvidia-smi");
        // The real one is nowhere a program looks by itself.
        let real = files
            .iter()
            .filter(|file| file.from.ends_with("libcuda.so.580.159.03"));
        assert_eq!(real.count(), 1);
        assert!(files.iter().all(|file| file.for_what == FileUse::Run));
        assert!(
            !files
                .iter()
                .any(|file| file.at.contains("GLX") || file.at.contains("cfg"))
        );
    }

    #[test]
    fn whatever_is_missing_is_said_and_nothing_is_guessed() {
        let machine = DriverFixture(tempfile::tempdir().expect("a directory"));
        assert_eq!(Driver::find(machine.0.path()), Err(Lacks::Driver));
        machine.file("proc/driver/nvidia/version", "NVRM version: a new way\n");
        let told = Driver::find(machine.0.path());
        assert_eq!(told, Err(Lacks::Version("NVRM version: a new way".into())));
        machine.file(
            "proc/driver/nvidia/version",
            "NVRM version: Module  570.1  x\n",
        );
        let told = Driver::find(machine.0.path()).expect_err("no library");
        assert!(told.to_string().contains("570.1") && told.to_string().contains("libcuda"));
        machine.library("usr/lib64/libcuda.so.570.1", "libcuda.so.1");
        machine.library("usr/lib64/libnvidia-ml.so.570.1", "libnvidia-ml.so.1");
        assert_eq!(
            Driver::find(machine.0.path()),
            Err(Lacks::Major("nvidia-uvm"))
        );
        machine.file("proc/devices", "Character devices:\n 510 nvidia-uvm\n");
        assert_eq!(
            Driver::find(machine.0.path()).expect("whole").major,
            USUAL_MAJOR
        );
    }

    #[test]
    fn cards_parts_and_parameters_are_read_from_the_kernel_module() {
        let machine = DriverFixture::with_a_driver();
        let root = machine.0.path();
        for (pci, minor, uuid) in [
            (
                "0000:c1:00.0",
                1,
                "GPU-????????-????-????-????-????????????",
            ),
            (
                "0000:41:00.0",
                0,
                "GPU-7f2b1c90-1111-2222-3333-444455556666",
            ),
        ] {
            machine.file(
                &format!("proc/driver/nvidia/gpus/{pci}/information"),
                &format!(
                    "Model: \t\t NVIDIA H200\nIRQ:   \t\t 27\nGPU UUID: \t {uuid}\nBus Location: \t {pci}\nDevice Minor: \t {minor}\n"
                ),
            );
        }
        let seen = cards(root);
        assert_eq!(seen.len(), 2);
        assert_eq!((seen[0].minor, seen[0].model.as_str()), (0, "NVIDIA H200"));
        assert!(seen[0].uuid.starts_with("GPU-7f2b") && seen[1].uuid.is_empty());
        machine.file(
            "proc/driver/nvidia-caps/mig-minors",
            "config 1\nmonitor 2\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\ngpu0/gi11/access 102\n",
        );
        let driver = Driver::find(root).expect("a driver");
        let part = |gpu_instance| MigInstance {
            card: 0,
            gpu_instance,
            compute_instance: 0,
        };
        let nodes = driver.part(root, part(1)).expect("listed");
        let told: Vec<(&str, u32, u32)> = nodes
            .iter()
            .map(|node| (node.at.as_str(), node.major, node.minor))
            .collect();
        assert_eq!(
            told,
            [
                ("/dev/nvidia-caps/nvidia-cap12", 510, 12),
                ("/dev/nvidia-caps/nvidia-cap13", 510, 13)
            ]
        );
        assert_eq!(driver.part(root, part(11)), None, "half of it is listed");
        machine.file(
            "proc/driver/nvidia/params",
            "DeviceFileMode: 438\nModifyDeviceFiles: 1\n",
        );
        assert_eq!(
            parameters(root).as_deref(),
            Some("DeviceFileMode: 438\nModifyDeviceFiles: 0\n")
        );
        assert_eq!(cards(Path::new("/nonexistent")), []);
    }

    #[test]
    fn a_file_that_is_no_library_has_no_name_and_breaks_nothing() {
        let machine = DriverFixture::with_a_driver();
        let whole = machine
            .0
            .path()
            .join("usr/lib/x86_64-linux-gnu/libcuda.so.580.159.03");
        let bytes = fs::read(&whole).expect("it");
        assert_eq!(soname(&whole).as_deref(), Some("libcuda.so.1"));
        for cut in (0..bytes.len()).step_by(67) {
            let mut damaged = bytes[..cut].to_vec();
            let path = machine.0.path().join("cut");
            fs::write(&path, &damaged).expect("written");
            let _ = soname(&path);
            damaged = bytes.clone();
            damaged[cut] ^= 0xff;
            fs::write(&path, &damaged).expect("written");
            let _ = soname(&path);
        }
        assert_eq!(soname(&machine.file("text", "no library at all")), None);
        assert_eq!(soname(Path::new("/nonexistent")), None);
    }
}
