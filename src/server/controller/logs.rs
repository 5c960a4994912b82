//! Has the logs of deleted sessions removed from their machines. What was deleted stands in the journal; a
//! machine is told all of it again after every start of the server, so that a crash between the two leaves
//! nothing. Never touches the log of a session that still has a row: those go with their age, on the machine.

use std::sync::Arc;
use std::time::Duration;

use base::link::streams::Streams;
use base::observe::chain;

use crate::catalog::Catalog;

/// Sessions told at once. Higher: the journal's reader is held for longer. Lower: more looks at a directory
/// that may have many thousand entries.
const MAX_BATCH: u32 = 500;

/// Commits within this time are looked at together. Higher: a deleted log stays as much longer. Lower: each submit of a
/// session pays for a look at the journal.
const TOGETHER: Duration = Duration::from_millis(500);

/// When the machine is asked again after it could not do it.
const AGAIN: Duration = Duration::from_secs(30);

/// Runs until it is dropped or the catalog is closed; wakes on commits, twice a second at most.
pub(crate) async fn run(catalog: Catalog, streams: Arc<dyn Streams>) {
    let mut revision = catalog.revision();
    let mut after = 0;
    loop {
        revision.borrow_and_update();
        match tell(&catalog, &*streams, after).await {
            Ok((looked, true)) => {
                after = looked;
                continue;
            }
            Ok((looked, false)) => {
                after = looked;
                if revision.changed().await.is_err() {
                    return;
                }
                tokio::time::sleep(TOGETHER).await;
            }
            Err(error) => {
                tracing::warn!(%error, "logs of deleted sessions could not be removed; tried again");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

/// Tells of the next deleted sessions; up to where the journal was read, and whether there may be more.
async fn tell(catalog: &Catalog, streams: &dyn Streams, after: u64) -> Result<(u64, bool), String> {
    let read = catalog.read("look for deleted sessions", move |view| {
        view.sessions_deleted_after(after, MAX_BATCH)
    });
    let (gone, looked) = read.await.map_err(|failure| chain(&failure).to_string())?;
    let more = gone.len() == MAX_BATCH as usize;
    if !gone.is_empty() {
        let told = streams.forget_logs(gone).await;
        told.map_err(|refusal| refusal.text)?;
    }
    Ok((looked, more))
}
