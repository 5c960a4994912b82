//! The way back from an upgrade: the catalog that was kept before its schema was raised is put in force
//! again, and what it does not know is named. Never goes forward: that is what opening a catalog does.

use std::path::{Path, PathBuf};

use rules::refusal::Refusal;
use rules::refusals;
use rules::units::{Bytes, Timestamp};
use serde::Serialize;

use crate::catalog::{acceptance, copy};
use crate::{Failure, ServerFault};

/// One catalog that was kept before an upgrade.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeptCatalog {
    /// Version of its schema.
    pub version: u32,
    pub path: PathBuf,
    pub size: Bytes,
    pub made_at: Timestamp,
}

/// Where an upgrade stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UpgradeStatus {
    /// Version of the catalog in force; None where there is none.
    pub version: Option<u32>,
    /// Newest version that this program knows.
    pub known: u32,
    /// Oldest first.
    pub kept: Vec<KeptCatalog>,
}

/// What going back did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RolledBack {
    pub from: u32,
    pub to: u32,
    /// Where the newer catalog lies now.
    pub aside: PathBuf,
    /// What happened since the copy was made and is not in force any more: events by code, the most
    /// frequent first. None where the two catalogs could not be compared.
    pub lost: Option<Vec<(String, u64)>>,
    pub lost_since: Option<Timestamp>,
    /// This program would raise the schema again at its next start.
    pub would_rise_again: bool,
}

/// What there is to go back to. Costs a look at the directory.
pub fn standing(data: &Path) -> Result<UpgradeStatus, Failure> {
    let file = copy::file(data);
    let version = if file.exists() {
        Some(copy::version_of(&file)?)
    } else {
        None
    };
    let kept = copy::kept(data).into_iter().filter_map(|(version, path)| {
        let found = std::fs::metadata(&path).ok()?;
        let since = found
            .modified()
            .ok()?
            .duration_since(std::time::UNIX_EPOCH)
            .ok()?;
        let made_at = Timestamp::from_millis(i64::try_from(since.as_millis()).ok()?);
        Some(KeptCatalog {
            version,
            path,
            size: Bytes(found.len()),
            made_at,
        })
    });
    Ok(UpgradeStatus {
        version,
        known: copy::newest_version(),
        kept: kept.collect(),
    })
}

/// Puts the newest kept catalog in force that is older than the one in force and that this program
/// knows. The newer one is kept aside; one rename decides.
///
/// Errors: `server.already-running`, `upgrade.nothing-kept`, `backup.unsound`, `disk.full`.
pub fn rollback(data: &Path, now: Timestamp) -> Result<RolledBack, Failure> {
    if !copy::file(data).exists() {
        return Err(nothing_kept(data).into());
    }
    let _held = copy::hold(data)?;
    let standing = standing(data)?;
    let from = standing.version.unwrap_or(0);
    let kept = standing
        .kept
        .iter()
        .rfind(|kept| kept.version < from && kept.version <= standing.known)
        .ok_or_else(|| nothing_kept(data))?;
    let failed = |error: std::io::Error| -> Failure {
        if error.kind() == std::io::ErrorKind::StorageFull {
            return crate::catalog::disk_full().into();
        }
        ServerFault::new("go back to the catalog from before the upgrade", error).into()
    };
    let stamp = crate::backup::stamp(now);
    let staging = data.join(format!("rollback-{stamp}"));
    std::fs::create_dir(&staging).map_err(failed)?;
    let staged = copy::file(&staging);
    let done = (|| {
        std::fs::copy(&kept.path, &staged).map_err(failed)?;
        let damage = copy::damage_of(&staged)?;
        if let Some(first) = damage.first() {
            return Err(refusals::upgrade_kept_catalog_damaged(kept.path.display(), first).into());
        }
        std::fs::File::open(&staged)
            .and_then(|file| file.sync_all())
            .map_err(failed)?;
        copy::settle(data)?;
        let current = copy::file(data);
        let lost = copy::since(&staged, &current);
        let aside = data.join(format!("{}.before-rollback-{stamp}", file_name(&current)));
        std::fs::hard_link(&current, &aside).map_err(failed)?;
        // Root goes back: the machine obeys the older catalog from then on.
        let state = copy::claim(&staging, None)?.state;
        acceptance::accept(data, state).map_err(failed)?;
        std::fs::rename(&staged, &current).map_err(failed)?;
        std::fs::File::open(data)
            .and_then(|folder| folder.sync_all())
            .map_err(failed)?;
        let (lost, lost_since) = match lost {
            Some(since) => (Some(since.codes), since.first),
            None => (None, None),
        };
        Ok(RolledBack {
            from,
            to: kept.version,
            aside,
            lost,
            lost_since,
            would_rise_again: kept.version < standing.known,
        })
    })();
    if let Err(error) = std::fs::remove_dir_all(&staging) {
        tracing::warn!(%error, path = %staging.display(), "a scratch directory was left behind");
    }
    done
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn nothing_kept(data: &Path) -> Refusal {
    refusals::upgrade_nothing_kept(data.display())
}
