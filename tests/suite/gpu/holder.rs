//! A program that takes device memory and holds it until its input ends: `holder BYTES`; or that only
//! opens NVML and says what it answered: `holder nvml FOLDER`.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io::Read;

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

fn find(library: &str, name: &str) -> *mut c_void {
    let library = CString::new(library).expect("a path holds no zero");
    let name = CString::new(name).expect("a name holds no zero");
    let found = unsafe {
        let library = dlopen(library.as_ptr(), 2);
        assert!(!library.is_null(), "the library cannot be loaded");
        dlsym(library, name.as_ptr())
    };
    assert!(!found.is_null(), "{name:?} is missing");
    found
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments[0] == "nvml" {
        let library = format!("{}/libnvidia-ml.so.1", arguments[1]);
        let init: unsafe extern "C" fn() -> c_int =
            unsafe { std::mem::transmute(find(&library, "nvmlInit_v2")) };
        println!("nvmlInit answers {}", unsafe { init() });
        return;
    }
    let bytes: usize = arguments[0].parse().expect("a number of bytes");
    let library = std::env::var("FARDEL_CUDA").expect("the library is named");
    let init: unsafe extern "C" fn(u32) -> c_int =
        unsafe { std::mem::transmute(find(&library, "cuInit")) };
    let code = unsafe { init(0) };
    if code != 0 {
        println!("cuInit answers {code}");
        std::process::exit(1);
    }
    let (mut context, mut made) = (0u64, 0u64);
    take(&library, &mut context, &mut made, bytes);
    println!("holds");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

fn take(library: &str, context: &mut u64, made: &mut u64, bytes: usize) {
    let create: unsafe extern "C" fn(&mut u64, u32, c_int) -> c_int =
        unsafe { std::mem::transmute(find(library, "cuCtxCreate_v2")) };
    let allocate: unsafe extern "C" fn(&mut u64, usize) -> c_int =
        unsafe { std::mem::transmute(find(library, "cuMemAlloc_v2")) };
    let codes = unsafe { (create(context, 0, 0), allocate(made, bytes)) };
    assert_eq!(codes, (0, 0), "context and memory");
}
