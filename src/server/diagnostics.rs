//! How the server looks at its own machine: its starter brings a runner, because the checks
//! and the bundle are another process's work (they fork, and they run other programs). Never knows
//! what is looked at.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rules::units::Timestamp;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiagnosticsRequest {
    /// Every check of the machine, as the JSON of `fardel doctor`.
    Checks,
    /// Pressure, disks, networks and heat of the machine, as JSON.
    Machine,
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
    checks: Arc<Mutex<NewestChecks>>,
}

/// What the checks gave last.
#[derive(Default)]
struct NewestChecks {
    /// When somebody was last told to look.
    asked: Option<Timestamp>,
    found: Option<(Timestamp, Arc<[u8]>)>,
}

impl Diagnostics {
    pub(crate) fn bring(&self, runner: DiagnosticsRunner) {
        // A second one would be a second start of the same server, which does not happen.
        let _ = self.runner.set(runner);
    }

    fn checks(&self) -> MutexGuard<'_, NewestChecks> {
        held(&self.checks)
    }

    /// True once in so many milliseconds: the one who hears it should look at the machine.
    pub(crate) fn is_due(&self, now: Timestamp, every: u64) -> bool {
        let mut checks = self.checks();
        let due = checks
            .asked
            .is_none_or(|asked| asked > now || now.millis_since(asked) >= every);
        if due {
            checks.asked = Some(now);
        }
        due
    }

    /// What was found may be mended: the next one who asks looks at the machine.
    pub(crate) fn look_again(&self) {
        self.checks().asked = None;
    }

    /// Whether what was found may be mended since, and the machine was not looked at again.
    pub(crate) fn is_outdated(&self) -> bool {
        let checks = self.checks();
        checks.asked.is_none() && checks.found.is_some()
    }

    /// What the checks gave last, and when; None before the first time.
    pub(crate) fn newest(&self) -> Option<(Timestamp, Arc<[u8]>)> {
        self.checks().found.clone()
    }

    /// None where no runner was brought, as in rehearsals. What checks give is kept also where nobody waits for it
    /// any more.
    pub(crate) async fn ask(
        &self,
        what: DiagnosticsRequest,
        now: Timestamp,
    ) -> Option<Result<Vec<u8>, String>> {
        let runner = Arc::clone(self.runner.get()?);
        let _turn = self.turn.lock().await;
        let checks = Arc::clone(&self.checks);
        let done = tokio::task::spawn_blocking(move || {
            let found = runner(what)?;
            if what == DiagnosticsRequest::Checks {
                let mut checks = held(&checks);
                checks.asked = Some(now);
                checks.found = Some((now, found.as_slice().into()));
            }
            Ok(found)
        })
        .await;
        Some(done.unwrap_or_else(|_| Err("the diagnosis broke off".to_owned())))
    }
}

fn held(checks: &Mutex<NewestChecks>) -> MutexGuard<'_, NewestChecks> {
    checks.lock().unwrap_or_else(PoisonError::into_inner)
}
