//! What changes from moment to moment: how much of each card is in use, and which process holds how
//! much. Process numbers are the host's. Keeps nothing between two questions.

use std::collections::BTreeMap;

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use serde_json::{Value, json};

use crate::library::{NvmlLibrary, word};

/// Memory in use, per cent of the time that something ran, degrees Celsius and milliwatts, for each card.
pub(crate) fn of_cards(library: &NvmlLibrary) -> Result<Value, String> {
    each(library, |device| {
        let memory = device.memory_info().map_err(|fault| word(&fault))?;
        Ok(json!({
            "memory": memory.used,
            "busy": device.utilization_rates().ok().map(|rates| rates.gpu),
            "celsius": device.temperature(TemperatureSensor::Gpu).ok(),
            "milliwatts": device.power_usage().ok(),
        }))
    })
}

/// For each card, what each process holds of it. A process whose bytes the driver does not tell is left
/// out; a list that it does not give makes the answer an error, since it would accuse no container.
pub(crate) fn of_processes(library: &NvmlLibrary) -> Result<Value, String> {
    each(library, |device| {
        let mut held: BTreeMap<u32, u64> = BTreeMap::new();
        let lists = [
            device.running_compute_processes(),
            optional(device.running_graphics_processes()),
            optional(device.mps_running_compute_processes()),
        ];
        for list in lists {
            for process in list.map_err(|fault| word(&fault))? {
                // One process may stand in several lists, with the same figure.
                if let UsedGpuMemory::Used(bytes) = process.used_gpu_memory {
                    let most = held.entry(process.pid).or_default();
                    *most = bytes.max(*most);
                }
            }
        }
        Ok(json!({"held": held.into_iter().collect::<Vec<_>>()}))
    })
}

/// Cards without pictures, and drivers without a shared mode, have no such list.
fn optional<T>(list: Result<Vec<T>, NvmlError>) -> Result<Vec<T>, NvmlError> {
    match list {
        Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_)) => Ok(Vec::new()),
        told => told,
    }
}

/// The same question for every card, with its name in each answer; a card that does not answer has an
/// error in its place.
fn each(
    library: &NvmlLibrary,
    ask: impl Fn(&Device<'_>) -> Result<Value, String>,
) -> Result<Value, String> {
    let count = library.nvml.device_count().map_err(|fault| word(&fault))?;
    let cards: Vec<Value> = (0..count)
        .map(|index| {
            let device = match library.nvml.device_by_index(index) {
                Ok(device) => device,
                Err(fault) => return json!({"error": word(&fault)}),
            };
            let mut told = ask(&device).unwrap_or_else(|fault| json!({"error": fault}));
            told["uuid"] = json!(device.uuid().ok());
            told
        })
        .collect();
    Ok(json!({"cards": cards}))
}
