//! Where the calling thread works: its process, device and context. Charges nothing.

use crate::account::{self, Process};
use crate::ledger::AllocationEntry;
use crate::{Code, NOT_READY, OK, OUT_OF_MEMORY, real};

/// What the driver hands out at least.
pub const GRAIN: u64 = 512;

/// Where the calling thread works.
pub struct Here {
    pub process: &'static Process,
    /// Place in the control page.
    pub device: usize,
    pub ordinal: i32,
    pub context: u64,
}

/// Where the thread works; or what to answer instead of asking the driver; or, when there is no
/// context, none of both: the driver itself says so best.
pub fn here() -> Result<Option<Here>, Code> {
    let process = account::process().ok_or(NOT_READY)?;
    let mut ordinal = 0;
    let mut context = 0u64;
    if real!(cuCtxGetDevice(&mut ordinal): fn(&mut i32)) != OK
        || real!(cuCtxGetCurrent(&mut context): fn(&mut u64)) != OK
    {
        return Ok(None);
    }
    let device = process.place(ordinal).ok_or(OUT_OF_MEMORY)?;
    Ok(Some(Here {
        process,
        device,
        ordinal,
        context,
    }))
}

impl Here {
    pub fn entry(&self, bytes: u64) -> AllocationEntry {
        AllocationEntry {
            bytes,
            context: self.context,
            extra: 0,
            device: self.device as u32,
        }
    }
}
