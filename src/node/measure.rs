//! What running containers use at this moment: processors and memory as their control groups say, devices as
//! the driver and whoever gives turns say. Changes nothing, and waits for no driver. Of simulated devices it
//! says what is made up, marked so.

use std::collections::BTreeMap;
use std::sync::Arc;

use rules::messages::{ContainerUsage, DeviceUse, SliceUse};
use rules::names::ContainerName;
use rules::resources::{Device, DeviceShare};
use rules::units::{Bytes, Timestamp};

use crate::enforcer::{Enforcer, MemoryByDevice};
use crate::gpu::meter::{BusyTimeSource, Meter};
use crate::gpu::monitor::DeviceMonitor;
use crate::gpu::shares::{DeviceWork, Shares};
use crate::gpu::{simulated, time_slicing};
use crate::report;
use crate::runtime::{self, Runtime};

/// Everybody who knows something.
pub(crate) struct MeasureSources<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) shares: &'a Shares,
    pub(crate) watch: Option<&'a Enforcer>,
    pub(crate) monitor: Option<&'a Arc<DeviceMonitor>>,
    /// What this machine says it has besides what is found; simulated ones.
    pub(crate) devices: &'a [Device],
    /// The shares of devices, simulated ones included, that those which run are held to.
    pub(crate) grants: &'a BTreeMap<ContainerName, Vec<DeviceShare>>,
    pub(crate) time: Timestamp,
}

/// What was measured last.
#[derive(Default)]
pub(crate) struct Measurements {
    /// Of containers that run.
    pub(crate) usage: BTreeMap<ContainerName, ContainerUsage>,
    /// Of simulated devices, what their slices come to.
    pub(crate) made_up: Vec<DeviceUse>,
    meter: Meter,
}

/// The same for all containers of one look.
struct MeasurePass<'a> {
    sources: &'a MeasureSources<'a>,
    work: BTreeMap<ContainerName, Vec<DeviceWork>>,
    held: Option<MemoryByDevice>,
    cards: Vec<DeviceUse>,
    now: u64,
}

impl Measurements {
    /// Measures everybody anew. Costs a few reads of files each, and one of half a megabyte for each share of
    /// a device of which the driver says nothing.
    pub(crate) fn again(&mut self, sources: &MeasureSources<'_>) {
        let look = MeasurePass {
            sources,
            work: sources.shares.work(),
            held: sources.watch.and_then(Enforcer::held),
            cards: sources
                .monitor
                .map(|monitor| monitor.seen().uses)
                .unwrap_or_default(),
            now: time_slicing::now(),
        };
        self.usage.clear();
        let simulated = sources.devices.iter().filter(|device| device.simulated);
        self.made_up = simulated
            .map(|device| DeviceUse {
                device: device.index,
                memory: Some(Bytes::ZERO),
                busy_percent: Some(0),
                celsius: None,
                milliwatts: None,
            })
            .collect();
        for sight in sources.runtime.sights() {
            let runtime::RuntimePhase::Running { since, paused, .. } = sight.standing else {
                continue;
            };
            let Ok(name) = sight.name.as_str().parse::<ContainerName>() else {
                continue;
            };
            let Ok(used) = sources.runtime.usage(&sight.name) else {
                continue;
            };
            let mut usage = report::usage(&used);
            usage.devices = look.real(&mut self.meter, name, &sight.name);
            let since = Timestamp::from_millis(i64::try_from(since).unwrap_or(i64::MAX));
            let made_up = look.made_up(&mut self.meter, name, since, paused);
            for (share, percent, slice) in made_up {
                self.sum(&share, percent, &slice);
                usage.devices.push(slice);
            }
            self.usage.insert(name, usage);
        }
        let usage = &self.usage;
        self.meter.keep(|name| usage.contains_key(&name));
    }

    /// Drops what was measured of a container that is forgotten.
    pub(crate) fn forget(&mut self, name: ContainerName) {
        self.usage.remove(&name);
    }

    /// Adds a made-up slice to its made-up device.
    fn sum(&mut self, share: &DeviceShare, percent: u32, slice: &SliceUse) {
        let known = self
            .made_up
            .iter_mut()
            .find(|doing| doing.device == share.index);
        if let Some(doing) = known {
            let busy = (share.share.0 * percent).div_ceil(100);
            let memory = slice.memory.unwrap_or_default();
            doing.memory = doing.memory.map(|before| before + memory);
            doing.busy_percent = doing.busy_percent.map(|before| (before + busy).min(100));
        }
    }
}

impl MeasurePass<'_> {
    fn real(
        &self,
        meter: &mut Meter,
        name: ContainerName,
        inside: &runtime::RuntimeName,
    ) -> Vec<SliceUse> {
        let work = self.work.get(&name).into_iter().flatten();
        work.map(|work| {
            let share = work.share;
            let told = self.told(work);
            let time = self.sources.time;
            let id = (name, share.index, share.part);
            let read = meter.read(id, work.share_milli, told, self.now, time);
            SliceUse {
                device: share.index,
                part: share.part,
                memory: self.memory(name, inside, work).map(Bytes),
                worked: read.worked,
                idle_since: read.idle_since,
                simulated: false,
            }
        })
        .collect()
    }

    /// Whoever takes turns is followed there. Whoever has a card alone is what the driver says of the card;
    /// of partitions it says nothing.
    fn told(&self, work: &DeviceWork) -> BusyTimeSource {
        if let Some(turns) = work.turns {
            return BusyTimeSource::Turns(turns);
        }
        let card = self
            .cards
            .iter()
            .find(|card| card.device == work.share.index)
            .and_then(|card| card.busy_percent)
            .filter(|_| work.alone && work.share.part.is_none());
        card.map_or(BusyTimeSource::Nothing, |percent| BusyTimeSource::Card {
            percent,
        })
    }

    /// As the driver counts it. Where it does not answer, and for partitions, whose processes it lists by
    /// card: what the container's own page says, which its own processes could garble, up to its limit.
    fn memory(
        &self,
        name: ContainerName,
        inside: &runtime::RuntimeName,
        work: &DeviceWork,
    ) -> Option<u64> {
        match (&self.held, work.share.part) {
            (Some(held), None) => {
                let id = (inside.clone(), work.uuid);
                Some(held.get(&id).copied().unwrap_or(0))
            }
            _ => self.sources.shares.says(name, &work.uuid),
        }
    }

    fn made_up(
        &self,
        meter: &mut Meter,
        name: ContainerName,
        since: Timestamp,
        paused: bool,
    ) -> Vec<(DeviceShare, u32, SliceUse)> {
        let shares = self.sources.grants.get(&name).into_iter().flatten();
        let simulated = shares.filter(|share| share.simulated);
        simulated
            .map(|share| {
                let ran = self.sources.time.millis_since(since);
                let (mut percent, memory) = simulated::doing(name, share, ran);
                if paused {
                    percent = 0;
                }
                let id = (name, share.index, share.part);
                let (milli, told) = (share.share.0 * 10, BusyTimeSource::MadeUp { percent });
                let read = meter.read(id, milli, told, self.now, self.sources.time);
                let slice = SliceUse {
                    device: share.index,
                    part: share.part,
                    memory: Some(memory),
                    worked: read.worked,
                    idle_since: read.idle_since,
                    simulated: true,
                };
                (*share, percent, slice)
            })
            .collect()
    }
}
