//! Looks at volumes, each on a thread of its own: writes down when one goes and when it is back. Changes nothing on one.

use std::collections::BTreeMap;
use std::time::Duration;

use base::observe::chain;
use rules::names::VolumeId;
use rules::volume::VolumeState;

use crate::actions::volumes::note_state;
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
