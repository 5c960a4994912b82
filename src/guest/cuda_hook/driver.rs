//! The real driver behind the hook: its functions by name, found once when the library is loaded, and
//! a jump to each of those that the hook leaves alone. Knows no signature but the caller's.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

// Written by packaging/hooks.rs: COUNT, NAMES, REAL_PATH, `index`, `OVERRIDES`, and a jump for every
// documented name that this hook does not define itself.
include!(concat!(env!("HOOK_OUT"), "/names.rs"));

/// Where each name leads, in the order of NAMES.
pub static REAL: [AtomicPtr<c_void>; COUNT] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; COUNT];

unsafe extern "C" {
    fn dlsym(from: *mut c_void, name: *const c_char) -> *mut c_void;
}

type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
const RTLD_NEXT: *mut c_void = usize::MAX as *mut c_void;
const RTLD_LAZY: c_int = 1;
const RTLD_NOLOAD: c_int = 4;

#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

/// Runs before any caller can: libraries that need this one are begun after it.
extern "C" fn loaded() {
    // SAFETY: dlopen has that signature; the path ends with zero. The library is loaded already, as
    // our own dependency, so nothing is read from disk.
    let driver = unsafe {
        let open = dlsym(RTLD_NEXT, c"dlopen".as_ptr());
        if open.is_null() {
            RTLD_NEXT
        } else {
            let open: Open = core::mem::transmute::<*mut c_void, Open>(open);
            open(REAL_PATH.as_ptr(), RTLD_LAZY | RTLD_NOLOAD)
        }
    };
    let driver = if driver.is_null() { RTLD_NEXT } else { driver };
    let mut rest = NAMES;
    for place in &REAL {
        let Ok(name) = CStr::from_bytes_until_nul(rest) else {
            break;
        };
        // SAFETY: the name ends with zero.
        let found = unsafe { dlsym(driver, name.as_ptr()) };
        let found = if found.is_null() {
            crate::missing as *mut c_void
        } else {
            found
        };
        place.store(found, Relaxed);
        rest = &rest[name.to_bytes_with_nul().len()..];
    }
    crate::loaded();
}

/// Whether the driver has that name at all: older ones lack the newer names.
pub fn has(at: usize) -> bool {
    REAL[at].load(Relaxed) != crate::missing as *mut c_void
}

/// The name at a place.
pub fn name(at: usize) -> &'static CStr {
    let mut rest = NAMES;
    for _ in 0..at {
        let length = rest.iter().position(|byte| *byte == 0).unwrap_or(0);
        rest = &rest[length + 1..];
    }
    CStr::from_bytes_until_nul(rest).unwrap_or(c"")
}

/// Calls the real function of a name: `real!(cuMemFree_v2(at): fn(u64))`.
#[macro_export]
macro_rules! real {
    ($name:ident ( $($argument:expr),* $(,)? ) : fn( $($kind:ty),* )) => {{
        let real = $crate::driver::REAL[$crate::driver::index::$name]
            .load(core::sync::atomic::Ordering::Relaxed);
        // SAFETY: the signature is the driver's documented one; before it is resolved no code can call.
        let real: unsafe extern "C" fn($($kind),*) -> core::ffi::c_int =
            unsafe { core::mem::transmute(real) };
        // SAFETY: the arguments are the caller's own, or values made for this call.
        unsafe { real($($argument),*) }
    }};
}

/// Keeps the six words that arguments come in; once more, since calls are made with the stack on a multiple
/// of 16.
#[macro_export]
macro_rules! keep {
    () => {
        "push rdi\npush rsi\npush rdx\npush rcx\npush r8\npush r9\npush r9"
    };
}

/// Puts them back.
#[macro_export]
macro_rules! put_back {
    () => {
        "pop r9\npop r9\npop r8\npop rcx\npop rdx\npop rsi\npop rdi"
    };
}

/// A name before whose call something of ours is done, whatever arguments it has: keeps the six words that
/// arguments come in, and jumps on. `before!(cuCtxDetach, forget)`, where `forget` is an `extern "C" fn()`.
#[macro_export]
macro_rules! before {
    ($name:ident, $first:ident) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                $crate::keep!(),
                "call {first}",
                $crate::put_back!(),
                "jmp qword ptr [rip + {real} + 8*{at}]",
                first = sym $first,
                real = sym $crate::driver::REAL,
                at = const $crate::driver::index::$name,
            )
        }
    };
}
