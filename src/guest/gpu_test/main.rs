//! The program that a card's self-test runs inside sessions: it asks the driver for memory and for work in
//! all the ways there are, and says in numbers what it got. Judges nothing, needs nothing but the loader and
//! the C library of the session, and knows no host.
//!
//! `test wait`: does nothing until it is told to end. `test neighbour`: holds memory with a pattern in it,
//! works a little, and writes down how often it looked and how often something was wrong.
//! `test status` reads that. `test measure PATH PROCESSES` fills the slice on one path. `test fence` tries
//! what must not open. `test card` says which one it has. `test launch COUNT` times launches one by one. `test spin SECONDS` computes without
//! a pause; `together` behind it says `ready` first and waits for a line. `test ways …`, `test launcher …` and `test conformance …` are the programs of those names.

mod conformance;
mod launcher;
mod ways;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use conformance::{Far, everybody, view};

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn mknod(path: *const c_char, mode: u32, device: u64) -> c_int;
}

macro_rules! call {
    ($library:expr, $name:ident ( $($argument:expr),* ) : $($kind:ty),*) => {{
        let function: unsafe extern "C" fn($($kind),*) -> c_int =
            unsafe { std::mem::transmute(find($library, stringify!($name))) };
        let code = unsafe { function($($argument),*) };
        assert_eq!(code, 0, "{} answers {code}", stringify!($name));
    }};
}

/// Where the host puts what belongs to a slice.
const PLACE: &str = "/usr/lib/fardel/gpu";
/// Below the folder for temporary files.
const STATUS: &str = "neighbour";
/// Most bytes in which the pattern stands.
const WATCHED: u64 = 128 << 20;
/// Device numbers that are tried; no machine has more cards.
const CARDS: u32 = 32;
/// The major number of the vendor's cards.
const MAJOR: u64 = 195;
/// What is in memory that must not change.
const PATTERN: u8 = 0xa5;
/// How many kernels are in the queue while it computes: enough that the card is never idle, and few enough
/// that the count is true to a hundredth of a second.
const AHEAD: u32 = 32;

fn main() -> ExitCode {
    let mut arguments = std::env::args();
    let called = arguments.next().unwrap_or_default();
    match called.as_str() {
        "conformance" => return conformance::main(),
        "launcher" => {
            launcher::main();
            return ExitCode::SUCCESS;
        }
        "ways" => {
            ways::main();
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let words: Vec<String> = arguments.collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["wait"] => loop {
            std::thread::sleep(Duration::from_secs(3600));
        },
        ["neighbour"] => neighbour(),
        ["status"] => {
            print!("{}", fs::read_to_string(status()).unwrap_or_default());
            ExitCode::SUCCESS
        }
        ["measure", path, processes] => measure(path, processes.parse().expect("a number")),
        ["fence"] => fence(),
        ["card"] => card(),
        ["launch", count] => one_by_one(count.parse().expect("a number")),
        ["spin", seconds] => spin(seconds.parse().expect("a number"), false),
        ["spin", seconds, "together"] => spin(seconds.parse().expect("a number"), true),
        [program @ ("conformance" | "launcher" | "ways"), ..] => {
            let mut command = Command::new("/proc/self/exe");
            if words.get(1) == Some(&"emptied") {
                command.env_clear();
            }
            let fault = command.arg0(program).args(&words[1..]).exec();
            panic!("{program} cannot be run: {fault}");
        }
        _ => panic!("no test is called {words:?}"),
    }
}

fn find(library: *mut c_void, name: &str) -> *mut c_void {
    let name = CString::new(name).expect("a name holds no zero");
    let found = unsafe { dlsym(library, name.as_ptr()) };
    assert!(!found.is_null(), "{name:?} is missing");
    found
}

/// The driver with a context of this process on the first device.
fn driver() -> *mut c_void {
    let path = std::env::var("FARDEL_CUDA").unwrap_or_else(|_| "libcuda.so.1".into());
    let path = CString::new(path).expect("a path holds no zero");
    let library = unsafe { dlopen(path.as_ptr(), 2) };
    assert!(!library.is_null(), "{path:?} cannot be loaded");
    let mut context = 0u64;
    call!(library, cuInit(0): u32);
    call!(library, cuCtxCreate_v2(&mut context, 0, 0): &mut u64, u32, c_int);
    library
}

fn free_and_total(library: *mut c_void) -> (u64, u64) {
    let (mut free, mut total) = (0usize, 0usize);
    call!(library, cuMemGetInfo_v2(&mut free, &mut total): &mut usize, &mut usize);
    (free as u64, total as u64)
}

/// Says `card UUID TOTAL FREE NAME`: its number in hexadecimal digits, bytes, and what its maker calls it.
fn card() -> ExitCode {
    let library = driver();
    let (mut uuid, mut name) = ([0u8; 16], [0 as c_char; 128]);
    call!(library, cuDeviceGetUuid(&mut uuid, 0): &mut [u8; 16], c_int);
    call!(library, cuDeviceGetName(name.as_mut_ptr(), 127, 0): *mut c_char, c_int, c_int);
    let (free, total) = free_and_total(library);
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    let uuid = u128::from_be_bytes(uuid);
    println!("card {uuid:032x} {total} {free} {}", name.to_string_lossy());
    ExitCode::SUCCESS
}

/// A kernel of ours, ready to be launched on a stream of its own: function and stream.
fn kernel(library: *mut c_void, name: &str) -> (u64, u64) {
    let (mut module, mut function, mut stream) = (0u64, 0u64, 0u64);
    let name = CString::new(name).expect("a name holds no zero");
    call!(library, cuModuleLoadData(&mut module, launcher::KERNELS.as_ptr()):
        &mut u64, *const c_char);
    call!(library, cuModuleGetFunction(&mut function, module, name.as_ptr()):
        &mut u64, u64, *const c_char);
    call!(library, cuStreamCreate(&mut stream, 1): &mut u64, u32);
    (function, stream)
}

fn launch(library: *mut c_void, (function, stream): (u64, u64)) {
    call!(library, cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, 0, 0):
        u64, u32, u32, u32, u32, u32, u32, u32, u64, u64, u64);
}

/// Says `memory TOTAL BEFORE TAKEN CODE FULL AFTER`: bytes of the slice, what was free of it, what all
/// processes got together on this path, the code with which the next piece was refused, what the view says
/// is free then, and what is once all is given back.
fn measure(path: &str, processes: usize) -> ExitCode {
    let library = conformance::TestLibrary::open();
    // Some pieces a process. Halves of halves fill the rest, and every path takes powers of two.
    let piece = |total: u64| 1 << (total / 16 / processes as u64).max(8 << 20).ilog2();
    let mut first = Far::fork(library, "plain", 2 << 20);
    let seen = view(&mut first);
    first.end();
    let total = |text: &str| -> (u64, u64) {
        let (free, total) = text.split_once(' ').expect("a worker died");
        let number = |text: &str| text.parse().expect("a number of bytes");
        (number(free), number(total))
    };
    let piece = piece(total(&seen).1);
    let mut workers: Vec<Far> = (0..processes)
        .map(|_| Far::fork(library, path, piece))
        .collect();
    // Every one has its context before anything is counted.
    let mut before = (0, 0);
    for worker in &mut workers {
        before = total(&view(worker));
    }
    let taken = everybody(&mut workers, "start") + everybody(&mut workers, "fill");
    workers[0].ask("one");
    let code = workers[0].number();
    let full = total(&view(&mut workers[0])).0;
    everybody(&mut workers, "free");
    let after = total(&view(&mut workers[0]));
    for worker in &workers {
        worker.end();
    }
    println!(
        "memory {} {} {taken} {code} {full} {}",
        before.1, before.0, after.0
    );
    ExitCode::SUCCESS
}

/// Says `control refused` or `control written`, and `cards` with the numbers of those whose device opens.
fn fence() -> ExitCode {
    let written = fs::OpenOptions::new()
        .write(true)
        .open(format!("{PLACE}/control"))
        .is_ok();
    println!("control {}", if written { "written" } else { "refused" });
    let mut open = Vec::new();
    for card in 0..CARDS {
        let own = format!("/dev/nvidia{card}");
        let made = std::env::temp_dir().join(format!("card-{card}"));
        let name = CString::new(made.as_os_str().as_encoded_bytes()).expect("no zero");
        let device = MAJOR << 8 | u64::from(card);
        // A node of one's own making is as good as the host's, if the fence lets it pass.
        let new = unsafe { mknod(name.as_ptr(), 0o020_666, device) } == 0;
        let opens = |path: &Path| {
            let opened = fs::OpenOptions::new().read(true).write(true).open(path);
            opened.is_ok()
        };
        // The node of a card may be there while no device answers to its number: it was let through.
        if fs::exists(&own).unwrap_or(false) || new && opens(&made) {
            open.push(card.to_string());
        }
        let _ = fs::remove_file(&made);
    }
    println!("cards {}", open.join(" "));
    ExitCode::SUCCESS
}

fn status() -> PathBuf {
    std::env::temp_dir().join(STATUS)
}

/// Holds a part of its slice, and looks ten times a second whether the pattern in it is whole.
fn neighbour() -> ExitCode {
    let library = driver();
    let (free, _) = free_and_total(library);
    let bytes = (free / 2).min(WATCHED) as usize & !((2 << 20) - 1);
    let mut at = 0u64;
    call!(library, cuMemAlloc_v2(&mut at, bytes): &mut u64, usize);
    call!(library, cuMemsetD8_v2(at, PATTERN, bytes): u64, u8, usize);
    let empty = kernel(library, "spin0");
    let mut read = vec![0u8; 64 << 10];
    let (mut looked, mut wrong) = (0u64, 0u64);
    loop {
        launch(library, empty);
        // Another place each time, so that all of it is seen in the end.
        let step = read.len() as u64;
        let offset = looked * 7919 % (bytes as u64 / step) * step;
        call!(library, cuMemcpyDtoH_v2(read.as_mut_ptr(), at + offset, read.len()):
            *mut u8, u64, usize);
        looked += 1;
        wrong += u64::from(read.iter().any(|byte| *byte != PATTERN));
        let new = status().with_extension("new");
        fs::write(&new, format!("looked {looked} wrong {wrong}\n"))
            .and_then(|()| fs::rename(&new, status()))
            .expect("the folder for temporary files can be written");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Says `launch NANOSECONDS`: the median of launches of an empty kernel, each timed by itself, so that
/// one that has to wait for a turn now and then tells the same.
fn one_by_one(count: usize) -> ExitCode {
    let library = driver();
    let empty = kernel(library, "spin0");
    let mut each: Vec<u128> = (0..count.max(1))
        .map(|_| {
            let begun = Instant::now();
            launch(library, empty);
            begun.elapsed().as_nanos()
        })
        .collect();
    call!(library, cuStreamSynchronize(empty.1): u64);
    each.sort_unstable();
    println!("launch {}", each[each.len() / 2]);
    ExitCode::SUCCESS
}

/// Says `window FROM UNTIL COUNT` for each tenth of a second, in milliseconds of the calendar's clock: how
/// many kernels of one kind were done in it. With `together` it begins when a line is read: contexts of several
/// processes are ready seconds apart.
fn spin(seconds: u64, together: bool) -> ExitCode {
    let library = driver();
    let work = kernel(library, "spin100");
    if together {
        println!("ready");
        let mut line = String::new();
        std::io::stdin()
            .read_line(&mut line)
            .expect("a word to begin");
    }
    let now = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.expect("the clock shows this century").as_millis()
    };
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut from = now();
    let mut count = 0u64;
    while Instant::now() < until {
        for _ in 0..AHEAD {
            launch(library, work);
        }
        call!(library, cuStreamSynchronize(work.1): u64);
        count += u64::from(AHEAD);
        let at = now();
        if at - from >= 100 {
            println!("window {from} {at} {count}");
            std::io::stdout().flush().expect("somebody listens");
            (from, count) = (at, 0);
        }
    }
    ExitCode::SUCCESS
}
