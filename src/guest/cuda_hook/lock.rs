//! A spin lock in memory that starts as zero. Sleeps in no kernel queue, so a forked child can free it.

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

use crate::kernel;

/// A spin lock. A waiting thread yields the processor.
#[repr(transparent)]
pub struct SpinLock(AtomicU32);

impl SpinLock {
    pub fn hold<T>(&self, work: impl FnOnce() -> T) -> T {
        while self.0.swap(1, SeqCst) != 0 {
            kernel::give_way();
        }
        let answer = work();
        self.0.store(0, SeqCst);
        answer
    }

    /// Does nothing while another thread holds it.
    pub fn try_hold(&self, work: impl FnOnce()) {
        if self.0.swap(1, SeqCst) == 0 {
            work();
            self.0.store(0, SeqCst);
        }
    }

    /// For a forked child: the thread that held it does not exist there.
    pub fn free(&self) {
        self.0.store(0, SeqCst);
    }
}
