//! What the driver says of each card: identity, size, links, partitions and marks of wear. Fields that
//! a card or an older driver lacks are null. Draws no conclusion.

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError};
use serde_json::{Value, json};

use crate::library::{NvmlLibrary, word};

/// Links that are looked at; the largest card of this generation has 36.
const MAX_LINKS: u32 = 36;

/// Every card in the driver's own order, and the faults since the last question.
pub(crate) fn all(library: &NvmlLibrary) -> Result<Value, String> {
    let nvml = library.nvml;
    let count = nvml.device_count().map_err(|fault| word(&fault))?;
    let cards: Vec<Value> = (0..count)
        .map(|index| match nvml.device_by_index(index) {
            Ok(device) => one(library, &device),
            Err(fault) => json!({"error": word(&fault)}),
        })
        .collect();
    let faults: Vec<Value> = library
        .faults()
        .into_iter()
        .map(|(uuid, number)| json!({"uuid": uuid, "number": number}))
        .collect();
    Ok(json!({
        "driver": nvml.sys_driver_version().ok(),
        "cards": cards,
        "faults": faults,
        "limits": library.limits.is_some(),
    }))
}

fn one(library: &NvmlLibrary, device: &Device<'_>) -> Value {
    let memory = device.memory_info();
    // Cards that fall off the bus keep their handle, and say so for each question.
    let error = match &memory {
        Err(fault) => Some(word(fault)),
        Ok(_) => None,
    };
    let ability = device.cuda_compute_capability().ok();
    json!({
        "error": error,
        "uuid": device.uuid().ok(),
        "model": device.name().ok(),
        "pci": device.pci_info().ok().map(|pci| pci.bus_id),
        "minor": device.minor_number().ok(),
        "memory": memory.ok().map(|memory| memory.total),
        "cores": device.num_cores().ok(),
        "ability": ability.map(|ability| [ability.major, ability.minor]),
        "links": links(library, device),
        "parts": parts(library, device),
        "uncorrected_errors": device
            .total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile)
            .ok(),
        "retirement_pending": device.are_pages_pending_retired().ok(),
        "remapped_rows": library.remapped_rows(device),
        "slowed_by": device.current_throttle_reasons().ok().map(|reasons| reasons.bits()),
    })
}

/// The live links: where each leads, and whether that is a switch.
fn links(library: &NvmlLibrary, device: &Device<'_>) -> Vec<Value> {
    (0..MAX_LINKS)
        .map(|number| (number, device.link_wrapper_for(number)))
        .take_while(|(_, link)| link.is_active().is_ok())
        .filter(|(_, link)| link.is_active().unwrap_or(false))
        .map(|(number, link)| {
            json!({
                "pci": link.remote_pci_info().ok().map(|pci| pci.bus_id),
                "switch": library.leads_to_switch(device, number),
            })
        })
        .collect()
}

/// The partitions of a card that is cut; null where it is whole or cannot be cut.
fn parts(library: &NvmlLibrary, device: &Device<'_>) -> Option<Vec<Value>> {
    const CUT: u32 = 1;
    if device.mig_mode().ok()?.current != CUT {
        return None;
    }
    let most = device.mig_device_count().unwrap_or(0);
    let parts = (0..most).filter_map(|number| device.mig_device_by_index(number).ok());
    Some(
        parts
            .map(|part| {
                json!({
                    "uuid": part.uuid().ok(),
                    "model": part.name().ok(),
                    "memory": part.memory_info().ok().map(|memory| memory.total),
                    "multiprocessors": part.attributes().ok().map(|has| has.multiprocessor_count),
                    "instances": library.instances(&part),
                })
            })
            .collect(),
    )
}
