//! What a session asks for and what a machine has. Shares of a device are whole hundredths.

use serde::{Deserialize, Serialize};

use crate::devices::{DeviceAllocation, Health, Hold, MigPart, MigProfile};
use crate::refusal::Refusal;
use crate::units::{Bytes, CpuShare, GpuShare};

/// What one session asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Demand {
    /// Processor time, hundredths of a core inside; a JSON number with at most two decimals.
    pub cpu: CpuShare,
    /// Memory limit, bytes.
    pub memory: Bytes,
    /// Size of /dev/shm, bytes; counts against the memory limit.
    pub shm: Bytes,
    /// Share of devices, 2.5 being two whole ones and half of a third; 0 where none is wanted.
    #[serde(default)]
    pub gpu: GpuShare,
    /// Memory of the fraction, where it is not to be the same part of the card as the share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_memory: Option<Bytes>,
    /// One hardware partition of this size, instead of a share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<MigProfile>,
}

/// Least processor time a session may ask for: one hundredth of a core.
pub const MIN_CPU: CpuShare = CpuShare(1);
/// Least memory a session may ask for: below 16 MiB a shell does not start.
pub const MIN_MEMORY: Bytes = Bytes::mib(16);

impl Default for Demand {
    /// One core, 1 GiB, 64 MiB of shared memory, no device.
    fn default() -> Self {
        Self {
            cpu: CpuShare(100),
            memory: Bytes::gib(1),
            shm: Bytes::mib(64),
            gpu: GpuShare::ZERO,
            gpu_memory: None,
            mig: None,
        }
    }
}

impl Demand {
    /// Whether it asks for any of a device.
    pub fn wants_device(&self) -> bool {
        self.gpu > GpuShare::ZERO || self.mig.is_some()
    }

    /// Refuses amounts that are possible on no machine.
    pub fn check(&self) -> Result<(), Refusal> {
        if self.cpu < MIN_CPU {
            return Err(Refusal::invalid(
                "cpu.too-small",
                "A session needs at least 0.01 of a core.",
            )
            .at("/resources/cpu")
            .hint("0.5 or 1 would work."));
        }
        if self.memory < MIN_MEMORY {
            return Err(Refusal::invalid(
                "memory.too-small",
                format!("A session needs at least {MIN_MEMORY} of memory."),
            )
            .with("least", MIN_MEMORY)
            .at("/resources/memory")
            .hint("256m or 1g would work."));
        }
        let (shm, memory) = (self.shm, self.memory);
        if shm > memory {
            return Err(Refusal::invalid(
                "shm.too-large",
                format!("Shared memory ({shm}) counts against the memory limit ({memory})."),
            )
            .with("shm", shm)
            .with("memory", memory)
            .at("/resources/shm")
            .hint(format!("At most {memory} would work.")));
        }
        crate::devices::check(self)
    }
}

/// What a machine offers to sessions, after what it keeps for itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    pub cpu: CpuShare,
    pub memory: Bytes,
    /// One entry a device, in the order of their indexes; empty where there is none.
    pub devices: Vec<Device>,
    /// Accelerators of families that sessions cannot have, by name of the family; empty where none was found.
    #[serde(default)]
    pub others: Vec<OtherDevices>,
}

/// Accelerators that were found on a machine and are not given to sessions: how they are found was tried on
/// made-up trees, never on hardware.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherDevices {
    /// The family's usual name, or the kind in the vendor's own description.
    pub family: String,
    pub number: u32,
}

/// One accelerator of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    pub index: u32,
    pub model: String,
    pub memory: Bytes,
    /// Its own name for itself, the same after every restart; empty in reports of older nodes.
    #[serde(default)]
    pub uuid: String,
    /// Multiprocessors; 0 where unknown.
    #[serde(default)]
    pub sms: u32,
    /// The socket of the machine that it hangs on.
    #[serde(default)]
    pub numa: Option<u32>,
    /// Devices of one number reach each other without crossing the machine's memory.
    #[serde(default)]
    pub link: Option<u32>,
    #[serde(default)]
    pub health: Health,
    /// It does not exist: sessions that have a share of it get no device.
    #[serde(default)]
    pub simulated: bool,
    /// Partitions that it is cut into; empty where slices of its time are given.
    #[serde(default)]
    pub mig: Vec<MigPart>,
    /// The version of the driver that runs it; empty for a simulated one.
    #[serde(default)]
    pub driver: String,
    /// Who holds sessions to their parts of its memory.
    #[serde(default)]
    pub hold: Hold,
}

impl Device {
    /// A device of which nothing more is known.
    pub fn new(index: u32, model: impl Into<String>) -> Self {
        Self {
            index,
            model: model.into(),
            memory: Bytes::ZERO,
            uuid: String::new(),
            sms: 0,
            numa: None,
            link: None,
            health: Health::Unknown,
            simulated: false,
            mig: Vec::new(),
            driver: String::new(),
            hold: Hold::Nobody,
        }
    }
}

/// A share of one device, given to one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceShare {
    pub index: u32,
    pub share: GpuShare,
    /// Memory of it, bytes.
    #[serde(default)]
    pub memory: Bytes,
    /// The number of the partition, where one was given; its share is then what its engines are of the
    /// whole device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<u32>,
    /// The device does not exist.
    #[serde(default)]
    pub simulated: bool,
}

/// A sum of demands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    pub cpu: CpuShare,
    pub memory: Bytes,
    /// What is given, by device index.
    pub devices: std::collections::BTreeMap<u32, DeviceAllocation>,
}

impl Used {
    pub fn add(&mut self, demand: &Demand, devices: &[DeviceShare]) {
        self.cpu = self.cpu + demand.cpu;
        self.memory = self.memory + demand.memory;
        for part in devices {
            self.devices.entry(part.index).or_default().add(part);
        }
    }
}
