//! Looks at volumes, each on a thread of its own: writes down when one goes and when it is back, and finds its folders again
//! then. Changes nothing on one.

use std::collections::BTreeMap;
use std::time::Duration;

use base::observe::chain;
use rules::names::VolumeId;
use rules::volume::VolumeState;
use store::volumes::refusal_of;

use crate::actions::volumes::{note_state, on_volume};
use crate::appliance::lazy_stores::folder_failure;
use crate::catalog::Lane;
use crate::{Failure, Server, ServerFault};

/// Between two looks. Longer: a volume that came back is refused for longer. Shorter: a server of many volumes is asked more
/// often.
const LOOK: Duration = Duration::from_secs(10);

/// Looks, until it is dropped.
pub(crate) async fn keep(server: Server) {
    let mut before = BTreeMap::new();
    loop {
        if let Err(failure) = look(&server, &mut before).await {
            tracing::error!(error = %chain(&failure), "volumes were not looked at");
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// One look at each. `before`: what the last one found. Looks run side by side: one that hangs keeps no other waiting for longer
/// than its time limit.
pub(crate) async fn look(
    server: &Server,
    before: &mut BTreeMap<VolumeId, VolumeState>,
) -> Result<(), Failure> {
    let known = server
        .catalog()
        .read_now("look for volumes", |view| view.volumes())?;
    if known.is_empty() {
        before.clear();
        return Ok(());
    }
    let shelf = server.folders()?.volumes().clone();
    let mut looks = Vec::new();
    for one in known {
        let (id, path) = (one.volume.id, one.volume.path);
        // A restored catalog may know one that the disk does not, or elsewhere.
        if let Err(error) = shelf.keep(id, std::path::Path::new(&path)) {
            tracing::warn!(volume = %id, %error, "the link to a volume cannot be kept");
        }
        let shelf = shelf.clone();
        looks.push(tokio::task::spawn_blocking(move || (id, shelf.look(id))));
    }
    let mut now = BTreeMap::new();
    for look in looks {
        let (id, sight) = look
            .await
            .map_err(|error| ServerFault::new("look at a volume", error))?;
        now.insert(id, sight.state);
        let is_there = matches!(sight.state, VolumeState::Ready | VolumeState::ReadOnly);
        if is_there
            && before.get(&id) != Some(&sight.state)
            && let Err(failure) = find_again(server, id).await
        {
            tracing::warn!(volume = %id, error = %chain(&failure), "its folders were not looked for");
        }
        let was = before.get(&id).copied().unwrap_or(VolumeState::Ready);
        if was != sight.state {
            server
                .catalog()
                .write_of_server(Lane::Loops, "note the state of a volume", move |rows| {
                    note_state(rows, id, was, sight.state)
                })
                .await?;
        }
    }
    *before = now;
    Ok(())
}

/// Finds the folders of a volume again that have no link on this disk: the box may have come back from a backup to another one.
/// Costs a look at each link.
async fn find_again(server: &Server, volume: VolumeId) -> Result<(), Failure> {
    let store = server.folders()?;
    let rows = server
        .catalog()
        .read("list the folders of a volume", move |view| {
            view.folders_on(volume)
        })
        .await?;
    let shelf = store.volumes().clone();
    let found = on_volume(&shelf, volume, move || {
        let (mut found, mut missed) = (0_u64, None);
        for id in rows {
            match store.find_again(volume, id) {
                Ok(is_found) => found += u64::from(is_found),
                // The volume is gone again.
                Err(error) if refusal_of(&error).is_some() => return Err(error),
                // One keeps no other from being found.
                Err(error) => missed = Some((id, error)),
            }
        }
        Ok((found, missed))
    });
    // Other volumes wait no longer for this one; the thread goes on.
    let Ok(found) = tokio::time::timeout(LOOK, found).await else {
        return Ok(());
    };
    let (found, missed) = found?.map_err(folder_failure)?;
    if let Some((id, error)) = missed {
        tracing::warn!(volume = %volume, folder = %id, %error, "folders on a volume were not found again");
    }
    if found > 0 {
        tracing::info!(volume = %volume, found, "folders on a volume were found again");
    }
    Ok(())
}
