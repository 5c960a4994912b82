//! Makes the guest's disk: a Debian root by mmdebstrap, the kernel's modules, and one unit that runs
//! what the host asks for. Kept under a hash of everything that goes in, so that the second run costs
//! nothing. Never touches a root that another run made from other inputs.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::Folder;
use crate::failure::Failure;
use crate::program::{self, Program};

/// The Debian in which everything is tried; the first of those that there are.
pub(super) const SUITE: &str = "bookworm";

/// Those that a scenario may ask for.
pub(super) const SUITES: [&str; 2] = [SUITE, "trixie"];

/// What stands in the guest besides Debian's smallest set with apt: a real systemd with what it needs
/// to bring a machine up, and what scenarios ask questions with.
const PACKAGES: [&str; 11] = [
    "systemd-sysv",
    "udev",
    "dbus",
    "kmod",
    "iproute2",
    // User-Mode Linux has no families of nftables.
    "iptables",
    // Where a kernel has them, tests ask it for its rules; elsewhere it says that there are none.
    "nftables",
    "procps",
    "curl",
    "python3",
    "ca-certificates",
];

/// Jobs that a fresh Debian does in its first minutes and that say nothing about us.
const MASKED: [&str; 7] = [
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "systemd-networkd-wait-online.service",
];

const RUN: &str = include_str!("guest-run.sh");

const UNIT: &str = "\
[Unit]
Description=What the host asks for
DefaultDependencies=no
After=multi-user.target
[Service]
ExecStart=/usr/local/sbin/bed-run
OOMScoreAdjust=-1000
";

const TARGET: &str = "\
[Unit]
Description=A booted guest
Requires=multi-user.target
Wants=bed.service
After=multi-user.target
AllowIsolate=yes
";

/// A guest keeps this identity over all its boots; an empty one would make each boot a first one.
const MACHINE_ID: &str = "fa4de100000000000000000000000bed\n";

/// Sparse: it costs what is in it.
const DISK_BYTES: u64 = 16 << 30;

/// The finished disk, never written to: machines write into files of their own beside it.
pub(super) struct Root {
    pub(super) image: PathBuf,
    /// Names the inputs; disks that were begun on another root are of no use on this one.
    pub(super) hash: String,
}

impl Root {
    /// Finds the root of the usual Debian, or makes it.
    pub(super) fn ready() -> Result<Self, Failure> {
        Self::of(SUITE)
    }

    /// Finds the root of one of [`SUITES`], or makes it: about half a minute and 250 MB from the mirror.
    pub(super) fn of(suite: &str) -> Result<Self, Failure> {
        let kernel = kernel_version()?;
        let hash = hash(suite, &kernel);
        let cache = cache()?;
        let image = cache.join(format!("root-{suite}-{hash}.img"));
        let fault = |error: std::io::Error| {
            Failure::new(format!("{} cannot be used: {error}", cache.display()))
        };
        fs::create_dir_all(&cache).map_err(fault)?;
        // Two runs that both miss the root make it once.
        let lock = fs::File::create(cache.join("lock")).map_err(fault)?;
        lock.lock().map_err(fault)?;
        if !image.exists() {
            for old in roots(&cache, suite) {
                fs::remove_file(&old).map_err(fault)?;
            }
            make(&image, suite, &kernel)?;
        }
        Ok(Self { image, hash })
    }

    /// Where the disk of this name is kept between boots. Removes those begun on older roots.
    pub(super) fn disk(&self, name: &str) -> Result<PathBuf, Failure> {
        let sound = name
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || letter == '-');
        if name.is_empty() || !sound {
            return Err(Failure::new(
                "a disk's name is made of letters, digits and hyphens",
            ));
        }
        let folder = self.image.with_file_name("disks");
        let fault = |error: std::io::Error| {
            Failure::new(format!("{} cannot be used: {error}", folder.display()))
        };
        fs::create_dir_all(&folder).map_err(fault)?;
        for entry in fs::read_dir(&folder).map_err(fault)?.flatten() {
            let file = entry.file_name();
            if file
                .to_string_lossy()
                .strip_prefix(&format!("{name}."))
                .is_some_and(|hash| hash != self.hash)
            {
                fs::remove_file(entry.path()).map_err(fault)?;
            }
        }
        Ok(folder.join(format!("{name}.{}", self.hash)))
    }
}

/// Why no root can be made here, if so.
pub(super) fn missing() -> Option<String> {
    if !program::is_root() {
        return Some("making a guest's root file system needs root".to_owned());
    }
    ["linux.uml", "mmdebstrap", "mkfs.ext4"]
        .into_iter()
        .find(|name| !program::installed(name))
        .map(|name| {
            format!("{name} is not installed (Debian: user-mode-linux mmdebstrap e2fsprogs)")
        })
}

/// `$XDG_CACHE_HOME/fardel-bed`, or `bed` in cargo's target directory.
pub(super) fn cache() -> Result<PathBuf, Failure> {
    match std::env::var_os("XDG_CACHE_HOME") {
        Some(home) if !home.is_empty() => Ok(Path::new(&home).join("fardel-bed")),
        _ => Ok(program::target_directory()?.join("bed")),
    }
}

/// Those of this suite; and those of a time when there was only one.
fn roots(cache: &Path, suite: &str) -> Vec<PathBuf> {
    let of_another = |name: &str| {
        SUITES
            .iter()
            .any(|other| *other != suite && name.starts_with(&format!("root-{other}-")))
    };
    fs::read_dir(cache)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.file_name()
                .map(|name| name.to_string_lossy())
                .is_some_and(|name| name.starts_with("root-") && !of_another(&name))
        })
        .collect()
}

fn kernel_version() -> Result<String, Failure> {
    Ok(Program::named("linux.uml")
        .words("--version")
        .output()?
        .trim()
        .to_owned())
}

/// Of everything that goes into the root, this file included: its steps are inputs too.
fn hash(suite: &str, kernel: &str) -> String {
    let mut hasher = DefaultHasher::new();
    (include_str!("root.rs"), RUN, suite, kernel).hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

fn make(image: &Path, suite: &str, kernel: &str) -> Result<(), Failure> {
    println!("making the guest's root ({suite}); it is kept for the next run");
    let work = Folder::make("root", 1 << 30)?;
    let tree = work.path().join("tree");
    Program::named("mmdebstrap")
        .words("--quiet --mode=root --format=directory --variant=minbase")
        // Nobody cares for a half-made root after a crash, and fsync dominates otherwise.
        .words("--dpkgopt=force-unsafe-io")
        .argument("--aptopt=Acquire::Languages \"none\"")
        .argument(format!("--include={}", PACKAGES.join(",")))
        .words(suite)
        .argument(&tree)
        .variable("TMPDIR", work.path())
        .run()?;
    furnish(&tree, kernel)?;
    let part = image.with_extension("part");
    let fault =
        |error: std::io::Error| Failure::new(format!("{} cannot be made: {error}", part.display()));
    fs::File::create(&part)
        .and_then(|file| file.set_len(DISK_BYTES))
        .map_err(fault)?;
    Program::named("mkfs.ext4")
        .words("-q -F -d")
        .argument(&tree)
        .argument(&part)
        .run()?;
    fs::rename(&part, image).map_err(fault)
}

/// Puts in what makes a Debian root a guest: modules, mounts, name, and the unit that runs scripts.
fn furnish(tree: &Path, kernel: &str) -> Result<(), Failure> {
    let modules = tree.join("usr/lib/modules");
    fs::create_dir_all(&modules)
        .map_err(|error| Failure::new(format!("{}: {error}", modules.display())))?;
    Program::named("cp")
        .words("-a")
        .argument(Path::new("/usr/lib/uml/modules").join(kernel))
        .argument(&modules)
        .run()?;
    Program::named("chroot")
        .argument(tree)
        .words("depmod")
        .argument(kernel)
        .run()?;
    for (path, text, mode) in [
        ("etc/fstab", "/dev/root / ext4 rw,noatime 0 1\n", 0o644),
        ("etc/hostname", "bed\n", 0o644),
        (
            "etc/hosts",
            "127.0.0.1 localhost bed\n::1 localhost\n",
            0o644,
        ),
        ("etc/machine-id", MACHINE_ID, 0o444),
        ("usr/local/sbin/bed-run", RUN, 0o755),
        ("etc/systemd/system/bed.service", UNIT, 0o644),
        ("etc/systemd/system/bed.target", TARGET, 0o644),
    ] {
        let path = tree.join(path);
        fs::write(&path, text)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(mode)))
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    }
    let units = tree.join("etc/systemd/system");
    let link = |target: &str, name: &str| {
        let path = units.join(name);
        symlink(target, &path).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
    };
    for name in MASKED {
        link("/dev/null", name)?;
    }
    link("bed.target", "default.target")
}
