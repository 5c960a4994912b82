//! What the GPU tests stand on: hooks, fake drivers and programs, compiled once and kept while their
//! sources stay as they are, and for each test a place of its own with pages and simulated devices.
//! Never touches a real device: what is loaded as the real driver is the fake one, by absolute path.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use cuda_hook::region::{AccountPage, Control, DeviceTerms, MODE_OFF};

#[path = "../../../packaging/hooks.rs"]
mod hooks;
// The test reads and plants; the rest of that file is the driver's side.
#[expect(
    dead_code,
    unreachable_pub,
    reason = "the rest of that file is the driver's side"
)]
#[path = "../../fake_driver/state.rs"]
pub(super) mod state;

pub(super) use hooks::{PLACE, documented};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Programs that the tests run in containers.
const PROGRAMS: [&str; 4] = ["cases", "holder", "launches", "visitor"];
/// Programs that the product carries, each by itself.
const CARRIED: [&str; 3] = ["conformance", "launcher", "ways"];

pub(super) const MIB: u64 = 1 << 20;

/// Everything that is compiled for these tests.
pub(super) struct Works {
    pub(super) folder: PathBuf,
    libraries: Mutex<BTreeMap<String, Arc<Compiled>>>,
}

/// A library's bytes, and where in them the product's place is spelled.
struct Compiled {
    bytes: Vec<u8>,
    places: Vec<usize>,
}

/// The compiled files, made by whichever test comes first.
pub(super) fn works() -> &'static Works {
    static WORKS: OnceLock<Works> = OnceLock::new();
    WORKS.get_or_init(|| Works::made().unwrap_or_else(|fault| panic!("{fault}")))
}

fn rustc() -> OsString {
    std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())
}

pub(super) fn source(path: &str) -> PathBuf {
    Path::new(ROOT).join(path)
}

impl Works {
    fn made() -> Result<Self, String> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gpu");
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        // Two test runs over one target folder must not compile into each other. Somebody who may not
        // write there compiles nothing.
        let guard = fs::File::create(folder.join("lock"));
        if let Ok(guard) = &guard {
            guard.lock().map_err(|error| error.to_string())?;
        }
        let works = Works {
            folder,
            libraries: Mutex::default(),
        };
        let compiler = works.compiler_version()?;
        let (cuda, nvml) = ("src/guest/cuda_hook", "src/guest/nvml_hook");
        let (fakes, here) = ("tests/fake_driver", "tests/suite/gpu");
        works.keep("cuda_hook.so", &compiler, &[cuda], |works| {
            works.hook("cuda_hook", "libcuda.so.1")
        })?;
        works.keep("nvml_hook.so", &compiler, &[cuda, nvml], |works| {
            works.hook("nvml_hook", "libnvidia-ml.so.1")
        })?;
        works.keep("fake_cuda.so", &compiler, &[fakes, cuda], |works| {
            works.fake("cuda", "libcuda.so.1")
        })?;
        works.keep("fake_nvml.so", &compiler, &[fakes, nvml], |works| {
            works.fake("nvml", "libnvidia-ml.so.1")
        })?;
        let carried = "src/guest/gpu_test";
        let of =
            |folder: &str, program: &str| (program.to_owned(), format!("{folder}/{program}.rs"));
        let all = PROGRAMS.map(|program| of(here, program)).into_iter();
        for (program, file) in all.chain(CARRIED.map(|program| of(carried, program))) {
            works.keep(&program, &compiler, &[&file], |works| {
                works.program(&program, &file)
            })?;
        }
        // Whoever speaks to the kernel directly, without any library that could stand in between.
        works.keep("unlinked", &compiler, &[here, fakes], |works| {
            let mut command = works.compiler(&source("tests/suite/gpu/unlinked.rs"), "unlinked");
            command.args(["-C", "target-feature=+crt-static"]);
            run(command, "unlinked")
        })?;
        let whole = "src/guest/gpu_test/main.rs";
        works.keep("gpu_test", &compiler, &[carried], |works| {
            works.program("gpu_test", whole)
        })?;
        works.keep("linked", &compiler, &[carried, cuda], |works| {
            let mut command = works.compiler(&source("src/guest/gpu_test/ways.rs"), "linked");
            let hook = works.folder.join("cuda_hook.so");
            command
                .args(["--cfg", "linked"])
                .arg(format!("-Clink-arg={}", hook.display()));
            run(command, "linked")
        })?;
        Ok(works)
    }

    /// What the compiler says of itself; what it said last, for an ordinary user who has none.
    fn compiler_version(&self) -> Result<Vec<u8>, String> {
        let kept = self.folder.join("compiler");
        match Command::new(rustc()).arg("-vV").output() {
            Ok(output) if output.status.success() => {
                if fs::read(&kept).ok().as_ref() != Some(&output.stdout) {
                    fs::write(&kept, &output.stdout).map_err(|error| error.to_string())?;
                }
                Ok(output.stdout)
            }
            _ => fs::read(&kept).map_err(|error| {
                format!("there is no compiler, and nothing compiled before: {error}")
            }),
        }
    }

    /// A compiled library, read once.
    fn library(&self, made: &str) -> Arc<Compiled> {
        let mut known = self.libraries.lock().expect("no test dies while it reads");
        let library = known.entry(made.to_owned()).or_insert_with(|| {
            let bytes = fs::read(self.folder.join(made)).expect("it was compiled");
            let places = (0..bytes.len())
                .filter(|at| bytes[*at] == b'/' && bytes[*at..].starts_with(PLACE.as_bytes()))
                .collect();
            Arc::new(Compiled { bytes, places })
        });
        Arc::clone(library)
    }

    /// Makes a file unless it was made by this compiler from these very sources.
    fn keep(
        &self,
        made: &str,
        compiler: &[u8],
        sources: &[&str],
        make: impl FnOnce(&Self) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut files = vec![source("packaging/hooks.rs")];
        for path in sources.iter().map(|path| source(path)) {
            if path.is_dir() {
                let entries = fs::read_dir(&path).map_err(|error| error.to_string())?;
                files.extend(entries.filter_map(|entry| entry.ok().map(|entry| entry.path())));
            } else {
                files.push(path);
            }
        }
        files.sort();
        let mut hasher = DefaultHasher::new();
        compiler.hash(&mut hasher);
        for file in files.iter().filter(|file| file.is_file()) {
            file.hash(&mut hasher);
            fs::read(file)
                .map_err(|error| error.to_string())?
                .hash(&mut hasher);
        }
        let stamp = format!("{:016x}", hasher.finish());
        let kept = self.folder.join(format!("{made}.stamp"));
        if fs::read_to_string(&kept).ok().as_ref() != Some(&stamp) {
            make(self)?;
            fs::write(&kept, stamp).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn hook(&self, package: &str, soname: &str) -> Result<(), String> {
        let folder = source("src/guest").join(package);
        let told = hooks::build(
            &rustc(),
            TARGET,
            &hooks::Library {
                root: &folder.join("hook.rs"),
                names: &folder.join("names.txt"),
                soname,
                made: &self.folder.join(format!("{package}.so")),
            },
            &self.folder.join(format!("{package}.work")),
        )?;
        if told.contains("warning: ") {
            return Err(format!("{package} compiles with warnings:\n{told}"));
        }
        Ok(())
    }

    /// A fake driver, with a stub for every documented name that it leaves out.
    fn fake(&self, name: &str, soname: &str) -> Result<(), String> {
        let root = source("tests/fake_driver").join(format!("{name}.rs"));
        let names = source("src/guest").join(format!("{name}_hook/names.txt"));
        let (all, defined) = documented(&root, &names)?;
        let mut stubs = String::new();
        for each in all.iter().filter(|each| !defined.contains(*each)) {
            stubs.push_str(&format!(
                "#[unsafe(no_mangle)] pub extern \"C\" fn {each}() -> i32 {{ UNSUPPORTED }}\n"
            ));
        }
        stubs.push_str("fn find(name: &str) -> Option<*const ()> { Some(match name {\n");
        for each in &all {
            stubs.push_str(&format!("\"{each}\" => {each} as *const (),\n"));
        }
        stubs.push_str("_ => return None }) }\n");
        fs::write(self.folder.join(format!("{name}_stubs.rs")), stubs)
            .map_err(|error| error.to_string())?;
        let mut command = self.compiler(&root, &format!("fake_{name}.so"));
        command
            .env("FAKE_OUT", &self.folder)
            .env("FAKE_PLACE", PLACE)
            .args(["--crate-type", "cdylib", "-C", "panic=abort"])
            // Or a library that is loaded before it also gets its calls to itself.
            .args(["-C", &format!("link-arg=-Wl,-soname,{soname},-Bsymbolic")]);
        run(command, name)
    }

    fn program(&self, name: &str, file: &str) -> Result<(), String> {
        run(self.compiler(&source(file), name), name)
    }

    /// As dynamic as the programs that people bring.
    fn compiler(&self, root: &Path, made: &str) -> Command {
        let mut command = Command::new(rustc());
        command
            .arg(root)
            .args([
                "--edition",
                "2024",
                "--target",
                TARGET,
                "-O",
                "-C",
                "strip=symbols",
            ])
            .args(["-C", "target-feature=-crt-static", "--cap-lints", "allow"])
            .arg("-o")
            .arg(self.folder.join(made));
        command
    }
}

fn run(mut command: Command, what: &str) -> Result<(), String> {
    let output = command
        .output()
        .map_err(|error| format!("the compiler cannot be started: {error}"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!(
            "{what} does not compile:\n{}",
            String::from_utf8_lossy(&output.stderr)
        ))
    }
}

/// One test's place: pages, fake devices, the fake driver where the real one would be, and the hook as
/// programs find it. Goes away with the test.
pub(super) struct Rig {
    pub(super) place: PathBuf,
    pub(super) control: &'static Control,
    pub(super) account: &'static AccountPage,
    pub(super) state: &'static state::State,
}

impl Rig {
    /// One device of 8 GiB, and that much of it for the container.
    pub(super) fn new(limit: u64) -> Self {
        Self::with(1, 8192 * MIB, limit)
    }

    /// Another container on the same devices.
    pub(super) fn beside(other: &Rig, limit: u64) -> Self {
        let mut rig = Self::new(limit);
        let state = rig.place.join("state");
        fs::remove_file(&state).expect("it was made");
        fs::hard_link(other.place.join("state"), &state).expect("both lie in one folder");
        rig.state = other.state;
        rig
    }

    pub(super) fn with(devices: usize, capacity: u64, limit: u64) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // As long as the product's place, which it replaces in the libraries' bytes.
        let tail = format!("{:07}{number:04}", std::process::id());
        let place = PathBuf::from(format!("/tmp/fg-{tail}"));
        assert_eq!(place.as_os_str().len(), PLACE.len());
        fs::create_dir_all(place.join("lib")).expect("/tmp can be written");
        let rig = Rig {
            control: shared(&place.join("control")),
            account: shared(&place.join("account")),
            state: shared(&place.join("state")),
            place,
        };
        rig.state.furnish(devices, capacity);
        let terms: Vec<DeviceTerms> = (0..devices).map(|at| terms(at, limit)).collect();
        rig.control.found(&terms);
        rig.account.found();
        rig.install("fake_cuda.so", "libcuda.so.1");
        rig.install("cuda_hook.so", "lib/libcuda.so.1");
        rig.install("fake_nvml.so", "libnvidia-ml.so.1");
        rig.install("nvml_hook.so", "lib/libnvidia-ml.so.1");
        rig
    }

    /// Puts a compiled library into this place, with its paths pointing here.
    pub(super) fn install(&self, made: &str, at: &str) {
        let library = works().library(made);
        let mut bytes = library.bytes.clone();
        let place = self.place.as_os_str().as_encoded_bytes();
        for found in &library.places {
            bytes[*found..found + place.len()].copy_from_slice(place);
        }
        fs::write(self.place.join(at), bytes).expect("the place can be written");
    }

    /// Makes the fake driver an older one, that lacks some names: no lookup finds a name that is spelled
    /// differently.
    pub(super) fn without(&self, names: &[&str]) {
        let path = self.place.join("libcuda.so.1");
        let mut bytes = fs::read(&path).expect("it was installed");
        for name in names {
            let wanted = format!("\0{name}\0");
            let at = bytes
                .windows(wanted.len())
                .position(|window| window == wanted.as_bytes())
                .expect("the driver exports it");
            bytes[at + 1] = b'x';
        }
        fs::write(&path, bytes).expect("the place can be written");
    }

    /// The hook, as a program in the container would load it.
    pub(super) fn hook(&self) -> PathBuf {
        self.place.join("lib/libcuda.so.1")
    }

    /// A program in the container: nothing in its environment but where the libraries are.
    pub(super) fn program(&self, name: &str) -> Command {
        let mut command = Command::new(works().folder.join(name));
        command
            .env_clear()
            .env("FARDEL_CUDA", self.hook())
            .env("RUST_BACKTRACE", "0");
        command
    }

    /// Bytes in use on a device, as the fake driver itself counts them.
    pub(super) fn truth(&self, device: usize) -> u64 {
        let hold = state::Hold::open(&self.place.join("state").to_string_lossy());
        hold.expect("the state was made").used(device)
    }

    /// Bytes charged on a device, the dead left out.
    pub(super) fn charged(&self, device: usize) -> u64 {
        self.account
            .reap(|seen| cuda_hook::process::is_dead(seen, cuda_hook::process::me().namespace));
        self.account.sum(device).total
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.place) {
            println!("{} stays behind: {error}", self.place.display());
        }
    }
}

/// The whole of a device for its time, and that much of its memory.
pub(super) fn terms(device: usize, limit: u64) -> DeviceTerms {
    DeviceTerms {
        uuid: state::uuid(device),
        mem_limit: limit,
        mem_overhead: 0,
        share_milli: 1000,
        mode: MODE_OFF,
    }
}

/// A file of zeros that everybody maps, for as long as the test process lives.
fn shared<T>(path: &Path) -> &'static T {
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o666)
        .open(path)
        .expect("the place can be written");
    let size = size_of::<T>();
    file.set_len(size as u64).expect("the file can grow");
    use std::os::fd::AsRawFd;
    // SAFETY: a new mapping of a file of that size; all types shared here are atomics, and stay mapped.
    unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        assert_ne!(at, libc::MAP_FAILED, "{} cannot be mapped", path.display());
        &*at.cast::<T>()
    }
}

/// What a program said, for messages of tests.
pub(super) fn said(output: &Output) -> String {
    format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
