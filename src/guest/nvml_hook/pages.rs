//! The container's pages as this library sees them, and the beginning of the vendor's library: without
//! pages that we understand it does not begin.

use core::ffi::CStr;
use core::sync::atomic::{AtomicPtr, Ordering::SeqCst};

use crate::region::{AccountPage, Control, ControlDevice, DEVICES, NO_CONTEXT};
use crate::{Code, DeviceHandle, NO_PERMISSION, OK, kernel, process, real};

const CONTROL_PATH: &CStr = path(concat!(env!("HOOK_PLACE"), "/control\0"));
const ACCOUNT_PATH: &CStr = path(concat!(env!("HOOK_PLACE"), "/account\0"));

const fn path(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(path) => path,
        Err(_) => panic!("the place holds a zero"),
    }
}

static CONTROL: AtomicPtr<Control> = AtomicPtr::new(core::ptr::null_mut());
static ACCOUNT: AtomicPtr<AccountPage> = AtomicPtr::new(core::ptr::null_mut());

/// Called when the library is loaded.
pub fn prepare() {
    let control =
        kernel::map_file(CONTROL_PATH, size_of::<Control>(), false).map(|at| at.cast::<Control>());
    let account = kernel::map_file(ACCOUNT_PATH, size_of::<AccountPage>(), false)
        .map(|at| at.cast::<AccountPage>());
    if let (Some(control), Some(account)) = (control, account) {
        // SAFETY: both are mapped for good, at least as long as their types, and hold atomics.
        if unsafe { (*control).is_known() && (*account).is_known() } {
            ACCOUNT.store(account, SeqCst);
            CONTROL.store(control, SeqCst);
        }
    }
}

/// One device of this container.
pub struct SliceView {
    pub terms: &'static ControlDevice,
    account: &'static AccountPage,
    at: usize,
    namespace: u64,
}

/// A process of this container.
pub struct GuestProcess {
    pub pid: u32,
    pub bytes: u64,
    pub has_context: bool,
}

impl SliceView {
    /// What the container has of a device; none when it has nothing of it.
    pub fn of(device: DeviceHandle) -> Option<Self> {
        // SAFETY: null, or mapped for good in `prepare`.
        let (control, account) = unsafe {
            (
                CONTROL.load(SeqCst).as_ref()?,
                ACCOUNT.load(SeqCst).as_ref()?,
            )
        };
        let mut text = [0u8; 96];
        let code = real!(nvmlDeviceGetUUID(device, text.as_mut_ptr(), text.len() as u32):
            fn(DeviceHandle, *mut u8, u32));
        if code != OK {
            return None;
        }
        let at = control.find(&uuid(&text)?)?;
        let mut link = [0; 64];
        Some(SliceView {
            terms: &control.device[at.min(DEVICES - 1)],
            account,
            at,
            namespace: process::namespace(kernel::read_link(c"/proc/self/ns/pid", &mut link)),
        })
    }

    /// Calls `visit` with every process of the container that has a slot and may live.
    pub fn each(&self, mut visit: impl FnMut(GuestProcess)) {
        for slot in &self.account.slot {
            if let Some(seen) = slot.sight()
                && !process::is_dead(&seen, self.namespace)
            {
                visit(GuestProcess {
                    // A number of another namespace would name another process here.
                    pid: if seen.belongs_to(self.namespace) {
                        seen.pid
                    } else {
                        0
                    },
                    bytes: slot.device[self.at].charged.load(SeqCst),
                    has_context: slot.device[self.at].context.load(SeqCst) != NO_CONTEXT,
                });
            }
        }
    }

    pub fn has(&self, pid: u32) -> bool {
        let mut found = false;
        self.each(|tenant| found |= tenant.pid == pid);
        found && pid != 0
    }

    /// Bytes in use, context overhead included, and what is kept for it.
    pub fn used(&self) -> u64 {
        let mut contexts = 0;
        let mut sum = 0u64;
        self.each(|tenant| {
            sum = sum.saturating_add(tenant.bytes);
            contexts += u32::from(tenant.has_context);
        });
        let (overhead, kept) = self.terms.beyond(contexts);
        sum.saturating_add(overhead).saturating_add(kept)
    }
}

/// The sixteen bytes of `GPU-01234567-89ab-…` or `MIG-…`.
fn uuid(text: &[u8]) -> Option<[u8; 16]> {
    let mut digits = text
        .get(4..)?
        .iter()
        .take_while(|letter| **letter != 0)
        .filter(|letter| **letter != b'-')
        .map(|letter| (*letter as char).to_digit(16));
    let mut bytes = [0; 16];
    for byte in &mut bytes {
        let (high, low) = (digits.next()??, digits.next()??);
        *byte = (high << 4 | low) as u8;
    }
    Some(bytes)
}

fn allowed() -> bool {
    !CONTROL.load(SeqCst).is_null()
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> Code {
    if !allowed() {
        return NO_PERMISSION;
    }
    real!(nvmlInit_v2(): fn())
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit() -> Code {
    if !allowed() {
        return NO_PERMISSION;
    }
    real!(nvmlInit(): fn())
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(flags: u32) -> Code {
    if !allowed() {
        return NO_PERMISSION;
    }
    real!(nvmlInitWithFlags(flags): fn(u32))
}
