//! A very small image made of this machine's own `sh`, `date` and `sleep`: the same files for every
//! runtime that is compared. Written as a root directory, a tar archive of it, and an archive of an
//! image in docker's form.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::subject::ScratchDirectory;

const PROGRAMS: [&str; 3] = ["sh", "date", "sleep"];
/// Directories that runtimes mount upon; made now so that none has to be made at a start.
const EMPTY: [&str; 8] = ["proc", "dev", "sys", "tmp", "run", "out", "etc", "root"];

pub struct Tiny {
    place: ScratchDirectory,
}

impl Tiny {
    pub fn make() -> io::Result<Self> {
        let tiny = Self {
            place: ScratchDirectory::new("tiny")?,
        };
        let root = tiny.root();
        for name in EMPTY {
            fs::create_dir_all(root.join(name))?;
        }
        fs::create_dir_all(root.join("bin"))?;
        fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n")?;
        fs::write(root.join("etc/group"), "root:x:0:\n")?;
        for name in PROGRAMS {
            let from = fs::canonicalize(Path::new("/bin").join(name))?;
            fs::copy(&from, root.join("bin").join(name))?;
            for library in libraries(&from)? {
                let to = root.join(library.strip_prefix("/").unwrap_or(&library));
                fs::create_dir_all(to.parent().unwrap_or(&root))?;
                fs::copy(fs::canonicalize(&library)?, to)?;
            }
        }
        tar(&root, &tiny.layer(), &["."])?;
        write_archive(
            tiny.place.path(),
            &[tiny.layer()],
            "bench-tiny:1",
            &tiny.archive(),
        )?;
        Ok(tiny)
    }

    /// The files as they are.
    pub fn root(&self) -> PathBuf {
        self.place.path().join("root")
    }

    /// The files as one tar archive.
    pub fn layer(&self) -> PathBuf {
        self.place.path().join("layer.tar")
    }

    /// The image `bench-tiny:1`, one layer.
    pub fn archive(&self) -> PathBuf {
        self.place.path().join("image.tar")
    }
}

/// Shared libraries of a program, as the loader finds them.
fn libraries(program: &Path) -> io::Result<Vec<PathBuf>> {
    let told = output(Command::new("ldd").arg(program))?;
    Ok(told
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
        .collect())
}

/// Packs `what` below `from`, owned by root.
pub fn tar(from: &Path, to: &Path, what: &[&str]) -> io::Result<()> {
    let mut tar = Command::new("tar");
    tar.args([
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "-C",
    ])
    .arg(from)
    .arg("-cf")
    .arg(to)
    .args(what);
    output(&mut tar).map(drop)
}

/// Writes an image of these layers as `docker save` did, below `work`.
pub fn write_archive(
    work: &Path,
    layers: &[PathBuf],
    reference: &str,
    to: &Path,
) -> io::Result<()> {
    let folder = work.join("archive");
    fs::create_dir_all(&folder)?;
    let mut names = Vec::new();
    let mut diff_ids = Vec::new();
    for (number, layer) in layers.iter().enumerate() {
        let name = format!("layer{number}.tar");
        fs::copy(layer, folder.join(&name))?;
        diff_ids.push(format!("sha256:{}", sha256(&fs::read(layer)?)));
        names.push(name);
    }
    let config = json!({
        "architecture": std::env::consts::ARCH.replace("x86_64", "amd64"),
        "os": "linux",
        "config": {"Cmd": ["/bin/sh"], "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
        "history": diff_ids.iter().map(|_| json!({"created_by": "fardel bench"})).collect::<Vec<_>>(),
    })
    .to_string();
    let config_name = format!("{}.json", sha256(config.as_bytes()));
    fs::write(folder.join(&config_name), config)?;
    let manifest = json!([{"Config": config_name, "RepoTags": [reference], "Layers": names}]);
    fs::write(folder.join("manifest.json"), manifest.to_string())?;
    tar(&folder, to, &["."])?;
    fs::remove_dir_all(folder)
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Standard output of a program that succeeded.
pub fn output(command: &mut Command) -> io::Result<String> {
    let done = command.output()?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(io::Error::other(format!(
        "{command:?}: {} {said}",
        done.status
    )))
}

/// True where a program of this name is installed.
pub fn installed(name: &str) -> bool {
    [
        "/usr/local/sbin",
        "/usr/local/bin",
        "/usr/sbin",
        "/usr/bin",
        "/sbin",
        "/bin",
    ]
    .iter()
    .any(|folder| Path::new(folder).join(name).exists())
}
