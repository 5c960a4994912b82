//! What the product carries: the very hooks that the other tests try, and nothing of the fake driver.

use super::rig::{PLACE, state, works};

#[test]
fn the_product_carries_the_hooks_that_are_tested() {
    assert_eq!(node::gpu::hooks::PLACE, PLACE);
    for (file, carried) in [
        ("cuda_hook.so", node::gpu::hooks::CUDA_HOOK),
        ("nvml_hook.so", node::gpu::hooks::NVML_HOOK),
    ] {
        let tested = std::fs::read(works().folder.join(file)).expect("it was compiled");
        assert!(
            carried == tested,
            "{file}: the node's has {} bytes, the one that the tests compiled {}",
            carried.len(),
            tested.len()
        );
    }
}

#[test]
fn nothing_of_the_fake_driver_stands_in_the_product() {
    let holds = |path: &std::path::Path| {
        let bytes = std::fs::read(path).expect("it was built");
        let marker = state::MARKER.as_bytes();
        bytes
            .iter()
            .enumerate()
            .any(|(at, byte)| *byte == marker[0] && bytes[at..].starts_with(marker))
    };
    // The search finds it where it is.
    assert!(holds(&works().folder.join("fake_cuda.so")));
    assert!(!holds(env!("CARGO_BIN_EXE_fardel").as_ref()));
    for hook in [
        node::gpu::hooks::CUDA_HOOK,
        node::gpu::hooks::NVML_HOOK,
        node::gpu::probe::PROBE,
    ] {
        let marker = state::MARKER.as_bytes();
        assert!(!hook.windows(marker.len()).any(|window| window == marker));
    }
}
