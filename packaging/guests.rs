//! Builds the guests (programs of ours that run inside containers) and hands them to `node`.
//! One plain `cargo build` gives one whole binary: the same `rustc` compiles each guest here, and
//! the room embeds the result. Only `probe.rs` calls a second cargo; nothing else has packages.

#[path = "hooks.rs"]
mod hooks;
#[path = "probe.rs"]
mod probe;

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    let room = PathBuf::from(
        env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets the manifest directory"),
    );
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets the output directory"));
    let rustc = env::var_os("RUSTC").expect("cargo names its compiler");
    let target = env::var("TARGET").expect("cargo names its target");
    let source = room.join("../guest/init/init.rs");
    println!("cargo::rerun-if-changed={}", source.display());
    println!("cargo::rerun-if-changed=../../packaging/guests.rs");

    // No libc, no start files, no relocations: the kernel maps the file and jumps to `_start`.
    let built = Command::new(&rustc)
        .arg(&source)
        .args([
            "--edition",
            "2024",
            "--crate-type",
            "bin",
            "--crate-name",
            "init",
        ])
        .args(["--target", &target])
        // Where somebody compiled is nobody's business, and the same source gives the same bytes.
        .arg(format!("--remap-path-prefix={}/..=src", room.display()))
        .args([
            "-C",
            "opt-level=s",
            "-C",
            "panic=abort",
            "-C",
            "strip=symbols",
        ])
        .args([
            "-C",
            "relocation-model=static",
            "-C",
            "target-feature=+crt-static",
        ])
        .args([
            "-C",
            "link-arg=-nostartfiles",
            "-C",
            "link-arg=-nostdlib",
            "-C",
            "link-arg=-static",
        ])
        .args([
            "-C",
            "link-arg=-Wl,--build-id=none,-z,noexecstack,-z,norelro",
        ])
        .arg("-o")
        .arg(out.join("init"))
        .status();
    match built {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("the container's first process did not compile: {status}"),
        Err(error) => {
            panic!("the compiler could not be started for the container's first process: {error}")
        }
    }

    let tests = room.join("../guest/gpu_test");
    println!("cargo::rerun-if-changed={}", tests.display());
    // As dynamic as the programs that people bring: it looks for the driver as they do.
    let built = Command::new(&rustc)
        .arg(tests.join("main.rs"))
        .args(["--edition", "2024", "--crate-name", "gpu_test"])
        .args(["--target", &target])
        .arg(format!("--remap-path-prefix={}/..=src", room.display()))
        .args(["-C", "opt-level=s", "-C", "panic=abort", "-C", "lto=fat"])
        .args(["-C", "codegen-units=1", "-C", "strip=symbols"])
        .args(["-C", "target-feature=-crt-static"])
        .args(["-C", "link-arg=-Wl,--build-id=none,-z,noexecstack"])
        .arg("-o")
        .arg(out.join("gpu_test"))
        .output();
    match built {
        Ok(output) if output.status.success() => {}
        Ok(output) => panic!(
            "the cards' self-test did not compile:\n{}",
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => panic!("the compiler could not be started for the cards' self-test: {error}"),
    }

    let files = room.join("../guest/files");
    println!("cargo::rerun-if-changed={}", files.display());
    // Static: it runs in images that have no C library, or another one.
    let built = Command::new(&rustc)
        .arg(files.join("main.rs"))
        .args(["--edition", "2024", "--crate-name", "files"])
        .args(["--target", &target])
        .arg(format!("--remap-path-prefix={}/..=src", room.display()))
        .args(["-C", "opt-level=s", "-C", "panic=abort", "-C", "lto=fat"])
        .args(["-C", "codegen-units=1", "-C", "strip=symbols"])
        .args(["-C", "target-feature=+crt-static"])
        .args(["-C", "relocation-model=static"])
        .args(["-C", "link-arg=-Wl,--build-id=none,-z,noexecstack"])
        .arg("-o")
        .arg(out.join("files"))
        .output();
    match built {
        Ok(output) if output.status.success() => {}
        Ok(output) => panic!(
            "the program that serves files did not compile:\n{}",
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => {
            panic!("the compiler could not be started for the program that serves files: {error}")
        }
    }

    println!("cargo::rerun-if-changed=../../packaging/hooks.rs");
    for (name, soname) in [
        ("cuda_hook", "libcuda.so.1"),
        ("nvml_hook", "libnvidia-ml.so.1"),
    ] {
        let folder = room.join("../guest").join(name);
        println!("cargo::rerun-if-changed={}", folder.display());
        let hook = hooks::Library {
            root: &folder.join("hook.rs"),
            names: &folder.join("names.txt"),
            soname,
            made: &out.join(format!("{name}.so")),
        };
        let work = out.join(format!("{name}.work"));
        if let Err(fault) = hooks::build(&rustc, &target, &hook, &work) {
            panic!("{fault}");
        }
    }
    println!("cargo::rerun-if-changed=../../packaging/probe.rs");
    println!("cargo::rerun-if-changed=../../Cargo.lock");
    println!("cargo::rerun-if-changed=../guest/gpu_probe");
    let root = room.join("../..");
    let root = root.canonicalize().unwrap_or(root);
    let made = probe::build(&root, &out, &target).unwrap_or_else(|fault| panic!("{fault}"));
    std::fs::copy(&made, out.join("gpu_probe")).expect("the output directory is writable");
}
