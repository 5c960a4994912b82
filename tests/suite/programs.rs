//! Programs that a test lays down and then runs.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Lays a program there with mode 755. Another process writes it: a fork of another test would hold a file that this
/// process wrote open for writing, and the kernel runs no such program (ETXTBSY).
pub(crate) fn install(path: &Path, program: &[u8]) {
    let draft = path.with_extension("draft");
    fs::write(&draft, program).expect("written");
    let copied = Command::new("install")
        .args(["-m", "755"])
        .args([draft.as_path(), path])
        .status();
    assert!(copied.expect("it runs").success());
    fs::remove_file(&draft).expect("it was written");
}
