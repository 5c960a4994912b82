//! Streams that record instead of running: whether any does in this process, so that launches ask the
//! driver about their own stream only then. Counts what it sees begin and end; what ends unseen only
//! makes launches ask for longer. Also runs our own calls so that no recording is disturbed.

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

use crate::{Code, OK, before, capture, real};

/// Recordings that were begun, or are about to be, and were not seen to end.
static RECORDINGS: AtomicU32 = AtomicU32::new(0);

/// Whether any stream of the process may be recording.
pub fn any() -> bool {
    RECORDINGS.load(SeqCst) != 0
}

/// From now on there may always be one: a program has got a way to begin one that is not ours.
pub extern "C" fn unseen() {
    RECORDINGS.fetch_add(1, SeqCst);
}

/// Whether a stream surely runs what it is given: neither records, nor would break a recording.
pub fn runs(stream: u64) -> bool {
    !any() || capture::runs(stream)
}

/// Does so without disturbing a recording of this or another thread, where the driver can.
pub fn undisturbed<T>(work: impl FnOnce() -> T) -> T {
    const RELAXED: i32 = 2;
    let mut mode = RELAXED;
    let exchanged = real!(cuThreadExchangeStreamCaptureMode(&mut mode): fn(&mut i32)) == OK;
    let answer = work();
    if exchanged {
        real!(cuThreadExchangeStreamCaptureMode(&mut mode): fn(&mut i32));
    }
    answer
}

/// Counted before the driver begins: no launch finds a stream recording while none is counted.
fn begin(work: impl FnOnce() -> Code) -> Code {
    RECORDINGS.fetch_add(1, SeqCst);
    let code = work();
    if code != OK {
        RECORDINGS.fetch_sub(1, SeqCst);
    }
    code
}

/// Ends a recording; whatever the driver answers, it counts as ended only when the stream runs again.
pub fn end(stream: u64, per_thread: bool, work: impl FnOnce() -> Code) -> Code {
    let recorded = capture::is_capturing(stream, per_thread);
    let code = work();
    if recorded && !capture::is_capturing(stream, per_thread) {
        RECORDINGS.fetch_sub(1, SeqCst);
    }
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamBeginCapture(stream: u64) -> Code {
    begin(|| real!(cuStreamBeginCapture(stream): fn(u64)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamBeginCapture_ptsz(stream: u64) -> Code {
    begin(|| real!(cuStreamBeginCapture_ptsz(stream): fn(u64)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamBeginCapture_v2(stream: u64, mode: i32) -> Code {
    begin(|| real!(cuStreamBeginCapture_v2(stream, mode): fn(u64, i32)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamBeginCapture_v2_ptsz(stream: u64, mode: i32) -> Code {
    begin(|| real!(cuStreamBeginCapture_v2_ptsz(stream, mode): fn(u64, i32)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamBeginCaptureToGraph(
    stream: u64,
    graph: u64,
    after: *const u64,
    edges: *const u8,
    count: usize,
    mode: i32,
) -> Code {
    begin(|| {
        real!(cuStreamBeginCaptureToGraph(stream, graph, after, edges, count, mode):
            fn(u64, u64, *const u64, *const u8, usize, i32))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamBeginCaptureToGraph_ptsz(
    stream: u64,
    graph: u64,
    after: *const u64,
    edges: *const u8,
    count: usize,
    mode: i32,
) -> Code {
    begin(|| {
        real!(cuStreamBeginCaptureToGraph_ptsz(stream, graph, after, edges, count, mode):
            fn(u64, u64, *const u64, *const u8, usize, i32))
    })
}

// Those whose end is not followed.

before!(cuStreamBeginCaptureToCig, unseen);
before!(cuStreamBeginCaptureToCig_ptsz, unseen);
before!(cuStreamBeginRecaptureToGraph, unseen);
before!(cuStreamBeginRecaptureToGraph_ptsz, unseen);
