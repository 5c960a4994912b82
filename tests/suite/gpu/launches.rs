//! Launches that need more than one stream, thread, context or device: `launches CASE`. Says `ready` when
//! the case has done all that it does, and sleeps until it is killed, so that the test can read its page.

use std::ffi::{CString, c_char, c_int, c_void};

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

macro_rules! call {
    ($library:expr, $name:ident ( $($argument:expr),* ) : $($kind:ty),*) => {{
        let function: unsafe extern "C" fn($($kind),*) -> c_int =
            unsafe { std::mem::transmute($library.find(stringify!($name))) };
        unsafe { function($($argument),*) }
    }};
}

macro_rules! must {
    ($library:expr, $name:ident ( $($argument:expr),* ) : $($kind:ty),*) => {
        assert_eq!(call!($library, $name($($argument),*): $($kind),*), 0, stringify!($name))
    };
}

/// Longer than any test waits.
const FOR_EVER: &str = "spin60000000";

#[derive(Clone, Copy)]
struct Library(usize);

impl Library {
    fn find(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).expect("a name holds no zero");
        let found = unsafe { dlsym(self.0 as *mut c_void, name.as_ptr()) };
        assert!(!found.is_null(), "{name:?} is missing");
        found
    }

    fn function(&self, name: &str) -> u64 {
        let (mut module, mut function) = (0u64, 0u64);
        let name = CString::new(name).expect("a name holds no zero");
        must!(self, cuModuleLoadData(&mut module, c"".as_ptr()): &mut u64, *const c_char);
        must!(self, cuModuleGetFunction(&mut function, module, name.as_ptr()):
            &mut u64, u64, *const c_char);
        function
    }

    fn launch(&self, kernel: u64, stream: u64, times: u32) {
        for _ in 0..times {
            must!(self, cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0):
                u64, u32, u32, u32, u32, u32, u32, u32, u64, u64, u64);
        }
    }

    fn launch_per_thread(&self, kernel: u64) {
        must!(self, cuLaunchKernel_ptsz(kernel, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0):
            u64, u32, u32, u32, u32, u32, u32, u32, u64, u64, u64);
    }

    fn stream(&self) -> u64 {
        let mut stream = 0u64;
        must!(self, cuStreamCreate(&mut stream, 1): &mut u64, u32);
        stream
    }

    fn context(&self, device: c_int) -> u64 {
        let mut context = 0u64;
        must!(self, cuCtxCreate_v2(&mut context, 0, device): &mut u64, u32, c_int);
        context
    }

    fn go_to(&self, context: u64) {
        must!(self, cuCtxSetCurrent(context): u64);
    }
}

fn main() {
    let case = std::env::args().nth(1).expect("a case is named");
    let path = std::env::var("FARDEL_CUDA").expect("the library is named");
    let path = CString::new(path).expect("a path holds no zero");
    let library = Library(unsafe { dlopen(path.as_ptr(), 2) } as usize);
    assert_ne!(library.0, 0, "the library cannot be loaded");
    must!(library, cuInit(0): u32);
    let first = library.context(0);
    let nothing = library.function("spin0");
    match case.as_str() {
        // 6 on device 0 and 19 on device 1, all into default streams.
        "contexts" => {
            let second = library.context(1);
            library.launch(nothing, 0, 3);
            library.go_to(first);
            library.launch(nothing, 0, 2);
            must!(library, cuCtxPushCurrent_v2(second): u64);
            library.launch(nothing, 0, 5);
            let mut popped = 0u64;
            must!(library, cuCtxPopCurrent_v2(&mut popped): &mut u64);
            library.launch(nothing, 0, 1);
            let other = std::thread::spawn(move || {
                library.go_to(second);
                library.launch(nothing, 0, 7);
            });
            other.join().expect("it launches");
            library.launch(nothing, 0, 1);
            // The thread's context ends, and the device's own follows it.
            library.go_to(second);
            must!(library, cuCtxDestroy_v2(second): u64);
            let mut primary = 0u64;
            must!(library, cuDevicePrimaryCtxRetain(&mut primary, 1): &mut u64, c_int);
            library.go_to(primary);
            library.launch(nothing, 0, 4);
            let mut third = 0u64;
            must!(library, cuCtxCreate_v4(&mut third, 0, 0, 0): &mut u64, u64, u32, c_int);
            library.launch(nothing, 0, 2);
        }
        // 40 on device 0 by a thread whose context is on device 1.
        "elsewhere" => {
            let stream = library.stream();
            library.context(1);
            library.launch(nothing, stream, 40);
            must!(library, cuStreamSynchronize(stream): u64);
            library.launch(library.function("spin1000"), stream, 1);
            must!(library, cuStreamSynchronize(stream): u64);
        }
        // 50 that run, and 200 that are only recorded.
        "recording" => {
            let (stream, beside) = (library.stream(), library.stream());
            let mut graph = 0u64;
            library.launch(nothing, stream, 20);
            must!(library, cuStreamBeginCapture_v2(stream, 0): u64, c_int);
            library.launch(nothing, stream, 100);
            library.launch(nothing, beside, 10);
            let nothing_recorded = call!(library, cuStreamEndCapture(beside, &mut graph): u64, &mut u64);
            assert_ne!(nothing_recorded, 0, "that stream records nothing");
            library.launch(nothing, stream, 100);
            must!(library, cuStreamEndCapture(stream, &mut graph): u64, &mut u64);
            library.launch(nothing, stream, 20);
        }
        // Another thread's own stream works for ever, and this one waits for its own.
        "threads" => {
            let long = library.function(FOR_EVER);
            let other = std::thread::spawn(move || {
                library.go_to(first);
                library.launch_per_thread(long);
            });
            other.join().expect("it launches");
            library.launch_per_thread(nothing);
            must!(library, cuStreamSynchronize_ptsz(0): u64);
        }
        // A stream that ends before its work does.
        "ended" => {
            let (stream, other) = (library.stream(), library.stream());
            library.launch(library.function(FOR_EVER), stream, 1);
            must!(library, cuStreamDestroy_v2(stream): u64);
            library.launch(nothing, other, 1);
            must!(library, cuStreamSynchronize(other): u64);
        }
        // More streams than there are places for marks, all of them at work.
        "crowd" => {
            let short = library.function("spin200");
            let streams: Vec<u64> = (0..1000).map(|_| library.stream()).collect();
            for stream in &streams {
                library.launch(short, *stream, 1);
            }
            must!(library, cuCtxSynchronize():);
        }
        // Goes on for ever: a little in each of 16 streams, and then all in 48 others.
        "many" => {
            let long = library.function("spin500");
            let streams: Vec<u64> = (0..64).map(|_| library.stream()).collect();
            for stream in &streams[..16] {
                library.launch(nothing, *stream, 1);
            }
            for stream in streams[16..].iter().cycle() {
                library.launch(long, *stream, 1);
            }
        }
        other => panic!("no case is called {other}"),
    }
    println!("ready");
    std::thread::sleep(std::time::Duration::from_secs(600));
}
