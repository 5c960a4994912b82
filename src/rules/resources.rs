//! What a session asks for and what a machine has. Shares of a device are whole hundredths.

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;
use crate::units::{Bytes, CpuShare, GpuShare};

/// What one session asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Demand {
    /// Processor time, hundredths of a core inside; a JSON number with at most two decimals.
    pub cpu: CpuShare,
    /// Memory limit, bytes.
    pub memory: Bytes,
    /// Size of /dev/shm, bytes; counts against the memory limit.
    pub shm: Bytes,
    /// Share of devices; 0 where none is wanted.
    #[serde(default)]
    pub gpu: GpuShare,
}

/// Least processor time a session may ask for: one hundredth of a core.
pub const LEAST_CPU: CpuShare = CpuShare(1);
/// Least memory a session may ask for: below 16 MiB a shell does not start.
pub const LEAST_MEMORY: Bytes = Bytes::mib(16);

impl Default for Demand {
    /// One core, 1 GiB, 64 MiB of shared memory, no device.
    fn default() -> Self {
        Self {
            cpu: CpuShare(100),
            memory: Bytes::gib(1),
            shm: Bytes::mib(64),
            gpu: GpuShare::ZERO,
        }
    }
}

impl Demand {
    /// Refuses amounts that are never possible, whatever the machine.
    pub fn check(&self) -> Result<(), Refusal> {
        if self.cpu < LEAST_CPU {
            return Err(Refusal::invalid(
                "cpu.too-small",
                "A session needs at least 0.01 of a core.",
            )
            .at("/resources/cpu")
            .hint("0.5 or 1 would work."));
        }
        if self.memory < LEAST_MEMORY {
            return Err(Refusal::invalid(
                "memory.too-small",
                format!("A session needs at least {LEAST_MEMORY} of memory."),
            )
            .at("/resources/memory")
            .hint("256m or 1g would work."));
        }
        if self.shm > self.memory {
            return Err(Refusal::invalid(
                "shm.too-large",
                format!(
                    "Shared memory ({}) counts against the memory limit ({}).",
                    self.shm, self.memory
                ),
            )
            .at("/resources/shm")
            .hint(format!("At most {} would work.", self.memory)));
        }
        Ok(())
    }
}

/// What a machine offers to sessions, after what it keeps for itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    pub cpu: CpuShare,
    pub memory: Bytes,
    /// One entry a device, in the order of their indexes; empty where there is none.
    pub devices: Vec<Device>,
}

/// One accelerator of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    pub index: u32,
    pub model: String,
    pub memory: Bytes,
}

/// A share of one device, given to one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceShare {
    pub index: u32,
    pub share: GpuShare,
}

/// A sum of demands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    pub cpu: CpuShare,
    pub memory: Bytes,
    /// Hundredths in use, by device index.
    pub devices: std::collections::BTreeMap<u32, GpuShare>,
}

impl Used {
    pub fn add(&mut self, demand: &Demand, devices: &[DeviceShare]) {
        self.cpu = self.cpu + demand.cpu;
        self.memory = self.memory + demand.memory;
        for part in devices {
            let held = self.devices.entry(part.index).or_default();
            *held = *held + part.share;
        }
    }
}
