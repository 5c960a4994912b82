//! A stand-in for `libnvidia-ml.so.1` over the same simulated devices as the fake driver: whole devices,
//! everybody's processes, and setters that obey anybody, so that a test sees what a hook hides and
//! refuses. Tests only: never part of the product.

#[expect(dead_code, reason = "memory is the fake CUDA's side of that file")]
mod state;
include!(concat!(env!("FAKE_OUT"), "/nvml_stubs.rs"));

use std::ffi::{c_char, c_int, c_uint};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

use state::Hold;

type Result = c_int;
type Device = usize;
const OK: Result = 0;
const INVALID_ARGUMENT: Result = 2;
/// What the generated stubs answer.
const UNSUPPORTED: Result = 3;
const NOT_FOUND: Result = 6;
const TOO_SMALL: Result = 7;
const TIMEOUT: Result = 10;
const LOST: Result = 15;
const OPERATING_SYSTEM: Result = 17;
const IN_USE: Result = 19;
const NO_RESOURCES: Result = 23;
const VERSION: Result = 25;
const UNKNOWN: Result = 999;
/// Handles from here on are partitions: ten to a device.
const PARTS: usize = 100;

/// Opened once: whoever asks for hours has one descriptor and one mapping of it.
fn hold() -> Option<&'static Hold> {
    static HOLD: OnceLock<Hold> = OnceLock::new();
    if HOLD.get().is_none() {
        let open = Hold::open(concat!(env!("FAKE_PLACE"), "/state"))?;
        return Some(HOLD.get_or_init(|| open));
    }
    HOLD.get()
}

/// Devices that were lost since the library was opened: for it they stay lost.
static MISSED: AtomicU32 = AtomicU32::new(0);

fn with(device: Device, work: impl FnOnce(&Hold, usize)) -> Result {
    if let Some(hold) = hold() {
        MISSED.fetch_or(hold.state.nvml_lost.load(SeqCst), SeqCst);
    }
    match hold() {
        Some(_) if bit(&MISSED, device.wrapping_sub(1)) => LOST,
        Some(hold) if device >= 1 && device <= hold.state.devices.load(SeqCst) as usize => {
            work(hold, device - 1);
            OK
        }
        _ => INVALID_ARGUMENT,
    }
}

/// A size of partition: slices of compute and of memory, and where it may begin. Their numbers among
/// themselves are those of the list; the driver's own names for them are others.
struct Size {
    id: c_uint,
    compute: c_uint,
    memory: usize,
    starts: &'static [usize],
}

const SIZES: [Size; 5] = [
    Size { id: 19, compute: 1, memory: 1, starts: &[6, 5, 4, 3, 2, 1, 0] },
    Size { id: 14, compute: 2, memory: 2, starts: &[4, 2, 0] },
    Size { id: 9, compute: 3, memory: 4, starts: &[4, 0] },
    Size { id: 5, compute: 4, memory: 4, starts: &[0] },
    Size { id: 0, compute: 7, memory: 8, starts: &[0] },
];

fn size_of_word(word: u32) -> Option<usize> {
    (word % state::PEOPLED).checked_sub(1).map(|number| number as usize)
}

/// What people call it: `3g.40gb` on a device of 80 GiB.
fn word_of(hold: &Hold, at: usize, size: &Size) -> String {
    let gigabytes = (hold.state.device[at].capacity.load(SeqCst) >> 30) as usize * size.memory / state::SLICES;
    format!("{}g.{gigabytes}gb", size.compute)
}

/// Where the partitions of a device begin, in that order.
fn starts(hold: &Hold, at: usize) -> impl Iterator<Item = usize> + '_ {
    (0..state::SLICES).filter(move |start| hold.state.nvml_part[at][*start].load(SeqCst) != 0)
}

/// The same for the n-th partition of a device that is cut: its size, and where it begins.
fn with_part(device: Device, work: impl FnOnce(&Hold, usize, usize, &Size)) -> Result {
    let found = device.checked_sub(PARTS).zip(hold()).and_then(|(part, hold)| {
        let at = part / 10;
        let start = starts(hold, at).filter(|start| hold.state.nvml_part[at][*start].load(SeqCst) & state::PEOPLED != 0).nth(part % 10)?;
        let size = size_of_word(hold.state.nvml_part[at][start].load(SeqCst))?;
        bit(&hold.state.nvml_mig, at).then_some((hold, at, start, size))
    });
    match found {
        Some((hold, at, start, size)) => {
            work(hold, at, start, &SIZES[size]);
            OK
        }
        None => INVALID_ARGUMENT,
    }
}

/// A handle of a partition, or of its compute instance: both are the same number here.
fn handle_of(at: usize, start: usize) -> usize {
    1000 + at * 10 + start
}

fn part_of(handle: usize) -> Option<(&'static Hold, usize, usize)> {
    let (hold, number) = (hold()?, handle.checked_sub(1000)?);
    let (at, start) = (number / 10, number % 10);
    (at < state::DEVICES && start < state::SLICES && hold.state.nvml_part[at][start].load(SeqCst) != 0).then_some((hold, at, start))
}

/// Somebody computes on the device.
fn is_in_use(hold: &Hold, at: usize) -> bool {
    hold.living().any(|row| row.contexts.load(SeqCst) != 0 && row.bytes[at].load(SeqCst) != 0)
}

/// Makes a partition at its first free place.
fn make_part(hold: &Hold, at: usize, number: usize) -> Option<usize> {
    let size = &SIZES[number];
    let mut taken = [false; state::SLICES];
    let mut compute = size.compute;
    for start in starts(hold, at) {
        let other = &SIZES[size_of_word(hold.state.nvml_part[at][start].load(SeqCst))?];
        taken[start..start + other.memory].fill(true);
        compute += other.compute;
    }
    let free = |start: &&usize| !taken[**start..**start + size.memory].contains(&true);
    let start = *size.starts.iter().find(free).filter(|_| compute <= 7)?;
    hold.state.nvml_part[at][start].store(number as u32 + 1, SeqCst);
    Some(start)
}

fn bit(word: &AtomicU32, at: usize) -> bool {
    at < 32 && word.load(SeqCst) & (1 << at) != 0
}

/// What a test planted for every question, before it is answered.
fn trouble() -> Result {
    match hold().map_or(0, |hold| hold.state.nvml_trouble.load(SeqCst)) {
        state::HANGS => loop {
            std::thread::sleep(std::time::Duration::from_secs(3600));
        },
        state::CRASHES => {
            eprintln!("the fake NVML dies as it was told");
            std::process::abort()
        }
        state::TALKS_NONSENSE => {
            println!("{{\"number\":1,\"told\":{{\"cards\":\"none of your business\"}}}}");
            OK
        }
        state::REFUSES => UNKNOWN,
        _ => OK,
    }
}

/// Where a device is on the bus.
fn place(at: usize) -> Pci {
    let mut pci = Pci { short: [0; 16], domain: 0, bus: 0x41 + at as c_uint, device: 0, id: 0, board: 0, long: [0; 32] };
    let text = format!("00000000:{:02X}:00.0", pci.bus);
    for (to, from) in pci.long.iter_mut().zip(text.bytes()) {
        *to = from;
    }
    for (to, from) in pci.short.iter_mut().zip(text.bytes().skip(4)) {
        *to = from;
    }
    pci
}

#[repr(C)]
pub struct Pci {
    short: [u8; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    id: c_uint,
    board: c_uint,
    long: [u8; 32],
}

#[repr(C)]
pub struct Limits {
    group: *const c_char,
    soft: u64,
    hard: u64,
}

#[repr(C)]
pub struct Event {
    device: Device,
    kind: u64,
    number: u64,
    instance: c_uint,
    compute: c_uint,
}

#[repr(C)]
pub struct Profile {
    version: c_uint,
    id: c_uint,
    linked: c_uint,
    slices: c_uint,
    instances: c_uint,
    others: [c_uint; 6],
    mib: u64,
    name: [c_char; 96],
}

/// A device of 80 GiB is of a kind that people know how to cut.
fn model() -> &'static str {
    match hold().map_or(0, |hold| hold.state.device[0].capacity.load(SeqCst) >> 30) {
        80 => "fardel fake device H100",
        _ => "fardel fake device",
    }
}

#[repr(C)]
pub struct Attributes {
    multiprocessors: c_uint,
    others: [c_uint; 7],
    mib: u64,
}

unsafe fn put<T>(at: *mut T, value: T) {
    if !at.is_null() {
        unsafe { at.write(value) };
    }
}

unsafe fn write_text(text: &str, at: *mut c_char, room: c_uint) -> Result {
    if text.len() + 1 > room as usize {
        return TOO_SMALL;
    }
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), at, text.len());
        at.add(text.len()).write(0);
    }
    OK
}

#[repr(C)]
pub struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

#[repr(C)]
pub struct MemoryV2 {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

#[repr(C)]
pub struct Listed {
    pid: c_uint,
    bytes: u64,
    instance: c_uint,
    compute: c_uint,
}

#[repr(C)]
pub struct ListedFirst {
    pid: c_uint,
    bytes: u64,
}

#[repr(C)]
pub struct Sample {
    pid: c_uint,
    at: u64,
    sm: c_uint,
    memory: c_uint,
    encoder: c_uint,
    decoder: c_uint,
}

/// Everybody with a context, and what he holds.
fn everybody(hold: &Hold, device: usize) -> Vec<(u32, u64)> {
    hold.living()
        .filter(|row| row.contexts.load(SeqCst) != 0)
        .map(|row| (row.pid.load(SeqCst), row.bytes[device].load(SeqCst)))
        .collect()
}

unsafe fn list<T>(
    device: Device,
    count: *mut c_uint,
    out: *mut T,
    make: impl Fn(u32, u64) -> T,
) -> Result {
    let mut code = OK;
    let found = with(device, |hold, at| {
        let all = everybody(hold, at);
        let room = if out.is_null() {
            0
        } else {
            (unsafe { *count }) as usize
        };
        for (number, (pid, bytes)) in all.iter().enumerate().take(room) {
            unsafe { out.add(number).write(make(*pid, *bytes)) };
        }
        unsafe { *count = all.len() as c_uint };
        if all.len() > room {
            code = TOO_SMALL;
        }
    });
    if found == OK { code } else { found }
}

macro_rules! exports {
    ($( fn $name:ident ( $( $argument:ident : $kind:ty ),* ) $body:block )*) => {
        $( #[unsafe(no_mangle)]
           #[allow(non_snake_case, clippy::missing_safety_doc)]
           pub unsafe extern "C" fn $name( $( $argument: $kind ),* ) -> Result { unsafe { $body } } )*
    };
}

exports! {
    fn nvmlInit_v2() { std::hint::black_box(state::MARKER); MISSED.store(0, SeqCst); if hold().is_some() { OK } else { 9 } }
    fn nvmlInit() { nvmlInit_v2() }
    fn nvmlInitWithFlags(_flags: c_uint) { nvmlInit_v2() }
    fn nvmlShutdown() { OK }
    fn nvmlSystemGetDriverVersion(text: *mut c_char, room: c_uint) { write_text("580.0.fake", text, room) }
    fn nvmlSystemGetNVMLVersion(text: *mut c_char, room: c_uint) { write_text("13.580.0.fake", text, room) }
    fn nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) { put(version, 13_000); OK }
    fn nvmlSystemGetCudaDriverVersion(version: *mut c_int) { put(version, 13_000); OK }
    fn nvmlDeviceGetCount_v2(count: *mut c_uint) {
        let trouble = trouble();
        if trouble != OK { return trouble; }
        match hold() { Some(hold) => { put(count, hold.state.devices.load(SeqCst)); OK } None => 9 }
    }
    fn nvmlDeviceGetCount(count: *mut c_uint) { nvmlDeviceGetCount_v2(count) }
    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut Device) {
        with(index as usize + 1, |_, at| put(device, at + 1))
    }
    fn nvmlDeviceGetHandleByIndex(index: c_uint, device: *mut Device) { nvmlDeviceGetHandleByIndex_v2(index, device) }
    fn nvmlDeviceGetHandleByUUID(wanted: *const c_char, device: *mut Device) {
        let count = hold().map_or(0, |hold| hold.state.devices.load(SeqCst) as usize);
        for handle in 1..=count {
            let mut text = [0; 96];
            if nvmlDeviceGetUUID(handle, text.as_mut_ptr(), 96) == OK
                && std::ffi::CStr::from_ptr(text.as_ptr()) == std::ffi::CStr::from_ptr(wanted)
            {
                put(device, handle);
                return OK;
            }
        }
        NOT_FOUND
    }
    fn nvmlDeviceGetIndex(device: Device, index: *mut c_uint) { with(device, |_, at| put(index, at as c_uint)) }
    fn nvmlDeviceGetName(device: Device, text: *mut c_char, room: c_uint) {
        match device.checked_sub(PARTS) {
            Some(_) => {
                let mut name = String::new();
                let found = with_part(device, |hold, at, _, size| name = format!("fardel fake device MIG {}", word_of(hold, at, size)));
                if found == OK { write_text(&name, text, room) } else { found }
            }
            None => write_text(model(), text, room),
        }
    }
    fn nvmlDeviceGetUUID(device: Device, text: *mut c_char, room: c_uint) {
        if device >= PARTS { return write_text(&format!("MIG-fake-{device}"), text, room); }
        let mut code = OK;
        let found = with(device, |hold, at| {
            let mut spelled = String::from("GPU-");
            let words = hold.state.device[at].uuid.each_ref().map(|word| word.load(SeqCst).to_ne_bytes());
            for (number, byte) in words.iter().flatten().enumerate() {
                if matches!(number, 4 | 6 | 8 | 10) { spelled.push('-'); }
                spelled.push_str(&format!("{byte:02x}"));
            }
            code = write_text(&spelled, text, room);
        });
        if found == OK { code } else { found }
    }
    fn nvmlDeviceGetMemoryInfo(device: Device, out: *mut Memory) {
        with(device, |hold, at| {
            let (total, used) = (hold.state.device[at].capacity.load(SeqCst), hold.used(at));
            put(out, Memory { total, free: total - used, used });
        })
    }
    fn nvmlDeviceGetMemoryInfo_v2(device: Device, out: *mut MemoryV2) {
        if device >= PARTS {
            return with_part(device, |hold, at, _, size| {
                let total = hold.state.device[at].capacity.load(SeqCst) / state::SLICES as u64 * size.memory as u64;
                let version = (*out).version;
                put(out, MemoryV2 { version, total, reserved: 0, free: total, used: 0 });
            });
        }
        with(device, |hold, at| {
            let (total, used) = (hold.state.device[at].capacity.load(SeqCst), hold.used(at));
            let version = (*out).version;
            put(out, MemoryV2 { version, total, reserved: 1 << 20, free: total - used, used });
        })
    }
    fn nvmlDeviceGetPciInfo_v3(device: Device, out: *mut Pci) { with(device, |_, at| put(out, place(at))) }
    fn nvmlDeviceGetMinorNumber(device: Device, out: *mut c_uint) { with(device, |_, at| put(out, at as c_uint)) }
    fn nvmlDeviceGetNumGpuCores(device: Device, out: *mut c_uint) { with(device, |_, _| put(out, 132 * 128)) }
    fn nvmlDeviceGetCudaComputeCapability(device: Device, major: *mut c_int, minor: *mut c_int) {
        with(device, |_, _| { put(major, 9); put(minor, 0) })
    }
    // The first link leads to the device's neighbour, 0 to 1 and 2 to 3; the others lead nowhere.
    fn nvmlDeviceGetNvLinkState(device: Device, link: c_uint, up: *mut c_uint) {
        if link > 3 { return INVALID_ARGUMENT; }
        with(device, |hold, at| put(up, c_uint::from(link == 0 && (at ^ 1) < hold.state.devices.load(SeqCst) as usize)))
    }
    fn nvmlDeviceGetNvLinkRemotePciInfo_v2(device: Device, _link: c_uint, out: *mut Pci) {
        with(device, |_, at| put(out, place(at ^ 1)))
    }
    fn nvmlDeviceGetNvLinkRemoteDeviceType(device: Device, _link: c_uint, kind: *mut c_uint) { with(device, |_, _| put(kind, 0)) }
    fn nvmlDeviceGetMigMode(device: Device, now: *mut c_uint, later: *mut c_uint) {
        with(device, |hold, at| {
            let partitioned = c_uint::from(bit(&hold.state.nvml_mig, at));
            put(now, partitioned);
            put(later, partitioned)
        })
    }
    fn nvmlDeviceGetMaxMigDeviceCount(device: Device, count: *mut c_uint) { with(device, |_, _| put(count, 7)) }
    fn nvmlDeviceGetMigDeviceHandleByIndex(device: Device, part: c_uint, out: *mut Device) {
        let handle = PARTS + (device - 1) * 10 + part as usize;
        with_part(handle, |_, _, _, _| put(out, handle))
    }
    fn nvmlDeviceGetAttributes_v2(device: Device, out: *mut Attributes) {
        with_part(device, |_, _, _, size| {
            let multiprocessors = [16, 32, 60, 64, 132][SIZES.iter().position(|other| other.id == size.id).unwrap_or(0)];
            put(out, Attributes { multiprocessors, others: [0; 7], mib: 0 })
        })
    }
    fn nvmlDeviceGetGpuInstanceId(device: Device, out: *mut c_uint) { with_part(device, |_, _, start, _| put(out, start as c_uint + 1)) }
    fn nvmlDeviceGetComputeInstanceId(device: Device, out: *mut c_uint) { with_part(device, |_, _, _, _| put(out, 0)) }
    fn nvmlDeviceSetMigMode(device: Device, mode: c_uint, status: *mut Result) {
        let mut code = OK;
        let found = with(device, |hold, at| {
            if is_in_use(hold, at) { code = IN_USE; return; }
            put(status, OK);
            if bit(&hold.state.nvml_resets, at) { put(status, UNSUPPORTED); return; }
            match mode {
                0 => hold.state.nvml_mig.fetch_and(!(1 << at), SeqCst),
                _ => hold.state.nvml_mig.fetch_or(1 << at, SeqCst),
            };
        });
        if found == OK { code } else { found }
    }
    fn nvmlDeviceGetGpuInstanceProfileInfoV(device: Device, profile: c_uint, out: *mut Profile) {
        let Some(size) = SIZES.get(profile as usize) else { return UNSUPPORTED };
        if (*out).version != size_of::<Profile>() as c_uint | 2 << 24 { return VERSION; }
        with(device, |hold, at| {
            let told = &mut *out;
            (told.id, told.slices, told.instances) = (size.id, size.compute, size.starts.len() as c_uint);
            told.mib = (hold.state.device[at].capacity.load(SeqCst) >> 20) / state::SLICES as u64 * size.memory as u64;
            write_text(&format!("MIG {}", word_of(hold, at, size)), told.name.as_mut_ptr(), 96);
        })
    }
    fn nvmlDeviceGetGpuInstances(device: Device, id: c_uint, out: *mut usize, count: *mut c_uint) {
        with(device, |hold, at| {
            let mut found = 0;
            for start in starts(hold, at) {
                let size = size_of_word(hold.state.nvml_part[at][start].load(SeqCst));
                if size.is_some_and(|size| SIZES[size].id == id) {
                    out.add(found).write(handle_of(at, start));
                    found += 1;
                }
            }
            put(count, found as c_uint)
        })
    }
    fn nvmlDeviceCreateGpuInstance(device: Device, id: c_uint, out: *mut usize) {
        let mut code = OK;
        let found = with(device, |hold, at| {
            let number = SIZES.iter().position(|size| size.id == id);
            let grudged = number == Some(0) && bit(&hold.state.nvml_grudges, at);
            let made = number.filter(|_| bit(&hold.state.nvml_mig, at) && !grudged).and_then(|number| make_part(hold, at, number));
            match made {
                Some(start) => put(out, handle_of(at, start)),
                None => code = NO_RESOURCES,
            }
        });
        if found == OK { code } else { found }
    }
    fn nvmlGpuInstanceDestroy(part: usize) {
        let Some((hold, at, start)) = part_of(part) else { return INVALID_ARGUMENT };
        let word = &hold.state.nvml_part[at][start];
        if is_in_use(hold, at) || word.load(SeqCst) & state::PEOPLED != 0 { return IN_USE; }
        word.store(0, SeqCst);
        OK
    }
    fn nvmlGpuInstanceGetComputeInstanceProfileInfo(part: usize, profile: c_uint, _engines: c_uint, out: *mut [c_uint; 9]) {
        let Some((hold, at, start)) = part_of(part) else { return INVALID_ARGUMENT };
        // Numbered by how many slices they have, all that a partition has room for.
        let whole = size_of_word(hold.state.nvml_part[at][start].load(SeqCst)).map_or(0, |size| SIZES[size].compute);
        if profile + 1 > whole { return UNSUPPORTED; }
        put(out, [profile, profile + 1, whole / (profile + 1), 0, 0, 0, 0, 0, 0]);
        OK
    }
    fn nvmlGpuInstanceGetComputeInstances(part: usize, id: c_uint, out: *mut usize, count: *mut c_uint) {
        let Some((hold, at, start)) = part_of(part) else { return INVALID_ARGUMENT };
        let word = hold.state.nvml_part[at][start].load(SeqCst);
        let whole = size_of_word(word).map_or(0, |size| SIZES[size].compute);
        let there = word & state::PEOPLED != 0 && id + 1 == whole;
        if there { put(out, part); }
        put(count, c_uint::from(there));
        OK
    }
    fn nvmlGpuInstanceCreateComputeInstance(part: usize, id: c_uint, out: *mut usize) {
        let Some((hold, at, start)) = part_of(part) else { return INVALID_ARGUMENT };
        let word = &hold.state.nvml_part[at][start];
        let whole = size_of_word(word.load(SeqCst)).map_or(0, |size| SIZES[size].compute);
        if id + 1 != whole { return UNSUPPORTED; }
        word.fetch_or(state::PEOPLED, SeqCst);
        put(out, part);
        OK
    }
    fn nvmlComputeInstanceDestroy(instance: usize) {
        let Some((hold, at, start)) = part_of(instance) else { return INVALID_ARGUMENT };
        if is_in_use(hold, at) { return IN_USE; }
        hold.state.nvml_part[at][start].fetch_and(!state::PEOPLED, SeqCst);
        OK
    }
    fn nvmlDeviceGetTotalEccErrors(device: Device, _kind: c_uint, _counter: c_uint, out: *mut u64) { with(device, |_, _| put(out, 0)) }
    fn nvmlDeviceGetRemappedRows(device: Device, once: *mut c_uint, never: *mut c_uint, pending: *mut c_uint, failed: *mut c_uint) {
        with(device, |hold, at| {
            put(once, 0);
            put(never, 0);
            put(pending, c_uint::from(bit(&hold.state.nvml_worn, at)));
            put(failed, 0)
        })
    }
    fn nvmlDeviceGetCurrentClocksThrottleReasons(device: Device, out: *mut u64) { with(device, |_, _| put(out, 1)) }
    fn nvmlDeviceGetTemperature(device: Device, _sensor: c_uint, out: *mut c_uint) { with(device, |_, at| put(out, 40 + at as c_uint)) }
    fn nvmlDeviceGetPowerUsage(device: Device, out: *mut c_uint) { with(device, |_, _| put(out, 310_520)) }
    fn nvmlEventSetCreate(out: *mut usize) { put(out, 1); OK }
    fn nvmlEventSetFree(_set: usize) { OK }
    fn nvmlDeviceRegisterEvents(device: Device, _kinds: u64, _set: usize) { with(device, |_, _| ()) }
    fn nvmlEventSetWait_v2(_set: usize, out: *mut Event, _milliseconds: c_uint) {
        match hold().map_or(0, |hold| hold.state.nvml_fault.swap(0, SeqCst)) {
            0 => TIMEOUT,
            fault => {
                let event = Event { device: fault as usize % 256 + 1, kind: 8, number: u64::from(fault / 256), instance: u32::MAX, compute: u32::MAX };
                put(out, event);
                OK
            }
        }
    }
    fn nvmlDeviceGetUtilizationRates(device: Device, out: *mut [c_uint; 2]) { with(device, |_, _| put(out, [97, 31])) }
    fn nvmlDeviceGetComputeRunningProcesses(device: Device, count: *mut c_uint, out: *mut ListedFirst) {
        list(device, count, out, |pid, bytes| ListedFirst { pid, bytes })
    }
    fn nvmlDeviceGetComputeRunningProcesses_v2(device: Device, count: *mut c_uint, out: *mut Listed) {
        list(device, count, out, |pid, bytes| Listed { pid, bytes, instance: u32::MAX, compute: u32::MAX })
    }
    fn nvmlDeviceGetComputeRunningProcesses_v3(device: Device, count: *mut c_uint, out: *mut Listed) {
        nvmlDeviceGetComputeRunningProcesses_v2(device, count, out)
    }
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(_device: Device, count: *mut c_uint, _out: *mut Listed) { put(count, 0); OK }
    fn nvmlDeviceGetProcessUtilization(device: Device, out: *mut Sample, count: *mut c_uint, _since: u64) {
        // Everybody uses a tenth of the processors and a twentieth of the memory.
        list(device, count, out, |pid, _| Sample { pid, at: 1, sm: 10, memory: 5, encoder: 0, decoder: 0 })
    }
    fn nvmlDeviceGetSamples(_device: Device, _kind: c_uint, _since: u64, _value: *mut c_uint, _count: *mut c_uint, _out: *mut u8) { OK }
    fn nvmlDeviceSetPersistenceMode(_device: Device, _mode: c_uint) { OK }
    fn nvmlDeviceSetPowerManagementLimit(_device: Device, _limit: c_uint) { OK }
    fn nvmlDeviceSetMemoryLimits_v1(device: Device, limits: *mut Limits) {
        let code = trouble();
        if code != OK { return code }
        let Some(limits) = limits.as_ref() else { return INVALID_ARGUMENT };
        let group = std::ffi::CStr::from_ptr(limits.group).to_string_lossy();
        let mut most = 0;
        let code = with(device, |hold, at| most = hold.state.device[at].capacity.load(SeqCst));
        if code != OK { return code }
        if limits.soft > limits.hard || limits.hard > most && limits.hard != u64::MAX { return INVALID_ARGUMENT }
        if !std::path::Path::new(&*group).is_dir() { return OPERATING_SYSTEM }
        let told = format!("{device} {} {} {group}\n", limits.soft, limits.hard);
        match std::fs::write(concat!(env!("FAKE_PLACE"), "/limits"), told) {
            Ok(()) => OK,
            Err(_) => UNKNOWN,
        }
    }
}

/// The only function that answers with a text.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub extern "C" fn nvmlErrorString(code: Result) -> *const c_char {
    let text = match code {
        0 => c"Success",
        3 => c"Not Supported",
        4 => c"Insufficient Permissions",
        19 => c"In use by another client",
        23 => c"Insufficient Resources",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}
