//! How the server looks at its own machine: its starter brings a runner, because the checks
//! and the bundle are another process's work (they fork, and they run other programs). Never knows
//! what is looked at.

use std::sync::{Arc, OnceLock};

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiagnosticsRequest {
    /// Every check of the machine, as the JSON of `fardel doctor`.
    Checks,
    /// What a support bundle would hold, as JSON.
    BundlePreview,
    /// The bundle itself.
    Bundle,
}

/// Does a diagnosis and gives its bytes, or a sentence. Blocks for seconds.
pub type DiagnosticsRunner =
    Arc<dyn Fn(DiagnosticsRequest) -> Result<Vec<u8>, String> + Send + Sync>;

/// The runner of this server; none until the start brings one.
#[derive(Default)]
pub(crate) struct Diagnostics {
    runner: OnceLock<DiagnosticsRunner>,
    /// One at a time: they read the whole machine.
    turn: tokio::sync::Mutex<()>,
}

impl Diagnostics {
    pub(crate) fn bring(&self, runner: DiagnosticsRunner) {
        // A second one would be a second start of the same server, which does not happen.
        let _ = self.runner.set(runner);
    }

    /// None where no runner was brought, as in rehearsals.
    pub(crate) async fn ask(&self, what: DiagnosticsRequest) -> Option<Result<Vec<u8>, String>> {
        let runner = Arc::clone(self.runner.get()?);
        let _turn = self.turn.lock().await;
        let done = tokio::task::spawn_blocking(move || runner(what)).await;
        Some(done.unwrap_or_else(|_| Err("the diagnosis broke off".to_owned())))
    }
}
