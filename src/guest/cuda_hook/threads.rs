//! Which default stream a thread launched into last: that stream is another one in each context, and to
//! ask the driver for the context costs more than a launch may. Forgotten when the thread is about to
//! change its context, and for everybody when a context ends. A thread is known by its own pointer, since
//! a library that is loaded at any time can count on no room in every thread. Never more than a hint:
//! what does not fit is asked for again.

use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// Threads are told apart by a set each, and so many of one set are remembered.
const SETS: usize = 64;
const WAYS: usize = 4;
/// Bits of a cell that hold the place, above them the thread's pointer: user memory ends below 2^47.
const PLACE_BITS: u32 = 16;
const PLACE: u64 = (1 << PLACE_BITS) - 1;

/// Not set while every way to change a context leads through here.
static UNSEEN: AtomicBool = AtomicBool::new(false);

/// All zero: nothing is known.
#[repr(C)]
pub struct Threads {
    /// The thread and a place, in one word, so that no reader gets the one of one and the other of another.
    cells: [[AtomicU64; WAYS]; SETS],
}

/// What tells the calling thread from every other that lives.
pub fn me() -> u64 {
    let pointer: u64;
    // SAFETY: x86-64 programs find their thread's own address there.
    unsafe {
        asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly, pure));
    }
    pointer
}

/// From now on nothing is remembered: a program has got a way to change contexts that is not ours.
pub fn unseen() {
    UNSEEN.store(true, SeqCst);
}

impl Threads {
    fn set(&self, thread: u64) -> &[AtomicU64; WAYS] {
        let mixed = (thread >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.cells[(mixed >> 58) as usize % SETS]
    }

    /// What was remembered for a thread.
    pub fn place(&self, thread: u64) -> Option<usize> {
        if UNSEEN.load(SeqCst) {
            return None;
        }
        let cells = self.set(thread).iter().map(|cell| cell.load(SeqCst));
        let mut own = cells.filter(|cell| cell >> PLACE_BITS == thread && *cell & PLACE != 0);
        own.next().map(|cell| (cell & PLACE) as usize - 1)
    }

    pub fn remember(&self, thread: u64, place: usize) {
        let fits = thread != 0 && thread >> (64 - PLACE_BITS) == 0 && (place as u64) < PLACE;
        if !fits {
            return;
        }
        let set = self.set(thread);
        let of = |wanted: u64| {
            set.iter()
                .find(move |cell| cell.load(SeqCst) >> PLACE_BITS == wanted)
        };
        let other = &set[(thread >> 12) as usize % WAYS];
        let cell = of(thread).or_else(|| of(0)).unwrap_or(other);
        cell.store(thread << PLACE_BITS | (place as u64 + 1), SeqCst);
    }

    pub fn forget(&self, thread: u64) {
        for cell in self.set(thread) {
            if cell.load(SeqCst) >> PLACE_BITS == thread {
                cell.store(0, SeqCst);
            }
        }
    }

    pub fn forget_all(&self) {
        for cell in self.cells.iter().flatten() {
            cell.store(0, SeqCst);
        }
    }
}
