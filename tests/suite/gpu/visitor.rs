//! A session's own work in tests of the whole server: `visitor driver FILE BYTES` makes the fake driver's
//! state, since no host shows it one; `visitor watch` holds 64 MiB of the first device, launches
//! 300 ms of work and says whether that was in turns, then says how much there is and how much is free,
//! whenever that changes, until it is killed; `visitor work FILE` does the same, and works on as long as
//! there is a FILE.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io::Write;
use std::os::fd::AsRawFd;

#[path = "../../fake_driver/state.rs"]
mod state;

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn mmap(at: *mut u8, size: usize, access: i32, kind: i32, file: i32, offset: i64) -> *mut u8;
}

type Launch = unsafe extern "C" fn(u64, u32, u32, u32, u32, u32, u32, u32, u64, u64, u64) -> c_int;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments[0].as_str() {
        "driver" => make(&arguments[1], arguments[2].parse().expect("bytes")),
        "work" => watch(Some(&arguments[1])),
        _ => watch(None),
    }
}

fn make(path: &str, capacity: u64) {
    let folder = std::path::Path::new(path).parent().expect("it is in one");
    std::fs::create_dir_all(folder).expect("it can be made");
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .expect("it can be written");
    let size = size_of::<state::State>();
    file.set_len(size as u64).expect("it can grow");
    let at = unsafe { mmap(std::ptr::null_mut(), size, 3, 1, file.as_raw_fd(), 0) };
    assert_ne!(at as isize, -1, "it can be mapped");
    unsafe { &*at.cast::<state::State>() }.furnish(1, capacity);
}

fn find(library: *mut c_void, name: &str) -> *mut c_void {
    let name = CString::new(name).expect("a name holds no zero");
    let found = unsafe { dlsym(library, name.as_ptr()) };
    assert!(!found.is_null(), "{name:?} is missing");
    found
}

fn watch(work: Option<&str>) {
    let library = unsafe { dlopen(c"libcuda.so.1".as_ptr(), 2) };
    assert!(
        !library.is_null(),
        "no driver is found under its usual name"
    );
    let init: unsafe extern "C" fn(u32) -> c_int =
        unsafe { std::mem::transmute(find(library, "cuInit")) };
    let create: unsafe extern "C" fn(&mut u64, u32, c_int) -> c_int =
        unsafe { std::mem::transmute(find(library, "cuCtxCreate_v2")) };
    let allocate: unsafe extern "C" fn(&mut u64, usize) -> c_int =
        unsafe { std::mem::transmute(find(library, "cuMemAlloc_v2")) };
    let ask: unsafe extern "C" fn(&mut usize, &mut usize) -> c_int =
        unsafe { std::mem::transmute(find(library, "cuMemGetInfo_v2")) };
    let load: unsafe extern "C" fn(&mut u64, *const c_char) -> c_int =
        unsafe { std::mem::transmute(find(library, "cuModuleLoadData")) };
    let function: unsafe extern "C" fn(&mut u64, u64, *const c_char) -> c_int =
        unsafe { std::mem::transmute(find(library, "cuModuleGetFunction")) };
    let launch: Launch = unsafe { std::mem::transmute(find(library, "cuLaunchKernel")) };
    let (mut context, mut held, mut module, mut kernel) = (0, 0, 0, 0);
    let codes = unsafe {
        [
            init(0),
            create(&mut context, 0, 0),
            allocate(&mut held, 64 << 20),
        ]
    };
    assert_eq!(codes, [0; 3], "device, context and memory");
    let codes = unsafe {
        [
            load(&mut module, c"".as_ptr()),
            function(&mut kernel, module, c"spin1000".as_ptr()),
        ]
    };
    assert_eq!(codes, [0; 2], "a kernel of a millisecond");
    // 300 ms of work.
    let begun = std::time::Instant::now();
    for _ in 0..300 {
        let code = unsafe { launch(kernel, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0) };
        assert_eq!(code, 0, "a launch");
    }
    let took = begun.elapsed().as_millis();
    let how = if took < 500 { "at once" } else { "in turns" };
    println!("launched {how}");
    eprintln!("{took} ms");
    let mut said = String::new();
    loop {
        if work.is_some_and(|path| std::path::Path::new(path).exists()) {
            let code = unsafe { launch(kernel, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0) };
            assert_eq!(code, 0, "a launch");
            continue;
        }
        let (mut free, mut total) = (0, 0);
        assert_eq!(unsafe { ask(&mut free, &mut total) }, 0, "the query");
        let line = format!("total {total} free {free}");
        if line != said {
            println!("{line}");
            std::io::stdout().flush().expect("somebody listens");
            said = line;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
