//! What is wrong with the state at this moment, by stable codes: damaged pages, a disk that fails, a record
//! the machine cannot write, a machine that obeyed another catalog. Noted where it is met, told to
//! readiness, pages and whoever asks for new work. Never mends anything.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rules::reason::Reason;
use rules::refusal::Refusal;

use super::writer::Rows;
use super::{Catalog, Lane, copy, sealing};
use crate::Failure;

/// Readiness tries the disk at most this often. Shorter: a stranger who asks without end makes the disk
/// busy. Longer: a monitor hears of a dead disk later.
const DISK_PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// The pages of the catalog are looked through when a server starts and this often after it. Shorter: a
/// large catalog is read for nothing. Longer: damage that nobody meets stays unknown.
pub(crate) const PAGE_CHECK_INTERVAL: Duration = Duration::from_secs(6 * 3600);

pub(crate) const DAMAGED: &str = "state.damaged";
pub(crate) const DISK: &str = "state.disk";
/// Codes that end as soon as something was written again.
const ENDED_BY_A_WRITE: [&str; 3] = [DISK, "disk.read-only", "disk.full"];
/// In front of what a machine says of its own record.
const OF_THE_MACHINE: &str = "node.record-";

/// Cheap to clone; all clones are one.
#[derive(Clone, Default)]
pub(crate) struct CatalogHealth(Arc<Mutex<CatalogFaults>>);

#[derive(Default)]
struct CatalogFaults {
    /// By code; at most one of each.
    troubles: BTreeMap<String, Refusal>,
    tried: Option<Instant>,
}

impl CatalogHealth {
    fn known(&self) -> MutexGuard<'_, CatalogFaults> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is wrong now, by code; empty while all is well.
    pub(crate) fn troubles(&self) -> Vec<Refusal> {
        self.known().troubles.values().cloned().collect()
    }

    /// What is wrong and ends by nothing that a request does: new work is refused with it.
    pub(crate) fn standing_in_the_way(&self) -> Option<Refusal> {
        let troubles = self.troubles();
        let mut stand = troubles
            .into_iter()
            .filter(|trouble| !ENDED_BY_A_WRITE.contains(&trouble.code.as_str()));
        stand.next()
    }

    /// Notes what a result says about the state, and gives it back.
    pub(super) fn heed<T>(&self, result: Result<T, Failure>) -> Result<T, Failure> {
        if let Err(Failure::Refusal(refusal)) = &result
            && (refusal.code == DAMAGED || ENDED_BY_A_WRITE.contains(&refusal.code.as_str()))
        {
            self.note(refusal.clone());
        }
        result
    }

    /// Notes one trouble; logged when it is new.
    pub(crate) fn note(&self, trouble: Refusal) {
        let new = self
            .known()
            .troubles
            .insert(trouble.code.clone(), trouble.clone())
            .is_none();
        if new {
            tracing::error!(code = trouble.code, "{} {}", trouble.text, trouble.hint);
        }
    }

    /// Something was written durably.
    pub(super) fn wrote(&self) {
        self.over(|code| ENDED_BY_A_WRITE.contains(&code));
    }

    /// Takes over what the machine says of its own record; what it no longer says is over.
    pub(crate) fn heard(&self, problems: &[Reason]) {
        let told = |code: &str| problems.iter().any(|problem| problem.code == code);
        self.over(|code| code.starts_with(OF_THE_MACHINE) && !told(code));
        for problem in problems {
            if problem.code.starts_with(OF_THE_MACHINE) {
                let refusal = Refusal::unavailable(problem.code.as_str(), problem.text.as_str());
                self.note(refusal.hint(
                    "Make that file and its directory writable (chattr -i, mount -o remount,rw); it is tried again by itself.",
                ));
            }
        }
    }

    /// Sets or ends the quarantine.
    pub(crate) fn quarantine(&self, trouble: Option<Refusal>) {
        match trouble {
            Some(trouble) => self.note(trouble),
            None => self.over(|code| code == rules::continuity::QUARANTINED),
        }
    }

    fn over(&self, ended: impl Fn(&str) -> bool) {
        self.known().troubles.retain(|code, _| {
            let over = ended(code);
            if over {
                tracing::info!(code, "this trouble of the state is over");
            }
            !over
        });
    }

    /// True at most once every `DISK_PROBE_INTERVAL`.
    fn may_try(&self) -> bool {
        let mut known = self.known();
        let due = known
            .tried
            .is_none_or(|at| at.elapsed() >= DISK_PROBE_INTERVAL);
        if due {
            known.tried = Some(Instant::now());
        }
        due
    }
}

impl Catalog {
    pub(crate) fn health(&self) -> &CatalogHealth {
        &self.0.health
    }

    /// Looks whether the key of sealed values is there and the disk below `data` takes a byte; while something
    /// is wrong with it, whether the catalog does. A few seconds after the last look it does nothing. Costs a
    /// sync to disk.
    pub(crate) async fn try_disk(&self, data: &Path) {
        if matches!(self.0.writes, super::WriterMode::Here(_)) || !self.health().may_try() {
            return;
        }
        let troubled = self
            .health()
            .troubles()
            .iter()
            .any(|trouble| ENDED_BY_A_WRITE.contains(&trouble.code.as_str()));
        let (data, health) = (data.to_owned(), self.health().clone());
        let catalog = self.clone();
        let tried = tokio::task::spawn_blocking(move || {
            catalog.look_for_key(&data);
            touch(&data)
        })
        .await;
        match tried {
            Ok(Err(error)) => health.note(disk_trouble(&error)),
            Ok(Ok(())) if troubled => {
                // Its success ends the trouble, its failure notes it again.
                let _ = self
                    .write(Lane::People, "try the disk again", |rows| rows.touch())
                    .await;
            }
            Ok(Ok(())) => {}
            Err(error) => tracing::warn!(%error, "the disk could not be tested"),
        }
    }

    /// Looks whether the key of sealed values lies where the next start looks for it, and notes or ends its
    /// trouble. A catalog in memory has none there. Costs reading a small file.
    pub(crate) fn look_for_key(&self, data: &Path) {
        if matches!(self.0.writes, super::WriterMode::Here(_)) {
            return;
        }
        let trouble = self.0.seal.look(data).err();
        let code = trouble.as_ref().map(|trouble| trouble.code.clone());
        self.health()
            .over(|known| sealing::CODES.contains(&known) && code.as_deref() != Some(known));
        if let Some(trouble) = trouble {
            self.health().note(trouble);
        }
    }

    /// Looks for the key again where it was not there at the last look; otherwise does nothing.
    pub(crate) fn look_again_for_key(&self, data: &Path) {
        let troubles = self.health().troubles();
        let missed = |trouble: &Refusal| sealing::CODES.contains(&trouble.code.as_str());
        if troubles.iter().any(missed) {
            self.look_for_key(data);
        }
    }

    /// Looks through every page of the file, as `fardel doctor` does, and notes damage. Costs reading
    /// all of it.
    pub(crate) fn look_for_damage(&self, data: &Path) {
        let refusal = match copy::look(data) {
            Ok(Some(sight)) => match sight.damage.first() {
                Some(first) => damaged(first),
                None => return,
            },
            Ok(None) => return,
            Err(Failure::Refusal(refusal)) if refusal.code == DAMAGED => refusal,
            Err(failure) => {
                let error = base::observe::chain(&failure);
                tracing::warn!(%error, "the catalog could not be checked for damage");
                return;
            }
        };
        self.health().note(refusal);
    }
}

impl Rows<'_> {
    /// Changes nothing, but is written.
    fn touch(&self) -> Result<(), Failure> {
        self.connection
            .prepare_cached("update box set revision = revision where id = 1")?
            .execute([])?;
        Ok(())
    }
}

/// Writes one byte beside the catalog and syncs it. The file is made anew each time, so that a directory
/// that lost its disk is seen.
fn touch(data: &Path) -> std::io::Result<()> {
    let path = data.join(".disk-probe");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&path)?;
    file.write_all(b"1")?;
    file.sync_data()?;
    std::fs::remove_file(&path)
}

fn disk_trouble(error: &std::io::Error) -> Refusal {
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => super::disk_full(),
        std::io::ErrorKind::ReadOnlyFilesystem => super::disk_read_only(),
        _ => disk(error),
    }
}

/// Pages of the catalog do not say what they should.
pub(super) fn damaged(what: &dyn std::fmt::Display) -> Refusal {
    Refusal::unavailable(DAMAGED, format!("The catalog is damaged: {what}."))
        .with("what", what)
        .hint(
            "Stop the server, then restore the newest backup: fardel backup restore FILE --replace. \
             `fardel doctor` says what is damaged.",
        )
}

/// The disk of the state answers with errors.
pub(super) fn disk(what: &dyn std::fmt::Display) -> Refusal {
    Refusal::unavailable(
        DISK,
        format!("The disk that holds this machine's state fails: {what}."),
    )
    .with("what", what)
    .hint("Look at the kernel's log for errors of that disk; when it works again, so does this.")
    .retry_after(30)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_is_tried_once_in_five_seconds() {
        let health = CatalogHealth::default();
        assert!(health.may_try() && !health.may_try());
        for (seconds, due) in [(1, false), (5, true)] {
            health.known().tried = Instant::now().checked_sub(Duration::from_secs(seconds));
            assert_eq!(health.may_try(), due, "{seconds}");
        }
    }
}
