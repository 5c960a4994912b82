//! What this machine has for sessions: cores, memory and devices. Reads the kernel's files once; never
//! gives anything away.

use std::fs;

use rules::resources::{Capacity, Device, OtherDevices};
use rules::units::{Bytes, CpuShare};

/// Memory kept back for the system and for fardel itself: a twentieth, at least this much. Less:
/// a full box swaps or kills its own server. More: small boxes have nothing to give.
const MIN_RESERVE: Bytes = Bytes::mib(512);

/// What the machine offers, with the administrator's own bounds where set, those devices, and those others
/// that it has and does not offer.
pub(crate) fn capacity(
    cpu: Option<CpuShare>,
    memory: Option<Bytes>,
    devices: Vec<Device>,
    others: Vec<OtherDevices>,
) -> Capacity {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let cores = CpuShare(u32::try_from(cores * 100).unwrap_or(u32::MAX));
    let total = total_memory();
    let reserve = Bytes((total.0 / 20).max(MIN_RESERVE.0));
    let offered = total.saturating_sub(reserve);
    Capacity {
        cpu: cpu.map_or(cores, |bound| bound.min(cores)),
        memory: memory.map_or(offered, |bound| bound.min(total)),
        devices,
        others,
    }
}

/// All memory of the machine; 0 where the kernel does not say.
fn total_memory() -> Bytes {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .unwrap_or(0);
    Bytes(kib << 10)
}

/// The machine's name, as the kernel has it.
pub(crate) fn machine_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "localhost".into(), |t| t.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_administrators_bound_wins_but_never_exceeds_the_machine() {
        let whole = capacity(None, None, Vec::new(), Vec::new());
        assert!(whole.cpu >= CpuShare(100) && whole.memory > Bytes::ZERO);
        assert_eq!(
            capacity(
                Some(CpuShare(50)),
                Some(Bytes::gib(1)),
                Vec::new(),
                Vec::new()
            )
            .cpu,
            CpuShare(50)
        );
        assert_eq!(
            capacity(Some(CpuShare(9_999_999)), None, Vec::new(), Vec::new()).cpu,
            whole.cpu
        );
    }
}
