//! Checks of the machine's GPUs and other accelerators, as the driver and the bus tell them. Grants none.

use std::path::Path;
use std::time::Duration;

use rules::checks;
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
        (0, 0) => checks::gpu_none(),
        (0, n) => checks::gpu_driver_missing(n),
        _ => asked(root),
    }
}

/// What the driver says now. Leaves nothing behind.
fn asked(root: &Path) -> DoctorCheck {
    use crate::gpu::monitor::{DeviceMonitor, MonitorConfig};
    use crate::gpu::probe::ProbeTimeouts;
    use rules::devices::Health;
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
        return checks::gpu_driver_silent(&problem.text);
    }
    let said = |health: &Health| match health {
        Health::Unknown => Some("it does not answer".to_owned()),
        Health::Well => None,
        Health::Worn { text } | Health::Failing { text } => Some(text.clone()),
    };
    let ill = seen.devices.iter().find_map(|device| {
        let why = said(&device.health)?;
        Some((device.index, &device.model, why))
    });
    match ill {
        Some((index, model, why)) => checks::gpu_unwell(index, model, why.trim_end_matches('.')),
        None => {
            let list: Vec<String> = seen
                .devices
                .iter()
                .map(|device| format!("{} with {}", device.model, device.memory))
                .collect();
            checks::gpu_well(list.join(", "))
        }
    }
}

/// Devices of other families. What their rows say was tried on made-up trees only, so no more is claimed.
pub(super) fn accelerators(root: &Path) -> DoctorCheck {
    let (others, left) = crate::gpu::accelerators::others(root);
    if let Some(left) = left.first() {
        return checks::accelerators_left_out(&left.what, &left.why);
    }
    if others.is_empty() {
        return checks::accelerators_none();
    }
    let list: Vec<String> = others
        .iter()
        .map(|other| format!("{} x {}", other.number, other.family))
        .collect();
    checks::accelerators_found(list.join(", "))
}
