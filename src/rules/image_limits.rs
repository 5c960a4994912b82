//! The least and the most that a session of an image may ask for, and the shared memory that it gets where a launch names
//! none: as labels of the image say it, or as an administrator does. Pure; never reads a catalog.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::{Deserialize, Serialize};

use crate::process_limits::ProcessLimits;
use crate::refusal::Refusal;
use crate::refusals;
use crate::resources::Demand;
use crate::units::{Bytes, CpuShare, GpuShare};

/// What each container of a session may ask for. None of an amount: no bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageLimits {
    pub min_cpu: Option<CpuShare>,
    pub max_cpu: Option<CpuShare>,
    pub min_memory: Option<Bytes>,
    pub max_memory: Option<Bytes>,
    pub min_gpu: Option<GpuShare>,
    /// Zero: it takes no GPU.
    pub max_gpu: Option<GpuShare>,
    /// Size of /dev/shm where a launch names none; never more than the memory of the session.
    pub shm: Option<Bytes>,
    /// What processes may have more than is usual, where a launch says nothing of it.
    pub ulimits: ProcessLimits,
}

/// What the labels begin with, ours first; the second is that of Backend.AI.
const PREFIXES: [&str; 2] = ["fardel.", "ai.backend.resource."];

/// Labels that frameworks of NVIDIA's registry have.
const NGC_LABELS: [&str; 2] = ["com.nvidia.build.id", "com.nvidia.build.ref"];
/// The shared memory that NVIDIA recommends for them.
const NGC_SHM: Bytes = Bytes::gib(1);

impl ImageLimits {
    /// What labels say: `fardel.min.cpu`, `fardel.max.memory` and so on, else those of Backend.AI. A label that cannot be read
    /// says nothing, and neither does a maximum below its minimum: an image of others should still start. Images of NVIDIA's
    /// registry have what NVIDIA recommends.
    pub fn of_labels(labels: &BTreeMap<String, String>) -> Self {
        let said = |names: &[&str]| {
            PREFIXES.iter().find_map(|prefix| {
                names
                    .iter()
                    .find_map(|name| labels.get(&format!("{prefix}{name}")))
            })
        };
        let is_ngc = NGC_LABELS.iter().any(|name| labels.contains_key(*name));
        let of_vendor = match is_ngc {
            true => ProcessLimits::NGC,
            false => ProcessLimits::USUAL,
        };
        let cpu = |name: &str| CpuShare::parse(said(&[name])?).ok();
        let memory = |names: &[&str]| Bytes::parse(said(names)?).ok();
        let gpu = |names: &[&str]| GpuShare::parse(said(names)?).ok();
        let read = Self {
            min_cpu: cpu("min.cpu"),
            max_cpu: cpu("max.cpu").filter(|most| *most > CpuShare::ZERO),
            min_memory: memory(&["min.memory", "min.mem"]),
            max_memory: memory(&["max.memory", "max.mem"]).filter(|most| *most > Bytes::ZERO),
            min_gpu: gpu(&["min.gpu", "min.cuda.shares", "min.cuda.device"]),
            max_gpu: gpu(&["max.gpu", "max.cuda.shares", "max.cuda.device"]),
            shm: memory(&["shm", "preferred.shmem"]).or(is_ngc.then_some(NGC_SHM)),
            ulimits: said(&["ulimits"])
                .and_then(|text| ProcessLimits::parse(text).ok())
                .unwrap_or(of_vendor),
        }
        .plain();
        Self {
            max_cpu: read.max_cpu.filter(|most| read.min_cpu <= Some(*most)),
            max_memory: read
                .max_memory
                .filter(|most| read.min_memory <= Some(*most)),
            max_gpu: read.max_gpu.filter(|most| read.min_gpu <= Some(*most)),
            ..read
        }
    }

    /// The same without minimums of nothing.
    #[must_use]
    fn plain(self) -> Self {
        Self {
            min_cpu: self.min_cpu.filter(|least| *least > CpuShare::ZERO),
            min_memory: self.min_memory.filter(|least| *least > Bytes::ZERO),
            min_gpu: self.min_gpu.filter(|least| *least > GpuShare::ZERO),
            shm: self.shm.filter(|size| *size > Bytes::ZERO),
            ..self
        }
    }

    /// What an administrator gives, without minimums of nothing.
    ///
    /// Errors: `image.limits-crossed` at the maximum that is below its minimum.
    pub fn checked(self) -> Result<Self, Refusal> {
        let plain = self.plain();
        uncrossed("cpu", "/max_cpu", plain.min_cpu, plain.max_cpu)?;
        uncrossed("memory", "/max_memory", plain.min_memory, plain.max_memory)?;
        uncrossed("gpu", "/max_gpu", plain.min_gpu, plain.max_gpu)?;
        Ok(plain)
    }

    /// Refuses a container that asks for less or for more than the image called `image` bounds it to. `gpu`: what it asks for
    /// of devices, a partition counted as its share.
    ///
    /// Errors: `image.minimum`, `image.maximum`, each at its field.
    pub fn check(&self, image: &str, each: &Demand, gpu: GpuShare) -> Result<(), Refusal> {
        let bounds = (self.min_cpu, self.max_cpu);
        within(image, "cpu", "/resources/cpu", bounds, each.cpu)?;
        let bounds = (self.min_memory, self.max_memory);
        within(image, "memory", "/resources/memory", bounds, each.memory)?;
        let bounds = (self.min_gpu, self.max_gpu);
        within(image, "gpu", "/resources/gpu", bounds, gpu)
    }

    /// The processor time of a launch that names none.
    pub fn usual_cpu(&self, usual: CpuShare) -> CpuShare {
        let raised = usual.max(self.min_cpu.unwrap_or_default());
        self.max_cpu.map_or(raised, |most| raised.min(most))
    }

    /// The memory of a launch that names none.
    pub fn usual_memory(&self, usual: Bytes) -> Bytes {
        let raised = usual.max(self.min_memory.unwrap_or_default());
        self.max_memory.map_or(raised, |most| raised.min(most))
    }

    /// `cpu=2..8 memory=4 GiB.. gpu=..1 shm=1 GiB`, as the journal and the command line say it; empty where nothing is bound.
    pub fn figures(&self) -> String {
        let mut all = Vec::new();
        all.extend(range("cpu", self.min_cpu, self.max_cpu));
        all.extend(range("memory", self.min_memory, self.max_memory));
        all.extend(range("gpu", self.min_gpu, self.max_gpu));
        all.extend(self.shm.map(|size| format!("shm={size}")));
        if !self.ulimits.is_usual() {
            all.push(self.ulimits.to_string());
        }
        all.join(" ")
    }
}

fn range<T: Display>(key: &str, least: Option<T>, most: Option<T>) -> Option<String> {
    if least.is_none() && most.is_none() {
        return None;
    }
    let said = |bound: Option<T>| bound.map_or_else(String::new, |bound| bound.to_string());
    Some(format!("{key}={}..{}", said(least), said(most)))
}

fn uncrossed<T: PartialOrd + Display>(
    key: &str,
    pointer: &str,
    least: Option<T>,
    most: Option<T>,
) -> Result<(), Refusal> {
    match (least, most) {
        (Some(least), Some(most)) if most < least => {
            Err(refusals::image_limits_crossed(key, most, least).at(pointer))
        }
        _ => Ok(()),
    }
}

fn within<T: PartialOrd + Display>(
    image: &str,
    key: &str,
    pointer: &str,
    (least, most): (Option<T>, Option<T>),
    asked: T,
) -> Result<(), Refusal> {
    if let Some(least) = least
        && asked < least
    {
        return Err(refusals::image_minimum(image, least, key, asked).at(pointer));
    }
    if let Some(most) = most
        && asked > most
    {
        return Err(refusals::image_maximum(image, most, key, asked).at(pointer));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        all.iter().map(own).collect()
    }

    #[test]
    fn labels_of_ours_win_over_those_of_others() {
        let read = ImageLimits::of_labels(&labels(&[
            ("fardel.min.cpu", "2"),
            ("ai.backend.resource.min.cpu", "1"),
            ("ai.backend.resource.min.mem", "256m"),
            ("ai.backend.resource.max.cuda.device", "0"),
            ("fardel.shm", "1g"),
        ]));
        let wanted = ImageLimits {
            min_cpu: Some(CpuShare(200)),
            min_memory: Some(Bytes::mib(256)),
            max_gpu: Some(GpuShare::ZERO),
            shm: Some(Bytes::gib(1)),
            ..ImageLimits::default()
        };
        assert_eq!(read, wanted);
        assert_eq!(read.figures(), "cpu=2.. memory=256 MiB.. gpu=..0 shm=1 GiB");
    }

    #[test]
    fn images_of_nvidias_registry_have_what_nvidia_recommends() {
        let ngc = ("com.nvidia.build.id", "12345");
        let read = ImageLimits::of_labels(&labels(&[ngc]));
        assert_eq!(read.figures(), "shm=1 GiB memlock=unlimited,stack=64m");
        let own = [ngc, ("fardel.shm", "8g"), ("fardel.ulimits", "default")];
        let read = ImageLimits::of_labels(&labels(&own));
        assert_eq!(read.figures(), "shm=8 GiB");
    }

    #[test]
    fn labels_that_cannot_be_read_bind_nothing() {
        for all in [
            &[("fardel.min.cpu", "many")][..],
            &[("fardel.min.memory", "-1")],
            &[("fardel.min.gpu", "0"), ("fardel.min.cpu", "0")],
            &[("fardel.max.cpu", "0"), ("fardel.max.memory", "0")],
            &[("fardel.ulimits", "nofile=1")],
        ] {
            assert_eq!(ImageLimits::of_labels(&labels(all)), ImageLimits::default());
        }
        let crossed = labels(&[("fardel.min.cpu", "4"), ("fardel.max.cpu", "2")]);
        let read = ImageLimits::of_labels(&crossed);
        assert_eq!((read.min_cpu, read.max_cpu), (Some(CpuShare(400)), None));
    }

    #[test]
    fn each_amount_is_refused_at_its_field() {
        let limits = ImageLimits {
            min_cpu: Some(CpuShare(200)),
            max_cpu: Some(CpuShare(400)),
            min_memory: Some(Bytes::gib(2)),
            max_memory: Some(Bytes::gib(8)),
            min_gpu: Some(GpuShare(50)),
            max_gpu: Some(GpuShare(100)),
            ..ImageLimits::default()
        };
        let asked = |cpu, memory, gpu| {
            let each = Demand {
                cpu: CpuShare(cpu),
                memory: Bytes::gib(memory),
                ..Demand::default()
            };
            let checked = limits.check("tools:1", &each, GpuShare(gpu));
            checked.map_err(|refusal| (refusal.code, refusal.pointer.unwrap_or_default()))
        };
        assert_eq!(asked(200, 2, 50), Ok(()));
        assert_eq!(asked(400, 8, 100), Ok(()));
        for (wanted, field, found) in [
            ("image.minimum", "/resources/cpu", asked(199, 2, 50)),
            ("image.maximum", "/resources/cpu", asked(401, 2, 50)),
            ("image.minimum", "/resources/memory", asked(200, 1, 50)),
            ("image.maximum", "/resources/memory", asked(200, 9, 50)),
            ("image.minimum", "/resources/gpu", asked(200, 2, 0)),
            ("image.maximum", "/resources/gpu", asked(200, 2, 101)),
        ] {
            assert_eq!(found, Err((wanted.to_owned(), field.to_owned())));
        }
    }

    #[test]
    fn an_administrator_gives_no_maximum_below_its_minimum() {
        let crossed = ImageLimits {
            min_memory: Some(Bytes::gib(2)),
            max_memory: Some(Bytes::gib(1)),
            ..ImageLimits::default()
        };
        let refusal = crossed.checked().unwrap_err();
        assert_eq!(refusal.code, crate::codes::IMAGE_LIMITS_CROSSED);
        let nothing = ImageLimits {
            min_cpu: Some(CpuShare::ZERO),
            ..ImageLimits::default()
        };
        assert_eq!(nothing.checked(), Ok(ImageLimits::default()));
    }

    #[test]
    fn a_launch_that_names_no_amount_gets_what_the_image_needs() {
        let limits = ImageLimits {
            min_cpu: Some(CpuShare(400)),
            max_memory: Some(Bytes::mib(512)),
            ..ImageLimits::default()
        };
        assert_eq!(limits.usual_cpu(CpuShare(100)), CpuShare(400));
        assert_eq!(limits.usual_memory(Bytes::gib(1)), Bytes::mib(512));
    }
}
