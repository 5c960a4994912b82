//! Builds `gpu_probe`, the helper that loads the vendor's management library, by a second cargo with a
//! target folder of its own: it has packages of its own and must be dynamic, while everything around it
//! is static. Called by the node's build script. Takes no package that `Cargo.lock` does not name, and
//! no setting of the outer build but its compiler and target.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Compiles the helper below `out` and gives its file. Costs about twenty processor seconds the first
/// time, a fraction of one when nothing changed.
pub(crate) fn build(root: &Path, out: &Path, target: &str) -> Result<PathBuf, String> {
    let work = out.join("gpu_probe.work");
    // What the outer cargo has fetched is enough as a rule. Where it builds one room alone it has not
    // fetched this member's packages, and they come the way its own came.
    let built = match cargo(root, &work, out, target, &["--offline"])? {
        built if built.status.success() => built,
        _ => cargo(root, &work, out, target, &[])?,
    };
    if !built.status.success() {
        return Err(format!(
            "gpu_probe did not compile:\n{}",
            String::from_utf8_lossy(&built.stderr)
        ));
    }
    Ok(work.join(target).join("probe/gpu_probe"))
}

fn cargo(
    root: &Path,
    work: &Path,
    out: &Path,
    target: &str,
    more: &[&str],
) -> Result<Output, String> {
    let cargo = env::var_os("CARGO").ok_or("cargo does not name itself")?;
    let mut command = Command::new(cargo);
    // A checker that stands in for the compiler, and flags for the product, are not meant for this.
    for name in [
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTFLAGS",
        "CARGO_BUILD_RUSTFLAGS",
        "CARGO_BUILD_TARGET",
        "CARGO_TARGET_DIR",
        "CARGO_BUILD_BUILD_DIR",
    ] {
        command.env_remove(name);
    }
    // Where somebody compiled is nobody's business, and the same source gives the same bytes.
    let hidden = [
        (root.to_owned(), "src"),
        (out.to_owned(), "out"),
        (cargo_home(), "packages"),
    ];
    let mut flags = vec![
        OsString::from("-Ctarget-feature=-crt-static"),
        OsString::from("-Clink-arg=-Wl,--build-id=none,-z,noexecstack"),
    ];
    for (place, name) in hidden {
        let mut flag = OsString::from("--remap-path-prefix=");
        flag.push(place);
        flag.push(format!("={name}"));
        flags.push(flag);
    }
    command
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f".as_ref()))
        .args(["build", "--quiet", "--locked", "--profile", "probe"])
        .args(["--package", "gpu_probe", "--target", target])
        .args(more)
        .arg("--manifest-path")
        .arg(root.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(work)
        .output()
        .map_err(|error| format!("a second cargo cannot be started for gpu_probe: {error}"))
}

fn cargo_home() -> PathBuf {
    match (env::var_os("CARGO_HOME"), env::var_os("HOME")) {
        (Some(home), _) => PathBuf::from(home),
        (None, home) => PathBuf::from(home.unwrap_or_default()).join(".cargo"),
    }
}
