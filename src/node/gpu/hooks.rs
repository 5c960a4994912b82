//! The libraries that stand in for the vendor's in containers with a slice, as the build script made them.
//! Where they are mounted, and how the rest of a slice gets there, is decided elsewhere.

/// What is mounted over every `libcuda.so.1` of a container with a slice.
pub static CUDA_HOOK: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/cuda_hook.so"));

/// What is mounted over every `libnvidia-ml.so.1` of it.
pub static NVML_HOOK: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/nvml_hook.so"));

/// The program that a card's self-test runs, beside the pages of every container with a slice.
pub static GPU_TEST: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/gpu_test"));

/// Where in the container the hooks expect the pages (`control`, `account`) and the real drivers, under
/// the names they have everywhere. Written into the hooks, so nothing inside can point elsewhere.
pub const PLACE: &str = "/usr/lib/fardel/gpu";
