//! How the server looks at its own machine: its starter brings an examiner, because the checks
//! and the bundle are another process's work (they fork, and they run other programs). Never knows
//! what is looked at.

use std::sync::{Arc, OnceLock};

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Examination {
    /// Every check of the machine, as the JSON of `fardel doctor`.
    Checks,
    /// What a support bundle would hold, as JSON.
    BundlePreview,
    /// The bundle itself.
    Bundle,
}

/// Does an examination and gives its bytes, or a sentence. Blocks for seconds.
pub type Examiner = Arc<dyn Fn(Examination) -> Result<Vec<u8>, String> + Send + Sync>;

/// The examiner of this server; none until the start brings one.
#[derive(Default)]
pub(crate) struct Examining {
    examiner: OnceLock<Examiner>,
    /// One at a time: they read the whole machine.
    turn: tokio::sync::Mutex<()>,
}

impl Examining {
    pub(crate) fn bring(&self, examiner: Examiner) {
        // A second one would be a second start of the same server, which does not happen.
        let _ = self.examiner.set(examiner);
    }

    /// None where no examiner was brought, as in rehearsals.
    pub(crate) async fn ask(&self, what: Examination) -> Option<Result<Vec<u8>, String>> {
        let examiner = Arc::clone(self.examiner.get()?);
        let _turn = self.turn.lock().await;
        let done = tokio::task::spawn_blocking(move || examiner(what)).await;
        Some(done.unwrap_or_else(|_| Err("the examination broke off".to_owned())))
    }
}
