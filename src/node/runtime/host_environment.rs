//! Prepares the `host` environment: this machine's own programs as a read-only lower layer, by an
//! allow-list. Shown are `/usr`, the links into it, and the harmless part of `/etc`; never `/root`,
//! `/home`, `/var`, `/opt`, shadow files, keys, machine identity or state of ours.
//!
//! Result is a small skeleton directory, built once per state of the machine and never changed
//! afterwards, because running sessions lie over it.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::rootfs::{HOST_USER_ID, HostGround};

/// Names in `/etc` that programs need and that say nothing secret. Directories are taken whole.
/// A file must also be readable by everybody and owned by root; whatever is not, is left out.
const ETC: &[&str] = &[
    "ImageMagick-6",
    "ImageMagick-7",
    "OpenCL",
    "R",
    "alternatives",
    "bash.bashrc",
    "bash_completion.d",
    "ca-certificates.conf",
    "debian_version",
    "ethertypes",
    "fonts",
    "gai.conf",
    "glvnd",
    "host.conf",
    "inputrc",
    "java-11-openjdk",
    "java-17-openjdk",
    "java-21-openjdk",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "localtime",
    "lsb-release",
    "magic",
    "magic.mime",
    "mime.types",
    "nanorc",
    "networks",
    "os-release",
    "perl",
    "profile",
    "profile.d",
    "protocols",
    "python",
    "python3",
    "python3.9",
    "python3.10",
    "python3.11",
    "python3.12",
    "python3.13",
    "rpc",
    "services",
    "shells",
    "skel",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
    "vim",
    "vulkan",
    "wgetrc",
];

/// The largest file of `/etc` that is copied. Higher: a stray database ends up in every session.
/// Lower: the certificate bundle (about 220 KB) or the loader's cache of a full desktop is missing.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// Directories that a session expects to exist, with their modes.
const PLACES: &[(&str, u32)] = &[
    ("boot", 0o755),
    ("dev", 0o755),
    ("etc", 0o755),
    ("home", 0o755),
    ("media", 0o755),
    ("mnt", 0o755),
    ("opt", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("run/lock", 0o1777),
    ("srv", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("var", 0o755),
    ("var/cache", 0o755),
    ("var/lib", 0o755),
    ("var/log", 0o755),
    ("var/tmp", 0o1777),
];

/// A machine whose own programs could not be offered.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("this machine has no /usr")]
    NoPrograms,
    #[error("could not {what} {path}")]
    File {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

fn at(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> HostError {
    let path = path.to_owned();
    move |source| HostError::File { what, path, source }
}

/// Gives the skeleton for the machine as it is now, building it below `data` when it is not there.
///
/// Costs one look at some hundred files; building takes tens of milliseconds.
pub(super) fn prepare(data: &Path) -> Result<HostGround, HostError> {
    prepare_from(Path::new("/"), data)
}

fn prepare_from(machine: &Path, data: &Path) -> Result<HostGround, HostError> {
    if !machine.join("usr").is_dir() {
        return Err(HostError::NoPrograms);
    }
    let mut trees = vec!["usr".to_owned()];
    let mut links = Vec::new();
    for name in ["bin", "sbin", "lib", "lib32", "lib64", "libx32"] {
        let path = machine.join(name);
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_symlink() => {
                links.push((
                    name.to_owned(),
                    fs::read_link(&path).map_err(at("read the link", &path))?,
                ));
            }
            Ok(found) if found.is_dir() => trees.push(name.to_owned()),
            _ => {}
        }
    }
    let shell = if machine.join("usr/bin/bash").exists() {
        "/bin/bash"
    } else {
        "/bin/sh"
    };
    let own = own_files(shell);

    let mut copies = Vec::new();
    for name in ETC {
        list(&machine.join("etc"), Path::new(name), 0, &mut copies);
    }
    let mut digest = HostDigest::new();
    for (name, target) in &links {
        digest.add(name.as_bytes());
        digest.add(target.as_os_str().as_encoded_bytes());
    }
    trees.iter().for_each(|name| digest.add(name.as_bytes()));
    own.iter().for_each(|(name, text)| {
        digest.add(name.as_bytes());
        digest.add(text.as_bytes());
    });
    copies
        .iter()
        .for_each(|copy| digest.add(copy.fingerprint.as_bytes()));

    let above = data.join("host-environment");
    let skeleton = above.join(format!("{:016x}", digest.0));
    if !skeleton.is_dir() {
        let building = above.join(format!("building-{}", std::process::id()));
        let _ = fs::remove_dir_all(&building);
        fs::create_dir_all(&building).map_err(at("create", &building))?;
        build(machine, &building, &links, &trees, &own, &copies)?;
        // A power cut may keep the name and lose the files: then no session would ever start again.
        fs::File::open(&above)
            .and_then(|folder| Ok(rustix::fs::syncfs(folder)?))
            .map_err(at("write to disk", &above))?;
        if let Err(source) = fs::rename(&building, &skeleton) {
            // Another process of ours was quicker; its result is the same.
            let _ = fs::remove_dir_all(&building);
            if !skeleton.is_dir() {
                return Err(at("name", &skeleton)(source));
            }
        }
    }
    Ok(HostGround { skeleton, trees })
}

fn own_files(shell: &str) -> Vec<(&'static str, String)> {
    vec![
        ("etc/passwd", format!("root:x:0:0:root:/root:{shell}\nwork:x:{HOST_USER_ID}:{HOST_USER_ID}:work:/home/work:{shell}\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n")),
        ("etc/group", format!("root:x:0:\ntty:x:5:\nwork:x:{HOST_USER_ID}:\nnogroup:x:65534:\n")),
        ("etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n".to_owned()),
        ("etc/hosts", String::new()),
        ("etc/hostname", String::new()),
        ("etc/resolv.conf", String::new()),
    ]
}

fn build(
    machine: &Path,
    into: &Path,
    links: &[(String, PathBuf)],
    trees: &[String],
    own: &[(&str, String)],
    copies: &[Copy],
) -> Result<(), HostError> {
    for (name, mode) in PLACES {
        let path = into.join(name);
        fs::create_dir_all(&path).map_err(at("create", &path))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(*mode))
            .map_err(at("set the mode of", &path))?;
    }
    for name in trees {
        let path = into.join(name);
        fs::create_dir_all(&path).map_err(at("create", &path))?;
    }
    for (name, target) in links {
        let path = into.join(name);
        symlink(target, &path).map_err(at("link", &path))?;
    }
    for copy in copies {
        let to = into.join("etc").join(&copy.name);
        if let Some(above) = to.parent() {
            fs::create_dir_all(above).map_err(at("create", above))?;
        }
        let from = machine.join("etc").join(&copy.name);
        match &copy.target {
            Some(target) => symlink(target, &to).map_err(at("link", &to))?,
            None => {
                fs::copy(&from, &to).map_err(at("copy", &from))?;
                fs::set_permissions(&to, fs::Permissions::from_mode(copy.mode))
                    .map_err(at("set the mode of", &to))?;
            }
        }
    }
    for (name, text) in own {
        let path = into.join(name);
        fs::write(&path, text).map_err(at("write", &path))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644))
            .map_err(at("set the mode of", &path))?;
    }
    // The builder's umask must not reach the sessions.
    fs::set_permissions(into, fs::Permissions::from_mode(0o755))
        .map_err(at("set the mode of", into))?;
    open_directories(&into.join("etc"))
}

fn open_directories(path: &Path) -> Result<(), HostError> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .map_err(at("set the mode of", path))?;
    for below in fs::read_dir(path).map_err(at("list", path))?.flatten() {
        if below.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_directories(&below.path())?;
        }
    }
    Ok(())
}

struct Copy {
    name: PathBuf,
    /// A link's target; a plain file has none.
    target: Option<PathBuf>,
    mode: u32,
    fingerprint: String,
}

/// Adds what may be copied of `name` below `etc`, in a stable order.
fn list(etc: &Path, name: &Path, depth: u32, into: &mut Vec<Copy>) {
    let path = etc.join(name);
    let Ok(found) = fs::symlink_metadata(&path) else {
        return;
    };
    if found.uid() != 0 || depth > 8 {
        return;
    }
    if found.is_symlink() {
        if let Ok(target) = fs::read_link(&path) {
            let fingerprint = format!("{}>{}", name.display(), target.display());
            into.push(Copy {
                name: name.to_owned(),
                target: Some(target),
                mode: 0,
                fingerprint,
            });
        }
    } else if found.is_dir() {
        let mut below: Vec<_> = fs::read_dir(&path)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        below.sort();
        for entry in below {
            list(etc, &name.join(entry), depth + 1, into);
        }
    } else if found.is_file() && found.mode() & 0o004 != 0 && found.len() <= MAX_FILE_BYTES {
        let fingerprint = format!(
            "{}:{}:{}:{}",
            name.display(),
            found.len(),
            found.mtime(),
            found.mtime_nsec()
        );
        into.push(Copy {
            name: name.to_owned(),
            target: None,
            mode: found.mode() & 0o755,
            fingerprint,
        });
    }
}

/// Fowler-Noll-Vo, 64 bits: names a state of the machine, protects nothing.
pub(super) struct HostDigest(pub u64);

impl HostDigest {
    /// The empty digest.
    pub(super) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// The digest of one word.
    pub(super) fn of(bytes: &[u8]) -> u64 {
        let mut digest = Self::new();
        digest.add(bytes);
        digest.0
    }

    /// Adds one word; the boundary between words counts.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().chain(&[0xff]) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_skeleton_holds_programs_and_no_secret() {
        if fs::metadata("/etc").map(|found| found.uid()).ok()
            != Some(rustix::process::geteuid().as_raw())
        {
            skips::skip(
                "the_skeleton_holds_programs_and_no_secret",
                "needs root, who owns the copied files",
            );
            return;
        }
        let machine = tempfile::tempdir().expect("a directory");
        let data = tempfile::tempdir().expect("a directory");
        let write = |name: &str, mode: u32| {
            let path = machine.path().join(name);
            fs::create_dir_all(path.parent().expect("below the machine")).expect("made");
            fs::write(&path, name).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
        };
        write("usr/bin/bash", 0o755);
        write("etc/profile", 0o644);
        write("etc/shadow", 0o640);
        write("etc/passwd", 0o644);
        write("etc/machine-id", 0o444);
        write("etc/ssh/ssh_host_ed25519_key", 0o600);
        write("etc/ssl/certs/one.pem", 0o644);
        write("etc/ssl/private/key.pem", 0o600);
        write("etc/ld.so.conf.d/private.conf", 0o600);
        for (name, size) in [("large", MAX_FILE_BYTES), ("too-large", MAX_FILE_BYTES + 1)] {
            write(&format!("etc/ssl/certs/{name}"), 0o644);
            let path = machine.path().join("etc/ssl/certs").join(name);
            let file = fs::File::options().write(true).open(path);
            file.and_then(|file| file.set_len(size)).expect("grown");
        }
        symlink("usr/bin", machine.path().join("bin")).expect("linked");
        let ground = prepare_from(machine.path(), data.path()).expect("prepared");
        let skeleton = &ground.skeleton;
        assert!(
            skeleton.join("etc/profile").is_file()
                && skeleton.join("etc/ssl/certs/one.pem").is_file()
                && skeleton.join("etc/ssl/certs/large").is_file()
        );
        assert_eq!(
            fs::read_link(skeleton.join("bin")).expect("a link"),
            Path::new("usr/bin")
        );
        for secret in [
            "etc/shadow",
            "etc/machine-id",
            "etc/ssh",
            "etc/ssl/private",
            "etc/ld.so.conf.d/private.conf",
            "etc/ssl/certs/too-large",
        ] {
            assert!(
                !skeleton.join(secret).exists(),
                "{secret} must not be shown"
            );
        }
        let passwd = fs::read_to_string(skeleton.join("etc/passwd")).expect("ours");
        assert!(passwd.contains("work:x:1000") && passwd.lines().count() == 3);
        assert_eq!(ground.trees, ["usr"]);
        assert_eq!(
            prepare_from(machine.path(), data.path()).expect("again"),
            ground,
            "the same machine, the same skeleton"
        );
        fs::write(machine.path().join("etc/profile"), "changed and longer").expect("written");
        assert_ne!(
            prepare_from(machine.path(), data.path()).expect("again"),
            ground,
            "running sessions keep the old one"
        );
    }
}
