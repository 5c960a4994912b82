//! The vendor's library, opened, with the few calls that the wrapper lacks or gets wrong. Never closed:
//! it goes with the process.

use std::ffi::{OsStr, c_uint};

use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, EventSet, Nvml};
use nvml_wrapper_sys::bindings::{nvmlEventTypeXidCriticalError, nvmlReturn_enum_NVML_SUCCESS};

use crate::limit_call;

/// Events that are fetched for one answer at most; the rest waits for the next question.
const MAX_EVENTS: usize = 64;

pub(crate) struct NvmlLibrary {
    pub(crate) nvml: &'static Nvml,
    /// Where faults that the driver reports arrive; None where it reports none.
    events: Option<EventSet<'static>>,
    /// Its call for limits of control groups; None in older ones.
    pub(crate) limits: Option<limit_call::Call>,
}

impl NvmlLibrary {
    pub(crate) fn open(path: &OsStr) -> Result<Self, String> {
        let nvml = Nvml::builder().lib_path(path).init();
        let nvml: &'static Nvml = Box::leak(Box::new(nvml.map_err(|fault| fault.to_string())?));
        Ok(Self {
            nvml,
            limits: limit_call::call(path),
            events: nvml.create_event_set().ok().inspect(|set| {
                for index in 0..nvml.device_count().unwrap_or(0) {
                    if let Ok(device) = nvml.device_by_index(index) {
                        register(nvml, &device, set);
                    }
                }
            }),
        })
    }

    /// Faults (numbered by the vendor as Xid) since the last question, each with its card's name.
    pub(crate) fn faults(&self) -> Vec<(String, u64)> {
        let mut faults = Vec::new();
        let Some(events) = &self.events else {
            return faults;
        };
        while faults.len() < MAX_EVENTS {
            let Ok(event) = events.wait(0) else { break };
            if let (Ok(uuid), Some(XidError::Value(number))) =
                (event.device.uuid(), event.event_data)
            {
                faults.push((uuid, number));
            }
        }
        faults
    }

    /// Whether the other end of a link is a switch; None where the driver does not say. The wrapper's own
    /// function reads nothing back.
    pub(crate) fn leads_to_switch(&self, device: &Device<'_>, link: u32) -> Option<bool> {
        const SWITCH: c_uint = 2;
        let ask = self.nvml.lib().nvmlDeviceGetNvLinkRemoteDeviceType.as_ref();
        let mut kind: c_uint = 0;
        // SAFETY: the handle is the library's own, and it writes one number.
        let code = unsafe { ask.ok()?(device.handle(), link, &mut kind) };
        (code == nvmlReturn_enum_NVML_SUCCESS).then_some(kind == SWITCH)
    }

    /// Rows of memory that were replaced after errors: corrected, uncorrected; whether some wait for a
    /// reset, and whether replacing failed. None on cards without such rows.
    pub(crate) fn remapped_rows(&self, device: &Device<'_>) -> Option<[u32; 4]> {
        let ask = self.nvml.lib().nvmlDeviceGetRemappedRows.as_ref();
        let [mut corrected, mut uncorrected, mut pending, mut failed] = [0; 4];
        // SAFETY: as above, four numbers.
        let code = unsafe {
            ask.ok()?(
                device.handle(),
                &mut corrected,
                &mut uncorrected,
                &mut pending,
                &mut failed,
            )
        };
        (code == nvmlReturn_enum_NVML_SUCCESS).then_some([corrected, uncorrected, pending, failed])
    }

    /// The numbers of a partition's two instances.
    pub(crate) fn instances(&self, part: &Device<'_>) -> Option<(u32, u32)> {
        let lib = self.nvml.lib();
        let (mut outer, mut inner) = (0, 0);
        // SAFETY: as above, one number each.
        let codes = unsafe {
            [
                lib.nvmlDeviceGetGpuInstanceId.as_ref().ok()?(part.handle(), &mut outer),
                lib.nvmlDeviceGetComputeInstanceId.as_ref().ok()?(part.handle(), &mut inner),
            ]
        };
        (codes == [nvmlReturn_enum_NVML_SUCCESS; 2]).then_some((outer, inner))
    }
}

/// The wrapper gives the whole set up where one card has no events.
fn register(nvml: &Nvml, device: &Device<'_>, set: &EventSet<'_>) {
    if let Ok(register) = nvml.lib().nvmlDeviceRegisterEvents.as_ref() {
        // SAFETY: both handles are the library's own and live. A refusal means that nothing arrives.
        unsafe {
            register(
                device.handle(),
                u64::from(nvmlEventTypeXidCriticalError),
                set.handle(),
            )
        };
    }
}

/// What a fault is called in answers. A card that is gone is told apart from one that only lacks
/// something.
pub(crate) fn word(fault: &NvmlError) -> String {
    match fault {
        NvmlError::GpuLost => "lost".to_owned(),
        // Newer than the wrapper, or left out of it.
        NvmlError::UnexpectedVariant(23) => "the card has too little left for it".to_owned(),
        NvmlError::UnexpectedVariant(number) => format!("the driver's error {number}"),
        other => other.to_string(),
    }
}
