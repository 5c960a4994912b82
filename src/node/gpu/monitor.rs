//! Looks at this machine's cards again and again, in a thread of its own, and keeps what it saw for
//! whoever asks: the cards, what they are doing, and what is wrong with the driver. Where no driver is
//! loaded there is no thread and nothing is said. A helper that hangs holds up nobody but this thread.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rules::devices::MigProfile;
use rules::messages::DeviceUse;
use rules::names::BootId;
use rules::reason::Reason;
use rules::reasons;
use rules::resources::Device;
use serde::{Deserialize, Serialize};

use super::driver::{self, Driver, Lacks};
use super::inventory::{CardStatus, Inventory, numa};
use super::limits::{NotHeld, Offers, Walls};
use super::probe::{DriverReport, FigureTold, Probe, ProbeError, ProbeTimeouts};
use super::shares::{self, Real};
use super::watchdog::{ProcessMemory, Truth};

/// From one look to the next. Longer: a card that fell off the bus is given to somebody. Shorter: the
/// driver is asked for nothing new.
const PACE: Duration = Duration::from_secs(5);

/// How often the driver's library is opened anew while it says that a card is lost, or counts other cards
/// than the kernel: it looks for cards only when it is opened. Longer: a card that was reset is out of use
/// for longer. Shorter: a sick card is woken again and again.
const REOPENED: Duration = Duration::from_secs(30);

/// How long a card may take to be cut: some are reset by their driver on the way.
const PARTITIONING: ProbeTimeouts = ProbeTimeouts {
    first: Duration::from_secs(120),
    later: Duration::from_secs(120),
};

/// Where everything lies, and how often it is looked at.
#[derive(Debug, Clone)]
pub struct MonitorConfig {
    /// Where the vendor's driver is found; `/` on most machines.
    pub driver: PathBuf,
    /// A directory of ours, on a disk that programs can be run from.
    pub data: PathBuf,
    pub boot: BootId,
    /// The root of the control groups, of version 2; None on version 1.
    pub groups: Option<PathBuf>,
    pub pace: Duration,
    /// Between two openings of the driver's library for a card that is not as it should be.
    pub reopened: Duration,
    pub patience: ProbeTimeouts,
}

impl MonitorConfig {
    pub fn new(driver: &Path, data: &Path, boot: BootId) -> Self {
        Self {
            driver: driver.to_owned(),
            data: data.to_owned(),
            boot,
            groups: None,
            pace: PACE,
            reopened: REOPENED,
            patience: ProbeTimeouts::default(),
        }
    }
}

/// What was seen last.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MonitorStatus {
    /// By number; empty where there is no driver.
    pub devices: Vec<Device>,
    pub real: Vec<Real>,
    pub uses: Vec<DeviceUse>,
    /// The names of cards that are set to be cut and have no partition.
    pub hollow: BTreeSet<String>,
    /// What is wrong with the driver; empty where nothing is, or where there is none.
    pub problems: Vec<Reason>,
}

/// Whoever looks.
pub struct DeviceMonitor {
    ground: MonitorConfig,
    seen: Mutex<MonitorStatus>,
    /// What there is beside our library, by the card's own number.
    offers: Mutex<BTreeMap<[u8; 16], Offers>>,
    /// Held while the driver is asked, which may take as long as the patience.
    asks: Mutex<Asks>,
    looking: AtomicBool,
}

/// What one look needs of the one before.
#[derive(Default)]
struct Asks {
    inventory: Inventory,
    written: Inventory,
    probe: Option<RunningProbe>,
    /// The version that was loaded when this server first saw one.
    first: Option<String>,
    /// The version that replaced it since.
    replaced: Option<String>,
    /// Whether its library can hold control groups, as it said last.
    limits: bool,
    /// Why the driver does not answer, in the words of the first time.
    silent: Option<String>,
}

/// A probe, and what it was made for.
struct RunningProbe {
    driver: Driver,
    probe: Probe,
    reopened: Option<Instant>,
}

/// What one look brought.
#[derive(Default)]
struct MonitorPass {
    told: Option<DriverReport>,
    figures: Vec<FigureTold>,
    broken: Option<String>,
    problems: Vec<Reason>,
}

/// What is written down for the next server.
#[derive(Serialize, Deserialize)]
struct MonitorRecord {
    boot: BootId,
    cards: Inventory,
}

impl DeviceMonitor {
    /// Takes over what an earlier server of this start of the machine knew, and lists the cards as the
    /// kernel does. Asks no driver, starts nothing.
    pub fn open(ground: MonitorConfig) -> Arc<Self> {
        let mut asks = Asks::default();
        match read(&record(&ground)) {
            Ok(Some(known)) if known.boot == ground.boot => {
                asks.inventory = known.cards.clone();
                asks.written = known.cards;
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "what was known of the cards cannot be read; they get new numbers");
            }
        }
        let monitor = Arc::new(Self {
            ground,
            seen: Mutex::default(),
            offers: Mutex::default(),
            asks: Mutex::new(asks),
            looking: AtomicBool::new(false),
        });
        if monitor.has_driver() {
            let mut asks = lock(&monitor.asks);
            monitor.tell(&mut asks, &MonitorPass::default());
        }
        monitor
    }

    /// What was seen last. Never waits for a driver.
    pub fn seen(&self) -> MonitorStatus {
        lock(&self.seen).clone()
    }

    /// Starts the thread that looks, where a driver is loaded and none looks yet; `changed` is called after
    /// each look that saw something new, and false ends the thread. Costs a look for one file otherwise.
    pub fn begin(
        self: &Arc<Self>,
        changed: impl Fn(&MonitorStatus) -> bool + Send + 'static,
    ) -> io::Result<()> {
        if !self.has_driver() || self.looking.swap(true, SeqCst) {
            return Ok(());
        }
        let (weak, pace) = (Arc::downgrade(self), self.ground.pace);
        std::thread::Builder::new()
            .name("gpu monitor".to_owned())
            .spawn(move || {
                let mut told = None;
                while let Some(monitor) = weak.upgrade() {
                    monitor.look();
                    let seen = monitor.seen();
                    drop(monitor);
                    // Figures change with every look, and wake nobody.
                    let bare = MonitorStatus {
                        uses: Vec::new(),
                        ..seen
                    };
                    if told.as_ref() != Some(&bare) {
                        if !changed(&bare) {
                            return;
                        }
                        told = Some(bare);
                    }
                    std::thread::sleep(pace);
                }
            })?;
        Ok(())
    }

    fn has_driver(&self) -> bool {
        self.ground.driver.join(driver::VERSION).exists()
    }

    /// Looks at everything once. May take as long as the driver does, up to the patience.
    pub fn look(&self) {
        let mut asks = lock(&self.asks);
        let found = Driver::find(&self.ground.driver);
        let driver = match found {
            Ok(driver) => driver,
            Err(lacks) => {
                asks.probe = None;
                let (problem, sentence) = missing(&lacks);
                let look = MonitorPass {
                    broken: Some(sentence),
                    problems: vec![problem],
                    ..MonitorPass::default()
                };
                self.tell(&mut asks, &look);
                return;
            }
        };
        let mut problems = asks.version(&driver.version);
        let same = asks
            .probe
            .as_ref()
            .is_some_and(|asked| asked.driver == driver);
        if !same {
            // One of an older driver would go on with the older library.
            let probe = Probe::of(&driver, &self.ground.data.join("gpu_probe"));
            let probe = probe.with_patience(self.ground.patience);
            asks.probe = Some(RunningProbe {
                driver,
                probe,
                reopened: None,
            });
        }
        let listed = driver::cards(&self.ground.driver).len();
        let asked = asks.probe.as_mut().expect("made above");
        let mut told = asked.probe.cards();
        let odd = told.as_ref().is_ok_and(|told| {
            told.cards.len() != listed || told.cards.iter().any(|card| card.error.is_some())
        });
        let due = self.ground.reopened;
        if odd && asked.reopened.is_none_or(|at| at.elapsed() >= due) {
            asked.reopened = Some(Instant::now());
            asked.probe.restart();
            told = asked.probe.cards();
        }
        let figures = match &told {
            Ok(_) => asked.probe.figures().unwrap_or_default(),
            Err(_) => Vec::new(),
        };
        problems.extend(asks.silence(&told));
        let look = MonitorPass {
            told: told.ok(),
            figures,
            broken: None,
            problems,
        };
        self.tell(&mut asks, &look);
    }

    /// Has a card cut, or made whole where there is no profile; looks again. Takes seconds, and at most
    /// `PARTITIONING`; nobody who looks waits for it.
    ///
    /// Errors: why not, in words. What stands then is seen.
    pub(crate) fn partition(&self, card: &str, profiles: &[MigProfile]) -> Result<(), String> {
        let driver = Driver::find(&self.ground.driver).map_err(|lacks| lacks.to_string())?;
        let copy = self.ground.data.join("gpu_probe_partition");
        let mut probe = Probe::of(&driver, &copy).with_patience(PARTITIONING);
        let sizes: Vec<String> = profiles.iter().map(MigProfile::to_string).collect();
        let partitioned = probe
            .partition(card, &sizes)
            .map_err(|fault| base::observe::chain(&fault));
        drop(probe);
        // The library lists partitions as it found them when it was opened.
        if let Some(asked) = &mut lock(&self.asks).probe {
            asked.probe.restart();
        }
        self.look();
        partitioned
    }

    /// Takes a look in, and keeps it where everybody can read it.
    fn tell(&self, asks: &mut Asks, look: &MonitorPass) {
        let listed = driver::cards(&self.ground.driver);
        let sight = CardStatus {
            listed: &listed,
            told: look.told.as_ref(),
            broken: look.broken.as_deref(),
            numa: &|pci| numa(&self.ground.driver, pci),
        };
        asks.inventory.look(&sight, Instant::now());
        let mut devices = asks.inventory.devices();
        let version = Driver::find(&self.ground.driver)
            .map_or_else(|_| String::new(), |driver| driver.version);
        if let Some(told) = &look.told {
            asks.limits = told.limits;
        }
        let real = asks.inventory.real();
        let mut offers = BTreeMap::new();
        for device in &mut devices {
            device.driver.clone_from(&version);
            let minor = real.iter().find(|card| card.index == device.index);
            let card = minor.and_then(|card| listed.iter().find(|on| on.minor == card.minor));
            let offer = card.map_or_else(Offers::default, |card| {
                Offers::find(self.ground.groups.as_deref(), asks.limits, &card.pci)
            });
            device.hold = offer.hold(device.is_partitioned());
            if let Some(number) = shares::uuid(&device.uuid) {
                offers.insert(number, offer);
            }
        }
        *lock(&self.offers) = offers;
        *lock(&self.seen) = MonitorStatus {
            devices,
            real,
            uses: asks.inventory.uses(&look.figures),
            hollow: hollow(look.told.as_ref()),
            problems: look.problems.clone(),
        };
        if look.told.is_some() && asks.inventory != asks.written {
            let kept = MonitorRecord {
                boot: self.ground.boot,
                cards: asks.inventory.clone(),
            };
            match write(&record(&self.ground), &kept) {
                Ok(()) => asks.written = kept.cards,
                Err(error) => {
                    tracing::warn!(%error, "what is known of the cards cannot be written; a next server may give them new numbers");
                }
            }
        }
    }
}

impl Truth for DeviceMonitor {
    fn held(&self) -> Option<Vec<ProcessMemory>> {
        lock(&self.asks).probe.as_mut()?.probe.held().ok()
    }
}

impl Walls for DeviceMonitor {
    fn offers(&self, device: &[u8; 16]) -> Offers {
        lock(&self.offers).get(device).cloned().unwrap_or_default()
    }

    fn ask_driver(
        &self,
        device: &[u8; 16],
        group: &Path,
        bytes: Option<u64>,
    ) -> Result<(), NotHeld> {
        let name = format!("GPU-{}", uuid::Uuid::from_bytes(*device));
        let mut asks = lock(&self.asks);
        match asks.probe.as_mut() {
            Some(asked) => asked.probe.limit(&name, group, bytes),
            None => Err(ProbeError::Library("there is no driver any more".into())),
        }
        .map_err(NotHeld::Driver)
    }
}

impl Asks {
    /// Notes which version is loaded now; a problem once it is another than at first. It stays one until
    /// this server ends: whoever started before still has the older library open.
    fn version(&mut self, now: &str) -> Vec<Reason> {
        let first = self.first.get_or_insert_with(|| now.to_owned());
        if first != now {
            self.replaced = Some(now.to_owned());
        }
        let first = first.clone();
        let replaced = self
            .replaced
            .iter()
            .map(|new| reasons::gpu_driver_replaced(&first, new));
        replaced.collect()
    }

    /// A problem while the driver does not answer.
    fn silence(&mut self, told: &Result<DriverReport, ProbeError>) -> Option<Reason> {
        let fault = match told {
            Ok(_) => {
                if self.silent.take().is_some() {
                    tracing::info!("the GPU driver answers again");
                }
                return None;
            }
            Err(fault) => fault,
        };
        let why = self.silent.get_or_insert_with(|| {
            let why = base::observe::chain(fault);
            tracing::warn!(error = %why, "the GPU driver does not answer; sessions go on");
            why
        });
        Some(reasons::gpu_driver_silent(why))
    }
}

/// Half a driver: the problem, and a sentence for each card.
fn missing(lacks: &Lacks) -> (Reason, String) {
    let problem = match lacks {
        Lacks::Driver => reasons::gpu_driver_gone(lacks),
        Lacks::Version(_) => reasons::gpu_driver_unknown(lacks),
        Lacks::Library { version, .. } => reasons::gpu_driver_half(lacks, version),
        Lacks::Major(_) => reasons::gpu_driver_without_number(lacks),
    };
    (problem, format!("No share of it can be given: {lacks}."))
}

fn hollow(told: Option<&DriverReport>) -> BTreeSet<String> {
    let cards = told.iter().flat_map(|told| &told.cards);
    cards
        .filter(|card| card.parts.as_ref().is_some_and(Vec::is_empty))
        .filter_map(|card| card.uuid.clone())
        .collect()
}

fn record(ground: &MonitorConfig) -> PathBuf {
    ground.data.join("cards.json")
}

fn read(path: &Path) -> io::Result<Option<MonitorRecord>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn write(path: &Path, record: &MonitorRecord) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let fresh = path.with_extension("new");
    fs::write(&fresh, serde_json::to_vec(record)?)?;
    fs::rename(&fresh, path)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
