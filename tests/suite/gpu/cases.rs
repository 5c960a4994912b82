//! Single cases of memory, each in a process of its own: `cases NAME`. What a case expects it asserts;
//! it ends with `fine`. The test plants the driver's faults beforehand.

use std::ffi::{CString, c_char, c_int, c_void};

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

const MIB: u64 = 1 << 20;
const OUT_OF_MEMORY: c_int = 2;
const NOT_SUPPORTED: c_int = 801;

macro_rules! call {
    ($library:expr, $name:ident ( $($argument:expr),* ) : $($kind:ty),*) => {{
        let function: unsafe extern "C" fn($($kind),*) -> c_int =
            unsafe { std::mem::transmute($library.find(stringify!($name))) };
        unsafe { function($($argument),*) }
    }};
}

struct Library(*mut c_void);

impl Library {
    fn find(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).expect("a name holds no zero");
        let found = unsafe { dlsym(self.0, name.as_ptr()) };
        assert!(!found.is_null(), "{name:?} is missing");
        found
    }

    fn free(&self) -> u64 {
        let (mut free, mut total) = (0usize, 0usize);
        let code = call!(self, cuMemGetInfo_v2(&mut free, &mut total): &mut usize, &mut usize);
        assert_eq!(code, 0, "the query never fails");
        free as u64
    }

    fn plain(&self, bytes: u64) -> Result<u64, c_int> {
        let mut made = 0;
        match call!(self, cuMemAlloc_v2(&mut made, bytes as usize): &mut u64, usize) {
            0 => Ok(made),
            code => Err(code),
        }
    }
}

#[repr(C)]
#[derive(Default)]
struct Place {
    kind: i32,
    handles: i32,
    location: i32,
    id: i32,
    rest: [u64; 16],
}

fn on_device() -> Place {
    Place {
        kind: 1,
        location: 1,
        ..Place::default()
    }
}

fn main() {
    let case = std::env::args().nth(1).expect("a case is named");
    let path = std::env::var("FARDEL_CUDA").expect("the library is named");
    let path = CString::new(path).expect("a path holds no zero");
    let library = Library(unsafe { dlopen(path.as_ptr(), 2) });
    assert!(!library.0.is_null(), "the library cannot be loaded");
    let mut context = 0u64;
    assert_eq!(call!(library, cuInit(0): u32), 0);
    assert_eq!(
        call!(library, cuCtxCreate_v2(&mut context, 0, 0): &mut u64, u32, c_int),
        0
    );
    let all = library.free();
    match case.as_str() {
        "mapped" => mapped(&library, all),
        "context" => {
            library.plain(8 * MIB).expect("it fits");
            assert_eq!(library.free(), all - 8 * MIB);
            assert_eq!(call!(library, cuCtxDestroy_v2(context): u64), 0);
            let mut other = 0u64;
            call!(library, cuCtxCreate_v2(&mut other, 0, 0): &mut u64, u32, c_int);
            assert_eq!(library.free(), all, "what ended with the context");
        }
        "primary" => {
            let mut primary = 0u64;
            call!(library, cuDevicePrimaryCtxRetain(&mut primary, 0): &mut u64, c_int);
            call!(library, cuCtxPushCurrent_v2(primary): u64);
            library.plain(8 * MIB).expect("it fits");
            call!(library, cuCtxPopCurrent_v2(&mut primary): &mut u64);
            assert_eq!(library.free(), all - 8 * MIB);
            assert_eq!(call!(library, cuDevicePrimaryCtxReset_v2(0): c_int), 0);
            assert_eq!(library.free(), all, "what ended with the primary context");
        }
        "graph" => graph(&library, all),
        "captured" => captured(&library, all),
        // The driver says no for its own reasons: its code, and nothing charged.
        "driver-fails" => {
            assert_eq!(library.plain(MIB), Err(999));
            assert_eq!(library.free(), all);
            let mut made = 0u64;
            assert_eq!(library.plain(MIB).map(|at| made = at), Ok(()));
            assert_eq!(library.free(), all - MIB);
        }
        // Rows of 4096 bytes where 512 were expected: eight times as much.
        "pitch" => {
            let (mut made, mut pitch) = (0u64, 0usize);
            let ask = |made: &mut u64, pitch: &mut usize, rows: usize| {
                call!(library, cuMemAllocPitch_v2(made, pitch, 512, rows, 4):
                    &mut u64, &mut usize, usize, usize, u32)
            };
            assert_eq!(ask(&mut made, &mut pitch, 1024), 0);
            assert_eq!((pitch, library.free()), (4096, all - 4 * MIB));
            let (mut second, mut untouched) = (7u64, 7usize);
            let rows = (all / 4096) as usize;
            assert_eq!(ask(&mut second, &mut untouched, rows), OUT_OF_MEMORY);
            assert_eq!((second, untouched), (7, 7));
            assert_eq!(library.free(), all - 4 * MIB);
            assert_eq!(call!(library, cuMemFree_v2(made): u64), 0);
            assert_eq!(library.free(), all);
        }
        // A pool that grows by 32 MiB at a time takes no more than fits.
        "pool-blocks" => {
            let mut made = 0u64;
            let ask = |made: &mut u64| call!(library, cuMemAllocAsync(made, MIB as usize, 0): &mut u64, usize, u64);
            let mut pieces = Vec::new();
            while ask(&mut made) == 0 {
                pieces.push(made);
            }
            assert_eq!(pieces.len() as u64, all / (32 * MIB) * 32);
            for piece in pieces {
                assert_eq!(call!(library, cuMemFreeAsync(piece, 0): u64, u64), 0);
            }
            assert_eq!(call!(library, cuStreamSynchronize(0): u64), 0);
            assert_eq!(library.free(), all);
        }
        "heap" => {
            let set = |bytes: u64| call!(library, cuCtxSetLimit(2, bytes as usize): c_int, usize);
            assert_eq!(set(24 * MIB), 0);
            assert_eq!(library.free(), all - 16 * MIB);
            assert_eq!(set(all + 16 * MIB), OUT_OF_MEMORY);
            assert_eq!(set(8 * MIB), 0);
            assert_eq!(library.free(), all);
        }
        // A tenant wipes its own page: this process charges what it holds again.
        "wiped" | "garbled" => {
            let one = library.plain(8 * MIB).expect("it fits");
            let page = std::env::var("FARDEL_ACCOUNT").expect("the page is named");
            let byte = if case == "wiped" { 0 } else { 0xa5 };
            use std::os::unix::fs::FileExt;
            let page = std::fs::OpenOptions::new().write(true).open(page);
            page.and_then(|page| page.write_all_at(&vec![byte; 561_152], 0))
                .expect("it is writable inside");
            if case == "wiped" {
                assert_eq!(library.free(), all - 8 * MIB);
                assert_eq!(library.plain(all), Err(OUT_OF_MEMORY));
                assert_eq!(call!(library, cuMemFree_v2(one): u64), 0);
                assert_eq!(library.free(), all);
            } else {
                assert_ne!(library.plain(MIB), Ok(0), "no fault, whatever the answer");
            }
        }
        "uncounted" => {
            for name in [
                "cuImportExternalMemory",
                "cuMemMapArrayAsync",
                "cuGraphicsGLRegisterBuffer",
                "cuMemAlloc",
                "cuArrayCreate",
            ] {
                let function: unsafe extern "C" fn(u64, u64, u64) -> c_int =
                    unsafe { std::mem::transmute(library.find(name)) };
                assert_eq!(unsafe { function(0, 0, 0) }, NOT_SUPPORTED, "{name}");
            }
        }
        "nonsense" => {
            assert_eq!(library.plain(u64::MAX - 100), Err(OUT_OF_MEMORY));
            assert_eq!(library.plain(0), Err(1), "the driver's own error");
            assert_ne!(call!(library, cuMemFree_v2(12_345): u64), 0);
            assert_eq!(library.free(), all);
            let one = library.plain(1).expect("it fits");
            assert_eq!(library.free(), all - 512);
            assert_eq!(call!(library, cuMemFree_v2(one): u64), 0);
            assert_ne!(call!(library, cuMemFree_v2(one): u64), 0, "freed twice");
            assert_eq!(library.free(), all);
        }
        other => panic!("no case is called {other}"),
    }
    println!("fine");
}

/// Physical memory lives as long as a handle or a mapping does.
fn mapped(library: &Library, all: u64) {
    let (mut handle, mut at, mut again) = (0u64, 0u64, 0u64);
    let size = 2 * MIB as usize;
    let request = on_device();
    let reserve = call!(library, cuMemAddressReserve(&mut at, 4 * size, 0, 0, 0):
        &mut u64, usize, usize, u64, u64);
    assert_eq!(reserve, 0);
    let create = || {
        let mut handle = 0u64;
        let code = call!(library, cuMemCreate(&mut handle, size, &request, 0): &mut u64, usize, &Place, u64);
        assert_eq!(code, 0);
        handle
    };
    let map = |at: u64, handle: u64| call!(library, cuMemMap(at, size, 0, handle, 0): u64, usize, usize, u64, u64);
    handle = create().max(handle);
    assert_eq!(map(at, handle), 0);
    assert_eq!(map(at + size as u64, handle), 0);
    assert_eq!(call!(library, cuMemRelease(handle): u64), 0);
    assert_eq!(library.free(), all - size as u64, "released, but mapped");
    let retain = call!(library, cuMemRetainAllocationHandle(&mut again, at + 100): &mut u64, u64);
    assert_eq!(retain, 0);
    // Both mappings in one call.
    assert_eq!(call!(library, cuMemUnmap(at, 2 * size): u64, usize), 0);
    assert_eq!(library.free(), all - size as u64, "unmapped, but retained");
    assert_eq!(call!(library, cuMemRelease(again): u64), 0);
    assert_eq!(library.free(), all);
    // Released before it was ever mapped.
    let handle = create();
    assert_eq!(call!(library, cuMemRelease(handle): u64), 0);
    assert_eq!(library.free(), all);
}

/// A graph's own memory is asked for when it is launched.
fn graph(library: &Library, all: u64) {
    let add = |graph: u64, bytes: u64| {
        let mut node = 0u64;
        // The pool's 88 bytes, two words, the size, the address.
        let mut request = [0u64; 15];
        request[13] = bytes;
        call!(library, cuGraphAddMemAllocNode(&mut node, graph, 0, 0, request.as_mut_ptr()):
            &mut u64, u64, usize, usize, *mut u64)
    };
    let launchable = |bytes: u64| {
        let (mut graph, mut made) = (0u64, 0u64);
        call!(library, cuGraphCreate(&mut graph, 0): &mut u64, u32);
        assert_eq!(add(graph, bytes), 0);
        let code =
            call!(library, cuGraphInstantiateWithFlags(&mut made, graph, 0): &mut u64, u64, u64);
        assert_eq!(code, 0);
        made
    };
    let launch = |graph: u64| call!(library, cuGraphLaunch(graph, 0): u64, u64);
    let fits = launchable(16 * MIB);
    assert_eq!(library.free(), all, "nothing is held before the launch");
    assert_eq!(launch(fits), 0);
    assert_eq!(library.free(), all - 16 * MIB);
    assert_eq!(launch(fits), 0);
    assert_eq!(library.free(), all - 16 * MIB);
    let too_large = launchable(all + MIB);
    assert_eq!(launch(too_large), OUT_OF_MEMORY);
    assert_eq!(call!(library, cuDeviceGraphMemTrim(0): c_int), 0);
    assert_eq!(library.free(), all);
    assert_eq!(call!(library, cuGraphExecDestroy(fits): u64), 0);
}

/// An allocation that a stream records costs nothing until it is launched.
fn captured(library: &Library, all: u64) {
    let (mut stream, mut at, mut graph, mut made) = (0u64, 0u64, 0u64, 0u64);
    call!(library, cuStreamCreate(&mut stream, 1): &mut u64, u32);
    call!(library, cuStreamBeginCapture_v2(stream, 0): u64, c_int);
    let code =
        call!(library, cuMemAllocAsync(&mut at, 8 * MIB as usize, stream): &mut u64, usize, u64);
    assert_eq!(code, 0);
    call!(library, cuStreamEndCapture(stream, &mut graph): u64, &mut u64);
    assert_eq!(library.free(), all);
    call!(library, cuGraphInstantiateWithFlags(&mut made, graph, 0): &mut u64, u64, u64);
    assert_eq!(call!(library, cuGraphLaunch(made, stream): u64, u64), 0);
    assert_eq!(library.free(), all - 8 * MIB);
}
