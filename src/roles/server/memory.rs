//! Keeps the allocator from keeping: what a burst needed goes back to the machine. Never measures, never
//! decides what is needed.
//!
//! The C library raises by itself the size from which a block is mapped alone. One sign-in, whose proof
//! takes 19 MiB, is enough: from then on such blocks lie in the heaps of the threads, which give back
//! their upper end only. And every thread may have a heap of its own.

use std::time::Duration;

use node::runtime::program_memory;
use server::Server;
use tokio::sync::watch;

/// Blocks from this size on are mapped alone and unmapped when freed, always; a heap gives back its upper end from this
/// size on. Higher: a burst is kept until `GIVE_BACK`. Lower: each pass over a thousand sessions faults its memory in
/// again (62 faults a submit at 128 KiB, 2 at 1 MiB).
const MAPPED_FROM: i32 = 1 << 20;
/// Heaps of all threads together. Higher: each keeps what its worst moment needed. Lower: threads wait for
/// each other.
const HEAPS: i32 = 2;
/// How often what lies free is given back. Costs a millisecond, and what runs next its faults; longer keeps the last burst as
/// long.
const GIVE_BACK: Duration = Duration::from_secs(30);

/// Fixes the allocator's limits. To be called before threads are made; other C libraries keep theirs.
pub(super) fn bound() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt reads two numbers and is called while this process has one thread.
    // Justification: the standard library has no way to set them.
    unsafe {
        // Setting it at all ends its growing.
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_FROM);
        libc::mallopt(libc::M_TRIM_THRESHOLD, MAPPED_FROM);
        libc::mallopt(libc::M_ARENA_MAX, HEAPS);
    }
}

/// Gives back what the catalog keeps of its files, what lies free inside the heaps, and what of the program is not used any
/// more: what the start needed, then from time to time until `leaving`.
pub(super) async fn give_back(server: Server, mut leaving: watch::Receiver<bool>) {
    loop {
        let server = server.clone();
        let idle = move || {
            server.give_back_memory();
            program_memory::give_back();
        };
        let _ = tokio::task::spawn_blocking(idle).await;
        tokio::select! {
            () = tokio::time::sleep(GIVE_BACK) => {}
            _ = leaving.wait_for(|leave| *leave) => return,
        }
    }
}
