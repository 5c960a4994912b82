//! The one question that changes a device: a card that nothing runs on is cut into other partitions, or
//! made whole again. Whoever asks has made sure that nobody runs there; the driver refuses where somebody
//! does. Resets no device: a card that needs that says so.

use std::ffi::{CStr, c_uint};
use std::mem;

use nvml_wrapper::Device;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper_sys::bindings::{
    NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, NVML_COMPUTE_INSTANCE_PROFILE_COUNT,
    NVML_GPU_INSTANCE_PROFILE_COUNT, nvmlComputeInstance_t, nvmlGpuInstance_t,
    nvmlGpuInstanceProfileInfo_v2_t,
};
use serde_json::{Value, json};

use crate::library::{NvmlLibrary, word};

/// Partitions of one card at most, and compute instances of one partition.
const MAX_INSTANCES: usize = 8;

/// A size of partition that the driver offers for a card.
struct Offer {
    id: c_uint,
    /// The word people know it by, `3g.40gb`.
    word: String,
    slices: c_uint,
    memory: u64,
}

/// Cuts the card of this name into these sizes, largest first; none makes it whole. Answers nothing in
/// particular: what stands then is asked anew.
///
/// Errors: the step that the driver refused, in words, with its own. Partitions made before that step are
/// taken away again: the card is then set to be cut and has none, and is given to nobody.
pub(crate) fn partition(library: &NvmlLibrary, asked: &Value) -> Result<Value, String> {
    let uuid = asked["card"].as_str().ok_or("which card is not said")?;
    let sizes: Vec<&str> = asked["sizes"]
        .as_array()
        .ok_or("which sizes is not said")?
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let nvml = library.nvml;
    let count = nvml.device_count().map_err(|fault| word(&fault))?;
    let device = (0..count)
        .filter_map(|index| nvml.device_by_index(index).ok())
        .find(|device| device.uuid().is_ok_and(|own| own == uuid))
        .ok_or("there is no such card")?;
    let card = ProbedCard {
        library,
        device: &device,
    };
    if card.is_partitioned()? {
        card.clear()?;
    }
    card.mode(!sizes.is_empty())?;
    let made = card.make(&sizes);
    if made.is_err() {
        // The first fault is the one to tell.
        let _ = card.clear();
    }
    made.map(|()| json!({}))
}

struct ProbedCard<'a> {
    library: &'a NvmlLibrary,
    device: &'a Device<'a>,
}

fn step<T>(what: &str, done: Result<T, NvmlError>) -> Result<T, String> {
    done.map_err(|fault| format!("{what}: {}", word(&fault)))
}

impl ProbedCard<'_> {
    fn is_partitioned(&self) -> Result<bool, String> {
        let mode = step("asking how it is set", self.device.mig_mode())?;
        Ok(mode.current == 1)
    }

    /// Sets whether it is to be cut at all. Older cards take that on only with a reset.
    fn mode(&self, partitioned: bool) -> Result<(), String> {
        if self.is_partitioned()? == partitioned {
            return Ok(());
        }
        let what = match partitioned {
            true => "setting it to be partitioned",
            false => "setting it to be whole",
        };
        step(what, self.device.set_mig_mode(partitioned))?;
        match self.is_partitioned()? == partitioned {
            true => Ok(()),
            false => Err(format!(
                "{what}: the card takes it on with its next reset, or with the machine's next start"
            )),
        }
    }

    /// Every size that the driver offers for this card.
    fn offers(&self) -> Result<Vec<Offer>, String> {
        let sym = self.library.nvml.lib();
        let ask = nvml_sym(sym.nvmlDeviceGetGpuInstanceProfileInfoV.as_ref());
        let ask = step("asking for its sizes", ask)?;
        // SAFETY: numbers and text, all of which may be zero.
        let empty: nvmlGpuInstanceProfileInfo_v2_t = unsafe { mem::zeroed() };
        let version = mem::size_of::<nvmlGpuInstanceProfileInfo_v2_t>() as c_uint | 2 << 24;
        let offers = (0..NVML_GPU_INSTANCE_PROFILE_COUNT).filter_map(|profile| {
            let mut told = nvmlGpuInstanceProfileInfo_v2_t { version, ..empty };
            // SAFETY: the handle is the library's own, and it writes what its version says.
            nvml_try(unsafe { ask(self.device.handle(), profile, &mut told) }).ok()?;
            told.name[told.name.len() - 1] = 0;
            // SAFETY: it ends with a zero, by the line above.
            let name = unsafe { CStr::from_ptr(told.name.as_ptr()) };
            let name = name.to_string_lossy();
            Some(Offer {
                id: told.id,
                word: name.split_whitespace().next_back()?.to_owned(),
                slices: told.sliceCount,
                memory: told.memorySizeMB,
            })
        });
        Ok(offers.collect())
    }

    /// Takes every partition away.
    fn clear(&self) -> Result<(), String> {
        let sym = self.library.nvml.lib();
        let destroy = step(
            "taking a partition away",
            nvml_sym(sym.nvmlGpuInstanceDestroy.as_ref()),
        )?;
        let list = step(
            "listing its partitions",
            nvml_sym(sym.nvmlDeviceGetGpuInstances.as_ref()),
        )?;
        for offer in self.offers()? {
            let mut found: [nvmlGpuInstance_t; MAX_INSTANCES] =
                [std::ptr::null_mut(); MAX_INSTANCES];
            let mut count = MAX_INSTANCES as c_uint;
            // SAFETY: the handle is the library's own, and there is room for all that a card can have.
            let listed = unsafe {
                list(
                    self.device.handle(),
                    offer.id,
                    found.as_mut_ptr(),
                    &mut count,
                )
            };
            step("listing its partitions", nvml_try(listed))?;
            for part in found.into_iter().take(count as usize) {
                self.empty(part)?;
                // SAFETY: the library's own, and alive until here.
                let gone = nvml_try(unsafe { destroy(part) });
                step(&format!("taking a {} away", offer.word), gone)?;
            }
        }
        Ok(())
    }

    /// Sizes of compute instances that a partition offers: number, and slices.
    fn inner(&self, part: nvmlGpuInstance_t) -> Result<Vec<(c_uint, c_uint)>, String> {
        let sym = self.library.nvml.lib();
        let ask = nvml_sym(sym.nvmlGpuInstanceGetComputeInstanceProfileInfo.as_ref());
        let ask = step("asking a partition for its sizes", ask)?;
        let offers = (0..NVML_COMPUTE_INSTANCE_PROFILE_COUNT).filter_map(|profile| {
            // SAFETY: numbers, all of which may be zero.
            let mut told = unsafe { mem::zeroed() };
            // SAFETY: the library's own handle, and a place for what it tells.
            let code = unsafe {
                ask(
                    part,
                    profile,
                    NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED,
                    &mut told,
                )
            };
            nvml_try(code).ok()?;
            Some((told.id, told.sliceCount))
        });
        Ok(offers.collect())
    }

    /// Takes a partition's compute instances away.
    fn empty(&self, part: nvmlGpuInstance_t) -> Result<(), String> {
        let what = "taking a compute instance away";
        let sym = self.library.nvml.lib();
        let list = step(
            what,
            nvml_sym(sym.nvmlGpuInstanceGetComputeInstances.as_ref()),
        )?;
        let destroy = step(what, nvml_sym(sym.nvmlComputeInstanceDestroy.as_ref()))?;
        for (id, _) in self.inner(part)? {
            let mut found: [nvmlComputeInstance_t; MAX_INSTANCES] =
                [std::ptr::null_mut(); MAX_INSTANCES];
            let mut count = MAX_INSTANCES as c_uint;
            // SAFETY: the library's own handle, and room for all that a partition can have.
            let listed = unsafe { list(part, id, found.as_mut_ptr(), &mut count) };
            step(what, nvml_try(listed))?;
            for instance in found.into_iter().take(count as usize) {
                // SAFETY: the library's own, and alive until here.
                step(what, nvml_try(unsafe { destroy(instance) }))?;
            }
        }
        Ok(())
    }

    /// Makes these sizes, each with one compute instance of all its slices.
    fn make(&self, sizes: &[&str]) -> Result<(), String> {
        if sizes.is_empty() {
            return Ok(());
        }
        let sym = self.library.nvml.lib();
        let create = step(
            "making a partition",
            nvml_sym(sym.nvmlDeviceCreateGpuInstance.as_ref()),
        )?;
        let inside = step(
            "making a compute instance",
            nvml_sym(sym.nvmlGpuInstanceCreateComputeInstance.as_ref()),
        )?;
        let offers = self.offers()?;
        let mut wanted = Vec::new();
        for size in sizes {
            let offer = offers.iter().find(|offer| offer.word == *size);
            wanted.push(offer.ok_or_else(|| format!("its driver offers no {size}"))?);
        }
        // The driver puts each at its first free place: a small one first may stand in a large one's.
        wanted.sort_by_key(|offer| std::cmp::Reverse((offer.memory, offer.slices)));
        for offer in wanted {
            let mut part: nvmlGpuInstance_t = std::ptr::null_mut();
            // SAFETY: the handle is the library's own, and it writes one handle.
            let made = nvml_try(unsafe { create(self.device.handle(), offer.id, &mut part) });
            step(&format!("making a {}", offer.word), made)?;
            let sizes = self.inner(part)?;
            let whole = sizes.iter().find(|(_, slices)| *slices == offer.slices);
            let (id, _) = whole.ok_or_else(|| {
                format!(
                    "a {} offers no compute instance of all its slices",
                    offer.word
                )
            })?;
            let mut instance: nvmlComputeInstance_t = std::ptr::null_mut();
            // SAFETY: as above.
            let made = nvml_try(unsafe { inside(part, *id, &mut instance) });
            step("making a compute instance", made)?;
        }
        Ok(())
    }
}
