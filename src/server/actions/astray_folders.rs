//! Folders whose directory is gone, and directories that belong to no folder: found, named and left alone. After a restore of an
//! older backup such a directory may be all that is left of a folder. Removes and mends nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::observe::chain;
use rules::folder::FolderState;
use rules::names::{FolderId, VolumeId};
use rules::notice::Notice;
use rules::notices;
use rules::units::Timestamp;
use rules::volume::VolumeState;
use store::folders::FolderStore;

use super::volumes::on_volume;
use crate::appliance::lazy_stores::folder_failure;
use crate::{Failure, Server, ServerFault};

/// Folders of each kind that are named. Higher: the sentence fills the page. Lower: the others are found one look later.
const MAX_NAMED: usize = 5;
/// For how many seconds a directory without a row may be that of a folder that is just being made.
const UNNAMED_SECONDS: u64 = 24 * 3600;
/// How long the folders of one volume may take to be listed. Longer: who looks at the checks waits for it. Shorter: what is
/// wrong on a slow one is not found.
const VOLUME_TIMEOUT: Duration = Duration::from_secs(5);

/// What the last look found.
#[derive(Debug, Default)]
pub(crate) struct AstrayFolders(Mutex<Vec<Notice>>);

impl AstrayFolders {
    fn held(&self) -> MutexGuard<'_, Vec<Notice>> {
        // Changed in one step each.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn newest(&self) -> Vec<Notice> {
        self.held().clone()
    }
}

/// Looks for them on this machine's disk, and on the volumes that are there. Names a few of each kind. Costs one visit of each
/// folder and each directory; mounts nothing.
pub(crate) async fn look(server: &Server) -> Result<Vec<Notice>, Failure> {
    let store = server.folders()?;
    let now = server.clock().now();
    let rows = server
        .catalog()
        .read("list folders to look for", |view| view.folder_states())
        .await?;
    let known: BTreeSet<FolderId> = rows.keys().copied().collect();
    let held = volumes(&store, &Arc::new(known)).await?;
    let scanned = tokio::task::spawn_blocking(move || {
        let listed = store.all().map_err(folder_failure)?;
        let listed: BTreeSet<FolderId> = listed.into_iter().map(|(id, _)| id).collect();
        let is_gone = |id: FolderId| match (listed.contains(&id), store.volume_of(id)) {
            (false, _) => true,
            (true, Some(volume)) => held.get(&volume).is_some_and(|all| !all.contains(&id)),
            (true, None) => store.is_near(id) && !store.has(id),
        };
        // One that is being removed loses its directory first; a copy that is not whole comes or goes.
        let kept = rows
            .iter()
            .filter(|(_, state)| !matches!(state, FolderState::Copying | FolderState::Purging));
        let gone: Vec<FolderId> = kept.map(|(id, _)| *id).filter(|id| is_gone(*id)).collect();
        let all: BTreeSet<FolderId> = listed
            .iter()
            .chain(held.values().flatten())
            .copied()
            .collect();
        let strange = all.into_iter().filter(|id| {
            let is_old = made_at(*id).is_none_or(|at| at.plus_seconds(UNNAMED_SECONDS) <= now);
            is_old && !rows.contains_key(id)
        });
        let strange: Vec<FolderId> = strange.collect();
        Ok::<_, Failure>((gone, strange))
    });
    let (gone, strange) = scanned
        .await
        .map_err(|error| ServerFault::new("look for folders", error))??;
    let found = server
        .catalog()
        .read("name folders without a directory", move |view| {
            let mut named = Vec::new();
            for id in gone {
                // It may be removed by now.
                let row = view.folder(id)?;
                let row = row.filter(|row| row.folder.state != FolderState::Purging);
                named.extend(
                    row.map(|row| format!("{}/{} ({id})", row.owner_name, row.folder.name)),
                );
            }
            let mut unknown = Vec::new();
            for id in strange {
                if !view.knows_folder(id)? {
                    unknown.push(id.to_string());
                }
            }
            let mut found = Vec::new();
            if !named.is_empty() {
                let which = some_of(&named);
                found.push(notices::folder_without_directory(named.len(), which));
            }
            if !unknown.is_empty() {
                let which = some_of(&unknown);
                found.push(notices::folder_directory_unknown(unknown.len(), which));
            }
            Ok(found)
        })
        .await?;
    server.astray_folders().held().clone_from(&found);
    Ok(found)
}

/// The directories of folders on each volume that is ready, but for those of other sites. One that is slow or cannot be listed is
/// left out: the next look comes to it.
async fn volumes(
    store: &Arc<FolderStore>,
    known: &Arc<BTreeSet<FolderId>>,
) -> Result<BTreeMap<VolumeId, BTreeSet<FolderId>>, Failure> {
    let shelf = store.volumes();
    let mut all = BTreeMap::new();
    for volume in shelf.all().map_err(folder_failure)? {
        let state = shelf.sight(volume).map(|sight| sight.state);
        if state != Some(VolumeState::Ready) {
            continue;
        }
        let (folders, known) = (Arc::clone(store), Arc::clone(known));
        let listed = on_volume(shelf, volume, move || folders.all_on(volume, &known));
        let Ok(listed) = tokio::time::timeout(VOLUME_TIMEOUT, listed).await else {
            continue;
        };
        match listed.and_then(|listed| listed.map_err(folder_failure)) {
            Ok(listed) => {
                all.insert(volume, listed);
            }
            Err(failure) => {
                tracing::warn!(%volume, error = %chain(&failure), "folders of a volume are not looked for");
            }
        }
    }
    Ok(all)
}

/// When the id was made, which says so; None for one that does not.
fn made_at(id: FolderId) -> Option<Timestamp> {
    let (seconds, nanoseconds) = id.0.get_timestamp()?.to_unix();
    let millis = seconds
        .checked_mul(1000)?
        .checked_add(u64::from(nanoseconds) / 1_000_000)?;
    Some(Timestamp::from_millis(i64::try_from(millis).ok()?))
}

fn some_of(all: &[String]) -> String {
    all.iter()
        .take(MAX_NAMED)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}
