//! A static program that brings no libraries. `unlinked ask STATE BYTES` takes memory of the fake device
//! as a program does that speaks to the kernel's device itself, and keeps it; `unlinked open LIBRARY`
//! opens a library as far as a static program can.

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::atomic::Ordering::SeqCst;

#[path = "../../fake_driver/state.rs"]
mod state;

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments[0] == "open" {
        let path = CString::new(arguments[1].as_str()).expect("a path holds no zero");
        let library = unsafe { dlopen(path.as_ptr(), 2) };
        println!("opened {}", !library.is_null());
        if library.is_null() {
            return;
        }
        let init = unsafe { dlsym(library, c"cuInit".as_ptr()) };
        let init: unsafe extern "C" fn(u32) -> c_int = unsafe { std::mem::transmute(init) };
        println!("cuInit answers {}", unsafe { init(0) });
        return;
    }
    let mut hold = state::Hold::open(&arguments[1]).expect("the state is there");
    assert!(hold.enter(), "there is no row left");
    hold.row().contexts.store(1, SeqCst);
    let bytes: u64 = arguments[2].parse().expect("a number of bytes");
    println!("took {}", hold.take(0, bytes));
    loop {
        std::thread::sleep(std::time::Duration::from_secs(60));
    }
}
