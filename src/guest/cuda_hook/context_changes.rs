//! Calls after which a thread may be in another context: what is remembered of it is forgotten first.

use crate::{account, before, threads};

/// The calling thread may be in another context after the call that follows; `contexts` says so before it
/// has one made.
pub extern "C" fn about_to_change() {
    if let Some(process) = account::begun() {
        process.launches.threads.forget(threads::me());
    }
}

before!(cuCtxSetCurrent, about_to_change);
before!(cuCtxPushCurrent, about_to_change);
before!(cuCtxPushCurrent_v2, about_to_change);
before!(cuCtxPopCurrent, about_to_change);
before!(cuCtxPopCurrent_v2, about_to_change);
before!(cuCtxAttach, about_to_change);
before!(cuCtxDetach, about_to_change);
before!(cuGLCtxCreate, about_to_change);
before!(cuGLCtxCreate_v2, about_to_change);
