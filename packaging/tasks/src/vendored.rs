//! What is inside the product and does not come from cargo: the browser's files, by
//! `web/vendor/VENDOR.toml`, and the C and Rust libraries that every static binary carries.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::failure::Failure;
use crate::packages::Linked;
use crate::program::Program;

/// Where the browser's files lie.
pub(crate) const FOLDER: &str = "web/vendor";

/// One thing that a person made elsewhere and the console brings along.
#[derive(Debug, Deserialize)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) licence: String,
    /// File of its licence, below the folder.
    pub(crate) text: String,
    pub(crate) file: Vec<VendoredFile>,
}

/// One file of it.
#[derive(Debug, Deserialize)]
pub(crate) struct VendoredFile {
    /// Below the folder.
    pub(crate) path: String,
    pub(crate) sha256: String,
}

#[derive(Deserialize)]
struct List {
    part: Vec<Part>,
}

/// Everything for browsers, as the list says.
pub(crate) fn parts() -> Result<Vec<Part>, Failure> {
    let path = Path::new(FOLDER).join("VENDOR.toml");
    let fault = |error: &dyn std::fmt::Display| {
        Failure::new(format!("{} cannot be read: {error}", path.display()))
    };
    let text = fs::read_to_string(&path).map_err(|error| fault(&error))?;
    let list: List = toml::from_str(&text).map_err(|error| fault(&error))?;
    Ok(list.part)
}

/// One library that is linked without being a package of cargo's.
pub(crate) struct Library {
    pub(crate) name: &'static str,
    pub(crate) version: String,
    /// SPDX expression.
    pub(crate) licence: &'static str,
    /// What its licence asks to be told.
    pub(crate) notice: &'static str,
}

/// C sources inside packages of cargo's, Rust's own library, and the machine's static C library.
pub(crate) fn libraries(linked: &[Linked]) -> Result<Vec<Library>, Failure> {
    let package = |name: &str| {
        linked
            .iter()
            .find(|package| package.name == name)
            .ok_or_else(|| Failure::new(format!("{name} is no longer linked; see vendored.rs")))
    };
    let sqlite = package("libsqlite3-sys")?;
    let header = sqlite.folder.join("sqlite3/sqlite3.h");
    let header = fs::read_to_string(&header)
        .map_err(|error| Failure::new(format!("{} cannot be read: {error}", header.display())))?;
    let sqlite = header
        .lines()
        .find_map(|line| line.strip_prefix("#define SQLITE_VERSION "))
        .map(|version| version.trim().trim_matches('"').to_owned())
        .ok_or_else(|| Failure::new("sqlite3.h names no version"))?;
    // `2.0.16+zstd.1.5.7`
    let zstd = package("zstd-sys")?;
    let zstd = zstd.version.rsplit("zstd.").next().unwrap_or_default();
    let rust = Program::named("rustc").words("--version").output()?;
    let rust = rust.split_whitespace().nth(1).unwrap_or_default();
    let libc = Program::named("ldd").words("--version").output()?;
    let libc = libc
        .lines()
        .next()
        .and_then(|line| line.rsplit(' ').next())
        .unwrap_or_default();
    let gcc = Program::named("cc").words("-dumpfullversion").output()?;
    Ok(vec![
        Library {
            name: "sqlite",
            version: sqlite,
            licence: "blessing",
            notice: "SQLite is in the public domain.",
        },
        Library {
            name: "zstd",
            version: zstd.to_owned(),
            licence: "BSD-3-Clause",
            notice: "Copyright (c) Meta Platforms, Inc. and affiliates; its text is among those below.",
        },
        Library {
            name: "rust-std",
            version: rust.to_owned(),
            licence: "MIT OR Apache-2.0",
            notice: "Copyright (c) The Rust Project Contributors.",
        },
        Library {
            name: "glibc",
            version: libc.to_owned(),
            licence: "LGPL-2.1-or-later",
            notice: "Copyright (C) Free Software Foundation, Inc. Linked statically: the sources of\n    \
                     fardel are free, so anybody can link it anew against another glibc.\n    \
                     The licence: /usr/share/common-licenses/LGPL-2.1",
        },
        Library {
            name: "libgcc",
            version: gcc.trim().to_owned(),
            licence: "GPL-3.0-or-later WITH GCC-exception-3.1",
            notice: "Copyright (C) Free Software Foundation, Inc., with the runtime library exception.\n    \
                     The licence: /usr/share/common-licenses/GPL-3",
        },
    ])
}
