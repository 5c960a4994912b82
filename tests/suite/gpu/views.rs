//! What a container sees through NVML: the slice and its own processes, agreeing with CUDA, through
//! NVIDIA's own Python package.

use std::process::Command;

use super::rig::{MIB, Rig, said, terms, works};

/// A folder with `nvidia-ml-py`, installed once; why not, where it cannot be had.
pub(super) fn python() -> Result<std::path::PathBuf, String> {
    let folder = works().folder.join("python");
    // SAFETY: takes no argument.
    if unsafe { libc::geteuid() } != 0 {
        return Err("it is installed beside the compiled tests by the run as root".into());
    }
    if folder.join("bin/python").exists() && folder.join("ready").exists() {
        return Ok(folder.join("bin/python"));
    }
    let run = |command: &mut Command| match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!(
            "{command:?} ends with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
                .lines()
                .next_back()
                .unwrap_or("")
        )),
        Err(error) => Err(format!("{command:?} cannot be started: {error}")),
    };
    run(Command::new("python3")
        .args(["-m", "venv", "--clear"])
        .arg(&folder))?;
    run(Command::new(folder.join("bin/pip")).args([
        "--quiet",
        "--disable-pip-version-check",
        "--timeout=10",
        "--retries=1",
        "install",
        "nvidia-ml-py",
    ]))?;
    std::fs::write(folder.join("ready"), "").map_err(|error| error.to_string())?;
    Ok(folder.join("bin/python"))
}

pub(super) const READER: &str = "
import ctypes, os, sys
import pynvml as n
place = sys.argv[1]
# As in a container: the hook is what the name leads to.
real = ctypes.CDLL
ctypes.CDLL = lambda name, *rest, **more: real(os.path.join(place, name) if name == 'libnvidia-ml.so.1' else name, *rest, **more)
n.CDLL = ctypes.CDLL
n.nvmlInit()
d = n.nvmlDeviceGetHandleByIndex(0)
first, second = n.nvmlDeviceGetMemoryInfo(d), n.nvmlDeviceGetMemoryInfo(d, version=n.nvmlMemory_v2)
print('memory', first.total >> 20, first.used >> 20, first.free >> 20)
print('second', second.total >> 20, second.used >> 20, second.free >> 20)
for reader in (n.nvmlDeviceGetComputeRunningProcesses_v2, n.nvmlDeviceGetComputeRunningProcesses_v3):
    print('processes', *sorted((p.pid, p.usedGpuMemory >> 20) for p in reader(d)))
print('graphics', n.nvmlDeviceGetGraphicsRunningProcesses(d))
print('busy', n.nvmlDeviceGetUtilizationRates(d).gpu)
for name, setter in (('persistence', lambda: n.nvmlDeviceSetPersistenceMode(d, 1)),
                     ('power', lambda: n.nvmlDeviceSetPowerManagementLimit(d, 100)),
                     ('samples', lambda: n.nvmlDeviceGetSamples(d, 1, 0))):
    try:
        setter()
        print(name, 'obeyed')
    except n.NVMLError as refusal:
        print(name, refusal.value)
";

/// A process that takes memory, says so, and holds it until its line is closed.
pub(super) struct Holder(std::process::Child);

impl Holder {
    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(super) fn of(rig: &Rig, bytes: u64) -> Self {
        use std::io::{BufRead, BufReader};
        let mut child = rig
            .program("holder")
            .arg(bytes.to_string())
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("the program was compiled");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("it is piped"))
            .read_line(&mut line)
            .expect("it answers");
        assert_eq!(line, "holds\n");
        Holder(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn nvml_shows_the_slice_and_own_processes_only_and_agrees_with_cuda() {
    let python = match python() {
        Ok(python) => python,
        Err(reason) => {
            return skips::skip(
                "nvml_shows_the_slice_and_own_processes_only_and_agrees_with_cuda",
                &format!("needs nvidia-ml-py: {reason}"),
            );
        }
    };
    let rig = Rig::new(2048 * MIB);
    let neighbour = Rig::beside(&rig, 4096 * MIB);
    let ours = Holder::of(&rig, 704 * MIB);
    let _theirs = Holder::of(&neighbour, 3008 * MIB);
    let read = |place: &std::path::Path| {
        let output = Command::new(&python)
            .env_clear()
            .args(["-c", READER])
            .arg(place)
            .output()
            .expect("it was installed");
        assert!(output.status.success(), "{}", said(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };

    // The card itself, as the host sees it.
    let host = read(&rig.place);
    assert!(host.contains("memory 8192 3712 4480"), "{host}");
    assert!(host.contains("persistence obeyed"), "{host}");
    assert!(host.contains("busy 97"), "{host}");

    rig.control.set(
        0,
        &cuda_hook::region::DeviceTerms {
            share_milli: 250,
            ..terms(0, 2048 * MIB)
        },
    );
    let pid = ours.0.id();
    let inside = read(&rig.place.join("lib"));
    assert_eq!(
        inside,
        format!(
            "memory 2048 704 1344\nsecond 2048 704 1344\nprocesses ({pid}, 704)\n\
             processes ({pid}, 704)\ngraphics []\nbusy 40\npersistence 4\npower 4\nsamples 3\n"
        )
    );
}

#[test]
fn without_pages_neither_library_lets_anybody_near_the_device() {
    for fault in [
        "no control page",
        "another version",
        "no account page",
        "a short page",
    ] {
        let rig = Rig::new(64 * MIB);
        match fault {
            "no control page" => std::fs::remove_file(rig.place.join("control")),
            "no account page" => std::fs::remove_file(rig.place.join("account")),
            "a short page" => std::fs::write(rig.place.join("control"), b"fardelGP"),
            _ => {
                rig.control
                    .version
                    .store(2, std::sync::atomic::Ordering::SeqCst);
                Ok(())
            }
        }
        .expect("the place can be written");
        let output = rig.program("holder").arg("1024").output();
        let output = output.expect("the program was compiled");
        assert!(
            said(&output).contains("cuInit answers 802"),
            "{fault}: {}",
            said(&output)
        );
        let output = rig
            .program("holder")
            .args(["nvml", &rig.place.join("lib").to_string_lossy()])
            .output()
            .expect("the program was compiled");
        assert!(
            said(&output).contains("nvmlInit answers 4"),
            "{fault}: {}",
            said(&output)
        );
        assert_eq!(rig.truth(0), 0);
    }
}

pub(super) const KERNEL: &str = "
import numpy, sys
from numba import cuda
@cuda.jit
def add(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[i] + 1
x = cuda.to_device(numpy.arange(1 << 16, dtype=numpy.float32))
y = cuda.device_array_like(x)
add[64, 1024](x, y)
cuda.synchronize()
print('compiled', '.entry' in next(iter(add.inspect_asm().values())))
print('sees', cuda.current_context().get_memory_info()[1] >> 20)
held = []
try:
    while len(held) < 100:
        held.append(cuda.device_array(16 << 20, dtype=numpy.float32))
except Exception as refusal:
    print('refused', 'CUDA_ERROR_OUT_OF_MEMORY' in str(refusal))
print('held', len(held) * 64)
";

/// With `FARDEL_NUMBA` naming a Python that has numba-cuda and the compiler's packages, 0.9 GB,
/// which the gate installs.
#[test]
fn numba_compiles_a_real_kernel_under_a_slice_of_one_gibibyte() {
    let Some(python) = std::env::var_os("FARDEL_NUMBA") else {
        return skips::skip(
            "numba_compiles_a_real_kernel_under_a_slice_of_one_gibibyte",
            "needs FARDEL_NUMBA: a Python with numba-cuda, nvidia-cuda-nvcc, nvidia-cuda-nvrtc, \
             nvidia-cuda-runtime, nvidia-nvjitlink and nvidia-nvvm",
        );
    };
    let rig = Rig::with(1, 16384 * MIB, 1024 * MIB);
    let output = Command::new(python)
        .args(["-W", "ignore", "-c", KERNEL])
        .env("LD_LIBRARY_PATH", rig.place.join("lib"))
        .output()
        .expect("FARDEL_NUMBA can be started");
    let said = said(&output);
    // Two arrays of 256 KiB leave room for fifteen of 64 MiB.
    let wanted = "compiled True\nsees 1024\nrefused True\nheld 960\n";
    assert!(said.contains(wanted), "{said}");
}
