//! Memory that graphs allocate for themselves: known when a node is added or a stream captured, needed
//! when the graph is launched. The launch asks for what the device does not keep for graphs already,
//! and afterwards the charge is made what the device really keeps.

use core::sync::atomic::Ordering::SeqCst;

use crate::account;
use crate::here::{GRAIN, Here, here};
use crate::ledger::{AllocationEntry, AllocationKind, AllocationTable};
use crate::{Code, NOT_SUPPORTED, OK, OUT_OF_MEMORY, pools, real, recording};

/// Where a description of a memory node says how many bytes: behind the pool's 88 bytes and two words.
const BYTES_AT: usize = 104;
const MEMORY_NODE: i32 = 10;
/// Where the general description of a node has its particular one.
const PARTICULAR_AT: usize = 16;

fn add(kind: AllocationKind, key: u64, bytes: u64) {
    if bytes == 0 {
        return;
    }
    if let Some(process) = account::process() {
        process.with_ledger(|ledger| {
            let before = bytes_of(ledger, kind, key);
            ledger.insert(kind, key, entry(before.saturating_add(bytes)));
        });
        if kind == AllocationKind::Executable {
            process.graphs_with_memory.store(true, SeqCst);
        }
    }
}

fn bytes_of(ledger: &mut AllocationTable, kind: AllocationKind, key: u64) -> u64 {
    ledger.get(kind, key).map_or(0, |entry| entry.bytes)
}

fn entry(bytes: u64) -> AllocationEntry {
    AllocationEntry {
        bytes,
        context: 0,
        extra: 0,
        device: 0,
    }
}

/// Hands on what a graph needs to one made from it.
///
/// # Safety
/// `made` is null or what the driver has just written.
unsafe fn hand_on(code: Code, from: (AllocationKind, u64), to: AllocationKind, made: *const u64) {
    let Some(process) = account::process() else {
        return;
    };
    if code == OK && !made.is_null() {
        let needs = process.with_ledger(|ledger| bytes_of(ledger, from.0, from.1));
        // SAFETY: promised by the caller.
        add(to, unsafe { *made }, needs);
    }
}

fn forget(kind: AllocationKind, key: u64) {
    if let Some(process) = account::process() {
        process.with_ledger(|ledger| ledger.remove(kind, key));
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphAddMemAllocNode(
    node: *mut u64,
    graph: u64,
    after: *const u64,
    count: usize,
    parameters: *mut u8,
) -> Code {
    let code = real!(cuGraphAddMemAllocNode(node, graph, after, count, parameters):
        fn(*mut u64, u64, *const u64, usize, *mut u8));
    if code == OK && !parameters.is_null() {
        // SAFETY: the driver has read that description.
        let bytes = unsafe { parameters.add(BYTES_AT).cast::<u64>().read_unaligned() };
        add(AllocationKind::Graph, graph, bytes.next_multiple_of(GRAIN));
    }
    code
}

/// # Safety
/// `parameters` is null or a description that the driver has read.
unsafe fn added(code: Code, graph: u64, parameters: *const u8) {
    if code != OK || parameters.is_null() {
        return;
    }
    // SAFETY: promised by the caller.
    unsafe {
        if parameters.cast::<i32>().read_unaligned() == MEMORY_NODE {
            let at = parameters.add(PARTICULAR_AT + BYTES_AT).cast::<u64>();
            add(
                AllocationKind::Graph,
                graph,
                at.read_unaligned().next_multiple_of(GRAIN),
            );
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphAddNode(
    node: *mut u64,
    graph: u64,
    after: *const u64,
    count: usize,
    parameters: *mut u8,
) -> Code {
    let code = real!(cuGraphAddNode(node, graph, after, count, parameters):
        fn(*mut u64, u64, *const u64, usize, *mut u8));
    // SAFETY: the caller's description.
    unsafe { added(code, graph, parameters) };
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphAddNode_v2(
    node: *mut u64,
    graph: u64,
    after: *const u64,
    edges: *const u8,
    count: usize,
    parameters: *mut u8,
) -> Code {
    let code = real!(cuGraphAddNode_v2(node, graph, after, edges, count, parameters):
        fn(*mut u64, u64, *const u64, *const u8, usize, *mut u8));
    // SAFETY: the caller's description.
    unsafe { added(code, graph, parameters) };
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphAddChildGraphNode(
    node: *mut u64,
    graph: u64,
    after: *const u64,
    count: usize,
    child: u64,
) -> Code {
    let code = real!(cuGraphAddChildGraphNode(node, graph, after, count, child):
        fn(*mut u64, u64, *const u64, usize, u64));
    // SAFETY: the key of the graph itself, which lives through the call.
    unsafe {
        hand_on(
            code,
            (AllocationKind::Graph, child),
            AllocationKind::Graph,
            &graph,
        )
    };
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphClone(made: *mut u64, graph: u64) -> Code {
    let code = real!(cuGraphClone(made, graph): fn(*mut u64, u64));
    // SAFETY: what the driver has just written.
    unsafe {
        hand_on(
            code,
            (AllocationKind::Graph, graph),
            AllocationKind::Graph,
            made,
        )
    };
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphDestroy(graph: u64) -> Code {
    let code = real!(cuGraphDestroy(graph): fn(u64));
    if code == OK {
        forget(AllocationKind::Graph, graph);
    }
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphInstantiate(
    made: *mut u64,
    graph: u64,
    node: *mut u64,
    log: *mut u8,
    size: usize,
) -> Code {
    let code = real!(cuGraphInstantiate(made, graph, node, log, size):
        fn(*mut u64, u64, *mut u64, *mut u8, usize));
    // SAFETY: what the driver has just written.
    unsafe {
        hand_on(
            code,
            (AllocationKind::Graph, graph),
            AllocationKind::Executable,
            made,
        )
    };
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphInstantiate_v2(
    made: *mut u64,
    graph: u64,
    node: *mut u64,
    log: *mut u8,
    size: usize,
) -> Code {
    let code = real!(cuGraphInstantiate_v2(made, graph, node, log, size):
        fn(*mut u64, u64, *mut u64, *mut u8, usize));
    // SAFETY: what the driver has just written.
    unsafe {
        hand_on(
            code,
            (AllocationKind::Graph, graph),
            AllocationKind::Executable,
            made,
        )
    };
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphInstantiateWithFlags(made: *mut u64, graph: u64, flags: u64) -> Code {
    let code = real!(cuGraphInstantiateWithFlags(made, graph, flags): fn(*mut u64, u64, u64));
    // SAFETY: what the driver has just written.
    unsafe {
        hand_on(
            code,
            (AllocationKind::Graph, graph),
            AllocationKind::Executable,
            made,
        )
    };
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphInstantiateWithParams(
    made: *mut u64,
    graph: u64,
    parameters: *mut u8,
) -> Code {
    let code = real!(cuGraphInstantiateWithParams(made, graph, parameters): fn(*mut u64, u64, *mut u8));
    // SAFETY: what the driver has just written.
    unsafe {
        hand_on(
            code,
            (AllocationKind::Graph, graph),
            AllocationKind::Executable,
            made,
        )
    };
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphInstantiateWithParams_ptsz(
    made: *mut u64,
    graph: u64,
    parameters: *mut u8,
) -> Code {
    let code =
        real!(cuGraphInstantiateWithParams_ptsz(made, graph, parameters): fn(*mut u64, u64, *mut u8));
    // SAFETY: what the driver has just written.
    unsafe {
        hand_on(
            code,
            (AllocationKind::Graph, graph),
            AllocationKind::Executable,
            made,
        )
    };
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphExecDestroy(graph: u64) -> Code {
    let code = real!(cuGraphExecDestroy(graph): fn(u64));
    if code == OK {
        forget(AllocationKind::Executable, graph);
    }
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamEndCapture(stream: u64, graph: *mut u64) -> Code {
    let code = recording::end(
        stream,
        false,
        || real!(cuStreamEndCapture(stream, graph): fn(u64, *mut u64)),
    );
    // SAFETY: what the driver has just written.
    unsafe { captured(code, graph) };
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamEndCapture_ptsz(stream: u64, graph: *mut u64) -> Code {
    let code = recording::end(
        stream,
        true,
        || real!(cuStreamEndCapture_ptsz(stream, graph): fn(u64, *mut u64)),
    );
    // SAFETY: what the driver has just written.
    unsafe { captured(code, graph) };
    code
}

/// # Safety
/// `graph` is null or what the driver has just written.
unsafe fn captured(code: Code, graph: *const u64) {
    if code != OK || graph.is_null() {
        return;
    }
    if let Some(process) = account::process() {
        // Two captures at once may swap their needs; the sum is right, and so is the charge after.
        let bytes = process.captured.swap(0, SeqCst);
        // SAFETY: promised by the caller.
        add(AllocationKind::Graph, unsafe { *graph }, bytes);
    }
}

/// Asks for what a graph needs, launches it, and makes the charge true.
fn launch(graph: u64, run: impl FnOnce() -> Code) -> Code {
    if account::process().is_none_or(|process| !process.graphs_with_memory.load(SeqCst)) {
        return run();
    }
    let Ok(Some(here)) = here() else {
        return run();
    };
    let process = here.process;
    let key = here.ordinal as u64;
    let (needs, kept) = process.with_ledger(|ledger| {
        (
            bytes_of(ledger, AllocationKind::Executable, graph),
            ledger
                .get(AllocationKind::GraphReserve, key)
                .map(|entry| entry.bytes),
        )
    });
    if needs == 0 && kept.is_none() {
        return run();
    }
    let mut charged = kept.unwrap_or(0);
    let mut more = needs.saturating_sub(charged);
    if more > 0 && !process.take(here.device, more) {
        // What is kept for other graphs goes first.
        real!(cuDeviceGraphMemTrim(here.ordinal): fn(i32));
        charged = settle(&here, charged);
        more = needs.saturating_sub(charged);
        if !process.take(here.device, more) {
            return OUT_OF_MEMORY;
        }
    }
    let code = run();
    settle(&here, charged.saturating_add(more));
    code
}

/// Makes the charge what the device keeps for graphs, which it returns; `charged` is what it is now.
fn settle(here: &Here, charged: u64) -> u64 {
    let reserved = pools::graph_reserved(here.ordinal).unwrap_or(charged);
    if reserved > charged {
        here.process.take_held(here.device, reserved - charged);
    } else {
        here.process.give(here.device, charged - reserved);
    }
    let kept = here.entry(reserved);
    here.process.with_ledger(|ledger| {
        ledger.insert(AllocationKind::GraphReserve, here.ordinal as u64, kept)
    });
    reserved
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphLaunch(graph: u64, stream: u64) -> Code {
    crate::gate::pass(stream, false);
    launch(graph, || real!(cuGraphLaunch(graph, stream): fn(u64, u64)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphLaunch_ptsz(graph: u64, stream: u64) -> Code {
    crate::gate::pass(stream, true);
    launch(
        graph,
        || real!(cuGraphLaunch_ptsz(graph, stream): fn(u64, u64)),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGraphMemTrim(ordinal: i32) -> Code {
    let code = real!(cuDeviceGraphMemTrim(ordinal): fn(i32));
    let Some(process) = account::process() else {
        return code;
    };
    let kept = process.with_ledger(|ledger| {
        ledger
            .get(AllocationKind::GraphReserve, ordinal as u64)
            .copied()
    });
    if code == OK
        && let Some(kept) = kept
    {
        let here = Here {
            process,
            device: kept.device as usize,
            ordinal,
            context: 0,
        };
        settle(&here, kept.bytes);
    }
    code
}

// Memory of graphics and of other drivers would count for nobody.

#[unsafe(no_mangle)]
extern "C" fn cuImportExternalMemory(_out: *mut u64, _parameters: *const u8) -> Code {
    NOT_SUPPORTED
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphicsGLRegisterBuffer(_out: *mut u64, _buffer: u32, _flags: u32) -> Code {
    NOT_SUPPORTED
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphicsGLRegisterImage(
    _out: *mut u64,
    _image: u32,
    _target: u32,
    _f: u32,
) -> Code {
    NOT_SUPPORTED
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphicsEGLRegisterImage(_out: *mut u64, _image: u64, _flags: u32) -> Code {
    NOT_SUPPORTED
}
