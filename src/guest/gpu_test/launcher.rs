//! Launches kernels in one of the ways there are, and says when it is through: `launcher WAY COUNT
//! KERNEL [DONE]`. Says `begun` before the first launch and `done NANOSECONDS` (per launch) after the last.
//! Way `default` launches into the default stream, `many` into 64 streams in turn. Way `two` has two streams
//! and waits for one. With a fourth word it then waits for all of it, says `waited`, and sleeps until it is
//! killed.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::Write;
use std::time::Instant;

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

struct LauncherLibrary(*mut c_void);

impl LauncherLibrary {
    fn find(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).expect("a name holds no zero");
        let found = unsafe { dlsym(self.0, name.as_ptr()) };
        assert!(!found.is_null(), "{name:?} is missing");
        found
    }
}

macro_rules! function {
    ($library:expr, $name:expr, $($kind:ty),*) => {{
        let function: unsafe extern "C" fn($($kind),*) -> c_int =
            unsafe { std::mem::transmute($library.find($name)) };
        function
    }};
}

macro_rules! must {
    ($library:expr, $name:ident ( $($argument:expr),* ) : $($kind:ty),*) => {{
        let function = function!($library, stringify!($name), $($kind),*);
        let code = unsafe { function($($argument),*) };
        assert_eq!(code, 0, stringify!($name));
    }};
}

/// Kernels that compute and touch no memory: `spin0` nothing, `spin100` about a tenth of a millisecond.
/// In the vendor's intermediate language, so that any card of theirs can run them.
pub(crate) const KERNELS: &CStr = c"\
.version 6.0
.target sm_52
.address_size 64
.visible .entry spin0()
{
    ret;
}
.visible .entry spin100()
{
    .reg .pred %again;
    .reg .u32 %left, %value;
    mov.u32 %left, 20000;
    mov.u32 %value, 1;
turn:
    mad.lo.u32 %value, %value, 1664525, 1013904223;
    sub.u32 %left, %left, 1;
    setp.ne.u32 %again, %left, 0;
    @%again bra turn;
    setp.eq.u32 %again, %value, 0;
    @%again trap;
    ret;
}
";

#[repr(C)]
struct LaunchParameters {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: u64,
    attributes: u64,
    count: u32,
}

type LaunchFunction =
    unsafe extern "C" fn(u64, u32, u32, u32, u32, u32, u32, u32, u64, u64, u64) -> c_int;

pub fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (way, count, kernel) = (arguments[0].as_str(), &arguments[1], &arguments[2]);
    let count: u64 = count.parse().expect("a number of launches");
    let path = std::env::var("FARDEL_CUDA").unwrap_or_else(|_| "libcuda.so.1".into());
    let path = CString::new(path).expect("a path holds no zero");
    let library = LauncherLibrary(unsafe { dlopen(path.as_ptr(), 2) });
    assert!(!library.0.is_null(), "the library cannot be loaded");
    let (mut context, mut module, mut kernel_function, mut stream) = (0u64, 0u64, 0u64, 0u64);
    let name = CString::new(kernel.as_str()).expect("a name holds no zero");
    must!(library, cuInit(0): u32);
    must!(library, cuCtxCreate_v2(&mut context, 0, 0): &mut u64, u32, c_int);
    must!(library, cuModuleLoadData(&mut module, KERNELS.as_ptr()): &mut u64, *const c_char);
    must!(library, cuModuleGetFunction(&mut kernel_function, module, name.as_ptr()):
        &mut u64, u64, *const c_char);
    must!(library, cuStreamCreate(&mut stream, 1): &mut u64, u32);
    let streams: Vec<u64> = match way {
        "default" => vec![0],
        "many" => (0..64)
            .map(|_| {
                let mut one = 0u64;
                must!(library, cuStreamCreate(&mut one, 1): &mut u64, u32);
                one
            })
            .collect(),
        _ => vec![stream],
    };

    let launch: LaunchFunction = unsafe {
        std::mem::transmute(library.find(match way {
            "per-thread" => "cuLaunchKernel_ptsz",
            _ => "cuLaunchKernel",
        }))
    };
    let plain = || unsafe { launch(kernel_function, 1, 1, 1, 32, 1, 1, 0, stream, 0, 0) };
    let parameters = LaunchParameters {
        grid: [1; 3],
        block: [1; 3],
        shared: 0,
        stream,
        attributes: 0,
        count: 0,
    };
    let described = function!(
        library,
        "cuLaunchKernelEx",
        &LaunchParameters,
        u64,
        u64,
        u64
    );
    let together = function!(
        library,
        "cuLaunchCooperativeKernel",
        u64,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u64,
        u64
    );
    let graph_launch = function!(library, "cuGraphLaunch", u64, u64);
    let mut graph = 0u64;
    if way == "two" {
        // A short one in a stream that is waited for, and KERNEL in another that nobody waits for.
        let (mut other, mut short) = (0u64, 0u64);
        must!(library, cuStreamCreate(&mut other, 1): &mut u64, u32);
        must!(library, cuModuleGetFunction(&mut short, module, c"spin100".as_ptr()):
            &mut u64, u64, *const c_char);
        for (function, stream) in [(short, other), (kernel_function, stream)] {
            let code = unsafe { launch(function, 1, 1, 1, 32, 1, 1, 0, stream, 0, 0) };
            assert_eq!(code, 0, "launching");
        }
        must!(library, cuStreamSynchronize(other): u64);
        println!("waited");
        std::thread::sleep(std::time::Duration::from_secs(600));
    }
    if way == "graph" {
        let mut made = 0u64;
        must!(library, cuStreamBeginCapture_v2(stream, 0): u64, c_int);
        assert_eq!(plain(), 0);
        must!(library, cuStreamEndCapture(stream, &mut made): u64, &mut u64);
        must!(library, cuGraphInstantiateWithFlags(&mut graph, made, 0): &mut u64, u64, u64);
    }
    if way == "captured" {
        must!(library, cuStreamBeginCapture_v2(stream, 0): u64, c_int);
    }

    println!("begun");
    std::io::stdout().flush().expect("somebody listens");
    let begun = Instant::now();
    for number in 0..count as usize {
        let code = match way {
            "described" => unsafe { described(&parameters, kernel_function, 0, 0) },
            "cooperative" => unsafe { together(kernel_function, 1, 1, 1, 32, 1, 1, 0, stream, 0) },
            "graph" => unsafe { graph_launch(graph, stream) },
            _ => {
                let stream = streams[number % streams.len()];
                unsafe { launch(kernel_function, 1, 1, 1, 32, 1, 1, 0, stream, 0, 0) }
            }
        };
        assert_eq!(code, 0, "launching");
    }
    let each = begun.elapsed().as_nanos() as f64 / count as f64;
    if way == "captured" {
        let mut made = 0u64;
        must!(library, cuStreamEndCapture(stream, &mut made): u64, &mut u64);
    }
    println!("done {each:.1}");
    if arguments.len() > 3 {
        for stream in streams {
            must!(library, cuStreamSynchronize(stream): u64);
        }
        println!("waited");
        std::thread::sleep(std::time::Duration::from_secs(600));
    }
}
