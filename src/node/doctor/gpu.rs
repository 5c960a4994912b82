//! Checks of the machine's GPUs and other accelerators, as the driver and the bus tell them. Grants none.

use std::path::Path;
use std::time::Duration;

use rules::doctor::DoctorCheck;

/// Cards of NVIDIA's: what the kernel lists, and what the driver says of them to the same helper that a
/// server asks.
pub(super) fn cards(root: &Path) -> DoctorCheck {
    let cards = crate::gpu::driver::cards(root).len();
    let on_the_bus = std::fs::read_dir("/sys/bus/pci/devices")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|device| {
            let read = |name| std::fs::read_to_string(device.path().join(name)).unwrap_or_default();
            read("vendor").trim() == "0x10de" && read("class").starts_with("0x03")
        })
        .count();
    match (cards, on_the_bus) {
        (0, 0) => DoctorCheck::ok("gpu", "No GPU; sessions share processor and memory."),
        (0, n) => DoctorCheck::warn(
            "gpu",
            format!("{n} GPU(s) on the bus, but no driver is loaded."),
            "Install the vendor's driver (apt install nvidia-driver) and restart.",
        ),
        _ => asked(root),
    }
}

/// What the driver says now. Leaves nothing behind.
fn asked(root: &Path) -> DoctorCheck {
    use crate::gpu::monitor::{DeviceMonitor, MonitorConfig};
    use crate::gpu::probe::ProbeTimeouts;
    use rules::devices::Health;
    const ID: &str = "gpu";
    let place = std::env::temp_dir().join(format!("fardel-doctor-{}", std::process::id()));
    let boot = rules::names::BootId(Default::default());
    let monitor = DeviceMonitor::open(MonitorConfig {
        // A user waits for the answer.
        patience: ProbeTimeouts {
            first: Duration::from_secs(10),
            later: Duration::from_secs(5),
        },
        ..MonitorConfig::new(root, &place, boot)
    });
    monitor.look();
    let seen = monitor.seen();
    let _ = std::fs::remove_dir_all(&place);
    if let Some(problem) = seen.problems.first() {
        return DoctorCheck::warn(
            ID,
            problem.text.clone(),
            "See what `nvidia-smi` says; where it hangs as well, restart the machine. The helper that asks the \
             driver needs glibc 2.34 or newer; on an older system nvidia-smi has to be installed.",
        );
    }
    let said = |health: &Health| match health {
        Health::Unknown => Some("it does not answer".to_owned()),
        Health::Well => None,
        Health::Worn { text } | Health::Failing { text } => Some(text.clone()),
    };
    let ill = seen.devices.iter().find_map(|device| {
        let why = said(&device.health)?;
        Some(format!("GPU {} ({}): {why}", device.index, device.model))
    });
    match ill {
        Some(ill) => DoctorCheck::warn(
            ID,
            format!("{}.", ill.trim_end_matches('.')),
            "Cordon it, end what runs on it, and restart the machine; where it comes back, replace it.",
        ),
        None => {
            let list: Vec<String> = seen
                .devices
                .iter()
                .map(|device| format!("{} with {}", device.model, device.memory))
                .collect();
            DoctorCheck::ok(ID, format!("The driver answers for {}.", list.join(", ")))
        }
    }
}

/// Devices of other families. What their rows say was tried on made-up trees only, so no more is claimed.
pub(super) fn accelerators(root: &Path) -> DoctorCheck {
    const ID: &str = "accelerators";
    let (others, left) = crate::gpu::accelerators::others(root);
    if let Some(left) = left.first() {
        return DoctorCheck::warn(
            ID,
            format!("{} is left out: {}.", left.what, left.why),
            "Look for a newer description by the vendor, or remove the file.",
        );
    }
    if others.is_empty() {
        return DoctorCheck::ok(ID, "No accelerator of another family.");
    }
    let list: Vec<String> = others
        .iter()
        .map(|other| format!("{} x {}", other.number, other.family))
        .collect();
    DoctorCheck::warn(
        ID,
        format!(
            "Found {}: discovery tested, never run on hardware.",
            list.join(", ")
        ),
        "Sessions cannot have them yet; nothing has to be done.",
    )
}
