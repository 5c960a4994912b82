//! Asks a driver for memory on every path until it refuses, from several processes at once, and says
//! exactly what it got. Part of the self-test that the product carries, and a program of its own in the
//! suite; by hand it runs against any library, a real driver under the hook included:
//!
//! `FARDEL_CUDA=/path/libcuda.so.1 FARDEL_CONTROL=/path/control conformance PATH PROCESSES WAY LIMIT PIECE`
//!
//! PATH is one of `plain pitched managed default-pool own-pool physical array array-3d mipmapped`, WAY is
//! how a process ends in between: `fork exec kill`. Sets the limit itself while it runs when it can write
//! the control page, which only a host can; without FARDEL_CONTROL it leaves raising and lowering out.
//! Prints one line per finding and ends with 0 only when all of them are as they must be.

use std::collections::VecDeque;
use std::ffi::{CString, c_char, c_int, c_void};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{FromRawFd, IntoRawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, exit};

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn fork() -> c_int;
    fn kill(pid: c_int, signal: c_int) -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn fcntl(file: c_int, command: c_int, ...) -> c_int;
}

const OUT_OF_MEMORY: c_int = 2;
/// What output arguments hold before a call that must not touch them.
const UNTOUCHED: u64 = 0x5a5a_5a5a_5a5a_5a5a;

#[derive(Clone, Copy)]
pub(crate) struct TestLibrary(*mut c_void);

impl TestLibrary {
    pub(crate) fn open() -> Self {
        let path = std::env::var("FARDEL_CUDA").unwrap_or_else(|_| "libcuda.so.1".into());
        let path = CString::new(path).expect("a path holds no zero");
        let library = unsafe { dlopen(path.as_ptr(), 2) };
        assert!(!library.is_null(), "{path:?} cannot be loaded");
        TestLibrary(library)
    }

    fn find(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).expect("a name holds no zero");
        let found = unsafe { dlsym(self.0, name.as_ptr()) };
        assert!(!found.is_null(), "{name:?} is missing");
        found
    }
}

macro_rules! call {
    ($library:expr, $name:ident ( $($argument:expr),* ) : $($kind:ty),*) => {{
        let function: unsafe extern "C" fn($($kind),*) -> c_int =
            unsafe { std::mem::transmute($library.find(stringify!($name))) };
        unsafe { function($($argument),*) }
    }};
}

fn must(code: c_int, what: &str) {
    assert_eq!(code, 0, "{what} answers {code}");
}

#[repr(C)]
struct TestArrayDescriptor {
    width: usize,
    height: usize,
    format: u32,
    channels: u32,
}

#[repr(C)]
struct TestArray3dDescriptor {
    width: usize,
    height: usize,
    depth: usize,
    format: u32,
    channels: u32,
    flags: u32,
}

/// The driver's descriptions of allocations and of pools begin alike.
#[repr(C)]
#[derive(Default)]
struct AllocationProperties {
    kind: i32,
    handles: i32,
    location: i32,
    id: i32,
    rest: [u64; 16],
}

fn on_device() -> AllocationProperties {
    AllocationProperties {
        kind: 1,
        location: 1,
        ..AllocationProperties::default()
    }
}

/// One process at the driver.
struct TestWorker {
    library: TestLibrary,
    path: String,
    pool: u64,
    held: VecDeque<(u64, u64)>,
}

impl TestWorker {
    fn begin(library: TestLibrary, path: &str) -> Self {
        must(call!(library, cuInit(0): u32), "cuInit");
        let mut context = 0u64;
        must(
            call!(library, cuDevicePrimaryCtxRetain(&mut context, 0): &mut u64, c_int),
            "cuDevicePrimaryCtxRetain",
        );
        must(
            call!(library, cuCtxSetCurrent(context): u64),
            "cuCtxSetCurrent",
        );
        let mut pool = 0;
        if path == "own-pool" {
            let request = on_device();
            must(
                call!(library, cuMemPoolCreate(&mut pool, &request): &mut u64, &AllocationProperties),
                "cuMemPoolCreate",
            );
        }
        TestWorker {
            library,
            path: path.to_owned(),
            pool,
            held: VecDeque::new(),
        }
    }

    /// Asks once. Err is the driver's code; output arguments were left alone then, or this panics.
    fn ask(&self, bytes: u64) -> Result<u64, c_int> {
        let library = &self.library;
        let size = bytes as usize;
        let mut out = UNTOUCHED;
        let mut pitch = UNTOUCHED as usize;
        let row = size.min(8192);
        let code = match self.path.as_str() {
            "plain" => call!(library, cuMemAlloc_v2(&mut out, size): &mut u64, usize),
            "managed" => {
                call!(library, cuMemAllocManaged(&mut out, size, 1): &mut u64, usize, u32)
            }
            "pitched" => {
                call!(library, cuMemAllocPitch_v2(&mut out, &mut pitch, row, size / row, 4):
                    &mut u64, &mut usize, usize, usize, u32)
            }
            "default-pool" => {
                call!(library, cuMemAllocAsync(&mut out, size, 0): &mut u64, usize, u64)
            }
            "own-pool" => {
                call!(library, cuMemAllocFromPoolAsync(&mut out, size, self.pool, 0):
                    &mut u64, usize, u64, u64)
            }
            "physical" => {
                let request = on_device();
                call!(library, cuMemCreate(&mut out, size, &request, 0): &mut u64, usize, &AllocationProperties, u64)
            }
            "array" => {
                let request = TestArrayDescriptor {
                    width: row,
                    height: size / row,
                    format: 1,
                    channels: 1,
                };
                call!(library, cuArrayCreate_v2(&mut out, &request): &mut u64, &TestArrayDescriptor)
            }
            "array-3d" | "mipmapped" => {
                // No edge is longer than the 16,384 elements that cards take.
                let height = (size / row).min(8192);
                let request = TestArray3dDescriptor {
                    width: row,
                    height,
                    depth: size / row / height,
                    format: 1,
                    channels: 1,
                    flags: 0,
                };
                if self.path == "array-3d" {
                    call!(library, cuArray3DCreate_v2(&mut out, &request): &mut u64, &TestArray3dDescriptor)
                } else {
                    call!(library, cuMipmappedArrayCreate(&mut out, &request, 1): &mut u64, &TestArray3dDescriptor, u32)
                }
            }
            other => panic!("no path is called {other}"),
        };
        if code == 0 {
            return Ok(out);
        }
        assert_eq!(out, UNTOUCHED, "a refusal wrote its output argument");
        assert_eq!(pitch, UNTOUCHED as usize, "a refusal wrote the pitch");
        Err(code)
    }

    /// The smallest piece in which this path takes memory.
    fn grain(&self) -> u64 {
        match self.path.as_str() {
            "default-pool" | "own-pool" | "physical" => 2 << 20,
            _ => 512,
        }
    }

    /// The largest piece that this path takes: a flat array has 65,536 rows at most.
    fn largest(&self) -> u64 {
        match self.path.as_str() {
            "array" => 8192 * 65_536,
            _ => u64::MAX,
        }
    }

    /// Takes pieces until even the smallest is refused; bytes taken now.
    fn fill(&mut self, piece: u64) -> u64 {
        let mut taken = 0;
        let mut size = piece.min(self.largest());
        while size >= self.grain() {
            match self.ask(size) {
                Ok(made) => {
                    taken += size;
                    self.held.push_back((made, size));
                }
                Err(OUT_OF_MEMORY) => size /= 2,
                Err(code) => panic!("refused with {code}, not with {OUT_OF_MEMORY}"),
            }
        }
        taken
    }

    fn free(&mut self) {
        let library = &self.library;
        while let Some((made, _)) = self.held.pop_front() {
            let code = match self.path.as_str() {
                "plain" | "managed" | "pitched" => call!(library, cuMemFree_v2(made): u64),
                "default-pool" | "own-pool" => {
                    call!(library, cuMemFreeAsync(made, 0): u64, u64)
                }
                "physical" => call!(library, cuMemRelease(made): u64),
                "mipmapped" => call!(library, cuMipmappedArrayDestroy(made): u64),
                _ => call!(library, cuArrayDestroy(made): u64),
            };
            must(code, "freeing");
        }
        must(call!(library, cuCtxSynchronize():), "cuCtxSynchronize");
    }

    fn view(&self) -> (u64, u64) {
        let (mut free, mut total) = (0usize, 0usize);
        must(
            call!(self.library, cuMemGetInfo_v2(&mut free, &mut total): &mut usize, &mut usize),
            "cuMemGetInfo",
        );
        let mut whole = 0usize;
        must(
            call!(self.library, cuDeviceTotalMem_v2(&mut whole, 0): &mut usize, c_int),
            "cuDeviceTotalMem",
        );
        assert_eq!(whole, total, "the two totals differ");
        (free as u64, total as u64)
    }

    /// A child forked during work owns nothing and gets nothing: the driver does not survive a fork.
    fn forked_child_gets(&self) -> c_int {
        match unsafe { fork() } {
            0 => exit(self.ask(self.grain()).err().unwrap_or(0)),
            child => {
                let mut status = 0;
                unsafe { waitpid(child, &mut status, 0) };
                status >> 8 & 0xff
            }
        }
    }

    /// Answers what the conductor asks, until it hangs up.
    fn serve(mut self, line: UnixStream, piece: u64) {
        let mut reader = BufReader::new(line.try_clone().expect("a socket can be doubled"));
        let mut writer = line;
        let mut request = String::new();
        while reader.read_line(&mut request).is_ok_and(|count| count > 0) {
            let answer = match request.trim() {
                "fill" => self.fill(piece).to_string(),
                // One piece for certain, before the race for the rest.
                "start" => {
                    let share = (piece / 4).min(self.largest());
                    let made = self.ask(share).expect("the first pieces fit");
                    self.held.push_back((made, share));
                    share.to_string()
                }
                "free" => {
                    self.free();
                    "0".into()
                }
                "view" => {
                    let (free, total) = self.view();
                    format!("{free} {total}")
                }
                "one" => self.ask(self.grain()).err().unwrap_or(0).to_string(),
                "fork" => self.forked_child_gets().to_string(),
                "exec" => {
                    let file = writer.into_raw_fd();
                    // Kept over exec.
                    unsafe { fcntl(file, 2, 0) };
                    let fault = Command::new("/proc/self/exe")
                        // One file may hold several programs, and goes by this.
                        .arg0("conformance")
                        .args([self.path.as_str(), "worker", &file.to_string()])
                        .arg(piece.to_string())
                        .exec();
                    panic!("exec: {fault}");
                }
                other => panic!("unknown request {other}"),
            };
            writeln!(writer, "{answer}").expect("the conductor listens");
            request.clear();
        }
    }
}

/// A worker as the conductor has it.
pub(crate) struct Far {
    pid: c_int,
    line: BufReader<UnixStream>,
}

impl Far {
    pub(crate) fn fork(library: TestLibrary, path: &str, piece: u64) -> Self {
        let (near, far) = UnixStream::pair().expect("sockets can be made");
        match unsafe { fork() } {
            0 => {
                drop(near);
                TestWorker::begin(library, path).serve(far, piece);
                exit(0)
            }
            pid => Far {
                pid,
                line: BufReader::new(near),
            },
        }
    }

    pub(crate) fn ask(&mut self, request: &str) {
        // A worker that died is found when its answer is read.
        let _ = writeln!(self.line.get_mut(), "{request}");
    }

    fn answer(&mut self) -> String {
        let mut answer = String::new();
        let _ = self.line.read_line(&mut answer);
        answer.trim().to_owned()
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.answer().parse().expect("a worker died")
    }

    pub(crate) fn end(&self) {
        unsafe {
            kill(self.pid, 9);
            waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

/// The host's page: where the limit of the first device stands in layout version 1.
struct Terms(Option<std::fs::File>);

impl Terms {
    const LIMIT_AT: u64 = 64 + 16;

    fn set(&self, bytes: u64) -> bool {
        use std::os::unix::fs::FileExt;
        match &self.0 {
            None => false,
            Some(file) => {
                file.write_all_at(&bytes.to_ne_bytes(), Self::LIMIT_AT)
                    .expect("the host's page can be written");
                true
            }
        }
    }
}

fn number(text: &str) -> u64 {
    text.parse()
        .unwrap_or_else(|_| panic!("{text} is no number"))
}

pub fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let library = TestLibrary::open();
    match words[..] {
        [path, "worker", file, piece] => {
            let line = unsafe { UnixStream::from_raw_fd(number(file) as c_int) };
            let mut ready = line.try_clone().expect("a socket can be doubled");
            let worker = TestWorker::begin(library, path);
            writeln!(ready, "ready").expect("the conductor listens");
            worker.serve(line, number(piece));
            ExitCode::SUCCESS
        }
        [path, count, way, limit, piece] => conduct(
            library,
            path,
            number(count) as usize,
            way,
            number(limit),
            number(piece),
        ),
        _ => panic!("PATH PROCESSES WAY LIMIT PIECE"),
    }
}

struct Findings(bool);

impl Findings {
    fn expect<T: PartialEq + std::fmt::Display>(&mut self, what: &str, found: T, wanted: T) {
        let verdict = if found == wanted { "ok" } else { "WRONG" };
        println!("{verdict} {what}: {found}, wanted {wanted}");
        self.0 &= found == wanted;
    }
}

pub(crate) fn everybody(workers: &mut [Far], request: &str) -> u64 {
    // All are asked before the first is heard, so that they race.
    for worker in workers.iter_mut() {
        worker.ask(request);
    }
    workers.iter_mut().map(Far::number).sum()
}

pub(crate) fn view(worker: &mut Far) -> String {
    worker.ask("view");
    worker.answer()
}

fn conduct(
    library: TestLibrary,
    path: &str,
    count: usize,
    way: &str,
    limit: u64,
    piece: u64,
) -> ExitCode {
    let mut findings = Findings(true);
    let terms = Terms(std::env::var("FARDEL_CONTROL").ok().map(|path| {
        std::fs::OpenOptions::new()
            .write(true)
            .open(path)
            .expect("the control page can be opened")
    }));
    let mut workers: Vec<Far> = (0..count)
        .map(|_| Far::fork(library, path, piece))
        .collect();

    let taken = everybody(&mut workers, "start") + everybody(&mut workers, "fill");
    findings.expect("taken together", taken, limit);
    findings.expect(
        "view when full",
        view(&mut workers[0]),
        format!("0 {limit}"),
    );
    workers[0].ask("one");
    findings.expect("code when full", workers[0].number(), 2);

    let mut most = limit;
    if terms.set(2 * limit) {
        most = 2 * limit;
        findings.expect(
            "taken after raising",
            everybody(&mut workers, "fill"),
            limit,
        );
        terms.set(limit / 2);
        findings.expect(
            "view when lowered below use",
            view(&mut workers[0]),
            format!("0 {}", limit / 2),
        );
        workers[0].ask("one");
        findings.expect("code when lowered below use", workers[0].number(), 2);
        terms.set(most);
    }

    match way {
        // Nothing of it reaches the parent's account, and no free of the child's is believed.
        "fork" => {
            workers[0].ask("fork");
            findings.expect("a forked child is refused", workers[0].number() != 0, true);
            findings.expect(
                "view after a fork",
                view(&mut workers[0]),
                format!("0 {most}"),
            );
        }
        "exec" => {
            workers[0].ask("exec");
            findings.expect("after exec", workers[0].answer(), "ready".to_owned());
            let again = everybody(&mut workers, "fill");
            findings.expect("what one held before exec is had again", again > 0, true);
            findings.expect(
                "view after exec",
                view(&mut workers[0]),
                format!("0 {most}"),
            );
        }
        "kill" => {
            let victim = workers.remove(0);
            // During its requests, unless it is alone.
            if !workers.is_empty() {
                workers[0].ask("fill");
            }
            victim.end();
            let mut again = 0;
            if workers.is_empty() {
                workers.push(Far::fork(library, path, piece));
            } else {
                again += workers[0].number();
            }
            again += everybody(&mut workers, "fill");
            findings.expect("what the dead held is had again", again > 0, true);
            findings.expect(
                "view after a kill",
                view(&mut workers[0]),
                format!("0 {most}"),
            );
        }
        other => panic!("no way is called {other}"),
    }

    everybody(&mut workers, "free");
    findings.expect(
        "view when all is free",
        view(&mut workers[0]),
        format!("{most} {most}"),
    );
    terms.set(limit);
    findings.expect("taken again", everybody(&mut workers, "fill"), limit);
    everybody(&mut workers, "free");
    for worker in &workers {
        worker.end();
    }
    if findings.0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
