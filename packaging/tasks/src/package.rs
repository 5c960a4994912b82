//! Holds the finished packages to what they promise: the same bytes twice, nothing needed, nothing that
//! Debian's checker minds, a complete list of parts, and a life from installation to purge in fresh
//! roots without a running systemd.

use std::fs;
use std::path::Path;
use std::time::Instant;

use crate::contents::{SBOM, SETTINGS, Scratch, read};
use crate::deb::{self, DebOptions};
use crate::debian::Root;
use crate::failure::Failure;
use crate::program::{self, Program};
use crate::start::Server;
use crate::{budgets, sbom};

/// Roots in which the package lives a whole life: suite, name, and what it finds there. One has
/// systemd's files, one has not even those; neither runs it.
const ROOTS: [(&str, &str, &str); 2] = [
    ("bookworm", "Debian 12", "systemd"),
    ("trixie", "Debian 13", ""),
];

/// Checks the Debian package as a file.
pub(crate) fn check_deb(binary: &Path) -> Result<(), Failure> {
    let (first, second) = (Scratch::new("first")?, Scratch::new("second")?);
    let package = deb_into(binary, &first)?;
    let again = deb_into(binary, &second)?;
    if read(&package)? != read(&again)? {
        return Err(Failure::new("two runs over one tree gave two packages"));
    }
    println!("two runs gave the same bytes");
    let needs = Program::named("dpkg-deb")
        .words("--field")
        .argument(&package)
        .words("Depends")
        .output()?;
    if !needs.trim().is_empty() {
        return Err(Failure::new(format!("it depends on {}", needs.trim())));
    }
    let opened = second.0.join("opened");
    Program::named("dpkg-deb")
        .words("--extract")
        .argument(&package)
        .argument(&opened)
        .output()?;
    let settings = opened.join(SETTINGS);
    Program::named(opened.join("usr/bin/fardel"))
        .words("config validate")
        .argument(&settings)
        .output()?;
    sbom::check(&read(&opened.join(SBOM))?)?;
    let size = fs::metadata(&package)
        .map_err(|error| Failure::new(format!("{}: {error}", package.display())))?
        .len();
    budgets::check_number("deb_bytes", u128::from(size))?;
    let installed = Program::named("dpkg-deb")
        .words("--field")
        .argument(&package)
        .words("Installed-Size")
        .output()?;
    println!("installed: {} KiB", installed.trim());
    if !program::installed("lintian") {
        return crate::leave_out("lintian", "it is not installed");
    }
    let told = Program::named("lintian")
        .words("--allow-root --fail-on error,warning --no-tag-display-limit")
        .argument(&package)
        .into_command()
        .output()
        .map_err(|error| Failure::new(format!("lintian cannot be started: {error}")))?;
    print!("{}", String::from_utf8_lossy(&told.stdout));
    if told.status.success() {
        println!("lintian: no error, no warning");
        Ok(())
    } else {
        Err(Failure::new("lintian minds something"))
    }
}

fn deb_into(binary: &Path, folder: &Scratch) -> Result<std::path::PathBuf, Failure> {
    let options = DebOptions {
        into: Some(folder.0.clone()),
        ..DebOptions::default()
    };
    deb::make(binary, &options)
}

/// Installs, starts, upgrades, removes and purges it in each root.
pub(crate) fn lives_in_each_root(binary: &Path) -> Result<(), Failure> {
    if !program::is_root() || !program::installed("mmdebstrap") {
        return crate::leave_out("package in Debian roots", "needs root and mmdebstrap");
    }
    let folder = Scratch::new("roots")?;
    let package = deb_into(binary, &folder)?;
    let options = DebOptions {
        version: Some("99.0.0".to_owned()),
        into: Some(folder.0.clone()),
        ..DebOptions::default()
    };
    let newer = deb::make(binary, &options)?;
    crate::leave_out(
        "Ubuntu 22.04 and 24.04",
        "their roots need a mirror of Ubuntu, and the gate has Debian's alone",
    )?;
    for (suite, name, more) in ROOTS {
        match Root::made(suite, more) {
            Ok(root) => life(&root.0, name, !more.is_empty(), &package, &newer)
                .map_err(|failure| Failure::new(format!("{name}: {failure}")))?,
            Err(failure) => {
                crate::leave_out(name, &format!("its root cannot be made here: {failure}"))?;
            }
        }
    }
    Ok(())
}

/// One life. `units`: the root has systemd's files, so units are expected to be enabled.
fn life(root: &Path, name: &str, units: bool, package: &Path, newer: &Path) -> Result<(), Failure> {
    let inside = |words: &str| {
        Program::named("chroot")
            .argument(root)
            .words(words)
            .output()
    };
    let is_there = |path: &str| root.join(path).symlink_metadata().is_ok();
    let expect = |what: &str, found: bool| {
        if found {
            Ok(())
        } else {
            Err(Failure::new(format!("not so: {what}")))
        }
    };
    for (file, to) in [(package, "first.deb"), (newer, "newer.deb")] {
        fs::copy(file, root.join(to))
            .map_err(|error| Failure::new(format!("{to} cannot be copied: {error}")))?;
    }
    let wants = "etc/systemd/system/multi-user.target.wants/fardel.service";

    let told = inside("dpkg --install first.deb")?;
    expect(
        "the postinst says what comes next",
        told.contains("fardel serve"),
    )?;
    let version = inside("fardel --version")?;
    expect("it starts", version.starts_with("fardel "))?;
    if units {
        expect("its units are enabled", is_there(wants))?;
        expect("its state has a place", is_there("var/lib/fardel"))?;
        inside("getent group fardel")?;
        inside(
            "systemd-analyze verify --man=no fardel.service fardel-sessions.service fardel-relay.service",
        )?;
    }
    let begun = Instant::now();
    let server = Server::start_inside(root)?;
    server.wait_for("/healthz", begun)?;
    server.end()?;
    expect(
        "it kept a catalog",
        is_there("var/lib/fardel/catalog.sqlite"),
    )?;

    let settings = root.join(SETTINGS);
    let mut edited = String::from_utf8_lossy(&read(&settings)?).into_owned();
    edited.push_str("keep_days = 7\n");
    fs::write(&settings, &edited)
        .map_err(|error| Failure::new(format!("{SETTINGS} cannot be written: {error}")))?;
    // Without a terminal dpkg ends here if it wants to ask.
    inside("dpkg --install newer.deb")?;
    expect(
        "an edited settings file stays",
        read(&settings)? == edited.as_bytes(),
    )?;

    inside("dpkg --remove fardel")?;
    expect("the program is gone", !is_there("usr/bin/fardel"))?;
    expect("the settings stay at removal", is_there(SETTINGS))?;
    let told = inside("dpkg --purge fardel")?;
    expect("the settings are gone", !is_there("etc/fardel"))?;
    expect("no unit is left enabled", !is_there(wants))?;
    expect(
        "state outlives a purge",
        is_there("var/lib/fardel/catalog.sqlite"),
    )?;
    expect(
        "purge says how state is deleted",
        told.contains("rm -r --one-file-system /var/lib/fardel"),
    )?;
    println!("{name}: installed, served, upgraded, removed, purged; state is still there");
    Ok(())
}
