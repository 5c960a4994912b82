//! Debian's own kernel for the emulated machine, unpacked and never installed: its image, the modules a
//! guest can use, and a first root of two files that loads what the disk needs and hands over. Kept
//! under a hash of its inputs beside the root. Never touches this machine's kernel or modules.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use super::{Folder, root};
use crate::failure::Failure;
use crate::program::Program;

/// The kernel of an ordinary server, and the one program of the first root.
const PACKAGES: &str = "linux-image-amd64,busybox-static";

const INIT: &str = include_str!("qemu-init.sh");

/// What has to be loaded before there is a disk, and before there are folders of the host.
const FIRST: [&str; 5] = ["virtio_pci", "virtio_blk", "ext4", "9p", "9pnet_virtio"];

/// Modules for devices that no guest has: two thirds of all bytes.
const WITHOUT: [&str; 11] = [
    "sound",
    "drivers/ata",
    "drivers/gpu",
    "drivers/hid",
    "drivers/iio",
    "drivers/infiniband",
    "drivers/media",
    "drivers/net/ethernet",
    "drivers/net/wireless",
    "drivers/scsi",
    "drivers/usb",
];

/// The folder of an unpacked kernel.
pub(super) struct Kernel(PathBuf);

impl Kernel {
    /// Finds the kernel, or makes it: about ten seconds and 80 MB from the mirror.
    pub(super) fn ready() -> Result<Self, Failure> {
        let cache = root::cache()?;
        let fault = |error: std::io::Error| {
            Failure::new(format!("{} cannot be used: {error}", cache.display()))
        };
        fs::create_dir_all(&cache).map_err(fault)?;
        let lock = fs::File::create(cache.join("kernel-lock")).map_err(fault)?;
        lock.lock().map_err(fault)?;
        let kept = cache.join(format!("kernel-{}", hash()));
        if !kept.exists() {
            for entry in fs::read_dir(&cache).map_err(fault)?.flatten() {
                let name = entry.file_name();
                if name.to_string_lossy().starts_with("kernel-") && entry.path().is_dir() {
                    fs::remove_dir_all(entry.path()).map_err(fault)?;
                }
            }
            make(&kept)?;
        }
        Ok(Self(kept))
    }

    pub(super) fn image(&self) -> PathBuf {
        self.0.join("vmlinuz")
    }

    pub(super) fn first_root(&self) -> PathBuf {
        self.0.join("initrd")
    }

    /// The folder that the guest sees as its kernel's modules.
    pub(super) fn modules(&self) -> PathBuf {
        self.0.join("modules")
    }
}

/// Of everything that goes into the kernel's folder, this file's steps included.
fn hash() -> String {
    let mut hasher = DefaultHasher::new();
    (include_str!("qemu_kernel.rs"), INIT).hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

fn make(kept: &Path) -> Result<(), Failure> {
    println!("unpacking Debian's kernel; it is kept for the next run");
    let work = Folder::make("kernel", 1 << 30)?;
    let tree = work.path().join("tree");
    Program::named("mmdebstrap")
        // Unpacked with what it depends on, and nothing of it is run.
        .words("--quiet --mode=root --format=directory --variant=extract")
        .argument("--aptopt=Acquire::Languages \"none\"")
        .argument(format!("--include={PACKAGES}"))
        .words(root::SUITE)
        .argument(&tree)
        .variable("TMPDIR", work.path())
        .run()?;
    let all = tree.join("lib/modules");
    let version = fs::read_dir(&all)
        .ok()
        .and_then(|mut entries| entries.next()?.ok())
        .and_then(|entry| entry.file_name().into_string().ok())
        .ok_or_else(|| Failure::new("the kernel's package brings no modules"))?;
    let modules = all.join(&version);
    let fault = |error: std::io::Error| Failure::new(format!("Debian's kernel: {error}"));
    for folder in WITHOUT {
        let path = modules.join("kernel").join(folder);
        if path.exists() {
            fs::remove_dir_all(path).map_err(fault)?;
        }
    }
    // The guest's own depmod wrote the lists for its own modprobe.
    Program::named("chroot")
        .argument(&tree)
        .words("depmod")
        .argument(&version)
        .run()?;

    let part = kept.with_extension("part");
    if part.exists() {
        fs::remove_dir_all(&part).map_err(fault)?;
    }
    fs::create_dir_all(&part).map_err(fault)?;
    fs::copy(
        tree.join(format!("boot/vmlinuz-{version}")),
        part.join("vmlinuz"),
    )
    .map_err(fault)?;
    fs::write(part.join("initrd"), first_root(&tree, &version)?).map_err(fault)?;
    Program::named("cp")
        .words("-a")
        .argument(&modules)
        .argument(part.join("modules"))
        .run()?;
    fs::rename(&part, kept).map_err(fault)
}

/// The archive that the kernel unpacks into memory and begins with.
fn first_root(tree: &Path, version: &str) -> Result<Vec<u8>, Failure> {
    let fault = |error: std::io::Error| Failure::new(format!("the first root: {error}"));
    let mut archive = Archive::default();
    for folder in ["bin", "dev", "proc", "modules", "root"] {
        archive.add(folder, 0o040_755, &[]);
    }
    let shell = fs::read(tree.join("bin/busybox")).map_err(fault)?;
    archive.add("bin/busybox", 0o100_755, &shell);
    archive.add("init", 0o100_755, INIT.as_bytes());
    for (number, module) in modules_in_order(tree, version)?.iter().enumerate() {
        let bytes = fs::read(tree.join(module.trim_start_matches('/'))).map_err(fault)?;
        // The shell sorts what it finds by name.
        archive.add(&format!("modules/{number:02}"), 0o100_644, &bytes);
    }
    Ok(archive.close())
}

/// Paths of the first modules and of what they need, each once, in the order of loading.
fn modules_in_order(tree: &Path, version: &str) -> Result<Vec<String>, Failure> {
    let mut ordered: Vec<String> = Vec::new();
    for name in FIRST {
        let told = Program::named("chroot")
            .argument(tree)
            .words("modprobe --show-depends --set-version")
            .argument(version)
            .argument(name)
            .output()?;
        for path in loaded(&told) {
            // One that is for a processor we do not imitate; the kernel asks for it only there.
            if !ordered.contains(&path) && !path.ends_with("/crc32c-intel.ko") {
                ordered.push(path);
            }
        }
    }
    Ok(ordered)
}

/// Of lines `insmod PATH`.
fn loaded(told: &str) -> Vec<String> {
    told.lines()
        .filter_map(|line| line.strip_prefix("insmod "))
        .map(|path| path.trim().to_owned())
        .collect()
}

/// An archive of the kind that the kernel unpacks ("new" cpio without checksums).
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    fn add(&mut self, name: &str, mode: u32, data: &[u8]) {
        self.entries += 1;
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            u32::try_from(data.len()).expect("no file of a first root has four gigabytes"),
            0,
            0,
            0,
            0,
            u32::try_from(name.len() + 1).expect("names are short"),
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(data);
        self.pad();
    }

    fn pad(&mut self) {
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
    }

    fn close(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_whole_headers_and_everything_at_a_multiple_of_four() {
        let mut archive = Archive::default();
        archive.add("init", 0o100_755, b"hello");
        let bytes = archive.close();
        let text = String::from_utf8_lossy(&bytes);
        // Header of 110 letters, name with its zero, data, each padded.
        assert_eq!(&text[..6], "070701");
        assert_eq!(&text[14..22], "000081ed");
        assert_eq!(&text[54..62], "00000005");
        assert_eq!(&text[94..102], "00000005");
        assert_eq!(&text[110..114], "init");
        assert_eq!(&text[116..121], "hello");
        assert_eq!(&text[124..130], "070701");
        assert!(text.contains("TRAILER!!!"));
        assert_eq!(bytes.len() % 4, 0);
    }

    #[test]
    fn modules_are_read_in_the_order_in_which_they_load() {
        let told = "builtin crc\ninsmod /lib/modules/6/a.ko \ninsmod /lib/modules/6/b.ko \n";
        assert_eq!(loaded(told), ["/lib/modules/6/a.ko", "/lib/modules/6/b.ko"]);
    }
}
