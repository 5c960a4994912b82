//! A stand-in for `libcuda.so.1`: every documented name, and a real core for memory, streams, events,
//! capture and graphs, modules and launches. What is not in the core answers NOT_SUPPORTED.
//! Device addresses are host addresses, so that copies copy; kernels are not executed, they only take
//! time (`spin100` takes 100 µs). Tests only: never part of the product, and never a model of speed.

mod state;
include!(concat!(env!("FAKE_OUT"), "/cuda_stubs.rs"));

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};

use state::Hold;

type Result = c_int;
const OK: Result = 0;
const INVALID_VALUE: Result = 1;
const OUT_OF_MEMORY: Result = 2;
const NOT_INITIALIZED: Result = 3;
const NO_DEVICE: Result = 100;
const INVALID_DEVICE: Result = 101;
const INVALID_CONTEXT: Result = 201;
const INVALID_HANDLE: Result = 400;
const NOT_FOUND: Result = 500;
const NOT_READY: Result = 600;
const NOT_SUPPORTED: Result = 801;
/// What the generated stubs answer.
const UNSUPPORTED: Result = NOT_SUPPORTED;
const UNKNOWN: Result = 999;
const LOST: Result = 46;

type Pointer = u64;
type Handle = usize;

unsafe extern "C" {
    fn mmap(at: *mut u8, size: usize, access: i32, kind: i32, file: i32, offset: i64) -> *mut u8;
    fn sched_yield() -> c_int;
}

struct Context {
    device: usize,
    primary: bool,
    bytes: u64,
}

struct Piece {
    bytes: u64,
    device: usize,
    context: Handle,
    /// Where the bytes come from: the device itself, or a pool.
    pool: Option<Handle>,
}

struct Pool {
    device: usize,
    used: u64,
    reserved: u64,
    threshold: u64,
}

struct Physical {
    bytes: u64,
    device: usize,
    handles: u32,
    maps: u32,
}

#[derive(Default)]
struct Stream {
    /// 0 for the default streams, which are in every context.
    context: Handle,
    done_at: u64,
    capture: Option<Handle>,
}

#[derive(Default, Clone)]
struct Graph {
    nanoseconds: u64,
    memory: u64,
}

struct Driver {
    hold: Hold,
    owner: u32,
    next: usize,
    /// Device addresses: handed out upwards, and again after they were freed.
    fresh: u64,
    end: u64,
    recycled: HashMap<u64, Vec<u64>>,
    contexts: HashMap<Handle, Context>,
    primary: HashMap<usize, (Handle, u32)>,
    pieces: HashMap<Pointer, Piece>,
    arrays: HashMap<Handle, Piece>,
    pools: HashMap<Handle, Pool>,
    default_pool: HashMap<usize, Handle>,
    current_pool: HashMap<usize, Handle>,
    physical: HashMap<u64, Physical>,
    maps: HashMap<Pointer, (u64, u64)>,
    streams: HashMap<Handle, Stream>,
    /// When each is reached, and the context it was made in.
    events: HashMap<Handle, (u64, Handle)>,
    graphs: HashMap<Handle, Graph>,
    executables: HashMap<Handle, Graph>,
    graph_reserved: HashMap<usize, u64>,
    functions: HashMap<Handle, u64>,
    modules: HashMap<Handle, HashMap<String, Handle>>,
}

static DRIVER: Mutex<Option<Driver>> = Mutex::new(None);

thread_local! {
    static CURRENT: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
    /// The default stream of this thread alone.
    static OWN: Handle = {
        static NEXT: AtomicUsize = AtomicUsize::new(1 << 40);
        NEXT.fetch_add(16, SeqCst)
    };
}

/// The stream that a caller means by its number: two numbers mean a default stream.
fn meant(stream: Handle) -> Handle {
    match stream {
        1 => 0,
        2 => OWN.with(|own| *own),
        stream => stream,
    }
}

/// The same for callers whose default stream is their thread's.
fn meant_per_thread(stream: Handle) -> Handle {
    meant(if stream == 0 { 2 } else { stream })
}

struct Entered(MutexGuard<'static, Option<Driver>>);

impl std::ops::Deref for Entered {
    type Target = Driver;
    fn deref(&self) -> &Driver {
        self.0.as_ref().expect("looked at before")
    }
}

impl std::ops::DerefMut for Entered {
    fn deref_mut(&mut self) -> &mut Driver {
        self.0.as_mut().expect("looked at before")
    }
}

/// The driver, when it was initialised by this very process and the device is there.
fn driver() -> std::result::Result<Entered, Result> {
    let guard = DRIVER.lock().unwrap_or_else(|broken| broken.into_inner());
    match guard.as_ref() {
        None => Err(NOT_INITIALIZED),
        // A fork does not inherit the driver.
        Some(driver) if driver.owner != state::pid() => Err(NOT_INITIALIZED),
        Some(driver) if driver.hold.state.lost.load(SeqCst) != 0 => Err(LOST),
        Some(_) => Ok(Entered(guard)),
    }
}

fn answer(work: impl FnOnce(&mut Driver) -> std::result::Result<(), Result>) -> Result {
    match driver().and_then(|mut driver| work(&mut driver)) {
        Ok(()) => OK,
        Err(code) => code,
    }
}

fn current() -> std::result::Result<Handle, Result> {
    CURRENT
        .with(|stack| stack.borrow().last().copied())
        .filter(|context| *context != 0)
        .ok_or(INVALID_CONTEXT)
}

fn up(bytes: u64, step: u64) -> u64 {
    bytes.div_ceil(step) * step
}

unsafe fn put<T>(at: *mut T, value: T) {
    if !at.is_null() {
        unsafe { at.write(value) };
    }
}

impl Driver {
    fn handle(&mut self) -> Handle {
        self.next += 16;
        self.next
    }

    fn here(&self) -> std::result::Result<(Handle, usize), Result> {
        let context = current()?;
        let device = self.contexts.get(&context).ok_or(INVALID_CONTEXT)?.device;
        Ok((context, device))
    }

    fn address(&mut self, bytes: u64) -> std::result::Result<Pointer, Result> {
        if let Some(at) = self.recycled.get_mut(&bytes).and_then(Vec::pop) {
            return Ok(at);
        }
        let at = self.fresh;
        if at + bytes > self.end {
            return Err(OUT_OF_MEMORY);
        }
        self.fresh += bytes;
        Ok(at)
    }

    fn planted_fault(&self) -> std::result::Result<(), Result> {
        self.hold.state.allocations.fetch_add(1, SeqCst);
        let left = &self.hold.state.fail_allocation_in;
        if left.load(SeqCst) > 0 && left.fetch_sub(1, SeqCst) == 1 {
            return Err(UNKNOWN);
        }
        Ok(())
    }

    fn take(&mut self, device: usize, bytes: u64) -> std::result::Result<(), Result> {
        if self.hold.take(device, bytes) {
            Ok(())
        } else {
            Err(OUT_OF_MEMORY)
        }
    }

    fn piece(&mut self, bytes: u64) -> std::result::Result<Pointer, Result> {
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        self.planted_fault()?;
        let (context, device) = self.here()?;
        let bytes = bytes.checked_next_multiple_of(512).ok_or(OUT_OF_MEMORY)?;
        self.take(device, bytes)?;
        let at = self.address(bytes)?;
        let piece = Piece {
            bytes,
            device,
            context,
            pool: None,
        };
        self.pieces.insert(at, piece);
        Ok(at)
    }

    fn free(&mut self, at: Pointer) -> std::result::Result<(), Result> {
        let piece = self.pieces.remove(&at).ok_or(INVALID_VALUE)?;
        self.recycled.entry(piece.bytes).or_default().push(at);
        match piece.pool {
            None => self.hold.give(piece.device, piece.bytes),
            Some(pool) => {
                if let Some(pool) = self.pools.get_mut(&pool) {
                    pool.used -= piece.bytes;
                }
            }
        }
        Ok(())
    }

    fn from_pool(&mut self, pool: Handle, bytes: u64) -> std::result::Result<Pointer, Result> {
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        self.planted_fault()?;
        let (context, _) = self.here()?;
        let bytes = bytes.checked_next_multiple_of(512).ok_or(OUT_OF_MEMORY)?;
        let chunk = match self.hold.state.pool_chunk.load(SeqCst) {
            0 => 2 << 20,
            chunk => chunk,
        };
        let found = self.pools.get(&pool).ok_or(INVALID_HANDLE)?;
        let device = found.device;
        let lacking = up((found.used + bytes).saturating_sub(found.reserved), chunk);
        self.take(device, lacking)?;
        let found = self.pools.get_mut(&pool).ok_or(INVALID_HANDLE)?;
        found.used += bytes;
        found.reserved += lacking;
        let at = self.address(bytes)?;
        let piece = Piece {
            bytes,
            device,
            context,
            pool: Some(pool),
        };
        self.pieces.insert(at, piece);
        Ok(at)
    }

    /// What a synchronisation does: pools give back what is beyond their threshold.
    fn settle(&mut self) {
        let Driver { pools, hold, .. } = self;
        for pool in pools.values_mut() {
            trim(hold, pool, pool.threshold);
        }
    }

    fn pool_of(&mut self, device: usize) -> Handle {
        if let Some(pool) = self.current_pool.get(&device) {
            return *pool;
        }
        self.default_pool_of(device)
    }

    fn default_pool_of(&mut self, device: usize) -> Handle {
        if let Some(pool) = self.default_pool.get(&device) {
            return *pool;
        }
        let handle = self.handle();
        self.pools.insert(handle, Pool::empty(device));
        self.default_pool.insert(device, handle);
        handle
    }

    fn array(
        &mut self,
        extent: [u64; 3],
        format: u32,
        channels: u32,
        levels: u32,
        flags: u32,
    ) -> std::result::Result<Handle, Result> {
        self.planted_fault()?;
        let (context, device) = self.here()?;
        let element = u64::from(channels)
            * match format {
                1 | 8 => 1,
                2 | 9 | 16 => 2,
                _ => 4,
            };
        let mut bytes = 0;
        for level in 0..levels.max(1) {
            let depth = if flags & 1 != 0 {
                extent[2].max(1)
            } else {
                (extent[2] >> level).max(1)
            };
            bytes += (extent[0] >> level).max(1) * (extent[1] >> level).max(1) * depth * element;
        }
        let bytes = up(bytes, 512);
        self.take(device, bytes)?;
        let handle = self.handle();
        let piece = Piece {
            bytes,
            device,
            context,
            pool: None,
        };
        self.arrays.insert(handle, piece);
        Ok(handle)
    }

    fn drop_array(&mut self, handle: Handle) -> std::result::Result<(), Result> {
        let piece = self.arrays.remove(&handle).ok_or(INVALID_HANDLE)?;
        self.hold.give(piece.device, piece.bytes);
        Ok(())
    }

    fn forget_physical(&mut self, handle: u64) {
        let gone = self
            .physical
            .get(&handle)
            .is_some_and(|physical| physical.handles == 0 && physical.maps == 0);
        if gone && let Some(physical) = self.physical.remove(&handle) {
            self.hold.give(physical.device, physical.bytes);
        }
    }

    fn end_context(&mut self, context: Handle) {
        if let Some(gone) = self.contexts.remove(&context) {
            self.hold.give(gone.device, gone.bytes);
        }
        let pieces: Vec<Pointer> = self
            .pieces
            .iter()
            .filter(|(_, piece)| piece.context == context && piece.pool.is_none())
            .map(|(at, _)| *at)
            .collect();
        for at in pieces {
            let _ = self.free(at);
        }
        let arrays: Vec<Handle> = self
            .arrays
            .iter()
            .filter(|(_, piece)| piece.context == context)
            .map(|(at, _)| *at)
            .collect();
        for at in arrays {
            let _ = self.drop_array(at);
        }
    }

    fn new_context(&mut self, device: c_int, primary: bool) -> std::result::Result<Handle, Result> {
        let device = self.device(device)?;
        let bytes = self.hold.state.context.load(SeqCst);
        if bytes != 0 && !self.hold.take(device, bytes) {
            return Err(OUT_OF_MEMORY);
        }
        let handle = self.handle();
        self.contexts.insert(handle, Context { device, primary, bytes });
        self.hold.row().contexts.fetch_add(1, SeqCst);
        Ok(handle)
    }

    fn device(&self, device: c_int) -> std::result::Result<usize, Result> {
        let count = self.hold.state.devices.load(SeqCst) as usize;
        let device = usize::try_from(device).map_err(|_| INVALID_DEVICE)?;
        if device < count {
            Ok(device)
        } else {
            Err(INVALID_DEVICE)
        }
    }

    fn launch(&mut self, stream: Handle, nanoseconds: u64) -> std::result::Result<(), Result> {
        let (here, _) = self.here()?;
        let stream = meant(stream);
        let context = self.context_of(stream).unwrap_or(here);
        let device = self.contexts.get(&context).ok_or(INVALID_CONTEXT)?.device;
        if let Some(graph) = self.streams.get(&stream).and_then(|stream| stream.capture) {
            self.graphs.entry(graph).or_default().nanoseconds += nanoseconds;
            return Ok(());
        }
        let done = self.hold.submit(device, nanoseconds);
        if done != 0 {
            let stream = self.streams.entry(stream).or_default();
            stream.done_at = stream.done_at.max(done);
        }
        Ok(())
    }

    /// The context that a stream was made in; none for default streams, and for what is no stream.
    fn context_of(&self, stream: Handle) -> Option<Handle> {
        let found = self.streams.get(&stream)?;
        (found.context != 0).then_some(found.context)
    }

    fn done_at(&self, stream: Handle) -> u64 {
        let stream = meant(stream);
        if stream == 0 {
            // The default stream waits for all others.
            return self
                .streams
                .values()
                .map(|stream| stream.done_at)
                .max()
                .unwrap_or(0);
        }
        self.streams.get(&stream).map_or(0, |stream| stream.done_at)
    }
}

impl Pool {
    fn empty(device: usize) -> Self {
        Pool {
            device,
            used: 0,
            reserved: 0,
            threshold: 0,
        }
    }
}

fn trim(hold: &Hold, pool: &mut Pool, keep: u64) {
    let keep = up(pool.used, 2 << 20).max(keep);
    if pool.reserved > keep {
        hold.give(pool.device, pool.reserved - keep);
        pool.reserved = keep;
    }
}

/// Waits for a nanosecond of the fake device's clock, without holding the driver.
fn wait_until(done: impl Fn(&Driver) -> u64) -> Result {
    loop {
        match driver() {
            Err(code) => return code,
            Ok(mut driver) => {
                if driver.hold.now() >= done(&driver) {
                    driver.settle();
                    return OK;
                }
            }
        }
        unsafe { sched_yield() };
    }
}

fn function_of(driver: &Driver, function: Handle) -> std::result::Result<u64, Result> {
    driver
        .functions
        .get(&function)
        .copied()
        .ok_or(INVALID_HANDLE)
}

#[repr(C)]
pub struct ArrayDescriptor {
    width: usize,
    height: usize,
    format: c_uint,
    channels: c_uint,
}

#[repr(C)]
pub struct ArrayDescriptor3D {
    width: usize,
    height: usize,
    depth: usize,
    format: c_uint,
    channels: c_uint,
    flags: c_uint,
}

#[repr(C)]
pub struct AllocationProperties {
    kind: c_int,
    handles: c_int,
    location: c_int,
    id: c_int,
    rest: [u64; 2],
}

#[repr(C)]
pub struct LaunchConfiguration {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    stream: Handle,
    attributes: *mut c_void,
    count: c_uint,
}

macro_rules! exports {
    ($( fn $name:ident ( $( $argument:ident : $kind:ty ),* ) $body:block )*) => {
        $( #[unsafe(no_mangle)]
           pub unsafe extern "C" fn $name( $( $argument: $kind ),* ) -> Result { unsafe { $body } } )*
    };
}

exports! {
    fn cuInit(_flags: c_uint) {
        let mut driver = DRIVER.lock().unwrap_or_else(|broken| broken.into_inner());
        if let Some(driver) = driver.as_ref() {
            return if driver.owner == state::pid() { OK } else { NOT_INITIALIZED };
        }
        let state = concat!(env!("FAKE_PLACE"), "/state");
        let Some(mut hold) = Hold::open(state).or_else(|| Hold::lay_out(state)) else { return NO_DEVICE };
        if hold.state.devices.load(SeqCst) == 0 || !hold.enter() {
            return NO_DEVICE;
        }
        std::hint::black_box(state::MARKER);
        // One tebibyte of addresses, none of it used before it is touched.
        const ADDRESSES: usize = 1 << 40;
        let at = mmap(std::ptr::null_mut(), ADDRESSES, 3, 0x4022, -1, 0);
        if at as isize == -1 {
            return UNKNOWN;
        }
        let fresh = up(at as u64, 2 << 20);
        *driver = Some(Driver {
            hold, owner: state::pid(), next: 0x1000, fresh, end: at as u64 + ADDRESSES as u64,
            recycled: HashMap::new(), contexts: HashMap::new(), primary: HashMap::new(), pieces: HashMap::new(),
            arrays: HashMap::new(), pools: HashMap::new(), default_pool: HashMap::new(),
            current_pool: HashMap::new(), physical: HashMap::new(), maps: HashMap::new(),
            streams: HashMap::new(), events: HashMap::new(), graphs: HashMap::new(),
            executables: HashMap::new(), graph_reserved: HashMap::new(), functions: HashMap::new(),
            modules: HashMap::new(),
        });
        OK
    }
    fn cuDriverGetVersion(version: *mut c_int) { put(version, 13_000); OK }
    fn cuGetErrorName(code: Result, name: *mut *const c_char) { put(name, error(code).0.as_ptr()); OK }
    fn cuGetErrorString(code: Result, text: *mut *const c_char) { put(text, error(code).1.as_ptr()); OK }

    fn cuDeviceGetCount(count: *mut c_int) {
        answer(|driver| { put(count, driver.hold.state.devices.load(SeqCst) as c_int); Ok(()) })
    }
    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) {
        answer(|driver| { driver.device(ordinal)?; put(device, ordinal); Ok(()) })
    }
    fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int) {
        answer(|driver| {
            driver.device(device)?;
            let text = c"fardel fake device";
            let count = text.to_bytes_with_nul().len().min(length.max(0) as usize);
            std::ptr::copy_nonoverlapping(text.as_ptr(), name, count);
            Ok(())
        })
    }
    fn cuDeviceGetUuid(uuid: *mut [u8; 16], device: c_int) {
        answer(|driver| {
            let device = driver.device(device)?;
            let words = driver.hold.state.device[device].uuid.each_ref().map(|word| word.load(SeqCst).to_ne_bytes());
            put(uuid.cast::<[[u8; 8]; 2]>(), words);
            Ok(())
        })
    }
    fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) { cuDeviceGetUuid(uuid, device) }
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) {
        answer(|driver| {
            let device = driver.device(device)?;
            put(bytes, driver.hold.state.device[device].capacity.load(SeqCst) as usize);
            Ok(())
        })
    }
    fn cuDeviceTotalMem(bytes: *mut c_uint, device: c_int) {
        let mut whole = 0;
        let code = cuDeviceTotalMem_v2(&mut whole, device);
        put(bytes, whole.min(u32::MAX as usize) as c_uint);
        code
    }
    fn cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, device: c_int) {
        answer(|driver| { driver.device(device)?; put(major, 9); put(minor, 0); Ok(()) })
    }
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) {
        answer(|driver| {
            driver.device(device)?;
            put(value, match attribute {
                1 => 1024, 2 | 3 => 1024, 4 => 64, 5 => 2_147_483_647, 6 | 7 => 65_535, 8 => 49_152, 10 => 32,
                12 => 65_536, 16 => 132, 39 => 2048, 41 => 1, 75 => 9, 76 => 0, 83 => 1, 85 => 1, 95 => 1,
                102 | 115 => 1, 81 | 97 => 233_472, 106 => 32, _ => 0,
            });
            Ok(())
        })
    }
    fn cuDeviceCanAccessPeer(can: *mut c_int, _one: c_int, _other: c_int) { put(can, 0); OK }
    fn cuDeviceGetPCIBusId(text: *mut c_char, length: c_int, device: c_int) {
        let id = format!("0000:{:02x}:00.0\0", device + 1);
        std::ptr::copy_nonoverlapping(id.as_ptr().cast(), text, id.len().min(length.max(0) as usize));
        OK
    }

    fn cuCtxCreate_v2(context: *mut Handle, _flags: c_uint, device: c_int) {
        answer(|driver| {
            let made = driver.new_context(device, false)?;
            CURRENT.with(|stack| stack.borrow_mut().push(made));
            put(context, made);
            Ok(())
        })
    }
    fn cuCtxCreate_v4(context: *mut Handle, _parameters: *mut c_void, flags: c_uint, device: c_int) {
        cuCtxCreate_v2(context, flags, device)
    }
    fn cuCtxDestroy_v2(context: Handle) {
        answer(|driver| {
            if driver.contexts.get(&context).is_none_or(|found| found.primary) {
                return Err(INVALID_CONTEXT);
            }
            driver.end_context(context);
            CURRENT.with(|stack| stack.borrow_mut().retain(|each| *each != context));
            Ok(())
        })
    }
    fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int) {
        answer(|driver| {
            let number = driver.device(device)?;
            let (made, count) = match driver.primary.get(&number) {
                Some((made, count)) if *count > 0 => (*made, *count),
                _ => (driver.new_context(device, true)?, 0),
            };
            driver.primary.insert(number, (made, count + 1));
            put(context, made);
            Ok(())
        })
    }
    fn cuDevicePrimaryCtxRelease_v2(device: c_int) {
        answer(|driver| {
            let number = driver.device(device)?;
            let Some((made, count)) = driver.primary.get_mut(&number) else { return Err(INVALID_CONTEXT) };
            *count = count.saturating_sub(1);
            let (made, count) = (*made, *count);
            if count == 0 { driver.end_context(made); }
            Ok(())
        })
    }
    fn cuDevicePrimaryCtxReset_v2(device: c_int) {
        answer(|driver| {
            let number = driver.device(device)?;
            if let Some((made, _)) = driver.primary.remove(&number) { driver.end_context(made); }
            Ok(())
        })
    }
    fn cuDevicePrimaryCtxGetState(device: c_int, flags: *mut c_uint, active: *mut c_int) {
        answer(|driver| {
            let number = driver.device(device)?;
            put(flags, 0);
            put(active, c_int::from(driver.primary.get(&number).is_some_and(|(_, count)| *count > 0)));
            Ok(())
        })
    }
    fn cuDevicePrimaryCtxSetFlags_v2(_device: c_int, _flags: c_uint) { OK }
    fn cuCtxGetCurrent(context: *mut Handle) {
        answer(|_| { put(context, current().unwrap_or(0)); Ok(()) })
    }
    fn cuCtxSetCurrent(context: Handle) {
        answer(|_| { CURRENT.with(|stack| { let mut stack = stack.borrow_mut(); stack.pop(); stack.push(context) }); Ok(()) })
    }
    fn cuCtxPushCurrent_v2(context: Handle) {
        answer(|_| { CURRENT.with(|stack| stack.borrow_mut().push(context)); Ok(()) })
    }
    fn cuCtxPopCurrent_v2(context: *mut Handle) {
        answer(|_| {
            let popped = CURRENT.with(|stack| stack.borrow_mut().pop()).ok_or(INVALID_CONTEXT)?;
            put(context, popped);
            Ok(())
        })
    }
    fn cuCtxGetDevice(device: *mut c_int) {
        answer(|driver| { let (_, here) = driver.here()?; put(device, here as c_int); Ok(()) })
    }
    fn cuCtxGetApiVersion(_context: Handle, version: *mut c_uint) { put(version, 13_000); OK }
    fn cuCtxSetLimit(_limit: c_int, _bytes: usize) { answer(|driver| driver.here().map(|_| ())) }
    fn cuCtxGetLimit(bytes: *mut usize, _limit: c_int) { put(bytes, 8 << 20); OK }
    fn cuCtxSynchronize() { wait_until(|driver| driver.done_at(0)) }
    fn cuCtxSynchronize_v2(_context: Handle) { wait_until(|driver| driver.done_at(0)) }

    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        answer(|driver| {
            let (_, device) = driver.here()?;
            let whole = driver.hold.state.device[device].capacity.load(SeqCst);
            put(free, (whole - driver.hold.used(device)) as usize);
            put(total, whole as usize);
            Ok(())
        })
    }
    fn cuMemAlloc_v2(at: *mut Pointer, bytes: usize) {
        answer(|driver| { let made = driver.piece(bytes as u64)?; put(at, made); Ok(()) })
    }
    fn cuMemFree_v2(at: Pointer) { answer(|driver| { if at != 0 { driver.free(at)?; driver.settle(); } Ok(()) }) }
    fn cuMemAllocPitch_v2(at: *mut Pointer, pitch: *mut usize, width: usize, height: usize, _element: c_uint) {
        answer(|driver| {
            let step = match driver.hold.state.pitch.load(SeqCst) { 0 => 512, step => step };
            let row = up(width as u64, step);
            let made = driver.piece(row * height as u64)?;
            put(at, made);
            put(pitch, row as usize);
            Ok(())
        })
    }
    fn cuMemAllocManaged(at: *mut Pointer, bytes: usize, _flags: c_uint) { cuMemAlloc_v2(at, bytes) }
    fn cuMemHostAlloc(at: *mut *mut c_void, bytes: usize, _flags: c_uint) { cuMemAllocHost_v2(at, bytes) }
    fn cuMemAllocHost_v2(at: *mut *mut c_void, bytes: usize) {
        let made = mmap(std::ptr::null_mut(), bytes.max(1), 3, 0x22, -1, 0);
        put(at, made.cast());
        OK
    }
    fn cuMemFreeHost(_at: *mut c_void) { OK }
    fn cuMemHostGetDevicePointer_v2(at: *mut Pointer, host: *mut c_void, _flags: c_uint) { put(at, host as u64); OK }
    fn cuMemGetAddressRange_v2(base: *mut Pointer, bytes: *mut usize, at: Pointer) {
        answer(|driver| {
            let (from, piece) = driver.pieces.iter()
                .find(|(from, piece)| (**from..**from + piece.bytes).contains(&at)).ok_or(INVALID_VALUE)?;
            put(base, *from);
            put(bytes, piece.bytes as usize);
            Ok(())
        })
    }
    fn cuPointerGetAttribute(value: *mut c_void, attribute: c_int, at: Pointer) {
        answer(|driver| {
            let (_, piece) = driver.pieces.iter()
                .find(|(from, piece)| (**from..**from + piece.bytes).contains(&at)).ok_or(INVALID_VALUE)?;
            match attribute {
                1 => put(value.cast(), piece.context),
                2 => put(value.cast(), 2 as c_uint),
                3 => put(value.cast(), at),
                9 => put(value.cast(), piece.device as c_int),
                _ => return Err(NOT_SUPPORTED),
            }
            Ok(())
        })
    }

    fn cuMemAllocAsync(at: *mut Pointer, bytes: usize, stream: Handle) {
        answer(|driver| {
            let (_, device) = driver.here()?;
            if let Some(graph) = driver.streams.get(&stream).and_then(|stream| stream.capture) {
                driver.graphs.entry(graph).or_default().memory += up(bytes as u64, 512);
                let made = driver.address(up(bytes as u64, 512))?;
                put(at, made);
                return Ok(());
            }
            let pool = driver.pool_of(device);
            let made = driver.from_pool(pool, bytes as u64)?;
            put(at, made);
            Ok(())
        })
    }
    fn cuMemAllocAsync_ptsz(at: *mut Pointer, bytes: usize, stream: Handle) { cuMemAllocAsync(at, bytes, stream) }
    fn cuMemAllocFromPoolAsync(at: *mut Pointer, bytes: usize, pool: Handle, _stream: Handle) {
        answer(|driver| { let made = driver.from_pool(pool, bytes as u64)?; put(at, made); Ok(()) })
    }
    fn cuMemAllocFromPoolAsync_ptsz(at: *mut Pointer, bytes: usize, pool: Handle, stream: Handle) {
        cuMemAllocFromPoolAsync(at, bytes, pool, stream)
    }
    fn cuMemFreeAsync(at: Pointer, _stream: Handle) { answer(|driver| driver.free(at)) }
    fn cuMemFreeAsync_ptsz(at: Pointer, stream: Handle) { cuMemFreeAsync(at, stream) }
    fn cuMemPoolCreate(pool: *mut Handle, properties: *const AllocationProperties) {
        answer(|driver| {
            let device = driver.device((*properties).id)?;
            let handle = driver.handle();
            driver.pools.insert(handle, Pool::empty(device));
            put(pool, handle);
            Ok(())
        })
    }
    fn cuMemPoolDestroy(pool: Handle) {
        answer(|driver| {
            let gone = driver.pools.remove(&pool).ok_or(INVALID_HANDLE)?;
            driver.hold.give(gone.device, gone.reserved);
            driver.pieces.retain(|_, piece| piece.pool != Some(pool));
            driver.current_pool.retain(|_, current| *current != pool);
            Ok(())
        })
    }
    fn cuMemPoolTrimTo(pool: Handle, keep: usize) {
        answer(|driver| {
            let Driver { pools, hold, .. } = driver;
            trim(hold, pools.get_mut(&pool).ok_or(INVALID_HANDLE)?, keep as u64);
            Ok(())
        })
    }
    fn cuMemPoolGetAttribute(pool: Handle, attribute: c_int, value: *mut c_void) {
        answer(|driver| {
            let pool = driver.pools.get(&pool).ok_or(INVALID_HANDLE)?;
            put(value.cast::<u64>(), match attribute {
                4 => pool.threshold,
                5 | 6 => pool.reserved,
                7 | 8 => pool.used,
                _ => return Err(NOT_SUPPORTED),
            });
            Ok(())
        })
    }
    fn cuMemPoolSetAttribute(pool: Handle, attribute: c_int, value: *mut c_void) {
        answer(|driver| {
            let pool = driver.pools.get_mut(&pool).ok_or(INVALID_HANDLE)?;
            if attribute == 4 { pool.threshold = value.cast::<u64>().read(); }
            Ok(())
        })
    }
    fn cuMemPoolSetAccess(_pool: Handle, _map: *const c_void, _count: usize) { OK }
    fn cuDeviceGetDefaultMemPool(pool: *mut Handle, device: c_int) {
        answer(|driver| { let number = driver.device(device)?; put(pool, driver.default_pool_of(number)); Ok(()) })
    }
    fn cuDeviceGetMemPool(pool: *mut Handle, device: c_int) {
        answer(|driver| { let number = driver.device(device)?; put(pool, driver.pool_of(number)); Ok(()) })
    }
    fn cuDeviceSetMemPool(device: c_int, pool: Handle) {
        answer(|driver| { let number = driver.device(device)?; driver.current_pool.insert(number, pool); Ok(()) })
    }
    fn cuMemGetDefaultMemPool(pool: *mut Handle, location: *const [c_int; 2], _kind: c_int) {
        cuDeviceGetDefaultMemPool(pool, (*location)[1])
    }
    fn cuMemGetMemPool(pool: *mut Handle, location: *const [c_int; 2], _kind: c_int) {
        cuDeviceGetMemPool(pool, (*location)[1])
    }
    fn cuMemSetMemPool(location: *const [c_int; 2], _kind: c_int, pool: Handle) {
        cuDeviceSetMemPool((*location)[1], pool)
    }

    fn cuMemGetAllocationGranularity(bytes: *mut usize, _properties: *const AllocationProperties, _option: c_int) {
        put(bytes, 2 << 20);
        OK
    }
    fn cuMemAddressReserve(at: *mut Pointer, bytes: usize, _align: usize, _request: Pointer, _flags: u64) {
        answer(|driver| {
            driver.fresh = up(driver.fresh, 2 << 20);
            let made = driver.fresh;
            driver.fresh += up(bytes as u64, 2 << 20);
            put(at, made);
            Ok(())
        })
    }
    fn cuMemAddressFree(_at: Pointer, _bytes: usize) { OK }
    fn cuMemCreate(handle: *mut u64, bytes: usize, properties: *const AllocationProperties, _flags: u64) {
        answer(|driver| {
            driver.planted_fault()?;
            if bytes == 0 || !bytes.is_multiple_of(2 << 20) { return Err(INVALID_VALUE); }
            let device = driver.device((*properties).id)?;
            if (*properties).location == 1 { driver.take(device, bytes as u64)?; }
            let made = driver.handle() as u64;
            let counted = if (*properties).location == 1 { bytes as u64 } else { 0 };
            driver.physical.insert(made, Physical { bytes: counted, device, handles: 1, maps: 0 });
            put(handle, made);
            Ok(())
        })
    }
    fn cuMemRelease(handle: u64) {
        answer(|driver| {
            let physical = driver.physical.get_mut(&handle).ok_or(INVALID_VALUE)?;
            physical.handles = physical.handles.checked_sub(1).ok_or(INVALID_VALUE)?;
            driver.forget_physical(handle);
            Ok(())
        })
    }
    fn cuMemMap(at: Pointer, bytes: usize, _offset: usize, handle: u64, _flags: u64) {
        answer(|driver| {
            driver.physical.get_mut(&handle).ok_or(INVALID_VALUE)?.maps += 1;
            driver.maps.insert(at, (bytes as u64, handle));
            Ok(())
        })
    }
    fn cuMemUnmap(at: Pointer, bytes: usize) {
        answer(|driver| {
            let mut from = at;
            while from < at + bytes as u64 {
                let (size, handle) = driver.maps.remove(&from).ok_or(INVALID_VALUE)?;
                if let Some(physical) = driver.physical.get_mut(&handle) { physical.maps -= 1; }
                driver.forget_physical(handle);
                from += size;
            }
            Ok(())
        })
    }
    fn cuMemRetainAllocationHandle(handle: *mut u64, at: *mut c_void) {
        answer(|driver| {
            let found = driver.maps.iter()
                .find(|(from, (size, _))| (**from..**from + size).contains(&(at as u64)))
                .map(|(_, (_, handle))| *handle).ok_or(INVALID_VALUE)?;
            driver.physical.get_mut(&found).ok_or(INVALID_VALUE)?.handles += 1;
            put(handle, found);
            Ok(())
        })
    }
    fn cuMemSetAccess(_at: Pointer, _bytes: usize, _access: *const c_void, _count: usize) { OK }

    fn cuArrayCreate_v2(array: *mut Handle, request: *const ArrayDescriptor) {
        answer(|driver| {
            let request = &*request;
            let made = driver.array([request.width as u64, request.height as u64, 0], request.format, request.channels, 1, 0)?;
            put(array, made);
            Ok(())
        })
    }
    fn cuArray3DCreate_v2(array: *mut Handle, request: *const ArrayDescriptor3D) {
        cuMipmappedArrayCreate(array, request, 1)
    }
    fn cuMipmappedArrayCreate(array: *mut Handle, request: *const ArrayDescriptor3D, levels: c_uint) {
        answer(|driver| {
            let request = &*request;
            let extent = [request.width as u64, request.height as u64, request.depth as u64];
            let made = driver.array(extent, request.format, request.channels, levels, request.flags)?;
            put(array, made);
            Ok(())
        })
    }
    fn cuArrayDestroy(array: Handle) { answer(|driver| driver.drop_array(array)) }
    fn cuMipmappedArrayDestroy(array: Handle) { answer(|driver| driver.drop_array(array)) }

    fn cuMemcpyHtoD_v2(to: Pointer, from: *const c_void, bytes: usize) {
        answer(|_| { std::ptr::copy(from.cast::<u8>(), to as *mut u8, bytes); Ok(()) })
    }
    fn cuMemcpyDtoH_v2(to: *mut c_void, from: Pointer, bytes: usize) {
        answer(|_| { std::ptr::copy(from as *const u8, to.cast::<u8>(), bytes); Ok(()) })
    }
    fn cuMemcpyDtoD_v2(to: Pointer, from: Pointer, bytes: usize) {
        answer(|_| { std::ptr::copy(from as *const u8, to as *mut u8, bytes); Ok(()) })
    }
    fn cuMemcpyHtoDAsync_v2(to: Pointer, from: *const c_void, bytes: usize, _stream: Handle) { cuMemcpyHtoD_v2(to, from, bytes) }
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: Pointer, bytes: usize, _stream: Handle) { cuMemcpyDtoH_v2(to, from, bytes) }
    fn cuMemcpyDtoDAsync_v2(to: Pointer, from: Pointer, bytes: usize, _stream: Handle) { cuMemcpyDtoD_v2(to, from, bytes) }
    fn cuMemsetD8_v2(at: Pointer, value: u8, count: usize) {
        answer(|_| { std::ptr::write_bytes(at as *mut u8, value, count); Ok(()) })
    }
    fn cuMemsetD8Async(at: Pointer, value: u8, count: usize, _stream: Handle) { cuMemsetD8_v2(at, value, count) }

    fn cuStreamCreate(stream: *mut Handle, _flags: c_uint) {
        answer(|driver| {
            let handle = driver.handle();
            let (context, _) = driver.here()?;
            driver.streams.insert(handle, Stream { context, ..Stream::default() });
            put(stream, handle);
            Ok(())
        })
    }
    fn cuStreamCreateWithPriority(stream: *mut Handle, flags: c_uint, _priority: c_int) { cuStreamCreate(stream, flags) }
    fn cuStreamDestroy_v2(stream: Handle) { answer(|driver| { driver.streams.remove(&stream); Ok(()) }) }
    fn cuStreamSynchronize(stream: Handle) { wait_until(move |driver| driver.done_at(stream)) }
    fn cuStreamSynchronize_ptsz(stream: Handle) { cuStreamSynchronize(meant_per_thread(stream)) }
    fn cuStreamQuery(stream: Handle) {
        answer(|driver| if driver.hold.now() >= driver.done_at(stream) { Ok(()) } else { Err(NOT_READY) })
    }
    fn cuStreamIsCapturing(stream: Handle, status: *mut c_int) {
        answer(|driver| {
            let stream = meant(stream);
            let capturing = driver.streams.get(&stream).is_some_and(|stream| stream.capture.is_some());
            put(status, c_int::from(capturing));
            Ok(())
        })
    }
    fn cuStreamIsCapturing_ptsz(stream: Handle, status: *mut c_int) { cuStreamIsCapturing(meant_per_thread(stream), status) }
    fn cuStreamGetCtx(stream: Handle, context: *mut Handle) {
        answer(|driver| {
            let (here, _) = driver.here()?;
            put(context, driver.context_of(meant(stream)).unwrap_or(here));
            Ok(())
        })
    }
    fn cuStreamGetCtx_ptsz(stream: Handle, context: *mut Handle) { cuStreamGetCtx(meant_per_thread(stream), context) }
    fn cuStreamBeginCapture_v2(stream: Handle, _mode: c_int) {
        answer(|driver| {
            let stream = meant(stream);
            let graph = driver.handle();
            driver.graphs.insert(graph, Graph::default());
            driver.streams.entry(stream).or_default().capture = Some(graph);
            Ok(())
        })
    }
    fn cuStreamEndCapture(stream: Handle, graph: *mut Handle) {
        answer(|driver| {
            let stream = meant(stream);
            let made = driver.streams.get_mut(&stream).and_then(|stream| stream.capture.take()).ok_or(INVALID_VALUE)?;
            put(graph, made);
            Ok(())
        })
    }
    fn cuStreamWaitEvent(_stream: Handle, _event: Handle, _flags: c_uint) { OK }
    fn cuThreadExchangeStreamCaptureMode(mode: *mut c_int) { put(mode, 0); OK }
    fn cuEventCreate(event: *mut Handle, _flags: c_uint) {
        answer(|driver| {
            let (context, _) = driver.here()?;
            let handle = driver.handle();
            driver.events.insert(handle, (0, context));
            put(event, handle);
            Ok(())
        })
    }
    fn cuEventDestroy_v2(event: Handle) { answer(|driver| { driver.events.remove(&event); Ok(()) }) }
    fn cuEventRecord(event: Handle, stream: Handle) {
        answer(|driver| {
            let stream = meant(stream);
            if driver.streams.get(&stream).is_some_and(|stream| stream.capture.is_some()) {
                return Err(900);
            }
            let done = driver.done_at(stream);
            let (_, made_in) = *driver.events.get(&event).ok_or(INVALID_HANDLE)?;
            if driver.context_of(stream).is_some_and(|context| context != made_in) {
                return Err(INVALID_HANDLE);
            }
            driver.events.insert(event, (done, made_in));
            Ok(())
        })
    }
    fn cuEventRecord_ptsz(event: Handle, stream: Handle) { cuEventRecord(event, meant_per_thread(stream)) }
    fn cuEventQuery(event: Handle) {
        answer(|driver| {
            let (done, _) = *driver.events.get(&event).ok_or(INVALID_HANDLE)?;
            if driver.hold.now() >= done { Ok(()) } else { Err(NOT_READY) }
        })
    }
    fn cuEventSynchronize(event: Handle) {
        wait_until(move |driver| driver.events.get(&event).map_or(0, |(done, _)| *done))
    }
    fn cuEventElapsedTime(milliseconds: *mut f32, from: Handle, to: Handle) {
        answer(|driver| {
            let at = |event| driver.events.get(&event).map(|(done, _)| *done).ok_or(INVALID_HANDLE);
            put(milliseconds, (at(to)?.saturating_sub(at(from)?)) as f32 / 1e6);
            Ok(())
        })
    }

    fn cuGraphCreate(graph: *mut Handle, _flags: c_uint) {
        answer(|driver| { let handle = driver.handle(); driver.graphs.insert(handle, Graph::default()); put(graph, handle); Ok(()) })
    }
    fn cuGraphDestroy(graph: Handle) { answer(|driver| { driver.graphs.remove(&graph); Ok(()) }) }
    fn cuGraphAddMemAllocNode(node: *mut Handle, graph: Handle, _after: *const Handle, _count: usize, request: *mut u8) {
        answer(|driver| {
            let bytes = request.add(104).cast::<usize>().read() as u64;
            driver.graphs.get_mut(&graph).ok_or(INVALID_HANDLE)?.memory += up(bytes, 512);
            let at = driver.address(up(bytes, 512))?;
            request.add(112).cast::<u64>().write(at);
            let handle = driver.handle();
            put(node, handle);
            Ok(())
        })
    }
    fn cuGraphInstantiateWithFlags(made: *mut Handle, graph: Handle, _flags: u64) {
        answer(|driver| {
            let graph = driver.graphs.get(&graph).ok_or(INVALID_HANDLE)?.clone();
            let handle = driver.handle();
            driver.executables.insert(handle, graph);
            put(made, handle);
            Ok(())
        })
    }
    fn cuGraphExecDestroy(graph: Handle) { answer(|driver| { driver.executables.remove(&graph); Ok(()) }) }
    fn cuGraphLaunch(graph: Handle, stream: Handle) {
        answer(|driver| {
            let graph = driver.executables.get(&graph).ok_or(INVALID_HANDLE)?.clone();
            let (_, device) = driver.here()?;
            let have = driver.graph_reserved.get(&device).copied().unwrap_or(0);
            if graph.memory > have {
                driver.take(device, graph.memory - have)?;
                driver.graph_reserved.insert(device, graph.memory);
            }
            driver.launch(stream, graph.nanoseconds)
        })
    }
    fn cuGraphLaunch_ptsz(graph: Handle, stream: Handle) { cuGraphLaunch(graph, meant_per_thread(stream)) }
    fn cuDeviceGetGraphMemAttribute(device: c_int, attribute: c_int, value: *mut u64) {
        answer(|driver| {
            let device = driver.device(device)?;
            put(value, if attribute >= 2 { driver.graph_reserved.get(&device).copied().unwrap_or(0) } else { 0 });
            Ok(())
        })
    }
    fn cuDeviceGraphMemTrim(device: c_int) {
        answer(|driver| {
            let device = driver.device(device)?;
            if let Some(bytes) = driver.graph_reserved.remove(&device) { driver.hold.give(device, bytes); }
            Ok(())
        })
    }

    fn cuModuleLoadData(module: *mut Handle, _image: *const c_void) {
        answer(|driver| {
            driver.here()?;
            let handle = driver.handle();
            driver.modules.insert(handle, HashMap::new());
            put(module, handle);
            Ok(())
        })
    }
    fn cuModuleLoadDataEx(module: *mut Handle, image: *const c_void, _count: c_uint, _names: *mut c_int, _values: *mut *mut c_void) {
        cuModuleLoadData(module, image)
    }
    fn cuModuleUnload(module: Handle) { answer(|driver| { driver.modules.remove(&module); Ok(()) }) }
    fn cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char) {
        answer(|driver| {
            let name = CStr::from_ptr(name).to_string_lossy().into_owned();
            let known = driver.modules.get(&module).ok_or(INVALID_HANDLE)?.get(&name).copied();
            let made = match known {
                Some(made) => made,
                None => {
                    let handle = driver.handle();
                    let microseconds: u64 = name.strip_prefix("spin").and_then(|rest| rest.parse().ok()).unwrap_or(0);
                    driver.functions.insert(handle, microseconds * 1000);
                    driver.modules.get_mut(&module).ok_or(INVALID_HANDLE)?.insert(name, handle);
                    handle
                }
            };
            put(function, made);
            Ok(())
        })
    }
    fn cuLibraryLoadData(library: *mut Handle, image: *const c_void, _names: *mut c_int, _values: *mut *mut c_void, _count: c_uint, _more: *mut c_int, _their: *mut *mut c_void, _many: c_uint) {
        cuModuleLoadData(library, image)
    }
    fn cuLibraryUnload(library: Handle) { cuModuleUnload(library) }
    fn cuLibraryGetModule(module: *mut Handle, library: Handle) { put(module, library); OK }
    fn cuLibraryGetKernel(kernel: *mut Handle, library: Handle, name: *const c_char) { cuModuleGetFunction(kernel, library, name) }
    fn cuLibraryGetKernelCount(count: *mut c_uint, _library: Handle) { put(count, 1); OK }
    fn cuKernelGetFunction(function: *mut Handle, kernel: Handle) { put(function, kernel); OK }
    fn cuKernelGetAttribute(value: *mut c_int, attribute: c_int, kernel: Handle, _device: c_int) { cuFuncGetAttribute(value, attribute, kernel) }
    fn cuKernelSetAttribute(_attribute: c_int, _value: c_int, _kernel: Handle, _device: c_int) { OK }
    fn cuKernelGetParamInfo(_kernel: Handle, _index: usize, offset: *mut usize, size: *mut usize) { put(offset, 0); put(size, 8); OK }
    fn cuModuleGetGlobal_v2(_at: *mut Pointer, _bytes: *mut usize, _module: Handle, _name: *const c_char) { NOT_FOUND }
    fn cuFuncGetAttribute(value: *mut c_int, attribute: c_int, _function: Handle) {
        put(value, if attribute == 0 { 1024 } else { 0 });
        OK
    }
    fn cuFuncSetCacheConfig(_function: Handle, _request: c_int) { OK }
    fn cuFuncSetAttribute(_function: Handle, _attribute: c_int, _value: c_int) { OK }
    fn cuOccupancyMaxPotentialBlockSize(grid: *mut c_int, block: *mut c_int, _function: Handle, _shared: *const c_void, _dynamic: usize, _limit: c_int) {
        put(grid, 132);
        put(block, 1024);
        OK
    }
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(count: *mut c_int, _function: Handle, _size: c_int, _dynamic: usize) { put(count, 2); OK }
    fn cuLinkCreate_v2(_count: c_uint, _names: *mut c_int, _values: *mut *mut c_void, made: *mut Handle) { put(made, 0x77); OK }
    fn cuLinkAddData_v2(_link: Handle, _kind: c_int, _bytes: *mut c_void, _size: usize, _name: *const c_char, _count: c_uint, _names: *mut c_int, _values: *mut *mut c_void) { OK }
    fn cuLinkComplete(_link: Handle, made: *mut *const c_void, size: *mut usize) { put(made, c"cubin".as_ptr().cast()); put(size, 6); OK }
    fn cuLinkDestroy(_link: Handle) { OK }

    fn cuLaunchKernel(function: Handle, _gx: c_uint, _gy: c_uint, _gz: c_uint, _bx: c_uint, _by: c_uint, _bz: c_uint, _shared: c_uint, stream: Handle, _parameters: *mut *mut c_void, _extra: *mut *mut c_void) {
        answer(|driver| { let takes = function_of(driver, function)?; driver.launch(stream, takes) })
    }
    fn cuLaunchKernel_ptsz(function: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: Handle, parameters: *mut *mut c_void, extra: *mut *mut c_void) {
        cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, meant_per_thread(stream), parameters, extra)
    }
    fn cuLaunchKernelEx(request: *const LaunchConfiguration, function: Handle, _parameters: *mut *mut c_void, _extra: *mut *mut c_void) {
        answer(|driver| { let takes = function_of(driver, function)?; driver.launch((*request).stream, takes) })
    }
    fn cuLaunchKernelEx_ptsz(request: *const LaunchConfiguration, function: Handle, parameters: *mut *mut c_void, extra: *mut *mut c_void) {
        cuLaunchKernelEx(request, function, parameters, extra)
    }
    fn cuLaunchCooperativeKernel(function: Handle, _gx: c_uint, _gy: c_uint, _gz: c_uint, _bx: c_uint, _by: c_uint, _bz: c_uint, _shared: c_uint, stream: Handle, _parameters: *mut *mut c_void) {
        answer(|driver| { let takes = function_of(driver, function)?; driver.launch(stream, takes) })
    }
    fn cuLaunchCooperativeKernel_ptsz(function: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: Handle, parameters: *mut *mut c_void) {
        cuLaunchCooperativeKernel(function, gx, gy, gz, bx, by, bz, shared, meant_per_thread(stream), parameters)
    }

    fn cuGetProcAddress_v2(name: *const c_char, found: *mut *const c_void, version: c_int, flags: u64, status: *mut c_int) {
        let name = CStr::from_ptr(name).to_string_lossy();
        let pointer = choose(&name, version, flags);
        put(found, pointer.unwrap_or(std::ptr::null()));
        put(status, if pointer.is_some() { 0 } else { 1 });
        if pointer.is_some() || !status.is_null() { OK } else { NOT_FOUND }
    }
    fn cuGetProcAddress_v2_ptsz(name: *const c_char, found: *mut *const c_void, version: c_int, flags: u64, status: *mut c_int) {
        cuGetProcAddress_v2(name, found, version, flags | 2, status)
    }
    fn cuGetProcAddress(name: *const c_char, found: *mut *const c_void, version: c_int, flags: u64) {
        let name = CStr::from_ptr(name).to_string_lossy();
        let pointer = choose(&name, version, flags);
        put(found, pointer.unwrap_or(std::ptr::null()));
        if pointer.is_some() { OK } else { NOT_FOUND }
    }
}

/// Names whose ABI changed, and since when.
const SECOND: [(&str, c_int); 24] = [
    ("cuMemAlloc", 3020),
    ("cuMemFree", 3020),
    ("cuMemAllocPitch", 3020),
    ("cuMemGetInfo", 3020),
    ("cuMemGetAddressRange", 3020),
    ("cuMemAllocHost", 3020),
    ("cuDeviceTotalMem", 3020),
    ("cuArrayCreate", 3020),
    ("cuArray3DCreate", 3020),
    ("cuMemcpyHtoD", 3020),
    ("cuMemcpyDtoH", 3020),
    ("cuMemcpyDtoD", 3020),
    ("cuCtxCreate", 3020),
    ("cuCtxDestroy", 4000),
    ("cuCtxPushCurrent", 4000),
    ("cuCtxPopCurrent", 4000),
    ("cuStreamDestroy", 4000),
    ("cuEventDestroy", 4000),
    ("cuDevicePrimaryCtxRelease", 11000),
    ("cuDevicePrimaryCtxReset", 11000),
    ("cuDeviceGetUuid", 11040),
    ("cuStreamBeginCapture", 10010),
    ("cuModuleGetGlobal", 3020),
    ("cuGetProcAddress", 12000),
];

fn choose(name: &str, version: c_int, flags: u64) -> Option<*const c_void> {
    let second = SECOND
        .iter()
        .find(|(known, since)| *known == name && version >= *since)
        .map(|_| format!("{name}_v2"));
    let name = second.as_deref().unwrap_or(name);
    let wrapped = driver().is_ok_and(|driver| driver.hold.state.wrapped.load(SeqCst) != 0);
    if wrapped {
        match name {
            "cuMemAlloc_v2" => return Some(wrapped_alloc as *const c_void),
            "cuMemAllocAsync" => return Some(wrapped_async as *const c_void),
            _ => {}
        }
    }
    let per_thread = (flags & 2 != 0)
        .then(|| find(&format!("{name}_ptsz")).or_else(|| find(&format!("{name}_ptds"))))
        .flatten();
    per_thread
        .or_else(|| find(name))
        .map(|pointer| pointer.cast())
}

unsafe extern "C" fn wrapped_alloc(at: *mut Pointer, bytes: usize) -> Result {
    unsafe { cuMemAlloc_v2(at, bytes) }
}

unsafe extern "C" fn wrapped_async(at: *mut Pointer, bytes: usize, stream: Handle) -> Result {
    // Or the compiler makes it one with another function of the same body.
    unsafe { cuMemAllocAsync(at, std::hint::black_box(bytes), stream) }
}

fn error(code: Result) -> (&'static CStr, &'static CStr) {
    match code {
        0 => (c"CUDA_SUCCESS", c"no error"),
        2 => (c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
        3 => (c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error"),
        100 => (
            c"CUDA_ERROR_NO_DEVICE",
            c"no CUDA-capable device is detected",
        ),
        801 => (c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported"),
        _ => (c"CUDA_ERROR_UNKNOWN", c"unknown error"),
    }
}
