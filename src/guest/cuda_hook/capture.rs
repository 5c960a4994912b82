//! What the driver says of one stream: whether it records instead of running.

use crate::{OK, real};

/// Whether a stream records instead of running.
pub fn is_capturing(stream: u64, per_thread: bool) -> bool {
    let mut status = 0;
    let code = if per_thread {
        real!(cuStreamIsCapturing_ptsz(stream, &mut status): fn(u64, &mut i32))
    } else {
        real!(cuStreamIsCapturing(stream, &mut status): fn(u64, &mut i32))
    };
    code == OK && status != 0
}

/// Whether a stream runs its work at once: it is not being captured, and a call would break no capture in progress.
pub fn runs(stream: u64) -> bool {
    let mut status = 0;
    let code = real!(cuStreamIsCapturing(stream, &mut status): fn(u64, &mut i32));
    code == OK && status == 0
}
