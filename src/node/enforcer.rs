//! The watchdog's eyes and hands: asks the driver who holds how much of a device's memory, finds by its
//! control group which container a process stands in, and warns, freezes or stops the container that holds more
//! than they were granted. Also writes what the driver counts beyond a container's own account into its
//! page, and has driver or kernel hold the container's control group where they can. Its thread exists only while some container has a real share; decides nothing (`gpu::watchdog`
//! does), and never believes what a container says of itself. What it answered is written down before it is
//! told or done, so that the next server goes on where this one ended.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use base::observe::{Clock, chain};
use rules::devices::Hold;
use rules::reason::Reason;
use rules::reasons;
use rules::units::{Bytes, Timestamp};
use serde::{Deserialize, Serialize};

use crate::gpu::limits::{self, LimitTarget, Offers, Wall, Walls};
use crate::gpu::shares::Shares;
use crate::gpu::watchdog::{POLL_INTERVAL, ProcessMemory, Truth, Watchdog, WatchdogAction};
use crate::record;
use crate::runtime::{Runtime, RuntimeFault, RuntimeName};

/// A device's own number, as in the control pages.
pub type DeviceId = [u8; 16];

/// Incidents that are told of one container; the oldest go first. More would let a session that passes
/// their limit again and again fill the report.
const TOLD: usize = 8;
/// A second warning within this time is not told again: a session that goes to and fro over its limit would
/// write a row every few seconds.
const QUIET_AFTER_WARNING: Duration = Duration::from_secs(600);
/// How long the driver's word on memory is told on: its helper may take seconds for an answer.
const FRESH: Duration = Duration::from_secs(6);
/// Looks over which the overhead is the smallest: a process that was just freeing memory when the driver
/// was asked is no overhead.
const STEADY_LOOKS: usize = 2;

/// What refused a limit is asked again after so long. Shorter: a driver without the feature is asked all the
/// time. Longer: a machine that was mended is not believed.
const TRIED_AGAIN: Duration = Duration::from_secs(60);

/// Looks over which a context that is there is in no list of the driver's, until it is taken for one whose
/// memory the driver does not tell of. Fewer: a program fills its slice before its context is counted.
/// More: where the driver lists no process, programs wait for longer.
const UNLISTED_LOOKS: u32 = 8;

/// What a container may hold of one device at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryGrant {
    pub container: RuntimeName,
    pub device: DeviceId,
    /// Bytes, contexts included.
    pub limit: u64,
    /// Bytes that the container's own account says it holds; None where that is unknown.
    pub charged: Option<u64>,
    /// Contexts that it says the driver has made for it.
    pub contexts: u32,
}

/// Who was granted what; asked and told from the watchdog's thread.
pub trait Grants: Send + Sync {
    /// Every real share of every container that exists. Empty: there is nothing to look after.
    fn granted(&self) -> Vec<MemoryGrant>;

    /// Notes what the driver counts beyond that account: contexts, code, memory taken past the hooks.
    fn set_overhead(&self, container: &RuntimeName, device: &DeviceId, beyond: Beyond);
}

/// What a container holds beyond its own account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beyond {
    /// At most the container's limit.
    pub bytes: u64,
    /// Contexts that are surely in it.
    pub contexts: u32,
}

/// One answer that was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchIncident {
    /// Of this incident alone, on any machine and after any restart.
    pub id: uuid::Uuid,
    pub at: Timestamp,
    pub container: RuntimeName,
    pub device: DeviceId,
    pub answer: WatchdogAction,
    /// Bytes, as the driver counted them.
    pub held: u64,
    pub limit: u64,
}

/// The watchdog of one machine.
pub struct Enforcer {
    inner: Arc<EnforcerState>,
}

struct EnforcerState {
    truth: Arc<dyn Truth>,
    beside: EnforcementBackends,
    grants: Arc<dyn Grants>,
    runtime: Arc<Runtime>,
    clock: Clock,
    /// Where `Memory` is written.
    record: PathBuf,
    /// Called after each incident, so that it is reported at once.
    ring: Box<dyn Fn() + Send + Sync>,
    /// Whether the thread is there.
    awake: Mutex<bool>,
    seen: Mutex<EnforcerRecord>,
    /// What the driver counted at the last look, and when that was; None where it did not answer.
    counted: Mutex<Option<(Instant, MemoryByDevice)>>,
}

/// What holds containers beside our library.
struct EnforcementBackends {
    walls: Arc<dyn Walls>,
    /// Since this server looks: a limit outlives it, and is set again by the next.
    in_force: Mutex<BTreeMap<(RuntimeName, DeviceId), AppliedLimit>>,
}

/// What was done to hold one container.
#[derive(Clone, Debug)]
struct AppliedLimit {
    limit: u64,
    offers: Offers,
    wall: Wall,
    /// Why nothing better holds it.
    problem: Option<Reason>,
    /// When it was tried.
    at: Instant,
}

/// Bytes by container and device.
pub type MemoryByDevice = BTreeMap<(RuntimeName, DeviceId), u64>;

#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
struct EnforcerRecord {
    incidents: BTreeMap<RuntimeName, Vec<WatchIncident>>,
    frozen: BTreeSet<RuntimeName>,
    /// What the thread knew of each at its last look; a thread that begins goes on there.
    cases: Vec<WatchedContainer>,
}

/// One container on one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct WatchedContainer {
    container: RuntimeName,
    device: DeviceId,
    /// What it may hold: see `EnforcerThread`.
    allowed: u64,
    answered: Option<WatchdogAction>,
}

/// What the driver says of one container.
#[derive(Clone, Copy, Default)]
struct ListedMemory {
    bytes: u64,
    processes: u32,
}

/// What the thread alone remembers.
struct EnforcerThread {
    began: Instant,
    dog: Watchdog<(RuntimeName, DeviceId)>,
    /// What each may hold: its limit, or what it held when that was lowered below it and has not given
    /// back since. A lowered limit accuses no container.
    allowed: BTreeMap<(RuntimeName, DeviceId), u64>,
    overhead: BTreeMap<(RuntimeName, DeviceId), Vec<Beyond>>,
    /// Looks since when some context of it is in no list.
    unlisted: BTreeMap<(RuntimeName, DeviceId), u32>,
    warned: BTreeMap<(RuntimeName, DeviceId), Instant>,
    /// What could not be done yet.
    owed: BTreeMap<RuntimeName, WatchdogAction>,
    /// What stands in the record.
    written: Option<EnforcerRecord>,
}

impl Enforcer {
    /// A watchdog that goes on where the one that wrote the record at `path` ended, for the containers that still
    /// exist. Looks at no session yet.
    pub fn new(
        truth: Arc<dyn Truth>,
        walls: Arc<dyn Walls>,
        grants: Arc<dyn Grants>,
        runtime: Arc<Runtime>,
        clock: Clock,
        path: &Path,
        ring: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let mut seen = record::read(path).unwrap_or_else(|error| {
            tracing::warn!(%error, path = %path.display(), "the watchdog's record cannot be read; it starts without one");
            EnforcerRecord::default()
        });
        let sights = runtime.sights();
        let there: BTreeSet<RuntimeName> = sights.into_iter().map(|sight| sight.name).collect();
        seen.keep(&there);
        Self {
            inner: Arc::new(EnforcerState {
                truth,
                beside: EnforcementBackends {
                    walls,
                    in_force: Mutex::default(),
                },
                grants,
                runtime,
                clock,
                record: path.to_owned(),
                ring: Box::new(ring),
                awake: Mutex::new(false),
                seen: Mutex::new(seen),
                counted: Mutex::default(),
            }),
        }
    }

    /// Begins to look where a container has a real share and no thread looks yet. To be called after every
    /// grant; costs a look at the grants.
    pub fn wake(&self) -> io::Result<()> {
        let mut awake = whole(&self.inner.awake);
        if *awake || self.inner.grants.granted().is_empty() {
            return Ok(());
        }
        let inner = Arc::downgrade(&self.inner);
        std::thread::Builder::new()
            .name("watchdog".to_owned())
            .spawn(move || watch(&inner))?;
        *awake = true;
        Ok(())
    }

    /// Whether a thread looks now.
    pub fn is_awake(&self) -> bool {
        *whole(&self.inner.awake)
    }

    /// Everything that was answered to containers that are not forgotten, oldest first for each.
    pub fn incidents(&self) -> Vec<WatchIncident> {
        whole(&self.inner.seen)
            .incidents
            .values()
            .flatten()
            .cloned()
            .collect()
    }

    /// Whether the watchdog froze this container: then nothing else resumes it.
    pub fn holds(&self, container: &RuntimeName) -> bool {
        whole(&self.inner.seen).frozen.contains(container)
    }

    /// What holds a device's slices now: the weakest of what is in force for any of them; None where none
    /// has one.
    pub fn hold(&self, device: &DeviceId) -> Option<Hold> {
        self.inner.beside.weakest(device)
    }

    /// Why containers are held by less than this machine has.
    pub fn problems(&self) -> Vec<Reason> {
        let all = whole(&self.inner.beside.in_force);
        all.values()
            .filter_map(|kept| kept.problem.clone())
            .collect()
    }

    /// Bytes that the driver counted for each container and device; those who hold nothing are left out.
    /// None where the driver does not answer, or was not asked lately.
    pub fn held(&self) -> Option<MemoryByDevice> {
        let counted = whole(&self.inner.counted);
        let (at, held) = counted.as_ref()?;
        (at.elapsed() < FRESH).then(|| held.clone())
    }

    /// Drops what is known of a container that is gone for good.
    pub fn forget(&self, container: &RuntimeName) {
        let mut seen = whole(&self.inner.seen);
        seen.incidents.remove(container);
        seen.frozen.remove(container);
        seen.cases.retain(|known| known.container != *container);
    }
}

impl EnforcerRecord {
    fn keep(&mut self, there: &BTreeSet<RuntimeName>) {
        self.incidents.retain(|name, _| there.contains(name));
        self.frozen.retain(|name| there.contains(name));
        self.cases.retain(|known| there.contains(&known.container));
    }
}

/// Values behind these locks are changed in one step each; a panic elsewhere leaves none half changed.
fn whole<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks until no container has a real share any more, or the machine is closed.
fn watch(inner: &Weak<EnforcerState>) {
    let Some(first) = inner.upgrade() else {
        return;
    };
    let mut eyes = EnforcerThread::open(&whole(&first.seen));
    drop(first);
    loop {
        let Some(inner) = inner.upgrade() else {
            return;
        };
        let granted = {
            // Under the lock, so that a share granted now finds either this thread or none.
            let mut awake = whole(&inner.awake);
            let granted = inner.grants.granted();
            if granted.is_empty() {
                *awake = false;
                whole(&inner.beside.in_force).clear();
                return;
            }
            granted
        };
        let looked = Instant::now();
        inner.look(&mut eyes, &granted);
        drop(inner);
        std::thread::sleep(Duration::from_nanos(POLL_INTERVAL).saturating_sub(looked.elapsed()));
    }
}

impl EnforcerState {
    /// One look at everybody.
    fn look(&self, eyes: &mut EnforcerThread, granted: &[MemoryGrant]) {
        let held = self.truth.held();
        let after: BTreeMap<(RuntimeName, DeviceId), Option<u64>> = self
            .grants
            .granted()
            .into_iter()
            .map(|grant| (grant.id(), grant.charged))
            .collect();
        let now = u64::try_from(eyes.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let used = held.map(|held| self.by_container(&held));
        let bytes = used.as_ref().map(|used| {
            let bytes = used.iter().map(|(id, mine)| (id.clone(), mine.bytes));
            (Instant::now(), bytes.collect())
        });
        *whole(&self.counted) = bytes;
        let there: BTreeSet<(RuntimeName, DeviceId)> =
            granted.iter().map(MemoryGrant::id).collect();
        eyes.keep(&there);
        whole(&self.beside.in_force).retain(|id, _| there.contains(id));
        let mut told = false;
        for grant in granted {
            let id = grant.id();
            let mine = used
                .as_ref()
                .map(|used| used.get(&id).copied().unwrap_or_default());
            let (mine, listed) = (
                mine.map(|mine| mine.bytes),
                mine.map_or(0, |mine| mine.processes),
            );
            told |= self
                .beside
                .hold(grant, || self.runtime.group_of(&grant.container));
            let allowed = eyes.allowed(grant, mine);
            let after = after.get(&id).copied().flatten();
            if let (Some(mine), Some(before), Some(after)) = (mine, grant.charged, after) {
                // Between the two, the driver was asked: the larger one is what it may have seen. A context that
                // was there before it was asked is in its figure whole, once it lists the process.
                let beyond = Beyond {
                    bytes: mine.saturating_sub(before.max(after)).min(grant.limit),
                    contexts: eyes.seen(&id, grant.contexts, listed),
                };
                if let Some(steady) = eyes.steady(&id, beyond) {
                    self.grants
                        .set_overhead(&grant.container, &grant.device, steady);
                }
            }
            if let Some(answer) = eyes.dog.look(now, id.clone(), mine, allowed) {
                told |= self.answer(eyes, grant, answer, mine.unwrap_or(0));
            }
        }
        self.write_down(eyes);
        if told {
            (self.ring)();
        }
        self.carry_out(eyes);
    }

    /// Writes what the next server has to know, where it is not what stands there.
    fn write_down(&self, eyes: &mut EnforcerThread) {
        let now = {
            let mut seen = whole(&self.seen);
            seen.cases = eyes.known();
            seen.clone()
        };
        if eyes.written.as_ref() == Some(&now) {
            return;
        }
        match record::write(&self.record, &now) {
            Ok(()) => eyes.written = Some(now),
            Err(error) => {
                tracing::warn!(%error, path = %self.record.display(), "what the watchdog knows cannot be written; a next server would start without it");
            }
        }
    }

    /// Sums what the driver says by container and device; processes of no container of ours are left
    /// out.
    fn by_container(
        &self,
        held: &[ProcessMemory],
    ) -> BTreeMap<(RuntimeName, DeviceId), ListedMemory> {
        let mut known: BTreeMap<u32, Option<RuntimeName>> = BTreeMap::new();
        let mut sums: BTreeMap<(RuntimeName, DeviceId), ListedMemory> = BTreeMap::new();
        for each in held {
            let container = known
                .entry(each.pid)
                .or_insert_with(|| self.runtime.container_of(each.pid));
            if let Some(container) = container {
                let sum = sums.entry((container.clone(), each.device)).or_default();
                sum.bytes = sum.bytes.saturating_add(each.bytes);
                sum.processes += 1;
            }
        }
        sums
    }

    /// Keeps an answer for those who ask, and notes what there is to do; whether there is something to tell.
    fn answer(
        &self,
        eyes: &mut EnforcerThread,
        grant: &MemoryGrant,
        answer: WatchdogAction,
        held: u64,
    ) -> bool {
        let id = grant.id();
        let thaws =
            answer == WatchdogAction::Clear && whole(&self.seen).frozen.contains(&grant.container);
        let told_lately = eyes
            .warned
            .get(&id)
            .is_some_and(|at| at.elapsed() < QUIET_AFTER_WARNING);
        let quiet =
            told_lately && !thaws && matches!(answer, WatchdogAction::Warn | WatchdogAction::Clear);
        match answer {
            WatchdogAction::Warn if !quiet => {
                eyes.warned.insert(id, Instant::now());
            }
            WatchdogAction::Warn | WatchdogAction::Clear => {}
            WatchdogAction::Freeze | WatchdogAction::Stop => {
                eyes.owed.insert(grant.container.clone(), answer);
            }
        }
        tracing::warn!(container = %grant.container, ?answer, held, limit = grant.limit, "more of a device's memory than was granted");
        if quiet {
            return false;
        }
        let incident = WatchIncident {
            id: uuid::Uuid::now_v7(),
            at: self.clock.now(),
            container: grant.container.clone(),
            device: grant.device,
            answer,
            held,
            limit: grant.limit,
        };
        let mut seen = whole(&self.seen);
        if answer == WatchdogAction::Freeze {
            // Before it is frozen: nothing may resume it in between.
            seen.frozen.insert(grant.container.clone());
        }
        // The reconciler resumes it where it is wanted; not while it is frozen for another device.
        if thaws && !eyes.is_frozen_elsewhere(grant) {
            seen.frozen.remove(&grant.container);
            eyes.owed.remove(&grant.container);
        }
        let told = seen.incidents.entry(grant.container.clone()).or_default();
        told.push(incident);
        if told.len() > TOLD {
            told.remove(0);
        }
        true
    }

    /// Does what is owed; what does not work is tried again at the next look.
    fn carry_out(&self, eyes: &mut EnforcerThread) {
        eyes.owed.retain(|container, answer| {
            let done = match answer {
                WatchdogAction::Freeze => self.runtime.pause(container),
                WatchdogAction::Stop => self.runtime.kill(container),
                WatchdogAction::Warn | WatchdogAction::Clear => Ok(()),
            };
            match done {
                Ok(()) => false,
                // It has ended by itself.
                Err(RuntimeFault::NotRunning(_) | RuntimeFault::Unknown(_)) => false,
                Err(fault) => {
                    tracing::error!(%container, ?answer, error = %chain(&fault), "the watchdog's answer is tried again");
                    true
                }
            }
        });
    }
}

impl EnforcementBackends {
    /// Has driver or kernel hold the container's control group to its limit, where that has not been done
    /// for this limit; whether something is to be told.
    fn hold(&self, grant: &MemoryGrant, group: impl FnOnce() -> Option<PathBuf>) -> bool {
        let id = grant.id();
        let offers = self.walls.offers(&grant.device);
        let known = whole(&self.in_force).get(&id).cloned();
        let as_it_is = known.as_ref().is_some_and(|kept| {
            let again = kept.problem.is_some() && kept.at.elapsed() >= TRIED_AGAIN;
            kept.limit == grant.limit && kept.offers == offers && !again
        });
        if as_it_is {
            return false;
        }
        // Version 1, where only our library enforces, or not made yet.
        let Some(group) = group() else {
            return false;
        };
        let part = LimitTarget::Slice { bytes: grant.limit };
        let before = known.as_ref().map_or(Wall::None, |kept| kept.wall.clone());
        let (wall, fault) = limits::hold(&*self.walls, &grant.device, &group, part, &before);
        let problem = fault.map(|fault| {
            let why = chain(&fault);
            let (container, limit) = (&grant.container, Bytes(grant.limit));
            let by = match &wall {
                Wall::Kernel { bytes, .. } => {
                    format!("the kernel holds it to {}, and our library", Bytes(*bytes))
                }
                Wall::Driver { bytes } => {
                    format!("the driver holds it to {}, and our library", Bytes(*bytes))
                }
                Wall::None | Wall::Hardware => "our library alone holds it".to_owned(),
            };
            reasons::gpu_wall_missing(container, limit, &why, &by)
        });
        let told =
            known.is_none_or(|kept| kept.wall.hold() != wall.hold() || kept.problem != problem);
        if told && let Some(problem) = &problem {
            tracing::warn!(container = %grant.container, code = problem.code, "{}", problem.text);
        }
        let now = AppliedLimit {
            limit: grant.limit,
            offers,
            wall,
            problem,
            at: Instant::now(),
        };
        whole(&self.in_force).insert(id, now);
        told
    }

    fn weakest(&self, device: &DeviceId) -> Option<Hold> {
        let all = whole(&self.in_force);
        let its = all.iter().filter(|((_, of), _)| of == device);
        its.map(|(_, kept)| kept.wall.hold())
            .min_by_key(|hold| *hold != Hold::Hook)
    }
}

impl Grants for Shares {
    fn granted(&self) -> Vec<MemoryGrant> {
        let mut all = Vec::new();
        for tenant in self.tenants() {
            // The runtime's word for the same container.
            let Ok(container) = RuntimeName::parse(&tenant.container.to_string()) else {
                continue;
            };
            all.extend(tenant.devices.iter().map(|device| MemoryGrant {
                container: container.clone(),
                device: device.uuid,
                limit: device.limit,
                charged: device.charged,
                contexts: device.contexts,
            }));
        }
        all
    }

    fn set_overhead(&self, container: &RuntimeName, device: &DeviceId, beyond: Beyond) {
        if let Ok(name) = container.as_str().parse() {
            // False for a container that has just gone.
            let _ = Shares::set_overhead(self, name, device, beyond.bytes, beyond.contexts);
        }
    }
}

impl MemoryGrant {
    fn id(&self) -> (RuntimeName, DeviceId) {
        (self.container.clone(), self.device)
    }
}

impl EnforcerThread {
    /// Having seen nothing but what others saw before.
    fn open(seen: &EnforcerRecord) -> Self {
        let mut eyes = Self {
            began: Instant::now(),
            dog: Watchdog::new(),
            allowed: BTreeMap::new(),
            overhead: BTreeMap::new(),
            unlisted: BTreeMap::new(),
            warned: BTreeMap::new(),
            owed: BTreeMap::new(),
            written: None,
        };
        for name in &seen.frozen {
            // Perhaps it was only meant to be; to do it twice does no harm.
            eyes.owed.insert(name.clone(), WatchdogAction::Freeze);
        }
        for known in &seen.cases {
            let id = (known.container.clone(), known.device);
            if let Some(answered) = known.answered {
                eyes.dog.go_on(0, id.clone(), answered);
            }
            if known.answered == Some(WatchdogAction::Stop) {
                eyes.owed
                    .insert(known.container.clone(), WatchdogAction::Stop);
            }
            eyes.allowed.insert(id, known.allowed);
        }
        eyes
    }

    /// What a container that is resumed later has to know.
    fn known(&self) -> Vec<WatchedContainer> {
        let answered: BTreeMap<_, _> = self.dog.answered().collect();
        self.allowed
            .iter()
            .map(|(id, allowed)| WatchedContainer {
                container: id.0.clone(),
                device: id.1,
                allowed: *allowed,
                answered: answered.get(id).copied(),
            })
            .collect()
    }

    /// Whether a container stands still for what it holds of another device.
    fn is_frozen_elsewhere(&self, grant: &MemoryGrant) -> bool {
        self.dog.answered().any(|((container, device), answered)| {
            *container == grant.container
                && *device != grant.device
                && matches!(answered, WatchdogAction::Freeze | WatchdogAction::Stop)
        })
    }

    fn keep(&mut self, there: &BTreeSet<(RuntimeName, DeviceId)>) {
        self.dog.keep(|id| there.contains(id));
        self.allowed.retain(|id, _| there.contains(id));
        self.overhead.retain(|id, _| there.contains(id));
        self.unlisted.retain(|id, _| there.contains(id));
        self.warned.retain(|id, _| there.contains(id));
        self.owed
            .retain(|name, _| there.iter().any(|(container, _)| container == name));
    }

    /// What a container may hold: see the field.
    fn allowed(&mut self, grant: &MemoryGrant, held: Option<u64>) -> u64 {
        let allowed = self.allowed.entry(grant.id()).or_insert(grant.limit);
        *allowed = match held {
            Some(held) => grant.limit.max(held.min(*allowed)),
            None => grant.limit.max(*allowed),
        };
        *allowed
    }

    /// How many of so many contexts the driver's figures count, that lists so many processes.
    fn seen(&mut self, id: &(RuntimeName, DeviceId), made: u32, listed: u32) -> u32 {
        let looks = self.unlisted.entry(id.clone()).or_default();
        if listed >= made {
            *looks = 0;
            return made;
        }
        *looks = looks.saturating_add(1);
        match *looks {
            UNLISTED_LOOKS.. => made,
            _ => listed,
        }
    }

    /// The overhead that stood through the last looks; None while there were too few.
    fn steady(&mut self, id: &(RuntimeName, DeviceId), beyond: Beyond) -> Option<Beyond> {
        let last = self.overhead.entry(id.clone()).or_default();
        last.push(beyond);
        if last.len() > STEADY_LOOKS {
            last.remove(0);
        }
        (last.len() == STEADY_LOOKS).then(|| Beyond {
            bytes: last.iter().map(|look| look.bytes).min().unwrap_or(0),
            contexts: last.iter().map(|look| look.contexts).min().unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn grant(limit: u64) -> MemoryGrant {
        MemoryGrant {
            container: RuntimeName::parse("s-1").expect("plain"),
            device: [7; 16],
            limit,
            charged: None,
            contexts: 0,
        }
    }

    #[test]
    fn what_was_known_is_known_to_the_next_and_only_of_those_that_exist() {
        let place = tempfile::tempdir().expect("a directory");
        let record = place.path().join("watchdog.json");
        let read = |path: &Path| record::read::<EnforcerRecord>(path);
        assert!(read(&record).expect("nothing is fine") == EnforcerRecord::default());
        let mut eyes = EnforcerThread::open(&EnforcerRecord::default());
        // Lowered below what it holds, which is no offence.
        assert_eq!(eyes.allowed(&grant(1000), Some(900)), 1000);
        assert_eq!(eyes.allowed(&grant(500), Some(900)), 900);
        eyes.dog.go_on(0, grant(500).id(), WatchdogAction::Freeze);
        let name = grant(1).container;
        let seen = EnforcerRecord {
            frozen: BTreeSet::from([name.clone()]),
            cases: eyes.known(),
            ..EnforcerRecord::default()
        };
        record::write(&record, &seen).expect("written");
        let mut later = read(&record).expect("readable");
        assert!(later == seen);
        let mut next = EnforcerThread::open(&later);
        assert_eq!(next.allowed(&grant(500), Some(900)), 900, "still none");
        assert_eq!(
            next.dog.answered().map(|(_, last)| last).next(),
            Some(WatchdogAction::Freeze)
        );
        assert_eq!(next.owed.get(&name), Some(&WatchdogAction::Freeze));
        later.keep(&BTreeSet::new());
        assert!(later == EnforcerRecord::default());
        fs::write(&record, "{").expect("written");
        assert!(read(&record).is_err());
    }

    /// Proves too: `whoever_gets_past_the_hooks_is_warned_frozen_and_stopped_and_their_neighbour_is_not`
    #[test]
    fn a_lowered_limit_accuses_nobody_until_they_take_more_again() {
        let mut eyes = EnforcerThread::open(&EnforcerRecord::default());
        assert_eq!(eyes.allowed(&grant(1000), Some(900)), 1000);
        assert_eq!(eyes.allowed(&grant(500), Some(900)), 900, "lowered");
        assert_eq!(eyes.allowed(&grant(500), None), 900, "nobody knows");
        assert_eq!(eyes.allowed(&grant(500), Some(700)), 700, "given back");
        assert_eq!(eyes.allowed(&grant(500), Some(900)), 700, "taken again");
        assert_eq!(eyes.allowed(&grant(500), Some(100)), 500);
        assert_eq!(eyes.allowed(&grant(2000), Some(1500)), 2000, "raised");
    }

    /// A card that the kernel lists, or no longer does.
    struct Listed(Mutex<Offers>);

    impl Walls for Listed {
        fn offers(&self, _: &DeviceId) -> Offers {
            whole(&self.0).clone()
        }

        fn ask_driver(
            &self,
            _: &DeviceId,
            _: &Path,
            _: Option<u64>,
        ) -> Result<(), limits::NotHeld> {
            unreachable!("it has no such call")
        }
    }

    #[test]
    fn the_kernel_holds_a_session_from_its_start_through_every_resize_and_a_failure_is_said() {
        let groups = tempfile::tempdir().expect("a directory");
        let group = groups.path().join("s-1");
        let file = group.join("dmem.max");
        let capacity = "drm/0000:41:00.0/vram0 8589934592\n";
        fs::write(groups.path().join("dmem.capacity"), capacity).expect("written");
        let offers = || Offers::find(Some(groups.path()), false, "0000:41:00.0");
        let walls = Arc::new(Listed(Mutex::new(offers())));
        let beside = EnforcementBackends {
            walls: Arc::clone(&walls) as Arc<dyn Walls>,
            in_force: Mutex::default(),
        };
        let there = || group.is_dir().then(|| group.clone());
        let hold = |limit| beside.hold(&grant(limit), there);
        let says = || fs::read_to_string(&file).expect("readable");
        let weakest = || beside.weakest(&[7; 16]);
        // Its shim has not made the group yet: no container is blamed, and it is looked at again.
        assert!(!hold(4096));
        assert_eq!(weakest(), None);
        fs::create_dir(&group).expect("made");
        fs::write(&file, "").expect("as the kernel shows it");
        assert!(hold(4096), "there is something to tell");
        assert_eq!(says(), "drm/0000:41:00.0/vram0 4096\n");
        assert_eq!(weakest(), Some(Hold::HookAndKernel));
        // Nothing is written while nothing changes; a resize is written once.
        fs::write(&file, "").expect("written");
        assert!(!hold(4096));
        assert_eq!(says(), "");
        assert!(!hold(8192), "held as before");
        assert_eq!(says(), "drm/0000:41:00.0/vram0 8192\n");
        // A kernel that takes the next one back: said once, and it counts as not enforced.
        fs::remove_file(&file).expect("removed");
        assert!(hold(4096));
        assert_eq!(weakest(), Some(Hold::Hook));
        let problem = |beside: &EnforcementBackends| {
            let all = whole(&beside.in_force);
            all.values().find_map(|kept| kept.problem.clone())
        };
        let said = problem(&beside).expect("it is a problem");
        assert_eq!(said.code, "gpu.wall-missing");
        assert!(said.text.contains("our library alone"), "{}", said.text);
        assert!(!hold(4096), "once");
        // Mended, and changed: no problem any more.
        fs::write(&file, "").expect("as the kernel shows it");
        assert!(hold(8192));
        assert_eq!(
            (weakest(), problem(&beside)),
            (Some(Hold::HookAndKernel), None)
        );
        // Its card went away from the kernel's list: our library alone, and nothing is wrong with that.
        fs::remove_file(groups.path().join("dmem.capacity")).expect("removed");
        *whole(&walls.0) = offers();
        assert!(hold(8192));
        assert_eq!((weakest(), problem(&beside)), (Some(Hold::Hook), None));
    }

    #[test]
    fn a_context_is_counted_once_it_is_listed_or_surely_never_will_be() {
        let mut eyes = EnforcerThread::open(&EnforcerRecord::default());
        let id = grant(1).id();
        assert_eq!(eyes.seen(&id, 0, 1), 0);
        assert_eq!(eyes.seen(&id, 2, 1), 1);
        assert_eq!(eyes.seen(&id, 2, 2), 2);
        for _ in 1..UNLISTED_LOOKS {
            assert_eq!(eyes.seen(&id, 2, 0), 0);
        }
        assert_eq!(eyes.seen(&id, 2, 0), 2);
    }

    #[test]
    fn a_moment_of_freeing_is_no_overhead() {
        let mut eyes = EnforcerThread::open(&EnforcerRecord::default());
        let id = grant(1).id();
        let beyond = |bytes, contexts| Beyond { bytes, contexts };
        assert_eq!(eyes.steady(&id, beyond(300, 1)), None);
        assert_eq!(eyes.steady(&id, beyond(10, 1)), Some(beyond(10, 1)));
        // One that was made since: what it takes did not stand through both.
        assert_eq!(eyes.steady(&id, beyond(300, 2)), Some(beyond(10, 1)));
        assert_eq!(eyes.steady(&id, beyond(300, 2)), Some(beyond(300, 2)));
        eyes.keep(&BTreeSet::new());
        assert!(eyes.overhead.is_empty() && eyes.allowed.is_empty());
    }
}
