//! Looks whether the state is well: the disk takes a byte, the key of sealed values is there, every page says
//! what it should. What is found is noted in `health`. Never mends anything.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rules::refusal::Refusal;

use super::health::{CatalogHealth, DAMAGED, ENDED_BY_A_WRITE, damaged, disk};
use super::writer::Rows;
use super::{Catalog, Lane, copy, sealing};
use crate::Failure;

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
                    .write(Lane::Requests, "try the disk again", |rows| {
                        // Whoever asked whether the server is well changed nothing.
                        rows.mute_acts();
                        rows.touch()
                    })
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
            .prepare_cached("update installation set revision = revision where id = 1")?
            .execute([])?;
        Ok(())
    }
}

/// Writes one byte beside the catalog and syncs it. The file is created each time, so that a directory
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
