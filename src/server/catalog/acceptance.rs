//! Root's word that this catalog leads the machine, also if that followed another before: one small file beside the
//! catalog, so that it can be given with and without a server. Good once: the server removes it when the
//! machine obeys.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rules::tenancy::Scope;
use uuid::Uuid;

use super::audit::{ActingUser, NewAct};
use super::{Catalog, Lane};

fn file(data: &Path) -> PathBuf {
    data.join("state.accepted")
}

/// Writes that `state` leads the machine, whole or not at all, as a file of the directory's owner.
pub(crate) fn accept(data: &Path, state: Uuid) -> io::Result<()> {
    let draft = data.join("state.accepted.new");
    let mut written = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&draft)?;
    writeln!(written, "{state}")?;
    let owner = fs::metadata(data)?;
    std::os::unix::fs::fchown(&written, Some(owner.uid()), Some(owner.gid()))?;
    written.sync_all()?;
    fs::rename(&draft, file(data))?;
    fs::File::open(data)?.sync_all()
}

/// Whether that was said of `state` and not yet carried out.
pub(crate) fn is_accepted(data: &Path, state: Uuid) -> bool {
    fs::read_to_string(file(data)).is_ok_and(|text| text.trim() == state.to_string())
}

impl Catalog {
    /// Whether root said that this catalog leads the machine. Costs a look for a file.
    pub(crate) fn is_accepted(&self) -> bool {
        let state = self.founding().installation_id;
        self.0
            .data
            .as_deref()
            .is_some_and(|data| is_accepted(data, state))
    }

    /// The machine obeys: what root said was carried out, which has a row of the audit log. Where a backup was restored, the
    /// chain of that log begins another branch there.
    pub(crate) fn forget_acceptance(&self) {
        let Some(data) = &self.0.data else {
            return;
        };
        match fs::remove_file(file(data)) {
            Ok(()) => self.write_later(Lane::Loops, "note an accepted state", |rows| {
                rows.record(NewAct {
                    actor: ActingUser::Named("root"),
                    act: "state.accepted",
                    topic: "system",
                    object: "state",
                    scope: Scope::SITE,
                    before: "",
                    after: "",
                    reason: "",
                })
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(%error, "the accepted state is in force, and its marker could not be removed");
            }
        }
    }
}
