//! Which container holds which shares of real cards, and that it really does: its pages, its devices, its
//! turns at the cards' time. A share counts as held only once everything of it is in place; whatever is
//! missing is said as a reason, and then the container has no device at all. What a container holds is
//! written beside its pages, so that the next server goes on where this one ended. Never decides who
//! gets a share, and never starts or ends a container.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rules::devices::CONTEXT_OVERHEAD;
use rules::names::{BootId, ContainerName};
use rules::reason::Reason;
use rules::reasons;
use rules::resources::DeviceShare;
use serde::{Deserialize, Serialize};

use super::arbiter::Mode;
use super::driver::{self, Driver, Lacks, MigInstance};
use super::inject::{InjectedSlice, Injection, NotInjected, Pages, inject};
use super::page_mount;
use super::region::{self, AccountPage, DeviceTerms, MODE_OFF};
use super::time_slicing::{DeviceTime, Seat, TimeSlicer};

/// Kept of a slice for the first context in it, until the driver has said what it takes. Less than a context
/// takes: a program that fills its slice at once passes its limit, and is called to account for it. More:
/// the smallest slices hold no context.
const ROOM: u64 = CONTEXT_OVERHEAD.0;

/// A whole card, as control pages count it.
const WHOLE_MILLI: u32 = 1000;

/// Where everything lies.
#[derive(Debug, Clone)]
pub struct SharePaths {
    /// Where the vendor's driver is found; `/` on most machines.
    pub driver: PathBuf,
    /// For our libraries. On a disk that allows programs to be loaded from it.
    pub hooks: PathBuf,
    /// For a directory per container. Gone with the next start of the machine, as containers are.
    pub pages: PathBuf,
}

/// A card of this machine under the number that placement knows it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Real {
    pub index: u32,
    /// The number of its device node.
    pub minor: u32,
    /// `GPU-…`
    pub uuid: String,
    pub parts: Vec<RealPart>,
}

/// A partition of a card, under the number that placement knows it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RealPart {
    pub number: u32,
    /// `MIG-…`
    pub uuid: String,
    pub gpu_instance: u32,
    pub compute_instance: u32,
}

/// Every container's shares of this machine's cards. Shared by whoever starts containers, whoever gives
/// turns and whoever watches.
pub struct Shares {
    places: SharePaths,
    mode: Mode,
    boot: BootId,
    cards: Mutex<Vec<Real>>,
    held: Mutex<BTreeMap<ContainerName, HeldPages>>,
    turns: Mutex<BTreeMap<[u8; 16], TimeSlicer>>,
    problems: BTreeMap<ContainerName, Reason>,
}

struct HeldPages {
    pages: Arc<Pages>,
    shares: Vec<DeviceShare>,
    /// The devices' own numbers, in the order of the page.
    devices: Vec<[u8; 16]>,
}

/// What is written beside a container's pages.
#[derive(Debug, Serialize, Deserialize)]
struct ShareRecord {
    /// The layout of its pages.
    version: u32,
    boot: BootId,
    shares: Vec<DeviceShare>,
    devices: Vec<[u8; 16]>,
}

/// One container with what it may have and what it says it has of each device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareHolder {
    pub container: ContainerName,
    pub devices: Vec<TenantDevice>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantDevice {
    pub uuid: [u8; 16],
    /// Bytes.
    pub limit: u64,
    /// Bytes that its own processes say they hold; None where its page cannot be read.
    pub charged: Option<u64>,
    /// Contexts that its processes say they have.
    pub contexts: u32,
    /// Bytes that are counted beside that, by `set_overhead`.
    pub overhead: u64,
}

/// What a container does on one of its devices, as far as whoever gives turns knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceWork {
    pub share: DeviceShare,
    pub uuid: [u8; 16],
    pub share_milli: u32,
    /// None where it takes no turns.
    pub turns: Option<DeviceTime>,
    /// Nobody else has a share of that device.
    pub alone: bool,
}

/// A share on its way into a container.
struct PendingShare {
    slice: InjectedSlice,
    part: Option<MigInstance>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shares {
    /// Takes over what the containers in `living` hold since an earlier server, and removes what is left
    /// of others. Nothing of a running container changes, but that its turns are given again.
    pub fn open(
        places: SharePaths,
        mode: Mode,
        boot: BootId,
        living: &BTreeSet<ContainerName>,
    ) -> Self {
        let mut shares = Self {
            places,
            mode,
            boot,
            cards: Mutex::default(),
            held: Mutex::default(),
            turns: Mutex::default(),
            problems: BTreeMap::new(),
        };
        let folders = fs::read_dir(&shares.places.pages).into_iter().flatten();
        for folder in folders.flatten() {
            let Some(name) = folder
                .file_name()
                .to_str()
                .and_then(|text| text.parse::<ContainerName>().ok())
            else {
                continue;
            };
            if !living.contains(&name) {
                remove(&folder.path());
                continue;
            }
            if let Err(reason) = shares.adopt(name) {
                tracing::warn!(container = %name, code = reason.code, "{}", reason.text);
                shares.problems.insert(name, reason);
            }
        }
        shares
    }

    /// Containers of an earlier server whose shares this one cannot change, and why.
    pub fn problems(&self) -> &BTreeMap<ContainerName, Reason> {
        &self.problems
    }

    /// The shares that containers hold, as they were last confirmed.
    pub fn held(&self) -> BTreeMap<ContainerName, Vec<DeviceShare>> {
        lock(&self.held)
            .iter()
            .map(|(name, held)| (*name, held.shares.clone()))
            .collect()
    }

    /// Says which cards there are, once somebody knows better than the kernel's list.
    pub fn know(&self, cards: Vec<Real>) {
        *lock(&self.cards) = cards;
    }

    /// Cards by their numbers: what was told by `know`, else the kernel's list in the order of the bus.
    fn cards(&self) -> Vec<Real> {
        let told = lock(&self.cards).clone();
        if !told.is_empty() {
            return told;
        }
        (0..)
            .zip(driver::cards(&self.places.driver))
            .map(|(index, card)| Real {
                index,
                minor: card.minor,
                uuid: card.uuid,
                parts: Vec::new(),
            })
            .collect()
    }

    /// Gives a container that is about to start its shares, all of them real. From here on they are held,
    /// until `forget`.
    ///
    /// Errors: whatever is missing, by code; then nothing is held and nothing is left.
    pub fn grant(&self, name: ContainerName, shares: &[DeviceShare]) -> Result<Injection, Reason> {
        let place = self.place(name);
        if let Some(reason) = self.problems.get(&name) {
            return Err(reason.clone());
        }
        if let Some(record) = read(&place)? {
            known(name, record.version)?;
        }
        // Of a start that came to nothing.
        self.forget(name);
        let made = self.make(name, &place, shares);
        if made.is_err() {
            self.forget(name);
        }
        made
    }

    fn make(
        &self,
        name: ContainerName,
        place: &Path,
        shares: &[DeviceShare],
    ) -> Result<Injection, Reason> {
        let cards = self.cards();
        let wanted = shares
            .iter()
            .map(|share| wanted(&cards, share))
            .collect::<Result<Vec<PendingShare>, Reason>>()?;
        let slices: Vec<InjectedSlice> = wanted.iter().map(|wanted| wanted.slice).collect();
        let devices: Vec<[u8; 16]> = slices.iter().map(|slice| slice.terms.uuid).collect();
        if devices.iter().collect::<BTreeSet<_>>().len() < devices.len() {
            return Err(reasons::gpu_device_twice());
        }
        let places = &self.places;
        page_mount::bound(&place.join("account"), size_of::<AccountPage>())
            .map_err(|error| no_page(place, &error.to_string()))?;
        let (mut injection, pages) = inject(&places.driver, &places.hooks, place, &slices)
            .map_err(|why| self.refusal(&why))?;
        for part in wanted.iter().filter_map(|wanted| wanted.part) {
            let nodes = Driver::find(&places.driver)
                .ok()
                .and_then(|driver| driver.part(&places.driver, part));
            injection.devices.extend(
                nodes.ok_or_else(|| reasons::gpu_part_unknown(part.gpu_instance, part.card))?,
            );
        }
        for (at, share) in shares.iter().enumerate() {
            // In a partition nobody else is short of what its holder's contexts take.
            let room = match share.part {
                Some(_) => 0,
                None => ROOM.min(share.memory.0),
            };
            pages.control().device[at].context_room.store(room, SeqCst);
        }
        write(place, &self.record(shares, &devices))
            .map_err(|error| no_page(place, &error.to_string()))?;
        let held = HeldPages {
            pages: Arc::new(pages),
            shares: shares.to_vec(),
            devices,
        };
        self.seat(name, &held)?;
        lock(&self.held).insert(name, held);
        Ok(injection)
    }

    /// Holds a running container to other shares of the same devices. The next call inside sees them; what
    /// is in use beyond a smaller one stays, and nothing more is given.
    ///
    /// Errors: where it holds nothing here, or shares of other devices; then all is as it was.
    pub fn regrant(&self, name: ContainerName, shares: &[DeviceShare]) -> Result<(), Reason> {
        let mut all = lock(&self.held);
        let Some(held) = all.get_mut(&name) else {
            return Err(self.not_held(name));
        };
        let same = shares.len() == held.shares.len()
            && shares.iter().all(|share| place_of(held, share).is_some());
        if !same {
            return Err(reasons::gpu_other_device());
        }
        let mut ordered = held.shares.clone();
        for share in shares {
            if let Some(at) = place_of(held, share) {
                ordered[at] = *share;
            }
        }
        // First what is written: should this server end here, the next one holds it to the same.
        let place = self.place(name);
        write(&place, &self.record(&ordered, &held.devices))
            .map_err(|error| no_page(&place, &error.to_string()))?;
        held.shares = ordered;
        let control = held.pages.control();
        for (at, share) in held.shares.iter().enumerate() {
            let device = &control.device[at];
            let terms = DeviceTerms {
                uuid: held.devices[at],
                mem_limit: share.memory.0,
                mem_overhead: device.mem_overhead.load(SeqCst),
                share_milli: milli(share),
                // Who waits for turns is the business of whoever gives them.
                mode: device.mode.load(SeqCst),
            };
            control.set(at, &terms);
        }
        self.seat(name, held)
    }

    /// Lets go of everything a container held. Fine for one that held nothing.
    pub fn forget(&self, name: ContainerName) {
        for turns in lock(&self.turns).values() {
            turns.leave(name);
        }
        lock(&self.held).remove(&name);
        remove(&self.place(name));
    }

    /// Everybody who holds shares, for whoever compares them with what the driver counts. Costs a read of
    /// half a megabyte each.
    pub fn tenants(&self) -> Vec<ShareHolder> {
        let held: Vec<(ContainerName, Arc<Pages>, Vec<[u8; 16]>)> = lock(&self.held)
            .iter()
            .map(|(name, held)| (*name, Arc::clone(&held.pages), held.devices.clone()))
            .collect();
        held.into_iter()
            .map(|(container, pages, devices)| {
                let account = pages.account().ok().filter(|page| page.is_known());
                let of = |(at, uuid): (usize, &[u8; 16])| {
                    let sum = account.as_ref().map(|page| page.sum(at));
                    TenantDevice {
                        uuid: *uuid,
                        limit: pages.control().device[at].mem_limit.load(SeqCst),
                        charged: sum.map(|sum| sum.total),
                        contexts: sum.map_or(0, |sum| sum.made),
                        overhead: pages.control().device[at].mem_overhead.load(SeqCst),
                    }
                };
                ShareHolder {
                    container,
                    devices: devices.iter().enumerate().map(of).collect(),
                }
            })
            .collect()
    }

    /// What everybody who holds shares does with them, in the order of their pages. Reads no page.
    pub fn work(&self) -> BTreeMap<ContainerName, Vec<DeviceWork>> {
        let all = lock(&self.held);
        let turns = lock(&self.turns);
        let mut holders: BTreeMap<[u8; 16], usize> = BTreeMap::new();
        for uuid in all.values().flat_map(|held| &held.devices) {
            *holders.entry(*uuid).or_default() += 1;
        }
        let of = |name: ContainerName, share: &DeviceShare, uuid: &[u8; 16]| DeviceWork {
            share: *share,
            uuid: *uuid,
            share_milli: milli(share),
            turns: turns.get(uuid).and_then(|turns| turns.worked(name)),
            alone: holders.get(uuid) == Some(&1),
        };
        let each = all.iter().map(|(name, held)| {
            let pairs = held.shares.iter().zip(&held.devices);
            (
                *name,
                pairs.map(|(share, uuid)| of(*name, share, uuid)).collect(),
            )
        });
        each.collect()
    }

    /// Bytes of a device that a container's own processes and the overhead come to, at most its limit; None
    /// where its page cannot be read. Costs a read of half a megabyte.
    pub fn says(&self, name: ContainerName, device: &[u8; 16]) -> Option<u64> {
        let (pages, at) = {
            let all = lock(&self.held);
            let held = all.get(&name)?;
            let at = held.devices.iter().position(|uuid| uuid == device)?;
            (Arc::clone(&held.pages), at)
        };
        let account = pages.account().ok().filter(|page| page.is_known())?;
        let terms = &pages.control().device[at];
        let charged = account.sum(at).total;
        let all = charged.saturating_add(terms.mem_overhead.load(SeqCst));
        Some(all.min(terms.mem_limit.load(SeqCst)))
    }

    /// Counts so many bytes beside what a container's processes say they hold of a device: so many contexts,
    /// code, local memory. What they took is what is kept for the next of this container; another's tell
    /// nothing of it. False where it holds no such device.
    pub fn set_overhead(
        &self,
        name: ContainerName,
        device: &[u8; 16],
        bytes: u64,
        contexts: u32,
    ) -> bool {
        let all = lock(&self.held);
        let Some(held) = all.get(&name) else {
            return false;
        };
        let Some(at) = held.devices.iter().position(|uuid| uuid == device) else {
            return false;
        };
        let control = held.pages.control();
        control.device[at].saw(bytes, contexts);
        if contexts != 0 && held.shares[at].part.is_none() {
            let each = bytes.div_ceil(u64::from(contexts)).min(ROOM);
            control.device[at].context_room.store(each, SeqCst);
        }
        control.generation.fetch_add(1, SeqCst);
        true
    }

    /// Opens the pages of a container that an earlier server started.
    fn adopt(&self, name: ContainerName) -> Result<(), Reason> {
        let place = self.place(name);
        let record = read(&place)?.ok_or_else(|| no_page(&place, "nothing says what it holds"))?;
        // Of another start of the machine: its devices may be other ones by now.
        if record.boot != self.boot {
            remove(&place);
            return Ok(());
        }
        known(name, record.version)?;
        if record.devices.len() != record.shares.len() {
            return Err(no_page(&place, "what it says of its devices is not whole"));
        }
        let pages = Pages::open(&place).map_err(|why| match why {
            NotInjected::Version(version) => other_version(name, version),
            why => self.refusal(&why),
        })?;
        let held = HeldPages {
            pages: Arc::new(pages),
            shares: record.shares,
            devices: record.devices,
        };
        self.seat(name, &held)?;
        lock(&self.held).insert(name, held);
        Ok(())
    }

    /// Gives a container its place among those who take turns at each of its devices.
    fn seat(&self, name: ContainerName, held: &HeldPages) -> Result<(), Reason> {
        let mut turns = lock(&self.turns);
        for (at, uuid) in held.devices.iter().enumerate() {
            let seat = Seat {
                pages: Arc::clone(&held.pages),
                at,
                share_milli: milli(&held.shares[at]),
            };
            turns
                .entry(*uuid)
                .or_insert_with(|| TimeSlicer::new(self.mode))
                .take(name, seat)
                .map_err(|error| reasons::gpu_no_turns(&error))?;
        }
        Ok(())
    }

    fn place(&self, name: ContainerName) -> PathBuf {
        self.places.pages.join(name.to_string())
    }

    fn record(&self, shares: &[DeviceShare], devices: &[[u8; 16]]) -> ShareRecord {
        ShareRecord {
            version: region::VERSION,
            boot: self.boot,
            shares: shares.to_vec(),
            devices: devices.to_vec(),
        }
    }

    /// Why a container with shares cannot be changed, where this server holds nothing for it.
    fn not_held(&self, name: ContainerName) -> Reason {
        if let Some(reason) = self.problems.get(&name) {
            return reason.clone();
        }
        match read(&self.place(name)) {
            Ok(Some(record)) => known(name, record.version).err(),
            Ok(None) => None,
            Err(reason) => Some(reason),
        }
        .unwrap_or_else(reasons::gpu_not_held)
    }

    fn refusal(&self, why: &NotInjected) -> Reason {
        match why {
            NotInjected::Driver(lacks) => no_driver(lacks),
            NotInjected::TooMany(_) => reasons::gpu_too_many(sentence(&why.to_string())),
            NotInjected::File { path, source } if path.starts_with(&self.places.hooks) => {
                reasons::gpu_no_hook(path.display(), source)
            }
            NotInjected::File { path, source } => no_page(path, &source.to_string()),
            NotInjected::Version(version) => no_page(
                &self.places.pages,
                &format!("a page there is of version {version}"),
            ),
        }
    }
}

fn no_driver(lacks: &Lacks) -> Reason {
    match lacks {
        Lacks::Driver => reasons::gpu_no_driver(lacks),
        Lacks::Version(_) => reasons::gpu_driver_version_unknown(lacks),
        Lacks::Library { version, library } => reasons::gpu_driver_version(lacks, version, library),
        Lacks::Major(_) => reasons::gpu_no_device_number(lacks),
    }
}

fn no_page(path: &Path, why: &str) -> Reason {
    reasons::gpu_no_page(path.display(), why)
}

/// Refuses pages of a layout that this server does not write.
fn known(name: ContainerName, version: u32) -> Result<(), Reason> {
    if version == region::VERSION {
        return Ok(());
    }
    Err(other_version(name, version))
}

fn other_version(name: ContainerName, version: u32) -> Reason {
    reasons::gpu_page_version(name, version, region::VERSION)
}

fn sentence(text: &str) -> String {
    let mut text = format!("{text}.");
    if let Some(first) = text.get(..1).map(str::to_uppercase) {
        text.replace_range(..1, &first);
    }
    text
}

/// Where a share of that device stands in a container's page.
fn place_of(held: &HeldPages, share: &DeviceShare) -> Option<usize> {
    held.shares
        .iter()
        .position(|own| own.index == share.index && own.part == share.part)
}

fn milli(share: &DeviceShare) -> u32 {
    match share.part {
        // A partition is its holder's alone.
        Some(_) => WHOLE_MILLI,
        None => share.share.0.saturating_mul(10).min(WHOLE_MILLI),
    }
}

fn slice(card: u32, uuid: [u8; 16], share: &DeviceShare) -> InjectedSlice {
    InjectedSlice {
        card,
        terms: DeviceTerms {
            uuid,
            mem_limit: share.memory.0,
            mem_overhead: 0,
            share_milli: milli(share),
            mode: MODE_OFF,
        },
    }
}

fn wanted(cards: &[Real], share: &DeviceShare) -> Result<PendingShare, Reason> {
    let unknown = |why: &str| reasons::gpu_device_unknown(share.index, why);
    let card = cards
        .iter()
        .find(|card| card.index == share.index)
        .ok_or_else(|| unknown("it is not there"))?;
    if share.memory.0 == 0 {
        return Err(unknown("the amount of its memory is missing"));
    }
    let Some(number) = share.part else {
        let uuid = uuid(&card.uuid)
            .ok_or_else(|| unknown("the driver has not told its own number yet"))?;
        return Ok(PendingShare {
            slice: slice(card.minor, uuid, share),
            part: None,
        });
    };
    let part = card
        .parts
        .iter()
        .find(|part| part.number == number)
        .ok_or_else(|| unknown("it has no such partition"))?;
    let own = uuid(&part.uuid).ok_or_else(|| unknown("its partition has no number of its own"))?;
    Ok(PendingShare {
        slice: slice(card.minor, own, share),
        part: Some(MigInstance {
            card: card.minor,
            gpu_instance: part.gpu_instance,
            compute_instance: part.compute_instance,
        }),
    })
}

/// A device's own number from its text, `GPU-7f2b1c90-…` or `MIG-…`; None where it is none.
pub fn uuid(text: &str) -> Option<[u8; 16]> {
    let digits = text
        .strip_prefix("GPU-")
        .or_else(|| text.strip_prefix("MIG-"))?;
    uuid::Uuid::try_parse(digits)
        .ok()
        .map(uuid::Uuid::into_bytes)
}

const RECORD: &str = "held.json";

/// What stands beside a container's pages; None where nothing does.
fn read(place: &Path) -> Result<Option<ShareRecord>, Reason> {
    /// The part of a record that every version has.
    #[derive(Deserialize)]
    struct Version {
        version: u32,
        boot: BootId,
    }
    let path = place.join(RECORD);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(no_page(&path, &error.to_string())),
    };
    match serde_json::from_slice::<ShareRecord>(&text) {
        Ok(record) => Ok(Some(record)),
        // Of another version, as far as it can be told.
        Err(error) => match serde_json::from_slice::<Version>(&text) {
            Ok(told) if told.version != region::VERSION => Ok(Some(ShareRecord {
                version: told.version,
                boot: told.boot,
                shares: Vec::new(),
                devices: Vec::new(),
            })),
            _ => Err(no_page(&path, &error.to_string())),
        },
    }
}

/// Whole or not at all.
fn write(place: &Path, record: &ShareRecord) -> io::Result<()> {
    let draft = place.join(".held.json");
    let text = serde_json::to_vec(record).map_err(io::Error::other)?;
    fs::write(&draft, text)?;
    fs::rename(&draft, place.join(RECORD))
}

fn remove(place: &Path) {
    page_mount::release(&place.join("account"));
    if let Err(error) = store::trees::remove(place) {
        tracing::warn!(path = %place.display(), %error, "a container's pages cannot be removed");
    }
}

#[cfg(test)]
mod tests;
