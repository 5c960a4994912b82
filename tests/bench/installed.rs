//! What the installed package and the machine's last start tell. Asks the packager and systemd; measures nothing.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

/// Bytes of all files of the installed Debian package; None where this machine has none installed.
pub(super) fn bytes() -> Option<u64> {
    // The packager's own program is asked: where it keeps its lists is its own affair.
    let told = Command::new("dpkg-query")
        .args(["--listfiles", "fardel"])
        .output()
        .ok()?;
    if !told.status.success() {
        return None;
    }
    let list = String::from_utf8_lossy(&told.stdout);
    let sizes = list.lines().filter_map(|path| {
        let file = fs::symlink_metadata(path).ok()?;
        file.is_file().then_some(file.len())
    });
    Some(sizes.sum())
}

/// How long this machine took at its last start until the installed server was ready, as systemd noted it;
/// None where it is not installed, or was not started by that start alone.
pub(super) fn boot() -> Option<Value> {
    let of = |words: &[&str], name: &str| -> Option<u64> {
        let property = format!("--property={name}");
        let told = Command::new("systemctl")
            .args(["show", "--value", &property])
            .args(words)
            .output()
            .ok()?;
        String::from_utf8(told.stdout).ok()?.trim().parse().ok()
    };
    since_boot(
        of(&["fardel.service"], "ActiveEnterTimestampMonotonic")?,
        of(&[], "UserspaceTimestampMonotonic")?,
        of(&[], "FinishTimestampMonotonic")?,
    )
}

/// From microseconds after the kernel began: the server ready, the first process, the start-up done (0:
/// not yet).
fn since_boot(ready: u64, userspace: u64, finished: u64) -> Option<Value> {
    let with_the_machine = ready > 0 && (finished == 0 || ready <= finished);
    with_the_machine.then(|| {
        json!({
            "since_kernel_ms": ready / 1000,
            "since_first_process_ms": ready.saturating_sub(userspace) / 1000,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_counts_only_where_the_machine_made_it() {
        let boot = since_boot(9_500_000, 1_400_000, 9_900_000).expect("with the machine");
        assert_eq!(
            (&boot["since_kernel_ms"], &boot["since_first_process_ms"]),
            (&json!(9500), &json!(8100))
        );
        assert!(since_boot(9_500_000, 1_400_000, 0).is_some());
        // Started again by hand later; never started.
        assert_eq!(since_boot(70_000_000, 1_400_000, 9_900_000), None);
        assert_eq!(since_boot(0, 1_400_000, 9_900_000), None);
    }
}
