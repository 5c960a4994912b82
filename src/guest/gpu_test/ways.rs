//! Reaches the driver in one of the ways in which programs do, and takes memory until it is refused:
//! `ways WAY LIBRARY [PIECE [PIECES [SECONDS]]]`. Prints `got BYTES code CODE`, and keeps what it got for
//! that long; with `hold` behind, for ever. The way `linked` is another build of this file, linked with the
//! library.

use std::ffi::{CString, c_char, c_int, c_long, c_void};
use std::io::Write as _;

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlmopen(space: c_long, path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

#[cfg(linked)]
unsafe extern "C" {
    fn cuInit(flags: u32) -> c_int;
    fn cuCtxCreate_v2(context: *mut u64, flags: u32, device: c_int) -> c_int;
    fn cuMemAlloc_v2(at: *mut u64, bytes: usize) -> c_int;
}

type Init = unsafe extern "C" fn(u32) -> c_int;
type Create = unsafe extern "C" fn(*mut u64, u32, c_int) -> c_int;
type Plain = unsafe extern "C" fn(*mut u64, usize) -> c_int;
type Async = unsafe extern "C" fn(*mut u64, usize, u64) -> c_int;
type Lookup =
    unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> c_int;
type LookupOld = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> c_int;

const PIECE: usize = 4 << 20;
const PIECES: usize = 64;

fn text(text: &str) -> CString {
    CString::new(text).expect("it holds no zero")
}

fn number(at: usize) -> Option<usize> {
    std::env::args().nth(at)?.parse().ok()
}

/// Takes pieces (of 4 MiB) until one is refused, or that many of them (64). One more than that is asked for
/// and, if it is given, not counted.
fn take(ask: impl Fn(&mut u64, usize) -> c_int) {
    let piece = number(3).unwrap_or(PIECE);
    let most = number(4).unwrap_or(PIECES) * piece;
    let mut got = 0;
    let mut made = 0;
    let code = loop {
        match ask(&mut made, piece) {
            0 if got < most => got += piece,
            code => break code,
        }
    };
    println!("got {got} code {code}");
    std::io::stdout().flush().expect("somebody listens");
    if std::env::args().any(|word| word == "hold") {
        loop {
            std::thread::sleep(std::time::Duration::from_secs(60));
        }
    }
    let kept = number(5).unwrap_or_default() as u64;
    std::thread::sleep(std::time::Duration::from_secs(kept));
}

#[cfg(linked)]
pub fn main() {
    let mut context = 0;
    let codes = unsafe { (cuInit(0), cuCtxCreate_v2(&mut context, 0, 0)) };
    assert_eq!(codes, (0, 0));
    take(|made, piece| unsafe { cuMemAlloc_v2(made, piece) });
}

#[cfg(not(linked))]
pub fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (way, library) = (arguments[0].as_str(), text(&arguments[1]));
    let library = unsafe {
        match way {
            "deepbind" => dlopen(library.as_ptr(), 2 | 8),
            "own-space" => dlmopen(-1, library.as_ptr(), 2),
            "lazy" => dlopen(library.as_ptr(), 1 | 0x100),
            _ => dlopen(library.as_ptr(), 2),
        }
    };
    assert!(!library.is_null(), "the library cannot be loaded");
    let find = |name: &str| unsafe { dlsym(library, text(name).as_ptr()) };
    let lookup: Lookup = unsafe { std::mem::transmute(find("cuGetProcAddress_v2")) };
    let lookup_old: LookupOld = unsafe { std::mem::transmute(find("cuGetProcAddress")) };
    let ask = |name: &str, version: c_int, flags: u64| {
        let (mut found, mut status) = (std::ptr::null_mut(), 9);
        let code = unsafe { lookup(text(name).as_ptr(), &mut found, version, flags, &mut status) };
        assert_eq!((code, status, found.is_null()), (0, 0, false), "{name}");
        found
    };
    let init: Init = unsafe { std::mem::transmute(find("cuInit")) };
    let create: Create = unsafe { std::mem::transmute(find("cuCtxCreate_v2")) };
    let mut context = 0;
    let codes = unsafe { (init(0), create(&mut context, 0, 0)) };
    assert_eq!(codes, (0, 0), "cuInit and cuCtxCreate");
    match way {
        "looked-up" | "looked-up-per-thread" => {
            let flags = if way == "looked-up" { 1 } else { 2 };
            let plain: Plain = unsafe { std::mem::transmute(ask("cuMemAlloc", 12_000, flags)) };
            take(|made, piece| unsafe { plain(made, piece) });
        }
        "looked-up-async" | "looked-up-async-per-thread" => {
            let flags = if way == "looked-up-async" { 1 } else { 2 };
            let found = ask("cuMemAllocAsync", 12_000, flags);
            let named = if flags == 1 {
                find("cuMemAllocAsync")
            } else {
                find("cuMemAllocAsync_ptsz")
            };
            assert_eq!(found, named, "another stream flavour than asked for");
            let from: Async = unsafe { std::mem::transmute(found) };
            take(|made, piece| unsafe { from(made, piece, 0) });
        }
        // The lookup finds itself, and what that finds is held too.
        "looked-up-lookup" => {
            let again: Lookup = unsafe { std::mem::transmute(ask("cuGetProcAddress", 12_000, 0)) };
            let (mut found, mut status) = (std::ptr::null_mut(), 9);
            let name = text("cuMemAlloc");
            let code = unsafe { again(name.as_ptr(), &mut found, 12_000, 0, &mut status) };
            assert_eq!((code, status), (0, 0));
            let plain: Plain = unsafe { std::mem::transmute(found) };
            take(|made, piece| unsafe { plain(made, piece) });
        }
        "looked-up-as-of-cuda-11" => {
            let mut found = std::ptr::null_mut();
            let name = text("cuMemAlloc");
            assert_eq!(
                unsafe { lookup_old(name.as_ptr(), &mut found, 11_030, 0) },
                0
            );
            let plain: Plain = unsafe { std::mem::transmute(found) };
            take(|made, piece| unsafe { plain(made, piece) });
        }
        _ => {
            let plain: Plain = unsafe { std::mem::transmute(find("cuMemAlloc_v2")) };
            take(|made, piece| unsafe { plain(made, piece) });
        }
    }
}
