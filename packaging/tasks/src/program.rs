//! Starts other programs with a list of arguments, never through a shell, and finds what cargo built.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::Failure;

/// A program to be run once.
pub(crate) struct Program {
    name: OsString,
    command: Command,
}

impl Program {
    pub(crate) fn named(name: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(name.as_ref());
        command.stdin(Stdio::null());
        Self {
            name: name.as_ref().to_owned(),
            command,
        }
    }

    /// The cargo that runs us, without what it says to us of our own package: `ring`'s build script looks at these
    /// variables, and where they differ it and the half of the product that stands on it are compiled again.
    pub(crate) fn cargo() -> Self {
        let mut cargo = Self::named(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        for (name, _) in std::env::vars_os() {
            if is_of_our_package(&name) {
                cargo.command.env_remove(name);
            }
        }
        cargo
    }

    /// Arguments separated by blanks, for those that have none inside.
    pub(crate) fn words(mut self, words: &str) -> Self {
        self.command.args(words.split_whitespace());
        self
    }

    pub(crate) fn argument(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn inside(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// What it says goes into this file and not to our own output.
    pub(crate) fn writing(mut self, file: File) -> Self {
        self.command.stdout(file);
        self
    }

    /// Runs it with our own output; fails unless it exits with 0.
    pub(crate) fn run(mut self) -> Result<(), Failure> {
        let status = self
            .command
            .status()
            .map_err(|error| self.cannot_start(&error))?;
        if status.success() {
            Ok(())
        } else {
            Err(Failure::new(format!(
                "{} ended with {status}",
                self.name.to_string_lossy()
            )))
        }
    }

    /// Runs it and gives what it wrote to standard output; fails unless it exits with 0, and then
    /// says what it wrote to standard error.
    pub(crate) fn output(mut self) -> Result<String, Failure> {
        let output = self
            .command
            .output()
            .map_err(|error| self.cannot_start(&error))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(Failure::new(format!(
            "{} ended with {}: {}",
            self.name.to_string_lossy(),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim(),
        )))
    }

    /// Runs it and gives what it wrote to standard output, however it ended.
    pub(crate) fn said(mut self) -> Result<String, Failure> {
        let output = self
            .command
            .output()
            .map_err(|error| self.cannot_start(&error))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The command itself, for a caller that has to watch its child.
    pub(crate) fn into_command(self) -> Command {
        self.command
    }

    fn cannot_start(&self, error: &std::io::Error) -> Failure {
        Failure::new(format!(
            "{} cannot be started: {error}",
            self.name.to_string_lossy()
        ))
    }
}

fn is_of_our_package(variable: &OsStr) -> bool {
    let name = variable.as_encoded_bytes();
    name.starts_with(b"CARGO_PKG_") || name.starts_with(b"CARGO_MANIFEST_")
}

/// Whether a program of this name lies on the search path.
pub(crate) fn installed(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// Whether we run as root.
pub(crate) fn is_root() -> bool {
    Program::named("id")
        .words("-u")
        .output()
        .is_ok_and(|uid| uid.trim() == "0")
}

/// The `fardel` that cargo built in a profile's folder.
pub(crate) fn built(profile: &str) -> Result<PathBuf, Failure> {
    Ok(target_directory()?
        .join("x86_64-unknown-linux-gnu")
        .join(profile)
        .join("fardel"))
}

/// Where cargo puts what it builds.
pub(crate) fn target_directory() -> Result<PathBuf, Failure> {
    let metadata = metadata()?;
    let target = metadata["target_directory"]
        .as_str()
        .ok_or_else(|| Failure::new("cargo metadata names no target directory"))?;
    Ok(PathBuf::from(target))
}

/// What `cargo metadata` tells of the workspace and every package it needs.
pub(crate) fn metadata() -> Result<serde_json::Value, Failure> {
    let text = Program::cargo()
        .words("metadata --format-version 1 --locked")
        .output()?;
    serde_json::from_str(&text)
        .map_err(|error| Failure::new(format!("cargo metadata is not JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_hears_nothing_of_our_own_package() {
        let is_removed = |name: &str| is_of_our_package(OsStr::new(name));
        for name in [
            "CARGO_PKG_NAME",
            "CARGO_PKG_VERSION_PRE",
            "CARGO_MANIFEST_DIR",
        ] {
            assert!(is_removed(name), "{name}");
        }
        for name in ["CARGO", "CARGO_HOME", "CARGO_TARGET_DIR"] {
            assert!(!is_removed(name), "{name}");
        }
    }
}
