//! What both packages put on a machine: every file with its path, mode and bytes, made from the
//! release binary and this tree. Knows no format of packages.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::program::Program;
use crate::{copyright, sbom};

/// Where the installed server listens until somebody says otherwise: every network of the machine, pages
/// encrypted, plain HTTP only to show the way, the first of the ports that users' own apps have, and SSH into
/// sessions. The setup code and the sign-in stand before everything behind it, a user's key before a session.
const LISTEN: [(&str, &str); 4] = [
    ("listen", "0.0.0.0:443"),
    ("listen_http", "0.0.0.0:80"),
    ("listen_apps", "0.0.0.0:8443"),
    ("listen_ssh", "0.0.0.0:7822"),
];

/// One file to be installed.
pub(crate) struct Item {
    /// Below the root of the machine, without a slash in front.
    pub(crate) path: String,
    pub(crate) mode: u32,
    pub(crate) bytes: Vec<u8>,
}

/// What a package is made of.
pub(crate) struct Contents {
    /// In the order of their paths.
    pub(crate) items: Vec<Item>,
    /// What the package is called: the program's own version unless a test of upgrades asks for
    /// another.
    pub(crate) version: String,
    /// What the program inside says.
    pub(crate) program_version: String,
    /// Seconds since 1970 that every file gets.
    pub(crate) epoch: u64,
}

/// Settings that belong to the administrator once they are installed.
pub(crate) const SETTINGS: &str = "etc/fardel/fardel.toml";
/// Where the list of everything inside lies.
pub(crate) const SBOM: &str = "usr/share/doc/fardel/fardel.cdx.json";

impl Contents {
    /// Collects everything; `version` is another number for the package alone.
    pub(crate) fn collect(binary: &Path, version: Option<&str>) -> Result<Self, Failure> {
        let said = asked(binary, &["--version"])?;
        let program_version = said
            .trim()
            .strip_prefix("fardel ")
            .ok_or_else(|| Failure::new(format!("`--version` says {said:?}")))?
            .to_owned();
        let version = version.unwrap_or(&program_version).to_owned();
        let epoch = epoch()?;
        let mut all = Self {
            items: Vec::new(),
            version,
            program_version,
            epoch,
        };
        all.put("usr/bin/fardel", 0o755, read(binary)?);
        for (from, to) in [
            (
                "systemd/fardel.service",
                "lib/systemd/system/fardel.service",
            ),
            (
                "systemd/fardel-sessions.service",
                "lib/systemd/system/fardel-sessions.service",
            ),
            (
                "systemd/fardel-relay.service",
                "lib/systemd/system/fardel-relay.service",
            ),
            (
                "systemd/fardel-console.service",
                "lib/systemd/system/fardel-console.service",
            ),
            ("systemd/sysusers.conf", "usr/lib/sysusers.d/fardel.conf"),
            ("systemd/tmpfiles.conf", "usr/lib/tmpfiles.d/fardel.conf"),
            ("systemd/sysctl.conf", "usr/lib/sysctl.d/50-fardel.conf"),
        ] {
            let bytes = read(&Path::new("packaging").join(from))?;
            all.put(to, 0o644, bytes);
        }
        let settings = settings(&asked(binary, &["config", "sample"])?)?;
        all.put(SETTINGS, 0o640, settings.into_bytes());
        for (shell, to) in [
            ("bash", "usr/share/bash-completion/completions/fardel"),
            ("zsh", "usr/share/zsh/vendor-completions/_fardel"),
            ("fish", "usr/share/fish/vendor_completions.d/fardel.fish"),
        ] {
            let script = asked(binary, &["completion", shell])?;
            all.put(to, 0o644, script.into_bytes());
        }
        all.pages(binary)?;
        let list = sbom::document(&all.program_version, all.epoch)?;
        all.put(SBOM, 0o644, list.into_bytes());
        let copyright = copyright::text()?;
        all.put(
            "usr/share/doc/fardel/copyright",
            0o644,
            copyright.into_bytes(),
        );
        all.items.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(all)
    }

    pub(crate) fn put(&mut self, path: &str, mode: u32, bytes: Vec<u8>) {
        self.items.push(Item {
            path: path.to_owned(),
            mode,
            bytes,
        });
    }

    /// Every manual page, compressed as both distributions want it.
    fn pages(&mut self, binary: &Path) -> Result<(), Failure> {
        let folder = Scratch::new("pages")?;
        let there = folder.0.display().to_string();
        asked(binary, &["man", "--all", &there])?;
        let mut pages: Vec<PathBuf> = fs::read_dir(&folder.0)
            .and_then(|entries| entries.map(|e| e.map(|e| e.path())).collect())
            .map_err(|error| Failure::new(format!("{there} cannot be read: {error}")))?;
        pages.sort();
        for page in pages {
            let name = page.file_name().unwrap_or_default().to_string_lossy();
            let section = name.rsplit('.').next().unwrap_or_default().to_owned();
            let path = format!("usr/share/man/man{section}/{name}.gz");
            let packed = gzip(&page)?;
            self.put(&path, 0o644, packed);
        }
        Ok(())
    }

    /// Writes every file below `root`, with its mode and time and whatever the umask says.
    pub(crate) fn write_below(&self, root: &Path) -> Result<(), Failure> {
        for item in &self.items {
            write(&root.join(&item.path), item.mode, &item.bytes)?;
        }
        Ok(())
    }
}

/// The settings file with the keys that an installed box sets: where it listens.
fn settings(sample: &str) -> Result<String, Failure> {
    let mut text = String::new();
    let mut set = 0;
    for line in sample.lines() {
        let own = LISTEN
            .iter()
            .find(|(key, _)| line.starts_with(&format!("#{key} = ")));
        match own {
            Some((key, value)) => {
                set += 1;
                text.push_str(&format!("{key} = \"{value}\"\n"));
            }
            None => text.push_str(&format!("{line}\n")),
        }
    }
    if set == LISTEN.len() {
        Ok(text)
    } else {
        Err(Failure::new(
            "`config sample` lacks a key of those that say where to listen",
        ))
    }
}

/// Writes one file and the directories above it with modes that no umask changes.
pub(crate) fn write(path: &Path, mode: u32, bytes: &[u8]) -> Result<(), Failure> {
    use std::os::unix::fs::PermissionsExt as _;
    let fault = |error: std::io::Error| {
        Failure::new(format!("{} cannot be written: {error}", path.display()))
    };
    let mut missing: Vec<&Path> = path
        .ancestors()
        .skip(1)
        .take_while(|p| !p.exists())
        .collect();
    while let Some(folder) = missing.pop() {
        fs::create_dir(folder).map_err(fault)?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).map_err(fault)?;
    }
    fs::write(path, bytes).map_err(fault)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(fault)
}

/// What the program prints, told nothing by the environment of whoever builds.
fn asked(binary: &Path, words: &[&str]) -> Result<String, Failure> {
    let mut command = Program::named(binary).into_command();
    command
        .args(words)
        .env_clear()
        .env("LC_ALL", "C")
        .env("HOME", "/nonexistent")
        .env("FARDEL_CONFIG", "/nonexistent/fardel.toml");
    let line = words.join(" ");
    let output = command
        .output()
        .map_err(|error| Failure::new(format!("fardel {line} cannot be started: {error}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Failure::new(format!(
        "fardel {line} ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path)
        .map_err(|error| Failure::new(format!("{} cannot be read: {error}", path.display())))
}

/// The file compressed as hard as it goes, without name and time.
pub(crate) fn gzip(path: &Path) -> Result<Vec<u8>, Failure> {
    let output = Program::named("gzip")
        .words("-9nc")
        .argument(path)
        .into_command()
        .output()
        .map_err(|error| Failure::new(format!("gzip cannot be started: {error}")))?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(Failure::new(format!("gzip ended with {}", output.status)))
    }
}

/// `SOURCE_DATE_EPOCH` of the environment, else the time of the last commit.
fn epoch() -> Result<u64, Failure> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => Program::named("git")
            .words("log -1 --format=%ct")
            .output()?,
    };
    text.trim()
        .parse()
        .map_err(|_| Failure::new(format!("{:?} is no time in seconds", text.trim())))
}

/// A folder for half-made files, removed at the end.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(what: &str) -> Result<Self, Failure> {
        let folder =
            std::env::temp_dir().join(format!("fardel-package-{what}-{}", std::process::id()));
        // A run that was killed may have left one with our number.
        if folder.exists() {
            fs::remove_dir_all(&folder)
                .map_err(|e| Failure::new(format!("{} stays behind: {e}", folder.display())))?;
        }
        fs::create_dir_all(&folder)
            .map_err(|e| Failure::new(format!("{} cannot be made: {e}", folder.display())))?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            println!("{} stays behind: {error}", self.0.display());
        }
    }
}
