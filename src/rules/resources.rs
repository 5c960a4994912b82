//! What a session asks for and what a machine has. Shares of a device are whole hundredths.

use serde::{Deserialize, Serialize};

use crate::devices::{CONTEXT_OVERHEAD, DRIVER_BLOCK, Health, Hold, MigPart, MigProfile, WHOLE};
use crate::refusal::Refusal;
use crate::refusals;
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
    /// What it may write outside its folders, bytes; None: as much as there is room for. A launch that names none may be given
    /// that of a policy or of the site, and so may a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Bytes>,
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

impl Demand {
    /// `cpu=2 memory=4 GiB gpu=0.5`: cores, memory and devices, in the same words for every reader.
    pub fn figures(&self) -> String {
        let mut all = format!("cpu={} memory={}", self.cpu, self.memory);
        if let Some(disk) = self.disk {
            all.push_str(&format!(" disk={disk}"));
        }
        if self.gpu > GpuShare::ZERO {
            all.push_str(&format!(" gpu={}", self.gpu));
        }
        if let Some(memory) = self.gpu_memory {
            all.push_str(&format!(" gpu_memory={memory}"));
        }
        if let Some(profile) = self.mig {
            all.push_str(&format!(" mig={profile}"));
        }
        all
    }
}

/// Least processor time a session may ask for: one hundredth of a core.
pub const MIN_CPU: CpuShare = CpuShare(1);
/// Least memory a session may ask for: below 16 MiB a shell does not start.
pub const MIN_MEMORY: Bytes = Bytes::mib(16);
/// Least and most that a session may be held to on the disk. Lower: the file system for it is mostly tables. Higher: with its
/// tables the file for it is longer than one of ext4 may be.
pub const MIN_DISK: Bytes = Bytes::mib(64);
pub const MAX_DISK: Bytes = Bytes::gib(15 * 1024);

/// Reads the setting of the disk of a session that names none: a size; None for `none`, which is no limit.
///
/// Errors: `setting.session-disk`.
pub fn usual_disk(text: &str) -> Result<Option<Bytes>, Refusal> {
    if text.trim().eq_ignore_ascii_case("none") {
        return Ok(None);
    }
    match Bytes::parse(text) {
        Ok(size) if (MIN_DISK..=MAX_DISK).contains(&size) => Ok(Some(size)),
        _ => Err(refusals::setting_session_disk(MIN_DISK, MAX_DISK)),
    }
}

impl Default for Demand {
    /// One core, 1 GiB, 64 MiB of shared memory, no device.
    fn default() -> Self {
        Self {
            cpu: CpuShare(100),
            memory: Bytes::gib(1),
            shm: Bytes::mib(64),
            disk: None,
            gpu: GpuShare::ZERO,
            gpu_memory: None,
            mig: None,
        }
    }
}

impl Demand {
    /// The demand of so many containers that each ask for this one.
    #[must_use]
    pub fn times(&self, containers: u32) -> Self {
        let bytes = |one: Bytes| Bytes(one.0.saturating_mul(u64::from(containers)));
        Self {
            cpu: CpuShare(self.cpu.0.saturating_mul(containers)),
            memory: bytes(self.memory),
            shm: bytes(self.shm),
            disk: self.disk.map(bytes),
            gpu: GpuShare(self.gpu.0.saturating_mul(containers)),
            gpu_memory: self.gpu_memory.map(bytes),
            mig: self.mig,
        }
    }

    /// What each of so many containers has of it; the demand itself for one.
    #[must_use]
    pub fn part_of(&self, containers: u32) -> Self {
        let containers = containers.max(1);
        if containers == 1 {
            return *self;
        }
        let bytes = |all: Bytes| Bytes(all.0 / u64::from(containers));
        Self {
            cpu: CpuShare(self.cpu.0 / containers),
            memory: bytes(self.memory),
            shm: bytes(self.shm),
            // A policy may have limited all of them together.
            disk: self.disk.map(|disk| bytes(disk).max(MIN_DISK)),
            gpu: GpuShare(self.gpu.0 / containers),
            gpu_memory: self.gpu_memory.map(bytes),
            mig: self.mig,
        }
    }

    /// Whether it asks for any of a device.
    pub fn wants_device(&self) -> bool {
        self.gpu > GpuShare::ZERO || self.mig.is_some()
    }

    /// Refuses amounts that are possible on no machine.
    pub fn check(&self) -> Result<(), Refusal> {
        if self.cpu < MIN_CPU {
            return Err(refusals::cpu_too_small().at("/resources/cpu"));
        }
        if self.memory < MIN_MEMORY {
            return Err(refusals::memory_too_small(MIN_MEMORY).at("/resources/memory"));
        }
        let (shm, memory) = (self.shm, self.memory);
        if shm > memory {
            return Err(refusals::shm_too_large(shm, memory).at("/resources/shm"));
        }
        if self
            .disk
            .is_some_and(|disk| !(MIN_DISK..=MAX_DISK).contains(&disk))
        {
            return Err(refusals::disk_size(MIN_DISK, MAX_DISK).at("/resources/disk"));
        }
        check_devices(self)
    }
}

/// A fraction beside whole devices counts in tenths: a sliver beside a whole card is a slip of the finger,
/// and work spread over both goes at the pace of the sliver.
const BESIDE_WHOLE: u32 = 10;

/// Refuses what no device of any kind could ever give.
fn check_devices(demand: &Demand) -> Result<(), Refusal> {
    if demand.mig.is_some() && demand.gpu > GpuShare::ZERO {
        return Err(refusals::gpu_share_and_profile().at("/resources/mig"));
    }
    let (whole, part) = (demand.gpu.0 / WHOLE.0, demand.gpu.0 % WHOLE.0);
    if whole > 0 && !part.is_multiple_of(BESIDE_WHOLE) {
        let below = GpuShare(demand.gpu.0 - part % BESIDE_WHOLE);
        let above = GpuShare(below.0 + BESIDE_WHOLE);
        return Err(refusals::gpu_not_whole(below, above).at("/resources/gpu"));
    }
    if let Some(memory) = demand.gpu_memory {
        if part == 0 {
            let refusal = if demand.gpu == GpuShare::ZERO {
                refusals::gpu_memory_without_share()
            } else {
                refusals::gpu_memory_of_whole_device()
            };
            return Err(refusal.at("/resources/gpu_memory"));
        }
        if memory < CONTEXT_OVERHEAD {
            return Err(refusals::gpu_slice_too_small(CONTEXT_OVERHEAD).at("/resources/gpu_memory"));
        }
    }
    Ok(())
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

impl Device {
    /// Memory of a share of it, rounded down: shares that sum to a device sum to no more than its memory.
    pub fn memory_of(&self, share: GpuShare) -> Bytes {
        let hundredths = u128::from(share.0.min(WHOLE.0));
        let bytes = u128::from(self.memory.0) * hundredths / 100;
        Bytes(u64::try_from(bytes).unwrap_or(self.memory.0))
    }

    /// Multiprocessors whose time a share is worth, rounded down; 0 where their number is unknown.
    pub fn sms_of(&self, share: GpuShare) -> u32 {
        let part = u64::from(self.sms) * u64::from(share.0.min(WHOLE.0)) / 100;
        u32::try_from(part).unwrap_or(self.sms)
    }

    /// Cut into partitions, so that no slice of its time is given.
    pub fn is_partitioned(&self) -> bool {
        !self.mig.is_empty()
    }

    /// Memory beside `used` that a session can have: none where less than a block of the driver is left, as hundredths
    /// of a device leave it.
    pub fn memory_left(&self, used: Bytes) -> Bytes {
        let left = self.memory.saturating_sub(used);
        if left < DRIVER_BLOCK {
            Bytes::ZERO
        } else {
            left
        }
    }

    /// The least share whose memory holds a context; None where not even the whole does.
    pub fn least_share(&self) -> Option<GpuShare> {
        (1..=100)
            .map(GpuShare)
            .find(|share| self.memory_of(*share) >= CONTEXT_OVERHEAD)
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

/// What is given of one device, by everybody together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceAllocation {
    pub share: GpuShare,
    pub memory: Bytes,
    /// Numbers of the partitions that are given.
    #[serde(default)]
    pub parts: std::collections::BTreeSet<u32>,
}

impl DeviceAllocation {
    pub fn add(&mut self, part: &DeviceShare) {
        match part.part {
            Some(number) => {
                self.parts.insert(number);
            }
            None => {
                self.share = self.share + part.share;
                self.memory = self.memory + part.memory;
            }
        }
    }

    pub fn give_back(&mut self, part: &DeviceShare) {
        match part.part {
            Some(number) => {
                self.parts.remove(&number);
            }
            None => {
                self.share = self.share.saturating_sub(part.share);
                self.memory = self.memory.saturating_sub(part.memory);
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.share == GpuShare::ZERO && self.memory == Bytes::ZERO && self.parts.is_empty()
    }
}

/// The grant of a session, in equal parts for so many containers, in their order. A share of a device is cut where a part
/// ends in it, and its memory with it. The last part takes what does not divide. Costs one visit a device and a container.
pub fn in_parts(grant: &[DeviceShare], containers: u32) -> Vec<Vec<DeviceShare>> {
    if containers <= 1 {
        return vec![grant.to_vec()];
    }
    let all: u32 = grant.iter().map(|one| one.share.0).sum();
    let each = all / containers;
    let mut parts = vec![Vec::new(); containers as usize];
    let mut at = 0;
    let mut room = each;
    for one in grant {
        let (mut share, mut memory) = (one.share.0, one.memory.0);
        while share > 0 {
            let is_last = at + 1 == parts.len();
            let taken = if is_last { share } else { share.min(room) };
            let bytes = u128::from(memory) * u128::from(taken) / u128::from(share);
            let bytes = u64::try_from(bytes).unwrap_or(memory);
            if taken > 0 {
                parts[at].push(DeviceShare {
                    share: GpuShare(taken),
                    memory: Bytes(bytes),
                    ..*one
                });
            }
            (share, memory, room) = (share - taken, memory - bytes, room.saturating_sub(taken));
            if room == 0 && !is_last {
                (at, room) = (at + 1, each);
            }
        }
    }
    parts
}

/// Two grants of one container together, the larger of the two on each device: what has to be kept for
/// it while its machine may hold it to either.
pub fn either(a: &[DeviceShare], b: &[DeviceShare]) -> Vec<DeviceShare> {
    let mut all = a.to_vec();
    for other in b {
        let same = |d: &&mut DeviceShare| d.index == other.index && d.part == other.part;
        match all.iter_mut().find(same) {
            Some(one) => {
                one.share = one.share.max(other.share);
                one.memory = one.memory.max(other.memory);
            }
            None => all.push(*other),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(gib: u64) -> Device {
        Device {
            memory: Bytes::gib(gib),
            sms: 132,
            ..Device::new(0, "H100")
        }
    }

    fn demand(gpu: &str, memory: Option<Bytes>) -> Demand {
        Demand {
            gpu: GpuShare::parse(gpu).expect("a share"),
            gpu_memory: memory,
            ..Demand::default()
        }
    }

    #[test]
    fn what_hundredths_leave_of_a_device_is_no_memory_that_anybody_can_have() {
        let card = card(80);
        // A hundred hundredths of 80 GiB are 20 bytes short of it.
        let given = Bytes(card.memory_of(GpuShare(1)).0 * 100);
        assert!(given < card.memory && given > Bytes(card.memory.0 - 1000));
        assert_eq!(card.memory_left(given), Bytes::ZERO);
        assert_eq!(card.memory_left(Bytes::gib(28)), Bytes::gib(52));
        assert_eq!(card.memory_left(Bytes::gib(81)), Bytes::ZERO);
    }

    #[test]
    fn a_grant_is_cut_into_equal_parts_and_none_of_it_is_lost() {
        let share = |index, share, memory| DeviceShare {
            index,
            share: GpuShare(share),
            memory: Bytes(memory),
            part: None,
            simulated: false,
        };
        assert_eq!(in_parts(&[], 3), vec![Vec::new(); 3]);
        let whole = [share(0, 100, 80), share(1, 100, 80)];
        assert_eq!(in_parts(&whole, 1), vec![whole.to_vec()]);
        assert_eq!(
            in_parts(&whole, 2),
            vec![vec![share(0, 100, 80)], vec![share(1, 100, 80)]]
        );
        let halves = in_parts(&whole, 4);
        assert!(
            halves
                .iter()
                .all(|part| part.len() == 1 && part[0].share == GpuShare(50))
        );
        let three = in_parts(&[share(2, 90, 100)], 3);
        let memory: u64 = three.iter().flatten().map(|part| part.memory.0).sum();
        assert_eq!((three.len(), memory), (3, 100));
        assert!(three.iter().all(|part| part[0].share == GpuShare(30)));
    }

    #[test]
    fn the_usual_disk_is_a_size_that_a_session_may_name_or_none() {
        for (text, expected) in [
            ("20g", Some(Bytes::gib(20))),
            ("64m", Some(MIN_DISK)),
            ("none", None),
            (" None ", None),
        ] {
            assert_eq!(usual_disk(text), Ok(expected), "{text}");
        }
        for text in ["", "0", "63m", "16t", "much"] {
            let refused = usual_disk(text).map_err(|refusal| refusal.code.to_string());
            assert_eq!(refused, Err("setting.session-disk".to_owned()), "{text}");
        }
    }

    #[test]
    fn a_demand_times_containers_is_cut_into_what_was_asked() {
        let each = Demand {
            disk: Some(Bytes::gib(1)),
            gpu: GpuShare(30),
            gpu_memory: Some(Bytes::gib(2)),
            ..Demand::default()
        };
        assert_eq!(each.times(3).part_of(3), each);
        assert_eq!(each.times(3).cpu, CpuShare(300));
        assert_eq!(each.part_of(1), each);
    }

    #[test]
    fn a_share_is_so_much_memory_and_so_many_multiprocessors() {
        let card = card(80);
        assert_eq!(card.memory_of(GpuShare(35)), Bytes::gib(28));
        assert_eq!(card.sms_of(GpuShare(35)), 46);
    }

    /// Proves too: `never_over_a_card_never_over_the_quota_and_everybody_gets_their_turn`
    #[test]
    fn shares_that_sum_to_a_card_never_sum_to_more_than_its_memory() {
        for bytes in [1, 99, 12_345_678_901, 81_559 << 20, u64::MAX] {
            let card = Device {
                memory: Bytes(bytes),
                ..card(1)
            };
            for cut in 1..100 {
                let sum = card.memory_of(GpuShare(cut)).0 as u128
                    + card.memory_of(GpuShare(100 - cut)).0 as u128;
                assert!(sum <= u128::from(bytes), "{cut} of {bytes}");
            }
        }
    }

    #[test]
    fn a_small_card_gives_no_slice_in_which_nothing_starts() {
        assert_eq!(card(80).least_share(), Some(GpuShare(1)));
        assert_eq!(card(16).least_share(), Some(GpuShare(4)));
        let tiny = Device {
            memory: Bytes::mib(256),
            ..card(1)
        };
        assert_eq!(tiny.least_share(), None);
    }

    #[test]
    fn what_can_never_be_right_is_refused_by_name() {
        for (gpu, memory, code) in [
            ("1.01", None, "gpu.not-whole"),
            ("2.55", None, "gpu.not-whole"),
            ("1", Some(Bytes::gib(4)), "gpu.memory-without-share"),
            ("0", Some(Bytes::gib(4)), "gpu.memory-without-share"),
            ("0.5", Some(Bytes::mib(100)), "gpu.slice-too-small"),
        ] {
            let refusal = check_devices(&demand(gpu, memory)).expect_err(gpu);
            assert_eq!(refusal.code, code, "{gpu}");
            assert!(!refusal.hint.is_empty(), "{gpu} says nothing of what works");
        }
        for gpu in ["0.01", "1", "2.5", "16"] {
            assert_eq!(check_devices(&demand(gpu, None)), Ok(()), "{gpu}");
        }
    }
}
