//! Shows that one file is enough: no shared library, and a start in the oldest, the present and the
//! newest Debian that we promise.
//!
//! Promise (Installation and console): The product is one file without shared libraries. It starts in Debian
//! 11, 12 and 13.

#[path = "../../hooks.rs"]
mod hooks;

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::program::{self, Program};

const SUITES: [(&str, &str); 3] = [
    ("bullseye", "Debian 11"),
    ("bookworm", "Debian 12"),
    ("trixie", "Debian 13"),
];

/// Asks `ldd`, which is what a customer would ask.
pub(crate) fn is_static(binary: &Path) -> Result<(), Failure> {
    // For a static file ldd speaks on either stream and, depending on its age, ends with 0 or 1.
    let output = Program::named("ldd")
        .argument(binary)
        .into_command()
        .output()
        .map_err(|error| Failure::new(format!("ldd cannot be started: {error}")))?;
    let told = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    println!("ldd: {}", told.trim());
    if told.contains("statically linked") || told.contains("not a dynamic executable") {
        Ok(())
    } else {
        Err(Failure::new("the binary needs shared libraries"))
    }
}

/// Makes a root of each Debian, puts the one file in and starts it there.
pub(crate) fn starts_in_each_root(binary: &Path) -> Result<(), Failure> {
    if !program::is_root() || !program::installed("mmdebstrap") {
        return crate::leave_out("Debian roots", "needs root and mmdebstrap");
    }
    let version = Program::named(binary).words("--version").output()?;
    for (suite, name) in SUITES {
        // The smallest set that has a C library and a shell; the binary needs neither.
        let root = match Root::made(suite, "") {
            Ok(root) => root,
            Err(failure) => {
                crate::leave_out(name, &format!("its root cannot be made here: {failure}"))?;
                continue;
            }
        };
        let placed = root.0.join("fardel");
        fs::copy(binary, &placed).map_err(|error| {
            Failure::new(format!("{} cannot be written: {error}", placed.display()))
        })?;
        let told = Program::named("chroot")
            .argument(&root.0)
            .words("/fardel --version")
            .output()?;
        if told != version {
            return Err(Failure::new(format!(
                "{name}: `--version` says {told:?}, not {version:?}"
            )));
        }
        println!("{name}: {}", told.trim());
        hooks_load(&root.0, name)?;
        helper_runs(&root.0, suite, name)?;
    }
    Ok(())
}

/// Asks a driver that is nothing but a name, by the helper that the one file carries, and expects the
/// library's own complaint. Debian 11 is too old for the helper, and that has to be said: there, a server
/// reads nvidia-smi.
fn helper_runs(root: &Path, suite: &str, name: &str) -> Result<(), Failure> {
    let complaint = match suite {
        "bullseye" => "GLIBC_2.34",
        _ => "undefined symbol: nvmlInit_v2",
    };
    let driver = root.join("driver");
    let write = |path: &str, text: &str| {
        let path = driver.join(path);
        let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
        folder
            .and_then(|()| fs::write(&path, text))
            .map_err(|error| Failure::new(format!("{} cannot be written: {error}", path.display())))
    };
    write(
        "proc/driver/nvidia/version",
        "NVRM version: Module  999.9  made up\n",
    )?;
    write(
        "proc/driver/nvidia/gpus/0000:41:00.0/information",
        "Model: made up\nDevice Minor: 0\n",
    )?;
    write(
        "proc/devices",
        "Character devices:\n195 nvidia\n509 nvidia-uvm\n",
    )?;
    for soname in ["libcuda", "libnvidia-ml"] {
        let hollow = root.join("tmp/nvml_hook/libhollow.so");
        let at = format!("usr/lib64/{soname}.so.999.9");
        write(&at, "")?;
        fs::copy(&hollow, driver.join(&at)).map_err(|error| {
            Failure::new(format!("{} cannot be copied: {error}", hollow.display()))
        })?;
    }
    // It ends with 1 where anything fails, and a bare root fails in many ways.
    let output = Program::named("chroot")
        .argument(root)
        .words("/fardel doctor -o json")
        .variable("FARDEL_DRIVER_ROOT", "/driver")
        .into_command()
        .output()
        .map_err(|error| Failure::new(format!("chroot cannot be started: {error}")))?;
    let told: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| Failure::new(format!("{name}: doctor does not answer: {error}")))?;
    let checks = told["items"].as_array().map_or(&[][..], Vec::as_slice);
    let gpu = checks.iter().find(|check| check["id"] == "gpu");
    let found = gpu.and_then(|check| check["found"].as_str());
    match found {
        Some(found) if found.contains(complaint) => {
            println!("{name}: gpu_probe: {complaint}");
            Ok(())
        }
        found => Err(Failure::new(format!(
            "{name}: of its GPU doctor finds {found:?}, and not {complaint:?}"
        ))),
    }
}

/// Opens each hook by the name that programs use, over a driver that is nothing but a name, with the
/// Perl that every Debian has.
fn hooks_load(root: &Path, name: &str) -> Result<(), Failure> {
    const OPEN: &str = "use DynaLoader; my ($library, @names) = @ARGV; \
        my $opened = DynaLoader::dl_load_file($library, 0) or die DynaLoader::dl_error(); \
        for (@names) { DynaLoader::dl_find_symbol($opened, $_) or die \"no $_\" } \
        print \"$library loads\"";
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let target = "x86_64-unknown-linux-gnu";
    for (package, soname, symbol) in [
        ("cuda_hook", "libcuda.so.1", "cuLaunchKernel"),
        ("nvml_hook", "libnvidia-ml.so.1", "nvmlDeviceGetMemoryInfo"),
    ] {
        let work = root.join("tmp").join(package);
        let folder = Path::new("src/guest").join(package);
        let made = root.join("usr/lib/x86_64-linux-gnu").join(soname);
        let library = hooks::Library {
            root: &folder.join("hook.rs"),
            names: &folder.join("names.txt"),
            soname,
            made: &made,
        };
        hooks::build(&compiler, target, &library, &work).map_err(Failure::new)?;
        let hollow =
            hooks::hollow_driver(&compiler, target, &work, soname).map_err(Failure::new)?;
        let real = root.join(hooks::real(soname).trim_start_matches('/'));
        let placed = real.parent().map_or(Ok(()), fs::create_dir_all);
        placed
            .and_then(|()| fs::copy(&hollow, &real))
            .map_err(|error| {
                Failure::new(format!("{} cannot be written: {error}", real.display()))
            })?;
        let told = Program::named("chroot")
            .argument(root)
            .words("perl -e")
            .argument(OPEN)
            .argument(soname)
            .argument(symbol)
            .output()?;
        println!("{name}: {told}");
    }
    Ok(())
}

/// A root file system in a temporary folder, removed at the end.
pub(crate) struct Root(pub(crate) PathBuf);

impl Root {
    /// The essential packages of a suite, and those of `more`, separated by commas.
    pub(crate) fn made(suite: &str, more: &str) -> Result<Self, Failure> {
        let name = format!("fardel-gate-{suite}-{}", std::process::id());
        // Before it is made, so that a half-made one goes too.
        let root = Self(std::env::temp_dir().join(name));
        let mut make = Program::named("mmdebstrap")
            .words("--quiet --mode=root --variant=essential --dpkgopt=force-unsafe-io");
        if !more.is_empty() {
            make = make.argument(format!("--include={more}"));
        }
        make.words(suite).argument(&root.0).output()?;
        Ok(root)
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        if self.0.exists()
            && let Err(error) = fs::remove_dir_all(&self.0)
        {
            println!("{} stays behind: {error}", self.0.display());
        }
    }
}
